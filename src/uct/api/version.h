/* Halyard: version of the transport layer's interface.
 *
 * Installed because programs written for UCX test these macros before they use <uct/api/uct.h>.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_API_VERSION_H
#define UCT_API_VERSION_H

#define UCT_VERNO_MAJOR  1
#define UCT_VERNO_MINOR  23
#define UCT_VERNO_STRING "1.23.0"

/* Places of the two numbers in the combined one. */
#define UCT_MAJOR_BIT 24ul
#define UCT_MINOR_BIT 16ul

#define UCT_API \
    ((1ul * UCT_VERNO_MAJOR << UCT_MAJOR_BIT) | (1ul * UCT_VERNO_MINOR << UCT_MINOR_BIT))

#endif
