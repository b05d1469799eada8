/* A batch holds the hashes of its items. The prefetch and the test each derive the bits again: that costs less than
 * writing and reading 7 or more numbers of 8 bytes per item. */
#include "bloom_batch.h"

#include <string.h>

#include "bloom_layer.h"
#include "bloom_layer_add.h"
#include "bloom_part.h"
#include "bloom_run.h"
#include "bloom_window.h"
#include "check.h"

/* Layers larger than this, about the second-level cache, are prefetched. */
#define CACHE_BYTES (UINT64_C(2) << 20)

#define SMALL_PAGE 4096
#define YOUNG                                                                                          \
    8 /* items of a batch while each of their bits may be the first in its page: they take less than a \
       * millisecond */

/* Fewer are hashed one by one. */
#define FEW 3

/* With a growth factor of 2 the layers further down hold less than a thirtieth of the items: cached, or rarely read. */
#define OLDER_AHEAD 4

static inline uint64_t layer_bytes(const struct bloom_layer *layer)
{
    return bloom_geometry_nwords(layer->geometry) * 8;
}

bool bloom_filter_beyond_cache(const struct bloom_filter *filter)
{
    return layer_bytes(bloom_filter_newest(filter)) > CACHE_BYTES;
}

static inline struct bloom_hash hash_of(const struct bloom_batch *batch, size_t i)
{
    return (struct bloom_hash){batch->h1[i], batch->h2[i]};
}

static inline uint32_t all_of(const struct bloom_batch *batch)
{
    return (uint32_t)((UINT64_C(1) << batch->n) - 1);
}

/* Prefetches words `from` to `to` - 1 of the `wanted` items into the second-level cache: the first level has too few
 * miss buffers for the lines of a batch. */
BLOOM_WALKS void prefetch_walks(const struct bloom_batch *batch, const struct bloom_layer *layer, unsigned from,
                                unsigned to, uint32_t wanted, enum bloom_walk_kind kind)
{
    const _Atomic uint64_t *words = bloom_layer_words(layer);

    for (; wanted; wanted &= wanted - 1) {
        struct bloom_walk walk = bloom_walk_start(layer->geometry, hash_of(batch, (unsigned)__builtin_ctz(wanted)));
        bloom_walk_skip(&walk, from);
        for (unsigned j = from; j < to; j++)
            __builtin_prefetch((const void *)&words[bloom_walk_step(&walk, kind) >> 6], 0, 2);
    }
    __asm__ volatile(""); /* gcc removes calls of functions that only prefetch */
}

static void prefetch_scalar(const struct bloom_batch *batch, const struct bloom_layer *layer, unsigned from,
                            unsigned to, uint32_t wanted)
{
    BLOOM_BY_WALK(layer->geometry, prefetch_walks, batch, layer, from, to, wanted);
}

/* In a far layer the misses queue up. Bursts of prefetches, as from vector code, then take longer than single ones from
 * the scalar walk: 47 against 41 ns for an item with k = 7. */
static void prefetch(const struct bloom_batch *batch, const struct bloom_layer *layer, unsigned count)
{
    if (bloom_vector_fits(layer->geometry) && !bloom_geometry_is_far(layer->geometry))
        bloom_vector_prefetch(bloom_layer_words(layer), layer->geometry, batch->h1, batch->h2, batch->n, count);
    else
        prefetch_scalar(batch, layer, 0, count, all_of(batch));
}

static void hash_plain(struct bloom_batch *batch, const struct bloom_geometry *geometry, const struct bloom_item *items,
                       size_t n)
{
    if (bloom_vector_enabled && n >= FEW && bloom_vector_hashes[geometry->hash]) {
        bloom_vector_hashes[geometry->hash](items, n, batch->h1, batch->h2);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct bloom_hash hash = bloom_geometry_hash_plain(geometry, items[i].ptr, items[i].len);
        batch->h1[i] = hash.h1;
        batch->h2[i] = hash.h2;
    }
}

