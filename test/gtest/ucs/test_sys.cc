/* Halyard: tests of the table of system calls, the facts about the machine and the text helpers.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "comma_locale.h"

#include <gtest/gtest.h>

#include <seed.h>
#include <ucs/sys/string.h>
#include <ucs/sys/sys.h>

#include <climits>
#include <clocale>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <map>
#include <sched.h>
#include <set>
#include <string>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

/* Run in a child; true if it ends with exit code 0. */
bool in_child(const std::function<bool()> &body)
{
    const pid_t pid = fork();
    if (pid == 0) {
        _exit(body() ? 0 : 1);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) && (WEXITSTATUS(status) == 0);
}

class sys : public testing::Test {
protected:
    void SetUp() override
    {
        ucs_fault_clear(nullptr);
    }

    void TearDown() override
    {
        ucs_sys_set(nullptr);
        ucs_fault_clear(nullptr);
    }
};

/* A descriptor that is sent from one end to the other. */
int received_through(const int pair[2])
{
    char data = 1;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control            = {};
    struct iovec iov     = {&data, 1};
    struct msghdr header = {};
    header.msg_iov        = &iov;
    header.msg_iovlen     = 1;
    header.msg_control    = control.bytes;
    header.msg_controllen = sizeof(control.bytes);
    struct cmsghdr *cmsg  = CMSG_FIRSTHDR(&header);
    cmsg->cmsg_level      = SOL_SOCKET;
    cmsg->cmsg_type       = SCM_RIGHTS;
    cmsg->cmsg_len        = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(cmsg), &pair[0], sizeof(int));
    if ((ucs_sys_sendmsg(pair[0], &header, 0) != 1) ||
        (ucs_sys_recvmsg(pair[1], &header, MSG_CMSG_CLOEXEC) != 1)) {
        return -1;
    }
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(fd));
    return (fcntl(fd, F_GETFD) == FD_CLOEXEC) ? fd : -1;
}

/* What a program prints after it has closed its standard descriptors goes nowhere, and not to
 * where we talk to others. */
TEST_F(sys, never_the_standard_descriptors)
{
    EXPECT_TRUE(in_child([] {
        const std::function<int()> calls[] = {
            [] { return ucs_sys_open("/dev/null", O_RDWR | O_CLOEXEC, 0); },
            [] { return ucs_sys_memfd_create("test", MFD_CLOEXEC); },
            [] { return ucs_sys_shm_open("/halyard-test-sys", O_CREAT | O_RDWR, 0600); },
            [] { return ucs_sys_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); },
            [] { return ucs_sys_epoll_create1(EPOLL_CLOEXEC); },
            [] { return ucs_sys_eventfd(0, EFD_CLOEXEC); },
            [] { return ucs_sys_fcntl(ucs_sys_eventfd(0, EFD_CLOEXEC), F_DUPFD_CLOEXEC, 0); },
            [] { return ucs_sys_timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC); },
        };
        int pair[2];
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        close(0);
        close(1);
        close(2);
        int wrong = (received_through(pair) <= 2);
        for (const auto &call : calls) {
            const int fd = call();
            wrong       += (fd <= 2) || (fcntl(fd, F_GETFD) != FD_CLOEXEC);
        }
        for (int fd = 0; fd <= 2; ++fd) {
            wrong += (fcntl(fd, F_GETFD) >= 0);
        }
        ucs_sys_shm_unlink("/halyard-test-sys");
        return wrong == 0;
    }));
}

uint64_t g_fake_now;

uint64_t fake_clock()
{
    return g_fake_now += 1000;
}

uint64_t fake_random()
{
    return 42;
}

TEST_F(sys, table_is_complete)
{
    const void *entries[sizeof(ucs_sys_real) / sizeof(void *)];
    static_assert(sizeof(entries) == sizeof(ucs_sys_real), "only function pointers");
    memcpy(entries, &ucs_sys_real, sizeof(entries));
    for (const void *entry : entries) {
        EXPECT_NE(nullptr, entry);
    }
    EXPECT_EQ(&ucs_sys_real, ucs_sys);
}

TEST_F(sys, table_can_be_replaced)
{
    ucs_sys_ops_t fake = ucs_sys_real;
    fake.clock_ns      = fake_clock;
    fake.random64      = fake_random;

    g_fake_now = 0;
    EXPECT_EQ(&ucs_sys_real, ucs_sys_set(&fake));
    EXPECT_EQ(1000u, ucs_sys_clock_ns());
    EXPECT_EQ(2000u, ucs_sys_clock_ns());
    EXPECT_EQ(42u, ucs_sys_random64());
    EXPECT_EQ(&fake, ucs_sys_set(nullptr));
    EXPECT_NE(ucs_sys_random64(), ucs_sys_random64());
}

