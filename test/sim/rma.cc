/* Halyard: simulator: puts, gets and atomics, and the shadow of the memory that they reach.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "rma.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace sim {

namespace {

constexpr size_t WORDS       = 6;
constexpr size_t WORD_STRIDE = 8;
constexpr size_t REGIONS_MAX = 3; /* of a worker */
constexpr uint64_t NUMBER    = 1ull << 41;

uint64_t load(const void *memory, unsigned size)
{
    uint64_t value = 0;
    memcpy(&value, memory, size);
    return value;
}

uint64_t word_mask(unsigned size)
{
    return (size == 8) ? ~0ull : 0xffffffffull;
}

bool may_fail(const op &o)
{
    return may_break(*o.ep) || !o.target->is_open;
}

/* Not one whose server has not answered yet: it is not known where it leads to, so fences do not
 * order what waits there with what goes to the same worker over another. */
endpoint *endpoint_connected(worker &w)
{
    endpoint *e = endpoint_random(w);
    ucp_transport_entry_t entry;
    ucp_ep_attr_t attr;

    if ((e == nullptr) || (e->link_to == nullptr)) {
        return e;
    }
    attr.field_mask             = UCP_EP_ATTR_FIELD_TRANSPORTS;
    attr.transports.entries     = &entry;
    attr.transports.num_entries = 1;
    attr.transports.entry_size  = sizeof(entry);
    return ((ucp_ep_query(e->handle, &attr) == UCS_OK) && (attr.transports.num_entries > 0)) ?
               e : nullptr;
}

/* ---- regions ---- */

/* Bytes of a region: most are small. */
size_t region_length()
{
    switch (sim_below(16)) {
    case 0:
        return 600000 + sim_below(200000);
    case 1:
    case 2:
    case 3:
        return 5000 + sim_below(60000);
    default:
        return 64 + sim_below(3000);
    }
}

void region_divide(region &r)
{
    const size_t count = sim_between(1, 4);
    size_t offset      = WORDS * WORD_STRIDE;

    for (size_t i = 0; i < WORDS; ++i) {
        word w    = {};
        w.use     = static_cast<word_use>(sim_below(WORD_USES));
        w.size    = sim_chance(0.5) ? 8 : 4;
        w.initial = load(r.data + (i * WORD_STRIDE), w.size);
        w.guess   = w.initial;
        r.words.push_back(w);
    }
    for (size_t i = 0; i < count; ++i) {
        slot s;
        s.offset = offset;
        s.length = (i + 1 == count) ? r.length - offset : sim_below(r.length - offset + 1);
        offset  += s.length;
        r.slots.push_back(s);
    }
}

void region_pack(region &r)
{
    const ucp_memh_pack_params_t params = {};
    void *buffer;
    size_t length;

    const ucs_status_t status = sim_chance(0.5) ?
                                ucp_rkey_pack(r.owner->context, r.handle, &buffer, &length) :
                                ucp_memh_pack(r.handle, &params, &buffer, &length);
    if (status != UCS_OK) {
        if (!r.owner->lacked_memory) {
            sim_fail("worker %u cannot pack a key: %s", r.owner->number,
                     ucs_status_string(status));
        }
        return;
    }
    const auto *start = static_cast<const uint8_t *>(buffer);
    r.key.assign(start, start + length);
    ucp_rkey_buffer_release(buffer);
}

bool is_quiet(const region &r)
{
    return std::all_of(r.slots.begin(), r.slots.end(), [](const slot &s) {
               return s.ops.empty();
           }) &&
           std::all_of(r.words.begin(), r.words.end(), [](const word &w) {
               return std::all_of(w.ops.begin(), w.ops.end(), [](const op *o) {
                   return o->is_settled;
               });
           });
}

