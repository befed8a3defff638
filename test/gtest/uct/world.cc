/* Halyard: workers for the tests of transports.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world.h"

#include <pattern.h>

#include <ucs/config/global.h>
#include <ucs/debug/log.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

namespace uct_test {

std::vector<std::string> transports(const std::function<bool(const uct_tl_t *)> &has)
{
    std::vector<std::string> names;
    size_t count;
    const uct_tl_t *const *tls = uct_tl_list(&count);

    for (size_t i = 0; i < count; ++i) {
        /* Those for device memory need such memory and a driver: test_cuda_*.cc */
        if (has(tls[i]) && (tls[i]->kind != UCT_TL_KIND_DEVICE)) {
            for (const char *hook : {"", "fault:", "delay:", "trace:", "delay:fault:"}) {
                names.push_back(std::string(hook) + tls[i]->name);
            }
        }
    }
    return names;
}

std::string test_name(const testing::TestParamInfo<std::string> &info)
{
    std::string name = info.param;

    std::replace_if(name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
    return name;
}

bool is_present(const uct_tl_t *tl)
{
    uct_md_t *md;
    const ucs_status_t status = uct_md_open(tl, nullptr, &md);

    if (status == UCS_OK) {
        uct_md_close(md);
    }
    return status != UCS_ERR_NO_DEVICE;
}

bool network_has(uct_op_t op)
{
    const worker any(uct_tl_find("ofi"));

    return (any.status() == UCS_OK) && (any.limits(op).max > 0);
}

bool has_messages(const uct_tl_t *tl)
{
    return (tl->ep.live.am_short != nullptr) || (tl->ep.live.am_bcopy != nullptr);
}

bytes pattern(uint64_t number, size_t length)
{
    bytes data(length);
    pattern_fill(data.data(), length, number);
    return data;
}

/* ---- worker ---- */

worker::worker(const uct_tl_t *tl_arg, bool is_shared) : tl(tl_arg)
{
    (void)ucs_global_opts(); /* as programs do first, and not by the first message of two threads */

    std::random_device random;
    for (auto &byte : uid) {
        byte = static_cast<uint8_t>(random());
    }

    m_status = uct_md_open(tl, nullptr, &md);
    if (m_status != UCS_OK) {
        md = nullptr;
        return;
    }

    uct_iface_params_t params = {};
    std::copy(uid.begin(), uid.end(), params.uid);
    params.ep_failed = ep_failed;
    params.peer_gone = peer_gone;
    params.arg       = this;
    params.is_shared = is_shared;

    m_status = uct_iface_open(md, &params, &iface);
    if (m_status != UCS_OK) {
        iface = nullptr;
    }
}

worker::~worker()
{
    if (iface != nullptr) {
        close_all();
        const int result = uct_iface_close(iface);
        EXPECT_TRUE((result == is_stuck) || (is_stuck < 0)) << result;
    }
    if (md != nullptr) {
        uct_md_close(md);
    }
}

void worker::ep_failed(void *arg, uct_ep_t *ep, ucs_status_t status)
{
    static_cast<worker *>(arg)->failed.emplace_back(ep, status);
}

void worker::peer_gone(void *arg, const uint8_t *uid)
{
    uid_bytes peer;

    std::copy(uid, uid + UCT_UID_LEN, peer.begin());
    static_cast<worker *>(arg)->gone.push_back(peer);
}

void worker::deliver(void *arg, const void *data, size_t length)
{
    EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(data) % 8);
    (*static_cast<handler *>(arg))(static_cast<const uint8_t *>(data), length);
}

void worker::on_message(unsigned id, handler func)
{
    m_handlers[id] = std::move(func);
    uct_iface_set_am(iface, id, deliver, &m_handlers[id], UCT_AM_COPIED);
}

contact worker::where() const
{
    contact result;

    result.uid = uid;
    result.address.resize(255);
    result.address.resize(tl->iface.get_address(iface, result.address.data()));
    return result;
}

uct_limits_t worker::limits(uct_op_t op) const
{
    uct_limits_t limits;

    tl->iface.limits(iface, op, UCS_MEMORY_TYPE_HOST, &limits);
    return limits;
}

unsigned worker::progress()
{
    return uct_iface_progress(iface);
}

ucs_status_t worker::try_connect(const contact &peer, uct_ep_t **ep_p)
{
    const ucs_status_t status = uct_ep_open(iface, peer.uid.data(), peer.address.data(),
                                            peer.address.size(), this, ep_p);

    if (status == UCS_OK) {
        m_eps.push_back(*ep_p);
    }
    return status;
}

