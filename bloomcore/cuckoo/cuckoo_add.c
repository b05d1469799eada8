/* Changes. An add searches for an empty slot from the newest layer to the oldest. Then it evicts fingerprints in the
 * newest layer, each to its other bucket, in a deterministic order. If that finds no empty slot, the same walk goes
 * backwards, which needs no memory: the fingerprint in hand and the bucket give the previous bucket. */
#include "bloom_pool.h"
#include "bloom_scaling.h"
#include "check.h"
#include "cuckoo.h"
#include "cuckoo_slots.h"
#include "lock.h"

#define ORDINAL_MASK ((UINT64_C(1) << CUCKOO_ORDINAL_BITS) - 1)

/* ---- slots ---- */

static void keep_old(const struct bloom_filter *filter, const struct bloom_layer *layer, uint64_t word)
{
    if (__builtin_expect(cuckoo_of(filter)->stills != NULL, 0))
        cuckoo_keep_old(filter, layer, word);
}

void cuckoo_put_word(struct bloom_filter *filter, struct bloom_layer *layer, uint64_t word, uint64_t slots)
{
    keep_old(filter, layer, word);
    atomic_store_explicit(&bloom_layer_words(layer)[word], slots, memory_order_release);
}

/* Writes `bits` bits from `bit` on. If they are in two words, queries wait for both. */
static void put_bits(struct bloom_filter *filter, struct bloom_layer *layer, uint64_t bit, unsigned bits,
                     uint64_t value)
{
    uint64_t word = bit / 64, mask = (UINT64_C(1) << bits) - 1;
    unsigned shift = (unsigned)(bit % 64);
    struct cuckoo *cuckoo = cuckoo_of(filter);
    bool two = shift + bits > 64, moving = atomic_load_explicit(&cuckoo->version, memory_order_relaxed) & 1;
    uint64_t low = cuckoo_get_bits(layer, word * 64, 64);

    if (two && !moving)
        cuckoo_moves(cuckoo);
    cuckoo_put_word(filter, layer, word, (low & ~(mask << shift)) | value << shift);
    if (!two)
        return;
    uint64_t high = cuckoo_get_bits(layer, (word + 1) * 64, 64);
    cuckoo_put_word(filter, layer, word + 1, (high & ~(mask >> (64 - shift))) | value >> (64 - shift));
    if (!moving)
        cuckoo_moved(cuckoo);
}

void cuckoo_put(struct bloom_filter *filter, struct bloom_layer *layer, uint64_t at, unsigned value)
{
    unsigned bits = cuckoo_slot_bits(layer->geometry);

    if (bits != 8) {
        put_bits(filter, layer, at * bits, bits, value);
        return;
    }
    keep_old(filter, layer, at / 8);
    __atomic_store_n(cuckoo_bytes(layer) + at, (unsigned char)value, __ATOMIC_RELEASE);
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

    CHECK(items + (uint64_t)change <= layer->geometry->capacity); /* no more than slots, and no less than none */
    atomic_store_explicit(&layer->items, items + (uint64_t)change, memory_order_relaxed);
}

/* ---- adding ---- */

/* A walk of evictions: the fingerprint in hand, and the bucket that it goes to. */
struct walk {
    uint64_t hash; /* of the item that is added */
    uint64_t bucket;
    unsigned hand;
};

/* The slot that is evicted in a step, from 0 on: one after the other; in our layout any slot, chosen by the hash of the
 * item. */
static unsigned slot_of(const struct bloom_geometry *geometry, uint64_t hash, unsigned step)
{
    if (!cuckoo_keeps_rate(geometry))
        return step % geometry->k;
    return (unsigned)((hash + step * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9) >> 62);
}

static void swap(struct bloom_filter *filter, struct bloom_layer *layer, struct walk *walk, unsigned step)
{
    uint64_t at = walk->bucket * layer->geometry->k + slot_of(layer->geometry, walk->hash, step);
    unsigned evicted = cuckoo_get(layer, at);

    cuckoo_put(filter, layer, at, walk->hand);
    walk->hand = evicted;
}

