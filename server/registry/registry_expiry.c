/* Expiry: the clock, the heaps, and changes of a filter's time. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "bloom_pool.h"
#include "clock.h"
#include "alloc.h"
#include "lock.h"
#include "rcu.h"
#include "registry.h"
#include "registry_internal.h"
#include "registry_key.h"
#include "thread.h"

/* ---- the heap ---- */

#define PAGE_NODES 1024u /* 16 kB */

/* Node i is at position i + 3, so that the four children of a node share a cache line. */
#define SHIFT 3u

static struct expiry_node *node_at(const struct expiry_heap *heap, size_t i)
{
    return &heap->pages[(i + SHIFT) / PAGE_NODES][(i + SHIFT) % PAGE_NODES];
}

static void set_node(struct expiry_heap *heap, size_t i, struct expiry_node node)
{
    *node_at(heap, i) = node;
    entry_alias(node.alias)->place = (uint32_t)i + 1;
}

void expiry_heap_deinit(struct expiry_heap *heap)
{
    for (size_t i = 0; i < heap->npages; i++)
        free(heap->pages[i]);
    free(heap->pages);
    *heap = (struct expiry_heap){0};
}

static bool expiry_heap_reserve(struct expiry_heap *heap)
{
    if (heap->count >= UINT32_MAX - 1)
        return false;
    if ((heap->count + SHIFT) / PAGE_NODES < heap->npages)
        return true;
    if (GROW(heap->pages, heap->npages, heap->pages_size) != 0)
        return false;
    struct expiry_node *page = aligned_alloc(64, PAGE_NODES * sizeof(*page));
    if (!page)
        return false;
    heap->pages[heap->npages++] = page;
    return true;
}

/* Puts the node at i, or above or below, where it belongs. */
static void place_node(struct expiry_heap *heap, size_t i, struct expiry_node node)
{
    for (; i > 0 && node_at(heap, (i - 1) / 4)->expires_ms > node.expires_ms; i = (i - 1) / 4)
        set_node(heap, i, *node_at(heap, (i - 1) / 4));
    for (;;) {
        size_t child = 4 * i + 1, least = child;
        if (child >= heap->count)
            break;
        for (size_t c = child + 1; c < child + 4 && c < heap->count; c++)
            if (node_at(heap, c)->expires_ms < node_at(heap, least)->expires_ms)
                least = c;
        if (node_at(heap, least)->expires_ms >= node.expires_ms)
            break;
        set_node(heap, i, *node_at(heap, least));
        i = least;
    }
    set_node(heap, i, node);
}

void expiry_heap_put(struct expiry_heap *heap, struct entry *alias, int64_t expires_ms)
{
    uint32_t place = entry_alias(alias)->place;
    size_t i = place ? place - 1 : heap->count++;
    if (place)
        heap->sum_ms -= (uint64_t)node_at(heap, i)->expires_ms;
    heap->sum_ms += (uint64_t)expires_ms;
    place_node(heap, i, (struct expiry_node){expires_ms, alias});
}

void expiry_heap_remove(struct expiry_heap *heap, struct entry *alias)
{
    uint32_t place = entry_alias(alias)->place;
    if (!place)
        return;
    entry_alias(alias)->place = 0;
    heap->sum_ms -= (uint64_t)node_at(heap, place - 1)->expires_ms;
    struct expiry_node last = *node_at(heap, --heap->count);
    if (last.alias != alias)
        place_node(heap, place - 1, last);
    /* One spare page stays, because the next name with a time to live would need it again. */
    for (size_t needed = (heap->count + SHIFT) / PAGE_NODES + 2; heap->npages > needed;)
        free(heap->pages[--heap->npages]);
}

void expiry_heap_replace(struct expiry_heap *heap, struct entry *from, struct entry *to)
{
    uint32_t place = entry_alias(from)->place;
    if (!place)
        return;
    entry_alias(from)->place = 0;
    set_node(heap, place - 1, (struct expiry_node){node_at(heap, place - 1)->expires_ms, to});
}

#define DUE_TIME_NS 20000 /* the mutex is held at most this long to remove due filters */
#define WAIT_MAX_MS (60 * 60 * 1000)
#define HELD_MS     10 /* interval of checks whether a held clock continues */

