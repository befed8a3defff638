#!/bin/bash
# Halyard: the recipes for Spack and conda fit this release: its versions, its options of configure.
#
#   test_recipes.sh [TOP OF THE SOURCE]     default: $HALYARD_SRCDIR
#
# Needs python3; the syntax of YAML is checked where it has PyYAML.
# Ends with "N passed, N failed, N skipped"; exit 1 if one failed.
# SPDX-License-Identifier: BSD-3-Clause
set -u

cd "${1:-${HALYARD_SRCDIR:-$(dirname "$0")/../..}}" || exit 2
readonly SPACK=packaging/spack/package.py
readonly CONDA=packaging/conda/meta.yaml
. contrib/script-parts.sh

# An option that configure has and that does something; --enable-x as well where it has --disable-x.
has_effect() # option
{
    local name=${1#--} line
    name=${name%%=*}
    case $name in
        enable-*|disable-*) name="(enable|disable)-${name#*-}" ;;
        with-*|without-*)   name="(with|without)-${name#*-}" ;;
    esac
    line=$(grep -E -- "^ +--$name(\[|=| )" <<<"$help") && ! grep -q 'no effect' <<<"$line"
}

# What conda-build parses once Jinja has put values in.
reads_as_yaml()
{
    sed -E 's/\{%.*%\}//; s/\{\{[^}]*\}\}/value/g' $CONDA |
        python3 -c 'import sys, yaml; yaml.safe_load(sys.stdin)'
}

if ! command -v python3 >/dev/null; then
    echo "skipped: python3 is not installed"
    echo "0 passed, 0 failed, 1 skipped"
    exit 77
fi

version=$(sed -nE 's/^AC_INIT\(\[halyard\], \[([0-9.]+)\].*/\1/p' configure.ac)
api=$(sed -nE 's/^AC_SUBST\(\[UCX_API_VERSION\], \[([0-9]+\.[0-9]+)\..*/\1/p' configure.ac)
help=$(./configure --help | sed -E ':all; N; $!b all; s/\n {10,}/ /g') # a line for each option
spack=$(python3 -B test/packaging/spack_says.py $SPACK)
check "$SPACK runs" [ $? -eq 0 ]
check "version of $SPACK" grep -qxF "version $version" <<<"$spack"
check "UCX's version of $SPACK" grep -qxE "splice ucx@1.13:$api" <<<"$spack"
unused=$(sed -n 's/^unused //p' <<<"$spack")
check "$SPACK: variants without an option: $unused" [ -z "$unused" ]
check "version of $CONDA" grep -qxF "{% set version = \"$version\" %}" $CONDA
if python3 -c 'import yaml' 2>/dev/null; then
    check "$CONDA is YAML" reads_as_yaml
else
    skipped=$((skipped + 1))
    echo "skipped: $CONDA as YAML (python3 has no PyYAML)"
fi

spack=$(sed -n 's/^option //p' <<<"$spack")
conda=$(sed -n '/\.\.\/configure/,/^    - make/p' $CONDA | grep -oE -- '--[a-z-]+')
check "options of $SPACK" [ "$(wc -w <<<"$spack")" -ge 10 ]
check "options of $CONDA" [ "$(wc -w <<<"$conda")" -ge 5 ]
for option in $spack; do
    check "$option of $SPACK" has_effect "$option"
done
for option in $conda; do
    check "$option of $CONDA" has_effect "$option"
done

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