TEST_F(sys, clock_never_goes_back)
{
    uint64_t last = ucs_sys_clock_ns();
    for (int i = 0; i < 10000; ++i) {
        const uint64_t now = ucs_sys_clock_ns();
        ASSERT_GE(now, last);
        last = now;
    }
    ucs_sys_sleep_ns(2000000);
    EXPECT_GE(ucs_sys_clock_ns(), last + 2000000);
}

TEST_F(sys, random_numbers_differ_in_a_child_too)
{
    std::set<uint64_t> seen;
    for (int i = 0; i < 1000; ++i) {
        EXPECT_TRUE(seen.insert(ucs_sys_random64()).second);
    }

    int fds[2];
    ASSERT_EQ(0, pipe(fds));
    EXPECT_TRUE(in_child([&] {
        const uint64_t value = ucs_sys_random64();
        return write(fds[1], &value, sizeof(value)) == sizeof(value);
    }));
    uint64_t other = 0;
    ASSERT_EQ(static_cast<ssize_t>(sizeof(other)), read(fds[0], &other, sizeof(other)));
    EXPECT_NE(ucs_sys_random64(), other);
    EXPECT_EQ(0u, seen.count(other));
    close(fds[0]);
    close(fds[1]);
}

TEST_F(sys, memory_is_aligned_and_copied)
{
    seeded_random rnd(1);
    for (int i = 0; i < 2000; ++i) {
        const size_t alignment = sizeof(void *) << rnd.below(10);
        const size_t size      = rnd.below(5000);
        void *ptr              = ucs_sys_memalign(alignment, size);
        ASSERT_NE(nullptr, ptr);
        EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(ptr) % alignment);
        memset(ptr, 0x5a, size);
        ucs_sys_free(ptr);
    }

    char *copy = ucs_sys_strdup("hello");
    EXPECT_STREQ("hello", copy);
    ucs_sys_free(copy);
    copy = ucs_sys_strdup("");
    EXPECT_STREQ("", copy);
    ucs_sys_free(copy);
}

TEST_F(sys, boot_id_is_the_kernels)
{
    ucs_sys_id128_t a, b;
    ucs_sys_boot_id(&a);
    ucs_sys_boot_id(&b);
    EXPECT_EQ(a.words[0], b.words[0]);
    EXPECT_EQ(a.words[1], b.words[1]);

    char text[128];
    size_t length;
    if (ucs_sys_read_file("/proc/sys/kernel/random/boot_id", text, sizeof(text), &length) !=
        UCS_OK) {
        GTEST_SKIP() << "the kernel tells no boot id here";
    }
    char again[64];
    snprintf(again, sizeof(again), "%08x-%04x-%04x-%04x-%012llx\n",
             static_cast<unsigned>(a.words[0] >> 32),
             static_cast<unsigned>((a.words[0] >> 16) & 0xffff),
             static_cast<unsigned>(a.words[0] & 0xffff), static_cast<unsigned>(a.words[1] >> 48),
             static_cast<unsigned long long>(a.words[1] & 0xffffffffffffull));
    EXPECT_STREQ(text, again);
}

TEST_F(sys, host_name_is_always_a_string)
{
    char full[256], cut[3];
    ucs_sys_hostname(full, sizeof(full));
    EXPECT_GT(strlen(full), 0u);
    memset(cut, 'x', sizeof(cut));
    ucs_sys_hostname(cut, sizeof(cut));
    EXPECT_EQ(std::string(full).substr(0, 2), cut);

    ucs_sys_ops_t fake = ucs_sys_real;
    fake.gethostname   = [](char *, size_t) {
        errno = EPERM;
        return -1;
    };
    ucs_sys_set(&fake);
    ucs_sys_hostname(full, sizeof(full));
    EXPECT_STREQ("unknown", full);
}

