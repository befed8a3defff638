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
port=$((20000 + $$ % 12000)) # below those that the system gives to connections
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null; rm -rf "$dir"' EXIT

pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "FAILED: $1"; sed 's/^/    /' "$dir/out" "$dir/err" | head -20; }
skip() { skipped=$((skipped + 1)); echo "skipped: $1 ($2)"; }
check() { local name=$1; shift; if "$@"; then pass; else fail "$name"; fi; }

# Waits until a command ends with 0; not for ever.
await() {
    local tries=$((LIMIT_S * 20))
    until "$@"; do
        [ $((tries -= 1)) -gt 0 ] || return 1
        sleep 0.05
    done
}
children() { pgrep -P "$1" | sort -n; }
# Whether that many child processes of one have computed for 0.3 s each: they are amid their test.
computing() { # PROCESS CHILDREN
    local child
    [ "$(children $1 | wc -l)" -eq $2 ] || return
    for child in $(children $1); do
        [ "$(cut -d' ' -f14 /proc/$child/stat)" -ge $(($(getconf CLK_TCK) * 3 / 10)) ] || return
    done
}
listening() { grep -qsi ":$(printf %04X $1) 0*:0000 0A " /proc/net/tcp /proc/net/tcp6; } # PORT

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
refuses "unknown test"           "'tag_latt' is not supported; possible: .*tag_lat, .*audit" -t tag_latt
refuses "uct test without transport" "such as -x mm"          --self -t am_lat
refuses "uct atomics"            "ucp_fadd"                   -t fadd
refuses "-x of a ucp test"       "UCX_TLS"                    -t tag_lat -x posix
refuses "-D of a uct test"       "short, bcopy or zcopy"      --self -t am_lat -x mm -D iov
refuses "-D zcopy of a ucp test" "belong to tests of a transport" --self -t tag_lat -D zcopy
refuses "-D zcopy for two"       "zcopy stands alone"         --self -t am_lat -x mm -D zcopy,iov
refuses "-H of a uct test"       "8 bytes"                    --self -t am_lat -x mm -H 16
refuses "unknown letter"         "unknown option -Z"          -Z
refuses "unknown word"           "--zork"                     --zork
for letter in A i a g G K L F Y; do
    refuses "letter -$letter"    "option -$letter is not available: " -t tag_lat -$letter 1
done
refuses "stream data in place"   "option -r"                  -t stream_lat -r recv_data
refuses "-o of messages"         "one-sided"                  --self -t tag_lat -o
refuses "-y of tags"             "active messages"            --self -t tag_lat -y
refuses "-H of tags"             "active messages"            --self -t tag_lat -H 8
refuses "-n of the table"        "not with a table"           --self -n 100
refuses "-w of the audit"        "not with a table"           --self -t audit -w 100
refuses "-o of the table"        "one-sided"                  --self -o
refuses "threads of a plain loop" "one thread, which polls"   --self -t ofi_lat -T 2
refuses "sleep of who looks at memory" "wakes nobody"       --self -t ucp_put_lat -E sleep
refuses "sleep of a transport"   "one thread, which polls"    --self -t am_lat -x mm -E sleep
refuses "audit of a transport"   "messages only"              --self -t audit -t am_lat -x mm
refuses "-l with a host"         "exclude each other"         -l -t tag_lat host
refuses "-l without a test"      "which test"                 -l
refuses "-e failover"            "failover is not supported"  -t tag_lat -e failover host
refuses "two batch files"        "one batch file"             --self -b x -b y
refuses "no batch file"          "cannot read"                --self -b "$dir/none"
refuses "empty batch file"       "holds no test"              --self -b /dev/null
refuses "wrong -P"               "option -P"                  -P 2
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
refuses "a percentile twice"     "option -R"                  -t tag_lat -R 50,99,50.0
refuses "percentile shown as 100" "at most 6 digits"          -t tag_lat -R 99.99999
refuses "wrong thread mode"      "option -M"                  -t tag_lat -M many
refuses "wrong memory kind"      "option -m"                  -t tag_lat -m gpu
refuses "wrong device"           "option --device"            -t tag_lat --device 0,x
refuses "polls of devices"       "polls its buffers"          --self -t ucp_put_lat -m cuda
refuses "wrong wait mode"        "option -E"                  -t tag_lat -E nap
refuses "wrong port"             "option -p"                  -p 70000
refuses "wrong picture"          "--plot"                     --self --plot x.gif
refuses "two outputs in one"     "-v and --csv write to the same" --self -v --csv -
refuses "two outputs in one"     "(standard output)"          --self --csv - --json -
refuses "two outputs in one"     "(x.svg)"                    --self --json x.svg --plot x.svg
refuses "client without a test"  "which test"                 localhost
refuses "two hosts"              "unexpected word"            -t tag_lat a b
refuses "host with --self"       "exclude each other"         --self host
refuses "limits with a test"     "exclude each other"         -t limits -t tag_lat
refuses "limits with an audit"   "exclude each other"         -t limits -t audit
refuses "audit of puts"          "messages only"              --self -t audit -t ucp_put_lat
refuses "audit of pieces"        "messages only"              --self -t audit -D iov
refuses "audit by threads"       "not with a table"           --self -t audit -T 2
refuses "atomic of 3 bytes"      "4 or 8"                     --self -t ucp_fadd -s 3
refuses "put of 0 bytes"         "at least 1"                 --self -t ucp_put_lat -s 0
refuses "check of one-sided"     "option -V"                  --self -t ucp_get -V
refuses "unexpected exchange"    "option -U"                  --self -t tag_bi_bw -U
refuses "wildcard of am"         "-U and -C"                  --self -t ucp_am_lat -C
refuses "check of the table"     "option"                     --self -V
perf -h
check "help" test $code -eq 0 -a "$(grep -c tag_lat "$dir/out")" -ge 1 -a ! -s "$dir/err"

