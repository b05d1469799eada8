#include "redisbloom_format.h"

#include "bytes.h"

/* ---- checks of numbers that reading depends on, and of numbers that only the bytes have ---- */

static int check_nlayers(uint64_t nlayers, struct errbuf *err)
{
    if (nlayers >= 1 && nlayers <= BLOOM_MAX_LAYERS)
        return RDB_OK;
    return errbuf_fail(err, RDB_BAD, "nfilters: %llu layers, not 1 to %d", (unsigned long long)nlayers,
                       BLOOM_MAX_LAYERS);
}

static int check_bits(const struct redisbloom_layer *layer, struct errbuf *err)
{
    if (layer->bits > 0 && layer->bits % 8 == 0)
        return RDB_OK;
    return errbuf_fail(err, RDB_BAD, "bits: %llu is not a whole number of bytes", (unsigned long long)layer->bits);
}

static bool sum_counts(const struct redisbloom_filter *value, uint64_t *sum_out)
{
    *sum_out = 0;
    for (uint64_t i = 0; i < value->nlayers; i++)
        if (__builtin_add_overflow(*sum_out, value->layers[i].count, sum_out))
            return false;
    return true;
}

static int check_size(const struct redisbloom_filter *value, uint64_t size, struct errbuf *err)
{
    uint64_t sum;

    if (!sum_counts(value, &sum))
        errbuf_set(err, "size: the items of the layers add up to more than a 64-bit number");
    else if (sum != size)
        errbuf_set(err, "size: %llu items, but those of the layers add up to %llu", (unsigned long long)size,
                   (unsigned long long)sum);
    else
        return RDB_OK;
    return RDB_BAD;
}

/* ---- reading ---- */

static int read_head(struct rdb_reader *reader, unsigned encver, struct redisbloom_filter *value, uint64_t *size_out)
{
    value->options = 0;
    value->growth = REDISBLOOM_DEFAULT_GROWTH;
    TRY(rdb_module_unsigned(reader, size_out, "size"));
    TRY(rdb_module_unsigned(reader, &value->nlayers, "nfilters"));
    TRY(check_nlayers(value->nlayers, reader->err));
    if (encver >= REDISBLOOM_ENCVER_OPTIONS)
        TRY(rdb_module_unsigned(reader, &value->options, "options"));
    return encver >= REDISBLOOM_ENCVER_GROWTH ? rdb_module_unsigned(reader, &value->growth, "growth") : RDB_OK;
}

/* The sink of a layer's bits. */
struct layer_bits {
    rdb_bits_fn *bits;
    void *ctx;
    unsigned layer;
    uint64_t offset;
};

static int take_bits(void *ctx, const unsigned char *bytes, size_t len)
{
    struct layer_bits *to = ctx;
    int rc = to->bits ? to->bits(to->ctx, to->layer, to->offset, bytes, len) : 0;

    to->offset += len;
    return rc;
}

static int read_fields(struct rdb_reader *reader, unsigned encver, struct redisbloom_layer *layer)
{
    TRY(rdb_module_unsigned(reader, &layer->entries, "entries"));
    TRY(rdb_module_double(reader, &layer->error, "error"));
    TRY(rdb_module_unsigned(reader, &layer->hashes, "hashes"));
    TRY(rdb_module_double(reader, &layer->bpe, "bpe"));
    if (encver >= REDISBLOOM_ENCVER_BITS) {
        TRY(rdb_module_unsigned(reader, &layer->bits, "bits"));
        TRY(rdb_module_unsigned(reader, &layer->n2, "n2"));
    } else {
        layer->bits = redisbloom_old_bits(layer);
    }
    return check_bits(layer, reader->err);
}

static int read_layer(struct rdb_reader *reader, unsigned encver, struct redisbloom_layer *layer, struct layer_bits *to)
{
    *layer = (struct redisbloom_layer){0};
    TRY(read_fields(reader, encver, layer));
    uint64_t bytes = redisbloom_bytes(layer);
    TRY(rdb_module_string(reader, &bytes, take_bits, to, "the string of bits"));
    return rdb_module_unsigned(reader, &layer->count, "size");
}

int redisbloom_read(struct rdb_reader *reader, unsigned encver, struct redisbloom_filter *value_out, rdb_bits_fn *bits,
                    void *ctx)
{
    uint64_t size = 0;

    if (encver > REDISBLOOM_ENCVER)
        return rdb_bad(reader, "encoding version %u of RedisBloom's filters is not known", encver);

    int rc = read_head(reader, encver, value_out, &size);
    for (unsigned i = 0; rc == RDB_OK && i < value_out->nlayers; i++) {
        struct layer_bits to = {bits, ctx, i, 0};

        rc = read_layer(reader, encver, &value_out->layers[i], &to);
        if (rc == RDB_BAD)
            errbuf_prefix(reader->err, "layer %u", i);
    }
    STEP(rc, rdb_module_end(reader));
    return rc == RDB_OK ? check_size(value_out, size, reader->err) : rc;
}

/* ---- the result of DUMP ---- */

