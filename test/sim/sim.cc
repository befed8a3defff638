/* Halyard: simulator: draws a plan from a seed, runs it, checks what must hold.
 *
 *   sim [--seed N] [--seeds A-B] [--trace] [--bug N]
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world.h"

#include <ucp/internals.h>
#include <ucs/debug/log.h>
#include <ucs/sys/compiler.h>

#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace {

constexpr unsigned ROUNDS_MAX = 200000; /* of the end of a run */
constexpr unsigned IDLE_ROUNDS = 6;
#ifdef SIM_HAS_PLANTED
constexpr unsigned REAL_LIMIT_S = 5;    /* for one seed: a loop inside the library */
#else
constexpr unsigned REAL_LIMIT_S = 60;
#endif
constexpr unsigned TWICE_EVERY = 16;    /* seeds */

#if UCS_HAVE_ASAN || UCS_HAVE_TSAN
constexpr unsigned SEEDS_DEFAULT = 400;
#else
constexpr unsigned SEEDS_DEFAULT = 2500;
#endif

const char *g_program;
uint64_t g_seed;
unsigned g_failures;
bool g_trace;
unsigned g_bug;

void print_replay()
{
    printf("  replay: %s --seed %llu --trace", g_program, (unsigned long long)g_seed);
    if (g_bug != 0) {
        printf(" --bug %u", g_bug);
    }
    printf("\n");
    fflush(stdout);
}

void on_signal(int number)
{
    printf("seed %llu: signal %d%s\n", (unsigned long long)g_seed, number,
           (number == SIGALRM) ? ": a call does not return" : "");
    sim_events_print_last();
    print_replay();
    signal(number, SIG_DFL);
    raise((number == SIGALRM) ? SIGABRT : number);
    _exit(1);
}

ucs_log_func_rc_t on_log(const char *, unsigned, const char *, ucs_log_level_t level,
                         const ucs_log_component_config_t *, const char *text, va_list ap)
{
    char line[512];

    if (level > UCS_LOG_LEVEL_WARN) {
        return UCS_LOG_FUNC_RC_CONTINUE;
    }
    vsnprintf(line, sizeof(line), text, ap);
    if (g_trace) {
        printf("  log: %s\n", line);
    }
    if (level == UCS_LOG_LEVEL_FATAL) {
        printf("fatal: %s\n", line);
    } else if (sim_system_failed() == 0) {
        sim_fail("the library complains: %s", line);
    }
    return UCS_LOG_FUNC_RC_STOP;
}

/* ---- the plan ---- */

template <typename T, size_t N> T pick(const T (&values)[N])
{
    return values[sim_below(N)];
}

/* Half of the seeds know nothing of a fault. */
double maybe(double most)
{
    const double part = (double)sim_below(1000) / 1000;
    return sim_chance(0.5) ? part * part * most : 0;
}

