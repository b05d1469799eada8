/* Items of a log come in the order in which they were added, which says nothing about where their bits are: each is k cache
 * misses. They are overlapped by setting the bits of an item only when those of the next ones have been fetched. */
#include "bloom_layer.h"

#define AHEAD 16 /* a power of two */

/* A word that has the bit already is not written: what the loaded file held stays clean in the caches, and pages of it
 * that were mapped from zeros stay unmapped. */
static void set_bits(_Atomic uint64_t *words, const uint64_t *bit, unsigned k)
{
    for (unsigned i = 0; i < k; i++) {
        uint64_t mask = UINT64_C(1) << (bit[i] & 63);

        if (!(atomic_load_explicit(&words[bit[i] >> 6], memory_order_relaxed) & mask))
            atomic_fetch_or_explicit(&words[bit[i] >> 6], mask, memory_order_relaxed);
    }
}

uint64_t bloom_filter_replay(struct bloom_filter *filter, unsigned index, uint64_t counted,
                             const struct bloom_replay_item *items, size_t n)
{
    struct bloom_layer *layer = bloom_filter_layer_at(filter, index);
    _Atomic uint64_t *words = bloom_layer_words(layer);
    uint64_t bit[AHEAD][BLOOM_PROBE_BITS];
    unsigned k = layer->geometry->k;
    uint64_t added = 0;

    for (size_t i = 0; i < n + AHEAD; i++) {
        uint64_t *slot = bit[i % AHEAD];

        if (i >= AHEAD && i - AHEAD < n) {
            set_bits(words, slot, k);
            added += items[i - AHEAD].ordinal > counted;
        }
        if (i >= n)
            continue;
        bloom_layer_bits(layer, items[i].hash, slot);
        for (unsigned j = 0; j < k; j++)
            __builtin_prefetch((const void *)&words[slot[j] >> 6], 1, 2);
    }
    atomic_fetch_add_explicit(&layer->items, added, memory_order_relaxed);
    return added;
}
