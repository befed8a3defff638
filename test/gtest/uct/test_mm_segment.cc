/* Halyard: shared segments of mm: what they are made of, what is refused, and that nothing of them
 * stays behind.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "sys_meter.h"
#include "world.h"

#include <mp/snapshot.h>
#include <ucs/debug/fault.h>
#include <ucs/sys/sys.h>
#include <uct/mm/mm_segment.h>

#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace uct_test;

namespace {

uct_mm_backing_list_t backing_list(std::initializer_list<uct_mm_backing_t> kinds)
{
    uct_mm_backing_list_t list = {};
    unsigned count             = 0;

    for (uct_mm_backing_t kind : kinds) {
        list.kinds[count++] = kind;
    }
    list.kinds[count] = UCT_MM_BACKING_NONE;
    list.hugetlb      = UCS_NO;
    return list;
}

/* This process's segments of System V that are not marked for removal: nattch may be anything. */
size_t sysv_segments_to_stay()
{
    struct shm_info info;
    const int highest = shmctl(0, SHM_INFO, reinterpret_cast<shmid_ds *>(&info));
    size_t count      = 0;

    for (int i = 0; i <= highest; ++i) {
        shmid_ds ds;
        if ((shmctl(i, SHM_STAT, &ds) >= 0) && (ds.shm_cpid == getpid()) &&
            ((ds.shm_perm.mode & SHM_DEST) == 0)) {
            ++count;
        }
    }
    return count;
}

class mm_segment : public testing::TestWithParam<uct_mm_backing_t> {
};

TEST_P(mm_segment, is_zeroed_private_and_nameless)
{
    const auto list     = backing_list({GetParam()});
    const auto fds      = sys_meter::descriptors().size();
    const auto mappings = sys_meter::shared_mappings().size();
    const auto sysv     = sysv_segments_to_stay();
    uct_mm_segment_t *segment;

    ASSERT_EQ(UCS_OK, uct_mm_segment_create(&list, nullptr, 10000, 0, &segment));
    EXPECT_EQ(GetParam(), segment->backing);
    EXPECT_EQ(ucs_align_up(10000ul, ucs_sys_page_size()), segment->length);
    for (size_t i = 0; i < segment->length; ++i) {
        ASSERT_EQ(0, static_cast<uint8_t *>(segment->address)[i]);
    }
    memset(segment->address, 0xff, segment->length);
    EXPECT_EQ(std::set<std::string>(), mp::leftovers({}));
    EXPECT_EQ(sysv, sysv_segments_to_stay());

    if (segment->fd >= 0) {
        struct stat st;
        ASSERT_EQ(0, fstat(segment->fd, &st));
        EXPECT_EQ(0600u, st.st_mode & 07777u);
        EXPECT_NE(0, fcntl(segment->fd, F_GETFD) & FD_CLOEXEC);
        EXPECT_EQ(segment->length, static_cast<size_t>(st.st_blocks) * 512) << "reserved at once";
    } else {
        shmid_ds ds;
        ASSERT_EQ(0, shmctl(segment->shmid, IPC_STAT, &ds));
        EXPECT_EQ(0600, ds.shm_perm.mode & 0777);
    }
    if (GetParam() == UCT_MM_BACKING_MEMFD) {
        EXPECT_EQ(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
                  fcntl(segment->fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
        EXPECT_NE(0, ftruncate(segment->fd, 0));
        EXPECT_NE(0, ftruncate(segment->fd, 1 << 20));
    }

    uct_mm_segment_put(segment);
    EXPECT_EQ(fds, sys_meter::descriptors().size());
    EXPECT_EQ(mappings, sys_meter::shared_mappings().size());
}

/* Two interfaces of one process meet at one address, which ThreadSanitizer needs. */
TEST_P(mm_segment, is_mapped_once_in_a_process)
{
    const auto list     = backing_list({GetParam()});
    const auto mappings = sys_meter::shared_mappings().size();
    uct_mm_segment_t *owner, *attached, *found;

    ASSERT_EQ(UCS_OK, uct_mm_segment_create(&list, nullptr, 4096, 0, &owner));
    const int copy = (owner->fd >= 0) ? dup(owner->fd) : -1;
    ASSERT_EQ(UCS_OK, uct_mm_segment_attach(owner->backing, copy, owner->shmid, owner->length,
                                            &attached));
    EXPECT_EQ(owner->address, attached->address);
    ASSERT_EQ(UCS_OK, uct_mm_segment_find(owner->backing, owner->device, owner->inode, &found));
    EXPECT_EQ(owner->address, found->address);
    if (copy >= 0) {
        EXPECT_EQ(-1, fcntl(copy, F_GETFD)) << "attach closes the descriptor";
    }

    const uint64_t device = owner->device, inode = owner->inode;
    uct_mm_segment_put(owner); /* the memory lives as long as its last user */
    memset(attached->address, 1, attached->length);
    uct_mm_segment_put(found);
    uct_mm_segment_put(attached);
    EXPECT_EQ(UCS_ERR_NO_ELEM, uct_mm_segment_find(GetParam(), device, inode, &found));
    EXPECT_EQ(mappings, sys_meter::shared_mappings().size());
}

TEST_P(mm_segment, exactly_where_it_is_wanted)
{
    const auto list     = backing_list({GetParam()});
    const size_t length = 4 * ucs_sys_page_size();
    void *place         = mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uct_mm_segment_t *segment;

    ASSERT_NE(MAP_FAILED, place);
    ASSERT_EQ(UCS_OK, uct_mm_segment_create(&list, place, length, UCT_MM_SEGMENT_FIXED, &segment));
    EXPECT_EQ(place, segment->address);
    memset(place, 1, length);
    uct_mm_segment_put(segment);
}

INSTANTIATE_TEST_SUITE_P(backings, mm_segment,
                         testing::Values(UCT_MM_BACKING_MEMFD, UCT_MM_BACKING_POSIX,
                                         UCT_MM_BACKING_SYSV),
                         [](const testing::TestParamInfo<uct_mm_backing_t> &info) {
                             return std::string(uct_mm_backing_names[info.param]);
                         });

TEST(mm_segment_attach, what_a_peer_could_shrink_is_refused)
{
    uct_mm_segment_t *segment = nullptr;

    /* no seals */
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(0, ftruncate(fd, 8192));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_mm_segment_attach(UCT_MM_BACKING_MEMFD, fd, -1, 8192, &segment));
    EXPECT_EQ(-1, fcntl(fd, F_GETFD)) << "closed in any case";

    /* one of them */
    fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(0, ftruncate(fd, 8192));
    ASSERT_EQ(0, fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_mm_segment_attach(UCT_MM_BACKING_MEMFD, fd, -1, 8192, &segment));

    /* smaller than was said */
    fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(0, ftruncate(fd, 8192));
    ASSERT_EQ(0, fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_mm_segment_attach(UCT_MM_BACKING_MEMFD, fd, -1, 8193, &segment));

    /* grown since it was mapped */
    fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(0, ftruncate(fd, 8192));
    const int again             = dup(fd);
    uct_mm_segment_t *unrelated = nullptr;
    ASSERT_EQ(UCS_OK, uct_mm_segment_attach(UCT_MM_BACKING_POSIX, fd, -1, 8192, &unrelated));
    ASSERT_EQ(0, ftruncate(again, 16384));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_mm_segment_attach(UCT_MM_BACKING_POSIX, again, -1, 16384, &segment));
    uct_mm_segment_put(unrelated);

    /* empty; a pipe; nothing */
    fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_mm_segment_attach(UCT_MM_BACKING_MEMFD, fd, -1, 0, &segment));
    int pipes[2];
    ASSERT_EQ(0, pipe(pipes));
    EXPECT_NE(UCS_OK, uct_mm_segment_attach(UCT_MM_BACKING_MEMFD, pipes[0], -1, 0, &segment));
    close(pipes[1]);
    EXPECT_NE(UCS_OK, uct_mm_segment_attach(UCT_MM_BACKING_MEMFD, -1, -1, 0, &segment));
    EXPECT_NE(UCS_OK, uct_mm_segment_attach(UCT_MM_BACKING_SYSV, -1, -1, 0, &segment));
    EXPECT_EQ(nullptr, segment);
}

