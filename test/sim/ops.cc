/* Halyard: simulator: operations: posting, ends, and what must hold of them.
 *
 * A tag is made of what receives select by (the user's part, the sender, its endpoint) and the
 * number of the message, which tells what bytes it must bring.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world.h"

#include <ucp/internals.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace sim {

namespace {

constexpr uint64_t MASK_USER    = 0x7;
constexpr uint64_t MASK_SENDER  = 0xff00;
constexpr uint64_t MASK_EP      = 0xffff0000;
constexpr uint64_t MASK_NUMBER  = 0xffull << 32; /* 8 bits of the message's */
constexpr size_t BYTES_OF_A_RUN = 4u << 20;

} // namespace

/* Where a message's end changes the way that it goes. */
size_t length_random()
{
    size_t length;

    if (the_world->bytes > BYTES_OF_A_RUN) {
        return sim_below(64);
    }
    switch (sim_below(5)) {
    case 0:
        length = sim_below(24);
        break;
    case 1:
        length = sim_plan.am_max + 8 - sim_below(48);
        break;
    case 2:
        length = 16384 + 16 - sim_below(32);
        break;
    default:
        length = sim_below(1ull << sim_between(1, 21));
        break;
    }
    return std::min(length, sim_plan.length_max);
}

/* ---- datatypes ---- */

namespace {

void *generic_start_pack(void *context, const void *, size_t)
{
    auto *o              = static_cast<op *>(context);
    o->generic.is_pack   = true;
    o->generic.owner     = o;
    o->generic.length    = o->length;
    return &o->generic;
}

void *generic_start_unpack(void *context, void *, size_t)
{
    auto *o            = static_cast<op *>(context);
    o->generic.is_pack = false;
    o->generic.owner   = o;
    o->generic.length  = o->length;
    return &o->generic;
}

void generic_check(const generic_state *state, const char *what)
{
    if (state->num_finished > 0) {
        sim_fail("operation %llu: %s after finish", (unsigned long long)state->owner->sn, what);
    }
}

size_t generic_packed_size(void *arg)
{
    auto *state = static_cast<generic_state *>(arg);
    generic_check(state, "packed_size");
    return state->length;
}

size_t generic_pack(void *arg, size_t offset, void *dest, size_t max)
{
    auto *state = static_cast<generic_state *>(arg);
    generic_check(state, "pack");
    const size_t length = std::min(max, state->length - std::min(offset, state->length));
    memcpy(dest, state->owner->buf->data + offset, length);
    return length;
}

ucs_status_t generic_unpack(void *arg, size_t offset, const void *src, size_t length)
{
    auto *state = static_cast<generic_state *>(arg);
    generic_check(state, "unpack");
    if ((offset > state->length) || (length > state->length - offset)) {
        sim_fail("operation %llu: unpack of %zu bytes at %zu, beyond the end",
                 (unsigned long long)state->owner->sn, length, offset);
        return UCS_ERR_INVALID_PARAM;
    }
    memcpy(state->owner->buf->data + offset, src, length);
    return UCS_OK;
}

void generic_finish(void *arg)
{
    auto *state = static_cast<generic_state *>(arg);
    generic_check(state, "finish");
    ++state->num_finished;
    ucp_dt_destroy(state->owner->datatype); /* as clients do: nobody may look at it any more */
}

/* The user's own registration of the buffer, until the operation has ended. */
void memh_choose(op &o, ucp_request_param_t *param)
{
    ucp_mem_map_params_t params;

    if (o.length == 0) {
        return;
    }
    memset(&params, 0xee, sizeof(params));
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address    = o.buf->place;
    params.length     = o.length;
    if (ucp_mem_map(o.owner->context, &params, &o.memh) != UCS_OK) {
        if (!o.owner->lacked_memory && (sim_plan.fail_reg == 0)) {
            sim_fail("worker %u cannot map a buffer", o.owner->number);
        }
        o.memh = nullptr;
        return;
    }
    param->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    param->memh          = o.memh;
}

} // namespace

