#!/bin/bash
# Halyard: long messages between two hosts (network namespaces) whose devices are limited to a rate,
# by one of them and by two at the same time (UCX_NET_DEVICES). Needs root, ip and tc.
#
#   two_devices.sh [-b OUR_BINARY] [-t TEST] [-s SIZE] [-n COUNT] [-r RATE]
#
# Our binary is $UCX_PERFTEST or ./ucx_perftest; RATE as tc takes it (1gbit).
# SPDX-License-Identifier: BSD-3-Clause
set -eu

readonly A=halyard-a-$$ B=halyard-b-$$ RUN_LIMIT_S=60 PORT=13399
ours=${UCX_PERFTEST:-./ucx_perftest}
test=tag_bw
size=4194304
count=40
rate=1gbit
while getopts b:t:s:n:r:h option; do
    case $option in
    b) ours=$OPTARG ;;
    t) test=$OPTARG ;;
    s) size=$OPTARG ;;
    n) count=$OPTARG ;;
    r) rate=$OPTARG ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
done

server=
trap '[ -z "$server" ] || kill $server 2>/dev/null; ip netns del "$A"; ip netns del "$B"' EXIT
for host in "$A" "$B"; do
    ip netns add "$host"
    ip -n "$host" link set lo up
done
for device in 0 1; do
    ip link add "eth$device" netns "$A" type veth peer name "eth$device" netns "$B"
    number=1
    for host in "$A" "$B"; do
        ip -n "$host" addr add "10.$((210 + 2 * device)).0.$number/24" dev "eth$device"
        ip -n "$host" link set "eth$device" up
        ip netns exec "$host" tc qdisc add dev "eth$device" root tbf rate "$rate" burst 256kb \
           latency 20ms
        number=2
    done
done
for host in "$A" "$B"; do # libfabric passes over devices that the kernel does not call up yet
    for try in $(seq 100); do
        [ "$(ip -n "$host" -br link show up | grep -c 'eth[01].* UP ')" = 2 ] && break
        sleep 0.05
    done
done

export UCX_TLS=ofi,self UCX_OFI_PROVIDER=${UCX_OFI_PROVIDER:-net,tcp}
for devices in eth0 eth0,eth1; do
    export UCX_NET_DEVICES=$devices
    echo "# $devices, $rate each"
    ip netns exec "$A" timeout $RUN_LIMIT_S "$ours" -p $PORT >/dev/null 2>&1 &
    server=$!
    until ip netns exec "$A" ss -Hltn "sport = :$PORT" | grep -q .; do
        kill -0 $server
        sleep 0.05
    done
    ip netns exec "$B" timeout $RUN_LIMIT_S "$ours" 10.210.0.1 -p $PORT -t "$test" -s "$size" \
       -n "$count" -w 3
    wait $server
    server=
done
