#include "log.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bytes.h"
#include "check.h"
#include "clock.h"
#include "log_text.h"
#include "thread.h"

#define LOG_END_MAX 192

static const char *const level_words[] = {"debug", "verbose", "notice", "warning"};

/* 0640: messages hold addresses and names of filters, which other users must not read. */
static int open_file(const char *path, struct errbuf *err)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);

    if (fd < 0) {
        fd = -errno;
        errbuf_set(err, "log file '%s': %s", path, strerror(-fd));
    }
    return fd;
}

/* The standard error, which others may share, without waiting: a pipe gets an open file of its own. Otherwise poll()
 * tells whether there is room. */
static int open_stderr(void)
{
    struct stat st;

    if (fstat(STDERR_FILENO, &st) != 0 || !S_ISFIFO(st.st_mode))
        return -1;
    return open("/proc/self/fd/2", O_WRONLY | O_CLOEXEC | O_NONBLOCK);
}

int log_init(struct log *log, const char *path, enum log_level level, struct errbuf *err)
{
    char *copy = NULL;
    int fd = open_stderr();

    if (path && path[0] != '\0') {
        copy = strdup(path);
        if (!copy)
            return errbuf_fail(err, -ENOMEM, "log file '%s': out of memory", path);
        if (fd >= 0)
            close(fd);
        fd = open_file(path, err);
        if (fd < 0) {
            free(copy);
            return fd;
        }
    }
    log->own = fd >= 0;
    if (!log->own)
        fd = STDERR_FILENO;
    log->limits = (struct log_limits){.attack = {.lines = 1, .seconds = 3600},
                                      .client = {.lines = 5, .seconds = 1},
                                      .accept = {.lines = 1, .seconds = 1},
                                      .rate = {.lines = 1, .seconds = 3600},
                                      .key = {.lines = 1, .seconds = 60}};
    log->path = copy;
    log->fd = fd;
    log->journal = !copy && log_stderr_is_journal();
    atomic_init(&log->level, (int)level);
    atomic_init(&log->format, LOG_TEXT);
    atomic_init(&log->lost, 0);
    atomic_init(&log->told, 0);
    return 0;
}

void log_deinit(struct log *log)
{
    if (log->own)
        close(log->fd);
    free(log->path);
    log->path = NULL;
    log->fd = -1;
}

void log_set_level(struct log *log, enum log_level level)
{
    atomic_store_explicit(&log->level, (int)level, memory_order_relaxed);
}

void log_set_format(struct log *log, enum log_format format)
{
    atomic_store_explicit(&log->format, (int)format, memory_order_relaxed);
}

uint64_t log_lost(const struct log *log)
{
    return atomic_load_explicit(&log->lost, memory_order_relaxed);
}

int log_reopen(struct log *log, struct errbuf *err)
{
    int fd, status = 0;

    if (!log->path)
        return 0;
    fd = open_file(log->path, err);
    if (fd < 0)
        return fd;
    /* Atomic for threads that are writing: the descriptor stays, the file after it changes. */
    if (dup3(fd, log->fd, O_CLOEXEC) < 0) {
        status = -errno;
        errbuf_set(err, "log file '%s': %s", log->path, strerror(-status));
    }
    close(fd);
    return status;
}

bool log_stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM"); /* device:inode of the stream that systemd has connected */
    unsigned long long device, inode;
    struct stat st;

    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &st) == 0 &&
           st.st_dev == device && st.st_ino == inode;
}

