/* Halyard: simulator: active messages.
 *
 * The header names the message. Handlers look at data at once, keep it, receive announced data at
 * once or later, or want nothing of it.
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

constexpr unsigned AM_ID         = 7;
constexpr unsigned ENDPOINTS_MAX = 1000; /* of the user's, of one worker */

void check_data(const worker &w, uint64_t number, const void *data)
{
    if (!is_filled(static_cast<const uint8_t *>(data), the_world->messages[number].length,
                   number)) {
        sim_fail("worker %u: the bytes of active message %llu are wrong", w.number,
                 (unsigned long long)number);
    }
}

/* Moves announced data, or copies what was kept. */
void receive_data(worker &w, uint64_t number, void *data)
{
    op &o = op_new(w, kind::AM_RECEIVE);
    ucp_request_param_t param;
    ucs_status_ptr_t ptr;
    size_t count;
    void *dest;

    o.message = number;
    o.length  = the_world->messages[number].length;
    o.buf     = buffer_anywhere(w, o.length);
    param_choose(o, &param);
    layout_choose(o, &param, &dest, &count);
    {
        posting guard(o);
        ptr = ucp_am_recv_data_nbx(w.handle, data, dest, count, &param);
    }
    o.received = (ptr == nullptr) ? o.length : o.received;
    op_posted(o, ptr);
}

/* The endpoint that came with a message: the user's where it has the one that pairs with the
 * sender's, else the library's. */
endpoint &answer_endpoint(worker &w, const message &m, ucp_ep_h handle)
{
    endpoint *found = nullptr;

    for (const auto *list : {&w.eps, &w.answers}) {
        for (const auto &e : *list) {
            found = (!e->is_closing && (e->handle == handle)) ? e.get() : found;
        }
    }
    if (found == nullptr) {
        auto e       = std::make_unique<endpoint>();
        e->owner     = &w;
        e->peer      = m.from;
        e->index     = ENDPOINTS_MAX + (unsigned)w.answers.size();
        e->handle    = handle;
        e->err_mode  = UCP_ERR_HANDLING_MODE_NONE;
        e->made_at   = the_world->ops.size();
        e->ordinal   = ucp_test_ordinal(handle);
        e->is_answer = true;
        found        = e.get();
        w.answers.push_back(std::move(e));
        sim_event("endpoint to answer", w.number, m.from, found->ordinal);
    }
    const unsigned sender = m.ep->ordinal;
    const unsigned pair   = sender ^ (sender >> 31); /* of a connection: the server's is odd */
    if (found->peer != m.from) {
        sim_fail("worker %u is to answer %u on an endpoint to %u", w.number, m.from, found->peer);
    } else if ((m.ep->link_to == nullptr) && (found->link_to == nullptr) &&
               (found->ordinal != pair) && !is_wounded(w.number, m.from)) {
        sim_fail("worker %u is to answer %u on an endpoint that pairs with another", w.number,
                 m.from);
    }
    return *found;
}

/* Messages of an endpoint come in the order of sending, in whatever form. */
void check_order(const worker &w, uint64_t number)
{
    endpoint &e = *the_world->messages[number].ep;

    if (number < e.am_next) {
        sim_fail("active message %llu to worker %u comes behind one that was sent later",
                 (unsigned long long)number, w.number);
    }
    e.am_next = number + 1;
}

