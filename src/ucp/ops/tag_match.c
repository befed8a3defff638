/* Halyard: tag matching.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/ops/tag_match.h>
#include <ucs/debug/assert.h>
#include <ucs/sys/sys.h>

#define UCP_TAG_BUCKETS_MAX (1u << 20)

static ucs_list_link_t *ucp_tag_match_buckets_alloc(size_t count)
{
    ucs_list_link_t *buckets = ucs_sys_malloc(count * sizeof(*buckets));
    size_t i;

    if (buckets != NULL) {
        for (i = 0; i < count; ++i) {
            ucs_list_head_init(&buckets[i]);
        }
    }
    return buckets;
}

ucs_status_t ucp_tag_match_init(ucp_tag_match_t *tm, unsigned num_buckets)
{
    unsigned log2 = 63 - (unsigned)__builtin_clzll(ucs_max(num_buckets, 2u));

    tm->shift      = 64 - log2;
    tm->expected   = ucp_tag_match_buckets_alloc((size_t)1 << log2);
    tm->unexpected = ucp_tag_match_buckets_alloc((size_t)1 << log2);
    if ((tm->expected == NULL) || (tm->unexpected == NULL)) {
        return UCS_ERR_NO_MEMORY;
    }

    tm->hash_mask      = UINT64_MAX;
    tm->grow_limit     = (size_t)2 << log2;
    tm->num_selective  = 0;
    tm->num_wild       = 0;
    tm->num_unexpected = 0;
    tm->sn             = 0;
    ucs_list_head_init(&tm->wild);
    ucs_list_head_init(&tm->arrival);
    ucs_list_head_init(&tm->taken);
    return UCS_OK;
}

void ucp_tag_match_cleanup(ucp_tag_match_t *tm)
{
    ucs_assert(tm->num_selective + tm->num_wild + tm->num_unexpected == 0);
    ucs_sys_free(tm->expected);
    ucs_sys_free(tm->unexpected);
}

/* Puts every entry into the bucket where it belongs after hash_mask or the number of buckets
 * changed. Entries of one old bucket keep their order; when old buckets merge, posted receives are
 * put in order by their numbers, and unexpected messages are dealt out by arrival. */
static void ucp_tag_match_rehash(ucp_tag_match_t *tm, ucs_list_link_t *old, size_t num_old)
{
    ucs_list_link_t *bucket;
    ucp_request_t *req, *next, *other;
    ucs_list_link_t *pos;
    ucp_recv_desc_t *desc;
    ucs_list_link_t all;
    size_t i;

    ucs_list_head_init(&all);
    for (i = 0; i < num_old; ++i) {
        ucs_list_splice_tail(&all, &old[i]);
        ucs_list_head_init(&old[i]);
    }

    ucs_list_for_each_safe(req, next, &all, list) {
        bucket = &tm->expected[ucp_tag_match_bucket(tm, req->info.sender_tag)];
        pos    = bucket;
        while (pos->prev != bucket) {
            other = ucs_container_of(pos->prev, ucp_request_t, list);
            if (other->recv.sn < req->recv.sn) {
                break;
            }
            pos = pos->prev;
        }
        ucs_list_del(&req->list);
        ucs_list_insert_before(pos, &req->list);
    }

    for (i = 0; i < ucp_tag_match_num_buckets(tm); ++i) {
        ucs_list_head_init(&tm->unexpected[i]);
    }
    ucs_list_for_each(desc, &tm->arrival, arrival) {
        ucs_list_add_tail(&tm->unexpected[ucp_tag_match_bucket(tm, desc->tag)], &desc->bucket);
    }
}

void ucp_tag_match_grow(ucp_tag_match_t *tm)
{
    size_t num_old                = ucp_tag_match_num_buckets(tm);
    ucs_list_link_t *old_expected = tm->expected;
    ucs_list_link_t *expected, *unexpected;

    if (num_old >= UCP_TAG_BUCKETS_MAX) {
        return;
    }
    expected   = ucp_tag_match_buckets_alloc(num_old * 4);
    unexpected = ucp_tag_match_buckets_alloc(num_old * 4);
    if ((expected == NULL) || (unexpected == NULL)) {
        ucs_sys_free(expected);
        ucs_sys_free(unexpected);
        return;
    }

    ucs_sys_free(tm->unexpected);
    tm->expected   = expected;
    tm->unexpected = unexpected;
    tm->shift     -= 2;
    tm->grow_limit = 2 * ucp_tag_match_num_buckets(tm);
    ucp_tag_match_rehash(tm, old_expected, num_old);
    ucs_sys_free(old_expected);
}

