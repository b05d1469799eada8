/* redisbloom: filters in RedisBloom's form, so that they can be served here unchanged, and moved back.
 *
 * It differs from Bloomery's own filters in its hash (murmur.h), its sizes and its rates. Positions are sums of
 * unsigned numbers, modulo the number of bits or a power of two. The first layer has half of the error rate, and each
 * further one half of that before it. An item counts in a layer if at least one of its bits was new there, as
 * everywhere. docs/FORMAT.md has the facts.
 *
 * This module knows numbers, no bytes of dumps: formats are read and written elsewhere. A reader puts its numbers into
 * struct redisbloom_filter; redisbloom_check() verifies every number and gives parameters and shapes. A filter is made
 * from these like any other: bloom_class_get(), bloom_filter_init(), bloom_filter_append_layer(); in the daemon
 * content_prepare(). Then bloom_filter_put_bytes() fills it, piece by piece, and bloom_filter_set_items() sets the
 * counts.
 *
 * Thread: any, on distinct objects; exceptions are noted. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_chain.h"
#include "redisbloom_size.h"

/* Unchecked numbers from a reader. */
struct redisbloom_layer {
    uint64_t entries; /* items that the layer is made for */
    double error;
    uint64_t hashes;
    double bpe; /* bits per entry */
    uint64_t bits;
    uint64_t n2;    /* positions are modulo 2^n2; 0: modulo `bits` */
    uint64_t count; /* items in the layer */
};

struct redisbloom_filter {
    uint64_t options;
    uint64_t growth;
    uint64_t nlayers;
    struct redisbloom_layer layers[BLOOM_MAX_LAYERS];
};

/* Verifies the numbers and turns them into a filter's parameters and the shapes of its layers; *bytes_out is the size
 * of its words, below 2^45. Allocates nothing. The caller compares the size with its limits; so does the function that
 * makes the filter (BLOOM_LIMIT). BLOOM_OK, or BLOOM_REFUSED with the number that is wrong. */
int redisbloom_check(const struct redisbloom_filter *from, struct bloom_params *params_out,
                     struct bloom_shape shapes_out[BLOOM_MAX_LAYERS], uint64_t *bytes_out, struct errbuf *err);

/* The same for the first layer alone. */
int redisbloom_check_first(uint64_t options, uint64_t growth, const struct redisbloom_layer *layer,
                           struct bloom_params *params_out, struct bloom_shape *shape_out, struct errbuf *err);

/* The numbers of the oldest `nlayers` layers of a filter in this layout. The counts are never below the items in bits
 * that were read before. Others may add meanwhile. A filter of a fixed size gets the default growth. */
void redisbloom_describe(const struct bloom_filter *filter, unsigned nlayers, struct redisbloom_filter *out);
