# Halyard: scripts that belong in the release archive.
# SPDX-License-Identifier: BSD-3-Clause