static __attribute__((noinline)) void hash_keyed(struct bloom_batch *batch, const struct bloom_geometry *geometry,
                                                 const struct bloom_item *items, size_t n)
{
    unsigned char bytes[BLOOM_BATCH][SIPHASH_BYTES];
    struct bloom_item keyed[BLOOM_BATCH];
    const void *data[BLOOM_BATCH];
    size_t len[BLOOM_BATCH];

    if (n == 0)
        return;
    if (bloom_geometry_is_seeded(geometry)) {
        valkey_hashes(geometry->seed, items, n, batch->h1, batch->h2);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        data[i] = items[i].ptr;
        len[i] = items[i].len;
    }
    siphash_many(&geometry->key->secret.items, data, len, n, bytes);
    if (bloom_vector_enabled && n >= FEW && geometry->hash == BLOOM_HASH_MURMUR3) {
        bloom_vector_hash_sixteen((const unsigned char(*)[SIPHASH_BYTES])bytes, n, batch->h1, batch->h2);
        return;
    }
    for (size_t i = 0; i < n; i++)
        keyed[i] = (struct bloom_item){(const char *)bytes[i], SIPHASH_BYTES};
    hash_plain(batch, geometry, keyed, n);
}

static inline void hash(struct bloom_batch *batch, const struct bloom_geometry *geometry,
                        const struct bloom_item *items, size_t n)
{
    if (__builtin_expect(geometry->key != NULL, 0))
        hash_keyed(batch, geometry, items, n);
    else
        hash_plain(batch, geometry, items, n);
}

/* `count`: words of each item in the newest layer. */
static void fetch(const struct bloom_batch *batch, const struct bloom_layer *layer, unsigned count)
{
    prefetch(batch, layer, count);
    for (unsigned i = 0; i < OLDER_AHEAD && (layer = bloom_layer_older(layer)); i++)
        if (layer_bytes(layer) > CACHE_BYTES)
            prefetch(batch, layer,
                     layer->geometry->walk == BLOOM_WALK_BLOCK ? 1 : bloom_geometry_first_bits(layer->geometry));
}

static void hash_batch(struct bloom_batch *batch, const struct bloom_layer *layer, const struct bloom_item *items,
                       size_t n)
{
    CHECK(n <= BLOOM_BATCH);
    batch->n = (uint32_t)n;
    batch->tested = NULL;
    hash(batch, layer->geometry, items, n);
}

void bloom_batch_start(struct bloom_batch *batch, const struct bloom_filter *filter, const struct bloom_item *items,
                       size_t n)
{
    const struct bloom_layer *layer = bloom_filter_newest(filter);

    hash_batch(batch, layer, items, n);
    if (layer_bytes(layer) > CACHE_BYTES)
        fetch(batch, layer, bloom_geometry_lines(layer->geometry));
}

void bloom_batch_start_hashed(struct bloom_batch *batch, const uint64_t *h1, const uint64_t *h2, size_t n)
{
    CHECK(n <= BLOOM_BATCH);
    batch->n = (uint32_t)n;
    batch->tested = NULL;
    memcpy(batch->h1, h1, n * sizeof(*h1));
    memcpy(batch->h2, h2, n * sizeof(*h2));
}

bool bloom_same_hash(const struct bloom_filter *a, const struct bloom_filter *b)
{
    const struct bloom_geometry *of_a = bloom_filter_newest(a)->geometry, *of_b = bloom_filter_newest(b)->geometry;

    return of_a->key == of_b->key && of_a->hash == of_b->hash;
}

bool bloom_batch_start_staged(struct bloom_batch *batch, const struct bloom_filter *filter,
                              const struct bloom_item *items, size_t n)
{
    const struct bloom_layer *layer = bloom_filter_newest(filter);

    if (bloom_geometry_lines(layer->geometry) <= BLOOM_FIRST_BITS || !bloom_geometry_is_far(layer->geometry)) {
        bloom_batch_start(batch, filter, items, n);
        return false;
    }
    hash_batch(batch, layer, items, n);
    fetch(batch, layer, BLOOM_FIRST_BITS);
    return true;
}

