/* sstable-dir: the filters of SSTables that another database writes, while the daemon runs. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "golden.h"
#include "http.h"
#include "program.h"
#include "sstables_rig.h"
#include "wait.h"
#include "wire.h"

TestSuite(sstables, .fini = discard, .timeout = 3000);

/* ---- HTTP ---- */

static bool page_has(const char *path, int status, const char *text)
{
    struct http_reply reply;
    http_get(the_daemon.web_port, path, "", &reply);
    bool has =
        reply.status == status && (reply.len >= strlen(text) && memmem(reply.body, reply.len, text, strlen(text)));
    if (!has)
        cr_log_info("%s: %d %.*s", path, reply.status, (int)reply.len, reply.body);
    http_free(&reply);
    return has;
}

/* Metrics, the page's table, its page of one filter, and /filters/NAME. An unread filter is not one in quarantine; a
 * filter of the data directory hides one of its name. */
DAEMON_TEST(the_daemon, sstables, they_are_seen_over_http)
{
    the_daemon.with_web = true;
    prepare();
    write_sstable("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_sstable("data/ks/t-" ID "/nb-2-big-Filter.db", na_file, sizeof(na_file));
    write_sstable("data/ks/t-" ID "/nb-3-big-Filter.db", "broken", 6);
    start();
    expect(client, "+OK", "CONFIG SET metrics-filters ks.*");
    expect(client, ":1", "BF.ADD own x");
    cr_expect(page_has("/api/filters", 200, "\"total\":4,\"matched\":4"));
    cr_expect(page_has("/api/filters?quarantined=yes", 200, "\"matched\":0"));
    cr_expect(page_has("/filters/ks.t/1", 503, "its file has not been read yet; a query reads it"));
    cr_expect(page_has("/api/filter?key=6b732e742f31", 200, "\"unread\":true"));
    expect(client, ":1", "BF.EXISTS ks.t/1 k");
    client_ask(client, "BF.EXISTS ks.t/3 k");
    cr_expect(page_has("/filters/ks.t/1", 200, (const char[]){(char)na_file[8], 0, (char)na_file[10], 0}));
    cr_expect(page_has("/filters/ks.t/3", 503, "quarantined"));
    cr_expect(page_has("/filters/ks.t/4", 404, "no such filter"));
    cr_expect(page_has("/api/filter?key=6b732e742f31", 200, "\"sstable\":true,\"unread\":false"));
    cr_expect(page_has("/api/filters?quarantined=yes", 200, "\"matched\":1"));
    cr_expect(page_has("/api/overview", 200,
                       "\"sstable_filters\":3,\"sstable_filters_read\":1,\"sstable_filters_broken\":1,"));
    cr_expect(page_has("/metrics", 200, "\nbloomery_sstable_filters 3\n"));
    cr_expect(page_has("/metrics", 200, "\nbloomery_sstable_filters_read 1\n"));
    cr_expect(page_has("/metrics", 200, "\nbloomery_sstable_filters_broken 1\n"));
    cr_expect(page_has("/metrics", 200, "\nbloomery_items 1\n"));
    cr_expect(page_has("/metrics", 200, "\nbloomery_filter_layers{db=\"0\",filter=\"ks.t/1\"} 1\n"));
    cr_expect(page_has("/metrics", 200, "\nbloomery_filter_quarantined{db=\"0\",filter=\"ks.t/2\"} 0\n"));
    cr_expect(page_has("/metrics", 200, "\nbloomery_filter_quarantined{db=\"0\",filter=\"ks.t/3\"} 1\n"));
    expect(client, ":1", "BF.ADD ks.t/9 x");
    write_sstable("data/ks/t-" ID "/nb-9-big-Filter.db", na_file, sizeof(na_file));
    wait_until(page_has("/metrics", 200, "\nbloomery_sstable_filters 4\n"));
    cr_expect(page_has("/api/filters", 200, "\"total\":5,\"matched\":5"));
}

/* ---- names ---- */

/* Files placed as by Cassandra and ScyllaDB: live ones and those of indexes, in the versions of each layout. Files
 * that queries of the table do not read have their own names; unfinished or deleted files have none. */
DAEMON_TEST(the_daemon, sstables, names_follow_the_folders)
{
    prepare();
    write_sstable("data/ks/users-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_sstable("data/ks/users-" ID "/da-3ga6_0000_2gi3k2r1azcv9tdwfk-bti-Filter.db", na_file, sizeof(na_file));
    write_sstable("data/ks/users-" ID "/me-3-big-Filter.db", me_file, sizeof(me_file));
    write_sstable("data/ks/users-" ID "/staging/me-4-big-Filter.db", me_file, sizeof(me_file));
    write_sstable("data/ks/users-" ID "/.by_name/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_sstable("data/ks/users-" ID "/snapshots/friday/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_sstable("data/ks/users-" ID "/backups/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_sstable("data/old/t/old-t-ka-7-Filter.db", ka_file, sizeof(ka_file));
    write_filter("data/ks/users-" ID "/nb-9-big-Filter.db", na_file, sizeof(na_file)); /* without a TOC */
    write_sstable("data/old/t/old-t-tmp-ka-8-Filter.db", ka_file, sizeof(ka_file));
    write_sstable("data/ks/users-" ID "/hf-5-big-Filter.db", na_file, sizeof(na_file)); /* a hash of older versions */
    start();
    static const char *const names[] = {
        "ks.users/1",         "ks.users/3ga6_0000_2gi3k2r1azcv9tdwfk", "ks.users/3",         "ks.users/4",
        "ks.users.by_name/1", "snapshots/friday/ks.users/1",           "backups/ks.users/1", "old.t/7"};
    redisReply *keys = redisCommand(client, "KEYS *");
    cr_expect_eq(keys->elements, sizeof(names) / sizeof(names[0]) + 1);
    freeReplyObject(keys);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        expect(client, ":1", "BF.EXISTS %s k", names[i]);
        expect(client, "[:1,:0]", "BF.MEXISTS %s k kk", names[i]);
        expect(client, "+MBbloom--", "TYPE %s", names[i]);
        expect(client, ":1", "EXISTS %s", names[i]);
    }
    const char *text = ask("BF.FIND ks.users/* KEY text:k");
    cr_assert(
        strstr(text,
               "[\"asked\",:4,\"found\",[[\"ks.users/1\",\"ks.users/3\",\"ks.users/3ga6_0000_2gi3k2r1azcv9tdwfk\","
               "\"ks.users/4\"]],\"unknown\",[\"ks.users/5\",\"") == text,
        "%s", text);
    cr_assert(strstr(text, "Murmur2"), "%s", text);
    text = client_ask(client, "BF.EXISTS ks.users/5 k");
    cr_assert(strstr(text, "-ERR the filter could not be loaded and is quarantined: ") == text, "%s", text);
}

#define NO_FILTER "the SSTable has no Filter.db: it may hold the key"

/* An SSTable written without a filter may have any key: it is named. An SSTable that loses its filter, too. */
DAEMON_TEST(the_daemon, sstables, those_without_a_filter_are_named)
{
    prepare();
    write_sstable("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_data("data/ks/t-" ID "/nb-1-big-Data.db");
    write_data("data/ks/t-" ID "/nb-2-big-Data.db");
    write_toc("data/ks/t-" ID "/nb-2-big-Filter.db");
    write_data("data/ks/t-" ID "/nb-3-big-Data.db"); /* it is being written */
    write_sstable("other/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    cr_assert_eq(unlink(below_root("other/ks/t-" ID "/nb-1-big-Filter.db")), 0);
    write_data("other/ks/t-" ID "/nb-2-big-Data.db");
    write_toc("other/ks/t-" ID "/nb-2-big-Filter.db");
    start();
    char expected[2000];
    snprintf(expected, sizeof(expected),
             "[\"asked\",:1,\"found\",[[\"ks.t/1\"]],\"unknown\",[\"ks.t/2#%s/data/ks/t-" ID "/nb-2-big\",\"" NO_FILTER
             "\",\"ks.t/2#%s/other/ks/t-" ID "/nb-2-big\",\"" NO_FILTER "\"]]",
             root, root);
    expect_find(expected, "BF.FIND ks.t/* ITEMS k");
    expect(client, "-ERR the filter could not be loaded and is quarantined: " NO_FILTER,
           "BF.EXISTS ks.t/2#%s/data/ks/t-" ID "/nb-2-big k", root);
    cr_assert_eq(unlink(below_root("data/ks/t-" ID "/nb-1-big-Filter.db")), 0);
    wait_for("[\"asked\",:0,\"found\",[[]],\"unknown\",[\"ks.t/1\",\"" NO_FILTER "\"]]", "BF.FIND ks.t/1 ITEMS k");
    write_filter("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    wait_for("[\"asked\",:1,\"found\",[[\"ks.t/1\"]],\"unknown\",[]]", "BF.FIND ks.t/1 ITEMS k");
    cr_assert_eq(unlink(below_root("other/ks/t-" ID "/nb-2-big-Data.db")), 0);
    cr_assert_eq(unlink(below_root("other/ks/t-" ID "/nb-2-big-TOC.txt")), 0);
    wait_for("[\"ks.t/1\",\"ks.t/2\"]", "KEYS *");
}

/* A path that is named like a filter and is no file hides no SSTable. */
DAEMON_TEST(the_daemon, sstables, filters_that_are_no_files_are_named)
{
    prepare();
    write_sstable("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_toc("data/ks/t-" ID "/nb-2-big-Filter.db");
    cr_assert_eq(mkdir(below_root("data/ks/t-" ID "/nb-2-big-Filter.db"), 0755), 0);
    write_toc("data/ks/t-" ID "/nb-3-big-Filter.db");
    cr_assert_eq(mkfifo(below_root("data/ks/t-" ID "/nb-3-big-Filter.db"), 0644), 0);
    start();
    char expected[2000];
    snprintf(expected, sizeof(expected),
             "[\"asked\",:1,\"found\",[[\"ks.t/1\"]],\"unknown\",[\"ks.t/2\",\"%s/data/ks/t-" ID
             "/nb-2-big-Filter.db: it is not a regular file\",\"ks.t/3\",\"%s/data/ks/t-" ID
             "/nb-3-big-Filter.db: it is not a regular file\"]]",
             root, root);
    expect_find(expected, "BF.FIND ks.t/* ITEMS k");
    cr_assert_eq(rmdir(below_root("data/ks/t-" ID "/nb-2-big-Filter.db")), 0);
    write_filter("data/ks/t-" ID "/nb-2-big-Filter.db", na_file, sizeof(na_file));
    wait_for("[\"asked\",:1,\"found\",[[\"ks.t/2\"]],\"unknown\",[]]", "BF.FIND ks.t/2 ITEMS k");
}

static void make_old(const char *path)
{
    const struct timespec old[2] = {{.tv_sec = 1700000000}, {.tv_sec = 1700000000}};
    cr_assert_eq(utimensat(AT_FDCWD, below_root(path), old, 0), 0);
}

/* The databases also load SSTables without a TOC.txt, since a restored copy may lack it. A TOC.txt may follow a file
 * that has just been written, so the daemon waits for it; files that ScyllaDB marks as unfinished never count. */
DAEMON_TEST(the_daemon, sstables, those_without_a_toc_are_taken_when_they_are_old)
{
    prepare();
    write_filter("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    make_old("data/ks/t-" ID "/nb-1-big-Filter.db");
    write_data("data/ks/t-" ID "/nb-2-big-Data.db");
    make_old("data/ks/t-" ID "/nb-2-big-Data.db");
    write_filter("data/ks/t-" ID "/me-3-big-Filter.db", me_file, sizeof(me_file));
    write_filter("data/ks/t-" ID "/me-3-big-TOC.txt.tmp", "", 0);
    make_old("data/ks/t-" ID "/me-3-big-Filter.db");
    write_filter("data/ks/t-" ID "/nb-4-big-Filter.db", na_file, sizeof(na_file));
    start();
    expect(client, "[\"ks.t/1\",\"ks.t/2\"]", "KEYS *");
    expect_find("[\"asked\",:1,\"found\",[[\"ks.t/1\"]],\"unknown\",[\"ks.t/2\",\"" NO_FILTER "\"]]",
                "BF.FIND ks.t/* ITEMS k");
    write_filter("data/ks/t-" ID "/nb-5-big-Filter.db", na_file, sizeof(na_file));
    wait_for("[\"ks.t/1\",\"ks.t/2\",\"ks.t/4\",\"ks.t/5\"]", "KEYS *");
}

/* Cassandra deletes a TOC.txt and writes it again when a component is added. */
DAEMON_TEST(the_daemon, sstables, a_toc_may_be_written_again)
{
    prepare();
    write_sstable("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_data("data/ks/t-" ID "/nb-2-big-Data.db");
    write_toc("data/ks/t-" ID "/nb-2-big-Filter.db");
    start();
    const char *expected = "[\"asked\",:1,\"found\",[[\"ks.t/1\"]],\"unknown\",[\"ks.t/2\",\"" NO_FILTER "\"]]";
    expect_find(expected, "BF.FIND ks.t/* ITEMS k");
    cr_assert_eq(unlink(below_root("data/ks/t-" ID "/nb-1-big-TOC.txt")), 0);
    cr_assert_eq(unlink(below_root("data/ks/t-" ID "/nb-2-big-TOC.txt")), 0);
    write_sstable("data/ks/t-" ID "/nb-3-big-Filter.db", na_file, sizeof(na_file)); /* the daemon looks */
    wait_for(":1", "BF.EXISTS ks.t/3 k");
    expect(client, ":1", "BF.EXISTS ks.t/1 k");
    expect(client, "[\"ks.t/1\",\"ks.t/2\",\"ks.t/3\"]", "KEYS *");
}

/* ---- read-only filters ---- */

/* Changes of them are errors, and no save has them. */
DAEMON_TEST(the_daemon, sstables, writes_are_refused)
{
    static const char *const writes[] = {
        "BF.ADD f/1 x",         "BF.MADD f/1 x", "BF.INSERT f/1 ITEMS x", "DEL f/1",
        "BF.RESERVE f/1 0.1 9", "UNLINK f/1",    "RENAME f/1 g",          "RENAME own f/1",
        "EXPIRE f/1 100",       "PERSIST f/1",   "BF.CLEAR f/1",          "BF.MERGE f/1 own",
        "COPY f/1 g",           "COPY own f/1",  "BF.MERGE own f/1",      "DEL own f/1"};
    prepare();
    write_sstable("f/nb-1-big-Filter.db", na_file, sizeof(na_file));
    start();
    redisReply *keys = redisCommand(client, "KEYS *");
    char name[64];
    snprintf(name, sizeof(name), "%s", keys->element[0]->str);
    freeReplyObject(keys);
    expect(client, ":1", "BF.ADD own x");
    for (size_t i = 0; i < sizeof(writes) / sizeof(writes[0]); i++) {
        char command[128], text[300];
        const char *at = strstr(writes[i], "f/1");
        snprintf(command, sizeof(command), "%.*s%s%s", (int)(at - writes[i]), writes[i], name, at + 3);
        const char *words[8];
        int n = 0;
        for (char *save, *word = strtok_r(command, " ", &save); word; word = strtok_r(NULL, " ", &save))
            words[n++] = word;
        redisReply *reply = redisCommandArgv(client, n, words, NULL);
        snprintf(text, sizeof(text), "%s", reply->str ? reply->str : "(no error)");
        freeReplyObject(reply);
        cr_assert(strncmp(text, "READONLY ", 9) == 0, "%s: %s", writes[i], text);
    }
    for (int i = 0; i < 3; i++) /* in a pipeline they go through the pipeline */
        redisAppendCommand(client, "BF.ADD %s x%d", name, i);
    for (int i = 0; i < 3; i++)
        cr_assert(strncmp(client_reply(client), "-READONLY ", 10) == 0);
    expect(client, ":1", "BF.EXISTS own x");
    expect(client, "+OK", "FLUSHALL");
    expect(client, ":1", "DBSIZE");
    expect(client, ":1", "BF.EXISTS %s k", name);
    expect(client, "+OK", "SAVE");
    daemon_stop(&the_daemon);
    const char *const without[] = {"--sstable-dir", "", NULL};
    redisFree(client);
    client = client_start(&the_daemon, without);
    expect(client, "[]", "KEYS *");
}

/* `bloomery move` reports this, and moves the others. */
DAEMON_TEST(the_daemon, sstables, have_no_dump_and_no_end)
{
    static char output[4096];
    struct daemon other = {0};
    prepare();
    write_sstable("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    start();
    daemon_start(&other, NULL);
    expect(client, ":1", "BF.ADD own x");
    expect(client, ":1", "BF.EXISTS ks.t/1 k");
    expect(client, ":1", "EXISTS ks.t/1");
    expect(client, ":-1", "TTL ks.t/1");
    expect(client, ":-1", "PEXPIRETIME ks.t/1");
    expect(client, ":-2", "PTTL ks.t/2");
    expect(client, "nil", "DUMP ks.t/2");
    for (int i = 0; i < 2; i++)
        cr_assert(
            strstr(client_ask(client, i ? "DUMP ks.t/1" : "BF.SCANDUMP ks.t/1 0"),
                   "-ERR 'ks.t/1' is the filter of an SSTable, which has no dump: import its file with BF.IMPORT"));
    program_expect(output, sizeof(output), 3, "skipped ks.t%2F1: ERR 'ks.t/1' is the filter of an SSTable",
                   "'%s' move --from redis://127.0.0.1:%d --to redis://127.0.0.1:%d 2>&1", BLOOMERY_TOOL_PATH,
                   the_daemon.port, other.port);
    program_said(output, "moved    1 filter");
    program_said(output, "skipped  1 that the source refused to send");
    daemon_deinit(&other);
}

/* A transaction does not wait for a file; once the file has been read, its filter is like others. */
DAEMON_TEST(the_daemon, sstables, transactions_do_not_read_files)
{
    prepare();
    write_sstable("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    start();
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "BF.EXISTS ks.t/1 k");
    expect(client, "+QUEUED", "BF.FIND * ITEMS k");
    const char *text = client_ask(client, "EXEC");
    cr_assert(strstr(text, "[-ERR 'bf.exists' must read a file first") == text, "%s", text);
    cr_assert(strstr(text, ",-ERR this call of 'bf.find' may take long"), "%s", text);
    expect(client, ":1", "BF.EXISTS ks.t/1 k");
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "BF.EXISTS ks.t/1 k");
    expect(client, "+QUEUED", "BF.FIND * ITEMS k");
    expect_find("[:1,[\"asked\",:1,\"found\",[[\"ks.t/1\"]],\"unknown\",[]]]", "EXEC");
}

/* The properties in the file, by the commands that describe filters. */
DAEMON_TEST(the_daemon, sstables, are_described)
{
    char expected[800];
    prepare();
    write_sstable("data/ks/t-" ID "/me-1-big-Filter.db", me_file, sizeof(me_file));
    start();
    snprintf(expected, sizeof(expected), "[\"%s\"]", below_root("data/ks/t-" ID "/me-1-big-Filter.db"));
    expect(client, expected, "BF.INFO ks.t/1 FILE");
    const char *info = client_ask(client, "INFO bf");
    cr_assert(strstr(info, "sstable_filters:1\\x0d\\x0asstable_filters_read:0"), "%s", info);
    expect(client, "[\"me\"]", "BF.INFO ks.t/1 LAYOUT");
    expect(client, "[:5]", "BF.INFO ks.t/1 HASHES");
    expect(client, "[:64]", "BF.INFO ks.t/1 BITS");
    expect(client, "[:4]", "BF.INFO ks.t/1 BITSSET"); /* two of the key's five are the same */
    expect(client, "[\"0.0625\"]", "BF.INFO ks.t/1 FILL");
    expect(client, ":1", "BF.CARD ks.t/1");
    info = client_ask(client, "INFO bf");
    cr_assert(strstr(info, "sstable_filters:1\\x0d\\x0asstable_filters_read:1"), "%s", info);
}

/* The round is the last one that found a change: it stays the same while no file comes, changes or goes. */
DAEMON_TEST(the_daemon, sstables, bf_find_tells_the_round)
{
    struct wire wire;
    prepare();
    write_sstable("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    start();
    for (int i = 0; i < 3; i++) {
        expect(client, "[\"asked\",:1,\"found\",[:1],\"unknown\",[],\"round\",:1]", "BF.FIND COUNT ks.t/* ITEMS k");
        write_data("data/ks/t-" ID "/nb-2-big-Index.db"); /* not a component of the SSTable */
        usleep(100000);
    }
    wire_open(&wire, the_daemon.port);
    wire_ask(&wire, "HELLO 3");
    expect_ask(&wire, "BF.FIND COUNT ks.t/* none ITEMS k",
               "{\"asked\"::1,\"found\":[:1],\"unknown\":{\"none\":\"not found\"},\"round\"::1}");
    wire_close(&wire);
    write_toc("data/ks/t-" ID "/nb-2-big-Filter.db");
    write_filter("data/ks/t-" ID "/nb-2-big-Filter.db", na_file, sizeof(na_file));
    wait_for(":2", "DBSIZE");
    redisReply *reply = redisCommand(client, "BF.FIND ks.t/* ITEMS k");
    cr_assert_str_eq(reply->element[6]->str, "round");
    cr_assert_gt(reply->element[7]->integer, 1);
    freeReplyObject(reply);
}

/* ---- files that change ---- */

static void expect_error(const char *name, const char *part)
{
    const char *text = "";
    for (double until = wait_clock() + WAIT_PATIENCE_S; wait_clock() < until;) {
        text = client_ask(client, "BF.EXISTS %s k", name);
        if (text[0] == '-' && strstr(text, part))
            return;
        usleep(50000);
    }
    cr_assert_fail("got '%s' instead of an error with '%s'", text, part);
}

/* A file comes with its TOC and goes; it is replaced, cut, filled with garbage, and repaired. No answer comes from
 * missing bytes, and the daemon survives. */
DAEMON_TEST(the_daemon, sstables, files_change_under_the_daemon)
{
    static const char path[] = "data/ks/t-" ID "/nb-1-big-Filter.db";
    static unsigned char large[8 + 8 * 40000] = {0, 0, 0, 3, 0, 0, 0x9c, 0x40};
    memset(large + 8, 0xff, sizeof(large) - 8);
    prepare();
    start();
    expect(client, "[]", "KEYS *");
    write_filter(path, na_file, sizeof(na_file));
    usleep(300000);
    expect(client, "[]", "KEYS *");
    write_toc(path);
    wait_for("[\"ks.t/1\"]", "KEYS *");
    expect(client, "[:1,:0]", "BF.MEXISTS ks.t/1 k kk");
    write_filter("other", large, sizeof(large));
    cr_assert_eq(rename(below_root("other"), below_root(path)), 0); /* replaced */
    wait_for("[:2560000]", "BF.INFO ks.t/1 BITS");
    expect(client, "[:1,:1]", "BF.MEXISTS ks.t/1 k kk");
    cr_assert_eq(truncate(below_root(path), 100000), 0);
    expect_error("ks.t/1", "Filter.db");
    write_filter(path, "garbage", 7);
    expect_error("ks.t/1", "Filter.db");
    write_filter(path, na_file, sizeof(na_file));
    wait_for("[:64]", "BF.INFO ks.t/1 BITS");
    expect(client, "[:1,:0]", "BF.MEXISTS ks.t/1 k kk");
    cr_assert_eq(unlink(below_root(path)), 0);
    wait_for("[]", "KEYS *");
    expect_find("[\"asked\",:0,\"found\",[[]],\"unknown\",[\"ks.*\",\"no filter matches\"]]", "BF.FIND ks.* ITEMS k");
}

/* If maxmemory has no room for another filter, a reloadable filter is evicted; if no eviction can make room, the
 * error says so. */
DAEMON_TEST(the_daemon, sstables, memory_goes_from_one_filter_to_another)
{
    static unsigned char large[8 + 8 * 40000] = {0, 0, 0, 3, 0, 0, 0x9c, 0x40},
                                       huge[8 + 8 * 400000] = {0, 0, 0, 3, 0, 6, 0x1a, 0x80};
    char path[128];
    memset(large + 8, 0xff, sizeof(large) - 8);
    memset(huge + 8, 0xff, sizeof(huge) - 8);
    prepare();
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "data/ks/t-" ID "/nb-%d-big-Filter.db", i);
        write_sstable(path, large, sizeof(large));
    }
    write_sstable("data/ks/huge-" ID "/nb-1-big-Filter.db", huge, sizeof(huge));
    start();
    expect(client, "+OK", "CONFIG SET maxmemory %lld", client_info(client, "memory", "used_memory") + 900000);
    for (int i = 0; i < 12; i++)
        expect(client, ":1", "BF.EXISTS ks.t/%d k", i % 4);
    expect_find("[\"asked\",:4,\"found\",[:4],\"unknown\",[]]", "BF.FIND COUNT ks.t/* ITEMS k");
    const char *info = client_ask(client, "INFO bf");
    cr_assert(strstr(info, "sstable_filters_broken:0"), "%s", info);
    cr_assert_null(strstr(info, "sstable_filters_evicted:0"), "%s", info);
    expect_error("ks.huge/1", "maxmemory");
    expect(client, "+OK", "CONFIG SET maxmemory 0");
    wait_for(":1", "BF.EXISTS ks.huge/1 k");
}

/* Directories that are made and removed while the daemon runs are watched, too. */
DAEMON_TEST(the_daemon, sstables, directories_come_and_go)
{
    prepare();
    start();
    write_sstable("n/ks/one-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_sstable("n/ks/two-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    wait_for("[\"asked\",:2,\"found\",[:2],\"unknown\",[]]", "BF.FIND COUNT ks.* ITEMS k");
    cr_assert_eq(rename(below_root("n/ks/two-" ID), below_root("two")), 0);
    cr_assert_eq(rename(below_root("two"), below_root("n/ks/three-" ID)), 0);
    wait_for("[\"asked\",:1,\"found\",[:1],\"unknown\",[]]", "BF.FIND COUNT ks.three/* ITEMS k");
    cr_assert_eq(unlink(below_root("n/ks/one-" ID "/nb-1-big-Filter.db")), 0);
    cr_assert_eq(unlink(below_root("n/ks/one-" ID "/nb-1-big-TOC.txt")), 0);
    cr_assert_eq(rmdir(below_root("n/ks/one-" ID)), 0);
    wait_for("[\"ks.three/1\"]", "KEYS *");
}

/* ---- many ---- */

#define MANY 10000

/* No file is read at the start. The goal is a second; a slow machine and sanitizers get more. */
DAEMON_TEST(the_daemon, sstables, ten_thousand_start_at_once)
{
    char path[128];
    prepare();
    write_sstable("first/nb-1-big-Filter.db", na_file, sizeof(na_file));
    for (int i = 0; i < MANY; i++) { /* links: separate files take a minute on a busy disk */
        snprintf(path, sizeof(path), "data/ks/t%d-" ID "/nb-%d-big-Filter.db", i / 500, i);
        link_to_first(path);
    }
    cr_assert_eq(rename(below_root("first"), below_root("../first")), 0);
    start();
    double took = daemon_seconds();
    fprintf(stderr, "%d filters of SSTables: the start took %.2f s\n", MANY, took);
    cr_assert_lt(took, 20);
    const char *info = client_ask(client, "INFO bf");
    cr_assert(strstr(info, "sstable_filters:10000\\x0d\\x0asstable_filters_read:0"), "%s", info);
    expect_find("[\"asked\",:500,\"found\",[:500,:0],\"unknown\",[]]", "BF.FIND COUNT ks.t3/* ITEMS k kk");
    expect_find("[\"asked\",:10000,\"found\",[:10000,:0],\"unknown\",[]]", "BF.FIND COUNT * ITEMS k kk");
    size_t met = 0;
    char cursor[32] = "0";
    do {
        redisReply *reply = redisCommand(client, "SCAN %s COUNT 1000", cursor);
        snprintf(cursor, sizeof(cursor), "%s", reply->element[0]->str);
        met += reply->element[1]->elements;
        freeReplyObject(reply);
    } while (strcmp(cursor, "0") != 0);
    cr_assert_eq(met, MANY);
}

/* ---- files of real tables ---- */

struct real_file {
    char dir[300];
    char version[8], format[24];
    char path[300]; /* below the root */
    char words[64]; /* the pattern of its name */
};

/* The layout of the version's database: names with keyspace and table before 2.2, directories with an id since 2.1,
 * generations that are numbers or UUIDs. */
static void lay_out(struct real_file *file, unsigned n)
{
    size_t len;
    char path[400], id[64] = "";
    unsigned char *meta = golden_file(&len, "%s/meta.json", file->dir);
    golden_json_string((const char *)meta, "sstable_version", file->version, sizeof(file->version));
    golden_json_string((const char *)meta, "sstable_format", file->format, sizeof(file->format));
    free(meta);
    bool legacy = strncmp(file->format, "legacy", 6) == 0;
    if (!legacy || strcmp(file->version, "ka") >= 0)
        snprintf(id, sizeof(id), "-5a1c395e5a1c395e5a1c395e%08x", n);
    if (legacy)
        snprintf(path, sizeof(path), "data/real/t%u%s/real-t%u-%s-%u-Filter.db", n, id, n, file->version, n);
    else if (n % 2)
        snprintf(path, sizeof(path), "data/real/t%u%s/%s-%u-%s-Filter.db", n, id, file->version, n, file->format);
    else
        snprintf(path, sizeof(path), "data/real/t%u%s/%s-3ga6_0000_2gi3k2r1azcv9tdwfk-%s-Filter.db", n, id,
                 file->version, file->format);
    snprintf(file->words, sizeof(file->words), "real.t%u/*", n);
    unsigned char *bytes = golden_file(&len, "%s/Filter.db", file->dir);
    write_sstable(path, bytes, len);
    free(bytes);
}

#define ASKED_MAX 400

struct question {
    char *items[ASKED_MAX];
    size_t lens[ASKED_MAX];
    bool present[ASKED_MAX];
    size_t n;
};

static void ask_real(const struct real_file *file, struct question *question)
{
    const char *words[ASKED_MAX + 3] = {"BF.FIND", file->words, "ITEMS"};
    size_t lens[ASKED_MAX + 3] = {7, strlen(file->words), 5};
    for (size_t i = 0; i < question->n; i++) {
        words[3 + i] = question->items[i];
        lens[3 + i] = question->lens[i];
    }
    redisReply *reply = redisCommandArgv(client, (int)question->n + 3, words, lens);
    cr_assert(reply && reply->type == REDIS_REPLY_ARRAY, "%s: %s", file->dir, reply ? reply->str : client->errstr);
    cr_assert_eq(reply->element[1]->integer, 1, "%s", file->dir);
    for (size_t i = 0; i < question->n; i++) {
        cr_assert_eq(reply->element[3]->element[i]->elements, question->present[i], "%s, item %zu", file->dir, i);
        free(question->items[i]);
    }
    freeReplyObject(reply);
    question->n = 0;
}

static void add_item(struct question *question, char *hex, bool present)
{
    size_t len = golden_unhex(hex);
    char *copy = malloc(len + 1);
    memcpy(copy, hex, len);
    question->items[question->n] = copy;
    question->lens[question->n] = len;
    question->present[question->n++] = present;
}

static void expect_real(const struct real_file *file)
{
    static struct question question;
    struct golden_lines lines;
    if (file->version[0] < 'i' && strcmp(file->format, "bti") != 0) { /* another hash: it is named, not looked up */
        const char *text = ask("BF.FIND %s ITEMS x", file->words);
        cr_assert(strstr(text, "[\"asked\",:0,\"found\",[[]],\"unknown\",[\"real.t") == text, "%s", text);
        return;
    }
    golden_lines_open(&lines, "%s/keys.hex", file->dir);
    while (golden_lines_next(&lines) && question.n < ASKED_MAX)
        add_item(&question, lines.fields[0], true);
    golden_lines_close(&lines);
    ask_real(file, &question);
    golden_lines_open(&lines, "%s/probes.tsv", file->dir);
    while (golden_lines_next(&lines) && question.n < ASKED_MAX)
        add_item(&question, lines.fields[0], golden_u64(lines.fields[1]));
    golden_lines_close(&lines);
    ask_real(file, &question);
}

/* Each file answers for its table's keys, and for others, like the database that wrote it. */
DAEMON_TEST(the_daemon, sstables, files_of_real_tables_answer_as_their_databases_do)
{
    static struct real_file files[200];
    unsigned n = 0;
    DIR *dir = opendir(BLOOMERY_SHARED_GOLDEN_DIR "/real");
    if (!dir)
        cr_skip_test("no files of public projects here");
    prepare();
    for (const struct dirent *item; (item = readdir(dir)) && n < 200;) {
        if (item->d_name[0] == '.')
            continue;
        snprintf(files[n].dir, sizeof(files[n].dir), "%s/real/%.200s", BLOOMERY_SHARED_GOLDEN_DIR, item->d_name);
        lay_out(&files[n], n);
        n++;
    }
    closedir(dir);
    start();
    for (unsigned i = 0; i < n; i++)
        expect_real(&files[i]);
    cr_assert_gt(n, 60);
}
