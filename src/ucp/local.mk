# Halyard: files of libucp.
# SPDX-License-Identifier: BSD-3-Clause

libucp_headers = \
	src/ucp/api/ucp.h \
	src/ucp/api/ucp_def.h \
	src/ucp/api/ucp_compat.h \
	src/ucp/api/ucp_version.h \
	src/ucp/api/device/ucp_host.h

libucp_sources =

noinst_LTLIBRARIES += libucp_core.la
libucp_core_la_SOURCES = $(libucp_sources)

lib_LTLIBRARIES += libucp.la
libucp_la_SOURCES =
libucp_la_LIBADD = libucp_core.la libuct.la libucs.la
libucp_la_LDFLAGS = $(library_ldflags) \
	-Wl,--version-script=$(top_srcdir)/src/ucp/libucp.map
libucp_la_DEPENDENCIES = libucp_core.la libuct.la libucs.la src/ucp/libucp.map
EXTRA_DIST += src/ucp/libucp.map