/* bloom_layer_test() of the `wanted` items. */
static uint32_t query_layer(const struct bloom_batch *batch, const struct bloom_layer *layer, uint32_t wanted)
{
    uint32_t present = 0;

    if (batch->n >= FEW && bloom_vector_fits(layer->geometry))
        return bloom_vector_query(bloom_layer_words(layer), layer->geometry, batch->h1, batch->h2, wanted);
    if (blocked_vector_fits(layer->geometry))
        return blocked_vector_query(bloom_layer_words(layer), layer->geometry, batch->h1, batch->h2, wanted);
    for (; wanted; wanted &= wanted - 1) {
        unsigned i = (unsigned)__builtin_ctz(wanted);
        present |= (uint32_t)bloom_layer_test(layer, hash_of(batch, i)) << i;
    }
    return present;
}

/* bloom_run_test() of the `wanted` items. */
static uint32_t query_run(const struct bloom_batch *batch, const struct bloom_layer *layer, uint32_t wanted)
{
    uint32_t present = 0;

    for (; wanted; wanted &= wanted - 1) {
        unsigned i = (unsigned)__builtin_ctz(wanted);
        present |= (uint32_t)bloom_run_test(layer, hash_of(batch, i)) << i;
    }
    return present;
}

/* `present`, the items that are in the layer, and those that are in one of the layers below. */
static inline uint32_t query_below(const struct bloom_batch *batch, const struct bloom_layer *layer, uint32_t present)
{
    uint32_t all = all_of(batch);

    bool by_items = batch->n >= FEW && blocked_vector_fits(layer->geometry); /* the vectors overlap their misses */

    while (present != all && layer->geometry->index != 0) {
        if (!by_items && bloom_layer_has_run(layer->geometry)) {
            present |= query_run(batch, layer, all & ~present);
            layer = bloom_layer_run(layer)->oldest;
        } else {
            layer = bloom_layer_older(layer);
            present |= query_layer(batch, layer, all & ~present);
        }
    }
    return present;
}

void bloom_batch_fetch(const struct bloom_batch *batch, const struct bloom_filter *filter)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter);

    if (layer_bytes(newest) <= CACHE_BYTES) /* the words of larger ones are on their way */
        prefetch(batch, newest, bloom_geometry_lines(newest->geometry));
}

/* The items whose first bits are set in the layer. */
BLOOM_WALKS void query_first(const struct bloom_batch *batch, const struct bloom_layer *layer, uint32_t *present_out,
                             enum bloom_walk_kind kind)
{
    for (unsigned i = 0; i < batch->n; i++) {
        struct bloom_walk walk = bloom_walk_start(layer->geometry, hash_of(batch, i));
        *present_out |= (uint32_t)bloom_walk_test_next(bloom_layer_words(layer), &walk, BLOOM_FIRST_BITS, kind) << i;
    }
}

void bloom_batch_narrow(const struct bloom_batch *batch, const struct bloom_filter *filter)
{
    const struct bloom_layer *layer = bloom_filter_newest(filter);
    uint32_t present = 0;

    if (bloom_geometry_lines(layer->geometry) <= BLOOM_FIRST_BITS) /* the layer may have been added since the start */
        return;
    BLOOM_BY_WALK(layer->geometry, query_first, batch, layer, &present);
    prefetch_scalar(batch, layer, BLOOM_FIRST_BITS, layer->geometry->k, present);
}

/* bloom_batch_query() of a window. An item that was forgotten during the search may have been found in a newer part,
 * which was tested before. */
static __attribute__((noinline)) uint32_t query_window(const struct bloom_batch *batch,
                                                       const struct bloom_filter *filter)
{
    const struct bloom_window *window = bloom_filter_window(filter);
    uint32_t all = all_of(batch), present = 0;
    uint64_t forgotten;

    bloom_window_forget((struct bloom_filter *)filter);
    do {
        forgotten = atomic_load_explicit(&window->forgotten, memory_order_acquire);
        const struct bloom_layer *layer = bloom_filter_newest(filter);
        for (; present != all && layer; layer = bloom_layer_older(layer))
            if (bloom_part_is_alive(bloom_layer_part(layer)))
                present |= query_layer(batch, layer, all & ~present);
        bloom_found();
    } while (present != all && forgotten != atomic_load_explicit(&window->forgotten, memory_order_relaxed));
    return present;
}

