/* Halyard: mm: backings of shared segments and the table of mappings; see mm_segment.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "mm_segment.h"

#define UCS_LOG_COMPONENT "mm"
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/ipc.h>
#include <sys/shm.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

#define UCT_MM_SEALS     (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define UCT_MM_HUGE_PAGE (2u << 20)

const char *const uct_mm_backing_names[UCT_MM_BACKING_LAST + 1] = {
    "none", "memfd", "posix", "sysv", NULL
};

static pthread_mutex_t uct_mm_table_lock = PTHREAD_MUTEX_INITIALIZER;
static ucs_list_link_t uct_mm_table      = {&uct_mm_table, &uct_mm_table};

/* ------------------------------------------------------------------ configuration */

int uct_mm_backing_list_has(const uct_mm_backing_list_t *backings, uct_mm_backing_t backing)
{
    unsigned i;

    for (i = 0; backings->kinds[i] != UCT_MM_BACKING_NONE; ++i) {
        if (backings->kinds[i] == backing) {
            return 1;
        }
    }
    return 0;
}

void uct_mm_backing_list_init(const ucs_config_names_array_t *names,
                              ucs_ternary_auto_value_t hugetlb, uct_mm_backing_list_t *backings)
{
    unsigned count = 0;
    unsigned i, kind;

    backings->kinds[0] = UCT_MM_BACKING_NONE;
    backings->hugetlb  = hugetlb;
    for (i = 0; i < names->count; ++i) {
        for (kind = UCT_MM_BACKING_MEMFD; strcasecmp(names->names[i], uct_mm_backing_names[kind]);
             ++kind) {
        }
        if (!uct_mm_backing_list_has(backings, (uct_mm_backing_t)kind)) {
            backings->kinds[count++] = (uct_mm_backing_t)kind;
            backings->kinds[count]   = UCT_MM_BACKING_NONE;
        }
    }
}

/* ------------------------------------------------------------------ the table of mappings */

/* With the lock held. */
static uct_mm_segment_t *uct_mm_table_find(const uct_mm_segment_t *key)
{
    uct_mm_segment_t *segment;

    ucs_list_for_each(segment, &uct_mm_table, list) {
        if ((segment->backing == key->backing) && (segment->device == key->device) &&
            (segment->inode == key->inode) && !segment->is_fixed) {
            return segment;
        }
    }
    return NULL;
}

static uct_mm_segment_t *uct_mm_table_add(const uct_mm_segment_t *value)
{
    uct_mm_segment_t *segment = ucs_sys_malloc(sizeof(*segment));

    if (segment != NULL) {
        *segment          = *value;
        segment->refcount = 1;
        ucs_list_add_tail(&uct_mm_table, &segment->list);
    }
    return segment;
}

static void uct_mm_segment_unmap(uct_mm_segment_t *segment)
{
    if (segment->backing == UCT_MM_BACKING_SYSV) {
        ucs_sys_shmdt(segment->address);
    } else {
        ucs_sys_munmap(segment->address, segment->length);
    }
    if (segment->fd >= 0) {
        ucs_sys_close(segment->fd);
    }
}

ucs_status_t uct_mm_segment_find(uct_mm_backing_t backing, uint64_t device, uint64_t inode,
                                 uct_mm_segment_t **segment_p)
{
    const uct_mm_segment_t key = {.backing = backing, .device = device, .inode = inode};
    uct_mm_segment_t *segment;

    pthread_mutex_lock(&uct_mm_table_lock);
    segment = uct_mm_table_find(&key);
    if (segment != NULL) {
        ++segment->refcount;
        *segment_p = segment;
    }
    pthread_mutex_unlock(&uct_mm_table_lock);
    return (segment != NULL) ? UCS_OK : UCS_ERR_NO_ELEM;
}

void uct_mm_segment_put(uct_mm_segment_t *segment)
{
    int is_last;

    pthread_mutex_lock(&uct_mm_table_lock);
    is_last = (--segment->refcount == 0);
    if (is_last) {
        ucs_list_del(&segment->list);
        uct_mm_segment_unmap(segment);
    }
    pthread_mutex_unlock(&uct_mm_table_lock);

    if (is_last) {
        ucs_sys_free(segment);
    }
}

