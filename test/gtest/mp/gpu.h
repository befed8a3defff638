/* Halyard: what a process of a test holds of a device: the driver, a device, memory of any kind.
 *
 * The driver is the one of test/fakecuda, or with HALYARD_TEST_CUDA=real the machine's own. Only
 * processes of a test load it, never the coordinator.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_MP_GPU_H
#define TEST_GTEST_MP_GPU_H

#include "node.h"

#include <tools/perf/device.h>

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <sys/wait.h>
#include <unistd.h>

namespace mp {

inline bool is_gpu_real()
{
    const char *which = getenv("HALYARD_TEST_CUDA");

    return (which != nullptr) && (strcmp(which, "real") == 0);
}

/* A device of this process. */
class gpu {
public:
    /* The driver is in the process from now on, under its name. */
    static void load()
    {
        (void)dlopen(is_gpu_real() ? "libcuda.so.1" :
                                     HALYARD_BUILDDIR "/test/fakecuda/.libs/libcuda.so.1",
                     RTLD_NOW);
    }

    /* side: which of several devices, as many as there are. */
    explicit gpu(unsigned side)
    {
        load();
        m_is_open = perf_device_open(&m_device, -1, side) == 0;
    }

    ~gpu()
    {
        perf_device_close(&m_device);
    }

    gpu(const gpu &) = delete;
    gpu &operator=(const gpu &) = delete;

    bool is_open() const
    {
        return m_is_open;
    }

    perf_device_t *device()
    {
        return &m_device;
    }

    const char *problem() const
    {
        return m_device.problem;
    }

    void copy(void *dest, const void *src, size_t length)
    {
        ASSERT_EQ(0, perf_memory_copy(&m_device, dest, src, length)) << problem();
    }

    /* 0 where the driver does not say. */
    size_t free_bytes()
    {
        size_t bytes = 0;

        return (perf_device_free_bytes(&m_device, &bytes) == 0) ? bytes : 0;
    }

    /* A function of the driver; NULL: it has none. */
    template <typename function_t>
    static function_t *function(const char *name)
    {
        return reinterpret_cast<function_t *>(
            dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name));
    }

private:
    perf_device_t m_device;
    bool          m_is_open;
};

/* Room for one message in memory of a kind, with guards around it that nothing may touch. Made of
 * nothing where the driver lacks the kind or the device is not open. */
class gpu_buffer {
public:
    gpu_buffer(gpu &g, perf_memory_t kind, size_t length_max) :
        m_gpu(g), m_kind(kind),
        m_size(perf_memory_extent(kind, length_max + OFFSET_MAX + (2 * GUARD))),
        m_memory(static_cast<uint8_t *>(
            g.is_open() ? perf_memory_alloc(g.device(), kind, m_size) : nullptr)),
        m_mirror(length_max + (2 * GUARD))
    {
    }

    ~gpu_buffer()
    {
        if (m_memory != nullptr) {
            perf_memory_release(m_gpu.device(), m_kind, m_memory, m_size);
        }
    }

    gpu_buffer(const gpu_buffer &) = delete;
    gpu_buffer &operator=(const gpu_buffer &) = delete;

    bool is_made() const
    {
        return m_memory != nullptr;
    }

    uint8_t *memory() const
    {
        return m_memory;
    }

    size_t size() const
    {
        return m_size;
    }

    /* Where messages of this length lie: at odd addresses too, and across two pieces. */
    uint8_t *place(size_t length) const
    {
        if (m_kind == PERF_MEMORY_VMM_PIECES) {
            return m_memory + (m_size / 2) - ((length + 1) / 2);
        }
        return m_memory + GUARD + ((length * 37) % OFFSET_MAX);
    }

    /* The message, or no message, between its guards. */
    void put(size_t length, uint64_t id)
    {
        memset(m_mirror.data(), GUARD_BYTE, length + (2 * GUARD));
        if (id != 0) {
            fill(m_mirror.data() + GUARD, length, id);
        }
        m_gpu.copy(place(length) - GUARD, m_mirror.data(), length + (2 * GUARD));
    }

    void expect(size_t length, uint64_t id)
    {
        static const std::vector<uint8_t> guard(GUARD, GUARD_BYTE);

        memset(m_mirror.data(), 0, length + (2 * GUARD));
        m_gpu.copy(m_mirror.data(), place(length) - GUARD, length + (2 * GUARD));
        EXPECT_EQ(-1, find_difference(m_mirror.data() + GUARD, length, id))
            << length << " bytes of " << perf_memory_names[m_kind];
        EXPECT_EQ(0, memcmp(m_mirror.data(), guard.data(), GUARD)) << "before the message";
        EXPECT_EQ(0, memcmp(m_mirror.data() + GUARD + length, guard.data(), GUARD))
            << "behind the message";
    }

private:
    static constexpr size_t  GUARD      = 64;
    static constexpr size_t  OFFSET_MAX = 5003;
    static constexpr uint8_t GUARD_BYTE = 0xe7;

    gpu                 &m_gpu;
    perf_memory_t        m_kind;
    size_t               m_size;
    uint8_t             *m_memory;
    std::vector<uint8_t> m_mirror;
};

/* Asked once, in a process of its own. */
inline unsigned gpu_count()
{
    static int count = -1;

    if (count < 0) {
        fflush(nullptr);
        const pid_t pid = fork();
        if (pid == 0) {
            gpu g(0);
            _exit(g.is_open() ? g.device()->count : 0);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        count = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    }
    return static_cast<unsigned>(count);
}

/* Begins a test of device memory. */
#define NEED_GPU() \
    if (mp::gpu_count() == 0) { \
        GTEST_SKIP() << "there is neither a CUDA driver nor the one of test/fakecuda"; \
    }

/* The same for tests that make the driver fail. */
#define NEED_FAKE_GPU() \
    NEED_GPU(); \
    if (mp::is_gpu_real()) { \
        GTEST_SKIP() << "this needs the driver of the tests"; \
    }

} // namespace mp

#endif
