/* Halyard: tests of workers that are sent anything: random and mutated messages, with names of live
 * requests in them, in random states of the protocols. Whatever a peer sends, nothing is read or
 * written out of bounds, and the worker goes on serving the others.
 *
 * A failure is repeated by its seed, which is printed.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <mp/processes.h>
#include <seed.h>
#include <ucp/api/ucp.h>
#include <ucp/world.h>
#include <uct/api/uct_tl.h>

#define _Static_assert static_assert
extern "C" {
#include <ucp/wire/address.h>
#include <ucp/wire/wire.h>
}

#include <algorithm>
#include <csignal>
#include <cstring>
#include <deque>
#include <memory>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ucp_test;

namespace {

/* Names that hostile messages are made of. */
struct names {
    std::vector<uint64_t> workers;
    std::vector<uint64_t> requests;
    std::vector<uint64_t> addresses;
    std::vector<bytes> worker_addresses;
};

constexpr ucp_tag_t GOOD_TAG = 0x7e57000000000000ull; /* not used by the hostile part */

class generator {
public:
    generator(seeded_random &random, const names &names) : m_random(random), m_names(names)
    {
    }

    /* An id and the bytes of a message: mostly of the right form, sometimes not. */
    std::pair<unsigned, bytes> message()
    {
        const unsigned id = 1 + m_random.below(UCP_WIRE_LAST - 1);
        bytes data        = well_formed(id);

        if (m_random.one_in(3)) {
            for (uint64_t count = m_random.below(4); (count > 0) && !data.empty(); --count) {
                data[m_random.below(data.size())] ^= static_cast<uint8_t>(1 << m_random.below(8));
            }
        }
        if (m_random.one_in(10)) {
            data.resize(m_random.below(data.size() + 20), static_cast<uint8_t>(m_random.bits()));
        }
        return {id, data};
    }

private:
    uint64_t number()
    {
        static const uint64_t numbers[] = {0,          1,          7,     8,        100,
                                           4096,       5000,       65536, 100000,   1ull << 31,
                                           1ull << 32, 1ull << 62, ~0ull, ~0ull - 7};
        return m_random.one_in(4) ? m_random.bits() : numbers[m_random.below(std::size(numbers))];
    }

    uint64_t one_of(const std::vector<uint64_t> &list)
    {
        return (list.empty() || m_random.one_in(12)) ? m_random.bits()
                                                     : list[m_random.below(list.size())];
    }

    uint64_t tag()
    {
        return m_random.below(4);
    }

    uint32_t ordinal()
    {
        return m_random.one_in(4) ? static_cast<uint32_t>(number())
                                  : static_cast<uint32_t>(m_random.below(3));
    }

    ucp_wire_am_t am()
    {
        return {static_cast<uint16_t>(m_random.below(6)),
                static_cast<uint16_t>(m_random.one_in(3) ? number() : m_random.below(40)),
                ordinal()};
    }

    template <typename T>
    bytes with_payload(const T &head)
    {
        const auto *start = reinterpret_cast<const uint8_t *>(&head);
        bytes data(start, start + sizeof(head));
        data.resize(data.size() + (m_random.one_in(3) ? m_random.below(900) : m_random.below(40)),
                    static_cast<uint8_t>(m_random.bits()));
        return data;
    }

    template <typename T>
    static bytes plain(const T &head)
    {
        const auto *start = reinterpret_cast<const uint8_t *>(&head);
        return bytes(start, start + sizeof(head));
    }

    bytes announcement(const ucp_wire_rts_t &rts, bool has_payload = false)
    {
        bytes data = has_payload ? with_payload(rts) : plain(rts);

        if (!(rts.flags & UCP_WIRE_RTS_RAILS)) { /* else no keys stand between head and payload */
            data.erase(data.begin() + UCP_WIRE_RTS_LEN, data.begin() + sizeof(rts));
        }
        return data;
    }

