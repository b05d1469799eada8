/* The parts of a server, from the ground up; the last one started is the first one stopped. */
#include "server_create.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sysexits.h>
#include <unistd.h>
#include <uv.h>

#include "acl.h"
#include "bytes.h"
#include "clock.h"
#include "exclusive.h"
#include "registry.h"
#include "half_loads.h"
#include "lock.h"
#include "machine.h"
#include "main_loop.h"
#include "memory_use.h"
#include "notify.h"
#include "persistence.h"
#include "pubsub.h"
#include "push.h"
#include "residency.h"
#include "saver.h"
#include "server_files.h"
#include "sstables.h"
#include "store.h"
#include "thread.h"
#include "web.h"
#include "window_clock.h"
#include "worker.h"

#define THREADS_MAX 1024 /* libuv's own limit */

/* Each thread of the pool takes one of these, as none ends before all have begun. */
struct first_work {
    uv_work_t work;
    pthread_barrier_t *all;
};

static void first_run(uv_work_t *work)
{
    struct first_work *first = work->data;
    thread_begin_background("pool"); /* long commands must not take time from short ones */
    pthread_barrier_wait(first->all);
}

static int run_first(unsigned n, struct first_work *works)
{
    pthread_barrier_t all;
    uv_loop_t loop;
    TRY(uv_loop_init(&loop));
    pthread_barrier_init(&all, NULL, n);
    for (unsigned i = 0; i < n; i++) {
        works[i].all = &all;
        works[i].work.data = &works[i];
        uv_queue_work(&loop, &works[i].work, first_run, NULL);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    pthread_barrier_destroy(&all);
    return uv_loop_close(&loop);
}

/* Starts all threads of libuv's pool, each under its own name: libuv would start them at the first use. */
static int start_pool(struct server *server, struct errbuf *err)
{
    const char *text = getenv("UV_THREADPOOL_SIZE"); /* by libuv's own rules */
    int number = text ? atoi(text) : 4;
    unsigned n = number == 0 ? 1 : number < 0 || number > THREADS_MAX ? THREADS_MAX : (unsigned)number;
    struct first_work *works = calloc(n, sizeof(*works));
    int status = works ? run_first(n, works) : -ENOMEM;
    (void)server, (void)err;
    free(works);
    return status;
}

#define LOCK_WAIT_MS  8000 /* the system frees the memory of tens of gigabytes of filters in less */
#define LOCK_RETRY_MS 50

/* ---- parts for commands ---- */

static int start_process(struct server *server, struct errbuf *err)
{
    struct process_facts *process = &server->process;
    (void)err;
    process->started_ms = clock_ms();
    process->started_unix_ms = clock_unix_ms();
    unsigned char random[20] = {0};
    if (getrandom(random, sizeof(random), 0) < 0)
        snprintf((char *)random, sizeof(random), "%ld%lld", (long)getpid(), (long long)clock_unix_ms());
    char *id = process->run_id;
    for (size_t i = 0; i < sizeof(random); i++)
        id = hex_put(id, (char)random[i]);
    *id = '\0';
    process->data_dir = strdup(server_config(server)->data.dir);
    server->persistence = calloc(1, sizeof(*server->persistence));
    atomic_store(&server->clients.max, server_config(server)->network.maxclients);
    return process->data_dir && server->persistence ? 0 : -ENOMEM;
}

static void stop_process(struct server *server)
{
    free(server->process.data_dir);
    free(server->persistence);
    settings_deinit(&server->settings);
}

static int start_memory(struct server *server, struct errbuf *err)
{
    size_t bytes = server->threads.max_workers * sizeof(*server->memory.of_clients);
    (void)err;
    server->memory.of_clients = aligned_alloc(_Alignof(struct client_memory), bytes);
    if (!server->memory.of_clients)
        return -ENOMEM;
    memset(server->memory.of_clients, 0, bytes);
    server->memory.machine_bytes = machine_memory();
    atomic_store(&server->memory.use_stamp, entry_stamp(server->process.started_ms));
    return 0;
}

static void stop_memory(struct server *server)
{
    free(server->memory.of_clients);
}

static int start_bits(struct server *server, struct errbuf *err)
{
    int status = bloom_pool_create(&server->pool);
    (void)err;
    if (status)
        return status;
    bloom_pool_set_clock(server->pool, window_clock_us);
    bloom_pool_set_overhead(server->pool, memory_overhead, server);
    return 0;
}

/* Frees the objects that are still queued, and the settings and certificates in force. */
static void stop_reclaimer(struct server *server)
{
    server_config_free(server);
    server_tls_free(server);
    if (!reclaimer_destroy(server->reclaimer))
        server->pool = NULL; /* a filter is left that uses it, and the process ends in a moment */
}

static int start_events(struct server *server, struct errbuf *err)
{
    int status = notify_create(&server->notify, server->pubsub);
    (void)err;
    if (!status)
        notify_set_flags(server->notify, server_config(server)->events.notify_keyspace_events);
    return status;
}

static int start_registry(struct server *server, struct errbuf *err)
{
    int status = registry_create(&server->registry, server->pool, server->reclaimer);
    (void)err;
    if (!status)
        notify_set_registry(server->notify, server->registry);
    return status;
}

/* ---- data ---- */

/* A killed process holds its lock until the system has freed its memory, which takes a while. */
static int start_store(struct server *server, struct errbuf *err)
{
    struct store_options options = {.report = load_report, .report_ctx = server};
    struct store **store = &server->persistence->store;
    const char *dir = server->process.data_dir;
    int64_t until_ms = clock_ms() + LOCK_WAIT_MS;
    if (getrandom(&options.hash_seed, sizeof(options.hash_seed), 0) != (ssize_t)sizeof(options.hash_seed))
        return errbuf_fail(err, -EIO, "the system gives no random bytes");
    atomic_store(&server->persistence->load.active, true);
    int status = store_open(dir, &options, store, err);
    if (status == STORE_LOCKED)
        log_notice(&server->log, "%s: waiting %d seconds at most for it to end", err->text, LOCK_WAIT_MS / 1000);
    while (status == STORE_LOCKED && clock_ms() < until_ms) {
        usleep(LOCK_RETRY_MS * 1000);
        status = store_open(dir, &options, store, err);
    }
    return status;
}

/* ---- the daemon ---- */

/* Raises the limit of descriptors to fit maxclients, as far as permitted. */
static int allow_clients(struct server *server, struct errbuf *err)
{
    int64_t wanted = server_config(server)->network.maxclients;
    int64_t clients = descriptors_for_clients(wanted, server->threads.max_workers);
    atomic_store(&server->clients.max, clients);
    if (clients <= 0)
        return errbuf_fail(err, EX_CONFIG,
                           "the limit of open files (ulimit -n) is too low: the daemon needs %lld, and one per client",
                           (long long)descriptors_reserved(server->threads.max_workers));
    if (clients < wanted)
        log_warning(&server->log,
                    "maxclients is %lld, but the limit of open files (ulimit -n) allows only %lld clients: more are "
                    "refused",
                    (long long)wanted, (long long)clients);
    return 0;
}

/* Reads the certificates, for as long as the sockets are missing yet. */
static int start_tls(struct server *server, struct errbuf *err)
{
    struct tls_context *context;
    if (server_tls_load(server_config(server), &context, err) != 0)
        return EX_CONFIG;
    if (context) {
        server_tls_report(server, context);
        lock_take(&server->settings.files);
        server_tls_replace(server, context);
        lock_give(&server->settings.files);
    }
    return 0;
}

/* The keys of KEYED filters, before a log is read: a key file in the data directory is made under its lock. */
static int start_keys(struct server *server, struct errbuf *err)
{
    struct key_file *file;
    if (server_keys_load(server, server_config(server), false, &file, err) != 0)
        return EX_CONFIG;
    server_keys_replace(server, file);
    return 0;
}

static int start_main_loop(struct server *server, struct errbuf *err)
{
    struct main_loop *ml = calloc(1, sizeof(*ml));
    int status = ml ? main_loop_init(ml, server) : -ENOMEM;
    (void)err;
    if (status)
        free(ml);
    else
        server->threads.main_loop = ml;
    return status;
}

static void stop_main_loop(struct server *server)
{
    if (server->threads.main_loop)
        main_loop_deinit(server->threads.main_loop);
    free(server->threads.main_loop);
}

static void log_synced(struct server *server, unsigned worker, uint64_t ticket)
{
    log_waits_post_durable(&server->threads.workers[worker]->runner.log, ticket);
}

static void log_has_room(struct server *server, unsigned worker)
{
    log_waits_post_room(&server->threads.workers[worker]->runner.log);
}

static void memory_changed(struct server *server)
{
    for (unsigned i = 0; i < server->threads.nworkers; i++)
        mailbox_wake(server->threads.mailboxes[i]);
}

static void stop_workers(struct server *server)
{
    struct server_threads *threads = &server->threads;
    notify_stop(server->notify); /* clients change nothing from here on */
    for (unsigned i = 0; i < threads->nworkers; i++)
        worker_stop(threads->workers[i]);
}

/* The log thread posts to workers until it has ended. */
static void free_workers(struct server *server)
{
    struct server_threads *threads = &server->threads;
    while (threads->nworkers)
        worker_destroy(threads->workers[--threads->nworkers]);
    free(threads->workers);
    free(threads->mailboxes);
    threads->workers = NULL;
    threads->mailboxes = NULL;
}

static int start_workers(struct server *server, struct errbuf *err)
{
    struct server_threads *threads = &server->threads;
    int status = 0;
    (void)err;
    threads->workers = calloc(threads->max_workers, sizeof(*threads->workers));
    threads->mailboxes = calloc(threads->max_workers, sizeof(*threads->mailboxes));
    if (!threads->workers || !threads->mailboxes)
        return -ENOMEM;
    while (!status && threads->nworkers < threads->max_workers) {
        status = worker_start(&threads->workers[threads->nworkers], server, threads->nworkers);
        threads->nworkers += status == 0;
    }
    return status;
}

/* Before the sockets and the pidfile exist, which an end must remove. */
static int start_signals(struct server *server, struct errbuf *err)
{
    (void)err;
    main_loop_watch_signals(server->threads.main_loop);
    return 0;
}

static void remove_pidfile(struct server *server)
{
    if (server->process.has_pidfile)
        unlink(server_config(server)->process.pidfile);
}

/* ---- the table ---- */

/* Parts whose functions are a single call. */
#define CREATES(name, call)                                             \
    static int create_##name(struct server *server, struct errbuf *err) \
    {                                                                   \
        (void)server, (void)err;                                        \
        return call;                                                    \
    }
#define DESTROYS(name, call)                          \
    static void destroy_##name(struct server *server) \
    {                                                 \
        call;                                         \
    }
CREATES(reclaimer, reclaimer_create(&server->reclaimer))
CREATES(pubsub, pubsub_create(&server->pubsub, server->threads.max_workers, push_wake, server))
CREATES(residency, residency_create(&server->persistence->residency, server))
CREATES(sstables, sstables_create(&server->sstables, server_config(server)->data.sstable_dir, server->registry,
                                  server->reclaimer, &server->log, err))
CREATES(scans, sstables_start(server->sstables))
CREATES(half_loads, half_loads_create(&server->clients.half_loads))
CREATES(sessions, sessions_create(&server->clients.sessions))
CREATES(monitors, monitors_init(&server->stats, server->threads.max_workers))
CREATES(exclusive, exclusive_create(&server->exclusive))
CREATES(users, acl_create(&server->acl, server_config(server), &server->memory.of_users, err))
CREATES(saver, saver_create(&server->persistence->saver, server, server->persistence->store))
CREATES(web, web_start(&server->threads.web, server, err) ? EX_CONFIG : 0)
CREATES(sockets, listen_open(server->threads.main_loop, err) ? EX_CONFIG : 0)
DESTROYS(bits, bloom_pool_destroy(server->pool))
DESTROYS(pubsub, pubsub_destroy(server->pubsub))
DESTROYS(events, notify_destroy(server->notify))
DESTROYS(registry, registry_destroy(server->registry))
DESTROYS(residency, residency_destroy(server->persistence->residency))
DESTROYS(sstables, sstables_destroy(server->sstables))
DESTROYS(scans, sstables_stop(server->sstables))
DESTROYS(half_loads, half_loads_destroy(server->clients.half_loads, server->registry))
DESTROYS(sessions, sessions_destroy(server->clients.sessions))
DESTROYS(monitors, monitors_deinit(&server->stats))
DESTROYS(exclusive, exclusive_destroy(server->exclusive))
DESTROYS(users, acl_destroy(server->acl))
DESTROYS(store, store_close(server->persistence->store))
DESTROYS(saver, saver_destroy(server->persistence->saver))
DESTROYS(readers, residency_stop(server->persistence->residency))
DESTROYS(expirer, expirer_destroy(server->persistence->expirer))
DESTROYS(web, web_stop(server->threads.web))

/* A part that fails is stopped like those that have started. NULL: the load starts it, or another part stops it. */
static const struct part {
    enum server_parts set;
    const char *name;
    int (*start)(struct server *server, struct errbuf *err);
    void (*stop)(struct server *server);
} parts[] = {
    {PARTS_COMMANDS, "settings", start_process, stop_process},
    {PARTS_COMMANDS, "memory", start_memory, stop_memory},
    {PARTS_COMMANDS, "bits of filters", start_bits, destroy_bits},
    {PARTS_COMMANDS, "reclaimer", create_reclaimer, stop_reclaimer},
    {PARTS_COMMANDS, "messages", create_pubsub, destroy_pubsub},
    {PARTS_COMMANDS, "events", start_events, destroy_events},
    {PARTS_COMMANDS, "registry", start_registry, destroy_registry},
    {PARTS_COMMANDS, "bits on the disk", create_residency, destroy_residency},
    {PARTS_COMMANDS, "sstable-dir", create_sstables, destroy_sstables},
    {PARTS_COMMANDS, "half loads", create_half_loads, destroy_half_loads},
    {PARTS_COMMANDS, "sessions", create_sessions, destroy_sessions},
    {PARTS_COMMANDS, "counters", create_monitors, destroy_monitors},
    {PARTS_COMMANDS, "exclusive sections", create_exclusive, destroy_exclusive},
    {PARTS_COMMANDS, "users", create_users, destroy_users},
    {PARTS_DAEMON, "clients", allow_clients, NULL},
    {PARTS_DAEMON, "pool", start_pool, NULL},
    {PARTS_DAEMON, "pidfile", NULL, remove_pidfile},
    {PARTS_DATA, "data directory", start_store, destroy_store},
    {PARTS_DATA, "keys", start_keys, NULL},
    {PARTS_COMMANDS | PARTS_WORKERS, "threads", NULL, free_workers},
    {PARTS_DATA, "log", NULL, persistence_stop},
    {PARTS_DAEMON, "certificates", start_tls, NULL},
    {PARTS_DAEMON, "main loop", start_main_loop, stop_main_loop},
    {PARTS_DATA, "threads", create_saver, destroy_saver}, /* stopped before the loop: TSan does not see libuv close what
                                                             it may then open */
    {PARTS_COMMANDS | PARTS_WORKERS, "threads", NULL, stop_workers},
    {PARTS_WORKERS, "threads", start_workers, NULL},
    {PARTS_DATA, "readers", NULL, destroy_readers},             /* no thread waits for bits any more */
    {PARTS_DAEMON, "sstable-dir", create_scans, destroy_scans}, /* as the saver, and while there are all loops */
    {PARTS_DATA, "expirer", NULL, destroy_expirer}, /* while all parts that are informed of its effects exist */
    {PARTS_DAEMON, "web", create_web, destroy_web}, /* while the parts that it shows exist */
    {PARTS_DAEMON, "signals", start_signals, NULL},
    {PARTS_DAEMON, "sockets", create_sockets, NULL},
};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

int server_start(struct server *server, enum server_parts set, struct errbuf *err)
{
    struct errbuf ignored;
    err = err ? err : &ignored;
    for (size_t i = 0; i < PARTS; i++) {
        const struct part *part = &parts[i];
        if (!(part->set & set) || server->started & UINT64_C(1) << i)
            continue;
        server->started |= UINT64_C(1) << i;
        err->text[0] = '\0';
        int status = part->start ? part->start(server, err) : 0;
        if (status && !err->text[0])
            errbuf_set(err, "%s: %s", part->name, strerror(-status));
        if (status)
            return status;
    }
    return 0;
}

int server_create(struct server **server_out, struct config *config, unsigned max_workers, struct errbuf *err)
{
    struct server *server = cache_lines_alloc(sizeof(*server));
    int status = server ? log_init(&server->log, config->process.logfile, (enum log_level)config->process.loglevel, err)
                        : -ENOMEM;
    if (!server)
        errbuf_set(err, "%s", strerror(ENOMEM));
    if (status) {
        free(server);
        return status;
    }
    log_set_format(&server->log, (enum log_format)config->process.log_format);
    server->calls =
        (struct server_calls){.log_synced = log_synced, .log_has_room = log_has_room, .memory_changed = memory_changed};
    settings_init(&server->settings, config);
    server->threads.max_workers = max_workers;
    status = server_start(server, PARTS_COMMANDS, err);
    if (status) {
        atomic_store(&server->settings.now, NULL); /* the caller still owns it */
        server_destroy(server);
        return status;
    }
    *server_out = server;
    return 0;
}

void server_destroy(struct server *server)
{
    if (!server)
        return;
    for (size_t i = PARTS; i-- > 0;)
        if (parts[i].stop && server->started & UINT64_C(1) << i)
            parts[i].stop(server);
    log_deinit(&server->log);
    free(server);
}
