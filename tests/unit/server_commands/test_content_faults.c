/* A filter with contents is made, and restored from the log at the next start, while each allocation in turn fails:
 * acknowledged filters are there with all of their bits, refused ones are not. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "alloc_countdown.h"
#include "content.h"
#include "registry.h"
#include "persistence.h"
#include "saver.h"
#include "server_create.h"
#include "store.h"
#include "tmpdir.h"

void __real_reclaimer_defer(struct reclaimer *reclaimer, int (*fn)(void *object), void *object, uint64_t bytes);
void __wrap_reclaimer_defer(struct reclaimer *reclaimer, int (*fn)(void *object), void *object, uint64_t bytes);

/* Without memory it would leak the object, as documented; the pool would report that at the end. */
void __wrap_reclaimer_defer(struct reclaimer *reclaimer, int (*fn)(void *object), void *object, uint64_t bytes)
{
    alloc_countdown_spare(true);
    __real_reclaimer_defer(reclaimer, fn, object, bytes);
    alloc_countdown_spare(false);
}

TMPDIR_SUITE(dir, content_faults);
static struct server *server;

/* ---- a daemon without clients ---- */

static void on_done(struct server *unused)
{
    (void)unused;
}

static void set(struct config *config, const char *name, const char *value)
{
    cr_assert_eq(config_set(config, slice_of(name), slice_of(value), CONFIG_FILE, NULL), CONFIG_OK);
}

static void prepare(const char *name)
{
    struct config *config = calloc(1, sizeof(*config));

    cr_assert_eq(config_init(config), 0);
    set(config, "dir", tmp_path(dir, "%s", name).text);
    set(config, "load-threads", "1");
    set(config, "loglevel", "nothing");
    cr_assert_eq(server_create(&server, config, 1, NULL), 0);
}

/* The allocation `fails_at` of the start fails, if it exists. Returns whether it started; *failed_out: whether one
 * failed. */
static bool start(size_t fails_at, bool *failed_out)
{
    struct errbuf err = {""};

    alloc_countdown_start(fails_at);
    bool opened = server_start(server, PARTS_DATA, &err) == 0;
    bool begun = opened && load_start(server, on_done) == 0;
    bool ready = begun && load_join(server, &err) == 0;
    *failed_out = alloc_countdown_stop();
    if (!opened || (begun && !ready))
        cr_assert(strstr(err.text, "memory"), "allocation %zu: '%s'", fails_at, err.text);
    return ready;
}

static void stop(void)
{
    server_destroy(server);
}

/* ---- filters ---- */

static const struct bloom_params small = {.capacity = 100, .error_rate = 0.01, .expansion = 2};
static const struct bloom_params large = {.capacity = 100000, .error_rate = 0.001, .expansion = 0}; /* in files */

#define ITEMS 250 /* three layers of a small filter */

static uint64_t digest(const struct bloom_filter *filter)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < bloom_filter_nlayers(filter); i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        sum = XXH3_64bits_withSeed(&view.items, sizeof(view.items), sum);
        sum = XXH3_64bits_withSeed((const void *)view.words, (size_t)view.shape.nwords * 8, sum);
    }
    return sum;
}

static struct entry *filled(const char *name, const struct bloom_params *params, uint64_t *digest_out)
{
    struct bloom_class *class;
    struct entry *entry;
    struct errbuf err = {""};

    cr_assert_eq(bloom_class_get(server->pool, params, NULL, &class, &err), 0);
    cr_assert_eq(registry_prepare(server->registry, slice_of(name), class, false, &entry, &err), REGISTRY_OK);
    bloom_class_release(class);
    for (unsigned i = 0; i < ITEMS; i++)
        (void)bloom_filter_add(entry_filter(entry), murmur3_hash(&i, sizeof(i)), NULL);
    *digest_out = digest(entry_filter(entry));
    return entry;
}

/* Returns whether the filter was published. */
static bool publish(struct entry *entry, size_t fails_at, bool *failed_out)
{
    const struct content_publication publication = {.how = {.expires_ms = 0}};
    struct errbuf err = {""};

    alloc_countdown_start(fails_at);
    int status = content_publish(server, entry, &publication, &err);
    *failed_out = alloc_countdown_stop();
    cr_assert(status == REGISTRY_OK || (*failed_out && status == -ENOMEM), "allocation %zu: %d '%s'", fails_at, status,
              err.text);
    return status == REGISTRY_OK;
}

