/* Several starts in a row on one log, with parts that an earlier process left out, numbered again or did not finish. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "client.h"
#include "daemon.h"
#include "log_clients.h"
#include "program.h"
#include "tmpdir.h"
#include "wait.h"

DISK_SUITE(daemon_under_test, log_starts);
#define PORT (daemon_under_test.port)

static const char *const always[] = {"--appendfsync", "always", NULL};
static const char *const accepting[] = {"--appendfsync", "always", "--aof-load-damaged", "yes", NULL};

/* ---- counts ---- */

/* A file in the data directory. */
#define AT(name) (tmp_path(daemon_under_test.data, "%s", name).text)

/* As client_after_kill(), with a bit of the filter's bytes changed in between. */
static redisContext *restart_damaged(redisContext *client, const char *name, const char *const *args)
{
    client_kill(client, &daemon_under_test);
    daemon_damage_layer(&daemon_under_test, name, 8);
    daemon_start(&daemon_under_test, args);
    return client_open(PORT);
}

/* A record was lost, so later records get counts that were used before. A save has the new ones, and the log with
 * the old ones is kept for a filter in quarantine: no item is counted twice or left out. The loss need be accepted
 * only once. */
DAEMON_TEST(daemon_under_test, log_starts, counts_given_anew_are_not_counted_twice)
{
    redisContext *client = client_start(&daemon_under_test, always);
    expect(client, "+OK", "CONFIG SET save-pack-limit 0");
    expect(client, ":1", "BF.ADD kept x");
    expect(client, ":1", "BF.ADD f 0");
    expect(client, "+OK", "SAVE");
    expect(client, ":1", "BF.ADD kept y");
    for (int i = 1; i <= 40; i++)
        expect(client, ":1", "BF.ADD f %d", i);
    client_kill(client, &daemon_under_test);
    file_change_byte(AT("log/00000002.log"), (long)log_end(AT("log/00000002.log")) - 600);
    daemon_damage_layer(&daemon_under_test, "kept", 8);

    daemon_start(&daemon_under_test, accepting);
    daemon_wait_output(&daemon_under_test, "saved 2 filters");
    client = client_open(PORT);
    cr_assert(strncmp(client_ask(client, "BF.EXISTS kept x"), "-ERR", 4) == 0);
    expect(client, ":40", "BF.CARD f");
    expect(client, ":1", "BF.ADD f 41");
    expect(client, ":1", "BF.ADD f 42");
    for (int again = 0; again < 3; again++) {
        client = client_after_kill(client, &daemon_under_test, always);
        expect(client, ":42", "BF.CARD f");
        wait_for_reply(PORT, "+OK", "SAVE");
    }

    /* The damaged filter gets back the changes after its save. */
    client = restart_damaged(client, "kept", always);
    expect(client, "[:1,:1]", "BF.MEXISTS kept x y");
    expect(client, ":2", "BF.CARD kept");
    expect(client, ":42", "BF.CARD f");
    expect(client, ":1", "BF.ADD kept z");
    for (int again = 0; again < 2; again++) {
        wait_for_reply(PORT, "+OK", "SAVE");
        client = client_after_kill(client, &daemon_under_test, always);
        expect(client, ":3", "BF.CARD kept");
        expect(client, ":42", "BF.CARD f");
    }
}

/* A copy is known from the log alone, and its file, if any, is the newest file at the next start: earlier adds to
 * the copy are not in its count. */
DAEMON_TEST(daemon_under_test, log_starts, adds_to_a_copy_are_counted_however_many_starts_follow)
{
    redisContext *client = client_start(&daemon_under_test, always);
    expect(client, ":1", "BF.ADD small 0");
    expect(client, "+OK", "BF.RESERVE large 0.001 100000");
    expect(client, ":1", "BF.ADD large 0");
    for (int large = 0; large < 2; large++) {
        expect(client, ":1", "COPY %s copy REPLACE", large ? "large" : "small");
        for (int i = 1; i <= 20; i++)
            expect(client, ":1", "BF.ADD copy %d", i);
        for (int again = 1; again <= 3; again++) {
            client = client_after_kill(client, &daemon_under_test, always);
            expect(client, ":1", "BF.ADD copy more:%d", again);
            cr_assert_eq(client_number(client, "BF.CARD copy"), 21 + again);
        }
    }
}

