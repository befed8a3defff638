/* Halyard: simulator: workers, endpoints, operations in flight and what is known of them.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_SIM_WORLD_H
#define TEST_SIM_WORLD_H

#include "sim.h"

#include <ucp/api/ucp.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sim {

struct worker;
struct op;
struct region;
struct slot;
struct word;

/* Memory of the user's: a peer may touch it while it is in use. */
struct buffer {
    uint8_t *data  = nullptr;
    uint8_t *place = nullptr; /* what the library is told: `data`, or an address on a device */
    size_t length = 0;
    bool in_use   = false;
    bool is_on_device = false; /* and was not freed */
    bool is_heap      = false;
    bool is_region    = false; /* no operation's */
    bool rightly_gone = false; /* its operation ended by an error: a late copy is refused */
};

/* Guards stand around it; it lives until the end of the run. */
buffer *buffer_new(worker &owner, size_t length);
/* The same, now and then on a device. */
buffer *buffer_anywhere(worker &owner, size_t length);
/* Its operation has ended: what is on a device may be freed. */
void buffer_end(buffer &buf);
bool buffer_is_intact(const buffer &buf);

/* Bytes that depend on a number; those from `offset` on. */
void fill(uint8_t *data, size_t length, uint64_t number, uint64_t offset = 0);
bool is_filled(const uint8_t *data, size_t length, uint64_t number, uint64_t offset = 0);

/* Two endpoints, one made by a socket address, the other of the request that came of it. */
struct conn_link {
    unsigned client  = 0;
    bool is_accepted = false;
    bool is_ended    = false; /* one of them was closed */
};

struct endpoint {
    worker *owner;
    unsigned peer; /* number of the worker it leads to */
    unsigned index;
    ucp_ep_h handle;
    ucp_err_handling_mode_t err_mode;
    unsigned handler_calls = 0;
    bool is_closing        = false;
    bool is_forced         = false;
    uint64_t last_sn       = 0; /* of its operations */
    unsigned ordinal       = 0; /* of those that pair; after a failure it may begin anew */
    uint64_t made_at       = 0; /* operations there were */
    size_t sent            = 0; /* bytes that its stream was given */
    size_t read            = 0; /* bytes that were read from it */
    bool is_cut            = false; /* some were read that nobody has seen: no checks any more */
    bool was_paired        = false; /* one was made for that at the end */
    std::shared_ptr<conn_link> link_to;
    bool is_answer         = false; /* the library's, to answer on: the user has not made it */
    size_t am_next         = 0;     /* the peer's handlers have seen the messages before this one */
    std::deque<op *> reads;           /* posted on its stream, in order */
    std::vector<endpoint *> sources;  /* the peer's, whose bytes may be those that were read */
    std::vector<void *> lent;         /* pieces of its stream */
    std::vector<std::pair<region *, ucp_rkey_h>> keys;
};

/* A tagged message: its number is part of its tag. */
struct message {
    unsigned from, to;
    endpoint *ep;
    uint64_t tag;
    size_t length;
    bool was_refused = false; /* by the posting call: must never arrive */
    op *send         = nullptr;
    bool is_matched  = false;
    uint64_t matched_sn = 0; /* of the receive's posting */
};

enum class kind {
    SEND,
    RECEIVE,
    FLUSH,
    CLOSE,
    AM_RECEIVE,
    STREAM_SEND,
    STREAM_RECEIVE,
    PUT,
    GET,
    ATOMIC
};

/* What flushes wait for. */
inline bool is_tracked(kind what)
{
    return (what == kind::SEND) || (what >= kind::STREAM_SEND && what != kind::STREAM_RECEIVE);
}

/* What may rightly wait for ever. */
inline bool is_receive(kind what)
{
    return (what == kind::RECEIVE) || (what == kind::STREAM_RECEIVE);
}

/* How the data lies. */
enum class layout { CONTIG, IOV, GENERIC };

struct generic_state {
    op *owner;
    bool is_pack;
    size_t length;
    unsigned num_finished;
};

