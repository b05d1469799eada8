/* The engine's operations on values of the module's own type: it saves, loads and rewrites them as chunks of
 * BF.SCANDUMP.
 *
 * A value is saved as the number of its chunks and each chunk. While RedisBloom's chunks are loading, it is saved as 0,
 * their header, each loaded piece after its iterator, and 0. */
#include <string.h>

#include "memory.h"
#include "settings.h"
#include "value.h"

#define BACKGROUND_BYTES (64 * 1024) /* filters above this size take longer to free than to hand over */

/* ---- a value in pieces ---- */

/* The chunks that have come, or all of a dump whose identity and nonce are 0: equal filters have equal bytes. */
struct pieces {
    const struct value *value;
    const struct redisbloom_load *redisbloom; /* RedisBloom's chunks are coming; NULL: the value has our chunks */

    struct dump_plan plan;
    uint64_t identity, nonce;
    uint32_t nchunks;
    struct dump_place place; /* of the next chunk */

    bool begun;  /* the header has been given out */
    size_t span; /* of the loaded ranges */
    uint64_t at; /* among the bytes of all layers; where the next piece begins, if within the span */

    const unsigned char *bytes; /* the latest piece */
    size_t len;
    long long iterator;
};

static unsigned char scratch[DUMP_CHUNK_MAX]; /* the longest, with any number of layers */

_Static_assert(DUMP_CHUNK_MAX > DUMP_HEADER_MAX, "a header fits, and so do the counts");

static void start_pieces(struct pieces *pieces, const struct value *value)
{
    const struct bloom_filter *filter = value_filter(value);
    const struct bf_load *load = value->load;
    *pieces = (struct pieces){.value = value, .place = {.nlayers = bloom_filter_nlayers(filter)}};
    if (load && load->theirs) {
        pieces->redisbloom = &load->redisbloom;
    } else if (load) {
        pieces->plan = load->own.plan;
        pieces->identity = load->own.identity;
        pieces->nonce = load->own.nonce;
        pieces->nchunks = load->own.place.next;
    } else {
        dump_plan_of(filter, pieces->place.nlayers, &pieces->plan);
        pieces->nchunks = dump_chunks(&pieces->plan);
    }
}

static bool next_chunk(struct pieces *pieces)
{
    if (pieces->place.next == pieces->nchunks)
        return false;
    pieces->bytes = scratch;
    pieces->len = dump_chunk_bytes(&pieces->plan, pieces->place.next);
    dump_write_chunk(&pieces->plan, value_filter(pieces->value), pieces->identity, pieces->nonce, &pieces->place,
                     scratch);
    pieces->iterator = dump_iterator(&pieces->place);
    return true;
}

/* The part of the bytes at..end that is in one layer and fits into a piece. */
static void read_bits(struct pieces *pieces, uint64_t end)
{
    uint64_t offset = pieces->at, left = end - pieces->at, in_layer = 0;
    unsigned layer = 0;
    (void)bloom_filter_find_byte(value_filter(pieces->value), &offset, &layer, &in_layer);
    left = left < in_layer ? left : in_layer;
    pieces->len = left < DUMP_DATA_BYTES ? (size_t)left : DUMP_DATA_BYTES;
    bloom_filter_get_bytes(value_filter(pieces->value), layer, offset, scratch, pieces->len);
    pieces->bytes = scratch;
    pieces->at += pieces->len;
    pieces->iterator = (long long)(pieces->at + REDISBLOOM_HEADER_ITERATOR);
}

static bool next_bits(struct pieces *pieces)
{
    const struct redisbloom_load *load = pieces->redisbloom;
    while (pieces->span < load->nspans && pieces->at >= load->spans[pieces->span].to)
        pieces->span++;
    if (pieces->span == load->nspans)
        return false;
    if (pieces->at < load->spans[pieces->span].from)
        pieces->at = load->spans[pieces->span].from;
    read_bits(pieces, load->spans[pieces->span].to);
    return true;
}

static bool next_piece(struct pieces *pieces)
{
    if (!pieces->redisbloom)
        return next_chunk(pieces);
    if (pieces->begun)
        return next_bits(pieces);
    pieces->begun = true;
    pieces->bytes = pieces->value->load->header;
    pieces->len = pieces->value->load->header_len;
    pieces->iterator = REDISBLOOM_HEADER_ITERATOR;
    return true;
}

/* Whether the iterator is saved before the latest piece. */
static bool has_iterator(const struct pieces *pieces)
{
    return pieces->redisbloom && pieces->iterator != REDISBLOOM_HEADER_ITERATOR;
}

