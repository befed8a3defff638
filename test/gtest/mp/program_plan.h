/* Halyard: tests of random programs: what one is, the same in all its processes by its seed.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_MP_PROGRAM_PLAN_H
#define TEST_GTEST_MP_PROGRAM_PLAN_H

#include "gpu.h"
#include "seed.h"

#include <algorithm>
#include <utility>

namespace mp::programs {

constexpr size_t   GUARD = 64; /* bytes between messages, and more */
constexpr unsigned NONE  = ~0u;
constexpr size_t   LARGE = 24u << 20;

/* Which of an operation's sides. */
enum { FROM, TO };

enum class what { TAG, STREAM, AM, PUT, GET, ATOMIC, UNMATCHED };

constexpr const char *what_names[] = {"tagged message", "stream", "active message", "put", "get",
                                  "atomic", "receive that nothing matches"};

/* Drawn for each side of an operation; each is four bits of side::draw. */
enum option { SYNC, PROBE, CANCEL, CALLBACK, TYPE, NO_IMMEDIATE, MEMH, FLAG_A, FLAG_B, KEEP, COPY };

struct setting {
    const char *name;
    std::vector<const char *> values;
    unsigned one_in; /* of so many programs has one of these */
};

inline const std::vector<setting> &settings()
{
    static const std::vector<setting> all = {
        {"UCX_TLS", {"mm,cuda_copy", "^cuda_ipc", "^cma", "mm,cuda_copy,cuda_ipc"}, 2},
        {"UCX_RNDV_SCHEME", {"get_zcopy", "put_zcopy", "both", "am"}, 2},
        {"UCX_RNDV_THRESH", {"0", "512", "8192", "inf"}, 2},
        {"UCX_ZCOPY_THRESH", {"0", "4096", "inf"}, 4},
        {"UCX_MM_FIFO_SIZE", {"16", "1024"}, 6},
        {"UCX_MM_BUFFER_THRESH", {"117", "inf"}, 6},
        {"UCX_TM_UNEXP_BUDGET", {"0", "64K"}, 4},
        {"UCX_CUDA_IPC_MAX_MAPPINGS", {"1", "3"}, 6},
        {"UCX_CUDA_IPC_KERNELS", {"y"}, 2},
        {"UCX_IDLE", {"sleep", "yield"}, 6},
    };
    return all;
}

/* Some bytes of an area. */
struct span {
    unsigned area;
    size_t   offset;
    size_t   length;
};

struct side {
    unsigned          process;
    std::vector<span> spans; /* several: an IOV */
    uint64_t          draw;
};

struct operation {
    what            kind;
    unsigned        number;
    size_t          length;
    size_t          room;   /* of the receive; less: the message is truncated */
    uint64_t        id;     /* of its bytes */
    uint64_t        tag;
    uint64_t        mask;   /* of the receive */
    uint64_t        excess; /* what else is in the tag that is sent, where the mask has nothing */
    side            at[2];
    unsigned        before      = NONE; /* operation that either side must have begun by then */
    bool            is_chained  = false; /* others have its tag */
    bool            is_fenced   = false;
    bool            is_shared   = false; /* an atomic on a word that others add to */
    bool            is_dropped  = false; /* an active message that the handler does not want */
    ucp_atomic_op_t atomic      = UCP_ATOMIC_OP_ADD;
    uint64_t        operands[2] = {};

    bool has(unsigned which, option o, unsigned of_16) const
    {
        return ((at[which].draw >> (4 * o)) & 15) < of_16;
    }
};

struct area_plan {
    perf_memory_t kind;
    size_t        size;
    bool          is_mapped;
    bool          is_new; /* in this round */
    size_t        used;
};

inline uint64_t apply(ucp_atomic_op_t code, uint64_t old, const uint64_t operands[2])
{
    switch (code) {
    case UCP_ATOMIC_OP_ADD:
        return old + operands[0];
    case UCP_ATOMIC_OP_AND:
        return old & operands[0];
    case UCP_ATOMIC_OP_OR:
        return old | operands[0];
    case UCP_ATOMIC_OP_XOR:
        return old ^ operands[0];
    case UCP_ATOMIC_OP_CSWAP:
        return (old == operands[0]) ? operands[1] : old;
    default:
        return operands[0];
    }
}

