/* A save, first part: walks what the source yields and writes the files of changed filters under temporary names that
 * carry a generation: a number that is used once in the life of a directory. So nothing that is valid is touched before
 * the new MANIFEST is, and no two versions of a filter, also under changing names, ever get into each other's way.
 *
 * The records of changed filters go to a spool (MANIFEST.spool), because which of them hold is known only when the walk
 * has ended; the index of the save to be (`next`) says where each record is. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "store_internal.h"

int save_record(struct save *save, const struct index_entry *entry, const struct manifest_filter **filter_out,
                struct errbuf *err)
{
    if (!(entry->flags & INDEX_SPOOLED))
        return record_read(&save->committed, index_offset(entry), filter_out, err);
    int rc = record_writer_flush(&save->spool);
    if (rc != 0) {
        errbuf_set(err, "%s/MANIFEST.spool: cannot write: %s", save->store->dir, strerror(-rc));
        return rc;
    }
    /* The window may have been read before the file grew, but what it holds has not changed since. */
    return record_read(&save->spooled, index_offset(entry), filter_out, err);
}

static void discard_layers(struct save *save, const struct manifest_filter *filter)
{
    char dir[NAME_DIR_MAX + 1];
    struct path path;

    name_dir(filter->name, filter->name_len, dir);
    for (unsigned i = 0; i < filter->nlayers; i++) {
        if (filter->layers[i].generation > save->first_generation &&
            path_temp(save->store, &path, dir, i, filter->layers[i].generation, NULL) == 0)
            (void)save->fs->unlink(save->fs->ctx, path.text);
    }
    /* Only a directory that was made for this filter is empty now. */
    if (path_dir(save->store, &path, dir, NULL) == 0)
        (void)save->fs->rmdir(save->fs->ctx, path.text);
}

void save_discard_files(struct save *save, const struct index_entry *entry)
{
    const struct manifest_filter *filter;

    if ((entry->flags & INDEX_WRITTEN) && save_record(save, entry, &filter, NULL) == 0)
        discard_layers(save, filter);
}

void save_refused(struct save *save, const struct manifest_filter *filter, const struct errbuf *reason)
{
    struct shown_name shown = show_name(filter->name, filter->name_len);

    save->summary->refused++;
    save->summary->refusal = *reason;
    errbuf_prefix(&save->summary->refusal, "filter '%s' is not saved", shown.text);
    store_report(save->store, STORE_WARNING, "%s", save->summary->refusal.text);
}

/* ---- entries of the save to be -------------------------------------------------------------------------------------- */

/* Takes an entry into `next`; an earlier one with this id is superseded, its files go. */
static int add_entry(struct save *save, const struct index_entry *entry, struct errbuf *err)
{
    uint32_t before = index_find_id(&save->next, entry->id);
    int rc = index_add(&save->next, entry);

    if (rc != 0) {
        errbuf_set(err, "%s", rc == -ENOMEM ? "out of memory" : "too many filters");
        return rc;
    }
    if (before != INDEX_NONE)
        save_discard_files(save, &save->next.entries[before]);
    return 0;
}

int save_carry(struct save *save, const struct index_entry *committed, unsigned flags, struct errbuf *err)
{
    struct index_entry entry = *committed;

    entry.flags = (uint8_t)((entry.flags & INDEX_QUARANTINED) | flags);
    return add_entry(save, &entry, err);
}

static int spool_record(struct save *save, const struct manifest_filter *filter, unsigned flags, struct errbuf *err)
{
    struct index_entry entry = {
        .id = filter->id, .nlayers = (uint8_t)filter->nlayers, .flags = (uint8_t)(INDEX_SPOOLED | flags)};
    char dir[NAME_DIR_MAX + 1];

    name_dir(filter->name, filter->name_len, dir);
    entry.dir_hash = index_dir_hash(dir, strlen(dir));
    index_set_offset(&entry, record_writer_offset(&save->spool));
    int rc = manifest_format_filter(&save->spool.pending, filter);
    if (rc == 0)
        rc = record_written(&save->spool);
    if (rc != 0) {
        errbuf_set(err, "%s/MANIFEST.spool: cannot write: %s", save->store->dir, strerror(-rc));
        return rc;
    }
    return add_entry(save, &entry, err);
}

