/* Halyard: tests of the counters against a map.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <gtest/gtest.h>

#include <seed.h>
#include <ucs/stats/counters.h>

#include <atomic>
#include <cstdlib>
#include <list>
#include <sstream>
#include <string>
#include <thread>

namespace {

const char *const names[] = {"sent", "received", "retried"};
const ucs_counters_class_t test_class = {"test_object", 3, names};

std::string dump(ucs_counters_format_t format)
{
    char *text    = nullptr;
    size_t length = 0;
    FILE *stream  = open_memstream(&text, &length);
    ucs_counters_dump(stream, format);
    fclose(stream);
    std::string result(text, length);
    free(text);
    return result;
}

struct object {
    explicit object(const std::string &name) : name(name)
    {
        ucs_counters_add(&counters, &test_class, name.c_str(), values);
    }

    ~object()
    {
        ucs_counters_remove(&counters);
    }

    ucs_counters_t counters;
    std::string name;
    uint64_t values[3]   = {0, 0, 0};
    uint64_t expected[3] = {0, 0, 0};
};

TEST(counters, random_operations_against_a_model)
{
    seeded_random rnd(40);
    std::list<object> objects;

    for (int step = 0; step < 5000; ++step) {
        const uint64_t action = rnd.below(20);
        if ((action == 0) && (objects.size() < 10)) {
            objects.emplace_back("object" + std::to_string(step));
        } else if ((action == 1) && !objects.empty()) {
            auto it = objects.begin();
            std::advance(it, rnd.below(objects.size()));
            objects.erase(it);
        } else if (!objects.empty()) {
            auto it = objects.begin();
            std::advance(it, rnd.below(objects.size()));
            const uint64_t which  = rnd.below(3);
            const uint64_t amount = rnd.bits() >> rnd.below(64);
            ucs_counter_add(&it->values[which], amount);
            it->expected[which] += amount;
            ASSERT_EQ(it->expected[which], ucs_counter_get(&it->values[which]));
        }

        if (step % 50 != 0) {
            continue;
        }
        std::ostringstream expected;
        for (const object &o : objects) {
            for (int i = 0; i < 3; ++i) {
                if (o.expected[i] != 0) {
                    expected << "test_object " << o.name << " " << names[i] << " "
                             << o.expected[i] << "\n";
                }
            }
        }
        ASSERT_EQ(expected.str(), dump(UCS_COUNTERS_TEXT));
    }
}

TEST(counters, json)
{
    EXPECT_EQ("[]\n", dump(UCS_COUNTERS_JSON));
    object a("a \"quoted\" \\ name\n"), b(std::string(100, 'b'));
    ucs_counter_add(&a.values[1], UINT64_MAX);
    EXPECT_EQ("[{\"class\": \"test_object\", \"object\": \"a \\\"quoted\\\" \\\\ name\\u000a\", "
              "\"counters\": {\"sent\": 0, \"received\": 18446744073709551615, \"retried\": 0}},\n"
              " {\"class\": \"test_object\", \"object\": \"" +
                  std::string(UCS_COUNTERS_NAME_MAX - 1, 'b') +
                  "\", \"counters\": {\"sent\": 0, \"received\": 0, \"retried\": 0}}]\n",
              dump(UCS_COUNTERS_JSON));
}

TEST(counters, reader_beside_the_writer)
{
    object o("shared");
    std::atomic<bool> stop{false};
    std::thread reader([&] {
        uint64_t last = 0;
        while (!stop) {
            const uint64_t now = ucs_counter_get(&o.values[0]);
            EXPECT_GE(now, last);
            last = now;
            (void)dump(UCS_COUNTERS_JSON);
        }
    });
    for (int i = 0; i < 100000; ++i) {
        ucs_counter_add(&o.values[0], 1);
    }
    stop = true;
    reader.join();
    EXPECT_EQ(100000u, ucs_counter_get(&o.values[0]));
}

} // namespace
