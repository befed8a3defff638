/* Halyard: simulator: listeners, and endpoints made by socket addresses.
 *
 * A client's endpoint and the one that the server makes of its request belong together: when one of
 * them is closed the other fails. Until both are there anything may fail.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>

namespace sim {

namespace {

struct sockaddr_in address_of(uint16_t port)
{
    struct sockaddr_in addr = {};

    addr.sin_family      = AF_INET;
    addr.sin_port        = htons(port);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return addr;
}

void add_endpoint(worker &w, std::unique_ptr<endpoint> e)
{
    e->index   = (unsigned)w.eps.size();
    e->ordinal = UINT32_MAX; /* of no pair that others could count */
    e->made_at = the_world->ops.size();
    w.eps.push_back(std::move(e));
}

void decide(worker &w, ucp_conn_request_h request)
{
    ucp_conn_request_attr_t attr;
    ucp_ep_params_t params;

    attr.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR |
                      UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID;
    ucp_conn_request_query(request, &attr);
    const auto *addr = reinterpret_cast<const struct sockaddr_in *>(&attr.client_address);
    const auto pos   = the_world->links.find(ntohs(addr->sin_port));
    if ((pos == the_world->links.end()) || (pos->second->client + 1 != attr.client_id)) {
        sim_fail("worker %u gets a connection request of nobody", w.number);
        return;
    }
    const auto &l = pos->second;
    if (sim_chance(0.2)) {
        sim_event("reject", w.number, l->client, 0);
        ucp_listener_reject(w.listener, request);
        return;
    }
    auto e            = std::make_unique<endpoint>();
    e->owner          = &w;
    e->peer           = l->client;
    e->link_to        = l;
    e->err_mode       = sim_chance(0.6) ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
    memset(&params, 0xee, sizeof(params));
    params.field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = request;
    endpoint_set_errors(*e, &params);
    const ucs_status_t status = ucp_ep_create(w.handle, &params, &e->handle);
    sim_event("accept", w.number, l->client, (uint64_t)-status);
    if (status == UCS_OK) {
        l->is_accepted = true;
        add_endpoint(w, std::move(e));
    } else if (!is_wounded(w.number, l->client) && !l->is_ended) {
        sim_fail("worker %u cannot accept %u: %s", w.number, l->client,
                 ucs_status_string(status));
    }
}

void on_request(ucp_conn_request_h request, void *arg)
{
    auto &w = *static_cast<worker *>(arg);

    if (w.state == life::ALIVE) {
        w.requests.push_back(request);
        sim_event("request", w.number, w.requests.size(), 0);
    }
}

} // namespace

void post_listener(worker &w)
{
    const struct sockaddr_in any = address_of(0);
    ucp_listener_params_t params;
    ucp_listener_attr_t attr;

    if (w.listener != nullptr) {
        if (sim_chance(0.1) && w.requests.empty()) {
            sim_event("listener ends", w.number, 0, 0);
            ucp_listener_destroy(w.listener);
            w.listener = nullptr;
            w.port     = 0;
        }
        return;
    }
    memset(&params, 0xee, sizeof(params));
    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.sockaddr   = {reinterpret_cast<const struct sockaddr *>(&any), sizeof(any)};
    params.conn_handler.cb  = on_request;
    params.conn_handler.arg = &w;
    if (ucp_listener_create(w.handle, &params, &w.listener) != UCS_OK) {
        if (!w.lacked_memory) {
            sim_fail("worker %u cannot listen", w.number);
        }
        w.listener = nullptr;
        return;
    }
    attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    ucp_listener_query(w.listener, &attr);
    w.port = ntohs(reinterpret_cast<const struct sockaddr_in *>(&attr.sockaddr)->sin_port);
    sim_event("listener", w.number, w.port, 0);
}

void post_client(worker &w)
{
    const unsigned peer = peer_random(w);
    const uint16_t port = the_world->workers[peer]->port;
    ucp_ep_params_t params;

    if ((w.eps.size() >= 60) || (peer == w.number) || ((port == 0) && sim_chance(0.8))) {
        return;
    }
    const struct sockaddr_in addr = address_of((port != 0) ? port : 9);
    auto e                        = std::make_unique<endpoint>();
    e->owner                      = &w;
    e->peer                       = peer;
    e->link_to                    = std::make_shared<conn_link>();
    e->link_to->client            = w.number;
    e->err_mode = sim_chance(0.6) ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
    memset(&params, 0xee, sizeof(params));
    params.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
    params.flags      = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID;
    params.sockaddr   = {reinterpret_cast<const struct sockaddr *>(&addr), sizeof(addr)};
    endpoint_set_errors(*e, &params);
    const ucs_status_t status = ucp_ep_create(w.handle, &params, &e->handle);
    sim_event("client", w.number, peer, (uint64_t)-status);
    if (status == UCS_OK) {
        the_world->links[sim_tcp_last_port()] = e->link_to;
        add_endpoint(w, std::move(e));
    } else if (!w.lacked_memory) {
        sim_fail("worker %u gets no endpoint to a server: %s", w.number,
                 ucs_status_string(status));
    }
}

void post_decide(worker &w)
{
    if (!w.requests.empty()) {
        const ucp_conn_request_h request = w.requests.front();
        w.requests.pop_front();
        decide(w, request);
    }
}

unsigned decide_all(worker &w)
{
    const auto count = (unsigned)w.requests.size();

    while (!w.requests.empty()) {
        post_decide(w);
    }
    return count;
}

bool may_break(const endpoint &e)
{
    return e.is_forced || is_wounded(e.owner->number, e.peer) ||
           ((e.link_to != nullptr) && (!e.link_to->is_accepted || e.link_to->is_ended));
}

} // namespace sim
