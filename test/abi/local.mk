# Halyard: is the built library the interface that programs expect?
# SPDX-License-Identifier: BSD-3-Clause

EXTRA_DIST += \
	test/abi/changed-since-1.13.txt \
	test/abi/check_abi.sh \
	test/abi/check_examples.sh \
	test/abi/check_symbols.sh \
	test/abi/field-types-1.23.txt \
	test/abi/layout-1.13.txt \
	test/abi/layout-1.23.txt \
	test/abi/prototypes-1.23.txt

TESTS += test/abi/check_abi.sh test/abi/check_examples.sh test/abi/check_symbols.sh
