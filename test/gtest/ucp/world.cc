/* Halyard: what the tests of ucp share.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/world.h>

#include <pattern.h>

#include <ucs/debug/fault.h>
#include <ucs/debug/log.h>
#include <uct/api/uct_tl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace ucp_test {

namespace {

constexpr auto PATIENCE = std::chrono::seconds(25);

/* ---- log ---- */

struct {
    std::mutex mutex;
    std::vector<std::string> lines;
} g_log;

ucs_log_func_rc_t catch_line(const char *, unsigned, const char *, ucs_log_level_t level,
                             const ucs_log_component_config_t *component, const char *message,
                             va_list ap)
{
    char text[1024];

    if (level > UCS_LOG_LEVEL_WARN) {
        return UCS_LOG_FUNC_RC_CONTINUE;
    }
    vsnprintf(text, sizeof(text), message, ap);
    const std::lock_guard<std::mutex> lock(g_log.mutex);
    g_log.lines.push_back(std::string(component->name) + ": " + text);
    return UCS_LOG_FUNC_RC_STOP;
}

} // namespace

log_catcher::log_catcher()
{
    ucs_log_push_handler(catch_line);
}

log_catcher::~log_catcher()
{
    ucs_log_pop_handler();
    for (const std::string &line : take()) {
        ADD_FAILURE() << "unexpected message: " << line;
    }
}

std::vector<std::string> log_catcher::take()
{
    const std::lock_guard<std::mutex> lock(g_log.mutex);
    return std::exchange(g_log.lines, {});
}

/* ---- environment ---- */

void environment::set(const settings &values)
{
    for (const auto &[name, value] : values) {
        const char *before = getenv(name.c_str());
        if (before != nullptr) {
            m_before.emplace_back(name, before);
        } else {
            m_not_there.push_back(name);
        }
        setenv(name.c_str(), value.c_str(), 1);
    }
}

environment::~environment()
{
    for (auto i = m_before.rbegin(); i != m_before.rend(); ++i) {
        setenv(i->first.c_str(), i->second.c_str(), 1);
    }
    for (const std::string &name : m_not_there) {
        unsetenv(name.c_str());
    }
}

/* ---- variants ---- */

bool is_present(const char *name)
{
    uct_md_t *md;

    if (uct_md_open(uct_tl_find(name), nullptr, &md) != UCS_OK) {
        return false;
    }
    uct_md_close(md);
    return true;
}

bool is_polled(const std::string &tls)
{
    const char *provider = getenv("UCX_OFI_PROVIDER");

    for (const char *each : {"sockets", "udp;ofi_rxd", "shm"}) {
        if ((provider != nullptr) && (strcmp(provider, each) == 0)) {
            return tls.find("ofi") != std::string::npos;
        }
    }
    return false;
}

