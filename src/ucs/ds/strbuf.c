/* Halyard: string buffer.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/ds/strbuf.h>

#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>
#include <stdarg.h>
#include <stdio.h>

#define UCS_STRING_BUFFER_SIZE_MIN 64

void ucs_string_buffer_init(ucs_string_buffer_t *strb)
{
    strb->text     = NULL;
    strb->length   = 0;
    strb->capacity = 0;
    strb->is_fixed = 0;
}

void ucs_string_buffer_init_fixed(ucs_string_buffer_t *strb, char *storage, size_t size)
{
    ucs_assert(size > 0);

    strb->text     = storage;
    strb->capacity = size;
    strb->is_fixed = 1;
    ucs_string_buffer_reset(strb);
}

void ucs_string_buffer_cleanup(ucs_string_buffer_t *strb)
{
    if (strb->is_fixed) {
        ucs_string_buffer_reset(strb);
    } else {
        ucs_sys_free(strb->text);
        ucs_string_buffer_init(strb);
    }
}

void ucs_string_buffer_reset(ucs_string_buffer_t *strb)
{
    strb->length = 0;
    if (strb->text != NULL) {
        strb->text[0] = '\0';
    }
}

/* Memory for 'length' more bytes and the terminator. Without it the buffer stays as it is. */
static void ucs_string_buffer_grow(ucs_string_buffer_t *strb, size_t length)
{
    size_t capacity = ucs_max(strb->length + length + 1, strb->capacity * 2);
    char *text;

    capacity = ucs_max(capacity, (size_t)UCS_STRING_BUFFER_SIZE_MIN);
    text     = (char *)ucs_sys_realloc(strb->text, capacity);
    if (text != NULL) {
        strb->text     = text;
        strb->capacity = capacity;
    }
}

void ucs_string_buffer_appendf(ucs_string_buffer_t *strb, const char *fmt, ...)
{
    size_t room;
    va_list ap;
    int length;

    va_start(ap, fmt);
    length = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (length <= 0) {
        return; /* nothing, or what cannot be encoded */
    }

    if (!strb->is_fixed && ((size_t)length >= strb->capacity - strb->length)) {
        ucs_string_buffer_grow(strb, (size_t)length);
    }
    room = strb->capacity - strb->length;
    if (room > 0) {
        va_start(ap, fmt);
        (void)vsnprintf(strb->text + strb->length, room, fmt, ap);
        va_end(ap);
        strb->length += ucs_min((size_t)length, room - 1);
    }
}

const char *ucs_string_buffer_cstr(const ucs_string_buffer_t *strb)
{
    return (strb->text != NULL) ? strb->text : "";
}
