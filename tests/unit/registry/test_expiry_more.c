/* Expiry in one thread and with its own clock: items of a walk, quarantined filters, random names, times of use. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "expiry_rig.h"
#include "registry_walk.h"

TestSuite(expiry_more, .init = rig_setup, .fini = rig_teardown, .timeout = 3000);

/* ---- a clock that is set back ---- */

/* A filter that a reader has found to be over stays gone, also for changes: they must not add to it, as no reader would
 * find the items. */
Test(expiry_more, seen_as_expired_stays_gone_when_the_clock_is_set_back)
{
    struct entry *old = create("f");
    cr_assert_eq(expire("f", 2000, 0), REGISTRY_OK);
    now = 2000;
    cr_assert_null(find("f"));
    now = 1500;
    cr_expect_null(find("f"));
    struct entry *made = create("f");
    cr_expect_neq(made, old);
    cr_expect_eq(find("f"), made);
    cr_expect_eq(expires("f"), 0);
}

/* ---- the walk ---- */

struct yielded {
    uint64_t id;
    int64_t expires_ms;
    char name[16];
};

static struct yielded last[64]; /* by the lowest bits of the id: a round has 8 */

static void take(const struct registry_item *item)
{
    struct yielded *y = &last[item->id % 64];
    y->id = item->entry ? item->id : 0;
    y->expires_ms = item->expires_ms;
    snprintf(y->name, sizeof(y->name), "%.*s", (int)item->name.len, item->entry ? item->name.ptr : "");
}

static int frozen;

static void on_freeze(void *ctx)
{
    frozen++;
    cr_expect_eq(ctx, &frozen);
}

/* A walk yields the times of the moment at which it freezes, with any changes before, in any order. */
Test(expiry_more, walk_yields_the_times_of_one_moment)
{
    for (unsigned round = 0; round < 200; round++) {
        unsigned state = round;
        struct registry_item item;
        size_t removed;
        char name[16];
        registry_clear(registry, &removed);
        memset(last, 0, sizeof(last));
        now = 1000;
        for (int i = 0; i < 8; i++) {
            snprintf(name, sizeof(name), "%d", i);
            create(name);
            if (i % 2)
                expire(name, 2000, 0);
        }
        frozen = 0;
        registry_walk_begin(registry, on_freeze, &frozen);
        for (int step = 0; registry_walk_next(registry, &item) == 1; step++) {
            take(&item);
            registry_walk_release(&item);
            if (frozen) /* later changes are not in it */
                continue;
            char other[16];
            snprintf(name, sizeof(name), "%d", rand_r(&state) % 8);
            snprintf(other, sizeof(other), "%d", rand_r(&state) % 8);
            switch (rand_r(&state) % 4) {
            case 0:
                expire(name, 3000 + step, 0);
                break;
            case 1:
                registry_persist(registry, slice_of(name));
                break;
            case 2:
                registry_rename(registry, slice_of(name), slice_of(other), false, NULL);
                break;
            default:
                registry_delete(registry, slice_of(name));
                break;
            }
        }
        registry_walk_end(registry);
        size_t n = 0;
        for (int i = 0; i < 64; i++) {
            if (!last[i].id)
                continue;
            n++;
            struct entry *entry = find(last[i].name);
            cr_assert(entry && entry->id == last[i].id, "round %u: %s", round, last[i].name);
            cr_assert_eq(expires(last[i].name), last[i].expires_ms, "round %u: %s", round, last[i].name);
        }
        cr_assert_eq(n, scan_all(), "round %u", round);
    }
}

/* Filters that have expired before their turn are not yielded. */
Test(expiry_more, walk_leaves_out_what_has_expired)
{
    struct registry_item item;
    create("a");
    create("b");
    expire("a", 1100, 0);
    now = 1100;
    registry_walk_begin(registry, NULL, NULL);
    cr_assert_eq(registry_walk_next(registry, &item), 1);
    cr_expect_eq(item.name.ptr[0], 'b');
    registry_walk_release(&item);
    cr_expect_eq(registry_walk_next(registry, &item), 0);
    registry_walk_end(registry);
}

