/* blocked: the layout whose item has all of its bits in one block of 64 bytes, so that a query waits for one cache line
 * (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters, 2007). docs/FORMAT.md has its bits.
 *
 * Blocks get different numbers of items, and a crowded block has a higher rate. Sizes therefore come from the sum over
 * the numbers of items that a block may have, not from the formula for a filter without blocks. Pure functions. Thread:
 * any. */
#pragma once

#include <stdint.h>

#include "bloom_params.h"

#define BLOCK_WORDS 8
#define BLOCK_BITS  512

#define BLOCKED_MAX_K    16
#define BLOCKED_MIN_RATE 1e-15 /* of a layer; below, a block would be for less than an item */

/* Words before the first block. A large layer begins 8 bytes behind a page (bloom_words.h); with seven words its blocks
 * are cache lines. */
#define BLOCKED_LEAD 7

/* The expected error rate of a layer of this many bits that has n items. */
double blocked_rate(uint64_t n, unsigned k, uint64_t bits);

/* blocked_rate() without the rate of a filter of the same fill without blocks. */
double blocked_excess(double n, unsigned k, uint64_t bits);

/* The mean of (fill of a block)^k over whole blocks: the rate that their bits have now. */
double blocked_rate_of_bits(const _Atomic uint64_t *blocks, uint64_t nblocks, unsigned k);

/* Of the layout's row (bloom_layout.h). */
int blocked_size(unsigned options, uint64_t capacity, double rate, struct bloom_shape *shape_out, struct errbuf *err);
bool blocked_shape_valid(const struct bloom_shape *shape, struct errbuf *err);
