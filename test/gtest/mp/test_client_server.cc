/* Halyard: clients and servers in processes of their own: connections by socket addresses, and what
 * either side hears when the other leaves or dies at each step.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <mp/hosts.h>
#include <mp/node.h>
#include <mp/party.h>
#include <mp/processes.h>
#include <ucp/server.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

using namespace server_test;

namespace {

enum { CLIENT, SERVER, COUNT };

/* Words on the board. */
enum { PORT, STAGE };

/* A client or a server. */
class party : public mp::party {
public:
    using mp::party::party;

    void connect(uint16_t port)
    {
        connect(address(AF_INET, port));
    }

    void connect(const address &where)
    {
        ucp_ep_params_t params  = {};
        params.field_mask       = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
        params.flags            = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
        params.sockaddr.addr    = where.get();
        params.sockaddr.addrlen = where.length();
        make_ep(params);
    }

    void accept(server &server)
    {
        until([&] { return !server.requests.empty(); }, "a client");
        ucp_ep_params_t params = {};
        params.field_mask      = UCP_EP_PARAM_FIELD_CONN_REQUEST;
        params.conn_request    = server.take();
        make_ep(params);
    }

    void reset_comes()
    {
        until([&] { return failed.calls > 0; }, "the news of the other's end");
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, failed.status);
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, UCS_PTR_STATUS(send(bytes(8), 1)));
        EXPECT_EQ(UCS_OK, wait(ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE)));
        EXPECT_EQ(1, failed.calls);
    }
};

/* The server tells its port, the client waits for it. */
void tell(mp::self &me, const server &server)
{
    me.own().words[PORT] = server.where().port();
}

uint16_t ask(mp::self &me)
{
    const double end = mp::now_s() + 0.8 * mp::limit_s();
    while ((me.at(SERVER).words[PORT] == 0) && (mp::now_s() < end)) {
        usleep(1000);
    }
    return (uint16_t)me.at(SERVER).words[PORT];
}

/* Messages of several sizes to the server and back, and a close. */
void serve_one(mp::self &me, party &self)
{
    server server(self.get(), address(AF_INET));
    tell(me, server);
    self.accept(server);
    for (size_t length : {0, 8, 5000, 1000000}) {
        bytes got(length);
        self.receive(got, 1);
        EXPECT_EQ(UCS_OK, self.wait(self.send(got, 2)));
    }
    self.reset_comes();
}

void exchange_with_server(mp::self &me)
{
    party self(me);
    self.connect(ask(me));
    for (size_t length : {0, 8, 5000, 1000000}) {
        const bytes data = pattern(length, length);
        bytes got(length);
        EXPECT_EQ(UCS_OK, self.wait(self.send(data, 1)));
        self.receive(got, 2);
        EXPECT_EQ(data, got);
    }
    EXPECT_EQ(UCS_OK, self.wait(ucp_ep_close_nb(self.ep, UCP_EP_CLOSE_MODE_FLUSH)));
    EXPECT_EQ(0, self.failed.calls);
}

TEST(client_server, exchanges)
{
    mp::processes both(COUNT);
    both.start(SERVER, [](mp::self &me) {
        party self(me);
        serve_one(me, self);
    });
    both.start(CLIENT, exchange_with_server);
    EXPECT_TRUE(both.join());
}

/* With the user's default, by which addresses lead to other hosts: who opens a network says that
 * there is no such provider. */
TEST(client_server, of_one_host_open_no_network)
{
    if (!is_present("ofi")) {
        GTEST_SKIP() << "built without libfabric";
    }
    for (const char *wish : {"auto", "y"}) {
        const auto set = [=] {
            setenv("UCX_NET_ADDRESS", wish, 1);
            setenv("UCX_OFI_PROVIDER", "nonesuch", 1);
        };
        mp::processes both(COUNT);
        both.start(SERVER, [=](mp::self &me) {
            set();
            party self(me);
            serve_one(me, self);
        });
        both.start(CLIENT, [=](mp::self &me) {
            set();
            exchange_with_server(me);
        });
        EXPECT_TRUE(both.join());
        EXPECT_EQ(strcmp(wish, "y") == 0, both.log().find("nonesuch") != std::string::npos)
            << both.log();
    }
}

/* The client is connected within its host, as it seems, but the server's memory is that of another
 * container. */
