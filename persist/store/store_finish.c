/* What is left to do once a MANIFEST is valid: superfluous files go, and new ones get their names. The same after a save as
 * after a crash, and it can be done again and again: what is done already is recognised by the temporary file that is no
 * longer there.
 *
 * Order: files that are to be kept leave before others take their names, and that is on disk first. All of it is on disk
 * before the next MANIFEST becomes valid, or the next MANIFEST mentions it again: a file that cannot be moved or deleted
 * holds up nothing else. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "done_note.h"
#include "manifest_text.h"
#include "store_internal.h"

#define PLACE_MANY    1024 /* filters, from which on several threads rename their files */
#define PLACE_THREADS 3    /* beside the caller's */
#define PLACE_AT_ONCE 256  /* entries that a thread takes: their records are next to each other in the MANIFEST */

struct finishing {
    struct store *store;
    struct id_map blocked;       /* hashes of directories from which files could not be moved */
    struct manifest_text failed; /* lines that could not be carried out */
    uint64_t nfailed;
    uint64_t unreadable; /* the last pack that could not be read, and has been kept as it is; 0: none */
    int rc; /* of the line under way: the first error, its text in `reason` */
    struct errbuf reason;
    struct errbuf first; /* reason of the first line that failed */
};

static void note(struct finishing *finishing, int rc, const char *path)
{
    if (rc == 0 || finishing->rc != 0)
        return;
    finishing->rc = rc;
    errbuf_set(&finishing->reason, "%s: %s", path, strerror(-rc));
}

/* ---- removed filters ----------------------------------------------------------------------------------------------- */

static void make_dir(struct finishing *finishing, const char *path)
{
    const struct fsops *fs = finishing->store->fs;
    int rc = fs->mkdir(fs->ctx, path);

    note(finishing, rc == -EEXIST ? 0 : rc, path);
}

static bool is_absent(int rc)
{
    return rc == -ENOENT || rc == -ENOTDIR;
}

static int quarantine_path(const struct store *store, struct path *path, const struct manifest_removed *removed,
                           const char *dir, const char *file)
{
    int len = snprintf(path->text, sizeof(path->text), "%s/quarantine/%s-%llu%s%s", store->dir, dir,
                       (unsigned long long)removed->id, *file ? "/" : "", file);

    return len < (int)sizeof(path->text) ? 0 : -ENAMETOOLONG;
}

static void keep_file(struct finishing *finishing, const struct manifest_removed *removed, const char *dir,
                      const struct path *from)
{
    const struct fsops *fs = finishing->store->fs;
    struct path to;
    int rc = quarantine_path(finishing->store, &to, removed, dir, strrchr(from->text, '/') + 1);

    if (rc == 0)
        rc = fs->rename(fs->ctx, from->text, to.text);
    note(finishing, is_absent(rc) ? 0 : rc, from->text);
}

/* Moves the files of one layer. If another filter has taken its place in the directory, the final name means the old file
 * only as long as the new one is still under its temporary name. */
static void keep_layer(struct finishing *finishing, const struct manifest_removed *removed, const char *dir, unsigned layer)
{
    struct store *store = finishing->store;
    const struct fsops *fs = store->fs;
    struct path path;
    struct fs_stat st;
    int rc = path_temp(store, &path, dir, layer, removed->generations[layer], NULL);

    if (rc == 0)
        keep_file(finishing, removed, dir, &path);
    if (rc == 0 && layer >= removed->placed)
        return;
    if (rc == 0 && layer < removed->shared) {
        rc = path_temp(store, &path, dir, layer, removed->owner, NULL);
        if (rc == 0)
            rc = fs->stat(fs->ctx, path.text, &st);
        if (is_absent(rc))
            return;
    }
    if (rc == 0)
        rc = path_final(store, &path, dir, layer, NULL);
    note(finishing, rc, path.text);
    if (rc == 0)
        keep_file(finishing, removed, dir, &path);
}

/* False: something is in the way. */
static bool make_quarantine_dir(struct finishing *finishing, const struct manifest_removed *removed, const char *dir,
                                struct path *path_out)
{
    struct store *store = finishing->store;
    const struct fsops *fs = store->fs;
    struct path quarantine;

