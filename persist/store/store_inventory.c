/* What is in the directories beside what the MANIFEST says: temporary files of what did not take place, which go, and what
 * is not ours, which is reported and left alone. At a start as part of loading, and after a save that could not clean up. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store_internal.h"

int spared_init(struct spared *spared, struct store *store)
{
    int rc = 0;

    *spared = (struct spared){0};
    pthread_mutex_lock(&store->mutex);
    spared->above = atomic_load(&store->generation);
    for (size_t i = 0; i < store->written.nslots && rc == 0; i++) {
        const struct written *written = store->written.slots[i].value;
        if (written)
            rc = id_map_set(&spared->generations, written->generation, NULL);
    }
    pthread_mutex_unlock(&store->mutex);
    if (rc != 0)
        spared_deinit(spared);
    return rc;
}

void spared_deinit(struct spared *spared)
{
    id_map_deinit(&spared->generations);
}

static bool is_spared(const struct spared *spared, uint64_t generation)
{
    return generation > spared->above || id_map_has(&spared->generations, generation);
}

/* What cannot be deleted is the next save's business, which is not to take it for what is being written then. */
static bool remove_leftover(struct store *store, const char *dir, const struct file_name *file)
{
    struct path path;
    int rc = path_temp(store, &path, dir, file->layer, file->generation, NULL);

    if (rc == 0)
        rc = store->fs->unlink(store->fs->ctx, path.text);
    if (rc != 0 && rc != -ENOENT && generation_pass(store, file->generation))
        atomic_store(&store->leftovers, true);
    return rc == 0;
}

/* ---- the directory of a filter ----------------------------------------------------------------------------------------- */

static int visit_file(void *ctx, const char *name)
{
    struct inventory *inventory = ctx;
    const struct manifest_filter *filter = inventory->filter;
    struct file_name file;
    bool ours = file_name_parse(name, &file);

    if (ours && !file.temporary && file.layer < filter->nlayers)
        return 0;
    if (!ours || !file.temporary) {
        inventory->foreign++;
        if (inventory->report)
            store_report(inventory->store, STORE_WARNING,
                         "filters/%s/%s is not known to the MANIFEST and is left alone", filter->dir, name);
        return 0;
    }
    if (file.layer < filter->nlayers && file.generation == filter->layers[file.layer].generation) {
        inventory->committed_temp[file.layer] = true;
        return 0;
    }
    if (is_spared(inventory->spared, file.generation))
        return 0;
    struct file_name *leftovers = realloc(inventory->leftovers, (inventory->nleftovers + 1) * sizeof(*leftovers));
    if (!leftovers)
        return -ENOMEM;
    leftovers[inventory->nleftovers++] = file;
    inventory->leftovers = leftovers;
    return 0;
}

int inventory_take(struct inventory *inventory, struct errbuf *err)
{
    struct store *store = inventory->store;
    struct path path;
    int rc = path_dir(store, &path, inventory->filter->dir, err);

    if (rc != 0)
        return rc;
    rc = store->fs->list(store->fs->ctx, path.text, visit_file, inventory);
    if (rc == -ENOENT)
        errbuf_set(err, "%s: missing", path.text);
    else if (rc != 0)
        errbuf_set(err, "%s: cannot read the directory: %s", path.text, strerror(-rc));
    return rc;
}

uint64_t inventory_remove_leftovers(struct inventory *inventory)
{
    uint64_t removed = 0;

    for (size_t i = 0; i < inventory->nleftovers; i++)
        removed += remove_leftover(inventory->store, inventory->filter->dir, &inventory->leftovers[i]);
    return removed;
}

void inventory_deinit(struct inventory *inventory)
{
    free(inventory->leftovers);
}

/* ---- directories that no filter has -------------------------------------------------------------------------------------- */

struct strays {
    struct store *store;
    const struct spared *spared;
    bool report;
    struct store_load_summary *counts;
    const char *dir;
    bool foreign; /* holds something that is not ours */
    bool in_use;  /* holds files of store_write() */
};