# ---- both processes here ----
perf --self --quick --rounds 3 --json "$dir/table.json" --csv "$dir/table.csv"
check "--self --quick ends with 0" test $code -eq 0
check "--self shows a row a size" test "$(grep -cE '^ +(8|64|1K|8K|64K|1M) \|' "$dir/out")" -eq 6
check "--self shows the start-up" grep -q "ucp_init .* ms" "$dir/out"
check "--self leaves no process" test -z "$(pgrep -f -- "--csv $dir/table.csv")"
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
perf --self -E sleep -s 8 --rounds 2 -q --quick --timeout 20
check "the table of tests that sleep: exit $code" test $code -eq 0 -a "$(grep -cE '^ +8 \|' "$dir/out")" -eq 1
UCX_TLS=nothing_like_this perf -t limits -s 8 --rounds 2 -q --quick
check "-t limits does not need the library" test $code -eq 0

# Runs a command to whose processes the kernel forbids process_vm_readv.
cat >"$dir/no_copies.py" <<'PYTHON'
import ctypes, os, platform, struct, sys
number = {"x86_64": 310, "aarch64": 270}[platform.machine()]
rows = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50001), (6, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *row) for row in rows))
program = ctypes.create_string_buffer(struct.pack("@HP", len(rows), ctypes.addressof(code)))
libc = ctypes.CDLL(None)
if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, program) != 0:
    sys.exit(99)
os.execvp(sys.argv[1], sys.argv[1:])
PYTHON
if python3 "$dir/no_copies.py" true 2>/dev/null; then
    timeout $LIMIT_S python3 "$dir/no_copies.py" "$BINARY" -t limits -s 64k --rounds 3 -q --csv "$dir/refused.csv" \
        >"$dir/out" 2>"$dir/err"
    code=$?
    check "copies that the kernel forbids are not called disturbed ones: exit $code" test $code -eq 0 -a \
        "$(grep -c 'forbids process_vm_readv .*Operation not permitted' "$dir/out")" -eq 1 -a \
        "$(grep -E '^(reader|both),' "$dir/refused.csv" | cut -d, -f6,7 | xargs)" = "0,0 0,0"
else
    skip "copies that the kernel forbids" "no python3, or no seccomp"
fi

without_proc='mount -t tmpfs none /proc && exec "$@"'
if [ -n "${ASAN_OPTIONS:-}" ]; then
    skip "without /proc" "AddressSanitizer reads its options there"
elif unshare -m sh -c "$without_proc" sh true 2>/dev/null; then
    timeout $LIMIT_S unshare -m sh -c "$without_proc" sh "$BINARY" --self --quick --rounds 1 -s 8 -q \
        >"$dir/out" 2>"$dir/err"
    code=$?
    check "without /proc nothing is said of memory: exit $code" test $code -eq 0 -a \
        "$(grep -cE '^  (ucp_init|endpoint)' "$dir/out")" -eq 2 -a \
        "$(grep -cE 'nan|KiB|idle worker' "$dir/out")" -eq 0
else
    skip "without /proc" "no namespace to hide it in"
fi

# ---- audit ----
# The lines of a table: size | automatic time | five forced | best behind [!] [*]
rows() { grep -E '^ +[0-9]+[KM]? \|' "$dir/out"; }
chosen() { rows | awk '{ print $3 }' | paste -sd' '; }
# Exit code, last line and marks agree, whatever the figures are.
audited() {
    local marked
    marked=$(rows | grep -c '!')
    [ "$(rows | wc -l)" -eq "$1" ] && grep -q "^$marked of $1 sizes: " "$dir/out" &&
        [ "$code" -eq $((marked > 0)) ] &&
        rows | awk '{ if ((/!/ != 0) != ($3 != $12) || ($13 == "=") != ($3 == $12)) bad = 1 }
                    END { exit bad }'
}
perf --self -t audit -s 8,64k,1m --quick --rounds 3 -q --tolerance 0.001
check "audit counts the sizes at which another protocol is faster" audited 3
if grep -q 'single copy by none' "$dir/out"; then
    skip "audit forces each protocol where it can be" "single copies are forbidden here"
else
    check "audit forces each protocol where it can be" test \
        "$(rows | awk '{ print ($6 != "-") ($7 != "-") ($8 != "-") ($9 != "-") ($10 != "-") }' |
           paste -sd' ')" = "11111 01111 01111"
fi
check "audit says what it compares" grep -q 'more than 0.001 times as long as the best' "$dir/out"
check "audit says what the library says about its choice" grep -q 'eager: predicted' "$dir/out"
perf --self -t audit -s 8,8k --quick --rounds 3 -q --tolerance 1000000
sed -n '/^UCX_[A-Z]*_[A-Z]*=/p' "$dir/out" >"$dir/costs"
# Two sizes make a line, if the longer message took longer, by less than its bytes.
lines=$(rows | awk 'NR == 1 { t = $6 } END { print ($6 > t && $6 < 1024 * t) ? 2 : 0 }')
timeout $LIMIT_S env $(cat "$dir/costs") "$BINARY" --self -t audit -s 8 --quick --rounds 2 -q --tolerance 1000000 \
    >"$dir/out" 2>"$dir/err"
