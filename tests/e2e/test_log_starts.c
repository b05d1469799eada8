/* What several starts in a row make of one log: of what an earlier process left out, numbered anew or could not finish. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "log_clients.h"

static struct daemon daemon_under_test;
#define PORT (daemon_under_test.port)

static const char *const always[] = {"--appendfsync", "always", NULL};
static const char *const accepting[] = {"--appendfsync", "always", "--aof-load-damaged", "yes", NULL};

static void stop(void)
{
    daemon_discard(&daemon_under_test);
    disk_detach();
}

TestSuite(log_starts, .fini = stop, .timeout = 300);

static redisContext *restart_killed(redisContext *client, const char *const *args)
{
    redisFree(client);
    daemon_kill(&daemon_under_test);
    daemon_start(&daemon_under_test, args);
    return client_open(PORT);
}

/* ---- counts --------------------------------------------------------------------------------------------------------- */

static void change_byte(const char *name, long at)
{
    char path[400];
    unsigned char byte;
    snprintf(path, sizeof(path), "%s/%s", daemon_under_test.data, name);
    int fd = open(path, O_RDWR);
    cr_assert_geq(fd, 0, "%s", path);
    cr_assert_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 0x20;
    cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* How far the file has bytes that are not zero. */
static long end_of(const char *name)
{
    char path[400];
    struct stat st;
    long end = 0;
    snprintf(path, sizeof(path), "%s/%s", daemon_under_test.data, name);
    cr_assert_eq(stat(path, &st), 0, "%s", path);
    unsigned char *bytes = malloc((size_t)st.st_size);
    int fd = open(path, O_RDONLY);
    cr_assert(bytes && fd >= 0 && pread(fd, bytes, (size_t)st.st_size, 0) == st.st_size);
    close(fd);
    for (long at = 0; at < st.st_size; at++)
        end = bytes[at] ? at + 1 : end;
    free(bytes);
    return end;
}

/* A record was lost, so the counts that are given from then on have been given before. A save knows the new ones, while the
 * log with the old ones is kept for a filter in quarantine: no item is counted twice, nor left out. */
DAEMON_TEST(daemon_under_test, log_starts, counts_given_anew_are_not_counted_twice)
{
    daemon_start(&daemon_under_test, always);
    redisContext *client = client_open(PORT);
    expect(client, ":1", "BF.ADD kept x");
    expect(client, ":1", "BF.ADD f 0");
    expect(client, "+OK", "SAVE");
    expect(client, ":1", "BF.ADD kept y");
    for (int i = 1; i <= 40; i++)
        expect(client, ":1", "BF.ADD f %d", i);
    redisFree(client);
    daemon_kill(&daemon_under_test);
    change_byte("log/00000002.log", end_of("log/00000002.log") - 600);
    change_byte("filters/kept/0-Filter.db", 8);

    daemon_start(&daemon_under_test, accepting);
    daemon_wait_output(&daemon_under_test, "saved 2 filters");
    client = client_open(PORT);
    cr_assert(strncmp(client_ask(client, "BF.EXISTS kept x"), "-ERR", 4) == 0);
    expect(client, ":40", "BF.CARD f");
    expect(client, ":1", "BF.ADD f 41");
    expect(client, ":1", "BF.ADD f 42");
    for (int again = 0; again < 3; again++) {
        client = restart_killed(client, accepting);
        expect(client, ":42", "BF.CARD f");
        wait_for_reply(PORT, "+OK", "SAVE");
    }

    /* The one that was damaged gets back what came after it was saved. */
    redisFree(client);
    daemon_kill(&daemon_under_test);
    change_byte("filters/kept/0-Filter.db", 8);
    daemon_start(&daemon_under_test, accepting);
    client = client_open(PORT);
    expect(client, "[:1,:1]", "BF.MEXISTS kept x y");
    expect(client, ":2", "BF.CARD kept");
    expect(client, ":42", "BF.CARD f");
    expect(client, ":1", "BF.ADD kept z");
    for (int again = 0; again < 2; again++) {
        wait_for_reply(PORT, "+OK", "SAVE");
        client = restart_killed(client, always);
        expect(client, ":3", "BF.CARD kept");
        expect(client, ":42", "BF.CARD f");
    }
    redisFree(client);
}

/* ---- quarantine ----------------------------------------------------------------------------------------------------- */

/* Whatever takes a filter in quarantine away: a start that knows of it from the log alone keeps its files. */
DAEMON_TEST(daemon_under_test, log_starts, files_of_filters_in_quarantine_are_never_deleted)
{
    static const char *const ways[] = {"DEL bad", "RENAME good bad", "COPY good bad REPLACE", "PEXPIRE bad 0", "FLUSHALL"};
    daemon_start(&daemon_under_test, always);
    redisContext *client = client_open(PORT);
    for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        char path[400];
        expect(client, "+OK", "FLUSHALL");
        expect(client, ":1", "BF.ADD good x");
        expect(client, ":1", "BF.ADD bad x");
        expect(client, "+OK", "SAVE");
        redisFree(client);
        daemon_kill(&daemon_under_test);
        change_byte("filters/bad/0-Filter.db", 8);
        daemon_start(&daemon_under_test, always);
        client = client_open(PORT);
        cr_assert(strncmp(client_ask(client, "BF.EXISTS bad x"), "-ERR", 4) == 0);
        cr_assert(client_ask(client, ways[i])[0] != '-', "%s", ways[i]);
        client = restart_killed(client, always);
        cr_assert(client_ask(client, "BF.EXISTS bad x")[0] != '-', "%s", ways[i]);
        expect(client, "+OK", "SAVE");
        snprintf(path, sizeof(path), "ls %s/quarantine/bad-*/0-Filter.db | wc -l", daemon_under_test.data);
        FILE *count = popen(path, "r");
        unsigned files = 0;
        cr_assert(count && fscanf(count, "%u", &files) == 1);
        pclose(count);
        cr_assert_eq(files, i + 1, "%s: %u", ways[i], files);
    }
    redisFree(client);
}

