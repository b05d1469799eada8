/* Files in `filters`: their paths, how they come and go. None is ever overwritten, renamed or written to again. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "alloc.h"
#include "lock.h"
#include "store_internal.h"
#include "errbuf.h"

/* The most names that other programs may have taken, until a free number is found. */
#define MAX_TAKEN 100

/* No sequence of saves can have reached it: a file with such a number was made by hand. */
#define SANE_NUMBER (MANIFEST_MAX_NUMBER / 4)

/* ---- paths ---- */

int path_root(const struct store *store, struct path *path, const char *name, struct errbuf *err)
{
    return path_format(path, err, "%s/%s", store->dir, name);
}

int path_file(const struct store *store, struct path *path, const struct file_name *name, struct errbuf *err)
{
    char file[FILE_NAME_SIZE];

    file_name_format(name, file);
    return path_format(path, err, "%s/" FILTERS_DIR "/%s", store->dir, file);
}

/* ---- lists ---- */

int file_list_add(struct file_list *list, const struct file_name *name)
{
    if (GROW(list->items, list->count, list->size) != 0)
        return -ENOMEM;
    list->items[list->count++] = *name;
    return 0;
}

void file_list_deinit(struct file_list *list)
{
    free(list->items);
    *list = (struct file_list){0};
}

static bool has_file(const struct manifest_filter *filter, uint64_t number)
{
    for (unsigned i = 0; filter && !filter->pack && i < filter->nlayers; i++)
        if (filter->layers[i].file == number)
            return true;
    return false;
}

int store_list_files(struct file_list *list, const struct manifest_filter *filter, const struct manifest_filter *but)
{
    int rc = 0;

    for (unsigned i = 0; rc == 0 && !filter->pack && i < filter->nlayers; i++) {
        const struct file_name name = manifest_layer_file(filter, i);
        if (!has_file(but, name.number))
            rc = file_list_add(list, &name);
    }
    return rc;
}

/* ---- making ---- */

uint64_t store_new_number(struct store *store)
{
    return atomic_fetch_add(&store->number, 1) + 1;
}

static bool store_pass_number(struct store *store, uint64_t number)
{
    uint64_t now = atomic_load(&store->number);

    if (number > SANE_NUMBER)
        return false;
    while (now < number && !atomic_compare_exchange_weak(&store->number, &now, number))
        continue;
    return true;
}

int store_put_layer(struct store *store, struct layer_io *io, struct manifest_filter *record, unsigned i,
                    const struct bloom_filter *filter, bool sync, struct file_list *made, struct errbuf *err)
{
    struct manifest_layer *layer = &record->layers[i];
    struct bloom_layer_view view;
    int rc = -EEXIST;

    bloom_filter_layer(filter, i, &view);
    record->variant = (enum bloom_variant)view.shape.variant;
    for (int taken = 0; rc == -EEXIST && taken < MAX_TAKEN; taken++) {
        const struct file_name name = {FILE_LAYER, record->variant, store_new_number(store)};
        struct path path;
        *layer = (struct manifest_layer){.shape = view.shape, .file = name.number, .turn = bloom_layer_turn(&view)};
        rc = path_file(store, &path, &name, err);
        if (rc == 0 && (rc = file_list_add(made, &name)) != 0)
            errbuf_set(err, "out of memory");
        STEP(rc, layer_write(io, path.text, &view, sync, &layer->xxh3, err));
        if (rc == -EEXIST)
            made->count--;
    }
    if (rc != 0)
        return rc;
    /* Counted after the bits were read. Items added meanwhile may be counted without their bits, but every bit is
     * counted. So a reloaded filter never accepts more items than its rate allows. */
    bloom_filter_layer(filter, i, &view);
    layer->items = view.ordinal;
    return 0;
}

int store_sync_filters(struct store *store, struct errbuf *err)
{
    struct path path;
    int rc = path_root(store, &path, FILTERS_DIR, err);

    if (rc == 0 && (rc = store->fs->sync_dir(store->fs->ctx, path.text)) != 0)
        errbuf_set(err, "%s: cannot sync: %s", path.text, fs_error_text(rc));
    return rc;
}

/* ---- removing ---- */

void store_remove(struct store *store, const struct file_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        struct path path;
        int rc = path_file(store, &path, &list->items[i], NULL);

        STEP(rc, store->fs->unlink(store->fs->ctx, path.text));
        if (rc != 0 && rc != -ENOENT && rc != -ENOTDIR)
            store_report(store, STORE_WARNING, "%s: cannot be removed: %s; the next start tries again", path.text,
                         fs_error_text(rc));
    }
}

/* ---- files that the MANIFEST does not name ----
 *
 * A file with a number up to the MANIFEST's has been superseded; one with a higher number is the rest of a save that
 * did not end. Both are removed by a start. But if an operator has put back an older MANIFEST, the higher numbers are
 * the newest filters. So a committed save leaves a mark, `<number>.saved`, which replaces the previous mark, and a
 * start refuses a mark newer than the MANIFEST. */

static int visit_mark(void *ctx, const char *name)
{
    struct store *store = ctx;
    struct file_name file;

    if (file_name_parse(name, &file) && file.kind == FILE_SAVED && file.number > store->saved_mark)
        store->saved_mark = file.number;
    return 0;
}

