/* stage: the directory, the store and the rig of a test of the store. The names are short, since each line of a test
 * has one; include it in one file of a program. */
#pragma once

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

/* The path of a layer in a file of its own, and the last part of the path; the number of files in `filters` without the
 * mark of the last save. */
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

/* Loads the directory into `rig`. */
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

/* Ends without a save; `rig` is empty then. */
static inline void stage_leave(void)
{
    uint64_t pack_limit = rig.pack_limit;

    store_close(store);
    store = NULL;
    rig_deinit(&rig);
    rig_init(&rig);
    rig.pack_limit = pack_limit;
}

/* Starts again from the directory. */
static inline void stage_restart(const struct fsops *fs, unsigned nthreads)
{
    stage_leave();
    stage_load(fs, nthreads);
}

/* Asserts that a start loads the filters of the rig. */
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
