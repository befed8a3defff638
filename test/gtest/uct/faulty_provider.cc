/* Halyard: a libfabric that makes trouble. See faulty_provider.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#ifdef HAVE_OFI

#include "faulty_provider.h"

#include <gtest/gtest.h>

extern "C" {
#include <uct/ofi/ofi_lib.h>
#include <uct/ofi/ofi_wire.h>
}

#include <cstring>
#include <dlfcn.h>
#include <list>
#include <map>
#include <random>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <unordered_map>

namespace uct_test {

namespace {

constexpr unsigned STORM_MAX = 40;   /* reads of the queue that a storm lasts */
constexpr unsigned HOLD_MAX  = 30;   /* and that a completion is held back */
constexpr unsigned VAIN_MAX  = 1000; /* calls in a storm without a look at the queue */
constexpr unsigned LOST_MAX  = 3;    /* as UCT_OFI_LOST_MAX */

/* A table of the provider that is replaced by a copy with some calls of ours. */
template <typename table_t>
class patch {
public:
    table_t &put(table_t **place)
    {
        m_place = place;
        m_real  = *place;
        m_own   = *m_real;
        *place  = &m_own;
        return m_own;
    }

    void undo()
    {
        if (m_place != nullptr) {
            *m_place = m_real;
            m_place  = nullptr;
        }
    }

    const table_t *operator->() const
    {
        return m_real;
    }

private:
    table_t **m_place = nullptr;
    table_t  *m_real  = nullptr;
    table_t   m_own;
};

enum class kind { SEND, RMA, RECEIVE };
enum class fate { GOOD, LOST, BELIED, CUT };

struct registration {
    struct fid_mr *mr;
    patch<struct fi_ops> ops;
    void *desc; /* the provider's */
    uint64_t key;
    uint64_t access;
    uintptr_t base;
    size_t length;
    struct fid *bound; /* the endpoint that it serves, or NULL */
    ptrdiff_t moved;   /* of a device: from where it lies to where its bytes are reached */
};

/* What the provider has, by its context. */
struct operation {
    kind what;
    fate end;
    const registration *memory;
    bool is_multi;
};

struct event {
    uint64_t due; /* when the queue has been read so often */
    struct fi_cq_err_entry entry;
    bool is_repeat;
};

/* What an interface opens. */
struct nic {
    struct fid_domain *domain = nullptr;
    struct fid_cq *cq         = nullptr;
    struct fid_ep *ep         = nullptr;
    patch<struct fi_ops> domain_fid, cq_fid, ep_fid;
    patch<struct fi_ops_domain> domain_ops;
    patch<struct fi_ops_mr> mr_ops;
    patch<struct fi_ops_cq> cq_ops;
    patch<struct fi_ops_msg> msg;
    patch<struct fi_ops_rma> rma;
    size_t tx_size = 0, rx_size = 0, cq_size = 0, inject_size = 0, iov_limit = 0;
    bool needs_memory = false, is_virtual = false, has_devices = false;
    std::unordered_map<void *, operation> posted;
    size_t num_transmits = 0, num_receives = 0;
    unsigned num_lost    = 0;     /* errors of messages since one has come, told or not */
    bool is_ending       = false; /* the endpoint has been closed in vain */
    std::list<event> events;
    uint64_t num_reads = 0;
    unsigned storm     = 0;
    unsigned vain      = 0;
};

struct fabric {
    struct fid_fabric *real;
    patch<struct fi_ops> fid;
    patch<struct fi_ops_fabric> ops;
};

struct {
    faulty_provider *self;
    uct_ofi_lib_t real;
    std::mt19937_64 engine;
    unsigned fail_after; /* calls; 0: none fails */
    std::list<fabric> fabrics;
    std::list<nic> nics;
    std::list<registration> memory;
    std::map<std::string, int> mr_modes; /* of providers, as they say */
    std::string device;                  /* that stands behind those that are not there */
} g;

uct_ofi_lib_t *table()
{
    return (uct_ofi_lib_open() == nullptr) ? &uct_ofi_lib : nullptr;
}

bool chance(unsigned one_in)
{
    return (one_in != 0) && ((g.engine() % one_in) == 0);
}

unsigned below(unsigned limit)
{
    return static_cast<unsigned>(g.engine() % limit);
}

/* Of a call that makes or changes an object. */
bool is_to_fail()
{
    return (g.fail_after > 0) && (--g.fail_after == 0);
}

template <typename object_t, typename list_t, typename member_t>
object_t &find(list_t &list, member_t member, const void *real)
{
    for (object_t &each : list) {
        if (each.*member == real) {
            return each;
        }
    }
    ADD_FAILURE() << "an object that was not opened, or is closed";
    abort();
}

