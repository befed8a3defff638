/* Halyard: single copies (process_vm_readv, process_vm_writev) that the system refuses: from the
 * start, between two messages, or in the middle of one. The messages take another way, whole.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <mp/node.h>
#include <mp/restrict.h>
#include <seed.h>
#include <ucs/config/global.h>
#include <ucs/debug/fault.h>
#include <ucs/sys/sys.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <sys/mman.h>
#include <sys/syscall.h>

using mp::node;
using mp::processes;
using mp::self;

namespace {

constexpr unsigned SENDER   = 0;
constexpr unsigned RECEIVER = 1;
constexpr size_t   LARGE    = 64u << 20;

const std::vector<long> COPY_CALLS = {SYS_process_vm_readv, SYS_process_vm_writev};

struct refusal {
    const char *scheme;
    int         error;
    bool        by_sender;   /* whose calls are refused */
    bool        by_receiver;
};

std::ostream &operator<<(std::ostream &out, const refusal &r)
{
    return out << "UCX_RNDV_SCHEME=" << r.scheme << ", " << strerror(r.error) << " for"
               << (r.by_sender ? " sender" : "") << (r.by_receiver ? " receiver" : "");
}

bool is_refused(const refusal &r, const self &me)
{
    return (me.index() == SENDER) ? r.by_sender : r.by_receiver;
}

void refuse(const refusal &r, const self &me)
{
    if (is_refused(r, me)) {
        ASSERT_EQ("", mp::deny_syscalls(COPY_CALLS, r.error));
    }
}

/* One message from the first to the second process, checked. while_going() runs once, when it has
 * begun and after some progress. */
template <typename func_t>
void transfer(self &me, node &n, size_t length, uint64_t id, unsigned turns,
              const func_t &while_going)
{
    std::vector<uint8_t> buffer(length);
    ucp_tag_recv_info_t info = {};
    ucs_status_ptr_t request;
    bool was_under_way;

    if (me.index() == SENDER) {
        mp::fill(buffer.data(), length, id);
        request = n.send(n.ep(RECEIVER), buffer.data(), length, id);
    } else {
        request = n.recv(buffer.data(), length, id);
    }
    me.waits_for("message %u of %zu bytes", (unsigned)id, length);
    for (unsigned i = 0; i < turns; ++i) {
        n.until([&]() { return (n.progress() > 0) || !UCS_PTR_IS_PTR(request) ||
                               ucp_request_is_completed(request); });
    }
    was_under_way = UCS_PTR_IS_PTR(request) && !ucp_request_is_completed(request);
    while_going();
    EXPECT_EQ(UCS_OK, n.wait(request, &info));
    if (me.index() == RECEIVER) {
        EXPECT_EQ(length, info.length);
        EXPECT_EQ(-1, mp::find_difference(buffer.data(), length, id)) << length << " bytes";
    }
    me.own().words[0] += was_under_way;
}

void nothing()
{
}

void end(node &n)
{
    n.barrier();
    EXPECT_EQ(0u, n.errors(n.ep(SENDER)).count);
    EXPECT_EQ(0u, n.errors(n.ep(RECEIVER)).count);
    n.barrier(); /* who leaves before the other has looked is an error to it */
}

} // namespace

class copy_refused : public testing::TestWithParam<refusal> {
protected:
    void run(const std::function<void(self &, node &)> &func)
    {
        const refusal r = GetParam();
        processes both(2);

        both.start_all([&](self &me) {
            setenv("UCX_RNDV_SCHEME", r.scheme, 1);
            func(me, *std::make_unique<node>(me));
        });
        EXPECT_TRUE(both.join());
        EXPECT_LE(both.log_lines(), 4u) << both.log(); /* one line each, at the most two */
        EXPECT_EQ(std::string::npos, both.log().find("ERROR")) << both.log();
        under_way = both.at(SENDER).words[0] + both.at(RECEIVER).words[0];
    }

    uint64_t under_way = 0; /* transfers that were in the middle when calls were refused */
};

TEST_P(copy_refused, from_the_start)
{
    run([](self &me, node &n) {
        refuse(GetParam(), me);
        n.connect_all();
        for (size_t length = 1; length < (8u << 20); length = (length * 3) + 1) {
            transfer(me, n, length, length, 0, nothing);
        }
        end(n);
    });
}

