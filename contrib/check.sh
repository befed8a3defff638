#!/bin/bash
# Halyard: builds in its own folder, runs the tests, and counts what really ran.
#
#   check.sh [STAGE...] [--build DIR] [--jobs N] [--no-packages]
#
# Stages (without one: --style --gcc):
#   --style   layer, style and text rules (contrib/check-style.sh)
#   --gcc     gcc, optimized, assertions on: unit tests, examples
#   --asan    clang with AddressSanitizer and UndefinedBehaviorSanitizer, leaks too
#   --tsan    gcc with ThreadSanitizer
#   --mpi     gcc build installed; over it MPI and OpenSHMEM programs with Open MPI and MPICH,
#             and a short selection of Debian packages
#   --fuzz    clang, the fuzz targets with libFuzzer and AddressSanitizer, HALYARD_FUZZ_SECONDS each
#             (default 60; 10 in --all)
#   --arm     built for aarch64 and run by qemu (which orders memory as this machine does): two
#             processes, the simulator, checked data
#   --dist    release archive, built and installed from itself; a program built against it; Debian
#             packages made of it
#   --all     all of these but --arm
#
# Installs the Debian packages that are missing (root or sudo) unless --no-packages is given.
# Each test runs under a time limit (contrib/run-limited.sh) that shows where it hangs.
# The last line is "N passed, N failed, N skipped"; exit status 1 if anything failed.
# SPDX-License-Identifier: BSD-3-Clause
set -u

readonly BUILD_LIMIT_S=1200
readonly TESTS_LIMIT_S=1500

# Tests of several processes, or of much memory, of which one runs at a time.
readonly PAIR_TESTS='*beyond_4gib*:*copy_refused.*:kill*:*kill_one.*:*mp_traffic.*:*namespace*'\
':*shared_memory.*:stopped_peer.*:unexpected.*:*one_sided.*:*process_*_test.*:*mp_cuda*'

# The tests' own speed matters less than that of compiling them.
readonly TEST_CXXFLAGS="-O0 -g1"

# What no compiler option changes is tested once, in the gcc stage.
readonly TESTED_ONCE='^test/(abi|gdb|packaging|wireshark)/|^test/sim/planted'

# Tests of hooks around a network.
readonly OFI_HOOKS='*fault_ofi*:*delay_ofi*:*trace_ofi*'

# All that take long: those, and what makes many processes one after another or waits for time to
# pass.
readonly LONG_TESTS=$PAIR_TESTS':limits.*:client_server.*:*between_hosts*:rails.*:*_trouble.*'\
':ofi.who_computes_*:ofi_silent.*:ofi.reads_from_who_computes:doors_of_*:'$OFI_HOOKS

. "$(dirname "$0")/script-parts.sh"

build_root=$root/build-check
packages=yes
stages=
all=
style=
gcc_built=
gcc_installed=
declare -A configuring=()
known=()
failures=()

say()
{
    printf '[%4d s] %s\n' $SECONDS "$*"
}

fail() # what
{
    count 0 1 0
    failures+=("$1")
    say "FAILED: $1"
}

# Counts one log: the lines of GoogleTest, or a last line "N passed, N failed, N skipped", or the
# exit status alone. A log that shows no failure of a run that failed counts as one.
count_log() # name log exit_status
{
    local name=$1 log=$2 rc=$3 ok bad skip line
    if grep -q '^\[==========\] Running' "$log"; then
        ok=$(grep -cE '^\[       OK \] .*\([0-9]+ ms\)' "$log")
        bad=$(grep -cE '^\[  FAILED  \] .*\([0-9]+ ms\)' "$log")
        skip=$(grep -cE '^\[  SKIPPED \] .*\([0-9]+ ms\)' "$log")
    elif line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1) &&
         [ -n "$line" ]; then
        ok=${line%% *}
        line=${line#*, }
        bad=${line%% *}
        line=${line#*, }
        skip=${line%% *}
    else
        ok=0 bad=0 skip=0
        case $rc in
            0)  ok=1 ;;
            77) skip=1 ;;
            *)  bad=1 ;;
        esac
    fi
    case $rc in
        0|77) [ $((ok + bad + skip)) -gt 0 ] || { bad=1; echo "$name: nothing ran" >>"$log"; } ;;
        *)    [ "$bad" -gt 0 ] || bad=1 ;;
    esac
    count "$ok" "$bad" "$skip"
    say "$name: $ok passed, $bad failed, $skip skipped"
    if [ "$bad" -gt 0 ]; then
        failures+=("$name (log: $log)")
        show_failure "$log"
    fi
}

