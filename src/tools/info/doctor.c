/* Halyard: ucx_info --doctor: does the machine let the library do its best, and what to change.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "info.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucs/sys/library.h>
#include <ucs/sys/sys.h>
#include <unistd.h>

/* What fits into a container's default /dev/shm. */
#define DOCTOR_SHM_LEAST     (UINT64_C(65) << 20)
#define DOCTOR_MEMLOCK_LEAST (UINT64_C(64) << 20)

/* One row. cure NULL: all is well. */
static void doctor_say(const char *what, const char *cure, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void doctor_say(const char *what, const char *cure, const char *format, ...)
{
    char found[512];
    va_list args;

    va_start(args, format);
    vsnprintf(found, sizeof(found), format, args);
    va_end(args);
    ucs_report_row(ucs_report_shared, "state check found - cure",
                   "%-5s %s: %s%s%s\n", (cure == NULL) ? "ok" : "note", what, found,
                   (cure == NULL) ? "" : "; cure: ", (cure == NULL) ? "" : cure);
}

static void doctor_shared_memory(void)
{
    int fd = ucs_sys_memfd_create("halyard-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct statvfs shm;
    uint64_t size;

    if ((fd >= 0) && (ucs_sys_ftruncate(fd, 4096) == 0) &&
        (ucs_sys_fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)) {
        doctor_say("memfd", NULL, "works, with seals");
    } else {
        doctor_say("memfd", "allow memfd_create and fcntl in the container's seccomp profile",
                   "%s: shared memory is taken from /dev/shm", strerror(errno));
    }
    if (fd >= 0) {
        ucs_sys_close(fd);
    }
    if (statvfs("/dev/shm", &shm) != 0) {
        doctor_say("/dev/shm", "mount -t tmpfs tmpfs /dev/shm", "%s", strerror(errno));
        return;
    }
    size = (uint64_t)shm.f_blocks * shm.f_frsize;
    doctor_say("/dev/shm", (size < DOCTOR_SHM_LEAST) ?
                               "docker run --shm-size=1g, if memfd is not to be had" : NULL,
               "%llu MiB, %llu free", (unsigned long long)(size >> 20),
               (unsigned long long)(((uint64_t)shm.f_bavail * shm.f_frsize) >> 20));
}

/* May a process read one that is not its child? errno, 0: yes. */
static int doctor_copy(void)
{
    static char source = 1;
    struct iovec remote = {&source, 1}, local;
    pid_t parent = getpid(), child = fork();
    char byte;
    int status;

    if (child == 0) {
        local = (struct iovec){&byte, 1};
        _exit((ucs_sys_process_vm_readv(parent, &local, 1, &remote, 1, 0) == 1) ? 0 : errno);
    }
    if ((child < 0) || (waitpid(child, &status, 0) != child)) {
        return errno;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : EPERM; /* seccomp may kill */
}

static void doctor_copies(void)
{
    int error = doctor_copy();
    char scope[16];

    info_read_line("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof(scope));
    if (error == 0) {
        doctor_say("process_vm_readv", NULL, "allowed (ptrace_scope %s)",
                   (scope[0] == '\0') ? "not there" : scope);
    } else {
        doctor_say("process_vm_readv", ((scope[0] != '\0') && (scope[0] != '0')) ?
                   "sysctl kernel.yama.ptrace_scope=0" : "docker run --cap-add=SYS_PTRACE",
                   "%s (ptrace_scope %s): long messages within the node are copied twice",
                   strerror(error), (scope[0] == '\0') ? "not there" : scope);
    }
}

static void doctor_locked_memory(void)
{
    struct rlimit limit = {0};

    if ((getrlimit(RLIMIT_MEMLOCK, &limit) == 0) && (limit.rlim_cur == RLIM_INFINITY)) {
        doctor_say("locked memory", NULL, "no limit");
        return;
    }
    doctor_say("locked memory", (limit.rlim_cur < DOCTOR_MEMLOCK_LEAST) ?
               "ulimit -l unlimited, docker run --ulimit memlock=-1" : NULL,
               "%llu KiB, which networks with RDMA and pinned memory take from",
               (unsigned long long)limit.rlim_cur >> 10);
}

static void doctor_huge_pages(void)
{
    const char *wanted = getenv("UCX_MM_FIFO_HUGETLB");
    char idle[32];
    int is_missing;

    info_read_line("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", idle, sizeof(idle));
    is_missing = (strtoul(idle, NULL, 10) == 0) && (wanted != NULL) &&
                 ((wanted[0] == 'y') || (wanted[0] == 't'));
    doctor_say("huge pages", is_missing ? "sysctl vm.nr_hugepages=64" : NULL,
               "%s of 2 MiB free, used with UCX_MM_FIFO_HUGETLB only",
               (idle[0] == '\0') ? "none" : idle);
}

/* Processors that the control groups of this process let it use at a time, the least of those
 * around each other; 0: no limit. */
static double doctor_cpu_quota(void)
{
    char groups[8192] = "\n", path[sizeof(groups) + 32], text[64], *group, *cut;
    double quota, period, least = 0;
    size_t length;

    (void)ucs_sys_read_file("/proc/self/cgroup", groups + 1, sizeof(groups) - 1, &length);
    group = strstr(groups, "\n0::"); /* version 2 */
    group = (group != NULL) ? group + strlen("\n0::") : strchr(groups, '\0');
    group[strcspn(group, "\n")] = '\0';
    for (;;) {
        snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cpu.max", group);
        info_read_line(path, text, sizeof(text));
        if ((sscanf(text, "%lf %lf", &quota, &period) == 2) && (period > 0)) {
            least = ((least == 0) || (quota / period < least)) ? quota / period : least;
        }
        cut = strrchr(group, '/');
        if (cut == NULL) {
            break;
        }
        *cut = '\0';
    }
    if (least > 0) {
        return least;
    }
    info_read_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", text, sizeof(text)); /* version 1 */
    quota = atof(text);
    info_read_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", text, sizeof(text));
    return ((quota > 0) && (atof(text) > 0)) ? quota / atof(text) : 0;
}

static void doctor_processors(void)
{
    double quota = doctor_cpu_quota();

    if (quota == 0) {
        doctor_say("processors", NULL, "%u, no limit of time", ucs_sys_num_cpus());
    } else {
        doctor_say("processors", (quota < ucs_sys_num_cpus()) ?
                   "docker run --cpuset-cpus instead of --cpus, or UCX_IDLE=sleep" : NULL,
                   "%u, the time of %.2f", ucs_sys_num_cpus(), quota);
    }
}

static void doctor_network(void)
{
    const uct_tl_t *tl = uct_tl_find("ofi");
    uct_iface_t *iface;
    const char *choice;
    char reason[128];
    size_t length;
    void *library;
    int is_here;

    if (tl == NULL) {
        doctor_say("network", "configure with libfabric (libfabric-dev), and build again",
                   "nothing to other nodes: built without libfabric");
    } else if (info_iface_open(tl, &iface) == UCS_OK) {
        choice  = iface->choice;
        length  = strcspn(choice, "\n");
        is_here = (length > 6) && (strncmp(choice + length - 6, " on lo", 6) == 0);
        doctor_say("network", is_here ? "ip link, and UCX_NET_DEVICES where it is set" : NULL,
                   "%.*s by libfabric%s", (int)length, choice,
                   is_here ? ", which leads to this node only" : "");
        info_iface_close(iface);
    } else {
        library = ucs_library_open("libfabric.so.1", NULL, 0, NULL, reason, sizeof(reason));
        doctor_say("network", (library == NULL) ? "apt install libfabric1 (1.17 or newer)" :
                   "UCX_OFI_PROVIDER and UCX_NET_DEVICES, if they are set; UCX_LOG_LEVEL=info "
                   "says more", "nothing to other nodes%s",
                   (library == NULL) ? ": no libfabric.so.1" : "");
        if (library != NULL) {
            dlclose(library);
        }
    }
}

typedef struct {
    int (*init)(unsigned flags);
    int (*get_version)(int *version);
    int (*get_count)(int *count);
    int (*can_access)(int *can, int device, int peer);
} doctor_cuda_t;

/* Pairs of GPUs that reach each other's memory, of how many. */
static void doctor_gpu_pairs(const doctor_cuda_t *cuda, int count)
{
    int good = 0, pairs = 0, can, i, j;

    for (i = 0; i < count; ++i) {
        for (j = 0; (j < count) && (cuda->can_access != NULL); ++j) {
            if (i != j) {
                ++pairs;
                good += (cuda->can_access(&can, i, j) == 0) && (can != 0);
            }
        }
    }
    if (pairs > 0) {
        doctor_say("GPUs to GPUs", (good < pairs) ? "see nvidia-smi topo -p2p r; copies between "
                   "the others pass the host" : NULL, "%d of %d pairs", good, pairs);
    }
}

static void doctor_gpus(void)
{
    static const ucs_library_function_t functions[] = {
        {"cuInit", offsetof(doctor_cuda_t, init), 0},
        {"cuDriverGetVersion", offsetof(doctor_cuda_t, get_version), 0},
        {"cuDeviceGetCount", offsetof(doctor_cuda_t, get_count), 0},
        {"cuDeviceCanAccessPeer", offsetof(doctor_cuda_t, can_access), 1}
    };
    int version = 0, count = 0, result;
    doctor_cuda_t cuda;
    char reason[128];

    if (ucs_library_open("libcuda.so.1", functions, ucs_array_size(functions), &cuda, reason,
                         sizeof(reason)) == NULL) {
        doctor_say("CUDA", (access("/dev/nvidiactl", F_OK) == 0) ?
                   "install the driver's libcuda.so.1; containers: --gpus all with "
                   "NVIDIA_DRIVER_CAPABILITIES=compute" : NULL, "no driver: %s", reason);
        return;
    }
    result = cuda.init(0);
    result = (result == 0) ? cuda.get_count(&count) : result;
    (void)cuda.get_version(&version);
    if (result != 0) {
        doctor_say("CUDA", "nvidia-smi tells more", "driver of CUDA %d.%d does not start: error %d",
                   version / 1000, version % 1000 / 10, result);
        return;
    }
    doctor_say("CUDA", NULL, "driver of CUDA %d.%d, %d GPUs", version / 1000, version % 1000 / 10,
               count);
    doctor_gpu_pairs(&cuda, count);
}

void info_doctor(void)
{
    doctor_shared_memory();
    doctor_copies();
    doctor_locked_memory();
    doctor_huge_pages();
    doctor_processors();
    doctor_network();
    doctor_gpus();
}
