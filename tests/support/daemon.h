/* daemon: the real bloomeryd for a test. It listens on a free port of 127.0.0.1, has a directory of its own, writes its
 * output to a file, and is stopped with SIGTERM. Stopping demands exit status 0 and no report of a sanitizer. The
 * daemon never outlives the test process.
 *
 * Any failure fails the test and prints the end of the daemon's output.
 *
 *   DAEMON_SUITE(the_daemon, topic, "--threads", "2");
 *   DAEMON_TEST(the_daemon, topic, claim) { ... }
 *
 * With BLOOMERY_CONFINED (the program tests/service/confined.py) and BLOOMERY_UNIT in the environment the daemon runs
 * under the restrictions of that systemd unit; a system call that the unit does not allow ends it.
 *
 * DAEMON_SANITIZED is 1 if the daemon runs under a sanitizer, which is several times slower and takes more memory.
 *
 * Thread: one at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "ended_test.h"

/* The exit status of a daemon for which another start would fail in the same way (bloomeryd(1)). */
#define DAEMON_MISCONFIGURED 78

/* Zero-initialise. */
struct daemon {
    int port;
    pid_t pid;         /* 0: not running */
    char dir[256];     /* the test's own directory */
    char data[300];    /* dir/data, the data directory */
    char errors[300];  /* dir/output: stdout and stderr of all starts */
    char log[300];     /* the log: dir/output, or the file of --logfile among the arguments */
    char file[300];    /* set before the start: the configuration file; "" for none */
    bool engine;       /* set before the start: redis-server with the module instead of the daemon; logs to `errors` */
    bool unprivileged; /* set before the start: as an ordinary user, also if the tests run as root */
    bool with_web;     /* set before the start: with a metrics-port */
    int web_port;
    bool with_tls; /* set before the start: with a tls-port and the files of tls_make_files() in `dir` (wire_tls.h) */
    bool tls_only; /* likewise: without a plain port */
    int tls_port;
    size_t log_start; /* where the log of the current start begins */
    char *args[64];   /* internal */
};

/* Starts `bloomeryd --port P --bind 127.0.0.1 --dir D --save "" <args>` and waits until it answers PING. `args` ends
 * with NULL; NULL for none. A daemon that was started before keeps its directory; daemon_deinit() removes it. */
void daemon_start(struct daemon *daemon, const char *const *args);

/* Makes the directory, so that the test can put files into it before the first start; not the data directory. */
void daemon_prepare(struct daemon *daemon);

/* Like daemon_restart(), but does not wait: for a test that kills the daemon before it is ready. */
void daemon_launch(struct daemon *daemon);

/* Starts a daemon that may refuse to run. True: it is ready. False: it has ended with status 1 or DAEMON_MISCONFIGURED,
 * without a report of a sanitizer; daemon_output() has the reason. `args` as for daemon_start(); NULL: those of the
 * last start. */
bool daemon_try(struct daemon *daemon, const char *const *args);

/* Starts the daemon again with the arguments of the last start. */
void daemon_restart(struct daemon *daemon);

void daemon_stop(struct daemon *daemon); /* SIGTERM, exit status 0, clean output */
void daemon_kill(struct daemon *daemon); /* SIGKILL */

/* Waits until the daemon has ended by itself (SHUTDOWN), and demands exit status 0 and clean output. */
void daemon_wait(struct daemon *daemon);

/* Waits likewise for a daemon that may lose changes. True: it has lost some, and its exit status was 1. */
bool daemon_wait_loss(struct daemon *daemon);

/* Stops the daemon like daemon_stop(), if it runs, and removes the directory. Idempotent. */
void daemon_deinit(struct daemon *daemon);

/* For .fini: kills the daemon, if it runs, and removes the directory. Idempotent. With BLOOMERY_KEEP=1 in the
 * environment the directory of a failed test stays, and the output names it. */
void daemon_discard(struct daemon *daemon);

/* A test whose daemon is stopped at its end, with all demands of daemon_stop(). `daemon` is a struct daemon of the
 * file. */
#define DAEMON_TEST(daemon, suite, name) ENDED_TEST(suite, name, daemon_deinit(&(daemon)))

/* A suite whose tests start the daemon themselves. Defines the file's `variable`. */
#define DAEMON_SUITE_IDLE(variable, suite) \
    static struct daemon variable;         \
    static void suite##_discard(void)      \
    {                                      \
        daemon_discard(&(variable));       \
    }                                      \
    TestSuite(suite, .fini = suite##_discard, .timeout = 3000)

/* A suite whose tests begin with a running daemon, which has these arguments. */
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
    TestSuite(suite, .init = suite##_start, .fini = suite##_discard, .timeout = 3000)

/* Makes all saves fail, by a directory in the place of the new MANIFEST; and removes that directory again. */
void daemon_block_saves(const struct daemon *daemon);
void daemon_unblock_saves(const struct daemon *daemon);

/* The log of the current start so far. Valid until the next call. */
const char *daemon_output(const struct daemon *daemon);

/* Waits until the log of the current start has the text. */
void daemon_wait_output(const struct daemon *daemon, const char *text);

/* The place of a layer according to the MANIFEST: a separate file, or a pack. The filter's name needs no encoding. */
struct daemon_layer {
    char file[80];  /* below the data directory */
    char path[400]; /* the same with it */
    long offset;
};
struct daemon_layer daemon_layer(const struct daemon *daemon, const char *name, unsigned layer);

size_t daemon_layer_files(const struct daemon *daemon); /* layers that have files of their own, named or not */

/* Flips a bit of the byte `at` of a filter's first layer; before it, in a pack, if `at` is negative. */
void daemon_damage_layer(const struct daemon *daemon, const char *name, long at);

/* Runs `bloomeryd <args>` to its end, with `input` (NULL for none) on its standard input. Returns the exit status; the
 * output has stdout and stderr, and is valid until the next call. */
int daemon_run(const char *const *args, const char *input, const char **output_out);
