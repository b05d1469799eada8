/* server: what the workers share. */
#ifndef BLOOMERY_SERVER_H
#define BLOOMERY_SERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "errbuf.h"
#include "log.h"
#include "rcu.h"
#include "registry.h"
#include "session.h"
#include "stats.h"

/* The Redis version whose behaviour and field names clients may expect, and RedisBloom's, as reported to them. */
#define REDIS_COMPAT_VERSION      "8.0.2"
#define REDISBLOOM_COMPAT_VERSION 80800

struct saver;
struct store;
struct worker;

struct server {
    _Atomic(struct config *) config;    /* immutable snapshot; replaced as a whole by server_config_replace() */
    struct log *log;
    struct bloom_pool *pool;
    struct registry *registry;
    struct reclaimer *reclaimer;
    struct sessions *sessions;
    struct saver *saver;
    struct worker **workers;
    unsigned nworkers;
    struct stats main_stats;            /* counters of the main thread */
    int port;                           /* TCP port that is listened on, 0 if none */
    int64_t started_ms;                 /* monotonic */
    int64_t started_unix_ms;
    char run_id[41];
    char config_file[4096];             /* absolute, or "" */
    char executable[4096];
};

/* The settings in force. Valid until the reader goes offline (rcu.h). */
static inline const struct config *server_config(const struct server *server)
{
    return atomic_load_explicit(&server->config, memory_order_acquire);
}

/* Puts another snapshot in force and frees the old one after a grace period; applies what has effects of its own (limits
 * of memory, log level, save rules). Takes ownership. Thread: any; callers are serialised by server_config_lock(). */
void server_config_replace(struct server *server, struct config *config);
void server_config_lock(struct server *server);
void server_config_unlock(struct server *server);

/* The counters of all workers and the main thread, summed. */
void server_stats(struct server *server, struct stats *sum_out);
void server_stats_reset(struct server *server);

int64_t server_now_ms(void);      /* monotonic */
int64_t server_unix_ms(void);     /* since the epoch */

#endif
