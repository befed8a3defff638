/* Halyard: wire-up: a worker's door.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/core/provisional.h>
#include <ucp/wireup/door.h>
#include <ucp/wireup/lanes.h>
#include <ucp/wireup/net.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <string.h>

#define UCP_DOOR_NAME    "door"
#define UCP_DOOR_PLACES  6
#define UCP_DOOR_SEEKERS 256 /* under way: each takes a descriptor */

_Static_assert(2 + (UCP_DOOR_PLACES * (1 + sizeof(struct in6_addr))) <= UCP_DOOR_MAX,
               "all places fit");

/* ---- opening ---- */

/* Bytes of an address of the family that other nodes may know; 0: it is none. */
static uint8_t ucp_door_place(const struct ifaddrs *entry, int family, const void **bytes_p)
{
    const struct sockaddr_in6 *addr6 = (const void *)entry->ifa_addr;
    const struct sockaddr_in *addr4  = (const void *)entry->ifa_addr;

    if ((entry->ifa_addr == NULL) || (entry->ifa_addr->sa_family != family) ||
        !(entry->ifa_flags & IFF_UP) || (entry->ifa_flags & IFF_LOOPBACK)) {
        return 0;
    }
    if (family == AF_INET) {
        *bytes_p = &addr4->sin_addr;
        return sizeof(addr4->sin_addr);
    }
    *bytes_p = &addr6->sin6_addr;
    return IN6_IS_ADDR_LINKLOCAL(&addr6->sin6_addr) ? 0 : sizeof(addr6->sin6_addr);
}

/* Notes the places where a door is that listens at a port: those of IPv4 first. */
static void ucp_door_set_places(ucp_listener_h door, uint16_t port, int has_ipv6)
{
    const int families[] = {AF_INET, AF_INET6};
    unsigned count       = 0;
    struct ifaddrs *all, *entry;
    const void *bytes;
    uint8_t length;
    int i;

    if (ucs_sys_getifaddrs(&all) != 0) {
        return;
    }
    memcpy(door->places, &port, sizeof(port));
    door->num_places = sizeof(port);
    for (i = 0; i <= has_ipv6; ++i) {
        for (entry = all; (entry != NULL) && (count < UCP_DOOR_PLACES); entry = entry->ifa_next) {
            length = ucp_door_place(entry, families[i], &bytes);
            if (length > 0) {
                door->places[door->num_places] = length;
                memcpy(&door->places[door->num_places + 1], bytes, length);
                door->num_places += 1u + length;
                ++count;
            }
        }
    }
    freeifaddrs(all);
    door->num_places = (count > 0) ? door->num_places : 0;
}

/* A socket that listens at all addresses of the host; -1: there is none. */
static int ucp_door_listen(int family, uint16_t *port_p)
{
    const int no             = 0;
    struct sockaddr_in6 addr = {.sin6_family = AF_UNSPEC};
    socklen_t length         = sizeof(addr);
    int fd;

    fd = ucs_sys_socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0) {
        return -1;
    }
    if (((family == AF_INET6) &&
         (ucs_sys_setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no)) != 0)) ||
        (ucs_sys_listen(fd, UCP_LISTEN_BACKLOG) != 0) || /* which also binds it, to any port */
        (ucs_sys_getsockname(fd, (struct sockaddr *)&addr, &length) != 0)) {
        ucs_sys_close(fd);
        return -1;
    }
    *port_p = ntohs(addr.sin6_port); /* of IPv4 at the same place */
    return fd;
}

static ucp_listener_h ucp_door_create(ucp_worker_t *worker)
{
    ucp_listener_h door = ucs_sys_calloc(1, sizeof(*door));
    int has_ipv6        = 1;
    uint16_t port       = 0;
    int fd;

    if (door == NULL) {
        return NULL;
    }
    fd = ucp_door_listen(AF_INET6, &port);
    if (fd < 0) {
        has_ipv6 = 0;
        fd       = ucp_door_listen(AF_INET, &port);
    }
    if (fd >= 0) {
        ucp_door_set_places(door, port, has_ipv6);
        door->socket.handle = ucp_conn_accept_clients;
        if ((door->num_places > 0) &&
            (ucp_socket_add(&door->socket, worker, fd, EPOLLIN) == UCS_OK)) {
            ucp_sockets_keep_spare(worker->sockets);
            return door;
        }
        ucs_sys_close(fd);
    }
    ucs_sys_free(door);
    return NULL;
}