    bytes well_formed(unsigned id)
    {
        switch (id) {
        case UCP_WIRE_HELLO: {
            bytes data = plain(ucp_wire_hello_t{UCP_WIRE_VERSION, 0});
            if (!m_names.worker_addresses.empty()) {
                const bytes &address =
                    m_names.worker_addresses[m_random.below(m_names.worker_addresses.size())];
                data.insert(data.end(), address.begin(), address.end());
            }
            return data;
        }
        case UCP_WIRE_EAGER:
            return with_payload(ucp_wire_eager_t{tag()});
        case UCP_WIRE_EAGER_SYNC:
            return with_payload(
                ucp_wire_eager_sync_t{tag(), one_of(m_names.workers), one_of(m_names.requests)});
        case UCP_WIRE_RTS:
            return announcement({tag(), one_of(m_names.workers), one_of(m_names.requests),
                                 number(), one_of(m_names.addresses),
                                 static_cast<uint32_t>(m_random.below(80) |
                                                       (m_random.below(80) << 16)),
                                 static_cast<uint32_t>(m_random.below(1024)),
                                 static_cast<uint32_t>(m_random.below(16)), {}});
        case UCP_WIRE_KEY:
            return with_payload(ucp_wire_key_t{one_of(m_names.workers),
                                               static_cast<uint16_t>(m_random.below(80)),
                                               static_cast<uint16_t>(m_random.below(9)), 0});
        case UCP_WIRE_FRAG:
            return plain(ucp_wire_frag_t{one_of(m_names.requests), number(), number(),
                                         one_of(m_names.addresses),
                                         static_cast<uint32_t>(m_random.below(80)), 0});
        case UCP_WIRE_FRAG_END:
            return plain(ucp_wire_frag_end_t{one_of(m_names.requests),
                                             -static_cast<int32_t>(m_random.below(3)), 0});
        case UCP_WIRE_HOLD:
            return plain(ucp_wire_hold_t{static_cast<uint32_t>(m_random.below(3)), 0});
        case UCP_WIRE_AM:
            return with_payload(am());
        case UCP_WIRE_AM_REPLY:
            return with_payload(ucp_wire_am_reply_t{am(), one_of(m_names.workers)});
        case UCP_WIRE_STREAM:
            return with_payload(ucp_wire_stream_t{one_of(m_names.workers), ordinal(),
                                                  static_cast<uint32_t>(number())});
        case UCP_WIRE_AM_RTS:
        case UCP_WIRE_STREAM_RTS: {
            ucp_wire_rts_t rts      = {ordinal(), one_of(m_names.workers),
                                       one_of(m_names.requests), number(),
                                       one_of(m_names.addresses),
                                       static_cast<uint32_t>(m_random.below(80)),
                                       static_cast<uint32_t>(m_random.below(1024)),
                                       static_cast<uint32_t>(m_random.below(16)), {}};
            const ucp_wire_am_t head = am();
            if (id == UCP_WIRE_AM_RTS) {
                rts.tag = ucp_wire_am_word(head.id, head.header_length, head.ep);
            }
            return announcement(rts, id == UCP_WIRE_AM_RTS);
        }
        case UCP_WIRE_RTR: {
            ucp_wire_rtr_t rtr = {};
            rtr.send_id        = one_of(m_names.requests);
            rtr.recv_id        = one_of(m_names.requests);
            rtr.address        = one_of(m_names.addresses);
            rtr.offset         = m_random.one_in(2) ? 0 : number();
            rtr.length         = number();
            rtr.flags          = static_cast<uint32_t>(m_random.below(72));
            rtr.slot           = static_cast<uint32_t>(m_random.below(80));
            return plain(rtr);
        }
        case UCP_WIRE_DATA:
            return with_payload(
                ucp_wire_data_t{one_of(m_names.requests), m_random.one_in(2) ? 0 : number()});
        case UCP_WIRE_FIN:
            return plain(ucp_wire_fin_t{one_of(m_names.requests), number()});
        case UCP_WIRE_CANCEL:
            return plain(ucp_wire_cancel_t{one_of(m_names.requests),
                                           static_cast<int32_t>(m_random.below(200)) - 150,
                                           static_cast<uint32_t>(m_random.below(2))});
        default:
            return plain(ucp_wire_ats_t{one_of(m_names.requests),
                                        static_cast<int32_t>(m_random.below(200)) - 150, 0});
        }
    }

    seeded_random &m_random;
    const names &m_names;
};

