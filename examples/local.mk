# Halyard: the examples; make check builds and runs each.
# SPDX-License-Identifier: BSD-3-Clause

check_PROGRAMS += examples/hello_tag
examples_hello_tag_SOURCES = examples/hello_tag.c
examples_hello_tag_LDADD = libucp.la libucs.la
TESTS += examples/hello_tag
