/* A save finds the files of one filter their place: a directory in which their names are free or their own, in which they
 * are written, or linked when the filter has only been renamed. What has not changed stays. */
#include <errno.h>
#include <string.h>

#include "store_save.h"

static bool is_forgotten(struct store *store, uint64_t id)
{
    pthread_mutex_lock(&store->mutex);
    bool forgotten = id_map_has(&store->forgotten, id);
    pthread_mutex_unlock(&store->mutex);
    return forgotten;
}

/* How many final names in the directory belong to a committed filter and may be replaced: the filter itself, or one of the
 * same name that is no longer there. 0, PLACE_UNUSABLE when somebody else stays there, or -errno. */
static int owned_layers(struct save *save, const struct target *target, const char *dir, unsigned *nlayers_out,
                        struct errbuf *err)
{
    const struct store_index *index = &save->store->index;
    uint32_t number = INDEX_NONE;

    *nlayers_out = 0;
    while ((number = index_find_dir(index, index_dir_hash(index, dir), number)) != INDEX_NONE) {
        const struct index_entry *entry = &index->entries[number];
        const struct manifest_filter *owner;
        char natural[NAME_DIR_MAX + 1];
        int rc = record_read(&save->committed, index_offset(entry), &owner, err);

        if (rc != 0)
            return rc;
        if (strcmp(owner->dir, dir) != 0)
            continue;
        name_dir(owner->name, owner->name_len, owner->id, natural);
        bool stays = entry->flags & INDEX_QUARANTINED ? !is_forgotten(save->store, entry->id) : strcmp(natural, dir) != 0;
        if (entry->id != target->item->id && stays) {
            errbuf_set(err, "filters/%s belongs to filter %llu", dir, (unsigned long long)entry->id);
            return PLACE_UNUSABLE;
        }
        *nlayers_out = entry->flags & INDEX_UNPLACED ? 0 : entry->nlayers;
    }
    return 0;
}

static int check_names(struct save *save, const char *dir, unsigned from, unsigned to, struct errbuf *err)
{
    struct path path;
    struct fs_stat st;

    for (unsigned i = from; i < to; i++) {
        int rc = path_final(save->store, &path, dir, i, err);
        if (rc != 0)
            return rc;
        rc = save->fs->stat(save->fs->ctx, path.text, &st);
        if (rc == -ENOENT)
            continue;
        if (rc == 0)
            errbuf_set(err, "%s is in its place, which the MANIFEST does not know", path.text);
        else
            errbuf_set(err, "%s: %s", path.text, strerror(-rc));
        return rc == 0 || place_is_local(rc) ? PLACE_UNUSABLE : rc;
    }
    return 0;
}

int save_claim_dir(struct save *save, const struct target *target, const char *dir, unsigned nlayers, bool *new_out,
                   struct errbuf *err)
{
    unsigned owned;
    bool made = false;
    int rc = owned_layers(save, target, dir, &owned, err);

    if (rc == 0)
        rc = place_make_dir(save->store, dir, &made, err);
    if (rc == 0 && !made)
        rc = check_names(save, dir, owned, nlayers, err);
    /* A directory that is there need not be there on disk: a save that failed may have made it. */
    *new_out = owned == 0;
    return rc;
}

/* A layer that is not the newest takes no more items; if its bits are those of its file, the file stays. Told by the
 * checksum, not by the count, which an add raises before it sets its bits. */
static bool layer_unchanged(struct save *save, const struct target *target, unsigned i)
{
    const struct manifest_filter *before = &target->before;
    struct bloom_layer_view view;

    if (!target->before_is_final || before->pack || i + 1 >= before->nlayers ||
        strcmp(before->dir, target->record.dir) != 0)
        return false;
    bloom_filter_layer(target->item->filter, i, &view);
    return before->layers[i].k == view.shape.k && before->layers[i].nwords == view.shape.nwords &&
           before->variant == view.shape.variant && before->layers[i].xxh3 == layer_digest(&save->io, &view);
}

