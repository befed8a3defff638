#!/bin/bash
# Halyard: whether its Debian packages hold what they should, and take the place of UCX's.
#
#   check-deb.sh DIR     with the packages that build-deb.sh has left there; installs none
#
# Ends with "N passed, N failed, N skipped"; exit 1 if one failed.
# SPDX-License-Identifier: BSD-3-Clause
set -u

. "$(dirname "$0")/script-parts.sh"

[ -d "${1-}" ] || usage 2
cd "$1" || exit 2
readonly LIMIT_S=60

root=$PWD/root
source=halyard-$(dpkg-deb -f libhalyard0_*.deb Version) # older ones may lie beside it
rm -rf "$root"
for package in libhalyard0 libhalyard-dev halyard-utils; do
    check "$package is there" dpkg-deb -x ${package}_*.deb "$root"
done
libraries=$root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
export LD_LIBRARY_PATH=$libraries

tests=0
while read -r words; do # but for those by an MPI, which the packages do not bring
    check "$words" timeout $LIMIT_S "$root"/usr/bin/$words
    tests=$((tests + 1))
done < <(sed -n 's/^Test-Command: \(ucx_.*\)/\1/p' $source/packaging/debian/tests/control)
check "their tests were found" test $tests -gt 0

program() { # by pkg-config, as a program's build finds a package
    PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_PATH=$libraries/pkgconfig \
        pkg-config --cflags --libs ucx >flags &&
        gcc -Wall $source/examples/hello_tag.c -o hello_tag $(cat flags) &&
        readelf -d hello_tag | grep -q 'NEEDED.*libucp.so.0' && timeout $LIMIT_S ./hello_tag
}
check "a program against libhalyard-dev" program
by_cmake() {
    rm -rf hello_cmake && cmake -S $source/test/packaging -B hello_cmake -DCMAKE_PREFIX_PATH=$root/usr &&
        cmake --build hello_cmake && timeout $LIMIT_S hello_cmake/hello
}
if command -v cmake >/dev/null; then
    check "a program by CMake" by_cmake
else
    echo "skipped: a program by CMake (cmake is not installed)"
    skipped=$((skipped + 1))
fi
for page in ucx_info ucx_perftest; do
    check "manual page of $page" test -s "$root/usr/share/man/man1/$page.1.gz"
done

for page in "$source"/docs/*.md; do
    check "docs/${page##*/}" test -s "$root/usr/share/doc/halyard/docs/${page##*/}"
done

# What apt would do: UCX's packages go, nothing else does.
if dpkg-query -W -f '${Status}\n' libucx0 2>/dev/null | grep -q '^install ok installed'; then
    removed() {
        apt-get -s install ./libhalyard0_*.deb ./libhalyard-dev_*.deb ./halyard-utils_*.deb |
            sed -n 's/^Remv \([^ ]*\).*/\1/p' | sort | paste -sd' '
    }
    check "they take the place of UCX's, and of nothing else" \
        test "$(removed)" = "$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' \
                               libucx0 libucx-dev ucx-utils 2>/dev/null |
                               sed -n 's/^ii *//p' | sort | paste -sd' ')"
else
    echo "skipped: no package of UCX is installed"
    skipped=$((skipped + 1))
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
