/* valkey_format: valkey-bloom's filter as bytes: its value in RDB and DUMP (module type bloomfltr, encoding version 1),
 * and the payload of its BF.LOAD. docs/DUMP.md describes the bytes.
 *
 * It makes no filter and allocates nothing. Each number is checked when it has been read, before it is used; bits are
 * handed out in pieces. What valkey-bloom itself cannot have made is refused: its own reader accepts some values that
 * end its server, or make it hang.
 *
 * Statuses are those of rdb_reader.h; the text of RDB_BAD names the field.
 *
 * Thread: any, on distinct objects. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_params.h"
#include "errbuf.h"
#include "rdb_reader.h"
#include "valkey.h"

#define VALKEY_TYPE_NAME "bloomfltr"
#define VALKEY_TYPE_ID   UINT64_C(0x6e5a2899f96dac00) /* without the encoding version */
#define VALKEY_ENCVER    1                            /* the only one: 0 was of no release */

#define VALKEY_BLOB_HEAD 45 /* bytes before the bits of a layer: version, length, hashes, seed */

struct valkey_layer {
    uint64_t capacity; /* items that it is made for, below 2^63 */
    uint64_t items;    /* at most the capacity */
    uint64_t bytes;    /* of its bits, at least 1 */
    uint32_t hashes;   /* 1..BLOOM_MAX_HASHES */
};

struct valkey_filter {
    uint64_t expansion;     /* 0: a fixed size, and one layer */
    double error;           /* of the first layer, in (0, 1) */
    double tightening;      /* the error rate of a layer relative to the one before, in (0, 1) */
    bool fixed_seed;        /* `seed` is valkey_fixed_seed; otherwise it is random, and secret */
    struct bloom_seed seed; /* of all layers */
    uint64_t nlayers;       /* 1..BLOOM_MAX_LAYERS */
    struct valkey_layer layers[BLOOM_MAX_LAYERS];
};

/* ---- reading ---- */

/* Reads a value, from after its type to its end, all of which then is as stated above, and each capacity is the one
 * before times the expansion. The bits are handed to `bits` in order; NULL: they are skipped. When it gets the first
 * ones of a layer, value_out->layers has the layer's number of bytes, which have been announced but not seen, and of
 * hashes; its capacity and items follow the bits. */
int valkey_read(struct rdb_reader *reader, unsigned encver, struct valkey_filter *value_out, rdb_bits_fn *bits,
                void *ctx) __attribute__((warn_unused_result));

/* Reads the payload of a BF.LOAD, likewise. Bytes behind it do not matter: valkey-bloom ignores them, too. */
int valkey_read_load(const void *data, size_t len, struct valkey_filter *value_out, rdb_bits_fn *bits, void *ctx,
                     struct errbuf *err) __attribute__((warn_unused_result));

/* The error with which valkey-bloom refuses a payload that cannot be read. */
const char *valkey_load_error(const void *data, size_t len);

/* ---- writing, to memory that is large enough; each returns the end of the written bytes ---- */

/* A dump is: the head; for each layer its blob, whose bits the caller writes, and its capacity; the number of items of
 * the last layer; the end (rdb_reader.h). */
uint64_t valkey_dump_max(const struct valkey_filter *value); /* the most bytes of it */
unsigned char *valkey_put_head(unsigned char *at, const struct valkey_filter *value);
unsigned char *valkey_put_blob(unsigned char *at, const struct valkey_filter *value, unsigned layer); /* but its bits */

/* A payload is: the head; for each layer the length of its blob, the blob, its items and its capacity. */
uint64_t valkey_load_bytes(const struct valkey_filter *value);
unsigned char *valkey_put_load_head(unsigned char *at, const struct valkey_filter *value);
