/* Files in `filters`: their paths, how they come and go. None is ever overwritten, renamed or written to again. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grow.h"
#include "store_internal.h"
#include "lock.h"

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
    for (unsigned i = 0; filter && !filter->pack && i < filter->nlayers; i++) {
        if (filter->layers[i].file == number)
            return true;
    }
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

bool store_pass_number(struct store *store, uint64_t number)
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
        *layer = (struct manifest_layer){.file = name.number};
        manifest_set_shape(record, i, &view.shape);
        layer->turn = bloom_layer_turn(&view);
        rc = path_file(store, &path, &name, err);
        if (rc == 0 && (rc = file_list_add(made, &name)) != 0)
            errbuf_set(err, "out of memory");
        if (rc == 0)
            rc = layer_write(io, path.text, &view, sync, &layer->xxh3, err);
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

/* 0: the file is gone. */
static int remove_file(struct store *store, const struct file_name *name, struct errbuf *err)
{
    struct path path;
    int rc = path_file(store, &path, name, err);

    if (rc == 0)
        rc = store->fs->unlink(store->fs->ctx, path.text);
    if (rc == 0 || rc == -ENOENT || rc == -ENOTDIR)
        return 0;
    errbuf_set(err, "%s: cannot be removed: %s; this will be tried again", path.text, fs_error_text(rc));
    return rc;
}

static void keep_removable(struct store *store, const struct file_name *name)
{
    lock_take(&store->lock);
    (void)file_list_add(&store->removable, name); /* without memory the next start removes it */
    lock_give(&store->lock);
}

void store_remove(struct store *store, const struct file_list *list)
{
    struct errbuf reason;

    for (size_t i = 0; i < list->count; i++) {
        if (remove_file(store, &list->items[i], &reason) == 0)
            continue;
        store_report(store, STORE_WARNING, "%s", reason.text);
        keep_removable(store, &list->items[i]);
    }
}

void store_remove_again(struct store *store)
{
    struct file_list list;
    struct errbuf ignored;

    lock_take(&store->lock);
    list = store->removable;
    store->removable = (struct file_list){0};
    lock_give(&store->lock);
    for (size_t i = 0; i < list.count; i++) {
        if (remove_file(store, &list.items[i], &ignored) != 0)
            keep_removable(store, &list.items[i]);
    }
    file_list_deinit(&list);
}
