#!/bin/bash
# Halyard: does halyard.lua have the layouts of the headers, and does tshark show by it what is
# said, wherever it lies in packets? Where there is no tshark the first is all.
#
# Run by `make check`. Ends with "N passed, N failed, N skipped"; exit 1 if one failed.
# SPDX-License-Identifier: BSD-3-Clause
set -u
shopt -s lastpipe          # expect counts, at the end of pipes

script=$HALYARD_BUILDDIR/halyard.lua
messages=$HALYARD_BUILDDIR/test/wireshark/messages
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HOME=$work LC_ALL=C

passed=0 failed=0
expect() # what wanted; the rest on stdin
{
    if diff <(printf '%s' "$2") - >"$work/diff"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $1 (< wanted, > was):"
        sed 's/^/    /' "$work/diff"
    fi
}

show() # ours or foreign, options of tshark...
{
    "$messages" "$1" | text2pcap -q -T 40001,40002 - "$work/$1.pcap" 2>/dev/null
    timeout 120 tshark -X lua_script:"$script" -r "$work/$1.pcap" "${@:2}" 2>"$work/err"
    grep -iE 'lua|error' "$work/err"
}

"$messages" | expect "layouts" ""

if ! tshark -v 2>/dev/null | grep -q 'with Lua' || ! command -v text2pcap >/dev/null; then
    echo "skipped: what tshark shows (there is none here, or it has no Lua)"
    echo "$passed passed, $failed failed, 1 skipped"
    [ $failed = 0 ]
    exit
fi

wanted='1|1||||||
2||0|3|||0x1122334455667788|
3||8|4|0x0000000000000077|1000000||
4||8|5||||0x0000000000000088
5||5|0||||
'
for passes in 1 2; do
    show ours $([ $passes = 2 ] && echo -2) -Y halyard -T fields -E separator='|' \
        -e frame.number -e halyard.conn.type -e halyard.head.type -e halyard.head.number \
        -e halyard.rts.tag -e halyard.rts.length -e halyard.intro.token -e halyard.eager.tag |
        expect "what is shown in $passes passes" "$wanted"
done
show ours -O halyard | grep -E 'hand-shake|flags|rails:|worker address' |
    expect "texts" 'Halyard hand-shake: UCP_WIRE_CONN_ASK
    worker address: 7768657265
    flags: 0x00000200 UCP_WIRE_RTS_RAILS
    rails: 5
'
show foreign -Y halyard | expect "what others say" ""

echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
