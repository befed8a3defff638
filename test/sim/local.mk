# Halyard: the simulator; see README.md here.
# SPDX-License-Identifier: BSD-3-Clause

sim_sources = \
	test/sim/check.cc \
	test/sim/net.c \
	test/sim/ops.cc \
	test/sim/sim.cc \
	test/sim/sim.h \
	test/sim/system.c \
	test/sim/world.cc \
	test/sim/world.h \
	test/gtest/ucp/internals.c \
	test/gtest/ucp/internals.h

check_PROGRAMS += test/sim/sim
test_sim_sim_SOURCES  = $(sim_sources)
test_sim_sim_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/test/gtest
test_sim_sim_LDADD    = libucp_core.la libuct_core.la libucs_core.la libucm_core.la
TESTS                += test/sim/sim
EXTRA_DIST += test/sim/README.md
