#include "traffic.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- templates ---- */

enum part_kind { PART_LITERAL, PART_ITEM, PART_FILTER };

#define NAME_MAX_SIZE 512

struct builder {
    struct request_template *t;
    size_t literal_len, literal_size;
    size_t parts_size;
    bool failed;
};

static struct request_part *add_part(struct builder *b, enum part_kind kind)
{
    struct request_template *t = b->t;
    if (t->nparts == b->parts_size) {
        size_t size = b->parts_size ? b->parts_size * 2 : 16;
        struct request_part *parts = realloc(t->parts, size * sizeof(*parts));
        if (!parts) {
            b->failed = true;
            return NULL;
        }
        t->parts = parts;
        b->parts_size = size;
    }
    struct request_part *part = &t->parts[t->nparts++];
    *part = (struct request_part){.kind = (uint8_t)kind, .offset = (uint32_t)b->literal_len};
    return part;
}

static void add_literal(struct builder *b, const char *text, size_t len)
{
    struct request_template *t = b->t;
    if (b->literal_len + len > b->literal_size) {
        size_t size = (b->literal_len + len) * 2;
        char *literal = realloc(t->literal, size);
        if (!literal) {
            b->failed = true;
            return;
        }
        t->literal = literal;
        b->literal_size = size;
    }
    struct request_part *last = t->nparts ? &t->parts[t->nparts - 1] : NULL;
    if (!last || last->kind != PART_LITERAL)
        last = add_part(b, PART_LITERAL);
    if (!last)
        return;
    memcpy(t->literal + b->literal_len, text, len);
    b->literal_len += len;
    last->len += (uint32_t)len;
}

static void add_bulk(struct builder *b, const char *bytes, size_t len)
{
    char head[32];
    int n = snprintf(head, sizeof(head), "$%zu\r\n", len);
    add_literal(b, head, (size_t)n);
    add_literal(b, bytes, len);
    add_literal(b, "\r\n", 2);
}

static void add_word(struct builder *b, const char *word, size_t len, unsigned batch)
{
    if (len == 6 && memcmp(word, "{item}", 6) == 0) {
        add_part(b, PART_ITEM);
        b->t->items++;
    } else if (len == 7 && memcmp(word, "{items}", 7) == 0) {
        for (unsigned i = 0; i < batch; i++)
            add_part(b, PART_ITEM);
        b->t->items += batch;
    } else if (len == 8 && memcmp(word, "{filter}", 8) == 0) {
        if (b->t->nfilters > 1)
            add_part(b, PART_FILTER);
        else
            add_bulk(b, b->t->filter, strlen(b->t->filter));
    } else {
        add_bulk(b, word, len);
    }
}

static unsigned count_words(const char *line, unsigned batch)
{
    unsigned words = 0;
    for (const char *p = line + strspn(line, " "); *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        words += len == 7 && memcmp(p, "{items}", 7) == 0 ? batch : 1;
        p += len;
    }
    return words;
}

int request_template_init(struct request_template *t, const char *line, const char *filter, uint64_t nfilters,
                          unsigned batch, unsigned max_item_size)
{
    char head[32];
    unsigned words = count_words(line, batch);
    struct builder b = {.t = t};

    *t = (struct request_template){.filter = filter, .nfilters = nfilters};
    if (words == 0)
        return -EINVAL;
    int n = snprintf(head, sizeof(head), "*%u\r\n", words);
    add_literal(&b, head, (size_t)n);
    for (const char *p = line + strspn(line, " "); *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        add_word(&b, p, len, batch);
        p += len;
    }
    if (b.failed) {
        request_template_deinit(t);
        return -ENOMEM;
    }
    for (size_t i = 0; i < t->nparts; i++)
        t->max_size += t->parts[i].kind == PART_LITERAL ? t->parts[i].len
                       : t->parts[i].kind == PART_ITEM  ? max_item_size + 16u
                                                        : NAME_MAX_SIZE + 16u;
    return 0;
}

void request_template_deinit(struct request_template *t)
{
    free(t->literal);
    free(t->parts);
    *t = (struct request_template){0};
}

/* Writes the decimal digits of a number. */
static char *write_number(char *out, uint64_t number)
{
    char digits[20];
    unsigned n = 0;
    do
        digits[n++] = (char)('0' + number % 10);
    while (number /= 10);
    while (n)
        *out++ = digits[--n];
    return out;
}

/* Writes "$<len>\r\n", and "\r\n" behind the place of the bytes; returns that place. */
static char *open_bulk(char *out, size_t len)
{
    *out++ = '$';
    if (len >= 10 && len < 100) { /* most items */
        *out++ = (char)('0' + len / 10);
        *out++ = (char)('0' + len % 10);
    } else {
        out = write_number(out, len);
    }
    memcpy(out, "\r\n", 2);
    memcpy(out + 2 + len, "\r\n", 2);
    return out + 2;
}

/* Filter `n` of several. */
static char *write_filter_name(const struct request_template *t, uint64_t n, char *out)
{
    char name[NAME_MAX_SIZE], *end = name + strnlen(t->filter, NAME_MAX_SIZE - 24);
    memcpy(name, t->filter, (size_t)(end - name));
    *end++ = ':';
    end = write_number(end, n);
    size_t len = (size_t)(end - name);
    out = open_bulk(out, len);
    memcpy(out, name, len);
    return out + len + 2;
}

