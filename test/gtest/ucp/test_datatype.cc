/* Halyard: tests of datatypes: which of the user's functions are called when, and what arrives.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/world.h>

#include <seed.h>

#include <algorithm>
#include <cstring>
#include <numeric>

using namespace ucp_test;

namespace {

class datatype : public variant_test {};

INSTANTIATE_TEST_SUITE_P(all, datatype, testing::ValuesIn(all_variants()), variant_name);

/* ---- generic ---- */

/* A generic datatype that writes down what is asked of it. Packed, every byte of its data is
 * changed, so that a copy that passes the functions by is seen. */
class recorder {
public:
    explicit recorder(bool destroy_in_finish = false) : m_destroy_in_finish(destroy_in_finish)
    {
        const ucp_generic_dt_ops_t ops = {start_pack, start_unpack, packed_size,
                                          pack,       unpack,       finish};
        EXPECT_EQ(UCS_OK, ucp_dt_create_generic(&ops, this, &m_datatype));
        EXPECT_NE(0u, m_datatype);
    }

    ~recorder()
    {
        EXPECT_EQ(m_starts, m_finishes);
        if (m_datatype != 0) {
            ucp_dt_destroy(m_datatype);
        }
    }
    recorder(const recorder &)            = delete;
    recorder &operator=(const recorder &) = delete;

    ucp_datatype_t id() const
    {
        return m_datatype;
    }

    /* From the offset on, unpack answers with a status. */
    void fail_unpack_at(size_t offset, ucs_status_t status)
    {
        m_fail_offset = offset;
        m_fail_status = status;
    }

    int starts() const
    {
        return m_starts;
    }

    int finishes() const
    {
        return m_finishes;
    }

    /* Bytes that were packed or unpacked. */
    size_t done() const
    {
        return m_done;
    }

private:
    struct state_t {
        recorder *owner;
        uint8_t *buffer;
        size_t length;
        size_t next; /* offset that must come next */
    };

    static void *start(void *context, const void *buffer, size_t count)
    {
        auto *owner = static_cast<recorder *>(context);
        ++owner->m_starts;
        owner->m_done = 0;
        return new state_t{owner, static_cast<uint8_t *>(const_cast<void *>(buffer)), count, 0};
    }

    static void *start_pack(void *context, const void *buffer, size_t count)
    {
        return start(context, buffer, count);
    }

    static void *start_unpack(void *context, void *buffer, size_t count)
    {
        return start(context, buffer, count);
    }

    static size_t packed_size(void *state)
    {
        return static_cast<state_t *>(state)->length;
    }

    static size_t pack(void *state, size_t offset, void *dest, size_t max)
    {
        auto *self = static_cast<state_t *>(state);
        EXPECT_EQ(self->next, offset) << "in ascending order, nothing twice";
        EXPECT_LE(offset, self->length);
        /* A real size, which the function may fill less of; here it does at odd offsets. */
        EXPECT_LE(max, self->length - offset);
        for (size_t i = 0; i < max; ++i) {
            static_cast<uint8_t *>(dest)[i] = self->buffer[offset + i] ^ 0xff;
        }
        self->next          = offset + max;
        self->owner->m_done = self->next;
        return max;
    }

    static ucs_status_t unpack(void *state, size_t offset, const void *src, size_t length)
    {
        auto *self = static_cast<state_t *>(state);
        EXPECT_EQ(self->next, offset) << "in ascending order, nothing twice";
        EXPECT_EQ(0u, offset % 192) << "no element of 64, 48 or fewer bytes is cut";
        EXPECT_LE(length, self->length - offset);
        self->next          = offset + length;
        self->owner->m_done = self->next;
        if (self->next > self->owner->m_fail_offset) {
            return self->owner->m_fail_status;
        }
        for (size_t i = 0; i < length; ++i) {
            self->buffer[offset + i] = static_cast<const uint8_t *>(src)[i] ^ 0xff;
        }
        return UCS_OK;
    }

    static void finish(void *state)
    {
        auto *self      = static_cast<state_t *>(state);
        recorder *owner = self->owner;
        ++owner->m_finishes;
        delete self;
        if (owner->m_destroy_in_finish) {
            ucp_dt_destroy(std::exchange(owner->m_datatype, 0));
        }
    }

