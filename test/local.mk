# Halyard: tests.
# SPDX-License-Identifier: BSD-3-Clause

if HAVE_GTEST
include test/gtest/local.mk
endif
