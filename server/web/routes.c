#include "routes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "accept.h"
#include "api.h"
#include "filter_table.h"
#include "metrics.h"
#include "readiness.h"
#include "server.h"

#define JSON "application/json"

static void answer_health(struct web_request *request, const struct route *route)
{
    (void)route;
    web_reply_text(request, MHD_HTTP_OK, "alive");
}

static void answer_readiness(struct web_request *request, const struct route *route)
{
    struct readiness readiness;
    (void)route;
    rcu_reader_online();
    readiness_of(request->web->server, &readiness);
    rcu_reader_offline();
    web_reply_text(request, readiness.ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, readiness.reason);
}

/* ---- metrics ---- */

static void write_metrics(struct web_request *request)
{
    const char *accept = MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, "Accept");
    bool openmetrics = accept && accept_prefers(accept, "application/openmetrics-text", "text/plain");
    metrics_write(request->web->server, &request->web->choice, &request->web->counts, openmetrics, &request->body);
    web_reply(request, MHD_HTTP_OK,
              openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                          : "text/plain; version=0.0.4; charset=utf-8");
}

/* Of several passes at a time each has a choice of its own; the last one to end stays. */
static void metrics_counted(struct web_request *request, uint64_t busy_ns)
{
    struct metrics_choice *choice = request->query;
    metrics_choice_end(choice, busy_ns);
    metrics_choice_deinit(&request->web->choice);
    request->web->choice = *choice;
    free(choice);
    request->query = NULL;
    write_metrics(request);
}

static void answer_metrics(struct web_request *request, const struct route *route)
{
    struct metrics_choice *choice;
    (void)route;
    if (metrics_choice_is_fresh(&request->web->choice, request->web->server)) {
        write_metrics(request);
        return;
    }
    choice = calloc(1, sizeof(*choice));
    if (!choice || metrics_choice_begin(choice, request->web->server) != 0) {
        free(choice);
        web_reply_text(request, MHD_HTTP_SERVICE_UNAVAILABLE, "there is no memory for this reply");
        return;
    }
    request->query = choice;
    web_wait(request, metrics_choice_visit, metrics_counted);
}

/* ---- the page and its data ---- */

static void answer_file(struct web_request *request, const struct route *route)
{
    buf_append(&request->body, route->file->data, route->file->len);
    web_reply(request, MHD_HTTP_OK, route->file->type);
}

static void answer_api(struct web_request *request, void (*write)(struct server *server, struct buf *out))
{
    rcu_reader_online();
    write(request->web->server, &request->body);
    rcu_reader_offline();
    web_reply(request, MHD_HTTP_OK, JSON);
}

static void answer_overview(struct web_request *request, const struct route *route)
{
    (void)route;
    answer_api(request, api_overview);
}

static void answer_slowlog(struct web_request *request, const struct route *route)
{
    (void)route;
    answer_api(request, api_slowlog);
}

static void answer_clients(struct web_request *request, const struct route *route)
{
    (void)route;
    answer_api(request, api_clients);
}

static void answer_filter(struct web_request *request, const struct route *route)
{
    struct slice key = {"", 0};
    (void)route;
    web_argument(request, "key", &key);
    rcu_reader_online();
    bool found = api_filter(request->web->server, key, &request->body);
    rcu_reader_offline();
    if (found)
        web_reply(request, MHD_HTTP_OK, JSON);
    else
        web_reply_text(request, MHD_HTTP_NOT_FOUND, "there is no such filter");
}

/* A number that is not there stays as it is. False: it is none. */
static bool read_number(struct web_request *request, const char *name, uint64_t *value)
{
    struct slice text;
    if (!web_argument(request, name, &text))
        return true;
    *value = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9' || i == 9)
            return false;
        *value = *value * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    return text.len > 0;
}

static void table_done(struct web_request *request, uint64_t busy_ns)
{
    filter_table_write(request->query, busy_ns, &request->body);
    filter_table_destroy(request->query);
    request->query = NULL;
    request->web->ntables--;
    web_reply(request, MHD_HTTP_OK, JSON);
}

static void answer_filters(struct web_request *request, const struct route *route)
{
    struct filter_query query = {.sort = {"name", 4}, .limit = 50};
    struct filter_table *table;
    struct slice order;
    (void)route;
    web_argument(request, "q", &query.search);
    web_argument(request, "sort", &query.sort);
    query.descending = web_argument(request, "order", &order) && order.len == 4 && memcmp(order.ptr, "desc", 4) == 0;
    if (!read_number(request, "offset", &query.offset) || !read_number(request, "limit", &query.limit)) {
        web_reply_text(request, MHD_HTTP_BAD_REQUEST, "offset and limit are numbers");
        return;
    }
    if (request->web->ntables == WEB_TABLES) {
        web_reply_text(request, MHD_HTTP_SERVICE_UNAVAILABLE, "too many tables are being made");
        return;
    }
    int status = filter_table_create(&table, request->web->server->registry, &query);
    if (status) {
        web_reply_text(request, status == -ENOMEM ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_BAD_REQUEST,
                       status == -ENOMEM ? "there is no memory for this reply" : "there is no such table");
        return;
    }
    request->web->ntables++;
    request->query = table;
    web_wait(request, filter_table_visit, table_done);
}

/* ---- the table ---- */

static const struct route routes[] = {
    {"/healthz", true, answer_health, NULL},        {"/readyz", true, answer_readiness, NULL},
    {"/metrics", false, answer_metrics, NULL},      {"/api/overview", false, answer_overview, NULL},
    {"/api/filters", false, answer_filters, NULL},  {"/api/filter", false, answer_filter, NULL},
    {"/api/slowlog", false, answer_slowlog, NULL},  {"/api/clients", false, answer_clients, NULL},
    {"/", false, answer_file, &page_index},         {"/page.css", false, answer_file, &page_style},
    {"/page.js", false, answer_file, &page_script}, {"/icon.svg", false, answer_file, &page_icon},
};

const struct route *route_find(const char *path)
{
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
        if (strcmp(routes[i].path, path) == 0)
            return &routes[i];
    return NULL;
}
