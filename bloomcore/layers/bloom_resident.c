#include "bloom_resident.h"

#include <errno.h>

#include "bloom_layer.h"
#include "bloom_run.h"
#include "bloom_words.h"
#include "check.h"
#include "cuckoo_part.h"

uint64_t bloom_filter_droppable(const struct bloom_filter *filter)
{
    uint64_t bytes = 0;

    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer))
        if (bloom_geometry_is_droppable(layer->geometry))
            bytes += bloom_geometry_nwords(layer->geometry) * 8;
    return bytes;
}

void bloom_filter_hold(const struct bloom_filter *filter, bool on)
{
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;
    uint64_t bytes = bloom_filter_droppable(filter);

    atomic_fetch_add_explicit(&pool->evictable.held, on ? bytes : -bytes, memory_order_relaxed);
}

bool bloom_filter_is_dropped(const struct bloom_filter *filter)
{
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer))
        if (bloom_geometry_is_droppable(layer->geometry))
            return !bloom_layer_words_or_null(layer);
    return false;
}

/* Takes the words away from the layers above `last` (NULL: from all). */
static void drop_above(struct bloom_filter *filter, const struct bloom_layer *last)
{
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;

    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer != last;
         layer = bloom_layer_older(layer)) {
        if (layer->geometry->words_inline)
            continue;
        _Atomic uint64_t *words = bloom_layer_words(layer);
        bloom_layer_set_words((struct bloom_layer *)layer, NULL);
        bloom_words_free(&pool->maps, words, bloom_geometry_nwords(layer->geometry));
    }
    bloom_filter_follow_words(filter);
}

/* Words that have been charged are in memory, or have been dropped again. Limits see no words twice: their moves come
 * directly after the charge, or after the discharge. */
static void note_moved(struct bloom_pool *pool, uint64_t bytes, bool in_memory)
{
    if (!in_memory)
        bloom_pool_discharge(pool, bytes);
    atomic_fetch_add_explicit(&pool->evictable.bytes, in_memory ? bytes : -bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&pool->evictable.dropped_bytes, in_memory ? bytes : -bytes, memory_order_relaxed);
}

void bloom_filter_drop(struct bloom_filter *filter)
{
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;
    uint64_t bytes = bloom_filter_droppable(filter);

    CHECK(bytes > 0 && !bloom_filter_is_dropped(filter) && !bloom_pool_twin(pool, filter));
    drop_above(filter, NULL);
    atomic_fetch_add_explicit(&pool->evictable.dropped, 1, memory_order_relaxed);
    note_moved(pool, bytes, false);
}

int bloom_filter_undrop_begin(struct bloom_filter *filter, struct errbuf *err)
{
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;
    uint64_t bytes = bloom_filter_droppable(filter);
    int rc = bloom_pool_charge_again(pool, bytes, err);

    CHECK(bloom_filter_is_dropped(filter));
    if (rc != 0)
        return rc;
    note_moved(pool, bytes, true);
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        if (layer->geometry->words_inline)
            continue;
        uint64_t nwords = bloom_geometry_nwords(layer->geometry);
        _Atomic uint64_t *words = bloom_words_alloc(&pool->maps, filter, layer, nwords);
        if (!words) {
            errbuf_set(err, "cannot allocate %llu bytes", (unsigned long long)(nwords * 8));
            drop_above(filter, layer);
            note_moved(pool, bytes, false);
            return -ENOMEM;
        }
        bloom_layer_set_words((struct bloom_layer *)layer, words);
    }
    bloom_filter_follow_words(filter);
    return 0;
}

void bloom_filter_undrop_end(struct bloom_filter *filter, bool filled)
{
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;

    if (!filled) {
        drop_above(filter, NULL);
        note_moved(pool, bloom_filter_droppable(filter), false);
        return;
    }
    atomic_fetch_sub_explicit(&pool->evictable.dropped, 1,
                              memory_order_release); /* a thread that sees it sees the bits, too */
}

uint64_t bloom_pool_dropped(const struct bloom_pool *pool)
{
    return atomic_load_explicit(&pool->evictable.dropped, memory_order_acquire);
}

uint64_t bloom_pool_dropped_bytes(const struct bloom_pool *pool)
{
    return atomic_load_explicit(&pool->evictable.dropped_bytes, memory_order_relaxed);
}
