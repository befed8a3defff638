#!/bin/bash
# Halyard: checks the rules that keep the source readable. Each rule is one check.
#
#   check-style.sh [FOLDER]      (default: the folder above this script)
#
# Errors are breaches of a rule; warnings are guides that were left. A rule that is broken for a
# reason is excused by a line of contrib/check-style.allow: <rule> <path> <word>  # why
# Prints "FILE:LINE: text" for each breach and ends with "N passed, N failed, N skipped".
# SPDX-License-Identifier: BSD-3-Clause
set -u
shopt -s lastpipe          # report counts, at the end of pipes

readonly FILE_LINES_MAX=800
readonly FUNCTION_LINES_MAX=70
readonly LINE_COLUMNS_MAX=100

# What only src/ucs/sys may call: the rest goes through its table, for simulation and faults.
readonly SYSTEM_CALLS='clock_gettime|gettimeofday|clock_nanosleep|nanosleep|usleep|sleep|times
|rand|random|srand|srandom|drand48|getrandom
|malloc|calloc|realloc|reallocarray|free|posix_memalign|aligned_alloc|memalign|valloc
|strdup|strndup|asprintf|vasprintf|getline|realpath
|mmap|munmap|mremap|mprotect|madvise|memfd_create|shm_open|shm_unlink
|shmget|shmat|shmdt|shmctl|ftruncate|fallocate
|open|openat|creat|close|read|write|pread|pwrite|readv|writev|fopen|fdopen|fstat|stat|lstat
|access|unlink|rename|mkdir|fcntl|ioctl|dup|dup2|pipe|pipe2
|socket|socketpair|bind|connect|listen|accept|accept4|shutdown|send|recv|sendto|recvfrom
|sendmsg|recvmsg|getsockopt|setsockopt|getifaddrs|getsockname|getpeername
|poll|ppoll|select|epoll_create|epoll_create1|epoll_ctl|epoll_wait|eventfd|timerfd_create
|timerfd_settime|signalfd|inotify_init1
|getpid|getppid|gettid|getuid|geteuid|gethostname|fork|vfork|kill|syscall|sched_yield
|process_vm_readv|process_vm_writev'

root=$(cd "${1:-$(dirname "$0")/..}" && pwd) || exit 2
allow=$root/contrib/check-style.allow
cd "$root" || exit 2
for tool in perl grep awk; do
    command -v $tool >/dev/null || { echo "check-style.sh: $tool not found" >&2; exit 2; }
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0
warned=0

list_files()
{
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard | while read -r file; do
            [ -f "$file" ] && echo "$file"
        done
    else
        find . -type f | sed 's,^\./,,' | grep -vE '^(build|autom4te)'
    fi | sort -u
}

