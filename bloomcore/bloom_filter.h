/* bloom_filter: a scalable Bloom filter in Cassandra's bit layout: a chain of layers, each of which is one Cassandra
 * filter (k, bits, words), the item hashed once for all of them.
 *
 * What it does not do: names, expiry, files, sockets, logging. Items are known by their 128-bit hash (murmur3.h).
 *
 * Lifetime: a pool lives as long as any class or filter made from it (a filter holds a reference to its class, so the
 * caller may release its own after init); a filter lives in the caller's storage, from
 * bloom_filter_init() to bloom_filter_deinit().
 *
 * Threads: any number of threads may query and add at the same time, on the same filter, without further
 * synchronisation; queries take no lock and write nothing. Init, deinit, and the functions marked "loading" need
 * exclusive access. A caller that frees a filter makes sure by its own means (RCU) that nobody is inside it.
 *
 * Layout: FORMAT.md sections 1, 4 and 5 (bit order, index derivation, sizing); scaling as in P. Almeida et al.,
 * "Scalable Bloom Filters" (2007): layer i has capacity * expansion^i items at rate error_rate * 0.5^(i+1), so that the
 * rates of all layers sum up to less than error_rate; a fixed filter has one layer at exactly error_rate. */
#ifndef BLOOMERY_BLOOM_FILTER_H
#define BLOOMERY_BLOOM_FILTER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_size.h"
#include "errbuf.h"
#include "murmur3.h"

#define BLOOM_MAX_EXPANSION 32768
#define BLOOM_MAX_LAYERS    64

/* The three live variants of the file format (FORMAT.md section 2). The word order concerns files only; the hash order
 * decides which bits an item has. In memory the words always are little-endian bytes in NEW order. */
enum bloom_variant {
    BLOOM_NA = 0, /* Cassandra 4.0 and later: little-endian words, base = h2, increment = h1 */
    BLOOM_ME = 1, /* Cassandra 3.x, ScyllaDB mc..mt: big-endian words, base = h2, increment = h1 */
    BLOOM_KA = 2, /* before 3.0, ScyllaDB ka la: big-endian words, base = h1, increment = h2 */
};

/* What a user asks for. */
struct bloom_params {
    uint64_t capacity;   /* items the first layer is made for, >= 1 */
    double error_rate;   /* 0 < error_rate < 1, of the whole chain */
    uint32_t expansion;  /* capacity of a layer relative to the one before, 1..BLOOM_MAX_EXPANSION; 0: fixed size */
};

/* What a layer is made of, as a file states it. */
struct bloom_shape {
    uint64_t nwords; /* 1..BLOOM_MAX_WORDS */
    uint8_t k;       /* 1..BLOOM_MAX_K */
    uint8_t variant; /* enum bloom_variant */
};

/* ---- pool and classes ------------------------------------------------------------------------------------------- */

/* What the filters of a process share: the classes, the locks of adds, the account of memory. Thread: any. */
struct bloom_pool;

int bloom_pool_create(struct bloom_pool **pool_out); /* 0 or -ENOMEM */
void bloom_pool_destroy(struct bloom_pool *pool);    /* NULL is fine; all classes must have been released */

/* Bytes now held by the words of all filters of the pool. */
uint64_t bloom_pool_bytes(const struct bloom_pool *pool);

/* How many layers have been added by growth since the pool was made. */
uint64_t bloom_pool_grown(const struct bloom_pool *pool);

/* Upper limits, 0 for none: bytes of words per filter (all layers) and of the whole pool. They are checked before
 * anything is allocated, for new filters and for growth; existing filters stay as they are. */
void bloom_pool_set_limits(struct bloom_pool *pool, uint64_t max_filter_bytes, uint64_t max_total_bytes);

/* Large filters start on small pages of memory, so that no add waits for a huge one to be zeroed; batched queries of a
 * filter larger than the cache are twice as fast on huge ones. This moves 2 MiB of a filter that is in use a step further:
 * one that has an item for each huge page of it, or so many small ones. To be called from a thread in the background, again
 * and again, with pauses that follow from what was done: nobody waits for memory being populated, but adds to and queries
 * of the same filter may have to wait while a page is made huge. Takes a millisecond or so, ten where the host of a virtual
 * machine has to find memory; a bloom_filter_deinit() of that filter waits for it. One thread at a time. */
