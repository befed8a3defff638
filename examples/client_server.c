/* Halyard: a server and a client that know no more of each other than a socket address.
 *
 *   gcc client_server.c -o client_server $(pkg-config --cflags --libs ucx)
 *   ./client_server                  both, as parent and child, on this machine
 *   ./client_server -l PORT          the server
 *   ./client_server ADDRESS PORT     the client
 *
 * What is different from hello_tag.c, where worker addresses are carried by hand:
 *   server  ucp_listener_create(); its handler is given a connection request; ucp_ep_create()
 *           accepts it (ucp_listener_reject() would refuse)
 *   client  ucp_ep_create() with the server's socket address; what is sent at once waits until the
 *           server has accepted
 *   both    an error handler, since the other side may be closed or die at any time
 * The socket is for the introduction only; messages take the fastest way there is.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/api/ucp.h>

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_MAX     64
#define TAG_QUESTION UINT64_C(1)
#define TAG_ANSWER   UINT64_C(2)

typedef struct {
    ucp_context_h      context;
    ucp_worker_h       worker;
    ucp_ep_h           ep;
    ucp_conn_request_h request; /* server: the client that asked */
    ucs_status_t       status;  /* what the error handler was told */
} program_t;

static void check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
        exit(1);
    }
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    program_t *program = arg;

    (void)ep; /* still ours to close */
    program->status = status;
}

/* Runs inside ucp_worker_progress(): only notes the request. */
static void on_client(ucp_conn_request_h request, void *arg)
{
    program_t *program = arg;

    program->request = request;
}

static void start(program_t *program)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features   = UCP_FEATURE_TAG};
    const ucp_worker_params_t worker_params = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                               .thread_mode = UCS_THREAD_MODE_SINGLE};

    memset(program, 0, sizeof(*program));
    check(ucp_init(&params, NULL, &program->context), "ucp_init");
    check(ucp_worker_create(program->context, &worker_params, &program->worker),
          "ucp_worker_create");
}

static void stop(program_t *program)
{
    ucp_worker_destroy(program->worker);
    ucp_cleanup(program->context);
}

static void finish(program_t *program, void *request, const char *what)
{
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        check(UCS_PTR_STATUS(request), what);
        return;
    }
    do {
        ucp_worker_progress(program->worker);
        if (program->status != UCS_OK) {
            /* a receive would wait on: its message may come from anyone */
            ucp_request_cancel(program->worker, request);
        }
        status = ucp_request_check_status(request);
    } while (status == UCS_INPROGRESS);
    ucp_request_free(request);
    check(status, what);
}

static void send_text(program_t *program, const char *text, ucp_tag_t tag)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};

    finish(program, ucp_tag_send_nbx(program->ep, text, strlen(text) + 1, tag, &param),
           "ucp_tag_send_nbx");
}

static void receive_text(program_t *program, const char *name, ucp_tag_t tag)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};
    char text[TEXT_MAX]             = "";

    finish(program,
           ucp_tag_recv_nbx(program->worker, text, sizeof(text), tag, UINT64_MAX, &param),
           "ucp_tag_recv_nbx");
    printf("%s received: %s\n", name, text);
    fflush(stdout);
}

/* The fields that both sides set. */
static ucp_ep_params_t ep_params(program_t *program)
{
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_error, .arg = program}
    };

    return params;
}

/* Serves one client. port_fd: where to tell the port that was chosen, or -1. */
static void serve(uint16_t port, int port_fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    const ucp_request_param_t param = {.op_attr_mask = 0};
    ucp_listener_attr_t attr        = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucp_listener_params_t listener_params;
    ucp_listener_h listener;
    ucp_ep_params_t params;
    program_t program;

    start(&program);
    listener_params.field_mask =
        UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    listener_params.sockaddr.addr    = (const struct sockaddr *)&address;
    listener_params.sockaddr.addrlen = sizeof(address);
    listener_params.conn_handler.cb  = on_client;
    listener_params.conn_handler.arg = &program;
    check(ucp_listener_create(program.worker, &listener_params, &listener),
          "ucp_listener_create");
    check(ucp_listener_query(listener, &attr), "ucp_listener_query");
    memcpy(&address, &attr.sockaddr, sizeof(address));
    port = ntohs(address.sin_port);
    if (port_fd >= 0) {
        if (write(port_fd, &port, sizeof(port)) != sizeof(port)) {
            perror("write");
        }
    } else {
        printf("server listens on port %u\n", port);
        fflush(stdout);
    }

    while (program.request == NULL) {
        ucp_worker_progress(program.worker);
    }
    params              = ep_params(&program);
    params.field_mask  |= UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = program.request;
    check(ucp_ep_create(program.worker, &params, &program.ep), "ucp_ep_create");

    receive_text(&program, "server", TAG_QUESTION);
    send_text(&program, "as the wind blows", TAG_ANSWER);

    /* The client closes when it has its answer, which the error handler hears as a reset. */
    while (program.status == UCS_OK) {
        ucp_worker_progress(program.worker);
    }
    printf("server: %s\n", ucs_status_string(program.status));
    finish(&program, ucp_ep_close_nbx(program.ep, &param), "ucp_ep_close_nbx");
    ucp_listener_destroy(listener);
    stop(&program);
}

static void ask(const char *host, uint16_t port)
{
    struct sockaddr_in address      = {.sin_family = AF_INET, .sin_port = htons(port)};
    const ucp_request_param_t param = {.op_attr_mask = 0};
    ucp_ep_params_t params;
    program_t program;

    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        fprintf(stderr, "%s is no address such as 127.0.0.1\n", host);
        exit(1);
    }
    start(&program);
    params                  = ep_params(&program);
    params.field_mask      |= UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
    params.flags            = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    params.sockaddr.addr    = (const struct sockaddr *)&address;
    params.sockaddr.addrlen = sizeof(address);
    check(ucp_ep_create(program.worker, &params, &program.ep), "ucp_ep_create");

    send_text(&program, "where to?", TAG_QUESTION); /* fails if nobody accepts */
    receive_text(&program, "client", TAG_ANSWER);
    finish(&program, ucp_ep_close_nbx(program.ep, &param), "ucp_ep_close_nbx");
    stop(&program);
}

static int both(void)
{
    uint16_t port = 0;
    int fds[2], child_status;
    pid_t child;

    if ((pipe(fds) != 0) || ((child = fork()) < 0)) {
        perror("pipe or fork");
        return 1;
    }
    if (child == 0) {
        serve(0, fds[1]);
        return 0;
    }
    if (read(fds[0], &port, sizeof(port)) != sizeof(port)) {
        perror("read");
        return 1;
    }
    ask("127.0.0.1", port);
    return (waitpid(child, &child_status, 0) != child) || !WIFEXITED(child_status) ||
           (WEXITSTATUS(child_status) != 0);
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        return both();
    }
    if (argc != 3) {
        fprintf(stderr, "usage: %s [-l PORT | ADDRESS PORT]\n", argv[0]);
        return 2;
    }
    if (strcmp(argv[1], "-l") == 0) {
        serve((uint16_t)atoi(argv[2]), -1);
    } else {
        ask(argv[1], (uint16_t)atoi(argv[2]));
    }
    return 0;
}