/* ---- quarantine ---- */

/* Every way to remove a filter in quarantine, also for a start that knows of it from the log alone. */
DAEMON_TEST(daemon_under_test, log_starts, filters_in_quarantine_can_be_removed)
{
    static const char *const ways[] = {"DEL bad", "RENAME good bad", "COPY good bad REPLACE", "PEXPIRE bad 0",
                                       "FLUSHALL"};
    redisContext *client = client_start(&daemon_under_test, always);
    for (unsigned i = 0; i < 2 * sizeof(ways) / sizeof(ways[0]); i++) {
        const char *way = ways[i / 2];
        bool packed = i % 2;
        expect(client, "+OK", "CONFIG SET save-pack-limit %s", packed ? "16kb" : "0");
        expect(client, "+OK", "FLUSHALL");
        expect(client, ":1", "BF.ADD good x");
        expect(client, ":1", "BF.ADD bad x");
        expect(client, "+OK", "SAVE");
        client = restart_damaged(client, "bad", always);
        cr_assert(strncmp(client_ask(client, "BF.EXISTS bad x"), "-ERR", 4) == 0);
        cr_assert(client_ask(client, way)[0] != '-', "%s", way);
        client = client_after_kill(client, &daemon_under_test, always);
        cr_assert(client_ask(client, "BF.EXISTS bad x")[0] != '-', "%s", way);
        expect(client, "+OK", "SAVE");
    }
}

/* ---- expiry ---- */

/* A filter expired at a start is gone for good, even if the clock is set back later: its name is another's. */
DAEMON_TEST(daemon_under_test, log_starts, what_has_expired_does_not_come_back_when_the_clock_is_set_back)
{
    disk_attach();
    redisContext *client = client_start(&daemon_under_test, always);
    expect(client, ":1", "BF.ADD saved x");
    expect(client, ":1", "EXPIRE saved 3600");
    expect(client, "+OK", "SAVE");
    expect(client, ":1", "BF.ADD logged x");
    expect(client, ":1", "EXPIRE logged 3600");
    client_kill(client, &daemon_under_test);

    daemon_block_saves(&daemon_under_test);
    disk->clock_s = 7200;
    client = client_start(&daemon_under_test, always);
    expect(client, ":0", "EXISTS saved logged");
    expect(client, ":1", "BF.ADD saved y");
    expect(client, ":1", "BF.ADD logged y");
    disk->clock_s = 0;
    for (int again = 0; again < 2; again++) {
        client = client_after_kill(client, &daemon_under_test, always);
        expect(client, "[:0,:1]", "BF.MEXISTS saved x y");
        expect(client, "[:0,:1]", "BF.MEXISTS logged x y");
        expect(client, ":2", "DBSIZE");
    }
    redisFree(client);
    daemon_unblock_saves(&daemon_under_test);
}

/* ---- messages in the daemon's log ---- */

/* A slow start reports its progress; numbers and the end are reported once, in readable form. */
DAEMON_TEST(daemon_under_test, log_starts, a_long_start_says_how_far_it_is)
{
    disk_attach();
    redisContext *client = client_start(&daemon_under_test, always);
    for (int i = 0; i < 100; i++)
        expect(client, ":1", "BF.ADD f %d", i);
    client_kill(client, &daemon_under_test);
    disk->hold_reads = 1;
    daemon_launch(&daemon_under_test);
    daemon_wait_output(&daemon_under_test, "loading: 0 bytes of ");
    disk->hold_reads = 0;
    daemon_wait_output(&daemon_under_test, "replaying the log: ");
    daemon_wait_output(&daemon_under_test, "; 1 filter, ");
    cr_expect_not_null(strstr(daemon_output(&daemon_under_test), "1 filter created, 100 adds brought back"), "%s",
                       daemon_output(&daemon_under_test));
}

