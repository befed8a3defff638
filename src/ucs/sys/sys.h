/* Halyard: the one door to the operating system: clock, randomness, memory and system calls.
 *
 * Everything that ucs, uct and ucp ask of the machine goes through the table `ucs_sys`, so that a
 * test or a simulator can put many workers under virtual time and make any call fail, with the
 * product's code unchanged. Callers use the inline functions below, never the table itself: they
 * consult the fault points (<ucs/debug/fault.h>) first. The name of a fault point is the name of
 * the call without its prefix ("mmap", "malloc", ...).
 *
 * Rules for all functions unless said otherwise: any thread; same arguments, result and errno as
 * the libc function of that name; a call that a fault point fails has done nothing and sets errno.
 * The calls that release something (free, close, munmap, shmdt, shutdown, unlink, shm_unlink) have
 * no fault point, since no caller could do better; nor have the clocks, random64, the ids and
 * waiting.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_SYS_SYS_H
#define UCS_SYS_SYS_H

#include <ucs/debug/fault.h>
#include <ucs/sys/compiler.h>
#include <ucs/type/status.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define UCS_SYS_SINGLE_THREADED 1
#endif
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

BEGIN_C_DECLS

struct shmid_ds;

/* 128 bits that tell one thing from all others; zero is "none". */
typedef struct {
    uint64_t words[2];
} ucs_sys_id128_t;

/* The table. Every entry must be set. A replacement may forward to ucs_sys_real, whose new
 * descriptors never are the standard ones, even where the program has closed those. */
typedef struct {
    /* time, chance, identity */
    uint64_t (*clock_ns)(void);
    uint64_t (*clock_coarse_ns)(void);
    uint64_t (*wall_clock_ns)(void);
    uint64_t (*random64)(void);
    pid_t    (*getpid)(void);
    uid_t    (*geteuid)(void);
    void     (*boot_id)(ucs_sys_id128_t *id_p);
    int      (*gethostname)(char *name, size_t max);
    int      (*sched_yield)(void);
    uint64_t (*lost_turns)(void);
    void     (*sleep_ns)(uint64_t duration_ns);

    /* private memory */
    void     *(*malloc)(size_t size);
    void     *(*calloc)(size_t count, size_t size);
    void     *(*realloc)(void *ptr, size_t size);
    void     *(*memalign)(size_t alignment, size_t size);
    void     (*free)(void *ptr);

    /* mappings and shared memory */
    void     *(*mmap)(void *addr, size_t length, int prot, int flags, int fd, off_t offset);
    int      (*munmap)(void *addr, size_t length);
    int      (*madvise)(void *addr, size_t length, int advice);
    int      (*memfd_create)(const char *name, unsigned flags);
    int      (*ftruncate)(int fd, off_t length);
    int      (*fallocate)(int fd, int mode, off_t offset, off_t length);
    int      (*shm_open)(const char *name, int flags, mode_t mode);
    int      (*shm_unlink)(const char *name);
    int      (*shmget)(key_t key, size_t size, int flags);
    void     *(*shmat)(int shmid, const void *addr, int flags);
    int      (*shmdt)(const void *addr);
    int      (*shmctl)(int shmid, int cmd, struct shmid_ds *buf);

    /* files and descriptors */
    int      (*open)(const char *path, int flags, mode_t mode);
    int      (*close)(int fd);
    ssize_t  (*read)(int fd, void *buf, size_t count);
    ssize_t  (*write)(int fd, const void *buf, size_t count);
    int      (*fstat)(int fd, struct stat *stat_p);
    int      (*fchmod)(int fd, mode_t mode);
    int      (*fcntl)(int fd, int cmd, long arg);
    int      (*unlink)(const char *path);
    int      (*rename)(const char *from, const char *to);

    /* sockets and events */
    int      (*socket)(int domain, int type, int protocol);
    int      (*bind)(int fd, const struct sockaddr *addr, socklen_t addrlen);
    int      (*listen)(int fd, int backlog);
    int      (*connect)(int fd, const struct sockaddr *addr, socklen_t addrlen);
    int      (*accept4)(int fd, struct sockaddr *addr, socklen_t *addrlen, int flags);
    int      (*shutdown)(int fd, int how);
    int      (*getsockname)(int fd, struct sockaddr *addr, socklen_t *addrlen);
    int      (*getsockopt)(int fd, int level, int name, void *value, socklen_t *length);
    int      (*setsockopt)(int fd, int level, int name, const void *value, socklen_t length);
    ssize_t  (*sendmsg)(int fd, const struct msghdr *msg, int flags);
    ssize_t  (*recvmsg)(int fd, struct msghdr *msg, int flags);
    int      (*poll)(struct pollfd *fds, nfds_t count, int timeout_ms);
    int      (*epoll_create1)(int flags);
    int      (*epoll_ctl)(int epfd, int op, int fd, struct epoll_event *event);
    int      (*epoll_wait)(int epfd, struct epoll_event *events, int max, int timeout_ms);
    int      (*eventfd)(unsigned initial, int flags);
    int      (*timerfd_create)(int clock, int flags);
    int      (*timerfd_settime)(int fd, int flags, const struct itimerspec *value,
                                struct itimerspec *old);

    /* libraries */
    void     *(*dlopen)(const char *name, int flags);
    void     *(*dlsym)(void *library, const char *symbol);

    /* another process's descriptors and memory */
    int      (*pidfd_open)(pid_t pid, unsigned flags);
    int      (*pidfd_getfd)(int pidfd, int fd, unsigned flags);
    ssize_t  (*process_vm_readv)(pid_t pid, const struct iovec *local, unsigned long local_count,
                                 const struct iovec *remote, unsigned long remote_count,
                                 unsigned long flags);
    ssize_t  (*process_vm_writev)(pid_t pid, const struct iovec *local, unsigned long local_count,
                                  const struct iovec *remote, unsigned long remote_count,
                                  unsigned long flags);
} ucs_sys_ops_t;

