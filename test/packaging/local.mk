# Halyard: do the recipes in packaging/ fit this release?
# SPDX-License-Identifier: BSD-3-Clause

EXTRA_DIST += test/packaging/CMakeLists.txt test/packaging/spack_says.py test/packaging/test_recipes.sh

TESTS += test/packaging/test_recipes.sh
