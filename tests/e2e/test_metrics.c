/* /metrics as Prometheus reads it: both formats, the values, the bound on the number of series. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "http.h"
#include "metrics_parse.h"
#include "program.h"
#include "tmpdir.h"
#include "wait.h"

static struct daemon the_daemon;
static struct metrics_parsed metrics;

static void start(void)
{
    the_daemon.with_web = true;
    daemon_start(&the_daemon, NULL);
}

static void discard(void)
{
    daemon_discard(&the_daemon);
}

TestSuite(metrics, .init = start, .fini = discard, .timeout = 3000);

/* Requests /metrics and parses it; freed by the next call. */
static void scrape(void)
{
    struct http_reply reply;
    metrics_parse_free(&metrics);
    http_get(the_daemon.web_port, "/metrics", "", &reply);
    cr_assert_eq(reply.status, 200, "%d %s", reply.status, reply.body);
    cr_assert(strstr(reply.headers, "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "%s",
              reply.headers);
    metrics_parse(&metrics, reply.body);
    http_free(&reply);
}

static double get(const char *series)
{
    return metrics_get(&metrics, series);
}

#define expect_metric(series, expected) \
    cr_assert_float_eq(get(series), (expected), 1e-9, "%s is %g", series, get(series))

static const char hostile_names[][40] = {"<script>alert(1)</script>", "a\"b\\c",      "line\nend", "\xff\xfe invalid",
                                         "\xc3\xa9t\xc3\xa9",         "\xed\xa0\x80", "\x01\x7f",  "\xf0\x9f\x8c\xb8",
                                         "x~0123456789abcdef",        "{}=,",         "\xc2\x85"};
#define HOSTILE (sizeof(hostile_names) / sizeof(hostile_names[0]))

static void make_hostile(redisContext *client)
{
    char *name = malloc(60000);
    cr_assert_not_null(name);
    memset(name, 'n', 60000);
    for (size_t i = 0; i < HOSTILE; i++) {
        expect(client, ":1", "BF.ADD %s x", hostile_names[i]);
        expect(client, ":1", "BF.EXISTS %s x", hostile_names[i]);
    }
    expect(client, ":1", "BF.ADD %b x", name, (size_t)60000);
    expect(client, ":1", "BF.EXISTS %b x", name, (size_t)60000);
    expect(client, ":1", "BF.ADD %b x", name, (size_t)59999); /* it begins like the other */
    expect(client, ":1", "BF.EXISTS %b x", name, (size_t)59999);
    expect(client, ":1", "BF.ADD %b x", "with\0nul", (size_t)8);
    expect(client, ":1", "BF.EXISTS %b x", "with\0nul", (size_t)8);
    free(name);
}

/* The format is right with any names of filters, and each filter has its own series. */
CLIENT_TEST(the_daemon, metrics, the_format_is_right_whatever_names_there_are)
{
    make_hostile(client);
    scrape();
    expect_metric("bloomery_filters", HOSTILE + 3);
    expect_metric("bloomery_filters_shown", HOSTILE + 3);
    expect_metric("bloomery_filter_items{db=\"0\",filter=\"<script>alert(1)</script>\"}", 1);
    expect_metric("bloomery_filter_items{db=\"0\",filter=\"\xc3\xa9t\xc3\xa9\"}", 1);
    expect_metric("bloomery_filter_items{db=\"0\",filter=\"a\\\"b\\\\c\"}", 1);
    size_t n = 0;
    for (size_t i = 0; i < metrics.nsamples; i++)
        n += strncmp(metrics.samples[i].series, "bloomery_filter_items{", 22) == 0;
    cr_assert_eq(n, HOSTILE + 3);
}

/* Counters and gauges match the commands run before. */
CLIENT_TEST(the_daemon, metrics, numbers_are_those_of_what_was_done)
{
    expect(client, "+OK", "BF.RESERVE f 0.01 1000 NONSCALING");
    client_add_items(client, "f", 0, 500);
    for (int i = 0; i < 30; i++)
        expect(client, ":1", "BF.EXISTS f item:1");
    for (int i = 0; i < 20; i++)
        expect(client, ":0", "BF.EXISTS f other:1");
    expect(client, ":3", "BF.FALSEPOSITIVE f 3");
    client_ask(client, "BF.RESERVE f 0.01 1000");
    client_ask(client, "NO.SUCH");
    wait_until(client_info(client, "clients", "connected_clients") == 1); /* the start had used another connection */
    scrape();
    expect_metric("bloomery_filter_items{db=\"0\",filter=\"f\"}", 500);
    expect_metric("bloomery_filter_capacity_items{db=\"0\",filter=\"f\"}", 1000);
    expect_metric("bloomery_filter_layers{db=\"0\",filter=\"f\"}", 1);
    expect_metric("bloomery_filter_fixed{db=\"0\",filter=\"f\"}", 1);
    expect_metric("bloomery_filter_error_rate_requested{db=\"0\",filter=\"f\"}", 0.01);
    expect_metric("bloomery_filter_query_hits_total{db=\"0\",filter=\"f\"}", 30);
    expect_metric("bloomery_filter_query_misses_total{db=\"0\",filter=\"f\"}", 20);
    expect_metric("bloomery_filter_error_rate_observed{db=\"0\",filter=\"f\"}", 3.0 / 23);
    double rate = get("bloomery_filter_error_rate{db=\"0\",filter=\"f\"}"),
           fill = get("bloomery_filter_fill_ratio{db=\"0\",filter=\"f\"}");
    cr_assert(rate > 1e-5 && rate < 0.002, "%g", rate);
    cr_assert(fill > 0.2 && fill < 0.4, "%g", fill);
    expect_metric("bloomery_items", 500);
    expect_metric("bloomery_capacity_items", 1000);
    expect_metric("bloomery_items_added_total", 500);
    expect_metric("bloomery_query_hits_total", 30);
    expect_metric("bloomery_command_calls_total{command=\"bf.exists\"}", 50);
    expect_metric("bloomery_command_duration_seconds_count{command=\"bf.exists\"}", 50);
    expect_metric("bloomery_command_duration_seconds_bucket{command=\"bf.exists\",le=\"10\"}", 50);
    cr_assert_leq(get("bloomery_command_duration_seconds_bucket{command=\"bf.exists\",le=\"2.5e-07\"}"),
                  get("bloomery_command_duration_seconds_bucket{command=\"bf.exists\",le=\"0.00025\"}"));
    expect_metric("bloomery_command_failed_total{command=\"bf.reserve\"}", 1);
    expect_metric("bloomery_unknown_commands_total", 1);
    expect_metric("bloomery_error_replies_total{code=\"ERR\"}", 2);
    expect_metric("bloomery_clients", 1);
    expect_metric("bloomery_ready", 1);
    expect_metric("bloomery_log_enabled", 1);
    expect_metric("bloomery_log_writable", 1);
    cr_assert_gt(get("bloomery_memory_bytes{part=\"bits\"}"), 1000);
    cr_assert_gt(get("bloomery_memory_resident_bytes"), 1e6);
}

/* Failing saves are shown. */
CLIENT_TEST(the_daemon, metrics, a_failed_save_is_seen)
{
    expect(client, ":1", "BF.ADD f x");
    expect(client, "+OK", "SAVE");
    scrape();
    expect_metric("bloomery_saves_total", 1);
    expect_metric("bloomery_save_last_ok", 1);
    expect(client, ":1", "BF.ADD f y");
    daemon_block_saves(&the_daemon);
    client_ask(client, "SAVE");
    scrape();
    expect_metric("bloomery_save_last_ok", 0);
    expect_metric("bloomery_save_failures_in_row", 1);
    expect_metric("bloomery_save_pending_changes", 1);
    daemon_unblock_saves(&the_daemon);
    expect(client, "+OK", "SAVE");
}

/* The time of the next save by a rule, for the alert on missing saves: none with `save ""`, nor with fewer changes
 * than a rule needs. */
CLIENT_TEST(the_daemon, metrics, the_rule_of_the_next_save_is_told)
{
    static const struct {
        const char *rules;
        double seconds; /* with one change */
    } cases[] = {{"", 0}, {"3600 1", 3600}, {"60 2", 0}, {"7200 1 3600 1 60 2", 3600}};
    expect(client, "+OK", "CONFIG SET save %s", "3600 1");
    scrape();
    expect_metric("bloomery_save_rule_seconds", 0);
    expect(client, "+OK", "BF.RESERVE f 0.01 100");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect(client, "+OK", "CONFIG SET save %s", cases[i].rules);
        scrape();
        expect_metric("bloomery_save_rule_seconds", cases[i].seconds);
    }
}

