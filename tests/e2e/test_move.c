/* `bloomery move` between two daemons: all filters of the source are in the target afterwards, after any
 * interruption. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "listener.h"
#include "log_clients.h"
#include "move_runs.h"
#include "wait.h"

/* The number of small filters; under a sanitizer, fewer. */
#define SMALL(n) (DAEMON_SANITIZED ? (n) / 10 : (n))

DAEMON_PAIR(move);

static void sleep_ms(long ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* u:0 .. u:<n - 1>, u:i with i % 40 items and every third with a time to live of 1000 s. */
static void make_small_filters(int n)
{
    for (int i = 0; i < n; i++) {
        redisAppendCommand(from, "BF.RESERVE u:%d 0.01 100", i);
        for (int item = 0; item < i % 40; item++)
            redisAppendCommand(from, "BF.ADD u:%d %d-%d", i, i, item);
        redisAppendCommand(from, i % 3 == 0 ? "EXPIRE u:%d 1000" : "PERSIST u:%d", i);
        client_skip(from, 2 + i % 40);
    }
}

static void expect_small_filters(int n)
{
    for (int i = 0; i < n; i += 7) {
        cr_assert_eq(client_number(to, "BF.CARD u:%d", i), client_number(from, "BF.CARD u:%d", i));
        for (int item = 0; item < i % 40; item++)
            cr_assert_eq(client_number(to, "BF.EXISTS u:%d %d-%d", i, i, item), 1);
        long long ttl = client_number(to, "TTL u:%d", i);
        cr_assert(i % 3 == 0 ? ttl > 700 && ttl <= 1000 : ttl == -1, "%lld", ttl);
    }
}

/* A filter of several megabytes, so that it is sent in chunks. */
static void make_large_filter(const char *name)
{
    expect(from, "+OK", "BF.RESERVE %s 0.001 5000000 EXPANSION 4", name);
    client_for_items(from, "BF.MADD", name, "large:", 20000);
}

/* ---- moved filters ---- */

/* A source that is larger than its memory: under `maybe` it answers 1 about bits that are away. */
PAIR_TEST(move, verify_waits_for_bits_that_are_away)
{
    for (int i = 0; i < 40; i++)
        expect(from, "[:1]", "BF.INSERT m:%d CAPACITY 80000 NONSCALING ITEMS item", i);
    expect(from, "+OK", "SAVE");
    expect(from, "+OK", "CONFIG SET maxmemory-policy maybe maxmemory 1mb");
    wait_until(client_info(from, "bf", "bf_away_filters") > 25);
    expect_move(0, "moved    40 filters", "--verify");
}

PAIR_TEST(move, ten_thousand_small_filters_and_a_large_one)
{
    const int n = SMALL(10000);
    char text[32];
    make_small_filters(n);
    make_large_filter("large");
    expect(from, ":1", "PEXPIRE large 500000");
    snprintf(text, sizeof(text), "moved    %d filters", n + 1);
    expect_move(0, text, "--verify");
    cr_assert_eq(client_number(to, "DBSIZE"), n + 1);
    expect_small_filters(n);
    cr_assert_eq(client_for_items(to, "BF.MEXISTS", "large", "large:", 20000), 20000);
    long long ttl = client_number(to, "TTL large");
    cr_assert(ttl > 200 && ttl <= 500, "%lld", ttl);

    /* The source is unchanged, and no work remains. */
    cr_assert_eq(client_number(from, "DBSIZE"), n + 1);
    snprintf(text, sizeof(text), "there    %d", n + 1);
    expect_move(0, text, "");
    expect_move(0, "moved    0 filters", "");
}

PAIR_TEST(move, names_are_any_bytes)
{
    static const char name[] = "\0 \r\n%s\xff*[a\\";
    char long_name[60000];
    memset(long_name, 'n', sizeof(long_name));
    expect(from, ":1", "BF.ADD %b a", name, sizeof(name));
    expect(from, ":1", "BF.ADD %b b", "", (size_t)0);
    expect(from, ":1", "BF.ADD %b c", long_name, sizeof(long_name));
    expect_move(0, "moved    3 filters", "--verify");
    expect(to, ":1", "BF.EXISTS %b a", name, sizeof(name));
    expect(to, ":1", "BF.EXISTS %b b", "", (size_t)0);
    expect(to, ":1", "BF.EXISTS %b c", long_name, sizeof(long_name));
    expect(to, ":1", "BF.ADD %b more", name, sizeof(name));
    expect_move(3, "skipped %00%20%0D%0A%25s%FF%2A%5Ba%5C%00: the target has another filter", "");
}

PAIR_TEST(move, scaled_and_fixed_filters_keep_their_shape)
{
    expect(from, "+OK", "BF.RESERVE scaled 0.01 10 EXPANSION 1");
    expect(from, "+OK", "BF.RESERVE fixed 0.0001 1000 NONSCALING");
    expect(from, "+OK", "BF.RESERVE empty 0.5 1");
    client_for_items(from, "BF.MADD", "scaled", "s", 95);
    client_for_items(from, "BF.MADD", "fixed", "f", 1000);
    expect_move(0, "moved    3 filters", "--verify");
    static const char *const names[] = {"scaled", "fixed", "empty"};
    for (int i = 0; i < 3; i++) {
        char info[1024];
        snprintf(info, sizeof(info), "%s", client_ask(from, "BF.INFO %s", names[i]));
        expect(to, info, "BF.INFO %s", names[i]);
    }
    expect(to, "-ERR non scaling filter is full", "BF.ADD fixed one-more");
}

PAIR_TEST(move, match_chooses_names)
{
    make_small_filters(30);
    expect(from, ":1", "BF.ADD other x");
    expect_move(0, "moved    10 filters", "--match 'u:2?'");
    cr_assert_eq(client_number(to, "DBSIZE"), 10);
    expect(to, ":0", "EXISTS other");
}

/* A terminal shows a line of progress; a pipe only on request. */
PAIR_TEST(move, progress_is_for_terminals)
{
    make_small_filters(100);
    expect_move(0, "moved    100 filters", "");
    cr_assert_not(strchr(output, '\r'), "%s", output);
    expect_move(0, " filters ", "--progress");
    cr_assert(strchr(output, '\r'), "%s", output);
}

PAIR_TEST(move, dry_run_changes_nothing)
{
    make_small_filters(20);
    expect_move(0, "move\tu%3A7\t7 items, ", "--dry-run");
    program_said(output, "to move  20 filters");
    cr_assert_eq(client_number(to, "DBSIZE"), 0);
}

/* ---- existing names ---- */

PAIR_TEST(move, a_taken_name_is_skipped_unless_it_is_to_be_replaced)
{
    make_large_filter("large");
    expect(from, ":1", "BF.ADD small a");
    expect(from, ":1", "BF.ADD same a");
    expect(to, ":1", "BF.ADD large other");
    expect(to, "[:1,:1]", "BF.MADD small other another");
    expect_move(3, "skipped small: the target has another filter of this name", "");
    program_said(output, "moved    1 filter");
    expect(to, ":1", "BF.EXISTS small other");
    expect(to, ":1", "EXPIRE large 100");
    expect_move(0, "moved    2 filters", "--replace --verify");
    expect(to, "[:0,:1]", "BF.MEXISTS small other a");
    cr_assert_eq(client_for_items(to, "BF.MEXISTS", "large", "large:", 20000), 20000);
    expect(to, ":-1", "TTL large");
    cr_assert_eq(client_number(to, "DBSIZE"), 3);

    /* Another --replace brings later adds over. */
    expect(from, ":1", "BF.ADD small later");
    expect_move(0, "moved    1 filter", "--replace");
    expect(to, ":1", "BF.EXISTS small later");
}

/* A filter with the same BF.INFO and other items does not count as moved. */
PAIR_TEST(move, a_filter_with_as_many_other_items_is_another_one)
{
    make_small_filters(50);
    expect(from, "+OK", "BF.RESERVE planted 0.01 1000");
    expect(to, "+OK", "BF.RESERVE planted 0.01 1000");
    long long here = client_for_items(from, "BF.MADD", "planted", "here", 900);
    for (int i = 0; client_number(to, "BF.CARD planted") < here; i++)
        client_number(to, "BF.ADD planted there%d", i);
    expect_move(3, "skipped planted: the target has another filter of this name, with as many items", "");
    expect_move(3, "skipped planted: the target has another filter of this name, with as many items", "--verify");
    expect_move(0, "move\tplanted", "--replace --dry-run");
    expect_move(0, "moved    1 filter", "--replace --verify");
    cr_assert_eq(client_for_items(to, "BF.MEXISTS", "planted", "here", 900), 900);
    expect_move(0, "there    51 that", "--replace --verify");
}

/* Several databases into one: a name that two of them have is never taken for the other's. */
PAIR_TEST(move, a_name_of_two_databases_is_not_joined)
{
    char from_url[64], to_url[64];
    expect(from, ":1", "BF.ADD one a");
    expect(from, ":1", "CF.ADD two a");
    expect(from, "+OK", "SELECT 1");
    expect(from, ":1", "BF.ADD one b");
    expect(from, ":1", "CF.ADD two b");
    expect_move(0, "moved    2 filters", "");
    snprintf(from_url, sizeof(from_url), "redis://127.0.0.1:%d/1", source.port);
    snprintf(to_url, sizeof(to_url), "redis://127.0.0.1:%d", target.port);
    program_expect(output, sizeof(output), 3, "move it into another database of the target, or --replace it",
                   "'%s' move --from %s --to %s 2>&1", BLOOMERY_TOOL_PATH, from_url, to_url);
    program_said(output, "skipped one: the target has another filter of this name");
    program_said(output, "skipped two: the target has another filter of this name");
    expect(to, "[:1,:0]", "BF.MEXISTS one a b");
    expect(to, "[:1,:0]", "CF.MEXISTS two a b");
}

/* ---- interruptions ---- */

/* A run killed between a filter's last chunk and its renaming leaves the whole filter under its temporary name. */
static int temporary_names(void)
{
    int n = 0;
    const char *names = client_ask(to, "KEYS bloomery-move:*");
    while ((names = strstr(names, "bloomery-move:"))) {
        names++;
        n++;
    }
    return n;
}

/* SIGKILL at many moments: the target has whole filters only, and the next run continues. */
PAIR_TEST(move, a_killed_run_goes_on)
{
    const int n = SMALL(3000);
    make_small_filters(n);
    make_large_filter("large");
    make_large_filter("large2");
    int killed = 0;
    for (long ms = 4; ms < 4000; ms += ms / 2) {
        pid_t pid = move_beside(source.port, target.port, "--jobs=2", NULL);
        sleep_ms(ms);
        kill(pid, SIGKILL);
        int status = wait_for(pid);
        cr_assert(status == 1000 + SIGKILL || status == 0, "%d", status);
        killed += status != 0;
        if (client_number(to, "EXISTS large"))
            cr_assert_eq(client_for_items(to, "BF.MEXISTS", "large", "large:", 20000), 20000);
        if (status == 0 && killed)
            break;
        if (status == 0) /* the machine let it end before the first kill */
            expect(to, "+OK", "FLUSHALL");
    }
    cr_expect_gt(killed, 0);
    expect_move(0, "moved    ", "--verify");
    cr_assert_eq(client_number(to, "DBSIZE") - temporary_names(), n + 2);
    cr_assert_leq(temporary_names(), 2 * killed); /* one of each job */
    expect_small_filters(n);
}

PAIR_TEST(move, sigint_ends_with_a_summary_and_the_next_run_goes_on)
{
    make_small_filters(200);
    for (int i = 0; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof(name), "large%d", i);
        make_large_filter(name);
    }
    pid_t pid = move_beside(source.port, target.port, "--jobs=1", NULL);
    wait_until(client_number(to, "DBSIZE") > 0);
    kill(pid, SIGINT);
    int status = wait_for(pid);
    cr_assert(status == 130 || status == 0, "%d", status);
    expect_move(0, "moved    ", "--verify");
    cr_assert_eq(client_number(to, "DBSIZE"), 208);
    expect_small_filters(200);
}

