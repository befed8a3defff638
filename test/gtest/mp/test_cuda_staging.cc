/* Halyard: device memory that other processes cannot map: it is staged, and one line tells why, or,
 * where the user wants no slow way, it is refused.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "cuda_side.h"

using mp::gpu_buffer;
using mp::processes;
using mp::self;
using mp::side;
using mp::TAG;

namespace {

constexpr size_t LENGTH = 300000;

struct what {
    perf_memory_t kind;
    const char *reason; /* NULL: it is not told */
};

const what STAGED[] = {
    {PERF_MEMORY_VMM_PRIVATE, "it was not made for export"},
    {PERF_MEMORY_ASYNC, "its pool gives no descriptor"},
    {PERF_MEMORY_MANAGED, nullptr}
};

/* One message of the sender's; `end` is how the send ends. */
void exchange(side &s, perf_memory_t kind, uint64_t id, ucs_status_t end)
{
    gpu_buffer buffer(s.g(), kind, LENGTH);

    ASSERT_TRUE(buffer.is_made()) << s.g().problem();
    buffer.put(LENGTH, s.is_sender() ? id : 0);
    s.n().barrier();
    uint8_t *place = buffer.place(LENGTH);
    if (s.is_sender()) {
        EXPECT_EQ(end, s.n().wait(s.n().send(s.ep(), place, LENGTH, TAG)));
    } else if (end == UCS_OK) {
        EXPECT_EQ(UCS_OK, s.n().wait(s.n().recv(place, LENGTH, TAG)));
        buffer.expect(LENGTH, id);
    }
    s.n().barrier();
}

ucs_status_t map(side &s, perf_memory_t kind)
{
    gpu_buffer buffer(s.g(), kind, LENGTH);
    ucp_mem_map_params_t params = {};
    ucp_mem_h memh;

    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address    = buffer.place(LENGTH);
    params.length     = LENGTH;
    const ucs_status_t status = ucp_mem_map(s.n().context(), &params, &memh);
    if (status == UCS_OK) {
        EXPECT_EQ(UCS_OK, ucp_mem_unmap(s.n().context(), memh));
    }
    return status;
}

} // namespace

TEST(mp_cuda_staging, one_line_tells_why)
{
    NEED_GPU();
    for (const what &w : STAGED) {
        processes both(2);
        SCOPED_TRACE(w.kind);
        both.start_all([&](self &me) {
            side s(me);
            for (uint64_t id = 1; id <= 5; ++id) {
                exchange(s, w.kind, id, UCS_OK);
            }
            EXPECT_EQ(UCS_OK, map(s, w.kind));
        });
        EXPECT_TRUE(both.join());
        /* Both map it. */
        EXPECT_EQ((w.reason == nullptr) ? 0u : 2u, both.log_lines()) << both.log();
        if (w.reason != nullptr) {
            EXPECT_EQ(2u, both.log_lines(w.reason)) << both.log();
        }
    }
}

TEST(mp_cuda_staging, refused_where_it_is_not_wanted)
{
    processes both(2);

    NEED_GPU();
    both.start_all([&](self &me) {
        setenv("UCX_DEVICE_STAGING", "n", 1);
        side s(me);
        for (uint64_t id = 1; id <= 2; ++id) {
            for (const what &w : STAGED) {
                exchange(s, w.kind, id, UCS_ERR_UNSUPPORTED);
                EXPECT_EQ(UCS_ERR_UNSUPPORTED, map(s, w.kind));
            }
            exchange(s, PERF_MEMORY_CUDA, id, UCS_OK);
            exchange(s, PERF_MEMORY_VMM, id, UCS_OK);
            EXPECT_EQ(UCS_OK, map(s, PERF_MEMORY_CUDA));
        }
    });
    EXPECT_TRUE(both.join());
    EXPECT_EQ(4u, both.log_lines()) << both.log();
}

/* On one device FRAGs would make it change over between the processes. Messages of up to 256 KiB go
 * by its copy engines instead, which the driver uses for short ones only where they are in rows. */
TEST(mp_cuda_staging, both_on_one_device)
{
    NEED_GPU();
    for (bool is_apart : {false, true}) {
        processes both(2);

        if (is_apart && (mp::gpu_count() < 2)) {
            continue;
        }
        both.start_all([is_apart](self &me) {
            setenv("UCX_LOG_LEVEL", "error", 1);
            side s(me, is_apart);
            uint64_t id = 0;

            for (perf_memory_t kind : {PERF_MEMORY_ASYNC, PERF_MEMORY_VMM_PRIVATE}) {
                for (size_t length : {1, 2, 3, 7, 8, 4095, 16384, 32767, 32768, 32769, 200000,
                                      262144, 262145, 1500000}) {
                    gpu_buffer buffer(s.g(), kind, length);
                    ASSERT_TRUE(buffer.is_made()) << s.g().problem();
                    buffer.put(length, s.is_sender() ? ++id : 0);
                    s.n().barrier();
                    const uint64_t read = mp::copies();
                    const uint64_t rows = mp::is_gpu_real() ? 0 : mp::calls("cuMemcpy2DAsync");
                    uint8_t *place      = buffer.place(length);
                    if (s.is_sender()) {
                        EXPECT_EQ(UCS_OK, s.n().wait(s.n().send(s.ep(), place, length, TAG)));
                    } else {
                        EXPECT_EQ(UCS_OK, s.n().wait(s.n().recv(place, length, TAG)));
                        buffer.expect(length, ++id);
                    }
                    if (!mp::is_gpu_real() && !s.is_sender()) {
                        const bool is_by_host = !is_apart && (length <= 262144);
                        const bool is_short   = (length > 1) && (length <= 32768);
                        EXPECT_EQ(is_by_host, read == mp::copies()) << length;
                        EXPECT_EQ(is_by_host && is_short,
                                  rows != mp::calls("cuMemcpy2DAsync")) << length;
                    }
                    s.n().barrier();
                }
            }
        });
        EXPECT_TRUE(both.join());
    }
}