/* Only the most queried filters, others while there are places, and those that the setting names have series; never
 * more than a thousand. */
CLIENT_TEST(the_daemon, metrics, filters_with_series_are_chosen_and_bounded)
{
    double value;
    expect(client, ":1", "BF.ADD n:0 y");
    scrape();
    expect_metric("bloomery_filter_items{db=\"0\",filter=\"n:0\"}", 1); /* never queried: there is a place left */
    for (int i = 0; i < 1500; i++)
        redisAppendCommand(client, "BF.ADD n:%d x", i);
    client_skip(client, 1500);
    expect(client, "+OK", "CONFIG SET metrics-top-filters 2");
    for (int i = 0; i < 9; i++)
        expect(client, ":1", "BF.EXISTS n:%d x", i < 3 ? 7 : i < 7 ? 8 : 9);
    scrape();
    expect_metric("bloomery_filters_shown", 2);
    expect_metric("bloomery_filter_query_hits_total{db=\"0\",filter=\"n:7\"}", 3);
    expect_metric("bloomery_filter_query_hits_total{db=\"0\",filter=\"n:8\"}", 4);
    cr_assert_not(metrics_find(&metrics, "bloomery_filter_items{db=\"0\",filter=\"n:9\"}", &value));
    expect(client, "+OK", "CONFIG SET metrics-filters %s metrics-top-filters 0", "n:12? x n:1[34]");
    scrape();
    expect_metric("bloomery_filters_shown", 12);
    expect_metric("bloomery_filter_items{db=\"0\",filter=\"n:129\"}", 1);
    expect(client, "+OK", "CONFIG SET metrics-filters *");
    scrape();
    expect_metric("bloomery_filters_shown", 1000);
    expect_metric("bloomery_filters_omitted", 500);
    expect_metric("bloomery_filters", 1500);
    const char *refused = client_ask(client, "CONFIG SET metrics-filters %s", "a b c d e f g h i j k l m n o p q");
    cr_assert(strstr(refused, "at most 16 patterns"), "%s", refused);
}

