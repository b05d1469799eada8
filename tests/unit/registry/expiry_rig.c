#include "expiry_rig.h"

#include <stdio.h>
#include <string.h>

static struct bloom_pool *pool;
struct reclaimer *reclaimer;
struct registry *registry;
struct bloom_class *small_class;

int64_t now;
void (*clock_is_read)(void);

static int64_t clock_of_the_test(void)
{
    int64_t answer = now;
    if (clock_is_read)
        clock_is_read();
    return answer;
}

/* ---- effects ---- */

char told[65536]; /* "created a, expiry a 1000, ..." */

static void note(const char *what, struct slice name, const char *more)
{
    size_t used = strlen(told);
    snprintf(told + used, sizeof(told) - used, "%s%s %.*s%s", used ? ", " : "", what, (int)name.len, name.ptr, more);
}

static void on_effect(void *ctx, const struct registry_effect *effect)
{
    static const char *const names[] = {
        [REGISTRY_CREATED] = "created", [REGISTRY_LOADED] = "loaded",   [REGISTRY_DELETED] = "deleted",
        [REGISTRY_EXPIRED] = "expired", [REGISTRY_RENAMED] = "renamed", [REGISTRY_EXPIRY] = "expiry",
        [REGISTRY_CLEARED] = "cleared",
    };
    char more[160] = "";
    size_t n = 0;
    (void)ctx;
    if (effect->kind == REGISTRY_RENAMED)
        n += (size_t)snprintf(more + n, sizeof(more) - n, " to %.*s", (int)effect->to.len, effect->to.ptr);
    if (effect->replaced_id)
        n += (size_t)snprintf(more + n, sizeof(more) - n, " for %d", (int)effect->replaced_id);
    if (effect->expires_ms || effect->kind == REGISTRY_EXPIRY)
        n += (size_t)snprintf(more + n, sizeof(more) - n, " until %lld", (long long)effect->expires_ms);
    if (effect->count)
        snprintf(more + n, sizeof(more) - n, "%zu", effect->count);
    if (effect->kind == REGISTRY_CLEARED)
        cr_expect_null(effect->entry);
    else
        cr_expect_eq(effect->entry->id, effect->id);
    note(names[effect->kind], effect->name, more);
}

void rig_setup(void)
{
    struct bloom_params params = {.capacity = 100, .error_rate = 0.01, .expansion = 2};
    cr_assert_eq(bloom_pool_create(&pool), 0);
    cr_assert_eq(reclaimer_create(&reclaimer), 0);
    cr_assert_eq(registry_create(&registry, pool, reclaimer), 0);
    cr_assert_eq(bloom_class_get(pool, &params, NULL, &small_class, NULL), 0);
    now = 1000;
    clock_is_read = NULL;
    told[0] = '\0';
    registry_set_clock(registry, clock_of_the_test);
    registry_on_effect(registry, on_effect, NULL);
    rcu_reader_begin();
}

void rig_teardown(void)
{
    rcu_reader_end();
    bloom_class_release(small_class);
    registry_destroy(registry);
    reclaimer_destroy(reclaimer);
    bloom_pool_destroy(pool);
}

/* All removed filters must be free: the pool counts the bytes of all words. */
void expect_all_freed(void)
{
    size_t removed;
    cr_assert_eq(registry_clear(registry, &removed), 0);
    rcu_reader_offline();
    reclaimer_flush(reclaimer);
    rcu_reader_online();
    cr_expect_eq(bloom_pool_bytes(pool), 0);
}

struct entry *create(const char *name)
{
    struct entry *entry = NULL;
    cr_assert_eq(registry_create_filter(registry, slice_of(name), 0, small_class, &entry, NULL), REGISTRY_OK);
    return entry;
}

int expire(const char *name, int64_t at, unsigned conditions)
{
    return registry_expire(registry, slice_of(name), at, conditions);
}

struct entry *find(const char *name)
{
    return registry_lookup(registry, slice_of(name));
}

int64_t expires(const char *name)
{
    int64_t at = -1;
    if (!registry_find_expiry(registry, slice_of(name), &at))
        return -2;
    return at;
}

struct registry_expiry numbers(void)
{
    struct registry_expiry expiry;
    registry_expiry(registry, &expiry);
    return expiry;
}

size_t scanned;

void count_scanned(void *ctx, struct slice name, struct entry *entry)
{
    (void)ctx, (void)name, (void)entry;
    scanned++;
}

size_t scan_all(void)
{
    scanned = 0;
    cr_assert_eq(registry_scan(registry, 0, SIZE_MAX, count_scanned, NULL), 0);
    return scanned;
}

struct slice name_of(unsigned i)
{
    static char names[4][32];
    static unsigned next;
    char *t = names[next++ % 4];
    return (struct slice){t, (size_t)snprintf(t, 32, "f%u", i)};
}
