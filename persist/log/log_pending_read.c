/* Reading. A first pass reads only the heads of the chunks, to find the used ones: the file of a busy process is large,
 * and little of it is pending. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "log_pending.h"
#include "manifest.h"
#include "errbuf.h"

#define CONTROL_MAX (64u << 20) /* no control record is longer */

struct chunk_ref {
    uint32_t stream;
    uint64_t number;
    uint64_t offset;
};

struct reading {
    const struct fsops *fs;
    const char *path;
    bool here;
    int fd;
    struct pending_header header;
    struct pending_hold hold;
    struct pending_state *state;
    struct pending_state *later; /* of a frame that is not in the log; NULL: none */
    bool incomplete;             /* a part of that frame is not here any more */
    struct chunk_ref *refs;
    size_t nrefs;
    struct pending_chunk *chunk; /* the one that is being read */
    struct log_bytes controls;
    struct log_bytes *payload;
};

/* ---- the head of the file ---- */

static int not_written(struct errbuf *err)
{
    errbuf_set(err, "it is incomplete or damaged, as after a power failure");
    return LOG_DAMAGED;
}

/* Finds the state of the two that goes with the frame. If the other one is of a later frame, which the log lost, all
 * records of that frame must be here. */
static int read_states(struct reading *r, uint64_t frame, uint64_t *newest_out, struct errbuf *err)
{
    size_t bytes = pending_state_bytes(r->header.nstreams), room = pending_state_room(r->header.nstreams);
    struct pending_state *states[2] = {malloc(bytes), malloc(bytes)};
    bool valid[2] = {false, false};
    int rc = states[0] && states[1] ? 0 : -ENOMEM;

    for (unsigned i = 0; rc == 0 && i < 2; i++) {
        rc = fs_read_all(r->fs, r->fd, states[i], bytes, PENDING_HEAD_PART + i * room);
        valid[i] = rc == 0 && states[i]->check == pending_state_check(states[i], r->header.nstreams, r->header.salt);
    }
    *newest_out = 0;
    for (unsigned i = 0; i < 2; i++) {
        if (valid[i] && states[i]->frame > *newest_out)
            *newest_out = states[i]->frame;
        if (!valid[i] || (states[i]->frame != frame && states[i]->frame < frame)) {
            free(states[i]);
        } else if (states[i]->frame == frame && !r->state) {
            r->state = states[i];
        } else {
            free(r->later);
            r->later = states[i];
        }
    }
    if (rc == 0 && !valid[0] && !valid[1])
        rc = not_written(err);
    return rc == FS_ENDS ? not_written(err) : rc;
}

static int read_header(struct reading *r, struct errbuf *err)
{
    int rc = fs_read_all(r->fs, r->fd, &r->header, sizeof(r->header), 0);

    if (rc == 0)
        rc = fs_read_all(r->fs, r->fd, &r->hold, sizeof(r->hold), PENDING_HOLD_AT);
    if (rc != 0)
        return rc == FS_ENDS ? not_written(err) : rc;
    const struct pending_header *h = &r->header;
    if (memcmp(h->magic, PENDING_MAGIC, sizeof(h->magic)) != 0 ||
        h->check != XXH3_64bits(h, offsetof(struct pending_header, check)))
        return not_written(err);
    if (h->version != LOG_VERSION) {
        errbuf_set(err, WRITTEN_BY_NEWER ": its format has version %u, and this program knows version %d", h->version,
                   LOG_VERSION);
        return LOG_NEWER;
    }
    r->here = h->place && h->place == pending_place(r->fs, r->path, h->salt);
    return h->nstreams == 0 || h->nstreams > 65536 ? not_written(err) : 0;
}

/* ---- chunks ---- */

