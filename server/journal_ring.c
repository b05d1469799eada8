#include "journal_ring.h"

#include <errno.h>
#include <stdlib.h>

#define FREE_MAX 32 /* chunks kept for the producer: 2 MB */

static struct ring_chunk *chunk_new(void)
{
    struct ring_chunk *chunk = malloc(sizeof(*chunk));
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
    *ring = (struct journal_ring){.tail = chunk, .head = chunk, .room = RING_CHUNK_RECORDS};
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
    while (ring->room < n) {
        struct ring_chunk *chunk = take_free(ring);
        if (!chunk)
            return -ENOMEM;
        atomic_store_explicit(&chunk->next, ring->spare, memory_order_relaxed);
        ring->spare = chunk;
        ring->room += RING_CHUNK_RECORDS;
    }
    return 0;
}

struct ring_mark ring_snapshot(const struct journal_ring *ring)
{
    const struct ring_chunk *chunk = ring->head, *next;
    while ((next = atomic_load_explicit(&chunk->next, memory_order_acquire)))
        chunk = next;
    return (struct ring_mark){chunk, atomic_load_explicit(&chunk->used, memory_order_acquire)};
}

size_t ring_peek(const struct journal_ring *ring, const struct ring_mark *mark, const struct ring_record **records_out)
{
    const struct ring_chunk *chunk = ring->head;
    uint32_t from = ring->head_used;
    if (chunk != mark->chunk && from == RING_CHUNK_RECORDS) {
        chunk = atomic_load_explicit(&chunk->next, memory_order_acquire);
        from = 0;
    }
    *records_out = chunk->records + from;
    return (chunk == mark->chunk ? mark->used : RING_CHUNK_RECORDS) - from;
}

void ring_done(struct journal_ring *ring, size_t n)
{
    struct ring_chunk *chunk = ring->head;
    if (ring->head_used == RING_CHUNK_RECORDS && n) {
        ring->head = atomic_load_explicit(&chunk->next, memory_order_acquire);
        ring->head_used = 0;
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
    ring->head_used += (uint32_t)n;
    atomic_store_explicit(&ring->taken, atomic_load_explicit(&ring->taken, memory_order_relaxed) + n, memory_order_release);
}
