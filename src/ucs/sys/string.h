/* Halyard: text helpers that do not depend on the locale and never write out of bounds.
 *
 * Pure functions of their arguments, any thread; only ucs_str_append allocates.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_SYS_STRING_H
#define UCS_SYS_STRING_H

#include <ucs/sys/compiler.h>
#include <ucs/sys/compiler_def.h>
#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS

/* Enough for ucs_str_print_double. */
#define UCS_STR_DOUBLE_MAX 40

/* Copy `src` with its end into `dest` of `max` bytes. Not zero if all of it fitted; what did not is
 * cut off. */
int ucs_str_copy(char *dest, size_t max, const char *src);

/* The first of *length_p bytes that is neither a blank nor a tab, and (*length_p) the bytes from
 * there to the last such one. */
const char *ucs_str_trim(const char *text, size_t *length_p);

/* Append formatted text to one of the heap (NULL: none yet), to be given to ucs_sys_free. Without
 * memory it stays as it was. */
void ucs_str_append(char **text_p, const char *fmt, ...) UCS_PRINTF(2, 3);

/* Read a decimal number, "digits[.digits][e[+-]digits]" with an optional minus, at the very start
 * of the text. Returns the first character after it, or NULL if there is none; too large gives
 * infinity. */
const char *ucs_str_parse_double(const char *text, double *value_p);

/* Read an unsigned decimal number at the very start of the text. Returns the first character after
 * it; NULL if there is none or it needs more than 64 bits. */
const char *ucs_str_parse_u64(const char *text, uint64_t *value_p);

/* Write the shortest decimal text that reads back as the same finite number. */
void ucs_str_print_double(char *buf, size_t max, double value);

/* How many single-letter insertions, deletions, changes and swaps of neighbours turn one word into
 * the other, letters' case aside. Looks at the first 64 bytes of each. */
unsigned ucs_str_distance(const char *a, const char *b);

/* The word of a NULL-terminated list that the given one was probably meant to be: the one at the
 * least distance, if that is small for its length. NULL if there is none. */
const char *ucs_str_nearest(const char *word, const char *const *list);

/* Whether distance `distance` is small for this word. */
int ucs_str_is_near(const char *word, unsigned distance);

/* Match with '*' (any text) and '?' (any character). Time at most the product of the lengths. */
int ucs_str_match(const char *pattern, const char *text);

/* A number of 0 or more that stands in the environment, such as a launcher puts there; -1: none,
 * as for programs with more rights than who started them. */
long ucs_env_number(const char *name);

/* FNV-1a hash: for tables and identities, not against malice. That of a string has the seed 0. */
uint64_t ucs_hash_bytes(const void *data, size_t length, uint64_t seed);
uint64_t ucs_str_hash(const char *text);

END_C_DECLS

#endif
