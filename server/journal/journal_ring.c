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
    return n <= room ? 0 : log_pending_reserve(ring->pending, &ring->spare, (n - room + each - 1) / each);
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

struct pending_place ring_end(const struct journal_ring *ring)
{
    return ring->tail ? (struct pending_place){.chunk = ring->tail->number, .used = ring->tail_used}
                      : (struct pending_place){0};
}

struct ring_mark ring_snapshot(const struct journal_ring *ring)
{
    const struct pending_chunk *chunk =
        ring->head ? ring->head : atomic_load_explicit(&ring->first, memory_order_acquire);
    const struct pending_chunk *next;
    if (!chunk)
        return (struct ring_mark){0};
    while ((next = atomic_load_explicit(&chunk->next, memory_order_acquire)))
        chunk = next;
    return (struct ring_mark){chunk, atomic_load_explicit(&chunk->used, memory_order_acquire)};
}

/* All of the chunk has been taken, and there is a next one. */
static void leave_chunk(struct journal_ring *ring)
{
    ring->head = atomic_load_explicit(&ring->head->next, memory_order_acquire);
    ring->head_used = 0;
    ring->head_run = NULL;
}

/* The head of a run that was ended before the mark has that end; the head of another run has no end, or one that is not
 * before the mark. */
struct ring_run ring_peek(struct journal_ring *ring, const struct ring_mark *mark)
{
    if (!mark->chunk)
        return (struct ring_run){0};
    if (!ring->head)
        ring->head = ring->oldest = atomic_load_explicit(&ring->first, memory_order_acquire);
    for (;;) {
        const struct pending_chunk *chunk = ring->head;
        uint32_t limit = chunk == mark->chunk ? mark->used : atomic_load_explicit(&chunk->used, memory_order_acquire);
        if (ring->head_used == limit) {
            if (chunk == mark->chunk)
                return (struct ring_run){0};
            leave_chunk(ring);
            continue;
        }
        if (ring->head_run) {
            const struct pending_head *run = ring->head_run;
            uint32_t end = atomic_load_explicit(&run->end, memory_order_relaxed);
            if (end == 0 || end > limit)
                end = limit;
            if (ring->head_used < end)
                return (struct ring_run){run->id, PENDING_LAYER(run),
                                         (const struct bloom_replay_item *)(chunk->words + ring->head_used),
                                         (end - ring->head_used) / PENDING_ADD_WORDS};
        }
        ring->head_run = (const struct pending_head *)(chunk->words + ring->head_used);
        ring->head_used += PENDING_HEAD_WORDS;
    }
}

void ring_done(struct journal_ring *ring, size_t n)
{
    ring->head_used += (uint32_t)n * PENDING_ADD_WORDS;
    atomic_store_explicit(&ring->taken, atomic_load_explicit(&ring->taken, memory_order_relaxed) + n,
                          memory_order_release);
}

struct pending_place ring_taken(const struct journal_ring *ring)
{
    const struct pending_chunk *head = ring->head;
    if (!head)
        return (struct pending_place){0};
    uint32_t run = ring->head_run ? (uint32_t)((const uint64_t *)ring->head_run - head->words) + PENDING_HEAD_WORDS : 0;
    return (struct pending_place){head->number, ring->head_used, run};
}

void ring_release(struct journal_ring *ring)
{
    log_pending_put(ring->pending, ring->oldest, ring->head);
    ring->oldest = ring->head;
}

/* ---- control records ---- */

#define CHUNK_ROOM   (PENDING_CHUNK_WORDS * 8)
#define RECORD_EXTRA (sizeof(struct pending_control) + 128) /* at most, of a record beside its name and contents */

void controls_init(struct journal_controls *c, struct log_pending *pending, unsigned stream, uint64_t next)
{
    *c = (struct journal_controls){.pending = pending, .stream = stream, .next = next, .used = CHUNK_ROOM};
}

void controls_deinit(struct journal_controls *c)
{
    log_bytes_deinit(&c->bytes);
}

static int reserve_chunks(struct journal_controls *c, size_t bytes)
{
    size_t room = CHUNK_ROOM - c->used;
    return bytes <= room ? 0 : log_pending_reserve(c->pending, &c->spare, (bytes - room + CHUNK_ROOM - 1) / CHUNK_ROOM);
}

int controls_reserve(struct journal_controls *c, size_t bytes)
{
    int status = log_bytes_reserve(&c->bytes, bytes + 128);
    return status ? status : reserve_chunks(c, bytes + RECORD_EXTRA);
}

static void begin_control_chunk(struct journal_controls *c)
{
    struct pending_chunk *next = log_pending_begin(c->pending, &c->spare, c->stream, c->tail ? c->tail->number + 1 : 1);
    if (c->tail)
        atomic_store_explicit(&c->tail->next, next, memory_order_relaxed);
    else
        c->oldest = next;
    c->tail = next;
    c->used = 0;
}

static void store(struct journal_controls *c, const void *from, size_t len)
{
    const unsigned char *at = from;
    while (len) {
        if (c->used == CHUNK_ROOM)
            begin_control_chunk(c);
        size_t n = CHUNK_ROOM - c->used < len ? CHUNK_ROOM - c->used : len;
        memcpy((unsigned char *)c->tail->words + c->used, at, n);
        c->used += (uint32_t)n;
        at += n;
        len -= n;
    }
}

int controls_put(struct journal_controls *c, const struct log_control *control)
{
    size_t before = c->bytes.len;
    int status = log_control_encode(&c->bytes, control);
    if (status == 0)
        status = reserve_chunks(c, sizeof(struct pending_control) + c->bytes.len - before);
    if (status) {
        c->bytes.len = before;
        return status;
    }
    const unsigned char *record = c->bytes.ptr + before;
    size_t len = c->bytes.len - before;
    const struct pending_control head = {
        .len = (uint32_t)len, .check = pending_control_check(log_pending_salt(c->pending), c->next, record, len)};
    store(c, &head, sizeof(head));
    store(c, record, len);
    c->next++;
    return 0;
}

struct pending_place controls_end(const struct journal_controls *c)
{
    return c->tail ? (struct pending_place){.chunk = c->tail->number, .used = c->used} : (struct pending_place){0};
}

void controls_release(struct journal_controls *c, struct pending_place place)
{
    struct pending_chunk *end = c->oldest;
    while (end && end->number < place.chunk)
        end = atomic_load_explicit(&end->next, memory_order_relaxed);
    log_pending_put(c->pending, c->oldest, end);
    c->oldest = end;
}
