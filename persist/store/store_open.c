/* Opening and closing a data directory. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "done_note.h"
#include "filterdb.h"
#include "log_note.h"
#include "store_internal.h"

struct opening {
    struct store *store;
    struct record_reader reader;
    bool has_removed;
    uint64_t max_id; /* of removed filters */
};

static int on_filter(void *ctx, const struct manifest_filter *filter, uint64_t offset, struct errbuf *err)
{
    struct opening *opening = ctx;
    struct store *store = opening->store;
    struct index_entry entry = {.id = filter->id, .nlayers = (uint8_t)filter->nlayers};

    for (unsigned i = 0; i < filter->nlayers; i++)
        store->opened_bytes += filterdb_bytes(filter->layers[i].nwords);
    entry.facts = index_facts(&store->index, filter->name, filter->name_len, filter->expires_ms);
    index_set_offset(&entry, offset);
    if (filter->pack && packs_entry(store, filter, &entry) != 0) {
        errbuf_set(err, "out of memory");
        return -ENOMEM;
    }
    if (!filter->pack)
        entry.dir_hash = index_dir_hash(&store->index, filter->dir);
    if (index_find_id(&store->index, filter->id) != INDEX_NONE) {
        errbuf_set(err, "a second filter with the id %" PRIu64, filter->id);
        return MANIFEST_DAMAGED;
    }
    uint32_t number = INDEX_NONE;
    while (!filter->pack && (number = index_find_dir(&store->index, entry.dir_hash, number)) != INDEX_NONE) {
        int same = entry_is_dir(&opening->reader, &store->index.entries[number], filter->dir, err);
        if (same < 0)
            return same;
        if (same) {
            errbuf_set(err, "a second filter in the directory %s", filter->dir);
            return MANIFEST_DAMAGED;
        }
    }
    int rc = index_add(&store->index, &entry);
    if (rc != 0)
        errbuf_set(err, "%s", strerror(-rc));
    return rc;
}

/* A line that would have files of a filter deleted that is there is not one that a save has written. */
static int check_removed(struct opening *opening, const struct manifest_removed *removed, struct errbuf *err)
{
    const struct store_index *index = &opening->store->index;
    char dir[NAME_DIR_MAX + 1];
    uint32_t number = INDEX_NONE;
    unsigned shared = 0;
    uint64_t owner = 0;

    memcpy(dir, removed->dir, removed->dir_len);
    dir[removed->dir_len] = '\0';
    while ((number = index_find_dir(index, index_dir_hash(index, dir), number)) != INDEX_NONE) {
        const struct manifest_filter *filter;
        int rc = record_read(&opening->reader, index_offset(&index->entries[number]), &filter, err);
        if (rc != 0)
            return rc;
        if (strcmp(filter->dir, dir) != 0)
            continue;
        shared = filter->nlayers < removed->nlayers ? filter->nlayers : removed->nlayers;
        owner = newest_generation(filter);
    }
    if (removed->shared == shared && removed->owner == owner)
        return 0;
    errbuf_set(err, "a removed filter in the directory %s, which says shared=%u owner=%" PRIu64 " instead of %u and %" PRIu64,
               dir, removed->shared, removed->owner, shared, owner);
    return MANIFEST_DAMAGED;
}

static int hold_pack(struct store *store, uint64_t number, struct errbuf *err)
{
    uint32_t slot;
    int rc = packs_slot(store, number, &slot);

    if (rc == 0)
        store->packs.table[slot].held = true;
    else
        errbuf_set(err, "out of memory");
    return rc;
}

static int on_removed(void *ctx, const struct manifest_removed *removed, uint64_t offset, struct errbuf *err)
{
    struct opening *opening = ctx;

    if (!opening->has_removed)
        opening->store->removed_from = offset;
    opening->has_removed = true;
    if (removed->id > opening->max_id)
        opening->max_id = removed->id;
    return removed->pack ? hold_pack(opening->store, removed->pack, err) : check_removed(opening, removed, err);
}

static int check_numbers(const struct opening *opening, const struct manifest_save *save, struct errbuf *err)
{
    const struct store_index *index = &opening->store->index;
    uint64_t max_id = opening->max_id;

    for (size_t i = 0; i < index->count; i++)
        max_id = index->entries[i].id > max_id ? index->entries[i].id : max_id;
    if (max_id >= save->next_id) {
        errbuf_set(err, "line 2: next-id=%" PRIu64 " is not above the filter id %" PRIu64, save->next_id, max_id);
        return MANIFEST_DAMAGED;
    }
    return store_check_numbers(save, err) == 0 ? 0 : MANIFEST_DAMAGED;
}

