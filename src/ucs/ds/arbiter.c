/* Halyard: arbiter: scheduling and dispatch.
 *
 * A group is in exactly one state: idle (its link points to itself), on 'ready', on 'round', or
 * current (link points to itself, arbiter->current names it). Calls that a callback makes about
 * the current group are noted in current_wish and carried out after the callback.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/ds/arbiter.h>

#include <ucs/debug/assert.h>

enum {
    UCS_ARBITER_WISH_DESCHEDULE = -1,
    UCS_ARBITER_WISH_NONE       = 0,
    UCS_ARBITER_WISH_SCHEDULE   = 1
};

void ucs_arbiter_init(ucs_arbiter_t *arbiter)
{
    ucs_list_head_init(&arbiter->ready);
    ucs_list_head_init(&arbiter->round);
    arbiter->current        = NULL;
    arbiter->current_wish   = UCS_ARBITER_WISH_NONE;
    arbiter->is_dispatching = 0;
}

void ucs_arbiter_cleanup(ucs_arbiter_t *arbiter UCS_UNUSED)
{
    ucs_assert(ucs_arbiter_is_empty(arbiter));
    ucs_assert(!arbiter->is_dispatching);
}

void ucs_arbiter_group_init(ucs_arbiter_t *arbiter, ucs_arbiter_group_t *group)
{
    ucs_list_head_init(&group->list);
    ucs_list_head_init(&group->elems);
    group->arbiter = arbiter;
}

static int ucs_arbiter_group_is_current(const ucs_arbiter_group_t *group)
{
    return group->arbiter->current == group;
}

void ucs_arbiter_group_cleanup(ucs_arbiter_group_t *group)
{
    ucs_assert(ucs_arbiter_group_is_empty(group));

    ucs_list_del(&group->list);
    if (ucs_arbiter_group_is_current(group)) {
        group->arbiter->current = NULL; /* tells the dispatch that the group is gone */
    }
}

void ucs_arbiter_group_schedule(ucs_arbiter_group_t *group)
{
    ucs_arbiter_t *arbiter = group->arbiter;

    if (ucs_arbiter_group_is_current(group)) {
        arbiter->current_wish = UCS_ARBITER_WISH_SCHEDULE;
    } else if (ucs_list_is_empty(&group->list) && !ucs_list_is_empty(&group->elems)) {
        ucs_list_add_tail(&arbiter->ready, &group->list);
    }
}

void ucs_arbiter_group_deschedule(ucs_arbiter_group_t *group)
{
    if (ucs_arbiter_group_is_current(group)) {
        group->arbiter->current_wish = UCS_ARBITER_WISH_DESCHEDULE;
    } else {
        ucs_list_del(&group->list);
    }
}

void ucs_arbiter_group_remove(ucs_arbiter_group_t *group, ucs_arbiter_elem_t *elem)
{
    ucs_list_del(&elem->list);
    if (ucs_list_is_empty(&group->elems) && !ucs_arbiter_group_is_current(group)) {
        ucs_list_del(&group->list);
    }
}

void ucs_arbiter_group_purge(ucs_arbiter_group_t *group, ucs_arbiter_purge_cb_t cb, void *arg)
{
    ucs_arbiter_elem_t *elem;
    ucs_list_link_t purged;

    ucs_list_head_init(&purged);
    ucs_list_splice_tail(&purged, &group->elems);
    ucs_arbiter_group_deschedule(group);

    while (!ucs_list_is_empty(&purged)) {
        elem = ucs_list_extract_head(&purged, ucs_arbiter_elem_t, list);
        cb(group, elem, arg);
    }
}

/* Serve one group, which is on no list. Returns whether dispatch must end. */
static int ucs_arbiter_visit(ucs_arbiter_t *arbiter, ucs_arbiter_group_t *group, unsigned limit,
                             ucs_arbiter_dispatch_cb_t cb, void *arg, unsigned *done)
{
    unsigned served             = 0;
    ucs_arbiter_result_t result = UCS_ARBITER_NEXT;
    ucs_arbiter_elem_t *elem;
    int is_scheduled;

    arbiter->current = group;
    do {
        arbiter->current_wish = UCS_ARBITER_WISH_NONE;
        elem                  = ucs_list_extract_head(&group->elems, ucs_arbiter_elem_t, list);
        result                = cb(group, elem, arg);
        if (result == UCS_ARBITER_NEXT) {
            ++served;
            ++*done;
        }
        if (arbiter->current == NULL) {
            ucs_assert(result == UCS_ARBITER_NEXT);
            return 0;
        }
    } while ((result == UCS_ARBITER_NEXT) && (served < limit) &&
             (arbiter->current_wish != UCS_ARBITER_WISH_DESCHEDULE) &&
             !ucs_arbiter_group_is_empty(group));
    arbiter->current = NULL;

    if (result != UCS_ARBITER_NEXT) {
        ucs_assert(!ucs_arbiter_elem_is_queued(elem));
        ucs_list_add_head(&group->elems, &elem->list);
    }

    is_scheduled = (result == UCS_ARBITER_DESCHED_GROUP) ?
                   (arbiter->current_wish == UCS_ARBITER_WISH_SCHEDULE) :
                   (arbiter->current_wish != UCS_ARBITER_WISH_DESCHEDULE);
    if (is_scheduled && !ucs_arbiter_group_is_empty(group)) {
        /* A group that stopped the dispatch before it got anything is first the next time. */
        if ((result == UCS_ARBITER_STOP) && (served == 0)) {
            ucs_list_add_head(&arbiter->round, &group->list);
        } else {
            ucs_list_add_tail(&arbiter->ready, &group->list);
        }
    }
    return result == UCS_ARBITER_STOP;
}

unsigned ucs_arbiter_dispatch_ready(ucs_arbiter_t *arbiter, unsigned per_group_limit,
                                    ucs_arbiter_dispatch_cb_t cb, void *arg)
{
    unsigned done = 0;
    int stop      = 0;
    ucs_arbiter_group_t *group;

    ucs_assert(per_group_limit > 0);

    if (arbiter->is_dispatching) {
        return 0;
    }

    arbiter->is_dispatching = 1;
    ucs_list_splice_tail(&arbiter->round, &arbiter->ready);
    while (!stop && !ucs_list_is_empty(&arbiter->round)) {
        group = ucs_list_extract_head(&arbiter->round, ucs_arbiter_group_t, list);
        stop  = ucs_arbiter_visit(arbiter, group, per_group_limit, cb, arg, &done);
    }

    /* Groups that were not visited come before those that were. */
    ucs_list_splice_tail(&arbiter->round, &arbiter->ready);
    ucs_list_splice_tail(&arbiter->ready, &arbiter->round);
    arbiter->is_dispatching = 0;
    return done;
}