void draw_plan()
{
    static const size_t lengths[]   = {64, 2000, 20000, 70000, 200000, 2000000};
    static const size_t am_maxes[]  = {512, 1024, 4096, 8192, 20000, SIM_AM_MAX};
    static const char *const from[] = {"auto", "auto", "auto", "0",  "1",
                                       "100",  "5000", "inf",  "inf"};
    static const char *const how[]  = {"auto", "auto", "get_zcopy", "put_zcopy", "both", "am"};
    static const unsigned shares[]  = {0, 1, 1, 2};
    static const double parts[]     = {0.3, 0.7, 1};
    static const size_t rooms[]     = {1u << 14, 1u << 17, 1u << 25};
    sim_plan_t &plan                = sim_plan;

    plan                   = {};
    plan.num_workers       = (unsigned)sim_between(1, 5);
    plan.num_steps         = (unsigned)sim_between(50, 700);
    plan.ops_percent       = (unsigned)sim_between(10, 60);
    plan.length_max        = pick(lengths);
    plan.am_max            = pick(am_maxes);
    plan.capacity          = (unsigned)sim_between(1, 1u << sim_between(0, 6));
    plan.delay_ns          = sim_between(10, 2000);
    plan.tail_ns           = 1000ull << sim_below(14);
    plan.tail              = maybe(0.5);
    plan.instant_connect   = maybe(1);
    plan.no_resource       = maybe(0.7);
    plan.storm             = maybe(0.1);
    plan.refuse_connection = maybe(0.2);
    plan.refuse_copy       = maybe(0.2);
    plan.fail_copy         = maybe(0.2);
    plan.fail_alloc        = maybe(0.02);
    plan.fail_reg          = maybe(0.5);
    plan.slow_map          = maybe(1);
    plan.refuse_map        = maybe(0.5);
    plan.kill              = maybe(0.01);
    plan.leave             = maybe(0.01);
    plan.callback_posts    = maybe(0.3);
    plan.starve            = maybe(0.02);
    plan.sleep             = maybe(1);
    plan.has_sync          = sim_chance(0.7);
    plan.has_get           = sim_chance(0.8);
    plan.has_put           = sim_chance(0.8);
    plan.has_map           = sim_chance(0.6);
    plan.has_reg           = sim_chance(0.3);
    plan.maps_reg          = plan.has_map && sim_chance(0.3);
    plan.own_self          = sim_chance(0.6);
    plan.copy_bytes_per_ns = (double)sim_between(1, 20);
    plan.rndv_thresh       = pick(from);
    plan.rndv_scheme       = pick(how);
    plan.is_multi          = sim_chance(0.2);
    for (unsigned &share : plan.share) {
        share = pick(shares);
    }
    plan.unexp_budget      = sim_chance(0.4) ? "500" : "64m";
    plan.attentive         = maybe(1);
    plan.on_device         = sim_chance(0.5) ? 0 : pick(parts);
    plan.fail_device       = maybe(0.05);
    plan.shown             = pick(parts);
    plan.num_devices       = (unsigned)sim_between(1, 2);
    plan.device_room       = pick(rooms);
    plan.has_sync         |= (plan.on_device > 0); /* as the real ones: words tell of ends */
    plan.zcopy_min         = sim_chance(0.5) ? sim_between(1, plan.am_max) : 0;
    plan.lent_ns           = sim_between(1, sim_chance(0.5) ? 4 : 100) * plan.delay_ns;
    plan.parts             = sim_chance(0.5) ? pick(parts) : 0;
    plan.is_narrow         = sim_chance((plan.parts > 0) ? 0.8 : 0.1); /* who takes parts is so */
    if ((plan.parts > 0) && sim_chance(0.5)) { /* as many as there can be */
        plan.am_max      = SIM_AM_MAX;
        plan.zcopy_min   = 0;
        plan.rndv_thresh = "inf";
    }
    plan.long_max          = sim_chance(0.5) ? sim_between(plan.am_max, SIM_AM_MAX) : 0;
}

void print_plan()
{
    const sim_plan_t &plan = sim_plan;

    printf("seed %llu: %u workers, %u steps (%u %% post), messages to %zu, am max %zu (%zu, "
           "not copied from %zu, for %llu ns), in parts %.2f, "
           "capacity %u, delay %llu ns, tail %.3f to %llu ns, instant %.2f\n  no resource %.3f, "
           "storm %.4f, refuse connection %.4f, copy %.4f, fail copy %.4f, allocation %.5f, "
           "kill %.4f, leave %.4f, post in callbacks %.2f, starve %.4f, sleep %.3f\n  sync %d, "
           "get %d, put %d, map %d, reg %d, maps reg %d (fail %.2f, slow %.2f, refuse %.2f)\n  "
           "tags %u, messages %u, streams %u, memory %u, sockets %u, own self %d, copy %.0f B/ns, "
           "rndv from %s by %s, attentive %.2f, %s, receives %s\n  on %u devices %.1f, shown %.1f, "
           "room %zu, fail %.3f\n",
           (unsigned long long)g_seed, plan.num_workers, plan.num_steps, plan.ops_percent,
           plan.length_max, plan.am_max, plan.long_max, plan.zcopy_min,
           (unsigned long long)plan.lent_ns, plan.parts, plan.capacity,
           (unsigned long long)plan.delay_ns, plan.tail, (unsigned long long)plan.tail_ns,
           plan.instant_connect, plan.no_resource,
           plan.storm, plan.refuse_connection, plan.refuse_copy, plan.fail_copy, plan.fail_alloc,
           plan.kill, plan.leave, plan.callback_posts, plan.starve, plan.sleep, plan.has_sync,
           plan.has_get, plan.has_put, plan.has_map, plan.has_reg, plan.maps_reg, plan.fail_reg,
           plan.slow_map, plan.refuse_map, plan.share[SIM_TAGS], plan.share[SIM_MESSAGES],
           plan.share[SIM_STREAMS], plan.share[SIM_MEMORY], plan.share[SIM_SOCKETS],
           plan.own_self,
           plan.copy_bytes_per_ns, plan.rndv_thresh, plan.rndv_scheme,
           plan.attentive, plan.is_multi ? "MULTI" : "SINGLE",
           plan.is_narrow ? "narrow" : "wide", plan.num_devices,
           plan.on_device, plan.shown, plan.device_room, plan.fail_device);
}

