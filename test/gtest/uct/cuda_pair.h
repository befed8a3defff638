/* Halyard: two processes with device memory, for tests of cuda_ipc: one owns it, the other copies.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_UCT_CUDA_PAIR_H
#define TEST_GTEST_UCT_CUDA_PAIR_H

#include "cuda_program.h"

#include <ucs/sys/sys.h>

#include <atomic>
#include <memory>
#include <signal.h>
#include <sys/wait.h>
#include <thread>

namespace uct_test {

/* For this process time passes at once. */
inline void let_pass(uint64_t seconds)
{
    static uint64_t passed_ns;
    static ucs_sys_ops_t ops;

    passed_ns   += seconds * 1000000000;
    ops          = ucs_sys_real;
    ops.clock_ns = []() { return ucs_sys_real.clock_ns() + passed_ns; };
    ucs_sys_set(&ops);
}

inline const uct_tl_t *ipc_tl()
{
    return uct_tl_find("cuda_ipc");
}

/* Registers, packs, and keeps the registration with the worker's process. */
inline bytes key_of(const worker &w, void *address, size_t length, const worker *door = nullptr)
{
    uct_mem_t *mem;
    bytes packed(UCT_RKEY_MAX);

    EXPECT_EQ(UCS_OK, w.tl->md.reg(w.md, address, length, nullptr, &mem));
    mem->uid = (door == nullptr) ? nullptr : door->uid.data();
    packed.resize(w.tl->md.rkey_pack(mem, packed.data()));
    w.tl->md.release(mem);
    return packed;
}

/* The owner of memory: does what it is told, a letter at a time. */
struct owner {
    explicit owner(channel &link_arg) : link(link_arg), w(ipc_tl())
    {
        cuda.init();
        cuda.use_primary();
        link.put_contact(w.where());
    }

    /* 'a' length: allocate and tell key and address; 'p' length: the same with pieces, 's' length:
     * of a pool; 'm' seed: map other pieces and tell the key; 'k' offset length: tell another key;
     * 'n': forget the pool; 'r': read it and tell; 'f': free; 'i': have a door where nobody is;
     * 'c': close that; 'd': answer questions from now on; 'e': end */
    void serve()
    {
        for (;;) {
            const uint64_t order = link.get_number();
            if ((order == 'a') || (order == 'p') || (order == 's')) {
                const size_t length = link.get_number();
                using kind = cuda_program::kind;
                m = cuda.make((order == 'a') ? kind::DEVICE :
                              (order == 'p') ? kind::PIECES : kind::SHARED_POOL, length);
                cuda.write(m.address, pattern(length, length));
                link.put_number(reinterpret_cast<uintptr_t>(m.address));
                link.put(key_of(w, m.address, length));
            } else if (order == 'k') {
                const size_t offset = link.get_number();
                link.put(key_of(w, static_cast<char *>(m.address) + offset, link.get_number(),
                                door.get()));
            } else if (order == 'm') {
                cuda.map_anew(m);
                cuda.write(m.address, pattern(link.get_number(), m.length));
                link.put(key_of(w, m.address, m.length));
            } else if (order == 'r') {
                link.put(cuda.read(m.address, m.length));
            } else if (order == 'f') {
                cuda.free(m);
            } else if (order == 'n') {
                cuda.new_pool();
            } else if (order == 'i') {
                idle = std::make_unique<worker>(uct_tl_find("mm"));
            } else if (order == 'c') {
                idle.reset();
                link.put_number(1);
            } else if (order == 'd') {
                door     = std::make_unique<worker>(uct_tl_find("mm"));
                progress = std::thread([this]() {
                    while (!is_over) {
                        door->progress();
                    }
                });
                link.put_number(1);
            } else {
                break;
            }
        }
        is_over = true;
        if (progress.joinable()) {
            progress.join();
        }
    }

    channel &link;
    cuda_program cuda;
    worker w;
    cuda_program::memory m = {};
    std::unique_ptr<worker> idle, door;
    std::thread progress;
    std::atomic<bool> is_over{false};
};

