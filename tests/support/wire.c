#include "wire.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "wire_internal.h"

/* Each send goes byte by byte at its two ends; the rest is the inside of an argument. */
#define DRIPS_FIRST 512
#define DRIPS_LAST  64

static long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- lines ---- */

void lines_add(struct lines *lines, const char *text, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    char *copy = malloc(len * 4 + 1), *out = copy;

    cr_assert_not_null(copy);
    for (size_t i = 0; i < len; i++) { /* of hundreds of megabytes: no sprintf() */
        unsigned char c = (unsigned char)text[i];

        if (c == '\\' || c < ' ' || c > '~')
            *out++ = '\\';
        if (c < ' ' || c > '~') {
            *out++ = 'x';
            *out++ = hex[c >> 4];
            *out++ = hex[c & 15];
        } else {
            *out++ = (char)c;
        }
    }
    *out = '\0';
    if (lines->count == lines->size) {
        lines->size = lines->size == 0 ? 16 : lines->size * 2;
        lines->items = realloc(lines->items, lines->size * sizeof(*lines->items));
        cr_assert_not_null(lines->items);
    }
    lines->items[lines->count++] = copy;
}

void lines_truncate(struct lines *lines, size_t count)
{
    while (lines->count > count)
        free(lines->items[--lines->count]);
}

void lines_deinit(struct lines *lines)
{
    lines_truncate(lines, 0);
    free(lines->items);
    *lines = (struct lines){NULL, 0, 0};
}

/* ---- connection ---- */

