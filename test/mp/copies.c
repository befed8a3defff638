/* Halyard: two copies of the library in one process, as a program has them whose parts each bring
 * their own: they talk to each other as two processes do.
 *
 *   copies LIBUCP LIBUCP      (two files, whose further libraries have names of their own as well)
 *
 * Exit status: 0, 1 where something failed.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/api/ucp.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_MAX ((size_t)1000000)

typedef struct {
    void            *handle;
    ucp_context_h    context;
    ucp_worker_h     worker;
    ucp_address_t   *address;
    ucp_ep_h         ep;
    ucs_status_ptr_t sent, received;
    unsigned char   *out, *in;
    __typeof__(&ucp_tag_send_nbx)         send;
    __typeof__(&ucp_tag_recv_nbx)         recv;
    __typeof__(&ucp_worker_progress)      progress;
    __typeof__(&ucp_request_check_status) check;
    __typeof__(&ucp_request_free)         free_request;
} copy_t;

static void give_up(const char *what)
{
    fprintf(stderr, "copies: %s\n", what);
    exit(1);
}

static void *function(const copy_t *copy, const char *name)
{
    void *address = dlsym(copy->handle, name);

    if (address == NULL) {
        give_up(name);
    }
    return address;
}

static void open_copy(copy_t *copy, const char *path, int number)
{
    const ucp_params_t params               = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                               .features   = UCP_FEATURE_TAG};
    const ucp_worker_params_t worker_params = {.field_mask = 0};
    __typeof__(&ucp_init_version) init;
    __typeof__(&ucp_worker_create) create;
    __typeof__(&ucp_worker_get_address) get_address;
    size_t length;

    copy->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (copy->handle == NULL) {
        give_up(dlerror());
    }
    init               = function(copy, "ucp_init_version");
    create             = function(copy, "ucp_worker_create");
    get_address        = function(copy, "ucp_worker_get_address");
    copy->send         = function(copy, "ucp_tag_send_nbx");
    copy->recv         = function(copy, "ucp_tag_recv_nbx");
    copy->progress     = function(copy, "ucp_worker_progress");
    copy->check        = function(copy, "ucp_request_check_status");
    copy->free_request = function(copy, "ucp_request_free");
    copy->out          = malloc(LENGTH_MAX);
    copy->in           = calloc(1, LENGTH_MAX);
    if ((copy->out == NULL) || (copy->in == NULL) ||
        (init(UCP_API_MAJOR, UCP_API_MINOR, &params, NULL, &copy->context) != UCS_OK) ||
        (create(copy->context, &worker_params, &copy->worker) != UCS_OK) ||
        (get_address(copy->worker, &copy->address, &length) != UCS_OK)) {
        give_up(path);
    }
    memset(copy->out, 'a' + number, LENGTH_MAX);
}

static void connect_copy(copy_t *copy, const copy_t *other)
{
    const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                    .address    = other->address};
    __typeof__(&ucp_ep_create) create = function(copy, "ucp_ep_create");

    if (create(copy->worker, &params, &copy->ep) != UCS_OK) {
        give_up("no endpoint");
    }
}

static void finish(copy_t *copy, copy_t *other, ucs_status_ptr_t request)
{
    ucs_status_t status = UCS_PTR_RAW_STATUS(request);

    if (UCS_PTR_IS_PTR(request)) {
        while ((status = copy->check(request)) == UCS_INPROGRESS) {
            copy->progress(copy->worker);
            other->progress(other->worker);
        }
        copy->free_request(request);
    }
    if (status != UCS_OK) {
        give_up("a message failed");
    }
}

static void exchange(copy_t *copies, size_t length)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};
    int i;

    for (i = 0; i < 2; ++i) {
        copies[i].received =
            copies[i].recv(copies[i].worker, copies[i].in, length, 1, UINT64_MAX, &param);
    }
    for (i = 0; i < 2; ++i) {
        copies[i].sent = copies[i].send(copies[i].ep, copies[i].out, length, 1, &param);
    }
    for (i = 0; i < 2; ++i) {
        finish(&copies[i], &copies[!i], copies[i].sent);
        finish(&copies[i], &copies[!i], copies[i].received);
    }
    for (i = 0; i < 2; ++i) {
        if (memcmp(copies[i].in, copies[!i].out, length) != 0) {
            give_up("wrong bytes");
        }
    }
}

static void close_copy(copy_t *copy)
{
    __typeof__(&ucp_worker_release_address) release = function(copy, "ucp_worker_release_address");
    __typeof__(&ucp_worker_destroy) destroy         = function(copy, "ucp_worker_destroy");
    __typeof__(&ucp_cleanup) cleanup                = function(copy, "ucp_cleanup");

    release(copy->worker, copy->address);
    destroy(copy->worker);
    cleanup(copy->context);
    dlclose(copy->handle);
    free(copy->out);
    free(copy->in);
}

int main(int argc, char **argv)
{
    static copy_t copies[2];
    size_t length;

    if (argc != 3) {
        give_up("usage: copies LIBUCP LIBUCP");
    }
    open_copy(&copies[0], argv[1], 0);
    open_copy(&copies[1], argv[2], 1);
    if (copies[0].send == copies[1].send) {
        give_up("these are one and the same");
    }
    connect_copy(&copies[0], &copies[1]);
    connect_copy(&copies[1], &copies[0]);
    for (length = 1; length <= LENGTH_MAX; length *= 10) {
        exchange(copies, length);
    }
    close_copy(&copies[0]); /* the other may still use what it has */
    close_copy(&copies[1]);
    return 0;
}
