/* bloom_keyring: the keys of a pool's KEYED filters (bloom_key.h), by id.
 *
 * A filter's key need not be here: such a filter is saved, copied and moved as any other, but no item of it can be
 * hashed. Keys are in pages that core dumps leave out. A key that was here once stays in memory as long as the pool,
 * because a thread may be hashing with it; destroying the pool erases it.
 *
 * Thread: any. */
#pragma once

#include "bloom_key.h"
#include "bloom_pool.h"

/* From now on exactly these keys are here. The first is the key of new filters. 0, or -ENOMEM with nothing changed. */
int bloom_keyring_set(struct bloom_pool *pool, const struct bloom_secret *secrets, size_t n);

/* Ids of keys that filters have and that are not here, `max` at most. Returns how many. */
size_t bloom_keyring_missing(struct bloom_pool *pool, uint64_t *ids, size_t max);

/* Ids of all keys that filters have, `max` at most. Returns how many. */
size_t bloom_keyring_used(struct bloom_pool *pool, uint64_t *ids, size_t max);

/* The id of the key for new filters; 0: none. */
uint64_t bloom_keyring_first(const struct bloom_pool *pool);

/* The id of the filter's key if the key is not here, so that no item can be hashed. 0: it is here, or not needed. */
uint64_t bloom_filter_missing_key(const struct bloom_filter *filter);

/* Whether queries by bits are possible: it is a Bloom filter, and its key, if it has one, is here. */
bool bloom_filter_is_queryable(const struct bloom_filter *filter);

/* ---- internal to bloomcore; under the pool's lock ---- */

struct bloom_key *bloom_keyring_get(struct bloom_pool *pool, uint64_t id); /* with a reference; NULL: no memory */
void bloom_keyring_release(struct bloom_pool *pool, struct bloom_key *key);
void bloom_keyring_deinit(struct bloom_pool *pool);
