#!/bin/bash
# Halyard: MPI latency over our libraries, over Debian's UCX and over Open MPI's own shared memory, in
# turn, on the same two processors; and the time of MPI_Init.
#
#   mpi_ratio.sh --lib DIR [-s "8 65536 1048576"] [-r ROUNDS] [-c CPU,CPU] [--build DIR]
#
# Sizes: powers of two. Rows: own ping-pong (test/bench/mpi_pingpong.c) and NetPIPE (if installed),
# Open MPI and MPICH. Ratio: median over the rounds of (the other's time / ours in the same round);
# above 1 we are faster.
# SPDX-License-Identifier: BSD-3-Clause
set -u

readonly RUN_LIMIT_S=60

here=$(cd "$(dirname "$0")" && pwd)
lib=
sizes="8 65536 1048576"
rounds=5
cpus=
build=

usage()
{
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
        --lib)   lib=$2 ;;
        --build) build=$2 ;;
        -s)      sizes=$2 ;;
        -r)      rounds=$2 ;;
        -c)      cpus=$2 ;;
        *)       usage ;;
    esac
    shift 2
done
[ -e "$lib/libucp.so.0" ] || usage
lib=$(cd "$lib" && pwd)
debian_lib=/usr/lib/$(gcc -print-multiarch)
if [ -z "$build" ]; then
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
fi
mkdir -p "$build"
if [ -z "$cpus" ]; then
    # The first two processors that this shell may use.
    cpus=$(taskset -cp $$ | sed 's/.*: //' | tr , '\n' |
           awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); ++i) print i }' | head -2 | paste -sd,)
fi
case $cpus in *,*) ;; *) echo "mpi_ratio.sh: two processors are needed (-c)" >&2; exit 2 ;; esac

# Each rank binds itself to a processor of its own.
cat >"$build/bound.sh" <<SCRIPT
#!/bin/bash
case \${OMPI_COMM_WORLD_RANK:-\${PMI_RANK:-0}} in
    0) exec taskset -c ${cpus%%,*} "\$@" ;;
    *) exec taskset -c ${cpus##*,} "\$@" ;;
esac
SCRIPT
chmod +x "$build/bound.sh"

launch() # mpi over program...
{
    local mpi=$1 over=$2 folder=$debian_lib select
    shift 2
    [ "$over" = ours ] && folder=$lib
    select=(--mca pml ucx --mca osc ucx --mca btl ^uct --mca opal_common_ucx_tls any
            --mca opal_common_ucx_devices any)
    [ "$over" = sm ] && select=(--mca pml ob1 --mca btl vader,self --mca osc ^ucx)
    case $mpi in
        openmpi)
            OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout $RUN_LIMIT_S \
                mpirun.openmpi -np 2 --oversubscribe --bind-to none "${select[@]}" \
                -x "LD_LIBRARY_PATH=$folder" "$build/bound.sh" "$@" 2>/dev/null ;;
        mpich)
            LD_LIBRARY_PATH=$folder timeout $RUN_LIMIT_S mpirun.mpich -bind-to none -np 2 \
                "$build/bound.sh" "$@" 2>/dev/null ;;
    esac
}

# Prints "SIZE US" lines, and "init MS" from the ping-pong.
measure() # program mpi over
{
    local size binary=NPopenmpi
    if [ "$1" = pingpong ]; then
        launch "$2" "$3" "$build/mpi_pingpong.$2" $sizes
        return
    fi
    [ "$2" = mpich ] && binary=NPmpich2
    for size in $sizes; do
        # From half the size: the first one that NetPIPE measures is not to be trusted.
        rm -f "$build/np.out"
        launch "$2" "$3" "$binary" -l $((size / 2)) -u "$size" -p 0 -o "$build/np.out" >/dev/null
        awk -v size="$size" '$1 == size { print size, $3 * 1e6; exit }' "$build/np.out" 2>/dev/null
    done
}

# Of numbers, with three digits; "failed" of none.
median()
{
    sort -g | awk '{ v[NR] = $1 }
                   END { if (NR) printf "%.3f\n", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2
                         else print "failed" }'
}

table() # program mpi others...
{
    local program=$1 mpi=$2 over round key
    shift 2
    rm -f "$build/$program.$mpi".*
    for ((round = 0; round < rounds; ++round)); do
        for over in ours "$@"; do
            measure "$program" "$mpi" "$over" | sed "s/^/$round /" >>"$build/$program.$mpi.$over"
        done
    done
    for key in $([ "$program" = pingpong ] && echo init) $sizes; do
        printf '%-9s %-8s %8s %10s' "$program" "$mpi" "$key" \
            "$(awk -v k="$key" '$2 == k { print $3 }' "$build/$program.$mpi.ours" | median)"
        for over in ucx sm; do
            if [ -e "$build/$program.$mpi.$over" ]; then
                printf ' %10s %6s' \
                    "$(awk -v k="$key" '$2 == k { print $3 }' "$build/$program.$mpi.$over" | median)" \
                    "$(awk -v k="$key" '$2 != k { next } NR == FNR { ours[$1] = $3; next }
                                        ours[$1] > 0 { print $3 / ours[$1] }' \
                           "$build/$program.$mpi.ours" "$build/$program.$mpi.$over" | median)"
            fi
        done
        echo
    done
}

mpis=
for mpi in openmpi mpich; do
    if command -v "mpicc.$mpi" >/dev/null &&
       "mpicc.$mpi" -O2 "$here/mpi_pingpong.c" -o "$build/mpi_pingpong.$mpi"; then
        mpis="$mpis $mpi"
    fi
done
echo "# processors $cpus, $rounds rounds, medians; us a message, one way; init: ms"
printf '%-9s %-8s %8s %10s %10s %6s %10s %6s\n' program mpi bytes ours UCX ratio "own sm" ratio
for mpi in $mpis; do
    case $mpi in
        openmpi) others="ucx sm" binary=NPopenmpi ;;
        mpich)   others=ucx binary=NPmpich2 ;;
    esac
    table pingpong $mpi $others
    command -v $binary >/dev/null && table netpipe $mpi $others
done