TEST_F(sys, machine_facts)
{
    EXPECT_EQ(static_cast<size_t>(sysconf(_SC_PAGESIZE)), ucs_sys_page_size());
    const size_t total = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * ucs_sys_page_size();
    EXPECT_LE(ucs_sys_memory_limit(), total);
    EXPECT_GT(ucs_sys_memory_limit(), 1u << 20);
    EXPECT_EQ(ucs_sys_memory_limit(), ucs_sys_memory_limit());

    EXPECT_GE(ucs_sys_num_cpus(), 1u);
    EXPECT_TRUE(in_child([] {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(sched_getcpu(), &set);
        return (sched_setaffinity(0, sizeof(set), &set) == 0) && (ucs_sys_num_cpus() == 1);
    }));
}

TEST_F(sys, read_file_against_a_string)
{
    seeded_random rnd(2);
    char path[] = "/tmp/halyard-sys-XXXXXX";
    const int fd = mkstemp(path);
    ASSERT_GE(fd, 0);

    for (int i = 0; i < 500; ++i) {
        std::string content(rnd.below(200), 'a');
        for (char &c : content) {
            c = static_cast<char>('a' + rnd.below(26));
        }
        ASSERT_EQ(0, ftruncate(fd, 0));
        ASSERT_EQ(static_cast<ssize_t>(content.size()),
                  pwrite(fd, content.data(), content.size(), 0));

        const size_t max = 1 + rnd.below(220);
        std::vector<char> buf(max, 'x');
        size_t length       = SIZE_MAX;
        ucs_status_t status = ucs_sys_read_file(path, buf.data(), max, &length);
        EXPECT_EQ((content.size() < max) ? UCS_OK : UCS_ERR_EXCEEDS_LIMIT, status);
        EXPECT_EQ(content.substr(0, max - 1), std::string(buf.data()));
        EXPECT_EQ(strlen(buf.data()), length);
    }

    char buf[8];
    size_t length;
    ASSERT_EQ(UCS_OK, ucs_fault_set("read", "1"));
    EXPECT_EQ(UCS_ERR_IO_ERROR, ucs_sys_read_file(path, buf, sizeof(buf), &length));
    ASSERT_EQ(UCS_OK, ucs_fault_set("read", "1:EINTR"));
    EXPECT_NE(UCS_ERR_IO_ERROR, ucs_sys_read_file(path, buf, sizeof(buf), &length));
    close(fd);
    unlink(path);
    EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_sys_read_file(path, buf, sizeof(buf), &length));
}

/* What the kernel says of the caches of CPU 3, by file name; opening others fails. */
std::map<std::string, std::string> g_caches;

TEST_F(sys, cpus_behind_one_cache)
{
    ucs_sys_ops_t fake = ucs_sys_real;
    fake.open          = [](const char *path, int, mode_t) {
        const std::string folder = "/sys/devices/system/cpu/cpu3/cache/";
        const auto found         = std::string(path).rfind(folder, 0) == 0 ?
                                   g_caches.find(path + folder.size()) : g_caches.end();
        if (found == g_caches.end()) {
            errno = ENOENT;
            return -1;
        }
        const int fd = memfd_create("cache", MFD_CLOEXEC);
        EXPECT_EQ(static_cast<ssize_t>(found->second.size()),
                  pwrite(fd, found->second.data(), found->second.size(), 0));
        return fd;
    };
    ucs_sys_set(&fake);
    const auto behind = [](std::map<std::string, std::string> caches) {
        g_caches = caches;
        cpu_set_t cpus;
        memset(&cpus, 0xff, sizeof(cpus));
        ucs_sys_get_cache_cpus(3, &cpus);
        std::set<unsigned> set;
        for (unsigned i = 0; i < CPU_SETSIZE; ++i) {
            if (CPU_ISSET(i, &cpus)) {
                set.insert(i);
            }
        }
        return set;
    };
    const auto only = [&](const char *text) {
        return behind({{"index2/shared_cpu_list", text}});
    };
    using cpus = std::set<unsigned>;

    EXPECT_EQ(cpus(), behind({}));
    EXPECT_EQ(cpus({3}), only("3\n"));
    EXPECT_EQ(cpus({0, 1, 2, 3}), only("0-3\n"));
    EXPECT_EQ(cpus({3, 8, 64, 65, 66}), only("3,8,64-66\n"));
    EXPECT_EQ(cpus({3, 1023}), only("3,1023,1024,5000-6000\n"));
    EXPECT_EQ(1024u, only("0-99999999999999999999\n").size());
    for (const char *text : {"", "\n", "none", ",3", "-3"}) {
        EXPECT_LE(only(text).size(), 1024u) << text;
    }
    /* the farthest counts */
    EXPECT_EQ(cpus({2, 3, 4, 5}), behind({{"index0/shared_cpu_list", "3\n"},
                                          {"index2/shared_cpu_list", "3,5\n"},
                                          {"index3/shared_cpu_list", "2-5\n"}}));
    ucs_sys_set(nullptr);
    cpu_set_t own;
    ucs_sys_get_cache_cpus(0, &own); /* whatever the machine is */
}