check "audit prints costs, which the library takes" test $? -eq 0 -a ! -s "$dir/err" -a \
    "$(grep -c '^UCX_MM_' "$dir/costs")" -eq "$lines"
UCX_RNDV_THRESH=64 UCX_RNDV_SCHEME=am perf --self -t audit -s 8,1k,1m --quick --rounds 2 -q \
    --tolerance 1000000
check "audit of what the user has chosen, within the tolerance" test $code -eq 0 -a \
    "$(chosen)" = "eager rndv/am rndv/am"
UCX_TLS=^cma perf --self -t audit -t ucp_am_lat -s 64k --quick --rounds 2 -q -f --tolerance 0.001 \
    --csv "$dir/audit.csv"
check "audit of active messages without single copies" test "$(chosen)" = rndv/am -a \
    "$(cut -d, -f1 "$dir/audit.csv" | paste -sd' ')" = "test ucp_am_lat ucp_am_lat rndv/am"

for t in tag_lat tag_bw tag_rate tag_bi_bw tag_sync_lat tag_sync_bw ucp_am_lat ucp_am_bw stream_lat stream_bw \
         ucp_put_lat ucp_put_bw ucp_get ucp_add ucp_fadd ucp_swap ucp_cswap; do
    perf_or_skip "$t" --self -t $t -s 8 -n 2000 -f -q &&
        check "$t prints one line: exit $code" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq 1 -a \
              ! -s "$dir/err"
done

for t in ofi_lat ofi_bw; do # libfabric may be missing, or have no network
    perf_or_skip "$t" --self -t $t -s 1,8,4096,100001,1m -n 200 -V -f -q &&
        check "$t prints a line for each size: exit $code" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq 5
done

# ---- a transport by itself ----
uct() { # TRANSPORT TEST WAY [LINES] [OPTIONS]
    local tl=$1 test=$2 way=$3 lines=$4
    shift 4
    perf_or_skip "$tl $test $way" --self -x "$tl" -t "$test" -D "$way" -n 300 -f -q "$@" &&
        check "$tl $test $way: exit $code" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq "$lines" -a ! -s "$dir/err"
}
for way in short bcopy; do
    uct mm am_lat $way 4 -V -s 1,7,8,4000
    uct posix am_bw $way 4 -V -s 1,7,8,4000 -d memory -W 32
done
perf --self -x cma -t get -D zcopy -n 10 -f -q
has_copies=1
if grep -q 'process_vm_readv does not work' "$dir/err"; then # as the kernel may forbid
    has_copies=
    skip "cma" "$(head -1 "$dir/err")"
fi
uct mm put_lat short 2 -V -s 8,8192
perf --self -t ucp_put_lat -n 300 -V -f -q -s 8,8192
check "puts whose last byte does not come last: exit $code" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq 2
for t in put_lat put_bw get get_bw; do
    uct mm $t short 2 -s 1,65536
    [ -z "$has_copies" ] || uct cma $t zcopy 2 -s 1,65536
done
uct trace:mm am_lat short 1
perf -l -x mm -t am_lat -n 100 -f -q
check "a transport between threads: exit $code" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq 1
fails() { # NAME CODE PATTERN ARGUMENTS
    local name=$1 wanted=$2 pattern=$3
    shift 3
    perf "$@" -n 10 -q
    check "$name: exit $code" test $code -eq "$wanted" -a "$(grep -c -- "$pattern" "$dir/err")" -gt 0
}
fails "no such transport"         1 "no such transport"       --self -x zork -t am_lat
fails "no such operation"         3 "has no such messages"    --self -x mm -t am_lat -D zcopy
fails "nobody but oneself"        1 "not this worker"         --self -x self -t am_lat
fails "no such puts"              3 "no such puts and gets"   --self -x mm -t get -D bcopy
fails "longer than a transport's" 1 "no messages of this"     --self -x mm -t am_lat -s 64m

# Over networks what has been sent may need its sender's progress to arrive, be its test over or not.
for p in net 'tcp;ofi_rxm'; do
    export UCX_TLS=ofi UCX_OFI_PROVIDER=$p
    perf --self -t ofi_lat -s 1 -n 10 -f -q
    if [ $code -eq 0 ]; then
        for t in tag_lat tag_bw ucp_am_lat; do
            perf --self -t $t -s 8,20000,65536,100000 -n 300 -V -f -q
            check "$t over $p: exit $code" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq 4
        done
        uct ofi am_lat short 3 -V -s 1,8,1000
        uct tcp am_bw bcopy 2 -V -s 8,1000
        if [ $p = net ]; then # the other has neither
            uct ofi am_bw zcopy 2 -V -s 1000,4096
            uct ofi put_bw zcopy 2 -s 8,65536
        fi
    else
        skip "tests over $p" "$(head -1 "$dir/err")"
    fi
done
unset UCX_TLS UCX_OFI_PROVIDER

