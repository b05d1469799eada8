/* redisbloom_format: RedisBloom's Bloom filter as bytes: its value in RDB (module type MBbloom--, encoding versions 0
 * to 4), the result of its DUMP, and the header of its BF.SCANDUMP. docs/DUMP.md describes the bytes.
 *
 * It makes no filter and allocates nothing. Reading gives the numbers of struct redisbloom_filter. The comments below
 * state the checks of each reader; redisbloom_check() (redisbloom.h) does the rest. Bits are handed out in pieces.
 *
 * Statuses are those of rdb_reader.h; the text of RDB_BAD names the field.
 *
 * Thread: any, on distinct objects. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "errbuf.h"
#include "rdb_reader.h"
#include "redisbloom.h"

/* The module type of a value (rdb_reader.h). */
#define REDISBLOOM_TYPE_NAME "MBbloom--"
#define REDISBLOOM_TYPE_ID   UINT64_C(0x3016e5a289bef800)
#define REDISBLOOM_ENCVER    4 /* the newest */

/* The encoding versions that introduced fields: bits and n2; options; growth. Without options and growth they are 0 and
 * REDISBLOOM_DEFAULT_GROWTH; without bits and n2 there are as many as the entries need. */
#define REDISBLOOM_ENCVER_BITS    1
#define REDISBLOOM_ENCVER_OPTIONS 2
#define REDISBLOOM_ENCVER_GROWTH  4

static inline uint64_t redisbloom_old_bits(const struct redisbloom_layer *layer)
{
    double bits = (double)layer->entries * layer->bpe;
    return bits >= 1 && bits < 0x1p63 ? (uint64_t)bits : 0;
}

/* Bytes of the bits of a layer, whose number is in struct redisbloom_layer. */
static inline uint64_t redisbloom_bytes(const struct redisbloom_layer *layer)
{
    return layer->bits / 8;
}

/* ---- values ---- */

/* Reads a value, from after its type to its end. Then the value has 1 to BLOOM_MAX_LAYERS layers, the bits of each
 * layer are whole bytes of the stated number, and the items of the layers add up to the stated sum. Nothing else is
 * checked. The bits are handed to `bits`, layer by layer in order and each from its beginning on, before the fields
 * after them are read; NULL: they are skipped. */
int redisbloom_read(struct rdb_reader *reader, unsigned encver, struct redisbloom_filter *value_out, rdb_bits_fn *bits,
                    void *ctx) __attribute__((warn_unused_result));

/* ---- the result of DUMP ---- */

/* Verifies that the value in the result of a DUMP is a filter; `reader` then stands before it, for redisbloom_read(),
 * whose encoding version is in `encver_out`. */
int redisbloom_open_dump(struct rdb_reader *reader, const void *data, size_t len, unsigned *encver_out,
                         struct errbuf *err) __attribute__((warn_unused_result));

/* ---- writing a dump, to memory that is large enough ---- */

/* The most bytes that a dump of it has. */
uint64_t redisbloom_dump_max(const struct redisbloom_filter *value);

/* A dump is: the head; for each layer its fields, its bits and its count; the end (rdb_reader.h). */
unsigned char *redisbloom_put_head(unsigned char *at, const struct redisbloom_filter *value);
unsigned char *redisbloom_put_fields(unsigned char *at, const struct redisbloom_layer *layer);

/* ---- BF.SCANDUMP ---- */

/* The header is the chunk with iterator 1. A chunk of bits comes with an iterator that is one more than the number of
 * bytes of all layers up to its end. */
#define REDISBLOOM_HEADER_ITERATOR 1
#define REDISBLOOM_CHUNK_MAX       (16u << 20) /* bytes of bits in a chunk of RedisBloom */

size_t redisbloom_header_bytes(uint64_t nlayers);
void redisbloom_write_header(const struct redisbloom_filter *value, unsigned char *out);

/* The numbers are checked as in redisbloom_read(). */
int redisbloom_read_header(const void *data, size_t len, struct redisbloom_filter *value_out, struct errbuf *err)
    __attribute__((warn_unused_result));
