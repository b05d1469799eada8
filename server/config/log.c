#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static const char *const level_words[] = {"debug", "verbose", "notice", "warning"};

/* 0640: messages hold addresses and names of filters, which are not everybody's business. */
static int open_file(const char *path, struct errbuf *err)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);

    if (fd < 0) {
        fd = -errno;
        errbuf_set(err, "log file '%s': %s", path, strerror(-fd));
    }
    return fd;
}

int log_init(struct log *log, const char *path, enum log_level level, struct errbuf *err)
{
    char *copy = NULL;
    int fd = STDERR_FILENO;

    if (path != NULL && path[0] != '\0') {
        copy = strdup(path);
        if (copy == NULL) {
            errbuf_set(err, "log file '%s': out of memory", path);
            return -ENOMEM;
        }
        fd = open_file(path, err);
        if (fd < 0) {
            free(copy);
            return fd;
        }
    }
    log->path = copy;
    log->fd = fd;
    atomic_init(&log->level, (int)level);
    atomic_init(&log->lost, 0);
    return 0;
}

void log_deinit(struct log *log)
{
    if (log->path != NULL)
        close(log->fd);
    free(log->path);
    log->path = NULL;
    log->fd = -1;
}

void log_set_level(struct log *log, enum log_level level)
{
    atomic_store_explicit(&log->level, (int)level, memory_order_relaxed);
}

uint64_t log_lost(const struct log *log)
{
    return atomic_load_explicit(&log->lost, memory_order_relaxed);
}

int log_reopen(struct log *log, struct errbuf *err)
{
    int fd, status = 0;

    if (log->path == NULL)
        return 0;
    fd = open_file(log->path, err);
    if (fd < 0)
        return fd;
    /* One step for every thread that is writing: the number stays, the file behind it changes. */
    if (dup3(fd, log->fd, O_CLOEXEC) < 0) {
        status = -errno;
        errbuf_set(err, "log file '%s': %s", log->path, strerror(-status));
    }
    close(fd);
    return status;
}

/* "2026-11-21T08:15:30.123Z 4711 notice " */
static size_t write_head(char *line, size_t size, enum log_level level)
{
    struct timespec now;
    struct tm tm;
    int len;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    len = snprintf(line, size, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %ld %s ", tm.tm_year + 1900, tm.tm_mon + 1,
                   tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, now.tv_nsec / 1000000, (long)getpid(),
                   level_words[level]);
    CHECK(len > 0 && (size_t)len < size);
    return (size_t)len;
}

/* Appends the text, escaped; what does not fit before `end` is cut, "..." showing it. Returns the new end. */
static char *write_text(char *out, char *end, const char *text, bool cut)
{
    static const char hex[] = "0123456789abcdef";

    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        size_t need = c >= 0x20 && c <= 0x7e ? 1 : 4;

        if ((size_t)(end - out) < need + 3) {
            cut = true;
            break;
        }
        if (need == 1) {
            *out++ = (char)c;
        } else {
            *out++ = '\\';
            *out++ = 'x';
            *out++ = hex[c >> 4];
            *out++ = hex[c & 15];
        }
    }
    if (cut) {
        memcpy(out, "...", 3);
        out += 3;
    }
    return out;
}

static void write_line(struct log *log, enum log_level level, uint64_t left_out, const char *fmt, va_list ap)
{
    char message[LOG_LINE_MAX], line[LOG_LINE_MAX], tail[80] = "", *out;
    int saved = errno;
    int len = vsnprintf(message, sizeof(message), fmt, ap);
    ssize_t n;

    if (len < 0)
        snprintf(message, sizeof(message), "(a message that cannot be formatted: %s)", fmt);
    if (left_out > 0)
        snprintf(tail, sizeof(tail), " (left out before: %" PRIu64 " similar messages)", left_out);
    out = line + write_head(line, sizeof(line), level);
    out = write_text(out, line + sizeof(line) - strlen(tail) - 1, message, len >= (int)sizeof(message));
    memcpy(out, tail, strlen(tail));
    out += strlen(tail);
    *out++ = '\n';
    do
        n = write(log->fd, line, (size_t)(out - line));
    while (n < 0 && errno == EINTR);
    if (n != out - line)
        atomic_fetch_add_explicit(&log->lost, 1, memory_order_relaxed);
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

/* Takes one of the second's places. A second that has passed for another thread is not begun again by one whose clock
 * reading is older. */
static bool take_place(struct log_limit *limit, int64_t now_ms)
{
    uint64_t window = atomic_load_explicit(&limit->window, memory_order_relaxed), second = (uint64_t)now_ms / 1000,
             next;

    do {
        if (second > window >> 16)
            next = second << 16 | 1;
        else if ((window & 0xffff) < limit->per_second)
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
    if (!take_place(limit, now_ms)) {
        atomic_fetch_add_explicit(&limit->left_out, 1, memory_order_relaxed);
        return;
    }
    va_start(ap, fmt);
    write_line(log, level, atomic_exchange_explicit(&limit->left_out, 0, memory_order_relaxed), fmt, ap);
    va_end(ap);
}
