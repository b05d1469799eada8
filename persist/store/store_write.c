/* Single filters that are on disk before a save has them. Their records are kept here until a save has taken the files
 * over or no longer needs them; after a crash the log hands the records in again. */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "store_internal.h"
#include "store_loader.h"
#include "try.h"
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
    if (rc == 0 && (!parsed->filter || parsed->parser.line.len > 0 || parsed->parser.nfilters != 1)) {
        errbuf_set(err, "not the record of one filter");
        rc = MANIFEST_DAMAGED;
    }
    if (rc != 0)
        parsed_record_deinit(parsed);
    if (rc == MANIFEST_NEWER) {
        errbuf_prefix(err, WRITTEN_BY_NEWER);
        return STORE_NEWER;
    }
    return rc > 0 ? -EINVAL : rc;
}

void parsed_record_deinit(struct parsed_record *parsed)
{
    manifest_parser_deinit(&parsed->parser);
}

/* ---- states ---- */

void written_advance(struct written *written, enum written_event event)
{
    static const enum written_state next[WRITTEN_STATES][WRITTEN_EVENTS] = {
        /*                        published            a save begins        gone             unreadable given up */
        [WRITTEN_PRIVATE] = {WRITTEN_PUBLISHED, WRITTEN_PRIVATE, WRITTEN_GONE, WRITTEN_STATES, WRITTEN_STATES},
        [WRITTEN_PUBLISHED] = {WRITTEN_PUBLISHED, WRITTEN_DUE, WRITTEN_GONE, WRITTEN_QUARANTINED, WRITTEN_STATES},
        [WRITTEN_DUE] = {WRITTEN_DUE, WRITTEN_DUE, WRITTEN_GONE, WRITTEN_STATES, WRITTEN_STATES},
        [WRITTEN_GONE] = {WRITTEN_GONE, WRITTEN_DUE, WRITTEN_GONE, WRITTEN_STATES, WRITTEN_STATES},
        [WRITTEN_QUARANTINED] = {WRITTEN_QUARANTINED, WRITTEN_QUARANTINED, WRITTEN_QUARANTINED, WRITTEN_QUARANTINED,
                                 WRITTEN_FORGOTTEN},
        [WRITTEN_FORGOTTEN] = {WRITTEN_FORGOTTEN, WRITTEN_FORGOTTEN, WRITTEN_FORGOTTEN, WRITTEN_FORGOTTEN,
                               WRITTEN_FORGOTTEN},
    };

    written->state = next[written->state][event];
    CHECK(written->state != WRITTEN_STATES); /* cannot happen in that state */
}

/* ---- the table ---- */

/* NULL without memory. */
static struct written *written_new(uint64_t id, const char *text, size_t len, enum written_state state)
{
    struct written *written = malloc(sizeof(*written) + len);

    if (written) {
        *written = (struct written){.id = id, .state = state, .len = len};
        memcpy(written->text, text, len);
    }
    return written;
}

static int table_add(struct store *store, struct written *written)
{
    lock_take(&store->lock);
    int rc = id_map_set(&store->written, written->id, written);
    lock_give(&store->lock);
    return rc;
}

static struct written *table_remove(struct store *store, uint64_t id)
{
    lock_take(&store->lock);
    struct written *written = id_map_remove(&store->written, id);
    lock_give(&store->lock);
    return written;
}

struct written *written_find(struct store *store, uint64_t id)
{
    lock_take(&store->lock);
    struct written *written = id_map_get(&store->written, id);
    lock_give(&store->lock);
    return written;
}

void written_deinit(struct store *store)
{
    for (size_t i = 0; i < store->written.nslots; i++)
        free(store->written.slots[i].value);
    id_map_deinit(&store->written);
}

void written_drop(struct store *store, uint64_t id)
{
    free(table_remove(store, id));
}

void store_published(struct store *store, uint64_t id)
{
    lock_take(&store->lock);
    struct written *written = id_map_get(&store->written, id);
    if (written)
        written_advance(written, WRITTEN_IS_PUBLISHED);
    lock_give(&store->lock);
}

/* ---- around a save ---- */

