/* A log that has lost a part: `bloomery check` and the start miss it, until the loss is accepted. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "log_clients.h"
#include "program.h"
#include "tmpdir.h"
#include "wait.h"

DISK_SUITE(daemon_under_test, log_losses);
#define PORT (daemon_under_test.port)

static const char *const always[] = {"--appendfsync", "always", NULL};
static const char *const accepting[] = {"--appendfsync", "always", "--aof-load-damaged", "yes", NULL};

/* A file in the data directory. */
#define AT(name) (tmp_path(daemon_under_test.data, "%s", name).text)

static void expect_word(const char *word, int status)
{
    const char *output;
    cr_assert_eq(check_tool(&daemon_under_test, &output), status, "%s", output);
    cr_assert(strstr(output, word), "%s", output);
}

/* A log copied during a save, with a MANIFEST copied after its end. */
DAEMON_TEST(daemon_under_test, log_losses, a_log_that_is_older_than_the_save_is_refused)
{
    const char *output;
    char command[4096];

    redisContext *client = client_start(&daemon_under_test, always);
    expect(client, "+OK", "BF.RESERVE big 0.0000001 2000000");
    expect(client, ":1", "BF.ADD small 1");
    expect(client, "+OK", "SAVE");
    expect(client, ":1", "BF.ADD small 2");
    expect(client, ":1", "BF.ADD big x");
    expect(client, "+OK", "CONFIG SET save-rate-limit 1mb");
    expect(client, "+Background saving started", "BGSAVE");
    wait_until(access(AT("log/00000003.log"), F_OK) == 0);
    expect(client, ":1", "BF.ADD small 3");
    snprintf(command, sizeof(command), "cp -r %s %s", AT("log"), AT("../older"));
    cr_assert_eq(system(command), 0);
    expect(client, ":1", "BF.ADD small 4");
    expect(client, "+OK", "CONFIG SET save-rate-limit 0");
    wait_until(!info_number(PORT, "persistence", "rdb_bgsave_in_progress"));
    client_kill(client, &daemon_under_test);
    snprintf(command, sizeof(command), "rm -r %s && mv %s %s", AT("log"), AT("../older"), AT("log"));
    cr_assert_eq(system(command), 0);

    cr_assert_eq(check_tool(&daemon_under_test, &output), 1, "%s", output);
    cr_assert(strstr(output, "the log is older than the MANIFEST") != NULL, "%s", output);
    cr_assert(!daemon_try(&daemon_under_test, always), "%s", daemon_output(&daemon_under_test));
    cr_assert(strstr(daemon_output(&daemon_under_test), "the log is older than the MANIFEST") &&
                  strstr(daemon_output(&daemon_under_test), "--aof-load-damaged"),
              "%s", daemon_output(&daemon_under_test));

    /* The loss need be accepted only once. */
    daemon_start(&daemon_under_test, accepting);
    daemon_wait_output(&daemon_under_test, "saved 2 filters");
    client = client_open(PORT);
    expect(client, "[:1,:1,:1]", "BF.MEXISTS small 1 2 3");
    expect(client, ":1", "BF.ADD small 5");
    client = client_after_kill(client, &daemon_under_test, always);
    expect(client, "[:1,:1,:1,:1]", "BF.MEXISTS small 1 2 3 5");
    client_kill(client, &daemon_under_test);
    cr_assert_eq(check_tool(&daemon_under_test, &output), 0, "%s", output);
}

/* The MANIFEST of a save at the end names the newest segment. */
DAEMON_TEST(daemon_under_test, log_losses, a_log_that_is_lost_after_an_end_with_a_save_is_missed)
{
    static const char *const losses[] = {"rm log/*.log", "rm -r log"};
    char output[400];

    for (int i = 0; i < 2; i++) {
        redisContext *client = client_start(&daemon_under_test, always);
        expect(client, ":1", "BF.ADD f%d x", i);
        expect(client, "(Server closed the connection)", "SHUTDOWN SAVE");
        redisFree(client);
        daemon_wait(&daemon_under_test);
        expect_word("whole", 0);
        cr_assert_eq(program_run(output, sizeof(output), "cd %s && %s", daemon_under_test.data, losses[i]), 0, "%s",
                     output);
        expect_word("not whole", 1);
        cr_assert(!daemon_try(&daemon_under_test, always), "%s", daemon_output(&daemon_under_test));
        cr_assert(strstr(daemon_output(&daemon_under_test), "the last save needs it, but it is missing"), "%s",
                  daemon_output(&daemon_under_test));
        daemon_start(&daemon_under_test, accepting);
        daemon_wait_output(&daemon_under_test, "saved");
        daemon_stop(&daemon_under_test);
    }
}

/* ---- what the file of pending records proves ---- */

