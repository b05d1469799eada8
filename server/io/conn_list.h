/* conn_list: doubly linked lists of connections. A connection has one link for each list that it can be in, so that a
 * close removes it from all of them in constant time.
 *
 * Thread: the owning worker's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A link, and likewise the head of a list. Zero-initialised: in no list. */
struct conn_link {
    struct conn_link *prev, *next;
};

static inline void conn_list_init(struct conn_link *list)
{
    list->prev = list->next = list;
}

static inline bool conn_list_empty(const struct conn_link *list)
{
    return list->next == list;
}

static inline bool conn_link_used(const struct conn_link *link)
{
    return link->next != NULL;
}

/* Appends a link that is in no list. */
static inline void conn_list_append(struct conn_link *list, struct conn_link *link)
{
    link->next = list;
    link->prev = list->prev;
    list->prev->next = link;
    list->prev = link;
}

/* Removes a link from its list, if it is in one. */
static inline void conn_list_remove(struct conn_link *link)
{
    if (!link->next)
        return;
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->prev = link->next = NULL;
}

/* Moves all of `from` to the end of `list`. */
static inline void conn_list_move(struct conn_link *list, struct conn_link *from)
{
    if (conn_list_empty(from))
        return;
    from->next->prev = list->prev;
    list->prev->next = from->next;
    from->prev->next = list;
    list->prev = from->prev;
    conn_list_init(from);
}

/* The connection whose `member` the link is. */
#define CONN_OF(link, member) ((struct conn *)(void *)((char *)(link)-offsetof(struct conn, member)))
