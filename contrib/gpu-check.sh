#!/bin/bash
# Halyard: builds, tests and measures on a machine with GPUs of NVIDIA, in one call.
#
#   gpu-check.sh [--only build,test,host,perf,mpi] [--build DIR] [--jobs N] [--filter GTEST_FILTER]
#
#   build  configure (optimized) and make, in DIR (build-gpu); what is built already stays
#   test   the unit tests of device memory, on the real driver
#   host   (when asked for) all other unit tests
#   perf   ucx_perftest beside the driver's own copies: one GPU, two where there are two, other
#          kinds of memory, device and host, every byte checked, the costs for host memory
#   mpi    MPI programs with device memory over this library, by Open MPI and pml ucx
#
# Nothing but the driver is needed of CUDA. Each step has a time limit and shows where it hangs;
# results are printed as they come, logs are in DIR/gpu-logs. The last line is "N passed, N failed,
# N skipped"; exit status 1 if anything failed.
# SPDX-License-Identifier: BSD-3-Clause
set -u

readonly BUILD_LIMIT_S=300
readonly TEST_LIMIT_S=240
readonly HOST_LIMIT_S=400
readonly PERF_LIMIT_S=90
readonly MPI_LIMIT_S=120

. "$(dirname "$0")/script-parts.sh"

build=$root/build-gpu
parts=build,test,perf,mpi
filter='*cuda*:*device*'
part=
table=()
failures=()

options "--only parts=" "--build build=" "--jobs jobs=" "--filter filter=" -- "$@"
build=$(mkdir -p "$build" && cd "$build" && pwd) || exit 2
logs=$build/gpu-logs
mkdir -p "$logs" || exit 2

say()
{
    printf '\n[%4d s] %s\n' $SECONDS "$*"
}

# The counts of a part, once it is over.
begin() # part
{
    part=$1
    part_passed=$passed part_failed=$failed part_skipped=$skipped part_start=$SECONDS
    say "== $part"
}

end()
{
    table+=("$(printf '%-8s %7d %7d %8d %6d s' "$part" $((passed - part_passed)) \
                      $((failed - part_failed)) $((skipped - part_skipped)) \
                      $((SECONDS - part_start)))")
}

# Runs a command under a limit into a log, printing what it prints. Its status.
limited() # log seconds command...
{
    local log=$logs/$1.log limit=$2
    shift 2
    "$root/contrib/run-limited.sh" "$limit" "$@" 2>&1 </dev/null | tee "$log"
    return "${PIPESTATUS[0]}"
}

# The same, counted as one.
step() # name seconds command...
{
    local name=$1 limit=$2 rc
    shift 2
    say "$name: $*"
    limited "$name" "$limit" "$@"
    rc=$?
    if [ $rc -eq 0 ]; then
        count 1 0 0
    else
        count 0 1 0
        failures+=("$part: $name (exit status $rc)")
    fi
    return $rc
}

devices()
{
    nvidia-smi -L 2>/dev/null | grep -c '^GPU '
}

# ---------------------------------------------------------------- build

# Generated files may have come without the tools that made them: then they are new enough.
prepare()
{
    if command -v libtoolize >/dev/null && command -v automake >/dev/null; then
        [ -x "$root/configure" ] || quiet autogen "$root/autogen.sh"
        return
    fi
    if ! [ -x "$root/configure" ]; then
        echo "no libtoolize or automake here, and no ./configure: bring what autogen.sh makes"
        count 0 1 0
        failures+=("build: autogen")
        return 1
    fi
    touch "$root/aclocal.m4" && sleep 1.1 &&
        touch "$root/configure" "$root/config.h.in" "$root/Makefile.in"
}

quiet() # name command...
{
    local name=$1
    shift
    if limited "$name" $BUILD_LIMIT_S "$@" >/dev/null; then
        return 0
    fi
    grep -nE 'error|\*\*\*' "$logs/$name.log" | head -20
    tail -n 30 "$logs/$name.log"
    count 0 1 0
    failures+=("build: $name")
    return 1
}

part_build()
{
    cd "$build" || return 1
    prepare || return 1
    if ! [ -e Makefile ]; then
        quiet configure "$root/configure" --prefix="$build/install" || return 1
        tail -n 25 "$logs/configure.log"
    fi
    quiet make make -j"$jobs" all || return 1
    if grep -q '^GTEST_LIBS = .*gtest' Makefile; then
        quiet make-tests make -j"$jobs" $(test_targets) || return 1
    else
        echo "GoogleTest was not found: no unit tests"
        count 0 0 1
    fi
    count 1 0 0
    ls -l .libs/libucp.so.0 ucx_perftest
}

test_targets()
{
    local target
    for target in test/gtest/gtest test/gtest/libgreedy.la test/fakecuda/libcuda.la \
                  examples/cuda_pingpong; do
        grep -q "^${target//./\\.}\\(\$(EXEEXT)\\)\\?:" Makefile && echo "$target"
    done
}

# ---------------------------------------------------------------- test

