/* Halyard: frame of the MPI and OpenSHMEM test programs: cases, checks, data, the mapped library.
 *
 * Each program is a table of cases given to check_main(). Every rank runs every case in the same
 * order, with a barrier between them, and writes one line a case, "PASS name", "FAIL name" or
 * "SKIP name", to <results>/<program>.<rank>. run.sh counts a case as passed if all ranks passed.
 * A case in which a rank checks nothing fails on that rank.
 *
 * Number of ranks: any, but even for the programs in which pairs take turns (run.sh knows them).
 * The programs use public MPI only. With CHECK_SHMEM defined it is OpenSHMEM: a rank is a PE.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef HALYARD_TEST_MPI_CHECK_H
#define HALYARD_TEST_MPI_CHECK_H

#ifdef CHECK_SHMEM
#include <shmem.h>
#else
#include <mpi.h>
#endif
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    void       (*run)(void);
} check_case_t;

/* Rank and size of all; the rank that this one is paired with, itself where none is
 * left. */
extern int check_rank;
extern int check_size;
extern int check_partner;

/* Runs all cases between initialization and finalization. Arguments of the program: folder
 * of the results, folder in which the Halyard libraries must lie ("-": any). Errors of MPI are
 * returned, not fatal. The value is the exit code: 0 when all cases were run, failed or not,
 * because launchers kill the other ranks when one exits otherwise. */
int check_main(int argc, char **argv, const char *program, int required_threads,
               const check_case_t *cases, size_t num_cases);

/* Thread level that MPI provides. */
int check_thread_level(void);

/* Checks of the running case that have failed here; without cases, of all. */
int check_failures(void);

/* Marks the running case as skipped, on all ranks alike. */
void check_skip(const char *reason);

/* Counts a check of the running case and reports it if it failed. May be called from threads. */
void check_that(int ok, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define CHECK(_cond, ...) check_that(!!(_cond), __FILE__, __LINE__, __VA_ARGS__)

#ifndef CHECK_SHMEM
/* An MPI call that must succeed. */
#define MPI_OK(_call) \
    do { \
        int check_ret_ = (_call); \
        if (check_ret_ != MPI_SUCCESS) { \
            check_that(0, __FILE__, __LINE__, "%s returned %d", #_call, check_ret_); \
        } \
    } while (0)
#endif

/* A buffer of `length` bytes between two guards; check_buffer_free() checks that the guards are
 * untouched. Length 0 gives a valid pointer. */
void *check_buffer_alloc(size_t length);
void check_buffer_free(void *buffer);

/* Fills with bytes that depend on seed and position. */
void check_fill(void *buffer, size_t length, uint64_t seed);

/* The byte that check_fill() writes at a position. */
uint8_t check_byte(uint64_t seed, size_t position);

/* Checks that a buffer holds what check_fill() writes. */
void check_filled(const void *buffer, size_t length, uint64_t seed, const char *what);

/* Random numbers, the same in every run; the state is the caller's. */
uint64_t check_random(uint64_t *state);

/* A number from min to max, both included. */
size_t check_random_range(uint64_t *state, size_t min, size_t max);

#endif
