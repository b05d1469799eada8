/* The memory, pins and deleted filters that a walk keeps while clients change the registry. */
#include <criterion/criterion.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "rcu.h"
#include "registry.h"
#include "registry_walk.h"

#define NFILTERS 64
#define SLACK    (UINT64_C(1) << 20)

static struct bloom_pool *pool;
static struct reclaimer *reclaimer;
static struct registry *registry;
static struct bloom_class *class;

static void setup(void)
{
    struct bloom_params params = {.capacity = 10000, .error_rate = 0.01, .expansion = 2};
    cr_assert_eq(bloom_pool_create(&pool), 0);
    cr_assert_eq(reclaimer_create(&reclaimer), 0);
    cr_assert_eq(registry_create(&registry, pool, reclaimer), 0);
    cr_assert_eq(bloom_class_get(pool, &params, NULL, &class, NULL), 0);
    rcu_reader_begin();
    rcu_reader_offline();
}

static void teardown(void)
{
    rcu_reader_end();
    bloom_class_release(class);
    registry_destroy(registry);
    reclaimer_destroy(reclaimer);
    cr_expect_eq(bloom_pool_bytes(pool), 0);
    bloom_pool_destroy(pool);
}

TestSuite(walk, .init = setup, .fini = teardown, .timeout = 3000);

static struct slice name_of(unsigned i)
{
    static char text[32];
    int len = snprintf(text, sizeof(text), "filter:%u", i);
    return (struct slice){text, (size_t)len};
}

static void create(unsigned i)
{
    struct entry *entry;
    struct errbuf err = {""};
    cr_assert_eq(registry_create_filter(registry, name_of(i), 0, class, &entry, &err), REGISTRY_OK, "%s", err.text);
}

static uint64_t heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static int64_t in_an_hour(unsigned more)
{
    return (int64_t)time(NULL) * 1000 + 3600 * 1000 + more;
}

/* Begins a walk over NFILTERS filters and takes the first item. */
static bool frozen;

static void note_freeze(void *at)
{
    *(bool *)at = true;
}

static struct registry_item begin(void)
{
    struct registry_item item;
    for (unsigned i = 0; i < NFILTERS; i++)
        create(i);
    registry_walk_begin(registry, note_freeze, &frozen);
    cr_assert_eq(registry_walk_next(registry, &item), 1);
    return item;
}

static void take_rest(unsigned *left_out, unsigned *gone_out)
{
    struct registry_item item;
    *left_out = *gone_out = 0;
    while (registry_walk_next(registry, &item) == 1) {
        *(item.entry ? left_out : gone_out) += 1;
        registry_walk_release(&item);
    }
    registry_walk_end(registry);
}

/* Two million changes of one filter make one note; they took 112 MB when each made its own. */
Test(walk, two_million_expires_take_no_memory)
{
    unsigned left, gone;
    struct registry_item item = begin();
    registry_expire(registry, name_of(1), in_an_hour(0), 0);
    uint64_t before = heap_bytes();
    for (unsigned i = 1; i <= 2000000; i++)
        cr_assert_eq(registry_expire(registry, name_of(1), in_an_hour(i), 0), REGISTRY_OK);
    cr_expect_leq(heap_bytes(), before + SLACK);
    registry_walk_release(&item);
    take_rest(&left, &gone);
    cr_expect_leq(left, NFILTERS + 1, "one more at the most: %u", left);
}

/* Nor do short-lived filters: the walk has not yielded them, so their removal needs no note. */
Test(walk, filters_that_come_and_go_take_no_memory)
{
    unsigned left, gone;
    struct registry_item item = begin();
    uint64_t before = heap_bytes();
    for (unsigned i = 0; i < 200000; i++) {
        create(NFILTERS + i % 5000);
        cr_assert_eq(registry_rename(registry, name_of(NFILTERS + i % 5000), (struct slice){"x", 1}, false, NULL), 0);
        cr_assert_eq(registry_delete(registry, (struct slice){"x", 1}), REGISTRY_OK);
        if (i % 1000 == 0)
            reclaimer_flush(reclaimer);
    }
    reclaimer_flush(reclaimer);
    cr_expect_leq(heap_bytes(), before + 2 * SLACK);
    registry_walk_release(&item);
    take_rest(&left, &gone);
    cr_expect_eq(left, NFILTERS - 1);
    cr_expect_eq(gone, 0);
}

/* Deleted during the walk, whether they have been taken, noted or neither: only the held filter stays. */
Test(walk, deleted_filters_give_their_memory_back_at_once)
{
    unsigned left, gone;
    struct registry_item item = begin();
    uint64_t one = bloom_pool_bytes(pool) / NFILTERS;
    for (unsigned i = 0; i < NFILTERS; i += 2)
        registry_expire(registry, name_of(i), in_an_hour(0), 0);
    for (unsigned i = 0; i < NFILTERS; i++)
        cr_assert_eq(registry_delete(registry, name_of(i)), REGISTRY_OK);
    for (int i = 0; i < 6000 && bloom_pool_bytes(pool) > one; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    cr_expect_eq(bloom_pool_bytes(pool), one);
    registry_walk_release(&item);
    take_rest(&left, &gone);
    cr_expect_eq(left, 0);
    cr_expect_eq(gone, 1);
}

/* Filters removed by FLUSHALL are free at once, too. */
Test(walk, cleared_filters_give_their_memory_back_at_once)
{
    unsigned left, gone;
    size_t removed;
    struct registry_item item = begin();
    uint64_t one = bloom_pool_bytes(pool) / NFILTERS;
    for (unsigned i = 0; i < NFILTERS; i += 2)
        registry_expire(registry, name_of(i), in_an_hour(0), 0);
    cr_assert_eq(registry_clear(registry, &removed), 0);
    for (int i = 0; i < 6000 && bloom_pool_bytes(pool) > one; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    cr_expect_eq(bloom_pool_bytes(pool), one);
    registry_walk_release(&item);
    take_rest(&left, &gone);
    cr_expect_eq(left, 0);
    cr_expect_eq(gone, 1);
}

/* After the freeze a walk yields the filters of that moment, deleted since or not. */
Test(walk, deleted_after_the_freeze_is_still_yielded)
{
    unsigned after = 0;
    struct registry_item item = begin();
    for (unsigned i = 0; i < NFILTERS; i++)
        registry_expire(registry, name_of(i), in_an_hour(0), 0);
    registry_walk_release(&item);
    while (registry_walk_next(registry, &item) == 1) {
        for (unsigned i = 0; frozen && after == 0 && i < NFILTERS; i++)
            cr_assert_eq(registry_delete(registry, name_of(i)), REGISTRY_OK);
        after += frozen;
        if (frozen)
            cr_expect_eq(bloom_filter_items(entry_filter(item.entry)), 0);
        registry_walk_release(&item);
    }
    registry_walk_end(registry);
    cr_expect_eq(after, NFILTERS);
}

/* A wrapped count of pins would free the filter while it is held. */
Test(walk, pins_that_would_wrap_end_the_process, .signal = SIGABRT)
{
    create(0);
    for (unsigned i = 0; i < 1u << 24; i++)
        cr_assert_not_null(registry_pin(registry, name_of(0)));
}
