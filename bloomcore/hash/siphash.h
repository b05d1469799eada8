/* siphash: SipHash-2-4 with 128 bits of output, a pseudorandom function of short inputs under a key of 16 bytes. J.-P.
 * Aumasson, D. J. Bernstein, "SipHash: a fast short-input PRF" (2012), and the authors' reference code of the 128-bit
 * form. The key decides no branch and no address.
 *
 * Pure functions. Thread: any. */
#ifndef BLOOMERY_SIPHASH_H
#define BLOOMERY_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

#define SIPHASH_BYTES 16 /* of a key, and of a result */

struct siphash_key {
    uint64_t k[2]; /* little-endian halves */
};

/* `data` may be NULL when `len` is 0. */
void siphash(const struct siphash_key *key, const void *data, size_t len, unsigned char out[SIPHASH_BYTES]);

/* The same for n inputs of any lengths: several times as fast where the processor has AVX-512 or AVX2, most for equal
 * lengths. */
void siphash_many(const struct siphash_key *key, const void *const *data, const size_t *len, size_t n,
                  unsigned char (*out)[SIPHASH_BYTES]);

#endif