/* The target dies in the middle and comes back; the same run continues. */
PAIR_TEST(move, a_target_that_dies_and_returns_is_waited_for)
{
    const int n = SMALL(4000);
    make_small_filters(n);
    make_large_filter("large");
    char path[300], url[320], from_url[64];
    snprintf(from_url, sizeof(from_url), "redis://127.0.0.1:%d", source.port);
    snprintf(path, sizeof(path), "%s/socket", target.dir);
    snprintf(url, sizeof(url), "unix://%s", path); /* the port is another after the restart */
    const char *const args[] = {"--unixsocket", path, NULL};
    to = client_after_kill(to, &target, args);
    pid_t pid = move_beside_urls(from_url, url, "--jobs=3", NULL);
    wait_until(client_number(to, "DBSIZE") > 0);
    to = client_after_kill(to, &target, NULL);
    cr_assert_eq(wait_for(pid), 0);
    cr_assert_eq(client_number(to, "DBSIZE"), n + 1);
    expect_small_filters(n);
    expect_move(0, "moved    0 filters", "--verify");
}

PAIR_TEST(move, a_target_that_stays_away_ends_the_run)
{
    const int n = SMALL(4000);
    make_small_filters(n);
    pid_t pid = move_beside(source.port, target.port, "--retry=1", NULL);
    wait_until(client_number(to, "DBSIZE") > 0);
    daemon_kill(&target);
    int status = wait_for(pid);
    redisFree(to);
    to = client_restart(&target);
    /* On a slow disk the target may die before its log has the first batch. */
    long long kept = client_number(to, "DBSIZE");
    cr_assert(status == 1 || (status == 0 && kept == n), "%d with %lld", status, kept);
    expect_move(0, kept > 0 ? "there " : "moved ", "");
    cr_assert_eq(client_number(to, "DBSIZE"), n);
}

