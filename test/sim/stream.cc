/* Halyard: simulator: streams.
 *
 * The bytes of an endpoint's stream depend on the endpoint and their place, so whatever is read
 * tells where it comes from. What is read of an endpoint is at all times the beginning of what one
 * endpoint of the peer was given: the one of the same ordinal, as long as the two have not lost
 * each other.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sim {

namespace {

uint64_t stream_number(const endpoint &e)
{
    return (1ull << 40) | ((uint64_t)e.owner->number << 20) | e.index;
}

bool is_pair(const endpoint &e, const endpoint &other)
{
    if (e.link_to != nullptr) {
        return (other.link_to == e.link_to) && (other.owner != e.owner);
    }
    return (other.link_to == nullptr) && (other.peer == e.owner->number) &&
           (other.owner->number == e.peer) && (other.ordinal == e.ordinal);
}

/* The peer's endpoint that pairs with one, or NULL: not made yet. */
endpoint *paired(const endpoint &e)
{
    for (const auto &other : the_world->workers[e.peer]->eps) {
        if (is_pair(e, *other)) {
            return other.get();
        }
    }
    return nullptr;
}

/* Bytes were read, in place or by a receive, which is named by its number. */
void check_bytes(endpoint &e, const uint8_t *data, size_t length)
{
    const bool is_first = (e.read == 0);

    if ((length == 0) || e.is_cut) {
        return;
    }
    const auto is_source = [&](const endpoint *s) {
        return (s->peer == e.owner->number) && (e.read + length <= s->sent) &&
               is_filled(data, length, stream_number(*s), e.read);
    };
    if (is_first && is_wounded(e.owner->number, e.peer)) {
        for (const auto &s : the_world->workers[e.peer]->eps) {
            e.sources.push_back(s.get());
        }
    } else if (is_first && (paired(e) != nullptr)) {
        e.sources.push_back(paired(e));
    }
    e.sources.erase(std::remove_if(e.sources.begin(), e.sources.end(),
                                   [&](const endpoint *s) { return !is_source(s); }),
                    e.sources.end());
    if (e.sources.empty()) {
        sim_fail("worker %u reads %zu wrong bytes at %zu of its endpoint %u to %u", e.owner->number,
                 length, e.read, e.index, e.peer);
    }
    e.read += length;
}

/* Has anything happened that ends a stream early? */
bool may_end(const endpoint &e)
{
    const endpoint *other = paired(e);

    return may_break(e) || e.is_closing ||
           ((other != nullptr) && (other->is_forced || other->is_closing));
}

void check_receive(op &o)
{
    if (o.status == UCS_OK) {
        if ((o.received > o.length) || (o.is_whole && (o.received < o.length)) ||
            ((o.received == 0) && (o.length > 0)) || (o.received % o.unit != 0)) {
            sim_fail("stream receive %llu of %zu bytes (%zu each%s) ends with %zu",
                     (unsigned long long)o.sn, o.length, o.unit, o.is_whole ? ", all" : "",
                     o.received);
        }
    } else if (o.was_refused) {
        o.received   = 0;
        /* with what it was filled with so far */
        o.ep->is_cut = o.ep->is_cut || o.is_whole || (o.unit > 1);
    }
    if ((o.status != UCS_OK) && o.owner->lacked_memory && (sim_plan.fail_device > 0)) {
        o.ep->is_cut = true; /* a device did not take some of them */
    }
    if ((o.status != UCS_OK) && !(o.is_cancelled && (o.status == UCS_ERR_CANCELED)) &&
        !may_end(*o.ep)) {
        sim_fail("stream receive %llu fails for no reason: %s", (unsigned long long)o.sn,
                 ucs_status_string(o.status));
    }
    check_bytes(*o.ep, o.buf->data, o.received);
}

/* A piece: behind receives whose callbacks are still to come, if this is in the callback of one
 * that ended with them. */
