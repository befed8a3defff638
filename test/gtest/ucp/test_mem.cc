/* Halyard: tests of memory registration and remote keys.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <seed.h>
#include <ucp/remote.h>
#include <ucs/debug/fault.h>

#include <algorithm>
#include <cstring>
#include <sys/mman.h>

using namespace ucp_test;

namespace {

const context_options OPTIONS = {RMA_FEATURES, 0, nullptr, nullptr};

class mem : public testing::Test {
protected:
    /* Fields that the mask does not name are junk. */
    static ucp_mem_map_params_t params(uint64_t mask, void *address, size_t length, unsigned flags)
    {
        ucp_mem_map_params_t params;
        memset(&params, 0xee, sizeof(params));
        params.field_mask = mask;
        if (mask & UCP_MEM_MAP_PARAM_FIELD_ADDRESS) {
            params.address = address;
        }
        if (mask & UCP_MEM_MAP_PARAM_FIELD_LENGTH) {
            params.length = length;
        }
        if (mask & UCP_MEM_MAP_PARAM_FIELD_FLAGS) {
            params.flags = flags;
        }
        return params;
    }

    ucs_status_t map(const ucp_mem_map_params_t &params, ucp_mem_h *memh)
    {
        return ucp_mem_map(m_context.handle(), &params, memh);
    }

    ucp_mem_attr_t query(ucp_mem_h memh)
    {
        ucp_mem_attr_t attr;
        attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH |
                          UCP_MEM_ATTR_FIELD_MEM_TYPE;
        EXPECT_EQ(UCS_OK, ucp_mem_query(memh, &attr));
        EXPECT_EQ(UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH |
                      UCP_MEM_ATTR_FIELD_MEM_TYPE,
                  attr.field_mask);
        return attr;
    }

    void unmap(ucp_mem_h memh)
    {
        EXPECT_EQ(UCS_OK, ucp_mem_unmap(m_context.handle(), memh));
    }

    static constexpr uint64_t ALL = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                    UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    log_catcher m_log;
    context m_context{OPTIONS};
};

TEST_F(mem, query_is_exact)
{
    bytes buffer(100000);
    for (const size_t offset : {0, 1, 7, 63, 4095}) {
        for (const size_t length : {1ul, 55ul, 33584ul, 90000ul}) {
            ucp_mem_h memh = nullptr;
            ASSERT_EQ(UCS_OK, map(params(ALL, buffer.data() + offset, length, 0), &memh));
            const ucp_mem_attr_t attr = query(memh);
            EXPECT_EQ(buffer.data() + offset, attr.address);
            EXPECT_EQ(length, attr.length);
            EXPECT_EQ(UCS_MEMORY_TYPE_HOST, attr.mem_type);
            unmap(memh);
        }
    }
}

TEST_F(mem, repeated_and_overlapping)
{
    bytes buffer(10000);
    std::vector<ucp_mem_h> list;
    for (size_t i = 0; i < 200; ++i) {
        ucp_mem_h memh = nullptr;
        ASSERT_EQ(UCS_OK, map(params(ALL, buffer.data() + (i % 50), 5000, 0), &memh));
        list.push_back(memh);
    }
    for (ucp_mem_h memh : list) {
        unmap(memh);
    }
}

TEST_F(mem, allocated)
{
    for (const size_t length : {1ul, 100ul, 4096ul, 4097ul, 3000000ul}) {
        ucp_mem_h memh = nullptr;
        ASSERT_EQ(UCS_OK, map(params(ALL, nullptr, length,
                                     UCP_MEM_MAP_ALLOCATE | UCP_MEM_MAP_NONBLOCK),
                              &memh));
        const ucp_mem_attr_t attr = query(memh);
        ASSERT_NE(nullptr, attr.address);
        EXPECT_GE(attr.length, length);
        EXPECT_EQ(ptrdiff_t(length), std::count(static_cast<char *>(attr.address),
                                                static_cast<char *>(attr.address) + length, 0));
        memset(attr.address, 1, attr.length);
        unmap(memh);
    }
    /* without an address field, too */
    ucp_mem_h memh = nullptr;
    ASSERT_EQ(UCS_OK, map(params(UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                 nullptr, 64, UCP_MEM_MAP_ALLOCATE),
                          &memh));
    unmap(memh);
}

