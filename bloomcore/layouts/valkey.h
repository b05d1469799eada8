/* valkey: the layout of valkey-bloom, the Bloom filters of Valkey: hash and sizes. docs/FORMAT.md has the facts. Pure
 * functions. Thread: any. */
#pragma once

#include <stdint.h>

#include "bloom_params.h"
#include "bloom_types.h"

#define VALKEY_DEFAULT_TIGHTENING 0.5 /* valkey-bloom's */

/* The seed of its filters with `bloom-use-random-seed no`, public; all others are random. */
extern const struct bloom_seed valkey_fixed_seed;

/* SipHash-1-3 of the item's length, as 8 bytes, and the item, under each half of the seed: two keys of 16 bytes.
 * `data` may be NULL when `len` is 0. */
struct bloom_hash valkey_hash(const struct bloom_seed *seed, const void *data, size_t len);

/* valkey_hash() of n <= BLOOM_BATCH items, several times as fast with AVX-512 or AVX2. */
void valkey_hashes(const struct bloom_seed *seed, const struct bloom_item *items, size_t n, uint64_t *h1, uint64_t *h2);

/* The rate of layer `index`: rate * tightening^index, rounded as there. May be 0. */
double valkey_layer_rate(double rate, double tightening, unsigned index);

/* The shape of a layer with these numbers, which are checked. BLOOM_OK or BLOOM_REFUSED. */
int valkey_shape(uint64_t capacity, double rate, uint64_t bytes, uint64_t hashes, struct bloom_shape *shape_out,
                 struct errbuf *err);

/* Of the layout's row (bloom_layout.h). */
int valkey_size(unsigned options, uint64_t capacity, double rate, struct bloom_shape *shape_out, struct errbuf *err);
double valkey_next_rate(const struct bloom_params *params, double newest, unsigned index);
bool valkey_shape_valid(const struct bloom_shape *shape, struct errbuf *err);
