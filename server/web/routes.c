#include "routes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "facts.h"
#include "filter_page.h"
#include "filter_table.h"
#include "history.h"
#include "metrics.h"
#include "server.h"

#define JSON "application/json"

static void answer_health(struct web_request *request)
{
    web_reply_text(request, HTTP_OK, "alive");
}

static void answer_readiness(struct web_request *request)
{
    struct readiness readiness;
    rcu_reader_online();
    readiness_of(request->web->server, &readiness);
    rcu_reader_offline();
    web_reply_text(request, readiness.ready ? HTTP_OK : HTTP_UNAVAILABLE, readiness.reason);
}

/* ---- metrics ---- */

static void write_metrics(struct web_request *request)
{
    metrics_write(request->web->server, request->user, &request->web->choice, &request->web->counts, &request->body);
    web_reply(request, HTTP_OK, "text/plain; version=0.0.4; charset=utf-8");
}

/* Of several passes at a time each has a choice of its own; the last one to end stays. */
static void metrics_counted(struct web_request *request, uint64_t busy_ns)
{
    struct metrics_choice *choice = request->pass.query;
    metrics_choice_end(choice, busy_ns);
    metrics_choice_deinit(&request->web->choice);
    request->web->choice = *choice;
    free(choice);
    request->pass.query = NULL;
    write_metrics(request);
}

static void answer_metrics(struct web_request *request)
{
    struct metrics_choice *choice;
    if (metrics_choice_is_fresh(&request->web->choice, request->web->server)) {
        write_metrics(request);
        return;
    }
    choice = calloc(1, sizeof(*choice));
    if (!choice || metrics_choice_begin(choice, request->web->server) != 0) {
        free(choice);
        web_reply_text(request, HTTP_UNAVAILABLE, "out of memory for this reply");
        return;
    }
    request->pass.query = choice;
    web_scan(request, metrics_choice_visit, metrics_counted);
}

/* ---- the page and its data ---- */

static void answer_file(struct web_request *request)
{
    buf_append(&request->body, request->route->file->data, request->route->file->len);
    web_reply(request, HTTP_OK, request->route->file->type);
}

static void answer_as(struct web_request *request, const char *type)
{
    rcu_reader_online();
    request->route->write(request->web, &request->body);
    rcu_reader_offline();
    web_reply(request, HTTP_OK, type);
}

static void answer_api(struct web_request *request)
{
    answer_as(request, JSON);
}

/* The bytes of a command's reply. */
static void answer_command(struct web_request *request)
{
    answer_as(request, "application/octet-stream");
}

static void answer_history(struct web_request *request)
{
    history_write(request->web->history, &request->body);
    web_reply(request, HTTP_OK, JSON);
}

static void answer_filter(struct web_request *request)
{
    struct slice key = {"", 0};
    http_argument(&request->head, "key", &key);
    rcu_reader_online();
    enum api_result result = api_filter(request->web->server, request->user, key, &request->body);
    rcu_reader_offline();
    if (result == API_DONE)
        web_reply(request, HTTP_OK, JSON);
    else if (result == API_DENIED)
        web_reply_text(request, HTTP_FORBIDDEN, "this user may run neither BF.INFO nor CF.INFO on this filter");
    else
        web_reply_text(request, HTTP_NOT_FOUND, "no such filter");
}

/* A number that is missing stays as it is. False: it is none. */
static bool read_number(struct web_request *request, const char *name, uint64_t *value)
{
    struct slice text;
    int64_t number = (int64_t)*value;
    if (http_argument(&request->head, name, &text) && (!slice_to_int64(text, &number) || number < 0))
        return false;
    *value = (uint64_t)number;
    return true;
}

static void table_done(struct web_request *request, uint64_t busy_ns)
{
    filter_table_write(request->pass.query, busy_ns, &request->body);
    filter_table_destroy(request->pass.query);
    request->pass.query = NULL;
    request->web->ntables--;
    web_reply(request, HTTP_OK, JSON);
}

static void answer_filters(struct web_request *request)
{
    struct filter_query query = {.sort = {"name", 4}, .limit = 50};
    struct filter_table *table;
    struct slice order, only;
    http_argument(&request->head, "q", &query.search);
    http_argument(&request->head, "sort", &query.sort);
    query.descending =
        http_argument(&request->head, "order", &order) && order.len == 4 && memcmp(order.ptr, "desc", 4) == 0;
    query.quarantined = http_argument(&request->head, "quarantined", &only) && slice_is(only, "yes");
    if (!read_number(request, "offset", &query.offset) || !read_number(request, "limit", &query.limit)) {
        web_reply_text(request, HTTP_BAD_REQUEST, "offset and limit must be numbers");
        return;
    }
    if (request->web->ntables == WEB_TABLES) {
        web_reply_text(request, HTTP_UNAVAILABLE, "too many concurrent requests for tables");
        return;
    }
    int status = filter_table_create(&table, request->web->server, request->user, &query);
    if (status) {
        web_reply_text(request, status == -ENOMEM ? HTTP_UNAVAILABLE : HTTP_BAD_REQUEST,
                       status == -ENOMEM ? "out of memory for this reply" : "no such table");
        return;
    }
    request->web->ntables++;
    request->pass.query = table;
    web_scan(request, filter_table_visit, table_done);
}

/* ---- the table ---- */

/* A path shows the data of commands, and needs the same rights. */
static const struct route routes[] = {
    {"/healthz", {NULL}, answer_health},
    {"/readyz", {NULL}, answer_readiness},
    {"/metrics", {"info"}, answer_metrics},
    {FILTERS, {"bf.scandump"}, filter_page_copy},
    {"/api/overview", {"info"}, answer_api, .write = api_overview},
    {"/api/history", {"info"}, answer_history},
    {"/api/filters", {"scan", "bf.info"}, answer_filters},
    {"/api/filter", {"bf.info"}, answer_filter},
    {"/api/slowlog", {"slowlog|get"}, answer_command, .write = api_slowlog},
    {"/api/clients", {"client|list"}, answer_command, .write = api_clients},
    {"/api/acllog", {"acl|log"}, answer_command, .write = api_acl_log},
    {"/", {"info"}, answer_file, .file = &page_index},
    {"/page.css", {"info"}, answer_file, .file = &page_style},
    {"/page.js", {"info"}, answer_file, .file = &page_script},
    {"/icon.svg", {"info"}, answer_file, .file = &page_icon},
};

const struct route *route_find(const struct http_head *head)
{
    const char *path = filter_page_path(head);
    path = path ? path : head->path;
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
        if (strcmp(routes[i].path, path) == 0)
            return &routes[i];
    return NULL;
}