int redisbloom_open_dump(struct rdb_reader *reader, const void *data, size_t len, unsigned *encver_out,
                         struct errbuf *err)
{
    uint64_t id;
    TRY(rdb_open_dump(reader, data, len, &id, err));
    *encver_out = RDB_MODULE_VERSION(id);
    if (RDB_MODULE_TYPE(id) == REDISBLOOM_TYPE_ID)
        return RDB_OK;
    char name[RDB_MODULE_NAME_BYTES];
    rdb_module_name(id, name);
    return errbuf_fail(err, RDB_BAD, "the value is of the module type %s, not a Bloom filter of RedisBloom", name);
}

/* ---- writing ---- */

#define HEAD_FIELDS  4
#define LAYER_FIELDS 8

uint64_t redisbloom_dump_max(const struct redisbloom_filter *value)
{
    uint64_t bytes = RDB_DUMP_MAX + HEAD_FIELDS * RDB_MODULE_FIELD_MAX;

    for (uint64_t i = 0; i < value->nlayers; i++)
        bytes += LAYER_FIELDS * RDB_MODULE_FIELD_MAX + redisbloom_bytes(&value->layers[i]);
    return bytes;
}

unsigned char *redisbloom_put_head(unsigned char *at, const struct redisbloom_filter *value)
{
    uint64_t size;

    (void)sum_counts(value, &size);
    at = rdb_put_module(at, REDISBLOOM_TYPE_ID | REDISBLOOM_ENCVER);
    at = rdb_put_unsigned(at, size);
    at = rdb_put_unsigned(at, value->nlayers);
    at = rdb_put_unsigned(at, value->options);
    return rdb_put_unsigned(at, value->growth);
}

unsigned char *redisbloom_put_fields(unsigned char *at, const struct redisbloom_layer *layer)
{
    at = rdb_put_unsigned(at, layer->entries);
    at = rdb_put_double(at, layer->error);
    at = rdb_put_unsigned(at, layer->hashes);
    at = rdb_put_double(at, layer->bpe);
    at = rdb_put_unsigned(at, layer->bits);
    return rdb_put_unsigned(at, layer->n2);
}

/* ---- BF.SCANDUMP ---- */

#define HEADER_BYTES       20
#define HEADER_LAYER_BYTES 53

size_t redisbloom_header_bytes(uint64_t nlayers)
{
    return HEADER_BYTES + (size_t)nlayers * HEADER_LAYER_BYTES;
}

void redisbloom_write_header(const struct redisbloom_filter *value, unsigned char *out)
{
    uint64_t size;

    (void)sum_counts(value, &size);
    out = le64_put(out, size);
    out = le32_put(out, (uint32_t)value->nlayers);
    out = le32_put(out, (uint32_t)value->options);
    out = le32_put(out, (uint32_t)value->growth);
    for (uint64_t i = 0; i < value->nlayers; i++) {
        const struct redisbloom_layer *layer = &value->layers[i];

        out = le64_put(out, redisbloom_bytes(layer));
        out = le64_put(out, layer->bits);
        out = le64_put(out, layer->count);
        out = le_double_put(out, layer->error);
        out = le_double_put(out, layer->bpe);
        out = le32_put(out, (uint32_t)layer->hashes);
        out = le64_put(out, layer->entries);
        *out++ = (unsigned char)layer->n2;
    }
}

static int read_header_layer(const unsigned char *at, struct redisbloom_layer *layer, struct errbuf *err)
{
    uint64_t bytes = le64_get(at);
    int rc;

    *layer = (struct redisbloom_layer){
        .bits = le64_get(at + 8),
        .count = le64_get(at + 16),
        .error = le_double_get(at + 24),
        .bpe = le_double_get(at + 32),
        .hashes = le32_get(at + 40),
        .entries = le64_get(at + 44),
        .n2 = at[52],
    };
    rc = check_bits(layer, err);
    if (rc == RDB_OK && bytes != redisbloom_bytes(layer))
        return errbuf_fail(err, RDB_BAD, "bytes: %llu, expected those of %llu bits", (unsigned long long)bytes,
                           (unsigned long long)layer->bits);
    return rc;
}

int redisbloom_read_header(const void *data, size_t len, struct redisbloom_filter *value_out, struct errbuf *err)
{
    const unsigned char *at = data;

    if (len < HEADER_BYTES)
        return errbuf_fail(err, RDB_BAD, "%zu bytes are too few for the header of a dump", len);
    value_out->nlayers = le32_get(at + 8);
    value_out->options = le32_get(at + 12);
    value_out->growth = le32_get(at + 16);
    int rc = check_nlayers(value_out->nlayers, err);
    if (rc == RDB_OK && len != redisbloom_header_bytes(value_out->nlayers))
        return errbuf_fail(err, RDB_BAD, "nfilters: a header with %llu layers has %zu bytes, not %zu",
                           (unsigned long long)value_out->nlayers, redisbloom_header_bytes(value_out->nlayers), len);
    for (unsigned i = 0; rc == RDB_OK && i < value_out->nlayers; i++) {
        rc = read_header_layer(at + HEADER_BYTES + i * HEADER_LAYER_BYTES, &value_out->layers[i], err);
        if (rc == RDB_BAD)
            errbuf_prefix(err, "layer %u", i);
    }
    return rc == RDB_OK ? check_size(value_out, le64_get(at), err) : rc;
}