uint32_t bloom_batch_query(const struct bloom_batch *batch, const struct bloom_filter *filter)
{
    const struct bloom_layer *layer = bloom_filter_newest(filter);

    if (__builtin_expect(layer->geometry->window, 0))
        return query_window(batch, filter);
    uint32_t present = query_below(batch, layer, query_layer(batch, layer, all_of(batch)));

    bloom_found();
    return present;
}

/* ---- queries of many items ---- */

/* Batches on their way: the first words of one, the other words of the one before, and the one that is answered. */
#define DEPTH 3

#define BATCH_BYTES ((size_t)64 * 1024) /* of a batch's items without the last one */

/* Whether the thread's last batch of bloom_query_all() found less than half of its items: a guess for the next one. */
static _Thread_local bool found_few;

/* Starts a batch of the items from *next on. Returns whether it is to be narrowed. */
static inline bool start_next(struct bloom_batch *batch, const struct bloom_filter *filter,
                              const struct bloom_questions *questions, size_t *next, bool staged, bool *long_out)
{
    struct bloom_item items[BLOOM_BATCH];
    size_t at = *next, n = 0, bytes = 0;

    for (; n < BLOOM_BATCH && at + n < questions->end && bytes < BATCH_BYTES; n++) {
        items[n] = questions->item(questions->items, at + n);
        bytes += items[n].len;
    }
    *next = at + n;
    *long_out = bytes >= BATCH_BYTES;
    if (staged)
        return bloom_batch_start_staged(batch, filter, items, n);
    bloom_batch_start(batch, filter, items, n);
    if (questions->cold)
        bloom_batch_fetch(batch, filter);
    return false;
}

static __attribute__((noinline)) void query_ahead(const struct bloom_filter *filter,
                                                  const struct bloom_questions *questions)
{
    struct bloom_batch batches[DEPTH];
    bool staged[DEPTH], are_long = false; /* then hashing takes longer than the words: none goes ahead */
    size_t next = questions->first, started = 0, narrowed = 0, answered = 0, done = next;

    while (done < questions->end) {
        for (; next < questions->end && started < answered + (are_long ? 1 : DEPTH); started++)
            staged[started % DEPTH] =
                start_next(&batches[started % DEPTH], filter, questions, &next, found_few, &are_long);
        for (; narrowed < started && (narrowed + 1 < started || narrowed == answered); narrowed++)
            if (staged[narrowed % DEPTH])
                bloom_batch_narrow(&batches[narrowed % DEPTH], filter);
        const struct bloom_batch *batch = &batches[answered++ % DEPTH];
        uint32_t present = bloom_batch_query(batch, filter);
        found_few = (unsigned)__builtin_popcount(present) < batch->n / 2;
        done += batch->n;
        if (!questions->answer(questions->ctx, done, present, batch->n))
            return;
    }
}

void bloom_query_all(const struct bloom_filter *filter, const struct bloom_questions *questions)
{
    size_t next = questions->first;
    struct bloom_batch batch;
    bool are_long;

    if (questions->end - next > BLOOM_BATCH) {
        query_ahead(filter, questions);
        return;
    }
    while (next < questions->end) {
        (void)start_next(&batch, filter, questions, &next, false, &are_long);
        if (!questions->answer(questions->ctx, next, bloom_batch_query(&batch, filter), batch.n))
            return;
    }
}

/* ---- adds ---- */

/* An item that was found once stays found, as bits stay set. Other items may have been added since by any thread. */
enum bloom_add bloom_batch_add(struct bloom_batch *batch, size_t i, struct bloom_filter *filter,
                               const struct bloom_journal *journal, struct errbuf *err)
{
    uint64_t bit[BLOOM_PROBE_BITS];

    CHECK(i < batch->n);
    if (bloom_filter_is_window(filter))
        return bloom_window_add(filter, (const struct bloom_hash[1]){hash_of(batch, i)}, 1, journal, err);
    if (!batch->tested) {
        batch->tested = bloom_filter_newest(filter); /* before the test: later layers are tested under the lock */
        batch->present = bloom_batch_query(batch, filter);
    }
    if (batch->present >> i & 1)
        return BLOOM_PRESENT;
    bloom_layer_bits(batch->tested, hash_of(batch, i), bit);
    return bloom_filter_add_absent(filter, hash_of(batch, i), batch->tested, bit, journal, err);
}

