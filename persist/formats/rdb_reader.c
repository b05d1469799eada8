#include "rdb_reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bytes.h"
#include "crc64.h"

/* The first byte of a length: its two high bits say how it continues. */
#define FORM_6_BITS   0
#define FORM_14_BITS  1
#define FORM_LONG     2 /* a whole byte: LENGTH_32 or LENGTH_64 */
#define FORM_ENCODED  3 /* no length: a string in a special form */
#define LENGTH_32     0x80
#define LENGTH_64     0x81
#define ENCODED_INT8  0
#define ENCODED_INT16 1
#define ENCODED_INT32 2
#define ENCODED_LZF   3

void rdb_reader_memory(struct rdb_reader *reader, const void *data, size_t len, struct errbuf *err)
{
    const unsigned char *bytes = data;

    *reader = (struct rdb_reader){.at = bytes, .end = bytes + len, .summed = bytes, .behind = len, .err = err};
}

void rdb_reader_stream(struct rdb_reader *reader, rdb_source_fn *source, void *ctx, void *buffer, size_t buffer_size,
                       uint64_t offset, struct errbuf *err)
{
    *reader = (struct rdb_reader){.source = source,
                                  .ctx = ctx,
                                  .buffer = buffer,
                                  .buffer_size = buffer_size,
                                  .at = buffer,
                                  .end = buffer,
                                  .summed = buffer,
                                  .behind = offset,
                                  .err = err};
}

void rdb_reader_fields(struct rdb_reader *reader, const struct rdb_fields *fields, void *ctx, struct errbuf *err)
{
    *reader = (struct rdb_reader){.fields = fields, .ctx = ctx, .err = err};
}

uint64_t rdb_reader_offset(const struct rdb_reader *reader)
{
    return reader->behind - (uint64_t)(reader->end - reader->at);
}

uint64_t rdb_reader_crc(struct rdb_reader *reader)
{
    reader->crc = crc64(reader->crc, reader->summed, (size_t)(reader->at - reader->summed));
    reader->summed = reader->at;
    return reader->crc;
}

int rdb_bad(const struct rdb_reader *reader, const char *fmt, ...)
{
    char text[200];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (reader->fields)
        errbuf_set(reader->err, "%s", text);
    else
        errbuf_set(reader->err, "%s, at byte %llu", text, (unsigned long long)rdb_reader_offset(reader));
    return RDB_BAD;
}

/* ---- bytes ---- */

/* Has at least one byte between `at` and `end`, unless the source has ended. */
static int refill(struct rdb_reader *reader)
{
    size_t n = 0;

    if (reader->at < reader->end || !reader->source)
        return RDB_OK;
    (void)rdb_reader_crc(reader);
    TRY(reader->source(reader->ctx, reader->buffer, reader->buffer_size, &n));
    reader->at = reader->buffer;
    reader->summed = reader->buffer;
    reader->end = reader->buffer + n;
    reader->behind += n;
    return RDB_OK;
}

int rdb_more(struct rdb_reader *reader, bool *more_out)
{
    TRY(refill(reader));
    *more_out = reader->at < reader->end;
    return RDB_OK;
}

/* Takes the next 1 to `max` bytes, as many as the buffer has; they are valid until the next call. */
static int take_some(struct rdb_reader *reader, uint64_t max, const unsigned char **bytes_out, size_t *n_out,
                     const char *what)
{
    TRY(refill(reader));
    size_t n = (size_t)(reader->end - reader->at);
    if (n == 0)
        return rdb_bad(reader, "the data ends within %s", what);
    if (n > max)
        n = (size_t)max;
    *bytes_out = reader->at;
    *n_out = n;
    reader->at += n;
    return RDB_OK;
}

int rdb_bytes(struct rdb_reader *reader, void *out, size_t len, const char *what)
{
    unsigned char *to = out;

    while (len > 0) {
        const unsigned char *bytes = NULL;
        size_t n = 0;
        TRY(take_some(reader, len, &bytes, &n, what));
        memcpy(to, bytes, n);
        to += n;
        len -= n;
    }
    return RDB_OK;
}