TEST(client_server, through_a_tunnel)
{
    mp::processes both(COUNT);
    if (!is_present("ofi")) {
        GTEST_SKIP() << "built without libfabric";
    }
    if (geteuid() != 0) {
        GTEST_SKIP() << "only root has network namespaces";
    }
    both.start(SERVER, [](mp::self &me) {
        const int host = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        ASSERT_EQ(0, unshare(CLONE_NEWNET)) << strerror(errno);
        party self(me);
        ASSERT_EQ(0, setns(host, CLONE_NEWNET)) << strerror(errno);
        close(host);
        serve_one(me, self);
    });
    both.start(CLIENT, exchange_with_server);
    EXPECT_TRUE(both.join());
}

/* With the default settings of the tests, by which addresses do not lead to other hosts. */
static void on_two_hosts(int family, unsigned rounds = 1)
{
    mp::hosts hosts({COUNT, family});
    if (!hosts.why_not().empty()) {
        GTEST_SKIP() << hosts.why_not();
    }
    if (!is_present("ofi")) {
        GTEST_SKIP() << "built without libfabric";
    }
    const auto place = [&](unsigned host, uint16_t port) {
        address where(family, port);
        void *bytes = &reinterpret_cast<struct sockaddr_in *>(&where.storage)->sin_addr;
        if (family == AF_INET6) {
            bytes = &reinterpret_cast<struct sockaddr_in6 *>(&where.storage)->sin6_addr;
        }
        EXPECT_EQ(1, inet_pton(family, hosts.address(host).c_str(), bytes));
        return where;
    };
    mp::processes both(COUNT);
    both.start(SERVER, [&](mp::self &me) {
        hosts.join(SERVER);
        party self(me);
        server server(self.get(), place(SERVER, 0));
        tell(me, server);
        for (unsigned round = 1; round <= rounds; ++round) {
            self.accept(server);
            for (size_t length : {0, 8, 5000, 1000000 * (round == 1)}) {
                bytes got(length);
                self.receive(got, 1);
                EXPECT_EQ(UCS_OK, self.wait(self.send(got, 2)));
            }
            /* It looks at the network seldom by the time that the answer has come, and the end. */
            const bytes data(100);
            const ucp_request_param_t none = {};
            void *last = ucp_tag_send_sync_nbx(self.ep, data.data(), data.size(), 3, &none);
            for (unsigned i = 0; i < 2000; ++i) {
                self.get().progress();
            }
            me.own().words[STAGE] = round;
            while (me.at(CLIENT).words[STAGE] < round) {
                usleep(100);
            }
            usleep(500);
            EXPECT_EQ(UCS_OK, self.wait(last)) << round;
            self.reset_comes();
            self.failed = {};
        }
    });
    both.start(CLIENT, [&](mp::self &me) {
        hosts.join(CLIENT);
        party self(me);
        for (unsigned round = 1; round <= rounds; ++round) {
            self.connect(place(SERVER, ask(me)));
            for (size_t length : {0, 8, 5000, 1000000 * (round == 1)}) {
                const bytes data = pattern(length, length);
                bytes got(length);
                EXPECT_EQ(UCS_OK, self.wait(self.send(data, 1)));
                self.receive(got, 2);
                EXPECT_EQ(data, got);
            }
            while (me.at(SERVER).words[STAGE] < round) {
                usleep(100);
            }
            bytes last(100);
            self.receive(last, 3);
            EXPECT_EQ(UCS_OK, self.wait(ucp_ep_close_nb(self.ep, UCP_EP_CLOSE_MODE_FLUSH)));
            EXPECT_EQ(0, self.failed.calls);
            me.own().words[STAGE] = round;
        }
    });
    EXPECT_TRUE(both.join());
}

TEST(client_server, on_two_hosts)
{
    on_two_hosts(AF_INET);
}

TEST(client_server, on_two_hosts_of_ipv6)
{
    on_two_hosts(AF_INET6);
}

/* Each time the server may see the end of the connection before what was sent earlier. */
TEST(client_server, on_two_hosts_again_and_again)
{
    on_two_hosts(AF_INET, 20);
}