/* ---- refusals ---- */

PAIR_TEST(move, what_cannot_begin_is_told_at_once)
{
    expect(from, ":1", "BF.ADD f a");
    program_expect(output, sizeof(output), 1, "Connection refused",
                   "'%s' move --from redis://127.0.0.1:1 --to redis://127.0.0.1:%d 2>&1", BLOOMERY_TOOL_PATH,
                   target.port);
    program_expect(output, sizeof(output), 1, "the target, unix:///nowhere/socket: cannot connect",
                   "'%s' move --from redis://127.0.0.1:%d --to unix:///nowhere/socket 2>&1", BLOOMERY_TOOL_PATH,
                   source.port);
    program_expect(output, sizeof(output), 1, "the database is refused: ERR DB index is out of range",
                   "'%s' move --from redis://127.0.0.1:%d --to redis://127.0.0.1:%d/16 2>&1", BLOOMERY_TOOL_PATH,
                   source.port, target.port);
    program_expect(output, sizeof(output), 1, "the source and the target are the same server",
                   "'%s' move --from redis://127.0.0.1:%d --to redis://localhost:%d 2>&1", BLOOMERY_TOOL_PATH,
                   source.port, source.port);
    program_expect(output, sizeof(output), 2, "--to is missing", "'%s' move --from redis://h 2>&1", BLOOMERY_TOOL_PATH);
    program_expect(output, sizeof(output), 2, "--insecure needs TLS",
                   "'%s' move --from redis://h --to redis://h --insecure 2>&1", BLOOMERY_TOOL_PATH);
    expect(to, ":0", "DBSIZE");
}