/* ---- one run ---- */

using sim::the_world;

/* Sockets are looked at after so many turns only. */
unsigned sim_turns(const sim::worker &w)
{
    const bool has_sockets = (w.port != 0) || !the_world->links.empty();
    return (has_sockets && sim_chance(0.2)) ? 70 : 1;
}

/* One step of one worker, and time goes on. */
void step()
{
    sim::worker *w = sim::worker_random();

    sim_advance(sim_below(sim_plan.delay_ns + 1));
    if (w == nullptr) {
        return;
    }
    if (sim_chance(sim_plan.kill * (sim_net_is_writing(w->number) ? 8 : 1)) &&
        (sim::num_alive() > 1)) {
        sim::worker_kill(*w);
        return;
    }
    if (sim_chance(sim_plan.leave) && (the_world->workers.size() < 20)) {
        w->is_leaving = true;
        sim_event("wants to leave", w->number, 0, 0);
        for (size_t i = 0; sim_chance(0.5) && (i < w->eps.size()); ++i) {
            if (!w->eps[i]->is_closing) {
                sim::close_endpoint(*w->eps[i], sim_chance(0.1));
            }
        }
    }
    if (w->is_leaving && (sim_chance(0.05) || sim::is_idle(*w))) {
        sim::worker_leave(*w);
        (void)sim::worker_make();
        return;
    }
    if (sim_chance(sim_plan.starve)) {
        w->starved_until = sim_now() + sim_below(100 * (sim_plan.delay_ns + 1000));
    }
    if (!w->is_leaving && (sim_below(100) < sim_plan.ops_percent)) {
        sim::op_random(*w);
    } else if (sim_now() >= w->starved_until) {
        for (unsigned turns = sim_turns(*w); turns > 0; --turns) {
            (void)sim::worker_progress(*w);
        }
        if (sim_chance(0.3)) {
            sim::worker_poll(*w);
        }
    }
}

/* Until nothing happens any more. */
void settle(bool take)
{
    unsigned rounds, idle = 0;

    for (rounds = 0; (rounds < ROUNDS_MAX) && (idle < IDLE_ROUNDS); ++rounds) {
        const size_t start = sim_below(the_world->workers.size());
        unsigned count     = 0;
        for (size_t i = 0; i < the_world->workers.size(); ++i) {
            sim::worker &w = *the_world->workers[(start + i) % the_world->workers.size()];
            if (w.state != sim::life::ALIVE) {
                continue;
            }
            count += sim::worker_progress(w);
            count += take ? sim::take_unexpected(w) : 0;
            sim::worker_poll(w);
        }
        if (count > 0) {
            idle = 0;
            sim_advance(sim_below(200));
            continue;
        }
        const uint64_t next_ns = sim_net_next_ns();
        if ((next_ns != UINT64_MAX) && (next_ns > sim_now())) {
            sim_advance(next_ns - sim_now());
            idle = 0;
        } else if (sim_tcp_has_ready()) {
            idle = 0; /* workers look at their sockets now and then only */
        } else {
            sim_advance(1000000);
            ++idle;
        }
    }
    if (rounds == ROUNDS_MAX) {
        sim_fail("the workers do not come to rest");
    }
}