/* ---- out ---- */

static void save(struct engine_io *io, void *value)
{
    struct pieces pieces;
    start_pieces(&pieces, value);
    engine.SaveUnsigned(io, pieces.nchunks);
    while (next_piece(&pieces)) {
        if (has_iterator(&pieces))
            engine.SaveUnsigned(io, (uint64_t)pieces.iterator);
        engine.SaveStringBuffer(io, (const char *)pieces.bytes, pieces.len);
    }
    if (pieces.redisbloom)
        engine.SaveUnsigned(io, 0);
}

static void rewrite(struct engine_io *io, struct engine_string *key, void *value)
{
    struct pieces pieces;
    start_pieces(&pieces, value);
    while (next_piece(&pieces))
        engine.EmitAOF(io, names.loadchunk, "slb", key, pieces.iterator, (const char *)pieces.bytes, pieces.len);
}

/* The data in which equal filters agree: parameters, shapes, bits and counts, in a window the numbers of the parts, but
 * not their ages; of half-loaded ones also the loaded ranges. */
static void digest(struct engine_digest *out, void *at)
{
    const struct value *value = at;
    struct pieces pieces;
    start_pieces(&pieces, value);
    if (!value->load) {
        pieces.plan.taken_ms = 0;
        for (unsigned i = 0; i < pieces.plan.nlayers; i++)
            pieces.plan.turns[i].age_us = 0;
    }
    if (!pieces.redisbloom)
        engine.DigestAddLongLong(out, pieces.nchunks);
    while (next_piece(&pieces)) {
        if (has_iterator(&pieces))
            engine.DigestAddLongLong(out, pieces.iterator);
        engine.DigestAddStringBuffer(out, (const char *)pieces.bytes, pieces.len);
    }
    engine.DigestEndSequence(out);
}

void value_emit_bytes(struct engine_io *io, const char *command, struct engine_string *key, long long *iterator,
                      const char *bytes, uint64_t len, size_t most)
{
    for (uint64_t done = 0; done < len;) {
        size_t n = len - done < most ? (size_t)(len - done) : most;
        *iterator += (long long)n;
        engine.EmitAOF(io, command, "slb", key, *iterator, bytes + done, n);
        done += n;
    }
}

/* ---- in ---- */

/* The next string of a value that the engine reads, for Free(); NULL when there is none. */
static char *load_string(struct engine_io *io, size_t *len_out)
{
    char *string = engine.LoadStringBuffer(io, len_out);
    if (string && engine.IsIOError(io)) {
        engine.Free(string);
        return NULL;
    }
    return string;
}

static int check_field(const struct rdb_reader *reader, const char *what)
{
    return engine.IsIOError(reader->ctx) ? rdb_bad(reader, "%s: the value ends before it", what) : RDB_OK;
}

static int read_number(struct rdb_reader *reader, uint64_t *out, const char *what)
{
    *out = engine.LoadUnsigned(reader->ctx);
    return check_field(reader, what);
}

static int read_real(struct rdb_reader *reader, double *out, const char *what)
{
    *out = engine.LoadDouble(reader->ctx);
    return check_field(reader, what);
}

static int read_string(struct rdb_reader *reader, uint64_t *len, bytes_sink_fn *sink, void *ctx, const char *what)
{
    size_t got;
    char *string = load_string(reader->ctx, &got);
    if (!string)
        return rdb_bad(reader, "%s: the value ends before it", what);
    int rc = rdb_string_fits(reader, got, len, what);
    STEP(rc, sink(ctx, (const unsigned char *)string, got));
    engine.Free(string);
    return rc;
}

void value_reader(struct rdb_reader *reader, struct engine_io *io, struct errbuf *err)
{
    static const struct rdb_fields fields = {read_number, read_real, read_string};
    rdb_reader_fields(reader, &fields, io, err);
}

void *value_loaded(struct engine_io *io, struct value *value, const char *kind, struct errbuf *err)
{
    if (!value && engine.LogIOError)
        engine.LogIOError(io, "warning", "bloomery: cannot read %s: %s", kind, err->text);
    if (value && value_key_is_new(value, err) && engine.LogIOError)
        engine.LogIOError(io, "warning", "bloomery: %s", err->text);
    return value;
}

