/* The index of names: the visits of registry_scan_prefix(), against a sorted array of the names. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expiry_rig.h"

TestSuite(names, .init = rig_setup, .fini = rig_teardown);

#define NAMES   400
#define MAX_LEN 12

/* ---- a model ---- */

struct name {
    size_t len;
    char bytes[MAX_LEN];
};

static struct name there[NAMES];
static size_t nthere;

static struct slice of(const struct name *name)
{
    return (struct slice){name->bytes, name->len};
}

static int compare(struct slice a, struct slice b)
{
    int first = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
    return first ? first : (a.len > b.len) - (a.len < b.len);
}

static int by_name(const void *a, const void *b)
{
    return compare(of(a), of(b));
}

static size_t where(struct slice name)
{
    size_t i = 0;
    while (i < nthere && compare(of(&there[i]), name) != 0)
        i++;
    return i;
}

/* Few different bytes, so that names share beginnings; NUL and 0xff among them. */
static struct name any_name(unsigned *state, size_t longest)
{
    static const char bytes[] = {'a', 'b', '\0', '\xff'};
    struct name name = {.len = (size_t)rand_r(state) % (longest + 1)};
    for (size_t i = 0; i < name.len; i++)
        name.bytes[i] = bytes[rand_r(state) % 4];
    return name;
}

/* ---- visits ---- */

struct visit {
    struct slice last;
    size_t n;
    bool disorder;
    struct name names[NAMES];
};

static void note_order(void *ctx, struct slice name, struct entry *entry)
{
    struct visit *visit = ctx;
    cr_assert_eq(entry, registry_lookup(registry, name));
    visit->disorder |= visit->n++ > 0 && compare(visit->last, name) >= 0;
    visit->last = name;
}

static void note(void *ctx, struct slice name, struct entry *entry)
{
    struct visit *visit = ctx;
    visit->names[visit->n].len = name.len;
    memcpy(visit->names[visit->n].bytes, name.ptr, name.len);
    note_order(ctx, name, entry);
}

/* All names with the prefix, `most` at a time. */
static void expect_visits(struct slice prefix, size_t most)
{
    static struct visit visit;
    size_t expected = 0, n;
    visit.n = 0;
    visit.disorder = false;
    do {
        struct slice after = visit.last;
        n = registry_scan_prefix(registry, prefix, visit.n ? &after : NULL, most, note, &visit);
        cr_assert_leq(n, most);
    } while (n == most);
    cr_assert_not(visit.disorder);
    for (size_t i = 0; i < nthere; i++) {
        struct slice name = of(&there[i]);
        if (name.len < prefix.len || memcmp(name.ptr, prefix.ptr, prefix.len) != 0)
            continue;
        cr_assert_lt(expected, visit.n, "a name is missing");
        cr_assert_eq(compare(name, of(&visit.names[expected])), 0);
        expected++;
    }
    cr_assert_eq(visit.n, expected);
}

static void change(unsigned *state)
{
    struct name a = any_name(state, MAX_LEN), b = any_name(state, MAX_LEN);
    struct entry *entry;
    size_t i = nthere ? (size_t)rand_r(state) % nthere : 0;
    switch (rand_r(state) % 8) {
    case 0:
    case 1: /* delete */
        if (nthere == 0)
            break;
        cr_assert_eq(registry_delete(registry, of(&there[i])), REGISTRY_OK);
        there[i] = there[--nthere];
        break;
    case 2: /* rename, perhaps onto another one */
        if (nthere == 0)
            break;
        cr_assert_eq(registry_rename(registry, of(&there[i]), of(&b), false, NULL), REGISTRY_OK);
        if (where(of(&b)) < nthere && where(of(&b)) != i) {
            size_t other = where(of(&b));
            there[i] = b;
            there[other] = there[--nthere];
        } else {
            there[i] = b;
        }
        break;
    case 3: /* an expiry puts another holder under the name */
        if (nthere)
            cr_assert_eq(registry_expire(registry, of(&there[i]), now + 1000000000, 0), REGISTRY_OK);
        break;
    default:
        if (nthere == NAMES)
            break;
        if (registry_create_filter(registry, of(&a), 0, small_class, &entry, NULL) == REGISTRY_OK)
            there[nthere++] = a;
        break;
    }
    qsort(there, nthere, sizeof(there[0]), by_name);
}

/* After any changes each prefix yields the names that begin with it, in order, in pieces of any size. */
Test(names, prefixes_agree_with_a_sorted_array)
{
    unsigned state = 1414;
    for (int step = 0; step < 6000; step++) {
        change(&state);
        if (step % 10)
            continue;
        struct name prefix = any_name(&state, 4);
        expect_visits(of(&prefix), 1 + (size_t)rand_r(&state) % 50);
        expect_visits((struct slice){"", 0}, 1 + (size_t)rand_r(&state) % 500);
    }
    size_t removed;
    cr_assert_gt(nthere, NAMES / 2);
    cr_assert_eq(registry_clear(registry, &removed), 0);
    nthere = 0;
    expect_visits((struct slice){"", 0}, 10);
}

