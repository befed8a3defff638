/* Halyard: mm: memory domain: configuration.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include "mm_iface.h"

#define UCS_LOG_COMPONENT "mm"
#include <ucs/debug/assert.h>
#include <ucs/sys/string.h>

/* An introduction, with the addresses of a few networks, has to go in one piece. */
#define UCT_MM_SEG_SIZE_MIN 512

const ucs_config_row_t uct_mm_config_rows[] = {
    UCS_CONFIG_ROW("FIFO_SIZE", uint, uct_mm_config_t, fifo_size, "256",
                   "Lines of 64 bytes of a receive ring, of which each peer that sends gets one. "
                   "The longest message takes three quarters of them by default. Small rings stay "
                   "in the cache. Who has longer ones than the receiver is refused.",
                   .min = UCT_MM_RING_LINES_MIN, .max = UCT_MM_RING_LINES_MAX,
                   .flags = UCS_CONFIG_ROW_POW2),
    UCS_CONFIG_ROW("FIFO_ELEM_SIZE", uint, uct_mm_config_t, fifo_elem_size, "64",
                   "Bytes of a ring's element. It is always a line of 64 bytes here; other values "
                   "are accepted for habit's sake and have no effect.",
                   .min = UCT_MM_LINE_SIZE, .max = UINT16_MAX, .flags = UCS_CONFIG_ROW_HIDDEN),
    UCS_CONFIG_ROW("SEG_SIZE", memunits, uct_mm_config_t, seg_size, "auto",
                   "Longest message that is copied through a ring, in bytes; auto: as long as "
                   "FIFO_SIZE allows.",
                   .min = UCT_MM_SEG_SIZE_MIN, .flags = UCS_CONFIG_ROW_AUTO | UCS_CONFIG_ROW_INF),
    UCS_CONFIG_ROW("BUFFER_THRESH", memunits, uct_mm_config_t, buffer_thresh, "auto",
                   "Messages of that many bytes and more, headers included, go through buffers "
                   "beside the ring, which the first 64 peers of a receiver get where its shared "
                   "memory is memfd and FIFO_SIZE at most 256: 372 KiB for each of the first 16, "
                   "or as many as the machine has processors, 94 KiB for the others, of which only "
                   "what is used takes memory. auto: 1 KiB, but single ones below 3 KiB (AMD's "
                   "processors: 1.25 KiB) only if they are active messages; inf: never.",
                   .min   = UCT_MM_LINE_SIZE,
                   .flags = UCS_CONFIG_ROW_AUTO | UCS_CONFIG_ROW_INF),
    UCS_CONFIG_ROW("FIFO_RELEASE_FACTOR", double, uct_mm_config_t, release_factor, "0.25",
                   "Part of a ring after which the receiver gives lines back to the sender; above "
                   "0.5 it is taken as that. Messages can take the rest of the ring.", .max = 1),
    UCS_CONFIG_ROW("FIFO_HUGETLB", ternary, uct_mm_config_t, hugetlb, "no",
                   "Huge pages for rings: yes (fail without them), no, try."),
    UCS_CONFIG_ROW("FIFO_MAX_POLL", uint, uct_mm_config_t, max_poll, "16",
                   "Messages that one progress call takes from one ring at most.",
                   .min = 1, .max = UCT_MM_RING_LINES_MAX),
    UCS_CONFIG_ROW("BACKING", list, uct_mm_config_t, backing, "memfd,posix,sysv",
                   "Kinds of shared memory, tried in this order; also those that are accepted from "
                   "peers.",
                   .arg = uct_mm_backing_names + UCT_MM_BACKING_MEMFD),
    UCS_CONFIG_ROW("LATENCY", time, uct_mm_config_t, latency_ns, "130ns",
                   "Time of a line's way from processor to processor, by which protocols are "
                   "chosen; ucx_perftest -t audit measures it."),
    UCS_CONFIG_ROW("BW", bandwidth, uct_mm_config_t, bandwidth, "5500MBs",
                   "Bytes per second of messages through a ring, likewise.", .min = 1),
    UCS_CONFIG_ROW("SOCKET_DIR", string, uct_mm_config_t, socket_dir, "",
                   "Directory, by its whole path, in which processes of different network "
                   "namespaces meet, such as one that containers share: sockets get their names "
                   "there while they are open. The default is none: processes meet by names that "
                   "are no files, within one network namespace."),
    UCS_CONFIG_ROW_END
};

static_assert(UCT_MM_BUFFER_AUTO == UCS_CONFIG_AUTO_SIZE, "what the setting means");

ucs_status_t uct_mm_md_open(uct_md_t *tl_md)
{
    const uct_mm_config_t *config = tl_md->config;
    uct_mm_md_t *md               = uct_mm_md(tl_md);
    const double release_factor   = ucs_min(config->release_factor, 0.5);
    char given[UCS_STR_DOUBLE_MAX];
    size_t ring_max;

    if (release_factor != config->release_factor) {
        ucs_str_print_double(given, sizeof(given), config->release_factor);
        ucs_warn("UCX_MM_FIFO_RELEASE_FACTOR=%s is out of range: expected a number from 0 to 0.5; "
                 "used instead: 0.5", given);
    }
    if (config->fifo_elem_size != UCT_MM_LINE_SIZE) {
        ucs_info("UCX_MM_FIFO_ELEM_SIZE=%u has no effect: elements are lines of %u bytes",
                 config->fifo_elem_size, UCT_MM_LINE_SIZE);
    }

    md->node          = (uint32_t)ucs_sys_node_id();
    md->shape.lines   = config->fifo_size;
    md->shape.quantum = ucs_max((uint32_t)(config->fifo_size * release_factor), 1u);
    ucs_assert(uct_mm_ring_shape_is_valid(&md->shape));

    ring_max        = uct_mm_ring_message_max(&md->shape);
    md->message_max = ring_max;
    if (config->seg_size != UCS_CONFIG_AUTO_SIZE) {
        if (config->seg_size > ring_max) {
            ucs_info("UCX_MM_SEG_SIZE=%zu: a ring of %u lines takes messages of %zu bytes",
                     config->seg_size, config->fifo_size, ring_max);
        }
        md->message_max = ucs_min(config->seg_size, ring_max);
    }
    uct_mm_backing_list_init(&config->backing, (ucs_ternary_auto_value_t)config->hugetlb,
                             &md->backings);
    return UCS_OK;
}
