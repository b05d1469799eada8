/* The registry in one thread: names, renames, the guarantees of SCAN and of the walk, against simple models. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rcu.h"
#include "registry.h"
#include "registry_key.h"
#include "registry_effect.h"
#include "registry_walk.h"

static struct bloom_pool *pool;
static struct reclaimer *reclaimer;
static struct registry *registry;
static struct bloom_class *small_class;

static void setup(void)
{
    struct bloom_params params = {.capacity = 100, .error_rate = 0.01, .expansion = 2};
    cr_assert_eq(bloom_pool_create(&pool), 0);
    cr_assert_eq(reclaimer_create(&reclaimer), 0);
    cr_assert_eq(registry_create(&registry, pool, reclaimer), 0);
    cr_assert_eq(bloom_class_get(pool, &params, NULL, &small_class, NULL), 0);
    rcu_reader_begin();
}

/* Everything must be freed in the end: the pool counts the bytes of all words. */
static void teardown(void)
{
    rcu_reader_end();
    bloom_class_release(small_class);
    registry_destroy(registry);
    reclaimer_destroy(reclaimer);
    cr_expect_eq(bloom_pool_bytes(pool), 0);
    bloom_pool_destroy(pool);
}

TestSuite(registry, .init = setup, .fini = teardown);

static struct slice name_of(unsigned i)
{
    static char text[8][32];
    static unsigned next;
    char *t = text[next++ % 8];
    int len = snprintf(t, sizeof(text[0]), "filter:%u", i);
    return (struct slice){t, (size_t)len};
}

static struct entry *create(struct slice name)
{
    struct entry *entry = NULL;
    struct errbuf err = {""};
    cr_assert_eq(registry_create_filter(registry, name, 0, small_class, &entry, &err), REGISTRY_OK, "%s", err.text);
    return entry;
}

/* A created filter is found under its name and no other; creating it again yields the first one. */
Test(registry, create_find_delete)
{
    struct entry *entry = create(slice_of("a")), *again = NULL;
    cr_expect_eq(registry_lookup(registry, slice_of("a")), entry);
    cr_expect_null(registry_lookup(registry, slice_of("b")));
    cr_expect_null(registry_lookup(registry, slice_of("")));
    cr_expect_eq(registry_create_filter(registry, slice_of("a"), 0, small_class, &again, NULL), REGISTRY_EXISTS);
    cr_expect_eq(again, entry);
    cr_expect_eq(registry_count(registry), 1);
    cr_expect_eq(registry_delete(registry, slice_of("a")), REGISTRY_OK);
    cr_expect_eq(registry_delete(registry, slice_of("a")), REGISTRY_NOT_FOUND);
    cr_expect_null(registry_lookup(registry, slice_of("a")));
    cr_expect_eq(registry_count(registry), 0);
}

/* Names are bytes: empty, with NUL, and up to the limit; beyond it they are refused with the limit in the text. */
Test(registry, names_of_any_bytes_up_to_the_limit)
{
    char *big = calloc(1, REGISTRY_MAX_NAME + 1);
    struct errbuf err = {""};
    struct entry *entry;
    create((struct slice){"", 0});
    create((struct slice){"\0", 1});
    create((struct slice){"\0\0", 2});
    create((struct slice){big, REGISTRY_MAX_NAME});
    cr_expect_eq(registry_count(registry), 4);
    cr_expect_not_null(registry_lookup(registry, (struct slice){big, REGISTRY_MAX_NAME}));
    cr_expect_null(registry_lookup(registry, (struct slice){big, REGISTRY_MAX_NAME - 1}));
    cr_expect_eq(
        registry_create_filter(registry, (struct slice){big, REGISTRY_MAX_NAME + 1}, 0, small_class, &entry, &err),
        REGISTRY_REFUSED);
    cr_expect_not_null(strstr(err.text, "65535"), "%s", err.text);
    free(big);
}

