/* Data directories that are damaged, used by another daemon, or have foreign files. Every filter has its own files.
 * test_directory.c has starts on all states of a directory. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "log_clients.h"
#include "tmpdir.h"
#include "wait.h"

DAEMON_SUITE(daemon_under_test, damage, "--appendonly", "no", "--save-pack-limit", "0");

static struct daemon_layer bad; /* the file of the filter of this name */
#define PORT (daemon_under_test.port)

#define AT(name) (tmp_path(daemon_under_test.data, "%s", name).text)
#define BAD      (bad.path)

static void save_two(void)
{
    redisContext *client = client_open(PORT);
    client_add_items(client, "good", 0, 50);
    client_add_items(client, "bad", 0, 50);
    expect(client, "+OK", "SAVE");
    client_kill(client, &daemon_under_test);
    bad = daemon_layer(&daemon_under_test, "bad", 0);
}

/* After a restart: commands on 'bad' report the damage, 'good' serves, a save changes none of this, and deleting
 * 'bad' frees the name. */
static void expect_quarantined(const char *reason)
{
    redisContext *client = client_restart(&daemon_under_test);
    client_expect_items(client, "good", 0, 50);
    static const char *const commands[] = {"BF.EXISTS bad item:1", "BF.ADD bad new",        "BF.MEXISTS bad a b",
                                           "BF.MADD bad a b",      "BF.INSERT bad ITEMS a", "BF.INFO bad",
                                           "BF.CARD bad",          "RENAME bad other"};
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        const char *reply = client_ask(client, commands[i]);
        cr_expect(reply[0] == '-' && strstr(reply, "quarantined") && strstr(reply, bad.file) && strstr(reply, reason),
                  "%s: %s", commands[i], reply);
    }
    expect(client, ":2", "DBSIZE");
    expect(client, "-ERR item exists", "BF.RESERVE bad 0.01 100");
    expect(client, "+OK", "CONFIG SET quarantined-filters maybe");
    expect(client, ":1", "BF.EXISTS bad whatever");
    expect(client, "[:1,:1]", "BF.MEXISTS bad whatever item:1");
    expect(client, "+OK", "CONFIG SET quarantined-filters error");
    expect(client, "+OK", "SAVE");
    client = client_after_kill(client, &daemon_under_test, NULL);
    cr_expect_not_null(strstr(client_ask(client, "BF.CARD bad"), reason), "a save has touched it");
    expect(client, ":1", "DEL bad");
    expect(client, ":1", "BF.ADD bad new");
    expect(client, "+OK", "SAVE");
    client = client_after_kill(client, &daemon_under_test, NULL);
    expect(client, ":1", "BF.EXISTS bad new");
    expect(client, ":1", "BF.CARD bad");
    client_expect_items(client, "good", 0, 50);
    redisFree(client);
}

DAEMON_TEST(daemon_under_test, damage, missing_file)
{
    save_two();
    cr_assert_eq(unlink(BAD), 0);
    expect_quarantined("missing");
}

static void change_size(long by, const char *reason)
{
    size_t len;
    save_two();
    free(file_read(BAD, &len));
    file_truncate(BAD, (size_t)((long)len + by));
    expect_quarantined(reason);
}

DAEMON_TEST(daemon_under_test, damage, truncated_file)
{
    change_size(-8, "truncated: ");
}

DAEMON_TEST(daemon_under_test, damage, enlarged_file)
{
    change_size(8, "8 bytes behind the");
}

DAEMON_TEST(daemon_under_test, damage, flipped_bit)
{
    save_two();
    file_flip_bit(BAD, 8 * 20 + 2);
    expect_quarantined("checksum");
}

/* An untrustworthy MANIFEST stops the start with an error that names it; nothing is changed. */
DAEMON_TEST(daemon_under_test, damage, damaged_manifest)
{
    const char *output;
    size_t len;
    save_two();
    unsigned char *half = file_read(AT("MANIFEST"), &len);
    len /= 2;
    file_truncate(AT("MANIFEST"), len);
    const char *const args[] = {"--port", "0", "--unixsocket", "never.sock", "--dir", daemon_under_test.data, NULL};
    cr_expect_neq(daemon_run(args, NULL, &output), 0);
    cr_expect_not_null(strstr(output, "MANIFEST"), "%s", output);
    cr_expect(file_is(AT("MANIFEST"), half, len));
    free(half);
}

