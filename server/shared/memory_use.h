/* memory_use: counts the memory that clients can make grow: INFO's used_memory, the sum of the parts below, which
 * maxmemory limits.
 *
 * It leaves out the process's own memory: code and stacks, the workers' arenas and tables of fixed size. Each part
 * counts for itself, so a sum is a few loads per worker. The heap is never asked, because malloc() would walk its free
 * lists under its locks.
 *
 * Thread: any. */
#ifndef BLOOMERY_MEMORY_USE_H
#define BLOOMERY_MEMORY_USE_H

#include <stdatomic.h>
#include <stdint.h>

struct server;

/* The memory of the clients of one worker, which alone writes it. */
struct client_memory {
    _Alignas(64) _Atomic uint64_t bytes;
};

struct memory_use {
    uint64_t bits;    /* of all filters, with prepared and unfreed ones */
    uint64_t entries; /* of the same: names and headers, and the free room in pages that small filters share */
    uint64_t index;   /* the table of names */
    uint64_t expiry;  /* the heap of times */
    uint64_t clients; /* connections: their buffers, queues, watched names, arguments of deferred commands */
    uint64_t pubsub;  /* channels, patterns, subscriptions; undelivered messages and events */
    uint64_t users;   /* those in force, with their rules */
    uint64_t log;     /* unsynced records: not limited, see memory_limited() */
};

void memory_use(const struct server *server, struct memory_use *use_out);

uint64_t memory_used(const struct server *server); /* the sum of all parts */

/* The memory that maxmemory limits: all but the log, which has a bound of its own and is emptied by each sync. A burst
 * of adds must not be refused because the disk is a second behind. (Redis excludes the buffer of its AOF, too.) */
uint64_t memory_limited(const struct server *server);
uint64_t memory_beside_bits(void *server); /* the same without the bits; for bloom_pool_count_beside() */

uint64_t memory_use_dataset(const struct memory_use *use); /* bits and entries; the rest is overhead */
uint64_t memory_use_total(const struct memory_use *use);

#endif
