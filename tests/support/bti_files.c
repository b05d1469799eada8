#include "bti_files.h"

#include <lz4.h>
#include <snappy-c.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

static void put(struct bti_bytes *to, const void *bytes, size_t len)
{
    if (to->len + len > to->size) {
        to->size = 2 * (to->len + len);
        to->bytes = realloc(to->bytes, to->size);
        if (!to->bytes)
            abort();
    }
    if (len)
        memcpy(to->bytes + to->len, bytes, len);
    to->len += len;
}

static void put_number(struct bti_bytes *to, uint64_t value, unsigned bytes)
{
    for (unsigned i = bytes; i-- > 0;) {
        unsigned char byte = (unsigned char)(value >> (8 * i));
        put(to, &byte, 1);
    }
}

static void put_chance(struct bti_bytes *to, struct rng *rng, size_t most)
{
    for (uint64_t n = rng_below(rng, most + 1); n > 0; n--)
        put_number(to, rng_below(rng, 2) ? 'x' : rng_next(rng) & 0xff, 1);
}

/* ---- the trie ---- */

struct place {
    int64_t value; /* as in the trie: negative for Data.db */
    int hash;      /* -1: none */
};

struct trie {
    struct bti_bytes *to;
    struct rng *rng;
    const struct place *places;
};

static void put_payload(const struct trie *trie, const struct place *place, unsigned with_hash, unsigned bytes)
{
    if (with_hash)
        put_number(trie->to, (uint64_t)place->hash, 1);
    put_number(trie->to, (uint64_t)place->value, bytes);
}

static uint64_t put_leaf(const struct trie *trie, const struct place *place)
{
    unsigned bytes = 1, with_hash = place->hash >= 0 && rng_below(trie->rng, 4) > 0;
    uint64_t at = trie->to->len;
    while (bytes < 8 && (place->value >> (8 * bytes - 1)) != 0 && (place->value >> (8 * bytes - 1)) != -1)
        bytes++;
    bytes += (unsigned)rng_below(trie->rng, (with_hash ? 9 : 8) - bytes); /* up to 8, and up to 7 without a hash */
    put_number(trie->to, with_hash ? 7 + bytes : bytes, 1);
    put_payload(trie, place, with_hash, bytes);
    return at;
}

static bool fits(uint64_t distance, unsigned bits)
{
    return bits == 64 || distance < UINT64_C(1) << bits;
}

/* A node with one child. */
static uint64_t put_single(const struct trie *trie, uint64_t child)
{
    uint64_t at = trie->to->len, distance = at - child;
    unsigned letter = (unsigned)rng_below(trie->rng, 256), form = (unsigned)rng_below(trie->rng, 5);
    if (form == 0 && fits(distance, 4)) {
        put_number(trie->to, 0x10 | distance, 1);
        put_number(trie->to, letter, 1);
    } else if (form <= 1 && fits(distance, 8)) {
        put_number(trie->to, 0x20, 1);
        put_number(trie->to, letter, 1);
        put_number(trie->to, distance, 1);
    } else if (form <= 2 && fits(distance, 12)) {
        put_number(trie->to, 0x3000 | distance, 2);
        put_number(trie->to, letter, 1);
    } else if (form <= 3 && fits(distance, 16)) {
        put_number(trie->to, 0x40, 1);
        put_number(trie->to, letter, 1);
        put_number(trie->to, distance, 2);
    } else {
        put_number(trie->to, 0x9001, 2); /* sparse, 40 bits */
        put_number(trie->to, letter, 1);
        put_number(trie->to, distance, 5);
    }
    return at;
}

/* `pointers` of n * bits bits, where pairs of 12 bits take three bytes. */
static void put_pointers(const struct trie *trie, const uint64_t *distances, size_t n, unsigned bits)
{
    for (size_t i = 0; i < n; i++) {
        if (bits != 12)
            put_number(trie->to, distances[i], bits / 8);
        else if (i + 1 < n)
            put_number(trie->to, distances[i] << 12 | distances[i + 1], 3);
        else
            put_number(trie->to, distances[i] << 4, 2);
        i += bits == 12;
    }
}

static uint64_t put_sparse(const struct trie *trie, const uint64_t *children, size_t n)
{
    static const unsigned widths[] = {8, 12, 16, 24, 40};
    uint64_t at = trie->to->len, distances[256];
    for (size_t i = 0; i < n; i++)
        distances[i] = at - children[i];
    unsigned width = (unsigned)rng_below(trie->rng, 5);
    while (!fits(distances[0], widths[width])) /* the first is the farthest */
        width++;
    put_number(trie->to, (5 + width) << 4, 1);
    put_number(trie->to, n, 1);
    for (size_t i = 0; i < n; i++)
        put_number(trie->to, i, 1);
    put_pointers(trie, distances, n, widths[width]);
    return at;
}

