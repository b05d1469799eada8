#include "output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"

void output_begin(struct output *out, const struct tool_args *args, bool array)
{
    *out = (struct output){.json = tool_option(args, "--json") != NULL, .array = array};
    buf_init(&out->buf, SIZE_MAX);
    if (out->json && array)
        buf_append(&out->buf, "[", 1);
}

/* Writes all except the last `kept` bytes. */
static void flush(struct output *out, size_t kept)
{
    size_t len = buf_len(&out->buf) - kept;
    fwrite(buf_head(&out->buf), 1, len, stdout);
    buf_consume(&out->buf, len);
}

struct buf *output_object(struct output *out)
{
    if (!out->json)
        return NULL;
    if (out->array && buf_head(&out->buf)[buf_len(&out->buf) - 1] == '}')
        buf_append(&out->buf, ",\n", 2);
    if (out->array)
        flush(out, 1); /* the writer of JSON checks the last byte */
    json_begin(&out->buf, NULL, '{');
    return &out->buf;
}

struct buf *output_single(struct output *out, const struct tool_args *args)
{
    output_begin(out, args, false);
    return output_object(out);
}

int output_end(struct output *out, int status)
{
    bool failed = buf_failed(&out->buf);
    if (out->json && out->array)
        json_end(&out->buf, ']');
    if (out->json && buf_len(&out->buf) > 0) {
        buf_append(&out->buf, "\n", 1);
        flush(out, 0);
    }
    buf_deinit(&out->buf);
    return failed ? tool_failed("output", "%s", strerror(ENOMEM)) : status;
}

void output_string(struct buf *json, const char *key, const char *text)
{
    json_bytes(json, key, slice_of(text));
}

#define SHOW_MS  100
#define BAR_WIDE 30

void progress_begin(struct progress *progress, const char *what, uint64_t total)
{
    *progress = (struct progress){.what = what, .total = total, .shows = isatty(STDERR_FILENO)};
    progress->begun_ms = progress->last_ms = clock_ms();
}

static void show(struct progress *progress, uint64_t done, int64_t now)
{
    double mb = (double)done / 1e6, seconds = (double)(now - progress->begun_ms) / 1e3;
    double share = progress->total ? (double)done / (double)progress->total : 0;
    int bar = share < 1 ? (int)(share * BAR_WIDE) : BAR_WIDE;

    fprintf(stderr, "\r%s ", progress->what);
    if (progress->total)
        fprintf(stderr, "[%s%.*s%s%*s] %3.0f %%, ", terminal_colour(TERMINAL_GREEN), bar,
                "##############################", terminal_colour(TERMINAL_PLAIN), BAR_WIDE - bar, "", 100 * share);
    fprintf(stderr, "%.0f MB, %.0f MB/s", mb, seconds > 0 ? mb / seconds : 0);
    if (share > 0.02 && share < 1 && seconds > 2) /* before that it would be a guess */
        fprintf(stderr, ", %.0f s left", seconds / share - seconds);
    fputs("\033[K", stderr);
    fflush(stderr);
    progress->shown = true;
}

void progress_update(struct progress *progress, uint64_t done)
{
    progress->done = done;
    if (!progress->shows)
        return;
    int64_t now = clock_ms();
    if (now - progress->last_ms < SHOW_MS)
        return;
    progress->last_ms = now;
    show(progress, done, now);
}

void progress_add(struct progress *progress, uint64_t bytes)
{
    progress_update(progress, progress->done + bytes);
}

void progress_hide(struct progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}

void progress_end(struct progress *progress)
{
    progress_hide(progress);
    progress->shows = false;
}
