/* Writing. The file grows by zeros that are written, not by a hole: a store into a mapping cannot fail, so the space
 * must be there before. A killed process leaves its stores in program order. So a state is written whole, over the
 * older one of two, before a chunk is freed. */
#include "log_pending.h"
#include "lock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "alloc.h"
#include "log_frame.h"
#include "log_tail.h"

#define CHUNKS_MAX (1u << 20) /* 64 GB */

struct extent {
    void *memory;
    size_t len;
};

struct log_pending {
    struct log_pending_options options;
    struct path path, log_dir;
    struct lock lock; /* of the file and of the free chunks */
    int fd;           /* -1: not made yet */
    uint64_t size;
    struct extent *extents;
    size_t nextents, extents_size;
    struct pending_chunk *free; /* linked by next */

    /* once there is a file */
    struct pending_hold *_Atomic hold;
    struct pending_state *states[2];
    unsigned newest;
};

/* ---- sizes ---- */

size_t pending_state_bytes(unsigned nstreams)
{
    return sizeof(struct pending_state) + nstreams * sizeof(struct log_place);
}

uint64_t pending_state_check(const struct pending_state *state, unsigned nstreams, uint64_t salt)
{
    return XXH3_64bits_withSeed(&state->frame, pending_state_bytes(nstreams) - offsetof(struct pending_state, frame),
                                salt);
}

size_t pending_state_room(unsigned nstreams)
{
    return (pending_state_bytes(nstreams) + 4095) / 4096 * 4096;
}

uint64_t pending_chunks_at(unsigned nstreams)
{
    uint64_t head = PENDING_HEAD_PART + 2 * pending_state_room(nstreams);

    return (head + PENDING_CHUNK_BYTES - 1) / PENDING_CHUNK_BYTES * PENDING_CHUNK_BYTES;
}

uint64_t pending_chunk_seed(uint64_t salt, unsigned stream, uint64_t number)
{
    return pending_mix(salt, stream, number, 0);
}

uint32_t pending_control_check(uint64_t salt, uint64_t number, const void *bytes, size_t len)
{
    return (uint32_t)XXH3_64bits_withSeed(bytes, len, salt + number * UINT64_C(0x9e3779b97f4a7c15));
}

/* ---- lifetime ---- */

int log_pending_create(struct log_pending **pending_out, const struct log_pending_options *options)
{
    struct log_pending *p = calloc(1, sizeof(*p));
    char name[LOG_FILE_NAME];

    if (!p)
        return -ENOMEM;
    p->options = *options;
    p->fd = -1;
    lock_init(&p->lock, RANK_PENDING);
    log_file_name(options->process, LOG_PENDING, name);
    int rc = path_format(&p->log_dir, NULL, "%s/log", options->dir);
    STEP(rc, path_format(&p->path, NULL, "%s/%s", p->log_dir.text, name));
    if (rc != 0) {
        log_pending_destroy(p, false);
        return rc;
    }
    *pending_out = p;
    return 0;
}

static uint64_t synced_frame(const struct log_pending *p)
{
    return p->fd < 0 ? p->options.frame : p->states[p->newest]->frame;
}

/* The states are in the mapped file: TAIL comes first. */
void log_pending_destroy(struct log_pending *p, bool remove)
{
    if (!p)
        return;
    const struct fsops *fs = p->options.fs;
    if (p->fd >= 0) {
        if (remove && fs->is_at(fs->ctx, p->fd, p->path.text) == 0 &&
            log_tail_end(fs, p->options.dir, synced_frame(p)) == 0)
            fs->unlink(fs->ctx, p->path.text);
        fs->close(fs->ctx, p->fd);
    }
    for (size_t i = 0; i < p->nextents; i++)
        fs->unmap(fs->ctx, p->extents[i].memory, p->extents[i].len);
    lock_deinit(&p->lock);
    free(p->extents);
    free(p);
}

uint64_t log_pending_salt(const struct log_pending *p)
{
    return p->options.salt;
}

/* ---- the file ---- */

