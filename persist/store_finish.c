/* What is left to do once a MANIFEST is valid: files get their names, superfluous ones go. The same after a save as after
 * a crash, and it can be done again and again: what is done already is recognised by the temporary file that is no longer
 * there.
 *
 * Order: files that are to be kept leave before others take their names, and that is on disk first. All of it is on disk
 * before the next MANIFEST becomes valid, which would not mention it any more. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "store_internal.h"

struct finishing {
    struct store *store;
    struct errbuf *err;
    int rc; /* the first error; its text is in `err` */
};

static void note(struct finishing *finishing, int rc, const char *path)
{
    if (rc == 0 || finishing->rc != 0)
        return;
    finishing->rc = rc;
    errbuf_set(finishing->err, "%s: %s", path, strerror(-rc));
}

/* ---- removed filters ----------------------------------------------------------------------------------------------- */

static void make_dir(struct finishing *finishing, const char *path)
{
    const struct fsops *fs = finishing->store->fs;
    int rc = fs->mkdir(fs->ctx, path);

    note(finishing, rc == -EEXIST ? 0 : rc, path);
}

/* Moves one file of a filter that was given up. If another filter has taken its place in the directory, the name means
 * the old file only as long as the new one is still under its temporary name. */
static void keep_file(struct finishing *finishing, const struct manifest_removed *removed, const char *dir, unsigned layer)
{
    struct store *store = finishing->store;
    const struct fsops *fs = store->fs;
    struct path from, to;
    struct fs_stat st;

    if (layer < removed->shared) {
        int rc = path_temp(store, &to, dir, layer, removed->generation, NULL);
        if (rc == 0)
            rc = fs->stat(fs->ctx, to.text, &st);
        if (rc == -ENOENT)
            return;
        note(finishing, rc, to.text);
        if (rc != 0)
            return;
    }
    if (path_final(store, &from, dir, layer, NULL) != 0 ||
        snprintf(to.text, sizeof(to.text), "%s/quarantine/%s-%llu/%u-Filter.db", store->dir, dir,
                 (unsigned long long)removed->id, layer) >= (int)sizeof(to.text)) {
        note(finishing, -ENAMETOOLONG, dir);
        return;
    }
    int rc = fs->rename(fs->ctx, from.text, to.text);
    note(finishing, rc == -ENOENT ? 0 : rc, from.text);
}

static void keep_files(struct finishing *finishing, const struct manifest_removed *removed, const char *dir)
{
    struct store *store = finishing->store;
    const struct fsops *fs = store->fs;
    struct path quarantine, path;

    if (path_root(store, &quarantine, "quarantine", NULL) != 0 ||
        snprintf(path.text, sizeof(path.text), "%s/quarantine/%s-%llu", store->dir, dir, (unsigned long long)removed->id) >=
            (int)sizeof(path.text)) {
        note(finishing, -ENAMETOOLONG, dir);
        return;
    }
    make_dir(finishing, quarantine.text);
    make_dir(finishing, path.text);
    /* The place must be on disk before anything moves there. */
    note(finishing, fs->sync_dir(fs->ctx, store->dir), store->dir);
    note(finishing, fs->sync_dir(fs->ctx, quarantine.text), quarantine.text);
    if (finishing->rc != 0)
        return;
    for (unsigned layer = 0; layer < removed->nlayers; layer++)
        keep_file(finishing, removed, dir, layer);
    note(finishing, fs->sync_dir(fs->ctx, path.text), path.text);
}

static void delete_files(struct finishing *finishing, const struct manifest_removed *removed, const char *dir)
{
    const struct fsops *fs = finishing->store->fs;
    struct path path;

    for (unsigned layer = removed->shared; layer < removed->nlayers; layer++) {
        int rc = path_final(finishing->store, &path, dir, layer, NULL);
        if (rc == 0)
            rc = fs->unlink(fs->ctx, path.text);
        note(finishing, rc == -ENOENT ? 0 : rc, path.text);
    }
}

static int on_removed(void *ctx, const struct manifest_removed *removed, uint64_t offset, struct errbuf *err)
{
    struct finishing *finishing = ctx;
    struct store *store = finishing->store;
    const struct fsops *fs = store->fs;
    char dir[NAME_DIR_MAX + 1];
    struct path path;
    int rc;

    (void)offset;
    (void)err;
    memcpy(dir, removed->dir, removed->dir_len);
    dir[removed->dir_len] = '\0';
    if (removed->keep)
        keep_files(finishing, removed, dir);
    else
        delete_files(finishing, removed, dir);
    rc = path_dir(store, &path, dir, NULL);
    if (rc == 0 && removed->generation == 0) {
        /* Not empty: somebody has put a file there, or an unfinished save has. The next start looks at it. */
        rc = fs->rmdir(fs->ctx, path.text);
        if (rc == 0 || rc == -ENOENT || rc == -EEXIST)
            rc = 0;
    }
    if (rc == 0 || rc == -ENOTEMPTY) {
        rc = fs->sync_dir(fs->ctx, path.text);
        rc = rc == -ENOENT ? 0 : rc;
    }
    note(finishing, rc, path.text);
    return 0;
}

/* ---- that it has been done --------------------------------------------------------------------------------------------- */

