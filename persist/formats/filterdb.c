/* In memory the words are little-endian bytes with bit i at byte i / 8, value 1 << (i % 8): the NEW body as it is. The
 * OLD body has the eight bytes of every word reversed. The header is big-endian in both. */
#include "filterdb.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "check.h"
#include "bloom_geometry.h"
#include "bloom_layout.h"
#include "redisbloom.h"
#include "valkey.h"

#define RUN_WORDS 64 /* checked together when decoding: less than a page, so that no page is touched without need */

void filterdb_encode_header(const struct bloom_shape *shape, unsigned char out[FILTERDB_HEADER_BYTES])
{
    CHECK(shape->k >= 1 && shape->k <= bloom_layout_of(shape->variant)->max_k && shape->nwords >= 1 &&
          shape->nwords <= BLOOM_MAX_WORDS);
    be32_put(be32_put(out, shape->k), (uint32_t)shape->nwords);
}

static int check_size(uint64_t nwords, uint64_t file_size, struct errbuf *err)
{
    uint64_t body = file_size - FILTERDB_HEADER_BYTES;

    if (body / 8 < nwords)
        return errbuf_fail(err, FILTERDB_MALFORMED, "truncated: %llu bytes expected, %llu found",
                           (unsigned long long)filterdb_bytes(nwords), (unsigned long long)file_size);
    if (body > 8 * nwords)
        return errbuf_fail(err, FILTERDB_MALFORMED, "%llu bytes behind the %llu words it announces",
                           (unsigned long long)(body - 8 * nwords), (unsigned long long)nwords);
    return FILTERDB_OK;
}

int filterdb_decode_header(const unsigned char *bytes, uint64_t file_size, enum bloom_variant variant,
                           struct bloom_shape *shape_out, struct errbuf *err)
{
    if (file_size < FILTERDB_HEADER_BYTES)
        return errbuf_fail(err, FILTERDB_MALFORMED,
                           file_size == 0 ? "empty file" : "%llu bytes, shorter than the header of 8",
                           (unsigned long long)file_size);
    int32_t k = (int32_t)be32_get(bytes);
    int32_t nwords = (int32_t)be32_get(bytes + 4);
    if (k < 1 || k > bloom_layout_of(variant)->max_k)
        return errbuf_fail(err, FILTERDB_MALFORMED, "hash count %d is not in 1..%d", k,
                           bloom_layout_of(variant)->max_k);
    if (nwords < 1)
        return errbuf_fail(err, FILTERDB_MALFORMED, "word count %d is not in 1..%llu", nwords,
                           (unsigned long long)BLOOM_MAX_WORDS);
    if (check_size((uint64_t)nwords, file_size, err) != FILTERDB_OK)
        return FILTERDB_MALFORMED;
    *shape_out = (struct bloom_shape){.nwords = (uint64_t)nwords, .k = (uint8_t)k, .variant = (uint8_t)variant};
    return FILTERDB_OK;
}

void filterdb_encode_words(enum bloom_variant variant, const _Atomic uint64_t *words, size_t nwords,
                           unsigned char *bytes)
{
    if (!bloom_layout_of(variant)->big_endian) {
        for (size_t i = 0; i < nwords; i++) {
            uint64_t word = atomic_load_explicit(&words[i], memory_order_relaxed);
            memcpy(bytes + 8 * i, &word, 8);
        }
        return;
    }
    for (size_t i = 0; i < nwords; i++) {
        uint64_t word = __builtin_bswap64(atomic_load_explicit(&words[i], memory_order_relaxed));
        memcpy(bytes + 8 * i, &word, 8);
    }
}

static bool all_zero(const unsigned char *bytes, size_t nwords)
{
    uint64_t any = 0;

    for (size_t i = 0; i < nwords; i++) {
        uint64_t word;
        memcpy(&word, bytes + 8 * i, 8);
        any |= word;
    }
    return any == 0;
}

static void decode_run(enum bloom_variant variant, const unsigned char *bytes, size_t nwords, _Atomic uint64_t *words)
{
    bool big_endian = bloom_layout_of(variant)->big_endian;

    for (size_t i = 0; i < nwords; i++) {
        uint64_t word;
        memcpy(&word, bytes + 8 * i, 8);
        atomic_store_explicit(&words[i], big_endian ? __builtin_bswap64(word) : word, memory_order_relaxed);
    }
}

