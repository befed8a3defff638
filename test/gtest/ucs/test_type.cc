/* Halyard: tests of the status texts, of the arrays of names, of processor sets, and of libucm.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucm/api/ucm.h>
#include <ucs/memory/memory_type.h>
#include <ucs/type/cpu_set.h>
#include <ucs/type/status.h>
#include <ucs/type/thread_mode.h>

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "seed.h"

namespace {

const ucs_status_t named_codes[] = {
    UCS_OK, UCS_INPROGRESS, UCS_ERR_NO_MESSAGE, UCS_ERR_NO_RESOURCE, UCS_ERR_IO_ERROR,
    UCS_ERR_NO_MEMORY, UCS_ERR_INVALID_PARAM, UCS_ERR_UNREACHABLE, UCS_ERR_INVALID_ADDR,
    UCS_ERR_NOT_IMPLEMENTED, UCS_ERR_MESSAGE_TRUNCATED, UCS_ERR_NO_PROGRESS,
    UCS_ERR_BUFFER_TOO_SMALL, UCS_ERR_NO_ELEM, UCS_ERR_SOME_CONNECTS_FAILED, UCS_ERR_NO_DEVICE,
    UCS_ERR_BUSY, UCS_ERR_CANCELED, UCS_ERR_SHMEM_SEGMENT, UCS_ERR_ALREADY_EXISTS,
    UCS_ERR_OUT_OF_RANGE, UCS_ERR_TIMED_OUT, UCS_ERR_EXCEEDS_LIMIT, UCS_ERR_UNSUPPORTED,
    UCS_ERR_REJECTED, UCS_ERR_NOT_CONNECTED, UCS_ERR_CONNECTION_RESET, UCS_ERR_FIRST_LINK_FAILURE,
    UCS_ERR_LAST_LINK_FAILURE, UCS_ERR_FIRST_ENDPOINT_FAILURE, UCS_ERR_ENDPOINT_TIMEOUT,
    UCS_ERR_LAST_ENDPOINT_FAILURE};

/* A status that may lie outside the enum, as a peer's or an old program's byte may. */
ucs_status_t status_of(int value)
{
    ucs_status_t status;
    signed char  byte = (signed char)value;

    static_assert(sizeof(status) == sizeof(byte), "a status is one byte");
    memcpy(&status, &byte, sizeof(status));
    return status;
}

TEST(ucs_type, each_status_has_a_text_of_its_own)
{
    const std::string     unknown = ucs_status_string(status_of(-77));
    std::set<std::string> texts;

    for (ucs_status_t code : named_codes) {
        std::string text = ucs_status_string(code);
        EXPECT_NE(text, unknown) << (int)code;
        EXPECT_FALSE(text.empty()) << (int)code;
        EXPECT_TRUE(texts.insert(text).second) << text << " stands for two codes";
    }
}

TEST(ucs_type, every_byte_has_a_text)
{
    const std::string unknown = ucs_status_string(status_of(-77));
    std::set<int>     named;

    for (ucs_status_t code : named_codes) {
        named.insert((int)code);
    }
    for (int value = -128; value <= 127; ++value) {
        const char *text = ucs_status_string(status_of(value));
        ASSERT_NE(text, nullptr) << value;
        EXPECT_EQ(text == unknown, named.count(value) == 0) << value << ": " << text;
    }
}

TEST(ucs_type, status_pointers)
{
    for (int value = -100; value <= 0; ++value) {
        ucs_status_ptr_t ptr = UCS_STATUS_PTR(value);
        EXPECT_EQ(UCS_PTR_IS_ERR(ptr), value != 0) << value;
        EXPECT_FALSE(UCS_PTR_IS_PTR(ptr)) << value;
        EXPECT_EQ((int)UCS_PTR_RAW_STATUS(ptr), value);
        EXPECT_EQ((int)UCS_PTR_STATUS(ptr), value);
        EXPECT_EQ(UCS_STATUS_IS_ERR(status_of(value)), value < 0);
    }
    for (uintptr_t address : {(uintptr_t)8, (uintptr_t)&named_codes, ~(uintptr_t)100}) {
        ucs_status_ptr_t ptr = (ucs_status_ptr_t)address;
        EXPECT_FALSE(UCS_PTR_IS_ERR(ptr)) << address;
        EXPECT_TRUE(UCS_PTR_IS_PTR(ptr)) << address;
        EXPECT_EQ(UCS_PTR_STATUS(ptr), UCS_INPROGRESS) << address;
    }
}