/* ---- switched on and off -------------------------------------------------------------------------------------------- */

static void change_filters(redisContext *client, unsigned step)
{
    client_ask(client, "BF.RESERVE a 0.00000001 4 EXPANSION 2");
    for (unsigned i = 0; i < 12; i++)
        client_ask(client, "BF.ADD a %u:%u", step, i);
    switch (rand() % 6) {
    case 0:
        client_ask(client, "RENAME a b");
        break;
    case 1:
        client_ask(client, "DEL a");
        break;
    case 2:
        client_ask(client, "BF.CLEAR a");
        break;
    case 3:
        client_ask(client, "COPY a b REPLACE");
        break;
    default:
        break;
    }
}

/* The count is the number of items that are there. */
static void expect_sound(redisContext *client, const char *name)
{
    unsigned present = 0;
    for (unsigned step = 0; step < 40; step++)
        for (unsigned i = 0; i < 12; i++)
            present += strcmp(client_ask(client, "BF.EXISTS %s %u:%u", name, step, i), ":1") == 0;
    long card = strtol(client_ask(client, "BF.CARD %s", name) + 1, NULL, 10);
    cr_assert_eq(card, (long)present, "%s: %ld items counted, %u there", name, card, present);
}

/* Without a log a save's counts may be ahead of its bits by what is added meanwhile: nothing is. */
static void switch_log(redisContext *client, bool on)
{
    client_ask(client, "CONFIG SET appendonly %s", on ? "yes" : "no");
    while (!on && info_number(PORT, "rdb_bgsave_in_progress"))
        usleep(1000);
}

/* The log is switched on and off, filters are renamed, copied, made anew, emptied and grow, and the daemon is killed, mostly
 * while saves cannot be made. It starts by itself each time; what WAITAOF or SAVE has answered for is there, and no item is
 * counted twice. */
DAEMON_TEST(daemon_under_test, log_starts, switched_on_and_off_and_killed)
{
    const char *const off[] = {"--appendonly", "no", "--appendfsync", "always", NULL};
    char path[400];
    srand(20);
    for (unsigned step = 0; step < 40; step++) {
        daemon_start(&daemon_under_test, rand() % 2 ? off : always);
        redisContext *client = client_open(PORT);
        snprintf(path, sizeof(path), "%s/MANIFEST.new", daemon_under_test.data);
        expect_sound(client, "a");
        expect_sound(client, "b");
        if (rand() % 3)
            mkdir(path, 0700); /* no save from here on */
        for (int i = 1 + rand() % 4; i > 0; i--) {
            change_filters(client, step);
            switch_log(client, rand() % 2);
            if (rand() % 2)
                client_ask(client, "SAVE");
        }
        change_filters(client, step);
        client_ask(client, "BF.ADD c %u", step);
        bool kept = strncmp(client_ask(client, "WAITAOF 1 0 1"), "[:1", 3) == 0 || strcmp(client_ask(client, "SAVE"), "+OK") == 0;
        redisFree(client);
        daemon_kill(&daemon_under_test);
        rmdir(path);
        if (!kept)
            continue;
        daemon_start(&daemon_under_test, off);
        client = client_open(PORT);
        expect(client, ":1", "BF.EXISTS c %u", step);
        redisFree(client);
        daemon_kill(&daemon_under_test);
    }
    daemon_start(&daemon_under_test, always);
}

