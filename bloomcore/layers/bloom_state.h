/* bloom_state: the fill of a filter, its error rate and its number of items, computed from its bits, not from its
 * parameters. Other threads may add meanwhile. Thread: any. */
#pragma once

#include <stdint.h>

#include "bloom_types.h"

/* In a cuckoo filter slots represent bits. */
struct bloom_state {
    uint64_t bits; /* bits of all layers */
    uint64_t bits_set;
    double fill_ratio;      /* bits_set / bits, 0..1 */
    double rate;            /* probability that a query for an item never added replies "present" now */
    double estimated_items; /* distinct items, estimated from the fill */
};

/* The false-positive rate to expect of a layer of this shape that has counted this many items. */
double bloom_shape_rate(const struct bloom_shape *shape, uint64_t items);

/* Counts the bits of one layer, or of the whole chain. Takes about 1 ms per 10 MB: not on a loop for large filters. */
void bloom_layer_state(const struct bloom_layer_view *layer, struct bloom_state *state_out);

/* The state of a layer of this shape with this number of set bits. */
void bloom_shape_state(const struct bloom_shape *shape, uint64_t bits_set, struct bloom_state *state_out);
void bloom_filter_state(const struct bloom_filter *filter, struct bloom_state *state_out);

/* An estimate from at most `sample` >= 1 words of each layer, spread over it: microseconds for thousands of words.
 * Layers of up to this many words are counted whole. The share of set bits is right to about 1 / sqrt(64 * sample). */
void bloom_layer_state_sampled(const struct bloom_layer_view *layer, uint64_t sample, struct bloom_state *state_out);
void bloom_filter_state_sampled(const struct bloom_filter *filter, uint64_t sample, struct bloom_state *state_out);

/* Computes the state of a chain from the states of its layers. */
void bloom_chain_state(const struct bloom_state *layers, unsigned nlayers, struct bloom_state *state_out);
