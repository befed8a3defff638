/* Halyard: agreement, steps and parting of the two processes.
 *
 * Order of messages: HELLO both ways, PARAMS to the follower, ADDRESS both ways for each lane,
 * READY both ways; then for each step STEP, READY (back), [STOP], RESULT (back); at last BYE and
 * READY (back). ERROR may come instead of any.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "pin.h"
#include "session.h"
#include "watch.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* Raised whenever a structure on the channel or the order of messages changes. */
#define PROTOCOL_VERSION 6

typedef struct perf_hello {
    uint32_t protocol;
    uint32_t zero;
    char     library[56]; /* version of libucp, for the message only */
} perf_hello_t;

_Static_assert(sizeof(perf_hello_t) == 64, "perf_hello_t is on the wire");

/* The follower's result of a step. */
typedef struct perf_outcome {
    int32_t  status; /* first: perf_oob_look() looks at it */
    uint32_t disturbed;
    uint32_t refused;
    uint32_t zero;
    double   ns;
    uint64_t messages;
    char     problem[160];
} perf_outcome_t;

_Static_assert(sizeof(perf_outcome_t) == 192, "perf_outcome_t is on the wire");

/* A session that only measures limits does not touch the library. */
static const perf_op_t limits_op = {.name = "limits"};

int perf_session_fail(perf_session_t *session, ucs_status_t status, const char *format, ...)
{
    char what[256], text[400];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    if ((status == UCS_ERR_UNSUPPORTED) && (session->op != NULL) &&
        (session->op->features != 0)) {
        snprintf(text, sizeof(text), "libucp %s as it is set cannot do the test %s: %s: %s",
                 ucp_get_version_string(), session->params.test, what,
                 ucs_status_string(status));
    } else {
        snprintf(text, sizeof(text), "%s: %s, at: %s", what, ucs_status_string(status),
                 perf_watch_where());
    }
    perf_error("%s", text);
    perf_oob_send_error(&session->channel, text);
    session->status = status;
    return -1;
}

static int exchange_hello(perf_session_t *session)
{
    perf_hello_t mine = {.protocol = PROTOCOL_VERSION}, theirs;

    snprintf(mine.library, sizeof(mine.library), "%s", ucp_get_version_string());
    if ((perf_oob_send(&session->channel, PERF_OOB_HELLO, &mine, sizeof(mine)) != 0) ||
        (perf_oob_recv(&session->channel, PERF_OOB_HELLO, &theirs, sizeof(theirs)) != 0)) {
        return -1;
    }
    if (theirs.protocol != mine.protocol) {
        return perf_session_fail(session, UCS_ERR_INVALID_PARAM,
                                 "the peer's ucx_perftest speaks protocol %u, this one %u: use "
                                 "the same version on both sides", theirs.protocol,
                                 mine.protocol);
    }
    if (strcmp(perf_oob_text(theirs.library, sizeof(theirs.library)), mine.library) != 0) {
        perf_note("note: libucp is %s here and %s at the peer", mine.library, theirs.library);
    }
    return 0;
}

/* Nothing that a peer says is believed: limits are those that the own options have. */
static int params_are_valid(const perf_params_t *params)
{
    return (params->way <= PERF_UCT_ZCOPY) &&
           (params->window >= 1) && (params->window <= PERF_WINDOW_MAX) &&
           (params->threads >= 1) && (params->threads <= PERF_THREADS_MAX) &&
           ((params->variants == 1) ||
            ((params->variants == PERF_VARIANT_COUNT) && (params->threads == 1))) &&
           (params->am_header <= PERF_OOB_PAYLOAD_MAX) &&
           (params->thread_mode <= UCS_THREAD_MODE_MULTI) &&
           (params->memory[0] < PERF_MEMORY_COUNT) && (params->memory[1] < PERF_MEMORY_COUNT) &&
           (params->device[0] >= -1) && (params->device[1] >= -1) &&
           (params->span <= PERF_MEMORY_MAX / 2 / params->threads) &&
           (params->max_size <= params->span) &&
           (params->span - params->max_size >= PERF_GUARD_AND_REPLY);
}