sizes=0,1,7,8,9,63,64,65,1000,4096,8192,65537,1m
for t in tag_lat tag_bw tag_bi_bw tag_sync_lat tag_sync_bw ucp_am_lat ucp_am_bw; do
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
perf --self -t tag_lat -s 64k -n 1000 -R 99.9,100 -v -q
check "of 1000 samples the 999th is p99.9, not the last" awk -F, '
    NR == 2 && $11 > $10 && $10 > 0 { good = 1 } END { exit !good }' "$dir/out"
perf --self -t tag_lat -s 8 -n 1234 -f -q
check "-n is obeyed" test "$(awk '{ print $2 }' "$dir/out")" = 1234

for o in "-z" "-z -B -V" "-l" "-l -V -c 0,0"; do
    for t in tag_lat tag_bw ucp_am_lat stream_bw; do
        [ "${o#-l}" = "$o" ] && self=--self || self=
        # shellcheck disable=SC2086
        perf $self -t $t -s 8,100000 -n 300 $o -f -q
        check "$t $o: exit $code" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq 2
    done
done
for o in "ucp_get -o" "ucp_put_bw -o -z -B" "ucp_fadd -o -O 4" "ucp_put_lat -z -V" "ucp_am_bw -y" \
         "stream_lat -r recv"; do
    # shellcheck disable=SC2086
    perf --self -t $o -s 8 -n 1000 -f -q
    check "$o: exit $code" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq 1
done
for t in ucp_get ucp_put_bw ucp_add; do
    perf --self -t $t -s 8 -n 300 -E sleep -f -q --timeout 20
    check "$t -E sleep: exit $code" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq 1
done
perf --self -t tag_bi_bw -s 8,100000 -n 300 -V -D iov,iov -f -q
check "tag_bi_bw of pieces: exit $code" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq 2
perf --self -t tag_lat -s 8 -n 100 -X -f -q
check "-X says how messages move" grep -q 'eager: predicted' "$dir/out"

# ---- batch files ----
cat >"$dir/batch" <<'BATCH'
# name and options
small  -t tag_lat -s 8 -n 200

 large -t tag_bw -s 64k,1m -n 50 -V
threads -t ucp_am_lat -T 2 -M multi
BATCH
tests="test small large large threads"
for how in --self -l; do
    perf $how -b "$dir/batch" -s 16 -n 300 -v -q
    check "batch, $how: one session a line, the command line's options hold too" test $code -eq 0 -a \
        "$(cut -d, -f1 "$dir/out" | paste -sd' ')" = "$tests" -a \
        "$(cut -d, -f2,5 "$dir/out" | paste -sd' ')" = \
        "size,iterations 8,200 65536,50 1048576,50 16,300"
done
for name in ucp_contig_contig_tag_lat_1 ucp_contig_contig_tag_lat_2; do
    echo "$name -t tag_lat"
done >"$dir/named_batch"
perf -l -b "$dir/named_batch" -s 8 -n 100 -v -q
check "batch: names as UCX's files have them stay apart" test \
    "$(cut -d, -f1 "$dir/out" | paste -sd' ')" = "test ucp_contig_contig_tag_lat_1 ucp_contig_contig_tag_lat_2"
for line in "a" "a -t tag_lat --self" "a -t tag_lat --json x" "a -t tag_lat host" "a -t tag_lat -p 5" \
            "a -t tag_lat -b x" "a -t no_test" "a -t tag_lat -s 8x" "a,b -t tag_lat" "a|b -t tag_lat" \
            "$(printf 'a%.0s' {1..64}) -t tag_lat"; do
    printf '# comment\n%s\n' "$line" >"$dir/bad_batch"
    refuses "batch line '$line'" "in line 2 of" -l -b "$dir/bad_batch"
done
for line in "a -t tag_lat -c 1,0" "a -t tag_lat --timeout 7" "a -t tag_lat -6" "a -t tag_lat -R 10"; do
    echo "$line" >"$dir/bad_batch"
    refuses "batch line '$line'" "options that say what to measure" -l -c 0,0 -b "$dir/bad_batch"
done