/* In large filters the share of set bits is estimated from a sample, and still right. */
CLIENT_TEST(the_daemon, metrics, rates_of_large_filters_are_from_the_bits)
{
    expect(client, "+OK", "CONFIG SET metrics-filters f");
    expect(client, "+OK", "BF.RESERVE f 0.001 400000");
    client_for_items(client, "BF.MADD", "f", "i", 300000);
    const char *info = client_ask(client, "BF.INFO f FULL"), *at = strstr(info, "Fill ratio");
    cr_assert_not_null(at, "%s", info);
    double exact = strtod(at + strcspn(at, "0123456789"), NULL);
    scrape();
    double sampled = get("bloomery_filter_fill_ratio{db=\"0\",filter=\"f\"}");
    cr_assert(exact > 0.2 && sampled > exact - 0.01 && sampled < exact + 0.01, "%g, exactly %g", sampled, exact);
}

/* The values of the process equal those of its own files. */
DAEMON_TEST(the_daemon, metrics, the_process)
{
    redisContext *clients[10];
    scrape();
    double before = get("process_open_fds"), cpu = get("process_cpu_seconds_total");
    for (int i = 0; i < 10; i++)
        expect(clients[i] = client_open(the_daemon.port), "+PONG", "PING");
    scrape();
    cr_expect_float_eq(get("process_open_fds"), before + 10, 1); /* the first page's connection may still close */
    cr_expect_leq(get("process_open_fds"), get("process_max_fds"));
    cr_expect_geq(get("process_cpu_seconds_total"), cpu);
    cr_expect_gt(get("process_resident_memory_bytes"), 1e6);
    cr_expect_gt(get("process_virtual_memory_bytes"), get("process_resident_memory_bytes"));
    cr_expect_eq(get("process_start_time_seconds"), get("bloomery_start_time_seconds"));
    for (int i = 0; i < 10; i++)
        redisFree(clients[i]);
}