/* Each call that has a fault point fails with the errno asked for, and does nothing. The arguments
 * are such that the real call would succeed or fail with another errno. */
TEST_F(sys, every_fault_point_is_where_it_says)
{
    struct stat info;
    char byte = 0;
    struct iovec iov   = {&byte, 1};
    struct msghdr msg  = {};
    struct pollfd pfd  = {-1, 0, 0};
    struct epoll_event event = {};
    struct sockaddr addr     = {};
    socklen_t length         = sizeof(addr);
    const pid_t pid          = getpid();

    const std::map<std::string, std::function<bool()>> calls = {
        {"malloc", [] { return ucs_sys_malloc(1) == nullptr; }},
        {"calloc", [] { return ucs_sys_calloc(1, 1) == nullptr; }},
        {"realloc", [] { return ucs_sys_realloc(nullptr, 1) == nullptr; }},
        {"memalign", [] { return ucs_sys_memalign(64, 1) == nullptr; }},
        {"mmap",
         [] {
             return ucs_sys_mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
                    MAP_FAILED;
         }},
        {"madvise", [] { return ucs_sys_madvise(nullptr, 0, 0) == -1; }},
        {"memfd_create", [] { return ucs_sys_memfd_create("x", 0) == -1; }},
        {"ftruncate", [] { return ucs_sys_ftruncate(-1, 0) == -1; }},
        {"fallocate", [] { return ucs_sys_fallocate(-1, 0, 0, 1) == -1; }},
        {"shm_open", [] { return ucs_sys_shm_open("/halyard-none", O_RDONLY, 0) == -1; }},
        {"shmget", [] { return ucs_sys_shmget(IPC_PRIVATE, 0, 0) == -1; }},
        {"shmat", [] { return ucs_sys_shmat(-1, nullptr, 0) == MAP_FAILED; }},
        {"shmctl", [] { return ucs_sys_shmctl(-1, IPC_STAT, nullptr) == -1; }},
        {"open", [] { return ucs_sys_open("/dev/null", O_RDONLY, 0) == -1; }},
        {"read", [&] { return ucs_sys_read(-1, &byte, 1) == -1; }},
        {"write", [&] { return ucs_sys_write(-1, &byte, 1) == -1; }},
        {"stat", [&] { return ucs_sys_stat("/dev/null", &info) == -1; }},
        {"fstat", [&] { return ucs_sys_fstat(0, &info) == -1; }},
        {"fchmod", [] { return ucs_sys_fchmod(-1, 0600) == -1; }},
        {"fcntl", [] { return ucs_sys_fcntl(0, F_GETFD, 0) == -1; }},
        {"socket", [] { return ucs_sys_socket(AF_UNIX, SOCK_STREAM, 0) == -1; }},
        {"bind", [&] { return ucs_sys_bind(-1, &addr, length) == -1; }},
        {"listen", [] { return ucs_sys_listen(-1, 1) == -1; }},
        {"connect", [&] { return ucs_sys_connect(-1, &addr, length) == -1; }},
        {"accept4", [&] { return ucs_sys_accept4(-1, &addr, &length, 0) == -1; }},
        {"getsockname", [&] { return ucs_sys_getsockname(-1, &addr, &length) == -1; }},
        {"getsockopt",
         [&] { return ucs_sys_getsockopt(-1, SOL_SOCKET, SO_TYPE, &addr, &length) == -1; }},
        {"setsockopt",
         [&] { return ucs_sys_setsockopt(-1, SOL_SOCKET, SO_TYPE, &addr, length) == -1; }},
        {"sendmsg", [&] { return ucs_sys_sendmsg(-1, &msg, 0) == -1; }},
        {"recvmsg", [&] { return ucs_sys_recvmsg(-1, &msg, 0) == -1; }},
        {"poll", [&] { return ucs_sys_poll(&pfd, 1, 0) == -1; }},
        {"epoll_create1", [] { return ucs_sys_epoll_create1(0) == -1; }},
        {"epoll_ctl", [&] { return ucs_sys_epoll_ctl(-1, EPOLL_CTL_ADD, -1, &event) == -1; }},
        {"epoll_wait", [&] { return ucs_sys_epoll_wait(-1, &event, 1, 0) == -1; }},
        {"eventfd", [] { return ucs_sys_eventfd(0, 0) == -1; }},
        {"process_vm_readv",
         [&] { return ucs_sys_process_vm_readv(pid, &iov, 1, &iov, 1, 0) == -1; }},
        {"process_vm_writev",
         [&] { return ucs_sys_process_vm_writev(pid, &iov, 1, &iov, 1, 0) == -1; }},
    };

    for (const auto &call : calls) {
        ASSERT_EQ(UCS_OK, ucs_fault_set(call.first.c_str(), "1:77"));
        errno = 0;
        EXPECT_TRUE(call.second()) << call.first;
        EXPECT_EQ(77, errno) << call.first;
        uint64_t reached = 0;
        EXPECT_EQ(UCS_OK, ucs_fault_query(call.first.c_str(), &reached, nullptr));
        EXPECT_EQ(1u, reached) << call.first;
        ucs_fault_clear(call.first.c_str());
    }

    /* and without an entry the calls are the real ones */
    void *ptr = ucs_sys_malloc(1);
    EXPECT_NE(nullptr, ptr);
    ucs_sys_free(ptr);
    EXPECT_EQ(0, ucs_sys_fstat(1, &info));
}