apart() { # PROCESS: of its threads, or its children, one has processor 0 and one processor 1
    local lists
    lists=$(cat /proc/$1/task/*/status $(children $1 | sed 's,.*,/proc/&/status,') 2>/dev/null |
            sed -n 's/^Cpus_allowed_list:[[:space:]]*//p')
    grep -qx 0 <<<"$lists" && grep -qx 1 <<<"$lists"
}
seq -f "t%g -t tag_lat -n 1 -w 0 -s $(seq -s, 1 103)" 20 >"$dir/long_batch"
refuses "a batch of more results than there is room for, before the first" "in line 20 of" -l -b "$dir/long_batch"
printf '%s\n' "t -t tag_lat -T 2 -n 10" "a -t tag_lat -n 1000000000" >"$dir/threads_batch"
for how in --self -l; do
    if ! taskset -c 0,1 true 2>/dev/null || [ "$(nproc)" -lt 2 ]; then
        skip "batch, $how: processors after a test of threads" "not processors 0 and 1"
        continue
    fi
    "$BINARY" $how -c 0,1 -b "$dir/threads_batch" -f -q >"$dir/out" 2>"$dir/err" &
    main=$!
    await test -s "$dir/out"
    check "batch, $how: after a test of threads each side has a processor" await apart $main
    kill $main
    wait $main 2>/dev/null
done

# ---- files ----
UCX_ODD_NAME='`a|b`' UCX_WARN_UNUSED_ENV_VARS=n \
    perf --self -t tag_lat -s 8,64k -n 500 -q -R 50,99 --md -
check "Markdown: a line a size, as many cells in each" awk -F'|' '
    /^\|/ { if (NF != 12) bad = 1; ++n } END { exit bad || n != 4 }' "$dir/out"
check "Markdown: the figures" grep -qE '^\| tag_lat \| 64K \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \|' "$dir/out"
check "Markdown: what is not ours is code" grep -qF '`` UCX_ODD_NAME=?a|b? ``' "$dir/out"
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
    for case in "--self -c 0,0:0,0" "-l -c 0,0:0,0" "--self -c 0,0 -T 2:0,0" "--self -T 2:null" \
                "-l -c 0,0 -T 2:0,0"; do
        # shellcheck disable=SC2086
        perf ${case%:*} -t tag_lat -s 8 -n 100 -q --json -
        check "${case%:*}: the record says ${case##*:}" test $code -eq 0 -a "${case##*:}" = "$(
            sed -n 's/^ *"bound_to": "*\([^"]*\)"*,$/\1/p' "$dir/out")"
    done
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
refuses_output() { # NAME REASON: what was printed is lost, and that is said
    check "$1: exit $code" test $code -eq 1 -a \
        "$(grep -c "cannot write results to standard output: $2" "$dir/err")" -eq 1
}
for arguments in -h "-l -t tag_lat -s 8 -n 100 -q" "-l -t tag_lat -s 8 -n 100 -q --json -" \
                 "--self -t tag_lat -s 8 -n 100 -q"; do
    # shellcheck disable=SC2086
    timeout $LIMIT_S "$BINARY" $arguments >/dev/full 2>"$dir/err"
    code=$? refuses_output "$arguments, standard output is full" "No space left on device"
    # shellcheck disable=SC2086
    timeout $LIMIT_S "$BINARY" $arguments >&- 2>"$dir/err"
    code=$? refuses_output "$arguments, standard output is closed" "Bad file descriptor"
done
for form in json csv md; do
    perf -l -t tag_lat -s 8 -n 100 -q --$form /dev/full
    check "--$form to a full disk: exit $code" test $code -eq 1 -a \
        "$(grep -c 'cannot write /dev/full: No space left on device' "$dir/err")" -eq 1
done
for arguments in "--self -c 0,9999" "--self -c 0,9999 -T 2" "-l -c 9999,0" "-l -c 0,9999 -T 2" "localhost -c 9999" \
                 "localhost -c 0,9999 -T 2"; do
    # shellcheck disable=SC2086
    perf $arguments -t tag_lat -s 8 -n 100 -q
    check "$arguments: exit $code" test $code -eq 1 -a ! -s "$dir/out" -a \
        "$(grep -c 'cannot bind to processor 9999: Invalid' "$dir/err")" -eq 1
done
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
check "--plot without gnuplot is noticed before anything is measured" test $code -eq 1 -a \
    ! -s "$dir/out" -a "$(grep -c 'gnuplot is not installed' "$dir/err")" -eq 1
mkdir "$dir/tools"
printf '#!/bin/sh\ngrep -q multiplot && echo a picture\n' >"$dir/tools/gnuplot"
chmod +x "$dir/tools/gnuplot"
PATH=$dir/tools:$PATH perf -l -t tag_lat -s 8 -n 100 -q --plot "$dir/drawn.svg"
check "--plot writes what gnuplot draws" test $code -eq 0 -a "$(cat "$dir/drawn.svg")" = "a picture"
ln -s /dev/full "$dir/full.svg"
PATH=$dir/tools:$PATH perf -l -t tag_lat -s 8 -n 100 -q --plot "$dir/full.svg"
check "--plot to a full disk: exit $code" test $code -eq 1 -a \
    "$(grep -c 'cannot write .*full.svg: No space left on device' "$dir/err")" -eq 1
echo 'exit 1' >>"$dir/tools/gnuplot"
PATH=$dir/tools:$PATH perf -l -t tag_lat -s 8 -n 100 -q --plot "$dir/drawn.svg"
check "--plot by a gnuplot that fails: exit $code" test $code -eq 1 -a \
    "$(grep -c 'gnuplot failed' "$dir/err")" -eq 1

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
serve
perf localhost -p $port -b "$dir/batch" -s 16 -n 300 -v -q
check "client of a batch" test $code -eq 0 -a \
    "$(cut -d, -f1 "$dir/out" | paste -sd' ')" = "$tests"
check "server of a batch ends with 0, after the last" served
serve -t tag_bw
perf -t tag_lat -s 8 -n 500 -f -q -p $port localhost
check "client, host last; the client's test counts" test $code -eq 0
check "server ends with 0, its own -t aside" served
serve
perf localhost -p $port -t audit -t tag_bw -s 8,64k --quick --rounds 2 -q --tolerance 0.001
check "audit between client and server" audited 2
check "server of an audit ends with 0" served
serve -T 64
perf localhost -p $port -t tag_lat -s 8 -n 500 -f -q
check "a server of many threads, which the client decides: exit $code" test $code -eq 0
check "that server of many ends with 0" served
serve -6
perf ::1 -p $port -t tag_lat -s 8 -n 500 -f -q
if [ $code -eq 0 ]; then
    check "IPv6" served
    perf ::1 -p $((port + 5)) -t tag_lat -q --timeout 1
    check "no server of IPv6: what to do" grep -q 'Without -6 it takes IPv4 only' "$dir/err"
    serve -6
    perf 127.0.0.1 -p $port -t tag_lat -s 8 -n 500 -f -q
    check "a client of IPv4 at a server of IPv6: exit $code" test $code -eq 0
    check "that server ends with 0" served