/* Makes room by evictions, and puts the fingerprint in. False: the layer is as it was. */
static bool evict(struct bloom_filter *filter, struct bloom_layer *layer, uint64_t hash, unsigned fingerprint,
                  const struct bloom_journal *journal)
{
    struct walk walk = {hash, cuckoo_first(layer->geometry, hash), fingerprint};
    unsigned steps = 0, most = bloom_filter_params(filter)->iterations;
    struct cuckoo *cuckoo = cuckoo_of(filter);
    uint64_t empty = UINT64_MAX;

    cuckoo_moves(cuckoo);
    while (empty == UINT64_MAX && steps < most) {
        swap(filter, layer, &walk, steps);
        walk.bucket = cuckoo_other(layer->geometry, walk.bucket, walk.hand);
        empty = cuckoo_find(layer, walk.bucket, 0);
        steps++;
    }
    if (empty != UINT64_MAX) {
        cuckoo_record(filter, CUCKOO_ADD, hash, 0, journal);
        cuckoo_put(filter, layer, empty, walk.hand);
    }
    for (; empty == UINT64_MAX && steps > 0; steps--) { /* back */
        walk.bucket = cuckoo_other(layer->geometry, walk.bucket, walk.hand);
        swap(filter, layer, &walk, steps - 1);
    }
    CHECK(empty != UINT64_MAX || walk.hand == fingerprint); /* every other one is back in its slot */
    cuckoo_moved(cuckoo);
    return empty != UINT64_MAX;
}

/* Puts a fingerprint into an empty slot, the newest layer's first. */
static bool place(struct bloom_filter *filter, uint64_t hash, unsigned fingerprint, const struct bloom_journal *journal)
{
    struct bloom_layer *layer = bloom_filter_newest(filter);

    for (; layer; layer = bloom_layer_older(layer)) {
        uint64_t at = cuckoo_is_full(layer)
                          ? UINT64_MAX
                          : cuckoo_find_either(layer, cuckoo_first(layer->geometry, hash), fingerprint, 0);
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
        spare = bloom_layer_older(spare);
    return spare;
}

/* Whether the filter's parameters allow a further layer. */
static bool may_grow(const struct bloom_filter *filter)
{
    struct bloom_shape shape;

    bloom_geometry_shape(filter->first.geometry, &shape);
    return bloom_filter_nlayers(filter) < cuckoo_most_layers(bloom_filter_params(filter), &shape);
}

int cuckoo_grow_locked(struct bloom_filter *filter, const struct bloom_journal *journal, struct errbuf *err)
{
    const struct bloom_journal *asked = journal && journal->ops->grow ? journal : NULL;
    struct bloom_layer *newest = bloom_filter_newest(filter), *spare = spare_above(filter, newest);
    const struct bloom_params *params = bloom_filter_params(filter);
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;
    struct bloom_shape shape, before;
    uint64_t capacity;
    double rate;

    if (spare) {
        atomic_store_explicit(&filter->newest, spare, memory_order_release);
        return BLOOM_OK;
    }
    bloom_geometry_shape(newest->geometry, &before);
    lock_take(&pool->lock);
    int rc = bloom_next_capacity(params, newest->geometry, 0, &capacity, &rate, err);
    if (rc == BLOOM_OK)
        rc = cuckoo_next_shape(&before, params->expansion, &shape, err);
    if (rc == BLOOM_OK)
        rc = bloom_filter_push_layer(filter, &shape, capacity, rate, NULL, asked, err);
    if (rc == BLOOM_OK)
        atomic_fetch_add_explicit(&pool->growths, 1, memory_order_relaxed);
    lock_give(&pool->lock);
    return rc;
}

enum bloom_add cuckoo_add_locked(struct bloom_filter *filter, uint64_t hash, const struct bloom_journal *journal,
                                 struct errbuf *err)
{
    unsigned fingerprint = cuckoo_fingerprint(filter->first.geometry, hash);

    while (!place(filter, hash, fingerprint, journal)) {
        struct bloom_layer *newest = bloom_filter_newest(filter);
        if (!cuckoo_is_full(newest) && evict(filter, newest, hash, fingerprint, journal)) {
            count(newest, 1);
            return BLOOM_ADDED;
        }
        if (bloom_filter_params(filter)->expansion == 0 || (cuckoo_keeps_rate(newest->geometry) && !may_grow(filter)))
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
    unsigned fingerprint = cuckoo_fingerprint(filter->first.geometry, hash);

    for (; layer; layer = bloom_layer_older(layer)) {
        uint64_t at = cuckoo_find_either(layer, cuckoo_first(layer->geometry, hash), fingerprint, fingerprint);
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
