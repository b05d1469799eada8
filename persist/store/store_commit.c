/* A save, second part: composes the new MANIFEST from the records of the spool and those carried over, makes it valid by
 * renaming it, and then puts the files into place. The rename is the moment at which the save takes place. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "filterdb.h"
#include "store_save.h"

/* ---- which filters ----------------------------------------------------------------------------------------------------- */

/* Not one that was yielded before it was given up: it is in this save, and its files are; the next one leaves it out. */
static void take_forgotten(struct save *save)
{
    struct store *store = save->store;

    pthread_mutex_lock(&store->mutex);
    for (size_t i = 0; i < store->forgotten.nslots; i++) {
        uint64_t id = store->forgotten.slots[i].id;
        uint32_t number = id != 0 ? index_find_id(&store->index, id) : INDEX_NONE;
        struct written *written = id != 0 ? id_map_get(&store->written, id) : NULL;

        if (id != 0 && index_find_id(&save->next, id) != INDEX_NONE)
            continue;
        if (number != INDEX_NONE)
            store->index.entries[number].flags |= INDEX_FORGOTTEN;
        else if (written)
            written->forgotten = true;
    }
    pthread_mutex_unlock(&store->mutex);
}

/* The quarantined filter of this slot, if it is one that store_write() had written before a crash. The map of quarantined
 * filters changes only while loading and at the end of a save. */
static struct written *quarantined_written(struct save *save, size_t slot)
{
    uint64_t id = save->store->quarantined.slots[slot].id;
    struct written *written = id != 0 ? written_find(save->store, id) : NULL;

    return written && written->quarantined && index_find_id(&save->next, id) == INDEX_NONE ? written : NULL;
}

static int carry_written(struct save *save, const struct written *written, struct errbuf *err)
{
    struct parsed_record parsed;
    int rc = parsed_record_init(&parsed, written->text, written->len, err);

    if (rc != 0)
        return rc;
    rc = save_spool(save, parsed.filter, INDEX_QUARANTINED | INDEX_WRITTEN | INDEX_TAKEN, err);
    parsed_record_deinit(&parsed);
    return rc;
}

/* What the source does not yield and yet is to stay. */
static int carry_others(struct save *save, struct errbuf *err)
{
    const struct store_index *index = &save->store->index;
    int rc = 0;

    for (size_t i = 0; i < index->count && rc == 0; i++) {
        const struct index_entry *entry = &index->entries[i];
        bool stays = entry->flags & INDEX_QUARANTINED ? !(entry->flags & INDEX_FORGOTTEN) : save->source->keep_unlisted;

        if (stays && index_find_id(&save->next, entry->id) == INDEX_NONE)
            rc = save_carry(save, entry, err);
    }
    for (size_t i = 0; i < save->store->quarantined.nslots && rc == 0; i++) {
        const struct written *written = quarantined_written(save, i);
        if (written && !written->forgotten)
            rc = carry_written(save, written, err);
    }
    return rc;
}

/* The entry of `next` behind `after` that has the directory, or INDEX_NONE. */
static int find_owner(struct save *save, uint64_t dir_hash, const char *dir, uint32_t after, uint32_t *number_out,
                      struct errbuf *err)
{
    uint32_t number = after;

    while ((number = index_find_dir(&save->next, dir_hash, number)) != INDEX_NONE) {
        const struct manifest_filter *filter;
        int rc = save_record(save, &save->next.entries[number], &filter, err);
        if (rc != 0)
            return rc;
        if (strcmp(dir, filter->dir) == 0)
            break;
    }
    *number_out = number;
    return 0;
}

/* No two filters may have one directory. They cannot, unless the source yields two filters of one name; that must not end
 * in a MANIFEST that no start accepts. */
