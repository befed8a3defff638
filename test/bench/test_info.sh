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

# The last output has such a line, too.
shows() # pattern
{
    if grep -qE -- "$1" <<<"$out"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: '$1' is not shown"
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
expect 2 'letters of t r a s m x d w, with e and' -e -u q
expect 2 'letters of' -e -u e
expect 2 'a number above 0' -p -n 0
expect 2 'a number above 0' -p -n 99999999999999999999
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
expect 2 "^ucx_info: unexpected word 'stray'" -v stray
expect 0 '^# Library version: ' --version
expect 2 '^Try `ucx_info -h`' -v --stray
lacks '^usage'
expect 1 '^ucx_info: -F NOTHING: no setting has this in its name; .* with -a' -F NOTHING
expect 1 '^ucx_info: -F NOTHING: no setting has this in its name$' -a -F NOTHING
expect 0 '^usage: ucx_info' -h
expect 0 '^# Library version: [0-9]+\.' -v
expect 0 '^# Library path: /.*/libucp\.so\.0' -v
expect 0 '^# Configured with:' -v
expect 0 '^#        version: Halyard .*, UCX API 1\.' -b
expect 0 '^#          flags: .*-std=gnu11' -b
expect 0 '^#        allowed: [0-9]+ of [0-9]+ processors \([0-9]' -s
expect 0 '^#        boot id: [0-9a-f]{32} ' -s
expect 0 '^#   node 0 .* 10' -T
UCX_RNDV_THRESH=7777 expect 0 '^UCX_RNDV_THRESH=7777$' -c
UCX_RNDV_THRESH=intra:64k,inter:16k expect 0 '^UCX_RNDV_THRESH=intra:64K,inter:16K$' -c
UCX_POSIX_FIFO_SIZE=8 expect 0 "UCX_POSIX_FIFO_SIZE='8' .*; used instead: 16$" -c

# README tells of every variable.
expect 0 '^UCX_TLS=all$' -c
readme=$(dirname "$0")/../../README.md
for name in $(sed -n 's/^\(UCX_[A-Z_]*\)=.*/\1/p' <<<"$out"); do
    if ! grep -q "\`$name\`" "$readme"; then
        failed=$((failed + 1))
        echo "FAILED: README does not tell of $name"
    fi
done
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

# What cannot be written is an error, with the reason.
for arguments in -h -v -c "-d -t mm" "-w -e" "-e --json"; do
    out=$(timeout 60 "$BINARY" $arguments 2>&1 >/dev/full)$?
    out+=$(timeout 60 "$BINARY" $arguments 2>&1 >&-)$?
    if [ "$out" = "ucx_info: cannot write results to standard output: No space left on device1$(
            )ucx_info: cannot write results to standard output: Bad file descriptor1" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: ucx_info $arguments to a full and to a closed standard output: $out"
    fi
done

# The document is JSON and, beside the text of the same arguments, makes true what is asserted; exit
# code and stderr are those of the text.
same() # code assertion arguments...
{
    local code=$1 assertion=$2 rc rc_text
    shift 2
    timeout 60 "$BINARY" "$@" >"$dir/text" 2>"$dir/text.err"
    rc_text=$?
    timeout 60 "$BINARY" --json "$@" >"$dir/json" 2>"$dir/json.err"
    rc=$?
    sed -i 's/^\[[^]]*\] \[[^]]*\]//' "$dir/text.err" "$dir/json.err" # times and processes
    if [ $rc -eq "$code" ] && [ $rc_text -eq "$code" ] && cmp -s "$dir/text.err" "$dir/json.err" &&
       python3 -c "$compare" "$dir/json" "$dir/text" "$assertion" >"$dir/why" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: ucx_info --json $*: exit $rc and $rc_text as text, or not: $assertion"
        tail -n 3 "$dir/why" "$dir/json.err"
        head -n 60 "$dir/json"
    fi
}
dir=$(mktemp -d)
compare='
import json, re, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
text = open(sys.argv[2], encoding="latin-1").read()
found = lambda pattern: re.findall("^" + pattern + "$", text, re.M)
names = lambda rows, *keys: [tuple(row[key] for key in keys) for row in rows]
assert d.pop("format") == "halyard-info-1"
assert eval("(" + sys.argv[3] + ")"), d
'
table='(P := d["endpoint"]["protocols"]) and
    names([p for p in P if p["operation"] == "send" and "reason" in p], "protocol", "reason")
        == found(r"# +(\S+) not used: (.*)") and
    [(str(p["min"]), "inf" if p["max"] is None else str(p["max"]), p["protocol"],
      "%.2f" % p["predicted_us"], p["forced"]) for p in P if "forced" in p]
        == [(*r[:4], r[4] != "") for r in found(r"# +(\d+)\.\.(\w+) (\S+): predicted (\S+) us at \d+(.*)")]'
choice='names([v for v in ENTRIES if "device" in v], "provider", "device", "reason")
    == [(p, v, why) for n, p, v, why in found(r"#(?:         Device:)? +(not )?(\S+) on (\S+?)(?:: (.*))?")]'
if command -v python3 >/dev/null; then
    export UCX_CMA_OVERHEAD=1us UCX_CMA_BW=10000MBs # not measured, so that costs are the same twice
    same 0 'list(d) == ["version"] and found("# Library version: (.*) .Halyard .*")[0] == d["version"]["api"]' -v
    same 0 'd["build"]["prefix"] == found("#   installed in: (.*)")[0] and d["build"]["cuda"] and
            all(d["build"][name] == (found("# +%s: (...?)" % name) == ["yes"]) for name in ("cma", "hwloc"))' -b
    same 0 'd["system"]["boot_id"] == found("# +boot id: ([0-9a-f]+) .*")[0] and
            str(d["system"]["memory_mib"]) == found("# +memory: ([0-9]+) MiB.*")[0]' -s
    same 0 '[tuple(map(str, n["distances"])) for n in d["numa_nodes"]] ==
            [tuple(r.split()) for r in found(r"#   node [0-9]+ +[0-9,-]+ +(.*)")]' -T
    for flags in -c "-C -F rndv" "-c -a" "-f -a"; do
        UCX_RNDV_THRESH=7777 same 0 'names(d["settings"], "name", "value") == found("(?:# )?(UCX_[A-Z0-9_]+)=(.*)") and
            [s["name"] for s in d["settings"] if s["changed"] and "RNDV" in s["name"]] == ["UCX_RNDV_THRESH"]' $flags
    done
    same 0 'all(s["help"] and s["expected"] for s in d["settings"]) and
            names(d["settings"], "expected") == [(e,) for e in found("# expected: (.*)")]' -f
    UCX_MM_SOCKET_DIR=$'/a"b\\c\xff\xc3\xa4\xed\xa0\x80' same 0 '[s["value"] for s in d["settings"]] ==
            ["/a\"b\\c\xff\xe4\xed\xa0\x80"]' \
        -F MM_SOCKET_DIR
    UCX_MM_SOCKET_DIR=$'/a\tb' same 1 'd == {}' -F MM_SOCKET_DIR
    same 1 'd == {"settings": []}' -F no_such_setting
    same 0 '[r["transport"] for r in d["context"]["resources"]] == found(r"#     resource .* (\S+)/memory")' -p
    same 0 'd["memory"] == {"bytes": 1048576, "memory": "host", "transport": "mm"}' -m 1m
    same 0 '[(t["transport"], "open" if t["open"] else t["reason"]) for t in d["worker"]["transports"]] ==
            found(r"# +transport (\S+): (.*)")' -w
    UCX_FAULT=memfd_create:1+,shm_open:1+,shmget:1+ same 0 '[t["reason"] for t in d["transports"]] ==
            found("# +State: does not open: (.*)")' -d -t mm
    same 0 'names(d["transports"], "transport", "help") == found(r"# +Transport: (.*)\n# +Help: (.*)") and
            [(o["operation"], o.get("max"), "%.0f" % o["overhead_ns"] if o["supported"] else None)
             for t in d["transports"] for o in t.get("operations", [])] ==
            [(n, None if a != "<=" else int(m), v or None) for n, a, m, v in
             found(r"# +(\w+): (?:no|(any|<=) (\w+)(?: bytes)?.*; overhead (\d+) ns.*)")]' -d -t '^ofi'
    for place in self intra; do
        same 0 "$table" -e -P $place
        UCX_RNDV_SCHEME=am UCX_RNDV_THRESH=1000 same 0 "$table" -e -P $place
        UCX_TLS=^cma same 0 "$table" -e -P $place
    done
    same 0 '[(l["role"], l["transport"]) for l in d["endpoint"]["lanes"]] == [("messages", "mm"),
            ("reads", "cma"), ("writes", "cma")] and d["endpoint"]["lanes"][1]["overhead_ns"] == 1000' -e -P intra
    UCX_TLS=nothing same 1 'd == {}' -e
    same 2 'd == {"transports": []}' -d -t nothing
    same 0 'list(d) == ["version", "build", "system", "numa_nodes", "settings", "context", "memory",
            "endpoint", "worker", "doctor", "transports"] and
            names(d["doctor"], "state", "check") == found("(ok|note) +([^:]+): .*") and
            [c["cure"] != "" for c in d["doctor"]] == [c["state"] != "ok" for c in d["doctor"]]' \
        -v -b -s -T -d -c -p -w -e -m 4k --doctor -t ^ofi
    timeout 60 env UCX_PROTO_INFO=y "$BINARY" --json -e -c >"$dir/json"
    expect_json='[s["value"] for s in d["settings"] if s["name"] == "UCX_PROTO_INFO"] == ["y"]'
    if python3 -c "$compare" "$dir/json" /dev/null "$expect_json"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: --json with UCX_PROTO_INFO=y"
    fi
    if UCX_TLS=net "$BINARY" -e -P inter >/dev/null 2>&1; then
        same 0 "$table and ${choice/ENTRIES/d[\"endpoint\"][\"devices\"]} and
            [(p['operation'], p['protocol'], p['min']) for p in P if p['operation'] == 'put' and 'min' in p][0]
                == ('put', 'messages', 0)" -e -P inter
        UCX_OFI_PROVIDER=^net,tcp same 0 \
            "${choice/ENTRIES/[v for t in d[\"worker\"][\"transports\"] for v in t[\"devices\"]]}" -w -D net
        same 0 "${choice/ENTRIES/d[\"transports\"][0][\"devices\"]}" -d -t ofi
    else
        skipped=$((skipped + 3))
        echo "skipped: JSON of networks (no network that libfabric finds)"
    fi
    unset UCX_CMA_OVERHEAD UCX_CMA_BW
else
    skipped=$((skipped + 1))
    echo "skipped: JSON (no python3)"
fi
rm -rf "$dir"

expect 0 '^ok +library: ' --doctor
for line in '(ok|note) +memfd: ' '(ok|note) +/dev/shm: ' '(ok|note) +process_vm_readv: ' \
            '(ok|note) +locked memory: ' '(ok|note) +huge pages: ' '(ok|note) +processors: [0-9]' \
            '(ok|note) +network: ' '(ok|note) +CUDA: '; do
    shows "^$line"
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
    inner=pods.slice/$(printf 'pod%.0s' {1..60}).slice/scope/$(printf 'x%.0s' {1..99})
    mkdir -p "$groups/$inner"
    echo "25000 100000" >"$groups/$inner/cpu.max"
    printf '%s\n' 9:name0::x:/ "0::/$inner" >"$groups/own"
    sed -i "s,mount ,mount --bind $groups/own /proc/\\\\\$\\\\\$/cgroup; &," "$BINARY"
    expect 0 '^note +processors: [0-9]+, the time of 0.25; cure: ' --doctor
else
    skipped=$((skipped + 2))
    echo "skipped: a limit of processors' time (no mount namespaces here)"
fi
rm -rf "$groups"

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