/* Agrees on what is run. */
static int exchange_params(perf_session_t *session)
{
    perf_params_t *params = &session->params;
    const char *refusal;
    int op;

    if ((session->leader ?
         perf_oob_send(&session->channel, PERF_OOB_PARAMS, params, sizeof(*params)) :
         perf_oob_recv(&session->channel, PERF_OOB_PARAMS, params, sizeof(*params))) != 0) {
        return -1;
    }
    (void)perf_oob_text(params->test, sizeof(params->test));
    (void)perf_oob_text(params->transport, sizeof(params->transport));
    if (!session->leader && !params_are_valid(params)) {
        return perf_session_fail(session, UCS_ERR_INVALID_PARAM, "the client's parameters");
    }
    session->op = &limits_op;
    if (strcmp(params->test, limits_op.name) == 0) {
        return 0;
    }
    op = perf_op_find_test(params->test);
    if (op < 0) {
        return perf_session_fail(session, UCS_ERR_INVALID_PARAM, "unknown test '%s'",
                                 params->test);
    }
    session->op = &perf_ops[op];
    refusal     = perf_op_refusal(session->op, params);
    return (refusal == NULL) ? 0 :
           perf_session_fail(session, UCS_ERR_INVALID_PARAM, "test %s: %s", params->test, refusal);
}

int perf_session_ready(perf_session_t *session)
{
    return (perf_oob_send(&session->channel, PERF_OOB_READY, NULL, 0) != 0) ? -1 :
           perf_oob_recv(&session->channel, PERF_OOB_READY, NULL, 0);
}

/* What a provider of libfabric's has taken to send may need our progress to arrive, and what is
 * closed may. */
static void progress_workers(void *arg)
{
    perf_session_t *session = arg;
    unsigned i;

    for (i = 0; i < session->lane_count; ++i) {
        if ((session->lanes[i].worker != NULL) || (session->lanes[i].progress != NULL)) {
            perf_lane_progress(&session->lanes[i]);
        }
    }
}

void perf_session_progress(perf_session_t *session)
{
    session->channel.progress = progress_workers;
    session->channel.arg      = session;
}

int perf_session_open(perf_session_t *session)
{
    perf_watch_stage("greeting the peer");
    if ((exchange_hello(session) != 0) || (exchange_params(session) != 0)) {
        return -1;
    }
    perf_watch_stage("creating context and worker for %s", session->op->name);
    if (perf_setup_create(session) != 0) {
        return -1;
    }
    perf_session_progress(session);
    perf_watch_stage("exchanging worker addresses");
    if ((perf_setup_connect(session) != 0) || (perf_session_ready(session) != 0)) {
        return -1;
    }
    perf_setup_device_connect(session);
    return 0;
}

/* ---- one step ---- */

typedef struct lane_run {
    perf_session_t    *session;
    perf_lane_t       *lane;
    const perf_step_t *step;
    perf_time_t        time;
    pthread_t          thread;
    int                started;
} lane_run_t;

static void *run_lane(void *arg)
{
    lane_run_t *run         = arg;
    perf_session_t *session = run->session;
    unsigned at;

    if (session->cpu_count > 0) {
        at = (session->params.threads > 1) ? run->lane->index : session->cpu_first;
        (void)perf_pin_to(session->cpus[at % session->cpu_count]);
    }
    run->lane->refused = 0;
    (void)perf_ops[run->step->op].run(run->lane, run->step, &run->time);
    return NULL;
}

static long preemptions(void)
{
    struct rusage usage;

    return (getrusage(RUSAGE_SELF, &usage) == 0) ? usage.ru_nivcsw : 0;
}