struct op {
    uint64_t sn; /* posting order, of all operations of the run */
    kind what;
    worker *owner;
    endpoint *ep = nullptr;
    buffer *buf  = nullptr;
    size_t length = 0;
    layout how   = layout::CONTIG;
    std::vector<ucp_dt_iov_t> iov;
    generic_state generic = {};
    ucp_datatype_t datatype = 0;
    bool has_generic        = false;
    uint64_t tag = 0, mask = 0;
    size_t message         = 0;    /* number of the one sent, or taken by a probe */
    size_t offset          = 0;    /* of a stream's bytes, or in a region */
    size_t received        = 0;    /* of a stream's bytes */
    size_t unit            = 1;    /* bytes of an element */
    bool is_whole          = false; /* a stream's receive that waits for all of its bytes */
    bool was_refused       = false; /* by the posting call */
    bool needs_request     = false; /* the call may not end at once */
    bool is_probed         = false;
    bool is_sync           = false;
    bool is_eager          = false; /* an active message that its handler must get whole */
    bool is_blocking       = false; /* its call ends with it; no request is known */
    ucp_mem_h memh         = nullptr; /* of its buffer */
    /* puts, gets, atomics */
    region *target       = nullptr;
    slot *where          = nullptr; /* one of these */
    word *counter        = nullptr;
    bool is_settled      = false; /* a flush said so, or nobody will ever know */
    bool has_result      = false;
    ucp_atomic_op_t code = UCP_ATOMIC_OP_ADD;
    uint64_t operand = 0, swap = 0;
    uint8_t result[8]    = {};
    std::vector<uint8_t> expected; /* what it must bring */
    std::vector<uint8_t> before;   /* what the shadow held */
    void *request          = nullptr;
    std::vector<uint8_t> memory;   /* of an external request */
    ucp_tag_recv_info_t info = {}; /* given by the call, the callback or the request */
    ucp_tag_recv_info_t at_once = {}; /* where RECV_INFO points to, until the call has returned */
    bool has_callback = false;
    bool is_posting   = false;
    bool is_legacy    = false; /* its callback knows the request alone */
    bool is_detached  = false; /* freed in flight: nobody hears of its end */
    bool is_released  = false; /* given back before its end: the callback still comes */
    bool is_cancelled = false; /* it was tried */
    bool is_unmatched = false; /* and had an effect */
    bool is_abandoned = false; /* its worker was destroyed */
    bool is_done      = false;
    uint64_t done_at  = 0; /* operations there were, when its end was noticed */
    uint64_t cancelled_at = 0;
    ucs_status_t status = UCS_INPROGRESS;
};

enum class life { ALIVE, DEAD, LEFT };

struct worker {
    unsigned number;
    life state = life::ALIVE;
    ucp_context_h context = nullptr;
    ucp_worker_h handle   = nullptr;
    size_t request_size   = 0;
    std::vector<uint8_t> address;
    std::vector<std::unique_ptr<endpoint>> eps; /* all there ever were */
    std::vector<std::unique_ptr<endpoint>> answers; /* given with active messages */
    std::deque<std::unique_ptr<buffer>> buffers;
    std::vector<std::unique_ptr<region>> regions;
    std::vector<op *> polled;   /* requests without a callback */
    std::vector<std::pair<ucp_tag_message_h, size_t>> held; /* messages to be received */
    std::vector<std::pair<void *, size_t>> kept;            /* data of active messages */
    ucp_listener_h listener = nullptr;
    uint16_t port           = 0; /* 0: it does not listen */
    std::deque<ucp_conn_request_h> requests;
    uint64_t starved_until = 0;
    uint64_t left_at       = 0; /* operations there were */
    bool lacked_memory     = false;
    bool is_leaving        = false; /* posts nothing more */
    bool is_progressing    = false;
    bool is_asleep         = false; /* until its descriptor is readable, or its user comes */
    int event_fd           = -1;

    worker();
    ~worker();
};

/* One run. */
struct world {
    std::vector<std::unique_ptr<worker>> workers;
    std::deque<std::unique_ptr<op>> ops;
    std::deque<message> messages;
    std::map<uint16_t, std::shared_ptr<conn_link>> links; /* by the client's port */
    std::vector<op *> receives; /* those that ended with a message, in that order */
    worker *current = nullptr;  /* at work; its allocations may fail */
    const op *blocked = nullptr; /* its call has not returned, and makes progress */
    bool is_in_turn   = false;   /* another worker has its turn meanwhile */
    unsigned num_idle = 0;       /* of such turns, those in vain at last */
    unsigned depth = 0;         /* of callbacks that post */
    size_t bytes   = 0;         /* posted so far */
};

extern world *the_world;

/* ---- life (world.cc) ---- */

/* A context with one worker, or NULL where memory was made to fail. */
worker *worker_make();
/* The user's destroy, with whatever is in flight. */
void worker_leave(worker &w);
void worker_kill(worker &w);
/* What the dead left behind, at the end of a run. */
void worker_bury(worker &w);
worker *worker_random();
endpoint *endpoint_make(worker &w, unsigned peer);
endpoint *endpoint_random(worker &w);
/* Adds the error handling that was drawn for it. */
void endpoint_set_errors(endpoint &e, ucp_ep_params_t *params);
/* Whom a new endpoint leads to. */
unsigned peer_random(const worker &w);
/* Progress of one worker, unless it sleeps, which it may begin to; and the look at its polled
 * requests. */
unsigned worker_progress(worker &w);
void worker_poll(worker &w);
unsigned num_alive();
/* Has all but the receives that it posted ended? */
bool is_idle(const worker &w);
void world_free_buffers();

/* May an operation between these two fail, or a message be lost? */
bool is_wounded(unsigned from, unsigned to);
/* May anything of this worker fail? */
bool is_wounded(const worker &w);
/* May what goes over this endpoint fail? */
bool may_break(const endpoint &e);

/* ---- operations (ops.cc) ---- */

