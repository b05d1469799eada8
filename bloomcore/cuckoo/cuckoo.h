/* cuckoo: cuckoo filters: a filter (bloom_filter.h) whose layers, its sub-filters, have slots: 0, or the fingerprint of
 * an item. Items can be deleted. In RedisBloom's layout a slot is a byte. Our layout keeps an error rate: a slot has 8,
 * 12 or 16 bits, and adds fill a layer up to 95 % (cuckoo_shape.h).
 *
 * Everything here is deterministic: the same operations in the same order give the same bytes. Each operation that
 * changes a filter has an ordinal. So a log's operations above the ordinal of a copy bring the copy up to date.
 *
 * Source: B. Fan et al., "Cuckoo Filter: Practically Better Than Bloom" (2014), with RedisBloom's hash, sizes and order
 * of evictions, or ours; docs/FORMAT.md has both exactly.
 *
 * Thread: any number of threads, without further synchronisation. Queries take no lock and write nothing. They wait
 * while an add moves fingerprints, for some ten nanoseconds per move. Changes take the filter's lock. The functions
 * marked "loading" need exclusive access. */
#pragma once

#include "bloom_chain.h"
#include "bloom_types.h"
#include "cuckoo_shape.h"

/* The hash of an item; the fingerprint and the two buckets come from it. `data` may be NULL when `len` is 0. */
uint64_t cuckoo_hash(const void *data, size_t len);

/* The hash of an item of a filter. The key of a KEYED one must be here (bloom_keyring.h). */
uint64_t cuckoo_hash_for(const struct bloom_filter *filter, const void *data, size_t len);

/* Whether a fingerprint of the item is there (it may have been added, and not deleted since) or not (certainly not). */
bool cuckoo_query(const struct bloom_filter *filter, uint64_t hash);

/* Fetches the newest layer's buckets of the item from memory, for a query or an add that follows. */
void cuckoo_prefetch(const struct bloom_filter *filter, uint64_t hash);

/* The number of slots with the item's fingerprint in its buckets, at one moment. If both buckets are the same one, each
 * slot counts twice, as in RedisBloom. Takes the lock. */
uint64_t cuckoo_count(const struct bloom_filter *filter, uint64_t hash);

/* Adds an item again; with `only_new` unless it seems to be there (BLOOM_PRESENT). Of any number of threads that add an
 * item with `only_new` at the same time exactly one gets BLOOM_ADDED. BLOOM_FULL: no eviction has made room and the
 * filter does not grow, or its rate allows no further layer. BLOOM_NO_ROOM: the next sub-filter would pass a limit;
 * `err`, which may be NULL, has it. The journal may be NULL; its grow(), which may be NULL, too, is asked before a
 * sub-filter is added. */
enum bloom_add cuckoo_add(struct bloom_filter *filter, uint64_t hash, bool only_new,
                          const struct bloom_journal *journal, struct errbuf *err);

/* Deletes one occurrence of the item, or another with its fingerprint and one of its buckets. False: there was none. */
bool cuckoo_delete(struct bloom_filter *filter, uint64_t hash, const struct bloom_journal *journal);

/* Whether deletions have left so many holes that RedisBloom would compact the filter by itself. */
bool cuckoo_is_sparse(const struct bloom_filter *filter);

/* Begins a compaction, which moves fingerprints from newer sub-filters into holes of older ones, unless one is under
 * way. `all`: also after a sub-filter that could not be emptied (CF.COMPACT); that holds for one under way, too. */
void cuckoo_compact_begin(struct bloom_filter *filter, bool all);

/* Continues a running compaction, if any, for about this number of slots. Each moved slot costs five slots in a filter
 * of two layers with buckets of two, and more in larger ones. Some 30 ns for each. Steps have at most CUCKOO_STEP
 * slots; other threads change the filter between two of them. A process that ends forgets that a compaction was under
 * way. Whether it has changed the filter. */
#define CUCKOO_STEP UINT64_C(2048)
bool cuckoo_compact(struct bloom_filter *filter, uint64_t looks, const struct bloom_journal *journal);
bool cuckoo_is_compacting(const struct bloom_filter *filter);

