/* residency: evicts the bits of filters from memory, and reads them back from the disk.
 *
 * Bits are evicted only when the last save has them (evict.c). With lazy-load a start leaves them on the disk. Threads
 * of its own ("readers") read them back; a filter answers no query until its bits are complete and their checksum is
 * right. A filter with a damaged file is quarantined, as at a start.
 *
 * A caller that needs bits pins the filter before it waits. Pinned filters stay in memory, so the bits are there when
 * the wait ends, even if the memory is small.
 *
 * Lifetime: residency_create() after the registry, residency_stop() before the saver ends, residency_destroy(). The
 * threads start when they are first needed. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_resident.h"
#include "errbuf.h"
#include "resp_parse.h"
#include "persistence.h"
#include "server.h"

struct residency;
struct entry;

int residency_create(struct residency **residency_out, struct server *server); /* 0 or -ENOMEM */
void residency_destroy(struct residency *residency);                           /* NULL is fine */

/* Ends the threads; waits end with a failure. Idempotent; NULL is fine. */
void residency_stop(struct residency *residency);

/* Whether bits of some filter may not be in memory. An RCU reader that has seen `false` finds the bits of every filter
 * that it looks up before it goes offline. Thread: an online reader. */
static inline bool residency_some_evicted(const struct server *server)
{
    return atomic_load_explicit(&server->persistence->evicting, memory_order_acquire) ||
           bloom_pool_dropped(server->pool);
}

/* ---- waiting ---- */

/* A wait for the bits of some filters, which are pinned until residency_wait_free(). */
struct residency_wait;

/* Room for this many names. `done` is called once, by any thread, when all of them have been tried; not before
 * residency_wait_begin() has returned true. NULL: no memory. */
struct residency_wait *residency_wait_create(struct server *server, size_t most, void (*done)(void *ctx), void *ctx);

/* Adds the filter of this name, if there is one, whether its bits are away or not. Thread: an online reader. */
void residency_wait_add(struct residency_wait *wait, struct slice name);

/* True: there is something to wait for, and `done` will be called. */
bool residency_wait_begin(struct residency_wait *wait);

/* After the end: false, with the text of an error reply, when the bits of one of them could not be read now. */
bool residency_wait_succeeded(const struct residency_wait *wait, const char **text_out);
void residency_wait_free(struct residency_wait *wait); /* NULL is fine; not before the call of `done` */

/* As registry_pin(), but waits until the bits are in memory. If entry_filter() of the entry is NULL, the filter is
 * quarantined, or unreadable: `why` replies. Thread: pool, an online reader, offline meanwhile. */
struct entry *residency_pin(struct server *server, struct slice name, struct errbuf *why);

/* Reads the filter in the background, if there is room. Thread: an online reader. */
void residency_ask(struct server *server, struct slice name);

/* The error for a filter whose bits are not in memory, where waiting is impossible. */
#define RESIDENCY_TRYAGAIN "TRYAGAIN the filter's bits are not in memory and have to be read first"

/* ---- room ---- */

/* Evicts bits until memory is below `maxmemory`, if the policy allows it. Costs a load while eviction runs. */
void residency_press(struct server *server);

/* Called ten times a second: the same before the limit is reached. Thread: main, an online reader. */
void residency_tick(struct server *server);

/* Whether nothing more can be evicted at the moment: commands that need memory are refused. A load. */
bool residency_is_stuck(const struct server *server);

/* The memory in use at which eviction begins; 0: never. */
uint64_t residency_high_water(const struct config *config);

/* ---- numbers ---- */

struct residency_info {
    uint64_t evicted;       /* filters whose bits are not in memory */
    uint64_t evicted_bytes; /* of these bits */
    uint64_t evictions;     /* filters whose bits have been evicted since the start */
    uint64_t reloads;       /* filters whose bits were read back */
    uint64_t reload_bytes;  /* of these bits */
    uint64_t failed;        /* of the reads: damaged files */
    uint64_t waiting;       /* filters that wait to be read, or are being read */
};
void residency_info(const struct server *server, struct residency_info *info_out);
