/* Halyard: the real system calls, and facts about the machine.
 *
 * The table is constant; replacing it swaps one pointer. The facts are read lazily and kept, since
 * they do not change while a process lives.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/sys/string.h>
#include <ucs/sys/sys.h>
#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ /* Linux 5.14, glibc 2.35 */
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

/* ------------------------------------------------------------------ the real table */

static uint64_t ucs_sys_read_clock(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static uint64_t ucs_sys_real_clock_ns(void)
{
    return ucs_sys_read_clock(CLOCK_MONOTONIC);
}

static uint64_t ucs_sys_real_clock_coarse_ns(void)
{
    return ucs_sys_read_clock(CLOCK_MONOTONIC_COARSE);
}

static uint64_t ucs_sys_real_wall_clock_ns(void)
{
    return ucs_sys_read_clock(CLOCK_REALTIME);
}

static uint64_t ucs_sys_real_random64(void)
{
    struct {
        uint64_t clock_ns;
        uint64_t thread;
        uint64_t count;
    } weak;
    static uint64_t count;
    uint64_t value;
    ssize_t ret;

    do {
        ret = getrandom(&value, sizeof(value), 0);
    } while ((ret < 0) && (errno == EINTR));
    if (ret == (ssize_t)sizeof(value)) {
        return value;
    }

    /* a sandbox forbids getrandom: distinct values still, if not secret ones */
    weak.clock_ns = ucs_sys_real_clock_ns();
    weak.thread   = (uint64_t)gettid();
    weak.count    = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    return ucs_hash_bytes(&weak, sizeof(weak), 0);
}

static uint64_t ucs_sys_real_lost_turns(void)
{
    struct rusage usage;

    return (getrusage(RUSAGE_THREAD, &usage) == 0) ? (uint64_t)usage.ru_nivcsw : 0;
}

static void ucs_sys_real_sleep_ns(uint64_t duration_ns)
{
    struct timespec left = {
        .tv_sec  = (time_t)(duration_ns / 1000000000ull),
        .tv_nsec = (long)(duration_ns % 1000000000ull)
    };

    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
    }
}

static void *ucs_sys_real_memalign(size_t alignment, size_t size)
{
    void *ptr = NULL;
    int error = posix_memalign(&ptr, alignment, size);

    if (error != 0) {
        errno = error;
        return NULL;
    }

    return ptr;
}

#define UCS_SYS_EINTR_MAX 1000 /* times in a row that a signal may come in between */

/* Not in the place of a standard descriptor that the program has closed: what is printed there
 * would go into shared memory, or to a peer. */
static int ucs_sys_own_fd(int fd)
{
    int other;

    if ((fd < 0) || (fd > STDERR_FILENO)) {
        return fd;
    }
    other = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(fd);
    return other;
}

/* The C library has these since 2.36 only. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

/* A call whose new descriptor is made one of our own. */
#define UCS_SYS_REAL_OPEN(_name, _params, _call) \
    static int ucs_sys_real_##_name _params \
    { \
        return ucs_sys_own_fd(_call); \
    }

UCS_SYS_REAL_OPEN(memfd_create, (const char *name, unsigned flags), memfd_create(name, flags))
UCS_SYS_REAL_OPEN(shm_open, (const char *name, int flags, mode_t mode),
                  shm_open(name, flags, mode))
UCS_SYS_REAL_OPEN(open, (const char *path, int flags, mode_t mode), open(path, flags, mode))
UCS_SYS_REAL_OPEN(socket, (int domain, int type, int protocol), socket(domain, type, protocol))
UCS_SYS_REAL_OPEN(accept4, (int fd, struct sockaddr *addr, socklen_t *addrlen, int flags),
                  accept4(fd, addr, addrlen, flags))
