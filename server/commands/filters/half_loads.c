#include "half_loads.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_resident.h"
#include "machine.h"
#include "rcu.h"
#include "lock.h"

struct half_loads {
    struct lock lock;
    pthread_cond_t returned; /* a load has been returned, or is gone */
    struct half_load *first;
    _Atomic size_t count;
    uint64_t bytes; /* of all filters, under the lock */
    uint64_t most;  /* of these: the machine's memory */
};

int half_loads_create(struct half_loads **loads_out)
{
    struct half_loads *loads = calloc(1, sizeof(*loads));
    if (!loads)
        return -ENOMEM;
    loads->most = machine_memory();
    lock_init(&loads->lock, RANK_HALF_LOADS);
    pthread_cond_init(&loads->returned, NULL);
    *loads_out = loads;
    return 0;
}

/* The place of the pointer to the load of that name, or of the last NULL pointer. Under the lock. */
static struct half_load **find(struct half_loads *loads, struct slice name)
{
    struct half_load **link = &loads->first;
    while (*link && ((*link)->name_len != name.len || (name.len && memcmp((*link)->name, name.ptr, name.len) != 0)))
        link = &(*link)->next;
    return link;
}

static void free_load(struct half_load *load)
{
    bf_load_end(load->load);
    free(load);
}

static void unlink_load(struct half_loads *loads, struct half_load **link)
{
    loads->bytes -= bf_load_plan((*link)->load)->bytes;
    if ((*link)->held)
        bloom_filter_hold(entry_shape((*link)->entry), false);
    *link = (*link)->next;
    atomic_fetch_sub_explicit(&loads->count, 1, memory_order_relaxed);
}

int half_loads_take(struct half_loads *loads, struct slice name, struct half_load **load_out)
{
    lock_take(&loads->lock);
    struct half_load *load = *find(loads, name);
    while (load && load->busy && load->load->theirs) {
        rcu_reader_offline(); /* for as long as copying a chunk takes */
        lock_wait(&loads->returned, &loads->lock);
        rcu_reader_online();
        load = *find(loads, name);
    }
    int status = !load ? HALF_LOADS_NONE : load->busy ? HALF_LOADS_BUSY : HALF_LOADS_OK;
    if (status == HALF_LOADS_BUSY)
        load->spoilt = true;
    if (status == HALF_LOADS_OK) {
        load->busy = true;
        *load_out = load;
    }
    lock_give(&loads->lock);
    return status;
}

int half_loads_add(struct half_loads *loads, struct slice name, struct bf_load *begun, struct half_load **load_out)
{
    uint64_t bytes = bf_load_plan(begun)->bytes;
    struct half_load *load = calloc(1, sizeof(*load) + name.len);
    if (!load) {
        bf_load_end(begun);
        return -ENOMEM;
    }
    load->load = begun;
    load->busy = true;
    load->name_len = name.len;
    if (name.len)
        memcpy(load->name, name.ptr, name.len);

    lock_take(&loads->lock);
    int status = HALF_LOADS_OK;
    struct half_load *other = *find(loads, name);
    if (other) {
        other->spoilt = other->spoilt || !other->load->theirs;
        status = HALF_LOADS_BUSY;
    } else if (loads->count >= HALF_LOADS_MAX) {
        status = HALF_LOADS_FULL;
    } else if (bytes > loads->most || loads->bytes > loads->most - bytes) {
        status = HALF_LOADS_LARGE;
    } else {
        loads->bytes += bytes;
        load->next = loads->first;
        loads->first = load;
        loads->count++;
    }
    lock_give(&loads->lock);
    if (status != HALF_LOADS_OK) {
        free_load(load);
        return status;
    }
    *load_out = load;
    return HALF_LOADS_OK;
}

bool half_loads_keep(struct half_loads *loads, struct half_load *load, int64_t now_ms)
{
    lock_take(&loads->lock);
    bool kept = !load->spoilt;
    if (kept) {
        if (!load->held)
            bloom_filter_hold(entry_shape(load->entry), true);
        load->held = true;
        load->last_ms = now_ms;
        load->busy = false;
        pthread_cond_broadcast(&loads->returned);
    }
    lock_give(&loads->lock);
    return kept;
}

bool half_loads_drop(struct half_loads *loads, struct half_load *load)
{
    lock_take(&loads->lock);
    unlink_load(loads, find(loads, (struct slice){load->name, load->name_len}));
    bool spoilt = load->spoilt;
    pthread_cond_broadcast(&loads->returned);
    lock_give(&loads->lock);
    free_load(load);
    return spoilt;
}

void half_loads_expire(struct half_loads *loads, struct registry *registry, int64_t deadline_ms)
{
    if (half_loads_count(loads) == 0)
        return;
    lock_take(&loads->lock);
    for (struct half_load **link = &loads->first; *link;) {
        struct half_load *load = *link;
        if (load->busy || load->last_ms >= deadline_ms) {
            link = &load->next;
            continue;
        }
        unlink_load(loads, link);
        registry_abandon(registry, load->entry);
        free_load(load);
    }
    lock_give(&loads->lock);
}

void half_loads_destroy(struct half_loads *loads, struct registry *registry)
{
    if (!loads)
        return;
    half_loads_expire(loads, registry, INT64_MAX);
    pthread_cond_destroy(&loads->returned);
    lock_deinit(&loads->lock);
    free(loads);
}

size_t half_loads_count(struct half_loads *loads)
{
    return loads ? atomic_load_explicit(&loads->count, memory_order_relaxed) : 0;
}