/* A save at the end is reported once: the second save, of later changes, only if there are any. */
DAEMON_TEST(daemon_under_test, log_starts, the_save_at_the_end_is_reported_once)
{
    const char *const args[] = {"--save", "3600 1", NULL};
    redisContext *client = client_start(&daemon_under_test, args);
    expect(client, ":1", "BF.ADD f x");
    client_stop(client, &daemon_under_test);
    const char *saved = strstr(daemon_output(&daemon_under_test), " saved 1 filter (1 layer, ");
    cr_assert_not_null(saved, "%s", daemon_output(&daemon_under_test));
    cr_expect_null(strstr(saved + 1, " saved "), "%s", saved);
}

/* ---- the end ---- */

/* On a hanging disk the end is delayed. The log says at once what it waits for and how to proceed: a second signal
 * ends the daemon, and all acknowledged changes are there. */
static void end_on_a_disk_that_hangs(const char *const *args, const char *text)
{
    int status;
    disk_attach();
    redisContext *client = client_start(&daemon_under_test, args);
    expect(client, ":1", "BF.ADD f before");
    expect(client, "[:1,:0]", "WAITAOF 1 0 0");
    disk->delay_ms = 3600 * 1000;
    expect(client, ":1", "BF.ADD f after");
    redisFree(client);
    double began = wait_clock();
    cr_assert_eq(kill(daemon_under_test.pid, SIGTERM), 0);
    daemon_wait_output(&daemon_under_test, text);
    cr_assert_eq(waitpid(daemon_under_test.pid, &status, WNOHANG), 0, "it has ended without waiting");
    wait_until(kill(daemon_under_test.pid, SIGTERM) == 0 &&
               waitpid(daemon_under_test.pid, &status, WNOHANG) == daemon_under_test.pid);
    cr_expect_geq(wait_clock() - began, 1.9, "a signal right after the first one has ended it");
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "status %x", (unsigned)status);
    daemon_under_test.pid = 0;
    disk->delay_ms = 0;
    client = client_start(&daemon_under_test, always);
    expect(client, ":1", "BF.EXISTS f before");
    redisFree(client);
}

DAEMON_TEST(daemon_under_test, log_starts, a_second_signal_ends_a_save_on_a_disk_that_hangs)
{
    const char *const args[] = {"--save", "3600 1", NULL};
    end_on_a_disk_that_hangs(args, "saving before the end; a second signal ends the daemon immediately");
}

DAEMON_TEST(daemon_under_test, log_starts, a_second_signal_ends_the_wait_for_the_log_on_a_disk_that_hangs)
{
    const char *const args[] = {"--save", "", NULL};
    end_on_a_disk_that_hangs(args, "waiting for the sync of the log; a second signal ends the daemon immediately");
}

/* No save succeeds, but the log has every change: SHUTDOWN SAVE is refused, a signal is obeyed. */
DAEMON_TEST(daemon_under_test, log_starts, a_signal_ends_it_when_saves_fail_and_the_log_is_whole)
{
    const char *const args[] = {"--save", "3600 1", NULL};
    redisContext *client = client_start(&daemon_under_test, args);
    expect(client, ":1", "BF.ADD f x");
    daemon_block_saves(&daemon_under_test);
    cr_assert(strncmp(client_ask(client, "SHUTDOWN SAVE"), "-ERR Errors trying to SHUTDOWN: ", 32) == 0);
    expect(client, ":1", "BF.ADD f y");
    redisFree(client);
    cr_assert_eq(kill(daemon_under_test.pid, SIGTERM), 0);
    daemon_wait(&daemon_under_test);
    cr_assert(strstr(daemon_output(&daemon_under_test), "the next start replays it"), "%s",
              daemon_output(&daemon_under_test));
    daemon_unblock_saves(&daemon_under_test);
    client = client_start(&daemon_under_test, args);
    expect(client, "[:1,:1]", "BF.MEXISTS f x y");
}

/* ---- files of a newer version ---- */

/* Gives the bytes another version, and the checksum that belongs to them then. */
static void raise_version(unsigned char *bytes, size_t summed)
{
    uint32_t version = 3;
    memcpy(bytes + 8, &version, sizeof(version));
    uint64_t sum = XXH3_64bits(bytes, summed);
    memcpy(bytes + summed, &sum, sizeof(sum));
}