/* The walk reports the moment of its state once, before the items that follow it. */
Test(expiry_more, walk_tells_its_moment)
{
    struct registry_item item;
    frozen = 0;
    create("a");
    registry_walk_begin(registry, on_freeze, &frozen);
    cr_assert_eq(registry_walk_next(registry, &item), 1);
    registry_walk_release(&item);
    cr_expect_eq(frozen, 0);
    expire("a", 2000, 0);
    cr_assert_eq(registry_walk_next(registry, &item), 1);
    cr_expect_eq(item.expires_ms, 2000);
    registry_walk_release(&item);
    cr_expect_eq(frozen, 1);
    cr_assert_eq(registry_walk_next(registry, &item), 0);
    cr_expect_eq(frozen, 1);
    registry_walk_end(registry);
    registry_walk_begin(registry, NULL, NULL);
    while (registry_walk_next(registry, &item) == 1)
        registry_walk_release(&item);
    registry_walk_end(registry);
    cr_expect_eq(frozen, 1, "it was for that walk");
}

/* ---- quarantined filters, random names, times of use ---- */

/* A quarantined filter may expire like any other. */
Test(expiry_more, quarantined)
{
    cr_expect_eq(registry_create_quarantined(registry, slice_of("bad"), 7, "file is short"), REGISTRY_OK);
    cr_expect_eq(expire("bad", 1100, 0), REGISTRY_OK);
    cr_expect_str_eq(entry_quarantine_reason(find("bad")), "file is short");
    cr_expect_eq(registry_quarantined(registry), 1);
    now = 1100;
    cr_expect_null(find("bad"));
    cr_expect_eq(registry_expire_due(registry, 1, NULL), 1);
    cr_expect_eq(registry_quarantined(registry), 0);
}

/* Expired filters count for a scan's limit: a call ends soon with any number of them. */
Test(expiry_more, scan_is_bounded_among_expired)
{
    for (unsigned i = 0; i < 20000; i++) {
        struct entry *entry;
        cr_assert_eq(registry_create_filter(registry, name_of(i), 0, small_class, &entry, NULL), REGISTRY_OK);
        registry_expire(registry, name_of(i), 1100, 0);
    }
    now = 1100;
    scanned = 0;
    cr_expect_neq(registry_scan(registry, 0, 100, count_scanned, NULL), 0);
    cr_expect_eq(scanned, 0);
}

#define DAY_MS (INT64_C(24) * 60 * 60 * 1000)

/* The time of use in two bytes: exact to a unit, and old times never look recent if ageing runs often enough. */
Test(expiry_more, idle_time)
{
    struct entry *entry = create("a"), *used = create("b");
    int64_t start = INT64_C(1000) * DAY_MS;
    entry_note_use(entry, entry_stamp(start));
    cr_expect_eq(entry_idle_ms(entry, start), 0);
    int64_t idle = entry_idle_ms(entry, start + 10 * DAY_MS);
    cr_expect(idle > 10 * DAY_MS - 65536 && idle <= 10 * DAY_MS + 65536, "%lld", (long long)idle);
    for (int day = 0; day <= 400; day += 12) {
        entry_note_use(used, entry_stamp(start + day * DAY_MS));
        registry_age(registry, start + day * DAY_MS);
        idle = entry_idle_ms(entry, start + day * DAY_MS);
        cr_expect(idle + 65536 >= (day < 24 ? day : 24) * DAY_MS, "day %d: %lld", day, (long long)idle);
        cr_expect_eq(entry_idle_ms(used, start + day * DAY_MS), 0);
    }
}

/* ---- the expirer's wait ---- */

static atomic_uint looks;

static int64_t counted_clock(void)
{
    struct timespec ts;
    atomic_fetch_add(&looks, 1);
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void *wait_for_due(void *arg)
{
    (void)arg;
    return (void *)(uintptr_t)registry_expire_wait(registry);
}

/* While the clock is held, a filter may be due by the real time and not by the held one. */
Test(expiry_more, waiting_beyond_a_held_clock_is_no_spinning)
{
    pthread_t waiter;
    void *go_on = NULL;
    registry_set_clock(registry, counted_clock);
    create("f");
    registry_hold_clock(registry);
    cr_assert_eq(expire("f", counted_clock() + 1, 0), REGISTRY_OK);
    usleep(5000);
    int64_t begun = counted_clock();
    atomic_store(&looks, 0);
    cr_assert_eq(pthread_create(&waiter, NULL, wait_for_due, NULL), 0);
    usleep(100 * 1000);
    unsigned looked = atomic_load(&looks);
    int64_t passed = counted_clock() - begun;
    registry_release_clock(registry);
    cr_assert_eq(pthread_join(waiter, &go_on), 0);
    cr_expect_not_null(go_on);
    cr_expect_lt(looked, (unsigned)passed + 10, "%u looks in %d ms", looked, (int)passed);
    cr_expect_eq(registry_expire_due(registry, 10, NULL), 1);
}
