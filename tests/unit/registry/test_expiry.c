/* Expiry in one thread and with its own clock: times of removals, effects, counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expiry_rig.h"

TestSuite(expiry, .init = rig_setup, .fini = rig_teardown, .timeout = 3000);

/* ---- time ---- */

/* A filter is present until its time, and from then on absent from look-ups and scans, even before its removal. */
Test(expiry, gone_at_its_time)
{
    struct entry *a = create("a");
    create("b");
    cr_expect_eq(expires("a"), 0);
    cr_expect_eq(expire("a", 1500, 0), REGISTRY_OK);
    cr_expect_eq(expires("a"), 1500);
    now = 1499;
    cr_expect_eq(find("a"), a);
    cr_expect_eq(scan_all(), 2);
    now = 1500;
    cr_expect_null(find("a"));
    cr_expect_eq(expires("a"), -2);
    cr_expect_eq(scan_all(), 1);
    cr_expect_eq(registry_count(registry), 2, "it is counted until it is removed");
    cr_expect_eq(registry_expire_due(registry, 10, NULL), 1);
    cr_expect_eq(registry_count(registry), 1);
    TOLD("created a, created b, expiry a until 1500, expired a");
    expect_all_freed();
}

/* A change of an expired filter removes it first and finds none. */
Test(expiry, changes_remove_what_has_expired)
{
    struct entry *a = create("a"), *again;
    expire("a", 1100, 0);
    now = 1100;
    again = create("a");
    cr_expect_gt(again->id, a->id);
    cr_expect_eq(find("a"), again);
    cr_expect_eq(expires("a"), 0);
    TOLD("created a, expiry a until 1100, expired a, created a");

    expire("a", 1200, 0);
    now = 1200;
    cr_expect_eq(registry_delete(registry, slice_of("a")), REGISTRY_NOT_FOUND);
    TOLD("expiry a until 1200, expired a");

    create("a");
    create("b");
    expire("a", 1300, 0);
    now = 1300;
    cr_expect_eq(registry_rename(registry, slice_of("a"), slice_of("b"), false, NULL), REGISTRY_NOT_FOUND);
    cr_expect_not_null(find("b"));
    TOLD("created a, created b, expiry a until 1300, expired a");

    create("a");
    expire("b", 1400, 0);
    now = 1400;
    cr_expect_eq(registry_rename(registry, slice_of("a"), slice_of("b"), true, NULL), REGISTRY_OK,
                 "nobody is there any more");
    TOLD("created a, expiry b until 1400, expired b, renamed a to b");

    expire("b", 1500, 0);
    now = 1500;
    cr_expect_eq(expire("b", 9999, 0), REGISTRY_NOT_FOUND, "it does not come back");
    cr_expect_eq(registry_persist(registry, slice_of("b")), REGISTRY_NOT_FOUND);
    TOLD("expiry b until 1500, expired b");
    cr_expect_eq(registry_count(registry), 0);
    expect_all_freed();
}

/* A time that was in the future when it was requested, and has come since, is no deletion. */
Test(expiry, a_time_that_has_just_come_expires)
{
    create("a");
    create("b");
    told[0] = '\0';
    cr_assert_eq(expire("a", 1000, REGISTRY_EXPIRE_LATER), REGISTRY_OK);
    cr_assert_eq(expire("b", 1000, 0), REGISTRY_OK);
    cr_assert_str_eq(told, "expired a, deleted b");
    cr_assert_null(find("a"));
}

/* A time that has passed deletes at once, and the effect is a deletion. */
Test(expiry, a_time_that_has_passed_deletes)
{
    static const int64_t times[] = {1000, 999, 1, 0, -1, INT64_MIN};
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        create("a");
        cr_expect_eq(expire("a", times[i], 0), REGISTRY_OK);
        cr_expect_null(find("a"));
        cr_expect_eq(registry_count(registry), 0);
        TOLD("created a, deleted a");
    }
    cr_expect_eq(expire("a", 5000, 0), REGISTRY_NOT_FOUND);
    expect_all_freed();
}

struct condition {
    int64_t before; /* 0: never */
    int64_t at;
    unsigned conditions;
    int status;
};

