/* Halyard: little shared memory, or none: a job still works, or ends with one clear error. It never
 * dies by a signal, and never floods the log.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <mp/node.h>
#include <mp/restrict.h>
#include <mp/snapshot.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

using mp::node;
using mp::processes;
using mp::self;

namespace {

constexpr size_t   NORMAL        = SIZE_MAX;
constexpr unsigned LOG_LINES_MAX = 5;

struct shortage {
    const char *name;
    bool        works;        /* or else: one error */
    size_t      dev_shm;      /* bytes of /dev/shm, 0: not writable */
    int         memfd_error;  /* of memfd_create; 0: it works */
    int         shmget_error; /* of shmget; 0: it works */
    size_t      shmmax;       /* System V limit, bytes */
    rlim_t      file_size;    /* RLIMIT_FSIZE */
};

std::ostream &operator<<(std::ostream &out, const shortage &s)
{
    return out << s.name;
}

const shortage SHORTAGES[] = {
    {"dev_shm_64k", true, 65536, 0, 0, NORMAL, RLIM_INFINITY},
    {"dev_shm_none", true, 0, 0, 0, NORMAL, RLIM_INFINITY},
    {"memfd_ENOSYS", true, NORMAL, ENOSYS, 0, NORMAL, RLIM_INFINITY},
    {"memfd_EPERM", true, NORMAL, EPERM, 0, NORMAL, RLIM_INFINITY},
    {"memfd_EMFILE_dev_shm_64k", true, 65536, EMFILE, 0, NORMAL, RLIM_INFINITY},
    {"memfd_EPERM_dev_shm_4k", true, 4096, EPERM, 0, NORMAL, RLIM_INFINITY},
    {"memfd_EPERM_dev_shm_none", true, 0, EPERM, 0, NORMAL, RLIM_INFINITY},
    {"no_sysv", true, NORMAL, 0, ENOSPC, NORMAL, RLIM_INFINITY},
    {"sysv_4k", true, NORMAL, 0, 0, 4096, RLIM_INFINITY},
    {"nothing_at_all", false, 0, EPERM, ENOSPC, NORMAL, RLIM_INFINITY},
    {"nothing_large_enough", false, 4096, ENOSYS, 0, 4096, RLIM_INFINITY},
    {"file_size_16k", true, NORMAL, 0, 0, NORMAL, 16384},
    {"file_size_1m", true, NORMAL, 0, 0, NORMAL, 1 << 20}, /* enough for rings, not for buffers */
};

/* Returns why this shortage cannot be had here. */
std::string bring_about(const shortage &s)
{
    std::string why;

    if ((s.dev_shm != NORMAL) || (s.shmmax != NORMAL)) {
        why = mp::private_shared_memory((s.dev_shm == NORMAL) ? (64u << 20) : s.dev_shm);
    }
    if (why.empty() && (s.shmmax != NORMAL)) {
        why = mp::limit_sysv(s.shmmax);
    }
    if (why.empty() && (s.memfd_error != 0)) {
        why = mp::deny_syscalls({SYS_memfd_create}, s.memfd_error);
    }
    if (why.empty() && (s.shmget_error != 0)) {
        why = mp::deny_syscalls({SYS_shmget}, s.shmget_error);
    }
    if (why.empty() && (s.file_size != RLIM_INFINITY)) {
        const struct rlimit limit = {s.file_size, s.file_size};

        why = (setrlimit(RLIMIT_FSIZE, &limit) == 0) ? "" : "setrlimit";
    }
    return why;
}

void exchange(self &me, node &n)
{
    n.connect_all();
    for (size_t length = 0; length < (2u << 20); length = (length * 4) + 3) {
        for (unsigned from = 0; from < me.count(); ++from) {
            std::vector<uint8_t> out(length), in(length);
            std::vector<ucs_status_ptr_t> requests;

            mp::fill(out.data(), length, from + length);
            if (from == me.index()) {
                for (unsigned to = 0; to < me.count(); ++to) {
                    requests.push_back(n.send(n.ep(to), out.data(), length, length + from));
                }
            }
            EXPECT_EQ(UCS_OK, n.wait(n.recv(in.data(), length, length + from)));
            EXPECT_EQ(-1, mp::find_difference(in.data(), length, from + length));
            for (ucs_status_ptr_t request : requests) {
                EXPECT_EQ(UCS_OK, n.wait(request));
            }
        }
    }
    n.barrier();
}

/* The library says so where it must: at the latest when an endpoint is made. */
void fail_cleanly(self &me)
{
    ucp_worker_params_t worker_params = {};
    ucp_params_t params               = {};
    ucp_context_h context;
    ucp_worker_h worker;

    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features   = UCP_FEATURE_TAG;
    me.own().words[0] = 1;
    if (ucp_init(&params, nullptr, &context) != UCS_OK) {
        return;
    }
    if (ucp_worker_create(context, &worker_params, &worker) == UCS_OK) {
        /* Messages to oneself need no shared memory; the peer's address leads nowhere. */
        ucp_address_t *address;
        ucp_ep_params_t ep_params = {};
        ucp_ep_h ep;
        size_t length;
        std::vector<uint8_t> other;

        ASSERT_EQ(UCS_OK, ucp_worker_get_address(worker, &address, &length));
        memcpy(me.own().address, address, length);
        me.own().address_serial = 1;
        ucp_worker_release_address(worker, address);
        while (me.at(1 - me.index()).address_serial == 0) {
            usleep(100);
        }
        ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        ep_params.address    =
            reinterpret_cast<const ucp_address_t *>(me.at(1 - me.index()).address);
        EXPECT_EQ(UCS_ERR_UNREACHABLE, ucp_ep_create(worker, &ep_params, &ep));
        ucp_worker_destroy(worker);
    }
    ucp_cleanup(context);
}

} // namespace

class shared_memory : public testing::TestWithParam<shortage> {};

/* Namespaces are made once, and both processes are in them; filters are inherited too. */
static void run_short_of(const shortage &s)
{
    const std::string why = bring_about(s);
    if (!why.empty()) {
        GTEST_SKIP() << "cannot make it so: " << why;
    }

    processes both(2);
    both.start_all([&](self &me) {
        if (!s.works) {
            fail_cleanly(me);
            return;
        }
        node n(me);
        exchange(me, n);
    });
    EXPECT_TRUE(both.join());
    if (s.works) {
        EXPECT_EQ(0u, both.log_lines()) << both.log(); /* what is not noticed need not be told */
    } else {
        EXPECT_GE(both.log_lines(), 1u);
        EXPECT_LE(both.log_lines(), 2 * LOG_LINES_MAX) << both.log();
    }
    EXPECT_EQ(std::set<std::string>(), mp::leftovers({both.first_pid(0), both.first_pid(1)}));
}

TEST_P(shared_memory, works_or_says_why)
{
    const int code = mp::run_apart([]() { run_short_of(GetParam()); });

    if (code == 77) {
        GTEST_SKIP() << "see above";
    }
    EXPECT_EQ(0, code);
}

INSTANTIATE_TEST_SUITE_P(, shared_memory, testing::ValuesIn(SHORTAGES),
                         [](const testing::TestParamInfo<shortage> &info) {
                             return std::string(info.param.name);
                         });
