/* A save, first part: walks what the source yields and writes the files of changed filters under temporary names
 * (store_put.c).
 *
 * The records of changed filters go to a spool (MANIFEST.spool), because which of them hold is known only when the walk
 * has ended; the index of the save to be (`next`) says where each record is. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "store_save.h"

#define OTHER_BUFFERS ((uint64_t)1 << 20) /* of the pack, the records, and what is read and written of them at once */

int save_record(struct save *save, const struct index_entry *entry, const struct manifest_filter **filter_out,
                struct errbuf *err)
{
    const struct record_writer *spool = &save->spool;
    uint64_t offset = index_offset(entry);

    if (!(entry->flags & INDEX_SPOOLED))
        return record_read(&save->committed, offset, filter_out, err);
    /* What has not been written yet is read from memory: it must be found on a full disk as well. */
    if (offset >= spool->offset)
        return record_parse(&save->spooled, spool->pending.ptr + (offset - spool->offset),
                            spool->pending.len - (size_t)(offset - spool->offset), filter_out, err);
    /* The window may have been read before the file grew, but what it holds has not changed since. */
    return record_read(&save->spooled, offset, filter_out, err);
}

void save_discard_entry(struct save *save, const struct index_entry *entry)
{
    const struct manifest_filter *filter;

    if ((entry->flags & (INDEX_WRITTEN | INDEX_TAKEN)) != INDEX_WRITTEN)
        return;
    if (save_record(save, entry, &filter, NULL) != 0 || !place_discard(save->store, filter))
        save->store->leftovers = true;
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
        save_discard_entry(save, &save->next.entries[before]);
    return 0;
}

int save_carry(struct save *save, const struct index_entry *committed, struct errbuf *err)
{
    struct index_entry entry = *committed;

    entry.flags &= INDEX_QUARANTINED | INDEX_UNPLACED | INDEX_PACKED;
    return add_entry(save, &entry, err);
}

int save_spool(struct save *save, const struct manifest_filter *filter, unsigned flags, struct errbuf *err)
{
    struct index_entry entry = {
        .id = filter->id, .nlayers = (uint8_t)filter->nlayers, .flags = (uint16_t)(INDEX_SPOOLED | flags)};

    if (!filter->pack)
        entry.dir_hash = index_dir_hash(&save->next, filter->dir);
    entry.facts = index_facts(&save->next, filter->name, filter->name_len, filter->expires_ms);
    index_set_offset(&entry, record_writer_offset(&save->spool));
    int rc = record_writer_offset(&save->spool) < INDEX_MAX_OFFSET ? 0 : -EFBIG;
    if (rc == 0 && filter->pack)
        rc = packs_entry(save->store, filter, &entry);
    if (rc == 0)
        rc = manifest_format_filter(&save->spool.pending, filter);
    if (rc == 0)
        rc = record_written(&save->spool);
    if (rc != 0)
        errbuf_set(err, "%s/MANIFEST.spool: cannot write: %s", save->store->dir, strerror(-rc));
    else
        rc = add_entry(save, &entry, err);
    if (rc != 0 && (flags & (INDEX_WRITTEN | INDEX_TAKEN)) == INDEX_WRITTEN && !place_discard(save->store, filter))
        save->store->leftovers = true;
    return rc;
}

/* ---- one item ---------------------------------------------------------------------------------------------------------- */

/* What is needed of the record must be kept: others are read meanwhile. */
static int set_before(struct target *target, const struct manifest_filter *filter, bool is_final, struct errbuf *err)
{
    const struct store_item *item = target->item;

    if (target->before_name_size < filter->name_len + 1) {
        char *name = realloc(target->before_name, filter->name_len + 1);
        if (!name) {
            errbuf_set(err, "out of memory");
            return -ENOMEM;
        }
        target->before_name = name;
        target->before_name_size = filter->name_len + 1;
    }
    memcpy(target->before_name, filter->name, filter->name_len);
    target->before = *filter;
    target->before.name = target->before_name;
    target->before_is_final = is_final;
    target->same_name = filter->name_len == item->name_len && memcmp(filter->name, item->name, item->name_len) == 0;
    return 0;
}

static void fill_record(struct target *target, const struct store_item *item)
{
    struct manifest_filter *record = &target->record;

    record->id = item->id;
    record->name = item->name;
    record->name_len = item->name_len;
    record->pack = 0;
    record->params = *bloom_filter_params(item->filter);
    record->expires_ms = item->expires_ms;
}

/* The record that there is, under the present name and expiry; files stay where they are. */
static int respool(struct save *save, struct target *target, unsigned flags, struct errbuf *err)
{
    target->record = target->before;
    target->record.name = target->item->name;
    target->record.name_len = target->item->name_len;
    target->record.expires_ms = target->item->expires_ms;
    return save_spool(save, &target->record, flags, err);
}

/* What the MANIFEST has of the filter does not matter. */
static int pack_item(struct save *save, struct target *target, unsigned nlayers, struct errbuf *err)
{
    struct manifest_filter *record = &target->record;

    fill_record(target, target->item);
    record->nlayers = nlayers;
    name_dir(record->name, record->name_len, record->id, record->dir);
    int rc = packs_write(save, target->item->filter, record, err);
    return rc != 0 ? rc : save_spool(save, record, 0, err);
}

