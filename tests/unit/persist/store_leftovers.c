/* What no record needs any more: it goes, now or later, unless a MANIFEST that somebody has taken away may need it. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault_fs.h"
#include "rig.h"
#include "tmpdir.h"

static const struct bloom_params small = {.capacity = 100, .error_rate = 0.01, .expansion = 0};
static const struct bloom_params scaling = {.capacity = 40, .error_rate = 0.05, .expansion = 2};

static char dir[TMPDIR_SIZE];
static struct fault_fs fault;
static struct fsops ops; /* those of `fault`, but for packs that cannot be read */
static bool unreadable;
static struct rig rig;
static struct store *store;
static struct errbuf err;
static struct store_save_summary summary;

#define AT(...) (tmp_path(dir, __VA_ARGS__).text)

static int open_or_fail(void *ctx, const char *path, unsigned flags, int *fd_out)
{
    if (unreadable && !(flags & FS_WRITE) && strstr(path, "/packs/"))
        return -EIO;
    return fault.ops.open(ctx, path, flags, fd_out);
}

static void set_up(void)
{
    tmpdir_create(dir);
    fault_fs_init(&fault, fsops_posix());
    ops = fault.ops;
    ops.open = open_or_fail;
    rig_init(&rig);
    cr_assert_eq(rig_load(&rig, dir, &ops, 1, &store, &err), 0, "%s", err.text);
}

static void tear_down(void)
{
    store_close(store);
    rig_deinit(&rig);
    tmpdir_remove(dir);
}

TestSuite(store_leftovers, .init = set_up, .fini = tear_down);

static void save(void)
{
    cr_assert_eq(rig_save(&rig, store, &summary, &err), 0, "%s", err.text);
}

static int try_restart(void)
{
    store_close(store);
    store = NULL;
    rig_deinit(&rig);
    rig_init(&rig);
    rig.pack_limit = 16384;
    return rig_load(&rig, dir, &ops, 2, &store, &err);
}

static void restart(void)
{
    cr_assert_eq(try_restart(), 0, "%s", err.text);
}

static void add(const char *name)
{
    rig_fill(rig_add(&rig, name, &small, NULL), 0, 50);
}

static size_t packs(void)
{
    return dir_count(AT("packs"));
}

static bool manifest_has(const char *text)
{
    size_t len;
    char *bytes = (char *)file_read(AT("MANIFEST"), &len);
    bool has = memmem(bytes, len, text, strlen(text)) != NULL;

    free(bytes);
    return has;
}

static void copy_file(const char *from, const char *to)
{
    size_t len;
    unsigned char *bytes = file_read(AT("%s", from), &len);

    file_write(AT("%s", to), bytes, len);
    free(bytes);
}

/* ---- what cannot be deleted now ----------------------------------------------------------------------------------------- */

/* Files of a save that failed, while they cannot be deleted, are not forgotten by the next one that cannot either. */
static void fail_with_stuck_files(const char *stuck)
{
    fault.stuck = stuck;
    rig.checkpoint_rc = -EIO;
    cr_assert_eq(rig_save(&rig, store, &summary, &err), -EIO);
    rig.checkpoint_rc = 0;
}

Test(store_leftovers, a_file_that_could_not_be_deleted_twice_goes_when_it_can)
{
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    save();
    add("b");
    fail_with_stuck_files("filters/b/");
    cr_assert_eq(dir_count(AT("filters/b")), 1);
    rig_remove(&rig, "b");
    save();
    cr_assert_eq(dir_count(AT("filters/b")), 1);
    fault.stuck = NULL;
    save();
    cr_assert(!file_exists(AT("filters/b")));
    restart();
    cr_assert_eq(rig.loaded.leftovers + rig.loaded.foreign, 0, "%s", rig.reports);
}

Test(store_leftovers, a_pack_that_could_not_be_deleted_twice_goes_when_it_can)
{
    rig.pack_limit = 16384;
    add("a");
    save();
    add("b");
    fail_with_stuck_files("packs/");
    rig_remove(&rig, "b");
    save();
    cr_assert_eq(packs(), 2);
    fault.stuck = NULL;
    save();
    cr_assert_eq(packs(), 1);
}

