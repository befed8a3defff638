/* Halyard: tests of what goes over the wire: golden bytes of each message and of an address, and
 * that nothing that a peer may write makes a reader look beyond it.
 *
 * When a layout is changed on purpose, so is UCP_WIRE_VERSION, and then these bytes.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucp/api/ucp.h>
#include <ucp/world.h>
#include <uct/api/uct_tl.h>

#define _Static_assert static_assert
extern "C" {
#include <ucp/wire/address.h>
#include <ucp/wire/wire.h>
#include <wire/print.h>
}

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {

using bytes = std::vector<uint8_t>;

std::string hex(const void *data, size_t length)
{
    std::string text;
    char digits[4];
    for (size_t i = 0; i < length; ++i) {
        snprintf(digits, sizeof(digits), "%02x", static_cast<const uint8_t *>(data)[i]);
        text += ((i > 0) && (i % 8 == 0)) ? " " : "";
        text += digits;
    }
    return text;
}

template <typename T>
std::string hex(const T &message)
{
    return hex(&message, sizeof(message));
}

/* Heap memory of exactly that size, so that AddressSanitizer sees each byte beyond. */
class exact {
public:
    explicit exact(const bytes &data) : m_data(new uint8_t[data.size()])
    {
        std::copy(data.begin(), data.end(), m_data.get());
    }
    const uint8_t *get() const
    {
        return m_data.get();
    }

private:
    std::unique_ptr<uint8_t[]> m_data;
};

std::string printed(unsigned id, const void *data, size_t length)
{
    char *text  = nullptr;
    size_t size = 0;
    FILE *out   = open_memstream(&text, &size);
    wire_print(id, data, length, out);
    fclose(out);
    const std::string result = text;
    free(text);
    return result;
}

/* ---- golden bytes ---- */

constexpr uint64_t U64_1 = 0x0102030405060708ull;
constexpr uint64_t U64_2 = 0x1112131415161718ull;
constexpr uint64_t U64_3 = 0x2122232425262728ull;
constexpr uint64_t U64_4 = 0x3132333435363738ull;
constexpr uint64_t U64_5 = 0x4142434445464748ull;
constexpr uint32_t U32_1 = 0x51525354;
constexpr uint32_t U32_2 = 0x61626364;

