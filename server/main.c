/* bloomeryd: arguments, settings, set-up, run, tear-down; nothing else. What is set up last is torn down first. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "exclusive.h"
#include "expirer.h"
#include "half_loads.h"
#include "huge_pages.h"
#include "info.h"
#include "load.h"
#include "persistence.h"
#include "main_loop.h"
#include "notify.h"
#include "push.h"
#include "saver.h"
#include "server.h"
#include "store.h"
#include "version.h"
#include "worker.h"

#define RESERVED_DESCRIPTORS 64 /* beside those of clients: files, listening sockets, the loops' own */

static int complain(const char *what, const char *why)
{
    fprintf(stderr, "bloomeryd: %s: %s\n", what, why);
    return 1;
}

static int print_and_exit(struct buf *text)
{
    int failed = buf_failed(text) || fwrite(buf_head(text), 1, buf_len(text), stdout) != buf_len(text);
    buf_deinit(text);
    return failed || fflush(stdout) != 0;
}

/* Descriptors for as many clients as the settings allow, as far as the system lets us. */
static void raise_descriptor_limit(struct server *server)
{
    struct rlimit limit;
    rlim_t want = (rlim_t)server_config(server)->maxclients + RESERVED_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want)
        return;
    rlim_t hard = limit.rlim_max;
    limit.rlim_cur = want;
    if (limit.rlim_max < want)
        limit.rlim_max = want;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
        return;
    limit.rlim_cur = limit.rlim_max = hard;
    setrlimit(RLIMIT_NOFILE, &limit);
    log_warning(&server->log, "maxclients is %lld, but this process may only have %llu descriptors (ulimit -n)",
                (long long)server_config(server)->maxclients, (unsigned long long)hard);
}

static void make_run_id(char *run_id_out)
{
    unsigned char random[20] = {0};
    if (getrandom(random, sizeof(random), 0) < 0)
        snprintf((char *)random, sizeof(random), "%ld%lld", (long)getpid(), (long long)server_unix_ms());
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(run_id_out + 2 * i, 3, "%02x", random[i]);
}

static void write_pidfile(struct server *server)
{
    const char *path = server_config(server)->pidfile;
    FILE *file = path[0] ? fopen(path, "w") : NULL;
    if (file) {
        fprintf(file, "%ld\n", (long)getpid());
        fclose(file);
    } else if (path[0]) {
        log_warning(&server->log, "cannot write pidfile %s: %s", path, strerror(errno));
    }
}

static void remove_pidfile(struct server *server)
{
    const char *path = server_config(server)->pidfile;
    if (path[0])
        unlink(path);
}

static unsigned processors(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (unsigned)n : 1;
}

/* ---- set-up ---------------------------------------------------------------------------------------------------------- */

static int start_workers(struct server *server, unsigned n)
{
    server->workers = calloc(n, sizeof(*server->workers));
    if (!server->workers)
        return -ENOMEM;
    for (unsigned i = 0; i < n; i++) {
        int err = worker_start(&server->workers[i], server, i);
        if (err)
            return err;
        server->nworkers++;
    }
    return 0;
}

static void stop_workers(struct server *server)
{
    for (unsigned i = 0; i < server->nworkers; i++)
        worker_stop(server->workers[i]);
    while (server->nworkers)
        worker_destroy(server->workers[--server->nworkers]);
    free(server->workers);
}

/* Everything above the registry: data, workers, sockets; and the run itself. */
static int serve(struct server *server, struct main_loop *ml)
{
    const struct config *config = server_config(server);
    struct errbuf err = {""};
    unsigned nthreads = config->threads ? (unsigned)config->threads : processors();

    atomic_store(&server->load.active, true);
    int status = saver_create(&server->saver, server, server->store);
    if (!status)
        status = pubsub_create(&server->pubsub, nthreads, push_wake, server);
    if (!status)
        status = notify_create(&server->notify, server->pubsub);
    if (!status) {
        notify_set_flags(server->notify, config->notify_keyspace_events);
        atomic_store(&server->use_stamp, entry_stamp(server_now_ms()));
        status = start_workers(server, nthreads);
    }
    if (status)
        return complain("cannot start threads", strerror(-status));
    if (main_loop_listen(ml, &err) != 0)
        return complain("cannot start", err.text);
    write_pidfile(server);
    status = load_start(server, main_loop_loaded);
    if (status)
        return complain("cannot start threads", strerror(-status));
    main_loop_run(ml);
    if (ml->loading) { /* asked to end while it still loads: nothing has been changed, and there is nothing to wait for */
        log_notice(&server->log, "bye, before all was loaded");
        remove_pidfile(server);
        if (ml->unixsocket)
            unlink(ml->unixsocket);
        _exit(0);
    }
    return ml->failed ? complain("cannot start", ml->failure.text) : 0;
}