show_failure() # log
{
    echo "---------------------------------------- $1"
    if [ "$(wc -l <"$1")" -le 150 ]; then
        cat "$1"
    else
        grep -nE -B 12 '^\[  FAILED  \]|^\*\*\* |^FAIL|ERROR: |WARNING: ThreadSanitizer|runtime error' \
            "$1" | head -n 120
        echo "..."
        tail -n 60 "$1"
    fi
    echo "----------------------------------------"
}

# Runs a step into a log; on failure shows its end and counts it.
step() # name log command...
{
    "$root/contrib/run-limited.sh" $BUILD_LIMIT_S "${@:3}" >"$2" 2>&1
    ended "$1" "$2" $?
}

ended() # name log exit_status
{
    [ "$3" -ne 0 ] || return 0
    tail -n 40 "$2"
    fail "$1 (log: $2)"
    return 1
}

# Makes configure and starts it for each stage that builds, all at once: it keeps one processor busy.
prepare()
{
    local stage
    [ ${#configuring[@]} -eq 0 ] || return 0
    if [ ! -x "$root/configure" ] || [ "$root/configure.ac" -nt "$root/configure" ] ||
       [ -n "$(find "$root" -path "$root/build-*" -prune -o \
               \( -name Makefile.am -o -name local.mk -o -name '*.m4' \) \
               -newer "$root/Makefile.in" -print -quit)" ]; then
        say "making configure"
        step autogen "$build_root/autogen.log" "$root/autogen.sh" || return 1
    fi
    for stage in $(tr ' ' '\n' <<<"$stages" | sed 's/^mpi$\|^dist$/gcc/' | sort -u); do
        case $stage in
            gcc)  configure gcc CC=gcc CXX=g++ --enable-assert ;;
            asan) configure asan CC=clang CXX=clang++ --disable-static --enable-assert \
                            --enable-asan CXXFLAGS="$TEST_CXXFLAGS -fpch-instantiate-templates" ;;
            tsan) configure tsan CC=gcc CXX=g++ --disable-static --enable-assert --enable-tsan ;;
            fuzz) configure fuzz CC=clang CXX=clang++ --disable-static --enable-assert \
                            --enable-asan --enable-fuzz ;;
            arm)  configure arm --host=aarch64-linux-gnu --disable-gtest --disable-static \
                            --enable-assert CFLAGS="-O1 -g0" ;;
        esac
    done
}

configure() # stage arguments...
{
    local dir=$build_root/$1
    mkdir -p "$dir"
    (cd "$dir" && exec "$root/contrib/run-limited.sh" $BUILD_LIMIT_S "$root/configure" \
         --prefix="$dir/install" --enable-werror CXXFLAGS="$TEST_CXXFLAGS" "${@:2}") \
        >"$dir/configure.log" 2>&1 &
    configuring[$1]=$!
}

# Enters the stage's folder.
configured() # stage
{
    prepare && cd "$build_root/$1" || return 1
    wait "${configuring[$1]}"
    ended "$1: configure" configure.log $? && style_ended
}

build() # stage
{
    local stage=$1 programs
    say "$stage: building"
    configured "$stage" || return 1
    step "$stage: build" build.log make -j"$jobs" all test/gtest/precompiled.h.gch || return 1
    make_variables=()
    case $stage in
        tsan) build_only_threads ;;
        asan) programs=$(make -s print-test-programs | tr ' ' '\n' | grep -vE "$TESTED_ONCE")
              make_variables=("check_PROGRAMS=${programs//$'\n'/ }") ;;
    esac
    step "$stage: build of the tests" build-tests.log make -j"$jobs" check TESTS= \
         "${make_variables[@]}" GTEST_PRECOMPILED="-include test/gtest/precompiled.h" || return 1
}