/* Is there a network that has not been opened? With a door (else NULL), says how it will be. */
static int ucp_door_leads(ucp_worker_t *worker, const struct ucp_listener *door)
{
    int is_there = 0;
    uint16_t port;
    unsigned i;

    for (i = 0; i < worker->context->num_tls; ++i) {
        if ((worker->context->tls[i].tl->kind != UCT_TL_KIND_NET) || worker->tls[i].is_tried) {
            continue;
        }
        is_there = 1;
        if (door != NULL) {
            memcpy(&port, door->places, sizeof(port));
            snprintf(worker->tls[i].reason, UCT_REASON_MAX,
                     "not needed yet: other nodes will ask for it at TCP port %u", port);
        }
    }
    return is_there;
}

/* Will keys of memory have to tell of its registration with a network? */
static int ucp_door_needs_keys(const ucp_worker_t *worker)
{
    return (worker->context->features & UCP_FEATURE_RMA) && ucp_net_has_rdma();
}

int ucp_door_open(ucp_worker_t *worker)
{
    int has_net, is_open;

    ucp_worker_lock(worker);
    has_net = ucp_door_leads(worker, NULL);
    if (has_net && (worker->door == NULL) && !ucp_door_needs_keys(worker)) {
        worker->door = ucp_door_create(worker);
        (void)ucp_door_leads(worker, worker->door);
    }
    is_open = !has_net || (worker->door != NULL);
    ucp_worker_unlock(worker);
    return is_open;
}

ucp_address_entry_t ucp_door_entry(ucp_listener_h door)
{
    return (ucp_address_entry_t){ucp_address_wire_id(UCP_DOOR_NAME), (uint8_t)door->num_places,
                                 door->places};
}

/* ---- telling ---- */

void ucp_door_tell(ucp_worker_t *worker, int fd)
{
    ucp_wire_conn_t head = {.type = UCP_WIRE_CONN_ACCEPT};

    (void)ucp_conn_send_address(worker, fd, 1, &head);
    ucs_sys_close(fd);
}

/* ---- seekers ---- */

/* Does the user wait for something on its endpoints? */
static int ucp_door_is_waited_for(const ucp_peer_t *sought)
{
    const ucp_ep_t *ep;

    ucs_list_for_each(ep, &sought->eps, peer_list) {
        if (!ucs_list_is_empty(&ep->requests)) {
            return !sought->worker->is_inherited;
        }
    }
    return 0;
}

/* It is no seeker any more; others may be one instead. */
static void ucp_door_left(ucp_conn_t *conn)
{
    ucs_list_del(&conn->seekers);
    --conn->socket.worker->sockets->num_seekers;
    ucp_successors_rouse(conn->socket.worker);
}

void ucp_door_in_vain(ucp_conn_t *conn, ucs_status_t status)
{
    ucp_sockets_t *sockets = conn->socket.worker->sockets;
    ucp_peer_t *sought     = conn->sought;

    ucp_door_left(conn);
    ucp_conn_free(conn);
    ucs_list_for_each(conn, &sockets->seekers, seekers) {
        if (conn->sought == sought) {
            return;
        }
    }
    ucs_log(ucp_door_is_waited_for(sought) ? UCS_LOG_LEVEL_ERROR : UCS_LOG_LEVEL_DIAG,
            "no answer at the places where an address says that its worker tells of its network: "
            "%s (with UCX_NET_ADDRESS=y there its addresses tell it themselves)",
            ucs_status_string(status));
    uct_ep_set_failed(sought->lanes[UCP_LANE_AM], status); /* the rest from progress */
}

void ucp_door_found(ucp_conn_t *conn, const ucp_address_info_t *info, ucs_status_t status)
{
    /* Another worker may listen at a place that many hosts have. */
    if (status == UCS_OK) {
        status = (memcmp(info->uid, conn->sought->real_uid, UCT_UID_LEN) == 0) ?
                 ucp_successor_found(conn->sought, ucp_conn_address(conn)) : UCS_ERR_UNREACHABLE;
    }
    if (status == UCS_OK) {
        ucp_door_leave(conn->sought); /* nor by this one */
    } else {
        ucp_conn_fail(conn, status);
    }
}

/* Its kernel is to say whether the host is still there, however long the worker computes. */
static void ucp_door_keep_alive(int fd)
{
    static const int options[][3] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                                     {IPPROTO_TCP, TCP_KEEPIDLE, 2},
                                     {IPPROTO_TCP, TCP_KEEPINTVL, 1},
                                     {IPPROTO_TCP, TCP_KEEPCNT, 3}};
    size_t i;

    for (i = 0; i < ucs_array_size(options); ++i) {
        (void)ucs_sys_setsockopt(fd, options[i][0], options[i][1], &options[i][2], sizeof(int));
    }
}

/* One that goes to a place of the door; is_elsewhere: the worker is on another node, and so not
 * where an address of this one leads. */
