/* Halyard: rate of the processor's counter, measured against the monotonic clock.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "clock.h"

#define CALIBRATION_NS 20e6

double perf_tick_ns(void)
{
    static double tick_ns = 0;
    double start_ns, end_ns;
    uint64_t start, end;

    if (tick_ns == 0) {
        start_ns = perf_now_ns();
        start    = perf_ticks();
        do {
            end_ns = perf_now_ns();
            end    = perf_ticks();
        } while (end_ns - start_ns < CALIBRATION_NS);
        tick_ns = (end > start) ? (end_ns - start_ns) / (double)(end - start) : 1;
    }
    return tick_ns;
}