/* ---- files of one filter ---------------------------------------------------------------------------------------------- */

/* A filter on its way to disk. */
struct target {
    const struct store_item *item;
    const struct manifest_filter *before; /* the committed record, NULL for a new filter */
    bool same_name;                       /* as in the committed record */
    char dir[NAME_DIR_MAX + 1];
    bool made_dir;
    unsigned owned; /* files 0 .. owned - 1 of the directory are the committed save's */
    struct manifest_filter record;
    struct errbuf refusal;
};

/* Positive: a file that is not ours is in the way. */
#define TARGET_FOREIGN 1

/* How many layer files of the directory belong to filters of the committed save, quarantined ones included. */
static int owned_layers(struct save *save, const char *dir, unsigned *nlayers_out, struct errbuf *err)
{
    const struct store_index *index = &save->store->index;
    uint32_t number = INDEX_NONE;

    *nlayers_out = 0;
    while ((number = index_find_dir(index, index_dir_hash(dir, strlen(dir)), number)) != INDEX_NONE) {
        int rc = entry_is_dir(&save->committed, &index->entries[number], dir, err);
        if (rc < 0)
            return rc;
        if (rc)
            *nlayers_out = index->entries[number].nlayers;
    }
    return 0;
}

static int check_target(struct save *save, struct target *target, unsigned nlayers, struct errbuf *err)
{
    struct path path;
    struct fs_stat st;
    int rc = 0;

    for (unsigned i = target->owned; i < nlayers && rc == 0; i++) {
        rc = path_final(save->store, &path, target->dir, i, err);
        if (rc != 0)
            break;
        rc = save->fs->stat(save->fs->ctx, path.text, &st);
        if (rc == -ENOENT) {
            rc = 0;
        } else if (rc == 0) {
            errbuf_set(&target->refusal, "%s is in its place, which the MANIFEST does not know", path.text);
            rc = TARGET_FOREIGN;
        } else {
            errbuf_set(err, "%s: %s", path.text, strerror(-rc));
        }
    }
    return rc;
}

static int make_dir(struct save *save, struct target *target, struct errbuf *err)
{
    const struct fsops *fs = save->fs;
    struct fs_stat st;
    struct path path;
    int rc = path_dir(save->store, &path, target->dir, err);

    if (rc != 0)
        return rc;
    rc = fs->mkdir(fs->ctx, path.text);
    target->made_dir = rc == 0;
    if (rc == 0)
        return 0;
    if (rc == -EEXIST)
        rc = fs->stat(fs->ctx, path.text, &st);
    if (rc != 0) {
        errbuf_set(err, "%s: cannot make the directory: %s", path.text, strerror(-rc));
        return rc;
    }
    if (st.kind == FS_DIRECTORY)
        return 0;
    errbuf_set(&target->refusal, "%s is in its place and is not a directory", path.text);
    return TARGET_FOREIGN;
}

/* Syncs the names of a filter's files, or leaves it to one sync of everything when there are many filters. */
static int sync_names(struct save *save, const struct target *target, struct errbuf *err)
{
    const struct fsops *fs = save->fs;
    struct path path;
    int rc = path_dir(save->store, &path, target->dir, err);

    if (rc != 0 || save->sync_all)
        return rc;
    rc = fs->sync_dir(fs->ctx, path.text);
    /* A directory that is there need not be there on disk: a save that failed may have made it. */
    if (rc == 0 && target->owned == 0) {
        rc = path_root(save->store, &path, "filters", err);
        if (rc == 0)
            rc = fs->sync_dir(fs->ctx, path.text);
    }
    if (rc != 0)
        errbuf_set(err, "%s: cannot sync: %s", path.text, strerror(-rc));
    return rc;
}

