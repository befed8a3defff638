/* Halyard: tests of memory of the host that a program with CUDA maps (ucp_mem_map): the driver is
 * told of it, so that devices copy from and to it by themselves, and is told of its end.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/remote.h>
#include <uct/cuda_program.h>

extern "C" {
#include <uct/cuda/cuda_driver.h>
}

#include <cstring>
#include <sys/mman.h>

using namespace ucp_test;
using uct_test::cuda_program;
using uct_test::in_process;
using kind = cuda_program::kind;

namespace {

constexpr size_t LENGTH = 1u << 20; /* more than UCX_CUDA_COPY_HOST_REG_THRESH */

/* A program with a device and a context. */
class program {
public:
    explicit program(const settings &more = {})
    {
        m_environment.set(more);
        cuda.init();
        cuda.create_context();
        m_context = std::make_unique<context>(
            context_options{UCP_FEATURE_TAG | UCP_FEATURE_RMA, 0, nullptr, nullptr});
    }

    ~program()
    {
        m_context.reset();
        EXPECT_EQ(0u, cuda.misuses());
    }

    ucp_mem_h map(void *address, size_t length, unsigned flags = 0)
    {
        ucp_mem_map_params_t params = {};
        ucp_mem_h memh              = nullptr;

        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                            UCP_MEM_MAP_PARAM_FIELD_FLAGS;
        params.address    = address;
        params.length     = length;
        params.flags      = flags;
        EXPECT_EQ(UCS_OK, ucp_mem_map(m_context->handle(), &params, &memh));
        return memh;
    }

    void unmap(ucp_mem_h memh)
    {
        EXPECT_EQ(UCS_OK, ucp_mem_unmap(m_context->handle(), memh));
    }

    cuda_program cuda;

private:
    environment              m_environment;
    std::unique_ptr<context> m_context;
};

/* Devices reach all of it. */
bool is_pinned(const void *address, size_t length)
{
    uct_cuda_place_t place;

    EXPECT_EQ(UCS_OK, uct_cuda_range_query(uct_cuda_driver(), address, length, &place));
    return place.kind == UCT_CUDA_PINNED;
}

void *address_of(ucp_mem_h memh)
{
    ucp_mem_attr_t attr = {};

    attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    EXPECT_EQ(UCS_OK, ucp_mem_query(memh, &attr));
    return attr.address;
}

} // namespace

TEST(cuda_mem, what_is_mapped_is_pinned_until_it_is_unmapped)
{
    in_process([]() {
        program p;
        const auto m = p.cuda.make(kind::PAGEABLE, LENGTH + 8192);
        char *inside = static_cast<char *>(m.address) + 77;

        for (unsigned round = 0; round < 3; ++round) {
            ucp_mem_h memh = p.map(inside, LENGTH);
            EXPECT_TRUE(is_pinned(inside, LENGTH));
            p.unmap(memh);
            EXPECT_FALSE(is_pinned(inside, 1));
        }
        ucp_mem_h memh = p.map(nullptr, LENGTH, UCP_MEM_MAP_ALLOCATE);
        EXPECT_TRUE(is_pinned(address_of(memh), LENGTH));
        p.unmap(memh);
        p.cuda.free(m);
    });
}

TEST(cuda_mem, small_and_lazy_ones_are_not_pinned)
{
    in_process([]() {
        program p;
        const auto m   = p.cuda.make(kind::PAGEABLE, LENGTH);
        ucp_mem_h memh = p.map(m.address, LENGTH, UCP_MEM_MAP_NONBLOCK);

        EXPECT_FALSE(is_pinned(m.address, 1));
        p.unmap(memh);
        memh = p.map(m.address, 4096);
        EXPECT_FALSE(is_pinned(m.address, 1));
        p.unmap(memh);
        p.cuda.free(m);
    });
    in_process([]() {
        program p(settings{{"UCX_CUDA_COPY_HOST_REG_THRESH", "inf"}});
        const auto m   = p.cuda.make(kind::PAGEABLE, LENGTH);
        ucp_mem_h memh = p.map(m.address, LENGTH);

        EXPECT_FALSE(is_pinned(m.address, 1));
        p.unmap(memh);
        p.cuda.free(m);
    });
}

/* Mapped twice: the first one's end leaves the second one as slow as it would have been. What the
 * program has registered itself stays so. */
TEST(cuda_mem, others_registrations_are_left_alone)
{
    in_process([]() {
        program p;
        const auto m      = p.cuda.make(kind::PAGEABLE, 2 * LENGTH);
        const auto own    = p.cuda.make(kind::REGISTERED, LENGTH);
        const auto pinned = p.cuda.make(kind::PINNED, LENGTH);
        ucp_mem_h first   = p.map(m.address, LENGTH);
        ucp_mem_h second  = p.map(m.address, 2 * LENGTH);

        EXPECT_TRUE(is_pinned(m.address, LENGTH));
        p.unmap(first);
        EXPECT_FALSE(is_pinned(m.address, 1));
        p.unmap(second);
        for (void *address : {own.address, pinned.address}) {
            p.unmap(p.map(address, LENGTH));
            EXPECT_TRUE(is_pinned(address, LENGTH));
        }
        for (const auto &each : {m, own, pinned}) {
            p.cuda.free(each);
        }
    });
}

/* What the driver refuses is mapped all the same. */
TEST(cuda_mem, refused_by_the_driver)
{
    in_process([]() {
        program p;
        void *pages = mmap(nullptr, LENGTH, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        ucp_mem_h read_only = p.map(pages, LENGTH);
        EXPECT_TRUE(!cuda_program::is_real() || !is_pinned(pages, LENGTH));
        p.unmap(read_only);
        munmap(pages, LENGTH);
        if (cuda_program::is_real()) {
            return;
        }
        const auto m = p.cuda.make(kind::PAGEABLE, LENGTH);
        for (const char *call : {"cuMemHostRegister", "cuPointerGetAttributes",
                                 "cuCtxPushCurrent"}) {
            for (unsigned k = 1; k <= 3; ++k) {
                p.cuda.fail(call, k, 999);
                ucp_mem_h memh = p.map(m.address, LENGTH);
                p.cuda.fail(nullptr, 0, 0);
                p.unmap(memh);
                EXPECT_FALSE(is_pinned(m.address, 1)) << call << " " << k;
            }
        }
        p.cuda.free(m);
    });
}

/* A context may go before the memory, and the memory before CUDA comes. */
TEST(cuda_mem, contexts_come_and_go)
{
    in_process([]() {
        program p;
        const auto m             = p.cuda.make(kind::PAGEABLE, LENGTH);
        const uct_cu_ctx_t other = p.cuda.create_context();
        ucp_mem_h memh           = p.map(m.address, LENGTH);

        EXPECT_TRUE(is_pinned(m.address, LENGTH));
        p.cuda.destroy_context(other);
        p.unmap(memh);
        EXPECT_FALSE(is_pinned(m.address, 1));
        p.cuda.free(m);
    });
    in_process([]() {
        cuda_program cuda;
        bytes memory(LENGTH);
        context before({UCP_FEATURE_TAG | UCP_FEATURE_RMA, 0, nullptr, nullptr});
        ucp_mem_map_params_t params = {};
        ucp_mem_h memh              = nullptr;

        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        params.address    = memory.data();
        params.length     = memory.size();
        ASSERT_EQ(UCS_OK, ucp_mem_map(before.handle(), &params, &memh));
        cuda.init();
        cuda.create_context();
        EXPECT_EQ(UCS_OK, ucp_mem_unmap(before.handle(), memh));
        EXPECT_EQ(0u, cuda.misuses());
    });
}