nic &of(struct fid_ep *ep)
{
    return find<nic>(g.nics, &nic::ep, ep);
}

nic &of(struct fid_cq *cq)
{
    return find<nic>(g.nics, &nic::cq, cq);
}

nic &of(struct fid_domain *domain)
{
    return find<nic>(g.nics, &nic::domain, domain);
}

/* ---- memory ---- */

int mr_close(struct fid *fid)
{
    for (auto each = g.memory.begin(); each != g.memory.end(); ++each) {
        if (&each->mr->fid != fid) {
            continue;
        }
        for (const nic &n : g.nics) {
            for (const auto &[context, op] : n.posted) {
                EXPECT_TRUE(n.is_ending || (op.memory != &*each))
                    << "memory that is in use is not registered any more";
            }
        }
        each->mr->mem_desc = each->desc;
        each->mr->key      = each->key;
        each->ops.undo();
        g.memory.erase(each);
        return fi_close(fid);
    }
    ADD_FAILURE() << "memory that is not registered";
    return -FI_EINVAL;
}

int mr_bind(struct fid *fid, struct fid *ep, uint64_t)
{
    find<registration>(g.memory, &registration::mr, fid).bound = ep;
    return is_to_fail() ? -FI_ENOMEM : 0;
}

int mr_control(struct fid *fid, int, void *)
{
    registration &memory = find<registration>(g.memory, &registration::mr, fid);

    EXPECT_NE(nullptr, memory.bound);
    memory.mr->key = memory.key;
    return is_to_fail() ? -FI_ENOMEM : 0;
}

/* As libraries of network devices do with ofi's own buffers, so that these stay where the device
 * finds them: a forked child has none of these pages. */
void keep_from_children(const registration &memory)
{
    if ((memory.access & (FI_SEND | FI_RECV)) == (FI_SEND | FI_RECV)) {
        const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
        const uintptr_t base = memory.base & ~(page - 1);

        EXPECT_EQ(0, madvise(reinterpret_cast<void *>(base), memory.base + memory.length - base,
                             MADV_DONTFORK));
    }
}

/* Where the bytes are: those of a device's memory are not at its address. */
const char *reach(const void *address, size_t length)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

    if (driver == nullptr) {
        return static_cast<const char *>(address);
    }
    const auto find = reinterpret_cast<void *(*)(const void *, size_t)>(
        dlsym(driver, "fakecuda_reach"));
    dlclose(driver);
    return static_cast<const char *>(find(address, length));
}

int mr_reg_at(struct fid *fid, const void *buffer, size_t length, uint64_t access, uint64_t offset,
              uint64_t key, uint64_t flags, struct fid_mr **mr_p, void *context, ptrdiff_t moved)
{
    static const int errors[] = {-FI_ENOMEM, -FI_EIO, -FI_ENOSYS, -FI_EAGAIN};
    nic &n                    = of(reinterpret_cast<struct fid_domain *>(fid));

    if (is_to_fail() || (!(access & FI_SEND) && chance(g.self->faults.refuse))) {
        ++g.self->seen.refused;
        return errors[below(4)];
    }
    if (n.needs_memory) {
        key = static_cast<uint32_t>(g.engine()); /* not the one that is asked for */
    }
    const int ret = n.mr_ops->reg(fid, static_cast<const char *>(buffer) + moved, length, access,
                                  offset, key, flags, mr_p, context);
    if (ret == 0) {
        ++g.self->seen.registered;
        g.memory.emplace_back();
        registration &memory = g.memory.back();
        memory.mr            = *mr_p;
        memory.desc          = (*mr_p)->mem_desc;
        memory.key           = (*mr_p)->key;
        memory.access        = access;
        memory.base          = reinterpret_cast<uintptr_t>(buffer);
        memory.length        = length;
        memory.bound         = nullptr;
        memory.moved         = moved;
        struct fi_ops &ops   = memory.ops.put(&(*mr_p)->fid.ops);
        ops.close            = mr_close;
        if (n.needs_memory) {
            keep_from_children(memory);
            ops.bind          = mr_bind;
            ops.control       = mr_control;
            (*mr_p)->key      = FI_KEY_NOTAVAIL;
        }
        if (n.needs_memory || (moved != 0)) {
            (*mr_p)->mem_desc = &memory;
        }
    }
    return ret;
}

int mr_reg(struct fid *fid, const void *buffer, size_t length, uint64_t access, uint64_t offset,
           uint64_t key, uint64_t flags, struct fid_mr **mr_p, void *context)
{
    EXPECT_EQ(buffer, reach(buffer, length)) << "memory of a device";
    return mr_reg_at(fid, buffer, length, access, offset, key, flags, mr_p, context, 0);
}