/* The lines about removed filters stay in the MANIFEST until the next save, but a file that appears in such a place after
 * its time is somebody else's. So it is noted, in a file of its own, that they have been dealt with. The note need not be
 * synced: without it they are dealt with once more. */
#define NOTE "MANIFEST.done"

static void write_note(struct store *store)
{
    const struct fsops *fs = store->fs;
    struct path path;
    char text[32];
    int fd;
    int len = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)store->generation);

    if (store->removed_from == store->removed_to || path_root(store, &path, NOTE, NULL) != 0 ||
        fs->open(fs->ctx, path.text, FS_WRITE | FS_CREATE | FS_TRUNCATE, &fd) != 0)
        return;
    size_t n;
    (void)fs->pwrite(fs->ctx, fd, text, (size_t)len, 0, &n); /* half a note is none */
    fs->close(fs->ctx, fd);
}

static bool has_note(struct store *store)
{
    const struct fsops *fs = store->fs;
    struct path path;
    char text[32], found[32];
    size_t n = 0;
    int fd;
    int len = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)store->generation);

    if (path_root(store, &path, NOTE, NULL) != 0 || fs->open(fs->ctx, path.text, FS_READ, &fd) != 0)
        return false;
    int rc = fs->pread(fs->ctx, fd, found, sizeof(found), 0, &n);
    fs->close(fs->ctx, fd);
    return rc == 0 && n == (size_t)len && memcmp(text, found, n) == 0;
}

static int on_filter_ignored(void *ctx, const struct manifest_filter *filter, uint64_t offset, struct errbuf *err)
{
    (void)ctx;
    (void)filter;
    (void)offset;
    (void)err;
    return 0;
}

int finish_removed(struct store *store, struct errbuf *err)
{
    struct finishing finishing = {.store = store, .err = err};
    struct manifest_sink sink = {.on_filter = on_filter_ignored, .on_removed = on_removed, .ctx = &finishing};
    struct manifest_parser parser;
    struct path filters;
    int rc;

    if (store->removed_from == store->removed_to || has_note(store))
        return 0;
    rc = manifest_parser_init_at(&parser, &sink, store->removed_from);
    if (rc == 0)
        rc = manifest_file_parse_range(store->fs, store->manifest_fd, &parser, store->removed_from, store->removed_to, err);
    manifest_parser_deinit(&parser);
    if (rc > 0)
        rc = -EIO; /* it was verified before; only the disk can have changed it */
    if (rc == 0)
        rc = finishing.rc;
    if (rc == 0)
        rc = path_root(store, &filters, "filters", err);
    if (rc == 0) {
        rc = store->fs->sync_dir(store->fs->ctx, filters.text);
        if (rc != 0)
            errbuf_set(err, "%s: %s", filters.text, strerror(-rc));
    }
    if (rc == 0)
        write_note(store);
    return rc;
}

/* ---- filters ------------------------------------------------------------------------------------------------------- */

int finish_filter(struct store *store, const struct manifest_filter *filter, uint64_t after, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    char dir[NAME_DIR_MAX + 1];
    struct path from, to;

    name_dir(filter->name, filter->name_len, dir);
    for (unsigned i = 0; i < filter->nlayers; i++) {
        if (filter->layers[i].generation <= after)
            continue;
        int rc = path_temp(store, &from, dir, i, filter->layers[i].generation, err);
        if (rc == 0)
            rc = path_final(store, &to, dir, i, err);
        if (rc != 0)
            return rc;
        rc = fs->rename(fs->ctx, from.text, to.text);
        if (rc != 0 && rc != -ENOENT) {
            errbuf_set(err, "%s: cannot be renamed to %s: %s", from.text, to.text, strerror(-rc));
            return rc;
        }
    }
    return 0;
}

static int on_filter(void *ctx, const struct manifest_filter *filter, uint64_t offset, struct errbuf *err)
{
    struct finishing *finishing = ctx;
    struct errbuf reason;
    int rc = finish_filter(finishing->store, filter, 0, &reason);

    (void)offset;
    (void)err;
    if (rc != 0 && finishing->rc == 0) {
        finishing->rc = rc;
        *finishing->err = reason;
    }
    return 0;
}

static int on_removed_ignored(void *ctx, const struct manifest_removed *removed, uint64_t offset, struct errbuf *err)
{
    (void)ctx;
    (void)removed;
    (void)offset;
    (void)err;
    return 0;
}

int finish_all(struct store *store, struct errbuf *err)
{
    struct finishing finishing = {.store = store, .err = err};
    struct manifest_sink sink = {.on_filter = on_filter, .on_removed = on_removed_ignored, .ctx = &finishing};
    struct manifest_parser parser;
    int rc = finish_removed(store, err);

    if (rc != 0)
        return rc;
    rc = manifest_parser_init(&parser, &sink);
    if (rc == 0)
        rc = manifest_file_parse(store->fs, store->manifest_fd, &parser, err);
    manifest_parser_deinit(&parser);
    if (rc > 0)
        rc = -EIO;
    if (rc == 0)
        rc = finishing.rc;
    if (rc == 0) {
        rc = store->fs->sync_all(store->fs->ctx, store->lock_fd);
        if (rc != 0)
            errbuf_set(err, "%s: cannot sync: %s", store->dir, strerror(-rc));
    }
    if (rc == 0)
        store->unfinished = false;
    return rc;
}
