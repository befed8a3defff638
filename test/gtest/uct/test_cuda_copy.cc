/* Halyard: cuda_copy: what memory is, and copies within a process, over a driver that tells on us.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "cuda_program.h"

#include <seed.h>
#include <ucs/sys/sys.h>

extern "C" {
#include <uct/cuda/cuda_driver.h>
}

#include <algorithm>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <thread>
#include <unistd.h>

using namespace uct_test;
using kind = cuda_program::kind;

namespace {

const uct_tl_t *copy_tl()
{
    return uct_tl_find("cuda_copy");
}

ucs_status_t query(const worker &w, const void *address, uct_mem_info_t *info)
{
    memset(info, 0x55, sizeof(*info));
    return w.tl->md.mem_query(w.md, address, 1, info);
}

ucs_status_t copy(worker &w, void *dest, const void *src, size_t length, bool waits,
                  unsigned flags = 0)
{
    if (waits) {
        return w.tl->iface.copy(w.iface, dest, src, length, flags, nullptr);
    }
    return finish({&w}, [&](uct_completion_t *comp) {
        return w.tl->iface.copy(w.iface, dest, src, length, flags, comp);
    });
}

/* Calls that no library may make; the tests' own helpers make some. */
uint64_t forbidden_calls(cuda_program &cuda)
{
    uint64_t count = 0;

    if (cuda_program::is_real()) {
        return 0;
    }
    for (const char *name : {"cuInit", "cuCtxCreate", "cuCtxSetCurrent", "cuStreamSynchronize",
                             "cuCtxSynchronize", "cuMemcpyHtoD", "cuMemcpyDtoH"}) {
        count += cuda.calls(name);
    }
    return count + cuda.pageable();
}

ucs_memory_type_t type_of(kind what)
{
    return is_device(what) ? UCS_MEMORY_TYPE_CUDA :
           (what == kind::MANAGED) ? UCS_MEMORY_TYPE_CUDA_MANAGED : UCS_MEMORY_TYPE_HOST;
}

long resident_pages()
{
    long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    EXPECT_EQ(2, fscanf(file, "%ld %ld", &size, &resident));
    fclose(file);
    return resident;
}

/* Tests that change what the driver does. */
class fake_cuda : public testing::Test {
protected:
    void SetUp() override
    {
        if (cuda_program::is_real()) {
            GTEST_SKIP() << "this needs the driver of the tests";
        }
    }
};

TEST_F(fake_cuda, no_driver_no_device)
{
    if (access("/dev/nvidiactl", F_OK) == 0) {
        GTEST_SKIP() << "there is a device";
    }
    for (const char *name : {"cuda_copy", "cuda_ipc"}) {
        EXPECT_EQ(UCS_ERR_NO_DEVICE, worker(uct_tl_find(name)).status());
    }
}

TEST(cuda_copy, the_program_initialises_cuda_later_or_never)
{
    in_process([]() {
        cuda_program cuda;
        worker w(copy_tl());
        uct_mem_info_t info;
        uct_mem_t *mem;
        int word = 0;

        ASSERT_EQ(UCS_OK, w.status());
        EXPECT_EQ(UCS_ERR_NO_DEVICE, query(w, &word, &info));
        {
            log_levels quiet("fatal");
            EXPECT_EQ(UCS_ERR_NO_DEVICE, w.tl->md.alloc(w.md, nullptr, 64, UCT_MEM_ALLOC_DEVICE,
                                                        &mem));
        }
        EXPECT_EQ(0u, w.progress());
        cuda.init();
        ASSERT_EQ(UCS_OK, query(w, &word, &info));
        EXPECT_EQ(UCS_MEMORY_TYPE_HOST, info.type);
        cuda.use_primary();
        const auto m = cuda.make(kind::DEVICE, 100);
        ASSERT_EQ(UCS_OK, query(w, m.address, &info));
        EXPECT_EQ(UCS_MEMORY_TYPE_CUDA, info.type);
        EXPECT_EQ(m.address, info.base);
        EXPECT_EQ(100u, info.length);
        EXPECT_EQ(0, info.device);
        cuda.free(m);
        EXPECT_EQ(0u, cuda.misuses());
    });
}

unsigned g_opens;

void *counted_dlopen(const char *name, int flags)
{
    ++g_opens;
    return ucs_sys_real.dlopen(name, flags);
}

/* Messages do not wait for the loader's lock, which a program may hold for long. */
TEST(cuda_copy, the_loader_is_asked_for_what_is_there_only)
{
    in_process([]() {
        ucs_sys_ops_t table = ucs_sys_real;
        table.dlopen        = counted_dlopen;
        ucs_sys_set(&table);
        EXPECT_EQ(nullptr, uct_cuda_driver());
        ASSERT_NE(nullptr, dlopen("libutil.so.1", RTLD_NOW));
        EXPECT_EQ(nullptr, uct_cuda_driver());
        EXPECT_EQ(nullptr, uct_cuda_driver());
        EXPECT_EQ(0u, g_opens);
        cuda_program cuda;
        EXPECT_NE(nullptr, uct_cuda_driver());
        EXPECT_NE(nullptr, uct_cuda_driver());
        EXPECT_EQ(1u, g_opens);
        ucs_sys_set(nullptr);
    });
}

/* Random allocations of every kind come and go, so that addresses are used again as other kinds;
 * what the driver knows is compared with what was allocated. */
