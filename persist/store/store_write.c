/* Single filters that are on disk before a save has them, and filters in quarantine: the map of fates. Records of the
 * former are kept until a save has taken over the files or does not need them; after a crash the log has them. */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "store_internal.h"
#include "store_loader.h"
#include "errbuf.h"
#include "lock.h"

/* ---- records ---- */

static int on_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    (void)err;
    ((struct parsed_record *)ctx)->filter = filter;
    return 0;
}

int parsed_record_init(struct parsed_record *parsed, const char *text, size_t len, struct errbuf *err)
{
    parsed->sink = (struct manifest_sink){.on_filter = on_filter, .ctx = parsed};
    parsed->filter = NULL;
    manifest_parser_init_at(&parsed->parser, &parsed->sink, 0);
    int rc = manifest_parser_feed(&parsed->parser, text, len, err);

    if (rc == -ENOMEM)
        errbuf_set(err, "out of memory");
    if (rc == 0 && (!parsed->filter || buf_len(&parsed->parser.line) > 0 || parsed->parser.nfilters != 1)) {
        errbuf_set(err, "not the record of one filter");
        rc = MANIFEST_DAMAGED;
    }
    if (rc != 0)
        parsed_record_deinit(parsed);
    return rc > 0 ? -EINVAL : rc;
}

void parsed_record_deinit(struct parsed_record *parsed)
{
    manifest_parser_deinit(&parsed->parser);
}

/* ---- the map of fates ---- */

static void fate_free(struct fate *fate)
{
    if (fate)
        free(fate->text);
    free(fate);
}

/* Adds it. `text` NULL: without a record. 0 or -ENOMEM. */
static int fate_new(struct store *store, uint64_t id, enum fate_state state, const char *text, size_t len)
{
    struct fate *fate = calloc(1, sizeof(*fate));

    if (!fate)
        return -ENOMEM;
    fate->id = id;
    fate->state = state;
    fate->len = len;
    if ((!text || (fate->text = malloc(len))) && id_map_set(&store->fates, id, fate) == 0) {
        if (text)
            memcpy(fate->text, text, len);
        return 0;
    }
    fate_free(fate);
    return -ENOMEM;
}

static int add_written(struct store *store, uint64_t id, enum fate_state state, const char *text, size_t len)
{
    lock_take(&store->lock);
    fate_free(id_map_remove(&store->fates, id)); /* the same record again */
    int rc = fate_new(store, id, state, text, len);
    lock_give(&store->lock);
    return rc;
}

enum fate_state fate_state(struct store *store, uint64_t id)
{
    lock_take(&store->lock);
    const struct fate *fate = id_map_get(&store->fates, id);
    enum fate_state state = fate ? fate->state : FATE_SAVED;
    lock_give(&store->lock);
    return state;
}

int fate_quarantine(struct store *store, uint64_t id)
{
    struct fate *fate = id_map_get(&store->fates, id);

    if (!fate)
        return fate_new(store, id, FATE_QUARANTINED, NULL, 0);
    fate->state = FATE_QUARANTINED;
    return 0;
}

struct fate *written_find(struct store *store, uint64_t id)
{
    lock_take(&store->lock);
    struct fate *fate = id_map_get(&store->fates, id);
    lock_give(&store->lock);
    return fate && fate->text ? fate : NULL;
}

int fates_list(struct store *store, struct fate ***list_out, size_t *n_out)
{
    lock_take(&store->lock);
    struct fate **list = malloc((store->fates.count + 1) * sizeof(struct fate *));
    *n_out = 0;
    for (size_t i = 0; list && i < store->fates.nslots; i++) {
        struct fate *fate = store->fates.slots[i].value;
        if (fate && fate->text && fate->state >= FATE_PUBLISHED)
            list[(*n_out)++] = fate;
    }
    lock_give(&store->lock);
    *list_out = list;
    return list ? 0 : -ENOMEM;
}

void fates_drop_saved(struct store *store)
{
    for (size_t i = 0; i < store->fates.nslots;) {
        uint64_t id = store->fates.slots[i].id;
        if (id != 0 && index_get(&store->committed.index, id))
            fate_free(id_map_remove(&store->fates, id)); /* another may be in this slot now */
        else
            i++;
    }
}

