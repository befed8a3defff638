/* Halyard: a bad line for tests between hosts: it carries frames between two network devices late,
 * in another order, slowly, or not at all. What the kernel's netem does, without needing it.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_MP_LINE_H
#define TEST_GTEST_MP_LINE_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace mp {

/* What happens to frames, each way. */
struct line {
    double   delay_s     = 0;
    double   jitter_s    = 0; /* up to so much more, by chance: who has less overtakes */
    double   loss        = 0; /* share of the frames */
    double   bytes_per_s = 0; /* 0: as fast as it goes */
    size_t   queue       = 256 * 1024; /* bytes that wait at most; what comes then is lost */
    uint64_t seed        = 1;
};

class line_carrier {
public:
    /* Devices of the network namespace of the calling thread, which takes CAP_NET_RAW. */
    line_carrier(const std::string &near, const std::string &far, const line &what);
    ~line_carrier();
    line_carrier(const line_carrier &) = delete;
    line_carrier &operator=(const line_carrier &) = delete;

    bool is_open() const
    {
        return (m_ends[0] >= 0) && (m_ends[1] >= 0);
    }

    /* Does not return. */
    [[noreturn]] void run();

private:
    int  m_ends[2];
    line m_line;
};

} // namespace mp

#endif
