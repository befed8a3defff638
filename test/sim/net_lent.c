/* Halyard: simulator: messages that are sent from where they lie. Their bytes leave later, in a
 * progress of their sender, and until then whoever owns the memory must not have it back.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "sim.h"

#include <ucs/ds/list.h>
#include <ucs/sys/sys.h>

#include <stdlib.h>
#include <string.h>

struct sim_lent {
    ucs_list_link_t   list;
    unsigned          number; /* of the sender */
    sim_lent_t      **owner;  /* where the message knows of it; NULL: the message is lost */
    void             *dest;
    const void       *src;
    size_t            length;
    uct_completion_t *comp;
    uint64_t          time_ns;
};

static ucs_list_link_t sim_lents = UCS_LIST_INITIALIZER(&sim_lents);

void sim_lent_start(unsigned number, sim_lent_t **owner, void *dest, const uct_iov_t *iov,
                    uct_completion_t *comp)
{
    sim_lent_t *lent = calloc(1, sizeof(*lent));

    if (lent == NULL) {
        abort();
    }
    lent->number  = number;
    lent->owner   = owner;
    lent->dest    = dest;
    lent->src     = iov->buffer;
    lent->length  = iov->length;
    lent->comp    = comp;
    lent->time_ns = sim_now() + sim_below(sim_plan.lent_ns + 1);
    *owner        = lent;
    ucs_list_add_tail(&sim_lents, &lent->list);
}

void sim_lent_lose(sim_lent_t *lent, uint64_t time_ns)
{
    *lent->owner  = NULL;
    lent->owner   = NULL;
    lent->time_ns = ucs_max(lent->time_ns, time_ns);
}

int sim_lent_is_of(const sim_lent_t *lent, const uct_completion_t *comp)
{
    return (lent != NULL) && (lent->comp == comp);
}

/* The bytes leave, or are not needed any more. */
static void sim_lent_end(sim_lent_t *lent)
{
    uct_completion_t *comp    = lent->comp;
    const ucs_status_t status = (lent->owner != NULL) ? UCS_OK : UCS_ERR_CONNECTION_RESET;

    if (lent->owner != NULL) {
        if (sim_world_may_touch(lent->number, lent->src, lent->length)) {
            memcpy(lent->dest, lent->src, lent->length);
        }
        *lent->owner = NULL;
    }
    sim_event("left", lent->number, lent->length, (uint64_t)status);
    ucs_list_del(&lent->list);
    free(lent);
    uct_completion_update(comp, status);
}

/* The first of the sender's, by when they were sent, or NULL. */
static sim_lent_t *sim_lent_first(unsigned number, uint64_t until_ns)
{
    sim_lent_t *lent;

    ucs_list_for_each(lent, &sim_lents, list) {
        if ((lent->number == number) && (lent->time_ns <= until_ns)) {
            return lent;
        }
    }
    return NULL;
}

unsigned sim_lent_progress(unsigned number, uint64_t until_ns)
{
    unsigned count = 0;
    sim_lent_t *lent;

    while ((lent = sim_lent_first(number, until_ns)) != NULL) {
        sim_lent_end(lent);
        ++count;
    }
    return count;
}

int sim_lent_is_due(unsigned number)
{
    return sim_lent_first(number, sim_now()) != NULL;
}

uint64_t sim_lent_next_ns(void)
{
    uint64_t next_ns = UINT64_MAX;
    sim_lent_t *lent;

    ucs_list_for_each(lent, &sim_lents, list) {
        if (!sim_net_is_dead(lent->number)) {
            next_ns = ucs_min(next_ns, lent->time_ns);
        }
    }
    return next_ns;
}

void sim_lent_check_end(void)
{
    if (!ucs_list_is_empty(&sim_lents)) {
        sim_fail("a message still holds memory of worker %u",
                 ucs_list_head(&sim_lents, sim_lent_t, list)->number);
    }
}
