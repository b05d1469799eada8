/* Opening and closing a data directory. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "filterdb.h"
#include "lock.h"
#include "manifest_file.h"
#include "name_code.h"
#include "store_internal.h"
#include "store_save.h"
#include "errbuf.h"

#define SEEN_BITS (UINT64_C(1) << 23) /* 1 MiB; ids count up, so that few filters share a bit */

struct opening {
    struct store *store;
    struct record_reader reader;
    uint64_t *seen; /* a bit for each id, by its lowest bits */
};

static int damaged(struct errbuf *err, const char *what, uint64_t number)
{
    return errbuf_fail(err, MANIFEST_DAMAGED, "%s %" PRIu64, what, number);
}

/* Two filters with one file would both own it. */
static int name_files(struct store *store, const struct manifest_filter *filter, struct errbuf *err)
{
    for (unsigned i = 0; i < filter->nlayers; i++) {
        const struct manifest_layer *layer = &filter->layers[i];
        store->opened.bytes += filterdb_bytes(layer->shape.nwords);
        if (filter->pack)
            continue;
        if (id_map_has(&store->opened.named, layer->file))
            return damaged(err, "a second layer in the file with the number", layer->file);
        if (id_map_set(&store->opened.named, layer->file, (void *)((uintptr_t)filter->variant + 1)) != 0)
            return -ENOMEM;
    }
    return 0;
}

/* The bits spare most filters a look into the table of a million, which is not in the cache. */
static int expect_new_id(struct opening *opening, uint64_t id, struct errbuf *err)
{
    struct store_index *index = &opening->store->committed.index;
    uint64_t *word = &opening->seen[id % SEEN_BITS / 64], bit = UINT64_C(1) << id % 64;

    if (*word & bit) {
        TRY(index_map(index));
        if (index_get(index, id))
            return damaged(err, "a second filter with the id", id);
    }
    *word |= bit;
    return 0;
}

static int on_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    struct opening *opening = ctx;
    struct store *store = opening->store;
    struct index_entry entry = {
        .id = filter->id,
        .facts = index_facts(&store->committed.index, filter->name, filter->name_len, filter->expires_ms),
        .offset = filter->text_offset,
        .len = (uint32_t)filter->text_len,
    };

    int rc = expect_new_id(opening, filter->id, err);
    STEP(rc, name_files(store, filter, err));
    if (rc == 0 && filter->pack)
        rc = packs_entry(store, filter, &entry);
    STEP(rc, index_add(&store->committed.index, &entry));
    if (rc < 0)
        errbuf_set(err, "%s", fs_error_text(rc));
    return rc;
}

/* Undoes the record before: its files are not in use any more. */
static int on_gone(void *ctx, uint64_t id, struct errbuf *err)
{
    struct opening *opening = ctx;
    const struct manifest_filter *filter;
    struct index_entry *entry;

    if (index_map(&opening->store->committed.index) != 0)
        return errbuf_fail(err, -ENOMEM, "out of memory");
    entry = index_get(&opening->store->committed.index, id);
    if (!entry)
        return damaged(err, "no filter before this line has the id", id);
    TRY(record_read(&opening->reader, entry->offset, &filter, err));
    for (unsigned i = 0; i < filter->nlayers; i++) {
        opening->store->opened.bytes -= filterdb_bytes(filter->layers[i].shape.nwords);
        if (!filter->pack)
            id_map_remove(&opening->store->opened.named, filter->layers[i].file);
    }
    entry->flags |= INDEX_DROPPED;
    return 0;
}

/* Leaves out the entries that are gone; their ids stay used. */
static uint64_t settle_index(struct store_index *index)
{
    uint64_t max_id = 0;
    size_t kept = 0;

    index_unmap(index);
    for (size_t i = 0; i < index->count; i++) {
        max_id = index->entries[i].id > max_id ? index->entries[i].id : max_id;
        if (!(index->entries[i].flags & INDEX_DROPPED))
            index->entries[kept++] = index->entries[i];
    }
    index->count = kept;
    return max_id;
}

static int check_numbers(uint64_t max_id, const struct manifest_save *save, struct errbuf *err)
{
    if (max_id >= save->next_id)
        return errbuf_fail(err, MANIFEST_DAMAGED, "next-id=%" PRIu64 " is not above the filter id %" PRIu64,
                           save->next_id, max_id);
    return manifest_check_numbers(save, err) == 0 ? 0 : MANIFEST_DAMAGED;
}

