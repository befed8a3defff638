# Halyard: the examples; make check builds and runs each.
# SPDX-License-Identifier: BSD-3-Clause