/* Names added while there is no order are in it afterwards, and so are the older ones. */
Test(names, are_put_in_order_at_once)
{
    unsigned state = 27;
    for (int round = 0; round < 100; round++) {
        int held = rand_r(&state) % 60, between = rand_r(&state) % 20;
        registry_leave_order(registry);
        cr_assert_eq(registry_scan_prefix(registry, (struct slice){"", 0}, NULL, 10, note, NULL), 0);
        for (int i = 0; i < held; i++)
            change(&state);
        cr_assert_eq(registry_put_in_order(registry), 0);
        expect_visits((struct slice){"", 0}, 1 + (size_t)rand_r(&state) % 50);
        for (int i = 0; i < between; i++)
            change(&state);
        struct name prefix = any_name(&state, 4);
        expect_visits(of(&prefix), 1 + (size_t)rand_r(&state) % 50);
    }
}

/* New names are collected before they are inserted: any number of them may come between two walks. */
Test(names, any_number_comes_between_walks)
{
    unsigned state = 64;
    struct entry *entry;
    size_t removed;
    for (int round = 0; round < 300; round++) {
        int n = rand_r(&state) % 100;
        while (n-- > 0 && nthere < NAMES) {
            struct name name = any_name(&state, MAX_LEN);
            if (registry_create_filter(registry, of(&name), 0, small_class, &entry, NULL) == REGISTRY_OK)
                there[nthere++] = name;
        }
        qsort(there, nthere, sizeof(there[0]), by_name);
        if (rand_r(&state) % 4 == 0) {
            cr_assert_eq(registry_clear(registry, &removed), 0);
            cr_assert_eq(removed, nthere);
            nthere = 0;
        }
        expect_visits((struct slice){"", 0}, 1 + (size_t)rand_r(&state) % 50);
    }
}

/* ---- long paths ---- */

/* The new name walks down hundreds of nodes, and differs in its first byte: its place is far above the end. */
Test(names, a_name_that_differs_early_finds_its_place_above_a_long_path)
{
    static char text[300];
    struct entry *entry;
    struct visit *visit = calloc(1, sizeof(*visit));
    cr_assert_not_null(visit);
    memset(text, 'a', sizeof(text));
    for (size_t len = 1; len < sizeof(text); len++)
        cr_assert_eq(registry_create_filter(registry, (struct slice){text, len}, 0, small_class, &entry, NULL),
                     REGISTRY_OK);
    cr_assert_eq(registry_scan_prefix(registry, (struct slice){"a", 1}, NULL, SIZE_MAX, note_order, visit), 299);
    text[0] = 'b';
    cr_assert_eq(registry_create_filter(registry, (struct slice){text, 290}, 0, small_class, &entry, NULL),
                 REGISTRY_OK);
    *visit = (struct visit){0};
    cr_assert_eq(registry_scan_prefix(registry, (struct slice){"", 0}, NULL, SIZE_MAX, note_order, visit), 300);
    cr_assert_not(visit->disorder);
    cr_assert_eq(visit->last.ptr[0], 'b');
    cr_assert_eq(registry_scan_prefix(registry, (struct slice){"a", 1}, NULL, SIZE_MAX, note_order, visit), 299);
    free(visit);
}

#define DEPTH 600

struct descent {
    size_t n, last;
};

static void note_shorter(void *ctx, struct slice name, struct entry *entry)
{
    struct descent *descent = ctx;
    cr_assert_not_null(entry);
    cr_assert(descent->n == 0 || name.len + 1 == descent->last, "%zu behind %zu", name.len, descent->last);
    descent->last = name.len;
    descent->n++;
}

/* b, ab, aab, ...: a path of hundreds of nodes, each with a name to its right. A walk remembers fewer, and seeks its
 * place again. */
Test(names, a_path_longer_than_a_walk_remembers_is_walked_to_its_end)
{
    static char text[DEPTH];
    struct entry *entry;
    memset(text, 'a', sizeof(text));
    text[DEPTH - 1] = 'b';
    for (size_t i = 0; i < DEPTH; i++) { /* in no order */
        size_t start = i * 7 % DEPTH;
        struct slice name = {text + start, DEPTH - start};
        cr_assert_eq(registry_create_filter(registry, name, 0, small_class, &entry, NULL), REGISTRY_OK);
    }
    struct descent descent = {0};
    cr_assert_eq(registry_scan_prefix(registry, (struct slice){"", 0}, NULL, SIZE_MAX, note_shorter, &descent), DEPTH);
    cr_assert_eq(descent.n, DEPTH);
    descent = (struct descent){0};
    cr_assert_eq(registry_scan_prefix(registry, (struct slice){text, 100}, NULL, SIZE_MAX, note_shorter, &descent),
                 DEPTH - 100);
    registry_leave_order(registry);
    cr_assert_eq(registry_put_in_order(registry), 0);
    descent = (struct descent){0};
    cr_assert_eq(registry_scan_prefix(registry, (struct slice){"", 0}, NULL, SIZE_MAX, note_shorter, &descent), DEPTH);
}

static void expect_over(void *ctx, struct slice name, struct entry *entry)
{
    cr_assert_eq(entry != NULL, name.ptr[0] == 'b', "'%.*s'", (int)name.len, name.ptr);
    ++*(size_t *)ctx;
}

/* An expired name is visited without its filter, which must not be used any more. */
Test(names, an_expired_filter_is_no_filter)
{
    size_t n = 0;
    create("a");
    create("b");
    expire("a", now + 10, 0);
    now += 11;
    cr_assert_eq(registry_scan_prefix(registry, (struct slice){"", 0}, NULL, 10, expect_over, &n), n);
    cr_assert(n == 1 || n == 2);
}