/* A worker with traffic of its own under way. */
class victim {
public:
    victim(const context &context, seeded_random &random, ucs_thread_mode_t mode) :
        m_random(random), m_worker(context, mode), m_friend(context, mode),
        m_self(m_worker.connect(m_worker)), m_to_friend(m_worker.connect(m_friend)),
        m_from_friend(m_friend.connect(m_worker))
    {
        for (unsigned id = 0; id < 3; ++id) {
            ucp_am_handler_param_t param;
            param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                               UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
            param.id    = id;
            param.cb    = on_am;
            param.arg   = this;
            param.flags = (id == 1) ? UCP_AM_FLAG_PERSISTENT_DATA : 0;
            EXPECT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(m_worker.handle(), &param));
        }
        EXPECT_EQ(UCS_OK,
                  ucp_worker_set_am_handler(m_worker.handle(), 3, on_legacy_am, this,
                                            UCP_AM_FLAG_WHOLE_MSG));
    }

    ucp_test::worker &worker()
    {
        return m_worker;
    }

    ucp_ep_h from_friend() const
    {
        return m_from_friend;
    }

    void add_target(ucp_ep_h ep)
    {
        m_others.push_back(ep);
    }

    /* Reads what it is given, keeps some of it, receives some of what is announced. */
    static ucs_status_t on_am(void *arg, const void *header, size_t header_length, void *data,
                              size_t length, const ucp_am_recv_param_t *param)
    {
        auto *self = static_cast<victim *>(arg);

        self->read(header, header_length);
        if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
            self->read(data, length);
        }
        if (!(param->recv_attr & (UCP_AM_RECV_ATTR_FLAG_RNDV | UCP_AM_RECV_ATTR_FLAG_DATA)) ||
            self->m_random.one_in(3)) {
            return UCS_OK;
        }
        if (self->m_random.one_in(2)) {
            self->receive(data);
            return UCS_OK;
        }
        self->m_am_data.push_back(data);
        return UCS_INPROGRESS;
    }

    static ucs_status_t on_legacy_am(void *arg, void *data, size_t length, ucp_ep_h, unsigned)
    {
        static_cast<victim *>(arg)->read(data, length);
        return UCS_OK;
    }

    void read(const void *data, size_t length)
    {
        for (size_t i = 0; i < std::min<size_t>(length, 100000); ++i) {
            m_sum += static_cast<const uint8_t *>(data)[i];
        }
    }

    void receive(void *data)
    {
        const size_t length             = m_random.below(3000);
        const ucp_request_param_t param = send_param(nullptr, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        operation op;

        op.buffer  = std::make_unique<guarded>(length);
        op.request = ucp_am_recv_data_nbx(m_worker.handle(), data, op.buffer->data(), length,
                                          &param);
        EXPECT_TRUE(UCS_PTR_IS_PTR(op.request));
        m_operations.push_back(std::move(op));
    }

    /* Does something with what is kept, and with streams. */
    void serve()
    {
        if (!m_am_data.empty() && m_random.one_in(2)) {
            if (m_random.one_in(2)) {
                receive(m_am_data.front());
            } else {
                ucp_am_data_release(m_worker.handle(), m_am_data.front());
            }
            m_am_data.pop_front();
        }
        if (m_random.one_in(2)) {
            ucp_ep_h ep   = m_random.one_in(2) ? m_self : m_to_friend;
            size_t length = 0;
            void *data    = ucp_stream_recv_data_nb(ep, &length);
            if (UCS_PTR_IS_PTR(data)) {
                read(data, length);
                ucp_stream_data_release(ep, data);
            }
        }
    }

    /* Starts something with tags that hostile messages know. */
    void step()
    {
        serve();
        if (m_kept.size() > 4000) {
            return; /* it holds some fifty megabytes */
        }
        const size_t length = m_random.one_in(12) ? m_random.below(300000) : m_random.below(200);
        const ucp_tag_t tag = m_random.below(4);
        operation op;

        op.buffer = std::make_unique<guarded>(length);
        switch (m_random.below(5)) {
        case 0:
        case 1: {
            ucp_ep_h ep = m_self;
            if (!m_others.empty() && m_random.one_in(2)) {
                ep = m_others[m_random.below(m_others.size())];
            } else if (m_random.one_in(2)) {
                ep = m_to_friend;
            }
            const ucp_request_param_t param = send_param(nullptr);
            void *buffer                    = op.buffer->data();
            op.request = m_random.one_in(3) ? ucp_tag_send_sync_nbx(ep, buffer, length, tag, &param)
                                            : ucp_tag_send_nbx(ep, buffer, length, tag, &param);
            break;
        }
        case 2:
        case 3: {
            const ucp_request_param_t param = receive_param(nullptr);
            op.request = ucp_tag_recv_nbx(m_worker.handle(), op.buffer->data(), length, tag,
                                          m_random.one_in(3) ? GOOD_TAG : ~0ull, &param);
            break;
        }
        default: {
            const ucp_request_param_t param = send_param(nullptr);
            op.request = ucp_tag_send_nbx(m_from_friend, op.buffer->data(), length, tag, &param);
            if (UCS_PTR_IS_PTR(op.request)) {
                ucp_request_free(op.request);
                op.request = nullptr;
            }
            break;
        }
        }
        if (!UCS_PTR_IS_PTR(op.request)) {
            op.request = nullptr;
        }
        m_operations.push_back(std::move(op));
        if (m_operations.size() > 60) {
            end_some();
        }
    }

    void progress()
    {
        m_worker.progress();
        m_friend.progress();
    }

    /* Names of all that is under way; with an endpoint, of what its peer knows. */
    void collect(names *names, ucp_ep_h ep = nullptr)
    {
        names->workers   = {ucp_test_worker_id(m_worker.handle()),
                            ucp_test_worker_id(m_friend.handle())};
        names->addresses = {0, 8, 0xffff800000000000ull, 0x1000};
        names->requests.clear();
        for (const operation &op : m_operations) {
            if (op.request != nullptr) {
                names->requests.push_back(ucp_test_request_id(op.request, ep));
                names->addresses.push_back(reinterpret_cast<uintptr_t>(op.buffer->data()));
            }
        }
    }

    /* Nothing outside of any buffer has been written. */
    void check_buffers() const
    {
        for (const operation &op : m_operations) {
            ASSERT_TRUE(op.buffer->is_intact());
        }
    }

    /* It still does for others what it is there for. */
    void check_service()
    {
        for (const operation &op : m_operations) { /* wildcards must not take what follows */
            if (op.request != nullptr) {
                ucp_request_cancel(m_worker.handle(), op.request);
            }
        }
        const struct {
            ucp_ep_h ep;
            ucp_test::worker &destination;
        } ways[] = {{m_self, m_worker}, {m_to_friend, m_friend}, {m_from_friend, m_worker}};
        for (const auto &way : ways) {
            for (size_t length : {0ul, 8ul, 5000ul, 200000ul}) {
                const bytes data = pattern(length, length);
                bytes buffer(length);
                ucp_tag_recv_info_t info         = {};
                const ucp_request_param_t param  = receive_param(nullptr);
                const ucp_request_param_t sparam = send_param(nullptr);
                void *received = ucp_tag_recv_nbx(way.destination.handle(), buffer.data(), length,
                                                  GOOD_TAG + length, ~0ull, &param);
                void *sent =
                    ucp_tag_send_sync_nbx(way.ep, data.data(), length, GOOD_TAG + length, &sparam);
                ASSERT_TRUE(UCS_PTR_IS_PTR(sent) && UCS_PTR_IS_PTR(received))
                    << length << " " << (way.ep == m_self) << (way.ep == m_to_friend) << " "
                    << ucs_status_string(UCS_PTR_STATUS(sent));
                for (int i = 0; (i < 20000000) && !(ucp_request_is_completed(sent) &&
                                                    ucp_request_is_completed(received));
                     ++i) {
                    progress();
                }
                ASSERT_EQ(UCS_OK, ucp_request_test(received, &info));
                ASSERT_EQ(UCS_OK, ucp_request_check_status(sent));
                ASSERT_EQ(length, info.length);
                ASSERT_EQ(data, buffer);
                ucp_request_free(sent);
                ucp_request_free(received);
            }
        }
    }

private:
    struct operation {
        void *request = nullptr;
        std::unique_ptr<guarded> buffer;
    };

    /* Those at the front that are over, and receives that are not matched. Their buffers stay
     * until the workers are gone: who was lied to about an end may still use them. */
    void end_some()
    {
        for (int i = 0; i < 20; ++i) {
            operation op = std::move(m_operations.front());
            m_operations.pop_front();
            if (op.request != nullptr) {
                ucp_request_cancel(m_worker.handle(), op.request);
                if (!ucp_request_is_completed(op.request)) {
                    m_operations.push_back(std::move(op));
                    continue;
                }
                ucp_request_free(op.request);
                op.request = nullptr;
            }
            m_kept.push_back(std::move(op.buffer));
        }
    }

    seeded_random &m_random;
    uint64_t m_sum = 0;
    std::deque<void *> m_am_data;
    std::deque<operation> m_operations; /* these outlive the workers */
    std::deque<std::unique_ptr<guarded>> m_kept;
    ucp_test::worker m_worker, m_friend;
    ucp_ep_h m_self, m_to_friend, m_from_friend;
    std::vector<ucp_ep_h> m_others;
};