    ucp_datatype_t m_datatype  = 0;
    bool m_destroy_in_finish   = false;
    int m_starts               = 0;
    int m_finishes             = 0;
    size_t m_done              = 0;
    size_t m_fail_offset       = SIZE_MAX;
    ucs_status_t m_fail_status = UCS_OK;
};

void *send_type(pair &pair, const void *buffer, size_t count, ucp_datatype_t type,
                bool sync = false)
{
    ucp_request_param_t param = send_param(nullptr, UCP_OP_ATTR_FIELD_DATATYPE);
    param.datatype            = type;
    return sync ? ucp_tag_send_sync_nbx(pair.ep(), buffer, count, 1, &param)
                : ucp_tag_send_nbx(pair.ep(), buffer, count, 1, &param);
}

void *receive_type(pair &pair, void *buffer, size_t count, ucp_datatype_t type,
                   ucp_tag_recv_info_t *info = nullptr)
{
    ucp_request_param_t param = receive_param(nullptr, UCP_OP_ATTR_FIELD_DATATYPE);
    param.datatype            = type;
    if (info != nullptr) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_RECV_INFO;
        param.recv_info.tag_info = info;
    }
    return ucp_tag_recv_nbx(pair.receiver().handle(), buffer, count, 1, ~0ull, &param);
}

TEST_P(datatype, generic_on_both_sides)
{
    pair pair(GetParam());
    for (size_t length : lengths(pair.ep(), 70000)) {
        for (int form = 0; form < 4; ++form) {
            const bool is_there = form & 1;
            const bool sync     = form & 2;
            const bytes data    = pattern(length, length);
            guarded buffer(length);
            recorder send_side, receive_side;
            ucp_tag_recv_info_t info = {};
            void *sent = nullptr, *received = nullptr;

            if (is_there) {
                sent = send_type(pair, data.data(), length, send_side.id(), sync);
                ASSERT_EQ(1, send_side.starts()) << "inside the call";
                pair.settle();
            }
            received = receive_type(pair, buffer.data(), length, receive_side.id(), &info);
            ASSERT_EQ(1, receive_side.starts());
            if (!is_there) {
                sent = send_type(pair, data.data(), length, send_side.id(), sync);
                ASSERT_EQ(1, send_side.starts());
            }
            ASSERT_EQ(UCS_OK, pair.wait(received, &info));
            ASSERT_EQ(UCS_OK, pair.wait(sent));
            ASSERT_EQ(-1, differs(buffer.data(), length, length)) << length;
            ASSERT_TRUE(buffer.is_intact());
            ASSERT_EQ(length, info.length);
            ASSERT_EQ(1, send_side.finishes());
            ASSERT_EQ(1, receive_side.finishes());
            ASSERT_EQ(length, send_side.done());
            ASSERT_EQ(length, receive_side.done());
        }
    }
}

/* The bytes on the way are the packed ones, whatever the other side's type. */
TEST_P(datatype, generic_on_one_side)
{
    pair pair(GetParam());
    for (size_t length : {0ul, 1ul, 60ul, 7000ul, 9000ul, 300000ul}) {
        for (bool is_there : {false, true}) {
            for (bool generic_sends : {false, true}) {
                const bytes data = pattern(length, length);
                guarded buffer(length);
                recorder type;
                const ucp_datatype_t plain = ucp_dt_make_contig(1);
                void *sent = nullptr, *received = nullptr;
                const auto send = [&]() {
                    sent = send_type(pair, data.data(), length, generic_sends ? type.id() : plain);
                };

                if (is_there) {
                    send();
                    pair.settle();
                }
                received =
                    receive_type(pair, buffer.data(), length, generic_sends ? plain : type.id());
                if (!is_there) {
                    send();
                }
                ASSERT_EQ(UCS_OK, pair.wait(received));
                ASSERT_EQ(UCS_OK, pair.wait(sent));
                ASSERT_TRUE(buffer.is_intact());
                std::for_each(buffer.data(), buffer.data() + length,
                              [](uint8_t &byte) { byte ^= 0xff; });
                ASSERT_EQ(-1, differs(buffer.data(), length, length)) << length;
                ASSERT_EQ(1, type.finishes());
            }
        }
    }
}