/* Frames that are on the disk, before records that are not: then the process is killed. */
static void kill_after_frames(void)
{
    redisContext *client = client_start(&daemon_under_test, always);
    for (int i = 0; i < 10; i++)
        expect(client, ":1", "BF.ADD f %d", i);
    client_kill(client, &daemon_under_test);
}

/* The kernel has all frames of a killed process, so frames that are missing are damage, however little it looks like
 * it. */
DAEMON_TEST(daemon_under_test, log_losses, a_log_that_ends_before_what_the_pending_records_know_is_damaged)
{
    kill_after_frames();
    file_truncate(AT("log/00000001.log"), 4096 + 150);
    expect_word("frames are missing", 1);
    cr_assert(!daemon_try(&daemon_under_test, always));
    const char *output = daemon_output(&daemon_under_test);
    cr_assert(strstr(output, "frames are missing") && strstr(output, "aof-load-damaged"), "%s", output);
    daemon_start(&daemon_under_test, accepting);
    redisContext *client = client_open(PORT);
    expect(client, ":1", "EXISTS f");
    redisFree(client);
}

/* A copy, and a directory after a restart of the machine, may lack frames that nobody has called durable. */
DAEMON_TEST(daemon_under_test, log_losses, a_copy_may_end_before_what_the_pending_records_know)
{
    char output[400];
    kill_after_frames();
    file_truncate(AT("log/00000001.log"), 4096 + 150);
    cr_assert_eq(program_run(output, sizeof(output), "cd %s && mv data kept && cp -a kept data", daemon_under_test.dir),
                 0, "%s", output);
    expect_word("frames are lost", 0);
    daemon_start(&daemon_under_test, always);
}

static void shell(const char *command)
{
    char output[400];
    cr_assert_eq(program_run(output, sizeof(output), "cd %s && %s", daemon_under_test.data, command), 0, "%s", output);
}

/* check and a start miss what the command loses, until the loss is accepted, once. */
static void expect_missed(const char *command, const char *says)
{
    expect_word("whole", 0);
    shell(command);
    expect_word(says, 1);
    cr_assert(!daemon_try(&daemon_under_test, always), "%s: it starts: %s", command, daemon_output(&daemon_under_test));
    const char *output = daemon_output(&daemon_under_test);
    cr_assert(strstr(output, says) && strstr(output, "aof-load-damaged"), "%s: %s", command, output);
    daemon_start(&daemon_under_test, accepting);
    redisContext *client = client_open(PORT);
    expect(client, ":1", "BF.ADD later x");
    client = client_after_kill(client, &daemon_under_test, always);
    expect(client, ":1", "BF.EXISTS later x");
    client_kill(client, &daemon_under_test);
    expect_word("whole", 0);
    shell("rm -r *");
}

/* The save that makes the next start miss nothing is over when clients are served, however long it takes. */
DAEMON_TEST(daemon_under_test, log_losses, a_loss_is_accepted_once_although_the_process_is_killed_at_once)
{
    static const char *const slow[] = {"--aof-load-damaged", "yes", "--save-rate-limit", "1mb", NULL};
    redisContext *client = client_start(&daemon_under_test, always);
    expect(client, "+OK", "BF.RESERVE big 0.001 1000000");
    expect(client, ":1", "BF.ADD big x");
    expect(client, ":1", "BF.ADD big y");
    size_t len = log_end(AT("log/00000001.log"));
    expect(client, ":1", "BF.ADD big z");
    expect(client, "(Server closed the connection)", "SHUTDOWN NOSAVE");
    redisFree(client);
    daemon_wait(&daemon_under_test);
    file_truncate(AT("log/00000001.log"), len);
    daemon_start(&daemon_under_test, slow);
    daemon_kill(&daemon_under_test);
    daemon_start(&daemon_under_test, always);
    client = client_open(PORT);
    expect(client, ":1", "BF.EXISTS big x");
    redisFree(client);
}

/* Whether it had records is not known: the process may have had no room for a segment. */
DAEMON_TEST(daemon_under_test, log_losses, a_pending_file_that_is_removed_is_missed)
{
    kill_after_frames();
    expect_missed("rm log/00000001.pending", "00000001.pending is damaged: it is missing");
    daemon_start(&daemon_under_test, always); /* this process has no segment */
    daemon_kill(&daemon_under_test);
    expect_missed("rm log/00000001.pending", "00000001.pending is damaged: it is missing");
    kill_after_frames();
    expect_missed("rm -r log", "00000001.pending is damaged: it is missing");
}

