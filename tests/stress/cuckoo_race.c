/* Many threads use one cuckoo filter. A present item is never absent to a reader: not while others evict, delete, grow,
 * compact, or delete items that share its fingerprint and buckets. Of threads that add an item at once if it is new
 * exactly one adds it; of threads that delete one occurrence exactly one does. */
#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>

#include "bloom_filter.h"
#include "bloom_pool.h"
#include "cuckoo.h"
#include "rng.h"
#include "stress.h"

#define WRITERS 3
#define STAYING 400
#define ROUNDS  12000

static struct bloom_pool *pool;
static struct bloom_filter *filter;
static uint64_t staying[STAYING];
static atomic_uint writing;
static atomic_uint arrived;

/* Whether these are bytes of one layer. */
static bool has_bytes(const struct bloom_filter *in, uint64_t at, uint64_t len)
{
    unsigned layer;
    uint64_t left;

    return bloom_filter_find_byte(in, &at, &layer, &left) && len <= left;
}

static struct bloom_filter *make(const struct cuckoo_numbers *numbers)
{
    struct bloom_params params;
    struct bloom_shape shape;
    struct bloom_class *class;

    EXPECT(cuckoo_plan(numbers, &params, &shape, NULL) == BLOOM_OK, "set-up");
    EXPECT(bloom_class_get(pool, &params, &shape, &class, NULL) == 0, "set-up");
    struct bloom_filter *made = malloc(bloom_filter_bytes(class));
    EXPECT(made && bloom_filter_init(made, class, NULL) == 0, "set-up");
    bloom_class_release(class);
    return made;
}

static void end(void)
{
    bloom_filter_deinit(filter);
    free(filter);
    EXPECT(bloom_pool_bytes(pool) == 0, "%" PRIu64 " bytes are left", bloom_pool_bytes(pool));
}

/* ---- readers ---- */

static void *read_staying(void *arg)
{
    struct rng rng;

    rng_init(&rng, (uintptr_t)arg);
    while (atomic_load(&writing) > 0) {
        size_t i = rng_below(&rng, STAYING);
        EXPECT(cuckoo_query(filter, staying[i]), "item %zu is absent", i);
    }
    return NULL;
}

/* Looks at what has layers while they come and go. */
static void *look_around(void *arg)
{
    unsigned char bytes[64];

    (void)arg;
    while (atomic_load(&writing) > 0) {
        for (unsigned i = 0, n = bloom_filter_nlayers(filter); i < n; i++) {
            struct bloom_layer_view view;
            bloom_filter_layer(filter, i, &view);
            EXPECT(view.items <= view.capacity, "layer %u has %" PRIu64 " items", i, view.items);
        }
        uint64_t bytes_of = cuckoo_bytes_of(filter);
        if (has_bytes(filter, bytes_of - sizeof(bytes), sizeof(bytes)))
            cuckoo_read(filter, bytes_of - sizeof(bytes), bytes, sizeof(bytes));
    }
    return NULL;
}

/* ---- writers, each with items of its own ---- */

#define OWN 400

/* Keeps the filter as full as it can be: deletes an item of its own for each that it adds. */
static void *write_full(void *arg)
{
    uint64_t own[OWN];
    size_t n = 0;
    struct rng rng;

    rng_init(&rng, 1000 + (uintptr_t)arg);
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t hash = rng_next(&rng);
        if (n < OWN && cuckoo_add(filter, hash, false, NULL, NULL) == BLOOM_ADDED) {
            own[n++] = hash;
        } else if (n > 0) {
            size_t gone = rng_below(&rng, n);
            EXPECT(cuckoo_delete(filter, own[gone], NULL), "an item that was added is not there");
            own[gone] = own[--n];
        }
        if (i % 1000 == 999) {
            for (; n > OWN / 8; n--)
                EXPECT(cuckoo_delete(filter, own[n - 1], NULL), "an item that was added is not there");
            cuckoo_compact_begin(filter, i % 2000 == 999);
        }
        (void)cuckoo_compact(filter, 1, NULL);
    }
    while (n > 0)
        EXPECT(cuckoo_delete(filter, own[--n], NULL), "an item that was added is not there");
    atomic_fetch_sub(&writing, 1);
    return NULL;
}

/* The items that stay are added among others that go again, so that they are in all layers and in both buckets. */
static void fill(struct rng *rng)
{
    uint64_t going[STAYING];

    for (size_t i = 0; i < STAYING; i++) {
        staying[i] = rng_next(rng);
        going[i] = rng_next(rng);
        EXPECT(cuckoo_add(filter, going[i], false, NULL, NULL) == BLOOM_ADDED, "set-up");
        EXPECT(cuckoo_add(filter, staying[i], false, NULL, NULL) == BLOOM_ADDED, "set-up");
    }
    for (size_t i = 0; i < STAYING; i++)
        EXPECT(cuckoo_delete(filter, going[i], NULL), "set-up");
}