/* A layer that is not the newest takes no more items; if its bits are those of its file, the file stays. Told by the
 * checksum, not by the count, which an add raises before it sets its bits. */
static bool layer_unchanged(struct save *save, const struct target *target, unsigned i,
                            const struct bloom_layer_view *view)
{
    const struct manifest_filter *before = target->before;

    return target->same_name && i + 1 < before->nlayers && before->layers[i].k == view->shape.k &&
           before->layers[i].nwords == view->shape.nwords && before->variant == view->shape.variant &&
           before->layers[i].xxh3 == layer_digest(&save->io, view);
}

static int write_layer(struct save *save, struct target *target, unsigned i, uint64_t generation, struct errbuf *err)
{
    struct bloom_layer_view view;
    struct manifest_layer *layer = &target->record.layers[i];
    struct path path;

    bloom_filter_layer(target->item->filter, i, &view);
    *layer = (struct manifest_layer){.nwords = view.shape.nwords, .items = view.items, .k = view.shape.k};
    target->record.variant = (enum bloom_variant)view.shape.variant;
    if (layer_unchanged(save, target, i, &view)) {
        layer->xxh3 = target->before->layers[i].xxh3;
        layer->generation = target->before->layers[i].generation;
        return 0;
    }
    layer->generation = generation;
    int rc = path_temp(save->store, &path, target->dir, i, generation, err);
    if (rc == 0)
        rc = layer_write(&save->io, path.text, &view, !save->sync_all, &layer->xxh3, err);
    if (rc == 0) {
        /* Counted after the bits were read: items that came meanwhile may be counted without their bits, but no bit is
         * there uncounted, and a filter that is loaded again never takes more items than its rate allows. */
        bloom_filter_layer(target->item->filter, i, &view);
        layer->items = view.items;
        save->summary->layers_written++;
        save->summary->bytes += 8 + 8 * view.shape.nwords;
    }
    return rc;
}

static int link_layer(struct save *save, struct target *target, unsigned i, uint64_t generation, struct errbuf *err)
{
    char old_dir[NAME_DIR_MAX + 1];
    struct path from, to;

    name_dir(target->before->name, target->before->name_len, old_dir);
    target->record.variant = target->before->variant;
    target->record.layers[i] = target->before->layers[i];
    target->record.layers[i].generation = generation;
    int rc = path_final(save->store, &from, old_dir, i, err);
    if (rc == 0)
        rc = path_temp(save->store, &to, target->dir, i, generation, err);
    if (rc == 0)
        rc = save->fs->link(save->fs->ctx, from.text, to.text);
    return rc;
}

/* Puts every layer of the filter under temporary names: by writing it, or by linking the files it has. */
static int place_layers(struct save *save, struct target *target, bool link, struct errbuf *err)
{
    uint64_t generation = ++save->store->generation;
    struct manifest_filter *record = &target->record;
    int rc = 0;

    record->nlayers = link ? target->before->nlayers : bloom_filter_nlayers(target->item->filter);
    memset(record->layers, 0, record->nlayers * sizeof(record->layers[0]));
    /* Before any file is made, so that a failure half-way finds all that may be there. */
    for (unsigned i = 0; i < record->nlayers; i++)
        record->layers[i].generation = generation;
    rc = owned_layers(save, target->dir, &target->owned, err);
    if (rc == 0)
        rc = make_dir(save, target, err);
    if (rc == 0 && !target->made_dir)
        rc = check_target(save, target, record->nlayers, err);
    if (rc != 0)
        return rc;
    if (++save->dirs_synced > SAVE_MAX_SINGLE_SYNCS)
        save->sync_all = true;
    for (unsigned i = 0; i < record->nlayers && rc == 0; i++) {
        rc = link ? link_layer(save, target, i, generation, err) : write_layer(save, target, i, generation, err);
        if (rc == 0 && link)
            save->summary->layers_linked++;
    }
    if (rc == 0)
        rc = sync_names(save, target, err);
    if (rc != 0)
        discard_layers(save, record);
    return rc;
}

