/* INFO as exporters read it: every line, every section; and its field names compared with Redis's. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "tmpdir.h"
#include "wait.h"
#include "wire.h"

DAEMON_SUITE_IDLE(the_daemon, info);

#define MAX_LINES 1024

/* An INFO, cut into lines. */
struct info {
    char text[128 * 1024];
    char *section[MAX_LINES];
    char *name[MAX_LINES];
    char *value[MAX_LINES];
    size_t n;
    char *sections[64];
    size_t nsections;
};

/* Splits a text as exporters do: "# Section", "name:value", empty lines between sections; anything else fails. */
static void info_parse(struct info *info, const char *text, size_t len)
{
    char *line = info->text, *section = NULL;

    cr_assert_lt(len, sizeof(info->text));
    memcpy(info->text, text, len);
    info->text[len] = '\0';
    info->n = info->nsections = 0;
    while (*line != '\0') {
        char *end = strstr(line, "\r\n"), *colon;
        cr_assert_not_null(end, "a line without an end: %s", line);
        *end = '\0';
        if (strncmp(line, "# ", 2) == 0) {
            section = info->sections[info->nsections++] = line + 2;
        } else if (*line != '\0') {
            colon = strchr(line, ':');
            cr_assert_not_null(colon, "not name:value: %s", line);
            cr_assert_not_null(section, "outside of all sections: %s", line);
            *colon = '\0';
            cr_assert_lt(info->n, MAX_LINES);
            info->section[info->n] = section;
            info->name[info->n] = line;
            info->value[info->n++] = colon + 1;
        }
        line = end + 2;
    }
}

static void info_get(struct info *info, redisContext *client, const char *command)
{
    redisReply *reply = redisCommand(client, command);

    cr_assert_not_null(reply);
    cr_assert_eq(reply->type, REDIS_REPLY_STRING);
    info_parse(info, reply->str, reply->len);
    freeReplyObject(reply);
}

static const char *info_value(const struct info *info, const char *name)
{
    for (size_t i = 0; i < info->n; i++) {
        if (strcmp(info->name[i], name) == 0)
            return info->value[i];
    }
    return NULL;
}

static bool is_number(const char *text)
{
    char *end;

    strtod(text, &end);
    return end != text && (*end == '\0' || strcmp(end, "%") == 0);
}

/* Fields with text values: all others must be numbers. */
static bool is_text_field(const char *name)
{
    static const char *const texts[] = {
        "redis_version",
        "redis_git_sha1",
        "redis_build_id",
        "redis_mode",
        "bloomery_version",
        "os",
        "monotonic_clock",
        "multiplexing_api",
        "atomicvar_api",
        "gcc_version",
        "process_supervised",
        "run_id",
        "bf_used_keys",
        "bf_missing_keys",
        "executable",
        "config_file",
        "listener0",
        "listener1",
        "worker_connections",
        "maxmemory_policy",
        "mem_allocator",
        "rdb_last_bgsave_status",
        "aof_last_bgrewrite_status",
        "aof_last_write_status",
        "role",
        "master_failover_state",
        "master_replid",
        "master_replid2",
        "module",
        "db0",
    };
    size_t len = strlen(name);

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (strcmp(name, texts[i]) == 0)
            return true;
    }
    return (len > 6 && strcmp(name + len - 6, "_human") == 0) || strncmp(name, "cmdstat_", 8) == 0 ||
           strncmp(name, "errorstat_", 10) == 0 || strncmp(name, "latency_percentiles_usec_", 25) == 0;
}

/* "a=1,b=2.5": names as given, numbers. */
static void expect_pairs(const char *name, const char *value, const char *const *names, size_t n)
{
    char copy[512], *at = copy;

    snprintf(copy, sizeof(copy), "%s", value);
    for (size_t i = 0; i < n; i++) {
        char *comma = strchr(at, ','), *equals;
        if (comma != NULL)
            *comma = '\0';
        equals = strchr(at, '=');
        cr_assert_not_null(equals, "%s:%s", name, value);
        *equals = '\0';
        cr_assert_str_eq(at, names[i], "%s:%s", name, value);
        cr_assert(is_number(equals + 1), "%s:%s", name, value);
        cr_assert((comma != NULL) == (i + 1 < n), "%s:%s", name, value);
        at = comma + 1;
    }
}