static void readers_and_writers(const struct cuckoo_numbers *numbers, uint64_t seed)
{
    static void *(*const threads[])(void *) = {write_full,   write_full,   write_full, read_staying,
                                               read_staying, read_staying, look_around};
    struct rng rng;

    rng_init(&rng, seed);
    filter = make(numbers);
    fill(&rng);
    atomic_store(&writing, WRITERS);
    run_threads(threads, sizeof(threads) / sizeof(threads[0]));
    struct cuckoo_state state;
    cuckoo_state(filter, &state);
    EXPECT(state.items == STAYING, "%" PRIu64 " items at the end", state.items);
    end();
}

/* ---- items that share a fingerprint and, the other way round, the buckets ---- */

static uint64_t one, other;

static void find_swapped(uint64_t buckets)
{
    struct rng rng;

    rng_init(&rng, 4);
    one = rng_next(&rng);
    uint64_t fingerprint = one % 255 + 1, other_bucket = (one ^ fingerprint * 0x5bd1e995u) % buckets;
    do
        other = rng_next(&rng);
    while (other % 255 + 1 != fingerprint || other % buckets != other_bucket || one % buckets == other_bucket);
}

static void *read_one(void *arg)
{
    (void)arg;
    while (atomic_load(&writing) > 0)
        EXPECT(cuckoo_query(filter, one), "the item is absent");
    return NULL;
}

/* One more of the item goes into its second bucket, and the deletion takes the one in the first; with the other item it
 * goes back. At each moment the item has been added again than deleted. */
static void *swap_buckets(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < ROUNDS * 20; i++) {
        uint64_t hash = i % 2 ? other : one;
        EXPECT(cuckoo_add(filter, hash, false, NULL, NULL) == BLOOM_ADDED, "round %u", i);
        EXPECT(cuckoo_delete(filter, hash, NULL), "round %u", i);
    }
    atomic_fetch_sub(&writing, 1);
    return NULL;
}

static void swapped(void)
{
    static void *(*const threads[])(void *) = {swap_buckets, read_one, read_one, read_one};

    filter = make(&(struct cuckoo_numbers){64, 1, 20, 0});
    find_swapped(64);
    EXPECT(cuckoo_add(filter, one, false, NULL, NULL) == BLOOM_ADDED, "set-up");
    atomic_store(&writing, 1);
    run_threads(threads, sizeof(threads) / sizeof(threads[0]));
    end();
}

/* ---- chunks while compactions take layers off ---- */

#define SLOTS          65536
#define CHUNK          65000
#define OPERATIONS_MAX 400000

static struct bloom_replay_item operations[OPERATIONS_MAX];
static size_t noperations;

static void on_add(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal)
{
    (void)ctx;
    (void)id;
    EXPECT(noperations < OPERATIONS_MAX, "too many operations");
    operations[noperations++] = (struct bloom_replay_item){hash, cuckoo_ordinal(layer, ordinal)};
}

static const struct bloom_journal_ops ops = {.add = on_add};
static const struct bloom_journal journal = {.ops = &ops};

/* A chunk of the second layer, whose first slots are empty: a compaction finds the layer empty in the midst of it. */
static void *load_chunks(void *arg)
{
    static unsigned char chunk[CHUNK], none[SLOTS];

    (void)arg;
    for (unsigned at = CHUNK - 600; at < CHUNK; at += 8)
        chunk[at] = (unsigned char)at;
    for (unsigned i = 0; i < 100; i++) {
        while (bloom_filter_nlayers(filter) > 1) /* else all rounds may be over before the first compaction */
            sched_yield();
        cuckoo_set_slots(filter, 0, none, sizeof(none), &journal); /* room for a compaction */
        EXPECT(cuckoo_extend(filter, 2, 0, &journal, NULL) == BLOOM_OK, "round %u", i);
        cuckoo_set_slots(filter, sizeof(none), chunk, CHUNK, &journal);
    }
    atomic_fetch_sub(&writing, 1);
    return NULL;
}

static void *compact(void *arg)
{
    (void)arg;
    while (atomic_load(&writing) > 0) {
        if (bloom_filter_nlayers(filter) < 2) { /* else the journal would have nothing but ends of compactions */
            sched_yield();
            continue;
        }
        cuckoo_compact_begin(filter, true);
        (void)cuckoo_compact(filter, 100, &journal);
    }
    return NULL;
}

