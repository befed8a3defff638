#!/bin/bash
# Halyard: manual pages and bash completion of the tools know what the tools know, and the pages of docs/
# name settings, options and files that are there.
#
#   test_manuals.sh [FOLDER OF THE TOOLS [TOP OF THE SOURCE]]     default: . and $HALYARD_SRCDIR
#
# Ends with "N passed, N failed, N skipped"; exit 1 if one failed.
# SPDX-License-Identifier: BSD-3-Clause
set -u

readonly FOLDER=$(realpath "${1:-.}")
readonly SOURCE=${2:-${HALYARD_SRCDIR:-$(dirname "$0")/../..}}
. "$SOURCE/contrib/script-parts.sh"

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

# ---- docs/

has_setting() { has_word "$1" "$settings" || grep -qrF "getenv(\"$1\")" "$SOURCE/src/ucs"; }

# Options that the pages give to a tool, in commands and in the text.
options_of() # tool page
{
    grep -oE "\\<$1 [^\`|;&#()]*" "$2" | tr ' ' '\n' | grep -oE '^--?[[:alpha:]][[:alnum:]-]*' | sort -u
}

# The headings of a page, as links name them.
anchors() { sed -n 's/^#\{1,\} //p' "$1" | tr '[:upper:] ' '[:lower:]-' | tr -cd '[:alnum:]\n-'; }

leads_somewhere() # page link
{
    local file=${2%%#*} place=
    [[ $2 != *'#'* ]] || place=${2#*#}
    file=${file:+$(dirname "$1")/$file}
    [ -e "${file:-$1}" ] && { [ -z "$place" ] || has_word "$place" "$(anchors "${file:-$1}")"; }
}

settings=$("$FOLDER/ucx_info" -c -a | sed -n 's/^\(UCX_[A-Z0-9_]*\)=.*/\1/p')
declare -A known=([configure]=)
known[ucx_info]=$(grep -oE -- '--?[[:alpha:]]+' <<<"$("$FOLDER/ucx_info" -h)")
known[ucx_perftest]=$(grep -oE -- '--?[[:alpha:]]+' <<<"$("$FOLDER/ucx_perftest" -h)")
if [ -x "$SOURCE/configure" ]; then
    known[configure]=$(grep -oE -- '--[a-z-]+' <<<"$("$SOURCE/configure" --help)")
else
    skipped=$((skipped + 1))
    echo "skipped: options of configure ($SOURCE has none: ./autogen.sh)"
fi
pages=("$SOURCE"/docs/*.md)
check "ten pages in docs/" [ ${#pages[@]} -ge 10 ]
for page in "${pages[@]}" "$SOURCE/README.md"; do
    name=${page#"$SOURCE"/}
    for link in $(grep -oE '\]\([^)]+\)' "$page" | sed 's/^](//; s/)$//' | grep -v '^https:' | sort -u); do
        check "$name: link $link" leads_somewhere "$page" "$link"
    done
    [ "$name" != README.md ] || continue
    check "README has a link to $name" grep -qF "($name)" "$SOURCE/README.md"
    for setting in $(grep -oE '\<UCX_[A-Z0-9_]*[A-Z0-9]' "$page" | sort -u); do
        check "$name: setting $setting" has_setting "$setting"
    done
    for word in $(grep -oE '\<(UCP|UCS)_[A-Z0-9_]*[A-Z0-9]' "$page" | sort -u); do
        check "$name: $word" grep -rqw --include='*.h' "$word" "$SOURCE/src"
    done
    for file in $(grep -oE '`(contrib|docs|examples|packaging|src|test)/[[:alnum:]_./-]+' "$page" | tr -d '`'); do
        check "$name: file $file" [ -e "$SOURCE/$file" ]
    done
    for tool in "${!known[@]}"; do
        for option in $([ -z "${known[$tool]}" ] || options_of "$tool" "$page"); do
            check "$name: option $option of $tool" has_word "$option" "${known[$tool]}"
        done
    done
done

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
