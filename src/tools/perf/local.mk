# Halyard: files of ucx_perftest, which uses the public interface but for the tests of one layer,
# loops_ofi.c and loops_uct.c, and for the driver's interface (cuda.c).
# SPDX-License-Identifier: BSD-3-Clause

bin_PROGRAMS += ucx_perftest
ucx_perftest_SOURCES = \
	src/tools/cpu_model.h \
	src/tools/stdout.h \
	src/tools/perf/audit.c \
	src/tools/perf/batch.c \
	src/tools/perf/clock.h \
	src/tools/perf/compare.c \
	src/tools/perf/costs.c \
	src/tools/perf/costs.h \
	src/tools/perf/cuda.c \
	src/tools/perf/device.h \
	src/tools/perf/help.c \
	src/tools/perf/lane.c \
	src/tools/perf/lane.h \
	src/tools/perf/limits.c \
	src/tools/perf/limits_device.c \
	src/tools/perf/loops.h \
	src/tools/perf/loops_messages.c \
	src/tools/perf/loops_ofi.c \
	src/tools/perf/loops_rma.c \
	src/tools/perf/loops_uct.c \
	src/tools/perf/main.c \
	src/tools/perf/oob.c \
	src/tools/perf/oob.h \
	src/tools/perf/ops.c \
	src/tools/perf/ops.h \
	src/tools/perf/options.c \
	src/tools/perf/options.h \
	src/tools/perf/output_text.c \
	src/tools/perf/pin.c \
	src/tools/perf/pin.h \
	src/tools/perf/plot.c \
	src/tools/perf/ranks.c \
	src/tools/perf/record.c \
	src/tools/perf/remote.c \
	src/tools/perf/report.c \
	src/tools/perf/report.h \
	src/tools/perf/rounds.c \
	src/tools/perf/rounds.h \
	src/tools/perf/run.c \
	src/tools/perf/run.h \
	src/tools/perf/self.c \
	src/tools/perf/session.c \
	src/tools/perf/session.h \
	src/tools/perf/setup.c \
	src/tools/perf/shared.h \
	src/tools/perf/sizes.c \
	src/tools/perf/startup.c \
	src/tools/perf/stats.c \
	src/tools/perf/stats.h \
	src/tools/perf/table.c \
	src/tools/perf/validate.c \
	src/tools/perf/validate.h \
	src/tools/perf/watch.c \
	src/tools/perf/watch.h
ucx_perftest_LDFLAGS = $(AM_LDFLAGS) $(OFI_LDFLAGS)
ucx_perftest_LDADD = libuct_ofi_lib.la libucs_tools.la libucp.la libuct.la libucs.la -lm
