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

#include "siphash.h"

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
