/* A save, first part: walks the filters of the source, writes the files of changed filters and their records. */
#include <errno.h>

#include "cuckoo.h"
#include "check.h"
#include "store_save.h"
#include "errbuf.h"
#include "lock.h"

#define OTHER_BUFFERS ((uint64_t)1 << 20) /* of the pack, the records, and the buffers of their reads and writes */

/* ---- records ---- */

int save_manifest_error(const struct store *store, int rc, struct errbuf *err)
{
    return errbuf_fail(err, rc, "%s/MANIFEST.new: cannot write: %s", store->dir, fs_error_text(rc));
}

/* A record in memory; valid until the next call. */
static int parse_record(struct save *save, const char *text, size_t len, const struct manifest_filter **filter_out,
                        struct errbuf *err)
{
    parsed_record_deinit(&save->parsed);
    int rc = parsed_record_init(&save->parsed, text, len, err);
    *filter_out = save->parsed.filter;
    return rc;
}

int save_record(struct save *save, const struct index_entry *entry, const struct manifest_filter **filter_out,
                struct errbuf *err)
{
    const struct record_writer *manifest = &save->manifest;

    if (!(entry->flags & INDEX_NEW))
        return record_read(&save->committed, entry->offset, filter_out, err);
    /* Unwritten lines are read from memory: this works on a full disk, too. */
    if (entry->offset >= manifest->offset)
        return parse_record(save, manifest->pending.data + (entry->offset - manifest->offset), entry->len, filter_out,
                            err);
    /* The window may have been read before the file grew, but its bytes have not changed since. */
    return record_read(&save->fresh, entry->offset, filter_out, err);
}

static int add_entry(struct save *save, const struct index_entry *entry, struct errbuf *err)
{
    int rc = index_add(&save->next, entry);

    return rc == 0 ? 0 : errbuf_fail(err, rc, "%s", rc == -ENOMEM ? "out of memory" : "too many filters");
}

/* Makes this save's record of this id void; its files are superseded except for those of `by` (may be NULL). */
static int drop_record(struct save *save, uint64_t id, const struct manifest_filter *by, struct errbuf *err)
{
    struct index_entry *entry = index_get(&save->next, id);
    const struct manifest_filter *filter;
    int rc = 0;

    if (!entry)
        return 0;
    if (entry->flags & INDEX_WRITTEN) {
        rc = save_record(save, entry, &filter, err);
        if (rc == 0 && (rc = store_list_files(&save->superseded, filter, by)) != 0)
            errbuf_set(err, "out of memory");
    }
    if (rc == 0 && entry->flags & INDEX_NEW) {
        manifest_format_gone(&save->manifest.pending, id);
        rc = record_written(&save->manifest);
        if (rc != 0)
            save_manifest_error(save->store, rc, err);
    }
    entry->flags |= INDEX_DROPPED;
    return rc;
}

int save_carry(struct save *save, const struct index_entry *committed, struct errbuf *err)
{
    const struct index_entry *seen = index_get(&save->next, committed->id);
    struct index_entry entry = *committed;
    CHECK(!seen || !(seen->flags & INDEX_WRITTEN)); /* a written filter stays stale until the save ends */
    int rc = drop_record(save, entry.id, NULL, err);

    entry.flags &= INDEX_PACKED;
    return rc != 0 ? rc : add_entry(save, &entry, err);
}

int save_add_record(struct save *save, const struct manifest_filter *filter, unsigned flags, struct errbuf *err)
{
    struct record_writer *manifest = &save->manifest;
    struct index_entry entry = {.id = filter->id, .flags = INDEX_NEW | flags};
    int rc = drop_record(save, filter->id, filter, err);

    if (rc != 0)
        return rc;
    entry.facts = index_facts(&save->next, filter->name, filter->name_len, filter->expires_ms);
    entry.offset = record_writer_offset(manifest);
    if (filter->pack)
        rc = packs_entry(save->store, filter, &entry);
    if (rc == 0) {
        manifest_format_filter(&manifest->pending, filter);
        entry.len = (uint32_t)(record_writer_offset(manifest) - entry.offset);
        rc = record_written(manifest);
    }
    return rc != 0 ? save_manifest_error(save->store, rc, err) : add_entry(save, &entry, err);
}