void uct_mm_segment_detach(uct_mm_segment_t *segment)
{
    void *address;

    if (segment->backing == UCT_MM_BACKING_NONE) {
        return;
    }
    address = ucs_sys_mmap(segment->address, segment->length, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (address == MAP_FAILED) {
        ucs_diag("a forked child keeps a shared segment: %m");
        return;
    }
    if (segment->fd >= 0) {
        ucs_sys_close(segment->fd);
        segment->fd = -1;
    }
    segment->backing = UCT_MM_BACKING_NONE; /* to be unmapped like those with descriptors */
    segment->device  = 0;
    segment->inode   = 0;
}

void uct_mm_segment_table_lock(void)
{
    pthread_mutex_lock(&uct_mm_table_lock);
}

void uct_mm_segment_table_unlock(void)
{
    pthread_mutex_unlock(&uct_mm_table_lock);
}

/* ------------------------------------------------------------------ making */

/* Identity from the descriptor, then the mapping. */
static int uct_mm_segment_map_fd(uct_mm_segment_t *segment, void *address, unsigned flags)
{
    const int fixed = ((flags & UCT_MM_SEGMENT_FIXED) != 0) ? MAP_FIXED : 0;
    struct stat st;

    if (ucs_sys_fstat(segment->fd, &st) != 0) {
        return -1;
    }
    segment->device  = st.st_dev;
    segment->inode   = st.st_ino;
    segment->address = ucs_sys_mmap(address, segment->length, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | fixed, segment->fd, 0);
    return (segment->address == MAP_FAILED) ? -1 : 0;
}

/* Mode, size and pages of a new descriptor; its mapping. On failure it is closed. */
static int uct_mm_segment_fill_fd(uct_mm_segment_t *segment, void *address, unsigned flags)
{
    const int is_memfd = (segment->backing == UCT_MM_BACKING_MEMFD);
    const int is_lazy  = is_memfd && ((flags & UCT_MM_SEGMENT_LAZY) != 0);
    int error;

    if ((ucs_sys_fchmod(segment->fd, 0600) == 0) &&
        (ucs_sys_ftruncate(segment->fd, (off_t)segment->length) == 0) &&
        (is_lazy || (ucs_sys_fallocate(segment->fd, 0, 0, (off_t)segment->length) == 0)) &&
        (!is_memfd || (ucs_sys_fcntl(segment->fd, F_ADD_SEALS, UCT_MM_SEALS) == 0)) &&
        (uct_mm_segment_map_fd(segment, address, flags) == 0)) {
        return 0;
    }

    error = errno;
    ucs_sys_close(segment->fd);
    errno = error;
    return -1;
}

static int uct_mm_memfd_create_pages(uct_mm_segment_t *segment, void *address, unsigned flags,
                                     unsigned memfd_flags)
{
    memfd_flags |= MFD_CLOEXEC | MFD_ALLOW_SEALING;
    segment->fd  = ucs_sys_memfd_create("halyard", memfd_flags | MFD_NOEXEC_SEAL);
    if ((segment->fd < 0) && (errno == EINVAL)) { /* a kernel before 6.3 */
        segment->fd = ucs_sys_memfd_create("halyard", memfd_flags);
    }
    return (segment->fd < 0) ? -1 : uct_mm_segment_fill_fd(segment, address, flags);
}

static int uct_mm_memfd_create(uct_mm_segment_t *segment, void *address, unsigned flags,
                               ucs_ternary_auto_value_t hugetlb)
{
    const size_t length = segment->length;

    if ((hugetlb == UCS_YES) || (hugetlb == UCS_TRY)) {
        segment->length = ucs_align_up(length, UCT_MM_HUGE_PAGE);
        if (uct_mm_memfd_create_pages(segment, address, flags, MFD_HUGETLB) == 0) {
            return 0;
        }
        if (hugetlb == UCS_YES) {
            return -1;
        }
        ucs_debug("no huge pages for a segment of %zu bytes: %m", length);
        segment->length = length;
    }
    return uct_mm_memfd_create_pages(segment, address, flags, 0);
}

static int uct_mm_posix_create(uct_mm_segment_t *segment, void *address, unsigned flags)
{
    char name[64];

    snprintf(name, sizeof(name), "/halyard-%016" PRIx64, ucs_sys_random64());
    segment->fd = ucs_sys_shm_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (segment->fd < 0) {
        return -1;
    }
    ucs_sys_shm_unlink(name);
    return uct_mm_segment_fill_fd(segment, address, flags);
}

/* The ids of System V segments are unique in a namespace only. 0 where that is not known. */
static uint64_t uct_mm_sysv_namespace(void)
{
    struct stat st;

    return (ucs_sys_stat("/proc/self/ns/ipc", &st) == 0) ? st.st_ino : 0;
}

static int uct_mm_sysv_create(uct_mm_segment_t *segment, void *address, unsigned flags)
{
    const int remap = ((flags & UCT_MM_SEGMENT_FIXED) != 0) ? SHM_REMAP : 0;
    int error;

    segment->shmid = ucs_sys_shmget(IPC_PRIVATE, segment->length, IPC_CREAT | IPC_EXCL | 0600);
    if (segment->shmid < 0) {
        return -1;
    }
    segment->address = ucs_sys_shmat(segment->shmid, (remap != 0) ? address : NULL, remap);
    error            = errno;
    /* Linux lets a segment that is marked for removal be attached while it is mapped somewhere. */
    ucs_sys_shmctl(segment->shmid, IPC_RMID, NULL);
    if (segment->address == MAP_FAILED) {
        errno = error;
        return -1;
    }
    segment->device = uct_mm_sysv_namespace();
    segment->inode  = (uint64_t)segment->shmid;
    /* No call reserves the pages of a System V segment; shmget has accounted for them. */
    return 0;
}

static int uct_mm_backing_create(uct_mm_segment_t *segment, void *address, unsigned flags,
                                 ucs_ternary_auto_value_t hugetlb)
{
    switch (segment->backing) {
    case UCT_MM_BACKING_MEMFD:
        return uct_mm_memfd_create(segment, address, flags, hugetlb);
    case UCT_MM_BACKING_POSIX:
        return uct_mm_posix_create(segment, address, flags);
    default:
        return uct_mm_sysv_create(segment, address, flags);
    }
}

ucs_status_t uct_mm_segment_create(const uct_mm_backing_list_t *backings, void *address,
                                   size_t length, unsigned flags, uct_mm_segment_t **segment_p)
{
    const size_t whole = ucs_align_up(length, ucs_sys_page_size());
    char reasons[256]  = "";
    size_t used        = 0;
    uct_mm_segment_t value;
    uct_mm_segment_t *segment;
    unsigned i;

    for (i = 0; backings->kinds[i] != UCT_MM_BACKING_NONE; ++i) {
        memset(&value, 0, sizeof(value));
        value.fd       = -1;
        value.shmid    = -1;
        value.length   = whole;
        value.backing  = backings->kinds[i];
        value.is_fixed = ((flags & UCT_MM_SEGMENT_FIXED) != 0);
        if (uct_mm_backing_create(&value, address, flags, backings->hugetlb) == 0) {
            break;
        }
        if (used < sizeof(reasons)) {
            used += (size_t)snprintf(reasons + used, sizeof(reasons) - used, "%s%s: %s",
                                     (i > 0) ? ", " : "", uct_mm_backing_names[value.backing],
                                     strerror(errno));
        }
    }
    if (backings->kinds[i] == UCT_MM_BACKING_NONE) {
        ucs_log(((flags & UCT_MM_SEGMENT_EXTRA) != 0) ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_ERROR,
                "no shared memory of %zu bytes to be had (%s)", whole, reasons);
        return UCS_ERR_SHMEM_SEGMENT;
    }

    pthread_mutex_lock(&uct_mm_table_lock);
    segment = uct_mm_table_add(&value);
    pthread_mutex_unlock(&uct_mm_table_lock);
    if (segment == NULL) {
        ucs_error("no memory to keep a shared segment");
        uct_mm_segment_unmap(&value);
        return UCS_ERR_NO_MEMORY;
    }

    *segment_p = segment;
    return UCS_OK;
}

/* ------------------------------------------------------------------ attaching */

/* What came is what was announced; and a memfd nobody can make smaller. Files in /dev/shm have no
 * seals: whoever has one in place of a memfd relies on all of its user's processes. */
static ucs_status_t uct_mm_segment_check_fd(uct_mm_segment_t *value, int fd)
{
    struct stat st;
    int seals;

    if (ucs_sys_fstat(fd, &st) != 0) {
        return UCS_ERR_SHMEM_SEGMENT;
    }
    if ((st.st_size <= 0) || ((uint64_t)st.st_size < value->length)) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (value->backing == UCT_MM_BACKING_MEMFD) {
        seals = ucs_sys_fcntl(fd, F_GET_SEALS, 0);
        if ((seals < 0) || ((seals & F_SEAL_SHRINK) == 0) || ((seals & F_SEAL_GROW) == 0)) {
            return UCS_ERR_INVALID_PARAM;
        }
    }
    value->length = (size_t)st.st_size;
    value->device = st.st_dev;
    value->inode  = st.st_ino;
    return UCS_OK;
}

static ucs_status_t uct_mm_segment_check_sysv(uct_mm_segment_t *value)
{
    struct shmid_ds info;

    if (ucs_sys_shmctl(value->shmid, IPC_STAT, &info) != 0) {
        return UCS_ERR_SHMEM_SEGMENT;
    }
    if ((info.shm_segsz < value->length) || (info.shm_perm.cuid != ucs_sys_geteuid())) {
        return UCS_ERR_INVALID_PARAM;
    }
    value->length = info.shm_segsz;
    value->device = uct_mm_sysv_namespace();
    value->inode  = (uint64_t)value->shmid;
    return UCS_OK;
}

/* With the lock held. */
static ucs_status_t uct_mm_segment_map_peer(uct_mm_segment_t *value, int fd,
                                            uct_mm_segment_t **segment_p)
{
    uct_mm_segment_t *segment = uct_mm_table_find(value);

    if (segment != NULL) {
        if (segment->length < value->length) {
            return UCS_ERR_INVALID_PARAM; /* it has grown since */
        }
        ++segment->refcount;
        *segment_p = segment;
        return UCS_OK;
    }

    value->address = (value->backing == UCT_MM_BACKING_SYSV) ?
                     ucs_sys_shmat(value->shmid, NULL, 0) :
                     ucs_sys_mmap(NULL, value->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (value->address == MAP_FAILED) {
        return (errno == ENOMEM) ? UCS_ERR_NO_MEMORY : UCS_ERR_SHMEM_SEGMENT;
    }

    segment = uct_mm_table_add(value);
    if (segment == NULL) {
        uct_mm_segment_unmap(value);
        return UCS_ERR_NO_MEMORY;
    }
    *segment_p = segment;
    return UCS_OK;
}

ucs_status_t uct_mm_segment_attach(uct_mm_backing_t backing, int fd, int shmid, size_t length,
                                   uct_mm_segment_t **segment_p)
{
    uct_mm_segment_t value = {.backing = backing, .fd = -1, .shmid = shmid, .length = length};
    ucs_status_t status;

    status = (backing == UCT_MM_BACKING_SYSV) ? uct_mm_segment_check_sysv(&value) :
             uct_mm_segment_check_fd(&value, fd);
    if (status == UCS_OK) {
        pthread_mutex_lock(&uct_mm_table_lock);
        status = uct_mm_segment_map_peer(&value, fd, segment_p);
        pthread_mutex_unlock(&uct_mm_table_lock);
    }
    if (fd >= 0) {
        ucs_sys_close(fd);
    }
    return status;
}