TEST_P(datatype, generic_receive_that_is_too_short)
{
    pair pair(GetParam());
    for (size_t length : {10ul, 5000ul, 200000ul}) {
        for (bool is_there : {false, true}) {
            const bytes data  = pattern(length, length);
            const size_t room = length / 3;
            guarded buffer(room);
            recorder type;
            ucp_tag_recv_info_t info = {};
            void *sent = nullptr, *received = nullptr;

            if (is_there) {
                sent = send_type(pair, data.data(), length, ucp_dt_make_contig(1));
                pair.settle();
            }
            received = receive_type(pair, buffer.data(), room, type.id(), &info);
            if (!is_there) {
                sent = send_type(pair, data.data(), length, ucp_dt_make_contig(1));
            }
            ASSERT_EQ(UCS_ERR_MESSAGE_TRUNCATED, pair.wait(received, &info));
            ASSERT_EQ(UCS_OK, pair.wait(sent));
            ASSERT_EQ(length, info.length);
            ASSERT_TRUE(buffer.is_intact());
            ASSERT_EQ(1, type.finishes());
            ASSERT_LE(type.done(), room);
        }
    }
}

/* The user's function has the last word on the status of the receive; the sender is not told. */
TEST_P(datatype, unpack_that_fails)
{
    pair pair(GetParam());
    for (size_t length : {10ul, 5000ul, 200000ul}) {
        for (size_t at : {0ul, length - 1}) {
            for (bool is_there : {false, true}) {
                const bytes data = pattern(length, length);
                bytes buffer(length);
                recorder type;
                void *sent = nullptr, *received = nullptr;

                type.fail_unpack_at(at, UCS_ERR_MESSAGE_TRUNCATED);
                if (is_there) {
                    sent = send_type(pair, data.data(), length, ucp_dt_make_contig(1));
                    pair.settle();
                }
                received = receive_type(pair, buffer.data(), length, type.id());
                if (!is_there) {
                    sent = send_type(pair, data.data(), length, ucp_dt_make_contig(1));
                }
                ASSERT_EQ(UCS_ERR_MESSAGE_TRUNCATED, pair.wait(received));
                ASSERT_EQ(UCS_OK, pair.wait(sent));
                ASSERT_EQ(1, type.finishes());
            }
        }
    }
}

/* Bytes that come later, announced or not, do not make up for those that were not taken. */
TEST_P(datatype, unpack_that_fails_in_a_stream)
{
    context_options options;
    options.features = UCP_FEATURE_STREAM;
    pair pair(GetParam(), options);
    const ucp_ep_h ep = GetParam().is_self ? pair.ep() : pair.ep_back();
    const bytes data  = pattern(1, 192 + 60000);
    bytes buffer(data.size());
    recorder type;
    ucp_request_param_t param = send_param(nullptr, UCP_OP_ATTR_FIELD_FLAGS |
                                                        UCP_OP_ATTR_FIELD_DATATYPE);
    const ucp_request_param_t plain = send_param(nullptr);
    size_t received                 = 0;

    type.fail_unpack_at(0, UCS_ERR_MESSAGE_TRUNCATED);
    param.flags    = UCP_STREAM_RECV_FLAG_WAITALL;
    param.datatype = type.id();
    void *request  = ucp_stream_recv_nbx(ep, buffer.data(), buffer.size(), &received, &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    ASSERT_EQ(UCS_OK, pair.wait(ucp_stream_send_nbx(pair.ep(), data.data(), 192, &plain)));
    pair.settle();
    type.fail_unpack_at(data.size(), UCS_OK);
    ASSERT_EQ(UCS_OK, pair.wait(ucp_stream_send_nbx(pair.ep(), data.data() + 192, 60000, &plain)));
    EXPECT_EQ(UCS_ERR_MESSAGE_TRUNCATED, pair.wait(request));
    EXPECT_EQ(1, type.finishes());
}

/* As the MPI libraries do: the last use of a freed type ends in finish, which destroys it. */
TEST_P(datatype, destroyed_inside_finish)
{
    pair pair(GetParam());
    for (size_t length : {0ul, 10ul, 5000ul, 200000ul}) {
        const bytes data = pattern(length, length);
        bytes buffer(length);
        recorder send_side(true), receive_side(true);
        void *received = receive_type(pair, buffer.data(), length, receive_side.id());
        void *sent     = send_type(pair, data.data(), length, send_side.id());
        ASSERT_EQ(UCS_OK, pair.wait(received));
        ASSERT_EQ(UCS_OK, pair.wait(sent));
        ASSERT_EQ(data, buffer);
        ASSERT_EQ(0u, send_side.id());
        ASSERT_EQ(0u, receive_side.id());
    }
}

TEST_P(datatype, cancelled_generic_receive_is_finished)
{
    pair pair(GetParam());
    bytes buffer(100);
    recorder type(true);
    void *received = receive_type(pair, buffer.data(), buffer.size(), type.id());
    ASSERT_TRUE(UCS_PTR_IS_PTR(received));
    ucp_request_cancel(pair.receiver().handle(), received);
    EXPECT_EQ(UCS_ERR_CANCELED, pair.wait(received));
    EXPECT_EQ(1, type.finishes());
}

/* Whatever way it does not happen: finish comes. */
TEST_P(datatype, refused_generic_send_is_finished)
{
    pair pair(GetParam());
    const bytes data = pattern(1, 300000);
    ucp_request_param_t param =
        send_param(nullptr, UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL);
    recorder type;
    param.datatype = type.id();
    EXPECT_EQ(UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE),
              ucp_tag_send_sync_nbx(pair.ep(), data.data(), data.size(), 1, &param));
    EXPECT_EQ(1, type.starts());
    EXPECT_EQ(1, type.finishes());
}