enum bloom_settled {
    BLOOM_SETTLED_NOTHING = 0, /* there is nothing to do for now */
    BLOOM_SETTLED_POPULATED = 1,
    BLOOM_SETTLED_HUGE = 2,
    BLOOM_SETTLED_AHEAD = 3, /* a part of a filter that hardly anybody uses yet: the sooner it is done the better */
};
enum bloom_settled bloom_pool_settle(struct bloom_pool *pool);

/* New filters are moved to huge pages before they are used, which costs less than afterwards: as long as those that have
 * been, and have not been used, are no more than `bytes`, and none is more than half of that. bloom_pool_settle() does it;
 * `wake` (may be NULL), which must be quick and must not call bloomcore, is called when there is such a filter, and when one
 * begins to be in use. At the start `bytes` is 0. Layers that are added by growth are in use at once, and not among these. */
void bloom_pool_set_ahead(struct bloom_pool *pool, uint64_t bytes, void (*wake)(void *ctx), void *ctx);

/* A class is what all filters of equal parameters and equal first layer share, so that a small filter costs little more
 * than its bits. Counted references. Thread: any. */
struct bloom_class;

enum bloom_status {
    BLOOM_OK = 0,
    BLOOM_REFUSED = 1, /* parameters that cannot be had; the errbuf says what would be right */
    BLOOM_LIMIT = 2,   /* a limit of the pool is in the way; the errbuf says which, and what would be needed */
};

/* The class for these parameters, its first layer sized by bloom_size_plan() (variant BLOOM_NA), or of exactly the
 * given shape when `shape` is not NULL (loading, import). 0, BLOOM_REFUSED, or -ENOMEM. The caller owns a reference. */
int bloom_class_get(struct bloom_pool *pool, const struct bloom_params *params, const struct bloom_shape *shape,
                    struct bloom_class **class_out, struct errbuf *err);
struct bloom_class *bloom_class_retain(struct bloom_class *class);
void bloom_class_release(struct bloom_class *class); /* NULL is fine */
const struct bloom_params *bloom_class_params(const struct bloom_class *class);

/* ---- filter ----------------------------------------------------------------------------------------------------- */

/* In the caller's storage of bloom_filter_bytes() bytes, aligned to 8, where it stays: a filter points into itself and
 * cannot be moved. Fields are internal. */
struct bloom_filter;

/* Storage for a filter of this class: the header, and the words of the first layer when they are few (otherwise they
 * are mapped separately, which costs nothing until they are used). */
size_t bloom_filter_bytes(const struct bloom_class *class);

/* An empty filter; takes a reference to the class of its own. 0, BLOOM_LIMIT, or -ENOMEM (nothing to undo then). */
int bloom_filter_init(struct bloom_filter *filter, struct bloom_class *class, struct errbuf *err);

/* The same, for a filter that takes the place of one that is no smaller and goes at once: no limit is looked at. */
int bloom_filter_init_instead(struct bloom_filter *filter, struct bloom_class *class, struct errbuf *err);
void bloom_filter_deinit(struct bloom_filter *filter); /* may take milliseconds for gigabytes: not on a loop */

const struct bloom_params *bloom_filter_params(const struct bloom_filter *filter);
struct bloom_class *bloom_filter_class_of(const struct bloom_filter *filter); /* borrowed: the filter's own reference */

/* Whether the item may have been added (true) or certainly was not (false). */
bool bloom_filter_query(const struct bloom_filter *filter, struct bloom_hash hash);

enum bloom_add {
    BLOOM_PRESENT = 0, /* it was (or seemed to be) there already; nothing has been written */
    BLOOM_ADDED = 1,   /* it is there now, and this call, no other, made it so */
    BLOOM_FULL = 2,    /* a fixed filter that has taken its capacity of items */
    BLOOM_NO_ROOM = 3, /* the next layer would break a limit or cannot be allocated; the errbuf says which and what */
};

/* Adds an item. Of any number of threads that add the same item at the same time exactly one gets BLOOM_ADDED, also
 * while the filter grows. A layer never takes more items than its capacity. `err` may be NULL. */
enum bloom_add bloom_filter_add(struct bloom_filter *filter, struct bloom_hash hash, struct errbuf *err);

/* Who is told of adds before anybody can see their effect, so that it can be made durable: a log. The two are called in the
 * adding thread, with a lock held that other adds to the filter wait for: they must be quick and must not call bloomcore.
 *
 * add(): an item gets its place in the layer. `ordinal` is the value that the layer's item count thereby has taken, from 1
 * to the layer's capacity: no two adds to a layer have the same. 0: the bits are set without being counted. Nobody can
 * find the item's bits before add() has returned.
 *
 * grow(): a layer of this shape is about to be the filter's newest, with this index. 0, or -errno with a text: the filter
 * does not grow, and the add is BLOOM_NO_ROOM. A layer that cannot be made, for want of memory or because of a limit, is not
 * told of: a log that had it would let the filter grow when it is brought back. */
