/* The log with the real daemon: the state after its end, waiting for the disk, failures of the disk, and every state
 * of the log at a start. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
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

DISK_SUITE(daemon_under_test, log_daemon);
#define PORT (daemon_under_test.port)

static const char *const always[] = {"--appendfsync", "always", NULL};

/* ---- logged changes ---- */

/* Every kind of change of a filter, then kill -9. */
DAEMON_TEST(daemon_under_test, log_daemon, all_that_happens_to_filters_survives)
{
    redisContext *client = client_start(&daemon_under_test, always);
    expect(client, "+OK", "BF.RESERVE made 0.001 10 EXPANSION 4");
    for (int i = 0; i < 200; i++)
        client_ask(client, "BF.ADD made item:%d", i);
    expect(client, "[:1,:1,:0]", "BF.MADD auto a b a");
    expect(client, ":1", "BF.ADD gone x");
    expect(client, ":1", "DEL gone");
    expect(client, ":1", "BF.ADD old x");
    expect(client, "+OK", "RENAME old new");
    expect(client, ":1", "BF.ADD new y");
    expect(client, ":1", "BF.ADD over1 x");
    expect(client, ":1", "BF.ADD over2 y");
    expect(client, "+OK", "RENAME over1 over2");
    expect(client, ":1", "BF.ADD timed x");
    expect(client, ":1", "PEXPIREAT timed 95617584000000");
    expect(client, ":1", "BF.ADD short x");
    expect(client, ":1", "PEXPIRE short 1");
    expect(client, ":1", "BF.ADD copied x");
    expect(client, ":1", "COPY copied copy");
    expect(client, ":1", "BF.ADD copy z");
    expect(client, "[:1,:1]", "BF.MADD cleared a b");
    expect(client, "+OK", "BF.CLEAR cleared");
    expect(client, ":1", "BF.ADD cleared c");
    expect(client, "+OK", "BF.MERGE copied copied auto");
    char made[512];
    snprintf(made, sizeof(made), "%s", client_ask(client, "BF.INFO made"));
    for (int again = 0; again < 3; again++) {
        client = client_after_kill(client, &daemon_under_test, NULL);
        expect(client, made, "BF.INFO made");
        for (int i = 0; i < 200; i++)
            expect(client, ":1", "BF.EXISTS made item:%d", i);
        expect(client, ":2", "BF.CARD auto");
        expect(client, ":0", "EXISTS gone old over1 short");
        expect(client, "[:1,:1]", "BF.MEXISTS new x y");
        expect(client, "[:1,:0]", "BF.MEXISTS over2 x y");
        expect(client, ":95617584000000", "PEXPIRETIME timed");
        expect(client, "[:1,:1]", "BF.MEXISTS copy x z");
        expect(client, ":2", "BF.CARD copy");
        expect(client, "[:0,:0,:1]", "BF.MEXISTS cleared a b c");
        expect(client, "[:1,:1,:1]", "BF.MEXISTS copied x a b");
        if (again == 0) /* the start may be saving because of expired filters */
            wait_for_reply(PORT, "+OK", "SAVE");
    }
    expect(client, "+OK", "FLUSHALL");
    expect(client, ":1", "BF.ADD after x");
    client = client_after_kill(client, &daemon_under_test, NULL);
    expect(client, "[\"after\"]", "KEYS *");
}

/* Ids are not used twice, or adds to a deleted filter would come back in another one. */
DAEMON_TEST(daemon_under_test, log_daemon, a_deleted_filter_does_not_come_back_in_the_next)
{
    redisContext *client = client_start(&daemon_under_test, always);
    for (int i = 0; i < 100; i++)
        client_ask(client, "BF.ADD f old:%d", i);
    expect(client, ":1", "DEL f");
    client = client_after_kill(client, &daemon_under_test, NULL);
    expect(client, ":1", "BF.ADD f new");
    client = client_after_kill(client, &daemon_under_test, NULL);
    expect(client, ":1", "BF.CARD f");
    for (int i = 0; i < 100; i++)
        client_ask(client, "BF.EXISTS f old:%d", i);
    expect(client, ":0", "BF.EXISTS f old:7");
}

