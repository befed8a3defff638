#!/bin/bash
# Halyard: compiles the MPI test programs with Debian's Open MPI and MPICH and runs them over a
# given libucp.so.0, with 2 and 4 ranks.
#
#   run.sh --lib DIR [--build DIR] [--mpi "openmpi mpich"] [--ranks "2 4"] [--only "match probe"]
#          [--limit SECONDS]
#
# DIR holds libucp.so.0, libuct.so.0, libucs.so.0 and libucm.so.0; each rank checks that these and
# no others are mapped. A case passes if it passed on every rank. An MPI that is not installed
# counts as skipped. The last line is "N passed, N failed, N skipped".
# SPDX-License-Identifier: BSD-3-Clause
set -u

readonly ALL_PROGRAMS="pingpong match probe datatype modes collective traffic"

here=$(cd "$(dirname "$0")" && pwd)
run_limited=$here/../../contrib/run-limited.sh
lib=
build=
mpis="openmpi mpich"
ranks="2 4"
programs=$ALL_PROGRAMS
limit_s=120
passed=0
failed=0
skipped=0

usage()
{
    sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
        --lib)   lib=$2 ;;
        --build) build=$2 ;;
        --mpi)   mpis=$2 ;;
        --ranks) ranks=$2 ;;
        --only)  programs=$2 ;;
        --limit) limit_s=$2 ;;
        *)       usage ;;
    esac
    shift 2
done
[ -n "$lib" ] || usage
if ! [ -e "$lib/libucp.so.0" ]; then
    echo "run.sh: no libucp.so.0 in $lib" >&2
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
lib=$(cd "$lib" && pwd)
if [ -z "$build" ]; then
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
fi
mkdir -p "$build" || exit 2

# The header of MPICH calls MPI_STATUSES_IGNORE an array that is too small.
compile() # mpi program
{
    "mpicc.$1" -std=gnu11 -Wall -Wextra -Wno-stringop-overflow -O1 -g -pthread \
        "$here/$2.c" "$here/check.c" -o "$build/$2.$1"
}

# Debian's Open MPI leaves UCX aside unless it is told which transports and devices will do.
# More ranks than cores: both are told to yield.
launch() # mpi ranks program results
{
    case $1 in
        openmpi)
            OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
                "$run_limited" "$limit_s" mpirun.openmpi -np "$2" --oversubscribe \
                -x "LD_LIBRARY_PATH=$lib" --mca pml ucx --mca osc ucx --mca btl ^uct \
                --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any \
                --mca mpi_yield_when_idle 1 "$build/$3.openmpi" "$4" "$lib" ;;
        mpich)
            LD_LIBRARY_PATH=$lib MPIR_CVAR_POLLS_BEFORE_YIELD=10 \
                "$run_limited" "$limit_s" mpirun.mpich -np "$2" "$build/$3.mpich" "$4" "$lib" ;;
    esac
}

# Prints "passed failed skipped" of one run.
count_results() # folder ranks exit_status
{
    cat "$1"/* 2>/dev/null | awk -v ranks="$2" -v rc="$3" '
        { lines[$2]++; if ($1 == "PASS") pass[$2]++; if ($1 == "SKIP") skip[$2]++ }
        END {
            for (name in lines) {
                if (skip[name] == ranks) skipped++
                else if (pass[name] == ranks) passed++
                else { failed++; print "FAILED " name > "/dev/stderr" }
            }
            if (rc != 0 && !failed) {
                failed++; print "FAILED: exit status " rc > "/dev/stderr"
            }
            if (rc == 0 && !passed && !failed) {
                failed++; print "FAILED: nothing ran" > "/dev/stderr"
            }
            print passed + 0, failed + 0, skipped + 0
        }'
}

run_one() # mpi ranks program
{
    local results=$build/results.$1.$2.$3 log=$build/log.$1.$2.$3 rc start_s=$SECONDS counts
    rm -rf "$results"
    mkdir -p "$results"
    launch "$1" "$2" "$3" "$results" >"$log" 2>&1 </dev/null
    rc=$?
    counts=$(count_results "$results" "$2" $rc 2>"$log.failed")
    set -- "$1" "$2" "$3" $counts
    passed=$((passed + $4))
    failed=$((failed + $5))
    skipped=$((skipped + $6))
    echo "$1, $2 ranks, $3: $4 passed, $5 failed, $6 skipped ($((SECONDS - start_s)) s)"
    if [ "$5" -gt 0 ]; then
        head -n 100 "$log" | sed 's/^/    /'
        sed 's/^/    /' "$log.failed"
    fi
}

for mpi in $mpis; do
    if ! command -v "mpicc.$mpi" >/dev/null || ! command -v "mpirun.$mpi" >/dev/null; then
        echo "$mpi: skipped, mpicc.$mpi or mpirun.$mpi is not installed"
        skipped=$((skipped + 1))
        continue
    fi
    for program in $programs; do
        if ! compile "$mpi" "$program"; then
            echo "$mpi: $program does not compile"
            failed=$((failed + 1))
            continue
        fi
        for n in $ranks; do
            run_one "$mpi" "$n" "$program"
        done
    done
done

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