TEST(cuda_copy, memory_is_what_it_is_now)
{
    in_process([]() {
        seeded_random rnd(41);
        cuda_program cuda;
        worker w(copy_tl());
        std::vector<std::pair<cuda_program::memory, uint64_t>> live;
        std::vector<uint64_t> ids;
        uct_mem_info_t info;

        cuda.init();
        cuda.use_primary();
        for (unsigned round = 0; round < 400; ++round) {
            if (live.size() < 12) {
                const kind what = CUDA_KINDS[rnd.below(7)];
                live.emplace_back(cuda.make(what, 1 + rnd.below(1u << 16)), 0);
                ASSERT_EQ(UCS_OK, query(w, live.back().first.address, &info));
                live.back().second = info.id;
                if (type_of(what) != UCS_MEMORY_TYPE_HOST) {
                    EXPECT_EQ(ids.end(), std::find(ids.begin(), ids.end(), info.id))
                        << "an allocation has the number of an earlier one";
                    ids.push_back(info.id);
                }
            } else {
                const size_t i = rnd.below(live.size());
                cuda.free(live[i].first);
                live.erase(live.begin() + i);
            }
            for (const auto &m : live) {
                const uint8_t *base = static_cast<uint8_t *>(m.first.address);
                ASSERT_EQ(UCS_OK, query(w, base + rnd.below(m.first.length), &info));
                ASSERT_EQ(type_of(m.first.what), info.type);
                if (info.type != UCS_MEMORY_TYPE_HOST) {
                    EXPECT_EQ(base, info.base);
                    EXPECT_LE(m.first.length, info.length);
                    EXPECT_EQ(m.second, info.id);
                }
            }
        }
    });
}

/* A reservation with two pieces: each piece is told by itself, a copy goes across. */
TEST(cuda_copy, pieces_of_one_reservation)
{
    in_process([]() {
        cuda_program cuda;
        worker w(copy_tl());
        uct_mem_info_t first, second;
        bytes data = pattern(1, 100000), back(data.size());

        cuda.init();
        cuda.use_primary();
        const auto m    = cuda.make(kind::PIECES, 4ul << 20);
        uint8_t *middle = static_cast<uint8_t *>(m.address) + (2ul << 20);
        ASSERT_EQ(UCS_OK, query(w, middle - 1, &first));
        ASSERT_EQ(UCS_OK, query(w, middle, &second));
        EXPECT_EQ(m.address, first.base);
        EXPECT_EQ(2ul << 20, first.length);
        EXPECT_EQ(middle, second.base);
        EXPECT_NE(first.id, second.id);
        ASSERT_EQ(UCS_OK, copy(w, middle - 5000, data.data(), data.size(), false));
        ASSERT_EQ(UCS_OK, copy(w, back.data(), middle - 5000, back.size(), true));
        EXPECT_EQ(data, back);
    });
}

void copy_all_kinds(bool waits)
{
    cuda_program cuda;
    worker w(copy_tl());
    constexpr size_t SIZE = (1ul << 20) + 100;
    std::vector<cuda_program::memory> places;

    cuda.init();
    const uct_cu_ctx_t ctx = cuda.use_primary();
    for (kind what : CUDA_KINDS) {
        places.push_back(cuda.make(what, SIZE));
    }
    uint64_t number = 0;
    for (const auto &to : places) {
        for (const auto &from : places) {
            if ((type_of(to.what) == UCS_MEMORY_TYPE_HOST) &&
                (type_of(from.what) == UCS_MEMORY_TYPE_HOST)) {
                continue;
            }
            for (size_t length : {1ul, 8ul, 4097ul, (128ul << 10), (128ul << 10) + 1,
                                  (256ul << 10), (900ul << 10) + 7}) {
                if (&to == &from) {
                    continue;
                }
                const size_t offset = number % 3;
                uint8_t *dest       = static_cast<uint8_t *>(to.address) + 16 + offset;
                uint8_t *src        = static_cast<uint8_t *>(from.address) + 32 - offset;
                const bytes data    = pattern(++number, length);
                cuda.write(src, data);
                cuda.write(dest - 8, bytes(length + 16, 0xee));
                const uint64_t forbidden = forbidden_calls(cuda);
                cuda.set_current(nullptr);
                const uint64_t set = 1; /* the line above */
                ASSERT_EQ(UCS_OK, copy(w, dest, src, length, waits));
                EXPECT_EQ(0u, cuda.depth());
                EXPECT_EQ(cuda_program::is_real() ? 0 : forbidden + set, forbidden_calls(cuda));
                cuda.set_current(ctx);
                const bytes all = cuda.read(dest - 8, length + 16);
                ASSERT_EQ(data, bytes(all.begin() + 8, all.end() - 8)) << length;
                EXPECT_EQ(bytes(8, 0xee), bytes(all.begin(), all.begin() + 8));
                EXPECT_EQ(bytes(8, 0xee), bytes(all.end() - 8, all.end()));
            }
        }
    }
    EXPECT_EQ(0u, cuda.misuses());
}

TEST(cuda_copy, every_kind_to_every_other)
{
    in_process([]() { copy_all_kinds(false); });
}

TEST(cuda_copy, every_kind_to_every_other_at_once)
{
    in_process([]() { copy_all_kinds(true); });
}

/* The program's copies from pageable memory end after the call; ours must not overtake them. */
TEST(cuda_copy, the_program_has_just_written_the_memory)
{
    in_process([]() {
        cuda_program cuda;
        worker w(copy_tl());

        cuda.init();
        cuda.use_primary();
        for (size_t length : {8ul, 4096ul, 65536ul, 1ul << 20}) {
            const auto device = cuda.make(kind::DEVICE, length);
            const auto pinned = cuda.make(kind::PINNED, length);
            for (unsigned round = 0; round < 50; ++round) {
                const bytes data = pattern(round, length);
                ASSERT_EQ(0, cuda.call("cuMemcpyHtoD_v2",
                                       reinterpret_cast<unsigned long long>(device.address),
                                       static_cast<const void *>(data.data()), length));
                ASSERT_EQ(UCS_OK, copy(w, pinned.address, device.address, length, round % 2));
                ASSERT_EQ(0, memcmp(pinned.address, data.data(), length)) << length;
            }
        }
    });
}

