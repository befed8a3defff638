#!/bin/bash
# Halyard: from a fresh Debian 12 to a measured table, in one command.
#
#   quickstart.sh [--build DIR] [--prefix DIR] [--no-packages]
#
# 1. installs the Debian packages that are missing (root or sudo; without either it says which)
# 2. builds in a folder of its own (default: build/) and installs below it (default: build/install)
# 3. runs `ucx_perftest --self`: two processes on two cores of this machine; prints the machine's
#    own limits and beside them what Halyard reaches, and writes a plot
# Nothing outside these folders is changed, apart from the packages.
# SPDX-License-Identifier: BSD-3-Clause
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build
prefix=
packages=yes

usage()
{
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    exit "$1"
}

while [ $# -gt 0 ]; do
    case $1 in
        --build)       [ $# -ge 2 ] || usage 2
                       build=$2
                       shift ;;
        --prefix)      [ $# -ge 2 ] || usage 2
                       prefix=$2
                       shift ;;
        --no-packages) packages=no ;;
        -h|--help)     usage 0 ;;
        *)             echo "quickstart.sh: unknown option '$1'" >&2
                       usage 2 ;;
    esac
    shift
done
mkdir -p "$build"
build=$(cd "$build" && pwd)
prefix=${prefix:-$build/install}
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

# Runs a step quietly; shows the end of its output only if it fails.
step() # what log command...
{
    local what=$1 log=$2
    shift 2
    echo "$what"
    if ! "$@" >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        echo "quickstart.sh: failed: $what (all output: $log)" >&2
        exit 1
    fi
}

if [ $packages = yes ]; then
    echo "[1/4] Debian packages"
    "$root/contrib/packages.sh" build plot
fi

if [ ! -x "$root/configure" ]; then
    step "[2/4] Making configure" "$build/autogen.log" "$root/autogen.sh"
fi
cd "$build"
step "[2/4] Configuring in $build" configure.log "$root/configure" --prefix="$prefix"
sed -n '/will be built with:/,/gnuplot/p' configure.log

step "[3/4] Building with $jobs jobs" build.log make -j"$jobs"
step "      Installing in $prefix" install.log make install

echo "[4/4] Measuring: ucx_perftest --self"
echo
LD_LIBRARY_PATH="$prefix/lib" "$prefix/bin/ucx_perftest" --self --plot "$build/perftest.svg"
echo
echo "plot:       $build/perftest.svg"
echo "libraries:  $prefix/lib"
echo "again:      $prefix/bin/ucx_perftest --self"
echo "MPI on it:  see README.md, \"Put an installed MPI on it\""
