#!/bin/bash
# Halyard: what ucx_info promises to its users.
#
#   test_info.sh [BINARY]     default: ./ucx_info
#
# Ends with "N passed, N failed, N skipped"; exit 1 if one failed.
# SPDX-License-Identifier: BSD-3-Clause
set -u

readonly BINARY=$(realpath "${1:-./ucx_info}")
[ -x "$BINARY" ] || { echo "test_info.sh: $BINARY not found" >&2; exit 2; }

passed=0 failed=0 skipped=0

# A line of the output matches; the exit code is as told.
expect() # code pattern arguments...
{
    local code=$1 pattern=$2 rc
    shift 2
    out=$(timeout 60 "$BINARY" "$@" 2>&1)
    rc=$?
    if [ $rc -eq "$code" ] && grep -qE -- "$pattern" <<<"$out"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: ucx_info $*: exit $rc, no line '$pattern' or another exit than $code"
        sed 's/^/    /' <<<"$out" | head -n 40
    fi
}

expect 2 '^usage: ucx_info'
expect 2 'self, intra or inter' -e -P mars
expect 2 'letters of t r a s m w' -e -u q
expect 2 '^usage: ucx_info' -v stray
expect 0 '^usage: ucx_info' -h
expect 0 '^# Library version: [0-9]+\.' -v
UCX_RNDV_THRESH=7777 expect 0 '^UCX_RNDV_THRESH=7777$' -c
expect 0 '^#     resource .* self/memory' -p
expect 0 'allocated 1048576 bytes' -m 1m -u r
expect 0 'transport self: open' -w
expect 0 'messages by self' -e
expect 0 'messages by mm' -e -P intra -u tr
UCX_TLS=nothing expect 1 'ucx_info: context:' -e
if UCX_TLS=net "$BINARY" -e -P inter >/dev/null 2>&1; then
    expect 0 'messages by ofi' -e -P inter
    expect 0 '^#  +[^ ]+ on [^ ]+$' -e -P inter
    UCX_OFI_PROVIDER=^net,tcp expect 0 'not net on .*: switched off by UCX_OFI_PROVIDER' -w -e -P inter
else
    skipped=$((skipped + 3))
    echo "skipped: -P inter (no network that libfabric finds)"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
