/* Halyard: ofi: libfabric, opened when it is needed. Beside the transport the measuring tools use
 * it, so it needs nothing of the other layers but ucs/sys/library.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_OFI_OFI_LIB_H
#define UCT_OFI_OFI_LIB_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

/* What the code was written against; older libraries are refused by it. */
#define UCT_OFI_API FI_VERSION(1, 17)

/* What our memory can be registered as. */
#define UCT_OFI_MR_MODES \
    (FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ENDPOINT | FI_MR_HMEM)

/* What is asked for, of endpoints of type RDM. */
typedef struct {
    uint64_t         caps;
    enum fi_progress progress;
    uint64_t         order;
} uct_ofi_offer_t;

/* The functions of the library that are symbols; there once it has been opened. */
typedef struct {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
    const char *(*strerror)(int error);
    uint32_t (*version)(void);
} uct_ofi_lib_t;

extern uct_ofi_lib_t uct_ofi_lib;

/* Opens libfabric, once a process. Returns NULL, or why it is not there. Any thread. */
const char *uct_ofi_lib_open(void);

/* The name by which this library knows a provider that users name: "net" became "tcp" in 1.18
 * (what was "tcp" before takes "tcp;ofi_rxm"). */
const char *uct_ofi_lib_provider(const char *name);

/* How the library is asked for an offer, to be freed; NULL without memory. */
struct fi_info *uct_ofi_lib_hints(const uct_ofi_offer_t *offer);

#endif
