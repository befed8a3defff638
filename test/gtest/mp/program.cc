/* Halyard: tests of random programs: what a process starts, and how that ends.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "program.h"
#include "snapshot.h"

#include <algorithm>
#include <unistd.h>

namespace mp::programs {

static constexpr uint64_t TAG_UNMATCHED = 1ull << 61;
static constexpr unsigned NAPS_MAX      = 6; /* of a round */
static constexpr unsigned AM_PASSING    = 3; /* id of messages whose data passes by */
static constexpr unsigned AM_KEPT       = 4; /* the same, of data that is a copy */

char where[400];

template <unsigned ID>
void program::handle(uint32_t flags)
{
    ucp_am_handler_param_t handler = {};

    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
    handler.id    = ID;
    handler.cb    = on_am<ID>;
    handler.arg   = this;
    handler.flags = flags;
    EXPECT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(m_node->worker(), &handler));
}

program::program(self &me, plan &p, uint64_t seed) :
    m_me(me), m_plan(p), m_seed(seed), m_dice((seed * 16) + me.index() + 1),
    m_areas(p.areas[me.index()].size()), m_peers(p.count())
{
    for (const auto &s : p.chosen()) {
        setenv(s.first, s.second, 1);
    }
    if (p.has_gpu(me.index())) {
        m_gpu = std::make_unique<gpu>(p.is_one_device() ? 0 : me.index());
        EXPECT_TRUE(m_gpu->is_open()) << m_gpu->problem();
        gpu_buffer first(*m_gpu, PERF_MEMORY_ASYNC, 1); /* the driver keeps that pool */
    }
    {
        node rendezvous(me);
        rendezvous.barrier(); /* all have their contexts */
        m_free_before = (m_gpu != nullptr) ? m_gpu->free_bytes() : 0;
        rendezvous.barrier();
    }
    m_files_before = count_descriptors();
    m_node         = std::make_unique<node>(me, p.is_shared() ? UCS_THREAD_MODE_MULTI :
                                                        UCS_THREAD_MODE_SINGLE);
    handle<AM_PASSING>(0);
    handle<AM_KEPT>(UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA);
    m_node->connect_all();
    for (unsigned i = 0; i < p.count(); ++i) {
        m_peers[i].resize(p.areas[i].size());
    }
    m_node->barrier();
}

/* All ends, and nothing is left. */
program::~program()
{
    m_node->barrier();
    drop_areas(true);
    for (unsigned i = 0; i < m_plan.count(); ++i) {
        EXPECT_EQ(0u, m_node->errors(m_node->ep(i)).count);
        m_node->close(m_node->ep(i));
    }
    m_node->barrier();
    m_node.reset();
    {
        node rendezvous(m_me);
        rendezvous.barrier();
        if ((m_gpu != nullptr) && !is_gpu_real()) { /* whose memory others take, too */
            EXPECT_GE(m_gpu->free_bytes(), m_free_before);
            EXPECT_EQ(0u, gpu::function<uint64_t()>("fakecuda_misuses")());
        }
        rendezvous.barrier();
    }
    m_gpu.reset();
    EXPECT_TRUE(is_gpu_real() || (count_descriptors() <= m_files_before))
        << m_files_before << " descriptors, then " << count_descriptors();
}

void program::watch(const task &t, const char *doing)
{
    const std::string text = m_plan.describe(*t.op);

    snprintf(where, sizeof(where), "HALYARD_TEST_SEED=%lu, process %u, round %u, %s %s",
             static_cast<unsigned long>(m_seed), m_me.index(), m_round, doing, text.c_str());
    m_me.waits_for("%s", where);
}

