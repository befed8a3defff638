/* Halyard: topology: NUMA nodes, how far apart they are, and which one we are on.
 *
 * By hwloc, which is loaded and asked only when the first of these functions that needs it is
 * called: that takes milliseconds. Without hwloc there is one node, number 0, at distance 10 from
 * itself. Node numbers are the operating system's.
 *
 * Any thread.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_SYS_TOPO_H
#define UCS_SYS_TOPO_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

BEGIN_C_DECLS

/* Nodes that are told apart; a machine with more is taken for one of a single node. */
#define UCS_TOPO_NODES_MAX 64

/* No particular node. */
#define UCS_TOPO_NODE_ANY (-1)

/* Distance of a node to itself, as firmware tables have it; others are in this unit. */
#define UCS_TOPO_DISTANCE_LOCAL 10

/* Number of NUMA nodes with memory, at least 1. Needs hwloc. */
unsigned ucs_topo_num_nodes(void);

/* Number of the i-th node, i < ucs_topo_num_nodes(). Needs hwloc. */
int ucs_topo_node(unsigned i);

/* The node to which this process is bound; UCS_TOPO_NODE_ANY if it may run on several. Needs
 * hwloc. */
int ucs_topo_process_node(void);

/* Distance between two nodes, in units of a tenth of a node's distance to itself. UCS_ERR_NO_ELEM:
 * there is no such node. Where the machine does not say: 10 within a node, 20 between. Needs
 * hwloc. */
ucs_status_t ucs_topo_distance(int node_a, int node_b, unsigned *distance_p);

/* The node next to a PCI device, "0000:3b:00.0"; UCS_TOPO_NODE_ANY where the machine does not say.
 * UCS_ERR_NO_ELEM: there is no such device; UCS_ERR_INVALID_PARAM: not such a name. No hwloc. */
ucs_status_t ucs_topo_pci_node(const char *bus_id, int *node_p);

END_C_DECLS

#endif
