#include "resp_reader.h"

#include <stdlib.h>
#include <string.h>

#define REPLY_DEPTH_MAX 16

struct reader {
    const char *p, *end;
    int version;
    int depth;
    FILE *out;
};

static int read_value(struct reader *r);

void resp_write_quoted(FILE *out, const char *data, size_t len)
{
    fputc('"', out);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)data[i];
        fprintf(out, c >= 0x20 && c < 0x7f && c != '"' && c != '\\' ? "%c" : "\\x%02x", c);
    }
    fputc('"', out);
}

/* A line up to \r\n, without either byte inside; NULL if there is none. */
static const char *read_line(struct reader *r, size_t *len_out)
{
    const char *line = r->p;

    while (r->p < r->end && *r->p != '\r' && *r->p != '\n')
        r->p++;
    if (r->end - r->p < 2 || r->p[0] != '\r' || r->p[1] != '\n')
        return NULL;
    *len_out = (size_t)(r->p - line);
    r->p += 2;
    return line;
}

static int read_number(struct reader *r, long long *value_out)
{
    char text[32], printed[32];
    size_t len;
    const char *line = read_line(r, &len);

    if (line == NULL || len >= sizeof(text))
        return 0;
    memcpy(text, line, len);
    text[len] = '\0';
    *value_out = strtoll(text, NULL, 10);
    snprintf(printed, sizeof(printed), "%lld", *value_out);
    return strcmp(text, printed) == 0;
}

static int read_text(struct reader *r, char type)
{
    size_t len;
    const char *line = read_line(r, &len);

    if (line == NULL)
        return 0;
    fputc(type, r->out);
    fwrite(line, 1, len, r->out);
    return 1;
}

static int read_blob(struct reader *r, int verbatim)
{
    long long len;

    if (!read_number(r, &len) || len < -1)
        return 0;
    if (len == -1) {
        fputs("nil", r->out);
        return r->version == 2 && !verbatim;
    }
    if (r->end - r->p < len + 2 || r->p[len] != '\r' || r->p[len + 1] != '\n')
        return 0;
    const char *data = r->p;
    r->p += len + 2;
    if (verbatim) {
        if (len < 4 || data[3] != ':')
            return 0;
        fprintf(r->out, "=%.4s", data);
        data += 4;
        len -= 4;
    }
    resp_write_quoted(r->out, data, (size_t)len);
    return 1;
}

static int read_elements(struct reader *r, long long n, const char *open, char close)
{
    fputs(open, r->out);
    for (long long i = 0; i < n; i++) {
        if (i > 0)
            fputc(' ', r->out);
        if (!read_value(r))
            return 0;
    }
    fputc(close, r->out);
    return 1;
}

static int read_aggregate(struct reader *r, char type)
{
    long long n;

    if (!read_number(r, &n) || n < -1)
        return 0;
    if (n == -1) {
        fputs("nil*", r->out);
        return r->version == 2 && type == '*';
    }
    if (++r->depth > REPLY_DEPTH_MAX)
        return 0;
    int fine = type == '*'   ? read_elements(r, n, "[", ']')
               : type == '%' ? read_elements(r, 2 * n, "{", '}')
               : type == '~' ? read_elements(r, n, "~[", ']')
                             : read_elements(r, n, ">[", ']');
    r->depth--;
    return fine;
}

static int read_value(struct reader *r)
{
    long long n;
    size_t len;

    if (r->p == r->end)
        return 0;
    char type = *r->p++;
    if (r->version == 2 && strchr("+-:$*", type) == NULL)
        return 0;
    switch (type) {
    case '+':
    case '-':
    case ',':
        return read_text(r, type);
    case ':':
        return read_number(r, &n) && fprintf(r->out, ":%lld", n) > 0;
    case '$':
        return read_blob(r, 0);
    case '=':
        return read_blob(r, 1);
    case '#': {
        const char *line = read_line(r, &len);
        return line != NULL && len == 1 && (*line == 't' || *line == 'f') && fprintf(r->out, "#%c", *line) > 0;
    }
    case '_':
        return read_line(r, &len) != NULL && len == 0 && fputc('_', r->out) != EOF;
    case '*':
    case '%':
    case '~':
    case '>':
        return read_aggregate(r, type);
    default:
        return 0;
    }
}

size_t resp_read(const char *data, size_t len, int version, FILE *out)
{
    struct reader r = {data, data + len, version, 0, out};

    return read_value(&r) ? (size_t)(r.p - data) : 0;
}
