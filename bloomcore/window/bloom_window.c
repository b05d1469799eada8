/* Windows. A window of length W with n parts is a ring: the newest part takes items for W/n, less a margin; then a new
 * part begins (a turn). A part is forgotten when W has passed since it took its last item.
 *
 * A part is one layer of the chain, or several if it grows. Layers never leave the chain. Queries ask the state of each
 * layer and skip those of an expired part. Later the layers are emptied, and a new part takes them. So at most n + 2
 * parts have items at a time, each with the rate p / (n + 2). One part takes items, n are in the window, and the margin
 * makes one more. Of a part's rate its layers have the shares that those of an ordinary filter have.
 *
 * A layer's count of items continues from one part to the next: a part notes the count at its turn (the base). So an
 * add's ordinal says which part it belongs to, and a log may be replayed in any order. A turn is recorded before it
 * takes effect. Forgetting needs no record: it follows from the turns and the clock.
 *
 * The margin g = W / (n (2n + 2)) is for answers that arrive late. A part takes items until W/n - g after its
 * beginning, and expires between W + W/n - g/2 and W + W/n after it. So an item is present for W after an answer that
 * was late by up to g/2, and never for more than W + W/n.
 *
 * Queries take no lock. An add tests and places its item under the filter's lock, and reads the clock there: no item
 * comes into a part after its end. The order of locks is pool->lock (a turn), then the filter's lock. */
#include "bloom_window.h"

#include <string.h>
#include <sys/mman.h>

#include "bloom_chain.h"
#include "bloom_layer.h"
#include "bloom_layer_add.h"
#include "bloom_part.h"
#include "bloom_pool.h"
#include "bloom_window_ring.h"
#include "bloom_words.h"
#include "check.h"
#include "lock.h"

#define PAGE  4096
#define PIECE ((size_t)2 << 20) /* emptied under the lock at once */

/* Ordinals of a layer that gets more are not distinct in the log (log_payload.h). */
#define MAX_ORDINAL (UINT64_C(1) << 40)

/* ---- the ring ---- */

static int state_of(const struct bloom_layer *layer)
{
    return atomic_load_explicit(&bloom_layer_part(layer)->state, memory_order_relaxed);
}

void bloom_window_init(struct bloom_filter *filter)
{
    struct bloom_window *window = bloom_filter_window(filter);

    bloom_part_init(&filter->first);
    memset(window, 0, sizeof(*window));
    atomic_init(&window->due_us, INT64_MAX);
}

/* Whether a living part must be forgotten now. */
static bool is_over(const struct bloom_params *params, const struct bloom_window *window, const struct bloom_part *part,
                    int64_t now)
{
    if (bloom_window_by_items(params)) /* a part is forgotten when n full parts follow it */
        return bloom_part_turn(part) + params->window_parts < atomic_load_explicit(&window->turn, memory_order_relaxed);
    return now >= bloom_window_expires(params, bloom_part_started(part));
}

/* After loading: finds the layer that takes the adds. Under the filter's lock. */
static void find_current(struct bloom_filter *filter)
{
    const struct bloom_params *params = bloom_filter_params(filter);
    struct bloom_window *window = bloom_filter_window(filter);
    uint64_t turn = atomic_load_explicit(&window->turn, memory_order_relaxed), placed = 0;
    struct bloom_layer *current = NULL;

    for (struct bloom_layer *layer = bloom_filter_newest(filter); turn && layer; layer = bloom_layer_older(layer)) {
        const struct bloom_part *part = bloom_layer_part(layer);
        if (bloom_part_turn(part) != turn || !bloom_part_is_alive(part))
            continue;
        placed += bloom_part_items(layer);
        if (!current || layer->geometry->level > current->geometry->level)
            current = layer;
    }
    if (current)
        atomic_store_explicit(&window->ends_us,
                              bloom_window_ends(params, bloom_part_started(bloom_layer_part(current))),
                              memory_order_relaxed);
    atomic_store_explicit(&window->placed, placed, memory_order_relaxed);
    atomic_store_explicit(&window->current, current, memory_order_release);
}

