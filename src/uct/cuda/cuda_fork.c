/* Halyard: cuda_ipc: what a forked child must not keep.
 *
 * A child inherits the descriptors by which its parent shows memory to others, and those of others'
 * that it is about to map. The driver gives none of that memory back as long as anybody has one, so
 * the child closes its copies and offers none of them. What it makes anew works.
 *
 * The lists are whole in the child since the lock of each memory domain is taken over the fork,
 * while no thread has descriptors in hand that it is about to map. That is waited for, but not for
 * ever: the driver is called meanwhile, which may fork itself, or wait there for what another
 * library holds over the fork. Where it is not to be had the child keeps what it has inherited.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/cuda/cuda_ipc.h>

#define UCS_LOG_COMPONENT "cuda_ipc"
#include <ucs/debug/log.h>
#include <ucs/sys/sys.h>

#define UCT_CUDA_FORK_NS  1000000000ull /* most time that a fork waits */
#define UCT_CUDA_FORK_NAP 20000ull      /* ns, between two looks */

/* Of the list; also held over a fork. */
static pthread_mutex_t uct_cuda_fork_mutex = PTHREAD_MUTEX_INITIALIZER;
static ucs_list_link_t uct_cuda_fork_mds   = UCS_LIST_INITIALIZER(&uct_cuda_fork_mds);
static pthread_once_t uct_cuda_fork_once   = PTHREAD_ONCE_INIT;

/* At a moment when no thread is about to map memory, if there is one. */
static int uct_cuda_fork_lock_md(uct_cuda_ipc_md_t *md, uint64_t until_ns)
{
    int is_late;

    do {
        is_late = (ucs_sys_clock_ns() > until_ns);
        if (pthread_mutex_trylock(&md->lock) == 0) {
            if (is_late || (md->num_opening == 0)) {
                return 1;
            }
            pthread_mutex_unlock(&md->lock);
        }
        ucs_sys_sleep_ns(UCT_CUDA_FORK_NAP);
    } while (!is_late);
    return 0;
}

static void uct_cuda_fork_lock(void)
{
    const uint64_t until_ns = ucs_sys_clock_ns() + UCT_CUDA_FORK_NS;
    uct_cuda_ipc_md_t *md;

    pthread_mutex_lock(&uct_cuda_fork_mutex);
    ucs_list_for_each(md, &uct_cuda_fork_mds, forking) {
        md->is_held = uct_cuda_fork_lock_md(md, until_ns);
    }
}

static void uct_cuda_fork_unlock(void)
{
    uct_cuda_ipc_md_t *md;

    ucs_list_for_each(md, &uct_cuda_fork_mds, forking) {
        if (md->is_held) {
            md->is_held = 0;
            pthread_mutex_unlock(&md->lock);
        }
    }
    pthread_mutex_unlock(&uct_cuda_fork_mutex);
}

/* The table of offers is locked. */
static void uct_cuda_fork_forget_export(uct_cuda_export_t *export)
{
    uct_descriptor_offer_t *offer;

    if (export->kind != UCT_CUDA_IPC_LEGACY) {
        export->kind     = UCT_CUDA_IPC_NONE;
        export->again_ns = UINT64_MAX;
    }
    while (export->count > 0) {
        offer = &export->offers[--export->count];
        ucs_list_del(&offer->list);
        export->proofs[export->count].instance = 0;
        ucs_sys_close(offer->fd);
        offer->fd = -1;
    }
}

/* One that another thread is still about to open is that thread's. */
static void uct_cuda_fork_forget_mapping(uct_cuda_mapping_t *mapping)
{
    if (mapping->status == UCS_INPROGRESS) {
        return;
    }
    uct_cuda_descriptors_close(mapping);
    if (mapping->question >= 0) {
        ucs_sys_close(mapping->question);
        mapping->question = -1;
    }
}

static void uct_cuda_fork_forget(uct_cuda_ipc_md_t *md)
{
    uct_cuda_mapping_t *mapping;
    uct_cuda_export_t *export;

    ucs_list_for_each(export, &md->exports, list) {
        uct_cuda_fork_forget_export(export);
    }
    ucs_list_for_each(export, &md->probes, list) {
        uct_cuda_fork_forget_export(export);
    }
    ucs_list_for_each(mapping, &md->mappings, list) {
        uct_cuda_fork_forget_mapping(mapping);
    }
}

/* A child that starts the driver after the fork has memory of its own, at the same addresses and
 * with the same numbers. */
static void uct_cuda_fork_in_child(ucs_fork_watch_t *watch)
{
    uct_cuda_ipc_md_t *md = ucs_container_of(watch, uct_cuda_ipc_md_t, fork);

    md->instance    = ucs_sys_random64();
    md->pid_ns      = uct_cuda_ipc_pid_namespace();
    md->num_opening = 0; /* that would be other threads */
    if (md->is_held) {
        uct_cuda_fork_forget(md);
    } else { /* another thread of the parent may have it, */
        pthread_mutex_init(&md->lock, NULL);
    }
    pthread_mutex_init(&md->pool_lock, NULL); /* and this */
}

static void uct_cuda_fork_register(void)
{
    int error = pthread_atfork(uct_cuda_fork_lock, uct_cuda_fork_unlock, uct_cuda_fork_unlock);

    if (error != 0) {
        ucs_diag("cannot keep device memory from forked children: error %d", error);
    }
}

void uct_cuda_fork_add(uct_cuda_ipc_md_t *md)
{
    ucs_fork_watch_add(&md->fork, uct_cuda_fork_in_child);
    uct_descriptor_guard_fork();
    pthread_once(&uct_cuda_fork_once, uct_cuda_fork_register); /* last, so it is the first lock */
    pthread_mutex_lock(&uct_cuda_fork_mutex);
    ucs_list_add_tail(&uct_cuda_fork_mds, &md->forking);
    pthread_mutex_unlock(&uct_cuda_fork_mutex);
}

void uct_cuda_fork_remove(uct_cuda_ipc_md_t *md)
{
    pthread_mutex_lock(&uct_cuda_fork_mutex);
    ucs_list_del(&md->forking);
    pthread_mutex_unlock(&uct_cuda_fork_mutex);
    ucs_fork_watch_remove(&md->fork);
}
