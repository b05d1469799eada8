/* journal_ring: the queues of records. That of adds, from one worker to the log thread, has one producer and one
 * consumer and no lock; the one of control records, at the end, has the changes of all threads. Consecutive adds to one
 * layer are a run: they share a head. Items have the form that they have in a payload of the log, so they are copied as
 * they are.
 *
 * The queue is made of chunks of the file of pending records (log_pending.h), so a record is in that file before its
 * add takes effect. It has no fixed end, because an add that has begun cannot wait: the producer reserves room
 * beforehand (ring_reserve()). The consumer has two places: up to `written` the log has the records, and up to `synced`
 * they are on the disk. A chunk is freed behind `synced`; after a failure `written` goes back there.
 *
 * Thread: ring_reserve(), ring_add(), ring_end(): the producer. ring_queued(): any. The others: the consumer. */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "check.h"
#include "log_payload.h"
#include "log_pending.h"

/* A place in a queue, of its end or of the consumer. */
struct ring_place {
    struct pending_chunk *chunk;    /* NULL: before the first */
    uint32_t used;                  /* words of it before this place; bytes of control records */
    const struct pending_head *run; /* adds: that continues here; NULL: a run begins */
    uint64_t count;                 /* records before this place, ever; bytes of control records */
    uint64_t number;                /* of the next control record */
};

static inline struct log_place ring_place_of(const struct ring_place *place, unsigned stream)
{
    return (struct log_place){place->chunk ? place->chunk->number : 0, place->chunk ? place->used : 0,
                              .stream = stream};
}

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
    struct ring_place written, synced;
    struct pending_chunk *oldest; /* the first chunk that is not freed; NULL: the first one */
    _Atomic uint64_t taken;       /* written.records */
};

/* The ring uses chunks of `pending`, which is borrowed, as this stream. It takes none yet. */
int ring_create(struct journal_ring **ring_out, struct log_pending *pending, unsigned stream); /* 0 or -ENOMEM */
void ring_destroy(struct journal_ring *ring);                                                  /* NULL is fine */

int ring_get_chunks(struct journal_ring *ring, size_t n);                    /* internal: more chunks for n records */
void ring_begin_run(struct journal_ring *ring, uint64_t id, unsigned layer); /* internal */

/* Reserves room for n records. 0, -ENOMEM, or another -errno: the file cannot grow. */
static inline int ring_reserve(struct journal_ring *ring, size_t n)
{
    return PENDING_CHUNK_WORDS - ring->tail_used >= n * PENDING_MOST_WORDS ? 0 : ring_get_chunks(ring, n);
}

/* Adds a record; the consumer can see it when this returns. Without reserved room or memory the process ends. */
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

/* The next records after the place and up to the mark, all of one layer, and moves the place after them. n is 0 at the
 * mark. Their ordinals have the checks of the file in the upper bits. */
struct ring_run {
    uint64_t id;
    unsigned layer;
    const struct bloom_replay_item *items;
    size_t n;
};
struct ring_run ring_next(const struct journal_ring *ring, struct ring_place *place, const struct ring_mark *mark);

void ring_written(struct journal_ring *ring, const struct ring_place *place);

/* The place after the last record added. */
struct log_place ring_end(const struct journal_ring *ring);

/* Frees the chunks of synced records, after log_pending_synced(). */
void ring_release(struct journal_ring *ring);

/* ---- control records ---- */

/* The queue of encoded control records, with the same two places. Room is reserved beforehand, so that a change that
 * has begun can be recorded.
 *
 * Thread: one at a time; the caller has the lock. controls_next(): without it, up to a place that has been noted.
 * controls_waiting(): any. */

struct journal_controls {
    struct ring_place end, written, synced;
    struct log_pending *pending;
    unsigned stream;
    struct pending_chunk *oldest; /* of those in use, linked by next; NULL: none */
    struct pending_spare spare;
    struct log_bytes record;  /* the one that is being stored */
    _Atomic uint64_t waiting; /* bytes that are not written */
};

void controls_init(struct journal_controls *controls, struct log_pending *pending, unsigned stream, uint64_t next);
void controls_deinit(struct journal_controls *controls);

/* Reserves room for `bytes` bytes of records. 0, -ENOMEM, or another -errno: the file cannot grow. */
int controls_reserve(struct journal_controls *controls, size_t bytes) __attribute__((warn_unused_result));

/* Appends a record. 0, or as above: nothing has been appended. */
int controls_put(struct journal_controls *controls, const struct log_control *control)
    __attribute__((warn_unused_result));

static inline size_t controls_waiting(const struct journal_controls *controls)
{
    return (size_t)atomic_load(&controls->waiting);
}

/* The next bytes of records between the place and the end, and moves the place after them; *len_out: 0 at the end. */
const void *controls_next(struct ring_place *place, const struct ring_place *end, size_t *len_out);

void controls_written(struct journal_controls *controls, const struct ring_place *place);
void controls_release(struct journal_controls *controls);
