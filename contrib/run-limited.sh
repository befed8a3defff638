#!/bin/bash
# Halyard: runs a command under a time limit and says what hung when it expires.
#
#   run-limited.sh SECONDS COMMAND [ARG...]
#   run-limited.sh --dump PID...      only print the state of these processes
#
# The command and all that it starts (also what leaves its process group, as MPI launchers do)
# are known by a mark in their environment and by descent. On expiry each process's state is
# printed (/proc status, wchan, system call, kernel stack where readable, and backtraces by gdb
# where present), then they are killed and the exit status is 124. What a command leaves running
# is reported and killed too: exit status 125 if the command itself succeeded.
# SPDX-License-Identifier: BSD-3-Clause
set -u

readonly PROCESSES_SHOWN_MAX=16
readonly GDB_SECONDS_MAX=30
readonly LEFT_RUNNING_GRACE_MS=2000

usage()
{
    sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

show_file() # label path
{
    local text
    if text=$(tr '\0' ' ' 2>/dev/null <"$2") && [ -n "$text" ]; then
        printf '%s\n' "$text" | sed "s/^/    $1: /"
    fi
}

show_process() # pid
{
    local pid=$1 task
    [ -d "/proc/$pid" ] || return 0
    echo "--- process $pid"
    show_file cmdline "/proc/$pid/cmdline"
    grep -E '^(Name|State|PPid|Threads|VmRSS|SigPnd|SigBlk|TracerPid):' "/proc/$pid/status" \
        2>/dev/null | sed 's/^/    status: /'
    for task in "/proc/$pid/task"/*; do
        echo "    thread ${task##*/}: $(cut -d' ' -f3 "$task/stat" 2>/dev/null)" \
             "wchan=$(cat "$task/wchan" 2>/dev/null)" \
             "syscall=$(cat "$task/syscall" 2>/dev/null || echo unreadable)"
        show_file stack "$task/stack"
    done
    if command -v gdb >/dev/null 2>&1; then
        DEBUGINFOD_URLS='' timeout -k 2 $GDB_SECONDS_MAX gdb -nx -batch -p "$pid" \
            -ex 'set pagination off' -ex 'thread apply all backtrace 40' 2>/dev/null </dev/null |
            grep -vE '^(\[New LWP|\[Thread debugging|Using host|\[Inferior|$)' | sed 's/^/    gdb: /'
    else
        echo "    (no backtrace: gdb is not installed)"
    fi
}

show_processes() # pid...
{
    local pid shown=0
    echo "=== state of $# process(es)"
    for pid in "$@"; do
        shown=$((shown + 1))
        if [ $shown -gt $PROCESSES_SHOWN_MAX ]; then
            echo "--- and $(($# - PROCESSES_SHOWN_MAX)) more, not shown"
            break
        fi
        show_process "$pid"
    done
    echo "=== end of state"
}

# All processes that carry the mark, or descend from the command, or share its session.
marked_processes()
{
    local dir pid stat up depth
    local -A parent=() member=()
    for dir in $(grep -lszE "^HALYARD_RUN_IDS=.*:$run_id(:|\$)" /proc/[0-9]*/environ); do
        pid=${dir#/proc/}
        member[${pid%/environ}]=1
    done
    for dir in /proc/[0-9]*; do
        pid=${dir#/proc/}
        { read -r -d '' stat <"$dir/stat"; } 2>/dev/null
        stat=${stat##*) }
        set -- $stat            # state, parent, process group, session, ...
        if [ $# -lt 4 ] || [ "$1" = Z ]; then
            unset "member[$pid]"
            continue
        fi
        parent[$pid]=$2
        [ "$4" = "$command_pid" ] && member[$pid]=1
    done
    for pid in "${!parent[@]}"; do
        up=$pid
        depth=0
        while [ "${up:-0}" -gt 1 ] && [ $depth -lt 64 ]; do
            if [ "$up" = "$command_pid" ]; then
                member[$pid]=1
                break
            fi
            up=${parent[$up]:-0}
            depth=$((depth + 1))
        done
    done
    unset "member[$$]" "member[$BASHPID]"
    if [ ${#member[@]} -gt 0 ]; then
        printf '%s\n' "${!member[@]}" | sort -n | tr '\n' ' '
    fi
}

kill_marked()
{
    local round pids
    for round in 1 2 3 4 5; do
        pids=$(marked_processes)
        [ -z "$pids" ] && return 0
        kill -KILL $pids 2>/dev/null
        sleep 0.1
    done
}

[ $# -ge 2 ] || usage
if [ "$1" = --dump ]; then
    shift
    show_processes "$@"
    exit 0
fi
limit_s=$1
shift
case $limit_s in
    ''|*[!0-9]*) usage ;;
esac

run_id=$$-$RANDOM$RANDOM
own_ids=${HALYARD_RUN_IDS:-}

HALYARD_RUN_IDS="$own_ids:$run_id" setsid -- "$@" <&0 &
command_pid=$!
sleep "$limit_s" &
sleeper_pid=$!
# A reader that went away must not keep us from cleaning up.
trap '' PIPE
trap 'kill $sleeper_pid 2>/dev/null; kill_marked; exit 143' TERM INT HUP

wait -n -p ended_pid $command_pid $sleeper_pid
rc=$?
if [ "$ended_pid" = "$sleeper_pid" ]; then
    echo
    echo "*** time limit of $limit_s s expired: $*"
    show_processes $(marked_processes)
    kill_marked
    { wait $command_pid; } 2>/dev/null
    exit 124
fi
kill $sleeper_pid 2>/dev/null
wait $sleeper_pid 2>/dev/null

left=$(marked_processes)
waited_ms=0
while [ -n "$left" ] && [ $waited_ms -lt $LEFT_RUNNING_GRACE_MS ]; do
    sleep 0.1
    waited_ms=$((waited_ms + 100))
    left=$(marked_processes)
done
if [ -n "$left" ]; then
    echo "*** left running by: $*"
    show_processes $left
    kill_marked
    [ $rc -eq 0 ] && rc=125
fi
exit $rc
