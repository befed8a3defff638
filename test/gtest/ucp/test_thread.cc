/* Halyard: tests of workers that several threads use at once (UCS_THREAD_MODE_MULTI), and of
 * several workers with a thread each.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <fake_sys.h>
#include <ucp/server.h>
#include <ucs/config/global.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ucp_test;

namespace {

std::vector<variant> multi_variants()
{
    std::vector<variant> list;
    for (variant each : some_variants()) {
        each.mode = UCS_THREAD_MODE_MULTI;
        list.push_back(each);
    }
    list.push_back({"self_both",
                    {{"UCX_TLS", "self"}, {"UCX_RNDV_SCHEME", "both"}},
                    true,
                    UCS_THREAD_MODE_MULTI});
    return list;
}

class thread : public variant_test {};

INSTANTIATE_TEST_SUITE_P(all, thread, testing::ValuesIn(multi_variants()), variant_name);

constexpr int NUM_THREADS = 3;
constexpr int NUM_ROUNDS  = 60;

/* Waits without a deadline of its own: the test's watcher has one. */
ucs_status_t wait(ucp_worker_h worker, void *request, ucp_tag_recv_info_t *info = nullptr)
{
    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_RAW_STATUS(request);
    }
    while (ucp_request_check_status(request) == UCS_INPROGRESS) {
        if (ucp_worker_progress(worker) == 0) {
            std::this_thread::yield();
        }
    }
    const ucs_status_t status = ucp_request_test(request, info);
    ucp_request_free(request);
    return status;
}

size_t length_of(int thread, int round)
{
    static const size_t lengths[] = {0, 8, 60, 1000, 8192, 30000, 150000};
    return lengths[(thread + round) % 7];
}

TEST_P(thread, all_post_and_progress_one_worker)
{
    pair pair(GetParam());
    std::vector<std::thread> threads;
    std::atomic<int> num_running{2 * NUM_THREADS};
    std::atomic<int> num_wrong{0};

    for (int t = 0; t < NUM_THREADS; ++t) {
        threads.emplace_back([&, t]() {
            for (int i = 0; i < NUM_ROUNDS; ++i) {
                const bytes data                = pattern(t * 1000 + i, length_of(t, i));
                const ucp_request_param_t param = send_param(nullptr);
                const ucp_tag_t tag             = (static_cast<ucp_tag_t>(t) << 32) | i;
                void *request =
                    (i % 3)
                        ? ucp_tag_send_nbx(pair.ep(), data.data(), data.size(), tag, &param)
                        : ucp_tag_send_sync_nbx(pair.ep(), data.data(), data.size(), tag, &param);
                num_wrong += (wait(pair.sender().handle(), request) != UCS_OK);
            }
            --num_running;
            while (num_running > 0) { /* the other side may still need our answers */
                ucp_worker_progress(pair.sender().handle());
                std::this_thread::yield();
            }
        });
        threads.emplace_back([&, t]() {
            for (int i = 0; i < NUM_ROUNDS; ++i) {
                const size_t length = length_of(t, i);
                bytes buffer(length);
                ucp_tag_recv_info_t info  = {};
                const ucp_tag_t tag       = (static_cast<ucp_tag_t>(t) << 32) | i;
                ucp_request_param_t param = receive_param(nullptr, UCP_OP_ATTR_FIELD_RECV_INFO);
                param.recv_info.tag_info  = &info;
                void *request =
                    ucp_tag_recv_nbx(pair.receiver().handle(), buffer.data(), length, tag,
                                     (i & 1) ? ~0ull : 0x00000003ffffffffull, &param);
                num_wrong += (wait(pair.receiver().handle(), request, &info) != UCS_OK);
                num_wrong += (info.length != length) || (info.sender_tag != tag);
                num_wrong += (differs(buffer.data(), length, t * 1000 + i) >= 0);
            }
            --num_running;
            while (num_running > 0) {
                ucp_worker_progress(pair.receiver().handle());
                std::this_thread::yield();
            }
        });
    }
    for (std::thread &each : threads) {
        each.join();
    }
    EXPECT_EQ(0, num_wrong);
    pair.settle();
    EXPECT_EQ(0u, ucp_test_num_requests(pair.sender().handle()));
    EXPECT_EQ(0u, ucp_test_num_requests(pair.receiver().handle()));
    EXPECT_EQ(0u, ucp_test_num_kept(pair.receiver().handle()));
}

