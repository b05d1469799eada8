/* A save, second part: the records of all filters that have not changed are copied into the new MANIFEST as they are,
 * and it is made valid by renaming it. The save takes place with the rename; then superseded files go. */
#include <errno.h>

#include "store_internal.h"
#include "check.h"
#include "manifest_file.h"
#include "store_save.h"
#include "errbuf.h"
#include "lock.h"

/* ---- which filters ---- */

/* Filters that the source has not yielded are gone, unless it lists only some. */
static int settle_others(struct save *save, struct errbuf *err)
{
    const struct store_index *index = &save->store->committed.index;
    int rc = 0;

    for (size_t i = 0; save->source->keep_unlisted && i < index->count && rc == 0; i++)
        if (!index_get(&save->next, index->entries[i].id))
            rc = save_carry(save, &index->entries[i], err);
    return rc;
}

/* Lists the files of the previous save that this one no longer needs. */
static int find_superseded(struct save *save, struct errbuf *err)
{
    const struct store_index *index = &save->store->committed.index;

    for (size_t i = 0; i < index->count; i++) {
        const struct index_entry *entry = &index->entries[i];
        const struct index_entry *next = index_get(&save->next, entry->id);
        const struct manifest_filter *filter, *by = NULL;
        int rc = 0;

        save->summary->removed += !next;
        /* The usual case, without reading the record: the same files, or none. */
        if (entry->flags & INDEX_PACKED || (next && !(next->flags & (INDEX_WRITTEN | INDEX_PACKED))))
            continue;
        if (next && next->flags & INDEX_WRITTEN)
            rc = save_record(save, next, &by, err);
        STEP(rc, record_read(&save->committed, entry->offset, &filter, err));
        if (rc == 0 && (rc = store_list_files(&save->superseded, filter, by)) != 0)
            errbuf_set(err, "out of memory");
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* ---- the records that have not changed ---- */

/* Reads the committed MANIFEST once from front to back, to find out whether it has changed since it was verified. */
struct copying {
    struct save *save;
    uint64_t from;      /* the start of the stretch */
    bool keep;          /* whether its records are in the new MANIFEST */
    XXH3_state_t *hash; /* of the bytes read */
};

/* The stretch ends at `to`, and one of the other kind begins. */
static int copy_to(struct copying *copying, uint64_t to, bool keep)
{
    int rc = 0;

    if (keep != copying->keep || to == copying->save->store->committed.end_offset) {
        rc = record_copy(&copying->save->manifest, copying->save->store->committed.fd, copying->from, to, copying->keep,
                         copying->hash);
        copying->from = to;
        copying->keep = keep;
    }
    return rc;
}

static bool is_carried(const struct index_entry *entry)
{
    return entry && !(entry->flags & INDEX_NEW);
}

static int copy_carried(struct save *save, XXH3_state_t *hash, struct errbuf *err)
{
    const struct store *store = save->store;
    struct copying copying = {.save = save, .hash = hash};
    uint64_t at = 0;
    int rc = 0;

    for (size_t i = 0; i < store->committed.index.count && rc == 0; i++) {
        const struct index_entry *entry = &store->committed.index.entries[i];
        struct index_entry *next = index_get(&save->next, entry->id);
        if (entry->offset > at)
            rc = copy_to(&copying, at, false);
        STEP(rc, copy_to(&copying, entry->offset, is_carried(next)));
        if (is_carried(next))
            next->offset = record_writer_offset(&save->manifest) + (entry->offset - copying.from);
        at = entry->offset + entry->len;
    }
    STEP(rc, copy_to(&copying, at, false));
    STEP(rc, copy_to(&copying, store->committed.end_offset, false));
    if (rc != 0)
        return save_manifest_error(store, rc, err);
    if (XXH3_64bits_digest(hash) == store->committed.digest)
        return 0;
    return errbuf_fail(err, -EIO, "%s/MANIFEST: has changed since it was verified", store->dir);
}

static int write_carried(struct save *save, struct errbuf *err)
{
    XXH3_state_t *hash = XXH3_createState();
    int rc = hash ? 0 : save_manifest_error(save->store, -ENOMEM, err);

    if (rc == 0) {
        XXH3_64bits_reset(hash);
        rc = copy_carried(save, hash, err);
    }
    XXH3_freeState(hash);
    return rc;
}

/* The index in the order of the new MANIFEST. */
static int order_index(struct save *save, struct store_index *ordered, struct errbuf *err)
{
    const struct store_index *before = &save->store->committed.index, *next = &save->next;
    size_t kept = 0;
    int rc = 0;

    for (size_t i = 0; i < next->count && rc == 0; i++) {
        kept += !(next->entries[i].flags & INDEX_DROPPED);
        if ((next->entries[i].flags & (INDEX_NEW | INDEX_DROPPED)) == INDEX_NEW)
            rc = index_add(ordered, &next->entries[i]);
    }
    for (size_t i = 0; i < before->count && rc == 0; i++) {
        const struct index_entry *entry = index_get(next, before->entries[i].id);
        if (is_carried(entry))
            rc = index_add(ordered, entry);
    }
    CHECK(rc != 0 || ordered->count == kept); /* the new MANIFEST has every filter of the save */
    for (size_t i = 0; i < ordered->count; i++) {
        ordered->entries[i].flags &= INDEX_PACKED;
        if (ordered->entries[i].id > save->max_id)
            save->max_id = ordered->entries[i].id;
    }
    return rc == 0 ? 0 : save_manifest_error(save->store, rc, err);
}

/* ---- the new MANIFEST ---- */

struct commit {
    struct save *save;
    struct committed made; /* to be the store's */
};

static void fill_header(struct commit *commit)
{
    struct save *save = commit->save;
    struct store *store = save->store;
    struct manifest_save *header = &commit->made.save;

    /* A save has its own number also when it has written no filter, because the number identifies the save. */
    header->number = store_new_number(store);
    header->log = save->checkpoint.log;
    header->control = save->checkpoint.control;
    header->frame = save->checkpoint.frame;
    header->accepted = save->checkpoint.accepted;
    header->databases = save->checkpoint.databases;
    header->next_id = atomic_load(&store->next_id);
    if (save->source->next_id) {
        uint64_t asked = save->source->next_id(save->source->ctx);
        header->next_id = asked > header->next_id ? asked : header->next_id;
    }
    if (save->max_id >= header->next_id)
        header->next_id = save->max_id + 1;
    CHECK(header->number > store->committed.save.number && header->next_id >= store->committed.save.next_id);
    CHECK(!header->log || header->log >= store->committed.save.log); /* the segments before it are removed */
}

static int write_manifest(struct commit *commit, struct errbuf *err)
{
    struct save *save = commit->save;
    struct record_writer *manifest = &save->manifest;
    TRY(write_carried(save, err));
    TRY(order_index(save, &commit->made.index, err));
    save->summary->filters = commit->made.index.count;
    fill_header(commit);
    TRY(manifest_check_numbers(&commit->made.save, err));
    manifest_format_save(&manifest->pending, &commit->made.save);
    int rc = record_written(manifest);
    if (rc == 0) {
        commit->made.end_offset = record_writer_offset(manifest);
        commit->made.digest = record_writer_digest(manifest);
        manifest_format_end(&manifest->pending, commit->made.index.count, commit->made.digest);
    }
    STEP(rc, record_writer_flush(manifest));
    STEP(rc, save->fs->sync(save->fs->ctx, manifest->fd));
    return rc == 0 ? 0 : save_manifest_error(save->store, rc, err);
}

/* All that the new MANIFEST will name is on the disk. */
static int sync_files(struct save *save, struct errbuf *err)
{
    struct store *store = save->store;
    int rc = packs_finish(save, err);

    if (rc == 0 && save->sync_all && (rc = save->fs->sync_all(save->fs->ctx, store->lock_fd)) != 0)
        errbuf_set(err, "%s: cannot sync: %s", store->dir, fs_error_text(rc));
    return rc == 0 && save->made.count > 0 ? store_sync_filters(store, err) : rc;
}

/* ---- the commit ---- */

/* After a failure here the MANIFEST that a crash would leave is unknown. */
static int publish(struct store *store, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    struct path draft, path;
    TRY(path_root(store, &draft, "MANIFEST.new", err));
    TRY(path_root(store, &path, MANIFEST_NAME, err));
    int rc = fs->rename(fs->ctx, draft.text, path.text);
    STEP(rc, fs->sync_dir(fs->ctx, store->dir));
    store->in_doubt = rc != 0;
    if (rc == 0)
        return 0;
    return errbuf_fail(err, STORE_IN_DOUBT, "%s: cannot be replaced: %s; after a crash now either save may be found",
                       path.text, fs_error_text(rc));
}

/* The disk may have the failed save. Before any other write, the save before it is put there again. So there are never
 * files of more than one save whose fate is unknown. */
int save_resolve_in_doubt(struct store *store, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    char buf[16384];
    struct path draft;
    uint64_t offset = 0;
    size_t n = 0;
    int fd = -1;
    TRY(path_root(store, &draft, "MANIFEST.new", err));
    int rc = fs_open_new(fs, draft.text, FS_WRITE, &fd);
    while (rc == 0 && (rc = fs->pread(fs->ctx, store->committed.fd, buf, sizeof(buf), offset, &n)) == 0 && n > 0) {
        rc = fs_write_all(fs, fd, buf, n, offset);
        offset += n;
    }
    STEP(rc, fs->sync(fs->ctx, fd));
    if (fd >= 0)
        fs->close(fs->ctx, fd);
    rc = rc == 0 ? store_still_ours(store, err) : save_manifest_error(store, rc, err);
    STEP(rc, publish(store, err));
    if (rc != 0) {
        errbuf_prefix(err, "the failed save cannot be undone");
        return STORE_IN_DOUBT;
    }
    store_remove(store, &store->doubted);
    file_list_deinit(&store->doubted);
    return 0;
}

/* The store takes over the results of the save, and removes the files that it no longer needs. */
static void adopt(struct commit *commit)
{
    struct save *save = commit->save;
    struct store *store = save->store;

    lock_rw_write(&store->reading);
    const struct committed before = store->committed;
    store->committed = commit->made;
    store->committed.fd = save->manifest.fd;
    save->manifest.fd = -1;
    commit->made = before;
    atomic_store(&store->next_id, store->committed.save.next_id);
    if (store->serves)
        (void)index_map(&store->committed.index); /* without memory other threads find it unmapped, and map it */
    lock_rw_give(&store->reading);
    sweep_set_mark(store);
    (void)packs_adopt(store, &save->superseded); /* without memory the next start removes them */
    store_remove(store, &save->superseded);
    fates_end(store, &save->next);
}

int save_commit(struct save *save, struct errbuf *err)
{
    struct commit commit = {.save = save, .made = {.fd = -1, .index.seed = save->store->committed.index.seed}};
    int rc = settle_others(save, err);

    STEP(rc, sync_files(save, err));
    STEP(rc, find_superseded(save, err));
    STEP(rc, write_manifest(&commit, err));
    STEP(rc, store_still_ours(save->store, err));
    STEP(rc, publish(save->store, err));
    if (rc == 0)
        adopt(&commit);
    committed_deinit(save->store, &commit.made);
    return rc;
}