TEST(wire, ids)
{
    EXPECT_EQ(1, UCP_WIRE_VERSION);
    EXPECT_EQ(1, UCP_WIRE_HELLO);
    EXPECT_EQ(2, UCP_WIRE_EAGER);
    EXPECT_EQ(3, UCP_WIRE_EAGER_SYNC);
    EXPECT_EQ(4, UCP_WIRE_RTS);
    EXPECT_EQ(5, UCP_WIRE_RTR);
    EXPECT_EQ(6, UCP_WIRE_DATA);
    EXPECT_EQ(7, UCP_WIRE_FIN);
    EXPECT_EQ(8, UCP_WIRE_ATS);
    EXPECT_EQ(9, UCP_WIRE_CANCEL);
    EXPECT_EQ(10, UCP_WIRE_PUT);
    EXPECT_EQ(11, UCP_WIRE_GET);
    EXPECT_EQ(12, UCP_WIRE_GET_DATA);
    EXPECT_EQ(13, UCP_WIRE_ATOMIC);
    EXPECT_EQ(14, UCP_WIRE_RMA_END);
    EXPECT_EQ(15, UCP_WIRE_AM);
    EXPECT_EQ(16, UCP_WIRE_AM_REPLY);
    EXPECT_EQ(17, UCP_WIRE_AM_RTS);
    EXPECT_EQ(18, UCP_WIRE_STREAM);
    EXPECT_EQ(19, UCP_WIRE_STREAM_RTS);
    EXPECT_EQ(20, UCP_WIRE_HOLD);
    EXPECT_EQ(21, UCP_WIRE_KEY);
    EXPECT_EQ(22, UCP_WIRE_FRAG);
    EXPECT_EQ(23, UCP_WIRE_FRAG_END);
    EXPECT_EQ(24, UCP_WIRE_LAST);
    EXPECT_EQ(4, UCP_WIRE_RTS_REPLY);
    EXPECT_EQ(8, UCP_WIRE_RTS_WHOLE);
    EXPECT_EQ(16, UCP_WIRE_RTS_FORCED);
    EXPECT_EQ(32, UCP_WIRE_RTS_DEVICE);
    EXPECT_EQ(64, UCP_WIRE_RTS_WRITES);
    EXPECT_EQ(256, UCP_WIRE_RTS_KEY);
    EXPECT_EQ(512, UCP_WIRE_RTS_RAILS);
    EXPECT_EQ(1, UCP_WIRE_RTS_CONTIG);
    EXPECT_EQ(2, UCP_WIRE_RTS_SYNC);
    EXPECT_EQ(1, UCP_WIRE_RTR_PUT);
    EXPECT_EQ(2, UCP_WIRE_RTR_BOTH);
    EXPECT_EQ(3, UCP_WIRE_RTR_DATA);
    EXPECT_EQ(4, UCP_WIRE_RTR_LAST);
    EXPECT_EQ(8, UCP_WIRE_RTR_DEVICE);
    EXPECT_EQ(16, UCP_WIRE_RTR_FRAGS);
    EXPECT_EQ(32, UCP_WIRE_RTR_CLAIM);
    EXPECT_EQ(64, UCP_WIRE_RTR_WHOLE);
    EXPECT_EQ(128, UCP_WIRE_RTR_FAULT);
    EXPECT_EQ(0x80000000u, UCP_WIRE_CONN_ORDINAL);
    EXPECT_EQ(0xc0000000u, UCP_WIRE_APART_ORDINAL);
    EXPECT_EQ(0xffffu, UCP_WIRE_RTS_SLOT_MASK);
    EXPECT_EQ(16, UCP_WIRE_RTS_WORD_SHIFT);
}

/* An announcement has the keys of further devices where it says so, whole. */
TEST(wire, announcements_of_two_lengths)
{
    ucp_wire_rts_t sent = {1, 2, 3, 4, 5, 6, UCP_WIRE_RTS_KEY, 7, {{8}, {9}, {10}}};
    ucp_wire_rts_t got;

    memset(&got, 0xff, sizeof(got));
    EXPECT_EQ(48u, ucp_wire_rts_length(sent.flags));
    EXPECT_EQ(48u, ucp_wire_rts_read(&sent, sizeof(sent), &got));
    EXPECT_EQ(0, memcmp(&sent, &got, 48));
    EXPECT_EQ(~0u, got.rails); /* not taken */
    sent.flags |= UCP_WIRE_RTS_RAILS;
    for (size_t length = 48; length < sizeof(sent); ++length) {
        EXPECT_EQ(0u, ucp_wire_rts_read(&sent, length, &got)) << length;
    }
    EXPECT_EQ(sizeof(sent), ucp_wire_rts_length(sent.flags));
    EXPECT_EQ(sizeof(sent), ucp_wire_rts_read(&sent, sizeof(sent), &got));
    EXPECT_EQ(sizeof(sent), ucp_wire_rts_read(&sent, sizeof(sent) + 1, &got));
    EXPECT_EQ(0, memcmp(&sent, &got, sizeof(sent)));
}

