/* bloomeryd: arguments, settings, set-up, run, tear-down; nothing else. What is set up last is torn down first. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "clock.h"
#include "descriptors.h"
#include "expirer.h"
#include "fsops.h"
#include "info.h"
#include "load.h"
#include "memory_use.h"
#include "persistence.h"
#include "main_loop.h"
#include "pool.h"
#include "processors.h"
#include "residency.h"
#include "saver.h"
#include "server_create.h"
#include "server_tls.h"
#include "store.h"
#include "thread.h"
#include "version.h"
#include "web.h"

#define LOCK_WAIT_MS  8000 /* the system frees the memory of tens of gigabytes of filters in less */
#define LOCK_RETRY_MS 50

static int complain(const char *what, const char *why)
{
    if (log_stderr_is_journal())
        fprintf(stderr, "<3>%s: %s\n", what, why); /* an error, as syslog counts */
    else
        fprintf(stderr, "bloomeryd: %s: %s\n", what, why);
    return 1;
}

/* The absolute path of the data directory, for the log; the directory need not exist yet. */
static void show_dir(const char *dir, char *out, size_t size)
{
    char here[PATH_MAX];
    if (dir[0] == '/' || !getcwd(here, sizeof(here))) {
        snprintf(out, size, "%s", dir);
        return;
    }
    while (dir[0] == '.' && dir[1] == '/')
        for (dir += 2; dir[0] == '/';)
            dir++;
    snprintf(out, size, "%s/%s", strcmp(here, "/") == 0 ? "" : here, dir);
}

static int print_and_exit(struct buf *text)
{
    int failed = buf_failed(text) || fwrite(buf_head(text), 1, buf_len(text), stdout) != buf_len(text);
    buf_deinit(text);
    return failed || fflush(stdout) != 0 ? complain("cannot write to the standard output", strerror(errno)) : 0;
}

static unsigned workers_wanted(const struct config *config)
{
    return config->threads ? (unsigned)config->threads : thread_processors(THREAD_SERVER);
}

/* Raises the limit of descriptors to fit maxclients, as far as permitted; false if it leaves room for no client. */
static bool allow_clients(struct server *server)
{
    int64_t wanted = server_config(server)->maxclients;
    int64_t clients = descriptors_for_clients(wanted, workers_wanted(server_config(server)));
    atomic_store(&server->clients_max, clients);
    if (clients > 0 && clients < wanted)
        log_warning(&server->log,
                    "maxclients is %lld, but the limit of open files (ulimit -n) is enough for %lld clients only: more "
                    "are refused",
                    (long long)wanted, (long long)clients);
    return clients > 0;
}

static void write_pidfile(struct server *server)
{
    const char *path = server_config(server)->pidfile;
    if (!path[0])
        return;
    FILE *file = fopen(path, "w");
    bool written = file && fprintf(file, "%ld\n", (long)getpid()) > 0;
    if (file && fclose(file) != 0)
        written = false;
    if (!written)
        log_warning(&server->log, "cannot write pidfile %s: %s", path, strerror(errno));
    server->process.has_pidfile = written;
}

static void remove_pidfile(struct server *server)
{
    if (server->process.has_pidfile)
        unlink(server_config(server)->pidfile);
}

/* ---- signals before there is a loop ---- */

static void end_at_once(int signum)
{
    (void)signum;
    _exit(0);
}

/* Sets handlers until the main loop watches the signals. An end has nothing to wait for yet, not even on a disk that
 * hangs; and without a handler the first process of a container would ignore SIGTERM. SIGHUP is blocked, because it
 * would end the process, and reopening the log needs the loop. The parent process may have blocked the others. */