/* Use of every feature, so that no section is empty. */
static void work(redisContext *client)
{
    expect(client, "+OK", "BF.RESERVE small 0.01 10 NONSCALING");
    expect(client, "+OK", "BF.RESERVE grows 0.01 10");
    for (int i = 0; i < 30; i++)
        client_number(client, "BF.ADD grows item%d", i);
    for (int i = 0; i < 12; i++)
        client_ask(client, "BF.ADD small item%d", i);
    expect(client, ":1", "BF.EXISTS grows item1");
    expect(client, ":0", "BF.EXISTS nosuch item1");
    client_ask(client, "NOSUCH");
    client_ask(client, "BF.ADD grows");
}

/* Each line is name:value, each value of a numeric field a number, no name appears twice, sections come in Redis's
 * order. */
DAEMON_TEST(the_daemon, info, an_exporter_can_read_it)
{
    static const char *const sections[] = {
        "Server",  "Clients",      "Memory",     "Persistence",  "Stats",   "Replication", "CPU",
        "Modules", "Commandstats", "Errorstats", "Latencystats", "Cluster", "Keyspace",    "bf"};
    static const char *const command[] = {"calls", "usec", "usec_per_call", "rejected_calls", "failed_calls"};
    static const char *const error[] = {"count"}, *const db[] = {"keys", "expires", "avg_ttl", "subexpiry"};
    static const char *const latency[] = {"p50", "p99", "p99.9"};
    static struct info info;
    redisContext *client;

    client = client_start(&the_daemon, NULL);
    work(client);
    info_get(&info, client, "INFO everything");
    cr_assert_eq(info.nsections, sizeof(sections) / sizeof(sections[0]));
    for (size_t i = 0; i < info.nsections; i++)
        cr_expect_str_eq(info.sections[i], sections[i]);
    for (size_t i = 0; i < info.n; i++) {
        const char *name = info.name[i], *value = info.value[i];
        if (strncmp(name, "cmdstat_", 8) == 0)
            expect_pairs(name, value, command, 5);
        else if (strncmp(name, "errorstat_", 10) == 0)
            expect_pairs(name, value, error, 1);
        else if (strncmp(name, "latency_percentiles_usec_", 25) == 0)
            expect_pairs(name, value, latency, 3);
        else if (strcmp(name, "db0") == 0)
            expect_pairs(name, value, db, 4);
        else if (!is_text_field(name))
            cr_expect(is_number(value), "%s:%s is no number", name, value);
        for (const char *c = name; *c != '\0'; c++)
            cr_expect(isalnum((unsigned char)*c) || strchr("_.|-", *c) != NULL, "%s", name);
        for (size_t j = 0; j < i; j++)
            cr_expect_str_neq(name, info.name[j]);
    }
}

static long long number(const struct info *info, const char *name)
{
    const char *value = info_value(info, name);

    cr_assert_not_null(value, "%s is missing", name);
    return strtoll(value, NULL, 10);
}

/* The sum of the overheads that INFO lists. */
static long long overhead(const struct info *info)
{
    static const char *const parts[] = {"mem_overhead_index", "mem_overhead_expires", "mem_overhead_pubsub",
                                        "mem_overhead_users", "mem_clients_normal",   "mem_aof_buffer"};
    long long sum = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        sum += number(info, parts[i]);
    return sum;
}

