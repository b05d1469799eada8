/* Cuckoo filters beside Bloom filters in the tool, the status page and the commands for Bloom filters: they are
 * never taken for Bloom filters. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "http.h"
#include "program.h"
#include "tmpdir.h"

DAEMON_SUITE_IDLE(the_daemon, cuckoo_tools);
static char output[65536];

#define TOOL(code, text, ...) \
    program_expect(output, sizeof(output), code, text, "exec 2>&1; '" BLOOMERY_TOOL_PATH "' " __VA_ARGS__)

static void add_items(redisContext *client, const char *name, int n)
{
    for (int i = 0; i < n; i++)
        redisAppendCommand(client, "CF.ADD %s item:%d", name, i);
    client_skip(client, n);
}

/* A small cuckoo filter, one in several sub-filters, one with its own file, an empty one; and two Bloom filters. */
static redisContext *make_filters(void)
{
    the_daemon.with_web = true;
    redisContext *client = client_start(&the_daemon, NULL);
    expect(client, "+OK", "CF.RESERVE cf-small 1000");
    add_items(client, "cf-small", 300);
    expect(client, "+OK", "CF.RESERVE cf-several 1000 EXPANSION 2");
    add_items(client, "cf-several", 3000);
    expect(client, "+OK", "CF.RESERVE cf-large 1000000 BUCKETSIZE 4");
    add_items(client, "cf-large", 700);
    expect(client, "+OK", "CF.RESERVE cf-empty 1000");
    client_add_items(client, "bf-one", 0, 50);
    expect(client, "+OK", "BF.RESERVE bf-theirs 0.01 100 LAYOUT REDISBLOOM");
    return client;
}

/* Queries for items reply 0, as in RedisBloom; all other commands are refused. */
DAEMON_TEST(the_daemon, cuckoo_tools, commands_for_bloom_filters_refuse_them)
{
    static const char *const refused[] = {"BF.ADD cf-several x",          "BF.MADD cf-several x y",
                                          "BF.INSERT cf-several ITEMS x", "BF.RESERVE cf-several 0.1 10",
                                          "BF.INFO cf-several",           "BF.CARD cf-several",
                                          "BF.DEBUG cf-several",          "BF.CLEAR cf-several",
                                          "BF.SCANDUMP cf-several 0",     "BF.MERGE new bf-one cf-several"};
    redisContext *client = make_filters();
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        const char *got = client_ask(client, refused[i]);
        cr_expect(strncmp(got, "-WRONGTYPE", 10) == 0, "%s: %s", refused[i], got);
    }
    expect(client, ":0", "BF.EXISTS cf-several item:1");
    expect(client, "[:0,:0]", "BF.MEXISTS cf-several item:1 item:2");
    expect(client, "[\"asked\",:0,\"found\",[[]],\"unknown\",[\"cf-several\",\"not a Bloom filter\"]]",
           "BF.FIND cf-several ITEMS item:1");
    expect(client, "\"raw\"", "OBJECT ENCODING cf-several");
    cr_expect_gt(client_number(client, "MEMORY USAGE cf-large"), 1000000);
    cr_expect_eq(client_info(client, "bf", "bf_filters"), 6);
    cr_expect_eq(client_info(client, "bf", "bf_items"), 300 + 3000 + 700 + 50);
    expect(client, ":1", "CF.EXISTS cf-several item:1");
}

static void expect_page(const char *path, const char *text)
{
    struct http_reply reply;
    http_get(the_daemon.web_port, path, "", &reply);
    cr_expect_eq(reply.status, 200, "%s: %d", path, reply.status);
    cr_expect(reply.body && strstr(reply.body, text), "'%s' is not in: %s", text, reply.body);
    http_free(&reply);
}

DAEMON_TEST(the_daemon, cuckoo_tools, the_status_page_knows_slots)
{
    make_filters();
    expect_page("/api/filter?key=63662d736d616c6c", "\"name\":\"cf-small\",\"db\":0,\"layout\":\"cuckoo\",");
    expect_page("/api/filter?key=63662d736d616c6c", "\"items\":300,\"capacity\":1024,");
    expect_page("/api/filter?key=63662d736d616c6c",
                "\"each\":[{\"items\":300,\"capacity\":1024,\"bits\":8192,\"k\":2,");
    expect_page("/api/filter?key=62662d6f6e65", "\"cuckoo\":false,");
    expect_page("/api/filter?key=62662d6f6e65", "\"items\":50,");
    expect_page("/api/filters", "\"cuckoo\":true");
}

