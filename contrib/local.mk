# Halyard: scripts that belong in the release archive.
# SPDX-License-Identifier: BSD-3-Clause

EXTRA_DIST += .ci/run .clang-format \
	contrib/build-deb.sh \
	contrib/check-apps.sh \
	contrib/check-deb.sh \
	contrib/check-wheels.sh \
	contrib/check-style.allow \
	contrib/check-style.sh \
	contrib/check.sh \
	contrib/configure-release \
	contrib/gpu-check.sh \
	contrib/lsan.supp \
	contrib/packages.sh \
	contrib/quickstart.sh \
	contrib/run-limited.sh \
	contrib/script-parts.sh