/* Memory of a device, where there is a driver. */
int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags,
               struct fid_mr **mr_p)
{
    const struct iovec &iov = *attr->mr_iov;
    const char *place       = reach(iov.iov_base, iov.iov_len);
    const bool is_whole     = (place != nullptr) && /* no other piece of memory follows */
                          (reach(static_cast<char *>(iov.iov_base) + iov.iov_len - 1, 1) ==
                           place + iov.iov_len - 1);

    EXPECT_TRUE(of(reinterpret_cast<struct fid_domain *>(fid)).has_devices);
    EXPECT_EQ(FI_HMEM_CUDA, attr->iface);
    EXPECT_EQ(0, attr->device.cuda);
    EXPECT_NE(place, iov.iov_base) << "memory of the host";
    g.self->seen.hmem += is_whole;
    return !is_whole ? -FI_EINVAL :
           mr_reg_at(fid, iov.iov_base, iov.iov_len, attr->access, attr->offset,
                     attr->requested_key, flags, mr_p, attr->context,
                     place - static_cast<const char *>(iov.iov_base));
}

/* The registration of a buffer, from what ofi names as such; NULL where none is needed. */
const registration *check_memory(const nic &n, void *desc, const void *buffer, size_t length,
                                 uint64_t access)
{
    const auto start = reinterpret_cast<uintptr_t>(buffer);

    if (!n.needs_memory && (reach(buffer, length) == buffer)) {
        return nullptr;
    }
    for (const registration &memory : g.memory) {
        if (&memory == desc) {
            EXPECT_EQ(access, memory.access & access);
            EXPECT_GE(start, memory.base);
            EXPECT_LE(start + length, memory.base + memory.length);
            return &memory;
        }
    }
    ADD_FAILURE() << "a buffer that is not registered";
    return nullptr;
}

void *real_desc(const registration *memory, void *desc)
{
    return (memory != nullptr) ? memory->desc : desc;
}

/* ---- posting ---- */

/* Says -FI_EAGAIN? */
bool is_storm(nic &n)
{
    if ((n.storm == 0) && chance(g.self->faults.storm)) {
        n.storm = 1 + below(STORM_MAX);
    }
    if (n.storm == 0) {
        return false;
    }
    ++g.self->seen.again;
    if (++n.vain > VAIN_MAX) {
        ADD_FAILURE() << "the same again and again, without a look at the completion queue";
        n.storm = 0;
    }
    return true;
}

void started(nic &n, kind what, fate end, void *context, const registration *memory,
             bool is_multi = false)
{
    EXPECT_TRUE(n.posted.insert({context, {what, end, memory, is_multi}}).second)
        << "a context is used twice";
    if (what == kind::RECEIVE) {
        EXPECT_LE(++n.num_receives, n.rx_size) << "more receives than there is room for";
        for (const event &each : n.events) {
            EXPECT_TRUE(each.is_repeat || (each.entry.op_context != context))
                << "a buffer is given away before all that is in it has been told of";
        }
    } else {
        EXPECT_LE(++n.num_transmits, n.tx_size) << "more operations than there is room for";
    }
    EXPECT_LE(n.num_receives + n.num_transmits, n.cq_size)
        << "more operations than there is room for their ends";
}

/* An operation that is not done ends, sooner or later. */
void swallow(nic &n, void *context, uint64_t flags)
{
    event lost = {n.num_reads + below(HOLD_MAX), {}, false};

    lost.entry.op_context = context;
    lost.entry.flags      = flags;
    lost.entry.err        = FI_EIO;
    n.events.push_back(lost);
    ++g.self->seen.swallowed;
}

/* May the message be lost? Those that ofi says again may; it gives a peer up that it has not heard
 * from while so many were lost, and load can keep a peer quiet for as long as one likes. */
bool is_prey(const nic &n, const void *buffer)
{
    const unsigned type = static_cast<const uct_ofi_head_t *>(buffer)->type;

    return !g.self->faults.spare || ((type < UCT_OFI_REJECT) && (n.num_lost < LOST_MAX));
}

bool is(unsigned type, const void *buffer)
{
    return static_cast<const uct_ofi_head_t *>(buffer)->type == type;
}

void note(const void *buffer, size_t length)
{
    const auto *data = static_cast<const uint8_t *>(buffer);

    if ((g.self->said != nullptr) && (length <= sizeof(uct_ofi_intro_t))) {
        g.self->said->emplace_back(data, data + length);
    }
}