/* Nor by a start that cannot. */
Test(store_leftovers, what_a_start_could_not_delete_goes_with_a_save)
{
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    save();
    copy_file("filters/a/0-Filter.db", "filters/a/0-Filter.db.999");
    fault.stuck = "-Filter.db.999";
    restart();
    fault.stuck = NULL;
    save();
    cr_assert(!file_exists(AT("filters/a/0-Filter.db.999")));
}

/* A filter whose new file cannot have its name moves to another directory; the one that has the name goes then. */
Test(store_leftovers, a_superseded_file_goes_when_its_filter_has_moved)
{
    rig_fill(rig_add(&rig, "a", &scaling, NULL), 0, 100);
    add("b");
    save();
    fault.stuck = "filters/a/1-Filter.db.";
    rig_fill(rig_find(&rig, "a"), 1000, 2);
    save();
    cr_assert(summary.unfinished && file_exists(AT("filters/a/1-Filter.db")));
    rig_fill(rig_find(&rig, "b"), 1000, 2);
    save();
    cr_assert_eq(summary.displaced, 1, "%s", rig.reports);
    fault.stuck = NULL;
    save();
    cr_assert(!summary.unfinished);
    cr_assert(!file_exists(AT("filters/a")), "%zu files", dir_count(AT("filters/a")));
    restart();
    cr_assert_eq(rig.loaded.leftovers + rig.loaded.foreign, 0, "%s", rig.reports);
}

/* ---- an older MANIFEST ---------------------------------------------------------------------------------------------------- */

/* Two saves; then the MANIFEST of the first is back. */
static void put_older_manifest(void)
{
    rig.pack_limit = 16384;
    add("a");
    save();
    copy_file("MANIFEST", "MANIFEST.mine");
    add("b");
    rig_fill(rig_find(&rig, "a"), 1000, 5);
    save();
    copy_file("MANIFEST", "MANIFEST.newest");
    copy_file("MANIFEST.mine", "MANIFEST");
}

Test(store_leftovers, an_older_manifest_is_refused_and_nothing_changes)
{
    put_older_manifest();
    size_t before = packs();
    cr_assert_eq(try_restart(), STORE_DAMAGED);
    cr_assert(strstr(err.text, "an older one has been put here") && strstr(err.text, "MANIFEST.done"), "%s", err.text);
    cr_assert_eq(packs(), before);
    copy_file("MANIFEST.newest", "MANIFEST");
    restart();
    cr_assert_eq(rig.loaded.filters, 2, "%s", rig.reports);
}

/* Who insists on it finds what the newer one needs aside, and can go back to it until there has been a save. */
Test(store_leftovers, packs_of_a_newer_manifest_are_put_aside)
{
    put_older_manifest();
    copy_file("MANIFEST.newest", "MANIFEST");
    struct rig_place place = rig_packed(&ops, dir, "b");
    copy_file("MANIFEST.mine", "MANIFEST");
    cr_assert_eq(unlink(AT("MANIFEST.done")), 0);
    for (int i = 0; i < 2; i++) {
        restart();
        cr_assert_eq(rig.loaded.filters + rig.loaded.quarantined, 1, "%s", rig.reports);
        cr_assert(!file_exists(place.path));
        cr_assert(file_exists(AT("unclaimed/%llu.pack", (unsigned long long)place.number)));
        cr_assert_eq(strstr(rig.reports, "are newer than the MANIFEST") != NULL, i == 0, "%s", rig.reports);
    }
    cr_assert_eq(rename(AT("unclaimed/%llu.pack", (unsigned long long)place.number), place.path), 0);
    copy_file("MANIFEST.newest", "MANIFEST");
    restart();
    cr_assert_eq(rig.loaded.filters, 2, "%s", rig.reports);
    cr_assert_eq(rig.loaded.quarantined, 0, "%s", rig.reports);
    cr_assert(!file_exists(AT("unclaimed")));
}