static int by_place(const void *a, const void *b)
{
    const struct chunk_ref *x = a, *y = b;

    if (x->stream != y->stream)
        return x->stream < y->stream ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int list_chunks(struct reading *r, struct errbuf *err)
{
    uint64_t size, first = pending_chunks_at(r->header.nstreams);
    uint64_t holds, begun = atomic_load(&r->hold.begun);
    struct pending_chunk head;
    int rc = r->fs->size(r->fs->ctx, r->fd, &size);

    if (rc != 0 || size < first + PENDING_CHUNK_BYTES)
        return rc;
    r->refs = malloc((size_t)((size - first) / PENDING_CHUNK_BYTES) * sizeof(*r->refs));
    if (!r->refs)
        return -ENOMEM;
    for (uint64_t at = first; rc == 0 && at + PENDING_CHUNK_BYTES <= size; at += PENDING_CHUNK_BYTES) {
        rc = fs_read_all(r->fs, r->fd, &head, PENDING_CHUNK_HEAD, at);
        if (rc == 0)
            rc = fs_read_all(r->fs, r->fd, &holds, sizeof(holds), at + offsetof(struct pending_chunk, holds));
        if (rc != 0 || !head.number || head.check != pending_chunk_seed(r->header.salt, head.stream, head.number))
            continue;
        if (holds > begun) {
            errbuf_set(err, "it was copied while its process ran");
            return LOG_DAMAGED;
        }
        r->refs[r->nrefs++] = (struct chunk_ref){head.stream, head.number, at};
    }
    if (r->nrefs)
        qsort(r->refs, r->nrefs, sizeof(*r->refs), by_place);
    return rc;
}

/* 1: it is r->chunk; 0: none; -errno. */
static int load_chunk(struct reading *r, unsigned stream, uint64_t number)
{
    const struct chunk_ref wanted = {stream, number, 0};
    const struct chunk_ref *ref = r->nrefs ? bsearch(&wanted, r->refs, r->nrefs, sizeof(wanted), by_place) : NULL;

    if (!ref)
        return 0;
    TRY(fs_read_all(r->fs, r->fd, r->chunk, PENDING_CHUNK_BYTES, ref->offset));
    return 1;
}

/* ---- adds ---- */

struct run {
    uint64_t seed;
    uint64_t id;
    unsigned layer;
};

static bool read_head(const struct reading *r, uint64_t seed, uint32_t at, struct run *run)
{
    struct pending_head head;

    if (at + PENDING_HEAD_WORDS > PENDING_CHUNK_WORDS)
        return false;
    memcpy(&head, r->chunk->words + at, sizeof(head));
    unsigned layer = PENDING_LAYER(&head);
    if (head.id == 0 || head.layer != pending_head_layer(seed, at, head.id, layer))
        return false;
    *run = (struct run){pending_run_seed(seed, head.id, layer), head.id, layer};
    return true;
}

static bool add_is_valid(const struct reading *r, const struct run *run, uint32_t at)
{
    struct bloom_replay_item item;

    if (!run->id || at + PENDING_ADD_WORDS > PENDING_CHUNK_WORDS)
        return false;
    memcpy(&item, r->chunk->words + at, sizeof(item));
    return item.ordinal == pending_ordinal(run->seed, at, item.hash, item.ordinal & PENDING_ORDINAL_MASK);
}

/* The adds of one chunk, from *at_inout on, up to `end` at most. */
static int take_chunk(struct reading *r, uint64_t seed, uint32_t *at_inout, uint32_t end, struct run *run)
{
    uint32_t at = *at_inout;

    for (;;) {
        uint32_t from = at;
        while (at < end && add_is_valid(r, run, at))
            at += PENDING_ADD_WORDS;
        if (at > from) {
            int rc = log_payload_tagged_adds(r->payload, run->id, run->layer,
                                             (const struct bloom_replay_item *)(r->chunk->words + from),
                                             (at - from) / PENDING_ADD_WORDS);
            if (rc != 0)
                return rc;
        }
        *at_inout = at;
        if (at >= end || !read_head(r, seed, at, run))
            return 0;
        at += PENDING_HEAD_WORDS;
    }
}

static void note_reached(struct reading *r, unsigned stream, struct pending_place place)
{
    const struct pending_place *later = r->later ? &r->later->places[stream] : &place;

    if (place.chunk < later->chunk || (place.chunk == later->chunk && place.used < later->used))
        r->incomplete = true;
}

static int take_adds(struct reading *r, unsigned stream)
{
    struct pending_place place = r->state->places[stream], reached = place;
    bool held = r->hold.active && r->hold.stream == stream;
    int rc = 0;

    if (place.chunk == 0)
        place = (struct pending_place){.chunk = 1};
    for (; !held || place.chunk <= r->hold.adds.chunk; place = (struct pending_place){.chunk = place.chunk + 1}) {
        struct run run = {0};
        uint64_t seed = pending_chunk_seed(r->header.salt, stream, place.chunk);
        uint32_t end = held && place.chunk == r->hold.adds.chunk ? r->hold.adds.used : PENDING_CHUNK_WORDS;
        rc = load_chunk(r, stream, place.chunk);
        if (rc <= 0)
            break;
        if (place.run)
            (void)read_head(r, seed, place.run - PENDING_HEAD_WORDS, &run);
        rc = take_chunk(r, seed, &place.used, end, &run);
        if (rc != 0)
            break;
        reached = place;
        if (PENDING_CHUNK_WORDS - place.used >= PENDING_MOST_WORDS)
            break; /* no process would have begun another chunk yet */
    }
    note_reached(r, stream, reached);
    return rc;
}

/* ---- control records ---- */

/* The next `len` bytes of the stream. 1, 0 (they are missing), -errno. */
static int take_bytes(struct reading *r, struct pending_place *place, void *out, size_t len)
{
    const uint32_t room = PENDING_CHUNK_WORDS * 8;
    unsigned char *to = out;

    while (len) {
        if (place->used == room || place->chunk == 0)
            *place = (struct pending_place){.chunk = place->chunk + 1};
        int rc = r->chunk->number == place->chunk ? 1 : load_chunk(r, r->header.nstreams - 1, place->chunk);
        if (rc <= 0)
            return rc;
        size_t n = room - place->used < len ? room - place->used : len;
        memcpy(to, (const unsigned char *)r->chunk->words + place->used, n);
        place->used += (uint32_t)n;
        to += n;
        len -= n;
    }
    return 1;
}

static int take_controls(struct reading *r, struct pending_place *reached_out)
{
    struct pending_place place = r->state->places[r->header.nstreams - 1];
    const struct pending_place *end = &r->hold.controls;
    struct pending_control head;
    int rc = 0;

    r->chunk->number = 0;
    for (uint64_t number = r->state->control;; number++) {
        *reached_out = place;
        if (r->hold.active && place.chunk == end->chunk && place.used == end->used)
            return 0;
        rc = take_bytes(r, &place, &head, sizeof(head));
        if (rc <= 0 || head.len == 0 || head.len > CONTROL_MAX)
            return rc < 0 ? rc : 0;
        size_t before = r->controls.len;
        if (log_bytes_reserve(&r->controls, head.len) != 0)
            return -ENOMEM;
        rc = take_bytes(r, &place, r->controls.ptr + before, head.len);
        if (rc <= 0 || head.check != pending_control_check(r->header.salt, number, r->controls.ptr + before, head.len))
            return rc < 0 ? rc : 0;
        r->controls.len = before + head.len;
    }
}

/* ---- the whole ---- */

static int take_records(struct reading *r, struct pending_found *found, struct errbuf *err)
{
    r->chunk = malloc(sizeof(*r->chunk));
    int rc = r->chunk ? list_chunks(r, err) : -ENOMEM;

    struct pending_place reached = {0};

    r->payload = &found->payload;
    if (rc == 0)
        rc = take_controls(r, &reached);
    if (rc == 0)
        note_reached(r, r->header.nstreams - 1, reached);
    if (rc == 0 && r->controls.len) {
        found->has_controls = true;
        rc = log_payload_controls(&found->payload, r->state->control, &r->controls);
    }
    for (unsigned i = 0; rc == 0 && i + 1 < r->header.nstreams; i++)
        rc = take_adds(r, i);
    if (rc == 0 && r->incomplete) {
        found->fits = found->has_controls = false;
        found->frame = r->later->frame;
        log_bytes_deinit(&found->payload);
    }
    return rc;
}

int log_pending_read(const struct fsops *fs, const char *path, uint64_t frame, struct pending_found *found_out,
                     struct errbuf *err)
{
    struct reading r = {.fs = fs, .path = path, .fd = -1};
    struct pending_found found = {0};
    int rc = fs->open(fs->ctx, path, FS_READ, &r.fd);

    if (rc == 0)
        rc = read_header(&r, err);
    if (rc == 0)
        rc = read_states(&r, frame, &found.frame, err);
    if (rc == 0) {
        found.process = r.header.process;
        found.generation = r.header.generation;
        found.fits = r.state != NULL;
    }
    if (rc == 0 && found.fits) {
        found.frame = frame;
        rc = take_records(&r, &found, err);
    }
    if (rc < 0) {
        errbuf_set(err, "%s", fs_error_text(rc));
    }
    if (rc != 0)
        log_bytes_deinit(&found.payload);
    found.here = r.here;
    *found_out = found;
    if (r.fd >= 0)
        fs->close(fs->ctx, r.fd);
    log_bytes_deinit(&r.controls);
    free(r.state);
    free(r.later);
    free(r.refs);
    free(r.chunk);
    return rc;
}