/* A type whose pack function produces a few bytes less than it was asked for in the midst. */
struct tail_state {
    const uint8_t *buffer;
    size_t length;
};

TEST_P(datatype, pack_of_a_type_that_stops_at_its_elements)
{
    constexpr size_t ELEMENT       = 7; /* never splits an element, as some convertors */
    const ucp_generic_dt_ops_t ops = {
        [](void *, const void *buffer, size_t count) -> void * {
            return new tail_state{static_cast<const uint8_t *>(buffer), count};
        },
        [](void *, void *, size_t) -> void * { return nullptr; },
        [](void *state) { return static_cast<tail_state *>(state)->length; },
        [](void *state, size_t offset, void *dest, size_t max) {
            auto *self = static_cast<tail_state *>(state);
            size_t end = std::min(offset + max, self->length);
            end        = (end == self->length) ? end : end - (end % ELEMENT);
            memcpy(dest, self->buffer + offset, end - offset);
            return end - offset;
        },
        [](void *, size_t, const void *, size_t) { return UCS_OK; },
        [](void *state) { delete static_cast<tail_state *>(state); }};
    ucp_datatype_t type;
    pair pair(GetParam());

    ASSERT_EQ(UCS_OK, ucp_dt_create_generic(&ops, nullptr, &type));
    for (size_t length : {70ul, 7000ul, 210000ul}) {
        const bytes data = pattern(length, length);
        bytes buffer(length);
        void *received = pair.receive(buffer.data(), length, 1);
        void *sent     = send_type(pair, data.data(), length, type);
        ASSERT_EQ(UCS_OK, pair.wait(received));
        ASSERT_EQ(UCS_OK, pair.wait(sent));
        ASSERT_EQ(data, buffer);
    }
    ucp_dt_destroy(type);
}

/* A pack function may give less than there is room for at any time. */
TEST_P(datatype, pack_that_gives_little_at_a_time)
{
    const ucp_generic_dt_ops_t ops = {
        [](void *, const void *buffer, size_t count) -> void * {
            return new tail_state{static_cast<const uint8_t *>(buffer), count};
        },
        [](void *, void *, size_t) -> void * { return nullptr; },
        [](void *state) { return static_cast<tail_state *>(state)->length; },
        [](void *state, size_t offset, void *dest, size_t max) {
            auto *self        = static_cast<tail_state *>(state);
            const size_t part = std::min({max, self->length - offset, self->length / 3 + 1});
            memcpy(dest, self->buffer + offset, part);
            return part;
        },
        [](void *, size_t, const void *, size_t) { return UCS_OK; },
        [](void *state) { delete static_cast<tail_state *>(state); }};
    ucp_datatype_t type;
    pair pair(GetParam());

    ASSERT_EQ(UCS_OK, ucp_dt_create_generic(&ops, nullptr, &type));
    for (size_t length : {1ul, 9ul, 70ul, 1000ul, 7000ul, 210000ul}) {
        const bytes data = pattern(length, length);
        bytes buffer(length);
        ucp_tag_recv_info_t info{};
        void *received = pair.receive(buffer.data(), length, 1);
        void *sent     = send_type(pair, data.data(), length, type);
        ASSERT_EQ(UCS_OK, pair.wait(received, &info));
        ASSERT_EQ(UCS_OK, pair.wait(sent));
        ASSERT_EQ(length, info.length);
        ASSERT_EQ(data, buffer);
    }
    ucp_dt_destroy(type);
}

