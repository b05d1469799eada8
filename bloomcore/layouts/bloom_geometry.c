#include "bloom_geometry.h"

#include "bloom_size.h"
#include "check.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words in memory are the bytes of a Filter.db in NEW order");
_Static_assert((int64_t)-1 >> 1 == -1, "the right shift of a negative number is arithmetic");
_Static_assert(BLOOM_MAX_WORDS <= UINT32_MAX, "a geometry has 32 bits for the number of words");

void bloom_geometry_init(struct bloom_geometry *geometry, const struct bloom_shape *shape, unsigned index,
                         uint64_t capacity, double error_rate)
{
    const struct bloom_layout *layout = bloom_layout_of(shape->variant);
    bool blocks = layout->walk == BLOOM_WALK_BLOCK;
    uint64_t bits = layout->any_buckets ? shape->capacity / shape->k
                    : blocks            ? shape->nwords / BLOCK_WORDS
                                        : bloom_shape_bits(shape);
    unsigned log2_ceil = 64 - (unsigned)__builtin_clzll((bits - 1) | 1);

    CHECK(bloom_shape_valid(shape, NULL) && index < BLOOM_MAX_LAYERS);
    *geometry = (struct bloom_geometry){
        .bits = bits,
        .magic = (uint64_t)((((unsigned __int128)1 << (63 + log2_ceil)) + bits - 1) / bits),
        .shift = (uint8_t)(blocks ? shape->nwords % BLOCK_WORDS : log2_ceil - 1),
        .k = shape->k,
        .variant = shape->variant,
        .hash = layout->hash,
        .walk = layout->walk,
        .words_inline = shape->nwords <= BLOOM_INLINE_WORDS,
        .wide = layout->vector_bits && bits >= layout->vector_bits,
        .h1_first = layout->h1_first,
        .n2 = shape->n2,
        .spare_bytes = shape->spare_bytes,
        .index = (uint16_t)index,
        .level = shape->level,
        .nwords = (uint32_t)shape->nwords,
        .capacity = layout->own_numbers ? shape->capacity : capacity,
        .error_rate = layout->own_numbers ? shape->error_rate : error_rate,
        .bpe = shape->bpe,
    };
    if (bits == 2 && shape->n2) { /* n2 is 1: the mask alone takes the remainder */
        geometry->magic = 0;
        geometry->shift = 1;
    }
}

void bloom_geometry_shape(const struct bloom_geometry *geometry, struct bloom_shape *shape_out)
{
    bool own_numbers = bloom_layout_of(geometry->variant)->own_numbers;

    *shape_out = (struct bloom_shape){
        .nwords = geometry->nwords,
        .k = geometry->k,
        .variant = geometry->variant,
        .level = geometry->level,
        .n2 = geometry->n2,
        .spare_bytes = geometry->spare_bytes,
        .capacity = own_numbers ? geometry->capacity : 0,
        .error_rate = own_numbers ? geometry->error_rate : 0,
        .bpe = geometry->bpe,
    };
}
