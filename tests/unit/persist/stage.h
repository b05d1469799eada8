/* stage: what the tests of the store work on: a directory of their own, a store in it, and the rig before that. Under
 * short names, since each line of a test has one: a program includes this once, in the file of its tests. */
#ifndef BLOOMERY_TEST_STAGE_H
#define BLOOMERY_TEST_STAGE_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <string.h>

#include "rig.h"
#include "tmpdir.h"

static const struct bloom_params small = {.capacity = 100, .error_rate = 0.01, .expansion = 0}; /* 128 bytes */
static const struct bloom_params scaling = {.capacity = 40, .error_rate = 0.05, .expansion = 2};

static char dir[TMPDIR_SIZE];
static struct rig rig;
static struct store *store;
static struct errbuf err;
static struct store_save_summary summary; /* of the last save() */

/* A path in the directory, as by printf. */
#define AT(...) (tmp_path(dir, __VA_ARGS__).text)

/* The path of a layer of the filter that is now in files of its own, and the last part of it; how many files there are
 * in `filters` beside the mark of the last save. */
#define LAYER(name, layer)      (rig_place(NULL, dir, name, layer).path)
#define LAYER_NAME(name, layer) (rig_place(NULL, dir, name, layer).file)
#define FILES()                 (dir_count(AT("filters")) - (size_t)stage_marks())

static inline int stage_marks(void)
{
    int count = 0;
    DIR *list = opendir(AT("filters"));

    for (struct dirent *entry; list && (entry = readdir(list));)
        count += strstr(entry->d_name, ".saved") != NULL;
    if (list)
        closedir(list);
    return count;
}

/* `rig` holds then what is in the directory. */
static inline void stage_load(const struct fsops *fs, unsigned nthreads)
{
    cr_assert_eq(rig_load(&rig, dir, fs, nthreads, &store, &err), 0, "%s", err.text);
}

/* An empty directory; filters of up to `pack_limit` bytes go into packs. */
static inline void stage_set_up(const struct fsops *fs, uint64_t pack_limit)
{
    tmpdir_create(dir);
    rig_init(&rig);
    rig.pack_limit = pack_limit;
    stage_load(fs, 1);
}

/* The end without a save: nothing is loaded. */
static inline void stage_leave(void)
{
    uint64_t pack_limit = rig.pack_limit;

    store_close(store);
    store = NULL;
    rig_deinit(&rig);
    rig_init(&rig);
    rig.pack_limit = pack_limit;
}

/* Starts anew from the directory. */
static inline void stage_restart(const struct fsops *fs, unsigned nthreads)
{
    stage_leave();
    stage_load(fs, nthreads);
}

/* A start finds what the rig holds now. */
static inline void stage_expect_saved(const struct fsops *fs)
{
    uint64_t digest = rig_digest(&rig);
    size_t count = rig.count;

    stage_restart(fs, 2);
    cr_assert_eq(rig.loaded.quarantined, 0, "%s", rig.reports);
    cr_assert_eq(rig.count, count);
    cr_assert_eq(rig_digest(&rig), digest);
}

static inline void stage_tear_down(void)
{
    store_close(store);
    rig_deinit(&rig);
    tmpdir_remove(dir);
}

static inline void save(void)
{
    cr_assert_eq(rig_save(&rig, store, &summary, &err), 0, "%s", err.text);
}

#endif
