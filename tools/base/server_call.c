#include "server_call.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"

#define MAX_DATABASE 1000000 /* more than any server has */
#define FORM         "redis[s]://[user:password@]host[:port][/database] or unix://[user:password@]/path[?db=database]"

/* Splits `whole` at the first `c`, or the last: *before gets the text before it. False if there is none. */
static bool split(struct slice *whole, char c, bool last, struct slice *before)
{
    const char *at = last ? memrchr(whole->ptr, c, whole->len) : memchr(whole->ptr, c, whole->len);
    if (!at)
        return false;
    *before = (struct slice){whole->ptr, (size_t)(at - whole->ptr)};
    *whole = (struct slice){at + 1, whole->len - before->len - 1};
    return true;
}

/* Keeps a part with %XX replaced. NULL: not well-formed, or with a NUL byte. */
static const char *keep(struct server_url *url, struct slice part)
{
    char *start = url->storage + url->used, *out = start;
    for (size_t i = 0; i < part.len; i++) {
        char c = part.ptr[i];
        if (c == '%') {
            int byte = i + 2 < part.len ? hex_byte(part.ptr + i + 1) : -1;
            if (byte <= 0)
                return NULL;
            c = (char)byte;
            i += 2;
        }
        *out++ = c;
    }
    *out++ = '\0';
    url->used += (size_t)(out - start);
    return start;
}

/* The error does not quote the address: it may have a part of a password. */
static int wrong(struct errbuf *err, const char *why)
{
    return errbuf_fail(err, -EINVAL, "%s; " FORM, why);
}

static int read_login(struct server_url *url, struct slice login, struct errbuf *err)
{
    struct slice user = login;
    bool has_password = split(&login, ':', false, &user);
    if (user.len > 0 && !(url->address.user = keep(url, user)))
        return wrong(err, "invalid user name");
    if (has_password && login.len > 0 && !(url->address.password = keep(url, login)))
        return wrong(err, "invalid password: write % as %25");
    return 0;
}

static bool read_number(struct slice text, uint64_t min, uint64_t max, uint64_t *out)
{
    char digits[16] = "";
    if (text.len < sizeof(digits))
        memcpy(digits, text.ptr, text.len);
    return tool_parse_u64(digits, min, max, out);
}

static int read_database(struct server_url *url, struct slice text, struct errbuf *err)
{
    uint64_t database;
    if (!read_number(text, 0, MAX_DATABASE, &database))
        return wrong(err, "the database is not a number");
    url->address.database = (int64_t)database;
    url->has_database = true;
    return 0;
}

static int read_host(struct server_url *url, struct slice host, struct errbuf *err)
{
    struct slice port = {"6379", 4};
    if (host.len > 0 && host.ptr[0] == '[') { /* an IPv6 address */
        struct slice rest = {host.ptr + 1, host.len - 1};
        if (!split(&rest, ']', false, &host) || (rest.len > 0 && rest.ptr[0] != ':'))
            return wrong(err, "invalid address");
        if (rest.len > 0)
            port = (struct slice){rest.ptr + 1, rest.len - 1};
    } else {
        struct slice before;
        if (split(&host, ':', false, &before)) {
            port = host;
            host = before;
        }
    }
    uint64_t number;
    if (!read_number(port, 1, 65535, &number))
        return wrong(err, "invalid port");
    url->address.host = host.len == 0 ? "127.0.0.1" : keep(url, host);
    url->address.port = keep(url, port);
    return url->address.host ? 0 : wrong(err, "invalid host");
}

static int read_tcp(struct server_url *url, struct slice rest, struct errbuf *err)
{
    struct slice host = rest, database = {"", 0};
    if (split(&rest, '/', false, &host))
        database = rest;
    int status = read_host(url, host, err);
    if (status == 0 && database.len > 0)
        status = read_database(url, database, err);
    if (status == 0)
        snprintf(url->shown, sizeof(url->shown), "redis%s://%.*s%s%.*s", url->with_tls ? "s" : "", (int)host.len,
                 host.ptr, database.len == 0 ? "" : "/", (int)database.len, database.ptr);
    return status;
}

static int read_unix(struct server_url *url, struct slice rest, struct errbuf *err)
{
    struct slice path = rest;
    bool has_options = split(&rest, '?', false, &path);
    if (path.len == 0 || !(url->address.unixpath = keep(url, path)))
        return wrong(err, "the socket's path is missing");
    if (has_options) {
        if (rest.len < 4 || memcmp(rest.ptr, "db=", 3) != 0)
            return wrong(err, "'?db=' is the only option");
        TRY(read_database(url, (struct slice){rest.ptr + 3, rest.len - 3}, err));
    }
    snprintf(url->shown, sizeof(url->shown), "unix://%.*s%s%.*s", (int)path.len, path.ptr, has_options ? "?" : "",
             has_options ? (int)rest.len : 0, rest.ptr);
    return 0;
}