TEST(mm_segment_create, the_next_kind_where_one_cannot_be_had)
{
    const auto list = backing_list({UCT_MM_BACKING_MEMFD, UCT_MM_BACKING_POSIX,
                                    UCT_MM_BACKING_SYSV});
    const auto fds  = sys_meter::descriptors().size();
    uct_mm_segment_t *segment;

    ASSERT_EQ(UCS_OK, ucs_fault_set("memfd_create", "1+"));
    ASSERT_EQ(UCS_OK, uct_mm_segment_create(&list, nullptr, 4096, 0, &segment));
    EXPECT_EQ(UCT_MM_BACKING_POSIX, segment->backing);
    uct_mm_segment_put(segment);

    ASSERT_EQ(UCS_OK, ucs_fault_set("fallocate", "1+")); /* /dev/shm is full */
    ASSERT_EQ(UCS_OK, uct_mm_segment_create(&list, nullptr, 4096, 0, &segment));
    EXPECT_EQ(UCT_MM_BACKING_SYSV, segment->backing);
    uct_mm_segment_put(segment);

    ASSERT_EQ(UCS_OK, ucs_fault_set("shmget", "1+"));
    {
        log_levels quiet("fatal");
        EXPECT_EQ(UCS_ERR_SHMEM_SEGMENT, uct_mm_segment_create(&list, nullptr, 4096, 0, &segment));
    }
    ucs_fault_clear(nullptr);
    EXPECT_EQ(fds, sys_meter::descriptors().size()) << "nothing is left of what failed";
}

TEST(mm_segment_create, lazy_memory_takes_no_pages)
{
    const auto list = backing_list({UCT_MM_BACKING_MEMFD});
    uct_mm_segment_t *segment;
    struct stat st;

    ASSERT_EQ(UCS_OK, uct_mm_segment_create(&list, nullptr, 64 << 20, UCT_MM_SEGMENT_LAZY,
                                            &segment));
    ASSERT_EQ(0, fstat(segment->fd, &st));
    EXPECT_EQ(0, st.st_blocks);
    uct_mm_segment_put(segment);
}

TEST(mm_segment_config, words_of_the_list)
{
    char memfd[] = "MEMFD", sysv[] = "sysv";
    char *words[] = {sysv, memfd, sysv, memfd};
    uct_mm_backing_list_t list = {};

    const ucs_config_names_array_t names = {words, 4, 0};
    uct_mm_backing_list_init(&names, UCS_TRY, &list);
    EXPECT_EQ(UCT_MM_BACKING_SYSV, list.kinds[0]);
    EXPECT_EQ(UCT_MM_BACKING_MEMFD, list.kinds[1]);
    EXPECT_EQ(UCT_MM_BACKING_NONE, list.kinds[2]);
    EXPECT_TRUE(uct_mm_backing_list_has(&list, UCT_MM_BACKING_MEMFD));
    EXPECT_FALSE(uct_mm_backing_list_has(&list, UCT_MM_BACKING_POSIX));
    EXPECT_FALSE(uct_mm_backing_list_has(&list, UCT_MM_BACKING_NONE));
}

} // namespace