uct_ep_t *worker::connect(const contact &peer)
{
    uct_ep_t *ep              = nullptr;
    const ucs_status_t status = try_connect(peer, &ep);

    EXPECT_EQ(UCS_OK, status) << ucs_status_string(status);
    return ep;
}

void worker::close(uct_ep_t *ep)
{
    uct_ep_pending_purge(ep, [](uct_pending_t *, void *) {}, nullptr);
    uct_ep_close(ep);
    m_eps.erase(std::find(m_eps.begin(), m_eps.end(), ep));
}

void worker::close_all()
{
    while (!m_eps.empty()) {
        close(m_eps.back());
    }
}

/* ---- completion, pending ---- */

completion::completion(int count)
{
    base.func   = [](uct_completion_t *self) { ++from(self)->calls; };
    base.count  = count;
    base.status = UCS_OK;
}

pending::pending(std::function<ucs_status_t()> func_arg) : func(std::move(func_arg))
{
    base.func = [](uct_pending_t *self) { return from(self)->func(); };
}

/* ---- log levels ---- */

log_levels::log_levels(const char *text)
{
    (void)ucs_global_opts(); /* not later, when it would set the levels of the environment */
    EXPECT_EQ(UCS_OK, ucs_log_set_levels(text));
}

log_levels::~log_levels()
{
    const char *text = getenv("UCX_LOG_LEVEL");

    ucs_log_set_levels((text != nullptr) ? text : "warn");
}

/* ---- driving ---- */

bool run_until(const std::vector<worker *> &workers, const std::function<bool()> &condition,
               int limit_s)
{
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(limit_s);
    unsigned idle  = 0;
    unsigned turns = 0;

    while (!condition()) {
        unsigned count = 0;
        for (worker *w : workers) {
            count += w->progress();
        }
        idle = (count == 0) ? idle + 1 : 0;
        if ((idle % 64) == 63) {
            sched_yield();
        }
        if (((++turns % 64) == 0) && (std::chrono::steady_clock::now() > end)) {
            return condition();
        }
    }
    return true;
}

ucs_status_t persist(const std::vector<worker *> &workers, const std::function<ucs_status_t()> &op)
{
    ucs_status_t status = UCS_ERR_NO_RESOURCE;

    run_until(workers, [&]() {
        status = op();
        return status != UCS_ERR_NO_RESOURCE;
    });
    return status;
}

ucs_status_t finish(const std::vector<worker *> &workers,
                    const std::function<ucs_status_t(uct_completion_t *)> &op)
{
    completion comp;
    const ucs_status_t status = persist(workers, [&]() { return op(&comp.base); });

    if (status != UCS_INPROGRESS) {
        EXPECT_EQ(0, comp.calls) << "completion of an operation that was done at once";
        return status;
    }
    if (!run_until(workers, [&]() { return comp.calls != 0; })) {
        ADD_FAILURE() << "an operation in progress did not complete";
        abort(); /* the completion lies on this stack */
    }
    EXPECT_EQ(1, comp.calls);
    return comp.base.status;
}

/* ---- memory of peers ---- */

static bool has_transfer(const uct_tl_t *tl, bool is_put)
{
    return (is_put ? tl->ep.live.put_zcopy : tl->ep.live.get_zcopy) != nullptr;
}

bool can_transfer(const uct_tl_t *tl, bool is_put)
{
    return has_transfer(tl, is_put) || (tl->md.rkey_ptr != nullptr);
}

unsigned transfer_iov_max(const worker &from, bool is_put)
{
    return has_transfer(from.tl, is_put) ?
           from.limits(is_put ? UCT_OP_PUT_ZCOPY : UCT_OP_GET_ZCOPY).iov_max : 100;
}

ucs_status_t transfer(uct_ep_t *ep, bool is_put, const uct_iov_t *iov, unsigned n, uint64_t remote,
                      uct_rkey_t *rkey, uct_completion_t *comp)
{
    const uct_tl_t *tl = ep->iface->tl;
    void *there;

    if (has_transfer(tl, is_put)) {
        return (is_put ? ep->ops->put_zcopy : ep->ops->get_zcopy)(ep, iov, n, remote, rkey, comp);
    }
    for (unsigned i = 0; i < n; ++i) {
        const ucs_status_t status = tl->md.rkey_ptr(rkey, remote, iov[i].length, &there);
        if (status != UCS_OK) {
            return status;
        }
        if (iov[i].length > 0) {
            memcpy(is_put ? there : iov[i].buffer, is_put ? iov[i].buffer : there, iov[i].length);
        }
        remote += iov[i].length;
    }
    return UCS_OK;
}

/* ---- ways of sending ---- */

