/* Halyard: intrusive singly linked FIFO.
 *
 * Half the memory of a list per element, for what is only pushed and pulled. An empty queue holds
 * its own address, so a head must not be copied or moved while it is empty. The queue owns
 * nothing. Every operation takes constant time; none blocks or fails.
 * Not thread-safe.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCS_DS_QUEUE_H
#define UCS_DS_QUEUE_H

#include <ucs/sys/compiler.h>

typedef struct ucs_queue_elem {
    struct ucs_queue_elem *next;
} ucs_queue_elem_t;

typedef struct {
    ucs_queue_elem_t *head;   /* first element, NULL when empty */
    ucs_queue_elem_t **ptail; /* 'next' of the last element, or &head */
} ucs_queue_head_t;

UCS_INLINE void ucs_queue_head_init(ucs_queue_head_t *queue)
{
    queue->head  = NULL;
    queue->ptail = &queue->head;
}

UCS_INLINE int ucs_queue_is_empty(const ucs_queue_head_t *queue)
{
    return queue->head == NULL;
}

/* Append at the tail. */
UCS_INLINE void ucs_queue_push(ucs_queue_head_t *queue, ucs_queue_elem_t *elem)
{
    elem->next    = NULL;
    *queue->ptail = elem;
    queue->ptail  = &elem->next;
}

/* Insert in front of all others. */
UCS_INLINE void ucs_queue_push_head(ucs_queue_head_t *queue, ucs_queue_elem_t *elem)
{
    elem->next = queue->head;
    if (queue->head == NULL) {
        queue->ptail = &elem->next;
    }
    queue->head = elem;
}

/* Take the first element; NULL when the queue is empty. */
UCS_INLINE ucs_queue_elem_t *ucs_queue_pull(ucs_queue_head_t *queue)
{
    ucs_queue_elem_t *elem = queue->head;

    if (elem != NULL) {
        queue->head = elem->next;
        if (queue->head == NULL) {
            queue->ptail = &queue->head;
        }
    }
    return elem;
}

/* The first element, which stays; and the first element taken out. The queue must not be empty. */
#define ucs_queue_head_elem(_queue, _type, _member) \
    ucs_container_of((_queue)->head, _type, _member)
#define ucs_queue_pull_elem(_queue, _type, _member) \
    ucs_container_of(ucs_queue_pull(_queue), _type, _member)

/* Walk from head to tail; the body must not take out _elem, and may push behind it. */
#define ucs_queue_for_each(_elem, _queue, _member) \
    for (ucs_queue_elem_t *ucs_queue_pos_ = (_queue)->head; \
         (ucs_queue_pos_ != NULL) && \
         ((_elem) = ucs_container_of(ucs_queue_pos_, __typeof__(*(_elem)), _member), 1); \
         ucs_queue_pos_ = ucs_queue_pos_->next)

#endif