PAIR_TEST(move, passwords_come_from_the_address_the_environment_or_a_file)
{
    const char *tool = BLOOMERY_TOOL_PATH;
    int a = source.port, b = target.port;
    expect(from, ":1", "BF.ADD f a");
    expect(to, "+OK", "CONFIG SET requirepass %s", "p@ss:%");
    redisFree(to);
    to = client_open(b);
    expect(to, "+OK", "AUTH %s", "p@ss:%");
    program_expect(output, sizeof(output), 1, "the password is refused: WRONGPASS",
                   "'%s' move --from redis://127.0.0.1:%d --to redis://:wrong@127.0.0.1:%d 2>&1", tool, a, b);
    cr_assert_not(strstr(output, "wrong@"), "%s", output);
    program_expect(output, sizeof(output), 1, "NOAUTH",
                   "'%s' move --from redis://127.0.0.1:%d --to redis://127.0.0.1:%d 2>&1", tool, a, b);
    program_expect(output, sizeof(output), 0, "moved    1 filter",
                   "'%s' move --from redis://127.0.0.1:%d --to redis://:p%%40ss%%3A%%25@127.0.0.1:%d 2>&1", tool, a, b);
    program_expect(
        output, sizeof(output), 0, "there    1",
        "BLOOMERY_TO_PASSWORD='p@ss:%%' '%s' move --from redis://127.0.0.1:%d --to redis://default@127.0.0.1:%d 2>&1",
        tool, a, b);
    program_expect(output, sizeof(output), 0, "there    1",
                   "printf 'p@ss:%%%%\\n' | '%s' move --from redis://127.0.0.1:%d --to redis://127.0.0.1:%d "
                   "--to-password-file - 2>&1",
                   tool, a, b);
}