std::vector<variant> hostile_variants()
{
    return {{"messages", {{"UCX_TLS", "self,mm"}}, false, UCS_THREAD_MODE_SINGLE},
            {"all_announced",
             {{"UCX_TLS", "self,mm"}, {"UCX_RNDV_THRESH", "0"}},
             false,
             UCS_THREAD_MODE_SINGLE},
            {"put",
             {{"UCX_TLS", "self,mm"}, {"UCX_RNDV_SCHEME", "put_zcopy"}, {"UCX_RNDV_THRESH", "1k"}},
             false,
             UCS_THREAD_MODE_SINGLE},
            {"locked", {{"UCX_TLS", "self,mm"}}, false, UCS_THREAD_MODE_MULTI},
            {"small_rings",
             {{"UCX_TLS", "self,mm"}, {"UCX_MM_FIFO_SIZE", "64"}},
             false,
             UCS_THREAD_MODE_SINGLE}};
}

class hostile : public variant_test {};

INSTANTIATE_TEST_SUITE_P(all, hostile, testing::ValuesIn(hostile_variants()), variant_name);

/* Addresses of workers, real ones, with changes, and invented. */
std::vector<bytes> worker_addresses(seeded_random &random, victim &victim, const context &context)
{
    std::vector<bytes> list = {victim.worker().address()};
    worker short_lived(context); /* gone when its address is used */
    list.push_back(short_lived.address());
    for (int i = 0; i < 6; ++i) {
        bytes changed = list[random.below(2)];
        for (uint64_t count = 1 + random.below(3); count > 0; --count) {
            changed[4 + random.below(changed.size() - 4)] ^=
                static_cast<uint8_t>(1 << random.below(8));
        }
        list.push_back(changed);
    }
    bytes invented(60);
    std::generate(invented.begin(), invented.end(), [&]() { return random.bits(); });
    list.push_back(invented);
    return list;
}