void fates_deinit(struct store *store)
{
    for (size_t i = 0; i < store->fates.nslots; i++)
        fate_free(store->fates.slots[i].value);
    id_map_deinit(&store->fates);
}

void store_published(struct store *store, uint64_t id)
{
    lock_take(&store->lock);
    struct fate *fate = id_map_get(&store->fates, id);
    if (fate && fate->state == FATE_PRIVATE)
        fate->state = FATE_PUBLISHED;
    lock_give(&store->lock);
}

void store_quarantine(struct store *store, uint64_t id)
{
    lock_take(&store->lock);
    (void)fate_quarantine(store, id); /* without memory the next start finds it again */
    lock_give(&store->lock);
}

/* ---- around a save ---- */

void fates_begin(struct store *store)
{
    lock_take(&store->lock);
    for (size_t i = 0; i < store->fates.nslots; i++) {
        struct fate *fate = store->fates.slots[i].value;
        if (fate && fate->state == FATE_PUBLISHED)
            fate->state = FATE_DUE;
    }
    lock_give(&store->lock);
}

static void remove_files(struct store *store, const char *text, size_t len)
{
    struct file_list list = {0};
    struct parsed_record parsed;

    /* Without memory the next start removes them. */
    if (parsed_record_init(&parsed, text, len, NULL) == 0 && store_list_files(&list, parsed.filter, NULL) == 0)
        store_remove(store, &list);
    parsed_record_deinit(&parsed);
    file_list_deinit(&list);
}

/* Takes out what the save has settled, from place *at on: false at the end. A filter that the save has is published,
 * though store_published() may not have been called yet; if it is in quarantine, it stays there without its record. */
static bool take_settled(struct store *store, const struct store_index *next, size_t *at, struct fate *settled_out)
{
    for (; *at < store->fates.nslots; ++*at) {
        struct fate *fate = store->fates.slots[*at].value;
        bool saved = fate && index_get(next, fate->id);
        if (!fate || (!saved && fate->state < FATE_DUE))
            continue;
        *settled_out = *fate;
        fate->text = NULL;
        if (saved && fate->state == FATE_QUARANTINED)
            ++*at;
        else
            free(id_map_remove(&store->fates, fate->id));
        return true;
    }
    return false;
}

void fates_end(struct store *store, const struct store_index *next)
{
    struct fate settled;
    size_t at = 0;

    /* One by one, so that no thread waits for the disk under the lock. A removal may move following entries into the
     * gap, and entries at the end of the table to its beginning: the next save visits these again. */
    for (;;) {
        lock_take(&store->lock);
        bool more = take_settled(store, next, &at, &settled);
        lock_give(&store->lock);
        if (!more)
            return;
        const struct index_entry *entry = index_get(next, settled.id);
        if (settled.text && !(entry && entry->flags & INDEX_TAKEN))
            remove_files(store, settled.text, settled.len);
        free(settled.text);
    }
}

/* ---- writing ---- */

static int write_layers(struct store *store, struct layer_io *io, const struct store_item *item,
                        struct manifest_filter *record, bool sync, struct file_list *made, struct errbuf *err)
{
    int rc = 0;

    for (unsigned i = 0; i < record->nlayers && rc == 0; i++)
        rc = store_put_layer(store, io, record, i, item->filter, sync, made, err);
    return rc;
}

/* Writes first, and syncs once. The descriptor is opened before the writes, so that it learns of each failed write. It
 * is not the descriptor of saves: a failure is reported to a descriptor once, and both need the report. */
static int write_layers_at_once(struct store *store, struct layer_io *io, const struct store_item *item,
                                struct manifest_filter *record, struct file_list *made, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    struct path path;
    int fd;
    TRY(path_root(store, &path, FILTERS_DIR, err));
    int rc = fs->open(fs->ctx, path.text, FS_READ, &fd);
    if (rc != 0)
        return errbuf_fail(err, rc, "%s: cannot open: %s", path.text, fs_error_text(rc));
    rc = write_layers(store, io, item, record, false, made, err);
    if (rc == 0 && (rc = fs->sync_all(fs->ctx, fd)) != 0)
        errbuf_set(err, "%s: cannot sync: %s", path.text, fs_error_text(rc));
    fs->close(fs->ctx, fd);
    return rc;
}

static int write_files(struct store *store, const struct store_item *item, struct manifest_filter *record,
                       struct file_list *made, struct errbuf *err)
{
    struct layer_io io;
    int rc = layer_io_init(&io, store->fs, LAYER_IO_MIN_MEMORY);