    if (path_root(store, &quarantine, "quarantine", NULL) != 0 ||
        quarantine_path(store, path_out, removed, dir, "") != 0) {
        note(finishing, -ENAMETOOLONG, dir);
        return false;
    }
    make_dir(finishing, quarantine.text);
    make_dir(finishing, path_out->text);
    /* The place must be on disk before anything moves there. */
    note(finishing, fs->sync_dir(fs->ctx, store->dir), store->dir);
    note(finishing, fs->sync_dir(fs->ctx, quarantine.text), quarantine.text);
    return finishing->rc == 0;
}

static void keep_files(struct finishing *finishing, const struct manifest_removed *removed, const char *dir)
{
    struct path path;

    if (!make_quarantine_dir(finishing, removed, dir, &path))
        return;
    for (unsigned layer = 0; layer < removed->nlayers; layer++)
        keep_layer(finishing, removed, dir, layer);
    note(finishing, finishing->store->fs->sync_dir(finishing->store->fs->ctx, path.text), path.text);
}

static void delete_file(struct finishing *finishing, const struct path *path)
{
    const struct fsops *fs = finishing->store->fs;
    int rc = fs->unlink(fs->ctx, path->text);

    note(finishing, is_absent(rc) ? 0 : rc, path->text);
}

static void delete_files(struct finishing *finishing, const struct manifest_removed *removed, const char *dir)
{
    struct path path;

    for (unsigned layer = 0; layer < removed->nlayers; layer++) {
        if (path_temp(finishing->store, &path, dir, layer, removed->generations[layer], NULL) == 0)
            delete_file(finishing, &path);
        if (layer >= removed->shared && layer < removed->placed &&
            path_final(finishing->store, &path, dir, layer, NULL) == 0)
            delete_file(finishing, &path);
    }
}

/* Whether an error is one of the moment and not of the disk. */
static bool is_passing(int rc)
{
    return rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE || rc == -EINTR || rc == -EAGAIN;
}

/* The bytes cannot be had, now and maybe ever: so the pack is kept as a whole. Its lines would else be tried by each save,
 * for as long as the disk takes to fail, and the pack would stay for them. */
static void keep_pack(struct finishing *finishing, uint64_t number, int error)
{
    struct store *store = finishing->store;
    const struct fsops *fs = store->fs;
    struct path from, to, quarantine;
    uint32_t slot;
    int rc = path_pack(store, &from, number, NULL);

    if (rc == 0 && snprintf(to.text, sizeof(to.text), "%s/quarantine/%llu.pack", store->dir, (unsigned long long)number) >=
                       (int)sizeof(to.text))
        rc = -ENAMETOOLONG;
    if (rc == 0)
        rc = path_root(store, &quarantine, "quarantine", NULL);
    if (rc == 0)
        rc = fs->link(fs->ctx, from.text, to.text);
    if (rc == -EEXIST) /* kept before */
        rc = 0;
    /* Not every file system can link. */
    if (rc != 0 && packs_slot(store, number, &slot) == 0 && store->packs.table[slot].live == 0)
        rc = fs->rename(fs->ctx, from.text, to.text);
    if (rc == 0)
        rc = fs->sync_dir(fs->ctx, quarantine.text);
    if (rc != 0) {
        note(finishing, error, from.text);
        return;
    }
    finishing->unreadable = number;
    store_report(store, STORE_WARNING, "%s cannot be read: %s; what has been given up of it is kept with it as %s", from.text,
                 strerror(-error), to.text);
}

/* What is there of a layer in a pack, damaged as it may be. */
static void unpack_layer(struct finishing *finishing, const struct manifest_removed *removed, const char *dir,
                         unsigned layer, struct pack_reader *reader, uint64_t offset)
{
    const struct fsops *fs = finishing->store->fs;
    const unsigned char *bytes;
    struct errbuf reason;
    struct path to;
    char file[32];
    size_t have;
    int fd = -1;
    int rc = pack_read(reader, removed->pack, offset, removed->sizes[layer], &bytes, &have, &reason);

    if (rc == PACK_MISSING)
        return;
    if (rc < 0 && !is_passing(rc)) {
        keep_pack(finishing, removed->pack, rc);
        return;
    }
    if (rc < 0) {
        note(finishing, rc, path_pack(finishing->store, &to, removed->pack, NULL) == 0 ? to.text : dir);
        return;
    }
    snprintf(file, sizeof(file), "%u-Filter.db", layer);
    rc = quarantine_path(finishing->store, &to, removed, dir, file);
    if (rc == 0)
        rc = fs->open(fs->ctx, to.text, FS_WRITE | FS_CREATE | FS_TRUNCATE, &fd);
    if (rc == 0)
        rc = fs_write_all(fs, fd, bytes, have, 0);
    if (rc == 0)
        rc = fs->sync(fs->ctx, fd);
    if (fd >= 0)
        fs->close(fs->ctx, fd);
    note(finishing, rc, to.text);
}

