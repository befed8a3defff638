# Halyard: files by which other builds find an installation. configure makes them of their .in files.
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