void layout_choose(op &o, ucp_request_param_t *param, void **buffer_p, size_t *count_p)
{
    static const ucp_generic_dt_ops_t generic_ops = {generic_start_pack,  generic_start_unpack,
                                                     generic_packed_size, generic_pack,
                                                     generic_unpack,      generic_finish};

    *buffer_p = o.buf->place;
    *count_p  = o.length;
    if (sim_chance(0.1)) {
        memh_choose(o, param);
    }
    if ((sim_plan.on_device > 0) && sim_chance(0.2)) { /* right or wrong */
        static const ucs_memory_type_t types[] = {UCS_MEMORY_TYPE_HOST, UCS_MEMORY_TYPE_CUDA,
                                                  UCS_MEMORY_TYPE_UNKNOWN};
        param->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        param->memory_type   = types[sim_below(3)];
    }
    if (sim_chance(0.7)) {
        return;
    }
    param->op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    switch (sim_below(3)) {
    case 0: {
        o.unit          = ((o.length % 4) == 0) ? 4 : 1;
        param->datatype = ucp_dt_make_contig(o.unit);
        *count_p        = o.length / o.unit;
        break;
    }
    case 1: {
        const size_t count = sim_between(1, 4);
        size_t offset      = 0;
        for (size_t i = 0; i < count; ++i) {
            const size_t left   = o.length - offset;
            const size_t length = (i + 1 == count) ? left : sim_below(left + 1);
            o.iov.push_back({o.buf->place + offset, length});
            offset += length;
        }
        param->datatype = ucp_dt_make_iov();
        o.how           = layout::IOV;
        *buffer_p       = o.iov.data();
        *count_p        = count;
        break;
    }
    default:
        if (ucp_dt_create_generic(&generic_ops, &o, &o.datatype) != UCS_OK) {
            param->op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FIELD_DATATYPE;
            break;
        }
        o.how           = layout::GENERIC;
        o.has_generic   = true;
        param->datatype = o.datatype;
        *count_p        = 1;
        break;
    }
}

/* ---- callbacks ---- */

namespace {

void callback(op &o, ucs_status_t status)
{
    if (o.owner->state != life::ALIVE) {
        if (o.owner->handle == nullptr) {
            sim_fail("a callback of operation %llu after its worker was destroyed",
                     (unsigned long long)o.sn);
        }
        return;
    }
    if (o.is_done) {
        sim_fail("operation %llu (%s) twice", (unsigned long long)o.sn,
                 kind_name(o.what));
        return;
    }
    if (o.is_posting && !is_receive(o.what) && (o.what != kind::AM_RECEIVE)) {
        sim_fail("the callback of operation %llu (%s) runs inside the posting call",
                 (unsigned long long)o.sn, kind_name(o.what));
    }
    op_end(o, status);
}

void give_back(op &o, void *request)
{
    if ((o.owner->state == life::ALIVE) && o.memory.empty() && !o.is_released) {
        ucp_request_free(request);
    }
}

void maybe_post_more(op &o)
{
    if ((o.owner->state == life::ALIVE) && sim_faults_on && (the_world->depth < 2) &&
        sim_chance(sim_plan.callback_posts)) {
        ++the_world->depth;
        op_random(*o.owner);
        --the_world->depth;
    }
}

} // namespace

void on_end(void *request, ucs_status_t status, void *user_data)
{
    auto *o = static_cast<op *>(user_data);

    callback(*o, status);
    give_back(*o, request);
    maybe_post_more(*o);
}

void on_receive(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                void *user_data)
{
    auto *o = static_cast<op *>(user_data);

    o->info = *info;
    on_end(request, status, user_data);
}

namespace {

void on_bytes(void *request, ucs_status_t status, size_t length, void *user_data)
{
    static_cast<op *>(user_data)->received = length;
    on_end(request, status, user_data);
}

} // namespace

void param_choose(op &o, ucp_request_param_t *param)
{
    memset(param, 0xee, sizeof(*param));
    param->op_attr_mask = 0;
    o.has_callback      = sim_chance(0.6);
    if (o.has_callback) {
        param->op_attr_mask |= UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        param->user_data = &o;
        if (o.what == kind::RECEIVE) {
            param->cb.recv = on_receive;
        } else if (o.what == kind::STREAM_RECEIVE) {
            param->cb.recv_stream = on_bytes;
        } else if (o.what == kind::AM_RECEIVE) {
            param->cb.recv_am = on_bytes;
        } else {
            param->cb.send = on_end;
        }
    }
    if (sim_chance(0.2)) {
        param->op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
        o.needs_request      = true;
    } else if (is_tracked(o.what) && sim_chance(0.05)) {
        param->op_attr_mask |= UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
    }
    if ((o.what != kind::CLOSE) && sim_chance(0.1)) {
        o.memory.resize(o.owner->request_size + 64);
        /* aligned as any object of the user's */
        auto start = reinterpret_cast<uintptr_t>(o.memory.data()) + o.owner->request_size;
        param->op_attr_mask |= UCP_OP_ATTR_FIELD_REQUEST;
        param->request = reinterpret_cast<void *>((start + 15) & ~(uintptr_t)15);
        o.request      = param->request;
    }
    if (o.what == kind::RECEIVE) {
        param->op_attr_mask |= UCP_OP_ATTR_FIELD_RECV_INFO;
        param->recv_info.tag_info = &o.at_once;
    }
}