/* ---- expiry --------------------------------------------------------------------------------------------------------- */

/* What had expired at a start has gone for good, also when the clock is set back by the next: its name is another's. */
DAEMON_TEST(daemon_under_test, log_starts, what_has_expired_does_not_come_back_when_the_clock_is_set_back)
{
    char path[400];
    disk_attach();
    daemon_start(&daemon_under_test, always);
    redisContext *client = client_open(PORT);
    expect(client, ":1", "BF.ADD saved x");
    expect(client, ":1", "EXPIRE saved 3600");
    expect(client, "+OK", "SAVE");
    expect(client, ":1", "BF.ADD logged x");
    expect(client, ":1", "EXPIRE logged 3600");
    redisFree(client);
    daemon_kill(&daemon_under_test);

    snprintf(path, sizeof(path), "%s/MANIFEST.new", daemon_under_test.data);
    cr_assert_eq(mkdir(path, 0700), 0); /* no save from here on */
    disk->clock_s = 7200;
    daemon_start(&daemon_under_test, always);
    client = client_open(PORT);
    expect(client, ":0", "EXISTS saved logged");
    expect(client, ":1", "BF.ADD saved y");
    expect(client, ":1", "BF.ADD logged y");
    disk->clock_s = 0;
    for (int again = 0; again < 2; again++) {
        client = restart_killed(client, always);
        expect(client, "[:0,:1]", "BF.MEXISTS saved x y");
        expect(client, "[:0,:1]", "BF.MEXISTS logged x y");
        expect(client, ":2", "DBSIZE");
    }
    redisFree(client);
    cr_assert_eq(rmdir(path), 0);
}

/* ---- the end -------------------------------------------------------------------------------------------------------- */

/* On a disk that hangs an end cannot come as it should. The log says at once what is waited for and what can be done, and that is
 * so: a second signal ends the daemon, and what had been answered for is there. */
static void end_on_a_disk_that_hangs(const char *const *args, const char *text)
{
    int status;
    disk_attach();
    daemon_start(&daemon_under_test, args);
    redisContext *client = client_open(PORT);
    expect(client, ":1", "BF.ADD f before");
    expect(client, "[:1,:0]", "WAITAOF 1 0 0");
    disk->delay_ms = 3600 * 1000;
    expect(client, ":1", "BF.ADD f after");
    redisFree(client);
    cr_assert_eq(kill(daemon_under_test.pid, SIGTERM), 0);
    daemon_wait_output(&daemon_under_test, text);
    cr_assert_eq(waitpid(daemon_under_test.pid, &status, WNOHANG), 0, "it has ended without waiting");
    cr_assert_eq(kill(daemon_under_test.pid, SIGTERM), 0);
    cr_assert_eq(waitpid(daemon_under_test.pid, &status, 0), daemon_under_test.pid);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "status %x", (unsigned)status);
    daemon_under_test.pid = 0;
    disk->delay_ms = 0;
    daemon_start(&daemon_under_test, always);
    client = client_open(PORT);
    expect(client, ":1", "BF.EXISTS f before");
    redisFree(client);
}

DAEMON_TEST(daemon_under_test, log_starts, a_second_signal_ends_a_save_on_a_disk_that_hangs)
{
    const char *const args[] = {"--save", "3600 1", NULL};
    end_on_a_disk_that_hangs(args, "saving before the end; a second signal ends it at once");
}

DAEMON_TEST(daemon_under_test, log_starts, a_second_signal_ends_the_wait_for_the_log_on_a_disk_that_hangs)
{
    const char *const args[] = {"--save", "", NULL};
    end_on_a_disk_that_hangs(args, "waiting until the disk has all of the log; a second signal ends it at once");
}
