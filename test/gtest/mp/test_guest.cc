/* Halyard: a library is a guest in a process: it leaves signals, threads, names and settings as
 * they are, survives what its host does (fork, several contexts, many workers), and leaves without
 * trace.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "node.h"
#include "snapshot.h"

#include <ucs/sys/compiler.h>

#include <algorithm>
#include <cstdlib>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using mp::node;
using mp::processes;
using mp::process_state;
using mp::self;

namespace {

constexpr size_t LARGE = 1u << 20;

/* Small and large messages to and from another process. */
void exchange(node &n, ucp_ep_h ep, uint64_t id)
{
    for (size_t length : {(size_t)8, (size_t)3000, LARGE}) {
        std::vector<uint8_t> out(length), in(length);

        mp::fill(out.data(), length, id + length);
        ucs_status_ptr_t sent = n.send(ep, out.data(), length, id + length);
        EXPECT_EQ(UCS_OK, n.wait(n.recv(in.data(), length, id + length)));
        EXPECT_EQ(-1, mp::find_difference(in.data(), length, id + length));
        EXPECT_EQ(UCS_OK, n.wait(sent));
    }
}

void run_two(const std::function<void(self &)> &func)
{
    processes both(2);

    both.start_all(func);
    EXPECT_TRUE(both.join());
    EXPECT_EQ(0u, both.log_lines()) << both.log();
    EXPECT_EQ(std::set<std::string>(), mp::leftovers({both.first_pid(0), both.first_pid(1)}));
}

