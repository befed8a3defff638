# Halyard: files by which other builds find an installation (configure makes them of their .in files),
# manual pages, completion for bash, what packages of Debian, conda and Spack are made by, and
# the command for gdb.
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
