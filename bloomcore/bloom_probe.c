/* Between the two halves of a probe the filter may have been added to, or have grown. Bits stay where they are, so the
 * first half's work is valid for the layer it was done for; only when another layer is the newest by then, the second
 * half starts from nothing. */
#include "bloom_layer.h"

void bloom_probe_start(struct bloom_probe *probe, const struct bloom_filter *filter, struct bloom_hash hash)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter);

    probe->hash = hash;
    probe->layer = newest;
    bloom_layer_bits(newest, hash, probe->bit);
    bloom_layer_prefetch(newest, probe->bit);
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
    const struct bloom_layer *newest = bloom_filter_newest(filter);

    if (newest != probe->layer)
        return bloom_filter_add(filter, probe->hash, err);
    if (bloom_layer_test_bits(newest, probe->bit) || bloom_layer_test_below(newest, probe->hash))
        return BLOOM_PRESENT;
    return bloom_filter_add_absent(filter, probe->hash, newest, probe->bit, err);
}
