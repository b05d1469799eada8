/* Adds. An add first queries without the lock; if the item is absent, it takes the filter's lock and tests again. Of
 * two threads that add the same item, the second one then finds the first one's bits and answers PRESENT. That holds
 * across growth: under the lock all layers are tested that may have changed since the query. A place in the layer is
 * reserved before bits are set. Under the lock no other thread writes, so a load and a store set a bit. In the cache, a
 * locked instruction per bit and a lock per item took more time than the rest of an add. The exception are filters that
 * are being merged into (bloom_twins.c). */
#include "bloom_filter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_keyring.h"
#include "bloom_layer.h"
#include "bloom_layer_add.h"
#include "bloom_part.h"
#include "bloom_resident.h"
#include "bloom_run.h"
#include "bloom_scaling.h"
#include "bloom_window.h"
#include "cuckoo_part.h"

/* ---- filter ---- */

size_t bloom_filter_bytes(const struct bloom_class *class)
{
    size_t more = 0;

    if (class->geometry.window)
        more = sizeof(struct bloom_part) + sizeof(struct bloom_window);
    else if (bloom_geometry_has_slots(&class->geometry))
        more = sizeof(struct cuckoo);
    return sizeof(struct bloom_filter) + bloom_layer_tail_bytes(&class->geometry) + more;
}

/* Bytes of the words that are behind the layer's header. */
static uint64_t inline_bytes(const struct bloom_geometry *geometry)
{
    return geometry->words_inline ? bloom_geometry_nwords(geometry) * 8 : 0;
}

int bloom_filter_init_uncharged(struct bloom_filter *filter, struct bloom_class *class, struct errbuf *err)
{
    TRY(bloom_layer_init(class->pool, filter, &filter->first, &class->geometry, err));
    atomic_init(&filter->newest, &filter->first);
    if (class->geometry.window)
        bloom_window_init(filter);
    else if (bloom_geometry_has_slots(&class->geometry))
        cuckoo_init(filter);
    bloom_class_retain(class);
    bloom_pool_note_layer(class->pool, &class->geometry, 0);
    atomic_fetch_add_explicit(&class->pool->inline_bytes, inline_bytes(&class->geometry), memory_order_relaxed);
    return 0;
}

int bloom_filter_init(struct bloom_filter *filter, struct bloom_class *class, struct errbuf *err)
{
    const struct bloom_charge charge = {
        .bytes = bloom_geometry_nwords(&class->geometry) * 8,
        .droppable = bloom_geometry_is_droppable(&class->geometry),
    };

    TRY(bloom_pool_charge(class->pool, &charge, err));
    int rc = bloom_filter_init_uncharged(filter, class, err);
    if (rc != 0)
        bloom_pool_discharge(class->pool, charge.bytes);
    return rc;
}

int bloom_filter_init_instead(struct bloom_filter *filter, struct bloom_class *class, struct errbuf *err)
{
    TRY(bloom_filter_init_uncharged(filter, class, err));
    bloom_pool_charge_anyway(class->pool, bloom_geometry_nwords(&class->geometry) * 8);
    return 0;
}

uint64_t bloom_filter_charged(const struct bloom_filter *filter)
{
    return bloom_filter_words_bytes(filter) - (bloom_filter_is_dropped(filter) ? bloom_filter_droppable(filter) : 0);
}

void bloom_filter_deinit(struct bloom_filter *filter)
{
    if (bloom_filter_is_cuckoo(filter))
        cuckoo_unspare(filter);
    bloom_pool_discharge(bloom_filter_class(filter)->pool, bloom_filter_charged(filter));
    bloom_filter_deinit_uncharged(filter);
}

void bloom_filter_deinit_uncharged(struct bloom_filter *filter)
{
    struct bloom_class *class = bloom_filter_class(filter);
    struct bloom_layer *layer = bloom_filter_newest(filter);
    uint64_t droppable = bloom_filter_droppable(filter);
    bloom_pool_resize(class->pool, droppable, 0);
    if (bloom_filter_is_dropped(filter)) {
        atomic_fetch_sub_explicit(&class->pool->evictable.dropped, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&class->pool->evictable.dropped_bytes, droppable, memory_order_relaxed);
    } else {
        atomic_fetch_sub_explicit(&class->pool->evictable.bytes, droppable, memory_order_relaxed);
    }
    while (layer != &filter->first) {
        struct bloom_chained_layer *chained = bloom_layer_chained(layer);

        atomic_fetch_sub_explicit(&class->pool->header_bytes, bloom_chained_bytes(layer->geometry),
                                  memory_order_relaxed);
        bloom_layer_deinit(class->pool, layer);
        layer = chained->older;
        bloom_chained_free(class->pool, chained);
    }
    bloom_layer_deinit(class->pool, layer);
    atomic_fetch_sub_explicit(&class->pool->inline_bytes, inline_bytes(&class->geometry), memory_order_relaxed);
    bloom_class_release(class);
}