/* All of it before the server looks at anything: sends, a close, and the end of the process. */
TEST(client_server, a_client_that_is_gone_has_delivered)
{
    mp::processes both(COUNT);
    both.start(SERVER, [](mp::self &me) {
        party self(me);
        server server(self.get(), address(AF_INET));
        tell(me, server);
        self.accept(server);
        bytes got(100);
        self.until([&] { return self.failed.calls > 0; }, "the client's end");
        self.receive(got, 1);
        EXPECT_EQ(pattern(1, 100), got);
        EXPECT_EQ(UCS_OK, self.wait(ucp_ep_close_nb(self.ep, UCP_EP_CLOSE_MODE_FORCE)));
    });
    both.start(CLIENT, [](mp::self &me) {
        party self(me);
        self.connect(ask(me));
        const bytes data = pattern(1, 100);
        void *sent       = self.send(data, 1);
        EXPECT_EQ(UCS_OK, self.wait(ucp_ep_close_nb(self.ep, UCP_EP_CLOSE_MODE_FLUSH)));
        EXPECT_EQ(UCS_OK, self.wait(sent));
    });
    EXPECT_TRUE(both.join());
}

/* Killed at each step of the hand-shake, and after it; the other one hears of it. */
TEST(client_server, the_server_is_killed)
{
    for (uint64_t step = 1; step <= 4; ++step) {
        mp::processes both(COUNT);
        both.start(SERVER, [=](mp::self &me) {
            party self(me);
            server server(self.get(), address(AF_INET));
            tell(me, server);
            if (step >= 2) {
                self.until([&] { return !server.requests.empty(); }, "a client");
            }
            if (step >= 3) {
                self.accept(server);
            }
            if (step >= 4) {
                bytes got(8);
                self.receive(got, 1);
            }
            me.own().words[STAGE] = 1;
            server.requests.clear();
            for (;;) {
                pause();
            }
        });
        both.start(CLIENT, [=](mp::self &me) {
            party self(me);
            self.connect(ask(me));
            me.own().words[STAGE] = 1; /* else it would be refused */
            const bytes data(8);
            void *sent = self.send(data, 1);
            self.reset_comes();
            const ucs_status_t status = self.wait(sent);
            EXPECT_TRUE((status == UCS_OK) || (status == UCS_ERR_CONNECTION_RESET)) << status;
            if (step <= 2) {
                EXPECT_EQ(UCS_ERR_CONNECTION_RESET, status);
            }
        });
        EXPECT_TRUE(both.until([&] {
            return (both.at(SERVER).words[STAGE] == 1) && (both.at(CLIENT).words[STAGE] == 1);
        }, "the step"));
        usleep(50000); /* the client may be anywhere in its own steps, which is wanted */
        both.kill_now(SERVER);
        EXPECT_TRUE(both.until([&] { return !both.is_running(CLIENT); }, "the client's end"));
    }
}

TEST(client_server, the_client_is_killed)
{
    for (uint64_t step = 1; step <= 3; ++step) {
        mp::processes both(COUNT);
        both.start(CLIENT, [=](mp::self &me) {
            party self(me);
            self.connect(ask(me));
            if (step >= 2) {
                const bytes data(8);
                void *sent = self.send(data, 1);
                EXPECT_EQ(UCS_OK, self.wait(sent));
            }
            if (step >= 3) {
                bytes got(8);
                self.receive(got, 2);
            }
            me.own().words[STAGE] = 1;
            for (;;) {
                self.get().progress();
            }
        });
        both.start(SERVER, [=](mp::self &me) {
            party self(me);
            server server(self.get(), address(AF_INET));
            tell(me, server);
            self.accept(server);
            bytes got(8);
            if (step >= 2) {
                self.receive(got, 1);
            }
            if (step >= 3) {
                EXPECT_EQ(UCS_OK, self.wait(self.send(got, 2)));
            }
            me.own().words[STAGE] = 1;
            self.reset_comes();
        });
        EXPECT_TRUE(both.until(
            [&] {
                return (both.at(SERVER).words[STAGE] == 1) && (both.at(CLIENT).words[STAGE] == 1);
            },
            "the step"));
        both.kill_now(CLIENT);
        EXPECT_TRUE(both.until([&] { return !both.is_running(SERVER); }, "the server's end"));
    }
}

/* A child has copies of its parent's sockets. Whatever it does with what it inherited, the parent
 * goes on. */
