/* Each allocation of a start, a write and a save fails in turn: the call that needs it returns the error, or one
 * filter is quarantined in this run; nothing on disk is harmed, and the next start loads everything. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc_countdown.h"
#include "store_loader.h"
#include "tmpdir.h"

static const struct bloom_params small = {.capacity = 100, .error_rate = 0.01, .expansion = 0};
static const struct bloom_params scaling = {.capacity = 40, .error_rate = 0.05, .expansion = 2};

/* Filters in static storage: the test's own data needs no allocation. */
struct held {
    uint64_t id;
    char name[16];
    struct bloom_filter *filter; /* NULL: quarantined */
    bool dirty;
    _Alignas(64) char storage[16384];
};

static struct held held[8];
static size_t nheld, at;
static uint64_t pack_limit; /* of saves */
static struct store_record record;
static char dir[TMPDIR_SIZE];

static struct held *hold(uint64_t id, const char *name, size_t name_len)
{
    cr_assert_lt(nheld, 8);
    struct held *one = &held[nheld++];
    one->id = id;
    one->filter = NULL;
    one->dirty = false;
    memcpy(one->name, name, name_len);
    one->name[name_len] = '\0';
    return one;
}

static struct held *find(const char *name)
{
    for (size_t i = 0; i < nheld; i++) {
        if (strcmp(held[i].name, name) == 0)
            return &held[i];
    }
    return NULL;
}

static void drop_all(void)
{
    for (size_t i = 0; i < nheld; i++) {
        if (held[i].filter)
            bloom_filter_deinit(held[i].filter);
    }
    nheld = 0;
}

static struct bloom_filter *on_alloc(void *ctx, const struct store_filter *info, struct bloom_class *class,
                                     void **user_out, struct errbuf *err)
{
    (void)ctx;
    struct held *one = hold(info->id, info->name, info->name_len);
    struct bloom_filter *filter = (struct bloom_filter *)one->storage;

    cr_assert_leq(bloom_filter_bytes(class), sizeof(one->storage));
    if (bloom_filter_init(filter, class, err) != 0) {
        nheld--;
        return NULL;
    }
    one->filter = filter;
    *user_out = one;
    return filter;
}

static void on_loaded(void *ctx, const struct store_filter *info, struct bloom_filter *filter, void *user)
{
    (void)ctx, (void)info, (void)filter, (void)user;
}

static void on_discard(void *ctx, struct bloom_filter *filter, void *user)
{
    (void)ctx, (void)user;
    bloom_filter_deinit(filter);
    nheld--;
}

static void on_quarantined(void *ctx, const struct store_filter *info, const char *reason)
{
    (void)ctx;
    cr_assert(strstr(reason, "out of memory") || strstr(reason, "allocate"), "%s", reason);
    hold(info->id, info->name, info->name_len);
}

static int on_next(void *ctx, struct store_item *item)
{
    (void)ctx;
    if (at == nheld)
        return 0;
    struct held *one = &held[at++];
    *item = (struct store_item){.id = one->id,
                                .name = one->name,
                                .name_len = strlen(one->name),
                                .filter = one->filter,
                                .dirty = one->dirty,
                                .quarantined = !one->filter};
    one->dirty = false;
    return 1;
}

static void on_release(void *ctx, struct store_item *item)
{
    (void)ctx, (void)item;
}

static int on_checkpoint(void *ctx, struct store_checkpoint *checkpoint_out, struct errbuf *err)
{
    (void)ctx, (void)err;
    *checkpoint_out = (struct store_checkpoint){.log = 1, .control = 1};
    return 0;
}

static void fill(struct held *one, uint64_t from, uint64_t n)
{
    for (uint64_t i = from; i < from + n; i++)
        cr_assert_lt(bloom_filter_add(one->filter, murmur3_hash(&i, sizeof(i)), NULL), BLOOM_FULL);
    one->dirty = true;
}

static bool has(const struct held *one, uint64_t from, uint64_t n)
{
    for (uint64_t i = from; i < from + n; i++) {
        if (!bloom_filter_query(one->filter, murmur3_hash(&i, sizeof(i))))
            return false;
    }
    return true;
}

static void make(struct held *one, struct bloom_pool *pool, const struct bloom_params *params)
{
    struct bloom_class *class;
    struct errbuf err;

    cr_assert_eq(bloom_class_get(pool, params, NULL, &class, &err), 0);
    one->filter = (struct bloom_filter *)one->storage;
    cr_assert_eq(bloom_filter_init(one->filter, class, &err), 0);
    bloom_class_release(class);
}

static struct held *add(struct bloom_pool *pool, uint64_t id, const char *name, const struct bloom_params *params)
{
    struct held *one = hold(id, name, strlen(name));

    make(one, pool, params);
    return one;
}

static int write_one(struct store *store, const struct held *one, struct store_record *record_out, struct errbuf *err)
{
    struct store_item item = {.id = one->id, .name = one->name, .name_len = strlen(one->name), .filter = one->filter};

    return store_write(store, &item, record_out, err);
}

