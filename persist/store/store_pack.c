/* The store's table of packs: the packs, the needed bytes of each, and the ones that the next save rewrites.
 *
 * A pack is never changed. When less than half of a pack is needed, the next save writes the rest from memory to a new
 * pack, as if it had changed, and removes the old pack when it is empty. Small packs are merged, so there are never
 * many: each remaining pack is larger than all smaller ones together. So their number is the logarithm of their size,
 * and so is the number of moves of a filter. */
#include "store_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "filterdb.h"
#include "store_save.h"
#include "errbuf.h"

#define PACK_MAX_TAKEN 100 /* names that other programs have taken, until one is free */

static struct file_name pack_file(uint64_t number)
{
    return (struct file_name){.kind = FILE_PACK, .number = number};
}

static int pack_error(const struct store *store, int rc, uint64_t number, const char *what, struct errbuf *err)
{
    const struct file_name name = pack_file(number);
    struct path path;

    if (path_file(store, &path, &name, err) == 0)
        errbuf_set(err, "%s: %s: %s", path.text, what, fs_error_text(rc));
    return rc;
}

/* ---- the table ---- */

/* The slot of the pack, a new one if necessary. 0 or -ENOMEM. */
static int packs_slot(struct store *store, uint64_t number, uint32_t *slot_out)
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
    if (GROW(packs->table, slot, packs->size) != 0)
        return -ENOMEM;
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
    entry->slot = rc == 0 ? slot : 0;
    entry->bytes = (uint32_t)pack_record_bytes(filter->name_len, manifest_filter_bytes(filter));
    return rc;
}

void packs_count(struct store *store)
{
    struct packs *packs = &store->packs;
    const struct store_index *index = &store->committed.index;

    for (size_t i = 0; i < packs->count; i++)
        packs->table[i].live = 0;
    for (size_t i = 0; i < index->count; i++)
        if (index->entries[i].flags & INDEX_PACKED)
            packs->table[index->entries[i].slot].live += index->entries[i].bytes;
}

/* A pack that cannot be checked is reported when its filters are loaded. */
void packs_measure(struct store *store)
{
    struct fs_stat st;
    struct path path;

    for (size_t i = 0; i < store->packs.count; i++) {
        struct pack_use *pack = &store->packs.table[i];
        const struct file_name name = pack_file(pack->number);
        if (pack->number && path_file(store, &path, &name, NULL) == 0 &&
            store->fs->stat(store->fs->ctx, path.text, &st) == 0)
            pack->size = st.size;
    }
}

/* ---- rewriting ---- */

static int compare_live(const void *a, const void *b)
{
    const struct pack_use *const *left = a, *const *right = b;

    return ((*left)->live > (*right)->live) - ((*left)->live < (*right)->live);
}

/* Small packs: up to the last one that is no larger than all smaller ones and the `sum` to be rewritten, together. */
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
    return entry->flags & INDEX_PACKED && store->packs.table[entry->slot].moving;
}

bool packs_keep(struct store *store, const struct index_entry *entry)
{
    if (entry->flags & INDEX_STALE || !packs_is_moving(store, entry))
        return false;
    store->packs.table[entry->slot].kept = true;
    return true;
}

/* ---- writing ---- */

static int begin_pack(struct save *save, struct errbuf *err)
{
    struct store *store = save->store;
    uint64_t number = 0;
    int rc = -EEXIST;

    for (int taken = 0; rc == -EEXIST && taken < PACK_MAX_TAKEN; taken++) {
        const struct file_name name = pack_file(number = store_new_number(store));
        struct path path;
        rc = path_file(store, &path, &name, err);
        STEP(rc, file_list_add(&save->made, &name));
        STEP(rc, pack_writer_open(&save->pack, path.text));
        if (rc == -EEXIST)
            save->made.count--;
    }
    STEP(rc, packs_slot(store, number, &save->pack_slot));
    if (rc != 0)
        return pack_error(store, rc, number, "cannot create", err);
    store->packs.table[save->pack_slot].fresh = true;
    return 0;
}

static int end_pack(struct save *save, struct errbuf *err)
{
    struct pack_use *pack = &save->store->packs.table[save->pack_slot];

    pack->size = pack_writer_size(&save->pack);
    int rc = pack_writer_close(&save->pack);
    return rc == 0 ? 0 : pack_error(save->store, rc, pack->number, "cannot write", err);
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
    TRY(save->pack.fd < 0 ? begin_pack(save, err) : 0);
    record->pack = save->store->packs.table[save->pack_slot].number;
    for (unsigned i = 0; i < record->nlayers; i++)
        record->layers[i].file = 0;
    int rc = pack_append(&save->pack, filter, record);
    if (rc != 0)
        return pack_error(save->store, rc, record->pack, "cannot write", err);
    save->summary->layers_written += record->nlayers;
    save->summary->bytes += manifest_filter_bytes(record);
    return pack_writer_size(&save->pack) >= PACK_FULL_BYTES ? end_pack(save, err) : 0;
}

int packs_finish(struct save *save, struct errbuf *err)
{
    return save->pack.fd >= 0 ? end_pack(save, err) : 0;
}

void packs_abandon(struct store *store)
{
    for (size_t i = 0; i < store->packs.count; i++)
        if (store->packs.table[i].fresh)
            free_slot(&store->packs, &store->packs.table[i]);
}

int packs_adopt(struct store *store, struct file_list *superseded)
{
    int rc = 0;

    packs_count(store);
    for (size_t i = 0; i < store->packs.count; i++) {
        struct pack_use *pack = &store->packs.table[i];
        pack->fresh = false;
        /* The live bytes are of quarantined filters, which cannot be written. */
        pack->stuck = pack->stuck || (pack->moving && !pack->kept && pack->live > 0);
        pack->moving = pack->kept = false;
        if (pack->number == 0 || pack->live > 0)
            continue;
        const struct file_name name = pack_file(pack->number);
        int add_rc = file_list_add(superseded, &name);
        rc = rc != 0 ? rc : add_rc;
        free_slot(&store->packs, pack);
    }
    return rc;
}