std::vector<variant> all_variants()
{
    const auto SINGLE = UCS_THREAD_MODE_SINGLE;
    const auto MULTI  = UCS_THREAD_MODE_MULTI;
    std::vector<variant> list;

    for (const char *scheme : {"auto", "get_zcopy", "put_zcopy", "both", "am"}) {
        const std::string name = scheme;
        list.push_back(
            {"self_" + name, {{"UCX_TLS", "self"}, {"UCX_RNDV_SCHEME", name}}, true, SINGLE});
        list.push_back(
            {"mm_" + name, {{"UCX_TLS", "mm,cma"}, {"UCX_RNDV_SCHEME", name}}, false, SINGLE});
    }
    for (const char *threshold : {"0", "inf", "1", "1001"}) {
        const std::string name = threshold;
        list.push_back(
            {"self_from_" + name, {{"UCX_TLS", "self"}, {"UCX_RNDV_THRESH", name}}, true, SINGLE});
        list.push_back({"mm_from_" + name, {{"UCX_RNDV_THRESH", name}}, false, SINGLE});
    }
    list.push_back(
        {"both_from_0", {{"UCX_RNDV_THRESH", "0"}, {"UCX_RNDV_SCHEME", "both"}}, false, SINGLE});
    list.push_back({"put_from_0",
                    {{"UCX_RNDV_THRESH", "0"}, {"UCX_RNDV_SCHEME", "put_zcopy"}},
                    false,
                    SINGLE});
    list.push_back({"no_cma", {{"UCX_TLS", "^cma"}}, false, SINGLE});
    list.push_back(
        {"no_cma_from_0", {{"UCX_TLS", "^cma"}, {"UCX_RNDV_THRESH", "0"}}, false, SINGLE});
    list.push_back({"mm_only_multi", {{"UCX_TLS", "mm"}}, false, MULTI});
    list.push_back({"mm_multi", {{"UCX_TLS", "mm,cma"}}, false, MULTI});
    list.push_back({"self_multi", {{"UCX_TLS", "self"}}, true, MULTI});
    list.push_back(
        {"small_rings", {{"UCX_MM_FIFO_SIZE", "64"}, {"UCX_MM_SEG_SIZE", "1k"}}, false, SINGLE});
    list.push_back(
        {"large_messages",
         {{"UCX_MM_FIFO_SIZE", "4096"}, {"UCX_MM_SEG_SIZE", "64k"}, {"UCX_RNDV_THRESH", "inf"}},
         false,
         SINGLE});
    for (const char *tls : {"fault:mm,cma", "fault:mm,fault:cma", "delay:mm,delay:cma", "delay:mm",
                            "trace:mm,trace:cma", "delay:fault:mm,cma"}) {
        std::string name = tls;
        std::replace_if(
            name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
        list.push_back({name, {{"UCX_TLS", tls}}, false, SINGLE});
    }
    if (is_present("ofi")) {
        list.push_back({"ofi", {{"UCX_TLS", "ofi"}}, false, SINGLE});
        list.push_back(
            {"ofi_from_0", {{"UCX_TLS", "ofi"}, {"UCX_RNDV_THRESH", "0"}}, false, SINGLE});
        list.push_back({"ofi_fault_multi", {{"UCX_TLS", "fault:ofi"}}, false, MULTI});
    }
    list.push_back({"fault_self", {{"UCX_TLS", "fault:self"}}, true, SINGLE});
    list.push_back({"delay_self", {{"UCX_TLS", "delay:self"}}, true, SINGLE});
    list.push_back({"often_fault",
                    {{"UCX_TLS", "fault:mm,fault:cma"},
                     {"UCX_HOOK_NO_RESOURCE", "0.7"},
                     {"UCX_RNDV_THRESH", "500"}},
                    false,
                    SINGLE});
    return list;
}

std::vector<variant> some_variants()
{
    static const char *const names[] = {"self_auto",
                                        "mm_auto",
                                        "mm_both",
                                        "put_from_0",
                                        "no_cma",
                                        "mm_multi",
                                        "small_rings",
                                        "fault_mm_fault_cma",
                                        "delay_mm_delay_cma",
                                        "ofi"};
    std::vector<variant> list;

    for (const variant &each : all_variants()) {
        if (std::count(std::begin(names), std::end(names), each.name) > 0) {
            list.push_back(each);
        }
    }
    return list;
}

bool announces_all(const variant &variant)
{
    for (const auto &[name, value] : variant.env) {
        if ((name == "UCX_RNDV_THRESH") && (value.size() == 1)) { /* bytes */
            return true;
        }
    }
    return false;
}

bool is_network(const variant &variant)
{
    for (const auto &[name, value] : variant.env) {
        if ((name == "UCX_TLS") && (value.find("ofi") != std::string::npos)) {
            return true;
        }
    }
    return false;
}

std::string variant_name(const testing::TestParamInfo<variant> &info)
{
    return info.param.name;
}

/* ---- data ---- */

void fill(void *buffer, size_t length, uint64_t number)
{
    pattern_fill(buffer, length, number);
}

bytes pattern(uint64_t number, size_t length)
{
    bytes result(length);
    fill(result.data(), length, number);
    return result;
}

ptrdiff_t differs(const void *buffer, size_t length, uint64_t number)
{
    return pattern_differs(buffer, length, number);
}

guarded::guarded(size_t length) : m_bytes(length + (2 * GUARD), 0xa5)
{
}

bool guarded::is_intact() const
{
    return pattern_is_only(m_bytes.data(), GUARD, 0xa5) &&
           pattern_is_only(m_bytes.data() + m_bytes.size() - GUARD, GUARD, 0xa5);
}

/* ---- context and worker ---- */

context::context(const context_options &options)
{
    ucp_params_t params;

    memset(&params, 0xee, sizeof(params)); /* only what the mask names may be looked at */
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_REQUEST_SIZE |
                        UCP_PARAM_FIELD_REQUEST_INIT | UCP_PARAM_FIELD_REQUEST_CLEANUP;
    params.features           = options.features;
    params.request_size       = options.request_size;
    params.request_init       = options.init;
    params.request_cleanup    = options.cleanup;
    const ucs_status_t status = ucp_init(&params, nullptr, &m_handle);
    if (status != UCS_OK) {
        ADD_FAILURE() << "ucp_init: " << ucs_status_string(status);
    }
}

context::~context()
{
    if (m_handle != nullptr) {
        ucp_cleanup(m_handle);
    }
}

size_t context::request_size() const
{
    ucp_context_attr_t attr;
    attr.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE;
    EXPECT_EQ(UCS_OK, ucp_context_query(m_handle, &attr));
    return attr.request_size;
}

worker::worker(const context &context, ucs_thread_mode_t mode)
{
    ucp_worker_params_t params;

    memset(&params, 0xee, sizeof(params));
    params.field_mask         = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode        = mode;
    const ucs_status_t status = ucp_worker_create(context.handle(), &params, &m_handle);
    if (status != UCS_OK) {
        ADD_FAILURE() << "ucp_worker_create: " << ucs_status_string(status);
    }
}

worker::~worker()
{
    if (m_handle == nullptr) {
        return;
    }
    for (ucp_ep_h ep : m_eps) {
        void *request = ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FLUSH);
        EXPECT_FALSE(UCS_PTR_IS_ERR(request)) << ucs_status_string(UCS_PTR_STATUS(request));
        if (UCS_PTR_IS_PTR(request)) {
            ucp_request_free(request);
        }
    }
    destroy();
}

