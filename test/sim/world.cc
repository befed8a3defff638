/* Halyard: simulator: the life of workers and endpoints, memory of the user's, wounds.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "rma.h"

#include <ucp/internals.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace sim {

world *the_world;

worker::worker()  = default;
worker::~worker() = default;

namespace {

constexpr size_t GUARD      = 32;
constexpr uint8_t GUARD_BYTE = 0xa5;

/* ---- memory ---- */

uint64_t pattern_word(uint64_t number, uint64_t index)
{
    const uint64_t value = (number + 1) * 0x9e3779b97f4a7c15ull + index * 0xd1342543de82ef95ull;
    return value ^ (value >> 31);
}

} // namespace

namespace {

/* Bytes of the word at `offset` that lie before the next one, at most length. */
size_t word_part(uint64_t offset, size_t length)
{
    return std::min<size_t>(8 - (offset % 8), length);
}

} // namespace

void fill(uint8_t *data, size_t length, uint64_t number, uint64_t offset)
{
    for (size_t part; length > 0; data += part, offset += part, length -= part) {
        const uint64_t word = pattern_word(number, offset & ~7ull);
        part                = word_part(offset, length);
        if (part == 8) {
            memcpy(data, &word, 8);
        } else {
            memcpy(data, reinterpret_cast<const uint8_t *>(&word) + (offset % 8), part);
        }
    }
}

bool is_filled(const uint8_t *data, size_t length, uint64_t number, uint64_t offset)
{
    for (size_t part; length > 0; data += part, offset += part, length -= part) {
        const uint64_t word = pattern_word(number, offset & ~7ull);
        part                = word_part(offset, length);
        if ((part == 8) ? (memcmp(data, &word, 8) != 0) :
                          (memcmp(data, reinterpret_cast<const uint8_t *>(&word) + (offset % 8),
                                  part) != 0)) {
            return false;
        }
    }
    return true;
}

namespace {

/* place: where the library finds what lies in memory. */
buffer *buffer_add(worker &owner, size_t length, uint8_t *place, uint8_t *memory)
{
    auto buf = std::make_unique<buffer>();

    memset(memory, GUARD_BYTE, GUARD);
    memset(memory + GUARD + length, GUARD_BYTE, GUARD);
    buf->data         = memory + GUARD;
    buf->place        = place + GUARD;
    buf->length       = length;
    buf->in_use       = true;
    buf->is_on_device = (place != memory);
    owner.buffers.push_back(std::move(buf));
    return owner.buffers.back().get();
}

} // namespace

buffer *buffer_new(worker &owner, size_t length)
{
    auto *memory = static_cast<uint8_t *>(malloc(length + (2 * GUARD)));
    if (memory == nullptr) {
        abort();
    }
    buffer *buf  = buffer_add(owner, length, memory, memory);
    buf->is_heap = true;
    return buf;
}

buffer *buffer_anywhere(worker &owner, size_t length)
{
    void *storage;

    if (!sim_chance(sim_plan.on_device)) {
        return buffer_new(owner, length);
    }
    const auto kind   = sim_chance(sim_plan.shown) ?
                            SIM_SHOWN :
                            static_cast<sim_device_kind_t>(sim_between(SIM_HIDDEN, SIM_PINNED));
    const auto device = (int)((owner.number + (sim_chance(0.2) ? 1 : 0)) % sim_plan.num_devices);
    void *place       = sim_device_alloc(kind, device, length + (2 * GUARD), &storage);
    return buffer_add(owner, length, static_cast<uint8_t *>(place),
                      static_cast<uint8_t *>(storage));
}

void buffer_end(buffer &buf)
{
    buf.in_use = false;
    if (buf.is_on_device && sim_chance(0.5)) {
        sim_device_free(buf.place);
        buf.is_on_device = false;
    }
}

