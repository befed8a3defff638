#!/bin/bash
# Halyard: compiles the MPI and OpenSHMEM test programs with Debian's Open MPI and MPICH and runs
# them over a given libucp.so.0.
#
#   run.sh --lib DIR [--build DIR] [--mpi "openmpi mpich openshmem"] [--ranks "1 2 4 7"]
#          [--only "match probe"] [--limit SECONDS]
#
# DIR holds libucp.so.0, libuct.so.0, libucs.so.0 and libucm.so.0; each rank checks that these and
# no others are mapped. A case passes if it passed on every rank. An MPI that is not installed
# counts as skipped. Programs in which pairs take turns run with even numbers of ranks only. Cases
# that are known to fail over UCX 1.13 are in known_failures.md, and why a run that leaves a process
# in PMIx_Init counts as one skipped. The last line is "N passed, N failed, N skipped".
# SPDX-License-Identifier: BSD-3-Clause
set -u

readonly PAIR_PROGRAMS="pingpong match probe modes traffic device"
readonly MPI_PROGRAMS="$PAIR_PROGRAMS datatype types collective collective_all mixed rma rma_lock
                       threads dynamic"
readonly SHMEM_PROGRAMS="put_get atomic together mixed"

here=$(cd "$(dirname "$0")" && pwd)
run_limited=$here/../../contrib/run-limited.sh
lib=
build=
mpis="openmpi mpich openshmem"
ranks="2 4"
programs=
limit_s=120
passed=0
failed=0
skipped=0

usage()
{
    sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
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
    local compiler=mpicc.$1 folder=$here src=$here/../../src define= memory=
    if [ "$1" = openshmem ]; then
        compiler=oshcc folder=$here/../shmem define=-DCHECK_SHMEM
    fi
    if [ "$2" = device ]; then # of what configure finds out it needs nothing else
        mkdir -p "$build/config" && echo "#define _GNU_SOURCE 1" >"$build/config/config.h"
        memory="-I$build/config -I$src $src/tools/perf/cuda.c $src/ucs/sys/library.c -ldl"
    fi
    rm -f "$build/$2.$1"
    "$compiler" -std=gnu11 -Wall -Wextra -Wno-stringop-overflow -O1 -g -pthread $define \
        "$folder/$2.c" "$here/check.c" $memory -o "$build/$2.$1"
}

is_installed() # mpi
{
    case $1 in
        openshmem) command -v oshcc >/dev/null && command -v oshrun >/dev/null ;;
        *)         command -v "mpicc.$1" >/dev/null && command -v "mpirun.$1" >/dev/null ;;
    esac
}

programs_of() # mpi
{
    local all=$MPI_PROGRAMS program
    [ "$1" = openshmem ] && all=$SHMEM_PROGRAMS
    for program in $all; do
        [[ -n "$programs" && " $programs " != *" $program "* ]] || echo "$program"
    done
}

can_run() # program ranks
{
    [ $(($2 % 2)) -eq 0 ] || [[ " $PAIR_PROGRAMS " != *" $1 "* ]]
}

# Debian's Open MPI leaves UCX aside unless it is told which transports and devices will do. Shared
# windows are no business of UCX, so osc sm is there too, behind ucx. OpenSHMEM without the memory
# hooks: Open MPI 4.1.4 crashes at the end otherwise, over any UCX. More ranks than cores: all are
# told to yield. Processes that a program starts have mpirun's environment, not that of -x.
launch() # mpi ranks program results
{
    local launcher path=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    case $1 in
        openmpi*|openshmem)
            launcher=("mpirun.$1" --mca osc ucx,sm --mca osc_sm_priority 1)
            if [ "$1" = openshmem ]; then
                launcher=(oshrun --mca spml ucx --mca atomic ucx --mca sshmem ucx --mca osc ucx
                          --mca opal_common_ucx_opal_mem_hooks 0)
            fi
            LD_LIBRARY_PATH=$path OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
            PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
                "$run_limited" "$limit_s" "${launcher[@]}" -np "$2" --oversubscribe \
                -x "LD_LIBRARY_PATH=$path" --mca pml ucx \
                --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any \
                --mca mpi_yield_when_idle 1 "$build/$3.$1" "$4" "$lib" ;;
        mpich*)
            LD_LIBRARY_PATH=$path MPIR_CVAR_POLLS_BEFORE_YIELD=10 \
                "$run_limited" "$limit_s" "mpirun.$1" -np "$2" "$build/$3.$1" "$4" "$lib" ;;
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

# mpirun has never answered a process that starts, which has not met our library yet.
waits_in_pmix() # log exit_status
{
    [ "$2" -eq 124 ] && grep -q "in PMIx_Init ()" "$1"
}

run_one() # mpi ranks program
{
    local results=$build/results.$1.$2.$3 log=$build/log.$1.$2.$3 rc start_s=$SECONDS counts
    rm -rf "$results"
    mkdir -p "$results"
    launch "$1" "$2" "$3" "$results" >"$log" 2>&1 </dev/null
    rc=$?
    if waits_in_pmix "$log" $rc; then
        echo "$1, $2 ranks, $3: mpirun leaves a process waiting in PMIx_Init: skipped"
        skipped=$((skipped + 1))
        return
    fi
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
    if ! is_installed "$mpi"; then
        echo "$mpi: skipped, its compiler or its launcher is not installed"
        skipped=$((skipped + 1))
        continue
    fi
    for program in $(programs_of "$mpi"); do
        [ "$(jobs -rp | wc -l)" -lt "$(getconf _NPROCESSORS_ONLN)" ] || wait -n
        compile "$mpi" "$program" &
    done
    wait
    for program in $(programs_of "$mpi"); do
        if ! [ -x "$build/$program.$mpi" ]; then
            echo "$mpi: $program does not compile"
            failed=$((failed + 1))
            continue
        fi
        for n in $ranks; do
            can_run "$program" "$n" && run_one "$mpi" "$n" "$program"
        done
    done
done

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
