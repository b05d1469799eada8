#include "bf_chunks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "bloom_size.h"
#include "clock.h"
#include "valkey_dump.h"

/* ---- BF.SCANDUMP ---- */

uint64_t bf_random(void)
{
    uint64_t number;
    if (getrandom(&number, sizeof(number), 0) == (ssize_t)sizeof(number))
        return number;
    return clock_unix_ns() ^ (uintptr_t)&number;
}

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Frees the chunk. NULL: there was no memory. */
static void reply_chunk(const struct bf_out *out, int64_t iterator, unsigned char *chunk, size_t len)
{
    if (!chunk) {
        out->ops->error(out->ctx, "ERR out of memory");
        return;
    }
    out->ops->array(out->ctx, 2);
    out->ops->integer(out->ctx, iterator);
    out->ops->bytes(out->ctx, chunk, len);
    free(chunk);
}

/* The header of RedisBloom's form of chunks. */
static void reply_header(const struct bf_out *out, const struct bloom_filter *filter, bool cuckoo)
{
    struct redisbloom_filter value;
    struct cuckoo_head head;
    unsigned char *header;
    size_t len;
    if (cuckoo) {
        header = malloc(CUCKOO_HEADER_MAX);
        cuckoo_head_of(filter, &head);
        len = header ? cuckoo_head_put(&head, header) : 0;
    } else {
        redisbloom_describe(filter, bloom_filter_nlayers(filter), &value);
        len = redisbloom_header_bytes(value.nlayers);
        header = malloc(len);
        if (header)
            redisbloom_write_header(&value, header);
    }
    reply_chunk(out, REDISBLOOM_HEADER_ITERATOR, header, len);
}

/* The chunk of RedisBloom's form after this iterator; any number is at the end, if not before. */
static void scan_bytes(const struct bf_out *out, const struct bloom_filter *filter, int64_t iterator, bool cuckoo)
{
    uint64_t from = (uint64_t)iterator - REDISBLOOM_HEADER_ITERATOR, at = from, left;
    unsigned layer;
    if (iterator == 0) {
        reply_header(out, filter, cuckoo);
    } else if (!bloom_filter_find_byte(filter, &at, &layer, &left)) {
        out->ops->array(out->ctx, 2);
        out->ops->integer(out->ctx, 0);
        if (cuckoo)
            out->ops->null(out->ctx);
        else
            out->ops->bytes(out->ctx, NULL, 0);
    } else {
        size_t len = left < DUMP_DATA_BYTES ? (size_t)left : DUMP_DATA_BYTES;
        unsigned char *chunk = malloc(len);
        if (chunk && cuckoo)
            cuckoo_read(filter, from, chunk, len);
        else if (chunk)
            bloom_filter_get_bytes(filter, layer, at, chunk, len);
        reply_chunk(out, iterator + (int64_t)len, chunk, len);
    }
}

static void scan_own(const struct bf_out *out, const struct bloom_filter *filter, int64_t iterator, uint64_t identity)
{
    struct dump_place place = {.nlayers = bloom_filter_nlayers(filter)};
    struct dump_plan plan;
    bool valid = iterator == 0 || (dump_place_from(iterator, &place) && place.nlayers <= bloom_filter_nlayers(filter));
    if (valid)
        dump_plan_of(filter, place.nlayers, &plan);
    if (!valid || (place.next > dump_chunks(&plan) && dump_chunks(&plan) < DUMP_MAX_CHUNKS)) {
        out->ops->error(out->ctx, BF_NO_ITERATOR);
    } else if (dump_chunks(&plan) >= DUMP_MAX_CHUNKS) {
        out->ops->error(out->ctx, "ERR the filter is too large for a dump: more than 2 TB");
    } else if (place.next == dump_chunks(&plan)) {
        out->ops->array(out->ctx, 2);
        out->ops->integer(out->ctx, 0);
        out->ops->bytes(out->ctx, NULL, 0);
    } else {
        size_t len = dump_chunk_bytes(&plan, place.next);
        unsigned char *chunk = malloc(len);
        if (chunk)
            dump_write_chunk(&plan, filter, mixed(identity + plan.nlayers), bf_random(), &place, chunk);
        reply_chunk(out, dump_iterator(&place), chunk, len);
    }
}

