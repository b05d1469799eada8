/* Reading the bits of filters: of all at a start, and of single ones at any time.
 *
 * A file never changes and goes only when a save does without it, and the next save keeps the files of a filter that
 * has not changed. So it is enough to hold the lock while the record is looked up: the files stay while the filter is
 * away. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

#include "check.h"
#include "filterdb.h"
#include "lock.h"
#include "manifest_file.h"
#include "store_index.h"
#include "store_internal.h"
#include "errbuf.h"

/* ---- the index: an open-addressing table of entry numbers over an array. Nothing is taken out: dropped entries are
 * skipped ---- */

#define MIN_SLOTS 64

uint64_t index_facts(const struct store_index *index, const char *name, size_t len, int64_t expires_ms)
{
    return XXH3_64bits_withSeed(name, len, index->seed ^ ((uint64_t)expires_ms * UINT64_C(0x9e3779b97f4a7c15)));
}

static size_t first_slot(const struct store_index *index, uint64_t id)
{
    return (size_t)(((id ^ index->seed) * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (index->nslots - 1);
}

static void put(const struct store_index *index, uint32_t number)
{
    size_t slot = first_slot(index, index->entries[number].id);

    while (index->by_id[slot] != 0)
        slot = (slot + 1) & (index->nslots - 1);
    index->by_id[slot] = number + 1;
}

static int map_slots(struct store_index *index, size_t nslots)
{
    uint32_t *by_id = calloc(nslots, sizeof(*by_id));

    if (!by_id)
        return -ENOMEM;
    index_unmap(index);
    index->by_id = by_id;
    index->nslots = nslots;
    for (size_t i = 0; i < index->count; i++)
        put(index, (uint32_t)i);
    return 0;
}

int index_map(struct store_index *index)
{
    size_t nslots = MIN_SLOTS;

    if (index->by_id)
        return 0;
    while (nslots / 4 * 3 <= index->count)
        nslots *= 2;
    return map_slots(index, nslots);
}

void index_unmap(struct store_index *index)
{
    free(index->by_id);
    index->by_id = NULL;
    index->nslots = 0;
}

void index_deinit(struct store_index *index)
{
    index_unmap(index);
    free(index->entries);
    *index = (struct store_index){.seed = index->seed};
}

int index_add(struct store_index *index, const struct index_entry *entry)
{
    if (index->count >= UINT32_MAX - 1)
        return -EFBIG;
    if (index->count == index->size) {
        size_t size = index->size ? index->size + index->size / 2 : 16;
        struct index_entry *entries = realloc(index->entries, size * sizeof(*entries));
        if (!entries)
            return -ENOMEM;
        index->entries = entries;
        index->size = size;
    }
    if (index->by_id && index->count + 1 > index->nslots / 4 * 3 && map_slots(index, index->nslots * 2) != 0)
        return -ENOMEM;
    struct index_entry *before = index->by_id ? index_get(index, entry->id) : NULL;
    if (before)
        before->flags |= INDEX_DROPPED;
    index->entries[index->count++] = *entry;
    if (index->by_id)
        put(index, (uint32_t)(index->count - 1));
    return 0;
}

struct index_entry *index_get(const struct store_index *index, uint64_t id)
{
    CHECK(index->by_id);
    for (size_t slot = first_slot(index, id); index->by_id[slot] != 0; slot = (slot + 1) & (index->nslots - 1)) {
        struct index_entry *entry = &index->entries[index->by_id[slot] - 1];
        if (entry->id == id && !(entry->flags & INDEX_DROPPED))
            return entry;
    }
    return NULL;
}

int bits_reader_init(struct bits_reader *reader, struct store *store)
{
    reader->store = store;
    pack_reader_init(&reader->packs, store->fs, store->dir);
    return layer_io_init(&reader->io, store->fs, LAYER_IO_MIN_MEMORY);
}

void bits_reader_deinit(struct bits_reader *reader)
{
    layer_io_deinit(&reader->io);
    pack_reader_deinit(&reader->packs);
}

/* Layers are one after the other. */
static int read_packed_layer(struct bits_reader *reader, const struct manifest_filter *record,
                             const struct bloom_layer_view *view, unsigned i, uint64_t offset, struct errbuf *err)
{
    const unsigned char *bytes;
    size_t size = (size_t)filterdb_bytes(view->shape.nwords);
    TRY(pack_read(&reader->packs, record->pack, offset, size, &bytes, err));
    int rc = layer_decode(bytes, view, record->layers[i].xxh3, err);
    if (rc != 0)
        errbuf_prefix(err, FILTERS_DIR "/%" PRIu64 ".pack: layer %u, at byte %" PRIu64, record->pack, i, offset);
    return rc;
}

static int read_layer(struct bits_reader *reader, const struct manifest_filter *record,
                      const struct bloom_layer_view *view, unsigned i, struct errbuf *err)
{
    const struct file_name name = manifest_layer_file(record, i);
    struct path path;
    TRY(path_file(reader->store, &path, &name, err));
    int rc = layer_read(&reader->io, path.text, view, record->layers[i].xxh3, err);
    if (rc != 0)
        errbuf_prefix(err, "%s", path.text);
    return rc;
}

int bits_read(struct bits_reader *reader, const struct manifest_filter *record, struct bloom_filter *filter,
              struct errbuf *err)
{
    uint64_t offset = record->pack_offset; /* if it is in a pack */
    int rc = 0;

    bloom_filter_expect_fill(filter);
    for (unsigned i = 0; i < record->nlayers && rc == 0; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        rc = record->pack ? read_packed_layer(reader, record, &view, i, offset, err)
                          : read_layer(reader, record, &view, i, err);
        offset += filterdb_bytes(record->layers[i].shape.nwords);
    }
    return rc;
}

/* ---- the index, for other threads ---- */

int reading_map(struct store *store)
{
    lock_rw_write(&store->reading);
    int rc = index_map(&store->committed.index);
    lock_rw_give(&store->reading);
    return rc;
}

void reading_unmap(struct store *store)
{
    lock_rw_write(&store->reading);
    if (!store->serves)
        index_unmap(&store->committed.index);
    lock_rw_give(&store->reading);
}

void reading_set_stale(struct store *store, struct index_entry *entry)
{
    lock_rw_write(&store->reading);
    entry->flags |= INDEX_STALE;
    lock_rw_give(&store->reading);
}

/* Takes the lock to read a mapped index. 0 or -ENOMEM. */
static int begin_reading(struct store *store)
{
    int rc = 0;

    lock_rw_read(&store->reading);
    while (!store->serves || !store->committed.index.by_id) {
        lock_rw_give(&store->reading);
        lock_rw_write(&store->reading);
        store->serves = true;
        rc = index_map(&store->committed.index);
        lock_rw_give(&store->reading);
        if (rc != 0)
            return rc;
        lock_rw_read(&store->reading);
    }
    return 0;
}

static void end_reading(struct store *store)
{
    lock_rw_give(&store->reading);
}

bool store_has_bits(struct store *store, uint64_t id)
{
    if (begin_reading(store) != 0)
        return false;
    const struct index_entry *entry = index_get(&store->committed.index, id);
    bool has = entry && !(entry->flags & INDEX_STALE) && fate_state(store, id) != FATE_QUARANTINED;
    end_reading(store);
    return has;
}

/* ---- one filter ---- */

/* A copy of the filter's record, to be freed. */
static int find_record(struct store *store, uint64_t id, struct manifest_filter **record_out, struct errbuf *err)
{
    const struct manifest_filter *found = NULL;
    struct record_reader reader;
    TRY(begin_reading(store));
    const struct index_entry *entry = index_get(&store->committed.index, id);
    int rc = record_reader_init(&reader, store->fs, store->committed.fd);
    if (rc == 0 && !entry)
        rc = STORE_NOT_FOUND;
    if (rc == 0 && (rc = record_read(&reader, entry->offset, &found, err)) != 0) {
        errbuf_prefix(err, "%s/MANIFEST", store->dir);
        rc = fs_error_passes(rc) ? rc : STORE_DAMAGED;
    }
    if (rc == 0 && (*record_out = malloc(sizeof(**record_out))))
        manifest_filter_copy(*record_out, found);
    else if (rc == 0)
        rc = -ENOMEM;
    record_reader_deinit(&reader);
    end_reading(store);
    return rc;
}

/* The filter has all layers of the record. Further layers are empty: none of their items was acknowledged yet. */
static bool is_of(const struct manifest_filter *record, const struct bloom_filter *filter, struct errbuf *err)
{
    for (unsigned i = 0; i < record->nlayers; i++) {
        struct bloom_layer_view view;
        if (i < bloom_filter_nlayers(filter)) {
            bloom_filter_layer(filter, i, &view);
            if (bloom_shape_equal(&record->layers[i].shape, &view.shape))
                continue;
        }
        return errbuf_fail(err, false, "layer %u in the last save is not the one in memory", i);
    }
    return true;
}

/* 0, STORE_DAMAGED, or an error of the moment. */
static int read_record(struct store *store, const struct manifest_filter *record, struct bloom_filter *filter,
                       struct errbuf *err)
{
    struct bits_reader reader;

    if (!is_of(record, filter, err))
        return STORE_DAMAGED;
    int rc = bits_reader_init(&reader, store);
    STEP(rc, bits_read(&reader, record, filter, err));
    bits_reader_deinit(&reader);
    return rc == 0 || fs_error_passes(rc) ? rc : STORE_DAMAGED;
}

static bool same_files(const struct manifest_filter *a, const struct manifest_filter *b)
{
    bool same = a->pack == b->pack && a->pack_offset == b->pack_offset && a->nlayers == b->nlayers;

    for (unsigned i = 0; same && i < a->nlayers; i++)
        same = a->layers[i].file == b->layers[i].file;
    return same;
}

/* A save moves filters from one pack to another, and removes the first one when the last save lacks its record. */
int store_read_bits(struct store *store, uint64_t id, struct bloom_filter *filter, struct errbuf *err)
{
    struct manifest_filter *record = NULL, *now = NULL;
    bool moved;
    int rc = find_record(store, id, &record, err);

    do {
        STEP(rc, read_record(store, record, filter, err));
        moved = rc == STORE_DAMAGED && record && find_record(store, id, &now, err) == 0 && !same_files(record, now);
        if (moved) {
            free(record);
            record = now;
            now = NULL;
            rc = 0;
        }
    } while (moved);
    free(record);
    free(now);
    if (rc == -ENOMEM)
        errbuf_set(err, "out of memory");
    return rc;
}
