/* journal_ring: what one thread has added and the log thread has not yet taken: a queue of records with one producer and
 * one consumer, without a lock. Adds to one layer that follow each other are a run: they share a head, and lie as the log's
 * encoder reads them (log_payload_adds()), since every byte here goes from one processor's cache to another's.
 *
 * It is made of chunks that are handed back and forth, so that a daemon that adds little touches little memory. It has no
 * fixed end, because an add that has begun cannot wait: the producer makes sure of room beforehand (ring_reserve()).
 *
 * Thread: ring_reserve(), ring_add(): the producer. ring_snapshot(), ring_peek(), ring_done(): the consumer. ring_queued(): any. */
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

#define RING_ADD_WORDS   3
#define RING_HEAD_WORDS  2
#define RING_MOST_WORDS  (RING_HEAD_WORDS + RING_ADD_WORDS) /* of one add: the first of a run */
#define RING_CHUNK_WORDS 8190

struct ring_head {
    uint64_t id;
    uint32_t layer;
    _Atomic uint32_t end; /* in words; 0: the run goes on */
};

_Static_assert(sizeof(struct bloom_replay_item) == RING_ADD_WORDS * sizeof(uint64_t), "an add's size in words");
_Static_assert(sizeof(struct ring_head) == RING_HEAD_WORDS * sizeof(uint64_t), "a head's size in words");

struct ring_chunk {
    struct ring_chunk *_Atomic next;
    _Atomic uint32_t used; /* words: whole adds; the last ones once there is a next chunk */
    uint64_t words[];      /* runs: a struct ring_head, then struct bloom_replay_item */
};

struct journal_ring {
    void *journal; /* whose it is */

    /* the producer's */
    alignas(64) struct ring_chunk *tail;
    uint64_t id;                 /* of the run that goes on; 0: none does */
    uint32_t layer;
    uint32_t tail_used;
    _Atomic uint64_t added;
    struct ring_head *run;
    struct ring_chunk *spare;    /* linked by next */
    size_t nspare;

    /* the consumer's */
    alignas(64) struct ring_chunk *head;
    uint32_t head_used;          /* words of `head` that have been taken */
    const struct ring_head *head_run; /* where head_used is in; NULL: at the beginning of one */
    _Atomic uint64_t taken;

    alignas(64) pthread_mutex_t lock; /* of what follows: chunks on their way back */
    struct ring_chunk *free;
    size_t nfree;
};

int ring_create(struct journal_ring **ring_out); /* 0 or -ENOMEM */
void ring_destroy(struct journal_ring *ring);    /* NULL is fine */

int ring_get_chunks(struct journal_ring *ring, size_t n); /* internal */
void ring_begin_run(struct journal_ring *ring, uint64_t id, unsigned layer); /* internal */

/* Makes sure that n records can be added. 0 or -ENOMEM. */
static inline int ring_reserve(struct journal_ring *ring, size_t n)
{
    return RING_CHUNK_WORDS - ring->tail_used >= n * RING_MOST_WORDS ? 0 : ring_get_chunks(ring, n);
}

/* Adds a record, which the consumer can see when this returns. Room should have been made:
 * without it, and without memory, the process ends. */
static inline void ring_add(struct journal_ring *ring, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal)
{
    if (id != ring->id || layer != ring->layer || RING_CHUNK_WORDS - ring->tail_used < RING_ADD_WORDS)
        ring_begin_run(ring, id, layer);
    struct ring_chunk *chunk = ring->tail;
    *(struct bloom_replay_item *)(chunk->words + ring->tail_used) = (struct bloom_replay_item){hash, ordinal};
    ring->tail_used += RING_ADD_WORDS;
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

/* The next records up to the mark, all of one layer. n is 0 at the mark. They are valid until ring_done(), which takes the
 * first n of them away. */
struct ring_run {
    uint64_t id;
    unsigned layer;
    const struct bloom_replay_item *items;
    size_t n;
};
struct ring_run ring_peek(struct journal_ring *ring, const struct ring_mark *mark);
void ring_done(struct journal_ring *ring, size_t n);

#endif