/* One thread progresses, the others only post and look at their requests, without a lock. */
TEST_P(thread, one_progresses_and_others_watch)
{
    pair pair(GetParam());
    std::atomic<bool> stop{false};
    std::atomic<int> num_wrong{0};
    std::thread progress([&]() {
        while (!stop) {
            if (pair.progress() == 0) {
                std::this_thread::yield();
            }
        }
    });
    std::vector<std::thread> threads;

    for (int t = 0; t < NUM_THREADS; ++t) {
        threads.emplace_back([&, t]() {
            const ucp_request_param_t param = send_param(nullptr);
            for (uint64_t i = 0; i < NUM_ROUNDS; ++i) {
                const size_t length = length_of(t, i);
                const bytes data    = pattern(i, length);
                bytes buffer(length);
                void *received = ucp_tag_recv_nbx(pair.receiver().handle(), buffer.data(), length,
                                                  (t * 1000) + i, ~0ull, &param);
                void *sent =
                    ucp_tag_send_sync_nbx(pair.ep(), data.data(), length, (t * 1000) + i, &param);
                ucp_tag_recv_info_t info = {};
                while ((ucp_request_test(received, &info) == UCS_INPROGRESS) ||
                       !ucp_request_is_completed(sent)) {
                    std::this_thread::yield();
                }
                num_wrong += (info.length != length);
                num_wrong += (buffer != data);
                ucp_request_free(received);
                ucp_request_free(sent);
            }
        });
    }
    for (std::thread &each : threads) {
        each.join();
    }
    stop = true;
    progress.join();
    EXPECT_EQ(0, num_wrong);
    EXPECT_EQ(0u, ucp_test_num_requests(pair.sender().handle()));
}

