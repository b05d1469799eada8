/* Packs, as the store sees them: which there are, how much of each is still needed, which ones the next save rewrites.
 *
 * A pack is never changed. When less than half of it is needed any more, the next save writes what is into a new one,
 * from memory, as if it had changed, and the old one goes when nothing is in it. Small packs are put together so that
 * there are never many: each one that stays is larger than all smaller ones together, so their number is the logarithm
 * of their size, and so is how often a filter is moved because of it. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "filterdb.h"
#include "store_save.h"

int path_pack(const struct store *store, struct path *path, uint64_t number, struct errbuf *err)
{
    char file[sizeof(PACK_DIR) + PACK_NAME_SIZE] = PACK_DIR "/";

    pack_name(number, file + sizeof(PACK_DIR));
    return path_root(store, path, file, err);
}

static int pack_error(int rc, const char *path, const char *what, struct errbuf *err)
{
    errbuf_set(err, "%s: %s: %s", path, what, strerror(-rc));
    return rc;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

int packs_slot(struct store *store, uint64_t number, uint32_t *slot_out)
{
    struct packs *packs = &store->packs;
    uintptr_t found = (uintptr_t)id_map_get(&packs->slots, number);
    uint32_t slot = 0;

    if (found) {
        *slot_out = (uint32_t)(found - 1);
        return 0;
    }
    if (packs->slots.count == packs->count) /* none is free */
        slot = (uint32_t)packs->count;
    while (slot < packs->count && packs->table[slot].number != 0)
        slot++;
    if (slot == packs->size) {
        size_t size = packs->size ? 2 * packs->size : 16;
        struct pack_use *table = realloc(packs->table, size * sizeof(*table));
        if (!table)
            return -ENOMEM;
        packs->table = table;
        packs->size = size;
    }
    if (id_map_set(&packs->slots, number, (void *)(uintptr_t)(slot + 1)) != 0)
        return -ENOMEM;
    packs->table[slot] = (struct pack_use){.number = number};
    if (slot == packs->count)
        packs->count++;
    *slot_out = slot;
    return 0;
}

static void free_slot(struct packs *packs, struct pack_use *pack)
{
    id_map_remove(&packs->slots, pack->number);
    *pack = (struct pack_use){0};
}

void packs_deinit(struct store *store)
{
    id_map_deinit(&store->packs.slots);
    free(store->packs.table);
}

int packs_entry(struct store *store, const struct manifest_filter *filter, struct index_entry *entry)
{
    uint32_t slot;
    int rc = packs_slot(store, filter->pack, &slot);

    entry->flags |= INDEX_PACKED;
    entry->packed.slot = rc == 0 ? slot : 0;
    entry->packed.bytes = (uint32_t)pack_record_bytes(filter->name_len, manifest_filter_bytes(filter));
    return rc;
}

void packs_count(struct store *store)
{
    struct packs *packs = &store->packs;
    const struct store_index *index = &store->index;

    for (size_t i = 0; i < packs->count; i++)
        packs->table[i].live = 0;
    for (size_t i = 0; i < index->count; i++) {
        if (index->entries[i].flags & INDEX_PACKED)
            packs->table[index->entries[i].packed.slot].live += index->entries[i].packed.bytes;
    }
}

/* What cannot be looked at is a matter of loading the filters in it. */
void packs_measure(struct store *store)
{
    struct fs_stat st;
    struct path path;

    for (size_t i = 0; i < store->packs.count; i++) {
        struct pack_use *pack = &store->packs.table[i];
        if (pack->number && path_pack(store, &path, pack->number, NULL) == 0 &&
            store->fs->stat(store->fs->ctx, path.text, &st) == 0)
            pack->size = st.size;
    }
}

void packs_let_go(struct store *store)
{
    for (size_t i = 0; i < store->packs.count; i++)
        store->packs.table[i].held = false;
}

/* ---- what is rewritten ------------------------------------------------------------------------------------------- */

static int compare_live(const void *a, const void *b)
{
    const struct pack_use *const *left = a, *const *right = b;

    return ((*left)->live > (*right)->live) - ((*left)->live < (*right)->live);
}

/* Those that are small, up to the last one that is no larger than all smaller ones, and the `sum` that is rewritten
 * anyway, together. */
static void choose_small(struct pack_use **small, size_t count, uint64_t sum)
{
    size_t chosen = 0;

    qsort(small, count, sizeof(struct pack_use *), compare_live);
    for (size_t i = 0; i < count; i++) {
        if (small[i]->live <= sum)
            chosen = i + 1;
        sum += small[i]->live;
    }
    for (size_t i = 0; i < chosen; i++)
        small[i]->moving = true;
}

int packs_choose(struct store *store)
{
    struct packs *packs = &store->packs;
    struct pack_use **small = malloc((packs->count + 1) * sizeof(*small));
    uint64_t sum = 0;
    size_t count = 0;

    if (!small)
        return -ENOMEM;
    for (size_t i = 0; i < packs->count; i++) {
        struct pack_use *pack = &packs->table[i];
        pack->moving = !pack->stuck && 2 * pack->live < pack->size;
        sum += pack->moving ? pack->live : 0;
        if (pack->live > 0 && !pack->stuck && !pack->moving && pack->size < PACK_FULL_BYTES / 2)
            small[count++] = pack;
    }
    choose_small(small, count, sum);
    free(small);
    return 0;
}

