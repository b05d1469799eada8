/* journal_ring: what one thread has added and the log thread has not yet taken: a queue of records with one producer and
 * one consumer, without a lock.
 *
 * It is made of chunks that are handed back and forth, so that a daemon that adds little touches little memory. It has no
 * fixed end, because an add that has begun cannot wait: the producer makes sure of room beforehand (ring_reserve()).
 *
 * Thread: ring_reserve(), ring_add(): the producer. ring_snapshot(), ring_take(): the consumer. ring_queued(): any. */
#ifndef BLOOMERY_JOURNAL_RING_H
#define BLOOMERY_JOURNAL_RING_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "check.h"

#define RING_CHUNK_RECORDS 2047
#define RING_LAYER_BITS    6

_Static_assert(BLOOM_MAX_LAYERS == 1 << RING_LAYER_BITS, "a layer's index shares a word with the ordinal");

struct ring_record {
    uint64_t id;
    struct bloom_hash hash;
    uint64_t place; /* ordinal << RING_LAYER_BITS | layer */
};

struct ring_chunk {
    struct ring_chunk *_Atomic next;
    _Atomic uint32_t used;
    struct ring_record records[RING_CHUNK_RECORDS];
};

struct journal_ring {
    void *journal; /* whose it is */

    /* the producer's */
    alignas(64) struct ring_chunk *tail;
    uint32_t tail_used;
    size_t room;                 /* records that fit into `tail` and `spare` */
    struct ring_chunk *spare;    /* linked by next */
    _Atomic uint64_t added;

    /* the consumer's */
    alignas(64) struct ring_chunk *head;
    uint32_t head_used;          /* records of `head` that have been taken */
    _Atomic uint64_t taken;

    alignas(64) pthread_mutex_t lock; /* of what follows: chunks on their way back */
    struct ring_chunk *free;
    size_t nfree;
};

int ring_create(struct journal_ring **ring_out); /* 0 or -ENOMEM */
void ring_destroy(struct journal_ring *ring);    /* NULL is fine */

int ring_get_chunks(struct journal_ring *ring, size_t n); /* internal */

/* Makes sure that n records can be added. 0 or -ENOMEM. */
static inline int ring_reserve(struct journal_ring *ring, size_t n)
{
    return ring->room >= n ? 0 : ring_get_chunks(ring, n);
}

/* Adds a record, which the consumer can see when this returns. Room should have been made:
 * without it, and without memory, the process ends. */
static inline void ring_add(struct journal_ring *ring, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal)
{
    struct ring_chunk *chunk = ring->tail;

    if (ring->room == 0)
        CHECK(ring_get_chunks(ring, 1) == 0); /* the add has begun: it cannot be refused any more, nor go unnoted */
    ring->room--;
    if (ring->tail_used == RING_CHUNK_RECORDS) {
        struct ring_chunk *next = ring->spare;
        ring->spare = atomic_load_explicit(&next->next, memory_order_relaxed);
        atomic_store_explicit(&next->next, NULL, memory_order_relaxed);
        atomic_store_explicit(&next->used, 0, memory_order_relaxed);
        atomic_store_explicit(&chunk->next, next, memory_order_release);
        ring->tail = chunk = next;
        ring->tail_used = 0;
    }
    chunk->records[ring->tail_used++] = (struct ring_record){id, hash, ordinal << RING_LAYER_BITS | layer};
    atomic_store_explicit(&chunk->used, ring->tail_used, memory_order_release);
    atomic_store_explicit(&ring->added, atomic_load_explicit(&ring->added, memory_order_relaxed) + 1,
                          memory_order_release);
}

static inline size_t ring_queued(const struct journal_ring *ring)
{
    uint64_t taken = atomic_load_explicit(&ring->taken, memory_order_acquire);
    return (size_t)(atomic_load_explicit(&ring->added, memory_order_acquire) - taken);
}

/* How far the ring is filled now: everything that was added before the call. */
struct ring_mark {
    const struct ring_chunk *chunk;
    uint32_t used;
};
struct ring_mark ring_snapshot(const struct journal_ring *ring);

/* The next records up to the mark: returns how many, 0 at the mark. They are valid until ring_done(), which takes the first
 * n of them away. */
size_t ring_peek(const struct journal_ring *ring, const struct ring_mark *mark, const struct ring_record **records_out);
void ring_done(struct journal_ring *ring, size_t n);

#endif
