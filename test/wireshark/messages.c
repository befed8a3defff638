/* Halyard: what test_dissector.sh needs of the compiler: are the tables in halyard.lua those of
 * the headers, and bytes as they are sent, as a hex dump for text2pcap.
 *
 *   messages            compares; a line for each difference, exit 1 if there is one
 *   messages ours       a hand-shake, introductions, messages, one of them split between packets
 *   messages foreign    the same messages by tokens that nobody has told, and noise
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/wire/wire.h>
#include <uct/ofi/ofi_wire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN UINT64_C(0x1122334455667788)

static int differences;

static void compare(const char *what, long long of_lua, long long of_c)
{
    if (of_lua != of_c) {
        printf("%s: %lld in halyard.lua, %lld in the headers\n", what, of_lua, of_c);
        ++differences;
    }
}

/* rows.inc has the rows of halyard.lua, as calls of these. */
static int compare_all(void)
{
    size_t covered = 0, num_messages = 0, i;

#define FIELD(_type, _field, _offset, _size) \
    compare("offset of " #_type "." #_field, _offset, offsetof(_type, _field)); \
    compare("size of " #_type "." #_field, _size, sizeof(((_type *)0)->_field)); \
    covered += _size;
#define SIZE(_type, _size) \
    compare("size of " #_type, _size, sizeof(_type)); \
    covered -= sizeof(_type);
#define CONSTANT(_name, _value) compare(#_name, _value, _name);
#define MESSAGE(_id, _name, _at_least) \
    compare("id of " #_name, _id, UCP_WIRE_##_name); \
    compare("name of " #_name, strcmp(ucp_wire_table[_id].name, #_name), 0); \
    compare("bytes of " #_name, _at_least, (long long)ucp_wire_table[_id].header_length); \
    ++num_messages;
#include "rows.inc"

    compare("bytes of all fields less those of all structures", (long long)covered, 0);
    for (i = 0; i < UCP_WIRE_LAST; ++i) {
        num_messages -= (ucp_wire_table[i].handle != NULL);
    }
    compare("messages that are too many", (long long)num_messages, 0);
    return differences != 0;
}

/* ---- bytes as they are sent ---- */

static uint8_t stream[1024];
static size_t used;

static void say(const void *data, size_t length)
{
    memcpy(stream + used, data, length);
    used += length;
}

/* A packet of all that was said but for some bytes, which the next one has. */
static void packet(size_t held_back)
{
    size_t i;

    for (i = 0; i < used - held_back; ++i) {
        if (i % 16 == 0) {
            printf("\n%06zx", i);
        }
        printf(" %02x", stream[i]);
    }
    printf("\n");
    memmove(stream, stream + used - held_back, held_back);
    used = held_back;
}

static void say_head(unsigned type, unsigned am_id, uint32_t number, uint64_t token)
{
    static const uint8_t framing[11] = {8, 2, 0, 0, 0, 0, 1}; /* a provider's: anything */
    uct_ofi_head_t head = {.type = type, .am_id = am_id, .number = number, .token = token};

    say(framing, sizeof(framing));
    say(&head, sizeof(head));
}

static void say_introductions(void)
{
    ucp_wire_conn_t conn = {.magic  = UCP_WIRE_CONN_MAGIC, .version = UCP_WIRE_VERSION,
                            .type   = UCP_WIRE_CONN_ASK, .length = 5, .client_id = 0x42};
    uct_ofi_address_t address = {.version = UCT_OFI_VERSION, .length = 4};
    uct_ofi_intro_t intro = {.token = TOKEN, .version = UCT_OFI_VERSION,
                             .address_length = sizeof(address) + address.length};

    say(&conn, sizeof(conn));
    say("where", conn.length);
    packet(0);
    memcpy(intro.address, &address, sizeof(address));
    say_head(UCT_OFI_HELLO, 0, 3, 0);
    say((const uint8_t *)&intro + sizeof(intro.head), sizeof(intro) - sizeof(intro.head));
    packet(0);
}

static void say_messages(void)
{
    ucp_wire_rts_t rts     = {.tag = 0x77, .length = 1000000, .flags = UCP_WIRE_RTS_RAILS};
    ucp_wire_eager_t eager = {.tag = 0x88};
    uint8_t zeros[100]     = {0};

    say_head(UCT_OFI_DATA, UCP_WIRE_RTS, 4, TOKEN);
    rts.rails = 5;
    say(&rts, sizeof(rts));
    say_head(UCT_OFI_DATA, UCP_WIRE_EAGER, 5, TOKEN);
    packet(14);
    say(&eager, sizeof(eager));
    say(zeros, sizeof(zeros));
    packet(0);
    say_head(UCT_OFI_ACK, 0, 0, TOKEN);
    packet(0);
}

int main(int argc, char **argv)
{
    int i;

    if (argc == 1) {
        return compare_all();
    }
    if (strcmp(argv[1], "ours") == 0) {
        say_introductions();
    }
    say_messages();
    for (srand(1); used < sizeof(stream);) {
        i = rand();
        say(&i, sizeof(i));
    }
    packet(0);
    return 0;
}
