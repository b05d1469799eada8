/* bloom_filter: a scalable Bloom filter in Cassandra's bit layout, or in RedisBloom's. It is a chain of layers; each
 * layer is one filter (k, bits, words). An item is hashed once for all layers.
 *
 * It knows no names, expiry, files, sockets or logs. Items are known by their 128-bit hash (bloom_filter_hash()).
 *
 * Lifetime: a pool outlives its classes and filters. A filter holds a reference to its class, so the caller may release
 * its own after init. A filter lives in the caller's storage, from bloom_filter_init() to bloom_filter_deinit().
 *
 * Threads: any number of threads may query and add at the same time, on the same filter, without further
 * synchronisation; queries take no lock and write nothing. Init, deinit, and the functions marked "loading" need
 * exclusive access. A caller that frees a filter makes sure by its own means (RCU) that no other thread uses it.
 *
 * Layout: FORMAT.md sections 1, 4 and 5 (bit order, index derivation, sizing); scaling as in P. Almeida et al.,
 * "Scalable Bloom Filters" (2007), with another series of rates. Layer i has capacity * expansion^i items at rate
 * bloom_size_share(error_rate, i); the rates of all layers sum up to less than error_rate. A fixed filter has one layer
 * at exactly error_rate. RedisBloom's layout (redisbloom.h) has a hash, sizes and rates of its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_chain.h"
#include "bloom_pool.h"
#include "bloom_size.h"

/* Lives in the caller's storage of bloom_filter_bytes() bytes, aligned to 8, and cannot be moved, because it points
 * into itself. Fields are internal. */
struct bloom_filter;

/* Storage for a filter of this class: the header, and the words of a small first layer. Larger layers are mapped
 * separately, which costs nothing until they are used. */
size_t bloom_filter_bytes(const struct bloom_class *class);

/* Creates an empty filter with a reference to the class. 0, BLOOM_LIMIT, or -ENOMEM (nothing to undo then). */
int bloom_filter_init(struct bloom_filter *filter, struct bloom_class *class, struct errbuf *err);

/* bloom_filter_init() for a filter that at once replaces one that is no smaller: limits are not checked. */
int bloom_filter_init_instead(struct bloom_filter *filter, struct bloom_class *class, struct errbuf *err);
void bloom_filter_deinit(struct bloom_filter *filter); /* may take milliseconds for gigabytes: not on a loop */

/* bloom_filter_init_instead() and bloom_filter_deinit() that leave bloom_pool_bytes() as it is: limits never see the
 * words, which the caller counts. Not for a filter with droppable words (bloom_resident.h). */
int bloom_filter_init_uncharged(struct bloom_filter *filter, struct bloom_class *class, struct errbuf *err);
void bloom_filter_deinit_uncharged(struct bloom_filter *filter);

/* The bytes by which the filter counts in bloom_pool_bytes(). */
uint64_t bloom_filter_charged(const struct bloom_filter *filter);

/* Whether the item may have been added (true) or certainly was not (false). */
bool bloom_filter_query(const struct bloom_filter *filter, struct bloom_hash hash);

/* The hash of an item for this filter. `data` may be NULL when `len` is 0. */
struct bloom_hash bloom_filter_hash(const struct bloom_filter *filter, const void *data, size_t len);

/* Adds an item. Of any number of threads that add the same item at the same time exactly one gets BLOOM_ADDED, also
 * while the filter grows. A layer never takes more items than its capacity. `err` may be NULL. */
enum bloom_add bloom_filter_add(struct bloom_filter *filter, struct bloom_hash hash, struct errbuf *err);

/* bloom_filter_add() with a journal; NULL: without one. */
enum bloom_add bloom_filter_add_journaled(struct bloom_filter *filter, struct bloom_hash hash,
                                          const struct bloom_journal *journal, struct errbuf *err);

/* Claims an item for an owner: `hash` has the owner's mark of the item, an item of its own, then the item. An absent
 * item is added with its mark (BLOOM_ADDED), in one layer, or neither is: a layer with one place left grows, or is
 * full. A present item is asked for its mark (BLOOM_OWN, BLOOM_PRESENT), in a window only where the item is, so that
 * both expire together; REFRESH renews both. */
enum bloom_add bloom_filter_claim(struct bloom_filter *filter, const struct bloom_hash hash[2],
                                  const struct bloom_journal *journal, struct errbuf *err);

/* Loading: sets the value that bloom_layer_turn() of the view returns. Filters without turns ignore it. */
void bloom_filter_set_turn(struct bloom_filter *filter, unsigned index, const struct bloom_turn *turn);

/* Adds that were answered BLOOM_ADDED; in a window without expired ones. */
uint64_t bloom_filter_items(const struct bloom_filter *filter);

/* A number that changes whenever the filter's answers change: with adds, and with expired parts of a window. */
uint64_t bloom_filter_changes(const struct bloom_filter *filter);

/* The same, after all counted adds have set their bits: waits for running adds. */
uint64_t bloom_filter_changes_settled(const struct bloom_filter *filter);

/* Whether it is as after bloom_filter_init(): one layer, no adds, no bits (RedisBloom's dumps may have bits that no
 * count covers). Reads all words, which must be in memory, until it finds a bit: a millisecond per 10 MB. */
bool bloom_filter_is_blank(const struct bloom_filter *filter);

uint64_t bloom_filter_capacity(const struct bloom_filter *filter); /* sum over the layers */
uint64_t bloom_filter_memory(const struct bloom_filter *filter);   /* bytes: words, headers, bookkeeping; no name */

/* ---- internal to bloomcore ---- */

/* The slow half of an add, for an item that was just tested and absent from all layers: `bit` has its bits in `layer`,
 * the newest at that test. Answers as bloom_filter_add(). */
enum bloom_add bloom_filter_add_absent(struct bloom_filter *filter, struct bloom_hash hash,
                                       const struct bloom_layer *layer, const uint64_t bit[BLOOM_PROBE_BITS],
                                       const struct bloom_journal *journal, struct errbuf *err);

/* ---- filters in memory of their own ---- */

/* An empty filter with these layers; `shapes` NULL: with one, as the parameters demand. 0, or the status of
 * bloom_class_get(), bloom_filter_init() or bloom_filter_append_layer(); nothing to undo then. */
int bloom_filter_create(struct bloom_pool *pool, const struct bloom_params *params, const struct bloom_shape *shapes,
                        unsigned nlayers, struct bloom_filter **filter_out, struct errbuf *err);
void bloom_filter_destroy(struct bloom_filter *filter); /* NULL is fine */

/* A filter with a pool of its own, for a caller with one filter and no server around it. All zero: there is none. */
struct bloom_alone {
    struct bloom_pool *pool;
    struct bloom_filter *filter;
};

/* Creates an empty one. `shape` of its first layer; NULL: as the parameters demand. `params` NULL: it takes any number
 * of items and never grows, but layers may be appended. 0, BLOOM_REFUSED or -ENOMEM with the reason. */
int bloom_alone_init(struct bloom_alone *alone, const struct bloom_shape *shape, const struct bloom_params *params,
                     struct errbuf *err);
void bloom_alone_deinit(struct bloom_alone *alone); /* idempotent, of a zeroed one too */
