#!/bin/bash
# Halyard: runs Debian packages that use MPI, unmodified, over our libraries and checks their results.
#
#   check-apps.sh --lib DIR [--build DIR] [--only "hpcc netpipe ..."] [--short] [--compare]
#                 [--limit SECONDS] [--no-packages]
#
#   --only      of: netpipe scalapack mumps lammps mpi4py-fft fftw hpcc
#   --short     a selection that takes about a minute
#   --compare   also over Debian's own UCX, and the ratio of the times (below 1: ours is faster)
#
# Every process says which libraries it maps (LD_DEBUG=libs): a run passes only if all map libucp from
# DIR and none maps one of our libraries from elsewhere. What fails is run over Debian's UCX too; what
# fails there as well (of six runs at least half as many) is named and counted as skipped. Installs missing packages (root or sudo).
# The last line is "N passed, N failed, N skipped"; exit status 1 if anything failed.
# SPDX-License-Identifier: BSD-3-Clause
set -u

readonly ALL_APPS="netpipe scalapack mumps lammps mpi4py-fft fftw hpcc"
readonly SCALAPACK_FULL="xCbtest xFbtest xdlu xzlu xdllt xzllt xdqr xcqr xdls xdinv xzinv xdhrd xdbrd xdtrd
                         xztrd xdsep xzsep xdsvd xdnep xdgblu xddblu xdpbllt xdptllt PBLAS/dpb1tst
                         PBLAS/zpb2tst PBLAS/dpb3tst"
readonly SCALAPACK_SHORT="xdqr"
readonly NETPIPE_MAX=1000000
readonly RERUNS=5 # of what fails over ours and not over Debian's UCX

. "$(dirname "$0")/script-parts.sh"

multiarch=$(gcc -print-multiarch 2>/dev/null || echo x86_64-linux-gnu)
debian_lib=/usr/lib/$multiarch
lib=
build=
apps=$ALL_APPS
short=
compare=
packages=yes
limit_s=180
ratios=()

options "--lib lib=" "--build build=" "--only apps=" "--limit limit_s=" "--short short=yes" \
        "--compare compare=yes" "--no-packages packages=no" -- "$@"
[ -n "$lib" ] || usage 2
if ! [ -e "$lib/libucp.so.0" ]; then
    echo "check-apps.sh: no libucp.so.0 in $lib" >&2
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
lib=$(cd "$lib" && pwd -P)
if [ $packages = yes ]; then
    "$root/contrib/packages.sh" mpi apps || exit 1
fi
if [ -z "$build" ]; then
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
fi
mkdir -p "$build" && build=$(cd "$build" && pwd -P) || exit 2

# Starts ranks of a program in the present folder, over the libraries of $over.
launch() # mpi ranks program...
{
    local mpi=$1 n=$2
    shift 2
    mkdir -p maps
    set -- env LD_LIBRARY_PATH="$over" LD_DEBUG=libs LD_DEBUG_OUTPUT="$PWD/maps/of" "$@"
    case $mpi in
        openmpi)
            OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1 \
                OPENBLAS_NUM_THREADS=1 mpirun.openmpi -np "$n" --oversubscribe \
                --mca pml ucx --mca osc ucx,sm --mca osc_sm_priority 1 --mca btl ^uct \
                --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any \
                --mca mpi_yield_when_idle 1 "$@" ;;
        mpich)
            OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MPIR_CVAR_POLLS_BEFORE_YIELD=10 \
                mpirun.mpich -np "$n" "$@" ;;
    esac
}

# Do at least so many processes map libucp of $over, and none one of the libraries from elsewhere?
maps_right() # processes
{
    local wanted foreign
    wanted=$(grep -l "calling init: $over/libucp.so" maps/of.* 2>/dev/null | wc -l)
    foreign=$(grep -hoE 'calling init: .*/libuc[pstm]\.so.*' maps/of.* 2>/dev/null |
              grep -vF "calling init: $over/" | sort -u)
    if [ "$wanted" -lt "$1" ] || [ -n "$foreign" ]; then
        echo "mapped: $wanted of $1 processes have libucp of $over; from elsewhere: ${foreign:-none}"
        return 1
    fi
}

# One function an application: app_NAME mpi ranks argument; the value is 0 if the results are right.
app_netpipe() # mpi ranks
{
    local program=NPopenmpi
    [ "$1" = mpich ] && program=NPmpich2
    # With -i it checks what arrives instead of measuring.
    launch "$1" "$2" "$program" -i -u 70000 -n 5 -o check.out >check.log 2>&1 || return 1
    grep -q 'Integrity check failed' check.log && return 1
    grep -q 'Integrity check passed' check.log || return 1
    launch "$1" "$2" "$program" -l 8 -u $NETPIPE_MAX -p 0 -n 20 -o np.out >np.log 2>&1 || return 1
    awk '$1 == 8 || $1 == 65536 || $1 == 1048576 { printf "    %s B: %.2f us\n", $1, $3 * 1e6 }
         $3 <= 0 { bad = 1 } END { exit bad || NR < 20 }' np.out
}

