/* Halyard: simulator: devices: memory that no processor can touch, and copies that take their time.
 *
 * Two transports, as the real ones: what knows the memory of this process (devices), and what
 * copies from and to that of others (deviceipc). An address on a device leads nowhere: the bytes
 * lie in storage that only copies and the user's checks reach. Memory that is freed leaves its
 * address to other memory, with other storage, while those who had mapped it keep the former.
 *
 * A copy moves its bytes when it is posted, when it ends, or half of them each; so whoever touches
 * or frees memory meanwhile is found out.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "sim.h"

#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SIM_UNIT       ((size_t)65536) /* of addresses */
#define SIM_UNITS      65536u
#define SIM_PIECES_MAX 8192
#define SIM_DEVICE_KEY 0xde71ce00u
#define SIM_IPC_PEER   0x5134u

typedef struct {
    uintptr_t         address;
    size_t            length;
    char             *storage;
    sim_device_kind_t kind;
    int               device;
    int               is_freed;
} sim_piece_t;

typedef struct {
    uct_mem_t super;
    unsigned  piece;
} sim_device_mem_t;

typedef struct {
    uct_iface_t super;
    unsigned    number; /* of its worker */
} sim_device_iface_t;

typedef struct {
    uct_ep_t super;
    unsigned peer;
} sim_device_ep_t;

typedef struct sim_transfer {
    struct sim_transfer *next;
    uct_iface_t         *iface;
    uct_completion_t    *comp; /* NULL: nobody waits for it any more */
    unsigned             self, peer;
    char                *local, *remote;
    int                  is_put;
    size_t               length, moved;
    uint64_t             time_ns;
    ucs_status_t         status;
} sim_transfer_t;

static struct {
    char           *space; /* of addresses on devices */
    char           *pinned; /* of the host's memory that devices reach: it can be touched */
    uint16_t        at[2][SIM_UNITS]; /* numbers of pieces, from 1 */
    unsigned        used[2]; /* units */
    sim_piece_t     pieces[SIM_PIECES_MAX];
    unsigned        num_pieces;
    sim_transfer_t *transfers;
    unsigned        num_library;
} sim_devices;

/* ---- memory ---- */

