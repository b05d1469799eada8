/* bloomeryd: arguments, settings, set-up, run, tear-down. The parts are torn down in reverse order. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "config_file.h"
#include "log.h"
#include "fsops.h"
#include "facts.h"
#include "persistence.h"
#include "memory_use.h"
#include "main_loop.h"
#include "server_create.h"
#include "thread.h"
#include "version.h"

#define SETTINGS_RIGHT "the settings are valid\n"

static int complain(const char *what, const char *why)
{
    if (log_stderr_is_journal())
        fprintf(stderr, "<3>%s: %s\n", what, why); /* an error, as syslog counts */
    else
        fprintf(stderr, "bloomeryd: %s: %s\n", what, why);
    return 1;
}

/* Another start would fail in the same way: wrong settings, an address that is taken. The unit does not restart a
 * service with this status. */
static int complain_of_settings(const char *what, const char *why)
{
    (void)complain(what, why);
    return EX_CONFIG;
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

static void write_pidfile(struct server *server)
{
    const char *path = server_config(server)->process.pidfile;
    if (!path[0])
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool written = file && fprintf(file, "%ld\n", (long)getpid()) > 0;
    if (file && fclose(file) != 0)
        written = false;
    if (!written)
        log_warning(&server->log, "cannot write pidfile %s: %s", path, strerror(errno));
    server->process.has_pidfile = written;
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

static int serve_until_the_end(struct server *server)
{
    struct errbuf err = {""};
    char dir[2 * PATH_MAX];
    show_dir(server->process.data_dir, dir, sizeof(dir));
    log_notice(&server->log, "bloomeryd %s, process %ld, data in %s", BLOOMERY_VERSION, (long)getpid(), dir);
    int status = server_start(server, PARTS_ALL, &err);
    if (status)
        return (status == EX_CONFIG ? complain_of_settings : complain)("cannot start", err.text);
    write_pidfile(server);
    status = load_start(server, main_loop_loaded);
    if (status)
        return complain("cannot start threads", strerror(-status));
    struct main_loop *ml = server->threads.main_loop;
    main_loop_run(ml);
    if (main_loop_is_loading(
            ml)) { /* asked to end while it still loads: no data has changed, and there is nothing to wait for */
        log_notice(&server->log, "stopped before all filters were loaded");
        if (server->process.has_pidfile)
            unlink(server_config(server)->process.pidfile);
        if (ml->unixsocket)
            unlink(ml->unixsocket);
        load_leave(server);
        _exit(0);
    }
    return ml->load.state == LOAD_FAILED ? complain("cannot start", ml->load.failure.text) : ml->end.lost;
}

/* Reads the arguments. Returns -1 to continue, or the exit status. */
static int read_arguments(struct config *config, int argc, char **argv, struct config_start *start)
{
    struct errbuf err = {""};
    struct buf text;
    buf_init(&text, 1024 * 1024);
    int status = config_load_args(config, argc, argv, start, &err);
    config_hide_secrets(argc, argv);
    if (status != CONFIG_OK)
        return complain_of_settings("wrong settings (bloomeryd --help lists all)", err.text);
    if (err.text[0])
        (void)complain("settings", err.text);
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
    case CONFIG_CHECK:
        if (check_config(config, &err) != 0)
            return complain_of_settings("a start would fail", err.text);
        buf_append(&text, SETTINGS_RIGHT, strlen(SETTINGS_RIGHT));
        break;
    }
    return print_and_exit(&text);
}

int main(int argc, char **argv)
{
    struct server *server = NULL;
    struct config_start start = {.action = CONFIG_RUN};
    struct errbuf err = {""};
    /* Large blocks are mappings, and go back to the system when they are freed. By default the first one that is freed
     * raises the limit, up to 32 MB: the memory of many clients then stays in gaps of the heap after they have gone. */
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    mallopt(M_TRIM_THRESHOLD, 4 << 20);
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
    unsigned nworkers = config->process.threads ? (unsigned)config->process.threads : thread_processors();
    if (status < 0 && server_create(&server, config, nworkers, &err) != 0)
        status = complain_of_settings("cannot start", err.text);
    if (status >= 0) {
        config_deinit(config);
        free(config);
        return status;
    }

    crash_report_start(&server->log, "bloomeryd " BLOOMERY_VERSION);
    uint64_t ignored;
    facts_process_bytes(&server->memory.startup_resident, &ignored);
    server->memory.startup_bytes = memory_used(server);
    if (start.file && !realpath(start.file, server->process.config_file))
        server->process.config_file[0] = '\0';
    if (readlink("/proc/self/exe", server->process.executable, sizeof(server->process.executable) - 1) < 0)
        server->process.executable[0] = '\0';

    status = serve_until_the_end(server);
    if (status == 0)
        log_notice(&server->log, "bye");
    server_destroy(server);
    return status;
}
