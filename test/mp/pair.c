/* Halyard: two processes exchange messages of many sizes, each byte checked: a plain program for
 * the tests that change what is around it (another malloc, valgrind, the environment).
 *
 *   pair [ROUNDS]      (default 3)
 *
 * Exit status: 0 all messages were right, 1 not, 2 the library gave an error before any message.
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

#define EXIT_WRONG   1
#define EXIT_NOT_HAD 2
#define LENGTH_MAX   ((size_t)600000)
#define TIME_LIMIT_S 150 /* more than who starts it waits */

typedef struct {
    ucp_context_h context;
    ucp_worker_h  worker;
    ucp_ep_h      ep;
    uint8_t      *out, *in;
} side_t;

static void give_up(int code, const char *what, ucs_status_t status)
{
    fprintf(stderr, "pair: %s: %s\n", what, ucs_status_string(status));
    _exit(code);
}

static uint8_t byte_of(size_t i, size_t length, int from)
{
    return (uint8_t)((i * 167) + (i >> 8) + length + (size_t)from);
}

static void open_side(side_t *side)
{
    const ucp_params_t params               = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                               .features   = UCP_FEATURE_TAG};
    const ucp_worker_params_t worker_params = {.field_mask = 0};
    ucs_status_t status;

    status = ucp_init(&params, NULL, &side->context);
    if (status != UCS_OK) {
        give_up(EXIT_NOT_HAD, "ucp_init", status);
    }
    status = ucp_worker_create(side->context, &worker_params, &side->worker);
    if (status != UCS_OK) {
        give_up(EXIT_NOT_HAD, "ucp_worker_create", status);
    }
    side->out = malloc(LENGTH_MAX);
    side->in  = malloc(LENGTH_MAX);
    if ((side->out == NULL) || (side->in == NULL)) {
        give_up(EXIT_NOT_HAD, "malloc", UCS_ERR_NO_MEMORY);
    }
}

static void connect_side(side_t *side, int fd)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t *address;
    uint8_t peer[4096];
    ucs_status_t status;
    size_t length;

    status = ucp_worker_get_address(side->worker, &address, &length);
    if ((status != UCS_OK) || (send(fd, address, length, MSG_NOSIGNAL) != (ssize_t)length)) {
        give_up(EXIT_NOT_HAD, "address", status);
    }
    ucp_worker_release_address(side->worker, address);
    if (recv(fd, peer, sizeof(peer), 0) <= 0) {
        give_up(EXIT_NOT_HAD, "the other side has ended", UCS_ERR_CONNECTION_RESET);
    }
    params.address = (const ucp_address_t *)peer;
    status         = ucp_ep_create(side->worker, &params, &side->ep);
    if (status != UCS_OK) {
        give_up(EXIT_NOT_HAD, "ucp_ep_create", status);
    }
}

static void finish(side_t *side, ucs_status_ptr_t request, const char *what)
{
    ucs_status_t status = UCS_OK;

    if (UCS_PTR_IS_ERR(request)) {
        give_up(EXIT_WRONG, what, UCS_PTR_STATUS(request));
    }
    if (request != NULL) {
        do {
            ucp_worker_progress(side->worker);
            status = ucp_request_check_status(request);
        } while (status == UCS_INPROGRESS);
        ucp_request_free(request);
    }
    if (status != UCS_OK) {
        give_up(EXIT_WRONG, what, status);
    }
}

static void exchange(side_t *side, size_t length, int who)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t sent, received;
    size_t i;

    for (i = 0; i < length; ++i) {
        side->out[i] = byte_of(i, length, who);
    }
    memset(side->in, 0xee, length);
    sent     = ucp_tag_send_nbx(side->ep, side->out, length, length, &param);
    received = ucp_tag_recv_nbx(side->worker, side->in, length, length, UINT64_MAX, &param);
    finish(side, received, "receive");
    finish(side, sent, "send");
    for (i = 0; i < length; ++i) {
        if (side->in[i] != byte_of(i, length, 1 - who)) {
            fprintf(stderr, "pair: byte %zu of a message of %zu bytes is wrong\n", i, length);
            _exit(EXIT_WRONG);
        }
    }
}

static void run_side(int fd, int rounds, int who)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};
    side_t side                     = {0};
    size_t length;
    char byte = 0;
    int round;

    alarm(TIME_LIMIT_S);
    open_side(&side);
    connect_side(&side, fd);
    for (round = 0; round < rounds; ++round) {
        for (length = 0; length < LENGTH_MAX; length = (length * 3) + 1) {
            exchange(&side, length, who);
        }
    }
    /* Both have received all when both have said so. */
    if ((send(fd, &byte, 1, MSG_NOSIGNAL) != 1) || (recv(fd, &byte, 1, 0) != 1)) {
        give_up(EXIT_WRONG, "end", UCS_ERR_CONNECTION_RESET);
    }
    finish(&side, ucp_ep_close_nbx(side.ep, &param), "close");
    ucp_worker_destroy(side.worker);
    ucp_cleanup(side.context);
    free(side.out);
    free(side.in);
}

int main(int argc, char **argv)
{
    const int rounds = (argc > 1) ? atoi(argv[1]) : 3;
    int code, status, fds[2];
    pid_t child;

    if ((socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) != 0) || ((child = fork()) < 0)) {
        perror("pair");
        return EXIT_NOT_HAD;
    }
    if (child == 0) {
        close(fds[0]);
        run_side(fds[1], rounds, 1);
        exit(0);
    }
    close(fds[1]);
    run_side(fds[0], rounds, 0);
    waitpid(child, &status, 0);
    code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_WRONG;
    if (code != 0) {
        fprintf(stderr, "pair: the child ended with 0x%x\n", (unsigned)status);
    }
    return code;
}