static char *sim_device_reserve(int prot)
{
    void *space = mmap(NULL, SIM_UNIT * SIM_UNITS, prot,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    ucs_assert_always(space != MAP_FAILED);
    return space;
}

static sim_piece_t *sim_piece_find(const void *address)
{
    char *const spaces[] = {sim_devices.space, sim_devices.pinned};
    unsigned i, number;
    uintptr_t offset;

    for (i = 0; i < 2; ++i) {
        offset = (uintptr_t)address - (uintptr_t)spaces[i];
        if ((spaces[i] == NULL) || (offset >= SIM_UNIT * SIM_UNITS)) {
            continue;
        }
        number = sim_devices.at[i][offset / SIM_UNIT];
        if ((number != 0) && ((uintptr_t)address - sim_devices.pieces[number - 1].address <
                              ucs_max(sim_devices.pieces[number - 1].length, (size_t)1))) {
            return &sim_devices.pieces[number - 1];
        }
    }
    return NULL;
}

/* Of one that was freed and is as long, or new ones: the first of its units. */
static unsigned sim_device_place(int space, size_t length, sim_device_kind_t kind)
{
    const unsigned units = (unsigned)(length / SIM_UNIT) + 1;
    const uintptr_t base = (uintptr_t)(space ? sim_devices.pinned : sim_devices.space);
    const sim_piece_t *piece;
    unsigned i, first;

    for (i = 0; (kind != SIM_PINNED) && (i < sim_devices.num_pieces); ++i) {
        piece = &sim_devices.pieces[i];
        first = (unsigned)((piece->address - base) / SIM_UNIT);
        if (piece->is_freed && (piece->kind != SIM_PINNED) &&
            (sim_devices.at[space][first] == 0) && (piece->length / SIM_UNIT + 1 == units) &&
            sim_chance(0.5)) {
            return first;
        }
    }
    first                    = sim_devices.used[space];
    sim_devices.used[space] += units;
    ucs_assert_always(sim_devices.used[space] <= SIM_UNITS);
    return first;
}

static void sim_device_mark(const sim_piece_t *piece, uint16_t number)
{
    const int space      = (piece->kind == SIM_PINNED);
    const uintptr_t base = (uintptr_t)(space ? sim_devices.pinned : sim_devices.space);
    unsigned first       = (unsigned)((piece->address - base) / SIM_UNIT);
    unsigned i;

    for (i = 0; i <= piece->length / SIM_UNIT; ++i) {
        sim_devices.at[space][first + i] = number;
    }
}

void *sim_device_alloc(sim_device_kind_t kind, int device, size_t length, void **storage_p)
{
    const int space = (kind == SIM_PINNED);
    sim_piece_t *piece;
    unsigned first;

    if (sim_devices.space == NULL) {
        sim_devices.space  = sim_device_reserve(PROT_NONE);
        sim_devices.pinned = sim_device_reserve(PROT_READ | PROT_WRITE);
    }
    ucs_assert_always(sim_devices.num_pieces < SIM_PIECES_MAX);
    first          = sim_device_place(space, length, kind);
    piece          = &sim_devices.pieces[sim_devices.num_pieces++];
    *piece         = (sim_piece_t){.length = length, .kind = kind, .device = device};
    piece->address = (uintptr_t)(space ? sim_devices.pinned : sim_devices.space) +
                     (first * SIM_UNIT);
    piece->storage = space ? (char *)piece->address : calloc(1, ucs_max(length, (size_t)1));
    ucs_assert_always(piece->storage != NULL);
    sim_device_mark(piece, (uint16_t)sim_devices.num_pieces);
    *storage_p = piece->storage;
    return (void *)piece->address;
}

void sim_device_free(void *address)
{
    sim_piece_t *piece = sim_piece_find(address);

    ucs_assert_always((piece != NULL) && !piece->is_freed);
    piece->is_freed = 1;
    sim_device_mark(piece, 0);
}

char *sim_device_storage(const void *address)
{
    const sim_piece_t *piece = sim_piece_find(address);

    if ((piece == NULL) && (sim_devices.space != NULL) &&
        ((uintptr_t)address - (uintptr_t)sim_devices.space < SIM_UNIT * SIM_UNITS)) {
        sim_fail("a copy from or to memory of a device that is not there");
    }
    return (piece == NULL) ? (char *)(uintptr_t)address :
           piece->storage + ((uintptr_t)address - piece->address);
}

static ucs_status_t sim_device_query(uct_md_t *md UCS_UNUSED, const void *address,
                                     size_t length UCS_UNUSED, uct_mem_info_t *info_p)
{
    const sim_piece_t *piece = sim_piece_find(address);

    memset(info_p, 0, sizeof(*info_p));
    info_p->type = UCS_MEMORY_TYPE_HOST;
    if (piece == NULL) {
        return UCS_OK;
    }
    if (piece->kind == SIM_PINNED) {
        info_p->is_pinned = 1;
        return UCS_OK;
    }
    info_p->type   = (piece->kind == SIM_MANAGED) ? UCS_MEMORY_TYPE_CUDA_MANAGED :
                                                    UCS_MEMORY_TYPE_CUDA;
    info_p->base   = (void *)piece->address;
    info_p->length = piece->length;
    info_p->id     = (uint64_t)(piece - sim_devices.pieces) + 1;
    info_p->device = piece->device;
    return UCS_OK;
}

static ucs_status_t sim_device_mem_new(uct_md_t *md, void *address, size_t length,
                                       uct_mem_t **mem_p)
{
    sim_device_mem_t *mem = ucs_sys_calloc(1, sizeof(*mem));

    if (mem == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    mem->super.md      = md;
    mem->super.address = address;
    mem->super.length  = length;
    mem->piece         = (unsigned)(sim_piece_find(address) - sim_devices.pieces);
    *mem_p             = &mem->super;
    return UCS_OK;
}

static ucs_status_t sim_device_mem_alloc(uct_md_t *md, void *like, size_t length, unsigned flags,
                                         uct_mem_t **mem_p)
{
    const sim_piece_t *piece     = (like == NULL) ? NULL : sim_piece_find(like);
    const sim_device_kind_t kind = (flags == UCT_MEM_ALLOC_PINNED)  ? SIM_PINNED :
                                   (flags == UCT_MEM_ALLOC_MANAGED) ? SIM_MANAGED : SIM_SHOWN;
    ucs_status_t status;
    void *storage, *address;

    if ((flags != UCT_MEM_ALLOC_DEVICE) && (flags != UCT_MEM_ALLOC_MANAGED) &&
        (flags != UCT_MEM_ALLOC_PINNED)) {
        return UCS_ERR_UNSUPPORTED;
    }
    if ((flags == UCT_MEM_ALLOC_DEVICE) && (piece != NULL)) { /* chunks to stage by */
        length = ucs_min(length, sim_plan.device_room);
    }
    address = sim_device_alloc(kind, (piece != NULL) ? piece->device : 0, length, &storage);
    status  = sim_device_mem_new(md, address, length, mem_p);
    if (status != UCS_OK) {
        sim_device_free(address);
        return status;
    }
    ++sim_devices.num_library;
    return UCS_OK;
}

static void sim_device_mem_free(uct_mem_t *uct_mem)
{
    sim_device_mem_t *mem = ucs_container_of(uct_mem, sim_device_mem_t, super);

    if (!uct_mem->is_lost) {
        sim_device_free(uct_mem->address);
    }
    --sim_devices.num_library;
    ucs_sys_free(mem);
}

static ucs_status_t sim_device_reg(uct_md_t *md, void *address, size_t length,
                                   const uct_mem_info_t *info UCS_UNUSED, uct_mem_t **mem_p)
{
    const sim_piece_t *piece = sim_piece_find(address);

    if ((piece == NULL) || (piece->kind != SIM_SHOWN)) {
        return UCS_ERR_UNSUPPORTED;
    }
    if ((uintptr_t)address + length > piece->address + piece->length) {
        sim_fail("memory of a device is registered beyond its end");
    }
    if (sim_faults_on && sim_chance(sim_plan.fail_reg)) {
        sim_event("registration fails", length, 0, 0);
        return UCS_ERR_IO_ERROR;
    }
    return sim_device_mem_new(md, address, length, mem_p);
}

static void sim_device_dereg(uct_mem_t *mem)
{
    ucs_sys_free(ucs_container_of(mem, sim_device_mem_t, super));
}

static size_t sim_device_pack(uct_mem_t *mem, void *buffer)
{
    return sim_number_pack(buffer, ucs_container_of(mem, sim_device_mem_t, super)->piece,
                           SIM_DEVICE_KEY);
}

static ucs_status_t sim_device_unpack(uct_md_t *md, const void *buffer, size_t length,
                                      uct_rkey_t **rkey_p)
{
    return sim_rkey_unpack(md, buffer, length, SIM_DEVICE_KEY, sim_devices.num_pieces, rkey_p);
}

static int sim_device_is_on(uct_rkey_t *rkey, int device)
{
    return sim_devices.pieces[ucs_container_of(rkey, sim_rkey_t, super)->index].device == device;
}

/* ---- copies ---- */

/* The bytes up to `end`. What the other side has given back to its user may be anything by now,
 * unless it died: then nobody has used it for something else. */
static void sim_transfer_move(sim_transfer_t *transfer, size_t end)
{
    char *local         = transfer->local + transfer->moved;
    char *remote        = transfer->remote + transfer->moved;
    const size_t length = end - transfer->moved;
    const int is_inside = (transfer->self == transfer->peer);

    if (length == 0) {
        return;
    }
    transfer->moved = end;
    if (transfer->comp == NULL) { /* it has been given up, and done in another way */
        if (sim_world_is_given_back(transfer->self, local, length)) {
            return;
        }
    } else if (!sim_world_may_touch(transfer->self, local, length) ||
               (is_inside && !sim_world_may_touch(transfer->self, remote, length))) {
        return;
    }
    if (is_inside || sim_world_may_go_on(transfer->peer, (uintptr_t)remote, length,
                                         transfer->is_put)) {
        memcpy(transfer->is_put ? remote : local, transfer->is_put ? local : remote, length);
    } else if (!transfer->is_put) {
        if (sim_world_is_given_back(transfer->peer, remote, length) &&
            !sim_net_is_dead(transfer->peer)) {
            memset(local, 0xdd, length);
        } else {
            memcpy(local, remote, length);
        }
    }
}

static uint64_t sim_transfer_ns(size_t length)
{
    return 1 + sim_below(2 * sim_plan.delay_ns + 1) + (uint64_t)((double)length / 50) +
           ((sim_faults_on && sim_chance(sim_plan.tail)) ? sim_below(sim_plan.tail_ns + 1) : 0);
}

static void sim_transfer_start(const sim_transfer_t *from)
{
    sim_transfer_t *transfer = malloc(sizeof(*transfer));
    sim_transfer_t **end     = &sim_devices.transfers;

    ucs_assert_always(transfer != NULL);
    *transfer         = *from;
    transfer->next    = NULL;
    transfer->time_ns = sim_now() + sim_transfer_ns(transfer->length);
    sim_event(transfer->is_put ? "device writes" : "device reads", transfer->self, transfer->peer,
              transfer->length);
    if ((transfer->self != transfer->peer) &&
        !sim_world_may_copy(transfer->peer, (uintptr_t)transfer->remote, transfer->length,
                            transfer->is_put) &&
        transfer->is_put) {
        transfer->moved = transfer->length; /* to nowhere */
    }
    sim_transfer_move(transfer, ucs_max(transfer->moved,
                                        (size_t)sim_below(3) * transfer->length / 2));
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = transfer;
}

/* The one that ends next by now, or whenever (is_forced), of an interface. */
static sim_transfer_t *sim_transfer_take(const uct_iface_t *iface, int is_forced)
{
    sim_transfer_t **link, **best = NULL;
    sim_transfer_t *transfer;

    for (link = &sim_devices.transfers; *link != NULL; link = &(*link)->next) {
        if (((*link)->iface == iface) && (is_forced || ((*link)->time_ns <= sim_now())) &&
            ((best == NULL) || ((*link)->time_ns < (*best)->time_ns))) {
            best = link;
        }
    }
    if (best == NULL) {
        return NULL;
    }
    transfer = *best;
    *best    = transfer->next;
    return transfer;
}

static void sim_transfer_end(sim_transfer_t *transfer)
{
    uct_completion_t *comp    = transfer->comp;
    const ucs_status_t status = transfer->status;

    if (!sim_net_is_dead(transfer->self)) {
        sim_transfer_move(transfer, (status == UCS_OK) ? transfer->length : transfer->moved);
    }
    sim_event("device is done", transfer->self, transfer->peer, (uint64_t)-status);
    free(transfer);
    if (comp != NULL) {
        uct_completion_update(comp, status);
    }
}

/* Of what this process does to its own memory: a failure ends operations. */
static int sim_device_fails(void)
{
    if (!sim_faults_on || !sim_chance(sim_plan.fail_device)) {
        return 0;
    }
    sim_event("device fails", 0, 0, 0);
    sim_world_lacks_memory();
    return 1;
}

static ucs_status_t sim_device_copy(uct_iface_t *iface, void *dest, const void *src, size_t length,
                                    unsigned flags UCS_UNUSED, uct_completion_t *comp)
{
    const unsigned number   = ucs_container_of(iface, sim_device_iface_t, super)->number;
    sim_transfer_t transfer = {.iface  = iface,
                               .comp   = comp,
                               .self   = number,
                               .peer   = number,
                               .local  = sim_device_storage(dest),
                               .remote = sim_device_storage(src),
                               .length = length};
    const int fails         = sim_device_fails();

    if ((sim_piece_find(dest) == NULL) && (sim_piece_find(src) == NULL)) {
        return UCS_ERR_INVALID_ADDR;
    }
    if (comp != NULL) {
        transfer.status = fails ? UCS_ERR_IO_ERROR : UCS_OK;
        if (fails && sim_chance(0.3)) {
            return UCS_ERR_IO_ERROR;
        }
        sim_transfer_start(&transfer);
        return UCS_INPROGRESS;
    }
    if (fails) {
        if (sim_chance(0.5)) {
            return UCS_ERR_IO_ERROR;
        }
        if ((sim_piece_find(dest) != NULL) && (sim_piece_find(src) != NULL)) {
            sim_transfer_start(&transfer); /* it ends some time */
        } /* other memory of the host goes through a buffer, so nobody touches it later */
        return UCS_ERR_TIMED_OUT;
    }
    sim_transfer_move(&transfer, length);
    sim_event("device copy", number, length, 0);
    sim_advance(sim_transfer_ns(length));
    return UCS_OK;
}

static ucs_status_t sim_device_may_start(unsigned self, unsigned peer)
{
    if (!sim_net_is_open(self) || !sim_net_is_open(peer)) {
        return UCS_ERR_UNREACHABLE;
    }
    if (!sim_faults_on) {
        return UCS_OK;
    }
    if (sim_chance(sim_plan.slow_map / 2)) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (sim_chance(sim_plan.refuse_map / 4) || sim_chance(sim_plan.refuse_copy / 16)) {
        sim_event("device refuses", self, peer, 0);
        return sim_chance(0.8) ? UCS_ERR_UNREACHABLE : UCS_ERR_UNSUPPORTED;
    }
    return UCS_OK;
}

static ucs_status_t sim_device_transfer(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                                        uint64_t remote_addr, uct_rkey_t *rkey,
                                        uct_completion_t *comp, int is_put)
{
    const unsigned self      = ucs_container_of(ep->iface, sim_device_iface_t, super)->number;
    const unsigned peer      = ucs_container_of(ep, sim_device_ep_t, super)->peer;
    const sim_piece_t *piece = &sim_devices.pieces[ucs_container_of(rkey, sim_rkey_t,
                                                                    super)->index];
    const uint64_t offset    = remote_addr - piece->address;
    const ucs_status_t may   = sim_device_may_start(self, peer);
    sim_transfer_t transfer  = {.iface  = ep->iface,
                                .comp   = comp,
                                .self   = self,
                                .peer   = peer,
                                .is_put = is_put};

    ucs_assert_always(n == 1);
    if ((iov->mem != NULL) &&
        (sim_piece_find(iov->buffer) !=
         &sim_devices.pieces[ucs_container_of(iov->mem, sim_device_mem_t, super)->piece])) {
        sim_fail("worker %u copies by the registration of other memory", self);
    }
    if ((offset > piece->length) || (iov->length > piece->length - offset)) {
        return UCS_ERR_OUT_OF_RANGE;
    }
    if ((may != UCS_OK) || (iov->length == 0)) {
        return may;
    }
    transfer.length = iov->length;
    transfer.local  = sim_device_storage(iov->buffer);
    transfer.remote = piece->storage + offset;
    transfer.status = (sim_faults_on && sim_chance(sim_plan.fail_copy)) ? UCS_ERR_IO_ERROR : UCS_OK;
    sim_transfer_start(&transfer);
    return UCS_INPROGRESS;
}

static ucs_status_t sim_device_put(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                                   uint64_t remote_addr, uct_rkey_t *rkey, uct_completion_t *comp)
{
    return sim_device_transfer(ep, iov, n, remote_addr, rkey, comp, 1);
}

static ucs_status_t sim_device_get(uct_ep_t *ep, const uct_iov_t *iov, unsigned n,
                                   uint64_t remote_addr, uct_rkey_t *rkey, uct_completion_t *comp)
{
    return sim_device_transfer(ep, iov, n, remote_addr, rkey, comp, 0);
}

uint64_t sim_devices_next_ns(void)
{
    uint64_t next_ns = UINT64_MAX;
    const sim_transfer_t *transfer;

    for (transfer = sim_devices.transfers; transfer != NULL; transfer = transfer->next) {
        if (!sim_net_is_dead(transfer->self)) {
            next_ns = ucs_min(next_ns, transfer->time_ns);
        }
    }
    return next_ns;
}

/* ---- interfaces and endpoints ---- */

static ucs_status_t sim_device_iface_open(uct_iface_t *iface)
{
    ucs_container_of(iface, sim_device_iface_t, super)->number = sim_net_owner();
    return UCS_OK;
}

/* What is under way is waited for. */
static void sim_device_iface_close(uct_iface_t *iface)
{
    sim_transfer_t *transfer;

    while ((transfer = sim_transfer_take(iface, 1)) != NULL) {
        sim_transfer_end(transfer);
    }
}

static unsigned sim_device_progress(uct_iface_t *iface)
{
    sim_transfer_t *transfer;
    unsigned count = 0;

    while ((transfer = sim_transfer_take(iface, 0)) != NULL) {
        sim_transfer_end(transfer);
        ++count;
    }
    return count + uct_iface_progress_base(iface);
}

static ucs_status_t sim_device_arm(uct_iface_t *iface)
{
    const sim_transfer_t *transfer;

    for (transfer = sim_devices.transfers; transfer != NULL; transfer = transfer->next) {
        if (transfer->iface == iface) {
            return UCS_ERR_BUSY;
        }
    }
    return uct_iface_has_work(iface) ? UCS_ERR_BUSY : UCS_OK;
}

static void sim_device_limits(uct_iface_t *iface, uct_op_t op, ucs_memory_type_t memory UCS_UNUSED,
                              uct_limits_t *limits_p)
{
    *limits_p = (uct_limits_t){0};
    if ((iface->tl->ep.live.get_zcopy != NULL) &&
        ((op == UCT_OP_PUT_ZCOPY) || (op == UCT_OP_GET_ZCOPY))) {
        limits_p->max          = SIZE_MAX;
        limits_p->iov_max      = 1;
        limits_p->overhead_ns  = 2800;
        limits_p->latency_ns   = 3400;
        limits_p->bytes_per_ns = 390;
    }
}

static size_t sim_device_get_address(uct_iface_t *iface, void *buffer)
{
    return sim_number_pack(buffer, ucs_container_of(iface, sim_device_iface_t, super)->number,
                           SIM_IPC_PEER);
}

static int sim_device_is_reachable(uct_iface_t *iface, const void *address, size_t length,
                                   int same_node, char reason[UCT_REASON_MAX])
{
    uint32_t number = UINT32_MAX;

    memcpy(&number, address, ucs_min(length, sizeof(number)));
    if (same_node && (number != ucs_container_of(iface, sim_device_iface_t, super)->number)) {
        return 1;
    }
    snprintf(reason, UCT_REASON_MAX, "this very process");
    return 0;
}

static ucs_status_t sim_device_ep_init(uct_ep_t *ep, const void *address, size_t length)
{
    return sim_number_unpack(address, length, SIM_IPC_PEER, UINT32_MAX,
                             &ucs_container_of(ep, sim_device_ep_t, super)->peer);
}

static void sim_device_tl_base(uct_tl_t *tl, const char *name)
{
    sim_tl_init(tl, name, UCT_TL_KIND_DEVICE, sizeof(sim_device_iface_t), sizeof(sim_device_ep_t));
    tl->iface.open      = sim_device_iface_open;
    tl->iface.close     = sim_device_iface_close;
    tl->iface.limits    = sim_device_limits;
    tl->iface.progress  = sim_device_progress;
    tl->iface.event_arm = sim_device_arm;
}

void sim_devices_prepare(uct_tl_t *own, uct_tl_t *ipc)
{
    sim_device_tl_base(own, "devices");
    own->md.alloc     = sim_device_mem_alloc;
    own->md.release   = sim_device_mem_free;
    own->md.mem_query = sim_device_query;
    own->iface.copy   = sim_device_copy;

    sim_device_tl_base(ipc, "deviceipc");
    ipc->md.reg             = sim_device_reg;
    ipc->md.release         = sim_device_dereg;
    ipc->md.rkey_pack       = sim_device_pack;
    ipc->md.rkey_unpack     = sim_device_unpack;
    ipc->md.rkey_is_on      = sim_device_is_on;
    ipc->md.rkey_release    = sim_rkey_release;
    ipc->iface.get_address  = sim_device_get_address;
    ipc->iface.is_reachable = sim_device_is_reachable;
    ipc->ep.init            = sim_device_ep_init;
    ipc->ep.live.put_zcopy  = sim_device_put;
    ipc->ep.live.get_zcopy  = sim_device_get;
}

void sim_devices_check_end(void)
{
    if (sim_devices.transfers != NULL) {
        sim_fail("a device still copies for a worker that is no more");
    }
    if (sim_devices.num_library != 0) {
        sim_fail("%u pieces of the library's memory on devices are left", sim_devices.num_library);
    }
}

void sim_devices_reset(void)
{
    unsigned i;

    for (i = 0; i < sim_devices.num_pieces; ++i) {
        if (sim_devices.pieces[i].kind != SIM_PINNED) {
            free(sim_devices.pieces[i].storage);
        }
    }
    if (sim_devices.used[1] > 0) {
        madvise(sim_devices.pinned, sim_devices.used[1] * SIM_UNIT, MADV_DONTNEED);
    }
    memset(sim_devices.at, 0, sizeof(sim_devices.at));
    memset(sim_devices.used, 0, sizeof(sim_devices.used));
    sim_devices.num_pieces  = 0;
    sim_devices.num_library = 0;
    while (sim_devices.transfers != NULL) {
        sim_transfer_t *transfer = sim_devices.transfers;
        sim_devices.transfers    = transfer->next;
        free(transfer);
    }
}
