/* Halyard: cuda_ipc: copies between device memory of two processes, and what can go wrong.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "cuda_pair.h"
#include "sys_meter.h"

#include <seed.h>
#include <ucs/debug/fault.h>
#include <ucs/sys/sys.h>
#include <uct/base/descriptor.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <future>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>

using namespace uct_test;
using kind = cuda_program::kind;

namespace {

constexpr uint64_t AGAIN_S      = 11; /* after which it tries again what was refused */
constexpr uint64_t TIME_LIMIT_S = 3; /* more than the library gives a proof or an answer */

class fake_cuda_ipc : public testing::Test {
protected:
    void SetUp() override
    {
        if (cuda_program::is_real()) {
            GTEST_SKIP() << "this needs the driver of the tests";
        }
    }
};

constexpr size_t SIZE = 600000;

/* Gets a part of new remote memory of SIZE bytes, and puts it to the beginning of that. */
void move_a_part(ipc_user &u, void *local)
{
    bytes model = pattern(SIZE, SIZE);

    ASSERT_EQ(UCS_OK, u.get(local, 1000, 300000));
    EXPECT_EQ(bytes(model.begin() + 1000, model.begin() + 301000), u.cuda.read(local, 300000));
    ASSERT_EQ(UCS_OK, u.put(local, 0, 300000));
    std::copy(model.begin() + 1000, model.begin() + 301000, model.begin());
    EXPECT_EQ(model, u.read_remote());
}

TEST(cuda_ipc, gets_and_puts_of_every_kind)
{
    in_process([]() {
        ipc_user u;
        bytes model = pattern(SIZE, SIZE);

        u.allocate(SIZE);
        for (kind what : CUDA_KINDS) {
            const auto m   = u.cuda.make(what, SIZE);
            uint8_t *local = static_cast<uint8_t *>(m.address);
            for (size_t length : {1ul, 8ul, 4096ul, 200001ul}) {
                const size_t offset = 77 + length;
                u.cuda.write(local, bytes(length + 8, 0xaa));
                ASSERT_EQ(UCS_OK, u.get(local, offset, length));
                bytes expected(model.begin() + offset, model.begin() + offset + length);
                expected.insert(expected.end(), 8, 0xaa);
                EXPECT_EQ(expected, u.cuda.read(local, length + 8));

                const bytes data = pattern(length, length);
                u.cuda.write(local + 3, data);
                ASSERT_EQ(UCS_OK, u.put(local + 3, offset, length));
                std::copy(data.begin(), data.end(), model.begin() + offset);
                EXPECT_EQ(model, u.read_remote());
            }
            u.cuda.free(m);
        }
        EXPECT_EQ(0u, u.cuda.misuses());
        if (!cuda_program::is_real()) {
            EXPECT_EQ(1u, u.cuda.depth());
            EXPECT_EQ(2u, u.cuda.calls("cuIpcOpenMemHandle")) << "mapped once, and the probe";
            EXPECT_EQ(0u, u.cuda.calls("cuStreamSynchronize"));
        }
        uint8_t byte = 0;
        for (size_t wrong : {SIZE, SIZE + 4096, SIZE_MAX}) {
            EXPECT_EQ(UCS_ERR_OUT_OF_RANGE, u.get(&byte, wrong, 1)) << wrong;
        }
        EXPECT_EQ(UCS_OK, u.get(&byte, 0, 0));
    });
}