/* A save cuts the log, and a large log causes a save. */
DAEMON_TEST(daemon_under_test, log_daemon, a_large_log_is_cut)
{
    const char *const args[] = {"--auto-aof-rewrite-min-size", "100kb", "--auto-aof-rewrite-percentage", "1", NULL};
    daemon_start(&daemon_under_test, args);
    struct writers *w = calloc(1, sizeof(*w));
    w->limit = 6400;
    writers_start(w, PORT, 4, 64);
    writers_join(w);
    daemon_wait_output(&daemon_under_test, "the log has grown enough");
    wait_for_reply(PORT, "+OK", "SAVE");
    cr_assert_lt(info_number(PORT, "persistence", "aof_current_size"), 100 * 1024);
    cr_assert_geq(info_number(PORT, "persistence", "aof_rewrites"), 1);
    daemon_kill(&daemon_under_test);
    daemon_restart(&daemon_under_test);
    writers_check(w, PORT);
    free(w);
}

/* All conditions of the settings must hold: a percentage is set, the log has grown by it, and it is large. */
DAEMON_TEST(daemon_under_test, log_daemon, a_log_is_cut_only_when_all_settings_say_so)
{
    static const struct {
        const char *size, *percentage;
    } never[] = {{"1gb", "1"}, {"1", "1000000"}, {"1", "0"}};
    const char *const args[] = {"--auto-aof-rewrite-percentage", "0", NULL};
    daemon_start(&daemon_under_test, args);
    struct writers *w = calloc(1, sizeof(*w));
    w->limit = 6400;
    writers_start(w, PORT, 4, 64);
    writers_join(w);
    free(w);
    redisContext *client = client_open(PORT);
    expect(client, "[:1,:0]", "WAITAOF 1 0 0");
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
        expect(client, "+OK", "CONFIG SET auto-aof-rewrite-min-size %s auto-aof-rewrite-percentage %s", never[i].size,
               never[i].percentage);
        usleep(400000); /* it is checked ten times a second */
        cr_assert_eq(info_number(PORT, "persistence", "aof_rewrites"), 0, "%s, %s", never[i].size, never[i].percentage);
        cr_assert_eq(info_number(PORT, "persistence", "rdb_bgsave_in_progress"), 0);
    }
    expect(client, "+OK", "CONFIG SET auto-aof-rewrite-percentage 1");
    daemon_wait_output(&daemon_under_test, "the log has grown enough");
}

/* ---- waiting for the disk ---- */

/* On a disk that takes 20 ms for a sync 50 clients share each one. */
DAEMON_TEST(daemon_under_test, log_daemon, one_sync_serves_many_clients)
{
    disk_attach();
    daemon_start(&daemon_under_test, always);
    atomic_store(&disk->delay_ms, 20);
    struct writers *w = calloc(1, sizeof(*w));
    w->limit = 40;
    writers_start(w, PORT, 50, 1);
    writers_join(w);
    disk_mend();
    long long syncs = info_number(PORT, "persistence", "aof_syncs");
    cr_assert_gt(syncs, 0);
    cr_assert_lt(syncs * 4, 50 * 40, "%lld syncs for 2000 adds", syncs);
    daemon_kill(&daemon_under_test);
    daemon_restart(&daemon_under_test);
    for (int i = 0; i < 50; i++)
        cr_assert_eq(w->acked[i], 40);
    writers_check(w, PORT);
    free(w);
}

/* An item takes at most 28 bytes of log. */
DAEMON_TEST(daemon_under_test, log_daemon, an_item_takes_few_bytes)
{
    const char *const policies[] = {"always", "everysec"};
    for (int i = 0; i < 2; i++) {
        const char *const args[] = {"--appendfsync", policies[i], NULL};
        daemon_start(&daemon_under_test, args);
        struct writers *w = calloc(1, sizeof(*w));
        w->limit = 3200;
        writers_start(w, PORT, 8, 16);
        writers_join(w);
        wait_for_reply(PORT, "[:1", "WAITAOF 1 0 0");
        long long bytes = info_number(PORT, "persistence", "aof_written_bytes");
        cr_assert_leq(bytes, 28 * 8 * 3200, "%lld bytes", bytes);
        daemon_stop(&daemon_under_test);
        daemon_discard(&daemon_under_test);
        free(w);
    }
}