bool buffer_is_intact(const buffer &buf)
{
    const auto is_guard = [](uint8_t byte) { return byte == GUARD_BYTE; };
    return std::all_of(buf.data - GUARD, buf.data, is_guard) &&
           std::all_of(buf.data + buf.length, buf.data + buf.length + GUARD, is_guard);
}

/* ---- wounds ---- */

bool is_wounded(unsigned from, unsigned to)
{
    const worker &a = *the_world->workers[from];
    const worker &b = *the_world->workers[to];

    return (a.state != life::ALIVE) || (b.state != life::ALIVE) || a.lacked_memory ||
           b.lacked_memory || (sim_net_is_wounded(from, to) != 0);
}

bool is_wounded(const worker &w)
{
    for (const auto &other : the_world->workers) {
        if (is_wounded(w.number, other->number)) {
            return true;
        }
        for (const auto &e : other->eps) {
            if ((e->is_forced || (e->link_to != nullptr)) &&
                ((e->peer == w.number) || (other.get() == &w))) {
                return true;
            }
        }
    }
    return false;
}

/* ---- endpoints ---- */

namespace {

void on_failure(void *arg, ucp_ep_h, ucs_status_t status)
{
    auto *e = static_cast<endpoint *>(arg);

    sim_event("error handler", e->owner->number, e->peer, (uint64_t)-status);
    if (e->owner->state != life::ALIVE) {
        return;
    }
    if (++e->handler_calls > 1) {
        sim_fail("the error handler of endpoint %u of worker %u is called again", e->index,
                 e->owner->number);
    }
    if (e->is_closing) {
        sim_fail("the error handler of endpoint %u of worker %u is called after its close",
                 e->index, e->owner->number);
        return;
    }
    if (!may_break(*e)) {
        sim_fail("endpoint %u of worker %u to %u fails for no reason: %s", e->index,
                 e->owner->number, e->peer, ucs_status_string(status));
    }
    if (sim_chance(0.5)) {
        close_endpoint(*e, sim_chance(0.5));
    }
}

} // namespace

void endpoint_set_errors(endpoint &e, ucp_ep_params_t *params)
{
    params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params->err_mode    = e.err_mode;
    if ((e.err_mode == UCP_ERR_HANDLING_MODE_PEER) && sim_chance(0.8)) {
        params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params->err_handler.cb  = on_failure;
        params->err_handler.arg = &e;
    }
}

/* Alive rather than dead, oneself now and then; one that could not be made has no address. */
unsigned peer_random(const worker &w)
{
    unsigned peer = w.number;

    for (int i = 0; i < 4; ++i) {
        peer = (unsigned)sim_below(the_world->workers.size());
        if ((the_world->workers[peer]->state == life::ALIVE) && (peer != w.number)) {
            return peer;
        }
    }
    return the_world->workers[peer]->address.empty() ? w.number : peer;
}

endpoint *endpoint_make(worker &w, unsigned peer)
{
    auto e = std::make_unique<endpoint>();
    ucp_ep_params_t params;

    memset(&params, 0xee, sizeof(params));
    e->owner          = &w;
    w.is_asleep       = false;
    e->peer           = peer;
    e->index          = (unsigned)w.eps.size();
    e->made_at        = the_world->ops.size();
    e->err_mode       = sim_chance(0.6) ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<ucp_address_t *>(the_world->workers[peer]->address.data());
    endpoint_set_errors(*e, &params);

    const ucs_status_t status = ucp_ep_create(w.handle, &params, &e->handle);
    sim_event("endpoint", w.number, peer, (uint64_t)-status);
    if (status != UCS_OK) {
        if (!is_wounded(w.number, peer)) {
            sim_fail("worker %u gets no endpoint to %u: %s", w.number, peer,
                     ucs_status_string(status));
        }
        return nullptr;
    }
    e->ordinal       = ucp_test_ordinal(e->handle);
    am_adopt(w, *e);
    const auto count = std::count_if(w.eps.begin(), w.eps.end(), [&](const auto &other) {
        return (other->peer == peer) && (other->link_to == nullptr);
    });
    if ((e->ordinal != count) && !is_wounded(w.number, peer)) {
        sim_fail("worker %u gets the %u. endpoint to %u after %u", w.number, e->ordinal, peer,
                 (unsigned)count);
    }
    w.eps.push_back(std::move(e));
    return w.eps.back().get();
}

