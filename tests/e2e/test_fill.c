/* `bloomery fill`, the real program, against the daemon: every byte of an item arrives, and no loss is silent. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "listener.h"
#include "program.h"
#include "tmpdir.h"
#include "wait.h"

CLIENT_SUITE(the_daemon, client, fill, "--threads", "1");

static char output[16384];

/* Runs a shell command in the test's directory; `fill` is the tool, with the daemon's address. */
#define SHELL(code, text, format, ...)                                                                               \
    program_expect(output, sizeof(output), code, text,                                                               \
                   "exec 2>&1; cd '%s'; fill() { '%s' fill redis://127.0.0.1:%d \"$@\"; }; " format, the_daemon.dir, \
                   BLOOMERY_TOOL_PATH, the_daemon.port, ##__VA_ARGS__)

static void write_items(const char *name, const char *bytes, size_t len)
{
    file_write(tmp_path(the_daemon.dir, "%s", name).text, bytes, len);
}

#define WRITE(name, literal) write_items(name, literal, sizeof(literal) - 1)

static void expect_item(const char *filter, const char *bytes, size_t len)
{
    cr_assert_str_eq(client_ask(client, "BF.EXISTS %s %b", filter, bytes, len), ":1", "'%.*s' is not in %s", (int)len,
                     bytes, filter);
}

#define HAS(filter, literal) expect_item(filter, literal, sizeof(literal) - 1)

static void expect_end(const char *text)
{
    size_t len = strlen(output), end = strlen(text);

    cr_assert(len >= end && strcmp(output + len - end, text) == 0, "'%s' is not the end of: %s", text, output);
}

/* ---- items ---- */

#define AWKWARD "O'Brien\ntwo words\n\"\n\\x00\n\nBF.ADD f x\n\xff\xfe\r\nnul\0inside\n  spaces  \nlast"

DAEMON_TEST(the_daemon, fill, a_line_is_an_item_with_all_its_bytes)
{
    WRITE("items", AWKWARD);
    SHELL(0, "filter 'f': 10 items sent, 10 acknowledged, 10 new\n",
          "fill f --new --error 0.00001 --capacity 1000 <items");
    HAS("f", "O'Brien");
    HAS("f", "two words");
    HAS("f", "\"");
    HAS("f", "\\x00");
    HAS("f", "");
    HAS("f", "BF.ADD f x");
    HAS("f", "\xff\xfe\r");
    HAS("f", "nul\0inside");
    HAS("f", "  spaces  ");
    HAS("f", "last");
    expect(client, ":10", "BF.CARD f");
    SHELL(0, "10 items sent, 10 acknowledged, 0 new\n", "fill f --lines --from items");
    SHELL(0, "10 items sent, 10 acknowledged, 0 new\n", "fill f --from - <items");
}

DAEMON_TEST(the_daemon, fill, items_end_with_nul)
{
    WRITE("items", "two\nlines\0\0\"quoted\"\0\nlast");
    SHELL(0, "4 items sent, 4 acknowledged, 4 new\n", "fill f --new -0 --error 0.00001 --from items");
    HAS("f", "two\nlines");
    HAS("f", "");
    HAS("f", "\"quoted\"");
    HAS("f", "\nlast");
}

/* Also an item longer than one read, which is sent immediately. */
DAEMON_TEST(the_daemon, fill, long_items)
{
    const size_t len = 5 << 20;
    char *item = malloc(len + 1);

    memset(item, 'x', len);
    item[len] = '\n';
    write_items("items", item, len + 1);
    SHELL(0, "5 items sent, 5 acknowledged, 4 new\n",
          "(echo a; cat items; echo b; cat items; echo c) | fill f --new --error 0.00001 --capacity 10");
    expect_item("f", item, len);
    HAS("f", "a");
    HAS("f", "b");
    HAS("f", "c");
    free(item);
}

/* They stay a part of the items, and are said once. */
DAEMON_TEST(the_daemon, fill, carriage_returns_are_counted)
{
    SHELL(0, "lines that end with a carriage return, as those of Windows: 2 of 3; it is a part of the items",
          "printf 'a\\r\\nb\\nc\\r\\n' | fill f --new --capacity 10");
    HAS("f", "a\r");
    SHELL(0, "filter 'g': 2 items sent", "printf 'a\\r\\0b\\0' | fill g -0 --new --capacity 10");
    cr_expect_null(strstr(output, "carriage"), "%s", output);
}

/* ---- the filter ---- */

DAEMON_TEST(the_daemon, fill, a_mistyped_name_makes_no_filter)
{
    SHELL(1, "no filter 'typo'", "seq 10 | fill typo");
    SHELL(1, "no filter 'typo'", "fill typo </dev/null");
    expect(client, ":0", "DBSIZE");
}

DAEMON_TEST(the_daemon, fill, it_is_made_as_the_options_say)
{
    SHELL(0, "500 items sent", "seq 500 >items; fill f --new --from items");
    expect(client, "[:500]", "BF.INFO f CAPACITY");
    expect(client, "[\"0.01\"]", "BF.INFO f ERRORRATE");
    SHELL(0, "500 items sent", "fill g --error 0.002 --capacity 777 --from items");
    expect(client, "[:777]", "BF.INFO g CAPACITY");
    expect(client, "[\"0.002\"]", "BF.INFO g ERRORRATE");
    SHELL(0, "500 items sent", "fill k --keyed --from items");
    cr_assert_str_neq(client_ask(client, "BF.INFO k KEY"), "[nil]");
    expect(client, "[nil]", "BF.INFO g KEY");
    SHELL(0, "0 items sent, 0 acknowledged, 0 new\n", "fill empty --new --from /dev/null --capacity 10");
    expect(client, ":0", "BF.CARD empty");

    SHELL(0, "20 items sent", "seq 1001 1020 | fill g --error 0.3 --capacity 9"); /* it exists, and stays as it is */
    expect(client, "[:777]", "BF.INFO g CAPACITY");
    HAS("g", "1020");
    SHELL(1, "'g' exists, but --new requires a new name", "seq 2001 2500 | fill g --new --capacity 9");
    expect(client, ":0", "BF.EXISTS g 2001");
}

DAEMON_TEST(the_daemon, fill, wrong_arguments)
{
    SHELL(2, "NAME is missing", "fill");
    SHELL(2, "NAME is missing", "'%s' fill", BLOOMERY_TOOL_PATH);
    SHELL(2, "unknown scheme", "'%s' fill http://localhost f", BLOOMERY_TOOL_PATH);
    SHELL(2, "--capacity is missing: the items of a pipe cannot be counted", "seq 10 | fill f --new");
    SHELL(2, "-0 and --lines exclude each other", "fill f -0 --lines");
    SHELL(2, "--csv", "fill f --csv 1");
    SHELL(2, "--new and --swap exclude each other", "fill f --new --swap");
    SHELL(2, "must be a rate between 0 and 1", "fill f --error 1");
    SHELL(2, "--capacity '0'", "fill f --capacity 0");
    SHELL(1, "absent: No such file or directory", "fill f --new --from absent");
    SHELL(1, ".: Is a directory", "fill f --new --from .");
    SHELL(1, "redis://127.0.0.1:1: ", "seq 10 | '%s' fill redis://127.0.0.1:1 f", BLOOMERY_TOOL_PATH);
    expect(client, ":0", "DBSIZE");
}

DAEMON_TEST(the_daemon, fill, as_json)
{
    expect(client, "+OK", "BF.RESERVE f 0.00001 100 NONSCALING");
    SHELL(0, "\"name\":\"f\",\"sent\":3,\"acknowledged\":3,\"new\":2,\"complete\":true}\n",
          "printf 'a\\nb\\na' | fill f --json");
    SHELL(1, "\"new\":98,\"complete\":false}\n", "seq 1000 | fill f --json");
}

/* ---- --swap ---- */

static void need_redis_cli(void)
{
    if (system("command -v redis-cli >/dev/null"))
        cr_skip_test("no redis-cli here");
}

DAEMON_TEST(the_daemon, fill, swap_replaces_the_filter_as_a_whole)
{
    SHELL(0, "filter 'f': 3 items sent, 3 acknowledged, 3 new\n",
          "printf 'a\\nb\\nc\\n' | fill f --swap --error 0.00001 --capacity 10"); /* there is no filter to replace */
    HAS("f", "c");
    SHELL(0, "filter 'f': 2 items sent", "printf 'c\\nd\\n' | fill f --swap --error 0.00001 --capacity 20");
    HAS("f", "d");
    expect(client, ":0", "BF.EXISTS f a");
    expect(client, "[:20]", "BF.INFO f CAPACITY");
    expect(client, ":1", "DBSIZE");
}

DAEMON_TEST(the_daemon, fill, a_failed_swap_changes_nothing)
{
    expect(client, "+OK", "BF.RESERVE f 0.00001 100 NONSCALING");
    expect(client, ":1", "BF.ADD f old");
    SHELL(1, "sent to 'f:new' were acknowledged; 'f' is unchanged, and 'f:new' is deleted",
          "seq 1000 | fill f --swap --capacity 100");
    expect(client, ":1", "DBSIZE");
    expect(client, ":1", "BF.CARD f");
    HAS("f", "old");

    cr_assert_null(strstr(strstr(output, "were acknowledged") + 1, "were acknowledged"), "a second reason: %s", output);

    expect(client, ":1", "BF.ADD f:new another");
    SHELL(1, "'f:new' exists: another run is filling it, or was killed", "seq 10 | fill f --swap --capacity 20");
    expect(client, ":1", "BF.CARD f:new"); /* the run must not delete it */
    expect(client, ":1", "BF.CARD f");
}

/* The new filter has the properties of the old one, unless the options override them. */
DAEMON_TEST(the_daemon, fill, a_swap_takes_over_what_the_filter_has)
{
    expect(client, "+OK", "BF.RESERVE w 0.001 500 WINDOW 3600 PARTS 4 REFRESH");
    expect(client, "+OK", "BF.RESERVE i 0.004 500 WINDOW ITEMS 2000 NONSCALING");
    expect(client, "+OK", "BF.RESERVE k 0.0005 500 EXPANSION 4 KEYED");
    expect(client, "+OK", "BF.RESERVE r 0.02 500 NONSCALING LAYOUT redisbloom");
    expect(client, "+OK", "BF.RESERVE v 0.02 500 EXPANSION 3 LAYOUT valkey");
    expect(client, ":1", "PEXPIRE k 5000000");
    SHELL(0, "filter 'w': 10 items sent", "seq 10 >ten; fill w --swap --from ten");
    expect(client, "[\"3600 seconds refresh\"]", "BF.INFO w WINDOW");
    expect(client, "[:4]", "BF.INFO w PARTS");
    expect(client, "[:500]", "BF.INFO w CAPACITY");
    expect(client, "[\"0.001\"]", "BF.INFO w ERRORRATE");
    expect(client, ":-1", "PTTL w");
    SHELL(0, "filter 'i': 10 items sent", "fill i --swap <ten"); /* also from a pipe */
    expect(client, "[\"2000 items\"]", "BF.INFO i WINDOW");
    expect(client, "[nil]", "BF.INFO i EXPANSION");
    expect(client, "[\"0.004\"]", "BF.INFO i ERRORRATE");
    SHELL(0, "filter 'k': 900 items sent", "seq 900 >items; fill k --swap --from items");
    cr_assert_str_neq(client_ask(client, "BF.INFO k KEY"), "[nil]");
    expect(client, "[:4]", "BF.INFO k EXPANSION");
    expect(client, "[:900]", "BF.INFO k CAPACITY");
    expect(client, "[\"0.0005\"]", "BF.INFO k ERRORRATE");
    long long left = client_number(client, "PTTL k");
    cr_assert(left > 4000000 && left <= 5000000, "%lld", left);
    SHELL(0, "filter 'r': 10 items sent", "fill r --swap --error 0.01 --capacity 77 --keyed --from ten");
    cr_assert_str_neq(client_ask(client, "BF.INFO r KEY"), "[nil]");
    expect_has(client, "redisbloom", "BF.INFO r LAYOUT");
    expect(client, "[nil]", "BF.INFO r EXPANSION");
    expect(client, "[:77]", "BF.INFO r CAPACITY");
    expect(client, "[\"0.01\"]", "BF.INFO r ERRORRATE");
    SHELL(0, "filter 'v': 10 items sent", "fill v --swap --from ten");
    expect_has(client, "valkey", "BF.INFO v LAYOUT");
    expect(client, "[:3]", "BF.INFO v EXPANSION");
    expect(client, ":5", "DBSIZE");
}

DAEMON_TEST(the_daemon, fill, a_swap_of_nothing_changes_nothing)
{
    expect(client, ":1", "BF.ADD f old");
    SHELL(1, "the input has no item, and an empty filter must not replace another; 0 of 0 items",
          "fill f --swap </dev/null");
    SHELL(1, "the input has no item", "fill f --swap --from /dev/null");
    SHELL(1, "the input has no item", "fill f --swap -0 --from /dev/null");
    program_said(output, "'f' is unchanged, and 'f:new' is deleted");
    SHELL(1, "the input has no item", "fill absent --swap --capacity 10 </dev/null");
    HAS("f", "old");
    expect(client, ":1", "DBSIZE");
}

/* The signal comes while the tool and the shell wait for the input. */
DAEMON_TEST(the_daemon, fill, an_interrupted_swap_deletes_what_it_has_made)
{
    need_redis_cli();
    expect(client, ":1", "BF.ADD f old");
    SHELL(1,
          "interrupted; 100 of 100 items sent to 'f:new' were acknowledged; 'f' is unchanged, and 'f:new' is deleted",
          "ask() { redis-cli -p %d \"$@\"; }; mkfifo pipe; '%s' fill redis://127.0.0.1:%d f --swap <pipe & "
          "exec 9>pipe; seq 100 >&9; until [ \"$(ask BF.CARD f:new)\" -gt 90 ]; do :; done 2>/dev/null; "
          "kill -TERM $!; wait $!",
          the_daemon.port, BLOOMERY_TOOL_PATH, the_daemon.port);
    HAS("f", "old");
    expect(client, ":1", "DBSIZE");
}

/* ---- failures ---- */

/* All answers are counted, also those to the batches that were under way. */
DAEMON_TEST(the_daemon, fill, a_full_filter)
{
    expect(client, "+OK", "BF.RESERVE f 0.0000001 100 NONSCALING");
    SHELL(1, "ERR non scaling filter is full; 100 of 120 items sent to 'f' were acknowledged\n", "seq 120 | fill f");
    program_said(output, "filter 'f': 120 items sent, 100 acknowledged, 100 new\n");
    expect(client, ":100", "BF.CARD f");
    SHELL(1, "ERR non scaling filter is full; 173 of 201 items", /* x ends the answer to its batch of 32 */
          "(seq 100; echo x; seq 100) >items; fill f --from items");
    SHELL(1, "were acknowledged\n", "seq 1000000 | fill f");
    expect(client, ":100", "BF.CARD f");
}

DAEMON_TEST(the_daemon, fill, no_memory_is_left)
{
    expect(client, "+OK", "BF.RESERVE f 0.001 100");
    expect(client, "+OK", "CONFIG SET maxmemory 1");
    SHELL(1, ": OOM ", "seq 1000 | fill f");
    program_said(output, "; 0 of 1000 items sent to 'f' were acknowledged\n");
    SHELL(1, "cannot create 'f:new': OOM ", "seq 1000 | fill f --swap --capacity 100");
    expect(client, ":1", "DBSIZE");
}

/* The items so far are sent while the writer of the pipe pauses; and a deleted filter does not come back with the
 * rest. */
DAEMON_TEST(the_daemon, fill, a_filter_is_deleted_in_the_midst)
{
    need_redis_cli();
    expect(client, "+OK", "BF.RESERVE f 0.00001 1000");
    SHELL(1, "ERR not found; 100 of 200 items sent to 'f' were acknowledged\n",
          "ask() { redis-cli -p %d \"$@\"; }; (seq 100; until [ \"$(ask BF.CARD f)\" = 100 ]; do :; done; "
          "ask DEL f >/dev/null; seq 101 200) | fill f",
          the_daemon.port);
    expect(client, ":0", "DBSIZE");
}

/* Then the new filter lacks acknowledged items. */
DAEMON_TEST(the_daemon, fill, a_new_filter_that_others_have_emptied_replaces_nothing)
{
    static const char *const changes[] = {"BF.CLEAR f:new", "COPY f f:new REPLACE"};

    need_redis_cli();
    expect(client, "+OK", "BF.RESERVE f 0.00001 1000");
    expect(client, ":1", "BF.ADD f old");
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        SHELL(1, "'f:new' lacks items that were added: another client has changed it meanwhile; 101 of 101 items",
              "ask() { redis-cli -p %d \"$@\"; }; (seq 100; until [ \"$(ask BF.CARD f:new)\" = 100 ]; do :; done; "
              "ask %s >/dev/null; echo last) | fill f --swap --capacity 1000",
              the_daemon.port, changes[i]);
        program_said(output, "'f' is unchanged, and 'f:new' is deleted");
        HAS("f", "old");
        expect(client, ":1", "DBSIZE");
    }
}