/* ---- vectors ---- */

/* Memory cut into pieces, some of them empty, some without an address. */
std::vector<ucp_dt_iov_t> cut(seeded_random &random, uint8_t *data, size_t length)
{
    std::vector<ucp_dt_iov_t> pieces;
    size_t done = 0;

    while (done < length) {
        if (random.one_in(5)) {
            pieces.push_back({nullptr, 0});
        }
        const size_t part = std::min<size_t>(length - done, 1 + random.below(length));
        pieces.push_back({data + done, part});
        done += part;
    }
    if (random.one_in(2)) {
        pieces.push_back({nullptr, 0});
    }
    return pieces;
}

TEST_P(datatype, vectors)
{
    seeded_random random(301);
    pair pair(GetParam());
    for (int round = 0; round < 120; ++round) {
        const size_t length = random.below(random.one_in(4) ? 300000 : 12000);
        const size_t room   = random.one_in(4) ? random.below(length + 1) : length;
        const bool is_there = random.one_in(2);
        bytes data          = pattern(round, length);
        guarded buffer(room);
        const auto send_pieces    = cut(random, data.data(), length);
        const auto receive_pieces = cut(random, buffer.data(), room);
        ucp_tag_recv_info_t info  = {};
        void *sent                = nullptr;
        const auto send           = [&]() {
            if (random.one_in(2)) {
                sent = send_type(pair, send_pieces.data(), send_pieces.size(), ucp_dt_make_iov(),
                                           random.one_in(3));
            } else {
                sent = send_type(pair, data.data(), length, ucp_dt_make_contig(1));
            }
        };

        if (is_there) {
            send();
            pair.settle();
        }
        void *received =
            receive_type(pair, receive_pieces.data() ? (void *)receive_pieces.data() : nullptr,
                         receive_pieces.size(), ucp_dt_make_iov(), &info);
        if (!is_there) {
            send();
        }
        ASSERT_EQ((room < length) ? UCS_ERR_MESSAGE_TRUNCATED : UCS_OK, pair.wait(received, &info));
        ASSERT_EQ(UCS_OK, pair.wait(sent));
        ASSERT_EQ(length, info.length);
        ASSERT_TRUE((room == 0) || (memcmp(data.data(), buffer.data(), room) == 0)) << round;
        ASSERT_TRUE(buffer.is_intact());
    }
}

TEST_P(datatype, vectors_whose_length_overflows)
{
    pair pair(GetParam());
    uint8_t byte                = 0;
    const ucp_dt_iov_t pieces[] = {{&byte, SIZE_MAX}, {&byte, 2}};
    EXPECT_EQ(UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM), send_type(pair, pieces, 2, ucp_dt_make_iov()));
    EXPECT_EQ(UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM),
              receive_type(pair, (void *)pieces, 2, ucp_dt_make_iov()));
    EXPECT_EQ(0u, ucp_test_num_requests(pair.sender().handle()));
}

/* ---- contiguous ---- */

TEST_P(datatype, contiguous_elements)
{
    pair pair(GetParam());
    static const std::pair<size_t, size_t> shapes[] = {{1, 100},   {8, 13},     {104, 1}, {3, 7001},
                                                       {40000, 5}, {200000, 1}, {0, 5},   {5, 0}};
    for (const auto &[size, count] : shapes) {
        const size_t length = size * count;
        const bytes data    = pattern(length, length);
        guarded buffer(length);
        ucp_tag_recv_info_t info = {};
        /* sent as elements, received as one whole, as some clients do it */
        void *received = receive_type(pair, buffer.data(), 1, ucp_dt_make_contig(length), &info);
        void *sent     = send_type(pair, data.data(), count, ucp_dt_make_contig(size));
        ASSERT_EQ(UCS_OK, pair.wait(received, &info));
        ASSERT_EQ(UCS_OK, pair.wait(sent));
        ASSERT_EQ(-1, differs(buffer.data(), length, length));
        ASSERT_EQ(length, info.length);
    }
}

