/* journal_ring: the queues of records. That of adds, from one worker to the log thread, has one producer and one
 * consumer and no lock; the one of control records, at the end, has the changes of all threads. Consecutive adds to one
 * layer are a run: they share a head. Records have the form that the log's encoder reads (log_payload_tagged_adds()),
 * because each byte here moves from one processor's cache to another's.
 *
 * The queue is made of chunks of the file of pending records (log_pending.h), so a record is in that file before its
 * add takes effect. It has no fixed end, because an add that has begun cannot wait: the producer reserves room
 * beforehand (ring_reserve()). A chunk is freed when its records are in the log (ring_release()).
 *
 * Thread: ring_reserve(), ring_add(), ring_end(): the producer. ring_snapshot(), ring_peek(), ring_done(),
 * ring_taken(), ring_release(): the consumer. ring_queued(): any. */
#ifndef BLOOMERY_JOURNAL_RING_H
#define BLOOMERY_JOURNAL_RING_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "check.h"
#include "log_payload.h"
#include "log_pending.h"

struct journal_ring {
    void *journal; /* its owner */
    struct log_pending *pending;
    unsigned stream;

    /* the producer's */
    alignas(64) struct pending_chunk *tail; /* NULL: there has been no add */
    uint64_t id;                            /* of the current run; 0: none */
    uint32_t layer;
    uint32_t tail_used; /* words; all of it while there is no chunk */
    uint64_t run_seed;
    _Atomic uint64_t added;
    struct pending_head *run;
    uint64_t chunk_seed;
    struct pending_spare spare;

    /* the consumer's */
    alignas(64) struct pending_chunk *_Atomic first; /* set by the producer, once */
    struct pending_chunk *head;                      /* NULL: nothing has been read */
    struct pending_chunk *oldest;                    /* the first chunk that is not freed */
    uint32_t head_used;                              /* words of `head` that have been taken */
    const struct pending_head *head_run;             /* the run at head_used; NULL: a run begins there */
    _Atomic uint64_t taken;
};

/* The ring uses chunks of `pending`, which is borrowed, as this stream. It takes none yet. */
int ring_create(struct journal_ring **ring_out, struct log_pending *pending, unsigned stream); /* 0 or -ENOMEM */
void ring_destroy(struct journal_ring *ring);                                                  /* NULL is fine */

int ring_get_chunks(struct journal_ring *ring, size_t n);                    /* internal */
void ring_begin_run(struct journal_ring *ring, uint64_t id, unsigned layer); /* internal */

/* Reserves room for n records. 0, -ENOMEM, or another -errno: the file cannot grow. */
static inline int ring_reserve(struct journal_ring *ring, size_t n)
{
    return PENDING_CHUNK_WORDS - ring->tail_used >= n * PENDING_MOST_WORDS ? 0 : ring_get_chunks(ring, n);
}

/* Adds a record; the consumer can see it when this returns. Without reserved room and without memory the process ends.
 */
static inline void ring_add(struct journal_ring *ring, uint64_t id, struct bloom_hash hash, unsigned layer,
                            uint64_t ordinal)
{
    if (id != ring->id || layer != ring->layer || PENDING_CHUNK_WORDS - ring->tail_used < PENDING_ADD_WORDS)
        ring_begin_run(ring, id, layer);
    struct pending_chunk *chunk = ring->tail;
    *(struct bloom_replay_item *)(chunk->words + ring->tail_used) =
        (struct bloom_replay_item){hash, pending_ordinal(ring->run_seed, ring->tail_used, hash, ordinal)};
    ring->tail_used += PENDING_ADD_WORDS;
    atomic_store_explicit(&chunk->used, ring->tail_used, memory_order_release);
    atomic_store_explicit(&ring->added, atomic_load_explicit(&ring->added, memory_order_relaxed) + 1,
                          memory_order_release);
}

/* add_both() of struct bloom_journal_ops, whose ctx is the ring: the consumer, or a start after a kill, sees both
 * records or neither. */
void ring_add_both(void *ctx, uint64_t id, const struct bloom_hash hash[2], unsigned layer, uint64_t ordinal);

static inline size_t ring_queued(const struct journal_ring *ring)
{
    uint64_t taken = atomic_load_explicit(&ring->taken, memory_order_acquire);
    return (size_t)(atomic_load_explicit(&ring->added, memory_order_acquire) - taken);
}

/* The end of the ring: after all records that were added before the call. */
struct ring_mark {
    const struct pending_chunk *chunk; /* NULL: there has been no add */
    uint32_t used;
};
struct ring_mark ring_snapshot(const struct journal_ring *ring);

/* The next records up to the mark, all of one layer. n is 0 at the mark. They are valid until ring_done(), which takes
 * the first n of them away. Their ordinals have the checks of the file in the upper bits. */
struct ring_run {
    uint64_t id;
    unsigned layer;
    const struct bloom_replay_item *items;
    size_t n;
};
struct ring_run ring_peek(struct journal_ring *ring, const struct ring_mark *mark);
void ring_done(struct journal_ring *ring, size_t n);

/* The place after the last record taken; and, for the producer, after the last one added. */
struct pending_place ring_taken(const struct journal_ring *ring);
struct pending_place ring_end(const struct journal_ring *ring);

/* Frees the chunks of records that have been taken: they are in the log. */
void ring_release(struct journal_ring *ring);

/* ---- control records ---- */

/* The queue of encoded control records. It is in memory for the log thread, and in the file of
 * pending records (log_pending.h) for the start after a kill. Room is reserved beforehand, so that a change that has
 * begun can be recorded.
 *
 * Thread: one at a time; the caller has the lock. */

struct journal_controls {
    struct log_bytes bytes; /* the records that the log thread has not taken yet */
    uint64_t next;          /* the number of the next record */

    struct log_pending *pending;
    unsigned stream;
    struct pending_chunk *oldest, *tail; /* in use, linked by next; NULL: none */
    struct pending_spare spare;
    uint32_t used; /* bytes of the tail; all of it while there is none */
};

void controls_init(struct journal_controls *controls, struct log_pending *pending, unsigned stream, uint64_t next);
void controls_deinit(struct journal_controls *controls);

/* Reserves room for `bytes` bytes of records. 0, -ENOMEM, or another -errno: the file cannot grow. */
int controls_reserve(struct journal_controls *controls, size_t bytes) __attribute__((warn_unused_result));

/* Appends a record. 0, or as above: nothing has been appended. */
int controls_put(struct journal_controls *controls, const struct log_control *control)
    __attribute__((warn_unused_result));

/* The place after the last record. */
struct pending_place controls_end(const struct journal_controls *controls);

/* Frees the chunks of the records before that place, which are in the log. */
void controls_release(struct journal_controls *controls, struct pending_place place);

#endif
