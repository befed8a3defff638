/* Halyard: two ranks that mpirun has started find each other and run a test.
 *
 * No MPI library is involved: rank, size and the job's name are read from the environment. On one
 * host the ranks meet at a local socket that is named after the job; on two, the command line has
 * to name the host of rank 0.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "pin.h"
#include "run.h"
#include "watch.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Variables that a launcher sets in every rank. */
typedef struct launcher {
    const char *rank, *size;
    const char *local_size; /* ranks on this host */
    const char *job;        /* a name that all ranks of a job share */
    const char *fd;         /* without: a socket to the launcher's process on this host */
} launcher_t;

static const launcher_t launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "PMIX_NAMESPACE", "PMI_FD"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", NULL, "PMI_FD"},
};

/* Value of a number in the environment; -1 without. */
static int env_number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long value;

    if (text == NULL) {
        return -1;
    }
    value = strtol(text, &end, 10);
    return ((end != text) && (*end == '\0') && (value >= 0) && (value <= 1 << 30)) ? (int)value :
                                                                                     -1;
}

/* The launcher's process on this host; our parent, unless a script lies between. */
static int launcher_pid(int fd)
{
    struct ucred peer = {.pid = 0};
    socklen_t length  = sizeof(peer);

    (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length);
    return (peer.pid > 0) ? peer.pid : getppid();
}

int perf_ranks_find(perf_ranks_t *ranks_p)
{
    const char *job;
    unsigned i;

    for (i = 0; i < sizeof(launchers) / sizeof(launchers[0]); ++i) {
        ranks_p->rank       = env_number(launchers[i].rank);
        ranks_p->size       = env_number(launchers[i].size);
        ranks_p->local_size = env_number(launchers[i].local_size);
        if ((ranks_p->rank < 0) || (ranks_p->size <= 1) || (ranks_p->rank >= ranks_p->size)) {
            continue;
        }
        job = (launchers[i].job != NULL) ? getenv(launchers[i].job) : NULL;
        if (job != NULL) {
            snprintf(ranks_p->job, sizeof(ranks_p->job), "%s", job);
        } else {
            snprintf(ranks_p->job, sizeof(ranks_p->job), "%d",
                     launcher_pid(env_number(launchers[i].fd)));
        }
        return 1;
    }
    return 0;
}

/* What must hold before the ranks can meet. Rank 0 speaks for all. */
static int check(const perf_options_t *options, const perf_ranks_t *ranks)
{
    const int is_split  = (ranks->local_size >= 0) && (ranks->local_size != ranks->size);
    const char *problem =
        (ranks->size != 2) ?
        "a test has two ranks (mpirun -n 2); with -P 0 each is a server or a client" :
        (is_split && (options->host == NULL)) ?
        "they are on several hosts: name the host of rank 0, as in `mpirun -n 2 ucx_perftest -t "
        "tag_lat HOST`" :
        ((options->op < 0) && (options->batch == NULL)) ?
        "which test? Name it with -t, in both" : NULL;

    if ((problem != NULL) && (ranks->rank == 0)) {
        perf_error("%d ranks: %s", ranks->size, problem);
    }
    return (problem == NULL) ? 0 : -1;
}

/* Processors: those of -c, else as --self chooses them from what the launcher allows. */
static int bind_rank(const perf_options_t *options, const perf_ranks_t *ranks,
                     perf_session_t *session)
{
    int cpus[2];

    if (options->params.threads > 1) {
        return perf_bind(options->cpus, options->cpu_count, session);
    }
    if (options->cpu_count > 0) {
        return perf_bind(&options->cpus[(unsigned)ranks->rank % options->cpu_count], 1, session);
    }
    return perf_bind(&cpus[ranks->rank], perf_pin_choose(cpus) > 0, session);
}

/* Opens the channel between the ranks. */
static int meet(const perf_options_t *options, const perf_ranks_t *ranks, perf_channel_t *channel)
{
    const int timeout_ms = (int)options->timeout_s * 1000;
    int listen_fd, status;

    perf_watch_stage("rank %d, waiting for the other rank", ranks->rank);
    if (ranks->rank != 0) {
        status = (options->host != NULL) ?
                 perf_oob_connect(options->host, options->port, options->ipv6, timeout_ms,
                                  channel) :
                 perf_oob_connect_local(ranks->job, timeout_ms, channel);
    } else {
        listen_fd = (options->host != NULL) ? perf_oob_listen(options->port, options->ipv6) :
                                              perf_oob_listen_local(ranks->job);
        if (listen_fd < 0) {
            return -1;
        }
        status = perf_oob_accept(listen_fd, options->timeout_s, timeout_ms, channel);
        close(listen_fd);
    }
    if ((status != 0) && (options->host == NULL) && (ranks->local_size < 0)) {
        perf_error("where the ranks are on several hosts, name the host of rank 0");
    }
    if ((status == 0) && (options->host == NULL) && !perf_oob_is_own_user(channel)) {
        return perf_error("the local socket of this job belongs to another user");
    }
    return status;
}

int perf_ranks_main(const perf_options_t *options, const perf_ranks_t *ranks)
{
    static perf_session_t session;

    if (check(options, ranks) != 0) {
        return PERF_EXIT_USAGE;
    }
    perf_watch_init(NULL, options->timeout_s + 2);
    perf_note_quiet(options->quiet || (ranks->rank != 0));
    if (((ranks->rank == 0) && (perf_plot_check(options) != 0)) ||
        (bind_rank(options, ranks, &session) != 0) ||
        (meet(options, ranks, &session.channel) != 0)) {
        return PERF_EXIT_FAILED;
    }
    return (ranks->rank != 0) ?
           perf_follow(&session) :
           perf_lead(&session, options, session.cpus, session.cpu_count);
}
