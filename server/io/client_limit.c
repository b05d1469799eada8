#include "client_limit.h"

#include <stdatomic.h>

#include "mailbox.h"
#include "memory_use.h"
#include "server.h"

static struct client_memory *memory_of(const struct client_limit *limit)
{
    return &limit->server->memory.of_clients[limit->index];
}

static struct client_size *client_of(struct conn_link *link)
{
    return (struct client_size *)(void *)((char *)link - offsetof(struct client_size, listed));
}

/* ---- lists by size ---- */

static unsigned class_of(uint64_t held)
{
    unsigned bits = held ? 64 - (unsigned)__builtin_clzll(held) : 0;
    return bits < CLIENT_LIMIT_SIZES ? bits : CLIENT_LIMIT_SIZES - 1;
}

/* The class of the largest client that may be closed; 0: none. */
static unsigned largest_of(const struct client_limit *limit)
{
    return limit->used ? 63 - (unsigned)__builtin_clzll(limit->used) : 0;
}

static void list(struct client_limit *limit, struct client_size *client, unsigned class)
{
    conn_list_remove(&client->listed);
    if (client->class && conn_list_empty(&limit->of[client->class]))
        limit->used &= ~(UINT64_C(1) << client->class);
    if (class) {
        conn_list_append(&limit->of[class], &client->listed);
        limit->used |= UINT64_C(1) << class;
    }
    client->class = class;
    atomic_store_explicit(&memory_of(limit)->largest, largest_of(limit), memory_order_relaxed);
}

void client_limit_note(struct client_limit *limit, struct client_size *client, size_t held)
{
    unsigned class = class_of(held);
    if (held != client->held) {
        _Atomic uint64_t *sum = &memory_of(limit)->held; /* its one writer is this thread */
        atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + held - client->held,
                              memory_order_relaxed);
        client->held = held;
    }
    if (class != client->class)
        list(limit, client, class);
}

/* ---- closing ---- */

static struct client_size *largest_client(const struct client_limit *limit)
{
    const struct conn_link *of = &limit->of[largest_of(limit)];
    struct client_size *largest = client_of(of->next);
    struct conn_link *link = of->next;
    for (unsigned i = 0; i < CLIENT_LIMIT_LOOKS && link != of; i++, link = link->next)
        if (client_of(link)->held > largest->held)
            largest = client_of(link);
    return largest;
}

/* The index of the loop with the largest client; -1: no client may be closed. */
static int loop_of_largest(struct server *server)
{
    unsigned largest = 0, index = 0;
    for (unsigned i = 0; i < server->threads.max_workers; i++) {
        unsigned class = atomic_load_explicit(&server->memory.of_clients[i].largest, memory_order_relaxed);
        if (class > largest) {
            largest = class;
            index = i;
        }
    }
    return largest ? (int)index : -1;
}

void client_limit_look(struct client_limit *limit)
{
    struct server *server = limit->server;
    uint64_t most = memory_clients_limit(server, server_config(server)), all = memory_of_clients(server);
    int of_largest = (int)limit->index;
    for (int i = 0; i < CLIENT_LIMIT_ONCE && most && all > most; i++) {
        of_largest = loop_of_largest(server);
        if (of_largest != (int)limit->index)
            break;
        limit->close(largest_client(limit), all, most);
        all = memory_of_clients(server);
    }
    bool over = most && all > most;
    if (over && of_largest >= 0)
        mailbox_notify(server->threads.mailboxes[of_largest], NOTICE_CLIENTS);
    uint64_t room = over ? 0 : most - all, own = atomic_load_explicit(&memory_of(limit)->held, memory_order_relaxed);
    limit->look_at = most ? own + room / server->threads.max_workers : UINT64_MAX;
}

void client_limit_keep(struct client_limit *limit)
{
    if (atomic_load_explicit(&memory_of(limit)->held, memory_order_relaxed) > limit->look_at)
        client_limit_look(limit);
}

void client_limit_init(struct client_limit *limit, struct server *server, unsigned index,
                       void (*close)(struct client_size *client, uint64_t all, uint64_t most))
{
    limit->server = server;
    limit->index = index;
    limit->close = close;
    for (int i = 0; i < CLIENT_LIMIT_SIZES; i++)
        conn_list_init(&limit->of[i]);
}
