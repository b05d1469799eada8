#include "log_shape.h"

#include <string.h>

#include "bytes.h"
#include "log_varint.h"

#define HAS_LEVEL  0x80 /* in the byte of the layout: a level follows the words */
#define HAS_WINDOW 0x80 /* in the byte of RedisBloom's options: a window follows */

unsigned char *log_shape_put(unsigned char *at, const struct bloom_shape *shape)
{
    *at++ = shape->k;
    *at++ = (unsigned char)(shape->variant | (shape->level ? HAS_LEVEL : 0));
    at = varint_put(at, shape->nwords);
    if (shape->level)
        at = varint_put(at, shape->level);
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
    *at++ = (unsigned char)(params->redisbloom | (params->window ? HAS_WINDOW : 0));
    if (params->window) {
        *at++ = params->window_flags;
        *at++ = (unsigned char)params->window_parts;
        at = varint_put(at, params->window);
    }
    return at;
}

unsigned char *log_turn_put(unsigned char *at, const struct bloom_turn *turn)
{
    at = varint_put(at, turn->number);
    at = varint_put(at, turn->base);
    return varint_put(at, (uint64_t)turn->started_us);
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
    uint64_t level = 0;
    *shape_out = (struct bloom_shape){.k = bytes[0], .variant = (uint8_t)(bytes[1] & (HAS_LEVEL - 1))};
    if (!varint_get(at, end, &shape_out->nwords) ||
        (bytes[1] & HAS_LEVEL && (!varint_get(at, end, &level) || level < 1 || level >= BLOOM_MAX_LAYERS)))
        return false;
    shape_out->level = (uint16_t)level;
    return (!bloom_variant_is_redisbloom(shape_out->variant) || get_redisbloom(at, end, shape_out)) &&
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
    params_out->redisbloom = *options & (HAS_WINDOW - 1);
    if (*options & HAS_WINDOW) {
        const unsigned char *window = get_bytes(at, end, 2);

        if (!window || !varint_get(at, end, &params_out->window) || params_out->window == 0)
            return false;
        params_out->window_flags = window[0];
        params_out->window_parts = window[1];
    }
    return bloom_params_valid(params_out, NULL);
}

bool log_turn_get(const unsigned char **at, const unsigned char *end, struct bloom_turn *turn_out)
{
    uint64_t started;

    if (!varint_get(at, end, &turn_out->number) || !varint_get(at, end, &turn_out->base) ||
        !varint_get(at, end, &started))
        return false;
    turn_out->started_us = (int64_t)started;
    return bloom_turn_valid(turn_out);
}