/* ---- a disk that fails ---- */

static void survive_failure(int write_error, int sync_error, const char *text)
{
    disk_attach();
    daemon_start(&daemon_under_test, always);
    redisContext *client = client_open(PORT), *other = client_open(PORT), *queue = client_open(PORT);
    expect(client, ":1", "BF.ADD f before");
    expect(queue, "+OK", "MULTI");
    expect(queue, "+QUEUED", "BF.ADD f refused");
    expect(queue, "+QUEUED", "BF.ADD f refused-too");
    atomic_store(&disk->write_error, write_error);
    atomic_store(&disk->sync_error, sync_error);
    /* The add is accepted before the failure is known: it waits, and is answered when the disk is back. */
    redisAppendCommand(client, "BF.ADD f during");
    int done = 0;
    while (!done)
        cr_assert_eq(redisBufferWrite(client, &done), REDIS_OK);
    /* Not by a write: a write before the failure is known would wait, too. */
    wait_until(strstr(client_ask(other, "INFO persistence"), "aof_last_write_status:err"));
    const char *reply = client_ask(other, "BF.RESERVE g 0.1 10");
    cr_assert(strstr(reply, text) && strncmp(reply, "-MISCONF Errors writing to the AOF file: ", 41) == 0, "%s", reply);
    const char *info = client_ask(other, "INFO persistence"), *line = strstr(info, "aof_last_write_error:");
    cr_assert(line && strstr(line, text) && strstr(line, text) < strstr(line, "\\x0d"), "%s", info);
    expect(other, ":1", "BF.EXISTS f before");
    expect(other, "+PONG", "PING");
    for (int i = 0; i < 3; i++)
        cr_assert(strncmp(client_ask(other, "BF.ADD f refused"), "-MISCONF", 8) == 0);
    /* Earlier queued writes are refused, too; a queue of reads only is run. */
    reply = client_ask(queue, "EXEC");
    cr_assert(strncmp(reply, "-EXECABORT Transaction discarded because of: MISCONF", 52) == 0, "%s", reply);
    expect(queue, "+OK", "MULTI");
    expect(queue, "+QUEUED", "BF.EXISTS f before");
    expect(queue, "+QUEUED", "BF.CARD none");
    expect(queue, "[:1,:0]", "EXEC");
    redisFree(queue);
    disk_mend();
    wait_for_reply(PORT, ":", "BF.ADD f after");
    redisReply *late;
    cr_assert_eq(redisGetReply(client, (void **)&late), REDIS_OK);
    cr_assert(late->type == REDIS_REPLY_INTEGER && late->integer == 1, "%s", late->str ? late->str : "");
    freeReplyObject(late);
    info = client_ask(other, "INFO persistence");
    cr_assert(strstr(info, "aof_last_write_status:ok") && !strstr(info, "aof_last_write_error"), "%s", info);
    redisFree(other);
    client = client_after_kill(client, &daemon_under_test, NULL);
    expect(client, "[:1,:1,:1,:0]", "BF.MEXISTS f before during after refused");
    expect(client, ":3", "BF.CARD f");
    redisFree(client);
    const char *output;
    daemon_stop(&daemon_under_test);
    cr_assert_eq(check_tool(&daemon_under_test, &output), 0, "%s", output);
    daemon_restart(&daemon_under_test);
}

DAEMON_TEST(daemon_under_test, log_daemon, a_full_disk_refuses_writes_and_loses_nothing)
{
    survive_failure(ENOSPC, 0, "No space left on device");
}

DAEMON_TEST(daemon_under_test, log_daemon, a_failing_sync_refuses_writes_and_loses_nothing)
{
    survive_failure(0, EIO, "Input/output error");
}

