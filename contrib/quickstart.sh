#!/bin/bash
# Halyard: from a fresh Debian 12 to a measured table, in one command.
#
#   quickstart.sh [--build DIR] [--prefix DIR] [--no-packages]
#
# 1. installs the Debian packages that are missing (root or sudo; without either it says which)
# 2. builds in a folder of its own (default: build/) and installs below it (default: build/install)
# 3. runs `ucx_perftest --self`: two processes on two cores of this machine; prints the machine's
#    own limits and beside them what Halyard reaches, and writes a plot (where there is gnuplot)
# Nothing outside these folders is changed, apart from the packages.
# SPDX-License-Identifier: BSD-3-Clause
set -eu

. "$(dirname "$0")/script-parts.sh"

build=$root/build
prefix=
packages=yes

options "--build build=" "--prefix prefix=" "--no-packages packages=no" -- "$@"
mkdir -p "$build"
build=$(cd "$build" && pwd)
prefix=${prefix:-$build/install}

if [ $packages = yes ]; then
    echo "[1/4] Debian packages"
    "$root/contrib/packages.sh" build plot
fi

if [ ! -x "$root/configure" ]; then
    quiet_step "[2/4] Making configure" "$build/autogen.log" "$root/autogen.sh"
fi
cd "$build"
quiet_step "[2/4] Configuring in $build" "$build/configure.log" "$root/configure" --prefix="$prefix"
sed -n '/will be built with:/,/gnuplot/p' configure.log

quiet_step "[3/4] Building with $jobs jobs" "$build/build.log" make -j"$jobs"
quiet_step "      Installing in $prefix" "$build/install.log" make install

echo "[4/4] Measuring: ucx_perftest --self"
echo
plot=()
if command -v gnuplot >/dev/null; then
    plot=(--plot "$build/perftest.svg")
fi
LD_LIBRARY_PATH="$prefix/lib" "$prefix/bin/ucx_perftest" --self ${plot[@]+"${plot[@]}"}
echo
echo "plot:       ${plot[1]:-none: gnuplot is not installed}"
echo "libraries:  $prefix/lib"
echo "again:      $prefix/bin/ucx_perftest --self"
echo "MPI on it:  see README.md, \"Put an installed MPI on it\""