void bf_scandump(const struct bf_out *out, const struct bf_args *args, const struct bloom_filter *filter,
                 uint64_t identity)
{
    int64_t iterator;
    if (!slice_to_int64(bf_arg(args, 2), &iterator))
        out->ops->error(out->ctx, BF_NOT_NUMERIC);
    else if (redisbloom_is_layout(filter) && iterator < 0)
        out->ops->error(out->ctx, BF_NO_ITERATOR);
    else if (redisbloom_is_layout(filter))
        scan_bytes(out, filter, iterator, false);
    else
        scan_own(out, filter, iterator, identity);
}

/* ---- BF.LOADCHUNK ---- */

bool bf_read_chunk(const struct bf_args *args, bool obeys, struct bf_chunk *out, struct errbuf *error)
{
    *out = (struct bf_chunk){.data = bf_arg(args, 3), .obeys = obeys};
    if (!slice_to_int64(bf_arg(args, 2), &out->iterator))
        return errbuf_fail(error, false, "ERR " BF_NOT_NUMERIC);
    if (out->data.len > REDISBLOOM_CHUNK_MAX && !obeys)
        return errbuf_fail(error, false, "ERR received bad data: a chunk has at most %u bytes", REDISBLOOM_CHUNK_MAX);
    /* None of ours has an iterator of 1. Old versions of RedisBloom wrote its header to the log with 0. */
    out->theirs = out->iterator == REDISBLOOM_HEADER_ITERATOR || (out->iterator == 0 && obeys);
    return true;
}

enum bf_chunk_kind bf_chunk_kind(const struct bf_chunk *chunk, const struct bloom_filter *filter,
                                 const struct bf_load *load)
{
    struct slice data = chunk->data;
    bool theirs = load && load->theirs, replaces = chunk->obeys && dump_is_header(data.ptr, data.len);
    if (chunk->theirs && theirs && redisbloom_load_began_with(&load->redisbloom, data.ptr, data.len))
        return BF_CHUNK_KNOWN;
    if (!filter || replaces || (chunk->theirs && (theirs || chunk->obeys)))
        return BF_CHUNK_BEGINS;
    if (load)
        return BF_CHUNK_CONTINUES;
    return chunk->iterator > 0 && redisbloom_has_chunk(filter, (uint64_t)chunk->iterator, data.ptr, data.len)
               ? BF_CHUNK_KNOWN
               : BF_CHUNK_UNEXPECTED;
}

/* ---- loads ---- */

static struct bf_load *new_load(const struct bloom_memory *memory, size_t header_len)
{
    size_t bytes = sizeof(struct bf_load) + header_len;
    struct bf_load *load = memory ? memory->zeroed(bytes) : calloc(1, bytes);
    if (!load)
        return NULL;
    load->memory = memory;
    load->header_len = header_len;
    return load;
}

static void release(struct bf_load *load)
{
    if (load->memory)
        load->memory->release(load);
    else
        free(load);
}

int bf_load_begin(const struct bf_chunk *chunk, const struct bloom_memory *memory, struct bf_load **load_out,
                  struct errbuf *err)
{
    struct slice data = chunk->data;
    struct bf_load *load = new_load(memory, chunk->theirs ? data.len : 0);
    int status;
    if (!load)
        return errbuf_fail(err, -ENOMEM, "out of memory");
    load->theirs = chunk->theirs;
    if (chunk->theirs) {
        memcpy(load->header, data.ptr, data.len);
        status = redisbloom_load_begin(&load->redisbloom, data.ptr, data.len, err);
    } else {
        status = dump_load_begin(&load->own, chunk->stored ? NULL : &chunk->iterator, data.ptr, data.len, err);
    }
    if (status != DUMP_OK) {
        release(load);
        return DUMP_BAD;
    }
    *load_out = load;
    return DUMP_OK;
}

struct bf_load *bf_load_copy(const struct bf_load *load)
{
    struct bf_load *copy = new_load(load->memory, load->header_len);
    if (!copy)
        return NULL;
    memcpy(copy, load, sizeof(*load) + load->header_len);
    if (!load->theirs || redisbloom_load_copy(&copy->redisbloom, &load->redisbloom) == 0)
        return copy;
    release(copy);
    return NULL;
}

