/* Halyard: a libfabric that makes trouble, for the tests of what ofi does about it.
 *
 * While the object lives, the functions that ofi takes from libfabric are its own. They forward to
 * the real ones, put calls of their own into the tables of what these make, and do badly, by
 * chance, whatever the interface of libfabric lets a provider do badly. What ofi must not do, such
 * as posting more than there is room for, fails the test. One thread only.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_UCT_FAULTY_PROVIDER_H
#define TEST_GTEST_UCT_FAULTY_PROVIDER_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace uct_test {

class faulty_provider {
public:
    /* How often: once in so many times on average, 0: never. May be changed at any time. */
    struct rates {
        unsigned storm   = 0; /* -FI_EAGAIN, until the completion queue has been read some times */
        unsigned hold    = 0; /* completions that come late, after later ones */
        unsigned refuse  = 0; /* registrations that are refused, of the program's memory */
        unsigned swallow = 0; /* messages not sent, reads and writes not done: errors, told late */
        unsigned belie   = 0; /* messages, reads and writes that are done, and called errors */
        unsigned cut     = 0; /* reads and writes that break off in the middle, with an error */
        unsigned spoil   = 0; /* messages that come, but only the error is told */
        unsigned keep    = 0; /* messages with data that are not sent and do not end */
        unsigned repeat  = 0; /* errors that are told twice */
        bool deaf        = false; /* nothing is told of what comes and what has ended */
        bool broken      = false; /* completion queues: they cannot be read */
        bool full        = false; /* no receive buffer is taken, with an error */
        bool spare       = false; /* messages that ofi does not say again are sent well */
    };

    /* What the provider says of itself; for interfaces that are opened afterwards. */
    struct traits {
        size_t queue    = 0;     /* entries of its queues, 0: the real ones */
        unsigned devices = 0;    /* further ones, as good as net's: fake0, at NUMA node 0, ... */
        bool single     = false; /* a buffer takes one message */
        bool early      = false; /* writes may end before the bytes are there */
        bool registered = false; /* buffers and keys need all that FI_MR_... can ask for */
        bool hmem       = false; /* memory of test/fakecuda's devices can be registered */
    };

    /* What has happened. */
    struct counts {
        size_t again, held, refused, swallowed, belied, cut, spoiled, kept, repeated, reads,
            writes, messages, gathered, registered, hmem; /* registered of devices */
        size_t farewells; /* of those swallowed and belied */
    };

    explicit faulty_provider(uint64_t seed);
    ~faulty_provider(); /* all that it made must have been closed */
    faulty_provider(const faulty_provider &) = delete;
    faulty_provider &operator=(const faulty_provider &) = delete;

    /* The n-th call from now that makes or changes an object fails, the first being 1. */
    void fail_call(unsigned n);

    /* Has it been made? */
    bool has_failed() const;

    rates  faults;
    traits says;
    counts seen = {};

    /* Where copies of what is sent are kept, or NULL; of that which has no more bytes than what
     * opens and closes connections. */
    std::vector<std::vector<uint8_t>> *said = nullptr;
};

} // namespace uct_test

#endif