void bloom_window_forget_locked(struct bloom_filter *filter, int64_t now)
{
    const struct bloom_params *params = bloom_filter_params(filter);
    struct bloom_window *window = bloom_filter_window(filter);
    int64_t due = INT64_MAX;

    if (atomic_load_explicit(&window->due_us, memory_order_relaxed) == BLOOM_NOT_SETTLED)
        find_current(filter);
    struct bloom_layer *current = atomic_load_explicit(&window->current, memory_order_relaxed);

    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        struct bloom_part *part = bloom_layer_part(layer);
        if (!bloom_part_is_alive(part))
            continue;
        if (is_over(params, window, part, now)) {
            atomic_fetch_add_explicit(&window->forgotten, 1, memory_order_release);
            atomic_store_explicit(&part->state, PART_STALE, memory_order_release);
            atomic_fetch_add_explicit(&window->nstale, 1, memory_order_relaxed);
            if (layer == current)
                atomic_store_explicit(&window->current, NULL, memory_order_relaxed);
            continue;
        }
        int64_t expires = bloom_window_expires(params, bloom_part_started(part));
        due = expires < due ? expires : due;
    }
    atomic_store_explicit(&window->due_us, due, memory_order_relaxed);
}

bool bloom_window_forget(struct bloom_filter *filter)
{
    struct bloom_window *window = bloom_filter_window(filter);

    if (atomic_load_explicit(&window->due_us, memory_order_relaxed) != INT64_MAX &&
        bloom_window_is_due(window, bloom_window_now_us(filter))) {
        struct bloom_lock *lock = bloom_pool_lock_of(bloom_filter_class(filter)->pool, filter);

        bloom_lock_take(lock);
        bloom_window_forget_locked(filter, bloom_window_now_us(filter));
        bloom_lock_give(lock);
    }
    return atomic_load_explicit(&window->nstale, memory_order_relaxed) != 0;
}

void bloom_window_state(const struct bloom_filter *filter, struct bloom_window_state *state_out)
{
    const struct bloom_window *window = bloom_filter_window(filter);

    state_out->stale = bloom_window_forget((struct bloom_filter *)filter);
    state_out->parts = state_out->items = 0;
    state_out->oldest_us = 0;
    state_out->turn = atomic_load_explicit(&window->turn, memory_order_relaxed);
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        const struct bloom_part *part = bloom_layer_part(layer);
        if (!bloom_part_is_alive(part))
            continue;
        int64_t started = bloom_part_started(part);
        state_out->parts += layer->geometry->level == 0;
        state_out->items += bloom_part_items(layer);
        if (state_out->oldest_us == 0 || started < state_out->oldest_us)
            state_out->oldest_us = started;
    }
}

/* ---- emptying ---- */

static void empty_words(_Atomic uint64_t *words, uint64_t nwords)
{
    for (uint64_t i = 0; i < nwords; i++) {
        if (atomic_load_explicit(&words[i], memory_order_relaxed))
            atomic_store_explicit(&words[i], 0, memory_order_relaxed);
    }
}

