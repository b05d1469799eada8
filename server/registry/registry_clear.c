/* Removing all filters, or all of one database, at one moment. */
#include <errno.h>
#include <stdlib.h>

#include "registry_internal.h"

/* What a database had. */
struct cleared {
    struct table *tables[SHARD_COUNT];
    struct expiry_heap expiring; /* the aliases in it are in the tables */
};

static void give_up_quarantined(struct registry *r, const struct table *table)
{
    for (uint64_t i = 0; i < table->size; i++) {
        uint64_t slot = atomic_load_explicit(&table->slots[i], memory_order_relaxed);
        if (slot_holds_entry(slot))
            registry_give_up(r, slot_entry(slot));
    }
}

/* Under the mutex: takes everything out. `one_by_one`: filters in quarantine are given up, which the caller otherwise
 * does for all of them. Returns how many filters there were. */
static size_t take_all(struct registry *r, struct keyspace *space, bool one_by_one, struct cleared *cleared)
{
    size_t removed = 0;
    for (unsigned s = 0; s < SHARD_COUNT; s++) {
        struct table *table = atomic_exchange(&space->shards[s], NULL);
        cleared->tables[s] = table;
        if (!table)
            continue;
        removed += table->used;
        walk_note_cleared(r, table);
        if (one_by_one)
            give_up_quarantined(r, table);
    }
    name_index_clear(&space->names);
    cleared->expiring = space->expiring;
    space->expiring = (struct expiry_heap){0};
    return removed;
}

/* Without the mutex: it may take long. */
static void reclaim(struct registry *r, struct cleared *cleared)
{
    for (unsigned s = 0; s < SHARD_COUNT; s++)
        if (cleared->tables[s])
            registry_reclaim_table(r, cleared->tables[s]);
    expiry_heap_deinit(&cleared->expiring);
}

int registry_clear(struct registry *r, size_t *removed_out)
{
    pthread_mutex_lock(&r->lock);
    unsigned n = r->nin_use;
    struct cleared *cleared = calloc(n, sizeof(*cleared));
    size_t removed = 0;
    if (cleared) {
        for (unsigned i = 0; i < n; i++)
            removed += take_all(r, r->in_use[i], false, &cleared[i]);
        registry_count_times(r);
        registry_note_due(r);
        while (r->first_quarantined)
            registry_give_up(r, r->first_quarantined);
        registry_tell(r, &(struct registry_effect){.kind = REGISTRY_CLEARED, .count = removed});
    }
    pthread_mutex_unlock(&r->lock);
    if (!cleared)
        return -ENOMEM;
    for (unsigned i = 0; i < n; i++)
        reclaim(r, &cleared[i]);
    free(cleared);
    *removed_out = removed;
    return 0;
}

int registry_database_clear(struct registry *r, unsigned database, size_t *removed_out)
{
    struct cleared *cleared = calloc(1, sizeof(*cleared));
    struct keyspace *space = registry_space(r, database);
    *removed_out = 0;
    if (cleared && space) {
        pthread_mutex_lock(&r->lock);
        *removed_out = take_all(r, space, registry_quarantined(r) > 0, cleared);
        registry_count_times(r);
        registry_note_due(r);
        registry_tell(r, &(struct registry_effect){
                             .kind = REGISTRY_DATABASE_CLEARED, .database = database, .count = *removed_out});
        pthread_mutex_unlock(&r->lock);
        reclaim(r, cleared);
    }
    free(cleared);
    return cleared ? 0 : -ENOMEM;
}
