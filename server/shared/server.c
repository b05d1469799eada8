#include "server.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "bloom_resident.h"
#include "clock.h"
#include "latency.h"
#include "slowlog.h"
#include "memory_use.h"
#include "notify.h"

/* ---- settings ---- */

void server_config_lock(struct server *server)
{
    pthread_mutex_lock(&server->settings.lock);
}

void server_config_unlock(struct server *server)
{
    pthread_mutex_unlock(&server->settings.lock);
}

static int config_reclaim(void *object)
{
    config_deinit(object);
    free(object);
    return 0;
}

void server_config_replace(struct server *server, struct config *config)
{
    bloom_pool_set_limits(server->pool, config->bf_max_filter_bytes, config->maxmemory);
    bloom_pool_set_overshoot(server->pool, config->maxmemory_policy != MEMORY_NOEVICTION);
    log_set_level(&server->log, (enum log_level)config->loglevel);
    notify_set_flags(server->notify, config->notify_keyspace_events);
    struct config *old = atomic_exchange(&server->settings.now, config);
    if (old && server->calls.config_changed)
        server->calls.config_changed(server, old, config);
    if (old)
        reclaimer_defer(server->reclaimer, config_reclaim, old);
}

void server_config_free(struct server *server)
{
    struct config *config = atomic_exchange(&server->settings.now, NULL);
    if (config)
        config_reclaim(config);
}

/* ---- counters ---- */

int server_monitors_init(struct server *server, unsigned max_workers)
{
    pthread_mutex_init(&server->totals.lock, NULL);
    int err = counters_create(&server->counters, max_workers);
    if (!err)
        err = slowlog_create(&server->slowlog);
    return err ? err : latency_create(&server->latency);
}

void server_monitors_deinit(struct server *server)
{
    pthread_mutex_destroy(&server->totals.lock);
    counters_destroy(server->counters);
    slowlog_destroy(server->slowlog);
    latency_destroy(server->latency);
    server->counters = NULL;
    server->slowlog = NULL;
    server->latency = NULL;
}

uint64_t server_peak_bytes(struct server *server)
{
    uint64_t bytes = memory_used(server);
    uint64_t peak = atomic_load_explicit(&server->memory.peak_bytes, memory_order_relaxed);
    while (bytes > peak && !atomic_compare_exchange_weak_explicit(&server->memory.peak_bytes, &peak, bytes,
                                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    return bytes > peak ? bytes : peak;
}

void server_sample(struct server *server)
{
    atomic_store_explicit(&server->use_stamp, entry_stamp(clock_ms()), memory_order_relaxed);
    struct rusage usage = {0};
    getrusage(RUSAGE_THREAD, &usage);
    atomic_store(&server->process.main_user_usec, (int64_t)usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec);
    atomic_store(&server->process.main_sys_usec, (int64_t)usage.ru_stime.tv_sec * 1000000 + usage.ru_stime.tv_usec);
    server_peak_bytes(server);
    counters_sample(server->counters, clock_ms());
}