/* Whole pages go back to the system. */
static void empty_piece(char *start, char *end, bool mapped)
{
    char *first = (char *)(((uintptr_t)start + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    char *last = (char *)((uintptr_t)end & ~(uintptr_t)(PAGE - 1));

    if (!mapped || first >= last || madvise(first, (size_t)(last - first), MADV_DONTNEED) != 0)
        first = last = end;
    empty_words((_Atomic uint64_t *)(void *)start, (uint64_t)(first - start) / 8);
    empty_words((_Atomic uint64_t *)(void *)last, (uint64_t)(end - last) / 8);
}

/* Under the filter's lock for each piece: a page that moves meanwhile (bloom_settle.c) is copied whole, or not. */
static void empty_layer(struct bloom_filter *filter, const struct bloom_layer *layer)
{
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;
    struct bloom_lock *lock = bloom_pool_lock_of(pool, filter);
    _Atomic uint64_t *words = bloom_layer_words(layer);
    uint64_t nwords = bloom_geometry_nwords(layer->geometry);
    char *at = (char *)words, *end = (char *)(words + nwords);
    bool mapped = !layer->geometry->words_inline && bloom_words_room(&pool->maps, words, nwords) != NULL;

    while (at < end) {
        char *to = (char *)(((uintptr_t)at + PIECE) & ~(uintptr_t)(PIECE - 1));

        if (to > end)
            to = end;
        bloom_lock_take(lock);
        empty_piece(at, to, mapped);
        bloom_lock_give(lock);
        at = to;
    }
}

int64_t bloom_window_now_us(const struct bloom_filter *filter)
{
    return bloom_pool_now_us(bloom_filter_class(filter)->pool);
}

bool bloom_window_is_small(const struct bloom_layer *layer)
{
    return bloom_geometry_nwords(layer->geometry) * 8 <= BLOOM_WINDOW_SMALL_BYTES;
}

/* If two threads try, one of them empties the layer. */
static bool clean_layer(struct bloom_filter *filter, const struct bloom_layer *layer)
{
    struct bloom_part *part = bloom_layer_part(layer);
    int stale = PART_STALE;

    if (!atomic_compare_exchange_strong(&part->state, &stale, PART_EMPTYING))
        return false;
    empty_layer(filter, layer);
    atomic_fetch_sub_explicit(&bloom_filter_window(filter)->nstale, 1, memory_order_relaxed);
    atomic_store_explicit(&part->state, PART_FREE, memory_order_release);
    return true;
}

bool bloom_filter_forgets(const struct bloom_filter *filter)
{
    return bloom_filter_is_window(filter);
}

bool bloom_window_wants_clean(struct bloom_filter *filter)
{
    struct bloom_window *window = bloom_filter_window(filter);

    return atomic_load_explicit(&window->nstale, memory_order_relaxed) && !bloom_window_is_small(&filter->first) &&
           !atomic_exchange(&window->clean_wanted, true);
}

void bloom_window_clean_later(struct bloom_filter *filter)
{
    atomic_store(&bloom_filter_window(filter)->clean_wanted, false);
}

void bloom_window_clean(struct bloom_filter *filter)
{
    atomic_store(&bloom_filter_window(filter)->clean_wanted, false);
    for (struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer))
        clean_layer(filter, layer);
}

/* ---- turns, under pool->lock ---- */

/* A free layer of this level. A small one is emptied for that; a large one if it was not for a turn. NULL: none. */
static struct bloom_layer *free_layer(struct bloom_filter *filter, unsigned level)
{
    unsigned ring = bloom_filter_params(filter)->window_parts + BLOOM_WINDOW_SPARES, found = 0;
    struct bloom_layer *free = NULL, *stale = NULL;

    for (struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        const struct bloom_geometry *geometry = layer->geometry;

        if (geometry->level != level ||
            atomic_load_explicit(&layer->items, memory_order_relaxed) + geometry->capacity >= MAX_ORDINAL)
            continue;
        int state = atomic_load_explicit(&bloom_layer_part(layer)->state, memory_order_acquire);
        found++;
        if (state == PART_FREE)
            free = layer;
        else if (state == PART_STALE)
            stale = layer;
    }
    if (free)
        return free;
    return stale && (bloom_window_is_small(stale) || found > ring) && clean_layer(filter, stale) ? stale : NULL;
}

int bloom_window_append(struct bloom_filter *filter, unsigned level, const struct bloom_turn *turn,
                        const struct bloom_journal *journal, struct errbuf *err)
{
    const struct bloom_geometry *first = filter->first.geometry;
    struct bloom_shape shape;
    uint64_t capacity;
    double rate;

    if (bloom_filter_nlayers(filter) >= BLOOM_MAX_LAYERS)
        return errbuf_fail(err, BLOOM_REFUSED, "a filter has at most %d layers", BLOOM_MAX_LAYERS);
    if (bloom_window_level(bloom_filter_params(filter), level, &capacity, &rate, err) != BLOOM_OK)
        return BLOOM_REFUSED;
    if (level == 0)
        bloom_geometry_shape(first, &shape);
    else if (bloom_layer_shape(first->variant, 0, capacity, rate, &shape, err) != BLOOM_OK)
        return BLOOM_REFUSED;
    shape.level = (uint16_t)level;
    return bloom_filter_push_layer(filter, &shape, capacity, rate, turn, journal, err);
}

static int record_turn(const struct bloom_layer *layer, const struct bloom_turn *turn,
                       const struct bloom_journal *journal, struct errbuf *err)
{
    struct bloom_shape shape;

    if (!journal)
        return 0;
    bloom_geometry_shape(layer->geometry, &shape);
    return journal->ops->turn(journal->ctx, journal->id, layer->geometry->index, &shape, turn, err);
}

void bloom_part_set(struct bloom_part *part, const struct bloom_turn *turn)
{
    atomic_store_explicit(&part->turn, turn->number, memory_order_relaxed);
    atomic_store_explicit(&part->base, turn->base, memory_order_relaxed);
    atomic_store_explicit(&part->started_us, turn->started_us, memory_order_relaxed);
    atomic_store_explicit(&part->state, turn->number ? PART_ALIVE : PART_FREE, memory_order_release);
}

/* From here on the layer takes the adds. */
static void publish(struct bloom_filter *filter, struct bloom_layer *layer, const struct bloom_turn *turn)
{
    const struct bloom_params *params = bloom_filter_params(filter);
    struct bloom_window *window = bloom_filter_window(filter);
    struct bloom_lock *lock = bloom_pool_lock_of(bloom_filter_class(filter)->pool, filter);

    bloom_lock_take(lock);
    CHECK(state_of(layer) == PART_FREE); /* the items of a living part would go with its turn */
    CHECK(turn->number >= atomic_load_explicit(&window->turn, memory_order_relaxed));
    CHECK(turn->started_us <= bloom_window_now_us(filter)); /* the clock never goes back */
    bloom_part_set(bloom_layer_part(layer), turn);
    if (layer->geometry->level == 0)
        atomic_store_explicit(&window->placed, 0, memory_order_relaxed);
    atomic_store_explicit(&window->turn, turn->number, memory_order_relaxed);
    atomic_store_explicit(&window->ends_us, bloom_window_ends(params, turn->started_us), memory_order_relaxed);
    atomic_store_explicit(&window->current, layer, memory_order_release); /* an add derives bits before the lock */
    bloom_window_forget_locked(filter, bloom_window_now_us(filter));
    bloom_lock_give(lock);
}

int bloom_window_make_place(const struct bloom_seen *seen, const struct bloom_journal *journal, struct errbuf *err)
{
    struct bloom_filter *filter = seen->filter;
    struct bloom_window *window = bloom_filter_window(filter);
    struct lock *lock = &bloom_filter_class(filter)->pool->turns;
    unsigned level = seen->grows ? seen->current->geometry->level + 1u : 0;
    int rc = 0;

    lock_take(lock);
    if (seen->turn + 1 >= BLOOM_TURNS && !seen->grows) {
        errbuf_set(err, "no more numbers for its parts");
        rc = BLOOM_REFUSED;
    } else if (atomic_load(&window->turn) == seen->turn && atomic_load(&window->current) == seen->current) {
        struct bloom_turn turn = {.number = seen->turn + !seen->grows, .started_us = bloom_window_now_us(filter)};
        struct bloom_layer *layer = free_layer(filter, level);

        if (seen->grows)
            turn.started_us = bloom_part_started(bloom_layer_part(seen->current));
        turn.base = layer ? atomic_load_explicit(&layer->items, memory_order_relaxed) : 0;
        rc = layer ? record_turn(layer, &turn, journal, err) : bloom_window_append(filter, level, &turn, journal, err);
        if (rc == 0)
            publish(filter, layer ? layer : bloom_filter_newest(filter), &turn);
        else
            errbuf_prefix(err, "cannot begin part %llu of the window", (unsigned long long)turn.number);
    }
    lock_give(lock);
    return rc;
}

/* ---- loading ---- */

void bloom_window_set_turn(struct bloom_filter *filter, unsigned index, const struct bloom_turn *turn)
{
    struct bloom_window *window = bloom_filter_window(filter);

    bloom_part_set(bloom_layer_part(bloom_filter_layer_at(filter, index)), turn);
    if (turn->number > atomic_load_explicit(&window->turn, memory_order_relaxed))
        atomic_store_explicit(&window->turn, turn->number, memory_order_relaxed);
    atomic_store_explicit(&window->due_us, BLOOM_NOT_SETTLED, memory_order_relaxed);
}

int bloom_window_replay(struct bloom_filter *filter, unsigned index, const struct bloom_shape *shape,
                        const struct bloom_turn *turn, struct errbuf *err)
{
    unsigned nlayers = bloom_filter_nlayers(filter);
    struct bloom_shape own;
    int rc = 0;

    if (index == nlayers)
        rc = bloom_filter_append_at(filter, index, shape, err);
    if (rc != 0)
        return rc;
    if (index > nlayers)
        return errbuf_fail(err, BLOOM_REFUSED, "layer %u of a window that has %u layers", index, nlayers);
    struct bloom_layer *layer = bloom_filter_layer_at(filter, index);
    bloom_geometry_shape(layer->geometry, &own);
    if (!bloom_shape_equal(&own, shape))
        return errbuf_fail(err, BLOOM_REFUSED, "layer %u has another shape", index);
    struct bloom_part *part = bloom_layer_part(layer);
    int state = atomic_load_explicit(&part->state, memory_order_relaxed);
    if (bloom_part_turn(part) >= turn->number)
        return 0;
    if (state != PART_FREE)
        empty_layer(filter, layer);
    if (state == PART_STALE || state == PART_EMPTYING)
        atomic_fetch_sub_explicit(&bloom_filter_window(filter)->nstale, 1, memory_order_relaxed);
    atomic_store_explicit(&layer->items, turn->base, memory_order_relaxed);
    bloom_window_set_turn(filter, index, turn);
    return 0;
}

int64_t bloom_window_latest_us(const struct bloom_filter *filter)
{
    int64_t latest = 0;

    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        int64_t started = bloom_part_started(bloom_layer_part(layer));
        latest = started > latest ? started : latest;
    }
    return latest;
}

