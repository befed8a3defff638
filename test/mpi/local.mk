# Halyard: MPI and OpenSHMEM programs, compiled by run.sh with each MPI that is installed; inputs of
# contrib/check-apps.sh.
# SPDX-License-Identifier: BSD-3-Clause

EXTRA_DIST += \
	test/mpi/check.c \
	test/mpi/check.h \
	test/mpi/collective.c \
	test/mpi/collective_all.c \
	test/mpi/datatype.c \
	test/mpi/device.c \
	test/mpi/dynamic.c \
	test/mpi/known_failures.md \
	test/mpi/match.c \
	test/mpi/mixed.c \
	test/mpi/modes.c \
	test/mpi/pingpong.c \
	test/mpi/probe.c \
	test/mpi/rma.c \
	test/mpi/rma_lock.c \
	test/mpi/run.sh \
	test/mpi/threads.c \
	test/mpi/traffic.c \
	test/mpi/types.c \
	test/shmem/atomic.c \
	test/shmem/put_get.c \
	test/shmem/mixed.c \
	test/shmem/together.c

EXTRA_DIST += \
	test/apps/dask_cluster.py \
	test/apps/fft.py \
	test/apps/fftw.c \
	test/apps/melt.lammps \
	test/apps/nixl_agents.py \
	test/apps/nvshmem_devices.c \
	test/apps/nvshmem_pes.cu \
	test/apps/ucxx_pairs.py

# Over the libraries as built, before make install.
check-mpi: all
	$(top_srcdir)/test/mpi/run.sh --lib $(abs_top_builddir)/.libs --build test/mpi/programs

clean-mpi:
	rm -rf test/mpi/programs

clean-local: clean-mpi

.PHONY: check-mpi clean-mpi
