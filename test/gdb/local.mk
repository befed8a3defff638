# Halyard: test of the script for gdb.
# SPDX-License-Identifier: BSD-3-Clause

EXTRA_DIST += test/gdb/test_gdb.sh

check_PROGRAMS += test/gdb/stuck
test_gdb_stuck_SOURCES = test/gdb/stuck.c
test_gdb_stuck_LDADD   = libucp.la libucs.la

TESTS += test/gdb/test_gdb.sh
