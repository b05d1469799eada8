/* The files of one filter, under temporary names that carry a generation: a number that is used once in the life of a
 * directory. So nothing that is valid is touched before the new MANIFEST is, and no two versions of a filter, also under
 * changing names, ever get into each other's way. */
#include <errno.h>
#include <string.h>

#include "store_internal.h"

uint64_t newest_generation(const struct manifest_filter *filter)
{
    uint64_t newest = 0;

    for (unsigned i = 0; i < filter->nlayers; i++)
        newest = filter->layers[i].generation > newest ? filter->layers[i].generation : newest;
    return newest;
}

bool place_is_local(int rc)
{
    switch (rc) {
    case -EACCES:
    case -EPERM:
    case -EROFS: /* something else mounted there */
    case -EBUSY:
    case -ENOTDIR:
    case -EISDIR:
    case -ELOOP:
    case -EEXIST:
    case -ENOTEMPTY:
    case -EXDEV:
        return true;
    default:
        return false;
    }
}

static int place_error(int rc, const char *path, const char *what, struct errbuf *err)
{
    errbuf_set(err, "%s: %s: %s", path, what, strerror(-rc));
    return place_is_local(rc) ? PLACE_UNUSABLE : rc;
}

/* Somebody else may give a directory up at this moment: of a filter of the same name that is discarded. */
#define GIVEN_UP_ATTEMPTS 4

int place_make_dir(struct store *store, const char *dir, bool *made_out, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    struct fs_stat st;
    struct path path;
    bool exists;
    int attempts = 0, rc = path_dir(store, &path, dir, err);

    if (rc != 0)
        return rc;
    do { /* it may be there for mkdir() and gone for stat() */
        rc = fs->mkdir(fs->ctx, path.text);
        if (made_out)
            *made_out = rc == 0;
        if (rc == 0)
            return 0;
        exists = rc == -EEXIST;
        if (exists)
            rc = fs->stat(fs->ctx, path.text, &st);
    } while (exists && rc == -ENOENT && ++attempts < GIVEN_UP_ATTEMPTS);
    if (rc != 0)
        return place_error(rc, path.text, "cannot make the directory", err);
    if (st.kind != FS_DIRECTORY) {
        errbuf_set(err, "%s is in its place and is not a directory", path.text);
        return PLACE_UNUSABLE;
    }
    /* One sync must cover all filters, and links must reach. */
    if (st.device != store->device) {
        errbuf_set(err, "%s is on another file system", path.text);
        return PLACE_UNUSABLE;
    }
    return 0;
}

int place_layer(struct store *store, struct layer_io *io, struct manifest_filter *record, unsigned i,
                const struct bloom_filter *filter, uint64_t generation, bool sync, struct errbuf *err)
{
    struct manifest_layer *layer = &record->layers[i];
    struct bloom_layer_view view;
    struct path path;
    int rc = path_temp(store, &path, record->dir, i, generation, err);

    if (rc != 0)
        return rc;
    bloom_filter_layer(filter, i, &view);
    *layer = (struct manifest_layer){.nwords = view.shape.nwords, .k = view.shape.k, .generation = generation};
    record->variant = (enum bloom_variant)view.shape.variant;
    rc = layer_write(io, path.text, &view, sync, &layer->xxh3, err);
    for (int attempt = 1; rc == -ENOENT && attempt < GIVEN_UP_ATTEMPTS; attempt++) {
        rc = place_make_dir(store, record->dir, NULL, err);
        if (rc == 0)
            rc = layer_write(io, path.text, &view, sync, &layer->xxh3, err);
    }
    if (rc != 0)
        return place_is_local(rc) ? PLACE_UNUSABLE : rc;
    /* Counted after the bits were read: items that came meanwhile may be counted without their bits, but no bit is there
     * uncounted, and a filter that is loaded again never takes more items than its rate allows. */
    bloom_filter_layer(filter, i, &view);
    layer->items = view.items;
    return 0;
}

int place_sync(struct store *store, const char *dir, bool parent, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    struct path path;
    int rc = path_dir(store, &path, dir, err);

    if (rc == 0)
        rc = fs->sync_dir(fs->ctx, path.text);
    if (rc == 0 && parent) {
        rc = path_root(store, &path, "filters", err);
        if (rc == 0)
            rc = fs->sync_dir(fs->ctx, path.text);
    }
    if (rc != 0 && rc != -ENAMETOOLONG)
        errbuf_set(err, "%s: cannot sync: %s", path.text, strerror(-rc));
    return rc;
}

bool place_discard(struct store *store, const struct manifest_filter *filter)
{
    const struct fsops *fs = store->fs;
    uint64_t generation = newest_generation(filter);
    bool clean = true;
    struct path path;

    for (unsigned i = 0; i < filter->nlayers; i++) {
        if (filter->layers[i].generation != generation)
            continue;
        int rc = path_temp(store, &path, filter->dir, i, generation, NULL);
        if (rc == 0)
            rc = fs->unlink(fs->ctx, path.text);
        clean = clean && (rc == 0 || rc == -ENOENT || rc == -ENOTDIR);
    }
    /* Only a directory that was made for this filter is empty now. */
    if (path_dir(store, &path, filter->dir, NULL) == 0)
        (void)fs->rmdir(fs->ctx, path.text);
    return clean;
}
