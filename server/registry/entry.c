#include "entry_internal.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "slab.h"

/* With malloc() the sanitizers find uses after a free. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLAB_LIMIT 0
#else
#define SLAB_LIMIT SLAB_MAX_SIZE
#endif

struct entry *entry_alloc(struct slab *slab, enum entry_kind kind, struct slice name, size_t body)
{
    size_t size = sizeof(struct entry) + ((name.len + 7) & ~(size_t)7) + body;
    bool in_slab = size <= SLAB_LIMIT;
    struct entry *entry = in_slab ? slab_alloc(slab, size) : slab_alloc_large(slab, size);
    if (!entry)
        return NULL;
    atomic_init(&entry->state, (uint32_t)kind << ENTRY_KIND_SHIFT | (in_slab ? ENTRY_SLAB : 0));
    atomic_init(&entry->used, entry_stamp(clock_coarse_ms()));
    CHECK(name.len <= UINT16_MAX);
    entry->name_len = (uint16_t)name.len;
    if (name.len)
        memcpy(entry + 1, name.ptr, name.len);
    return entry;
}

/* ---- bits that are evicted ----
 *
 * entry_leave() sets LEAVING, a grace period passes, entry_evict() sets AWAY unless a thread has since taken LEAVING
 * away, pinned the entry or changed the filter. A thread that has seen the state without either flag uses the bits
 * before the grace period ends. */

#define KIND_MASK (UINT32_C(3) << ENTRY_KIND_SHIFT)
#define IS_FILTER ((uint32_t)ENTRY_FILTER << ENTRY_KIND_SHIFT)

/* LEAVING is taken away; false: it is too late. */
static bool stays(struct entry *entry)
{
    uint32_t state = atomic_load(&entry->state);

    while (!(state & ENTRY_AWAY))
        if (!(state & ENTRY_LEAVING) || atomic_compare_exchange_weak(&entry->state, &state, state & ~ENTRY_LEAVING))
            return true;
    return false;
}

/* The bits were complete before AWAY was taken away: hence the order. */
struct bloom_filter *entry_filter(struct entry *entry)
{
    uint32_t state = atomic_load_explicit(&entry->state, memory_order_acquire);

    if (__builtin_expect((state & (KIND_MASK | ENTRY_LEAVING | ENTRY_AWAY)) == IS_FILTER, true))
        return entry_body(entry);
    return (state & KIND_MASK) == IS_FILTER && stays(entry) ? entry_body(entry) : NULL;
}

struct bloom_filter *entry_shape(struct entry *entry)
{
    return entry_kind(entry) == ENTRY_FILTER ? entry_body(entry) : NULL;
}

bool entry_is_evicted(const struct entry *entry)
{
    return atomic_load_explicit(&entry->state, memory_order_acquire) & ENTRY_AWAY;
}

/* Whether the entry may be evicted: it is a filter with exactly these flags, and its only pin is the caller's. */
static bool may_go(uint32_t state, uint32_t flags)
{
    return (state & (KIND_MASK | ENTRY_LEAVING | ENTRY_AWAY | ENTRY_DIRTY)) == (IS_FILTER | flags) &&
           state >> 8 == ENTRY_PIN_ONE >> 8;
}

bool entry_leave(struct entry *entry)
{
    uint32_t state = atomic_load(&entry->state);

    while (may_go(state, 0))
        if (atomic_compare_exchange_weak(&entry->state, &state, state | ENTRY_LEAVING))
            return true;
    return false;
}

bool entry_evict(struct entry *entry)
{
    uint32_t state = atomic_load(&entry->state);

    while (may_go(state, ENTRY_LEAVING))
        if (atomic_compare_exchange_weak(&entry->state, &state, (state & ~ENTRY_LEAVING) | ENTRY_AWAY))
            return true;
    atomic_fetch_and(&entry->state, ~ENTRY_LEAVING);
    return false;
}