void filterdb_decode_words(enum bloom_variant variant, const unsigned char *bytes, size_t nwords,
                           _Atomic uint64_t *words)
{
    for (size_t i = 0; i < nwords; i += RUN_WORDS) {
        size_t n = nwords - i < RUN_WORDS ? nwords - i : RUN_WORDS;
        /* Fresh words are zero already, and not yet in memory: a sparse filter stays small. */
        if (!all_zero(bytes + 8 * i, n))
            decode_run(variant, bytes + 8 * i, n, words + i);
    }
}

void filterdb_turn_words(enum bloom_variant variant, _Atomic uint64_t *words, size_t nwords)
{
    if (!bloom_layout_of(variant)->big_endian)
        return;
    for (size_t i = 0; i < nwords; i++) {
        uint64_t word = atomic_load_explicit(&words[i], memory_order_relaxed);
        atomic_store_explicit(&words[i], __builtin_bswap64(word), memory_order_relaxed);
    }
}

int filterdb_variant_parse(const char *text, size_t len, enum bloom_variant *variant_out)
{
    enum bloom_variant variant;

    if (!bloom_variant_parse(text, len, &variant) ||
        (bloom_layout_of(variant)->own_numbers && variant != BLOOM_BLOCKED))
        return FILTERDB_MALFORMED;
    *variant_out = variant;
    return FILTERDB_OK;
}

/* ---- bits of the other layouts ---- */

#define MAGIC   "BLOOMRBL"
#define VERSION 1
#define HEADER  72 /* bytes without a seed */

static size_t header_bytes(bool seed)
{
    return seed ? BITS_FILE_HEADER_BYTES : HEADER;
}

static uint64_t file_bytes(const struct bloom_shape *shape)
{
    return header_bytes(bloom_layout_has_seed(shape->variant)) + bloom_shape_bytes(shape);
}

static void encode_header(const struct bloom_params *params, const struct bloom_shape *shape, uint64_t items,
                          unsigned char out[BITS_FILE_HEADER_BYTES])
{
    unsigned char *at = out;

    memcpy(at, MAGIC, 8);
    at = le32_put(at + 8, VERSION);
    at = le32_put(at, params->redisbloom);
    at = le64_put(at, params->expansion);
    at = le64_put(at, shape->capacity);
    at = le_double_put(at, shape->error_rate);
    at = le_double_put(at, shape->bpe);
    at = le64_put(at, bloom_shape_bytes(shape) * 8);
    at = le64_put(at, items < shape->capacity ? items : shape->capacity);
    at = le32_put(at, shape->k);
    at = le32_put(at, shape->n2);
    if (bloom_params_have_seed(params))
        memcpy(le_double_put(at, params->tightening), &params->seed, BLOOM_SEED_BYTES);
}

static int check_bits_size(const struct bloom_shape *shape, uint64_t size, struct errbuf *err)
{
    if (file_bytes(shape) <= size)
        return BLOOM_OK;
    return errbuf_fail(err, BLOOM_REFUSED, "announces %llu bytes of bits but holds %llu",
                       (unsigned long long)bloom_shape_bytes(shape),
                       (unsigned long long)(size - header_bytes(bloom_layout_has_seed(shape->variant))));
}

static int check_seeded(const unsigned char *bytes, uint64_t size, uint64_t expansion,
                        const struct redisbloom_layer *layer, struct bloom_params *params_out,
                        struct bloom_shape *shape_out, struct errbuf *err)
{
    struct bloom_params params = {.capacity = layer->entries,
                                  .error_rate = layer->error,
                                  .expansion = (uint32_t)expansion,
                                  .redisbloom = BLOOM_OPTION_VALKEY};

    if (size < BITS_FILE_HEADER_BYTES)
        return errbuf_fail(err, BLOOM_REFUSED, "%llu bytes, shorter than the header of %d", (unsigned long long)size,
                           BITS_FILE_HEADER_BYTES);
    params.tightening = le_double_get(bytes + HEADER);
    memcpy(&params.seed, bytes + HEADER + 8, BLOOM_SEED_BYTES);
    if (!bloom_params_valid(&params, err) ||
        valkey_shape(layer->entries, layer->error, layer->bits / 8, layer->hashes, shape_out, err) != BLOOM_OK)
        return BLOOM_REFUSED;
    *params_out = params;
    if (layer->bits % 8 == 0 && layer->bpe == shape_out->bpe && layer->n2 == 0 && layer->count <= layer->entries)
        return BLOOM_OK;
    return errbuf_fail(err, BLOOM_REFUSED,
                       "%llu bits, %g bits per entry, n2 %llu and %llu items of %llu do not belong together",
                       (unsigned long long)layer->bits, layer->bpe, (unsigned long long)layer->n2,
                       (unsigned long long)layer->count, (unsigned long long)layer->entries);
}

