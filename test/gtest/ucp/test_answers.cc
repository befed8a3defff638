/* Halyard: a message that answers another is not delivered before the send of that one has ended:
 * MPICH keeps both in one request, of which the answer writes over what the send's callback frees.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/world.h>

using namespace ucp_test;

namespace {

class answers : public variant_test {
protected:
    /* Sends a message which the receiver answers from its callback, while the two take turns of as
     * many calls of progress. Had the send ended when the answer was there? */
    static void exchange(pair &pair, size_t length, size_t answer_length, unsigned sender_turns,
                         unsigned receiver_turns);
};

INSTANTIATE_TEST_SUITE_P(all, answers, testing::ValuesIn(all_variants()), variant_name);

constexpr ucp_tag_t QUESTION = 1, ANSWER = 2;

void answers::exchange(pair &pair, size_t length, size_t answer_length, unsigned sender_turns,
                       unsigned receiver_turns)
{
    const bytes data = pattern(length, length), answer(answer_length, 5);
    bytes got(length), got_answer(answer_length);
    ending sent, received, answered, answer_sent;
    void *request        = nullptr;
    void *answer_request = nullptr;
    bool was_over        = false;

    received.action = [&]() {
        const ucp_request_param_t param = send_param(&answer_sent);
        answer_request =
            ucp_tag_send_nbx(pair.ep_back(), answer.data(), answer.size(), ANSWER, &param);
    };
    answered.action = [&]() { was_over = (request == nullptr) || (sent.calls > 0); };

    const ucp_request_param_t param        = send_param(&sent);
    const ucp_request_param_t recv_param   = receive_param(&received, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    const ucp_request_param_t answer_param = receive_param(&answered, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    ucp_tag_recv_nbx(pair.receiver().handle(), got.data(), length, QUESTION, ~0ull, &recv_param);
    ucp_tag_recv_nbx(pair.sender().handle(), got_answer.data(), answer_length, ANSWER, ~0ull,
                     &answer_param);
    request = ucp_tag_send_nbx(pair.ep(), data.data(), length, QUESTION, &param);
    ASSERT_FALSE(UCS_PTR_IS_ERR(request));
    pair.progress_until([&]() {
        for (unsigned i = 1; i < receiver_turns; ++i) {
            pair.receiver().progress();
        }
        for (unsigned i = 1; i < sender_turns; ++i) {
            pair.sender().progress();
        }
        return (answered.calls > 0) && ((request == nullptr) || (sent.calls > 0)) &&
               ((answer_request == nullptr) || (answer_sent.calls > 0));
    });
    EXPECT_TRUE(was_over) << length << " bytes, answered by " << answer_length << ", "
                          << sender_turns << " and " << receiver_turns << " turns";
    EXPECT_EQ(data, got);
    EXPECT_EQ(answer, got_answer);
}

TEST_P(answers, come_after_the_end_of_what_they_answer)
{
    pair pair(GetParam());

    (void)pair.ep_back();
    for (size_t length : {8ul, 2000ul, 20000ul, 40000ul, 65536ul, 150000ul, 1000000ul}) {
        for (size_t answer_length : {8ul, length}) {
            for (auto [sender_turns, receiver_turns] :
                 {std::make_pair(1u, 1u), std::make_pair(1u, 20u), std::make_pair(20u, 1u)}) {
                for (int i = 0; i < 3; ++i) {
                    exchange(pair, length, answer_length, sender_turns, receiver_turns);
                }
            }
        }
    }
}

} // namespace
