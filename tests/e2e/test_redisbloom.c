/* Filters in RedisBloom's layout in the daemon: they answer as recorded, through saves, kills, copies and unions. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "golden.h"
#include "program.h"

#define RECORDED BLOOMERY_GOLDEN_DIR "/redisbloom"

CLIENT_SUITE(the_daemon, client, redisbloom, "--appendonly", "yes", "--appendfsync", "always");

/* ---- recordings ---- */

static void reserve(const char *name)
{
    size_t len;
    char *text = (char *)golden_file(&len, RECORDED "/%s/meta.json", name), *at = strstr(text, "\"reserve\": [");
    char command[256];
    int n = snprintf(command, sizeof(command), "BF.RESERVE %s", name);
    if (at) {
        char *end = strchr(at += strlen("\"reserve\": ["), ']');
        for (; at < end; at++) {
            if (strchr("\"\n", *at))
                continue;
            command[n++] = *at == ',' ? ' ' : *at;
        }
        command[n] = '\0';
    } else {
        strcat(command, " 0.01 100");
    }
    strcat(command, " LAYOUT redisbloom");
    expect(client, "+OK", command);
    free(text);
}

/* Sends the command for each line of the file, some lines at a time, and compares the replies with the second
 * column, if any. */
static void send_lines(const char *name, const char *file, const char *command)
{
    struct golden_lines lines;
    char *wanted[500];
    int n = 0;
    golden_lines_open(&lines, RECORDED "/%s/%s", name, file);
    for (bool more = true; more;) {
        more = golden_lines_next(&lines);
        if (more) {
            size_t len = golden_unhex(lines.fields[0]);
            redisAppendCommand(client, "%s %s %b", command, name, lines.fields[0], len);
            wanted[n++] = lines.nfields > 1 ? lines.fields[1] : NULL;
        }
        for (int i = 0; (n == 500 || !more) && i < n; i++) {
            const char *reply = client_reply(client);
            if (wanted[i])
                cr_assert_str_eq(reply + 1, wanted[i], "%s: %s, line %d: '%s'", name, file, i, reply);
        }
        n = n == 500 || !more ? 0 : n;
    }
    golden_lines_close(&lines);
}

static void expect_info(const char *name, const char *which)
{
    static const char *const fields[][2] = {
        {"Capacity", "CAPACITY"}, {"Number of filters", "FILTERS"}, {"Number of items inserted", "ITEMS"}};
    size_t len;
    char *text = (char *)golden_file(&len, RECORDED "/%s/meta.json", name), *at = strstr(text, which), wanted[64];
    cr_assert_not_null(at);
    for (size_t i = 0; i < 3; i++) {
        snprintf(wanted, sizeof(wanted), "[:%.0f]", golden_json_number(at, fields[i][0]));
        expect(client, wanted, "BF.INFO %s %s", name, fields[i][1]);
    }
    free(text);
}

static unsigned for_each_recording(void (*fn)(const char *name))
{
    DIR *list = opendir(RECORDED);
    unsigned n = 0;
    cr_assert_not_null(list);
    for (struct dirent *entry; (entry = readdir(list));) {
        char items[4096];
        snprintf(items, sizeof(items), RECORDED "/%s/items.hex", entry->d_name);
        if (entry->d_name[0] == '.' || access(items, R_OK) != 0)
            continue;
        fn(entry->d_name);
        n++;
    }
    closedir(list);
    return n;
}

static void fill_recorded(const char *name)
{
    reserve(name);
    send_lines(name, "items.hex", "BF.ADD");
    expect_info(name, "\"info\"");
}

static void expect_probes(const char *name)
{
    send_lines(name, "probes.tsv", "BF.EXISTS");
    expect_info(name, "\"info\"");
}

static void add_more(const char *name)
{
    send_lines(name, "probes.tsv", "BF.EXISTS");
    send_lines(name, "more.tsv", "BF.ADD");
    expect_info(name, "\"info_after_more\"");
}

static void expect_after_more(const char *name)
{
    expect_info(name, "\"info_after_more\"");
}

/* The commands of the recording create the filters. Their answers, before and after each kind of restart, equal
 * RedisBloom's. */