endpoint *endpoint_random(worker &w)
{
    std::vector<endpoint *> open;

    for (const auto &e : w.eps) {
        if (!e->is_closing) {
            open.push_back(e.get());
        }
    }
    if (open.empty() || ((open.size() < 8) && (w.eps.size() < 60) && sim_chance(0.08))) {
        return (w.eps.size() < 100) ? endpoint_make(w, peer_random(w)) : nullptr;
    }
    return open[sim_below(open.size())];
}

/* ---- workers ---- */

namespace {

ucp_context_h context_make()
{
    ucp_context_h context = nullptr;
    ucp_config_t *config  = nullptr;
    ucp_params_t params;

    if (ucp_config_read(nullptr, nullptr, &config) != UCS_OK) {
        return nullptr;
    }
    if ((ucp_config_modify(config, "RNDV_THRESH", sim_plan.rndv_thresh) != UCS_OK) ||
        (ucp_config_modify(config, "RNDV_SCHEME", sim_plan.rndv_scheme) != UCS_OK) ||
        (ucp_config_modify(config, "TM_UNEXP_BUDGET", sim_plan.unexp_budget) != UCS_OK) ||
        (ucp_config_modify(config, "TM_BUCKETS", "16") != UCS_OK)) {
        ucp_config_release(config);
        return nullptr;
    }
    memset(&params, 0xee, sizeof(params));
    params.field_mask         = UCP_PARAM_FIELD_FEATURES;
    params.features           = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_STREAM |
                                UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 |
                                ((sim_plan.sleep > 0) ? UCP_FEATURE_WAKEUP : 0);
    const ucs_status_t status = ucp_init(&params, config, &context);
    ucp_config_release(config);
    return (status == UCS_OK) ? context : nullptr;
}

ucs_status_t worker_open(worker &w)
{
    ucp_worker_params_t params;
    ucp_context_attr_t attr;
    ucp_address_t *address;
    size_t length;

    w.context = context_make();
    if (w.context == nullptr) {
        return UCS_ERR_NO_MEMORY;
    }
    memset(&params, 0xee, sizeof(params));
    params.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_CLIENT_ID;
    params.client_id   = w.number + 1;
    params.thread_mode = sim_plan.is_multi ? UCS_THREAD_MODE_MULTI : UCS_THREAD_MODE_SINGLE;
    ucs_status_t status = ucp_worker_create(w.context, &params, &w.handle);
    if (status != UCS_OK) {
        w.handle = nullptr;
        return status;
    }
    if ((sim_plan.sleep > 0) && (ucp_worker_get_efd(w.handle, &w.event_fd) != UCS_OK)) {
        sim_fail("worker %u has no descriptor", w.number);
    }
    ucp_test_look_always(w.handle); /* real addresses and real time are not the seed's */
    attr.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE;
    ucp_context_query(w.context, &attr);
    w.request_size = attr.request_size;
    status         = ucp_worker_get_address(w.handle, &address, &length);
    if (status != UCS_OK) {
        return status;
    }
    const auto *start = reinterpret_cast<const uint8_t *>(address);
    w.address.assign(start, start + length);
    ucp_worker_release_address(w.handle, address);
    am_listen(w);
    return UCS_OK;
}

void worker_release(worker &w)
{
    if (w.handle != nullptr) {
        ucp_worker_destroy(w.handle); /* what is in flight may end here, or never */
        w.handle = nullptr;
    }
    for (const auto &e : w.eps) {
        rma_drop_keys(*e, nullptr);
    }
    if (w.context != nullptr) {
        for (const auto &r : w.regions) {
            if (!r->is_unmapped && sim_chance(0.5)) {
                ucp_mem_unmap(w.context, r->handle); /* or ucp_cleanup does it */
            }
        }
        ucp_cleanup(w.context);
        w.context = nullptr;
    }
}

void abandon_ops(worker &w)
{
    rma_owner_ends(w);
    for (const auto &o : the_world->ops) {
        if ((o->owner == &w) && !o->is_done) {
            o->is_abandoned = true;
        }
    }
}

/* Their owner has no use for them any more, whatever became of the operations. */
void take_buffers_back(worker &w)
{
    for (const auto &buf : w.buffers) {
        buf->rightly_gone = buf->rightly_gone || buf->in_use;
        buf->in_use       = false;
    }
}

} // namespace

