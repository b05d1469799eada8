/* Items of a log come in the order of their adds, and their bits are at random places: each item is k cache misses. To
 * overlap them, the bits of an item are set only after those of the next items have been prefetched. */
#include "bloom_chain.h"
#include "bloom_layer.h"
#include "bloom_part.h"

#define AHEAD 16 /* a power of two */

/* Does not write a word that has the bit already: words of the loaded file stay clean in the caches, and untouched
 * pages of zeros stay unmapped. */
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
    uint64_t bit[AHEAD * BLOOM_PROBE_BITS];
    uint64_t from = layer->geometry->window ? atomic_load(&bloom_layer_part(layer)->base) + 1 : 0; /* this part's */
    unsigned k = layer->geometry->k, stride = bloom_vector_stride(layer->geometry);
    uint64_t added = 0;

    for (size_t i = 0; i < n + AHEAD; i++) {
        uint64_t *slot = bit + i % AHEAD * stride;

        if (i >= AHEAD && i - AHEAD < n && items[i - AHEAD].ordinal >= from) {
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