/* buffer: what begins with a head; send: has the real provider do it. */
template <typename F>
ssize_t send_by(nic &n, const registration *memory, const void *buffer, size_t length,
                void *context, F send)
{
    if (is(UCT_OFI_DATA, buffer) && chance(g.self->faults.keep)) {
        started(n, kind::SEND, fate::LOST, context, memory);
        ++g.self->seen.kept;
        return 0;
    }
    const bool is_lost   = is_prey(n, buffer) && chance(g.self->faults.swallow);
    const bool is_belied = !is_lost && is_prey(n, buffer) && chance(g.self->faults.belie);
    const fate end       = is_lost ? fate::LOST : is_belied ? fate::BELIED : fate::GOOD;
    const ssize_t ret = is_lost ? 0 : send();
    if (ret == 0) {
        started(n, kind::SEND, end, context, memory);
        note(buffer, length);
        ++g.self->seen.messages;
        n.num_lost += is_lost || is_belied;
        g.self->seen.farewells += (is_lost || is_belied) && is(UCT_OFI_BYE, buffer);
        if (is_lost) {
            swallow(n, context, FI_SEND | FI_MSG);
        }
    }
    return ret;
}

ssize_t ep_send(struct fid_ep *ep, const void *buffer, size_t length, void *desc, fi_addr_t dest,
                void *context)
{
    nic &n = of(ep);

    if (is_storm(n)) {
        return -FI_EAGAIN;
    }
    const registration *memory = check_memory(n, desc, buffer, length, FI_SEND);
    return send_by(n, memory, buffer, length, context, [&]() {
        return n.msg->send(ep, buffer, length, real_desc(memory, desc), dest, context);
    });
}

/* From memory that is not registered, so where that need not be. */
ssize_t ep_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                 fi_addr_t dest, void *context)
{
    nic &n = of(ep);

    EXPECT_LE(count, n.iov_limit);
    EXPECT_FALSE(n.needs_memory);
    if (is_storm(n)) {
        return -FI_EAGAIN;
    }
    ++g.self->seen.gathered;
    return send_by(n, nullptr, iov[0].iov_base, iov[0].iov_len, context, [&]() {
        return n.msg->sendv(ep, iov, desc, count, dest, context);
    });
}

ssize_t ep_inject(struct fid_ep *ep, const void *buffer, size_t length, fi_addr_t dest)
{
    nic &n = of(ep);

    EXPECT_LE(length, n.inject_size);
    if (is_storm(n)) {
        return -FI_EAGAIN;
    }
    ++g.self->seen.messages;
    if (is_prey(n, buffer) && chance(g.self->faults.swallow)) {
        swallow(n, nullptr, FI_SEND | FI_MSG);
        return 0;
    }
    note(buffer, length);
    return n.msg->inject(ep, buffer, length, dest);
}

ssize_t ep_recvmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
    nic &n            = of(ep);
    struct fi_msg own = *msg;
    void *desc        = (msg->desc != nullptr) ? msg->desc[0] : nullptr;

    if (chance(g.self->faults.storm)) {
        ++g.self->seen.again;
        return -FI_EAGAIN;
    }
    if (g.self->faults.full) {
        return -FI_ENOMEM;
    }
    const registration *memory = check_memory(n, desc, msg->msg_iov->iov_base,
                                              msg->msg_iov->iov_len, FI_RECV);
    desc     = real_desc(memory, desc);
    own.desc = (msg->desc != nullptr) ? &desc : nullptr;
    const ssize_t ret = n.msg->recvmsg(ep, &own, flags);
    if (ret == 0) {
        started(n, kind::RECEIVE, fate::GOOD, msg->context, memory, (flags & FI_MULTI_RECV) != 0);
    }
    return ret;
}

/* Reads and writes of a peer's memory; post(buffer, length, desc, remote) calls the provider. */
template <typename post_t>
ssize_t post_rma(struct fid_ep *ep, bool is_write, const void *buffer, size_t length, void *desc,
                 uint64_t remote, uint64_t key, void *context, const post_t &post)
{
    nic &n = of(ep);

    if (is_storm(n)) {
        return -FI_EAGAIN;
    }
    const registration *memory = check_memory(n, desc, buffer, length,
                                              is_write ? FI_WRITE : FI_READ);
    if (n.needs_memory) { /* the address is the owner's; the provider's are offsets */
        for (const registration &each : g.memory) {
            if (each.key == key) {
                EXPECT_TRUE(each.access & (is_write ? FI_REMOTE_WRITE : FI_REMOTE_READ));
                remote -= n.is_virtual ? 0 : each.base;
            }
        }
    }
    const bool is_lost = chance(g.self->faults.swallow);
    const fate end     = (chance(g.self->faults.cut) && (length > 1)) ? fate::CUT :
                         chance(g.self->faults.belie)                 ? fate::BELIED : fate::GOOD;
    char *place       = static_cast<char *>(const_cast<void *>(buffer)) +
                  ((memory != nullptr) ? memory->moved : 0);
    const ssize_t ret = is_lost ? 0 : post(place, (end == fate::CUT) ? length / 2 : length,
                                           real_desc(memory, desc), remote);
    if (ret == 0) {
        started(n, kind::RMA, end, context, memory);
        ++(is_write ? g.self->seen.writes : g.self->seen.reads);
        if (is_lost) {
            swallow(n, context, (is_write ? FI_WRITE : FI_READ) | FI_RMA);
        }
    }
    return ret;
}

