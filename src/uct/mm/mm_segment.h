/* Halyard: mm: shared memory segments: making them, handing them over, mapping them.
 *
 * A segment is memory without a name: a sealed memfd, a POSIX object unlinked at birth, or a System
 * V segment marked for removal at birth. Nothing is left when its last process ends, however it
 * ends. Where a file system bounds it, all of its pages are reserved when it is made, so that
 * shortage is an error here and no SIGBUS later; seals keep a peer from shrinking it.
 *
 * The mappings of a process are in one table: a segment is mapped once, and whoever attaches it
 * again in the same process, its owner included, gets the same address. Therefore two interfaces of
 * one process meet at one address, where ThreadSanitizer can watch them.
 *
 * Any thread; nothing blocks but for the kernel's work.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCT_MM_SEGMENT_H
#define UCT_MM_SEGMENT_H

#include <ucs/config/types.h>
#include <ucs/ds/list.h>
#include <ucs/sys/compiler.h>
#include <ucs/type/status.h>

#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS

/* The values travel between processes. */
typedef enum {
    UCT_MM_BACKING_NONE,
    UCT_MM_BACKING_MEMFD,
    UCT_MM_BACKING_POSIX,
    UCT_MM_BACKING_SYSV,
    UCT_MM_BACKING_LAST
} uct_mm_backing_t;

extern const char *const uct_mm_backing_names[UCT_MM_BACKING_LAST + 1];

/* Which kinds are tried, in order; in what pages. */
typedef struct {
    uct_mm_backing_t         kinds[UCT_MM_BACKING_LAST]; /* ended by NONE */
    ucs_ternary_auto_value_t hugetlb;                    /* memfd only; AUTO counts as NO */
} uct_mm_backing_list_t;

typedef struct {
    ucs_list_link_t  list;     /* in the table of the process */
    void            *address;
    size_t           length;   /* bytes, whole pages */
    unsigned         refcount;
    uct_mm_backing_t backing;
    int              fd;       /* of the owner; -1: System V, or not ours */
    int              shmid;    /* System V */
    int              is_fixed; /* the address is the user's again after put: not to be shared */
    uint64_t         device;   /* identity of what is mapped */
    uint64_t         inode;
} uct_mm_segment_t;

/* Words of a configuration list, which are known ones, into `backings`. */
void uct_mm_backing_list_init(const ucs_config_names_array_t *names,
                              ucs_ternary_auto_value_t hugetlb, uct_mm_backing_list_t *backings);

int uct_mm_backing_list_has(const uct_mm_backing_list_t *backings, uct_mm_backing_t backing);

/* How a segment is made; bits. */
enum {
    UCT_MM_SEGMENT_LAZY  = 1, /* a memfd's pages come with the first touch, as those of malloc do */
    UCT_MM_SEGMENT_FIXED = 2, /* exactly at the address, whatever is mapped there */
    UCT_MM_SEGMENT_EXTRA = 4  /* the caller goes on without it: a failure is no error in the log */
};

/* Makes a segment of at least `length` bytes, zeroed, and maps it. UCS_ERR_SHMEM_SEGMENT, logged in
 * one line that tells why each kind failed; UCS_ERR_NO_MEMORY, logged. */
ucs_status_t uct_mm_segment_create(const uct_mm_backing_list_t *backings, void *address,
                                   size_t length, unsigned flags, uct_mm_segment_t **segment_p);

/* Takes another reference to a segment that this process has mapped. UCS_ERR_NO_ELEM: it has
 * not, or at an address that its user chose. */
ucs_status_t uct_mm_segment_find(uct_mm_backing_t backing, uint64_t device, uint64_t inode,
                                 uct_mm_segment_t **segment_p);

/* Maps what a peer made. fd: the descriptor that came (System V: -1, shmid counts), which this call
 * closes. Refuses what is smaller than `length` bytes or could be shrunk. Errors are not logged:
 * UCS_ERR_INVALID_PARAM (not what it should be), UCS_ERR_NO_MEMORY, UCS_ERR_SHMEM_SEGMENT. */
ucs_status_t uct_mm_segment_attach(uct_mm_backing_t backing, int fd, int shmid, size_t length,
                                   uct_mm_segment_t **segment_p);

/* Gives a reference back; the last one unmaps. */
void uct_mm_segment_put(uct_mm_segment_t *segment);

/* In a forked child, with the table locked: puts private empty memory in the place of a segment,
 * which is not found any more; references stay valid. No effect the second time. */
void uct_mm_segment_detach(uct_mm_segment_t *segment);

/* The lock of the table of segments, held over a fork. */
void uct_mm_segment_table_lock(void);
void uct_mm_segment_table_unlock(void);

END_C_DECLS

#endif