static ucs_status_t ucp_door_seek(ucp_peer_t *sought, const struct sockaddr *where,
                                  int is_elsewhere)
{
    ucs_status_t status;
    ucp_conn_t *conn;
    int error;

    status = ucp_conn_dial(sought->worker, where, NULL, &conn, &error);
    if (status != UCS_OK) {
        return status;
    }
    if ((error != 0) || (is_elsewhere && !conn->is_far)) {
        ucp_socket_close(&conn->socket);
        ucp_conn_free(conn);
        return (error != 0) ? ucp_socket_status(error) : UCS_ERR_UNREACHABLE;
    }
    ucp_door_keep_alive(conn->socket.fd);
    conn->sought = sought;
    ucs_list_add_tail(&sought->worker->sockets->seekers, &conn->seekers);
    ++sought->worker->sockets->num_seekers;
    ucp_conn_start_clock(conn);
    return UCS_OK;
}

void ucp_door_leave(ucp_peer_t *sought)
{
    ucp_sockets_t *sockets = sought->worker->sockets;
    ucp_conn_t *conn, *next;

    if (sockets == NULL) {
        return;
    }
    ucs_list_for_each_safe(conn, next, &sockets->seekers, seekers) {
        if (conn->sought == sought) {
            ucp_door_left(conn);
            ucp_conn_set_state(conn, UCP_CONN_CLOSED);
            ucp_socket_close(&conn->socket);
            ucp_conn_free(conn);
        }
    }
}

/* ---- asking ---- */

static const ucp_address_entry_t *ucp_door_find(const ucp_address_info_t *address)
{
    return ucp_address_find(address, ucp_address_wire_id(UCP_DOOR_NAME));
}

int ucp_door_is_in(const ucp_address_info_t *address)
{
    return ucp_door_find(address) != NULL;
}

int ucp_door_is_needed(const ucp_worker_t *worker, const ucp_address_info_t *address)
{
    return ucp_door_is_in(address) && ucp_lanes_lack_net(worker, address) &&
           !ucp_lanes_are_near(worker, address);
}

/* Takes the next place from *bytes_p, which ends at `end`; 0: there is no more. */
static int ucp_door_next(const uint8_t **bytes_p, const uint8_t *end, uint16_t port,
                         struct sockaddr_storage *where)
{
    struct sockaddr_in6 *addr6 = (struct sockaddr_in6 *)where;
    struct sockaddr_in *addr4  = (struct sockaddr_in *)where;
    const uint8_t *bytes       = *bytes_p;

    if ((bytes == end) || (end - bytes - 1 < bytes[0])) {
        return 0;
    }
    memset(where, 0, sizeof(*where));
    if (bytes[0] == sizeof(addr4->sin_addr)) {
        addr4->sin_family = AF_INET;
        addr4->sin_port   = htons(port);
        memcpy(&addr4->sin_addr, bytes + 1, bytes[0]);
    } else if (bytes[0] == sizeof(addr6->sin6_addr)) {
        addr6->sin6_family = AF_INET6;
        addr6->sin6_port   = htons(port);
        memcpy(&addr6->sin6_addr, bytes + 1, bytes[0]);
    } else {
        return 0;
    }
    *bytes_p = bytes + 1 + bytes[0];
    return 1;
}

ucs_status_t ucp_door_knock(ucp_peer_t *sought, const ucp_address_info_t *address)
{
    const ucp_address_entry_t *entry = ucp_door_find(address);
    const uint8_t *end               = entry->bytes + entry->length;
    const int is_elsewhere           = (address->node_id != sought->worker->context->node_id);
    const ucp_sockets_t *sockets     = sought->worker->sockets;
    const unsigned num_seekers       = (sockets != NULL) ? sockets->num_seekers : 0;
    ucs_status_t result              = UCS_ERR_UNREACHABLE;
    struct sockaddr_storage where;
    const uint8_t *bytes;
    ucs_status_t status;
    uint16_t port;
    unsigned i;

    if (num_seekers >= UCP_DOOR_SEEKERS) {
        return UCS_ERR_BUSY;
    }
    if (entry->length < sizeof(port)) {
        ucs_error("ucp_ep_create: this worker address is damaged");
        return UCS_ERR_INVALID_ADDR;
    }
    memcpy(&port, entry->bytes, sizeof(port));
    bytes = entry->bytes + sizeof(port);
    for (i = 0; (i < UCP_DOOR_PLACES) && ucp_door_next(&bytes, end, port, &where); ++i) {
        status = ucp_door_seek(sought, (struct sockaddr *)&where, is_elsewhere);
        result = (result == UCS_OK) ? UCS_OK : status;
    }
    if ((result == UCS_ERR_EXCEEDS_LIMIT) && (num_seekers > 0)) {
        return UCS_ERR_BUSY;
    }
    if (result != UCS_OK) {
        ucs_error("no way leads to any of the %u places where a worker tells of its network: %s",
                  i, ucs_status_string(result));
    }
    return result;
}