UCS_SYS_REAL_OPEN(epoll_create1, (int flags), epoll_create1(flags))
UCS_SYS_REAL_OPEN(eventfd, (unsigned initial, int flags), eventfd(initial, flags))
UCS_SYS_REAL_OPEN(timerfd_create, (int clock, int flags), timerfd_create(clock, flags))
UCS_SYS_REAL_OPEN(pidfd_open, (pid_t pid, unsigned flags),
                  (int)syscall(SYS_pidfd_open, pid, flags))
UCS_SYS_REAL_OPEN(pidfd_getfd, (int pidfd, int fd, unsigned flags),
                  (int)syscall(SYS_pidfd_getfd, pidfd, fd, flags))

static ssize_t ucs_sys_real_recvmsg(int fd, struct msghdr *msg, int flags)
{
    const ssize_t length = recvmsg(fd, msg, flags);
    struct cmsghdr *cmsg = (length < 0) ? NULL : CMSG_FIRSTHDR(msg);
    size_t at;
    int got;

    for (; cmsg != NULL; cmsg = CMSG_NXTHDR(msg, cmsg)) {
        if ((cmsg->cmsg_level != SOL_SOCKET) || (cmsg->cmsg_type != SCM_RIGHTS)) {
            continue;
        }
        for (at = 0; at + sizeof(got) <= cmsg->cmsg_len - CMSG_LEN(0); at += sizeof(got)) {
            memcpy(&got, CMSG_DATA(cmsg) + at, sizeof(got));
            got = ucs_sys_own_fd(got);
            memcpy(CMSG_DATA(cmsg) + at, &got, sizeof(got));
        }
    }
    return length;
}

static int ucs_sys_real_fcntl(int fd, int cmd, long arg)
{
    const int new_fd = fcntl(fd, cmd, arg);

    return (cmd == F_DUPFD_CLOEXEC) ? ucs_sys_own_fd(new_fd) : new_fd;
}

/* Beyond the process's file size limit the kernel does not only refuse, it kills by SIGXFSZ. */
static int ucs_sys_exceeds_file_limit(off_t size)
{
    struct rlimit limit;

    if ((size > 0) && (getrlimit(RLIMIT_FSIZE, &limit) == 0) && ((rlim_t)size > limit.rlim_cur)) {
        errno = EFBIG;
        return 1;
    }

    return 0;
}

static int ucs_sys_real_ftruncate(int fd, off_t length)
{
    return ucs_sys_exceeds_file_limit(length) ? -1 : ftruncate(fd, length);
}

/* In parts, again and again: kernels such as 6.1 give memory files up at any signal. */
static int ucs_sys_real_fallocate(int fd, int mode, off_t offset, off_t length)
{
    const off_t end = offset + length;
    unsigned tries  = UCS_SYS_EINTR_MAX;
    off_t part;

    if (ucs_sys_exceeds_file_limit(end)) {
        return -1;
    }
    do {
        part = ucs_min(end - offset, (off_t)1 << 20);
        if (fallocate(fd, mode, offset, part) == 0) {
            offset += part;
            tries   = UCS_SYS_EINTR_MAX;
        } else if ((errno != EINTR) || (--tries == 0)) {
            return -1;
        }
    } while (offset < end);
    return 0;
}

/* "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" to its 128 bits; not zero if it was one. */
static int ucs_sys_parse_uuid(const char *text, ucs_sys_id128_t *id_p)
{
    ucs_sys_id128_t id = {{0, 0}};
    unsigned digits    = 0;
    int value;

    for (; (*text != '\0') && (digits < 32); ++text) {
        if (*text == '-') {
            continue;
        }
        if (!isxdigit((unsigned char)*text)) {
            return 0;
        }
        value = isdigit((unsigned char)*text) ? *text - '0' :
                                                tolower((unsigned char)*text) - 'a' + 10;
        id.words[digits / 16] = (id.words[digits / 16] << 4) | (uint64_t)value;
        ++digits;
    }

    *id_p = id;
    return (digits == 32) && ((id.words[0] | id.words[1]) != 0);
}