/* What is the same in all processes of a program. */
class plan {
public:
    explicit plan(uint64_t seed) : m_dice(seed)
    {
        m_count  = m_dice.one_in(3) ? 3 : 2;
        m_rounds = 2 + static_cast<unsigned>(m_dice.below(3));
        for (const setting &s : settings()) {
            if (m_dice.one_in(s.one_in)) {
                m_settings.emplace_back(s.name, s.values[m_dice.below(s.values.size())]);
            }
        }
        m_has_large     = m_dice.one_in(12);
        m_is_one_device = m_dice.one_in(3);
        m_is_shared     = m_dice.one_in(5);
        for (unsigned i = 0; i < m_count; ++i) {
            m_has_gpu.push_back((i == 0) || !m_dice.one_in(8));
            areas.emplace_back(3 + m_dice.below(4));
        }
    }

    unsigned count() const
    {
        return m_count;
    }

    unsigned rounds() const
    {
        return m_rounds;
    }

    bool has_gpu(unsigned process) const
    {
        return m_has_gpu[process];
    }

    bool is_one_device() const
    {
        return m_is_one_device;
    }

    /* Are workers for several threads? */
    bool is_shared() const
    {
        return m_is_shared;
    }

    const std::vector<std::pair<const char *, const char *>> &chosen() const
    {
        return m_settings;
    }

    std::string text() const
    {
        std::string all = std::to_string(m_count) + " processes";

        for (const auto &s : m_settings) {
            all += std::string(" ") + s.first + "=" + s.second;
        }
        return all;
    }

    void next_round();
    std::string describe(const operation &op) const;

    std::vector<std::vector<area_plan>> areas; /* of each process */
    std::vector<operation> ops;

private:
    size_t draw_length();
    size_t room(unsigned process, bool is_mapped) const;
    span place(unsigned process, size_t length, bool is_mapped, size_t align);
    void place_side(operation &op, unsigned which, size_t length, bool is_whole);
    void draw_options(operation &op);
    void draw_chain(operation &op);
    bool add();
    void add_atomic(operation &op);

    dice m_dice;
    unsigned m_count, m_rounds;
    bool m_has_large; /* messages of several chunks of those that the library stages in */
    bool m_is_one_device, m_is_shared;
    std::vector<bool> m_has_gpu;
    std::vector<std::pair<const char *, const char *>> m_settings;
    uint64_t m_number = 0; /* of all operations so far */
    std::vector<unsigned> m_last_of_stream;
};

/* New areas in place of some, and the operations of a round. */
inline void plan::next_round()
{
    const bool is_first = (m_number == 0);

    for (unsigned process = 0; process < m_count; ++process) {
        for (area_plan &area : areas[process]) {
            area.is_new = is_first || m_dice.one_in(3);
            if (area.is_new) {
                area.kind = m_has_gpu[process] && !m_dice.one_in(4) ?
                            static_cast<perf_memory_t>(m_dice.below(PERF_MEMORY_COUNT)) :
                            PERF_MEMORY_HOST;
                area.size = m_has_large      ? LARGE + m_dice.below(8u << 20) :
                            m_dice.one_in(3) ? (3u << 20) + m_dice.below(8u << 20) :
                                               65536 + m_dice.below(1u << 20);
                area.is_mapped = (&area == &areas[process][0]) || !m_dice.one_in(3);
            }
            area.used = GUARD;
            if (area.kind == PERF_MEMORY_VMM_PIECES) { /* messages lie where the second begins */
                area.size = perf_memory_extent(area.kind, area.size);
                area.used = (area.size / 2) - m_dice.below(1u << 19);
            }
        }
    }
    ops.clear();
    m_last_of_stream.assign(m_count * m_count, NONE);
    const size_t number = 8 + m_dice.below(m_dice.one_in(4) ? 64 : 24);
    while ((ops.size() < number) && add()) {
    }
}

