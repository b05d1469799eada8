/* daemon: the real bloomeryd for a test: started on a free port of 127.0.0.1 with its own directory, its output kept in
 * a file, stopped with SIGTERM. Stopping demands exit status 0 and no report of a sanitizer. It never outlives the test
 * process.
 *
 * A failure of any of this fails the test and prints the end of the daemon's output.
 *
 *   DAEMON_SUITE(the_daemon, topic, "--threads", "2");
 *   DAEMON_TEST(the_daemon, topic, claim) { ... }
 *
 * With BLOOMERY_CONFINED (the program tests/service/confined.py) and BLOOMERY_UNIT in the environment it runs under the
 * restrictions of this unit of systemd, and a system call that the unit does not allow ends it.
 *
 * DAEMON_SANITIZED is 1 where the daemon runs under a sanitizer, several times slower and in more memory; else 0.
 *
 * Thread: one at a time. */
#ifndef BLOOMERY_TEST_DAEMON_H
#define BLOOMERY_TEST_DAEMON_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The exit status of a daemon for which another start would fail in the same way (bloomeryd(1)). */
#define DAEMON_MISCONFIGURED 78

/* Zero-initialise. */
struct daemon {
    int port;
    pid_t pid;         /* 0: not running */
    char dir[256];     /* the test's own directory */
    char data[300];    /* dir/data, the data directory */
    char errors[300];  /* dir/output: what the daemon wrote to stdout and stderr, of all its starts */
    char log[300];     /* where it logs: the same, or what --logfile among the arguments says */
    char file[300];    /* set before the start: its configuration file; "" for none */
    bool engine;       /* set before the start: not the daemon, but redis-server with the module; logs to `errors` */
    bool unprivileged; /* set before the start: as a user who may do what file modes allow, also where tests run as root
                        */
    bool with_web;     /* set before the start: with a metrics-port */
    int web_port;
    bool with_tls; /* set before the start: with a tls-port and the files of tls_make_files() in `dir` (wire_tls.h) */
    bool tls_only; /* and without a port */
    int tls_port;
    size_t log_start; /* where the log of the current start begins */
    char *args[64];   /* internal */
};

/* Starts it as `bloomeryd --port P --bind 127.0.0.1 --dir D --save "" <args>` and waits until it answers PING. `args`
 * ends with NULL; NULL for none. With a daemon that was started before: in the same directory, which daemon_deinit()
 * removes. */
void daemon_start(struct daemon *daemon, const char *const *args);

/* Makes its own directory, for what the test puts into it before the first start. The data directory is not made. */
void daemon_prepare(struct daemon *daemon);

/* Starts it as daemon_restart() does and waits for nothing: for a test that kills it before it is ready. */
void daemon_launch(struct daemon *daemon);

/* Starts it where it may refuse to: true when it is ready. Otherwise it has ended with status 1, or this one, and no
 * report of a sanitizer; why, it has said (daemon_output()). `args` as for daemon_start(), NULL: those of the last
 * start. */
bool daemon_try(struct daemon *daemon, const char *const *args);

/* Starts it again with the arguments of the last start. */
void daemon_restart(struct daemon *daemon);

void daemon_stop(struct daemon *daemon); /* SIGTERM, exit status 0, clean output */
void daemon_kill(struct daemon *daemon); /* SIGKILL */

/* For a daemon that ends by itself (SHUTDOWN): waits for that and demands exit status 0 and clean output. */
void daemon_wait(struct daemon *daemon);

/* The same for one that may lose changes: whether its exit status is 1, which says that it has. */
bool daemon_wait_loss(struct daemon *daemon);

/* Stops it if it runs, as daemon_stop() does, and removes the directory. Idempotent. */
void daemon_deinit(struct daemon *daemon);

/* Kills it if it runs and removes the directory, whatever has happened: for .fini. Idempotent. With BLOOMERY_KEEP=1 in
 * the environment the directory of a test that has not come to daemon_deinit() stays, and the output says where it is.
 */
void daemon_discard(struct daemon *daemon);

/* A test at whose end the daemon is stopped, within the test, with all that daemon_stop() demands: Criterion counts no
 * failure in a .fini. `daemon` is a struct daemon of the file. */
#define DAEMON_TEST(daemon, suite, name)     \
    static void suite##_##name##_body(void); \
    Test(suite, name)                        \
    {                                        \
        suite##_##name##_body();             \
        daemon_deinit(&(daemon));            \
    }                                        \
    static void suite##_##name##_body(void)

/* A suite whose tests start a daemon of their own. Defines the file's `variable`. */
#define DAEMON_SUITE_IDLE(variable, suite) \
    static struct daemon variable;         \
    static void suite##_discard(void)      \
    {                                      \
        daemon_discard(&(variable));       \
    }                                      \
    TestSuite(suite, .fini = suite##_discard, .timeout = 1000)

/* The same, and it runs already, started with these arguments (NULL: none). */
#define DAEMON_SUITE(variable, suite, ...)              \
    static struct daemon variable;                      \
    static void suite##_start(void)                     \
    {                                                   \
        const char *const args[] = {__VA_ARGS__, NULL}; \
        daemon_start(&(variable), args);                \
    }                                                   \
    static void suite##_discard(void)                   \
    {                                                   \
        daemon_discard(&(variable));                    \
    }                                                   \
    TestSuite(suite, .init = suite##_start, .fini = suite##_discard, .timeout = 1000)

/* From here on no save succeeds: there is a directory where it would write its MANIFEST. Until it is taken away again.
 */
void daemon_block_saves(const struct daemon *daemon);
void daemon_unblock_saves(const struct daemon *daemon);

/* The log of the current start so far. Valid until the next call. */
const char *daemon_output(const struct daemon *daemon);

/* Waits until the log of the current start has the text. */
void daemon_wait_output(const struct daemon *daemon, const char *text);

/* Where a layer of a filter is, as the MANIFEST of the data directory says: its own file, or a pack. The name has
 * nothing that would be encoded. */
struct daemon_layer {
    char file[80];  /* below the data directory */
    char path[400]; /* the same with it */
    long offset;
};
struct daemon_layer daemon_layer(const struct daemon *daemon, const char *name, unsigned layer);

size_t daemon_layer_files(const struct daemon *daemon); /* layers that have files of their own, named or not */

/* Flips a bit of the byte `at` of a filter's first layer; before it, in a pack, if `at` is negative. */
void daemon_damage_layer(const struct daemon *daemon, const char *name, long at);

/* Runs `bloomeryd <args>` to its end, with `input` (NULL for none) on its standard input. Returns the exit status and
 * what it wrote to stdout and stderr together, valid until the next call. */
int daemon_run(const char *const *args, const char *input, const char **output_out);

#endif
