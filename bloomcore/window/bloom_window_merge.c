#include "bloom_window.h"

#include <string.h>

#include "bloom_chain.h"
#include "bloom_layer_add.h"
#include "bloom_window_ring.h"
#include "check.h"
#include "lock.h"

/* ---- equal windows ---- */

/* Compares the layers of `b` with the layers of `a` of the same levels. */
int bloom_window_same(const struct bloom_filter *a, const struct bloom_filter *b, struct errbuf *err)
{
    const struct bloom_geometry *of_level[BLOOM_MAX_LAYERS] = {NULL};

    if (bloom_params_equal(bloom_filter_params(a), bloom_filter_params(b), err) != BLOOM_OK)
        return BLOOM_REFUSED;
    for (const struct bloom_layer *layer = bloom_filter_newest(a); layer; layer = bloom_layer_older(layer))
        of_level[layer->geometry->level] = layer->geometry;
    for (const struct bloom_layer *layer = bloom_filter_newest(b); layer; layer = bloom_layer_older(layer)) {
        unsigned level = layer->geometry->level;
        struct bloom_shape in_a, in_b;

        if (!of_level[level])
            continue;
        bloom_geometry_shape(of_level[level], &in_a);
        bloom_geometry_shape(layer->geometry, &in_b);
        if (bloom_shapes_equal(&in_a, &in_b, level, err) != BLOOM_OK)
            return BLOOM_REFUSED;
    }
    return BLOOM_OK;
}

/* ---- the ring of a union ---- */

static int64_t span_of(const struct bloom_params *params, int64_t started_us)
{
    return started_us / bloom_window_ends(params, 0);
}

/* A clock that has jumped gives more spans than possible: parts that do not fit go with the younger ones. */
static void take_part(struct bloom_ring *ring, const struct bloom_params *params, int64_t started_us)
{
    unsigned i = 0;

    while (i < ring->nparts && span_of(params, ring->started_us[i]) < span_of(params, started_us))
        i++;
    bool here = i < ring->nparts && span_of(params, ring->started_us[i]) == span_of(params, started_us);

    if (!here && ring->nparts < BLOOM_RING_PARTS) {
        memmove(&ring->started_us[i + 1], &ring->started_us[i], (ring->nparts - i) * sizeof(ring->started_us[0]));
        ring->started_us[i] = started_us;
        ring->nparts++;
    } else if (!here && i == ring->nparts) {
        ring->started_us[i - 1] = started_us;
    } else if (ring->started_us[i] < started_us) {
        ring->started_us[i] = started_us;
    }
}

uint64_t bloom_ring_take(struct bloom_ring *ring, struct bloom_filter *filter)
{
    const struct bloom_params *params = bloom_filter_params(filter);

    bloom_window_forget(filter);
    uint64_t turn = atomic_load_explicit(&bloom_filter_window(filter)->turn, memory_order_acquire);
    if (turn > ring->turn)
        ring->turn = turn;
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        if (bloom_part_is_alive(bloom_layer_part(layer)))
            take_part(ring, params, bloom_part_started(bloom_layer_part(layer)));
    }
    return turn;
}

int bloom_ring_make(const struct bloom_ring *ring, struct bloom_filter *filter, struct errbuf *err)
{
    struct lock *lock = &bloom_filter_class(filter)->pool->turns;
    uint64_t newest = ring->turn > ring->nparts ? ring->turn : ring->nparts;
    int rc = 0;

    lock_take(lock);
    for (unsigned i = 0; i < ring->nparts && rc == 0; i++) {
        const struct bloom_turn turn = {.number = newest - (ring->nparts - 1 - i), .started_us = ring->started_us[i]};

        if (i > 0)
            rc = bloom_window_append(filter, 0, &turn, NULL, err);
        if (rc == 0)
            bloom_window_set_turn(filter, i, &turn);
    }
    lock_give(lock);
    return rc;
}

/* ---- bits ---- */

/* The oldest part that began no earlier; false: there is none. */
static bool part_for(const struct bloom_filter *dst, int64_t started_us, struct bloom_turn *turn_out)
{
    *turn_out = (struct bloom_turn){0};
    for (const struct bloom_layer *layer = bloom_filter_newest(dst); layer; layer = bloom_layer_older(layer)) {
        const struct bloom_part *part = bloom_layer_part(layer);
        int64_t started = bloom_part_started(part);

        if (bloom_part_turn(part) && started >= started_us && (!turn_out->number || started < turn_out->started_us))
            *turn_out = (struct bloom_turn){.number = bloom_part_turn(part), .started_us = started};
    }
    return turn_out->number != 0;
}

static struct bloom_layer *layer_of(const struct bloom_filter *filter, uint64_t turn, unsigned level)
{
    for (struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        const struct bloom_part *part = bloom_layer_part(layer);

        if (bloom_part_turn(part) == turn && layer->geometry->level == level && bloom_part_is_alive(part))
            return layer;
    }
    return NULL;
}

/* Begins a part now, unless another thread does. */
static int begin_part(struct bloom_filter *dst, struct errbuf *err)
{
    struct bloom_lock *lock = bloom_pool_lock_of(bloom_filter_class(dst)->pool, dst);
    struct bloom_seen seen;

    bloom_lock_take(lock);
    bloom_window_look(dst, 1, &seen);
    bloom_lock_give(lock);
    return bloom_window_make_place(&seen, NULL, err);
}

