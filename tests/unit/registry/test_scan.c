/* SCAN over names with chosen hashes: with equal cursor positions, tags, or homes in tables of every size, at both
 * ends of a shard and of all shards, while the tables around them grow and shrink. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rcu.h"
#include "registry_internal.h"
#include "registry.h"

static struct bloom_pool *pool;
static struct reclaimer *reclaimer;
static struct registry *registry;
static struct bloom_class *small_class;
static uint64_t flip, state;

/* ---- names with a hash ---- */

#define FACTOR UINT64_C(0x9fb21c651e98df25)

static uint64_t rotate(uint64_t x, unsigned n)
{
    return x << n | x >> (64 - n);
}

/* The inverse of XXH3 for the 8 bytes of a name, once they have been combined with the seed (xxhash.h, XXH3_rrmxmx()):
 * each step is one to one. */
static uint64_t unmix(uint64_t hash)
{
    uint64_t inverse = FACTOR;

    for (int i = 0; i < 5; i++)
        inverse *= 2 - FACTOR * inverse;
    hash ^= hash >> 28 ^ hash >> 56;
    hash *= inverse;
    hash ^= (hash >> 35) + 8;
    hash *= inverse;
    for (int i = 0; i < 63; i++) /* 64 steps of the linear one are the identity */
        hash ^= rotate(hash, 49) ^ rotate(hash, 24);
    return hash;
}

static uint64_t bytes_of(const char name[8])
{
    uint32_t first, last;

    memcpy(&first, name, 4);
    memcpy(&last, name + 4, 4);
    return (uint64_t)first << 32 | last;
}

/* With the registry's bits for its databases. */
static uint64_t full_hash(struct slice name)
{
    return name_hash(registry->env.seed, name);
}

static struct slice name_with_hash(uint64_t hash)
{
    static char name[8];
    uint64_t bytes = unmix(hash) ^ flip;
    uint32_t first = (uint32_t)(bytes >> 32), last = (uint32_t)bytes;

    memcpy(name, &first, 4);
    memcpy(name + 4, &last, 4);
    struct slice slice = {name, 8};
    cr_assert_eq(full_hash(slice), hash, "xxhash is not what it was");
    return slice;
}

static void setup(void)
{
    struct bloom_params params = {.capacity = 10, .error_rate = 0.1, .expansion = 2};
    cr_assert_eq(bloom_pool_create(&pool), 0);
    cr_assert_eq(reclaimer_create(&reclaimer), 0);
    cr_assert_eq(registry_create(&registry, pool, reclaimer), 0);
    cr_assert_eq(bloom_class_get(pool, &params, NULL, &small_class, NULL), 0);
    rcu_reader_begin();
    flip = unmix(full_hash((struct slice){"anything", 8})) ^ bytes_of("anything");
    state = 1;
}

static void teardown(void)
{
    rcu_reader_end();
    bloom_class_release(small_class);
    registry_destroy(registry);
    reclaimer_destroy(reclaimer);
    bloom_pool_destroy(pool);
}

TestSuite(scan, .init = setup, .fini = teardown, .timeout = 3000);

/* ---- sweeps ---- */

#define STAYING 200
#define PASSING 4000

struct set {
    uint64_t hashes[PASSING];
    unsigned seen[PASSING];
    bool there[PASSING];
    unsigned count;
};

static struct set staying, passing;

static uint64_t next_random(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return state >> 16;
}

static void create(struct set *set, unsigned i)
{
    struct entry *entry;
    struct errbuf err = {""};
    cr_assert_eq(registry_create_filter(registry, name_with_hash(set->hashes[i]), 0, small_class, &entry, &err),
                 REGISTRY_OK, "%s", err.text);
    set->there[i] = true;
}

static void remove_name(struct set *set, unsigned i)
{
    cr_assert_eq(registry_delete(registry, name_with_hash(set->hashes[i])), REGISTRY_OK);
    set->there[i] = false;
}

static void see(void *ctx, struct slice name, struct entry *entry)
{
    uint64_t hash = full_hash(name);
    struct set *sets[] = {&staying, &passing};
    (void)ctx;
    (void)entry;
    for (unsigned s = 0; s < 2; s++)
        for (unsigned i = 0; i < sets[s]->count; i++)
            sets[s]->seen[i] += sets[s]->hashes[i] == hash;
}

