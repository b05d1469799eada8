/* The store through random histories: saves with every kind of change, small filters moving between packs and files,
 * filters written outside of saves, faults in saves and in starts, kills and crashes, in sequence on one directory.
 * After each step a crash leaves an allowed save, complete. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault_fs.h"
#include "rig.h"
#include "rng.h"

#define DIR       "data"
#define STEPS     40
#define HISTORIES 300
#define FILTERS   24
#define RECORDS   8

static const struct bloom_params small = {.capacity = 100, .error_rate = 0.01, .expansion = 0};
static const struct bloom_params scaling = {.capacity = 40, .error_rate = 0.05, .expansion = 2};

static struct history {
    struct rng rng;
    struct crash_fs *fs;
    struct fault_fs fault;
    struct rig rig;
    struct store *store;
    struct errbuf err;
    uint64_t allowed[2 * STEPS]; /* digests of the saves that a crash may leave */
    size_t nallowed;
    struct store_record records[RECORDS]; /* of store_write(), as the log keeps them */
    uint64_t record_ids[RECORDS];
    size_t nrecords;
    unsigned seed, step, names;
    char what[160];
} h;

static uint64_t pick(uint64_t n)
{
    return rng_below(&h.rng, n);
}

static void allow(uint64_t digest, bool only)
{
    h.nallowed = only ? 0 : h.nallowed;
    h.allowed[h.nallowed++] = digest;
}

static void assert_allowed(const struct rig *rig, const char *where)
{
    uint64_t digest = rig_digest(rig);
    bool found = false;

    cr_assert_eq(rig->loaded.quarantined + rig->loaded.foreign, 0, "history %u, step %u, %s, %s: %s", h.seed, h.step,
                 h.what, where, rig->reports);
    for (size_t i = 0; i < h.nallowed; i++)
        found = found || h.allowed[i] == digest;
    cr_assert(found, "history %u, step %u, %s, %s: no save that there has been", h.seed, h.step, h.what, where);
}

/* ---- the log ---- */

static void replay(struct rig *rig, struct store *store)
{
    struct errbuf err = {{0}};

    (void)rig;
    for (size_t i = 0; i < h.nrecords; i++)
        cr_assert_eq(store_replay_written(store, h.records[i].text, h.records[i].len, &err), 0, "%s", err.text);
}

static bool has_record(uint64_t id)
{
    bool found = false;

    for (size_t i = 0; i < h.nrecords; i++)
        found = found || h.record_ids[i] == id;
    return found;
}

static void drop_record(size_t i)
{
    free(h.records[i].text);
    h.records[i] = h.records[--h.nrecords];
    h.record_ids[i] = h.record_ids[h.nrecords];
}

/* A save has been committed: its checkpoint may be after a record. */
static void cut_records(void)
{
    for (size_t i = h.nrecords; i-- > 0;) {
        if (pick(2))
            drop_record(i);
    }
}

/* A filter with contents from elsewhere: it exists from now on, in any save found. */
static void write_filter(const char *name)
{
    uint64_t before = rig_digest(&h.rig);
    struct rig_filter *filter = rig_add(&h.rig, name, pick(2) ? &small : &scaling, NULL);

    rig_fill(filter, pick(1000), 1 + pick(90));
    filter->dirty = false;
    struct store_item item = {
        .id = filter->id, .name = filter->name, .name_len = filter->name_len, .filter = filter->filter};
    cr_assert_eq(store_write(h.store, &item, &h.records[h.nrecords], &h.err), 0, "%s", h.err.text);
    h.record_ids[h.nrecords++] = filter->id;
    store_published(h.store, filter->id);
    for (size_t i = 0; i < h.nallowed; i++)
        h.allowed[i] += rig_digest(&h.rig) - before;
}

static void check_crash(enum crash_mode mode, uint64_t seed)
{
    struct crash_fs *after = crash_fs_after(h.fs, mode, seed);
    struct errbuf err = {{0}};
    struct store *store;
    struct rig rig;
    char where[32];

    snprintf(where, sizeof(where), "crash mode %d", (int)mode);
    rig_init(&rig);
    rig.replay = replay;
    cr_assert_eq(rig_load(&rig, DIR, crash_fs_ops(after), 1, &store, &err), 0, "history %u, step %u, %s: %s", h.seed,
                 h.step, h.what, err.text);
    assert_allowed(&rig, where);
    store_close(store);
    rig_deinit(&rig);
    crash_fs_destroy(after);
}

/* ---- steps ---- */

static void arm(size_t most)
{
    static const int errors[] = {-EIO, -ENOSPC};
    static const enum fault_kind kinds[] = {FAULT_ERROR, FAULT_ERROR, FAULT_LATE, FAULT_SHORT, FAULT_FULL};

    fault_fs_arm(&h.fault, 1 + pick(most), kinds[pick(5)], errors[pick(2)], pick(3) == 0);
}