DAEMON_TEST(daemon_under_test, log_losses, a_pending_file_that_is_emptied_is_missed)
{
    static const char *const losses[] = {
        "truncate -s 0 log/00000001.pending",
        "truncate -s 40 log/00000001.pending",
        "dd if=/dev/zero of=log/00000001.pending bs=64 count=1 conv=notrunc 2>/dev/null",
        "dd if=/dev/zero of=log/00000001.pending bs=4096 seek=1 count=2 conv=notrunc 2>/dev/null",
    };
    for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
        kill_after_frames();
        expect_missed(losses[i], "00000001.pending is damaged: ");
    }
}

/* The first records of a stream, of which no frame has any. The second chunk is the first one with adds. */
DAEMON_TEST(daemon_under_test, log_losses, a_stream_that_is_lost_as_a_whole_is_missed)
{
    static const char *const losses[] = {
        "printf '\\0' | dd of=log/00000001.pending bs=1 seek=131088 conv=notrunc 2>/dev/null",
        "dd if=/dev/zero of=log/00000001.pending bs=64k seek=2 count=1 conv=notrunc 2>/dev/null",
        "dd if=/dev/zero of=log/00000001.pending bs=8 seek=16387 count=500 conv=notrunc 2>/dev/null",
        "truncate -s 128k log/00000001.pending && truncate -s 1088k log/00000001.pending",
    };
    static const char *const one_thread[] = {"--threads", "1", NULL};
    for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
        redisContext *client = client_start(&daemon_under_test, one_thread);
        expect(client, "+OK", "BF.RESERVE f 0.001 1000");
        expect(client, "[:1,:0]", "WAITAOF 1 0 0");
        expect(client, "[:1,:1,:1]", "BF.MADD f a b c");
        client_kill(client, &daemon_under_test);
        expect_missed(losses[i], "00000001.pending is damaged: it lacks records");
    }
}

/* A power failure may take TAIL: it is no damage. */
DAEMON_TEST(daemon_under_test, log_losses, a_tail_that_is_gone_is_told)
{
    static const char *const losses[] = {"rm TAIL log/*.pending", "truncate -s 0 TAIL", "truncate -s 40 TAIL",
                                         "dd if=/dev/zero of=TAIL bs=8 count=40 2>/dev/null"};
    for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
        kill_after_frames();
        shell(losses[i]);
        expect_word("TAIL is missing or has no valid record", 0);
        daemon_start(&daemon_under_test, always);
        cr_assert(strstr(daemon_output(&daemon_under_test), "TAIL is missing or has no valid record"), "%s",
                  daemon_output(&daemon_under_test));
        daemon_kill(&daemon_under_test);
        expect_word("whole", 0);
        shell("rm -r *");
    }
}

/* No save has named the segments. In a copy only the end that TAIL states tells. */
DAEMON_TEST(daemon_under_test, log_losses, a_segment_that_is_lost_after_an_end_without_a_save_is_missed)
{
    static const char *const losses[] = {
        "rm log/00000002.log",
        "rm log/*",
        "rm -r log",
        "truncate -s 4200 log/00000002.log",
        "truncate -s 0 log/00000002.log",
        "dd if=/dev/zero of=log/00000002.log bs=1 seek=4096 count=8192 conv=notrunc 2>/dev/null",
        "dd if=/dev/zero of=log/00000002.log bs=4096 count=1 conv=notrunc 2>/dev/null",
    };
    for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
        for (int process = 0; process < 2; process++) {
            redisContext *client = client_start(&daemon_under_test, always);
            for (int n = 0; n < 5; n++)
                expect(client, ":1", "BF.ADD f %d:%d", process, n);
            expect(client, "(Server closed the connection)", "SHUTDOWN NOSAVE");
            redisFree(client);
            daemon_wait(&daemon_under_test);
        }
        if (i % 2)
            shell("cd .. && mv data kept && cp -a kept data && rm -r kept");
        expect_missed(losses[i], "is damaged: ");
    }
}

#if !DAEMON_SANITIZED /* they report signals themselves */
/* The kernel ends the process. */
Test(log_losses, a_file_of_pending_records_that_is_truncated_ends_the_process)
{
    int status;
    redisContext *client = client_start(&daemon_under_test, NULL);
    expect(client, ":1", "BF.ADD f x");
    expect(client, "[:1,:0]", "WAITAOF 1 0 0");
    file_truncate(AT("log/00000001.pending"), 0);
    redisReply *reply = redisCommand(client, "BF.ADD f y");
    if (reply)
        freeReplyObject(reply);
    redisFree(client);
    wait_until(waitpid(daemon_under_test.pid, &status, WNOHANG) == daemon_under_test.pid);
    daemon_under_test.pid = 0;
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS, "status %x", (unsigned)status);
    cr_assert(!daemon_try(&daemon_under_test, always), "%s", daemon_output(&daemon_under_test)); /* y may be lost */
    client = client_start(&daemon_under_test, accepting);
    expect(client, ":1", "BF.EXISTS f x");
    redisFree(client);
    daemon_stop(&daemon_under_test);
}
#endif
