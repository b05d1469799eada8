/* filterdb: the bytes of a Filter.db file, memory to memory (docs/FORMAT.md): an 8-byte header (k, word count, both
 * big-endian 32-bit) and the words, in the byte order of the variant.
 *
 * It opens no file. Bytes are refused unless they are exactly a filter: k in 1..BLOOM_MAX_K, 1..BLOOM_MAX_WORDS words,
 * and a size of 8 + 8 * words; each refusal has a reason. Layers in RedisBloom's layout are kept in the same form under
 * other names (store/manifest.h), with more hashes and little-endian words.
 *
 * Thread: any. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "bloom_params.h"
#include "bloom_state.h"
#include "errbuf.h"
#include "fsops.h"

#define FILTERDB_HEADER_BYTES 8

enum filterdb_status {
    FILTERDB_OK = 0,
    FILTERDB_MALFORMED = 1, /* the errbuf says why */
};

/* Size of the file of a layer. */
static inline uint64_t filterdb_bytes(uint64_t nwords)
{
    return FILTERDB_HEADER_BYTES + 8 * nwords;
}

void filterdb_encode_header(const struct bloom_shape *shape, unsigned char out[FILTERDB_HEADER_BYTES]);

/* Reads the header of a file of `file_size` bytes, of which the first min(file_size, 8) are at `bytes`. The variant is
 * not in the file: it is copied into the shape. FILTERDB_OK or FILTERDB_MALFORMED (output untouched). */
int filterdb_decode_header(const unsigned char *bytes, uint64_t file_size, enum bloom_variant variant,
                           struct bloom_shape *shape_out, struct errbuf *err);

/* Words to file bytes and back, 8 * nwords bytes, in the variant's order. The words may be added to by other threads at
 * the same time: encode reads each one once. Decode needs fresh words, all zero, which no thread reads yet, and leaves
 * alone runs that stay zero, so that the memory of a sparse filter is not touched. `bytes` needs no alignment. */
void filterdb_encode_words(enum bloom_variant variant, const _Atomic uint64_t *words, size_t nwords,
                           unsigned char *bytes);
void filterdb_decode_words(enum bloom_variant variant, const unsigned char *bytes, size_t nwords,
                           _Atomic uint64_t *words);

/* File bytes that have been put where the words are, 8 * nwords of them, become words. */
void filterdb_turn_words(enum bloom_variant variant, _Atomic uint64_t *words, size_t nwords);

/* A layout of files with one layer: "na", "me", "ka", "blocked". */
int filterdb_variant_parse(const char *text, size_t len, enum bloom_variant *variant_out); /* 0 or FILTERDB_MALFORMED */

/* The variant that the version in the name of an SSTable's filter represents (sstable_name.h); directories before it do
 * not matter. FILTERDB_OK, or FILTERDB_MALFORMED with the reason. */
int filterdb_variant_from_path(const char *path, enum bloom_variant *variant_out, struct errbuf *err);

/* A KEYED filter has the id of its key in its name ("na-0-big-Filter.db.keyed-0123456789abcdef"), so no program takes
 * the file for a filter that it can query. The id, and the length of the path before this end; 0: none. */
#define FILTERDB_KEYED_END ".keyed-"
uint64_t filterdb_key_of_path(const char *path, size_t *len_out);

/* ---- files of RedisBloom's and valkey-bloom's layouts: a header, and the bits, which are the first bytes of the
 * layer's words as they are in memory (docs/FORMAT.md, section 15) ---- */

/* The longest header. Tightening ratio and seed of valkey-bloom's layout follow the 72 bytes of RedisBloom's. */
#define BITS_FILE_HEADER_BYTES (72 + 8 + BLOOM_SEED_BYTES)

/* A layer in the form for other programs: such a file, or a Filter.db for a layout of Cassandra's. Its size; its
 * header, whose length is returned; it states at most as many items as the layer may have. The words, or the beginning
 * of them, follow the header. */
uint64_t export_file_bytes(const struct bloom_shape *shape);
size_t export_file_header(const struct bloom_params *params, const struct bloom_shape *shape, uint64_t items,
                          unsigned char out[BITS_FILE_HEADER_BYTES]);

/* Reads the header of a file at `bytes`, which has `size` bytes or more files behind it; its bytes are those of
 * export_file_header(). Verifies every number; the parameters are those of a filter whose first layer this is, and
 * export_file_bytes() of the shape is not above `size`. 0, or BLOOM_REFUSED with the reason. */
int bits_file_decode_header(const unsigned char *bytes, uint64_t size, struct bloom_params *params_out,
                            struct bloom_shape *shape_out, uint64_t *items_out, struct errbuf *err);

/* ---- Filter.db files of other programs, opened for reading: their shape, state and words, or single items without
 * reading the rest ----
 *
 * A file is refused unless its length is exactly what its header announces. It may be replaced, cut or deleted while it
 * is open: reads beyond its new end are errors (FS_ENDS), never a signal, since nothing is mapped.
 *
 * Lifetime: caller's storage, open to close. Thread: any, on distinct objects. */

struct filter_file {
    const struct fsops *fs;
    int fd; /* -1: not open */
    struct bloom_shape shape;
    unsigned header; /* bytes before the words */
    uint64_t items;  /* as the file states; 0: it does not */
    uint64_t key;    /* id of the key of a KEYED filter, as its name says; 0: none. An adopted file has none */
};

/* Opens `path`. A file of LAYOUT blocked says so itself. `variant_text` is "na", "me", "ka", "blocked", or NULL: then
 * the name of the file says it. 0; or FILTERDB_MALFORMED or -errno, with the reason (without the path) in `err`:
 * nothing is open then. */
int filter_file_open(struct filter_file *file, const struct fsops *fs, const char *path, const char *variant_text,
                     struct errbuf *err);

/* filter_file_open() of an open descriptor, which the filter_file owns from now on, also after an error. */
int filter_file_adopt(struct filter_file *file, const struct fsops *fs, int fd, enum bloom_variant variant,
                      struct errbuf *err);
void filter_file_close(struct filter_file *file); /* idempotent */

/* Whether the file may have the item: 1 or 0, or -errno. Reads a byte for each bit until one is not set. */
int filter_file_query(const struct filter_file *file, struct bloom_hash hash);

/* Reads words `from` to `from` + n - 1 into words[0..n-1], which are zero before. 0 or -errno. */
int filter_file_read(const struct filter_file *file, uint64_t from, uint64_t n, _Atomic uint64_t *words);

/* Counts the bits. `progress` (may be NULL) is told how many words are done. 0 or -errno. */
int filter_file_state(const struct filter_file *file, void (*progress)(void *ctx, uint64_t words), void *ctx,
                      struct bloom_state *state_out);

/* The parameters that the file lacks, for a filter of fixed size with these bits; a shape with numbers of its own has
 * them. The capacity is the number of items estimated from its bits, or bits * ln 2 / k (the usual one) if that is
 * more; the rate is the one at its capacity. */
void filter_file_params(const struct bloom_shape *shape, const struct bloom_state *state,
                        struct bloom_params *params_out);

/* Its rate with this capacity, in (0, 1). */
double filter_file_rate(const struct bloom_shape *shape, uint64_t capacity);
