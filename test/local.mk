# Halyard: tests. Each program and script of TESTS runs under a time limit that shows where it
# hangs; one test of the unit tests has its own, shorter limit (test/gtest/main.cc).
# SPDX-License-Identifier: BSD-3-Clause

TEST_PROGRAM_LIMIT = 1200

TEST_EXTENSIONS = .sh
LOG_COMPILER    = $(top_srcdir)/contrib/run-limited.sh
AM_LOG_FLAGS    = $(TEST_PROGRAM_LIMIT)
SH_LOG_COMPILER = $(top_srcdir)/contrib/run-limited.sh
AM_SH_LOG_FLAGS = $(TEST_PROGRAM_LIMIT)

# What tests of the built libraries and programs need to know.
AM_TESTS_ENVIRONMENT = \
	HALYARD_SRCDIR='$(abs_top_srcdir)'; export HALYARD_SRCDIR; \
	HALYARD_BUILDDIR='$(abs_top_builddir)'; export HALYARD_BUILDDIR; \
	HALYARD_LIBDIR='$(abs_top_builddir)/.libs'; export HALYARD_LIBDIR; \
	UCX_NET_ADDRESS=n; export UCX_NET_ADDRESS;

if HAVE_GTEST
include test/gtest/local.mk
endif

# First what takes longest: with more than one job no processor is to wait for it at the end.
include test/bench/local.mk
include test/sim/local.mk

include test/abi/local.mk
include test/mp/local.mk
include test/mpi/local.mk
include test/ofi/local.mk
include test/fuzz/local.mk
include test/gdb/local.mk
include test/packaging/local.mk
include test/wireshark/local.mk
