/* Halyard: simulator: the calls that do not return before their operation has ended.
 *
 * Such a call makes progress of its own worker, in a loop. While one is on the stack each progress
 * of that worker gives another one its turn and lets time go on. From a callback the same calls
 * return at once, and what they asked for ends later.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world.h"

#include <algorithm>

namespace sim {

namespace {

/* Does anything of this worker's (to e, where not NULL) wait for what only the worker itself, or
 * nobody, will do? */
bool waits_for_itself(const worker &w, const endpoint *e)
{
    return std::any_of(the_world->ops.begin(), the_world->ops.end(), [&](const auto &o) {
        return (o->owner == &w) && (o->ep != nullptr) && ((e == nullptr) || (o->ep == e)) &&
               (!o->is_done || o->is_detached) &&
               ((o->ep->peer == w.number) || (o->what == kind::STREAM_SEND) ||
                ((o->ep->link_to != nullptr) && !o->ep->link_to->is_accepted));
    });
}

void post_flush(worker &w, endpoint *e)
{
    if (waits_for_itself(w, e)) {
        return;
    }
    op &o = op_new(w, kind::FLUSH);
    o.ep  = e;
    call_blocking(o, [&]() {
        return (e != nullptr) ? ucp_ep_flush(e->handle) : ucp_worker_flush(w.handle);
    });
}

/* It does not say that there was no memory for it. */
void post_destroy(endpoint &e)
{
    if ((sim_plan.fail_alloc > 0) || waits_for_itself(*e.owner, &e)) {
        return;
    }
    close_begins(e);
    op &o        = op_new(*e.owner, kind::CLOSE);
    o.ep         = &e;
    e.is_closing = true;
    call_blocking(o, [&]() {
        const bool waits = (the_world->depth > 0);
        ucp_ep_destroy(e.handle);
        return waits ? UCS_ERR_NO_PROGRESS : UCS_OK;
    });
}

} // namespace

bool can_block(const worker &w, const endpoint *e)
{
    if (((e->link_to != nullptr) && !e->link_to->is_accepted) || !sim_net_is_open(w.number)) {
        return false; /* the server's user may take long, or nobody would have turns */
    }
    return (the_world->depth == 0) ? (the_world->blocked == nullptr) :
                                     (w.is_progressing || ((the_world->blocked != nullptr) &&
                                                           (the_world->blocked->owner == &w)));
}

void call_blocking(op &o, const std::function<ucs_status_t()> &call)
{
    const bool blocks = (the_world->depth == 0);
    ucs_status_t status;

    sim_event("post blocking", o.sn, (uint64_t)o.what, (o.ep != nullptr) ? o.ep->peer : 999);
    o.is_blocking = true;
    {
        posting guard(o);
        if (blocks) {
            the_world->blocked = &o;
        }
        status = call();
        if (blocks) {
            the_world->blocked = nullptr;
        }
    }
    the_world->current = o.owner;
    if (status == UCS_ERR_NO_PROGRESS) {
        if (blocks) {
            sim_fail("blocking call %llu does not wait", (unsigned long long)o.sn);
        }
        sim_event("does not wait", o.sn, 0, 0);
        o.is_detached = true;
        o.is_done     = true;
    } else {
        op_end(o, status);
    }
}

void post_blocking(worker &w)
{
    endpoint *e = endpoint_random(w);

    if ((e == nullptr) || !can_block(w, e)) {
        return;
    }
    switch (sim_below(4)) {
    case 0:
        post_flush(w, nullptr);
        break;
    case 1:
        post_destroy(*e);
        break;
    default:
        post_flush(w, e);
        break;
    }
}

} // namespace sim

void sim_world_turn(unsigned number)
{
    constexpr unsigned IDLE_TURNS = 16; /* until time jumps to what happens next */
    sim::world *all               = sim::the_world;
    const sim::op *blocked        = all->blocked;

    if ((blocked == nullptr) || (blocked->owner->number != number) || all->is_in_turn) {
        return;
    }
    all->is_in_turn = true;
    sim_advance(sim_below(sim_plan.delay_ns + 1));
    sim::worker &other = *sim::worker_random();
    unsigned count     = 0;
    if (&other != blocked->owner) {
        all->current = &other;
        count        = sim::worker_progress(other);
        if (blocked->target == nullptr) { /* a flush: others may have to receive */
            count += sim::take_unexpected(other);
        }
        sim::worker_poll(other);
    }
    all->num_idle = (count > 0) ? 0 : all->num_idle + 1;
    if (all->num_idle >= IDLE_TURNS) {
        const uint64_t next_ns = sim_net_next_ns();
        all->num_idle          = 0;
        sim_advance(((next_ns != UINT64_MAX) && (next_ns > sim_now())) ? next_ns - sim_now() :
                                                                          1000000);
    }
    all->current    = blocked->owner;
    all->is_in_turn = false;
}