static void raise_header(const char *path, size_t summed)
{
    size_t len;
    unsigned char *bytes = file_read(path, &len);
    raise_version(bytes, summed);
    file_write(path, bytes, len);
    free(bytes);
}

static void raise_segment(void)
{
    raise_header(AT("log/00000001.log"), 80);
}

static void raise_pending(void)
{
    raise_header(AT("log/00000001.pending"), 40);
}

static void raise_tail(void)
{
    raise_header(AT("TAIL"), 40);
}

/* `from` becomes `to` in a text whose last line has the sum of the lines before. */
static void change_text(const char *path, const char *from, const char *to, const char *last)
{
    static char text[8192];
    size_t len;
    char *old = (char *)file_read(path, &len), *at = strstr(old, from);
    cr_assert_not_null(at, "%s: %s", path, old);
    int n = snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - old), old, to, at + strlen(from));
    free(old);
    char *end = strstr(text, last) + strlen(last), *line = end;
    while (line[-1] != '\n')
        line--;
    snprintf(end, 18, "%016llx\n", (unsigned long long)XXH3_64bits(text, (size_t)(line - text)));
    file_write(path, text, (size_t)n);
}

static void raise_manifest(void)
{
    change_text(AT("MANIFEST"), "bloomery-manifest 1", "bloomery-manifest 2", "\nend filters=0 xxh3=");
}

static void raise_clock(void)
{
    file_write_text(AT("CLOCK"), "bloomery-clock 3 boot=- ahead-us=0\n");
}

/* The records of the future are neither dropped nor read in part, with whatever setting, and no file is touched. */
DAEMON_TEST(daemon_under_test, log_starts, what_a_newer_version_wrote_is_refused_and_left_as_it_is)
{
    static void (*const changes[])(void) = {raise_segment, raise_pending, raise_tail, raise_manifest, raise_clock};
    char output[4096];
    redisContext *client = client_start(&daemon_under_test, NULL);
    expect(client, ":1", "BF.ADD f x");
    expect(client, "[:1,:0]", "WAITAOF 1 0 0");
    expect(client, ":1", "BF.ADD f y");
    client_kill(client, &daemon_under_test);
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
        program_run(output, sizeof(output), "cd %s && rm -rf kept && cp -a data kept", daemon_under_test.dir);
        changes[i]();
        program_run(output, sizeof(output), "cd %s && rm -rf changed && cp -a data changed", daemon_under_test.dir);
        for (int accepts = 0; accepts < 2; accepts++) {
            cr_assert(!daemon_try(&daemon_under_test, accepts ? accepting : always), "change %zu", i);
            const char *text = daemon_output(&daemon_under_test);
            cr_assert(strstr(text, "written by a newer version of Bloomery (start that one)") &&
                          !strstr(text, "aof-load-damaged"),
                      "change %zu: %s", i, text);
        }
        cr_assert_eq(
            program_run(output, sizeof(output), "cd %s && diff -r -x LOCK changed data", daemon_under_test.dir), 0,
            "change %zu: %s", i, output);
        const char *found;
        cr_assert(changes[i] == raise_clock ||
                      (check_tool(&daemon_under_test, &found) == 1 && strstr(found, "written by a newer version")),
                  "change %zu", i);
        program_run(output, sizeof(output), "cd %s && rm -rf data && mv kept data", daemon_under_test.dir);
    }
    client = client_start(&daemon_under_test, always);
    expect(client, "[:1,:1]", "BF.MEXISTS f x y");
    redisFree(client);
}

/* ---- the lock ---- */

/* A killed process holds its lock until the system has taken back its memory. */
DAEMON_TEST(daemon_under_test, log_starts, a_start_waits_for_the_lock_of_a_process_that_dies)
{
    daemon_start(&daemon_under_test, always);
    daemon_kill(&daemon_under_test);
    int fd = open(AT("LOCK"), O_RDWR | O_CLOEXEC);
    cr_assert(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
    daemon_launch(&daemon_under_test);
    daemon_wait_output(&daemon_under_test, "seconds at most for it to end");
    close(fd);
    daemon_wait_output(&daemon_under_test, " ready: listening on ");
}
