#include "traffic.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- templates ---- */

enum part_kind { PART_LITERAL, PART_ITEM, PART_FILTER };

#define NAME_MAX_SIZE 512

struct request_part {
    enum part_kind kind;
    size_t offset, len; /* in `literal` */
};

static size_t count_parts(const struct request_template *t)
{
    return buf_len(&t->parts) / sizeof(struct request_part);
}

static void add_part(struct request_template *t, struct request_part part)
{
    buf_append(&t->parts, &part, sizeof(part));
}

static void add_bulk(struct request_template *t, const char *bytes, size_t len)
{
    size_t offset = buf_len(&t->literal);
    buf_appendf(&t->literal, "$%zu\r\n%.*s\r\n", len, (int)len, bytes);
    add_part(t, (struct request_part){PART_LITERAL, offset, buf_len(&t->literal) - offset});
}

static bool is_word(const char *word, size_t len, const char *name)
{
    return len == strlen(name) && memcmp(word, name, len) == 0;
}

static void add_word(struct request_template *t, const char *word, size_t len, unsigned batch)
{
    bool items = is_word(word, len, "{items}");
    if (items || is_word(word, len, "{item}")) {
        unsigned n = items ? batch : 1;
        for (unsigned i = 0; i < n; i++)
            add_part(t, (struct request_part){.kind = PART_ITEM});
        t->items += n;
    } else if (!is_word(word, len, "{filter}")) {
        add_bulk(t, word, len);
    } else if (t->nfilters > 1) {
        add_part(t, (struct request_part){.kind = PART_FILTER});
    } else {
        add_bulk(t, t->filter, strlen(t->filter));
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
    unsigned words = count_words(line, batch);

    *t = (struct request_template){.filter = filter, .nfilters = nfilters};
    buf_init(&t->literal, UINT32_MAX);
    buf_init(&t->parts, UINT32_MAX);
    if (words == 0)
        return -EINVAL;
    buf_appendf(&t->literal, "*%u\r\n", words);
    add_part(t, (struct request_part){PART_LITERAL, 0, buf_len(&t->literal)});
    for (const char *p = line + strspn(line, " "); *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        add_word(t, p, len, batch);
        p += len;
    }
    if (buf_failed(&t->literal) || buf_failed(&t->parts)) {
        request_template_deinit(t);
        return -ENOMEM;
    }
    const struct request_part *parts = (const void *)buf_head(&t->parts);
    for (size_t i = 0; i < count_parts(t); i++)
        t->max_size += parts[i].kind == PART_LITERAL ? parts[i].len
                       : parts[i].kind == PART_ITEM  ? max_item_size + 16u
                                                     : NAME_MAX_SIZE + 16u;
    return 0;
}

void request_template_deinit(struct request_template *t)
{
    buf_deinit(&t->literal);
    buf_deinit(&t->parts);
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

/* Writes "$<len>\r\n", and "\r\n" after the place of the bytes; returns that place. */
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
    const struct request_part *part = (const void *)buf_head(&t->parts), *end = part + count_parts(t);
    const char *literal = buf_head(&t->literal);
    char *start = out;

    for (; part < end; part++) {
        if (part->kind == PART_LITERAL) {
            memcpy(out, literal + part->offset, part->len);
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

void replies_init(struct reply_reader *r)
{
    *r = (struct reply_reader){0};
    buf_init(&r->kept, 2 * (size_t)RESP_REPLY_MAX_TEXT);
}

void replies_deinit(struct reply_reader *r)
{
    resp_reply_reader_deinit(&r->reader);
    buf_deinit(&r->kept);
}

static void count(struct reply_reader *r, const struct resp_reply *reply)
{
    if (reply->nodes[0].kind == RESP_REPLY_PUSH)
        return;
    r->replies++;
    for (size_t i = 0; i < reply->count; i++) {
        const struct resp_reply_node *node = &reply->nodes[i];
        if (node->kind == RESP_REPLY_INTEGER) {
            r->ones += node->number == 1;
            r->zeros += node->number == 0;
        } else if (node->kind == RESP_REPLY_ERROR && r->errors++ == 0) {
            snprintf(r->first_error, sizeof(r->first_error), "%.*s",
                     (int)(node->len < REPLY_TEXT ? node->len : REPLY_TEXT), reply->base + node->off);
        }
    }
}

/* Takes most replies, ":1\r\n" and ":0\r\n"; returns the bytes they have. */
static size_t take_digits(struct reply_reader *r, const char *data, size_t len)
{
    size_t at = 0;
    for (; len - at >= 4 && data[at] == ':' && (unsigned char)(data[at + 1] - '0') < 10 && data[at + 2] == '\r' &&
           data[at + 3] == '\n';
         at += 4) {
        r->replies++;
        r->ones += data[at + 1] == '1';
        r->zeros += data[at + 1] == '0';
    }
    return at;
}

bool replies_take(struct reply_reader *r, const char *data, size_t len)
{
    bool begun = buf_len(&r->kept) > 0;
    if (begun) {
        buf_append(&r->kept, data, len);
        data = buf_head(&r->kept);
        len = buf_len(&r->kept);
    }
    size_t at = begun ? 0 : take_digits(r, data, len);
    while (at < len) {
        struct resp_reply reply;
        size_t taken, needs;
        enum resp_reply_status status = resp_reply_next(&r->reader, data + at, len - at, &taken, &needs, &reply);
        if (status == RESP_REPLY_NEED_MORE)
            break;
        if (status != RESP_REPLY_WHOLE)
            return false;
        count(r, &reply);
        at += taken;
        at += take_digits(r, data + at, len - at);
    }
    if (begun)
        buf_consume(&r->kept, at);
    else
        buf_append(&r->kept, data + at, len - at);
    return !buf_failed(&r->kept);
}