/* Hands the next `len` bytes to the sink; NULL: skips them. */
static int pass_bytes(struct rdb_reader *reader, uint64_t len, bytes_sink_fn *sink, void *ctx, const char *what)
{
    while (len > 0) {
        const unsigned char *bytes = NULL;
        size_t n = 0;
        TRY(take_some(reader, len, &bytes, &n, what));
        if (sink)
            TRY(sink(ctx, bytes, n));
        len -= n;
    }
    return RDB_OK;
}

int rdb_skip(struct rdb_reader *reader, uint64_t len, const char *what)
{
    return pass_bytes(reader, len, NULL, NULL, what);
}

int rdb_byte(struct rdb_reader *reader, unsigned char *out, const char *what)
{
    return rdb_bytes(reader, out, 1, what);
}

int rdb_u32(struct rdb_reader *reader, uint32_t *out, const char *what)
{
    unsigned char bytes[4];
    TRY(rdb_bytes(reader, bytes, sizeof(bytes), what));
    *out = le32_get(bytes);
    return RDB_OK;
}

int rdb_u64(struct rdb_reader *reader, uint64_t *out, const char *what)
{
    unsigned char bytes[8];
    TRY(rdb_bytes(reader, bytes, sizeof(bytes), what));
    *out = le64_get(bytes);
    return RDB_OK;
}

int rdb_double(struct rdb_reader *reader, double *out, const char *what)
{
    unsigned char bytes[8];
    TRY(rdb_bytes(reader, bytes, sizeof(bytes), what));
    *out = le_double_get(bytes);
    return RDB_OK;
}

/* ---- lengths ---- */

/* A length, or the kind of the special form that follows. */
static int length_or_form(struct rdb_reader *reader, uint64_t *out, bool *special_out, const char *what)
{
    unsigned char first, rest[8];
    TRY(rdb_byte(reader, &first, what));
    *special_out = first >> 6 == FORM_ENCODED;
    *out = first & 0x3f;
    switch (first >> 6) {
    case FORM_14_BITS:
        TRY(rdb_byte(reader, rest, what));
        *out = *out << 8 | rest[0];
        return RDB_OK;
    case FORM_LONG:
        if (first != LENGTH_32 && first != LENGTH_64)
            return rdb_bad(reader, "%s: 0x%02x begins no length", what, first);
        TRY(rdb_bytes(reader, rest, first == LENGTH_32 ? 4 : 8, what));
        *out = first == LENGTH_32 ? be32_get(rest) : be64_get(rest);
        return RDB_OK;
    default:
        return RDB_OK;
    }
}

int rdb_length(struct rdb_reader *reader, uint64_t *out, const char *what)
{
    bool special;
    int rc = length_or_form(reader, out, &special, what);

    if (rc == RDB_OK && special)
        return rdb_bad(reader, "%s: a specially encoded string is no number", what);
    return rc;
}

/* ---- strings ---- */

struct string {
    uint64_t len;    /* of the string */
    uint64_t stored; /* bytes that follow */
    enum { PLAIN, NUMBER, COMPRESSED } form;
    char text[16]; /* a number's */
};

static int open_string(struct rdb_reader *reader, struct string *string, const char *what)
{
    uint64_t form;
    bool special;
    TRY(length_or_form(reader, &form, &special, what));
    if (!special) {
        *string = (struct string){.len = form, .stored = form, .form = PLAIN};
        return RDB_OK;
    }
    if (form <= ENCODED_INT32) {
        *string = (struct string){.stored = UINT64_C(1) << form, .form = NUMBER};
        return RDB_OK;
    }
    if (form != ENCODED_LZF)
        return rdb_bad(reader, "%s: strings of form %llu are not known", what, (unsigned long long)form);
    string->form = COMPRESSED;
    TRY(rdb_length(reader, &string->stored, what));
    return rdb_length(reader, &string->len, what);
}

int rdb_string_skip(struct rdb_reader *reader, const char *what)
{
    struct string string;
    TRY(open_string(reader, &string, what));
    return rdb_skip(reader, string.stored, what);
}

