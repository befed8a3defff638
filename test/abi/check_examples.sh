#!/bin/bash
# Halyard: do the example programs of Debian's libucx-dev run over this library, unchanged?
#
# Each is built twice: with our headers, and with Debian's of UCX 1.13 against Debian's libraries, as
# a program that was compiled long ago. Both run, client and server, over the libraries that were
# built here, which is proved by what the processes have mapped.
#
# Usage: check_examples.sh [-v] [DIRECTORY with libucp.so.0]   (default .libs of the current folder)
# Environment: CC; UCX_EXAMPLES: folder of the examples.
# Exit status 1 if anything failed, 77 if there is nothing to run. The last line reads: N passed, N
# failed, N skipped.
#
# SPDX-License-Identifier: BSD-3-Clause
set -u
export LC_ALL=C

top=$(cd "$(dirname "$0")/../.." && pwd)
verbose=0
if [ "${1:-}" = -v ]; then
    verbose=1
    shift
fi
libs=$(cd "${1:-.libs}" 2>/dev/null && pwd -P)
examples=${UCX_EXAMPLES:-/usr/share/doc/libucx-dev/examples}
cc=${CC:-gcc}
readonly LIMIT_S=40

if [ -e "$libs/libucp.so.0" ] && ldd "$libs/libucp.so.0" | grep -qE 'lib[at]san'; then
    echo "programs without a sanitizer do not load libraries with one"
    echo "0 passed, 0 failed, 1 skipped"
    exit 77
fi
if [ -z "$libs" ] || [ ! -e "$libs/libucp.so.0" ]; then
    echo "no shared libucp here: 0 passed, 0 failed, 1 skipped"
    exit 77
fi
if [ ! -f "$examples/ucp_client_server.c" ]; then
    echo "libucx-dev with its examples is not installed: 0 passed, 0 failed, 1 skipped"
    exit 77
fi

work=$(mktemp -d) || exit 2
server=""
stop_server()
{
    [ -z "$server" ] || kill "$server" 2>/dev/null
    server=""
}
trap 'stop_server; rm -rf "$work"' EXIT

passed=0
failed=0
skipped=0
pass() { passed=$((passed + 1)); [ $verbose = 0 ] || echo "ok      $1"; }
skip() { skipped=$((skipped + 1)); echo "skipped $1: $2"; }
fail()
{
    failed=$((failed + 1))
    echo "FAILED  $1"
    tail -n 15 "$work/server.log" "$work/client.log" 2>/dev/null | cut -c1-120 | sed 's/^/        /'
}

# The libraries of the process are ours and no others.
maps_ours()
{
    local mapped
    mapped=$(grep -ohE '/.*libuc[ptsm]\.so.*' "/proc/$1/maps" 2>/dev/null | sort -u)
    [ -n "$mapped" ] && ! echo "$mapped" | grep -qv "^$libs/"
}

# A port that nobody listens on.
free_port()
{
    local port
    for _ in $(seq 100); do
        port=$((20000 + RANDOM % 12000)) # below those that the system gives out
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo $port; return; }
    done
}

# The server runs and has mapped what it should.
server_is_ready()
{
    local pid
    while kill -0 $server 2>/dev/null; do
        # timeout's child is the program itself
        for pid in $(cat "/proc/$server/task/$server/children" 2>/dev/null); do
            maps_ours "$pid" && return 0
        done
        sleep 0.05
    done
    return 1
}

# run NAME "SERVER COMMAND" "CLIENT COMMAND": the client ends well, the server has received what it
# should; it may have to be stopped then. PORT in the commands is replaced.
run()
{
    local name=$1 port status=0 mapped=no
    port=$(free_port)
    : >"$work/client.log"
    LD_LIBRARY_PATH=$libs timeout $LIMIT_S stdbuf -oL ${2//PORT/$port} >"$work/server.log" 2>&1 &
    server=$!
    server_is_ready && mapped=yes
    # It may come before the server listens, which is no fault.
    until LD_LIBRARY_PATH=$libs timeout $LIMIT_S ${3//PORT/$port} >"$work/client.log" 2>&1; do
        kill -0 $server 2>/dev/null || { status=1; break; }
        sleep 0.05
    done
    until grep -q 'UCP TEST SUCCESS' "$work/server.log" "$work/client.log" ||
        ! kill -0 $server 2>/dev/null; do
        sleep 0.05
    done
    stop_server
    wait 2>/dev/null
    if [ $status = 0 ] && [ $mapped = yes ] &&
        grep -q 'UCP TEST SUCCESS' "$work/server.log" "$work/client.log"; then
        pass "$name"
    else
        [ $mapped = yes ] || echo "the server did not map $libs" >>"$work/server.log"
        fail "$name"
    fi
}

# build NAME FLAGS...: both examples into $work/NAME_...
build()
{
    local name=$1 example
    shift
    for example in ucp_client_server ucp_hello_world; do
        $cc -std=gnu11 "$examples/$example.c" -o "$work/${name}_$example" "$@" \
            >"$work/client.log" 2>&1 || { fail "$example compiles, $name"; return 1; }
    done
}

exercise()
{
    local name=$1 cs="$work/$1_ucp_client_server" hw="$work/$1_ucp_hello_world" kind mode
    for kind in tag am stream; do
        run "$name: ucp_client_server -c $kind" "$cs -c $kind -p PORT" \
            "$cs -c $kind -a 127.0.0.1 -p PORT"
        run "$name: ucp_client_server -c $kind, large" "$cs -c $kind -s 300000 -p PORT" \
            "$cs -c $kind -s 300000 -a 127.0.0.1 -p PORT"
    done
    run "$name: ucp_client_server -c tag, IPv4 address, several buffers" \
        "$cs -c tag -v 3 -i 20 -l 127.0.0.1 -p PORT" \
        "$cs -c tag -v 3 -i 20 -a 127.0.0.1 -p PORT"
    for mode in -w -f -b; do
        run "$name: ucp_hello_world $mode" "$hw $mode -p PORT" "$hw $mode -n 127.0.0.1 -p PORT"
    done
}

build ours -I"$top/src" -L"$libs" -lucp -lucs && exercise ours
if grep -qs 'UCP_API_MINOR *13' /usr/include/ucp/api/ucp_version.h &&
    [ -e "$($cc -print-file-name=libucp.so)" ]; then
    build debian -lucp -lucs && exercise debian
else
    skip "programs compiled with UCX 1.13" "its headers and libraries are not installed"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
