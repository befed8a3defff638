#!/bin/bash
# Halyard: are the installed headers the interface that compiled programs and their sources expect?
#
# Compares sizes, offsets and constants with layout-1.23.txt, field types and prototypes with the two
# other lists, compiles every installed header alone and all together in four language standards, and
# where Debian's libucx-dev (1.13) is installed, compares with its headers too: everything that they
# declare must be here, compatible.
#
# Usage: check_abi.sh [-v]
# Environment: CC, CXX: compilers in place of gcc and clang, whichever exist; UCX_INCLUDE: folder of
# UCX's headers (default /usr/include).
# Exit status 1 if anything failed. The last line reads: N passed, N failed, N skipped.
#
# SPDX-License-Identifier: BSD-3-Clause
set -u
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
ucx_include=${UCX_INCLUDE:-/usr/include}
verbose=0
[ "${1:-}" = -v ] && verbose=1

work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

passed=0
failed=0
skipped=0

pass() { passed=$((passed + 1)); [ $verbose = 0 ] || echo "ok      $1"; }
skip() { skipped=$((skipped + 1)); echo "skipped $1: $2"; }
fail()
{
    failed=$((failed + 1))
    echo "FAILED  $1"
    head -n 20 "$work/log" | sed 's/^/        /'
}

# try NAME COMMAND...: the command succeeds.
try()
{
    local name=$1
    shift
    if "$@" >"$work/log" 2>&1; then pass "$name"; else fail "$name"; fi
}

# Compilers of the kind cc or cxx.
compilers()
{
    local given=$1 first=$2 second=$3 found="" one
    for one in ${given:-$first $second}; do
        command -v "$one" >/dev/null && found="$found $one"
    done
    echo $found
}
cc_list=$(compilers "${CC:-}" gcc clang)
cxx_list=$(compilers "${CXX:-}" g++ clang++)
[ -n "$cc_list" ] || { echo "no C compiler found: set CC" >&2; exit 2; }
cc=${cc_list%% *}

# Installed headers, as include paths: the lists lib*_headers of the build.
installed_headers()
{
    awk '/^lib[a-z]*_headers *=/ { on = 1; sub(/^[^=]*=/, "") }
         on { more = /\\$/; sub(/\\$/, ""); for (i = 1; i <= NF; i++) print $i; on = more }' \
        "$top"/src/*/local.mk | grep '\.h$' | sed 's,^src/,,'
}

# ---- Layout: a program made of the lines of a list prints them anew. ----

probe_head() { printf '#include <%s>\n' "$@"; printf '#include <%s>\n' stddef.h stdio.h; }

# probe_body LIST: main(), one printf a line of the list.
probe_body()
{
    echo 'int main(void) {'
    sed -n -E \
        -e 's/^sizeof (.*) [0-9]+$/printf("sizeof \1 %zu\\n", sizeof(\1));/p' \
        -e 's/^offset ([^.]*)\.([^ ]*) .*/printf("offset \1.\2 %zu size %zu\\n", offsetof(\1, \2), sizeof(((\1 *)0)->\2));/p' \
        -e 's/^enum ([^ ]*) .*/printf("enum \1 %lld\\n", (long long)(\1));/p' \
        -e 's/^value (.*) -?[0-9]+$/printf("value \1 %lld\\n", (long long)(\1));/p' "$1"
    echo 'return 0; }'
}

facts() { grep -v '^#' "$1"; }

# probe NAME LIST INCLUDE-OPTION HEADERS...: prints to $work/NAME.out, which is there on success only.
probe()
{
    local name=$1 list=$2 include=$3
    shift 3
    rm -f "$work/$name.out"
    { probe_head "$@"; probe_body "$list"; } >"$work/$name.c"
    $cc -std=c11 $include -o "$work/$name" "$work/$name.c" && "$work/$name" >"$work/$name.out"
}

# same NAME EXPECTED ACTUAL: each line of EXPECTED is one check.
same()
{
    local name=$1 differing
    if [ ! -f "$3" ]; then
        echo "nothing to compare" >"$work/log"
        fail "$name"
        return
    fi
    diff "$2" "$3" >"$work/log"
    differing=$(grep -c '^<' "$work/log")
    passed=$((passed + $(grep -c . "$2") - differing))
    if [ -s "$work/log" ]; then
        fail "$name: $differing facts differ"
        failed=$((failed + differing - (differing > 0)))
    fi
}

check_layout()
{
    facts "$here/layout-1.23.txt" >"$work/expected"
    try "layout program compiles" probe ours "$here/layout-1.23.txt" "-I$top/src" \
        ucp/api/ucp.h ucp/api/device/ucp_host.h ucm/api/ucm.h uct/api/version.h
    same "layout 1.23" "$work/expected" "$work/ours.out"
}