static void chunks(void)
{
    static void *(*const threads[])(void *) = {load_chunks, compact, compact};
    struct bloom_filter *again = make(&(struct cuckoo_numbers){SLOTS, 2, 20, 1});
    struct cuckoo_state state, after;

    filter = make(&(struct cuckoo_numbers){SLOTS, 2, 20, 1});
    atomic_store(&writing, 1);
    run_threads(threads, 3);
    for (size_t i = 0; i < noperations; i++)
        EXPECT(cuckoo_replay(again, &operations[i], operations[i].ordinal), "operation %zu", i);
    EXPECT(cuckoo_extend(filter, 2, 0, NULL, NULL) == BLOOM_OK && cuckoo_extend(again, 2, 0, NULL, NULL) == BLOOM_OK,
           "the second layer");
    cuckoo_state(filter, &state);
    cuckoo_state(again, &after);
    EXPECT(state.items == after.items, "%" PRIu64 " and %" PRIu64 " items", state.items, after.items);
    for (uint64_t at = 0; at < state.slots; at++) {
        unsigned char slot, slot_again;
        cuckoo_read(filter, at, &slot, 1);
        cuckoo_read(again, at, &slot_again, 1);
        EXPECT(slot == slot_again, "slot %" PRIu64, at);
    }
    bloom_filter_deinit(again);
    free(again);
    end();
}

/* ---- one winner ---- */

#define THREADS 4
#define ITEMS   3000

static uint64_t items[ITEMS];
static atomic_uint winners[ITEMS];
static _Atomic uint64_t won;

static void meet(unsigned before)
{
    atomic_fetch_add(&arrived, 1);
    while (atomic_load(&arrived) < before)
        ;
}

static void *add_new(void *arg)
{
    (void)arg;
    meet(THREADS);
    for (size_t i = 0; i < ITEMS; i++) {
        if (cuckoo_add(filter, items[i], true, NULL, NULL) == BLOOM_ADDED) {
            atomic_fetch_add(&winners[i], 1);
            atomic_fetch_add(&won, 1);
        }
        EXPECT(cuckoo_query(filter, items[i]), "item %zu is absent", i);
    }
    return NULL;
}

static void *delete_each(void *arg)
{
    (void)arg;
    meet(THREADS);
    for (size_t i = 0; i < ITEMS; i++)
        if (cuckoo_delete(filter, items[i], NULL))
            atomic_fetch_add(&winners[i], 1);
    return NULL;
}

static void *add_each(void *arg)
{
    (void)arg;
    meet(THREADS);
    for (size_t i = 0; i < ITEMS; i++)
        EXPECT(cuckoo_add(filter, items[i], false, NULL, NULL) == BLOOM_ADDED, "item %zu", i);
    return NULL;
}

static void run_all(void *(*fn)(void *))
{
    void *(*const threads[THREADS])(void *) = {fn, fn, fn, fn};

    atomic_store(&arrived, 0);
    run_threads(threads, THREADS);
}

/* Each item that is added has one winner; one that seemed to be there has none. All sub-filters are of the same size
 * here, so items that share a fingerprint and a bucket do so in all of them, and deletions come out even. */
static void one_winner(const struct cuckoo_numbers *numbers)
{
    struct cuckoo_state state;
    uint64_t added = 0;

    filter = make(numbers);
    for (size_t i = 0; i < ITEMS; i++) {
        items[i] = cuckoo_hash(&i, sizeof(i));
        atomic_store(&winners[i], 0);
    }
    atomic_store(&won, 0);
    run_all(add_new);
    cuckoo_state(filter, &state);
    EXPECT(state.items == atomic_load(&won), "%" PRIu64 " items, %" PRIu64 " winners", state.items, atomic_load(&won));
    for (size_t i = 0; i < ITEMS; i++) {
        EXPECT(atomic_load(&winners[i]) <= 1, "item %zu has %u winners", i, atomic_load(&winners[i]));
        added += atomic_load(&winners[i]);
        atomic_store(&winners[i], 0);
    }
    EXPECT(added == state.items && added > ITEMS / 2, "%" PRIu64 " added", added);
    run_all(delete_each);
    added = 0;
    for (size_t i = 0; i < ITEMS; i++)
        added += atomic_load(&winners[i]);
    EXPECT(added == state.items, "%" PRIu64 " of %" PRIu64 " deleted", added, state.items);
    cuckoo_state(filter, &state);
    EXPECT(state.items == 0, "%" PRIu64 " are left", state.items);
    run_all(add_each);
    run_all(delete_each);
    cuckoo_state(filter, &state);
    EXPECT(state.items == 0 && state.deletes > 0, "%" PRIu64 " are left", state.items);
    end();
}

int main(void)
{
    static const struct cuckoo_numbers full[] = {{1024, 4, 50, 0},      {1024, 2, 500, 1},     {256, 8, 20, 2},
                                                 {64, 1, 20, 1},        {800, 4, 500, 2, 0.2}, {500, 4, 500, 2, 0.02},
                                                 {500, 4, 500, 2, 1e-3}};

    EXPECT(bloom_pool_create(&pool) == 0, "set-up");
    for (size_t i = 0; i < sizeof(full) / sizeof(full[0]); i++)
        readers_and_writers(&full[i], i + 1);
    swapped();
    chunks();
    one_winner(&(struct cuckoo_numbers){4096, 2, 20, 1});
    one_winner(&(struct cuckoo_numbers){64, 4, 20, 1});
    one_winner(&(struct cuckoo_numbers){13000, 4, 500, 1, 0.01});
    bloom_pool_destroy(pool);
    return 0;
}