/* The bits of each item that are not set in the newest layer. Because bits stay set, an add must test and set only
 * these. The words of the others, half of them in a full layer, need no write. */
struct missing {
    unsigned stride; /* from one item's bits to the next one's: no more than k needs, so that they share cache lines */
    uint8_t n[BLOOM_BATCH];
    uint64_t bit[BLOOM_BATCH * BLOOM_PROBE_BITS];
};

static inline uint64_t *missing_of(struct missing *missing, size_t i)
{
    return missing->bit + i * missing->stride;
}

static unsigned keep_missing(const struct bloom_layer *layer, uint64_t bit[BLOOM_PROBE_BITS])
{
    const _Atomic uint64_t *words = bloom_layer_words(layer);
    unsigned n = 0;

    for (unsigned i = 0, k = layer->geometry->k; i < k; i++) {
        uint64_t b = bit[i];
        bit[n] = b;
        n += !(atomic_load_explicit(&words[b >> 6], memory_order_relaxed) >> (b & 63) & 1);
    }
    return n;
}

/* Returns the items that are in the filter, and collects the missing bits of the others. */
static uint32_t locate(const struct bloom_batch *batch, const struct bloom_layer *newest, struct missing *missing)
{
    uint32_t present = 0;

    missing->stride = bloom_vector_stride(newest->geometry);
    if (bloom_vector_fits(newest->geometry)) {
        present = bloom_vector_locate(bloom_layer_words(newest), newest->geometry, batch->h1, batch->h2, batch->n,
                                      missing->bit, missing->n);
    } else if (blocked_vector_fits(newest->geometry)) {
        present = blocked_vector_locate(bloom_layer_words(newest), newest->geometry, batch->h1, batch->h2, batch->n,
                                        missing->bit, missing->n);
    } else {
        for (size_t i = 0; i < batch->n; i++) {
            bloom_layer_bits(newest, hash_of(batch, i), missing_of(missing, i));
            missing->n[i] = (uint8_t)keep_missing(newest, missing_of(missing, i));
            present |= (uint32_t)(missing->n[i] == 0) << i;
        }
    }
    present = query_below(batch, newest, present);
    bloom_found();
    return present;
}

/* Whether adds may still be the first to write to a page of the layer. After one item per page, with some seven bits
 * each, nearly all pages exist; of blocks after four. */
static bool is_young(const struct bloom_layer *layer)
{
    return layer_bytes(layer) >= BLOOM_MAPPED_BYTES &&
           atomic_load_explicit(&layer->items, memory_order_relaxed) <
               layer_bytes(layer) / SMALL_PAGE * (bloom_geometry_lines(layer->geometry) == 1 ? 4 : 1);
}

size_t bloom_batch_adds(const struct bloom_filter *filter)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter);
    return is_young(newest) && bloom_geometry_lines(newest->geometry) > 1 ? YOUNG : BLOOM_BATCH;
}

unsigned bloom_filter_young_bits(const struct bloom_filter *filter)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter);
    return is_young(newest) ? bloom_geometry_lines(newest->geometry) : 0;
}

/* Adds the `absent` items, in order, under the filter's lock, while the layer that was the newest at their test has
 * room: bloom_filter_add_absent() for many items. The layer must still be the newest. Words and count were last written
 * by earlier holders of the lock. Bits that were found set without the lock stay set. Returns the items that are left.
 * Its own function, so that the state of the loop stays in registers. */