DAEMON_TEST(the_daemon, fill, the_server_goes_away)
{
    unsigned long long sent = 0, acknowledged = 0;

    need_redis_cli();
    SHELL(1, "were acknowledged; 'f' is unchanged, and 'f:new' may remain: delete it before the next attempt\n",
          "ask() { redis-cli -p %d \"$@\"; }; (seq 1000; until [ \"$(ask BF.CARD f:new)\" -gt 900 ]; do :; done; "
          "kill -9 %d; seq 1001 1000000) | fill f --swap --capacity 1000",
          the_daemon.port, (int)the_daemon.pid);
    const char *counts = strstr(output, "filter 'f': ");
    cr_assert(counts && sscanf(counts, "filter 'f': %llu items sent, %llu ", &sent, &acknowledged) == 2, "%s", output);
    cr_assert_lt(acknowledged, sent);
    cr_assert_leq(acknowledged, 1000);
    cr_assert_lt(sent, 1000000, "it went on without a server");
    daemon_kill(&the_daemon);
}

/* ---- a server with wrong answers ---- */

/* Sends its answers at once, reads until `last` has come (NULL: the end), and hangs up. */
static void answer(int listener, const char *answers, const char *last)
{
    static char bytes[1 << 16];
    size_t len = 0;
    int fd = accept(listener, NULL, NULL);
    ssize_t n = write(fd, answers, strlen(answers));

    while (n > 0 && !(last && strstr(bytes, last))) {
        n = read(fd, bytes + len, sizeof(bytes) - 1 - len);
        len += n > 0 ? (size_t)n : 0;
    }
    _exit(0);
}