# ---- Types of fields; prototypes. ----

check_types()
{
    local file=$work/types.c
    probe_head ucp/api/ucp.h ucp/api/device/ucp_host.h >"$file"
    facts "$here/field-types-1.23.txt" | while read -r type field rest; do
        echo "_Static_assert(__builtin_types_compatible_p(__typeof__((($type *)0)->$field)," \
             "__typeof__($rest)), \"$type.$field is $rest\");"
    done >>"$file"
    try "types of all fields" $cc -std=c11 -I"$top/src" -fsyntax-only "$file"
}

check_prototypes()
{
    local line file name
    while read -r line; do
        name=$(echo "$line" | sed -E 's/^typedef[^(]*\(\*([a-z_0-9]+)\).*/\1/
                                     s/^[^(]*[ *]([a-z_0-9]+)\(.*/\1/')
        file=$work/prototype.c
        { probe_head ucp/api/ucp.h ucp/api/device/ucp_host.h ucm/api/ucm.h
          case $line in
          typedef*) echo "$name (*check_declared);" ;;
          *)        echo "__typeof__($name) *check_declared = $name;" ;;
          esac
          echo "$line"; } >"$file"
        try "prototype $name" $cc -std=c11 -Werror -I"$top/src" -fsyntax-only "$file"
    done < <(facts "$here/prototypes-1.23.txt")
}

# ---- Headers alone, twice, together. ----

check_standards()
{
    local flags="-Wall -Wextra -pedantic -Werror -Wno-long-long -fsyntax-only -I$top/src"
    local headers header standard compiler
    headers=$(installed_headers)
    [ -n "$headers" ] || { echo "no installed headers in the local.mk files" >"$work/log"; fail lists; }
    for header in $headers; do
        printf '#include <%s>\n#include <%s>\nextern int check_not_empty;\n' "$header" "$header" \
            >"$work/$(echo "$header" | tr / _).c"
    done
    for header in $headers; do echo "#include <$header>"; done >"$work/together.c"
    { tac "$work/together.c"; echo 'extern int check_not_empty;'; } >"$work/backwards.c"
    for header in $(echo "$headers" | tr / _) together backwards; do
        cp "$work/$header.c" "$work/$header.cc"
        for compiler in $cc_list; do
            for standard in c89 c11; do
                try "$header alone, $compiler -std=$standard" \
                    $compiler -std=$standard $flags "$work/$header.c"
            done
        done
        for compiler in $cxx_list; do
            for standard in c++11 c++20; do
                try "$header alone, $compiler -std=$standard" \
                    $compiler -std=$standard $flags "$work/$header.cc"
            done
        done
    done
    [ -n "$cxx_list" ] || skip "headers as C++" "no C++ compiler"
}

# ---- Comparison with headers of UCX 1.13. ----

# All that a header of UCX says, without its comments and without what it includes.
plain() { $cc -fpreprocessed -dD -E -P "$ucx_include/$1" 2>/dev/null; }

ucx_headers="ucp/api/ucp.h ucp/api/ucp_def.h ucp/api/ucp_compat.h ucs/type/status.h
             ucs/type/thread_mode.h ucs/type/cpu_set.h ucs/memory/memory_type.h"

check_ucx_layout()
{
    facts "$here/layout-1.13.txt" >"$work/expected"
    try "layout program compiles with UCX's headers" \
        probe theirs "$here/layout-1.13.txt" "-I$ucx_include" ucp/api/ucp.h
    same "layout 1.13, UCX's headers" "$work/expected" "$work/theirs.out"

    # The same names with our headers: only what changed-since-1.13.txt lists may differ.
    try "layout program of 1.13 compiles with ours" \
        probe subset "$here/layout-1.13.txt" "-I$top/src" ucp/api/ucp.h
    diff "$work/theirs.out" "$work/subset.out" 2>&1 | sed -n 's/^< //p; /^diff:/p' |
        sort >"$work/changed"
    facts "$here/changed-since-1.13.txt" | sort >"$work/allowed"
    try "what changed since 1.13" diff "$work/allowed" "$work/changed"
}

# Enumerators of UCX's headers: the value is the same here.
check_ucx_constants()
{
    local header name
    for header in $ucx_headers; do plain $header; done |
        awk '/(^|[ \t])enum[ \t{]/ { on = 1 } on { print } /}/ { on = 0 }' |
        grep -oE '^ *UC[PS]_[A-Z0-9_]+' | tr -d ' ' | sort -u >"$work/names"
    sed 's/.*/enum & 0/' "$work/names" | grep -vE ' UCS_(MEMORY_TYPE_(LAST|UNKNOWN)) ' >"$work/list"
    try "constants of UCX's headers compile" \
        probe constants_theirs "$work/list" "-I$ucx_include" ucp/api/ucp.h
    try "constants compile with ours" \
        probe constants_ours "$work/list" "-I$top/src" ucp/api/ucp.h
    [ "$(wc -l <"$work/list")" -gt 150 ] || { echo "only $(wc -l <"$work/list") names" >"$work/log"
                                             fail "enumerators found in UCX's headers"; }
    same "constants of UCX's headers" "$work/constants_theirs.out" "$work/constants_ours.out"
}

# Functions of UCX's headers: the compiler lists their prototypes, each is declared after ours.
check_ucx_prototypes()
{
    local line name count=0
    echo '#include <ucp/api/ucp.h>' >"$work/list.c"
    gcc -std=c11 -I"$ucx_include" -fsyntax-only -aux-info "$work/aux" "$work/list.c" 2>/dev/null
    while read -r line; do
        name=$(echo "$line" | sed -E 's/^[^(]*[ *]([a-z_0-9]+) \(.*/\1/')
        { probe_head ucp/api/ucp.h
          echo "__typeof__($name) *check_declared = $name;"
          echo "$line"; } >"$work/prototype.c"
        try "prototype of UCX $name" \
            $cc -std=c11 -Werror -I"$top/src" -fsyntax-only "$work/prototype.c"
        count=$((count + 1))
    done < <(sed -n -E 's,^/\*.*/ucp/api/.*\*/ (extern .*);.*,\1;,p' "$work/aux")
    [ $count -ge 100 ] || { echo "only $count" >"$work/log"; fail "prototypes found in UCX's headers"; }
}

# Types of UCX's headers: callbacks are declared again, other names exist here with the same tags.
check_ucx_types()
{
    local header
    { probe_head ucp/api/ucp.h
      for header in $ucx_headers; do plain $header; done | tr '\n' ' ' | tr ';' '\n' |
          grep -oE 'typedef [a-z_0-9 ]+\*? *\( *\*[a-z_0-9]+\) *\([^;{}]*\) *$' | sed 's/$/;/'
    } >"$work/callbacks.c"
    [ "$(grep -c '^typedef' "$work/callbacks.c")" -ge 14 ] ||
        { cp "$work/callbacks.c" "$work/log"; fail "callback types found in UCX's headers"; }
    try "callback types of UCX" $cc -std=c11 -Werror -I"$top/src" -fsyntax-only "$work/callbacks.c"

    { probe_head ucp/api/ucp.h
      for header in $ucx_headers; do plain $header; done | tr '\n' ' ' >"$work/flat"
      grep -oE '\b(ucp|ucs)_[a-z_0-9]+_(t|h)\b' "$work/flat" | sort -u | sed 's/.*/extern & *check_&;/'
      grep -oE 'enum ucp_[a-z_0-9]+ *\{' "$work/flat" | tr -d '{' | sort -u |
          sed -E 's/enum ([a-z_0-9]+).*/extern char check_enum_\1[sizeof(enum \1)];/'
      grep -oE 'struct ucp_[a-z_0-9]+ *\{' "$work/flat" | tr -d '{' | sort -u |
          sed -E 's/struct ([a-z_0-9]+).*/extern char check_struct_\1[sizeof(struct \1)];/'
    } >"$work/names.c"
    try "names and tags of types of UCX" $cc -std=c11 -I"$top/src" -fsyntax-only "$work/names.c"
}

# Programs that come with UCX's headers compile with ours.
check_ucx_examples()
{
    local examples=/usr/share/doc/libucx-dev/examples file
    for file in ucp_hello_world.c ucp_client_server.c; do
        if [ -f $examples/$file ]; then
            try "compiles: $file" $cc -std=gnu11 -I"$top/src" -fsyntax-only $examples/$file
        else
            skip "compiles: $file" "not installed"
        fi
    done
}

check_layout
check_types
check_prototypes
check_standards
if grep -qs 'UCP_API_MINOR *13' "$ucx_include/ucp/api/ucp_version.h"; then
    check_ucx_layout
    check_ucx_constants
    if command -v gcc >/dev/null; then
        check_ucx_prototypes
    else
        skip "prototypes of UCX's headers" "only gcc lists them"
    fi
    check_ucx_types
    check_ucx_examples
else
    skip "comparison with UCX's headers" "no headers of UCX 1.13 in $ucx_include (libucx-dev)"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