static int write_item(struct save *save, struct target *target, bool clean, struct errbuf *err)
{
    unsigned packed = clean ? 0 : packs_have_room(save, target->item->filter);
    int rc = -1;

    if (packed > 0)
        return pack_item(save, target, packed, err);
    fill_record(target, target->item);
    if (clean)
        rc = save_put_files(save, target, true, err);
    if (rc < 0) /* not every file system can link; then it is written */
        rc = save_put_files(save, target, false, err);
    return rc != 0 ? rc : save_spool(save, &target->record, INDEX_WRITTEN, err);
}

/* A filter that the committed MANIFEST has. */
static int save_committed(struct save *save, struct target *target, struct index_entry *committed, struct errbuf *err)
{
    const struct store_item *item = target->item;
    const struct manifest_filter *filter;
    /* Stale also when it was yielded before in this walk, as dirty. */
    bool clean = !item->dirty && !(committed->flags & INDEX_STALE) && !packs_is_moving(save->store, committed);

    /* As most are; and their records, if they were read in the order of the walk, would be anywhere in the file. */
    if (clean && !(committed->flags & INDEX_UNPLACED) &&
        committed->facts == index_facts(&save->store->index, item->name, item->name_len, item->expires_ms))
        return save_carry(save, committed, err);
    unsigned packed = clean ? 0 : packs_have_room(save, item->filter);
    if (packed > 0)
        return pack_item(save, target, packed, err);
    int rc = record_read(&save->committed, index_offset(committed), &filter, err);
    if (rc == 0)
        rc = set_before(target, filter, !(committed->flags & INDEX_UNPLACED), err);
    if (rc != 0)
        return rc;
    target->avoid_dir = !target->before_is_final;
    if (!clean || !target->before_is_final || (!target->same_name && !target->before.pack))
        return write_item(save, target, clean, err);
    return target->same_name && target->before.expires_ms == item->expires_ms ? save_carry(save, committed, err)
                                                                              : respool(save, target, 0, err);
}

/* A filter that store_write() has written. */
static int save_written(struct save *save, struct target *target, struct written *written, struct errbuf *err)
{
    const struct store_item *item = target->item;
    struct parsed_record parsed;
    bool unused;
    int rc = parsed_record_init(&parsed, written->text, written->len, err);

    if (rc == 0) {
        rc = set_before(target, parsed.filter, false, err);
        parsed_record_deinit(&parsed);
    }
    if (rc != 0)
        return rc;
    written->stale = written->stale || item->dirty;
    if (written->stale || packs_have_room(save, item->filter) > 0)
        return write_item(save, target, false, err);
    if (!target->same_name)
        return write_item(save, target, true, err);
    rc = save_claim_dir(save, target, target->before.dir, target->before.nlayers, &unused, err);
    if (rc == 0)
        return respool(save, target, INDEX_WRITTEN | INDEX_TAKEN, err);
    target->avoid_dir = true;
    return rc == PLACE_UNUSABLE ? write_item(save, target, true, err) : rc;
}

/* A filter that could not be loaded: its record stays, and so do its files, wherever they are. */
static int save_quarantined(struct save *save, struct target *target, struct index_entry *committed,
                            struct written *written, struct errbuf *err)
{
    const struct manifest_filter *filter = NULL;
    struct parsed_record parsed = {0};
    int rc = 0;

    if (committed && committed->flags & INDEX_QUARANTINED)
        rc = record_read(&save->committed, index_offset(committed), &filter, err);
    else if (written && written->quarantined && (rc = parsed_record_init(&parsed, written->text, written->len, err)) == 0)
        filter = parsed.filter;
    if (filter && rc == 0)
        rc = set_before(target, filter, true, err);
    if (written)
        parsed_record_deinit(&parsed);
    if (!filter || rc != 0)
        return rc;
    if (committed && target->same_name && target->before.expires_ms == target->item->expires_ms)
        return save_carry(save, committed, err);
    return respool(save, target, committed ? INDEX_QUARANTINED : INDEX_QUARANTINED | INDEX_WRITTEN | INDEX_TAKEN, err);
}

static void save_gone(struct save *save, uint64_t id, struct written *written)
{
    uint32_t seen = index_find_id(&save->next, id);

    if (written)
        written->gone = true;
    if (seen == INDEX_NONE)
        return;
    save->next.entries[seen].flags |= INDEX_DROPPED;
    save_discard_entry(save, &save->next.entries[seen]);
}

