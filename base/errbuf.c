/* A message is formatted on the stack first, because its arguments may point into the errbuf that it replaces, and then
 * copied with unprintable bytes escaped. */
#include "errbuf.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct writer {
    char text[ERRBUF_SIZE];
    size_t len;
    bool cut;
};

static void put(struct writer *w, const char *bytes, size_t len)
{
    if (w->cut || len > sizeof(w->text) - 1 - w->len) {
        w->cut = true;
        return;
    }
    memcpy(w->text + w->len, bytes, len);
    w->len += len;
}

static void put_escaped(struct writer *w, const char *text)
{
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        char hex[5];

        if (byte >= 0x20 && byte <= 0x7e) {
            put(w, text, 1);
        } else {
            snprintf(hex, sizeof(hex), "\\x%02x", byte);
            put(w, hex, 4);
        }
    }
}

__attribute__((format(printf, 2, 0))) static void put_formatted(struct writer *w, const char *fmt, va_list args)
{
    char raw[ERRBUF_SIZE];
    int len = vsnprintf(raw, sizeof(raw), fmt, args);

    if (len < 0)
        snprintf(raw, sizeof(raw), "(unprintable message: %s)", fmt);
    put_escaped(w, raw);
    if (len >= (int)sizeof(raw))
        w->cut = true;
}

static void finish(struct writer *w, struct errbuf *err)
{
    static const char ellipsis[] = "...";

    if (w->cut) {
        size_t room = sizeof(w->text) - sizeof(ellipsis);
        size_t at = w->len < room ? w->len : room;
        memcpy(w->text + at, ellipsis, sizeof(ellipsis));
    } else {
        w->text[w->len] = '\0';
    }
    memcpy(err->text, w->text, sizeof(err->text));
}

void errbuf_set(struct errbuf *err, const char *fmt, ...)
{
    struct writer w = {.len = 0};
    va_list args;

    if (!err)
        return;
    va_start(args, fmt);
    put_formatted(&w, fmt, args);
    va_end(args);
    finish(&w, err);
}

void errbuf_prefix(struct errbuf *err, const char *fmt, ...)
{
    struct writer w = {.len = 0};
    va_list args;

    if (!err)
        return;
    va_start(args, fmt);
    put_formatted(&w, fmt, args);
    va_end(args);
    put(&w, ": ", 2);
    /* Already escaped, so copied unchanged; byte by byte, so that as much of it as fits is kept. */
    for (const char *p = err->text; *p; p++)
        put(&w, p, 1);
    finish(&w, err);
}
