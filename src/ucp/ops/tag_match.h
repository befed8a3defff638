/* Halyard: tag matching: posted receives and messages that arrived before theirs.
 *
 * Both sides are kept in order (of posting, of arrival) and found in constant time by a hash of
 * the tag bits that every selective mask covers: hash_mask starts with all 64 bits and loses those
 * that a receive with a still selective mask (at least UCP_TAG_SELECTIVE bits) leaves out, as MPI
 * libraries leave out a bit or two. Receives with fewer mask bits (wildcards) wait in a list of
 * their own; the posting number decides between the two. Searching unexpected messages for a
 * wildcard goes through all in arrival order.
 *
 * Invariants: an entry is in the bucket of its tag & hash_mask; buckets keep order; a failed
 * growth of the table leaves it as it is. Owned by a worker; called with its lock held.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_OPS_TAG_MATCH_H
#define UCP_OPS_TAG_MATCH_H

#include <ucp/core/request.h>
#include <ucs/ds/list.h>
#include <ucs/ds/hash.h>

#define UCP_TAG_SELECTIVE 56 /* mask bits from which a receive is found by hash */

typedef enum {
    UCP_TAG_MSG_EAGER,
    UCP_TAG_MSG_EAGER_SYNC,
    UCP_TAG_MSG_RTS
} ucp_tag_msg_kind_t;

/* A message that came before its receive. The payload, or the announcement (ucp_wire_rts_t),
 * follows. */
typedef struct ucp_recv_desc {
    ucs_list_link_t bucket;
    ucs_list_link_t arrival;
    uint64_t        tag;
    size_t          length;    /* bytes of the message */
    uint64_t        worker_id; /* who sent it, of kinds that are answered; it may be gone by then */
    uint64_t        request_id;
    uint32_t        session;   /* of that peer when it came */
    ucp_tag_msg_kind_t kind : 8;
} ucp_recv_desc_t;

typedef struct {
    ucs_list_link_t *expected;    /* buckets of ucp_request_t.list */
    ucs_list_link_t *unexpected;  /* buckets of ucp_recv_desc_t.bucket */
    unsigned         shift;       /* 64 - log2 of the number of buckets */
    uint64_t         hash_mask;
    size_t           grow_limit;  /* entries of one side at which buckets are added */
    size_t           num_selective;
    size_t           num_wild;
    uint64_t         wild_mask;   /* the last one that was not selective; 0 never is */
    size_t           num_unexpected;
    ucs_list_link_t  wild;        /* posted receives that are not selective */
    ucs_list_link_t  arrival;     /* all unexpected messages */
    ucs_list_link_t  taken;       /* those that a probe has taken off, until they are received */
    uint64_t         sn;
} ucp_tag_match_t;

/* Of either side. */
UCS_INLINE size_t ucp_tag_match_num_buckets(const ucp_tag_match_t *tm)
{
    return (size_t)1 << (64 - tm->shift);
}

/* *tm is zero. It is to be cleaned up in any case. */
ucs_status_t ucp_tag_match_init(ucp_tag_match_t *tm, unsigned num_buckets);
void ucp_tag_match_cleanup(ucp_tag_match_t *tm);

/* The part of ucp_tag_match_post for masks that the hash does not serve as it is. */
void ucp_tag_match_post_slow(ucp_tag_match_t *tm, ucp_request_t *req);

/* More buckets; without memory matching stays right, only slower. */
void ucp_tag_match_grow(ucp_tag_match_t *tm);

/* Forgets every posted receive: the worker ends. */
void ucp_tag_match_drop_expected(ucp_tag_match_t *tm);

/* Keeps a message for later. */
void ucp_tag_match_add_unexpected(ucp_tag_match_t *tm, ucp_recv_desc_t *desc);

/* Takes one off. */
void ucp_tag_match_del_unexpected(ucp_tag_match_t *tm, ucp_recv_desc_t *desc);

/* The first message that has arrived and matches; it stays. */
ucp_recv_desc_t *ucp_tag_match_search(ucp_tag_match_t *tm, uint64_t tag, uint64_t mask);

/* The wildcard side of ucp_tag_match_find; selective: what was found by hash, or NULL. */
ucp_request_t *ucp_tag_match_find_wild(const ucp_tag_match_t *tm, uint64_t tag,
                                       ucp_request_t *selective);

UCS_INLINE size_t ucp_tag_match_bucket(const ucp_tag_match_t *tm, uint64_t tag)
{
    return ((tag & tm->hash_mask) * 0x9e3779b97f4a7c15ull) >> tm->shift;
}

/* Posts a receive (req->info.sender_tag and req->recv.mask are set). */
UCS_INLINE void ucp_tag_match_post(ucp_tag_match_t *tm, ucp_request_t *req)
{
    req->recv.sn = tm->sn++;
    req->held    = UCP_REQUEST_HOLDS_EXPECTED | req->held;
    if (ucs_unlikely((req->recv.mask & tm->hash_mask) != tm->hash_mask)) {
        ucp_tag_match_post_slow(tm, req);
        return;
    }
    req->recv.is_wild = 0;
    if (ucs_unlikely(++tm->num_selective > tm->grow_limit)) {
        ucp_tag_match_grow(tm);
    }
    ucs_list_add_tail(&tm->expected[ucp_tag_match_bucket(tm, req->info.sender_tag)], &req->list);
}

/* The first receive found by hash that a message with this tag matches. */
UCS_INLINE ucp_request_t *ucp_tag_match_find_selective(const ucp_tag_match_t *tm, uint64_t tag)
{
    ucs_list_link_t *bucket = &tm->expected[ucp_tag_match_bucket(tm, tag)];
    ucp_request_t *req;

    ucs_list_for_each(req, bucket, list) {
        if (((req->info.sender_tag ^ tag) & req->recv.mask) == 0) {
            return req;
        }
    }
    return NULL;
}

/* The receive that a message with this tag belongs to; it stays posted. NULL: none is. */
UCS_INLINE ucp_request_t *ucp_tag_match_find(const ucp_tag_match_t *tm, uint64_t tag)
{
    ucp_request_t *req = ucp_tag_match_find_selective(tm, tag);

    return ucs_unlikely(tm->num_wild != 0) ? ucp_tag_match_find_wild(tm, tag, req) : req;
}

/* Takes a posted receive back. */
UCS_INLINE void ucp_tag_match_take(ucp_tag_match_t *tm, ucp_request_t *req)
{
    req->list.prev->next = req->list.next; /* nobody looks at a link that is off the list */
    req->list.next->prev = req->list.prev;
    req->held           &= (uint16_t)~UCP_REQUEST_HOLDS_EXPECTED;
    if (ucs_unlikely(tm->num_wild != 0) && req->recv.is_wild) {
        --tm->num_wild;
    } else {
        --tm->num_selective;
    }
}

/* The same as ucp_tag_match_find, and it is taken off. */
UCS_INLINE ucp_request_t *ucp_tag_match_arrive(ucp_tag_match_t *tm, uint64_t tag)
{
    ucp_request_t *req = ucp_tag_match_find(tm, tag);

    if (req != NULL) {
        ucp_tag_match_take(tm, req);
    }
    return req;
}

#endif