static void unpack_files(struct finishing *finishing, const struct manifest_removed *removed, const char *dir)
{
    uint64_t offset = removed->pack_offset;
    struct pack_reader reader;
    struct path path;

    if (finishing->unreadable == removed->pack || !make_quarantine_dir(finishing, removed, dir, &path))
        return;
    pack_reader_init(&reader, finishing->store->fs, finishing->store->dir);
    for (unsigned layer = 0; layer < removed->nlayers && finishing->unreadable != removed->pack; layer++) {
        unpack_layer(finishing, removed, dir, layer, &reader, offset);
        offset += removed->sizes[layer];
    }
    pack_reader_deinit(&reader);
    if (finishing->unreadable == removed->pack && finishing->store->fs->rmdir(finishing->store->fs->ctx, path.text) == 0)
        return; /* nothing is in it */
    note(finishing, finishing->store->fs->sync_dir(finishing->store->fs->ctx, path.text), path.text);
}

static void finish_line(struct finishing *finishing, const struct manifest_removed *removed)
{
    struct store *store = finishing->store;
    const struct fsops *fs = store->fs;
    char dir[NAME_DIR_MAX + 1];
    struct path path;

    memcpy(dir, removed->dir, removed->dir_len);
    dir[removed->dir_len] = '\0';
    if (removed->pack) {
        unpack_files(finishing, removed, dir);
        return;
    }
    if (removed->keep)
        keep_files(finishing, removed, dir);
    else
        delete_files(finishing, removed, dir);
    int rc = path_dir(store, &path, dir, NULL);
    /* Not empty: somebody has put a file there, or another filter has it. */
    if (rc == 0 && removed->owner == 0) {
        rc = fs->rmdir(fs->ctx, path.text);
        rc = is_absent(rc) || rc == -EEXIST ? 0 : rc;
    }
    if (rc == 0 || rc == -ENOTEMPTY) {
        rc = fs->sync_dir(fs->ctx, path.text);
        rc = is_absent(rc) ? 0 : rc;
    }
    note(finishing, rc, path.text);
}

static uint64_t blocked_key(uint64_t dir_hash)
{
    return dir_hash | 1; /* no key is 0 */
}

static int on_removed(void *ctx, const struct manifest_removed *removed, uint64_t offset, struct errbuf *err)
{
    struct finishing *finishing = ctx;

    (void)offset;
    (void)err;
    finishing->rc = 0;
    finish_line(finishing, removed);
    if (finishing->rc == 0)
        return 0;
    if (finishing->nfailed++ == 0)
        finishing->first = finishing->reason;
    if (removed->keep && removed->owner != 0) {
        char dir[NAME_DIR_MAX + 1];
        memcpy(dir, removed->dir, removed->dir_len);
        dir[removed->dir_len] = '\0';
        if (id_map_set(&finishing->blocked, blocked_key(index_dir_hash(&finishing->store->index, dir)), NULL) != 0)
            return -ENOMEM;
    }
    return manifest_format_removed(&finishing->failed, removed);
}

/* ---- that it has been done --------------------------------------------------------------------------------------------- */

/* The lines about removed filters stay in the MANIFEST until the next save, but a file that appears in such a place after
 * its time is somebody else's. So it is noted, in a file of its own, that they have been dealt with; also when there were
 * none, as that tells an older MANIFEST that is put back from the newest one. */
static void write_note(struct store *store)
{
    done_note_write(store->fs, store->dir, store->save.generation);
}

static int on_filter_ignored(void *ctx, const struct manifest_filter *filter, uint64_t offset, struct errbuf *err)
{
    (void)ctx;
    (void)filter;
    (void)offset;
    (void)err;
    return 0;
}