/* Callbacks run with the lock held and call back in: free, post, cancel, probe, progress. */
TEST_P(thread, callbacks_call_back_in)
{
    pair pair(GetParam());
    std::atomic<bool> stop{false};
    std::thread other([&]() {
        while (!stop) {
            pair.progress();
            ucp_tag_recv_info_t info;
            ucp_tag_probe_nb(pair.receiver().handle(), 99, ~0ull, 0, &info);
        }
    });
    uint64_t value = 0, got = 0;
    std::atomic<int> rounds{0};
    ending received;
    const ucp_request_param_t rparam = receive_param(&received, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    const ucp_request_param_t sparam = send_param(nullptr);

    received.action = [&]() {
        uint64_t nothing = 0;
        ucp_request_cancel(
            pair.receiver().handle(),
            ucp_tag_recv_nbx(pair.receiver().handle(), &nothing, 8, 55, ~0ull, &sparam));
        EXPECT_EQ(0u, ucp_worker_progress(pair.receiver().handle()));
        if (++rounds < 200) {
            ucp_tag_recv_nbx(pair.receiver().handle(), &got, 8, 1, ~0ull, &rparam);
        }
    };
    ucp_tag_recv_nbx(pair.receiver().handle(), &got, 8, 1, ~0ull, &rparam);
    for (int i = 0; i < 200; ++i) {
        EXPECT_EQ(UCS_OK, wait(pair.sender().handle(), pair.send(&value, 8, 1)));
    }
    while (rounds < 200) {
        pair.progress();
    }
    stop = true;
    other.join();
}

TEST_P(thread, endpoints_made_while_others_progress)
{
    pair pair(GetParam());
    std::atomic<bool> stop{false};
    std::thread other([&]() {
        while (!stop) {
            pair.progress();
        }
    });
    const bytes address = pair.receiver().address();
    std::vector<std::thread> threads;
    std::atomic<int> num_wrong{0};

    for (int t = 0; t < NUM_THREADS; ++t) {
        threads.emplace_back([&, t]() {
            for (uint64_t i = 0; i < 40; ++i) {
                ucp_ep_params_t params;
                ucp_ep_h ep       = nullptr;
                params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
                params.address    = reinterpret_cast<const ucp_address_t *>(address.data());
                if (ucp_ep_create(pair.sender().handle(), &params, &ep) != UCS_OK) {
                    ++num_wrong;
                    return;
                }
                const ucp_request_param_t param = send_param(nullptr);
                const uint64_t tag              = (t * 1000) + i;
                uint64_t got                    = 0;
                void *sent                      = ucp_tag_send_nbx(ep, &tag, 8, tag, &param);
                void *received =
                    ucp_tag_recv_nbx(pair.receiver().handle(), &got, 8, tag, ~0ull, &param);
                num_wrong += (wait(pair.receiver().handle(), received) != UCS_OK);
                num_wrong += (wait(pair.sender().handle(), sent) != UCS_OK);
                num_wrong += (got != tag);
                num_wrong += (wait(pair.sender().handle(), ucp_ep_flush_nbx(ep, &param)) != UCS_OK);
                num_wrong += (wait(pair.sender().handle(), ucp_ep_close_nbx(ep, &param)) != UCS_OK);
            }
        });
    }
    for (std::thread &each : threads) {
        each.join();
    }
    stop = true;
    other.join();
    EXPECT_EQ(0, num_wrong);
}

/* Memory is registered, its key unpacked and used, and all of it ended by several threads. */
TEST_P(thread, memory_comes_and_goes_while_others_use_theirs)
{
    context_options options;
    options.features = UCP_FEATURE_RMA;
    pair pair(GetParam(), options);
    std::vector<std::thread> threads;
    std::atomic<int> num_running{NUM_THREADS};
    std::atomic<int> num_wrong{0};
    const auto use = [&](int number, bool is_allocated) {
        const size_t length             = length_of(number, 1);
        const ucp_request_param_t param = send_param(nullptr);
        const bytes data                = pattern(number, length);
        bytes heap(length), got(length);
        ucp_mem_map_params_t params;
        ucp_mem_attr_t attr;
        ucp_mem_h memh;
        ucp_rkey_h rkey;
        void *packed;
        size_t packed_length;

        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                            UCP_MEM_MAP_PARAM_FIELD_FLAGS;
        params.address    = is_allocated ? nullptr : heap.data();
        params.length     = length;
        params.flags      = is_allocated ? UCP_MEM_MAP_ALLOCATE : 0;
        attr.field_mask   = UCP_MEM_ATTR_FIELD_ADDRESS;
        if ((ucp_mem_map(pair.ctx().handle(), &params, &memh) != UCS_OK) ||
            (ucp_mem_query(memh, &attr) != UCS_OK) ||
            (ucp_rkey_pack(pair.ctx().handle(), memh, &packed, &packed_length) != UCS_OK) ||
            (ucp_ep_rkey_unpack(pair.ep(), packed, &rkey) != UCS_OK)) {
            ++num_wrong;
            return;
        }
        ucp_rkey_buffer_release(packed);
        const auto address = reinterpret_cast<uintptr_t>(attr.address);
        const auto end     = [&](void *request) {
            while (UCS_PTR_IS_PTR(request) &&
                   (ucp_request_check_status(request) == UCS_INPROGRESS)) {
                pair.progress();
                std::this_thread::yield();
            }
            num_wrong += (wait(pair.sender().handle(), request) != UCS_OK);
        };
        end(ucp_put_nbx(pair.ep(), data.data(), length, address, rkey, &param));
        end(ucp_ep_flush_nbx(pair.ep(), &param));
        num_wrong += (differs(attr.address, length, number) >= 0);
        end(ucp_get_nbx(pair.ep(), got.data(), length, address, rkey, &param));
        num_wrong += (got != data);
        ucp_rkey_destroy(rkey);
        num_wrong += (ucp_mem_unmap(pair.ctx().handle(), memh) != UCS_OK);
    };

    for (int t = 0; t < NUM_THREADS; ++t) {
        threads.emplace_back([&, t]() {
            for (int i = 0; i < 30; ++i) {
                use((30 * t) + i, (i & 1) != 0);
            }
            --num_running;
            while (num_running > 0) {
                pair.progress();
                std::this_thread::yield();
            }
        });
    }
    for (std::thread &each : threads) {
        each.join();
    }
    EXPECT_EQ(0, num_wrong);
}

/* Names of one letter each: one that is being written is none of them. */
TEST_P(thread, queries_beside_all_else)
{
    pair pair(GetParam());
    const ucp_request_param_t param = send_param(nullptr);
    const ucp_ep_h ep               = pair.ep();
    std::atomic<int> tag{0}, num_wrong{0};
    std::atomic<bool> is_over{false};
    constexpr int COUNT = 60;
    std::thread other([&]() {
        char text[128];
        for (int i = 0; i < COUNT; ++i) {
            uint64_t value = 0;
            void *request =
                ucp_tag_recv_nbx(pair.receiver().handle(), &value, sizeof(value), i, ~0ull, &param);
            tag = i + 1;
            ucp_request_attr_t attr;
            attr.field_mask = UCP_REQUEST_ATTR_FIELD_INFO_STRING |
                              UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE |
                              UCP_REQUEST_ATTR_FIELD_STATUS;
            attr.debug_string      = text;
            attr.debug_string_size = sizeof(text);
            do {
                num_wrong += (ucp_request_query(request, &attr) != UCS_OK);
                ucp_ep_attr_t ep_attr;
                ep_attr.field_mask = UCP_EP_ATTR_FIELD_NAME;
                num_wrong += (ucp_ep_query(ep, &ep_attr) != UCS_OK);
                const std::string name(ep_attr.name);
                num_wrong += (i > 0) && (name != std::string(name.size(), name[0]));
                std::this_thread::yield();
            } while (attr.status == UCS_INPROGRESS);
            ucp_request_free(request);
        }
        is_over = true;
    });
    for (uint64_t i = 0; i < COUNT; ++i) {
        const std::string name((i % 2) ? 30 : 20, (i % 2) ? 'a' : 'b');
        ucp_ep_params_t params;
        params.field_mask = UCP_EP_PARAM_FIELD_NAME;
        params.name       = name.c_str();
        num_wrong        += (ucp_ep_modify_nb(ep, &params) != nullptr);
        pair.progress_until([&] { return tag > (int)i; });
        EXPECT_EQ(UCS_OK, pair.wait(pair.send(&i, sizeof(i), i)));
    }
    pair.progress_until([&] { return is_over.load(); });
    other.join();
    EXPECT_EQ(0, num_wrong);
}

/* The peer, its lanes and its protocols are replaced by another thread's progress. */
TEST(threads, endpoints_are_queried_while_they_connect)
{
    log_catcher log;
    context context;
    worker client(context, UCS_THREAD_MODE_MULTI), host(context, UCS_THREAD_MODE_MULTI);
    server_test::server server(host, server_test::address(AF_INET));
    ASSERT_EQ(UCS_OK, server.status);

    for (int i = 0; i < 20; ++i) {
        const server_test::address where = server.where();
        ucp_ep_params_t params;
        ucp_ep_h ep = nullptr, accepted = nullptr;
        params.field_mask       = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
        params.flags            = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
        params.sockaddr.addr    = where.get();
        params.sockaddr.addrlen = where.length();
        ASSERT_EQ(UCS_OK, ucp_ep_create(client.handle(), &params, &ep));
        std::atomic<bool> is_connected{false};
        std::thread other([&]() {
            ucp_ep_evaluate_perf_param_t how = {UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE, 8};
            ucp_ep_evaluate_perf_attr_t perf = {UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME, 0};
            ucp_transport_entry_t entries[8];
            ucp_ep_attr_t attr;
            do {
                attr.field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS;
                attr.transports = {entries, 8, sizeof(entries[0])};
                EXPECT_EQ(UCS_OK, ucp_ep_query(ep, &attr));
                EXPECT_EQ(UCS_OK, ucp_ep_evaluate_perf(ep, &how, &perf));
            } while (attr.transports.num_entries == 0);
            is_connected = true;
        });
        while (!is_connected) {
            client.progress();
            host.progress();
            if (!server.requests.empty()) {
                params.field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST;
                params.conn_request = server.take();
                EXPECT_EQ(UCS_OK, ucp_ep_create(host.handle(), &params, &accepted));
            }
        }
        other.join();
        const ucp_request_param_t param = send_param(nullptr);
        void *requests[] = {ucp_ep_close_nbx(ep, &param), ucp_ep_close_nbx(accepted, &param)};
        for (void *request : requests) {
            while (UCS_PTR_IS_PTR(request) &&
                   (ucp_request_check_status(request) == UCS_INPROGRESS)) {
                client.progress();
                host.progress();
            }
            if (UCS_PTR_IS_PTR(request)) {
                ucp_request_free(request);
            }
        }
    }
}

/* Each has a configuration of its own, but some options are the process's. */
TEST(threads, options_of_the_process_are_set_and_read)
{
    log_catcher log;
    std::vector<std::thread> threads;

    for (int t = 0; t < NUM_THREADS; ++t) {
        threads.emplace_back([&]() {
            for (int i = 0; i < 20; ++i) {
                ucp_config_t *config;
                ASSERT_EQ(UCS_OK, ucp_config_read(nullptr, nullptr, &config));
                const char *level = (i % 2) ? "warn,mm=error" : "warn";
                EXPECT_EQ(UCS_OK, ucp_config_modify(config, "LOG_LEVEL", level));
                EXPECT_EQ(UCS_OK, ucp_config_modify(config, "STATS_DEST", "file:/dev/null"));
                EXPECT_NE("", printed([&](FILE *stream) {
                              ucp_config_print(config, stream, nullptr, UCS_CONFIG_PRINT_CONFIG);
                          }));
                ucp_config_release(config);
                context context;
                worker worker(context); /* it tells what it has counted */
            }
        });
    }
    for (std::thread &each : threads) {
        each.join();
    }
    EXPECT_EQ(UCS_OK, ucs_global_opts_reload());
}

TEST(threads, a_forked_child_sets_options_that_another_thread_was_setting)
{
    ucp_config_t *config;
    ASSERT_EQ(UCS_OK, ucp_config_read(nullptr, nullptr, &config));
    std::atomic<bool> stop{false};
    std::thread other([&]() {
        while (!stop) {
            EXPECT_EQ(UCS_OK, ucp_config_modify(config, "LOG_LEVEL", "warn,mm=error"));
        }
    });
    for (int i = 0; (i < 100) && !HasFailure(); ++i) {
        const pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            _exit((ucp_config_modify(config, "LOG_LEVEL", "warn") == UCS_OK) ? 0 : 1);
        }
        int status = -1;
        EXPECT_EQ(pid, waitpid(pid, &status, 0));
        EXPECT_EQ(0, status) << "child " << i;
    }
    stop = true;
    other.join();
    ucp_config_release(config);
    EXPECT_EQ(UCS_OK, ucs_global_opts_reload());
}

