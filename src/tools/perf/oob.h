/* Halyard: the channel on which the two processes of a test agree: TCP between a client and a
 * server, a socketpair with --self, a local socket between ranks. Carries parameters, worker
 * addresses, the orders for each step and their results; never what is measured.
 *
 * A message is a 16-byte header and a payload of fixed-width fields; all waits are bounded. The
 * process that detects an error prints it; callers pass -1 on.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef PERF_OOB_H
#define PERF_OOB_H

#include <stddef.h>
#include <sys/uio.h>

typedef enum perf_oob_type {
    PERF_OOB_HELLO   = 1, /* perf_hello_t */
    PERF_OOB_PARAMS  = 2, /* perf_params_t */
    PERF_OOB_ADDRESS = 3, /* worker address and remote memory of one lane */
    PERF_OOB_STEP    = 4, /* perf_step_t */
    PERF_OOB_STOP    = 5, /* ends a one-sided step at its passive side; empty */
    PERF_OOB_RESULT  = 6, /* perf_outcome_t */
    PERF_OOB_READY   = 7, /* barrier; empty */
    PERF_OOB_BYE     = 8, /* no more steps; empty */
    PERF_OOB_ERROR   = 9  /* text: the sender gives up, and why */
} perf_oob_type_t;

/* Largest payload accepted from a peer. */
#define PERF_OOB_PAYLOAD_MAX 65536

/* For timeout_ms, where a time limit or a monitor watches both ends (watch.h). */
#define PERF_OOB_WATCHED_MS (24 * 3600 * 1000)

typedef struct perf_channel {
    int   fd;
    int   timeout_ms; /* bound of each wait */
    char  peer[96];   /* for messages */
    void (*progress)(void *arg); /* called during waits; NULL: nothing */
    void *arg;
} perf_channel_t;

/* Opens a listening socket on all interfaces. Returns its descriptor, or -1. */
int perf_oob_listen(unsigned port, int ipv6);

/* The same on a socket of this host and user that has this name, and no file. */
int perf_oob_listen_local(const char *name);
int perf_oob_connect_local(const char *name, int timeout_ms, perf_channel_t *channel_p);

/* 1 if the other end of a local channel belongs to this user. */
int perf_oob_is_own_user(const perf_channel_t *channel);

/* Waits for one client (wait_s seconds; 0 = without limit). Who connects and is none, as a port
 * scanner, is told of on stderr and left. Closes nothing else. */
int perf_oob_accept(int listen_fd, unsigned wait_s, int timeout_ms, perf_channel_t *channel_p);

/* Connects to a server; a refused connection is tried again for some seconds, since the server
 * is often started at the same moment. */
int perf_oob_connect(const char *host, unsigned port, int ipv6, int timeout_ms,
                     perf_channel_t *channel_p);

/* Makes a channel of a connected socket. */
void perf_oob_wrap(int fd, const char *peer, int timeout_ms, perf_channel_t *channel_p);

void perf_oob_close(perf_channel_t *channel);

/* Sends one message. Blocks at most timeout_ms. */
int perf_oob_send(perf_channel_t *channel, perf_oob_type_t type, const void *payload,
                  size_t length);

/* The same with a payload of several parts, which follow each other. */
int perf_oob_send_parts(perf_channel_t *channel, perf_oob_type_t type, const struct iovec *parts,
                        unsigned count);

/* Makes `size` bytes of a peer's a text that any terminal shows as it is, and returns it. */
const char *perf_oob_text(char *text, size_t size);

/* Sends text as PERF_OOB_ERROR; failure is ignored: the sender gives up anyway. */
void perf_oob_send_error(perf_channel_t *channel, const char *text);

/* Receives one message of any type into `buffer` of `capacity` bytes. Returns its type, or -1;
 * PERF_OOB_ERROR is printed and turned into -1. */
int perf_oob_recv_any(perf_channel_t *channel, void *buffer, size_t capacity, size_t *length_p);

/* Receives a message that must have this type and exactly this length. */
int perf_oob_recv(perf_channel_t *channel, perf_oob_type_t type, void *buffer, size_t length);

/* What the peer has done; nothing is taken out. Does not block, prints nothing. */
typedef enum perf_peer {
    PERF_PEER_SILENT,
    PERF_PEER_SPOKE,  /* a message waits */
    PERF_PEER_FAILED, /* and it says so: an error, or a result whose status (its first four bytes)
                       * is not 0 */
    PERF_PEER_GONE    /* it closed its end, also where unread messages wait */
} perf_peer_t;

perf_peer_t perf_oob_look(const perf_channel_t *channel);

#endif
