/* Halyard: the linear costs that fit measured latencies.
 *
 * The library predicts a message through shared memory as overhead + latency + bytes / bandwidth,
 * and one that is announced and then copied by its receiver as the announcement, the copy's
 * overhead + bytes / bandwidth, and the overhead of the answer (src/ucp/proto/proto.c). Both are
 * straight lines over the size; what is fitted here is put in their terms.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "costs.h"

#define MESSAGE_OVERHEAD_NS 8  /* of shared memory; no setting */
#define ANNOUNCEMENT        48 /* bytes */

void perf_line_fit_add(perf_line_fit_t *fit, uint64_t size, double ns)
{
    const double weight = 1 / (ns * ns);
    const double bytes  = (double)size;

    ++fit->count;
    fit->w  += weight;
    fit->x  += weight * bytes;
    fit->y  += weight * ns;
    fit->xx += weight * bytes * bytes;
    fit->xy += weight * bytes * ns;
}

int perf_line_fit_solve(const perf_line_fit_t *fit, double *ns_p, double *bytes_per_ns_p)
{
    const double det = (fit->w * fit->xx) - (fit->x * fit->x);
    double base, slope;

    if ((fit->count < 2) || !(det > 1e-9 * fit->w * fit->xx)) { /* one size: 0, but for rounding */
        return -1;
    }
    base  = ((fit->y * fit->xx) - (fit->x * fit->xy)) / det;
    slope = ((fit->w * fit->xy) - (fit->x * fit->y)) / det;
    if (!(base > 0) || !(slope > 0)) {
        return -1;
    }
    *ns_p           = base;
    *bytes_per_ns_p = 1 / slope;
    return 0;
}

static void print_line(FILE *stream, const char *transport, const char *what, double ns,
                       double bytes_per_ns)
{
    fprintf(stream, "UCX_%s_%s=%.0fns\n", transport, what, (ns > 1) ? ns : 1);
    fprintf(stream, "UCX_%s_BW=%.0fMBs\n", transport, bytes_per_ns * 1e3);
}

void perf_costs_print(const perf_line_fit_t *eager, const perf_line_fit_t *get, FILE *stream)
{
    double ns, bytes_per_ns, announcement_ns;

    if (perf_line_fit_solve(eager, &ns, &bytes_per_ns) != 0) {
        return;
    }
    fprintf(stream, "\nCosts that fit these times, to be set or put in a file ucx.conf:\n");
    print_line(stream, "MM", "LATENCY", ns - MESSAGE_OVERHEAD_NS, bytes_per_ns);
    announcement_ns = ns + (ANNOUNCEMENT / bytes_per_ns);
    if (perf_line_fit_solve(get, &ns, &bytes_per_ns) == 0) {
        print_line(stream, "CMA", "OVERHEAD", ns - announcement_ns - MESSAGE_OVERHEAD_NS,
                   bytes_per_ns);
    }
    fprintf(stream, "\n");
}
