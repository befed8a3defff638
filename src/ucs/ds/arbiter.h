/* Halyard: arbiter: what waits for resources, served fairly.
 *
 * Elements (operations that could not start) wait in groups (one a connection, in order); an
 * arbiter (one an interface) holds the groups that may be tried now. Dispatch visits each of these
 * groups once, in turn, and offers up to a limit of its elements to a callback, which says what
 * becomes of the element and of the group.
 *
 * Everything is intrusive and owned by the caller: nothing is allocated, nothing fails, every
 * operation but purge and dispatch takes constant time. Not thread-safe.
 *
 * Re-entrancy: the callback may add elements to any group, remove, purge, schedule, deschedule and
 * clean up any group (its own too), and may call dispatch, which then returns 0 at once. The
 * element that the callback was called for is off its group meanwhile: the callback's result alone
 * decides about it, and ucs_arbiter_group_is_empty speaks of the others.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_DS_ARBITER_H
#define UCS_DS_ARBITER_H

#include <ucs/ds/list.h>
#include <ucs/sys/compiler.h>
#include <ucs/sys/compiler_def.h>

BEGIN_C_DECLS

typedef struct ucs_arbiter ucs_arbiter_t;
typedef struct ucs_arbiter_group ucs_arbiter_group_t;
typedef struct ucs_arbiter_elem ucs_arbiter_elem_t;

/* What a dispatch callback decides. */
typedef enum {
    UCS_ARBITER_NEXT,          /* the element is done and belongs to the callback; go on */
    UCS_ARBITER_KEEP_GROUP,    /* the element stays first, its group is tried next dispatch */
    UCS_ARBITER_DESCHED_GROUP, /* the element stays first, its group waits for a schedule call; one
                                  that came during this callback counts */
    UCS_ARBITER_STOP           /* the element stays first, its group scheduled; dispatch ends */
} ucs_arbiter_result_t;

/* A callback that cleaned up the group must return UCS_ARBITER_NEXT. */
typedef ucs_arbiter_result_t (*ucs_arbiter_dispatch_cb_t)(ucs_arbiter_group_t *group,
                                                          ucs_arbiter_elem_t *elem, void *arg);

/* 'elem' is off the group and belongs to the callback. */
typedef void (*ucs_arbiter_purge_cb_t)(ucs_arbiter_group_t *group, ucs_arbiter_elem_t *elem,
                                       void *arg);

struct ucs_arbiter_elem {
    ucs_list_link_t list; /* in the group; points to itself when in none */
};

struct ucs_arbiter_group {
    ucs_list_link_t list;  /* in the arbiter; points to itself when not scheduled */
    ucs_list_link_t elems; /* ucs_arbiter_elem_t, first to be served first */
    ucs_arbiter_t *arbiter;
};

struct ucs_arbiter {
    ucs_list_link_t ready;        /* groups for the next dispatch */
    ucs_list_link_t round;        /* groups that the present dispatch has still to visit */
    ucs_arbiter_group_t *current; /* group whose element is with the callback; else NULL */
    int8_t current_wish;          /* the callback scheduled (1), descheduled (-1) it, or neither */
    int8_t is_dispatching;
};

void ucs_arbiter_init(ucs_arbiter_t *arbiter);

/* All groups must have been cleaned up. */
void ucs_arbiter_cleanup(ucs_arbiter_t *arbiter);

/* An empty group, not scheduled, of this arbiter. */
void ucs_arbiter_group_init(ucs_arbiter_t *arbiter, ucs_arbiter_group_t *group);

/* End of a group, which must be empty (purge it first). */
void ucs_arbiter_group_cleanup(ucs_arbiter_group_t *group);

UCS_INLINE void ucs_arbiter_elem_init(ucs_arbiter_elem_t *elem)
{
    ucs_list_head_init(&elem->list);
}

/* True while the element waits in a group (not while it is with a callback). */
UCS_INLINE int ucs_arbiter_elem_is_queued(const ucs_arbiter_elem_t *elem)
{
    return !ucs_list_is_empty(&elem->list);
}

UCS_INLINE int ucs_arbiter_group_is_empty(const ucs_arbiter_group_t *group)
{
    return ucs_list_is_empty(&group->elems);
}

/* True when no group is scheduled and none is being served. */
UCS_INLINE int ucs_arbiter_is_empty(const ucs_arbiter_t *arbiter)
{
    return ucs_list_is_empty(&arbiter->ready) && ucs_list_is_empty(&arbiter->round) &&
           (arbiter->current == NULL);
}

/* Add an initialised element, which waits in no group, behind the others. Does not schedule the
 * group. */
UCS_INLINE void ucs_arbiter_group_add_tail(ucs_arbiter_group_t *group, ucs_arbiter_elem_t *elem)
{
    ucs_list_add_tail(&group->elems, &elem->list);
}

/* Let dispatch visit the group. No effect if it is empty or scheduled already. A group stays
 * scheduled until it is empty, descheduled, or a callback says so. */
void ucs_arbiter_group_schedule(ucs_arbiter_group_t *group);

/* Keep dispatch off the group until it is scheduled again. */
void ucs_arbiter_group_deschedule(ucs_arbiter_group_t *group);

/* Take out an element that waits in this group. The last one deschedules it. */
void ucs_arbiter_group_remove(ucs_arbiter_group_t *group, ucs_arbiter_elem_t *elem);

/* Take out all elements that wait in the group now, in order, and give each to 'cb'. Elements
 * that 'cb' adds stay. The group ends up descheduled unless it is not empty and was scheduled by
 * 'cb'. */
void ucs_arbiter_group_purge(ucs_arbiter_group_t *group, ucs_arbiter_purge_cb_t cb, void *arg);

/* The part of dispatch for the case that there is something to do. */
unsigned ucs_arbiter_dispatch_ready(ucs_arbiter_t *arbiter, unsigned per_group_limit,
                                    ucs_arbiter_dispatch_cb_t cb, void *arg);

/* Visit each group that is scheduled now, once, in the order of scheduling, and offer up to
 * 'per_group_limit' (not 0) elements to 'cb'. A group that has elements left then is visited again
 * by the next dispatch, after the others. Returns the number of elements done; 0 also when called
 * from a callback of this arbiter. */
UCS_INLINE unsigned ucs_arbiter_dispatch(ucs_arbiter_t *arbiter, unsigned per_group_limit,
                                         ucs_arbiter_dispatch_cb_t cb, void *arg)
{
    if (ucs_likely(ucs_list_is_empty(&arbiter->ready))) {
        return 0;
    }
    return ucs_arbiter_dispatch_ready(arbiter, per_group_limit, cb, arg);
}

END_C_DECLS

#endif