TEST(wire, golden_bytes)
{
    EXPECT_EQ("5453525164636261", hex(ucp_wire_hello_t{U32_1, U32_2}));
    EXPECT_EQ("0807060504030201", hex(ucp_wire_eager_t{U64_1}));
    EXPECT_EQ("0807060504030201 1817161514131211 2827262524232221",
              hex(ucp_wire_eager_sync_t{U64_1, U64_2, U64_3}));
    EXPECT_EQ(
        "0807060504030201 1817161514131211 2827262524232221 3837363534333231 4847464544434241 "
        "5453525164636261 01000000a1000000 0000000000000000 b100000000000000 00000000c1000000 "
        "0000000000000000",
        hex(ucp_wire_rts_t{U64_1, U64_2, U64_3, U64_4, U64_5, U32_1, U32_2, 1,
                           {{0xa1}, {0xb1}, {0xc1}}}));
    EXPECT_EQ(
        "0807060504030201 1817161514131211 2827262524232221 3837363534333231 4847464544434241 "
        "5453525164636261",
        hex(ucp_wire_rtr_t{U64_1, U64_2, U64_3, U64_4, U64_5, U32_1, U32_2}));
    EXPECT_EQ("0807060504030201 1817161514131211", hex(ucp_wire_data_t{U64_1, U64_2}));
    EXPECT_EQ("0807060504030201 1817161514131211", hex(ucp_wire_fin_t{U64_1, U64_2}));
    EXPECT_EQ("0807060504030201 f7ffffff54535251",
              hex(ucp_wire_cancel_t{U64_1, UCS_ERR_MESSAGE_TRUNCATED, U32_1}));
    EXPECT_EQ("5354060554535251", hex(ucp_wire_am_t{0x5453, 0x0506, U32_1}));
    EXPECT_EQ("5354060554535251", hex(ucp_wire_am_word(0x5453, 0x0506, U32_1)));
    EXPECT_EQ("5354060554535251 0807060504030201",
              hex(ucp_wire_am_reply_t{{0x5453, 0x0506, U32_1}, U64_1}));
    EXPECT_EQ("0807060504030201 5453525164636261", hex(ucp_wire_stream_t{U64_1, U32_1, U32_2}));
    EXPECT_EQ("5453525164636261", hex(ucp_wire_hold_t{U32_1, U32_2}));
    EXPECT_EQ("0807060504030201 0201040354535251",
              hex(ucp_wire_key_t{U64_1, 0x0102, 0x0304, U32_1}));
    EXPECT_EQ("0807060504030201 f7ffffff00000000",
              hex(ucp_wire_ats_t{U64_1, UCS_ERR_MESSAGE_TRUNCATED, 0}));
    EXPECT_EQ("0807060504030201 1817161514131211 2827262524232221 3837363534333231",
              hex(ucp_wire_put_t{U64_1, U64_2, U64_3, U64_4}));
    EXPECT_EQ("0807060504030201 1817161514131211 2827262524232221 3837363534333231 "
              "4847464544434241",
              hex(ucp_wire_get_t{U64_1, U64_2, U64_3, U64_4, U64_5}));
    EXPECT_EQ("0807060504030201 1817161514131211", hex(ucp_wire_get_data_t{U64_1, U64_2}));
    EXPECT_EQ("0807060504030201 1817161514131211 2827262524232221 3837363534333231 "
              "4847464544434241 0807060504030201 5453525164636261",
              hex(ucp_wire_atomic_t{U64_1, U64_2, U64_3, U64_4, U64_5, U64_1, U32_1, U32_2}));
    EXPECT_EQ("0807060504030201 1817161514131211 f7ffffff00000000",
              hex(ucp_wire_rma_end_t{U64_1, U64_2, UCS_ERR_MESSAGE_TRUNCATED, 0}));
}

TEST(wire, offsets)
{
    EXPECT_EQ(0u, offsetof(ucp_wire_rts_t, tag));
    EXPECT_EQ(8u, offsetof(ucp_wire_rts_t, worker_id));
    EXPECT_EQ(16u, offsetof(ucp_wire_rts_t, request_id));
    EXPECT_EQ(24u, offsetof(ucp_wire_rts_t, length));
    EXPECT_EQ(32u, offsetof(ucp_wire_rts_t, address));
    EXPECT_EQ(40u, offsetof(ucp_wire_rts_t, sync_index));
    EXPECT_EQ(44u, offsetof(ucp_wire_rts_t, flags));
    EXPECT_EQ(0u, offsetof(ucp_wire_rtr_t, send_id));
    EXPECT_EQ(8u, offsetof(ucp_wire_rtr_t, recv_id));
    EXPECT_EQ(16u, offsetof(ucp_wire_rtr_t, address));
    EXPECT_EQ(24u, offsetof(ucp_wire_rtr_t, offset));
    EXPECT_EQ(32u, offsetof(ucp_wire_rtr_t, length));
    EXPECT_EQ(40u, offsetof(ucp_wire_rtr_t, flags));
    EXPECT_EQ(44u, offsetof(ucp_wire_rtr_t, slot));
}