ssize_t ep_read(struct fid_ep *ep, void *buffer, size_t length, void *desc, fi_addr_t source,
                uint64_t remote, uint64_t key, void *context)
{
    return post_rma(ep, false, buffer, length, desc, remote, key, context,
                    [=](void *place, size_t done, void *real, uint64_t where) {
                        return of(ep).rma->read(ep, place, done, real, source, where, key,
                                                context);
                    });
}

ssize_t ep_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    EXPECT_TRUE(flags & FI_DELIVERY_COMPLETE);
    EXPECT_EQ(1u, msg->iov_count);
    EXPECT_EQ(1u, msg->rma_iov_count);
    EXPECT_EQ(msg->msg_iov->iov_len, msg->rma_iov->len);
    return post_rma(ep, true, msg->msg_iov->iov_base, msg->msg_iov->iov_len, msg->desc[0],
                    msg->rma_iov->addr, msg->rma_iov->key, msg->context,
                    [=](void *place, size_t done, void *real, uint64_t where) {
                        struct iovec iov        = {place, done};
                        struct fi_rma_iov there = {where, done, msg->rma_iov->key};
                        struct fi_msg_rma own   = *msg;
                        own.msg_iov             = &iov;
                        own.rma_iov             = &there;
                        own.desc                = &real;
                        return of(ep).rma->writemsg(ep, &own, flags);
                    });
}

/* ---- the completion queue ---- */

/* What the provider tells is kept, and made bad. */
void take(nic &n, struct fi_cq_err_entry entry)
{
    faulty_provider &self = *g.self;
    event taken           = {n.num_reads, entry, false};
    const auto found      = n.posted.find(entry.op_context);

    if ((entry.err == 0) && (found != n.posted.end())) {
        const operation &op = found->second;
        const bool is_spoilt = (op.what == kind::RECEIVE) && (entry.flags & FI_RECV) &&
                               chance(self.faults.spoil);
        self.seen.spoiled += is_spoilt;
        self.seen.belied  += (op.end == fate::BELIED);
        self.seen.cut     += (op.end == fate::CUT);
        if (is_spoilt || (op.end != fate::GOOD)) {
            taken.entry.err = FI_EIO;
            taken.entry.len = 0;
        }
    }
    if (chance(self.faults.hold)) {
        taken.due += below(HOLD_MAX);
        ++self.seen.held;
    }
    n.events.push_back(taken);
}

/* Room for the ends of operations is in the queue; it is the provider's own for messages. */
ssize_t fetch(nic &n)
{
    struct fi_cq_data_entry entries[8];
    struct fi_cq_err_entry entry;
    ssize_t ret = -FI_EAGAIN;

    if (!g.self->faults.deaf && (n.events.size() < n.cq_size)) {
        ret = n.cq_ops->read(n.cq, entries, 8);
    }
    for (ssize_t i = 0; i < ret; ++i) {
        entry            = {};
        entry.op_context = entries[i].op_context;
        entry.flags      = entries[i].flags;
        entry.len        = entries[i].len;
        entry.buf        = entries[i].buf;
        take(n, entry);
    }
    if (ret == -FI_EAVAIL) {
        entry = {};
        if (n.cq_ops->readerr(n.cq, &entry, 0) == 1) {
            take(n, entry);
        }
        return -FI_EAGAIN;
    }
    return ret;
}

/* Errors of messages that are to be told yet. */
unsigned num_lost_under_way(const nic &n)
{
    unsigned count = 0;

    for (const auto &[context, op] : n.posted) {
        count += (op.what == kind::SEND) && (op.end != fate::GOOD);
    }
    return count;
}

/* Told to ofi: the operation is over. */
void told(nic &n, const event &each)
{
    const auto found = n.posted.find(each.entry.op_context);

    if (found == n.posted.end()) {
        return;
    }
    if ((each.entry.flags & FI_RECV) && (each.entry.err == 0)) {
        n.num_lost = num_lost_under_way(n);
    }
    if (found->second.what != kind::RECEIVE) {
        --n.num_transmits;
    } else if (!found->second.is_multi || (each.entry.flags & FI_MULTI_RECV)) {
        --n.num_receives;
    } else {
        return;
    }
    n.posted.erase(found);
}