/* docs/METRICS.md has each family with its type and help, and no others. */
DAEMON_TEST(the_daemon, metrics, documentation_has_every_family)
{
    static char row[1024];
    size_t rows = 0;
    const char *docs = file_text(BLOOMERY_DOCS_DIR "/METRICS.md");
    scrape();
    for (size_t i = 0; i < metrics.nfamilies; i++) {
        const struct metrics_family *family = &metrics.families[i];
        snprintf(row, sizeof(row), "| `%s` | %s |", family->name, family->type);
        const char *found = strstr(docs, row);
        cr_assert_not_null(found, "docs/METRICS.md has no row %s ... %s", row, family->help);
        const char *help = strstr(found, family->help);
        cr_assert(help && help < strchr(found, '\n'), "docs/METRICS.md: %s: %s", family->name, family->help);
    }
    for (const char *at = docs; (at = strstr(at, "\n| `")) != NULL; at++)
        rows += strncmp(at + 4, "bloomery_", 9) == 0 || strncmp(at + 4, "process_", 8) == 0;
    cr_assert_eq(rows, metrics.nfamilies, "docs/METRICS.md has rows of families that do not exist");
}

/* Prometheus's own checker finds no error. */
DAEMON_TEST(the_daemon, metrics, promtool_finds_nothing)
{
    static char output[65536];
    char path[400];
    struct http_reply reply;
    if (program_run(output, sizeof(output), "promtool --version") != 0)
        cr_skip_test("there is no promtool (Debian: prometheus)");
    redisContext *client = client_open(the_daemon.port);
    make_hostile(client);
    http_get(the_daemon.web_port, "/metrics", "", &reply);
    snprintf(path, sizeof(path), "%s/metrics", the_daemon.dir);
    file_write(path, reply.body, reply.len);
    int status = program_run(output, sizeof(output), "promtool check metrics < %s", path);
    cr_assert(status == 0 && output[0] == '\0', "%d: %s", status, output);
    http_free(&reply);
}

/* ---- under load ---- */

static _Atomic bool load_ends;

static void *keep_busy(void *arg)
{
    redisContext *client = client_open(the_daemon.port);
    long n = 0;
    while (!atomic_load(&load_ends)) {
        for (int i = 0; i < 50; i++, n++) {
            redisAppendCommand(client, "BF.ADD %s:%ld item:%ld", (const char *)arg, n % 97, n);
            redisAppendCommand(client, "BF.EXISTS %s:%ld item:%ld", (const char *)arg, n % 89, n);
        }
        client_skip(client, 100);
        if (n % 1000 == 0) {
            client_ask(client, "DEL %s:%ld", (const char *)arg, n % 97);
            client_ask(client, "CONFIG SET metrics-filters %s:1*", (const char *)arg);
            client_ask(client, "SAVE");
        }
    }
    redisFree(client);
    return NULL;
}

static void ask_api(const char *path)
{
    struct http_reply reply;
    http_get(the_daemon.web_port, path, "", &reply);
    bool whole = reply.body[0] == '{' ? reply.body[reply.len - 1] == '}' : reply.body[reply.len - 1] == '\n';
    cr_assert(reply.status == 200 && whole, "%s: %d %.200s", path, reply.status, reply.body);
    http_free(&reply);
}

/* While clients write, filters come and go, and saves run, every scrape is right and counters never fall. */
CLIENT_TEST(the_daemon, metrics, scrapes_under_load_are_right)
{
    pthread_t threads[2];
    double commands = 0, added = 0;
    expect(client, "+OK", "CONFIG SET slowlog-log-slower-than 0");
    redisFree(client);
    cr_assert_eq(pthread_create(&threads[0], NULL, keep_busy, (char[]){"a"}), 0);
    cr_assert_eq(pthread_create(&threads[1], NULL, keep_busy, (char[]){"b"}), 0);
    for (int i = 0; i < (DAEMON_SANITIZED ? 40 : 150); i++) {
        scrape();
        double now = get("bloomery_commands_total"), items = get("bloomery_items_added_total");
        cr_assert(now >= commands && items >= added, "%g after %g, %g after %g", now, commands, items, added);
        commands = now;
        added = items;
        ask_api("/api/overview");
        ask_api("/api/filters?sort=fill&order=desc&q=a:");
        ask_api("/api/clients");
        ask_api("/api/slowlog");
    }
    atomic_store(&load_ends, true);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    cr_assert(commands > 100 && added > 100, "%g commands", commands);
}