/* A hanging sync delays WAITAOF until its timeout and no longer; any number of clients that wait without a timeout
 * delay no other work. */
DAEMON_TEST(daemon_under_test, log_daemon, waitaof_on_a_disk_that_hangs_ends_at_its_timeout)
{
    enum { WAITING = 8 };
    redisContext *waiting[WAITING];
    redisReply *reply = NULL;
    disk_attach();
    redisContext *client = client_start(&daemon_under_test, NULL);
    expect(client, ":1", "BF.ADD f before");
    expect(client, "[:1,:0]", "WAITAOF 1 0 0");
    atomic_store(&disk->hold_syncs, 1);
    expect(client, ":1", "BF.ADD f during");
    expect(client, "[:0,:0]", "WAITAOF 1 0 1");
    expect(client, "[:0,:0]", "WAITAOF 1 1 200");
    for (int i = 0; i < WAITING; i++) {
        waiting[i] = client_open(PORT);
        cr_assert_eq(redisAppendCommand(waiting[i], "WAITAOF 1 0 0"), REDIS_OK);
        for (int done = 0; !done;)
            cr_assert_eq(redisBufferWrite(waiting[i], &done), REDIS_OK);
    }
    wait_until(info_number(PORT, "clients", "blocked_clients") == WAITING);
    expect(client, "[\"f\"]", "KEYS *");
    expect(client, "[:0,:0]", "WAITAOF 1 0 1");
    disk_mend();
    for (int i = 0; i < WAITING; i++) {
        cr_assert_eq(redisGetReply(waiting[i], (void **)&reply), REDIS_OK);
        cr_assert(reply->type == REDIS_REPLY_ARRAY && reply->element[0]->integer == 1);
        freeReplyObject(reply);
        redisFree(waiting[i]);
    }
    client = client_after_kill(client, &daemon_under_test, NULL);
    expect(client, "[:1,:1]", "BF.MEXISTS f before during");
}

/* Without a save rule there is only the log: its missing records are in the file of pending records. */
DAEMON_TEST(daemon_under_test, log_daemon, the_end_leaves_pending_what_a_log_that_fails_lacks)
{
    disk_attach();
    redisContext *client = client_start(&daemon_under_test, NULL);
    expect(client, ":1", "BF.ADD f before");
    expect(client, "[:1,:0]", "WAITAOF 1 0 0");
    atomic_store(&disk->write_error, ENOSPC);
    expect(client, ":1", "BF.ADD f during");
    wait_for_reply(PORT, "-MISCONF", "BF.ADD g x");
    cr_assert_eq(kill(daemon_under_test.pid, SIGTERM), 0);
    redisFree(client);
    daemon_wait(&daemon_under_test);
    cr_assert(strstr(daemon_output(&daemon_under_test), "the file of pending records has the missing changes"), "%s",
              daemon_output(&daemon_under_test));
    disk_mend();
    client = client_restart(&daemon_under_test);
    expect(client, "[:1,:1]", "BF.MEXISTS f before during");
}

/* Nothing has failed before, so the command itself meets the full disk. */
DAEMON_TEST(daemon_under_test, log_daemon, a_copy_that_cannot_be_written_is_refused_like_other_writes)
{
    disk_attach();
    redisContext *client = client_start(&daemon_under_test, NULL);
    expect(client, "+OK", "BF.RESERVE f 0.001 1000000");
    expect(client, ":1", "BF.ADD f x");
    expect(client, "[:1,:0]", "WAITAOF 1 0 0");
    disk_fail(1, DISK_FULL, ENOSPC);
    const char *reply = client_ask(client, "COPY f g");
    cr_assert_eq(strncmp(reply, "-MISCONF ", 9), 0, "%s", reply);
    expect(client, ":0", "EXISTS g");
    disk_mend();
    wait_for_reply(PORT, ":1", "COPY f g");
    client = client_after_kill(client, &daemon_under_test, NULL);
    expect(client, ":1", "BF.EXISTS g x");
    redisFree(client);
}