TEST_P(copy_refused, before_init)
{
    const refusal r = GetParam();
    processes both(2);

    both.start_all([&](self &me) {
        setenv("UCX_RNDV_SCHEME", r.scheme, 1);
        refuse(r, me);
        node n(me);
        n.connect_all();
        for (size_t length = 1; length < (8u << 20); length = (length * 3) + 1) {
            transfer(me, n, length, length, 0, nothing);
        }
        end(n);
    });
    EXPECT_TRUE(both.join());
    EXPECT_EQ(0u, both.log_lines()) << both.log(); /* it is normal in containers */
}

TEST_P(copy_refused, between_messages)
{
    run([](self &me, node &n) {
        n.connect_all();
        for (unsigned i = 0; i < 12; ++i) {
            if (i == 5) {
                n.barrier();
                refuse(GetParam(), me);
            }
            transfer(me, n, (1u << 20) + i, i, 0, nothing);
        }
        end(n);
    });
}

/* The filter comes after `turns` steps of a transfer of 64 MiB. */
TEST_P(copy_refused, in_the_middle)
{
    for (unsigned turns : {1u, 7u, 40u}) {
        under_way = 0;
        run([&](self &me, node &n) {
            n.connect_all();
            transfer(me, n, 1u << 20, 1, 0, nothing); /* copies are proved */
            me.own().words[0] = 0;
            transfer(me, n, LARGE, 2, turns, [&]() { refuse(GetParam(), me); });
            transfer(me, n, LARGE / 8, 3, 0, nothing);
            end(n);
        });
        if (turns < 10) {
            EXPECT_GT(under_way, 0u) << "the transfer was over after " << turns << " turns";
        }
        if (HasFailure()) {
            break;
        }
    }
}

/* The same, call by call: the k-th and all after it, or the k-th alone. With a sanitizer, where
 * each process costs much, every third one. */
TEST_P(copy_refused, at_every_call)
{
    const unsigned step = (mp::slowness() > 1) ? 3 : 1;
    const refusal r     = GetParam();

    for (const char *more : {"", "+"}) {
        for (unsigned k = 1; k <= 10; k += step) {
            processes both(2);

            both.start_all([&](self &me) {
                const std::string spec = std::to_string(k) + more + ":" + std::to_string(r.error);
                node *n;

                setenv("UCX_RNDV_SCHEME", r.scheme, 1);
                n = new node(me);
                n->connect_all();
                if (is_refused(r, me)) {
                    ASSERT_EQ(UCS_OK, ucs_fault_set("process_vm_*", spec.c_str()));
                }
                for (unsigned i = 0; i < 2; ++i) {
                    transfer(me, *n, 3u << 20, i, 0, nothing);
                }
                end(*n);
                delete n;
            });
            EXPECT_TRUE(both.join()) << "call " << k << more;
            EXPECT_LE(both.log_lines(), 4u) << both.log();
            if (HasFailure()) {
                return;
            }
        }
    }
}

/* Who looks for the reason why it has become slow finds it, and no more than once a side. */
TEST(copy_refused_later, is_told)
{
    const refusal r = {"both", EPERM, true, true};
    processes both(2);

    both.start_all([&](self &me) {
        setenv("UCX_RNDV_SCHEME", r.scheme, 1);
        setenv("UCX_LOG_LEVEL", "diag", 1);
        ASSERT_EQ(UCS_OK, ucs_global_opts_reload());
        node n(me);
        n.connect_all();
        for (unsigned i = 0; i < 6; ++i) {
            if (i == 2) {
                n.barrier();
                refuse(r, me);
            }
            transfer(me, n, (3u << 20) + i, i, 0, nothing);
        }
        n.barrier();
    });
    EXPECT_TRUE(both.join());
    const std::string log = both.log(), told = "messages are used instead";
    size_t count          = 0;
    for (size_t at = 0; (at = log.find(told, at)) != std::string::npos; at += told.size()) {
        ++count;
    }
    EXPECT_LE(1u, count) << log;
    EXPECT_GE(2u, count) << log;
}

/* Whose memory is gone from under a message that is under way, by which scheme it is moved. */
struct loss {
    const char *scheme;
    unsigned    loser;
    bool        is_cut; /* it lies in a file, which was made shorter; else it was unmapped */
};

std::ostream &operator<<(std::ostream &out, const loss &l)
{
    return out << l.scheme << ", " << ((l.loser == SENDER) ? "source" : "destination")
               << (l.is_cut ? ", cut" : ", unmapped");
}

