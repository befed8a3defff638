# Halyard: unit tests, one program. Add your file to gtest_sources, one a line.
# SPDX-License-Identifier: BSD-3-Clause

gtest_sources = \
	test/gtest/fake_sys.h \
	test/gtest/main.cc \
	test/gtest/pattern.c \
	test/gtest/pattern.h \
	test/gtest/fault/companion.h \
	test/gtest/fault/test_copy_refused.cc \
	test/gtest/fault/survivor.h \
	test/gtest/fault/test_kill.cc \
	test/gtest/fault/test_kill_am_stream.cc \
	test/gtest/fault/test_kill_storm.cc \
	test/gtest/fault/test_limits.cc \
	test/gtest/fault/test_namespaces.cc \
	test/gtest/fault/test_shared_memory.cc \
	test/gtest/fault/test_stop.cc \
	test/gtest/mp/hosts.cc \
	test/gtest/mp/hosts.h \
	test/gtest/mp/joined_hosts.cc \
	test/gtest/mp/line.cc \
	test/gtest/mp/joined_hosts.h \
	test/gtest/mp/cuda_side.h \
	test/gtest/mp/gpu.h \
	test/gtest/mp/host_buffer.h \
	test/gtest/mp/node.cc \
	test/gtest/mp/node.h \
	test/gtest/mp/processes.cc \
	test/gtest/mp/party.h \
	test/gtest/mp/processes.h \
	test/gtest/mp/program.cc \
	test/gtest/mp/program.h \
	test/gtest/mp/program_memory.cc \
	test/gtest/mp/program_plan.h \
	test/gtest/mp/restrict.cc \
	test/gtest/mp/restrict.h \
	test/gtest/mp/shared_memory.h \
	test/gtest/mp/snapshot.cc \
	test/gtest/mp/snapshot.h \
	test/gtest/mp/syscall_count.cc \
	test/gtest/mp/syscall_count.h \
	test/gtest/mp/test_beyond_4gib.cc \
	test/gtest/mp/test_client_server.cc \
	test/gtest/mp/test_cuda_election.cc \
	test/gtest/mp/test_cuda_faults.cc \
	test/gtest/mp/test_cuda_host.cc \
	test/gtest/mp/test_cuda_matrix.cc \
	test/gtest/mp/test_cuda_programs.cc \
	test/gtest/mp/test_cuda_rma.cc \
	test/gtest/mp/test_cuda_shared.cc \
	test/gtest/mp/test_cuda_staging.cc \
	test/gtest/mp/test_doors.cc \
	test/gtest/mp/test_footprint.cc \
	test/gtest/mp/test_guest.cc \
	test/gtest/mp/test_hosts.cc \
	test/gtest/mp/test_one_sided.cc \
	test/gtest/mp/test_rails.cc \
	test/gtest/mp/test_reconnect.cc \
	test/gtest/mp/test_traffic.cc \
	test/gtest/mp/test_unexpected.cc \
	test/gtest/ucp/internals.c \
	test/gtest/ucp/internals.h \
	test/gtest/ucp/server.h \
	test/gtest/ucp/test_am.cc \
	test/gtest/ucp/test_amo.cc \
	test/gtest/ucp/test_answers.cc \
	test/gtest/ucp/test_context.cc \
	test/gtest/ucp/test_datatype.cc \
	test/gtest/ucp/test_door.cc \
	test/gtest/ucp/test_ep.cc \
	test/gtest/ucp/test_idle.cc \
	test/gtest/ucp/test_learn.cc \
	test/gtest/ucp/test_failure.cc \
	test/gtest/ucp/test_reconnect.cc \
	test/gtest/ucp/remote.cc \
	test/gtest/ucp/remote.h \
	test/gtest/ucp/test_listener.cc \
	test/gtest/ucp/test_listener_failure.cc \
	test/gtest/ucp/test_listener_hostile.cc \
	test/gtest/ucp/test_mem.cc \
	test/gtest/ucp/test_mem_pinned.cc \
	test/gtest/ucp/test_ofi_faults.cc \
	test/gtest/ucp/test_ofi_receives.cc \
	test/gtest/ucp/test_ofi_hmem.cc \
	test/gtest/ucp/test_ofi_rma.cc \
	test/gtest/ucp/test_ofi_ends.cc \
	test/gtest/ucp/test_ofi_zcopy.cc \
	test/gtest/ucp/test_params.cc \
	test/gtest/ucp/test_proto.cc \
	test/gtest/ucp/test_query.cc \
	test/gtest/ucp/test_request.cc \
	test/gtest/ucp/test_rma.cc \
	test/gtest/ucp/test_rma_list.cc \
	test/gtest/ucp/test_stream.cc \
	test/gtest/ucp/test_tag.cc \
	test/gtest/ucp/test_tag_budget.cc \
	test/gtest/ucp/test_tag_match.cc \
	test/gtest/ucp/test_thread.cc \
	test/gtest/ucp/test_thread_mix.cc \
	test/gtest/ucp/test_wakeup.cc \
	test/gtest/ucp/world.cc \
	test/gtest/ucp/world.h \
	test/gtest/ucs/comma_locale.h \
	test/gtest/ucs/test_atomic.cc \
	test/gtest/ucs/test_config.cc \
	test/gtest/ucs/test_counters.cc \
	test/gtest/ucs/test_fault.cc \
	test/gtest/ucs/test_hash.cc \
	test/gtest/ucs/test_library.cc \
	test/gtest/ucs/test_list.cc \
	test/gtest/ucs/test_log.cc \
	test/gtest/ucs/test_mpool.cc \
	test/gtest/ucs/test_ptr_map.cc \
	test/gtest/ucs/test_report.cc \
	test/gtest/ucs/test_sys.cc \
	test/gtest/ucs/test_topo.cc \
	test/gtest/ucs/test_type.cc \
	test/gtest/uct/cuda_program.cc \
	test/gtest/uct/cuda_pair.h \
	test/gtest/uct/cuda_program.h \
	test/gtest/uct/faulty_provider.cc \
	test/gtest/uct/faulty_provider.h \
	test/gtest/uct/peer_process.cc \
	test/gtest/uct/peer_process.h \
	test/gtest/uct/sys_meter.cc \
	test/gtest/uct/sys_meter.h \
	test/gtest/uct/test_base.cc \
	test/gtest/uct/test_cma.cc \
	test/gtest/uct/test_conformance_am.cc \
	test/gtest/uct/test_conformance_life.cc \
	test/gtest/uct/test_conformance_process.cc \
	test/gtest/uct/test_conformance_rma.cc \
	test/gtest/uct/test_conformance_thread.cc \
	test/gtest/uct/test_cuda_copy.cc \
	test/gtest/uct/test_cuda_header.cc \
	test/gtest/uct/test_cuda_ipc.cc \
	test/gtest/uct/test_cuda_kernel.cc \
	test/gtest/uct/test_descriptor.cc \
	test/gtest/uct/test_hook.cc \
	test/gtest/uct/test_mm.cc \
	test/gtest/uct/test_mm_due.cc \
	test/gtest/uct/test_mm_ring.cc \
	test/gtest/uct/test_mm_segment.cc \
	test/gtest/uct/test_ofi.cc \
	test/gtest/uct/test_ofi_late.cc \
	test/gtest/uct/test_self.cc \
	test/gtest/uct/world.cc \
	test/gtest/uct/world.h \
	test/gtest/wire/print.c \
	test/gtest/wire/print.h \
	test/gtest/wire/test_hostile.cc \
	test/gtest/wire/test_wire.cc \
	test/gtest/precompiled.h

