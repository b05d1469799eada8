#include "server.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

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
    struct config *old = atomic_exchange(&server->config, config);
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
    for (unsigned i = 0; i < server->nworkers; i++)
        stats_sum(sum_out, &server->workers[i]->stats);
}

/* A counter has one writer, its thread; so a reset does not touch it but notes where it stood. */
void server_stats(struct server *server, struct stats *sum_out)
{
    sum_all(server, sum_out);
    pthread_mutex_lock(&server->stats_lock);
    stats_subtract(sum_out, &server->stats_base);
    pthread_mutex_unlock(&server->stats_lock);
}

void server_stats_reset(struct server *server)
{
    pthread_mutex_lock(&server->stats_lock);
    sum_all(server, &server->stats_base);
    pthread_mutex_unlock(&server->stats_lock);
}

uint64_t server_changes(struct server *server)
{
    uint64_t sum = stats_get(&server->main_stats.changes) + stats_get(&server->job_changes);
    for (unsigned i = 0; i < server->nworkers; i++)
        sum += stats_get(&server->workers[i]->stats.changes);
    return sum;
}

void server_sample(struct server *server)
{
    struct stats sum;
    server_stats(server, &sum);
    stats_sampler_update(&server->sampler, &sum, &server->main_stats, server_now_ms());
}