TEST(threads, a_forked_child_unmaps_while_another_thread_was_mapping)
{
    context context;
    std::atomic<bool> stop{false};
    char buffer[64];
    ucp_mem_map_params_t params = {};
    ucp_mem_h memh              = nullptr;

    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address    = buffer;
    params.length     = sizeof(buffer);
    ASSERT_EQ(UCS_OK, ucp_mem_map(context.handle(), &params, &memh));
    std::thread other([&]() {
        ucp_mem_h mapped = nullptr;
        while (!stop) {
            EXPECT_EQ(UCS_OK, ucp_mem_map(context.handle(), &params, &mapped));
            EXPECT_EQ(UCS_OK, ucp_mem_unmap(context.handle(), mapped));
        }
    });
    for (int i = 0; (i < 100) && !HasFailure(); ++i) {
        const pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            _exit((ucp_mem_unmap(context.handle(), memh) == UCS_OK) ? 0 : 1);
        }
        int status = -1;
        EXPECT_EQ(pid, waitpid(pid, &status, 0));
        EXPECT_EQ(0, status) << "child " << i;
    }
    stop = true;
    other.join();
    EXPECT_EQ(UCS_OK, ucp_mem_unmap(context.handle(), memh));
}

/* The limit of headers is that of all networks that are open. */
TEST(threads, header_limit_while_the_network_opens)
{
    environment environment(settings{{"UCX_NET_ADDRESS", "y"}});
    log_catcher log;
    context_options options;
    options.features = UCP_FEATURE_AM;
    context context(options);

    worker peer(context);
    for (int i = 0; i < 5; ++i) {
        worker worker(context, UCS_THREAD_MODE_MULTI);
        ucp_ep_h ep = worker.connect(peer);
        std::atomic<bool> is_open{false};
        std::thread other([&]() {
            const ucp_request_param_t param = send_param(nullptr);
            const uint64_t header           = 1;
            do {
                ucp_worker_attr_t attr;
                attr.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
                EXPECT_EQ(UCS_OK, ucp_worker_query(worker.handle(), &attr));
                EXPECT_GE(attr.max_am_header, sizeof(header));
                void *sent = ucp_am_send_nbx(ep, 1, &header, SIZE_MAX, nullptr, 0, &param);
                EXPECT_EQ(UCS_ERR_INVALID_PARAM, UCS_PTR_RAW_STATUS(sent));
            } while (!is_open);
        });
        (void)worker.address();
        is_open = true;
        other.join();
    }
}