/* ---- the table of messages ---- */

TEST(wire, every_message_has_a_row)
{
    static const size_t lengths[UCP_WIRE_LAST]   = {0,  8,  8,  24, 48, 48, 16, 16, 16, 16,
                                                    32, 40, 16, 56, 24, 8,  16, 48, 16, 48,
                                                    8,  16, 40, 16};
    static const bool has_payload[UCP_WIRE_LAST] = {false, true,  true,  true,  true,
                                                    false, true,  false, false, false,
                                                    true,  false, true,  false, false,
                                                    true,  true,  true,  true,  true,
                                                    false, true,  false, false};
    std::vector<std::string> names;

    for (unsigned id = 1; id < UCP_WIRE_LAST; ++id) {
        const ucp_wire_message_t &row = ucp_wire_table[id];
        ASSERT_NE(nullptr, row.name);
        ASSERT_NE(nullptr, row.handle);
        names.push_back(row.name);
        EXPECT_EQ(lengths[id], row.header_length) << row.name;
        EXPECT_EQ(has_payload[id], row.has_payload != 0) << row.name;
        for (size_t length = 0; length < 100; ++length) {
            EXPECT_EQ(has_payload[id] ? length >= lengths[id] : length == lengths[id],
                      ucp_wire_length_ok(id, length) != 0)
                << row.name << " " << length;
        }
    }
    std::sort(names.begin(), names.end());
    EXPECT_EQ(names.end(), std::unique(names.begin(), names.end()));
    for (unsigned id : {0u, (unsigned)UCP_WIRE_LAST, 31u, 32u, 255u, ~0u}) {
        EXPECT_FALSE(ucp_wire_length_ok(id, 48));
    }
}

TEST(wire, prints_any_bytes)
{
    seeded_random random(701);
    for (int i = 0; i < 20000; ++i) {
        bytes data(random.below(80));
        std::generate(data.begin(), data.end(), [&]() { return random.bits(); });
        const exact memory(data);
        const unsigned id      = random.below(UCP_WIRE_LAST + 3);
        const std::string text = printed(id, memory.get(), data.size());
        ASSERT_GT(text.size(), 3u);
        ASSERT_LT(text.size(), 400u);
        ASSERT_EQ(std::string::npos, text.find('\n'));
        if (ucp_wire_length_ok(id, data.size())) {
            ASSERT_EQ(0u, text.rfind(ucp_wire_table[id].name, 0)) << text;
        } else {
            ASSERT_NE(std::string::npos, text.find("is no message"));
        }
    }
}

TEST(wire, prints_fields)
{
    const ucp_wire_rts_t rts = {0xabc, 1, 2, 777, 0x1000, 5, 3, 0, {}};
    const std::string text   = printed(UCP_WIRE_RTS, &rts, UCP_WIRE_RTS_LEN);
    for (const char *part : {"RTS", "0xabc", "777", "0x1000"}) {
        EXPECT_NE(std::string::npos, text.find(part)) << text;
    }
}

/* ---- addresses ---- */

ucp_address_info_t sample(const std::vector<bytes> &entries)
{
    ucp_address_info_t info = {};
    for (size_t i = 0; i < UCT_UID_LEN; ++i) {
        info.uid[i] = static_cast<uint8_t>(0xa0 + i);
    }
    info.node_id = U64_1;
    for (const bytes &entry : entries) {
        info.entries[info.num_entries].wire_id = static_cast<uint16_t>(0x1234 + info.num_entries);
        info.entries[info.num_entries].length  = static_cast<uint8_t>(entry.size());
        info.entries[info.num_entries].bytes   = entry.data();
        ++info.num_entries;
    }
    return info;
}