TEST_P(datatype, contiguous_elements_that_overflow)
{
    pair pair(GetParam());
    uint8_t byte              = 0;
    const ucp_datatype_t type = ucp_dt_make_contig(1ul << 33);
    EXPECT_EQ(UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM), send_type(pair, &byte, 1ul << 33, type));
    EXPECT_EQ(UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM), receive_type(pair, &byte, 1ul << 33, type));
    EXPECT_EQ(0u, ucp_test_num_requests(pair.sender().handle()));
    EXPECT_EQ(0u, ucp_test_num_requests(pair.receiver().handle()));

    /* and in the client's memory, which then knows */
    bytes memory(pair.ctx().request_size(), 0x5a);
    ucp_request_param_t param =
        receive_param(nullptr, UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REQUEST);
    param.datatype = type;
    param.request  = memory.data() + memory.size();
    EXPECT_EQ(UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM),
              ucp_tag_recv_nbx(pair.receiver().handle(), &byte, 1ul << 33, 1, ~0ull, &param));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_request_check_status(param.request));
}

TEST_P(datatype, classes_that_do_not_exist)
{
    pair pair(GetParam());
    uint8_t byte = 0;
    for (ucp_datatype_t type : {1, 3, 5, 6}) {
        EXPECT_EQ(UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM), send_type(pair, &byte, 1, type));
        EXPECT_EQ(UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM), receive_type(pair, &byte, 1, type));
    }
}

/* ---- what needs no worker ---- */

TEST(datatype_id, destroy_of_other_classes_does_nothing)
{
    ucp_dt_destroy(ucp_dt_make_contig(1)); /* as Open MPI does with each predefined type */
    ucp_dt_destroy(ucp_dt_make_contig(4));
    ucp_dt_destroy(ucp_dt_make_contig(0));
    ucp_dt_destroy(ucp_dt_make_iov());
}

TEST(datatype_id, values)
{
    EXPECT_EQ(8u, ucp_dt_make_contig(1));
    EXPECT_EQ(0x40u, ucp_dt_make_contig(8));
    EXPECT_EQ(2u, ucp_dt_make_iov());
    recorder type;
    EXPECT_EQ(7u, type.id() & 7);
}

TEST(datatype_id, query)
{
    ucp_datatype_attr_t attr;
    memset(&attr, 0xee, sizeof(attr));
    attr.field_mask = UCP_DATATYPE_ATTR_FIELD_PACKED_SIZE;
    ASSERT_EQ(UCS_OK, ucp_dt_query(ucp_dt_make_contig(24), &attr));
    EXPECT_EQ(24u, attr.packed_size);
    attr.field_mask |= UCP_DATATYPE_ATTR_FIELD_COUNT;
    attr.count = 10;
    ASSERT_EQ(UCS_OK, ucp_dt_query(ucp_dt_make_contig(24), &attr));
    EXPECT_EQ(240u, attr.packed_size);
    attr.count = SIZE_MAX;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_dt_query(ucp_dt_make_contig(24), &attr));
    EXPECT_EQ(240u, attr.packed_size) << "outputs are set on success only";

    uint8_t bytes[8];
    const ucp_dt_iov_t pieces[] = {{bytes, 5}, {bytes, 3}};
    attr.field_mask |= UCP_DATATYPE_ATTR_FIELD_BUFFER;
    attr.buffer = pieces;
    attr.count  = 2;
    ASSERT_EQ(UCS_OK, ucp_dt_query(ucp_dt_make_iov(), &attr));
    EXPECT_EQ(8u, attr.packed_size);

    recorder type;
    attr.buffer = bytes;
    attr.count  = 6;
    ASSERT_EQ(UCS_OK, ucp_dt_query(type.id(), &attr));
    EXPECT_EQ(6u, attr.packed_size);
    EXPECT_EQ(1, type.finishes());
}

} // namespace
