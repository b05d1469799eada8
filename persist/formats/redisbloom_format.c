#include "redisbloom_format.h"

#include "bytes.h"
#include "crc64.h"
#include "rdb_value.h"
#include "try.h"

/* Each field of a module's value follows one of these. */
#define OPCODE_END      0
#define OPCODE_UNSIGNED 2
#define OPCODE_DOUBLE   4
#define OPCODE_STRING   5

#define CRC_BYTES    8
#define FOOTER_BYTES (2 + CRC_BYTES) /* of a dump: RDB version, checksum */

/* ---- checks of numbers on which reading depends, and of numbers that only the bytes have ---- */

static int check_nlayers(uint64_t nlayers, struct errbuf *err)
{
    if (nlayers >= 1 && nlayers <= BLOOM_MAX_LAYERS)
        return RDB_OK;
    errbuf_set(err, "nfilters: %llu layers, not 1 to %d", (unsigned long long)nlayers, BLOOM_MAX_LAYERS);
    return RDB_BAD;
}

static int check_bits(const struct redisbloom_layer *layer, struct errbuf *err)
{
    if (layer->bits > 0 && layer->bits % 8 == 0)
        return RDB_OK;
    errbuf_set(err, "bits: %llu is not a whole number of bytes", (unsigned long long)layer->bits);
    return RDB_BAD;
}

static bool sum_counts(const struct redisbloom_filter *value, uint64_t *sum_out)
{
    *sum_out = 0;
    for (uint64_t i = 0; i < value->nlayers; i++) {
        if (__builtin_add_overflow(*sum_out, value->layers[i].count, sum_out))
            return false;
    }
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

static int read_opcode(struct rdb_reader *reader, unsigned opcode, const char *what)
{
    uint64_t found;
    int rc = rdb_length(reader, &found, what);

    if (rc == RDB_OK && found != opcode)
        return rdb_bad(reader, "%s: opcode %llu, expected %u", what, (unsigned long long)found, opcode);
    return rc;
}

static int read_unsigned(struct rdb_reader *reader, uint64_t *out, const char *what)
{
    TRY(read_opcode(reader, OPCODE_UNSIGNED, what));
    return rdb_length(reader, out, what);
}

static int read_double(struct rdb_reader *reader, double *out, const char *what)
{
    TRY(read_opcode(reader, OPCODE_DOUBLE, what));
    return rdb_double(reader, out, what);
}

static int read_head(struct rdb_reader *reader, unsigned encver, struct redisbloom_filter *value, uint64_t *size_out)
{
    value->options = 0;
    value->growth = REDISBLOOM_DEFAULT_GROWTH;
    TRY(read_unsigned(reader, size_out, "size"));
    TRY(read_unsigned(reader, &value->nlayers, "nfilters"));
    TRY(check_nlayers(value->nlayers, reader->err));
    if (encver >= REDISBLOOM_ENCVER_OPTIONS)
        TRY(read_unsigned(reader, &value->options, "options"));
    return encver >= REDISBLOOM_ENCVER_GROWTH ? read_unsigned(reader, &value->growth, "growth") : RDB_OK;
}

/* The sink of a layer's bits. */
struct layer_bits {
    redisbloom_bits_fn *bits;
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
    TRY(read_unsigned(reader, &layer->entries, "entries"));
    TRY(read_double(reader, &layer->error, "error"));
    TRY(read_unsigned(reader, &layer->hashes, "hashes"));
    TRY(read_double(reader, &layer->bpe, "bpe"));
    if (encver >= REDISBLOOM_ENCVER_BITS) {
        TRY(read_unsigned(reader, &layer->bits, "bits"));
        TRY(read_unsigned(reader, &layer->n2, "n2"));
    } else {
        layer->bits = redisbloom_old_bits(layer);
    }
    return check_bits(layer, reader->err);
}

static int read_layer(struct rdb_reader *reader, unsigned encver, struct redisbloom_layer *layer, struct layer_bits *to)
{
    *layer = (struct redisbloom_layer){0};
    TRY(read_fields(reader, encver, layer));
    TRY(read_opcode(reader, OPCODE_STRING, "the string of bits"));
    TRY(rdb_string_pieces(reader, redisbloom_bytes(layer), take_bits, to, "the string of bits"));
    return read_unsigned(reader, &layer->count, "size");
}

int redisbloom_read(struct rdb_reader *reader, unsigned encver, struct redisbloom_filter *value_out,
                    redisbloom_bits_fn *bits, void *ctx)
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
    if (rc == RDB_OK)
        rc = read_opcode(reader, OPCODE_END, "the end of the value");
    return rc == RDB_OK ? check_size(value_out, size, reader->err) : rc;
}

/* ---- the result of DUMP ---- */

bool redisbloom_is_dump(const void *data, size_t len)
{
    return len > FOOTER_BYTES &&
           le64_get((const unsigned char *)data + len - CRC_BYTES) == crc64(0, data, len - CRC_BYTES);
}

