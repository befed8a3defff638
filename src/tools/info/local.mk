# Halyard: ucx_info: the public interface, and what the libraries know of the machine.
# SPDX-License-Identifier: BSD-3-Clause

bin_PROGRAMS += ucx_info
ucx_info_SOURCES = \
	src/tools/cpu_model.h \
	src/tools/stdout.h \
	src/tools/info/devices.c \
	src/tools/info/doctor.c \
	src/tools/info/info.c \
	src/tools/info/info.h \
	src/tools/info/system.c
ucx_info_CPPFLAGS = $(AM_CPPFLAGS) \
	-DINFO_FLAGS="\"`echo '$(CC) $(AM_CFLAGS) $(CFLAGS)' | tr -d '\"\\\\'`\"" \
	-DINFO_CONFIGURED="\"`echo $(CONFIGURED)`\"" -DINFO_PREFIX='"$(prefix)"'
ucx_info_LDADD = libucp.la libuct.la libucs.la
