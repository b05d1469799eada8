#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* `html`: characters that are special in HTML are escaped, too. */
static void write_string(struct buf *out, struct slice text, bool html)
{
    buf_append(out, "\"", 1);
    while (text.len > 0) {
        size_t len = utf8_char(text.ptr, text.len);
        unsigned char c = (unsigned char)text.ptr[0];
        if (len == 0)
            buf_append(out, "\\ufffd", 6);
        else if (c == '"' || c == '\\')
            buf_appendf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f || (html && strchr("<>&'", c)))
            buf_appendf(out, "\\u%04x", c);
        else if (len == 3 && (memcmp(text.ptr, "\xe2\x80\xa8", 3) == 0 || memcmp(text.ptr, "\xe2\x80\xa9", 3) == 0))
            buf_appendf(out, "\\u202%c", text.ptr[2] == '\xa8' ? '8' : '9');
        else
            buf_append(out, text.ptr, len);
        len += len == 0;
        text.ptr += len;
        text.len -= len;
    }
    buf_append(out, "\"", 1);
}

static void begin_value(struct buf *out, const char *key)
{
    size_t len = buf_len(out);
    if (len > 0 && !strchr("{[\n", buf_head(out)[len - 1]))
        buf_append(out, ",", 1);
    if (key)
        buf_appendf(out, "\"%s\":", key);
}

void json_begin(struct buf *out, const char *key, char bracket)
{
    begin_value(out, key);
    buf_append(out, &bracket, 1);
}

void json_end(struct buf *out, char bracket)
{
    buf_append(out, &bracket, 1);
}

void json_count(struct buf *out, const char *key, uint64_t value)
{
    begin_value(out, key);
    buf_appendf(out, "%" PRIu64, value);
}

void json_counts(struct buf *out, const struct json_number *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        json_count(out, numbers[i].key, numbers[i].value);
}

void json_null(struct buf *out, const char *key)
{
    begin_value(out, key);
    buf_append(out, "null", 4);
}

void json_real(struct buf *out, const char *key, double value)
{
    if (!isfinite(value)) {
        json_null(out, key);
        return;
    }
    begin_value(out, key);
    buf_appendf(out, "%.9g", value);
}

void json_bool(struct buf *out, const char *key, bool value)
{
    begin_value(out, key);
    buf_appendf(out, value ? "true" : "false");
}

void json_text(struct buf *out, const char *key, struct slice text)
{
    begin_value(out, key);
    write_string(out, text, true);
}

void json_str(struct buf *out, const char *key, const char *text)
{
    json_text(out, key, slice_of(text));
}

static bool is_utf8(struct slice text)
{
    size_t len;

    for (; text.len > 0 && (len = utf8_char(text.ptr, text.len)) > 0; text.len -= len)
        text.ptr += len;
    return text.len == 0;
}

void json_bytes(struct buf *out, const char *key, struct slice bytes)
{
    begin_value(out, key);
    if (is_utf8(bytes)) {
        write_string(out, bytes, false);
        return;
    }
    buf_appendf(out, "{\"hex\":\"");
    for (size_t i = 0; i < bytes.len; i++)
        buf_appendf(out, "%02x", (unsigned char)bytes.ptr[i]);
    buf_appendf(out, "\"}");
}