/* A number as the text that it represents. */
static int number_text(struct rdb_reader *reader, size_t bytes, char text[16], const char *what)
{
    unsigned char in[4] = {0};
    TRY(rdb_bytes(reader, in, bytes, what));
    uint32_t bits = le32_get(in);
    int32_t value = bytes == 1 ? (int8_t)bits : bytes == 2 ? (int16_t)bits : (int32_t)bits;

    snprintf(text, 16, "%d", value);
    return RDB_OK;
}

/* A compressed string passes through the decoder on its way to the sink. */
struct inflow {
    struct lzf_decoder decoder;
    bytes_sink_fn *sink;
    void *ctx;
};

static int feed(void *ctx, const unsigned char *bytes, size_t len)
{
    struct inflow *inflow = ctx;

    return lzf_decoder_feed(&inflow->decoder, bytes, len, inflow->sink, inflow->ctx);
}

/* Opens a string whose length becomes known: a number is read, its text is the string. */
static int open_content(struct rdb_reader *reader, struct string *string, const char *what)
{
    int rc = open_string(reader, string, what);

    if (rc == RDB_OK && string->form == NUMBER) {
        rc = number_text(reader, (size_t)string->stored, string->text, what);
        string->len = strlen(string->text);
    }
    return rc;
}

/* The content of an opened string, handed to the sink. */
static int pass_string(struct rdb_reader *reader, const struct string *string, bytes_sink_fn *sink, void *ctx,
                       const char *what)
{
    if (string->form == NUMBER)
        return sink(ctx, (const unsigned char *)string->text, (size_t)string->len);
    if (string->form == PLAIN)
        return pass_bytes(reader, string->stored, sink, ctx, what);

    struct inflow inflow = {.sink = sink, .ctx = ctx};
    lzf_decoder_init(&inflow.decoder, string->len);
    int rc = pass_bytes(reader, string->stored, feed, &inflow, what);
    STEP(rc, lzf_decoder_end(&inflow.decoder, sink, ctx));
    if (rc == LZF_BAD)
        return rdb_bad(reader, "%s: the compressed string is damaged", what);
    return rc;
}

struct copy_to {
    unsigned char *at;
    size_t room;
};

static int copy_some(void *ctx, const unsigned char *bytes, size_t len)
{
    struct copy_to *to = ctx;
    size_t n = len < to->room ? len : to->room;

    memcpy(to->at, bytes, n);
    to->at += n;
    to->room -= n;
    return RDB_OK;
}

int rdb_string_copy(struct rdb_reader *reader, void *buf, size_t max, uint64_t *len_out, const char *what)
{
    struct copy_to to = {buf, max};
    struct string string;
    TRY(open_content(reader, &string, what));
    *len_out = string.len;
    return pass_string(reader, &string, copy_some, &to, what);
}

int rdb_string_fits(const struct rdb_reader *reader, uint64_t got, uint64_t *len, const char *what)
{
    if (*len == RDB_ANY_LENGTH)
        *len = got;
    return got == *len ? RDB_OK
                       : rdb_bad(reader, "%s: %llu bytes, expected %llu", what, (unsigned long long)got,
                                 (unsigned long long)*len);
}

int rdb_string_pieces(struct rdb_reader *reader, uint64_t *len, bytes_sink_fn *sink, void *ctx, const char *what)
{
    struct string string;
    TRY(open_content(reader, &string, what));
    TRY(rdb_string_fits(reader, string.len, len, what));
    return pass_string(reader, &string, sink, ctx, what);
}

/* ---- writing ---- */

unsigned char *rdb_put_length(unsigned char *at, uint64_t value)
{
    if (value < 64) {
        *at++ = (unsigned char)value;
        return at;
    }
    if (value < 16384) {
        *at++ = (unsigned char)(FORM_14_BITS << 6 | value >> 8);
        *at++ = (unsigned char)value;
        return at;
    }
    *at++ = value <= UINT32_MAX ? LENGTH_32 : LENGTH_64;
    return value <= UINT32_MAX ? be32_put(at, (uint32_t)value) : be64_put(at, value);
}