/* Single copies between processes are left out here, where all are in one: they would write where
 * the message says, as they may in a hostile process. */
TEST_P(hostile, messages_to_handlers)
{
    const uint64_t end = (mp::slowness() > 1) ? 802 : 806;

    for (uint64_t seed = 801; seed < end; ++seed) {
        seeded_random random(seed);
        environment environment(GetParam().env);
        context context;
        victim victim(context, random, GetParam().mode);
        names names;
        names.worker_addresses = worker_addresses(random, victim, context);
        generator generator(random, names);

        for (int i = 0; i < 3000; ++i) {
            if (random.one_in(3)) {
                victim.step();
            }
            if (random.one_in(2)) {
                victim.progress();
            }
            victim.collect(&names);
            const auto [id, data] = generator.message();
            /* of exactly that size, so that AddressSanitizer sees each byte beyond */
            const std::unique_ptr<uint8_t[]> memory(new uint8_t[data.size()]);
            std::copy(data.begin(), data.end(), memory.get());
            ucp_test_handle(victim.worker().handle(), id, memory.get(), data.size());
            if ((i % 100) == 0) {
                ASSERT_NO_FATAL_FAILURE(victim.check_buffers());
            }
        }
        ASSERT_NO_FATAL_FAILURE(victim.check_service()) << "seed " << seed;
        ASSERT_NO_FATAL_FAILURE(victim.check_buffers());
        take_log();
    }
}

