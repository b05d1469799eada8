/* The MANIFEST and the log are removed, or the data directory is moved, while the daemon runs. The next save writes the
 * MANIFEST again, and does not count before it has looked for the segments that a start needs. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "log_clients.h"
#include "wait.h"
#include "tmpdir.h"

DAEMON_SUITE_IDLE(the_daemon, lost_files);

static redisContext *client;

#define AT(...) (tmp_path(the_daemon.data, __VA_ARGS__).text)

static void shell(const char *command)
{
    char text[1024];

    snprintf(text, sizeof(text), "cd '%s' && { %s; }", the_daemon.data, command);
    cr_assert_eq(system(text), 0, "%s", text);
}

/* "packed" is in a pack and "alone" in a file, both saved. */
static void begin(const char *appendonly, const char *appendfsync)
{
    const char *const args[] = {"--appendonly", appendonly, "--appendfsync", appendfsync, "--threads", "2", NULL};

    client = client_start(&the_daemon, args);
    expect(client, "+OK", "BF.RESERVE alone 0.001 60000");
    client_add_items(client, "alone", 0, 200);
    client_add_items(client, "packed", 0, 20);
    expect(client, "+OK", "SAVE");
}

static void expect_all(void)
{
    client_expect_items(client, "alone", 0, 200);
    client_expect_items(client, "packed", 0, 20);
    expect(client, ":0", "BF.EXISTS alone never-added");
}

/* All items are there after a kill -9, none in quarantine. */
static void expect_safe(void)
{
    const char *output;

    client = client_after_kill(client, &the_daemon, NULL);
    expect_all();
    cr_assert_not_null(strstr(daemon_output(&the_daemon), "; 0 quarantined"), "%s", daemon_output(&the_daemon));
    client_stop(client, &the_daemon);
    cr_assert_eq(check_tool(&the_daemon, &output), 0, "%s", output);
    daemon_deinit(&the_daemon);
}

/* ---- the MANIFEST ---- */

Test(lost_files, a_manifest_that_was_removed_is_made_again_by_the_next_save)
{
    begin("no", "everysec");
    shell("rm MANIFEST");
    expect(client, "+OK", "SAVE");
    expect_safe();
}

/* A backup of another day, for example. */
Test(lost_files, a_manifest_that_was_replaced_is_made_again_by_the_next_save)
{
    begin("no", "everysec");
    shell("cp MANIFEST older");
    client_add_items(client, "packed", 20, 30);
    expect(client, "+OK", "SAVE");
    shell("mv older MANIFEST");
    expect(client, "+OK", "SAVE");
    client_expect_items(client, "packed", 0, 30);
    expect_safe();
}

/* ---- the log ---- */

/* No add is lost: earlier adds are in the next save, later ones in the segment that it begins. */
static void lose_log(const char *command)
{
    begin("yes", "always");
    client_add_items(client, "packed", 20, 40); /* in the log alone */
    shell(command);
    expect(client, "+OK", "SAVE");
    client_add_items(client, "packed", 40, 60);
    client = client_after_kill(client, &the_daemon, NULL);
    client_expect_items(client, "packed", 0, 60);
    expect_safe();
}

Test(lost_files, a_log_that_was_removed_is_begun_anew_by_the_next_save)
{
    lose_log("rm log/*");
}

Test(lost_files, a_directory_of_the_log_that_was_removed_is_made_again_by_the_next_save)
{
    lose_log("rm -r log");
}

/* The reply of a save, and an end, promise a directory that can be started. */
static void lose_saved_log(const char *command, bool kills)
{
    const char *const args[] = {"--appendonly", "yes", "--appendfsync", "always", "--threads", "2", "--save", "", NULL};

    client = client_start(&the_daemon, args);
    client_add_items(client, "packed", 0, 20);
    expect(client, "+OK", "SAVE");
    shell(command);
    if (kills) {
        expect(client, "+OK", "SAVE");
        client = client_after_kill(client, &the_daemon, NULL);
    } else {
        client = client_after_stop(client, &the_daemon, NULL);
    }
    client_expect_items(client, "packed", 0, 20);
    redisFree(client);
    daemon_deinit(&the_daemon);
}

Test(lost_files, a_save_at_once_after_the_log_was_removed_survives_a_kill)
{
    lose_saved_log("rm log/*", true);
}

Test(lost_files, a_save_at_once_after_the_directory_of_the_log_was_removed_survives_a_kill)
{
    lose_saved_log("rm -r log", true);
}

Test(lost_files, an_end_at_once_after_the_log_was_removed_can_be_started_again)
{
    lose_saved_log("rm log/*", false);
}

Test(lost_files, an_end_at_once_after_the_directory_of_the_log_was_removed_can_be_started_again)
{
    lose_saved_log("rm -r log", false);
}

/* The save is slow, so that the files disappear during the save, after its segment has begun. */
Test(lost_files, a_save_during_which_the_log_is_removed_does_not_count)
{
    int sent = 0;

    begin("yes", "always");
    expect(client, "+OK", "BF.RESERVE slow 0.001 2000000");
    client_add_items(client, "slow", 0, 10);
    expect(client, "+OK", "CONFIG SET save-rate-limit 50kb");
    redisAppendCommand(client, "SAVE");
    while (!sent)
        cr_assert_eq(redisBufferWrite(client, &sent), REDIS_OK);
    wait_until(file_exists(AT("log/00000003.log")));
    shell("rm log/*");
    wait_for_reply(the_daemon.port, "+OK", "CONFIG SET save-rate-limit 0");
    const char *reply = client_reply(client);
    cr_assert(reply[0] == '-' && strstr(reply, "another program has removed it"), "%s", reply);
    wait_for_reply(the_daemon.port, "+OK", "SAVE");
    client = client_after_kill(client, &the_daemon, NULL);
    client_expect_items(client, "slow", 0, 10);
    expect(client, "+OK", "SAVE"); /* else check asks for the file of pending records of the process before */
    expect_safe();
}

/* ---- the directory ---- */

static void move_and_back(const char *appendonly)
{
    char moved[sizeof(the_daemon.data) + 8];
    const char *reply;

    begin(appendonly, "always");
    snprintf(moved, sizeof(moved), "%s-moved", the_daemon.data);
    cr_assert_eq(rename(the_daemon.data, moved), 0);
    wait_until(!strstr(reply = client_ask(client, "SAVE"), "already in progress")); /* the rules save, too */
    cr_assert(reply[0] == '-' && strstr(reply, "moved, removed or replaced"), "%s", reply);
    expect_all();
    cr_assert_eq(rename(moved, the_daemon.data), 0);
    wait_for_reply(the_daemon.port, ":", "BF.ADD packed more");
    wait_for_reply(the_daemon.port, "+OK", "SAVE");
    expect_safe();
}

Test(lost_files, a_directory_that_was_moved_is_used_again_when_it_is_back)
{
    move_and_back("no");
    move_and_back("yes");
}