/* Nobody can tell a repeated error from one of a later operation with the same context. */
bool is_ambiguous(const nic &n, const event &each)
{
    return each.is_repeat && (n.posted.count(each.entry.op_context) != 0);
}

ssize_t cq_read(struct fid_cq *cq, void *buffer, size_t count)
{
    auto *entries = static_cast<struct fi_cq_data_entry *>(buffer);
    nic &n        = of(cq);
    size_t num    = 0;
    bool is_error = false;

    if (g.self->faults.broken) {
        return -FI_EIO;
    }
    ++n.num_reads;
    n.vain = 0;
    n.storm -= (n.storm > 0);
    const ssize_t ret = fetch(n);
    for (auto each = n.events.begin(); (each != n.events.end()) && (num < count);) {
        const bool is_due = (each->due <= n.num_reads);

        if (is_due && is_ambiguous(n, *each)) {
            each = n.events.erase(each);
        } else if (is_due && (each->entry.err == 0)) {
            entries[num++] = {each->entry.op_context, each->entry.flags, each->entry.len,
                              each->entry.buf, 0};
            told(n, *each);
            each = n.events.erase(each);
        } else if (is_due) { /* what came later waits until the error has been read */
            is_error = true;
            break;
        } else {
            ++each;
        }
    }
    return (num > 0) ? static_cast<ssize_t>(num) :
           is_error  ? -FI_EAVAIL :
           (ret < 0) ? ret : -FI_EAGAIN;
}

ssize_t cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *entry, uint64_t)
{
    nic &n = of(cq);

    for (auto each = n.events.begin(); each != n.events.end(); ++each) {
        if ((each->entry.err == 0) || (each->due > n.num_reads) || is_ambiguous(n, *each)) {
            continue;
        }
        event again = *each;
        *entry      = each->entry;
        told(n, *each);
        n.events.erase(each);
        if (!again.is_repeat && chance(g.self->faults.repeat)) {
            again.is_repeat = true;
            again.due       = n.num_reads + (chance(2) ? 0 : below(HOLD_MAX));
            n.events.push_back(again);
            ++g.self->seen.repeated;
        }
        return 1;
    }
    return -FI_EAGAIN;
}

int fabric_trywait(struct fid_fabric *real, struct fid **fids, int count)
{
    for (const nic &n : g.nics) {
        if ((count == 1) && (&n.cq->fid == fids[0]) && !n.events.empty()) {
            return -FI_EAGAIN;
        }
    }
    return find<fabric>(g.fabrics, &fabric::real, real).ops->trywait(real, fids, count);
}

/* ---- objects ---- */

int ep_close(struct fid *fid)
{
    nic &n = of(reinterpret_cast<struct fid_ep *>(fid));

    for (const registration &each : g.memory) {
        if (each.bound == fid) {
            EXPECT_FALSE(n.is_ending) << "memory is bound to the endpoint";
            n.is_ending = true;
            return -FI_EBUSY;
        }
    }
    n.msg.undo();
    n.rma.undo();
    n.ep_fid.undo();
    n.ep = nullptr;
    n.posted.clear();
    n.events.clear();
    return fi_close(fid);
}

/* Some tables are final only now. */
int ep_control(struct fid *fid, int command, void *arg)
{
    nic &n = of(reinterpret_cast<struct fid_ep *>(fid));

    if ((command == FI_ENABLE) && is_to_fail()) {
        return -FI_ENOMEM;
    }
    const int ret = n.ep_fid->control(fid, command, arg);
    if ((command == FI_ENABLE) && (ret == 0)) {
        struct fi_ops_msg &msg = n.msg.put(&n.ep->msg);
        msg.send               = ep_send;
        msg.sendv              = ep_sendv;
        msg.inject             = ep_inject;
        msg.recvmsg            = ep_recvmsg;
        if (n.ep->rma != nullptr) {
            struct fi_ops_rma &rma = n.rma.put(&n.ep->rma);
            rma.read               = ep_read;
            rma.writemsg           = ep_writemsg;
        }
        struct fi_ops_cq &cq = n.cq_ops.put(&n.cq->ops);
        cq.read              = cq_read;
        cq.readerr           = cq_readerr;
    }
    return ret;
}

bool is_fake(const struct fi_info &info)
{
    return (info.domain_attr->name != nullptr) && (strncmp(info.domain_attr->name, "fake", 4) == 0);
}

