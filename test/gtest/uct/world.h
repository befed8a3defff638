/* Halyard: workers for the tests of transports: one interface each, with everything that it reports
 * written down, and helpers that drive several of them.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_UCT_WORLD_H
#define TEST_GTEST_UCT_WORLD_H

#include <gtest/gtest.h>

#include <uct/api/uct_tl.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace uct_test {

using uid_bytes = std::array<uint8_t, UCT_UID_LEN>;
using bytes     = std::vector<uint8_t>;

/* What a peer must know to connect. */
struct contact {
    uid_bytes uid;
    bytes address;
};

/* Names of all transports that `has` accepts: each plain and under each hook. Without those for
 * device memory, which need a driver. */
std::vector<std::string> transports(const std::function<bool(const uct_tl_t *)> &has);

/* The same for names of parameterised tests. */
std::string test_name(const testing::TestParamInfo<std::string> &info);

/* False where this machine or build has not what the transport needs. */
bool is_present(const uct_tl_t *tl);

bool has_messages(const uct_tl_t *tl);

/* Can the network that is used do that by itself? Not all providers read the memory of a peer, or
 * send from where a message lies. */
bool network_has(uct_op_t op);

/* Bytes that depend on a number, so that a byte of another message or place is seen. */
bytes pattern(uint64_t number, size_t length);

class worker {
public:
    using handler = std::function<void(const uint8_t *data, size_t length)>;

    explicit worker(const uct_tl_t *tl, bool is_shared = false);
    ~worker();
    worker(const worker &) = delete;
    worker &operator=(const worker &) = delete;

    /* UCS_OK, or why it could not be opened. */
    ucs_status_t status() const
    {
        return m_status;
    }

    contact where() const;
    uct_limits_t limits(uct_op_t op) const;
    unsigned progress();
    void on_message(unsigned id, handler func);

    /* Endpoints are closed with the worker unless earlier. */
    uct_ep_t *connect(const contact &peer);
    ucs_status_t try_connect(const contact &peer, uct_ep_t **ep_p);
    void close(uct_ep_t *ep);
    void close_all();

    const uct_tl_t *tl;
    uct_md_t *md       = nullptr;
    uct_iface_t *iface = nullptr;
    int is_stuck       = 0; /* what closing it returns; -1: any */
    uid_bytes uid;

    /* Reports, in order of arrival. */
    std::vector<std::pair<uct_ep_t *, ucs_status_t>> failed;
    std::vector<uid_bytes> gone;

private:
    static void ep_failed(void *arg, uct_ep_t *ep, ucs_status_t status);
    static void peer_gone(void *arg, const uint8_t *uid);
    static void deliver(void *arg, const void *data, size_t length);

    ucs_status_t m_status;
    std::array<handler, UCT_AM_ID_MAX> m_handlers;
    std::vector<uct_ep_t *> m_eps;
};

/* A completion that remembers. */
struct completion {
    explicit completion(int count = 1);

    static completion *from(uct_completion_t *base)
    {
        return reinterpret_cast<completion *>(base);
    }

    uct_completion_t base; /* first */
    int calls = 0;
};

/* A pending request made of a function. */
struct pending {
    explicit pending(std::function<ucs_status_t()> func_arg);

    static pending *from(uct_pending_t *base)
    {
        return reinterpret_cast<pending *>(base);
    }

    uct_pending_t base; /* first */
    std::function<ucs_status_t()> func;
};

/* Other log levels (in the form of UCX_LOG_LEVEL) while the object lives. */
class log_levels {
public:
    explicit log_levels(const char *text);
    ~log_levels();
    log_levels(const log_levels &) = delete;
    log_levels &operator=(const log_levels &) = delete;
};

/* Seconds, as a time limit and not as a measurement: when it is over the test has failed. */
constexpr int LIMIT_S = 20;

/* Progresses the workers until the condition holds. False: it did not in time. */
bool run_until(const std::vector<worker *> &workers, const std::function<bool()> &condition,
               int limit_s = LIMIT_S);

/* Repeats an operation, with progress, until it finds its resources. */
ucs_status_t persist(const std::vector<worker *> &workers, const std::function<ucs_status_t()> &op);

/* Repeats it and waits for the end of what it started. */
ucs_status_t finish(const std::vector<worker *> &workers,
                    const std::function<ucs_status_t(uct_completion_t *)> &op);

/* The three ways of sending a message. */
enum class way { SHORT, SHORT_IOV, BCOPY, ZCOPY };
constexpr way WAYS[] = {way::SHORT, way::SHORT_IOV, way::BCOPY, way::ZCOPY};

bool has_way(const uct_tl_t *tl, way how);
size_t way_max(const worker &from, way how);

/* Sends `data` (8 bytes at least where the way is SHORT) once; may find no resource. `seed` decides
 * how it is cut into entries. */
ucs_status_t post(uct_ep_t *ep, way how, unsigned id, const bytes &data, uint64_t seed);

/* Sends it for sure. */
ucs_status_t send(const std::vector<worker *> &workers, uct_ep_t *ep, way how, unsigned id,
                  const bytes &data, uint64_t seed = 0);

/* Can it put (or get) to memory of a peer: by an operation, or since it maps the memory? */
bool can_transfer(const uct_tl_t *tl, bool is_put);

/* Does that once, by entries of which so many are possible; may find no resource. */
unsigned transfer_iov_max(const worker &from, bool is_put);
ucs_status_t transfer(uct_ep_t *ep, bool is_put, const uct_iov_t *iov, unsigned n, uint64_t remote,
                      uct_rkey_t *rkey, uct_completion_t *comp);

/* Base of the suites: two workers a and b, which are one where the transport is a loopback. */
class pair_test : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override;

    std::vector<worker *> both() const
    {
        return (m_a == m_b) ? std::vector<worker *>{m_a.get()} :
                              std::vector<worker *>{m_a.get(), m_b.get()};
    }

    worker &a()
    {
        return *m_a;
    }

    worker &b()
    {
        return *m_b;
    }

    bool is_loopback() const
    {
        return m_tl->kind == UCT_TL_KIND_SELF;
    }

    const uct_tl_t *m_tl = nullptr;
    std::shared_ptr<worker> m_a, m_b;
};

} // namespace uct_test

#endif