struct bloom_journal_ops {
    void (*add)(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal);
    int (*grow)(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape, struct errbuf *err);
};

/* `id` is the filter's name to `ops`; bloomcore only passes it on. */
struct bloom_journal {
    const struct bloom_journal_ops *ops;
    void *ctx;
    uint64_t id;
};

/* As bloom_filter_add(), with a journal. NULL: without. */
enum bloom_add bloom_filter_add_journaled(struct bloom_filter *filter, struct bloom_hash hash,
                                          const struct bloom_journal *journal, struct errbuf *err);

uint64_t bloom_filter_items(const struct bloom_filter *filter);    /* adds that were answered BLOOM_ADDED */
uint64_t bloom_filter_capacity(const struct bloom_filter *filter); /* sum over the layers */
uint64_t bloom_filter_memory(const struct bloom_filter *filter);   /* bytes: words, headers, bookkeeping; no name */
unsigned bloom_filter_nlayers(const struct bloom_filter *filter);

/* ---- layers, for saving, loading and reporting ------------------------------------------------------------------ */

struct bloom_layer_view {
    struct bloom_shape shape;
    uint64_t capacity;
    double error_rate;            /* this layer's share */
    uint64_t items;
    _Atomic uint64_t *words;      /* shape.nwords words in memory order; valid as long as the filter */
    unsigned char *room;          /* the layer's place as a file: see below; NULL for small layers */
};

/* Layers whose words take BLOOM_ROOM_MIN_BYTES or more lie in memory as they do in a file, behind a header of BLOOM_ROOM_HEAD
 * bytes: `room` is where that would be. It begins at a multiple of 2 MiB and ends behind the words, at a multiple of 4096. What
 * is in it beside the words is nobody's, so that whole blocks of a file can be read into it. */
#define BLOOM_ROOM_HEAD      8
#define BLOOM_ROOM_MIN_BYTES (UINT64_C(2) << 20)

/* Loading: these bytes of a room, whole pages that nobody else uses yet, are zero, and need take no memory until they are
 * written. */
void bloom_room_empty(unsigned char *from, size_t len);

/* The layer `index` (0 is the oldest), index < bloom_filter_nlayers(). */
void bloom_filter_layer(const struct bloom_filter *filter, unsigned index, struct bloom_layer_view *view_out);

/* Loading: sets the item count of a layer; appends a zeroed layer of a given shape. 0, BLOOM_REFUSED (not a shape,
 * or not one that this filter can have: its layers are of one variant), BLOOM_LIMIT or -ENOMEM. The words are then written through bloom_filter_layer(). */
void bloom_filter_expect_fill(struct bloom_filter *filter); /* its words will all be written soon: huge pages at once */
void bloom_filter_set_items(struct bloom_filter *filter, unsigned index, uint64_t items);
int bloom_filter_append_layer(struct bloom_filter *filter, const struct bloom_shape *shape, struct errbuf *err);

/* Loading: what add() of a journal was told of a layer, to be brought back. Sets the bits of n items, and counts those
 * whose ordinal is above `counted`, the count that the layer was loaded with. Items are set in any order and any number of
 * times; only the sum of the counts matters. Returns how many were counted. Several threads may do this at a time. */
struct bloom_replay_item {
    struct bloom_hash hash;
    uint64_t ordinal;
};
uint64_t bloom_filter_replay(struct bloom_filter *filter, unsigned index, uint64_t counted,
                             const struct bloom_replay_item *items, size_t n);

/* What the bits say, not what was asked for. */
struct bloom_state {
    uint64_t bits;           /* bits of all layers */
    uint64_t bits_set;
    double fill_ratio;       /* bits_set / bits, 0..1 */
    double rate;             /* probability that a query for an item never added says "present" now */
    double estimated_items;  /* distinct items that this fill suggests */
};

/* Counts the bits of one layer, or of the whole chain. Takes about 1 ms per 10 MB: not on a loop for large filters. */
void bloom_layer_state(const struct bloom_layer_view *layer, struct bloom_state *state_out);
void bloom_filter_state(const struct bloom_filter *filter, struct bloom_state *state_out);

/* The state of a chain from those of its layers. */
void bloom_chain_state(const struct bloom_state *layers, unsigned nlayers, struct bloom_state *state_out);

#endif