worker *worker_make()
{
    auto w = std::make_unique<worker>();

    the_world->current = w.get();
    w->number          = (unsigned)the_world->workers.size();
    sim_net_set_owner(w->number);
    const ucs_status_t status = worker_open(*w);
    sim_event("worker", w->number, (uint64_t)-status, 0);
    if (status != UCS_OK) {
        if (!w->lacked_memory) {
            sim_fail("worker %u cannot be made: %s", w->number, ucs_status_string(status));
        }
        worker_release(*w);
        w->state = life::LEFT;
    }
    the_world->workers.push_back(std::move(w));
    if (status != UCS_OK) {
        return nullptr;
    }
    worker &made = *the_world->workers.back();
    if (sim_plan.share[SIM_MEMORY] > 0) {
        post_region(made);
        post_region(made);
    }
    return &made;
}

void worker_leave(worker &w)
{
    sim_event("leave", w.number, 0, 0);
    the_world->current = &w;
    abandon_ops(w);
    w.left_at = the_world->ops.size();
    for (const auto *list : {&w.eps, &w.answers}) {
        for (const auto &e : *list) {
            e->is_closing = true;
        }
    }
    w.requests.clear(); /* the library rejects them */
    w.port  = 0;
    w.state = life::LEFT;
    worker_release(w);
    take_buffers_back(w);
}

void worker_kill(worker &w)
{
    sim_event("kill", w.number, 0, 0);
    sim_net_kill(w.number);
    w.state = life::DEAD;
    w.port  = 0;
    abandon_ops(w);
    take_buffers_back(w);
}

void worker_bury(worker &w)
{
    worker_release(w);
}

bool is_idle(const worker &w)
{
    return std::none_of(the_world->ops.begin(), the_world->ops.end(), [&](const auto &o) {
        return (o->owner == &w) && !o->is_done && !is_receive(o->what);
    });
}

void world_free_buffers()
{
    for (const auto &w : the_world->workers) {
        for (const auto &buf : w->buffers) {
            if (buf->is_heap) {
                free(buf->data - GUARD);
            }
        }
    }
}

unsigned num_alive()
{
    unsigned count = 0;
    for (const auto &w : the_world->workers) {
        count += (w->state == life::ALIVE);
    }
    return count;
}

worker *worker_random()
{
    const unsigned count = num_alive();
    unsigned index       = (count > 0) ? (unsigned)sim_below(count) : 0;

    for (const auto &w : the_world->workers) {
        if ((w->state == life::ALIVE) && (index-- == 0)) {
            return w.get();
        }
    }
    return nullptr;
}

namespace {

/* Goes to sleep, if the library lets it; now and then another thread wakes it for no reason. */
void worker_sleep(worker &w)
{
    const ucs_status_t status = ucp_worker_arm(w.handle);

    if ((status != UCS_OK) && (status != UCS_ERR_BUSY)) {
        sim_fail("worker %u cannot sleep: %s", w.number, ucs_status_string(status));
    }
    w.is_asleep = (status == UCS_OK);
    sim_event(w.is_asleep ? "sleeps" : "does not sleep", w.number, 0, 0);
    if (w.is_asleep && sim_chance(0.05)) {
        (void)ucp_worker_signal(w.handle);
        if (!sim_tcp_is_ready(w.event_fd)) {
            sim_fail("a signal does not wake worker %u", w.number);
        }
    }
}

} // namespace

