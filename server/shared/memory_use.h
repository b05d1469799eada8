/* memory_use: counts the memory that clients can make grow: INFO's used_memory, the sum of the parts below. maxmemory
 * limits the filters, maxmemory-clients the clients; the two are independent.
 *
 * Code, stacks, the workers' arenas and tables of fixed size do not count. Each part counts its own memory, so a sum is
 * a few loads per worker. malloc() is never asked: it would walk its free lists under its locks.
 *
 * Thread: any. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct config;
struct server;

/* The memory of the clients of one worker, which alone writes it. */
struct client_memory {
    _Alignas(64) _Atomic uint64_t bytes; /* all of it, except for subscriptions, which pubsub counts */
    _Atomic uint64_t held;               /* that maxmemory-clients limits: without idle connections */
    _Atomic uint64_t largest;            /* the bytes of the largest one, or more until the next look; 0: none */
};

struct memory_account {
    struct client_memory *of_clients; /* one for each worker */
    _Atomic uint64_t of_users;        /* acl.h counts there */
    uint64_t machine_bytes;           /* machine_memory() at the start */
    uint64_t startup_bytes;           /* memory_used() before any filter was loaded */
    uint64_t startup_resident;        /* bytes that the process occupied then */
    _Atomic uint16_t use_stamp;       /* entry_stamp() of now, by which filters are used; kept by the main thread */
};

struct memory_use {
    uint64_t bits;    /* of all filters, with prepared and unfreed ones */
    uint64_t entries; /* of the same: names and headers, and the free room in pages that small filters share */
    uint64_t index;   /* the table of names */
    uint64_t expiry;  /* the heap of times */
    uint64_t clients; /* connections: their buffers, queues, watched names, arguments of deferred commands */
    uint64_t pubsub;  /* channels, patterns, subscriptions; undelivered messages and events */
    uint64_t users;   /* those in force, with their rules */
    uint64_t log;     /* unsynced records; changed slots that a save or a dump has still to read */
};

void memory_use(const struct server *server, struct memory_use *use_out);

uint64_t memory_used(const struct server *server); /* the sum of all parts */

/* The memory that maxmemory limits: filters with their names and times, and users. Clients have a limit of their own,
 * so they take no memory from filters. The log has bounds of its own and each sync empties it: a burst of adds must not
 * be refused because the disk is a second behind. */
uint64_t memory_limited(const struct server *server);
uint64_t memory_overhead(void *server); /* the same without the bits; for bloom_pool_set_overhead() */

/* The bytes that maxmemory-clients allows; 0: any number. And those that clients hold: the sum of `held`. */
uint64_t memory_clients_limit(const struct server *server, const struct config *config);
uint64_t memory_of_clients(const struct server *server);

/* The same without filters that were removed a moment ago and are about to be freed. */
uint64_t memory_staying(const struct server *server);

/* Whether a filter of `bytes` that replaces another one must wait until removed filters are freed. So replaced filters
 * do not pile up: memory passes maxmemory by one of them at most, and without maxmemory it doubles at most. */
bool memory_waits_for_eviction(const struct server *server, uint64_t bytes);

uint64_t memory_use_dataset(const struct memory_use *use); /* bits and entries; the rest is overhead */
uint64_t memory_use_limited(const struct memory_use *use); /* memory_limited() */
uint64_t memory_use_total(const struct memory_use *use);