/* Places that have been taken, in a window those of forgotten parts, too. */
static uint64_t places(const struct bloom_filter *filter)
{
    uint64_t items = 0;

    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer))
        items += atomic_load_explicit(&layer->items, memory_order_relaxed);
    return items;
}

uint64_t bloom_filter_items(const struct bloom_filter *filter)
{
    struct bloom_window_state state;

    if (!bloom_filter_is_window(filter))
        return places(filter);
    bloom_window_state(filter, &state);
    return state.items;
}

uint64_t bloom_filter_changes(const struct bloom_filter *filter)
{
    uint64_t forgotten = 0;

    if (bloom_filter_is_window(filter)) {
        bloom_window_forget((struct bloom_filter *)filter);
        forgotten = atomic_load_explicit(&bloom_filter_window(filter)->forgotten, memory_order_relaxed);
    }
    if (bloom_filter_is_cuckoo(filter))
        return atomic_load_explicit(&cuckoo_of(filter)->ordinal, memory_order_relaxed);
    return places(filter) + forgotten;
}

/* An add counts itself before it sets its bits, both under the lock. */
uint64_t bloom_filter_changes_settled(const struct bloom_filter *filter)
{
    struct bloom_lock *lock = bloom_pool_lock_of(bloom_filter_class(filter)->pool, filter);

    bloom_lock_take(lock);
    bloom_lock_give(lock);
    return bloom_filter_changes(filter);
}

uint64_t bloom_filter_capacity(const struct bloom_filter *filter)
{
    uint64_t capacity = 0;

    if (bloom_filter_is_window(filter))
        return bloom_filter_params(filter)->capacity;
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer))
        if (__builtin_add_overflow(capacity, layer->geometry->capacity, &capacity))
            return UINT64_MAX;
    return capacity;
}

uint64_t bloom_filter_memory(const struct bloom_filter *filter)
{
    uint64_t bytes = sizeof(*filter) - sizeof(filter->first);

    if (bloom_filter_is_window(filter))
        bytes += sizeof(struct bloom_window) + bloom_filter_nlayers(filter) * sizeof(struct bloom_part);
    else if (bloom_filter_is_cuckoo(filter))
        bytes += sizeof(struct cuckoo);
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        const struct bloom_geometry *geometry = layer->geometry;

        bytes += geometry->index == 0 ? sizeof(struct bloom_layer) : bloom_chained_bytes(geometry);
        bytes += bloom_layer_tail_bytes(geometry);
        if (!geometry->words_inline && bloom_layer_words_or_null(layer))
            bytes += bloom_geometry_nwords(geometry) * 8;
    }
    return bytes;
}

bool bloom_filter_is_blank(const struct bloom_filter *filter)
{
    struct bloom_layer_view view;

    bloom_filter_layer(filter, 0, &view);
    if (bloom_filter_nlayers(filter) > 1 || view.ordinal > 0 || view.turn > 0)
        return false;
    for (uint64_t i = 0; i < view.shape.nwords; i++)
        if (atomic_load_explicit(&view.words[i], memory_order_relaxed))
            return false;
    return true;
}

/* ---- query and add ---- */

void bloom_filter_set_turn(struct bloom_filter *filter, unsigned index, const struct bloom_turn *turn)
{
    if (bloom_filter_is_window(filter)) {
        bloom_window_set_turn(filter, index, turn);
    } else if (bloom_filter_is_cuckoo(filter) && index == 0) {
        atomic_store_explicit(&cuckoo_of(filter)->ordinal, turn->number & CUCKOO_ORDINAL_MAX, memory_order_relaxed);
        atomic_store_explicit(&cuckoo_of(filter)->deletes, (uint64_t)turn->started_us, memory_order_relaxed);
    }
}

