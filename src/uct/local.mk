# Halyard: files of libuct.
# SPDX-License-Identifier: BSD-3-Clause

libuct_headers = \
	src/uct/api/version.h

libuct_sources = \
	src/uct/api/uct_tl.h \
	src/uct/base/atomic.c \
	src/uct/base/base.h \
	src/uct/base/components.c \
	src/uct/base/descriptor.c \
	src/uct/base/descriptor.h \
	src/uct/base/ep.c \
	src/uct/base/ep_states.c \
	src/uct/base/iface.c \
	src/uct/base/md.c \
	src/uct/base/registry.c \
	src/uct/base/registry.h \
	src/uct/cma/cma.c \
	src/uct/cma/cma.h \
	src/uct/cuda/cuda_context.c \
	src/uct/cuda/cuda_context.h \
	src/uct/cuda/cuda_copy.c \
	src/uct/cuda/cuda_driver.c \
	src/uct/cuda/cuda_driver.h \
	src/uct/cuda/cuda_engine.c \
	src/uct/cuda/cuda_engine.h \
	src/uct/cuda/cuda_export.c \
	src/uct/cuda/cuda_fork.c \
	src/uct/cuda/cuda_import.c \
	src/uct/cuda/cuda_ipc.c \
	src/uct/cuda/cuda_ipc.h \
	src/uct/cuda/cuda_kernel.c \
	src/uct/cuda/cuda_kernel.h \
	src/uct/cuda/cuda_kernel_ptx.c \
	src/uct/cuda/cuda_now.c \
	src/uct/cuda/cuda_piece.c \
	src/uct/cuda/cuda_pool.c \
	src/uct/cuda/cuda_probe.c \
	src/uct/hook/delay.c \
	src/uct/hook/hook.c \
	src/uct/hook/hook.h \
	src/uct/hook/ops.c \
	src/uct/mm/mm_accept.c \
	src/uct/mm/mm_connect.c \
	src/uct/mm/mm_ep.c \
	src/uct/mm/mm_fork.c \
	src/uct/mm/mm_iface.c \
	src/uct/mm/mm_iface.h \
	src/uct/mm/mm_md.c \
	src/uct/mm/mm_mem.c \
	src/uct/mm/mm_poll.c \
	src/uct/mm/mm_reader.c \
	src/uct/mm/mm_ring.c \
	src/uct/mm/mm_ring.h \
	src/uct/mm/mm_rings.c \
	src/uct/mm/mm_segment.c \
	src/uct/mm/mm_segment.h \
	src/uct/mm/mm_socket.c \
	src/uct/mm/mm_socket.h \
	src/uct/ofi/ofi.h \
	src/uct/ofi/ofi_ep.c \
	src/uct/ofi/ofi_lib.c \
	src/uct/ofi/ofi_lib.h \
	src/uct/ofi/ofi_devices.h \
	src/uct/ofi/ofi_wire.h \
	src/uct/self/self.c \
	src/uct/self/self.h \
	src/uct/self/self_mem.c

if HAVE_OFI
libuct_sources += \
	src/uct/ofi/ofi_addr.c \
	src/uct/ofi/ofi_alive.c \
	src/uct/ofi/ofi_cq.c \
	src/uct/ofi/ofi_devices.c \
	src/uct/ofi/ofi_hear.c \
	src/uct/ofi/ofi_iface.c \
	src/uct/ofi/ofi_peer.c \
	src/uct/ofi/ofi_provider.c \
	src/uct/ofi/ofi_rma.c \
	src/uct/ofi/ofi_send.c
endif

noinst_LTLIBRARIES += libuct_core.la libuct_ofi_lib.la
libuct_core_la_SOURCES = $(libuct_sources)

# Of libuct too; by itself for the tools, which measure libfabric without it.
libuct_ofi_lib_la_SOURCES = src/uct/ofi/ofi_lib.c src/uct/ofi/ofi_lib.h

lib_LTLIBRARIES += libuct.la
libuct_la_SOURCES =
libuct_la_LIBADD = libuct_core.la libucs.la
libuct_la_LIBTOOLFLAGS =
libuct_la_LDFLAGS = $(library_ldflags) \
	-Wl,--version-script=$(top_srcdir)/src/uct/libuct.map
libuct_la_DEPENDENCIES = libuct_core.la libucs.la src/uct/libuct.map
EXTRA_DIST += src/uct/libuct.map