/* A directory with changes in the log. */
DAEMON_TEST(the_daemon, cuckoo_tools, data_directories_are_checked_and_listed)
{
    redisContext *client = make_filters();
    expect(client, "+OK", "SAVE");
    add_items(client, "cf-later", 900);
    expect(client, ":1", "CF.DEL cf-several item:7");
    cr_expect_eq(client_info(client, "bf", "bf_items"), 4949);
    client_kill(client, &the_daemon);

    TOOL(0, "6 filters, ", "check '%s'", the_daemon.data);
    cr_expect(strstr(output, "4050 items") && strstr(output, "\nwhole\n"), "%s", output);
    TOOL(0, "cf-small\t1 layer, 300 items, 1032 bytes, cuckoo\tfilters/", "list '%s'", the_daemon.data);
    cr_expect(strstr(output, "bf-one\t1 layer, 50 items, ") && !strstr(output, "50 items, cuckoo"), "%s", output);
    TOOL(0, "\"layout\":\"cuckoo\"", "list '%s' --name cf-large --json", the_daemon.data);
    TOOL(0, "\"layout\":\"na\"", "list '%s' --name bf-one --json", the_daemon.data);

    TOOL(1, "'cf-large' is a cuckoo filter", "export '%s' cf-large '%s/out'", the_daemon.data, the_daemon.data);
    TOOL(1, "'cf-small' is a cuckoo filter", "export '%s' cf-small '%s/out'", the_daemon.data, the_daemon.data);
    cr_expect_neq(access(tmp_path(the_daemon.data, "out").text, F_OK), 0);
    TOOL(0, "na-0-big-Filter.db", "export '%s' bf-one '%s/out'", the_daemon.data, the_daemon.data);
    program_said(output, "later changes are in the log");
    TOOL(1, "later changes are in the log", "export '%s' cf-later '%s/later'", the_daemon.data, the_daemon.data);
    program_said(output, "the last save has no filter 'cf-later'");
    TOOL(1, "is not the name of an SSTable's file", "show '%s'/filters/cuckoo-*.layer", the_daemon.data);

    daemon_damage_layer(&the_daemon, "cf-small", 100);
    TOOL(1, "damaged: filter 'cf-small'", "check '%s'", the_daemon.data);
    daemon_damage_layer(&the_daemon, "cf-small", 100); /* flips the same bit back */
    client = client_restart(&the_daemon);
    cr_expect_eq(client_info(client, "bf", "bf_items"), 4949);
}

/* One command makes a filter grow as far as many commands do. */
DAEMON_TEST(the_daemon, cuckoo_tools, one_insert_keeps_the_limit_of_sub_filters)
{
    redisContext *client = client_start(&the_daemon, NULL);
    expect(client, "+OK", "CONFIG SET cf-max-expansions 3");
    expect(client, "+OK", "CF.RESERVE f 4 BUCKETSIZE 1 MAXITERATIONS 1");
    cr_expect_not_null(strstr(client_ask(client, "CF.INSERT f ITEMS a a a a a a a a a a a a a a a a a a a a"), ":-1]"));
    expect_has(client, "Number of filters,:3,", "CF.INFO f");
    expect_has(client, "Maximum expansions", "CF.INSERT f ITEMS b");
}

/* A layer has places for few copies of an item: many copies make a filter large, whatever its capacity. */
DAEMON_TEST(the_daemon, cuckoo_tools, copies_of_one_item_are_bounded)
{
    redisContext *client = client_start(&the_daemon, NULL);
    expect(client, "+OK", "CONFIG SET bf-max-filter-bytes 100mb");
    expect(client, "+OK", "CF.RESERVE f 1024 EXPANSION 4");
    int added = 0;
    while (added < 100 && strcmp(client_ask(client, "CF.ADD f a"), ":1") == 0)
        added++;
    cr_expect_lt(added, 48);
    expect_has(client, "the limit for one filter is 104857600", "CF.ADD f a");
}

/* What a filter has in it changes with any command: clients that cache replies must not cache these. */
DAEMON_TEST(the_daemon, cuckoo_tools, facts_about_filters_are_not_to_be_cached)
{
    static const char *const names[] = {"bf.info", "bf.debug", "bf.scandump", "cf.info", "cf.debug", "cf.scandump"};
    redisContext *client = client_start(&the_daemon, NULL);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        expect_has(client, "[\"dont_cache\"]", "COMMAND INFO %s", names[i]);
}