/* Starts come in an order of this process's own, but what builds on another comes after it. */
void program::make_tasks()
{
    m_tasks.clear();
    m_tasks.reserve(2 * m_plan.ops.size());
    for (unsigned which : {FROM, TO}) {
        m_task_of[which].assign(m_plan.ops.size(), nullptr);
        for (operation &op : m_plan.ops) {
            const bool is_own = (which == FROM) ? (op.kind != what::UNMATCHED) :
                                (op.kind == what::TAG) || (op.kind == what::STREAM) ||
                                (op.kind == what::AM) || (op.kind == what::UNMATCHED);
            if (is_own && is_mine(op, which)) {
                task t  = {};
                t.op    = &op;
                t.which = which;
                t.at    = ((which == TO) && (op.kind == what::AM)) ? stage::AWAITED : stage::IDLE;
                m_tasks.push_back(t);
                m_task_of[which][op.number] = &m_tasks.back();
            }
        }
    }
}

void program::on_send(void *, ucs_status_t, void *arg)
{
    ++static_cast<task *>(arg)->calls;
}

void program::on_tag(void *, ucs_status_t, const ucp_tag_recv_info_t *info, void *arg)
{
    task *t = static_cast<task *>(arg);

    ++t->calls;
    t->info = *info;
}

void program::on_bytes(void *, ucs_status_t, size_t length, void *arg)
{
    task *t = static_cast<task *>(arg);

    ++t->calls;
    t->got = length;
}

/* A buffer and what is said of it; of its bytes length from `from` on. */
program::call program::prepare(task &t, size_t from, size_t length)
{
    const operation &op = *t.op;
    call c              = {};
    size_t rest         = length;
    area *only          = nullptr;

    t.iov.clear();
    for (const span &s : op.at[t.which].spans) {
        const size_t skipped = std::min(from, s.length);
        const size_t part    = std::min(s.length - skipped, rest);
        only                 = m_areas[s.area].get();
        t.iov.push_back({only->memory() + s.offset + skipped, part});
        from -= skipped;
        rest -= part;
    }
    if (op.at[t.which].spans.size() == 1) {
        c.buffer = t.iov[0].buffer;
        c.count  = length;
        if (op.has(t.which, TYPE, 6)) {
            c.param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
            c.param.memory_type   = only->type();
        }
        if (op.has(t.which, MEMH, 4) && (only->mem != nullptr)) {
            c.param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
            c.param.memh          = only->mem;
        }
    } else {
        c.buffer              = t.iov.data();
        c.count               = t.iov.size();
        c.param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
        c.param.datatype      = ucp_dt_make_iov();
    }
    t.has_callback = op.has(t.which, CALLBACK, 8);
    t.calls        = 0;
    if (t.has_callback) {
        c.param.op_attr_mask |= UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        c.param.user_data     = &t;
        c.param.cb.send       = on_send;
    }
    if (op.has(t.which, NO_IMMEDIATE, 4)) {
        c.param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    }
    return c;
}

ucs_status_ptr_t program::start_send(task &t)
{
    operation &op = *t.op;
    ucp_ep_h ep   = m_node->ep(op.at[TO].process);
    call c        = prepare(t, 0, op.length);

    if (op.kind == what::TAG) {
        return op.has(FROM, SYNC, 4) ?
               ucp_tag_send_sync_nbx(ep, c.buffer, c.count, op.tag | op.excess, &c.param) :
               ucp_tag_send_nbx(ep, c.buffer, c.count, op.tag | op.excess, &c.param);
    }
    if (op.kind == what::STREAM) {
        return ucp_stream_send_nbx(ep, c.buffer, c.count, &c.param);
    }
    const uint64_t number = op.number;
    std::vector<uint8_t> header(sizeof(number) + (op.id % 200));
    memcpy(header.data(), &number, sizeof(number));
    fill(header.data() + sizeof(number), op.id % 200, op.id);
    c.param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    c.param.flags = op.has(FROM, FLAG_A, 4) ? static_cast<unsigned>(UCP_AM_SEND_FLAG_RNDV) :
                    op.has(FROM, FLAG_A, 8) ? static_cast<unsigned>(UCP_AM_SEND_FLAG_EAGER) : 0u;
    c.param.flags |= op.has(FROM, FLAG_B, 4) ? static_cast<unsigned>(UCP_AM_SEND_FLAG_REPLY) : 0u;
    if (op.has(FROM, COPY, 4)) {
        c.param.flags |= UCP_AM_SEND_FLAG_COPY_HEADER;
    } else {
        t.header = header;
    }
    const ucs_status_ptr_t request =
        ucp_am_send_nbx(ep, op.has(FROM, KEEP, 8) ? AM_KEPT : AM_PASSING,
                        t.header.empty() ? header.data() : t.header.data(), header.size(),
                        c.buffer, c.count, &c.param);
    std::fill(header.begin(), header.end(), GUARD_BYTE);
    return request;
}

