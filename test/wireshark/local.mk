# Halyard: test of the dissector for Wireshark.
# SPDX-License-Identifier: BSD-3-Clause

EXTRA_DIST += test/wireshark/test_dissector.sh

check_PROGRAMS += test/wireshark/messages
test_wireshark_messages_SOURCES  = test/wireshark/messages.c
test_wireshark_messages_CPPFLAGS = $(AM_CPPFLAGS) -Itest/wireshark
test_wireshark_messages_LDADD = \
	libucp_core.la libuct_core.la libucs_core.la libucm_core.la

# The rows of the tables as calls of macros.
test/wireshark/rows.inc: halyard.lua
	$(AM_V_GEN)$(MKDIR_P) test/wireshark && sed -n \
	  -e 's/^    {\("[A-Z_]*", [^,]*\)},$$/    CONSTANT(\1)/' \
	  -e 's/^    {"[A-Z_]*", \("[A-Z_]*", [^,]*\)},$$/    CONSTANT(\1)/' \
	  -e 's/^    {\("[a-z_]*", [0-9]*\)},$$/    SIZE(\1)/' \
	  -e 's/^    {\("[a-z_]*", "[a-z_.]*", [0-9]*, [0-9]*\), .*},$$/    FIELD(\1)/' \
	  -e 's/^    {\([0-9]*, "[A-Z_]*"\), "[a-z_]*", \(.*\)},$$/    MESSAGE(\1, \2)/' \
	  -e '/^    [A-Z]*(/{s/"//g;p;}' $< >$@.part
	$(AM_V_at)mv $@.part $@
test/wireshark/messages-messages.$(OBJEXT): test/wireshark/rows.inc
CLEANFILES += test/wireshark/rows.inc

TESTS += test/wireshark/test_dissector.sh
