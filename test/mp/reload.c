/* Halyard: loads libucp, uses it and unloads it, again and again: nothing stays behind that grows.
 *
 *   reload LIBUCP [TIMES]      (default 20)
 *
 * Exit status: 0, 1 where something grew or failed.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/api/ucp.h>

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM_UP 5

typedef struct {
    unsigned descriptors, threads, mappings;
} use_t;

static unsigned count_entries(const char *path)
{
    DIR *dir       = opendir(path);
    unsigned count = 0;

    while ((dir != NULL) && (readdir(dir) != NULL)) {
        ++count;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

static unsigned count_lines(const char *path)
{
    FILE *file     = fopen(path, "r");
    unsigned count = 0;
    int c;

    while ((file != NULL) && ((c = fgetc(file)) != EOF)) {
        count += (c == '\n');
    }
    if (file != NULL) {
        fclose(file);
    }
    return count;
}

static use_t measure(void)
{
    const use_t use = {count_entries("/proc/self/fd"), count_entries("/proc/self/task"),
                       count_lines("/proc/self/maps")};

    return use;
}

/* A context, a worker, and a message to oneself. */
static int use_library(void *handle)
{
    const ucp_params_t params               = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                               .features   = UCP_FEATURE_TAG};
    const ucp_worker_params_t worker_params = {.field_mask = 0};
    const ucp_request_param_t param         = {.op_attr_mask = 0};
    ucp_ep_params_t ep_params               = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t *address;
    ucp_context_h context;
    ucp_worker_h worker;
    ucs_status_ptr_t request;
    char out = 'x', in = 0;
    size_t length;
    ucp_ep_h ep;

    __typeof__(&ucp_init_version) init         = dlsym(handle, "ucp_init_version");
    __typeof__(&ucp_worker_create) create      = dlsym(handle, "ucp_worker_create");
    __typeof__(&ucp_worker_get_address) get    = dlsym(handle, "ucp_worker_get_address");
    __typeof__(&ucp_worker_release_address) release = dlsym(handle, "ucp_worker_release_address");
    __typeof__(&ucp_ep_create) ep_create       = dlsym(handle, "ucp_ep_create");
    __typeof__(&ucp_tag_send_nbx) send         = dlsym(handle, "ucp_tag_send_nbx");
    __typeof__(&ucp_tag_recv_nbx) recv         = dlsym(handle, "ucp_tag_recv_nbx");
    __typeof__(&ucp_worker_progress) progress  = dlsym(handle, "ucp_worker_progress");
    __typeof__(&ucp_request_check_status) check = dlsym(handle, "ucp_request_check_status");
    __typeof__(&ucp_request_free) free_request = dlsym(handle, "ucp_request_free");
    __typeof__(&ucp_worker_destroy) destroy    = dlsym(handle, "ucp_worker_destroy");
    __typeof__(&ucp_cleanup) cleanup           = dlsym(handle, "ucp_cleanup");

    if ((init(UCP_API_MAJOR, UCP_API_MINOR, &params, NULL, &context) != UCS_OK) ||
        (create(context, &worker_params, &worker) != UCS_OK) ||
        (get(worker, &address, &length) != UCS_OK)) {
        return 0;
    }
    ep_params.address = address;
    if ((ep_create(worker, &ep_params, &ep) != UCS_OK) ||
        UCS_PTR_IS_PTR(send(ep, &out, 1, 1, &param))) {
        return 0;
    }
    request = recv(worker, &in, 1, 1, UINT64_MAX, &param);
    while (UCS_PTR_IS_PTR(request) && (check(request) == UCS_INPROGRESS)) {
        progress(worker);
    }
    if (UCS_PTR_IS_PTR(request)) {
        free_request(request);
    }
    release(worker, address);
    destroy(worker);
    cleanup(context);
    return in == 'x';
}

int main(int argc, char **argv)
{
    const int times = (argc > 2) ? atoi(argv[2]) : 20;
    use_t first     = {0, 0, 0};
    use_t last      = {0, 0, 0};
    void *handle;
    int i;

    if (argc < 2) {
        fprintf(stderr, "usage: reload LIBUCP [TIMES]\n");
        return 1;
    }
    for (i = 0; i < times; ++i) {
        handle = dlopen(argv[1], RTLD_LAZY | RTLD_GLOBAL);
        if (handle == NULL) {
            fprintf(stderr, "reload: %s\n", dlerror());
            return 1;
        }
        if (!use_library(handle)) {
            fprintf(stderr, "reload: the library does not work, time %d\n", i);
            return 1;
        }
        dlclose(handle);
        last = measure();
        if (i == WARM_UP) {
            first = last;
        }
    }
    printf("after %d times: %u descriptors, %u threads, %u mappings; after %d: %u, %u, %u\n",
           WARM_UP + 1, first.descriptors, first.threads, first.mappings, times, last.descriptors,
           last.threads, last.mappings);
    return (last.descriptors > first.descriptors) || (last.threads > first.threads) ||
           (last.mappings > first.mappings + 1);
}
