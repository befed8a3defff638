# Halyard: tests of the tools, and comparisons of figures that are run by hand.
# SPDX-License-Identifier: BSD-3-Clause

EXTRA_DIST += \
	test/bench/mpi_pingpong.c \
	test/bench/mpi_ratio.sh \
	test/bench/ring_ratio.sh \
	test/bench/test_info.sh \
	test/bench/test_manuals.sh \
	test/bench/test_perftest.sh \
	test/bench/two_devices.sh \
	test/bench/ucx_ratio.sh

check_PROGRAMS += test/bench/crowd test/bench/cuda_uct
test_bench_crowd_SOURCES    = test/bench/crowd.c
test_bench_crowd_LDADD      = libucp.la libucs.la
test_bench_cuda_uct_SOURCES = test/bench/cuda_uct.c
test_bench_cuda_uct_LDADD   = libuct_core.la libucs_core.la

TESTS += test/bench/test_perftest.sh test/bench/test_info.sh test/bench/test_manuals.sh