/* Somebody who sends what should not be sent, and comes again under another name when it is thrown
 * out. */
class intruder {
public:
    intruder(const context &context, victim &victim) : m_context(context), m_victim(victim)
    {
    }

    void send(unsigned id, const bytes &data)
    {
        ucs_status_t status = UCS_ERR_CONNECTION_RESET;

        if (m_worker != nullptr) {
            do {
                status = ucp_test_inject(m_ep, id, data.data(), data.size());
                m_victim.progress();
                m_worker->progress();
            } while (status == UCS_ERR_NO_RESOURCE);
        }
        if (status != UCS_OK) {
            m_worker = std::make_unique<worker>(m_context);
            m_ep     = m_worker->connect(m_victim.worker());
            ++m_times;
        }
    }

    unsigned times() const
    {
        return m_times;
    }

private:
    const context &m_context;
    victim &m_victim;
    std::unique_ptr<worker> m_worker;
    ucp_ep_h m_ep    = nullptr;
    unsigned m_times = 0;
};

/* The same on the way that messages take: nobody else is disturbed. */
TEST_P(hostile, messages_by_transport)
{
    for (uint64_t seed = 811; seed < 816; ++seed) {
        seeded_random random(seed);
        environment environment(GetParam().env);
        context context;
        victim victim(context, random, GetParam().mode);
        names names;
        names.worker_addresses = worker_addresses(random, victim, context);
        generator generator(random, names);
        intruder intruder(context, victim);

        for (int i = 0; i < 1000; ++i) {
            if (random.one_in(3)) {
                victim.step();
            }
            victim.collect(&names);
            auto [id, data] = generator.message();
            if (random.one_in(50)) {
                id = random.below(32);
            }
            data.resize(std::min<size_t>(data.size(), 1000));
            intruder.send(id, data);
            if (random.one_in(2)) {
                victim.progress();
            }
        }
        EXPECT_GT(intruder.times(), 10u);
        ASSERT_NO_FATAL_FAILURE(victim.check_service()) << "seed " << seed;
        ASSERT_NO_FATAL_FAILURE(victim.check_buffers());
        take_log();
    }
}

/* ---- a hostile process ---- */

/* What the victim lets the hostile process know. */
struct shared_page {
    uint64_t num_requests;
    uint64_t requests[64];
    uint64_t workers[2];
    uint32_t address_length;
    uint8_t address[512];       /* of the victim's worker */
    uint32_t child_length;      /* set last, by the child */
    uint8_t child_address[512]; /* of the child's worker */
};

/* Sends anything until it has sent enough, or died: where it asks for it the victim writes into
 * it. */
[[noreturn]] void be_hostile(shared_page *page, uint64_t seed, const settings &env)
{
    std::mt19937_64 engine(seed);
    seeded_random random(seed);
    environment environment(env);
    context context;
    worker self(context);
    const bytes own = self.address();
    ucp_ep_params_t params;
    ucp_ep_h ep;

    memcpy(page->child_address, own.data(), own.size());
    __atomic_store_n(&page->child_length, own.size(), __ATOMIC_RELEASE);
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address    = reinterpret_cast<const ucp_address_t *>(page->address);
    if (ucp_ep_create(self.handle(), &params, &ep) != UCS_OK) {
        _exit(1);
    }

    names names;
    bytes scratch(1 << 20);
    generator generator(random, names);
    names.worker_addresses          = {own, own, own,
                                       bytes(page->address, page->address + page->address_length)};
    const ucp_request_param_t param = send_param(nullptr);
    for (int i = 0; i < 4000; ++i) {
        names.workers   = {ucp_test_worker_id(self.handle()), ucp_test_worker_id(self.handle()),
                           page->workers[0], page->workers[1]};
        names.addresses = {reinterpret_cast<uintptr_t>(scratch.data()),
                           reinterpret_cast<uintptr_t>(scratch.data()), 0, 0x1000,
                           reinterpret_cast<uintptr_t>(page)};
        const uint64_t count = std::min<uint64_t>(page->num_requests, 64);
        names.requests.assign(page->requests, page->requests + count);
        auto [id, data] = generator.message();
        data.resize(std::min<size_t>(data.size(), 1000));
        for (int tries = 0; tries < 100000; ++tries) {
            if (ucp_test_inject(ep, id, data.data(), data.size()) != UCS_ERR_NO_RESOURCE) {
                break;
            }
            self.progress();
        }
        if (random.one_in(20)) { /* and something proper now and then */
            void *request =
                ucp_tag_send_nbx(ep, scratch.data(), random.below(200000), random.below(4), &param);
            if (UCS_PTR_IS_PTR(request)) {
                ucp_request_free(request);
            }
        }
        if (random.one_in(3)) {
            self.progress();
        }
    }
    _exit(0);
}

