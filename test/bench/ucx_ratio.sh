#!/bin/bash
# Halyard: the same test by UCX's ucx_perftest (Debian: ucx-utils, with its own libraries) and by
# ours, in turn, on the same two processors; prints the ratio for each size.
#
#   ucx_ratio.sh [-b OUR_BINARY] [-t TEST] [-s SIZES] [-r ROUNDS] [-c CPU,CPU]
#
# Our binary is $UCX_PERFTEST or ./ucx_perftest; LD_LIBRARY_PATH and UCX_* reach ours only.
# Ratio: median over the rounds of (our time / UCX's time in the same round); below 1 we are faster.
# SPDX-License-Identifier: BSD-3-Clause
set -u

readonly THEIRS=${UCX_REFERENCE:-/usr/bin/ucx_perftest}
readonly RUN_LIMIT_S=60
readonly START_TRIES=100

ours=${UCX_PERFTEST:-./ucx_perftest}
test=tag_lat
sizes=8,64,1024,8192,65536,1048576
rounds=5
cpus=
while getopts b:t:s:r:c:h option; do
    case $option in
    b) ours=$OPTARG ;;
    t) test=$OPTARG ;;
    s) sizes=$OPTARG ;;
    r) rounds=$OPTARG ;;
    c) cpus=$OPTARG ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
done

[ -x "$THEIRS" ] || { echo "ucx_ratio.sh: $THEIRS not found (apt-get install ucx-utils)" >&2; exit 2; }
[ -x "$ours" ] || { echo "ucx_ratio.sh: $ours not found (-b)" >&2; exit 2; }
if [ -z "$cpus" ]; then
    # The first two processors that this shell may use.
    cpus=$(taskset -cp $$ | sed 's/.*: //' | tr , '\n' |
           awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); ++i) print i }' | head -2 | paste -sd,)
fi
case $cpus in *,*) ;; *) echo "ucx_ratio.sh: two processors are needed (-c)" >&2; exit 2 ;; esac
readonly server_cpu=${cpus%%,*} client_cpu=${cpus##*,}

port=$((20000 + $$ % 20000))
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null; wait' EXIT

# Iterations for about a fifth of a second.
iterations() {
    awk -v size="$1" 'BEGIN { us = 0.3 + size / 8000; n = int(2e5 / us); print n < 50 ? 50 : n }'
}

listens() { [ -n "$(ss -Hltn "sport = :$1" 2>/dev/null)" ]; }

# run KIND SIZE: prints microseconds of a message. A client does not come before its server listens.
run() {
    local binary=$ours try output
    local -a clean=() arguments=(-t "$test" -s "$2" -n "$(iterations "$2")")
    if [ "$1" = theirs ]; then
        binary=$THEIRS
        clean=(env -u LD_LIBRARY_PATH)
        for variable in ${!UCX_*}; do clean+=(-u "$variable"); done
    fi
    port=$((port + 1))
    "${clean[@]}" timeout $RUN_LIMIT_S "$binary" -p $port -c "$server_cpu" >/dev/null 2>&1 &
    server=$!
    for ((try = 0; try < START_TRIES; ++try)); do
        listens $port && break
        sleep 0.02
    done
    output=$("${clean[@]}" timeout $RUN_LIMIT_S "$binary" localhost -p $port -c "$client_cpu" \
             "${arguments[@]}" -f -v 2>/dev/null)
    wait "$server"
    server=
    if [ "$1" = theirs ]; then
        # iterations,percentile,average,overall: one-way us
        awk -F, 'NF >= 8 && $1 ~ /^ *[0-9]+$/ { value = $4 } END { print value }' <<<"$output"
    else
        # test,size,window,threads,iterations,rounds,disturbed,us
        awk -F, 'NF >= 9 && $2 ~ /^[0-9]+$/ { value = $8 } END { print value }' <<<"$output"
    fi
}

median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

echo "# $test on processors $cpus, $rounds rounds, medians; us a message, one way"
printf '%10s %12s %12s %8s\n' size "UCX us" "ours us" ratio
status=0
for size in ${sizes//,/ }; do
    theirs_us=() ours_us=() ratios=()
    for ((round = 0; round < rounds; ++round)); do
        a=$(run theirs "$size")
        b=$(run ours "$size")
        [ -n "$a" ] && [ -n "$b" ] || continue
        theirs_us+=("$a") ours_us+=("$b")
        ratios+=("$(awk -v a="$a" -v b="$b" 'BEGIN { print (a > 0) ? b / a : 0 }')")
    done
    if [ ${#ratios[@]} -eq 0 ]; then
        printf '%10s %12s %12s %8s\n' "$size" - - failed
        status=1
        continue
    fi
    printf '%10s %12.3f %12.3f %8.2f\n' "$size" "$(printf '%s\n' "${theirs_us[@]}" | median)" \
        "$(printf '%s\n' "${ours_us[@]}" | median)" "$(printf '%s\n' "${ratios[@]}" | median)"
done
exit $status
