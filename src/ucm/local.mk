# Halyard: files of libucm.
# SPDX-License-Identifier: BSD-3-Clause

libucm_headers = src/ucm/api/ucm.h

libucm_sources = src/ucm/ucm.c

noinst_LTLIBRARIES += libucm_core.la
libucm_core_la_SOURCES = $(libucm_sources)

lib_LTLIBRARIES += libucm.la
libucm_la_SOURCES =
libucm_la_LIBADD = libucm_core.la
libucm_la_LIBTOOLFLAGS =
libucm_la_LDFLAGS = $(library_ldflags) \
	-Wl,--version-script=$(top_srcdir)/src/ucm/libucm.map
libucm_la_DEPENDENCIES = libucm_core.la src/ucm/libucm.map
EXTRA_DIST += src/ucm/libucm.map