bytes pack(const ucp_address_info_t &info)
{
    bytes packed(ucp_address_pack(&info, nullptr));
    EXPECT_EQ(packed.size(), ucp_address_pack(&info, packed.data()));
    return packed;
}

void expect_equal(const ucp_address_info_t &expected, const ucp_address_info_t &actual)
{
    ASSERT_EQ(0, memcmp(expected.uid, actual.uid, UCT_UID_LEN));
    ASSERT_EQ(expected.node_id, actual.node_id);
    ASSERT_EQ(expected.num_entries, actual.num_entries);
    for (unsigned i = 0; i < expected.num_entries; ++i) {
        ASSERT_EQ(expected.entries[i].wire_id, actual.entries[i].wire_id);
        ASSERT_EQ(expected.entries[i].length, actual.entries[i].length);
        ASSERT_TRUE((expected.entries[i].length == 0) ||
                    (memcmp(expected.entries[i].bytes, actual.entries[i].bytes,
                            expected.entries[i].length) == 0));
    }
}

TEST(address, golden_bytes)
{
    const std::vector<bytes> entries = {{1, 2, 3}, {}, {9}};
    const bytes packed               = pack(sample(entries));
    EXPECT_EQ(
        "01002900a0a1a2a3 a4a5a6a7a8a9aaab acadaeaf08070605 0403020134120301 0203351200361201 09",
        hex(packed.data(), packed.size()));
}

/* Transports are named by a number that follows from the name alone. */
TEST(address, names_of_transports)
{
    EXPECT_EQ(ucp_address_wire_id("mm"), ucp_address_wire_id("mm"));
    std::vector<uint16_t> ids;
    for (const char *name : {"self", "mm", "cma", "ofi", "cuda_copy", "cuda_ipc", "fault:mm",
                             "delay:mm", "trace:mm", "fault:cma", "delay:cma"}) {
        ids.push_back(ucp_address_wire_id(name));
    }
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(ids.end(), std::unique(ids.begin(), ids.end()));
    EXPECT_EQ(0x7e21u, ucp_address_wire_id("mm"));
    EXPECT_EQ(0xa536u, ucp_address_wire_id("cma"));
}

TEST(address, round_trip)
{
    seeded_random random(711);
    for (int round = 0; round < 500; ++round) {
        std::vector<bytes> entries;
        size_t total = 0;
        for (uint64_t count = random.below(UCP_ADDRESS_ENTRIES + 1); count > 0; --count) {
            bytes entry(random.below(random.one_in(8) ? 256 : 24));
            std::generate(entry.begin(), entry.end(), [&]() { return random.bits(); });
            if ((total += entry.size() + 3) > UCP_ADDRESS_MAX - 28) {
                break;
            }
            entries.push_back(entry);
        }
        const ucp_address_info_t info = sample(entries);
        const exact packed(pack(info));
        ucp_address_info_t unpacked;
        memset(&unpacked, 0xee, sizeof(unpacked));
        ASSERT_EQ(UCS_OK, ucp_address_unpack(packed.get(), pack(info).size(), &unpacked));
        ASSERT_NO_FATAL_FAILURE(expect_equal(info, unpacked));
    }
}

/* An address ends where it says so; what follows is somebody else's. */
TEST(address, junk_behind)
{
    const std::vector<bytes> entries = {{1, 2, 3}, {4, 5, 6, 7}};
    const ucp_address_info_t info    = sample(entries);
    bytes packed                     = pack(info);
    packed.resize(packed.size() + 2000, 0x77);
    ucp_address_info_t unpacked;
    ASSERT_EQ(UCS_OK, ucp_address_unpack(packed.data(), UCP_ADDRESS_MAX, &unpacked));
    ASSERT_NO_FATAL_FAILURE(expect_equal(info, unpacked));
}