TEST(ucs_type, names_of_memory_types)
{
    std::set<std::string> names;

    for (int type = 0; type <= UCS_MEMORY_TYPE_UNKNOWN; ++type) {
        ASSERT_NE(ucs_memory_type_names[type], nullptr) << type;
        ASSERT_NE(ucs_memory_type_descs[type], nullptr) << type;
        EXPECT_TRUE(names.insert(ucs_memory_type_names[type]).second) << type;
    }
    EXPECT_EQ(ucs_memory_type_names[UCS_MEMORY_TYPE_UNKNOWN + 1], nullptr);
    EXPECT_EQ(ucs_memory_type_descs[UCS_MEMORY_TYPE_UNKNOWN + 1], nullptr);

    /* Programs compare with these. */
    EXPECT_STREQ(ucs_memory_type_names[UCS_MEMORY_TYPE_HOST], "host");
    EXPECT_STREQ(ucs_memory_type_names[UCS_MEMORY_TYPE_CUDA], "cuda");
    EXPECT_STREQ(ucs_memory_type_names[UCS_MEMORY_TYPE_CUDA_MANAGED], "cuda-managed");
    EXPECT_STREQ(ucs_memory_type_names[UCS_MEMORY_TYPE_ROCM], "rocm");
    EXPECT_STREQ(ucs_memory_type_names[UCS_MEMORY_TYPE_UNKNOWN], "unknown");
}

TEST(ucs_type, names_of_thread_modes)
{
    EXPECT_STREQ(ucs_thread_mode_names[UCS_THREAD_MODE_SINGLE], "single");
    EXPECT_STREQ(ucs_thread_mode_names[UCS_THREAD_MODE_SERIALIZED], "serialized");
    EXPECT_STREQ(ucs_thread_mode_names[UCS_THREAD_MODE_MULTI], "multi");
}

/* Random additions and removals, numbers outside the set included, against std::set. */
TEST(ucs_type, cpu_set_follows_a_model)
{
    seeded_random random(1024);
    std::set<int> model;
    ucs_cpu_set_t set;

    memset(&set, 0xff, sizeof(set));
    UCS_CPU_ZERO(&set);
    for (int step = 0; step < 20000; ++step) {
        int cpu = (int)random.below(1100) - 38;

        if (random.one_in(3)) {
            UCS_CPU_CLR(cpu, &set);
            model.erase(cpu);
        } else {
            UCS_CPU_SET(cpu, &set);
            if ((cpu >= 0) && (cpu < UCS_CPU_SETSIZE)) {
                model.insert(cpu);
            }
        }

        int probe = (int)random.below(1100) - 38;
        ASSERT_EQ(ucs_cpu_is_set(probe, &set), (int)model.count(probe)) << step;
        ASSERT_EQ(ucs_cpu_set_find_lcs(&set), model.empty() ? 0 : *model.begin()) << step;
        if (random.one_in(500)) {
            UCS_CPU_ZERO(&set);
            model.clear();
        }
    }
}

/* What Open MPI asks before it trusts the library with its memory. */
TEST(ucm, answers_that_no_event_is_missed)
{
    char page[4096];

    ucm_set_external_event(UCM_EVENT_VM_UNMAPPED);
    EXPECT_EQ(ucm_test_external_events(UCM_EVENT_VM_UNMAPPED), UCS_OK);
    EXPECT_EQ(ucm_test_events(UCM_EVENT_VM_UNMAPPED), UCS_OK);
    ucm_vm_mmap(page, sizeof(page));
    ucm_vm_mmap(nullptr, 0);
    ucm_vm_munmap(page, sizeof(page));
    ucm_unset_external_event(UCM_EVENT_VM_UNMAPPED);
    EXPECT_EQ(ucm_test_events(UCM_EVENT_VM_UNMAPPED), UCS_OK);
}

} // namespace
