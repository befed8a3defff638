/* Halyard: temporary buffers of a program that has started the library do not cost page faults.
 *
 * Exit status: 0, 1 where they do, 77 where the C library never gives such buffers back.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/api/ucp.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define ROUNDS  100
#define BUFFERS 3

/* Page faults of rounds in which buffers are taken, written and freed. */
static long count_faults(size_t length)
{
    struct rusage before, after;
    char *buffers[BUFFERS];
    int round, i;

    getrusage(RUSAGE_SELF, &before);
    for (round = 0; round < ROUNDS; ++round) {
        for (i = 0; i < BUFFERS; ++i) {
            buffers[i] = malloc(length);
            if (buffers[i] == NULL) {
                fprintf(stderr, "no memory\n");
                exit(1);
            }
            memset(buffers[i], round, length);
            __asm__ volatile("" : : "r"(buffers[i]) : "memory"); /* it is read */
        }
        for (i = BUFFERS; i > 0; --i) {
            free(buffers[i - 1]);
        }
    }
    getrusage(RUSAGE_SELF, &after);
    return after.ru_minflt - before.ru_minflt;
}

int main(void)
{
    static const size_t lengths[] = {96 << 10, 1 << 20}; /* the first is never mapped by itself */
    ucp_params_t params           = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                     .features   = UCP_FEATURE_TAG};
    ucp_context_h context;
    long faults;
    size_t i;

    if (count_faults(lengths[0]) < ROUNDS) {
        return 77;
    }
    if (ucp_init(&params, NULL, &context) != UCS_OK) {
        fprintf(stderr, "ucp_init failed\n");
        return 1;
    }
    for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i) {
        faults = count_faults(lengths[i]); /* of the first round only */
        printf("%d buffers of %zu bytes, %d times: %ld page faults\n", BUFFERS, lengths[i], ROUNDS,
               faults);
        if (faults > (long)(BUFFERS + 1) * (long)lengths[i] / 4096) {
            return 1;
        }
    }
    ucp_cleanup(context);
    return 0;
}
