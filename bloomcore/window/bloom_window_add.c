/* Queries of windows and adds to them, also to one of a pair of twins (bloom_twins.c).
 *
 * Each of the twins turns by itself. An add to the older one puts its item into the newest parts of both, since its
 * time begins in both. It does not matter whether an older part of the younger one already has the item. It ends only
 * when both have place, so that each acknowledged item has a place in both. A note in the older one goes into its
 * newest part, too. */
#include "bloom_chain.h"
#include "bloom_layer_add.h"
#include "bloom_window.h"
#include "bloom_window_ring.h"
#include "bloom_scaling.h"

/* ---- queries ---- */

/* Whether a layer of a living part has the item, or both items of a claim; *newest_out: one of the newest part. */
static inline bool bloom_window_has(const struct bloom_filter *filter, const struct bloom_hash *hash, unsigned n,
                                    bool *newest_out)
{
    uint64_t turn = atomic_load_explicit(&bloom_filter_window(filter)->turn, memory_order_relaxed);
    bool found = false;

    *newest_out = false;
    for (const struct bloom_layer *layer = bloom_filter_newest(filter); layer; layer = bloom_layer_older(layer)) {
        const struct bloom_part *part = bloom_layer_part(layer);

        if (!bloom_part_is_alive(part) || !bloom_layer_test(layer, hash[n - 1]) ||
            (n == 2 && !bloom_layer_test(layer, hash[0])))
            continue;
        found = true;
        *newest_out |= bloom_part_turn(part) == turn;
    }
    return found;
}

/* A part that expires during the search may have had the item when the search began. Since then the item may have come
 * into a part that had been searched. */
bool bloom_window_query(const struct bloom_filter *filter, struct bloom_hash hash)
{
    const struct bloom_window *window = bloom_filter_window(filter);
    uint64_t forgotten;
    bool found, newest;

    bloom_window_forget((struct bloom_filter *)filter);
    do {
        forgotten = atomic_load_explicit(&window->forgotten, memory_order_acquire);
        found = bloom_window_has(filter, &hash, 1, &newest);
        bloom_found();
    } while (!found && forgotten != atomic_load_explicit(&window->forgotten, memory_order_relaxed));
    return found;
}

/* ---- adds ---- */

/* bloom_window_look() at this time, without forgetting. */
static bool see(struct bloom_filter *filter, int64_t now, unsigned n, struct bloom_seen *seen_out)
{
    const struct bloom_params *params = bloom_filter_params(filter);
    const struct bloom_window *window = bloom_filter_window(filter);

    *seen_out = (struct bloom_seen){
        .filter = filter,
        .current = atomic_load_explicit(&window->current, memory_order_relaxed),
        .turn = atomic_load_explicit(&window->turn, memory_order_relaxed),
    };
    return !seen_out->current || now >= atomic_load_explicit(&window->ends_us, memory_order_relaxed) ||
           (bloom_window_by_items(params) &&
            atomic_load_explicit(&window->placed, memory_order_relaxed) + n > bloom_window_part_items(params));
}

bool bloom_window_look(struct bloom_filter *filter, unsigned n, struct bloom_seen *seen_out)
{
    int64_t now = bloom_window_now_us(filter);

    if (bloom_window_is_due(bloom_filter_window(filter), now))
        bloom_window_forget_locked(filter, now);
    return see(filter, now, n, seen_out);
}

static bool is_full(const struct bloom_layer *layer, unsigned n)
{
    return bloom_part_items(layer) + n > layer->geometry->capacity;
}

/* An add, and the state that it has seen under the locks. */
struct adding {
    struct bloom_filter *filter;
    const struct bloom_hash *hash; /* of the item, or of a claim's mark and item */
    unsigned n;                    /* of these */
    const struct bloom_journal *journal;
    struct bloom_twins twins; /* the pair of the filter; all zero: none */
    struct bloom_journal twin_journal;
    struct bloom_seen own, other; /* the filter, its twin */
    struct bloom_seen *lacks;     /* the one of these without a place */
};

static bool to_older(const struct adding *a)
{
    return a->twins.older == a->filter;
}

/* Whether both filters have a part that takes items. An add to the younger twin does not hold the older one's lock. It
 * need not: the younger one has replaced the older one, which gets only notes. */
static bool look_at_both(struct adding *a)
{
    bool turn = bloom_window_look(a->filter, a->n, &a->own), other = false;

    if (to_older(a))
        other = bloom_window_look(a->twins.younger, a->n, &a->other);
    else if (a->twins.older)
        other = see(a->twins.older, bloom_window_now_us(a->filter), a->n, &a->other);
    a->lacks = turn ? &a->own : other ? &a->other : NULL;
    return !a->lacks;
}

/* Gives the items a place in the newest part of the younger twin, unless that has them. */
static void pass_on(const struct adding *a)
{
    struct bloom_layer *layer = a->other.current;
    bool newest;

    if (bloom_window_has(a->twins.younger, a->hash, a->n, &newest) && newest)
        return;
    uint64_t ordinal = atomic_fetch_add_explicit(&layer->items, a->n, memory_order_relaxed) + 1;
    bloom_journal_items(a->journal, a->twins.younger_id, a->hash, a->n, layer->geometry->index, ordinal);
    bloom_layer_or_items(layer, a->hash, a->n);
    if (a->twins.added)
        a->twins.added(a->twins.ctx);
}