int store_check_numbers(const struct manifest_save *save, struct errbuf *err)
{
    const uint64_t most = MANIFEST_MAX_NUMBER / 2;

    if (save->next_id > most || save->generation > most || save->log >= most || save->control >= most ||
        save->frame >= most / 2 || save->accepted > most) {
        errbuf_set(err,
                   "line 2: generation=%" PRIu64 " next-id=%" PRIu64 " log=%" PRIu64 " control=%" PRIu64 " frame=%" PRIu64
                   " accepted=%" PRIu64 ": no directory has seen as many",
                   save->generation, save->next_id, save->log, save->control, save->frame, save->accepted);
        return -EOVERFLOW;
    }
    return 0;
}

static int read_manifest(struct store *store, struct errbuf *err)
{
    struct opening opening = {.store = store};
    struct manifest_sink sink = {.on_filter = on_filter, .on_removed = on_removed, .ctx = &opening};
    struct manifest_parser parser;
    int rc = record_reader_init(&opening.reader, store->fs, store->manifest_fd);
    int parser_rc = manifest_parser_init(&parser, &sink);

    if (rc == 0)
        rc = parser_rc;
    if (rc == 0)
        rc = index_map(&store->index);
    if (rc != 0)
        errbuf_set(err, "out of memory");
    else
        rc = manifest_file_parse(store->fs, store->manifest_fd, &parser, err);
    if (rc == 0)
        rc = check_numbers(&opening, &parser.save, err);
    index_unmap(&store->index);
    if (rc == 0) {
        store->save = parser.save;
        atomic_store(&store->generation, parser.save.generation);
        atomic_store(&store->next_id, parser.save.next_id);
        atomic_store(&store->count, store->index.count);
        store->removed_to = parser.end_offset;
        store->digest = parser.digest;
        if (!opening.has_removed)
            store->removed_from = store->removed_to;
    }
    manifest_parser_deinit(&parser);
    record_reader_deinit(&opening.reader);
    return rc == MANIFEST_DAMAGED ? STORE_DAMAGED : rc;
}

/* The first MANIFEST of a directory is written as every later one: whole or not at all. */
static int write_first_manifest(struct store *store, const char *path, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    struct manifest_text text = {0};
    struct path draft;
    int fd = -1;
    int rc = path_root(store, &draft, "MANIFEST.new", err);

    if (rc != 0)
        return rc;
    rc = manifest_format_header(&text, &(struct manifest_save){.next_id = 1});
    if (rc == 0)
        rc = manifest_format_end(&text, 0, 0, XXH3_64bits(text.ptr, text.len));
    if (rc == 0)
        rc = fs_open_new(fs, draft.text, FS_WRITE, &fd);
    if (rc == 0)
        rc = fs_write_all(fs, fd, text.ptr, text.len, 0);
    if (rc == 0)
        rc = fs->sync(fs->ctx, fd);
    if (fd >= 0) {
        int close_rc = fs->close(fs->ctx, fd);
        rc = rc != 0 ? rc : close_rc;
    }
    if (rc == 0)
        rc = fs->rename(fs->ctx, draft.text, path);
    if (rc == 0)
        rc = fs->sync_dir(fs->ctx, store->dir);
    if (rc != 0)
        errbuf_set(err, "%s: cannot write: %s", draft.text, strerror(-rc));
    manifest_text_deinit(&text);
    return rc;
}

static int visit_any(void *ctx, const char *name)
{
    struct errbuf *first = ctx;

    errbuf_set(first, "%s", name);
    return 1;
}

/* One sync has to cover everything, and links and renames have to reach. */
static int check_devices(struct store *store, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    struct fs_stat root, filters;
    struct path path;
    int rc = path_root(store, &path, "filters", err);

    if (rc != 0)
        return rc;
    rc = fs->stat(fs->ctx, path.text, &filters);
    if (rc == -ENOENT) /* then every filter is quarantined, which says more */
        filters.kind = FS_OTHER;
    else if (rc != 0)
        goto failed;
    rc = path_root(store, &path, "LOCK", err);
    if (rc == 0)
        rc = fs->stat(fs->ctx, path.text, &root);
    if (rc != 0)
        goto failed;
    store->device = root.device;
    if (filters.kind != FS_DIRECTORY || filters.device == root.device)
        return 0;
    errbuf_set(err, "%s/filters is on another file system than the rest of the data directory", store->dir);
    return -EXDEV;
failed:
    errbuf_set(err, "%s: %s", path.text, strerror(-rc));
    return rc;
}