inline size_t plan::draw_length()
{
    static const size_t borders[] = {0, 1, 8, 64, 4096, 8192, 16384, 65536, 262144, 1u << 20};
    const size_t border           = borders[m_dice.below(std::size(borders))];

    switch (m_dice.below(10)) {
    case 0:
    case 1:
        return m_dice.below(64);
    case 2:
    case 3:
        return m_dice.below(8192);
    case 4:
    case 5:
    case 6:
        return border + m_dice.below(3) - ((border > 0) ? 1 : 0);
    case 7:
        return m_dice.below(65536);
    case 8:
        return m_dice.below(262144);
    default:
        if (m_has_large && m_dice.one_in(2)) {
            return LARGE - m_dice.below(LARGE / 4);
        }
        return m_dice.below(m_dice.one_in(3) ? 4u << 20 : 1u << 20);
    }
}

/* The longest message that all of a process's areas together have place for, in one piece. */
inline size_t plan::room(unsigned process, bool is_mapped) const
{
    size_t most = 0;

    for (const area_plan &area : areas[process]) {
        if (!is_mapped || area.is_mapped) {
            most = std::max(most, area.size - std::min(area.size, area.used + (3 * GUARD)));
        }
    }
    return most;
}

inline span plan::place(unsigned process, size_t length, bool is_mapped, size_t align)
{
    std::vector<area_plan> &all = areas[process];

    for (unsigned i = static_cast<unsigned>(m_dice.below(all.size()));;
         i = (i + 1) % static_cast<unsigned>(all.size())) {
        const size_t offset = (all[i].used + m_dice.below(GUARD) + align - 1) / align * align;
        if ((!is_mapped || all[i].is_mapped) && (offset + length + GUARD <= all[i].size)) {
            all[i].used = offset + length + GUARD;
            return {i, offset, length};
        }
    }
}

/* In one piece, or in several. */
inline void plan::place_side(operation &op, unsigned which, size_t length, bool is_whole)
{
    side &s = op.at[which];

    s.draw = m_dice.bits();
    if (is_whole || !m_dice.one_in(4)) {
        s.spans.push_back(place(s.process, length, is_whole, 1));
        return;
    }
    for (unsigned parts = 2 + static_cast<unsigned>(m_dice.below(3)); parts > 0; --parts) {
        const size_t part = (parts == 1) ? length : m_dice.below(length + 1);
        s.spans.push_back(place(s.process, part, false, 1));
        length -= part;
    }
}

/* What both sides must know of an operation. */
inline void plan::draw_options(operation &op)
{
    const bool is_message = (op.kind == what::TAG) || (op.kind == what::AM);

    if (is_message && (op.length > 1) && m_dice.one_in(12)) {
        op.room = 1 + m_dice.below(op.length - 1);
    }
    op.is_dropped = (op.kind == what::AM) && (op.room == op.length) && m_dice.one_in(10);
}

/* Bytes of one stream follow each other, as do messages of one tag; a put is written over by
 * another, or read, after a fence. */
inline void plan::draw_chain(operation &op)
{
    if (op.kind == what::STREAM) {
        unsigned &last = m_last_of_stream[(op.at[FROM].process * m_count) + op.at[TO].process];
        op.before      = std::exchange(last, op.number);
        return;
    }
    for (unsigned i = op.number; (i-- > 0) && (i + 12 > op.number);) {
        operation &other = ops[i];
        if ((op.kind == what::TAG) && (other.kind == what::TAG) && m_dice.one_in(2) &&
            (op.at[FROM].process == other.at[FROM].process) &&
            (op.at[TO].process == other.at[TO].process)) {
            const bool is_last = std::none_of(ops.begin(), ops.end(), [&](const operation &o) {
                return o.before == i;
            });
            if (is_last) {
                op.before     = i;
                op.tag        = other.tag;
                op.is_chained = other.is_chained = true;
                return;
            }
        }
    }
}