/* NX, XX, GT, LT and their valid combinations; "never" is later than any time. */
Test(expiry, conditions)
{
    enum { NX = REGISTRY_EXPIRE_NX, XX = REGISTRY_EXPIRE_XX, GT = REGISTRY_EXPIRE_GT, LT = REGISTRY_EXPIRE_LT };
    static const struct condition table[] = {
        {0, 2000, NX, REGISTRY_OK},
        {3000, 2000, NX, REGISTRY_UNCHANGED},
        {0, 2000, XX, REGISTRY_UNCHANGED},
        {3000, 2000, XX, REGISTRY_OK},
        {0, 2000, GT, REGISTRY_UNCHANGED},
        {3000, 2000, GT, REGISTRY_UNCHANGED},
        {3000, 3000, GT, REGISTRY_UNCHANGED},
        {3000, 3001, GT, REGISTRY_OK},
        {0, 2000, LT, REGISTRY_OK},
        {3000, 2999, LT, REGISTRY_OK},
        {3000, 3000, LT, REGISTRY_UNCHANGED},
        {3000, 4000, LT, REGISTRY_UNCHANGED},
        {0, 2000, XX | LT, REGISTRY_UNCHANGED},
        {3000, 2000, XX | LT, REGISTRY_OK},
        {3000, 4000, XX | GT, REGISTRY_OK},
        {0, 1, GT, REGISTRY_UNCHANGED}, /* an unmet condition also prevents a deletion */
        {3000, 1, NX, REGISTRY_UNCHANGED},
        {3000, 1, GT, REGISTRY_UNCHANGED},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const struct condition *c = &table[i];
        create("a");
        if (c->before)
            cr_assert_eq(expire("a", c->before, 0), REGISTRY_OK);
        cr_expect_eq(expire("a", c->at, c->conditions), c->status, "row %zu", i);
        cr_expect_eq(expires("a"), c->status == REGISTRY_OK ? c->at : c->before, "row %zu", i);
        registry_delete(registry, slice_of("a"));
    }
    cr_expect_eq(numbers().count, 0);
}

Test(expiry, persist)
{
    create("a");
    cr_expect_eq(registry_persist(registry, slice_of("a")), REGISTRY_UNCHANGED);
    expire("a", 2000, 0);
    cr_expect_eq(numbers().count, 1);
    cr_expect_eq(registry_persist(registry, slice_of("a")), REGISTRY_OK);
    cr_expect_eq(registry_persist(registry, slice_of("a")), REGISTRY_UNCHANGED);
    cr_expect_eq(numbers().count, 0);
    now = 3000;
    cr_expect_not_null(find("a"));
    cr_expect_eq(registry_expire_due(registry, 10, NULL), 0);
    cr_expect_eq(expire("a", 4000, 0), REGISTRY_OK, "and it may get a time again");
    TOLD("created a, expiry a until 2000, expiry a until 0, expiry a until 4000");
    expect_all_freed();
}

/* A rename keeps the time; the replaced filter loses its time, whether the new one has one or not. */
Test(expiry, rename_carries_the_time)
{
    struct entry *a = create("a"), *b = create("b");
    expire("a", 2000, 0);
    expire("b", 1500, 0);
    told[0] = '\0';
    cr_expect_eq(registry_rename(registry, slice_of("a"), slice_of("b"), false, NULL), REGISTRY_OK);
    cr_expect_eq(expires("b"), 2000);
    cr_expect_eq(numbers().count, 1);
    TOLD("renamed a to b for 2 until 2000");
    now = 1500;
    cr_expect_eq(find("b"), a);
    cr_expect_eq(registry_expire_due(registry, 10, NULL), 0);
    cr_expect_eq(registry_rename(registry, slice_of("b"), slice_of("c"), false, NULL), REGISTRY_OK);
    cr_expect_eq(registry_rename(registry, slice_of("c"), slice_of("c"), false, NULL), REGISTRY_OK);
    cr_expect_eq(expires("c"), 2000);
    (void)b;

    create("x");
    cr_expect_eq(registry_rename(registry, slice_of("x"), slice_of("c"), false, NULL), REGISTRY_OK);
    cr_expect_eq(expires("c"), 0, "the one that had a time is gone");
    cr_expect_eq(numbers().count, 0);
    expect_all_freed();
}

/* The next filters are removed in the order of their times, no more than requested, and the time of the first
 * remaining one is known. */