static int check_dirs(struct save *save, struct errbuf *err)
{
    struct store_index *next = &save->next;

    for (uint32_t i = 0; i < next->count; i++) {
        const struct index_entry *entry = &next->entries[i];
        const struct manifest_filter *filter;
        char dir[NAME_DIR_MAX + 1];
        uint32_t other;

        if (entry->flags & (INDEX_DROPPED | INDEX_PACKED) || index_find_dir(next, entry->dir_hash, i) == INDEX_NONE)
            continue;
        int rc = save_record(save, entry, &filter, err);
        if (rc != 0)
            return rc;
        strcpy(dir, filter->dir);
        rc = find_owner(save, entry->dir_hash, dir, i, &other, err);
        if (rc != 0)
            return rc;
        if (other != INDEX_NONE) {
            errbuf_set(err, "two filters want the directory filters/%s", dir);
            return -EINVAL;
        }
    }
    return 0;
}

/* ---- the new MANIFEST --------------------------------------------------------------------------------------------------- */

int save_manifest_error(const struct store *store, int rc, struct errbuf *err)
{
    errbuf_set(err, "%s/MANIFEST.new: cannot write: %s", store->dir, strerror(-rc));
    return rc;
}

static int append_removed(struct save *save, const struct manifest_removed *removed, struct errbuf *err)
{
    int rc = manifest_format_removed(&save->manifest.pending, removed);

    save->nremoved++;
    if (rc == 0)
        rc = record_written(&save->manifest);
    return rc == 0 ? 0 : save_manifest_error(save->store, rc, err);
}

/* The pack stays until the filter has been taken out of it. */
static int write_packed_removed(struct save *save, const struct manifest_removed *removed, struct errbuf *err)
{
    uint32_t slot;
    int rc = packs_slot(save->store, removed->pack, &slot);

    if (rc != 0)
        return save_manifest_error(save->store, rc, err);
    save->store->packs.table[slot].held = true;
    return append_removed(save, removed, err);
}

/* Adds a line, in which who has the directory now is filled in. */
static int write_removed(struct save *save, struct manifest_removed *removed, struct errbuf *err)
{
    const struct manifest_filter *filter;
    char dir[NAME_DIR_MAX + 1];
    uint32_t owner;

    if (removed->pack)
        return write_packed_removed(save, removed, err);
    memcpy(dir, removed->dir, removed->dir_len);
    dir[removed->dir_len] = '\0';
    int rc = find_owner(save, index_dir_hash(&save->next, dir), dir, INDEX_NONE, &owner, err);

    removed->shared = 0;
    removed->owner = 0;
    if (rc == 0 && owner != INDEX_NONE) {
        const struct index_entry *next = &save->next.entries[owner];
        rc = save_record(save, next, &filter, err);
        if (rc == 0) {
            removed->shared = next->nlayers < removed->nlayers ? next->nlayers : removed->nlayers;
            removed->owner = newest_generation(filter);
        }
    }
    if (rc != 0)
        return rc;
    if (!removed->keep && removed->placed == removed->nlayers && removed->shared == removed->nlayers)
        return 0;
    return append_removed(save, removed, err);
}

/* How many layers of the filter have their names, or would replace the file that has: of the save before, as the names
 * were free or the filter's own when this was written; unless they are those of a filter that was given up. */
static unsigned placed_layers(struct save *save, const struct manifest_filter *filter)
{
    bool blocked = finish_is_blocked(save->store, index_dir_hash(&save->store->index, filter->dir));
    uint64_t generation = newest_generation(filter);
    struct fs_stat st;
    struct path path;
    unsigned i;

    for (i = 0; i < filter->nlayers; i++) {
        bool waits = filter->layers[i].generation == generation &&
                     path_temp(save->store, &path, filter->dir, i, generation, NULL) == 0 &&
                     save->fs->stat(save->fs->ctx, path.text, &st) == 0;
        if (waits && (blocked || path_final(save->store, &path, filter->dir, i, NULL) != 0 ||
                      save->fs->stat(save->fs->ctx, path.text, &st) != 0 || st.kind != FS_FILE))
            break;
    }
    return i;
}

static void describe_files(struct manifest_removed *removed, const struct manifest_filter *filter, char dir[])
{
    strcpy(dir, filter->dir);
    removed->id = filter->id;
    removed->dir = dir;
    removed->dir_len = strlen(dir);
    removed->nlayers = filter->nlayers;
    removed->placed = filter->nlayers;
    removed->pack = filter->pack;
    removed->pack_offset = filter->pack_offset;
    for (unsigned i = 0; i < filter->nlayers; i++)
        removed->sizes[i] = filterdb_bytes(filter->layers[i].nwords);
    for (unsigned i = 0; i < filter->nlayers; i++)
        removed->generations[i] = filter->layers[i].generation;
}

