/* entry: a filter that a look-up has found or a pin holds (registry.h).
 *
 * Lifetime: until the RCU read section of the look-up ends, or until the last pin is released.
 * Thread: any, unless said otherwise. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "slice.h"

/* A filter, or the placeholder of one that could not be loaded. Fields other than `id` are internal. */
struct entry {
    uint64_t id;            /* unique in the data directory, never reused */
    _Atomic uint32_t state; /* kind, flags and pins (entry_internal.h) */
    uint16_t name_len;
    _Atomic uint16_t used; /* entry_stamp() of the last use */
};

/* The name under which the entry was created; renames do not change it. */
static inline struct slice entry_name(const struct entry *entry)
{
    return (struct slice){(const char *)(entry + 1), entry->name_len};
}

/* For an entry from registry_find(): the filter; NULL if it is quarantined or its bits are not in memory. */
struct bloom_filter *entry_filter(struct entry *entry);

/* The filter for uses that need no bits (bloom_resident.h); NULL if it is quarantined. */
struct bloom_filter *entry_shape(struct entry *entry);

/* Whether it is a cuckoo filter, or one in valkey-bloom's layout; false if it is quarantined. */
bool entry_is_cuckoo(struct entry *entry);
bool entry_is_valkey(struct entry *entry);

/* The bits are not in memory. For a pinned entry, true holds until a thread reads them, false as long as the pin. */
bool entry_is_evicted(const struct entry *entry);

/* The reason of a quarantine; NULL if the entry is not quarantined. */
const char *entry_quarantine_reason(struct entry *entry);

/* Keeps an entry alive beyond RCU, even if its name is deleted. The first pin comes from registry_pin(), or the entry
 * is prepared and not published; an owner of a pin may take more. An overflow would free an entry in use, so it ends
 * the process. 24 bits suffice: a walk holds at most three pins, and a command one for each mention of the name. */
void entry_pin(struct entry *entry);
void entry_unpin(struct entry *entry);

/* Marks the filter as changed since its last save. Called after the change. Costs one load if it is marked already. */
void entry_mark_dirty(struct entry *entry);
bool entry_is_dirty(const struct entry *entry);

/* Loading: the bits are those of the last save. */
void entry_mark_clean(struct entry *entry);

/* The time of the last use, in units of 65 s: only the first use in each unit writes. `now_ms` comes from any clock
 * that does not jump. Stamps more than 24 days apart keep only their order, by registry_age(). */
static inline uint16_t entry_stamp(int64_t now_ms)
{
    return (uint16_t)(now_ms >> 16);
}

static inline void entry_note_use(struct entry *entry, uint16_t stamp)
{
    if (atomic_load_explicit(&entry->used, memory_order_relaxed) != stamp)
        atomic_store_explicit(&entry->used, stamp, memory_order_relaxed);
}

int64_t entry_idle_ms(const struct entry *entry, int64_t now_ms); /* since the last use; 24 days at most */

/* ---- eviction: bits are evicted, and come back ----
 *
 * For one thread that has pinned the entry. It calls entry_leave(), waits for a grace period, calls entry_evict()
 * and drops the words (bloom_resident.h). Either call returns false if the entry is no filter, has changed since its
 * last save, has another pin, or was queried meanwhile. The bits then stay.
 *
 * entry_filter() is NULL from entry_evict() to entry_come_back(). The caller restores the words before the latter.
 * While another thread holds a pin, entry_filter() does not become NULL. */
bool entry_leave(struct entry *entry);
bool entry_evict(struct entry *entry);
void entry_come_back(struct entry *entry);
