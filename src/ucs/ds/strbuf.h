/* Halyard: string buffer.
 *
 * Text is appended and the buffer grows as needed, or, with fixed storage, stops at its end. It is
 * always terminated by a zero byte, never written beyond its end, and an append that does not fit
 * (fixed storage full, or no memory) keeps what fits. Not thread-safe.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_DS_STRBUF_H
#define UCS_DS_STRBUF_H

#include <ucs/sys/compiler.h>
#include <ucs/sys/compiler_def.h>

BEGIN_C_DECLS

typedef struct {
    char *text;      /* NULL while nothing was appended to a growing buffer */
    size_t length;   /* bytes before the terminator */
    size_t capacity; /* bytes in 'text', terminator included */
    int is_fixed;    /* 'text' belongs to the caller */
} ucs_string_buffer_t;

/* Make an empty buffer that grows; to be cleaned up. Allocates nothing. */
void ucs_string_buffer_init(ucs_string_buffer_t *strb);

/* Make an empty buffer in 'size' (at least 1) bytes of the caller. Clean-up is not needed. */
void ucs_string_buffer_init_fixed(ucs_string_buffer_t *strb, char *storage, size_t size);

/* Free the memory of a growing buffer; the buffer is empty and usable again. */
void ucs_string_buffer_cleanup(ucs_string_buffer_t *strb);

/* Make the text empty; the memory is kept. */
void ucs_string_buffer_reset(ucs_string_buffer_t *strb);

/* Append formatted text. */
void ucs_string_buffer_appendf(ucs_string_buffer_t *strb, const char *fmt, ...) UCS_PRINTF(2, 3);

/* The text; never NULL. Good until the buffer is next changed. */
const char *ucs_string_buffer_cstr(const ucs_string_buffer_t *strb);

END_C_DECLS

#endif