posting::posting(op &o_) : o(o_)
{
    o.is_posting = true;
    if (o.ep != nullptr) {
        o.ep->last_sn = o.sn;
    }
}

posting::~posting()
{
    o.is_posting = false;
}

op &op_new(worker &w, kind what)
{
    auto o   = std::make_unique<op>();
    o->sn    = the_world->ops.size();
    o->what  = what;
    o->owner = &w;

    w.is_asleep = false; /* its user is here */
    the_world->ops.push_back(std::move(o));
    return *the_world->ops.back();
}

void op_posted(op &o, ucs_status_ptr_t ptr)
{
    if (o.has_generic && (o.generic.owner == nullptr)) {
        ucp_dt_destroy(o.datatype); /* the call failed before it could start */
    }
    if (o.needs_request && (ptr == nullptr)) {
        sim_fail("operation %llu returns no request", (unsigned long long)o.sn);
    }
    if (!UCS_PTR_IS_PTR(ptr)) {
        if (o.is_done) {
            sim_fail("operation %llu had its callback, yet its call returns %s",
                     (unsigned long long)o.sn, ucs_status_string(UCS_PTR_RAW_STATUS(ptr)));
            return;
        }
        o.was_refused = UCS_PTR_IS_ERR(ptr);
        if (o.was_refused && (o.what == kind::SEND)) {
            the_world->messages[o.message].was_refused = true;
        }
        o.info = std::exchange(o.at_once, {});
        op_end(o, UCS_PTR_RAW_STATUS(ptr));
        return;
    }
    if (o.is_done) {
        return; /* a receive that ended inside the call; given back by the callback */
    }
    o.request = ptr;
    if (!o.memory.empty() || !sim_chance(0.15)) {
        if (!o.has_callback) {
            o.owner->polled.push_back(&o);
        }
    } else if (o.has_callback && sim_chance(0.7)) {
        o.is_released = true;
        ucp_request_release(ptr);
    } else if (is_tracked(o.what) || (o.what == kind::CLOSE)) {
        o.is_detached = true;
        o.is_done     = true;
        ucp_request_free(ptr);
    } else if (!o.has_callback) {
        o.owner->polled.push_back(&o);
    }
}

/* ---- the table ---- */