op &op_new(worker &w, kind what);
/* After the posting call, with what it returned. */
void op_posted(op &o, ucs_status_ptr_t ptr);
/* Callbacks; user_data: the operation. */
void on_end(void *request, ucs_status_t status, void *user_data);
void on_receive(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                void *user_data);
/* Parameters by chance, with the callback. */
void param_choose(op &o, ucp_request_param_t *param);
/* The buffer and count to pass, and the datatype, where it is not plain bytes. */
void layout_choose(op &o, ucp_request_param_t *param, void **buffer_p, size_t *count_p);
size_t length_random();
/* Around every posting call. */
struct posting {
    explicit posting(op &o_);
    ~posting();
    op &o;
};
/* Posts something at random on this worker. */
void op_random(worker &w);
/* Takes all that has arrived and nobody has asked for. */
unsigned take_unexpected(worker &w);
/* Ends the receives that are still posted. */
void cancel_receives(worker &w);
void close_endpoint(endpoint &e, bool force);
/* What the user does before it closes one, and what follows for others. */
void close_begins(endpoint &e);
/* Of an endpoint, or (NULL) of the worker. */
void post_flush_of(worker &w, endpoint *e);

/* ---- posting, by a form that is drawn (legacy.cc) ---- */

ucs_status_ptr_t tag_send(op &o, const void *data, size_t count, uint64_t tag,
                          const ucp_request_param_t *param);
/* message: of a probe, or NULL. */
ucs_status_ptr_t tag_receive(op &o, void *data, size_t count, ucp_tag_message_h message,
                             const ucp_request_param_t *param);
ucs_status_ptr_t stream_send(op &o, const void *data, size_t count,
                             const ucp_request_param_t *param);
ucs_status_ptr_t flush(op &o, const ucp_request_param_t *param);
ucs_status_ptr_t put_or_get(op &o, void *data, size_t count, uint64_t address, ucp_rkey_h key,
                            const ucp_request_param_t *param);

/* ---- clients and servers (clients.cc) ---- */

void post_listener(worker &w);
void post_client(worker &w);
void post_decide(worker &w);
/* All that clients have asked of the worker; how many. */
unsigned decide_all(worker &w);

/* ---- blocking calls (blocking.cc) ---- */

/* A flush or close; puts, gets and atomics of this kind are in rma.cc. */
void post_blocking(worker &w);
/* May one be called now? From a callback it does not wait. */
bool can_block(const worker &w, const endpoint *e);
void call_blocking(op &o, const std::function<ucs_status_t()> &call);

/* ---- active messages (am.cc) ---- */

void am_listen(worker &w);
ucs_status_ptr_t am_send(op &o, const void *data, size_t count, ucp_request_param_t *param);
/* Sends one on an endpoint of the user's. */
void post_am_on(endpoint &e);
/* Sends or flushes on an endpoint that came with a message. */
void post_answer(worker &w);
/* The user's endpoint is one that came with messages: what was known of that is the user's. */
void am_adopt(worker &w, endpoint &e);
/* Receives or gives back what handlers kept; how many. */
unsigned am_take_kept(worker &w);

/* ---- streams (stream.cc) ---- */

void post_stream_send(worker &w);
void post_stream_receive(worker &w);
void post_stream_poll(worker &w);
/* Reads all that lies on endpoints that the worker names; how many pieces. */
unsigned stream_drain(worker &w);
/* Gives back the pieces of an endpoint, which is about to be closed. */
void stream_release(endpoint &e);
void stream_send_end(const op &o);
void stream_receive_end(op &o);
/* Makes the endpoints that those of others pair with, so that all is read; how many. */
unsigned stream_make_pairs();
/* When all has been read: nothing was lost. */
void check_streams();

/* ---- puts, gets, atomics (rma.cc) ---- */

void post_region(worker &w);
void post_unmap(worker &w);
void post_put(worker &w);
void post_get(worker &w);
void post_atomic(worker &w);
void post_out_of_range(worker &w);
void post_fence(worker &w);
void post_drop_keys(worker &w);
/* Destroys the keys of an endpoint, or that of one region. */
void rma_drop_keys(endpoint &e, const region *only);
void rma_end(op &o);
/* May an operation that a flush waited for have failed? */
bool rma_may_have_failed(const op &flush);
/* A flush or close has ended. */
void rma_flushed(const op &flush);
/* A worker is no more: nobody knows what became of its operations. */
void rma_owner_ends(worker &w);
/* An endpoint is closed by force: the same of those whose end has not been noticed. */
void rma_forced(const endpoint &e);
/* When everything has been flushed. */
void check_memory();
/* As sim_world_may_copy; -1: not in a region. */
int rma_may_copy(const worker &w, uint64_t address, size_t length, bool writes);

/* ---- what must hold (check.cc) ---- */

/* Of the end of an operation of this kind, in events. */
const char *kind_name(kind what);
/* An operation has ended: nobody may touch its memory any more. */
void op_end(op &o, ucs_status_t status);
/* A receive or a probe has taken the message that a tag names: its number, or the count of all
 * messages if there is no such one. */
size_t message_taken(const op &o, uint64_t tag, size_t length);
/* Was a flush or a close, which has ended well, posted behind an operation? */
bool is_flushed(const op &o);
/* At the end of a run: order, and nothing lost. */
void check_history();
/* When no worker is left: each generic datatype has been finished once. */
void check_datatypes();

} // namespace sim

#endif