/* Many copies under way, of both sorts; then all bytes against a model. */
TEST(cuda_copy, a_flood)
{
    in_process([]() {
        seeded_random rnd(43);
        cuda_program cuda;
        worker w(copy_tl());
        constexpr size_t SIZE = 1ul << 20, SLOT = 1024;
        std::deque<completion> comps;

        cuda.init();
        cuda.use_primary();
        const auto device = cuda.make(kind::DEVICE, SIZE);
        const auto pinned = cuda.make(kind::PINNED, SIZE);
        const bytes data  = pattern(3, SIZE);
        bytes pageable(data), model(SIZE);
        memcpy(pinned.address, data.data(), SIZE);
        cuda.write(device.address, model);
        for (size_t slot = 0; slot < SIZE / SLOT; ++slot) {
            const size_t length = 1 + rnd.below(SLOT);
            const size_t from   = rnd.below(SIZE - length);
            const uint8_t *src  = rnd.one_in(4) ? pageable.data() :
                                                  static_cast<uint8_t *>(pinned.address);
            std::copy_n(data.begin() + from, length, model.begin() + slot * SLOT);
            comps.emplace_back();
            const ucs_status_t status = w.tl->iface.copy(
                w.iface, static_cast<uint8_t *>(device.address) + slot * SLOT, src + from, length,
                0, &comps.back().base);
            ASSERT_EQ(UCS_INPROGRESS, status);
            EXPECT_EQ(UCS_ERR_BUSY, w.tl->iface.event_arm(w.iface));
            for (size_t i = rnd.below(3); i > 0; --i) {
                w.progress();
            }
        }
        ASSERT_TRUE(run_until({&w}, [&]() {
            return std::all_of(comps.begin(), comps.end(),
                               [](const completion &c) { return c.calls != 0; });
        }));
        for (const completion &c : comps) {
            EXPECT_EQ(1, c.calls);
            EXPECT_EQ(UCS_OK, c.base.status);
        }
        EXPECT_EQ(UCS_OK, w.tl->iface.event_arm(w.iface));
        EXPECT_EQ(model, cuda.read(device.address, SIZE));
        EXPECT_EQ(0u, cuda.misuses());
    });
}

/* Short copies from the host where another process uses the device: in two rows, to every byte. */
TEST(cuda_copy, in_rows_where_the_device_is_shared)
{
    in_process([]() {
        cuda_program cuda;
        worker w(copy_tl());
        constexpr size_t SIZE = 40000;
        bytes model           = pattern(21, SIZE);

        cuda.init();
        cuda.use_primary();
        const auto device = cuda.make(kind::DEVICE, SIZE);
        const auto pinned = cuda.make(kind::PINNED, SIZE);
        cuda.write(device.address, model);
        for (size_t length : {1, 2, 3, 4, 5, 8, 15, 1000, 1001, 32766, 32767, 32768, 32769,
                              39000}) {
            for (bool is_pinned : {false, true}) {
                const bytes data    = pattern(length + is_pinned, length);
                const size_t offset = 1 + length % 7;
                const uint64_t rows = cuda_program::is_real() ? 0 : cuda.calls("cuMemcpy2DAsync");
                uint8_t *dest       = static_cast<uint8_t *>(device.address) + offset;
                if (is_pinned) {
                    memcpy(pinned.address, data.data(), length);
                }
                ASSERT_EQ(UCS_OK, copy(w, dest, is_pinned ? pinned.address : data.data(), length,
                                       true, UCT_COPY_IN_ROWS));
                std::copy(data.begin(), data.end(), model.begin() + static_cast<long>(offset));
                ASSERT_EQ(model, cuda.read(device.address, SIZE)) << length;
                bytes back(length);
                ASSERT_EQ(UCS_OK, copy(w, back.data(), dest, length, true, UCT_COPY_IN_ROWS));
                ASSERT_EQ(data, back) << length;
                if (!cuda_program::is_real()) {
                    const bool is_short = (length > 1) && (length <= 32768);
                    EXPECT_EQ(rows + (is_short ? 1 + length % 2 : 0),
                              cuda.calls("cuMemcpy2DAsync")) << length;
                }
            }
        }
        EXPECT_EQ(0u, cuda.misuses());
    });
}

/* A driver that refuses rows, or the second two of them. */
TEST_F(fake_cuda, rows_are_refused)
{
    for (unsigned k : {1, 2}) {
        for (bool all : {false, true}) {
            in_process([k, all]() {
                cuda_program cuda;
                worker w(copy_tl());
                const bytes data = pattern(22, 1001);

                cuda.init();
                cuda.use_primary();
                const auto device = cuda.make(kind::DEVICE, data.size());
                cuda.fail("cuMemcpy2DAsync", k, 801, all);
                EXPECT_EQ(UCS_OK, copy(w, device.address, data.data(), data.size(), true,
                                       UCT_COPY_IN_ROWS));
                EXPECT_EQ(data, cuda.read(device.address, data.size()));
                EXPECT_EQ(0u, cuda.misuses());
            });
        }
    }
}

