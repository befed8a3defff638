# Halyard: files by which other builds find an installation (configure makes them of their .in files),
# manual pages, the pages of docs/, completion for bash, what packages of Debian, conda and Spack are
# made by, the command for gdb, and the dissector for Wireshark.
# SPDX-License-Identifier: BSD-3-Clause

pkgconfigdir = $(libdir)/pkgconfig
pkgconfig_DATA = \
	packaging/pkgconfig/ucx.pc \
	packaging/pkgconfig/ucx-ucs.pc \
	packaging/pkgconfig/ucx-uct.pc

cmakedir = $(libdir)/cmake/ucx
cmake_DATA = \
	packaging/cmake/ucx-config.cmake \
	packaging/cmake/ucx-config-version.cmake \
	packaging/cmake/ucx-targets.cmake

dist_man_MANS = \
	packaging/man/ucx_info.1 \
	packaging/man/ucx_perftest.1

# The pages keep their place beside what they lead to.
dist_doc_DATA = ARCHITECTURE.md NEWS PERFORMANCE.md README.md
pagesdir      = $(docdir)/docs
dist_pages_DATA = \
	docs/containers.md \
	docs/cuda.md \
	docs/debug.md \
	docs/errors.md \
	docs/mpich.md \
	docs/openmpi.md \
	docs/openshmem.md \
	docs/security.md \
	docs/slurm.md \
	docs/tune.md

bashcompletiondir = $(datadir)/bash-completion/completions
dist_bashcompletion_DATA = \
	packaging/completion/ucx_info \
	packaging/completion/ucx_perftest

EXTRA_DIST += \
	packaging/conda/meta.yaml \
	packaging/debian/control \
	packaging/debian/halyard-utils.install \
	packaging/debian/libhalyard-dev.install \
	packaging/debian/libhalyard0.docs \
	packaging/debian/libhalyard0.install \
	packaging/debian/libhalyard0.lintian-overrides \
	packaging/debian/rules \
	packaging/debian/source/format \
	packaging/debian/tests/control \
	packaging/spack/package.py

dist_pkgdata_DATA = contrib/halyard-gdb.py

# The tables of the dissector are those of the headers.
wireshark_layouts = \
	$(top_srcdir)/src/ucs/type/status.h \
	$(top_srcdir)/src/uct/api/uct_tl.h \
	$(top_srcdir)/src/ucp/wire/wire.h \
	$(top_srcdir)/src/ucp/wire/wire.c \
	$(top_srcdir)/src/uct/ofi/ofi_wire.h
wireshark_sources = packaging/wireshark/layouts.awk packaging/wireshark/halyard.lua.in
pkgdata_DATA = halyard.lua
CLEANFILES  += halyard.lua
EXTRA_DIST  += $(wireshark_sources)

halyard.lua: $(wireshark_sources) $(wireshark_layouts)
	$(AM_V_GEN)$(AWK) -f $(top_srcdir)/packaging/wireshark/layouts.awk $(wireshark_layouts) \
	  $(top_srcdir)/packaging/wireshark/halyard.lua.in >$@.part
	$(AM_V_at)mv $@.part $@
