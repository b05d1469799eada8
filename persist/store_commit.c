/* A save, second part: composes the new MANIFEST from the records of the spool and those carried over, makes it valid by
 * renaming it, and then puts the files into place. The rename is the moment at which the save takes place. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store_internal.h"

/* ---- which filters ----------------------------------------------------------------------------------------------------- */

static void take_forgotten(struct store *store)
{
    pthread_mutex_lock(&store->mutex);
    for (size_t i = 0; i < store->forgotten.count; i++) {
        uint32_t number = index_find_id(&store->index, store->forgotten.ids[i]);
        if (number != INDEX_NONE)
            store->index.entries[number].flags |= INDEX_FORGOTTEN;
    }
    pthread_mutex_unlock(&store->mutex);
}

/* What the source does not yield and yet is to stay. */
static int carry_others(struct save *save, struct errbuf *err)
{
    const struct store_index *index = &save->store->index;

    for (size_t i = 0; i < index->count; i++) {
        const struct index_entry *entry = &index->entries[i];
        bool stays = entry->flags & INDEX_QUARANTINED ? !(entry->flags & INDEX_FORGOTTEN) : save->source->keep_unlisted;

        if (!stays || index_find_id(&save->next, entry->id) != INDEX_NONE)
            continue;
        int rc = save_carry(save, entry, 0, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* Takes an entry out of the save: the filter falls back to its committed record, if it has one. */
static int demote(struct save *save, uint32_t number, const char *dir, struct errbuf *err)
{
    struct index_entry *entry = &save->next.entries[number];
    const struct store_index *index = &save->store->index;
    uint32_t committed = index_find_id(index, entry->id);
    const struct manifest_filter *filter;
    struct errbuf reason;
    int rc = save_record(save, entry, &filter, err);

    if (rc != 0)
        return rc;
    errbuf_set(&reason, "%s/filters/%s belongs to another filter", save->store->dir, dir);
    save_refused(save, filter, &reason);
    entry->flags |= INDEX_DROPPED;
    save_discard_files(save, entry);
    return committed == INDEX_NONE ? 0 : save_carry(save, &index->entries[committed], INDEX_STALE, err);
}

static int next_dir(struct save *save, const struct index_entry *entry, char dir[NAME_DIR_MAX + 1], struct errbuf *err)
{
    const struct manifest_filter *filter;
    int rc = save_record(save, entry, &filter, err);

    if (rc == 0)
        name_dir(filter->name, filter->name_len, dir);
    return rc;
}

static bool is_committed_record(const struct save *save, const struct index_entry *entry)
{
    const struct store_index *index = &save->store->index;
    uint32_t number = index_find_id(index, entry->id);

    return number != INDEX_NONE && index->entries[number].dir_hash == entry->dir_hash;
}

/* Two filters may want one directory: a filter that could not be saved under its new name keeps the old one, which
 * somebody else may have taken meanwhile; or two long names have one hash. The directory stays whose it was; the other
 * falls back to what it was, which may be in somebody's way again: such entries are added behind and looked at in turn.
 * Every filter falls back at most once, and the committed records do not collide among each other. */
static int settle_entry(struct save *save, uint32_t number, struct errbuf *err)
{
    struct index_entry entry = save->next.entries[number];
    uint32_t other = index_find_dir(&save->next, entry.dir_hash, INDEX_NONE);
    char dir[NAME_DIR_MAX + 1], other_dir[NAME_DIR_MAX + 1];

    for (; other != INDEX_NONE; other = index_find_dir(&save->next, entry.dir_hash, other)) {
        if (other == number)
            continue;
        int rc = next_dir(save, &entry, dir, err);
        if (rc == 0)
            rc = next_dir(save, &save->next.entries[other], other_dir, err);
        if (rc != 0)
            return rc;
        if (strcmp(dir, other_dir) != 0)
            continue;
        return demote(save, is_committed_record(save, &entry) ? other : number, dir, err);
    }
    return 0;
}

static int settle(struct save *save, struct errbuf *err)
{
    for (uint32_t i = 0; i < save->next.count; i++) {
        int rc = save->next.entries[i].flags & INDEX_DROPPED ? 0 : settle_entry(save, i, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* ---- the new MANIFEST --------------------------------------------------------------------------------------------------- */

static int manifest_error(const struct save *save, int rc, struct errbuf *err)
{
    errbuf_set(err, "%s/MANIFEST.new: cannot write: %s", save->store->dir, strerror(-rc));
    return rc;
}

static int write_filters(struct save *save, struct errbuf *err)
{
    for (size_t i = 0; i < save->next.count; i++) {
        struct index_entry *entry = &save->next.entries[i];
        const struct manifest_filter *filter;

        if (entry->flags & INDEX_DROPPED)
            continue;
        int rc = save_record(save, entry, &filter, err);
        if (rc != 0)
            return rc;
        save->offsets[i] = record_writer_offset(&save->manifest);
        rc = manifest_format_filter(&save->manifest.pending, filter);
        if (rc == 0)
            rc = record_written(&save->manifest);
        if (rc != 0)
            return manifest_error(save, rc, err);
        save->summary->filters++;
        if (filter->id > save->max_id)
            save->max_id = filter->id;
    }
    return 0;
}

/* The entry of `next` that has the directory, or INDEX_NONE. */
static int find_owner(struct save *save, uint64_t dir_hash, const char *dir, uint32_t *number_out, struct errbuf *err)
{
    char owner_dir[NAME_DIR_MAX + 1];
    uint32_t number = INDEX_NONE;

    while ((number = index_find_dir(&save->next, dir_hash, number)) != INDEX_NONE) {
        int rc = next_dir(save, &save->next.entries[number], owner_dir, err);
        if (rc != 0)
            return rc;
        if (strcmp(dir, owner_dir) == 0)
            break;
    }
    *number_out = number;
    return 0;
}

static uint64_t newest_generation(const struct manifest_filter *filter)
{
    uint64_t newest = 0;

    for (unsigned i = 0; i < filter->nlayers; i++)
        newest = filter->layers[i].generation > newest ? filter->layers[i].generation : newest;
    return newest;
}

/* What becomes of the files of one committed filter that the new save does not need. */
static int write_removed(struct save *save, const struct index_entry *entry, uint64_t *nremoved, struct errbuf *err)
{
    const struct manifest_filter *filter;
    char dir[NAME_DIR_MAX + 1];
    struct manifest_removed removed = {
        .keep = entry->flags & INDEX_FORGOTTEN, .id = entry->id, .dir = dir, .nlayers = entry->nlayers};
    uint32_t owner;
    int rc = record_read(&save->committed, index_offset(entry), &filter, err);

    if (rc != 0)
        return rc;
    name_dir(filter->name, filter->name_len, dir);
    removed.dir_len = strlen(dir);
    rc = find_owner(save, entry->dir_hash, dir, &owner, err);
    if (rc == 0 && owner != INDEX_NONE) {
        const struct index_entry *next = &save->next.entries[owner];
        rc = save_record(save, next, &filter, err);
        if (rc != 0)
            return rc;
        removed.shared = next->nlayers < entry->nlayers ? next->nlayers : entry->nlayers;
        removed.generation = newest_generation(filter);
    }
    if (rc != 0 || (!removed.keep && removed.shared == removed.nlayers))
        return rc;
    ++*nremoved;
    rc = manifest_format_removed(&save->manifest.pending, &removed);
    if (rc == 0)
        rc = record_written(&save->manifest);
    return rc == 0 ? 0 : manifest_error(save, rc, err);
}

static int write_all_removed(struct save *save, uint64_t *nremoved, struct errbuf *err)
{
    const struct store_index *index = &save->store->index;

    save->manifest_removed_from = record_writer_offset(&save->manifest);
    for (size_t i = 0; i < index->count; i++) {
        const struct index_entry *entry = &index->entries[i];
        uint32_t number = index_find_id(&save->next, entry->id);
        const struct index_entry *next = number != INDEX_NONE ? &save->next.entries[number] : NULL;

        save->summary->removed += !next;
        /* The usual case, without reading the record: the same filter in the same place. A hash that is the same by
         * chance makes no difference: then the directories are compared below. */
        if (next && !(next->flags & INDEX_WRITTEN) && next->nlayers == entry->nlayers)
            continue;
        int rc = write_removed(save, entry, nremoved, err);
        if (rc != 0)
            return rc;
    }
    save->manifest_removed_to = record_writer_offset(&save->manifest);
    return 0;
}

static int write_manifest(struct save *save, struct errbuf *err)
{
    struct store *store = save->store;
    uint64_t next_id = atomic_load(&store->next_id);
    uint64_t nremoved = 0;

    if (save->source->next_id) {
        uint64_t asked = save->source->next_id(save->source->ctx);
        next_id = asked > next_id ? asked : next_id;
    }
    if (save->max_id >= next_id)
        next_id = save->max_id + 1;
    /* A save has a generation of its own also when it has written no filter: it is known by it. */
    int rc = manifest_format_header(&save->manifest.pending, ++store->generation, next_id);
    if (rc == 0)
        rc = record_written(&save->manifest);
    if (rc != 0)
        return manifest_error(save, rc, err);
    rc = write_filters(save, err);
    if (rc == 0)
        rc = write_all_removed(save, &nremoved, err);
    if (rc != 0)
        return rc;
    rc = manifest_format_end(&save->manifest.pending, save->summary->filters, nremoved,
                             record_writer_digest(&save->manifest));
    if (rc == 0)
        rc = record_writer_flush(&save->manifest);
    if (rc == 0)
        rc = save->fs->sync(save->fs->ctx, save->manifest.fd);
    if (rc != 0)
        return manifest_error(save, rc, err);
    atomic_store(&store->next_id, next_id);
    return 0;
}

/* ---- the moment itself ---------------------------------------------------------------------------------------------------- */

/* After this failed nobody can tell which MANIFEST a crash would leave. */
static int publish(struct save *save, const char *draft, struct errbuf *err)
{
    const struct fsops *fs = save->fs;
    struct path path;
    int rc = path_root(save->store, &path, "MANIFEST", err);

    if (rc != 0)
        return rc;
    rc = fs->rename(fs->ctx, draft, path.text);
    if (rc == 0)
        rc = fs->sync_dir(fs->ctx, save->store->dir);
    if (rc == 0)
        return 0;
    errbuf_set(err, "%s: cannot be replaced: %s; after a crash now either save may be found", path.text, strerror(-rc));
    return STORE_IN_DOUBT;
}

static void adopt(struct save *save)
{
    struct store *store = save->store;
    struct store_index old = store->index;
    struct index_entry *entries = save->next.entries;
    size_t kept = 0;

    store->fs->close(store->fs->ctx, store->manifest_fd);
    store->manifest_fd = save->manifest.fd;
    store->removed_from = save->manifest_removed_from;
    store->removed_to = save->manifest_removed_to;

    index_unmap(&save->next);
    for (size_t i = 0; i < save->next.count; i++) {
        if (entries[i].flags & INDEX_DROPPED)
            continue;
        index_set_offset(&entries[i], save->offsets[i]);
        entries[kept++] = entries[i];
    }
    save->next.count = kept;
    store->index = save->next;
    save->next = (struct store_index){0};
    atomic_store(&store->count, kept);

    pthread_mutex_lock(&store->mutex);
    for (size_t i = 0; i < old.count; i++) {
        if (!(old.entries[i].flags & INDEX_FORGOTTEN))
            continue;
        struct id_list *lists[] = {&store->quarantined, &store->forgotten};
        for (int l = 0; l < 2; l++) {
            for (size_t j = 0; j < lists[l]->count; j++) {
                if (lists[l]->ids[j] == old.entries[i].id)
                    lists[l]->ids[j] = lists[l]->ids[--lists[l]->count];
            }
        }
    }
    pthread_mutex_unlock(&store->mutex);
    index_deinit(&old);
}

/* ---- afterwards ----------------------------------------------------------------------------------------------------------- */

static int place_filter(struct save *save, struct record_reader *reader, const struct index_entry *entry,
                        struct errbuf *err)
{
    struct store *store = save->store;
    const struct manifest_filter *filter;
    char dir[NAME_DIR_MAX + 1];
    struct path path;
    int rc = record_read(reader, index_offset(entry), &filter, err);

    if (rc == 0)
        rc = finish_filter(store, filter, save->first_generation, err);
    if (rc != 0 || save->sync_all)
        return rc;
    name_dir(filter->name, filter->name_len, dir);
    rc = path_dir(store, &path, dir, err);
    if (rc != 0)
        return rc;
    rc = store->fs->sync_dir(store->fs->ctx, path.text);
    if (rc != 0)
        errbuf_set(err, "%s: cannot sync: %s", path.text, strerror(-rc));
    return rc;
}

/* finish_all() for the filters of this save only. */
static int place_files(struct save *save, struct errbuf *err)
{
    struct store *store = save->store;
    struct record_reader reader;
    int rc = finish_removed(store, err);

    if (rc != 0)
        return rc;
    rc = record_reader_init(&reader, store->fs, store->manifest_fd);
    if (rc != 0)
        errbuf_set(err, "out of memory");
    for (size_t i = 0; i < store->index.count && rc == 0; i++) {
        if (store->index.entries[i].flags & INDEX_WRITTEN)
            rc = place_filter(save, &reader, &store->index.entries[i], err);
    }
    record_reader_deinit(&reader);
    if (rc == 0 && save->sync_all) {
        rc = store->fs->sync_all(store->fs->ctx, store->lock_fd);
        if (rc != 0)
            errbuf_set(err, "%s: cannot sync: %s", store->dir, strerror(-rc));
    }
    return rc;
}

static void finish_save(struct save *save)
{
    struct store *store = save->store;
    struct errbuf reason;

    store->unfinished = place_files(save, &reason) != 0;
    for (size_t i = 0; i < store->index.count; i++)
        store->index.entries[i].flags &= INDEX_QUARANTINED | INDEX_STALE;
    save->summary->unfinished = store->unfinished;
    if (store->unfinished)
        store_report(store, STORE_WARNING, "the save has taken place, but files are not in place yet: %s; this will be "
                     "tried again", reason.text);
}

int save_commit(struct save *save, struct errbuf *err)
{
    struct store *store = save->store;
    const struct fsops *fs = save->fs;
    struct path draft;
    int fd = -1;
    int rc = path_root(store, &draft, "MANIFEST.new", err);

    take_forgotten(store);
    if (rc == 0)
        rc = carry_others(save, err);
    if (rc == 0)
        rc = settle(save, err);
    if (rc == 0 && save->sync_all && (rc = fs->sync_all(fs->ctx, store->lock_fd)) != 0)
        errbuf_set(err, "%s: cannot sync: %s", store->dir, strerror(-rc));
    if (rc != 0)
        return rc;
    rc = fs->open(fs->ctx, draft.text, FS_READ | FS_WRITE | FS_CREATE | FS_TRUNCATE, &fd);
    if (rc != 0)
        return manifest_error(save, rc, err);
    save->offsets = calloc(save->next.count + 1, sizeof(*save->offsets));
    if (!save->offsets || record_writer_init(&save->manifest, fs, fd) != 0)
        rc = manifest_error(save, -ENOMEM, err);
    if (rc == 0)
        rc = write_manifest(save, err);
    if (rc == 0)
        rc = publish(save, draft.text, err);
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