/* Read anew each time: a forked process may have come to be on another host, as containers are. */
static void ucs_sys_real_boot_id(ucs_sys_id128_t *id_p)
{
    char text[256] = "";
    size_t length;

    if ((ucs_sys_read_file("/proc/sys/kernel/random/boot_id", text, sizeof(text), &length) ==
         UCS_OK) &&
        ucs_sys_parse_uuid(text, id_p)) {
        return;
    }

    ucs_sys_hostname(text, sizeof(text));
    id_p->words[0] = ucs_hash_bytes(text, strlen(text), 1) | 1;
    id_p->words[1] = ucs_hash_bytes(text, strlen(text), 2);
}

const ucs_sys_ops_t ucs_sys_real = {
    .clock_ns          = ucs_sys_real_clock_ns,
    .clock_coarse_ns   = ucs_sys_real_clock_coarse_ns,
    .wall_clock_ns     = ucs_sys_real_wall_clock_ns,
    .random64          = ucs_sys_real_random64,
    .getpid            = getpid,
    .geteuid           = geteuid,
    .boot_id           = ucs_sys_real_boot_id,
    .gethostname       = gethostname,
    .sched_yield       = sched_yield,
    .lost_turns        = ucs_sys_real_lost_turns,
    .sleep_ns          = ucs_sys_real_sleep_ns,
    .malloc            = malloc,
    .calloc            = calloc,
    .realloc           = realloc,
    .memalign          = ucs_sys_real_memalign,
    .free              = free,
    .mmap              = mmap,
    .munmap            = munmap,
    .madvise           = madvise,
    .memfd_create      = ucs_sys_real_memfd_create,
    .ftruncate         = ucs_sys_real_ftruncate,
    .fallocate         = ucs_sys_real_fallocate,
    .shm_open          = ucs_sys_real_shm_open,
    .shm_unlink        = shm_unlink,
    .shmget            = shmget,
    .shmat             = shmat,
    .shmdt             = shmdt,
    .shmctl            = shmctl,
    .open              = ucs_sys_real_open,
    .close             = close,
    .read              = read,
    .write             = write,
    .stat              = stat,
    .fstat             = fstat,
    .fchmod            = fchmod,
    .fcntl             = ucs_sys_real_fcntl,
    .dup3              = dup3,
    .unlink            = unlink,
    .rename            = rename,
    .getcwd            = getcwd,
    .socket            = ucs_sys_real_socket,
    .bind              = bind,
    .listen            = listen,
    .connect           = connect,
    .accept4           = ucs_sys_real_accept4,
    .shutdown          = shutdown,
    .getifaddrs        = getifaddrs,
    .getsockname       = getsockname,
    .getsockopt        = getsockopt,
    .setsockopt        = setsockopt,
    .sendmsg           = sendmsg,
    .recvmsg           = ucs_sys_real_recvmsg,
    .poll              = poll,
    .epoll_create1     = ucs_sys_real_epoll_create1,
    .epoll_ctl         = epoll_ctl,
    .epoll_wait        = epoll_wait,
    .eventfd           = ucs_sys_real_eventfd,
    .timerfd_create    = ucs_sys_real_timerfd_create,
    .timerfd_settime   = timerfd_settime,
    .dlopen            = dlopen,
    .pidfd_open        = ucs_sys_real_pidfd_open,
    .pidfd_getfd       = ucs_sys_real_pidfd_getfd,
    .process_vm_readv  = process_vm_readv,
    .process_vm_writev = process_vm_writev
};

const ucs_sys_ops_t *ucs_sys = &ucs_sys_real;

const ucs_sys_ops_t *ucs_sys_set(const ucs_sys_ops_t *ops)
{
    const ucs_sys_ops_t *previous = ucs_sys;

    ucs_sys = (ops != NULL) ? ops : &ucs_sys_real;
    return previous;
}