size_t request_write(const struct request_template *t, struct items *items, char *out)
{
    char *start = out;

    for (size_t i = 0; i < t->nparts; i++) {
        const struct request_part *part = &t->parts[i];
        if (part->kind == PART_LITERAL) {
            memcpy(out, t->literal + part->offset, part->len);
            out += part->len;
        } else if (part->kind == PART_ITEM) {
            uint64_t number = items_next(items);
            out = open_bulk(out, items_size(items, number));
            out += items_bytes(items, number, out) + 2;
        } else {
            out = write_filter_name(t, items_random(items) % t->nfilters, out);
        }
    }
    return (size_t)(out - start);
}

/* ---- replies ---- */

static void take_error(struct reply_reader *r, const char *line, size_t len)
{
    r->errors++;
    if (r->first_error[0] == '\0')
        snprintf(r->first_error, sizeof(r->first_error), "%.*s", (int)(len < REPLY_TEXT ? len : REPLY_TEXT - 1), line);
}

/* Reads the number that fills a header. Never reads beyond the line, as strtoll() would after blanks. False: no number,
 * or too large. */
static bool read_count(const char *text, size_t len, long long *n_out)
{
    bool negative = len > 1 && text[0] == '-';
    long long n = 0;

    if (len == 0 || len > 15)
        return false;
    for (size_t i = negative; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        n = 10 * n + (text[i] - '0');
    }
    *n_out = negative ? -n : n;
    return true;
}

/* A whole line without its end, the header of one element. */
static bool take_element(struct reply_reader *r, const char *line, size_t len)
{
    if (len == 0)
        return false;
    char kind = line[0];
    long long n = 0;
    if (memchr("$=!*~%>|", kind, 8) && !read_count(line + 1, len - 1, &n))
        return false;
    if (n < 0 && !strchr("$*", kind)) /* only these have a form for "none" */
        return false;
    if (r->remaining == 0) {
        r->remaining = 1;
        r->is_push = kind == '>';
    }
    r->remaining--;
    switch (kind) {
    case ':':
        r->ones += len == 2 && line[1] == '1';
        r->zeros += len == 2 && line[1] == '0';
        break;
    case '#':
        r->ones += len == 2 && line[1] == 't';
        r->zeros += len == 2 && line[1] == 'f';
        break;
    case '-':
        take_error(r, line + 1, len - 1);
        break;
    case '!':
        take_error(r, line, len); /* its text follows as a bulk string */
        r->skip = (uint64_t)n + 2;
        break;
    case '$':
    case '=':
        r->skip = n >= 0 ? (uint64_t)n + 2 : 0;
        break;
    case '*':
    case '~':
    case '>':
        r->remaining += n > 0 ? (uint64_t)n : 0;
        break;
    case '%':
        r->remaining += 2 * (uint64_t)n;
        break;
    case '|':
        r->remaining += 2 * (uint64_t)n + 1;
        break;
    case '+':
    case '_':
    case ',':
    case '(':
        break;
    default:
        return false;
    }
    return true;
}

static void count_if_whole(struct reply_reader *r)
{
    if (r->remaining == 0 && r->skip == 0 && !r->is_push)
        r->replies++;
}

/* Keeps the first bytes of a line, or completes it. NULL: the line is incomplete, or too long for a header. */
static const char *complete_line(struct reply_reader *r, const char *data, size_t len, bool whole)
{
    size_t room = sizeof(r->line) - 1 - r->line_len;
    size_t n = len < room ? len : room; /* of a long text the beginning is enough */
    memcpy(r->line + r->line_len, data, n);
    r->line_len += (uint32_t)n;
    r->line[r->line_len] = '\0';
    return whole ? r->line : NULL;
}

bool replies_take(struct reply_reader *r, const char *data, size_t len)
{
    const char *end = data + len;
    while (data < end) {
        if (r->skip) {
            size_t n = r->skip < (uint64_t)(end - data) ? (size_t)r->skip : (size_t)(end - data);
            r->skip -= n;
            data += n;
            count_if_whole(r);
            continue;
        }
        /* Most replies: ":1\r\n" and ":0\r\n", alone or as elements. */
        if (r->line_len == 0 && end - data >= 4 && data[0] == ':' && (unsigned char)(data[1] - '0') < 10 &&
            data[2] == '\r' && data[3] == '\n') {
            r->ones += data[1] == '1';
            r->zeros += data[1] == '0';
            data += 4;
            if (r->remaining == 0) {
                r->replies++;
            } else {
                r->remaining--;
                count_if_whole(r);
            }
            continue;
        }
        const char *newline = memchr(data, '\n', (size_t)(end - data));
        size_t n = (size_t)((newline ? newline : end) - data);
        const char *line = data;
        if (r->line_len || !newline) {
            line = complete_line(r, data, n, newline != NULL);
            n = r->line_len;
        }
        data = newline ? newline + 1 : end;
        if (!line)
            continue;
        r->line_len = 0;
        if (n == 0 || line[n - 1] != '\r') {
            if (n < sizeof(r->line) - 1) /* otherwise it is a long text whose end is cut */
                return false;
            n++;
        }
        if (!take_element(r, line, n - 1))
            return false;
        count_if_whole(r);
    }
    return true;
}