/* ---- replicas ---- */

static uint64_t turn_of(const struct bloom_layer *layer)
{
    return bloom_part_turn(bloom_layer_part(layer));
}

/* The layer that takes the newest part's items, forgotten or not; NULL: there is no part. */
static struct bloom_layer *newest_part(struct bloom_filter *filter)
{
    struct bloom_window *window = bloom_filter_window(filter);
    struct bloom_layer *found;
    uint64_t turn;

    bloom_window_forget(filter); /* after loading it finds the layer that takes the adds */
    found = atomic_load_explicit(&window->current, memory_order_relaxed);
    turn = atomic_load_explicit(&window->turn, memory_order_relaxed);
    if (found || turn == 0)
        return found;
    for (struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        if (turn_of(layer) == turn && (!found || layer->geometry->level > found->geometry->level))
            found = layer;
    }
    return found;
}

bool bloom_window_place(struct bloom_filter *filter, struct bloom_hash hash)
{
    struct bloom_window *window = bloom_filter_window(filter);
    struct bloom_layer *layer = newest_part(filter);
    uint64_t bit[BLOOM_PROBE_BITS], items, base;

    if (!layer)
        return false;
    bloom_layer_bits(layer, hash, bit);
    items = atomic_load_explicit(&layer->items, memory_order_relaxed);
    base = atomic_load_explicit(&bloom_layer_part(layer)->base, memory_order_relaxed);
    if (items - base < layer->geometry->capacity) {
        atomic_store_explicit(&layer->items, items + 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&window->placed, 1, memory_order_relaxed);
    }
    bloom_set_bits(bloom_layer_words(layer), bit, layer->geometry->k);
    return true;
}

