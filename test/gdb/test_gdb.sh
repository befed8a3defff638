#!/bin/bash
# Halyard: what contrib/halyard-gdb.py tells of a process that is stuck, and of its core file.
#
# Run by `make check`. Ends with "N passed, N failed, N skipped"; exit 1 if one failed, 77 if
# there is no gdb, it may not run a program here, or the build has no debugging information.
# SPDX-License-Identifier: BSD-3-Clause
set -u

script=$HALYARD_SRCDIR/contrib/halyard-gdb.py
program=$HALYARD_BUILDDIR/test/gdb/stuck
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C

skip() # reason
{
    echo "skipped: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 77
}

command -v gdb >/dev/null || skip "gdb is not installed"
gdb -nx -batch -ex 'python print(1)' 2>/dev/null | grep -qx 1 || skip "this gdb has no python"

readelf -S --wide "$HALYARD_LIBDIR/libucp.so.0" | grep -q '\.debug_info' ||
    skip "the library was built without debugging information"
! readelf -s --wide "$HALYARD_LIBDIR/libucp.so.0" | grep -qE ' __(asan|tsan)_' ||
    skip "the core file of a build with a sanitizer holds all of its shadow memory"

debug() # arguments of gdb...
{
    timeout 120 "$HALYARD_BUILDDIR/libtool" --mode=execute gdb -nx -batch "$@" \
        >"$work/out" 2>&1 </dev/null
}

passed=0 failed=0 skipped=0
expect() # what pattern
{
    if grep -qE -- "$2" "$work/out"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $1: no line '$2' in:"
        sed 's/^/    /' "$work/out"
    fi
}

id='[0-9a-f]{16}'
state_is_told() # where
{
    expect "$1" "^worker 0x[0-9a-f]+ \"waiting\", known to its peers as $id\$"
    expect "$1" '^  transports: self mm'
    expect "$1" '^  so far: .*announced 1'
    expect "$1" "^  peer $id: messages by mm \(connected\)"
    expect "$1" "^  endpoint 0x[0-9a-f]+ to peer $id, closing\$"
    expect "$1" '^    sends in flight: 1$'
    expect "$1" 'tag send of tag 0x22, 1048576 bytes: announced; waits for the receiver'
    expect "$1" '^    0x[0-9a-f]+: close of endpoint 0x[0-9a-f]+ waits for 1 operations$'
    expect "$1" '^  receives that wait for a message: 2$'
    expect "$1" '^    0x[0-9a-f]+: tag 0x33, mask 0xffff, room for 64 bytes$'
    expect "$1" '^  messages that nobody has received: 2$'
    expect "$1" '^    tag 0x11, 8 bytes: here$'
    expect "$1" "^    tag 0x22, 1048576 bytes: announced, from peer $id\$"
}

# A value that has come since then has no text: told by the enumerations of the build.
cat >"$work/texts.py" <<'EOF'
import gdb
for enum, texts in TEXTS.items():
    values = {f.name for f in gdb.lookup_type(enum).strip_typedefs().fields()}
    print('texts of %s: %s' % (enum, 'complete' if values == set(texts) else values ^ set(texts)))
EOF

UCX_TLS=self,mm debug -ex 'break stuck_here' -ex run -x "$script" -ex halyard -ex 'halyard 1' \
    -ex "generate-core-file $work/core" -x "$work/texts.py" "$program"
if grep -qE 'ptrace|Operation not permitted' "$work/out"; then
    skip "gdb may not run a program here: $(grep -m1 -E 'ptrace|not permitted' "$work/out")"
fi
state_is_told "a running process"
expect "a limit" '^    \.\.\. 1 more$'
for enum in ucp_request_kind_t ucp_send_step_t ucp_recv_step_t ucp_tag_msg_kind_t uct_ep_state_t; do
    expect "texts" "^texts of $enum: complete\$"
done

# A request of the first send stops the program at a probe; its arguments are said.
if readelf -n --wide "$HALYARD_LIBDIR/libucp.so.0" | grep -q 'Name: request_start'; then
    UCX_TLS=self,mm debug -ex 'break talk' -ex run \
        -ex 'break -probe-stap halyard:request_done' -ex 'info probes stap halyard' \
        -ex continue -ex 'printf "kind %ld, status %ld, %ld bytes\n", $_probe_arg1, $_probe_arg2, $_probe_arg3' \
        -ex kill "$program"
    for probe in request_start request_done counted message; do
        expect "a probe" "^stap +halyard +$probe +0x"
    done
    expect "the arguments of a probe" '^kind [0-9]+, status -?[0-9]+, [0-9]+ bytes$'
else
    echo "no probes: built without sys/sdt.h"
    skipped=1
fi

debug -x "$script" -ex halyard "$program" "$work/core"
state_is_told "a core file"

debug -x "$script" -ex 'halyard many' -ex halyard /bin/true
expect "a wrong argument" 'usage: halyard'
debug -x "$script" -ex halyard /bin/true
expect "no process" 'no process and no core file here: if ptrace was refused'
debug -x "$script" -ex starti -ex halyard /bin/true
expect "another program" 'no library of Halyard with debugging information'

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
