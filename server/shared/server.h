/* server: what the workers share. */
#ifndef BLOOMERY_SERVER_H
#define BLOOMERY_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bf_totals.h"
#include "config.h"
#include "counters.h"
#include "errbuf.h"
#include "journal.h"
#include "log.h"
#include "memory_use.h"
#include "rcu.h"
#include "registry.h"
#include "session.h"

/* The Redis version whose behaviour and field names clients may expect, and RedisBloom's, as reported to them. */
#define REDIS_COMPAT_VERSION      "8.0.2"
#define REDISBLOOM_COMPAT_VERSION 80800

#define FILTER_TYPE_NAME "MBbloom--" /* TYPE's answer for a filter: RedisBloom's name of its type */

struct acl;
struct exclusive;
struct half_loads;
struct expirer;
struct latency;
struct notify;
struct pubsub;
struct residency;
struct saver;
struct slowlog;
struct sstables;
struct store;
struct server;
struct tls_context;
struct web;
struct worker;

/* Messages that clients can cause repeatedly, each with a bound of its own (log.h). */
struct server_log_limits {
    struct log_limit attack; /* HTTP requests: one an hour, as a Prometheus comes every few seconds */
    struct log_limit client; /* clients closed over a limit or for lack of memory */
    struct log_limit accept; /* connections that could not be accepted */
};

/* The load at the start; it runs beside the workers, which refuse nearly all commands meanwhile. */
struct load_progress {
    _Atomic bool active;
    _Atomic uint64_t total_bytes; /* an estimate */
    _Atomic uint64_t done_bytes;
    int64_t started_unix_ms;
    int64_t started_ms; /* monotonic */
    struct load *load;  /* internal to load.c */
};

/* A request to the main thread: the end of the daemon. */
enum shutdown_save { SHUTDOWN_SAVE_BY_RULES, SHUTDOWN_SAVE, SHUTDOWN_NOSAVE };
struct shutdown_request {
    enum shutdown_save save; /* by rules: if there are any `save` rules */
    bool force;              /* end even if the save fails */
};

/* Functions that higher folders implement and lower ones call; set before any thread starts. */
struct server_calls {
    /* Asks the main thread to end the daemon and waits for its decision. True: the daemon ends (the caller returns, and
     * its client is disconnected soon). False: the last save failed and the daemon goes on; `err` has the reason.
     * Blocks: called in a thread of the pool, offline. */
    bool (*shutdown)(struct server *server, const struct shutdown_request *request, struct errbuf *err);

    /* The log thread tells a worker that the log is on the disk up to this ticket, or that its ring has room again. */
    void (*log_synced)(struct server *server, unsigned worker, uint64_t ticket);
    void (*log_has_room)(struct server *server, unsigned worker);

    /* Bits have left memory, or cannot: workers look again. */
    void (*memory_changed)(struct server *server);

    /* The settings have changed; both snapshots are valid during the call. Called under server_config_lock(). */
    void (*config_changed)(struct server *server, const struct config *old, const struct config *now);
};

/* The commands that CLIENT PAUSE pauses. */
enum pause { PAUSE_NOTHING, PAUSE_WRITES, PAUSE_ALL };

/* The settings in force: an immutable snapshot, replaced as a whole by server_config_replace(). */
struct settings {
    _Atomic(struct config *) now;
    pthread_mutex_t lock;         /* one change at a time: server_config_lock() */
    pthread_mutex_t rewrite_lock; /* one CONFIG REWRITE at a time; held while it writes */
};

/* What new TLS connections are made from; state of server_tls.h. */
struct server_tls {
    _Atomic(struct tls_context *) now; /* NULL: none is wanted. Valid until the reader goes offline */
    _Atomic int64_t expires;           /* of the certificate, in seconds since 1970; 0: there is none */
    _Atomic uint64_t generation;       /* counts what has been put in force */
    pthread_mutex_t lock;
};

/* CLIENT PAUSE. Changed while all workers stand still, or to PAUSE_NOTHING. */
struct pause_state {
    _Atomic int what;         /* enum pause */
    _Atomic int64_t until_ms; /* monotonic; the pause is over when it is reached */
};

/* State of memory_use.h and memory_reserve.h. */
struct memory_account {
    _Atomic(void *) reserve;
    struct client_memory *of_clients; /* one for each worker */
    _Atomic uint64_t of_users;        /* acl.h counts there */
    uint64_t startup_bytes;           /* memory_used() before any filter was loaded */
    uint64_t startup_resident;        /* bytes that the process occupied then */
    _Atomic uint64_t peak_bytes;      /* the highest memory_used() so far */
};