bool bloom_window_part_started(const struct bloom_filter *filter, uint64_t number, int64_t *started_us_out)
{
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        if (turn_of(layer) != number)
            continue;
        *started_us_out = bloom_part_started(bloom_layer_part(layer));
        return true;
    }
    return false;
}

uint64_t bloom_window_droppable(const struct bloom_filter *filter)
{
    const struct bloom_window *window = bloom_filter_window(filter);
    uint64_t oldest = atomic_load_explicit(&window->turn, memory_order_relaxed) + 1;
    bool any = false;

    if (!bloom_window_forget((struct bloom_filter *)filter))
        return 0;
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        if (bloom_part_is_alive(bloom_layer_part(layer)) && turn_of(layer) < oldest)
            oldest = turn_of(layer);
    }
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer && !any; layer = bloom_layer_older(layer))
        any = turn_of(layer) != 0 && turn_of(layer) < oldest && !bloom_window_is_small(layer);
    return any ? oldest : 0;
}

void bloom_window_drop(struct bloom_filter *filter, uint64_t below)
{
    struct bloom_window *window = bloom_filter_window(filter);

    for (struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        struct bloom_part *part = bloom_layer_part(layer);

        if (turn_of(layer) == 0 || turn_of(layer) >= below)
            continue;
        atomic_store_explicit(&part->turn, 0, memory_order_relaxed);
        if (state_of(layer) != PART_ALIVE)
            continue;
        atomic_store_explicit(&part->state, PART_STALE, memory_order_relaxed);
        atomic_fetch_add_explicit(&window->forgotten, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&window->nstale, 1, memory_order_relaxed);
        if (layer == atomic_load_explicit(&window->current, memory_order_relaxed))
            atomic_store_explicit(&window->current, NULL, memory_order_relaxed);
    }
}

