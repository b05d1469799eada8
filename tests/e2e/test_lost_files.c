/* Files of the data directory are removed, cut or moved while the daemon runs. A save writes the filters in memory
 * again; until then the daemon refuses unsafe changes, and reports the loss. */
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

/* ---- files of filters ---- */

static void lose(const char *command, const char *says)
{
    begin("no", "everysec");
    shell(command);
    expect(client, "+OK", "SAVE");
    daemon_wait_output(&the_daemon, says);
    expect_safe();
}

Test(lost_files, a_filter_whose_file_was_removed_is_in_the_next_save)
{
    lose("rm filters/*-Filter.db", "-Filter.db is missing: the previous save needs it");
}

Test(lost_files, a_filter_whose_file_was_cut_is_in_the_next_save)
{
    lose("truncate -s 1000 filters/*-Filter.db", "-Filter.db has another length");
}

Test(lost_files, filters_whose_pack_was_removed_are_in_the_next_save)
{
    lose("rm filters/*.pack", ".pack is missing");
}

Test(lost_files, filters_whose_directory_was_removed_are_in_the_next_save)
{
    lose("rm -r filters", ", and 1 more files like it");
}

/* ---- the MANIFEST ---- */

Test(lost_files, a_manifest_that_was_removed_is_noticed_and_made_again)
{
    begin("no", "everysec");
    shell("rm MANIFEST");
    double began = wait_clock();
    daemon_wait_output(&the_daemon, "MANIFEST: has been removed or replaced; saving");
    cr_assert(DAEMON_SANITIZED || wait_clock() < began + 2);
    wait_for_reply(the_daemon.port, "+OK", "SAVE"); /* after the one that runs */
    expect_safe();
}

/* A backup of another day, for example. */
Test(lost_files, a_manifest_that_was_replaced_is_noticed_and_made_again)
{
    begin("no", "everysec");
    shell("cp MANIFEST older");
    client_add_items(client, "packed", 20, 30);
    expect(client, "+OK", "SAVE");
    shell("mv older MANIFEST");
    daemon_wait_output(&the_daemon, "MANIFEST: has been removed or replaced; saving");
    wait_for_reply(the_daemon.port, "+OK", "SAVE");
    client_expect_items(client, "packed", 0, 30);
    expect_safe();
}

/* ---- the log ---- */

/* No add is lost: earlier adds are in the following save, later ones in the new log. */
static void lose_log(const char *appendfsync, const char *command, const char *says)
{
    begin("yes", appendfsync);
    client_add_items(client, "packed", 20, 40); /* in the log alone */
    shell(command);
    double began = wait_clock();
    daemon_wait_output(&the_daemon, says);
    cr_assert(DAEMON_SANITIZED || wait_clock() < began + 2);
    wait_for_reply(the_daemon.port, ":", "BF.ADD packed item:40");
    client_add_items(client, "packed", 41, 60);
    client = client_after_kill(client, &the_daemon, NULL);
    client_expect_items(client, "packed", 0, 60);
    expect_safe();
}

#define REFUSED "has been removed, replaced or cut: its records are in memory only; writes are refused until a save"

Test(lost_files, a_log_that_was_removed_is_noticed_and_begun_anew)
{
    lose_log("always", "rm log/*.log", REFUSED);
}

Test(lost_files, a_log_that_was_removed_under_everysec_is_noticed_and_begun_anew)
{
    lose_log("everysec", "rm log/*.log", REFUSED);
}

Test(lost_files, a_directory_of_the_log_that_was_removed_is_noticed_and_made_again)
{
    lose_log("always", "rm -r log", REFUSED);
}

Test(lost_files, a_log_that_was_cut_is_noticed_and_begun_anew)
{
    lose_log("always", "truncate -s 4200 log/*.log", REFUSED);
}

/* Pending records are only in memory then: so replies wait until they are in the log. */
Test(lost_files, without_the_file_of_pending_records_replies_wait_for_the_disk)
{
    lose_log("everysec", "rm log/*.pending",
             "pending records has been removed: until the next start replies wait for the disk");
}