void entry_start_evicted(struct entry *entry)
{
    atomic_fetch_or(&entry->state, ENTRY_AWAY);
}

void entry_come_back(struct entry *entry)
{
    CHECK(atomic_fetch_and(&entry->state, ~ENTRY_AWAY) & ENTRY_AWAY);
}

const char *entry_quarantine_reason(struct entry *entry)
{
    return entry_kind(entry) == ENTRY_QUARANTINED ? entry_body(entry) : NULL;
}

/* The saver clears the flag and then reads bits; an add sets bits and then reads the flag. At least one of them sees
 * the other: the saver sees the bits, or the add sees the cleared flag and sets it again. So no change is forgotten.
 * Both accesses to bits are relaxed: hence a fence after the add's (bloom_lock_give()) and one before the saver's
 * (here, and in registry_walk_next()). */
void entry_mark_dirty(struct entry *entry)
{
    if (!(atomic_load(&entry->state) & ENTRY_DIRTY))
        atomic_fetch_or(&entry->state, ENTRY_DIRTY);
}

bool entry_is_dirty(const struct entry *entry)
{
    return atomic_load(&entry->state) & ENTRY_DIRTY;
}

void entry_mark_clean(struct entry *entry)
{
    atomic_fetch_and(&entry->state, ~ENTRY_DIRTY);
    atomic_thread_fence(memory_order_seq_cst);
}

int64_t entry_idle_ms(const struct entry *entry, int64_t now_ms)
{
    uint16_t units = (uint16_t)(entry_stamp(now_ms) - atomic_load_explicit(&entry->used, memory_order_relaxed));
    return (int64_t)units << 16;
}

void entry_pin(struct entry *entry)
{
    uint32_t before = atomic_fetch_add(&entry->state, ENTRY_PIN_ONE);
    CHECK(before <= UINT32_MAX - ENTRY_PIN_ONE);
    if (before & ENTRY_LEAVING)
        atomic_fetch_and(&entry->state, ~ENTRY_LEAVING);
}

void entry_unpin(struct entry *entry)
{
    CHECK(atomic_fetch_sub(&entry->state, ENTRY_PIN_ONE) >= ENTRY_PIN_ONE); /* another's pin would end */
}

static bool entry_pinned(const struct entry *entry)
{
    return atomic_load(&entry->state) >= ENTRY_PIN_ONE;
}

void entry_discard(struct entry *entry)
{
    if (!entry)
        return;
    if (atomic_load_explicit(&entry->state, memory_order_relaxed) & ENTRY_SLAB)
        slab_free(entry);
    else
        slab_free_large(entry);
}

static void entry_free(struct entry *entry)
{
    if (entry_kind(entry) == ENTRY_FILTER)
        bloom_filter_deinit(entry_body(entry));
    entry_discard(entry);
}

uint64_t entry_charged(const struct entry *entry)
{
    return entry_kind(entry) == ENTRY_FILTER ? bloom_filter_charged(entry_body((struct entry *)entry)) : 0;
}

int entry_reclaim(void *object)
{
    struct entry *entry = object;
    struct entry *owner = entry_owner(entry);
    if (entry_pinned(entry) || entry_pinned(owner))
        return 1;
    if (owner != entry)
        entry_free(owner);
    entry_free(entry);
    return 0;
}

int entry_reclaim_alias(void *object)
{
    struct entry *alias = object;
    if (entry_pinned(alias))
        return 1;
    entry_discard(alias);
    return 0;
}

bool entry_is_cuckoo(struct entry *entry)
{
    const struct bloom_filter *shape = entry_shape(entry);
    return shape && bloom_params_is_cuckoo(bloom_filter_params(shape));
}

bool entry_is_valkey(struct entry *entry)
{
    const struct bloom_filter *shape = entry_shape(entry);
    return shape && bloom_params_have_seed(bloom_filter_params(shape));
}