/* The layer that is being emptied, or the next one to be. */
static struct bloom_layer *dropped_layer(struct bloom_filter *filter)
{
    struct bloom_layer *next = NULL;

    for (struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        if (state_of(layer) == PART_EMPTYING)
            return layer;
        if (state_of(layer) == PART_STALE && turn_of(layer) == 0)
            next = layer;
    }
    if (next) {
        atomic_store_explicit(&bloom_layer_part(next)->state, PART_EMPTYING, memory_order_relaxed);
        bloom_filter_window(filter)->emptied = 0;
    }
    return next;
}

bool bloom_window_clean_piece(struct bloom_filter *filter)
{
    struct bloom_window *window = bloom_filter_window(filter);
    struct bloom_layer *layer;

    if (atomic_load_explicit(&window->nstale, memory_order_relaxed) == 0 || !(layer = dropped_layer(filter)))
        return false;
    uint64_t nwords = bloom_geometry_nwords(layer->geometry), from = window->emptied;
    uint64_t to = nwords - from > PIECE / 8 ? from + PIECE / 8 : nwords;

    empty_words(bloom_layer_words(layer) + from, to - from);
    window->emptied = to;
    if (to == nwords) {
        atomic_store_explicit(&bloom_layer_part(layer)->state, PART_FREE, memory_order_relaxed);
        atomic_fetch_sub_explicit(&window->nstale, 1, memory_order_relaxed);
    }
    return atomic_load_explicit(&window->nstale, memory_order_relaxed) != 0;
}