struct cuckoo_state {
    uint64_t items;   /* adds less deletions */
    uint64_t deletes; /* since the last compaction */
    uint64_t ordinal; /* of the last operation; 0: there was none */
    uint64_t slots, bytes;
    uint64_t buckets; /* of the first sub-filter */
    unsigned bucket_size;
    unsigned slot_bits;
    unsigned nlayers;
    double rate; /* probability that a query of an item never added says "present" now */
};
void cuckoo_state(const struct bloom_filter *filter, struct cuckoo_state *state_out);

/* The share of slots, 0..1, that are taken when the first add of a random item fails. There is no formula for
 * RedisBloom's order of evictions, which is fixed; so a filter is filled. The filter has some 65,536 slots,
 * buckets of 1..255 slots, and adds of 1..65535 evictions. Takes milliseconds: not on a loop. 0: no memory. Larger
 * filters fail a little earlier, smaller ones sometimes much later. */
double cuckoo_load(unsigned bucket_size, unsigned iterations);

/* ---- chunks ---- */

/* Gives a new filter its further layers, and the count of deletions, from the header of a dump in chunks. BLOOM_OK;
 * otherwise the filter must be deleted. */
int cuckoo_extend(struct bloom_filter *filter, unsigned nlayers, uint64_t deletes, const struct bloom_journal *journal,
                  struct errbuf *err);

/* Sets `len` bytes of slots, counted over all layers one after the other, from `at` on. All are of one layer. Other
 * threads may add to these slots. Makes a record for each eight bytes that change. */
void cuckoo_set_slots(struct bloom_filter *filter, uint64_t at, const void *slots, size_t len,
                      const struct bloom_journal *journal);

/* The bytes of the slots of all layers. */
uint64_t cuckoo_bytes_of(const struct bloom_filter *filter);

/* ---- the log ---- */

/* An operation in a journal's add(), whose ordinal has CUCKOO_ORDINAL_BITS; the bits above are its `layer`. */
#define CUCKOO_ORDINAL_BITS 40

static inline uint64_t cuckoo_ordinal(unsigned layer, uint64_t ordinal)
{
    return (uint64_t)layer << CUCKOO_ORDINAL_BITS | ordinal;
}

/* Loading: repeats an operation of a journal. The ordinals rise from call to call. False: it is no operation. */
bool cuckoo_replay(struct bloom_filter *filter, const struct bloom_replay_item *item, uint64_t ordinal);

/* Whether the operation is valid in any state: it adds an item, or a sub-filter. */
bool cuckoo_only_adds(const struct bloom_replay_item *item);

/* ---- copies ---- */

/* Reads words of a layer of a still. With `last` they are not read again, and a layer's words are read in order. */
void cuckoo_still_read(const struct bloom_filter *still, unsigned layer, uint64_t word, uint64_t nwords, uint64_t *to,
                       bool last);

/* Makes `copy`, which only the caller knows, equal to a still, or to a filter that does not change. Layers that the
 * copy gets, beyond those that it has, may pass the limits of memory. Takes about 1 ms per 4 MB. 0, or -ENOMEM: the
 * copy must be given up then. */
int cuckoo_take(struct bloom_filter *copy, const struct bloom_filter *from, struct errbuf *err);

/* Loading: sets the counts that are not in the slots. The items of each layer are set by bloom_filter_set_items(). */
void cuckoo_set_counts(struct bloom_filter *filter, uint64_t ordinal, uint64_t deletes);

/* Loading: counts the taken slots of all layers again. */
void cuckoo_recount(struct bloom_filter *filter);

/* `len` bytes of slots, counted over all layers one after the other, from `at` on. If other threads change the filter
 * meanwhile, they are not of one moment; unless it is a still, whose bytes are read once, in their order. */
void cuckoo_read(const struct bloom_filter *filter, uint64_t at, void *to, size_t len);

/* ---- stills: the state of a filter at one moment, for long reads while other threads change it: a save, a dump ----
 *
 * Only cuckoo filters need this; bits of Bloom filters are only set, and can be read while they change. A still is a
 * filter that has the shape, the counts and the words of that moment, but no memory for all of these: see
 * bloom_layer_view.still. It takes memory, which no limit counts, for what is changed before it has been read.
 *
 * Lifetime: bloom_still_begin() to bloom_still_end(), while the filter lives. Thread: any, not on a loop. */

/* Of a cuckoo filter, at a moment during the call. 0, or -ENOMEM and NULL. */
int bloom_still_begin(struct bloom_filter *filter, struct bloom_filter **still_out, struct errbuf *err);
void bloom_still_end(struct bloom_filter *still); /* NULL is fine */