int server_url_read(struct server_url *url, const char *text, struct errbuf *err)
{
    static const char *const unix_schemes[] = {"unix", "redis+unix", "redis-socket"};
    const char *after = strstr(text, "://");
    *url = (struct server_url){0};
    if (strlen(text) >= SERVER_URL_MAX)
        return wrong(err, "the address is too long");
    if (!after) {
        bool has_login = strchr(text, '@') != NULL;
        return errbuf_fail(err, -EINVAL, "'%s' is not the address of a server; %s%s", text,
                           has_login ? FORM : "redis://", has_login ? "" : text);
    }
    size_t scheme_len = (size_t)(after - text);
    bool is_unix = false;
    for (size_t i = 0; i < sizeof(unix_schemes) / sizeof(unix_schemes[0]); i++)
        is_unix |= strlen(unix_schemes[i]) == scheme_len && strncmp(unix_schemes[i], text, scheme_len) == 0;
    url->with_tls = strncmp(text, "rediss:", 7) == 0 || strncmp(text, "valkeys:", 8) == 0;
    if (!is_unix && !url->with_tls && strncmp(text, "redis:", 6) != 0 && strncmp(text, "valkey:", 7) != 0)
        return wrong(err, "unknown scheme");
    struct slice rest = {after + 3, strlen(after + 3)}, login;
    if (split(&rest, '@', true, &login)) {
        TRY(read_login(url, login, err));
    }
    return is_unix ? read_unix(url, rest, err) : read_tcp(url, rest, err);
}

int server_url_set_password(struct server_url *url, const char *password)
{
    size_t len = strlen(password);
    if (len >= sizeof(url->storage) - url->used)
        return -EINVAL;
    url->address.password = memcpy(url->storage + url->used, password, len + 1);
    url->used += len + 1;
    return 0;
}

void server_url_hide(char *text)
{
    char *after = strstr(text, "://"), *end = strrchr(text, '@');
    if (!after || !end || end < after)
        return;
    char *colon = memchr(after + 3, ':', (size_t)(end - after - 3));
    for (char *c = colon ? colon + 1 : end; c < end; c++)
        *c = '*';
}

int tls_options_read(const struct tool_args *args, bool wanted, struct tls_context **context_out)
{
    static const char *const names[] = {"--cacert", "--cert", "--key", "--insecure"};
    const char *command = args->command->name, *values[4];
    struct errbuf err = {""};
    *context_out = NULL;
    for (size_t i = 0; i < 4; i++) {
        values[i] = tool_option(args, names[i]);
        if (values[i] && !wanted)
            return tool_misused(command, "%s needs TLS: rediss://", names[i]);
    }
    if (!wanted)
        return TOOL_OK;
    struct tls_client_settings settings = {
        .ca_cert_file = values[0], .cert_file = values[1], .key_file = values[2], .insecure = values[3] != NULL};
    return tls_context_client(&settings, context_out, &err) == 0 ? TOOL_OK : tool_failed(command, "%s", err.text);
}

#define TIMEOUT_MS 60000

int server_call_read(struct server_call *call, const struct tool_args *args, char *text)
{
    const char *password = getenv("REDISCLI_AUTH");
    struct errbuf err = {{0}};

    call->command = args->command->name;
    peer_init(&call->peer, TIMEOUT_MS, NULL);
    if (server_url_read(&call->url, text, &err) != 0)
        return tool_misused(call->command, "%s", err.text);
    server_url_hide(text);
    if (!call->url.address.password && password && server_url_set_password(&call->url, password) != 0)
        return tool_failed(call->command, "$REDISCLI_AUTH is too long");
    int rc = tls_options_read(args, call->url.with_tls, &call->tls);
    call->url.address.tls = call->tls;
    return rc;
}

static int report_refusal(const struct server_call *call, const char *text)
{
    return tool_failed(call->command, "%s: %s", call->url.shown, text);
}

int server_call_connect(struct server_call *call)
{
    struct errbuf err = {{0}};

    return peer_log_in(&call->peer, &call->url.address, &err) == 0 ? TOOL_OK : report_refusal(call, err.text);
}

int server_call_any_reply(struct server_call *call, struct resp_reply *reply)
{
    struct errbuf err = {{0}};

    return peer_reply(&call->peer, reply, &err) == 0 ? TOOL_OK : report_refusal(call, err.text);
}

int server_call_reply(struct server_call *call, struct resp_reply *reply)
{
    int rc = server_call_any_reply(call, reply);

    if (rc == TOOL_OK && reply->nodes[0].kind == RESP_REPLY_ERROR) {
        struct slice text = resp_reply_text(reply, 0);
        return tool_failed(call->command, "%s answers: %.*s", call->url.shown, (int)text.len, text.ptr);
    }
    return rc;
}

void server_call_close(struct server_call *call)
{
    if (call->command)
        peer_close(&call->peer);
    tls_context_destroy(call->tls);
    call->tls = NULL;
}
