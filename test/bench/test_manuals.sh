#!/bin/bash
# Halyard: manual pages and bash completion of the tools know what the tools know.
#
#   test_manuals.sh [FOLDER OF THE TOOLS [TOP OF THE SOURCE]]     default: . and $HALYARD_SRCDIR
#
# Ends with "N passed, N failed, N skipped"; exit 1 if one failed.
# SPDX-License-Identifier: BSD-3-Clause
set -u

readonly FOLDER=$(realpath "${1:-.}")
readonly SOURCE=${2:-${HALYARD_SRCDIR:-$(dirname "$0")/../..}}
passed=0 failed=0 skipped=0

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

# What completion offers after the last word but one, for the last word.
complete_words() # tool words...
{
    local tool=$1
    shift
    COMP_WORDS=("$FOLDER/$tool" "$@") COMP_CWORD=$# COMPREPLY=()
    "_$tool" "$FOLDER/$tool"
    printf '%s\n' "${COMPREPLY[@]}"
}

has_word() { grep -qxF -- "$1" <<<"$2"; }

# An option of the manual: \- for -, not part of a longer one.
has_manual() { sed 's/\\-/-/g' "$2" | grep -E '^\.(B|BI|BR) ' | grep -qE -- "(^| |\")$1([ \"]|$)"; }

reads_cleanly() # page
{
    local warnings
    warnings=$(groff -man -Tascii -ww "$1" 2>&1 >/dev/null)
    [ -z "$warnings" ] || { echo "$warnings"; return 1; }
}

for tool in ucx_info ucx_perftest; do
    page=$SOURCE/packaging/man/$tool.1
    help=$("$FOLDER/$tool" -h)
    check "$tool -h" [ -n "$help" ]
    . "$SOURCE/packaging/completion/$tool"
    check "$tool: completion is registered" [ -n "$(complete -p $tool 2>/dev/null)" ]
    offered=$(complete_words $tool -)
    options=$(grep -oE '^  -[[:alnum:]-]+(, --[a-z]+)?' <<<"$help" | tr -d ', ' | sed 's/\(.\)--/\1\n--/')
    check "$tool: options in -h" [ "$(wc -l <<<"$options")" -ge 20 ]
    for option in $options; do
        check "$tool $option in $page" has_manual "$option" "$page"
        check "$tool $option in the completion" has_word "$option" "$offered"
    done
    if command -v groff >/dev/null; then
        check "$page: groff without warnings" reads_cleanly "$page"
    else
        skipped=$((skipped + 1))
        echo "skipped: $page by groff (groff is not installed)"
    fi
done

tests=$("$FOLDER/ucx_perftest" -h | sed -n '/^Tests/,/^$/s/^  \([a-z_]\{1,\}\) .*/\1/p')
offered=$(complete_words ucx_perftest -t "")
for name in $tests; do
    check "-t $name in ucx_perftest.1" grep -qw "$name" "$SOURCE/packaging/man/ucx_perftest.1"
    check "-t $name in the completion" has_word "$name" "$offered"
done
check "completion: a part of a word" [ "$(complete_words ucx_info -P inte)" = inter ]
check "completion: settings" has_word UCX_TLS "$(complete_words ucx_info -F UCX_)"
check "completion: transports" has_word cma "$(complete_words ucx_info -t "")"
check "completion: memory" has_word cuda-managed "$(complete_words ucx_perftest -m "")"

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
