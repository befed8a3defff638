/* Halyard: simulator: ends: what must hold when an operation ends, and after a run.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world.h"

#include <ucp/internals.h>

#include <algorithm>

namespace sim {

/* ---- at the end of an operation ---- */

const char *kind_name(kind what)
{
    static const char *const names[] = {"send ends", "receive ends", "flush ends", "close ends",
                                        "data ends", "stream send ends", "stream receive ends",
                                        "put ends", "get ends", "atomic ends"};
    return names[(int)what];
}

size_t message_taken(const op &o, uint64_t tag, size_t length)
{
    const size_t number = tag >> 32;

    if (number >= the_world->messages.size()) {
        sim_fail("operation %llu got a message with the tag 0x%llx that nobody sent",
                 (unsigned long long)o.sn, (unsigned long long)tag);
        return the_world->messages.size();
    }
    message &m = the_world->messages[number];
    if ((m.tag != tag) || (m.to != o.owner->number) || m.was_refused) {
        sim_fail("operation %llu got message %zu, which %s", (unsigned long long)o.sn, number,
                 m.was_refused ? "was never sent" : "is not for it");
    }
    if (((tag ^ o.tag) & o.mask) != 0) {
        sim_fail("operation %llu got message %zu, which does not match", (unsigned long long)o.sn,
                 number);
    }
    if (m.length != length) {
        sim_fail("operation %llu: message %zu has %zu bytes, not %zu", (unsigned long long)o.sn,
                 number, m.length, length);
    }
    return number;
}

namespace {

void receive_end(op &o)
{
    const bool has_message =
        (o.status == UCS_OK) || (o.status == UCS_ERR_MESSAGE_TRUNCATED);

    if ((o.at_once.sender_tag != 0) || (o.at_once.length != 0)) {
        sim_fail("receive %llu of worker %u writes its recv_info after its call",
                 (unsigned long long)o.sn, o.owner->number);
    }
    if (!has_message) {
        if ((o.status == UCS_ERR_CANCELED) && o.is_cancelled) {
            return;
        }
        if (!is_wounded(*o.owner)) {
            sim_fail("receive %llu of worker %u fails for no reason: %s",
                     (unsigned long long)o.sn, o.owner->number, ucs_status_string(o.status));
        }
        return;
    }
    const size_t number = message_taken(o, o.info.sender_tag, o.info.length);
    if (number >= the_world->messages.size()) {
        return;
    }
    message &m = the_world->messages[number];
    if (m.is_matched && !o.is_probed) {
        sim_fail("message %zu is received twice", number);
    }
    m.is_matched = true;
    m.matched_sn = o.is_probed ? m.matched_sn : o.sn;
    o.message    = number;
    the_world->receives.push_back(&o);
    if ((m.length > o.length) != (o.status == UCS_ERR_MESSAGE_TRUNCATED)) {
        sim_fail("receive %llu of %zu bytes into %zu ends with %s", (unsigned long long)o.sn,
                 m.length, o.length, ucs_status_string(o.status));
    } else if ((o.status == UCS_OK) && !is_filled(o.buf->data, m.length, number)) {
        sim_fail("receive %llu: the %zu bytes of message %zu are wrong", (unsigned long long)o.sn,
                 m.length, number);
    }
}

void am_receive_end(const op &o)
{
    const message &m = the_world->messages[o.message];

    if (o.status != UCS_OK) {
        if (!may_break(*m.ep)) {
            sim_fail("data %llu of active message %zu fails for no reason: %s",
                     (unsigned long long)o.sn, o.message, ucs_status_string(o.status));
        }
    } else if ((o.has_callback && (o.received != m.length)) ||
               !is_filled(o.buf->data, m.length, o.message)) {
        sim_fail("data %llu: the bytes of active message %zu are wrong",
                 (unsigned long long)o.sn, o.message);
    }
}

/* Is there a receive that a message may have gone to? */
bool is_wanted(const message &m)
{
    return m.is_matched ||
           std::any_of(the_world->ops.begin(), the_world->ops.end(), [&](const auto &o) {
               return (o->what == kind::RECEIVE) && (o->owner->number == m.to) &&
                      (((o->tag ^ m.tag) & o->mask) == 0);
           });
}

void send_end(const op &o)
{
    const message &m = the_world->messages[o.message];

    if (o.is_sync && (o.status == UCS_OK) && !is_wanted(m)) {
        sim_fail("sync send %llu ends before anybody wants its message", (unsigned long long)o.sn);
    }

    if ((o.status == UCS_OK) || (m.was_refused && (o.status == UCS_ERR_NO_RESOURCE)) ||
        may_break(*o.ep)) {
        return;
    }
    sim_fail("send %llu from %u to %u fails for no reason: %s", (unsigned long long)o.sn, m.from,
             m.to, ucs_status_string(o.status));
}

/* All sends before a flush have ended, or wait for their receivers. */
void flush_end(const op &o)
{
    if (o.status != UCS_OK) {
        if (((o.ep == nullptr) || !may_break(*o.ep)) && !rma_may_have_failed(o)) {
            if ((o.was_refused || o.is_blocking) && (o.status == UCS_ERR_NO_MEMORY) &&
                o.owner->lacked_memory) {
                return; /* it did not begin */
            }
            sim_fail("flush %llu fails for no reason: %s", (unsigned long long)o.sn,
                     ucs_status_string(o.status));
        }
        rma_flushed(o);
        return;
    }
    for (const auto &other : the_world->ops) {
        if (other->sn >= o.sn) {
            break;
        }
        if ((other->owner == o.owner) && is_tracked(other->what) && !other->is_done &&
            ((o.ep == nullptr) || (other->ep == o.ep)) && !other->is_blocking &&
            !ucp_test_was_handed(other->request) &&
            (other->has_callback ||
             (ucp_request_check_status(other->request) == UCS_INPROGRESS))) {
            sim_fail("flush %llu ends before operation %llu", (unsigned long long)o.sn,
                     (unsigned long long)other->sn);
        }
    }
    rma_flushed(o);
}

} // namespace