/* The following are called under the lock. */
static int map_more(struct log_pending *p, size_t len, void **memory_out)
{
    static const unsigned char zeros[PENDING_CHUNK_BYTES];
    const struct fsops *fs = p->options.fs;
    int rc = 0;
    if (GROW(p->extents, p->nextents, p->extents_size) != 0)
        return -ENOMEM;
    for (size_t at = 0; rc == 0 && at < len; at += sizeof(zeros))
        rc = fs_write_all(fs, p->fd, zeros, sizeof(zeros), p->size + at);
    STEP(rc, fs->map(fs->ctx, p->fd, p->size, len, memory_out));
    if (rc != 0)
        return rc;
    p->extents[p->nextents++] = (struct extent){*memory_out, len};
    p->size += len;
    struct pending_hold *hold = atomic_load(&p->hold);
    if (hold)
        atomic_store(&hold->size, p->size);
    return 0;
}

static void write_state(const struct log_pending *p, struct pending_state *state, uint64_t frame, uint64_t control,
                        const struct log_place *places)
{
    state->check = 0;
    atomic_signal_fence(memory_order_seq_cst); /* a kill may come between any two */
    state->frame = frame;
    state->control = control;
    if (places)
        memcpy(state->places, places, p->options.nstreams * sizeof(*places));
    uint64_t check = pending_state_check(state, p->options.nstreams, p->options.salt);
    atomic_signal_fence(memory_order_seq_cst);
    state->check = check;
    atomic_signal_fence(memory_order_seq_cst);
}

/* An existing file is of a process that recorded nothing; otherwise its number would not be ours. */
static int make_file(struct log_pending *p)
{
    const struct log_pending_options *o = &p->options;
    const struct fsops *fs = o->fs;
    void *memory;
    int rc = fs->mkdir(fs->ctx, p->log_dir.text);

    if (rc == 0 || rc == -EEXIST)
        rc = fs_open_new(fs, p->path.text, FS_READ | FS_WRITE, &p->fd);
    if (rc != 0) {
        p->fd = -1;
        return rc;
    }
    p->size = 0;
    rc = map_more(p, (size_t)pending_chunks_at(o->nstreams), &memory);
    if (rc != 0) {
        fs->close(fs->ctx, p->fd);
        fs->unlink(fs->ctx, p->path.text);
        p->fd = -1;
        return rc;
    }
    struct pending_header header = {
        .version = LOG_VERSION,
        .nstreams = o->nstreams,
        .process = o->process,
        .generation = o->generation,
        .salt = o->salt,
    };
    memcpy(header.magic, PENDING_MAGIC, sizeof(header.magic));
    header.check = XXH3_64bits(&header, offsetof(struct pending_header, check));
    unsigned char *bytes = memory;
    p->states[0] = (struct pending_state *)(void *)(bytes + PENDING_HEAD_PART);
    p->states[1] = (struct pending_state *)(void *)(bytes + PENDING_HEAD_PART + pending_state_room(o->nstreams));
    write_state(p, p->states[p->newest], o->frame, o->control, NULL);
    memcpy(bytes, &header, sizeof(header));
    struct pending_hold *hold = (struct pending_hold *)(void *)(bytes + PENDING_HOLD_AT);
    atomic_store(&hold->size, p->size);
    atomic_store(&p->hold, hold);
    (void)!log_tail_begin(fs, o->dir, o->process); /* without it a start cannot miss the file: it needs no more */
    return 0;
}

static int grow(struct log_pending *p)
{
    void *memory;
    int rc = p->fd < 0 ? make_file(p) : 0;
    if (rc == 0 && p->size / PENDING_CHUNK_BYTES >= CHUNKS_MAX)
        rc = -EFBIG;
    STEP(rc, map_more(p, PENDING_GROWTH, &memory));
    if (rc != 0)
        return rc;
    for (size_t at = PENDING_GROWTH; at > 0; at -= PENDING_CHUNK_BYTES) {
        struct pending_chunk *chunk = (void *)((unsigned char *)memory + at - PENDING_CHUNK_BYTES);
        atomic_store_explicit(&chunk->next, p->free, memory_order_relaxed);
        p->free = chunk;
    }
    return 0;
}

int log_pending_make(struct log_pending *p)
{
    lock_take(&p->lock);
    int rc = p->fd < 0 ? make_file(p) : 0;
    lock_give(&p->lock);
    return rc;
}