/* A device that is not there gets the name of the one that stands behind it. */
void rename_device(struct fi_info &info, const std::string &name)
{
    if (is_fake(info)) {
        free(info.domain_attr->name);
        info.domain_attr->name = strdup(name.c_str());
    }
}

int close_nothing(struct fid *)
{
    return 0;
}

int copy_nothing(struct fid *fid, int command, void *arg)
{
    EXPECT_EQ(FI_DUP, command);
    *static_cast<struct fid_nic **>(arg) = reinterpret_cast<struct fid_nic *>(fid);
    return 0;
}

/* Devices beside the first one, at PCI addresses whose buses are their numbers. */
void add_devices(struct fi_info *list, unsigned count)
{
    static struct fi_ops ops = {};
    static struct fid_nic nics[16];
    static struct fi_bus_attr buses[16];
    struct fi_info *real = list;

    const char *name = uct_ofi_lib_provider("net");

    while ((real != nullptr) && ((strcmp(real->fabric_attr->prov_name, name) != 0) ||
                                 (real->addr_format != FI_SOCKADDR_IN))) {
        real = real->next;
    }
    ASSERT_LE(count, 16u);
    if (real == nullptr) {
        return;
    }
    g.device    = real->domain_attr->name;
    ops.size    = sizeof(ops);
    ops.close   = close_nothing;
    ops.control = copy_nothing;
    for (unsigned i = count; i-- > 0;) {
        struct fi_info *fake = g.real.dupinfo(real);
        free(fake->domain_attr->name);
        fake->domain_attr->name  = strdup(("fake" + std::to_string(i)).c_str());
        buses[i].bus_type        = FI_BUS_PCI;
        buses[i].attr.pci        = {0, static_cast<uint8_t>(i), 0, 0};
        nics[i].fid.ops          = &ops;
        nics[i].bus_attr         = &buses[i];
        fake->nic                = &nics[i];
        fake->next               = real->next;
        real->next               = fake;
    }
}

/* What the real provider knows of itself. */
struct fi_info *real_info(const struct fi_info *info)
{
    struct fi_info *copy       = g.real.dupinfo(info);
    copy->domain_attr->mr_mode = g.mr_modes[info->fabric_attr->prov_name];
    copy->caps                &= ~FI_HMEM;
    rename_device(*copy, g.device);
    return copy;
}

int domain_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep_p,
                    void *context)
{
    nic &n = of(domain);

    if (n.ep != nullptr) { /* the provider's own, of a connection */
        return n.domain_ops->endpoint(domain, info, ep_p, context);
    }
    if (is_to_fail()) {
        return -FI_ENOMEM;
    }
    struct fi_info *real = real_info(info);
    const int ret        = n.domain_ops->endpoint(domain, real, ep_p, context);
    g.real.freeinfo(real);
    if (ret == 0) {
        n.ep               = *ep_p;
        n.tx_size          = info->tx_attr->size;
        n.rx_size          = info->rx_attr->size;
        n.inject_size      = info->tx_attr->inject_size;
        n.iov_limit        = info->tx_attr->iov_limit;
        struct fi_ops &ops = n.ep_fid.put(&n.ep->fid.ops);
        ops.close          = ep_close;
        ops.control        = ep_control;
    }
    return ret;
}

int cq_close(struct fid *fid)
{
    nic &n = of(reinterpret_cast<struct fid_cq *>(fid));

    n.cq_ops.undo();
    n.cq_fid.undo();
    n.cq = nullptr;
    return fi_close(fid);
}

int domain_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq_p,
                   void *context)
{
    nic &n        = of(domain);
    const int ret = is_to_fail() ? -FI_ENOMEM :
                    n.domain_ops->cq_open(domain, attr, cq_p, context);

    if (ret == 0) {
        n.cq                                  = *cq_p;
        n.cq_size                             = attr->size;
        n.cq_fid.put(&n.cq->fid.ops).close    = cq_close;
    }
    return ret;
}

int domain_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av_p,
                   void *context)
{
    return is_to_fail() ? -FI_ENOMEM : of(domain).domain_ops->av_open(domain, attr, av_p, context);
}

int domain_close(struct fid *fid)
{
    nic &n = of(reinterpret_cast<struct fid_domain *>(fid));

    EXPECT_EQ(nullptr, n.ep);
    EXPECT_EQ(nullptr, n.cq);
    n.domain_ops.undo();
    n.mr_ops.undo();
    n.domain_fid.undo();
    g.nics.remove_if([&n](const nic &each) { return &each == &n; });
    const int ret = fi_close(fid);
    EXPECT_EQ(0, ret) << "what is open in it?";
    return ret;
}

