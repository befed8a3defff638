/* Halyard: our view of the CUDA driver's interface against the real header, where there is one.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <uct/cuda/cuda_driver.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#if __has_include("/usr/local/cuda/include/cuda.h")

/* The types of our calls, before the header gives their names other meanings. */
#define CALL_TYPE(_required, _field, _symbol, _parameters) \
    using ours_##_field = decltype(uct_cuda_driver_t::_field);
UCT_CUDA_CALLS(CALL_TYPE)

#include "/usr/local/cuda/include/cuda.h"
#endif

#if defined(CUDA_VERSION) && (CUDA_VERSION >= 13000) && (CUDA_VERSION < 14000)

namespace {

template <class Result1, class... Args1, class Result2, class... Args2>
constexpr bool is_alike(Result1 (*)(Args1...), Result2 (*)(Args2...))
{
    if constexpr (sizeof...(Args1) == sizeof...(Args2)) {
        return (sizeof(Result1) == sizeof(Result2)) && ((sizeof(Args1) == sizeof(Args2)) && ...) &&
               ((std::is_pointer_v<Args1> == std::is_pointer_v<Args2>) && ...);
    }
    return false;
}

/* Names of ours for versions of a call that the header hides. */
#define cuDeviceGetUuid2 cuDeviceGetUuid_v2
ours_cuMemcpyBatchAsync1 cuMemcpyBatchAsync1;

#define CALL_CHECK(_required, _field, _symbol, _parameters) \
    static_assert(is_alike(static_cast<ours_##_field>(nullptr), \
                           static_cast<std::decay_t<decltype(_field)>>(nullptr)), _symbol);
UCT_CUDA_CALLS(CALL_CHECK)

#define SIZE_CHECK(_ours, _theirs) static_assert(sizeof(_ours) == sizeof(_theirs), #_theirs)
SIZE_CHECK(uct_cu_ptr_t, CUdeviceptr);
SIZE_CHECK(uct_cu_device_t, CUdevice);
SIZE_CHECK(uct_cu_uuid_t, CUuuid);
SIZE_CHECK(uct_cu_ipc_handle_t, CUipcMemHandle);
SIZE_CHECK(uct_cu_piece_t, CUmemGenericAllocationHandle);
SIZE_CHECK(uct_cu_access_t, CUmemAccessDesc);
SIZE_CHECK(uct_cu_piece_properties_t, CUmemAllocationProp);
static_assert(offsetof(uct_cu_piece_properties_t, location) ==
              offsetof(CUmemAllocationProp, location), "");
SIZE_CHECK(uct_cu_pool_t, CUmemoryPool);
SIZE_CHECK(uct_cu_pool_pointer_t, CUmemPoolPtrExportData);
SIZE_CHECK(uct_cu_copy_attributes_t, CUmemcpyAttributes);
static_assert(offsetof(uct_cu_copy_attributes_t, src_hint) ==
              offsetof(CUmemcpyAttributes, srcLocHint), "");
static_assert(offsetof(uct_cu_copy_attributes_t, dest_hint) ==
              offsetof(CUmemcpyAttributes, dstLocHint), "");
static_assert(offsetof(uct_cu_copy_attributes_t, flags) == offsetof(CUmemcpyAttributes, flags), "");

SIZE_CHECK(uct_cu_rows_t, CUDA_MEMCPY2D);
static_assert(offsetof(uct_cu_rows_t, src_host) == offsetof(CUDA_MEMCPY2D, srcHost), "");
static_assert(offsetof(uct_cu_rows_t, src_pitch) == offsetof(CUDA_MEMCPY2D, srcPitch), "");
static_assert(offsetof(uct_cu_rows_t, dest_type) == offsetof(CUDA_MEMCPY2D, dstMemoryType), "");
static_assert(offsetof(uct_cu_rows_t, dest_device) == offsetof(CUDA_MEMCPY2D, dstDevice), "");
static_assert(offsetof(uct_cu_rows_t, dest_pitch) == offsetof(CUDA_MEMCPY2D, dstPitch), "");
static_assert(offsetof(uct_cu_rows_t, height) == offsetof(CUDA_MEMCPY2D, Height), "");

#define VALUE_CHECK(_ours, _theirs) \
    static_assert(static_cast<int>(_ours) == static_cast<int>(_theirs), #_theirs)
VALUE_CHECK(UCT_CU_SUCCESS, CUDA_SUCCESS);
VALUE_CHECK(UCT_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
VALUE_CHECK(UCT_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
VALUE_CHECK(UCT_CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
VALUE_CHECK(UCT_CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
VALUE_CHECK(UCT_CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
VALUE_CHECK(UCT_CU_ALREADY_MAPPED, CUDA_ERROR_ALREADY_MAPPED);
VALUE_CHECK(UCT_CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
VALUE_CHECK(UCT_CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
VALUE_CHECK(UCT_CU_NOT_READY, CUDA_ERROR_NOT_READY);
VALUE_CHECK(UCT_CU_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
VALUE_CHECK(UCT_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
VALUE_CHECK(UCT_CU_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
VALUE_CHECK(UCT_CU_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT);
VALUE_CHECK(UCT_CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
VALUE_CHECK(UCT_CU_POINTER_SYNC_MEMOPS, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
VALUE_CHECK(UCT_CU_POINTER_BUFFER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID);
VALUE_CHECK(UCT_CU_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
VALUE_CHECK(UCT_CU_POINTER_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
VALUE_CHECK(UCT_CU_POINTER_LEGACY_IPC, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
VALUE_CHECK(UCT_CU_POINTER_RANGE_START, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
VALUE_CHECK(UCT_CU_POINTER_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
VALUE_CHECK(UCT_CU_POINTER_HANDLE_TYPES, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
VALUE_CHECK(UCT_CU_POINTER_POOL, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
VALUE_CHECK(UCT_CU_POINTER_MAPPING_SIZE, CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
VALUE_CHECK(UCT_CU_POINTER_MAPPING_BASE, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
VALUE_CHECK(UCT_CU_MEMORY_HOST, CU_MEMORYTYPE_HOST);
VALUE_CHECK(UCT_CU_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
VALUE_CHECK(UCT_CU_ATTACH_GLOBAL, CU_MEM_ATTACH_GLOBAL);
VALUE_CHECK(UCT_CU_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
VALUE_CHECK(UCT_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
VALUE_CHECK(UCT_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
VALUE_CHECK(UCT_CU_IPC_LAZY_PEER, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
VALUE_CHECK(UCT_CU_HANDLE_DESCRIPTOR, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
VALUE_CHECK(UCT_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
VALUE_CHECK(UCT_CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
VALUE_CHECK(UCT_CU_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
VALUE_CHECK(UCT_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
VALUE_CHECK(UCT_CU_SRC_ORDER_STREAM, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
VALUE_CHECK(UCT_CU_JIT_CACHE_MODE, CU_JIT_CACHE_MODE);
static_assert(CU_JIT_CACHE_OPTION_NONE == 0, "");

/* All the rest of this file is checked by the compiler. */
TEST(cuda_header, is_as_we_see_it)
{
    EXPECT_EQ(nullptr, cuMemcpyBatchAsync1);
    EXPECT_EQ(UCT_CU_LAUNCH_BUFFER, CU_LAUNCH_PARAM_BUFFER_POINTER);
    EXPECT_EQ(UCT_CU_LAUNCH_SIZE, CU_LAUNCH_PARAM_BUFFER_SIZE);
    EXPECT_EQ(nullptr, CU_LAUNCH_PARAM_END);
}

} // namespace

#else

namespace {

TEST(cuda_header, is_as_we_see_it)
{
    GTEST_SKIP() << "no cuda.h of CUDA 13 in /usr/local/cuda";
}

} // namespace

#endif
