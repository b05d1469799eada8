/* Compaction, in steps that are operations of their own: between two of them other threads change the filter, and a
 * replay does the same steps at the same places. A small filter takes one step for each sub-filter, so for one client
 * the bytes are RedisBloom's. A sub-filter that has been emptied is taken off, and kept: queries may still read it, and
 * the next growth takes it again. */

#include "bloom_pool.h"
#include "cuckoo.h"
#include "cuckoo_slots.h"

#define SPARSE     0.10 /* RedisBloom's: deletions as a share of the items */
#define LAYER_BITS CUCKOO_LAYER_BITS

/* Slots that a step may check, and the cost of its record in the same unit. */
#define STEP_LOOKS   (CUCKOO_STEP * 5)
#define RECORD_LOOKS 100

bool cuckoo_is_sparse(const struct bloom_filter *filter)
{
    const struct bloom_layer *layer = bloom_filter_newest(filter);
    uint64_t items = 0, deletes = atomic_load_explicit(&cuckoo_of(filter)->deletes, memory_order_relaxed);

    if (layer->geometry->index == 0)
        return false;
    for (; layer; layer = bloom_layer_older(layer))
        items += atomic_load_explicit(&layer->items, memory_order_relaxed);
    return (double)deletes > SPARSE * (double)items;
}

/* Moves one fingerprint into the first older layer that has a place. */
static bool move_down(struct bloom_filter *filter, struct bloom_layer *from, uint64_t at, unsigned fingerprint)
{
    uint64_t bucket = at / from->geometry->k;

    for (unsigned i = 0; i < from->geometry->index; i++) {
        struct bloom_layer *to = bloom_filter_layer_at(filter, i);
        if (cuckoo_is_full(to))
            continue;
        uint64_t empty = cuckoo_find_either(to, cuckoo_bucket(to->geometry, bucket), fingerprint, 0);
        if (empty == UINT64_MAX)
            continue;
        cuckoo_put(filter, to, empty, fingerprint);
        cuckoo_put(filter, from, at, 0);
        atomic_fetch_add_explicit(&to->items, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&from->items, 1, memory_order_relaxed);
        return true;
    }
    return false;
}

/* A step of a compaction: moves the fingerprints of the slots from `from` to before `to` of a layer. Removes the layer
 * if it is the newest, is empty, and ends at `to`. Locked. */
static void move_slots(struct bloom_filter *filter, unsigned layer, uint64_t from, uint64_t to)
{
    struct bloom_layer *newer = bloom_filter_layer_at(filter, layer);

    for (uint64_t at = from; at < to; at++) {
        unsigned fingerprint = cuckoo_get(newer, at);
        if (fingerprint)
            (void)move_down(filter, newer, at, fingerprint);
    }
    if (to == newer->geometry->capacity && newer == bloom_filter_newest(filter) &&
        atomic_load_explicit(&newer->items, memory_order_relaxed) == 0) {
        VERIFY(cuckoo_count_taken(newer) == 0);
        cuckoo_take_off(filter, bloom_layer_older(newer));
    }
}

/* Whether the compaction continues after a finished layer. */
static bool goes_on(struct bloom_filter *filter, const struct cuckoo_compaction *compaction)
{
    if (compaction->layer >= bloom_filter_nlayers(filter)) /* it has been taken off */
        return true;
    return compaction->all ||
           atomic_load_explicit(&bloom_filter_layer_at(filter, compaction->layer)->items, memory_order_relaxed) == 0;
}

/* The most slots that are checked for one slot of a layer: the slot itself, and two buckets of each older layer. */
static uint64_t looks_for_slot(const struct bloom_layer *layer)
{
    return 1 + UINT64_C(2) * layer->geometry->k * layer->geometry->index;
}

/* A step that checks `most` slots, or the slots for one; returns its cost. Locked. */
static uint64_t step_on(struct bloom_filter *filter, struct cuckoo_compaction *compaction, uint64_t most,
                        const struct bloom_journal *journal)
{
    const struct bloom_layer *layer = bloom_filter_layer_at(filter, compaction->layer);
    uint64_t capacity = layer->geometry->capacity, left = capacity - compaction->at;
    uint64_t n = (most < STEP_LOOKS ? most : STEP_LOOKS) / looks_for_slot(layer);

    n = n < 1 ? 1 : n > CUCKOO_STEP ? CUCKOO_STEP : n;
    n = n < left ? n : left;
    cuckoo_record(filter, CUCKOO_STEP_DONE, compaction->at, n << LAYER_BITS | compaction->layer, journal);
    move_slots(filter, compaction->layer, compaction->at, compaction->at + n);
    compaction->at += n;
    if (compaction->at == capacity) {
        compaction->layer = goes_on(filter, compaction) ? compaction->layer - 1 : 0;
        compaction->at = 0;
    }
    return RECORD_LOOKS + n * looks_for_slot(layer);
}