/* Ids are never reused, not even after deletions and after a larger id was loaded. */
Test(registry, ids_are_not_reused)
{
    struct entry *entry;
    uint64_t first = create(slice_of("a"))->id;
    registry_delete(registry, slice_of("a"));
    cr_expect_gt(create(slice_of("a"))->id, first);
    cr_expect_eq(registry_create_filter(registry, slice_of("loaded"), 1000, small_class, &entry, NULL), REGISTRY_OK);
    cr_expect_eq(create(slice_of("b"))->id, 1001);
}

/* A rename moves the filter, the same object, also over an existing name, to and fro, and onto itself. */
Test(registry, rename)
{
    struct entry *a = create(slice_of("a")), *b = create(slice_of("b"));
    cr_expect_eq(registry_rename(registry, slice_of("a"), slice_of("b"), true, NULL), REGISTRY_EXISTS);
    cr_expect_eq(registry_lookup(registry, slice_of("b")), b);
    cr_expect_eq(registry_rename(registry, slice_of("a"), slice_of("b"), false, NULL), REGISTRY_OK);
    cr_expect_eq(registry_lookup(registry, slice_of("b")), a);
    cr_expect_null(registry_lookup(registry, slice_of("a")));
    cr_expect_eq(registry_count(registry), 1);
    cr_expect_eq(registry_rename(registry, slice_of("b"), slice_of("a"), false, NULL), REGISTRY_OK);
    cr_expect_eq(registry_rename(registry, slice_of("a"), slice_of("a"), false, NULL), REGISTRY_OK);
    cr_expect_eq(registry_rename(registry, slice_of("a"), slice_of("a"), true, NULL), REGISTRY_EXISTS);
    cr_expect_eq(registry_rename(registry, slice_of("gone"), slice_of("x"), false, NULL), REGISTRY_NOT_FOUND);
    cr_expect_eq(registry_lookup(registry, slice_of("a")), a);
    cr_expect_eq(registry_rename(registry, slice_of("a"), slice_of("c"), false, NULL), REGISTRY_OK);
    create(slice_of("a"));
    cr_expect_neq(registry_lookup(registry, slice_of("a")), a);
    cr_expect_eq(registry_delete(registry, slice_of("c")), REGISTRY_OK);
    cr_expect_eq(registry_count(registry), 1);
}

#define MODEL_NAMES 500

/* The new name makes a larger table, in which the old one has another slot: both are in one shard of the table. */
Test(registry, a_rename_in_a_table_that_grows)
{
    unsigned numbers[8] = {0}, n = 0;
    uint64_t shard = registry_hash(registry, name_of(0)) >> 52;
    for (unsigned i = 0; n < 8; i++)
        if (registry_hash(registry, name_of(i)) >> 52 == shard)
            numbers[n++] = i;
    for (unsigned i = 0; i < 7; i++)
        create(name_of(numbers[i]));
    cr_assert_eq(registry_rename(registry, name_of(numbers[0]), name_of(numbers[7]), true, NULL), REGISTRY_OK);
    for (unsigned i = 0; i < 8; i++)
        cr_expect_eq(registry_lookup(registry, name_of(numbers[i])) != NULL, i > 0, "%u", i);
    cr_expect_eq(registry_count(registry), 7);
}