# A copy of the C sources without comments and without the text of strings; lines stay in place.
make_bare_copy()
{
    local file
    mkdir -p "$scratch/bare"
    for file in $c_files; do
        mkdir -p "$scratch/bare/$(dirname "$file")"
        perl -0777 -pe '
            s{(/\*.*?\*/)|(//[^\n]*)|("(?:\\.|[^"\\\n])*")|(\x27(?:\\.|[^\x27\\\n])*\x27)}{
                my ($comment, $line, $string, $char) = ($1, $2, $3, $4);
                if (defined $comment)   { (my $blank = $comment) =~ s/[^\n]//g; " " . $blank }
                elsif (defined $line)   { "" }
                elsif (defined $string) { $string =~ m{\.hh?"$} ? $string : "\"\"" }
                else                    { "\x27\x27" }
            }gse' "$file" >"$scratch/bare/$file"
    done
}

# Takes out of "FILE:LINE:text" what the allow list excuses. The word must stand in the text.
without_allowed() # rule
{
    if [ ! -f "$allow" ]; then
        cat
        return
    fi
    awk -v rule="$1" -v list="$allow" '
        BEGIN {
            while ((getline line < list) > 0) {
                sub(/#.*/, "", line)
                if (split(line, part, " ") >= 3 && part[1] == rule) {
                    count++; path[count] = part[2]; word[count] = part[3]
                }
            }
        }
        {
            name = $0; sub(/:.*/, "", name)
            for (i = 1; i <= count; i++) {
                if (name == path[i] && (word[i] == "*" || index($0, word[i]))) next
            }
            print
        }'
}

report() # rule kind explanation; breaches on stdin
{
    local rule=$1 kind=$2 text=$3 breaches
    breaches=$(without_allowed "$rule")
    if [ -z "$breaches" ]; then
        passed=$((passed + 1))
        return
    fi
    if [ "$kind" = error ]; then
        failed=$((failed + 1))
        echo "FAIL $rule: $text"
    else
        passed=$((passed + 1))
        warned=$((warned + 1))
        echo "note $rule: $text"
    fi
    printf '%s\n' "$breaches" | sed 's/^/  /'
}

bare_grep() # pattern, folders...; prints FILE:LINE:text
{
    local pattern=$1
    shift
    (cd "$scratch/bare" && grep -rnPH "$pattern" "$@" 2>/dev/null)
}

of_kind() # extended regular expression
{
    printf '%s\n' "$all_files" | grep -E "$1"
}

check_layers()
{
    bare_grep '#\s*include\s*[<"](uct|ucp)/' src/ucs src/ucm |
        report layers-ucs error "ucs and ucm know nothing of transports and protocols"
    bare_grep '#\s*include\s*[<"]ucp/' src/uct |
        report layers-uct error "uct knows nothing of protocols"
    bare_grep '#\s*include\s*[<"](cuda|cuda_runtime|nvml)\.h' src test examples |
        grep -v '^examples/cuda_' |
        report cuda-header error "cuda.h only in its example: all else builds without CUDA"
    bare_grep '#\s*include\s*[<"]rdma/' src test examples | grep -v '^src/uct/ofi/' |
        report ofi-header error "rdma/*.h only in src/uct/ofi"
    bare_grep '^\s*#.*\bHAVE_CUDA\b' src | grep -vE '^(src/uct/cuda/|src/tools/[^:]*cuda)' |
        report have-cuda error "HAVE_CUDA only in the folder of CUDA"
    bare_grep '^\s*#.*\bHAVE_OFI\b' src | grep -v '^src/uct/ofi/' |
        report have-ofi error "HAVE_OFI only in the folder of libfabric"
    bare_grep '#\s*include\s*[<"]hwloc\.h' src | grep -v '^src/ucs/sys/' |
        report machine-headers error "hwloc only in src/ucs/sys"
}

check_calls()
{
    local calls
    calls=$(printf '%s' "$SYSTEM_CALLS" | tr -d '\n')
    bare_grep "(?<![\\w.>])(?<!-> )($calls)\\s*\\(" src/ucs src/uct src/ucp |
        grep -v '^src/ucs/sys/' |
        report system-calls error "goes through <ucs/sys/sys.h>, not to the C library"
    bare_grep '\b(atomic_thread_fence|__atomic_thread_fence|__sync_synchronize|atomic_signal_fence)\b' \
        src | report fences error "acquire and release operations, no stand-alone fences"
    bare_grep '\b(strcpy|strcat|sprintf|vsprintf|gets|alloca|setjmp|longjmp)\s*\(' src |
        report unbounded error "no function that writes without a bound"
    bare_grep '__attribute__\s*\(\(\s*(constructor|destructor)' src |
        report constructors error "loading the library does no work"
    bare_grep '\b(signal|sigaction)\s*\(' src | grep -v '^src/tools/' |
        grep -v '^src/ucs/sys/library.c:' | # which undoes what others install
        report signals error "the library installs no signal handler"
}

check_text()
{
    of_kind '^(src|test|examples|contrib|packaging|m4)/|\.(ac|am|mk|md)$|^\.ci/' |
        grep -v '^contrib/check-style' | xargs -r grep -nHE '\b(TODO|FIXME|XXX|HACK)\b' |
        report todo error "what is left to do belongs in an issue"
    of_kind '\.(c|h|cc|hh|sh|mk|ac|am|md|m4|map|in|py|lua)$|^\.ci/' | xargs -r grep -nHE '[[:space:]]+$' |
        report trailing-space error "white space at the end of a line"
    printf '%s\n' $c_files | xargs -r grep -nHP '\t' |
        report tabs error "four spaces, no tabs"
    printf '%s\n' $c_files | xargs -r awk -v max=$LINE_COLUMNS_MAX \
        'length($0) > max { print FILENAME ":" FNR ": " length($0) " columns" }' |
        report columns error "at most $LINE_COLUMNS_MAX columns"
    of_kind '\.(c|h|cc|hh|sh|mk|ac|am|m4|py|lua)$|^\.ci/' | while read -r file; do
        head -n 40 "$file" | grep -q 'SPDX-License-Identifier: BSD-3-Clause' ||
            echo "$file:1: no SPDX line"
    done | report licence error "the head of each file ends with its licence"
    printf '%s\n' $c_files | while read -r file; do
        head -n 1 "$file" | grep -qE '^/\* Halyard: .{3,}' || echo "$file:1: $(head -n 1 "$file")"
    done | report file-head error "a file begins with '/* Halyard: one line of purpose'"
    of_kind '(^|/)(common|misc|util|utils|new|v2)(\.[a-z]+)?(/|$)' | sed 's/$/:1: name says nothing/' |
        report file-names error "a name says what is inside"
    printf '%s\n' $c_files | grep -E '^(src|examples|test/mpi)/.*\.[ch]$' | xargs -r grep -nHP '^\s*//|[;{}]\s+// ' |
        report line-comments error "comments are /* */"
}

check_headers()
{
    local file guard wanted
    for file in $(of_kind '\.(h|hh)$'); do
        guard=$(grep -m1 -oP '^#\s*ifndef\s+\K\w+' "$scratch/bare/$file")
        if [ -z "$guard" ] || ! grep -qE "^# *define +$guard\$" "$scratch/bare/$file"; then
            echo "$file:1: no header guard"
            continue
        fi
        case $file in
            src/*) wanted=${file#src/}
                   wanted=$(printf '%s' "${wanted#tools/}" | tr 'a-z/.-' 'A-Z___') ;;
            *)     continue ;;
        esac
        # mm/mm_ring.h need not say mm twice
        [ "$guard" = "$wanted" ] ||
            [ "$guard" = "$(printf '%s' "$wanted" | sed -E 's/_([A-Z0-9]+)_\1_/_\1_/')" ] || echo "$file:1: guard $guard, expected $wanted"
    done | report header-guards error "a header is guarded by its path"
    printf '%s\n' $c_files | grep '^src/.*\.c$' | while read -r file; do
        awk -v file="$file" '
            /^# *include/ {
                if ($0 !~ /config\.h/) print file ":" FNR ": " $0
                exit
            }' "$scratch/bare/$file"
    done | report config-first error "config.h is the first include of each source"
}

check_lists()
{
    local lists
    lists=$(cat $(of_kind '(^|/)(local\.mk|Makefile\.am)$') | grep -v '^#')
    of_kind '^(src|test|examples)/.*\.(c|cc)$' | while read -r file; do
        case $lists in
            *"$file"*) ;;
            *)         echo "$file:1: in no local.mk" ;;
        esac
    done | report listed error "each source is named in a local.mk"
}

check_sizes()
{
    printf '%s\n' $c_files | grep '^src/' | while read -r file; do
        wc -l "$file" | awk -v max=$FILE_LINES_MAX '$1 > max { print $2 ":1: " $1 " lines" }'
    done | report file-lines note "files of at most about $FILE_LINES_MAX lines"
    printf '%s\n' $c_files | grep '^src/.*\.c$' | while read -r file; do
        awk -v file="$file" -v max=$FUNCTION_LINES_MAX '
            /^\{/ { start = FNR; name = before }
            /^\}/ && start { if (FNR - start - 1 > max)
                                 print file ":" start ": " FNR - start - 1 " lines: " name
                             start = 0 }
            { before = $0 }' "$scratch/bare/$file"
    done | report function-lines note "functions of at most about $FUNCTION_LINES_MAX lines"
    bare_grep '^ {24,}(if|for|while|switch|do)\b' src |
        report nesting note "at most four levels"
}

check_scripts()
{
    local file
    for file in $(of_kind '\.sh$|^\.ci/run$'); do
        case $(head -n 1 "$file") in
            '#!/bin/bash') bash -n "$file" 2>&1 ;;
            '#!/bin/sh')   sh -n "$file" 2>&1 ;;
            *)             echo "$file:1: no interpreter line" ;;
        esac
        [ -x "$file" ] || echo "$file:1: not executable"
    done | report scripts error "scripts parse and can be run"
}

all_files=$(list_files)
c_files=$(printf '%s\n' "$all_files" | grep -E '\.(c|h|cc|hh|cu)$')
make_bare_copy

check_layers
check_calls
check_text
check_headers
check_lists
check_sizes
check_scripts

[ $warned -gt 0 ] && echo "style: $warned guide(s) left (notes above)"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
