/* Halyard: string buffer.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucs/ds/strbuf.h>

#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>
#include <stdio.h>
#include <string.h>

#define UCS_STRING_BUFFER_SIZE_MIN 64

void ucs_string_buffer_init(ucs_string_buffer_t *strb)
{
    strb->text      = NULL;
    strb->length    = 0;
    strb->capacity  = 0;
    strb->is_fixed  = 0;
    strb->truncated = 0;
}

void ucs_string_buffer_init_fixed(ucs_string_buffer_t *strb, char *storage, size_t size)
{
    ucs_assert(size > 0);

    strb->text      = storage;
    strb->capacity  = size;
    strb->is_fixed  = 1;
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
    strb->length    = 0;
    strb->truncated = 0;
    if (strb->text != NULL) {
        strb->text[0] = '\0';
    }
}

/* Bytes that can be appended now, up to 'length', after growing for them. */
static size_t ucs_string_buffer_make_room(ucs_string_buffer_t *strb, size_t length)
{
    size_t wanted, capacity;
    char *text;

    if (length == 0) {
        return 0;
    }

    if (!strb->is_fixed && (length >= strb->capacity - strb->length) &&
        !__builtin_add_overflow(strb->length + 1, length, &wanted)) {
        capacity = ucs_max(wanted, strb->capacity * 2);
        capacity = ucs_max(capacity, (size_t)UCS_STRING_BUFFER_SIZE_MIN);
        text     = (char *)ucs_sys_realloc(strb->text, capacity);
        if (text != NULL) {
            strb->text     = text;
            strb->capacity = capacity;
        }
    }

    if (length >= strb->capacity - strb->length) {
        strb->truncated = 1;
        return (strb->capacity > 0) ? strb->capacity - strb->length - 1 : 0;
    }
    return length;
}

void ucs_string_buffer_append(ucs_string_buffer_t *strb, const char *text, size_t length)
{
    size_t room = ucs_string_buffer_make_room(strb, length);

    if (room > 0) {
        memcpy(strb->text + strb->length, text, room);
        strb->length            += room;
        strb->text[strb->length] = '\0';
    }
}

void ucs_string_buffer_vappendf(ucs_string_buffer_t *strb, const char *fmt, va_list ap)
{
    char none[1];
    va_list again;
    size_t room;
    int length;

    /* The first pass only measures where nothing fits, and is enough where the text fits. */
    room = strb->capacity - strb->length;
    va_copy(again, ap);
    length = (room > 0) ? vsnprintf(strb->text + strb->length, room, fmt, ap) :
                          vsnprintf(none, sizeof(none), fmt, ap);
    if (length < 0) {
        strb->truncated = 1; /* the text cannot be encoded */
        if (room > 0) {
            strb->text[strb->length] = '\0';
        }
    } else if ((size_t)length < room) {
        strb->length += (size_t)length;
    } else {
        room = ucs_string_buffer_make_room(strb, (size_t)length);
        if (room > 0) {
            (void)vsnprintf(strb->text + strb->length, room + 1, fmt, again);
            strb->length += room;
        }
    }
    va_end(again);
}

void ucs_string_buffer_appendf(ucs_string_buffer_t *strb, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    ucs_string_buffer_vappendf(strb, fmt, ap);
    va_end(ap);
}

const char *ucs_string_buffer_cstr(const ucs_string_buffer_t *strb)
{
    return (strb->text != NULL) ? strb->text : "";
}