DAEMON_TEST(the_daemon, redisbloom, answers_as_recorded_through_kills_and_saves)
{
    cr_assert_geq(for_each_recording(fill_recorded), 11);
    for_each_recording(expect_probes);
    client = client_after_kill(client, &the_daemon, NULL); /* from the log */
    for_each_recording(expect_probes);
    expect(client, "+OK", "SAVE");
    client = client_after_kill(client, &the_daemon, NULL); /* from the files */
    for_each_recording(add_more);
    client = client_after_kill(client, &the_daemon, NULL); /* from both */
    for_each_recording(expect_after_more);
    client = client_after_stop(client, &the_daemon, NULL);
    for_each_recording(expect_after_more);
}

/* ---- large and small filters ---- */

static char *state_of(const char *name)
{
    static char text[20000];
    snprintf(text, sizeof(text), "%s %s %s", client_ask(client, "BF.DEBUG %s", name), "bits", "");
    strcat(text, client_ask(client, "BF.INFO %s BITSSET", name));
    return strdup(text);
}

static void expect_state(const char *name, const char *state)
{
    char *now = state_of(name);
    cr_assert_str_eq(now, state, "%s", name);
    free(now);
}

/* In a pack, in its own file that bypasses the page cache, and grown. */
static const struct {
    const char *name, *reserve;
    int items;
} cases[] = {{"small", "BF.RESERVE small 0.01 100 LAYOUT redisbloom", 90},
             {"grown", "BF.RESERVE grown 0.001 50 EXPANSION 1 LAYOUT redisbloom", 1500},
             {"fixed", "BF.RESERVE fixed 1e-15 3000 NONSCALING LAYOUT redisbloom", 3000},
             {"large", "BF.RESERVE large 0.0001 2000000 LAYOUT redisbloom", 5000}};
#define CASES (sizeof(cases) / sizeof(cases[0]))

static void fill_cases(void)
{
    for (size_t i = 0; i < CASES; i++) {
        expect(client, "+OK", cases[i].reserve);
        client_for_items(client, "BF.MADD", cases[i].name, "i", cases[i].items);
        expect(client, "[\"redisbloom\"]", "BF.INFO %s LAYOUT", cases[i].name);
    }
}

DAEMON_TEST(the_daemon, redisbloom, keeps_every_bit_through_copies_kills_and_saves)
{
    char *states[CASES], copy[32];
    fill_cases();
    for (size_t i = 0; i < CASES; i++) {
        states[i] = state_of(cases[i].name);
        snprintf(copy, sizeof(copy), "%s:copy", cases[i].name);
        expect(client, ":1", "COPY %s %s", cases[i].name, copy);
        expect_state(copy, states[i]);
    }
    for (int round = 0; round < 3; round++) {
        if (round == 1)
            expect(client, "+OK", "SAVE");
        client = client_after_kill(client, &the_daemon, NULL);
        for (size_t i = 0; i < CASES; i++) {
            snprintf(copy, sizeof(copy), "%s:copy", cases[i].name);
            expect_state(cases[i].name, states[i]);
            expect_state(copy, states[i]);
            cr_assert_eq(client_for_items(client, "BF.MEXISTS", copy, "i", cases[i].items), cases[i].items);
        }
    }
    expect(client, "+OK", "BF.CLEAR grown");
    expect(client, "[\"redisbloom\"]", "BF.INFO grown LAYOUT");
    client_for_items(client, "BF.MADD", "grown", "i", 1500);
    expect_state("grown", states[1]);
    for (size_t i = 0; i < CASES; i++)
        free(states[i]);
}

/* Filters of this layout can be merged with filters of the same layout only. */
DAEMON_TEST(the_daemon, redisbloom, is_merged_with_its_like_only)
{
    expect(client, "+OK", "BF.RESERVE a 0.001 1000 LAYOUT redisbloom");
    expect(client, "+OK", "BF.RESERVE b 0.001 1000 LAYOUT redisbloom");
    expect(client, "+OK", "BF.RESERVE all 0.001 1000 LAYOUT redisbloom");
    expect(client, "+OK", "BF.RESERVE native 0.001 1000");
    client_for_items(client, "BF.MADD", "a", "a", 300);
    client_for_items(client, "BF.MADD", "b", "b", 400);
    client_for_items(client, "BF.MADD", "all", "a", 300);
    client_for_items(client, "BF.MADD", "all", "b", 400);
    expect(client, "+OK", "BF.MERGE ab a b");
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "ab", "a", 300), 300);
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "ab", "b", 400), 400);
    char *bits = strdup(client_ask(client, "BF.INFO all BITSSET"));
    expect(client, bits, "BF.INFO ab BITSSET");
    client = client_after_kill(client, &the_daemon, NULL);
    expect(client, bits, "BF.INFO ab BITSSET");
    cr_assert_eq(client_ask(client, "BF.MERGE x a native")[0], '-');
    cr_assert_eq(client_ask(client, "BF.MERGE native a")[0], '-');
    free(bits);
}

