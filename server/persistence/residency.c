#include "residency.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_filter.h"
#include "rcu.h"
#include "registry.h"
#include "residency_internal.h"
#include "store.h"
#include "thread.h"
#include "lock.h"

#define ASKED_MOST 1024 /* filters that wait to be read although no client waits for them */

#define NO_MEMORY   "OOM cannot read the filter's bits: out of memory"
#define SERVER_ENDS "ERR cannot read the filter's bits: the server is shutting down"

/* One filter of a wait. */
struct waited {
    struct waited *next; /* of the same reading */
    struct residency_wait *wait;
    struct entry *entry; /* pinned */
};

struct residency_wait {
    struct residency *residency;
    void (*done)(void *ctx);
    void *ctx;
    _Atomic size_t left; /* filters that have not been tried; one more until it begins */
    bool failed;         /* under the lock */
    struct errbuf why;   /* likewise */
    size_t most, n;
    struct waited of[];
};

/* ---- readings ---- */

static struct reading *find_reading(const struct residency *res, uint64_t id)
{
    struct hash_link *link = hash_table_first(&res->readings, id);
    while (link && HASH_OBJECT(link, struct reading, link)->entry->id != id)
        link = hash_table_next(link);
    return link ? HASH_OBJECT(link, struct reading, link) : NULL;
}

static void *reader_main(void *arg);

/* Under the lock. At least one reader is needed. */
static bool have_reader(struct residency *res)
{
    if (res->nreaders < READERS && !res->stop &&
        pthread_create(&res->readers[res->nreaders], NULL, reader_main, res) == 0)
        res->nreaders++;
    return res->nreaders > 0 && !res->stop;
}

/* Under the lock: the reading of the filter, a new one if there is none. NULL without memory, or at the end. */
static struct reading *take_reading(struct residency *res, struct slice name, struct entry *entry)
{
    struct reading *reading = find_reading(res, entry->id);
    if (reading || !have_reader(res))
        return reading;
    reading = calloc(1, sizeof(*reading) + name.len);
    if (!reading)
        return NULL;
    reading->link.hash = entry->id;
    reading->entry = entry;
    reading->name_len = name.len;
    if (name.len)
        memcpy(reading->name, name.ptr, name.len);
    if (hash_table_insert(&res->readings, &reading->link) != 0) {
        free(reading);
        return NULL;
    }
    entry_pin(entry); /* it is pinned by the caller already */
    *res->last = reading;
    res->last = &reading->next;
    pthread_cond_signal(&res->wake);
    return reading;
}

/* ---- waits ---- */

struct residency_wait *residency_wait_create(struct server *server, size_t most, void (*done)(void *ctx), void *ctx)
{
    struct residency_wait *wait = calloc(1, sizeof(*wait) + most * sizeof(wait->of[0]));
    if (!wait)
        return NULL;
    wait->residency = server->persistence->residency;
    wait->done = done;
    wait->ctx = ctx;
    wait->most = most;
    atomic_store(&wait->left, 1);
    return wait;
}

static void fail_locked(struct residency_wait *wait, const char *why)
{
    if (!wait->failed)
        errbuf_set(&wait->why, "%s", why);
    wait->failed = true;
}

void residency_wait_add(struct residency_wait *wait, struct slice name)
{
    struct residency *res = wait->residency;
    struct entry *entry = wait->n < wait->most ? registry_pin(res->server->registry, name) : NULL;
    if (!entry)
        return;
    struct waited *waited = &wait->of[wait->n++];
    *waited = (struct waited){.wait = wait, .entry = entry};
    if (!entry_is_evicted(entry))
        return;
    lock_take(&res->lock);
    struct reading *reading = take_reading(res, name, entry);
    if (reading) {
        atomic_fetch_add(&wait->left, 1);
        waited->next = reading->waiters;
        reading->waiters = waited;
    } else {
        fail_locked(wait, res->stop ? SERVER_ENDS : NO_MEMORY);
    }
    lock_give(&res->lock);
}

bool residency_wait_begin(struct residency_wait *wait)
{
    return atomic_fetch_sub(&wait->left, 1) > 1;
}

bool residency_wait_succeeded(const struct residency_wait *wait, const char **text_out)
{
    lock_take(&wait->residency->lock);
    bool failed = wait->failed;
    lock_give(&wait->residency->lock);
    if (failed)
        *text_out = wait->why.text;
    return !failed;
}

void residency_wait_free(struct residency_wait *wait)
{
    for (size_t i = 0; wait && i < wait->n; i++)
        entry_unpin(wait->of[i].entry);
    free(wait);
}

/* ---- reading ---- */

