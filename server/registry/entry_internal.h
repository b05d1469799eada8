/* entry_internal: the layout of entries, and the entries that hold a name for another one. Internal to the registry.
 *
 * One allocation holds the header (struct entry, entry.h), the name, padding to 8, and a body by kind:
 * - a bloom_filter;
 * - the reason of a quarantine, a text, for a filter that could not be loaded;
 * - a struct alias: a pointer to the entry that owns the filter, and the expiry.
 *
 * A rename creates an alias instead of moving the filter, because other threads may be adding to it at that moment. The
 * owner's own name is then out of use, and the two are freed together. A filter with a time to live gets an alias under
 * its own name, so that other filters pay nothing. The entry in the registry's table, owner or alias, is called the
 * holder of the name. */
#pragma once

#include "entry.h"

struct slab;

enum entry_kind { ENTRY_FILTER, ENTRY_QUARANTINED, ENTRY_ALIAS };

#define ENTRY_KIND_SHIFT 2 /* of the two bits of the state that never change */

#define ENTRY_DIRTY   UINT32_C(1)   /* changed since the last save */
#define ENTRY_TAKEN   UINT32_C(2)   /* in the list of a walk that has not yielded it yet */
#define ENTRY_SLAB    UINT32_C(16)  /* in a page of the registry's slab; otherwise one of its large objects */
#define ENTRY_WALKED  UINT32_C(32)  /* this walk or an earlier one has yielded it */
#define ENTRY_LEAVING UINT32_C(64)  /* its bits are about to be evicted; a reader that needs them clears the flag */
#define ENTRY_AWAY    UINT32_C(128) /* its bits are not in memory */
#define ENTRY_PIN_ONE UINT32_C(256) /* the pins are counted in the upper 24 bits */

static inline enum entry_kind entry_kind(const struct entry *entry)
{
    return (enum entry_kind)(atomic_load_explicit(&entry->state, memory_order_relaxed) >> ENTRY_KIND_SHIFT & 3);
}

/* A clean entry without an id, with room for `body` zero bytes after the name, or NULL. */
struct entry *entry_alloc(struct slab *slab, enum entry_kind kind, struct slice name, size_t body);

/* Frees an entry that no other thread has seen; NULL is fine. The caller frees the memory that its body owns. */
void entry_discard(struct entry *entry);

static inline void *entry_body(const struct entry *entry)
{
    return (char *)(entry + 1) + (((size_t)entry->name_len + 7) & ~(size_t)7);
}

/* Before another thread sees the entry: its bits are away. */
void entry_start_evicted(struct entry *entry);

struct alias {
    struct entry *owner;
    _Atomic int64_t expires_ms; /* 0: never; negative: a reader has found that this time, without the sign, is over */
    uint32_t place;             /* in the expiry heap, from 1 on; 0: not in it */
};

/* `entry` must be of this kind. */
static inline struct alias *entry_alias(const struct entry *entry)
{
    return entry_body(entry);
}

/* The entry that owns the filter: itself, or the target of an alias. */
static inline struct entry *entry_owner(struct entry *entry)
{
    return entry_kind(entry) == ENTRY_ALIAS ? entry_alias(entry)->owner : entry;
}

/* 0: never. */
static inline int64_t entry_expires_ms(const struct entry *holder)
{
    if (entry_kind(holder) != ENTRY_ALIAS)
        return 0;
    int64_t expires_ms = atomic_load_explicit(&entry_alias(holder)->expires_ms, memory_order_acquire);
    return expires_ms < 0 ? -expires_ms : expires_ms;
}

/* The bytes that the entry's filter has of its pool; 0: it has none. */
uint64_t entry_charged(const struct entry *entry);

/* For reclaimer_defer(): frees an entry, and the target of an alias; nonzero while one of them is pinned. */
int entry_reclaim(void *entry);

/* entry_reclaim() for an alias whose target lives on under another name. */
int entry_reclaim_alias(void *alias);
