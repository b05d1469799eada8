/* Opening and closing a data directory, and what the other parts share. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_internal.h"

/* ---- paths --------------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static int path_format(struct path *path, struct errbuf *err, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int len = vsnprintf(path->text, sizeof(path->text), fmt, args);
    va_end(args);
    if (len >= 0 && (size_t)len < sizeof(path->text))
        return 0;
    errbuf_set(err, "the path of the data directory is too long");
    return -ENAMETOOLONG;
}

int path_root(const struct store *store, struct path *path, const char *name, struct errbuf *err)
{
    return path_format(path, err, "%s/%s", store->dir, name);
}

int path_dir(const struct store *store, struct path *path, const char *dir, struct errbuf *err)
{
    return path_format(path, err, "%s/filters/%s", store->dir, dir);
}

int path_final(const struct store *store, struct path *path, const char *dir, unsigned layer, struct errbuf *err)
{
    return path_format(path, err, "%s/filters/%s/%u-Filter.db", store->dir, dir, layer);
}

int path_temp(const struct store *store, struct path *path, const char *dir, unsigned layer, uint64_t generation,
              struct errbuf *err)
{
    return path_format(path, err, "%s/filters/%s/%u-Filter.db.%" PRIu64, store->dir, dir, layer, generation);
}

bool file_name_parse(const char *name, struct file_name *out)
{
    char canonical[64];
    char *end;

    if (name[0] < '0' || name[0] > '9')
        return false;
    unsigned long layer = strtoul(name, &end, 10);
    if (layer >= BLOOM_MAX_LAYERS || strncmp(end, "-Filter.db", 10) != 0)
        return false;
    *out = (struct file_name){.layer = (unsigned)layer, .temporary = end[10] == '.'};
    if (out->temporary) {
        out->generation = strtoull(end + 11, NULL, 10);
        snprintf(canonical, sizeof(canonical), "%lu-Filter.db.%" PRIu64, layer, out->generation);
    } else {
        snprintf(canonical, sizeof(canonical), "%lu-Filter.db", layer);
    }
    return strcmp(name, canonical) == 0;
}

/* ---- small things -------------------------------------------------------------------------------------------------- */

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
    pthread_mutex_lock(&store->mutex);
    store->report(store->report_ctx, severity, text.text);
    pthread_mutex_unlock(&store->mutex);
}

int id_list_add(struct id_list *list, uint64_t id)
{
    if (list->count == list->size) {
        size_t size = list->size ? 2 * list->size : 16;
        uint64_t *ids = realloc(list->ids, size * sizeof(*ids));
        if (!ids)
            return -ENOMEM;
        list->ids = ids;
        list->size = size;
    }
    list->ids[list->count++] = id;
    return 0;
}

bool id_list_has(const struct id_list *list, uint64_t id)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->ids[i] == id)
            return true;
    }
    return false;
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

int entry_is_dir(struct record_reader *reader, const struct index_entry *entry, const char *dir, struct errbuf *err)
{
    const struct manifest_filter *filter;
    char entry_dir[NAME_DIR_MAX + 1];
    int rc = record_read(reader, index_offset(entry), &filter, err);

    if (rc != 0)
        return rc;
    name_dir(filter->name, filter->name_len, entry_dir);
    return strcmp(dir, entry_dir) == 0;
}

/* ---- opening ------------------------------------------------------------------------------------------------------- */

struct opening {
    struct store *store;
    struct record_reader reader;
    bool has_removed;
};

static int on_filter(void *ctx, const struct manifest_filter *filter, uint64_t offset, struct errbuf *err)
{
    struct opening *opening = ctx;
    struct store *store = opening->store;
    struct index_entry entry = {.id = filter->id, .nlayers = (uint8_t)filter->nlayers};
    char dir[NAME_DIR_MAX + 1];

    name_dir(filter->name, filter->name_len, dir);
    entry.dir_hash = index_dir_hash(dir, strlen(dir));
    index_set_offset(&entry, offset);
    if (index_find_id(&store->index, filter->id) != INDEX_NONE) {
        errbuf_set(err, "a second filter with the id %" PRIu64, filter->id);
        return MANIFEST_DAMAGED;
    }
    uint32_t number = INDEX_NONE;
    while ((number = index_find_dir(&store->index, entry.dir_hash, number)) != INDEX_NONE) {
        int same = entry_is_dir(&opening->reader, &store->index.entries[number], dir, err);
        if (same < 0)
            return same;
        if (same) {
            errbuf_set(err, "a second filter in the directory %s", dir);
            return MANIFEST_DAMAGED;
        }
    }
    int rc = index_add(&store->index, &entry);
    if (rc != 0)
        errbuf_set(err, "%s", strerror(-rc));
    return rc;
}

static int on_removed(void *ctx, const struct manifest_removed *removed, uint64_t offset, struct errbuf *err)
{
    struct opening *opening = ctx;

    (void)removed;
    (void)err;
    if (!opening->has_removed)
        opening->store->removed_from = offset;
    opening->has_removed = true;
    return 0;
}

