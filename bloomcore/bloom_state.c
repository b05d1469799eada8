/* State from the bits. With fill f, a layer of C bits and hash count k has taken about -(C/k) ln(1 - f) distinct items,
 * and answers "present" to a foreign item at the rate f^k, plus what bloom_size_excess() says about coinciding probe
 * sequences. A query passes a chain when it passes any layer. */
#include <math.h>

#include "bloom_layer.h"

#define STRIDE 8

static uint64_t popcount(uint64_t x)
{
    x -= (x >> 1) & UINT64_C(0x5555555555555555);
    x = (x & UINT64_C(0x3333333333333333)) + ((x >> 2) & UINT64_C(0x3333333333333333));
    x = (x + (x >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (x * UINT64_C(0x0101010101010101)) >> 56;
}

/* A full adder on 64 columns at once: a + b + c = sum + 2 * carry. */
static inline uint64_t add3(uint64_t a, uint64_t b, uint64_t c, uint64_t *carry_out)
{
    uint64_t ab = a ^ b;

    *carry_out = (a & b) | (ab & c);
    return ab ^ c;
}

/* Harley and Seal's method: words go through a tree of adders that leaves one word in eight to be counted. Four times
 * as fast as counting each word without the popcnt instruction, which plain x86-64 does not have. */
static uint64_t count_bits(const _Atomic uint64_t *words, uint64_t nwords)
{
    uint64_t ones = 0, twos = 0, fours = 0, eights = 0;
    uint64_t total = 0;
    uint64_t i = 0;

    for (; i + STRIDE <= nwords; i += STRIDE) {
        uint64_t w[STRIDE], two_a, two_b, four_a, four_b;

        for (unsigned j = 0; j < STRIDE; j++)
            w[j] = atomic_load_explicit(&words[i + j], memory_order_relaxed);
        ones = add3(ones, w[0], w[1], &two_a);
        ones = add3(ones, w[2], w[3], &two_b);
        twos = add3(twos, two_a, two_b, &four_a);
        ones = add3(ones, w[4], w[5], &two_a);
        ones = add3(ones, w[6], w[7], &two_b);
        twos = add3(twos, two_a, two_b, &four_b);
        fours = add3(fours, four_a, four_b, &eights);
        total += popcount(eights);
    }
    total = 8 * total + 4 * popcount(fours) + 2 * popcount(twos) + popcount(ones);
    for (; i < nwords; i++)
        total += popcount(atomic_load_explicit(&words[i], memory_order_relaxed));
    return total;
}

static double estimate_items(uint64_t bits, uint64_t bits_set, unsigned k)
{
    /* A full layer says nothing about how many items it took to fill; the last but one bit is the best guess. */
    double empty = bits_set < bits ? (double)(bits - bits_set) : 0.5;

    return -(double)bits / k * log(empty / (double)bits);
}

void bloom_layer_state(const struct bloom_layer_view *layer, struct bloom_state *state_out)
{
    uint64_t bits = layer->shape.nwords * 64;
    unsigned k = layer->shape.k;
    uint64_t set = count_bits(layer->words, layer->shape.nwords);
    double fill = (double)set / (double)bits;
    double items = estimate_items(bits, set, k);
    double rate = pow(fill, k) + bloom_size_excess(items, k, bits);

    *state_out = (struct bloom_state){
        .bits = bits,
        .bits_set = set,
        .fill_ratio = fill,
        .rate = rate < 1 ? rate : 1,
        .estimated_items = items,
    };
}

void bloom_chain_state(const struct bloom_state *layers, unsigned nlayers, struct bloom_state *state_out)
{
    struct bloom_state total = {0};
    double log_absent = 0; /* the logarithm keeps rates far below 2^-53 */

    for (unsigned i = 0; i < nlayers; i++) {
        total.bits += layers[i].bits;
        total.bits_set += layers[i].bits_set;
        total.estimated_items += layers[i].estimated_items;
        log_absent += log1p(-layers[i].rate);
    }
    total.fill_ratio = (double)total.bits_set / (double)total.bits;
    total.rate = 0 - expm1(log_absent); /* a difference: of an empty filter it is 0, not -0 */
    *state_out = total;
}

void bloom_filter_state(const struct bloom_filter *filter, struct bloom_state *state_out)
{
    struct bloom_state layers[BLOOM_MAX_LAYERS];
    unsigned nlayers = bloom_filter_nlayers(filter);

    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view view;

        bloom_filter_layer(filter, i, &view);
        bloom_layer_state(&view, &layers[i]);
    }
    bloom_chain_state(layers, nlayers, state_out);
}
