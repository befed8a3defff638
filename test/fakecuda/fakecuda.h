/* Halyard: a CUDA driver without devices, for tests: what a test can ask of it and make it do.
 *
 * The functions of the driver keep their own names; a test finds all of them by dlsym. Memory of
 * devices cannot be touched by the processor here either. A copy happens when its stream has been
 * asked about often enough, so that whoever does not wait sees old bytes. Several processes share
 * one machine of devices: handles work between them.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_FAKECUDA_FAKECUDA_H
#define TEST_FAKECUDA_FAKECUDA_H

#include <cstddef>
#include <cstdint>

extern "C" {

/* Calls of a function so far; NULL: of all. */
uint64_t fakecuda_calls(const char *name);

/* Questions so far what lies at this very address. */
uint64_t fakecuda_asked(const void *address);

/* The k-th call of a function from now (1: the next) fails with this result, and those after it
 * too where `all` is set. NULL: of any function. k = 0: none. */
void fakecuda_fail(const char *name, uint64_t k, int result, int all);

/* Things that no program may do: objects used without their context or after their end, calls that
 * would break another thread's capture. The first one is printed. */
uint64_t fakecuda_misuses(void);

/* Copies of the driver from or to pageable memory, which block. */
uint64_t fakecuda_pageable(void);

/* Copies from or to memory of other processes, whether they have been done yet or not. */
uint64_t fakecuda_foreign(void);

/* "ticks": questions about a stream after which its first copy is done (2).
 * "devices": how many there are (2). "capture": another thread captures a graph.
 * "lose": copies to memory of other processes (1; 2: from there too) are done without effect.
 * "stuck": copies from and to memory of other processes (1; 2: all) do not end meanwhile.
 * "kernel": one runs that does not end, and what waits for it is a misuse.
 * "room": blocks of a kernel of the library that may start (-1: all). "linger": those that have
 * started do not end. "step": what such kernels do is done by so little more; they also go on when
 * a context is entered.
 * "gone": the driver is being torn down. "version": below 12080 batches are not supported,
 * below 12000 contexts have no numbers. */
void fakecuda_set(const char *what, int value);

/* Where the bytes of a device's memory can be reached, as by a network card; the address itself
 * where it is other memory; NULL: some of it is none. */
void *fakecuda_reach(const void *address, size_t length);

/* Contexts on the calling thread's stack. */
unsigned fakecuda_depth(void);
}

#endif
