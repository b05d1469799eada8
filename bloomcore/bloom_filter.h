/* bloom_filter: a scalable Bloom filter in Cassandra's bit layout, or in RedisBloom's. It is a chain of layers, each of
 * which is one filter (k, bits, words); an item is hashed once for all layers.
 *
 * It knows no names, expiry, files, sockets or logs. Items are known by their 128-bit hash (bloom_filter_hash()).
 *
 * Lifetime: a pool lives as long as any class or filter made from it (a filter holds a reference to its class, so the
 * caller may release its own after init); a filter lives in the caller's storage, from
 * bloom_filter_init() to bloom_filter_deinit().
 *
 * Threads: any number of threads may query and add at the same time, on the same filter, without further
 * synchronisation; queries take no lock and write nothing. Init, deinit, and the functions marked "loading" need
 * exclusive access. A caller that frees a filter makes sure by its own means (RCU) that no other thread uses it.
 *
 * Layout: FORMAT.md sections 1, 4 and 5 (bit order, index derivation, sizing); scaling as in P. Almeida et al.,
 * "Scalable Bloom Filters" (2007), with another series of rates: layer i has capacity * expansion^i items at rate
 * bloom_size_share(error_rate, i), and the rates of all layers sum up to less than error_rate; a fixed filter has one
 * layer at exactly error_rate. RedisBloom's layout (redisbloom.h) has a hash, sizes and rates of its own. */
#ifndef BLOOMERY_BLOOM_FILTER_H
#define BLOOMERY_BLOOM_FILTER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_params.h"
#include "bloom_size.h"
#include "errbuf.h"
#include "murmur3.h"

/* Layers of one filter. A query may read all of them, for some twenty nanoseconds each. A filter that needs more has a
 * wrong first capacity or expansion. */
#define BLOOM_MAX_LAYERS 1024

/* ---- pool and classes ---- */

/* Shared by the filters of a process: the classes, the locks of adds, the count of memory. Thread: any. */
struct bloom_pool;

int bloom_pool_create(struct bloom_pool **pool_out); /* 0 or -ENOMEM */

/* A pool for a host with memory of its own, which counts it and limits it: the words of filters that are not in the
 * caller's memory, and layers added by growth, come from there. Such layers have no room, and stay on the pages that
 * they are given. `memory` must outlive the pool.
 *
 * zeroed() returns `bytes` zero bytes, aligned to 8; NULL when there are none. release() takes them back. Both may be
 * called by any thread. */
struct bloom_memory {
    void *(*zeroed)(size_t bytes);
    void (*release)(void *memory);
};
int bloom_pool_create_in(const struct bloom_memory *memory, struct bloom_pool **pool_out); /* 0 or -ENOMEM */

void bloom_pool_destroy(struct bloom_pool *pool); /* NULL is fine; all classes must have been released */

/* Bytes now held by the words of all filters of the pool. */
uint64_t bloom_pool_bytes(const struct bloom_pool *pool);

/* The part of these bytes that lies in the callers' memory, behind the filters; and the bytes of the pool's own headers
 * of grown layers. */
uint64_t bloom_pool_inline_bytes(const struct bloom_pool *pool);
uint64_t bloom_pool_header_bytes(const struct bloom_pool *pool);

/* The number of layers added by growth since the pool was created. */
uint64_t bloom_pool_grown(const struct bloom_pool *pool);

/* Upper limits, 0 for none: bytes of words per filter (all layers) and of the whole pool. They are checked before
 * anything is allocated, for new filters and for growth; existing filters stay as they are. */
void bloom_pool_set_limits(struct bloom_pool *pool, uint64_t max_filter_bytes, uint64_t max_total_bytes);

/* Has `beside` called for the memory that counts against the limit of the whole pool beside its words. It is called
 * while locks of filters are held: it must not block. Before other threads use the pool. */
void bloom_pool_count_beside(struct bloom_pool *pool, uint64_t (*beside)(void *ctx), void *ctx);

/* Whether the limit of the whole pool leaves room for so many bytes, of whatever. BLOOM_OK, or BLOOM_LIMIT with the
 * numbers in `err`. */
int bloom_pool_room(struct bloom_pool *pool, uint64_t bytes, struct errbuf *err);

/* Large filters start on small pages of memory, so that no add waits for a huge one to be zeroed; batched queries of a
 * filter larger than the cache are twice as fast on huge ones. This looks at filters on small pages (at most 1024; at
 * others in the next call), and moves to huge pages those whose first filling is over or rests: with an item for each 4
 * KiB, or with one for each 2 MiB and hardly a new one since the last look. To be called from a thread in the
 * background every 100 ms or so; returns after milliseconds or after seconds. Adds to a filter wait for 0.3 ms while a
 * page of it is moved, its bloom_filter_deinit() for some milliseconds. One thread at a time.
 *
 * `go_on` (NULL: always true) is asked between two pages and ends the call with false. Where filters are merged under
 * RCU, it ends the thread's read section and begins another one. */
