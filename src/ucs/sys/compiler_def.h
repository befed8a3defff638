/* Halyard: compiler attributes and small macros that the installed headers need.
 *
 * Installed, so it must compile as C89, C11, C++11 and C++20 without a warning and may define only
 * names that programs written for UCX expect. What only Halyard's own sources use is in
 * <ucs/sys/compiler.h>; no name stands in both.
 * Included by every public header.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_SYS_COMPILER_DEF_H
#define UCS_SYS_COMPILER_DEF_H

#include <stddef.h>
#include <stdint.h>

/* Around the declarations of a header that C++ programs include too. */
#ifdef __cplusplus
#define BEGIN_C_DECLS extern "C" {
#define END_C_DECLS   }
#else
#define BEGIN_C_DECLS
#define END_C_DECLS
#endif

/* On an enum: the smallest integer type that holds its values. On a struct: no padding. */
#define UCS_S_PACKED    __attribute__((packed))
#define UCS_S_MAY_ALIAS __attribute__((may_alias))

#define UCS_F_PURE          __attribute__((pure))
#define UCS_F_NORETURN      __attribute__((noreturn))
#define UCS_F_NOINLINE      __attribute__((noinline))
#define UCS_F_NON_NULL      __attribute__((nonnull))
#define UCS_F_CTOR          __attribute__((constructor))
#define UCS_F_DTOR          __attribute__((destructor))
#define UCS_F_MAYBE_UNUSED  __attribute__((used))
#define UCS_F_ALWAYS_INLINE __inline__ __attribute__((always_inline))

/* printf checking: _fmt is the 1-based place of the format, _args of the first value. */
#define UCS_F_PRINTF(_fmt, _args) __attribute__((format(printf, _fmt, _args)))

#define UCS_V_UNUSED          __attribute__((unused))
#define UCS_V_ALIGNED(_align) __attribute__((aligned(_align)))

/* Bit _i, and the mask of the _i lowest bits (_i < 64), as unsigned long. */
#define UCS_BIT(_i)  (1ul << (_i))
#define UCS_MASK(_i) (UCS_BIT(_i) - 1)

#define ucs_typeof(_type) __typeof__(_type)

/* Elements of an array whose size the compiler knows; never use it on a pointer. */
#define ucs_static_array_size(_array) (sizeof(_array) / sizeof((_array)[0]))

#define ucs_field_sizeof(_type, _field) sizeof(((_type *)0)->_field)
#define ucs_field_type(_type, _field)   ucs_typeof(((_type *)0)->_field)

/* Byte arithmetic on pointers of any type. */
#define UCS_PTR_BYTE_OFFSET(_ptr, _offset) \
    ((void *)((intptr_t)(_ptr) + (intptr_t)(_offset)))
#define UCS_PTR_BYTE_DIFF(_start, _end) \
    ((ptrdiff_t)((uintptr_t)(_end) - (uintptr_t)(_start)))

#endif
