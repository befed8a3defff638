# Halyard: files of libucs.
# SPDX-License-Identifier: BSD-3-Clause

libucs_headers = \
	src/ucs/type/status.h \
	src/ucs/type/thread_mode.h \
	src/ucs/type/cpu_set.h \
	src/ucs/config/types.h \
	src/ucs/sys/compiler_def.h \
	src/ucs/memory/memory_type.h \
	src/ucs/debug/log_def.h

libucs_sources = \
	src/ucs/arch/aarch64.h \
	src/ucs/arch/atomic.h \
	src/ucs/arch/cpu.c \
	src/ucs/arch/cpu.h \
	src/ucs/arch/generic.h \
	src/ucs/arch/x86_64.h \
	src/ucs/config/file.c \
	src/ucs/config/file.h \
	src/ucs/config/global.c \
	src/ucs/config/global.h \
	src/ucs/config/list.c \
	src/ucs/config/names.c \
	src/ucs/config/names.h \
	src/ucs/config/parser.c \
	src/ucs/config/parser.h \
	src/ucs/config/value.c \
	src/ucs/debug/assert.h \
	src/ucs/debug/fault.c \
	src/ucs/debug/fault.h \
	src/ucs/debug/log.c \
	src/ucs/debug/log.h \
	src/ucs/debug/probe.h \
	src/ucs/debug/report.c \
	src/ucs/debug/report.h \
	src/ucs/ds/hash.c \
	src/ucs/ds/hash.h \
	src/ucs/ds/list.h \
	src/ucs/ds/mpool.c \
	src/ucs/ds/mpool.h \
	src/ucs/ds/ptr_map.c \
	src/ucs/ds/ptr_map.h \
	src/ucs/event/async.c \
	src/ucs/memory/memory_type.c \
	src/ucs/stats/counters.c \
	src/ucs/stats/counters.h \
	src/ucs/sys/compiler.h \
	src/ucs/sys/fork.c \
	src/ucs/sys/fork.h \
	src/ucs/sys/library.c \
	src/ucs/sys/library.h \
	src/ucs/sys/string.c \
	src/ucs/sys/string.h \
	src/ucs/sys/sys.c \
	src/ucs/sys/sys.h \
	src/ucs/sys/topo.c \
	src/ucs/sys/topo.h \
	src/ucs/type/status.c \
	src/ucs/type/thread_mode.c

noinst_LTLIBRARIES += libucs_core.la libucs_tools.la
libucs_core_la_SOURCES = $(libucs_sources)

# Of libucs too; by itself for ucx_perftest, which binds to nothing but the public interface.
libucs_tools_la_SOURCES = \
	src/ucs/debug/report.c \
	src/ucs/debug/report.h \
	src/ucs/sys/library.c \
	src/ucs/sys/library.h

lib_LTLIBRARIES += libucs.la
libucs_la_SOURCES =
libucs_la_LIBADD = libucs_core.la libucm.la
libucs_la_LIBTOOLFLAGS =
libucs_la_LDFLAGS = $(library_ldflags) $(HWLOC_LDFLAGS) $(OFI_LDFLAGS) \
	-Wl,--version-script=$(top_srcdir)/src/ucs/libucs.map
libucs_la_DEPENDENCIES = libucs_core.la libucm.la src/ucs/libucs.map
EXTRA_DIST += src/ucs/libucs.map

# By name only: programs load it beside the others (signal.c says which).
lib_LTLIBRARIES += libucs_signal.la
libucs_signal_la_SOURCES = src/ucs/signal.c
libucs_signal_la_LIBTOOLFLAGS =
libucs_signal_la_LDFLAGS = $(library_ldflags)
