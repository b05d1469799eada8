/* A batch is the hashes of its items; bits are derived when they are needed, by the prefetch and by the test. That costs
 * less than to write 7 and more numbers of 8 bytes per item and read them again. */
#include "bloom_batch.h"

#include "bloom_layer.h"
#include "check.h"

/* A layer of more bytes than this is prefetched: about what the second-level cache holds. */
#define CACHE_BYTES (UINT64_C(2) << 20)

/* Beyond the last-level cache the misses queue up. Prefetches that come in bursts, as vector code gives them, then hold up
 * more than those that come one by one as the scalar walk finds them: 47 against 41 ns for an item with k = 7. */
#define MEMORY_BYTES (UINT64_C(32) << 20)

/* Staged: of absent items in a layer that is half full a quarter gets past so many. */
#define FIRST_WORDS 2

#define SMALL_PAGE 4096
#define HUGE_PAGE  (UINT64_C(2) << 20)

/* Fewer are hashed one by one. */
#define FEW 3

/* With a growth factor of 2 the layers further down hold less than a thirtieth of the items: cached, or rarely asked. */
#define OLDER_AHEAD 4

/* Of the layers below only the first words are prefetched: in a layer that is half full three items of four go no further. */
#define OLDER_WORDS 2

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

static inline bool is_in_memory(const struct bloom_layer *layer)
{
    return layer_bytes(layer) > MEMORY_BYTES;
}

/* Words `from` to `to` - 1 of the `wanted` items, into the second-level cache: the first level has too few miss buffers for
 * the lines of a batch. */
static void prefetch_scalar(const struct bloom_batch *batch, const struct bloom_layer *layer, unsigned from, unsigned to,
                            uint32_t wanted)
{
    const _Atomic uint64_t *words = bloom_layer_words(layer);

    for (; wanted; wanted &= wanted - 1) {
        struct bloom_walk walk = bloom_walk_start(layer->geometry, hash_of(batch, (unsigned)__builtin_ctz(wanted)));
        bloom_walk_skip(&walk, from);
        for (unsigned j = from; j < to; j++)
            __builtin_prefetch((const void *)&words[bloom_walk_next(&walk) >> 6], 0, 2);
    }
    __asm__ volatile(""); /* gcc leaves out calls of functions that do nothing but prefetch */
}

static void prefetch(const struct bloom_batch *batch, const struct bloom_layer *layer, unsigned count)
{
    if (bloom_vector_fits(layer->geometry) && !is_in_memory(layer))
        bloom_vector_prefetch(bloom_layer_words(layer), layer->geometry, batch->h1, batch->h2, batch->n, count);
    else
        prefetch_scalar(batch, layer, 0, count, all_of(batch));
}

static void hash(struct bloom_batch *batch, const struct bloom_item *items, size_t n)
{
    if (bloom_vector_enabled && n >= FEW) {
        bloom_vector_hash(items, n, batch->h1, batch->h2);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct bloom_hash hash = murmur3_hash(items[i].ptr, items[i].len);
        batch->h1[i] = hash.h1;
        batch->h2[i] = hash.h2;
    }
}

/* `count`: words of each item in the newest layer. */
static void fetch(const struct bloom_batch *batch, const struct bloom_layer *layer, unsigned count)
{
    prefetch(batch, layer, count);
    for (unsigned i = 0; i < OLDER_AHEAD && (layer = bloom_layer_older(layer)); i++) {
        if (layer_bytes(layer) > CACHE_BYTES)
            prefetch(batch, layer, layer->geometry->k < OLDER_WORDS ? layer->geometry->k : OLDER_WORDS);
    }
}

static void begin(struct bloom_batch *batch, const struct bloom_item *items, size_t n)
{
    CHECK(n <= BLOOM_BATCH);
    batch->n = (uint32_t)n;
    batch->tested = NULL;
    hash(batch, items, n);
}

void bloom_batch_start(struct bloom_batch *batch, const struct bloom_filter *filter, const struct bloom_item *items,
                       size_t n)
{
    const struct bloom_layer *layer = bloom_filter_newest(filter);

    begin(batch, items, n);
    if (layer_bytes(layer) > CACHE_BYTES)
        fetch(batch, layer, layer->geometry->k);
}

bool bloom_batch_start_staged(struct bloom_batch *batch, const struct bloom_filter *filter, const struct bloom_item *items,
                              size_t n)
{
    const struct bloom_layer *layer = bloom_filter_newest(filter);

    if (layer->geometry->k <= FIRST_WORDS || !is_in_memory(layer)) {
        bloom_batch_start(batch, filter, items, n);
        return false;
    }
    begin(batch, items, n);
    fetch(batch, layer, FIRST_WORDS);
    return true;
}

