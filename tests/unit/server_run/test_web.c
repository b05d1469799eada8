/* The pages over HTTP, step by step in the test's thread: rights for each page, replies to requests, and changes
 * between the slices of a pass over the registry. The requests come through sockets like any. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "persistence.h"
#include "rig.h"
#include "web_internal.h"

static struct server *server;
static struct web *web;
static int client;

static void begin(void)
{
    server = rig_begin(1, NULL, NULL);
    web = calloc(1, sizeof(*web));
    cr_assert_not_null(web);
    web->server = server;
    web->wake = -1;
    web->history = history_create();
    cr_assert_not_null(web->history);
    client = rig_connect(0);
    rcu_reader_begin();
    rcu_reader_offline();
}

static void close_request(size_t i)
{
    web_conn_free(web->requests[i]);
    memmove(&web->requests[i], &web->requests[i + 1], (--web->nrequests - i) * sizeof(web->requests[0]));
}

static void end(void)
{
    while (web->nrequests > 0)
        close_request(0);
    cr_assert_eq(web->reply_bytes, 0, "replies of closed connections count still");
    cr_assert_eq(web->ntables, 0);
    metrics_choice_deinit(&web->choice);
    history_destroy(web->history);
    free(web);
    rcu_reader_end();
    rig_end();
}

TestSuite(web, .init = begin, .fini = end, .timeout = 3000);

/* ---- requests ---- */

/* Takes a connection and its request; it has been answered, or waits for a pass. Returns the client's end. */
static int ask(const char *request, bool local)
{
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    struct web_request *at = web->requests[web->nrequests++] = web_conn_open(web, ends[1], local);
    cr_assert_not_null(at);
    cr_assert_eq(write(ends[0], request, strlen(request)), (ssize_t)strlen(request));
    while (at->stage == WEB_READS)
        web_conn_step(at);
    return ends[0];
}

/* Completes the passes, reads the reply to requests[at], and closes it. The caller frees it. */
static char *reply_to(int fd, size_t at)
{
    size_t have = 0, room = (size_t)4 << 20;
    char *text = malloc(room);
    cr_assert_not_null(text);
    struct web_request *request = web->requests[at];
    while (request->stage == WEB_SCANS)
        cr_assert(web_scan_step(web));
    while (request->stage == WEB_WRITES) {
        web_conn_step(request);
        for (ssize_t n; (n = read(fd, text + have, room - 1 - have)) > 0;)
            have += (size_t)n;
    }
    for (ssize_t n; (n = read(fd, text + have, room - 1 - have)) > 0;)
        have += (size_t)n;
    text[have] = '\0';
    close(fd);
    close_request(at);
    return text;
}

static char *ask_and_read(const char *request, bool local)
{
    int fd = ask(request, local);
    return reply_to(fd, web->nrequests - 1);
}

static char *get_with(const char *path, const char *fields, bool local)
{
    char request[8192];
    snprintf(request, sizeof(request), "GET %s HTTP/1.%d\r\n%s\r\n", path, strstr(fields, "Host") != NULL, fields);
    return ask_and_read(request, local);
}

static char *get(const char *path)
{
    return get_with(path, "Host: localhost\r\n", true);
}

static int status_of(const char *reply)
{
    int status = 0;
    cr_assert_eq(sscanf(reply, "HTTP/1.1 %d ", &status), 1, "%.40s", reply);
    return status;
}

static void expect_status(char *reply, int status, const char *what)
{
    cr_expect_eq(status_of(reply), status, "%s: %.60s", what, reply);
    free(reply);
}

static const char *body_of(const char *reply)
{
    const char *body = strstr(reply, "\r\n\r\n");
    cr_assert_not_null(body);
    return body + 4;
}

/* ---- rights ---- */

/* "name:password" in base64. */
#define ANN   "Authorization: Basic YW5uOnB3\r\n"     /* ann:pw */
#define WRONG "Authorization: Basic YW5uOm5v\r\n"     /* ann:no */
#define ELSE  "Authorization: Basic ZWxzZTpwdw==\r\n" /* else:pw */

