#include "redisbloom_half.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "effects.h"
#include "memory.h"

/* ---- life ---- */

int half_make(const void *header, size_t len, struct redisbloom_half **half_out, struct errbuf *err)
{
    struct redisbloom_half *half = memory_zeroed(sizeof(*half) + len);
    if (!half)
        return -ENOMEM;
    int status = redisbloom_load_begin(&half->load, header, len, err);
    if (status != DUMP_OK) {
        memory_release(half);
        return status;
    }
    half->header_len = len;
    memcpy(half->header, header, len);
    *half_out = half;
    return DUMP_OK;
}

struct redisbloom_half *half_copy(const struct redisbloom_half *half)
{
    size_t bytes = sizeof(*half) + half->header_len;
    struct redisbloom_half *copy = memory_zeroed(bytes);
    if (!copy)
        return NULL;
    memcpy(copy, half, bytes);
    copy->load.room = half->load.nspans;
    copy->load.spans = calloc(half->load.nspans + 1, sizeof(*copy->load.spans));
    if (!copy->load.spans) {
        memory_release(copy);
        return NULL;
    }
    if (half->load.nspans)
        memcpy(copy->load.spans, half->load.spans, half->load.nspans * sizeof(*copy->load.spans));
    return copy;
}

void half_release(struct redisbloom_half *half)
{
    if (half)
        redisbloom_load_deinit(&half->load);
    memory_release(half);
}

size_t half_memory(const struct redisbloom_half *half)
{
    return sizeof(*half) + half->header_len + half->load.nspans * sizeof(*half->load.spans);
}

/* ---- what has come, as chunks ---- */

struct pieces {
    const struct value *value;
    size_t span;
    uint64_t at;          /* among the bytes of all layers; where the next piece begins, if within the span */
    unsigned char *bytes; /* the piece */
    size_t len;
    long long iterator; /* of its chunk */
};

static unsigned char piece_bytes[DUMP_DATA_BYTES];

/* The part of the bytes at..end that lies in one layer and fits into a piece. */
static void read_piece(struct pieces *pieces, uint64_t end)
{
    const struct dump_plan *plan = &pieces->value->half->load.plan;
    uint64_t offset = pieces->at, left = end - pieces->at;
    unsigned layer = 0;
    while (offset >= redisbloom_layer_bytes(&plan->shapes[layer]))
        offset -= redisbloom_layer_bytes(&plan->shapes[layer++]);
    uint64_t in_layer = redisbloom_layer_bytes(&plan->shapes[layer]) - offset;
    left = left < in_layer ? left : in_layer;
    pieces->len = left < sizeof(piece_bytes) ? (size_t)left : sizeof(piece_bytes);
    redisbloom_get_bits(value_filter(pieces->value), layer, offset, piece_bytes, pieces->len);
    pieces->bytes = piece_bytes;
    pieces->at += pieces->len;
    pieces->iterator = (long long)(pieces->at + REDISBLOOM_HEADER_ITERATOR);
}

static bool next_piece(struct pieces *pieces)
{
    const struct redisbloom_load *load = &pieces->value->half->load;
    while (pieces->span < load->nspans && pieces->at >= load->spans[pieces->span].to)
        pieces->span++;
    if (pieces->span == load->nspans)
        return false;
    if (pieces->at < load->spans[pieces->span].from)
        pieces->at = load->spans[pieces->span].from;
    read_piece(pieces, load->spans[pieces->span].to);
    return true;
}

void half_save(struct engine_io *io, const struct value *value)
{
    struct pieces pieces = {.value = value};
    engine.SaveStringBuffer(io, (const char *)value->half->header, value->half->header_len);
    while (next_piece(&pieces)) {
        engine.SaveUnsigned(io, (uint64_t)pieces.iterator);
        engine.SaveStringBuffer(io, (const char *)pieces.bytes, pieces.len);
    }
    engine.SaveUnsigned(io, 0);
}

void half_rewrite(struct engine_io *io, struct engine_string *key, const struct value *value)
{
    struct pieces pieces = {.value = value};
    engine.EmitAOF(io, names.loadchunk, "slb", key, (long long)REDISBLOOM_HEADER_ITERATOR,
                   (const char *)value->half->header, value->half->header_len);
    while (next_piece(&pieces))
        engine.EmitAOF(io, names.loadchunk, "slb", key, pieces.iterator, (const char *)pieces.bytes, pieces.len);
}

void half_digest(struct engine_digest *digest, const struct value *value)
{
    struct pieces pieces = {.value = value};
    engine.DigestAddStringBuffer(digest, (const char *)value->half->header, value->half->header_len);
    while (next_piece(&pieces)) {
        engine.DigestAddLongLong(digest, pieces.iterator);
        engine.DigestAddStringBuffer(digest, (const char *)pieces.bytes, pieces.len);
    }
    engine.DigestEndSequence(digest);
}

/* ---- loading ---- */

static struct value *load_header(struct engine_io *io, struct errbuf *err)
{
    struct redisbloom_half *half;
    int status;
    size_t len;
    char *header = value_load_string(io, &len);
    if (!header) {
        errbuf_set(err, "the header is missing");
        return NULL;
    }
    status = half_make(header, len, &half, err);
    engine.Free(header);
    if (status == DUMP_OK && memory_possible(half->load.plan.bytes, err))
        return value_begin_redisbloom(half, &status, err);
    if (status == DUMP_OK)
        half_release(half);
    else if (status != DUMP_BAD)
        errbuf_set(err, "out of memory");
    return NULL;
}

/* One more piece of a value. False: it is bad, or has not come. */
static bool load_piece(struct engine_io *io, struct value *value, uint64_t iterator, struct errbuf *err)
{
    bool complete;
    size_t len;
    char *bytes = value_load_string(io, &len);
    if (!bytes) {
        errbuf_set(err, "the bits that end at iterator %llu are missing", (unsigned long long)iterator);
        return false;
    }
    int status = redisbloom_load_chunk(&value->half->load, value_filter(value), iterator, bytes, len, &complete, err);
    engine.Free(bytes);
    if (status == DUMP_OK && complete)
        errbuf_set(err, "all of its bits are there, where some must be missing");
    return status == DUMP_OK && !complete;
}

struct value *half_load(struct engine_io *io, struct errbuf *err)
{
    struct value *value = load_header(io, err);
    while (value) {
        uint64_t iterator = engine.LoadUnsigned(io);
        bool failed = engine.IsIOError(io);
        if (failed)
            errbuf_set(err, "its end is missing");
        else if (iterator == 0)
            return value;
        if (!failed && load_piece(io, value, iterator, err))
            continue;
        value_free(value);
        value = NULL;
    }
    return NULL;
}