int log_pending_settled(struct log_pending *p)
{
    const struct log_pending_options *o = &p->options;

    lock_take(&p->lock);
    int rc = log_tail_end(o->fs, o->dir, synced_frame(p));
    if (rc == 0 && p->fd >= 0)
        (void)!log_tail_begin(o->fs, o->dir, o->process);
    lock_give(&p->lock);
    return rc;
}

void log_pending_look(struct log_pending *p)
{
    const struct log_pending_options *o = &p->options;

    lock_take(&p->lock);
    if (p->fd >= 0 && o->fs->is_at(o->fs->ctx, p->fd, p->path.text) == -ESTALE)
        (void)!log_tail_end(o->fs, o->dir, synced_frame(p));
    lock_give(&p->lock);
}

int log_pending_reserve(struct log_pending *p, struct pending_spare *spare, size_t n)
{
    int rc = 0;

    if (spare->n >= n)
        return 0;
    lock_take(&p->lock);
    while (spare->n < n && (p->free || (rc = grow(p)) == 0)) {
        struct pending_chunk *chunk = p->free;
        p->free = atomic_load_explicit(&chunk->next, memory_order_relaxed);
        atomic_store_explicit(&chunk->next, spare->first, memory_order_relaxed);
        spare->first = chunk;
        spare->n++;
    }
    lock_give(&p->lock);
    return rc;
}

void log_pending_put(struct log_pending *p, struct pending_chunk *first, const struct pending_chunk *end)
{
    if (first == end)
        return;
    lock_take(&p->lock);
    while (first != end) {
        struct pending_chunk *next = atomic_load_explicit(&first->next, memory_order_relaxed);
        atomic_store_explicit(&first->next, p->free, memory_order_relaxed);
        p->free = first;
        first = next;
    }
    lock_give(&p->lock);
}

struct pending_chunk *log_pending_begin(const struct log_pending *p, struct pending_spare *spare, unsigned stream,
                                        uint64_t number)
{
    struct pending_chunk *chunk = spare->first;

    spare->first = atomic_load_explicit(&chunk->next, memory_order_relaxed);
    spare->n--;
    atomic_store_explicit(&chunk->next, NULL, memory_order_relaxed);
    atomic_store_explicit(&chunk->used, 0, memory_order_relaxed);
    chunk->stream = stream;
    chunk->number = number;
    chunk->check = pending_chunk_seed(p->options.salt, stream, number);
    struct pending_hold *hold = atomic_load(&p->hold);
    atomic_store(&chunk->holds, hold ? atomic_load(&hold->begun) : 0);
    if (hold && number == 1)
        atomic_fetch_add(&hold->first, 1);
    return chunk;
}

/* ---- states ---- */

void log_pending_synced(struct log_pending *p, uint64_t frame, uint64_t control, const struct log_place *places)
{
    lock_take(&p->lock); /* another thread may be making the file, with the state before this one */
    if (p->fd < 0) {
        p->options.frame = frame;
        p->options.control = control;
    } else {
        p->newest ^= 1;
        write_state(p, p->states[p->newest], frame, control, places);
    }
    lock_give(&p->lock);
}

void log_pending_noted(const struct log_pending *p, uint64_t number)
{
    struct pending_hold *hold = atomic_load(&p->hold);

    if (hold)
        atomic_store_explicit(&hold->noted, number, memory_order_release);
}

void log_pending_hold(struct log_pending *p, unsigned stream, struct log_place adds, struct log_place controls,
                      struct pending_chunk *const last[2])
{
    (void)!log_pending_make(p); /* a record that finds no room reports it */
    struct pending_hold *hold = atomic_load(&p->hold);
    if (!hold)
        return;
    uint64_t begun = atomic_load(&hold->begun) + 1;
    hold->stream = stream;
    hold->adds = adds;
    hold->controls = controls;
    atomic_store(&hold->active, 1);
    atomic_store(&hold->begun, begun);
    for (unsigned i = 0; i < 2; i++)
        if (last[i])
            atomic_store(&last[i]->holds, begun);
}

void log_pending_release(struct log_pending *p)
{
    struct pending_hold *hold = atomic_load(&p->hold);

    if (hold)
        atomic_store(&hold->active, 0);
}
