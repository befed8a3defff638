# Halyard: the simulator; see README.md here.
# SPDX-License-Identifier: BSD-3-Clause

sim_sources = \
	test/sim/am.cc \
	test/sim/blocking.cc \
	test/sim/check.cc \
	test/sim/clients.cc \
	test/sim/devices.c \
	test/sim/legacy.cc \
	test/sim/net.c \
	test/sim/net_lent.c \
	test/sim/net_memory.c \
	test/sim/net_parts.c \
	test/sim/ops.cc \
	test/sim/rma.cc \
	test/sim/rma.h \
	test/sim/sim.h \
	test/sim/stream.cc \
	test/sim/system.c \
	test/sim/tcp.cc \
	test/sim/world.cc \
	test/sim/world.h \
	test/gtest/ucp/internals.c \
	test/gtest/ucp/internals.h \
	test/gtest/wire/print.c \
	test/gtest/wire/print.h

# What both programs have alike is compiled once.
EXTRA_LTLIBRARIES += test/sim/libsim.la
test_sim_libsim_la_SOURCES  = $(sim_sources)
test_sim_libsim_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/test/gtest

check_PROGRAMS += test/sim/sim
test_sim_sim_SOURCES  = test/sim/sim.cc
test_sim_sim_CPPFLAGS = $(test_sim_libsim_la_CPPFLAGS)
test_sim_sim_LDADD    = test/sim/libsim.la \
	libucp_core.la libuct_core.la libucs_core.la libucm_core.la
TESTS                += test/sim/sim

# The same with copies of the sources of ucp in which bugs are planted; see planted.sed.
sim_planted_from = \
	src/ucp/core/flush.c \
	src/ucp/core/peer.c \
	src/ucp/core/provisional.c \
	src/ucp/core/request.c \
	src/ucp/core/wakeup.c \
	src/ucp/ops/am_recv.c \
	src/ucp/ops/rma.c \
	src/ucp/ops/rma_order.c \
	src/ucp/ops/rma_target.c \
	src/ucp/ops/send.c \
	src/ucp/ops/stream_recv.c \
	src/ucp/ops/tag_budget.c \
	src/ucp/ops/tag_match.c \
	src/ucp/ops/tag_recv.c \
	src/ucp/protos/eager.c \
	src/ucp/protos/piped.c \
	src/ucp/protos/rndv_recv.c \
	src/ucp/protos/rndv_send.c \
	src/ucp/protos/rndv_staged.c \
	src/ucp/wireup/conn.c
sim_planted_sources = \
	test/sim/planted_sources/am_recv.c \
	test/sim/planted_sources/conn.c \
	test/sim/planted_sources/eager.c \
	test/sim/planted_sources/flush.c \
	test/sim/planted_sources/peer.c \
	test/sim/planted_sources/piped.c \
	test/sim/planted_sources/provisional.c \
	test/sim/planted_sources/request.c \
	test/sim/planted_sources/rma.c \
	test/sim/planted_sources/rma_order.c \
	test/sim/planted_sources/rma_target.c \
	test/sim/planted_sources/rndv_recv.c \
	test/sim/planted_sources/rndv_send.c \
	test/sim/planted_sources/rndv_staged.c \
	test/sim/planted_sources/send.c \
	test/sim/planted_sources/stream_recv.c \
	test/sim/planted_sources/tag_budget.c \
	test/sim/planted_sources/tag_match.c \
	test/sim/planted_sources/tag_recv.c \
	test/sim/planted_sources/wakeup.c

test/sim/planted_sources/stamp: $(sim_planted_from) test/sim/planted.sed
	@$(MKDIR_P) test/sim/planted_sources
	@for file in $(sim_planted_from); do \
	  sed -f $(srcdir)/test/sim/planted.sed $(srcdir)/$$file \
	    >test/sim/planted_sources/$$(basename $$file) || exit 1; \
	done
	@touch $@

$(sim_planted_sources): test/sim/planted_sources/stamp
	@touch $@

check_PROGRAMS += test/sim/planted
test_sim_planted_SOURCES        = test/sim/sim.cc
nodist_test_sim_planted_SOURCES = $(sim_planted_sources)
test_sim_planted_CPPFLAGS       = $(test_sim_libsim_la_CPPFLAGS) -DSIM_HAS_PLANTED
test_sim_planted_LDADD          = $(test_sim_sim_LDADD)
CLEANFILES += test/sim/libsim.la $(sim_planted_sources) test/sim/planted_sources/stamp
TESTS      += test/sim/planted.sh
EXTRA_DIST += test/sim/README.md test/sim/planted.sed test/sim/planted.sh
