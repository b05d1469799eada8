/* bloom_layer_add: the steps of an add to a layer, under the filter's lock: a place for the item, then its bits.
 * Internal to bloomcore. */
#pragma once

#include "bloom_layer.h"
#include "bloom_merge.h"
#include "bloom_run.h"

/* Sets bits of a layer to which no other thread writes. A reader of a word finds its old or its new value. A reader
 * that sees the bits also sees all earlier writes of this thread. */
static inline void bloom_set_bits(_Atomic uint64_t *words, const uint64_t *bit, unsigned n)
{
    atomic_thread_fence(memory_order_release);
    for (unsigned i = 0; i < n; i++) {
        _Atomic uint64_t *word = &words[bit[i] >> 6];
        uint64_t set = atomic_load_explicit(word, memory_order_relaxed) | UINT64_C(1) << (bit[i] & 63);
        atomic_store_explicit(word, set, memory_order_relaxed);
    }
}

/* Sets an item's bits where other threads write to the layer without its lock: a filter that is being merged into.
 * Sequentially consistent, like bloom_lock_give(). */
static inline void bloom_layer_or_bits(struct bloom_layer *layer, const uint64_t bit[BLOOM_PROBE_BITS])
{
    _Atomic uint64_t *words = bloom_layer_words(layer);

    for (unsigned i = 0, k = layer->geometry->k; i < k; i++)
        atomic_fetch_or_explicit(&words[bit[i] >> 6], UINT64_C(1) << (bit[i] & 63), memory_order_seq_cst);
}

/* Sets the bits of n items, in order: of a claim the mark comes first. */
static inline void bloom_layer_or_items(struct bloom_layer *layer, const struct bloom_hash *hash, unsigned n)
{
    uint64_t bit[BLOOM_PROBE_BITS];

    for (unsigned i = 0; i < n; i++) {
        bloom_layer_bits(layer, hash[i], bit);
        bloom_layer_or_bits(layer, bit);
    }
}

/* At the first write to a page the kernel allocates it. That takes a microsecond, or ten where the host of a virtual
 * machine must find the memory. All adds to the filter would wait that long for the lock. It must also precede the test
 * of the bits, which would make the kernel map its page of zeros first. A compare-and-swap of zero by zero changes no
 * word, even if other threads write. */
static inline void bloom_layer_touch(const struct bloom_layer *layer, const uint64_t *bit)
{
    _Atomic uint64_t *words = bloom_layer_words(layer);

    for (unsigned i = 0, n = bloom_geometry_lines(layer->geometry); i < n; i++) {
        uint64_t zero = 0;
        atomic_compare_exchange_strong_explicit(&words[bit[i] >> 6], &zero, 0, memory_order_relaxed,
                                                memory_order_relaxed);
    }
}

/* Raises the count to at least this, where other threads change it without the lock. */
static inline void bloom_layer_raise(struct bloom_layer *layer, uint64_t items)
{
    uint64_t now = atomic_load_explicit(&layer->items, memory_order_relaxed);

    while (now < items && !atomic_compare_exchange_weak_explicit(&layer->items, &now, items, memory_order_relaxed,
                                                                 memory_order_relaxed))
        ;
}

/* Reserves a place for one more item and returns its number, from 1; 0 when the layer has taken its capacity. */
static inline uint64_t bloom_layer_reserve(struct bloom_layer *layer)
{
    uint64_t items = atomic_load_explicit(&layer->items, memory_order_relaxed);

    if (items >= layer->geometry->capacity)
        return 0;
    atomic_store_explicit(&layer->items, items + 1, memory_order_relaxed);
    return items + 1;
}

/* bloom_layer_reserve() of n places, where other threads change the count without the lock: the first one's number. */
static inline uint64_t bloom_layer_reserve_shared(struct bloom_layer *layer, unsigned n)
{
    uint64_t items = atomic_load_explicit(&layer->items, memory_order_relaxed);

    do {
        if (items + n > layer->geometry->capacity)
            return 0;
    } while (!atomic_compare_exchange_weak_explicit(&layer->items, &items, items + n, memory_order_relaxed,
                                                    memory_order_relaxed));
    return items + 1;
}

