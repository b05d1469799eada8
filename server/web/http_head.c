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

/* A target in absolute form (RFC 9112, 3.2.2), as proxies get it, becomes its path. Its host is that of the request,
 * regardless of the field Host; it moves a byte to the left, to be NUL-terminated. False: it has none, or a user. */
static bool take_absolute_form(char **target_inout, struct http_head *head)
{
    char *target = *target_inout;
    size_t scheme_len = strncasecmp(target, "http://", 7) == 0 ? 7 : strncasecmp(target, "https://", 8) == 0 ? 8 : 0;
    if (scheme_len == 0)
        return true;
    char *host = target + scheme_len;
    size_t len = strcspn(host, "/");
    bool has_path = host[len] == '/';
    memmove(host - 1, host, len);
    host[len - 1] = '\0';
    head->host = host - 1;
    if (!has_path)
        memcpy(target, "/", 2);
    *target_inout = has_path ? host + len : target;
    return len > 0 && !strchr(head->host, '@');
}

static const char *parse_request_line(char *line, struct http_head *head, bool *needs_host_out)
{
    size_t method_len = line ? token_length(line) : 0;
    if (method_len == 0 || line[method_len] != ' ')
        return HTTP_BAD_REQUEST;
    char *path = line + method_len + 1, *version = path + strcspn(path, " \t");
    if (version == path || *version != ' ')
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
    if (!take_absolute_form(&path, head))
        return HTTP_BAD_REQUEST;
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
    head_out->host = NULL;
    text[len - 1] = '\0'; /* of the empty line: strings end here */
    const char *status = parse_request_line(take_line(&at), head_out, &needs_host);
    while (!status && *at != '\0' && *at != '\r') {
        line = take_line(&at);
        status = line ? parse_field(line, head_out) : HTTP_BAD_REQUEST;
    }
    if (status)
        return status;
    bool ends = at + 1 + (*at == '\r') == text + len;
    if (!ends || has_twice(head_out, "Host") || has_twice(head_out, "Content-Length") ||
        has_twice(head_out, "Authorization") || (needs_host && !http_field(head_out, "Host")))
        return HTTP_BAD_REQUEST;
    if (!head_out->host)
        head_out->host = http_field(head_out, "Host");
    return NULL;
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

/* The weight of a range of media types in thousandths, from its parameters: ";version=1.0.0;q=0.5". */
static int weight(const char *parameters, const char *end)
{
    for (const char *at = parameters; at < end; at++) {
        const char *name = at + 1;
        if (*at != ';')
            continue;
        name += strspn(name, " \t");
        if (end - name < 3 || strncasecmp(name, "q=", 2) != 0)
            continue;
        const char *digit = name + 2;
        int value = *digit == '1' ? 1000 : 0, place = 100;
        if (value == 0 && digit[1] == '.')
            for (digit += 2; digit < end && *digit >= '0' && *digit <= '9'; digit++, place /= 10)
                value += (*digit - '0') * place;
        return value;
    }
    return 1000;
}

/* The greatest weight of this type in the header; -1: it is missing. */
static int weight_of(const char *accept, const char *type)
{
    size_t len = strlen(type);
    int best = -1;
    while (*accept) {
        const char *end = accept + strcspn(accept, ",");
        accept += strspn(accept, " \t");
        if (accept < end && strncasecmp(accept, type, len) == 0 && strchr("; \t,", accept[len])) {
            int found = weight(accept + len, end);
            best = found > best ? found : best;
        }
        accept = *end ? end + 1 : end;
    }
    return best;
}

bool http_accept_prefers(const char *accept, const char *type, const char *other)
{
    int found = weight_of(accept, type);
    return found > 0 && found >= weight_of(accept, other);
}
