/* Halyard: a program that uses CUDA, for tests.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "cuda_program.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>

namespace uct_test {

/* Pieces are so large, which a real driver asks for. */
static constexpr size_t PIECE = 2ul << 20;

void in_process(const std::function<void()> &body)
{
    peer_process child([&](channel &) { body(); });

    EXPECT_EQ(0, child.wait());
}

bool is_device(cuda_program::kind what)
{
    return (what == cuda_program::kind::DEVICE) || (what == cuda_program::kind::POOL) ||
           (what == cuda_program::kind::SHARED_POOL) || (what == cuda_program::kind::PIECES);
}

bool cuda_program::is_real()
{
    const char *text = getenv("HALYARD_TEST_CUDA");

    return (text != nullptr) && (strcmp(text, "real") == 0);
}

cuda_program::cuda_program()
{
    m_library = dlopen(is_real() ? "libcuda.so.1" :
                                   HALYARD_BUILDDIR "/test/fakecuda/.libs/libcuda.so.1",
                       RTLD_NOW | RTLD_LOCAL);
    if (m_library == nullptr) {
        ADD_FAILURE() << dlerror();
        fflush(stdout);
        _exit(1);
    }
}

void *cuda_program::symbol(const char *name)
{
    void *function = dlsym(m_library, name);

    if (function == nullptr) {
        ADD_FAILURE() << name;
        fflush(stdout);
        _exit(1);
    }
    return function;
}

void cuda_program::init()
{
    ASSERT_EQ(0, call("cuInit", 0u));
}

uct_cu_ctx_t cuda_program::create_context(int device)
{
    uct_cu_ctx_t ctx = nullptr;

    EXPECT_EQ(0, call("cuCtxCreate_v2", &ctx, 0u, device));
    return ctx;
}

uct_cu_ctx_t cuda_program::use_primary(int device)
{
    uct_cu_ctx_t ctx = nullptr;

    EXPECT_EQ(0, call("cuDevicePrimaryCtxRetain", &ctx, device));
    set_current(ctx);
    return ctx;
}

void cuda_program::set_current(uct_cu_ctx_t ctx)
{
    EXPECT_EQ(0, call("cuCtxSetCurrent", ctx));
}

void cuda_program::destroy_context(uct_cu_ctx_t ctx)
{
    EXPECT_EQ(0, call("cuCtxDestroy_v2", ctx));
}

/* Properties of a piece on device 0 (the first 32 bytes of the driver's structure count), and the
 * right to use it. */
struct piece_properties {
    int type, handle_types, location_type, location_id;
    uint64_t rest[4];
};

struct piece_access {
    int location_type, location_id, flags;
};

void cuda_program::map_pieces(uct_cu_ptr_t ptr, std::vector<unsigned long long> &handles)
{
    piece_properties property = {1, 1, 1, 0, {}};
    piece_access access       = {1, 0, 3};

    for (size_t i = 0; i < handles.size(); ++i) {
        EXPECT_EQ(0, call("cuMemCreate", &handles[i], PIECE, &property, 0ull));
        EXPECT_EQ(0, call("cuMemMap", ptr + i * PIECE, PIECE, size_t(0), handles[i], 0ull));
    }
    EXPECT_EQ(0, call("cuMemSetAccess", ptr, handles.size() * PIECE, &access, size_t(1)));
}

void cuda_program::map_anew(memory &m)
{
    free(m);
    map_pieces(reinterpret_cast<uintptr_t>(m.address), m.handles);
}