struct bloom_hash bloom_filter_hash(const struct bloom_filter *filter, const void *data, size_t len)
{
    return bloom_geometry_hash(filter->first.geometry, data, len);
}

uint64_t bloom_filter_missing_key(const struct bloom_filter *filter)
{
    const struct bloom_geometry *geometry = filter->first.geometry;
    const struct bloom_key *key = geometry->key;

    if (__builtin_expect(key != NULL, 0) && !bloom_geometry_is_seeded(geometry) && !bloom_key_is_here(key))
        return key->secret.id;
    return 0;
}

bool bloom_filter_is_queryable(const struct bloom_filter *filter)
{
    return bloom_filter_missing_key(filter) == 0 && !bloom_filter_is_cuckoo(filter);
}

bool bloom_filter_query(const struct bloom_filter *filter, struct bloom_hash hash)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter);

    if (newest->geometry->window)
        return bloom_window_query(filter, hash);
    bool present = bloom_layer_test(newest, hash) || bloom_layer_test_below(newest, hash);

    bloom_found();
    return present;
}

enum bloom_add bloom_filter_add_absent(struct bloom_filter *filter, struct bloom_hash hash,
                                       const struct bloom_layer *layer, const uint64_t bit[BLOOM_PROBE_BITS],
                                       const struct bloom_journal *journal, struct errbuf *err)
{
    const struct bloom_class *class = bloom_filter_class(filter);
    const struct bloom_twin_slot *twin = bloom_pool_twin(class->pool, filter);
    uint64_t own_bit[BLOOM_PROBE_BITS];

    for (;;) {
        const struct bloom_layer *tested = twin ? NULL : layer;
        struct bloom_layer *newest;
        enum bloom_add answer;
        struct bloom_locks locks;

        bloom_locks_take(&locks, class->pool, filter, twin);
        newest = bloom_filter_newest(filter);
        if (newest != layer) {
            bloom_layer_bits(newest, hash, own_bit);
            bit = own_bit;
            layer = newest;
        }
        answer = bloom_layer_place(newest, tested, hash, bit, journal);
        if (answer == BLOOM_ADDED) {
            if (__builtin_expect(twin != NULL, 0))
                bloom_twins_pass_on(twin, filter, (const struct bloom_hash[1]){hash}, 1, journal);
            bloom_set_bits(bloom_layer_words(newest), bit, newest->geometry->k);
        }
        bloom_locks_give(&locks);

        if (answer != BLOOM_FULL || class->params.expansion == 0)
            return answer;
        if (bloom_filter_grow(filter, newest, journal, err) != 0)
            return BLOOM_NO_ROOM;
    }
}

enum bloom_add bloom_filter_add(struct bloom_filter *filter, struct bloom_hash hash, struct errbuf *err)
{
    return bloom_filter_add_journaled(filter, hash, NULL, err);
}

enum bloom_add bloom_filter_add_journaled(struct bloom_filter *filter, struct bloom_hash hash,
                                          const struct bloom_journal *journal, struct errbuf *err)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter);
    uint64_t bit[BLOOM_PROBE_BITS];

    if (newest->geometry->window)
        return bloom_window_add(filter, (const struct bloom_hash[1]){hash}, 1, journal, err);
    bloom_layer_bits(newest, hash, bit);
    if (bloom_layer_test_bits(newest, bit) || bloom_layer_test_below(newest, hash)) {
        bloom_found();
        return BLOOM_PRESENT;
    }
    return bloom_filter_add_absent(filter, hash, newest, bit, journal, err);
}

/* ---- claims ---- */

/* Whether no layer, or no part of a window by items, will ever have two places. */
static bool lacks_pairs(const struct bloom_filter *filter)
{
    const struct bloom_params *params = bloom_filter_params(filter);

    return (filter->first.geometry->capacity < 2 && params->expansion < 2) ||
           (bloom_window_by_items(params) && bloom_window_part_items(params) < 2);
}

/* One attempt for an absent item. The mark's bits are set before the item's: whoever finds the item finds the mark. A
 * mark without its item is there by chance, or was added as an item: it stays. */