void bf_load_end(struct bf_load *load)
{
    if (!load)
        return;
    if (load->theirs)
        redisbloom_load_deinit(&load->redisbloom);
    release(load);
}

const struct dump_plan *bf_load_plan(const struct bf_load *load)
{
    return load->theirs ? &load->redisbloom.plan : &load->own.plan;
}

size_t bf_load_memory(const struct bf_load *load)
{
    size_t spans = load->theirs ? load->redisbloom.nspans * sizeof(*load->redisbloom.spans) : 0;
    return sizeof(*load) + load->header_len + spans;
}

enum bf_load_state bf_load_take(struct bf_load *load, struct bloom_filter *filter, const struct bf_chunk *chunk,
                                struct errbuf *err)
{
    struct slice data = chunk->data;
    bool complete = false;
    int status = load->theirs ? redisbloom_load_chunk(&load->redisbloom, filter, (uint64_t)chunk->iterator, data.ptr,
                                                      data.len, &complete, err)
                              : dump_load_chunk(&load->own, filter, chunk->stored ? NULL : &chunk->iterator, data.ptr,
                                                data.len, &complete, err);
    if (status == DUMP_OK)
        return complete ? BF_LOAD_COMPLETE : BF_LOAD_GOES_ON;
    if (status > 0)
        return load->theirs ? BF_LOAD_REFUSED : BF_LOAD_SPOILT;
    return errbuf_fail(err, BF_LOAD_NO_MEMORY, "out of memory");
}

void bf_reply_bad_chunk(const struct bf_out *out, const char *reason, bool dropped)
{
    if (reason)
        bf_out_errorf(out, BF_BAD ": %s%s", reason, dropped ? BF_DROPPED : "");
    else
        out->ops->error(out->ctx, "ERR out of memory");
}

/* ---- CF.SCANDUMP ---- */

bool cf_read_position(struct slice word, bool loads, int64_t *iterator_out, struct errbuf *error)
{
    if (slice_to_int64(word, iterator_out) && (loads ? *iterator_out != 0 : *iterator_out >= 0))
        return true;
    return errbuf_fail(error, false, "%s", CF_BAD_POSITION);
}

void cf_reply_chunk(const struct bf_out *out, const struct bloom_filter *filter, int64_t iterator)
{
    scan_bytes(out, filter, iterator, true);
}

/* ---- CF.LOADCHUNK ---- */

/* A header costs no memory, but a save writes all slots that it announces. */
#define HEADER_MAX_BYTES (BLOOM_MAX_WORDS * 8)

bool cf_read_header(struct slice data, struct dump_plan *plan_out, uint64_t *deletes_out, struct errbuf *error)
{
    struct cuckoo_head head;
    struct errbuf reason = {""};
    if (!cuckoo_head_get((const unsigned char *)data.ptr, data.len, &head))
        return errbuf_fail(error, false, "%s", CF_BAD_HEADER);
    *deletes_out = head.deletes;
    if (cuckoo_head_plan(&head, plan_out, &reason) != DUMP_OK)
        errbuf_set(error, "%s", CF_NOT_MADE);
    else if (plan_out->bytes > HEADER_MAX_BYTES)
        errbuf_set(error, CF_NO_MEMORY,
                   "a header may promise less than 16 GB of slots, what one sub-filter has at most");
    else
        return true;
    return false;
}

bool cf_chunk_place(const struct bloom_filter *filter, int64_t iterator, struct slice data, uint64_t *at_out)
{
    uint64_t offset;
    unsigned layer;
    *at_out = (uint64_t)iterator - REDISBLOOM_HEADER_ITERATOR - data.len;
    return iterator > 0 && redisbloom_place(filter, (uint64_t)iterator, data.len, &layer, &offset);
}

/* ---- BF.LOAD ---- */

bool bf_read_load(struct slice payload, struct dump_plan *plan_out, struct errbuf *error_out)
{
    if (valkey_restore_plan(VALKEY_LOAD, payload.ptr, payload.len, plan_out, error_out) == DUMP_OK)
        return true;
    errbuf_prefix(error_out, "%s", valkey_load_error(payload.ptr, payload.len));
    return false;
}
