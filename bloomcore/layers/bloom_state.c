/* State from the bits. With fill f, a layer of C bits and hash count k has taken about -(C/k) ln(1 - f) distinct items.
 * It answers "present" to a foreign item at the rate f^k, plus bloom_size_excess() for coinciding probe sequences. A
 * query passes a chain when it passes any layer. */
#include <math.h>

#include "blocked.h"
#include "bloom_chain.h"
#include "bloom_layout.h"
#include "bloom_state.h"
#include "cuckoo_shape.h"

#define SAMPLE_RUN 64 /* words */

static inline __attribute__((always_inline)) uint64_t count_words(const _Atomic uint64_t *words, uint64_t nwords)
{
    uint64_t total = 0;

    for (uint64_t i = 0; i < nwords; i++)
        total += (uint64_t)__builtin_popcountll(atomic_load_explicit(&words[i], memory_order_relaxed));
    return total;
}

#ifdef __x86_64__
/* Plain x86-64 has no instruction for it; every processor since 2008 has. */
__attribute__((target("popcnt"))) static uint64_t count_quickly(const _Atomic uint64_t *words, uint64_t nwords)
{
    return count_words(words, nwords);
}
#endif

static uint64_t count_bits(const _Atomic uint64_t *words, uint64_t nwords)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("popcnt"))
        return count_quickly(words, nwords);
#endif
    return count_words(words, nwords);
}

/* Counts the first `bits` bits: in RedisBloom's layout a layer may have more bits than items use. */
static uint64_t count_first_bits(const _Atomic uint64_t *words, uint64_t bits)
{
    uint64_t total = count_bits(words, bits / 64);

    if (bits % 64 != 0)
        total += (uint64_t)__builtin_popcountll(atomic_load_explicit(&words[bits / 64], memory_order_relaxed)
                                                << (64 - bits % 64));
    return total;
}

/* The number of bits set among the first `bits`, from `sample` words in runs at equal distances. Bits are set as if at
 * random, so the places do not matter; runs of cache lines that lie side by side cost least. */
static uint64_t count_sample(const _Atomic uint64_t *words, uint64_t bits, uint64_t sample)
{
    uint64_t nwords = bits / 64;
    if (sample >= nwords)
        return count_first_bits(words, bits);
    uint64_t run = sample < SAMPLE_RUN ? sample : SAMPLE_RUN, runs = sample / run, set = 0;

    for (uint64_t i = 0; i < runs; i++)
        set += count_bits(words + nwords / runs * i, run);
    return (uint64_t)llround((double)set / (double)(run * runs * 64) * (double)bits);
}

double bloom_shape_rate(const struct bloom_shape *shape, uint64_t items)
{
    const struct bloom_layout *layout = bloom_layout_of(shape->variant);

    if (layout->slots)
        return cuckoo_rate((unsigned)shape->bpe, shape->k, (double)items / (double)shape->capacity);
    return layout->rate(items, shape->k, bloom_shape_bits(shape));
}

void bloom_shape_state(const struct bloom_shape *shape, uint64_t bits_set, struct bloom_state *state_out)
{
    uint64_t bits = bloom_shape_bits(shape);
    double fill = (double)bits_set / (double)bits;
    /* A full layer shows nothing of its number of items; assuming half a bit unset is the best guess. */
    double empty = bits_set < bits ? (double)(bits - bits_set) : 0.5;
    double items = bits_set == 0 ? 0 : -(double)bits / shape->k * log(empty / (double)bits);
    double rate = pow(fill, shape->k) + bloom_layout_of(shape->variant)->excess(items, shape->k, bits);

    *state_out = (struct bloom_state){
        .bits = bits,
        .bits_set = bits_set,
        .fill_ratio = fill,
        .rate = rate < 1 ? rate : 1,
        .estimated_items = items,
    };
}

void bloom_layer_state(const struct bloom_layer_view *layer, struct bloom_state *state_out)
{
    bloom_layer_state_sampled(layer, UINT64_MAX, state_out);
}

/* The rate of a layer in blocks, from `sample` words: a block has its own. */
static double rate_of_blocks(const struct bloom_layer_view *layer, uint64_t sample)
{
    uint64_t n = layer->shape.nwords / BLOCK_WORDS, run = SAMPLE_RUN / BLOCK_WORDS, runs = sample / SAMPLE_RUN + 1;
    const _Atomic uint64_t *blocks = layer->words + layer->shape.nwords % BLOCK_WORDS;
    double rate = 0;

    if (sample >= layer->shape.nwords || runs * run >= n)
        return blocked_rate_of_bits(blocks, n, layer->shape.k);
    for (uint64_t i = 0; i < runs; i++)
        rate += blocked_rate_of_bits(blocks + n / runs * i * BLOCK_WORDS, run, layer->shape.k);
    return rate / (double)runs;
}

void bloom_layer_state_sampled(const struct bloom_layer_view *layer, uint64_t sample, struct bloom_state *state_out)
{
    if (bloom_layout_of(layer->shape.variant)->slots) {
        *state_out = (struct bloom_state){
            .bits = layer->capacity, /* slots, of which items are counted */
            .bits_set = layer->items,
            .fill_ratio = (double)layer->items / (double)layer->capacity,
            .rate = bloom_shape_rate(&layer->shape, layer->items),
            .estimated_items = (double)layer->items,
        };
        return;
    }
    if (layer->forgotten) { /* its bits have no meaning */
        bloom_shape_state(&layer->shape, 0, state_out);
        return;
    }
    bloom_shape_state(&layer->shape, count_sample(layer->words, bloom_shape_bits(&layer->shape), sample), state_out);
    if (bloom_layout_of(layer->shape.variant)->walk == BLOOM_WALK_BLOCK)
        state_out->rate = rate_of_blocks(layer, sample);
}

/* A chain's state, layer by layer. The logarithm keeps rates far below 2^-53. */
struct chain {
    struct bloom_state total;
    double log_absent;
};

static void chain_add(struct chain *chain, const struct bloom_state *layer)
{
    chain->total.bits += layer->bits;
    chain->total.bits_set += layer->bits_set;
    chain->total.estimated_items += layer->estimated_items;
    chain->log_absent += log1p(-layer->rate);
}

static void chain_end(struct chain *chain, struct bloom_state *state_out)
{
    chain->total.fill_ratio = (double)chain->total.bits_set / (double)chain->total.bits;
    chain->total.rate = 0 - expm1(chain->log_absent); /* a difference: of an empty filter it is 0, not -0 */
    *state_out = chain->total;
}

void bloom_chain_state(const struct bloom_state *layers, unsigned nlayers, struct bloom_state *state_out)
{
    struct chain chain = {0};

    for (unsigned i = 0; i < nlayers; i++)
        chain_add(&chain, &layers[i]);
    chain_end(&chain, state_out);
}

void bloom_filter_state(const struct bloom_filter *filter, struct bloom_state *state_out)
{
    bloom_filter_state_sampled(filter, UINT64_MAX, state_out);
}

void bloom_filter_state_sampled(const struct bloom_filter *filter, uint64_t sample, struct bloom_state *state_out)
{
    unsigned nlayers = bloom_filter_nlayers(filter);
    struct chain chain = {0};

    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view view;
        struct bloom_state state;

        bloom_filter_layer(filter, i, &view);
        bloom_layer_state_sampled(&view, sample, &state);
        chain_add(&chain, &state);
    }
    chain_end(&chain, state_out);
}