/* All up to the message. */
static size_t write_head(const struct log *log, char *line, size_t size, enum log_level level, enum log_format format)
{
    static const int priorities[] = {7, 6, 5, 4}; /* of syslog: debug, info, notice, warning */
    const char *word = level_words[level];
    char time[64], before[16] = "";
    long pid = (long)getpid();
    int len = 0;

    if (log->journal)
        snprintf(before, sizeof(before), "<%d>", priorities[level]);
    struct tm tm;
    int64_t now_ms = clock_unix_ms();
    gmtime_r(&(time_t){now_ms / 1000}, &tm);
    snprintf(time, 64, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
             tm.tm_min, tm.tm_sec, (long)(now_ms % 1000));
    switch (format) {
    case LOG_TEXT:
        len = log->journal ? snprintf(line, size, "%s", before) : snprintf(line, size, "%s %ld %s ", time, pid, word);
        break;
    case LOG_LOGFMT:
        len = snprintf(line, size, "%stime=%s pid=%ld level=%s message=\"", before, time, pid, word);
        break;
    case LOG_JSON:
        len = snprintf(line, size, "%s{\"time\":\"%s\",\"pid\":%ld,\"level\":\"%s\",\"message\":\"", before, time, pid,
                       word);
        break;
    }
    CHECK(len > 0 && (size_t)len < size);
    return (size_t)len;
}

/* All after the message. */
static void write_end(char out[LOG_END_MAX], enum log_format format, uint64_t left_out, uint64_t lost)
{
    char note[LOG_END_MAX - 8] = "";
    size_t len;

    if (left_out > 0 && format == LOG_TEXT)
        snprintf(note, sizeof(note), " (left out before: %s)", log_count(left_out, "similar message").text);
    else if (left_out > 0)
        snprintf(note, sizeof(note), format == LOG_JSON ? ",\"left_out\":%" PRIu64 : " left_out=%" PRIu64, left_out);
    len = strlen(note);
    if (lost > 0 && format == LOG_TEXT)
        snprintf(note + len, sizeof(note) - len, " (lost before: %s)", log_count(lost, "line").text);
    else if (lost > 0)
        snprintf(note + len, sizeof(note) - len, format == LOG_JSON ? ",\"lost\":%" PRIu64 : " lost=%" PRIu64, lost);
    snprintf(out, LOG_END_MAX, "%s%s%s\n", format == LOG_TEXT ? "" : "\"", note, format == LOG_JSON ? "}" : "");
}

/* Appends the escaped text, cut with "..." where it would pass `end`; within quotes backslashes and quotes have a
 * backslash in front. Returns the new end. */
static char *write_text(char *out, char *end, const char *text, bool quoted, bool cut)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        bool shown = c >= 0x20 && c <= 0x7e, backslash = quoted && (!shown || c == '"' || c == '\\');
        size_t need = (shown ? 1U : 4U) + backslash;

        if ((size_t)(end - out) < need + 3) {
            cut = true;
            break;
        }
        if (backslash)
            *out++ = '\\';
        if (shown)
            *out++ = *text;
        else
            out = hex_escape(out, *text);
    }
    if (cut) {
        memcpy(out, "...", 3);
        out += 3;
    }
    return out;
}

/* Where there is room at once; otherwise -1. A pipe takes a line whole or not at all. */
static ssize_t put_line(const struct log *log, const char *line, size_t len)
{
    struct pollfd room = {.fd = log->fd, .events = POLLOUT};
    ssize_t n;

    if (poll(&room, 1, 0) == 0)
        return -1;
    do
        n = write(log->fd, line, len);
    while (n < 0 && errno == EINTR);
    return n;
}

__attribute__((format(printf, 4, 0))) static void write_line(struct log *log, enum log_level level, uint64_t left_out,
                                                             const char *fmt, va_list ap)
{
    enum log_format format = (enum log_format)atomic_load_explicit(&log->format, memory_order_relaxed);
    char message[LOG_LINE_MAX], line[LOG_LINE_MAX], tail[LOG_END_MAX], *out;
    uint64_t lost = log_lost(log), told = atomic_exchange_explicit(&log->told, lost, memory_order_relaxed);
    uint64_t untold = lost > told ? lost - told : 0;
    int saved = errno;
    int len = vsnprintf(message, sizeof(message), fmt, ap);
    ssize_t n;

    if (len < 0)
        snprintf(message, sizeof(message), "(a message that cannot be formatted: %s)", fmt);
    write_end(tail, format, left_out, untold);
    out = line + write_head(log, line, sizeof(line), level, format);
    out = write_text(out, line + sizeof(line) - strlen(tail), message, format != LOG_TEXT, len >= (int)sizeof(message));
    memcpy(out, tail, strlen(tail));
    out += strlen(tail);
    n = put_line(log, line, (size_t)(out - line));
    if (n != out - line) {
        atomic_fetch_add_explicit(&log->lost, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&log->told, untold, memory_order_relaxed);
    }
    errno = saved;
}