static void note_quarantine(void *ctx, uint64_t id)
{
    struct server *server = ctx;
    store_quarantine(server->persistence->store, id);
}

/* Quarantines the filter. If it is gone or has another name by now, the next query finds that out. */
static int quarantine(struct residency *res, const struct reading *reading, const struct errbuf *reason)
{
    struct server *server = res->server;
    struct slice name = {reading->name, reading->name_len};
    int status = registry_quarantine(server->registry, name, reading->entry, reason->text, note_quarantine, server);
    if (status != REGISTRY_OK)
        return status == -ENOMEM ? -ENOMEM : 0;
    atomic_fetch_add_explicit(&res->failed, 1, memory_order_relaxed);
    log_warning(&server->log, "filter %" PRIu64 " is quarantined: %s", reading->entry->id, reason->text);
    return 0;
}

/* 0; -EALREADY: the bits have not left after all (evict.c); -ENOMEM; -ENOBUFS (maxmemory) with the reason in `err`;
 * -EAGAIN: `gently` there is no room. */
static int make_words(struct residency *res, struct entry *entry, bool gently, struct errbuf *err)
{
    struct bloom_filter *filter = entry_shape(entry);
    uint64_t bytes = bloom_filter_droppable(filter);
    bool reserved = evict_for(res, bytes, gently);
    if (gently && !reserved)
        return -EAGAIN;
    lock_take(&res->words);
    int status = bloom_filter_is_dropped(filter) ? bloom_filter_undrop_begin(filter, err) : -EALREADY;
    lock_give(&res->words);
    if (reserved)
        evict_release(res, bytes);
    return status == BLOOM_LIMIT ? -ENOBUFS : status;
}

/* 0: the entry has its bits. Otherwise as make_words() or store_read_bits(), and it has none. */
static int read_entry(struct residency *res, struct entry *entry, bool gently, struct errbuf *err)
{
    struct bloom_filter *filter = entry_shape(entry);
    int status = make_words(res, entry, gently, err);
    if (status)
        return status;
    status = store_read_bits(res->server->persistence->store, entry->id, filter, err);
    if (status == 0) {
        entry_note_use(entry, atomic_load_explicit(&res->server->memory.use_stamp, memory_order_relaxed));
        entry_come_back(entry);
        atomic_fetch_add_explicit(&res->reloads, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&res->reload_bytes, bloom_filter_droppable(filter), memory_order_relaxed);
    }
    lock_take(&res->words);
    bloom_filter_undrop_end(filter, status == 0); /* at last: residency_some_evicted() */
    lock_give(&res->words);
    return status;
}

/* 0: the bits are there, or the filter is quarantined or gone. -errno, `err` replies; -EAGAIN: no room `gently`. */
static int reload(struct residency *res, const struct reading *reading, bool gently, struct errbuf *err)
{
    struct entry *entry = reading->entry;
    if (!entry_shape(entry) || !entry_is_evicted(entry))
        return 0;
    int status = read_entry(res, entry, gently, err);
    if (status > 0) {
        rcu_reader_online();
        status = quarantine(res, reading, err);
        rcu_reader_offline();
    }
    if (status == -EALREADY)
        return 0;
    if (status == -ENOMEM)
        errbuf_set(err, NO_MEMORY);
    else if (status == -ENOBUFS)
        errbuf_prefix(err, "OOM there is no room for the filter's bits (maxmemory)");
    else if (status)
        errbuf_prefix(err, "ERR cannot read the filter's bits now");
    return status;
}

/* Under the lock: takes the reading out of the table and gives its waiters their end. */
static void end_reading(struct residency *res, struct reading *reading, int status, const struct errbuf *err)
{
    struct waited *waiters = reading->waiters;
    if (status == -EAGAIN && waiters) { /* a client waits by now */
        reading->next = NULL;
        *res->last = reading;
        res->last = &reading->next;
        return;
    }
    hash_table_remove(&res->readings, &reading->link);
    for (struct waited *w = waiters; w && status; w = w->next)
        fail_locked(w->wait, err->text);
    pthread_cond_broadcast(&res->ended);
    lock_give(&res->lock);
    while (waiters) {
        struct residency_wait *wait = waiters->wait;
        waiters = waiters->next; /* the wait may be freed now */
        if (atomic_fetch_sub(&wait->left, 1) == 1)
            wait->done(wait->ctx);
    }
    entry_unpin(reading->entry);
    free(reading);
    lock_take(&res->lock);
}

static struct reading *next_reading(struct residency *res)
{
    struct reading *reading = res->first;
    if (!reading)
        return NULL;
    res->first = reading->next;
    if (!res->first)
        res->last = &res->first;
    return reading;
}