/* What is posted amid other copies goes to the driver by one call. */
TEST_F(fake_cuda, copies_go_in_batches)
{
    for (int version : {13000, 11000}) {
        in_process([version]() {
            cuda_program cuda;
            worker w(copy_tl());
            constexpr unsigned COUNT = 30;
            std::deque<completion> comps;

            cuda.set("version", version);
            cuda.init();
            cuda.use_primary();
            const auto a     = cuda.make(kind::DEVICE, COUNT * 64);
            const auto b     = cuda.make(kind::DEVICE, COUNT * 64);
            const bytes data = pattern(5, COUNT * 64);
            cuda.write(a.address, data);
            for (unsigned i = 0; i < COUNT; ++i) {
                comps.emplace_back();
                ASSERT_EQ(UCS_INPROGRESS,
                          w.tl->iface.copy(w.iface, static_cast<uint8_t *>(b.address) + i * 64,
                                           static_cast<uint8_t *>(a.address) + i * 64, 64, 0,
                                           &comps.back().base));
                EXPECT_EQ(1u, cuda.calls("cuMemcpyAsync")) << "the first one goes at once";
            }
            ASSERT_TRUE(run_until({&w}, [&]() {
                return std::all_of(comps.begin(), comps.end(),
                                   [](const completion &c) { return c.calls != 0; });
            }));
            EXPECT_EQ(data, cuda.read(b.address, data.size()));
            EXPECT_EQ(1u, cuda.calls("cuMemcpyBatchAsync"));
            EXPECT_EQ((version == 11000) ? COUNT : 1u, cuda.calls("cuMemcpyAsync"));
            EXPECT_LE(cuda.calls("cuEventRecord"), 1u);
        });
    }
}

TEST(cuda_copy, a_thread_that_never_used_cuda_with_another_device_current)
{
    in_process([]() {
        cuda_program cuda;
        worker w(copy_tl());
        bytes data = pattern(7, 300000), back(data.size());

        cuda.init();
        const uct_cu_ctx_t own = cuda.create_context();
        const auto device      = cuda.make(kind::DEVICE, data.size());
        std::thread([&]() {
            EXPECT_EQ(UCS_OK, copy(w, device.address, data.data(), data.size(), true));
            EXPECT_EQ(UCS_OK, copy(w, back.data(), device.address, back.size(), false));
            EXPECT_EQ(0u, cuda.depth());
        }).join();
        EXPECT_EQ(data, back);
        if (!cuda_program::is_real()) {
            EXPECT_NE(own, cuda.use_primary(1)); /* takes the place of the other on the stack */
            back.assign(back.size(), 0);
            EXPECT_EQ(UCS_OK, copy(w, back.data(), device.address, back.size(), false));
            EXPECT_EQ(data, back);
            EXPECT_EQ(1u, cuda.depth());
            const auto there = cuda.make(kind::DEVICE, data.size());
            EXPECT_EQ(UCS_OK, copy(w, there.address, device.address, data.size(), false));
            EXPECT_EQ(data, cuda.read(there.address, data.size()));
        }
        EXPECT_EQ(0u, cuda.misuses());
    });
}

/* Memory that belongs to no context is copied in one that is current, or the primary one. Where the
 * program has made its own only, a thread without it is told why nothing can be done. */
TEST_F(fake_cuda, a_thread_without_context_where_there_is_no_primary_one)
{
    in_process([]() {
        cuda_program cuda;
        const bytes data = pattern(7, 100000);

        cuda.init();
        cuda.create_context();
        for (kind what : {kind::DEVICE, kind::MANAGED, kind::SHARED_POOL, kind::PIECES}) {
            const bool has_none = (what == kind::SHARED_POOL) || (what == kind::PIECES);
            const auto m        = cuda.make(what, data.size());
            worker w(copy_tl());
            bytes back(data.size());
            cuda.write(m.address, data);
            std::thread([&]() {
                log_levels quiet("fatal");
                EXPECT_EQ(has_none ? UCS_ERR_UNREACHABLE : UCS_OK,
                          copy(w, back.data(), m.address, data.size(), true));
            }).join();
            EXPECT_EQ(UCS_OK, copy(w, back.data(), m.address, data.size(), true));
            EXPECT_EQ(data, back);
        }
        EXPECT_EQ(0u, cuda.misuses());
    });
}

TEST_F(fake_cuda, another_thread_captures_a_graph)
{
    in_process([]() {
        cuda_program cuda;
        bytes data = pattern(9, 300000), back(data.size());

        cuda.init();
        cuda.use_primary();
        const auto device = cuda.make(kind::DEVICE, data.size());
        cuda.set("capture", 1);
        {
            worker w(copy_tl());
            uct_mem_t *mem = nullptr;
            EXPECT_EQ(UCS_OK, copy(w, device.address, data.data(), data.size(), false));
            EXPECT_EQ(UCS_OK, copy(w, back.data(), device.address, back.size(), true));
            EXPECT_EQ(UCS_OK, w.tl->md.alloc(w.md, nullptr, 64, UCT_MEM_ALLOC_DEVICE, &mem));
            w.tl->md.release(mem);
        }
        EXPECT_EQ(data, back);
        EXPECT_EQ(0u, cuda.misuses());
    });
}

/* The program destroys its context while copies are under way, and makes another one. */
TEST_F(fake_cuda, a_context_goes)
{
    in_process([]() {
        log_levels quiet("fatal");
        cuda_program cuda;
        worker w(copy_tl());
        bytes data = pattern(11, 300000), back(data.size());

        cuda.init();
        for (unsigned round = 0; round < 5; ++round) {
            const uct_cu_ctx_t ctx = cuda.create_context();
            const auto device      = cuda.make(kind::DEVICE, data.size());
            std::deque<completion> comps(4);
            EXPECT_EQ(UCS_OK, copy(w, device.address, data.data(), data.size(), false));
            EXPECT_EQ(UCS_OK, copy(w, back.data(), device.address, back.size(), true));
            EXPECT_EQ(data, back);
            for (completion &comp : comps) {
                EXPECT_EQ(UCS_INPROGRESS, w.tl->iface.copy(w.iface, device.address, data.data(),
                                                           data.size(), 0, &comp.base));
            }
            if (round % 2) {
                w.progress();
            }
            cuda.destroy_context(ctx);
            ASSERT_TRUE(run_until({&w}, [&]() {
                return std::all_of(comps.begin(), comps.end(),
                                   [](const completion &c) { return c.calls != 0; });
            }));
            EXPECT_TRUE(UCS_STATUS_IS_ERR(comps[3].base.status));
            EXPECT_EQ(0u, cuda.depth());
        }
        EXPECT_EQ(0u, cuda.misuses());
    });
}