app_scalapack() # mpi ranks program
{
    local rc
    cp -r /usr/share/scalapack/*.dat /usr/share/scalapack/BLACS/*.dat /usr/share/scalapack/PBLAS/*.dat .
    launch "$1" "$2" "/usr/lib/$multiarch/scalapack/$1-tests/$3" >out.log 2>&1
    rc=$?
    cat ./*.out ./*.SUMM >>out.log 2>/dev/null
    case $3 in
        x?btest) # its last test is that BLACS_ABORT ends all processes
                 grep -q 'killed other procs' out.log &&
                     [ "$(grep -cE ' [1-9][0-9]* PASSED,.* 0 FAILED' out.log)" -ge 20 ] &&
                     ! grep FAILED out.log | grep -vE ' 0 FAILED' ;;
        xdsvd)   [ $rc -eq 0 ] && awk '/[0-9]E[-+].* N *$/ { rows++; if ($1 !~ /^Passed/) bad = 1 }
                                       END { exit bad || rows < 10 }' out.log ;;
        PBLAS/*) [ $rc -eq 0 ] && awk '$1 == "|" && $2 ~ /^P[DZ]/ { rows++; if ($5 || !$4) bad = 1 }
                                       END { exit bad || rows < 5 }' out.log ;;
        *)       [ $rc -eq 0 ] && grep -qE '[1-9][0-9]* tests completed and passed' out.log &&
                     ! grep -qE '[1-9][0-9]* tests completed and failed' out.log &&
                     ! grep -q FAILED out.log ;;
    esac
}

# The solution of the example is 1 2 3 4 5, up to rounding.
app_mumps() # mpi ranks kind
{
    local input=input_simpletest_real
    case $3 in c|z) input=input_simpletest_cmplx ;; esac
    launch "$1" "$2" "/usr/lib/mumps/$3simpletest" <"/usr/lib/mumps/$input" >out.log 2>&1 || return 1
    grep 'Solution is' out.log | grep -oE '[0-9]\.[0-9]+(E[+-]?[0-9]+)?' | awk '
        $1 > 0.5 { n++; if ($1 - n > 1e-3 || n - $1 > 1e-3) bad = 1 }
        END { exit bad || n != 5 }'
}

lammps_thermo() # log
{
    awk '/^Step/ { on = 1; next } /^Loop/ { on = 0 } on { print }' "$1"
}

# Against the run of one process: same steps, energies and pressures up to rounding.
app_lammps() # mpi ranks
{
    launch "$1" "$2" lmp -in "$root/test/apps/melt.lammps" -log many.log >out.log 2>&1 || return 1
    mv maps maps.many
    launch "$1" 1 lmp -in "$root/test/apps/melt.lammps" -log one.log >one.out 2>&1 || return 1
    rm -rf maps
    mv maps.many maps
    paste <(lammps_thermo many.log) <(lammps_thermo one.log) | awk '
        { half = NF / 2; rows++
          for (i = 1; i <= half; ++i) {
              d = $i - $(i + half); if (d < 0) d = -d
              size = $(i + half) < 0 ? -$(i + half) : $(i + half)
              if (d > 1e-5 * (1 + size)) bad = 1 } }
        END { exit bad || rows < 7 }'
}

app_mpi4py_fft() # mpi ranks
{
    launch "$1" "$2" /usr/bin/python3 "$root/test/apps/fft.py" >out.log 2>&1 &&
        grep -q '^all transforms agree' out.log
}

app_fftw() # mpi ranks
{
    mpicc.openmpi -std=gnu11 -O1 -Wall "$root/test/apps/fftw.c" -o fftw -lfftw3_mpi -lfftw3 -lm \
        >out.log 2>&1 && launch "$1" "$2" ./fftw >>out.log 2>&1 &&
        grep -q '^all transforms agree' out.log
}

# The example input for a grid of 1 x ranks. HPCC says itself what went wrong where.
app_hpcc() # mpi ranks
{
    sed -e "s/^2            Ps/1            Ps/; s/^2            Qs/$2            Qs/" \
        -e 's/^1000         Ns/400          Ns/' \
        /usr/share/doc/hpcc/examples/_hpccinf.txt >hpccinf.txt
    launch "$1" "$2" hpcc >out.log 2>&1 || return 1
    cat hpccoutf.txt >>out.log
    grep -q '^Success=1' hpccoutf.txt && grep -q ' PASSED' hpccoutf.txt &&
        ! grep -qE 'FAILED|Failed' hpccoutf.txt &&
        awk -F= '/RandomAccess.*_ErrorsFraction=/ && $2 > 0.01 { bad = 1 }
                 /PTRANS_residual=/ && $2 > 1e-6 { bad = 1 } END { exit bad }' hpccoutf.txt
}

# Runs in a shell of its own, so that a time limit stops all of it.
run_over() # folder function arguments...
{
    local folder=$1
    shift
    rm -rf "$folder"
    mkdir -p "$folder"
    (
        cd "$folder" || exit 1
        export root multiarch over NETPIPE_MAX
        export -f launch app_netpipe app_scalapack app_mumps app_lammps lammps_thermo app_mpi4py_fft \
            app_fftw app_hpcc
        "$root/contrib/run-limited.sh" "$limit_s" bash -c '"$@"' run "$@" >result.log 2>&1 </dev/null
        rc=$?
        [ $rc -eq 0 ] && { maps_right "$3" >>result.log || rc=1; }
        exit $rc
    )
}

# Of so many further runs, how many fail?
failures_of() # runs folder app mpi ranks [argument]
{
    local runs=$1 failures=0 i
    shift
    for ((i = 0; i < runs; ++i)); do
        run_over "$@" || failures=$((failures + 1))
    done
    echo $failures
}

run_app() # name mpi ranks [argument]
{
    local name="$1 $2 $3 ranks${4:+ $4}" folder ours_ms theirs_ms over start_ms ours theirs
    folder=$build/$(echo "$1.$2.$3.${4:-}" | tr / .)
    set -- "app_${1//-/_}" "${@:2}"
    over=$lib
    start_ms=$(date +%s%3N)
    if run_over "$folder" "$@"; then
        ours_ms=$(($(date +%s%3N) - start_ms))
        passed=$((passed + 1))
        echo "passed: $name (${ours_ms} ms)"
        grep '^    ' "$folder/result.log"
    else
        echo "FAILED: $name (in $folder)"
        tail -n 60 "$folder/result.log"
        [ -e "$folder/out.log" ] && tail -n 25 "$folder/out.log" | sed 's/^/    /'
        ours_ms=
    fi
    if [ -n "$ours_ms" ] && [ -z "$compare" ]; then
        return
    fi
    over=$debian_lib
    start_ms=$(date +%s%3N)
    if run_over "$folder.debian" "$@"; then
        theirs_ms=$(($(date +%s%3N) - start_ms))
        if [ -n "$ours_ms" ]; then
            ratios+=("$(awk -v n="$name" -v o="$ours_ms" -v t="$theirs_ms" \
                        'BEGIN { printf "%-40s %8d %8d %6.2f", n, o, t, o / t }')")
        else # some programs fail now and then by themselves
            theirs=$(failures_of $RERUNS "$folder.debian" "$@")
            over=$lib
            ours=$((1 + $(failures_of $RERUNS "$folder" "$@")))
            echo "    of $((RERUNS + 1)) runs fail $ours, over Debian's UCX $theirs"
            if [ "$theirs" -gt 0 ] && [ $ours -le $((2 * theirs)) ]; then
                skipped=$((skipped + 1))
            else
                failed=$((failed + 1))
            fi
        fi
    elif [ -z "$ours_ms" ]; then
        skipped=$((skipped + 1))
        echo "    fails over Debian's UCX too ($folder.debian): not counted"
    else
        echo "    fails over Debian's UCX ($folder.debian)"
    fi
}

run_all() # app
{
    local mpi program kind
    case $1 in
        netpipe)
            run_app netpipe openmpi 2
            run_app netpipe mpich 2 ;;
        scalapack)
            for mpi in openmpi mpich; do
                for program in $([ -n "$short" ] && echo $SCALAPACK_SHORT || echo $SCALAPACK_FULL); do
                    # The ranks of MPICH do not yield to each other: two of them where time counts.
                    if [ -n "$short" ] && [ $mpi = mpich ]; then
                        run_app scalapack mpich 2 "$program"
                    else
                        run_app scalapack $mpi 4 "$program"
                    fi
                done
            done ;;
        mumps)
            for kind in $([ -n "$short" ] && echo d || echo s d c z); do
                run_app mumps openmpi 2 $kind
            done
            [ -n "$short" ] || run_app mumps openmpi 4 d ;;
        lammps|mpi4py-fft|fftw|hpcc)
            run_app "$1" openmpi 2
            [ -n "$short" ] || run_app "$1" openmpi 4 ;;
        *)
            echo "check-apps.sh: no application '$1'" >&2
            failed=$((failed + 1)) ;;
    esac
}

for app in $apps; do
    run_all "$app"
done

if [ ${#ratios[@]} -gt 0 ]; then
    printf '%-40s %8s %8s %6s\n' "run" "ours ms" "UCX ms" ratio
    printf '%s\n' "${ratios[@]}"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