void bloom_pool_settle(struct bloom_pool *pool, bool (*go_on)(void *ctx), void *ctx);

/* Whether no filter is left for bloom_pool_settle() to look at. */
bool bloom_pool_is_settled(struct bloom_pool *pool);

/* A class is shared by all filters of equal parameters and equal first layer, so that a small filter costs little more
 * than its bits. Counted references. Thread: any. */
struct bloom_class;

enum bloom_status {
    BLOOM_OK = 0,
    BLOOM_REFUSED = 1, /* impossible parameters; the errbuf names possible ones */
    BLOOM_LIMIT = 2,   /* a limit of the pool; the errbuf names it and the needed size */
};

/* The class for these parameters, its first layer sized by bloom_size_plan() (variant BLOOM_NA) or, with RedisBloom's
 * options, by redisbloom_size(); or of exactly the given shape when `shape` is not NULL (loading, import). 0,
 * BLOOM_REFUSED, or -ENOMEM. The caller owns a reference. */
int bloom_class_get(struct bloom_pool *pool, const struct bloom_params *params, const struct bloom_shape *shape,
                    struct bloom_class **class_out, struct errbuf *err);
struct bloom_class *bloom_class_retain(struct bloom_class *class);
void bloom_class_release(struct bloom_class *class); /* NULL is fine */

/* ---- filter ---- */

/* Lives in the caller's storage of bloom_filter_bytes() bytes, aligned to 8, and cannot be moved, because it points
 * into itself. Fields are internal. */
struct bloom_filter;

/* Storage for a filter of this class: the header, and the words of the first layer when they are few (otherwise they
 * are mapped separately, which costs nothing until they are used). */
size_t bloom_filter_bytes(const struct bloom_class *class);

/* Creates an empty filter with a reference of its own to the class. 0, BLOOM_LIMIT, or -ENOMEM (nothing to undo
 * then). */
int bloom_filter_init(struct bloom_filter *filter, struct bloom_class *class, struct errbuf *err);

/* bloom_filter_init() for a filter that at once replaces one that is no smaller: limits are not checked. */
int bloom_filter_init_instead(struct bloom_filter *filter, struct bloom_class *class, struct errbuf *err);
void bloom_filter_deinit(struct bloom_filter *filter); /* may take milliseconds for gigabytes: not on a loop */

const struct bloom_params *bloom_filter_params(const struct bloom_filter *filter);
struct bloom_class *bloom_filter_class_of(const struct bloom_filter *filter); /* borrowed: the filter's own reference */

/* Whether the item may have been added (true) or certainly was not (false). */
bool bloom_filter_query(const struct bloom_filter *filter, struct bloom_hash hash);

/* The hash of an item for this filter. `data` may be NULL when `len` is 0. */
struct bloom_hash bloom_filter_hash(const struct bloom_filter *filter, const void *data, size_t len);

enum bloom_add {
    BLOOM_PRESENT = 0, /* the item was (or seemed to be) there already; nothing was written */
    BLOOM_ADDED = 1,   /* this call, and no other, has added the item */
    BLOOM_FULL = 2,    /* a fixed filter has taken its capacity of items */
    BLOOM_NO_ROOM = 3, /* the next layer would pass a limit or cannot be allocated; the errbuf has the reason */
};

/* Adds an item. Of any number of threads that add the same item at the same time exactly one gets BLOOM_ADDED, also
 * while the filter grows. A layer never takes more items than its capacity. `err` may be NULL. */
enum bloom_add bloom_filter_add(struct bloom_filter *filter, struct bloom_hash hash, struct errbuf *err);

struct bloom_turn;

/* A journal records adds before any thread can see their effect, so that a log can make them durable. The adding thread
 * calls both functions under a lock that other adds to the filter wait for: they must be quick and must not call
 * bloomcore.
 *
 * add(): an item gets its place in the layer. `ordinal` is the layer's item count with this item, from 1 to the layer's
 * capacity; it is unique among the adds to a layer. 0: the bits are set without being counted. No thread can find the
 * item's bits before add() has returned.
 *
 * grow(): a layer of this shape is about to become the filter's newest, with this index. 0; or -errno with a text: the
 * filter does not grow, and the add is BLOOM_NO_ROOM. grow() is called only when the layer exists: a record of a layer
 * that failed for memory or a limit would let the filter grow at a replay.
 *
 * turn(): the layer `layer` of a window, of this shape, is about to be taken by a part (bloom_window.h). It may be a
 * new one, for which grow() is not called. It returns what grow() returns, with the same effect. */