    if (rc != 0)
        return errbuf_fail(err, rc, "out of memory");
    *record = (struct manifest_filter){
        .id = item->id,
        .name = item->name,
        .name_len = item->name_len,
        .params = *bloom_filter_params(item->filter),
        .expires_ms = item->expires_ms,
        .nlayers = bloom_filter_nlayers(item->filter),
    };
    rc = record->nlayers > STORE_MAX_SINGLE_SYNCS ? write_layers_at_once(store, &io, item, record, made, err)
                                                  : write_layers(store, &io, item, record, true, made, err);
    STEP(rc, store_sync_filters(store, err));
    layer_io_deinit(&io);
    return rc;
}

static int write_filter(struct store *store, const struct store_item *item, struct buf *text, struct errbuf *err)
{
    struct manifest_filter *record = malloc(sizeof(*record));
    struct file_list made = {0};
    int rc = -ENOMEM;

    if (record)
        rc = write_files(store, item, record, &made, err);
    if (rc == 0) {
        manifest_format_filter(text, record);
        rc = buf_failed(text) ? -ENOMEM : 0;
    }
    if (rc == -ENOMEM)
        errbuf_set(err, "out of memory");
    if (rc != 0)
        store_remove(store, &made);
    file_list_deinit(&made);
    free(record);
    return rc;
}

int store_write(struct store *store, const struct store_item *item, struct store_record *record_out, struct errbuf *err)
{
    struct buf text;

    buf_init(&text, SIZE_MAX);
    int rc = write_filter(store, item, &text, err);
    if (rc == 0) {
        rc = add_written(store, item->id, FATE_PRIVATE, text.data, buf_len(&text));
        if (rc != 0)
            remove_files(store, text.data, buf_len(&text));
    }
    if (rc == 0) {
        *record_out = (struct store_record){text.data, buf_len(&text)};
        return 0;
    }
    struct shown_name shown = show_name(item->name, item->name_len);
    if (rc == -ENOMEM)
        errbuf_set(err, "out of memory");
    errbuf_prefix(err, "filter '%s'", shown.text);
    buf_deinit(&text);
    return rc;
}

void store_discard(struct store *store, uint64_t id)
{
    lock_take(&store->lock);
    struct fate *fate = id_map_remove(&store->fates, id);
    lock_give(&store->lock);
    if (fate)
        remove_files(store, fate->text, fate->len);
    fate_free(fate);
}

/* ---- after a crash ---- */

static int record_numbers(const char *record, size_t len, uint64_t *id_out, uint64_t *newest_out, struct errbuf *err)
{
    struct parsed_record parsed;
    int rc = parsed_record_init(&parsed, record, len, err);

    if (rc != 0)
        return rc == -EINVAL ? STORE_DAMAGED : rc;
    *newest_out = manifest_filter_newest(parsed.filter);
    *id_out = parsed.filter->id;
    bool packed = parsed.filter->pack;
    parsed_record_deinit(&parsed);
    if (packed)
        return errbuf_fail(err, STORE_DAMAGED, "not the record of one filter");
    if (*id_out < MANIFEST_MAX_NUMBER / 2 && *newest_out <= MANIFEST_MAX_NUMBER / 2)
        return 0;
    return errbuf_fail(err, STORE_DAMAGED,
                       "the record of a filter has the id %" PRIu64 " and a file with the number %" PRIu64
                       ": out of range",
                       *id_out, *newest_out);
}

int store_record_id(const char *record, size_t len, uint64_t *id_out, struct errbuf *err)
{
    uint64_t newest;

    return record_numbers(record, len, id_out, &newest, err);
}

int store_replay_written(struct store *store, const char *record, size_t len, struct errbuf *err)
{
    uint64_t id, newest;
    TRY(record_numbers(record, len, &id, &newest, err));

    /* Numbers that were given out are not reused, even if the filter is gone. */
    if (newest > atomic_load(&store->number))
        atomic_store(&store->number, newest);
    if (id >= atomic_load(&store->next_id))
        atomic_store(&store->next_id, id + 1);
    int rc = add_written(store, id, FATE_PUBLISHED, record, len);
    return rc == 0 ? 0 : errbuf_fail(err, rc, "out of memory");
}