/* ---- the clock ---- */

int64_t registry_now_ms(const struct registry *r)
{
    int64_t now = r->clock.now_ms ? r->clock.now_ms() : clock_unix_ms();
    int64_t held = atomic_load_explicit(&r->clock.held_ms, memory_order_relaxed);
    return held != 0 && held < now ? held : now;
}

#define COARSE_MS 1000 /* the coarse clock is less than this behind: a tick has 10 at most, but may be late in a VM */

void registry_hold_clock(struct registry *r)
{
    atomic_store(&r->clock.held_ms, registry_now_ms(r));
}

void registry_release_clock(struct registry *r)
{
    atomic_store(&r->clock.held_ms, 0);
}

/* A reader marks a time that it has found to be over, and change_time() never postpones a marked time. So a filter that
 * was gone for one reader is gone for all, though they read the clock at different moments. */
bool registry_time_is_over(const struct registry *r, struct alias *alias)
{
    int64_t expires_ms = atomic_load_explicit(&alias->expires_ms, memory_order_acquire);
    while (expires_ms > 0) {
        bool far = !r->clock.now_ms && expires_ms - COARSE_MS > clock_coarse_unix_ms(); /* a few nanoseconds */
        if (far || expires_ms > registry_now_ms(r))
            return false;
        if (atomic_compare_exchange_weak(&alias->expires_ms, &expires_ms, -expires_ms))
            return true;
    }
    return expires_ms < 0;
}

void registry_set_clock(struct registry *r, int64_t (*now_ms)(void))
{
    r->clock.now_ms = now_ms;
}

/* ---- the heaps ---- */

struct expiry_heap *registry_times(const struct registry *r, const struct entry *holder)
{
    return &registry_space(r, key_database(entry_name(holder)))->expiring;
}

struct entry *registry_alias(struct registry *r, struct slice name, struct entry *owner)
{
    struct entry *alias = entry_alloc(r->slab, ENTRY_ALIAS, name, sizeof(struct alias));
    if (alias)
        entry_alias(alias)->owner = owner;
    return alias;
}

/* The alias that expires first in any database, and its time; NULL and 0: none. */
static struct entry *first_of_all(const struct keyspaces *spaces, int64_t *due_out)
{
    struct entry *first = NULL;
    *due_out = 0;
    for (unsigned i = 0; i < spaces->nin_use; i++) {
        const struct expiry_heap *heap = &spaces->in_use[i]->expiring;
        if (heap->count && (!first || node_at(heap, 0)->expires_ms < *due_out)) {
            first = node_at(heap, 0)->alias;
            *due_out = node_at(heap, 0)->expires_ms;
        }
    }
    return first;
}

void registry_note_due(struct registry *r)
{
    int64_t due = 0, before = atomic_load_explicit(&r->due.next_ms, memory_order_relaxed);
    first_of_all(&r->keyspaces, &due);
    if (due == before)
        return;
    atomic_store_explicit(&r->due.next_ms, due, memory_order_relaxed);
    if (due != 0 && (before == 0 || due < before))
        pthread_cond_signal(&r->due.changed);
}

void registry_count_times(struct registry *r)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < r->keyspaces.nin_use; i++) {
        const struct expiry_heap *heap = &r->keyspaces.in_use[i]->expiring;
        bytes += heap->npages * PAGE_NODES * sizeof(struct expiry_node) + heap->pages_size * sizeof(*heap->pages);
    }
    atomic_store_explicit(&r->due.bytes, bytes, memory_order_relaxed);
}

bool registry_reserve_expiry(struct registry *r, const struct entry *holder)
{
    bool reserved = expiry_heap_reserve(registry_times(r, holder));
    registry_count_times(r);
    return reserved;
}

void registry_put_expiry(struct registry *r, struct entry *alias, int64_t expires_ms)
{
    if (expires_ms)
        expiry_heap_put(registry_times(r, alias), alias, expires_ms);
    else
        expiry_heap_remove(registry_times(r, alias), alias);
    registry_note_due(r);
}

