/* SIGTERM on a full or failing disk: the daemon ends within its bound, reports which changes are lost, and its exit
 * status agrees. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "log_clients.h"
#include "ports.h"
#include "program.h"
#include "tmpdir.h"
#include "wait.h"

DISK_SUITE(the_daemon, ending);
static redisContext *client;
static char mounted[400];

static void begin(const char *const *args)
{
    disk_attach();
    client = client_start(&the_daemon, args);
    client_add_items(client, "f", 0, 10);
    expect(client, "+OK", "SAVE");
    client_add_items(client, "f", 10, 20);
}

static void fill_disk(void)
{
    disk_fail(1, DISK_FULL, ENOSPC);
}

/* Seconds until it has ended; `lost`: the loss that its exit status must report. */
static double end(bool lost)
{
    double began = wait_clock();

    redisFree(client);
    cr_assert_eq(kill(the_daemon.pid, SIGTERM), 0);
    cr_assert_eq(daemon_wait_loss(&the_daemon), lost, "%s", daemon_output(&the_daemon));
    return wait_clock() - began;
}

static void expect_said(const char *text)
{
    cr_assert_not_null(strstr(daemon_output(&the_daemon), text), "no '%s' in:\n%s", text, daemon_output(&the_daemon));
}

static void expect_after_restart(int items)
{
    disk_mend();
    client = client_restart(&the_daemon);
    client_expect_items(client, "f", 0, items);
    expect(client, items == 20 ? ":20" : ":10", "BF.CARD f");
    redisFree(client);
    daemon_deinit(&the_daemon);
}

#define WITHOUT_LOG "--appendonly", "no", "--save", "3600 1"

Test(ending, without_a_log_it_tries_for_a_time_then_ends_and_says_what_is_lost)
{
    const char *const args[] = {WITHOUT_LOG, "--shutdown-timeout", "2", NULL};

    begin(args);
    fill_disk();
    double took = end(true);
    cr_assert(took >= 2 && (DAEMON_SANITIZED || took < 20), "%.1f s", took);
    expect_said("not ending yet, as changes would be lost: trying again for 2 seconds (shutdown-timeout)");
    expect_said("ending; lost: 10 changes since 20");
    expect_said("No space left on device");
    expect_after_restart(10);
}

Test(ending, without_a_log_it_loses_nothing_when_there_is_room_again_in_time)
{
    const char *const args[] = {WITHOUT_LOG, "--shutdown-timeout", "60", NULL};

    begin(args);
    fill_disk();
    cr_assert_eq(kill(the_daemon.pid, SIGTERM), 0);
    daemon_wait_output(&the_daemon, "trying again for 60 seconds");
    client_expect_items(client, "f", 0, 20); /* it serves meanwhile */
    redisFree(client_open(the_daemon.port)); /* new clients, too */
    disk_mend();
    redisFree(client);
    cr_assert_not(daemon_wait_loss(&the_daemon));
    expect_after_restart(20);
}

Test(ending, without_a_timeout_it_tries_once)
{
    const char *const args[] = {WITHOUT_LOG, "--shutdown-timeout", "0", NULL};

    begin(args);
    fill_disk();
    double took = end(true);
    cr_assert(DAEMON_SANITIZED || took < 20, "%.1f s", took);
    cr_assert_null(strstr(daemon_output(&the_daemon), "trying again"), "%s", daemon_output(&the_daemon));
    expect_said("ending; lost: 10 changes since 20");
    expect_after_restart(10);
}

Test(ending, a_second_signal_between_two_attempts_ends_it_at_once)
{
    const char *const args[] = {WITHOUT_LOG, "--shutdown-timeout", "3600", NULL};
    int status = 0;

    begin(args);
    fill_disk();
    redisFree(client);
    double began = wait_clock();
    cr_assert_eq(kill(the_daemon.pid, SIGTERM), 0);
    daemon_wait_output(&the_daemon, "trying again for 3600 seconds");
    wait_until(kill(the_daemon.pid, SIGTERM) == 0 && waitpid(the_daemon.pid, &status, WNOHANG) == the_daemon.pid);
    cr_expect_geq(wait_clock() - began, 1.9, "a signal right after the first one has ended it");
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "status %x", (unsigned)status);
    the_daemon.pid = 0;
    expect_after_restart(10);
}

/* `timeout` and others send it to the process, and to its group. */
Test(ending, two_signals_at_once_are_one)
{
    const char *const args[] = {WITHOUT_LOG, NULL};

    begin(args);
    redisFree(client);
    cr_assert_eq(kill(the_daemon.pid, SIGTERM), 0);
    cr_assert_eq(kill(the_daemon.pid, SIGINT), 0);
    cr_assert_not(daemon_wait_loss(&the_daemon), "%s", daemon_output(&the_daemon));
    expect_after_restart(20);
}