/* Random creations, deletions, renames and clears agree with an array of the filter under each name. */
Test(registry, agrees_with_a_model)
{
    uint64_t model[MODEL_NAMES] = {0};
    unsigned state = 12345;
    for (int step = 0; step < 60000; step++) {
        unsigned a = (unsigned)rand_r(&state) % MODEL_NAMES, b = (unsigned)rand_r(&state) % MODEL_NAMES;
        unsigned what = (unsigned)rand_r(&state) % 100;
        size_t removed;
        if (what < 45) {
            struct entry *entry;
            int status = registry_create_filter(registry, name_of(a), 0, small_class, &entry, NULL);
            cr_assert_eq(status, model[a] ? REGISTRY_EXISTS : REGISTRY_OK);
            cr_assert(!model[a] || model[a] == entry->id);
            model[a] = entry->id;
        } else if (what < 75) {
            cr_assert_eq(registry_delete(registry, name_of(a)), model[a] ? REGISTRY_OK : REGISTRY_NOT_FOUND);
            model[a] = 0;
        } else if (what < 99 || step % 20 != 0) {
            bool only_new = what & 1;
            int status = registry_rename(registry, name_of(a), name_of(b), only_new, NULL);
            int want = !model[a] ? REGISTRY_NOT_FOUND : only_new && model[b] ? REGISTRY_EXISTS : REGISTRY_OK;
            cr_assert_eq(status, want);
            if (status == REGISTRY_OK && a != b) {
                model[b] = model[a];
                model[a] = 0;
            }
        } else {
            cr_assert_eq(registry_clear(registry, &removed), 0);
            memset(model, 0, sizeof(model));
        }
        struct entry *seen = registry_lookup(registry, name_of(b));
        cr_assert_eq(seen ? seen->id : 0, model[b]);
    }
    size_t n = 0;
    for (unsigned i = 0; i < MODEL_NAMES; i++) {
        struct entry *seen = registry_lookup(registry, name_of(i));
        cr_assert_eq(seen ? seen->id : 0, model[i]);
        n += model[i] != 0;
    }
    cr_expect_eq(registry_count(registry), n);
}

#define SWEEP_NAMES 20000

static unsigned seen[SWEEP_NAMES * 2];

static void see(void *ctx, struct slice name, struct entry *entry)
{
    (void)ctx;
    char copy[32];
    cr_assert_not_null(entry);
    memcpy(copy, name.ptr, name.len);
    copy[name.len] = '\0';
    seen[strtoul(copy + strlen("filter:"), NULL, 10)]++;
}

/* Names present during the whole sweep are returned exactly once, while others come and go and tables are resized in
 * both directions. */
Test(registry, scan_guarantee)
{
    for (unsigned i = 0; i < SWEEP_NAMES; i++)
        create(name_of(i));
    uint64_t cursor = 0;
    unsigned churn = 0;
    memset(seen, 0, sizeof(seen));
    do {
        cursor = registry_scan(registry, cursor, 100, see, NULL);
        for (unsigned i = 0; i < 300; i++, churn++) {
            unsigned n = SWEEP_NAMES + churn % SWEEP_NAMES;
            if (churn < SWEEP_NAMES)
                create(name_of(n)); /* doubles the tables ... */
            else
                registry_delete(registry, name_of(n)); /* ... and empties them again */
        }
        for (unsigned i = SWEEP_NAMES / 2; churn > SWEEP_NAMES && i < SWEEP_NAMES; i += 97)
            registry_delete(registry, name_of(i));
    } while (cursor);
    for (unsigned i = 0; i < SWEEP_NAMES / 2; i++)
        cr_assert_eq(seen[i], 1, "filter:%u was returned %u times", i, seen[i]);
    for (unsigned i = SWEEP_NAMES / 2; i < SWEEP_NAMES * 2; i++)
        cr_assert_leq(seen[i], 1, "filter:%u was returned %u times", i, seen[i]);
}

/* A full scan of an empty registry ends immediately, and one of few names in one call. */
Test(registry, scan_of_few)
{
    memset(seen, 0, sizeof(seen));
    cr_expect_eq(registry_scan(registry, 0, 10, see, NULL), 0);
    create(name_of(1));
    create(name_of(2));
    cr_expect_eq(registry_scan(registry, 0, 10, see, NULL), 0);
    cr_expect_eq(seen[1] + seen[2], 2);
    cr_expect_eq(registry_scan(registry, UINT64_MAX >> 1, 10, see, NULL), 0, "a cursor from nowhere is the end");
}