/* The table in force, and the real one. */
extern const ucs_sys_ops_t *ucs_sys;
extern const ucs_sys_ops_t ucs_sys_real;

/* Put `ops` in force (NULL: the real table) and return the table that was. Only while no other
 * thread is inside Halyard; memory obtained from one table must be released by the same. */
const ucs_sys_ops_t *ucs_sys_set(const ucs_sys_ops_t *ops);

/* ------------------------------------------------------------------ facts about the machine */

/* Identity of the running kernel: equal for all processes and containers of one boot of one node.
 * Where /proc does not tell, a hash of the host name. Read anew each time. Never zero. */
UCS_INLINE void ucs_sys_boot_id(ucs_sys_id128_t *id_p)
{
    ucs_sys->boot_id(id_p);
}

/* The same in 64 bits, by which nodes know each other. */
UCS_INLINE uint64_t ucs_sys_node_id(void)
{
    ucs_sys_id128_t boot_id;

    ucs_sys_boot_id(&boot_id);
    return boot_id.words[0] ^ boot_id.words[1];
}

/* Host name, always terminated, cut to max bytes; "unknown" where it cannot be had. */
void ucs_sys_hostname(char *name, size_t max);

/* Bytes of a page. Read once. */
size_t ucs_sys_page_size(void);

/* Bytes of memory that this process may hope for: the least of the machine's memory and the memory
 * limits of its cgroups (v1 and v2, up to the root). SIZE_MAX where nothing is known. Reads files:
 * some 50 us, cached after the first call. */
size_t ucs_sys_memory_limit(void);

/* CPUs that the scheduler lets this thread use now, at least 1. */
unsigned ucs_sys_num_cpus(void);

#define UCS_SYS_CPU_WORDS 16

/* A set of CPUs: bit i % 64 of word i / 64; those above 1023 are not told apart from none. */
typedef struct {
    uint64_t words[UCS_SYS_CPU_WORDS];
} ucs_sys_cpus_t;

/* The same as a set; empty where the system does not tell. */
void ucs_sys_get_cpus(ucs_sys_cpus_t *cpus);

/* The CPUs behind the same last cache before memory as this one, which is among them; empty where
 * the system does not tell. Reads files: some 20 us. */
void ucs_sys_get_cache_cpus(unsigned cpu, ucs_sys_cpus_t *cpus);

/* Read a small file (as in /proc or /sys) into buf, at most max - 1 bytes, terminated. Returns
 * UCS_ERR_NO_ELEM where it cannot be opened, UCS_ERR_IO_ERROR where reading fails,
 * UCS_ERR_EXCEEDS_LIMIT where the file is larger (buf then holds its beginning). No logging. */
ucs_status_t ucs_sys_read_file(const char *path, char *buf, size_t max, size_t *length_p);

/* ------------------------------------------------------------------ time, chance, identity */

/* Monotonic time in ns; the origin is arbitrary but the same for all processes of a node. */
UCS_INLINE uint64_t ucs_sys_clock_ns(void)
{
    return ucs_sys->clock_ns();
}

