#include "bloom_geometry.h"

#include <math.h>
#include <string.h>

#include "bloom_vector.h"
#include "check.h"
#include "redisbloom.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words in memory are the bytes of a Filter.db in NEW order");
_Static_assert((int64_t)-1 >> 1 == -1, "the right shift of a negative number is arithmetic");
_Static_assert(BLOOM_MAX_WORDS <= UINT32_MAX, "a geometry has 32 bits for the number of words");

/* ---- layouts ---- */

static const char *const variant_names[BLOOM_VARIANTS] = {
    [BLOOM_NA] = "na",
    [BLOOM_ME] = "me",
    [BLOOM_KA] = "ka",
    [BLOOM_REDISBLOOM] = "redisbloom",
    [BLOOM_REDISBLOOM32] = "redisbloom32",
};

const char *bloom_variant_name(unsigned variant)
{
    CHECK(variant < BLOOM_VARIANTS);
    return variant_names[variant];
}

bool bloom_variant_parse(const char *text, size_t len, enum bloom_variant *variant_out)
{
    for (unsigned i = 0; i < BLOOM_VARIANTS; i++) {
        if (strlen(variant_names[i]) == len && memcmp(text, variant_names[i], len) == 0) {
            *variant_out = (enum bloom_variant)i;
            return true;
        }
    }
    return false;
}

/* ---- shapes ---- */

bool bloom_shape_valid(const struct bloom_shape *shape, struct errbuf *err)
{
    unsigned max_k = bloom_variant_is_redisbloom(shape->variant) ? BLOOM_MAX_HASHES : BLOOM_MAX_K;

    if (shape->nwords < 1 || shape->nwords > BLOOM_MAX_WORDS) {
        errbuf_set(err, "%llu words: must be in the range [1, %llu]", (unsigned long long)shape->nwords,
                   (unsigned long long)BLOOM_MAX_WORDS);
        return false;
    }
    if (shape->variant >= BLOOM_VARIANTS) {
        errbuf_set(err, "unknown layout variant %u", shape->variant);
        return false;
    }
    if (shape->k < 1 || shape->k > max_k) {
        errbuf_set(err, "hash count %u: must be in the range [1, %u]", shape->k, max_k);
        return false;
    }
    if (shape->level >= BLOOM_MAX_LAYERS || (shape->level && bloom_variant_is_redisbloom(shape->variant))) {
        errbuf_set(err, "level %u of a part is not possible", shape->level);
        return false;
    }
    if (bloom_variant_is_redisbloom(shape->variant))
        return redisbloom_shape_valid(shape, err);
    if (shape->n2 || shape->spare_bytes || shape->capacity || shape->error_rate != 0 || shape->bpe != 0) {
        errbuf_set(err, "a layer in Cassandra's layout with numbers of RedisBloom's");
        return false;
    }
    return true;
}

bool bloom_shape_equal(const struct bloom_shape *a, const struct bloom_shape *b)
{
    return a->nwords == b->nwords && a->k == b->k && a->variant == b->variant && a->n2 == b->n2 &&
           a->spare_bytes == b->spare_bytes && a->capacity == b->capacity && a->error_rate == b->error_rate &&
           a->bpe == b->bpe && a->level == b->level;
}

static bool window_valid(const struct bloom_params *params, struct errbuf *err)
{
    bool by_items = params->window_flags & BLOOM_WINDOW_ITEMS;

    if (params->window == 0) {
        if (params->window_parts == 0 && params->window_flags == 0)
            return true;
        errbuf_set(err, "parts of a window without a window");
        return false;
    }
    if (params->redisbloom) {
        errbuf_set(err, "a window has Cassandra's layout: LAYOUT redisbloom is not possible with it");
        return false;
    }
    if (params->window_parts < 1 || params->window_parts > BLOOM_WINDOW_MAX_PARTS ||
        params->window_flags & ~(BLOOM_WINDOW_ITEMS | BLOOM_WINDOW_REFRESH)) {
        errbuf_set(err, "the parts of a window must be in the range [1, %d]", BLOOM_WINDOW_MAX_PARTS);
        return false;
    }
    if (by_items ? params->window < params->window_parts || params->window > BLOOM_WINDOW_MAX_ITEMS
                 : params->window < BLOOM_WINDOW_MIN_US || params->window > BLOOM_WINDOW_MAX_US) {
        if (by_items)
            errbuf_set(err, "the items of a window must be in the range [%u, %llu]: one for each part at least",
                       params->window_parts, (unsigned long long)BLOOM_WINDOW_MAX_ITEMS);
        else
            errbuf_set(err, "the seconds of a window must be in the range [1, %lld]",
                       (long long)(BLOOM_WINDOW_MAX_US / 1000000));
        return false;
    }
    return true;
}

bool bloom_params_valid(const struct bloom_params *params, struct errbuf *err)
{
    if (params->capacity < 1) {
        errbuf_set(err, "capacity must be at least 1");
        return false;
    }
    if (!(params->error_rate > 0 && params->error_rate < 1)) {
        errbuf_set(err, "error rate must be in the range (0, 1)");
        return false;
    }
    if (params->expansion > BLOOM_MAX_EXPANSION) {
        errbuf_set(err, "expansion must be in the range [0, %d]", BLOOM_MAX_EXPANSION);
        return false;
    }
    return window_valid(params, err) && redisbloom_options_valid(params, err);
}

/* ---- geometry ---- */

void bloom_geometry_init(struct bloom_geometry *geometry, const struct bloom_shape *shape, unsigned index,
                         uint64_t capacity, double error_rate)
{
    uint64_t bits = bloom_shape_bits(shape);
    unsigned log2_ceil = 64 - (unsigned)__builtin_clzll(bits - 1);
    bool redisbloom = bloom_variant_is_redisbloom(shape->variant);

    CHECK(bloom_shape_valid(shape, NULL) && index < BLOOM_MAX_LAYERS);
    *geometry = (struct bloom_geometry){
        .bits = bits,
        .magic = (uint64_t)((((unsigned __int128)1 << (63 + log2_ceil)) + bits - 1) / bits),
        .shift = (uint8_t)(log2_ceil - 1),
        .k = shape->k,
        .variant = shape->variant,
        .words_inline = shape->nwords <= BLOOM_INLINE_WORDS,
        .wide = bits >= (redisbloom ? BLOOM_VECTOR_MIN_BITS_UNSIGNED : BLOOM_VECTOR_MIN_BITS),
        .n2 = shape->n2,
        .spare_bytes = shape->spare_bytes,
        .index = (uint16_t)index,
        .level = shape->level,
        .nwords = (uint32_t)shape->nwords,
        .capacity = redisbloom ? shape->capacity : capacity,
        .error_rate = redisbloom ? shape->error_rate : error_rate,
        .bpe = shape->bpe,
    };
    if (bits == 2) { /* n2 is 1: the mask alone takes the remainder */
        geometry->magic = 0;
        geometry->shift = 1;
    }
}

void bloom_geometry_shape(const struct bloom_geometry *geometry, struct bloom_shape *shape_out)
{
    bool redisbloom = bloom_geometry_is_redisbloom(geometry);

    *shape_out = (struct bloom_shape){
        .nwords = geometry->nwords,
        .k = geometry->k,
        .variant = geometry->variant,
        .level = geometry->level,
        .n2 = geometry->n2,
        .spare_bytes = geometry->spare_bytes,
        .capacity = redisbloom ? geometry->capacity : 0,
        .error_rate = redisbloom ? geometry->error_rate : 0,
        .bpe = geometry->bpe,
    };
}
