/* Halyard: listeners and connection requests: the public functions.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#define UCS_LOG_COMPONENT "ucp"
#include <ucp/wireup/sockaddr.h>
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>
#include <string.h>

static ucs_status_t ucp_listener_check(const ucp_listener_params_t *params)
{
    uint64_t mask = params->field_mask;
    int has_conn  = (mask & UCP_LISTENER_PARAM_FIELD_CONN_HANDLER) &&
                   (params->conn_handler.cb != NULL);
    int has_accept = (mask & UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER) &&
                     (params->accept_handler.cb != NULL);

    if (!(mask & UCP_LISTENER_PARAM_FIELD_SOCK_ADDR) || (params->sockaddr.addr == NULL) ||
        (ucp_sockaddr_length(params->sockaddr.addr) == 0) ||
        (params->sockaddr.addrlen < ucp_sockaddr_length(params->sockaddr.addr)) ||
        (has_conn == has_accept)) {
        ucs_error("ucp_listener_create: an address of IPv4 or IPv6 and one handler are needed");
        return UCS_ERR_INVALID_PARAM;
    }
    return UCS_OK;
}

ucs_status_t ucp_listener_create(ucp_worker_h worker, const ucp_listener_params_t *params,
                                 ucp_listener_h *listener_p)
{
    ucp_listener_h listener;
    ucs_status_t status;
    int fd;

    status = ucp_listener_check(params);
    if (status != UCS_OK) {
        return status;
    }
    listener = ucs_sys_calloc(1, sizeof(*listener));
    if (listener == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    listener->socket.handle = ucp_conn_accept_clients;
    if (params->field_mask & UCP_LISTENER_PARAM_FIELD_CONN_HANDLER) {
        listener->conn_handler = params->conn_handler;
    }
    if (params->field_mask & UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER) {
        listener->accept_handler = params->accept_handler;
    }

    ucp_worker_lock(worker);
    status = ucp_socket_open(worker, params->sockaddr.addr->sa_family, &params->sockaddr, &fd);
    if (status == UCS_OK) {
        if (ucs_sys_listen(fd, UCP_LISTEN_BACKLOG) != 0) {
            status = (errno == EADDRINUSE) ? UCS_ERR_BUSY : UCS_ERR_IO_ERROR;
            ucs_diag("cannot listen: %m");
        } else {
            status = ucp_socket_add(&listener->socket, worker, fd, EPOLLIN);
            if (status == UCS_OK) {
                ucp_sockets_keep_spare(worker->sockets);
            }
        }
        if (status != UCS_OK) {
            ucs_sys_close(fd);
        }
    }
    ucp_worker_unlock(worker);
    if (status != UCS_OK) {
        ucs_sys_free(listener);
        return status;
    }
    *listener_p = listener;
    return UCS_OK;
}

void ucp_listener_destroy(ucp_listener_h listener)
{
    ucp_worker_t *worker = listener->socket.worker;

    ucp_worker_lock(worker);
    ucp_conn_forget_listener(listener);
    ucp_socket_close(&listener->socket);
    ucs_sys_free(listener);
    ucp_worker_unlock(worker);
}

ucs_status_t ucp_listener_query(ucp_listener_h listener, ucp_listener_attr_t *attr)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);

    if (attr->field_mask & UCP_LISTENER_ATTR_FIELD_SOCKADDR) {
        memset(&address, 0, sizeof(address));
        if (ucs_sys_getsockname(listener->socket.fd, (struct sockaddr *)&address, &length) != 0) {
            ucs_error("cannot get the address of a listener: %m");
            return UCS_ERR_IO_ERROR;
        }
        attr->sockaddr = address;
    }
    return UCS_OK;
}

ucs_status_t ucp_listener_reject(ucp_listener_h listener, ucp_conn_request_h conn_request)
{
    (void)listener;
    ucp_conn_reject(conn_request, UCS_ERR_REJECTED);
    return UCS_OK;
}

ucs_status_t ucp_conn_request_query(ucp_conn_request_h conn_request, ucp_conn_request_attr_t *attr)
{
    if (attr->field_mask & UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR) {
        attr->client_address = conn_request->remote;
    }
    if (attr->field_mask & UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID) {
        attr->client_id = conn_request->client_id;
    }
    return UCS_OK;
}
