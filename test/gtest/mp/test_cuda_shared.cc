/* Halyard: windows of short messages between two devices: receiver and sender share the copies.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "cuda_side.h"

using mp::calls;
using mp::copies;
using mp::fail;
using mp::gpu_buffer;
using mp::hold_copies;
using mp::processes;
using mp::self;
using mp::side;
using mp::COPIES;
using mp::DONE;
using mp::STEP;
using mp::TAG;

namespace {

constexpr unsigned WINDOW = 40;

/* A window of messages between two devices, into and out of one allocation. `amid`: the receiver,
 * with all receives posted, and the sender, with all sends. */
void exchange_window(self &me, side &s, uint64_t id, const std::function<void()> &amid)
{
    constexpr size_t LENGTH = 5000;
    gpu_buffer buffer(s.g(), PERF_MEMORY_CUDA, WINDOW * LENGTH);
    std::vector<ucs_status_ptr_t> requests(WINDOW);

    ASSERT_TRUE(buffer.is_made()) << s.g().problem();
    buffer.put(WINDOW * LENGTH, s.is_sender() ? id : 0);
    s.n().barrier();
    uint8_t *place = buffer.place(WINDOW * LENGTH);
    for (unsigned i = 0; i < WINDOW; ++i, place += LENGTH) {
        requests[i] = s.is_sender() ? s.n().send(s.ep(), place, LENGTH, TAG) :
                                      s.n().recv(place, LENGTH, TAG);
    }
    amid();
    me.waits_for("window %lu", static_cast<unsigned long>(id));
    for (ucs_status_ptr_t request : requests) {
        EXPECT_EQ(UCS_OK, s.n().wait(request));
    }
    buffer.expect(WINDOW * LENGTH, id);
    s.n().barrier();
}

void exchange_window(self &me, side &s, uint64_t id)
{
    exchange_window(me, s, id, []() {});
}

/* Windows in which the receiver's copies take long, until the sender says that it is done (one that
 * has no processor for 0.1 ms loses again what it was asked for). Returns the next window's number.
 */
uint64_t exchange_until(self &me, side &s, uint64_t id, const std::function<bool()> &is_done)
{
    constexpr unsigned CALLS = 500; /* of progress, while copies do not end */

    do {
        hold_copies(!s.is_sender());
        exchange_window(me, s, id++, [&]() {
            for (unsigned i = 0; !s.is_sender() && (i < CALLS); ++i) {
                s.n().progress();
            }
            hold_copies(false);
        });
        me.waits_for("a copy by the sender in window %lu", static_cast<unsigned long>(id));
        me.own().words[DONE] = s.is_sender() && is_done();
        s.n().barrier();
    } while (me.own().words[DONE] + s.other().words[DONE] == 0);
    s.n().barrier();
    return id;
}

} // namespace

/* Each message is copied once, some of them by the sender. */
TEST(mp_cuda_shared, both_copy)
{
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        side s(me, true);
        const uint64_t first   = exchange_until(me, s, 1, []() { return copies() > 0; });
        const uint64_t before  = copies(); /* those that prove the way are made */
        const uint64_t next    = exchange_until(me, s, first,
                                                [&]() { return copies() > before; });
        me.own().words[COPIES] = copies() - before;
        s.n().barrier();
        EXPECT_EQ((next - first) * WINDOW, me.own().words[COPIES] + s.other().words[COPIES]);
        EXPECT_LT(0u, me.own().words[COPIES]);
        s.n().barrier();
    });
    EXPECT_TRUE(all.join());
    EXPECT_EQ(0u, all.log_lines()) << all.log();
}

/* What a sender that is busy was asked for the receiver copies. */
TEST(mp_cuda_shared, the_sender_is_busy)
{
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        side s(me, true);
        for (uint64_t id = 1; id <= 4; ++id) {
            exchange_window(me, s, id);
        }
        const uint64_t before = copies();
        const uint64_t end    = before + WINDOW;
        exchange_window(me, s, 5, [&]() {
            if (s.is_sender()) {
                s.sleep_until(5);
            } else {
                me.waits_for("%u messages of a sender that is busy", WINDOW);
                s.n().until([&]() { return copies() >= end; });
                s.reach(5);
            }
        });
        EXPECT_EQ(s.is_sender() ? before : end, copies());
    });
    EXPECT_TRUE(all.join());
}

/* A sender that cannot write leaves all to the receiver, which can read. */
TEST(mp_cuda_shared, the_sender_cannot_write)
{
    processes all(2);

    NEED_FAKE_GPU();
    all.start_all([&](self &me) {
        side s(me, true);
        if (s.is_sender()) {
            fail("cuIpcOpenMemHandle", true);
        }
        const uint64_t id     = exchange_until(me, s, 1, []() {
            return calls("cuIpcOpenMemHandle") > 0;
        });
        const uint64_t before = copies();
        exchange_window(me, s, id);
        EXPECT_EQ(before + (s.is_sender() ? 0 : WINDOW), copies());
    });
    EXPECT_TRUE(all.join());
}
