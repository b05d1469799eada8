/* The parts of a server, from the ground up; what is set up last is torn down first. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "exclusive.h"
#include "half_loads.h"
#include "notify.h"
#include "push.h"
#include "server.h"
#include "worker.h"

static void make_run_id(char *run_id_out)
{
    unsigned char random[20] = {0};
    if (getrandom(random, sizeof(random), 0) < 0)
        snprintf((char *)random, sizeof(random), "%ld%lld", (long)getpid(), (long long)server_unix_ms());
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(run_id_out + 2 * i, 3, "%02x", random[i]);
}

/* What cannot fail. */
static void init_values(struct server *server, struct config *config)
{
    server->limits = (struct server_log_limits){{.per_second = 2}, {.per_second = 5}, {.per_second = 1}};
    pthread_mutex_init(&server->config_lock, NULL);
    pthread_mutex_init(&server->rewrite_lock, NULL);
    pthread_mutex_init(&server->stats_lock, NULL);
    atomic_store(&server->config, config);
    atomic_store(&server->clients_max, config->maxclients);
    server->started_ms = server_now_ms();
    server->started_unix_ms = server_unix_ms();
    atomic_store(&server->use_stamp, entry_stamp(server->started_ms));
    make_run_id(server->run_id);
}

static int create_parts(struct server *server, unsigned max_workers)
{
    int status = (server->data_dir = strdup(server_config(server)->dir)) ? 0 : -ENOMEM;
    if (!status)
        status = bloom_pool_create(&server->pool);
    if (!status)
        status = reclaimer_create(&server->reclaimer);
    if (!status)
        status = registry_create(&server->registry, server->pool, server->reclaimer);
    if (!status)
        status = sessions_create(&server->sessions);
    if (!status)
        status = server_monitors_init(server);
    if (!status)
        status = exclusive_create(&server->exclusive);
    if (!status)
        status = half_loads_create(&server->half_loads);
    if (!status)
        status = pubsub_create(&server->pubsub, max_workers, push_wake, server);
    if (!status)
        status = notify_create(&server->notify, server->pubsub);
    if (!status)
        notify_set_flags(server->notify, server_config(server)->notify_keyspace_events);
    return status;
}

int server_create(struct server **server_out, struct config *config, unsigned max_workers, struct errbuf *err)
{
    struct server *server = calloc(1, sizeof(*server));
    int status = server ? log_init(&server->log, config->logfile, (enum log_level)config->loglevel, err) : -ENOMEM;
    if (!server)
        errbuf_set(err, "%s", strerror(ENOMEM));
    if (status) {
        free(server);
        return status;
    }
    init_values(server, config);
    status = create_parts(server, max_workers);
    if (status) {
        errbuf_set(err, "%s", strerror(-status));
        atomic_store(&server->config, NULL); /* the caller's, still */
        server_destroy(server);
        return status;
    }
    *server_out = server;
    return 0;
}

int server_start_workers(struct server *server, unsigned n)
{
    server->workers = calloc(n, sizeof(*server->workers));
    if (!server->workers)
        return -ENOMEM;
    for (unsigned i = 0; i < n; i++) {
        int status = worker_start(&server->workers[i], server, i);
        if (status)
            return status;
        server->nworkers++;
    }
    return 0;
}

void server_stop(struct server *server)
{
    if (server->stopped)
        return;
    server->stopped = true;
    notify_stop(server->notify);
    for (unsigned i = 0; i < server->nworkers; i++)
        worker_stop(server->workers[i]);
    while (server->nworkers)
        worker_destroy(server->workers[--server->nworkers]);
    free(server->workers);
    server->workers = NULL;
}

void server_destroy(struct server *server)
{
    if (!server)
        return;
    server_stop(server);
    exclusive_destroy(server->exclusive);
    server_monitors_deinit(server);
    sessions_destroy(server->sessions);
    half_loads_destroy(server->half_loads, server->registry);
    registry_destroy(server->registry);
    notify_destroy(server->notify);
    pubsub_destroy(server->pubsub);
    server_config_free(server);
    reclaimer_destroy(server->reclaimer);
    bloom_pool_destroy(server->pool);
    free(server->data_dir);
    log_deinit(&server->log);
    pthread_mutex_destroy(&server->config_lock);
    pthread_mutex_destroy(&server->rewrite_lock);
    pthread_mutex_destroy(&server->stats_lock);
    free(server);
}
