/* Halyard: version of the public interface that these headers describe.
 *
 * ucp_init passes the two numbers to the library; they say which UCX interface is offered, not
 * which release of Halyard this is.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_API_UCP_VERSION_H
#define UCP_API_UCP_VERSION_H

#define UCP_VERSION_MAJOR_SHIFT 24
#define UCP_VERSION_MINOR_SHIFT 16

/* One number for comparisons in #if. */
#define UCP_VERSION(_major, _minor) \
    (((_major) << UCP_VERSION_MAJOR_SHIFT) | ((_minor) << UCP_VERSION_MINOR_SHIFT))

#define UCP_API_MAJOR   1
#define UCP_API_MINOR   23
#define UCP_API_VERSION UCP_VERSION(1, 23)

#endif