/* Changes of filters come faster than the disk takes them: clients wait, memory does not grow. */
DAEMON_TEST(daemon_under_test, log_daemon, changes_wait_for_a_slow_disk)
{
    enum { NAME = 60000, BATCH = 200 };
    disk_attach();
    redisContext *client = client_start(&daemon_under_test, NULL);
    char *names[2];
    for (int i = 0; i < 2; i++) {
        names[i] = malloc(NAME + 1);
        memset(names[i], 'a' + i, NAME);
        names[i][NAME] = '\0';
    }
    expect(client, "+OK", "BF.RESERVE f 0.01 10");
    expect(client, "+OK", "RENAME f %s", names[0]);
    double until = wait_clock() + WAIT_PATIENCE_S;
    /* Ever slower: on a busy machine the changes may come too slowly for the disk before. */
    for (int delay_ms = DAEMON_SANITIZED ? 5000 : 500; info_number(PORT, "persistence", "aof_delayed_fsync") == 0;
         delay_ms += 100) {
        cr_assert_lt(wait_clock(), until, "nobody has waited");
        atomic_store(&disk->delay_ms, delay_ms);
        for (int i = 0; i < BATCH; i++)
            cr_assert_eq(redisAppendCommand(client, "RENAME %s %s", names[i % 2], names[1 - i % 2]), REDIS_OK);
        client_skip(client, BATCH);
    }
    disk_mend();
    wait_for_reply(PORT, "[:1", "WAITAOF 1 0 0");
    client = client_after_kill(client, &daemon_under_test, NULL);
    expect(client, ":1", "EXISTS %s", names[0]);
    redisFree(client);
    free(names[0]);
    free(names[1]);
}

#if !DAEMON_SANITIZED /* they have an allocator of their own */
static void send_now(redisContext *client)
{
    for (int done = 0; !done;)
        cr_assert_eq(redisBufferWrite(client, &done), REDIS_OK);
}

/* BF.MADD f <first> <first + 1> ..., and a PING after it. */
static void send_madd(redisContext *client, int first, int n)
{
    char *command = malloc(64 + (size_t)n * 16);
    size_t len = (size_t)sprintf(command, "*%d\r\n$7\r\nBF.MADD\r\n$1\r\nf\r\n", n + 2);
    for (int i = 0; i < n; i++)
        len += (size_t)sprintf(command + len, "$8\r\n%08d\r\n", first + i);
    redisAppendFormattedCommand(client, command, len);
    redisAppendCommand(client, "PING");
    send_now(client);
    free(command);
}

/* No room for the records of a BF.MADD after some of its slices: the reply is the error alone, its items so far stay
 * and are logged, and the connection's next command runs as usual. */
DAEMON_TEST(daemon_under_test, log_daemon, no_room_for_records_ends_a_command_between_its_slices)
{
    enum { BEFORE = 4000, ITEMS = 60000 };
    const char *const args[] = {"--appendfsync", "always", "--threads", "1", NULL};
    disk_attach();
    daemon_start(&daemon_under_test, args);
    redisContext *client = client_open(PORT), *other = client_open(PORT), *third = client_open(PORT);
    expect(client, "+OK", "BF.RESERVE f 0.0000001 100000");
    send_madd(client, ITEMS, BEFORE); /* so that there is room for a slice */
    client_skip(client, 2);

    /* The log thread takes no records away, and there is no more room. */
    atomic_store(&disk->hold_syncs, 1);
    redisAppendCommand(other, "BF.ADD f x");
    send_now(other);
    wait_until(atomic_load(&disk->syncs_held));
    atomic_store(&disk->write_error, ENOSPC);
    send_madd(client, 0, ITEMS);
    wait_until(atomic_load(&disk->writes_refused));
    /* The worker has finished its iteration since, and holds the answer back: the added items are not on the disk. */
    expect(third, "+PONG", "PING");
    expect(third, "+PONG", "PING");
    cr_assert_eq(poll(&(struct pollfd){.fd = client->fd, .events = POLLIN}, 1, 0), 0, "answered before the sync");
    disk_mend();
    cr_assert_str_eq(client_reply(client),
                     "-MISCONF Errors writing to the AOF file: no room for more records in memory or on the disk");
    cr_assert_str_eq(client_reply(client), "+PONG");
    cr_assert_str_eq(client_reply(other), ":1");
    int added = (int)client_number(client, "BF.CARD f") - BEFORE - 1;
    cr_assert(added > 0 && added < ITEMS, "%d", added);
    expect(client, "[:1,:0]", "WAITAOF 1 0 0"); /* an error promises nothing */

    client = client_after_kill(client, &daemon_under_test, NULL);
    cr_assert_eq(client_number(client, "BF.CARD f"), BEFORE + 1 + added);
    for (int i = 0; i < ITEMS; i += abs(i - added) < 100 ? 1 : 97)
        cr_assert_eq(client_number(client, "BF.EXISTS f %08d", i), i < added, "item %d of %d", i, added);
    send_madd(client, 0, ITEMS);
    client_skip(client, 2);
    cr_assert_eq(client_number(client, "BF.CARD f"), BEFORE + 1 + ITEMS);
}
#endif