Test(expiry, due_in_order)
{
    int64_t next;
    char name[32], expected[4096] = "";
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "f%d", i * 37 % 100);
        create(name);
        expire(name, 2000 + i * 37 % 100, 0);
    }
    told[0] = '\0';
    now = 2049;
    size_t removed = registry_expire_due(registry, 10, &next);
    cr_expect_leq(removed, 10);
    cr_expect_eq(next, 2000 + (int64_t)removed);
    while (removed < 50) {
        size_t more = registry_expire_due(registry, 1000, &next); /* may stop early at its time limit */
        cr_assert_gt(more, 0);
        removed += more;
    }
    cr_expect_eq(removed, 50);
    cr_expect_eq(next, 2050);
    for (int i = 0; i < 50; i++)
        snprintf(expected + strlen(expected), sizeof(expected) - strlen(expected), "%sexpired f%d", i ? ", " : "", i);
    TOLD(expected);
    cr_expect_eq(registry_expire_due(registry, 10, &next), 0);
    cr_expect_eq(next, 2050);
    cr_expect_eq(numbers().count, 50);
    cr_expect_eq(numbers().avg_ttl_ms, 2074 - now);
    now = INT64_MAX;
    cr_expect_eq(numbers().avg_ttl_ms, 0, "not negative");
}

static unsigned reads_left; /* of the clock, until another thread, whose clock is at 2000, looks the name up */

static void another_finds_it_gone(void)
{
    if (reads_left == 0 || --reads_left > 0)
        return;
    now = 2000;
    cr_expect_null(find("a"));
    now = 1000;
}

/* While a command postpones a time, a reader with a clock ahead finds the filter gone: so it stays gone. */
Test(expiry, comes_while_it_is_put_off)
{
    static const int64_t times[] = {5000, 0}; /* later, and never: PERSIST */
    unsigned tries = 0;
    for (unsigned i = 0; i < 8; i++) {
        create("a");
        expire("a", 1500, 0);
        reads_left = 1 + i / 2;
        clock_is_read = another_finds_it_gone;
        int status = times[i % 2] ? expire("a", times[i % 2], 0) : registry_persist(registry, slice_of("a"));
        bool looked = reads_left == 0;
        clock_is_read = NULL;
        cr_expect_eq(status, looked ? REGISTRY_NOT_FOUND : REGISTRY_OK, "read %u", 1 + i / 2);
        cr_expect_eq(find("a") != NULL, !looked, "read %u", 1 + i / 2);
        tries += looked;
        registry_delete(registry, slice_of("a"));
    }
    cr_expect_eq(tries, 3, "%u moments", tries);
    expect_all_freed();
}

/* While the clock is held nothing expires, with any reader and any change; afterwards it expires at once. */
Test(expiry, held_clock)
{
    struct entry *entry = create("a"), *found = NULL;
    expire("a", 1500, 0);
    registry_hold_clock(registry);
    now = 2000;
    cr_expect_eq(find("a"), entry);
    cr_expect_eq(registry_expire_due(registry, 10, NULL), 0);
    cr_expect_eq(registry_create_filter(registry, slice_of("a"), 0, small_class, &found, NULL), REGISTRY_EXISTS);
    cr_expect_eq(found, entry);
    cr_expect_eq(scan_all(), 1);
    registry_release_clock(registry);
    cr_expect_null(find("a"));
    cr_expect_eq(registry_expire_due(registry, 10, NULL), 1);
}

/* The longest time overflows nothing. */
Test(expiry, far_future)
{
    for (int i = 0; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%d", i);
        create(name);
        cr_expect_eq(expire(name, INT64_MAX, 0), REGISTRY_OK);
    }
    cr_expect_eq(numbers().avg_ttl_ms, INT64_MAX - now);
    now = INT64_MAX - 1;
    cr_expect_eq(scan_all(), 8);
    now = INT64_MAX;
    cr_expect_eq(scan_all(), 0);
}

/* ---- entries published when they are complete ---- */

static struct entry *prepare(const char *name)
{
    struct entry *entry;
    cr_assert_eq(registry_prepare(registry, slice_of(name), small_class, false, &entry, NULL), REGISTRY_OK);
    return entry;
}

