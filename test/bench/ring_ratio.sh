#!/bin/bash
# Halyard: the token ring of many processes on few processors, over UCX's libraries (Debian: libucx0)
# and over ours in turn; prints the figures of each round and the ratio of the best.
#
#   ring_ratio.sh [-n PROCESSES] [-c CPUS] [-l LAPS] [-r ROUNDS]     in the build folder
#
# UCX's processes yield when they find nothing to do, or it would take milliseconds a hop; ours only
# call ucp_worker_progress. The same program runs over both: LD_LIBRARY_PATH decides.
# SPDX-License-Identifier: BSD-3-Clause
set -u

count=16 cpus=2 laps=2000 rounds=5
while getopts n:c:l:r:h option; do
    case $option in
    n) count=$OPTARG ;;
    c) cpus=$OPTARG ;;
    l) laps=$OPTARG ;;
    r) rounds=$OPTARG ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
done
theirs=${UCX_REFERENCE_LIBS:-/usr/lib/$(uname -m)-linux-gnu}
program=test/bench/.libs/crowd
[ -x $program ] || { echo "ring_ratio.sh: $program not found (make check TESTS=)" >&2; exit 2; }
[ -e "$theirs/libucp.so.0" ] || { echo "ring_ratio.sh: no $theirs/libucp.so.0" >&2; exit 2; }

# run LIBRARIES OPTIONS: prints us a hop
run() {
    LD_LIBRARY_PATH=$1 timeout 120 $program ring -n "$count" -c "$cpus" -l "$laps" -r 3 ${2:-} |
        awk '{ print $4 }'
}

for ((round = 0; round < rounds; ++round)); do
    echo "$(run "$PWD/.libs") $(UCX_LOG_LEVEL=error run "$theirs" -y)"
done | awk '{ print "ours " $1 " UCX " $2 " us a hop"
              if (NR == 1 || $1 < ours) ours = $1
              if (NR == 1 || $2 < theirs) theirs = $2 }
            END { printf "best: ours %.2f UCX %.2f ratio %.2f\n", ours, theirs, ours / theirs }'
