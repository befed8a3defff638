#!/bin/bash
# Halyard: runs the MPI test programs with ranks on two hosts made of network namespaces, over a given
# libucp.so.0: Open MPI and MPICH, one and two ranks a host.
#
#   two_hosts.sh --lib DIR [--limit SECONDS]
#
# A host is a network namespace with a boot id of its own, joined to the other by a bridge. Takes
# root and the tools ip, unshare and nsenter; without them all is skipped, with the reason. The last
# line is "N passed, N failed, N skipped".
# SPDX-License-Identifier: BSD-3-Clause
set -u

readonly PROGRAMS="match collective traffic datatype"

here=$(cd "$(dirname "$0")" && pwd)
lib=
limit_s=120
passed=0
failed=0
skipped=0
work=$(mktemp -d)

finish()
{
    local pid
    for pid in $(cat "$work"/pid* 2>/dev/null); do
        kill "$pid"
    done
    rm -rf "$work"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
}

skip() # reason
{
    echo "skipped: $1"
    skipped=$((skipped + 1))
    finish
}

while [ $# -ge 2 ]; do
    case $1 in
        --lib)   lib=$(cd "$2" && pwd) ;;
        --limit) limit_s=$2 ;;
    esac
    shift 2
done
if ! [ -e "$lib/libucp.so.0" ]; then
    echo "two_hosts.sh: --lib DIR with libucp.so.0 is needed" >&2
    failed=1
    finish
fi
[ "$(id -u)" = 0 ] || skip "only root can make hosts of network namespaces"
for tool in ip unshare nsenter; do
    command -v $tool >/dev/null || skip "$tool is not installed"
done

# A process that holds the namespaces of a host. Host 2 is the switch and keeps the boot id.
hold() # host
{
    unshare --net --mount --uts --ipc bash -c '
        mount --make-rprivate /
        if [ "$2" != 2 ]; then
            echo "00000000-0000-4000-9000-00000000000$2" >"$1/boot$2"
            mount --bind "$1/boot$2" /proc/sys/kernel/random/boot_id
        fi
        hostname "host$2" && echo $$ >"$1/pid$2" && exec sleep 3600' hold "$work" "$1" \
        >/dev/null 2>&1 &
    for _ in $(seq 100); do
        [ -s "$work/pid$1" ] && return 0
        sleep 0.1
    done
    return 1
}

on() # host command...
{
    local pid
    pid=$(cat "$work/pid$1")
    shift
    nsenter -t "$pid" -n -m -u -i "$@"
}

wire()
{
    local i
    on 2 ip link add br0 type bridge && on 2 ip link set br0 up || return 1
    for i in 0 1; do
        on 2 ip link add "port$i" type veth peer name eth0 netns "$(cat "$work/pid$i")" &&
            on 2 ip link set "port$i" master br0 up && on "$i" ip link set lo up &&
            on "$i" ip addr add "10.211.0.$((i + 1))/24" dev eth0 &&
            on "$i" ip link set eth0 up || return 1
    done
}

for i in 0 1 2; do
    hold $i || skip "no network namespaces here"
done
wire 2>/dev/null || skip "no virtual network here"

# What stands in for ssh.
cat >"$work/agent" <<END
#!/bin/bash
while [ "\${1#-}" != "\$1" ]; do shift; done
host=\$1
shift
exec nsenter -t "\$(cat $work/pid\$((\${host##*.} - 1)))" -n -m -u -i bash -c "\$*"
END
chmod +x "$work/agent"

launch() # mpi ranks-a-host program results
{
    local hosts="10.211.0.1:$2,10.211.0.2:$2" limited="$here/../../contrib/run-limited.sh"
    local common=("$work/$3.$1" "$4" "$lib")
    case $1 in
        openmpi)
            on 0 env LD_LIBRARY_PATH="$lib" "$limited" "$limit_s" mpirun.openmpi \
                --allow-run-as-root --mca plm_rsh_agent "$work/agent" \
                --mca oob_tcp_if_include eth0 --host "$hosts" -np $((2 * $2)) --map-by node \
                --mca pml ucx --mca btl self --mca opal_common_ucx_tls any \
                --mca opal_common_ucx_devices any --mca mpi_yield_when_idle 1 \
                -x LD_LIBRARY_PATH -x UCX_IDLE=sleep "${common[@]}" ;;
        mpich)
            on 0 env LD_LIBRARY_PATH="$lib" MPIR_CVAR_POLLS_BEFORE_YIELD=10 \
                "$limited" "$limit_s" mpirun.mpich -launcher ssh -launcher-exec "$work/agent" \
                -iface eth0 -hosts "$hosts" -np $((2 * $2)) -genv LD_LIBRARY_PATH "$lib" \
                -genv UCX_IDLE sleep \
                "${common[@]}" ;;
    esac
}

unset UCX_NET_ADDRESS
# Each host takes the processors for its own: that ranks are to give way is not to be seen from there.
for mpi in openmpi mpich; do
    if ! command -v "mpicc.$mpi" >/dev/null || ! command -v "mpirun.$mpi" >/dev/null; then
        echo "skipped: $mpi is not installed"
        skipped=$((skipped + 1))
        continue
    fi
    for program in $PROGRAMS; do
        if ! "mpicc.$mpi" -O1 -w -o "$work/$program.$mpi" "$here/../mpi/$program.c" \
             "$here/../mpi/check.c" -lm; then
            echo "$mpi: $program does not compile"
            failed=$((failed + 1))
            continue
        fi
        for ranks in 1 2; do
            results=$work/results.$mpi.$program.$ranks
            mkdir -p "$results"
            launch $mpi $ranks "$program" "$results" >"$work/log" 2>&1 </dev/null
            rc=$?
            good=$(cat "$results"/* 2>/dev/null | grep -c '^PASS')
            bad=$(cat "$results"/* 2>/dev/null | grep -c '^FAIL')
            if [ $rc = 0 ] && [ "$bad" = 0 ] && [ "$good" -gt 0 ]; then
                echo "$mpi, $ranks ranks a host, $program: $good cases passed"
                passed=$((passed + 1))
            else
                echo "$mpi, $ranks ranks a host, $program: $good passed, $bad failed, exit $rc"
                head -n 60 "$work/log" | sed 's/^/    /'
                failed=$((failed + 1))
            fi
        done
    done
done
finish