check_PROGRAMS += test/gtest/gtest
test_gtest_gtest_SOURCES = $(gtest_sources) src/tools/perf/costs.c src/tools/perf/costs.h \
	src/tools/perf/cuda.c src/tools/perf/device.h
test_gtest_gtest_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/test/gtest \
	-DHALYARD_SRCDIR='"$(abs_top_srcdir)"' -DHALYARD_BUILDDIR='"$(abs_top_builddir)"'
test_gtest_gtest_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_PRECOMPILED)
test_gtest_gtest_LDADD = libucp_core.la libuct_core.la libucs_core.la libucm_core.la \
	$(GTEST_LIBS)
# Who builds everything from nothing saves a third of the compiler's time (contrib/check.sh):
#   make test/gtest/precompiled.h.gch && make check GTEST_PRECOMPILED="-include test/gtest/precompiled.h"
GTEST_PRECOMPILED =
test/gtest/precompiled.h.gch: test/gtest/precompiled.h
	$(AM_V_GEN)$(MKDIR_P) test/gtest && $(CXX) $(DEFS) $(DEFAULT_INCLUDES) $(INCLUDES) \
		$(test_gtest_gtest_CPPFLAGS) $(CPPFLAGS) $(AM_CXXFLAGS) $(CXXFLAGS) -x c++-header \
		-c -o $@ $<
CLEANFILES += test/gtest/precompiled.h.gch
# A library for test_library.cc; -rpath makes libtool build it shared.
check_LTLIBRARIES = test/gtest/libgreedy.la test/fakecuda/libcuda.la
test_gtest_libgreedy_la_SOURCES = test/gtest/ucs/library_greedy.c
test_gtest_libgreedy_la_LDFLAGS = -module -avoid-version -shared -rpath /nowhere
# A CUDA driver without devices; tests open it as test/fakecuda/.libs/libcuda.so.1. Its variables of
# threads are the loader's: where such a block lies 16 bytes
# into a page, LeakSanitizer takes what is before it for a header (of glibc 2.19), and crashes as it
# reads where that points.
test_fakecuda_libcuda_la_SOURCES = test/fakecuda/fakecuda.cc test/fakecuda/fakecuda.h
test_fakecuda_libcuda_la_CXXFLAGS = $(AM_CXXFLAGS) -ftls-model=initial-exec
test_fakecuda_libcuda_la_LDFLAGS = -shared -version-number 1:0:0 -rpath /nowhere
TESTS += test/gtest/gtest