ucs_status_ptr_t program::start_rma(task &t)
{
    const operation &op    = *t.op;
    const span &target     = op.at[TO].spans[0];
    const peer_area &there = m_peers[op.at[TO].process][target.area];
    const uint64_t address = there.address + target.offset;
    ucp_ep_h ep            = m_node->ep(op.at[TO].process);
    call c                 = prepare(t, 0, op.length);

    if (op.is_fenced) {
        EXPECT_EQ(UCS_OK, ucp_worker_fence(m_node->worker()));
    }
    if ((op.at[FROM].spans.size() == 1) && op.has(FROM, FLAG_A, 3)) {
        const ucs_status_t status = (op.kind == what::PUT) ?
                                    ucp_put_nbi(ep, c.buffer, c.count, address, there.rkey) :
                                    ucp_get_nbi(ep, c.buffer, c.count, address, there.rkey);
        EXPECT_TRUE((status == UCS_OK) || (status == UCS_INPROGRESS))
            << ucs_status_string(status);
        t.has_callback = false;
        return nullptr; /* the flush at the end of the round waits for it */
    }
    return (op.kind == what::PUT) ?
           ucp_put_nbx(ep, c.buffer, c.count, address, there.rkey, &c.param) :
           ucp_get_nbx(ep, c.buffer, c.count, address, there.rkey, &c.param);
}

ucs_status_ptr_t program::start_atomic(task &t)
{
    operation &op             = *t.op;
    const span &target        = op.at[TO].spans[0];
    const peer_area &there    = m_peers[op.at[TO].process][target.area];
    ucp_request_param_t param = {};

    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype     = ucp_dt_make_contig(op.length);
    memcpy(&t.reply, &op.operands[1], op.length); /* what CSWAP stores */
    if ((op.atomic == UCP_ATOMIC_OP_SWAP) || (op.atomic == UCP_ATOMIC_OP_CSWAP) ||
        op.has(FROM, FLAG_A, 8)) {
        t.got               = 1;
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        param.reply_buffer  = &t.reply;
    }
    return ucp_atomic_op_nbx(m_node->ep(op.at[TO].process), op.atomic, &op.operands[0], 1,
                             there.address + target.offset, there.rkey, &param);
}

/* False: it is to be found by a probe, and has not come yet. */
bool program::start_tag_recv(task &t)
{
    const operation &op       = *t.op;
    const bool is_matched     = op.kind == what::TAG;
    const uint64_t tag        = is_matched ? op.tag : op.tag | TAG_UNMATCHED;
    ucp_tag_message_h message = nullptr;

    if (is_matched && !op.is_chained && op.has(TO, PROBE, 5)) {
        if (op.has(TO, FLAG_B, 8) &&
            (ucp_tag_probe_nb(m_node->worker(), tag, op.mask, 0, &t.info) == nullptr)) {
            return false;
        }
        message = ucp_tag_probe_nb(m_node->worker(), tag, op.mask, 1, &t.info);
        if (message == nullptr) {
            return false;
        }
        EXPECT_EQ(op.length, t.info.length);
        EXPECT_EQ(op.tag | op.excess, t.info.sender_tag);
    }
    call c                     = prepare(t, 0, op.room);
    c.param.op_attr_mask      |= UCP_OP_ATTR_FIELD_RECV_INFO;
    c.param.recv_info.tag_info = &t.info;
    c.param.cb.recv            = on_tag;
    t.info                     = {};
    began(t, (message != nullptr) ?
             ucp_tag_msg_recv_nbx(m_node->worker(), c.buffer, c.count, message, &c.param) :
             ucp_tag_recv_nbx(m_node->worker(), c.buffer, c.count, tag, op.mask, &c.param));
    if (!is_matched || ((message == nullptr) && !op.is_chained && op.has(TO, CANCEL, 3) &&
                        (t.patience == NONE))) {
        t.patience = is_matched ? static_cast<unsigned>(m_dice.below(50)) : 1u << 30;
    }
    return true;
}

