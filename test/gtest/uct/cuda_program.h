/* Halyard: a program that uses CUDA, for tests: it calls the driver as such a program does.
 *
 * The driver is the one of test/fakecuda, or with HALYARD_TEST_CUDA=real the machine's own. It is
 * never loaded into the process of the tests but into processes of their own, so that the other
 * tests see a machine without devices.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_UCT_CUDA_PROGRAM_H
#define TEST_GTEST_UCT_CUDA_PROGRAM_H

#include "peer_process.h"

#include <uct/cuda/cuda_driver.h>

namespace uct_test {

/* Runs the body in a process of its own; what fails there fails here. */
void in_process(const std::function<void()> &body);

/* Load in that process, before or after what is tested. */
class cuda_program {
public:
    enum class kind { DEVICE, MANAGED, POOL, SHARED_POOL, PIECES, PINNED, REGISTERED, PAGEABLE };

    struct memory {
        kind what;
        void *address;
        size_t length;
        std::vector<unsigned long long> handles; /* of pieces */
    };

    static bool is_real();

    cuda_program(); /* loads the driver */

    void init(); /* cuInit */
    uct_cu_ctx_t create_context(int device = 0); /* and makes it current */
    uct_cu_ctx_t use_primary(int device = 0);
    void set_current(uct_cu_ctx_t ctx);
    void destroy_context(uct_cu_ctx_t ctx);

    memory make(kind what, size_t length);
    void free(const memory &m);
    void map_anew(memory &m); /* other pieces in the place of those */
    void new_pool(); /* later SHARED_POOL comes from another one */
    void write(void *address, const bytes &data); /* whatever memory it is */
    bytes read(const void *address, size_t length);

    /* The fake driver only. */
    uint64_t calls(const char *name);
    void fail(const char *name, uint64_t k, int result, bool all = false);
    void set(const char *what, int value);
    uint64_t misuses();
    uint64_t pageable();
    unsigned depth();

    /* Any function of the driver. */
    template <class... Args> int call(const char *name, Args... args)
    {
        return reinterpret_cast<int (*)(Args...)>(symbol(name))(args...);
    }

private:
    void *symbol(const char *name);
    void map_pieces(uct_cu_ptr_t ptr, std::vector<unsigned long long> &handles);

    void *m_library;
    uct_cu_pool_t m_pool = nullptr;
};

constexpr cuda_program::kind CUDA_KINDS[] = {
    cuda_program::kind::DEVICE,      cuda_program::kind::MANAGED, cuda_program::kind::POOL,
    cuda_program::kind::SHARED_POOL, cuda_program::kind::PIECES,  cuda_program::kind::PINNED,
    cuda_program::kind::REGISTERED,  cuda_program::kind::PAGEABLE
};

/* The processor may not touch it. */
bool is_device(cuda_program::kind what);

} // namespace uct_test

#endif
