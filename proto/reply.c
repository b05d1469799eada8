/* Forms as in the Redis serialization protocol specification, versions 2 and 3. Each element is reserved, written and
 * committed in one piece, so that a buffer that fails holds whole elements only. */
#include "reply.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define DIGITS_MAX 20 /* of an unsigned 64-bit number */

static const char digit_pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                                  "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                                  "8081828384858687888990919293949596979899";

/* Writes the decimal digits of `value` to `out`, which has room for DIGITS_MAX, and returns their end. */
static char *put_digits(char *out, uint64_t value)
{
    char digits[DIGITS_MAX], *p = digits + sizeof(digits);

    if (value < 10) {
        *out = (char)('0' + value);
        return out + 1;
    }
    while (value >= 100) {
        p -= 2;
        memcpy(p, digit_pairs + value % 100 * 2, 2);
        value /= 100;
    }
    if (value >= 10) {
        p -= 2;
        memcpy(p, digit_pairs + value * 2, 2);
    } else {
        *--p = (char)('0' + value);
    }

    size_t len = (size_t)(digits + sizeof(digits) - p);
    memcpy(out, p, len);
    return out + len;
}

static char *put_line_end(char *out)
{
    *out++ = '\r';
    *out++ = '\n';
    return out;
}

static void commit_to(struct buf *buf, const char *end)
{
    buf_commit(buf, (size_t)(end - (buf->data + buf->end)));
}

/* "<type><n>\r\n" */
static void put_header(struct reply *reply, char type, uint64_t n)
{
    char *out = buf_reserve(reply->buf, 1 + DIGITS_MAX + 2);

    if (!out)
        return;
    *out++ = type;
    commit_to(reply->buf, put_line_end(put_digits(out, n)));
}

/* "<type><n>\r\n<prefix><data>\r\n"; n counts the prefix too. */
static void put_blob(struct reply *reply, char type, const char *prefix, const void *data, size_t len)
{
    size_t prefix_len = strlen(prefix), room = 1 + DIGITS_MAX + 2 + prefix_len + 2;

    char *out = buf_reserve(reply->buf, len > SIZE_MAX - room ? SIZE_MAX : len + room);
    if (!out)
        return;
    *out++ = type;
    out = put_line_end(put_digits(out, prefix_len + len));
    if (prefix_len > 0)
        memcpy(out, prefix, prefix_len);
    out += prefix_len;
    if (len > 0)
        memcpy(out, data, len);
    commit_to(reply->buf, put_line_end(out + len));
}

/* "<type><text>\r\n" with the text cleaned. */
static void put_line(struct reply *reply, char type, const char *text)
{
    size_t len = strlen(text);
    char *out = buf_reserve(reply->buf, 1 + len + 2);

    if (!out)
        return;
    *out++ = type;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        *out++ = c < 0x20 || c == 0x7f ? ' ' : text[i];
    }
    commit_to(reply->buf, put_line_end(out));
}

void reply_status(struct reply *reply, const char *text)
{
    put_line(reply, '+', text);
}

bool reply_error(struct reply *reply, const char *text)
{
    put_line(reply, '-', text);
    return false;
}

bool reply_errorf(struct reply *reply, const char *fmt, ...)
{
    char text[REPLY_ERROR_MAX + 1];
    va_list args;

    va_start(args, fmt);
    int len = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (len < 0) /* the format cannot be encoded: the bare format is better than no text */
        snprintf(text, sizeof(text), "ERR %s", fmt);
    else if ((size_t)len >= sizeof(text))
        memcpy(text + sizeof(text) - 4, "...", 4);
    return reply_error(reply, text);
}

void reply_integer(struct reply *reply, int64_t value)
{
    char *out = buf_reserve(reply->buf, 1 + 1 + DIGITS_MAX + 2);

    if (!out)
        return;
    *out++ = ':';
    if (value < 0)
        *out++ = '-';
    commit_to(reply->buf, put_line_end(put_digits(out, value < 0 ? 0 - (uint64_t)value : (uint64_t)value)));
}

void reply_bools(struct reply *reply, uint32_t bits, size_t n)
{
    char *room = buf_reserve(reply->buf, n * 4);
    uint32_t no, yes;

    if (!room)
        return;
    memcpy(&no, reply->version == 3 ? "#f\r\n" : ":0\r\n", 4);
    memcpy(&yes, reply->version == 3 ? "#t\r\n" : ":1\r\n", 4);
    for (size_t i = 0; i < n; i++, bits >>= 1) {
        uint32_t text = no ^ ((no ^ yes) & (0 - (bits & 1))); /* without a branch: answers cannot be predicted */
        memcpy(room + i * 4, &text, 4);
    }
    buf_commit(reply->buf, n * 4);
}