void cuckoo_compact_begin(struct bloom_filter *filter, bool all)
{
    struct bloom_lock *lock = bloom_pool_lock_of(bloom_filter_class(filter)->pool, filter);
    struct cuckoo *cuckoo = cuckoo_of(filter);

    bloom_lock_take(lock);
    if (!atomic_load_explicit(&cuckoo->compacting, memory_order_relaxed)) {
        cuckoo->compaction = (struct cuckoo_compaction){all, bloom_filter_nlayers(filter) - 1, 0};
        atomic_store_explicit(&cuckoo->compacting, true, memory_order_relaxed);
    }
    cuckoo->compaction.all |= all;
    bloom_lock_give(lock);
}

bool cuckoo_is_compacting(const struct bloom_filter *filter)
{
    return atomic_load_explicit(&cuckoo_of(filter)->compacting, memory_order_relaxed);
}

bool cuckoo_compact(struct bloom_filter *filter, uint64_t looks, const struct bloom_journal *journal)
{
    struct bloom_lock *lock = bloom_pool_lock_of(bloom_filter_class(filter)->pool, filter);
    struct cuckoo *cuckoo = cuckoo_of(filter);
    struct cuckoo_compaction *compaction = &cuckoo->compaction;
    bool changed = false;

    while (looks > 0 && atomic_load_explicit(&cuckoo->compacting, memory_order_relaxed)) {
        bloom_lock_take(lock);
        bool under_way = atomic_load_explicit(&cuckoo->compacting, memory_order_relaxed);
        bool goes = under_way && compaction->layer > 0 && compaction->layer < bloom_filter_nlayers(filter);
        changed |= under_way;
        uint64_t cost = goes ? step_on(filter, compaction, looks, journal) : 0;
        looks -= cost < looks ? cost : looks;
        if (under_way && (!goes || compaction->layer == 0)) { /* its end */
            cuckoo_record(filter, CUCKOO_DELETES, 0, 0, journal);
            atomic_store_explicit(&cuckoo->deletes, 0, memory_order_relaxed);
            atomic_store_explicit(&cuckoo->compacting, false, memory_order_relaxed);
        }
        bloom_lock_give(lock);
    }
    return changed;
}

/* ---- replay ---- */

static bool replay_word(struct bloom_filter *filter, uint64_t slots, uint64_t h2)
{
    unsigned layer = (unsigned)(h2 & ((1u << LAYER_BITS) - 1));
    uint64_t word = h2 >> LAYER_BITS;

    if (layer >= bloom_filter_nlayers(filter))
        return false;
    struct bloom_layer *at = bloom_filter_layer_at(filter, layer);
    if (word >= bloom_geometry_nwords(at->geometry))
        return false;
    cuckoo_set_word(filter, at, word, slots);
    return true;
}

static bool replay_step(struct bloom_filter *filter, uint64_t from, uint64_t h2)
{
    unsigned layer = (unsigned)(h2 & ((1u << LAYER_BITS) - 1));
    uint64_t n = h2 >> LAYER_BITS;

    if (layer == 0 || layer >= bloom_filter_nlayers(filter) || n > CUCKOO_STEP)
        return false;
    uint64_t capacity = bloom_filter_layer_at(filter, layer)->geometry->capacity;
    if (from > capacity || n > capacity - from)
        return false;
    move_slots(filter, layer, from, from + n);
    return true;
}

bool cuckoo_only_adds(const struct bloom_replay_item *item)
{
    enum cuckoo_kind kind = (enum cuckoo_kind)(item->hash.h2 & 0xff);

    return kind == CUCKOO_ADD || kind == CUCKOO_GROW;
}

bool cuckoo_replay(struct bloom_filter *filter, const struct bloom_replay_item *item, uint64_t ordinal)
{
    struct cuckoo *cuckoo = cuckoo_of(filter);
    uint64_t h1 = item->hash.h1, h2 = item->hash.h2 >> 8;
    bool done = true;

    VERIFY(ordinal > atomic_load_explicit(&cuckoo->ordinal, memory_order_relaxed));
    switch (item->hash.h2 & 0xff) {
    case CUCKOO_ADD:
        done = cuckoo_add_locked(filter, h1, NULL, NULL) == BLOOM_ADDED;
        break;
    case CUCKOO_DELETE:
        (void)cuckoo_delete_locked(filter, h1, NULL);
        break;
    case CUCKOO_STEP_DONE:
        done = replay_step(filter, h1, h2);
        break;
    case CUCKOO_DELETES:
        atomic_store_explicit(&cuckoo->deletes, h1, memory_order_relaxed);
        break;
    case CUCKOO_GROW:
        done = cuckoo_grow_locked(filter, NULL, NULL) == BLOOM_OK;
        break;
    case CUCKOO_SLOTS:
        done = replay_word(filter, h1, h2);
        break;
    default:
        done = false;
    }
    atomic_store_explicit(&cuckoo->ordinal, ordinal, memory_order_relaxed);
    return done;
}