/* Under the locks. BLOOM_FULL: a layer is, or the filter `turns`, which a claim of a present item does not need. */
static enum bloom_add place(struct adding *a, uint64_t bit[BLOOM_PROBE_BITS], bool turns)
{
    bool refresh = bloom_filter_params(a->filter)->window_flags & BLOOM_WINDOW_REFRESH, newest, item;
    bool found = bloom_window_has(a->filter, a->hash, a->n, &newest);
    enum bloom_add present = a->n == 2 ? BLOOM_OWN : BLOOM_PRESENT;
    struct bloom_layer *layer = a->own.current;

    if (found && (!refresh || (newest && !turns && !to_older(a))))
        return present;
    if (a->n == 2 && !found && bloom_window_has(a->filter, a->hash + 1, 1, &item))
        return BLOOM_PRESENT;
    if (turns)
        return BLOOM_FULL;
    a->lacks = !newest && is_full(layer, a->n)                  ? &a->own
               : to_older(a) && is_full(a->other.current, a->n) ? &a->other
                                                                : NULL;
    if (a->lacks)
        return BLOOM_FULL;
    if (newest) { /* its time restarts in the younger twin, whose newest part may have begun earlier */
        pass_on(a);
        return present;
    }
    uint64_t ordinal = atomic_load_explicit(&layer->items, memory_order_relaxed) + 1;
    atomic_store_explicit(&layer->items, ordinal + a->n - 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&bloom_filter_window(a->filter)->placed, a->n, memory_order_relaxed);
    bloom_journal_items(a->journal, a->journal ? a->journal->id : 0, a->hash, a->n, layer->geometry->index, ordinal);
    if (to_older(a))
        pass_on(a);
    else if (a->twins.older) /* a note */
        bloom_layer_or_items(a->other.current, a->hash, a->n);
    for (unsigned i = 0; i < a->n; i++) { /* `bit` has the bits of the first one */
        if (i > 0)
            bloom_layer_bits(layer, a->hash[i], bit);
        bloom_set_bits(bloom_layer_words(layer), bit, layer->geometry->k);
    }
    return found ? present : BLOOM_ADDED;
}

/* Takes the locks of the add. Filters that become twins later are not this add's: their merge waits for it. */
static void lock(struct adding *a, const struct bloom_twin_slot *slot, struct bloom_locks *locks_out)
{
    struct bloom_pool *pool = bloom_filter_class(a->filter)->pool;
    bool twins = slot && bloom_twins_read(slot, a->filter, &a->twins);
    struct bloom_twins now;

    bloom_locks_take_both(locks_out, pool, a->filter, twins ? a->twins.younger : NULL);
    if (!twins || !bloom_twins_read(slot, a->filter, &now) || now.older != a->twins.older ||
        now.younger != a->twins.younger)
        a->twins = (struct bloom_twins){0};
}

/* One attempt. BLOOM_FULL: `lacks` has no place. */
static enum bloom_add try_add(struct adding *a, const struct bloom_twin_slot *slot, bool *turns_out)
{
    struct bloom_layer *expected = atomic_load_explicit(&bloom_filter_window(a->filter)->current, memory_order_acquire);
    enum bloom_add answer = BLOOM_FULL;
    uint64_t bit[BLOOM_PROBE_BITS];
    struct bloom_locks locks;

    if (expected) {
        bloom_layer_bits(expected, a->hash[0], bit);
        if (!bloom_window_is_small(expected))
            bloom_layer_touch(expected, bit);
    }
    lock(a, slot, &locks);
    *turns_out = !look_at_both(a);
    if (!*turns_out || a->n == 2) {
        if (a->own.current && a->own.current != expected)
            bloom_layer_bits(a->own.current, a->hash[0], bit);
        answer = place(a, bit, *turns_out);
    }
    bloom_locks_give(&locks);
    return answer;
}

/* The journal of the filter that will get a place. The older twin does not matter for adds to the younger one. */
static const struct bloom_journal *journal_of_lacking(struct adding *a)
{
    if (a->lacks == &a->own || !a->journal)
        return a->journal;
    if (!to_older(a))
        return NULL;
    a->twin_journal = *a->journal;
    a->twin_journal.id = a->twins.younger_id;
    return &a->twin_journal;
}

/* A claim asks under the lock only: between two looks without it, at the item and at the mark, both may expire. */
enum bloom_add bloom_window_add(struct bloom_filter *filter, const struct bloom_hash *hash, unsigned n,
                                const struct bloom_journal *journal, struct errbuf *err)
{
    const struct bloom_twin_slot *slot = bloom_pool_twin(bloom_filter_class(filter)->pool, filter);
    const struct bloom_params *params = bloom_filter_params(filter);
    struct adding a = {.filter = filter, .hash = hash, .n = n, .journal = journal};

    for (;;) {
        bool turns;

        if (n == 1 && !(params->window_flags & BLOOM_WINDOW_REFRESH) && bloom_window_query(filter, hash[0]))
            return BLOOM_PRESENT;
        enum bloom_add answer = try_add(&a, slot, &turns);
        if (answer != BLOOM_FULL || (!turns && params->expansion == 0))
            return answer;
        a.lacks->grows = !turns;
        if (bloom_window_make_place(a.lacks, journal_of_lacking(&a), err) != 0)
            return BLOOM_NO_ROOM;
    }
}
