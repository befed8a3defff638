#!/bin/bash
# Halyard: installs the Debian packages that a purpose needs and that are missing.
#
#   packages.sh build|plot|test|clang|mpi|apps|wheels|style|arm|deb ...
#
# Uses root or sudo; where neither is there, says what to install and exits with 1.
# Called by quickstart.sh, check.sh, build-deb.sh and .ci/run.
# SPDX-License-Identifier: BSD-3-Clause
set -eu

packages_of() # purpose
{
    case $1 in
        build)    echo autoconf automake libtool m4 make gcc g++ libc6-dev pkg-config \
                       libhwloc-dev libfabric-dev systemtap-sdt-dev ;;
        plot)     echo gnuplot-nox ;;
        test)     echo libgtest-dev gdb procps python3 libucx-dev ;;
        clang)    echo clang libclang-rt-14-dev llvm ;;
        mpi)      echo openmpi-bin libopenmpi-dev mpich libmpich-dev ;;
        apps)     echo hpcc scalapack-mpi-test mumps-test lammps python3-mpi4py-fft \
                       libfftw3-mpi-dev libfftw3-dev netpipe-openmpi netpipe-mpich2 ;;
        wheels)   echo python3-venv ;;
        style)    echo perl-base ;;
        arm)      echo gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross \
                       qemu-user-static ;;
        deb)      echo debhelper dpkg-dev fakeroot cmake ;;
        *)        echo "packages.sh: unknown purpose '$1'" >&2
                  exit 2 ;;
    esac
}

# Another package may do as well: gnuplot comes in three forms.
is_installed() # package
{
    case $1 in
        gnuplot-nox) command -v gnuplot >/dev/null 2>&1 ;;
        *)           dpkg-query -W -f '${Status}\n' "$1" 2>/dev/null |
                         grep -q '^install ok installed' ;;
    esac
}

if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
    echo "packages.sh: this is not a Debian system, nothing is installed;" \
         "configure will say what it misses"
    exit 0
fi

missing=
for purpose in "$@"; do
    for package in $(packages_of "$purpose"); do
        is_installed "$package" || missing="$missing $package"
    done
done
if [ -z "$missing" ]; then
    exit 0
fi
missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')

if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null 2>&1 && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    as_root=sudo
else
    echo "packages.sh: these packages are missing, and there is neither root nor sudo here." >&2
    echo "Ask an administrator to run:" >&2
    echo "    apt-get install --no-install-recommends $missing" >&2
    exit 1
fi

echo "Installing Debian packages: $missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { $as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q &&
       $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
           --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -n 25 "$log" >&2
    echo "packages.sh: apt-get failed (its last lines are above)" >&2
    exit 1
fi
