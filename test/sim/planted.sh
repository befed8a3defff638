#!/bin/bash
# Halyard: shows that the simulator finds each planted bug (planted.sed) within 1000 seeds, and nothing in
# the same program without one. The last line is "N passed, N failed, N skipped".
# SPDX-License-Identifier: BSD-3-Clause
set -u

readonly SEEDS=1-1000
sim=${HALYARD_BUILDDIR:-.}/test/sim/planted
sed_file=${HALYARD_SRCDIR:-$(dirname "$0")/../..}/test/sim/planted.sed
passed=0
failed=0

count()
{
    if [ "$1" = ok ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
}

if "$sim" --seeds $SEEDS --stop >planted.out 2>&1; then
    echo "no bug: seeds $SEEDS pass"
    count ok
else
    tail -n 40 planted.out
    echo "no bug: a seed fails"
    count bad
fi

for bug in $(sed -n 's/^# \([0-9]*\): .*/\1/p' "$sed_file"); do
    what=$(sed -n "s/^# $bug: //p" "$sed_file")
    if ! grep -q "SIM_PLANTED($bug)" "${HALYARD_BUILDDIR:-.}"/test/sim/planted_sources/*.c; then
        echo "bug $bug ($what): its line is not in the sources any more: plant another"
        count bad
    elif "$sim" --bug "$bug" --seeds $SEEDS --stop >planted.out 2>&1; then
        echo "bug $bug ($what): NOT FOUND"
        count bad
    else
        echo "bug $bug ($what): $(sed -n -E 's/^(seed [0-9]+)( FAILED at [0-9]+ ns)?: (.*[^0-9:].*)/\1: \3/p' planted.out |
                                  grep -v ' workers, ' | head -n 1)"
        count ok
    fi
done
rm -f planted.out
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