/* ---- with a log ---- */

static void end_with_a_log(const char *save, const char *appendfsync)
{
    const char *const args[] = {"--save", save, "--appendfsync", appendfsync, "--shutdown-timeout", "60", NULL};

    begin(args);
    fill_disk();
    int sent = 0;
    redisAppendCommand(client, "BF.ADD g x"); /* under `always` its reply waits for the disk */
    while (!sent)
        cr_assert_eq(redisBufferWrite(client, &sent), REDIS_OK);
    daemon_wait_output(&the_daemon, "cannot write the log");
    double took = end(false);
    cr_assert(DAEMON_SANITIZED || took < 20, "%.1f s", took);
    expect_said("nothing is lost");
    expect_after_restart(20);
}

Test(ending, with_a_log_nothing_is_lost_and_nothing_is_waited_for)
{
    end_with_a_log("3600 1", "everysec");
}

Test(ending, with_a_log_under_always_nothing_is_lost)
{
    end_with_a_log("3600 1", "always");
}

Test(ending, with_a_log_and_no_rules_nothing_is_lost)
{
    end_with_a_log("", "everysec");
}

/* ---- a full file system ---- */

static void unmount(void)
{
    if (mounted[0])
        umount2(mounted, MNT_DETACH);
    daemon_discard(&the_daemon);
}

TestSuite(ending_full, .fini = unmount, .timeout = 3000);

/* A small file system, or false: the user of the test may mount none. */
static bool mount_small(void)
{
    daemon_prepare(&the_daemon);
    snprintf(mounted, sizeof(mounted), "%s", the_daemon.data);
    if (mkdir(mounted, 0700) != 0 || mount("tmpfs", mounted, "tmpfs", 0, "size=8m") != 0) {
        cr_skip_test("tmpfs cannot be mounted here: %s", strerror(errno));
        return false;
    }
    return true;
}

static void take_all_space(void)
{
    static char block[65536];
    char path[500];

    snprintf(path, sizeof(path), "%s/ballast", mounted);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    setvbuf(file, NULL, _IONBF, 0);
    while (fwrite(block, 1, sizeof(block), file) == sizeof(block))
        continue;
    while (fwrite(block, 1, 512, file) == 512)
        continue;
    fclose(file);
}

static void end_on_a_full_file_system(const char *const *args, bool lost, const char *says, int items)
{
    char path[500];

    if (!mount_small())
        return;
    client = client_start(&the_daemon, args);
    client_add_items(client, "f", 0, 10);
    expect(client, "+OK", "SAVE");
    client_add_items(client, "f", 10, 20);
    take_all_space();
    end(lost);
    expect_said(says);
    snprintf(path, sizeof(path), "%s/ballast", mounted);
    cr_assert_eq(unlink(path), 0);
    client = client_restart(&the_daemon);
    client_expect_items(client, "f", 0, items);
    client_stop(client, &the_daemon);
}

Test(ending_full, with_a_log_nothing_is_lost)
{
    const char *const args[] = {"--save", "3600 1", NULL};

    end_on_a_full_file_system(args, false, "nothing is lost", 20);
}

Test(ending_full, without_a_log_it_says_what_is_lost)
{
    const char *const args[] = {WITHOUT_LOG, "--shutdown-timeout", "1", NULL};

    end_on_a_full_file_system(args, true, "ending; lost: 10 changes since 20", 10);
}

/* ---- a log that nobody reads ---- */

/* The standard error is a pipe that is full. Nothing waits for its reader: saves, commands, the end. */
Test(ending, a_full_pipe_as_the_log_holds_up_nothing)
{
    char output[2000];
    int port = port_claim();

    daemon_prepare(&the_daemon);
    program_expect(output, sizeof(output), 0, "ended 0",
                   "cd '%s' && mkfifo p && exec 3<>p && head -c 65536 /dev/zero >&3\n"
                   "'%s' --port %d --dir data --save '' 2>&3 & pid=$!\n"
                   "for i in $(seq 600); do redis-cli -p %d PING 2>&1 | grep -q PONG && break; sleep 0.1; done\n"
                   "for i in SAVE 'BF.ADD f x' BGSAVE; do redis-cli -p %d $i || exit 1; done\n"
                   "kill -TERM $pid; wait $pid; echo ended $?",
                   the_daemon.dir, BLOOMERYD_PATH, port, port, port);
}