/* The key of a region for an endpoint to its owner, unpacked on first use. */
ucp_rkey_h key_of(endpoint &e, region &r)
{
    const auto pos = std::find_if(e.keys.begin(), e.keys.end(), [&](const auto &key) {
        return key.first == &r;
    });
    if (pos != e.keys.end()) {
        return pos->second;
    }
    /* at any alignment, and amid other bytes */
    std::vector<uint8_t> bytes(sim_below(8), 0xee);
    const size_t offset = bytes.size();
    bytes.insert(bytes.end(), r.key.begin(), r.key.end());
    bytes.insert(bytes.end(), 5, 0xee);

    ucp_rkey_h key;
    const ucs_status_t status = ucp_ep_rkey_unpack(e.handle, bytes.data() + offset, &key);
    sim_event("key", e.owner->number, e.peer, (uint64_t)-status);
    if (status != UCS_OK) {
        if (!e.owner->lacked_memory) {
            sim_fail("worker %u cannot unpack a key of %u: %s", e.owner->number, e.peer,
                     ucs_status_string(status));
        }
        return nullptr;
    }
    e.keys.push_back({&r, key});
    return key;
}

/* ---- the shadow ---- */

bool is_write(const op &o)
{
    return o.what != kind::GET;
}

bool overlaps(const op &o, size_t offset, size_t length)
{
    return (o.offset < offset + length) && (offset < o.offset + o.length);
}

/* May this worker use a slot now? */
bool is_free(const slot &s, const worker &w, bool writes)
{
    return !s.is_lost && std::all_of(s.ops.begin(), s.ops.end(), [&](const op *o) {
        return (o->owner == &w) || (!writes && !is_write(*o));
    });
}

void verify(const region &r, const slot &s)
{
    if (s.is_lost || r.is_gone || !s.ops.empty()) {
        return;
    }
    if ((r.buf != nullptr) && !buffer_is_intact(*r.buf)) {
        sim_fail("a peer writes outside of the memory of worker %u", r.owner->number);
    }
    if (memcmp(r.data + s.offset, r.shadow.data() + s.offset, s.length) != 0) {
        size_t i = s.offset;
        while (r.data[i] == r.shadow[i]) {
            ++i;
        }
        sim_fail("memory of worker %u (%zu bytes) is wrong at %zu after a flush",
                 r.owner->number, r.length, i);
    }
}

/* An operation is over for everybody: done, or nobody knows. */
void settle_op(op &o, bool is_known)
{
    if (o.is_settled) {
        return;
    }
    o.is_settled = true;
    if (o.counter != nullptr) {
        o.counter->is_lost = o.counter->is_lost || !is_known;
    } else if (o.where != nullptr) {
        o.where->is_lost = o.where->is_lost || (!is_known && is_write(o));
        o.where->ops.erase(std::find(o.where->ops.begin(), o.where->ops.end(), &o));
    }
}

/* What a get or an atomic has brought. */
void check_result(const op &o)
{
    const uint8_t *bytes = (o.what == kind::GET) ? o.buf->data : o.result;

    if (o.expected.empty() || o.where->is_lost ||
        (memcmp(bytes, o.expected.data(), o.expected.size()) == 0)) {
        return;
    }
    /* one before it may have failed, and nobody has looked yet */
    if (std::any_of(o.where->ops.begin(), o.where->ops.end(), [&](const op *p) {
            return is_write(*p) && (p->sn < o.sn) && may_fail(*p) &&
                   (p->is_detached || (!p->is_done && (p->request != nullptr) &&
                                       (ucp_request_check_status(p->request) < 0)));
        })) {
        o.where->is_lost = true;
        return;
    }
    sim_fail("%s %llu of %zu bytes at %zu of worker %u brings wrong bytes",
             (o.what == kind::GET) ? "get" : "atomic", (unsigned long long)o.sn, o.length,
             o.offset, o.ep->peer);
}

/* ---- posting ---- */

/* A region of the peer's that can be asked for something. */
region *region_random(const endpoint &e, bool writes)
{
    const worker &peer = *the_world->workers[e.peer];
    const size_t start = sim_random();

    for (size_t i = 0; i < peer.regions.size(); ++i) {
        region &r = *peer.regions[(start + i) % peer.regions.size()];
        /* one that was unmapped may be asked for by others, in vain */
        if (!r.key.empty() && (r.is_open || (!writes && (peer.number != e.owner->number)))) {
            return &r;
        }
    }
    return nullptr;
}