static struct registry_expiry expiry_of(const struct registry *r, size_t count, unsigned __int128 sum)
{
    int64_t left = count ? (int64_t)(sum / count) - registry_now_ms(r) : 0;
    return (struct registry_expiry){.count = count, .avg_ttl_ms = left > 0 ? left : 0};
}

void registry_expiry(struct registry *r, struct registry_expiry *expiry_out)
{
    size_t count = 0;
    unsigned __int128 sum = 0;
    lock_take(&r->lock);
    for (unsigned i = 0; i < r->keyspaces.nin_use; i++) {
        count += r->keyspaces.in_use[i]->expiring.count;
        sum += r->keyspaces.in_use[i]->expiring.sum_ms;
    }
    lock_give(&r->lock);
    *expiry_out = expiry_of(r, count, sum);
}

void registry_database_expiry(struct registry *r, unsigned database, struct registry_expiry *expiry_out)
{
    const struct keyspace *space = registry_space(r, database);
    lock_take(&r->lock);
    size_t count = space ? space->expiring.count : 0;
    unsigned __int128 sum = space ? space->expiring.sum_ms : 0;
    lock_give(&r->lock);
    *expiry_out = expiry_of(r, count, sum);
}

/* ---- setting a time ---- */

/* Sets the expiry of the filter in the slot, 0 for none. */
static int change_time(struct registry *r, uint64_t hash, _Atomic uint64_t *slot, struct entry *holder,
                       int64_t expires_ms)
{
    struct entry *owner = entry_owner(holder);
    if (holder == owner && bloom_pool_room(r->pool, entry_name(owner).len + sizeof(struct alias), NULL) != BLOOM_OK)
        return REGISTRY_LIMIT;
    if (expires_ms && !registry_reserve_expiry(r, holder))
        return -ENOMEM;
    if (holder == owner) {
        struct entry *alias = registry_alias(r, entry_name(owner), owner);
        if (!alias)
            return -ENOMEM;
        atomic_store_explicit(&entry_alias(alias)->expires_ms, expires_ms, memory_order_relaxed);
        registry_exchange(r, hash, slot, alias);
        holder = alias;
    } else {
        struct alias *alias = entry_alias(holder);
        int64_t old_ms = entry_expires_ms(holder); /* only readers that find it expired change it meanwhile */
        if (!atomic_compare_exchange_strong(&alias->expires_ms, &old_ms, expires_ms)) {
            registry_remove(r, hash, slot, REGISTRY_EXPIRED);
            return REGISTRY_NOT_FOUND;
        }
    }
    registry_put_expiry(r, holder, expires_ms);
    walk_changed(&r->walk, holder);
    registry_tell(r, &(struct registry_effect){.kind = REGISTRY_EXPIRY,
                                               .id = owner->id,
                                               .name = entry_name(holder),
                                               .expires_ms = expires_ms,
                                               .entry = owner});
    return REGISTRY_OK;
}

int registry_expire(struct registry *r, struct slice name, int64_t expires_ms, unsigned conditions)
{
    uint64_t hash = registry_hash(r, name);
    struct entry *holder;
    int status = REGISTRY_NOT_FOUND;

    lock_take(&r->lock);
    _Atomic uint64_t *slot = registry_slot(r, hash, name, &holder);
    int64_t current = slot ? entry_expires_ms(holder) : 0;
    if (slot && (((conditions & REGISTRY_EXPIRE_NX) && current) || ((conditions & REGISTRY_EXPIRE_XX) && !current) ||
                 ((conditions & REGISTRY_EXPIRE_GT) && (!current || expires_ms <= current)) ||
                 ((conditions & REGISTRY_EXPIRE_LT) && current && expires_ms >= current))) {
        status = REGISTRY_UNCHANGED;
    } else if (slot && expires_ms <= registry_now_ms(r)) {
        registry_remove(r, hash, slot, conditions & REGISTRY_EXPIRE_LATER ? REGISTRY_EXPIRED : REGISTRY_DELETED);
        status = REGISTRY_OK;
    } else if (slot) {
        status = change_time(r, hash, slot, holder, expires_ms);
    }
    lock_give(&r->lock);
    return status;
}

