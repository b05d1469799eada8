#include "bloom_layer.h"

#include <errno.h>
#include <string.h>

void bloom_geometry_bits_unsigned(const struct bloom_geometry *geometry, struct bloom_hash hash,
                                  uint64_t bit[BLOOM_PROBE_BITS])
{
    bloom_walk_bits(geometry, hash, bit, true);
}

bool bloom_layer_test_unsigned(const struct bloom_layer *layer, struct bloom_hash hash, unsigned n)
{
    return bloom_walk_test(layer, hash, n, true);
}

int bloom_layer_init(struct bloom_pool *pool, const struct bloom_filter *filter, struct bloom_layer *layer,
                     const struct bloom_geometry *geometry, struct errbuf *err)
{
    uint64_t nwords = bloom_geometry_nwords(geometry);

    layer->geometry = geometry;
    atomic_init(&layer->items, 0);
    if (geometry->words_inline) {
        memset((void *)(layer + 1), 0, (size_t)nwords * 8);
        return 0;
    }

    _Atomic uint64_t *words = bloom_words_alloc(&pool->maps, filter, layer, nwords);
    if (!words) {
        errbuf_set(err, "cannot allocate %llu bytes", (unsigned long long)(nwords * 8));
        return -ENOMEM;
    }
    bloom_layer_set_words(layer, words);
    return 0;
}

void bloom_layer_deinit(struct bloom_pool *pool, struct bloom_layer *layer)
{
    if (!layer->geometry->words_inline)
        bloom_words_free(&pool->maps, bloom_layer_words(layer), bloom_geometry_nwords(layer->geometry));
}