/* The same as of the kernel's last tick, 10 ms ago at most; a third of what the tick counter of the
 * processor costs. */
UCS_INLINE uint64_t ucs_sys_clock_coarse_ns(void)
{
    return ucs_sys->clock_coarse_ns();
}

/* Time since 1970 in ns, which may jump: for people to read, never to measure with. */
UCS_INLINE uint64_t ucs_sys_wall_clock_ns(void)
{
    return ucs_sys->wall_clock_ns();
}

/* 64 unguessable bits from the kernel; right after fork too. A system call: for ids, cookies and
 * seeds, not for the data path. */
UCS_INLINE uint64_t ucs_sys_random64(void)
{
    return ucs_sys->random64();
}

UCS_INLINE pid_t ucs_sys_getpid(void)
{
    return ucs_sys->getpid();
}

UCS_INLINE uid_t ucs_sys_geteuid(void)
{
    return ucs_sys->geteuid();
}

/* Not 0 if the process has but one thread for certain, so that it can do without locks until it
 * starts another itself. */
UCS_INLINE int ucs_sys_is_single_threaded(void)
{
#ifdef UCS_SYS_SINGLE_THREADED
    return __libc_single_threaded;
#else
    return 0;
#endif
}

UCS_INLINE void ucs_sys_sched_yield(void)
{
    ucs_sys->sched_yield();
}

/* How often the calling thread has lost its processor to another one although it could have gone
 * on; a sched_yield that let another one run counts. 0 where the system does not tell. */
UCS_INLINE uint64_t ucs_sys_lost_turns(void)
{
    return ucs_sys->lost_turns();
}

/* Blocks for at least that time, signals notwithstanding. */
UCS_INLINE void ucs_sys_sleep_ns(uint64_t duration_ns)
{
    ucs_sys->sleep_ns(duration_ns);
}

/* ------------------------------------------------------------------ private memory */

UCS_INLINE void *ucs_sys_malloc(size_t size)
{
    return ucs_fault_hit("malloc", ENOMEM) ? NULL : ucs_sys->malloc(size);
}

UCS_INLINE void *ucs_sys_calloc(size_t count, size_t size)
{
    return ucs_fault_hit("calloc", ENOMEM) ? NULL : ucs_sys->calloc(count, size);
}

UCS_INLINE void *ucs_sys_realloc(void *ptr, size_t size)
{
    return ucs_fault_hit("realloc", ENOMEM) ? NULL : ucs_sys->realloc(ptr, size);
}

/* `alignment` is a power of two and a multiple of sizeof(void *). NULL and errno on failure. */
UCS_INLINE void *ucs_sys_memalign(size_t alignment, size_t size)
{
    return ucs_fault_hit("memalign", ENOMEM) ? NULL : ucs_sys->memalign(alignment, size);
}

/* Releases what any of the four above returned; NULL is allowed. */
UCS_INLINE void ucs_sys_free(void *ptr)
{
    ucs_sys->free(ptr);
}

/* Copy of a string (of at most max bytes of it), from ucs_sys_malloc; NULL without memory. */
char *ucs_sys_strdup(const char *str);
char *ucs_sys_strndup(const char *str, size_t max);

/* ------------------------------------------------------------------ mappings, shared memory */

UCS_INLINE void *ucs_sys_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
    return ucs_fault_hit("mmap", ENOMEM) ? MAP_FAILED :
           ucs_sys->mmap(addr, length, prot, flags, fd, offset);
}

UCS_INLINE int ucs_sys_munmap(void *addr, size_t length)
{
    return ucs_sys->munmap(addr, length);
}

UCS_INLINE int ucs_sys_madvise(void *addr, size_t length, int advice)
{
    return ucs_fault_hit("madvise", EINVAL) ? -1 : ucs_sys->madvise(addr, length, advice);
}

UCS_INLINE int ucs_sys_memfd_create(const char *name, unsigned flags)
{
    return ucs_fault_hit("memfd_create", EMFILE) ? -1 : ucs_sys->memfd_create(name, flags);
}

/* This one and fallocate give EFBIG where RLIMIT_FSIZE is exceeded, without the signal. */
UCS_INLINE int ucs_sys_ftruncate(int fd, off_t length)
{
    return ucs_fault_hit("ftruncate", EFBIG) ? -1 : ucs_sys->ftruncate(fd, length);
}

UCS_INLINE int ucs_sys_fallocate(int fd, int mode, off_t offset, off_t length)
{
    return ucs_fault_hit("fallocate", ENOSPC) ? -1 : ucs_sys->fallocate(fd, mode, offset, length);
}

