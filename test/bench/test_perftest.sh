#!/bin/bash
# Halyard: what ucx_perftest promises to its users, apart from figures.
#
#   test_perftest.sh [BINARY]     default: $UCX_PERFTEST, else ./ucx_perftest
#
# Ends with "N passed, N failed, N skipped"; exit 1 if one failed.
# SPDX-License-Identifier: BSD-3-Clause
set -u

readonly BINARY=$(realpath "${1:-${UCX_PERFTEST:-./ucx_perftest}}")
readonly LIMIT_S=60
[ -x "$BINARY" ] || { echo "test_perftest.sh: $BINARY not found" >&2; exit 2; }

dir=$(mktemp -d)
passed=0 failed=0 skipped=0
port=$((20000 + $$ % 20000))
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null; rm -rf "$dir"' EXIT

pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "FAILED: $1"; sed 's/^/    /' "$dir/out" "$dir/err" | head -20; }
skip() { skipped=$((skipped + 1)); echo "skipped: $1 ($2)"; }
check() { local name=$1; shift; if "$@"; then pass; else fail "$name"; fi; }

# Runs the tool; its exit code is in $code, its output in $dir/out and $dir/err.
perf() {
    timeout $LIMIT_S "$BINARY" "$@" >"$dir/out" 2>"$dir/err"
    code=$?
}

# The library may not have a feature yet (exit 3): then the test of it is skipped, not passed.
perf_or_skip() {
    local name=$1
    shift
    perf "$@"
    [ $code -ne 3 ] || { skip "$name" "not supported by this libucp"; return 1; }
}

refuses() { # NAME PATTERN ARGUMENTS: exit 2, one clear line
    local name=$1 pattern=$2
    shift 2
    perf "$@"
    if [ $code -eq 2 ] && grep -q -- "$pattern" "$dir/err" && [ ! -s "$dir/out" ]; then
        pass
    else
        fail "$name: exit $code"
    fi
}

# ---- command line ----
refuses "unknown test"           "unknown test 'foo'"         -t foo
refuses "uct test"               "ucp_am_lat"                 -t am_lat
refuses "unknown letter"         "unknown option -Z"          -Z
refuses "unknown word"           "--zork"                     --zork
refuses "letter without meaning" "UCX_TLS"                    -x posix
refuses "missing value"          "wants a value"              -t
refuses "size without digits"    "option -s"                  -t tag_lat -s k
refuses "size with junk"         "option -s"                  -t tag_lat -s 8x
refuses "empty size"             "option -s"                  -t tag_lat -s 8,,9
refuses "size range downwards"   "downwards"                  -t tag_lat -s 1024:16
refuses "size too large"         "at most"                    -t tag_lat -s 100g
refuses "size overflow"          "option -s"                  -t tag_lat -s 99999999999999999999
refuses "zero iterations"        "option -n"                  -t tag_lat -n 0
refuses "negative iterations"    "option -n"                  -t tag_lat -n -5
refuses "percentile above 100"   "option -R"                  -t tag_lat -R 101
refuses "wrong thread mode"      "option -M"                  -t tag_lat -M many
refuses "wrong memory kind"      "option -m"                  -t tag_lat -m cuda
refuses "wrong wait mode"        "option -E"                  -t tag_lat -E nap
refuses "wrong port"             "option -p"                  -p 70000
refuses "wrong picture"          "--plot"                     --self --plot x.gif
refuses "client without a test"  "which test"                 localhost
refuses "two hosts"              "unexpected word"            -t tag_lat a b
refuses "host with --self"       "exclude each other"         --self host
refuses "limits with a test"     "exclude each other"         -t limits -t tag_lat
refuses "atomic of 3 bytes"      "4 or 8"                     --self -t ucp_fadd -s 3
refuses "put of 0 bytes"         "at least 1"                 --self -t ucp_put_lat -s 0
refuses "check of one-sided"     "option -V"                  --self -t ucp_get -V
refuses "wildcard of am"         "-U and -C"                  --self -t ucp_am_lat -C
refuses "check of the table"     "option"                     --self -V
perf -h
check "help" test $code -eq 0 -a "$(grep -c tag_lat "$dir/out")" -ge 1 -a ! -s "$dir/err"

# ---- both processes here ----
perf --self --quick --rounds 3 --json "$dir/table.json" --csv "$dir/table.csv"
check "--self --quick ends with 0" test $code -eq 0
check "--self shows a row a size" test "$(grep -cE '^ +(8|64|1K|8K|64K|1M) \|' "$dir/out")" -eq 6
check "--self shows the start-up" grep -q "ucp_init .* ms" "$dir/out"
check "--self leaves no process" test -z "$(pgrep -f "$BINARY --self")"
header="test,size,window,threads,iterations,rounds,disturbed,us,us_best,p50_us,p90_us,p99_us,\
p99.9_us,bandwidth_MBps,rate_mps,limit,limit_us,limit_us_best,ratio,ratio_best,validated"
check "CSV names its columns" test "$(head -1 "$dir/table.csv")" = "$header"
check "CSV has as many values as names" \
    awk -F, 'NR == 1 { n = NF } NF != n { bad = 1 } END { exit bad || NR < 10 }' "$dir/table.csv"