static int check_ids(const struct store *store, const struct manifest_parser *parser, struct errbuf *err)
{
    for (size_t i = 0; i < store->index.count; i++) {
        if (store->index.entries[i].id >= parser->next_id) {
            errbuf_set(err, "line 2: next-id=%" PRIu64 " is not above the filter id %" PRIu64, parser->next_id,
                       store->index.entries[i].id);
            return MANIFEST_DAMAGED;
        }
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
        rc = check_ids(store, &parser, err);
    index_unmap(&store->index);
    if (rc == 0) {
        store->generation = parser.generation;
        atomic_store(&store->next_id, parser.next_id);
        atomic_store(&store->count, store->index.count);
        store->removed_to = parser.end_offset;
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
    rc = manifest_format_header(&text, 0, 1);
    if (rc == 0)
        rc = manifest_format_end(&text, 0, 0, XXH3_64bits(text.ptr, text.len));
    if (rc == 0)
        rc = fs->open(fs->ctx, draft.text, FS_WRITE | FS_CREATE | FS_TRUNCATE, &fd);
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

static int make_tree(struct store *store, const char *manifest, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    struct path filters;
    struct errbuf first;
    int rc = path_root(store, &filters, "filters", err);

    if (rc != 0)
        return rc;
    rc = fs->list(fs->ctx, filters.text, visit_any, &first);
    if (rc == 1) {
        errbuf_set(err,
                   "%s: missing, but %s is not empty ('%s'): this is a data directory that has lost its MANIFEST, or none "
                   "of ours",
                   manifest, filters.text, first.text);
        return STORE_DAMAGED;
    }
    if (rc == -ENOENT)
        rc = fs->mkdir(fs->ctx, filters.text);
    if (rc != 0) {
        errbuf_set(err, "%s: %s", filters.text, strerror(-rc));
        return rc;
    }
    return write_first_manifest(store, manifest, err);
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

    if (rc == 0) {
        rc = path_root(store, &path, "..", err);
        if (rc == 0)
            rc = fs->sync_dir(fs->ctx, path.text);
    }
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

int store_open(const char *dir, const struct store_options *options, struct store **store_out, struct errbuf *err)
{
    struct store *store = calloc(1, sizeof(*store));
    struct errbuf reason;
    int rc;

    if (!store || !(store->dir = strdup(dir))) {
        free(store);
        errbuf_set(err, "out of memory");
        return -ENOMEM;
    }
    store->fs = options && options->fs ? options->fs : fsops_posix();
    store->report = options ? options->report : NULL;
    store->report_ctx = options ? options->report_ctx : NULL;
    store->lock_fd = -1;
    store->manifest_fd = -1;
    pthread_mutex_init(&store->mutex, NULL);

    rc = take_lock(store, err);
    if (rc == 0)
        rc = open_manifest(store, err);
    if (rc != 0) {
        store_close(store);
        return rc;
    }
    remove_drafts(store);
    if (finish_removed(store, &reason) != 0) {
        store->unfinished = true;
        store_report(store, STORE_WARNING, "files of removed filters: %s; this will be tried again", reason.text);
    }
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
    free(store->quarantined.ids);
    free(store->forgotten.ids);
    pthread_mutex_destroy(&store->mutex);
    free(store->dir);
    free(store);
}

uint64_t store_next_id(const struct store *store)
{
    return atomic_load(&store->next_id);
}

size_t store_count(const struct store *store)
{
    return atomic_load(&store->count);
}

int store_find(struct store *store, const char *name, size_t name_len, uint64_t *id_out, struct errbuf *err)
{
    struct record_reader reader = {0};
    char dir[NAME_DIR_MAX + 1];
    int rc = index_map(&store->index);
    uint32_t number = INDEX_NONE;

    if (rc == 0)
        rc = record_reader_init(&reader, store->fs, store->manifest_fd);
    if (rc != 0) {
        errbuf_set(err, "out of memory");
        goto out;
    }
    name_dir(name, name_len, dir);
    rc = STORE_NOT_FOUND;
    while ((number = index_find_dir(&store->index, index_dir_hash(dir, strlen(dir)), number)) != INDEX_NONE) {
        const struct manifest_filter *filter;
        int read_rc = record_read(&reader, index_offset(&store->index.entries[number]), &filter, err);

        if (read_rc != 0) {
            rc = read_rc;
            break;
        }
        if (filter->name_len == name_len && memcmp(filter->name, name, name_len) == 0) {
            if (id_out)
                *id_out = filter->id;
            rc = 0;
            break;
        }
    }
out:
    index_unmap(&store->index);
    record_reader_deinit(&reader);
    return rc;
}

int store_forget(struct store *store, uint64_t id)
{
    int rc = STORE_NOT_FOUND;

    pthread_mutex_lock(&store->mutex);
    if (id_list_has(&store->quarantined, id) && !id_list_has(&store->forgotten, id))
        rc = id_list_add(&store->forgotten, id);
    pthread_mutex_unlock(&store->mutex);
    return rc;
}