static int read_manifest(struct store *store, struct errbuf *err)
{
    struct opening opening = {.store = store, .seen = calloc(SEEN_BITS / 64, sizeof(*opening.seen))};
    const struct manifest_sink sink = {.on_filter = on_filter, .on_gone = on_gone, .ctx = &opening};
    struct manifest_parser parser;
    int rc = record_reader_init(&opening.reader, store->fs, store->committed.fd);
    int parser_rc = manifest_parser_init(&parser, &sink);

    STEP(rc, parser_rc);
    if (rc == 0 && !opening.seen)
        rc = -ENOMEM;
    if (rc != 0)
        errbuf_set(err, "out of memory");
    else
        rc = manifest_file_parse(store->fs, store->committed.fd, &parser, err);
    uint64_t max_id = settle_index(&store->committed.index);
    STEP(rc, check_numbers(max_id, &parser.save, err));
    if (rc == 0) {
        store->committed.save = parser.save;
        store->committed.end_offset = parser.end_offset;
        store->committed.digest = parser.digest;
        atomic_store(&store->number, parser.save.number);
        atomic_store(&store->next_id, parser.save.next_id);
    }
    manifest_parser_deinit(&parser);
    record_reader_deinit(&opening.reader);
    free(opening.seen);
    return rc == MANIFEST_DAMAGED ? STORE_DAMAGED : rc == MANIFEST_NEWER ? STORE_NEWER : rc;
}

/* The first MANIFEST of a directory is written like every later one: whole or not at all. */
static int write_first_manifest(struct store *store, const char *path, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    struct path draft;
    struct buf text;
    TRY(path_root(store, &draft, "MANIFEST.new", err));
    buf_init(&text, SIZE_MAX);
    manifest_format_magic(&text);
    manifest_format_save(&text, &(struct manifest_save){.next_id = 1});
    manifest_format_end(&text, 0, XXH3_64bits(text.data, buf_len(&text)));
    int rc = buf_failed(&text) ? -ENOMEM : fs_write_file(fs, draft.text, text.data, buf_len(&text));
    STEP(rc, fs->rename(fs->ctx, draft.text, path));
    STEP(rc, fs->sync_dir(fs->ctx, store->dir));
    if (rc != 0)
        errbuf_set(err, "%s: cannot write: %s", draft.text, fs_error_text(rc));
    buf_deinit(&text);
    return rc;
}

static int visit_any(void *ctx, const char *name)
{
    struct errbuf *first = ctx;

    return errbuf_fail(first, 1, "%s", name);
}

/* One sync must cover everything, and links must reach. */
static int check_devices(struct store *store, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    struct fs_stat root, filters;
    struct path path;
    TRY(path_root(store, &path, "filters", err));
    int rc = fs->stat(fs->ctx, path.text, &filters);
    if (rc == -ENOENT) /* then every filter is quarantined; that report is more useful */
        filters.kind = FS_OTHER;
    else if (rc != 0)
        goto failed;
    rc = path_root(store, &path, "LOCK", err);
    STEP(rc, fs->stat(fs->ctx, path.text, &root));
    if (rc != 0)
        goto failed;
    if (filters.kind != FS_DIRECTORY || filters.device == root.device)
        return 0;
    return errbuf_fail(err, -EXDEV, "%s/filters is on another file system than the rest of the data directory",
                       store->dir);
failed:
    return errbuf_fail(err, rc, "%s: %s", path.text, fs_error_text(rc));
}

/* Also for an existing directory: the process that made it may have died before this. */
static int sync_parent(struct store *store, struct errbuf *err)
{
    struct path path;
    TRY(path_root(store, &path, "..", err));
    int rc = store->fs->sync_dir(store->fs->ctx, path.text);
    if (rc == -EACCES) {
        store_report(store, STORE_WARNING, "%s cannot be read, so that the data directory in it cannot be synced",
                     path.text);
        return 0;
    }
    return rc == 0 ? 0 : errbuf_fail(err, rc, "%s: cannot sync: %s", path.text, fs_error_text(rc));
}

/* Without a MANIFEST this directory must be empty. 0 or -errno of the listing. */
static int expect_nothing_in(struct store *store, const char *name, const char *manifest, struct path *path_out,
                             struct errbuf *err)
{
    struct errbuf first;
    int rc = path_root(store, path_out, name, err);

    STEP(rc, store->fs->list(store->fs->ctx, path_out->text, visit_any, &first));
    if (rc == 1)
        return errbuf_fail(
            err, STORE_DAMAGED,
            "%s: missing, but %s is not empty ('%s'): this is a data directory that has lost its MANIFEST, or none "
            "of ours",
            manifest, path_out->text, first.text);
    return rc;
}