/* A slot that the worker may use, or NULL. */
slot *slot_random(region &r, const worker &w, bool writes)
{
    const size_t start = sim_below(r.slots.size());

    for (size_t i = 0; i < r.slots.size(); ++i) {
        slot &s = r.slots[(start + i) % r.slots.size()];
        if (is_free(s, w, writes)) {
            return &s;
        }
    }
    return nullptr;
}

/* An operation on part of a slot, or NULL where none is free. */
op *op_on_slot(endpoint &e, kind what, region &r)
{
    slot *found = slot_random(r, *e.owner, what != kind::GET);
    size_t offset, length;

    if (found == nullptr) {
        return nullptr;
    }
    slot &s = *found;
    if (what == kind::ATOMIC) {
        length = sim_chance(0.5) ? 8 : 4;
        offset = (s.offset + 7) & ~(size_t)7;
        if (offset + length > s.offset + s.length) {
            return nullptr;
        }
        offset += sim_below((s.offset + s.length - offset - length) / 8 + 1) * 8;
    } else {
        length = sim_chance(0.6) ? s.length : std::min(length_random(), s.length);
        offset = s.offset + sim_below(s.length - length + 1);
    }
    op &o    = op_new(*e.owner, what);
    o.ep     = &e;
    o.target = &r;
    o.where  = &s;
    o.offset = offset;
    o.length = length;
    /* behind those of ours that it would disturb */
    if (sim_chance(0.1) || std::any_of(s.ops.begin(), s.ops.end(), [&](const op *other) {
            return overlaps(*other, offset, length) && (is_write(*other) || (what != kind::GET));
        })) {
        sim_event("fence", e.owner->number, 0, 0);
        ucp_worker_fence(e.owner->handle);
    }
    s.ops.push_back(&o);
    return &o;
}

/* After the call: what it refused has not happened. */
void rma_posted(op &o, ucs_status_ptr_t ptr)
{
    if (UCS_PTR_IS_ERR(ptr)) {
        if (o.where != nullptr) {
            std::copy(o.before.begin(), o.before.end(),
                      o.target->shadow.begin() + (ptrdiff_t)o.offset);
        } else {
            o.counter->ops.erase(
                std::find(o.counter->ops.begin(), o.counter->ops.end(), &o));
            o.counter = nullptr;
        }
        settle_op(o, !o.owner->lacked_memory); /* a device may still be at it */
    }
    op_posted(o, ptr);
}

/* The forms without a request: only a flush tells of their end. */
void post_without_request(op &o, uint64_t address, ucp_rkey_h key)
{
    ucp_ep_h ep           = o.ep->handle;
    ucs_status_t status   = UCS_OK;
    const auto post_code  = (o.code == UCP_ATOMIC_OP_ADD) ? UCP_ATOMIC_POST_OP_ADD :
                            (o.code == UCP_ATOMIC_OP_AND) ? UCP_ATOMIC_POST_OP_AND :
                            (o.code == UCP_ATOMIC_OP_OR)  ? UCP_ATOMIC_POST_OP_OR :
                                                            UCP_ATOMIC_POST_OP_XOR;
    {
        posting guard(o);
        status = (o.what == kind::PUT) ? ucp_put_nbi(ep, o.buf->place, o.length, address, key) :
                 (o.what == kind::GET) ? ucp_get_nbi(ep, o.buf->place, o.length, address, key) :
                                         ucp_atomic_post(ep, post_code, o.operand, o.length,
                                                         address, key);
    }
    if ((status == UCS_INPROGRESS) || ((status == UCS_OK) && (o.what == kind::ATOMIC))) {
        o.is_detached = true;
        o.is_done     = true;
    } else {
        rma_posted(o, UCS_STATUS_PTR(status));
    }
}

