/* Twins: a younger filter that will replace an older one while adds continue.
 *
 * An add to the older filter holds its lock (against adds that do not know of the twins yet) and the younger one's
 * lock. An add to the younger filter holds the younger one's lock only, as always. Both set the bits in both filters
 * under the younger one's lock. Hence of two adds of one item, one on either side, the later one finds the bits in its
 * own filter and answers PRESENT.
 *
 * An add sets and records its bits in the other filter before those in its own. So a client that finds an item in the
 * older filter also finds it in the younger one, which may be published the next moment.
 *
 * Writes to the other filter are atomic operations: until the younger one is published, the merging thread ORs bits
 * into it and raises its counts without its lock. Afterwards all writers to either filter hold the younger one's lock;
 * adds that did not know of the twins have left the older one long before.
 *
 * The younger filter starts with the counts of the older one, so adds to both fill the same layers. No layer of the
 * younger one takes more than its capacity while the bits of the older one are still on their way.
 *
 * The younger filter may have an item from another source of the union that the older one lacks. An add on the older
 * side finds the item new: that add came before the merge. */
#include "bloom_chain.h"
#include "bloom_layer.h"
#include "bloom_layer_add.h"
#include "bloom_part.h"
#include "check.h"
#include "lock.h"

const struct bloom_twin_slot *bloom_pool_find_twin(const struct bloom_pool *pool, const struct bloom_filter *filter)
{
    for (unsigned i = 0; i < BLOOM_MAX_TWINS; i++) {
        const struct bloom_twin_slot *slot = &pool->twins[i];

        if (atomic_load_explicit(&slot->older, memory_order_acquire) == filter ||
            atomic_load_explicit(&slot->younger, memory_order_acquire) == filter)
            return slot;
    }
    return NULL;
}

/* The layers that both have count at least as many in the younger one as in the older one. */
static void raise_counts(struct bloom_filter *younger, const struct bloom_filter *older)
{
    if (bloom_filter_is_window(younger)) {
        bloom_window_raise_counts(younger, older);
        return;
    }
    unsigned nyounger = bloom_filter_nlayers(younger), nolder = bloom_filter_nlayers(older);

    for (unsigned i = 0; i < nyounger && i < nolder; i++) {
        struct bloom_layer *layer = bloom_filter_layer_at(younger, i);
        uint64_t items = atomic_load_explicit(&bloom_filter_layer_at(older, i)->items, memory_order_relaxed);

        bloom_layer_raise(layer, items < layer->geometry->capacity ? items : layer->geometry->capacity);
    }
}

bool bloom_twins_begin(struct bloom_pool *pool, const struct bloom_twins *twins)
{
    struct bloom_twin_slot *slot = NULL;

    lock_take(&pool->lock);
    if (!bloom_pool_find_twin(pool, twins->older) && !bloom_pool_find_twin(pool, twins->younger)) {
        for (unsigned i = 0; i < BLOOM_MAX_TWINS && !slot; i++)
            if (!atomic_load_explicit(&pool->twins[i].older, memory_order_relaxed))
                slot = &pool->twins[i];
    }
    if (slot) {
        raise_counts(twins->younger, twins->older);
        atomic_thread_fence(
            memory_order_release); /* a thread that sees the later fields also sees that the slot was free: pass_on() */
        atomic_store_explicit(&slot->added, twins->added, memory_order_relaxed);
        atomic_store_explicit(&slot->ctx, twins->ctx, memory_order_relaxed);
        atomic_store_explicit(&slot->younger_id, twins->younger_id, memory_order_relaxed);
        atomic_store_explicit(&slot->younger, twins->younger, memory_order_release);
        atomic_store_explicit(&slot->older, twins->older, memory_order_release);
        atomic_fetch_add_explicit(&pool->ntwins, 1, memory_order_seq_cst);
    }
    lock_give(&pool->lock);
    return slot != NULL;
}

void bloom_twins_end(struct bloom_pool *pool, struct bloom_filter *older)
{
    lock_take(&pool->lock);
    for (unsigned i = 0; i < BLOOM_MAX_TWINS; i++) {
        struct bloom_twin_slot *slot = &pool->twins[i];

        if (atomic_load_explicit(&slot->older, memory_order_relaxed) != older)
            continue;
        atomic_store_explicit(&slot->younger, NULL, memory_order_release);
        atomic_store_explicit(&slot->older, NULL, memory_order_release);
        atomic_fetch_sub_explicit(&pool->ntwins, 1, memory_order_seq_cst);
    }
    lock_give(&pool->lock);
}