Test(web, each_page_needs_the_rights_of_what_it_shows)
{
    static const struct {
        const char *path, *command; /* the one right needed beside INFO; "": none; NULL: open to all */
    } pages[] = {{"/healthz", NULL},
                 {"/readyz", NULL},
                 {"/metrics", ""},
                 {"/api/overview", ""},
                 {"/api/history", ""},
                 {"/", ""},
                 {"/page.css", ""},
                 {"/page.js", ""},
                 {"/icon.svg", ""},
                 {"/api/filter?key=66", "bf.info"},
                 {"/api/slowlog", "slowlog|get"},
                 {"/api/clients", "client|list"},
                 {"/api/acllog", "acl|log"}};
    rig_call(client, "BF.ADD f a", ":1\r\n");
    rig_call(client, "CONFIG SET requirepass secret", "+OK\r\n");
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        const char *path = pages[i].path, *command = pages[i].command;
        char rule[128];
        bool needs = command && *command;
        expect_status(get(path), command ? 401 : 200, path);
        rig_call(client, "ACL SETUSER ann reset on >pw ~*", "+OK\r\n");
        expect_status(get_with(path, ANN, true), needs ? 403 : command ? 401 : 200, path); /* not even INFO */
        rig_call(client, "ACL SETUSER ann +info", "+OK\r\n");
        expect_status(get_with(path, ANN, true), needs ? 403 : 200, path);
        if (needs) {
            snprintf(rule, sizeof(rule), "ACL SETUSER ann reset on >pw ~* +%s", command);
            rig_call(client, rule, "+OK\r\n");
        }
        expect_status(get_with(path, ANN, true), 200, path);
        expect_status(get_with(path, WRONG, true), command ? 401 : 200, path);
        rig_call(client, "ACL SETUSER ann off", "+OK\r\n");
        expect_status(get_with(path, ANN, true), command ? 401 : 200, path);
    }
}

Test(web, the_table_needs_both_of_its_rights)
{
    rig_call(client, "CONFIG SET requirepass secret", "+OK\r\n");
    rig_call(client, "ACL SETUSER ann reset on >pw ~* +info +scan", "+OK\r\n");
    expect_status(get_with("/api/filters", ANN, true), 403, "SCAN alone");
    rig_call(client, "ACL SETUSER ann reset on >pw ~* +info +bf.info", "+OK\r\n");
    expect_status(get_with("/api/filters", ANN, true), 403, "BF.INFO alone");
    rig_call(client, "ACL SETUSER ann +scan", "+OK\r\n");
    expect_status(get_with("/api/filters", ANN, true), 200, "both");
}

Test(web, a_page_that_is_not_there_is_no_secret_for_those_who_may_ask)
{
    expect_status(get("/nosuch"), 404, "without a password");
    expect_status(get("/healthz/"), 404, "a path with more");
    expect_status(get("/metricsx"), 404, "a path with more");
    rig_call(client, "CONFIG SET requirepass secret", "+OK\r\n");
    expect_status(get("/nosuch"), 401, "with one");
}

/* An unknown name stands for the user default; a wrong password is recorded like one of AUTH. */
Test(web, passwords_of_unknown_names_and_wrong_ones)
{
    rig_call(client, "CONFIG SET requirepass pw", "+OK\r\n");
    rig_call(client, "ACL SETUSER ann reset on >other +@all ~*", "+OK\r\n");
    expect_status(get_with("/metrics", ELSE, true), 200, "any name with the password of default");
    expect_status(get_with("/metrics", ANN, true), 401, "ann with the password of default");
    expect_status(get_with("/metrics", "Authorization: Basic !!!!\r\n", true), 401, "no base64");
    expect_status(get_with("/metrics", "Authorization: Bearer cHc=\r\n", true), 401, "another scheme");
    expect_status(get_with("/metrics", "Authorization: Basic cHc=\r\n", true), 401, "no colon");
    struct buf requests;
    size_t len;
    buf_init(&requests, SIZE_MAX);
    rig_request(&requests, "ACL LOG 10");
    char *log = rig_replies(client, &requests, &len);
    cr_assert(strstr(log, "HTTP") && strstr(log, "auth") && strstr(log, "ann"), "%s", log);
    free(log);
    buf_deinit(&requests);
}

