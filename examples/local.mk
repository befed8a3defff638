# Halyard: the examples; make check builds and runs each.
# SPDX-License-Identifier: BSD-3-Clause

EXTRA_DIST += examples/hello_tag.c
