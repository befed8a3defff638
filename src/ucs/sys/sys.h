/* Halyard: the one door to the operating system: clock, randomness, memory and system calls.
 *
 * Everything that ucs, uct and ucp ask of the machine goes through the table `ucs_sys`, so that a
 * test or a simulator can put many workers under virtual time and make any call fail, with the
 * product's code unchanged. Callers use the inline functions, never the table itself: they
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
#include <ifaddrs.h>
#include <poll.h>
#include <sched.h>
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

/* All calls, a row each: what it returns, its name, parameters and arguments; then, of those that a
 * fault point can fail, what they return there, and errno. Each row makes an entry of the table and
 * the function ucs_sys_<name>, which looks at the fault point and calls that entry. */
#define UCS_SYS_CALLS(_sure, _call) \
    /* Monotonic time in ns; the origin is arbitrary but the same for all processes of a node. */ \
    _sure(uint64_t, clock_ns, (void), ()) \
    /* The same as of the kernel's last tick, 10 ms ago at most; a third of what the tick counter \
     * of the processor costs. */ \
    _sure(uint64_t, clock_coarse_ns, (void), ()) \
    /* Time since 1970 in ns, which may jump: for people to read, never to measure with. */ \
    _sure(uint64_t, wall_clock_ns, (void), ()) \
    /* 64 unguessable bits from the kernel; right after fork too. A system call: for ids, cookies \
     * and seeds, not for the data path. */ \
    _sure(uint64_t, random64, (void), ()) \
    _sure(pid_t, getpid, (void), ()) \
    _sure(uid_t, geteuid, (void), ()) \
    /* Identity of the running kernel: equal for all processes and containers of one boot of one \
     * node. Where /proc does not tell, a hash of the host name. Read anew each time. Never \
     * zero. */ \
    _sure(void, boot_id, (ucs_sys_id128_t *id_p), (id_p)) \
    _sure(int, gethostname, (char *name, size_t max), (name, max)) \
    _sure(int, sched_yield, (void), ()) \
    /* How often the calling thread has lost its processor to another one although it could have \
     * gone on; a sched_yield that let another one run counts. 0 where the system does not \
     * tell. */ \
    _sure(uint64_t, lost_turns, (void), ()) \
    /* Blocks for at least that time, signals notwithstanding. */ \
    _sure(void, sleep_ns, (uint64_t duration_ns), (duration_ns)) \
    \
    /* private memory; alignment: a power of two and a multiple of sizeof(void *) */ \
    _call(void *, malloc, (size_t size), (size), NULL, ENOMEM) \
    _call(void *, calloc, (size_t count, size_t size), (count, size), NULL, ENOMEM) \
    _call(void *, realloc, (void *ptr, size_t size), (ptr, size), NULL, ENOMEM) \
    _call(void *, memalign, (size_t alignment, size_t size), (alignment, size), NULL, ENOMEM) \
    _sure(void, free, (void *ptr), (ptr)) \
    \
    /* mappings and shared memory; ftruncate and fallocate give EFBIG where RLIMIT_FSIZE is \
     * exceeded, without the signal */ \
    _call(void *, mmap, \
          (void *addr, size_t length, int prot, int flags, int fd, off_t offset), \
          (addr, length, prot, flags, fd, offset), MAP_FAILED, ENOMEM) \
    _sure(int, munmap, (void *addr, size_t length), (addr, length)) \
    _call(int, madvise, (void *addr, size_t length, int advice), (addr, length, advice), -1, \
          EINVAL) \
    _call(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1, EMFILE) \
    _call(int, ftruncate, (int fd, off_t length), (fd, length), -1, EFBIG) \
    _call(int, fallocate, (int fd, int mode, off_t offset, off_t length), \
          (fd, mode, offset, length), -1, ENOSPC) \
    _call(int, shm_open, (const char *name, int flags, mode_t mode), (name, flags, mode), -1, \
          EMFILE) \
    _sure(int, shm_unlink, (const char *name), (name)) \
    _call(int, shmget, (key_t key, size_t size, int flags), (key, size, flags), -1, ENOSPC) \
    _call(void *, shmat, (int shmid, const void *addr, int flags), (shmid, addr, flags), \
          MAP_FAILED, ENOMEM) \
    _sure(int, shmdt, (const void *addr), (addr)) \
    _call(int, shmctl, (int shmid, int cmd, struct shmid_ds *buf), (shmid, cmd, buf), -1, EPERM) \
    \
    /* files and descriptors; the mode of open matters with O_CREAT only; fcntl: commands with an \
     * integer argument only (F_ADD_SEALS, F_SETFL, F_DUPFD_CLOEXEC, ...) */ \
    _call(int, open, (const char *path, int flags, mode_t mode), (path, flags, mode), -1, EMFILE) \
    _sure(int, close, (int fd), (fd)) \
    _call(ssize_t, read, (int fd, void *buf, size_t count), (fd, buf, count), -1, EIO) \
    _call(ssize_t, write, (int fd, const void *buf, size_t count), (fd, buf, count), -1, EIO) \
    _call(int, stat, (const char *path, struct stat *stat_p), (path, stat_p), -1, EACCES) \
    _call(int, fstat, (int fd, struct stat *stat_p), (fd, stat_p), -1, EIO) \
    _call(int, fchmod, (int fd, mode_t mode), (fd, mode), -1, EPERM) \
    _call(int, fcntl, (int fd, int cmd, long arg), (fd, cmd, arg), -1, EPERM) \
    _sure(int, dup3, (int fd, int to, int flags), (fd, to, flags)) \
    _sure(int, unlink, (const char *path), (path)) \
    _sure(int, rename, (const char *from, const char *to), (from, to)) \
    _sure(char *, getcwd, (char *path, size_t max), (path, max)) \
    \
    /* sockets and events; timerfd_settime cannot fail with a descriptor and times that are \
     * right */ \
    _call(int, socket, (int domain, int type, int protocol), (domain, type, protocol), -1, EMFILE) \
    _call(int, bind, (int fd, const struct sockaddr *addr, socklen_t addrlen), \
          (fd, addr, addrlen), -1, EADDRINUSE) \
    _call(int, listen, (int fd, int backlog), (fd, backlog), -1, EADDRINUSE) \
    _call(int, connect, (int fd, const struct sockaddr *addr, socklen_t addrlen), \
          (fd, addr, addrlen), -1, ECONNREFUSED) \
    _call(int, accept4, (int fd, struct sockaddr *addr, socklen_t *addrlen, int flags), \
          (fd, addr, addrlen, flags), -1, EMFILE) \
    _sure(int, shutdown, (int fd, int how), (fd, how)) \
    _call(int, getifaddrs, (struct ifaddrs **all_p), (all_p), -1, ENOMEM) \
    _call(int, getsockname, (int fd, struct sockaddr *addr, socklen_t *addrlen), \
          (fd, addr, addrlen), -1, ENOBUFS) \
    _call(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *length), \
          (fd, level, name, value, length), -1, ENOPROTOOPT) \
    _call(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t length), \
          (fd, level, name, value, length), -1, ENOPROTOOPT) \
    _call(ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags), (fd, msg, flags), -1, \
          ECONNRESET) \
    _call(ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags), (fd, msg, flags), -1, \
          ECONNRESET) \
    _call(int, poll, (struct pollfd *fds, nfds_t count, int timeout_ms), \
          (fds, count, timeout_ms), -1, ENOMEM) \
    _call(int, epoll_create1, (int flags), (flags), -1, EMFILE) \
    _call(int, epoll_ctl, (int epfd, int op, int fd, struct epoll_event *event), \
          (epfd, op, fd, event), -1, ENOSPC) \
    _call(int, epoll_wait, (int epfd, struct epoll_event *events, int max, int timeout_ms), \
          (epfd, events, max, timeout_ms), -1, EINTR) \
    _call(int, eventfd, (unsigned initial, int flags), (initial, flags), -1, EMFILE) \
    _call(int, timerfd_create, (int clock, int flags), (clock, flags), -1, EMFILE) \
    _sure(int, timerfd_settime, \
          (int fd, int flags, const struct itimerspec *value, struct itimerspec *old), \
          (fd, flags, value, old)) \
    \
    /* libraries; what dlerror says is of no use after a fault point */ \
    _call(void *, dlopen, (const char *name, int flags), (name, flags), NULL, ENOENT) \
    \
    /* another process's descriptors, of which pidfd_getfd makes copies, and memory; that process \
     * must let us look into it */ \
    _call(int, pidfd_open, (pid_t pid, unsigned flags), (pid, flags), -1, EPERM) \
    _call(int, pidfd_getfd, (int pidfd, int fd, unsigned flags), (pidfd, fd, flags), -1, EPERM) \
    _call(ssize_t, process_vm_readv, \
          (pid_t pid, const struct iovec *local, unsigned long local_count, \
           const struct iovec *remote, unsigned long remote_count, unsigned long flags), \
          (pid, local, local_count, remote, remote_count, flags), -1, EPERM) \
    _call(ssize_t, process_vm_writev, \
          (pid_t pid, const struct iovec *local, unsigned long local_count, \
           const struct iovec *remote, unsigned long remote_count, unsigned long flags), \
          (pid, local, local_count, remote, remote_count, flags), -1, EPERM)