unsigned worker_progress(worker &w)
{
    if (w.is_asleep && !sim_tcp_is_ready(w.event_fd)) {
        return 0;
    }
    w.is_asleep          = false;
    the_world->current   = &w;
    w.is_progressing     = true;
    const unsigned count = ucp_worker_progress(w.handle);
    w.is_progressing     = false;
    if ((count == 0) && sim_chance(sim_plan.sleep)) {
        worker_sleep(w);
    }
    return count;
}

void worker_poll(worker &w)
{
    for (size_t i = 0; i < w.polled.size();) {
        op &o                     = *w.polled[i];
        const ucs_status_t status =
            (o.what == kind::STREAM_RECEIVE) ?
                ucp_stream_recv_request_test(o.request, &o.received) :
            (o.what == kind::RECEIVE) ? ucp_tag_recv_request_test(o.request, &o.info) :
                                        ucp_request_check_status(o.request);
        if (status == UCS_INPROGRESS) {
            ++i;
            continue;
        }
        w.polled.erase(w.polled.begin() + (ptrdiff_t)i);
        if (o.memory.empty()) {
            ucp_request_free(o.request);
        }
        op_end(o, status);
    }
}

namespace {

/* The buffer that an access is of, or NULL. */
const buffer *buffer_at(const worker &w, uintptr_t address, size_t length)
{
    for (const auto &buf : w.buffers) {
        const auto start = reinterpret_cast<uintptr_t>(buf->data);
        if ((address < start) || (address >= start + std::max<size_t>(buf->length, 1))) {
            continue;
        }
        if (length > buf->length - (address - start)) {
            sim_fail("%zu bytes beyond the end of a buffer of worker %u",
                     length - (buf->length - (address - start)), w.number);
        }
        return buf.get();
    }
    return nullptr;
}

} // namespace

} // namespace sim

/* ---- asked by the transports and the system ---- */

void sim_world_lacks_memory(void)
{
    sim::the_world->current->lacked_memory = true;
}

int sim_world_may_copy(unsigned number, uint64_t address, size_t length, int is_write)
{
    const int answer = sim::rma_may_copy(*sim::the_world->workers[number], address, length,
                                         is_write != 0);

    return (answer >= 0) ? answer : sim_world_may_go_on(number, address, length, is_write);
}

int sim_world_may_go_on(unsigned number, uint64_t address, size_t length, int is_write)
{
    const sim::buffer *buf = sim::buffer_at(*sim::the_world->workers[number], address, length);

    if (buf == nullptr) {
        return 1; /* the library's own: an active message that its handler wants whole */
    }
    if (!buf->in_use && !buf->rightly_gone) {
        sim_fail("a peer %s a buffer of worker %u after its operation has ended",
                 is_write ? "writes" : "reads", number);
    }
    return buf->in_use;
}

int sim_world_is_given_back(unsigned number, const void *address, size_t length)
{
    const sim::buffer *buf = sim::buffer_at(*sim::the_world->workers[number],
                                            reinterpret_cast<uintptr_t>(address), length);
    return (buf != nullptr) && !buf->in_use && !buf->is_region;
}

int sim_world_may_touch(unsigned number, const void *address, size_t length)
{
    const sim::worker &w   = *sim::the_world->workers[number];
    const sim::buffer *buf = sim::buffer_at(w, reinterpret_cast<uintptr_t>(address), length);

    if ((buf == nullptr) || buf->in_use) {
        return 1;
    }
    if ((w.state == sim::life::ALIVE) && !(buf->rightly_gone && w.lacked_memory)) {
        sim_fail("a buffer of worker %u is touched after its operation has ended", number);
    }
    return 0;
}