bytes worker::address() const
{
    ucp_address_t *address = nullptr;
    size_t length          = 0;
    EXPECT_EQ(UCS_OK, ucp_worker_get_address(m_handle, &address, &length));
    const auto *start = reinterpret_cast<const uint8_t *>(address);
    bytes copy(start, start + length);
    ucp_worker_release_address(m_handle, address);
    return copy;
}

ucp_ep_h worker::connect(const worker &peer, ucp_err_handling_mode_t err_mode,
                         ucp_err_handler_cb_t cb, void *arg)
{
    const bytes address = peer.address();
    ucp_ep_params_t params;
    ucp_ep_h ep = nullptr;

    memset(&params, 0xee, sizeof(params));
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address    = reinterpret_cast<const ucp_address_t *>(address.data());
    params.err_mode   = err_mode;
    if (cb != nullptr) {
        params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_handler.cb  = cb;
        params.err_handler.arg = arg;
    }
    const ucs_status_t status = ucp_ep_create(m_handle, &params, &ep);
    if (status != UCS_OK) {
        ADD_FAILURE() << "ucp_ep_create: " << ucs_status_string(status);
        return nullptr;
    }
    m_eps.push_back(ep);
    return ep;
}

void worker::forget(ucp_ep_h ep)
{
    m_eps.erase(std::remove(m_eps.begin(), m_eps.end(), ep), m_eps.end());
}

void worker::destroy()
{
    m_eps.clear();
    ucp_worker_destroy(std::exchange(m_handle, nullptr));
}

/* ---- pair ---- */

pair::pair(const variant &variant, const context_options &options) :
    m_environment(variant.env), m_context(options)
{
    m_workers.push_back(std::make_unique<worker>(m_context, variant.mode));
    if (!variant.is_self) {
        m_workers.push_back(std::make_unique<worker>(m_context, variant.mode));
    }
    m_ep = sender().connect(receiver());
}

pair::~pair()
{
    if ((sender().handle() != nullptr) && (receiver().handle() != nullptr)) {
        settle();
    }
}

ucp_ep_h pair::ep_back()
{
    if (m_ep_back == nullptr) {
        m_ep_back = receiver().connect(sender());
    }
    return m_ep_back;
}

unsigned pair::progress()
{
    unsigned count = 0;
    for (const auto &each : m_workers) {
        if (each->handle() != nullptr) {
            count += each->progress();
        }
    }
    return count;
}

void pair::progress_until(const std::function<bool()> &condition)
{
    const auto start = std::chrono::steady_clock::now();
    unsigned rounds  = 0;

    while (!condition()) {
        progress();
        if (((++rounds % 256) == 0) && (std::chrono::steady_clock::now() - start > PATIENCE)) {
            FAIL() << "what is waited for does not come";
        }
    }
}

void pair::settle()
{
    /* Longer than a connection takes, and than any delay of a hook; of a provider that the user
     * names, which may have threads that connect, or sleep between looks at a socket. */
    const auto quiet = std::chrono::milliseconds((getenv("UCX_OFI_PROVIDER") != nullptr) ? 50 : 0);
    auto last        = std::chrono::steady_clock::now();

    for (unsigned idle = 0;
         (idle < 200) || (std::chrono::steady_clock::now() - last < quiet); ++idle) {
        if (progress() > 0) {
            idle = 0;
            last = std::chrono::steady_clock::now();
        }
    }
}

ucs_status_t pair::wait(ucs_status_ptr_t ptr, ucp_tag_recv_info_t *info)
{
    if (!UCS_PTR_IS_PTR(ptr)) {
        return UCS_PTR_RAW_STATUS(ptr);
    }
    progress_until([&]() { return ucp_request_check_status(ptr) != UCS_INPROGRESS; });
    const ucs_status_t status = ucp_request_test(ptr, info);
    ucp_request_free(ptr);
    return status;
}