/* ---- options ---- */

DAEMON_TEST(the_daemon, redisbloom, is_the_layout_of_new_filters_only_where_it_is_asked_for)
{
    expect(client, ":1", "BF.ADD native x");
    expect(client, "[\"na\"]", "BF.INFO native LAYOUT");
    expect(client, "[:1]", "BF.INSERT inserted LAYOUT redisbloom ITEMS x");
    expect(client, "[\"redisbloom\"]", "BF.INFO inserted LAYOUT");
    expect(client, "+OK", "CONFIG SET bf-layout redisbloom");
    expect(client, "[\"bf-layout\",\"redisbloom\"]", "CONFIG GET bf-layout");
    expect(client, ":1", "BF.ADD added x");
    expect(client, "[\"redisbloom\"]", "BF.INFO added LAYOUT");
    expect(client, "+OK", "BF.RESERVE here 0.01 10 LAYOUT na");
    expect(client, "[\"na\"]", "BF.INFO here LAYOUT");
    expect(client, "+OK", "BF.RESERVE fixed 0.01 10 NONSCALING TTL 1000");
    expect(client, "[\"redisbloom\"]", "BF.INFO fixed LAYOUT");
    expect(client, "[nil]", "BF.INFO fixed EXPANSION");
    expect(client, "+OK", "BF.RESERVE high 0.6 100");
    cr_assert_str_eq(client_ask(client, "BF.DEBUG high"),
                     "[\"size:0\",\"bytes:56 bits:448 hashes:4 hashwidth:64 capacity:100 size:0 ratio:0.125\"]");
    expect(client, "[\"0.25\"]",
           "BF.INFO high ERRORRATE"); /* RedisBloom's maximum; the other layout has no such limit */
    expect(client, "+OK", "BF.RESERVE high_na 0.6 100 LAYOUT na");
    expect(client, "[\"0.6\"]", "BF.INFO high_na ERRORRATE");
    expect(client, "-ERR LAYOUT takes na, redisbloom, valkey or blocked", "BF.RESERVE bad 0.01 100 LAYOUT ka");
    expect(client, "-ERR LAYOUT takes na, redisbloom, valkey or blocked", "BF.RESERVE bad 0.01 100 LAYOUT");
    expect(client, "-Bad layout", "BF.INSERT bad LAYOUT me ITEMS x");
    cr_assert_eq(client_ask(client, "CONFIG SET bf-layout me")[0], '-');
    cr_assert_eq(client_ask(client, "BF.RESERVE bad 1e-100 100 LAYOUT redisbloom")[0], '-');
    cr_assert_eq(client_ask(client, "BF.RESERVE bad 0.01 100000000000000 LAYOUT redisbloom")[0], '-');
    expect(client, ":0", "EXISTS bad");
}

/* Once, not for each filter. */
DAEMON_TEST(the_daemon, redisbloom, a_rate_that_it_will_not_keep_is_told_in_the_log)
{
    expect(client, "+OK", "BF.RESERVE kept 0.01 1000 LAYOUT redisbloom");
    expect(client, "+OK", "BF.RESERVE native 1e-8 100");
    cr_assert_null(strstr(daemon_output(&the_daemon), "will have a rate"));
    expect(client, "+OK", "BF.RESERVE small 1e-8 100 NONSCALING LAYOUT redisbloom TTL 1000");
    daemon_wait_output(&the_daemon,
                       "a new filter for 100 items at the error rate 1e-08 will have a rate of about 7.1e-05: "
                       "RedisBloom's layout does not keep low rates in small filters; LAYOUT na does");
    expect(client, "[:1]", "BF.INSERT again ERROR 1e-8 CAPACITY 10 LAYOUT redisbloom ITEMS x");
    cr_assert_null(strstr(strstr(daemon_output(&the_daemon), "will have a rate") + 1, "will have a rate"));
}

