#include "web_request.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "routes.h"
#include "server.h"
#include "web_access.h"

#define TEXT_PLAIN "text/plain; charset=utf-8"

/* ---- replies ---- */

void web_reply(struct web_request *request, unsigned status, const char *type)
{
    request->answered = true;
    request->status = status;
    request->type = type;
}

void web_reply_text(struct web_request *request, unsigned status, const char *text)
{
    buf_deinit(&request->body);
    buf_append(&request->body, text, strlen(text));
    buf_append(&request->body, "\n", 1);
    web_reply(request, status, TEXT_PLAIN);
}

/* What a browser may do with a reply: nothing but what the page needs, from here. */
static void add_headers(struct MHD_Response *response, const struct web_request *request)
{
    static const char *const headers[][2] = {
        {"Connection", "close"},
        {"Cache-Control", "no-store"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
         "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    };
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
        MHD_add_response_header(response, headers[i][0], headers[i][1]);
    MHD_add_response_header(response, "Content-Type", request->type);
    if (request->status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(response, "WWW-Authenticate", "Basic realm=\"bloomery\", charset=\"UTF-8\"");
    if (request->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, "Allow", "GET, HEAD");
}

static enum MHD_Result send_reply(struct web_request *request)
{
    struct web *web = request->web;
    if (buf_failed(&request->body))
        web_reply_text(request, MHD_HTTP_SERVICE_UNAVAILABLE, "there is no memory for this reply");
    else if (web->reply_bytes + request->body.size > WEB_REPLIES_BYTES)
        web_reply_text(request, MHD_HTTP_SERVICE_UNAVAILABLE, "too many replies are waiting for their clients");
    struct MHD_Response *response = MHD_create_response_from_buffer(
        buf_len(&request->body), (void *)(uintptr_t)buf_head(&request->body), MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    request->charged = request->body.size;
    web->reply_bytes += request->charged;
    add_headers(response, request);
    enum MHD_Result result = MHD_queue_response(request->connection, request->status, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- waiting for a scan ---- */

static void visit(void *ctx, struct slice name, struct entry *entry)
{
    struct web_request *request = ctx;
    request->visit(request->query, name, entry);
}

static void scanned(void *ctx, uint64_t busy_ns)
{
    struct web_request *request = ctx;
    request->finish(request, busy_ns);
    MHD_resume_connection(request->connection);
}

void web_wait(struct web_request *request, void (*visit_name)(void *query, struct slice name, struct entry *entry),
              void (*finish)(struct web_request *request, uint64_t busy_ns))
{
    request->visit = visit_name;
    request->finish = finish;
    request->scan = (struct scan){.visit = visit, .done = scanned, .ctx = request};
    MHD_suspend_connection(request->connection);
    scan_begin(&request->web->scans, &request->scan);
}

bool web_argument(struct web_request *request, const char *name, struct slice *value_out)
{
    const char *value;
    size_t len;
    if (MHD_lookup_connection_value_n(request->connection, MHD_GET_ARGUMENT_KIND, name, strlen(name), &value, &len) !=
            MHD_YES ||
        !value)
        return false;
    *value_out = (struct slice){value, len};
    return true;
}

/* ---- requests ---- */

static bool has_body(struct MHD_Connection *connection)
{
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Transfer-Encoding") ||
           (length && strcmp(length, "0") != 0);
}

static bool method_is_known(const char *method)
{
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

static void answer(struct web_request *request, const char *url)
{
    const struct route *route = route_find(url);
    request->web->counts.requests++;
    rcu_reader_online();
    enum web_access access = route && route->open ? WEB_ALLOWED : web_access(request);
    rcu_reader_offline();
    if (access != WEB_ALLOWED)
        request->web->counts.refused++;
    if (access == WEB_NO_PASSWORD)
        web_reply_text(request, MHD_HTTP_UNAUTHORIZED,
                       "name and password of a user who may run INFO are needed; any other name stands for "
                       "the user default, whose password is the setting requirepass");
    else if (access == WEB_NOT_LOCAL)
        web_reply_text(request, MHD_HTTP_FORBIDDEN,
                       "protected mode: without a password (requirepass) only this machine is served, by the name "
                       "localhost or its address");
    else if (!route)
        web_reply_text(request, MHD_HTTP_NOT_FOUND, "there is no such page");
    else
        route->answer(request, route);
}

static struct web_request *request_create(struct web *web, struct MHD_Connection *connection)
{
    struct web_conn *conn = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    struct web_request *request = conn ? calloc(1, sizeof(*request)) : NULL;
    if (!request)
        return NULL;
    request->web = web;
    request->conn = conn;
    request->connection = connection;
    buf_init(&request->body, WEB_REPLY_BYTES);
    conn->answering = true;
    return request;
}

enum MHD_Result web_on_request(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                               const char *version, const char *upload_data, size_t *upload_size, void **request_ctx)
{
    struct web_request *request = *request_ctx;
    (void)version, (void)upload_data;
    if (!request) { /* the headers are complete */
        *request_ctx = request = request_create(cls, connection);
        if (!request)
            return MHD_NO;
        if (!method_is_known(method))
            web_reply_text(request, MHD_HTTP_METHOD_NOT_ALLOWED, "this page is read-only: GET and HEAD");
        else if (has_body(connection))
            web_reply_text(request, MHD_HTTP_CONTENT_TOO_LARGE, "a request has no body here");
        return request->answered ? send_reply(request) : MHD_YES;
    }
    *upload_size = 0;
    if (!request->begun) {
        request->begun = true;
        answer(request, url);
    }
    return request->answered ? send_reply(request) : MHD_YES;
}

void web_on_completed(void *cls, struct MHD_Connection *connection, void **request_ctx,
                      enum MHD_RequestTerminationCode code)
{
    struct web_request *request = *request_ctx;
    (void)cls, (void)connection, (void)code;
    if (!request)
        return;
    request->web->reply_bytes -= request->charged;
    buf_deinit(&request->body);
    free(request);
    *request_ctx = NULL;
}
