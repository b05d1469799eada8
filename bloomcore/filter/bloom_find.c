/* A pipeline over the filters. It prefetches the header of a filter, then the words of its first bits, then tests
 * these. A filter that passes has its other words prefetched and waits again. A step lies this many filters after the
 * one before that its memory has arrived. */
#include "bloom_find.h"

#include <string.h>

#include "bloom_layer.h"
#include "bloom_layer_add.h"
#include "bloom_part.h"

/* Filters between two steps: about as many cache misses as a core has under way, with two words for each filter. */
#define AHEAD 16u

/* In a half full filter three absent items of four fail the test of two bits. */
struct probe {
    const struct bloom_layer *layer;
    const _Atomic uint64_t *words;
    uint64_t first, second; /* bits */
};

struct search {
    const struct bloom_item *item;
    struct bloom_hash hashes[BLOOM_HASHES];
    bool hashed[BLOOM_HASHES];
    const struct bloom_key *keyed; /* secret of the latest filter that has one */
    unsigned keyed_kind;
    struct bloom_hash keyed_hash;
    const struct bloom_filter *const *filters;
    uint64_t *found;
    size_t nfound;
    const struct bloom_geometry *geometry; /* of the last filter: many have the same, and the same bits */
    uint64_t first, second;                /* these bits */
    struct probe probes[AHEAD];            /* of the filters between the second step and the third */
    struct {                               /* filters that have passed the third step, oldest first */
        const struct bloom_layer *layer;
        size_t index;
    } passed[AHEAD];
    size_t npassed, ntested; /* ever; they differ by at most AHEAD */
};

static inline struct bloom_hash hash_for(struct search *s, const struct bloom_layer *layer)
{
    const struct bloom_geometry *geometry = layer->geometry;
    if (__builtin_expect(geometry->key != NULL, 0)) {
        if (s->keyed != geometry->key || s->keyed_kind != geometry->hash)
            s->keyed_hash = bloom_geometry_hash(geometry, s->item->ptr, s->item->len);
        s->keyed = geometry->key;
        s->keyed_kind = geometry->hash;
        return s->keyed_hash;
    }
    unsigned which = geometry->hash;
    if (__builtin_expect(!s->hashed[which], 0)) {
        s->hashes[which] = bloom_geometry_hash(geometry, s->item->ptr, s->item->len);
        s->hashed[which] = true;
    }
    return s->hashes[which];
}

BLOOM_WALKS void fetch_walk(const struct bloom_layer *layer, struct bloom_hash hash, enum bloom_walk_kind kind)
{
    const _Atomic uint64_t *words = bloom_layer_words(layer);
    struct bloom_walk walk = bloom_walk_start(layer->geometry, hash);
    bloom_walk_skip(&walk, 2);
    for (unsigned i = 2; i < bloom_geometry_lines(layer->geometry); i++)
        __builtin_prefetch((const void *)&words[bloom_walk_step(&walk, kind) >> 6], 0, 2);
    __asm__ volatile(""); /* gcc removes calls of functions that only prefetch */
}

BLOOM_WALKS void begin_walk(struct search *s, const struct bloom_geometry *geometry, struct bloom_hash hash,
                            enum bloom_walk_kind kind)
{
    struct bloom_walk walk = bloom_walk_start(geometry, hash);
    s->geometry = geometry;
    s->first = bloom_walk_step(&walk, kind);
    s->second = geometry->k > 1 ? bloom_walk_step(&walk, kind) : s->first;
}

static void fetch_first(struct search *s, size_t i)
{
    const struct bloom_layer *layer = bloom_filter_newest(s->filters[i]);
    struct probe *probe = &s->probes[i % AHEAD];
    if (layer->geometry != s->geometry)
        BLOOM_BY_WALK(layer->geometry, begin_walk, s, layer->geometry, hash_for(s, layer));
    probe->layer = layer;
    probe->words = bloom_layer_words(layer);
    probe->first = s->first;
    probe->second = s->second;
    __builtin_prefetch((const void *)&probe->words[probe->first >> 6], 0, 2);
    __builtin_prefetch((const void *)&probe->words[probe->second >> 6], 0, 2);
}

static void note(struct search *s, size_t i)
{
    s->found[i / 64] |= UINT64_C(1) << (i % 64);
    s->nfound++;
}

static void test_passed(struct search *s)
{
    size_t at = s->ntested++ % AHEAD;
    const struct bloom_layer *layer = s->passed[at].layer;
    struct bloom_hash hash = hash_for(s, layer);
    if (bloom_layer_test(layer, hash) || bloom_layer_test_below(layer, hash))
        note(s, s->passed[at].index);
}

static void test_first(struct search *s, size_t i)
{
    const struct probe *probe = &s->probes[i % AHEAD];
    const struct bloom_layer *layer = probe->layer;
    if (layer->geometry->window) {
        if (bloom_window_query(s->filters[i], hash_for(s, layer)))
            note(s, i);
        return;
    }
    uint64_t both =
        atomic_load_explicit(&probe->words[probe->first >> 6], memory_order_relaxed) >> (probe->first & 63) &
        atomic_load_explicit(&probe->words[probe->second >> 6], memory_order_relaxed) >> (probe->second & 63);
    if (!(both & 1)) {
        if (layer->geometry->index != 0 && bloom_layer_test_below(layer, hash_for(s, layer)))
            note(s, i);
        return;
    }
    BLOOM_BY_WALK(layer->geometry, fetch_walk, layer, hash_for(s, layer));
    if (s->npassed - s->ntested == AHEAD)
        test_passed(s);
    s->passed[s->npassed % AHEAD].layer = layer;
    s->passed[s->npassed++ % AHEAD].index = i;
}

size_t bloom_find(const struct bloom_item *item, const struct bloom_filter *const *filters, size_t n,
                  uint64_t *found_out)
{
    struct search s = {.item = item, .filters = filters, .found = found_out};

    memset(found_out, 0, BLOOM_FIND_WORDS(n) * sizeof(*found_out));
    for (size_t i = 0; i < n + 2 * (size_t)AHEAD; i++) {
        if (i >= 2 * AHEAD)
            test_first(&s, i - 2 * AHEAD);
        if (i >= AHEAD && i - AHEAD < n)
            fetch_first(&s, i - AHEAD);
        if (i < n)
            __builtin_prefetch(filters[i]);
    }
    while (s.ntested < s.npassed)
        test_passed(&s);
    bloom_found();
    return s.nfound;
}
