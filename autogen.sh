#!/bin/sh
# Halyard: makes ./configure and the Makefile.in from their sources.
# Needed only in a checkout; a release archive holds the results.
# SPDX-License-Identifier: BSD-3-Clause
set -e
cd "$(dirname "$0")"

missing=
for tool in autoreconf automake libtoolize m4; do
    command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
if [ -n "$missing" ]; then
    echo "autogen.sh: not found:$missing (on Debian: apt-get install autoconf automake libtool m4)" >&2
    exit 1
fi

mkdir -p build-aux m4
autoreconf --force --install