static int write_layer(struct save *save, struct target *target, unsigned i, uint64_t generation, struct errbuf *err)
{
    struct manifest_layer *layer = &target->record.layers[i];

    if (layer_unchanged(save, target, i)) {
        struct bloom_layer_view view;
        bloom_filter_layer(target->item->filter, i, &view);
        *layer = target->before.layers[i];
        layer->items = view.items;
        return 0;
    }
    int rc = place_layer(save->store, &save->io, &target->record, i, target->item->filter, generation, !save->sync_all, err);
    if (rc == 0) {
        save->summary->layers_written++;
        save->summary->bytes += 8 + 8 * layer->nwords;
    }
    return rc;
}

static int link_layer(struct save *save, struct target *target, unsigned i, uint64_t generation, struct errbuf *err)
{
    const struct manifest_filter *before = &target->before;
    const struct fsops *fs = save->fs;
    struct path from, to;
    int rc = path_temp(save->store, &to, target->record.dir, i, generation, err);

    target->record.variant = before->variant;
    target->record.layers[i] = before->layers[i];
    target->record.layers[i].generation = generation;
    if (rc != 0)
        return rc;
    rc = -ENOENT;
    if (!target->before_is_final &&
        path_temp(save->store, &from, before->dir, i, before->layers[i].generation, NULL) == 0)
        rc = fs->link(fs->ctx, from.text, to.text);
    if (rc == -ENOENT && path_final(save->store, &from, before->dir, i, NULL) == 0)
        rc = fs->link(fs->ctx, from.text, to.text);
    if (rc == 0)
        save->summary->layers_linked++;
    else
        errbuf_set(err, "%s: cannot link to %s: %s", from.text, to.text, strerror(-rc));
    return rc;
}

/* Puts every layer under a temporary name in record.dir: by writing it, or by linking the file it has. */
static int put_layers(struct save *save, struct target *target, bool link, struct errbuf *err)
{
    uint64_t generation = atomic_fetch_add(&save->store->generation, 1) + 1;
    struct manifest_filter *record = &target->record;
    bool new_dir = false;
    int rc;

    record->nlayers = link ? target->before.nlayers : bloom_filter_nlayers(target->item->filter);
    rc = save_claim_dir(save, target, record->dir, record->nlayers, &new_dir, err);
    if (rc != 0)
        return rc;
    /* Before any file is made, so that a failure half-way finds all that may be there. */
    for (unsigned i = 0; i < record->nlayers; i++)
        record->layers[i].generation = generation;
    if (++save->dirs_synced > SAVE_MAX_SINGLE_SYNCS)
        save->sync_all = true;
    for (unsigned i = 0; i < record->nlayers && rc == 0; i++)
        rc = link ? link_layer(save, target, i, generation, err) : write_layer(save, target, i, generation, err);
    if (rc == 0 && !save->sync_all)
        rc = place_sync(save->store, record->dir, new_dir, err);
    if (rc != 0 && !place_discard(save->store, record))
        save->store->leftovers = true;
    return rc;
}

int save_put_files(struct save *save, struct target *target, bool link, struct errbuf *err)
{
    struct manifest_filter *record = &target->record;
    struct errbuf reason = {{0}};
    int rc = PLACE_UNUSABLE;

    for (unsigned n = 0; rc == PLACE_UNUSABLE && n <= PLACE_MAX_ALTERNATES; n++) {
        if (n == 0)
            name_dir(record->name, record->name_len, record->id, record->dir);
        else
            name_dir_alternate(record->id, n, record->dir);
        /* Where its files could not be given their names the last time. */
        if (target->avoid_dir && strcmp(record->dir, target->before.dir) == 0) {
            errbuf_set(&reason, "filters/%s holds files that cannot be replaced", record->dir);
            continue;
        }
        rc = put_layers(save, target, link, err);
        if (rc == PLACE_UNUSABLE && err)
            reason = *err;
        if (rc != 0 || n == 0 || strcmp(record->dir, target->before.dir) == 0)
            continue;
        struct shown_name shown = show_name(record->name, record->name_len);
        save->summary->displaced++;
        store_report(save->store, STORE_WARNING, "filter '%s' is saved in filters/%s: %s", shown.text, record->dir,
                     reason.text);
    }
    return rc == PLACE_UNUSABLE ? -EEXIST : rc;
}