void post_copy(worker &w, kind what)
{
    endpoint *e = endpoint_connected(w);
    region *r   = (e != nullptr) ? region_random(*e, what == kind::PUT) : nullptr;
    ucp_rkey_h key = (r != nullptr) ? key_of(*e, *r) : nullptr;
    op *posted     = (key != nullptr) ? op_on_slot(*e, what, *r) : nullptr;
    ucp_request_param_t param;
    size_t count;
    void *data;

    if (posted == nullptr) {
        return;
    }
    op &o             = *posted;
    uint8_t *shadow   = r->shadow.data() + o.offset;
    const uint64_t address = reinterpret_cast<uintptr_t>(r->place) + o.offset;
    o.buf             = buffer_anywhere(w, o.length);
    the_world->bytes += o.length;
    if (what == kind::PUT) {
        o.before.assign(shadow, shadow + o.length);
        fill(o.buf->data, o.length, NUMBER | o.sn);
        memcpy(shadow, o.buf->data, o.length);
    } else {
        o.expected.assign(shadow, shadow + o.length);
    }
    if (sim_chance(0.1)) {
        sim_event("post nbi", o.sn, o.offset, o.length);
        post_without_request(o, address, key);
        return;
    }
    if (sim_chance(0.1) && can_block(w, e)) {
        call_blocking(o, [&]() {
            return (what == kind::PUT) ?
                       ucp_put(e->handle, o.buf->place, o.length, address, key) :
                       ucp_get(e->handle, o.buf->place, o.length, address, key);
        });
        return;
    }
    param_choose(o, &param);
    layout_choose(o, &param, &data, &count);
    sim_event((what == kind::PUT) ? "post put" : "post get", o.sn, o.offset, o.length);

    ucs_status_ptr_t ptr;
    {
        posting guard(o);
        ptr = put_or_get(o, data, count, address, key, &param);
    }
    rma_posted(o, ptr);
}

uint64_t apply(ucp_atomic_op_t code, uint64_t old, uint64_t operand, uint64_t swap)
{
    switch (code) {
    case UCP_ATOMIC_OP_ADD:
        return old + operand;
    case UCP_ATOMIC_OP_AND:
        return old & operand;
    case UCP_ATOMIC_OP_OR:
        return old | operand;
    case UCP_ATOMIC_OP_XOR:
        return old ^ operand;
    case UCP_ATOMIC_OP_SWAP:
        return operand;
    default:
        return (old == operand) ? swap : old;
    }
}

/* An atomic on a word, of the word's kind. */
op *op_on_word(endpoint &e, region &r)
{
    static const ucp_atomic_op_t codes[WORD_USES] = {UCP_ATOMIC_OP_ADD, UCP_ATOMIC_OP_XOR,
                                                     UCP_ATOMIC_OP_OR,  UCP_ATOMIC_OP_AND,
                                                     UCP_ATOMIC_OP_CSWAP,
                                                     UCP_ATOMIC_OP_SWAP};
    const size_t index = sim_below(r.words.size());
    word &w            = r.words[index];
    const uint64_t bit = 1ull << sim_below(8 * w.size);

    op &o     = op_new(*e.owner, kind::ATOMIC);
    o.ep      = &e;
    o.target  = &r;
    o.counter = &w;
    o.offset  = index * WORD_STRIDE;
    o.length  = w.size;
    o.code    = codes[(size_t)w.use];
    o.operand = (w.use == word_use::COUNT) ? 1 :
                (w.use == word_use::FLIP)  ? sim_random() & word_mask(w.size) :
                (w.use == word_use::SET)   ? bit :
                (w.use == word_use::CLEAR) ? ~bit & word_mask(w.size) :
                (w.use == word_use::TURN)  ? w.guess :
                                             (o.sn + 1) * 0x10001;
    o.swap    = (o.operand + 1) & word_mask(w.size);
    w.ops.push_back(&o);
    return &o;
}