TEST_F(mem, fixed)
{
    char *place = static_cast<char *>(
        mmap(nullptr, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(MAP_FAILED, place);
    const unsigned flags = UCP_MEM_MAP_ALLOCATE | UCP_MEM_MAP_FIXED;
    ucp_mem_h memh       = nullptr;
    ASSERT_EQ(UCS_OK, map(params(ALL, place, 1 << 20, flags), &memh));
    EXPECT_EQ(place, query(memh).address);
    memset(place, 1, 1 << 20);
    unmap(memh);

    EXPECT_EQ(UCS_ERR_INVALID_PARAM, map(params(ALL, nullptr, 4096, flags), &memh));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, map(params(ALL, place + 8, 4096, flags), &memh));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, map(params(ALL, place, 4096, UCP_MEM_MAP_FIXED), &memh));
    m_log.take();
}

TEST_F(mem, zero_length)
{
    pair world({"zero", {}, false, UCS_THREAD_MODE_SINGLE}, OPTIONS);
    for (const unsigned flags : {unsigned(UCP_MEM_MAP_ALLOCATE), 0u}) {
        ucp_mem_map_params_t zero = params(ALL, nullptr, 0, flags);
        ucp_mem_h memh            = nullptr;
        ASSERT_EQ(UCS_OK, ucp_mem_map(world.ctx().handle(), &zero, &memh));
        EXPECT_EQ(nullptr, query(memh).address);
        EXPECT_EQ(0u, query(memh).length);
        void *packed  = nullptr;
        size_t length = 0;
        ASSERT_EQ(UCS_OK, ucp_rkey_pack(world.ctx().handle(), memh, &packed, &length));
        EXPECT_LE(length, 30u);
        ucp_rkey_h rkey = nullptr;
        ASSERT_EQ(UCS_OK, ucp_ep_rkey_unpack(world.ep(), packed, &rkey));
        ucp_rkey_buffer_release(packed);
        const ucp_request_param_t param = {};
        char byte                       = 0;
        EXPECT_EQ(nullptr, ucp_put_nbx(world.ep(), nullptr, 0, 0, rkey, &param));
        EXPECT_EQ(nullptr, ucp_get_nbx(world.ep(), nullptr, 0, 0, rkey, &param));
        EXPECT_EQ(UCS_ERR_OUT_OF_RANGE,
                  UCS_PTR_STATUS(ucp_put_nbx(world.ep(), &byte, 1, 0, rkey, &param)));
        ucp_rkey_destroy(rkey);
        EXPECT_EQ(UCS_OK, ucp_mem_unmap(world.ctx().handle(), memh));
    }
}

TEST_F(mem, what_is_refused)
{
    const uint64_t length = UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    char buffer[64];
    ucp_mem_h memh = nullptr;

    EXPECT_EQ(UCS_ERR_INVALID_PARAM, map(params(0, nullptr, 0, 0), &memh));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, map(params(length, nullptr, 100, 0), &memh));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, map(params(ALL, nullptr, 100, 0), &memh));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, map(params(ALL, buffer, SIZE_MAX, 0), &memh));
    EXPECT_EQ(UCS_ERR_NO_MEMORY, map(params(ALL, nullptr, SIZE_MAX, UCP_MEM_MAP_ALLOCATE), &memh));
    EXPECT_EQ(UCS_ERR_NO_MEMORY,
              map(params(ALL, nullptr, 1ull << 60, UCP_MEM_MAP_ALLOCATE), &memh));
    ucp_mem_map_params_t import =
        params(ALL | UCP_MEM_MAP_PARAM_FIELD_EXPORTED_MEMH_BUFFER, nullptr, 0, 0);
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, map(import, &memh));
    ucp_mem_map_params_t device = params(ALL | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE, nullptr, 64,
                                         UCP_MEM_MAP_ALLOCATE);
    device.memory_type = UCS_MEMORY_TYPE_CUDA;
    EXPECT_EQ(is_present("cuda_copy") ? UCS_ERR_NO_DEVICE : UCS_ERR_UNSUPPORTED,
              map(device, &memh));
    EXPECT_EQ(nullptr, memh) << "outputs are set on success only";
    m_log.take();

    /* kinds to be found out, in the numbers of old and new headers */
    for (const int kind : {int(UCS_MEMORY_TYPE_HOST), 5, int(UCS_MEMORY_TYPE_UNKNOWN)}) {
        ucp_mem_map_params_t unknown = params(ALL | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE, buffer,
                                              sizeof(buffer), 0);
        unknown.memory_type          = static_cast<ucs_memory_type_t>(kind);
        ASSERT_EQ(UCS_OK, map(unknown, &memh));
        unmap(memh);
    }
    const context other(OPTIONS);
    ASSERT_EQ(UCS_OK, map(params(ALL, buffer, sizeof(buffer), 0), &memh));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_mem_unmap(other.handle(), memh));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_mem_unmap(other.handle(), nullptr));
    ucp_memh_pack_params_t exported = {UCP_MEMH_PACK_PARAM_FIELD_FLAGS, UCP_MEMH_PACK_FLAG_EXPORT};
    void *packed                    = nullptr;
    size_t size                     = 0;
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, ucp_memh_pack(memh, &exported, &packed, &size));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_rkey_pack(other.handle(), memh, &packed, &size));
    EXPECT_EQ(nullptr, packed);
    unmap(memh);
    m_log.take();
}