/* All that is missing, by one receive or by several. */
void program::start_stream_recv(task &t)
{
    const operation &op  = *t.op;
    const bool waits_all = op.has(TO, FLAG_A, 8);
    ucp_ep_h ep          = m_node->ep(op.at[FROM].process);

    if (t.done == op.length) {
        t.at       = stage::ENDED;
        t.is_begun = true;
        return;
    }
    call c                 = prepare(t, t.done, op.length - t.done);
    c.param.cb.recv_stream = on_bytes;
    c.param.op_attr_mask  |= UCP_OP_ATTR_FIELD_FLAGS;
    c.param.flags          = waits_all ? static_cast<unsigned>(UCP_STREAM_RECV_FLAG_WAITALL) : 0u;
    t.is_begun             = waits_all;
    began(t, ucp_stream_recv_nbx(ep, c.buffer, c.count, &t.got, &c.param));
}

/* False: it cannot be started yet. */
bool program::start(task &t)
{
    const operation &op = *t.op;

    if ((op.before != NONE) && !m_task_of[t.which][op.before]->is_begun) {
        return false;
    }
    watch(t, (t.which == FROM) ? "starting" : "receiving");
    if ((t.which == TO) && (op.kind == what::STREAM)) {
        start_stream_recv(t);
    } else if (t.which == TO) {
        return start_tag_recv(t);
    } else {
        t.is_begun = true;
        began(t, (op.kind == what::ATOMIC)                              ? start_atomic(t) :
                 ((op.kind == what::PUT) || (op.kind == what::GET)) ? start_rma(t) :
                                                                          start_send(t));
    }
    return true;
}

void program::began(task &t, ucs_status_ptr_t request)
{
    t.request  = request;
    t.at       = stage::RUNNING;
    t.is_begun = t.is_begun || (t.op->kind == what::TAG);
    if (!UCS_PTR_IS_PTR(request)) {
        EXPECT_EQ(0u, t.calls) << m_plan.describe(*t.op);
        ended(t, UCS_PTR_RAW_STATUS(request));
    }
}

/* Where it has ended its outcome is looked at; streams go on, what was cancelled begins anew. */
void program::advance(task &t)
{
    if (t.at == stage::KEPT) {
        if (t.patience-- == 0) {
            watch(t, "fetching");
            t.at = stage::RUNNING;
            take(t, std::exchange(t.data, nullptr));
        }
        return;
    }
    if ((t.at != stage::RUNNING) || !UCS_PTR_IS_PTR(t.request)) {
        return;
    }
    if ((t.patience != NONE) && (t.patience-- == 0)) {
        watch(t, "cancelling");
        ucp_request_cancel(m_node->worker(), t.request);
    }
    ucs_status_t status = ucp_request_check_status(t.request);
    if (status == UCS_INPROGRESS) {
        return;
    }
    if (t.which == TO) {
        if (t.op->kind == what::STREAM) {
            size_t got = 0;
            EXPECT_EQ(status, ucp_stream_recv_request_test(t.request, &got));
            EXPECT_TRUE(!t.has_callback || (got == t.got));
            t.got = got;
        } else if (t.op->kind != what::AM) {
            EXPECT_EQ(status, ucp_tag_recv_request_test(t.request, &t.info));
        }
    }
    EXPECT_EQ(t.has_callback ? 1u : 0u, t.calls) << m_plan.describe(*t.op);
    ucp_request_free(std::exchange(t.request, nullptr));
    ended(t, status);
}

