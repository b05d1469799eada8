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
    SHELL(0, "10 items sent, 10 acknowledged, 0 new\n", "fill f --from items");
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
    SHELL(2, "--csv", "fill f --csv 1");
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

static void need_redis_cli(void)
{
    if (system("command -v redis-cli >/dev/null"))
        cr_skip_test("no redis-cli here");
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
    SHELL(1, "cannot create 'g': OOM ", "seq 1000 | fill g --new --capacity 100");
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

DAEMON_TEST(the_daemon, fill, the_server_goes_away)
{
    unsigned long long sent = 0, acknowledged = 0;

    need_redis_cli();
    SHELL(1, "were acknowledged; the new filter remains\n",
          "ask() { redis-cli -p %d \"$@\"; }; (seq 1000; until [ \"$(ask BF.CARD f)\" -gt 900 ]; do :; done; "
          "kill -9 %d; seq 1001 1000000) | fill f --new --capacity 1000",
          the_daemon.port, (int)the_daemon.pid);
    const char *counts = strstr(output, "filter 'f': ");
    cr_assert(counts && sscanf(counts, "filter 'f': %llu items sent, %llu ", &sent, &acknowledged) == 2, "%s", output);
    cr_assert_lt(acknowledged, sent);
    cr_assert_leq(acknowledged, 1000);
    cr_assert_lt(sent, 1000000, "it went on without a server");
    daemon_kill(&the_daemon);
}

/* ---- a server with wrong answers ---- */

/* Sends its answers at once, reads to the end, and hangs up. */
static void answer(int listener, const char *answers)
{
    static char bytes[1 << 16];
    int fd = accept(listener, NULL, NULL);
    ssize_t n = write(fd, answers, strlen(answers));

    while (n > 0)
        n = read(fd, bytes, sizeof(bytes));
    _exit(0);
}

/* Fills a filter with a, b and c on that server. */
static void fill_from_stand_in(const char *answers, const char *options, const char *text)
{
    int port, listener = listener_open(&port);
    pid_t pid = fork();

    cr_assert_geq(pid, 0);
    if (pid == 0)
        answer(listener, answers);
    close(listener);
    program_expect(output, sizeof(output), 1, text, "printf 'a\\nb\\nc\\n' | '%s' fill redis://127.0.0.1:%d f %s 2>&1",
                   BLOOMERY_TOOL_PATH, port, options);
    wait_until(waitpid(pid, NULL, WNOHANG) == pid);
}

DAEMON_TEST(the_daemon, fill, answers_are_checked)
{
    static const char wrong[] = "the reply to BF.INSERT does not have a number for each item";

    fill_from_stand_in(":1\r\n*2\r\n:1\r\n:1\r\n", "", wrong);
    program_said(output, "; 2 of 3 items sent to 'f' were acknowledged\n");
    fill_from_stand_in(":1\r\n*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n", "", wrong);
    fill_from_stand_in(":1\r\n*3\r\n:1\r\n:2\r\n:1\r\n", "", wrong);
    fill_from_stand_in(":1\r\n:1\r\n", "", wrong);
    fill_from_stand_in("-ERR no\r\n", "--new --capacity 9", "cannot create 'f': ERR no");
}

/* Bytes from a server do not control the terminal, wherever they are printed. */
DAEMON_TEST(the_daemon, fill, texts_of_a_server_are_escaped)
{
    static const char text[] = "-ERR \x1b]0;owned\x07 \xc2\x9b \xff \xc3\xa4\r\n",
                      shown[] = "ERR \\x1b]0;owned\\x07 \\xc2\\x9b \\xff \xc3\xa4";
    char answers[100];

    fill_from_stand_in(text, "", shown);
    fill_from_stand_in(text, "--new --capacity 9", shown);
    snprintf(answers, sizeof(answers), ":1\r\n*1\r\n%s", text);
    fill_from_stand_in(answers, "", "ERR \\x1b]0;owned\\x07 ");
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