/* On a word of its own, or one that others add to as well. */
inline void plan::add_atomic(operation &op)
{
    static constexpr ucp_atomic_op_t codes[] = {UCP_ATOMIC_OP_ADD, UCP_ATOMIC_OP_SWAP,
                                                UCP_ATOMIC_OP_CSWAP, UCP_ATOMIC_OP_AND,
                                                UCP_ATOMIC_OP_OR, UCP_ATOMIC_OP_XOR};
    uint64_t old = 0;

    op.length      = m_dice.one_in(2) ? 4 : 8;
    op.room        = op.length;
    op.operands[0] = m_dice.bits();
    op.operands[1] = m_dice.bits();
    op.at[FROM].draw = m_dice.bits();
    for (operation &other : ops) {
        if ((other.kind == what::ATOMIC) && (other.atomic == UCP_ATOMIC_OP_ADD) &&
            (other.at[TO].process == op.at[TO].process) && m_dice.one_in(2)) {
            other.is_shared = op.is_shared = true;
            op.at[TO]   = other.at[TO];
            op.length   = other.length;
            op.id       = 0; /* it is there already */
            return;
        }
    }
    op.atomic = codes[m_dice.below(std::size(codes))];
    op.at[TO].spans.push_back(place(op.at[TO].process, op.length, true, 8));
    op.at[TO].draw = 0;
    fill(&old, op.length, op.id);
    if (m_dice.one_in(2)) {
        op.operands[0] = old; /* what CSWAP compares with */
    }
}

/* One more operation; false where there is no room left. */
inline bool plan::add()
{
    constexpr what kinds[] = {what::TAG, what::TAG, what::TAG, what::TAG, what::STREAM,
                              what::STREAM, what::AM, what::AM, what::AM, what::PUT, what::PUT,
                              what::GET, what::GET, what::ATOMIC, what::UNMATCHED};
    operation op = {};

    op.kind             = kinds[m_dice.below(std::size(kinds))];
    op.number           = static_cast<unsigned>(ops.size());
    op.id               = ++m_number;
    op.tag              = m_number;
    op.mask             = m_dice.one_in(4) ? ~(0xffull << 48) : UINT64_MAX;
    op.excess           = (m_dice.below(256) << 48) & ~op.mask;
    op.before           = NONE;
    op.at[FROM].process = static_cast<unsigned>(m_dice.below(m_count));
    op.at[TO].process   = static_cast<unsigned>(
        (op.at[FROM].process + (m_dice.one_in(8) ? 0 : 1 + m_dice.below(m_count - 1))) % m_count);
    const bool is_rma   = (op.kind == what::PUT) || (op.kind == what::GET);
    const size_t most   = std::min(room(op.at[FROM].process, false),
                                   room(op.at[TO].process, is_rma || (op.kind == what::ATOMIC)));
    if (most < 4096) {
        return false;
    }
    if (op.kind == what::ATOMIC) {
        add_atomic(op);
        ops.push_back(op);
        return true;
    }
    const unsigned copies = 1 + (op.kind == what::PUT) +
                            (op.at[FROM].process == op.at[TO].process); /* in one area at most */
    op.length = op.room   = std::min(draw_length(), (most - 4096) / copies);
    draw_options(op);
    draw_chain(op);
    if (op.kind == what::UNMATCHED) {
        op.at[FROM].process = op.at[TO].process;
    } else {
        place_side(op, FROM, op.length, false);
    }
    place_side(op, TO, op.room, is_rma);
    ops.push_back(op);
    if ((op.kind == what::PUT) && m_dice.one_in(3)) {
        operation second = op;
        second.number    = static_cast<unsigned>(ops.size());
        second.kind      = m_dice.one_in(2) ? what::PUT : what::GET;
        second.id        = (second.kind == what::PUT) ? ++m_number : op.id;
        second.before    = op.number;
        second.is_fenced = true;
        second.at[FROM].spans.clear();
        place_side(second, FROM, second.length, false);
        ops.push_back(second);
    }
    return true;
}

inline std::string plan::describe(const operation &op) const
{
    std::string text = "#" + std::to_string(op.number) + " " +
                       what_names[static_cast<int>(op.kind)] + " of " +
                       std::to_string(op.length) + " bytes";

    for (unsigned which : {FROM, TO}) {
        text += ((which == FROM) ? ", " : " to ") + std::to_string(op.at[which].process) + ":";
        for (const span &s : op.at[which].spans) {
            text += std::string(" ") + perf_memory_names[areas[op.at[which].process][s.area].kind];
        }
    }
    return text + ((op.room < op.length) ? " (truncated)" : "") +
           (op.is_dropped ? " (dropped)" : "") + (op.is_fenced ? " (after a fence)" : "");
}

} // namespace mp::programs

#endif
