#include "bloom_geometry.h"

#include "check.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words in memory are the bytes of a Filter.db in NEW order");
_Static_assert((int64_t)-1 >> 1 == -1, "the right shift of a negative number is arithmetic");

bool bloom_shape_valid(const struct bloom_shape *shape, struct errbuf *err)
{
    if (shape->nwords < 1 || shape->nwords > BLOOM_MAX_WORDS) {
        errbuf_set(err, "%llu words: must be in the range [1, %llu]", (unsigned long long)shape->nwords,
                   (unsigned long long)BLOOM_MAX_WORDS);
        return false;
    }
    if (shape->k < 1 || shape->k > BLOOM_MAX_K) {
        errbuf_set(err, "hash count %u: must be in the range [1, %d]", shape->k, BLOOM_MAX_K);
        return false;
    }
    if (shape->variant > BLOOM_KA) {
        errbuf_set(err, "unknown layout variant %u", shape->variant);
        return false;
    }
    return true;
}

void bloom_geometry_init(struct bloom_geometry *geometry, const struct bloom_shape *shape, unsigned index,
                         uint64_t capacity, double error_rate)
{
    uint64_t bits = shape->nwords * 64;
    unsigned log2_ceil = 64 - (unsigned)__builtin_clzll(bits - 1);

    CHECK(bloom_shape_valid(shape, NULL) && index < BLOOM_MAX_LAYERS);
    *geometry = (struct bloom_geometry){
        .bits = bits,
        .magic = (uint64_t)((((unsigned __int128)1 << (63 + log2_ceil)) + bits - 1) / bits),
        .shift = (uint8_t)(log2_ceil - 1),
        .k = shape->k,
        .variant = shape->variant,
        .index = (uint8_t)index,
        .words_inline = shape->nwords <= BLOOM_INLINE_WORDS,
        .capacity = capacity,
        .error_rate = error_rate,
    };
}
