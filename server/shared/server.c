#include "server.h"

#include <stdlib.h>
#include <string.h>

#include "notify.h"

/* ---- settings ---- */

void settings_init(struct settings *settings, struct config *config)
{
    atomic_store(&settings->now, config);
    lock_init(&settings->lock, RANK_SETTINGS);
    lock_init(&settings->files, RANK_SETTINGS_FILES);
}

void settings_deinit(struct settings *settings)
{
    lock_deinit(&settings->files);
    lock_deinit(&settings->lock);
}

static int config_reclaim(void *object)
{
    config_deinit(object);
    free(object);
    return 0;
}

int server_config_copy(struct server *server, struct config *copy, struct errbuf *err)
{
    lock_take(&server->settings.lock);
    int status = config_clone(server_config(server), copy);
    lock_give(&server->settings.lock);
    return status == 0 ? 0 : errbuf_fail(err, status, "%s", strerror(-status));
}

void server_config_replace(struct server *server, struct config *config)
{
    bloom_pool_set_limits(server->pool, config->filters.max_filter_bytes, config->memory.maxmemory);
    bloom_pool_set_evicts(server->pool, config->memory.maxmemory_policy != MEMORY_NOEVICTION);
    log_set_level(&server->log, (enum log_level)config->process.loglevel);
    log_set_format(&server->log, (enum log_format)config->process.log_format);
    notify_set_flags(server->notify, config->events.notify_keyspace_events);
    reclaimer_defer(server->reclaimer, config_reclaim, atomic_exchange(&server->settings.now, config), 0);
}

void server_config_free(struct server *server)
{
    struct config *config = atomic_exchange(&server->settings.now, NULL);
    if (config)
        config_reclaim(config);
}