/* ---- one filter ---- */

/* The current records of a filter, as far as they are known. */
struct present {
    struct index_entry *committed;        /* in the committed MANIFEST; NULL: it is not */
    struct fate *written;                 /* by store_write(); NULL: it was not, or the MANIFEST has it */
    const struct manifest_filter *record; /* the newest one; NULL: none */
    unsigned flags;                       /* of an entry for that record */
    bool clean;                           /* its bits are as the record has them */
};

/* The record that this save has written, or the one before it. */
static int find_record(struct save *save, const struct store_item *item, struct present *present, struct errbuf *err)
{
    const struct index_entry *seen = index_get(&save->next, item->id);

    if (seen && seen->flags & INDEX_NEW) {
        present->flags = seen->flags & (INDEX_WRITTEN | INDEX_TAKEN);
        present->clean = !item->dirty;
        return save_record(save, seen, &present->record, err);
    }
    if (present->committed)
        return record_read(&save->committed, present->committed->offset, &present->record, err);
    if (!present->written)
        return 0;
    present->flags = INDEX_TAKEN;
    return parse_record(save, present->written->text, present->written->len, &present->record, err);
}

/* The files stay; the name and the expiry are those of the item. */
static int keep_files(struct save *save, const struct store_item *item, const struct present *present,
                      struct errbuf *err)
{
    struct manifest_filter *record = &save->record;

    manifest_filter_copy(record, present->record);
    record->name = item->name;
    record->name_len = item->name_len;
    record->expires_ms = item->expires_ms;
    return save_add_record(save, record, present->flags, err);
}

static void begin_record(struct manifest_filter *record, const struct store_item *item, unsigned nlayers)
{
    record->id = item->id;
    record->name = item->name;
    record->name_len = item->name_len;
    record->pack = record->pack_offset = 0;
    record->params = *bloom_filter_params(item->filter);
    record->expires_ms = item->expires_ms;
    record->nlayers = nlayers;
}

/* A layer that is not the newest takes no more items; if its bits are those of its file, the file stays. The checksum
 * tells, not the count, which an add raises before it sets its bits. The newest layer is always written: its number
 * shows which process has counted the filter's items (docs/FORMAT.md, section 12). */
static bool layer_stays(struct save *save, const struct manifest_filter *before, const struct bloom_layer_view *view,
                        unsigned i)
{
    if (!before || before->pack || i + 1 >= before->nlayers || i + 1 >= save->record.nlayers)
        return false;
    return bloom_shape_equal(&before->layers[i].shape, &view->shape) &&
           before->layers[i].xxh3 == layer_digest(&save->io, view);
}

static int write_layer(struct save *save, const struct store_item *item, const struct manifest_filter *before,
                       unsigned i, struct errbuf *err)
{
    struct manifest_layer *layer = &save->record.layers[i];
    struct bloom_layer_view view;

    bloom_filter_layer(item->filter, i, &view);
    const struct bloom_turn turn = bloom_layer_turn(&view); /* before the bits */
    if (layer_stays(save, before, &view, i)) {
        bloom_filter_layer(item->filter, i, &view);
        *layer = before->layers[i];
        layer->items = view.ordinal;
        layer->turn = turn;
        save->record.variant = before->variant;
        return 0;
    }
    if (++save->nsynced > STORE_MAX_SINGLE_SYNCS)
        save->sync_all = true;
    int rc = store_put_layer(save->store, &save->io, &save->record, i, item->filter, !save->sync_all, &save->made, err);
    if (rc == 0) {
        save->summary->layers_written++;
        save->summary->bytes += 8 + 8 * layer->shape.nwords;
    }
    return rc;
}

static int write_filter(struct save *save, const struct store_item *item, const struct present *present,
                        struct errbuf *err)
{
    /* Files that store_write() has made are taken over all together or not at all. */
    const struct manifest_filter *before = present->flags & INDEX_TAKEN ? NULL : present->record;
    int rc = 0;

    begin_record(&save->record, item, bloom_filter_nlayers(item->filter));
    for (unsigned i = 0; i < save->record.nlayers && rc == 0; i++)
        rc = write_layer(save, item, before, i, err);
    return rc != 0 ? rc : save_add_record(save, &save->record, INDEX_WRITTEN, err);
}

