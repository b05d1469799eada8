/* Changes. An add looks for an empty slot from the newest layer down to the oldest; then it evicts fingerprints in the
 * newest one, each to its other bucket, in an order without chance. Where that finds no empty slot the same walk is
 * gone backwards, which needs no memory: the fingerprint in hand and the bucket tell where it came from. */
#include "bloom_pool.h"
#include "bloom_scaling.h"
#include "cuckoo.h"
#include "cuckoo_slots.h"
#include "lock.h"

#define ORDINAL_MASK ((UINT64_C(1) << CUCKOO_ORDINAL_BITS) - 1)

/* ---- slots ---- */

void cuckoo_put(struct bloom_filter *filter, struct bloom_layer *layer, uint64_t at, unsigned char value)
{
    unsigned index = layer->geometry->index;

    __atomic_store_n(cuckoo_bytes(layer) + at, value, __ATOMIC_RELEASE);
    for (const struct cuckoo_mirror *m = cuckoo_of(filter)->mirrors; __builtin_expect(m != NULL, 0); m = m->next)
        if (index < m->layer || (index == m->layer && at < m->at))
            __atomic_store_n(cuckoo_bytes(bloom_filter_layer_at(m->copy, index)) + at, value, __ATOMIC_RELAXED);
}

void cuckoo_record(struct bloom_filter *filter, enum cuckoo_kind kind, uint64_t h1, uint64_t h2,
                   const struct bloom_journal *journal)
{
    struct cuckoo *cuckoo = cuckoo_of(filter);
    uint64_t ordinal = atomic_load_explicit(&cuckoo->ordinal, memory_order_relaxed) + 1;

    ordinal += (ordinal & ORDINAL_MASK) == 0; /* 0 is an add that does not count */
    if (journal)
        journal->ops->add(journal->ctx, journal->id, (struct bloom_hash){h1, h2 << 8 | kind},
                          (unsigned)(ordinal >> CUCKOO_ORDINAL_BITS), ordinal & ORDINAL_MASK);
    atomic_store_explicit(&cuckoo->ordinal, ordinal, memory_order_relaxed);
}

static void count(struct bloom_layer *layer, int64_t change)
{
    uint64_t items = atomic_load_explicit(&layer->items, memory_order_relaxed);

    atomic_store_explicit(&layer->items, items + (uint64_t)change, memory_order_relaxed);
}

/* ---- adding ---- */

static uint64_t empty_slot(const struct bloom_layer *layer, uint64_t hash, unsigned char fingerprint)
{
    uint64_t mask = cuckoo_mask(layer), at = cuckoo_find(layer, hash & mask, 0);

    return at != UINT64_MAX ? at : cuckoo_find(layer, cuckoo_other(hash, fingerprint) & mask, 0);
}

/* A walk of evictions: the fingerprint in hand, the bucket that it goes to, and the next slot there to be evicted. */
struct walk {
    uint64_t bucket;
    unsigned slot;
    unsigned char hand;
};

static void swap(struct bloom_filter *filter, struct bloom_layer *layer, struct walk *walk)
{
    uint64_t at = walk->bucket * layer->geometry->k + walk->slot;
    unsigned char evicted = cuckoo_get(layer, at);

    cuckoo_put(filter, layer, at, walk->hand);
    walk->hand = evicted;
}

static void walk_back(struct bloom_filter *filter, struct bloom_layer *layer, struct walk *walk, unsigned steps)
{
    unsigned n = layer->geometry->k;
    uint64_t mask = cuckoo_mask(layer);

    for (; steps > 0; steps--) {
        walk->slot = walk->slot ? walk->slot - 1 : n - 1;
        walk->bucket = cuckoo_other(walk->bucket, walk->hand) & mask;
        swap(filter, layer, walk);
    }
}

/* Makes room by evictions, and puts the fingerprint in. False: the layer is as it was. */
static bool evict(struct bloom_filter *filter, struct bloom_layer *layer, uint64_t hash, unsigned char fingerprint,
                  const struct bloom_journal *journal)
{
    unsigned n = layer->geometry->k, most = bloom_filter_params(filter)->iterations;
    uint64_t mask = cuckoo_mask(layer), empty = UINT64_MAX;
    struct walk walk = {hash & mask, 0, fingerprint};
    struct cuckoo *cuckoo = cuckoo_of(filter);
    unsigned steps = 0;

    cuckoo_moves(cuckoo);
    while (empty == UINT64_MAX && steps < most) {
        swap(filter, layer, &walk);
        walk.bucket = cuckoo_other(walk.bucket, walk.hand) & mask;
        walk.slot = (walk.slot + 1) % n;
        empty = cuckoo_find(layer, walk.bucket, 0);
        steps++;
    }
    if (empty != UINT64_MAX) {
        cuckoo_record(filter, CUCKOO_ADD, hash, 0, journal);
        cuckoo_put(filter, layer, empty, walk.hand);
    } else {
        walk_back(filter, layer, &walk, steps);
    }
    cuckoo_moved(cuckoo);
    return empty != UINT64_MAX;
}