/* Those of the `wanted` items that are in the layer. */
static uint32_t query_layer(const struct bloom_batch *batch, const struct bloom_layer *layer, uint32_t wanted)
{
    uint32_t present = 0;

    if (batch->n >= FEW && bloom_vector_fits(layer->geometry))
        return bloom_vector_query(bloom_layer_words(layer), layer->geometry, batch->h1, batch->h2, wanted);
    for (; wanted; wanted &= wanted - 1) {
        unsigned i = (unsigned)__builtin_ctz(wanted);
        present |= (uint32_t)bloom_layer_test(layer, hash_of(batch, i)) << i;
    }
    return present;
}

void bloom_batch_fetch(const struct bloom_batch *batch, const struct bloom_filter *filter)
{
    const struct bloom_layer *newest = bloom_filter_newest(filter);

    if (layer_bytes(newest) <= CACHE_BYTES) /* otherwise they are on their way */
        prefetch(batch, newest, newest->geometry->k);
}

/* Those that have their first bits in the layer. */
static uint32_t query_first(const struct bloom_batch *batch, const struct bloom_layer *layer)
{
    const _Atomic uint64_t *words = bloom_layer_words(layer);
    uint32_t present = 0;

    for (unsigned i = 0; i < batch->n; i++) {
        struct bloom_walk walk = bloom_walk_start(layer->geometry, hash_of(batch, i));
        uint64_t all = 1;
        for (unsigned j = 0; j < FIRST_WORDS; j++) {
            uint64_t bit = bloom_walk_next(&walk);
            all &= atomic_load_explicit(&words[bit >> 6], memory_order_relaxed) >> (bit & 63);
        }
        present |= (uint32_t)all << i;
    }
    return present;
}

void bloom_batch_narrow(const struct bloom_batch *batch, const struct bloom_filter *filter)
{
    const struct bloom_layer *layer = bloom_filter_newest(filter);

    if (layer->geometry->k > FIRST_WORDS) /* it may have been added since the start */
        prefetch_scalar(batch, layer, FIRST_WORDS, layer->geometry->k, query_first(batch, layer));
}

uint32_t bloom_batch_query(const struct bloom_batch *batch, const struct bloom_filter *filter)
{
    const struct bloom_layer *layer = bloom_filter_newest(filter);
    uint32_t all = all_of(batch), present = query_layer(batch, layer, all);

    while (present != all && (layer = bloom_layer_older(layer)))
        present |= query_layer(batch, layer, all & ~present);
    bloom_found();
    return present;
}

/* ---- adds ----------------------------------------------------------------------------------------------------------- */

/* What has been found once will always be found: bits stay set. What has not may have been added since by anybody. */
enum bloom_add bloom_batch_add(struct bloom_batch *batch, size_t i, struct bloom_filter *filter,
                               const struct bloom_journal *journal, struct errbuf *err)
{
    uint64_t bit[BLOOM_PROBE_BITS];

    CHECK(i < batch->n);
    if (!batch->tested) {
        batch->tested = bloom_filter_newest(filter); /* before the test: what comes later is tested under the lock */
        batch->present = bloom_batch_query(batch, filter);
    }
    if (batch->present >> i & 1)
        return BLOOM_PRESENT;
    bloom_layer_bits(batch->tested, hash_of(batch, i), bit);
    return bloom_filter_add_absent(filter, hash_of(batch, i), batch->tested, bit, journal, err);
}

/* Of each item those bits in the newest layer that are not set. As bits stay set, these decide and are to be set by an add;
 * the words of the others, half of them in a full layer, need not be written to memory again. */
struct missing {
    uint64_t bit[BLOOM_BATCH][BLOOM_PROBE_BITS];
    uint8_t n[BLOOM_BATCH];
};

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

/* Those items that are in the filter. Of the others, what they miss. */
static uint32_t locate(const struct bloom_batch *batch, const struct bloom_layer *newest, struct missing *missing)
{
    const struct bloom_layer *layer = newest;
    uint32_t all = all_of(batch), present = 0;

    if (bloom_vector_fits(newest->geometry)) {
        present = bloom_vector_locate(bloom_layer_words(newest), newest->geometry, batch->h1, batch->h2, batch->n,
                                      missing->bit, missing->n);
    } else {
        for (size_t i = 0; i < batch->n; i++) {
            bloom_layer_bits(newest, hash_of(batch, i), missing->bit[i]);
            missing->n[i] = (uint8_t)keep_missing(newest, missing->bit[i]);
            present |= (uint32_t)(missing->n[i] == 0) << i;
        }
    }
    while (present != all && (layer = bloom_layer_older(layer)))
        present |= query_layer(batch, layer, all & ~present);
    bloom_found();
    return present;
}