/* A prepared entry is invisible; publishing reports once, with the replaced filter and the expiry. */
Test(expiry, publish)
{
    struct entry *a = prepare("a");
    cr_expect_null(find("a"));
    cr_expect_eq(scan_all(), 0);
    TOLD("");
    cr_expect_eq(registry_publish(registry, a, &(struct registry_publication){.expires_ms = 2000}), REGISTRY_OK);
    cr_expect_eq(find("a"), a);
    cr_expect_eq(expires("a"), 2000);
    TOLD("loaded a until 2000");

    struct entry *taken = prepare("a");
    cr_expect_eq(registry_publish(registry, taken, &(struct registry_publication){.only_new = true}), REGISTRY_EXISTS);
    cr_expect_eq(registry_publish(registry, taken, &(struct registry_publication){.expected_id = 77}),
                 REGISTRY_CHANGED);
    cr_expect_eq(find("a"), a);
    TOLD("");
    cr_expect_eq(
        registry_publish(registry, taken,
                         &(struct registry_publication){.expected_id = a->id, .keep_expiry = true, .empty = true}),
        REGISTRY_OK);
    cr_expect_eq(find("a"), taken);
    cr_expect_eq(expires("a"), 2000);
    cr_expect_eq(numbers().count, 1);
    TOLD("created a for 1 until 2000");

    struct entry *without = prepare("a");
    cr_expect_eq(registry_publish(registry, without, &(struct registry_publication){0}), REGISTRY_OK);
    cr_expect_eq(expires("a"), 0, "replacing drops the time");
    cr_expect_eq(numbers().count, 0);
    TOLD("loaded a for 2");

    struct entry *kept = prepare("a");
    cr_expect_eq(registry_publish(registry, kept, &(struct registry_publication){.keep_expiry = true}), REGISTRY_OK);
    cr_expect_eq(expires("a"), 0);

    struct entry *given_up = prepare("b");
    registry_abandon(registry, given_up);
    expect_all_freed();
}

/* An expired filter counts as missing for a replacement. */
Test(expiry, publish_over_an_expired_one)
{
    struct entry *old = create("a");
    expire("a", 1100, 0);
    struct entry *fresh = prepare("a"), *other = prepare("a");
    now = 1100;
    cr_expect_eq(registry_publish(registry, fresh, &(struct registry_publication){.expected_id = old->id}),
                 REGISTRY_CHANGED);
    cr_expect_eq(
        registry_publish(registry, fresh, &(struct registry_publication){.only_new = true, .keep_expiry = true}),
        REGISTRY_OK);
    cr_expect_eq(expires("a"), 0);
    TOLD("created a, expiry a until 1100, expired a, loaded a");
    cr_expect_eq(registry_publish(registry, other, &(struct registry_publication){.expires_ms = 1050}), REGISTRY_OK);
    cr_expect_null(find("a"), "a time that has passed already");
    expect_all_freed();
}

/* Clearing removes the times, and filters created afterwards have none of them. */
Test(expiry, clear)
{
    size_t removed;
    char name[32];
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        create(name);
        expire(name, 2000 + i, 0);
    }
    told[0] = '\0';
    cr_expect_eq(registry_clear(registry, &removed), 0);
    cr_expect_eq(removed, 5000);
    TOLD("cleared 5000");
    cr_expect_eq(numbers().count, 0);
    int64_t next;
    cr_expect_eq(registry_expire_due(registry, 10, &next), 0);
    cr_expect_eq(next, 0);
    create("f1");
    now = 10000;
    cr_expect_eq(registry_expire_due(registry, 10, NULL), 0);
    cr_expect_not_null(find("f1"));
    expect_all_freed();
}

/* ---- the heap ---- */

static int64_t times[5000]; /* by name; 0: none */
static int64_t last_due;

static void note_order(void *ctx, const struct registry_effect *effect)
{
    size_t *n = ctx;
    if (effect->kind != REGISTRY_EXPIRED)
        return;
    int64_t *due = &times[strtoul(effect->name.ptr + 1, NULL, 10)];
    cr_assert_geq(*due, last_due, "f%td is late", due - times);
    last_due = *due;
    *due = 0;
    ++*n;
}

/* After times have been set, changed and removed at random, the average is that of the remaining ones, and they expire
 * in order. */
