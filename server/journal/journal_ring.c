#include "journal_ring.h"

#include <errno.h>
#include <stdlib.h>

#define FREE_MAX 32 /* chunks kept for the producer: 2 MB */

static struct ring_chunk *chunk_new(void)
{
    struct ring_chunk *chunk = malloc(sizeof(*chunk) + RING_CHUNK_WORDS * sizeof(chunk->words[0]));
    if (chunk) {
        atomic_init(&chunk->next, NULL);
        atomic_init(&chunk->used, 0);
    }
    return chunk;
}

int ring_create(struct journal_ring **ring_out)
{
    struct journal_ring *ring = aligned_alloc(64, sizeof(*ring));
    struct ring_chunk *chunk = chunk_new();
    if (!ring || !chunk) {
        free(ring);
        free(chunk);
        return -ENOMEM;
    }
    *ring = (struct journal_ring){.tail = chunk, .head = chunk};
    pthread_mutex_init(&ring->lock, NULL);
    *ring_out = ring;
    return 0;
}

static void free_list(struct ring_chunk *chunk)
{
    while (chunk) {
        struct ring_chunk *next = atomic_load_explicit(&chunk->next, memory_order_relaxed);
        free(chunk);
        chunk = next;
    }
}

void ring_destroy(struct journal_ring *ring)
{
    if (!ring)
        return;
    free_list(ring->head);
    free_list(ring->spare);
    free_list(ring->free);
    pthread_mutex_destroy(&ring->lock);
    free(ring);
}

static struct ring_chunk *take_free(struct journal_ring *ring)
{
    pthread_mutex_lock(&ring->lock);
    struct ring_chunk *chunk = ring->free;
    if (chunk) {
        ring->free = atomic_load_explicit(&chunk->next, memory_order_relaxed);
        ring->nfree--;
    }
    pthread_mutex_unlock(&ring->lock);
    return chunk ? chunk : chunk_new();
}

int ring_get_chunks(struct journal_ring *ring, size_t n)
{
    size_t room = (RING_CHUNK_WORDS - ring->tail_used) / RING_MOST_WORDS;
    while (room + ring->nspare * (RING_CHUNK_WORDS / RING_MOST_WORDS) < n) {
        struct ring_chunk *chunk = take_free(ring);
        if (!chunk)
            return -ENOMEM;
        atomic_store_explicit(&chunk->next, ring->spare, memory_order_relaxed);
        ring->spare = chunk;
        ring->nspare++;
    }
    return 0;
}

static void begin_chunk(struct journal_ring *ring)
{
    struct ring_chunk *next = ring->spare, *full = ring->tail;
    ring->spare = atomic_load_explicit(&next->next, memory_order_relaxed);
    ring->nspare--;
    atomic_store_explicit(&next->next, NULL, memory_order_relaxed);
    atomic_store_explicit(&next->used, 0, memory_order_relaxed);
    atomic_store_explicit(&full->next, next, memory_order_release);
    ring->tail = next;
    ring->tail_used = 0;
}

/* The add after this publishes the head, and the end of the run before. */
void ring_begin_run(struct journal_ring *ring, uint64_t id, unsigned layer)
{
    if (ring->run)
        atomic_store_explicit(&ring->run->end, ring->tail_used, memory_order_relaxed);
    if (RING_CHUNK_WORDS - ring->tail_used < RING_MOST_WORDS) {
        CHECK(ring_get_chunks(ring, 1) == 0); /* the add has begun: it cannot be refused any more, nor go unnoted */
        begin_chunk(ring);
    }
    struct ring_head *run = (struct ring_head *)(ring->tail->words + ring->tail_used);
    run->id = ring->id = id;
    run->layer = ring->layer = layer;
    atomic_store_explicit(&run->end, 0, memory_order_relaxed);
    ring->run = run;
    ring->tail_used += RING_HEAD_WORDS;
}

struct ring_mark ring_snapshot(const struct journal_ring *ring)
{
    const struct ring_chunk *chunk = ring->head, *next;
    while ((next = atomic_load_explicit(&chunk->next, memory_order_acquire)))
        chunk = next;
    return (struct ring_mark){chunk, atomic_load_explicit(&chunk->used, memory_order_acquire)};
}

/* All of the chunk has been taken, and there is a next one. */
static void leave_chunk(struct journal_ring *ring)
{
    struct ring_chunk *chunk = ring->head;
    ring->head = atomic_load_explicit(&chunk->next, memory_order_acquire);
    ring->head_used = 0;
    ring->head_run = NULL;
    pthread_mutex_lock(&ring->lock);
    bool keep = ring->nfree < FREE_MAX;
    if (keep) {
        atomic_store_explicit(&chunk->next, ring->free, memory_order_relaxed);
        ring->free = chunk;
        ring->nfree++;
    }
    pthread_mutex_unlock(&ring->lock);
    if (!keep)
        free(chunk);
}

/* A run that was ended before the mark says so in its head; one that was not says nothing, or an end that is not before it. */
struct ring_run ring_peek(struct journal_ring *ring, const struct ring_mark *mark)
{
    for (;;) {
        const struct ring_chunk *chunk = ring->head;
        uint32_t limit = chunk == mark->chunk ? mark->used : atomic_load_explicit(&chunk->used, memory_order_acquire);
        if (ring->head_used == limit) {
            if (chunk == mark->chunk)
                return (struct ring_run){0};
            leave_chunk(ring);
            continue;
        }
        if (ring->head_run) {
            const struct ring_head *run = ring->head_run;
            uint32_t end = atomic_load_explicit(&run->end, memory_order_relaxed);
            if (end == 0 || end > limit)
                end = limit;
            if (ring->head_used < end)
                return (struct ring_run){run->id, run->layer,
                                         (const struct bloom_replay_item *)(chunk->words + ring->head_used),
                                         (end - ring->head_used) / RING_ADD_WORDS};
        }
        ring->head_run = (const struct ring_head *)(chunk->words + ring->head_used);
        ring->head_used += RING_HEAD_WORDS;
    }
}

void ring_done(struct journal_ring *ring, size_t n)
{
    ring->head_used += (uint32_t)n * RING_ADD_WORDS;
    atomic_store_explicit(&ring->taken, atomic_load_explicit(&ring->taken, memory_order_relaxed) + n, memory_order_release);
}
