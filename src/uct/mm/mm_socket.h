/* Halyard: mm: the sockets that connect interfaces, and what is said on them.
 *
 * One SOCK_SEQPACKET connection for each endpoint:
 *     sender    connects, says HELLO: who it is and whom it expects
 *     receiver  checks both, allots a ring, says WELCOME with the descriptors of the memory; later
 *               (iface->due), where the kernel lets no more descriptors be on their way
 * After that a single byte either way is a signal to a sleeping process, and the end of file is
 * the peer's death or farewell. Abstract names have no permissions, so each side asks the kernel
 * for the other's user, and the 128-bit identity in HELLO shows that the sender was given our
 * address.
 *
 * The functions do not log; they leave errno. None blocks but uct_mm_socket_say.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_MM_SOCKET_H
#define UCT_MM_SOCKET_H

#include "mm_iface.h"

#include <ucs/sys/sys.h>

BEGIN_C_DECLS

typedef struct {
    uct_socket_message_t head;
    uint8_t              uid[UCT_UID_LEN];      /* of the sender */
    uint8_t              expected[UCT_UID_LEN]; /* of whom it wants to reach */
    uint64_t             message_max;           /* bytes of the longest message it will send */
    cpu_set_t            cpus;                  /* that the sender may run on */
} uct_mm_hello_t;

typedef struct {
    uint64_t length;  /* bytes */
    int32_t  shmid;   /* System V */
    uint32_t backing; /* uct_mm_backing_t; all but System V come with a descriptor */
} uct_mm_wire_segment_t;

typedef struct {
    uct_socket_message_t  head;
    int32_t               status;       /* ucs_status_t; if not UCS_OK the rest is zero */
    uint32_t              num_segments; /* the interface's first, then the ring's if another */
    uint32_t              lines;        /* shape of the ring */
    uint32_t              quantum;
    uint64_t              offset;       /* of the ring in its segment, bytes */
    uct_mm_wire_segment_t segments[2];
    uint64_t              buffers_length; /* of a memfd, whose descriptor comes last; 0: none */
    uint64_t              buffers_offset; /* of the ring's buffers there, bytes */
    uint64_t              wide_offset;    /* of its wide area, 0: none */
    uint64_t              is_small;       /* the area of buffers is UCT_MM_AREA_SMALL */
    cpu_set_t             cpus;           /* that the receiver may run on */
} uct_mm_welcome_t;

static_assert(sizeof(uct_mm_hello_t) == 176, "layout shared by processes");
static_assert(sizeof(uct_mm_welcome_t) == 224, "layout shared by processes");

/* The directory of the configuration. */
UCS_INLINE const char *uct_mm_socket_dir(const uct_mm_md_t *md)
{
    return ((const uct_mm_config_t *)md->super.config)->socket_dir;
}

/* Removes a name that is a file. */
void uct_mm_socket_unlink(const uct_mm_md_t *md, uint16_t place, uint64_t name);

/* Takes the socket out of the event set and closes it. Both explicitly, with a shutdown, because a
 * child that the application forked may hold a copy of the descriptor. No effect without one. */
void uct_mm_socket_close(uct_mm_iface_t *iface, uct_mm_source_t *source);

/* Adds a socket to the interface's event set. Returns 0 or -1. */
int uct_mm_socket_watch(uct_mm_iface_t *iface, uct_mm_source_t *source);

/* Sends what is said once, and nobody would miss: where the kernel has no memory for it, again a
 * few times, which blocks for 20 ms at most. Errors: see uct_socket_send. */
ucs_status_t uct_mm_socket_say(int fd, const void *data, size_t length);

/* Takes signals off a connection. Returns 0 when it has ended. */
int uct_mm_socket_drain(int fd);

/* Whether the end of file has been reached; takes nothing. */
int uct_mm_socket_is_ended(int fd);

/* Whether the other side (its CPUs: from a peer) may run where this one may. */
int uct_mm_is_rival(const cpu_set_t *own, const cpu_set_t *theirs);

/* Whether both run behind one cache, whichever of their CPUs they run on. */
int uct_mm_is_near(uct_mm_iface_t *iface, const cpu_set_t *own, const cpu_set_t *theirs);

/* What an error of a system call means for an endpoint. */
ucs_status_t uct_mm_socket_status(int error);

END_C_DECLS

#endif
