/* Halyard: intrusive doubly linked list.
 *
 * A list is a ring through a head link and one link inside each element. The list owns nothing.
 * A link that was deleted points to itself, so deleting it again does nothing and
 * ucs_list_is_empty(link) tells whether an element is on a list. Every operation but
 * ucs_list_length takes constant time; none blocks or fails. Not thread-safe.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_DS_LIST_H
#define UCS_DS_LIST_H

#include <ucs/sys/compiler.h>

typedef struct ucs_list_link {
    struct ucs_list_link *prev;
    struct ucs_list_link *next;
} ucs_list_link_t;

/* Initialiser of a static head called _head. */
#define UCS_LIST_INITIALIZER(_head) {(_head), (_head)}

UCS_INLINE void ucs_list_head_init(ucs_list_link_t *head)
{
    head->prev = head;
    head->next = head;
}

/* True when the list has no element; for an element's link, true when it is on no list. */
UCS_INLINE int ucs_list_is_empty(const ucs_list_link_t *head)
{
    return head->next == head;
}

/* Put 'link' in front of 'pos', which is an element's link or the head (then: at the tail). */
UCS_INLINE void ucs_list_insert_before(ucs_list_link_t *pos, ucs_list_link_t *link)
{
    ucs_list_link_t *prev = pos->prev;

    link->prev = prev;
    link->next = pos;
    prev->next = link;
    pos->prev  = link;
}

UCS_INLINE void ucs_list_add_head(ucs_list_link_t *head, ucs_list_link_t *link)
{
    ucs_list_insert_before(head->next, link);
}

UCS_INLINE void ucs_list_add_tail(ucs_list_link_t *head, ucs_list_link_t *link)
{
    ucs_list_insert_before(head, link);
}

/* Take 'link' off its list; no effect when it is initialised and on none. */
UCS_INLINE void ucs_list_del(ucs_list_link_t *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    ucs_list_head_init(link);
}

/* Move all elements of 'src' behind those of 'dst', in order; 'src' is left empty. */
UCS_INLINE void ucs_list_splice_tail(ucs_list_link_t *dst, ucs_list_link_t *src)
{
    if (ucs_list_is_empty(src)) {
        return;
    }

    src->next->prev = dst->prev;
    dst->prev->next = src->next;
    src->prev->next = dst;
    dst->prev       = src->prev;
    ucs_list_head_init(src);
}

/* Number of elements, in linear time. */
UCS_INLINE size_t ucs_list_length(const ucs_list_link_t *head)
{
    const ucs_list_link_t *link;
    size_t length = 0;

    for (link = head->next; link != head; link = link->next) {
        ++length;
    }
    return length;
}

/* First and last element; the list must not be empty. */
#define ucs_list_head(_head, _type, _member) ucs_container_of((_head)->next, _type, _member)
#define ucs_list_tail(_head, _type, _member) ucs_container_of((_head)->prev, _type, _member)

/* The link inside _elem by plain address arithmetic: at the end of a loop _elem stands for the
 * head, which is no element, and must not be used as one. */
#define UCS_LIST_LINK_OF(_elem, _member) \
    ((ucs_list_link_t *)((char *)(_elem) + offsetof(__typeof__(*(_elem)), _member)))

/* Walk from head to tail; the body must not delete _elem. */
#define ucs_list_for_each(_elem, _head, _member) \
    for ((_elem) = ucs_container_of((_head)->next, __typeof__(*(_elem)), _member); \
         UCS_LIST_LINK_OF(_elem, _member) != (_head); \
         (_elem) = ucs_container_of((_elem)->_member.next, __typeof__(*(_elem)), _member))

/* Walk from head to tail; the body may delete or free _elem, but not the element after it. */
#define ucs_list_for_each_safe(_elem, _tmp, _head, _member) \
    for ((_elem) = ucs_container_of((_head)->next, __typeof__(*(_elem)), _member); \
         (UCS_LIST_LINK_OF(_elem, _member) != (_head)) && \
         ((_tmp) = ucs_container_of((_elem)->_member.next, __typeof__(*(_elem)), _member), 1); \
         (_elem) = (_tmp))

/* Take the first link off a list that is not empty. */
UCS_INLINE ucs_list_link_t *ucs_list_extract_head_link(ucs_list_link_t *head)
{
    ucs_list_link_t *link = head->next;

    ucs_list_del(link);
    return link;
}

/* Take the first element off a list that is not empty. */
#define ucs_list_extract_head(_head, _type, _member) \
    ucs_container_of(ucs_list_extract_head_link(_head), _type, _member)

#endif
