/* server: what the workers share. */
#ifndef BLOOMERY_SERVER_H
#define BLOOMERY_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bf_totals.h"
#include "config.h"
#include "errbuf.h"
#include "errorstats.h"
#include "journal.h"
#include "log.h"
#include "rcu.h"
#include "registry.h"
#include "session.h"
#include "stats.h"
#include "usage.h"

/* The Redis version whose behaviour and field names clients may expect, and RedisBloom's, as reported to them. */
#define REDIS_COMPAT_VERSION      "8.0.2"
#define REDISBLOOM_COMPAT_VERSION 80800

#define FILTER_TYPE_NAME "MBbloom--" /* what TYPE says of a filter: RedisBloom's name of its type */

struct exclusive;
struct half_loads;
struct expirer;
struct histogram;
struct latency;
struct huge_pages;
struct notify;
struct pubsub;
struct saver;
struct slowlog;
struct store;
struct worker;

/* Messages that clients can cause again and again, each with a bound of its own (log.h). */
struct server_log_limits {
    struct log_limit attack;       /* HTTP requests */
    struct log_limit client;       /* clients closed over a limit or for want of memory */
    struct log_limit accept;       /* connections that could not be taken */
};

/* The loading at the start; it runs beside the workers, which refuse nearly everything meanwhile. */
struct load_progress {
    _Atomic bool active;
    _Atomic uint64_t total_bytes;       /* an estimate */
    _Atomic uint64_t done_bytes;
    int64_t started_unix_ms;
    int64_t started_ms;                 /* monotonic */
    struct load *load;                  /* load.c's own */
};

/* What CLIENT PAUSE holds back. */
enum pause { PAUSE_NOTHING, PAUSE_WRITES, PAUSE_ALL };

struct server {
    _Atomic(struct config *) config;    /* immutable snapshot; replaced as a whole by server_config_replace() */
    _Atomic int64_t clients_max;        /* maxclients, or fewer: descriptors.h */
    _Atomic uint16_t use_stamp;         /* entry_stamp() of now; kept by the main thread */
    struct log log;
    struct server_log_limits limits;
    struct bloom_pool *pool;
    struct registry *registry;
    struct reclaimer *reclaimer;
    struct sessions *sessions;
    struct pubsub *pubsub;
    struct notify *notify;              /* events of filters */
    _Atomic int publishers_wait;        /* 1: a worker has clients that wait for their messages to be delivered (push.c) */
    struct saver *saver;
    struct expirer *expirer;
    struct huge_pages *huge_pages;
    struct worker **workers;
    unsigned nworkers;
    bool stopped;                       /* server_stop() */
    _Atomic int64_t pause_until_ms;     /* monotonic; the pause is over when it is reached */
    _Atomic int pause;                  /* enum pause; changed in exclusive sections only, or to none */
    struct exclusive *exclusive;        /* sections in which one worker runs alone */
    struct stats main_stats;            /* counters of the main thread */
    _Atomic int large_jobs;             /* content_large_begin() */
    struct half_loads *half_loads;      /* filters that BF.LOADCHUNK is loading */
    struct stats effect_stats;          /* counters of effects (effects.h), under the registry's mutex */
    struct main_loop *main_loop;        /* of the main thread: listening, signals, timers, shutdown */
    struct store *store;                /* the data directory, opened */

    char *data_dir;                     /* as it was given at the start */
    bool has_pidfile;                   /* it has been written, and goes at the end */
    struct journal_keep log_kept;       /* while the log has adds to filters in quarantine */
    uint64_t log_accepted;              /* store_checkpoint.accepted of the saves to come; set before the first one */
    _Atomic(struct journal *) journal;  /* the add log (persistence.h); NULL while filters are being loaded */
    struct load_progress load;
    pthread_mutex_t config_lock;
    pthread_mutex_t rewrite_lock;       /* one CONFIG REWRITE at a time; held while it writes */
    pthread_mutex_t stats_lock;
    struct stats stats_base;            /* the sums at the last reset, here and in the next two */
    struct errorstats errors_base;
    struct histogram *histograms_base[STATS_MAX_COMMANDS]; /* NULL: nothing was counted then */
    struct slowlog *slowlog;
    struct latency *latency;
    struct stats_sampler sampler;
    _Atomic uint64_t grown_base;        /* bloom_pool_grown() at the last reset */
    _Atomic uint64_t peak_bytes;        /* most memory for bits so far */
    _Atomic int64_t main_user_usec;     /* CPU time of the main thread */
    _Atomic int64_t main_sys_usec;
    pthread_mutex_t bf_totals_lock;
    struct bf_totals bf_totals;         /* the last result; under its lock */
    _Atomic size_t loaded_filters;            /* at the start */
    _Atomic size_t load_expired;        /* filters of the data directory that had expired by then */
    int port;                           /* TCP port that is listened on, 0 if none */
    int64_t started_ms;                 /* monotonic */
    uint64_t startup_bytes;             /* resident before any filter was loaded */
    int64_t started_unix_ms;
    char run_id[41];
    char config_file[4096];             /* absolute, or "" */
    char executable[4096];
};