# Sets $make_variables to the programs that the stage of threads runs, and to the unit tests' objects
# less those of sources in which no threads are made.
build_only_threads()
{
    local programs objects files
    programs=$(make -s print-test-programs | tr ' ' '\n' | grep -E '^(examples|test/(gtest|mp))/')
    files=$(grep -rlE 'std::thread|pthread_create' "$root/test/gtest" --include='test_*.cc' |
            sed 's|.*/|gtest-|; s|cc$|o$|' | paste -sd'|')
    objects=$(make -s print-unit-objects | tr ' ' '\n' | grep -P "/(?!gtest-test_)[^/]*$|$files")
    make_variables=("check_PROGRAMS=${programs//$'\n'/ }"
                    "test_gtest_gtest_OBJECTS=${objects//$'\n'/ }")
}

# Runs unit tests.
run_gtest() # log filter wrapper...
{
    local log=$1
    local -x GTEST_FILTER=$2
    shift 2
    "$root/contrib/run-limited.sh" $TESTS_LIMIT_S "$@" test/gtest/gtest >"$log" 2>&1
}

# Unit tests run in shards, $jobs of them; beside them, since many wait for most of their time, those
# of several processes and then programs and scripts. A stage says in $left_out which unit tests it
# does not run, as patterns.
run_tests() # stage wrapper...
{
    local stage=$1 without=${left_out:-} shard shards=() trs log rc tests
    local -x HALYARD_TEST_LIMIT=${HALYARD_TEST_LIMIT:-180} # beside others some take long
    shift
    find . -name '*.trs' -delete
    tests=$(make -s print-tests | tr ' ' '\n' | grep -v '^test/gtest/')
    case $stage in # what has one thread not here
        gcc)   ;;
        tsan)  tests=$(grep -E '^(examples|test/mp)/' <<<"$tests") ;;
        *)     tests=$(grep -vE "$TESTED_ONCE" <<<"$tests") ;;
    esac
    if [ -z "$tests" ]; then
        fail "$stage: no tests were built"
        return 1
    fi
    say "$stage: testing"
    for ((shard = 0; shard < jobs; shard++)); do
        GTEST_TOTAL_SHARDS=$jobs GTEST_SHARD_INDEX=$shard \
            run_gtest gtest-$shard.log "*-$PAIR_TESTS:$without" "$@" &
        shards+=($!)
    done
    if [ "$without" != "$LONG_TESTS" ]; then
        run_gtest gtest-pairs.log "$PAIR_TESTS-$without" "$@"
        count_log "$stage: unit tests of several processes" "$PWD/gtest-pairs.log" $?
    fi
    "$root/contrib/run-limited.sh" $TESTS_LIMIT_S "$@" make -j"$jobs" -k check \
        "${make_variables[@]}" TESTS="$(xargs <<<"$tests")" >tests.log 2>&1
    for log in $tests; do
        log=${log%.sh}
        trs=$log.trs
        if [ ! -f "$trs" ]; then
            fail "$stage: $log did not run (log: $PWD/tests.log)"
            continue
        fi
        case $(sed -n 's/^:test-result: //p' "$trs") in
            PASS*) rc=0 ;;
            SKIP*) rc=77 ;;
            *)     rc=1 ;;
        esac
        count_log "$stage: $log" "$PWD/$log.log" $rc
    done
    for ((shard = 0; shard < jobs; shard++)); do
        wait "${shards[shard]}"
        count_log "$stage: unit tests, shard $shard" "$PWD/gtest-$shard.log" $?
    done
}

# Beside what configures, since it keeps one processor busy.
stage_style()
{
    "$root/contrib/run-limited.sh" 300 "$root/contrib/check-style.sh" "$root" \
        >"$build_root/style.log" 2>&1 &
    style=$!
}

style_ended()
{
    [ -n "$style" ] || return 0
    wait "$style"
    count_log style "$build_root/style.log" $?
    style=
}