/* ------------------------------------------------------------------ text helpers */

std::string random_word(seeded_random &rnd, size_t max, const std::string &alphabet)
{
    std::string word(rnd.below(max + 1), ' ');
    for (char &c : word) {
        c = alphabet[rnd.below(alphabet.size())];
    }
    return word;
}

/* The definition of the distance, without a table. */
unsigned model_distance(const std::string &a, const std::string &b)
{
    if (a.empty() || b.empty()) {
        return a.size() + b.size();
    }
    const std::string a1 = a.substr(0, a.size() - 1), b1 = b.substr(0, b.size() - 1);
    unsigned best = std::min(model_distance(a1, b), model_distance(a, b1)) + 1;
    best = std::min(best, model_distance(a1, b1) + (a.back() != b.back()));
    if ((a.size() > 1) && (b.size() > 1) && (a.back() == b[b.size() - 2]) &&
        (b.back() == a[a.size() - 2])) {
        best = std::min(best, model_distance(a.substr(0, a.size() - 2),
                                             b.substr(0, b.size() - 2)) + 1);
    }
    return best;
}

TEST(string, distance_is_the_definition)
{
    seeded_random rnd(3);
    for (int i = 0; i < 1500; ++i) {
        const std::string a = random_word(rnd, 5, "abc"), b = random_word(rnd, 5, "abc");
        ASSERT_EQ(model_distance(a, b), ucs_str_distance(a.c_str(), b.c_str())) << a << " " << b;
        ASSERT_EQ(ucs_str_distance(b.c_str(), a.c_str()), ucs_str_distance(a.c_str(), b.c_str()));
    }
    EXPECT_EQ(0u, ucs_str_distance("RNDV_Thresh", "rndv_THRESH"));
    const std::string longer(1000, 'x');
    EXPECT_EQ(64u, ucs_str_distance(longer.c_str(), ""));

    const char *const words[] = {"eager", "rndv", "auto", nullptr};
    EXPECT_STREQ("eager", ucs_str_nearest("eagre", words));
    EXPECT_STREQ("auto", ucs_str_nearest("atuo", words));
    EXPECT_EQ(nullptr, ucs_str_nearest("something", words));
    EXPECT_EQ(nullptr, ucs_str_nearest("x", nullptr));
}

bool model_match(const char *pattern, const char *text)
{
    if (*pattern == '\0') {
        return *text == '\0';
    }
    if (*pattern == '*') {
        return model_match(pattern + 1, text) ||
               ((*text != '\0') && model_match(pattern, text + 1));
    }
    return (*text != '\0') && ((*pattern == '?') || (*pattern == *text)) &&
           model_match(pattern + 1, text + 1);
}