static int save(struct store *store, struct errbuf *err)
{
    struct store_source source = {
        .next = on_next, .release = on_release, .checkpoint = on_checkpoint, .pack_limit = pack_limit};

    at = 0;
    return store_save(store, &source, NULL, err);
}

/* Open, replay, load; 0 or the first failure, with nothing open. */
static int start(struct bloom_pool *pool, struct store **store_out, struct errbuf *err)
{
    static const struct store_loader loader = {
        .alloc = on_alloc, .loaded = on_loaded, .discard = on_discard, .quarantined = on_quarantined};
    struct store *store;
    int rc = store_open(dir, NULL, &store, err);

    if (rc != 0)
        return rc;
    if (record.text && store_checkpoint(store).control == 0)
        rc = store_replay_written(store, record.text, record.len, err);
    if (rc == 0)
        rc = store_load(store, pool, 1, &loader, NULL, err);
    if (rc != 0)
        store_close(store);
    else
        *store_out = store;
    return rc;
}

/* A directory with two filters saved and one written. */
static void make_base(void)
{
    struct bloom_pool *pool;
    struct store *store;
    struct errbuf err = {{0}};

    free(record.text);
    record.text = NULL;
    tmpdir_create(dir);
    cr_assert_eq(bloom_pool_create(&pool), 0);
    cr_assert_eq(start(pool, &store, &err), 0, "%s", err.text);
    fill(add(pool, 1, "a", &scaling), 0, 100);
    fill(add(pool, 2, "b", &small), 0, 50);
    at = 0;
    struct store_source source = {.next = on_next, .release = on_release, .pack_limit = pack_limit};
    cr_assert_eq(store_save(store, &source, NULL, &err), 0, "%s", err.text);
    fill(add(pool, 3, "w", &scaling), 500, 60);
    cr_assert_eq(write_one(store, find("w"), &record, &err), 0, "%s", err.text);
    store_close(store);
    drop_all();
    bloom_pool_destroy(pool);
}

/* The operations under the countdown: a start, a discarded write, a save. */
static int scenario(struct bloom_pool *pool, const struct held *outsider, struct errbuf *err)
{
    struct store_record written = {0};
    struct store *store;
    int rc = start(pool, &store, err);

    if (rc != 0)
        return rc;
    for (size_t i = 0; i < nheld; i++) {
        if (held[i].filter && strcmp(held[i].name, "a") == 0)
            fill(&held[i], 900, 1);
    }
    rc = write_one(store, outsider, &written, err);
    if (rc == 0)
        store_discard(store, outsider->id);
    free(written.text);
    if (rc == 0)
        rc = save(store, err);
    store_close(store);
    return rc;
}

/* Without the countdown: everything is there. */
static void check(bool saved, size_t n)
{
    struct bloom_pool *pool;
    struct store *store;
    struct errbuf err = {{0}};

    cr_assert_eq(bloom_pool_create(&pool), 0);
    cr_assert_eq(start(pool, &store, &err), 0, "allocation %zu: %s", n, err.text);
    cr_assert_eq(nheld, 3, "allocation %zu", n);
    for (size_t i = 0; i < nheld; i++)
        cr_assert_not_null(held[i].filter, "allocation %zu", n);
    cr_assert(has(find("a"), 0, 100) && has(find("b"), 0, 50) && has(find("w"), 500, 60), "allocation %zu", n);
    cr_assert(!saved || has(find("a"), 900, 1), "allocation %zu: saved, but lost", n);
    cr_assert_eq(save(store, &err), 0, "allocation %zu: %s", n, err.text);
    store_close(store);
    drop_all();
    bloom_pool_destroy(pool);
}

static void fail_each_allocation(void)
{
    static struct held outsider = {.id = 77, .name = "x"};
    size_t failures = 0;
    bool failed = true;

    for (size_t n = 0; failed; n++) {
        struct bloom_pool *pool, *own;
        struct errbuf err = {{0}};

        make_base();
        cr_assert_eq(bloom_pool_create(&pool), 0);
        cr_assert_eq(bloom_pool_create(&own), 0);
        make(&outsider, own, &small);
        fill(&outsider, 0, 10);
        alloc_countdown_start(n);
        int rc = scenario(pool, &outsider, &err);
        failed = alloc_countdown_stop();
        cr_assert(rc == 0 || rc == -ENOMEM, "allocation %zu: %d: %s", n, rc, err.text);
        cr_assert(rc == 0 || strlen(err.text) > 5, "allocation %zu says nothing", n);
        failures += rc != 0;
        bool a_was_there = find("a") && find("a")->filter;
        drop_all();
        bloom_filter_deinit(outsider.filter);
        bloom_pool_destroy(pool);
        bloom_pool_destroy(own);
        check(rc == 0 && a_was_there, n);
        tmpdir_remove(dir);
    }
    cr_assert_gt(failures, 30, "only %zu allocations of a start and a save", failures);
    free(record.text);
    record.text = NULL;
}

Test(store_alloc, a_failed_allocation_harms_nothing, .timeout = 3000)
{
    fail_each_allocation();
}

Test(store_alloc, a_failed_allocation_harms_nothing_in_packs, .timeout = 3000)
{
    pack_limit = 65536;
    fail_each_allocation();
}