op *atomic_on_slot(endpoint &e, region &r)
{
    op *o = op_on_slot(e, kind::ATOMIC, r);

    if (o != nullptr) {
        uint8_t *shadow    = r.shadow.data() + o->offset;
        const auto size    = (unsigned)o->length;
        const uint64_t old = load(shadow, size);
        o->before.assign(shadow, shadow + size);
        o->expected = o->before;
        o->code     = static_cast<ucp_atomic_op_t>(sim_below(UCP_ATOMIC_OP_LAST));
        o->operand  = sim_chance(0.5) ? old : sim_random() & word_mask(size);
        o->swap     = sim_random() & word_mask(size);
        const uint64_t value = apply(o->code, old, o->operand, o->swap);
        memcpy(shadow, &value, size);
    }
    return o;
}

/* ---- the ends of words ---- */

/* Results of the atomics on a word, and the values of those that brought none. */
void check_word(const region &r, size_t index)
{
    const word &w        = r.words[index];
    const uint64_t mask = word_mask(w.size);
    uint64_t expected   = w.initial;
    std::map<uint64_t, int> seen; /* SWAP: how often put in, less how often taken out */

    if (r.is_gone || w.is_lost || !std::all_of(w.ops.begin(), w.ops.end(), [](const op *o) {
            return o->is_settled;
        })) {
        return;
    }
    const uint64_t value = load(r.data + (index * WORD_STRIDE), w.size);
    if (w.use == word_use::SWAP) {
        seen[w.initial] = 1;
    }
    for (const op *o : w.ops) {
        const uint64_t result = load(o->result, w.size);
        switch (w.use) {
        case word_use::TURN:
            expected += (result == o->operand);
            break;
        case word_use::SWAP:
            ++seen[o->operand & mask];
            --seen[result];
            break;
        default:
            expected = apply(o->code, expected, o->operand, 0);
            if (o->has_result && (w.use == word_use::COUNT) && (--seen[result] < -1)) {
                sim_fail("two atomics on word %zu of worker %u bring %llu", index,
                         r.owner->number, (unsigned long long)result);
            }
            break;
        }
    }
    if (w.use == word_use::SWAP) {
        --seen[value];
        if (std::any_of(seen.begin(), seen.end(), [](const auto &pair) {
                return pair.second != 0;
            })) {
            sim_fail("word %zu of worker %u: a value was swapped out twice or never", index,
                     r.owner->number);
        }
    } else if (value != (expected & mask)) {
        sim_fail("word %zu of worker %u (use %d) is 0x%llx, not 0x%llx, after %zu atomics", index,
                 r.owner->number, (int)w.use, (unsigned long long)value,
                 (unsigned long long)(expected & mask), w.ops.size());
    }
}

/* The forms that wait; 0: there is none of this kind. */
bool post_blocking_atomic(op &o, uint64_t address, ucp_rkey_h key)
{
    ucp_ep_h ep         = o.ep->handle;
    const bool is_long  = (o.length == 8);
    const auto value    = static_cast<uint32_t>(o.operand), swap = static_cast<uint32_t>(o.swap);
    auto *result64      = reinterpret_cast<uint64_t *>(o.result);
    auto *result32      = reinterpret_cast<uint32_t *>(o.result);

    if (((o.code != UCP_ATOMIC_OP_ADD) && (o.code != UCP_ATOMIC_OP_SWAP) &&
         (o.code != UCP_ATOMIC_OP_CSWAP)) || !can_block(*o.owner, o.ep)) {
        return false;
    }
    o.has_result = true;
    call_blocking(o, [&]() {
        switch (o.code) {
        case UCP_ATOMIC_OP_ADD:
            return is_long ? ucp_atomic_fadd64(ep, o.operand, address, key, result64) :
                             ucp_atomic_fadd32(ep, value, address, key, result32);
        case UCP_ATOMIC_OP_SWAP:
            return is_long ? ucp_atomic_swap64(ep, o.operand, address, key, result64) :
                             ucp_atomic_swap32(ep, value, address, key, result32);
        default:
            return is_long ? ucp_atomic_cswap64(ep, o.operand, o.swap, address, key, result64) :
                             ucp_atomic_cswap32(ep, value, swap, address, key, result32);
        }
    });
    return true;
}

} // namespace