/* Runs the step on all lanes and gathers the result; limits use lane 0 alone. */
static void run_lanes(perf_session_t *session, const perf_step_t *step, perf_outcome_t *outcome)
{
    unsigned count = (perf_ops[step->op].kind == PERF_KIND_LIMIT) ? 1 : session->params.threads;
    perf_lane_t *lanes = &session->lanes[step->variant * session->params.threads];
    lane_run_t runs[PERF_THREADS_MAX];
    long before = preemptions();
    unsigned i;

    memset(outcome, 0, sizeof(*outcome));
    session->channel.progress = NULL; /* each lane's worker is its thread's */
    perf_watch_counter(session->leader, &lanes[0].recv_done);
    for (i = 0; i < count; ++i) {
        runs[i] = (lane_run_t) {.session = session, .lane = &lanes[i], .step = step};
        if (i > 0) {
            runs[i].started = pthread_create(&runs[i].thread, NULL, run_lane, &runs[i]) == 0;
            if (!runs[i].started) {
                perf_lane_fail(runs[i].lane, UCS_ERR_NO_RESOURCE, "pthread_create");
            }
        }
    }
    run_lane(&runs[0]);
    for (i = 0; i < count; ++i) {
        if (runs[i].started) {
            pthread_join(runs[i].thread, NULL);
        }
        if ((runs[i].lane->status != UCS_OK) && (outcome->status == 0)) {
            outcome->status = runs[i].lane->status;
            snprintf(outcome->problem, sizeof(outcome->problem), "%s", runs[i].lane->problem);
        }
        if (runs[i].time.ns > outcome->ns) {
            outcome->ns = runs[i].time.ns;
        }
        outcome->messages += runs[i].time.messages;
        outcome->refused  |= (uint32_t)runs[i].lane->refused;
    }
    perf_watch_counter(session->leader, NULL);
    session->channel.progress = progress_workers;
    outcome->disturbed        = preemptions() != before;
}

/* What must hold at both sides before the first message of the step. */
static void prepare_step(perf_session_t *session, const perf_step_t *step)
{
    unsigned i;

    atomic_store_explicit(&session->stop, 0, memory_order_release);
    if (!(session->op->features & UCP_FEATURE_RMA) || (step->size == 0) ||
        (session->lanes[0].mirror != NULL)) {
        return;
    }
    for (i = 0; i < session->params.threads; ++i) {
        /* Put latency watches this byte. */
        session->lanes[i].recv_buffer[step->size - 1] = 0;
    }
}

static void combine(const perf_op_t *op, const perf_outcome_t *mine, const perf_outcome_t *theirs,
                    uint32_t lanes, perf_measure_t *measure_p)
{
    const perf_outcome_t *timed = op->follower_times ? theirs : mine;

    if (timed->messages == 0) {
        timed = (timed == mine) ? theirs : mine;
    }
    measure_p->messages  = timed->messages;
    measure_p->disturbed = mine->disturbed || theirs->disturbed;
    measure_p->refused   = mine->refused || theirs->refused;
    /* A ping-pong's time is that of one lane's message, whatever the others do meanwhile. */
    if (op->kind != PERF_KIND_LATENCY) {
        lanes = 1;
    }
    measure_p->us = timed->ns * lanes / 1e3 / (double)timed->messages;
}

static int check_outcome(perf_session_t *session, const perf_outcome_t *mine,
                         perf_outcome_t *theirs)
{
    if ((mine->status != UCS_OK) && (mine->status != UCS_ERR_CANCELED)) {
        return perf_session_fail(session, (ucs_status_t)mine->status, "%s", mine->problem);
    }
    if ((theirs->status != UCS_OK) && (theirs->status != UCS_ERR_CANCELED)) {
        session->status = (ucs_status_t)theirs->status;
        return perf_error("at the peer: %s: %s, at: %s",
                          perf_oob_text(theirs->problem, sizeof(theirs->problem)),
                          ucs_status_string(session->status), perf_watch_where());
    }
    return 0;
}

int perf_session_step(perf_session_t *session, perf_step_t *step, perf_measure_t *measure_p)
{
    const perf_op_t *op = &perf_ops[step->op];
    perf_outcome_t mine, theirs = {0};

    step->sequence     = session->sequence;
    session->sequence += step->warmup + step->iters + 1;
    prepare_step(session, step);
    if ((perf_oob_send(&session->channel, PERF_OOB_STEP, step, sizeof(*step)) != 0) ||
        (perf_oob_recv(&session->channel, PERF_OOB_READY, NULL, 0) != 0)) {
        return -1;
    }
    run_lanes(session, step, &mine);
    if ((mine.status != UCS_OK) && (mine.status != UCS_ERR_CANCELED) &&
        (mine.status != UCS_ERR_CONNECTION_RESET)) {
        return check_outcome(session, &mine, &theirs);
    }
    if ((op->one_sided && (perf_oob_send(&session->channel, PERF_OOB_STOP, NULL, 0) != 0)) ||
        (perf_oob_recv(&session->channel, PERF_OOB_RESULT, &theirs, sizeof(theirs)) != 0) ||
        (check_outcome(session, &mine, &theirs) != 0)) {
        return -1;
    }
    combine(op, &mine, &theirs, session->params.threads, measure_p);
    return 0;
}

