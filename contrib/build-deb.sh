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

. "$(dirname "$0")/script-parts.sh"

build=$root/build-deb
archive=
packages=yes

options "--build build=" "--archive archive=" "--no-packages packages=no" -- "$@"
[ -z "$archive" ] || archive=$(realpath "$archive")
mkdir -p "$build"
build=$(cd "$build" && pwd)

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
    quiet_step "archive" "$build/archive.log" make_archive
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
quiet_step "packages" "$build/packages.log" dpkg-buildpackage --build=binary --no-sign --jobs="$jobs"
ls -l "$build"/*.deb