namespace {

uint64_t user_bits()
{
    return sim_below(sim_plan.is_narrow ? 2 : MASK_USER + 1);
}

void post_send_kind(worker &w, endpoint *e, bool is_sync, bool is_am)
{
    ucp_request_param_t param;
    size_t count;
    void *data;

    if (e == nullptr) {
        return;
    }
    op &o               = op_new(w, kind::SEND);
    const size_t number = the_world->messages.size();
    const uint64_t tag  = (number << 32) | ((uint64_t)e->index << 16) | ((uint64_t)w.number << 8) |
                         user_bits();
    o.ep                = e;
    o.length            = length_random();
    o.buf               = buffer_anywhere(w, o.length);
    o.message           = number;
    o.is_sync           = is_sync;
    the_world->bytes   += o.length;
    fill(o.buf->data, o.length, number);
    param_choose(o, &param);
    layout_choose(o, &param, &data, &count);
    the_world->messages.push_back({w.number, e->peer, e, tag, o.length, false, &o, false, 0});
    sim_event(is_sync ? "post sync send" : "post send", o.sn, e->peer, o.length);

    ucs_status_ptr_t ptr;
    {
        posting guard(o);
        ptr = is_am ? am_send(o, data, count, &param) : tag_send(o, data, count, tag, &param);
    }
    if (is_sync && (ptr == nullptr)) {
        sim_fail("sync send %llu ends inside its call", (unsigned long long)o.sn);
    }
    op_posted(o, ptr);
}

void post_send(worker &w)
{
    post_send_kind(w, endpoint_random(w), false, false);
}

void post_sync_send(worker &w)
{
    post_send_kind(w, endpoint_random(w), true, false);
}

void post_am(worker &w)
{
    post_send_kind(w, endpoint_random(w), false, true);
}

void post_take_kept(worker &w)
{
    (void)am_take_kept(w);
}

/* A message that has been sent to the worker, or NULL: none was found. */
const message *message_to(const worker &w)
{
    const size_t count = the_world->messages.size();

    for (size_t i = 0; (i < 8) && (count > 0); ++i) {
        const message &m = the_world->messages[sim_below(count)];
        if ((m.to == w.number) && !m.is_matched) {
            return &m;
        }
    }
    return nullptr;
}

/* What a receive or probe selects by. */
void selection_wide(const worker &w, uint64_t *tag_p, uint64_t *mask_p)
{
    const uint64_t sender = sim_below(the_world->workers.size());
    const auto &eps       = the_world->workers[sender]->eps;

    *tag_p  = (sender << 8) | user_bits();
    *mask_p = 0;
    switch (sim_below(6)) {
    case 0:
        break;
    case 1:
        *mask_p = MASK_USER;
        break;
    case 2:
        *mask_p = MASK_USER | MASK_SENDER;
        break;
    case 3:
        *mask_p = MASK_SENDER;
        break;
    case 4:
        if (!eps.empty()) {
            *tag_p |= sim_below(eps.size()) << 16;
        }
        *mask_p = MASK_SENDER | MASK_EP;
        break;
    default: {
        const message *m = message_to(w);
        if (m != nullptr) {
            *tag_p  = m->tag;
            *mask_p = ~0ull;
        }
        break;
    }
    }
}

/* An endpoint that leads to the worker, or NULL: none was found. */
const endpoint *endpoint_to(const worker &w)
{
    for (unsigned i = 0; i < 8; ++i) {
        const auto &eps = the_world->workers[sim_below(the_world->workers.size())]->eps;
        const size_t at = eps.empty() ? 0 : sim_below(eps.size());
        if (!eps.empty() && (eps[at]->peer == w.number) && !eps[at]->is_closing) {
            return eps[at].get();
        }
    }
    return nullptr;
}

/* The same where all receives are found by a hash: all is known but for 8 bits. */
void selection_narrow(const worker &w, uint64_t *tag_p, uint64_t *mask_p)
{
    const message *m  = sim_chance(0.2) ? message_to(w) : nullptr;
    const endpoint *e = endpoint_to(w);

    if (m != nullptr) {
        *tag_p  = m->tag;
        *mask_p = ~0ull;
        return;
    }
    *tag_p  = (the_world->messages.size() + sim_below(32)) << 32 | user_bits();
    *tag_p |= (e != nullptr) ? ((uint64_t)e->index << 16) | (e->owner->number << 8) : 0;
    *mask_p = ~MASK_NUMBER;
}

void selection_choose(const worker &w, uint64_t *tag_p, uint64_t *mask_p)
{
    (sim_plan.is_narrow ? selection_narrow : selection_wide)(w, tag_p, mask_p);
}

void post_receive_of(worker &w, uint64_t tag, uint64_t mask, ucp_tag_message_h message,
                     size_t number, size_t room)
{
    op &o = op_new(w, kind::RECEIVE);
    ucp_request_param_t param;
    ucs_status_ptr_t ptr;
    size_t count;
    void *data;

    o.tag       = tag;
    o.mask      = mask;
    o.length    = room;
    o.buf       = buffer_anywhere(w, o.length);
    o.message   = number;
    o.is_probed = (message != nullptr);
    param_choose(o, &param);
    layout_choose(o, &param, &data, &count);
    sim_event(o.is_probed ? "post probed" : "post receive", o.sn, tag, mask);
    {
        posting guard(o);
        ptr = tag_receive(o, data, count, message, &param);
    }
    if (o.is_probed && (UCS_PTR_RAW_STATUS(ptr) == UCS_ERR_NO_MEMORY)) {
        w.held.push_back({message, number}); /* still ours */
    }
    op_posted(o, ptr);
}

void post_receive(worker &w)
{
    uint64_t tag, mask;

    for (unsigned i = sim_plan.is_narrow ? (unsigned)sim_between(1, 5) : 1; i > 0; --i) {
        selection_choose(w, &tag, &mask);
        post_receive_of(w, tag, mask, nullptr, 0,
                        sim_chance(0.9) ? sim_plan.length_max : length_random());
    }
}

/* Looks, and maybe takes, what a selection matches first. */
bool probe(worker &w, uint64_t tag, uint64_t mask, bool remove)
{
    ucp_tag_recv_info_t info = {};
    const ucp_tag_message_h handle = ucp_tag_probe_nb(w.handle, tag, mask, remove, &info);

    if (handle == nullptr) {
        return false;
    }
    op looker;
    looker.sn    = the_world->ops.size();
    looker.owner = &w;
    looker.tag   = tag;
    looker.mask  = mask;
    const size_t number = message_taken(looker, info.sender_tag, info.length);
    if (number >= the_world->messages.size()) {
        return false;
    }
    message &m = the_world->messages[number];
    sim_event(remove ? "take" : "see", w.number, number, m.from);
    if (m.is_matched) {
        sim_fail("a probe finds message %zu, which was received", number);
    }
    if (remove) {
        m.is_matched = true;
        m.matched_sn = looker.sn;
        post_receive_of(w, tag, mask, handle, number,
                        sim_chance(0.9) ? m.length : sim_below(m.length + 1));
    }
    return true;
}

void post_probe(worker &w)
{
    uint64_t tag, mask;

    selection_choose(w, &tag, &mask);
    (void)probe(w, tag, mask, false);
}

void post_take(worker &w)
{
    uint64_t tag, mask;

    selection_choose(w, &tag, &mask);
    (void)probe(w, tag, mask, true);
}

void cancel(op &o)
{
    o.is_cancelled = true;
    o.cancelled_at = o.is_unmatched ? o.cancelled_at : the_world->ops.size();
    sim_event("cancel", o.sn, 0, 0);
    /* without a callback, nobody may have looked at its end yet */
    const bool was_over = !o.has_callback && !o.is_released &&
                          (ucp_request_check_status(o.request) != UCS_INPROGRESS);
    ucp_request_cancel(o.owner->handle, o.request);
    o.is_unmatched = o.is_unmatched || o.is_done ||
                     (!was_over && !o.has_callback && !o.is_released &&
                      (ucp_request_check_status(o.request) == UCS_ERR_CANCELED));
}

std::vector<op *> in_flight(const worker &w)
{
    std::vector<op *> ops;

    for (const auto &o : the_world->ops) {
        if ((o->owner == &w) && !o->is_done && !o->is_abandoned && !o->is_released &&
            (o->request != nullptr) && !o->is_posting) {
            ops.push_back(o.get());
        }
    }
    return ops;
}

/* On all but receives it does nothing. */
void post_cancel(worker &w)
{
    const auto candidates = in_flight(w);

    if (!candidates.empty()) {
        cancel(*candidates[sim_below(candidates.size())]);
    }
}

/* Nor on those whose message has begun to come. */
void post_cancel_amid(worker &w)
{
    for (op *o : in_flight(w)) {
        if (ucp_test_is_amid(o->request)) {
            cancel(*o);
        }
    }
}

} // namespace

