/* Halyard: two processes send memory of a GPU back and forth. Nothing has to be said about it: the
 * library sees what kind of memory an address belongs to.
 *
 *   gcc cuda_pingpong.c -o cuda_pingpong -I/usr/local/cuda/include \
 *       $(pkg-config --cflags --libs ucx) -L/usr/local/cuda/lib64/stubs -lcuda && ./cuda_pingpong
 *
 * What a program with GPUs minds:
 *   1. fork first; each process then starts CUDA by itself, before or after ucp_init()
 *   2. CUDA is the program's: the library uses what the program has started, and starts nothing
 *   3. a buffer is ready when what wrote it on the device has ended (a copy, a kernel): wait for it
 *      before the send; after the receive has completed, the data is there
 * hello_tag.c explains the calls of ucp.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <cuda.h>
#include <ucp/api/ucp.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LENGTH (1u << 20) /* bytes */
#define ROUNDS 100
#define TAG    UINT64_C(0x1337)

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

static void check_cuda(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s: CUDA error %d\n", what, (int)result);
        exit(1);
    }
}

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

/* The first device for one process, the second, if there is one, for the other. */
static CUdevice start_cuda(int index)
{
    CUcontext context;
    CUdevice device;
    int count;

    check_cuda(cuInit(0), "cuInit");
    check_cuda(cuDeviceGetCount(&count), "cuDeviceGetCount");
    check_cuda(cuDeviceGet(&device, index % count), "cuDeviceGet");
    check_cuda(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check_cuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    return device;
}

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

/* An address of the device is a number to CUDA and a pointer to ucp. */
static void *pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

static void ping_pong(ucp_worker_h worker, ucp_ep_h ep, CUdeviceptr memory, int speaks_first)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};
    struct timespec start, end;
    double us;
    int i;

    clock_gettime(CLOCK_MONOTONIC, &start);
    for (i = 0; i < 2 * ROUNDS; ++i) {
        if ((i % 2 == 0) == speaks_first) {
            finish(worker, ucp_tag_send_nbx(ep, pointer(memory), LENGTH, TAG, &param),
                   "ucp_tag_send_nbx");
        } else {
            finish(worker,
                   ucp_tag_recv_nbx(worker, pointer(memory), LENGTH, TAG, UINT64_MAX, &param),
                   "ucp_tag_recv_nbx");
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    us = ((double)(end.tv_sec - start.tv_sec) * 1e6) +
         ((double)(end.tv_nsec - start.tv_nsec) / 1e3);
    if (speaks_first) {
        printf("%u bytes of device memory: %.1f us one way\n", LENGTH, us / (2 * ROUNDS));
    }
}

/* What both processes do; the parent has the data and speaks first. */
static int converse(int socket, int index)
{
    const ucp_params_t context_params       = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                               .features   = UCP_FEATURE_TAG};
    const ucp_worker_params_t worker_params = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                               .thread_mode = UCS_THREAD_MODE_SINGLE};
    const ucp_request_param_t param         = {.op_attr_mask = 0};
    CUdevice device                         = start_cuda(index);
    unsigned char *bytes                    = malloc(LENGTH);
    ucp_context_h context;
    ucp_worker_h worker;
    CUdeviceptr memory;
    unsigned i, wrong = 0;
    ucp_ep_h ep;

    check_io(bytes != NULL, "malloc");
    for (i = 0; i < LENGTH; ++i) {
        bytes[i] = (index == 0) ? (unsigned char)(i * 7 + i / 256) : 0;
    }
    check_cuda(cuMemAlloc(&memory, LENGTH), "cuMemAlloc");
    check_cuda(cuMemcpyHtoD(memory, bytes, LENGTH), "cuMemcpyHtoD");

    check(ucp_init(&context_params, NULL, &context), "ucp_init");
    check(ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
    ep = connect_to_peer(worker, socket);
    ping_pong(worker, ep, memory, index == 0);
    finish(worker, ucp_ep_close_nbx(ep, &param), "ucp_ep_close_nbx");
    ucp_worker_destroy(worker);
    ucp_cleanup(context);

    check_cuda(cuMemcpyDtoH(bytes, memory, LENGTH), "cuMemcpyDtoH");
    for (i = 0; i < LENGTH; ++i) {
        wrong += bytes[i] != (unsigned char)(i * 7 + i / 256);
    }
    printf("process %d, device %d: %u wrong bytes\n", index, (int)device, wrong);
    fflush(stdout);
    check_cuda(cuMemFree(memory), "cuMemFree");
    check_cuda(cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
    free(bytes);
    return wrong != 0;
}

int main(void)
{
    int sockets[2], child_status, failed;
    pid_t child;

    check_io(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
    child = fork();
    check_io(child >= 0, "fork");
    if (child == 0) {
        close(sockets[0]);
        return converse(sockets[1], 1);
    }
    close(sockets[1]);
    failed = converse(sockets[0], 0);
    check_io(waitpid(child, &child_status, 0) == child, "waitpid");
    return failed || !WIFEXITED(child_status) || (WEXITSTATUS(child_status) != 0);
}
