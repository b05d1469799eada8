#include "journal_ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ring_create(struct journal_ring **ring_out, struct log_pending *pending, unsigned stream)
{
    struct journal_ring *ring = aligned_alloc(64, sizeof(*ring));
    if (!ring)
        return -ENOMEM;
    *ring = (struct journal_ring){.pending = pending, .stream = stream, .tail_used = PENDING_CHUNK_WORDS};
    *ring_out = ring;
    return 0;
}

/* The chunks are the file's. */
void ring_destroy(struct journal_ring *ring)
{
    free(ring);
}

int ring_get_chunks(struct journal_ring *ring, size_t n)
{
    const size_t each = PENDING_CHUNK_WORDS / PENDING_MOST_WORDS;
    size_t room = (PENDING_CHUNK_WORDS - ring->tail_used) / PENDING_MOST_WORDS;
    return log_pending_reserve(ring->pending, &ring->spare, (n - room + each - 1) / each);
}

static void begin_chunk(struct journal_ring *ring)
{
    struct pending_chunk *full = ring->tail;
    struct pending_chunk *next =
        log_pending_begin(ring->pending, &ring->spare, ring->stream, full ? full->number + 1 : 1);
    ring->chunk_seed = next->check;
    atomic_store_explicit(full ? &full->next : &ring->first, next, memory_order_release);
    ring->tail = next;
    ring->tail_used = 0;
}

/* The add after this publishes the head, and the end of the run before. */
void ring_begin_run(struct journal_ring *ring, uint64_t id, unsigned layer)
{
    if (ring->run)
        atomic_store_explicit(&ring->run->end, ring->tail_used, memory_order_relaxed);
    if (PENDING_CHUNK_WORDS - ring->tail_used < PENDING_MOST_WORDS) {
        CHECK(ring_get_chunks(ring, 1) == 0); /* the add has begun: it cannot be refused any more, nor go unnoted */
        begin_chunk(ring);
    }
    struct pending_head *run = (struct pending_head *)(ring->tail->words + ring->tail_used);
    run->id = ring->id = id;
    ring->layer = layer;
    run->layer = pending_head_layer(ring->chunk_seed, ring->tail_used, id, layer);
    atomic_store_explicit(&run->end, 0, memory_order_relaxed);
    ring->run_seed = pending_run_seed(ring->chunk_seed, id, layer);
    ring->run = run;
    ring->tail_used += PENDING_HEAD_WORDS;
}

/* Both are in one chunk and run; heads without adds fill a chunk that has no room. The second is written first: a start
 * reads a run up to the first invalid record. */
void ring_add_both(void *ctx, uint64_t id, const struct bloom_hash hash[2], unsigned layer, uint64_t ordinal)
{
    struct journal_ring *ring = ctx;
    while (id != ring->id || layer != ring->layer || PENDING_CHUNK_WORDS - ring->tail_used < 2 * PENDING_ADD_WORDS)
        ring_begin_run(ring, id, layer);
    for (unsigned i = 2; i-- > 0; atomic_signal_fence(memory_order_seq_cst)) {
        uint32_t at = ring->tail_used + i * PENDING_ADD_WORDS;
        *(struct bloom_replay_item *)(ring->tail->words + at) = (struct bloom_replay_item){
            hash[i], pending_ordinal(ring->run_seed, at, hash[i], ordinal ? ordinal + i : 0)};
    }
    ring->tail_used += 2 * PENDING_ADD_WORDS;
    atomic_store_explicit(&ring->tail->used, ring->tail_used, memory_order_release);
    uint64_t added = atomic_load_explicit(&ring->added, memory_order_relaxed) + 2;
    atomic_store_explicit(&ring->added, added, memory_order_release);
}

struct log_place ring_end(const struct journal_ring *ring)
{
    return (struct log_place){
        .chunk = ring->tail ? ring->tail->number : 0, .used = ring->tail ? ring->tail_used : 0, .stream = ring->stream};
}

struct ring_mark ring_snapshot(const struct journal_ring *ring)
{
    const struct pending_chunk *chunk =
        ring->written.chunk ? ring->written.chunk : atomic_load_explicit(&ring->first, memory_order_acquire);
    const struct pending_chunk *next;
    if (!chunk)
        return (struct ring_mark){0};
    while ((next = atomic_load_explicit(&chunk->next, memory_order_acquire)))
        chunk = next;
    return (struct ring_mark){chunk, atomic_load_explicit(&chunk->used, memory_order_acquire)};
}

/* The head of a run that was ended before the mark has that end; that of another run has none, or a later one. */
struct ring_run ring_next(const struct journal_ring *ring, struct ring_place *place, const struct ring_mark *mark)
{
    if (!mark->chunk)
        return (struct ring_run){0};
    if (!place->chunk)
        place->chunk = atomic_load_explicit(&ring->first, memory_order_acquire);
    for (;;) {
        const struct pending_chunk *chunk = place->chunk;
        uint32_t limit = chunk == mark->chunk ? mark->used : atomic_load_explicit(&chunk->used, memory_order_acquire);
        CHECK(place->used <= limit);
        if (place->used == limit) {
            if (chunk == mark->chunk)
                return (struct ring_run){0};
            *place = (struct ring_place){.chunk = atomic_load_explicit(&chunk->next, memory_order_acquire),
                                         .count = place->count};
            continue;
        }
        if (place->run) {
            const struct pending_head *run = place->run;
            uint32_t from = place->used, end = atomic_load_explicit(&run->end, memory_order_relaxed);
            if (end == 0 || end > limit)
                end = limit;
            if (from < end) {
                size_t n = (end - from) / PENDING_ADD_WORDS;
                place->used = end;
                place->count += n;
                return (struct ring_run){run->id, PENDING_LAYER(run),
                                         (const struct bloom_replay_item *)(chunk->words + from), n};
            }
        }
        place->run = (const struct pending_head *)(chunk->words + place->used);
        place->used += PENDING_HEAD_WORDS;
    }
}