/* The values match the commands run before. */
DAEMON_TEST(the_daemon, info, values_are_true)
{
    static struct info info;
    redisContext *client;

    client = client_start(&the_daemon, NULL);
    work(client);
    wait_until(client_info(client, "clients", "connected_clients") == 1); /* the start had used another connection */
    info_get(&info, client, "INFO everything");
    cr_expect_eq(number(&info, "bf_filters"), 2);
    cr_expect_eq(number(&info, "bf_layers"), 3, "the growing one has two");
    cr_expect_eq(number(&info, "bf_grown"), 1);
    cr_expect_eq(number(&info, "bf_capacity"), 10 + 10 + 20);
    cr_expect_eq(number(&info, "bf_full_filters"), 1);
    cr_expect_eq(number(&info, "bf_items"), number(&info, "bf_items_added"));
    cr_expect_eq(number(&info, "bf_items_added") + number(&info, "bf_items_present") +
                     number(&info, "bf_adds_refused_full"),
                 42);
    cr_expect_geq(number(&info, "bf_adds_refused_full"), 1);
    cr_expect_eq(number(&info, "bf_query_hits"), 1);
    cr_expect_eq(number(&info, "bf_query_misses"), 1);
    cr_expect_eq(number(&info, "keyspace_hits"), 1);
    cr_expect_eq(number(&info, "keyspace_misses"), 1);
    cr_expect_eq(number(&info, "bf_bits"), 8 * number(&info, "bf_bytes"));
    cr_expect_geq(number(&info, "used_memory_dataset"), number(&info, "bf_bytes"));
    cr_expect_eq(number(&info, "used_memory"), number(&info, "used_memory_dataset") + overhead(&info));
    cr_expect_eq(number(&info, "used_memory_overhead"), overhead(&info));
    cr_expect_gt(number(&info, "mem_clients_normal"), 500);
    cr_expect_leq(number(&info, "used_memory_startup"), number(&info, "used_memory"));
    cr_expect_leq(number(&info, "used_memory_startup"), number(&info, "used_memory_peak"));
    cr_expect_geq(number(&info, "used_memory_peak"), number(&info, "used_memory"));
    cr_expect_gt(strtod(info_value(&info, "bf_predicted_error_rate"), NULL), 0.0005);
    cr_expect_lt(strtod(info_value(&info, "bf_predicted_error_rate_max"), NULL), 0.011);
    cr_expect_eq(number(&info, "tcp_port"), the_daemon.port);
    cr_expect_eq(number(&info, "process_id"), the_daemon.pid);
    cr_expect_eq(number(&info, "connected_clients"), 1);
    cr_expect_eq(number(&info, "unknown_commands"), 1);
    cr_expect_geq(number(&info, "total_reads_processed"), 44);
}

/* Sections by name, several at a time, in any case; an unknown section is empty. */
DAEMON_TEST(the_daemon, info, sections_can_be_chosen)
{
    static struct info info;
    redisContext *client;

    client = client_start(&the_daemon, NULL);
    info_get(&info, client, "INFO");
    cr_expect_eq(info.nsections, 12);
    cr_expect_null(info_value(&info, "cmdstat_info"));
    info_get(&info, client, "INFO default");
    cr_expect_eq(info.nsections, 12);
    info_get(&info, client, "INFO all");
    cr_expect_eq(info.nsections, 13, "all but the modules");
    info_get(&info, client, "INFO everything");
    cr_expect_eq(info.nsections, 14);
    info_get(&info, client, "INFO cpu SERVER nosuch cpu");
    cr_expect_eq(info.nsections, 2);
    cr_expect_str_eq(info.sections[0], "Server");
    info_get(&info, client, "INFO commandstats default");
    cr_expect_eq(info.nsections, 13);
    expect(client, "\"\"", "INFO nosuch");
    expect(client, "\"# Keyspace\\x0d\\x0a\"", "INFO keyspace");
}

/* ---- under load ---- */

#define LOADERS  4
#define PAIRS    4000 /* of an add and a query, by each loader */
#define PIPELINE 100

static _Atomic unsigned loaders_done, loaders_failed;