static int check_blocked(uint64_t expansion, const struct redisbloom_layer *layer, struct bloom_params *params_out,
                         struct bloom_shape *shape_out, struct errbuf *err)
{
    *shape_out = (struct bloom_shape){.nwords = layer->bits / 64,
                                      .k = (uint8_t)layer->hashes,
                                      .variant = BLOOM_BLOCKED,
                                      .capacity = layer->entries,
                                      .error_rate = layer->error,
                                      .bpe = layer->bpe};
    *params_out = (struct bloom_params){.capacity = layer->entries,
                                        .error_rate = layer->error,
                                        .expansion = (uint32_t)expansion,
                                        .redisbloom = BLOOM_OPTION_BLOCKED};
    if (!bloom_params_valid(params_out, err) || !bloom_shape_valid(shape_out, err))
        return BLOOM_REFUSED;
    if (layer->bits % 64 == 0 && layer->hashes == shape_out->k && layer->n2 == 0 && layer->count <= layer->entries)
        return BLOOM_OK;
    return errbuf_fail(
        err, BLOOM_REFUSED, "%llu bits, %llu hashes, n2 %llu and %llu items of %llu do not belong together",
        (unsigned long long)layer->bits, (unsigned long long)layer->hashes, (unsigned long long)layer->n2,
        (unsigned long long)layer->count, (unsigned long long)layer->entries);
}

int bits_file_decode_header(const unsigned char *bytes, uint64_t size, struct bloom_params *params_out,
                            struct bloom_shape *shape_out, uint64_t *items_out, struct errbuf *err)
{
    if (size < HEADER)
        return errbuf_fail(err, BLOOM_REFUSED, "%llu bytes, shorter than the header of %d", (unsigned long long)size,
                           HEADER);
    if (memcmp(bytes, MAGIC, 8) != 0 || le32_get(bytes + 8) != VERSION)
        return errbuf_fail(err, BLOOM_REFUSED, "does not begin with " MAGIC " and the version %d", VERSION);
    const struct redisbloom_layer layer = {
        .entries = le64_get(bytes + 24),
        .error = le_double_get(bytes + 32),
        .bpe = le_double_get(bytes + 40),
        .bits = le64_get(bytes + 48),
        .count = le64_get(bytes + 56),
        .hashes = le32_get(bytes + 64),
        .n2 = le32_get(bytes + 68),
    };
    uint64_t expansion = le64_get(bytes + 16);
    uint32_t options = le32_get(bytes + 12);
    int rc = options == BLOOM_OPTION_VALKEY ? check_seeded(bytes, size, expansion, &layer, params_out, shape_out, err)
             : options == BLOOM_OPTION_BLOCKED
                 ? check_blocked(expansion, &layer, params_out, shape_out, err)
                 : redisbloom_check_first(options, expansion, &layer, params_out, shape_out, err);
    if (rc == BLOOM_OK && expansion != params_out->expansion) { /* RedisBloom's own values may have any */
        errbuf_set(err, "expansion %llu in a filter of fixed size: must be 0", (unsigned long long)expansion);
        rc = BLOOM_REFUSED;
    }
    STEP(rc, check_bits_size(shape_out, size, err));
    if (rc == BLOOM_OK)
        *items_out = layer.count;
    return rc;
}

uint64_t export_file_bytes(const struct bloom_shape *shape)
{
    return bloom_layout_of(shape->variant)->own_numbers ? file_bytes(shape) : filterdb_bytes(shape->nwords);
}

size_t export_file_header(const struct bloom_params *params, const struct bloom_shape *shape, uint64_t items,
                          unsigned char out[BITS_FILE_HEADER_BYTES])
{
    if (bloom_layout_of(shape->variant)->own_numbers) {
        encode_header(params, shape, items, out);
        return header_bytes(bloom_params_have_seed(params));
    }
    filterdb_encode_header(shape, out);
    return FILTERDB_HEADER_BYTES;
}

/* ---- files of others ---- */

