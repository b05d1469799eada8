#include "valkey_format.h"

#include <string.h>

#include "bloom_size.h"
#include "bytes.h"

#define BLOB_VERSION   1
#define LOAD_VERSION   1
#define LOAD_HEAD      30 /* bytes of a payload before its layers */
#define LOAD_LAYER_MIN (8 + VALKEY_BLOB_HEAD + 1 + 16)
#define HEAD_FIELDS    6 /* the last one is the number of items */
#define LAYER_FIELDS   2

/* ---- checks ---- */

static int refuse(struct errbuf *err, const char *what, uint64_t value)
{
    return errbuf_fail(err, RDB_BAD, "%s: %llu is not possible", what, (unsigned long long)value);
}

static bool rates_are_possible(double error, double tightening)
{
    return error > 0 && error < 1 && tightening > 0 && tightening < 1;
}

static int check_head(const struct valkey_filter *value, uint64_t random_seed, struct errbuf *err)
{
    if (value->nlayers < 1 || value->nlayers > BLOOM_MAX_LAYERS || (value->expansion == 0 && value->nlayers > 1))
        return refuse(err, "number of layers", value->nlayers);
    if (value->expansion > UINT32_MAX)
        return refuse(err, "expansion", value->expansion);
    if (random_seed > 1)
        return refuse(err, "random seed", random_seed);
    if (rates_are_possible(value->error, value->tightening))
        return RDB_OK;
    return errbuf_fail(err, RDB_BAD, "error rate %g and tightening ratio %g: must be in the range (0, 1)", value->error,
                       value->tightening);
}

/* The bytes of a blob before its bits; `len` of all of it. */
static int check_blob(struct valkey_filter *value, unsigned index, const unsigned char *head, uint64_t len,
                      struct errbuf *err)
{
    struct valkey_layer *layer = &value->layers[index];
    struct bloom_seed seed;

    layer->bytes = le64_get(head + 1);
    layer->hashes = le32_get(head + 9);
    if (head[0] != BLOB_VERSION)
        return refuse(err, "version of the bits", head[0]);
    if (layer->bytes != len - VALKEY_BLOB_HEAD || layer->bytes > BLOOM_MAX_WORDS * 8)
        return refuse(err, "length of the bits", layer->bytes);
    if (layer->hashes < 1 || layer->hashes > BLOOM_MAX_HASHES)
        return refuse(err, "number of hashes", layer->hashes);
    memcpy(&seed, head + VALKEY_BLOB_HEAD - BLOOM_SEED_BYTES, BLOOM_SEED_BYTES);
    if (index == 0)
        value->seed = seed;
    if (bloom_seed_equal(&seed, &value->seed) && (!value->fixed_seed || bloom_seed_equal(&seed, &valkey_fixed_seed)))
        return RDB_OK;
    return errbuf_fail(err, RDB_BAD, "seed: it is not that of the filter's %s",
                       index ? "first layer" : "kind, which is fixed");
}

static int check_capacity(const struct valkey_filter *value, unsigned index, struct errbuf *err)
{
    uint64_t capacity = value->layers[index].capacity, wanted = capacity;

    if (index > 0 && __builtin_mul_overflow(value->layers[index - 1].capacity, value->expansion, &wanted))
        wanted = 0;
    if (capacity < 1 || capacity > INT64_MAX || capacity != wanted)
        return refuse(err, "capacity", capacity);
    return RDB_OK;
}

static int check_items(const struct valkey_layer *layer, struct errbuf *err)
{
    return layer->items <= layer->capacity ? RDB_OK : refuse(err, "number of items", layer->items);
}

/* ---- blobs ---- */

struct blob {
    struct valkey_filter *value;
    rdb_bits_fn *bits;
    void *ctx;
    struct errbuf *err;
    uint64_t len; /* RDB_ANY_LENGTH until it is known */
    uint64_t at;
    unsigned layer;
    unsigned char head[VALKEY_BLOB_HEAD];
};