/* Programs may go on for long with one context after the other: nothing is kept for those that have
 * gone. */
TEST(cuda_copy, contexts_come_and_go)
{
    in_process([]() {
        log_levels quiet("fatal");
        cuda_program cuda;
        worker w(copy_tl());
        bytes data = pattern(10, 300000), back(data.size());
        long pages = 0;

        cuda.init();
        const uct_cu_ctx_t base = cuda.use_primary();
        const auto first        = cuda.make(kind::DEVICE, 100);
        for (unsigned round = 0; round < 20; ++round) {
            const uct_cu_ctx_t ctx = cuda.create_context();
            const auto device      = cuda.make(kind::DEVICE, data.size());
            EXPECT_EQ(UCS_OK, copy(w, device.address, data.data(), data.size(), false));
            EXPECT_EQ(UCS_OK, copy(w, back.data(), device.address, back.size(), true));
            EXPECT_EQ(data, back);
            cuda.destroy_context(ctx);
            cuda.set_current(base);
            EXPECT_EQ(UCS_OK, copy(w, first.address, data.data(), 100, true));
            const long now = resident_pages();
            pages          = (round == 4) ? now : pages;
            EXPECT_TRUE((round < 4) || (now < pages + 500)) << round << ": " << now - pages;
        }
        EXPECT_EQ(0u, cuda.misuses());
    });
}

size_t memory_of(const worker &w)
{
    size_t shared = 0, own = 0;

    w.tl->iface.memory_used(w.iface, &shared, &own);
    return own;
}

void copy_in_new_context(cuda_program &cuda, worker &w, uint64_t seed, uct_cu_ctx_t *ctx_p)
{
    const bytes data = pattern(seed, 100000);

    *ctx_p          = cuda.create_context();
    const auto from = cuda.make(kind::DEVICE, data.size());
    const auto to   = cuda.make(kind::DEVICE, data.size());
    cuda.write(from.address, data);
    EXPECT_EQ(UCS_OK, copy(w, to.address, from.address, data.size(), seed % 2));
    EXPECT_EQ(data, cuda.read(to.address, data.size()));
}

/* The same where no memory of the host was needed. Nothing is done in a context that is gone, nor
 * is its number asked for, which crashes. */
void let_contexts_of_devices_go(bool can_register)
{
    log_levels quiet("fatal");
    cuda_program cuda;
    size_t first = 0;
    uct_cu_ctx_t ctx, some[4];

    cuda.init();
    const uct_cu_ctx_t base = cuda.use_primary();
    if (!can_register) {
        cuda.fail("cuMemHostRegister", 1, 801, true);
    }
    {
        worker w(copy_tl());
        for (unsigned round = 0; round < 20; ++round) {
            copy_in_new_context(cuda, w, round, &ctx);
            cuda.destroy_context(ctx);
            cuda.set_current(base);
            first = (round == 0) ? memory_of(w) : first;
            EXPECT_EQ(first, memory_of(w)) << round;
        }
        for (unsigned i = 0; i < 4; ++i) {
            copy_in_new_context(cuda, w, i, &some[i]);
        }
        for (uct_cu_ctx_t gone : some) {
            cuda.destroy_context(gone);
        }
    }
    cuda.set_current(base);
    EXPECT_EQ(0u, cuda.misuses());
}

TEST(cuda_copy, contexts_of_devices_come_and_go)
{
    in_process([]() { let_contexts_of_devices_go(true); });
}

TEST_F(fake_cuda, contexts_go_where_no_memory_is_registered)
{
    in_process([]() { let_contexts_of_devices_go(false); });
}

/* The one that is current in a thread stays so when another thread destroys it. A real driver (580)
 * then still tells its device, refuses device memory and registers the host's. */
TEST(cuda_copy, a_current_context_goes)
{
    in_process([]() {
        log_levels quiet("fatal");
        cuda_program cuda;
        worker w(copy_tl());
        uct_mem_t *mem;

        cuda.init();
        const uct_cu_ctx_t ctx = cuda.create_context();
        std::thread([&]() { cuda.destroy_context(ctx); }).join();
        EXPECT_NE(UCS_OK, w.tl->md.alloc(w.md, nullptr, 5000, UCT_MEM_ALLOC_DEVICE, &mem));
        if (w.tl->md.alloc(w.md, nullptr, 5000, UCT_MEM_ALLOC_PINNED, &mem) == UCS_OK) {
            EXPECT_TRUE(cuda_program::is_real());
            w.tl->md.release(mem);
        }
        EXPECT_EQ(0u, cuda.misuses());
    });
}

/* Memory of ours that was not registered has nothing to do with the context. */
TEST_F(fake_cuda, memory_of_the_host_outlives_its_context)
{
    in_process([]() {
        log_levels quiet("fatal");
        cuda_program cuda;
        worker w(copy_tl());
        uct_mem_t *mem;

        cuda.init();
        for (int result : {0, 801}) {
            const uct_cu_ctx_t ctx = cuda.create_context();
            cuda.fail("cuMemHostRegister", (result == 0) ? 0 : 1, result);
            ASSERT_EQ(UCS_OK, w.tl->md.alloc(w.md, nullptr, 5000, UCT_MEM_ALLOC_PINNED, &mem));
            cuda.destroy_context(ctx);
            w.tl->md.release(mem);
        }
        EXPECT_EQ(0u, cuda.misuses());
    });
}