static struct value *read_header(struct engine_io *io, uint64_t nchunks, struct errbuf *err)
{
    struct bf_chunk chunk = {.theirs = nchunks == 0, .stored = true};
    struct bf_load *load;
    int status;
    char *header = load_string(io, &chunk.data.len);
    if (!header)
        return errbuf_fail(err, NULL, "the header is missing");
    chunk.data.ptr = header;
    status = bf_load_begin(&chunk, &engine_memory, &load, err);
    engine.Free(header);
    if (status != DUMP_OK)
        return NULL;
    uint32_t needed = load->theirs ? 0 : dump_chunks(bf_load_plan(load));
    bool possible = memory_may_load(bf_load_plan(load)->bytes, bf_load_plan(load)->bytes, err);
    if (possible && nchunks > needed)
        errbuf_set(err, "%llu chunks, where its layers need %u", (unsigned long long)nchunks, needed);
    if (!possible || nchunks > needed) {
        bf_load_end(load);
        return NULL;
    }
    if (!load->theirs && nchunks == needed && window_is_synced())
        load->own.plan.taken_ms = INT64_MAX; /* a dump of now; dumps of the future count as that, too (docs/DUMP.md) */
    return value_begin_load(load, false, &status, err);
}

/* Reads one more chunk, and whether it was the last that the filter needs. */
static bool read_chunk(struct engine_io *io, struct value *value, struct bf_chunk *chunk, bool *complete_out,
                       struct errbuf *err)
{
    char *bytes = load_string(io, &chunk->data.len);
    if (!bytes)
        return errbuf_fail(err, false, "a chunk is missing");
    chunk->data.ptr = bytes;
    enum bf_load_state state = bf_load_take(value->load, value_filter(value), chunk, err);
    engine.Free(bytes);
    *complete_out = state == BF_LOAD_COMPLETE;
    return state == BF_LOAD_COMPLETE || state == BF_LOAD_GOES_ON;
}

static bool read_own(struct engine_io *io, struct value *value, uint64_t nchunks, struct errbuf *err)
{
    struct bf_chunk chunk = {.stored = true};
    bool complete = false;
    for (uint64_t i = 1; i < nchunks; i++)
        if (!read_chunk(io, value, &chunk, &complete, err))
            return false;
    if (complete)
        value_end_load(value);
    return true;
}

static bool read_redisbloom(struct engine_io *io, struct value *value, struct errbuf *err)
{
    for (;;) {
        struct bf_chunk chunk = {.iterator = (int64_t)engine.LoadUnsigned(io), .stored = true};
        bool complete;
        if (engine.IsIOError(io))
            return errbuf_fail(err, false, "its end is missing");
        if (chunk.iterator == 0)
            return true;
        if (!read_chunk(io, value, &chunk, &complete, err))
            return false;
        if (complete)
            return errbuf_fail(err, false, "all of its bits are there, where some must be missing");
    }
}

static struct value *read_value(struct engine_io *io, struct errbuf *err)
{
    uint64_t nchunks = engine.LoadUnsigned(io);
    if (engine.IsIOError(io))
        return errbuf_fail(err, NULL, "its first field is missing");
    struct value *value = read_header(io, nchunks, err);
    if (!value || (nchunks > 0 ? read_own(io, value, nchunks, err) : read_redisbloom(io, value, err)))
        return value;
    value_free(value);
    return NULL;
}

static void *load(struct engine_io *io, int version)
{
    struct errbuf err = {""};
    struct value *value = NULL;
    if (version == DUMP_TYPE_VERSION)
        value = read_value(io, &err);
    else
        errbuf_set(&err, "unknown encoding version %d", version);
    return value_loaded(io, value, "a filter", &err);
}

/* ---- memory ---- */

static size_t mem_usage(const void *value)
{
    return value_memory(value);
}

static size_t mem_usage2(void *key, const void *value, size_t samples)
{
    (void)key;
    (void)samples;
    return value_memory(value);
}

/* 0: to be freed in the background. */
static size_t free_effort2(void *key, const void *value)
{
    (void)key;
    return value_memory(value) >= BACKGROUND_BYTES ? 0 : 1;
}

static void *copy2(void *keys, const void *value)
{
    struct errbuf err = {""};
    uint64_t bytes = bloom_filter_charged(value_filter(value));
    (void)keys;
    if (memory_obeys() || memory_allowed(bytes, bytes, &err))
        return value_copy(value);
    engine.Log(NULL, "warning", "bloomery: a filter is not copied: %s", err.text);
    return NULL;
}

const struct engine_type_methods value_methods = {
    .version = ENGINE_TYPE_VERSION,
    .rdb_load = load,
    .rdb_save = save,
    .aof_rewrite = rewrite,
    .mem_usage = mem_usage,
    .digest = digest,
    .free = value_free,
    .mem_usage2 = mem_usage2,
    .free_effort2 = free_effort2,
    .copy2 = copy2,
};