cuda_program::memory cuda_program::make(kind what, size_t length)
{
    memory m         = {what, nullptr, length, {}};
    uct_cu_ptr_t ptr = 0;

    switch (what) {
    case kind::DEVICE:
        EXPECT_EQ(0, call("cuMemAlloc_v2", &ptr, length));
        break;
    case kind::MANAGED:
        EXPECT_EQ(0, call("cuMemAllocManaged", &ptr, length, 1u));
        break;
    case kind::POOL:
        EXPECT_EQ(0, call("cuMemAllocAsync", &ptr, length, static_cast<void *>(nullptr)));
        EXPECT_EQ(0, call("cuCtxSynchronize"));
        break;
    case kind::SHARED_POOL: {
        int properties[22] = {1, 1, 1, 0}; /* pinned, by descriptor, on device 0 */
        if (m_pool == nullptr) {
            EXPECT_EQ(0, call("cuMemPoolCreate", &m_pool, static_cast<void *>(properties)));
        }
        EXPECT_EQ(0, call("cuMemAllocFromPoolAsync", &ptr, length, m_pool,
                          static_cast<void *>(nullptr)));
        EXPECT_EQ(0, call("cuCtxSynchronize"));
        break;
    }
    case kind::PIECES: {
        m.handles.resize((length + PIECE - 1) / PIECE);
        EXPECT_EQ(0, call("cuMemAddressReserve", &ptr, m.handles.size() * PIECE, size_t(0), 0ull,
                          0ull));
        map_pieces(ptr, m.handles);
        break;
    }
    case kind::PINNED:
        EXPECT_EQ(0, call("cuMemHostAlloc", &m.address, length, 1u));
        return m;
    default:
        m.address = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                         0);
        if (what == kind::REGISTERED) {
            EXPECT_EQ(0, call("cuMemHostRegister_v2", m.address, length, 1u));
        }
        return m;
    }
    m.address = reinterpret_cast<void *>(ptr);
    return m;
}

void cuda_program::new_pool()
{
    EXPECT_EQ(0, call("cuMemPoolDestroy", m_pool));
    m_pool = nullptr;
}

void cuda_program::free(const memory &m)
{
    const uct_cu_ptr_t ptr = reinterpret_cast<uintptr_t>(m.address);

    switch (m.what) {
    case kind::PIECES:
        for (size_t i = 0; i < m.handles.size(); ++i) {
            EXPECT_EQ(0, call("cuMemUnmap", ptr + i * PIECE, PIECE));
            EXPECT_EQ(0, call("cuMemRelease", m.handles[i]));
        }
        break;
    case kind::PINNED:
        EXPECT_EQ(0, call("cuMemFreeHost", m.address));
        break;
    case kind::REGISTERED:
        EXPECT_EQ(0, call("cuMemHostUnregister", m.address));
        munmap(m.address, m.length);
        break;
    case kind::PAGEABLE:
        munmap(m.address, m.length);
        break;
    default:
        EXPECT_EQ(0, call("cuMemFree_v2", ptr));
        break;
    }
}

/* The processor can reach it. */
static bool is_host(const void *address)
{
    uct_cuda_place_t place;

    EXPECT_EQ(UCS_OK, uct_cuda_place_query(uct_cuda_driver(), address, &place));
    return place.kind != UCT_CUDA_DEVICE;
}

/* A copy from pageable memory may still be under way when the driver's call returns. */
void cuda_program::write(void *address, const bytes &data)
{
    if (is_host(address)) {
        memcpy(address, data.data(), data.size());
    } else {
        EXPECT_EQ(0, call("cuMemcpyHtoD_v2", reinterpret_cast<unsigned long long>(address),
                          static_cast<const void *>(data.data()), data.size()));
        EXPECT_EQ(0, call("cuCtxSynchronize"));
    }
}

bytes cuda_program::read(const void *address, size_t length)
{
    bytes data(length);

    if (is_host(address)) {
        memcpy(data.data(), address, length);
    } else {
        EXPECT_EQ(0, call("cuMemcpyDtoH_v2", static_cast<void *>(data.data()),
                          reinterpret_cast<unsigned long long>(address), length));
    }
    return data;
}

uint64_t cuda_program::calls(const char *name)
{
    return reinterpret_cast<uint64_t (*)(const char *)>(symbol("fakecuda_calls"))(name);
}

void cuda_program::fail(const char *name, uint64_t k, int result, bool all)
{
    reinterpret_cast<void (*)(const char *, uint64_t, int, int)>(symbol("fakecuda_fail"))(
        name, k, result, all);
}

void cuda_program::set(const char *what, int value)
{
    reinterpret_cast<void (*)(const char *, int)>(symbol("fakecuda_set"))(what, value);
}

uint64_t cuda_program::misuses()
{
    return is_real() ? 0 : reinterpret_cast<uint64_t (*)()>(symbol("fakecuda_misuses"))();
}

uint64_t cuda_program::pageable()
{
    return is_real() ? 0 : reinterpret_cast<uint64_t (*)()>(symbol("fakecuda_pageable"))();
}

unsigned cuda_program::depth()
{
    return is_real() ? 0 : reinterpret_cast<unsigned (*)()>(symbol("fakecuda_depth"))();
}

} // namespace uct_test