TEST_F(mem, advise)
{
    const mapping mapping(m_context, 100000);
    ucp_mem_advise_params_t params;
    const auto advise = [&](uint64_t offset, size_t length, int advice) {
        params.field_mask = UCP_MEM_ADVISE_PARAM_FIELD_ADDRESS | UCP_MEM_ADVISE_PARAM_FIELD_LENGTH |
                            UCP_MEM_ADVISE_PARAM_FIELD_ADVICE;
        params.address    = mapping.data() + offset;
        params.length     = length;
        params.advice     = static_cast<ucp_mem_advice_t>(advice);
        return ucp_mem_advise(m_context.handle(), mapping.handle(), &params);
    };

    EXPECT_EQ(UCS_OK, advise(0, 100000, UCP_MADV_WILLNEED));
    EXPECT_EQ(UCS_OK, advise(5000, 10, UCP_MADV_NORMAL));
    EXPECT_EQ(UCS_OK, advise(0, 0, UCP_MADV_NORMAL));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, advise(0, 100001, UCP_MADV_WILLNEED));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, advise(uint64_t(0) - 1, 2, UCP_MADV_WILLNEED));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, advise(0, 10, 77));
    params.field_mask = UCP_MEM_ADVISE_PARAM_FIELD_ADDRESS;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              ucp_mem_advise(m_context.handle(), mapping.handle(), &params));
}

TEST_F(mem, print_info)
{
    const auto printed = [&](const char *size) {
        char *text    = nullptr;
        size_t length = 0;
        FILE *stream  = open_memstream(&text, &length);
        ucp_mem_print_info(size, m_context.handle(), stream);
        fclose(stream);
        const std::string result(text, length);
        free(text);
        return result;
    };
    EXPECT_NE(std::string::npos, printed("64K").find("65536 bytes"));
    EXPECT_NE(std::string::npos, printed("64K").find("mm"));
    EXPECT_NE(std::string::npos, printed("0").find("0 bytes"));
    EXPECT_NE(std::string::npos, printed("many").find("cannot"));
    m_log.take();
}

/* What the user leaves is ended with the context. */
TEST_F(mem, left_to_the_context)
{
    bytes buffer(1000);
    ucp_mem_h memh = nullptr;
    ASSERT_EQ(UCS_OK, map(params(ALL, nullptr, 100000, UCP_MEM_MAP_ALLOCATE), &memh));
    ASSERT_EQ(UCS_OK, map(params(ALL, buffer.data(), buffer.size(), 0), &memh));
}

TEST_F(mem, no_memory)
{
    pair world({"two", {}, false, UCS_THREAD_MODE_SINGLE}, OPTIONS);
    const mapping mapping(world.ctx(), 4096);
    const bytes packed = mapping.packed();
    unsigned failures  = 0;

    for (const char *name : {"malloc", "calloc", "memalign", "mmap", "memfd_create", "ftruncate"}) {
        for (int nth = 1; nth < 4; ++nth) {
            const std::string fault = std::string(name) + ":" + std::to_string(nth);
            ucp_mem_h memh          = nullptr;
            ucp_rkey_h rkey         = nullptr;
            void *ptr               = nullptr;
            ASSERT_EQ(UCS_OK, ucs_fault_set_list(fault.c_str()));
            ucs_status_t status = map(params(ALL, nullptr, 4096, UCP_MEM_MAP_ALLOCATE), &memh);
            EXPECT_TRUE((status == UCS_OK) == (memh != nullptr));
            failures += (status != UCS_OK);
            ucs_fault_clear(name);
            if (memh != nullptr) {
                unmap(memh);
            }
            ASSERT_EQ(UCS_OK, ucs_fault_set_list(fault.c_str()));
            status = ucp_ep_rkey_unpack(world.ep(), packed.data(), &rkey);
            EXPECT_TRUE((status == UCS_OK) == (rkey != nullptr));
            failures += (status != UCS_OK);
            if (rkey != nullptr) {
                (void)ucp_rkey_ptr(rkey, mapping.address(), &ptr);
                ucp_rkey_destroy(rkey);
            }
            ucs_fault_clear(name);
        }
    }
    EXPECT_GT(failures, 3u);
    m_log.take();
}