class memory_lost : public testing::TestWithParam<loss> {
};

/* The program has taken away a part of a buffer of which two messages are under way. Its own
 * operations end with an error, and so do receives of half a message; nobody dies, later messages
 * are whole. (Not a larger part: a later mmap would take its place.) */
TEST_P(memory_lost, part_of_a_buffer)
{
    const loss l      = GetParam();
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void *hole        = mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    processes both(2);

    ASSERT_EQ(0, munmap(hole, page));
    if (ucs_sys_populate(hole, page, 0)) {
        GTEST_SKIP() << "this kernel does not tell what memory is there";
    }
    both.start_all([&](self &me) {
        constexpr size_t LENGTH = 8u << 20;
        ucs_status_ptr_t requests[2] = {};

        setenv("UCX_RNDV_SCHEME", l.scheme, 1);
        node n(me);
        n.connect_all();
        transfer(me, n, 1u << 20, 1, 0, nothing); /* copies are proved */

        const int file = memfd_create("buffer", 0);
        ASSERT_EQ(0, ftruncate(file, LENGTH));
        auto *buffer = static_cast<uint8_t *>(mmap(nullptr, LENGTH, PROT_READ | PROT_WRITE,
                                                   MAP_SHARED, file, 0));
        ASSERT_NE(MAP_FAILED, buffer);
        const auto begin = [&]() {
            memset(buffer, 1, LENGTH);
            for (ucs_status_ptr_t &request : requests) {
                request = (me.index() == SENDER) ? n.send(n.ep(RECEIVER), buffer, LENGTH, 2) :
                                                   n.recv(buffer, LENGTH, 2);
                ASSERT_TRUE(UCS_PTR_IS_PTR(request));
            }
        };
        if (me.index() == l.loser) {
            begin();
            ASSERT_EQ(0, l.is_cut ? ftruncate(file, LENGTH / 2) :
                                    munmap(buffer + LENGTH / 2, page));
        }
        n.barrier();
        if (me.index() != l.loser) {
            begin();
        }
        for (ucs_status_ptr_t request : requests) {
            const ucs_status_t status = n.wait(request);
            /* a receive has got half a message, in any case */
            EXPECT_TRUE((status == UCS_ERR_INVALID_ADDR) ||
                        ((status == UCS_OK) && (me.index() == SENDER) && (l.loser == RECEIVER)))
                << ucs_status_string(status);
        }
        for (uint64_t id = 3; id < 6; ++id) {
            transfer(me, n, (1u << 20) + id, id, 0, nothing);
        }
        end(n);
        close(file);
    });
    EXPECT_TRUE(both.join());
    EXPECT_EQ(std::string::npos, both.log().find("ERROR")) << both.log();
}

static std::vector<loss> all_losses()
{
    std::vector<loss> list;

    for (const char *scheme : {"get_zcopy", "put_zcopy", "both"}) {
        for (unsigned loser : {SENDER, RECEIVER}) {
            list.push_back({scheme, loser, false});
            list.push_back({scheme, loser, true});
        }
    }
    return list;
}

static std::string loss_name(const testing::TestParamInfo<loss> &info)
{
    return std::string(info.param.scheme) +
           ((info.param.loser == SENDER) ? "_source" : "_destination") +
           (info.param.is_cut ? "_cut" : "_unmapped");
}

INSTANTIATE_TEST_SUITE_P(, memory_lost, testing::ValuesIn(all_losses()), loss_name);

static std::vector<refusal> all_refusals()
{
    std::vector<refusal> list;

    for (const char *scheme : {"auto", "get_zcopy", "put_zcopy", "both"}) {
        list.push_back({scheme, EPERM, true, true});
        list.push_back({scheme, EPERM, true, false});
        list.push_back({scheme, EPERM, false, true});
    }
    list.push_back({"auto", ENOSYS, true, true});
    return list;
}

static std::string refusal_name(const testing::TestParamInfo<refusal> &info)
{
    const refusal &r = info.param;

    return std::string(r.scheme) + ((r.error == EPERM) ? "_EPERM" : "_ENOSYS") +
           (r.by_sender ? "_sender" : "") + (r.by_receiver ? "_receiver" : "");
}

INSTANTIATE_TEST_SUITE_P(, copy_refused, testing::ValuesIn(all_refusals()), refusal_name);