/* Of saves that are cut short one after the other, packs of one stay; and those go when a save has ended. */
Test(store_leftovers, what_is_aside_does_not_pile_up)
{
    rig.pack_limit = 16384;
    add("a");
    save();
    struct rig_place place = rig_packed(&ops, dir, "a");
    for (unsigned i = 0; i < 3; i++) {
        char name[40];
        snprintf(name, sizeof(name), "packs/%llu.pack", (unsigned long long)place.number + 10 + i);
        file_write(AT("%s", name), "half of a pack", 14);
        restart();
        cr_assert(!file_exists(AT("%s", name)));
        cr_assert_eq(dir_count(AT("unclaimed")), 1);
    }
    rig_fill(rig_find(&rig, "a"), 1000, 5);
    save();
    cr_assert_gt(rig_packed(&ops, dir, "a").number, place.number + 12, "a number is used once");
    cr_assert_eq(dir_count(AT("unclaimed")), 1);
    restart();
    cr_assert(!file_exists(AT("unclaimed")));
    cr_assert_eq(rig.loaded.filters, 1);
}

/* ---- a pack that cannot be read ------------------------------------------------------------------------------------------- */

Test(store_leftovers, what_is_given_up_of_a_pack_that_cannot_be_read_is_kept_with_it)
{
    size_t len, kept_len;

    rig.pack_limit = 16384;
    add("a");
    add("b");
    add("c");
    save();
    struct rig_place place = rig_packed(&ops, dir, "a");
    unsigned char *pack = file_read(place.path, &len);
    unreadable = true;
    restart();
    cr_assert_eq(rig.loaded.quarantined, 3);
    for (uint64_t id = 1; id <= 2; id++)
        cr_assert_eq(store_forget(store, id), 0);
    rig_remove(&rig, "a");
    rig_remove(&rig, "b");
    save();
    save();
    cr_assert(!summary.unfinished, "%s", rig.reports);
    cr_assert(!manifest_has("\nremoved "), "the lines are done with");
    cr_assert(file_exists(place.path), "c is in it");
    unsigned char *kept = file_read(AT("quarantine/%llu.pack", (unsigned long long)place.number), &kept_len);
    cr_assert(kept_len == len && memcmp(kept, pack, len) == 0);
    cr_assert_eq(dir_count(AT("quarantine")), 1);

    /* The last one, also where there are no links. */
    fault.refuse_link = true;
    cr_assert_eq(unlink(AT("quarantine/%llu.pack", (unsigned long long)place.number)), 0);
    cr_assert_eq(store_forget(store, 3), 0);
    rig_remove(&rig, "c");
    save();
    save();
    cr_assert(!summary.unfinished, "%s", rig.reports);
    cr_assert(!manifest_has("\nremoved "));
    cr_assert_eq(packs(), 0);
    free(kept);
    kept = file_read(AT("quarantine/%llu.pack", (unsigned long long)place.number), &kept_len);
    cr_assert(kept_len == len && memcmp(kept, pack, len) == 0);
    free(kept);
    free(pack);
}

static size_t count_lines(const char *text, const char *with)
{
    size_t n = 0;

    for (const char *line = text; (line = strstr(line, with)) != NULL; line++)
        n++;
    return n;
}

Test(store_leftovers, a_missing_pack_is_one_line)
{
    rig.pack_limit = 16384;
    add("a");
    save();
    for (unsigned i = 0; i < 30; i++) {
        char name[8];
        snprintf(name, sizeof(name), "f%02u", i);
        add(name);
    }
    save();
    struct rig_place one = rig_packed(&ops, dir, "a"), many = rig_packed(&ops, dir, "f00");
    cr_assert_neq(one.number, many.number);
    unlink(one.path);
    unlink(many.path);
    restart();
    cr_assert_eq(rig.loaded.quarantined, 31);
    cr_assert_eq(count_lines(rig.reports, "\n"), 2, "%s", rig.reports);
    cr_assert(strstr(rig.reports, "filter 'a' is quarantined: packs/"), "%s", rig.reports);
    cr_assert(strstr(rig.reports, ".pack: missing: 30 filters are quarantined: 'f"), "%s", rig.reports);
    cr_assert_eq(count_lines(rig.reports, "'f"), 3, "%s", rig.reports);
}