void op_end(op &o, ucs_status_t status)
{
    o.is_done = true;
    o.done_at = the_world->ops.size();
    o.status  = status;
    sim_event(kind_name(o.what), o.sn, (uint64_t)-status, o.info.length + o.received);
    if ((o.memh != nullptr) && (ucp_mem_unmap(o.owner->context, o.memh) != UCS_OK)) {
        sim_fail("operation %llu: its memory cannot be unmapped", (unsigned long long)o.sn);
    }
    if (o.buf != nullptr) {
        buffer_end(*o.buf);
        o.buf->rightly_gone = (status != UCS_OK) && (status != UCS_ERR_MESSAGE_TRUNCATED);
        if (!buffer_is_intact(*o.buf)) {
            sim_fail("operation %llu writes outside of its buffer", (unsigned long long)o.sn);
        }
    }
    if (o.has_generic && (o.generic.owner != nullptr) && (o.generic.num_finished != 1)) {
        sim_fail("operation %llu: its datatype is finished %u times", (unsigned long long)o.sn,
                 o.generic.num_finished);
    }
    switch (o.what) {
    case kind::SEND:
        send_end(o);
        break;
    case kind::RECEIVE:
        receive_end(o);
        break;
    case kind::AM_RECEIVE:
        am_receive_end(o);
        break;
    case kind::STREAM_SEND:
        stream_send_end(o);
        break;
    case kind::STREAM_RECEIVE:
        stream_receive_end(o);
        break;
    case kind::PUT:
    case kind::GET:
    case kind::ATOMIC:
        rma_end(o);
        break;
    case kind::FLUSH:
        flush_end(o);
        break;
    case kind::CLOSE:
        if ((status == UCS_ERR_NO_MEMORY) && o.owner->lacked_memory) {
            o.ep->is_closing = false; /* to be tried again */
        } else if (status != UCS_OK) {
            sim_fail("close %llu ends with %s", (unsigned long long)o.sn,
                     ucs_status_string(status));
        } else {
            rma_flushed(o);
        }
        break;
    }
}

/* ---- after a run ---- */

