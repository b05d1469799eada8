/* Tables of every size, with names of chosen hashes: many with the same tag, and tags at both ends, whose homes are
 * where the table begins again. Every name in a table is found, no other one is, and one place is always empty, so
 * that look-ups end. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "rcu.h"
#include "registry_table.h"
#include "slab.h"
#include "entry_internal.h"

#define COUNT 3000

struct one {
    uint64_t hash;
    struct entry *entry; /* NULL: not in the table */
};

static struct reclaimer *reclaimer;
static struct slab *slab;
static struct table_env env;
static shard_t shard;
static uint64_t state;

static void setup(void)
{
    cr_assert_eq(reclaimer_create(&reclaimer), 0);
    cr_assert(slab = slab_create());
    env = (struct table_env){.reclaimer = reclaimer};
    state = 1;
}

static void teardown(void)
{
    reclaimer_destroy(reclaimer);
    slab_destroy(slab);
}

TestSuite(table, .init = setup, .fini = teardown);

static uint64_t next_random(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return state >> 16;
}

static struct slice name_of(unsigned i)
{
    static char text[16];
    return (struct slice){text, (size_t)snprintf(text, sizeof(text), "%u", i)};
}

static uint64_t hash_with_tag(uint64_t tag)
{
    return tag << (64 - SHARD_BITS - TAG_BITS) | next_random() >> 20;
}

static struct table *table_now(void)
{
    return atomic_load(&shard);
}

static void put(struct one *one, unsigned i)
{
    one->entry = entry_alloc(slab, ENTRY_QUARANTINED, name_of(i), 1);
    cr_assert(one->entry);
    cr_assert(shard_insert(&shard, &env, one->hash, one->entry));
}

static void take(struct one *one, unsigned i)
{
    uint64_t value;
    _Atomic uint64_t *slot = table_find(table_now(), one->hash, name_of(i), &value);
    cr_assert(slot && slot_entry(value) == one->entry, "%u is not found", i);
    shard_remove(&shard, &env, slot);
    entry_discard(one->entry);
    one->entry = NULL;
}

static void expect_found(const struct one *one, unsigned i)
{
    uint64_t value = 0;
    bool found = table_find(table_now(), one->hash, name_of(i), &value) != NULL;
    cr_assert_eq(found, one->entry != NULL, "%u", i);
    cr_assert(!found || slot_entry(value) == one->entry, "%u is somebody else", i);
}

/* The counts are those of the slots; between an entry's home and its place there is no empty one. */
static void expect_sound(size_t present)
{
    const struct table *table = table_now();
    uint64_t used = 0, deleted = 0;
    if (!table) {
        cr_assert_eq(present, 0);
        return;
    }
    for (uint64_t i = 0; i < table->size; i++) {
        uint64_t slot = atomic_load(&table->slots[i]);
        used += slot_holds_entry(slot);
        deleted += slot == SLOT_DELETED;
        if (!slot_holds_entry(slot))
            continue;
        for (uint64_t at = tag_home(table, slot_tag(slot)); at != i; at = table_next(table, at))
            cr_assert_neq(atomic_load(&table->slots[at]), SLOT_EMPTY);
    }
    cr_assert_eq(used, present);
    cr_assert_eq(table->used, used);
    cr_assert_eq(table->deleted, deleted);
    cr_assert_eq(table->size % TABLE_MIN, 0);
    cr_assert_lt(used + deleted, table->size, "there is no end of looking");
}

/* All are inserted, some removed and inserted again meanwhile, and all are removed, one by one. */
static void come_and_go(struct one *all, unsigned count)
{
    size_t present = 0;
    uint64_t largest = 0;
    for (unsigned i = 0; i < count; i++, present++) {
        put(&all[i], i);
        unsigned other = (unsigned)(next_random() % (i + 1));
        take(&all[other], other);
        expect_found(&all[other], other);
        put(&all[other], other);
        if (i % 64 == 0)
            expect_sound(present + 1);
        largest = table_now()->size > largest ? table_now()->size : largest;
    }
    for (unsigned i = 0; i < count; i++)
        expect_found(&all[i], i);
    cr_assert_leq(largest, count * 2 + TABLE_MIN, "a table of %lu slots", (unsigned long)largest);
    for (unsigned i = 0; i < count; i++, present--) {
        take(&all[i], i);
        expect_found(&all[i], i);
        expect_found(&all[count - 1], count - 1);
        if (i % 64 == 0)
            expect_sound(present - 1);
    }
    cr_assert_null(table_now());
}

Test(table, any_hashes)
{
    static struct one all[COUNT];
    for (unsigned i = 0; i < COUNT; i++)
        all[i].hash = hash_with_tag(next_random() % (1u << TAG_BITS));
    come_and_go(all, COUNT);
}

/* One home for all: the first place, one in the middle, the last, from where look-ups continue at the beginning. */
Test(table, equal_tags)
{
    static const uint64_t tags[] = {0, 1, (1u << TAG_BITS) / 2, (1u << TAG_BITS) - 2, (1u << TAG_BITS) - 1};
    static struct one all[COUNT / 4];
    for (size_t t = 0; t < sizeof(tags) / sizeof(tags[0]); t++) {
        for (unsigned i = 0; i < COUNT / 4; i++)
            all[i] = (struct one){.hash = hash_with_tag(tags[t])};
        come_and_go(all, COUNT / 4);
    }
}

/* A few tags at both ends, so that rows from the end are among those of the beginning. */
Test(table, tags_at_both_ends)
{
    static struct one all[COUNT / 4];
    for (unsigned i = 0; i < COUNT / 4; i++)
        all[i].hash = hash_with_tag((next_random() % 8 + (1u << TAG_BITS) - 4) % (1u << TAG_BITS));
    come_and_go(all, COUNT / 4);
}

/* Homes follow the hashes, and none is beyond the end, in tables of any size: SCAN's order. */
Test(table, homes_are_in_the_order_of_hashes)
{
    for (uint32_t size = TABLE_MIN; size < 1u << 22; size += TABLE_MIN * (1 + size / 64)) {
        struct table table = {.size = size};
        cr_assert_eq(tag_home(&table, 0), 0);
        cr_assert_lt(tag_home(&table, (1u << TAG_BITS) - 1), size);
        for (unsigned i = 0; i < 200; i++) {
            uint64_t a = hash_with_tag(next_random() % (1u << TAG_BITS)), b = hash_with_tag(hash_tag(a) + (i % 2));
            cr_assert_leq(table_home(&table, a), table_home(&table, hash_tag(b) < hash_tag(a) ? a : b), "%u slots",
                          size);
        }
    }
}