# Once for all stages that use it; later only enters its folder.
build_gcc()
{
    [ "$gcc_built" != no ] || return 1 # it is counted
    [ -z "$gcc_built" ] || { cd "$build_root/gcc"; return; }
    gcc_built=no
    build gcc && gcc_built=yes
}

install_gcc()
{
    build_gcc || return 1
    [ -z "$gcc_installed" ] || return 0
    step "gcc: install" install.log make install && gcc_installed=yes
}

stage_gcc()
{
    build_gcc && run_tests gcc
}

# Sanitizers' runtimes do not start where the kernel randomizes more address bits than they know of;
# without randomization they do. Sets $wrapper to what a program of the stage is run by.
find_wrapper() # stage compiler options
{
    echo 'int main(void) { return 0; }' >probe.c
    wrapper=
    if "$2" "$3" probe.c -o probe 2>probe.log && ! ./probe >>probe.log 2>&1; then
        if ! setarch -R ./probe >>probe.log 2>&1; then
            fail "$1: a program with $3 does not start here (log: $PWD/probe.log)"
            return 1
        fi
        wrapper="setarch -R"
    fi
}

stage_asan()
{
    local wrapper
    export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:exitcode=99
    ASAN_OPTIONS+=:allocator_may_return_null=1
    # ucx_perftest has what opens libfabric a second time, for its own use.
    ASAN_OPTIONS+=:detect_odr_violation=0
    # What is kept from use makes each fork of the tests slower: less of it than by default.
    ASAN_OPTIONS+=:quarantine_size_mb=32
    # Other protocols and providers on the same way, more processes: the gcc build has them too.
    local left_out='*copy_refused.*ENOSYS*:*copy_refused.*zcopy*:*copy_refused.*/both*'
    left_out+=':*kill_*.*zcopy*:*mp_traffic.*/5_*:*mp_traffic.*/8_*:*beyond_4gib*'
    left_out+=":*between_hosts*ofi_rx*:$OFI_HOOKS"
    left_out+=':kill_one.*/both:kill_one.*/am:kill_am_stream.*/am:kill_am_stream.*/both'
    # What waits for time to pass for the most part.
    left_out+=':mp_cuda_owner.a_proof_that_does_not_end:*a_busy_process_is_not_dead*:rails.*'
    left_out+=':client_server.on_two_hosts_again_and_again:ofi.who_computes_*:ofi_silent.*'
    left_out+=':ofi.reads_from_who_computes:doors_of_two_hosts.of_who_computes'
    local -x LSAN_OPTIONS=suppressions=$root/contrib/lsan.supp:print_suppressions=0
    export UBSAN_OPTIONS=print_stacktrace=1
    build asan && find_wrapper asan clang -fsanitize=address && run_tests asan $wrapper
}

# ThreadSanitizer sees threads, not processes: tests of one thread would only take time.
stage_tsan()
{
    local wrapper test
    local left_out=$LONG_TESTS
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:exitcode=98:allocator_may_return_null=1
    build tsan && find_wrapper tsan gcc -fsanitize=thread || return
    run_tests tsan $wrapper
    for test in tag_bw ucp_am_bw stream_lat ucp_put_bw ucp_fadd; do # the tool's own threads
        step "tsan: threads of $test" "threads-$test.log" $wrapper ./ucx_perftest --self -q -f \
             -t $test -T 2 -M multi -s 8 -n 2000 && count 1 0 0
    done
}

stage_mpi()
{
    local wheels
    install_gcc || return
    say "mpi: testing"
    "$root/contrib/run-limited.sh" $TESTS_LIMIT_S "$root/contrib/check-wheels.sh" \
        --lib "$PWD/install/lib" --gtest "$PWD/test/gtest/gtest" --build "$build_root/wheels" --short \
        --no-packages >"$build_root/wheels.log" 2>&1 & # most of its tests wait for time to pass
    wheels=$!
    limited_log mpi "$root/test/mpi/run.sh" --lib "$PWD/install/lib" --build "$build_root/mpi"
    limited_log "mpi on two hosts" "$root/test/ofi/two_hosts.sh" --lib "$PWD/install/lib"
    limited_log apps "$root/contrib/check-apps.sh" --lib "$PWD/install/lib" \
        --build "$build_root/apps" --short --no-packages
    wait $wheels
    count_log wheels "$build_root/wheels.log" $?
}