/* Records an item, or with n = 2 the mark and the item of a claim. `journal` may be NULL. */
static inline void bloom_journal_items(const struct bloom_journal *journal, uint64_t id, const struct bloom_hash *hash,
                                       unsigned n, unsigned layer, uint64_t ordinal)
{
    if (journal && n == 2 && journal->ops->add_both)
        journal->ops->add_both(journal->ctx, id, hash, layer, ordinal);
    else
        for (unsigned i = 0; journal && i < n; i++)
            journal->ops->add(journal->ctx, id, hash[i], layer, ordinal ? ordinal + i : 0);
}

/* Whether the item is in one of the layers below. */
static inline bool bloom_layer_test_below(const struct bloom_layer *layer, struct bloom_hash hash)
{
    return layer->geometry->index != 0 && bloom_layer_test_older(layer, hash);
}

/* The same, if the item was in no layer while `tested` was the newest. Layers below the newest one do not change any
 * more, because a layer is published when the one before is full and all adds to that have set their bits. That does
 * not hold for twins, which note items without the filter's lock: with `tested` NULL all layers are tested. */
static inline bool bloom_layer_test_since(const struct bloom_layer *newest, const struct bloom_layer *tested,
                                          struct bloom_hash hash)
{
    if (!tested)
        return bloom_layer_test_below(newest, hash);
    for (const struct bloom_layer *layer = newest; layer != tested;) {
        layer = bloom_layer_chained(layer)->older;
        if (bloom_layer_test(layer, hash))
            return true;
    }
    VERIFY(!bloom_layer_test_below(tested, hash));
    return false;
}

/* Gives an item a place in the newest layer, under the filter's lock; after BLOOM_ADDED the caller sets its bits.
 * `tested` as for bloom_layer_test_since(). BLOOM_FULL: the layer is full. */
static inline enum bloom_add bloom_layer_place(struct bloom_layer *newest, const struct bloom_layer *tested,
                                               struct bloom_hash hash, const uint64_t bit[BLOOM_PROBE_BITS],
                                               const struct bloom_journal *journal)
{
    uint64_t ordinal;

    if (bloom_layer_test_bits(newest, bit) || bloom_layer_test_since(newest, tested, hash))
        return BLOOM_PRESENT;
    ordinal = bloom_layer_reserve(newest);
    if (ordinal == 0)
        return BLOOM_FULL;
    if (journal)
        journal->ops->add(journal->ctx, journal->id, hash, newest->geometry->index, ordinal);
    return BLOOM_ADDED;
}

/* ---- adds to a filter that is being merged into, and to the filter that will replace it: see bloom_twins.c ---- */

/* The one or two locks of an add to the filter. */
struct bloom_locks {
    struct bloom_lock *first, *second; /* second: NULL, or above first */
};

/* Of the filter and of another one (NULL: none), which may share a lock. */
void bloom_locks_take_both(struct bloom_locks *locks, struct bloom_pool *pool, const struct bloom_filter *filter,
                           const struct bloom_filter *other);

void bloom_twins_lock(struct bloom_locks *locks, struct bloom_pool *pool, const struct bloom_filter *filter,
                      const struct bloom_twin_slot *twin);

/* The pair in the slot. False: the filter is none of the two, or the pair ended, or another one came, meanwhile. */
bool bloom_twins_read(const struct bloom_twin_slot *twin, const struct bloom_filter *filter,
                      struct bloom_twins *twins_out);

static inline void bloom_locks_take(struct bloom_locks *locks, struct bloom_pool *pool,
                                    const struct bloom_filter *filter, const struct bloom_twin_slot *twin)
{
    if (__builtin_expect(twin != NULL, 0)) {
        bloom_twins_lock(locks, pool, filter, twin);
        return;
    }
    *locks = (struct bloom_locks){.first = bloom_pool_lock_of(pool, filter)};
    bloom_lock_take(locks->first);
}

static inline void bloom_locks_give(const struct bloom_locks *locks)
{
    if (locks->second)
        bloom_lock_give(locks->second);
    bloom_lock_give(locks->first);
}

/* Adds an item, or a claim's mark and item, that has just got its place in this filter to the other filter of the pair.
 * Its bits are set here afterwards: a client that finds them here may query there next. Called under the locks of the
 * add; the add's journal (may be NULL) also records the younger filter's part. */
void bloom_twins_pass_on(const struct bloom_twin_slot *twin, const struct bloom_filter *filter,
                         const struct bloom_hash *hash, unsigned n, const struct bloom_journal *journal);