void post_region(worker &w)
{
    ucp_mem_map_params_t params;
    ucp_mem_attr_t attr;
    auto r               = std::make_unique<region>();
    const bool allocates = sim_chance(0.5);

    if (w.regions.size() >= REGIONS_MAX) {
        return;
    }
    memset(&params, 0xee, sizeof(params));
    r->owner          = &w;
    r->length         = region_length();
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.length     = r->length;
    params.flags      = (allocates ? UCP_MEM_MAP_ALLOCATE : 0) |
                   (sim_chance(0.3) ? UCP_MEM_MAP_NONBLOCK : 0);
    if (!allocates) {
        r->buf             = buffer_anywhere(w, r->length);
        r->buf->is_region  = true;
        params.field_mask |= UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
        params.address     = r->buf->place;
    } else if (sim_chance(sim_plan.on_device)) {
        params.field_mask |= UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
        params.memory_type = sim_chance(0.5) ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_CUDA_MANAGED;
    }
    const ucs_status_t status = ucp_mem_map(w.context, &params, &r->handle);
    sim_event("region", w.number, r->length, (uint64_t)-status);
    if (status != UCS_OK) {
        if (!w.lacked_memory && (sim_plan.fail_reg == 0)) {
            sim_fail("worker %u cannot map memory: %s", w.number, ucs_status_string(status));
        }
        return;
    }
    attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
    if ((ucp_mem_query(r->handle, &attr) != UCS_OK) || (attr.length < r->length) ||
        (!allocates && (attr.address != r->buf->place))) {
        sim_fail("worker %u mapped %zu bytes and has %zu", w.number, r->length, attr.length);
    }
    r->place   = static_cast<uint8_t *>(attr.address);
    r->data    = reinterpret_cast<uint8_t *>(sim_device_storage(r->place));
    r->is_open = true;
    fill(r->data, r->length, NUMBER + the_world->ops.size());
    r->shadow.assign(r->data, r->data + r->length);
    region_divide(*r);
    region_pack(*r);
    w.regions.push_back(std::move(r));
}

void post_unmap(worker &w)
{
    if (w.regions.empty()) {
        return;
    }
    region &r = *w.regions[sim_below(w.regions.size())];
    if (!r.is_open || !is_quiet(r)) {
        return;
    }
    sim_event("unmap", w.number, r.length, 0);
    for (size_t i = 0; i < r.words.size(); ++i) {
        check_word(r, i);
    }
    for (const auto &e : w.eps) { /* one's own keys are pointers */
        rma_drop_keys(*e, &r);
    }
    if (ucp_mem_unmap(w.context, r.handle) != UCS_OK) {
        sim_fail("worker %u cannot unmap its memory", w.number);
    }
    r.is_open     = false;
    r.is_unmapped = true;
    r.is_gone     = true;
}

void post_put(worker &w)
{
    post_copy(w, kind::PUT);
}

void post_get(worker &w)
{
    post_copy(w, kind::GET);
}