/* The parts that commands need: memory, names, sessions, monitors, sections, channels and events. At most `max_workers` (at
 * least 1) will be started; none are yet, and no file is opened but the log. Takes over `config` if it succeeds. 0, or
 * -errno with the reason. */
int server_create(struct server **server_out, struct config *config, unsigned max_workers, struct errbuf *err);

/* Starts n workers. 0 or -errno; server_stop() ends those that have been started. */
int server_start_workers(struct server *server, unsigned n);

/* Ends the notifier and the workers: no client changes anything from here on. For who takes down something that they use,
 * before server_destroy(), which does it otherwise. */
void server_stop(struct server *server);
void server_destroy(struct server *server); /* NULL is fine */

/* The settings in force. Valid until the reader goes offline (rcu.h). */
static inline const struct config *server_config(const struct server *server)
{
    return atomic_load_explicit(&server->config, memory_order_acquire);
}

static inline struct journal *server_journal(const struct server *server)
{
    return atomic_load_explicit(&server->journal, memory_order_acquire);
}

static inline bool server_loading(const struct server *server)
{
    return atomic_load_explicit(&server->load.active, memory_order_acquire);
}

/* Puts another snapshot in force and frees the old one after a grace period; applies what has effects of its own (limits
 * of memory, log level, save rules). Takes ownership. Thread: any; callers are serialised by server_config_lock(). */
void server_config_replace(struct server *server, struct config *config);
void server_config_free(struct server *server); /* at the end, when nobody reads it any more */
void server_config_lock(struct server *server);
void server_config_unlock(struct server *server);

/* The counters of all workers and the main thread, summed, since the start or the last reset (CONFIG RESETSTAT). */
void server_stats(struct server *server, struct stats *sum_out);

/* The same for errors by code, and for how long the calls of the row with that counter (command_index()) took; false when
 * none was measured. */
void server_errors(struct server *server, struct errorstats *sum_out);
bool server_histogram(struct server *server, size_t counter, struct histogram *sum_out);

void server_stats_reset(struct server *server); /* not on a loop: it sums up everything there is */

/* What struct server has for this module: slow log, latency monitor. 0 or -ENOMEM; deinit in any case. */
int server_monitors_init(struct server *server);
void server_monitors_deinit(struct server *server);

/* What all workers have counted for one filter since the start or the last reset. */
void server_usage(struct server *server, uint64_t id, struct usage_counts *sum_out);

/* Changes to filters since the start, whatever has been reset: what save rules count. */
uint64_t server_changes(struct server *server);

/* The most bytes that the bits of all filters have taken, as far as anybody looked. */
uint64_t server_peak_bytes(struct server *server);

/* Takes a sample for the gauges; ten times a second, main thread. */
void server_sample(struct server *server);

/* Asks the main thread to end the daemon and waits for its decision. true: it ends (the caller returns and its client is
 * disconnected soon). false: the last save failed and nothing has changed; `err` says why. Blocks: a thread of the pool,
 * offline. */
enum shutdown_save { SHUTDOWN_SAVE_BY_RULES, SHUTDOWN_SAVE, SHUTDOWN_NOSAVE };
struct shutdown_request {
    enum shutdown_save save; /* by rules: if there are any `save` rules */
    bool force;              /* end even if the save fails */
};
bool server_shutdown(struct server *server, const struct shutdown_request *request, struct errbuf *err);

int64_t server_now_ms(void);      /* monotonic */
int64_t server_unix_ms(void);     /* since the epoch */

#endif