static int visit_stray_file(void *ctx, const char *name)
{
    struct strays *strays = ctx;
    struct file_name file;

    if (!file_name_parse(name, &file) || !file.temporary)
        strays->foreign = true;
    else if (is_spared(strays->spared, file.generation))
        strays->in_use = true;
    else if (remove_leftover(strays->store, strays->dir, &file))
        strays->counts->leftovers++;
    return 0;
}

/* A directory of a filter that an unfinished save was about to add holds temporary files only: it is removed. */
static int visit_dir(void *ctx, const char *name)
{
    struct strays *strays = ctx;
    struct store *store = strays->store;
    struct path path;

    /* By the hash alone: a foreign directory that happened to have the hash of one of ours would not be reported. */
    if (index_find_dir(&store->index, index_dir_hash(&store->index, name), INDEX_NONE) != INDEX_NONE)
        return 0;
    strays->dir = name;
    strays->foreign = strays->in_use = false;
    if (!name_dir_valid(name, strlen(name)) || path_dir(store, &path, name, NULL) != 0 ||
        store->fs->list(store->fs->ctx, path.text, visit_stray_file, strays) != 0)
        strays->foreign = true;
    if (!strays->foreign && (strays->in_use || store->fs->rmdir(store->fs->ctx, path.text) == 0))
        return 0;
    strays->counts->foreign++;
    if (strays->report)
        store_report(store, STORE_WARNING, "filters/%s is not known to the MANIFEST and is left alone", name);
    return 0;
}

int inventory_strays(struct store *store, const struct spared *spared, bool report, struct store_load_summary *counts,
                     struct errbuf *err)
{
    struct strays strays = {.store = store, .spared = spared, .report = report, .counts = counts};
    struct path path;
    int rc = path_root(store, &path, "filters", err);

    if (rc != 0)
        return rc;
    rc = store->fs->list(store->fs->ctx, path.text, visit_dir, &strays);
    if (rc != 0)
        errbuf_set(err, "%s: %s", path.text, strerror(-rc));
    return rc;
}

/* ---- after a failed save ----------------------------------------------------------------------------------------------------- */

static int clean_filters(struct store *store, const struct spared *spared, struct errbuf *err)
{
    struct record_reader reader;
    int rc = record_reader_init(&reader, store->fs, store->manifest_fd);

    if (rc != 0)
        errbuf_set(err, "out of memory");
    for (size_t i = 0; i < store->index.count && rc == 0; i++) {
        struct inventory inventory = {.store = store, .spared = spared};

        if (store->index.entries[i].flags & INDEX_PACKED)
            continue;
        rc = record_read(&reader, index_offset(&store->index.entries[i]), &inventory.filter, err);
        if (rc != 0)
            break;
        /* A directory that cannot be read may be one of a quarantined filter: it is what it was at the start. */
        if (inventory_take(&inventory, err) == 0)
            inventory_remove_leftovers(&inventory);
        inventory_deinit(&inventory);
    }
    record_reader_deinit(&reader);
    return rc;
}

int inventory_clean(struct store *store, struct errbuf *err)
{
    struct store_load_summary counts = {0};
    struct spared spared;
    int rc = spared_init(&spared, store);

    atomic_store(&store->leftovers, false); /* from here on others may leave some */
    if (rc == 0)
        rc = index_map(&store->index);
    if (rc != 0) {
        errbuf_set(err, "out of memory");
        goto out;
    }
    rc = clean_filters(store, &spared, err);
    if (rc == 0)
        rc = inventory_strays(store, &spared, false, &counts, err);
    if (rc == 0)
        rc = packs_strays(store, false, &counts, err);
out:
    if (rc != 0)
        atomic_store(&store->leftovers, true);
    index_unmap(&store->index);
    spared_deinit(&spared);
    return rc;
}
