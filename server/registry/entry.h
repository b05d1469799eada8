/* entry: what a name in the registry stands for. Internal to the registry.
 *
 * One allocation: the header (struct entry, registry.h), the name, padding to 8, and then, by kind: a bloom_filter; a
 * struct quarantine, of one that could not be loaded; or, in an alias, a pointer to the entry that owns the filter, and when that
 * expires. A rename makes an alias instead of moving anything, because others may be adding to the filter at that moment;
 * the owner's own name is then out of use, and the two are freed together. A filter that is to expire gets an alias under
 * its own name, so that those that are not pay nothing. The entry in the registry's table, owner or alias, is called the
 * holder of the name. */
#ifndef BLOOMERY_ENTRY_H
#define BLOOMERY_ENTRY_H

#include "registry.h"
#include "slab.h"

enum entry_kind { ENTRY_FILTER, ENTRY_QUARANTINED, ENTRY_ALIAS };

#define ENTRY_KIND_SHIFT 2 /* of the two bits in the state that never change */

#define ENTRY_DIRTY   UINT32_C(1)        /* changed since the last save took it */
#define ENTRY_GONE    UINT32_C(2)        /* removed from the registry while a walk was under way */
#define ENTRY_SLAB    UINT32_C(16)       /* in the registry's slab, otherwise from malloc() */
#define ENTRY_PIN_ONE UINT32_C(256)      /* the pins are counted in the upper 24 bits */

static inline enum entry_kind entry_kind(const struct entry *entry)
{
    return (enum entry_kind)(atomic_load_explicit(&entry->state, memory_order_relaxed) >> ENTRY_KIND_SHIFT & 3);
}

/* A clean entry without an id, with room for `body` zero bytes behind the name, or NULL. */
struct entry *entry_alloc(struct slab *slab, enum entry_kind kind, struct slice name, size_t body);

/* Frees one that nobody has seen, NULL is fine; what its body owns is the caller's. */
void entry_discard(struct entry *entry);

static inline struct slice entry_name(const struct entry *entry)
{
    return (struct slice){(const char *)(entry + 1), entry->name_len};
}

static inline void *entry_body(const struct entry *entry)
{
    return (char *)(entry + 1) + (((size_t)entry->name_len + 7) & ~(size_t)7);
}

struct quarantine {
    struct entry *previous, *next; /* the registry's list of them */
    char reason[];
};

/* Of an entry that is one. */
static inline struct quarantine *entry_quarantine(const struct entry *entry)
{
    return entry_body(entry);
}

struct alias {
    struct entry *owner;
    _Atomic int64_t expires_ms; /* 0: never */
    uint32_t place;             /* in the expiry heap, from 1 on; 0: not in it */
};

/* Of an entry that is one. */
static inline struct alias *entry_alias(const struct entry *entry)
{
    return entry_body(entry);
}

/* The entry that owns the filter: itself, or the target of an alias. */
static inline struct entry *entry_owner(struct entry *entry)
{
    return entry_kind(entry) == ENTRY_ALIAS ? entry_alias(entry)->owner : entry;
}

static inline int64_t entry_expires_ms(const struct entry *holder)
{
    return entry_kind(holder) == ENTRY_ALIAS ? atomic_load_explicit(&entry_alias(holder)->expires_ms, memory_order_acquire) : 0;
}

/* Keeps an entry alive beyond RCU. To be called while it is certainly in the registry (under its mutex). */
void entry_pin(struct entry *entry);
void entry_unpin(struct entry *entry);

/* For reclaimer_defer(): frees an entry, and with an alias its target; nonzero while one of them is pinned. */
int entry_reclaim(void *entry);

/* The same for an alias whose target lives on under another name. */
int entry_reclaim_alias(void *alias);

#endif