/* ---- one item ---------------------------------------------------------------------------------------------------------- */

static void fill_record(struct target *target, const struct store_item *item)
{
    target->item = item;
    target->record.id = item->id;
    target->record.name = item->name;
    target->record.name_len = item->name_len;
    target->record.params = *bloom_filter_params(item->filter);
    target->record.expires_ms = item->expires_ms;
    target->record.log_position = item->log_position;
    name_dir(item->name, item->name_len, target->dir);
}

/* The filter cannot be saved as it is: what the last save had of it stays, and the next one tries again. */
static int refuse(struct save *save, struct target *target, const struct index_entry *committed, struct errbuf *err)
{
    save_refused(save, &target->record, &target->refusal);
    if (!committed || index_find_id(&save->next, target->record.id) != INDEX_NONE)
        return 0;
    return save_carry(save, committed, INDEX_STALE, err);
}

static int save_clean(struct save *save, struct target *target, const struct index_entry *committed, struct errbuf *err)
{
    const struct manifest_filter *before = target->before;

    if (before->expires_ms == target->record.expires_ms && before->log_position == target->record.log_position)
        return save_carry(save, committed, 0, err);
    target->record.variant = before->variant;
    target->record.nlayers = before->nlayers;
    memcpy(target->record.layers, before->layers, before->nlayers * sizeof(before->layers[0]));
    return spool_record(save, &target->record, 0, err);
}

static int save_filter(struct save *save, const struct store_item *item, struct index_entry *committed,
                       struct target *target, struct errbuf *err)
{
    /* Stale also when it was yielded before in this walk, as dirty. */
    bool clean = committed && !item->dirty && !(committed->flags & INDEX_STALE);
    int rc = 0;

    fill_record(target, item);
    if (committed) {
        rc = record_read(&save->committed, index_offset(committed), &target->before, err);
        if (rc != 0)
            return rc;
        target->same_name = target->before->name_len == item->name_len &&
                            memcmp(target->before->name, item->name, item->name_len) == 0;
    }
    if (clean && target->same_name)
        return save_clean(save, target, committed, err);

    /* check_target() reads other records: what is needed of this one must be kept. */
    struct manifest_filter before = {0};
    char *before_name = NULL;
    if (committed) {
        before = *target->before;
        before_name = malloc(before.name_len + 1);
        if (!before_name) {
            errbuf_set(err, "out of memory");
            return -ENOMEM;
        }
        memcpy(before_name, before.name, before.name_len);
        before.name = before_name;
        target->before = &before;
    }
    if (clean)
        rc = place_layers(save, target, true, err);
    if (!clean || rc < 0) /* not every file system can link; then it is written */
        rc = place_layers(save, target, false, err);
    free(before_name);
    target->before = NULL;
    if (rc == TARGET_FOREIGN)
        return refuse(save, target, committed, err);
    return rc != 0 ? rc : spool_record(save, &target->record, INDEX_WRITTEN, err);
}

static int save_item(struct save *save, const struct store_item *item, struct errbuf *err)
{
    struct store *store = save->store;
    uint32_t number = index_find_id(&store->index, item->id);
    uint32_t seen = index_find_id(&save->next, item->id);
    struct index_entry *committed = number != INDEX_NONE ? &store->index.entries[number] : NULL;
    struct target *target;

    if (item->id > save->max_id)
        save->max_id = item->id;
    if (!item->filter) {
        if (seen != INDEX_NONE) {
            save->next.entries[seen].flags |= INDEX_DROPPED;
            save_discard_files(save, &save->next.entries[seen]);
        }
        return 0;
    }
    CHECK(!committed || !(committed->flags & INDEX_QUARANTINED));
    if (item->dirty && committed)
        committed->flags |= INDEX_STALE; /* remembered if this save fails */
    target = calloc(1, sizeof(*target));
    if (!target) {
        errbuf_set(err, "out of memory");
        return -ENOMEM;
    }
    int rc = save_filter(save, item, committed, target, err);
    if (rc != 0) {
        struct shown_name shown = show_name(item->name, item->name_len);
        errbuf_prefix(err, "filter '%s'", shown.text);
    }
    free(target);
    return rc;
}

