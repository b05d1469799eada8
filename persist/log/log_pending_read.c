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
    const struct pending_known *known;
    int fd;
    struct pending_header header;
    struct pending_hold hold;
    struct pending_state *state;
    struct chunk_ref *refs;
    size_t nrefs;
    struct pending_chunk *chunk; /* the one that is being read */
    struct log_bytes controls;
    struct log_bytes *payload;
};

/* ---- the head of the file ---- */

static int not_written(struct errbuf *err)
{
    return errbuf_fail(err, LOG_DAMAGED, "it is incomplete or damaged, as after a power failure");
}

static int lacks_records(struct errbuf *err)
{
    return errbuf_fail(err, LOG_DAMAGED, "it lacks records: it was cut, changed, or copied while its process ran");
}

/* The newest of the two states counts, and the log must have its frame. LOG_VERSION_OLD: a state was written before
 * each frame, and belongs to the log that ends with it. */
static void choose_state(struct reading *r, struct pending_state *states[2], struct pending_found *found)
{
    bool old = r->header.version == LOG_VERSION_OLD;
    int newest = !states[0] || (states[1] && states[1]->frame > states[0]->frame);

    if (old && states[!newest] && states[newest]->frame > r->known->frame)
        newest = !newest;
    found->frame = states[newest]->frame;
    if (old ? found->frame != r->known->frame : found->frame > r->known->frame)
        return;
    r->state = states[newest];
    states[newest] = NULL;
}

static int read_states(struct reading *r, struct pending_found *found, struct errbuf *err)
{
    size_t bytes = pending_state_bytes(r->header.nstreams), room = pending_state_room(r->header.nstreams);
    struct pending_state *states[2] = {malloc(bytes), malloc(bytes)};
    int rc = states[0] && states[1] ? 0 : -ENOMEM;

    for (unsigned i = 0; rc == 0 && i < 2; i++) {
        rc = fs_read_all(r->fs, r->fd, states[i], bytes, PENDING_HEAD_PART + i * room);
        if (rc != 0 || states[i]->check == pending_state_check(states[i], r->header.nstreams, r->header.salt))
            continue;
        free(states[i]);
        states[i] = NULL;
    }
    if (rc == 0 && !states[0] && !states[1])
        rc = not_written(err);
    if (rc == 0)
        choose_state(r, states, found);
    free(states[0]);
    free(states[1]);
    return rc == FS_ENDS ? not_written(err) : rc;
}

static int read_header(struct reading *r, struct errbuf *err)
{
    int rc = fs_read_all(r->fs, r->fd, &r->header, sizeof(r->header), 0);

    STEP(rc, fs_read_all(r->fs, r->fd, &r->hold, sizeof(r->hold), PENDING_HOLD_AT));
    if (rc != 0)
        return rc == FS_ENDS ? not_written(err) : rc;
    const struct pending_header *h = &r->header;
    if (memcmp(h->magic, PENDING_MAGIC, sizeof(h->magic)) != 0 ||
        h->check != XXH3_64bits(h, offsetof(struct pending_header, check)))
        return not_written(err);
    if (h->version != LOG_VERSION && h->version != LOG_VERSION_OLD)
        return errbuf_fail(err, LOG_NEWER,
                           WRITTEN_BY_NEWER ": its format has version %u, and this program knows version %d",
                           h->version, LOG_VERSION);
    return h->nstreams == 0 || h->nstreams > 65536 ? not_written(err) : 0;
}

/* A file that lacks records is not as its process has left it: a part of it may be half of a transaction. */
static bool must_be_whole(const struct reading *r)
{
    return r->header.version == LOG_VERSION;
}

/* From where on records are taken: the places of the last frame that has some of the stream, or of the state. */
static struct log_place begin_of(const struct reading *r, unsigned stream, uint64_t *control_out)
{
    struct log_place place = r->state->places[stream];

    *control_out = r->state->control;
    for (size_t i = 0; r->header.version == LOG_VERSION && i < r->known->nplaces; i++) {
        const struct log_place *known = &r->known->places[i];
        if (known->stream != stream || known->chunk < place.chunk ||
            (known->chunk == place.chunk && known->used <= place.used))
            continue;
        place = *known;
        *control_out = r->known->control;
    }
    return place;
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