/* ------------------------------------------------------------------ helpers on the table */

char *ucs_sys_strdup(const char *str)
{
    const size_t size = strlen(str) + 1;
    char *copy        = ucs_sys_malloc(size);

    return (copy != NULL) ? memcpy(copy, str, size) : NULL;
}

void ucs_sys_hostname(char *name, size_t max)
{
    if (max == 0) {
        return;
    }

    name[0] = '\0';
    if ((ucs_sys->gethostname(name, max) != 0) && (errno != ENAMETOOLONG)) {
        name[0] = '\0';
    }

    name[max - 1] = '\0';
    if (name[0] == '\0') {
        snprintf(name, max, "unknown");
    }
}

int ucs_sys_populate(const void *address, size_t length, int is_written)
{
    const uintptr_t first = ucs_align_down((uintptr_t)address, ucs_sys_page_size());

    return (ucs_sys_madvise((void *)first, (uintptr_t)address + length - first,
                            is_written ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0) ||
           ((errno != ENOMEM) && (errno != EFAULT));
}

ucs_status_t ucs_sys_read_file(const char *path, char *buf, size_t max, size_t *length_p)
{
    ucs_status_t status = UCS_OK;
    size_t length       = 0;
    ssize_t ret;
    int fd;

    if (max == 0) {
        return UCS_ERR_INVALID_PARAM;
    }

    fd = ucs_sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return UCS_ERR_NO_ELEM;
    }

    /* one byte past the last that fits would show a file that is too large */
    while (length < max) {
        ret = ucs_sys_read(fd, buf + length, max - length);
        if (ret > 0) {
            length += (size_t)ret;
        } else if ((ret == 0) || (errno != EINTR)) {
            status = (ret == 0) ? UCS_OK : UCS_ERR_IO_ERROR;
            break;
        }
    }

    ucs_sys_close(fd);
    if (length == max) {
        length = max - 1;
        status = UCS_ERR_EXCEEDS_LIMIT;
    }

    buf[length] = '\0';
    *length_p   = length;
    return status;
}

/* ------------------------------------------------------------------ facts about the machine */

size_t ucs_sys_page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE); /* which the C library knows since the program began */
}

void ucs_sys_get_cpus(cpu_set_t *cpus)
{
    CPU_ZERO(cpus);
    (void)sched_getaffinity(0, sizeof(*cpus), cpus);
}

#define UCS_SYS_CACHES 5 /* of one CPU, at most */

/* A list of the kernel's: "0-3,8,10-11". What is no list is empty. */
static void ucs_sys_parse_cpus(const char *text, cpu_set_t *cpus)
{
    unsigned long first, last, i;
    char *end;

    CPU_ZERO(cpus);
    do {
        first = strtoul(text, &end, 10);
        if (end == text) {
            return;
        }
        last = (*end == '-') ? strtoul(end + 1, &end, 10) : first;
        for (i = first; i <= ucs_min(last, CPU_SETSIZE - 1ul); ++i) {
            CPU_SET(i, cpus);
        }
        text = end + 1;
    } while (*end == ',');
}

void ucs_sys_get_cache_cpus(unsigned cpu, cpu_set_t *cpus)
{
    char path[96], text[4096];
    size_t length;
    int index;

    CPU_ZERO(cpus);
    for (index = UCS_SYS_CACHES - 1; index >= 0; --index) { /* those farther away come later */
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/cache/index%d/shared_cpu_list",
                 cpu, index);
        if (ucs_sys_read_file(path, text, sizeof(text), &length) == UCS_OK) {
            ucs_sys_parse_cpus(text, cpus);
            return;
        }
    }
}

unsigned ucs_sys_num_cpus(void)
{
    cpu_set_t cpus;
    unsigned count;
    long online;

    ucs_sys_get_cpus(&cpus);
    count = (unsigned)CPU_COUNT(&cpus);
    if (count == 0) { /* more CPUs than the set holds: count those online */
        online = sysconf(_SC_NPROCESSORS_ONLN);
        count  = (online > 0) ? (unsigned)online : 1;
    }

    return count;
}

