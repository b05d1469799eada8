#include "bloom_batch.h"

#include "bloom_layer.h"
#include "check.h"

/* What one core may hope to keep in its caches while it does other things, too. */
#define CACHE_BYTES (UINT64_C(16) << 20)

bool bloom_filter_beyond_cache(const struct bloom_filter *filter)
{
    return bloom_geometry_nwords(bloom_filter_newest(filter)->geometry) * 8 > CACHE_BYTES;
}

void bloom_batch_start(struct bloom_batch *batch, const struct bloom_filter *filter, const struct bloom_item *items,
                       size_t n)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter);

    CHECK(n <= BLOOM_BATCH);
    batch->n = n;
    batch->layer = bloom_filter_beyond_cache(filter) ? newest : NULL;
    for (size_t i = 0; i < n; i++) {
        struct bloom_hash hash = murmur3_hash(items[i].ptr, items[i].len);

        batch->h1[i] = hash.h1;
        batch->h2[i] = hash.h2;
        if (!batch->layer)
            continue;
        struct bloom_walk walk = bloom_walk_start(newest->geometry, hash);
        for (unsigned j = 0, k = newest->geometry->k; j < k; j++) {
            uint64_t bit = bloom_walk_next(&walk);

            batch->bit[j][i] = bit;
            __builtin_prefetch((const void *)&bloom_layer_words(newest)[bit >> 6], 0, 2);
        }
    }
}

static struct bloom_hash hash_of(const struct bloom_batch *batch, size_t i)
{
    return (struct bloom_hash){batch->h1[i], batch->h2[i]};
}

uint32_t bloom_batch_query(const struct bloom_batch *batch, const struct bloom_filter *filter)
{
    uint32_t present = 0;

    for (size_t i = 0; i < batch->n; i++)
        present |= (uint32_t)bloom_filter_query(filter, hash_of(batch, i)) << i;
    return present;
}

enum bloom_add bloom_batch_add(const struct bloom_batch *batch, size_t i, struct bloom_filter *filter,
                               const struct bloom_journal *journal, struct errbuf *err)
{
    CHECK(i < batch->n);
    return bloom_filter_add_journaled(filter, hash_of(batch, i), journal, err);
}