void post_atomic(worker &w)
{
    endpoint *e    = endpoint_connected(w);
    region *r      = (e != nullptr) ? region_random(*e, true) : nullptr;
    ucp_rkey_h key = (r != nullptr) ? key_of(*e, *r) : nullptr;
    op *posted     = (key == nullptr)  ? nullptr :
                     sim_chance(0.7) ? op_on_word(*e, *r) : atomic_on_slot(*e, *r);
    ucp_request_param_t param;

    if (posted == nullptr) {
        return;
    }
    op &o                  = *posted;
    const uint64_t address = reinterpret_cast<uintptr_t>(r->place) + o.offset;
    if ((o.code != UCP_ATOMIC_OP_SWAP) && (o.code != UCP_ATOMIC_OP_CSWAP) && sim_chance(0.1)) {
        o.expected.clear();
        sim_event("post nbi", o.sn, o.offset, o.length);
        post_without_request(o, address, key);
        return;
    }
    if (sim_chance(0.1) && post_blocking_atomic(o, address, key)) {
        return;
    }
    param_choose(o, &param);
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype      = ucp_dt_make_contig(o.length);
    o.has_result        = (o.code == UCP_ATOMIC_OP_SWAP) || (o.code == UCP_ATOMIC_OP_CSWAP) ||
                   sim_chance(0.5);
    if (o.has_result) {
        memcpy(o.result, &o.swap, sizeof(o.swap));
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        param.reply_buffer  = o.result;
    } else {
        o.expected.clear();
    }
    sim_event("post atomic", o.sn, o.offset, o.length);

    uint64_t operand = o.operand; /* the caller's stack */
    ucs_status_ptr_t ptr;
    {
        posting guard(o);
        ptr = ucp_atomic_op_nbx(e->handle, o.code, &operand, 1, address, key, &param);
    }
    operand = ~operand;
    rma_posted(o, ptr);
}

/* Beyond the end of a key. */
void post_out_of_range(worker &w)
{
    endpoint *e    = endpoint_connected(w);
    region *r      = (e != nullptr) ? region_random(*e, true) : nullptr;
    ucp_rkey_h key = (r != nullptr) ? key_of(*e, *r) : nullptr;
    ucp_request_param_t param;
    uint64_t bytes;

    if (key == nullptr) {
        return;
    }
    param.op_attr_mask     = 0;
    const uint64_t address = reinterpret_cast<uintptr_t>(r->place) +
                             (sim_chance(0.5) ? r->length - sim_below(8) : -sim_between(1, 8));
    const ucs_status_ptr_t ptr = sim_chance(0.5) ?
                                 ucp_get_nbx(e->handle, &bytes, 8, address, key, &param) :
                                 ucp_put_nbx(e->handle, &param, 8, address, key, &param);
    if (!UCS_PTR_IS_ERR(ptr)) {
        sim_fail("worker %u reaches beyond the end of a key", w.number);
    }
    if (!w.regions.empty() && w.regions.front()->is_open) { /* a handle of other memory */
        param.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH;
        param.memh         = w.regions.front()->handle;
        if (!UCS_PTR_IS_ERR(ucp_get_nbx(e->handle, &bytes, 8, reinterpret_cast<uintptr_t>(r->place),
                                        key, &param))) {
            sim_fail("worker %u gets with a handle of other memory", w.number);
        }
    }
}

void post_fence(worker &w)
{
    sim_event("fence", w.number, 0, 0);
    if (ucp_worker_fence(w.handle) != UCS_OK) {
        sim_fail("worker %u: a fence fails", w.number);
    }
}

void post_drop_keys(worker &w)
{
    endpoint *e = endpoint_random(w);

    if (e != nullptr) {
        rma_drop_keys(*e, nullptr);
    }
}

void rma_drop_keys(endpoint &e, const region *only)
{
    for (size_t i = 0; i < e.keys.size();) {
        if ((only == nullptr) || (e.keys[i].first == only)) {
            ucp_rkey_destroy(e.keys[i].second);
            e.keys.erase(e.keys.begin() + (ptrdiff_t)i);
        } else {
            ++i;
        }
    }
}

void rma_end(op &o)
{
    if (o.status == UCS_OK) {
        if (o.target->is_open || (o.what == kind::GET)) {
            check_result(o);
        }
        if (o.what == kind::GET) {
            settle_op(o, true);
        }
        if (o.has_result && (o.counter != nullptr)) {
            o.counter->guess = load(o.result, o.counter->size);
        }
        return;
    }
    settle_op(o, false);
    if (!may_fail(o) && !(o.was_refused && (o.status == UCS_ERR_NO_RESOURCE))) {
        sim_fail("%s %llu of worker %u to %u fails for no reason: %s",
                 (o.what == kind::PUT) ? "put" :
                 (o.what == kind::GET) ? "get" : "atomic",
                 (unsigned long long)o.sn, o.owner->number, o.ep->peer,
                 ucs_status_string(o.status));
    }
}