/* The process that copies: a driver of its own, a worker, an endpoint to the owner. */
class ipc_user {
public:
    explicit ipc_user(const std::function<void()> &before = []() {}) :
        m_owner([](channel &link) { owner(link).serve(); }), w(nullptr)
    {
        before();
        cuda.init();
        cuda.use_primary();
        w  = std::make_unique<worker>(ipc_tl());
        ep = w->connect(link().get_contact());
    }

    ~ipc_user()
    {
        if (!m_killed) {
            link().put_number('e');
            EXPECT_EQ(0, m_owner.wait());
        }
        forget();
    }

    channel &link()
    {
        return m_owner.link();
    }

    void allocate(size_t length, char order = 'a')
    {
        forget();
        link().put_number(static_cast<uint64_t>(order));
        link().put_number(length);
        remote = link().get_number();
        ASSERT_TRUE(link().get(packed));
        ASSERT_EQ(UCS_OK, w->tl->md.rkey_unpack(w->md, packed.data(), packed.size(), &rkey));
    }

    /* Of a part of the same memory. */
    void key_again(size_t offset, size_t length)
    {
        forget();
        link().put_number('k');
        link().put_number(offset);
        link().put_number(length);
        ASSERT_TRUE(link().get(packed));
        ASSERT_EQ(UCS_OK, w->tl->md.rkey_unpack(w->md, packed.data(), packed.size(), &rkey));
    }

    void map_anew(uint64_t seed)
    {
        forget();
        link().put_number('m');
        link().put_number(seed);
        ASSERT_TRUE(link().get(packed));
        ASSERT_EQ(UCS_OK, w->tl->md.rkey_unpack(w->md, packed.data(), packed.size(), &rkey));
    }

    bytes read_remote()
    {
        bytes data;
        link().put_number('r');
        EXPECT_TRUE(link().get(data));
        return data;
    }

    void open_door()
    {
        link().put_number('d');
        EXPECT_EQ(1u, link().get_number());
    }

    void signal_owner(int number)
    {
        int status;

        EXPECT_EQ(0, kill(m_owner.pid(), number));
        if (number == SIGSTOP) { /* all of its threads */
            EXPECT_EQ(m_owner.pid(), waitpid(m_owner.pid(), &status, WUNTRACED));
        }
    }

    void forget_pool()
    {
        link().put_number('n');
    }

    void free_remote()
    {
        link().put_number('f');
    }

    void kill_owner()
    {
        m_owner.kill_now();
        m_killed = true;
    }

    void forget()
    {
        if (rkey != nullptr) {
            w->tl->md.rkey_release(rkey);
        }
        rkey = nullptr;
    }

    /* One attempt at a get of all of `local`, from the owner's first byte on. */
    ucs_status_t try_get(const cuda_program::memory &local, completion &comp)
    {
        uct_iov_t iov = {local.address, local.length, nullptr};
        return ep->ops->get_zcopy(ep, &iov, 1, remote, rkey, &comp.base);
    }

    ucs_status_t get(void *address, size_t offset, size_t length)
    {
        uct_iov_t iov = {address, length, nullptr};
        return finish({w.get()}, [&](uct_completion_t *comp) {
            return ep->ops->get_zcopy(ep, &iov, 1, remote + offset, rkey, comp);
        });
    }

    ucs_status_t put(void *address, size_t offset, size_t length)
    {
        uct_iov_t iov = {address, length, nullptr};
        return finish({w.get()}, [&](uct_completion_t *comp) {
            return ep->ops->put_zcopy(ep, &iov, 1, remote + offset, rkey, comp);
        });
    }

private:
    peer_process m_owner; /* first: it is forked before this process has a driver */
    bool m_killed = false;

public:
    cuda_program cuda;
    std::unique_ptr<worker> w;
    uct_ep_t *ep = nullptr;
    uint64_t remote  = 0;
    bytes packed;
    uct_rkey_t *rkey = nullptr;
};

} // namespace uct_test

#endif