void check_ended(bool with_receives)
{
    for (const auto &o : the_world->ops) {
        if (!o->is_done && !o->is_abandoned &&
            (with_receives || !sim::is_receive(o->what))) {
            sim_fail("operation %llu of worker %u (kind %d, to %d) never ends",
                     (unsigned long long)o->sn, o->owner->number, (int)o->what,
                     (o->ep != nullptr) ? (int)o->ep->peer : -1);
        }
    }
}

void check_pools(const sim::worker &w)
{
    const struct {
        const char *what;
        size_t count;
    } left[] = {{"requests", ucp_test_num_requests(w.handle)},
                {"control messages", ucp_test_num_controls(w.handle)},
                {"kept messages", ucp_test_num_kept(w.handle)},
                {"kept data", ucp_test_num_kept_data(w.handle)},
                {"bytes that wait", ucp_test_unexp_bytes(w.handle)},
                {"ids", ucp_test_num_ids(w.handle)}};

    for (const auto &each : left) {
        if (each.count != 0) {
            sim_fail("worker %u still has %zu %s", w.number, each.count, each.what);
        }
    }
}

/* All that came was received: who was told to hold has been told to go on. */
void check_holding()
{
    for (const auto &w : the_world->workers) {
        for (const auto &e : w->eps) {
            if ((w->state == sim::life::ALIVE) && !e->is_closing && !sim::may_break(*e) &&
                ucp_test_is_holding(e->handle)) {
                sim_fail("worker %u still holds its messages to %u", w->number, e->peer);
            }
        }
    }
}

/* Faults stop; everything must end, and nothing may be left. */
void finish()
{
    sim_faults_on = 0;
    sim_event("finish", 0, 0, 0);
    do {
        settle(true);
    } while (sim::stream_make_pairs() > 0); /* those that were there may have failed since */
    check_ended(false);
    for (const auto &w : the_world->workers) {
        if (w->state == sim::life::ALIVE) {
            sim::cancel_receives(*w);
        }
    }
    settle(true);
    for (const auto &w : the_world->workers) {
        if (w->state == sim::life::ALIVE) {
            sim::post_flush_of(*w, nullptr);
        }
    }
    settle(true);
    sim::check_streams();
    sim::check_memory();
    check_holding();
    for (const auto &w : the_world->workers) {
        for (size_t i = 0; (w->state == sim::life::ALIVE) && (i < w->eps.size()); ++i) {
            if (!w->eps[i]->is_closing) {
                sim::close_endpoint(*w->eps[i], sim_chance(0.2));
            }
        }
    }
    settle(true);
    check_ended(true);
    for (const auto &w : the_world->workers) {
        if (w->state == sim::life::ALIVE) {
            check_pools(*w);
        }
    }
    sim::check_history();
}

uint64_t run(uint64_t seed, bool trace)
{
    sim::world world;

    g_seed     = seed;
    g_failures = 0;
    alarm(REAL_LIMIT_S);
    sim_seed(seed);
    sim_events_reset(trace);
    draw_plan();
    if (trace) {
        print_plan();
    }
    sim_net_prepare();
    the_world               = &world;
    const size_t live_start = sim_system_live();

    sim_faults_on = 0;
    (void)sim::worker_make();
    for (unsigned i = 1; i < sim_plan.num_workers; ++i) {
        sim_faults_on = 1;
        (void)sim::worker_make();
    }
    sim_faults_on = 1;
    for (unsigned i = 0; (i < sim_plan.num_steps) && (g_failures == 0); ++i) {
        step();
    }
    if (g_failures == 0) {
        finish();
    }
    sim_faults_on = 0;
    for (const auto &w : world.workers) {
        if (w->state == sim::life::ALIVE) {
            sim::worker_leave(*w);
        } else {
            sim::worker_bury(*w);
        }
    }
    if (g_failures == 0) {
        sim_net_check_end();
        sim::check_datatypes();
        if (sim_system_live() != live_start) {
            sim_fail("%zd objects are left", (ssize_t)(sim_system_live() - live_start));
        }
    }
    sim_net_reset();
    sim_tcp_reset();
    sim_memory_reset();
    sim_system_reset();
    sim_devices_reset();
    sim::world_free_buffers();
    the_world = nullptr;
    return sim_events_hash();
}