DAEMON_TEST(the_daemon, redisbloom, is_planned_as_it_will_be)
{
    expect(client, "+OK", "BF.RESERVE f 0.003 777 LAYOUT redisbloom");
    client_for_items(client, "BF.MADD", "f", "i", 5000);
    char *bits = strdup(client_ask(client, "BF.INFO f BITS")), wanted[64]; /* [:number] */
    snprintf(wanted, sizeof(wanted), "+Bits,%.*s,", (int)strlen(bits) - 2, bits + 1);
    const char *plan = client_ask(client, "BF.PLAN 0.003 777 LAYOUT redisbloom ITEMS 5000");
    cr_assert(strstr(plan, wanted), "'%s' is not in %s", wanted, plan);
    free(bits);
}

/* ---- the tool ---- */

static const char *tool(int *status_out, const char *command, const char *a, const char *b)
{
    static char output[20000];
    *status_out = program_run(output, sizeof(output), "env -u LD_PRELOAD '%s' %s %s %s %s 2>&1", BLOOMERY_TOOL_PATH,
                              command, the_daemon.data, a, b);
    return output;
}

/* check calls the directory whole, list names the files, and export writes the numbers and then the bits, under a
 * name that import does not take for a Filter.db. */
DAEMON_TEST(the_daemon, redisbloom, is_checked_listed_and_exported)
{
    char out[400], file[500];
    int status;
    fill_cases();
    client_kill(client, &the_daemon);
    const char *text = tool(&status, "check", "", ""); /* only in the log */
    cr_assert_eq(status, 0, "%s", text);
    client = client_restart(&the_daemon);
    expect(client, "+OK", "SAVE");
    char *debug = strdup(client_ask(client, "BF.DEBUG large"));
    client_stop(client, &the_daemon);
    text = tool(&status, "check", "", "");
    cr_assert_eq(status, 0, "%s", text);
    text = tool(&status, "list", "", "");
    cr_assert(strstr(text, "filters/redisbloom-") && !strstr(text, "Filter.db"), "%s", text);
    snprintf(out, sizeof(out), "%s/out", the_daemon.dir);
    for (size_t i = 0; i < CASES; i++) {
        snprintf(out, sizeof(out), "%s/out-%s", the_daemon.dir, cases[i].name);
        text = tool(&status, "export", cases[i].name, out);
        cr_assert_eq(status, 0, "%s", text);
        snprintf(file, sizeof(file), "%s/redisbloom-0.bits", out);
        size_t len;
        unsigned char *bytes = golden_file(&len, "%s", file);
        uint64_t bits;
        memcpy(&bits, bytes + 48, sizeof(bits));
        cr_assert_arr_eq(bytes, "BLOOMRBL\1\0\0", 11);
        cr_assert_eq(len, 72 + bits / 8, "%zu bytes", len);
        free(bytes);
    }
    text = tool(&status, "import", "again", file);
    cr_assert_neq(status, 0);
    client = client_restart(&the_daemon);
    expect(client, debug, "BF.DEBUG large");
    free(debug);
}

/* A damaged file: the filter is quarantined, and its file kept when the filter is deleted. */
DAEMON_TEST(the_daemon, redisbloom, is_quarantined_when_damaged)
{
    int status;
    fill_cases();
    expect(client, "+OK", "SAVE");
    client_kill(client, &the_daemon);
    daemon_damage_layer(&the_daemon, "large", 100000);
    daemon_damage_layer(&the_daemon, "small", 20);
    const char *text = tool(&status, "check", "", "");
    cr_assert_neq(status, 0, "%s", text);
    client = client_restart(&the_daemon);
    expect_has(client, "quarantined", "BF.EXISTS large i0");
    expect_has(client, "quarantined", "BF.EXISTS small i0");
    expect(client, ":1", "BF.EXISTS grown i0");
    expect(client, ":2", "DEL large small");
    expect(client, "+OK", "SAVE");
    client = client_after_kill(client, &the_daemon, NULL);
    expect(client, ":0", "EXISTS large small");
    cr_assert_eq(client_for_items(client, "BF.MEXISTS", "grown", "i", 1500), 1500);
}
