# Halyard: fuzzing: run.sh runs the targets with libFuzzer, make check their corpora.
# SPDX-License-Identifier: BSD-3-Clause

fuzz_sources = \
	test/fuzz/address.c \
	test/fuzz/config.c \
	test/fuzz/conn.c \
	test/fuzz/fuzz.h \
	test/fuzz/messages.c \
	test/fuzz/pair.c \
	test/fuzz/rkey.c
fuzz_libs = test/fuzz/libtargets.la libucp_core.la libuct_core.la libucs_core.la libucm_core.la

EXTRA_LTLIBRARIES += test/fuzz/libtargets.la
test_fuzz_libtargets_la_SOURCES = $(fuzz_sources)

if ENABLE_FUZZ
fuzz_programs = test/fuzz/fuzz_address test/fuzz/fuzz_config test/fuzz/fuzz_conn \
	test/fuzz/fuzz_messages test/fuzz/fuzz_rkey
EXTRA_PROGRAMS = $(fuzz_programs)

test_fuzz_fuzz_address_SOURCES  = test/fuzz/driver.c
test_fuzz_fuzz_address_CPPFLAGS = $(AM_CPPFLAGS) -DFUZZ_TARGET=fuzz_address
test_fuzz_fuzz_address_LDADD    = $(fuzz_libs)
test_fuzz_fuzz_address_LDFLAGS  = $(AM_LDFLAGS) -fsanitize=fuzzer

test_fuzz_fuzz_config_SOURCES  = test/fuzz/driver.c
test_fuzz_fuzz_config_CPPFLAGS = $(AM_CPPFLAGS) -DFUZZ_TARGET=fuzz_config
test_fuzz_fuzz_config_LDADD    = $(fuzz_libs)
test_fuzz_fuzz_config_LDFLAGS  = $(AM_LDFLAGS) -fsanitize=fuzzer

test_fuzz_fuzz_conn_SOURCES  = test/fuzz/driver.c
test_fuzz_fuzz_conn_CPPFLAGS = $(AM_CPPFLAGS) -DFUZZ_TARGET=fuzz_conn
test_fuzz_fuzz_conn_LDADD    = $(fuzz_libs)
test_fuzz_fuzz_conn_LDFLAGS  = $(AM_LDFLAGS) -fsanitize=fuzzer

test_fuzz_fuzz_messages_SOURCES  = test/fuzz/driver.c
test_fuzz_fuzz_messages_CPPFLAGS = $(AM_CPPFLAGS) -DFUZZ_TARGET=fuzz_messages
test_fuzz_fuzz_messages_LDADD    = $(fuzz_libs)
test_fuzz_fuzz_messages_LDFLAGS  = $(AM_LDFLAGS) -fsanitize=fuzzer

test_fuzz_fuzz_rkey_SOURCES  = test/fuzz/driver.c
test_fuzz_fuzz_rkey_CPPFLAGS = $(AM_CPPFLAGS) -DFUZZ_TARGET=fuzz_rkey
test_fuzz_fuzz_rkey_LDADD    = $(fuzz_libs)
test_fuzz_fuzz_rkey_LDFLAGS  = $(AM_LDFLAGS) -fsanitize=fuzzer

fuzz-programs: $(fuzz_programs)
endif

check_PROGRAMS += test/fuzz/replay
test_fuzz_replay_SOURCES = test/fuzz/replay.c
test_fuzz_replay_LDADD   = $(fuzz_libs)
TESTS      += test/fuzz/replay
CLEANFILES += test/fuzz/libtargets.la
EXTRA_DIST += test/fuzz/driver.c test/fuzz/run.sh test/fuzz/corpus
