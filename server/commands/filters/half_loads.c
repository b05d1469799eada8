#include "half_loads.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rcu.h"

struct half_loads {
    pthread_mutex_t lock;
    pthread_cond_t returned; /* a load has been returned, or is gone */
    struct half_load *first;
    _Atomic size_t count;
    uint64_t bytes; /* of all filters, under the lock */
};

int half_loads_create(struct half_loads **loads_out)
{
    struct half_loads *loads = calloc(1, sizeof(*loads));
    if (!loads)
        return -ENOMEM;
    pthread_mutex_init(&loads->lock, NULL);
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
    if (load->redisbloom)
        redisbloom_load_deinit(load->redisbloom);
    free(load->redisbloom);
    free(load);
}

static void unlink_load(struct half_loads *loads, struct half_load **link)
{
    loads->bytes -= (*link)->bytes;
    *link = (*link)->next;
    atomic_fetch_sub_explicit(&loads->count, 1, memory_order_relaxed);
}

int half_loads_take(struct half_loads *loads, struct slice name, struct half_load **load_out)
{
    pthread_mutex_lock(&loads->lock);
    struct half_load *load = *find(loads, name);
    while (load && load->busy && load->redisbloom) {
        rcu_reader_offline(); /* for as long as copying a chunk takes */
        pthread_cond_wait(&loads->returned, &loads->lock);
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
    pthread_mutex_unlock(&loads->lock);
    return status;
}

static uint64_t machine_memory(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

int half_loads_add(struct half_loads *loads, struct slice name, uint64_t bytes, struct redisbloom_load *redisbloom,
                   struct half_load **load_out)
{
    struct half_load *load = calloc(1, sizeof(*load) + name.len);
    if (!load) {
        if (redisbloom)
            redisbloom_load_deinit(redisbloom);
        free(redisbloom);
        return -ENOMEM;
    }
    load->redisbloom = redisbloom;
    load->busy = true;
    load->bytes = bytes;
    load->name_len = name.len;
    if (name.len)
        memcpy(load->name, name.ptr, name.len);

    pthread_mutex_lock(&loads->lock);
    int status = HALF_LOADS_OK;
    struct half_load *other = *find(loads, name);
    if (other) {
        other->spoilt = other->spoilt || !other->redisbloom;
        status = HALF_LOADS_BUSY;
    } else if (loads->count >= HALF_LOADS_MAX) {
        status = HALF_LOADS_FULL;
    } else if (bytes > machine_memory() || loads->bytes > machine_memory() - bytes) {
        status = HALF_LOADS_LARGE;
    } else {
        loads->bytes += bytes;
        load->next = loads->first;
        loads->first = load;
        loads->count++;
    }
    pthread_mutex_unlock(&loads->lock);
    if (status != HALF_LOADS_OK) {
        free_load(load);
        return status;
    }
    *load_out = load;
    return HALF_LOADS_OK;
}

bool half_loads_keep(struct half_loads *loads, struct half_load *load, int64_t now_ms)
{
    pthread_mutex_lock(&loads->lock);
    bool kept = !load->spoilt;
    if (kept) {
        load->last_ms = now_ms;
        load->busy = false;
        pthread_cond_broadcast(&loads->returned);
    }
    pthread_mutex_unlock(&loads->lock);
    return kept;
}

bool half_loads_drop(struct half_loads *loads, struct half_load *load)
{
    pthread_mutex_lock(&loads->lock);
    unlink_load(loads, find(loads, (struct slice){load->name, load->name_len}));
    bool spoilt = load->spoilt;
    pthread_cond_broadcast(&loads->returned);
    pthread_mutex_unlock(&loads->lock);
    free_load(load);
    return spoilt;
}

void half_loads_expire(struct half_loads *loads, struct registry *registry, int64_t deadline_ms)
{
    if (half_loads_count(loads) == 0)
        return;
    pthread_mutex_lock(&loads->lock);
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
    pthread_mutex_unlock(&loads->lock);
}

void half_loads_destroy(struct half_loads *loads, struct registry *registry)
{
    if (!loads)
        return;
    half_loads_expire(loads, registry, INT64_MAX);
    pthread_cond_destroy(&loads->returned);
    pthread_mutex_destroy(&loads->lock);
    free(loads);
}

size_t half_loads_count(struct half_loads *loads)
{
    return loads ? atomic_load_explicit(&loads->count, memory_order_relaxed) : 0;
}