/* The same by a reset of the device: the primary context, at its old address, and its streams are
 * new, and so is memory at the address of what was allocated. */
TEST_F(fake_cuda, a_device_is_reset)
{
    in_process([]() {
        log_levels quiet("fatal");
        cuda_program cuda;
        bytes data = pattern(12, 300000);
        uct_mem_info_t info;

        cuda.init();
        const uct_cu_ctx_t ctx = cuda.use_primary();
        for (unsigned round = 0; round < 4; ++round) {
            worker w(copy_tl());
            std::deque<completion> comps(4);
            uct_mem_t *mem[3];
            for (unsigned i = 0; i < 3; ++i) {
                const unsigned flags[] = {UCT_MEM_ALLOC_DEVICE, UCT_MEM_ALLOC_MANAGED,
                                          UCT_MEM_ALLOC_PINNED};
                ASSERT_EQ(UCS_OK, w.tl->md.alloc(w.md, nullptr, 5000, flags[i], &mem[i]));
            }
            const auto old = cuda.make(kind::DEVICE, data.size());
            EXPECT_EQ(UCS_OK, copy(w, old.address, data.data(), data.size(), true));
            EXPECT_EQ(UCS_OK, copy(w, old.address, data.data(), data.size(), false));
            for (size_t i = 0; (i < comps.size()) && (round % 2); ++i) {
                EXPECT_EQ(UCS_INPROGRESS, w.tl->iface.copy(w.iface, old.address, data.data(),
                                                           data.size(), 0, &comps[i].base));
            }
            EXPECT_EQ(0, cuda.call("cuDevicePrimaryCtxRelease_v2", 0));
            ASSERT_EQ(ctx, cuda.use_primary());
            std::vector<cuda_program::memory> others;
            for (unsigned i = 0; i < 8; ++i) {
                others.push_back(cuda.make(kind::DEVICE, 5000));
            }
            const auto place = std::find_if(others.begin(), others.end(), [&](const auto &other) {
                return other.address == mem[0]->address;
            });
            ASSERT_NE(others.end(), place) << "this is about an address that is used again";
            for (uct_mem_t *m : mem) {
                w.tl->md.release(m);
            }
            ASSERT_EQ(UCS_OK, query(w, place->address, &info));
            EXPECT_EQ(UCS_MEMORY_TYPE_CUDA, info.type) << "the program's memory was freed";
            EXPECT_TRUE(run_until({&w}, [&]() {
                return (round % 2 == 0) ||
                       std::all_of(comps.begin(), comps.end(),
                                   [](const completion &c) { return c.calls != 0; });
            }));
            if (round < 2) { /* else the streams are gone when the interface is closed */
                EXPECT_EQ(UCS_OK, copy(w, place->address, data.data(), 5000, true));
            }
            for (const auto &other : others) {
                cuda.free(other);
            }
        }
        EXPECT_EQ(0u, cuda.misuses());
    });
}

/* The same where contexts have no numbers. */
TEST_F(fake_cuda, a_device_is_reset_and_contexts_have_no_numbers)
{
    in_process([]() {
        log_levels quiet("fatal");
        cuda_program cuda;
        worker w(copy_tl());
        const bytes data = pattern(19, 1000);
        bytes back(data.size());

        cuda.init();
        cuda.set("version", 11000);
        for (unsigned round = 0; round < 6; ++round) {
            cuda.use_primary();
            const auto device = cuda.make(kind::DEVICE, data.size());
            EXPECT_EQ(UCS_OK, copy(w, device.address, data.data(), data.size(), round & 1));
            EXPECT_EQ(UCS_OK, copy(w, back.data(), device.address, data.size(), round & 2));
            EXPECT_EQ(data, back);
            std::fill(back.begin(), back.end(), 0);
            EXPECT_EQ(0, cuda.call("cuDevicePrimaryCtxRelease_v2", 0));
        }
        EXPECT_EQ(0u, cuda.misuses());
    });
}

/* Each call of the driver fails once, in turn: copies end, with an error or without, and the next
 * ones succeed. */
TEST_F(fake_cuda, each_call_of_the_driver_fails)
{
    in_process([]() {
        log_levels quiet("fatal");
        cuda_program cuda;
        bytes data = pattern(13, 400000), back(data.size());
        unsigned failures = 0;

        cuda.init();
        cuda.use_primary();
        const auto device = cuda.make(kind::DEVICE, data.size());
        const auto other  = cuda.make(kind::DEVICE, data.size());
        for (int all = 0; all < 2; ++all) {
            for (unsigned k = 1; k < 150; ++k) {
                worker w(copy_tl());
                std::deque<completion> comps;
                w.is_stuck = -1; /* it is not known whether what was lost sight of has ended */
                cuda.fail(nullptr, k, 700, all != 0);
                for (unsigned i = 0; i < 6; ++i) {
                    comps.emplace_back();
                    uint8_t *dest = static_cast<uint8_t *>(device.address) + i * 5000;
                    const ucs_status_t status = w.tl->iface.copy(
                        w.iface, dest, (i % 2) ? other.address : data.data(), 5000, 0,
                        &comps.back().base);
                    if (status != UCS_INPROGRESS) {
                        EXPECT_TRUE(UCS_STATUS_IS_ERR(status));
                        comps.pop_back();
                    }
                }
                if (UCS_STATUS_IS_ERR(copy(w, back.data(), device.address, back.size(), true))) {
                    ++failures;
                }
                ASSERT_TRUE(run_until({&w}, [&]() {
                    return std::all_of(comps.begin(), comps.end(),
                                       [](const completion &c) { return c.calls != 0; });
                })) << k;
                for (const completion &c : comps) {
                    EXPECT_EQ(1, c.calls);
                    failures += (c.base.status != UCS_OK);
                }
                cuda.fail(nullptr, 0, 0);
                ASSERT_EQ(UCS_OK, copy(w, device.address, data.data(), data.size(), false)) << k;
                ASSERT_EQ(UCS_OK, copy(w, back.data(), device.address, back.size(), true)) << k;
                ASSERT_EQ(data, back) << k;
                ASSERT_EQ(1u, cuda.depth()) << k;
            }
        }
        EXPECT_GT(failures, 50u);
        EXPECT_EQ(0u, cuda.misuses());
    });
}

