#!/bin/bash
# Halyard: what scripts share: arguments, counts, checks, steps. They source it.
#
# SPDX-License-Identifier: BSD-3-Clause

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
passed=0
failed=0
skipped=0

# Shows the comment at the head of the script and ends it: successfully if that was asked for.
usage() # exit status
{
    sed -n '/^# SPDX/q; 2,$s/^# \{0,1\}//p' "$0" >&$((1 + ($1 != 0)))
    exit "$1"
}

# Takes the script's arguments. A known option is "--name variable=", which takes a value, or
# "--name variable=value"; += appends.
options() # known option... -- argument...
{
    local known=() option
    while [ "$1" != -- ]; do
        known+=("$1")
        shift
    done
    shift
    while [ $# -gt 0 ]; do
        for option in "${known[@]}" "-h help" "--help help"; do
            [ "${option%% *}" = "$1" ] && break
            option=
        done
        case $option in
            '')       echo "${0##*/}: unknown option '$1'" >&2
                      usage 2 ;;
            *' help') usage 0 ;;
            *=)       [ $# -ge 2 ] || { echo "${0##*/}: $1 needs a value" >&2; usage 2; }
                      declare -g "${option#* }$2"
                      shift ;;
            *)        declare -g "${option#* }" ;;
        esac
        shift
    done
}

count() # passed failed skipped
{
    passed=$((passed + $1))
    failed=$((failed + $2))
    skipped=$((skipped + $3))
}

# A check is a command that succeeds.
check() # what command...
{
    local what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $what"
    fi
}

# Runs a step quietly; where it fails, shows the end of its output and ends the script.
quiet_step() # what log command...
{
    local what=$1 log=$2
    shift 2
    echo "$what"
    if ! "$@" >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        echo "${0##*/}: failed: $what (all output: $log)" >&2
        exit 1
    fi
}