/* ---- the save -------------------------------------------------------------------------------------------------------------- */

static int save_walk(struct save *save, struct errbuf *err)
{
    const struct store_source *source = save->source;

    for (;;) {
        struct store_item item = {0};
        int rc = source->next(source->ctx, &item);

        if (rc == 0)
            return 0;
        if (rc < 0) {
            errbuf_set(err, "cannot walk the filters: %s", strerror(-rc));
            return rc;
        }
        rc = save_item(save, &item, err);
        source->release(source->ctx, &item);
        if (rc != 0)
            return rc;
    }
}

static int open_spool(struct save *save, struct errbuf *err)
{
    struct path path;
    int rc = path_root(save->store, &path, "MANIFEST.spool", err);

    if (rc != 0)
        return rc;
    rc = save->fs->open(save->fs->ctx, path.text, FS_READ | FS_WRITE | FS_CREATE | FS_TRUNCATE, &save->spool_fd);
    if (rc != 0)
        errbuf_set(err, "%s: cannot create: %s", path.text, strerror(-rc));
    return rc;
}

static int save_init(struct save *save, struct errbuf *err)
{
    struct store *store = save->store;
    int rc = open_spool(save, err);

    if (rc != 0)
        return rc;
    rc = record_reader_init(&save->committed, save->fs, store->manifest_fd);
    if (rc == 0)
        rc = record_reader_init(&save->spooled, save->fs, save->spool_fd);
    if (rc == 0)
        rc = record_writer_init(&save->spool, save->fs, save->spool_fd);
    if (rc == 0)
        rc = layer_io_init(&save->io, save->fs);
    if (rc == 0)
        rc = index_map(&store->index);
    if (rc == 0)
        rc = index_map(&save->next);
    if (rc != 0)
        errbuf_set(err, "out of memory");
    save->io.wrote = save->source->wrote;
    save->io.wrote_ctx = save->source->ctx;
    return rc;
}

static void save_deinit(struct save *save)
{
    struct path path;

    record_reader_deinit(&save->committed);
    record_reader_deinit(&save->spooled);
    record_writer_deinit(&save->spool);
    layer_io_deinit(&save->io);
    index_deinit(&save->next);
    index_unmap(&save->store->index);
    if (save->spool_fd >= 0) {
        save->fs->close(save->fs->ctx, save->spool_fd);
        if (path_root(save->store, &path, "MANIFEST.spool", NULL) == 0)
            (void)save->fs->unlink(save->fs->ctx, path.text);
    }
}

int store_save(struct store *store, const struct store_source *source, struct store_save_summary *summary_out,
               struct errbuf *err)
{
    struct store_save_summary summary = {0};
    struct save save = {.store = store, .fs = store->fs, .source = source, .summary = &summary, .spool_fd = -1};
    int rc = store->unfinished ? finish_all(store, err) : 0;

    if (rc != 0) {
        errbuf_prefix(err, "the save before this one cannot be completed");
        goto out;
    }
    save.first_generation = store->generation;
    rc = save_init(&save, err);
    if (rc == 0)
        rc = save_walk(&save, err);
    if (rc == 0)
        rc = save_commit(&save, err);
    /* In doubt both saves may be found, so the files of both have to stay. */
    for (size_t i = 0; i < save.next.count && rc < 0; i++) {
        if (!(save.next.entries[i].flags & INDEX_DROPPED))
            save_discard_files(&save, &save.next.entries[i]);
    }
    save_deinit(&save);
out:
    if (summary_out)
        *summary_out = summary;
    return rc;
}
