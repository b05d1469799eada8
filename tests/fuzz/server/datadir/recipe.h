/* recipe: the input of a fuzzer, read as a sequence of choices. After its end every choice is 0. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct recipe {
    const uint8_t *at, *end;
};

static inline bool recipe_more(const struct recipe *recipe)
{
    return recipe->at < recipe->end;
}

static inline unsigned recipe_byte(struct recipe *recipe)
{
    return recipe_more(recipe) ? *recipe->at++ : 0;
}

/* 0 .. n - 1; n is 1 or more. */
static inline size_t recipe_below(struct recipe *recipe, size_t n)
{
    size_t value = recipe_byte(recipe);

    return n > 256 ? (value << 8 | recipe_byte(recipe)) % n : value % n;
}

/* Small numbers unchanged, numbers at the edges of ranges, or any. */
static inline uint64_t recipe_number(struct recipe *recipe)
{
    static const uint64_t edges[] = {255,
                                     256,
                                     4095,
                                     4096,
                                     65535,
                                     65536,
                                     INT32_MAX,
                                     UINT32_MAX,
                                     UINT64_C(1) << 32,
                                     UINT64_C(1) << 61,
                                     UINT64_C(1) << 62,
                                     (UINT64_C(1) << 62) + 1,
                                     INT64_MAX,
                                     UINT64_C(1) << 63,
                                     UINT64_MAX};
    unsigned first = recipe_byte(recipe);
    uint64_t any = 0;

    if (first < 192)
        return first;
    if (first < 192 + sizeof(edges) / sizeof(*edges))
        return edges[first - 192];
    for (unsigned i = 0; i < first % 8 + 1; i++)
        any = any << 8 | recipe_byte(recipe);
    return any;
}