check "CSV: tag_lat has a limit and a ratio" \
    awk -F, '$1 == "tag_lat" { ++n; if ($16 == "" || !($19 > 0)) bad = 1 }
             END { exit bad || n != 6 }' "$dir/table.csv"

perf -t limits --quick --rounds 2 -q
check "-t limits" test $code -eq 0 -a "$(grep -c '|' "$dir/out")" -ge 8
UCX_TLS=nothing_like_this perf -t limits -s 8 --rounds 2 -q --quick
check "-t limits does not need the library" test $code -eq 0

for t in tag_lat tag_bw tag_rate tag_sync_lat tag_sync_bw ucp_am_lat ucp_am_bw stream_lat stream_bw \
         ucp_put_lat ucp_put_bw ucp_get ucp_add ucp_fadd ucp_swap ucp_cswap; do
    perf_or_skip "$t" --self -t $t -s 8 -n 2000 -f -q &&
        check "$t prints one line: exit $code" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq 1 -a \
              ! -s "$dir/err"
done

sizes=0,1,7,8,9,63,64,65,1000,4096,8192,65537,1m
for t in tag_lat tag_bw tag_sync_lat tag_sync_bw ucp_am_lat ucp_am_bw; do
    perf_or_skip "$t -V" --self -t $t -s $sizes -n 150 -w 10 -V -f -q &&
        check "$t -V: exit $code" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq 13
done
for o in "-U" "-C" "-C -U" "-D iov,iov" "-E sleep" "-e peer" "-e none" "-T 2 -M multi" "-O 1"; do
    for t in tag_lat tag_bw; do
        # shellcheck disable=SC2086
        perf_or_skip "$t $o" --self -t $t -s 8,100000 -n 300 -V $o -f -q &&
            check "$t -V $o: exit $code" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq 2
    done
done
perf --self -t tag_lat -s 8:64 -n 500 -R 50,99.5 -v -q
check "-v prints CSV, ranges are powers of two, -R names the columns" test $code -eq 0 -a \
    "$(cut -d, -f2 "$dir/out" | paste -sd' ')" = "size 8 16 32 64" -a \
    "$(head -1 "$dir/out" | cut -d, -f10,11)" = "p50_us,p99.5_us"
check "percentiles rise" awk -F, 'NR > 1 && !($10 > 0 && $11 >= $10) { bad = 1 } END { exit bad }' \
    "$dir/out"
perf --self -t tag_lat -s 8 -n 1234 -f -q
check "-n is obeyed" test "$(awk '{ print $2 }' "$dir/out")" = 1234

# ---- files ----
if command -v python3 >/dev/null; then
    UCX_ODD_NAME=$'quote " backslash \\ tab \t byte \xff' UCX_WARN_UNUSED_ENV_VARS=n \
        perf --self -t tag_lat -s 8,64 -n 500 -q --json -
    cp "$dir/out" "$dir/odd.json"
    check "JSON is valid whatever the environment holds" python3 -c '
import json, sys
data = json.load(open(sys.argv[1]))
assert data["format"] == "halyard-perftest-1"
assert [r["size"] for r in data["results"]] == [8, 64]
assert set(data["results"][0]["percentiles"]) == {"50", "90", "99", "99.9"}
assert any("quote \" backslash \\ tab \t byte" in v for v in data["record"]["environment"])
assert data["record"]["library"] and data["record"]["cpu"] and data["record"]["kernel"]
' "$dir/odd.json"
    check "JSON of the table" python3 -c '
import json, sys
data = json.load(open(sys.argv[1]))
tests = {r["test"] for r in data["results"]}
assert {"line", "ring", "memcpy", "tag_lat", "tag_bw", "tag_rate"} <= tests, tests
assert data["startup"]["first_message_us"] > data["startup"]["init_us"] > 0
' "$dir/table.json"
    python3 - "$dir/table.json" "$dir/slow.json" <<'PYTHON'
import json, sys
data = json.load(open(sys.argv[1]))
for result in data["results"]:
    if result["test"] == "tag_lat":
        result["us"] *= 2
json.dump(data, open(sys.argv[2], "w"))
PYTHON
    perf --compare "$dir/table.json" "$dir/table.json"
    check "--compare of the same file" test $code -eq 0
    perf --compare "$dir/table.json" "$dir/slow.json"
    check "--compare finds what became worse" test $code -eq 1 -a "$(grep -c worse$ "$dir/out")" -eq 6
    perf --compare "$dir/table.json" "$dir/slow.json" --tolerance 2.5
    check "--compare --tolerance" test $code -eq 0