/* `bloomery check` names every damaged filter, and changes nothing. */
DAEMON_TEST(daemon_under_test, damage, the_tool_says_what_is_damaged)
{
    const char *output;
    size_t len;
    save_two();
    cr_assert_eq(check_tool(&daemon_under_test, &output), 0, "%s", output);
    cr_assert(strstr(output, "files: 2 whole, 0 damaged or missing") && strstr(output, "\nwhole\n"), "%s", output);
    unsigned char *bytes = file_read(BAD, &len);
    file_flip_bit(BAD, 8 * 20 + 2);
    cr_assert_eq(check_tool(&daemon_under_test, &output), 1, "%s", output);
    cr_assert(strstr(output, "damaged: filter 'bad', id 2: ") && strstr(output, ": checksum is ") &&
                  strstr(output, "files: 1 whole, 1 damaged or missing") && strstr(output, "not whole\n"),
              "%s", output);
    file_write(BAD, bytes, len - 8);
    cr_assert_eq(check_tool(&daemon_under_test, &output), 1, "%s", output);
    cr_assert(strstr(output, "damaged: filter 'bad', id 2: ") && strstr(output, " bytes expected, "), "%s", output);
    cr_assert(file_is(BAD, bytes, len - 8));
    cr_assert_eq(unlink(BAD), 0);
    cr_assert_eq(check_tool(&daemon_under_test, &output), 1, "%s", output);
    cr_assert(strstr(output, "damaged: filter 'bad', id 2: ") && strstr(output, "No such file"), "%s", output);
    file_write(BAD, bytes, len);
    cr_assert_eq(check_tool(&daemon_under_test, &output), 0, "%s", output);
    free(bytes);
    file_change_byte(AT("MANIFEST"), -20);
    cr_assert_eq(check_tool(&daemon_under_test, &output), 1, "%s", output);
    cr_assert(strstr(output, "damaged: ") && strstr(output, "MANIFEST"), "%s", output);
    cr_assert_eq(unlink(AT("MANIFEST")), 0);
    cr_assert_eq(check_tool(&daemon_under_test, &output), 1, "%s", output);
    cr_assert(strstr(output, "MANIFEST: No such file"), "%s", output);
}

/* Two daemons do not work on one directory. */
DAEMON_TEST(daemon_under_test, damage, second_daemon_is_refused)
{
    const char *output;
    const char *const args[] = {"--port", "0", "--unixsocket", "never.sock", "--dir", daemon_under_test.data, NULL};
    cr_expect_neq(daemon_run(args, NULL, &output), 0);
    char pid[16];
    sprintf(pid, "%d", (int)daemon_under_test.pid);
    cr_expect_not_null(strstr(output, pid), "the refusal should say who holds the directory: %s", output);
}

/* A file that the daemon did not make is not overwritten, whatever its name. */
CLIENT_TEST(daemon_under_test, damage, foreign_file_is_not_overwritten)
{
    for (int i = 1; i < 10; i++)
        file_write(tmp_path(daemon_under_test.data, "filters/na-%d-big-Filter.db", i).text, "precious", 8);
    cr_assert_eq(mkdir(AT("filters/mine"), 0755), 0);
    client_add_items(client, "mine", 0, 10);
    client_add_items(client, "other", 0, 10);
    cr_expect_str_eq(client_ask(client, "SAVE"), "+OK");
    for (int i = 1; i < 10; i++)
        cr_expect(file_is(tmp_path(daemon_under_test.data, "filters/na-%d-big-Filter.db", i).text, "precious", 8));
    client = client_after_kill(client, &daemon_under_test, NULL);
    client_expect_items(client, "other", 0, 10);
    client_expect_items(client, "mine", 0, 10);
}

/* The directory is removed under a daemon, and another daemon creates it again: the first writes nothing into it,
 * neither files nor a log segment. */
static void replace_directory(const char *appendonly)
{
    static struct daemon other;
    char moved[600];

    daemon_kill(&daemon_under_test);
    const char *const first[] = {"--appendonly", appendonly, "--appendfsync", "always", "--save-pack-limit", "0", NULL};
    redisContext *client = client_start(&daemon_under_test, first);
    client_add_items(client, "mine", 0, 10);
    expect(client, "+OK", "SAVE");
    client_add_items(client, "mine", 10, 20);
    snprintf(moved, sizeof(moved), "%s-moved", daemon_under_test.data);
    cr_assert_eq(rename(daemon_under_test.data, moved), 0);
    daemon_prepare(&other);
    const char *const args[] = {"--dir", daemon_under_test.data, "--appendfsync", "always", NULL};
    redisContext *second = client_start(&other, args);
    client_add_items(second, "theirs", 0, 20);
    expect(second, "+OK", "SAVE");
    const char *reply;
    wait_until(!strstr(reply = client_ask(client, "SAVE"), "already in progress")); /* a save by the rules may run */
    bool log = strcmp(appendonly, "yes") == 0;
    cr_assert(reply[0] == '-' && strstr(reply, log ? "has been moved, removed or replaced"
                                                   : "LOCK: not the file that this process has locked"),
              "%s", reply);
    reply = client_ask(client, "BF.ADD mine more");
    cr_assert(!log || strstr(reply, "MISCONF"), "%s", reply);
    client_expect_items(client, "mine", 0, 20);
    client_add_items(second, "theirs", 20, 30);
    client_kill(client, &daemon_under_test);
    second = client_after_kill(second, &other, args);
    client_expect_items(second, "theirs", 0, 30);
    expect(second, ":1", "DBSIZE");
    redisFree(second);
    daemon_discard(&other);
}

DAEMON_TEST(daemon_under_test, damage, a_directory_that_another_daemon_has_made_anew_is_not_saved_to)
{
    replace_directory("no");
}

DAEMON_TEST(daemon_under_test, damage, a_directory_that_another_daemon_has_made_anew_gets_no_segment_of_the_log)
{
    replace_directory("yes");
}