static int open_value(struct rdb_reader *reader, unsigned *encver_out)
{
    unsigned char type;
    uint64_t id;
    TRY(rdb_byte(reader, &type, "the type"));
    if (type == RDB_OPCODE_KEY_META) {
        TRY(rdb_skip_key_meta(reader));
        TRY(rdb_byte(reader, &type, "the type"));
    }
    if (type != RDB_TYPE_MODULE_2) {
        errbuf_set(reader->err, "the value is a %s, not a Bloom filter", rdb_type_name(type, false));
        return RDB_BAD;
    }
    TRY(rdb_length(reader, &id, "the module type"));
    if (RDB_MODULE_TYPE(id) != REDISBLOOM_TYPE_ID) {
        char name[RDB_MODULE_NAME_BYTES];

        rdb_module_name(id, name);
        errbuf_set(reader->err, "the value is of the module type %s, not a Bloom filter of RedisBloom", name);
        return RDB_BAD;
    }
    *encver_out = RDB_MODULE_VERSION(id);
    return RDB_OK;
}

int redisbloom_open_dump(struct rdb_reader *reader, const void *data, size_t len, unsigned *encver_out,
                         struct errbuf *err)
{
    if (len <= FOOTER_BYTES) {
        errbuf_set(err, "%zu bytes are too few for a dump", len);
        return RDB_BAD;
    }
    rdb_reader_memory(reader, data, len - FOOTER_BYTES, err);
    return open_value(reader, encver_out);
}

int redisbloom_close_dump(struct rdb_reader *reader)
{
    bool more = false;
    int rc = rdb_more(reader, &more);

    return rc == RDB_OK && more ? rdb_bad(reader, "the value ends before the dump") : rc;
}

/* ---- writing ---- */

static unsigned char *put_unsigned(unsigned char *at, uint64_t value)
{
    *at++ = OPCODE_UNSIGNED;
    return rdb_put_length(at, value);
}

static unsigned char *put_double(unsigned char *at, double value)
{
    *at++ = OPCODE_DOUBLE;
    return le_double_put(at, value);
}

/* Bytes of the parts at the most: a field has an opcode and 9 bytes. */
#define HEAD_MAX  (1 + 9 + 4 * 10)
#define LAYER_MAX (7 * 10 + 1 + RDB_LENGTH_MAX_BYTES)
#define TAIL_MAX  (1 + FOOTER_BYTES)

uint64_t redisbloom_dump_max(const struct redisbloom_filter *value)
{
    uint64_t bytes = HEAD_MAX + TAIL_MAX;

    for (uint64_t i = 0; i < value->nlayers; i++)
        bytes += LAYER_MAX + redisbloom_bytes(&value->layers[i]);
    return bytes;
}

unsigned char *redisbloom_put_head(unsigned char *at, const struct redisbloom_filter *value)
{
    uint64_t size;

    (void)sum_counts(value, &size);
    *at++ = RDB_TYPE_MODULE_2;
    at = rdb_put_length(at, REDISBLOOM_TYPE_ID | REDISBLOOM_ENCVER);
    at = put_unsigned(at, size);
    at = put_unsigned(at, value->nlayers);
    at = put_unsigned(at, value->options);
    return put_unsigned(at, value->growth);
}

unsigned char *redisbloom_put_fields(unsigned char *at, const struct redisbloom_layer *layer)
{
    at = put_unsigned(at, layer->entries);
    at = put_double(at, layer->error);
    at = put_unsigned(at, layer->hashes);
    at = put_double(at, layer->bpe);
    at = put_unsigned(at, layer->bits);
    return put_unsigned(at, layer->n2);
}

unsigned char *redisbloom_put_string(unsigned char *at, const unsigned char *bits, uint64_t len, bool compress)
{
    *at++ = OPCODE_STRING;
    return rdb_put_string(at, bits, len, compress);
}

unsigned char *redisbloom_put_count(unsigned char *at, uint64_t count)
{
    return put_unsigned(at, count);
}

unsigned char *redisbloom_put_tail(unsigned char *at, const unsigned char *dump, unsigned rdb_version)
{
    *at++ = OPCODE_END;
    at = le16_put(at, (uint16_t)rdb_version);
    return le64_put(at, crc64(0, dump, (size_t)(at - dump)));
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
    if (rc == RDB_OK && bytes != redisbloom_bytes(layer)) {
        errbuf_set(err, "bytes: %llu, expected those of %llu bits", (unsigned long long)bytes,
                   (unsigned long long)layer->bits);
        return RDB_BAD;
    }
    return rc;
}

int redisbloom_read_header(const void *data, size_t len, struct redisbloom_filter *value_out, struct errbuf *err)
{
    const unsigned char *at = data;

    if (len < HEADER_BYTES) {
        errbuf_set(err, "%zu bytes are too few for the header of a dump", len);
        return RDB_BAD;
    }
    value_out->nlayers = le32_get(at + 8);
    value_out->options = le32_get(at + 12);
    value_out->growth = le32_get(at + 16);
    int rc = check_nlayers(value_out->nlayers, err);
    if (rc == RDB_OK && len != redisbloom_header_bytes(value_out->nlayers)) {
        errbuf_set(err, "nfilters: a header with %llu layers has %zu bytes, not %zu",
                   (unsigned long long)value_out->nlayers, redisbloom_header_bytes(value_out->nlayers), len);
        return RDB_BAD;
    }
    for (unsigned i = 0; rc == RDB_OK && i < value_out->nlayers; i++) {
        rc = read_header_layer(at + HEADER_BYTES + i * HEADER_LAYER_BYTES, &value_out->layers[i], err);
        if (rc == RDB_BAD)
            errbuf_prefix(err, "layer %u", i);
    }
    return rc == RDB_OK ? check_size(value_out, le64_get(at), err) : rc;
}
