#include "bits_file.h"

#include <string.h>

#include "bytes.h"
#include "filterdb.h"
#include "redisbloom.h"

#define MAGIC   "BLOOMRBL"
#define VERSION 1

static uint64_t file_bytes(const struct bloom_shape *shape)
{
    return BITS_FILE_HEADER_BYTES + redisbloom_layer_bytes(shape);
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
    at = le64_put(at, redisbloom_layer_bytes(shape) * 8);
    at = le64_put(at, items);
    at = le32_put(at, shape->k);
    le32_put(at, shape->n2);
}

static int check_size(const struct bloom_shape *shape, uint64_t size, struct errbuf *err)
{
    if (file_bytes(shape) <= size)
        return BLOOM_OK;
    errbuf_set(err, "announces %llu bytes of bits but holds %llu", (unsigned long long)redisbloom_layer_bytes(shape),
               (unsigned long long)(size - BITS_FILE_HEADER_BYTES));
    return BLOOM_REFUSED;
}

int bits_file_decode_header(const unsigned char *bytes, uint64_t size, struct bloom_params *params_out,
                            struct bloom_shape *shape_out, uint64_t *items_out, struct errbuf *err)
{
    if (size < BITS_FILE_HEADER_BYTES) {
        errbuf_set(err, "%llu bytes, shorter than the header of %d", (unsigned long long)size, BITS_FILE_HEADER_BYTES);
        return BLOOM_REFUSED;
    }
    if (memcmp(bytes, MAGIC, 8) != 0 || le32_get(bytes + 8) != VERSION) {
        errbuf_set(err, "does not begin with " MAGIC " and the version %d", VERSION);
        return BLOOM_REFUSED;
    }
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
    int rc = redisbloom_check_first(le32_get(bytes + 12), expansion, &layer, params_out, shape_out, err);
    if (rc == BLOOM_OK && expansion != params_out->expansion) { /* RedisBloom's own values may have any */
        errbuf_set(err, "expansion %llu in a filter of fixed size: must be 0", (unsigned long long)expansion);
        rc = BLOOM_REFUSED;
    }
    if (rc == BLOOM_OK)
        rc = check_size(shape_out, size, err);
    if (rc == BLOOM_OK)
        *items_out = layer.count;
    return rc;
}

uint64_t export_file_bytes(const struct bloom_shape *shape)
{
    return bloom_variant_is_redisbloom(shape->variant) ? file_bytes(shape) : filterdb_bytes(shape->nwords);
}

size_t export_file_header(const struct bloom_params *params, const struct bloom_shape *shape, uint64_t items,
                          unsigned char out[BITS_FILE_HEADER_BYTES])
{
    if (bloom_variant_is_redisbloom(shape->variant)) {
        encode_header(params, shape, items, out);
        return BITS_FILE_HEADER_BYTES;
    }
    filterdb_encode_header(shape, out);
    return FILTERDB_HEADER_BYTES;
}