/* Without a log a failing save makes the daemon refuse writes. */
DAEMON_TEST(daemon_under_test, log_daemon, without_a_log_a_failing_save_refuses_writes)
{
    const char *const args[] = {"--appendonly", "no", "--save", "3600 1000000", NULL};
    redisContext *client = client_start(&daemon_under_test, args);
    expect(client, ":1", "BF.ADD f x");
    daemon_block_saves(&daemon_under_test);
    cr_assert(strncmp(client_ask(client, "SAVE"), "-ERR", 4) == 0);
    cr_assert(strncmp(client_ask(client, "BF.ADD f y"), "-MISCONF", 8) == 0);
    expect(client, ":1", "BF.EXISTS f x");
    expect(client, "+OK", "CONFIG SET stop-writes-on-bgsave-error no");
    expect(client, ":1", "BF.ADD f y");
    expect(client, "+OK", "CONFIG SET stop-writes-on-bgsave-error yes");
    daemon_unblock_saves(&daemon_under_test);
    expect(client, "+OK", "SAVE");
    expect(client, ":1", "BF.ADD f z");
}

/* ---- logs at a start ---- */

#define LOG (tmp_path(daemon_under_test.data, "log/00000001.log").text)

/* A data directory with a log of 50 frames, killed. */
static void make_log(void)
{
    redisContext *client = client_start(&daemon_under_test, always);
    for (int i = 0; i < 50; i++)
        expect(client, ":1", "BF.ADD f item:%d", i);
    client_kill(client, &daemon_under_test);
}

static int run_damaged(const char *flag, const char **output)
{
    char socket[400];
    const char *const args[] = {
        "--port", "0", "--unixsocket", socket, "--dir", daemon_under_test.data, flag, flag ? "yes" : NULL, NULL};
    snprintf(socket, sizeof(socket), "%s/socket", daemon_under_test.dir);
    return daemon_run(args, NULL, output);
}

DAEMON_TEST(daemon_under_test, log_daemon, damage_in_the_middle_stops_the_start)
{
    const char *output, *lossy[] = {"--aof-load-damaged", "yes", NULL};
    make_log();
    cr_assert_eq(check_tool(&daemon_under_test, &output), 0, "%s", output);
    cr_assert(strstr(output, "50 adds") != NULL, "%s", output);
    file_change_byte(LOG, 4096 + 600);
    cr_assert_eq(check_tool(&daemon_under_test, &output), 1, "%s", output);
    cr_assert(strstr(output, "00000001.log is damaged") != NULL, "%s", output);
    cr_assert_eq(run_damaged(NULL, &output), 1, "%s", output);
    cr_assert(strstr(output, "00000001.log is damaged") && strstr(output, "bloomery check") &&
                  strstr(output, "--aof-load-damaged"),
              "%s", output);
    /* A start that accepts the loss loses only the unreadable part, and the loss need be accepted only once. */
    redisContext *client = client_start(&daemon_under_test, lossy);
    expect(client, ":49", "BF.CARD f");
    redisFree(client);
    daemon_wait_output(&daemon_under_test, "saved 1 filter");
    daemon_kill(&daemon_under_test);
    cr_assert_eq(check_tool(&daemon_under_test, &output), 0, "%s", output);
    client = client_start(&daemon_under_test, always);
    expect(client, ":49", "BF.CARD f");
}

