/* Between the two halves of a probe the filter may have been added to, or have grown. Bits stay where they are, so the
 * first half's work is valid for the layer it was done for; only when another layer is the newest by then, the second
 * half starts from nothing. */
#include "bloom_layer.h"

/* With a growth factor of 2 the layers further down hold less than a thirtieth of the items: cached, or rarely asked. */
#define OLDER_AHEAD 4

void bloom_probe_start(struct bloom_probe *probe, const struct bloom_filter *filter, struct bloom_hash hash)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter);
    const _Atomic uint64_t *words = bloom_layer_words(newest);

    probe->hash = hash;
    probe->layer = newest;
    bloom_layer_bits(newest, hash, probe->bit);
    /* Into the second-level cache: the first level has too few miss buffers for the lines of a batch. (Not in a function
     * of its own: gcc holds one that only prefetches to be without effect and drops the call.) */
    for (unsigned i = 0, k = newest->geometry->k; i < k; i++)
        __builtin_prefetch((const void *)&words[probe->bit[i] >> 6], 0, 2);

    /* Of the layers below only the first two words: in a layer that is half full three items of four go no further. */
    const struct bloom_layer *older = newest;
    for (unsigned n = 0; n < OLDER_AHEAD && (older = bloom_layer_older(older)); n++) {
        struct bloom_walk walk = bloom_walk_start(older->geometry, hash);
        words = bloom_layer_words(older);
        __builtin_prefetch((const void *)&words[bloom_walk_next(&walk) >> 6], 0, 2);
        __builtin_prefetch((const void *)&words[bloom_walk_next(&walk) >> 6], 0, 2);
    }
}

bool bloom_probe_query(const struct bloom_probe *probe, const struct bloom_filter *filter)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter);

    if (newest != probe->layer)
        return bloom_filter_query(filter, probe->hash);
    return bloom_layer_test_bits(newest, probe->bit) || bloom_layer_test_below(newest, probe->hash);
}

enum bloom_add bloom_probe_add(const struct bloom_probe *probe, struct bloom_filter *filter, struct errbuf *err)
{
    return bloom_probe_add_journaled(probe, filter, NULL, err);
}

enum bloom_add bloom_probe_add_journaled(const struct bloom_probe *probe, struct bloom_filter *filter,
                                         const struct bloom_journal *journal, struct errbuf *err)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter);

    if (newest != probe->layer)
        return bloom_filter_add_journaled(filter, probe->hash, journal, err);
    if (bloom_layer_test_bits(newest, probe->bit) || bloom_layer_test_below(newest, probe->hash))
        return BLOOM_PRESENT;
    return bloom_filter_add_absent(filter, probe->hash, newest, probe->bit, journal, err);
}
