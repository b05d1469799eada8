/* The bits of single filters: they are evicted when the last save has them, and are read again. Nothing is lost
 * through saves, failures, moves and changes in between. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "alloc_countdown.h"
#include "bloom_resident.h"
#include "fault_fs.h"
#include "pack.h"
#include "rng.h"
#include "stage.h"

static const struct bloom_params packed = {.capacity = 5000, .error_rate = 0.01}; /* 6 kB, not in the entry */
static const struct bloom_params alone = {.capacity = 60000, .error_rate = 0.01}; /* 72 kB, in its own file */
static const struct bloom_params chain = {.capacity = 300, .error_rate = 0.01, .expansion = 4};

static struct fault_fs fault;

static struct crash_fs *memory;

/* In memory, where a sync costs nothing. */
static void set_up_model(void)
{
    memory = crash_fs_create();
    fault_fs_init(&fault, crash_fs_ops(memory));
    strcpy(dir, "data");
    rig_init(&rig);
    rig.pack_limit = MANIFEST_MAX_PACKED;
    stage_load(&fault.ops, 1);
}

static void tear_down_model(void)
{
    store_close(store);
    rig_deinit(&rig);
    crash_fs_destroy(memory);
}

TestSuite(store_reading_model, .init = set_up_model, .fini = tear_down_model);

static void set_up(void)
{
    fault_fs_init(&fault, fsops_posix());
    stage_set_up(&fault.ops, MANIFEST_MAX_PACKED);
}

TestSuite(store_reading, .init = set_up, .fini = stage_tear_down);

static void make_words(struct rig_filter *filter)
{
    cr_assert_eq(bloom_filter_undrop_begin(filter->filter, &err), 0, "%s", err.text);
}

/* The result of store_read_bits(); at 0 the filter has its bits. */
static int read_back(struct rig_filter *filter)
{
    make_words(filter);
    err.text[0] = '\0';
    int rc = store_read_bits(store, filter->id, filter->filter, &err);
    bloom_filter_undrop_end(filter->filter, rc == 0);
    return rc;
}

static void assert_has(const struct rig_filter *filter, uint64_t from, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        cr_assert(rig_has(filter, from + i), "%s: item %llu", filter->name, (unsigned long long)(from + i));
}

/* ---- against a model ---- */

#define NAMES 12
#define STEPS 2000

struct model {
    uint64_t from, items; /* of this filter */
};

static struct rig_filter *filter_of(unsigned i)
{
    char name[16];
    snprintf(name, sizeof(name), "f%u", i);
    return rig_find(&rig, name);
}

static bool may_leave(const struct rig_filter *filter)
{
    return !filter->dirty && !bloom_filter_is_dropped(filter->filter) && bloom_filter_droppable(filter->filter) > 0 &&
           store_has_bits(store, filter->id);
}

static void come_back(unsigned i, const struct model *model)
{
    struct rig_filter *filter = filter_of(i);
    if (bloom_filter_is_dropped(filter->filter))
        cr_assert_eq(read_back(filter), 0, "%s", err.text);
    assert_has(filter, model->from, model->items);
}

static void begin_anew(unsigned i, struct model *model, uint64_t from)
{
    static const struct bloom_params *const params[] = {&packed, &alone, &chain};
    char name[16];
    snprintf(name, sizeof(name), "f%u", i);
    if (filter_of(i))
        rig_remove(&rig, name);
    rig_add(&rig, name, params[i % 3], NULL);
    *model = (struct model){.from = from};
}

/* A save that fails at some operation. */
static void fail_to_save(struct rng *rng)
{
    fault_fs_arm(&fault, 1 + (size_t)rng_below(rng, 12), FAULT_FULL, -ENOSPC, true);
    (void)rig_save(&rig, store, &summary, &err); /* or there is nothing to write */
    fault_fs_arm(&fault, 0, FAULT_ERROR, 0, false);
}

/* A start reads the evicted filters as well. */
static void start_anew(const struct model *models)
{
    stage_restart(&fault.ops, 1); /* the file system in memory has no lock */
    cr_assert_eq(rig.loaded.quarantined, 0, "%s", rig.reports);
    for (unsigned i = 0; i < NAMES; i++)
        come_back(i, &models[i]);
}

static void play(uint64_t seed)
{
    struct model models[NAMES];
    struct rng rng;
    unsigned left = 0, failed = 0;
    rng_init(&rng, seed);
    for (unsigned i = 0; i < NAMES; i++)
        begin_anew(i, &models[i], 1000000 * i);
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned i = (unsigned)rng_below(&rng, NAMES), what = (unsigned)rng_below(&rng, 100);
        struct rig_filter *filter = filter_of(i);
        if (what < 40 && may_leave(filter)) {
            bloom_filter_drop(filter->filter);
            left++;
        } else if (what < 75) { /* an add brings it back first */
            come_back(i, &models[i]);
            rig_fill(filter, models[i].from + models[i].items, 20);
            models[i].items += 20;
        } else if (what < 80) {
            filter->expires_ms = step;
        } else if (what < 83) {
            begin_anew(i, &models[i], 1000000 * i + 1000 * step);
        } else if (what < 95) {
            save();
        } else if (what < 99) {
            fail_to_save(&rng);
            failed++;
        } else {
            save();
            start_anew(models);
        }
    }
    for (unsigned i = 0; i < NAMES; i++)
        come_back(i, &models[i]);
    save();
    start_anew(models);
    cr_assert(left > 20 && failed > 5, "%u left, %u saves failed", left, failed);
}