/* All lines of the committed MANIFEST, when some of them cannot be known to be on disk. */
static int fail_all(struct finishing *finishing, const char *what, int rc)
{
    struct store *store = finishing->store;
    uint64_t size = store->removed_to - store->removed_from;

    errbuf_set(&finishing->first, "%s: %s", what, strerror(-rc));
    finishing->failed.len = 0;
    finishing->nfailed = 0;
    if (manifest_text_reserve(&finishing->failed, (size_t)size) != 0)
        return -ENOMEM;
    rc = fs_read_all(store->fs, store->manifest_fd, finishing->failed.ptr, (size_t)size, store->removed_from);
    if (rc != 0)
        return rc;
    finishing->failed.len = (size_t)size;
    for (size_t i = 0; i < size; i++)
        finishing->nfailed += finishing->failed.ptr[i] == '\n';
    return 0;
}

static void finishing_deinit(struct finishing *finishing)
{
    manifest_text_deinit(&finishing->failed);
    id_map_deinit(&finishing->blocked);
}

/* What has failed is what is pending from now on. */
static void adopt_failed(struct finishing *finishing)
{
    struct store *store = finishing->store;

    manifest_text_deinit(&store->pending);
    id_map_deinit(&store->blocked);
    store->pending = finishing->failed;
    store->blocked = finishing->blocked;
    store->npending = finishing->nfailed;
    store->redo_removed = false;
    if (store->npending > 0)
        store_report(store, STORE_WARNING, "files of %llu removed filters are still in their place: %s; this will be tried again",
                     (unsigned long long)store->npending, finishing->first.text);
    else
        write_note(store);
    if (store->npending == 0)
        packs_let_go(store);
}

/* Carries out lines of the committed MANIFEST: those in the file, or those in `text`. */
static int run_lines(struct store *store, const struct manifest_text *text, struct errbuf *err)
{
    struct finishing finishing = {.store = store};
    struct manifest_sink sink = {.on_filter = on_filter_ignored, .on_removed = on_removed, .ctx = &finishing};
    struct manifest_parser parser;
    struct path filters;
    int rc = manifest_parser_init_at(&parser, &sink, 0);

    if (rc == 0 && text)
        rc = manifest_parser_feed(&parser, text->ptr, text->len, err);
    else if (rc == 0)
        rc = manifest_file_parse_range(store->fs, store->manifest_fd, &parser, store->removed_from, store->removed_to, err);
    manifest_parser_deinit(&parser);
    if (rc > 0)
        rc = -EIO; /* it was verified before; only the disk can have changed it */
    if (rc == 0)
        rc = path_root(store, &filters, "filters", err);
    if (rc == 0) {
        int sync_rc = store->fs->sync_dir(store->fs->ctx, filters.text);
        if (sync_rc != 0)
            rc = fail_all(&finishing, filters.text, sync_rc);
    }
    if (rc == 0) {
        adopt_failed(&finishing);
        return 0;
    }
    errbuf_set(err, "%s/MANIFEST: cannot read what is to be removed: %s", store->dir, strerror(-rc));
    finishing_deinit(&finishing);
    return rc;
}

int finish_removed(struct store *store, struct errbuf *err)
{
    bool noted = done_note_read(store->fs, store->dir) == store->save.generation;

    if (store->removed_from == store->removed_to || noted) {
        if (!noted)
            write_note(store);
        manifest_text_deinit(&store->pending);
        id_map_deinit(&store->blocked);
        store->npending = 0;
        packs_let_go(store);
        return 0;
    }
    store->redo_removed = true;
    return run_lines(store, NULL, err);
}

bool finish_is_blocked(const struct store *store, uint64_t dir_hash)
{
    return id_map_has(&store->blocked, blocked_key(dir_hash));
}

/* ---- filters ------------------------------------------------------------------------------------------------------- */