/* Fills a filter with a, b and c on that server. */
static void fill_from_stand_in(const char *answers, const char *last, const char *options, const char *text)
{
    int port, listener = listener_open(&port);
    pid_t pid = fork();

    cr_assert_geq(pid, 0);
    if (pid == 0)
        answer(listener, answers, last);
    close(listener);
    program_expect(output, sizeof(output), 1, text, "printf 'a\\nb\\nc\\n' | '%s' fill redis://127.0.0.1:%d f %s 2>&1",
                   BLOOMERY_TOOL_PATH, port, options);
    wait_until(waitpid(pid, NULL, WNOHANG) == pid);
}

DAEMON_TEST(the_daemon, fill, answers_are_checked)
{
    static const char wrong[] = "the reply to BF.INSERT does not have a number for each item";
    static const char swap[] = "--swap --capacity 9";

    fill_from_stand_in(":1\r\n*2\r\n:1\r\n:1\r\n", NULL, "", wrong);
    program_said(output, "; 2 of 3 items sent to 'f' were acknowledged\n");
    fill_from_stand_in(":1\r\n*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n", NULL, "", wrong);
    fill_from_stand_in(":1\r\n*3\r\n:1\r\n:2\r\n:1\r\n", NULL, "", wrong);
    fill_from_stand_in(":1\r\n:1\r\n", NULL, "", wrong);
    fill_from_stand_in(":0\r\n+OK\r\n*3\r\n:1\r\n:0\r\n:1\r\n:2\r\n-ERR no\r\n:1\r\n", NULL, swap,
                       "ERR no; 3 of 3 items sent to 'f:new' were acknowledged; 'f' is unchanged, and 'f:new' is "
                       "deleted");
    fill_from_stand_in(":0\r\n+OK\r\n*3\r\n:1\r\n:0\r\n:1\r\n+2\r\n:1\r\n", NULL, swap,
                       "the reply to BF.CARD is not a number; 3 of 3 items");
    fill_from_stand_in(":0\r\n+OK\r\n*3\r\n:1\r\n:0\r\n:1\r\n:2\r\n", "RENAME", swap,
                       "it is unknown whether 'f:new' was renamed to 'f'");
    fill_from_stand_in(":0\r\n-ERR no\r\n", NULL, swap, "cannot create 'f:new': ERR no");
}