/* digest 0: no such filter. */
static void expect_filter(const char *name, uint64_t expected, size_t fails_at)
{
    struct entry *entry = registry_lookup(server->registry, slice_of(name));

    cr_assert_eq(entry != NULL, expected != 0, "'%s' after allocation %zu", name, fails_at);
    if (entry) {
        cr_assert_not_null(entry_filter(entry), "'%s' after allocation %zu: %s", name, fails_at,
                           entry_quarantine_reason(entry));
        cr_assert_eq(digest(entry_filter(entry)), expected, "'%s' after allocation %zu", name, fails_at);
    }
}

/* ---- the sweeps ---- */

/* Between two others, or instead of one. If there was no memory for the record, the log states that, and the save that
 * it requests makes up for it; otherwise the log alone restores everything. */
static bool publish_round(const char *name, const struct bloom_params *params, bool replaces, size_t fails_at)
{
    uint64_t before, faulted, after;
    bool failed, none;

    prepare(name);
    cr_assert(start(SIZE_MAX, &none));
    effects_attach(server);
    rcu_reader_begin();
    cr_assert(publish(filled("before", &small, &before), SIZE_MAX, &none));
    struct entry *entry = filled(replaces ? "before" : "faulted", params, &faulted);
    bool published = publish(entry, fails_at, &failed);
    if (!published)
        registry_abandon(server->registry, entry);
    else if (replaces)
        before = faulted;
    if (!published || replaces)
        faulted = 0;
    cr_assert(publish(filled("after", &small, &after), SIZE_MAX, &none));
    rcu_reader_end();
    if (!journal_is_whole(server_journal(server)))
        cr_assert_eq(saver_run_final(server->persistence->saver, 0, NULL), 0);
    cr_assert(journal_is_whole(server_journal(server)));
    stop();

    prepare(name);
    cr_assert(start(SIZE_MAX, &none));
    rcu_reader_begin();
    expect_filter("before", before, fails_at);
    expect_filter("faulted", faulted, fails_at);
    expect_filter("after", after, fails_at);
    rcu_reader_end();
    stop();
    return failed;
}

static size_t sweep(const char *name, const struct bloom_params *params, bool replaces)
{
    char path[64];
    size_t n = 0;
    bool failed;

    do {
        snprintf(path, sizeof(path), "%s%zu", name, n);
        failed = publish_round(path, params, replaces, n++);
    } while (failed);
    return n - 1;
}

Test(content_faults, small_contents_are_there_or_refused)
{
    cr_assert_geq(sweep("new", &small, false), 1);
    cr_assert_geq(sweep("instead", &small, true), 1);
}

Test(content_faults, large_contents_are_there_or_refused)
{
    cr_assert_geq(sweep("new", &large, false), 5);
    cr_assert_geq(sweep("instead", &large, true), 5);
}

/* Filters in the log with contents, growth of one of them, a replaced one, a removed one. A start that cannot restore
 * all of them refuses, and changes nothing for the next one. */
Test(content_faults, a_start_brings_all_back_or_refuses)
{
    uint64_t digests[4];
    size_t refused = 0;
    bool none, failed = true;

    prepare("data");
    cr_assert(start(SIZE_MAX, &none));
    effects_attach(server);
    rcu_reader_begin();
    cr_assert(publish(filled("a", &small, &digests[0]), SIZE_MAX, &none));
    cr_assert(publish(filled("b", &small, &digests[1]), SIZE_MAX, &none));
    cr_assert(publish(filled("b", &large, &digests[1]), SIZE_MAX, &none));
    cr_assert(publish(filled("c", &small, &digests[2]), SIZE_MAX, &none));
    cr_assert(publish(filled("d", &small, &digests[3]), SIZE_MAX, &none));
    cr_assert_eq(registry_rename(server->registry, slice_of("c"), slice_of("e"), false, NULL), REGISTRY_OK);
    cr_assert_eq(registry_delete(server->registry, slice_of("d")), REGISTRY_OK);
    rcu_reader_end();
    stop();
    for (size_t n = 0; failed; n++) {
        prepare("data");
        bool ready = start(n, &failed);
        cr_assert(ready || failed);
        refused += !ready;
        rcu_reader_begin();
        if (ready) {
            struct entry *b = registry_lookup(server->registry, slice_of("b"));
            expect_filter("a", digests[0], n);
            expect_filter("e", digests[2], n);
            expect_filter("d", 0, n);
            cr_assert_not_null(b);
            if (!failed || entry_filter(b)) /* one in files is in quarantine then, until the next start */
                expect_filter("b", digests[1], n);
        }
        rcu_reader_end();
        stop();
    }
    cr_assert_geq(refused, 10);
}