void post_am_on(endpoint &e)
{
    post_send_kind(*e.owner, &e, false, true);
}

void post_flush_of(worker &w, endpoint *e)
{
    op &o = op_new(w, kind::FLUSH);
    ucp_request_param_t param;
    ucs_status_ptr_t ptr;

    o.ep = e;
    param_choose(o, &param);
    sim_event("post flush", o.sn, (e != nullptr) ? e->peer : 999, 0);
    {
        posting guard(o);
        ptr = flush(o, &param);
    }
    op_posted(o, ptr);
}

namespace {

void post_flush(worker &w)
{
    post_flush_of(w, sim_chance(0.7) ? endpoint_random(w) : nullptr);
}

void post_close(worker &w)
{
    endpoint *e        = endpoint_random(w);
    const bool is_lent = (sim_plan.zcopy_min > 0) && sim_chance(0.5);

    if (e != nullptr) {
        if (is_lent) { /* amid what is sent from where it lies, perhaps */
            post_send_kind(w, e, false, sim_chance(0.5));
        }
        close_endpoint(*e, sim_chance(is_lent ? 0.6 : 0.3));
    }
}

void post_endpoint(worker &w)
{
    if (w.eps.size() < 60) {
        (void)endpoint_make(w, peer_random(w));
    }
}

/* One row an operation: add yours. */
struct row {
    sim_family_t family;
    unsigned weight;
    void (*post)(worker &w);
};

const row rows[] = {
    {SIM_TAGS, 40, post_send},
    {SIM_TAGS, 8, post_sync_send},
    {SIM_TAGS, 34, post_receive},
    {SIM_TAGS, 4, post_probe},
    {SIM_TAGS, 6, post_take},
    {SIM_TAGS, 20, post_cancel_amid},
    {SIM_MESSAGES, 30, post_am},
    {SIM_MESSAGES, 6, post_take_kept},
    {SIM_MESSAGES, 10, post_answer},
    {SIM_STREAMS, 30, post_stream_send},
    {SIM_STREAMS, 20, post_stream_receive},
    {SIM_STREAMS, 10, post_stream_poll},
    {SIM_MEMORY, 6, post_region},
    {SIM_MEMORY, 2, post_unmap},
    {SIM_MEMORY, 20, post_put},
    {SIM_MEMORY, 15, post_get},
    {SIM_MEMORY, 20, post_atomic},
    {SIM_MEMORY, 1, post_out_of_range},
    {SIM_MEMORY, 2, post_fence},
    {SIM_MEMORY, 1, post_drop_keys},
    {SIM_MEMORY, 6, post_flush},
    {SIM_ALL, 10, post_cancel},
    {SIM_ALL, 12, post_flush},
    {SIM_ALL, 2, post_blocking},
    {SIM_ALL, 5, post_close},
    {SIM_ALL, 5, post_endpoint},
    {SIM_SOCKETS, 4, post_listener},
    {SIM_SOCKETS, 6, post_client},
    {SIM_SOCKETS, 6, post_decide},
};

unsigned weight(const row &r)
{
    return r.weight * ((r.family == SIM_ALL) ? 1 : sim_plan.share[r.family]);
}

} // namespace