/* Whoever is told that a copy has failed uses its memory for other things, so it is not told so
 * while the device copies: because the driver has not said once whether it has ended, or where. */
TEST_F(fake_cuda, a_question_fails_amid_copies)
{
    in_process([]() {
        log_levels quiet("fatal");
        cuda_program cuda;
        constexpr unsigned COUNT = 100;
        constexpr size_t LENGTH  = 3000;
        const bytes data         = pattern(15, COUNT * LENGTH);

        cuda.init();
        cuda.use_primary();
        const auto device = cuda.make(kind::DEVICE, data.size());
        const auto other  = cuda.make(kind::DEVICE, data.size());
        cuda.write(other.address, data);
        for (const char *name : {"cuPointerGetAttributes", "cuCtxPushCurrent", "cuStreamQuery",
                                 "cuEventQuery"}) {
            for (unsigned k = 1; k < 6; ++k) {
                SCOPED_TRACE(std::string(name) + " " + std::to_string(k));
                worker w(copy_tl());
                bytes back(data.size());
                std::deque<completion> comps;
                for (unsigned i = 0; i < COUNT; ++i) {
                    const size_t offset = i * LENGTH;
                    uint8_t *dest = static_cast<uint8_t *>(device.address) + offset;
                    const uint8_t *src = static_cast<const uint8_t *>(other.address) + offset;
                    comps.emplace_back();
                    ASSERT_EQ(UCS_INPROGRESS,
                              w.tl->iface.copy(w.iface, (i % 2) ? back.data() + offset : dest,
                                               (i % 4) ? src : data.data() + offset, LENGTH, 0,
                                               &comps.back().base));
                }
                cuda.fail(name, k, 999);
                ASSERT_TRUE(run_until({&w}, [&]() {
                    return std::all_of(comps.begin(), comps.end(),
                                       [](const completion &c) { return c.calls != 0; });
                }));
                cuda.fail(nullptr, 0, 0);
                const bytes there = cuda.read(device.address, data.size());
                for (unsigned i = 0; i < COUNT; ++i) {
                    const bytes &dest = (i % 2) ? back : there;
                    EXPECT_EQ(UCS_OK, comps[i].base.status) << i;
                    EXPECT_EQ(0, memcmp(dest.data() + i * LENGTH, data.data() + i * LENGTH,
                                        LENGTH)) << i;
                }
            }
        }
        EXPECT_EQ(0u, cuda.misuses());
    });
}

TEST_F(fake_cuda, the_driver_goes_first)
{
    in_process([]() {
        cuda_program cuda;
        bytes data = pattern(15, 1000);
        worker w(copy_tl());
        uct_mem_t *mem = nullptr;

        cuda.init();
        cuda.use_primary();
        const auto device = cuda.make(kind::DEVICE, data.size());
        completion comp;
        EXPECT_EQ(UCS_OK, w.tl->md.alloc(w.md, nullptr, 64, UCT_MEM_ALLOC_MANAGED, &mem));
        EXPECT_EQ(UCS_INPROGRESS, w.tl->iface.copy(w.iface, device.address, data.data(),
                                                   data.size(), 0, &comp.base));
        cuda.set("gone", 1);
        EXPECT_TRUE(run_until({&w}, [&]() { return comp.calls != 0; }));
        EXPECT_EQ(UCS_ERR_NO_DEVICE, comp.base.status);
        w.is_stuck = 1; /* nobody tells whether it has ended */
        w.tl->md.release(mem);
    });
}

TEST(cuda_copy, allocation)
{
    in_process([]() {
        cuda_program cuda;
        worker w(copy_tl());
        uct_mem_info_t info;
        uct_mem_t *mem;

        cuda.init();
        cuda.use_primary();
        for (unsigned flag : {UCT_MEM_ALLOC_DEVICE, UCT_MEM_ALLOC_MANAGED}) {
            ASSERT_EQ(UCS_OK, w.tl->md.alloc(w.md, nullptr, 5000, flag, &mem));
            EXPECT_EQ(5000u, mem->length);
            ASSERT_EQ(UCS_OK, query(w, mem->address, &info));
            EXPECT_EQ((flag == UCT_MEM_ALLOC_DEVICE) ? UCS_MEMORY_TYPE_CUDA :
                                                       UCS_MEMORY_TYPE_CUDA_MANAGED, info.type);
            const void *address = mem->address;
            cuda.set_current(nullptr);
            w.tl->md.release(mem);
            ASSERT_EQ(UCS_OK, query(w, address, &info));
            EXPECT_EQ(UCS_MEMORY_TYPE_HOST, info.type);
            cuda.use_primary();
        }
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, w.tl->md.alloc(w.md, nullptr, 64, 0, &mem));
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  w.tl->md.alloc(w.md, nullptr, 0, UCT_MEM_ALLOC_DEVICE, &mem));
        log_levels quiet("fatal");
        EXPECT_TRUE(UCS_STATUS_IS_ERR(
            w.tl->md.alloc(w.md, nullptr, size_t(1) << 60, UCT_MEM_ALLOC_DEVICE, &mem)));
    });
}

