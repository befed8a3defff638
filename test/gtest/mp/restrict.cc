/* Halyard: makes the system hostile to the process that calls.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "restrict.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace mp {

static std::string failed(const char *what)
{
    return std::string(what) + ": " + strerror(errno);
}

std::string deny_syscalls(const std::vector<long> &numbers, int error)
{
    std::vector<struct sock_filter> code;
    const auto add = [&](unsigned short op, unsigned k, unsigned char yes, unsigned char no) {
        code.push_back({op, yes, no, k});
    };

    add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    for (long number : numbers) {
        add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1);
        add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error), 0, 0);
    }
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);

    struct sock_fprog program = {static_cast<unsigned short>(code.size()), code.data()};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        return failed("no_new_privs");
    }
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        return failed("seccomp");
    }
    return "";
}

std::string private_shared_memory(size_t bytes)
{
    const std::string options = "mode=1777,size=" + std::to_string(bytes);

    if (unshare(CLONE_NEWNS | CLONE_NEWIPC) != 0) {
        return failed("namespaces of our own (root?)");
    }
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
        return failed("private mounts");
    }
    if (bytes == 0) {
        return (mount("shm", "/dev/shm", "tmpfs", MS_RDONLY, nullptr) == 0) ? "" :
               failed("mount of /dev/shm");
    }
    return (mount("shm", "/dev/shm", "tmpfs", 0, options.c_str()) == 0) ? "" :
           failed("mount of /dev/shm");
}

std::string private_places()
{
    const std::string why = private_shared_memory(64u << 20);

    if (!why.empty()) {
        return why;
    }
    return (mount("tmp", "/tmp", "tmpfs", 0, "mode=1777,size=64m") == 0) ? "" :
           failed("mount of /tmp");
}

std::string limit_sysv(size_t bytes)
{
    FILE *file = fopen("/proc/sys/kernel/shmmax", "w");

    if (file == nullptr) {
        return failed("/proc/sys/kernel/shmmax");
    }
    fprintf(file, "%zu", bytes);
    return (fclose(file) == 0) ? "" : failed("/proc/sys/kernel/shmmax");
}

} // namespace mp
