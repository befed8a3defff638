#!/bin/bash
# Halyard: the example programs of Debian's libucx-dev, unchanged, compiled with our headers and
# libraries and with Debian's (1.13), run over our libraries.
#
#   examples.sh --lib DIR --include DIR [--build DIR] [--limit SECONDS]
#
# Both sides must end with status 0, show what they are to show and map libucp from DIR. The last line is
# "N passed, N failed, N skipped"; without libucx-dev all is skipped.
# SPDX-License-Identifier: BSD-3-Clause
set -u

readonly EXAMPLES=/usr/share/doc/libucx-dev/examples
readonly START_TRIES=200

here=$(cd "$(dirname "$0")" && pwd)
run_limited=$here/../../contrib/run-limited.sh
lib=
include=
build=
limit_s=30
passed=0
failed=0
port=$((15000 + $$ % 20000))

usage()
{
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
        --lib)     lib=$2 ;;
        --include) include=$2 ;;
        --build)   build=$2 ;;
        --limit)   limit_s=$2 ;;
        *)         usage ;;
    esac
    shift 2
done
if [ -z "$lib" ] || [ -z "$include" ]; then
    usage
fi
if ! [ -e "$EXAMPLES/ucp_hello_world.c" ]; then
    echo "libucx-dev is not installed"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
lib=$(cd "$lib" && pwd -P)
if [ -z "$build" ]; then
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
fi
mkdir -p "$build"

# Starts a program over our libraries with a list of what it maps.
start() # role program arguments...
{
    local role=$1
    shift
    LD_LIBRARY_PATH=$lib LD_DEBUG=libs LD_DEBUG_OUTPUT=$build/maps.$role "$@" >"$build/$role.log" 2>&1
}

listens() # port
{
    grep -qiE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$1") [0-9A-F:]+ 0A " /proc/net/tcp /proc/net/tcp6
}

# One server and one client; $expect must be in the client's output.
pair() # name expect server... -- client...
{
    local name=$1 expect=$2 server=() server_rc client_rc try
    shift 2
    rm -f "$build"/maps.* "$build"/*.log
    while [ "$1" != -- ]; do
        server+=("$1")
        shift
    done
    shift
    start server "$run_limited" "$limit_s" "${server[@]}" &
    for ((try = 0; try < START_TRIES; ++try)); do
        listens $port && break
        sleep 0.05
    done
    start client "$run_limited" "$limit_s" "$@"
    client_rc=$?
    # A server that serves for ever is ended from here; that is no failure of it.
    if [ "$name" != "${name#client_server}" ]; then
        kill $! 2>/dev/null
        wait $! 2>/dev/null
        server_rc=0
    else
        wait $!
        server_rc=$?
    fi
    if [ $client_rc -eq 0 ] && [ $server_rc -eq 0 ] && grep -qE "$expect" "$build"/client.log &&
       [ "$(grep -l "calling init: $lib/libucp.so" "$build"/maps.* | wc -l)" -ge 2 ]; then
        passed=$((passed + 1))
        echo "passed: $name"
    else
        failed=$((failed + 1))
        echo "FAILED: $name (client $client_rc, server $server_rc)"
        sed 's/^/    server: /' "$build/server.log" | tail -n 30
        sed 's/^/    client: /' "$build/client.log" | tail -n 30
    fi
    port=$((port + 1))
}

compile() # program headers
{
    local flags=()
    [ "$2" = ours ] && flags=(-I"$include" -L"$lib" -Wl,-rpath-link,"$lib")
    gcc -O1 -g ${flags[@]+"${flags[@]}"} -I"$EXAMPLES" "$EXAMPLES/$1.c" -o "$build/$1.$2" -lucp -lucs \
        -pthread 2>"$build/compile.log" && return 0
    cat "$build/compile.log"
    failed=$((failed + 1))
    return 1
}

for headers in ours debian; do
    program=$build/ucp_hello_world.$headers
    if compile ucp_hello_world $headers; then
        for mode in "" -w -f -b; do
            for size in 16 10000 3000000; do
                pair "hello_world $headers $mode $size" 'UCP TEST SUCCESS' \
                    "$program" $mode -s $size -p $port -- "$program" $mode -s $size -n localhost -p $port
            done
        done
    fi
    program=$build/ucp_client_server.$headers
    if compile ucp_client_server $headers; then
        for kind in stream tag am; do
            for size in 16 200000; do
                pair "client_server $headers $kind $size" 'FINISHED|message received|Client: iteration' \
                    "$program" -p $port -c $kind -i 20 -s $size -- \
                    "$program" -a 127.0.0.1 -p $port -c $kind -i 20 -s $size
            done
            pair "client_server $headers $kind, 5 buffers" 'FINISHED|message received|Client: iteration' \
                "$program" -p $port -c $kind -i 5 -v 5 -s 3000 -- \
                "$program" -a 127.0.0.1 -p $port -c $kind -i 5 -v 5 -s 3000
        done
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
