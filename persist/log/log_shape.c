#include "log_shape.h"

#include <string.h>

#include "bytes.h"
#include "log_varint.h"

unsigned char *log_shape_put(unsigned char *at, const struct bloom_shape *shape)
{
    *at++ = shape->k;
    *at++ = shape->variant;
    at = varint_put(at, shape->nwords);
    if (!bloom_variant_is_redisbloom(shape->variant))
        return at;
    *at++ = shape->n2;
    *at++ = shape->spare_bytes;
    at = varint_put(at, shape->capacity);
    at = le_double_put(at, shape->error_rate);
    return le_double_put(at, shape->bpe);
}

unsigned char *log_params_put(unsigned char *at, const struct bloom_params *params)
{
    at = varint_put(at, params->capacity);
    at = le_double_put(at, params->error_rate);
    at = varint_put(at, params->expansion);
    *at++ = params->redisbloom;
    return at;
}

static const unsigned char *get_bytes(const unsigned char **at, const unsigned char *end, size_t len)
{
    const unsigned char *bytes = *at;

    if ((size_t)(end - bytes) < len)
        return NULL;
    *at += len;
    return bytes;
}

static bool get_double(const unsigned char **at, const unsigned char *end, double *value_out)
{
    const unsigned char *bytes = get_bytes(at, end, 8);

    if (bytes)
        *value_out = le_double_get(bytes);
    return bytes;
}

static bool get_redisbloom(const unsigned char **at, const unsigned char *end, struct bloom_shape *shape)
{
    const unsigned char *bytes = get_bytes(at, end, 2);

    if (!bytes)
        return false;
    shape->n2 = bytes[0];
    shape->spare_bytes = bytes[1];
    return varint_get(at, end, &shape->capacity) && get_double(at, end, &shape->error_rate) &&
           get_double(at, end, &shape->bpe);
}

bool log_shape_get(const unsigned char **at, const unsigned char *end, struct bloom_shape *shape_out)
{
    const unsigned char *bytes = get_bytes(at, end, 2);

    if (!bytes)
        return false;
    *shape_out = (struct bloom_shape){.k = bytes[0], .variant = bytes[1]};
    return varint_get(at, end, &shape_out->nwords) &&
           (!bloom_variant_is_redisbloom(shape_out->variant) || get_redisbloom(at, end, shape_out)) &&
           bloom_shape_valid(shape_out, NULL);
}

bool log_params_get(const unsigned char **at, const unsigned char *end, struct bloom_params *params_out)
{
    uint64_t expansion;
    const unsigned char *options;

    *params_out = (struct bloom_params){0};
    if (!varint_get(at, end, &params_out->capacity) || !get_double(at, end, &params_out->error_rate) ||
        !varint_get(at, end, &expansion) || expansion > BLOOM_MAX_EXPANSION || !(options = get_bytes(at, end, 1)))
        return false;
    params_out->expansion = (uint32_t)expansion;
    params_out->redisbloom = *options;
    return bloom_params_valid(params_out, NULL);
}
