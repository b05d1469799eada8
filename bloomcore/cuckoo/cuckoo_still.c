/* The state of one moment, read while other threads change the filter. A still has the shape of the filter, and words
 * of its own, which take memory page by page: the first change of a page that has not been read for the last time puts
 * its old words there. Reading gives them back. So a still takes memory for changes ahead of its reader only. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_filter.h"
#include "bloom_layer.h"
#include "bloom_pool.h"
#include "check.h"
#include "cuckoo.h"
#include "cuckoo_slots.h"

#define PAGE_WORDS    512
#define WORDS_AT_ONCE 2048  /* under the lock: a writer waits some microseconds */
#define RETURNED      65536 /* words after which memory goes back to the system */

struct cuckoo_still {
    struct cuckoo_still *next; /* of the filter's; locked, as the bits below */
    struct bloom_filter *filter;
    struct bloom_filter *shape; /* in which this is: with the old words */
    unsigned nlayers;
    struct still_layer {
        uint64_t *settled; /* a bit for each page that needs no copy: it has one, or has been read for the last time */
        uint64_t *copied;  /* of these the ones that have a copy */
    } layers[];
};

static struct bloom_lock *lock_of(const struct bloom_filter *filter)
{
    return bloom_pool_lock_of(bloom_filter_class(filter)->pool, filter);
}

static bool has(const uint64_t *bits, uint64_t page)
{
    return bits[page / 64] >> (page % 64) & 1;
}

static void set(uint64_t *bits, uint64_t page, bool on)
{
    uint64_t bit = UINT64_C(1) << (page % 64);

    bits[page / 64] = on ? bits[page / 64] | bit : bits[page / 64] & ~bit;
}

static void count_copies(const struct cuckoo_still *still, int64_t pages)
{
    atomic_fetch_add_explicit(&bloom_filter_class(still->filter)->pool->still_bytes, (uint64_t)(pages * PAGE_WORDS * 8),
                              memory_order_relaxed);
}

static void keep_old(struct cuckoo_still *still, const struct bloom_layer *layer, uint64_t word)
{
    uint64_t page = word / PAGE_WORDS, nwords = bloom_geometry_nwords(layer->geometry);
    unsigned index = layer->geometry->index;

    if (index >= still->nlayers || has(still->layers[index].settled, page))
        return;
    const _Atomic uint64_t *from = bloom_layer_words(layer);
    _Atomic uint64_t *to = bloom_layer_words(bloom_filter_layer_at(still->shape, index));
    uint64_t end = (page + 1) * PAGE_WORDS < nwords ? (page + 1) * PAGE_WORDS : nwords;
    for (uint64_t i = page * PAGE_WORDS; i < end; i++)
        atomic_store_explicit(&to[i], atomic_load_explicit(&from[i], memory_order_relaxed), memory_order_relaxed);
    set(still->layers[index].settled, page, true);
    set(still->layers[index].copied, page, true);
    count_copies(still, 1);
}

void cuckoo_keep_old(const struct bloom_filter *filter, const struct bloom_layer *layer, uint64_t word)
{
    for (struct cuckoo_still *still = cuckoo_of(filter)->stills; still; still = still->next)
        keep_old(still, layer, word);
}

/* ---- reading ---- */

/* The words from `word` to before `end`, which are in one page. Locked. */
static void read_page(struct cuckoo_still *still, unsigned index, uint64_t word, uint64_t end, uint64_t *to, bool last)
{
    struct still_layer *layer = &still->layers[index];
    const struct bloom_layer *live = bloom_filter_layer_at(still->filter, index);
    uint64_t page = word / PAGE_WORDS;
    bool copied = has(layer->copied, page);
    CHECK(copied || !has(layer->settled, page)); /* it was read for the last time: the live words are of later */
    const _Atomic uint64_t *from = bloom_layer_words(copied ? bloom_filter_layer_at(still->shape, index) : live);

    for (uint64_t i = word; i < end; i++)
        to[i - word] = atomic_load_explicit(&from[i], memory_order_relaxed);
    if (!last || (end % PAGE_WORDS != 0 && end != bloom_geometry_nwords(live->geometry)))
        return;
    set(layer->settled, page, true);
    set(layer->copied, page, false);
    if (copied)
        count_copies(still, -1);
}

/* Gives back the memory of words before `end`; all of them if it is the end of the layer. */
static void give_back(struct bloom_layer *old, uint64_t from, uint64_t end, struct bloom_pool *pool)
{
    uint64_t nwords = bloom_geometry_nwords(old->geometry);
    uintptr_t start = (uintptr_t)bloom_layer_words(old) + from * 8, stop = start + (end - from) * 8;

    if (old->geometry->words_inline)
        return;
    if (end == nwords) {
        bloom_words_free(&pool->maps, bloom_layer_words(old), nwords);
        bloom_layer_set_words(old, NULL);
    } else if (bloom_words_room(&pool->maps, bloom_layer_words(old), nwords)) {
        uintptr_t first = (start + 4095) & ~(uintptr_t)4095, behind = stop & ~(uintptr_t)4095;
        if (first < behind)
            bloom_room_empty((unsigned char *)first, behind - first);
    }
}

