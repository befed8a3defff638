#!/bin/bash
# Halyard: what ucx_info promises to its users.
#
#   test_info.sh [BINARY]     default: ./ucx_info
#
# Ends with "N passed, N failed, N skipped"; exit 1 if one failed.
# SPDX-License-Identifier: BSD-3-Clause
set -u

BINARY=$(realpath "${1:-./ucx_info}")
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

# The last output has no such line.
lacks() # pattern
{
    if grep -qE -- "$1" <<<"$out"; then
        failed=$((failed + 1))
        echo "FAILED: '$1' is shown"
    fi
}

expect 2 '^usage: ucx_info'
expect 2 'self, intra or inter' -e -P mars
expect 2 'letters of t r a s m x d w e \+' -e -u q
expect 2 'letters of' -e -u e
expect 2 'a number above 0' -p -n 0
expect 2 'a number above 0' -p -N many
expect 2 'all, shm, net or self' -p -D moon
for size in nonsense 0 -1 4k,gold 4k, ,host 99999999999999999999; do
    expect 2 'a size and perhaps a kind' -m $size
done
for letter in y 6 M; do
    expect 2 "^ucx_info: option -$letter is not available: " -$letter
done
expect 2 '^ucx_info: option -A is not available: ' -A 127.0.0.1
expect 2 'there is none of this name; there are self mm cma' -d -t nothing
expect 2 'names of transports' -d -t a,all
expect 2 '^usage: ucx_info' -v stray
expect 0 '^usage: ucx_info' -h
expect 0 '^# Library version: [0-9]+\.' -v
expect 0 '^#        version: Halyard .*, UCX API 1\.' -b
expect 0 '^#          flags: .*-std=gnu11' -b
expect 0 '^#        allowed: [0-9]+ of [0-9]+ processors \([0-9]' -s
expect 0 '^#        boot id: [0-9a-f]{32} ' -s
expect 0 '^#   node 0 .* 10' -T
UCX_RNDV_THRESH=7777 expect 0 '^UCX_RNDV_THRESH=7777$' -c
UCX_RNDV_THRESH=7777 expect 0 '^UCX_RNDV_THRESH=7777$' -C
UCX_RNDV_SCHEME=am expect 0 '^# UCX_RNDV_THRESH=auto$' -C
expect 0 '^# expected: ' -f
expect 0 '^# default: ' -f -F rndv_thresh
lacks UCX_TLS
expect 0 '^UCX_RNDV_SCHEME=auto$' -F RNDV
lacks TLS
expect 1 'no_such_setting' -F no_such_setting
expect 0 '^UCX_TLS=all$' -a
expect 0 '^#     resource .* self/memory' -p
expect 0 'md 2 +:  cma' -p -D shm
expect 0 'allocated 1048576 bytes of host memory at .* using mm' -m 1m -u r
expect 0 'allocated 4096 bytes of host memory' -m 4k,host -n 1000 -N 10
expect 1 '^ucx_info: memory: ' -m 4k,rocm
expect 0 '^# +Transport: mm$' -d -t mm,self
lacks 'Transport: cma'
expect 0 '^# +am_short: <= [0-9]+ bytes.* latency [0-9]+ ns, bandwidth [0-9]+ MB/s$' -d -t mm
expect 0 '^# +State: open$' -d -t '^ofi'
UCX_FAULT=memfd_create:1+,shm_open:1+,shmget:1+ expect 0 '^# +State: does not open: ' -d -t mm
expect 0 'Transport: trace:mm' -d -t trace:mm
expect 0 'transport self: open' -w
expect 0 'messages by self' -e
expect 0 'messages by mm' -e -P intra -u tr
expect 0 'messages by self' -e -u t+r+a+s+m+x+d+w+e
expect 1 'endpoint: ' -e -P intra -D self
UCX_TLS=nothing expect 1 'ucx_info: context:' -e
if UCX_TLS=net "$BINARY" -e -P inter >/dev/null 2>&1; then
    expect 0 'messages by ofi' -e -P inter
    expect 0 '^#  +[^ ]+ on [^ ]+$' -e -P inter
    UCX_OFI_PROVIDER=^net,tcp expect 0 'not net on .*: switched off by UCX_OFI_PROVIDER' -w -e -P inter
else
    skipped=$((skipped + 3))
    echo "skipped: -P inter (no network that libfabric finds)"
fi

for line in '(ok|note) +memfd: ' '(ok|note) +/dev/shm: ' '(ok|note) +process_vm_readv: ' \
            '(ok|note) +locked memory: ' '(ok|note) +huge pages: ' '(ok|note) +processors: [0-9]' \
            '(ok|note) +network: ' '(ok|note) +CUDA: ' 'ok +library: '; do
    expect 0 "^$line" --doctor
done
lacks '^ok .*; cure: '
out=$(grep '^note' <<<"$out" | grep -v '; cure: ')
lacks .
expect 0 '^ok +library' --doctor -v
UCX_TLS=nothing expect 1 '^wrong library: .*; cure: ' --doctor
UCX_NET_ADDRESS=n UCX_TLS=shm UCX_FAULT=memfd_create:1+,shm_open:1+,shmget:1+ \
    expect 1 '^wrong library: ' --doctor
UCX_FAULT=memfd_create:1+ expect 0 '^note +memfd: .*; cure: ' --doctor
UCX_FAULT=process_vm_readv:1+:EPERM expect 0 '^note +process_vm_readv: .*; cure: ' --doctor
UCX_MM_FIFO_HUGETLB=yes expect 0 '^(note  huge pages: .*; cure: |ok    huge pages: [1-9])' --doctor
limit=$(ulimit -S -l)
ulimit -S -l 64
expect 0 '^note +locked memory: 64 KiB.*; cure: ulimit' --doctor
ulimit -S -l "$limit"
driver=$(dirname "$BINARY")/test/fakecuda/.libs # where the unit tests are built
if [ -e "$driver/libcuda.so.1" ] && ! nm -D "$driver/libcuda.so.1" | grep -qE ' __[at]san_'; then
    LD_LIBRARY_PATH=$driver expect 0 '^ok +CUDA: driver of CUDA 13.0, [2-9] GPUs$' --doctor
    LD_LIBRARY_PATH=$driver expect 0 '^ok +GPUs to GPUs: ([0-9]+) of \1 pairs$' --doctor
    LD_PRELOAD=$driver/libcuda.so.1 expect 0 'get_zcopy: .*; overhead' -d -t cuda_ipc
else
    skipped=$((skipped + 3))
    echo "skipped: GPUs (no driver without devices here)"
fi
groups=$(mktemp -d)
echo "50000 100000" >"$groups/cpu.max"
if unshare -m mount --bind "$groups" /sys/fs/cgroup 2>/dev/null; then
    TOOL=$BINARY
    BINARY=$groups/in_groups
    printf '#!/bin/bash\nexec unshare -m bash -c "mount --bind %s /sys/fs/cgroup; exec %s \\$*" - "$@"\n' \
        "$groups" "$TOOL" >"$BINARY"
    chmod +x "$BINARY"
    expect 0 '^note +processors: [0-9]+, the time of 0.50; cure: ' --doctor
else
    skipped=$((skipped + 1))
    echo "skipped: a limit of processors' time (no mount namespaces here)"
fi
rm -rf "$groups"

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