void bloom_locks_take_both(struct bloom_locks *locks, struct bloom_pool *pool, const struct bloom_filter *filter,
                           const struct bloom_filter *with)
{
    struct bloom_lock *own = bloom_pool_lock_of(pool, filter);
    struct bloom_lock *other = with ? bloom_pool_lock_of(pool, with) : own;

    /* In the order of their addresses, which excludes a deadlock. */
    locks->first = own < other ? own : other;
    locks->second = own == other ? NULL : own < other ? other : own;
    bloom_lock_take(locks->first);
    if (locks->second)
        bloom_lock_take(locks->second);
}

void bloom_twins_lock(struct bloom_locks *locks, struct bloom_pool *pool, const struct bloom_filter *filter,
                      const struct bloom_twin_slot *twin)
{
    bloom_locks_take_both(locks, pool, filter, atomic_load_explicit(&twin->younger, memory_order_acquire));
}

void bloom_twins_level(struct bloom_pool *pool, const struct bloom_filter *older)
{
    const struct bloom_twin_slot *twin = bloom_pool_find_twin(pool, older);
    struct bloom_locks locks;

    CHECK(twin && atomic_load_explicit(&twin->older, memory_order_relaxed) == older);
    bloom_twins_lock(&locks, pool, older, twin);
    raise_counts(atomic_load_explicit(&twin->younger, memory_order_relaxed), older);
    bloom_locks_give(&locks);
}

/* Adds those of one or two items that it lacks to the younger one, under its lock. */
static void add_to_younger(struct bloom_filter *younger, const struct bloom_hash *hash, unsigned n,
                           const struct bloom_journal *journal)
{
    struct bloom_layer *newest = bloom_filter_newest(younger);
    struct bloom_hash lacking[2];
    unsigned nlacking = 0;
    uint64_t ordinal;

    for (unsigned i = 0; i < n; i++)
        if (!bloom_layer_test(newest, hash[i]) && !bloom_layer_test_below(newest, hash[i]))
            lacking[nlacking++] = hash[i];
    if (nlacking == 0)
        return;
    for (;;) {
        newest = bloom_filter_newest(younger);
        ordinal = bloom_layer_reserve_shared(newest, nlacking);
        if (ordinal)
            break;
        /* The count is at its limit; but the older filter has counted the item, which will be acknowledged. */
        if (bloom_filter_params(younger)->expansion == 0 || bloom_filter_grow(younger, newest, journal, NULL) != 0)
            break;
    }
    bloom_journal_items(journal, journal ? journal->id : 0, lacking, nlacking, newest->geometry->index, ordinal);
    bloom_layer_or_items(newest, lacking, nlacking);
}

/* The pair may end while this thread reads it, and another one may take its slot, perhaps of the same older filter. The
 * merge of that pair waits until this add is done, and then finds it in the older one. */
bool bloom_twins_read(const struct bloom_twin_slot *twin, const struct bloom_filter *filter,
                      struct bloom_twins *twins_out)
{
    twins_out->older = atomic_load_explicit(&twin->older, memory_order_acquire);
    twins_out->younger = atomic_load_explicit(&twin->younger, memory_order_acquire);
    twins_out->added = atomic_load_explicit(&twin->added, memory_order_relaxed);
    twins_out->ctx = atomic_load_explicit(&twin->ctx, memory_order_relaxed);
    twins_out->younger_id = atomic_load_explicit(&twin->younger_id, memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&twin->older, memory_order_relaxed) == twins_out->older &&
           atomic_load_explicit(&twin->younger, memory_order_relaxed) == twins_out->younger && twins_out->older &&
           twins_out->younger && (filter == twins_out->older || filter == twins_out->younger);
}

void bloom_twins_pass_on(const struct bloom_twin_slot *twin, const struct bloom_filter *filter,
                         const struct bloom_hash *hash, unsigned n, const struct bloom_journal *journal)
{
    struct bloom_twins twins;

    if (!bloom_twins_read(twin, filter, &twins))
        return;
    if (filter == twins.older) {
        struct bloom_journal own;

        if (journal) {
            own = *journal;
            own.id = twins.younger_id;
        }
        add_to_younger(twins.younger, hash, n, journal ? &own : NULL);
        if (twins.added)
            twins.added(twins.ctx);
    } else {
        /* a note, not an add: the older filter is about to go */
        bloom_layer_or_items(bloom_filter_newest(twins.older), hash, n);
    }
}
