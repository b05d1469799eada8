#include "daemon.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "environment.h"
#include "ports.h"
#include "tmpdir.h"
#include "wire.h"

#define PATIENCE_MS    300000 /* for any certain event; sanitizers are slow on a loaded machine */
#define START_ATTEMPTS 5      /* another program may take the port before the daemon does */
#define READY_TEXT     " ready: listening on "
#define ENGINE_READY   "Ready to accept connections"

static char output[1 << 20];

/* ---- small helpers ---- */

static long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void pause_ms(int ms)
{
    poll(NULL, 0, ms);
}

static size_t file_size(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? (size_t)st.st_size : 0;
}

/* The content of a file from an offset on (its last part, when that is very long), NUL-terminated in `output`. */
static const char *read_output(const char *path, size_t offset)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    ssize_t n = 0;

    if (size > (off_t)(offset + sizeof(output) - 1))
        offset = (size_t)size - (sizeof(output) - 1);
    if (fd >= 0) {
        n = pread(fd, output, sizeof(output) - 1, (off_t)offset);
        close(fd);
    }
    output[n > 0 ? n : 0] = '\0';
    for (ssize_t i = 0; i < n; i++)
        if (output[i] == '\0')
            output[i] = '?';
    return output;
}

static struct tmp_path save_blocker(const struct daemon *daemon)
{
    return tmp_path(daemon->data, "MANIFEST.new");
}

void daemon_block_saves(const struct daemon *daemon)
{
    cr_assert_eq(mkdir(save_blocker(daemon).text, 0700), 0);
}

void daemon_unblock_saves(const struct daemon *daemon)
{
    cr_assert_eq(rmdir(save_blocker(daemon).text), 0);
}

const char *daemon_output(const struct daemon *daemon)
{
    return read_output(daemon->log, daemon->log_start);
}

/* The end of the output, for a failure's message. */
static const char *tail(const struct daemon *daemon)
{
    const char *text = daemon_output(daemon);
    size_t len = strlen(text);

    return len > 6000 ? text + len - 6000 : text;
}

/* ---- processes ---- */

#define NOBODY 65534

