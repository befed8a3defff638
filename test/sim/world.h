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
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sim {

struct worker;
struct op;

/* Memory of the user's: a peer may touch it while it is in use. */
struct buffer {
    uint8_t *data = nullptr;
    size_t length = 0;
    bool in_use   = false;
    bool rightly_gone = false; /* its operation ended by an error: a late copy is refused */
};

/* Guards stand around it; it lives until the end of the run. */
buffer *buffer_new(worker &owner, size_t length);
bool buffer_is_intact(const buffer &buf);

/* Bytes that depend on a number. */
void fill(uint8_t *data, size_t length, uint64_t number);
bool is_filled(const uint8_t *data, size_t length, uint64_t number);

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

enum class kind { SEND, RECEIVE, FLUSH, CLOSE, AM_RECEIVE };

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
    bool is_probed         = false;
    bool is_sync           = false;
    void *request          = nullptr;
    std::vector<uint8_t> memory;   /* of an external request */
    ucp_tag_recv_info_t info = {}; /* given by RECV_INFO, or by the callback */
    bool has_callback = false, has_info = false;
    bool is_posting   = false;
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
    std::deque<std::unique_ptr<buffer>> buffers;
    std::vector<op *> polled;   /* requests without a callback */
    std::vector<std::pair<ucp_tag_message_h, size_t>> held; /* messages to be received */
    std::vector<std::pair<void *, size_t>> kept;            /* data of active messages */
    uint64_t starved_until = 0;
    bool lacked_memory     = false;
    bool is_leaving        = false; /* posts nothing more */
};

/* One run. */
struct world {
    std::vector<std::unique_ptr<worker>> workers;
    std::deque<std::unique_ptr<op>> ops;
    std::deque<message> messages;
    std::vector<op *> receives; /* those that ended with a message, in that order */
    worker *current = nullptr;  /* at work; its allocations may fail */
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
/* Whom a new endpoint leads to. */
unsigned peer_random(const worker &w);
/* Progress of one worker, and the look at its polled requests. */
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

/* ---- operations (ops.cc) ---- */

op &op_new(worker &w, kind what);
/* After the posting call, with what it returned. */
void op_posted(op &o, ucs_status_ptr_t ptr);
/* Posts something at random on this worker. */
void op_random(worker &w);
/* Takes all that has arrived and nobody has asked for. */
unsigned take_unexpected(worker &w);
/* Ends the receives that are still posted. */
void cancel_receives(worker &w);
void close_endpoint(endpoint &e, bool force);

/* ---- active messages (am.cc) ---- */

void am_listen(worker &w);
ucs_status_ptr_t am_send(op &o, const void *data, size_t count, ucp_request_param_t *param);
/* Receives or gives back what handlers kept; how many. */
unsigned am_take_kept(worker &w);

/* ---- what must hold (check.cc) ---- */

/* Of the end of an operation of this kind, in events. */
const char *kind_name(kind what);
/* An operation has ended: nobody may touch its memory any more. */
void op_end(op &o, ucs_status_t status);
/* A receive or a probe has taken the message that a tag names: its number, or the count of all
 * messages if there is no such one. */
size_t message_taken(const op &o, uint64_t tag, size_t length);
/* At the end of a run: order, and nothing lost. */
void check_history();
/* When no worker is left: each generic datatype has been finished once. */
void check_datatypes();

} // namespace sim

#endif