    if (rc == 0 && must_be_whole(r) && size < atomic_load(&r->hold.size))
        return lacks_records(err);
    if (rc != 0 || size < first + PENDING_CHUNK_BYTES)
        return rc;
    r->refs = malloc((size_t)((size - first) / PENDING_CHUNK_BYTES) * sizeof(*r->refs));
    if (!r->refs)
        return -ENOMEM;
    for (uint64_t at = first; rc == 0 && at + PENDING_CHUNK_BYTES <= size; at += PENDING_CHUNK_BYTES) {
        rc = fs_read_all(r->fs, r->fd, &head, PENDING_CHUNK_HEAD, at);
        STEP(rc, fs_read_all(r->fs, r->fd, &holds, sizeof(holds), at + offsetof(struct pending_chunk, holds)));
        if (rc != 0 || !head.number || head.check != pending_chunk_seed(r->header.salt, head.stream, head.number))
            continue;
        if (holds > begun)
            return errbuf_fail(err, LOG_DAMAGED, "it was copied while its process ran");
        r->refs[r->nrefs++] = (struct chunk_ref){head.stream, head.number, at};
    }
    if (r->nrefs)
        qsort(r->refs, r->nrefs, sizeof(*r->refs), by_place);
    return rc;
}

static const struct chunk_ref *find_chunk(const struct reading *r, unsigned stream, uint64_t number)
{
    const struct chunk_ref wanted = {stream, number, 0};

    return r->nrefs ? bsearch(&wanted, r->refs, r->nrefs, sizeof(wanted), by_place) : NULL;
}

/* The chunk before tells that one is gone; of first chunks there is the count. */
static int check_first(const struct reading *r, struct errbuf *err)
{
    uint64_t control, n = 0;

    for (unsigned i = 0; i < r->header.nstreams; i++)
        n += begin_of(r, i, &control).chunk || find_chunk(r, i, 1);
    return n < atomic_load(&r->hold.first) ? lacks_records(err) : 0;
}

/* 1: it is r->chunk; 0: none; -errno. */
static int load_chunk(struct reading *r, unsigned stream, uint64_t number)
{
    const struct chunk_ref *ref = find_chunk(r, stream, number);

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
    uint32_t end; /* 0: the process had not ended it */
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
    *run = (struct run){pending_run_seed(seed, head.id, layer), head.id, layer, atomic_load(&head.end)};
    return true;
}

static bool add_is_valid(const struct reading *r, const struct run *run, uint32_t at)
{
    struct bloom_replay_item item;

    if (!run->id || at == run->end || at + PENDING_ADD_WORDS > PENDING_CHUNK_WORDS)
        return false;
    memcpy(&item, r->chunk->words + at, sizeof(item));
    return item.ordinal == pending_ordinal(run->seed, at, item.hash, item.ordinal & LOG_ORDINAL_MASK);
}

/* The adds of one chunk, which is read from its first word, from `begin` on, up to `end` at most. */
static int take_chunk(struct reading *r, uint64_t seed, uint32_t *at_inout, uint32_t begin, uint32_t end,
                      struct run *run)
{
    uint32_t at = *at_inout;