/* Keeps the filter's files, or writes them. */
static int put_filter(struct save *save, const struct store_item *item, struct present *present, struct errbuf *err)
{
    struct fate *written = present->written;
    unsigned packed = item->evicted ? 0 : packs_have_room(save, item->filter);

    if (written) {
        written->stale = written->stale || item->dirty;
        present->clean = !written->stale && packed == 0;
    }
    const struct index_entry *seen = index_get(&save->next, item->id);
    bool again = seen && seen->flags & INDEX_NEW && !item->dirty; /* written by this save */
    if (packed > 0 && !present->clean && !again) {
        begin_record(&save->record, item, packed);
        TRY(packs_write(save, item->filter, &save->record, err));
        return save_add_record(save, &save->record, 0, err);
    }
    TRY(find_record(save, item, present, err));
    return present->clean ? keep_files(save, item, present, err) : write_filter(save, item, present, err);
}

/* A cuckoo filter's slots change in both directions: it is written in its state of one moment. */
static int put_still(struct save *save, const struct store_item *item, struct present *present, struct errbuf *err)
{
    struct store_item still = *item;
    TRY(bloom_still_begin(item->filter, &still.filter, err));
    int rc = put_filter(save, &still, present, err);
    bloom_still_end(still.filter);
    return rc;
}

static int save_filter(struct save *save, const struct store_item *item, struct present *present, struct errbuf *err)
{
    struct index_entry *committed = present->committed;

    if (committed) {
        if (item->dirty)
            reading_set_stale(save->store, committed); /* remembered if this save fails */
        present->clean = !(committed->flags & INDEX_STALE) && (!packs_is_moving(save->store, committed) ||
                                                               (item->evicted && packs_keep(save->store, committed)));
        /* Most filters take this path. The order of the walk would read their records all over the file. */
        if (present->clean && committed->facts == index_facts(&save->store->committed.index, item->name, item->name_len,
                                                              item->expires_ms))
            return save_carry(save, committed, err);
    }
    if (item->evicted && !(committed && present->clean))
        return errbuf_fail(err, -EIO, "its bits are neither in memory nor in the last save");
    bool cuckoo = bloom_params_is_cuckoo(bloom_filter_params(item->filter));
    return cuckoo ? put_still(save, item, present, err) : put_filter(save, item, present, err);
}

/* A filter that could not be loaded: its record stays, and so do its files. */
static int save_quarantined(struct save *save, const struct store_item *item, struct present *present,
                            struct errbuf *err)
{
    const struct index_entry *committed = present->committed;

    if (fate_state(save->store, item->id) != FATE_QUARANTINED)
        return 0;
    if (committed &&
        committed->facts == index_facts(&save->store->committed.index, item->name, item->name_len, item->expires_ms))
        return save_carry(save, committed, err);
    int rc = find_record(save, item, present, err);
    return rc != 0 ? rc : keep_files(save, item, present, err);
}

static int save_item(struct save *save, const struct store_item *item, struct errbuf *err)
{
    struct present present = {.committed = index_get(&save->store->committed.index, item->id)};
    int rc;

    if (!present.committed)
        present.written = written_find(save->store, item->id);
    if (item->id > save->max_id)
        save->max_id = item->id;
    if (!item->filter && !item->quarantined) {
        if (present.written) {
            lock_take(&save->store->lock);
            if (present.written->state < FATE_DUE)
                present.written->state = FATE_DUE;
            lock_give(&save->store->lock);
        }
        return drop_record(save, item->id, NULL, err);
    }
    rc = item->quarantined ? save_quarantined(save, item, &present, err) : save_filter(save, item, &present, err);
    if (rc != 0) {
        struct shown_name shown = show_name(item->name, item->name_len);
        errbuf_prefix(err, "filter '%s'", shown.text);
    }
    return rc;
}

/* ---- the save ---- */

static int save_walk(struct save *save, struct errbuf *err)
{
    const struct store_source *source = save->source;

    for (;;) {
        struct store_item item = {0};
        int rc = source->next(source->ctx, &item);

        if (rc < 0)
            errbuf_set(err, "cannot walk the filters: %s", fs_error_text(rc));
        if (rc <= 0)
            return rc;
        rc = save_item(save, &item, err);
        source->release(source->ctx, &item);
        if (rc != 0)
            return rc;
    }
}

