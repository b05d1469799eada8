/* bloom_key: keys of filters that strangers cannot attack with chosen items. In a KEYED filter an item represents 16
 * bytes, a pseudorandom function of it under a secret; these bytes are hashed as any item is.
 *
 * A secret has 32 bytes; its halves a and b are two keys of SipHash. Under each of them a label is hashed, and the sum
 * (XOR) of the two is the key of items, or the id. Without one half nothing is known of the sum. The id is public and
 * reveals nothing about the key: both are outputs of a pseudorandom function for different inputs.
 *
 * Thread: any. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* SipHash-2-4 with 128 bits of output, a pseudorandom function of short inputs under a key of 16 bytes. J.-P. Aumasson,
 * D. J. Bernstein, "SipHash: a fast short-input PRF" (2012), and the authors' reference code of the 128-bit form. The
 * key decides no branch and no address. Pure functions. */
#define SIPHASH_BYTES 16 /* of a key, and of a result */

struct siphash_key {
    uint64_t k[2]; /* little-endian halves */
};

/* `data` may be NULL when `len` is 0. */
void siphash(const struct siphash_key *key, const void *data, size_t len, unsigned char out[SIPHASH_BYTES]);

/* Hashes n inputs of any lengths: several times as fast with AVX-512 or AVX2, most for equal lengths. */
void siphash_many(const struct siphash_key *key, const void *const *data, const size_t *len, size_t n,
                  unsigned char (*out)[SIPHASH_BYTES]);

#define BLOOM_SECRET_BYTES 32

/* The values derived from a secret. */
struct bloom_secret {
    uint64_t id; /* public, never 0 */
    struct siphash_key items;
};

/* A key that a filter of the process has, or a key file has had. Made by a pool (bloom_keyring.h). */
struct bloom_key {
    struct bloom_secret secret; /* except for the id valid once `here` was true */
    atomic_bool here;           /* the key file has it: items can be hashed */
    bool kept;                  /* `here` was true once: the key lives as long as the pool */
    uint64_t refs;
    struct bloom_key *next;
};

void bloom_secret_derive(const unsigned char secret[BLOOM_SECRET_BYTES], struct bloom_secret *out);

static inline bool bloom_key_is_here(const struct bloom_key *key)
{
    return atomic_load_explicit(&key->here, memory_order_acquire);
}
