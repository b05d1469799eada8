/* The parts of a server, from the ground up; the last one started is the first one stopped. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "server_create.h"
#include "window_clock.h"

#include "acl.h"
#include "broadcast.h"
#include "clock.h"
#include "exclusive.h"
#include "half_loads.h"
#include "memory_reserve.h"
#include "memory_use.h"
#include "notify.h"
#include "push.h"
#include "persistence.h"
#include "residency.h"
#include "server_tls.h"
#include "sstables.h"
#include "worker.h"

static void make_run_id(char *run_id_out)
{
    unsigned char random[20] = {0};
    if (getrandom(random, sizeof(random), 0) < 0)
        snprintf((char *)random, sizeof(random), "%ld%lld", (long)getpid(), (long long)clock_unix_ms());
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(run_id_out + 2 * i, 3, "%02x", random[i]);
}

static void log_synced(struct server *server, unsigned worker, uint64_t ticket)
{
    log_waits_post_durable(server->workers[worker], ticket);
}

static void log_has_room(struct server *server, unsigned worker)
{
    log_waits_post_room(server->workers[worker]);
}

static void memory_changed(struct server *server)
{
    for (unsigned i = 0; i < server->nworkers; i++)
        mailbox_wake(&server->workers[i]->mailbox);
}

/* Initialises the values; cannot fail. */
static void init_values(struct server *server, struct config *config)
{
    server->calls = (struct server_calls){.log_synced = log_synced,
                                          .log_has_room = log_has_room,
                                          .memory_changed = memory_changed,
                                          .config_changed = persistence_apply};
    server->limits = (struct server_log_limits){
        {.lines = 1, .seconds = 3600}, {.lines = 5, .seconds = 1}, {.lines = 1, .seconds = 1}};
    pthread_mutex_init(&server->settings.lock, NULL);
    pthread_mutex_init(&server->settings.rewrite_lock, NULL);
    pthread_mutex_init(&server->tls.lock, NULL);
    atomic_store(&server->settings.now, config);
    atomic_store(&server->clients_max, config->maxclients);
    server->process.started_ms = clock_ms();
    server->process.started_unix_ms = clock_unix_ms();
    atomic_store(&server->use_stamp, entry_stamp(server->process.started_ms));
    make_run_id(server->process.run_id);
}

/* ---- the parts, from the ground up: each may use those above it, and goes before them ---- */

static int start_memory(struct server *server)
{
    size_t bytes = server->max_workers * sizeof(*server->memory.of_clients);
    server->memory.of_clients = aligned_alloc(_Alignof(struct client_memory), bytes);
    if (!server->memory.of_clients)
        return -ENOMEM;
    memset(server->memory.of_clients, 0, bytes);
    memory_reserve_keep(server);
    return 0;
}

static void stop_memory(struct server *server)
{
    free(server->memory.of_clients);
    memory_reserve_spend(server);
}

static int start_settings(struct server *server)
{
    server->process.data_dir = strdup(server_config(server)->dir);
    return server->process.data_dir ? 0 : -ENOMEM;
}

static void stop_settings(struct server *server)
{
    free(server->process.data_dir);
    pthread_mutex_destroy(&server->settings.lock);
    pthread_mutex_destroy(&server->settings.rewrite_lock);
}

static int start_bits(struct server *server)
{
    int status = bloom_pool_create(&server->pool);
    if (status == 0)
        bloom_pool_set_clock(server->pool, window_clock_us);
    if (!status)
        bloom_pool_count_beside(server->pool, memory_beside_bits, server);
    return status;
}

static void stop_bits(struct server *server)
{
    bloom_pool_destroy(server->pool);
}

static int start_reclaimer(struct server *server)
{
    return reclaimer_create(&server->reclaimer);
}

/* Frees the objects that are still queued, and the settings and certificates in force. */
static void stop_reclaimer(struct server *server)
{
    server_config_free(server);
    server_tls_free(server);
    reclaimer_destroy(server->reclaimer);
}