static void begin_signals(void)
{
    struct sigaction action = {.sa_handler = end_at_once};
    sigset_t ends, waits;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigemptyset(&waits);
    sigaddset(&waits, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &waits, NULL);
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    pthread_sigmask(SIG_UNBLOCK, &ends, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* ---- set-up ---- */

/* Starts the data, the workers and the sockets, and runs the daemon. */
static int serve(struct server *server, struct main_loop *ml)
{
    struct errbuf err = {""};

    atomic_store(&server->load.active, true);
    int status = saver_create(&server->saver, server, server->store);
    if (!status)
        status = server_start_workers(server, workers_wanted(server_config(server)));
    if (status)
        return complain("cannot start threads", strerror(-status));
    if (web_start(&server->web, server, &err) != 0)
        return complain("cannot start", err.text);
    main_loop_watch_signals(ml); /* before the sockets and the pidfile exist, which an end has to remove */
    if (main_loop_listen(ml, &err) != 0)
        return complain("cannot start", err.text);
    write_pidfile(server);
    status = load_start(server, main_loop_loaded);
    if (status)
        return complain("cannot start threads", strerror(-status));
    main_loop_run(ml);
    if (ml->loading) { /* asked to end while it still loads: no data has changed, and there is nothing to wait for */
        log_notice(&server->log, "bye, before all was loaded");
        remove_pidfile(server);
        if (ml->unixsocket)
            unlink(ml->unixsocket);
        load_leave(server);
        _exit(0);
    }
    return ml->failed ? complain("cannot start", ml->failure.text) : 0;
}

/* A killed process holds its lock until the system has freed its memory, which takes a while. */
static int open_store(struct server *server, const struct store_options *options, struct errbuf *err)
{
    const char *dir = server_config(server)->dir;
    int64_t until_ms = clock_ms() + LOCK_WAIT_MS;
    int status = store_open(dir, options, &server->store, err);
    if (status == STORE_LOCKED)
        log_notice(&server->log, "%s: waiting %d seconds at most for it to end", err->text, LOCK_WAIT_MS / 1000);
    while (status == STORE_LOCKED && clock_ms() < until_ms) {
        usleep(LOCK_RETRY_MS * 1000);
        status = store_open(dir, options, &server->store, err);
    }
    return status;
}

/* The pool tries its threads out first; an end in the middle of that waits until they are joined. */
static int start_pool(struct errbuf *err)
{
    sigset_t ends, before;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, &before);
    int status = pool_start(err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

/* Reads the certificates, for as long as the sockets are not there yet. */
static int start_tls(struct server *server, struct errbuf *err)
{
    struct tls_context *context;
    int status = server_tls_load(server_config(server), &context, err);
    if (status == 0 && context) {
        server_tls_report(server, context);
        server_tls_lock(server);
        server_tls_replace(server, context);
        server_tls_unlock(server);
    }
    return status;
}

static int run(struct server *server)
{
    struct errbuf err = {""};
    struct main_loop ml;
    if (!allow_clients(server)) {
        errbuf_set(&err, "the limit of open files (ulimit -n) is too low: %lld are needed, and one for each client",
                   (long long)descriptors_reserved(workers_wanted(server_config(server))));
        return complain("cannot start", err.text);
    }
    if (start_pool(&err) != 0)
        return complain("cannot start", err.text);
    int status = main_loop_init(&ml, server);
    if (status)
        return complain("cannot start", strerror(-status));
    server->main_loop = &ml;
    const struct config *config = server_config(server);
    char dir[2 * PATH_MAX];
    show_dir(config->dir, dir, sizeof(dir));
    log_notice(&server->log, "bloomeryd %s, process %ld, data in %s", BLOOMERY_VERSION, (long)getpid(), dir);

    struct store_options options = {.report = load_report, .report_ctx = server};
    errbuf_set(&err, "the system gives no random bytes");
    status =
        getrandom(&options.hash_seed, sizeof(options.hash_seed), 0) == (ssize_t)sizeof(options.hash_seed) ? 0 : -EIO;
    if (status == 0)
        status = open_store(server, &options, &err);
    if (status)
        status = complain("cannot start", err.text);
    else if (start_tls(server, &err) != 0)
        status = complain("cannot start", err.text);
    else
        status = serve(server, &ml);

    web_stop(server->web);             /* while there is what it shows */
    expirer_destroy(server->expirer);  /* while those are there who are told of what it does */
    residency_stop(server->residency); /* nobody waits for bits any more */
    server_stop(server);
    saver_destroy(server->saver); /* before the loop: TSan does not see libuv close what it may then open */
    main_loop_deinit(&ml);
    persistence_stop(server);
    store_close(server->store);
    remove_pidfile(server);
    return status;
}

static void warn_of_missing(struct server *server, const struct processors_missing *missing)
{
    for (int i = 0; i < PROCESSORS_LISTS; i++)
        if (missing->texts[i].text[0])
            log_warning(&server->log, "%s", missing->texts[i].text);
}

/* Reads the arguments. Returns -1 to go on, or the exit status. */
static int read_arguments(struct config *config, int argc, char **argv, struct config_start *start)
{
    struct errbuf err = {""};
    struct buf text;
    buf_init(&text, 1024 * 1024);
    if (config_load_args(config, argc, argv, start, &err) != CONFIG_OK)
        return complain("wrong settings (bloomeryd --help lists all)", err.text);
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
    struct server *server = NULL;
    struct config_start start = {.action = CONFIG_RUN};
    struct processors_missing missing;
    struct errbuf err = {""};
    begin_signals();
    int status = fs_fill_standard_descriptors();
    if (status != 0)
        return complain("cannot start: /dev/null", strerror(-status));
    /* libuv's default is 4 threads. Deferred commands that wait (a SAVE, merges into one filter) must not take all
     * threads from quick ones. */
    setenv("UV_THREADPOOL_SIZE", "16", 0);
    struct config *config = calloc(1, sizeof(*config));
    if (!config || config_init(config) != 0)
        return complain("cannot start", strerror(ENOMEM));
    status = read_arguments(config, argc, argv, &start);
    if (status < 0 && processors_take(config, &missing, &err) != 0)
        status = complain("cannot start", err.text);
    if (status < 0 && server_create(&server, config, workers_wanted(config), &err) != 0)
        status = complain("cannot start", err.text);
    if (status >= 0) {
        config_deinit(config);
        free(config);
        return status;
    }

    warn_of_missing(server, &missing);
    server->memory.startup_resident = info_resident_bytes();
    server->memory.startup_bytes = memory_used(server);
    if (start.file && !realpath(start.file, server->process.config_file))
        server->process.config_file[0] = '\0';
    if (readlink("/proc/self/exe", server->process.executable, sizeof(server->process.executable) - 1) < 0)
        server->process.executable[0] = '\0';

    status = run(server);
    if (status == 0)
        log_notice(&server->log, "bye");
    server_destroy(server);
    return status;
}