Test(expiry, heap_order)
{
    enum { N = sizeof(times) / sizeof(times[0]) };
    unsigned state = 99;
    size_t n = 0, left = 0;
    __int128 sum = 0;
    registry_on_effect(registry, note_order, &n);
    for (unsigned i = 0; i < N; i++) {
        struct entry *entry;
        cr_assert_eq(registry_create_filter(registry, name_of(i), 0, small_class, &entry, NULL), REGISTRY_OK);
    }
    for (unsigned i = 0; i < 8 * N; i++) {
        unsigned k = (unsigned)rand_r(&state) % N;
        times[k] = rand_r(&state) % 3 ? 2000 + rand_r(&state) % 100000 : 0;
        if (times[k])
            cr_assert_eq(registry_expire(registry, name_of(k), times[k], 0), REGISTRY_OK);
        else
            registry_persist(registry, name_of(k));
    }
    for (unsigned i = 0; i < N; i++) {
        left += times[i] != 0;
        sum += times[i];
    }
    cr_expect_eq(numbers().count, left);
    cr_expect_eq(numbers().avg_ttl_ms, (int64_t)(sum / (__int128)left) - now);
    while (now < 110000) {
        now += 100;
        while (registry_expire_due(registry, 1000, NULL))
            ;
    }
    cr_expect_eq(n, left);
}

/* ---- against a model ---- */

#define NAMES 3000

static struct {
    uint64_t id;
    int64_t expires;
} model[NAMES];

static bool model_has(unsigned i)
{
    return model[i].id && (!model[i].expires || model[i].expires > now);
}

static void model_step(unsigned *state)
{
    unsigned a = (unsigned)rand_r(state) % NAMES, b = (unsigned)rand_r(state) % NAMES;
    bool there = model_has(a);
    int64_t at = now + rand_r(state) % 2000;
    struct entry *entry = NULL;
    switch (rand_r(state) % 8) {
    case 0:
    case 1:
        cr_assert_eq(registry_create_filter(registry, name_of(a), 0, small_class, &entry, NULL),
                     there ? REGISTRY_EXISTS : REGISTRY_OK);
        cr_assert(!there || entry->id == model[a].id);
        if (!there)
            model[a].expires = 0;
        model[a].id = entry->id;
        break;
    case 2:
    case 3:
        cr_assert_eq(registry_expire(registry, name_of(a), at, 0), there ? REGISTRY_OK : REGISTRY_NOT_FOUND);
        model[a].expires = there ? at : 0;
        model[a].id = there ? model[a].id : 0;
        break;
    case 4:
        cr_assert_eq(registry_persist(registry, name_of(a)), !there             ? REGISTRY_NOT_FOUND
                                                             : model[a].expires ? REGISTRY_OK
                                                                                : REGISTRY_UNCHANGED);
        model[a].expires = 0;
        model[a].id = there ? model[a].id : 0;
        break;
    case 5:
        cr_assert_eq(registry_delete(registry, name_of(a)), there ? REGISTRY_OK : REGISTRY_NOT_FOUND);
        model[a].id = 0;
        break;
    case 6:
        cr_assert_eq(registry_rename(registry, name_of(a), name_of(b), false, NULL),
                     there ? REGISTRY_OK : REGISTRY_NOT_FOUND);
        if (there && a != b) {
            model[b] = model[a];
            model[a].id = 0;
        }
        break;
    default:
        now += rand_r(state) % 3;
        registry_expire_due(registry, (size_t)rand_r(state) % 5, NULL);
        break;
    }
}

/* Random changes and an advancing clock agree with an array, at each step for one name and at the end for all; the
 * heap has exactly the filters with a time. */
Test(expiry, agrees_with_a_model)
{
    unsigned state = 4711;
    registry_on_effect(registry, NULL, NULL);
    for (int step = 0; step < 300000; step++) {
        model_step(&state);
        unsigned i = (unsigned)rand_r(&state) % NAMES;
        struct entry *seen = registry_lookup(registry, name_of(i));
        cr_assert_eq(seen ? seen->id : 0, model_has(i) ? model[i].id : 0, "step %d, f%u", step, i);
        if (step % 1000 == 0) { /* the grace periods of removed filters */
            rcu_reader_offline();
            rcu_reader_online();
        }
    }
    size_t there = 0, with_time = 0;
    while (registry_expire_due(registry, 1000, NULL))
        ;
    for (unsigned i = 0; i < NAMES; i++) {
        there += model_has(i);
        with_time += model_has(i) && model[i].expires;
    }
    cr_expect_gt(with_time, 100, "the test has lost its meaning");
    cr_expect_eq(registry_count(registry), there);
    cr_expect_eq(numbers().count, with_time);
    cr_expect_eq(scan_all(), there);
    now += 100000;
    while (registry_expire_due(registry, 1000, NULL))
        ;
    cr_expect_eq(registry_count(registry), there - with_time);
    expect_all_freed();
}