/* The items of a walk: the last one of an id counts. */
struct walked {
    uint64_t id;
    char name[32];
    bool dirty;
};

static struct walked walked[4096];
static size_t nwalked;

static void note(const struct registry_item *item)
{
    size_t i = 0;
    while (i < nwalked && walked[i].id != item->id)
        i++;
    if (!item->entry) {
        if (i < nwalked)
            walked[i] = walked[--nwalked];
        return;
    }
    if (i == nwalked)
        nwalked++;
    walked[i].id = item->id;
    walked[i].dirty |= item->dirty;
    snprintf(walked[i].name, sizeof(walked[i].name), "%.*s", (int)item->name.len, item->name.ptr);
}

static struct walked frozen[4096];
static size_t nfrozen;

static void freeze(void *ctx, struct slice name, struct entry *entry)
{
    (void)ctx;
    frozen[nfrozen].id = entry->id;
    snprintf(frozen[nfrozen++].name, sizeof(frozen[0].name), "%.*s", (int)name.len, name.ptr);
}

/* A walk amid creations, deletions, renames and a clear yields exactly the state of one moment: of the step that
 * reached the end of the shards (whose changes are the last visible ones). */
Test(registry, walk_yields_one_moment)
{
    for (unsigned round = 0; round < 60; round++) {
        unsigned state = round;
        size_t removed, steps = 0;
        bool matched = false;
        nwalked = 0;
        registry_clear(registry, &removed);
        for (unsigned i = 0; i < 300; i++)
            create(name_of(i));
        struct registry_item item;
        int more;
        static struct walked moments[700][512];
        static size_t sizes[700];
        registry_walk_begin(registry, NULL, NULL);
        while ((more = registry_walk_next(registry, &item)) == 1) {
            note(&item);
            registry_walk_release(&item);
            cr_assert_lt(steps, 700, "the walk does not end");
            unsigned a = (unsigned)rand_r(&state) % 400, b = (unsigned)rand_r(&state) % 400;
            struct entry *entry;
            switch (rand_r(&state) % 4) {
            case 0:
                registry_create_filter(registry, name_of(a), 0, small_class, &entry, NULL);
                break;
            case 1:
                registry_delete(registry, name_of(a));
                break;
            default:
                registry_rename(registry, name_of(a), name_of(b), false, NULL);
                break;
            }
            if (round % 8 == 7 && steps == 100)
                registry_clear(registry, &removed);
            nfrozen = 0;
            registry_scan(registry, 0, 10000, freeze, NULL);
            memcpy(moments[steps], frozen, nfrozen * sizeof(frozen[0]));
            sizes[steps++] = nfrozen;
        }
        cr_assert_eq(more, 0);
        registry_walk_end(registry);
        for (size_t m = 0; m < steps && !matched; m++) {
            matched = sizes[m] == nwalked;
            for (size_t i = 0; i < sizes[m] && matched; i++) {
                size_t w = 0;
                while (w < nwalked && walked[w].id != moments[m][i].id)
                    w++;
                matched = w < nwalked && strcmp(walked[w].name, moments[m][i].name) == 0;
            }
        }
        cr_assert(matched, "round %u: what was walked never was", round);
    }
}

/* The dirty mark is taken by the walk that yields the filter and set again by the next change. */
Test(registry, walk_takes_the_dirty_mark)
{
    struct entry *entry = create(slice_of("a"));
    struct registry_item item;
    for (int expected = 1; expected >= 0; expected--) {
        registry_walk_begin(registry, NULL, NULL);
        cr_assert_eq(registry_walk_next(registry, &item), 1);
        cr_expect_eq(item.dirty, expected);
        registry_walk_release(&item);
        cr_expect_eq(registry_walk_next(registry, &item), 0);
        registry_walk_end(registry);
    }
    entry_mark_dirty(entry);
    registry_walk_begin(registry, NULL, NULL);
    cr_assert_eq(registry_walk_next(registry, &item), 1);
    cr_expect(item.dirty);
    /* Deleted while it is held: it stays until it is released. */
    registry_delete(registry, slice_of("a"));
    cr_expect_eq(bloom_filter_items(entry_filter(item.entry)), 0);
    registry_walk_release(&item);
    registry_walk_end(registry);
}