Test(web, without_a_password_only_this_machine_by_its_own_names)
{
    static const struct {
        const char *host;
        bool local;
        int status;
    } cases[] = {{"Host: localhost\r\n", true, 200},      {"Host: LOCALHOST:9121\r\n", true, 200},
                 {"Host: 127.0.0.1:9121\r\n", true, 200}, {"Host: [::1]:9121\r\n", true, 200},
                 {"Host: 192.168.0.7\r\n", true, 200},    {"", true, 200},
                 {"Host: evil.example\r\n", true, 403},   {"Host: localhost.evil.example\r\n", true, 403},
                 {"Host: 127.0.0.1.evil\r\n", true, 403}, {"Host: localhost:80x\r\n", true, 403},
                 {"Host: [::1\r\n", true, 403},           {"Host: 127.1\r\n", true, 403},
                 {"Host: localhost\r\n", false, 403},     {"", false, 403}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_status(get_with("/metrics", cases[i].host, cases[i].local), cases[i].status, cases[i].host);
        expect_status(get_with("/healthz", cases[i].host, cases[i].local), 200, "for anybody");
    }
    rig_call(client, "CONFIG SET protected-mode no", "+OK\r\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_status(get_with("/metrics", cases[i].host, cases[i].local), 200, cases[i].host);
}

/* ---- replies ---- */

Test(web, a_head_has_the_length_of_the_body_that_is_left_out)
{
    static const char *const paths[] = {"/", "/healthz", "/nosuch", "/api/overview"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        char request[256];
        size_t announced;
        snprintf(request, sizeof(request), "HEAD %s HTTP/1.0\r\n\r\n", paths[i]);
        char *whole = get(paths[i]), *head = ask_and_read(request, true);
        cr_assert_eq(strlen(body_of(head)), 0, "%s", paths[i]);
        cr_assert_eq(status_of(whole), status_of(head));
        const char *length = strstr(whole, "Content-Length: ");
        cr_assert_eq(sscanf(length, "Content-Length: %zu", &announced), 1);
        cr_assert_eq(announced, strlen(body_of(whole)), "%s", paths[i]);
        cr_assert_not_null(strstr(head, "Content-Length: "));
        cr_assert_not_null(strstr(head, "X-Content-Type-Options: nosniff"));
        free(whole);
        free(head);
    }
}

Test(web, it_is_ready_when_the_filters_are_loaded)
{
    expect_status(get("/readyz"), 200, "loaded");
    atomic_store(&server->persistence->load.active, true);
    expect_status(get("/readyz"), 503, "loading");
    expect_status(get("/healthz"), 200, "alive though");
    atomic_store(&server->persistence->load.active, false);
}

/* All replies not yet taken by clients have a bound: the one beyond it is a short refusal. */
Test(web, replies_that_wait_for_their_clients_are_bounded)
{
    size_t others = WEB_REPLIES_BYTES - 100;
    web->reply_bytes += others;
    char *reply = get("/");
    web->reply_bytes -= others;
    cr_assert(strstr(reply, "too many replies"), "%.300s", reply);
    expect_status(reply, 503, "/");
    expect_status(get("/"), 200, "/");
    cr_assert_eq(web->reply_bytes, 0, "replies of closed connections count still");
}

/* ---- the table of filters ---- */

static void make_filters(unsigned n)
{
    struct buf requests;
    size_t len;
    buf_init(&requests, SIZE_MAX);
    for (unsigned i = 0; i < n; i++) {
        char line[64];
        snprintf(line, sizeof(line), "BF.RESERVE k%04u 0.01 %u", i, 100 + i);
        rig_request(&requests, line);
    }
    free(rig_replies(client, &requests, &len));
    buf_deinit(&requests);
}

/* The keys of the page, in their order, with a space after each. */
static void keys_of(const char *reply, char *keys_out, size_t size)
{
    size_t used = 0;
    cr_assert_eq(status_of(reply), 200, "%.300s", reply);
    for (const char *at = reply; (at = strstr(at, "\"name\":\"")) != NULL; at += 8) {
        size_t len = strcspn(at + 8, "\"");
        cr_assert_lt(used + len + 2, size);
        used += (size_t)snprintf(keys_out + used, size - used, "%.*s ", (int)len, at + 8);
    }
    keys_out[used] = '\0';
}

static void expect_keys(const char *path, const char *keys)
{
    char got[4096];
    char *reply = get(path);
    keys_of(reply, got, sizeof(got));
    cr_expect_str_eq(got, keys, "%s: '%s' and not '%s'; %s", path, got, keys, body_of(reply));
    free(reply);
}

Test(web, pages_of_the_table_begin_and_end_where_they_should)
{
    make_filters(2500); /* several slices of a pass */
    expect_keys("/api/filters?limit=3", "k0000 k0001 k0002 ");
    expect_keys("/api/filters?limit=2&offset=1", "k0001 k0002 ");
    expect_keys("/api/filters?limit=3&offset=2498", "k2498 k2499 ");
    expect_keys("/api/filters?limit=3&offset=2500", "");
    expect_keys("/api/filters?limit=0", "");
    expect_keys("/api/filters?limit=2&order=desc", "k2499 k2498 ");
    expect_keys("/api/filters?limit=2&sort=capacity&order=desc", "k2499 k2498 ");
    expect_keys("/api/filters?limit=2&sort=capacity", "k0000 k0001 ");
    expect_keys("/api/filters?q=k001*&limit=3", "k0010 k0011 k0012 ");
    expect_keys("/api/filters?q=249&offset=11", "k2498 k2499 ");
    expect_keys("/api/filters?q=nosuch", "");
    expect_status(get("/api/filters?limit=-1"), 400, "a number below 0");
    expect_status(get("/api/filters?offset=x"), 400, "no number");
    expect_status(get("/api/filters?sort=nosuch"), 400, "no column");
    expect_status(get("/api/filters?limit=99999999999999999999"), 400, "too large a number");
}

Test(web, the_table_has_what_its_user_may_see)
{
    char got[256];
    make_filters(4);
    rig_call(client, "BF.ADD f a", ":1\r\n");
    rig_call(client, "CONFIG SET requirepass secret", "+OK\r\n");
    rig_call(client, "ACL SETUSER ann reset on >pw +info +scan +bf.info ~k0*1 ~f", "+OK\r\n");
    char *reply = get_with("/api/filters", ANN, true);
    keys_of(reply, got, sizeof(got));
    cr_expect_str_eq(got, "f k0001 ");
    cr_expect(strstr(reply, "k0002") == NULL);
    free(reply);
    expect_status(get_with("/api/filter?key=66", ANN, true), 200, "its own");
    expect_status(get_with("/api/filter?key=6b30303032", ANN, true), 403, "another one's");
    expect_status(get_with("/api/filter?key=6b", ANN, true), 403, "none, of which he may not know");
    expect_status(get("/api/filter?key=66"), 401, "nobody");
}

/* Between the slices of passes filters are added and removed, connections break, and other passes begin. */
Test(web, passes_that_overlap_and_end_early)
{
    static const char request[] = "GET /api/filters?limit=5&offset=2000 HTTP/1.0\r\n\r\n";
    int fds[WEB_TABLES];
    char got[256];
    make_filters(3000);
    for (int i = 0; i < WEB_TABLES; i++) {
        fds[i] = ask(request, true);
        cr_assert_eq(web->requests[i]->stage, WEB_SCANS);
    }
    for (int i = 0; i < 2 * WEB_TABLES; i++)
        cr_assert(web_scan_step(web));
    cr_assert_eq(web->ntables, WEB_TABLES);
    int more = ask(request, true);
    expect_status(reply_to(more, WEB_TABLES), 503, "one table more");
    expect_status(get("/healthz"), 200, "beside the passes");
    rig_call(client, "BF.RESERVE k2000a 0.01 100", "+OK\r\n");
    rig_call(client, "DEL k0000 k2999", ":2\r\n");
    for (int i = 0; i < WEB_TABLES; i++) {
        char *reply = reply_to(fds[i], 0);
        keys_of(reply, got, sizeof(got));
        cr_expect(strcmp(got, "k2000 k2000a k2001 k2002 k2003 ") == 0 ||
                      strcmp(got, "k2000 k2001 k2002 k2003 k2004 ") == 0 || strncmp(got, "k2001 k2002 ", 12) == 0 ||
                      strncmp(got, "k2000a k2001 ", 13) == 0,
                  "%s", got);
        free(reply);
    }
    cr_assert_eq(web->ntables, 0);
    expect_keys("/api/filters?limit=2&offset=2998", "k2998 ");
}

/* ---- metrics ---- */

/* Two passes for metrics at a time: the filters of each are those of its own pass. */
Test(web, metrics_whose_passes_overlap)
{
    make_filters(2500);
    rig_call(client, "CONFIG SET metrics-filters k24*", "+OK\r\n");
    int first = ask("GET /metrics HTTP/1.0\r\n\r\n", true);
    cr_assert(web_scan_step(web));
    int second = ask("GET /metrics HTTP/1.0\r\n\r\n", true);
    char *a = reply_to(first, 0), *b = reply_to(second, 0);
    for (int i = 2400; i < 2500; i += 33) {
        char label[32];
        snprintf(label, sizeof(label), "\"k%d\"", i);
        cr_assert(strstr(a, label) && strstr(b, label), "%s", label);
    }
    cr_assert(!strstr(a, "\"k2399\"") && !strstr(b, "\"k2399\""));
    rig_call(client, "CONFIG SET metrics-filters k23*", "+OK\r\n"); /* the choice was made for another setting */
    char *other = get("/metrics");
    cr_assert(strstr(other, "\"k2399\"") && !strstr(other, "\"k2400\""));
    free(other);
    free(a);
    free(b);
}

Test(web, the_table_tells_why_filters_are_quarantined)
{
    rig_call(client, "BF.ADD good a", ":1\r\n");
    cr_assert_eq(registry_create_quarantined(server->registry, (struct slice){"lost", 4}, 77, "its file is \"gone\""),
                 0);
    expect_keys("/api/filters", "good lost ");
    expect_keys("/api/filters?quarantined=yes", "lost ");
    expect_keys("/api/filters?quarantined=yes&q=good", "");
    expect_keys("/api/filters?quarantined=", "good lost ");
    char *reply = get("/api/filters?quarantined=yes");
    cr_assert(strstr(reply, "\"reason\":\"its file is \\\"gone\\\"\""), "%s", body_of(reply));
    free(reply);
}

/* ---- the last hour ---- */

static void steps(int n, int64_t *now_ms)
{
    rcu_reader_online();
    for (; n > 0; n--)
        cr_assert_eq(history_step(web->history, server, *now_ms += HISTORY_STEP_MS), HISTORY_STEP_MS);
    rcu_reader_offline();
}

static int count_of(const char *text, const char *part)
{
    int n = 0;
    while ((text = strstr(text, part))) {
        text++;
        n++;
    }
    return n;
}

/* The points as JSON, in `out`. */
static const char *history_text(struct buf *out)
{
    buf_deinit(out);
    history_write(web->history, out);
    buf_append(out, "", 1);
    return buf_head(out);
}

Test(web, the_last_hour_has_a_point_for_each_ten_seconds)
{
    struct buf out;
    int64_t now_ms = 1000;
    buf_init(&out, SIZE_MAX);
    steps(1, &now_ms);
    cr_assert_str_eq(history_text(&out), "{\"stepMs\":10000,\"points\":[]}");
    for (int i = 0; i < 20; i++)
        rig_call(client, "BF.EXISTS nothing x", ":0\r\n");
    rig_call(client, "BF.NOSUCH", "-ERR unknown command 'BF.NOSUCH', with args beginning with: \r\n");
    cr_assert_eq(history_step(web->history, server, now_ms + 4000), 6000, "before its time");
    steps(1, &now_ms);
    const char *text = history_text(&out);
    cr_assert(strstr(text, "\"errors\":0.1,"), "one error in ten seconds: %s", text);
    cr_assert(strstr(text, "\"commands\":2."), "21 commands in ten seconds: %s", text);
    cr_assert(!strstr(text, "\"p99Us\":null"), "%s", text);
    steps(1, &now_ms);
    cr_assert(strstr(history_text(&out), "\"p99Us\":null"), "no command in this one");
    steps(HISTORY_POINTS, &now_ms);
    text = history_text(&out);
    cr_assert_eq(count_of(text, "unixMs"), HISTORY_POINTS);
    cr_assert_eq(count_of(text, "\"errors\":0,"), HISTORY_POINTS, "the first points are forgotten");
    buf_deinit(&out);
}