std::atomic<int> g_sleeps; /* of who waits for the lock */

void count_sleep(uint64_t)
{
    ++g_sleeps;
    std::this_thread::yield();
}

/* The only thread of a process takes the lock as if there were no others: one that it starts amid a
 * callback waits until it is out of the library; does it wait for long, it sleeps. In a process of
 * its own, which has one thread. */
TEST(threads, started_inside_a_callback)
{
    const pid_t pid = fork();

    ASSERT_GE(pid, 0);
    if (pid == 0) {
        alarm(60);
        context context;
        worker worker(context, UCS_THREAD_MODE_MULTI);
        ucp_ep_h ep       = worker.connect(worker);
        ucs_sys_ops_t ops = ucs_sys_real;
        ops.sleep_ns      = count_sleep;
        fake_sys sys(ops);
        std::atomic<bool> is_inside{false}, has_overlapped{false}, is_done{false};
        std::thread other;
        ending received;
        uint64_t sent = 7, value = 0;

        received.action = [&]() {
            is_inside = true;
            other     = std::thread([&]() {
                ucp_tag_recv_info_t info;
                (void)ucp_tag_probe_nb(worker.handle(), 9, ~0ull, 0, &info);
                has_overlapped = is_inside.load();
                is_done        = true;
            });
            while (g_sleeps < 3) {
                std::this_thread::yield();
            }
            const ucp_request_param_t param = send_param(nullptr);
            (void)ucp_tag_send_nbx(ep, &sent, sizeof(sent), 1, &param); /* takes it once more */
            is_inside = false;
        };
        const ucp_request_param_t rparam = receive_param(&received);
        const ucp_request_param_t sparam = send_param(nullptr);
        (void)ucp_tag_recv_nbx(worker.handle(), &value, sizeof(value), 5, ~0ull, &rparam);
        (void)ucp_tag_send_nbx(ep, &sent, sizeof(sent), 5, &sparam);
        while ((received.calls == 0) || !is_done) {
            worker.progress();
        }
        other.join();
        _exit(((value == 7) && !has_overlapped) ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_EQ(0, status);
}

/* A thread that is about to sleep in ucp_worker_wait, but does not get the processor yet. */
std::atomic<bool> g_is_late, g_may_go;
thread_local bool t_is_sleeper;
int g_num_ready;

int poll_late(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    if (!t_is_sleeper) {
        return ucs_sys_real.poll(fds, count, timeout_ms);
    }
    g_is_late = true;
    while (!g_may_go) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    g_num_ready = ucs_sys_real.poll(fds, count, 2000);
    return g_num_ready;
}

/* What has happened wakes all who sleep, though one of them was quicker, has made progress and goes
 * to sleep again; whether it finds what has come by progress, or by arming, or it is a signal. */
TEST(threads, all_that_sleep_are_woken)
{
    ucs_sys_ops_t table = ucs_sys_real;
    table.poll          = poll_late;
    for (const char *way : {"progress", "arm", "signal"}) {
        pair pair({"mm", {{"UCX_TLS", "mm"}}, false, UCS_THREAD_MODE_MULTI});
        const fake_sys fake(table);
        ucp_worker_h worker = pair.receiver().handle();
        uint64_t value = 1, got = 0;
        void *received = pair.receive(&got, sizeof(got), 1);
        void *sent     = pair.send(&value, sizeof(value), 1);
        EXPECT_EQ(UCS_OK, pair.wait(received));
        EXPECT_EQ(UCS_OK, pair.wait(sent));
        pair.settle();
        received  = pair.receive(&got, sizeof(got), 2);
        g_is_late = g_may_go = false;

        std::thread sleeper([&]() {
            t_is_sleeper = true;
            while (!g_is_late) {
                ucp_worker_progress(worker);
                EXPECT_EQ(UCS_OK, ucp_worker_wait(worker));
            }
        });
        while (!g_is_late) {
            std::this_thread::yield();
        }
        if (strcmp(way, "signal") == 0) {
            EXPECT_EQ(UCS_OK, ucp_worker_signal(worker));
            EXPECT_EQ(UCS_ERR_BUSY, ucp_worker_arm(worker));
        }
        sent = pair.send(&value, sizeof(value), 2);
        if (strcmp(way, "arm") == 0) {
            EXPECT_EQ(UCS_ERR_BUSY, ucp_worker_arm(worker));
        }
        if (strcmp(way, "signal") != 0) {
            EXPECT_EQ(UCS_OK, pair.wait(received));
            received = nullptr;
        }
        for (int i = 0; (i < 10) && (ucp_worker_arm(worker) == UCS_ERR_BUSY); ++i) {
        }
        g_may_go = true;
        sleeper.join();
        EXPECT_EQ(1, g_num_ready) << way << ": it sleeps for ever";
        EXPECT_EQ(UCS_OK, pair.wait(received));
        EXPECT_EQ(UCS_OK, pair.wait(sent));
    }
}

int poll_noted(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    g_is_late = true;
    return ucs_sys_real.poll(fds, count, timeout_ms);
}

void *sleep_for_ever(void *worker)
{
    for (;;) {
        (void)ucp_worker_wait(static_cast<ucp_worker_h>(worker));
    }
}

/* A thread that was cancelled as it slept is not waited for. */
TEST(threads, cancelled_as_it_sleeps)
{
    context context;
    worker worker(context, UCS_THREAD_MODE_MULTI);
    struct pollfd event = {-1, POLLIN, 0};
    ucs_sys_ops_t table = ucs_sys_real;
    pthread_t sleeper;
    void *result;

    table.poll = poll_noted;
    const fake_sys fake(table);
    g_is_late = false;
    ASSERT_EQ(UCS_OK, ucp_worker_get_efd(worker.handle(), &event.fd));
    ASSERT_EQ(0, pthread_create(&sleeper, nullptr, sleep_for_ever, worker.handle()));
    while (!g_is_late) {
        std::this_thread::yield();
    }
    ASSERT_EQ(0, pthread_cancel(sleeper));
    ASSERT_EQ(0, pthread_join(sleeper, &result));
    EXPECT_EQ(PTHREAD_CANCELED, result);
    ASSERT_EQ(UCS_OK, ucp_worker_signal(worker.handle()));
    EXPECT_EQ(UCS_ERR_BUSY, ucp_worker_arm(worker.handle()));
    EXPECT_EQ(UCS_OK, ucp_worker_arm(worker.handle()));
    EXPECT_EQ(0, poll(&event, 1, 0));
}

/* What wakes a worker's owner is not for a child that it forks, nor from it. */
TEST(threads, a_forked_child_takes_no_event)
{
    context context;
    worker worker(context, UCS_THREAD_MODE_MULTI);
    struct pollfd event = {-1, POLLIN, 0};

    ASSERT_EQ(UCS_OK, ucp_worker_get_efd(worker.handle(), &event.fd));
    while (ucp_worker_arm(worker.handle()) == UCS_ERR_BUSY) {
        worker.progress();
    }
    for (bool is_signalled : {false, true}) {
        if (is_signalled) {
            ASSERT_EQ(UCS_OK, ucp_worker_signal(worker.handle()));
        }
        const pid_t pid = fork();
        ASSERT_GE(pid, 0);
        if (pid == 0) {
            alarm(60);
            const bool is_refused =
                (ucp_worker_arm(worker.handle()) == UCS_ERR_CONNECTION_RESET) &&
                (ucp_worker_signal(worker.handle()) == UCS_ERR_CONNECTION_RESET) &&
                (ucp_worker_wait(worker.handle()) == UCS_ERR_CONNECTION_RESET);
            _exit(is_refused ? 0 : 1);
        }
        int status = -1;
        ASSERT_EQ(pid, waitpid(pid, &status, 0));
        EXPECT_EQ(0, status);
        EXPECT_EQ(is_signalled ? 1 : 0, poll(&event, 1, 0));
    }
}

/* Nor does what a child tries add to what wakes its parent. */
TEST(threads, a_forked_child_adds_no_event)
{
    for (const char *net : {"auto", "y"}) {
        environment addresses(settings{{"UCX_NET_ADDRESS", net}});
        context context;
        worker worker(context);
        int fd;
        ASSERT_EQ(UCS_OK, ucp_worker_get_efd(worker.handle(), &fd));
        const auto watched = [&] {
            std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd));
            return std::string(std::istreambuf_iterator<char>(info), {});
        };
        const std::string before = watched();
        const pid_t pid          = fork();
        ASSERT_GE(pid, 0);
        if (pid == 0) {
            alarm(60);
            const server_test::server server(worker, server_test::address(AF_INET));
            ucp_address_t *address;
            size_t length;
            const ucs_status_t status = ucp_worker_get_address(worker.handle(), &address, &length);
            raise(SIGSTOP);
            _exit(((server.status == UCS_ERR_CONNECTION_RESET) && (status == UCS_OK)) ? 0 : 1);
        }
        int status = -1;
        ASSERT_EQ(pid, waitpid(pid, &status, WUNTRACED));
        EXPECT_EQ(before, watched());
        ASSERT_EQ(0, kill(pid, SIGCONT));
        ASSERT_EQ(pid, waitpid(pid, &status, 0));
        EXPECT_EQ(0, status);
    }
}

