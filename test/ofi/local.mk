# Halyard: MPI programs with ranks on two hosts, run by contrib/check.sh --mpi.
# SPDX-License-Identifier: BSD-3-Clause

EXTRA_DIST += \
	test/ofi/two_hosts.sh
