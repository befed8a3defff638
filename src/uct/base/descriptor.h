/* Halyard: descriptors for other processes of the node, over Unix sockets.
 *
 * Who owns a descriptor that others may have offers it under two numbers; who was told them, and
 * the name of a listening socket of the owner (a door), asks for it there:
 *     asker  connects, says GET_DESCRIPTOR
 *     owner  answers DESCRIPTOR, with the descriptor if it has one by these numbers, or ends the
 *            connection
 * The owner answers from the progress of the transport that listens. Nothing here blocks, so a
 * stopped owner is one that does not answer; a dead one ends the connection. Each side asks the
 * kernel whether the other runs as its own user.
 *
 * The functions do not log; they leave errno. Any thread.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_BASE_DESCRIPTOR_H
#define UCT_BASE_DESCRIPTOR_H

#include <ucs/ds/list.h>
#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

BEGIN_C_DECLS

#define UCT_SOCKET_MAGIC   0x4d6c6148u
#define UCT_SOCKET_VERSION 7

/* What is said on such sockets. */
typedef enum {
    UCT_SOCKET_HELLO = 1,      /* mm: mm_socket.h */
    UCT_SOCKET_WELCOME,
    UCT_SOCKET_GET_DESCRIPTOR, /* instead of HELLO */
    UCT_SOCKET_DESCRIPTOR      /* its answer */
} uct_socket_message_type_t;

/* What each message begins with. Fields are in the order of the machine: both ends run on it. */
typedef struct {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
} uct_socket_message_t;

/* GET_DESCRIPTOR. */
typedef struct {
    uct_socket_message_t head;
    uint64_t             domain;
    uint64_t             id;
} uct_descriptor_question_t;

/* ---- sockets ---- */

/* A listening socket has its name in a place, of which 16 bits tell: in the abstract namespace of a
 * network namespace (an even tag, 0 if unknown) or in a directory (an odd one). */
UCS_INLINE int uct_socket_place_is_dir(uint16_t place)
{
    return place & 1;
}

/* Address of the listening socket of that name in a place; dir: the path of a directory. Returns
 * its length, 0 where there is no such place (dir is "", or too long). */
socklen_t uct_socket_address(const char *dir, uint16_t place, uint64_t name,
                             struct sockaddr_un *address);

/* A non-blocking socket, or -1. */
int uct_socket_create(void);

/* The peer runs as our user, says the kernel. */
int uct_socket_is_ours(int fd);

/* Descriptors that one datagram carries at most. */
#define UCT_SOCKET_FDS_MAX 3

/* Sends one datagram, with `count` (0 to UCT_SOCKET_FDS_MAX) descriptors. UCS_ERR_NO_RESOURCE: not
 * now, the same may be sent later. The kernel lends no memory, or RLIMIT_NOFILE descriptors of our
 * user are on their way already, in whatever processes, until they are received; root may have any
 * number. UCS_ERR_CONNECTION_RESET: never. */
ucs_status_t uct_socket_send(int fd, const void *data, size_t length, const int *fds,
                             unsigned count);

/* Takes one datagram and its descriptors, of which the kernel closes those beyond
 * UCT_SOCKET_FDS_MAX; *count_p tells how many came. fds NULL: none are taken. Returns the bytes, 0
 * at the end of file, -1 and errno. */
ssize_t uct_socket_recv(int fd, void *data, size_t max, int fds[UCT_SOCKET_FDS_MAX],
                        unsigned *count_p);

/* ---- the owner ---- */

/* A listening socket that answers questions, in the object of who listens. */
typedef struct {
    ucs_list_link_t list;
    const void     *owner; /* whose it is */
    const uint8_t  *uid;   /* identity of the worker that answers */
    const char     *dir;   /* of the place, where that is one */
    uint64_t        name;
    uint16_t        place;
} uct_descriptor_door_t;

void uct_descriptor_open_door(uct_descriptor_door_t *door);
void uct_descriptor_close_door(uct_descriptor_door_t *door);

/* Where to ask for this process's descriptors: at the door of a worker (uid may be NULL), else at
 * one of the owner (may be NULL), else at any; *name_p 0: there is none. */
void uct_descriptor_where(const void *owner, const uint8_t *uid, uint64_t *name_p,
                          uint16_t *place_p);

/* A descriptor on offer, in the object that has it. */
typedef struct {
    ucs_list_link_t list;
    uint64_t        domain;
    uint64_t        id;
    uint64_t        length; /* told with it */
    int             fd;
} uct_descriptor_offer_t;

void uct_descriptor_offer(uct_descriptor_offer_t *offer);
void uct_descriptor_withdraw(uct_descriptor_offer_t *offer);

/* Reads the first message of a connection; 0: it is no question. */
int uct_descriptor_hear(const void *message, size_t length, uct_descriptor_question_t *question_p);

/* Answers it; see uct_socket_send. The asker ends the connection when it has the answer, the owner
 * if there will be none: then the asker goes on without. */
ucs_status_t uct_descriptor_answer(int fd, const uct_descriptor_question_t *question);

/* From now on the lists are locked over each fork: they are whole in the child, where callbacks of
 * ucs_fork_watch_add take what they have in them out by hand (ucs_list_del). Call after that, since
 * the lists are unlocked afterwards then, and before pthread_atfork for a lock inside which the
 * functions here are called, since that is taken first then. */
void uct_descriptor_guard_fork(void);

/* ---- the asker ---- */

/* Asks; the connection on which the answer comes, or -1 (EAGAIN: many ask at once). */
int uct_descriptor_ask(uint64_t name, uint16_t place, uint64_t domain, uint64_t id);

/* Whoever has asked ends the connection, which is -1 then. */
void uct_descriptor_hang_up(int *connection_p);

/* Takes the answer: UCS_OK, a descriptor and its length; UCS_ERR_NO_RESOURCE: it is not there yet;
 * UCS_ERR_UNREACHABLE: there is none. The connection is closed, and -1, unless it goes on. */
ucs_status_t uct_descriptor_listen(int *connection_p, int *fd_p, uint64_t *length_p);

END_C_DECLS

#endif
