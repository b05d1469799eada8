/* bf_chunks: BF.SCANDUMP and BF.LOADCHUNK, which move a filter of any size a piece at a time. docs/DUMP.md has the
 * bytes, dump.h the chain of our pieces, redisbloom_dump.h RedisBloom's, which may come in any order and repeatedly.
 *
 * This file has the effect of a chunk on the value that a host has under the key. The host keeps a load and its filter,
 * and decides their visibility.
 *
 * Thread: any, one call at a time for each load. */
#pragma once

#include "bf_out.h"
#include "bf_request.h"
#include "cf_request.h"
#include "cuckoo_dump.h"
#include "dump.h"
#include "redisbloom_dump.h"

/* BF.SCANDUMP key iterator. `identity` differs between filters and between lives of the process: after a restart a
 * filter may lack unsaved items, so that a dump cannot continue. */
void bf_scandump(const struct bf_out *out, const struct bf_args *args, const struct bloom_filter *filter,
                 uint64_t identity);

uint64_t bf_random(void); /* a number not used before */

/* ---- BF.LOADCHUNK key iterator data ---- */

struct bf_chunk {
    int64_t iterator;
    struct slice data;
    bool obeys;  /* a primary or a log has accepted it: a header replaces the existing value */
    bool theirs; /* a header of RedisBloom's */
    bool stored; /* of a value that was saved: without an iterator, if it is ours */
};
/* False with an error. The size is limited for clients only: RedisBloom logs chunks of any size. */
bool bf_read_chunk(const struct bf_args *args, bool obeys, struct bf_chunk *out, struct errbuf *error);

/* A load under way, for an empty filter made after its plan. */
struct bf_load {
    const struct bloom_memory *memory;
    bool theirs; /* RedisBloom's chunks */
    union {
        struct dump_load own;
        struct redisbloom_load redisbloom;
    };
    size_t header_len;
    unsigned char header[]; /* RedisBloom's, unchanged; none of ours */
};

/* The effect of a chunk, given this filter (NULL: none) with this load (NULL: the filter is complete). */
enum bf_chunk_kind {
    BF_CHUNK_KNOWN,  /* changes nothing and is answered with OK: clients repeat chunks after an error of the connection
                      */
    BF_CHUNK_BEGINS, /* bf_load_begin(), instead of the existing value */
    BF_CHUNK_CONTINUES,  /* bf_load_take() */
    BF_CHUNK_UNEXPECTED, /* the key has a filter: BF_KEY_EXISTS */
};
enum bf_chunk_kind bf_chunk_kind(const struct bf_chunk *chunk, const struct bloom_filter *filter,
                                 const struct bf_load *load);

/* Reads the header. DUMP_OK, and the caller ends the load with bf_load_end(); DUMP_BAD with the reason, or -ENOMEM.
 * `memory` NULL: malloc's. */
int bf_load_begin(const struct bf_chunk *chunk, const struct bloom_memory *memory, struct bf_load **load_out,
                  struct errbuf *err);
struct bf_load *bf_load_copy(const struct bf_load *load); /* NULL without memory */
void bf_load_end(struct bf_load *load);                   /* NULL is fine */

const struct dump_plan *bf_load_plan(const struct bf_load *load);
size_t bf_load_memory(const struct bf_load *load); /* bytes, without the filter's */

/* Takes a chunk into the filter, in some tenths of a millisecond or, of RedisBloom's 16 MB, some milliseconds. */
enum bf_load_state {
    BF_LOAD_GOES_ON,
    BF_LOAD_COMPLETE,
    BF_LOAD_REFUSED,   /* nothing has changed; `err` has the reason */
    BF_LOAD_NO_MEMORY, /* likewise */
    BF_LOAD_SPOILT,    /* the load must be given up with its filter; `err` has the reason */
};
enum bf_load_state bf_load_take(struct bf_load *load, struct bloom_filter *filter, const struct bf_chunk *chunk,
                                struct errbuf *err);

/* The error of a chunk that was not taken; `reason` NULL: for lack of memory. `dropped`: the load has been given up. */
void bf_reply_bad_chunk(const struct bf_out *out, const char *reason, bool dropped);

/* ---- cuckoo filters: as in RedisBloom one exists from its header on, and chunks are written into it as they come, in
 * any order ---- */

/* An iterator of CF.SCANDUMP, or of CF.LOADCHUNK: a whole number in its written form. */
bool cf_read_position(struct slice word, bool loads, int64_t *iterator_out, struct errbuf *error);

/* The reply to a valid iterator: the header, a chunk, or the end. */
void cf_reply_chunk(const struct bf_out *out, const struct bloom_filter *filter, int64_t iterator);

/* The plan of a header's filter, and its count of deletions. False, with the text of the error reply. */
bool cf_read_header(struct slice data, struct dump_plan *plan_out, uint64_t *deletes_out, struct errbuf *error);

/* The first slot of a chunk, counted over all sub-filters. False: this filter has no such slot. */
bool cf_chunk_place(const struct bloom_filter *filter, int64_t iterator, struct slice data, uint64_t *at_out);

/* ---- BF.LOAD ---- */

/* The plan of a filter with this payload of valkey-bloom's, all of which is verified. False with the error for the
 * client: valkey-bloom's, and the reason behind it. */
bool bf_read_load(struct slice payload, struct dump_plan *plan_out, struct errbuf *error_out);
