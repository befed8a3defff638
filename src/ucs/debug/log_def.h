/* Halyard: log handlers, for programs that want the library's messages in a place of their own.
 *
 * Installed. Usable before anything of Halyard is initialised, from a library constructor too: some
 * programs do that.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_DEBUG_LOG_DEF_H
#define UCS_DEBUG_LOG_DEF_H

#include <ucs/config/types.h>
#include <ucs/sys/compiler_def.h>
#include <stdarg.h>
#include <stdint.h>

BEGIN_C_DECLS

/* What a handler answers: the handlers pushed before it are asked too, or not. */
typedef enum {
    UCS_LOG_FUNC_RC_STOP,
    UCS_LOG_FUNC_RC_CONTINUE
} ucs_log_func_rc_t;

/* A log handler. `message` is a printf format for `ap`; both, like comp_conf, are valid during the
 * call only. comp_conf holds the name of the part that speaks and its level. Called by whatever
 * thread has something to say, several at once; may log itself, but not for ever. */
typedef ucs_log_func_rc_t (*ucs_log_func_t)(const char *file, unsigned line, const char *function,
                                            ucs_log_level_t level,
                                            const ucs_log_component_config_t *comp_conf,
                                            const char *message, va_list ap);

/* Names of the levels, as printed: FATAL, ERROR, ...; UCS_LOG_LEVEL_LAST + 1 entries and PRINT. */
extern const char *ucs_log_level_names[];

/* Add a handler, asked before those already there; beyond 32 it is ignored with a warning. Remove
 * the one added last. The default handler, which writes to the log file, is the first one and can
 * be removed as well. One thread at a time, other threads may log meanwhile. */
void ucs_log_push_handler(ucs_log_func_t handler);
void ucs_log_pop_handler(void);
unsigned ucs_log_num_handlers(void);

/* The handler that is there from the start: one line, one write(2), to UCX_LOG_FILE or stderr. */
ucs_log_func_rc_t
ucs_log_default_handler(const char *file, unsigned line, const char *function,
                        ucs_log_level_t level, const ucs_log_component_config_t *comp_conf,
                        const char *message, va_list ap);

END_C_DECLS

#endif