#define PIECE_WORDS 65536u /* read at once */

/* ---- opening ---- */

/* -EINVAL and -ENXIO: a FIFO, a device or a socket has the name of a filter. */
static const char *reason_for(int rc)
{
    return rc == -EINVAL || rc == -ENXIO ? "it is not a regular file" : fs_error_text(rc);
}

int filter_file_adopt(struct filter_file *file, const struct fsops *fs, int fd, enum bloom_variant variant,
                      struct errbuf *err)
{
    unsigned char header[FILTERDB_HEADER_BYTES] = {0};
    uint64_t size = 0;

    *file = (struct filter_file){.fs = fs, .fd = fd, .header = FILTERDB_HEADER_BYTES};
    int rc = fs->size(fs->ctx, fd, &size);
    STEP(rc, fs_read_all(fs, fd, header, size < sizeof(header) ? (size_t)size : sizeof(header), 0));
    if (rc != 0)
        errbuf_set(err, "%s", reason_for(rc));
    else
        rc = filterdb_decode_header(header, size, variant, &file->shape, err);
    if (rc != 0)
        filter_file_close(file);
    return rc;
}

/* If the file is of section 15, adopts it, as FILTERDB_OK or FILTERDB_MALFORMED; otherwise -ENOMSG. */
static int adopt_bits(struct filter_file *file, struct errbuf *err)
{
    unsigned char header[BITS_FILE_HEADER_BYTES] = {0};
    struct bloom_params params;
    uint64_t size;

    TRY(file->fs->size(file->fs->ctx, file->fd, &size));
    if (size < HEADER)
        return -ENOMSG;
    TRY(fs_read_all(file->fs, file->fd, header, size < sizeof(header) ? (size_t)size : sizeof(header), 0));
    if (memcmp(header, MAGIC, 8) != 0)
        return -ENOMSG;
    if (bits_file_decode_header(header, size, &params, &file->shape, &file->items, err) != BLOOM_OK)
        return FILTERDB_MALFORMED;
    if (file->shape.variant != BLOOM_BLOCKED)
        return errbuf_fail(err, FILTERDB_MALFORMED, "a layer in LAYOUT %s, which only libbloomery reads",
                           bloom_variant_name(file->shape.variant));
    file->header = HEADER;
    return FILTERDB_OK;
}

int filter_file_open(struct filter_file *file, const struct fsops *fs, const char *path, const char *variant_text,
                     struct errbuf *err)
{
    enum bloom_variant variant = BLOOM_NA;
    int fd;

    *file = (struct filter_file){.fs = fs, .fd = -1};
    if (variant_text && filterdb_variant_parse(variant_text, strlen(variant_text), &variant) != FILTERDB_OK)
        return errbuf_fail(err, FILTERDB_MALFORMED, "the variant '%s' is not na, me, ka or blocked", variant_text);
    int rc = fs->open(fs->ctx, path, FS_READ, &fd);
    if (rc != 0)
        return errbuf_fail(err, rc, "cannot open: %s", reason_for(rc));
    file->fd = fd;
    rc = adopt_bits(file, err);
    if (variant_text && rc != FILTERDB_MALFORMED && (rc == FILTERDB_OK) != (variant == BLOOM_BLOCKED))
        rc = errbuf_fail(err, FILTERDB_MALFORMED, "its layout is %s, and not %s",
                         rc == FILTERDB_OK ? "blocked" : "na, me or ka", variant_text);
    else if (rc < 0) /* or it cannot be read: the reason follows */
        rc = variant_text ? 0 : filterdb_variant_from_path(path, &variant, err);
    if (rc != 0)
        filter_file_close(file);
    else if (file->header == 0)
        rc = filter_file_adopt(file, fs, fd, variant, err);
    file->key = filterdb_key_of_path(path, &(size_t){0});
    return rc;
}

void filter_file_close(struct filter_file *file)
{
    if (file->fd >= 0)
        file->fs->close(file->fs->ctx, file->fd);
    file->fd = -1;
}

/* ---- items ---- */