/* ---- the follower ---- */

static int step_is_valid(const perf_session_t *session, const perf_step_t *step)
{
    const perf_op_t *op;

    if ((step->op >= perf_op_count) || (step->size > session->params.max_size) ||
        (step->window < 1) || (step->window > session->params.window) ||
        (step->variant >= session->params.variants)) {
        return 0;
    }
    op = &perf_ops[step->op];
    if (perf_op_refusal(op, &session->params) != NULL) {
        return 0;
    }
    if (op->kind == PERF_KIND_LIMIT) {
        return (session->shared != NULL) && ((op->size_max == 0) || (step->size <= op->size_max));
    }
    /* The test itself, or others of a table, which are of one feature. */
    return (step->size >= op->size_min) &&
           ((op == session->op) || ((op->open == NULL) && (op->features == session->op->features) &&
                                    (op->features != 0)));
}

static int serve_step(perf_session_t *session, const perf_step_t *step)
{
    const perf_op_t *op = &perf_ops[step->op];
    perf_outcome_t mine;

    perf_watch_stage("%s, %llu B, serving", op->name, (unsigned long long)step->size);
    prepare_step(session, step);
    if (perf_oob_send(&session->channel, PERF_OOB_READY, NULL, 0) != 0) {
        return -1;
    }
    run_lanes(session, step, &mine);
    if (mine.status == UCS_ERR_CANCELED) {
        /* The leader's error text is waiting; receiving it prints it. */
        (void)perf_oob_recv(&session->channel, PERF_OOB_STOP, NULL, 0);
        return -1;
    }
    if ((op->one_sided && (mine.status == UCS_OK) &&
         (perf_oob_recv(&session->channel, PERF_OOB_STOP, NULL, 0) != 0)) ||
        (perf_oob_send(&session->channel, PERF_OOB_RESULT, &mine, sizeof(mine)) != 0)) {
        return -1;
    }
    if (mine.status != UCS_OK) {
        session->status = (ucs_status_t)mine.status;
        return perf_error("%s: %s, at: %s", mine.problem, ucs_status_string(session->status),
                          perf_watch_where());
    }
    return 0;
}

int perf_session_serve(perf_session_t *session)
{
    perf_step_t step;
    size_t length;
    int type;

    for (;;) {
        perf_watch_stage("waiting for the leader's next step");
        type = perf_oob_recv_any(&session->channel, &step, sizeof(step), &length);
        if (type == PERF_OOB_BYE) {
            return 0;
        }
        if (type < 0) {
            return -1;
        }
        if ((type != PERF_OOB_STEP) || (length != sizeof(step))) {
            return perf_session_fail(session, UCS_ERR_INVALID_PARAM, "message type %d", type);
        }
        if (!step_is_valid(session, &step)) {
            return perf_session_fail(session, UCS_ERR_INVALID_PARAM, "the leader's step");
        }
        if (serve_step(session, &step) != 0) {
            return -1;
        }
    }
}

void perf_session_close(perf_session_t *session, int orderly)
{
    if (orderly && (session->lanes != NULL)) {
        perf_watch_stage("closing endpoints");
        if (session->leader) {
            (void)perf_oob_send(&session->channel, PERF_OOB_BYE, NULL, 0);
        }
        perf_setup_disconnect(session);
        (void)perf_session_ready(session);
        session->channel.progress = NULL;
        perf_watch_stage("destroying the worker");
        perf_setup_destroy(session);
    }
    if (!orderly || !(session->params.flags & PERF_FLAG_MORE)) {
        perf_oob_close(&session->channel);
    }
}
