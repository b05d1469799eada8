/* The hash table against a plain array of its contents. */
#include <criterion/criterion.h>
#include <errno.h>

#include "alloc_countdown.h"
#include "hash_table.h"
#include "rng.h"

#define OBJECTS 3000

static struct object {
    struct hash_link hashed;
    bool in;
} objects[OBJECTS];

/* Up to three objects have the same hash, and the low bits, which choose the bucket, repeat more often. */
static void set_up(void)
{
    for (size_t i = 0; i < OBJECTS; i++)
        objects[i] = (struct object){.hashed = {.hash = i / 3 << 40 | i / 7}};
}

TestSuite(hash_table, .init = set_up);

static bool finds(const struct hash_table *table, const struct object *object)
{
    size_t found = 0;

    for (struct hash_link *link = hash_table_first(table, object->hashed.hash); link; link = hash_table_next(link)) {
        cr_assert_eq(link->hash, object->hashed.hash);
        found += HASH_OBJECT(link, struct object, hashed) == object;
    }
    cr_assert_leq(found, 1u);
    return found == 1;
}

static void expect_all(const struct hash_table *table)
{
    size_t count = 0;

    for (size_t i = 0; i < OBJECTS; i++) {
        cr_assert_eq(finds(table, &objects[i]), objects[i].in, "%zu", i);
        count += objects[i].in;
    }
    cr_assert_eq(table->count, count);
}

/* The table grows, changes, and shrinks to nothing, without memory at the end. */
Test(hash_table, finds_what_was_inserted_and_not_removed)
{
    struct hash_table table = {0};
    struct rng rng;

    rng_init(&rng, 7);
    expect_all(&table);
    for (unsigned share = 3; share <= 3; share--) { /* of four changes, insertions */
        for (unsigned n = 0; n < 4 * OBJECTS; n++) {
            struct object *object = &objects[rng_below(&rng, OBJECTS)];
            bool insert = rng_below(&rng, 4) < share;
            if (insert && !object->in)
                cr_assert_eq(hash_table_insert(&table, &object->hashed), 0);
            else if (!insert && object->in)
                hash_table_remove(&table, &object->hashed);
            else
                continue;
            object->in = insert;
        }
        expect_all(&table);
    }
    cr_assert_leq(hash_table_bytes(&table), 64 * sizeof(void *) + 16 * table.count * sizeof(void *));
    for (size_t i = 0; i < OBJECTS; i++) {
        if (objects[i].in)
            hash_table_remove(&table, &objects[i].hashed);
    }
    cr_assert_eq(hash_table_bytes(&table), 0u);
    cr_assert_null(table.buckets);
}

/* Only the first buckets are needed; larger and smaller tables are better. */
Test(hash_table, without_memory_it_keeps_its_buckets)
{
    struct hash_table table = {0};

    alloc_exhausted_start();
    cr_assert_eq(hash_table_insert(&table, &objects[0].hashed), -ENOMEM);
    alloc_countdown_stop();
    cr_assert_eq(table.count, 0u);
    cr_assert_eq(hash_table_insert(&table, &objects[0].hashed), 0);
    size_t bytes = hash_table_bytes(&table);
    alloc_exhausted_start();
    for (size_t i = 1; i < OBJECTS; i++)
        cr_assert_eq(hash_table_insert(&table, &objects[i].hashed), 0);
    alloc_countdown_stop();
    cr_assert_eq(hash_table_bytes(&table), bytes);
    for (size_t i = 0; i < OBJECTS; i++)
        objects[i].in = true;
    expect_all(&table);
    hash_table_deinit(&table);
}