void program::ended(task &t, ucs_status_t status)
{
    const operation &op = *t.op;
    const bool is_short = (t.which == TO) && (op.room < op.length);

    t.at = stage::ENDED;
    if ((t.which == TO) && (status == UCS_ERR_CANCELED) && (op.kind == what::TAG)) {
        t.at       = stage::IDLE;
        t.patience = NONE - 1; /* not again */
        return;
    }
    ASSERT_EQ((op.kind == what::UNMATCHED) ? UCS_ERR_CANCELED :
              is_short                     ? UCS_ERR_MESSAGE_TRUNCATED : UCS_OK, status)
        << "round " << m_round << ", process " << m_me.index() << ": " << m_plan.describe(op);
    if ((t.which == TO) && (op.kind == what::TAG)) {
        EXPECT_EQ(op.length, t.info.length);
        EXPECT_EQ(op.tag | op.excess, t.info.sender_tag);
    } else if ((t.which == TO) && (op.kind == what::STREAM)) {
        EXPECT_GT(t.got, 0u);
        EXPECT_LE(t.got, op.length - t.done);
        t.done += t.got;
        EXPECT_TRUE(!op.has(TO, FLAG_A, 8) || (t.done == op.length)) << t.got;
        t.at       = (t.done < op.length) ? stage::IDLE : stage::ENDED;
        t.is_begun = t.is_begun || (t.at == stage::ENDED);
    } else if ((op.kind == what::ATOMIC) && (t.got != 0) && !op.is_shared) {
        uint64_t old = 0;
        fill(&old, op.length, op.id);
        EXPECT_EQ(0, memcmp(&old, &t.reply, op.length)) << m_plan.describe(op);
    }
}

/* Data of an active message goes where it belongs. */
void program::take(task &t, void *data)
{
    const operation &op = *t.op;

    if (op.is_dropped) {
        ucp_am_data_release(m_node->worker(), data);
        ended(t, UCS_OK);
        return;
    }
    call c = prepare(t, 0, op.room);
    c.param.cb.recv_am = on_bytes;
    began(t, ucp_am_recv_data_nbx(m_node->worker(), data, c.buffer, c.count, &c.param));
}

ucs_status_t program::on_message(unsigned id, const void *header, size_t header_length, void *data,
                                 size_t length, uint64_t attr)
{
    const bool may_keep = attr & (UCP_AM_RECV_ATTR_FLAG_DATA | UCP_AM_RECV_ATTR_FLAG_RNDV);
    uint64_t number     = UINT64_MAX;

    memcpy(&number, header, std::min(header_length, sizeof(number)));
    if ((number >= m_plan.ops.size()) || (m_task_of[TO][number] == nullptr)) {
        ADD_FAILURE() << "a message that nobody has sent";
        return UCS_OK;
    }
    task &t             = *m_task_of[TO][number];
    const operation &op = *t.op;
    EXPECT_EQ(stage::AWAITED, t.at) << "twice: " << m_plan.describe(op);
    EXPECT_EQ(sizeof(number) + (op.id % 200), header_length);
    EXPECT_EQ(-1, find_difference(static_cast<const uint8_t *>(header) + sizeof(number),
                                      header_length - sizeof(number), op.id));
    EXPECT_EQ(op.length, length) << m_plan.describe(op);
    EXPECT_TRUE(may_keep || (id != AM_KEPT) || (length == 0)) << m_plan.describe(op);
    if (may_keep && op.has(TO, KEEP, 8)) {
        t.at       = stage::KEPT;
        t.data     = data;
        t.patience = static_cast<unsigned>(m_dice.below(100));
        return UCS_INPROGRESS;
    }
    if (op.is_dropped) {
        t.at = stage::ENDED;
        return UCS_OK;
    }
    if (!(attr & UCP_AM_RECV_ATTR_FLAG_RNDV) && op.has(TO, COPY, 8)) {
        size_t done = 0;
        for (const span &s : op.at[TO].spans) {
            m_areas[s.area]->copy(m_areas[s.area]->memory() + s.offset,
                                  static_cast<uint8_t *>(data) + done, s.length);
            done += s.length;
        }
        t.at = stage::ENDED;
        return UCS_OK;
    }
    take(t, data);
    return UCS_OK;
}