static int run(struct server *server)
{
    struct errbuf err = {""};
    struct main_loop ml;
    int status = bloom_pool_create(&server->pool);
    if (!status)
        status = reclaimer_create(&server->reclaimer);
    if (!status)
        status = registry_create(&server->registry, server->pool, server->reclaimer);
    if (!status)
        status = sessions_create(&server->sessions);
    if (!status)
        status = server_monitors_init(server);
    if (!status)
        status = huge_pages_create(&server->huge_pages, server->pool);
    if (!status)
        status = exclusive_create(&server->exclusive);
    if (!status)
        status = half_loads_create(&server->half_loads);
    if (!status)
        status = main_loop_init(&ml, server);
    if (status)
        return complain("cannot start", strerror(-status));
    server->main_loop = &ml;
    const struct config *config = server_config(server);
    raise_descriptor_limit(server);
    log_notice(&server->log, "bloomeryd %s, process %ld, data in %s", BLOOMERY_VERSION, (long)getpid(), config->dir);

    server->data_dir = strdup(config->dir);
    struct store_options options = {.report = load_report, .report_ctx = server};
    status = store_open(config->dir, &options, &server->store, &err);
    if (status)
        status = complain("cannot start", err.text);
    else
        status = serve(server, &ml);

    expirer_destroy(server->expirer); /* while those are there who are told of what it does */
    notify_stop(server->notify);
    stop_workers(server);
    char *pidfile = strdup(server_config(server)->pidfile); /* the settings may be others by now */
    main_loop_deinit(&ml);
    saver_destroy(server->saver);
    persistence_stop(server);
    store_close(server->store);
    exclusive_destroy(server->exclusive);
    server_monitors_deinit(server);
    huge_pages_destroy(server->huge_pages);
    sessions_destroy(server->sessions);
    half_loads_destroy(server->half_loads, server->registry);
    registry_destroy(server->registry);
    notify_destroy(server->notify);
    pubsub_destroy(server->pubsub);
    server_config_free(server);
    reclaimer_destroy(server->reclaimer);
    bloom_pool_destroy(server->pool);
    if (status == 0 && pidfile && pidfile[0])
        unlink(pidfile);
    free(pidfile);
    return status;
}

/* Reads the arguments. Returns -1 to go on, or the exit status. */
static int read_arguments(struct config *config, int argc, char **argv, struct config_start *start)
{
    struct errbuf err = {""};
    struct buf text;
    buf_init(&text, 1024 * 1024);
    if (config_load_args(config, argc, argv, start, &err) != CONFIG_OK)
        return complain("wrong settings", err.text);
    switch (start->action) {
    case CONFIG_RUN:
        return -1;
    case CONFIG_SHOW_HELP:
        config_help(&text);
        break;
    case CONFIG_SHOW_VERSION:
        buf_append(&text, "bloomeryd " BLOOMERY_VERSION "\n", strlen("bloomeryd " BLOOMERY_VERSION "\n"));
        break;
    case CONFIG_SHOW_CONFIG:
        config_print(config, &text);
        break;
    }
    return print_and_exit(&text);
}

int main(int argc, char **argv)
{
    static struct server server; /* zeroed; large for the stack */
    struct config_start start = {.action = CONFIG_RUN};
    struct errbuf err = {""};
    struct config *config = calloc(1, sizeof(*config));
    if (!config || config_init(config) != 0)
        return complain("cannot start", strerror(ENOMEM));
    int status = read_arguments(config, argc, argv, &start);
    if (status < 0 && log_init(&server.log, config->logfile, (enum log_level)config->loglevel, &err) != 0)
        status = complain("cannot open the log", err.text);
    if (status >= 0) {
        config_deinit(config);
        free(config);
        return status;
    }

    signal(SIGPIPE, SIG_IGN);
    /* libuv's pool has 4 threads by itself. Deferred commands that wait (a SAVE, merges into one filter) must not be able to
     * take them all from those that only look. */
    setenv("UV_THREADPOOL_SIZE", "16", 0);
    server.limits = (struct server_log_limits){{.per_second = 2}, {.per_second = 5}, {.per_second = 1}};
    pthread_mutex_init(&server.config_lock, NULL);
    pthread_mutex_init(&server.rewrite_lock, NULL);
    pthread_mutex_init(&server.stats_lock, NULL);
    atomic_store(&server.config, config);
    server.started_ms = server_now_ms();
    server.started_unix_ms = server_unix_ms();
    make_run_id(server.run_id);
    server.startup_bytes = info_resident_bytes();
    if (start.file && !realpath(start.file, server.config_file))
        server.config_file[0] = '\0';
    if (readlink("/proc/self/exe", server.executable, sizeof(server.executable) - 1) < 0)
        server.executable[0] = '\0';

    status = run(&server);
    if (status == 0)
        log_notice(&server.log, "bye");
    log_deinit(&server.log);
    return status;
}
