#include "http_head.h"

#include <string.h>
#include <strings.h>

#include "bytes.h"

size_t http_head_length(const char *text, size_t len, size_t seen)
{
    for (size_t at = seen < 3 ? 0 : seen - 3; at + 1 < len; at++) {
        if (text[at] != '\n')
            continue;
        size_t next = at + 1 + (text[at + 1] == '\r');
        if (next < len && text[next] == '\n')
            return next + 1;
    }
    return 0;
}

/* ---- words ---- */

static size_t token_length(const char *text)
{
    return strspn(text, "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
}

/* Decodes %HH in place, and '+' where it is a space. Anything else stays. Returns the new length. */
static size_t decode(char *text, size_t len, bool plus_is_space)
{
    size_t n = 0;
    for (size_t at = 0; at < len; at++) {
        int byte = text[at] == '%' && len - at > 2 ? hex_byte(text + at + 1) : -1;
        if (byte >= 0) {
            text[n++] = (char)byte;
            at += 2;
        } else {
            text[n++] = plus_is_space && text[at] == '+' ? ' ' : text[at];
        }
    }
    return n;
}

/* The next line, NUL-terminated. NULL: a control character is in it. The head ends with an empty line, so there is one
 * until that has been taken. */
static char *take_line(char **at)
{
    char *line = *at, *end = strchr(line, '\n');
    if (!end)
        return NULL; /* after a NUL */
    *at = end + 1;
    end -= end > line && end[-1] == '\r';
    *end = '\0';
    for (const char *c = line; c < end; c++)
        if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7f)
            return NULL;
    return line;
}

/* ---- parts ---- */

static bool parse_query(char *query, struct http_head *head)
{
    while (query) {
        struct http_argument *argument = &head->arguments[head->narguments];
        char *next = strchr(query, '&');
        size_t len = next ? (size_t)(next - query) : strlen(query), name_len = 0;
        while (name_len < len && query[name_len] != '=')
            name_len++;
        if (len > 0) {
            if (head->narguments == HTTP_ARGUMENTS_MAX)
                return false;
            head->narguments++;
            char *value = query + name_len + (name_len < len);
            argument->value = (struct slice){value, decode(value, (size_t)(query + len - value), true)};
            argument->name = (struct slice){query, decode(query, name_len, true)};
        }
        query = next ? next + 1 : NULL;
    }
    return true;
}

static const char *parse_request_line(char *line, struct http_head *head, bool *needs_host_out)
{
    size_t method_len = line ? token_length(line) : 0;
    if (method_len == 0 || line[method_len] != ' ')
        return HTTP_BAD_REQUEST;
    char *path = line + method_len + 1, *version = path + strcspn(path, " \t");
    if (*path != '/' || *version != ' ') /* nobody has this server for a proxy */
        return HTTP_BAD_REQUEST;
    line[method_len] = *version++ = '\0';
    if (strncmp(version, "HTTP/", 5) != 0 || strspn(version + 5, "0123456789") != 1 || version[6] != '.' ||
        strspn(version + 7, "0123456789") != 1 || version[8] != '\0')
        return HTTP_BAD_REQUEST;
    if (version[5] != '1')
        return HTTP_VERSION_NOT_SUPPORTED;
    *needs_host_out = version[7] != '0';
    char *query = strchr(path, '?');
    if (query)
        *query++ = '\0';
    size_t path_len = decode(path, strlen(path), false);
    path[path_len] = '\0';
    head->method = line;
    head->path = path;
    return strlen(path) == path_len && parse_query(query, head) ? NULL : HTTP_BAD_REQUEST;
}

static const char *parse_field(char *line, struct http_head *head)
{
    size_t name_len = token_length(line);
    char *value = line + name_len + 1;
    if (name_len == 0 || line[name_len] != ':')
        return HTTP_BAD_REQUEST;
    if (head->nfields == HTTP_FIELDS_MAX)
        return HTTP_FIELDS_TOO_LARGE;
    line[name_len] = '\0';
    value += strspn(value, " \t");
    size_t len = strlen(value);
    while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t'))
        len--;
    value[len] = '\0';
    head->fields[head->nfields++] = (struct http_field){line, value};
    return NULL;
}

/* Programs differ in their choice between two of them. */
static bool has_twice(const struct http_head *head, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < head->nfields; i++)
        n += strcasecmp(head->fields[i].name, name) == 0;
    return n > 1;
}

const char *http_head_parse(char *text, size_t len, struct http_head *head_out)
{
    bool needs_host = false;
    char *at = text, *line;
    head_out->nfields = head_out->narguments = 0;
    text[len - 1] = '\0'; /* of the empty line: strings end here */
    const char *status = parse_request_line(take_line(&at), head_out, &needs_host);
    while (!status && *at != '\0' && *at != '\r') {
        line = take_line(&at);
        status = line ? parse_field(line, head_out) : HTTP_BAD_REQUEST;
    }
    if (status)
        return status;
    bool ends = at + 1 + (*at == '\r') == text + len;
    bool ambiguous =
        has_twice(head_out, "Host") || has_twice(head_out, "Content-Length") || has_twice(head_out, "Authorization");
    return !ends || ambiguous || (needs_host && !http_field(head_out, "Host")) ? HTTP_BAD_REQUEST : NULL;
}

/* ---- the contents of the head ---- */

const char *http_field(const struct http_head *head, const char *name)
{
    for (size_t i = 0; i < head->nfields; i++)
        if (strcasecmp(head->fields[i].name, name) == 0)
            return head->fields[i].value;
    return NULL;
}

bool http_argument(const struct http_head *head, const char *name, struct slice *value_out)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < head->narguments; i++) {
        const struct http_argument *argument = &head->arguments[i];
        if (argument->name.len == len && memcmp(argument->name.ptr, name, len) == 0) {
            *value_out = argument->value;
            return true;
        }
    }
    return false;
}