/* In the child: the program, with these descriptors, or exit 127. */
static void become(char *const *argv, pid_t parent, int in, int out, bool unprivileged)
{
    extern char **environ;
    /* The program may be in a directory that is root's alone. Not to be closed: an emulator reads it after the exec. */
    int program = unprivileged ? open(argv[0], O_RDONLY) : -1;

    if (unprivileged && getuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
        _exit(127);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    signal(SIGPIPE, SIG_DFL);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    if (program >= 0)
        fexecve(program, argv, environ);
    else
        execve(argv[0], argv, environ);
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static pid_t spawn(char *const *argv, int in, int out, bool unprivileged)
{
    pid_t parent = getpid(), pid = fork();

    cr_assert_geq(pid, 0);
    if (pid == 0)
        become(argv, parent, in, out, unprivileged);
    return pid;
}

/* Waits for the end of a process; its status as waitpid() gives it. False when it continues. */
static bool wait_exit(pid_t pid, int timeout_ms, int *status_out)
{
    long deadline = now_ms() + timeout_ms;

    for (;;) {
        pid_t got = waitpid(pid, status_out, WNOHANG);

        if (got == pid)
            return true;
        cr_assert(got == 0 || errno == EINTR, "waitpid: %s", strerror(errno));
        if (now_ms() >= deadline)
            return false;
        pause_ms(2);
    }
}

/* A report of a sanitizer, or of a broken check, on the standard error: the text from it on, otherwise NULL. */
static const char *find_report(const struct daemon *daemon)
{
    static const char *const signs[] = {"AddressSanitizer", "LeakSanitizer", "ThreadSanitizer",
                                        "runtime error:", ": bug: !("};
    const char *text = read_output(daemon->errors, 0);

    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
        const char *report = strstr(text, signs[i]);

        if (report != NULL)
            return report;
    }
    return NULL;
}

/* ---- starting ---- */

void daemon_prepare(struct daemon *daemon)
{
    const char *tmp = getenv("TMPDIR");

    if (daemon->dir[0] != '\0')
        return;
    snprintf(daemon->dir, sizeof(daemon->dir), "%s/bloomery-e2e-XXXXXX",
             tmp != NULL && strlen(tmp) < 200 ? tmp : "/tmp");
    cr_assert_not_null(mkdtemp(daemon->dir), "%s: %s", daemon->dir, strerror(errno));
    snprintf(daemon->data, sizeof(daemon->data), "%s/data", daemon->dir);
    snprintf(daemon->errors, sizeof(daemon->errors), "%s/output", daemon->dir);
}

static void free_args(struct daemon *daemon)
{
    for (size_t i = 0; daemon->args[i] != NULL; i++) {
        free(daemon->args[i]);
        daemon->args[i] = NULL;
    }
}

struct tls_args {
    char port[16], cert[300], key[300], ca[300];
};

/* Returns the number of arguments. */
static size_t add_tls(const struct daemon *daemon, struct tls_args *tls, char **argv)
{
    static const char *const names[] = {"--tls-port", "--tls-cert-file", "--tls-key-file", "--tls-ca-cert-file",
                                        "--tls-handshake-timeout"};
    char *values[] = {tls->port, tls->cert, tls->key, tls->ca, (char *)(uintptr_t) "600"}; /* a slow machine's */
    const size_t n = sizeof(names) / sizeof(names[0]);
    snprintf(tls->port, sizeof(tls->port), "%d", daemon->tls_port);
    snprintf(tls->cert, sizeof(tls->cert), "%s/server.crt", daemon->dir);
    snprintf(tls->key, sizeof(tls->key), "%s/server.key", daemon->dir);
    snprintf(tls->ca, sizeof(tls->ca), "%s/ca.crt", daemon->dir);
    for (size_t i = 0; i < n; i++) {
        argv[2 * i] = (char *)(uintptr_t)names[i];
        argv[2 * i + 1] = values[i];
    }
    return 2 * n;
}

/* Under the restrictions of a unit, if a test of the service requests it (tests/service/confined.py). */
static void confine(char **argv, size_t size)
{
    char *confined = getenv("BLOOMERY_CONFINED"), *unit = getenv("BLOOMERY_UNIT");
    size_t used = 0;
    if (!confined || !unit)
        return;
    while (argv[used])
        used++;
    cr_assert_lt(used + 3, size);
    memmove(argv + 3, argv, (used + 1) * sizeof(argv[0]));
    argv[0] = confined;
    argv[1] = (char *)(uintptr_t) "--strict";
    argv[2] = unit;
}

static void run(struct daemon *daemon)
{
    char port[16], web_port[16], *argv[96] = {NULL};
    const char *program = daemon->engine ? ENGINE_PATH : BLOOMERYD_PATH;
    const char *fixed[] = {program, "--port", port, "--bind", "127.0.0.1", "--dir", daemon->data, "--save", ""};
    size_t n = sizeof(fixed) / sizeof(fixed[0]);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int errors = open(daemon->errors, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    cr_assert(null >= 0 && errors >= 0);
    daemon->log_start = file_size(daemon->log);
    snprintf(port, sizeof(port), "%d", daemon->tls_only ? 0 : daemon->port);
    memcpy(argv, fixed, sizeof(fixed));
    struct tls_args tls;
    if (daemon->with_tls)
        n += add_tls(daemon, &tls, argv + n);
    if (daemon->with_web) {
        snprintf(web_port, sizeof(web_port), "%d", daemon->web_port);
        argv[n++] = (char *)(uintptr_t) "--metrics-port";
        argv[n++] = web_port;
    }
    memcpy(argv + n, daemon->args, sizeof(daemon->args));
    if (daemon->engine)
        cr_assert(mkdir(daemon->data, 0700) == 0 || errno == EEXIST); /* the daemon makes its own */
    if (daemon->file[0] != '\0') {                                    /* the first argument */
        memmove(argv + 2, argv + 1, sizeof(argv) - 2 * sizeof(argv[0]));
        argv[1] = daemon->file;
    }
    if (!daemon->engine)
        confine(argv, sizeof(argv) / sizeof(argv[0]));
    daemon->pid = spawn(argv, null, errors, daemon->unprivileged);
    close(null);
    close(errors);
}

enum outcome { READY, PORT_TAKEN, ENDED };

/* Starts the process. `status_out`: when it has ended. */
static enum outcome try_start(struct daemon *daemon, int *status_out)
{
    long deadline = now_ms() + PATIENCE_MS;
    size_t errors_start = file_size(daemon->errors);

    run(daemon);
    while (strstr(daemon_output(daemon), daemon->engine ? ENGINE_READY : READY_TEXT) == NULL) {
        if (wait_exit(daemon->pid, 2, status_out)) {
            daemon->pid = 0;
            bool taken = strcasestr(daemon_output(daemon), "address already in use") != NULL ||
                         strcasestr(read_output(daemon->errors, errors_start), "address already in use") != NULL;
            return taken ? PORT_TAKEN : ENDED;
        }
        cr_assert_lt(now_ms(), deadline, "the daemon is not ready after %d ms:\n%s", PATIENCE_MS, tail(daemon));
    }
    return READY;
}

/* False when it has ended, with this status. */
static bool start_or_end(struct daemon *daemon, int *status_out)
{
    struct wire wire;

    for (int attempt = 0; attempt < START_ATTEMPTS; attempt++) {
        daemon->port = port_claim();
        daemon->web_port = port_claim();
        daemon->tls_port = port_claim();
        enum outcome outcome = try_start(daemon, status_out);
        if (outcome == ENDED)
            return false;
        if (outcome == READY && daemon->tls_only)
            return true;
        if (outcome == READY) {
            wire_open(&wire, daemon->port);
            cr_assert(wire_send_text(&wire, "PING\r\n"));
            /* With a password the reply is an error; an error is a reply, too. */
            cr_assert_str_neq(wire_text(&wire), "(silence)");
            wire_close(&wire);
            return true;
        }
    }
    cr_assert_fail("no free port in %d attempts:\n%s", START_ATTEMPTS, tail(daemon));
    return false;
}

static void start(struct daemon *daemon)
{
    int status = 0;

    if (!start_or_end(daemon, &status))
        cr_assert_fail("the daemon ended at once (status 0x%x):\n%s", status, read_output(daemon->errors, 0));
}

static void take_args(struct daemon *daemon, const char *const *args)
{
    cr_assert_eq(daemon->pid, 0, "the daemon runs already");
    daemon_prepare(daemon);
    free_args(daemon);
    snprintf(daemon->log, sizeof(daemon->log), "%s", daemon->errors);
    for (size_t i = 0; args != NULL && args[i] != NULL; i++) {
        cr_assert_lt(i + 1, sizeof(daemon->args) / sizeof(daemon->args[0]));
        daemon->args[i] = strdup(args[i]);
        cr_assert_not_null(daemon->args[i]);
        if (i > 0 && strcmp(args[i - 1], "--logfile") == 0)
            snprintf(daemon->log, sizeof(daemon->log), "%s", args[i]);
    }
}

void daemon_start(struct daemon *daemon, const char *const *args)
{
    take_args(daemon, args);
    start(daemon);
}

bool daemon_try(struct daemon *daemon, const char *const *args)
{
    int status = 0;

    cr_assert_eq(daemon->pid, 0, "the daemon runs already");
    if (args || daemon->log[0] == '\0')
        take_args(daemon, args);
    if (start_or_end(daemon, &status))
        return true;
    cr_assert_null(find_report(daemon), "the daemon's output has a report:\n%.4000s", find_report(daemon));
    cr_assert(WIFEXITED(status) && (WEXITSTATUS(status) == 1 || WEXITSTATUS(status) == DAEMON_MISCONFIGURED),
              "the daemon ended with status 0x%x:\n%s", status, tail(daemon));
    return false;
}

void daemon_launch(struct daemon *daemon)
{
    cr_assert_eq(daemon->pid, 0, "the daemon runs already");
    daemon->port = port_claim();
    daemon->web_port = port_claim();
    daemon->tls_port = port_claim();
    run(daemon);
}

void daemon_restart(struct daemon *daemon)
{
    cr_assert_eq(daemon->pid, 0, "the daemon runs already");
    start(daemon);
}

/* ---- ending ---- */

/* Its exit status is one of these. */
static int wait_status(struct daemon *daemon, int highest)
{
    const char *report;
    int status = 0;
    pid_t pid = daemon->pid;

    cr_assert_gt(pid, 0, "the daemon does not run");
    daemon->pid = 0;
    if (!wait_exit(pid, PATIENCE_MS, &status)) {
        kill(pid, SIGABRT);
        waitpid(pid, &status, 0);
        cr_assert_fail("the daemon did not end in %d ms:\n%s", PATIENCE_MS, tail(daemon));
    }
    report = find_report(daemon);
    if (report != NULL)
        cr_assert_fail("the daemon's output has a report:\n%.4000s", report);
    if (!WIFEXITED(status) || WEXITSTATUS(status) > highest)
        cr_assert_fail("the daemon ended with status 0x%x:\n%s", status, tail(daemon));
    return WEXITSTATUS(status);
}

void daemon_wait(struct daemon *daemon)
{
    (void)wait_status(daemon, 0);
}

bool daemon_wait_loss(struct daemon *daemon)
{
    return wait_status(daemon, 1) == 1;
}

void daemon_stop(struct daemon *daemon)
{
    cr_assert_gt(daemon->pid, 0, "the daemon does not run");
    kill(daemon->pid, SIGTERM);
    daemon_wait(daemon);
}

void daemon_kill(struct daemon *daemon)
{
    int status;

    cr_assert_gt(daemon->pid, 0, "the daemon does not run");
    kill(daemon->pid, SIGKILL);
    cr_assert_eq(waitpid(daemon->pid, &status, 0), daemon->pid);
    daemon->pid = 0;
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the daemon had ended before, with status 0x%x:\n%s",
              status, tail(daemon));
}

static void discard(struct daemon *daemon, bool keep)
{
    char *remove[] = {(char[]){"/bin/rm"}, (char[]){"-rf"}, daemon->dir, NULL};
    int status;

    if (daemon->pid > 0) {
        kill(daemon->pid, SIGKILL);
        waitpid(daemon->pid, &status, 0);
    }
    free_args(daemon);
    if (daemon->dir[0] != '\0' && keep)
        printf("kept: %s\n", daemon->dir);
    else if (daemon->dir[0] != '\0')
        wait_exit(spawn(remove, STDIN_FILENO, STDERR_FILENO, false), PATIENCE_MS, &status);
    memset(daemon, 0, sizeof(*daemon));
}

void daemon_deinit(struct daemon *daemon)
{
    if (daemon->pid > 0)
        daemon_stop(daemon);
    discard(daemon, false);
}

void daemon_discard(struct daemon *daemon)
{
    discard(daemon, environment_number("BLOOMERY_KEEP", 0) != 0);
}

void daemon_wait_output(const struct daemon *daemon, const char *text)
{
    long deadline = now_ms() + PATIENCE_MS;

    while (strstr(daemon_output(daemon), text) == NULL) {
        cr_assert_lt(now_ms(), deadline, "the daemon did not say '%s':\n%s", text, tail(daemon));
        pause_ms(2);
    }
}

/* ---- runs ---- */

int daemon_run(const char *const *args, const char *input, const char **output_out)
{
    char program[] = BLOOMERYD_PATH, *argv[64] = {program};
    char path[] = "/tmp/bloomery-run-XXXXXX";
    int in[2], out = mkostemp(path, O_APPEND | O_CLOEXEC), status;
    pid_t pid;

    cr_assert(out >= 0 && pipe2(in, O_CLOEXEC) == 0);
    for (size_t i = 0; args[i] != NULL; i++) {
        cr_assert_lt(i + 2, sizeof(argv) / sizeof(argv[0]));
        memcpy(&argv[i + 1], &args[i], sizeof(char *));
    }
    pid = spawn(argv, in[0], out, false);
    close(in[0]);
    if (input != NULL)
        cr_assert_eq(write(in[1], input, strlen(input)), (ssize_t)strlen(input));
    close(in[1]);
    if (!wait_exit(pid, PATIENCE_MS, &status)) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        cr_assert_fail("bloomeryd goes on running:\n%s", read_output(path, 0));
    }
    *output_out = read_output(path, 0);
    close(out);
    unlink(path);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- files of filters ---- */

static unsigned long long number_behind(const char *text, const char *key)
{
    const char *at = strstr(text, key);

    cr_assert(at && at < text + strcspn(text, "\n"), "no '%s' in: %.200s", key, text);
    return strtoull(at + strlen(key), NULL, 10);
}

static const char *next_line(const char *line)
{
    return line + strcspn(line, "\n") + 1;
}

struct daemon_layer daemon_layer(const struct daemon *daemon, const char *name, unsigned layer)
{
    struct daemon_layer found = {.offset = 0};
    char key[200], variant[16];
    size_t len;
    char *text = (char *)file_read(tmp_path(daemon->data, "MANIFEST").text, &len);
    const char *filter = NULL;

    text[len - 1] = '\0';
    snprintf(key, sizeof(key), " name=%s ", name);
    for (const char *at = text; (at = strstr(at, key)); at++) /* the last one holds */
        filter = at;
    cr_assert_not_null(filter, "no filter '%s' in:\n%s", name, text);
    cr_assert_eq(sscanf(strstr(filter, " variant="), " variant=%15[^ ]", variant), 1);
    if (memcmp(strchr(filter + 6, ' '), " pack=", 6) == 0) {
        snprintf(found.file, sizeof(found.file), "filters/%llu.pack", number_behind(filter, " pack="));
        found.offset = (long)number_behind(filter, " offset=");
        for (unsigned i = 0; i < layer; i++) {
            filter = next_line(filter);
            found.offset += 8 + 8 * (long)number_behind(filter, " words=");
        }
    } else {
        for (unsigned i = 0; i <= layer; i++)
            filter = next_line(filter);
        snprintf(found.file, sizeof(found.file), "filters/%s-%llu%s", variant, number_behind(filter, " file="),
                 strncmp(variant, "redisbloom", 10) == 0 ? ".layer" : "-big-Filter.db");
    }
    snprintf(found.path, sizeof(found.path), "%s/%s", daemon->data, found.file);
    free(text);
    return found;
}

size_t daemon_layer_files(const struct daemon *daemon)
{
    size_t count = 0;
    DIR *list = opendir(tmp_path(daemon->data, "filters").text);

    for (struct dirent *entry; list && (entry = readdir(list));)
        count += strstr(entry->d_name, "-Filter.db") != NULL;
    if (list)
        closedir(list);
    return count;
}

void daemon_damage_layer(const struct daemon *daemon, const char *name, long at)
{
    struct daemon_layer layer = daemon_layer(daemon, name, 0);

    file_flip_bit(layer.path, (size_t)(8 * (layer.offset + at)));
}