/* Also when the directory was there: who has made it may have died before this. */
static int sync_parent(struct store *store, struct errbuf *err)
{
    struct path path;
    int rc = path_root(store, &path, "..", err);

    if (rc != 0)
        return rc;
    rc = store->fs->sync_dir(store->fs->ctx, path.text);
    if (rc == -EACCES) {
        store_report(store, STORE_WARNING, "%s cannot be read, so that the data directory in it cannot be synced", path.text);
        return 0;
    }
    if (rc != 0)
        errbuf_set(err, "%s: cannot sync: %s", path.text, strerror(-rc));
    return rc;
}

/* What belongs to a MANIFEST is not there without it. 0 or -errno of the listing. */
static int expect_nothing_in(struct store *store, const char *name, const char *manifest, struct path *path_out,
                             struct errbuf *err)
{
    struct errbuf first;
    int rc = path_root(store, path_out, name, err);

    if (rc == 0)
        rc = store->fs->list(store->fs->ctx, path_out->text, visit_any, &first);
    if (rc == 1) {
        errbuf_set(err,
                   "%s: missing, but %s is not empty ('%s'): this is a data directory that has lost its MANIFEST, or none "
                   "of ours",
                   manifest, path_out->text, first.text);
        return STORE_DAMAGED;
    }
    return rc;
}

static int expect_no_note(struct store *store, const char *manifest, struct errbuf *err)
{
    struct path path;
    struct fs_stat st;
    int rc = path_root(store, &path, LOG_NOTE_NAME, err);

    if (rc != 0 || store->fs->stat(store->fs->ctx, path.text, &st) != 0)
        return rc;
    errbuf_set(err, "%s: missing, but %s is there: this is a data directory that has lost its MANIFEST", manifest, path.text);
    return STORE_DAMAGED;
}

static int make_tree(struct store *store, const char *manifest, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    struct path filters, packs, log;
    int rc = expect_nothing_in(store, "log", manifest, &log, err);

    if (rc == STORE_DAMAGED)
        return rc; /* else whoever reads the log says what is wrong with it */
    rc = expect_no_note(store, manifest, err);
    if (rc != 0)
        return rc;
    rc = expect_nothing_in(store, PACK_DIR, manifest, &packs, err);
    if (rc == STORE_DAMAGED)
        return rc;
    rc = expect_nothing_in(store, "filters", manifest, &filters, err);
    if (rc == STORE_DAMAGED)
        return rc;
    if (rc == -ENOENT)
        rc = fs->mkdir(fs->ctx, filters.text);
    if (rc != 0) {
        errbuf_set(err, "%s: %s", filters.text, strerror(-rc));
        return rc;
    }
    rc = sync_parent(store, err);
    return rc != 0 ? rc : write_first_manifest(store, manifest, err);
}

static int open_manifest(struct store *store, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    struct path path;
    int rc = path_root(store, &path, "MANIFEST", err);

    if (rc != 0)
        return rc;
    rc = fs->open(fs->ctx, path.text, FS_READ, &store->manifest_fd);
    if (rc == -ENOENT) {
        rc = make_tree(store, path.text, err);
        if (rc != 0)
            return rc;
        rc = fs->open(fs->ctx, path.text, FS_READ, &store->manifest_fd);
    }
    if (rc != 0) {
        errbuf_set(err, "%s: cannot open: %s", path.text, strerror(-rc));
        return rc;
    }
    rc = read_manifest(store, err);
    if (rc != 0)
        errbuf_prefix(err, "%s", path.text);
    return rc;
}

static int take_lock(struct store *store, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    struct path path;
    pid_t owner = 0;
    int rc = fs->mkdir(fs->ctx, store->dir);

    if (rc != 0 && rc != -EEXIST) {
        errbuf_set(err, "%s: cannot make the data directory: %s", store->dir, strerror(-rc));
        return rc;
    }
    rc = path_root(store, &path, "LOCK", err);
    if (rc != 0)
        return rc;
    rc = fs->lock(fs->ctx, path.text, &store->lock_fd, &owner);
    if (rc == -EWOULDBLOCK) {
        if (owner > 0)
            errbuf_set(err, "%s: the data directory is in use by process %ld", path.text, (long)owner);
        else
            errbuf_set(err, "%s: the data directory is in use by another process", path.text);
        return STORE_LOCKED;
    }
    if (rc != 0)
        errbuf_set(err, "%s: cannot lock: %s", path.text, strerror(-rc));
    return rc;
}