void log_write(struct log *log, enum log_level level, const char *fmt, ...)
{
    va_list ap;

    CHECK(level < LOG_LEVEL_NOTHING);
    if (!log_enabled(log, level))
        return;
    va_start(ap, fmt);
    write_line(log, level, 0, fmt, ap);
    va_end(ap);
}

/* Takes one of the window's lines. A thread with an older clock reading does not start a past window again. */
static bool take_line(struct log_limit *limit, int64_t now_ms)
{
    uint64_t window = atomic_load_explicit(&limit->window, memory_order_relaxed),
             stretch = (uint64_t)now_ms / 1000 / limit->seconds, next;

    do {
        if (stretch > window >> 16)
            next = stretch << 16 | 1;
        else if ((window & 0xffff) < limit->lines)
            next = window + 1;
        else
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&limit->window, &window, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

void log_limited(struct log *log, struct log_limit *limit, int64_t now_ms, enum log_level level, const char *fmt, ...)
{
    va_list ap;

    CHECK(level < LOG_LEVEL_NOTHING);
    if (!log_enabled(log, level))
        return;
    if (!take_line(limit, now_ms)) {
        atomic_fetch_add_explicit(&limit->left_out, 1, memory_order_relaxed);
        return;
    }
    va_start(ap, fmt);
    write_line(log, level, atomic_exchange_explicit(&limit->left_out, 0, memory_order_relaxed), fmt, ap);
    va_end(ap);
}

/* ---- crashes ---- */

_Thread_local const char *crash_last_command;

static int log_fd;
static const char *program_name, *line_begin; /* the priority for the journal */
static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

/* A fault within ends the process. At the return a fault happens again, with its default effect; a signal that was sent
 * is sent again. */
static void on_crash(int number, siginfo_t *info, void *context)
{
    static _Atomic bool begun;
    char cause[64], line[512], thread[16] = "?";
    void *frames[64];
    int saved = errno;
    (void)context;
    while (atomic_exchange(&begun, true))
        pause(); /* another thread reports, and ends the process */
    alarm(10);   /* what is stuck by then is ended */
    (void)prctl(PR_GET_NAME, thread);
    if (info->si_code > 0)
        snprintf(cause, sizeof(cause), "address %p", info->si_addr);
    else
        snprintf(cause, sizeof(cause), "sent by process %d", (int)info->si_pid);
    int len =
        snprintf(line, sizeof(line), "%scrashed by SIG%s, %s, thread %s, last command %s, %s\n", line_begin,
                 sigabbrev_np(number), cause, thread, crash_last_command ? crash_last_command : "none", program_name);
    (void)!write(log_fd, line, (size_t)len < sizeof(line) ? (size_t)len : sizeof(line) - 1);
    backtrace_symbols_fd(frames, backtrace(frames, 64), log_fd);
    signal(number, SIG_DFL);
    if (info->si_code <= 0)
        (void)raise(number); /* blocked until the return */
    errno = saved;
}

void crash_report_start(const struct log *log, const char *program)
{
    struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK}, before;
    void *frame;
    log_fd = log->fd;
    line_begin = log->journal ? "<2>" : "";
    program_name = program;
    (void)backtrace(&frame, 1); /* loads the unwinder, which the handler could not */
    thread_begin_signals();
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        if (sigaction(signals[i], NULL, &before) == 0 && !(before.sa_flags & SA_SIGINFO) &&
            before.sa_handler == SIG_DFL) /* a sanitizer keeps its own */
            sigaction(signals[i], &action, NULL);
}