/* Puts a fingerprint into an empty slot, the newest layer's first. */
static bool place(struct bloom_filter *filter, uint64_t hash, unsigned char fingerprint,
                  const struct bloom_journal *journal)
{
    struct bloom_layer *layer = bloom_filter_newest(filter);

    for (; layer; layer = (struct bloom_layer *)bloom_layer_older(layer)) {
        uint64_t at = empty_slot(layer, hash, fingerprint);
        if (at == UINT64_MAX)
            continue;
        cuckoo_record(filter, CUCKOO_ADD, hash, 0, journal);
        cuckoo_put(filter, layer, at, fingerprint);
        count(layer, 1);
        return true;
    }
    return false;
}

/* The layer above the newest one, if a compaction has taken it off. */
static struct bloom_layer *spare_above(const struct bloom_filter *filter, const struct bloom_layer *newest)
{
    struct bloom_layer *spare = cuckoo_spare(filter, newest);

    while (spare && bloom_layer_older(spare) != newest)
        spare = (struct bloom_layer *)bloom_layer_older(spare);
    return spare;
}

int cuckoo_grow_locked(struct bloom_filter *filter, const struct bloom_journal *journal, struct errbuf *err)
{
    const struct bloom_journal *asked = journal && journal->ops->grow ? journal : NULL;
    struct bloom_layer *newest = bloom_filter_newest(filter), *spare = spare_above(filter, newest);
    const struct bloom_params *params = bloom_filter_params(filter);
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;
    struct bloom_shape shape;
    uint64_t capacity;
    double rate;

    if (spare) {
        atomic_store_explicit(&filter->newest, spare, memory_order_release);
        return BLOOM_OK;
    }
    lock_take(&pool->lock);
    int rc = bloom_next_capacity(params, newest->geometry, 0, &capacity, &rate, err);
    if (rc == BLOOM_OK)
        rc = cuckoo_layer_shape((UINT64_C(1) << newest->geometry->n2) * params->expansion, newest->geometry->k, &shape,
                                err);
    if (rc == BLOOM_OK)
        rc = bloom_filter_push_layer(filter, &shape, capacity, rate, NULL, asked, err);
    if (rc == BLOOM_OK)
        atomic_fetch_add_explicit(&pool->grown, 1, memory_order_relaxed);
    lock_give(&pool->lock);
    return rc;
}

enum bloom_add cuckoo_add_locked(struct bloom_filter *filter, uint64_t hash, const struct bloom_journal *journal,
                                 struct errbuf *err)
{
    unsigned char fingerprint = cuckoo_fingerprint(hash);

    while (!place(filter, hash, fingerprint, journal)) {
        struct bloom_layer *newest = bloom_filter_newest(filter);
        if (evict(filter, newest, hash, fingerprint, journal)) {
            count(newest, 1);
            return BLOOM_ADDED;
        }
        if (bloom_filter_params(filter)->expansion == 0)
            return BLOOM_FULL;
        if (cuckoo_grow_locked(filter, journal, err) != BLOOM_OK)
            return BLOOM_NO_ROOM;
    }
    return BLOOM_ADDED;
}

enum bloom_add cuckoo_add(struct bloom_filter *filter, uint64_t hash, bool only_new,
                          const struct bloom_journal *journal, struct errbuf *err)
{
    struct bloom_lock *lock = bloom_pool_lock_of(bloom_filter_class(filter)->pool, filter);
    enum bloom_add answer = BLOOM_PRESENT;

    if (only_new && cuckoo_query(filter, hash))
        return BLOOM_PRESENT;
    bloom_lock_take(lock);
    if (!only_new || !cuckoo_query(filter, hash)) /* under the lock nothing moves */
        answer = cuckoo_add_locked(filter, hash, journal, err);
    bloom_lock_give(lock);
    return answer;
}

/* ---- deleting ---- */

bool cuckoo_delete_locked(struct bloom_filter *filter, uint64_t hash, const struct bloom_journal *journal)
{
    struct bloom_layer *layer = bloom_filter_newest(filter);
    struct cuckoo *cuckoo = cuckoo_of(filter);
    unsigned char fingerprint = cuckoo_fingerprint(hash);

    for (; layer; layer = (struct bloom_layer *)bloom_layer_older(layer)) {
        uint64_t mask = cuckoo_mask(layer), at = cuckoo_find(layer, hash & mask, fingerprint);
        if (at == UINT64_MAX)
            at = cuckoo_find(layer, cuckoo_other(hash, fingerprint) & mask, fingerprint);
        if (at == UINT64_MAX)
            continue;
        cuckoo_record(filter, CUCKOO_DELETE, hash, 0, journal);
        cuckoo_moves(cuckoo);
        cuckoo_put(filter, layer, at, 0);
        cuckoo_moved(cuckoo);
        count(layer, -1);
        if (atomic_load_explicit(&cuckoo->deletes, memory_order_relaxed) < CUCKOO_DELETES_MAX)
            atomic_fetch_add_explicit(&cuckoo->deletes, 1, memory_order_relaxed);
        return true;
    }
    return false;
}

bool cuckoo_delete(struct bloom_filter *filter, uint64_t hash, const struct bloom_journal *journal)
{
    struct bloom_lock *lock = bloom_pool_lock_of(bloom_filter_class(filter)->pool, filter);

    bloom_lock_take(lock);
    bool deleted = cuckoo_delete_locked(filter, hash, journal);
    bloom_lock_give(lock);
    return deleted;
}