# Runs a script that counts into a log of the name.
limited_log() # name command...
{
    local name=$1
    shift
    "$root/contrib/run-limited.sh" $TESTS_LIMIT_S "$@" >"$build_root/$name.log" 2>&1
    count_log "$name" "$build_root/$name.log" $?
}

# Each target for some seconds; what it finds becomes a file of test/fuzz/corpus.
stage_fuzz()
{
    local dir=$build_root/fuzz
    say "fuzz: building"
    configured fuzz || return
    step "fuzz: build" build.log make -j"$jobs" fuzz-programs || return
    say "fuzz: running each target for ${HALYARD_FUZZ_SECONDS:-60} s"
    "$root/contrib/run-limited.sh" $TESTS_LIMIT_S "$root/test/fuzz/run.sh" "$dir" \
        "${HALYARD_FUZZ_SECONDS:-60}" >run.log 2>&1
    count_log fuzz "$dir/run.log" $?
}

# Without its compiler, or what runs its programs, there is nothing to show.
stage_arm()
{
    local qemu=qemu-aarch64-static test
    if ! command -v aarch64-linux-gnu-g++ >/dev/null || ! command -v $qemu >/dev/null; then
        count 0 0 1
        say "arm: skipped: aarch64-linux-gnu-g++ or $qemu is missing"
        return
    fi
    say "arm: building"
    configured arm || return
    step "arm: build" build.log make -j"$jobs" all || return
    step "arm: build of the tests" build-tests.log make -j"$jobs" test/sim/sim test/mp/pair || return
    say "arm: testing"
    qemu="$qemu -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=$PWD/.libs"
    step "arm: two processes" pair.log $qemu test/mp/.libs/pair && count 1 0 0
    limited_log "arm: simulator" $qemu test/sim/sim --seeds 1-300
    for test in "tag_lat -V" "ucp_am_bw -V" "stream_bw -V" ucp_put_bw ucp_get ucp_fadd; do
        step "arm: $test" "${test% *}.log" $qemu .libs/ucx_perftest --self -q -t $test -n 100 -s 8 &&
            count 1 0 0
    done
    step "arm: long messages" long.log $qemu .libs/ucx_perftest --self -q -V -t tag_bw -n 20 \
         -s 4k,64k,1m && count 1 0 0
}