/* Mistyped addresses, and ones in wrong places: no message has the password. */
PAIR_TEST(move, a_mistyped_address_is_told_without_its_password)
{
    static const struct {
        const char *arguments, *says;
    } rows[] = {
        {"fill redis:/:s3cret@host:6379 f", "'redis:********@host:6379' is not the address of a server"},
        {"fill host:6379 f", "'host:6379' is not the address of a server; redis://host:6379"},
        {"fill redis://u:s3cret@host:six f", "invalid port"},
        {"key redis:/u:s3cret@host", "No such file or directory"},
        {"move --from redis://a --to redis://b redis://u:s3cret@c", "unexpected argument: 'redis:**********@c'"},
        {"move --from=rediss:u:s3cret@a --to redis://b", "is not the address of a server"},
        {"load unix:u:s3cret@/path f file", "is not the address of a server"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void)program_run(output, sizeof(output), "'%s' %s </dev/null 2>&1", BLOOMERY_TOOL_PATH, rows[i].arguments);
        program_said(output, rows[i].says);
        cr_assert_not(strstr(output, "s3cret"), "%s", output);
    }
}

/* Everybody can read the arguments of a running process. */
PAIR_TEST(move, a_password_in_the_address_does_not_stay_in_the_arguments)
{
    char path[64], arguments[1024] = "";
    make_large_filter("large");
    expect(to, "+OK", "CLIENT PAUSE 100000 ALL");
    char from_url[64], to_url[64];
    snprintf(from_url, sizeof(from_url), "redis://127.0.0.1:%d", source.port);
    snprintf(to_url, sizeof(to_url), "redis://default:secret@127.0.0.1:%d", target.port);
    pid_t pid = move_beside_urls(from_url, to_url, NULL, NULL);
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    for (int tries = 0; tries < 3000 && !strstr(arguments, "default:******@"); tries++) {
        sleep_ms(10);
        FILE *file = fopen(path, "r");
        size_t len = file ? fread(arguments, 1, sizeof(arguments) - 1, file) : 0;
        if (file)
            fclose(file);
        for (size_t i = 0; i < len; i++)
            arguments[i] = arguments[i] ? arguments[i] : ' ';
        arguments[len] = '\0';
    }
    kill(pid, SIGKILL);
    wait_for(pid);
    cr_assert(strstr(arguments, "default:******@"), "%s", arguments);
    cr_assert_not(strstr(arguments, "secret"), "%s", arguments);
    expect(to, "+OK", "CLIENT UNPAUSE");
}

PAIR_TEST(move, a_full_target_ends_the_run_and_what_fits_is_there)
{
    make_small_filters(2000);
    expect(to, "+OK", "CONFIG SET maxmemory 300000");
    expect_move(1, "the target refuses RESTORE: OOM", "");
    expect(to, "+OK", "CONFIG SET maxmemory 0");
    expect_move(0, "moved    ", "--verify");
    expect_small_filters(2000);
}

