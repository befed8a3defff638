# Halyard: the library in programs of others' making, run by guest.sh.
# SPDX-License-Identifier: BSD-3-Clause

check_PROGRAMS += test/mp/pair test/mp/reload test/mp/copies test/mp/env_fuzz test/mp/heap \
	test/mp/empty test/mp/empty_linked

test_mp_pair_SOURCES = test/mp/pair.c
test_mp_pair_LDADD   = libucp.la libucs.la

test_mp_reload_SOURCES = test/mp/reload.c
test_mp_reload_LDADD   = -ldl

test_mp_copies_SOURCES = test/mp/copies.c
test_mp_copies_LDADD   = -ldl

test_mp_env_fuzz_SOURCES = test/mp/env_fuzz.c
test_mp_env_fuzz_LDADD   = libucp.la libucs.la

test_mp_heap_SOURCES = test/mp/heap.c
test_mp_heap_LDADD   = libucp.la

test_mp_empty_SOURCES = test/mp/empty.c
test_mp_empty_LDADD   =

test_mp_empty_linked_SOURCES = test/mp/empty.c
test_mp_empty_linked_LDADD   = libucp.la
test_mp_empty_linked_LDFLAGS = $(AM_LDFLAGS) -Wl,--no-as-needed

EXTRA_DIST += test/mp/guest.sh test/mp/settings.c
TESTS      += test/mp/guest.sh
