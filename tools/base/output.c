#include "output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

void output_drop(struct output *out)
{
    buf_deinit(&out->buf);
}

void output_string(struct buf *json, const char *key, const char *text)
{
    json_bytes(json, key, slice_of(text));
}