/* Bytes from a server do not control the terminal, wherever they are printed. */
DAEMON_TEST(the_daemon, fill, texts_of_a_server_are_escaped)
{
    static const char text[] = "-ERR \x1b]0;owned\x07 \xc2\x9b \xff \xc3\xa4\r\n",
                      shown[] = "ERR \\x1b]0;owned\\x07 \\xc2\\x9b \\xff \xc3\xa4";
    char answers[100];

    fill_from_stand_in(text, NULL, "", shown);
    snprintf(answers, sizeof(answers), ":0\r\n%s", text);
    fill_from_stand_in(answers, NULL, "--swap --capacity 9", shown);
    snprintf(answers, sizeof(answers), ":1\r\n*1\r\n%s", text);
    fill_from_stand_in(answers, NULL, "", "ERR \\x1b]0;owned\\x07 ");
}

/* ---- size ---- */

#define LARGE_ITEMS 1000000
#define MEMORY_KB   (32 << 10) /* of 80 or 120 MB of items */

static void expect_little_memory(void)
{
    struct rusage used;

    cr_assert_eq(getrusage(RUSAGE_CHILDREN, &used), 0);
    if (!DAEMON_SANITIZED)
        cr_assert_lt(used.ru_maxrss, MEMORY_KB);
}

DAEMON_TEST(the_daemon, fill, long_items_in_little_memory)
{
    SHELL(0, "80 items sent, 80 acknowledged, 1 new\n", /* a file, where nothing waits for a writer */
          "head -c 80000000 /dev/zero | tr '\\0' x | fold -w 1000000 >items; fill f --new --from items");
    expect_little_memory();
}

DAEMON_TEST(the_daemon, fill, a_million_items_in_little_memory)
{
    SHELL(0, "1000000 items sent, 1000000 acknowledged, ",
          "seq -f '%%0120.0f' %d >items; fill f --new --error 0.001 --from items", LARGE_ITEMS);
    expect_little_memory();
    cr_assert_geq(client_number(client, "BF.CARD f"), LARGE_ITEMS - LARGE_ITEMS / 500);
    for (int i = 1; i <= LARGE_ITEMS; i += 997)
        expect(client, ":1", "BF.EXISTS f %0120d", i);
    expect(client, "[:1000000]", "BF.INFO f CAPACITY");
    expect_end(" new\n");
}