/* Single-threaded workers side by side in one context, each with its thread. */
TEST(threads, a_worker_for_each)
{
    log_catcher log;
    context context;
    constexpr int COUNT = 4;
    std::vector<std::unique_ptr<worker>> workers;
    std::vector<ucp_ep_h> eps;
    std::vector<std::thread> threads;
    std::atomic<int> num_wrong{0};
    std::atomic<int> num_running{COUNT};

    for (int t = 0; t < COUNT; ++t) {
        workers.push_back(std::make_unique<worker>(context));
    }
    for (int t = 0; t < COUNT; ++t) {
        eps.push_back(workers[t]->connect(*workers[(t + 1) % COUNT]));
    }
    for (int t = 0; t < COUNT; ++t) {
        threads.emplace_back([&, t]() {
            ucp_worker_h self               = workers[t]->handle();
            const ucp_request_param_t param = send_param(nullptr);
            for (uint64_t i = 0; i < 200; ++i) {
                const size_t length = length_of(0, i);
                const bytes data    = pattern(i, length);
                bytes buffer(length);
                void *received = ucp_tag_recv_nbx(self, buffer.data(), length, i, ~0ull, &param);
                void *sent     = ucp_tag_send_nbx(eps[t], data.data(), length, i, &param);
                num_wrong += (wait(self, received) != UCS_OK);
                num_wrong += (wait(self, sent) != UCS_OK);
                num_wrong += (buffer != data);
            }
            --num_running;
            while (num_running > 0) { /* the neighbour may still need us */
                ucp_worker_progress(self);
                std::this_thread::yield();
            }
        });
    }
    for (std::thread &each : threads) {
        each.join();
    }
    EXPECT_EQ(0, num_wrong);
}

} // namespace
