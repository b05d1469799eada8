/* The layers of a deep chain have all different numbers of bits, so the item has another bit in each; but the number
 * that is divided by them is the same. A round takes the next bit of all layers that have had the item's bits so far.
 * The rounds are few, because the layers of a chain are at most half full. A branch for each layer would be
 * mispredicted more often than the one for each round. */
#include "bloom_run.h"

static void take_words(struct bloom_run *run, const struct bloom_layer *newest)
{
    const struct bloom_layer *layer = newest;

    for (unsigned i = 0; i < BLOOM_RUN; i++, layer = bloom_layer_older(layer))
        run->lanes[i].words = bloom_layer_words_or_null(layer);
}

void bloom_run_init(const struct bloom_layer *layer)
{
    struct bloom_run *run = bloom_layer_run(layer);
    const struct bloom_layer *newest = bloom_layer_older(layer);

    for (unsigned i = 0; i < BLOOM_RUN; i++) {
        struct bloom_run_lane *lane = &run->lanes[i];

        layer = bloom_layer_older(layer);
        lane->bits = layer->geometry->bits;
        lane->magic = layer->geometry->magic;
        lane->shift = layer->geometry->shift;
        lane->k = layer->geometry->k;
    }
    run->oldest = layer;
    take_words(run, newest);
}

void bloom_filter_follow_words(const struct bloom_filter *filter)
{
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer))
        if (bloom_layer_has_run(layer->geometry))
            take_words(bloom_layer_run(layer), bloom_layer_older(layer));
}

static inline uint64_t test_lane(const struct bloom_run_lane *lane, uint64_t magnitude)
{
    uint64_t bit = bloom_reduce(magnitude, lane->bits, lane->magic, lane->shift);

    return atomic_load_explicit(&lane->words[bit >> 6], memory_order_relaxed) >> (bit & 63) & 1;
}

static inline uint64_t test_in_block(const _Atomic uint64_t *block, uint64_t x)
{
    return atomic_load_explicit(&block[x >> 61], memory_order_relaxed) >> (x >> 55 & 63) & 1;
}

/* In blocks the item's bits have the same indexes in each layer. */
static bool test_blocks(const struct bloom_run *run, struct bloom_hash hash)
{
    const _Atomic uint64_t *blocks[BLOOM_RUN];
    uint64_t x = hash.h2, left = 0;

    for (unsigned i = 0; i < BLOOM_RUN; i++) {
        const struct bloom_run_lane *lane = &run->lanes[i];
        const struct bloom_walk walk = {.at = hash.h1, .bits = lane->bits, .shift = lane->shift};

        blocks[i] = lane->words + bloom_walk_block(&walk);
        left |= test_in_block(blocks[i], x) << i;
    }
    for (unsigned round = 1; left; round++) {
        uint64_t lanes = left;

        x *= BLOOM_WALK_MIX;
        for (left = 0; lanes; lanes &= lanes - 1) {
            unsigned i = (unsigned)__builtin_ctzll(lanes);

            if (round == run->lanes[i].k)
                return true;
            left |= test_in_block(blocks[i], x) << i;
        }
    }
    return false;
}

bool bloom_run_test(const struct bloom_layer *layer, struct bloom_hash hash)
{
    const struct bloom_run *run = bloom_layer_run(layer);
    if (layer->geometry->walk == BLOOM_WALK_BLOCK)
        return test_blocks(run, hash);
    struct bloom_walk walk = bloom_walk_start(layer->geometry, hash);
    uint64_t magnitude = bloom_magnitude(walk.at), left = 0;

    for (unsigned i = 0; i < BLOOM_RUN; i++)
        left |= test_lane(&run->lanes[i], magnitude) << i;
    for (unsigned round = 1; left; round++) {
        uint64_t lanes = left;

        bloom_walk_skip(&walk, 1);
        magnitude = bloom_magnitude(walk.at);
        for (left = 0; lanes; lanes &= lanes - 1) {
            unsigned i = (unsigned)__builtin_ctzll(lanes);

            if (round == run->lanes[i].k)
                return true;
            left |= test_lane(&run->lanes[i], magnitude) << i;
        }
    }
    return false;
}

bool bloom_layer_test_older(const struct bloom_layer *newest, struct bloom_hash hash)
{
    const struct bloom_layer *layer = newest;

    for (;;) {
        if (__builtin_expect(layer->geometry->index % BLOOM_RUN == 0, 0)) {
            if (layer->geometry->index == 0)
                return false;
            if (bloom_layer_has_run(layer->geometry)) {
                if (bloom_run_test(layer, hash))
                    return true;
                layer = bloom_layer_run(layer)->oldest;
                continue;
            }
        }
        layer = bloom_layer_chained(layer)->older;
        if (bloom_layer_test(layer, hash))
            return true;
    }
}
