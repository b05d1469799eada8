/* sstable-dir: names that SSTables share with other filters, and directories that are linked or unreadable. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "http.h"
#include "sstables_rig.h"
#include "wait.h"

TestSuite(sstable_names, .fini = discard, .timeout = 3000);

/* If an own filter and an SSTable's filter have the same name, all commands use the own filter. */
DAEMON_TEST(the_daemon, sstable_names, own_filters_hide_those_of_sstables)
{
    prepare();
    start();
    expect(client, ":1", "BF.ADD ks.t/1 own");
    write_sstable("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_sstable("data/ks/t-" ID "/nb-2-big-Filter.db", na_file, sizeof(na_file));
    wait_for(":3", "DBSIZE");
    expect(client, "[:1,:0]", "BF.MEXISTS ks.t/1 own k");
    expect(client, "[:0,:1]", "BF.MEXISTS ks.t/2 own k");
    expect(client, "-Invalid information value", "BF.INFO ks.t/1 FILE");
    expect(client, ":2", "EXISTS ks.t/1 ks.t/2");
    expect(client, "[\"ks.t/1\",\"ks.t/2\"]", "KEYS *");
    expect(client, "[\"ks.t/1\"]", "KEYS ks.t/1");
    expect(client, "[\"ks.t/1\"]", "KEYS *1");
    expect(client, "[\"0\",[\"ks.t/1\",\"ks.t/2\"]]", "SCAN 0 MATCH ks.t/*");
    expect(client, "[\"281474976710656\",[\"ks.t/1\"]]", "SCAN 0");
    expect_has(client, "db0:keys=3,", "INFO keyspace");
    bool drawn[2] = {false};
    for (int i = 0; i < 1000 && !(drawn[0] && drawn[1]); i++)
        drawn[strcmp(client_ask(client, "RANDOMKEY"), "\"ks.t/1\"") == 0] = true;
    cr_expect(drawn[0] && drawn[1]);
    expect_find("[\"asked\",:2,\"found\",[[\"ks.t/1\"],[\"ks.t/2\"]],\"unknown\",[]]", "BF.FIND * ITEMS own k");
    expect(client, ":0", "BF.ADD ks.t/1 own");
    expect(client, ":1", "DEL ks.t/1");
    expect(client, "[:0,:1]", "BF.MEXISTS ks.t/1 own k");
    expect(client, ":2", "DBSIZE");
    cr_expect(strncmp(client_ask(client, "DEL ks.t/1"), "-READONLY", 9) == 0);
}

/* Commands that would hide an SSTable's filter are refused, from any database. */
DAEMON_TEST(the_daemon, sstable_names, filters_of_other_databases_do_not_hide_them)
{
    prepare();
    write_sstable("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    start();
    expect(client, "+OK", "SELECT 1");
    expect(client, ":1", "BF.ADD ks.t/1 own");
    expect(client, "-READONLY 'ks.t/1' is the filter of an SSTable, which is read-only", "MOVE ks.t/1 0");
    expect(client, "-READONLY 'ks.t/1' is the filter of an SSTable, which is read-only", "COPY ks.t/1 ks.t/1 DB 0");
    expect(client, "-READONLY 'ks.t/1' is the filter of an SSTable, which is read-only",
           "COPY ks.t/1 ks.t/1 DB 0 REPLACE");
    expect(client, ":1", "COPY ks.t/1 ks.t/2 DB 0");
    expect(client, ":1", "MOVE ks.t/1 2");
    expect(client, "+OK", "SELECT 0");
    expect(client, "[:1,:0]", "BF.MEXISTS ks.t/1 k own");
    expect(client, "[:0,:1]", "BF.MEXISTS ks.t/2 k own");
}

#define BOTH 300

/* A name that exists throughout a SCAN is returned, also if its SSTable appears after the SCAN has begun. */
DAEMON_TEST(the_daemon, sstable_names, scan_meets_each_name)
{
    char cursor[32] = "0", path[128];
    int met[2 * BOTH] = {0}, written = 0;
    prepare();
    start();
    for (int i = 0; i < BOTH; i++)
        redisAppendCommand(client, "BF.RESERVE ks.t/%d 0.01 10", i);
    client_skip(client, BOTH);
    do {
        redisReply *reply = redisCommand(client, "SCAN %s COUNT 10", cursor);
        snprintf(cursor, sizeof(cursor), "%s", reply->element[0]->str);
        for (size_t i = 0; i < reply->element[1]->elements; i++)
            met[atoi(reply->element[1]->element[i]->str + strlen("ks.t/"))]++;
        freeReplyObject(reply);
        for (; written < 2 * BOTH; written += 2) { /* half of the names have own filters, too */
            snprintf(path, sizeof(path), "data/ks/t-" ID "/nb-%d-big-Filter.db", written);
            write_sstable(path, na_file, sizeof(na_file));
        }
        wait_for(":600", "DBSIZE");
    } while (strcmp(cursor, "0") != 0);
    for (int i = 0; i < 2 * BOTH; i++)
        cr_expect_eq(met[i], (i < BOTH) + (i % 2 == 0), "ks.t/%d was met %d times", i, met[i]);
    redisReply *keys = redisCommand(client, "KEYS ks.t/*");
    cr_assert_eq(keys->elements, 450);
    for (size_t i = 1; i < keys->elements; i++)
        cr_assert_lt(strcmp(keys->element[i - 1]->str, keys->element[i]->str), 0, "in order, each once");
    freeReplyObject(keys);
}

/* ---- names shared by several files ---- */

/* Asserts the file of a name, in quotes. */
static void expect_file(const char *name, const char *path)
{
    char expected[900];
    snprintf(expected, sizeof(expected), "[\"%s/%s\"]", root, path);
    expect(client, expected, "BF.INFO %s FILE", name);
}

static const char *with_path(const char *name, const char *path)
{
    static char text[900];
    snprintf(text, sizeof(text), "%s#%s/%s", name, root, path);
    return text;
}

static void expect_two_nodes(void)
{
    wait_for(":2", "DBSIZE");
    expect_file(with_path("ks.t/1", "a/ks/t-" ID "/nb-1-big"), "a/ks/t-" ID "/nb-1-big-Filter.db");
    expect_file(with_path("ks.t/1", "b/ks/t-" ID "/me-1-big"), "b/ks/t-" ID "/me-1-big-Filter.db");
    expect_find("[\"asked\",:2,\"found\",[:2],\"unknown\",[]]", "BF.FIND COUNT ks.t/* ITEMS k");
    expect_find("[\"asked\",:0,\"found\",[[]],\"unknown\",[\"ks.t/1\",\"not found\"]]", "BF.FIND ks.t/1 ITEMS k");
    expect_has(client, "ERR several SSTables have this name", "BF.EXISTS ks.t/1 k");
    expect_has(client, "ERR several SSTables have this name", "BF.MEXISTS ks.t/1 k l");
    expect(client, ":0", "BF.EXISTS ks.t/2 k");
}

/* The same table of two nodes, with files that arrive in any order, before the start or after it: a name leads to
 * the same file each time. A single file has the plain name. */
DAEMON_TEST(the_daemon, sstable_names, of_several_files_follow_from_their_paths)
{
    char dirs[1200];
    prepare();
    write_sstable("b/ks/t-" ID "/me-1-big-Filter.db", me_file, sizeof(me_file));
    snprintf(dirs, sizeof(dirs), "%s/a/:%s/b", root, root);
    const char *const args[] = {"--sstable-dir", dirs, NULL};
    client = client_start(&the_daemon, args);
    wait_scanned();
    expect_file("ks.t/1", "b/ks/t-" ID "/me-1-big-Filter.db");
    expect(client, ":1", "BF.EXISTS ks.t/1 k");
    write_sstable("a/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    expect_two_nodes();
    client = client_after_stop(client, &the_daemon, NULL);
    wait_scanned();
    expect_two_nodes();
    cr_assert_eq(unlink(below_root("b/ks/t-" ID "/me-1-big-Filter.db")), 0);
    wait_for("[\"ks.t/1\"]", "KEYS *");
    expect_file("ks.t/1", "a/ks/t-" ID "/nb-1-big-Filter.db");
    write_filter("b/ks/t-" ID "/me-1-big-Filter.db", me_file, sizeof(me_file));
    expect_two_nodes();
    cr_assert_eq(unlink(below_root("a/ks/t-" ID "/nb-1-big-Filter.db")), 0);
    wait_for("[\"ks.t/1\"]", "KEYS *");
    expect_file("ks.t/1", "b/ks/t-" ID "/me-1-big-Filter.db");
}

/* A moved SSTable keeps its name. */
DAEMON_TEST(the_daemon, sstable_names, stay_when_a_file_is_moved)
{
    prepare();
    write_sstable("data/ks/t-" ID "/staging/me-4-big-Filter.db", me_file, sizeof(me_file));
    start();
    expect(client, ":1", "BF.EXISTS ks.t/4 k");
    static const char *const parts[] = {"Filter.db", "TOC.txt"};
    for (int i = 0; i < 2; i++) {
        char from[100], to[100];
        snprintf(from, sizeof(from), "data/ks/t-" ID "/staging/me-4-big-%s", parts[i]);
        snprintf(to, sizeof(to), "data/ks/t-" ID "/me-4-big-%s", parts[i]);
        cr_assert_eq(rename(below_root(from), below_root(to)), 0);
        expect_find("[\"asked\",:1,\"found\",[:1],\"unknown\",[]]", "BF.FIND COUNT ks.t/* ITEMS k");
    }
    char expected[900];
    snprintf(expected, sizeof(expected), "[\"%s\"]", below_root("data/ks/t-" ID "/me-4-big-Filter.db"));
    wait_for(expected, "BF.INFO ks.t/4 FILE");
    wait_for("[\"ks.t/4\"]", "KEYS *");
}

#define NODES 3000

/* Many backups of one table below a directory. Each file costs the same as a single file. */
DAEMON_TEST(the_daemon, sstable_names, of_very_many_files_cost_no_more)
{
    char path[128];
    prepare();
    write_sstable("first/nb-1-big-Filter.db", na_file, sizeof(na_file));
    for (int i = 0; i < NODES; i++) {
        snprintf(path, sizeof(path), "node%d/ks/t-" ID "/nb-1-big-Filter.db", i);
        link_to_first(path);
    }
    cr_assert_eq(rename(below_root("first"), below_root("../first")), 0);
    start();
    double took = daemon_seconds();
    fprintf(stderr, "%d files of one name: the start took %.2f s\n", NODES, took);
    cr_assert_lt(took, 10); /* with sanitizers, too */
    wait_for(":3000", "DBSIZE");
    expect_find("[\"asked\",:3000,\"found\",[:3000,:0],\"unknown\",[]]", "BF.FIND COUNT ks.t/1#* ITEMS k kk");
    cr_assert_eq(rename(below_root("node7"), below_root("../node7")), 0);
    wait_for(":2999", "DBSIZE");
}

/* A symbolic link that leads back to a parent is not followed. */
DAEMON_TEST(the_daemon, sstable_names, links_in_a_circle_end)
{
    prepare();
    write_sstable("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    cr_assert_eq(symlink("..", below_root("data/ks/again")), 0);
    cr_assert_eq(symlink("data/ks", below_root("elsewhere")), 0);
    start();
    expect(client, "[\"elsewhere.t/1\",\"ks.t/1\"]", "KEYS *"); /* each path to it once */
}

/* As a user without the right to read everything. */
static void start_as_nobody(void)
{
    enum { NOBODY = 65534 };
    bool root_user = geteuid() == 0;
    cr_assert_eq(chmod(the_daemon.dir, 0777), 0);
    if (root_user)
        cr_assert_eq(setresuid(NOBODY, NOBODY, 0), 0);
    start();
    if (root_user)
        cr_assert_eq(setresuid(0, 0, 0), 0);
}

static void expect_readiness(int status)
{
    struct http_reply reply;
    http_get(the_daemon.web_port, "/readyz", "", &reply);
    cr_expect_eq(reply.status, status, "%s", reply.body);
    http_free(&reply);
}

/* The log names what cannot be read, and while there is such a thing, no name and no pattern is denied. All is read
 * when this is permitted; files moved away meanwhile are gone. */
DAEMON_TEST(the_daemon, sstable_names, permissions_come_later)
{
    static const char *const file = "data/ks/t-" ID "/nb-1-big-Filter.db", *const closed = "data/ks/closed-" ID,
                             *const halfway = "data/ks/half-" ID;
    prepare();
    the_daemon.with_web = true;
    write_sstable(file, na_file, sizeof(na_file));
    write_sstable("data/ks/closed-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_sstable("data/ks/half-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    write_sstable("data/ks/moved-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    cr_assert_eq(chmod(below_root(file), 0), 0);
    cr_assert_eq(chmod(below_root(closed), 0), 0);
    cr_assert_eq(chmod(below_root(halfway), 0444), 0); /* its names can be read, and nothing else */
    start_as_nobody();
    daemon_wait_output(&the_daemon, "closed-" ID ": Permission denied; the next scan is in 10 s");
    expect_has(client, "nb-1-big-Filter.db: Permission denied", "BF.EXISTS ks.t/1 k");
    expect(client, "[\"ks.moved/1\",\"ks.t/1\"]", "KEYS *");
    expect_has(client, "TRYAGAIN sstable-dir cannot be searched completely (2): ", "BF.EXISTS ks.closed/1 k");
    expect_has(client, "TRYAGAIN sstable-dir cannot", "BF.MEXISTS ks.half/1 k");
    expect_has(client, "\"unknown\",[\"ks.closed/*\",\"sstable-dir cannot", "BF.FIND ks.closed/* ITEMS k");
    expect_has(client, "\"unknown\",[\"ks.half/1\",\"sstable-dir cannot", "BF.FIND ks.half/1 ITEMS k");
    expect(client, ":0", "BF.EXISTS own k"); /* no SSTable has such a name */
    cr_expect_eq(client_info(client, "bf", "sstable_dirs_unreachable"), 2);
    expect_readiness(503);
    cr_assert_eq(rename(below_root("data/ks/moved-" ID), below_root("../moved")), 0);
    wait_for("[\"ks.t/1\"]", "KEYS *");
    cr_assert_eq(chmod(below_root(file), 0644), 0);
    cr_assert_eq(chmod(below_root(closed), 0755), 0);
    cr_assert_eq(chmod(below_root(halfway), 0755), 0);
    wait_for(":1", "BF.EXISTS ks.t/1 k");
    wait_for(":1", "BF.EXISTS ks.closed/1 k");
    wait_for(":1", "BF.EXISTS ks.half/1 k");
    wait_for("[\"asked\",:0,\"found\",[[]],\"unknown\",[\"ks.u/*\",\"no filter matches\"]]", "BF.FIND ks.u/* ITEMS k");
    expect_readiness(200);
}

/* SSTables of a later format may have any key; a directory that is too deep, too. */
DAEMON_TEST(the_daemon, sstable_names, what_cannot_be_looked_at_is_not_denied)
{
    char deep[200] = "";
    prepare();
    write_sstable("data/ks/t-" ID "/nb-1-big-Filter.db", na_file, sizeof(na_file));
    start();
    expect(client, ":0", "BF.EXISTS ks.t/2 k");
    write_data("data/ks/t-" ID "/xx-2-foo-Data.db");
    wait_until(client_info(client, "bf", "sstable_dirs_unreachable") == 1);
    expect_has(client, "not the name of an SSTable of a known format", "BF.EXISTS ks.t/2 k");
    expect_find("[\"asked\",:1,\"found\",[[\"ks.t/1\"]],\"unknown\",[]]", "BF.FIND ks.t/1 ITEMS k");
    cr_assert_eq(unlink(below_root("data/ks/t-" ID "/xx-2-foo-Data.db")), 0);
    wait_for(":0", "BF.EXISTS ks.t/2 k");
    for (int i = 0; i < 18; i++)
        strcat(deep, "d/");
    make_directories(below_root(deep));
    wait_until(client_info(client, "bf", "sstable_dirs_unreachable") == 1);
    expect_has(client, "Too many levels of symbolic links", "BF.EXISTS ks.t/2 k");
}