TEST(address, every_truncation_is_refused)
{
    const std::vector<bytes> entries = {{1, 2, 3}, {}, {4, 5, 6, 7}};
    const bytes packed               = pack(sample(entries));
    for (size_t length = 0; length < packed.size(); ++length) {
        const exact memory(bytes(packed.begin(), packed.begin() + static_cast<ptrdiff_t>(length)));
        ucp_address_info_t unpacked;
        ASSERT_EQ(UCS_ERR_INVALID_ADDR, ucp_address_unpack(memory.get(), length, &unpacked))
            << length;
    }
    /* and one that names a shorter end than its entries have */
    for (size_t length = 28; length < packed.size(); ++length) {
        bytes shorter(packed.begin(), packed.begin() + static_cast<ptrdiff_t>(length));
        shorter[2] = static_cast<uint8_t>(length);
        const exact memory(shorter);
        ucp_address_info_t unpacked;
        const ucs_status_t status = ucp_address_unpack(memory.get(), UCP_ADDRESS_MAX, &unpacked);
        ASSERT_EQ((length == 28) || (length == 34) || (length == 37) ? UCS_OK
                                                                     : UCS_ERR_INVALID_ADDR,
                  status)
            << length;
    }
}

/* Without a length given from outside, nothing beyond the end that the bytes themselves name is
 * read; where that lies outside of what is there, the given length holds. */
TEST(address, mutations)
{
    seeded_random random(712);
    const std::vector<bytes> entries = {{1, 2, 3}, {4, 5, 6, 7, 8, 9, 10, 11, 12, 13}, {}, {14}};
    const bytes packed               = pack(sample(entries));
    int accepted                     = 0;

    for (int i = 0; i < 100000; ++i) {
        bytes mutated = packed;
        for (uint64_t count = 1 + random.below(4); count > 0; --count) {
            switch (random.below(4)) {
            case 0:
                mutated[random.below(mutated.size())] = static_cast<uint8_t>(random.bits());
                break;
            case 1:
                mutated[random.below(mutated.size())] ^= static_cast<uint8_t>(1 << random.below(8));
                break;
            case 2:
                mutated.resize(1 + random.below(2 * packed.size()),
                               static_cast<uint8_t>(random.bits()));
                break;
            default:
                mutated[std::min<size_t>(2 + random.below(2), mutated.size() - 1)] =
                    static_cast<uint8_t>(random.one_in(2) ? mutated.size() : random.bits());
                break;
            }
        }
        const exact memory(mutated);
        ucp_address_info_t unpacked;
        if (ucp_address_unpack(memory.get(), mutated.size(), &unpacked) == UCS_OK) {
            ++accepted;
            ASSERT_LE(unpacked.num_entries, static_cast<unsigned>(UCP_ADDRESS_ENTRIES));
            for (unsigned n = 0; n < unpacked.num_entries; ++n) {
                ASSERT_GE(unpacked.entries[n].bytes, memory.get());
                ASSERT_LE(unpacked.entries[n].bytes + unpacked.entries[n].length,
                          memory.get() + mutated.size());
            }
        }
    }
    EXPECT_GT(accepted, 1000);
    EXPECT_LT(accepted, 99000);
}

/* The addresses of real workers. */
TEST(address, of_workers)
{
    ucp_test::log_catcher log;
    ucp_test::context context;
    ucp_test::worker worker(context);
    const bytes packed = worker.address();
    EXPECT_LE(packed.size(), 64u);
    ucp_address_info_t info;
    ASSERT_EQ(UCS_OK, ucp_address_unpack(packed.data(), packed.size(), &info));
    EXPECT_EQ(packed, pack(info));
    uint64_t id;
    memcpy(&id, info.uid, sizeof(id));
    EXPECT_EQ(ucp_test_worker_id(worker.handle()), id);
    for (unsigned i = 0; i < info.num_entries; ++i) {
        EXPECT_NE(ucp_address_wire_id("self"), info.entries[i].wire_id) << "nobody else can use it";
    }
}

} // namespace
