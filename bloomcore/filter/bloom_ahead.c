#include "bloom_ahead.h"

#include "bloom_keyring.h"
#include "bloom_layer.h"
#include "bloom_layer_add.h"
#include "bloom_part.h"

void bloom_ahead_take(struct bloom_ahead *ahead, const struct bloom_filter *filter)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter);

    ahead->newest = bloom_filter_missing_key(filter) ? NULL : newest; /* without its key there is no guess */
    ahead->words = bloom_layer_words(newest);
    ahead->first_words = false;
    ahead->geometry = *newest->geometry;
    if (!ahead->newest)
        ahead->geometry.key = NULL;
}

bool bloom_ahead_is_new(const struct bloom_ahead *ahead, const struct bloom_filter *filter)
{
    return ahead->newest == bloom_filter_newest(filter);
}

void bloom_ahead_aim(const struct bloom_ahead *ahead, const void *data, size_t len, struct bloom_aim *aim_out)
{
    const uint64_t *words = ahead->words;

    aim_out->hash = bloom_geometry_hash(&ahead->geometry, data, len);
    bloom_geometry_bits(&ahead->geometry, aim_out->hash, aim_out->bit);
    unsigned n = ahead->first_words && bloom_geometry_is_far(&ahead->geometry)
                     ? bloom_geometry_first_bits(&ahead->geometry)
                     : bloom_geometry_lines(&ahead->geometry);
    for (unsigned i = 0; i < n; i++)
        __builtin_prefetch(&words[aim_out->bit[i] >> 6]);
}

bool bloom_ahead_query(const struct bloom_filter *filter, const struct bloom_aim *aim)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter);

    if (__builtin_expect(newest->geometry->window, 0))
        return bloom_window_query(filter, aim->hash);
    return bloom_layer_test_bits(newest, aim->bit) || bloom_layer_test_below(newest, aim->hash);
}

/* Without a lock, because no other thread adds. If a layer is full, the rest takes the usual path. */
enum bloom_add bloom_ahead_add(struct bloom_filter *filter, const struct bloom_aim *aim,
                               const struct bloom_journal *journal, struct errbuf *err)
{
    struct bloom_layer *newest = bloom_filter_newest(filter);
    uint64_t ordinal;

    if (__builtin_expect(newest->geometry->window, 0))
        return bloom_window_add(filter, &aim->hash, 1, journal, err);
    if (bloom_ahead_query(filter, aim))
        return BLOOM_PRESENT;
    ordinal = bloom_layer_reserve(newest);
    if (ordinal == 0)
        return bloom_filter_add_absent(filter, aim->hash, newest, aim->bit, journal, err);
    if (journal)
        journal->ops->add(journal->ctx, journal->id, aim->hash, newest->geometry->index, ordinal);
    bloom_set_bits(bloom_layer_words(newest), aim->bit, newest->geometry->k);
    return BLOOM_ADDED;
}