static void *load(void *arg)
{
    static const char pair[] = "BF.ADD f x\r\nBF.EXISTS f x\r\n";
    struct lines lines = {NULL, 0, 0};
    struct wire wire;

    (void)arg;
    wire_open(&wire, the_daemon.port);
    for (int i = 0; i < PAIRS; i += PIPELINE) {
        bool good = true;
        for (int j = 0; j < PIPELINE; j++)
            good &= wire_send_text(&wire, pair);
        for (int j = 0; j < 2 * PIPELINE; j++)
            good &= wire_reply(&wire, WIRE_PATIENCE_MS, &lines) == WIRE_OK;
        if (!good)
            loaders_failed++;
        lines_truncate(&lines, 0);
    }
    lines_deinit(&lines);
    wire_close(&wire);
    loaders_done++;
    return NULL;
}

/* Counts and histograms of all threads equal the commands sent, with any queries and resets meanwhile; no reset
 * makes a number negative. */
DAEMON_TEST(the_daemon, info, counts_are_exact_under_load)
{
    static const char *const args[] = {"--threads", "3", NULL};
    static struct info info;
    pthread_t threads[LOADERS];
    redisContext *client, *other;
    char text[64];

    client = client_start(&the_daemon, args);
    other = client_open(the_daemon.port);
    for (int round = 0; round < 2; round++) {
        expect(client, "+OK", "CONFIG RESETSTAT");
        loaders_done = 0;
        for (int i = 0; i < LOADERS; i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, load, NULL), 0);
        while (loaders_done < LOADERS) {
            info_get(&info, client, "INFO everything");
            for (size_t i = 0; i < info.n; i++)
                cr_assert_leq(strlen(info.value[i]), 200, "%s:%s", info.name[i], info.value[i]);
            cr_assert_leq(number(&info, "bf_query_hits"), LOADERS * PAIRS);
            client_ask(client, "LATENCY HISTOGRAM");
            client_ask(client, "SLOWLOG GET -1");
            if (round == 0) { /* while another thread reads the numbers that it changes */
                int sent = 0;
                redisAppendCommand(other, "INFO bf");
                redisBufferWrite(other, &sent);
                expect(client, "+OK", "CONFIG RESETSTAT");
                redisReply *reply = NULL;
                cr_assert_eq(redisGetReply(other, (void **)&reply), REDIS_OK);
                freeReplyObject(reply);
            }
        }
        for (int i = 0; i < LOADERS; i++)
            pthread_join(threads[i], NULL);
    }
    cr_assert_eq(loaders_failed, 0);
    info_get(&info, client, "INFO everything");
    snprintf(text, sizeof(text), "calls=%d,", LOADERS * PAIRS);
    cr_expect_eq(strncmp(info_value(&info, "cmdstat_bf.add"), text, strlen(text)), 0);
    cr_expect_eq(strncmp(info_value(&info, "cmdstat_bf.exists"), text, strlen(text)), 0);
    cr_expect_eq(number(&info, "bf_query_hits"), LOADERS * PAIRS);
    cr_expect_eq(number(&info, "keyspace_hits"), LOADERS * PAIRS);
    snprintf(text, sizeof(text), "[\"bf.exists\",[\"calls\",:%d,", LOADERS * PAIRS);
    cr_expect_eq(strncmp(client_ask(client, "LATENCY HISTOGRAM bf.exists"), text, strlen(text)), 0);
}

/* ---- against Redis ---- */

/* The fields that docs/INFO.md lists as left out: the first column of its last table, in backticks. */
static bool left_out(const char *document, const char *name)
{
    char row[192];

    snprintf(row, sizeof(row), "\n| `%s` |", name);
    return strstr(document, row) != NULL;
}

/* Every field of redis-server 8.0 is in the same section, or listed in docs/INFO.md with the reason why it is
 * missing; and the listed fields are missing. */