#define UCS_SYS_ENTRY(_type, _name, _params, ...) _type (*_name) _params;

/* The table. Every entry must be set. A replacement may forward to ucs_sys_real, whose new
 * descriptors never are the standard ones, even where the program has closed those. */
typedef struct {
    UCS_SYS_CALLS(UCS_SYS_ENTRY, UCS_SYS_ENTRY)
} ucs_sys_ops_t;

/* The table in force, and the real one. */
extern const ucs_sys_ops_t *ucs_sys;
extern const ucs_sys_ops_t ucs_sys_real;

/* Put `ops` in force (NULL: the real table) and return the table that was. Only while no other
 * thread is inside Halyard; memory obtained from one table must be released by the same. */
const ucs_sys_ops_t *ucs_sys_set(const ucs_sys_ops_t *ops);

#define UCS_SYS_SURE_FUNCTION(_type, _name, _params, _args) \
    UCS_INLINE _type ucs_sys_##_name _params \
    { \
        return ucs_sys->_name _args; \
    }
#define UCS_SYS_CALL_FUNCTION(_type, _name, _params, _args, _failure, _errno) \
    UCS_INLINE _type ucs_sys_##_name _params \
    { \
        return ucs_fault_hit(#_name, _errno) ? _failure : ucs_sys->_name _args; \
    }

UCS_SYS_CALLS(UCS_SYS_SURE_FUNCTION, UCS_SYS_CALL_FUNCTION)

/* ------------------------------------------------------------------ facts about the machine */

/* The boot's identity in 64 bits, by which nodes know each other. */
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

/* The same as a set; empty where the system does not tell, or has more than CPU_SETSIZE. */
void ucs_sys_get_cpus(cpu_set_t *cpus);

/* The CPUs behind the same last cache before memory as this one, which is among them; empty where
 * the system does not tell. Reads files: some 20 us. */
void ucs_sys_get_cache_cpus(unsigned cpu, cpu_set_t *cpus);

/* Brings in the pages of memory, to be read or written. Returns 0 where some of it is not there;
 * what the kernel does not tell of (before Linux 5.14; memory of devices, or that may not be
 * touched) counts as there. */
int ucs_sys_populate(const void *address, size_t length, int is_written);

/* Read a small file (as in /proc or /sys) into buf, at most max - 1 bytes, terminated. Returns
 * UCS_ERR_NO_ELEM where it cannot be opened, UCS_ERR_IO_ERROR where reading fails,
 * UCS_ERR_EXCEEDS_LIMIT where the file is larger (buf then holds its beginning). No logging. */
ucs_status_t ucs_sys_read_file(const char *path, char *buf, size_t max, size_t *length_p);

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

/* A step of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): every state, zero too, starts a sequence
 * of full period. For what may be guessed; no call. */
UCS_INLINE uint64_t ucs_random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Copy of a string, from ucs_sys_malloc; NULL without memory. */
char *ucs_sys_strdup(const char *str);

END_C_DECLS

#endif
