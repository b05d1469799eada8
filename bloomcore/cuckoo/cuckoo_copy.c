/* Copies. A copy goes through the slots in order, a piece at a time under the filter's lock. Changes of slots that have
 * been copied are made in the copy, too (cuckoo_put()), so the copy is the filter at the end of the last piece. */
#include <string.h>

#include "bloom_pool.h"
#include "cuckoo.h"
#include "cuckoo_slots.h"

#define PIECE ((uint64_t)16 << 10) /* slots for which a writer waits: some microseconds */

/* Copies the next piece. Locked. */
static void copy_piece(const struct bloom_layer *from, struct bloom_layer *to, struct cuckoo_mirror *mirror)
{
    uint64_t bytes = bloom_geometry_nwords(from->geometry) * 8, left = bytes - mirror->at;
    uint64_t n = left < PIECE ? left : PIECE;
    const _Atomic uint64_t *source = bloom_layer_words(from) + mirror->at / 8;
    _Atomic uint64_t *target = bloom_layer_words(to) + mirror->at / 8;

    for (uint64_t i = 0; i < n / 8; i++) {
        uint64_t word = atomic_load_explicit(&source[i], memory_order_relaxed);
        if (word) /* pages without a fingerprint stay unmapped */
            atomic_store_explicit(&target[i], word, memory_order_relaxed);
    }
    mirror->at += n;
    if (mirror->at == bytes) {
        mirror->layer++;
        mirror->at = 0;
    }
}

/* The copy gets the counts, and loses layers that a compaction has taken off meanwhile. Locked. */
static void end(const struct bloom_filter *filter, struct bloom_filter *copy)
{
    const struct cuckoo *cuckoo = cuckoo_of(filter);
    unsigned nlayers = bloom_filter_nlayers(filter);

    if (bloom_filter_nlayers(copy) > nlayers)
        cuckoo_take_off(copy, bloom_filter_layer_at(copy, nlayers - 1));
    for (unsigned i = 0; i < nlayers; i++)
        bloom_filter_set_items(copy, i,
                               atomic_load_explicit(&bloom_filter_layer_at(filter, i)->items, memory_order_relaxed));
    cuckoo_set_counts(copy, atomic_load_explicit(&cuckoo->ordinal, memory_order_relaxed),
                      atomic_load_explicit(&cuckoo->deletes, memory_order_relaxed));
}

static void forget(struct cuckoo *cuckoo, const struct cuckoo_mirror *mirror)
{
    struct cuckoo_mirror **link = &cuckoo->mirrors;

    while (*link != mirror)
        link = &(*link)->next;
    *link = mirror->next;
}

int cuckoo_copy(struct bloom_filter *filter, struct bloom_filter *copy, struct errbuf *err)
{
    struct bloom_lock *lock = bloom_pool_lock_of(bloom_filter_class(filter)->pool, filter);
    struct cuckoo *cuckoo = cuckoo_of(filter);
    struct cuckoo_mirror mirror = {.copy = copy};
    int rc = 0;

    bloom_lock_take(lock);
    mirror.next = cuckoo->mirrors;
    cuckoo->mirrors = &mirror;
    while (rc == 0) {
        unsigned nlayers = bloom_filter_nlayers(filter);
        struct bloom_layer_view view;
        if (mirror.layer >= nlayers) {
            end(filter, copy);
            break;
        }
        if (mirror.layer < bloom_filter_nlayers(copy)) {
            copy_piece(bloom_filter_layer_at(filter, mirror.layer), bloom_filter_layer_at(copy, mirror.layer), &mirror);
        } else {
            bloom_filter_layer(filter, mirror.layer, &view);
            bloom_lock_give(lock);
            rc = bloom_filter_push_anyway(copy, &view.shape, err);
            bloom_lock_take(lock);
            continue;
        }
        bloom_lock_give(lock); /* other threads may change the filter here */
        bloom_lock_take(lock);
    }
    forget(cuckoo, &mirror);
    bloom_lock_give(lock);
    return rc;
}

/* ---- loading ---- */

void cuckoo_set_counts(struct bloom_filter *filter, uint64_t ordinal, uint64_t deletes)
{
    struct cuckoo *cuckoo = cuckoo_of(filter);

    atomic_store_explicit(&cuckoo->ordinal, ordinal, memory_order_relaxed);
    atomic_store_explicit(&cuckoo->deletes, deletes, memory_order_relaxed);
}

void cuckoo_recount(struct bloom_filter *filter)
{
    struct bloom_layer *layer = bloom_filter_newest(filter);

    for (; layer; layer = (struct bloom_layer *)bloom_layer_older(layer)) {
        uint64_t items = 0;
        for (uint64_t at = 0; at < layer->geometry->capacity; at++)
            items += cuckoo_get(layer, at) != 0;
        atomic_store_explicit(&layer->items, items, memory_order_relaxed);
    }
}
