# Halyard: files of libucp.
# SPDX-License-Identifier: BSD-3-Clause

libucp_headers = \
	src/ucp/api/ucp.h \
	src/ucp/api/ucp_def.h \
	src/ucp/api/ucp_compat.h \
	src/ucp/api/ucp_version.h \
	src/ucp/api/device/ucp_host.h

libucp_sources = \
	src/ucp/core/config.c \
	src/ucp/core/context.c \
	src/ucp/core/counters.c \
	src/ucp/core/counters.h \
	src/ucp/core/device.c \
	src/ucp/core/device.h \
	src/ucp/core/device_keys.c \
	src/ucp/core/ep.c \
	src/ucp/core/flush.c \
	src/ucp/core/idle.c \
	src/ucp/core/listener.c \
	src/ucp/core/mem.c \
	src/ucp/core/peer.c \
	src/ucp/core/provisional.c \
	src/ucp/core/request.c \
	src/ucp/core/rkey.c \
	src/ucp/core/unsupported.c \
	src/ucp/core/wakeup.c \
	src/ucp/core/worker.c \
	src/ucp/core/worker_memory.c \
	src/ucp/core/worker_memory.h \
	src/ucp/core/worker_query.c \
	src/ucp/dt/dt.c \
	src/ucp/ops/amo.c \
	src/ucp/ops/rma.c \
	src/ucp/ops/rma_list.c \
	src/ucp/ops/rma_piped.c \
	src/ucp/ops/rma_order.c \
	src/ucp/ops/rma_target.c \
	src/ucp/ops/am_recv.c \
	src/ucp/ops/am_send.c \
	src/ucp/ops/kept.c \
	src/ucp/ops/send.c \
	src/ucp/ops/stream_recv.c \
	src/ucp/ops/stream_send.c \
	src/ucp/ops/tag_budget.c \
	src/ucp/ops/tag_match.c \
	src/ucp/ops/tag_recv.c \
	src/ucp/ops/tag_send.c \
	src/ucp/proto/learn.c \
	src/ucp/proto/proto.c \
	src/ucp/protos/eager.c \
	src/ucp/protos/piped.c \
	src/ucp/protos/rndv_device.c \
	src/ucp/protos/rdma.c \
	src/ucp/protos/rndv_arrive.c \
	src/ucp/protos/rndv_read.c \
	src/ucp/protos/rndv_recv.c \
	src/ucp/protos/rndv_send.c \
	src/ucp/protos/rndv_piped.c \
	src/ucp/protos/rndv_staged.c \
	src/ucp/wire/address.c \
	src/ucp/wire/wire.c \
	src/ucp/wireup/conn.c \
	src/ucp/wireup/door.c \
	src/ucp/wireup/hello.c \
	src/ucp/wireup/lanes.c \
	src/ucp/wireup/net.c \
	src/ucp/wireup/sockets.c

noinst_LTLIBRARIES += libucp_core.la
libucp_core_la_SOURCES = $(libucp_sources)

lib_LTLIBRARIES += libucp.la
libucp_la_SOURCES =
libucp_la_LIBADD = libucp_core.la libuct.la libucs.la
libucp_la_LIBTOOLFLAGS =
libucp_la_LDFLAGS = $(library_ldflags) \
	-Wl,--version-script=$(top_srcdir)/src/ucp/libucp.map
libucp_la_DEPENDENCIES = libucp_core.la libuct.la libucs.la src/ucp/libucp.map
EXTRA_DIST += src/ucp/libucp.map
