/* Halyard: tests of random programs: what one process does of such a program.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_MP_PROGRAM_H
#define TEST_GTEST_MP_PROGRAM_H

#include "program_plan.h"

#include <memory>

namespace mp::programs {

constexpr uint8_t GUARD_BYTE = 0xe7;

/* What this process is about, for whoever asks when it has crashed: written before each step. */
extern char where[400];

/* Memory of this process by a plan, and what must be in it. */
class area {
public:
    area(gpu *g, const area_plan &p) : m_gpu(g), m_kind(p.kind), m_size(p.size)
    {
        m_memory = make(m_kind);
        if ((m_memory == nullptr) && (m_kind != PERF_MEMORY_HOST)) {
            m_kind   = PERF_MEMORY_CUDA; /* a driver may lack the others */
            m_memory = make(m_kind);
        }
        EXPECT_NE(nullptr, m_memory) << perf_memory_names[p.kind];
    }

    ~area()
    {
        perf_memory_release(device(), m_kind, m_memory, m_extent);
    }

    area(const area &) = delete;
    area &operator=(const area &) = delete;

    uint8_t *memory() const
    {
        return m_memory;
    }

    size_t size() const
    {
        return m_size;
    }

    perf_memory_t kind() const
    {
        return m_kind;
    }

    ucs_memory_type_t type() const
    {
        return perf_memory_is_host(m_kind)       ? UCS_MEMORY_TYPE_HOST :
               (m_kind == PERF_MEMORY_MANAGED) ? UCS_MEMORY_TYPE_CUDA_MANAGED :
                                                 UCS_MEMORY_TYPE_CUDA;
    }

    void copy(void *dest, const void *src, size_t length)
    {
        if (length == 0) {
            return;
        }
        if (m_gpu != nullptr) {
            m_gpu->copy(dest, src, length);
        } else {
            memcpy(dest, src, length);
        }
    }

    /* Nothing but guards is to be there; then what messages there are is put. */
    void clear(size_t used)
    {
        m_image.assign(used, GUARD_BYTE);
    }

    uint8_t *image(const span &s)
    {
        return m_image.data() + s.offset;
    }

    void write_image()
    {
        copy(m_memory, m_image.data(), m_image.size());
    }

    /* The first byte that is not as it should be, or -1. */
    ssize_t compare()
    {
        m_actual.resize(m_image.size());
        copy(m_actual.data(), m_memory, m_actual.size());
        for (size_t i = 0; i < m_image.size(); i += 4096) {
            const size_t length = std::min<size_t>(4096, m_image.size() - i);
            if (memcmp(m_image.data() + i, m_actual.data() + i, length) != 0) {
                return std::mismatch(m_image.begin(), m_image.end(), m_actual.begin()).first -
                       m_image.begin();
            }
        }
        return -1;
    }

    ucp_mem_h mem = nullptr;

private:
    perf_device_t *device() const
    {
        static perf_device_t closed = {};

        return (m_gpu != nullptr) ? m_gpu->device() : &closed;
    }

    uint8_t *make(perf_memory_t kind)
    {
        m_extent = perf_memory_extent(kind, m_size);
        return static_cast<uint8_t *>(perf_memory_alloc(device(), kind, m_extent));
    }

    gpu                 *m_gpu;
    perf_memory_t        m_kind;
    size_t               m_size;
    size_t               m_extent = 0;
    uint8_t             *m_memory;
    std::vector<uint8_t> m_image, m_actual;
};

enum class stage { IDLE, RUNNING, AWAITED, KEPT, ENDED };

/* This process's part in an operation. */
struct task {
    operation                *op;
    unsigned                  which;
    stage                     at        = stage::IDLE;
    bool                      is_begun  = false; /* all of it has been posted */
    ucs_status_ptr_t          request   = nullptr;
    bool                      has_callback = false;
    unsigned                  calls     = 0;
    size_t                    done      = 0; /* bytes of a stream */
    size_t                    got       = 0;
    unsigned                  patience  = NONE; /* steps until it is cancelled, or fetched */
    ucp_tag_recv_info_t       info      = {};
    std::vector<ucp_dt_iov_t> iov;
    std::vector<uint8_t>      header;
    void                     *data      = nullptr; /* of an active message that is kept */
    bool                      is_announced = false;
    uint64_t                  reply     = 0;
};

/* What one process does of a program. */
class program {
public:
    program(self &me, plan &p, uint64_t seed);
    ~program();
    void run_round(unsigned round);

private:
    struct peer_area {
        uint64_t   address = 0;
        ucp_rkey_h rkey    = nullptr;
    };
    struct call {
        ucp_request_param_t param;
        void  *buffer;
        size_t count;
    };

    bool is_mine(const operation &op, unsigned which) const
    {
        return op.at[which].process == m_me.index();
    }

    void drop_areas(bool all);
    void renew_areas();
    void tell_keys();
    void write_images();
    void expect_images();
    void finish_image(const operation &op);
    void scatter(const operation &op, unsigned which, uint64_t id, size_t length);
    void make_tasks();
    void flush();
    void nap(unsigned one_in);
    void start_all();
    task *advance_all();
    void end_all();
    call prepare(task &t, size_t from, size_t length);
    bool start(task &t);
    bool start_tag_recv(task &t);
    void start_stream_recv(task &t);
    ucs_status_ptr_t start_send(task &t);
    ucs_status_ptr_t start_rma(task &t);
    ucs_status_ptr_t start_atomic(task &t);
    void began(task &t, ucs_status_ptr_t request);
    void advance(task &t);
    void ended(task &t, ucs_status_t status);
    void take(task &t, void *data);
    ucs_status_t on_message(unsigned id, const void *header, size_t header_length, void *data,
                            size_t length, uint64_t attr);
    void watch(const task &t, const char *doing);

    static void on_send(void *request, ucs_status_t status, void *arg);
    static void on_tag(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                       void *arg);
    static void on_bytes(void *request, ucs_status_t status, size_t length, void *arg);
    template <unsigned ID>
    static ucs_status_t on_am(void *arg, const void *header, size_t header_length, void *data,
                              size_t length, const ucp_am_recv_param_t *param)
    {
        return static_cast<program *>(arg)->on_message(ID, header, header_length, data, length,
                                                       param->recv_attr);
    }
    template <unsigned ID>
    void handle(uint32_t flags);

    self &m_me;
    plan &m_plan;
    uint64_t m_seed;
    unsigned m_round = 0;
    unsigned m_naps  = 0; /* in this round */
    dice m_dice;
    std::unique_ptr<gpu> m_gpu;
    size_t m_free_before  = 0;
    size_t m_files_before = 0;
    std::unique_ptr<node> m_node;
    std::vector<std::unique_ptr<area>> m_areas;
    std::vector<std::vector<peer_area>> m_peers;
    std::vector<ucs_status_ptr_t> m_flushes;
    std::vector<task> m_tasks;              /* in the order in which they are to be started */
    std::vector<task *> m_task_of[2];       /* by number of the operation */
};

} // namespace mp::programs

#endif