/* An abandoned walk releases the filters that it holds. */
Test(registry, walk_given_up)
{
    struct registry_item item;
    for (unsigned i = 0; i < 100; i++)
        create(name_of(i));
    registry_walk_begin(registry, NULL, NULL);
    cr_assert_eq(registry_walk_next(registry, &item), 1);
    registry_walk_release(&item);
    registry_walk_end(registry);
}

/* A quarantined filter occupies its name and has the reason; it counts. */
Test(registry, quarantined)
{
    cr_expect_eq(registry_create_quarantined(registry, slice_of("bad"), 7, "file is short"), REGISTRY_OK);
    struct entry *entry = registry_lookup(registry, slice_of("bad")), *other;
    cr_assert_not_null(entry);
    cr_expect_null(entry_filter(entry));
    cr_expect_str_eq(entry_quarantine_reason(entry), "file is short");
    cr_expect_eq(registry_quarantined(registry), 1);
    cr_expect_eq(registry_create_filter(registry, slice_of("bad"), 0, small_class, &other, NULL), REGISTRY_EXISTS);
    cr_expect_eq(registry_delete(registry, slice_of("bad")), REGISTRY_OK);
    cr_expect_eq(registry_quarantined(registry), 0);
}

/* ---- changes visible before their report ---- */

static atomic_bool telling, may_tell, is_told;

static void tell_late(void *ctx, const struct registry_effect *effect)
{
    (void)ctx;
    (void)effect;
    atomic_store(&telling, true);
    while (!atomic_load(&may_tell))
        usleep(100);
    atomic_store(&is_told, true);
}

static void *change(void *what)
{
    struct errbuf err;
    switch (*(const char *)what) {
    case 'c':
        create(slice_of("new"));
        break;
    case 'r':
        cr_expect_eq(registry_rename(registry, slice_of("old"), slice_of("new"), false, &err), REGISTRY_OK);
        break;
    default:
        registry_swap(registry, 0, 1);
    }
    return NULL;
}

static void *await(void *seen_out)
{
    registry_await_records(registry);
    *(bool *)seen_out = atomic_load(&is_told);
    return NULL;
}

/* A loop whose client has added to a filter that another loop is creating must not reply before the record of the
 * creation is written: after a kill the item's filter would never have existed. */
Test(registry, what_is_seen_is_told_before_it_is_answered)
{
    static const char *const changes[] = {"create", "rename", "swap"};
    create(slice_of("old"));
    registry_on_effect(registry, tell_late, NULL);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        pthread_t changer, waiter;
        bool was_reported = false;
        atomic_store(&telling, false);
        atomic_store(&may_tell, false);
        atomic_store(&is_told, false);
        cr_assert_eq(pthread_create(&changer, NULL, change, (void *)(uintptr_t)changes[i]), 0);
        while (!atomic_load(&telling))
            usleep(100);
        if (i < 2)
            cr_expect(registry_lookup(registry, slice_of("new")), "%s: it is seen before it is told", changes[i]);
        cr_assert_eq(pthread_create(&waiter, NULL, await, &was_reported), 0);
        usleep(20000); /* time for the waiter to return too early */
        atomic_store(&may_tell, true);
        pthread_join(changer, NULL);
        pthread_join(waiter, NULL);
        cr_expect(was_reported, "%s: the waiter went on before it was told", changes[i]);
        registry_await_records(registry); /* returns at once */
        if (i == 0)
            cr_expect_eq(registry_delete(registry, slice_of("new")), REGISTRY_OK);
    }
}
