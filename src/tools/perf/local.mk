# Halyard: files of ucx_perftest.
# SPDX-License-Identifier: BSD-3-Clause