/* Memory that the owner has mapped by itself. */
TEST(cuda_ipc, pieces)
{
    in_process([]() {
        ipc_user u;
        const auto local = u.cuda.make(kind::DEVICE, SIZE);

        for (unsigned round = 0; round < 3; ++round) {
            u.allocate(SIZE, 'p');
            ASSERT_NO_FATAL_FAILURE(move_a_part(u, local.address));
            if (!cuda_program::is_real()) {
                EXPECT_EQ(round + 2, u.cuda.calls("cuMemMap")) << "the probe once";
            }
            EXPECT_EQ(1, u.w->tl->md.rkey_is_on(u.rkey, 0));
            u.free_remote();
        }
        u.forget();
        u.w.reset();
        if (!cuda_program::is_real()) {
            EXPECT_EQ(4u, u.cuda.calls("cuMemUnmap"));
            EXPECT_EQ(u.cuda.calls("cuMemAddressReserve"), u.cuda.calls("cuMemAddressFree"));
        }
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* Pools that are made to be exported: one import for all that comes from a pool. */
TEST(cuda_ipc, pools)
{
    in_process([]() {
        ipc_user u;
        const auto local = u.cuda.make(kind::DEVICE, SIZE);

        for (unsigned round = 0; round < 6; ++round) {
            u.allocate(SIZE, 's');
            ASSERT_NO_FATAL_FAILURE(move_a_part(u, local.address));
            EXPECT_EQ(1, u.w->tl->md.rkey_is_on(u.rkey, 0));
            if (!cuda_program::is_real()) { /* those of the first rounds stay allocated */
                EXPECT_EQ(round + 1, u.cuda.calls("cuMemPoolImportPointer"));
                EXPECT_EQ((round < 3) ? 1 : round - 1,
                          u.cuda.calls("cuMemPoolImportFromShareableHandle"));
            }
            if (round >= 2) {
                u.free_remote();
                u.forget_pool();
            }
        }
        u.forget();
        u.w.reset();
        if (!cuda_program::is_real()) {
            EXPECT_EQ(6u, u.cuda.calls("cuMemFree"));
            EXPECT_EQ(4u, u.cuda.calls("cuMemPoolDestroy"));
        }
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* While something of a pool is mapped its descriptor is not needed again, not even for what comes
 * in the place of that. */
TEST_F(fake_cuda_ipc, a_descriptor_for_each_pool)
{
    in_process([]() {
        log_levels quiet("fatal");
        ipc_user u;
        const auto local = u.cuda.make(kind::DEVICE, 1000);

        u.allocate(500, 's'); /* stays allocated, so that the pool is known again */
        for (unsigned round = 0; round < 5; ++round) {
            u.allocate(1000, 's');
            ASSERT_EQ(UCS_OK, u.get(local.address, 0, 1000)) << round;
            EXPECT_EQ(pattern(1000, 1000), u.cuda.read(local.address, 1000));
            ASSERT_EQ(UCS_OK, ucs_fault_set("pidfd_getfd", "1+")); /* after the first */
            u.free_remote();
        }
        u.allocate(1000, 's');
        u.cuda.fail("cuMemPoolImportPointer", 1, 2);
        EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(local.address, 0, 1000));
        u.forget_pool();
        u.allocate(1000, 's');
        EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(local.address, 0, 1000)) << "another pool";
        ucs_fault_clear(nullptr);
        EXPECT_EQ(1u, u.cuda.calls("cuMemPoolImportFromShareableHandle"));
        u.forget();
        u.w.reset();
        EXPECT_EQ(1u, u.cuda.calls("cuMemPoolDestroy"));
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* Another device reaches it too: it was given access. */
TEST_F(fake_cuda_ipc, pools_from_another_device)
{
    in_process([]() {
        ipc_user u;

        u.cuda.use_primary(1);
        const auto local = u.cuda.make(kind::DEVICE, 1000);
        u.allocate(1000, 's');
        ASSERT_EQ(UCS_OK, u.get(local.address, 0, 1000));
        EXPECT_EQ(pattern(1000, 1000), u.cuda.read(local.address, 1000));
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* The number of a descriptor may be another one's by now: only the proof counts. Each system call
 * on the way fails too. */
TEST_F(fake_cuda_ipc, pieces_whose_descriptor_is_not_to_be_had)
{
    in_process([]() {
        log_levels quiet("fatal");
        ipc_user u;
        bytes data(100);

        for (const char *call : {"pidfd_open", "pidfd_getfd", "process_vm_readv"}) {
            u.allocate(100, 'p');
            ASSERT_EQ(UCS_OK, ucs_fault_set(call, "1+"));
            EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(data.data(), 0, 100)) << call;
            ucs_fault_clear(nullptr);
        }
        for (char order : {'p', 's'}) {
            u.allocate(100, order);
            uct_rkey_t *good = u.rkey;
            for (size_t offset : {56, 80, 96, 104}) { /* ids, places of the proofs */
                bytes packed = u.packed;
                packed[offset] ^= 8;
                ASSERT_EQ(UCS_OK,
                          u.w->tl->md.rkey_unpack(u.w->md, packed.data(), packed.size(), &u.rkey));
                EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(data.data(), 0, 100)) << offset;
                u.forget();
            }
            u.rkey = good;
            ASSERT_EQ(UCS_OK, u.get(data.data(), 0, 100));
            EXPECT_EQ(pattern(100, 100), data);
        }
        const auto local   = u.cuda.make(kind::DEVICE, 1000);
        const auto files   = sys_meter::descriptors();
        const auto regions = sys_meter::shared_mappings();
        for (unsigned k = 1; k < 80; ++k) {
            u.allocate(1000, (k % 2) ? 'p' : 's');
            u.cuda.fail(nullptr, k / 2, 2);
            (void)u.get(local.address, 0, 1000);
            u.cuda.fail(nullptr, 0, 0);
            EXPECT_EQ(1u, u.cuda.depth());
        }
        u.w->is_stuck = -1; /* copies were lost sight of */
        u.forget();
        u.w.reset();
        EXPECT_LE(sys_meter::descriptors().size(), files.size());
        EXPECT_LE(sys_meter::shared_mappings().size(), regions.size());
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* A range that takes several pieces is one to its user; each piece alone is so too. */
TEST(cuda_ipc, several_pieces)
{
    in_process([]() {
        constexpr size_t LONG = 5ul << 20; /* three pieces, of 2 MiB each */
        ipc_user u;
        const auto local = u.cuda.make(kind::DEVICE, LONG);
        const auto files = sys_meter::descriptors();
        bytes model      = pattern(LONG, LONG);

        for (const char *call : {"", "pidfd_getfd"}) {
            if (*call != '\0') {
                u.open_door();
                ASSERT_EQ(UCS_OK, ucs_fault_set(call, "1+"));
            }
            u.allocate(LONG, 'p');
            ASSERT_EQ(UCS_OK, u.get(local.address, 7, LONG - 9));
            EXPECT_EQ(bytes(model.begin() + 7, model.end() - 2),
                      u.cuda.read(local.address, LONG - 9));
            ASSERT_EQ(UCS_OK, u.put(local.address, 0, LONG - 9));
            bytes expected = model;
            std::copy(model.begin() + 7, model.end() - 2, expected.begin());
            EXPECT_EQ(expected, u.read_remote());
            ucs_fault_clear(nullptr);
        }
        if (!cuda_program::is_real()) {
            EXPECT_EQ(7u, u.cuda.calls("cuMemMap")) << "the probe once, though asked for elsewhere";
            EXPECT_EQ(3u, u.cuda.calls("cuMemAddressReserve"));
        }

        uct_rkey_t *whole = u.rkey;
        u.rkey            = nullptr;
        for (unsigned i = 0; i < 3; ++i) { /* what is mapped stays */
            u.key_again(i * (2ul << 20) + 100, 1000);
            ASSERT_EQ(UCS_OK, u.get(local.address, i * (2ul << 20) + 100, 1000));
            std::swap(u.rkey, whole);
            ASSERT_EQ(UCS_OK, u.get(local.address, 0, LONG));
            std::swap(u.rkey, whole);
        }
        if (!cuda_program::is_real()) {
            EXPECT_EQ(10u, u.cuda.calls("cuMemMap"));
        }
        u.w->tl->md.rkey_release(whole);
        u.forget();
        u.w.reset();
        EXPECT_LE(sys_meter::descriptors().size(), files.size());
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* Other pieces come in the place of those that were mapped: never an old byte, and what was mapped
 * of the old ones goes. */
TEST(cuda_ipc, pieces_that_are_mapped_anew)
{
    in_process([]() {
        ipc_user u;

        for (size_t length : {1ul << 20, 5ul << 20}) {
            const auto local = u.cuda.make(kind::DEVICE, length);
            u.allocate(length, 'p');
            ASSERT_EQ(UCS_OK, u.get(local.address, 0, length));
            const uint64_t before = cuda_program::is_real() ? 0 : u.cuda.calls("cuMemUnmap");
            for (unsigned seed = 1; seed < 5; ++seed) {
                u.map_anew(seed);
                ASSERT_EQ(UCS_OK, u.get(local.address, 0, length));
                EXPECT_EQ(pattern(seed, length), u.cuda.read(local.address, length));
                if (!cuda_program::is_real()) {
                    EXPECT_EQ(before + seed, u.cuda.calls("cuMemUnmap"));
                }
            }
        }
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* Each call of the driver on the way fails: nothing is left, and the next range works. */
TEST_F(fake_cuda_ipc, several_pieces_that_are_refused)
{
    in_process([]() {
        log_levels quiet("fatal");
        constexpr size_t LONG = 3ul << 20;
        ipc_user u;
        bytes data(100);
        const auto local = u.cuda.make(kind::DEVICE, 100);

        u.allocate(LONG, 'p');
        ASSERT_EQ(UCS_OK, u.get(local.address, (2ul << 20) - 50, 100));
        const auto regions = sys_meter::shared_mappings();
        for (const char *call : {"cuMemAddressReserve", "cuMemImportFromShareableHandle",
                                 "cuMemMap", "cuMemSetAccess"}) {
            for (unsigned k = 1; k < 3; ++k) {
                u.free_remote();
                u.allocate(LONG, 'p');
                u.cuda.fail(call, k, 2);
                EXPECT_EQ((k == 1) || (strcmp(call, "cuMemMap") == 0) ||
                          (strcmp(call, "cuMemImportFromShareableHandle") == 0),
                          u.get(local.address, (2ul << 20) - 50, 100) == UCS_ERR_UNREACHABLE)
                    << call << " " << k;
                u.cuda.fail(nullptr, 0, 0);
            }
        }
        u.allocate(LONG, 'p');
        ASSERT_EQ(UCS_OK, u.get(local.address, (2ul << 20) - 50, 100));
        const bytes model = pattern(LONG, LONG);
        EXPECT_EQ(bytes(model.begin() + (2ul << 20) - 50, model.begin() + (2ul << 20) + 50),
                  u.cuda.read(local.address, 100));
        u.forget();
        u.w.reset();
        EXPECT_LT(sys_meter::shared_mappings().size(), regions.size());
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* Where this process may not look into the owner, that one answers, from its progress. */
TEST(cuda_ipc, descriptors_that_are_asked_for)
{
    in_process([]() {
        ipc_user u;
        const auto local = u.cuda.make(kind::DEVICE, SIZE);

        u.open_door();
        const auto files = sys_meter::descriptors();
        for (char order : {'p', 's'}) {
            for (const char *call : {"pidfd_open", "pidfd_getfd", "process_vm_readv"}) {
                u.allocate(SIZE, order);
                ASSERT_EQ(UCS_OK, ucs_fault_set(call, "1+"));
                ASSERT_EQ(UCS_OK, u.get(local.address, 0, SIZE)) << call << " " << order;
                ucs_fault_clear(nullptr);
                EXPECT_EQ(pattern(SIZE, SIZE), u.cuda.read(local.address, SIZE));
            }
        }
        log_levels quiet("fatal");
        for (char order : {'a', 'p', 's'}) { /* as if of another namespace of processes */
            u.allocate(100, order);
            bytes packed     = u.packed;
            uct_rkey_t *good = u.rkey;
            packed[8] ^= 1;
            ASSERT_EQ(UCS_OK,
                      u.w->tl->md.rkey_unpack(u.w->md, packed.data(), packed.size(), &u.rkey));
            EXPECT_EQ((order == 'a') ? UCS_ERR_UNREACHABLE : UCS_OK,
                      u.get(local.address, 0, 100));
            u.forget();
            u.rkey = good;
        }
        for (const char *call : {"socket", "connect", "getsockopt", "sendmsg"}) {
            u.allocate(100, 'p');
            ASSERT_EQ(UCS_OK, ucs_fault_set("pidfd_getfd", "1+"));
            ASSERT_EQ(UCS_OK, ucs_fault_set(call, "1"));
            EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(local.address, 0, 100)) << call;
            ucs_fault_clear(nullptr);
            EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(local.address, 0, 100)) << call;
            let_pass(AGAIN_S);
            EXPECT_EQ(UCS_OK, u.get(local.address, 0, 100)) << call;
        }
        u.forget_pool(); /* that one is open here */
        u.allocate(100, 's');
        u.kill_owner();
        ASSERT_EQ(UCS_OK, ucs_fault_set("pidfd_getfd", "1+"));
        EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(local.address, 0, 100));
        ucs_fault_clear(nullptr);
        u.forget();
        u.w.reset();
        EXPECT_LE(sys_meter::descriptors().size(), files.size());
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* An owner that is stopped holds up nobody, and is not waited for without end. */
TEST(cuda_ipc, descriptors_of_an_owner_that_is_stopped)
{
    in_process([]() {
        log_levels quiet("fatal");
        ipc_user u;
        const auto local = u.cuda.make(kind::DEVICE, 1000);
        completion comp;

        u.open_door();
        for (bool is_final : {false, true}) {
            u.allocate(1000, 'p');
            u.signal_owner(SIGSTOP);
            ASSERT_EQ(UCS_OK, ucs_fault_set("pidfd_getfd", "1+"));
            for (unsigned i = 0; i < 100; ++i) {
                ASSERT_EQ(UCS_ERR_NO_RESOURCE, u.try_get(local, comp));
            }
            if (is_final) {
                let_pass(TIME_LIMIT_S);
                EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(local.address, 0, 1000));
            }
            u.signal_owner(SIGCONT);
            ucs_status_t status = u.get(local.address, 0, 1000);
            while (is_final && (status != UCS_OK)) {
                usleep(5000); /* its answer, though late, serves */
                status = u.get(local.address, 0, 1000);
            }
            EXPECT_EQ(UCS_OK, status);
            EXPECT_EQ(pattern(1000, 1000), u.cuda.read(local.address, 1000));
            ucs_fault_clear(nullptr);
        }
        EXPECT_EQ(0, comp.calls);
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* More questions at a time than mappings may be kept. */
TEST(cuda_ipc, questions_do_not_put_each_other_out)
{
    in_process([]() {
        ASSERT_EQ(0, setenv("UCX_CUDA_IPC_MAX_MAPPINGS", "1", 1));
        constexpr unsigned COUNT = 3;
        ipc_user u;
        uct_rkey_t *keys[COUNT];
        uint64_t addresses[COUNT];
        completion ends[COUNT];
        unsigned started = 0;
        bool is_started[COUNT] = {};
        const auto local = u.cuda.make(kind::DEVICE, COUNT * 1000);

        u.open_door();
        for (unsigned i = 0; i < COUNT; ++i) {
            u.allocate(1000, 'p');
            keys[i]      = u.rkey;
            addresses[i] = u.remote;
            u.rkey       = nullptr;
        }
        ASSERT_EQ(UCS_OK, ucs_fault_set("pidfd_getfd", "1+"));
        while (started < COUNT) {
            for (unsigned i = 0; i < COUNT; ++i) {
                uct_iov_t iov = {static_cast<char *>(local.address) + (i * 1000), 1000, nullptr};
                if (!is_started[i] && (u.ep->ops->get_zcopy(u.ep, &iov, 1, addresses[i], keys[i],
                                                            &ends[i].base) == UCS_INPROGRESS)) {
                    is_started[i] = true;
                    ++started;
                }
            }
            u.w->progress();
            usleep(1000);
        }
        ucs_fault_clear(nullptr);
        for (unsigned i = 0; i < COUNT; ++i) {
            while (is_started[i] && (ends[i].calls == 0)) {
                u.w->progress();
            }
            u.w->tl->md.rkey_release(keys[i]);
        }
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* A worker that makes no progress does not answer; another one of the same process does, once a key
 * names it. */
TEST(cuda_ipc, descriptors_that_another_worker_has_to_be_asked_for)
{
    in_process([]() {
        log_levels quiet("fatal");
        ipc_user u;
        const auto local = u.cuda.make(kind::DEVICE, 1000);
        completion comp;

        u.link().put_number('i');
        u.allocate(1000, 'p');
        ASSERT_EQ(UCS_OK, ucs_fault_set("pidfd_getfd", "1+"));
        EXPECT_EQ(UCS_ERR_NO_RESOURCE, u.try_get(local, comp));
        let_pass(TIME_LIMIT_S);
        EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(local.address, 0, 1000));
        EXPECT_EQ(0, comp.calls);
        u.open_door();
        EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(local.address, 0, 1000));
        u.key_again(0, 1000);
        EXPECT_EQ(UCS_OK, u.get(local.address, 0, 1000));
        EXPECT_EQ(pattern(1000, 1000), u.cuda.read(local.address, 1000));
        ucs_fault_clear(nullptr);
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* A door that is closed refuses, without a call the second time; a key that names another one is
 * asked for there, of the memory and of that on which the way is proved. */
TEST(cuda_ipc, descriptors_of_a_worker_that_has_gone)
{
    for (char order : {'p', 's'}) {
        SCOPED_TRACE(order);
        in_process([order]() {
            log_levels quiet("fatal");
            ipc_user u;
            const auto local = u.cuda.make(kind::DEVICE, 1000);

            u.link().put_number('i');
            u.allocate(1000, order);
            u.link().put_number('c');
            EXPECT_EQ(1u, u.link().get_number());
            ASSERT_EQ(UCS_OK, ucs_fault_set("pidfd_getfd", "1+"));
            EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(local.address, 0, 1000));
            {
                sys_meter meter;
                EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(local.address, 0, 1000));
                EXPECT_EQ(0u, meter.system_calls());
            }
            u.open_door();
            u.key_again(0, 1000);
            EXPECT_EQ(UCS_OK, u.get(local.address, 0, 1000));
            EXPECT_EQ(pattern(1000, 1000), u.cuda.read(local.address, 1000));
            ucs_fault_clear(nullptr);
            EXPECT_EQ(0u, u.cuda.misuses());
        });
    }
}

TEST(cuda_ipc, entries_of_different_kinds)
{
    in_process([]() {
        ipc_user u;
        const auto device = u.cuda.make(kind::DEVICE, 1000);
        const auto pinned = u.cuda.make(kind::PINNED, 1000);
        bytes pageable(1000), model = pattern(SIZE, SIZE);
        completion comp;

        u.allocate(SIZE);
        uct_iov_t iov[] = {{pinned.address, 500, nullptr},
                           {nullptr, 0, nullptr},
                           {pageable.data(), 1000, nullptr},
                           {device.address, 700, nullptr}};
        ASSERT_EQ(UCS_OK, finish({u.w.get()}, [&](uct_completion_t *c) {
            return u.ep->ops->get_zcopy(u.ep, iov, 4, u.remote + 9, u.rkey, c);
        }));
        EXPECT_EQ(0, memcmp(pinned.address, model.data() + 9, 500));
        EXPECT_EQ(0, memcmp(pageable.data(), model.data() + 509, 1000));
        EXPECT_EQ(bytes(model.begin() + 1509, model.begin() + 2209),
                  u.cuda.read(device.address, 700));
        std::vector<uct_iov_t> many(17, {pageable.data(), 1, nullptr});
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, u.ep->ops->get_zcopy(u.ep, many.data(), 17, u.remote,
                                                              u.rkey, &comp.base));
        EXPECT_EQ(0, comp.calls);
    });
}

/* The owner frees and allocates, mostly at the same address: never an old byte. */
TEST(cuda_ipc, memory_that_is_freed_and_allocated_again)
{
    in_process([]() {
        ipc_user u;
        seeded_random rnd(47);
        const auto local = u.cuda.make(kind::DEVICE, 10000);

        for (unsigned round = 0; round < 50; ++round) {
            const size_t length = 5000 + rnd.below(5000);
            u.allocate(length);
            u.cuda.write(local.address, bytes(length, 0xbb));
            ASSERT_EQ(UCS_OK, u.get(local.address, 0, length));
            ASSERT_EQ(pattern(length, length), u.cuda.read(local.address, length)) << round;
            u.free_remote();
        }
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* What was mapped of pieces and pools outlives the context it was mapped in: it is unmapped when
 * something new is mapped, or at the end. */
static void let_contexts_of_mappings_go(char order)
{
    ipc_user u;
    const bool is_fake   = !cuda_program::is_real();
    const uint64_t freed = is_fake ? u.cuda.calls("cuMemFree") : 0;

    u.allocate(1000, order);
    for (unsigned round = 0; round < 10; ++round) {
        const uct_cu_ctx_t ctx = u.cuda.create_context();
        const auto local       = u.cuda.make(kind::DEVICE, 1000);
        ASSERT_EQ(UCS_OK, u.get(local.address, 0, 1000));
        EXPECT_EQ(pattern(1000, 1000), u.cuda.read(local.address, 1000));
        if (is_fake && (order == 'p')) {
            EXPECT_EQ(u.cuda.calls("cuMemMap"), u.cuda.calls("cuMemUnmap") + 2);
        } else if (is_fake && (order == 's')) {
            EXPECT_EQ(u.cuda.calls("cuMemPoolImportPointer"),
                      u.cuda.calls("cuMemFree") - freed + 1);
        }
        u.cuda.destroy_context(ctx);
    }
    u.forget();
    u.w.reset();
    EXPECT_EQ(0u, u.cuda.misuses());
    if (is_fake) {
        EXPECT_EQ(u.cuda.calls("cuMemMap"), u.cuda.calls("cuMemUnmap"));
        EXPECT_EQ(u.cuda.calls("cuMemAddressReserve"), u.cuda.calls("cuMemAddressFree"));
        EXPECT_EQ(u.cuda.calls("cuMemPoolImportPointer"), u.cuda.calls("cuMemFree") - freed);
        EXPECT_EQ(u.cuda.calls("cuMemPoolImportFromShareableHandle"),
                  u.cuda.calls("cuMemPoolDestroy"));
    }
}

TEST(cuda_ipc, mappings_whose_context_goes)
{
    for (char order : {'a', 'p', 's'}) { /* a process that has used CUDA may not fork an owner */
        in_process([=]() { let_contexts_of_mappings_go(order); });
    }
}

/* So it is where the program has left that context current, and where another thread has destroyed
 * it. A real driver (580) still tells the device of such a context, and then refuses to map
 * anything in it: UCS_ERR_UNREACHABLE in that thread, which itself can do nothing by CUDA there. */
static void let_the_current_context_go(char order)
{
    const bool is_real = cuda_program::is_real();
    ipc_user u;
    bytes data(1000);

    u.allocate(1000, order);
    const uct_cu_ctx_t ctx = u.cuda.create_context();
    const auto local       = u.cuda.make(kind::DEVICE, 1000);
    ASSERT_EQ(UCS_OK, u.get(local.address, 0, 1000));
    std::thread([&]() { u.cuda.destroy_context(ctx); }).join();
    ASSERT_EQ(is_real ? UCS_ERR_UNREACHABLE : UCS_OK, u.get(data.data(), 0, 1000))
        << "the primary one is there";
    if (!is_real) {
        EXPECT_EQ(pattern(1000, 1000), data);
    }
    u.forget();
    u.w.reset();
    EXPECT_EQ(0u, u.cuda.misuses());
    if (!is_real) {
        EXPECT_EQ(u.cuda.calls("cuMemMap"), u.cuda.calls("cuMemUnmap"));
        EXPECT_EQ(u.cuda.calls("cuMemPoolImportFromShareableHandle"),
                  u.cuda.calls("cuMemPoolDestroy"));
    }
}

TEST(cuda_ipc, mappings_whose_context_is_current_and_goes)
{
    for (char order : {'a', 'p', 's'}) {
        in_process([=]() { let_the_current_context_go(order); });
    }
}

/* They are unmapped where no context is left, while another thread captures in one of its own. */
TEST_F(fake_cuda_ipc, mappings_outlive_all_contexts)
{
    for (char order : {'p', 's'}) {
        in_process([=]() {
            ipc_user u;

            u.allocate(1000, order);
            const auto local = u.cuda.make(kind::DEVICE, 1000);
            ASSERT_EQ(UCS_OK, u.get(local.address, 0, 1000));
            EXPECT_EQ(0, u.cuda.call("cuDevicePrimaryCtxRelease_v2", 0));
            u.cuda.set_current(nullptr);
            u.cuda.set("capture", 1);
            u.forget();
            u.w.reset();
            EXPECT_EQ(0u, u.cuda.misuses());
            EXPECT_EQ(u.cuda.calls("cuMemMap"), u.cuda.calls("cuMemUnmap"));
        });
    }
}

/* Nothing tells the primary context from the one before, with an older driver, but what was made
 * in it. */
TEST_F(fake_cuda_ipc, a_device_is_reset_and_contexts_have_no_numbers)
{
    for (char order : {'a', 'p', 's'}) {
        in_process([=]() {
            log_levels quiet("fatal");
            ipc_user u;

            u.cuda.set("version", 11000);
            u.allocate(1000, order);
            for (unsigned round = 0; round < 3; ++round) {
                const auto local = u.cuda.make(kind::DEVICE, 1000);
                ASSERT_EQ(UCS_OK, u.get(local.address, 0, 1000)) << round;
                EXPECT_EQ(pattern(1000, 1000), u.cuda.read(local.address, 1000));
                EXPECT_EQ(0, u.cuda.call("cuDevicePrimaryCtxRelease_v2", 0));
                u.cuda.use_primary();
            }
            u.forget();
            u.w.reset();
            EXPECT_EQ(0u, u.cuda.misuses());
        });
    }
}

TEST_F(fake_cuda_ipc, mappings_are_bounded)
{
    in_process([]() {
        ASSERT_EQ(0, setenv("UCX_CUDA_IPC_MAX_MAPPINGS", "3", 1));
        ipc_user u;
        const auto local = u.cuda.make(kind::DEVICE, 100);

        for (unsigned round = 0; round < 20; ++round) { /* none is freed */
            u.allocate(100);
            ASSERT_EQ(UCS_OK, u.get(local.address, 0, 100));
            EXPECT_EQ(round + 2, u.cuda.calls("cuIpcOpenMemHandle"));
            EXPECT_EQ((round < 2) ? 0 : round - 1, u.cuda.calls("cuIpcCloseMemHandle"));
        }
        u.forget();
        u.w.reset();
        EXPECT_EQ(21u, u.cuda.calls("cuIpcCloseMemHandle")) << "none is left";
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* While a context is marked for its first mapping, which the driver may take long for, others use
 * the memory domain: another thread maps the same memory. */
TEST_F(fake_cuda_ipc, a_context_is_marked_while_others_go_on)
{
    static std::function<void()> when_marked;

    in_process([]() {
        ipc_user u;
        ucs_sys_ops_t ops           = ucs_sys_real;
        const auto local            = u.cuda.make(kind::DEVICE, 2000);
        uct_iface_params_t params   = {};
        uct_iface_t *iface          = nullptr;
        uct_ep_t *ep                = nullptr;
        const uint32_t address      = 0;
        const uint8_t uid[UCT_UID_LEN] = {};
        unsigned marks              = 0;
        bool has_ended              = false;
        completion comp;
        std::future<void> result;

        const auto get_by_other = [&]() {
            uct_iov_t iov = {static_cast<char *>(local.address) + 1000, 1000, nullptr};
            while (ep->ops->get_zcopy(ep, &iov, 1, u.remote, u.rkey, &comp.base) ==
                   UCS_ERR_NO_RESOURCE) {
            }
        };
        params.ep_failed = [](void *, uct_ep_t *, ucs_status_t) {};
        ASSERT_EQ(UCS_OK, uct_iface_open(u.w->md, &params, &iface));
        ASSERT_EQ(UCS_OK, uct_ep_open(iface, uid, &address, sizeof(address), nullptr, &ep));
        ASSERT_EQ(UCS_OK, uct_ep_connect(ep));
        u.allocate(1000);
        when_marked = [&]() {
            if (++marks == 2) { /* the first is the queue's */
                result    = std::async(std::launch::async, get_by_other);
                has_ended = result.wait_for(std::chrono::seconds(5)) == std::future_status::ready;
            }
        };
        ops.mmap = [](void *at, size_t length, int access, int flags, int fd, off_t offset) {
            if (length == 4096) {
                when_marked();
            }
            return ucs_sys_real.mmap(at, length, access, flags, fd, offset);
        };
        ucs_sys_set(&ops);
        EXPECT_EQ(UCS_OK, u.get(local.address, 0, 1000));
        ucs_sys_set(&ucs_sys_real);
        ASSERT_LE(2u, marks);
        EXPECT_TRUE(has_ended);
        result.wait();
        while (comp.calls == 0) {
            (void)uct_iface_progress(iface);
        }
        EXPECT_EQ(UCS_OK, comp.base.status);
        EXPECT_EQ(u.cuda.read(local.address, 1000),
                  u.cuda.read(static_cast<char *>(local.address) + 1000, 1000));
        EXPECT_EQ(2u, u.cuda.calls("cuIpcOpenMemHandle")) << "a probe and the memory";
        uct_ep_close(ep);
        EXPECT_EQ(0, uct_iface_close(iface));
        u.forget();
        u.w.reset();
        EXPECT_EQ(u.cuda.calls("cuMemHostRegister"), u.cuda.calls("cuMemHostUnregister"));
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

TEST_F(fake_cuda_ipc, keys_are_cheap_the_second_time)
{
    in_process([]() {
        cuda_program cuda;
        worker w(ipc_tl());

        cuda.init();
        cuda.use_primary();
        const auto m    = cuda.make(kind::DEVICE, 1000);
        const bytes key = key_of(w, m.address, 1000);
        const uint64_t before = cuda.calls(nullptr);
        EXPECT_EQ(key, key_of(w, m.address, 1000));
        EXPECT_EQ(before + 1, cuda.calls(nullptr)) << "one look at the pointer";
        EXPECT_NE(key, key_of(w, static_cast<char *>(m.address) + 1, 500));
        EXPECT_EQ(2u, cuda.calls("cuIpcGetMemHandle")) << "and one of the probe";
    });
}

/* Memory or files may be wanting for a moment only: it is tried again, but not each time. */
TEST_F(fake_cuda_ipc, an_export_that_fails_is_tried_again)
{
    constexpr int OUT_OF_MEMORY = 2;
    const struct {
        kind what;
        const char *call;
    } exports[] = {{kind::DEVICE, "cuIpcGetMemHandle"},
                   {kind::PIECES, "cuMemExportToShareableHandle"},
                   {kind::SHARED_POOL, "cuMemPoolExportToShareableHandle"}};

    in_process([&]() {
        cuda_program cuda;
        worker w(ipc_tl());
        uct_mem_t *mem;

        cuda.init();
        cuda.use_primary();
        for (const auto &e : exports) {
            const auto m = cuda.make(e.what, 1000);
            cuda.fail(e.call, 1, OUT_OF_MEMORY);
            const uint64_t before = cuda.calls(e.call);
            for (unsigned i = 0; i < 5; ++i) {
                EXPECT_EQ(UCS_ERR_NO_RESOURCE, w.tl->md.reg(w.md, m.address, 1000, nullptr, &mem));
            }
            EXPECT_EQ(before + 1, cuda.calls(e.call));
            let_pass(TIME_LIMIT_S);
            ASSERT_EQ(UCS_OK, w.tl->md.reg(w.md, m.address, 1000, nullptr, &mem)) << e.call;
            w.tl->md.release(mem);
        }
        EXPECT_EQ(0u, cuda.misuses());
    });
}

/* That no call of the driver serves now does not mean that memory can never be exported. What can
 * never be is not tried again. */
TEST_F(fake_cuda_ipc, what_is_refused_for_now_and_for_ever)
{
    in_process([]() {
        log_levels quiet("fatal");
        cuda_program cuda;
        worker w(ipc_tl());
        uct_mem_t *mem;

        cuda.init();
        cuda.use_primary();
        for (kind what : {kind::DEVICE, kind::PIECES, kind::SHARED_POOL}) {
            for (unsigned k = 1; k < 20; ++k) {
                const auto m = cuda.make(what, 3ul << 20); /* two pieces */
                cuda.fail(nullptr, k, 999);
                ucs_status_t status = w.tl->md.reg(w.md, m.address, m.length, nullptr, &mem);
                cuda.fail(nullptr, 0, 0);
                if (status != UCS_OK) {
                    EXPECT_EQ(UCS_ERR_NO_RESOURCE, status) << k;
                    let_pass(TIME_LIMIT_S);
                    status = w.tl->md.reg(w.md, m.address, m.length, nullptr, &mem);
                }
                ASSERT_EQ(UCS_OK, status) << k;
                w.tl->md.release(mem);
                cuda.free(m);
            }
        }
        const auto m          = cuda.make(kind::POOL, 1000);
        const uint64_t before = cuda.calls("cuMemPoolExportToShareableHandle");
        for (unsigned i = 0; i < 3; ++i) {
            EXPECT_EQ(UCS_ERR_UNSUPPORTED, w.tl->md.reg(w.md, m.address, 1000, nullptr, &mem));
            let_pass(TIME_LIMIT_S);
        }
        EXPECT_EQ(before + 1, cuda.calls("cuMemPoolExportToShareableHandle"));
        EXPECT_EQ(0u, cuda.misuses());
    });
}

TEST(cuda_ipc, what_cannot_be_exported)
{
    in_process([]() {
        cuda_program cuda;
        worker w(ipc_tl());
        uct_mem_t *mem;

        EXPECT_EQ(UCS_ERR_UNSUPPORTED, w.tl->md.reg(w.md, &mem, 8, nullptr, &mem)) << "no driver";
        cuda.init();
        cuda.use_primary();
        for (kind what : {kind::MANAGED, kind::POOL, kind::PINNED, kind::PAGEABLE}) {
            const auto m = cuda.make(what, 1000);
            for (unsigned i = 0; i < 2; ++i) {
                EXPECT_EQ(UCS_ERR_UNSUPPORTED, w.tl->md.reg(w.md, m.address, 1000, nullptr, &mem));
            }
        }
        const auto m = cuda.make(kind::DEVICE, 1000);
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, w.tl->md.reg(w.md, m.address, 1001, nullptr, &mem))
            << "too long";
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, w.tl->md.reg(w.md, m.address, 0, nullptr, &mem));
        const auto pieces = cuda.make(kind::PIECES, 65 * (2ul << 20));
        EXPECT_EQ(UCS_ERR_UNSUPPORTED,
                  w.tl->md.reg(w.md, pieces.address, pieces.length, nullptr, &mem));
        ASSERT_EQ(UCS_OK, w.tl->md.reg(w.md, pieces.address, pieces.length - (2ul << 20), nullptr,
                                       &mem));
        w.tl->md.release(mem);
    });
}

/* Descriptors of memory that is gone would keep it. */
TEST(cuda_ipc, exports_of_memory_that_is_gone)
{
    in_process([]() {
        cuda_program cuda;
        worker w(ipc_tl());
        size_t files = 0;

        cuda.init();
        cuda.use_primary();
        for (unsigned i = 0; i < 40; ++i) {
            const auto piece = cuda.make(kind::PIECES, 1000);
            const auto pool  = cuda.make(kind::SHARED_POOL, 1000);
            (void)key_of(w, piece.address, 1000);
            (void)key_of(w, pool.address, 1000);
            cuda.free(piece);
            cuda.free(pool);
            cuda.new_pool();
            files = (i == 5) ? sys_meter::descriptors().size() : files;
        }
        EXPECT_LE(sys_meter::descriptors().size(), files + 2);
        EXPECT_EQ(0u, cuda.misuses());
    });
}

/* So would what is kept for each context to prove the way to its memory. */
TEST_F(fake_cuda_ipc, exports_whose_context_goes)
{
    in_process([]() {
        cuda_program cuda;
        worker w(ipc_tl());
        sys_meter meter;
        size_t blocks = 0;

        cuda.init();
        for (unsigned round = 0; round < 10; ++round) {
            const uct_cu_ctx_t ctx = cuda.create_context();
            const auto m           = cuda.make(kind::DEVICE, 1000);
            (void)key_of(w, m.address, 1000);
            cuda.destroy_context(ctx);
            blocks = (round == 2) ? meter.blocks() : blocks;
        }
        EXPECT_EQ(blocks, meter.blocks());
        EXPECT_EQ(20u, cuda.calls("cuIpcGetMemHandle"));
        EXPECT_EQ(0u, cuda.misuses());
    });
}

/* What is kept of memory that is there, for later users, is bounded. */
TEST_F(fake_cuda_ipc, exports_that_nobody_uses)
{
    in_process([]() {
        constexpr size_t COUNT = 300, KEPT = 256; /* UCT_CUDA_IPC_EXPORTS_MAX */
        cuda_program cuda;
        worker w(ipc_tl());

        cuda.init();
        cuda.use_primary();
        const size_t before = sys_meter::descriptors().size();
        std::vector<cuda_program::memory> pieces;
        for (size_t i = 0; i < COUNT; ++i) {
            pieces.push_back(cuda.make(kind::PIECES, 1000));
        }
        const size_t made = sys_meter::descriptors().size();
        for (const auto &piece : pieces) {
            (void)key_of(w, piece.address, 1000);
        }
        EXPECT_GT(sys_meter::descriptors().size(), made + KEPT / 2);
        EXPECT_LE(sys_meter::descriptors().size(), made + KEPT + 1) << "and a probe";
        for (const auto &piece : pieces) {
            cuda.free(piece);
        }
        EXPECT_GT(made, before + COUNT / 2) << "one each is the driver's";
        EXPECT_EQ(0u, cuda.misuses());
    });
}

TEST(cuda_ipc, where_memory_lies)
{
    in_process([]() {
        ipc_user u;

        u.allocate(100);
        EXPECT_EQ(1, u.w->tl->md.rkey_is_on(u.rkey, 0));
        EXPECT_EQ(0, u.w->tl->md.rkey_is_on(u.rkey, 1));
        EXPECT_EQ(0, u.w->tl->md.rkey_is_on(u.rkey, -1));
    });
}

TEST_F(fake_cuda_ipc, hostile_keys)
{
    in_process([]() {
        log_levels quiet("fatal");
        seeded_random rnd(53);
        ipc_user u;
        uint8_t byte = 0;
        unsigned accepted = 0;

        u.allocate(SIZE);
        uct_rkey_t *good = u.rkey;
        for (unsigned i = 0; i < 3000; ++i) {
            bytes packed = u.packed;
            if (rnd.one_in(2)) {
                packed[rnd.below(packed.size())] ^= static_cast<uint8_t>(1 + rnd.below(255));
            } else if (rnd.one_in(2)) {
                packed.resize(rnd.below(UCT_RKEY_MAX));
            } else {
                packed = pattern(rnd.bits(), packed.size());
            }
            uct_rkey_t *rkey = nullptr;
            if (u.w->tl->md.rkey_unpack(u.w->md, packed.data(), packed.size(), &rkey) != UCS_OK) {
                EXPECT_EQ(nullptr, rkey);
                continue;
            }
            ++accepted;
            u.rkey = rkey;
            (void)u.get(&byte, 0, 1);
            (void)u.get(&byte, SIZE - 1, 1);
            u.w->tl->md.rkey_release(rkey);
        }
        EXPECT_GT(accepted, 300u);
        u.rkey = good;
        EXPECT_EQ(UCS_OK, u.get(&byte, SIZE - 1, 1));
        EXPECT_EQ(pattern(SIZE, SIZE).back(), byte);
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* An owner that tells a size which its allocation has not: nothing is read behind it. */
TEST_F(fake_cuda_ipc, a_key_that_lies_about_the_size)
{
    in_process([]() {
        log_levels quiet("fatal");
        ipc_user u;
        bytes data(100);

        u.allocate(100);
        bytes packed = u.packed;
        uct_rkey_t *good = u.rkey;
        for (size_t offset = 0; offset + 8 <= packed.size(); offset += 8) {
            uint64_t word;
            memcpy(&word, packed.data() + offset, 8);
            if (word == 100) { /* registered length and size of the allocation, not the handle's */
                word = (offset < 64) ? 1ul << 20 : 100;
                memcpy(packed.data() + offset, &word, 8);
            }
        }
        ASSERT_EQ(UCS_OK, u.w->tl->md.rkey_unpack(u.w->md, packed.data(), packed.size(), &u.rkey));
        EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(data.data(), 1000, 100));
        u.forget();
        u.rkey = good;
        EXPECT_EQ(UCS_OK, u.get(data.data(), 0, 100));
        EXPECT_EQ(pattern(100, 100), data);
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* One that forks before it starts the driver: its keys are not taken for its parent's. */
TEST_F(fake_cuda_ipc, a_forked_child_is_another_process)
{
    in_process([] {
        cuda_program program;
        uct_md_t *md;
        ASSERT_EQ(UCS_OK, uct_md_open(uct_tl_find("cuda_ipc"), nullptr, &md));
        int fds[2];
        ASSERT_EQ(0, pipe(fds));
        const pid_t child = fork();
        if (child == 0) {
            uint8_t key[UCT_RKEY_MAX];
            uct_mem_t *mem;
            program.init();
            program.create_context();
            const auto memory   = program.make(cuda_program::kind::DEVICE, 65536);
            const auto status   = md->tl->md.reg(md, memory.address, 65536, nullptr, &mem);
            const size_t length = (status == UCS_OK) ? md->tl->md.rkey_pack(mem, key) : 0;
            _exit((length > 0) && (write(fds[1], key, length) == ssize_t(length)) ? 0 : 1);
        }
        int status = -1;
        ASSERT_EQ(child, waitpid(child, &status, 0));
        ASSERT_EQ(0, status);
        uint8_t key[UCT_RKEY_MAX];
        const ssize_t length = read(fds[0], key, sizeof(key));
        ASSERT_GT(length, 0);
        uct_rkey_t *rkey = nullptr;
        EXPECT_EQ(UCS_OK, md->tl->md.rkey_unpack(md, key, size_t(length), &rkey));
        if (rkey != nullptr) {
            md->tl->md.rkey_release(rkey);
        }
        close(fds[0]);
        close(fds[1]);
        uct_md_close(md);
    });
}

/* Runs the body in a forked child and returns what that returns; it may not take long. */
int in_fork(const std::function<int()> &body)
{
    int status        = -1;
    const pid_t child = fork();

    if (child == 0) {
        alarm(20);
        _exit(body());
    }
    EXPECT_EQ(child, waitpid(child, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Does this process give the descriptor that a key names to those who ask? */
bool is_offered(const bytes &packed)
{
    uct_descriptor_question_t question = {
        {UCT_SOCKET_MAGIC, UCT_SOCKET_VERSION, UCT_SOCKET_GET_DESCRIPTOR}, 0, 0
    };
    int ends[2] = {-1, -1}, fd = -1;
    uint64_t length;

    memcpy(&question.domain, &packed[16], sizeof(question.domain)); /* the instance */
    memcpy(&question.id, &packed[56], sizeof(question.id));
    if ((socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) ||
        (uct_descriptor_answer(ends[0], &question) != UCS_OK)) {
        return false;
    }
    const ucs_status_t status = uct_descriptor_listen(&ends[1], &fd, &length);
    close(ends[0]);
    close(fd);
    return status == UCS_OK;
}

/* Memory of others' and of the probe's too: the driver would give none of it back before the child
 * ends. */
TEST_F(fake_cuda_ipc, a_forked_child_keeps_no_descriptors)
{
    in_process([]() {
        cuda_program cuda;
        worker w(ipc_tl());
        std::vector<uct_mem_t *> mems;
        bytes packed(UCT_RKEY_MAX);

        cuda.init();
        cuda.use_primary();
        const cuda_program::memory memory[] = {cuda.make(kind::PIECES, 4ul << 20),
                                               cuda.make(kind::SHARED_POOL, 1000)};
        const auto before = sys_meter::descriptors();
        for (const auto &m : memory) {
            mems.push_back(nullptr);
            ASSERT_EQ(UCS_OK, w.tl->md.reg(w.md, m.address, m.length, nullptr, &mems.back()));
        }
        const bytes unused = key_of(w, memory[0].address, 1000); /* of a part: another export */
        const auto made    = sys_meter::descriptors();
        EXPECT_EQ(before.size() + 5, made.size()) << "two pieces, one again, a pool, a probe";
        for (const std::string &file : made) { /* programs that are started have none either */
            EXPECT_TRUE((std::count(before.begin(), before.end(), file) > 0) ||
                        (fcntl(atoi(file.c_str()), F_GETFD) == FD_CLOEXEC)) << file;
        }
        packed.resize(w.tl->md.rkey_pack(mems[0], packed.data()));
        EXPECT_TRUE(is_offered(packed));
        EXPECT_EQ(0, in_fork([&]() {
            uct_mem_t *mem;
            if (sys_meter::descriptors() != before) {
                return 1;
            }
            if (is_offered(packed) || is_offered(unused) ||
                (w.tl->md.rkey_pack(mems[0], packed.data()) != 0) ||
                (w.tl->md.reg(w.md, memory[1].address, 1000, nullptr, &mem) !=
                 UCS_ERR_UNSUPPORTED)) {
                return 2;
            }
            const auto own     = cuda.make(kind::PIECES, 1000);
            const size_t files = sys_meter::descriptors().size();
            if (!is_offered(key_of(w, own.address, 1000)) ||
                (sys_meter::descriptors().size() != files + 2)) { /* and a probe */
                return 3;
            }
            for (uct_mem_t *m : mems) {
                w.tl->md.release(m);
            }
            return 0;
        }));
        EXPECT_EQ(made, sys_meter::descriptors());
        EXPECT_TRUE(is_offered(packed));
        EXPECT_TRUE(is_offered(unused));
        for (uct_mem_t *m : mems) {
            w.tl->md.release(m);
        }
    });
}

/* What another process has shown of its memory, and a question to it that is not answered. */
TEST_F(fake_cuda_ipc, a_forked_child_keeps_none_of_others)
{
    in_process([]() {
        log_levels quiet("fatal");
        ipc_user u;
        const auto local = u.cuda.make(kind::DEVICE, 1000);
        completion comp;

        u.link().put_number('i');
        u.allocate(4ul << 20, 'p');
        ASSERT_EQ(UCS_OK, ucs_fault_set("pidfd_getfd", "3+")); /* the probe's, one piece's */
        for (unsigned i = 0; i < 100; ++i) {
            ASSERT_EQ(UCS_ERR_NO_RESOURCE, u.try_get(local, comp));
        }
        const auto files = sys_meter::descriptors();
        EXPECT_EQ(0, in_fork([&]() {
            return (sys_meter::descriptors().size() + 2 == files.size()) ? 0 : 1;
        }));
        EXPECT_EQ(files, sys_meter::descriptors());
        u.open_door();
        ucs_fault_clear(nullptr);
        u.key_again(0, 1000);
        EXPECT_EQ(UCS_OK, u.get(local.address, 0, 1000));
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

std::atomic<bool> g_is_fetching;

/* Nor does it where another thread is about to map it: a fork waits for that. */
TEST_F(fake_cuda_ipc, a_forked_child_keeps_none_that_are_being_mapped)
{
    in_process([]() {
        static ucs_sys_ops_t ops = ucs_sys_real;
        log_levels quiet("fatal");
        ipc_user u;
        completion comp;

        ops.pidfd_getfd = [](int process, int fd, unsigned flags) {
            const int copy = ucs_sys_real.pidfd_getfd(process, fd, flags);
            g_is_fetching  = true;
            usleep(100000);
            return copy;
        };
        const auto local = u.cuda.make(kind::DEVICE, 1000);
        u.allocate(1000, 'p');
        u.cuda.fail("cuMemImportFromShareableHandle", 1, 2); /* so that the driver keeps none */
        const auto files = sys_meter::descriptors();
        ucs_sys_set(&ops);
        std::atomic<bool> is_forked{false};
        std::thread thread([&]() {
            EXPECT_EQ(UCS_ERR_UNREACHABLE, u.try_get(local, comp));
            while (!is_forked) { /* to TSan one that has ended and is not joined is a leak */
                usleep(100);
            }
        });
        while (!g_is_fetching) {
            usleep(100);
        }
        EXPECT_EQ(0, in_fork([&]() { return (sys_meter::descriptors() == files) ? 0 : 1; }));
        is_forked = true;
        thread.join();
        ucs_sys_set(nullptr);
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* Whatever other threads are at, the child finds the lists whole, and its locks free. */
TEST_F(fake_cuda_ipc, forks_amid_registrations)
{
    in_process([]() {
        static ucs_sys_ops_t ops = ucs_sys_real;
        cuda_program cuda;
        worker w(ipc_tl());
        std::atomic<bool> is_over{false};
        bytes packed(UCT_RKEY_MAX);
        uct_mem_t *mem;

        ops.clock_ns = []() { return ucs_sys_real.clock_ns() / 20; }; /* a fork waits so long */
        ucs_sys_set(&ops);
        cuda.init();
        cuda.use_primary();
        const auto kept   = cuda.make(kind::PIECES, 1000);
        const auto others = cuda.make(kind::PIECES, 64ul << 20);
        ASSERT_EQ(UCS_OK, w.tl->md.reg(w.md, kept.address, 1000, nullptr, &mem));
        std::thread thread([&]() {
            for (size_t i = 0; !is_over; ++i) { /* as many ranges as there may be exports */
                (void)key_of(w, static_cast<char *>(others.address) + (i % 24) * (2ul << 20),
                             (1 + i % 7) * (2ul << 20));
            }
        });
        for (unsigned i = 0; i < 200; ++i) {
            ASSERT_EQ(0, in_fork([&]() {
                uint64_t name;
                uint16_t place;
                if (w.tl->md.rkey_pack(mem, packed.data()) != 0) {
                    return 1;
                }
                uct_descriptor_where(nullptr, nullptr, &name, &place);
                w.tl->md.release(mem);
                return 0;
            })) << i;
        }
        is_over = true;
        thread.join();
        ucs_sys_set(nullptr);
        w.tl->md.release(mem);
        EXPECT_EQ(0u, cuda.misuses());
    });
}

std::atomic<bool> g_is_closing, g_may_close;
thread_local bool t_closes_slowly;

/* A thread that does not come to an end amid the lists delays a fork, but does not prevent it; so
 * would the driver where it forks by itself. */
TEST_F(fake_cuda_ipc, a_fork_does_not_wait_for_ever)
{
    in_process([]() {
        static ucs_sys_ops_t ops = ucs_sys_real;
        cuda_program cuda;
        worker w(ipc_tl());
        uct_mem_t *mem, *other;

        ops.close = [](int fd) {
            while (t_closes_slowly && !g_may_close) {
                g_is_closing = true;
                usleep(1000);
            }
            return ucs_sys_real.close(fd);
        };
        ops.clock_ns = []() {
            static std::atomic<uint64_t> now;
            return now += 50000000;
        };
        cuda.init();
        cuda.use_primary();
        const auto freed = cuda.make(kind::PIECES, 1000);
        const auto kept  = cuda.make(kind::PIECES, 1000);
        ASSERT_EQ(UCS_OK, w.tl->md.reg(w.md, freed.address, 1000, nullptr, &mem));
        ASSERT_EQ(UCS_OK, w.tl->md.reg(w.md, kept.address, 1000, nullptr, &other));
        cuda.free(freed);
        ucs_sys_set(&ops);
        std::thread thread([&]() {
            t_closes_slowly = true;
            w.tl->md.release(mem);
        });
        while (!g_is_closing) {
            usleep(1000);
        }
        EXPECT_EQ(0, in_fork([&]() {
            w.tl->md.release(other); /* takes the lock */
            return 0;
        }));
        EXPECT_FALSE(g_may_close);
        g_may_close = true;
        thread.join();
        ucs_sys_set(nullptr);
        w.tl->md.release(other);
        EXPECT_EQ(0u, cuda.misuses());
    });
}

/* Refused once, refused quickly; another allocation is tried anew, and this one after a while. */
TEST_F(fake_cuda_ipc, a_refusal_is_remembered)
{
    in_process([]() {
        ipc_user u;
        bytes data(100);

        {
            log_levels quiet("fatal");
            u.allocate(100);
            u.cuda.fail("cuIpcOpenMemHandle", 1, 208);
            for (unsigned i = 0; i < 10; ++i) {
                EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(data.data(), 0, 100));
            }
            EXPECT_EQ(1u, u.cuda.calls("cuIpcOpenMemHandle"));
            let_pass(AGAIN_S);
            EXPECT_EQ(UCS_OK, u.get(data.data(), 0, 100));
            EXPECT_EQ(pattern(100, 100), data);
        }
        for (char order : {'a', 'p', 's'}) {
            log_levels quiet("fatal");
            u.allocate(100, order);
            u.cuda.fail((order == 'a') ? "cuIpcOpenMemHandle" :
                        (order == 'p') ? "cuMemAddressReserve" : "cuMemPoolImportPointer",
                        (order == 'p') ? 2 : 1, 2); /* the probe is not it */
            EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(data.data(), 0, 100)) << order;
            let_pass(AGAIN_S);
            EXPECT_EQ(UCS_OK, u.get(data.data(), 0, 100)) << order;
            EXPECT_EQ(pattern(100, 100), data);
        }
        u.allocate(100);
        EXPECT_EQ(UCS_OK, u.get(data.data(), 0, 100));
        EXPECT_EQ(pattern(100, 100), data);
    });
}

/* Copies that are done without an error and without effect: found out at the first use of an
 * owner's memory of each kind, and not tried again. */
TEST_F(fake_cuda_ipc, a_way_that_loses_data)
{
    in_process([]() {
        for (int lost : {1, 2}) { /* what is written; all */
            ipc_user u;
            const bytes before = pattern(1, 100);
            const auto local   = u.cuda.make(kind::DEVICE, 100);

            u.cuda.write(local.address, before);
            for (char order : {'a', 'p', 's'}) {
                u.allocate(100, order);
                u.cuda.set("lose", lost);
                EXPECT_EQ(UCS_ERR_REJECTED, u.get(local.address, 0, 100)) << order;
                EXPECT_EQ(UCS_ERR_REJECTED, u.put(local.address, 0, 100)) << order;
                u.cuda.set("lose", 0);
                const uint64_t copies = u.cuda.calls("cuMemcpyAsync");
                u.allocate(100, order);
                EXPECT_EQ(UCS_ERR_REJECTED, u.get(local.address, 0, 100)) << order;
                EXPECT_EQ(copies, u.cuda.calls("cuMemcpyAsync"));
                EXPECT_EQ(pattern(100, 100), u.read_remote());
            }
            EXPECT_EQ(before, u.cuda.read(local.address, 100));
            u.forget();
            u.w.reset();
            EXPECT_EQ(u.cuda.calls("cuIpcOpenMemHandle"), u.cuda.calls("cuIpcCloseMemHandle"));
            EXPECT_EQ(u.cuda.calls("cuMemAddressReserve"), u.cuda.calls("cuMemAddressFree"));
            EXPECT_EQ(0u, u.cuda.misuses());
        }
    });
}

/* A proof costs nothing after the first. */
TEST_F(fake_cuda_ipc, a_way_is_proved_once)
{
    in_process([]() {
        ipc_user u;
        const auto local = u.cuda.make(kind::DEVICE, 100);

        for (char order : {'a', 'p', 's'}) {
            u.allocate(100, order);
            ASSERT_EQ(UCS_OK, u.get(local.address, 0, 100));
            const uint64_t copies = u.cuda.calls("cuMemcpyAsync");
            for (unsigned i = 0; i < 3; ++i) {
                u.allocate(100, order);
                ASSERT_EQ(UCS_OK, u.get(local.address, 0, 100));
                EXPECT_EQ(pattern(100, 100), u.cuda.read(local.address, 100));
            }
            EXPECT_EQ(copies + 3, u.cuda.calls("cuMemcpyAsync"));
        }
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* A kernel that waits for what is put or got, as those of NVSHMEM do, may run at the first use:
 * nothing is asked of the driver that waits for kernels. */
TEST_F(fake_cuda_ipc, a_way_is_proved_while_a_kernel_waits)
{
    in_process([]() {
        ipc_user u;
        const auto local = u.cuda.make(kind::DEVICE, 100);

        for (char order : {'a', 'p', 's'}) {
            u.allocate(100, order);
            u.cuda.set("kernel", 1);
            EXPECT_EQ(UCS_OK, u.get(local.address, 0, 100)) << order;
            EXPECT_EQ(UCS_OK, u.put(local.address, 0, 100)) << order;
            EXPECT_EQ(0u, u.cuda.misuses()) << order;
            u.cuda.set("kernel", 0);
        }
        u.forget();
        u.w.reset();
        EXPECT_EQ(u.cuda.calls("cuMemHostRegister"), u.cuda.calls("cuMemHostUnregister"));
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* A proof whose copies do not end: nobody waits for them, memory is staged after a while, and
 * nothing is given back that a device may still write to. Should they end, the way serves. */
TEST_F(fake_cuda_ipc, a_proof_that_does_not_end)
{
    in_process([]() {
        for (bool is_final : {false, true}) {
            log_levels quiet("error");
            ipc_user u;
            const auto local = u.cuda.make(kind::DEVICE, 1000);
            uct_iov_t iov    = {local.address, 1000, nullptr};
            completion comp;

            for (char order : {'a', 'p'}) {
                u.allocate(1000, order);
                u.cuda.set("stuck", 1);
                for (unsigned i = 0; i < 100; ++i) {
                    ASSERT_EQ(UCS_ERR_NO_RESOURCE, u.ep->ops->get_zcopy(u.ep, &iov, 1, u.remote,
                                                                        u.rkey, &comp.base));
                }
                let_pass(TIME_LIMIT_S);
                EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(local.address, 0, 1000)) << order;
                u.allocate(1000, order);
                EXPECT_EQ(UCS_ERR_UNREACHABLE, u.ep->ops->put_zcopy(u.ep, &iov, 1, u.remote, u.rkey,
                                                                    &comp.base));
                if (is_final) {
                    continue;
                }
                u.cuda.set("stuck", 0);
                for (unsigned i = 0; i < 10; ++i) { /* each has a look */
                    (void)u.get(local.address, 0, 1000);
                }
                EXPECT_EQ(UCS_OK, u.get(local.address, 0, 1000)) << order;
                EXPECT_EQ(pattern(1000, 1000), u.cuda.read(local.address, 1000));
            }
            u.forget();
            u.w.reset();
            EXPECT_EQ(u.cuda.calls("cuIpcOpenMemHandle"),
                      u.cuda.calls("cuIpcCloseMemHandle") + is_final);
            EXPECT_EQ(u.cuda.calls("cuMemAddressReserve"),
                      u.cuda.calls("cuMemAddressFree") + is_final);
            EXPECT_EQ(u.cuda.calls("cuMemHostRegister"),
                      u.cuda.calls("cuMemHostUnregister") + 3 * is_final)
                << "a pattern each, and what marks their context";
            EXPECT_EQ(0, comp.calls);
            EXPECT_EQ(0u, u.cuda.misuses());
        }
    });
}

/* The same of a copy, when its worker and the memory domain are closed. */
TEST_F(fake_cuda_ipc, a_copy_that_does_not_end_before_the_close)
{
    in_process([]() {
        static ucs_sys_ops_t ops = ucs_sys_real;
        log_levels quiet("fatal");

        ops.clock_ns = []() {
            static uint64_t now;
            return now += 100000000;
        };
        for (char order : {'a', 'p', 's'}) {
            ipc_user u;
            const auto local = u.cuda.make(kind::DEVICE, 1000);
            completion comp;

            u.allocate(1000, order);
            ASSERT_EQ(UCS_OK, u.get(local.address, 0, 1000));
            u.cuda.set("stuck", 1);
            ASSERT_EQ(UCS_INPROGRESS, u.try_get(local, comp));
            u.forget();
            ucs_sys_set(&ops);
            u.w->is_stuck = 1;
            u.w.reset();
            ucs_sys_set(nullptr);
            u.cuda.set("stuck", 0);
            EXPECT_EQ(1, comp.calls);
            EXPECT_EQ(0u, u.cuda.misuses()) << order;
        }
    });
}

/* One part of a copy is refused, another one does not end: the first says why it failed, the
 * interface that it is not over. */
TEST_F(fake_cuda_ipc, a_copy_that_is_refused_and_does_not_end)
{
    in_process([]() {
        static ucs_sys_ops_t ops = ucs_sys_real;
        log_levels quiet("fatal");
        ipc_user u;
        const auto local = u.cuda.make(kind::DEVICE, 1000);
        uct_iov_t iov[]  = {{local.address, 500, nullptr},
                            {static_cast<char *>(local.address) + 500, 500, nullptr}};
        completion comp;

        ops.clock_ns = []() {
            static uint64_t now;
            return now += 100000000;
        };
        u.allocate(1000);
        ASSERT_EQ(UCS_OK, u.get(local.address, 0, 1000));
        u.cuda.set("version", 12000); /* without batches */
        u.cuda.set("stuck", 1);
        u.cuda.fail("cuMemcpyAsync", 1, 999);
        ASSERT_EQ(UCS_INPROGRESS, u.ep->ops->get_zcopy(u.ep, iov, 2, u.remote, u.rkey,
                                                       &comp.base));
        u.forget();
        ucs_sys_set(&ops);
        u.w->is_stuck = 1;
        u.w.reset();
        ucs_sys_set(nullptr);
        u.cuda.set("stuck", 0);
        EXPECT_EQ(UCS_ERR_IO_ERROR, comp.base.status);
        EXPECT_EQ(1, comp.calls);
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* The context goes under it. */
TEST_F(fake_cuda_ipc, a_proof_whose_context_goes)
{
    in_process([]() {
        log_levels quiet("fatal");
        ipc_user u;
        const uct_cu_ctx_t first = u.cuda.create_context();
        auto local               = u.cuda.make(kind::DEVICE, 1000);
        completion comp;

        u.allocate(1000);
        u.cuda.set("stuck", 1);
        ASSERT_EQ(UCS_ERR_NO_RESOURCE, u.try_get(local, comp));
        u.cuda.set("stuck", 0);
        u.cuda.destroy_context(first);
        u.cuda.create_context();
        local = u.cuda.make(kind::DEVICE, 1000);
        ASSERT_EQ(UCS_OK, u.get(local.address, 0, 1000));
        EXPECT_EQ(pattern(1000, 1000), u.cuda.read(local.address, 1000));
        u.forget();
        u.w.reset();
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

TEST_F(fake_cuda_ipc, the_program_has_opened_it_itself_in_another_context)
{
    in_process([]() {
        log_levels quiet("fatal");
        ipc_user u;
        bytes data(100);
        uct_cu_ptr_t ptr = 0;
        uct_cu_ipc_handle_t handle;

        u.allocate(100);
        memcpy(&handle, u.packed.data() + u.packed.size() - 2 * sizeof(handle),
               sizeof(handle));
        const uct_cu_ctx_t other = u.cuda.create_context();
        ASSERT_EQ(0, u.cuda.call("cuIpcOpenMemHandle_v2", &ptr, handle, 1u));
        u.cuda.call("cuCtxPopCurrent_v2", const_cast<uct_cu_ctx_t *>(&other));
        EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(data.data(), 0, 100));
        EXPECT_EQ(UCS_ERR_UNREACHABLE, u.get(data.data(), 0, 100));
    });
}

TEST(cuda_ipc, the_owner_is_killed)
{
    in_process([]() {
        log_levels quiet("fatal");
        ipc_user u;
        const auto local = u.cuda.make(kind::DEVICE, SIZE);
        std::deque<completion> comps(20);

        u.allocate(SIZE);
        for (completion &c : comps) {
            ASSERT_EQ(UCS_INPROGRESS, u.try_get(local, c));
        }
        u.kill_owner();
        EXPECT_TRUE(run_until({u.w.get()}, [&]() {
            return std::all_of(comps.begin(), comps.end(),
                               [](const completion &c) { return c.calls == 1; });
        }));
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* What is mapped of owners that have gone, their probes too, would keep memory of a device: it goes
 * when something new is mapped, a second later at the latest. */
TEST_F(fake_cuda_ipc, mappings_of_owners_that_have_gone)
{
    in_process([]() {
        std::deque<peer_process> owners;
        for (unsigned i = 0; i < 4; ++i) {
            owners.emplace_back([](channel &link) { owner(link).serve(); });
        }
        ipc_user u; /* starts the driver */
        const auto local = u.cuda.make(kind::DEVICE, 1000);

        for (peer_process &other : owners) {
            channel &link = other.link();
            bytes packed;
            u.forget();
            u.ep = u.w->connect(link.get_contact());
            link.put_number('p');
            link.put_number(1000);
            u.remote = link.get_number();
            ASSERT_TRUE(link.get(packed));
            ASSERT_EQ(UCS_OK, u.w->tl->md.rkey_unpack(u.w->md, packed.data(), packed.size(),
                                                      &u.rkey));
            ASSERT_EQ(UCS_OK, u.get(local.address, 0, 1000));
            EXPECT_EQ(pattern(1000, 1000), u.cuda.read(local.address, 1000));
            EXPECT_EQ(u.cuda.calls("cuMemMap"), u.cuda.calls("cuMemUnmap") + 2);
            other.kill_now();
            let_pass(TIME_LIMIT_S);
        }
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

TEST_F(fake_cuda_ipc, each_call_of_the_driver_fails)
{
    in_process([]() {
        log_levels quiet("fatal");
        ipc_user u;
        const auto device = u.cuda.make(kind::DEVICE, 300000);
        unsigned failures = 0;

        for (unsigned k = 1; k < 60; ++k) {
            u.allocate(300000);
            u.cuda.fail(nullptr, k, 700);
            bytes data(300000);
            failures += (u.get(data.data(), 0, data.size()) != UCS_OK);
            failures += (u.get(device.address, 0, data.size()) != UCS_OK);
            u.cuda.fail(nullptr, 0, 0);
            const ucs_status_t status = u.get(data.data(), 0, data.size());
            if (status == UCS_OK) {
                EXPECT_EQ(pattern(data.size(), data.size()), data);
            } else {
                EXPECT_EQ(UCS_ERR_UNREACHABLE, status) << "refused at first, so always";
            }
            EXPECT_EQ(1u, u.cuda.depth());
            u.free_remote();
        }
        u.w->is_stuck = -1; /* the same */
        EXPECT_GT(failures, 10u); /* questions that fail once are asked again */
        EXPECT_EQ(0u, u.cuda.misuses());
    });
}

/* Nothing is mapped in a context that cannot be entered, and nothing of the attempt is left. */
TEST_F(fake_cuda_ipc, a_context_that_cannot_be_entered_once)
{
    for (unsigned k = 1; k < 8; ++k) { /* in a process where no context is known yet */
        in_process([=]() {
            log_levels quiet("fatal");
            ipc_user u;
            const auto local = u.cuda.make(kind::DEVICE, 1000);

            u.allocate(1000);
            u.cuda.fail("cuCtxPushCurrent", k, 709);
            for (unsigned i = 0; i < 4; ++i) {
                ucs_status_t status = UCS_OK; /* before the copy is under way */
                (void)finish({u.w.get()}, [&](uct_completion_t *comp) {
                    uct_iov_t iov = {local.address, 1000, nullptr};
                    status = u.ep->ops->get_zcopy(u.ep, &iov, 1, u.remote, u.rkey, comp);
                    return status;
                });
                EXPECT_TRUE((status == UCS_INPROGRESS) || (status == UCS_ERR_UNREACHABLE))
                    << k << ": " << ucs_status_string(status);
            }
            u.cuda.fail("cuCtxPushCurrent", 0, 0);
            EXPECT_EQ(1u, u.cuda.depth());
            let_pass(AGAIN_S);
            EXPECT_EQ(UCS_OK, u.get(local.address, 0, 1000));
            u.forget();
            u.w.reset();
            EXPECT_EQ(0u, u.cuda.misuses());
        });
    }
}

/* It is closed all the same where its context, which is there, cannot be entered once, or is not
 * known to be there once. */
TEST_F(fake_cuda_ipc, a_mapping_whose_context_cannot_be_entered_once)
{
    for (const char *name : {"cuCtxPushCurrent", "cuPointerGetAttributes"}) {
        in_process([=]() {
            log_levels quiet("fatal");
            ipc_user u;

            u.allocate(1000);
            const auto local = u.cuda.make(kind::DEVICE, 1000);
            ASSERT_EQ(UCS_OK, u.get(local.address, 0, 1000));
            const uint64_t closed = u.cuda.calls("cuIpcCloseMemHandle");
            u.cuda.fail(name, 1, 999);
            u.w->tl->md.rkey_forget(u.rkey);
            u.cuda.fail(nullptr, 0, 0);
            EXPECT_EQ(closed + 1, u.cuda.calls("cuIpcCloseMemHandle")) << name;
            EXPECT_EQ(0u, u.cuda.misuses());
        });
    }
}

/* Opening endpoints needs no driver; addresses may be anything. */
TEST_F(fake_cuda_ipc, addresses_and_endpoints)
{
    in_process([]() {
        seeded_random rnd(59);
        cuda_program cuda;
        worker w(ipc_tl());
        contact peer                = w.where();
        char reason[UCT_REASON_MAX] = "";
        uct_ep_t *ep;

        EXPECT_EQ(0, w.tl->iface.is_reachable(w.iface, peer.address.data(), peer.address.size(), 1,
                                              reason));
        EXPECT_NE('\0', reason[0]) << "it cannot be its own peer";
        peer.address[0] ^= 1;
        EXPECT_EQ(1, w.tl->iface.is_reachable(w.iface, peer.address.data(), peer.address.size(), 1,
                                              reason));
        EXPECT_EQ(0, w.tl->iface.is_reachable(w.iface, peer.address.data(), peer.address.size(), 0,
                                              reason));
        {
            sys_meter meter;
            ASSERT_EQ(UCS_OK, uct_ep_open(w.iface, peer.uid.data(), peer.address.data(),
                                          peer.address.size(), nullptr, &ep));
            EXPECT_EQ(0u, meter.system_calls());
            EXPECT_EQ(UCT_EP_LIVE, ep->state);
            uct_ep_close(ep);
            EXPECT_EQ(0u, meter.blocks());
        }
        for (unsigned i = 0; i < 1000; ++i) {
            const bytes wrong = pattern(i, rnd.below(20));
            if (uct_ep_open(w.iface, peer.uid.data(), wrong.data(), wrong.size(), nullptr, &ep) ==
                UCS_OK) {
                EXPECT_EQ(peer.address.size(), wrong.size());
                uct_ep_close(ep);
            }
        }
        EXPECT_EQ(0u, cuda.calls(nullptr));
    });
}

/* Each system call fails, in turn, and nothing is left. */
TEST_F(fake_cuda_ipc, each_system_call_fails)
{
    in_process([]() {
        log_levels quiet("fatal");
        cuda_program cuda;
        uint64_t failed = 1;
        unsigned k;

        cuda.init();
        cuda.use_primary();
        const auto device = cuda.make(kind::DEVICE, 100000);
        EXPECT_EQ(UCS_OK, worker(uct_tl_find("cuda_copy")).status()); /* the driver's table stays */
        for (k = 1; failed != 0; ++k) {
            sys_meter meter;
            ASSERT_EQ(UCS_OK, ucs_fault_set("*", std::to_string(k).c_str()));
            for (const char *name : {"cuda_copy", "cuda_ipc"}) {
                worker w(uct_tl_find(name));
                bytes data(100000);
                completion comp;
                uct_mem_t *mem;
                if (w.status() != UCS_OK) {
                    continue;
                }
                if ((w.tl->md.reg != nullptr) &&
                    (w.tl->md.reg(w.md, device.address, 100, nullptr, &mem) == UCS_OK)) {
                    w.tl->md.release(mem);
                }
                if ((w.tl->iface.copy != nullptr) &&
                    (w.tl->iface.copy(w.iface, device.address, data.data(), data.size(), 0,
                                      &comp.base) == UCS_INPROGRESS)) {
                    EXPECT_TRUE(run_until({&w}, [&]() { return comp.calls != 0; }));
                }
            }
            ASSERT_EQ(UCS_OK, ucs_fault_query("*", nullptr, &failed));
            ucs_fault_clear(nullptr);
            ASSERT_EQ(0u, meter.blocks()) << k;
        }
        EXPECT_GT(k, 8u);
    });
}

} // namespace