int fabric_domain(struct fid_fabric *real, struct fi_info *info, struct fid_domain **domain_p,
                  void *context)
{
    if (is_to_fail()) {
        return -FI_ENOMEM;
    }
    struct fi_info *own = real_info(info);
    const int ret       = find<fabric>(g.fabrics, &fabric::real, real).ops->domain(real, own,
                                                                                domain_p, context);
    g.real.freeinfo(own);
    if (ret == 0) {
        g.nics.emplace_back();
        nic &n                    = g.nics.back();
        n.domain                  = *domain_p;
        n.needs_memory            = (info->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
        n.is_virtual              = (g.mr_modes[info->fabric_attr->prov_name] &
                                     FI_MR_VIRT_ADDR) != 0;
        struct fi_ops_domain &ops = n.domain_ops.put(&n.domain->ops);
        ops.endpoint              = domain_endpoint;
        ops.cq_open               = domain_cq_open;
        ops.av_open               = domain_av_open;
        n.has_devices             = (info->caps & FI_HMEM) != 0;
        struct fi_ops_mr &mr      = n.mr_ops.put(&n.domain->mr);
        mr.reg                    = mr_reg;
        mr.regattr                = mr_regattr;
        n.domain_fid.put(&n.domain->fid.ops).close = domain_close;
    }
    return ret;
}

int fabric_close(struct fid *fid)
{
    fabric &f = find<fabric>(g.fabrics, &fabric::real, fid);

    f.ops.undo();
    f.fid.undo();
    g.fabrics.remove_if([&f](const fabric &each) { return &each == &f; });
    return fi_close(fid);
}

int lib_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric_p, void *context)
{
    const int ret = is_to_fail() ? -FI_ENOMEM : g.real.fabric(attr, fabric_p, context);

    if (ret == 0) {
        g.fabrics.emplace_back();
        fabric &f                 = g.fabrics.back();
        f.real                    = *fabric_p;
        f.fid.put(&f.real->fid.ops).close = fabric_close;
        struct fi_ops_fabric &ops = f.ops.put(&f.real->ops);
        ops.domain                = fabric_domain;
        ops.trywait               = fabric_trywait;
    }
    return ret;
}

int lib_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                const struct fi_info *hints, struct fi_info **info_p)
{
    const faulty_provider::traits &says = g.self->says;

    if (is_to_fail() || (says.single && (hints->caps & FI_MULTI_RECV)) ||
        (!says.hmem && (hints->caps & FI_HMEM)) ||
        (says.early && (hints->tx_attr->op_flags & FI_DELIVERY_COMPLETE))) {
        return -FI_ENODATA;
    }
    struct fi_info *real = g.real.dupinfo(hints);
    rename_device(*real, g.device);
    real->caps &= ~FI_HMEM;
    real->domain_attr->mr_mode &= ~FI_MR_HMEM;
    const int ret = g.real.getinfo(version, node, service, flags, real, info_p);
    g.real.freeinfo(real);
    if ((ret == 0) && (says.devices > 0)) {
        add_devices(*info_p, says.devices);
    }
    for (struct fi_info *info = (ret == 0) ? *info_p : nullptr; info != nullptr;
         info = info->next) {
        g.mr_modes[info->fabric_attr->prov_name] = info->domain_attr->mr_mode;
        if (says.registered) {
            info->domain_attr->mr_mode |= UCT_OFI_MR_MODES;
        }
        if (hints->caps & FI_HMEM) {
            info->caps                 |= FI_HMEM;
            info->domain_attr->mr_mode |= FI_MR_HMEM;
        }
        if (says.queue != 0) {
            info->tx_attr->size = says.queue;
            info->rx_attr->size = says.queue;
        }
    }
    return ret;
}

} // namespace

faulty_provider::faulty_provider(uint64_t seed)
{
    uct_ofi_lib_t *lib = table();

    g.self       = this;
    g.fail_after = 0;
    g.engine.seed(seed);
    if (lib != nullptr) {
        g.real       = *lib;
        lib->getinfo = lib_getinfo;
        lib->fabric  = lib_fabric;
    }
}

faulty_provider::~faulty_provider()
{
    uct_ofi_lib_t *lib = table();

    EXPECT_TRUE(g.memory.empty()) << "memory is still registered";
    EXPECT_TRUE(g.nics.empty()) << "domains are still open";
    EXPECT_TRUE(g.fabrics.empty()) << "fabrics are still open";
    if (lib != nullptr) {
        *lib = g.real;
    }
    g.self = nullptr;
}

void faulty_provider::fail_call(unsigned n)
{
    g.fail_after = n;
}

bool faulty_provider::has_failed() const
{
    return g.fail_after == 0;
}

} // namespace uct_test

#endif
