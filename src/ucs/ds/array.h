/* Halyard: growable typed array.
 *
 *     UCS_ARRAY(int) numbers;
 *     ucs_array_init(&numbers);
 *     status = ucs_array_push(&numbers, 7);
 *     ucs_array_cleanup(&numbers);
 *
 * Elements move when the array grows: pointers to them do not survive a push. Elements are plain
 * bytes: nothing is called for them. Growth that fails leaves the array as it was.
 * Not thread-safe. Macros marked (*) evaluate _array several times.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_DS_ARRAY_H
#define UCS_DS_ARRAY_H

#include <ucs/sys/compiler.h>
#include <ucs/sys/sys.h>
#include <ucs/type/status.h>

#define UCS_ARRAY(_type) \
    struct { \
        _type *items;    /* NULL while nothing was ever stored */ \
        size_t length;   /* elements in use */ \
        size_t capacity; /* elements that fit without growing */ \
    }

/* Memory for at least 'wanted' items of 'item_size' bytes, at least twice the old capacity, with
 * the old contents. NULL without memory: then 'items' and *capacity are as they were. */
static inline void *ucs_array_realloc(void *items, size_t *capacity, size_t item_size,
                                      size_t wanted)
{
    size_t count = ucs_max(wanted, (*capacity > 0) ? *capacity * 2 : 4);
    size_t size;

    if (__builtin_mul_overflow(count, item_size, &size)) {
        return NULL;
    }

    items = ucs_sys_realloc(items, size);
    if (items != NULL) {
        *capacity = count;
    }
    return items;
}

/* (*) */
#define ucs_array_init(_array) \
    ((void)((_array)->items = NULL, (_array)->length = (_array)->capacity = 0))

/* Free the memory; the array is empty and usable again. (*) */
#define ucs_array_cleanup(_array) \
    do { \
        ucs_sys_free((_array)->items); \
        ucs_array_init(_array); \
    } while (0)

/* Make room for _wanted elements in all: UCS_OK, or UCS_ERR_NO_MEMORY. (*) */
#define ucs_array_reserve(_array, _wanted) \
    (__extension__({ \
        size_t ucs_array_wanted_ = (_wanted); \
        void *ucs_array_items_   = (_array)->items; \
        if (ucs_array_wanted_ > (_array)->capacity) { \
            ucs_array_items_ = ucs_array_realloc((_array)->items, &(_array)->capacity, \
                                                 sizeof(*(_array)->items), ucs_array_wanted_); \
            if (ucs_array_items_ != NULL) { \
                (_array)->items = (__typeof__((_array)->items))ucs_array_items_; \
            } \
        } \
        ((ucs_array_items_ == NULL) && (ucs_array_wanted_ > 0)) ? UCS_ERR_NO_MEMORY : UCS_OK; \
    }))

/* Append the value of the last argument: UCS_OK, or UCS_ERR_NO_MEMORY. (*) */
#define ucs_array_push(_array, ...) \
    (__extension__({ \
        ucs_status_t ucs_array_status_ = UCS_OK; \
        if (ucs_unlikely((_array)->length == (_array)->capacity)) { \
            ucs_array_status_ = ucs_array_reserve(_array, (_array)->length + 1); \
        } \
        if (ucs_likely(ucs_array_status_ == UCS_OK)) { \
            (_array)->items[(_array)->length++] = __VA_ARGS__; \
        } \
        ucs_array_status_; \
    }))

/* The last element, taken off; the array must not be empty. (*) */
#define ucs_array_pop(_array) ((_array)->items[--(_array)->length])

#endif
