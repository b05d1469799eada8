/* The way of a request: its route, the rights of its user, and the head of the reply. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <netdb.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#include "acl.h"
#include "clock.h"
#include "command.h"
#include "filter_page.h"
#include "rcu.h"
#include "registry.h"
#include "routes.h"
#include "server.h"
#include "sstables.h"

#define SCAN_SLICE 1000 /* names of a slice: some tenths of a millisecond */
#define TEXT_PLAIN "text/plain; charset=utf-8"

/* ---- replies ---- */

/* Browsers may use a reply only as the page needs it, and only with contents from this server. */
static const char fields[] =
    "Connection: close\r\n"
    "Cache-Control: no-store\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "X-Frame-Options: DENY\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n";

static void write_head(struct web_request *request, const char *status, const char *type)
{
    struct buf *out = &request->reply_head;
    char date[64] = "";
    time_t seconds = (time_t)(clock_unix_ms() / 1000);
    struct tm tm;
    if (gmtime_r(&seconds, &tm))
        strftime(date, sizeof(date), "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &tm);
    buf_appendf(out, "HTTP/1.1 %s\r\n%s%s", status, date, fields);
    if (strcmp(status, HTTP_UNAUTHORIZED) == 0)
        buf_appendf(out, "WWW-Authenticate: Basic realm=\"bloomery\", charset=\"UTF-8\"\r\n");
    if (strcmp(status, HTTP_METHOD_NOT_ALLOWED) == 0)
        buf_appendf(out, "Allow: GET, HEAD\r\n");
    uint64_t length = buf_len(&request->body) + (request->copy ? filter_copy_left(request->copy) : 0);
    if (buf_len(&request->more_fields))
        buf_append(out, buf_head(&request->more_fields), buf_len(&request->more_fields));
    if (strcmp(status, HTTP_NOT_MODIFIED) != 0)
        buf_appendf(out, "Content-Type: %s\r\nContent-Length: %" PRIu64 "\r\n", type, length);
    buf_append(out, "\r\n", 2);
}

static void set_body(struct buf *body, const char *text)
{
    buf_deinit(body);
    buf_appendf(body, "%s\n", text);
}

void web_reply(struct web_request *request, const char *status, const char *type)
{
    struct web *web = request->web;
    struct buf *body = &request->body;
    const char *refusal = buf_failed(body) ? "out of memory for this reply"
                          : web->reply_bytes + body->size > WEB_REPLIES_BYTES
                              ? "too many replies are waiting for their clients"
                              : NULL;
    if (refusal) {
        set_body(body, refusal);
        status = HTTP_UNAVAILABLE;
        type = TEXT_PLAIN;
    }
    write_head(request, status, type);
    if (request->head.method && strcmp(request->head.method, "HEAD") == 0) {
        buf_deinit(body);
        if (request->copy)
            filter_copy_skip(request->copy);
    }
    request->charged = body->size;
    web->reply_bytes += request->charged;
    request->stage = buf_failed(&request->reply_head) || buf_failed(body) ? WEB_CLOSES : WEB_WRITES;
}

void web_reply_text(struct web_request *request, const char *status, const char *text)
{
    set_body(&request->body, text);
    web_reply(request, status, TEXT_PLAIN);
}

/* ---- passes over the registry ---- */

void web_scan(struct web_request *request, void (*visit)(void *query, struct slice key, struct entry *entry),
              void (*finish)(struct web_request *request, uint64_t busy_ns))
{
    request->pass.visit = visit;
    request->pass.finish = finish;
    request->stage = WEB_SCANS;
}

/* A filter of the data directory hides an SSTable's of the same name. */
static void visit_sstable(void *ctx, struct slice key, struct entry *entry)
{
    struct web_request *request = ctx;
    if (!registry_lookup(request->web->server->registry, key))
        request->pass.visit(request->pass.query, key, entry);
}

bool web_scan_step(struct web *web)
{
    struct web_request *request = NULL;
    for (size_t i = 0; i < web->nrequests && (!request || request->stage != WEB_SCANS); i++)
        request = web->requests[++web->scan_turn % web->nrequests];
    if (!request || request->stage != WEB_SCANS)
        return false;
    struct web_pass *pass = &request->pass;
    const struct server *server = web->server;
    uint64_t began_ns = clock_ns();
    rcu_reader_online();
    pass->cursor =
        pass->in_sstables
            ? registry_scan(sstables_registry(server->sstables), pass->cursor, SCAN_SLICE, visit_sstable, request)
            : registry_scan(server->registry, pass->cursor, SCAN_SLICE, pass->visit, pass->query);
    rcu_reader_offline();
    pass->busy_ns += clock_ns() - began_ns;
    if (pass->cursor == 0 && !pass->in_sstables && server->sstables) {
        pass->in_sstables = true;
    } else if (pass->cursor == 0) {
        request->deadline_ms = clock_ms() + WEB_REQUEST_MS; /* the pass took no time of the client's */
        pass->finish(request, pass->busy_ns);
    }
    return true;
}

/* ---- access ---- */

enum web_access { WEB_ALLOWED, WEB_NO_PASSWORD, WEB_NO_RIGHT, WEB_NOT_LOCAL };

#define MAX_CREDENTIALS 4096 /* of base64: a name, and CONFIG_MAX_SECRET bytes */

/* Cuts "Basic <name>:<password> in base64" into the two, which are in `text`. */
static bool read_credentials(const char *header, uint8_t *text, struct slice *name_out, struct slice *password_out)
{
    struct base64_decode_ctx decoder;
    size_t len = BASE64_DECODE_LENGTH(MAX_CREDENTIALS);
    if (strncasecmp(header, "Basic ", 6) != 0)
        return false;
    header += 6;
    header += strspn(header, " ");
    if (strlen(header) > MAX_CREDENTIALS)
        return false;
    base64_decode_init(&decoder);
    if (!base64_decode_update(&decoder, &len, text, strlen(header), header) || !base64_decode_final(&decoder))
        return false;
    const uint8_t *colon = memchr(text, ':', len);
    if (!colon)
        return false;
    *name_out = (struct slice){(const char *)text, (size_t)(colon - text)};
    *password_out = (struct slice){(const char *)colon + 1, len - (size_t)(colon + 1 - text)};
    return true;
}

/* Logs a wrong password, as AUTH does: somebody may guess passwords by HTTP, too. */
static void note_wrong_password(const struct web_request *request, struct slice name)
{
    struct sockaddr_storage addr;
    socklen_t addr_len = sizeof(addr);
    char host[64] = "?", port[8] = "?", client[96];
    if (getpeername(request->fd, (struct sockaddr *)&addr, &addr_len) == 0)
        (void)getnameinfo((struct sockaddr *)&addr, addr_len, host, sizeof(host), port, sizeof(port),
                          NI_NUMERICHOST | NI_NUMERICSERV);
    int len = snprintf(client, sizeof(client), "addr=%s:%s", host, port);
    struct acl_denied denied = {
        .reason = ACL_DENIED_AUTH,
        .object = slice_of("HTTP"),
        .user = name,
        .client = {client, (size_t)len},
        .now_ms = clock_unix_ms(),
        .max = (size_t)server_config(request->web->server)->users.acllog_max_len,
    };
    acl_log_add(request->web->server->acl, &denied);
}

/* The user named by the header, the default user if the header names none, or NULL if the password is wrong.
 * *unknown_out: the header has a name that no user has. */
static struct acl_user *user_of(const struct web_request *request, const char *header, bool *unknown_out)
{
    struct acl *acl = request->web->server->acl;
    static const struct slice default_name = {"default", 7};
    uint8_t text[BASE64_DECODE_LENGTH(MAX_CREDENTIALS)];
    struct slice name = default_name, password = {"", 0};
    if (header && !read_credentials(header, text, &name, &password))
        name = default_name;
    struct acl_user *known = acl_get(acl, name);
    acl_user_unref(known);
    *unknown_out = !known && name.len > 0;
    struct acl_user *user = acl_authenticate(acl, known ? name : default_name, password);
    if (!user && header) /* a browser asks without one first */
        note_wrong_password(request, name);
    return user;
}

static bool may_run(const struct acl_user *user, const char *command)
{
    return acl_allows_command(user, command_index(command_find_full(slice_of(command))));
}

/* Whether the text is an address: of IPv6 between brackets, otherwise of IPv4 with all of its four numbers. */
static bool is_address(const char *text, size_t len)
{
    char address[INET6_ADDRSTRLEN];
    struct in6_addr parsed;
    bool brackets = len >= 2 && text[0] == '[' && text[len - 1] == ']';
    if (brackets)
        text++, len -= 2;
    if (len >= sizeof(address))
        return false;
    memcpy(address, text, len);
    address[len] = '\0';
    return inet_pton(brackets ? AF_INET6 : AF_INET, address, &parsed) == 1;
}

/* Of a Host header: an address or localhost, and perhaps a port. */
static bool is_own_name(const char *host)
{
    size_t len = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    if (len > strlen(host))
        return false;
    const char *port = host + len;
    if (port[0] != '\0' && (port[0] != ':' || port[1 + strspn(port + 1, "0123456789")] != '\0'))
        return false;
    return is_address(host, len) || (len == strlen("localhost") && strncasecmp(host, "localhost", len) == 0);
}

static bool is_local(const struct web_request *request)
{
    const char *host = http_field(&request->head, "Host");
    return request->local && (!host || is_own_name(host));
}

/* Browsers show the page, whose paths need INFO: there another user may log in. */
static enum web_access refusal(const struct web_request *request, const char *command, bool named)
{
    bool ask = !may_run(request->user, "info") && (!named || strcmp(command, "info") == 0);
    return ask ? WEB_NO_PASSWORD : WEB_NO_RIGHT;
}

/* Whether the request's user, which it sets as request->user, may run all of the commands (`needs`, up to ROUTE_NEEDS
 * of them; none: no user is asked for). *missing_out is the first that he may not run; without a user, the first.
 *
 * A user is named by HTTP basic with his name and password. A name that no user has represents the user "default", as
 * any name did before there were others. Where that one has no password none is asked for; then, in protected mode,
 * only for clients on this machine, whose Host is an address or localhost. A page from elsewhere that a browser on this
 * machine has loaded would come with its own name, which its owner has made to mean this machine.
 *
 * A user without the right to INFO is asked for another name and password (WEB_NO_PASSWORD) if the path needs INFO, or
 * if the request names no user. Other users get an error with the missing right (WEB_NO_RIGHT). */
static enum web_access web_access(struct web_request *request, const char *const *needs, const char **missing_out)
{
    struct server *server = request->web->server;
    if (!needs[0])
        return WEB_ALLOWED;
    if (server_config(server)->network.protected_mode && acl_needs_no_password(server->acl) && !is_local(request))
        return WEB_NOT_LOCAL;
    const char *header = http_field(&request->head, "Authorization");
    bool unknown;
    *missing_out = needs[0];
    request->user = user_of(request, header, &unknown);
    if (!request->user)
        return WEB_NO_PASSWORD;
    for (int i = 0; i < ROUTE_NEEDS && needs[i]; i++) {
        *missing_out = needs[i];
        if (!may_run(request->user, needs[i])) /* which names there are must not show */
            return unknown ? WEB_NO_PASSWORD : refusal(request, needs[i], header != NULL);
    }
    return WEB_ALLOWED;
}

/* ---- requests ---- */

static void refuse(struct web_request *request, enum web_access access, const char *command)
{
    char text[240];
    request->web->counts.refused++;
    if (access == WEB_NO_PASSWORD) {
        snprintf(text, sizeof(text),
                 "log in as a user with the right to run '%s'; an unknown name means the user default, whose password "
                 "is the setting requirepass",
                 command);
        web_reply_text(request, HTTP_UNAUTHORIZED, text);
    } else if (access == WEB_NOT_LOCAL)
        web_reply_text(request, HTTP_FORBIDDEN,
                       "protected mode: without a password (requirepass) the daemon serves only this machine, by the "
                       "name localhost or its address");
    else {
        snprintf(text, sizeof(text), "this path needs the right to run the '%s' command", command);
        web_reply_text(request, HTTP_FORBIDDEN, text);
    }
}

static bool is_probe(const struct web_request *request)
{
    return request->route && !request->route->needs[0];
}

/* Whether as many requests as may be, without probes, are being answered. */
static bool is_full(const struct web *web)
{
    size_t n = 0;
    for (size_t i = 0; i < web->nrequests; i++) {
        const struct web_request *request = web->requests[i];
        n += (request->stage == WEB_SCANS || request->stage == WEB_WRITES) && !is_probe(request);
    }
    return n >= WEB_ANSWERS;
}

static void answer(struct web_request *request)
{
    static const char *const info[ROUTE_NEEDS] = {"info"};
    const struct route *route = request->route = route_find(&request->head);
    const char *missing = NULL;
    request->web->counts.requests++;
    if (!is_probe(request) && is_full(request->web)) {
        web_reply_text(request, HTTP_UNAVAILABLE, "too many requests are being answered");
        return;
    }
    rcu_reader_online();
    enum web_access access = web_access(request, route ? route->needs : info, &missing);
    rcu_reader_offline();
    if (access != WEB_ALLOWED)
        refuse(request, access, missing);
    else if (!route)
        web_reply_text(request, HTTP_NOT_FOUND, "no such page");
    else
        route->answer(request);
}

void web_answer(struct web_request *request, size_t len)
{
    struct http_head *head = &request->head;
    const char *status = http_head_parse(request->in.data, len, head);
    if (status) {
        head->method = NULL;
        web_reply_text(request, status, "not a valid request of HTTP/1.1");
        return;
    }
    const char *length = http_field(head, "Content-Length");
    if (strcmp(head->method, "GET") != 0 && strcmp(head->method, "HEAD") != 0)
        web_reply_text(request, HTTP_METHOD_NOT_ALLOWED, "this page is read-only: use GET or HEAD");
    else if (http_field(head, "Transfer-Encoding") || (length && strcmp(length, "0") != 0))
        web_reply_text(request, HTTP_CONTENT_TOO_LARGE, "a request must not have a body");
    else
        answer(request);
}
