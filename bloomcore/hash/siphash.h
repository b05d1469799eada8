/* siphash: SipHash, a pseudorandom function of short inputs under a key of 16 bytes. J.-P. Aumasson, D. J. Bernstein,
 * "SipHash: a fast short-input PRF" (2012), and the authors' reference code of the 128-bit form. The lengths decide
 * branches and addresses, the key none. Pure functions. Thread: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "murmur.h"

#define SIPHASH_BYTES 16 /* of a key, and of a result */

struct siphash_key {
    uint64_t k[2]; /* little-endian halves */
};

/* SipHash-2-4 with 128 bits of output. `data` may be NULL when `len` is 0. */
void siphash(const struct siphash_key *key, const void *data, size_t len, unsigned char out[SIPHASH_BYTES]);

/* The same of n items of any lengths: several times as fast with AVX-512 or AVX2, most for equal lengths. */
void siphash_many(const struct siphash_key *key, const struct bloom_item *items, size_t n,
                  unsigned char (*out)[SIPHASH_BYTES]);

/* SipHash-1-3 with 64 bits, of the item's length, as 8 bytes, and the item. `data` may be NULL when `len` is 0. */
uint64_t siphash_short(const struct siphash_key *key, const void *data, size_t len);

/* The same of n items, as siphash_many(). Results from n up to the next multiple of 8 are written, too. */
void siphash_short_many(const struct siphash_key *key, const struct bloom_item *items, size_t n, uint64_t *out);