/* A page that cannot be touched; who does makes it readable and has what stands before it changed,
 * as a peer may do at any time with what is in the memory that it shares with us. */
struct changing {
    static ucp_wire_rts_t *rts;
    static void *page;

    static void on_access(int)
    {
        rts->flags |= UCP_WIRE_RTS_RAILS;
        mprotect(page, getpagesize(), PROT_READ | PROT_WRITE);
    }
};

ucp_wire_rts_t *changing::rts = nullptr;
void *changing::page          = nullptr;

struct noted {
    unsigned calls = 0;
    bytes header;
    size_t length = 0;
};

ucs_status_t note(void *arg, const void *header, size_t header_length, void *, size_t length,
                  const ucp_am_recv_param_t *)
{
    auto *noted       = static_cast<struct noted *>(arg);
    const auto *first = static_cast<const uint8_t *>(header);

    ++noted->calls;
    noted->header.assign(first, first + header_length);
    noted->length = length;
    return UCS_OK;
}

/* An announcement that has to wait for its turn is kept as it was checked. */
TEST(hostile_announcement, changes_while_it_is_kept)
{
    constexpr unsigned WHOLE = 1, ANY = 2;
    const size_t page_size   = getpagesize();
    const environment settings({{"UCX_RNDV_SCHEME", "am"}, {"UCX_RNDV_THRESH", "1000"}});
    const context context({UCP_FEATURE_AM});
    worker sender(context), receiver(context);
    ucp_ep_h ep = sender.connect(receiver), back = receiver.connect(sender);
    const auto progress = [&]() { sender.progress(), receiver.progress(); };
    noted whole, any;
    for (const auto &handler : {std::make_pair(WHOLE, &whole), std::make_pair(ANY, &any)}) {
        ucp_am_handler_param_t param;
        param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                           UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
        param.id    = handler.first;
        param.cb    = note;
        param.arg   = handler.second;
        param.flags = (handler.first == WHOLE) ? UCP_AM_FLAG_WHOLE_MSG : 0;
        ASSERT_EQ(UCS_OK, ucp_worker_set_am_recv_handler(receiver.handle(), &param));
    }

    /* one that takes its time, since its sender does not go on */
    const bytes data                = pattern(1, 100000);
    const ucp_request_param_t param = send_param(nullptr);
    void *sent = ucp_am_send_nbx(ep, WHOLE, nullptr, 0, data.data(), 8, &param);
    for (int i = 0; (i < 20000000) && (whole.calls == 0); ++i) {
        progress();
    }
    ASSERT_EQ(1u, whole.calls);
    if (sent != nullptr) { /* it had to connect first */
        ASSERT_EQ(UCS_OK, ucp_request_check_status(sent));
        ucp_request_free(sent);
    }
    sent = ucp_am_send_nbx(ep, WHOLE, nullptr, 0, data.data(), data.size(), &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(sent));
    for (int i = 0; (i < 20000000) && (ucp_test_num_kept_data(receiver.handle()) == 0); ++i) {
        receiver.progress();
    }

    /* and one behind it */
    auto *memory = static_cast<char *>(mmap(nullptr, 2 * page_size, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(MAP_FAILED, static_cast<void *>(memory));
    const bytes header = {1, 2, 3, 4, 5, 6, 7, 8};
    changing::page     = memory + page_size;
    changing::rts      = reinterpret_cast<ucp_wire_rts_t *>(memory + page_size - UCP_WIRE_RTS_LEN);
    changing::rts->tag = ucp_wire_am_word(ANY, header.size(), ucp_test_ordinal(ep));
    changing::rts->worker_id  = ucp_test_worker_id(sender.handle());
    changing::rts->request_id = 77;
    changing::rts->length     = 5000;
    memcpy(changing::page, header.data(), header.size());
    ASSERT_EQ(0, mprotect(changing::page, page_size, PROT_NONE));
    struct sigaction action = {}, before;
    action.sa_handler       = changing::on_access;
    ASSERT_EQ(0, sigaction(SIGSEGV, &action, &before));
    ucp_test_handle_from(back, UCP_WIRE_AM_RTS, changing::rts, UCP_WIRE_RTS_LEN + header.size());
    ASSERT_EQ(0, sigaction(SIGSEGV, &before, nullptr));
    EXPECT_EQ(unsigned(UCP_WIRE_RTS_RAILS), changing::rts->flags) << "it was changed";
    EXPECT_EQ(0u, any.calls);

    for (int i = 0; (i < 20000000) && (any.calls == 0); ++i) {
        progress();
    }
    EXPECT_EQ(2u, whole.calls);
    EXPECT_EQ(1u, any.calls);
    EXPECT_EQ(header, any.header);
    EXPECT_EQ(5000u, any.length);
    while (ucp_request_check_status(sent) == UCS_INPROGRESS) {
        progress();
    }
    ucp_request_free(sent);
    EXPECT_EQ(0u, ucp_test_num_kept_data(receiver.handle()));
    munmap(memory, 2 * page_size);
}

TEST(hostile_process, is_survived)
{
    log_catcher log;
    auto *page = static_cast<shared_page *>(mmap(
        nullptr, sizeof(shared_page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(MAP_FAILED, page);
    static const settings environments[] = {
        {},
        {{"UCX_RNDV_SCHEME", "put_zcopy"}, {"UCX_RNDV_THRESH", "1k"}},
        {{"UCX_RNDV_SCHEME", "both"}, {"UCX_RNDV_THRESH", "1k"}},
        {{"UCX_RNDV_SCHEME", "get_zcopy"}, {"UCX_RNDV_THRESH", "0"}}};
    for (uint64_t seed = 821; seed < 829; ++seed) {
        const settings &env = environments[seed % std::size(environments)];
        seeded_random random(seed);
        environment environment(env);
        context context;
        victim victim(context, random, UCS_THREAD_MODE_SINGLE);
        const bytes address = victim.worker().address();

        memset(page, 0, sizeof(*page));
        ASSERT_LE(address.size(), sizeof(page->address));
        memcpy(page->address, address.data(), address.size());
        page->address_length = address.size();
        fflush(nullptr);
        const pid_t pid = fork();
        if (pid == 0) {
            be_hostile(page, seed * 1000, env);
        }
        uint32_t length;
        while ((length = __atomic_load_n(&page->child_length, __ATOMIC_ACQUIRE)) == 0) {
            usleep(100);
        }
        ucp_ep_params_t params;
        ucp_ep_h ep       = nullptr;
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address    = reinterpret_cast<const ucp_address_t *>(page->child_address);
        ASSERT_EQ(UCS_OK, ucp_ep_create(victim.worker().handle(), &params, &ep));
        victim.add_target(ep);

        names names;
        int status = 0;
        for (bool running = true; running;) {
            running = (waitpid(pid, &status, WNOHANG) == 0);
            for (int i = 0; i < 50; ++i) {
                victim.step();
                for (int n = 0; n < 5; ++n) {
                    victim.progress();
                }
            }
            /* What is between the victim and its friend the hostile one does not know. */
            victim.collect(&names, ep);
            page->num_requests = 0;
            std::copy_n(names.workers.begin(), 2, page->workers);
            for (uint64_t request : names.requests) {
                if ((request != 0) && (page->num_requests < 64)) {
                    page->requests[page->num_requests++] = request;
                }
            }
        }
        EXPECT_FALSE(WIFEXITED(status) && (WEXITSTATUS(status) == 1))
            << "the hostile one could not start";
        ASSERT_NO_FATAL_FAILURE(victim.check_buffers());
        ASSERT_NO_FATAL_FAILURE(victim.check_service()) << "seed " << seed;
        log.take();
    }
    munmap(page, sizeof(*page));
}

} // namespace
