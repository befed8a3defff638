/* Halyard: a message between device memory here and memory of the host in another process, in
 * chunks of pinned memory of ours: the device copies between its memory and a chunk, this processor
 * between a chunk and the peer, one chunk while the device has another one.
 *
 * Off the device: near: chunk that the device fills; far: the one before, which is to go to the
 * peer. To the device: near: chunk that has come from the peer; far: the one before, which the
 * device empties.
 *
 * What one side refuses to copy goes another way. Nothing here waits for a device: a copy that is
 * given up would leave it a chunk that is used for something else.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_PROTOS_PIPED_H
#define UCP_PROTOS_PIPED_H

#include <ucp/core/request.h>

struct ucp_piped_ops {
    /* This processor's copy of bytes of the message between a chunk and the peer. Any error: they,
     * and all that follow, go another way. */
    ucs_status_t (*move)(ucp_request_t *req, void *chunk, size_t offset, size_t length);

    /* UCS_OK: what lies before `offset` has arrived, the rest, if there is one, is to go another
     * way. Else a copy of the device has failed, and may still be under way: no other way is to be
     * tried. */
    void (*end)(ucp_request_t *req, size_t offset, ucs_status_t status);
};

/* Takes so much of a request's buffer on a device, up to the byte `end`. A turn is to follow. 0:
 * there is no memory for it. */
int ucp_piped_start(ucp_request_t *req, const ucp_piped_ops_t *ops, size_t offset, size_t end);

/* A turn of the processor: of a request that holds chunks, from the list of work. */
void ucp_piped_turn(ucp_request_t *req);

#endif