/* The process itself; constant once the workers run, except the times. */
struct process_facts {
    char run_id[41];
    char config_file[4096]; /* absolute, or "" */
    char executable[4096];
    char *data_dir;     /* as it was given at the start */
    bool has_pidfile;   /* it was written, and is removed at the end */
    int port;           /* TCP port of the listening sockets, 0 if none */
    int tls_port;       /* likewise of those with TLS */
    int64_t started_ms; /* monotonic */
    int64_t started_unix_ms;
    _Atomic int64_t main_user_usec; /* CPU time of the main thread */
    _Atomic int64_t main_sys_usec;
};

struct bf_totals_cache {
    pthread_mutex_t lock;
    struct bf_totals last; /* the last result */
};

/* The parts of the daemon, from the ground up. */
struct server {
    struct server_calls calls;
    struct log log;
    struct server_log_limits limits;
    struct process_facts process;
    struct settings settings;
    struct server_tls tls;
    struct memory_account memory;

    struct counters *counters; /* of all threads */
    struct slowlog *slowlog;
    struct latency *latency;
    struct bf_totals_cache totals;
    _Atomic uint64_t grown_base; /* bloom_pool_grown() at the last CONFIG RESETSTAT */

    struct bloom_pool *pool;
    struct reclaimer *reclaimer;
    struct registry *registry;
    struct sstables *sstables; /* the filters of watched directories; NULL: there are none */
    struct expirer *expirer;
    _Atomic uint16_t use_stamp; /* entry_stamp() of now; kept by the main thread */

    struct pubsub *pubsub;
    struct notify *notify;       /* events of filters */
    struct broadcast *broadcast; /* changes for CLIENT TRACKING ON BCAST */
    _Atomic int publishers_wait; /* 1: a worker has publishers that wait for deliveries (push.c) */

    struct store *store;               /* the data directory, opened */
    _Atomic(struct journal *) journal; /* the add log (persistence.h); NULL while filters are being loaded */
    struct journal_keep log_kept;      /* kept while the log has adds to filters in quarantine */
    uint64_t log_accepted;             /* store_checkpoint.accepted of the saves to come; set before the first one */
    struct saver *saver;
    struct residency *residency; /* bits that are not in memory */
    _Atomic unsigned leaving;    /* residency_some_away() */
    struct load_progress load;
    _Atomic size_t loaded_filters; /* at the start */
    _Atomic size_t load_expired;   /* filters of the data directory that had expired by the start */

    struct acl *acl; /* the users, and the log of refused access */
    struct sessions *sessions;
    _Atomic int64_t clients_max;   /* maxclients, or fewer: descriptors.h */
    struct half_loads *half_loads; /* filters that BF.LOADCHUNK is loading */
    _Atomic int large_jobs;        /* content_large_begin() */
    _Atomic int migrations;        /* MIGRATE commands under way */
    _Atomic uint64_t tracked;      /* names that CLIENT TRACKING has noted, of all clients */
    _Atomic uint64_t flushes;      /* FLUSHALL, FLUSHDB and SWAPDB so far: many names have changed */

    struct pause_state pause;
    struct exclusive *exclusive; /* sections in which one worker runs alone */
    struct worker **workers;
    unsigned nworkers, max_workers;
    bool stopped;                /* server_stop() */
    struct web *web;             /* the status page; NULL: none */
    struct main_loop *main_loop; /* of the main thread: listening, signals, timers, shutdown */
};

/* The settings in force. Valid until the reader goes offline (rcu.h). */
static inline const struct config *server_config(const struct server *server)
{
    return atomic_load_explicit(&server->settings.now, memory_order_acquire);
}

static inline struct journal *server_journal(const struct server *server)
{
    return atomic_load_explicit(&server->journal, memory_order_acquire);
}

static inline bool server_loading(const struct server *server)
{
    return atomic_load_explicit(&server->load.active, memory_order_acquire);
}

/* Publishes a new snapshot and frees the old one after a grace period; applies settings with effects of their own
 * (memory limits, log level, save rules). Takes ownership. Thread: any, under server_config_lock(). */
void server_config_replace(struct server *server, struct config *config);
void server_config_free(struct server *server); /* at the end, without readers */
void server_config_lock(struct server *server);
void server_config_unlock(struct server *server);

/* Creates the counters, the slow log and the latency monitor. 0 or -ENOMEM; deinit in any case. */
int server_monitors_init(struct server *server, unsigned max_workers);
void server_monitors_deinit(struct server *server);

/* The highest memory_used() (memory_use.h) among the samples. */
uint64_t server_peak_bytes(struct server *server);

/* Takes a sample for the gauges; ten times a second, main thread. */
void server_sample(struct server *server);

#endif