/* What the library keeps for the life of the process is made before anything is counted. */
void warm_up()
{
    sim::world world;

    sim_seed(0);
    draw_plan();
    sim_plan.on_device = 1; /* those that know them open too */
    sim_net_prepare();
    the_world = &world;
    sim::worker_leave(*sim::worker_make());
    sim_net_reset();
    sim_memory_reset();
    sim_system_reset();
    sim_devices_reset();
    sim::world_free_buffers();
}

/* One seed, now and then twice; true if all holds. */
bool check_seed(uint64_t seed)
{
    const uint64_t hash  = run(seed, g_trace);
    const uint64_t count = sim_events_count();

    if (g_trace) {
        printf("seed %llu: %llu events, hash %016llx\n", (unsigned long long)seed,
               (unsigned long long)count, (unsigned long long)hash);
    }
    if (g_failures > 0) {
        return false;
    }
    if (((seed % TWICE_EVERY) == 0) && (run(seed, false) != hash) && (g_failures == 0)) {
        sim_fail("two runs differ: %llu events with hash %016llx, %llu with %016llx",
                 (unsigned long long)count, (unsigned long long)hash,
                 (unsigned long long)sim_events_count(), (unsigned long long)sim_events_hash());
    }
    return g_failures == 0;
}

void usage(int status)
{
    printf("usage: %s [--seed N] [--seeds A-B] [--trace] [--stop]\n"
           "  --seed N     one seed\n"
           "  --seeds A-B  a range (default: 1-%u, or HALYARD_SIM_SEEDS)\n"
           "  --trace      print every event\n"
           "  --stop       end at the first seed that fails\n",
           g_program, SEEDS_DEFAULT);
    exit(status);
}

} // namespace

void sim_fail(const char *format, ...)
{
    va_list ap;

    if (++g_failures > 5) {
        return; /* what follows from the first ones */
    }
    if (g_failures == 1) {
        print_plan();
        sim_events_print_last();
    }
    printf("seed %llu FAILED at %llu ns: ", (unsigned long long)g_seed,
           (unsigned long long)sim_now());
    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
    printf("\n");
    if (g_failures == 1) {
        print_replay();
    }
}

#ifdef SIM_HAS_PLANTED
extern "C" {
int sim_planted_bug;
}
#endif

int main(int argc, char **argv)
{
    const char *env = getenv("HALYARD_SIM_SEEDS");
    uint64_t first = 1, last = (env != nullptr) ? strtoull(env, nullptr, 0) : SEEDS_DEFAULT;
    uint64_t passed = 0, failed = 0;
    bool stop = false;

    g_program = argv[0];
    for (int i = 1; i < argc; ++i) {
        const std::string option = argv[i];
        char *end                = nullptr;
        if ((option == "--seed") && (i + 1 < argc)) {
            first = last = strtoull(argv[++i], &end, 0);
        } else if ((option == "--seeds") && (i + 1 < argc)) {
            first = strtoull(argv[++i], &end, 0);
            last  = (*end == '-') ? strtoull(end + 1, nullptr, 0) : first;
#ifdef SIM_HAS_PLANTED
        } else if ((option == "--bug") && (i + 1 < argc)) {
            g_bug = (unsigned)(sim_planted_bug = atoi(argv[++i]));
#endif
        } else if (option == "--trace") {
            g_trace = true;
        } else if (option == "--stop") {
            stop = true;
        } else {
            usage((option == "--help") ? 0 : 2);
        }
    }
    setvbuf(stdout, nullptr, _IOLBF, 0);
    for (int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM}) {
        signal(number, on_signal);
    }
    ucs_log_push_handler(on_log);
    sim_system_install();

    warm_up();
    const auto start = std::chrono::steady_clock::now();
    for (uint64_t seed = first; (seed <= last) && !(stop && (failed > 0)); ++seed) {
        ++(check_seed(seed) ? passed : failed);
    }
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    printf("seeds %llu to %llu: %.1f s\n", (unsigned long long)first, (unsigned long long)last,
           spent.count());
    printf("%llu passed, %llu failed, 0 skipped\n", (unsigned long long)passed,
           (unsigned long long)failed);
    return (failed > 0) ? 1 : 0;
}