int registry_persist(struct registry *r, struct slice name)
{
    uint64_t hash = registry_hash(r, name);
    struct entry *holder;
    int status = REGISTRY_NOT_FOUND;

    lock_take(&r->lock);
    _Atomic uint64_t *slot = registry_slot(r, hash, name, &holder);
    if (slot)
        status = entry_expires_ms(holder) ? change_time(r, hash, slot, holder, 0) : REGISTRY_UNCHANGED;
    lock_give(&r->lock);
    return status;
}

/* ---- removing due filters ---- */

size_t registry_expire_due(struct registry *r, size_t max, int64_t *next_ms_out)
{
    size_t removed = 0;
    int64_t now = registry_now_ms(r), due = atomic_load_explicit(&r->due.next_ms, memory_order_relaxed);
    if (due != 0 && due <= now) {
        lock_take(&r->lock);
        uint64_t end = clock_ns() + DUE_TIME_NS;
        struct entry *first, *found;
        while (removed < max && (first = first_of_all(&r->keyspaces, &due)) && due <= now) {
            struct slice name = entry_name(first);
            if (registry_slot(r, registry_hash(r, name), name, &found)) /* which removes what has expired */
                break;
            if (++removed % 4 == 0 && clock_ns() >= end)
                break;
        }
        due = atomic_load_explicit(&r->due.next_ms, memory_order_relaxed);
        lock_give(&r->lock);
    }
    if (next_ms_out)
        *next_ms_out = due;
    return removed;
}

bool registry_expire_wait(struct registry *r)
{
    lock_take(&r->lock);
    int64_t end = registry_now_ms(r) + WAIT_MAX_MS, now;
    while (!r->due.stop && (now = registry_now_ms(r)) < end) {
        int64_t due = atomic_load_explicit(&r->due.next_ms, memory_order_relaxed);
        if (due != 0 && due <= now)
            break;
        if (due == 0 || due > end)
            due = end;
        int64_t real = clock_unix_ms();
        if (due <= real) /* held: there is no wake-up at the release, which would cost every EXEC a lock */
            due = real + HELD_MS;
        struct timespec until = {.tv_sec = due / 1000, .tv_nsec = due % 1000 * 1000000};
        lock_wait_until(&r->due.changed, &r->lock, CLOCK_REALTIME, &until);
    }
    bool go_on = !r->due.stop;
    lock_give(&r->lock);
    return go_on;
}

void registry_expire_stop(struct registry *r)
{
    lock_take(&r->lock);
    r->due.stop = true;
    pthread_cond_signal(&r->due.changed);
    lock_give(&r->lock);
}

/* ---- the thread ---- */

#define BATCH    64
#define PAUSE_NS 60000 /* three times the duration of a batch under the mutex */
#define AGE_MS   (INT64_C(24) * 60 * 60 * 1000)

struct expirer {
    struct registry *registry;
    void (*pace)(void *ctx);
    void *ctx;
    pthread_t thread;
};

static void *expirer_main(void *arg)
{
    struct expirer *expirer = arg;
    int64_t aged_ms = clock_ms();
    thread_begin_background("expirer");
    rcu_reader_begin();
    rcu_reader_offline();
    while (registry_expire_wait(expirer->registry)) {
        registry_expire_due(expirer->registry, BATCH, NULL);
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        if (expirer->pace)
            expirer->pace(expirer->ctx);
        if (clock_ms() - aged_ms >= AGE_MS) {
            aged_ms = clock_ms();
            rcu_reader_online();
            registry_age(expirer->registry, aged_ms);
            rcu_reader_offline();
        }
    }
    rcu_reader_end();
    return NULL;
}

int expirer_create(struct expirer **expirer_out, struct registry *registry, void (*pace)(void *ctx), void *ctx)
{
    struct expirer *expirer = calloc(1, sizeof(*expirer));
    if (!expirer)
        return -ENOMEM;
    expirer->registry = registry;
    expirer->pace = pace;
    expirer->ctx = ctx;
    int err = pthread_create(&expirer->thread, NULL, expirer_main, expirer);
    if (err) {
        free(expirer);
        return -err;
    }
    *expirer_out = expirer;
    return 0;
}

void expirer_destroy(struct expirer *expirer)
{
    if (!expirer)
        return;
    registry_expire_stop(expirer->registry);
    pthread_join(expirer->thread, NULL);
    free(expirer);
}
