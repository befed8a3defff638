# Halyard: the examples; make check builds and runs each.
# SPDX-License-Identifier: BSD-3-Clause

check_PROGRAMS += examples/client_server examples/hello_tag
examples_client_server_SOURCES = examples/client_server.c
examples_client_server_LDADD = libucp.la libucs.la
examples_hello_tag_SOURCES = examples/hello_tag.c
examples_hello_tag_LDADD = libucp.la libucs.la
TESTS += examples/client_server examples/hello_tag