void maybe_answer(worker &w, const message &m, const ucp_am_recv_param_t *param)
{
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP)) {
        return;
    }
    endpoint &e = answer_endpoint(w, m, param->reply_ep);
    if (sim_faults_on && !w.is_leaving && (the_world->depth < 2) && sim_chance(0.5)) {
        ++the_world->depth;
        post_am_on(e);
        --the_world->depth;
    }
}

ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data,
                        size_t length, const ucp_am_recv_param_t *param)
{
    auto &w         = *static_cast<worker *>(arg);
    uint64_t number = UINT64_MAX;

    if (w.state != life::ALIVE) {
        return UCS_OK;
    }
    memcpy(&number, header, std::min(header_length, sizeof(number)));
    if ((header_length != sizeof(number)) || (number >= the_world->messages.size()) ||
        (the_world->messages[number].to != w.number) ||
        (the_world->messages[number].length != length)) {
        sim_fail("worker %u gets an active message that nobody sent", w.number);
        return UCS_OK;
    }
    message &m = the_world->messages[number]; /* a deque: it stays there */
    sim_event("active message", w.number, number, length);
    if (m.is_matched || m.was_refused) {
        sim_fail("active message %llu comes %s", (unsigned long long)number,
                 m.is_matched ? "twice" : "though its send was refused");
    }
    m.is_matched = true;
    check_order(w, number);
    maybe_answer(w, m, param);
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        if (m.send->is_eager) {
            sim_fail("active message %llu, which was to go whole, comes as a descriptor",
                     (unsigned long long)number);
        }
        if (sim_chance(0.4)) {
            receive_data(w, number, data);
            return UCS_OK;
        }
        if (sim_chance(0.3)) {
            return UCS_OK; /* not wanted */
        }
        w.kept.push_back({data, number});
        return UCS_INPROGRESS;
    }
    check_data(w, number, data);
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) && sim_chance(0.5)) {
        w.kept.push_back({data, number});
        return UCS_INPROGRESS;
    }
    return UCS_OK;
}

} // namespace

void am_listen(worker &w)
{
    ucp_am_handler_param_t param;

    memset(&param, 0xee, sizeof(param));
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id    = AM_ID;
    param.flags = sim_chance(0.5) ? UCP_AM_FLAG_PERSISTENT_DATA : 0;
    if (sim_chance(0.3)) {
        param.flags |= UCP_AM_FLAG_WHOLE_MSG;
    }
    param.cb  = on_message;
    param.arg = &w;
    if (ucp_worker_set_am_recv_handler(w.handle, &param) != UCS_OK) {
        w.lacked_memory = true;
    }
}

ucs_status_ptr_t am_send(op &o, const void *data, size_t count, ucp_request_param_t *param)
{
    const uint64_t number = o.message;

    param->op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param->flags = UCP_AM_SEND_FLAG_COPY_HEADER;
    if (sim_chance(0.2)) {
        param->flags |= UCP_AM_SEND_FLAG_RNDV;
    } else if (sim_chance(0.2)) {
        param->flags |= UCP_AM_SEND_FLAG_EAGER;
        o.is_eager    = true;
    }
    if (sim_chance(0.3)) {
        param->flags |= UCP_AM_SEND_FLAG_REPLY;
    }
    return ucp_am_send_nbx(o.ep->handle, AM_ID, &number, sizeof(number), data, count, param);
}

unsigned am_take_kept(worker &w)
{
    const auto kept = std::exchange(w.kept, {});

    for (const auto &[data, number] : kept) {
        if (sim_chance(0.5)) {
            receive_data(w, number, data);
        } else {
            ucp_am_data_release(w.handle, data);
        }
    }
    return (unsigned)kept.size();
}

void post_answer(worker &w)
{
    std::vector<endpoint *> open;

    for (const auto &e : w.answers) {
        if (!e->is_closing) {
            open.push_back(e.get());
        }
    }
    if (open.empty()) {
        return;
    }
    endpoint &e = *open[sim_below(open.size())];
    if (sim_chance(0.8)) {
        post_am_on(e);
    } else {
        post_flush_of(w, &e);
    }
}

void am_adopt(worker &w, endpoint &e)
{
    for (const auto &answer : w.answers) {
        if (answer->is_closing || (answer->peer != e.peer)) {
            continue;
        }
        if (answer->handle == e.handle) {
            answer->is_closing = true; /* it lives on as the user's */
            e.am_next          = answer->am_next;
            for (const auto &o : the_world->ops) {
                o->ep = (o->ep == answer.get()) ? &e : o->ep;
            }
            for (message &m : the_world->messages) {
                m.ep = (m.ep == answer.get()) ? &e : m.ep;
            }
        } else if ((answer->ordinal == e.ordinal) && !is_wounded(w.number, e.peer)) {
            sim_fail("worker %u makes an endpoint to %u beside the one that it was to answer on",
                     w.number, e.peer);
        }
    }
}

} // namespace sim
