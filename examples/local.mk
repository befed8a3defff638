# Halyard: the examples; make check builds and runs each.
# SPDX-License-Identifier: BSD-3-Clause

check_PROGRAMS += examples/client_server examples/hello_tag
examples_client_server_SOURCES = examples/client_server.c
examples_client_server_LDADD = libucp.la libucs.la
examples_hello_tag_SOURCES = examples/hello_tag.c
examples_hello_tag_LDADD = libucp.la libucs.la
TESTS += examples/client_server examples/hello_tag

# With the headers of CUDA. In the build folder it runs on the driver without devices of the tests;
# examples/.libs/cuda_pingpong is the program that runs on the machine's own.
if HAVE_CUDA
if HAVE_GTEST
check_PROGRAMS += examples/cuda_pingpong
examples_cuda_pingpong_SOURCES = examples/cuda_pingpong.c
examples_cuda_pingpong_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
examples_cuda_pingpong_LDADD = libucp.la libucs.la test/fakecuda/libcuda.la
TESTS += examples/cuda_pingpong
endif
endif