void wire_open(struct wire *wire, int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1;

    memset(wire, 0, sizeof(*wire));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    wire->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(wire->fd, 0);
    cr_assert_eq(connect(wire->fd, (struct sockaddr *)&address, sizeof(address)), 0, "connect to port %d: %s", port,
                 strerror(errno));
    cr_assert_eq(setsockopt(wire->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
}

struct wire wire_to(int port)
{
    struct wire wire;

    wire_open(&wire, port);
    return wire;
}

void wire_close(struct wire *wire)
{
    if (wire->tls)
        wire_tls_close(wire);
    if (wire->fd >= 0)
        close(wire->fd);
    free(wire->data);
    memset(wire, 0, sizeof(*wire));
    wire->fd = -1;
}

void wire_open_dripping(struct wire *wire, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memset(wire, 0, sizeof(*wire));
    cr_assert_lt(strlen(path), sizeof(address.sun_path));
    strcpy(address.sun_path, path);
    wire->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(wire->fd, 0);
    cr_assert_eq(connect(wire->fd, (struct sockaddr *)&address, sizeof(address)), 0, "%s: %s", path, strerror(errno));
    wire->drips = true;
}

/* Until the server has read the sent bytes, or has closed. */
static void wait_until_read(const struct wire *wire)
{
    long deadline = now_ms() + WIRE_PATIENCE_MS;
    int unread = 1;

    while (unread > 0) {
        cr_assert_eq(ioctl(wire->fd, TIOCOUTQ, &unread), 0);
        cr_assert_lt(now_ms(), deadline, "the server does not read");
        sched_yield();
    }
}

bool wire_send(struct wire *wire, const void *data, size_t len)
{
    const char *bytes = data;

    for (size_t sent = 0; len > 0;) {
        bool drips = wire->drips && (sent < DRIPS_FIRST || len <= DRIPS_LAST);
        size_t piece = drips ? 1 : wire->drips ? len - DRIPS_LAST : len;
        ssize_t n = wire->tls ? wire_tls_send(wire, bytes, piece) : send(wire->fd, bytes, piece, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        if (drips)
            wait_until_read(wire);
        bytes += n;
        sent += (size_t)n;
        len -= (size_t)n;
    }
    return true;
}

bool wire_send_text(struct wire *wire, const char *text)
{
    return wire_send(wire, text, strlen(text));
}

bool wire_send_command(struct wire *wire, const struct word *words, size_t n)
{
    size_t size = 32;
    char *bytes, *out;
    bool sent;

    for (size_t i = 0; i < n; i++)
        size += words[i].len + 32;
    bytes = malloc(size);
    cr_assert_not_null(bytes);
    out = bytes + sprintf(bytes, "*%zu\r\n", n);
    for (size_t i = 0; i < n; i++) {
        out += sprintf(out, "$%zu\r\n", words[i].len);
        memcpy(out, words[i].ptr, words[i].len);
        out += words[i].len;
        out += sprintf(out, "\r\n");
    }
    sent = wire_send(wire, bytes, (size_t)(out - bytes));
    free(bytes);
    return sent;
}

/* ---- receiving ---- */

/* Receives more bytes. */
static enum wire_status fill(struct wire *wire, int timeout_ms)
{
    struct pollfd pollfd = {.fd = wire->fd, .events = POLLIN};
    long deadline = now_ms() + timeout_ms;
    bool has_more = wire->tls && wire_tls_has_more(wire);
    ssize_t n;
    int ready;

    do {
        long left = deadline - now_ms();

        ready = has_more ? 1 : poll(&pollfd, 1, left > 0 ? (int)left : 0);
    } while (ready < 0 && errno == EINTR);
    if (ready == 0)
        return WIRE_SILENCE;
    if (wire->size - wire->end < 65536) {
        memmove(wire->data, wire->data + wire->start, wire->end - wire->start);
        wire->end -= wire->start;
        wire->start = 0;
        if (wire->size - wire->end < 65536) {
            wire->size = wire->size * 2 + 65536;
            wire->data = realloc(wire->data, wire->size);
            cr_assert_not_null(wire->data);
        }
    }
    do
        n = wire->tls ? wire_tls_recv(wire, wire->data + wire->end, wire->size - wire->end)
                      : recv(wire->fd, wire->data + wire->end, wire->size - wire->end, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0 && wire->tls) /* a record without data for us */
        return fill(wire, timeout_ms);
    if (n <= 0)
        return WIRE_CLOSED;
    wire->end += (size_t)n;
    return WIRE_OK;
}

/* Receives until `n` bytes are there from `offset` after the start on. */
static enum wire_status need(struct wire *wire, size_t offset, size_t n, int timeout_ms)
{
    enum wire_status status = WIRE_OK;

    while (status == WIRE_OK && wire->end - wire->start < offset + n)
        status = fill(wire, timeout_ms);
    return status;
}

/* The line at the offset; its length without the end in *len_out. */
static enum wire_status read_line(struct wire *wire, size_t offset, int timeout_ms, size_t *len_out)
{
    enum wire_status status = need(wire, offset, 1, timeout_ms);

    while (status == WIRE_OK) {
        char *line = wire->data + wire->start + offset;
        char *end = memmem(line, wire->end - wire->start - offset, "\r\n", 2);

        if (end != NULL) {
            *len_out = (size_t)(end - line);
            return WIRE_OK;
        }
        status = fill(wire, timeout_ms);
    }
    return status;
}

/* Adds the lines of the reply at *offset and moves it after them. No byte is taken from the wire yet, so that an
 * incomplete reply can be awaited again. */
static enum wire_status read_reply(struct wire *wire, int timeout_ms, size_t *offset, struct lines *out)
{
    size_t len = 0;
    enum wire_status status = read_line(wire, *offset, timeout_ms, &len);
    const char *line;
    long number;
    char kind;

    if (status != WIRE_OK)
        return status;
    line = wire->data + wire->start + *offset;
    kind = len > 0 ? line[0] : '\0';
    cr_assert(kind != '\0' && strchr("+-:_#,($=!*%~>|", kind) != NULL, "not RESP: '%.*s'", (int)len, line);
    number = len > 1 ? strtol(line + 1, NULL, 10) : 0;
    lines_add(out, line, len);
    *offset += len + 2;
    if (strchr("$=!", kind) != NULL && number >= 0) {
        status = need(wire, *offset, (size_t)number + 2, timeout_ms);
        if (status != WIRE_OK)
            return status;
        lines_add(out, wire->data + wire->start + *offset, (size_t)number);
        *offset += (size_t)number + 2;
    } else if (strchr("*%~>|", kind) != NULL) {
        long elements = kind == '%' || kind == '|' ? 2 * number : number;

        for (long i = 0; i < elements && status == WIRE_OK; i++)
            status = read_reply(wire, timeout_ms, offset, out);
        if (kind == '|' && status == WIRE_OK)
            status = read_reply(wire, timeout_ms, offset, out);
    }
    return status;
}

enum wire_status wire_reply(struct wire *wire, int timeout_ms, struct lines *out)
{
    size_t offset = 0, before = out->count;
    enum wire_status status = read_reply(wire, timeout_ms, &offset, out);

    if (status == WIRE_OK)
        wire->start += offset;
    else
        lines_truncate(out, before);
    return status;
}

bool wire_takes_line(struct wire *wire, const char *expected)
{
    size_t len = 0;
    if (read_line(wire, 0, WIRE_PATIENCE_MS, &len) != WIRE_OK)
        return false;
    bool same = len == strlen(expected) && memcmp(wire->data + wire->start, expected, len) == 0;
    wire->start += len + 2;
    return same;
}

bool wire_closes(struct wire *wire, int timeout_ms)
{
    return wire->start == wire->end && fill(wire, timeout_ms) == WIRE_CLOSED;
}

/* ---- compact form ---- */

static _Thread_local char compact[1 << 20];
static _Thread_local size_t compact_len;

static void append(const char *text)
{
    size_t len = strlen(text);

    cr_assert_lt(compact_len + len, sizeof(compact), "a reply too long for its compact form");
    memcpy(compact + compact_len, text, len + 1);
    compact_len += len;
}

static void append_reply(const struct lines *lines, size_t *at)
{
    const char *line = lines->items[(*at)++];
    bool map = line[0] == '%';
    long n = strtol(line + 1, NULL, 10);

    if (strcmp(line, "_") == 0 || strcmp(line, "$-1") == 0 || strcmp(line, "*-1") == 0) {
        append("nil");
    } else if (strchr("$=!", line[0]) != NULL) {
        append("\"");
        append(lines->items[(*at)++]);
        append("\"");
    } else if (strchr("*%~>", line[0]) != NULL) {
        append(map ? "{" : line[0] == '*' ? "[" : line[0] == '~' ? "~[" : ">[");
        for (long i = 0; i < (map ? 2 * n : n); i++) {
            append(i == 0 ? "" : map && i % 2 == 1 ? ":" : ",");
            append_reply(lines, at);
        }
        append(map ? "}" : "]");
    } else {
        append(line);
    }
}

const char *wire_text(struct wire *wire)
{
    struct lines lines = {NULL, 0, 0};
    enum wire_status status = wire_reply(wire, WIRE_PATIENCE_MS, &lines);
    size_t at = 0;

    compact_len = 0;
    if (status == WIRE_OK)
        append_reply(&lines, &at);
    else
        append(status == WIRE_CLOSED ? "(closed)" : "(silence)");
    lines_deinit(&lines);
    return compact;
}

const char *wire_ask(struct wire *wire, const char *command)
{
    struct word words[64];
    size_t n = 0;

    for (const char *p = command; *p != '\0';) {
        size_t len = strcspn(p, " ");

        cr_assert_lt(n, sizeof(words) / sizeof(words[0]));
        words[n++] = (struct word){p, len};
        p += len + (p[len] == ' ');
    }
    if (!wire_send_command(wire, words, n))
        return "(closed)";
    return wire_text(wire);
}
