/* redisbloom_dump: a filter in RedisBloom's layout as the bytes that RedisBloom has for it, and back: the result of
 * DUMP, and the chunks of BF.SCANDUMP. redisbloom_format.h reads the fields, this file makes a filter of them. The
 * statuses are those of dump.h.
 *
 * As with dump.h, the loader makes the filter that a plan asks for, and so decides which sizes are too large. A dump
 * taken while adds continue holds every item whose add had returned when it began.
 *
 * Thread: any, on distinct objects; the filter that is read may be added to. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dump.h"
#include "redisbloom_format.h"

/* Whether the filter can be dumped for RedisBloom: it is in RedisBloom's layout, and not KEYED. */
bool redisbloom_is_layout(const struct bloom_filter *filter);

/* ---- DUMP and RESTORE ---- */

#define REDISBLOOM_LARGE 100 /* no dump_status: the dump may have more bytes than were asked for */

/* The dump, malloc'ed. DUMP_OK, -ENOMEM, or REDISBLOOM_LARGE with the number of bytes in *len_out. */
int redisbloom_dump(const struct bloom_filter *filter, uint64_t max, unsigned char **dump_out, uint64_t *len_out)
    __attribute__((warn_unused_result));

/* Reads the contents of a dump (rdb_is_dump()) and verifies all of it. DUMP_OK, or DUMP_BAD with the reason. */
int redisbloom_restore_plan(const void *data, size_t len, struct dump_plan *plan_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Takes the bits and counts of a verified dump into a filter made after its plan. */
void redisbloom_restore(const void *data, size_t len, struct bloom_filter *filter);

/* ---- chunks of Bloom and of cuckoo filters: a header, then ranges of the bytes of all layers. The iterator of a chunk
 * is the number of bytes to its end, and one for the header. ---- */

/* The first byte of a chunk with this iterator. False: the chunk is not within a layer of the filter. */
bool redisbloom_place(const struct bloom_filter *filter, uint64_t iterator, size_t len, unsigned *layer_out,
                      uint64_t *offset_out);

/* rdb_bits_fn: puts them into the filter `ctx`. */
int dump_put_bits(void *ctx, unsigned layer, uint64_t offset, const unsigned char *bytes, size_t len);

/* ---- BF.LOADCHUNK ---- */

/* A load under way: chunks of bits may come in any order, of any size, and repeatedly. Internal. */
struct redisbloom_load {
    struct dump_plan plan;
    uint64_t header; /* its checksum */
    uint64_t bytes;  /* of the bits of all layers */
    uint64_t missing;
    uint64_t counts[BLOOM_MAX_LAYERS];
    struct redisbloom_span {
        uint64_t from, to;
    } * spans; /* the ranges that have come: ascending, with gaps between them */
    size_t nspans;
    size_t room;
};

/* The most gaps between these ranges. RedisBloom's chunks have 16 MB: enough for a terabyte in the worst order. */
#define REDISBLOOM_MAX_SPANS 65536

/* Reads the header. DUMP_OK or DUMP_BAD; after DUMP_OK redisbloom_load_deinit() has something to free. */
int redisbloom_load_begin(struct redisbloom_load *load, const void *data, size_t len, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Whether this is the header that the load began with. */
bool redisbloom_load_began_with(const struct redisbloom_load *load, const void *data, size_t len);

/* Takes a chunk of bits into the filter, which was made after load->plan. *complete_out: now every byte has come, and
 * the counts are set. DUMP_OK; DUMP_BAD with the reason, or -ENOMEM: nothing has changed, and the load may continue. */
int redisbloom_load_chunk(struct redisbloom_load *load, struct bloom_filter *filter, uint64_t iterator,
                          const void *data, size_t len, bool *complete_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Copies a load. 0 or -ENOMEM. */
int redisbloom_load_copy(struct redisbloom_load *copy_out, const struct redisbloom_load *load);

void redisbloom_load_deinit(struct redisbloom_load *load);

/* Whether a complete filter has all bits of this chunk: then the chunk has come again. */
bool redisbloom_has_chunk(const struct bloom_filter *filter, uint64_t iterator, const void *data, size_t len);