/* What becomes of the files of one committed filter that the new save does not need. */
static int remove_entry(struct save *save, const struct index_entry *entry, struct errbuf *err)
{
    struct manifest_removed removed = {.keep = entry->flags & INDEX_FORGOTTEN};
    const struct manifest_filter *filter;
    char dir[NAME_DIR_MAX + 1];
    int rc = record_read(&save->committed, index_offset(entry), &filter, err);

    if (rc != 0)
        return rc;
    describe_files(&removed, filter, dir);
    if (entry->flags & INDEX_UNPLACED)
        removed.placed = placed_layers(save, filter);
    return write_removed(save, &removed, err);
}

static int remove_entries(struct save *save, struct errbuf *err)
{
    const struct store_index *index = &save->store->index;

    for (size_t i = 0; i < index->count; i++) {
        const struct index_entry *entry = &index->entries[i];
        uint32_t number = index_find_id(&save->next, entry->id);
        const struct index_entry *next = number != INDEX_NONE ? &save->next.entries[number] : NULL;

        save->summary->removed += !next;
        /* The usual case, without reading the record: the same files in the same place, or none. */
        if (next && !(next->flags & (INDEX_WRITTEN | INDEX_PACKED)))
            continue;
        if (entry->flags & INDEX_PACKED && !(entry->flags & INDEX_FORGOTTEN))
            continue;
        int rc = remove_entry(save, entry, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int on_filter_unexpected(void *ctx, const struct manifest_filter *filter, uint64_t offset, struct errbuf *err)
{
    (void)ctx, (void)filter, (void)offset, (void)err;
    return -EIO;
}

static int on_pending(void *ctx, const struct manifest_removed *removed, uint64_t offset, struct errbuf *err)
{
    struct manifest_removed copy = *removed;

    (void)offset;
    return write_removed(ctx, &copy, err);
}

/* What earlier saves could not remove. */
static int remove_pending(struct save *save, struct errbuf *err)
{
    struct manifest_sink sink = {.on_filter = on_filter_unexpected, .on_removed = on_pending, .ctx = save};
    struct manifest_parser parser;
    int rc = manifest_parser_init_at(&parser, &sink, 0);

    if (rc == 0)
        rc = manifest_parser_feed(&parser, save->store->pending.ptr, save->store->pending.len, err);
    manifest_parser_deinit(&parser);
    return rc;
}

/* Files of store_write() that could not be loaded after a crash, and were then given up. */
static int remove_written(struct save *save, struct errbuf *err)
{
    int rc = 0;

    for (size_t i = 0; i < save->store->quarantined.nslots && rc == 0; i++) {
        const struct written *written = quarantined_written(save, i);
        struct manifest_removed removed = {.keep = true};
        struct parsed_record parsed;
        char dir[NAME_DIR_MAX + 1];

        if (!written || !written->forgotten)
            continue;
        rc = parsed_record_init(&parsed, written->text, written->len, err);
        if (rc != 0)
            break;
        describe_files(&removed, parsed.filter, dir);
        removed.placed = 0;
        parsed_record_deinit(&parsed);
        rc = write_removed(save, &removed, err);
    }
    return rc;
}

static void fill_header(struct save *save)
{
    struct store *store = save->store;
    struct manifest_save *header = &save->header;

    /* A save has a generation of its own also when it has written no filter: it is known by it. */
    header->generation = atomic_fetch_add(&store->generation, 1) + 1;
    header->log = save->checkpoint.log;
    header->control = save->checkpoint.control;
    header->frame = save->checkpoint.frame;
    header->accepted = save->checkpoint.accepted;
    header->next_id = atomic_load(&store->next_id);
    if (save->source->next_id) {
        uint64_t asked = save->source->next_id(save->source->ctx);
        header->next_id = asked > header->next_id ? asked : header->next_id;
    }
    if (save->max_id >= header->next_id)
        header->next_id = save->max_id + 1;
}

static int write_manifest(struct save *save, struct errbuf *err)
{
    for (size_t i = 0; i < save->next.count; i++) {
        if (save->next.entries[i].flags & INDEX_DROPPED)
            continue;
        save->summary->filters++;
        if (save->next.entries[i].id > save->max_id)
            save->max_id = save->next.entries[i].id;
    }
    if (index_reserve(&save->store->index, save->summary->filters) != 0)
        return save_manifest_error(save->store, -ENOMEM, err);
    fill_header(save);
    int rc = store_check_numbers(&save->header, err);
    if (rc != 0)
        return rc;
    rc = manifest_format_header(&save->manifest.pending, &save->header);
    if (rc == 0)
        rc = record_written(&save->manifest);
    if (rc != 0)
        return save_manifest_error(save->store, rc, err);
    rc = save_write_filters(save, err);
    save->manifest_removed_from = record_writer_offset(&save->manifest);
    if (rc == 0 && save->manifest_removed_from > INDEX_MAX_OFFSET)
        rc = save_manifest_error(save->store, -EFBIG, err);
    if (rc == 0)
        rc = remove_entries(save, err);
    if (rc == 0)
        rc = remove_pending(save, err);
    if (rc == 0)
        rc = remove_written(save, err);
    save->manifest_removed_to = record_writer_offset(&save->manifest);
    if (rc != 0)
        return rc;
    save->manifest_digest = record_writer_digest(&save->manifest);
    rc = manifest_format_end(&save->manifest.pending, save->summary->filters, save->nremoved, save->manifest_digest);
    if (rc == 0)
        rc = record_writer_flush(&save->manifest);
    if (rc == 0)
        rc = save->fs->sync(save->fs->ctx, save->manifest.fd);
    return rc == 0 ? 0 : save_manifest_error(save->store, rc, err);
}

/* ---- the moment itself ---------------------------------------------------------------------------------------------------- */

/* After this failed nobody can tell which MANIFEST a crash would leave. */
static int publish(struct store *store, const char *draft, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    struct path path;
    int rc = path_root(store, &path, "MANIFEST", err);

    if (rc != 0)
        return rc;
    rc = fs->rename(fs->ctx, draft, path.text);
    if (rc == 0)
        rc = fs->sync_dir(fs->ctx, store->dir);
    store->in_doubt = rc != 0;
    if (rc == 0)
        return 0;
    errbuf_set(err, "%s: cannot be replaced: %s; after a crash now either save may be found", path.text, strerror(-rc));
    return STORE_IN_DOUBT;
}

/* The failed save may be what is on disk. Before anything else is written, the save before it is put there once more; so
 * whatever is tried how often, there never are files of more than one save whose fate is unknown. */
int save_end_doubt(struct store *store, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    char buf[16384];
    struct path draft;
    uint64_t offset = 0;
    size_t n = 0;
    int fd = -1;
    int rc = path_root(store, &draft, "MANIFEST.new", err);

    if (rc != 0)
        return rc;
    rc = fs_open_new(fs, draft.text, FS_WRITE, &fd);
    while (rc == 0 && (rc = fs->pread(fs->ctx, store->manifest_fd, buf, sizeof(buf), offset, &n)) == 0 && n > 0) {
        rc = fs_write_all(fs, fd, buf, n, offset);
        offset += n;
    }
    if (rc == 0)
        rc = fs->sync(fs->ctx, fd);
    if (fd >= 0)
        fs->close(fs->ctx, fd);
    rc = rc == 0 ? publish(store, draft.text, err) : save_manifest_error(store, rc, err);
    if (rc != 0)
        return STORE_IN_DOUBT;
    store->leftovers = true;
    return 0;
}

static void forget(struct store *store)
{
    const struct store_index *index = &store->index;

    pthread_mutex_lock(&store->mutex);
    for (size_t i = 0; i < index->count; i++) {
        if (!(index->entries[i].flags & INDEX_FORGOTTEN))
            continue;
        id_map_remove(&store->quarantined, index->entries[i].id);
        id_map_remove(&store->forgotten, index->entries[i].id);
    }
    pthread_mutex_unlock(&store->mutex);
}

static void adopt(struct save *save)
{
    struct store *store = save->store;

    store->fs->close(store->fs->ctx, store->manifest_fd);
    store->manifest_fd = save->manifest.fd;
    store->removed_from = save->manifest_removed_from;
    store->removed_to = save->manifest_removed_to;
    store->save = save->header;
    store->digest = save->manifest_digest;
    atomic_store(&store->next_id, save->header.next_id);
    forget(store);
    save_adopt_index(save);
    packs_adopt(store);
}

/* ---- afterwards ----------------------------------------------------------------------------------------------------------- */

static const struct index_entry *find_entry(const struct store *store, uint64_t id)
{
    uint32_t number = index_find_id(&store->index, id);

    return number != INDEX_NONE ? &store->index.entries[number] : NULL;
}

static bool is_saved(void *ctx, uint64_t id)
{
    return find_entry(ctx, id) != NULL;
}

static bool is_taken(void *ctx, uint64_t id)
{
    const struct index_entry *entry = find_entry(ctx, id);

    return entry && (entry->flags & INDEX_TAKEN);
}

static void finish_save(struct save *save)
{
    struct store *store = save->store;
    struct errbuf reason = {{0}};
    bool removed = finish_removed(store, &reason) == 0;

    if (!removed)
        store_report(store, STORE_WARNING, "%s; this will be tried again", reason.text);
    for (size_t i = 0; i < store->index.count && !removed; i++) {
        struct index_entry *entry = &store->index.entries[i];
        if ((entry->flags & (INDEX_WRITTEN | INDEX_QUARANTINED)) == INDEX_WRITTEN) {
            entry->flags |= INDEX_UNPLACED;
            store->nunplaced++;
        }
    }
    if (removed)
        finish_entries(store, INDEX_WRITTEN, save->sync_all);
    /* Without a table for the ids nothing is known to be superfluous: the next save does it, or the next start. */
    if (index_map(&store->index) == 0)
        written_end(store, is_taken, is_saved, store);
    index_unmap(&store->index);
    for (size_t i = 0; i < store->index.count; i++)
        store->index.entries[i].flags &= INDEX_QUARANTINED | INDEX_UNPLACED | INDEX_PACKED;
    bool swept = packs_sweep(store);
    save->summary->unfinished = !swept || !removed || store->npending > 0 || store->nunplaced > 0;
}

int save_commit(struct save *save, struct errbuf *err)
{
    struct store *store = save->store;
    const struct fsops *fs = save->fs;
    struct path draft;
    int fd = -1;
    int rc = path_root(store, &draft, "MANIFEST.new", err);

    take_forgotten(save);
    if (rc == 0)
        rc = carry_others(save, err);
    if (rc == 0)
        rc = check_dirs(save, err);
    if (rc == 0)
        rc = packs_finish(save, err);
    if (rc == 0 && save->sync_all && (rc = fs->sync_all(fs->ctx, store->lock_fd)) != 0)
        errbuf_set(err, "%s: cannot sync: %s", store->dir, strerror(-rc));
    if (rc != 0)
        return rc;
    rc = fs_open_new(fs, draft.text, FS_READ | FS_WRITE, &fd);
    if (rc != 0)
        return save_manifest_error(store, rc, err);
    save->offsets = calloc(save->next.count + 1, sizeof(*save->offsets));
    if (!save->offsets || record_writer_init(&save->manifest, fs, fd) != 0)
        rc = save_manifest_error(store, -ENOMEM, err);
    if (rc == 0)
        rc = write_manifest(save, err);
    if (rc == 0)
        rc = publish(store, draft.text, err);
    if (rc == 0) {
        adopt(save);
        finish_save(save);
    } else {
        fs->close(fs->ctx, fd);
        if (rc < 0)
            (void)fs->unlink(fs->ctx, draft.text);
    }
    record_writer_deinit(&save->manifest);
    free(save->offsets);
    return rc;
}