/* What an interrupted save may have left in the root. Nobody reads it, and the next save replaces it. */
static void remove_drafts(struct store *store)
{
    static const char *const names[] = {"MANIFEST.new", "MANIFEST.spool"};
    struct path path;

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (path_root(store, &path, names[i], NULL) == 0)
            (void)store->fs->unlink(store->fs->ctx, path.text);
    }
}

/* The process that has put the MANIFEST there may have been killed before this. What is done from here on to the files that it
 * names could else be on the disk without it. */
static int sync_manifest(struct store *store, struct errbuf *err)
{
    int rc = store->fs->sync_dir(store->fs->ctx, store->dir);

    if (rc != 0)
        errbuf_set(err, "%s: cannot sync: %s", store->dir, strerror(-rc));
    return rc;
}

/* What has been saved since would be superfluous by an older MANIFEST, and go. */
static int check_age(struct store *store, struct errbuf *err)
{
    uint64_t done = done_note_read(store->fs, store->dir);

    if (done <= store->save.generation)
        return 0;
    errbuf_set(err,
               "%s/MANIFEST: an older one has been put here: it is of save %" PRIu64 ", and MANIFEST.done says that save %" PRIu64
               " took place. Put the newest one here (of a copy that was taken while a daemon was saving: copy again); or "
               "delete MANIFEST.done to go on without what was saved since",
               store->dir, store->save.generation, done);
    return STORE_DAMAGED;
}

/* NULL: no memory. */
static struct store *store_new(const char *dir, const struct store_options *options, struct errbuf *err)
{
    struct store *store = calloc(1, sizeof(*store));

    if (!store || !(store->dir = strdup(dir))) {
        free(store);
        errbuf_set(err, "out of memory");
        return NULL;
    }
    store->fs = options && options->fs ? options->fs : fsops_posix();
    store->report = options ? options->report : NULL;
    store->report_ctx = options ? options->report_ctx : NULL;
    store->index.seed = options ? options->hash_seed : 0;
    store->lock_fd = -1;
    store->manifest_fd = -1;
    pthread_mutex_init(&store->mutex, NULL);
    return store;
}

int store_verify(const char *dir, const struct store_options *options, struct errbuf *err)
{
    struct store *store = store_new(dir, options, err);
    struct path path;

    if (!store)
        return -ENOMEM;
    int rc = path_root(store, &path, "MANIFEST", err);
    if (rc == 0) {
        rc = store->fs->open(store->fs->ctx, path.text, FS_READ, &store->manifest_fd);
        if (rc != 0)
            errbuf_set(err, "%s", strerror(-rc));
        else
            rc = read_manifest(store, err);
        if (rc != 0)
            errbuf_prefix(err, "%s", path.text);
    }
    store_close(store);
    return rc;
}

int store_open(const char *dir, const struct store_options *options, struct store **store_out, struct errbuf *err)
{
    struct store *store = store_new(dir, options, err);
    struct errbuf reason;

    if (!store)
        return -ENOMEM;
    int rc = take_lock(store, err);
    if (rc == 0)
        rc = open_manifest(store, err);
    if (rc == 0)
        rc = check_age(store, err);
    if (rc == 0)
        rc = check_devices(store, err);
    if (rc == 0)
        rc = sync_manifest(store, err);
    if (rc != 0) {
        store_close(store);
        return rc;
    }
    remove_drafts(store);
    packs_count(store);
    packs_measure(store);
    if (finish_removed(store, &reason) != 0)
        store_report(store, STORE_WARNING, "%s; this will be tried again", reason.text);
    *store_out = store;
    return 0;
}

void store_close(struct store *store)
{
    if (!store)
        return;
    if (store->manifest_fd >= 0)
        store->fs->close(store->fs->ctx, store->manifest_fd);
    if (store->lock_fd >= 0)
        store->fs->close(store->fs->ctx, store->lock_fd);
    index_deinit(&store->index);
    packs_deinit(store);
    manifest_text_deinit(&store->pending);
    id_map_deinit(&store->blocked);
    id_map_deinit(&store->quarantined);
    id_map_deinit(&store->forgotten);
    written_deinit(store);
    pthread_mutex_destroy(&store->mutex);
    free(store->dir);
    free(store);
}