/* ---- keys ---- */

class rkey : public testing::Test {
protected:
    log_catcher m_log;
};

const variant TWO  = {"two", {}, false, UCS_THREAD_MODE_SINGLE};
const variant SELF = {"self", {}, true, UCS_THREAD_MODE_SINGLE};

/* A key ends where it says so, lies anywhere, is the same each time. */
TEST_F(rkey, packed_form)
{
    pair world(TWO, OPTIONS);
    bytes heap(5000);
    const mapping of_user(world.ctx(), heap.size(), heap.data());
    const mapping allocated(world.ctx(), 5000);

    EXPECT_LE(of_user.packed().size(), 30u);
    EXPECT_LE(allocated.packed().size(), 100u);
    for (const mapping *each : {&of_user, &allocated}) {
        const bytes packed = each->packed();
        EXPECT_EQ(packed, each->packed());
        for (size_t shift = 0; shift < 16; ++shift) {
            bytes moved(shift, 0xff);
            moved.insert(moved.end(), packed.begin(), packed.end());
            moved.resize(moved.size() + 300, 0xdd);
            ucp_rkey_h key = nullptr;
            ASSERT_EQ(UCS_OK, ucp_ep_rkey_unpack(world.ep(), moved.data() + shift, &key));
            std::fill(moved.begin(), moved.end(), 0); /* not needed any more */
            const ucp_request_param_t param = {};
            const bytes data                = pattern(shift, 500);
            ASSERT_EQ(UCS_OK, world.wait(ucp_put_nbx(world.ep(), data.data(), data.size(),
                                                     each->address(shift), key, &param)));
            ASSERT_EQ(-1, differs(each->data() + shift, data.size(), shift));
            ucp_rkey_destroy(key);
        }
    }
}

TEST_F(rkey, pointer)
{
    for (const variant &variant : {TWO, SELF}) {
        pair world(variant, OPTIONS);
        bytes heap(5000);
        const mapping of_user(world.ctx(), heap.size(), heap.data());
        const mapping allocated(world.ctx(), 5000);
        const key user_key(world.ep(), of_user.packed()), key(world.ep(), allocated.packed());
        void *ptr = nullptr;

        for (const uint64_t offset : {0, 1, 4999}) {
            ASSERT_EQ(UCS_OK, ucp_rkey_ptr(key.get(), allocated.address(offset), &ptr));
            *static_cast<uint8_t *>(ptr) = uint8_t(offset + 3);
            EXPECT_EQ(uint8_t(offset + 3), allocated.data()[offset]);
        }
        ptr = nullptr;
        EXPECT_EQ(UCS_ERR_UNREACHABLE, ucp_rkey_ptr(key.get(), allocated.address(5000), &ptr));
        EXPECT_EQ(UCS_ERR_UNREACHABLE, ucp_rkey_ptr(key.get(), allocated.address(-1), &ptr));
        EXPECT_EQ(nullptr, ptr);
        if (variant.is_self) {
            EXPECT_EQ(UCS_OK, ucp_rkey_ptr(user_key.get(), of_user.address(7), &ptr));
            EXPECT_EQ(heap.data() + 7, ptr);
        } else {
            EXPECT_EQ(UCS_ERR_UNREACHABLE, ucp_rkey_ptr(user_key.get(), of_user.address(), &ptr));
        }
    }
}