/* There are letters without a child between those of its children. */
static uint64_t put_dense(const struct trie *trie, const uint64_t *children, size_t n)
{
    static const unsigned widths[] = {12, 16, 24, 32, 40, 64};
    uint64_t at = trie->to->len, distances[256] = {0};
    size_t span = 0;
    for (size_t i = 0; i < n; i++) {
        distances[span++] = at - children[i];
        if (i + 1 < n && span + (n - i) < 256)
            span += rng_below(trie->rng, 2);
    }
    unsigned width = (unsigned)rng_below(trie->rng, 6);
    while (!fits(at - children[0], widths[width]))
        width++;
    put_number(trie->to, (10 + width) << 4, 1);
    put_number(trie->to, 0, 1);
    put_number(trie->to, span - 1, 1);
    put_pointers(trie, distances, span, widths[width]);
    return at;
}

/* Children come before their parents. */
static uint64_t put_trie(const struct trie *trie, size_t from, size_t n)
{
    uint64_t at, children[255];
    if (n == 1) {
        at = put_leaf(trie, &trie->places[from]);
        for (uint64_t more = rng_below(trie->rng, 4); more > 0; more--)
            at = put_single(trie, at);
        return at;
    }
    size_t most = rng_below(trie->rng, 2) ? 3 : 255, wide = 2 + rng_below(trie->rng, most - 1);
    wide = wide < n ? wide : n;
    for (size_t i = 0; i < wide; i++) {
        size_t take = n / (wide - i);
        children[i] = put_trie(trie, from, take);
        from += take;
        n -= take;
    }
    at = (rng_below(trie->rng, 2) ? put_sparse : put_dense)(trie, children, wide);
    return rng_below(trie->rng, 3) ? at : put_single(trie, at);
}

/* ---- data ---- */

static size_t pack(const char *compressor, const unsigned char *from, size_t n, unsigned char *to, size_t room)
{
    uLongf deflated = room;
    if (strstr(compressor, "LZ4")) {
        for (unsigned i = 0; i < 4; i++)
            to[i] = (unsigned char)(n >> (8 * i));
        return 4 + (size_t)LZ4_compress_default((const char *)from, (char *)to + 4, (int)n, (int)room - 4);
    }
    if (strstr(compressor, "Snappy"))
        return snappy_compress((const char *)from, n, (char *)to, &room) == SNAPPY_OK ? room : 0;
    if (strstr(compressor, "Deflate"))
        return compress(to, &deflated, from, n) == Z_OK ? deflated : 0;
    if (strstr(compressor, "Zstd"))
        return ZSTD_compress(to, room, from, n, 3);
    memcpy(to, from, n);
    return n;
}

static void put_text(struct bti_bytes *to, const char *text)
{
    put_number(to, strlen(text), 2);
    put(to, text, strlen(text));
}

/* Chunks that compress to more than four fifths are stored uncompressed. */
static void compress_data(struct bti_files *out, const struct bti_bytes *plain, const char *compressor, size_t length)
{
    size_t room = 2 * length + 1000, most = length * 4 / 5;
    unsigned char *packed = malloc(room);
    if (!packed)
        abort();
    put_text(&out->info, compressor);
    put_number(&out->info, 1, 4);
    put_text(&out->info, "chunk_length_in_kb");
    put_text(&out->info, "4");
    put_number(&out->info, length, 4);
    put_number(&out->info, most, 4);
    put_number(&out->info, plain->len, 8);
    put_number(&out->info, (plain->len + length - 1) / length, 4);
    for (size_t at = 0; at < plain->len; at += length) {
        const unsigned char *from = plain->bytes + at;
        size_t n = plain->len - at < length ? plain->len - at : length, got = pack(compressor, from, n, packed, room);
        put_number(&out->info, out->data.len, 8);
        if (got >= most) { /* with zeros after it up to that length, as databases do */
            memset(packed, 0, room);
            memcpy(packed, from, n);
            got = n < most ? most : n;
        }
        put(&out->data, packed, got);
        put_number(&out->data, crc32(0, packed, (uInt)got), 4);
    }
    free(packed);
}

void bti_files_make(struct bti_files *out, struct rng *rng, const struct bti_key *keys, size_t n,
                    const char *compressor, size_t chunk_length)
{
    struct bti_bytes plain = {NULL};
    struct place *places = calloc(n + 1, sizeof(*places));
    if (!places)
        abort();
    *out = (struct bti_files){{NULL}};
    for (size_t i = 0; i < n; i++) {
        bool in_rows = rng_below(rng, 3) == 0;
        struct bti_bytes *to = in_rows ? &out->rows : &plain;
        put_chance(to, rng, 300);
        places[i].value = in_rows ? (int64_t)to->len : ~(int64_t)to->len;
        places[i].hash = keys[i].hash;
        put_number(to, keys[i].len, 2);
        put(to, keys[i].bytes, keys[i].len);
    }
    put_chance(&plain, rng, 300);
    struct trie trie = {&out->partitions, rng, places};
    put_number(&out->partitions, 0, 1); /* nothing is at 0, so no distance is 0 */
    uint64_t root = n ? put_trie(&trie, 0, n) : 0, first = out->partitions.len;
    put_number(&out->partitions, first, 8);
    put_number(&out->partitions, n, 8);
    put_number(&out->partitions, root, 8);
    if (compressor) {
        compress_data(out, &plain, compressor, chunk_length);
        free(plain.bytes);
    } else {
        out->data = plain;
    }
    free(places);
}

void bti_files_free(struct bti_files *files)
{
    free(files->partitions.bytes);
    free(files->rows.bytes);
    free(files->data.bytes);
    free(files->info.bytes);
}