# Counts one log of the unit tests.
count_gtest() # log exit_status
{
    local ok bad skip name
    ok=$(grep -cE '^\[       OK \] .*\([0-9]+ ms\)' "$1")
    bad=$(grep -cE '^\[  FAILED  \] .*\([0-9]+ ms\)' "$1")
    skip=$(grep -cE '^\[  SKIPPED \] .*\([0-9]+ ms\)' "$1")
    if [ "$2" -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1
        failures+=("$part: the unit tests ended with exit status $2 ($1)")
    fi
    count "$ok" "$bad" "$skip"
    while read -r name; do
        failures+=("$part: $name")
    done < <(grep -E '^\[  FAILED  \] .*\([0-9]+ ms\)' "$1" | sed 's/^.*\] //')
}

# All other unit tests, on a machine whose driver nobody has loaded.
part_host()
{
    local shards=4 i pids=()
    cd "$build" || return 1
    for ((i = 0; i < shards; ++i)); do
        GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i limited "host-$i" $HOST_LIMIT_S \
            test/gtest/gtest --gtest_filter="-$filter" >/dev/null &
        pids[i]=$!
    done
    for ((i = 0; i < shards; ++i)); do
        wait "${pids[i]}"
        count_gtest "$logs/host-$i.log" $?
        grep -hE -B 12 '^\[  FAILED  \] .*ms\)|^\*\*\* ' "$logs/host-$i.log" | head -60
    done
}

part_test()
{
    local rc
    cd "$build" || return 1
    if ! [ -x test/gtest/gtest ]; then
        echo "no unit tests were built"
        count 0 0 1
        return
    fi
    HALYARD_TEST_CUDA=real limited gtest $TEST_LIMIT_S test/gtest/gtest \
        --gtest_filter="$filter" | grep -vE '^\[ RUN  |^\[-----|^$'
    rc=${PIPESTATUS[0]}
    count_gtest "$logs/gtest.log" "$rc"
    # The program itself, not the script that puts the driver of the tests before the real one.
    if [ -x examples/.libs/cuda_pingpong ]; then
        LD_LIBRARY_PATH=$build/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
            step cuda_pingpong 60 examples/.libs/cuda_pingpong
    fi
}

# ---------------------------------------------------------------- perf

perf() # name arguments...
{
    local name=$1
    shift
    step "perf-$name" $PERF_LIMIT_S ./ucx_perftest --self -q "$@" --csv "$logs/$name.csv"
}

# All tables and tests for one pair of devices.
perf_devices() # name devices
{
    local name=$1 devices=$2 kind test kernels
    perf "$name" -m cuda --device "$devices"
    for kind in cuda-vmm cuda-pool cuda-async cuda-managed; do
        perf "$name-$kind" -m $kind --device "$devices" --quick -s 8,64k,1m,16m
    done
    for kind in host cuda-pinned; do
        perf "$name-to-$kind" -m cuda,$kind --device "$devices" --quick -s 8,64k,1m,16m,64m
        perf "$name-from-$kind" -m $kind,cuda --device "$devices" --quick -s 8,64k,1m,16m,64m
    done
    for test in tag_lat tag_bw tag_bi_bw ucp_am_bw stream_bw; do
        perf "$name-check-$test" -t $test -V -n 200 -m cuda --device "$devices" \
             -s 1,63,4k,64k,1m
    done
    perf "$name-check-mixed" -t tag_bi_bw -V -n 200 -m cuda-vmm-pieces,cuda-managed \
         --device "$devices" -s 63,64k,1m
    for test in ucp_put_bw ucp_get; do
        perf "$name-$test" -t $test -m cuda --device "$devices" -O 16 -s 8,64k,1m
    done
    for test in tag_bw ucp_put_bw; do
        for kernels in n y; do
            UCX_CUDA_IPC_KERNELS=$kernels perf "$name-kernels-$kernels-$test" -t $test -m cuda \
                --device "$devices" -O 64 -n 50000 -s 8,16k,64k,256k,1m
        done
    done
    for test in tag_bw tag_bi_bw ucp_am_bw; do
        UCX_CUDA_IPC_KERNELS=y perf "$name-kernels-check-$test" -t $test -V -n 200 -m cuda \
            --device "$devices" -s 1,63,4k,64k,1m
    done
    perf "$name-am" -t ucp_am_lat -m cuda --device "$devices" -s 8,4k,64k,1m
    perf "$name-stream" -t stream_lat -m cuda --device "$devices" -s 8,4k,64k,1m
}

# What CUDA in the process costs those that use memory of the host, in turns.
perf_host()
{
    local turn
    for turn in 1 2 3; do
        perf "host-without-$turn" -f -t tag_lat -s 8 -n 2000000
        perf "host-with-$turn" -f -t tag_lat -s 8 -n 2000000 --device 0,0
    done
    perf start-without -s 8 --rounds 7
    perf start-with -s 8 --rounds 7 --device 0,0
}

# "name: tag_lat 8..64K at most R x the copy; ...", from the tables' CSV.
figures() # name
{
    [ -s "$logs/$1.csv" ] && awk -F, -v name="$1" '
        function label(size) { return size < 1048576 ? size / 1024 "K" : size / 1048576 "M" }
        NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
        { ratio = $(column["ratio"]); us = $(column["us"]); size = $(column["size"]) }
        ratio == "" { next }
        $1 == "tag_lat" && size <= 65536 { if (ratio + 0 > small) small = ratio + 0
                                           if (size == 8) eight = us }
        $1 == "tag_lat" && size > 65536  { large = large sprintf(" %s %.2f", label(size), ratio) }
        $1 == "tag_bw"   { bw = bw sprintf(" %s %.2f", label(size), 1 / ratio) }
        $1 == "tag_rate" { rate = sprintf("%.2f Mmsg/s (%.2f of the driver)", 1 / us, 1 / ratio) }
        END {
            printf "%-22s 8 B %.2f us; to 64K at most x%.2f;%s", name, eight, small,
                   large == "" ? "" : " x" large ";"
            printf " bandwidth of the driver:%s; %s\n", bw, rate
        }' "$logs/$1.csv"
}

part_perf()
{
    cd "$build" || return 1
    step perf-limits 60 ./ucx_perftest -t limits -m cuda --device 0,0 -s 8,64k,1m,16m
    perf_devices one-gpu 0,0
    if [ "$(devices)" -ge 2 ]; then
        perf_devices two-gpus 0,1
    else
        echo "one GPU here: nothing between two"
        count 0 0 1
    fi
    perf_host
    say "latency, ratio to one copy of the driver; bandwidth and rate, part of the driver's"
    for csv in "$logs"/one-gpu*.csv "$logs"/two-gpus*.csv; do
        case $csv in
            *-check-*|*-kernels-*|*-am.csv|*-stream.csv|*put_bw*|*get.csv|*'*'*) ;;
            *) figures "$(basename "$csv" .csv)" ;;
        esac
    done | tee "$logs/figures.txt"
    for turn in without with; do
        awk -v turn=$turn '/ucp_init/ { print "start " turn " CUDA:" $0 }' "$logs/perf-start-$turn.log"
        awk -v turn=$turn 'NF > 2 && $1 == 8 { us = us " " $3 }
                           END { print "host memory, 8 B, " turn " CUDA, us:" us }' \
            "$logs"/perf-host-$turn-*.log
    done | tee -a "$logs/figures.txt"
}