/* The lost segment is not the current one. */
Test(lost_files, an_older_segment_that_was_removed_is_noticed)
{
    begin("yes", "always");
    client_add_items(client, "packed", 20, 30);
    client = client_after_kill(client, &the_daemon, NULL);
    client_add_items(client, "packed", 30, 40);
    sleep(1); /* both have been seen */
    shell("rm \"log/$(ls log | grep 'log$' | head -n 1)\"");
    daemon_wait_output(&the_daemon, REFUSED);
    wait_for_reply(the_daemon.port, ":", "BF.ADD packed item:40");
    client = client_after_kill(client, &the_daemon, NULL);
    client_expect_items(client, "packed", 0, 41);
    expect_safe();
}

/* Immediately, before the log thread has checked: a reply or an end promises a directory that can be started. */
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

/* The removed directory had the frames that are not in a save yet. */
Test(lost_files, a_save_makes_the_directory_of_the_log_again)
{
    begin("yes", "always");
    client_add_items(client, "packed", 20, 40);
    shell("rm -r log");
    expect(client, "+OK", "SAVE");
    client = client_after_kill(client, &the_daemon, NULL);
    client_expect_items(client, "packed", 0, 40);
    expect_safe();
}

/* The save is slow, so that the files disappear during the save, after its segment has begun. */
Test(lost_files, a_save_during_which_the_log_is_removed_survives_a_kill)
{
    int sent = 0;

    begin("yes", "always");
    expect(client, "+OK", "BF.RESERVE slow 0.001 2000000");
    client_add_items(client, "slow", 0, 10);
    expect(client, "+OK", "CONFIG SET save-rate-limit 1mb");
    redisAppendCommand(client, "SAVE");
    while (!sent)
        cr_assert_eq(redisBufferWrite(client, &sent), REDIS_OK);
    shell("sleep 0.7; rm log/*");
    daemon_wait_output(&the_daemon, REFUSED);
    wait_for_reply(the_daemon.port, "+OK", "CONFIG SET save-rate-limit 0");
    cr_assert_str_eq(client_reply(client), "+OK");
    client = client_after_kill(client, &the_daemon, NULL);
    client_expect_items(client, "slow", 0, 10);
    expect_safe();
}

/* If no save can repair the loss, because the disk is full as well, writers get an error. */
Test(lost_files, writes_are_refused_while_no_save_makes_up_for_a_lost_log)
{
    begin("yes", "always");
    daemon_block_saves(&the_daemon);
    shell("rm log/*.log");
    daemon_wait_output(&the_daemon, "saving failed");
    const char *reply = client_ask(client, "BF.ADD packed more");
    cr_assert(strncmp(reply, "-MISCONF", 8) == 0 && strstr(reply, "has been removed, replaced or cut; a save will"),
              "%s", reply);
    expect_all();
    daemon_unblock_saves(&the_daemon);
    expect(client, "+OK", "SAVE");
    wait_for_reply(the_daemon.port, ":1", "BF.ADD packed more");
    expect_safe();
}

/* ---- the directory ---- */

static void move_and_back(const char *appendonly, const char *says)
{
    char moved[sizeof(the_daemon.data) + 8];

    begin(appendonly, "always");
    snprintf(moved, sizeof(moved), "%s-moved", the_daemon.data);
    cr_assert_eq(rename(the_daemon.data, moved), 0);
    daemon_wait_output(&the_daemon, says);
    const char *reply;
    wait_until(!strstr(reply = client_ask(client, "SAVE"), "already in progress")); /* the rules save, too */
    cr_assert(reply[0] == '-' && strstr(reply, "moved, removed or replaced"), "%s", reply);
    expect_all();
    if (strcmp(appendonly, "yes") == 0) {
        reply = client_ask(client, "BF.ADD packed more");
        cr_assert(strncmp(reply, "-MISCONF", 8) == 0, "%s", reply);
    }
    cr_assert_eq(rename(moved, the_daemon.data), 0);
    wait_for_reply(the_daemon.port, ":", "BF.ADD packed more");
    wait_for_reply(the_daemon.port, "+OK", "SAVE");
    expect_safe();
}

Test(lost_files, a_directory_that_was_moved_is_noticed_and_used_again_when_it_is_back)
{
    move_and_back("no", "the data directory has been moved, removed or replaced, and may be another process's now");
}

Test(lost_files, a_directory_with_a_log_that_was_moved_is_noticed_and_used_again_when_it_is_back)
{
    move_and_back("yes", "so writes are refused");
}
