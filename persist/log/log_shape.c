#include "log_shape.h"

#include "bytes.h"

#define HAS_LEVEL  0x80 /* in the byte of the layout: a level follows the words */
#define HAS_WINDOW 0x80 /* in the byte of RedisBloom's options: a window follows */
#define HAS_KEY \
    0x40 /* there, too: the id of a key follows, behind the window; then the iterations of a cuckoo filter */

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
    *at++ = (unsigned char)(params->redisbloom | (params->window ? HAS_WINDOW : 0) | (params->key ? HAS_KEY : 0));
    if (params->window) {
        *at++ = params->window_flags;
        *at++ = (unsigned char)params->window_parts;
        at = varint_put(at, params->window);
    }
    if (params->key)
        at = le64_put(at, params->key);
    return bloom_params_is_cuckoo(params) ? varint_put(at, params->iterations) : at;
}

unsigned char *log_turn_put(unsigned char *at, const struct bloom_turn *turn)
{
    at = varint_put(at, turn->number);
    at = varint_put(at, turn->base);
    return varint_put(at, (uint64_t)turn->started_us);
}

void log_shape_get(struct cursor *c, struct bloom_shape *shape)
{
    *shape = (struct bloom_shape){.k = cursor_byte(c)};
    uint8_t variant = cursor_byte(c);
    shape->variant = variant & (HAS_LEVEL - 1);
    shape->nwords = cursor_number(c);
    if (variant & HAS_LEVEL) {
        uint64_t level = cursor_number(c);
        c->bad |= level < 1 || level >= BLOOM_MAX_LAYERS;
        shape->level = (uint16_t)level;
    }
    if (bloom_variant_is_redisbloom(shape->variant)) {
        shape->n2 = cursor_byte(c);
        shape->spare_bytes = cursor_byte(c);
        shape->capacity = cursor_number(c);
        shape->error_rate = cursor_double(c);
        shape->bpe = cursor_double(c);
    }
    c->newer |= !c->bad && shape->variant >= BLOOM_VARIANTS;
    c->bad = c->bad || !bloom_shape_valid(shape, NULL);
}

void log_params_get(struct cursor *c, struct bloom_params *params)
{
    *params = (struct bloom_params){.capacity = cursor_number(c)};
    params->error_rate = cursor_double(c);
    uint64_t expansion = cursor_number(c);
    c->bad |= expansion > BLOOM_MAX_EXPANSION;
    params->expansion = (uint32_t)expansion;
    uint8_t options = cursor_byte(c);
    params->redisbloom = options & (HAS_KEY - 1);
    c->newer |= !c->bad && (params->redisbloom & ~(REDISBLOOM_OPTIONS | BLOOM_OPTION_CUCKOO));
    if (options & HAS_WINDOW) {
        params->window_flags = cursor_byte(c);
        params->window_parts = cursor_byte(c);
        params->window = cursor_number(c);
        c->bad |= params->window == 0;
    }
    if (options & HAS_KEY) {
        params->key = cursor_u64(c);
        c->bad |= params->key == 0;
    }
    if (bloom_params_is_cuckoo(params)) {
        uint64_t iterations = cursor_number(c);
        c->bad |= iterations > UINT16_MAX;
        params->iterations = (uint16_t)iterations;
    }
    c->bad = c->bad || !bloom_params_valid(params, NULL);
}

void log_turn_get(struct cursor *c, struct bloom_turn *turn)
{
    turn->number = cursor_number(c);
    turn->base = cursor_number(c);
    turn->started_us = (int64_t)cursor_number(c);
    c->bad = c->bad || !bloom_turn_valid(turn);
}