else
    skip "JSON" "no python3"
fi
perf --compare "$dir/table.json"
check "--compare wants two files" test $code -eq 2
for bad in '' '{' '[1,2' '{"format": "other"}' '{"a": tru}' '{"a": "b' '"x" y' '[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]'; do
    printf '%s' "$bad" >"$dir/bad.json"
    perf --compare "$dir/bad.json" "$dir/table.json"
    check "--compare refuses '$bad'" test $code -eq 1 -a "$(grep -c 'bad.json' "$dir/err")" -eq 1
done
perf --compare "$dir/missing.json" "$dir/table.json"
check "--compare names a missing file" grep -q missing.json "$dir/err"
perf --self -t tag_lat -s 8 -n 100 -q --json "$dir/no/such/folder.json"
check "a file that cannot be written is an error" test $code -eq 1 -a "$(grep -c folder.json "$dir/err")" -ge 1
if command -v gnuplot >/dev/null; then
    perf --self -t tag_lat -s 8:1k -n 200 -q --plot "$dir/it's.svg"
    check "--plot draws" test $code -eq 0 -a "$(grep -c '<svg' "$dir/it's.svg")" -ge 1
else
    skip "--plot" "no gnuplot"
fi
mkdir "$dir/empty"
PATH=$dir/empty LD_LIBRARY_PATH=${LD_LIBRARY_PATH-} "$BINARY" --self -t tag_lat -s 8 -n 100 -q \
    --plot "$dir/x.svg" >"$dir/out" 2>"$dir/err"
code=$?
check "--plot without gnuplot" test $code -eq 1 -a "$(grep -c 'gnuplot is not installed' "$dir/err")" -eq 1

# ---- client and server ----
serve() { # ARGUMENTS: starts a server on a fresh port
    port=$((port + 1))
    timeout $LIMIT_S "$BINARY" -p $port "$@" >"$dir/server.out" 2>"$dir/server.err" &
    server=$!
}
served() { wait "$server"; local served_code=$?; server=; return $served_code; }

serve
perf localhost -p $port -t tag_lat -s 8,1k -n 500 -V -f -q
check "client, host first" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq 2
check "server ends with 0" served
serve -t tag_bw
perf -t tag_lat -s 8 -n 500 -f -q -p $port localhost
check "client, host last; the client's test counts" test $code -eq 0
check "server ends with 0, its own -t aside" served
serve -6
perf -6 ::1 -p $port -t tag_lat -s 8 -n 500 -f -q
if [ $code -eq 0 ]; then check "IPv6" served; else kill "$server" 2>/dev/null; served; skip "IPv6" "no ::1"; fi

perf localhost -p $((port + 5)) -t tag_lat -q --timeout 2
check "no server: a clear error" test $code -eq 1 -a "$(grep -c 'cannot connect' "$dir/err")" -eq 1
perf -p $((port + 6)) -q --timeout 1
check "no client within --timeout" test $code -eq 1 -a "$(grep -c 'no client' "$dir/err")" -eq 1
serve -q
sleep 0.5
if (exec 3<>"/dev/tcp/localhost/$port" && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && sleep 0.5) 2>/dev/null; then
    served
    check "a stranger's greeting is refused" grep -q "unknown greeting" "$dir/server.err"
else
    kill "$server" 2>/dev/null
    served
    skip "a stranger's greeting" "no /dev/tcp"
fi

# ---- death and standstill ----
children() { pgrep -P "$1" | sort -n; }
for which in 1 2; do
    "$BINARY" --self -t tag_lat -n 1000000000 -f -q --timeout 20 >"$dir/out" 2>"$dir/err" &
    main=$!
    sleep 1
    kill -KILL "$(children $main | sed -n ${which}p)"
    wait $main 2>/dev/null
    code=$?
    check "kill -9 of process $which" test $code -eq 1 -a "$(grep -c 'signal 9' "$dir/err")" -eq 1
done
"$BINARY" --self -t tag_lat -n 1000000000 -f -q --timeout 1 >"$dir/out" 2>"$dir/err" &
main=$!
sleep 1
kill -STOP "$(children $main | sed -n 1p)"
wait $main
code=$?
check "a process that stands still" test $code -eq 4 -a "$(grep -c ' stood, at: tag_lat' "$dir/err")" -eq 2
serve -q
timeout $LIMIT_S "$BINARY" localhost -p $port -t tag_bw -n 1000000000 -q >"$dir/out" 2>"$dir/err" &
client=$!
sleep 1
kill -KILL "$(children $client)"
wait $client 2>/dev/null
served
check "the server notices a dead client" grep -q "is gone" "$dir/server.err"

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