# ---------------------------------------------------------------- mpi

part_mpi()
{
    local bin=$build/gpu-bin tool line
    cd "$build" || return 1
    mkdir -p "$bin"
    for tool in mpicc mpirun; do
        if ! command -v $tool.openmpi >/dev/null; then
            command -v $tool >/dev/null || { echo "no $tool here"; count 0 0 1; return; }
            ln -sf "$(command -v $tool)" "$bin/$tool.openmpi"
        fi
    done
    PATH=$PATH:$bin limited mpi $MPI_LIMIT_S "$root/test/mpi/run.sh" --lib "$build/.libs" \
        --build "$build/mpi" --mpi openmpi --ranks 2 --only "device pingpong" --limit 60
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$logs/mpi.log" | tail -n 1)
    grep -h skipped: "$build"/mpi/log.openmpi.2.device 2>/dev/null
    if [ -n "$line" ]; then
        set -- ${line//,/}
        count "$1" "$3" "$5"
        [ "$3" -eq 0 ] || failures+=("mpi: $3 cases (see $logs/mpi.log)")
    else
        count 0 1 0
        failures+=("mpi: nothing ran")
    fi
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PATH=$PATH:$bin \
        step mpi-perftest 60 mpirun.openmpi -n 2 ./ucx_perftest -t tag_lat -m cuda -n 1000 \
        -s 8,64k,1m
}

# ---------------------------------------------------------------- all

echo "Halyard on GPUs: $parts, in $build, $jobs jobs"
nvidia-smi --query-gpu=index,name,driver_version,memory.used,memory.total --format=csv,noheader \
    2>/dev/null || echo "nvidia-smi says nothing: is there a GPU?"
for name in ${parts//,/ }; do
    case $name in
        build|test|host|perf|mpi) ;;
        *) echo "gpu-check.sh: no part '$name'" >&2; exit 2 ;;
    esac
    begin "$name"
    "part_$name"
    rc=$?
    end
    [ "$name" != build ] || [ $rc -eq 0 ] || break
done
if [ -n "${OUT:-}" ]; then
    tar czf "$OUT/gpu-logs.tar.gz" -C "$build" gpu-logs
fi
echo
[ -s "$logs/figures.txt" ] && [[ ",$parts," = *,perf,* ]] && cat "$logs/figures.txt" && echo
for failure in ${failures[@]+"${failures[@]}"}; do
    echo "FAILED: $failure"
done
printf '%-8s %7s %7s %8s\n' part passed failed skipped
printf '%s\n' "${table[@]}"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