void reply_null(struct reply *reply)
{
    if (reply->version == 3)
        buf_append(reply->buf, "_\r\n", 3);
    else
        buf_append(reply->buf, "$-1\r\n", 5);
}

void reply_null_array(struct reply *reply)
{
    if (reply->version == 3)
        buf_append(reply->buf, "_\r\n", 3);
    else
        buf_append(reply->buf, "*-1\r\n", 5);
}

void reply_bulk(struct reply *reply, const void *data, size_t len)
{
    put_blob(reply, '$', "", data, len);
}

void reply_bulk_take(struct reply *reply, void *data, size_t len)
{
    char head[DIGITS_MAX + 3] = "$", *end = put_digits(head + 1, len);
    memcpy(end, "\r\n", 2);
    size_t front = (size_t)(end - head) + 2;
    char *bytes = realloc(data, front + len + 2);

    if (!bytes) {
        free(data);
        reply_error(reply, "ERR out of memory");
        return;
    }
    memmove(bytes + front, bytes, len);
    memcpy(bytes, head, front);
    memcpy(bytes + front + len, "\r\n", 2);
    buf_take(reply->buf, bytes, front + len + 2);
}

void reply_bulk_str(struct reply *reply, const char *text)
{
    put_blob(reply, '$', "", text, strlen(text));
}

/* Writes the fewest significant digits that read back as the same value; 17 suffice for any double. The sign of a NaN
 * means nothing and is left out. */
void reply_double_text(double value, char text_out[REPLY_DOUBLE_MAX])
{
    if (isnan(value)) {
        snprintf(text_out, REPLY_DOUBLE_MAX, "nan");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text_out, REPLY_DOUBLE_MAX, "%.*g", digits, value);
        if (isinf(value) || strtod(text_out, NULL) == value)
            return;
    }
}

void reply_double(struct reply *reply, double value)
{
    char text[REPLY_DOUBLE_MAX];

    reply_double_text(value, text);
    if (reply->version == 3)
        put_line(reply, ',', text);
    else
        reply_bulk_str(reply, text);
}

void reply_verbatim(struct reply *reply, const char *ext, const void *data, size_t len)
{
    char prefix[5];

    assert(strlen(ext) == 3);
    if (reply->version == 3) {
        memcpy(prefix, ext, 3);
        memcpy(prefix + 3, ":", 2);
        put_blob(reply, '=', prefix, data, len);
    } else {
        reply_bulk(reply, data, len);
    }
}

void reply_array(struct reply *reply, size_t n)
{
    put_header(reply, '*', n);
}

void reply_map(struct reply *reply, size_t pairs)
{
    if (reply->version == 3)
        put_header(reply, '%', pairs);
    else
        put_header(reply, '*', (uint64_t)pairs * 2);
}

void reply_set(struct reply *reply, size_t n)
{
    put_header(reply, reply->version == 3 ? '~' : '*', n);
}

void reply_push(struct reply *reply, size_t n)
{
    put_header(reply, reply->version == 3 ? '>' : '*', n);
}

/* "*0\r\n" is the placeholder of the header; a count of one digit needs no more room. */
size_t reply_array_begin(struct reply *reply)
{
    size_t token = buf_len(reply->buf);

    buf_append(reply->buf, "*0\r\n", 4);
    return token;
}

static void end_aggregate(struct reply *reply, size_t token, char type, size_t n)
{
    struct buf *buf = reply->buf;
    char header[1 + DIGITS_MAX + 2] = {type};
    size_t len = (size_t)(put_line_end(put_digits(header + 1, n)) - header), more = len - 4;

    if (buf_failed(buf) || (more > 0 && !buf_reserve(buf, more)))
        return;
    assert(token + 4 <= buf_len(buf));

    char *at = buf->data + buf->start + token;
    if (more > 0)
        memmove(at + len, at + 4, buf_len(buf) - token - 4);
    memcpy(at, header, len);
    buf_commit(buf, more);
}

void reply_array_end(struct reply *reply, size_t token, size_t n)
{
    end_aggregate(reply, token, '*', n);
}

size_t reply_map_begin(struct reply *reply)
{
    return reply_array_begin(reply);
}

void reply_map_end(struct reply *reply, size_t token, size_t pairs)
{
    if (reply->version == 3)
        end_aggregate(reply, token, '%', pairs);
    else
        end_aggregate(reply, token, '*', pairs * 2);
}