void ring_written(struct journal_ring *ring, const struct ring_place *place)
{
    CHECK(place->count >= ring->synced.count);
    ring->written = *place;
    atomic_store_explicit(&ring->taken, place->count, memory_order_release);
}

void ring_release(struct journal_ring *ring)
{
    if (!ring->synced.chunk)
        return;
    CHECK(ring->synced.count <= ring->written.count);
    log_pending_put(ring->pending, ring->oldest ? ring->oldest : atomic_load(&ring->first), ring->synced.chunk);
    ring->oldest = ring->synced.chunk;
}

/* ---- control records ---- */

#define CHUNK_ROOM   (PENDING_CHUNK_WORDS * 8)
#define RECORD_EXTRA (sizeof(struct log_control_head) + 128) /* at most, of a record beside its name and contents */

void controls_init(struct journal_controls *c, struct log_pending *pending, unsigned stream, uint64_t next)
{
    *c = (struct journal_controls){.pending = pending, .stream = stream};
    c->end = c->written = c->synced = (struct ring_place){.used = CHUNK_ROOM, .number = next};
}

void controls_deinit(struct journal_controls *c)
{
    log_bytes_deinit(&c->record);
}

static int reserve_chunks(struct journal_controls *c, size_t bytes)
{
    size_t room = CHUNK_ROOM - c->end.used;
    return bytes <= room ? 0 : log_pending_reserve(c->pending, &c->spare, (bytes - room + CHUNK_ROOM - 1) / CHUNK_ROOM);
}

int controls_reserve(struct journal_controls *c, size_t bytes)
{
    int status = log_bytes_reserve(&c->record, bytes + RECORD_EXTRA);
    return status ? status : reserve_chunks(c, bytes + RECORD_EXTRA);
}

static void begin_control_chunk(struct journal_controls *c)
{
    struct pending_chunk *tail = c->end.chunk;
    struct pending_chunk *next = log_pending_begin(c->pending, &c->spare, c->stream, tail ? tail->number + 1 : 1);
    if (tail) {
        atomic_store_explicit(&tail->next, next, memory_order_release);
    } else {
        c->oldest = c->written.chunk = c->synced.chunk = next;
        c->written.used = c->synced.used = 0;
    }
    c->end.chunk = next;
    c->end.used = 0;
}

static void store(struct journal_controls *c, const void *from, size_t len)
{
    const unsigned char *at = from;
    while (len) {
        if (c->end.used == CHUNK_ROOM)
            begin_control_chunk(c);
        size_t n = CHUNK_ROOM - c->end.used < len ? CHUNK_ROOM - c->end.used : len;
        memcpy((unsigned char *)c->end.chunk->words + c->end.used, at, n);
        c->end.used += (uint32_t)n;
        at += n;
        len -= n;
    }
}

int controls_put(struct journal_controls *c, const struct log_control *control)
{
    c->record.len = 0;
    int status = log_control_encode(&c->record, control);
    STEP(status, reserve_chunks(c, c->record.len));
    if (status)
        return status;
    struct log_control_head *head = (struct log_control_head *)(void *)c->record.ptr;
    head->check =
        pending_control_check(log_pending_salt(c->pending), c->end.number, c->record.ptr + sizeof(*head), head->len);
    store(c, c->record.ptr, c->record.len);
    log_pending_noted(c->pending, c->end.number);
    c->end.number++;
    c->end.count += c->record.len;
    atomic_store(&c->waiting, c->end.count - c->written.count);
    return 0;
}

const void *controls_next(struct ring_place *place, const struct ring_place *end, size_t *len_out)
{
    if (place->chunk != end->chunk && place->used == CHUNK_ROOM) {
        place->chunk = atomic_load_explicit(&place->chunk->next, memory_order_acquire);
        place->used = 0;
    }
    const void *bytes = (const unsigned char *)place->chunk->words + place->used;
    *len_out = (place->chunk == end->chunk ? end->used : CHUNK_ROOM) - place->used;
    place->used += (uint32_t)*len_out;
    return bytes;
}

void controls_written(struct journal_controls *c, const struct ring_place *place)
{
    CHECK(place->count >= c->synced.count && place->count <= c->end.count);
    c->written = *place;
    atomic_store(&c->waiting, c->end.count - place->count);
}

void controls_release(struct journal_controls *c)
{
    if (!c->synced.chunk)
        return;
    CHECK(c->synced.count <= c->written.count);
    log_pending_put(c->pending, c->oldest, c->synced.chunk);
    c->oldest = c->synced.chunk;
}