int exit_code_of(pid_t pid)
{
    int status;

    EXPECT_EQ(pid, waitpid(pid, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

} // namespace

TEST(guest, leaves_everything_as_it_was)
{
    run_two([](self &me) {
        const process_state before;
        {
            node n(me);

            n.connect_all();
            exchange(n, n.ep(1 - me.index()), 1);
            exchange(n, n.ep(me.index()), 1000000 + me.index());
            {
                process_state during;
                during.descriptors = before.descriptors; /* these are ours while we are here */
                mp::expect_same_state(before, during, "in use");
            }
            n.barrier();
        }
        mp::expect_same_state(before, process_state(), "after the end");
    });
}

/* Waiting needs descriptors, but neither threads nor signals. */
TEST(guest, waiting_takes_no_thread)
{
    run_two([](self &me) {
        const process_state before;
        {
            node n(me);
            int fd;

            n.connect_all();
            exchange(n, n.ep(1 - me.index()), 1);
            ASSERT_EQ(UCS_OK, ucp_worker_get_efd(n.worker(), &fd));
            while (ucp_worker_arm(n.worker()) == UCS_ERR_BUSY) {
                ucp_worker_progress(n.worker());
            }
            process_state during;
            during.descriptors = before.descriptors;
            mp::expect_same_state(before, during, "armed");
            n.barrier();
        }
        mp::expect_same_state(before, process_state(), "after the end");
    });
}

TEST(guest, nothing_grows_from_life_to_life)
{
#if UCS_HAVE_ASAN || UCS_HAVE_TSAN
    GTEST_SKIP() << "the sanitizer's allocator maps memory of its own";
#endif
    run_two([](self &me) {
        size_t mappings = 0, descriptors = 0;

        for (unsigned life = 0; life < 30; ++life) {
            {
                node n(me);

                n.publish();
                ucp_ep_h ep = n.connect(1 - me.index(), life + 1);
                exchange(n, ep, 1);
                n.barrier();
                n.close(ep);
                n.barrier();
            }
            if (life == 5) {
                mappings    = mp::count_mappings();
                descriptors = mp::count_descriptors();
            }
        }
        EXPECT_LE(mp::count_mappings(), mappings + 2); /* the heap may split one */
        EXPECT_EQ(descriptors, mp::count_descriptors());
    });
}

/* ---- fork ---- */

/* The application forks and the child has nothing to do with us: it ends in each of the usual
 * ways. */
TEST(guest, fork_of_a_child_that_ends)
{
    run_two([](self &me) {
        node n(me);

        n.connect_all();
        exchange(n, n.ep(1 - me.index()), 1);
        for (unsigned way = 0; way < 4; ++way) {
            const pid_t child = fork();
            ASSERT_GE(child, 0);
            if (child == 0) {
                switch (way) {
                case 0:
                    _exit(0);
                case 1:
                    quick_exit(0);
                case 2:
                    execl("/bin/true", "true", nullptr);
                    _exit(1);
                default:
                    usleep(20000); /* while the parent goes on */
                    _exit(0);
                }
            }
            exchange(n, n.ep(1 - me.index()), 100 * way);
            EXPECT_EQ(0, exit_code_of(child)) << "way " << way;
            exchange(n, n.ep(1 - me.index()), (100 * way) + 50);
        }
        EXPECT_EQ(0u, n.errors(n.ep(1 - me.index())).count);
        n.barrier();
    });
}

/* What a program started by the application must not inherit. */
TEST(guest, no_descriptor_is_inherited_by_a_program)
{
    run_two([](self &me) {
        node n(me);

        n.connect_all();
        exchange(n, n.ep(1 - me.index()), 1);
        FILE *list = popen("ls -l /proc/self/fd", "r");
        ASSERT_NE(nullptr, list);
        char line[512];
        while (fgets(line, sizeof(line), list) != nullptr) {
            for (const char *ours : {"memfd", "socket:", "eventpoll", "eventfd"}) {
                EXPECT_EQ(nullptr, strstr(line, ours)) << line;
            }
        }
        pclose(list);
        n.barrier();
    });
}

/* The child makes a life of its own, and talks to its parent and to another process. */
TEST(guest, fork_of_a_child_that_starts_anew)
{
    processes all(3);

    all.start(0, [](self &me) {
        node n(me);

        n.publish();
        n.connect(1);
        exchange(n, n.ep(1), 1);
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            self as_third(2, 3, &me.at(0));
            {
                node own(as_third);

                own.publish();
                own.connect(0);
                own.connect(1);
                exchange(own, own.ep(0), 5);
                exchange(own, own.ep(1), 7);
                exchange(own, own.ep(2 - 1), 8);
                own.barrier();
            }
            fflush(stdout);
            _exit(testing::Test::HasFailure() ? 1 : 0);
        }
        n.connect(2);
        exchange(n, n.ep(2), 5);
        exchange(n, n.ep(1), 3);
        n.barrier();
        me.waits_for("its child's end");
        EXPECT_EQ(0, exit_code_of(child));
    });
    all.start(1, [](self &me) {
        node n(me);

        n.publish();
        n.connect(0);
        exchange(n, n.ep(0), 1);
        n.connect(2);
        exchange(n, n.ep(2), 7);
        exchange(n, n.ep(2), 8);
        exchange(n, n.ep(0), 3);
        n.barrier();
    });
    EXPECT_TRUE(all.join());
    EXPECT_EQ(0u, all.log_lines()) << all.log();
}

/* What the child inherits is of no use to it, and what it does with it disturbs nobody. */
TEST(guest, fork_of_a_child_that_uses_what_it_inherited)
{
    run_two([](self &me) {
        const unsigned other = 1 - me.index();
        node *n              = new node(me);

        n->connect_all();
        exchange(*n, n->ep(other), 1);
        for (unsigned way = 0; way < 2; ++way) {
            const pid_t child = fork();
            ASSERT_GE(child, 0);
            if (child == 0) {
                char byte = 0;

                if (way == 0) {
                    for (unsigned i = 0; i < 3; ++i) {
                        ucs_status_ptr_t request = n->send(n->ep(other), &byte, 1, 1);
                        EXPECT_TRUE(UCS_STATUS_IS_ERR(n->wait(request)));
                        n->progress();
                    }
                    EXPECT_EQ(1u, n->errors(n->ep(other)).count);
                }
                delete n; /* as a destructor of a static object would */
                fflush(stdout);
                _exit(testing::Test::HasFailure() ? 1 : 0);
            }
            exchange(*n, n->ep(other), 100 * way);
            EXPECT_EQ(0, exit_code_of(child)) << "way " << way;
            exchange(*n, n->ep(other), (100 * way) + 50);
        }
        EXPECT_EQ(0u, n->errors(n->ep(other)).count);
        n->barrier();
        delete n;
    });
}

/* ---- several contexts, many workers ---- */

TEST(guest, two_contexts_in_one_process)
{
    processes both(2);

    both.start_all([](self &me) {
        ucp_params_t params               = {};
        ucp_worker_params_t worker_params = {};
        ucp_context_h context;
        ucp_worker_h worker;
        ucp_config_t *config;
        ucp_address_t *address;
        size_t length;

        node n(me); /* with a context of its own */
        n.connect_all();

        ASSERT_EQ(UCS_OK, ucp_config_read(nullptr, nullptr, &config));
        ASSERT_EQ(UCS_OK, ucp_config_modify(config, "TLS", "mm"));
        ASSERT_EQ(UCS_OK, ucp_config_modify(config, "RNDV_THRESH", "100"));
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features   = UCP_FEATURE_TAG;
        ASSERT_EQ(UCS_OK, ucp_init(&params, config, &context));
        ucp_config_release(config);
        ASSERT_EQ(UCS_OK, ucp_worker_create(context, &worker_params, &worker));
        ASSERT_EQ(UCS_OK, ucp_worker_get_address(worker, &address, &length));

        /* from the second context's worker to the first one's, in this process, and back */
        ucp_ep_params_t ep_params         = {};
        const ucp_request_param_t nothing = {};
        ucp_ep_h there, back;
        ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        ep_params.address    = address;
        ASSERT_EQ(UCS_OK, ucp_ep_create(n.worker(), &ep_params, &back));
        ep_params.address = reinterpret_cast<const ucp_address_t *>(me.own().address);
        ASSERT_EQ(UCS_OK, ucp_ep_create(worker, &ep_params, &there));
        for (size_t size : {(size_t)8, (size_t)3000, LARGE}) {
            std::vector<uint8_t> out(size), in(size), in2(size);
            mp::fill(out.data(), size, size);
            ucs_status_ptr_t requests[] = {
                ucp_tag_send_nbx(there, out.data(), size, size, &nothing),
                ucp_tag_send_nbx(back, out.data(), size, size, &nothing),
                n.recv(in.data(), size, size),
                ucp_tag_recv_nbx(worker, in2.data(), size, size, UINT64_MAX, &nothing)};
            for (ucs_status_ptr_t request : requests) {
                ASSERT_FALSE(UCS_PTR_IS_ERR(request));
                n.until([&]() {
                    ucp_worker_progress(worker);
                    return !UCS_PTR_IS_PTR(request) || ucp_request_is_completed(request);
                });
                if (UCS_PTR_IS_PTR(request)) {
                    EXPECT_EQ(UCS_OK, ucp_request_check_status(request));
                    ucp_request_free(request);
                }
            }
            EXPECT_EQ(-1, mp::find_difference(in.data(), size, size));
            EXPECT_EQ(-1, mp::find_difference(in2.data(), size, size));
        }
        exchange(n, n.ep(1 - me.index()), 1);

        ucp_worker_release_address(worker, address);
        ucp_worker_destroy(worker);
        ucp_cleanup(context);
        exchange(n, n.ep(1 - me.index()), 2); /* the other context is as it was */
        n.barrier();
    });
    EXPECT_TRUE(both.join());
    EXPECT_EQ(0u, both.log_lines()) << both.log();
}

namespace {

constexpr unsigned WORKERS = 64;

/* Many workers of one process, each of which sends to each. */
class crowd {
public:
    crowd()
    {
        ucp_params_t params               = {};
        ucp_worker_params_t worker_params = {};

        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features   = UCP_FEATURE_TAG;
        EXPECT_EQ(UCS_OK, ucp_init(&params, nullptr, &m_context));
        for (unsigned i = 0; i < WORKERS; ++i) {
            EXPECT_EQ(UCS_OK, ucp_worker_create(m_context, &worker_params, &m_workers[i]));
        }
    }

    ~crowd()
    {
        for (ucp_worker_h worker : m_workers) {
            ucp_worker_destroy(worker);
        }
        ucp_cleanup(m_context);
    }

    void connect()
    {
        for (unsigned to = 0; to < WORKERS; ++to) {
            ucp_ep_params_t params = {};
            ucp_address_t *address;
            size_t length;

            ASSERT_EQ(UCS_OK, ucp_worker_get_address(m_workers[to], &address, &length));
            params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
            params.address    = address;
            for (unsigned from = 0; from < WORKERS; ++from) {
                ASSERT_EQ(UCS_OK, ucp_ep_create(m_workers[from], &params, &m_eps[from][to]));
            }
            ucp_worker_release_address(m_workers[to], address);
        }
    }

    void exchange(size_t length)
    {
        const ucp_request_param_t nothing = {};
        std::vector<ucs_status_ptr_t> requests;
        std::vector<std::vector<uint8_t>> out, in;
        size_t ended = 0;

        for (unsigned from = 0; from < WORKERS; ++from) {
            out.emplace_back(length);
            mp::fill(out.back().data(), length, from);
            for (unsigned to = 0; to < WORKERS; ++to) {
                in.emplace_back(length);
                requests.push_back(ucp_tag_recv_nbx(m_workers[to], in.back().data(), length, from,
                                                    UINT64_MAX, &nothing));
                requests.push_back(ucp_tag_send_nbx(m_eps[from][to], out[from].data(), length,
                                                    from, &nothing));
            }
        }
        while (ended < requests.size()) {
            for (ucp_worker_h worker : m_workers) {
                ucp_worker_progress(worker);
            }
            while ((ended < requests.size()) &&
                   (!UCS_PTR_IS_PTR(requests[ended]) ||
                    ucp_request_is_completed(requests[ended]))) {
                if (UCS_PTR_IS_PTR(requests[ended])) {
                    ASSERT_EQ(UCS_OK, ucp_request_check_status(requests[ended]));
                    ucp_request_free(requests[ended]);
                } else {
                    ASSERT_EQ(nullptr, requests[ended]);
                }
                ++ended;
            }
        }
        for (size_t i = 0; i < in.size(); ++i) {
            EXPECT_EQ(-1, mp::find_difference(in[i].data(), length, i / WORKERS));
        }
    }

private:
    ucp_context_h m_context;
    ucp_worker_h  m_workers[WORKERS] = {};
    ucp_ep_h      m_eps[WORKERS][WORKERS];
};

} // namespace

TEST(guest, many_workers_in_one_process)
{
    const int code = mp::run_apart([]() {
        struct rlimit limit;

        /* A connection takes a descriptor at each end, and here both ends are ours. */
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = limit.rlim_max;
        if (limit.rlim_max < 3 * WORKERS * WORKERS) {
            GTEST_SKIP() << "only " << limit.rlim_max << " descriptors";
        }
        setrlimit(RLIMIT_NOFILE, &limit);
        crowd c;
        c.connect();
        for (size_t length : {(size_t)8, (size_t)2000, (size_t)20000}) {
            c.exchange(length);
        }
    });

    if (code == 77) {
        GTEST_SKIP() << "see above";
    }
    EXPECT_EQ(0, code);
}
