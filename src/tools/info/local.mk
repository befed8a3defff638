# Halyard: ucx_info, which uses the public interface only.
# SPDX-License-Identifier: BSD-3-Clause

bin_PROGRAMS += ucx_info
ucx_info_SOURCES = src/tools/info/info.c
ucx_info_LDADD = libucp.la libucs.la
