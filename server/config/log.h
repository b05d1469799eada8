/* log: the daemon's messages, one line each, to the standard error or to a file:
 *
 *   2026-11-21T08:15:30.123Z 4711 notice ready: listening on 127.0.0.1:6379
 *
 * Time in UTC with milliseconds, process id, level, message. If the standard error is systemd's journal, which records
 * the time and the process itself, a line is "<4>message". The number is syslog's level, for journalctl -p.
 *
 * With log_set_format() a line is fields for a collector instead, in the journal behind "<4>":
 *
 *   {"time":"2026-11-21T08:15:30.123Z","pid":4711,"level":"notice","message":"ready: listening on 127.0.0.1:6379"}
 *   time=2026-11-21T08:15:30.123Z pid=4711 level=notice message="ready: listening on 127.0.0.1:6379"
 *
 * One write(2) to a descriptor in append mode writes a line, so that lines of several threads never mix. A line longer
 * than LOG_LINE_MAX bytes is cut and ends with "...". A message stays one line of text with any arguments: bytes
 * outside 0x20..0x7e become \xHH. (The caller makes sure that a message holds no secret.)
 *
 * Messages that clients can cause repeatedly go through log_limited(), which bounds the lines in a window of time and
 * reports the number left out. A line that cannot be written (disk full) or for which a pipe has no room is lost, and
 * the next line says how many were. No thread waits for a reader of the log.
 *
 * Lifetime: the caller's storage, log_init() to log_deinit(). Thread: log_write(), log_limited(), log_reopen() and the
 * level: any; init and deinit: alone. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "errbuf.h"

#define LOG_LINE_MAX 2048

/* In the order of the words of the `loglevel` setting. */
enum log_level {
    LOG_LEVEL_DEBUG,
    LOG_LEVEL_VERBOSE,
    LOG_LEVEL_NOTICE,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_NOTHING, /* as a threshold only */
};

/* In the order of the words of the `log-format` setting. */
enum log_format { LOG_TEXT, LOG_LOGFMT, LOG_JSON };

/* The state of one bounded kind of message, shared by the threads that write it: at most `lines` in each window of
 * `seconds`. Zero-initialise all except these two. */
struct log_limit {
    unsigned lines;            /* 1..65535 */
    unsigned seconds;          /* 1 and more */
    _Atomic uint64_t window;   /* internal: number of the window << 16 | messages written in it */
    _Atomic uint64_t left_out; /* internal: messages not written since the last line */
};

/* Messages that clients can cause repeatedly. */
struct log_limits {
    struct log_limit attack; /* HTTP requests: one an hour, as a Prometheus comes every few seconds */
    struct log_limit client; /* clients closed over a limit or for lack of memory */
    struct log_limit accept; /* connections that could not be accepted */
    struct log_limit rate;   /* new filters that do not keep their error rate */
    struct log_limit key;    /* KEYED filters that came without their key */
};

struct log {
    struct log_limits limits;
    /* internal */
    _Atomic int level, format;
    int fd;     /* never changes: log_reopen() puts another file after it */
    char *path; /* NULL for the standard error */
    bool own;   /* the descriptor is ours */
    bool journal;
    _Atomic uint64_t lost, told; /* lines; of these, a later line has told */
};

/* Opens `path` for appending, created with mode 0640 if it is missing; NULL or "" is the standard error. 0, -ENOMEM or
 * the -errno of open, with the text in `err`. */
int log_init(struct log *log, const char *path, enum log_level level, struct errbuf *err)
    __attribute__((warn_unused_result));
void log_deinit(struct log *log); /* closes the file */

/* Whether the standard error is systemd's journal, by JOURNAL_STREAM. */
bool log_stderr_is_journal(void);

void log_set_level(struct log *log, enum log_level level);
void log_set_format(struct log *log, enum log_format format); /* at first LOG_TEXT */

static inline bool log_enabled(const struct log *log, enum log_level level)
{
    return (int)level >= atomic_load_explicit(&log->level, memory_order_relaxed);
}

/* Opens the file of the path again, because it may have been renamed away, and writes to it from now on. 0, or -errno
 * with the text in `err`; then the old file stays in use. Does nothing for the standard error. */
int log_reopen(struct log *log, struct errbuf *err) __attribute__((warn_unused_result));

/* Writes a message of a level below LOG_LEVEL_NOTHING if that level is enabled. errno is preserved. */
void log_write(struct log *log, enum log_level level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#define log_notice(log, ...)  log_write((log), LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_warning(log, ...) log_write((log), LOG_LEVEL_WARNING, __VA_ARGS__)

/* Lines that could not be written since log_init(). */
uint64_t log_lost(const struct log *log);

/* As log_write(), but bounded. `now_ms` is a monotonic time. The first line after some were left out ends with
 * " (left out before: <n> similar messages)". */
void log_limited(struct log *log, struct log_limit *limit, int64_t now_ms, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* ---- crashes: one line and a stack trace for a process that ends by SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGABRT ----
 *
 * The signal then has its default effect, and systemd-coredump has the rest. A signal with a handler keeps it.
 * Thread: crash_report_start() once, while there is one thread; crash_note_command() any. */

/* Reports to `log`, which must live on. `program`: name and version, forever valid. */
void crash_report_start(const struct log *log, const char *program);

extern _Thread_local const char *crash_last_command; /* internal */
/* This thread runs a command from now on; its name is forever valid. */
static inline void crash_note_command(const char *name)
{
    crash_last_command = name;
}