static int open_manifest(struct save *save, struct errbuf *err)
{
    struct path path;
    TRY(path_root(save->store, &path, "MANIFEST.new", err));
    int rc = fs_open_new(save->fs, path.text, FS_READ | FS_WRITE, &save->manifest.fd);
    if (rc != 0)
        save->manifest.fd = -1;
    return rc != 0 ? save_manifest_error(save->store, rc, err) : 0;
}

static int save_init(struct save *save, struct errbuf *err)
{
    struct store *store = save->store;
    uint64_t memory = save->source->memory > STORE_MIN_MEMORY ? save->source->memory : STORE_MIN_MEMORY;
    int rc = open_manifest(save, err);

    pack_writer_init(&save->pack, save->fs);
    if (rc != 0)
        return rc;
    save->checkpoint = store_checkpoint(store);
    save->next.seed = store->committed.index.seed;
    rc = record_reader_init(&save->committed, save->fs, store->committed.fd);
    STEP(rc, record_reader_init(&save->fresh, save->fs, save->manifest.fd));
    STEP(rc, record_writer_init(&save->manifest, save->fs, save->manifest.fd));
    if (rc == 0) {
        manifest_format_magic(&save->manifest.pending);
        rc = record_written(&save->manifest);
    }
    STEP(rc, layer_io_init(&save->io, save->fs, memory - OTHER_BUFFERS));
    STEP(rc, packs_choose(store));
    STEP(rc, reading_map(store));
    STEP(rc, index_map(&save->next));
    if (rc != 0)
        errbuf_set(err, "out of memory");
    save->io.wrote = save->pack.wrote = save->source->wrote;
    save->io.wrote_ctx = save->pack.wrote_ctx = save->source->ctx;
    return rc;
}

static void save_deinit(struct save *save)
{
    record_reader_deinit(&save->committed);
    record_reader_deinit(&save->fresh);
    record_writer_deinit(&save->manifest);
    parsed_record_deinit(&save->parsed);
    layer_io_deinit(&save->io);
    pack_writer_deinit(&save->pack);
    index_deinit(&save->next);
    reading_unmap(save->store);
    if (save->manifest.fd >= 0)
        save->fs->close(save->fs->ctx, save->manifest.fd);
    file_list_deinit(&save->made);
    file_list_deinit(&save->superseded);
}

/* Removes its files. After STORE_IN_DOUBT a start may find either save, so the files of both stay. */
static void save_abandon(struct save *save, bool in_doubt)
{
    struct store *store = save->store;
    struct path path;

    packs_abandon(store);
    if (!in_doubt) {
        store_remove(store, &save->made);
        if (path_root(store, &path, "MANIFEST.new", NULL) == 0)
            (void)save->fs->unlink(save->fs->ctx, path.text);
        return;
    }
    for (size_t i = 0; i < save->made.count; i++)
        (void)file_list_add(&store->doubted, &save->made.items[i]); /* otherwise they stay until the next start */
}

static int take_checkpoint(struct save *save, struct errbuf *err)
{
    const struct store_source *source = save->source;

    if (!source->checkpoint)
        return 0;
    errbuf_set(err, "cannot tell where the log continues");
    return source->checkpoint(source->ctx, &save->checkpoint, err);
}

int store_save(struct store *store, const struct store_source *source, struct store_save_summary *summary_out,
               struct errbuf *err)
{
    struct store_save_summary summary = {0};
    struct save save = {.store = store, .fs = store->fs, .source = source, .summary = &summary, .manifest.fd = -1};
    int rc = store_still_ours(store, err);

    if (rc == 0 && store->in_doubt)
        rc = save_resolve_in_doubt(store, err);
    if (rc == 0) {
        fates_begin(store);
        rc = save_init(&save, err);
        STEP(rc, save_walk(&save, err));
        STEP(rc, take_checkpoint(&save, err));
        STEP(rc, save_commit(&save, err));
        if (rc != 0)
            save_abandon(&save, rc == STORE_IN_DOUBT);
        save_deinit(&save);
    }
    if (summary_out)
        *summary_out = summary;
    return rc;
}