void written_begin(struct store *store)
{
    lock_take(&store->lock);
    for (size_t i = 0; i < store->written.nslots; i++) {
        struct written *written = store->written.slots[i].value;
        if (written)
            written_advance(written, WRITTEN_SAVE_BEGINS);
    }
    lock_give(&store->lock);
}

/* Whether the save has dealt with the filter. A filter yielded to the save is published, though store_published() may
 * not have been called yet. */
static bool is_settled(const struct written *written, const struct store_index *next)
{
    return index_get(next, written->id) || written->state > WRITTEN_PUBLISHED;
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

static void settle(struct store *store, struct written *written, const struct store_index *next)
{
    const struct index_entry *entry = index_get(next, written->id);

    if (written->state == WRITTEN_FORGOTTEN) {
        lock_take(&store->lock);
        id_map_remove(&store->quarantined, written->id);
        id_map_remove(&store->forgotten, written->id);
        lock_give(&store->lock);
    }
    if (!entry || !(entry->flags & INDEX_TAKEN))
        remove_files(store, written->text, written->len);
    free(written);
}

void written_end(struct store *store, const struct store_index *next)
{
    struct written *settled = NULL;
    size_t at = 0;

    /* One by one, so that no thread waits for the disk under the lock. A removal may move following entries into the
     * gap, and entries at the end of the table to its beginning: the next save visits these again. */
    for (;;) {
        lock_take(&store->lock);
        for (settled = NULL; at < store->written.nslots && !settled; at++) {
            struct written *written = store->written.slots[at].value;
            if (written && is_settled(written, next))
                settled = written;
        }
        if (settled)
            id_map_remove(&store->written, store->written.slots[--at].id);
        lock_give(&store->lock);
        if (!settled)
            return;
        settle(store, settled, next);
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
    if (rc != 0) {
        errbuf_set(err, "%s: cannot open: %s", path.text, fs_error_text(rc));
        return rc;
    }
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

    if (rc != 0) {
        errbuf_set(err, "out of memory");
        return rc;
    }
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
    if (rc == 0)
        rc = store_sync_filters(store, err);
    layer_io_deinit(&io);
    return rc;
}

static int write_filter(struct store *store, const struct store_item *item, struct manifest_text *text,
                        struct errbuf *err)
{
    struct manifest_filter *record = malloc(sizeof(*record));
    struct file_list made = {0};
    int rc = -ENOMEM;

    if (record)
        rc = write_files(store, item, record, &made, err);
    if (rc == 0)
        rc = manifest_format_filter(text, record);
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
    struct written *written = NULL;
    struct manifest_text text = {0};
    int rc = write_filter(store, item, &text, err);

    if (rc == 0) {
        written = written_new(item->id, text.ptr, text.len, WRITTEN_PRIVATE);
        rc = written ? table_add(store, written) : -ENOMEM;
        if (rc != 0)
            remove_files(store, text.ptr, text.len);
    }
    if (rc == 0) {
        *record_out = (struct store_record){text.ptr, text.len};
        return 0;
    }
    struct shown_name shown = show_name(item->name, item->name_len);
    if (rc == -ENOMEM)
        errbuf_set(err, "out of memory");
    errbuf_prefix(err, "filter '%s'", shown.text);
    free(written);
    manifest_text_deinit(&text);
    return rc;
}

void store_discard(struct store *store, uint64_t id)
{
    struct written *written = table_remove(store, id);

    if (!written)
        return;
    remove_files(store, written->text, written->len);
    free(written);
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
    if (packed) {
        errbuf_set(err, "not the record of one filter");
        return STORE_DAMAGED;
    }
    if (*id_out < MANIFEST_MAX_NUMBER / 2 && *newest_out <= MANIFEST_MAX_NUMBER / 2)
        return 0;
    errbuf_set(err,
               "the record of a filter has the id %" PRIu64 " and a file with the number %" PRIu64 ": out of range",
               *id_out, *newest_out);
    return STORE_DAMAGED;
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
    struct written *written = written_new(id, record, len, WRITTEN_PUBLISHED);
    int rc = -ENOMEM;
    if (written) {
        free(table_remove(store, id)); /* the same record again */
        rc = table_add(store, written);
    }
    if (rc != 0) {
        errbuf_set(err, "out of memory");
        free(written);
    }
    return rc;
}