struct bloom_journal_ops {
    void (*add)(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal);
    int (*grow)(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape, struct errbuf *err);
    int (*turn)(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape, const struct bloom_turn *turn,
                struct errbuf *err);
};

/* `id` identifies the filter for `ops`; bloomcore only passes it on. */
struct bloom_journal {
    const struct bloom_journal_ops *ops;
    void *ctx;
    uint64_t id;
};

/* bloom_filter_add() with a journal; NULL: without one. */
enum bloom_add bloom_filter_add_journaled(struct bloom_filter *filter, struct bloom_hash hash,
                                          const struct bloom_journal *journal, struct errbuf *err);

/* Adds that were answered BLOOM_ADDED; in a window those that it has not forgotten. */
uint64_t bloom_filter_items(const struct bloom_filter *filter);

/* A number that changes with each change of the filter's answers: of adds, and of parts that a window has forgotten. */
uint64_t bloom_filter_changes(const struct bloom_filter *filter);

/* The same, after all counted adds have set their bits: waits for those that are running. */
uint64_t bloom_filter_changes_settled(const struct bloom_filter *filter);

/* Whether it is as bloom_filter_init() has left it: one layer, nothing added, no bits (a loaded filter may have some
 * that no count knows: RedisBloom's dumps do). Reads all words, which must be in memory, until it finds a bit: a
 * millisecond per 10 MB. */
bool bloom_filter_is_blank(const struct bloom_filter *filter);

uint64_t bloom_filter_capacity(const struct bloom_filter *filter); /* sum over the layers */
uint64_t bloom_filter_memory(const struct bloom_filter *filter);   /* bytes: words, headers, bookkeeping; no name */
unsigned bloom_filter_nlayers(const struct bloom_filter *filter);

/* ---- layers, for saving, loading and reporting ---- */

struct bloom_layer_view {
    struct bloom_shape shape;
    uint64_t capacity;
    double error_rate; /* this layer's share */
    uint64_t items;    /* in a window those of the layer's part, 0 if it is forgotten */
    uint64_t ordinal; /* the highest that the layer has given out: the items, in a window those of earlier parts, too */
    uint64_t base;    /* the part of `ordinal` that is those of earlier parts; otherwise 0 */
    uint64_t turn;    /* the number of the layer's part; 0: not a window, or not used */
    int64_t started_us; /* when that part began; otherwise 0 */
    bool forgotten;     /* a window has no part in this layer: the bits say nothing */
    _Atomic uint64_t
        *words;          /* shape.nwords words in memory order; valid as long as the filter; NULL: bloom_resident.h */
    unsigned char *room; /* the layer's place as a file: see below; NULL for small layers */
};

/* Layers whose words take BLOOM_ROOM_MIN_BYTES or more lie in memory as in a file, behind space for a header of
 * BLOOM_ROOM_HEAD bytes; `room` points to that space. The room begins at a multiple of 2 MiB and ends behind the words,
 * at a multiple of 4096. Its bytes beside the words are unused, so that whole blocks of a file can be read into it. */
#define BLOOM_ROOM_HEAD      8
#define BLOOM_ROOM_MIN_BYTES (UINT64_C(2) << 20)

/* Loading: these bytes of a room, whole unused pages, become zero and take no memory until they are written. */
void bloom_room_empty(unsigned char *from, size_t len);

/* The layer `index` (0 is the oldest), index < bloom_filter_nlayers(). */
void bloom_filter_layer(const struct bloom_filter *filter, unsigned index, struct bloom_layer_view *view_out);

/* Loading: all words of the filter will be written soon, by a thread that can wait: huge pages at once. No word has
 * been written yet, but behind an earlier call, and nobody else uses them; views of layers end. */
void bloom_filter_expect_fill(struct bloom_filter *filter);

/* Loading: sets the item count of a layer; appends a zeroed layer of a given shape. 0, BLOOM_REFUSED (not a shape,
 * or not one that this filter can have: its layers are of one variant), BLOOM_LIMIT or -ENOMEM. The words are then
 * written through bloom_filter_layer(). */
void bloom_filter_set_items(struct bloom_filter *filter, unsigned index, uint64_t items);
int bloom_filter_append_layer(struct bloom_filter *filter, const struct bloom_shape *shape, struct errbuf *err);

/* Loading: replays records of a journal's add() for a layer. Sets the bits of n items, and counts those whose ordinal
 * is above `counted`, the layer's count when it was loaded. The order of items does not matter, nor do repetitions;
 * only the sum of the counts does. Returns the number of counted items. Several threads may call this at a time. */
struct bloom_replay_item {
    struct bloom_hash hash;
    uint64_t ordinal;
};
uint64_t bloom_filter_replay(struct bloom_filter *filter, unsigned index, uint64_t counted,
                             const struct bloom_replay_item *items, size_t n);

#endif