PAIR_TEST(move, a_filter_that_is_too_large_for_the_target_is_skipped)
{
    make_large_filter("large");
    expect(from, ":1", "BF.ADD small a");
    expect(to, "+OK", "CONFIG SET bf-max-filter-bytes 1000000");
    expect_move(3, "skipped large: ", "");
    program_said(output, "moved    1 filter");
    expect(to, ":1", "EXISTS small");
    cr_assert_eq(client_number(to, "DBSIZE"), 1);
}

/* A filter of the same name in several databases; the target has a different filter in one of them. */
PAIR_TEST(move, all_databases)
{
    const int databases[] = {0, 3, 15};
    expect_move(0, "moved    0 filters", "--all-databases");
    for (int i = 0; i < 3; i++) {
        expect(from, "+OK", "SELECT %d", databases[i]);
        expect(from, ":1", "BF.ADD same %d", databases[i]);
        expect(from, ":1", "BF.ADD only-%d x", i);
    }
    expect_move(0, "database 15\nmove\tonly-2\t", "--all-databases --dry-run --match only*");
    expect_move(0, "database 0\ndatabase 3\ndatabase 15\nmoved    6 filters", "--all-databases --verify --jobs 2");
    expect_move(0, "there    6 that", "--all-databases");
    expect(to, ":2", "DBSIZE");
    for (int i = 0; i < 3; i++) {
        expect(to, "+OK", "SELECT %d", databases[i]);
        expect(to, ":2", "DBSIZE");
        for (int j = 0; j < 3; j++)
            expect(to, i == j ? ":1" : ":0", "BF.EXISTS same %d", databases[j]);
    }
    expect(to, "+OK", "SELECT 3");
    expect(to, ":1", "BF.ADD same y");
    expect_move(3, "database 3\nskipped same: the target has another filter of this name", "--all-databases");
    program_said(output, "there    5 that");

    /* Nothing is moved into a target that has too few databases. */
    expect(to, "+OK", "FLUSHALL");
    client_stop(to, &target);
    cr_assert(daemon_try(&target, (const char *const[]){"--databases", "15", NULL}));
    to = client_open(target.port);
    expect_move(1, "/15: the database is refused: ERR DB index is out of range", "--all-databases");
    expect(to, ":0", "DBSIZE");
    program_expect(output, sizeof(output), 2, "--all-databases needs addresses without a database",
                   "'%s' move --all-databases --from redis://127.0.0.1 --to redis://127.0.0.1/2 2>&1",
                   BLOOMERY_TOOL_PATH);
    expect(from, "+OK", "ACL SETUSER default -info");
    expect_move(1, "cannot list the databases: INFO is refused: NOPERM", "--all-databases");
    expect(from, "+OK", "ACL SETUSER default +info");
}

static void start_writers(struct writers *writers)
{
    writers_start(writers, source.port, 4, 16);
    for (int i = 0; i < 4; i++)
        wait_until(client_number(from, "BF.EXISTS w %d:0", i) == 1);
}

/* docs/DURABILITY.md: the users of the source lose their right to write before the last move, so the target has all
 * acknowledged changes. */
Test(move, nothing_that_was_answered_is_lost_when_writers_lose_their_right_before_the_last_move)
{
    static struct writers writers;

    start_writers(&writers);
    expect_move(0, "moved", "--replace");
    sleep_ms(200);
    expect(from, "+OK", "ACL SETUSER default -@write");
    writers_join(&writers);
    sleep_ms(1000);
    expect_move(0, "moved", "--replace --verify");
    for (unsigned i = 0; i < writers.count; i++)
        cr_assert_gt(writers.acked[i], 0);
    writers_check(&writers, target.port);
    expect(from, "-NOPERM this user has no permissions to run the 'bf.add' command", "BF.ADD w x");
    expect(from, "+OK", "ACL SETUSER default +@write");
}

/* ---- --pause ---- */

