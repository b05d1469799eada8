/* Each set keeps its most used filters. A new filter that finds no free slot lowers the smallest weight by one and
 * takes that slot when the weight is 0 (J. Misra and D. Gries, "Finding repeated elements", 1982). The new filter's
 * counts until then are lost; its `since` shows that.
 *
 * A slot may change owner while another thread reads it. The writer clears the id first and sets the new one last; the
 * reader compares the id before and after. Another thread may free a slot at any time: it clears the id, and further
 * counts of the writer there are lost. */
#include "usage.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "clock.h"

#define WEIGHT_MAX 1024 /* new filters that a busy filter outlives after its last query */

struct slot {
    _Atomic uint64_t id; /* 0: free */
    _Atomic uint64_t hits, misses, wrong;
    _Atomic int64_t since_s;
    uint32_t weight;
};

struct usage {
    struct slot *last;       /* the slot used last: most queries come in runs */
    _Atomic uint32_t wanted; /* raised by a reset */
    _Atomic uint32_t epoch;  /* the reset that has been carried out here */
    struct slot sets[USAGE_SETS][USAGE_WAYS];
};

struct usage *usage_create(void)
{
    struct usage *usage = calloc(1, sizeof(*usage));
    if (usage)
        usage->last = &usage->sets[0][0];
    return usage;
}

static size_t set_of(uint64_t id)
{
    return (size_t)((id * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (USAGE_SETS - 1);
}

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* There is one writer: no read-modify-write is needed. */
static void add(_Atomic uint64_t *counter, uint64_t n)
{
    if (n)
        atomic_store_explicit(counter, load(counter) + n, memory_order_relaxed);
}

static void slot_take(struct slot *slot, uint64_t id)
{
    atomic_store_explicit(&slot->id, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&slot->hits, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->misses, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->wrong, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->since_s, clock_coarse_unix_ms() / 1000, memory_order_relaxed);
    slot->weight = 1;
    atomic_store_explicit(&slot->id, id, memory_order_release);
}

/* The filter's slot, or NULL when all others of the set have more weight. */
static struct slot *find(struct usage *usage, uint64_t id)
{
    struct slot *set = usage->sets[set_of(id)], *weakest = set;
    for (unsigned i = 0; i < USAGE_WAYS; i++) {
        uint64_t owner = load(&set[i].id);
        if (owner == id)
            return &set[i];
        if (owner == 0)
            set[i].weight = 0;
        if (set[i].weight < weakest->weight)
            weakest = &set[i];
    }
    if (weakest->weight > 0 && --weakest->weight > 0)
        return NULL;
    slot_take(weakest, id);
    return weakest;
}

static void carry_out_reset(struct usage *usage, uint32_t wanted)
{
    for (unsigned s = 0; s < USAGE_SETS; s++)
        for (unsigned i = 0; i < USAGE_WAYS; i++)
            atomic_store_explicit(&usage->sets[s][i].id, 0, memory_order_relaxed);
    atomic_store_explicit(&usage->epoch, wanted, memory_order_release);
}

void usage_count(struct usage *usage, uint64_t id, uint64_t hits, uint64_t misses, uint64_t wrong)
{
    if (!usage)
        return;
    uint32_t wanted = atomic_load_explicit(&usage->wanted, memory_order_relaxed);
    if (wanted != atomic_load_explicit(&usage->epoch, memory_order_relaxed))
        carry_out_reset(usage, wanted);

    struct slot *slot = usage->last;
    if (load(&slot->id) != id) {
        slot = find(usage, id);
        if (!slot)
            return;
        usage->last = slot;
    }
    add(&slot->hits, hits);
    add(&slot->misses, misses);
    add(&slot->wrong, wrong);
    if (slot->weight < WEIGHT_MAX)
        slot->weight++;
}

void usage_read(const struct usage *usage, uint64_t id, struct usage_counts *sum)
{
    if (atomic_load_explicit(&usage->epoch, memory_order_acquire) !=
        atomic_load_explicit(&usage->wanted, memory_order_relaxed))
        return; /* these counts were reset */
    const struct slot *set = usage->sets[set_of(id)];
    for (unsigned i = 0; i < USAGE_WAYS; i++) {
        if (atomic_load_explicit(&set[i].id, memory_order_acquire) != id)
            continue;
        uint64_t hits = load(&set[i].hits), misses = load(&set[i].misses), wrong = load(&set[i].wrong);
        int64_t since_s = atomic_load_explicit(&set[i].since_s, memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        if (load(&set[i].id) != id)
            continue;
        sum->hits += hits;
        sum->misses += misses;
        sum->wrong += wrong;
        if (since_s > sum->since_s)
            sum->since_s = since_s;
    }
}

size_t usage_list(const struct usage *usage, struct usage_total totals_out[USAGE_FILTERS])
{
    size_t n = 0;
    if (atomic_load_explicit(&usage->epoch, memory_order_acquire) !=
        atomic_load_explicit(&usage->wanted, memory_order_relaxed))
        return 0;
    for (unsigned s = 0; s < USAGE_SETS; s++)
        for (unsigned i = 0; i < USAGE_WAYS; i++) {
            const struct slot *slot = &usage->sets[s][i];
            uint64_t id = atomic_load_explicit(&slot->id, memory_order_acquire);
            uint64_t answers = load(&slot->hits) + load(&slot->misses);
            atomic_thread_fence(memory_order_acquire);
            if (id != 0 && load(&slot->id) == id)
                totals_out[n++] = (struct usage_total){id, answers};
        }
    return n;
}

void usage_forget(struct usage *usage, uint64_t id)
{
    struct slot *set = usage->sets[set_of(id)];
    for (unsigned i = 0; i < USAGE_WAYS; i++) {
        uint64_t owner = id;
        atomic_compare_exchange_strong(&set[i].id, &owner, 0);
    }
}

void usage_reset(struct usage *usage)
{
    atomic_fetch_add_explicit(&usage->wanted, 1, memory_order_relaxed);
}
