/* registry_entry: a filter as the registry knows it (registry.h), for those who have found or pinned it.
 *
 * Lifetime: until the RCU read section of its look-up ends, or until it is unpinned.
 * Thread: any, unless said otherwise.
 */
#ifndef BLOOMERY_REGISTRY_ENTRY_H
#define BLOOMERY_REGISTRY_ENTRY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "slice.h"

/* A filter, or the placeholder of one that could not be loaded. Fields other than `id` are internal. */
struct entry {
    uint64_t id;            /* unique in the data directory, never reused */
    _Atomic uint32_t state; /* kind, dirty and dead flags, pins */
    uint16_t name_len;
    _Atomic uint16_t used; /* entry_stamp() of its last use */
};

/* For an entry from registry_find(). */
struct bloom_filter *entry_filter(struct entry *entry); /* NULL: quarantined, or its bits are not in memory */
struct bloom_filter *
entry_shape(struct entry *entry);              /* NULL: quarantined. For what needs no bits (bloom_resident.h) */
bool entry_is_away(const struct entry *entry); /* its bits are not in memory; of a pinned one true for as long as nobody
                                                * reads them, and false for as long as it is pinned */
struct slice
entry_created_name(const struct entry *entry);            /* the name it was created under; renames do not change it */
const char *entry_quarantine_reason(struct entry *entry); /* the reason of a quarantine; NULL if there is none */

/* Marks the filter as changed since its last save. Called after the change. Costs one load if it is marked already. */
void entry_mark_dirty(struct entry *entry);
bool entry_is_dirty(const struct entry *entry);

/* The time of a filter's last use, in units of 65 s: only the first use in each unit writes. `now_ms` comes from any
 * clock that does not jump. Stamps more than 24 days apart keep only their order, by registry_age(). */
static inline uint16_t entry_stamp(int64_t now_ms)
{
    return (uint16_t)(now_ms >> 16);
}

static inline void entry_note_use(struct entry *entry, uint16_t stamp)
{
    if (atomic_load_explicit(&entry->used, memory_order_relaxed) != stamp)
        atomic_store_explicit(&entry->used, stamp, memory_order_relaxed);
}

int64_t entry_idle_ms(const struct entry *entry, int64_t now_ms); /* since its last use; 24 days at most */

/* Loading: the bits are those of the last save. */
void entry_mark_clean(struct entry *entry);

/* ---- bits that leave memory, and come back ----
 *
 * For one thread, that has pinned the entry: entry_leave(), a grace period, entry_take_away(), then the caller drops
 * the words (bloom_resident.h). Either is false, and the bits stay, when the filter has changed since its last save, is
 * pinned by others, was asked meanwhile, or is none.
 *
 * entry_filter() is NULL from entry_take_away() to entry_come_back(), before which the words are there again. While the
 * entry is pinned by somebody else it does not become NULL. */
bool entry_leave(struct entry *entry);
bool entry_take_away(struct entry *entry);
void entry_come_back(struct entry *entry);

#endif
