/* Halyard: a process that waits for what never comes, for test_gdb.sh: two workers, of which one
 * has sent what the other does not receive, and waits for a message that nobody sends.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define LONG_SIZE 1048576

static char buffer[LONG_SIZE];

static void check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fprintf(stderr, "stuck: %s: %s\n", what, ucs_status_string(status));
        exit(1);
    }
}

/* Here the debugger stops the process, or lets it write a core file. */
__attribute__((noinline)) void stuck_here(void)
{
    __asm__ volatile("" ::: "memory");
}

static void post(ucs_status_ptr_t request, const char *what)
{
    if (UCS_PTR_IS_ERR(request)) {
        check(UCS_PTR_STATUS(request), what);
    }
}

static void talk(ucp_worker_h worker, ucp_worker_h other)
{
    ucp_request_param_t none = {.op_attr_mask = 0};
    ucp_ep_params_t params   = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t *address;
    size_t length;
    ucp_ep_h ep;
    int i;

    check(ucp_worker_get_address(other, &address, &length), "address");
    params.address = address;
    check(ucp_ep_create(worker, &params, &ep), "endpoint");
    ucp_worker_release_address(other, address);

    post(ucp_tag_send_nbx(ep, buffer, 8, 0x11, &none), "short send");
    post(ucp_tag_send_nbx(ep, buffer, LONG_SIZE, 0x22, &none), "long send");
    post(ucp_tag_recv_nbx(worker, buffer, 64, 0x33, 0xffff, &none), "receive");
    post(ucp_tag_recv_nbx(worker, buffer, 32, 0x44, UINT64_MAX, &none), "receive");
    post(ucp_ep_close_nbx(ep, &none), "close");
    for (i = 0; i < 1000; ++i) {
        ucp_worker_progress(worker);
        ucp_worker_progress(other);
    }
    stuck_here();
}

int main(void)
{
    ucp_params_t params               = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                         .features   = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_NAME,
                                         .name       = "waiting"};
    ucp_context_h context;
    ucp_worker_h workers[2];

    check(ucp_init(&params, NULL, &context), "context");
    check(ucp_worker_create(context, &worker_params, &workers[0]), "worker");
    worker_params.field_mask = 0;
    check(ucp_worker_create(context, &worker_params, &workers[1]), "worker");
    talk(workers[0], workers[1]);
    ucp_worker_destroy(workers[0]);
    ucp_worker_destroy(workers[1]);
    ucp_cleanup(context);
    return 0;
}