TEST_F(rkey, comparison)
{
    pair world(TWO, OPTIONS);
    const mapping one(world.ctx(), 5000), two(world.ctx(), 5000);
    const key a(world.ep(), one.packed()), b(world.ep(), one.packed()), c(world.ep(), two.packed());
    const key back(world.ep_back(), one.packed());
    ucp_rkey_compare_params_t params = {};
    ucp_worker_h worker              = world.sender().handle();
    int result = 7, other = 7;

    EXPECT_EQ(UCS_OK, ucp_rkey_compare(worker, a.get(), b.get(), &params, &result));
    EXPECT_EQ(0, result);
    EXPECT_EQ(UCS_OK, ucp_rkey_compare(worker, a.get(), c.get(), &params, &result));
    EXPECT_EQ(UCS_OK, ucp_rkey_compare(worker, c.get(), a.get(), &params, &other));
    EXPECT_TRUE(((result < 0) && (other > 0)) || ((result > 0) && (other < 0)));
    EXPECT_EQ(UCS_OK, ucp_rkey_compare(worker, a.get(), back.get(), &params, &result));
    EXPECT_NE(0, result) << "keys of different peers";
    params.field_mask = 1;
    result            = 7;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              ucp_rkey_compare(worker, a.get(), b.get(), &params, &result));
    EXPECT_EQ(7, result);
}

/* Keys outlive endpoints and the memory; what is mapped is then useless, no more. */
TEST_F(rkey, order_of_ends)
{
    pair world(TWO, OPTIONS);
    auto memory = std::make_unique<mapping>(world.ctx(), 5000);
    auto used   = std::make_unique<key>(world.ep(), memory->packed());
    auto unused = std::make_unique<key>(world.ep(), memory->packed());
    ucp_ep_h ep = world.sender().connect(world.receiver());
    auto late   = std::make_unique<key>(ep, memory->packed());
    const ucp_request_param_t param = {};
    const bytes data                = pattern(1, 100);

    ASSERT_EQ(UCS_OK, world.wait(ucp_put_nbx(world.ep(), data.data(), 100, memory->address(),
                                             used->get(), &param)));
    ASSERT_EQ(UCS_OK, world.wait(ucp_put_nbx(ep, data.data(), 100, memory->address(), late->get(),
                                             &param)));
    world.sender().forget(ep);
    EXPECT_EQ(UCS_OK, world.wait(ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FLUSH)));
    late.reset();
    memory.reset();
    used.reset();
    unused.reset();
}

/* The address that the user has chosen is the user's again once the memory is unmapped: a key that
 * is still there has a mapping of its own. */