ucs_status_ptr_t pair::send(const void *buffer, size_t length, ucp_tag_t tag, bool sync)
{
    const ucp_request_param_t param = send_param(nullptr);
    return sync ? ucp_tag_send_sync_nbx(m_ep, buffer, length, tag, &param)
                : ucp_tag_send_nbx(m_ep, buffer, length, tag, &param);
}

ucs_status_ptr_t pair::receive(void *buffer, size_t length, ucp_tag_t tag, ucp_tag_t mask,
                               ucp_tag_recv_info_t *info)
{
    ucp_request_param_t param = receive_param(nullptr);
    if (info != nullptr) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_RECV_INFO;
        param.recv_info.tag_info = info;
    }
    return ucp_tag_recv_nbx(receiver().handle(), buffer, length, tag, mask, &param);
}

/* ---- callbacks ---- */

void on_send(void *request, ucs_status_t status, void *user_data)
{
    auto *end = static_cast<ending *>(user_data);

    ++end->calls;
    end->request = request;
    end->status  = status;
    if (end->free_request) {
        ucp_request_free(request);
    }
    if (end->action) {
        end->action();
    }
}

void on_receive(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                void *user_data)
{
    static_cast<ending *>(user_data)->info = *info;
    on_send(request, status, user_data);
}

void *send_until_queued(ucp_ep_h ep, const bytes &data, ucp_tag_t tag, ending *sent,
                        unsigned *count)
{
    const ucp_request_param_t param = send_param(sent);

    for (*count = 1; *count < 100000; ++*count) {
        void *request = ucp_tag_send_nbx(ep, data.data(), data.size(), tag, &param);
        if (request != nullptr) {
            return request;
        }
    }
    ADD_FAILURE() << "there was always room";
    return nullptr;
}

ucp_request_param_t send_param(ending *end, uint32_t more_mask)
{
    ucp_request_param_t param;

    memset(&param, 0xee, sizeof(param));
    param.op_attr_mask = more_mask;
    if (end != nullptr) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        param.cb.send   = on_send;
        param.user_data = end;
    }
    return param;
}

ucp_request_param_t receive_param(ending *end, uint32_t more_mask)
{
    ucp_request_param_t param = send_param(end, more_mask);

    if (end != nullptr) {
        param.cb.recv = on_receive;
    }
    return param;
}

/* ---- fixture ---- */

uint64_t counted(worker &worker, const std::string &name)
{
    const std::string text = printed([&](FILE *file) {
        ucp_worker_print_info(worker.handle(), file);
    });
    const std::string key = " " + name + ": ";
    const size_t found    = text.find(key);
    return (found == std::string::npos) ? 0 :
           strtoull(text.c_str() + found + key.size(), nullptr, 10);
}

std::string printed(const std::function<void(FILE *)> &print)
{
    char *text    = nullptr;
    size_t length = 0;
    FILE *stream  = open_memstream(&text, &length);
    print(stream);
    fclose(stream);
    std::string result(text, length);
    free(text);
    return result;
}

void variant_test::expect_clean(pair &pair)
{
    pair.settle();
    EXPECT_EQ(0u, ucp_test_num_requests(pair.sender().handle()));
    EXPECT_EQ(0u, ucp_test_num_requests(pair.receiver().handle()));
    EXPECT_EQ(0u, ucp_test_num_ids(pair.sender().handle()));
    EXPECT_EQ(0u, ucp_test_num_ids(pair.receiver().handle()));
    EXPECT_EQ(0u, ucp_test_num_kept_data(pair.receiver().handle()));
}

void variant_test::TearDown()
{
    ucs_fault_clear(nullptr);
}

std::vector<size_t> variant_test::lengths(ucp_ep_h ep, size_t max)
{
    std::vector<size_t> limits(64);
    std::vector<size_t> list = {0,  1,  2,  3,   4,   5,    7,    8,     9,      15, 16,
                                17, 31, 32, 33,  40,  47,   48,   49,    55,     56, 57,
                                63, 64, 65, 100, 128, 1000, 4096, 65536, 1000003};

    limits.resize(ucp_test_thresholds(ep, limits.data(), limits.size()));
    for (size_t limit : limits) {
        if (limit > max) {
            continue;
        }
        for (size_t length = limit - std::min<size_t>(limit, 17); length <= limit; ++length) {
            list.push_back(length);
        }
        list.insert(list.end(), {limit + 1, limit + 2});
    }
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    list.erase(std::upper_bound(list.begin(), list.end(), max), list.end());
    return list;
}

} // namespace ucp_test