static void disarm(void)
{
    h.fault.fail_at = 0;
    h.fault.from_then_on = false;
}

static void change(void)
{
    struct rig *rig = &h.rig;
    char name[16];

    for (uint64_t n = pick(6); n > 0; n--) {
        struct rig_filter *one = rig->count ? &rig->filters[pick(rig->count)] : NULL;
        snprintf(name, sizeof(name), "f%u", h.names);
        switch (one && one->filter ? pick(9) : 0) {
        case 0:
        case 1:
            if (rig->count < FILTERS) {
                h.names++;
                rig_fill(rig_add(rig, name, pick(2) ? &small : &scaling, NULL), pick(1000), 1 + pick(90));
            }
            break;
        case 2:
            if (!has_record(one->id)) /* the log would state its removal */
                rig_remove(rig, one->name);
            break;
        case 3:
            h.names++;
            rig_rename(rig, one->name, name);
            break;
        case 4:
            one->expires_ms = (int64_t)(1 + pick(100000));
            break;
        case 5:
            if (rig->count < FILTERS && h.nrecords < RECORDS) {
                h.names++;
                write_filter(name);
            }
            break;
        default:
            rig_fill(one, pick(100000), 1 + pick(60));
        }
    }
}

/* Returns true if the process must end. */
static bool save(void)
{
    static const uint64_t limits[] = {0, 150, 65536, 65536};
    bool faulty = pick(2);

    change();
    h.rig.pack_limit = limits[pick(4)];
    if (faulty)
        arm(45);
    uint64_t digest = rig_digest(&h.rig);
    int rc = rig_save(&h.rig, h.store, NULL, &h.err);
    bool dead = h.fault.hit && h.fault.from_then_on;
    snprintf(h.what, sizeof(h.what), "save with limit %d, fault at %s, result %d", (int)h.rig.pack_limit,
             faulty && h.fault.hit ? h.fault.hit_op : "none", rc);
    disarm();
    cr_assert(faulty || rc == 0, "history %u, step %u, %s: %s", h.seed, h.step, h.what, h.err.text);
    if (rc == 0) {
        allow(digest, true);
        cut_records();
    } else if (rc == STORE_IN_DOUBT || dead) {
        allow(digest, false);
    }
    return dead;
}

static void start(bool faulty)
{
    struct errbuf err = {{0}};

    fault_fs_init(&h.fault, crash_fs_ops(h.fs));
    rig_init(&h.rig);
    h.rig.replay = replay;
    if (faulty)
        arm(60);
    int rc = rig_load(&h.rig, DIR, &h.fault.ops, 1, &h.store, &err);
    disarm();
    cr_assert(faulty || rc == 0, "history %u, step %u, %s: %s", h.seed, h.step, h.what, err.text);
    if (rc != 0)
        h.store = NULL;
}

static void stop(void)
{
    store_close(h.store);
    h.store = NULL;
    rig_deinit(&h.rig);
}

/* Filters not loaded by a start with a fault stay; saving the others unchanged changes nothing. */
static void start_with_fault(void)
{
    start(true);
    if (h.store) {
        static const uint64_t limits[] = {0, 65536};
        h.rig.pack_limit = limits[pick(2)];
        for (size_t i = 0; i < h.rig.count; i++)
            h.rig.filters[i].dirty = h.rig.filters[i].filter && pick(2);
        if (pick(2))
            arm(45);
        (void)!rig_save(&h.rig, h.store, NULL, &h.err);
        disarm();
    }
    stop();
}

static void restart(void)
{
    stop();
    if (pick(2)) {
        struct crash_fs *after =
            crash_fs_after(h.fs, pick(2) ? CRASH_RANDOM : (enum crash_mode)pick(5), rng_next(&h.rng));
        crash_fs_destroy(h.fs);
        h.fs = after;
    }
    if (pick(3) == 0)
        start_with_fault();
    start(false);
    assert_allowed(&h.rig, "start");
    allow(rig_digest(&h.rig), true); /* filters loaded by a start stay */
}

static void run_history(unsigned seed)
{
    memset(&h, 0, sizeof(h));
    h.seed = seed;
    rng_init(&h.rng, seed);
    h.fs = crash_fs_create();
    start(false);
    allow(rig_digest(&h.rig), true);
    for (h.step = 0; h.step < STEPS; h.step++) {
        bool dead = save();
        check_crash((enum crash_mode)pick(5), rng_next(&h.rng));
        check_crash(CRASH_RANDOM, rng_next(&h.rng));
        if (dead || pick(5) == 0)
            restart();
    }
    stop();
    while (h.nrecords > 0)
        drop_record(0);
    crash_fs_destroy(h.fs);
}

Test(store_random, no_history_loses_a_save, .timeout = 3000)
{
    for (unsigned seed = 1; seed <= HISTORIES; seed++)
        run_history(seed);
}