/* Of all peers. */
void program::flush()
{
    const ucp_request_param_t param = {};

    if (m_dice.one_in(2)) {
        m_flushes.push_back(ucp_worker_flush_nbx(m_node->worker(), &param));
        return;
    }
    for (unsigned i = 0; i < m_plan.count(); ++i) {
        m_flushes.push_back(ucp_ep_flush_nbx(m_node->ep(i), &param));
    }
}

/* No progress for a while, seldom; not for ever where something takes many turns. */
void program::nap(unsigned one_in)
{
    if ((m_naps < NAPS_MAX) && m_dice.one_in(one_in)) {
        ++m_naps;
        usleep(static_cast<useconds_t>(m_dice.below(3000)));
    }
}

/* Progress amid starts, sometimes for long, sometimes none for a while. */
void program::start_all()
{
    std::vector<task *> waiting;

    for (task &t : m_tasks) {
        if (t.at == stage::IDLE) {
            waiting.push_back(&t);
        }
    }
    for (size_t i = waiting.size(); i > 1; --i) {
        std::swap(waiting[i - 1], waiting[m_dice.below(i)]);
    }
    while (!waiting.empty()) {
        const size_t i = m_dice.below(std::min<size_t>(waiting.size(), 6));
        if (start(*waiting[i])) {
            waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(i));
        } else { /* the next ones may be what it waits for */
            std::rotate(waiting.begin() + static_cast<std::ptrdiff_t>(i),
                        waiting.begin() + static_cast<std::ptrdiff_t>(i) + 1, waiting.end());
        }
        for (uint64_t turns = m_dice.one_in(4) ? m_dice.below(30) : m_dice.below(2); turns > 0;
             --turns) {
            m_node->progress();
        }
        nap(40);
        if (m_dice.one_in(20)) {
            flush();
        }
        advance_all();
    }
}

/* What has been started goes on. Returns the first task that has not ended, but receives that
 * nothing matches. */
task *program::advance_all()
{
    task *first = nullptr;

    for (task &t : m_tasks) {
        advance(t);
        if ((t.at == stage::IDLE) && (t.which == TO) && (t.is_begun || (t.done > 0))) {
            start(t); /* the rest of a stream, or what was cancelled */
        }
        if ((t.at != stage::ENDED) && (first == nullptr) && (t.op->kind != what::UNMATCHED)) {
            first = &t;
        }
    }
    return first;
}

void program::end_all()
{
    task *first;

    flush();
    for (unsigned turn = 0; (first = advance_all()) != nullptr; ++turn) {
        if (turn % 256 == 255) {
            watch(*first, "waiting for");
        }
        m_node->progress();
        nap(2000);
    }
    m_me.waits_for("HALYARD_TEST_SEED=%lu, round %u: a flush",
                   static_cast<unsigned long>(m_seed), m_round);
    for (ucs_status_ptr_t request : m_flushes) {
        EXPECT_EQ(UCS_OK, m_node->wait(request));
    }
    m_flushes.clear();
    for (task &t : m_tasks) {
        if (t.op->kind == what::UNMATCHED) {
            t.patience = 0;
            advance(t);
            EXPECT_EQ(stage::ENDED, t.at);
        }
    }
}

void program::run_round(unsigned round)
{
    m_round = round;
    m_naps  = 0;
    m_plan.next_round();
    drop_areas(false);
    renew_areas();
    tell_keys();
    write_images();
    make_tasks();
    m_node->barrier();
    start_all();
    end_all();
    m_node->barrier();
    expect_images();
}

} // namespace mp::programs