static int too_short(const struct blob *blob)
{
    return errbuf_fail(blob->err, RDB_BAD, "bits: a string of %llu bytes has none",
                       (unsigned long long)(blob->len == RDB_ANY_LENGTH ? 0 : blob->len));
}

static int take_blob(void *ctx, const unsigned char *bytes, size_t len)
{
    struct blob *blob = ctx;

    if (blob->len <= VALKEY_BLOB_HEAD)
        return too_short(blob);
    if (blob->at < VALKEY_BLOB_HEAD) {
        size_t missing = VALKEY_BLOB_HEAD - (size_t)blob->at, n = len < missing ? len : missing;

        memcpy(blob->head + blob->at, bytes, n);
        blob->at += n;
        if (n == missing)
            TRY(check_blob(blob->value, blob->layer, blob->head, blob->len, blob->err));
        bytes += n;
        len -= n;
    }
    if (len > 0 && blob->bits)
        TRY(blob->bits(blob->ctx, blob->layer, blob->at - VALKEY_BLOB_HEAD, bytes, len));
    blob->at += len;
    return RDB_OK;
}

/* ---- reading a value ---- */

static int read_head(struct rdb_reader *reader, struct valkey_filter *value)
{
    uint64_t random_seed;
    TRY(rdb_module_unsigned(reader, &value->nlayers, "the number of layers"));
    TRY(rdb_module_unsigned(reader, &value->expansion, "the expansion"));
    TRY(rdb_module_double(reader, &value->error, "the error rate"));
    TRY(rdb_module_double(reader, &value->tightening, "the tightening ratio"));
    TRY(rdb_module_unsigned(reader, &random_seed, "the kind of seed"));
    value->fixed_seed = random_seed == 0;
    return check_head(value, random_seed, reader->err);
}

/* Layers below the last one are full. */
static int read_layer(struct rdb_reader *reader, struct blob *blob)
{
    struct valkey_filter *value = blob->value;
    struct valkey_layer *layer = &value->layers[blob->layer];
    TRY(rdb_module_string(reader, &blob->len, take_blob, blob, "the bits"));
    if (blob->at <= VALKEY_BLOB_HEAD)
        return too_short(blob);
    TRY(rdb_module_unsigned(reader, &layer->capacity, "the capacity"));
    TRY(check_capacity(value, blob->layer, reader->err));
    layer->items = layer->capacity;
    if (blob->layer + 1 == value->nlayers)
        TRY(rdb_module_unsigned(reader, &layer->items, "the number of items"));
    return check_items(layer, reader->err);
}

int valkey_read(struct rdb_reader *reader, unsigned encver, struct valkey_filter *value_out, rdb_bits_fn *bits,
                void *ctx)
{
    if (encver != VALKEY_ENCVER)
        return rdb_bad(reader, "encoding version %u of valkey-bloom's filters is not known", encver);
    TRY(read_head(reader, value_out));
    for (unsigned i = 0; i < value_out->nlayers; i++) {
        struct blob blob = {value_out, bits, ctx, reader->err, RDB_ANY_LENGTH, 0, i, {0}};
        int rc = read_layer(reader, &blob);

        if (rc == RDB_BAD)
            errbuf_prefix(reader->err, "layer %u", i);
        if (rc != RDB_OK)
            return rc;
    }
    return rdb_module_end(reader);
}

/* ---- reading a payload ---- */

/* `left`: bytes from `at` on. */
static int read_load_layer(struct blob *blob, const unsigned char **at, uint64_t *left)
{
    struct valkey_layer *layer = &blob->value->layers[blob->layer];

    blob->len = *left < LOAD_LAYER_MIN ? 0 : le64_get(*at);
    if (blob->len <= VALKEY_BLOB_HEAD || blob->len > *left - 8 - 16)
        return too_short(blob);
    const unsigned char *end = *at + 8 + blob->len;
    TRY(take_blob(blob, *at + 8, (size_t)blob->len));
    layer->items = le64_get(end);
    layer->capacity = le64_get(end + 8);
    *left -= 8 + blob->len + 16;
    *at = end + 16;
    TRY(check_capacity(blob->value, blob->layer, blob->err));
    return check_items(layer, blob->err);
}

