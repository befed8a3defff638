# Halyard: unit tests, one program. Add your file to gtest_sources, one a line.
# SPDX-License-Identifier: BSD-3-Clause

gtest_sources = \
	test/gtest/ucs/test_type.cc \
	test/gtest/main.cc

check_PROGRAMS += test/gtest/gtest
test_gtest_gtest_SOURCES = $(gtest_sources)
test_gtest_gtest_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/test/gtest \
	-DHALYARD_SRCDIR='"$(abs_top_srcdir)"' -DHALYARD_BUILDDIR='"$(abs_top_builddir)"'
test_gtest_gtest_LDADD = libucp_core.la libuct_core.la libucs_core.la libucm_core.la \
	$(HWLOC_LDFLAGS) $(HWLOC_LIBS) $(NUMA_LDFLAGS) $(NUMA_LIBS) $(GTEST_LIBS)
TESTS += test/gtest/gtest