int sweep_find_mark(struct store *store, struct errbuf *err)
{
    struct path path;
    int rc = path_root(store, &path, FILTERS_DIR, err);

    STEP(rc, store->fs->list(store->fs->ctx, path.text, visit_mark, store));
    if (rc == -ENOENT) /* then every filter is quarantined; that report is more useful */
        return 0;
    if (rc != 0)
        return errbuf_fail(err, rc, "%s: cannot read the directory: %s", path.text, fs_error_text(rc));
    if (store->saved_mark <= store->committed.save.number)
        return 0;
    return errbuf_fail(
        err, STORE_DAMAGED,
        "%s/MANIFEST: an older one has been put here: it is of save %" PRIu64 ", and %s/%" PRIu64
        ".saved says that a later one took place. Put the newest one here (of a copy that was taken while a "
        "daemon was saving: copy again); or delete %s/*.saved to go on without what was saved since: the start then "
        "removes the files of it",
        store->dir, store->committed.save.number, FILTERS_DIR, store->saved_mark, FILTERS_DIR);
}

void sweep_set_mark(struct store *store)
{
    const struct fsops *fs = store->fs;
    const struct file_name before = {.kind = FILE_SAVED, .number = store->saved_mark};
    const struct file_name now = {.kind = FILE_SAVED, .number = store->committed.save.number};
    struct path path;
    int fd;

    /* Not synced, and no error of the save: only an older MANIFEST that is put back would go unnoticed. */
    if (now.number == 0 || now.number == before.number || path_file(store, &path, &now, NULL) != 0 ||
        fs->open(fs->ctx, path.text, FS_WRITE | FS_CREATE, &fd) != 0)
        return;
    fs->close(fs->ctx, fd);
    if (before.number && path_file(store, &path, &before, NULL) == 0)
        (void)fs->unlink(fs->ctx, path.text);
    store->saved_mark = now.number;
}

/* ---- files in `filters` ---- */

struct sweep {
    struct store *store;
    struct store_load_summary *counts;
    struct id_map spared; /* numbers that records of the log have; no values */
};

static bool is_named(const struct sweep *sweep, const struct file_name *file)
{
    const struct store *store = sweep->store;

    if (file->kind == FILE_SAVED)
        return file->number == store->saved_mark;
    if (file->kind == FILE_PACK)
        return id_map_has(&store->packs.slots, file->number);
    return (uintptr_t)id_map_get(&store->opened.named, file->number) == (uintptr_t)file->variant + 1 ||
           id_map_has(&sweep->spared, file->number);
}

/* 0: the file is gone. */
static int sweep_file(struct sweep *sweep, const struct file_name *file)
{
    struct store *store = sweep->store;
    struct path path;
    TRY(path_file(store, &path, file, NULL));
    if (file->number > store->committed.save.number && !store_pass_number(store, file->number))
        return -EOVERFLOW;
    int rc = store->fs->unlink(store->fs->ctx, path.text);
    return rc == -ENOENT ? 0 : rc;
}

static int visit_file(void *ctx, const char *name)
{
    struct sweep *sweep = ctx;
    struct file_name file;
    bool ours = file_name_parse(name, &file);

    if (ours && is_named(sweep, &file))
        return 0;
    if (ours && sweep_file(sweep, &file) == 0) {
        sweep->counts->leftovers += file.kind != FILE_SAVED;
        return 0;
    }
    sweep->counts->foreign++;
    store_report(sweep->store, STORE_WARNING, FILTERS_DIR "/%s is not known to the MANIFEST and is left alone", name);
    return 0;
}

static int spare_written(struct sweep *sweep)
{
    const struct id_map *map = &sweep->store->fates;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < map->nslots; i++) {
        const struct fate *written = map->slots[i].value;
        struct parsed_record parsed;
        if (!written || !written->text)
            continue;
        rc = parsed_record_init(&parsed, written->text, written->len, NULL);
        for (unsigned layer = 0; rc == 0 && layer < parsed.filter->nlayers; layer++)
            rc = id_map_set(&sweep->spared, parsed.filter->layers[layer].file, NULL);
        parsed_record_deinit(&parsed);
    }
    return rc;
}

int sweep_start(struct store *store, struct store_load_summary *counts, struct errbuf *err)
{
    struct sweep sweep = {.store = store, .counts = counts};
    struct path path;
    int rc = path_root(store, &path, FILTERS_DIR, err);

    if (rc == 0 && (rc = spare_written(&sweep)) != 0)
        errbuf_set(err, "out of memory");
    if (rc == 0) {
        rc = store->fs->list(store->fs->ctx, path.text, visit_file, &sweep);
        if (rc == -ENOENT) { /* every filter is quarantined; the next save needs it */
            rc = store->fs->mkdir(store->fs->ctx, path.text);
            STEP(rc, store->fs->sync_dir(store->fs->ctx, store->dir));
        }
        if (rc == 0)
            sweep_set_mark(store);
        else
            errbuf_set(err, "%s: %s", path.text, fs_error_text(rc));
    }
    id_map_deinit(&sweep.spared);
    id_map_deinit(&store->opened.named); /* not needed any more */
    return rc;
}