bool packs_is_moving(const struct store *store, const struct index_entry *entry)
{
    return entry->flags & INDEX_PACKED && store->packs.table[entry->packed.slot].moving;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Its name must be on disk before a MANIFEST that needs it; and one that is there may be there in memory only. */
static int make_pack_dir(struct store *store, struct errbuf *err)
{
    const struct fsops *fs = store->fs;
    struct path path;
    int rc = store->packs.has_dir ? 0 : path_root(store, &path, PACK_DIR, err);

    if (rc != 0 || store->packs.has_dir)
        return rc;
    rc = fs->mkdir(fs->ctx, path.text);
    if (rc != 0 && rc != -EEXIST)
        return pack_error(rc, path.text, "cannot make the directory", err);
    rc = fs->sync_dir(fs->ctx, store->dir);
    if (rc != 0)
        return pack_error(rc, store->dir, "cannot sync", err);
    store->packs.has_dir = true;
    return 0;
}

static int begin_pack(struct save *save, struct errbuf *err)
{
    struct store *store = save->store;
    struct path path;
    uint32_t slot;
    uint64_t number = atomic_fetch_add(&store->generation, 1) + 1;
    int rc = make_pack_dir(store, err);

    if (rc == 0)
        rc = path_pack(store, &path, number, err);
    if (rc != 0)
        return rc;
    rc = packs_slot(store, number, &slot);
    if (rc == 0) {
        store->packs.table[slot].fresh = true;
        rc = pack_writer_open(&save->pack, path.text);
        store->packs.has_dir = rc == 0; /* else somebody may have taken it away, and it is looked at again */
    }
    if (rc != 0)
        return pack_error(rc, path.text, "cannot create", err);
    save->pack_slot = slot;
    return 0;
}

static int end_pack(struct save *save, struct errbuf *err)
{
    struct pack_use *pack = &save->store->packs.table[save->pack_slot];
    struct path path;

    pack->size = pack_writer_size(&save->pack);
    int rc = pack_writer_close(&save->pack);
    if (rc != 0 && path_pack(save->store, &path, pack->number, err) == 0)
        pack_error(rc, path.text, "cannot write", err);
    return rc;
}

unsigned packs_have_room(const struct save *save, const struct bloom_filter *filter)
{
    uint64_t limit = save->source->pack_limit < MANIFEST_MAX_PACKED ? save->source->pack_limit : MANIFEST_MAX_PACKED;
    unsigned nlayers = bloom_filter_nlayers(filter);
    uint64_t bytes = 0;

    for (unsigned i = 0; i < nlayers && bytes <= limit; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        bytes += filterdb_bytes(view.shape.nwords);
    }
    return bytes <= limit ? nlayers : 0;
}

int packs_write(struct save *save, const struct bloom_filter *filter, struct manifest_filter *record,
                struct errbuf *err)
{
    int rc = save->pack.fd < 0 ? begin_pack(save, err) : 0;
    struct path path;

    if (rc != 0)
        return rc;
    record->pack = save->store->packs.table[save->pack_slot].number;
    for (unsigned i = 0; i < record->nlayers; i++)
        record->layers[i].generation = record->pack;
    rc = pack_append(&save->pack, filter, record);
    if (rc != 0 && path_pack(save->store, &path, record->pack, err) == 0)
        pack_error(rc, path.text, "cannot write", err);
    if (rc != 0)
        return rc;
    save->summary->layers_written += record->nlayers;
    save->summary->bytes += manifest_filter_bytes(record);
    return pack_writer_size(&save->pack) >= PACK_FULL_BYTES ? end_pack(save, err) : 0;
}

int packs_finish(struct save *save, struct errbuf *err)
{
    struct store *store = save->store;
    struct path path;
    bool fresh = false;
    int rc = save->pack.fd >= 0 ? end_pack(save, err) : 0;

    for (size_t i = 0; i < store->packs.count; i++)
        fresh = fresh || store->packs.table[i].fresh;
    if (rc != 0 || !fresh)
        return rc;
    rc = path_root(store, &path, PACK_DIR, err);
    if (rc != 0)
        return rc;
    rc = store->fs->sync_dir(store->fs->ctx, path.text);
    return rc == 0 ? 0 : pack_error(rc, path.text, "cannot sync", err);
}

void packs_abandon(struct store *store, bool in_doubt)
{
    for (size_t i = 0; i < store->packs.count; i++) {
        struct pack_use *pack = &store->packs.table[i];
        struct path path;

        if (!pack->fresh)
            continue;
        if (!in_doubt && path_pack(store, &path, pack->number, NULL) == 0) {
            int rc = store->fs->unlink(store->fs->ctx, path.text);
            if (rc != 0 && rc != -ENOENT)
                store->leftovers = true;
        }
        free_slot(&store->packs, pack);
    }
}

/* ---- what is not needed any more --------------------------------------------------------------------------------- */

void packs_adopt(struct store *store)
{
    packs_count(store);
    for (size_t i = 0; i < store->packs.count; i++) {
        struct pack_use *pack = &store->packs.table[i];
        pack->fresh = false;
        /* Of quarantined filters, which nobody can write. */
        pack->stuck = pack->stuck || (pack->moving && pack->live > 0);
        pack->moving = false;
    }
}

bool packs_sweep(struct store *store)
{
    bool clean = true;

    for (size_t i = 0; i < store->packs.count; i++) {
        struct pack_use *pack = &store->packs.table[i];
        struct path path;

        if (pack->number == 0 || pack->live > 0 || pack->held)
            continue;
        int rc = path_pack(store, &path, pack->number, NULL);
        if (rc == 0)
            rc = store->fs->unlink(store->fs->ctx, path.text);
        if (rc == 0 || rc == -ENOENT || rc == -ENOTDIR) {
            free_slot(&store->packs, pack);
            continue;
        }
        clean = false;
        store_report(store, STORE_WARNING, "%s: cannot be removed: %s; this will be tried again", path.text,
                     strerror(-rc));
    }
    return clean;
}