void cuckoo_still_read(const struct bloom_filter *shape, unsigned index, uint64_t word, uint64_t nwords, uint64_t *to,
                       bool last)
{
    struct cuckoo_still *still = cuckoo_of(shape)->still;
    struct bloom_lock *lock = lock_of(still->filter);
    struct bloom_layer *old = bloom_filter_layer_at(shape, index);
    uint64_t end = word + nwords, begun = word / RETURNED * RETURNED;

    while (word < end) {
        uint64_t stop = end - word < WORDS_AT_ONCE ? end : word + WORDS_AT_ONCE;
        bloom_lock_take(lock);
        while (word < stop) {
            uint64_t behind = (word / PAGE_WORDS + 1) * PAGE_WORDS;
            behind = behind < stop ? behind : stop;
            read_page(still, index, word, behind, to, last);
            to += behind - word;
            word = behind;
        }
        bloom_lock_give(lock);
    }
    if (last && bloom_layer_words_or_null(old) &&
        (end == bloom_geometry_nwords(old->geometry) || end / RETURNED * RETURNED > begun))
        give_back(old, begun, end == bloom_geometry_nwords(old->geometry) ? end : end / RETURNED * RETURNED,
                  bloom_filter_class(shape)->pool);
}

/* ---- beginning and ending ---- */

static void detach(struct bloom_filter *shape)
{
    struct cuckoo_still *still = cuckoo_of(shape)->still, **link = &cuckoo_of(still->filter)->stills;
    struct bloom_lock *lock = lock_of(still->filter);
    int64_t copies = 0;

    bloom_lock_take(lock);
    while (*link && *link != still)
        link = &(*link)->next;
    if (*link)
        *link = still->next;
    bloom_lock_give(lock);
    for (unsigned i = 0; i < still->nlayers; i++) {
        uint64_t pages = bloom_geometry_nwords(bloom_filter_layer_at(shape, i)->geometry) / PAGE_WORDS + 1;
        for (uint64_t at = 0; still->layers[i].settled && at <= pages / 64; at++)
            copies += __builtin_popcountll(still->layers[i].copied[at]);
        free(still->layers[i].settled);
    }
    count_copies(still, -copies);
    cuckoo_of(shape)->still = NULL;
    free(still);
}

/* NULL: no memory. */
static struct cuckoo_still *make_still(struct bloom_filter *filter, struct bloom_filter *shape, unsigned n)
{
    struct cuckoo_still *still = calloc(1, sizeof(*still) + n * sizeof(still->layers[0]));
    bool made = still;

    if (!still)
        return NULL;
    *still = (struct cuckoo_still){.filter = filter, .shape = shape, .nlayers = n};
    for (unsigned i = 0; i < n; i++) {
        uint64_t pages = bloom_geometry_nwords(bloom_filter_layer_at(shape, i)->geometry) / PAGE_WORDS + 1;
        uint64_t *bits = calloc((size_t)(pages / 64 + 1) * 2, sizeof(uint64_t));
        still->layers[i] = (struct still_layer){bits, bits ? bits + pages / 64 + 1 : NULL};
        made = made && bits;
    }
    cuckoo_of(shape)->still = still;
    if (made)
        return still;
    detach(shape);
    return NULL;
}

/* From here on old words are kept in `shape`, if the filter still has its layers. 0, -ENOMEM, or BLOOM_REFUSED: it has
 * others by now. */
static int attach(struct bloom_filter *filter, struct bloom_filter *shape)
{
    struct cuckoo_still *still = make_still(filter, shape, bloom_filter_nlayers(shape));
    struct cuckoo *cuckoo = cuckoo_of(filter);

    if (!still)
        return -ENOMEM;
    bloom_lock_take(lock_of(filter));
    bool same = bloom_filter_nlayers(filter) == still->nlayers;
    if (same) {
        still->next = cuckoo->stills;
        cuckoo->stills = still;
        for (unsigned i = 0; i < still->nlayers; i++)
            bloom_filter_set_items(
                shape, i, atomic_load_explicit(&bloom_filter_layer_at(filter, i)->items, memory_order_relaxed));
        cuckoo_set_counts(shape, atomic_load_explicit(&cuckoo->ordinal, memory_order_relaxed),
                          atomic_load_explicit(&cuckoo->deletes, memory_order_relaxed));
    }
    bloom_lock_give(lock_of(filter));
    if (!same)
        detach(shape);
    return same ? 0 : BLOOM_REFUSED;
}

/* ---- copies ---- */

static void read_words(const struct bloom_filter *from, unsigned index, uint64_t word, uint64_t n, uint64_t *to)
{
    if (cuckoo_of(from)->still) {
        cuckoo_still_read(from, index, word, n, to, true);
        return;
    }
    const _Atomic uint64_t *words = bloom_layer_words(bloom_filter_layer_at(from, index)) + word;
    for (uint64_t i = 0; i < n; i++)
        to[i] = atomic_load_explicit(&words[i], memory_order_relaxed);
}