int valkey_read_load(const void *data, size_t len, struct valkey_filter *value_out, rdb_bits_fn *bits, void *ctx,
                     struct errbuf *err)
{
    const unsigned char *at = data;
    uint64_t left = len - LOAD_HEAD;

    if (len < 1 || at[0] != LOAD_VERSION)
        return refuse(err, "version of the payload", len < 1 ? 0 : at[0]);
    if (len < LOAD_HEAD)
        return errbuf_fail(err, RDB_BAD, "%zu bytes are too few for a filter", len);
    value_out->expansion = le32_get(at + 1);
    value_out->error = le_double_get(at + 5);
    value_out->tightening = le_double_get(at + 13);
    value_out->fixed_seed = at[21] == 0;
    value_out->nlayers = le64_get(at + 22);
    TRY(check_head(value_out, at[21], err));
    at += LOAD_HEAD;
    for (unsigned i = 0; i < value_out->nlayers; i++) {
        struct blob blob = {value_out, bits, ctx, err, 0, 0, i, {0}};
        int rc = read_load_layer(&blob, &at, &left);

        if (rc == RDB_BAD)
            errbuf_prefix(err, "layer %u", i);
        if (rc != RDB_OK)
            return rc;
    }
    return RDB_OK;
}

const char *valkey_load_error(const void *data, size_t len)
{
    const unsigned char *at = data;
    if (len > 0 && at[0] != LOAD_VERSION)
        return "ERR bloom object decoding failed. Unsupported version";
    if (len >= LOAD_HEAD && !rates_are_possible(le_double_get(at + 5), le_double_get(at + 13)))
        return "ERR (0 < error rate range < 1)";
    return "ERR bloom object decoding failed";
}

/* ---- writing ---- */

uint64_t valkey_dump_max(const struct valkey_filter *value)
{
    uint64_t bytes = RDB_DUMP_MAX + HEAD_FIELDS * RDB_MODULE_FIELD_MAX;

    for (uint64_t i = 0; i < value->nlayers; i++)
        bytes += LAYER_FIELDS * RDB_MODULE_FIELD_MAX + VALKEY_BLOB_HEAD + value->layers[i].bytes;
    return bytes;
}

unsigned char *valkey_put_head(unsigned char *at, const struct valkey_filter *value)
{
    at = rdb_put_module(at, VALKEY_TYPE_ID | VALKEY_ENCVER);
    at = rdb_put_unsigned(at, value->nlayers);
    at = rdb_put_unsigned(at, value->expansion);
    at = rdb_put_double(at, value->error);
    at = rdb_put_double(at, value->tightening);
    return rdb_put_unsigned(at, !value->fixed_seed);
}

unsigned char *valkey_put_blob(unsigned char *at, const struct valkey_filter *value, unsigned layer)
{
    *at++ = BLOB_VERSION;
    at = le64_put(at, value->layers[layer].bytes);
    at = le32_put(at, value->layers[layer].hashes);
    memcpy(at, &value->seed, BLOOM_SEED_BYTES);
    return at + BLOOM_SEED_BYTES;
}

uint64_t valkey_load_bytes(const struct valkey_filter *value)
{
    uint64_t bytes = LOAD_HEAD;

    for (uint64_t i = 0; i < value->nlayers; i++)
        bytes += 8 + VALKEY_BLOB_HEAD + value->layers[i].bytes + 16;
    return bytes;
}

unsigned char *valkey_put_load_head(unsigned char *at, const struct valkey_filter *value)
{
    *at++ = LOAD_VERSION;
    at = le32_put(at, (uint32_t)value->expansion);
    at = le_double_put(at, value->error);
    at = le_double_put(at, value->tightening);
    *at++ = !value->fixed_seed;
    return le64_put(at, value->nlayers);
}