static void expect_writable_source(void)
{
    expect(from, "[\"read-only\",\"no\"]", "CONFIG GET read-only");
    expect(from, ":1", "BF.ADD writable %lld", client_number(from, "BF.CARD writable"));
}

/* Writers of the source during the move: the target has each acknowledged item, and the source acknowledges none
 * afterwards. */
Test(move, nothing_that_was_answered_is_lost_when_writers_are_paused)
{
    static struct writers writers;

    make_large_filter("large");
    start_writers(&writers);
    expect_move(0, "moved", "");
    sleep_ms(200);
    expect_move(0, "paused   writers of the source waited for ", "--pause --replace");
    program_said(output, "it is read-only now");
    writers_join(&writers);
    for (unsigned i = 0; i < writers.count; i++)
        cr_assert_gt(writers.acked[i], 0);
    writers_check(&writers, target.port);
    redisFree(from);
    from = client_open(source.port);
    expect(from, "+OK", "CONFIG SET read-only no");
}

PAIR_TEST(move, a_paused_source_is_read_only_at_the_end_only)
{
    expect(from, ":1", "BF.ADD f x");
    expect_move(2, "--pause and --dry-run exclude each other", "--pause --dry-run");
    expect_move(2, "--pause and --match exclude each other", "--pause --match f");
    expect_writable_source();

    /* Not everything gets into the target: all is as before. */
    expect(to, ":1", "BF.ADD f other");
    expect_move(3, "now it continues as before", "--pause");
    expect_writable_source();
    expect(to, ":1", "DEL f");

    /* Keys in another database would be left behind. */
    expect(from, "+OK", "SELECT 1");
    expect(from, ":1", "BF.ADD g x");
    expect_move(1, "the source has keys in database 1, too: use --all-databases", "--pause");
    expect_writable_source();

    expect_move(0, "it is read-only now", "--all-databases --pause --replace");
    redisReply *gone = redisCommand(from, "PING"); /* it was disconnected */
    cr_assert_null(gone);
    redisFree(from);
    from = client_open(source.port);
    expect(from, "-READONLY You can't write against a read only server: its setting read-only is yes", "BF.ADD f y");
    expect(from, ":1", "BF.EXISTS f x");
    expect_move(1, "is read-only already", "--all-databases --pause");
    expect(from, "+OK", "CONFIG SET read-only no");
}

/* What the end needs is tried at the beginning. */
PAIR_TEST(move, a_source_that_refuses_a_command_of_the_pause)
{
    static const char *const commands[] = {"client|pause", "client|kill", "config|set", "config|get"};
    expect(from, ":1", "BF.ADD f x");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        expect(from, "+OK", "ACL SETUSER default -%s", commands[i]);
        expect_move(1, "which --pause needs: NOPERM", "--pause");
        expect(from, "+OK", "ACL SETUSER default +%s", commands[i]);
        expect(to, ":0", "DBSIZE");
    }
    expect_writable_source();
}

/* A server that accepts connections and sends single bytes of an answer, until it is killed. */
static pid_t start_dripping_server(int *port)
{
    int listener = listener_open(port);
    pid_t pid = fork();
    while (pid == 0) {
        int fd = accept(listener, NULL, NULL);
        while (send(fd, "+", 1, MSG_NOSIGNAL) == 1)
            sleep_ms(50);
        close(fd);
    }
    close(listener);
    return pid;
}

/* Each byte counted as an answer, and the tool never ended. */
PAIR_TEST(move, a_dripping_source_is_given_up)
{
    int port;
    pid_t pid = start_dripping_server(&port);
    int status = program_run(output, sizeof(output),
                             "timeout 60 '%s' move --from redis://127.0.0.1:%d --to redis://127.0.0.1:%d --timeout 1 "
                             "--retry 0 2>&1",
                             BLOOMERY_TOOL_PATH, port, target.port);
    kill(pid, SIGKILL);
    cr_expect_eq(wait_for(pid), 1000 + SIGKILL);
    cr_expect_eq(status, 1, "exit %d: %s", status, output);
    program_said(output, "the server does not answer");
}
