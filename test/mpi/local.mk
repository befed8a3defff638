# Halyard: MPI programs, compiled by run.sh with each MPI that is installed.
# SPDX-License-Identifier: BSD-3-Clause

EXTRA_DIST += \
	test/mpi/check.c \
	test/mpi/check.h \
	test/mpi/collective.c \
	test/mpi/datatype.c \
	test/mpi/match.c \
	test/mpi/modes.c \
	test/mpi/pingpong.c \
	test/mpi/probe.c \
	test/mpi/run.sh \
	test/mpi/traffic.c

# Over the libraries as built, before make install.
check-mpi: all
	$(top_srcdir)/test/mpi/run.sh --lib $(abs_top_builddir)/.libs --build test/mpi/programs

clean-mpi:
	rm -rf test/mpi/programs

clean-local: clean-mpi

.PHONY: check-mpi clean-mpi