DAEMON_TEST(daemon_under_test, log_daemon, a_torn_tail_is_cut_and_reported)
{
    const char *output;
    make_log();
    /* As if a part of the next frame had come to the disk. */
    long end = (long)log_end(LOG);
    int fd = open(LOG, O_WRONLY);
    cr_assert_eq(pwrite(fd, "\x12\x34\x56\x78\x33\x00\x01\x40garbage", 15, end), 15);
    close(fd);
    cr_assert_eq(check_tool(&daemon_under_test, &output), 0, "%s", output);
    cr_assert(strstr(output, "will cut them") != NULL, "%s", output);
    daemon_start(&daemon_under_test, always);
    cr_assert(strstr(daemon_output(&daemon_under_test), "is cut") != NULL, "%s", daemon_output(&daemon_under_test));
    redisContext *client = client_open(PORT);
    expect(client, ":50", "BF.CARD f");
    expect(client, ":1", "BF.ADD f more");
    client = client_after_kill(client, &daemon_under_test, NULL);
    expect(client, ":51", "BF.CARD f");
}

DAEMON_TEST(daemon_under_test, log_daemon, a_second_start_is_refused)
{
    const char *output;
    char holder[64];
    daemon_start(&daemon_under_test, always);
    snprintf(holder, sizeof(holder), "is in use by process %d", (int)daemon_under_test.pid);
    cr_assert_eq(run_damaged(NULL, &output), 1, "%s", output);
    cr_assert(strstr(output, "the data directory") && strstr(output, holder), "%s", output);
    cr_assert_eq(check_tool(&daemon_under_test, &output), 1, "%s", output);
    cr_assert(strstr(output, holder) != NULL, "%s", output);
}

/* ---- loading ---- */

/* Replies to a client that connects while the daemon loads; the test's thread checks them afterwards. */
static char while_loading[4][4096];

static void *ask_while_it_loads(void *arg)
{
    const char *const commands[] = {"BF.ADD f x", "BF.EXISTS f x", "SAVE", "INFO persistence"};
    redisContext *client = NULL;
    (void)arg;
    for (int i = 0; i < 3000 && (!client || client->err); i++) {
        if (client)
            redisFree(client);
        usleep(10000);
        client = redisConnect("127.0.0.1", *(volatile int *)&PORT);
    }
    for (int i = 0; i < 4 && client && !client->err; i++)
        snprintf(while_loading[i], sizeof(while_loading[i]), "%s", client_ask(client, commands[i]));
    if (client)
        redisFree(client);
    disk_mend();
    return NULL;
}

/* While the log is read, clients get an error with the progress; commands that need no filters work. */
DAEMON_TEST(daemon_under_test, log_daemon, clients_are_told_while_it_loads)
{
    pthread_t asker;
    disk_attach();
    make_log();
    atomic_store(&disk->hold_reads, 1);
    daemon_under_test.port = 0;
    cr_assert_eq(pthread_create(&asker, NULL, ask_while_it_loads, NULL), 0);
    daemon_restart(&daemon_under_test);
    pthread_join(asker, NULL);
    for (int i = 0; i < 3; i++)
        cr_assert(strncmp(while_loading[i], "-LOADING ", 9) == 0, "%s", while_loading[i]);
    cr_assert(strstr(while_loading[3], "loading:1") && strstr(while_loading[3], "loading_total_bytes:") &&
                  strstr(while_loading[3], "loading_loaded_perc:"),
              "%s", while_loading[3]);
    redisContext *client = client_open(PORT);
    expect(client, ":50", "BF.CARD f");
    const char *info = client_ask(client, "INFO persistence");
    cr_assert(strstr(info, "loading:0") != NULL, "%s", info);
}
