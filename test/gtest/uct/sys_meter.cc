/* Halyard: counts what a test takes from the system and what it gives back.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "sys_meter.h"

#include <ucs/sys/sys.h>

#include <algorithm>
#include <dirent.h>
#include <fstream>
#include <mutex>
#include <unistd.h>
#include <unordered_set>

namespace uct_test {

namespace {

std::mutex g_mutex;
std::unordered_set<void *> g_blocks;
size_t g_calls;
ucs_sys_ops_t g_ops;
const ucs_sys_ops_t *g_previous;

void *enter(void *ptr)
{
    if (ptr != nullptr) {
        std::lock_guard<std::mutex> guard(g_mutex);
        g_blocks.insert(ptr);
    }
    return ptr;
}

void leave(void *ptr)
{
    std::lock_guard<std::mutex> guard(g_mutex);
    g_blocks.erase(ptr);
}

/* The entry `member` of the table, which is a function of any type, with its calls counted. */
template <typename Result, typename... Args, Result (*ucs_sys_ops_t::*member)(Args...)>
void count_calls_of_one(std::integral_constant<decltype(member), member>)
{
    g_ops.*member = [](Args... args) -> Result {
        ++g_calls;
        return (ucs_sys_real.*member)(args...);
    };
}

#define COUNT_CALLS_OF(_name)                                                                     \
    count_calls_of_one(                                                                           \
        std::integral_constant<decltype(&ucs_sys_ops_t::_name), &ucs_sys_ops_t::_name>())

} // namespace

sys_meter::sys_meter()
{
    g_blocks.clear();
    g_calls      = 0;
    g_ops        = ucs_sys_real;
    g_ops.malloc = [](size_t size) { return enter(ucs_sys_real.malloc(size)); };
    g_ops.calloc = [](size_t n, size_t size) { return enter(ucs_sys_real.calloc(n, size)); };
    g_ops.memalign = [](size_t align, size_t size) {
        return enter(ucs_sys_real.memalign(align, size));
    };
    g_ops.realloc = [](void *old, size_t size) {
        void *ptr = ucs_sys_real.realloc(old, size);
        if (ptr != nullptr) {
            leave(old);
        }
        return enter(ptr);
    };
    g_ops.free = [](void *ptr) {
        leave(ptr);
        ucs_sys_real.free(ptr);
    };
    COUNT_CALLS_OF(random64);
    COUNT_CALLS_OF(getpid);
    COUNT_CALLS_OF(mmap);
    COUNT_CALLS_OF(munmap);
    COUNT_CALLS_OF(memfd_create);
    COUNT_CALLS_OF(ftruncate);
    COUNT_CALLS_OF(fallocate);
    COUNT_CALLS_OF(shm_open);
    COUNT_CALLS_OF(open);
    COUNT_CALLS_OF(close);
    COUNT_CALLS_OF(read);
    COUNT_CALLS_OF(write);
    COUNT_CALLS_OF(fstat);
    COUNT_CALLS_OF(fcntl);
    COUNT_CALLS_OF(socket);
    COUNT_CALLS_OF(bind);
    COUNT_CALLS_OF(listen);
    COUNT_CALLS_OF(connect);
    COUNT_CALLS_OF(accept4);
    COUNT_CALLS_OF(sendmsg);
    COUNT_CALLS_OF(recvmsg);
    COUNT_CALLS_OF(getsockopt);
    COUNT_CALLS_OF(poll);
    COUNT_CALLS_OF(epoll_create1);
    COUNT_CALLS_OF(epoll_ctl);
    COUNT_CALLS_OF(epoll_wait);
    COUNT_CALLS_OF(eventfd);
    COUNT_CALLS_OF(process_vm_readv);
    COUNT_CALLS_OF(process_vm_writev);
    g_previous = ucs_sys_set(&g_ops);
}

sys_meter::~sys_meter()
{
    ucs_sys_set(g_previous);
}

size_t sys_meter::blocks() const
{
    std::lock_guard<std::mutex> guard(g_mutex);
    return g_blocks.size();
}

size_t sys_meter::system_calls() const
{
    return g_calls;
}

std::vector<std::string> sys_meter::descriptors()
{
    std::vector<std::string> found;
    DIR *dir = opendir("/proc/self/fd");

    while (struct dirent *entry = readdir(dir)) {
        char target[256];
        const std::string path = std::string("/proc/self/fd/") + entry->d_name;
        const ssize_t length   = readlink(path.c_str(), target, sizeof(target));
        if ((entry->d_name[0] != '.') && (length > 0) && (atoi(entry->d_name) != dirfd(dir))) {
            found.push_back(std::string(entry->d_name) + " " + std::string(target, length));
        }
    }
    closedir(dir);
    std::sort(found.begin(), found.end());
    return found;
}

std::vector<std::string> sys_meter::shared_mappings()
{
    std::vector<std::string> found;
    std::ifstream maps("/proc/self/maps");
    std::string line;

    while (std::getline(maps, line)) {
        const size_t space = line.find(' ');
        if ((space != std::string::npos) && (line[space + 4] == 's')) {
            found.push_back(line);
        }
    }
    return found;
}

} // namespace uct_test