static void copy_layer(const struct bloom_filter *from, unsigned index, struct bloom_layer *to)
{
    uint64_t nwords = bloom_geometry_nwords(to->geometry), buf[WORDS_AT_ONCE];
    _Atomic uint64_t *words = bloom_layer_words(to);

    for (uint64_t word = 0; word < nwords; word += WORDS_AT_ONCE) {
        uint64_t n = nwords - word < WORDS_AT_ONCE ? nwords - word : WORDS_AT_ONCE;
        read_words(from, index, word, n, buf);
        for (uint64_t i = 0; i < n; i++)
            if (buf[i]) /* pages without a fingerprint stay unmapped */
                atomic_store_explicit(&words[word + i], buf[i], memory_order_relaxed);
    }
}

int cuckoo_take(struct bloom_filter *copy, const struct bloom_filter *from, struct errbuf *err)
{
    const struct cuckoo *cuckoo = cuckoo_of(from);

    for (unsigned i = 0; i < bloom_filter_nlayers(from); i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(from, i, &view);
        TRY(i < bloom_filter_nlayers(copy) ? 0 : bloom_filter_push_anyway(copy, &view.shape, err));
        copy_layer(from, i, bloom_filter_layer_at(copy, i));
        bloom_filter_set_items(copy, i, view.items);
    }
    cuckoo_set_counts(copy, atomic_load_explicit(&cuckoo->ordinal, memory_order_relaxed),
                      atomic_load_explicit(&cuckoo->deletes, memory_order_relaxed));
    return 0;
}

/* ---- loading ---- */

void cuckoo_set_counts(struct bloom_filter *filter, uint64_t ordinal, uint64_t deletes)
{
    struct cuckoo *cuckoo = cuckoo_of(filter);

    atomic_store_explicit(&cuckoo->ordinal, ordinal, memory_order_relaxed);
    atomic_store_explicit(&cuckoo->deletes, deletes, memory_order_relaxed);
}

/* Counts as many slots at a time as a word has room for. The highest bit of a slot is set if it was, or when the other
 * bits carry into it: their sum with as many ones does, unless they are all 0. The product adds up these bits. */
uint64_t cuckoo_count_taken(const struct bloom_layer *layer)
{
    unsigned bits = cuckoo_slot_bits(layer->geometry), each = 64 / bits, rest = 64 % bits;
    uint64_t slot = (UINT64_C(1) << bits) - 1, one = UINT64_MAX / slot >> rest, low = one * (slot >> 1);
    uint64_t slots = layer->geometry->capacity, at = 0, items = 0;

    for (; slots - at >= each; at += each) {
        uint64_t some = cuckoo_get_bits(layer, at * bits, each * bits) & UINT64_MAX >> rest;
        uint64_t taken = (((some & low) + low) | some) >> (bits - 1) & one; /* 1 for each slot that is not 0 */
        items += taken * one >> bits * (each - 1) & slot;
    }
    for (; at < slots; at++)
        items += cuckoo_get(layer, at) != 0;
    return items;
}

void cuckoo_recount(struct bloom_filter *filter)
{
    struct bloom_layer *layer = bloom_filter_newest(filter);

    for (; layer; layer = bloom_layer_older(layer))
        atomic_store_explicit(&layer->items, cuckoo_count_taken(layer), memory_order_relaxed);
}

/* ---- stills as filters ---- */

static void free_shape(struct bloom_filter *shape)
{
    bloom_filter_deinit_uncharged(shape);
    free(shape);
}

/* A filter with the first n layers; NULL without memory. Its words take memory as they are written, and have a count of
 * their own (count_copies()). */
static struct bloom_filter *make_shape(const struct bloom_filter *filter, unsigned n, struct errbuf *err)
{
    struct bloom_class *class = bloom_filter_class(filter);
    struct bloom_filter *shape = malloc(bloom_filter_bytes(class));

    if (!shape || bloom_filter_init_uncharged(shape, class, err) != 0) {
        free(shape);
        return NULL;
    }
    for (unsigned i = 1; i < n; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        if (bloom_filter_push_uncharged(shape, &view.shape, err) != 0) {
            free_shape(shape);
            return NULL;
        }
    }
    for (struct bloom_layer *layer = bloom_filter_newest(shape); layer; layer = bloom_layer_older(layer))
        if (!layer->geometry->words_inline)
            bloom_words_stay(&class->pool->maps, bloom_layer_words(layer), bloom_geometry_nwords(layer->geometry));
    return shape;
}

int bloom_still_begin(struct bloom_filter *filter, struct bloom_filter **still_out, struct errbuf *err)
{
    int rc = BLOOM_REFUSED;

    while (rc == BLOOM_REFUSED) { /* it has grown, or shrunk, meanwhile */
        struct bloom_filter *shape = make_shape(filter, bloom_filter_nlayers(filter), err);
        rc = shape ? attach(filter, shape) : -ENOMEM;
        *still_out = rc == 0 ? shape : NULL;
        if (rc != 0 && shape)
            free_shape(shape);
    }
    if (rc != 0)
        errbuf_set(err, "out of memory");
    return rc;
}

void bloom_still_end(struct bloom_filter *still)
{
    if (!still)
        return;
    detach(still);
    free_shape(still);
}