/* Between any two calls of a sweep some names are added or removed: up to 20 times the table's size. */
static void churn(unsigned step, unsigned pace)
{
    for (unsigned i = 0; i < pace; i++) {
        unsigned at = (step * pace + i) % (2 * PASSING);
        if (at < PASSING && !passing.there[at])
            create(&passing, at);
        else if (at >= PASSING && passing.there[at - PASSING])
            remove_name(&passing, at - PASSING);
    }
}

/* Several sweeps, of this many names at a time. Each visits every staying name once, any other at most once. */
static void sweep(size_t count, unsigned pace)
{
    static unsigned step;
    for (int round = 0; round < 3; round++) {
        uint64_t cursor = 0, next;
        memset(staying.seen, 0, sizeof(staying.seen));
        memset(passing.seen, 0, sizeof(passing.seen));
        for (; (next = registry_scan(registry, cursor, count, see, NULL)); cursor = next) {
            cr_assert_gt(next, cursor, "the cursor does not go on");
            churn(step++, pace);
        }
        for (unsigned i = 0; i < staying.count; i++)
            cr_assert_eq(staying.seen[i], 1, "%016lx was met %u times", (unsigned long)staying.hashes[i],
                         staying.seen[i]);
    }
}

/* `hash_of` makes the hash of the i-th staying name; passing names are all over its shard, half of them at the same
 * place. */
static void play(uint64_t (*hash_of)(unsigned i))
{
    staying.count = STAYING;
    passing.count = PASSING;
    for (unsigned i = 0; i < STAYING; i++) {
        staying.hashes[i] = hash_of(i);
        create(&staying, i);
    }
    for (unsigned i = 0; i < PASSING; i++) {
        uint64_t shard = hash_of(0) >> (64 - SHARD_BITS) << (64 - SHARD_BITS);
        passing.hashes[i] =
            i % 8 ? shard | (next_random() << 20 ^ next_random()) << SHARD_BITS >> SHARD_BITS : hash_of(STAYING + i);
    }
    static const size_t counts[] = {1, 3, 10, 64, 100, 1000};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        sweep(counts[i], 37);
        sweep(counts[i], 400);
    }
}

#define SHARD(n) ((uint64_t)(n) << (64 - SHARD_BITS))
#define TAG(n)   ((uint64_t)(n) << (64 - SHARD_BITS - TAG_BITS))
#define TAG_LAST ((UINT64_C(1) << TAG_BITS) - 1)

static uint64_t one_position(unsigned i)
{
    return SHARD(77) | TAG(123456) | (uint64_t)1234 << 16 | i;
}

/* One cursor stands for all of them, so none may be left for the next call. */
Test(scan, names_at_one_position)
{
    play(one_position);
}

static uint64_t one_tag(unsigned i)
{
    return SHARD(77) | TAG(123456) | (uint64_t)i << 16;
}

Test(scan, names_with_one_tag)
{
    play(one_tag);
}

static uint64_t first_of_all(unsigned i)
{
    return i;
}

Test(scan, names_at_the_first_position)
{
    play(first_of_all);
}

static uint64_t last_of_all(unsigned i)
{
    return UINT64_MAX - i;
}

/* The cursor after them would be one beyond the last. */
Test(scan, names_at_the_last_position)
{
    play(last_of_all);
}

/* Rows from the table's end continue at its beginning, among rows with their homes there. */
static uint64_t both_ends(unsigned i)
{
    return SHARD(4000) | TAG(i % 2 ? TAG_LAST - i % 5 : i % 5) | (uint64_t)i << 8;
}

Test(scan, names_at_both_ends_of_a_shard)
{
    play(both_ends);
}

/* At the beginnings of homes, in tables of many sizes. */
static uint64_t at_homes(unsigned i)
{
    uint64_t size = TABLE_MIN * (1 + i % 60), home = i * UINT64_C(7919) % size;
    return SHARD(5) | TAG((home << TAG_BITS) / size) | (uint64_t)i << 3;
}

Test(scan, names_where_homes_begin)
{
    play(at_homes);
}
