/* server: the parts of the daemon, which all its threads share. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "alloc.h"
#include "config.h"
#include "counters.h"
#include "errbuf.h"
#include "journal.h"
#include "lock.h"
#include "log.h"
#include "memory_use.h"
#include "monitors.h"
#include "rcu.h"
#include "registry.h"
#include "session.h"

/* server_settings: the settings in force, and the certificates that they name: immutable snapshots, replaced as a whole
 * (persistence.h, server_files.h). */

struct config;
struct errbuf;
struct tls_context;

struct server_tls {
    _Atomic(struct tls_context *) now; /* NULL: none is wanted. Valid until the reader goes offline */
    _Atomic int64_t expires;           /* of the certificate, in seconds since 1970; 0: none */
};

struct settings {
    _Atomic(struct config *) now;
    struct lock lock;        /* one change at a time */
    struct lock files;       /* one thread at a time reads certificates, or writes settings or users */
    struct server_tls tls;   /* for new TLS connections */
    _Atomic int key_trouble; /* -errno of the latest key file that could not be made (server_files.h) */
};

void settings_init(struct settings *settings, struct config *config);
void settings_deinit(struct settings *settings);

static inline const struct config *settings_now(const struct settings *settings)
{
    return atomic_load_explicit(&settings->now, memory_order_acquire);
}

void server_config_free(struct server *server); /* at the end, without readers */

/* A copy of the settings in force, delayed by no file; config_deinit() frees it. 0 or -errno with the reason. */
int server_config_copy(struct server *server, struct config *copy, struct errbuf *err);

/* Publishes a new snapshot and frees the old one after a grace period; applies memory limits and the levels of the log
 * and of events. Takes ownership. Thread: any, under settings.lock. */
void server_config_replace(struct server *server, struct config *config);

/* process_facts: the process itself; constant once the workers run, except for atomic members. */

struct process_facts {
    char run_id[41];
    char config_file[4096]; /* absolute, or "" */
    char executable[4096];
    char *data_dir;       /* as it was given at the start */
    bool has_pidfile;     /* it was written, and is removed at the end */
    _Atomic int port;     /* TCP port of the listening sockets, 0 if none */
    _Atomic int tls_port; /* likewise of those with TLS */
    int64_t started_ms;   /* monotonic */
    int64_t started_unix_ms;
    _Atomic int64_t main_user_usec; /* CPU time of the main thread */
    _Atomic int64_t main_sys_usec;
};

/* The Redis version whose behaviour and field names clients may expect, and RedisBloom's, as reported to them. */
#define REDIS_COMPAT_VERSION      "8.0.2"
#define REDISBLOOM_COMPAT_VERSION 80800

/* TYPE's answer for a Bloom filter: RedisBloom's name of its type. Those of others: bf_type_name(). */
#define FILTER_TYPE_NAME "MBbloom--"

struct acl;
struct exclusive;
struct half_loads;
struct mailbox;
struct main_loop;
struct notify;
struct persistence;
struct pubsub;
struct sstables;
struct server;
struct web;
struct worker;

/* A request to the main thread: the end of the daemon. */
enum shutdown_save { SHUTDOWN_SAVE_BY_RULES, SHUTDOWN_SAVE, SHUTDOWN_NOSAVE };
struct shutdown_request {
    enum shutdown_save save; /* by rules: if there are any `save` rules */
    bool force;              /* end even if the save fails */
};

/* Functions that higher folders implement and lower ones call; set before any thread starts. */
struct server_calls {
    /* Asks the main thread to end the daemon and waits for its decision. True: the daemon ends (the caller returns, and
     * its client is disconnected soon). False: the last save failed and the daemon continues; `err` has the reason.
     * Blocks: called in a thread of the pool, offline. */
    bool (*shutdown)(struct server *server, const struct shutdown_request *request, struct errbuf *err);

    /* The log thread informs a worker that the log is on the disk up to this ticket, or its ring has room again. */
    void (*log_synced)(struct server *server, unsigned worker, uint64_t ticket);
    void (*log_has_room)(struct server *server, unsigned worker);

    /* Bits have been evicted, or cannot: workers look again. */
    void (*memory_changed)(struct server *server);
};

/* The commands that CLIENT PAUSE pauses. */
enum pause { PAUSE_NOTHING, PAUSE_WRITES, PAUSE_ALL };

/* CLIENT PAUSE. Changed while all workers stand still, or to PAUSE_NOTHING. */
struct pause_state {
    _Atomic int what;         /* enum pause */
    _Atomic int64_t until_ms; /* monotonic; the pause is over when it is reached */
};

/* The state that clients share. */
struct clients {
    struct sessions *sessions;
    struct half_loads *half_loads; /* filters that BF.LOADCHUNK is loading */
    struct pause_state pause;
    _Atomic int64_t max; /* maxclients, or fewer: machine.h */

    /* Members that commands write; in no cache line with those that all commands read. */
    alignas(CACHE_LINE) _Atomic int large_jobs; /* content_large_begin() */
};

/* The threads with an event loop. */
struct server_threads {
    struct main_loop *main_loop; /* listening, signals, timers, shutdown */
    struct web *web;             /* the status page; NULL: none */
    struct worker **workers;
    struct mailbox **mailboxes; /* of the workers */
    unsigned nworkers, max_workers;
    _Atomic int publishers_wait; /* 1: a worker has publishers that wait for deliveries (push.c) */
};

/* The parts of the daemon, from the ground up; server_create.h starts and stops them. */
struct server {
    uint64_t started; /* a bit for each row of the parts (server_create.c) */
    struct server_calls calls;
    struct log log;
    struct process_facts process;
    struct settings settings;
    struct memory_account memory;
    struct monitors stats;
    struct bloom_pool *pool;
    struct reclaimer *reclaimer;
    struct registry *registry;
    struct sstables *sstables; /* the filters of watched directories; NULL: none */
    struct pubsub *pubsub;
    struct notify *notify;             /* events of filters */
    _Atomic(struct journal *) journal; /* the add log; NULL while filters are being loaded */
    struct persistence *persistence;
    struct acl *acl; /* the users, and the log of refused access */
    struct clients clients;
    struct exclusive *exclusive; /* sections in which one worker runs alone */
    struct server_threads threads;
};

/* The settings in force. Valid until the reader goes offline (rcu.h). */
static inline const struct config *server_config(const struct server *server)
{
    return settings_now(&server->settings);
}

static inline struct journal *server_journal(const struct server *server)
{
    return atomic_load_explicit(&server->journal, memory_order_acquire);
}