static int start_pubsub(struct server *server)
{
    return pubsub_create(&server->pubsub, server->max_workers, push_wake, server);
}

static int start_broadcast(struct server *server)
{
    return broadcast_create(&server->broadcast, server->max_workers, tracking_wake, server);
}

static void stop_broadcast(struct server *server)
{
    broadcast_destroy(server->broadcast);
}

static void stop_pubsub(struct server *server)
{
    pubsub_destroy(server->pubsub);
}

static int start_events(struct server *server)
{
    int status = notify_create(&server->notify, server->pubsub);
    if (!status)
        notify_set_flags(server->notify, server_config(server)->notify_keyspace_events);
    return status;
}

static void stop_events(struct server *server)
{
    notify_destroy(server->notify);
}

static int start_registry(struct server *server)
{
    int status = registry_create(&server->registry, server->pool, server->reclaimer);
    if (!status)
        notify_set_registry(server->notify, server->registry);
    return status;
}

static int start_residency(struct server *server)
{
    return residency_create(&server->residency, server);
}

static void stop_residency(struct server *server)
{
    residency_destroy(server->residency);
}

static void stop_registry(struct server *server)
{
    registry_destroy(server->registry);
}

static int start_sstables(struct server *server)
{
    struct errbuf err;
    return sstables_create(&server->sstables, server_config(server)->sstable_dir, server->registry, server->reclaimer,
                           &server->log, &err);
}

static void stop_sstables(struct server *server)
{
    sstables_destroy(server->sstables);
}

static int start_half_loads(struct server *server)
{
    return half_loads_create(&server->half_loads);
}

static void stop_half_loads(struct server *server)
{
    half_loads_destroy(server->half_loads, server->registry);
}

static int start_sessions(struct server *server)
{
    return sessions_create(&server->sessions);
}

static void stop_sessions(struct server *server)
{
    sessions_destroy(server->sessions);
}

static int start_monitors(struct server *server)
{
    return server_monitors_init(server, server->max_workers);
}

static int start_exclusive(struct server *server)
{
    return exclusive_create(&server->exclusive);
}

static void stop_exclusive(struct server *server)
{
    exclusive_destroy(server->exclusive);
}

/* stop() is called for every part, whether it has been started or not. */
static const struct part {
    const char *name;
    int (*start)(struct server *server); /* 0 or -errno */
    void (*stop)(struct server *server);
} parts[] = {
    {"settings", start_settings, stop_settings},
    {"memory", start_memory, stop_memory},
    {"bits of filters", start_bits, stop_bits},
    {"reclaimer", start_reclaimer, stop_reclaimer},
    {"messages", start_pubsub, stop_pubsub},
    {"events", start_events, stop_events},
    {"changes for clients", start_broadcast, stop_broadcast},
    {"registry", start_registry, stop_registry},
    {"bits on the disk", start_residency, stop_residency},
    {"sstable-dir", start_sstables, stop_sstables},
    {"half loads", start_half_loads, stop_half_loads},
    {"sessions", start_sessions, stop_sessions},
    {"counters", start_monitors, server_monitors_deinit},
    {"exclusive sections", start_exclusive, stop_exclusive},
};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

static int start_parts(struct server *server, struct errbuf *err)
{
    for (size_t i = 0; i < PARTS; i++) {
        int status = parts[i].start(server);
        if (status) {
            errbuf_set(err, "%s: %s", parts[i].name, strerror(-status));
            return status;
        }
    }
    return 0;
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
    server->max_workers = max_workers;
    status = start_parts(server, err);
    if (!status)
        status = acl_create(&server->acl, config, &server->memory.of_users, err);
    if (status) {
        atomic_store(&server->settings.now, NULL); /* the caller still owns it */
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
    acl_destroy(server->acl);
    for (size_t i = PARTS; i-- > 0;)
        parts[i].stop(server);
    log_deinit(&server->log);
    free(server);
}