void op_random(worker &w)
{
    unsigned total = 0;

    the_world->current = &w;
    w.is_asleep        = false;
    for (const row &r : rows) {
        total += weight(r);
    }
    auto number = (unsigned)sim_below(total);
    for (const row &r : rows) {
        if (number < weight(r)) {
            r.post(w);
            return;
        }
        number -= weight(r);
    }
}

void close_begins(endpoint &e)
{
    stream_release(e);
    if (e.link_to != nullptr) {
        e.link_to->is_ended = true;
    }
}

void close_endpoint(endpoint &e, bool force)
{
    ucp_request_param_t param;
    ucs_status_ptr_t ptr;

    e.owner->is_asleep = false;
    if (e.err_mode == UCP_ERR_HANDLING_MODE_NONE) {
        if (force) {
            param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
            param.flags        = UCP_EP_CLOSE_FLAG_FORCE;
            if (UCS_PTR_RAW_STATUS(ucp_ep_close_nbx(e.handle, &param)) != UCS_ERR_INVALID_PARAM) {
                sim_fail("an endpoint without error handling is closed by force");
            }
        }
        force = false;
    }
    the_world->current = e.owner;
    close_begins(e);
    op &o        = op_new(*e.owner, kind::CLOSE);
    o.ep         = &e;
    e.is_closing = true;
    e.is_forced  = force;
    param_choose(o, &param);
    if (force) {
        rma_forced(e);
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    }
    sim_event("post close", o.sn, (e.peer << 8) | e.ordinal, force ? 1 : 0);
    {
        posting guard(o);
        ptr = ucp_ep_close_nbx(e.handle, &param);
    }
    op_posted(o, ptr);
}

unsigned take_unexpected(worker &w)
{
    const auto held = std::exchange(w.held, {});
    unsigned count  = (unsigned)held.size() + am_take_kept(w) + stream_drain(w) + decide_all(w);

    for (const auto &[handle, number] : held) {
        const message &m = the_world->messages[number];
        post_receive_of(w, m.tag, ~0ull, handle, number, m.length);
    }
    while (probe(w, 0, 0, true)) {
        ++count;
    }
    w.is_asleep = w.is_asleep && (count == 0);
    return count;
}

void cancel_receives(worker &w)
{
    w.is_asleep = false;
    worker_poll(w);
    for (size_t i = 0; i < the_world->ops.size(); ++i) {
        op &o = *the_world->ops[i];
        if ((o.owner != &w) || !is_receive(o.what) || o.is_done || o.is_abandoned) {
            continue;
        }
        cancel(o);
        if (!o.has_callback) {
            worker_poll(w);
        }
        if (!o.is_done && (o.what == kind::RECEIVE)) { /* others end with their endpoint */
            sim_fail("receive %llu of worker %u never ends", (unsigned long long)o.sn, w.number);
        }
    }
}

} // namespace sim