else
    kill "$server" 2>/dev/null
    served
    skip "IPv6" "no ::1"
fi

perf -6 127.0.0.1 -p $port -t tag_lat -q
check "IPv6 to an IPv4 address: what to do" test $code -eq 1 -a \
    "$(grep -c "host '127.0.0.1' has addresses of IPv4 only: leave out -6" "$dir/err")" -eq 1
perf localhost -p $((port + 5)) -t tag_lat -q --timeout 2
check "no server: a clear error" test $code -eq 1 -a "$(grep -c 'cannot connect' "$dir/err")" -eq 1
perf -p $((port + 6)) -q --timeout 1
check "no client within --timeout" test $code -eq 1 -a "$(grep -c 'no client' "$dir/err")" -eq 1
met() { [ "$(grep -c 'still waiting' "$dir/server.err")" -eq "$1" ]; } # STRANGERS: by the server
strange() { # N TEXT: the Nth connection says that, and waits until the server has noticed
    (exec 3<>"/dev/tcp/127.0.0.1/$port" && printf "$2" >&3; await met $1) 2>/dev/null
}
silent() { # a connection that says nothing
    rm -f "$dir/connected"
    (exec 3<>"/dev/tcp/127.0.0.1/$port"; touch "$dir/connected"; exec sleep $LIMIT_S) &
    silent=$!
    await test -e "$dir/connected"
}
serve -q
if await listening $port && (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    await met 1
    strange 2 'GET / HTTP/1.0\r\n\r\n'
    strange 3 'hello'
    silent
    perf localhost -p $port -t tag_lat -s 8 -n 100 -q -f
    check "a client of a server that strangers have met: exit $code" test $code -eq 0
    check "that server ends with 0" served
    check "it has said what it met" met 4
    check "it has said each reason" test \
        "$(grep -c 'unknown greeting' "$dir/server.err")" -eq 2 -a \
        "$(grep -c 'closed the connection' "$dir/server.err")" -eq 1 -a \
        "$(grep -c 'sent no greeting' "$dir/server.err")" -eq 1
    kill $silent 2>/dev/null
    serve -q --timeout 2
    await listening $port
    silent
    check "a silent stranger does not stretch --timeout" eval '! served'
    check "nor hides that no client came" grep -q 'no client came within 2 s' "$dir/server.err"
    kill $silent 2>/dev/null
else
    kill "$server" 2>/dev/null
    served
    skip "strangers at a server" "no /dev/tcp"
fi

# Between client and server: stops the server amid the iterations that are timed one by one.
cat >"$dir/between.py" <<'PYTHON'
import os, signal, socket, struct, sys, threading, time
port, server = int(sys.argv[1]), int(sys.argv[2])
listener = socket.create_server(("127.0.0.1", port + 1))
listener.settimeout(60)
client = listener.accept()[0]
peer = socket.create_connection(("127.0.0.1", port))
def computed(): # by the server, in seconds
    with open(f"/proc/{server}/stat") as stat:
        words = stat.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
def back():
    while data := peer.recv(65536):
        client.sendall(data)
threading.Thread(target=back, daemon=True).start()
heard = client.makefile("rb")
while head := heard.read(16):
    magic, kind, length, zero = struct.unpack("<4I", head)
    body = heard.read(length)
    peer.sendall(head + body)
    if kind == 4 and struct.unpack_from("<2I", body)[1] & 1:
        beyond_warm_up = computed() + 0.05
        while computed() < beyond_warm_up:
            time.sleep(0.01)
        os.kill(server, signal.SIGSTOP)
        time.sleep(2.6)
        os.kill(server, signal.SIGCONT)
PYTHON
if command -v python3 >/dev/null; then
    serve -q
    await listening $port
    python3 "$dir/between.py" $port "$(children $server)" &
    between=$!
    await listening $((port + 1))
    perf 127.0.0.1 -p $((port + 1)) -t tag_lat -s 1m -w 1 -n 2000 -R 100 -v -q
    check "an iteration of 2.6 s: exit $code" awk -F, 'NR == 2 && $10 > 1250000 { good = 1 } END { exit !good }' "$dir/out"
    served
    wait $between
    port=$((port + 1))
else
    skip "an iteration of 2.6 s" "no python3"
fi

# A peer that is none: it says what no ucx_perftest would say.
peer() { # WHAT TEST [OPTIONS]
    port=$((port + 1))
    python3 - $port $1 2>"$dir/server.err" <<'PYTHON' &
import socket, struct, sys
HELLO, PARAMS, ADDRESS, STEP, RESULT, READY = 1, 2, 3, 4, 6, 7
def hear(wanted):
    magic, kind, length, zero = struct.unpack("<4I", heard.read(16))
    assert kind == wanted, (kind, wanted)
    return heard.read(length)
def say(kind, payload=b""):
    peer.sendall(struct.pack("<4I", 0x504c4148, kind, len(payload), 0) + payload)
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
listener.settimeout(60)
peer = listener.accept()[0]
peer.settimeout(60)
heard = peer.makefile("rb")
say(HELLO, hear(HELLO)[:8] + b"\33[31mred".ljust(56, b"\33"))
hear(PARAMS)
address = hear(ADDRESS) # of the client itself
if sys.argv[2] == "silence":
    say(READY)
elif sys.argv[2] == "get": # a transport's own: a key behind 36 bytes, of one whose memory has none
    say(ADDRESS, address[:36] + struct.pack("<I", 8) + address[40:])
elif sys.argv[2] == "key": # the longest message: nothing of it is left for a key
    say(ADDRESS, struct.pack("<IIQ", 65520, 0, 0) + address[16:].ljust(65520, b"\0"))
else:
    say(ADDRESS, address)
    hear(READY), say(READY)
    hear(STEP), say(READY)
    say(RESULT, struct.pack("<iIIIdQ160s", -3, 0, 0, 0, 0.0, 0, b"\33[31mred" * 20))
heard.read(1)
PYTHON
    server=$!
    await listening $port
    perf 127.0.0.1 -p $port -t "${@:2}" -n 10
    served
}
if command -v python3 >/dev/null; then
    peer result tag_lat
    check "what a peer says does not command the terminal: exit $code" test $code -eq 1 -a \
        "$(grep -c '?\[31mred' "$dir/err")" -eq 2 -a "$(grep -c $'\33' "$dir/err")" -eq 0
    peer silence tag_lat
    check "a peer without address: exit $code" test $code -eq 1 -a \
        "$(grep -c "error: the peer's worker address" "$dir/err")" -eq 1
    peer key ucp_get
    check "a peer without key: exit $code" test $code -eq 1 -a \
        "$(grep -c 'error: ucp_ep_rkey_unpack' "$dir/err")" -eq 1
    if [ -n "$has_copies" ]; then
        peer get get -x cma -D zcopy
        check "a peer with a key where the transport has none: exit $code" test $code -eq 1 -a \
            "$(grep -c 'error: opening the transport: invalid' "$dir/err")" -eq 1
    else
        skip "a peer with a key where the transport has none" "no cma"
    fi
else
    skip "a peer that is none" "no python3"
fi

# ---- memory of devices, by the driver of the tests ----
fake=$(dirname "$BINARY")/test/fakecuda/.libs
if [ -e "$fake/libcuda.so.1" ]; then
    libraries=${LD_LIBRARY_PATH-}
    export LD_LIBRARY_PATH=$fake${libraries:+:$libraries}
    for m in cuda cuda-managed,cuda-vmm host,cuda-vmm-pieces cuda-async,cuda-pinned cuda-registered; do
        for t in tag_lat tag_bw tag_bi_bw ucp_am_bw stream_bw; do
            perf --self -t $t -m $m -s 1,4k,100000 -n 50 -w 5 -V -f -q
            check "$t -m $m -V: exit $code" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq 3
        done
        perf --self -t ucp_get -m $m -s 8,100000 -n 50 -f -q
        check "ucp_get -m $m: exit $code" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq 2
    done
    perf --self -t tag_lat -m host --device 1,0 -s 8 -n 100 -f -q
    check "host memory in a process with a device: exit $code" test $code -eq 0
    perf --self -t tag_lat -m cuda --device 7 -s 8 -n 100 -f -q
    check "no such device: exit $code" test $code -eq 1 -a "$(grep -c 'no device 7' "$dir/err")" -ge 1
    perf --self --rounds 3 --quick -m cuda -s 8,64k -q --csv "$dir/device.csv"
    check "the driver's copies beside the tests: exit $code" test $code -eq 0 -a \
        "$(awk -F, 'NR > 1 { print $1 }' "$dir/device.csv" | sort | uniq -c | xargs)" = \
        "2 batch 2 copy 1 tag_bw 2 tag_lat 1 tag_rate"
    serve
    perf localhost -p $port -t tag_bw -m host,cuda -s 8,64k -n 50 -V -f -q
    check "client with host memory, server with a device: exit $code" test $code -eq 0
    check "server with a device ends with 0" served
    export LD_LIBRARY_PATH=$libraries
else
    skip "memory of devices" "test/fakecuda is not built"
fi

# ---- ranks ----
as_rank() { # RANK SIZE LOCAL_SIZE ARGUMENTS: what Open MPI's mpirun does
    OMPI_COMM_WORLD_RANK=$1 OMPI_COMM_WORLD_SIZE=$2 OMPI_COMM_WORLD_LOCAL_SIZE=$3 \
        PMIX_NAMESPACE=test-$$ timeout $LIMIT_S "$BINARY" "${@:4}"
}
two_ranks() { # NAME LOCAL_SIZE ARGUMENTS: both ranks end with 0, only rank 0 speaks
    local name=$1
    shift
    as_rank 1 2 "$@" >"$dir/rank1" 2>&1 &
    server=$!
    as_rank 0 2 "$@" >"$dir/out" 2>"$dir/err"
    code=$?
    served
    check "$name: exit $code and $?" test $? -eq 0 -a $code -eq 0 -a ! -s "$dir/rank1" -a \
        "$(wc -l <"$dir/out")" -eq 2 -a ! -s "$dir/err"
}
two_ranks "two ranks on one host" 2 -t tag_lat -s 8,100000 -n 300 -V -f -q
two_ranks "two ranks, processors named" 2 -t tag_bw -s 8,64 -n 300 -f -q -c 0,0
port=$((port + 1))
two_ranks "two ranks, rank 0's host named" 1 -t tag_lat -s 8,64 -n 300 -f -q -p $port localhost
for rank in 0 1; do
    for case in "2 1 several hosts" "3 3 two ranks"; do
        # shellcheck disable=SC2086
        set -- $case
        as_rank $rank "$1" "$2" -t tag_lat >"$dir/out" 2>"$dir/err"
        code=$?
        check "ranks: ${*:3}: exit $code" test $code -eq 2 -a ! -s "$dir/out" -a \
            "$(grep -c "${*:3}" "$dir/err")" -eq $((1 - rank)) -a \
            "$(wc -l <"$dir/err")" -eq $((1 - rank))
    done
done
as_rank 0 2 2 -q >"$dir/out" 2>"$dir/err"
check "ranks without a test" grep -q "which test" "$dir/err"
PMI_RANK=1 PMI_SIZE=2 perf -t tag_lat --timeout 1
check "the other rank is not there" test $code -eq 1 -a "$(grep -c 'host of rank 0' "$dir/err")" -eq 1
as_rank 0 1 1 -q --timeout 1 -p $((port + 1)) >"$dir/out" 2>"$dir/err"
check "one rank alone is a server" grep -q "no client" "$dir/err"
as_rank 7 2 2 -q --timeout 1 -p $((port + 1)) >"$dir/out" 2>"$dir/err"
check "a rank beyond the size is none" grep -q "no client" "$dir/err"
as_rank 0 2 2 -P 0 -q --timeout 1 -p $((port + 2)) >"$dir/out" 2>"$dir/err"
check "-P 0: a server even as a rank" grep -q "no client" "$dir/err"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for mpirun in mpirun.openmpi mpirun.mpich; do
    if ! command -v $mpirun >/dev/null; then
        skip "$mpirun" "not installed"
        continue
    fi
    [ $mpirun = mpirun.mpich ] || more=--oversubscribe
    timeout $LIMIT_S $mpirun ${more-} -n 2 "$BINARY" -t tag_lat -s 8,64 -n 300 -V -f -q \
        >"$dir/out" 2>"$dir/err"
    code=$?
    check "$mpirun -n 2: exit $code" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq 2
    # The ranks find each other through a script, too.
    timeout $LIMIT_S $mpirun ${more-} -n 2 sh -c '"$@"; exit $?' sh "$BINARY" -t tag_bw -s 8,64 \
        -n 300 -f -q >"$dir/out" 2>"$dir/err"
    code=$?
    check "$mpirun -n 2 of a script: exit $code" test $code -eq 0 -a "$(wc -l <"$dir/out")" -eq 2
    unset more
done

# ---- death and standstill ----
for which in 1 2; do
    "$BINARY" --self -t tag_lat -n 1000000000 -f -q --timeout 20 >"$dir/out" 2>"$dir/err" &
    main=$!
    await computing $main 2
    kill -KILL "$(children $main | sed -n ${which}p)"
    wait $main 2>/dev/null
    code=$?
    check "kill -9 of process $which" test $code -eq 1 -a "$(grep -c 'signal 9' "$dir/err")" -eq 1
done
"$BINARY" --self -t tag_lat -n 1000000000 -f -q --timeout 1 >"$dir/out" 2>"$dir/err" &
main=$!
await computing $main 2
kill -STOP "$(children $main | sed -n 1p)"
wait $main
code=$?
check "a process that stands still" test $code -eq 4 -a "$(grep -c ' stood, at: tag_lat' "$dir/err")" -eq 2
# So many that they take twice that time, as fast as this machine is just now.
for test in tag_lat ucp_get; do
    count=1000 code=0 took_us=0
    while [ $code -eq 0 ] && [ $took_us -lt 2000000 ]; do
        start_us=${EPOCHREALTIME/./}
        timeout $LIMIT_S "$BINARY" -l -t $test -s 1m -n 10 -w $count -f -q --timeout 1 \
            >"$dir/out" 2>"$dir/err"
        code=$?
        took_us=$((${EPOCHREALTIME/./} - start_us))
        count=$((4 * count))
    done
    check "what takes longer than --timeout, but comes on, $test: exit $code" test $code -eq 0
done
serve -q
timeout $LIMIT_S "$BINARY" localhost -p $port -t tag_bw -n 1000000000 -q >"$dir/out" 2>"$dir/err" &
client=$!
await computing $client 1
kill -KILL "$(children $client)"
wait $client 2>/dev/null
served
check "the server notices a dead client" grep -q "is gone" "$dir/server.err"
# Only the library tells the second thread, and only with error handling.
for transport in all net; do
    export UCX_TLS=$transport
    perf --self -t tag_lat -s 8 -n 10 -f -q
    [ $code -eq 0 ] || { skip "a dead server over $transport" "$(head -1 "$dir/err")"; continue; }
    serve -q
    timeout $LIMIT_S "$BINARY" localhost -p $port -t tag_lat -T 2 -n 1000000000 -q \
        >"$dir/out" 2>"$dir/err" &
    client=$!
    await computing $client 1
    kill -KILL "$(children $server)"
    wait $client 2>/dev/null
    code=$?
    check "a dead server ends the client at once over $transport: exit $code" test $code -eq 1 -a \
        "$(grep -cE 'is gone: .*, at: tag_lat' "$dir/err")" -eq 1
    served 2>/dev/null
done
unset UCX_TLS

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
