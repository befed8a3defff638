#!/bin/bash
# Halyard: do the built libraries export what programs bind to, and nothing by accident?
#
# libucp: exactly the functions of prototypes-1.23.txt whose name begins with ucp_, and the same as
# its export map says; libucm: exactly its functions; libucs and libuct: their own prefix only, and
# the data and functions that programs name; libucs_signal: nothing. Each: the soname, no version
# names; and no symbol is
# defined by two of them.
#
# Usage: check_symbols.sh [-v] [DIRECTORY]
# DIRECTORY is the one with libucp.so.0 in it: $prefix/lib, or as by default .libs of the build tree
# that is the current folder.
# Exit status 1 if anything failed, 77 if there is no shared library to check, as in a build of
# static ones. The last line reads: N passed, N failed, N skipped.
#
# SPDX-License-Identifier: BSD-3-Clause
set -u
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
verbose=0
if [ "${1:-}" = -v ]; then
    verbose=1
    shift
fi
if [ $# -gt 1 ] || { [ $# = 1 ] && [ ! -d "$1" ]; }; then
    echo "usage: $0 [-v] [DIRECTORY with libucp.so.0]" >&2
    exit 2
fi
libraries=${1:-.libs}
if [ $# = 0 ] && [ ! -e .libs/libucp.so.0 ]; then
    echo "no shared libraries in .libs of this folder"
    echo "0 passed, 0 failed, 1 skipped"
    exit 77
fi
for tool in nm readelf; do
    command -v $tool >/dev/null || { echo "$tool not found: install binutils" >&2; exit 2; }
done

work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

passed=0
failed=0

check()
{
    local name=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        passed=$((passed + 1))
        [ $verbose = 0 ] || echo "ok      $name"
    else
        failed=$((failed + 1))
        echo "FAILED  $name"
        head -n 20 "$work/log" | sed 's/^/        /'
    fi
}

# Dynamic symbols that a library defines.
exported() { nm -D --defined-only "$libraries/$1" | awk '{ print $NF }' | sort -u; }

prototypes() { sed -n -E "/^#|^typedef/d; s/^[^(]*[ *]($1[a-z_0-9]+)\(.*/\1/p" \
                   "$here/prototypes-1.23.txt" | sort -u; }

# Names listed in an export map.
mapped() { sed -n -E 's/^ *(uc[a-z]_[a-z0-9_]+);$/\1/p' "$top/src/$1/lib$1.map" | sort -u; }

has_soname()
{
    readelf -d "$libraries/$1" | tee "$work/dynamic" | grep -q "SONAME.*\[$1\]" ||
        { cat "$work/dynamic"; false; }
}

has_no_versions() { ! readelf --version-info "$libraries/$1" | grep 'Version definition section'; }

# Reads names; says which of them do not begin with the prefix.
only_prefix() { ! grep -v "^$1" "$2"; }

# All lines of the first file are in the second one.
contains() { ! comm -23 "$1" "$2" | grep .; }

check "libucs_signal: exports nothing" sh -c "nm -D --defined-only '$libraries/libucs_signal.so.0' >'$work/signal' && ! grep . '$work/signal'"
check "libucs_signal: soname" has_soname libucs_signal.so.0
for library in libucm libucs libuct libucp; do
    if [ ! -e "$libraries/$library.so.0" ]; then
        echo "$library.so.0 is not in $libraries" >"$work/missing"
        check "$library.so.0 exists" sh -c "cat '$work/missing'; false"
        continue
    fi
    exported $library.so.0 >"$work/$library"
    check "$library: soname" has_soname $library.so.0
    check "$library: no version names" has_no_versions $library.so.0
    check "$library: only its prefix" only_prefix "${library#lib}_" "$work/$library"
done
if [ $failed != 0 ] && [ ! -s "$work/libucp" ]; then
    echo "$passed passed, $failed failed, 0 skipped"
    exit 1
fi

prototypes ucp_ >"$work/ucp_functions"
prototypes ucm_ >"$work/ucm_functions"
mapped ucp >"$work/ucp_map"
check "120 functions of ucp in the list" [ "$(wc -l <"$work/ucp_functions")" = 120 ]
check "libucp: export map" diff "$work/ucp_functions" "$work/ucp_map"
check "libucp: exactly the public functions" diff "$work/ucp_functions" "$work/libucp"
check "libucm: exactly its functions" diff "$work/ucm_functions" "$work/libucm"

printf '%s\n' ucs_log_level_names ucs_log_pop_handler ucs_log_push_handler ucs_memory_type_descs \
    ucs_memory_type_names ucs_status_string ucs_thread_mode_names >"$work/ucs_public"
check "libucs: what programs name" contains "$work/ucs_public" "$work/libucs"

# What Open MPI 5.0 binds to in libuct and libucs beyond ucs_status_string (src/uct/base/components.c).
printf '%s\n' uct_component_query uct_config_release uct_ep_connect_to_ep uct_ep_create \
    uct_ep_destroy uct_ep_get_address uct_iface_close uct_iface_get_address \
    uct_iface_get_device_address uct_iface_open uct_iface_query uct_iface_set_am_handler \
    uct_md_close uct_md_config_read uct_md_iface_config_read uct_md_mem_dereg uct_md_mem_reg \
    uct_md_mkey_pack uct_md_open uct_md_query uct_md_query_tl_resources uct_query_components \
    uct_release_component_list uct_release_tl_resource_list uct_rkey_release uct_rkey_unpack \
    uct_worker_create uct_worker_destroy >"$work/uct_public"
printf '%s\n' ucs_async_context_create ucs_async_context_destroy >"$work/ucs_async"
check "libuct: what Open MPI 5 binds to" contains "$work/uct_public" "$work/libuct"
check "libucs: what Open MPI 5 binds to" contains "$work/ucs_async" "$work/libucs"

# One definition a symbol: else it depends on the order of loading which one is used.
sort "$work"/libuc[mstp] | uniq -d >"$work/twice"
check "no symbol in two libraries" sh -c "! grep . '$work/twice'"

echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