static int save_item(struct save *save, const struct store_item *item, struct errbuf *err)
{
    struct store *store = save->store;
    uint32_t number = index_find_id(&store->index, item->id);
    struct index_entry *committed = number != INDEX_NONE ? &store->index.entries[number] : NULL;
    struct written *written = committed ? NULL : written_find(store, item->id);
    struct target *target = save->target;
    int rc;

    if (item->id > save->max_id)
        save->max_id = item->id;
    if (!item->filter && !item->quarantined) {
        save_gone(save, item->id, written);
        return 0;
    }
    target->item = item;
    target->before.nlayers = 0;
    target->before.dir[0] = '\0';
    target->avoid_dir = false;
    if (item->quarantined)
        return save_quarantined(save, target, committed, written, err);
    CHECK(!committed || !(committed->flags & INDEX_QUARANTINED));
    if (item->dirty && committed)
        committed->flags |= INDEX_STALE; /* remembered if this save fails */
    if (committed)
        rc = save_committed(save, target, committed, err);
    else if (written)
        rc = save_written(save, target, written, err);
    else
        rc = write_item(save, target, false, err);
    if (rc != 0) {
        struct shown_name shown = show_name(item->name, item->name_len);
        errbuf_prefix(err, "filter '%s'", shown.text);
    }
    return rc;
}

/* ---- the save -------------------------------------------------------------------------------------------------------------- */

static int save_walk(struct save *save, struct errbuf *err)
{
    const struct store_source *source = save->source;

    for (;;) {
        struct store_item item = {0};
        int rc = source->next(source->ctx, &item);

        if (rc < 0)
            errbuf_set(err, "cannot walk the filters: %s", strerror(-rc));
        if (rc <= 0)
            return rc;
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
    uint64_t memory = save->source->memory > STORE_MIN_MEMORY ? save->source->memory : STORE_MIN_MEMORY;
    int rc = open_spool(save, err);

    pack_writer_init(&save->pack, save->fs);
    if (rc != 0)
        return rc;
    save->checkpoint = store_checkpoint(store);
    save->next.seed = store->index.seed;
    save->target = calloc(1, sizeof(*save->target));
    rc = save->target ? 0 : -ENOMEM;
    if (rc == 0)
        rc = record_reader_init(&save->committed, save->fs, store->manifest_fd);
    if (rc == 0)
        rc = record_reader_init(&save->spooled, save->fs, save->spool_fd);
    if (rc == 0)
        rc = record_writer_init(&save->spool, save->fs, save->spool_fd);
    if (rc == 0)
        rc = layer_io_init(&save->io, save->fs, memory - OTHER_BUFFERS);
    if (rc == 0)
        rc = packs_choose(store);
    if (rc == 0)
        rc = index_map(&store->index);
    if (rc == 0)
        rc = index_map(&save->next);
    if (rc != 0)
        errbuf_set(err, "out of memory");
    save->io.wrote = save->pack.wrote = save->source->wrote;
    save->io.wrote_ctx = save->pack.wrote_ctx = save->source->ctx;
    return rc;
}

static void save_deinit(struct save *save)
{
    struct path path;

    record_reader_deinit(&save->committed);
    record_reader_deinit(&save->spooled);
    record_writer_deinit(&save->spool);
    layer_io_deinit(&save->io);
    pack_writer_deinit(&save->pack);
    index_deinit(&save->next);
    index_unmap(&save->store->index);
    if (save->target)
        free(save->target->before_name);
    free(save->target);
    if (save->spool_fd >= 0) {
        save->fs->close(save->fs->ctx, save->spool_fd);
        if (path_root(save->store, &path, "MANIFEST.spool", NULL) == 0)
            (void)save->fs->unlink(save->fs->ctx, path.text);
    }
}

/* What earlier saves have left to do. */
static int catch_up(struct store *store, struct errbuf *err)
{
    int rc = store->in_doubt ? save_end_doubt(store, err) : 0;

    if (rc == 0)
        rc = finish_again(store, err);
    if (rc == 0 && store->leftovers)
        rc = inventory_clean(store, err);
    if (rc != 0)
        errbuf_prefix(err, "the save before this one cannot be completed");
    return rc;
}

static int take_checkpoint(struct save *save, struct errbuf *err)
{
    const struct store_source *source = save->source;

    if (!source->checkpoint)
        return 0;
    errbuf_set(err, "cannot tell where the log goes on");
    return source->checkpoint(source->ctx, &save->checkpoint, err);
}

int store_save(struct store *store, const struct store_source *source, struct store_save_summary *summary_out,
               struct errbuf *err)
{
    struct store_save_summary summary = {0};
    struct save save = {.store = store, .fs = store->fs, .source = source, .summary = &summary, .spool_fd = -1};
    int rc = catch_up(store, err);

    if (rc == 0) {
        written_begin(store);
        rc = save_init(&save, err);
        if (rc == 0)
            rc = save_walk(&save, err);
        if (rc == 0)
            rc = take_checkpoint(&save, err);
        if (rc == 0)
            rc = save_commit(&save, err);
        /* In doubt both saves may be found, so the files of both have to stay. */
        for (size_t i = 0; i < save.next.count && rc < 0; i++) {
            if (!(save.next.entries[i].flags & INDEX_DROPPED))
                save_discard_entry(&save, &save.next.entries[i]);
        }
        save_deinit(&save);
        if (rc != 0)
            packs_abandon(store, rc == STORE_IN_DOUBT);
    }
    if (summary_out)
        *summary_out = summary;
    return rc;
}
