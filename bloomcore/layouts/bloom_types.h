/* bloom_types: the statuses, answers and views that the files of bloomcore and their callers share. Plain values; their
 * lifetimes are in the files that make them. Thread: any. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_params.h"
#include "errbuf.h"
#include "murmur.h"

struct bloom_pool;   /* bloom_pool.h */
struct bloom_class;  /* bloom_pool.h */
struct bloom_filter; /* bloom_filter.h */

/* ---- memory ---- */

/* Memory of a host, which counts it and limits it. zeroed() returns `bytes` zero bytes, aligned to 8; NULL when there
 * are none. release() takes them back. Both may be called by any thread. */
struct bloom_memory {
    void *(*zeroed)(size_t bytes);
    void (*release)(void *memory);
};

/* ---- adds ---- */

enum bloom_add {
    BLOOM_OWN = -1,    /* only of a claim: the item was there, with this owner's mark */
    BLOOM_PRESENT = 0, /* the item was (or seemed to be) there already; nothing was written */
    BLOOM_ADDED = 1,   /* this call, and no other, has added the item */
    BLOOM_FULL = 2,    /* a fixed filter has taken its capacity of items */
    BLOOM_NO_ROOM = 3, /* the next layer would pass a limit or cannot be allocated; the errbuf has the reason */
};

/* The turn of a layer: which part it belongs to. */
struct bloom_turn {
    uint64_t number;    /* of the part, from 1 on; 0: the layer has not been used */
    uint64_t base;      /* the layer's count of items when the part took it: ordinals up to this are of earlier parts */
    int64_t started_us; /* when the part began to take items */
};

/* Turns of a window have smaller numbers. Only a forged dump comes near to it; then no further part begins. */
#define BLOOM_TURNS (UINT64_C(1) << 60)

/* Whether these can be numbers of a turn: within bounds that no arithmetic leaves. */
static inline bool bloom_turn_valid(const struct bloom_turn *turn)
{
    return turn->number < BLOOM_TURNS && turn->base < UINT64_C(1) << 60 && turn->started_us >= 0 &&
           turn->started_us < INT64_C(1) << 60;
}

/* A journal records adds before any thread can see their effect, so that a log can make them durable. The adding thread
 * calls both functions under a lock for which other adds to the filter wait. They must be quick and must not call
 * bloomcore.
 *
 * add(): an item gets its place in the layer. `ordinal` is the layer's item count with this item, from 1 to the layer's
 * capacity; it is unique among the adds to a layer. 0: the bits are set without being counted. No thread can find the
 * item's bits before add() has returned.
 *
 * add_both(): the mark and the item of a claim, with this ordinal and the next one, or both with 0; a log has both or
 * neither. NULL: add() twice.
 *
 * grow(): a layer of this shape is about to become the filter's newest, with this index. 0; or -errno with a text: the
 * filter does not grow, and the add returns BLOOM_NO_ROOM. grow() is called only when the layer exists. Otherwise a
 * replay would grow the filter by a layer that had failed for memory or a limit.
 *
 * turn(): the layer `layer` of a window, of this shape, is about to be taken by a part (bloom_window.h). It may be a
 * new one, for which grow() is not called. It returns the same values as grow(), with the same effects. */
struct bloom_journal_ops {
    void (*add)(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal);
    int (*grow)(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape, struct errbuf *err);
    int (*turn)(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape, const struct bloom_turn *turn,
                struct errbuf *err);
    void (*add_both)(void *ctx, uint64_t id, const struct bloom_hash hash[2], unsigned layer, uint64_t ordinal);
};

/* `id` identifies the filter for `ops`; bloomcore only passes it on. */
struct bloom_journal {
    const struct bloom_journal_ops *ops;
    void *ctx;
    uint64_t id;
};

/* ---- items ---- */

/* Items whose cache misses overlap; with more, the first lines would leave the cache before their use. */
#define BLOOM_BATCH 32

struct bloom_item {
    const char *ptr; /* may be NULL when len is 0 */
    size_t len;
};

/* A record of a journal's add(), for a replay. */
struct bloom_replay_item {
    struct bloom_hash hash;
    uint64_t ordinal;
};

/* ---- layers, for saving, loading and reporting ---- */

struct bloom_layer_view {
    struct bloom_shape shape;
    uint64_t capacity;
    double error_rate; /* this layer's share */
    uint64_t items;    /* in a window those of the layer's part, 0 if it has expired */
    uint64_t ordinal; /* the highest that the layer has given out: the items, in a window those of earlier parts, too */
    uint64_t base;    /* the part of `ordinal` that is those of earlier parts; otherwise 0 */
    uint64_t turn;    /* the number of the layer's part; 0: not a window, or not used */
    int64_t started_us; /* when that part began; otherwise 0. The first layer of a cuckoo filter has in `turn` the
                         * ordinal of its last operation, and here its deletions since the last compaction */
    bool forgotten;     /* a window has no part in this layer: the bits say nothing */
    _Atomic uint64_t
        *words;          /* shape.nwords words in memory order; valid as long as the filter; NULL: bloom_resident.h */
    unsigned char *room; /* the layer's place as a file: see below; NULL for small layers */
    const struct bloom_filter *still; /* words are read by cuckoo_still_read() from this filter, as layer `index` */
    unsigned index;
};

/* Layers whose words take BLOOM_ROOM_MIN_BYTES or more are in memory as in a file, behind space for a header of
 * BLOOM_ROOM_HEAD bytes; `room` points to that space. The room begins at a multiple of 2 MiB and ends after the words,
 * at a multiple of 4096. Its bytes in addition to the words are unused, so that whole blocks of a file can be read into
 * it. */
#define BLOOM_ROOM_HEAD      8
#define BLOOM_ROOM_MIN_BYTES (UINT64_C(2) << 20)

static inline struct bloom_turn bloom_layer_turn(const struct bloom_layer_view *view)
{
    return (struct bloom_turn){view->turn, view->base, view->started_us};
}

/* Places that the layer's part has taken, expired or not. */
static inline uint64_t bloom_layer_placed(const struct bloom_layer_view *view)
{
    return view->ordinal > view->base ? view->ordinal - view->base : 0;
}