void read_at_once(endpoint &e, const uint8_t *data, size_t length)
{
    op &o      = op_new(*e.owner, kind::STREAM_RECEIVE);
    o.ep       = &e;
    o.buf      = buffer_new(*e.owner, length);
    o.received = o.length = length;
    memcpy(o.buf->data, data, length);
    e.reads.push_back(&o);
    op_end(o, UCS_OK);
}

/* All that lies there now; how many pieces. */
unsigned read_in_place(endpoint &e)
{
    unsigned count = 0;

    worker_poll(*e.owner);
    while (!e.is_closing) {
        size_t length        = 0;
        ucs_status_ptr_t ptr = ucp_stream_recv_data_nb(e.handle, &length);
        if (UCS_PTR_IS_ERR(ptr)) {
            if (!may_end(e)) {
                sim_fail("the stream of endpoint %u of worker %u ends for no reason: %s", e.index,
                         e.owner->number, ucs_status_string(UCS_PTR_RAW_STATUS(ptr)));
            }
            break;
        }
        if (ptr == nullptr) {
            break;
        }
        sim_event("stream piece", e.owner->number, (e.peer << 8) | e.ordinal, length);
        read_at_once(e, static_cast<uint8_t *>(ptr), length);
        ++count;
        if (sim_faults_on && sim_chance(0.3)) {
            e.lent.push_back(ptr);
        } else {
            ucp_stream_data_release(e.handle, ptr);
        }
    }
    return count;
}

} // namespace

void post_stream_send(worker &w)
{
    endpoint *e = endpoint_random(w);
    ucp_request_param_t param;
    size_t count;
    void *data;

    if (e == nullptr) {
        return;
    }
    op &o             = op_new(w, kind::STREAM_SEND);
    o.ep              = e;
    o.length          = length_random();
    o.buf             = buffer_anywhere(w, o.length);
    o.offset          = e->sent;
    the_world->bytes += o.length;
    fill(o.buf->data, o.length, stream_number(*e), e->sent);
    e->sent += o.length;
    param_choose(o, &param);
    layout_choose(o, &param, &data, &count);
    sim_event("post stream send", o.sn, (e->peer << 8) | e->ordinal, o.length);

    ucs_status_ptr_t ptr;
    {
        posting guard(o);
        ptr = stream_send(o, data, count, &param);
    }
    if (UCS_PTR_IS_ERR(ptr)) {
        e->sent = o.offset;
    }
    op_posted(o, ptr);
}

void post_stream_receive(worker &w)
{
    endpoint *e = endpoint_random(w);
    ucp_request_param_t param;
    size_t count;
    void *data;

    if ((e == nullptr) || (e->reads.size() > 5)) {
        return;
    }
    op &o      = op_new(w, kind::STREAM_RECEIVE);
    o.ep       = e;
    o.length   = length_random();
    o.buf      = buffer_anywhere(w, o.length);
    o.is_whole = sim_chance(0.3);
    param_choose(o, &param);
    layout_choose(o, &param, &data, &count);
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param.flags         = o.is_whole ? UCP_STREAM_RECV_FLAG_WAITALL : 0;
    sim_event("post stream receive", o.sn, (e->peer << 8) | e->ordinal, o.length);
    e->reads.push_back(&o);

    ucs_status_ptr_t ptr;
    {
        posting guard(o);
        ptr = ucp_stream_recv_nbx(e->handle, data, count, &o.received, &param);
    }
    op_posted(o, ptr);
}

unsigned stream_drain(worker &w)
{
    ucp_stream_poll_ep_t ready[8];
    const ssize_t num_ready = ucp_stream_worker_poll(w.handle, ready, 8, 0);
    unsigned count          = 0;

    w.is_asleep = w.is_asleep && (num_ready == 0); /* what is announced begins to be fetched */
    for (ssize_t i = 0; i < num_ready; ++i) {
        const auto pos = std::find_if(w.eps.begin(), w.eps.end(), [&](const auto &e) {
            return !e->is_closing && (e->handle == ready[i].ep);
        });
        if (pos == w.eps.end()) {
            sim_fail("worker %u polls an endpoint that it does not have", w.number);
        } else {
            count += read_in_place(**pos);
        }
    }
    for (const auto &e : w.eps) {
        if (!sim_faults_on || sim_chance(0.3)) {
            stream_release(*e);
        }
    }
    return count;
}