/* FORMAT.md sections 1 and 4, without the reciprocal: a read of the file takes a hundred times a division. */
int filter_file_query(const struct filter_file *file, struct bloom_hash hash)
{
    const struct bloom_layout *layout = bloom_layout_of(file->shape.variant);
    bool h1_first = layout->h1_first;
    uint64_t base = h1_first ? hash.h1 : hash.h2, step = h1_first ? hash.h2 : hash.h1;
    uint64_t bits = 64 * file->shape.nwords;
    struct bloom_geometry geometry;

    bloom_geometry_init(&geometry, &file->shape, 0, 1, 0.5);
    struct bloom_walk walk = bloom_walk_start(&geometry, hash);
    for (unsigned i = 0; i < file->shape.k; i++, base += step) {
        uint64_t bit = geometry.walk == BLOOM_WALK_BLOCK ? bloom_walk_step(&walk, BLOOM_WALK_BLOCK)
                                                         : (base >> 63 ? 0 - base : base) % bits;
        uint64_t byte = layout->big_endian ? bit / 64 * 8 + 7 - bit / 8 % 8 : bit / 8;
        unsigned char value;
        TRY(fs_read_all(file->fs, file->fd, &value, 1, file->header + byte));
        if (!(value >> (bit % 8) & 1))
            return 0;
    }
    return 1;
}

/* ---- words ---- */

int filter_file_read(const struct filter_file *file, uint64_t from, uint64_t n, _Atomic uint64_t *words)
{
    unsigned char *buf = malloc(8 * (n < PIECE_WORDS ? (size_t)n : PIECE_WORDS));
    int rc = buf ? 0 : -ENOMEM;

    for (uint64_t at = 0; at < n && rc == 0; at += PIECE_WORDS) {
        size_t piece = n - at < PIECE_WORDS ? (size_t)(n - at) : PIECE_WORDS;
        rc = fs_read_all(file->fs, file->fd, buf, 8 * piece, file->header + 8 * (from + at));
        if (rc == 0)
            filterdb_decode_words((enum bloom_variant)file->shape.variant, buf, piece, words + at);
    }
    free(buf);
    return rc;
}

int filter_file_state(const struct filter_file *file, void (*progress)(void *ctx, uint64_t words), void *ctx,
                      struct bloom_state *state_out)
{
    _Atomic uint64_t *words = malloc(8 * PIECE_WORDS);
    uint64_t nwords = file->shape.nwords, set = 0;
    double rate = 0; /* of blocks */
    int rc = words ? 0 : -ENOMEM;

    for (uint64_t at = 0, n; at < nwords && rc == 0; at += n) {
        struct bloom_layer_view piece = {.shape = file->shape, .words = words};
        struct bloom_state state;
        n = at ? PIECE_WORDS : PIECE_WORDS - BLOCK_WORDS + nwords % BLOCK_WORDS; /* then blocks are whole */
        piece.shape.nwords = n = nwords - at < n ? nwords - at : n;
        memset((void *)words, 0, 8 * PIECE_WORDS);
        rc = filter_file_read(file, at, piece.shape.nwords, words);
        if (rc == 0) {
            bloom_layer_state(&piece, &state);
            set += state.bits_set;
            rate += state.rate * (double)n / (double)nwords;
            if (progress)
                progress(ctx, at + piece.shape.nwords);
        }
    }
    free((void *)words);
    if (rc == 0)
        bloom_shape_state(&file->shape, set, state_out);
    if (rc == 0 && file->shape.variant == BLOOM_BLOCKED)
        state_out->rate = rate;
    return rc;
}

/* ---- parameters ---- */

/* Rounding gives 1 for a hopelessly overfull filter, and 0 for one far too large for its capacity. */
double filter_file_rate(const struct bloom_shape *shape, uint64_t capacity)
{
    double rate = bloom_shape_rate(shape, capacity);

    if (rate >= 1)
        return nextafter(1, 0);
    return rate > 0 ? rate : 1e-300;
}

void filter_file_params(const struct bloom_shape *shape, const struct bloom_state *state,
                        struct bloom_params *params_out)
{
    uint64_t items = (uint64_t)llround(state->estimated_items);
    uint64_t made_for = (uint64_t)((double)(64 * shape->nwords) * M_LN2 / shape->k);
    uint64_t capacity = items > made_for ? items : made_for;

    if (bloom_layout_of(shape->variant)->own_numbers) {
        *params_out = (struct bloom_params){.capacity = shape->capacity,
                                            .error_rate = shape->error_rate,
                                            .redisbloom = bloom_layout_of(shape->variant)->options};
        return;
    }
    capacity = capacity > 0 ? capacity : 1;
    *params_out = (struct bloom_params){.capacity = capacity, .error_rate = filter_file_rate(shape, capacity)};
}
