/* client_limit: keeps the memory of clients below maxmemory-clients: beyond it the client with most memory is closed.
 *
 * Each loop keeps the sum of its clients' memory, and lists of them by size, each for a power of two. A loop reads the
 * sums of all loops ten times a second, and when its own clients have used more than an even share of the memory that
 * was free at its last reading. So usually no loop reads another loop's numbers. If the clients hold too much, the loop
 * with the largest of them closes it; others notify that loop.
 *
 * The largest is exact among the first CLIENT_LIMIT_LOOKS of those with its power of two. Clients with CLIENT NO-EVICT
 * ON are neither counted nor closed: otherwise others would be closed for their memory.
 *
 * Thread: the loop's. */
#ifndef BLOOMERY_CLIENT_LIMIT_H
#define BLOOMERY_CLIENT_LIMIT_H

#include <stddef.h>
#include <stdint.h>

#include "conn_list.h"

struct server;

#define CLIENT_LIMIT_SIZES 64
#define CLIENT_LIMIT_LOOKS 64
#define CLIENT_LIMIT_ONCE  16 /* clients closed before others of the loop get their turn */

/* A client's part. Zero-initialised. */
struct client_size {
    struct conn_link listed; /* in client_limit.of[class] */
    size_t held;             /* bytes */
    unsigned class;          /* 0: in no list */
};

/* A loop's part. */
struct client_limit {
    struct server *server;
    unsigned index; /* of the loop */
    void (*close)(struct client_size *client, uint64_t all, uint64_t most);
    struct conn_link of[CLIENT_LIMIT_SIZES]; /* of[i]: clients that hold at least 2^(i-1) and less than 2^i bytes */
    uint64_t used;                           /* bit i: of[i] is not empty */
    uint64_t look_at;                        /* when its clients hold more it checks all of them */
};

/* close() closes a client, because all clients hold `all` bytes and `most` are allowed; it notes 0 bytes for it. */
void client_limit_init(struct client_limit *limit, struct server *server, unsigned index,
                       void (*close)(struct client_size *client, uint64_t all, uint64_t most));

/* Notes the bytes that the client holds now beyond those of an idle one. 0 when it is closed, or must not be. */
void client_limit_note(struct client_limit *limit, struct client_size *client, size_t held);

/* Looks at all clients, and closes some of its own if it must. Not from within a command of a client. */
void client_limit_look(struct client_limit *limit);

/* The same at the end of an iteration, if it is time. */
void client_limit_keep(struct client_limit *limit);

#endif
