/* Single filters that are on disk before any save knows of them. Their records are kept here until a save has taken the
 * files over or has made them superfluous; after a crash the log hands the records in again.
 *
 * A record is in the table, with its generation, before the first file is made: whoever cleans up spares it. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "store_internal.h"

/* ---- records ----------------------------------------------------------------------------------------------------------- */

static int on_filter(void *ctx, const struct manifest_filter *filter, uint64_t offset, struct errbuf *err)
{
    (void)offset;
    (void)err;
    ((struct parsed_record *)ctx)->filter = filter;
    return 0;
}

int parsed_record_init(struct parsed_record *parsed, const char *text, size_t len, struct errbuf *err)
{
    parsed->sink = (struct manifest_sink){.on_filter = on_filter, .ctx = parsed};
    parsed->filter = NULL;
    int rc = manifest_parser_init_at(&parsed->parser, &parsed->sink, 0);

    if (rc == 0)
        rc = manifest_parser_feed(&parsed->parser, text, len, err);
    if (rc == -ENOMEM)
        errbuf_set(err, "out of memory");
    if (rc == 0 &&
        (!parsed->filter || parsed->filter->pack || parsed->parser.line.len > 0 || parsed->parser.nfilters != 1)) {
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

/* ---- the table ----------------------------------------------------------------------------------------------------------- */

static void written_free(struct written *written)
{
    if (written)
        free(written->text);
    free(written);
}

static int table_add(struct store *store, struct written *written)
{
    pthread_mutex_lock(&store->mutex);
    int rc = id_map_set(&store->written, written->id, written);
    pthread_mutex_unlock(&store->mutex);
    return rc;
}

static struct written *table_remove(struct store *store, uint64_t id)
{
    pthread_mutex_lock(&store->mutex);
    struct written *written = id_map_remove(&store->written, id);
    pthread_mutex_unlock(&store->mutex);
    return written;
}

struct written *written_find(struct store *store, uint64_t id)
{
    pthread_mutex_lock(&store->mutex);
    struct written *written = id_map_get(&store->written, id);
    if (written && !written->text)
        written = NULL;
    pthread_mutex_unlock(&store->mutex);
    return written;
}

void written_deinit(struct store *store)
{
    for (size_t i = 0; i < store->written.nslots; i++)
        written_free(store->written.slots[i].value);
    id_map_deinit(&store->written);
}

void written_drop(struct store *store, uint64_t id)
{
    written_free(table_remove(store, id));
}

void store_published(struct store *store, uint64_t id)
{
    pthread_mutex_lock(&store->mutex);
    struct written *written = id_map_get(&store->written, id);
    if (written)
        written->published = true;
    pthread_mutex_unlock(&store->mutex);
}

/* ---- around a save --------------------------------------------------------------------------------------------------------- */

void written_begin(struct store *store)
{
    pthread_mutex_lock(&store->mutex);
    for (size_t i = 0; i < store->written.nslots; i++) {
        struct written *written = store->written.slots[i].value;
        if (!written)
            continue;
        written->before = written->published;
        written->gone = false;
    }
    pthread_mutex_unlock(&store->mutex);
}

/* Whether the save has dealt with it: it was yielded (so it had been published, whatever the flag says yet), or it had been
 * published before the walk began and was not there any more. */
static bool is_settled(const struct written *written, bool (*saved)(void *ctx, uint64_t id), void *ctx)
{
    return written->text && (saved(ctx, written->id) || written->gone || written->before);
}

static void discard_text(struct store *store, const char *text, size_t len)
{
    struct parsed_record parsed;

    if (parsed_record_init(&parsed, text, len, NULL) != 0) {
        store->leftovers = true;
        return;
    }
    if (!place_discard(store, parsed.filter))
        store->leftovers = true;
    parsed_record_deinit(&parsed);
}

void written_end(struct store *store, bool (*taken)(void *ctx, uint64_t id), bool (*saved)(void *ctx, uint64_t id),
                 void *ctx)
{
    struct written *settled = NULL;
    size_t at = 0;

    /* One by one, so that no disk is waited for under the mutex. A removal may move what follows into the gap, and what is
     * at the end of the table to its beginning: then it is looked at again by the next save. */
    for (;;) {
        pthread_mutex_lock(&store->mutex);
        for (settled = NULL; at < store->written.nslots && !settled; at++) {
            struct written *written = store->written.slots[at].value;
            if (written && is_settled(written, saved, ctx))
                settled = written;
        }
        if (settled)
            id_map_remove(&store->written, store->written.slots[--at].id);
        pthread_mutex_unlock(&store->mutex);
        if (!settled)
            return;
        if (settled->forgotten) {
            pthread_mutex_lock(&store->mutex);
            id_map_remove(&store->quarantined, settled->id);
            id_map_remove(&store->forgotten, settled->id);
            pthread_mutex_unlock(&store->mutex);
        } else if (!taken(ctx, settled->id)) {
            discard_text(store, settled->text, settled->len);
        }
        written_free(settled);
    }
}

/* ---- writing --------------------------------------------------------------------------------------------------------------- */

static int write_layers(struct store *store, const struct store_item *item, struct manifest_filter *record,
                        uint64_t generation, struct errbuf *err)
{
    struct layer_io io;
    int rc = layer_io_init(&io, store->fs, LAYER_IO_MIN_MEMORY);

    if (rc != 0) {
        errbuf_set(err, "out of memory");
        return rc;
    }
    record->nlayers = bloom_filter_nlayers(item->filter);
    for (unsigned i = 0; i < record->nlayers; i++)
        record->layers[i].generation = generation; /* so that a failure half-way finds all that may be there */
    rc = place_make_dir(store, record->dir, NULL, err);
    for (unsigned i = 0; i < record->nlayers && rc == 0; i++)
        rc = place_layer(store, &io, record, i, item->filter, generation, true, err);
    if (rc == 0)
        rc = place_sync(store, record->dir, true, err);
    layer_io_deinit(&io);
    if (rc != 0)
        place_discard(store, record);
    return rc;
}

static int write_filter(struct store *store, const struct store_item *item, uint64_t generation, struct manifest_text *text,
                        struct errbuf *err)
{
    struct manifest_filter *record = calloc(1, sizeof(*record));
    int rc;

    if (!record) {
        errbuf_set(err, "out of memory");
        return -ENOMEM;
    }
    record->id = item->id;
    record->name = item->name;
    record->name_len = item->name_len;
    record->params = *bloom_filter_params(item->filter);
    record->expires_ms = item->expires_ms;
    name_dir(item->name, item->name_len, item->id, record->dir);
    rc = write_layers(store, item, record, generation, err);
    for (unsigned n = 1; rc == PLACE_UNUSABLE && n <= PLACE_MAX_ALTERNATES; n++) {
        name_dir_alternate(item->id, n, record->dir);
        rc = write_layers(store, item, record, generation, err);
    }
    if (rc == PLACE_UNUSABLE)
        rc = -EEXIST;
    if (rc == 0) {
        rc = manifest_format_filter(text, record);
        if (rc != 0) {
            errbuf_set(err, "out of memory");
            place_discard(store, record);
        }
    }
    free(record);
    return rc;
}

int store_write(struct store *store, const struct store_item *item, struct store_record *record_out, struct errbuf *err)
{
    struct shown_name shown = show_name(item->name, item->name_len);
    struct written *written = calloc(1, sizeof(*written));
    struct manifest_text text = {0};
    char *copy = NULL;
    int rc = written ? 0 : -ENOMEM;

    if (rc == 0) {
        written->id = item->id;
        /* Under the mutex, so that a cleaner sees the generation either in the table or above its limit. */
        pthread_mutex_lock(&store->mutex);
        written->generation = atomic_fetch_add(&store->generation, 1) + 1;
        rc = id_map_set(&store->written, written->id, written);
        pthread_mutex_unlock(&store->mutex);
    }
    if (rc != 0) {
        errbuf_set(err, "out of memory");
        free(written);
        return rc;
    }
    rc = write_filter(store, item, written->generation, &text, err);
    if (rc == 0 && !(copy = malloc(text.len))) {
        errbuf_set(err, "out of memory");
        discard_text(store, text.ptr, text.len);
        rc = -ENOMEM;
    }
    if (rc != 0) {
        errbuf_prefix(err, "filter '%s'", shown.text);
        written_free(table_remove(store, item->id));
        manifest_text_deinit(&text);
        return rc;
    }
    memcpy(copy, text.ptr, text.len);
    pthread_mutex_lock(&store->mutex);
    written->text = copy;
    written->len = text.len;
    pthread_mutex_unlock(&store->mutex);
    *record_out = (struct store_record){text.ptr, text.len};
    return 0;
}

void store_discard(struct store *store, uint64_t id)
{
    struct written *written = table_remove(store, id);

    if (!written)
        return;
    discard_text(store, written->text, written->len);
    written_free(written);
}

/* ---- after a crash ----------------------------------------------------------------------------------------------------------- */

static int record_numbers(const char *record, size_t len, uint64_t *id_out, uint64_t *generation_out, struct errbuf *err)
{
    struct parsed_record parsed;
    int rc = parsed_record_init(&parsed, record, len, err);

    if (rc != 0)
        return rc == -EINVAL ? STORE_DAMAGED : rc;
    *generation_out = newest_generation(parsed.filter);
    *id_out = parsed.filter->id;
    parsed_record_deinit(&parsed);
    if (*id_out < MANIFEST_MAX_NUMBER / 2 && *generation_out <= MANIFEST_MAX_NUMBER / 2)
        return 0;
    errbuf_set(err, "the record of a filter has the id %" PRIu64 " and the generation %" PRIu64 ": no directory has seen as many",
               *id_out, *generation_out);
    return STORE_DAMAGED;
}

int store_record_id(const char *record, size_t len, uint64_t *id_out, struct errbuf *err)
{
    uint64_t generation;

    return record_numbers(record, len, id_out, &generation, err);
}

int store_replay_written(struct store *store, const char *record, size_t len, struct errbuf *err)
{
    struct written *written;
    uint64_t id, generation;
    int rc = record_numbers(record, len, &id, &generation, err);

    if (rc != 0)
        return rc;

    /* Numbers that were given out are not given out again, whatever has become of the filter. */
    if (generation > atomic_load(&store->generation))
        atomic_store(&store->generation, generation);
    if (id >= atomic_load(&store->next_id))
        atomic_store(&store->next_id, id + 1);
    written = calloc(1, sizeof(*written));
    char *copy = malloc(len);
    if (written && copy) {
        memcpy(copy, record, len);
        *written = (struct written){.id = id, .generation = generation, .text = copy, .len = len, .published = true};
        written_free(table_remove(store, id)); /* the same record once more */
        rc = table_add(store, written);
    } else {
        rc = -ENOMEM;
    }
    if (rc != 0) {
        errbuf_set(err, "out of memory");
        free(copy);
        free(written);
    }
    return rc;
}