/* True if receives with this mask are found by hash; adapts the hash to masks that nearly are. */
static int ucp_tag_match_is_selective(ucp_tag_match_t *tm, uint64_t mask)
{
    if (ucs_likely((mask & tm->hash_mask) == tm->hash_mask)) {
        return 1;
    }
    if ((mask == tm->wild_mask) ||
        (__builtin_popcountll(mask & tm->hash_mask) < UCP_TAG_SELECTIVE)) {
        tm->wild_mask = mask;
        return 0;
    }
    tm->hash_mask &= mask;
    ucp_tag_match_rehash(tm, tm->expected, ucp_tag_match_num_buckets(tm));
    return 1;
}

void ucp_tag_match_post_slow(ucp_tag_match_t *tm, ucp_request_t *req)
{
    if (ucp_tag_match_is_selective(tm, req->recv.mask)) {
        req->recv.is_wild = 0;
        ++tm->num_selective;
        ucs_list_add_tail(&tm->expected[ucp_tag_match_bucket(tm, req->info.sender_tag)],
                          &req->list);
    } else {
        req->recv.is_wild = 1; /* for good: hash_mask may lose bits later */
        ++tm->num_wild;
        ucs_list_add_tail(&tm->wild, &req->list);
    }
}

ucp_request_t *ucp_tag_match_find_wild(const ucp_tag_match_t *tm, uint64_t tag,
                                       ucp_request_t *selective)
{
    ucp_request_t *req;

    ucs_list_for_each(req, &tm->wild, list) {
        if ((selective != NULL) && (req->recv.sn > selective->recv.sn)) {
            break;
        }
        if (((req->info.sender_tag ^ tag) & req->recv.mask) == 0) {
            return req;
        }
    }
    return selective;
}

void ucp_tag_match_add_unexpected(ucp_tag_match_t *tm, ucp_recv_desc_t *desc)
{
    if (ucs_unlikely(++tm->num_unexpected > tm->grow_limit)) {
        ucp_tag_match_grow(tm);
    }
    ucs_list_add_tail(&tm->arrival, &desc->arrival);
    ucs_list_add_tail(&tm->unexpected[ucp_tag_match_bucket(tm, desc->tag)], &desc->bucket);
}

void ucp_tag_match_del_unexpected(ucp_tag_match_t *tm, ucp_recv_desc_t *desc)
{
    ucs_list_del(&desc->bucket);
    ucs_list_del(&desc->arrival);
    --tm->num_unexpected;
}

ucp_recv_desc_t *ucp_tag_match_search(ucp_tag_match_t *tm, uint64_t tag, uint64_t mask)
{
    ucp_recv_desc_t *desc;

    if (tm->num_unexpected == 0) {
        return NULL;
    }
    if ((mask & tm->hash_mask) != tm->hash_mask) { /* a search does not change the hash for it */
        ucs_list_for_each(desc, &tm->arrival, arrival) {
            if (((desc->tag ^ tag) & mask) == 0) {
                return desc;
            }
        }
        return NULL;
    }
    ucs_list_for_each(desc, &tm->unexpected[ucp_tag_match_bucket(tm, tag)], bucket) {
        if (((desc->tag ^ tag) & mask) == 0) {
            return desc;
        }
    }
    return NULL;
}

static void ucp_tag_match_drop_list(ucp_tag_match_t *tm, ucs_list_link_t *head)
{
    ucp_request_t *req, *next;

    ucs_list_for_each_safe(req, next, head, list) {
        ucp_tag_match_take(tm, req);
        ucp_request_release_held(req);
    }
}

void ucp_tag_match_drop_expected(ucp_tag_match_t *tm)
{
    size_t i;

    for (i = 0; i < ucp_tag_match_num_buckets(tm); ++i) {
        ucp_tag_match_drop_list(tm, &tm->expected[i]);
    }
    ucp_tag_match_drop_list(tm, &tm->wild);
}