/* What the driver does not tell the number of could not be told from others' later, and is given
 * back at once; what it does not tell once when it is to be given back, is given back. */
TEST_F(fake_cuda, allocation_while_questions_fail)
{
    in_process([]() {
        cuda_program cuda;
        worker w(copy_tl());
        size_t before, after, total;

        cuda.init();
        cuda.use_primary();
        ASSERT_EQ(0, cuda.call("cuMemGetInfo_v2", &before, &total));
        for (unsigned flag : {UCT_MEM_ALLOC_DEVICE, UCT_MEM_ALLOC_MANAGED, UCT_MEM_ALLOC_PINNED}) {
            uct_mem_t *mem;
            cuda.fail("cuPointerGetAttributes", 1, 999);
            const ucs_status_t status = w.tl->md.alloc(w.md, nullptr, 5000, flag, &mem);
            EXPECT_EQ(UCS_ERR_IO_ERROR, status) << flag;
            cuda.fail(nullptr, 0, 0);
            if (status == UCS_OK) {
                w.tl->md.release(mem);
            }
            ASSERT_EQ(UCS_OK, w.tl->md.alloc(w.md, nullptr, 5000, flag, &mem)) << flag;
            cuda.fail("cuPointerGetAttributes", 1, 999);
            w.tl->md.release(mem);
            cuda.fail(nullptr, 0, 0);
        }
        ASSERT_EQ(0, cuda.call("cuMemGetInfo_v2", &after, &total));
        EXPECT_EQ(before, after);
        EXPECT_EQ(cuda.calls("cuMemHostRegister"), cuda.calls("cuMemHostUnregister"));
        EXPECT_EQ(0u, cuda.misuses());
    });
}

/* Closing with copies under way waits for them. */
TEST(cuda_copy, closing_waits)
{
    in_process([]() {
        cuda_program cuda;
        const bytes data = pattern(17, 3000000);
        std::deque<completion> comps(8);

        cuda.init();
        cuda.use_primary();
        const auto device = cuda.make(kind::DEVICE, data.size());
        const auto pinned = cuda.make(kind::PINNED, data.size());
        memcpy(pinned.address, data.data(), data.size());
        {
            worker w(copy_tl());
            for (size_t i = 0; i < comps.size(); ++i) {
                EXPECT_EQ(UCS_INPROGRESS,
                          w.tl->iface.copy(w.iface, device.address,
                                           (i % 2) ? data.data() : pinned.address, data.size(), 0,
                                           &comps[i].base));
            }
        }
        for (const completion &c : comps) {
            EXPECT_EQ(1, c.calls);
            EXPECT_EQ(UCS_OK, c.base.status);
        }
        EXPECT_EQ(data, cuda.read(device.address, data.size()));
        EXPECT_EQ(0u, cuda.misuses());
    });
}

/* Time passes by a second each time that somebody looks. */
uint64_t a_clock_that_runs()
{
    static uint64_t now;

    return now += 1000000000;
}

/* A copy that is waited for and does not end is given up, those behind it at once, until it has
 * ended; closing does not wait for it, and says so. */
TEST(cuda_copy, one_that_does_not_end)
{
    if (cuda_program::is_real()) {
        GTEST_SKIP() << "this needs the driver of the tests";
    }
    in_process([]() {
        log_levels quiet("fatal");
        ucs_sys_ops_t ops = ucs_sys_real;
        cuda_program cuda;
        const bytes data = pattern(18, 300000);
        bytes back(data.size());

        ops.clock_ns = a_clock_that_runs;
        ucs_sys_set(&ops);
        cuda.init();
        cuda.use_primary();
        const auto device = cuda.make(kind::DEVICE, data.size());
        const auto pinned = cuda.make(kind::PINNED, data.size());
        memcpy(pinned.address, data.data(), data.size());
        for (bool is_last : {false, true}) {
            worker w(copy_tl());
            w.is_stuck = is_last;
            for (const void *src : {static_cast<const void *>(pinned.address),
                                    static_cast<const void *>(data.data())}) {
                cuda.set("stuck", 2);
                EXPECT_EQ(UCS_ERR_TIMED_OUT, copy(w, device.address, src, data.size(), true));
                const uint64_t posted = cuda.calls("cuMemcpyAsync");
                for (unsigned i = 0; i < 3; ++i) {
                    cuda.fail("cuStreamQuery", i, 999); /* which does not say that it has */
                    EXPECT_EQ(UCS_ERR_IO_ERROR,
                              copy(w, back.data(), device.address, data.size(), true));
                }
                EXPECT_EQ(posted, cuda.calls("cuMemcpyAsync"));
                cuda.fail("cuStreamQuery", is_last, 999);
                if (is_last) {
                    break; /* it is closed like this */
                }
                cuda.set("stuck", 0);
                ucs_status_t status;
                do {
                    status = copy(w, back.data(), device.address, data.size(), true);
                } while (status == UCS_ERR_IO_ERROR);
                EXPECT_EQ(UCS_OK, status);
                EXPECT_EQ(data, back);
                std::fill(back.begin(), back.end(), 0);
            }
        }
        cuda.set("stuck", 0);
        ucs_sys_set(&ucs_sys_real);
        EXPECT_EQ(0u, cuda.misuses());
    });
}

TEST(cuda_copy, memory_of_the_host)
{
    in_process([]() {
        cuda_program cuda;
        worker a(copy_tl());

        cuda.init();
        bytes data(64), back(64);
        EXPECT_TRUE(UCS_STATUS_IS_ERR(copy(a, back.data(), data.data(), 64, true)))
            << "memory of the host is no business of a device";
    });
}

} // namespace
