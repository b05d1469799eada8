/* The way of a request: its route, the rights of its user, and the head of the reply. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "rcu.h"
#include "registry.h"
#include "routes.h"
#include "server.h"
#include "sstables.h"
#include "web_access.h"

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
            filter_copy_limit(request->copy, 0, 0);
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

/* The request whose turn it is; NULL: none waits. */
static struct web_request *next_scan(struct web *web)
{
    for (size_t i = 0; i < web->nrequests; i++) {
        struct web_request *request = web->requests[++web->scan_turn % web->nrequests];
        if (request->stage == WEB_SCANS)
            return request;
    }
    return NULL;
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
    struct web_request *request = next_scan(web);
    if (!request)
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