void post_stream_poll(worker &w)
{
    (void)stream_drain(w);
}

void stream_release(endpoint &e)
{
    for (void *data : std::exchange(e.lent, {})) { /* none is left when it is closed */
        ucp_stream_data_release(e.handle, data);
    }
}

void stream_send_end(const op &o)
{
    if ((o.status == UCS_OK) || (o.was_refused && (o.status == UCS_ERR_NO_RESOURCE)) ||
        o.ep->is_forced) {
        return;
    }
    /* one who closes does not read what was announced */
    const endpoint *reader = paired(*o.ep);
    if (!may_break(*o.ep) &&
        ((reader == nullptr) || !reader->is_closing || (o.status != UCS_ERR_CONNECTION_RESET))) {
        sim_fail("stream send %llu fails for no reason: %s", (unsigned long long)o.sn,
                 ucs_status_string(o.status));
    }
}

void stream_receive_end(op &o)
{
    auto &reads = o.ep->reads;

    while (!reads.empty() && reads.front()->is_done) {
        op *first = reads.front();
        reads.pop_front();
        check_receive(*first);
    }
}

unsigned stream_make_pairs()
{
    unsigned count = 0;

    for (size_t i = 0; i < the_world->ops.size(); ++i) {
        const op &o = *the_world->ops[i];
        if ((o.what != kind::STREAM_SEND) || o.was_refused || (o.owner->state != life::ALIVE) ||
            (o.ep->link_to != nullptr)) { /* its other end comes of a request only */
            continue;
        }
        worker &to     = *the_world->workers[o.ep->peer];
        /* one of those that have lost each other may have failed, or been closed */
        const bool has = o.ep->was_paired ||
                         (!is_wounded(o.owner->number, to.number) &&
                          std::any_of(to.eps.begin(), to.eps.end(),
                                      [&](const auto &e) { return is_pair(*o.ep, *e); }));
        endpoint *made = nullptr;
        the_world->current = &to;
        while (!has && (to.state == life::ALIVE) &&
               ((made == nullptr) || (made->ordinal < o.ep->ordinal))) {
            o.ep->was_paired = true;
            made             = endpoint_make(to, o.owner->number);
            if (made == nullptr) {
                break;
            }
            ++count;
        }
    }
    return count;
}

/* Has every send up to this one left, so that who reads it needs the sender no more? */
static bool all_is_flushed(const op &last)
{
    return std::all_of(the_world->ops.begin(), the_world->ops.begin() + (ptrdiff_t)last.sn + 1,
                       [&](const auto &o) {
                           return (o->what != kind::STREAM_SEND) || (o->ep != last.ep) ||
                                  (o->is_done && is_flushed(*o));
                       });
}

void check_streams()
{
    for (const auto &each : the_world->ops) {
        const op &o = *each;
        if ((o.what != kind::STREAM_SEND) || !o.is_done || o.was_refused ||
            (!o.is_detached && (o.status != UCS_OK)) || o.ep->is_forced ||
            ((o.ep->link_to != nullptr) && may_break(*o.ep))) {
            continue;
        }
        const endpoint *reader = paired(*o.ep);
        const worker &from = *o.owner, &to = *the_world->workers[o.ep->peer];
        if ((reader == nullptr) || reader->is_closing || reader->is_cut ||
            !reader->reads.empty() || (to.state != life::ALIVE) || (from.state == life::DEAD) ||
            to.lacked_memory || from.lacked_memory ||
            (sim_net_is_wounded(from.number, to.number) != 0) ||
            ((from.state == life::LEFT) &&
             (!all_is_flushed(o) || (reader->made_at >= from.left_at)))) {
            continue;
        }
        if (reader->read < o.offset + o.length) {
            sim_fail("bytes %zu to %zu from %u to %u have never arrived: %zu were read", o.offset,
                     o.offset + o.length, from.number, to.number, reader->read);
        }
    }
}

} // namespace sim