static __attribute__((noinline)) uint32_t add_all_absent(struct bloom_layer *newest, const struct bloom_batch *batch,
                                                         struct missing *missing, uint32_t absent,
                                                         const struct bloom_journal *journal, uint32_t *added_out)
{
    const struct bloom_geometry *geometry = newest->geometry;
    _Atomic uint64_t *words = bloom_layer_words(newest);
    const uint64_t capacity = geometry->capacity;
    uint64_t items = atomic_load_explicit(&newest->items, memory_order_relaxed);
    uint32_t added = 0;

    for (; absent; absent &= absent - 1) {
        unsigned i = (unsigned)__builtin_ctz(absent);
        const uint64_t *bit = missing_of(missing, i);
        unsigned n = missing->n[i];

        if (bloom_test_bits(words, bit, n) || bloom_layer_test_since(newest, newest, hash_of(batch, i)))
            continue;
        if (items >= capacity)
            break;
        atomic_store_explicit(&newest->items, ++items, memory_order_relaxed);
        if (journal)
            journal->ops->add(journal->ctx, journal->id, hash_of(batch, i), geometry->index, items);
        bloom_set_bits(words, bit, n);
        added |= UINT32_C(1) << i;
    }
    *added_out |= added;
    return absent;
}

/* The same for a filter without a twin, if `newest` still is its newest layer. */
static uint32_t add_quickly(struct bloom_pool *pool, struct bloom_filter *filter, struct bloom_layer *newest,
                            const struct bloom_batch *batch, struct missing *missing, uint32_t absent,
                            const struct bloom_journal *journal, uint32_t *added)
{
    struct bloom_lock *lock = bloom_pool_lock_of(pool, filter);

    bloom_lock_take(lock);
    if (bloom_filter_newest(filter) == newest)
        absent = add_all_absent(newest, batch, missing, absent, journal, added);
    bloom_lock_give(lock);
    return absent;
}

/* Adds an item that add_quickly() has left, with all of its bits; rare. */
static __attribute__((noinline)) enum bloom_add add_slowly(struct bloom_filter *filter, struct bloom_layer *newest,
                                                           struct bloom_hash hash, const struct bloom_journal *journal,
                                                           struct errbuf *err)
{
    uint64_t bit[BLOOM_PROBE_BITS];

    bloom_layer_bits(newest, hash, bit);
    return bloom_filter_add_absent(filter, hash, newest, bit, journal, err);
}

static __attribute__((noinline)) size_t add_all_to_window(const struct bloom_batch *batch, size_t from,
                                                          struct bloom_filter *filter,
                                                          const struct bloom_journal *journal, struct errbuf *err,
                                                          uint32_t *added_out, enum bloom_add *refused_out)
{
    *added_out = 0;
    for (size_t i = from; i < batch->n; i++) {
        enum bloom_add answer =
            bloom_window_add(filter, (const struct bloom_hash[1]){hash_of(batch, i)}, 1, journal, err);
        if (answer > BLOOM_ADDED) {
            *refused_out = answer;
            return i;
        }
        *added_out |= (uint32_t)answer << i;
    }
    return batch->n;
}

/* All bits are derived and tested before the lock is taken: the lock is held for 0.3 us. */
size_t bloom_batch_add_all(const struct bloom_batch *batch, size_t from, struct bloom_filter *filter,
                           const struct bloom_journal *journal, struct errbuf *err, uint32_t *added_out,
                           enum bloom_add *refused_out)
{
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;
    struct bloom_layer *newest = bloom_filter_newest(filter);
    bool twins = bloom_pool_twin(pool, filter) != NULL;
    struct missing missing;
    uint32_t absent;

    CHECK(from <= batch->n);
    if (__builtin_expect(newest->geometry->window, 0))
        return add_all_to_window(batch, from, filter, journal, err, added_out, refused_out);
    for (size_t i = 0; i < batch->n && is_young(newest); i++) {
        bloom_layer_bits(newest, hash_of(batch, i), missing.bit);
        bloom_layer_touch(newest, missing.bit);
    }
    absent = all_of(batch) & ~locate(batch, newest, &missing) & ~(uint32_t)((UINT64_C(1) << from) - 1);
    *added_out = 0;
    while (absent) {
        if (__builtin_expect(!twins, 1))
            absent = add_quickly(pool, filter, newest, batch, &missing, absent, journal, added_out);
        if (!absent)
            break;
        unsigned i = (unsigned)__builtin_ctz(absent);
        enum bloom_add answer = add_slowly(filter, newest, hash_of(batch, i), journal, err);
        if (answer > BLOOM_ADDED) {
            *refused_out = answer;
            return i;
        }
        *added_out |= (uint32_t)answer << i;
        absent &= absent - 1;
    }
    return batch->n;
}