static bool claim(struct bloom_filter *filter, struct bloom_layer *newest, const struct bloom_hash hash[2],
                  const struct bloom_journal *journal, const struct bloom_twin_slot *twin)
{
    uint64_t items = atomic_load_explicit(&newest->items, memory_order_relaxed), bit[BLOOM_PROBE_BITS];
    unsigned first = bloom_filter_query(filter, hash[0]), n = 2 - first;

    if (items + n > newest->geometry->capacity)
        return false;
    atomic_store_explicit(&newest->items, items + n, memory_order_relaxed);
    bloom_journal_items(journal, journal ? journal->id : 0, hash + first, n, newest->geometry->index, items + 1);
    if (twin)
        bloom_twins_pass_on(twin, filter, hash + first, n, journal);
    for (unsigned i = first; i < 2; i++) {
        bloom_layer_bits(newest, hash[i], bit);
        bloom_set_bits(bloom_layer_words(newest), bit, newest->geometry->k);
    }
    return true;
}

enum bloom_add bloom_filter_claim(struct bloom_filter *filter, const struct bloom_hash hash[2],
                                  const struct bloom_journal *journal, struct errbuf *err)
{
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;
    const struct bloom_twin_slot *twin = bloom_pool_twin(pool, filter);

    if (lacks_pairs(filter))
        return errbuf_fail(err, BLOOM_NO_ROOM, "a claim takes two places, and no layer has two");
    if (bloom_filter_is_window(filter))
        return bloom_window_add(filter, hash, 2, journal, err);
    while (!bloom_filter_query(filter, hash[1])) {
        struct bloom_locks locks;

        bloom_locks_take(&locks, pool, filter, twin);
        struct bloom_layer *newest = bloom_filter_newest(filter);
        bool absent = !bloom_filter_query(filter, hash[1]);
        bool claimed = absent && claim(filter, newest, hash, journal, twin);
        bloom_locks_give(&locks);
        if (claimed)
            return BLOOM_ADDED;
        if (absent && bloom_filter_params(filter)->expansion == 0)
            return BLOOM_FULL;
        if (absent && bloom_filter_grow(filter, newest, journal, err) != 0)
            return BLOOM_NO_ROOM;
    }
    return bloom_filter_query(filter, hash[0]) ? BLOOM_OWN : BLOOM_PRESENT;
}

/* ---- filters in memory of their own ---- */

int bloom_filter_create(struct bloom_pool *pool, const struct bloom_params *params, const struct bloom_shape *shapes,
                        unsigned nlayers, struct bloom_filter **filter_out, struct errbuf *err)
{
    struct bloom_class *class = NULL;
    struct bloom_filter *filter = NULL;
    int rc = bloom_class_get(pool, params, shapes, &class, err);

    if (rc == 0) {
        filter = malloc(bloom_filter_bytes(class));
        rc = filter ? bloom_filter_init(filter, class, err) : -ENOMEM;
        bloom_class_release(class);
    }
    if (rc != 0) {
        free(filter);
        return rc;
    }
    for (unsigned i = 1; i < nlayers && rc == 0; i++) {
        rc = bloom_filter_append_layer(filter, &shapes[i], err);
        if (rc != 0)
            errbuf_prefix(err, "layer %u", i);
    }
    if (rc == 0)
        *filter_out = filter;
    else
        bloom_filter_destroy(filter);
    return rc;
}

void bloom_filter_destroy(struct bloom_filter *filter)
{
    if (filter)
        bloom_filter_deinit(filter);
    free(filter);
}

int bloom_alone_init(struct bloom_alone *alone, const struct bloom_shape *shape, const struct bloom_params *params,
                     struct errbuf *err)
{
    const struct bloom_params any = {.capacity = UINT64_MAX, .error_rate = 0.5, .expansion = 1};

    *alone = (struct bloom_alone){NULL, NULL};
    int rc = bloom_pool_create(&alone->pool);
    STEP(rc, bloom_filter_create(alone->pool, params ? params : &any, shape, 1, &alone->filter, err));
    if (rc < 0)
        errbuf_set(err, "%s", strerror(-rc));
    if (rc != 0)
        bloom_alone_deinit(alone);
    else
        bloom_filter_expect_fill(alone->filter);
    return rc;
}

void bloom_alone_deinit(struct bloom_alone *alone)
{
    bloom_filter_destroy(alone->filter);
    bloom_pool_destroy(alone->pool);
    *alone = (struct bloom_alone){NULL, NULL};
}
