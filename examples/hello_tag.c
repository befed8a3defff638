/* Halyard: a first program. Two processes greet each other with tagged messages.
 *
 *   gcc hello_tag.c -o hello_tag $(pkg-config --cflags --libs ucx) && ./hello_tag
 *
 * What every program does, in this order:
 *   1. ucp_init()            a context: the machine's transports
 *   2. ucp_worker_create()   a worker: what sends, receives and makes progress
 *   3. ucp_worker_get_address(), and carry these bytes to the peer by any means
 *   4. ucp_ep_create()       an endpoint: the way to one peer, from the address it sent
 *   5. ucp_tag_send_nbx(), ucp_tag_recv_nbx(), and ucp_worker_progress() until they are complete
 *   6. close the endpoint, destroy the worker, clean up the context
 * Here the two processes are parent and child, and a socket pair carries the addresses.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/api/ucp.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define GREETING_MAX 64

/* A receive takes messages whose tag agrees with its own in the bits of the mask. */
#define TAG_GREETING UINT64_C(0x48690001)
#define TAG_MASK_ALL UINT64_MAX

/* Every function returns a status; this program simply ends when one is not UCS_OK. */
static void check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
        exit(1);
    }
}

static void check_io(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

/* A non-blocking operation returns NULL when it is complete already, an error as a pointer, or a
 * request. The request completes while somebody calls ucp_worker_progress(); then it is freed. */
static void finish(ucp_worker_h worker, void *request, const char *what)
{
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        check(UCS_PTR_STATUS(request), what);
        return;
    }

    do {
        ucp_worker_progress(worker);
        status = ucp_request_check_status(request);
    } while (status == UCS_INPROGRESS);
    ucp_request_free(request);
    check(status, what);
}

static ucp_context_h create_context(void)
{
    /* The field mask says which members are set; all others have their defaults. */
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES,
        .features   = UCP_FEATURE_TAG,
    };
    ucp_context_h context;

    /* NULL: configuration from the environment (UCX_...) and from ucx.conf */
    check(ucp_init(&params, NULL, &context), "ucp_init");
    return context;
}

static ucp_worker_h create_worker(ucp_context_h context)
{
    const ucp_worker_params_t params = {
        .field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SINGLE, /* only this thread will use the worker */
    };
    ucp_worker_h worker;

    check(ucp_worker_create(context, &params, &worker), "ucp_worker_create");
    return worker;
}

/* Sends this worker's address through the socket, reads the peer's, and makes the endpoint. */
static ucp_ep_h connect_to_peer(ucp_worker_h worker, int socket)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t *own_address;
    void *peer_address;
    size_t length;
    ucp_ep_h ep;

    check(ucp_worker_get_address(worker, &own_address, &length), "ucp_worker_get_address");
    check_io(write(socket, &length, sizeof(length)) == sizeof(length), "write");
    check_io(write(socket, own_address, length) == (ssize_t)length, "write");
    ucp_worker_release_address(worker, own_address);

    check_io(recv(socket, &length, sizeof(length), MSG_WAITALL) == sizeof(length), "recv");
    peer_address = malloc(length);
    check_io(peer_address != NULL, "malloc");
    check_io(recv(socket, peer_address, length, MSG_WAITALL) == (ssize_t)length, "recv");

    params.address = peer_address;
    check(ucp_ep_create(worker, &params, &ep), "ucp_ep_create");
    free(peer_address);
    return ep;
}

static void send_greeting(ucp_worker_h worker, ucp_ep_h ep, const char *name)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};
    char text[GREETING_MAX];

    snprintf(text, sizeof(text), "hello from the %s", name);

    /* The buffer must stay as it is until the send is complete. */
    finish(worker, ucp_tag_send_nbx(ep, text, strlen(text) + 1, TAG_GREETING, &param),
           "ucp_tag_send_nbx");
}

static void receive_greeting(ucp_worker_h worker, const char *name)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};
    char text[GREETING_MAX]         = "";

    /* A receive names the worker and not an endpoint: the message may come from anyone. So it waits
     * on though the peer has died; client_server.c hears of that by an error handler. */
    finish(worker,
           ucp_tag_recv_nbx(worker, text, sizeof(text), TAG_GREETING, TAG_MASK_ALL, &param),
           "ucp_tag_recv_nbx");
    printf("%s received: %s\n", name, text);
    fflush(stdout);
}

/* What both processes do; the parent speaks first. */
static void converse(int socket, const char *name, int speaks_first)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};
    ucp_context_h context           = create_context();
    ucp_worker_h worker             = create_worker(context);
    ucp_ep_h ep                     = connect_to_peer(worker, socket);

    if (speaks_first) {
        send_greeting(worker, ep, name);
        receive_greeting(worker, name);
    } else {
        receive_greeting(worker, name);
        send_greeting(worker, ep, name);
    }

    /* Closing waits until all that was sent has left. */
    finish(worker, ucp_ep_close_nbx(ep, &param), "ucp_ep_close_nbx");
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

int main(void)
{
    int sockets[2], child_status;
    pid_t child;

    check_io(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");

    /* Fork first: a context belongs to the process that made it. */
    child = fork();
    check_io(child >= 0, "fork");
    if (child == 0) {
        close(sockets[0]);
        converse(sockets[1], "child", 0);
        return 0;
    }

    close(sockets[1]);
    converse(sockets[0], "parent", 1);
    check_io(waitpid(child, &child_status, 0) == child, "waitpid");
    return !(WIFEXITED(child_status) && (WEXITSTATUS(child_status) == 0));
}
