/* Halyard: ofi: the devices of a provider: which one an interface uses, and which further ones
 * carry parts of what goes by it (rails).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_OFI_OFI_DEVICES_H
#define UCT_OFI_OFI_DEVICES_H

#include <uct/ofi/ofi.h>

/* An offer of the library's, with what is thought of it. */
typedef struct {
    const struct fi_info *info;
    const char           *reason;     /* why it is not used; empty: others come first */
    int                   rank;       /* negative: it cannot be used */
    int                   is_routed;  /* by the kernel, whose default route leads outside */
    size_t                speed;      /* bits per second; 0: not known */
    int                   is_default; /* its device is the one by which this host reaches others */
    unsigned              distance;   /* of its device from this process, where that was asked */
} uct_ofi_candidate_t;

/* Where in UCX_NET_DEVICES the device is, or -1. */
int uct_ofi_device_find(const uct_ofi_config_t *config, const char *name);

/* Puts devices that the user has named into the user's order, so that they are taken in the same
 * one on all hosts. */
void uct_ofi_sort_named(const uct_ofi_config_t *config, uct_ofi_candidate_t *all, unsigned count);

int uct_ofi_is_same_device(const struct fi_info *a, const struct fi_info *b);

/* Of a device, by the provider's word or, of a routed network, the kernel's; 0: not known. */
size_t uct_ofi_speed(const struct fi_info *info, int is_routed);

int uct_ofi_is_better(const uct_ofi_candidate_t *a, const uct_ofi_candidate_t *b);

/* Of the devices that are equal to best the nearest; of several the processes of this node share
 * them out. Sets the reasons of the others. */
uct_ofi_candidate_t *uct_ofi_share_out(uct_ofi_candidate_t *all, unsigned count,
                                       uct_ofi_candidate_t *best);

/* Fills iface->rails with the devices behind best's, round the list, so that processes that share
 * devices out begin with different ones. Sets their reasons. */
void uct_ofi_find_rails(uct_ofi_iface_t *iface, uct_ofi_candidate_t *all, unsigned count,
                        const uct_ofi_candidate_t *best);

/* Does a provider's own address lie in the network of the device (net and tcp call their fabrics
 * "10.2.0.0/24")? 1 where the provider does not tell. */
int uct_ofi_is_in_network(const struct fi_info *info, const void *address);

#endif