int finish_filter(struct store *store, const struct manifest_filter *filter, uint64_t generation, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    struct path from, to;

    for (unsigned i = 0; i < filter->nlayers; i++) {
        if (filter->layers[i].generation != generation)
            continue;
        int rc = path_temp(store, &from, filter->dir, i, generation, err);
        if (rc == 0)
            rc = path_final(store, &to, filter->dir, i, err);
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

static int finish_entry(struct store *store, struct record_reader *reader, const struct index_entry *entry, bool sync,
                        struct errbuf *err)
{
    const struct manifest_filter *filter;
    int rc = record_read(reader, index_offset(entry), &filter, err);

    if (rc != 0)
        return rc;
    if (finish_is_blocked(store, entry->dir_hash)) {
        errbuf_set(err, "%s/filters/%s holds files that could not be moved away", store->dir, filter->dir);
        return -EBUSY;
    }
    rc = finish_filter(store, filter, newest_generation(filter), err);
    return rc == 0 && sync ? place_sync(store, filter->dir, false, err) : rc;
}

/* Entries of one run, dealt out to threads: what a rename costs is the kernel's time, and directories are independent. */
struct placing {
    struct store *store;
    unsigned flag;
    bool sync;
    atomic_size_t next; /* entry to be looked at */
    pthread_mutex_t mutex;
    bool failed; /* and `first` says how */
    struct errbuf first;
};

static void note_unplaced(struct placing *placing, const struct errbuf *reason)
{
    pthread_mutex_lock(&placing->mutex);
    if (!placing->failed)
        placing->first = *reason;
    placing->failed = true;
    pthread_mutex_unlock(&placing->mutex);
}

static void place_entry(struct placing *placing, struct record_reader *reader, struct index_entry *entry)
{
    struct errbuf reason;

    if (!(entry->flags & placing->flag) || (entry->flags & INDEX_QUARANTINED))
        return;
    int rc = -ENOMEM;
    if (reader)
        rc = finish_entry(placing->store, reader, entry, placing->sync, &reason);
    else
        errbuf_set(&reason, "out of memory");
    entry->flags &= (uint16_t)~INDEX_UNPLACED;
    if (rc != 0) {
        entry->flags |= INDEX_UNPLACED;
        note_unplaced(placing, &reason);
    }
}

static void *place_entries(void *arg)
{
    struct placing *placing = arg;
    struct store_index *index = &placing->store->index;
    struct record_reader reader;
    int rc = record_reader_init(&reader, placing->store->fs, placing->store->manifest_fd);

    for (;;) {
        size_t from = atomic_fetch_add(&placing->next, PLACE_AT_ONCE);
        if (from >= index->count)
            break;
        for (size_t i = from; i < index->count && i < from + PLACE_AT_ONCE; i++)
            place_entry(placing, rc == 0 ? &reader : NULL, &index->entries[i]);
    }
    record_reader_deinit(&reader);
    return NULL;
}

void finish_entries(struct store *store, unsigned flag, bool sync_all)
{
    struct placing placing = {.store = store, .flag = flag, .sync = !sync_all, .mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[PLACE_THREADS];
    unsigned nthreads = 0;

    /* One thread fewer than there may be does as well, only later. */
    while (store->index.count >= PLACE_MANY && nthreads < PLACE_THREADS &&
           pthread_create(&threads[nthreads], NULL, place_entries, &placing) == 0)
        nthreads++;
    place_entries(&placing);
    for (unsigned i = 0; i < nthreads; i++)
        pthread_join(threads[i], NULL);
    store->nunplaced = 0;
    for (size_t i = 0; i < store->index.count; i++)
        store->nunplaced += (store->index.entries[i].flags & INDEX_UNPLACED) != 0;
    if (store->nunplaced > 0)
        store_report(store, STORE_WARNING,
                     "the files of %llu filters are saved, but not in their place yet: %s; this will be tried again",
                     (unsigned long long)store->nunplaced, placing.failed ? placing.first.text : "they are quarantined");
    int rc = sync_all ? store->fs->sync_all(store->fs->ctx, store->lock_fd) : 0;
    if (rc != 0) /* nothing is lost: under one of the two names they are found */
        store_report(store, STORE_WARNING, "%s: cannot sync: %s", store->dir, strerror(-rc));
}

int finish_again(struct store *store, struct errbuf *err)
{
    int rc = 0;

    if (store->redo_removed) {
        rc = finish_removed(store, err);
    } else if (store->npending > 0) {
        struct manifest_text lines = store->pending;
        store->pending = (struct manifest_text){0};
        rc = run_lines(store, &lines, err);
        if (rc != 0)
            store->redo_removed = true;
        manifest_text_deinit(&lines);
    }
    if (rc == 0 && store->nunplaced > 0)
        finish_entries(store, INDEX_UNPLACED, false);
    return rc;
}
