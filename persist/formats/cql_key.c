/* The frame of a key: types, quotes, composites. The values of each type are read in cql_value.c. */
#include "cql_key.h"

#include <string.h>
#include <strings.h>

static const char composite_begin[] = "composite(";

/* The type that a text begins with, and the length of its name; NULL if there is none. */
static const struct cql_type *find_type(const char *text, size_t len, size_t *name_len_out)
{
    const char *colon = memchr(text, ':', len);
    const struct cql_type *type = cql_types;

    *name_len_out = colon ? (size_t)(colon - text) : len;
    while (type->name && (strlen(type->name) != *name_len_out || strncasecmp(text, type->name, *name_len_out) != 0))
        type++;
    return colon && type->name ? type : NULL;
}

static int refuse_type(const char *text, size_t len, size_t name_len, struct errbuf *err)
{
    if (name_len == len)
        errbuf_set(err,
                   "write a key as <type>:<value>, such as text:abc or int:5, or as composite(<type>:<value>,...)");
    else
        errbuf_set(err, "unknown type of a key: '%.*s'; 'bloomery help find' lists them, others are blob:0x...",
                   (int)(name_len < 40 ? name_len : 40), text);
    return CQL_KEY_REFUSED;
}

/* The end of a component's value that is not in quotes: the comma or parenthesis behind it. */
static size_t bare_end(const char *text, size_t at, size_t len)
{
    while (at < len && text[at] != ',' && text[at] != ')')
        at++;
    return at;
}

/* Reads a value between quotes, which begins after the first of them. Doubled quotes become single ones in `plain`. */
static int unquote(const char *text, size_t len, size_t *at, unsigned char *plain, size_t *plain_len_out,
                   struct errbuf *err)
{
    size_t n = 0;

    for (; *at < len; ++*at) {
        if (text[*at] == '\'') {
            if (*at + 1 == len || text[*at + 1] != '\'') {
                ++*at;
                *plain_len_out = n;
                return CQL_KEY_OK;
            }
            ++*at;
        }
        if (n == CQL_KEY_MAX)
            return errbuf_fail(err, CQL_KEY_REFUSED, "a column has more than %d bytes", CQL_KEY_MAX);
        plain[n++] = (unsigned char)text[*at];
    }
    return errbuf_fail(err, CQL_KEY_REFUSED, "the quote of a column is not closed");
}

/* Reads a column from *at on, up to the comma or parenthesis behind it. */
static int read_component(const char *text, size_t len, size_t *at, struct cql_bytes *out, struct errbuf *err)
{
    unsigned char plain[CQL_KEY_MAX];
    struct slice value;
    size_t name_len;

    while (*at < len && text[*at] == ' ')
        ++*at;
    const struct cql_type *type = find_type(text + *at, bare_end(text, *at, len) - *at, &name_len);
    if (!type)
        return refuse_type(text + *at, bare_end(text, *at, len) - *at, name_len, err);
    *at += name_len + 1;
    if (*at < len && text[*at] == '\'') {
        ++*at;
        value.ptr = (const char *)plain;
        if (unquote(text, len, at, plain, &value.len, err) != CQL_KEY_OK)
            return CQL_KEY_REFUSED;
    } else {
        size_t end = bare_end(text, *at, len);
        value = (struct slice){text + *at, end - *at};
        *at = end;
        if (memchr(value.ptr, '\'', value.len) || memchr(value.ptr, '(', value.len))
            return errbuf_fail(err, CQL_KEY_REFUSED, "a column with one of , ( ) ' needs quotes: text:'it''s'");
    }
    if (value.len == 0 && type->may_be_empty)
        return CQL_KEY_OK;
    return type->read(&value, out, err);
}

/* Each column has its length in 16 bits before it, and a zero after it, the last one too. */
static int read_composite(const char *text, size_t len, struct cql_bytes *out, struct errbuf *err)
{
    size_t at = sizeof(composite_begin) - 1;

    for (unsigned i = 1;; i++) {
        size_t begin = out->len;
        if (i > CQL_KEY_COMPONENTS)
            return errbuf_fail(err, CQL_KEY_REFUSED, "a key has at most %d columns", CQL_KEY_COMPONENTS);
        if (cql_put(out, "\0\0", 2, err) != CQL_KEY_OK || read_component(text, len, &at, out, err) != CQL_KEY_OK ||
            cql_put(out, "", 1, err) != CQL_KEY_OK) {
            errbuf_prefix(err, "column %u", i);
            return CQL_KEY_REFUSED;
        }
        size_t column = out->len - begin - 3;
        out->ptr[begin] = (unsigned char)(column >> 8);
        out->ptr[begin + 1] = (unsigned char)column;
        if (at < len && text[at] == ',') {
            at++;
            continue;
        }
        if (at + 1 == len && text[at] == ')')
            return CQL_KEY_OK;
        return errbuf_fail(err, CQL_KEY_REFUSED,
                           at == len ? "the ')' of composite(...) is missing"
                                     : "column %u must be followed by a comma or the last ')'",
                           i);
    }
}

int cql_key_parse(const char *text, size_t len, unsigned char key_out[CQL_KEY_MAX], size_t *len_out, struct errbuf *err)
{
    struct cql_bytes out = {key_out, 0};
    size_t name_len;
    int rc;

    if (len > 0 && len >= strlen(composite_begin) && strncasecmp(text, composite_begin, strlen(composite_begin)) == 0) {
        rc = read_composite(text, len, &out, err);
    } else {
        const struct cql_type *type = len > 0 ? find_type(text, len, &name_len) : NULL;
        if (!type)
            return refuse_type(text, len, len > 0 ? name_len : 0, err);
        const struct slice value = {text + name_len + 1, len - name_len - 1};
        if (value.len == 0)
            return errbuf_fail(err, CQL_KEY_REFUSED,
                               "the value of the key is missing after '%.*s:'; a partition key is never empty",
                               (int)name_len, text);
        rc = type->read(&value, &out, err);
    }
    if (rc != CQL_KEY_OK)
        return rc;
    if (out.len == 0)
        return errbuf_fail(err, CQL_KEY_REFUSED, "a partition key is never empty");
    *len_out = out.len;
    return CQL_KEY_OK;
}