/* Under pool->turns. */
static int grow_part(struct bloom_filter *dst, const struct bloom_turn *turn, unsigned level, struct errbuf *err)
{
    struct bloom_lock *lock = bloom_pool_lock_of(bloom_filter_class(dst)->pool, dst);
    TRY(bloom_window_append(dst, level, turn, NULL, err));
    bloom_lock_take(lock);
    bloom_part_set(bloom_layer_part(bloom_filter_newest(dst)), turn);
    atomic_store_explicit(&bloom_filter_window(dst)->due_us, BLOOM_NOT_SETTLED, memory_order_relaxed);
    bloom_lock_give(lock);
    return 0;
}

/* The layer of `dst` for the bits of a layer; NULL: these have expired. A part that is younger than all of the union
 * has begun after its ring was made: the union gets one, too. */
static int layer_for(struct bloom_filter *dst, const struct bloom_layer_view *from, struct bloom_layer **layer_out,
                     struct errbuf *err)
{
    struct lock *lock = &bloom_filter_class(dst)->pool->turns;
    unsigned level = from->shape.level;
    struct bloom_turn turn;
    int rc = 0;

    if (!part_for(dst, from->started_us, &turn)) {
        rc = begin_part(dst, err);
        if (rc != 0)
            return rc;
        if (!part_for(dst, from->started_us, &turn)) /* the clock has gone back after it */
            part_for(dst, bloom_window_latest_us(dst), &turn);
    }
    CHECK(turn.number); /* without a part for them the bits would be left out */
    lock_take(lock);
    *layer_out = layer_of(dst, turn.number, level);
    if (!*layer_out && layer_of(dst, turn.number, 0)) {
        rc = grow_part(dst, &turn, level, err);
        *layer_out = layer_of(dst, turn.number, level);
    }
    lock_give(lock);
    return rc;
}

static int or_layer(struct bloom_filter *dst, const struct bloom_filter *src, const struct bloom_layer_view *from,
                    unsigned index, struct bloom_union *counts, struct bloom_layer_map *places_out, struct errbuf *err)
{
    struct bloom_layer *to = NULL;
    struct bloom_layer_view after;
    struct bloom_shape shape;
    int rc = layer_for(dst, from, &to, err);

    if (rc != 0 || !to)
        return rc;
    bloom_geometry_shape(to->geometry, &shape);
    if (bloom_shapes_equal(&shape, &from->shape, from->shape.level, err) != BLOOM_OK)
        return BLOOM_REFUSED;
    bloom_or_words(bloom_layer_words(to), from->words, shape.nwords);
    if (places_out)
        places_out->to[index] = (uint16_t)(to->geometry->index + 1);
    if (!counts)
        return 0;
    atomic_thread_fence(memory_order_acquire); /* an add takes its place, then sets its bits */
    bloom_filter_layer(src, index, &after);
    uint64_t items = after.turn == from->turn && after.items > from->items ? after.items : from->items;
    unsigned i = to->geometry->index;

    counts->sum[i] += items;
    counts->most[i] = items > counts->most[i] ? items : counts->most[i];
    return 0;
}

int bloom_window_or(struct bloom_filter *dst, struct bloom_filter *src, uint64_t turn, struct bloom_union *counts,
                    struct bloom_layer_map *places_out, struct errbuf *err)
{
    unsigned nlayers = bloom_filter_nlayers(src);

    if (places_out)
        *places_out = (struct bloom_layer_map){{0}};
    bloom_window_forget(src);
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view from;
        int rc = 0;

        bloom_filter_layer(src, i, &from);
        if (!from.forgotten && from.turn <= turn)
            rc = or_layer(dst, src, &from, i, counts, places_out, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int bloom_window_or_layer(struct bloom_filter *dst, unsigned to, const struct bloom_filter *src, unsigned from,
                          struct errbuf *err)
{
    struct bloom_layer_view source, target;

    if (to >= bloom_filter_nlayers(dst) || from >= bloom_filter_nlayers(src))
        return errbuf_fail(err, BLOOM_REFUSED, "there is no layer %u, or no layer %u", to, from);
    bloom_filter_layer(dst, to, &target);
    bloom_filter_layer(src, from, &source);
    if (bloom_shapes_equal(&target.shape, &source.shape, from, err) != BLOOM_OK)
        return BLOOM_REFUSED;
    bloom_or_words(target.words, source.words, source.shape.nwords);
    return BLOOM_OK;
}

/* ---- twins ---- */

void bloom_window_raise_counts(struct bloom_filter *younger, const struct bloom_filter *older)
{
    for (const struct bloom_layer *from = bloom_filter_newest(older); from; from = bloom_layer_older(from)) {
        const struct bloom_part *part = bloom_layer_part(from);
        struct bloom_layer *to = NULL;
        struct bloom_turn turn;

        if (bloom_part_is_alive(part) && part_for(younger, bloom_part_started(part), &turn))
            to = layer_of(younger, turn.number, from->geometry->level);
        if (!to)
            continue;
        uint64_t items = bloom_part_items(from), limit = to->geometry->capacity;
        bloom_layer_raise(to, atomic_load(&bloom_layer_part(to)->base) + (items < limit ? items : limit));
    }
}