/* Bytes in a file that holds one number; SIZE_MAX for "max", what is no number, or no file. */
static size_t ucs_sys_read_limit(const char *path)
{
    char text[64];
    uint64_t value;
    size_t length;
    char *end;

    if ((ucs_sys_read_file(path, text, sizeof(text), &length) != UCS_OK) ||
        !isdigit((unsigned char)text[0])) {
        return SIZE_MAX;
    }

    errno = 0;
    value = strtoull(text, &end, 10);
    return ((errno == 0) && (value > 0) && (value <= SIZE_MAX)) ? (size_t)value : SIZE_MAX;
}

/* The least limit from a cgroup up to the root: `group` is its path as /proc/self/cgroup has it. In
 * a container the upper part of that path is often not mounted; the mounted root then counts. */
static size_t ucs_sys_cgroup_limit(const char *mount, const char *group, const char *file)
{
    size_t limit = SIZE_MAX;
    char path[PATH_MAX], prefix[PATH_MAX / 2];
    char *slash;

    if (snprintf(prefix, sizeof(prefix), "%s", group) >= (int)sizeof(prefix)) {
        prefix[0] = '\0';
    }

    for (;;) {
        if (snprintf(path, sizeof(path), "%s%s/%s", mount, prefix, file) < (int)sizeof(path)) {
            limit = ucs_min(limit, ucs_sys_read_limit(path));
        }

        slash = strrchr(prefix, '/');
        if (slash == NULL) {
            return limit;
        }
        *slash = '\0';
    }
}

/* A line of /proc/self/cgroup is "ID:controllers:path"; no controllers means v2. */
static size_t ucs_sys_cgroup_line_limit(const char *line)
{
    const char *controllers = strchr(line, ':');
    const char *group;
    char list[128];

    group = (controllers != NULL) ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL) {
        return SIZE_MAX;
    }

    if (group == controllers + 1) {
        return ucs_min(ucs_sys_cgroup_limit("/sys/fs/cgroup", group + 1, "memory.max"),
                       ucs_sys_cgroup_limit("/sys/fs/cgroup/unified", group + 1, "memory.max"));
    }

    snprintf(list, sizeof(list), ",%.*s,", (int)(group - controllers - 1), controllers + 1);
    if (strstr(list, ",memory,") == NULL) {
        return SIZE_MAX;
    }

    return ucs_sys_cgroup_limit("/sys/fs/cgroup/memory", group + 1, "memory.limit_in_bytes");
}

static size_t ucs_sys_compute_memory_limit(void)
{
    size_t limit = SIZE_MAX;
    long pages   = sysconf(_SC_PHYS_PAGES);
    char text[8192];
    char *line, *saved;
    size_t length;
    ucs_status_t status;

    if (pages > 0) {
        limit = (size_t)pages * ucs_sys_page_size();
    }

    status = ucs_sys_read_file("/proc/self/cgroup", text, sizeof(text), &length);
    if ((status != UCS_OK) && (status != UCS_ERR_EXCEEDS_LIMIT)) {
        return limit;
    }

    for (line = strtok_r(text, "\n", &saved); line != NULL; line = strtok_r(NULL, "\n", &saved)) {
        limit = ucs_min(limit, ucs_sys_cgroup_line_limit(line));
    }

    return limit;
}

size_t ucs_sys_memory_limit(void)
{
    static size_t cached;
    size_t limit = __atomic_load_n(&cached, __ATOMIC_RELAXED);

    /* two threads may both compute it, and come to the same */
    if (limit == 0) {
        limit = ucs_sys_compute_memory_limit();
        __atomic_store_n(&cached, limit, __ATOMIC_RELAXED);
    }

    return limit;
}
