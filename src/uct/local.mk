# Halyard: files of libuct.
# SPDX-License-Identifier: BSD-3-Clause

libuct_headers = \
	src/uct/api/version.h

libuct_sources =

noinst_LTLIBRARIES += libuct_core.la
libuct_core_la_SOURCES = $(libuct_sources)

lib_LTLIBRARIES += libuct.la
libuct_la_SOURCES =
libuct_la_LIBADD = libuct_core.la libucs.la
libuct_la_LDFLAGS = $(library_ldflags) \
	-Wl,--version-script=$(top_srcdir)/src/uct/libuct.map
libuct_la_DEPENDENCIES = libuct_core.la libucs.la src/uct/libuct.map
EXTRA_DIST += src/uct/libuct.map