static void *reader_main(void *arg)
{
    struct residency *res = arg;
    thread_begin("reader");
    rcu_reader_begin();
    rcu_reader_offline();
    lock_take(&res->lock);
    for (;;) {
        struct reading *reading = next_reading(res);
        struct errbuf err = {SERVER_ENDS};
        int status = -ECANCELED;
        if (!reading && res->stop)
            break;
        if (!reading) {
            lock_wait(&res->wake, &res->lock);
            continue;
        }
        if (!res->stop) {
            bool gently = !reading->waiters;
            lock_give(&res->lock);
            status = reload(res, reading, gently, &err);
            lock_take(&res->lock);
        }
        end_reading(res, reading, status, &err);
    }
    lock_give(&res->lock);
    rcu_reader_end();
    return NULL;
}

/* ---- reads with a thread that waits, and without one ---- */

static void end_blocking(void *ended)
{
    sem_post(ended);
}

struct entry *residency_pin(struct server *server, struct slice name, struct errbuf *why)
{
    const char *text = RESIDENCY_TRYAGAIN;
    struct entry *entry = registry_pin(server->registry, name);
    if (!entry || !entry_is_evicted(entry))
        return entry;
    sem_t ended;
    struct residency_wait *wait = residency_wait_create(server, 1, end_blocking, &ended);
    if (!wait)
        return errbuf_fail(why, entry, NO_MEMORY);
    entry_unpin(entry);
    sem_init(&ended, 0, 0);
    residency_wait_add(wait, name);
    if (residency_wait_begin(wait)) {
        rcu_reader_offline();
        lock_wait_for(&ended);
        rcu_reader_online();
    }
    entry = registry_pin(server->registry, name); /* the wait's pin keeps its bits; it may be another filter now */
    (void)residency_wait_succeeded(wait, &text);
    errbuf_set(why, "%s", text);
    residency_wait_free(wait);
    sem_destroy(&ended);
    return entry;
}

void residency_ask(struct server *server, struct slice name)
{
    struct residency *res = server->persistence->residency;
    struct entry *entry = registry_pin(server->registry, name);
    if (!entry)
        return;
    if (entry_is_evicted(entry)) {
        lock_take(&res->lock);
        if (res->readings.count < ASKED_MOST)
            (void)take_reading(res, name, entry);
        lock_give(&res->lock);
    }
    entry_unpin(entry);
}

/* ---- lifetime ---- */

int residency_create(struct residency **residency_out, struct server *server)
{
    struct residency *res = calloc(1, sizeof(*res));
    if (!res)
        return -ENOMEM;
    res->server = server;
    res->last = &res->first;
    lock_init(&res->lock, RANK_RESIDENCY);
    lock_init(&res->words, RANK_WORDS);
    pthread_cond_init(&res->wake, NULL);
    pthread_cond_init(&res->ended, NULL);
    pthread_cond_init(&res->evictor.press, NULL);
    *residency_out = res;
    return 0;
}

void residency_stop(struct residency *res)
{
    if (!res || res->stop)
        return;
    lock_take(&res->lock);
    res->stop = true;
    pthread_cond_broadcast(&res->wake);
    pthread_cond_broadcast(&res->evictor.press);
    pthread_cond_broadcast(&res->ended);
    lock_give(&res->lock);
    for (unsigned i = 0; i < res->nreaders; i++)
        pthread_join(res->readers[i], NULL);
    if (res->evictor.runs)
        pthread_join(res->evictor.thread, NULL);
}

void residency_destroy(struct residency *res)
{
    if (!res)
        return;
    residency_stop(res);
    hash_table_deinit(&res->readings);
    pthread_cond_destroy(&res->evictor.press);
    pthread_cond_destroy(&res->ended);
    pthread_cond_destroy(&res->wake);
    lock_deinit(&res->words);
    lock_deinit(&res->lock);
    free(res);
}

void residency_info(const struct server *server, struct residency_info *info_out)
{
    struct residency *res = server->persistence->residency;
    *info_out = (struct residency_info){0};
    if (!res) /* in tests of handlers */
        return;
    *info_out = (struct residency_info){
        .evicted = bloom_pool_dropped(server->pool),
        .evicted_bytes = bloom_pool_dropped_bytes(server->pool),
        .evictions = atomic_load_explicit(&res->evictions, memory_order_relaxed),
        .reloads = atomic_load_explicit(&res->reloads, memory_order_relaxed),
        .reload_bytes = atomic_load_explicit(&res->reload_bytes, memory_order_relaxed),
        .failed = atomic_load_explicit(&res->failed, memory_order_relaxed),
    };
    lock_take(&res->lock);
    info_out->waiting = res->readings.count;
    lock_give(&res->lock);
}