DAEMON_TEST(the_daemon, info, fields_are_redis_ones)
{
    static struct info info;
    char line[128], section[64] = "";
    const char *document = strstr(file_text(BLOOMERY_DOCS_DIR "/INFO.md"), "## Fields of Redis 8.0 that are left out");
    redisContext *client;
    size_t missing = 0;

    cr_assert_not_null(document);
    client = client_start(&the_daemon, NULL);
    work(client);
    info_get(&info, client, "INFO everything");
    FILE *list = fopen(BLOOMERY_GOLDEN_DIR "/info/redis-8.0.fields", "r");
    cr_assert_not_null(list);
    size_t fields = 0;
    while (fgets(line, sizeof(line), list) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] == '#' && line[1] == ' ') {
            snprintf(section, sizeof(section), "%.60s", line + 2);
            continue;
        }
        if (line[0] == '\0')
            continue;
        fields++;
        bool there = false, elsewhere = info_value(&info, line) != NULL;
        for (size_t i = 0; i < info.n; i++)
            there |= strcmp(info.name[i], line) == 0 && strcmp(info.section[i], section) == 0;
        if (there == left_out(document, line)) {
            fprintf(stderr, "%s: %s %s\n", section, line,
                    there       ? "is there, and listed as left out"
                    : elsewhere ? "is in another section"
                                : "is neither there nor listed");
            missing++;
        }
    }
    fclose(list);
    cr_assert_gt(fields, 150);
    cr_assert_eq(missing, 0);
}

static double info_double(redisContext *client, const char *field)
{
    static struct info info;
    info_get(&info, client, "INFO stats");
    const char *text = info_value(&info, field);
    cr_assert_not_null(text, "%s", field);
    return strtod(text, NULL);
}

/* Of one INFO: between two of them a worker may be interrupted for long, in a command. */
struct loops {
    double cycles, worked, commands;
};

static struct loops loops(redisContext *client)
{
    static struct info info;
    info_get(&info, client, "INFO stats");
    return (struct loops){
        .cycles = (double)number(&info, "eventloop_cycles"),
        .worked = (double)number(&info, "eventloop_duration_sum"),
        .commands = (double)number(&info, "eventloop_duration_cmd_sum"),
    };
}

/* The work of the event loops is counted: iterations, their time, and the commands' part of it. */
DAEMON_TEST(the_daemon, info, event_loops_are_counted)
{
    redisContext *client = client_start(&the_daemon, (const char *const[]){"--threads", "2", NULL});
    struct loops before = loops(client);
    for (int i = 0; i < 1000; i++)
        expect(client, "\"x\"", "ECHO x");
    client_add_items(client, "f", 0, 50000);
    struct loops after = loops(client);
    double cycles = after.cycles - before.cycles, worked = after.worked - before.worked;
    double commands = after.commands - before.commands;
    cr_expect_geq(cycles, 1000, "%g", cycles); /* each waits for the reply of the one before */
    cr_expect_gt(commands, 0);
    cr_expect_geq(worked, commands, "%g of %g us are in commands", commands, worked);
    double rate = 0;
    for (int i = 0; i < 100 && rate == 0; i++) {
        usleep(50000);
        rate = info_double(client, "instantaneous_eventloop_cycles_per_sec");
    }
    cr_expect_gt(rate, 0);
    cr_expect_lt(info_double(client, "instantaneous_eventloop_duration_usec"), 1e6);

    /* No part of a transaction counts twice; waiting is no work. */
    expect(client, "+OK", "CONFIG RESETSTAT");
    cr_expect_lt(info_double(client, "eventloop_cycles"), cycles);
    expect(client, "+OK", "MULTI");
    for (int i = 0; i < 200; i++)
        expect(client, "+QUEUED", "BF.RESERVE g%d 0.0001 100000", i);
    cr_expect_eq(client_ask(client, "EXEC")[0], '[');
    after = loops(client);
    cr_expect_geq(after.worked, after.commands, "%g of %g us are in commands", after.commands, after.worked);
    bool rested = false; /* on a busy machine a worker may be interrupted for long */
    for (int i = 0; i < 50 && !rested; i++) {
        worked = info_double(client, "eventloop_duration_sum");
        usleep(200000);
        rested = info_double(client, "eventloop_duration_sum") - worked < 100000;
    }
    cr_expect(rested, "waiting for input counts as work");
}
