#include "server.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "latency.h"
#include "slowlog.h"
#include "notify.h"
#include "persistence.h"
#include "worker.h"

int64_t server_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t server_unix_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- settings -------------------------------------------------------------------------------------------------------- */

void server_config_lock(struct server *server)
{
    pthread_mutex_lock(&server->config_lock);
}

void server_config_unlock(struct server *server)
{
    pthread_mutex_unlock(&server->config_lock);
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
    log_set_level(&server->log, (enum log_level)config->loglevel);
    notify_set_flags(server->notify, config->notify_keyspace_events);
    struct config *old = atomic_exchange(&server->config, config);
    if (old)
        persistence_apply(server, old, config);
    if (old)
        reclaimer_defer(server->reclaimer, config_reclaim, old);
}

void server_config_free(struct server *server)
{
    struct config *config = atomic_exchange(&server->config, NULL);
    if (config)
        config_reclaim(config);
}

/* ---- counters -------------------------------------------------------------------------------------------------------- */

static void sum_all(struct server *server, struct stats *sum_out)
{
    memset(sum_out, 0, sizeof(*sum_out));
    stats_sum(sum_out, &server->main_stats);
    stats_sum(sum_out, &server->effect_stats);
    for (unsigned i = 0; i < server->nworkers; i++)
        stats_sum(sum_out, &server->workers[i]->stats);
}

/* A counter has one writer, its thread; so a reset does not touch it but notes where it stood. */
void server_stats(struct server *server, struct stats *sum_out)
{
    pthread_mutex_lock(&server->stats_lock); /* before summing: a reset in between would leave less than nothing */
    sum_all(server, sum_out);
    stats_subtract(sum_out, &server->stats_base);
    pthread_mutex_unlock(&server->stats_lock);
}

static void sum_errors(struct server *server, struct errorstats *sum_out)
{
    memset(sum_out, 0, sizeof(*sum_out));
    for (unsigned i = 0; i < server->nworkers; i++)
        errorstats_sum(sum_out, &server->workers[i]->timing.errors);
}

void server_errors(struct server *server, struct errorstats *sum_out)
{
    pthread_mutex_lock(&server->stats_lock);
    sum_errors(server, sum_out);
    errorstats_subtract(sum_out, &server->errors_base);
    pthread_mutex_unlock(&server->stats_lock);
}

/* Of all workers; false when none has one for this command. */
static bool sum_histograms(struct server *server, size_t counter, struct histogram *sum_out)
{
    bool any = false;
    memset(sum_out, 0, sizeof(*sum_out));
    for (unsigned i = 0; i < server->nworkers; i++) {
        const struct histogram *histogram =
            atomic_load_explicit(&server->workers[i]->timing.histograms[counter], memory_order_acquire);
        if (histogram)
            histogram_sum(sum_out, histogram);
        any |= histogram != NULL;
    }
    return any;
}

bool server_histogram(struct server *server, size_t counter, struct histogram *sum_out)
{
    pthread_mutex_lock(&server->stats_lock);
    bool any = sum_histograms(server, counter, sum_out);
    if (any && server->histograms_base[counter])
        histogram_subtract(sum_out, server->histograms_base[counter]);
    pthread_mutex_unlock(&server->stats_lock);
    return any && histogram_count(sum_out) > 0;
}

/* Without memory for what is to be taken away the histogram goes on from where it was. */
static void reset_histogram(struct server *server, size_t counter)
{
    struct histogram sum;
    if (!sum_histograms(server, counter, &sum))
        return;
    if (!server->histograms_base[counter])
        server->histograms_base[counter] = malloc(sizeof(sum));
    if (server->histograms_base[counter])
        *server->histograms_base[counter] = sum;
}

void server_stats_reset(struct server *server)
{
    pthread_mutex_lock(&server->stats_lock);
    sum_all(server, &server->stats_base);
    sum_errors(server, &server->errors_base);
    server->grown_base = bloom_pool_grown(server->pool);
    for (size_t i = 0; i < STATS_MAX_COMMANDS; i++)
        reset_histogram(server, i);
    pthread_mutex_unlock(&server->stats_lock);
    for (unsigned i = 0; i < server->nworkers; i++)
        usage_reset(server->workers[i]->stats.usage);
}

void server_usage(struct server *server, uint64_t id, struct usage_counts *sum_out)
{
    *sum_out = (struct usage_counts){0};
    for (unsigned i = 0; i < server->nworkers; i++)
        usage_read(server->workers[i]->stats.usage, id, sum_out);
}

int server_monitors_init(struct server *server)
{
    pthread_mutex_init(&server->bf_totals_lock, NULL);
    int err = slowlog_create(&server->slowlog);
    return err ? err : latency_create(&server->latency);
}

void server_monitors_deinit(struct server *server)
{
    for (size_t i = 0; i < STATS_MAX_COMMANDS; i++)
        free(server->histograms_base[i]);
    memset(server->histograms_base, 0, sizeof(server->histograms_base));
    pthread_mutex_destroy(&server->bf_totals_lock);
    slowlog_destroy(server->slowlog);
    latency_destroy(server->latency);
    server->slowlog = NULL;
    server->latency = NULL;
}

uint64_t server_changes(struct server *server)
{
    uint64_t sum = stats_get(&server->main_stats.changes) + stats_get(&server->effect_stats.changes);
    for (unsigned i = 0; i < server->nworkers; i++)
        sum += stats_get(&server->workers[i]->stats.changes);
    return sum;
}

uint64_t server_peak_bytes(struct server *server)
{
    uint64_t bytes = bloom_pool_bytes(server->pool);
    uint64_t peak = atomic_load_explicit(&server->peak_bytes, memory_order_relaxed);
    while (bytes > peak && !atomic_compare_exchange_weak_explicit(&server->peak_bytes, &peak, bytes, memory_order_relaxed,
                                                                  memory_order_relaxed))
        ;
    return bytes > peak ? bytes : peak;
}

void server_sample(struct server *server)
{
    atomic_store_explicit(&server->use_stamp, entry_stamp(server_now_ms()), memory_order_relaxed);
    struct stats sum;
    struct rusage usage = {0};
    getrusage(RUSAGE_THREAD, &usage);
    atomic_store(&server->main_user_usec, (int64_t)usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec);
    atomic_store(&server->main_sys_usec, (int64_t)usage.ru_stime.tv_sec * 1000000 + usage.ru_stime.tv_usec);
    server_peak_bytes(server);
    server_stats(server, &sum);
    stats_sampler_update(&server->sampler, &sum, &server->main_stats, server_now_ms());
}
