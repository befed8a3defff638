#!/bin/bash
# Halyard: fuzzes each target for some seconds, from the corpora in the tree.
#
#   run.sh BUILD SECONDS [TARGET...]
#
# BUILD was configured with --enable-fuzz --enable-asan and has the programs (make fuzz-programs). What is
# found lies in BUILD/fuzz/TARGET; put the file into test/fuzz/corpus/TARGET when the cause is mended.
# The last line is "N passed, N failed, N skipped".
# SPDX-License-Identifier: BSD-3-Clause
set -u

[ $# -ge 2 ] || { sed -n '3,5s/^# \{0,1\}//p' "$0"; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd) || exit 2
seconds=$2
shift 2

fuzz() # TARGET
{
    local work=$build/fuzz/$1
    mkdir -p "$work/corpus"
    "$build/test/fuzz/fuzz_$1" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=900 \
        -max_len=4096 -artifact_prefix="$work/" -print_final_stats=1 "$work/corpus" \
        "$root/test/fuzz/corpus/$1" >"$work/log" 2>&1
}

# The next two wait for those before them: each target keeps one processor busy.
targets=(${@:-address rkey messages conn config})
passed=0
failed=0
declare -A pid
for ((i = 0; i < ${#targets[@]}; i += 2)); do
    for name in "${targets[@]:i:2}"; do
        fuzz "$name" &
        pid[$name]=$!
    done
    for name in "${targets[@]:i:2}"; do
        work=$build/fuzz/$name
        if wait "${pid[$name]}"; then
            echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log") runs," \
                 "$(find "$work/corpus" -type f | wc -l) new inputs"
            passed=$((passed + 1))
        else
            tail -n 60 "$work/log"
            echo "$name: FAILED (log: $work/log)"
            failed=$((failed + 1))
        fi
    done
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