TEST(string, match_is_the_definition)
{
    seeded_random rnd(4);
    unsigned matches = 0;
    for (int i = 0; i < 20000; ++i) {
        const std::string pattern = random_word(rnd, 7, "ab*?"), text = random_word(rnd, 7, "ab");
        const bool expected       = model_match(pattern.c_str(), text.c_str());
        matches += expected;
        ASSERT_EQ(expected, ucs_str_match(pattern.c_str(), text.c_str()) != 0)
            << pattern << " " << text;
    }
    EXPECT_GT(matches, 1000u);

    /* a pattern that would take an exponential time if stars were tried anew */
    std::string pattern, text(2000, 'a');
    for (int i = 0; i < 100; ++i) {
        pattern += "a*";
    }
    EXPECT_FALSE(ucs_str_match((pattern + "b").c_str(), text.c_str()));
}

TEST(string, numbers)
{
    seeded_random rnd(5);
    char text[UCS_STR_DOUBLE_MAX];
    for (int i = 0; i < 20000; ++i) {
        const uint64_t bits = rnd.bits();
        double value, again;
        memcpy(&value, &bits, sizeof(value));
        if (!std::isfinite(value)) {
            continue;
        }
        ucs_str_print_double(text, sizeof(text), value);
        const char *end = ucs_str_parse_double(text, &again);
        ASSERT_NE(nullptr, end) << text;
        ASSERT_EQ('\0', *end) << text;
        ASSERT_EQ(value, again) << text;
    }

    for (int i = 0; i < 20000; ++i) {
        const uint64_t value = rnd.bits() >> rnd.below(64);
        uint64_t again       = 0;
        const std::string number = std::to_string(value);
        const char *end          = ucs_str_parse_u64((number + "k").c_str(), &again);
        ASSERT_NE(nullptr, end);
        ASSERT_EQ(value, again);
    }
    uint64_t value = 7;
    EXPECT_EQ(nullptr, ucs_str_parse_u64("18446744073709551616", &value));
    EXPECT_NE(nullptr, ucs_str_parse_u64("18446744073709551615", &value));
    EXPECT_EQ(UINT64_MAX, value);
    EXPECT_EQ(nullptr, ucs_str_parse_u64("", &value));
    EXPECT_EQ(nullptr, ucs_str_parse_u64("-1", &value));

    double real;
    for (const char *bad : {"", "-", ".5", "e5", "inf", "nan", " 1", "+1"}) {
        EXPECT_EQ(nullptr, ucs_str_parse_double(bad, &real)) << bad;
    }
    EXPECT_STREQ("x10", ucs_str_parse_double("0x10", &real));
    EXPECT_STREQ(".", ucs_str_parse_double("1.", &real));
    EXPECT_STREQ("e", ucs_str_parse_double("1e", &real));
    EXPECT_EQ(nullptr, ucs_str_parse_double(std::string(100, '9').c_str(), &real));
}

TEST(string, numbers_do_not_depend_on_the_locale)
{
    if (!set_comma_locale()) {
        GTEST_SKIP() << "no locale with a decimal comma is installed";
    }
    double real;
    char text[UCS_STR_DOUBLE_MAX];
    EXPECT_STREQ("", ucs_str_parse_double("1.5", &real));
    EXPECT_EQ(1.5, real);
    ucs_str_print_double(text, sizeof(text), 0.25);
    EXPECT_STREQ("0.25", text);
    setlocale(LC_ALL, "C");
}

TEST(string, appending_against_a_model)
{
    seeded_random rnd(9);
    std::string expected;
    char *text = nullptr;
    for (int step = 0; step < 1000; ++step) {
        const std::string more(rnd.below(rnd.one_in(10) ? 200 : 10), 'a' + rnd.below(26));
        const bool has_memory = !rnd.one_in(5);
        if (!has_memory) {
            ASSERT_EQ(UCS_OK, ucs_fault_set("realloc", "1"));
        }
        ucs_str_append(&text, "<%s %d>", more.c_str(), step);
        ucs_fault_clear(nullptr);
        expected += has_memory ? "<" + more + " " + std::to_string(step) + ">" : "";
        ASSERT_EQ(expected, (text != nullptr) ? text : "") << "step " << step;
    }
    ucs_sys_free(text);
}

TEST(string, copy_is_bounded)
{
    seeded_random rnd(6);
    for (int i = 0; i < 2000; ++i) {
        const std::string text = random_word(rnd, 20, "xyz");
        const size_t max       = rnd.below(24);
        std::vector<char> buf(max + 1, '#');
        const bool fits = ucs_str_copy(buf.data(), max, text.c_str());
        EXPECT_EQ(text.size() < max, fits);
        if (max > 0) {
            EXPECT_EQ(text.substr(0, max - 1), buf.data());
        }
        EXPECT_EQ('#', buf[max]);
    }
}

} // namespace
