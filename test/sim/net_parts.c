/* Halyard: simulator: messages that their sender is still writing when the receiver sees the first
 * of them, and which a receive may take part by part (uct_iface_set_am_parts).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "sim.h"

#include <ucs/sys/sys.h>

#include <string.h>

void sim_parts_draw(sim_parts_t *parts, uint64_t time_ns, size_t length)
{
    parts->time_ns = time_ns;
    parts->gap_ns  = sim_between(1, 100 * sim_plan.delay_ns);
    parts->count   = ((length > 2) && sim_chance(sim_plan.parts)) ? (unsigned)sim_between(2, 3) : 1;
    parts->come    = parts->count;
    parts->taken   = 0;
}

/* Until a moment. */
static unsigned sim_parts_there(const sim_parts_t *parts)
{
    return (sim_now() < parts->time_ns) ? 0 :
           (unsigned)ucs_min(parts->come, 1 + ((sim_now() - parts->time_ns) / parts->gap_ns));
}

uint64_t sim_parts_last_ns(const sim_parts_t *parts)
{
    return parts->time_ns + ((parts->count - 1) * parts->gap_ns);
}

uint64_t sim_parts_next_ns(const sim_parts_t *parts)
{
    return sim_parts_are_over(parts) ? UINT64_MAX :
                                       parts->time_ns + (parts->taken * parts->gap_ns);
}

void sim_parts_cut(sim_parts_t *parts)
{
    parts->come = ucs_max(sim_parts_there(parts), 1u); /* without the first it is not there */
}

void sim_parts_stop(sim_parts_t *parts)
{
    parts->come = parts->taken;
}

int sim_parts_are_over(const sim_parts_t *parts)
{
    return parts->taken >= parts->come;
}

int sim_parts_begin(const sim_parts_t *parts)
{
    return (parts->taken == 0) && (sim_parts_there(parts) < parts->count);
}

int sim_parts_take(sim_parts_t *parts, const sim_place_t *place, unsigned number,
                   const char *payload, size_t length)
{
    const unsigned there = sim_parts_there(parts);
    const size_t first   = (length * parts->taken) / parts->count;
    const size_t end     = (length * there) / parts->count;

    if ((place->dest != NULL) && sim_world_may_touch(number, place->dest + first, end - first)) {
        memcpy(place->dest + first, payload + first, end - first);
    }
    /* Who has no place for it waits for the last one. */
    parts->taken = (place->dest != NULL) ? there : ucs_max(there, parts->count - 1);
    return there == parts->count;
}

void sim_place_open(sim_place_t *place, uct_iface_t *iface, unsigned id, const void *data,
                    size_t header, size_t length)
{
    const uct_am_handler_t *am = &iface->am[id];

    place->id   = id;
    place->dest = (am->begin != NULL) ? am->begin(am->arg, data, header, length, &place->token) :
                                        NULL;
}

int sim_place_close(sim_place_t *place, uct_iface_t *iface, ucs_status_t status)
{
    if (place->dest == NULL) {
        return 0;
    }
    place->dest = NULL;
    iface->am[place->id].end(place->token, status);
    return 1;
}
