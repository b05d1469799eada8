#include "golden.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fputs("golden: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

static unsigned char *read_file(const char *path, size_t *len_out)
{
    FILE *file = fopen(path, "rb");
    unsigned char *data;
    long len;

    if (!file || fseek(file, 0, SEEK_END) != 0 || (len = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) != 0)
        die("%s: %s", path, strerror(errno));
    data = malloc((size_t)len + 1);
    if (!data || fread(data, 1, (size_t)len, file) != (size_t)len)
        die("%s: cannot be read", path);
    fclose(file);
    data[len] = '\0';
    *len_out = (size_t)len;
    return data;
}

unsigned char *golden_file(size_t *len_out, const char *path_fmt, ...)
{
    char path[4096];
    va_list args;

    va_start(args, path_fmt);
    vsnprintf(path, sizeof(path), path_fmt, args);
    va_end(args);
    return read_file(path, len_out);
}

void golden_lines_open(struct golden_lines *lines, const char *path_fmt, ...)
{
    char path[4096];
    size_t len;
    va_list args;

    va_start(args, path_fmt);
    vsnprintf(path, sizeof(path), path_fmt, args);
    va_end(args);
    lines->text = lines->at = (char *)read_file(path, &len);
    lines->nfields = 0;
    if (memchr(lines->text, '\0', len) || (len > 0 && lines->text[len - 1] != '\n'))
        die("%s: no text of whole lines", path);
}

bool golden_lines_next(struct golden_lines *lines)
{
    char *end;

    while (*lines->at == '#')
        lines->at = strchr(lines->at, '\n') + 1;
    if (*lines->at == '\0')
        return false;
    end = strchr(lines->at, '\n');
    *end = '\0';
    lines->nfields = 0;
    for (char *field = lines->at; field;) {
        if (lines->nfields == GOLDEN_FIELDS_MAX)
            die("too many fields: %s", field);
        lines->fields[lines->nfields++] = strsep(&field, "\t");
    }
    lines->at = end + 1;
    return true;
}

void golden_lines_close(struct golden_lines *lines)
{
    free(lines->text);
}

uint64_t golden_u64(const char *field)
{
    char *end;
    uint64_t value = strtoull(field, &end, 10);

    if (end == field || *end != '\0' || *field == '-')
        die("no number: '%s'", field);
    return value;
}

int64_t golden_i64(const char *field)
{
    char *end;
    int64_t value = strtoll(field, &end, 10);

    if (end == field || *end != '\0')
        die("no number: '%s'", field);
    return value;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    die("no hexadecimal digit: '%c'", c);
}

size_t golden_unhex(char *field)
{
    size_t len = strlen(field);

    if (len % 2 != 0)
        die("half a byte: '%s'", field);
    for (size_t i = 0; i < len / 2; i++)
        field[i] = (char)(hex_digit(field[2 * i]) * 16 + hex_digit(field[2 * i + 1]));
    return len / 2;
}

static const char *json_value(const char *json, const char *name)
{
    char quoted[128];
    const char *at;

    snprintf(quoted, sizeof(quoted), "\"%s\":", name);
    at = strstr(json, quoted);
    if (!at)
        die("no member %s", quoted);
    at += strlen(quoted);
    return at + strspn(at, " ");
}

double golden_json_number(const char *json, const char *name)
{
    const char *at = json_value(json, name);
    char *end;
    double value = strtod(at, &end);

    if (end == at)
        die("member \"%s\" is no number", name);
    return value;
}

void golden_json_string(const char *json, const char *name, char *out, size_t size)
{
    const char *at = json_value(json, name);
    const char *end = *at == '"' ? strchr(at + 1, '"') : NULL;

    if (!end || (size_t)(end - at) > size)
        die("member \"%s\" is no string, or too long", name);
    memcpy(out, at + 1, (size_t)(end - at - 1));
    out[end - at - 1] = '\0';
}

static uint32_t load_be32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

void golden_filter_parse(struct golden_filter *filter, const unsigned char *file, size_t len, bool big_endian_words)
{
    if (len < 8)
        die("file of %zu bytes", len);
    filter->k = load_be32(file);
    filter->nwords = load_be32(file + 4);
    if (len != 8 + (size_t)filter->nwords * 8)
        die("%u words in a file of %zu bytes", filter->nwords, len);
    filter->words = calloc(filter->nwords, 8);
    if (!filter->words)
        die("no memory");
    for (size_t i = 0; i < filter->nwords; i++) {
        for (unsigned byte = 0; byte < 8; byte++) {
            unsigned shift = 8 * (big_endian_words ? 7 - byte : byte);
            filter->words[i] |= (uint64_t)file[8 + 8 * i + byte] << shift;
        }
    }
}
