/* The table of prefixes against a plain array of its contents. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "alloc_countdown.h"
#include "prefix_table.h"
#include "rng.h"

#define ENTRIES 400
#define LONGEST 8

static struct prefix_entry entries[ENTRIES];
static bool in[ENTRIES];
static char names[ENTRIES][LONGEST];

static size_t random_name(struct rng *rng, char *out)
{
    static const char bytes[] = {'\0', 'a', 'b', (char)0xff};
    size_t len = rng_below(rng, LONGEST);
    for (size_t i = 0; i < len; i++)
        out[i] = bytes[rng_below(rng, sizeof(bytes))];
    return len;
}

static bool begins_with(const char *name, size_t len, const struct prefix_entry *prefix)
{
    return prefix->len <= len && memcmp(name, prefix->name, prefix->len) == 0;
}

static struct prefix_entry *naive_equal(const char *name, size_t len)
{
    for (size_t i = 0; i < ENTRIES; i++)
        if (in[i] && entries[i].len == len && begins_with(name, len, &entries[i]))
            return &entries[i];
    return NULL;
}

/* The longest prefix of `name`, of at most `most` bytes. */
static struct prefix_entry *naive_longest(const char *name, size_t len, size_t most)
{
    struct prefix_entry *longest = NULL;
    for (size_t i = 0; i < ENTRIES; i++)
        if (in[i] && entries[i].len <= most && begins_with(name, len, &entries[i]) &&
            (!longest || longest->len < entries[i].len))
            longest = &entries[i];
    return longest;
}

static bool naive_below(const char *name, size_t len)
{
    for (size_t i = 0; i < ENTRIES; i++)
        if (in[i] && len <= entries[i].len && memcmp(entries[i].name, name, len) == 0)
            return true;
    return false;
}

static void expect_same(const struct prefix_table *table, const char *name, size_t len)
{
    cr_assert_eq(prefix_table_find(table, name, len), naive_equal(name, len));
    struct prefix_entry *entry = prefix_table_longest(table, name, len);
    cr_assert_eq(entry, naive_longest(name, len, len));
    for (; entry && entry->len; entry = entry->parent)
        cr_assert_eq(entry->parent, naive_longest(name, len, entry->len - 1));
    const struct prefix_entry *first = prefix_table_first(table, name, len);
    cr_assert_eq(first != NULL, naive_below(name, len));
    if (first)
        cr_assert(first->len >= len && memcmp(first->name, name, len) == 0);
}

static void change_one(struct prefix_table *table, struct rng *rng, size_t i)
{
    char name[LONGEST] = {0};
    size_t len = random_name(rng, name);
    if (in[i]) {
        prefix_table_remove(table, &entries[i]);
        in[i] = false;
    } else if (!naive_equal(name, len)) {
        memcpy(names[i], name, sizeof(name));
        entries[i] = (struct prefix_entry){.name = names[i], .len = len};
        cr_assert_eq(prefix_table_insert(table, &entries[i]), 0);
        in[i] = true;
    }
}

Test(prefix_table, finds_all_prefixes_of_a_name_and_no_other)
{
    struct prefix_table table = {.count = 0};
    struct rng rng;
    rng_init(&rng, 1);
    for (int round = 0; round < 6000; round++) {
        char name[LONGEST] = {0};
        change_one(&table, &rng, rng_below(&rng, ENTRIES));
        size_t len = random_name(&rng, name);
        expect_same(&table, name, len);
        for (size_t i = 1; i < table.count && round % 100 == 0; i++) { /* in order */
            const struct prefix_entry *a = table.sorted[i - 1], *b = table.sorted[i];
            int order = memcmp(a->name, b->name, a->len < b->len ? a->len : b->len);
            cr_assert(order < 0 || (order == 0 && a->len < b->len));
        }
    }
    for (size_t i = 0; i < ENTRIES; i++)
        if (in[i])
            prefix_table_remove(&table, &entries[i]);
    cr_assert_eq(table.count, 0);
    cr_assert_null(table.sorted);
}

Test(prefix_table, without_memory_it_stays_as_it_is)
{
    struct prefix_table table = {.count = 0};
    struct prefix_entry a = {.name = "a", .len = 1};
    alloc_exhausted_start();
    int status = prefix_table_insert(&table, &a);
    alloc_countdown_stop();
    cr_assert_eq(status, -ENOMEM);
    cr_assert_null(prefix_table_longest(&table, "a", 1));
    cr_assert_eq(prefix_table_insert(&table, &a), 0);
    cr_assert_eq(prefix_table_longest(&table, "ab", 2), &a);
    prefix_table_deinit(&table);
}