static int make_tree(struct store *store, const char *manifest, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    struct path filters, log;
    int rc = expect_nothing_in(store, "log", manifest, &log, err);

    if (rc < 0 && rc != -ENOENT)
        errbuf_set(err, "%s: %s", log.text, strerror(-rc));
    if (rc != 0 && rc != -ENOENT)
        return rc;
    rc = expect_nothing_in(store, "filters", manifest, &filters, err);
    if (rc == STORE_DAMAGED)
        return rc;
    if (rc == -ENOENT)
        rc = fs->mkdir(fs->ctx, filters.text);
    if (rc != 0)
        return errbuf_fail(err, rc, "%s: %s", filters.text, fs_error_text(rc));
    rc = sync_parent(store, err);
    return rc != 0 ? rc : write_first_manifest(store, manifest, err);
}

static int open_manifest(struct store *store, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    struct path path;
    TRY(path_root(store, &path, "MANIFEST", err));
    int rc = fs->open(fs->ctx, path.text, FS_READ, &store->committed.fd);
    if (rc == -ENOENT) {
        rc = make_tree(store, path.text, err);
        if (rc != 0)
            return rc;
        rc = fs->open(fs->ctx, path.text, FS_READ, &store->committed.fd);
    }
    if (rc != 0)
        return errbuf_fail(err, rc, "%s: cannot open: %s", path.text, fs_error_text(rc));
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

    if (rc != 0 && rc != -EEXIST)
        return errbuf_fail(err, rc, "%s: cannot make the data directory: %s", store->dir, fs_error_text(rc));
    TRY(path_root(store, &path, "LOCK", err));
    rc = fs->lock(fs->ctx, path.text, &store->lock_fd, &owner);
    if (rc == -EWOULDBLOCK) {
        if (owner > 0)
            errbuf_set(err, "%s: the data directory is in use by process %ld", path.text, (long)owner);
        else
            errbuf_set(err, "%s: the data directory is in use by another process", path.text);
        return STORE_LOCKED;
    }
    return rc == 0 ? 0 : errbuf_fail(err, rc, "%s: cannot lock: %s", path.text, fs_error_text(rc));
}

/* The process that renamed the MANIFEST may have been killed before this. Otherwise changes of the files that it names
 * could be on the disk before the MANIFEST is. */
static int sync_manifest(struct store *store, struct errbuf *err)
{
    int rc = store->fs->sync_dir(store->fs->ctx, store->dir);

    return rc == 0 ? 0 : errbuf_fail(err, rc, "%s: cannot sync: %s", store->dir, fs_error_text(rc));
}

/* NULL: no memory. */
static struct store *store_new(const char *dir, const struct store_options *options, struct errbuf *err)
{
    struct store *store = calloc(1, sizeof(*store));

    if (!store || !(store->dir = strdup(dir))) {
        free(store);
        return errbuf_fail(err, NULL, "out of memory");
    }
    store->fs = options && options->fs ? options->fs : fsops_posix();
    store->report = options ? options->report : NULL;
    store->report_ctx = options ? options->report_ctx : NULL;
    store->committed.index.seed = options ? options->hash_seed : 0;
    store->lock_fd = -1;
    store->committed.fd = -1;
    lock_init(&store->lock, RANK_STORE);
    lock_rw_init(&store->reading, RANK_STORE_INDEX);
    return store;
}

int store_visit(const char *dir, const struct store_options *options, const struct manifest_sink *sink,
                struct manifest_save *save_out, struct errbuf *err)
{
    struct store *store = store_new(dir, options, err);
    const struct manifest_filter *filter;
    struct record_reader reader = {0};
    struct path path;

    if (!store)
        return -ENOMEM;
    int rc = path_root(store, &path, "MANIFEST", err);
    if (rc == 0 && (rc = store->fs->open(store->fs->ctx, path.text, FS_READ, &store->committed.fd)) != 0)
        errbuf_set(err, "%s", fs_error_text(rc));
    STEP(rc, read_manifest(store, err));
    if (rc != 0)
        errbuf_prefix(err, "%s", path.text);
    if (save_out)
        *save_out = store->committed.save;
    STEP(rc, sink ? record_reader_init(&reader, store->fs, store->committed.fd) : sweep_find_mark(store, err));
    for (size_t i = 0; sink && rc == 0 && i < store->committed.index.count; i++) {
        rc = record_read(&reader, store->committed.index.entries[i].offset, &filter, err);
        STEP(rc, sink->on_filter(sink->ctx, filter, err));
    }
    record_reader_deinit(&reader);
    store_close(store);
    return rc;
}