namespace {

/* Is an operation on memory among those that a flush or close waits for? */
bool is_behind(const op &flush, const op &o)
{
    return (o.target != nullptr) && (o.sn < flush.sn) && (o.owner == flush.owner) &&
           ((flush.ep == nullptr) || (o.ep == flush.ep));
}

/* Would a flush that has ended well have told that an operation without a request failed? Another
 * one may have told so before, or may do so when it is looked at. */
bool is_told_by(const op &flush, const op &o)
{
    return (flush.what == kind::FLUSH) && (flush.status == UCS_OK) &&
           std::none_of(the_world->ops.begin() + (ptrdiff_t)o.sn, the_world->ops.end(),
                        [&](const auto &other) {
                            return (other->what == kind::FLUSH) && is_behind(*other, o) &&
                                   (other->is_detached || !other->is_done ||
                                    (other->status != UCS_OK));
                        });
}

} // namespace

bool rma_may_have_failed(const op &flush)
{
    return std::any_of(the_world->ops.begin(), the_world->ops.begin() + (ptrdiff_t)flush.sn,
                       [&](const auto &o) { return is_behind(flush, *o) && may_fail(*o); });
}

void rma_flushed(const op &flush)
{
    for (uint64_t sn = 0; sn < flush.sn; ++sn) {
        op &o = *the_world->ops[sn];
        if (!is_behind(flush, o) || o.is_settled || (o.is_blocking && !o.is_done)) {
            continue;
        }
        const ucs_status_t status = o.is_detached ? UCS_OK :
                                    o.is_done     ? o.status :
                                                    ucp_request_check_status(o.request);
        const bool is_known = (status == UCS_OK) &&
                              !(o.is_detached && may_fail(o) && !is_told_by(flush, o));
        if (is_known && o.is_detached) {
            check_result(o);
        }
        settle_op(o, is_known);
        if (o.where != nullptr) {
            verify(*o.target, *o.where);
        }
    }
}

void rma_forced(const endpoint &e)
{
    for (const auto &o : the_world->ops) {
        if ((o->target != nullptr) && (o->ep == &e) && (o->is_detached || !o->is_done)) {
            settle_op(*o, false);
        }
    }
}

void rma_owner_ends(worker &w)
{
    for (const auto &o : the_world->ops) {
        if ((o->target != nullptr) && (o->owner == &w)) {
            settle_op(*o, false);
        }
    }
    for (const auto &r : w.regions) {
        r->is_gone = true;
        r->is_open = false;
    }
}

void check_memory()
{
    for (const auto &w : the_world->workers) {
        for (const auto &r : w->regions) {
            if (w->state != life::ALIVE) {
                continue;
            }
            for (size_t i = 0; i < r->words.size(); ++i) {
                check_word(*r, i);
            }
            for (const slot &s : r->slots) {
                if (!s.ops.empty()) {
                    sim_fail("%zu operations on memory of worker %u are not over after a flush",
                             s.ops.size(), w->number);
                }
                verify(*r, s);
            }
        }
    }
}

int rma_may_copy(const worker &w, uint64_t address, size_t length, bool writes)
{
    for (const auto &r : w.regions) {
        const auto start = reinterpret_cast<uintptr_t>(r->data);
        if ((address < start) || (address >= start + r->length)) {
            continue;
        }
        const size_t offset = address - start;
        for (const slot &s : r->slots) {
            if (std::any_of(s.ops.begin(), s.ops.end(), [&](const op *o) {
                    return (is_write(*o) == writes) && (offset >= o->offset) &&
                           (offset + length <= o->offset + o->length);
                })) {
                return !r->is_gone; /* or nothing is there any more */
            }
        }
        if (r->is_gone) {
            continue; /* the place may have been used for something else since */
        }
        sim_fail("a peer %s %zu bytes at %zu of memory of worker %u that nobody asked for",
                 writes ? "writes" : "reads", length, offset, w.number);
        return 0;
    }
    return -1;
}

} // namespace sim
