/* The list of loads under way: one owner for each, a second chunk spoils it, pauses end it, their number is limited. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "half_loads.h"
#include "rcu.h"

static struct bloom_pool *pool;
static struct reclaimer *reclaimer;
static struct registry *registry;
static struct half_loads *loads;

static void setup(void)
{
    cr_assert_eq(bloom_pool_create(&pool), 0);
    cr_assert_eq(reclaimer_create(&reclaimer), 0);
    cr_assert_eq(registry_create(&registry, pool, reclaimer), 0);
    cr_assert_eq(half_loads_create(&loads), 0);
}

/* The pool checks that all filters are freed. */
static void teardown(void)
{
    half_loads_destroy(loads, registry);
    registry_destroy(registry);
    reclaimer_destroy(reclaimer);
    bloom_pool_destroy(pool);
}

TestSuite(half_loads, .init = setup, .fini = teardown);

/* The load of a dump of a small filter. */
static struct bf_load *begun(void)
{
    struct bf_load *load = calloc(1, sizeof(*load));
    cr_assert_not_null(load);
    load->own.plan.bytes = 1000;
    return load;
}

static struct half_load *begin(const char *name)
{
    struct bloom_params params = {100, 0.01, 2};
    struct bloom_class *class;
    struct half_load *load;
    struct errbuf err = {""};

    cr_assert_eq(half_loads_add(loads, slice_of(name), begun(), &load), HALF_LOADS_OK);
    cr_assert_eq(bloom_class_get(pool, &params, NULL, &class, &err), 0);
    cr_assert_eq(registry_prepare(registry, slice_of(name), class, false, &load->entry, &err), REGISTRY_OK);
    bloom_class_release(class);
    return load;
}

static void end(struct half_load *load)
{
    struct entry *entry = load->entry;
    (void)half_loads_drop(loads, load);
    registry_abandon(registry, entry);
}

Test(half_loads, one_owner_at_a_time)
{
    struct half_load *load = begin("a"), *other;

    cr_assert_eq(half_loads_take(loads, slice_of("b"), &other), HALF_LOADS_NONE);
    cr_assert(half_loads_keep(loads, load, 5));
    cr_assert_eq(half_loads_take(loads, slice_of("a"), &other), HALF_LOADS_OK);
    cr_assert_eq(other, load);
    cr_assert_eq(half_loads_take(loads, slice_of("a"), &other), HALF_LOADS_BUSY);
    cr_assert_not(half_loads_keep(loads, load, 6), "a second chunk came meanwhile");
    end(load);
    cr_assert_eq(half_loads_take(loads, slice_of("a"), &other), HALF_LOADS_NONE);
    cr_assert_eq(half_loads_count(loads), 0);
    cr_assert_null(registry_lookup(registry, slice_of("a")));
}

/* The owner of the last chunk takes the load off the list instead of keeping it; the result shows a spoilt load. */
Test(half_loads, the_last_chunk_can_be_spoilt_too)
{
    struct half_load *load = begin("a"), *other;
    struct entry *entry = load->entry;

    cr_assert_eq(half_loads_take(loads, slice_of("a"), &other), HALF_LOADS_BUSY);
    cr_assert(half_loads_drop(loads, load));
    registry_abandon(registry, entry);

    load = begin("a");
    entry = load->entry;
    cr_assert_not(half_loads_drop(loads, load));
    registry_abandon(registry, entry);
}

Test(half_loads, a_second_beginning_spoils_the_first)
{
    struct half_load *load = begin("a"), *other;

    cr_assert_eq(half_loads_add(loads, slice_of("a"), begun(), &other), HALF_LOADS_BUSY);
    cr_assert_not(half_loads_keep(loads, load, 5));
    end(load);
}

/* Loads that wait too long are dropped, loads in use are not; the memory is given back. */
Test(half_loads, pauses_end_a_load)
{
    struct half_load *old = begin("old"), *young = begin("young"), *busy = begin("busy"), *other;

    cr_assert(half_loads_keep(loads, old, 1000));
    cr_assert(half_loads_keep(loads, young, 2000));
    uint64_t bytes = bloom_pool_bytes(pool);
    half_loads_expire(loads, registry, 1000);
    cr_assert_eq(half_loads_count(loads), 3);
    half_loads_expire(loads, registry, 1001);
    cr_assert_eq(half_loads_count(loads), 2);
    reclaimer_flush(reclaimer);
    cr_assert_eq(bloom_pool_bytes(pool), bytes / 3 * 2);
    cr_assert_eq(half_loads_take(loads, slice_of("old"), &other), HALF_LOADS_NONE);
    cr_assert_eq(half_loads_take(loads, slice_of("young"), &other), HALF_LOADS_OK);
    half_loads_expire(loads, registry, INT64_MAX);
    cr_assert_eq(half_loads_count(loads), 2);
    end(busy);
    end(young);
}

Test(half_loads, the_number_is_limited)
{
    struct half_load *last = NULL, *other;
    char name[16];

    for (int i = 0; i < HALF_LOADS_MAX; i++) {
        snprintf(name, sizeof(name), "%d", i);
        last = begin(name);
        if (i < HALF_LOADS_MAX - 1)
            cr_assert(half_loads_keep(loads, last, i));
    }
    cr_assert_eq(half_loads_add(loads, slice_of("one more"), begun(), &other), HALF_LOADS_FULL);
    end(last);
    other = begin("one more");
    cr_assert(half_loads_keep(loads, other, 0)); /* teardown drops the rest */
}
