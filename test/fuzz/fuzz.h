/* Halyard: fuzzing: the targets, and a pair of workers for those that need one.
 *
 * A target takes any bytes and returns 0; what it finds is a crash, a sanitizer's report or a call
 * of abort. driver.c makes a libFuzzer program of each, replay.c runs all over their corpora.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_FUZZ_FUZZ_H
#define TEST_FUZZ_FUZZ_H

#include <ucp/api/ucp.h>

#include <stddef.h>
#include <stdint.h>

/* Worker addresses: taken apart, put together again, and given to ucp_ep_create. */
int fuzz_address(const uint8_t *data, size_t size);
/* Packed remote keys. */
int fuzz_rkey(const uint8_t *data, size_t size);
/* Messages of a peer, in any order, while operations are under way. */
int fuzz_messages(const uint8_t *data, size_t size);
/* What clients and servers of socket addresses say to each other over TCP. */
int fuzz_conn(const uint8_t *data, size_t size);
/* Values of options, ucx.conf, UCX_FAULT. */
int fuzz_config(const uint8_t *data, size_t size);

/* The rest of an input. */
typedef struct {
    const uint8_t *data;
    size_t         left;
} fuzz_input_t;

/* Its next byte; zeros follow the end. */
static inline uint8_t fuzz_byte(fuzz_input_t *in)
{
    if (in->left == 0) {
        return 0;
    }
    --in->left;
    return *in->data++;
}

/* Two workers of one process: endpoints from the first to itself and to the second, and back. */
typedef struct {
    ucp_context_h context;
    ucp_worker_h  workers[2];
    ucp_ep_h      self, there, back;
} fuzz_pair_t;

void fuzz_pair_make(fuzz_pair_t *pair);
void fuzz_pair_progress(fuzz_pair_t *pair);
void fuzz_pair_drop(fuzz_pair_t *pair);

/* Aborts, with what is wrong. */
void fuzz_expect(int condition, const char *what);

#endif
