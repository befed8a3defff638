/* Halyard: standard output of the tools: what could not be written there is an error.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef STDOUT_H
#define STDOUT_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* To be called first. A standard descriptor that is closed is taken by one that cannot be written
 * to: else the next socket or file would be, and get what is printed. */
static inline void tool_stdout_keep(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    } while ((fd >= 0) && (fd <= STDERR_FILENO));
    if (fd >= 0) {
        close(fd);
    }
}

/* Why something that was written to the file has not got there; NULL: all has. */
static inline const char *tool_write_problem(FILE *file)
{
    errno = 0;
    if ((fflush(file) == 0) && !ferror(file)) {
        return NULL;
    }
    if (errno == 0) { /* an earlier call was told the reason: a byte more asks for it again */
        (void)fputc('\n', file);
        (void)fflush(file);
    }
    return (errno != 0) ? strerror(errno) : "an earlier write failed";
}

#endif