bool has_way(const uct_tl_t *tl, way how)
{
    switch (how) {
    case way::SHORT:
        return tl->ep.live.am_short != nullptr;
    case way::SHORT_IOV:
        return tl->ep.live.am_short_iov != nullptr;
    case way::ZCOPY:
        return tl->ep.live.am_zcopy != nullptr;
    default:
        return tl->ep.live.am_bcopy != nullptr;
    }
}

size_t way_max(const worker &from, way how)
{
    return from.limits((how == way::BCOPY) ? UCT_OP_AM_BCOPY :
                       (how == way::ZCOPY) ? UCT_OP_AM_ZCOPY : UCT_OP_AM_SHORT).max;
}

/* Cuts data into at most four entries, empty ones among them. */
static std::vector<uct_iov_t> cut(const uint8_t *data, size_t length, uint64_t seed)
{
    std::vector<uct_iov_t> iov;
    const unsigned count = 1 + (seed & 3);

    for (unsigned i = 0; i < count; ++i) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        const size_t part = (i + 1 == count) ? length : (seed >> 33) % (length + 1);
        iov.push_back({const_cast<uint8_t *>(data), part, nullptr});
        data   += part;
        length -= part;
    }
    return iov;
}

static size_t pack_bytes(void *dest, void *arg, size_t max)
{
    const bytes *data = static_cast<const bytes *>(arg);

    EXPECT_LE(data->size(), max);
    if (!data->empty()) {
        memcpy(dest, data->data(), data->size());
    }
    return data->size();
}

/* Memory that is nobody's but the operation's, from its start to its completion. */
struct lent {
    uct_completion_t comp;
    bytes            data;
};

static void give_back(uct_completion_t *comp)
{
    delete reinterpret_cast<lent *>(comp);
}

static ucs_status_t post_lent(uct_ep_t *ep, unsigned id, const bytes &data, uint64_t seed)
{
    const size_t head_length = (seed % 5 == 0) ? seed % (data.size() + 1) :
                                                 std::min<size_t>(data.size(), seed % 100);
    const bytes head(data.begin(), data.begin() + static_cast<ptrdiff_t>(head_length));
    auto *payload = new lent{{give_back, 1, UCS_OK}, {}};
    auto iov      = cut(head.data(), head.size(), seed);

    payload->data.assign(data.begin() + static_cast<ptrdiff_t>(head_length), data.end());
    iov.push_back({payload->data.data(), payload->data.size(), nullptr});
    const ucs_status_t status = ep->ops->am_zcopy(ep, id, iov.data(),
                                                  static_cast<unsigned>(iov.size()),
                                                  &payload->comp);
    if (status != UCS_INPROGRESS) {
        delete payload;
        return status;
    }
    return UCS_OK;
}

ucs_status_t post(uct_ep_t *ep, way how, unsigned id, const bytes &data, uint64_t seed)
{
    uint64_t header;
    ucs_status_t status;
    uct_limits_t limits;
    size_t length;

    switch (how) {
    case way::SHORT:
        memcpy(&header, data.data(), sizeof(header));
        return ep->ops->am_short(ep, id, header, data.data() + sizeof(header),
                                 data.size() - sizeof(header));
    case way::SHORT_IOV: {
        const auto iov = cut(data.data(), data.size(), seed);
        return ep->ops->am_short_iov(ep, id, iov.data(), static_cast<unsigned>(iov.size()));
    }
    case way::ZCOPY:
        return post_lent(ep, id, data, seed);
    default:
        ep->iface->tl->iface.limits(ep->iface, UCT_OP_AM_BCOPY, UCS_MEMORY_TYPE_HOST, &limits);
        length = std::max(data.size(), std::min(limits.max, data.size() + (seed % 100)));
        status = ep->ops->am_bcopy(ep, id, pack_bytes, const_cast<bytes *>(&data), &length);
        if (status == UCS_OK) {
            EXPECT_EQ(data.size(), length);
        }
        return status;
    }
}

ucs_status_t send(const std::vector<worker *> &workers, uct_ep_t *ep, way how, unsigned id,
                  const bytes &data, uint64_t seed)
{
    return persist(workers, [&]() {
        return post(ep, how, id, data, seed);
    });
}

/* ---- pair ---- */

void pair_test::SetUp()
{
    m_tl = uct_tl_find(GetParam().c_str());
    ASSERT_NE(nullptr, m_tl);

    if (!is_present(m_tl)) {
        GTEST_SKIP() << "no device for " << GetParam();
    }
    m_a = std::make_shared<worker>(m_tl);
    ASSERT_EQ(UCS_OK, m_a->status());
    m_b = is_loopback() ? m_a : std::make_shared<worker>(m_tl);
    ASSERT_EQ(UCS_OK, m_b->status());
}

} // namespace uct_test
