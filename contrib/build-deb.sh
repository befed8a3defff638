#!/bin/bash
# Halyard: its Debian packages: libhalyard0, libhalyard-dev and halyard-utils, which take the place
# of libucx0, libucx-dev and ucx-utils, so that an installed MPI runs on it.
#
#   build-deb.sh [--build DIR] [--archive FILE] [--no-packages]
#
# --build DIR      where they are made and left (default: build-deb/)
# --archive FILE   made of this release archive (default: of the archive of this tree)
#
# Installs the Debian packages that building needs and that are missing (root or sudo) unless
# --no-packages is given. Afterwards: apt-get install DIR/*.deb
# SPDX-License-Identifier: BSD-3-Clause
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build-deb
archive=
packages=yes

usage()
{
    sed -n '2,11s/^# \{0,1\}//p' "$0"
    exit "$1"
}

while [ $# -gt 0 ]; do
    case $1 in
        --build)       [ $# -ge 2 ] || usage 2
                       build=$2
                       shift ;;
        --archive)     [ $# -ge 2 ] || usage 2
                       archive=$(realpath "$2")
                       shift ;;
        --no-packages) packages=no ;;
        -h|--help)     usage 0 ;;
        *)             echo "build-deb.sh: unknown option '$1'" >&2
                       usage 2 ;;
    esac
    shift
done
mkdir -p "$build"
build=$(cd "$build" && pwd)
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

# Runs a step quietly; shows the end of its output only if it fails.
step() # what log command...
{
    local what=$1 log=$build/$2
    shift 2
    echo "$what"
    if ! "$@" >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        echo "build-deb.sh: failed: $what (all output: $log)" >&2
        exit 1
    fi
}

# A tree that is configured in place can be configured nowhere else.
make_archive()
{
    [ -x "$root/configure" ] || (cd "$root" && ./autogen.sh) || return
    mkdir -p "$build/archive" && cd "$build/archive" || return
    if [ -e "$root/config.status" ]; then
        make -C "$root" dist && mv "$(ls -t "$root"/halyard-*.tar.gz | head -n 1)" .
    else
        "$root/configure" && make dist
    fi
}

[ $packages = no ] || "$root/contrib/packages.sh" build deb
if [ -z "$archive" ]; then
    rm -rf "$build/archive"
    step "archive" archive.log make_archive
    archive=$(echo "$build"/archive/halyard-*.tar.gz)
fi
version=$(basename "$archive" .tar.gz)
version=${version#halyard-}
cd "$build"
rm -rf "halyard-$version" ./libhalyard*.deb ./halyard-*.deb
tar -xf "$archive"
cd "halyard-$version"
cp -r packaging/debian debian
cp LICENSE debian/copyright
cat >debian/changelog <<EOF
halyard ($version) unstable; urgency=medium

  * See /usr/share/doc/libhalyard0/NEWS.gz.

 -- The Halyard authors <authors@halyard.invalid>  $(date -R ${SOURCE_DATE_EPOCH:+-d @$SOURCE_DATE_EPOCH})
EOF
step "packages" packages.log dpkg-buildpackage --build=binary --no-sign --jobs="$jobs"
ls -l "$build"/*.deb