TEST_F(rkey, outlives_memory_at_a_fixed_address)
{
    constexpr size_t LENGTH = 1 << 16;
    pair world(TWO, OPTIONS);
    char *place = static_cast<char *>(
        mmap(nullptr, LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(MAP_FAILED, place);
    ucp_mem_map_params_t params = {};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                        UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.address    = place;
    params.length     = LENGTH;
    params.flags      = UCP_MEM_MAP_ALLOCATE | UCP_MEM_MAP_FIXED;
    ucp_mem_h memh    = nullptr;
    void *packed      = nullptr;
    size_t length     = 0;
    ASSERT_EQ(UCS_OK, ucp_mem_map(world.ctx().handle(), &params, &memh));
    ASSERT_EQ(UCS_OK, ucp_rkey_pack(world.ctx().handle(), memh, &packed, &length));
    const auto *start = static_cast<const uint8_t *>(packed);
    auto used = std::make_unique<key>(world.ep(), bytes(start, start + length));
    ucp_rkey_buffer_release(packed);
    const ucp_request_param_t param = {};
    const bytes data                = pattern(1, 100);
    ASSERT_EQ(UCS_OK, world.wait(ucp_put_nbx(world.ep(), data.data(), 100,
                                             reinterpret_cast<uintptr_t>(place), used->get(),
                                             &param)));
    EXPECT_EQ(0, memcmp(place, data.data(), 100));

    unsigned char pages[LENGTH / 4096];
    EXPECT_EQ(UCS_OK, ucp_mem_unmap(world.ctx().handle(), memh));
    EXPECT_NE(0, mincore(place, LENGTH, pages)) << "it is still mapped";
    ASSERT_EQ(UCS_OK, ucp_mem_map(world.ctx().handle(), &params, &memh));
    used.reset();
    ASSERT_EQ(0, mincore(place, LENGTH, pages)) << "the key has unmapped what came after it";
    memset(place, 1, LENGTH);
    EXPECT_EQ(UCS_OK, ucp_mem_unmap(world.ctx().handle(), memh));
}

/* Our own memory is only what is registered now. */
TEST_F(rkey, of_oneself)
{
    pair world(SELF, OPTIONS);
    bytes heap(5000);
    auto memory        = std::make_unique<mapping>(world.ctx(), heap.size(), heap.data());
    const bytes packed = memory->packed();

    EXPECT_EQ(UCS_OK, key(world.ep(), packed).status());
    for (const size_t place : {4, 12, 20}) { /* another registration, start or end */
        bytes changed = packed;
        changed[place] ^= 0x40;
        EXPECT_EQ(UCS_ERR_UNREACHABLE, key(world.ep(), changed).status()) << place;
    }
    memory.reset();
    EXPECT_EQ(UCS_ERR_UNREACHABLE, key(world.ep(), packed).status());
    memory = std::make_unique<mapping>(world.ctx(), heap.size(), heap.data());
    EXPECT_EQ(UCS_ERR_UNREACHABLE, key(world.ep(), packed).status()) << "its id is another";
}

/* Any bytes make no more than an error, and nothing beyond the end that they name is read. */
TEST_F(rkey, hostile_bytes)
{
    seeded_random random(2301);
    pair world(TWO, OPTIONS);
    bytes heap(4096);
    const mapping of_user(world.ctx(), heap.size(), heap.data());
    const mapping allocated(world.ctx(), 4096);
    const bytes originals[] = {of_user.packed(), allocated.packed()};
    unsigned accepted       = 0;

    for (int i = 0; i < 30000; ++i) {
        bytes changed = originals[random.below(2)];
        if (random.one_in(5)) {
            changed.resize(28 + random.below(100), uint8_t(random.bits()));
            changed[1] = uint8_t(changed.size());
        }
        for (uint64_t count = random.below(4); count > 0; --count) {
            const size_t place = random.below(changed.size());
            if (place != 1) { /* the length is what the memory has, see below */
                changed[place] = uint8_t(random.bits());
            }
        }
        const std::unique_ptr<uint8_t[]> exact(new uint8_t[changed.size()]);
        std::copy(changed.begin(), changed.end(), exact.get());
        ucp_rkey_h key            = nullptr;
        const ucs_status_t status = ucp_ep_rkey_unpack(world.ep(), exact.get(), &key);
        ASSERT_EQ(status == UCS_OK, key != nullptr);
        if (key != nullptr) {
            void *ptr;
            ++accepted;
            (void)ucp_rkey_ptr(key, allocated.address(), &ptr);
            ucp_rkey_destroy(key);
        }
    }
    EXPECT_GT(accepted, 1000u);
    EXPECT_LT(accepted, 29000u);
    for (const bytes &original : originals) {
        for (unsigned length = 0; length < original.size(); ++length) {
            bytes shorter(original.begin(), original.begin() + std::max(2u, length));
            shorter.resize(std::max<size_t>(shorter.size(), 28));
            shorter[1]     = uint8_t(length);
            ucp_rkey_h key = nullptr;
            ASSERT_EQ((length == 28) ? UCS_OK : UCS_ERR_INVALID_PARAM,
                      ucp_ep_rkey_unpack(world.ep(), shorter.data(), &key));
            if (key != nullptr) {
                ucp_rkey_destroy(key);
            }
        }
    }
    m_log.take();
}

/* ---- features ---- */

TEST_F(rkey, operations_want_their_feature)
{
    const struct {
        uint64_t features;
        bool rma, amo32, amo64;
    } rows[] = {{UCP_FEATURE_TAG, false, false, false},
                {UCP_FEATURE_RMA, true, false, false},
                {UCP_FEATURE_AMO32, false, true, false},
                {UCP_FEATURE_AMO64, false, false, true}};

    for (const auto &row : rows) {
        pair world(SELF, {row.features, 0, nullptr, nullptr});
        const mapping memory(world.ctx(), 4096);
        const key key(world.ep(), memory.packed());
        ASSERT_EQ(UCS_OK, key.status());
        const ucp_request_param_t param = {};
        const uint64_t value            = 5;
        for (int round = 0; round < 2; ++round) { /* mapped, the second time */
            EXPECT_EQ(row.rma ? UCS_OK : UCS_ERR_UNSUPPORTED,
                      UCS_PTR_RAW_STATUS(ucp_put_nbx(world.ep(), &value, 8, memory.address(),
                                                     key.get(), &param)));
            EXPECT_EQ(row.amo32 ? UCS_OK : UCS_ERR_UNSUPPORTED,
                      ucp_atomic_post(world.ep(), UCP_ATOMIC_POST_OP_ADD, 1, 4, memory.address(),
                                      key.get()));
            EXPECT_EQ(row.amo64 ? UCS_OK : UCS_ERR_UNSUPPORTED,
                      ucp_atomic_post(world.ep(), UCP_ATOMIC_POST_OP_ADD, 1, 8, memory.address(),
                                      key.get()));
        }
    }
}

} // namespace