int store_open(const char *dir, const struct store_options *options, struct store **store_out, struct errbuf *err)
{
    struct store *store = store_new(dir, options, err);

    if (!store)
        return -ENOMEM;
    int rc = take_lock(store, err);
    STEP(rc, open_manifest(store, err));
    STEP(rc, sweep_find_mark(store, err));
    STEP(rc, check_devices(store, err));
    STEP(rc, sync_manifest(store, err));
    if (rc != 0) {
        store_close(store);
        return rc;
    }
    struct path draft; /* of an interrupted save, which nobody reads and the next one replaces */
    if (path_root(store, &draft, "MANIFEST.new", NULL) == 0)
        (void)store->fs->unlink(store->fs->ctx, draft.text);
    packs_count(store);
    packs_measure(store);
    *store_out = store;
    return 0;
}

void committed_deinit(const struct store *store, struct committed *committed)
{
    if (committed->fd >= 0)
        store->fs->close(store->fs->ctx, committed->fd);
    index_deinit(&committed->index);
}

void store_close(struct store *store)
{
    if (!store)
        return;
    committed_deinit(store, &store->committed);
    if (store->lock_fd >= 0)
        store->fs->close(store->fs->ctx, store->lock_fd);
    packs_deinit(store);
    id_map_deinit(&store->opened.named);
    file_list_deinit(&store->doubted);
    fates_deinit(store);
    lock_deinit(&store->lock);
    lock_rw_deinit(&store->reading);
    free(store->dir);
    free(store);
}

/* ---- reports ---- */

void store_report(struct store *store, enum store_severity severity, const char *fmt, ...)
{
    struct errbuf text = {0};
    char raw[ERRBUF_SIZE];
    va_list args;

    if (!store->report)
        return;
    va_start(args, fmt);
    vsnprintf(raw, sizeof(raw), fmt, args);
    va_end(args);
    errbuf_set(&text, "%s", raw);
    lock_take(&store->lock);
    store->report(store->report_ctx, severity, text.text);
    lock_give(&store->lock);
}

struct shown_name show_name(const char *name, size_t len)
{
    struct shown_name shown;
    size_t n = 0;

    for (size_t i = 0; i < len && n < 60; i++) {
        if (name[i] == '.') {
            shown.text[n++] = '.';
            continue;
        }
        name_encode(name + i, 1, shown.text + n);
        n += name_encoded_len(name + i, 1);
    }
    strcpy(shown.text + n, n >= 60 ? "..." : "");
    return shown;
}

/* ---- answers ---- */

uint64_t store_next_id(const struct store *store)
{
    return atomic_load(&store->next_id);
}

uint64_t store_number(const struct store *store)
{
    return atomic_load(&store->number);
}

uint64_t store_opened_bytes(const struct store *store)
{
    return store->opened.bytes;
}

struct store_checkpoint store_checkpoint(const struct store *store)
{
    return (struct store_checkpoint){store->committed.save.log, store->committed.save.control,
                                     store->committed.save.frame, store->committed.save.accepted,
                                     store->committed.save.databases};
}

/* Records are read one after another: this call is rare. */
int store_find(struct store *store, const char *name, size_t name_len, struct errbuf *err)
{
    struct record_reader reader;
    bool found = false;
    int rc = record_reader_init(&reader, store->fs, store->committed.fd);

    if (rc != 0)
        errbuf_set(err, "out of memory");
    for (size_t i = 0; i < store->committed.index.count && rc == 0 && !found; i++) {
        const struct manifest_filter *filter;
        rc = record_read(&reader, store->committed.index.entries[i].offset, &filter, err);
        found = rc == 0 && filter->name_len == name_len && memcmp(filter->name, name, name_len) == 0;
    }
    record_reader_deinit(&reader);
    return rc != 0 || found ? rc : STORE_NOT_FOUND;
}

int store_still_ours(struct store *store, struct errbuf *err)
{
    struct path path;
    int rc = path_root(store, &path, "LOCK", err);

    STEP(rc, store->fs->is_at(store->fs->ctx, store->lock_fd, path.text));
    if (rc == -ESTALE)
        errbuf_set(err,
                   "%s: not the file that this process has locked: the data directory has been moved, removed or "
                   "replaced, and may be another process's now",
                   path.text);
    else if (rc != 0)
        errbuf_set(err, "%s: %s", path.text, fs_error_text(rc));
    return rc;
}