    for (;;) {
        uint32_t from = at;
        while (at < end && add_is_valid(r, run, at))
            at += PENDING_ADD_WORDS;
        if (from < begin)
            from = at < begin ? at : begin;
        if (at > from) {
            int rc = log_payload_adds(r->payload, run->id, run->layer,
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

/* Whether the chunk that has been read up to a word has no more, and none comes after it. */
static bool is_end(const struct reading *r, uint32_t at)
{
    return at >= atomic_load(&r->chunk->used) && !atomic_load(&r->chunk->next);
}

static int take_adds(struct reading *r, unsigned stream, struct errbuf *err)
{
    uint64_t control;
    struct log_place place = begin_of(r, stream, &control);
    bool held = r->hold.active && r->hold.stream == stream, whole = place.chunk == 0;
    uint64_t number = place.chunk ? place.chunk : 1;

    for (; !held || number <= r->hold.adds.chunk; number++) {
        struct run run = {0};
        uint32_t from = number == place.chunk ? place.used : 0, at = 0;
        uint32_t end = held && number == r->hold.adds.chunk ? r->hold.adds.used : PENDING_CHUNK_WORDS;
        int rc = load_chunk(r, stream, number);
        if (rc < 0)
            return rc;
        if (rc == 0)
            break;
        rc = take_chunk(r, pending_chunk_seed(r->header.salt, stream, number), &at, from, end, &run);
        if (rc != 0)
            return rc;
        whole = is_end(r, at);
        if (PENDING_CHUNK_WORDS - at >= PENDING_MOST_WORDS)
            break; /* no process would have begun another chunk yet */
    }
    return whole || held || !must_be_whole(r) ? 0 : lacks_records(err);
}

/* ---- control records ---- */

/* The next `len` bytes of the stream. 1, 0 (they are missing), -errno. */
static int take_bytes(struct reading *r, struct log_place *place, void *out, size_t len)
{
    const uint32_t room = PENDING_CHUNK_WORDS * 8;
    unsigned char *to = out;

    while (len) {
        if (place->used >= room || place->chunk == 0)
            *place = (struct log_place){.chunk = place->chunk + 1};
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

static int take_controls(struct reading *r, uint64_t *first_out, struct errbuf *err)
{
    unsigned stream = r->header.nstreams - 1;
    struct log_place place = begin_of(r, stream, first_out);
    const struct log_place *end = &r->hold.controls;
    struct log_control_head head;
    uint64_t number = *first_out;
    int rc;

    r->chunk->number = 0;
    for (;; number++) {
        if (r->hold.active && place.chunk == end->chunk && place.used == end->used)
            break;
        rc = take_bytes(r, &place, &head, sizeof(head));
        if (rc < 0)
            return rc;
        if (rc == 0 || head.len == 0 || head.len > CONTROL_MAX)
            break;
        size_t before = r->controls.len;
        if (log_bytes_reserve(&r->controls, sizeof(head) + head.len) != 0)
            return -ENOMEM;
        unsigned char *to = r->controls.ptr + before;
        memcpy(to, &head, sizeof(head));
        rc = take_bytes(r, &place, to + sizeof(head), head.len);
        if (rc < 0)
            return rc;
        if (rc == 0 || head.check != pending_control_check(r->header.salt, number, to + sizeof(head), head.len))
            break;
        r->controls.len = before + sizeof(head) + head.len;
    }
    return must_be_whole(r) && !r->hold.active && number <= atomic_load(&r->hold.noted) ? lacks_records(err) : 0;
}

/* ---- the whole ---- */

static int take_records(struct reading *r, struct pending_found *found, struct errbuf *err)
{
    uint64_t first = 0;

    r->chunk = malloc(sizeof(*r->chunk));
    int rc = r->chunk ? list_chunks(r, err) : -ENOMEM;
    STEP(rc, check_first(r, err));
    r->payload = &found->payload;
    STEP(rc, take_controls(r, &first, err));
    if (rc == 0 && r->controls.len) {
        found->has_controls = true;
        rc = log_payload_controls(&found->payload, first, &r->controls);
    }
    for (unsigned i = 0; rc == 0 && i + 1 < r->header.nstreams; i++)
        rc = take_adds(r, i, err);
    return rc;
}

int log_pending_read(const struct fsops *fs, const char *path, const struct pending_known *known,
                     struct pending_found *found_out, struct errbuf *err)
{
    struct reading r = {.fs = fs, .path = path, .known = known, .fd = -1};
    struct pending_found found = {0};
    int rc = fs->open(fs->ctx, path, FS_READ, &r.fd);

    STEP(rc, read_header(&r, err));
    STEP(rc, read_states(&r, &found, err));
    if (rc == 0) {
        found.process = r.header.process;
        found.generation = r.header.generation;
        found.salt = r.header.salt;
        found.fits = r.state != NULL;
    }
    if (rc == 0 && found.fits)
        rc = take_records(&r, &found, err);
    if (rc < 0)
        errbuf_set(err, "%s", fs_error_text(rc));
    if (rc != 0)
        log_bytes_deinit(&found.payload);
    *found_out = found;
    if (r.fd >= 0)
        fs->close(fs->ctx, r.fd);
    log_bytes_deinit(&r.controls);
    free(r.state);
    free(r.refs);
    free(r.chunk);
    return rc;
}