TEST(client_server, forked_children)
{
    mp::processes both(COUNT);
    both.start(SERVER, [](mp::self &me) {
        party self(me);
        server server(self.get(), address(AF_INET));
        tell(me, server);
        self.accept(server);
        bytes got(8);
        self.receive(got, 1);
        for (unsigned way = 0; way < 3; ++way) {
            const pid_t child = fork();
            ASSERT_GE(child, 0);
            if (child == 0) {
                if (way == 0) {
                    server.destroy();
                    self.get().destroy();
                } else if (way == 1) {
                    self.until([&] { return self.failed.calls > 0; }, "the child's error");
                    EXPECT_TRUE(UCS_PTR_IS_ERR(self.send(bytes(8), 1)));
                }
                fflush(stdout);
                _exit(testing::Test::HasFailure() ? 1 : 0);
            }
            int status = -1;
            EXPECT_EQ(child, waitpid(child, &status, 0));
            EXPECT_EQ(0, status) << "way " << way;
            EXPECT_EQ(UCS_OK, self.wait(self.send(got, 2)));
            self.receive(got, 1);
        }
        EXPECT_EQ(0, self.failed.calls);
        self.reset_comes();
        self.failed = {};
        self.accept(server); /* it still listens */
        self.receive(got, 3);
        EXPECT_EQ(UCS_OK, self.wait(self.send(got, 4)));
        self.reset_comes();
    });
    both.start(CLIENT, [](mp::self &me) {
        party self(me);
        bytes got(8);
        self.connect(ask(me));
        EXPECT_EQ(UCS_OK, self.wait(self.send(got, 1)));
        for (unsigned way = 0; way < 3; ++way) {
            self.receive(got, 2);
            EXPECT_EQ(UCS_OK, self.wait(self.send(got, 1)));
        }
        EXPECT_EQ(0, self.failed.calls);
        EXPECT_EQ(UCS_OK, self.wait(ucp_ep_close_nb(self.ep, UCP_EP_CLOSE_MODE_FLUSH)));
        self.connect(ask(me));
        EXPECT_EQ(UCS_OK, self.wait(self.send(got, 3)));
        self.receive(got, 4);
        EXPECT_EQ(0, self.failed.calls);
        EXPECT_EQ(UCS_OK, self.wait(ucp_ep_close_nb(self.ep, UCP_EP_CLOSE_MODE_FLUSH)));
    });
    EXPECT_TRUE(both.join());
}

/* Nor does a child that lives on hide its parent's death. */
TEST(client_server, a_forked_child_outlives_the_server)
{
    mp::processes both(COUNT);
    both.start(SERVER, [](mp::self &me) {
        party self(me);
        server server(self.get(), address(AF_INET));
        tell(me, server);
        self.accept(server);
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            const double end = mp::now_s() + 0.8 * mp::limit_s();
            while ((me.at(CLIENT).words[STAGE] != 2) && (mp::now_s() < end)) {
                usleep(1000);
            }
            _exit(0);
        }
        me.own().words[STAGE] = 1;
        for (;;) {
            self.get().progress();
        }
    });
    both.start(CLIENT, [](mp::self &me) {
        party self(me);
        self.connect(ask(me));
        self.until([&] { return self.failed.calls > 0; }, "the news of the server's death");
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, self.failed.status);
        me.own().words[STAGE] = 2;
        EXPECT_EQ(UCS_OK, self.wait(ucp_ep_close_nb(self.ep, UCP_EP_CLOSE_MODE_FORCE)));
    });
    EXPECT_TRUE(both.until([&] { return both.at(SERVER).words[STAGE] == 1; }, "the child"));
    both.kill_now(SERVER);
    EXPECT_TRUE(both.until([&] { return !both.is_running(CLIENT); }, "the client's end"));
}

/* A request whose client has died meanwhile can be accepted or rejected as any. */
TEST(client_server, a_request_of_the_dead)
{
    for (bool accepts : {true, false}) {
        mp::processes both(COUNT);
        both.start(CLIENT, [](mp::self &me) {
            party self(me);
            self.connect(ask(me));
            for (;;) {
                self.get().progress();
            }
        });
        both.start(SERVER, [=](mp::self &me) {
            party self(me);
            server server(self.get(), address(AF_INET));
            tell(me, server);
            self.until([&] { return !server.requests.empty(); }, "a client");
            me.own().words[STAGE] = 1;
            self.until([&] { return me.own().words[STAGE] == 2; }, "the client's death");
            if (accepts) {
                self.accept(server);
                self.reset_comes();
            } else {
                EXPECT_EQ(UCS_OK, ucp_listener_reject(server.handle(), server.take()));
            }
        });
        EXPECT_TRUE(both.until([&] { return both.at(SERVER).words[STAGE] == 1; }, "a request"));
        both.kill_now(CLIENT);
        both.at(SERVER).words[STAGE] = 2;
        EXPECT_TRUE(both.until([&] { return !both.is_running(SERVER); }, "the server's end"));
    }
}

} // namespace