namespace {

/* Of two messages of one endpoint, the later may not be given to a receive that was posted before
 * that of the earlier, had it matched that one too. */
void check_order(const op &later)
{
    const message &m2 = the_world->messages[later.message];

    for (size_t i = 0; i < later.message; ++i) {
        const message &m1 = the_world->messages[i];
        if ((m1.ep == m2.ep) && m1.is_matched && (((m1.tag ^ later.tag) & later.mask) == 0) &&
            (m1.matched_sn > m2.matched_sn)) {
            sim_fail("message %zu has overtaken message %zu: receives %llu and %llu",
                     later.message, i, (unsigned long long)m2.matched_sn,
                     (unsigned long long)m1.matched_sn);
            return;
        }
    }
}

/* A receive that was posted first would have taken the other's message, had it still been there:
 * it took one that its sender sent later, or was cancelled after the other had ended. */
void check_posting_order(const op &first, const op &second)
{
    const message &m2 = the_world->messages[second.message];

    if (first.is_probed || second.is_probed || (first.sn >= second.sn) ||
        (first.owner != second.owner) || (((m2.tag ^ first.tag) & first.mask) != 0)) {
        return;
    }
    if (first.status == UCS_ERR_CANCELED) {
        if (!first.is_unmatched || (first.cancelled_at <= second.done_at)) {
            return;
        }
    } else {
        const message &m1 = the_world->messages[first.message];
        if (((m1.ep != m2.ep) || (first.message < second.message)) &&
            (m1.send->sn <= second.done_at)) {
            return;
        }
    }
    sim_fail("receive %llu was passed over for receive %llu", (unsigned long long)first.sn,
             (unsigned long long)second.sn);
}

} // namespace

bool is_flushed(const op &send)
{
    return std::any_of(the_world->ops.begin() + (ptrdiff_t)send.sn, the_world->ops.end(),
                       [&](const auto &o) {
                           /* a flush waits for no receiver, but for what ended sends left to say */
                           return (((o->what == kind::FLUSH) && !send.is_detached &&
                                    (o->sn >= send.done_at)) ||
                                   (o->what == kind::CLOSE)) &&
                                  (o->owner == send.owner) && o->is_done && !o->is_detached &&
                                  (o->status == UCS_OK) &&
                                  ((o->ep == nullptr) || (o->ep == send.ep));
                       });
}

void check_history()
{
    for (const op *o : the_world->receives) {
        check_order(*o);
    }
    for (const auto &first : the_world->ops) {
        if ((first->what != kind::RECEIVE) || !first->is_done ||
            ((first->status != UCS_OK) && (first->status != UCS_ERR_MESSAGE_TRUNCATED) &&
             (first->status != UCS_ERR_CANCELED))) {
            continue;
        }
        for (const op *second : the_world->receives) {
            check_posting_order(*first, *second);
        }
    }
    for (size_t i = 0; i < the_world->messages.size(); ++i) {
        const message &m = the_world->messages[i];
        const worker &to = *the_world->workers[m.to], &from = *the_world->workers[m.from];
        const bool is_sound = !m.ep->is_forced && !to.lacked_memory && !from.lacked_memory &&
                              (to.state == life::ALIVE) && (from.state != life::DEAD) &&
                              !sim_net_is_wounded(m.from, m.to);
        const bool is_sent = m.send->is_done && !m.was_refused &&
                             ((m.send->is_detached && !may_break(*m.ep)) ||
                              (!m.send->is_detached && (m.send->status == UCS_OK))) &&
                             ((from.state == life::ALIVE) || is_flushed(*m.send));
        if (is_sound && is_sent && !m.is_matched) {
            sim_fail("message %zu from %u to %u was sent and has never arrived", i, m.from, m.to);
        }
    }
}

void check_datatypes()
{
    for (const auto &o : the_world->ops) {
        if (o->has_generic && (o->generic.owner != nullptr) && (o->generic.num_finished != 1)) {
            sim_fail("operation %llu (%s): its datatype was finished %u times",
                     (unsigned long long)o->sn, kind_name(o->what), o->generic.num_finished);
        }
    }
}

} // namespace sim