Test(store_reading_model, what_may_leave_is_read_again_whole)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        play(seed);
        while (rig.count)
            rig_remove(&rig, rig.filters[0].name);
    }
}

/* ---- faults ---- */

/* "f" in a pack and "g" in its own file, both dropped. */
static void make_away(void)
{
    rig_fill(rig_add(&rig, "f", &packed, NULL), 0, 100);
    rig_fill(rig_add(&rig, "g", &alone, NULL), 0, 100);
    save();
    for (size_t i = 0; i < 2; i++) {
        cr_assert(may_leave(&rig.filters[i]));
        bloom_filter_drop(rig.filters[i].filter);
    }
}

/* A disk error is damage, a temporary error is returned as such; the next read succeeds. */
static void fail_each_operation(struct rig_filter *filter, int error, int expected)
{
    unsigned failures = 0;
    bool done = false;
    for (size_t at = 1; !done; at++) {
        fault_fs_arm(&fault, at, FAULT_ERROR, error, false);
        fault.hit = false;
        int rc = read_back(filter);
        done = !fault.hit;
        if (rc != 0) {
            cr_assert_eq(rc, expected, "%s: operation %zu: %d, %s", filter->name, at, rc, err.text);
            cr_assert_neq(err.text[0], '\0');
            failures++;
            fault_fs_arm(&fault, 0, FAULT_ERROR, 0, false);
            cr_assert_eq(read_back(filter), 0, "%s", err.text);
        }
        assert_has(filter, 0, 100);
        bloom_filter_drop(filter->filter);
    }
    cr_assert_geq(failures, 2u, "a record and a file are read");
}

Test(store_reading, each_operation_fails_in_turn)
{
    make_away();
    for (size_t i = 0; i < 2; i++) {
        fail_each_operation(&rig.filters[i], -EIO, STORE_DAMAGED);
        fail_each_operation(&rig.filters[i], -EMFILE, -EMFILE);
    }
}

Test(store_reading, each_allocation_fails_in_turn)
{
    make_away();
    for (size_t i = 0; i < 2; i++) {
        struct rig_filter *filter = &rig.filters[i];
        bool failed = true;
        for (size_t at = 0; failed; at++) {
            make_words(filter);
            alloc_countdown_start(at);
            int rc = store_read_bits(store, filter->id, filter->filter, &err);
            failed = alloc_countdown_stop();
            bloom_filter_undrop_end(filter->filter, rc == 0);
            cr_assert_eq(rc, failed ? -ENOMEM : 0, "%s: allocation %zu: %d", filter->name, at, rc);
            cr_assert(!failed || strstr(err.text, "memory"), "%s", err.text);
        }
        assert_has(filter, 0, 100);
    }
}

Test(store_reading, a_file_that_is_not_what_was_written_is_damage)
{
    make_away();
    struct rig_place pack = rig_place(NULL, dir, "f", 0);
    file_flip_bit(pack.path, 8 * ((size_t)pack.offset + 100));
    cr_assert_eq(read_back(&rig.filters[0]), STORE_DAMAGED);
    cr_assert_not_null(strstr(err.text, pack.file), "%s", err.text);
    cr_assert_eq(unlink(pack.path), 0);
    cr_assert_eq(read_back(&rig.filters[0]), STORE_DAMAGED);
    cr_assert_eq(truncate(LAYER("g", 0), 5000), 0);
    cr_assert_eq(read_back(&rig.filters[1]), STORE_DAMAGED);
    cr_assert_not_null(strstr(err.text, LAYER_NAME("g", 0)), "%s", err.text);
    cr_assert_eq(store_read_bits(store, 12345, rig.filters[0].filter, &err), STORE_NOT_FOUND);
}

/* ---- while a save continues ---- */

static struct fsops hooked; /* calls `on_pack` once, before a pack is opened for reading */
static void (*on_pack)(void);

static int open_hooked(void *ctx, const char *path, unsigned flags, int *fd_out)
{
    void (*run)(void) = on_pack;
    if (run && strstr(path, ".pack") && !(flags & FS_WRITE)) {
        on_pack = NULL;
        run();
    }
    return fsops_posix()->open(ctx, path, flags, fd_out);
}

static void save_in_between(void)
{
    char path[512];
    snprintf(path, sizeof(path), "%s", rig_place(NULL, dir, "f0", 0).path);
    save();
    cr_assert_eq(access(path, F_OK), -1, "the save removes the pack");
}

/* The save yields the filter while it is in memory; the filter is evicted before the commit. */
Test(store_reading, a_filter_that_moves_to_another_pack_meanwhile_is_read_there)
{
    struct rig other;
    hooked = *fsops_posix();
    hooked.open = open_hooked;
    stage_restart(&hooked, 1);
    for (unsigned i = 0; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%u", i);
        rig_fill(rig_add(&rig, name, &packed, NULL), 0, 100);
    }
    save();
    for (unsigned i = 1; i < 8; i++) /* most of the pack is not needed any more, so the next save empties it */
        rig_fill(filter_of(i), 100, 1);
    save();
    rig_init(&other);
    struct rig_filter *copy = rig_add(&other, "copy", &packed, NULL);
    on_pack = save_in_between;
    cr_assert_eq(store_read_bits(store, filter_of(0)->id, copy->filter, &err), 0, "%s", err.text);
    cr_assert_null(on_pack);
    assert_has(copy, 0, 100);
    rig_deinit(&other);
}