/* The first write to a page has the kernel make it, which takes a microsecond and more: not under the lock, where all who
 * add to the filter would wait. Zero is replaced by zero, in one step, so this changes nothing, whatever others write.
 * After two items for each page, of some seven bits each, nearly all pages are there. The same holds for huge pages: from then
 * on the layer takes no more memory with these. */
static void touch_pages(struct bloom_pool *pool, const struct bloom_layer *layer, const struct missing *missing,
                        uint32_t absent)
{
    _Atomic uint64_t *words = bloom_layer_words(layer);
    uint64_t items = atomic_load_explicit(&layer->items, memory_order_relaxed);

    if (layer_bytes(layer) < BLOOM_MAPPED_BYTES || items >= layer_bytes(layer) / SMALL_PAGE * 2)
        return;
    if (items >= layer_bytes(layer) / HUGE_PAGE)
        bloom_words_in_use(&pool->maps, words);
    for (; absent; absent &= absent - 1) {
        unsigned i = (unsigned)__builtin_ctz(absent);
        for (unsigned j = 0; j < missing->n[i]; j++) {
            _Atomic uint64_t *word = &words[missing->bit[i][j] >> 6];
            uint64_t zero = 0;
            if (atomic_load_explicit(word, memory_order_relaxed) == 0)
                atomic_compare_exchange_strong_explicit(word, &zero, 0, memory_order_relaxed, memory_order_relaxed);
        }
    }
}

/* Adds those of the `absent` items, in order, that have a place in the layer that was the newest when they were tested, and
 * still is, under the filter's lock: what bloom_filter_add_absent() does for one. What is read of words and of the count was
 * last written by somebody who has held the lock before. Bits that were found set outside of it stay set. Returns those that
 * it has not got to. A function of its own, so that what it needs for each item stays in registers. */
static __attribute__((noinline)) uint32_t add_all_absent(struct bloom_layer *newest, const struct bloom_batch *batch,
                                                         const struct missing *missing, uint32_t absent,
                                                         const struct bloom_journal *journal, uint32_t *added_out)
{
    const struct bloom_geometry *geometry = newest->geometry;
    _Atomic uint64_t *words = bloom_layer_words(newest);
    const uint64_t capacity = geometry->capacity;
    uint64_t items = atomic_load_explicit(&newest->items, memory_order_relaxed);
    uint32_t added = 0;

    for (; absent; absent &= absent - 1) {
        unsigned i = (unsigned)__builtin_ctz(absent);
        const uint64_t *bit = missing->bit[i];
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
                            const struct bloom_batch *batch, const struct missing *missing, uint32_t absent,
                            const struct bloom_journal *journal, uint32_t *added)
{
    struct bloom_lock *lock = bloom_pool_lock_of(pool, filter);

    bloom_lock_take(lock);
    if (bloom_filter_newest(filter) == newest)
        absent = add_all_absent(newest, batch, missing, absent, journal, added);
    bloom_lock_give(lock);
    return absent;
}

/* The rare way of add_quickly()'s items: with all of their bits. */
static __attribute__((noinline)) enum bloom_add add_slowly(struct bloom_filter *filter, struct bloom_layer *newest,
                                                           struct bloom_hash hash, const struct bloom_journal *journal,
                                                           struct errbuf *err)
{
    uint64_t bit[BLOOM_PROBE_BITS];

    bloom_layer_bits(newest, hash, bit);
    return bloom_filter_add_absent(filter, hash, newest, bit, journal, err);
}

/* All bits are derived, and looked for, before the lock is taken: it is held for 0.3 us. */
size_t bloom_batch_add_all(const struct bloom_batch *batch, size_t from, struct bloom_filter *filter,
                           const struct bloom_journal *journal, struct errbuf *err, uint32_t *added_out,
                           enum bloom_add *refused_out)
{
    struct bloom_pool *pool = bloom_filter_class(filter)->pool;
    struct bloom_layer *newest = bloom_filter_newest(filter);
    bool twins = bloom_pool_twin(pool, filter) != NULL;
    struct missing missing;
    uint32_t absent = all_of(batch) & ~locate(batch, newest, &missing) & ~(uint32_t)((UINT64_C(1) << from) - 1);

    CHECK(from <= batch->n);
    *added_out = 0;
    touch_pages(pool, newest, &missing, absent);
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