UCS_INLINE int ucs_sys_shm_open(const char *name, int flags, mode_t mode)
{
    return ucs_fault_hit("shm_open", EMFILE) ? -1 : ucs_sys->shm_open(name, flags, mode);
}

UCS_INLINE int ucs_sys_shm_unlink(const char *name)
{
    return ucs_sys->shm_unlink(name);
}

UCS_INLINE int ucs_sys_shmget(key_t key, size_t size, int flags)
{
    return ucs_fault_hit("shmget", ENOSPC) ? -1 : ucs_sys->shmget(key, size, flags);
}

UCS_INLINE void *ucs_sys_shmat(int shmid, const void *addr, int flags)
{
    return ucs_fault_hit("shmat", ENOMEM) ? MAP_FAILED : ucs_sys->shmat(shmid, addr, flags);
}

UCS_INLINE int ucs_sys_shmdt(const void *addr)
{
    return ucs_sys->shmdt(addr);
}

UCS_INLINE int ucs_sys_shmctl(int shmid, int cmd, struct shmid_ds *buf)
{
    return ucs_fault_hit("shmctl", EPERM) ? -1 : ucs_sys->shmctl(shmid, cmd, buf);
}

/* ------------------------------------------------------------------ files and descriptors */

/* `mode` matters with O_CREAT only. */
UCS_INLINE int ucs_sys_open(const char *path, int flags, mode_t mode)
{
    return ucs_fault_hit("open", EMFILE) ? -1 : ucs_sys->open(path, flags, mode);
}

UCS_INLINE int ucs_sys_close(int fd)
{
    return ucs_sys->close(fd);
}

UCS_INLINE ssize_t ucs_sys_read(int fd, void *buf, size_t count)
{
    return ucs_fault_hit("read", EIO) ? -1 : ucs_sys->read(fd, buf, count);
}

UCS_INLINE ssize_t ucs_sys_write(int fd, const void *buf, size_t count)
{
    return ucs_fault_hit("write", EIO) ? -1 : ucs_sys->write(fd, buf, count);
}

UCS_INLINE int ucs_sys_fstat(int fd, struct stat *stat_p)
{
    return ucs_fault_hit("fstat", EIO) ? -1 : ucs_sys->fstat(fd, stat_p);
}

UCS_INLINE int ucs_sys_fchmod(int fd, mode_t mode)
{
    return ucs_fault_hit("fchmod", EPERM) ? -1 : ucs_sys->fchmod(fd, mode);
}

/* Commands with an integer argument only (F_ADD_SEALS, F_SETFL, F_DUPFD_CLOEXEC, ...). */
UCS_INLINE int ucs_sys_fcntl(int fd, int cmd, long arg)
{
    return ucs_fault_hit("fcntl", EPERM) ? -1 : ucs_sys->fcntl(fd, cmd, arg);
}

UCS_INLINE int ucs_sys_unlink(const char *path)
{
    return ucs_sys->unlink(path);
}

/* ------------------------------------------------------------------ sockets and events */

UCS_INLINE int ucs_sys_socket(int domain, int type, int protocol)
{
    return ucs_fault_hit("socket", EMFILE) ? -1 : ucs_sys->socket(domain, type, protocol);
}

UCS_INLINE int ucs_sys_bind(int fd, const struct sockaddr *addr, socklen_t addrlen)
{
    return ucs_fault_hit("bind", EADDRINUSE) ? -1 : ucs_sys->bind(fd, addr, addrlen);
}

UCS_INLINE int ucs_sys_listen(int fd, int backlog)
{
    return ucs_fault_hit("listen", EADDRINUSE) ? -1 : ucs_sys->listen(fd, backlog);
}

UCS_INLINE int ucs_sys_connect(int fd, const struct sockaddr *addr, socklen_t addrlen)
{
    return ucs_fault_hit("connect", ECONNREFUSED) ? -1 : ucs_sys->connect(fd, addr, addrlen);
}

UCS_INLINE int ucs_sys_accept4(int fd, struct sockaddr *addr, socklen_t *addrlen, int flags)
{
    return ucs_fault_hit("accept4", EMFILE) ? -1 : ucs_sys->accept4(fd, addr, addrlen, flags);
}

UCS_INLINE int ucs_sys_shutdown(int fd, int how)
{
    return ucs_sys->shutdown(fd, how);
}

UCS_INLINE int ucs_sys_getsockname(int fd, struct sockaddr *addr, socklen_t *addrlen)
{
    return ucs_fault_hit("getsockname", ENOBUFS) ? -1 : ucs_sys->getsockname(fd, addr, addrlen);
}

