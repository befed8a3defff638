#!/bin/bash
# Halyard: the library as a guest in programs that have their own ideas: loaded and unloaded, another
# malloc, valgrind, a sanitizer in the application only, any environment; what becomes of their
# temporary buffers; and what it costs a program that is linked with it and does not use it.
#
#   guest.sh        (in the build folder, or with HALYARD_BUILDDIR, HALYARD_LIBDIR, HALYARD_SRCDIR)
#
# Ends with "N passed, N failed, N skipped". A tool that is missing is a reason to skip, and is named.
# SPDX-License-Identifier: BSD-3-Clause
set -u

build=${HALYARD_BUILDDIR:-$PWD}
source=${HALYARD_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
libs=${HALYARD_LIBDIR:-$build/.libs}
readonly STEP_LIMIT_S=120
readonly FUZZ_RUNS=${HALYARD_FUZZ_RUNS:-300}

passed=0
failed=0
skipped=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

export LD_LIBRARY_PATH="$libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

skip() # what why
{
    skipped=$((skipped + 1))
    echo "skipped: $1: $2"
}

verdict() # what exit_status log
{
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
        echo "passed:  $1"
    else
        failed=$((failed + 1))
        echo "FAILED:  $1 (exit status $2)"
        sed 's/^/    /' "$3" | head -n 120
    fi
}

step() # what command...
{
    local what=$1 rc
    shift
    "$source/contrib/run-limited.sh" $STEP_LIMIT_S "$@" >"$scratch/log" 2>&1 </dev/null
    rc=$?
    verdict "$what" $rc "$scratch/log"
}

# The same, and not a word on standard error.
silent_step() # what command...
{
    local what=$1 rc
    shift
    "$source/contrib/run-limited.sh" $STEP_LIMIT_S "$@" >"$scratch/out" 2>"$scratch/log" </dev/null
    rc=$?
    [ $rc -eq 0 ] && [ -s "$scratch/log" ] && rc=99
    [ $rc -ge 124 ] && cat "$scratch/out" >>"$scratch/log" # where its processes stood
    verdict "$what" $rc "$scratch/log"
}

# libtool puts a script in the program's place while the libraries are not installed.
program() # name
{
    if [ -x "$build/test/mp/.libs/$1" ]; then
        echo "$build/test/mp/.libs/$1"
    else
        echo "$build/test/mp/$1"
    fi
}

library() # name: path of an installed library
{
    ldconfig -p | sed -n "s,.*$1.* => ,,p" | head -n 1
}

is_sanitized()
{
    readelf -s --wide "$libs/libucp.so.0" 2>/dev/null | grep -qE ' __(asan|tsan|ubsan)_'
}

pair=$(program pair)
for file in "$pair" "$(program reload)" "$(program env_fuzz)" "$libs/libucp.so.0"; do
    [ -x "$file" ] || { echo "guest.sh: $file is not there: make check builds it" >&2; exit 2; }
done

# Another libucp of the system would pass or fail for itself.
if ! ldd "$pair" | grep -q "libucp.so.0 => $libs/"; then
    ldd "$pair"
    echo "guest.sh: these programs do not load $libs/libucp.so.0" >&2
    exit 2
fi

# ---------------------------------------------------------------------------- as it is

silent_step "two processes exchange messages, in silence" "$pair"

if is_sanitized; then
    skip "loading and unloading" "the library is built with a sanitizer, which must be loaded first"
else
    step "20 times: load, use, unload" "$(program reload)" "$libs/libucp.so.0" 20
fi

# The other copy has names of its own, of the same lengths, in its files too.
copy_libraries()
{
    local letter
    for letter in m p s t; do
        sed 's/libuc\([mpst]\)\.so\.0/libhc\1.so.0/g' "$libs/libuc$letter.so.0" \
            >"$scratch/libhc$letter.so.0" || return
    done
}

if is_sanitized; then
    skip "two copies in one process" "the library is built with a sanitizer, which must be loaded first"
else
    copy_libraries
    LD_LIBRARY_PATH="$libs:$scratch" silent_step "two copies in one process talk to each other" \
        "$(program copies)" "$libs/libucp.so.0" "$scratch/libhcp.so.0"
fi

step "$FUZZ_RUNS environments that nobody expects" "$(program env_fuzz)" "$pair" "$FUZZ_RUNS"

if is_sanitized; then
    skip "temporary buffers" "the library is built with a sanitizer, which has its own malloc"
else
    "$source/contrib/run-limited.sh" $STEP_LIMIT_S "$(program heap)" >"$scratch/log" 2>&1 </dev/null
    rc=$?
    if [ $rc -eq 77 ]; then
        skip "temporary buffers" "this C library keeps them, whatever the library does"
    else
        verdict "temporary buffers stay with the program" $rc "$scratch/log"
    fi
fi

# ---------------------------------------------------------------------------- other tools in the process

jemalloc=$(library libjemalloc.so)
if is_sanitized; then
    skip "jemalloc" "the library is built with a sanitizer, which has its own malloc"
elif [ -z "$jemalloc" ]; then
    skip "jemalloc" "libjemalloc is not installed"
else
    silent_step "jemalloc in the place of malloc" env LD_PRELOAD="$jemalloc" "$pair"
fi

if is_sanitized; then
    skip "valgrind" "the library is built with a sanitizer"
elif ! command -v valgrind >/dev/null; then
    skip "valgrind" "it is not installed"
else
    step "valgrind finds nothing" valgrind -q --error-exitcode=9 --leak-check=full \
        --errors-for-leak-kinds=definite --child-silent-after-fork=no "$pair" 1
fi

if is_sanitized; then
    skip "AddressSanitizer in the application" "the library has it too"
elif ! ${CC:-cc} -g -O1 -fsanitize=address -I"$build" -I"$build/src" -I"$source/src" \
        "$source/test/mp/pair.c" -o "$scratch/pair_asan" -L"$libs" -lucp -lucs \
        >"$scratch/log" 2>&1; then
    skip "AddressSanitizer in the application" "it does not compile: $(head -n 1 "$scratch/log")"
else
    silent_step "AddressSanitizer in the application only" "$scratch/pair_asan"
fi

# ---------------------------------------------------------------------------- rights

# A program of root's, started by a user who would like it to do something else.
check_set_user_id()
{
    local as_user="setpriv --reuid 54321 --clear-groups" home=$scratch/home
    mkdir -p "$home" && chmod 755 "$scratch" && cd "$home" || return
    echo UCX_RNDV_THRESH=8888 >ucx.conf && chown -R 54321 "$home" || return
    cp "$scratch/settings" "$scratch/trusted" && chmod 4755 "$scratch/trusted" || return
    export HOME=$home UCX_CONFIG_DIR=$home
    if [ "$($as_user "$scratch/settings" | grep -c '^UCX_RNDV_THRESH=8888$')" -ne 1 ]; then
        echo "without such rights the file is not read: the test shows nothing"
        return 1
    fi
    UCX_RNDV_THRESH=7777 UCX_LOG_LEVEL=debug UCX_LOG_FILE=$home/log UCX_FAULT=malloc:1 \
        $as_user "$scratch/trusted" >"$scratch/out" || return
    grep -E '^UCX_(RNDV_THRESH|LOG_LEVEL|LOG_FILE)=' "$scratch/out" | sort >"$scratch/read"
    printf '%s\n' UCX_LOG_FILE= UCX_LOG_LEVEL=warn UCX_RNDV_THRESH=auto | diff - "$scratch/read" &&
        [ ! -e log ]
}

cp /usr/bin/id "$scratch/id" && chmod 755 "$scratch" && chmod 4755 "$scratch/id"
if [ "$(id -u)" -ne 0 ] || ! command -v setpriv >/dev/null ||
   [ "$(setpriv --reuid 54321 --clear-groups "$scratch/id" -u 2>/dev/null)" != 0 ]; then
    skip "a set-user-ID program" "not root, no setpriv, or a file system without such programs"
elif is_sanitized; then
    skip "a set-user-ID program" "the library is built with a sanitizer"
elif ! ${CC:-cc} -I"$build" -I"$build/src" -I"$source/src" "$source/test/mp/settings.c" \
        -o "$scratch/settings" -L"$libs" -lucp -lucs -Wl,-rpath,"$libs" >"$scratch/log" 2>&1 ||
     ! setpriv --reuid 54321 --clear-groups "$scratch/settings" >/dev/null 2>&1; then
    skip "a set-user-ID program" "it does not compile, or others may not read the libraries"
else
    (check_set_user_id) >"$scratch/log" 2>&1
    verdict "a set-user-ID program takes no settings of its user" $? "$scratch/log"
fi

# ---------------------------------------------------------------------------- linked and not used

# Names of the system calls that a program makes, with files that it opens.
trace() # output command...
{
    local output=$1
    shift
    timeout $STEP_LIMIT_S strace -f -o "$output" "$@" >/dev/null 2>&1
}

check_idle_cost()
{
    local names other files
    trace "$scratch/linked" "$(program empty_linked)" || { echo "strace failed"; return 1; }
    trace "$scratch/empty" "$(program empty)" || { echo "strace failed"; return 1; }

    if ! grep -q libucp.so.0 "$scratch/linked"; then
        echo "the program is not linked with libucp: the test shows nothing"
        return 1
    fi
    # More of what loading takes, and nothing else.
    names=$(sed -E 's/^[0-9]+ +//; s/\(.*//' "$scratch/linked" | grep -E '^[a-z0-9_]+$' | sort -u)
    other=$(comm -23 <(echo "$names") \
            <(sed -E 's/^[0-9]+ +//; s/\(.*//' "$scratch/empty" | grep -E '^[a-z0-9_]+$' | sort -u) |
            grep -vE '^(openat|read|pread64|fstat|newfstatat|mmap|mprotect|munmap|close|brk|readlink)$')
    if [ -n "$other" ]; then
        echo "system calls before main that an empty program does not make:" $other
        return 1
    fi
    files=$(sed -nE 's/.*openat\([^"]*"([^"]+)".* = [0-9]+$/\1/p' "$scratch/linked" |
            sed 's,.*/,,' | grep -vE '^(libuc[pstm]\.so\.|lib(c|m|dl|pthread|rt)\.so\.|ld\.so\.cache)')
    if [ -n "$files" ]; then
        echo "files opened before main:" $files
        return 1
    fi
    if grep -qE 'clone|fork|socket|sigaction\((SIG|[0-9])' "$scratch/linked"; then
        grep -E 'clone|fork|socket|sigaction' "$scratch/linked"
        return 1
    fi
}

if is_sanitized; then
    skip "a program that is only linked" "the library is built with a sanitizer"
elif ! command -v strace >/dev/null; then
    skip "a program that is only linked" "strace is not installed"
elif ! strace -o /dev/null true 2>/dev/null; then
    skip "a program that is only linked" "strace may not trace here"
else
    check_idle_cost >"$scratch/log" 2>&1
    verdict "a program that is only linked does nothing before main" $? "$scratch/log"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