# The archive must build, install and remove itself from a read-only copy, and a program must
# build against what was installed by pkg-config alone.
stage_dist()
{
    local prefix tests check archive
    local -x HALYARD_SIM_SEEDS=100 # the other stages run them all
    install_gcc || return
    prefix=$PWD/install
    archive=$PWD/halyard-$(make -s print-version)
    chmod -R u+w "$archive" 2>/dev/null # as a check that failed leaves it
    rm -rf "$archive" "$archive.tar.gz"
    say "dist: release archive"
    # Without those that take long, which the gcc stage has (the archive is to be whole), and
    # those that need GoogleTest, without which the archive's check is configured.
    tests=$(make -s print-tests | tr ' ' '\n' |
            grep -vE 'gtest/|test_perftest|test_dissector|planted|cuda_pingpong')
    "$root/contrib/run-limited.sh" $BUILD_LIMIT_S make -j"$jobs" distcheck \
        TESTS="$(echo $tests)" >distcheck.log 2>&1 &
    check=$!
    say "dist: beside it, since much of either is done by one processor: other builds"
    if step "dist: example against the installed library" example.log bash -c "
            export PKG_CONFIG_PATH='$prefix/lib/pkgconfig' &&
            gcc -Wall '$root/examples/hello_tag.c' -o hello_installed \
                \$(pkg-config --cflags --libs ucx) &&
            LD_LIBRARY_PATH='$prefix/lib' ./hello_installed"; then
        count 1 0 0
    fi
    if ! command -v cmake >/dev/null; then
        count 0 0 1
        say "dist: example by CMake: skipped: cmake is missing"
    elif step "dist: example by CMake" cmake.log bash -c "
            rm -rf hello_cmake && export LD_LIBRARY_PATH='$prefix/lib' &&
            cmake -S '$root/test/packaging' -B hello_cmake -DCMAKE_PREFIX_PATH='$prefix' &&
            cmake --build hello_cmake && hello_cmake/hello && hello_cmake/hello_variables"; then
        count 1 0 0
    fi
    if step "dist: example against the static library" static.log bash -c "
            export PKG_CONFIG_PATH='$prefix/lib/pkgconfig' &&
            gcc -Wall '$root/examples/hello_tag.c' -o hello_static \
                -I'$prefix/include' -Wl,-Bstatic -L'$prefix/lib' -lucp -luct -lucs -lucm \
                -Wl,-Bdynamic \$(make -s print-system-libs) &&
            ./hello_static"; then
        count 1 0 0
    fi
    if step "dist: configure-release by a recipe for UCX" release.log bash -c "
            set -o pipefail; mkdir -p release && cd release &&
            '$root/contrib/configure-release' \
                --enable-mt --enable-cma --enable-optimizations --enable-compiler-opt=3 \
                --enable-examples --disable-assertions --disable-backtrace-detail --disable-debug \
                --disable-doxygen-doc --disable-logging --disable-params-check --disable-stats \
                --with-avx --with-dc --with-dm --with-ib-hw-tm --with-mlx5-dv --with-rc \
                --with-rdmacm --with-sse41 --with-sse42 --with-ud --with-verbs --without-bfd \
                --without-cuda --without-fuse3 --without-gdrcopy --without-gga --without-go \
                --without-java --without-knem --without-mad --without-march --without-rocm \
                --without-xpmem --without-ze 2>&1 | tee log && ! grep 'unrecognized' log"; then
        count 1 0 0
    fi
    if step "dist: built without all that is optional" plain.log bash -c "
            mkdir -p plain && cd plain &&
            '$root/configure' --without-hwloc --without-ofi --without-cuda --disable-cma --disable-gtest \
                --disable-static --enable-werror CFLAGS='-O0 -g0' && make -j$jobs all &&
            ./ucx_perftest --self -t tag_bw -s 8,100k -n 100 -V -f -q"; then
        count 1 0 0
    fi
    wait $check
    ended "dist: make distcheck" distcheck.log $? && count 1 0 0
    say "dist: Debian packages"
    step "dist: Debian packages" deb.log "$root/contrib/build-deb.sh" --no-packages \
         --build "$build_root/deb" --archive "$archive.tar.gz" &&
        limited_log deb "$root/contrib/check-deb.sh" "$build_root/deb"
}

for stage in style gcc asan tsan mpi fuzz arm dist; do
    known+=("--$stage stages+= $stage")
done
options "${known[@]}" "--all all=yes" "--build build_root=" "--jobs jobs=" \
        "--no-packages packages=no" -- "$@"
if [ -n "$all" ]; then
    stages="style gcc mpi dist asan tsan fuzz"
    HALYARD_FUZZ_SECONDS=${HALYARD_FUZZ_SECONDS:-10}
fi
build_root=$(mkdir -p "$build_root" && cd "$build_root" && pwd) || exit 2
stages=${stages:-style gcc}

purposes=
for stage in $stages; do
    case $stage in
        style) purposes="$purposes style" ;;
        asan)  purposes="$purposes build test clang" ;;
        mpi)   purposes="$purposes build test mpi apps wheels" ;;
        fuzz)  purposes="$purposes build clang" ;;
        arm)   purposes="$purposes build arm" ;;
        dist)  purposes="$purposes build test deb" ;;
        *)     purposes="$purposes build test" ;;
    esac
done
echo "Halyard: checking in $build_root; stages:" $stages
if [ $packages = yes ]; then
    "$root/contrib/packages.sh" $purposes || exit 1
fi

# What runs beside ends, too.
trap 'kill $(jobs -p) 2>/dev/null' EXIT
trap 'exit 130' INT TERM

for stage in $stages; do
    "stage_$stage"
    cd "$root" || exit 1
done
style_ended

echo
for failure in ${failures[@]+"${failures[@]}"}; do
    echo "FAILED: $failure"
done
say "done: $stages"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