UCS_INLINE int ucs_sys_getsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
    return ucs_fault_hit("getsockopt", ENOPROTOOPT) ? -1 :
           ucs_sys->getsockopt(fd, level, name, value, length);
}

UCS_INLINE int ucs_sys_setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
    return ucs_fault_hit("setsockopt", ENOPROTOOPT) ? -1 :
           ucs_sys->setsockopt(fd, level, name, value, length);
}

UCS_INLINE ssize_t ucs_sys_sendmsg(int fd, const struct msghdr *msg, int flags)
{
    return ucs_fault_hit("sendmsg", ECONNRESET) ? -1 : ucs_sys->sendmsg(fd, msg, flags);
}

UCS_INLINE ssize_t ucs_sys_recvmsg(int fd, struct msghdr *msg, int flags)
{
    return ucs_fault_hit("recvmsg", ECONNRESET) ? -1 : ucs_sys->recvmsg(fd, msg, flags);
}

UCS_INLINE int ucs_sys_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    return ucs_fault_hit("poll", ENOMEM) ? -1 : ucs_sys->poll(fds, count, timeout_ms);
}

UCS_INLINE int ucs_sys_epoll_create1(int flags)
{
    return ucs_fault_hit("epoll_create1", EMFILE) ? -1 : ucs_sys->epoll_create1(flags);
}

UCS_INLINE int ucs_sys_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    return ucs_fault_hit("epoll_ctl", ENOSPC) ? -1 : ucs_sys->epoll_ctl(epfd, op, fd, event);
}

UCS_INLINE int ucs_sys_epoll_wait(int epfd, struct epoll_event *events, int max, int timeout_ms)
{
    return ucs_fault_hit("epoll_wait", EINTR) ? -1 :
           ucs_sys->epoll_wait(epfd, events, max, timeout_ms);
}

UCS_INLINE int ucs_sys_eventfd(unsigned initial, int flags)
{
    return ucs_fault_hit("eventfd", EMFILE) ? -1 : ucs_sys->eventfd(initial, flags);
}

UCS_INLINE int ucs_sys_timerfd_create(int clock, int flags)
{
    return ucs_fault_hit("timerfd_create", EMFILE) ? -1 : ucs_sys->timerfd_create(clock, flags);
}

/* Cannot fail with a descriptor and times that are right, so it has no fault point. */
UCS_INLINE int ucs_sys_timerfd_settime(int fd, int flags, const struct itimerspec *value,
                                       struct itimerspec *old)
{
    return ucs_sys->timerfd_settime(fd, flags, value, old);
}

/* ------------------------------------------------------------------ libraries */

/* NULL where the library is not there; what dlerror says then is of no use after a fault point. */
UCS_INLINE void *ucs_sys_dlopen(const char *name, int flags)
{
    return ucs_fault_hit("dlopen", ENOENT) ? NULL : ucs_sys->dlopen(name, flags);
}

UCS_INLINE void *ucs_sys_dlsym(void *library, const char *symbol)
{
    return ucs_fault_hit("dlsym", ENOENT) ? NULL : ucs_sys->dlsym(library, symbol);
}

/* ------------------------------------------------------------------ another process's memory */

UCS_INLINE int ucs_sys_pidfd_open(pid_t pid, unsigned flags)
{
    return ucs_fault_hit("pidfd_open", EPERM) ? -1 : ucs_sys->pidfd_open(pid, flags);
}

/* A copy of another process's descriptor; that process must let us look into it. */
UCS_INLINE int ucs_sys_pidfd_getfd(int pidfd, int fd, unsigned flags)
{
    return ucs_fault_hit("pidfd_getfd", EPERM) ? -1 : ucs_sys->pidfd_getfd(pidfd, fd, flags);
}

UCS_INLINE ssize_t
ucs_sys_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
                         const struct iovec *remote, unsigned long remote_count,
                         unsigned long flags)
{
    return ucs_fault_hit("process_vm_readv", EPERM) ? -1 :
           ucs_sys->process_vm_readv(pid, local, local_count, remote, remote_count, flags);
}

UCS_INLINE ssize_t
ucs_sys_process_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_count,
                          const struct iovec *remote, unsigned long remote_count,
                          unsigned long flags)
{
    return ucs_fault_hit("process_vm_writev", EPERM) ? -1 :
           ucs_sys->process_vm_writev(pid, local, local_count, remote, remote_count, flags);
}

END_C_DECLS

#endif
