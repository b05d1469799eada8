/* Each allocation in turn fails while the commands of a connection run, in every way of execution. A client gets the
 * right reply or an error, or is disconnected; acknowledged changes are there, and the next client is served. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "alloc_countdown.h"
#include "rig.h"

TestSuite(run_memory, .timeout = 3000);

/* Each '#' in the words becomes the number. */
static void with_number(const char *words, size_t n, char *line_out, size_t size)
{
    size_t len = 0;
    for (; *words; words++)
        len += (size_t)(*words == '#' ? snprintf(line_out + len, size - len, "%zu", n)
                                      : snprintf(line_out + len, size - len, "%c", *words));
    cr_assert_lt(len, size);
}

static void add(const char *words, size_t n)
{
    char line[256];
    with_number(words, n, line, sizeof(line));
    rig_request(&rig_requests, line);
}

static void add_batch(size_t n)
{
    struct buf line;
    buf_init(&line, SIZE_MAX);
    buf_appendf(&line, "BF.MADD many");
    for (unsigned i = 0; i < 300; i++)
        buf_appendf(&line, " %zu-%u", n, i);
    buf_append(&line, "", 1);
    rig_request(&rig_requests, buf_head(&line));
    buf_deinit(&line);
}

/* The replies up to the end of the connection, or to that of "PING the-end". The caller frees them. */
static char *replies_of(int fd)
{
    size_t len = 0, room = 65536;
    char *text = calloc(1, room);
    for (;;) {
        ssize_t n = recv(fd, text + len, room - 1 - len, 0);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
            cr_assert_eq(poll(&poll_fd, 1, WAIT_PATIENCE_S * 1000), 1, "no end behind '%s'", text);
            continue;
        }
        if (n <= 0)
            return text;
        len += (size_t)n;
        if (strstr(text, "the-end\r\n"))
            return text;
    }
}

/* Runs the commands while allocation `n` fails; returns whether there was one. */
static bool run(void (*commands)(size_t n), size_t n, char **replies_out)
{
    int fd = rig_connect(0);
    rig_pass(0);
    commands(n);
    rig_request(&rig_requests, "PING the-end");
    rig_hold();
    rig_send_buf(fd, &rig_requests);
    alloc_countdown_start(n);
    rig_let_go();
    *replies_out = replies_of(fd);
    bool failed = alloc_countdown_stop();
    rig_close(fd);
    return failed;
}

static void expect_present(const char *words, size_t n)
{
    char line[128];
    int fd = rig_connect(1);
    with_number(words, n, line, sizeof(line));
    rig_call(fd, line, ":1\r\n");
    rig_close(fd);
}

static void begin(void)
{
    /* However the failures change what a filter holds, what is new to it is new. */
    static const char *const settings[] = {"bf-error-rate", "1e-9", NULL};
    alloc_countdown_spare(true); /* the test's own */
    rig_begin(2, NULL, settings);
}

/* Runs the commands repeatedly, while one allocation after the other fails, and at last none. */
static void each_allocation(void (*commands)(size_t n), void (*check)(size_t n, bool failed, const char *replies))
{
    bool failed = true;
    for (size_t n = 0; failed; n++) {
        char *replies;
        failed = run(commands, n, &replies);
        check(n, failed, replies);
        free(replies);
    }
}

/* ---- each way of execution ---- */

static void single_adds(size_t n)
{
    add("BF.ADD f #", n);
    add("BF.EXISTS f #", n);
    add("BF.ADD fresh-# a", n);
    add("BF.ADD f again-#", n);
    add("DEL fresh-#", n);
}

static void check_single_adds(size_t n, bool failed, const char *replies)
{
    if (strncmp(replies, ":1\r\n", 4) == 0)
        expect_present("BF.EXISTS f #", n);
    cr_assert(failed || strcmp(replies, ":1\r\n:1\r\n:1\r\n:1\r\n:1\r\n$7\r\nthe-end\r\n") == 0, "%s", replies);
}

RIG_TEST(run_memory, through_the_window)
{
    begin();
    each_allocation(single_adds, check_single_adds);
}

static void in_slices(size_t n)
{
    add_batch(n);
    add("BF.ADD f #", n);
    add("BF.MEXISTS many #-299 nosuch", n);
}

static void check_in_slices(size_t n, bool failed, const char *replies)
{
    if (strncmp(replies, "*300\r\n", 6) == 0 && !strstr(replies, "-"))
        expect_present("BF.EXISTS many #-299", n);
    cr_assert(failed || strstr(replies, "\r\n:1\r\n*2\r\n:1\r\n:0\r\n$7\r\nthe-end"), "%s", replies);
}

RIG_TEST(run_memory, in_slices)
{
    begin();
    each_allocation(in_slices, check_in_slices);
}

static void in_the_pool(size_t n)
{
    add("BF.ADD from #", n);
    add("BF.MERGE to-# from", n);
    add("BF.EXISTS to-# #", n);
    add("DEL to-#", n);
}

static void check_in_the_pool(size_t n, bool failed, const char *replies)
{
    if (strncmp(replies, ":1\r\n", 4) == 0)
        expect_present("BF.EXISTS from #", n);
    if (strncmp(replies, ":1\r\n+OK\r\n", 9) == 0) /* present, unless the look-up failed */
        cr_assert(strncmp(replies + 9, ":1\r\n", 4) == 0 || replies[9] == '-' || replies[9] == '\0', "%s", replies);
    cr_assert(failed || strcmp(replies, ":1\r\n+OK\r\n:1\r\n:1\r\n$7\r\nthe-end\r\n") == 0, "%s", replies);
}

RIG_TEST(run_memory, in_the_pool)
{
    begin();
    each_allocation(in_the_pool, check_in_the_pool);
}

static int other;

static void in_a_transaction(size_t n)
{
    add("MULTI", n);
    add("BF.ADD f t#", n);
    add("BF.ADD g t#", n);
    add("EXEC", n);
}

/* The whole transaction, or nothing with an error. */
static void check_in_a_transaction(size_t n, bool failed, const char *replies)
{
    char line[64];
    snprintf(line, sizeof(line), "BF.EXISTS f t%zu", n);
    rig_send(other, line);
    char *in_f = rig_read(other, 4);
    snprintf(line, sizeof(line), "BF.EXISTS g t%zu", n);
    rig_send(other, line);
    char *in_g = rig_read(other, 4);
    cr_assert(strcmp(in_f, in_g) == 0 || strstr(replies, "*2\r\n"), "one of both, behind '%s'", replies);
    if (strstr(replies, "*2\r\n:1\r\n:1\r\n"))
        cr_assert(in_f[1] == '1' && in_g[1] == '1', "acknowledged, but not there");
    cr_assert(failed || strstr(replies, "*2\r\n:1\r\n:1\r\n"), "%s", replies);
    free(in_f);
    free(in_g);
}

RIG_TEST(run_memory, in_a_transaction)
{
    begin();
    other = rig_connect(1);
    rig_call(other, "BF.RESERVE f 0.0001 1000", "+OK\r\n");
    rig_call(other, "BF.RESERVE g 0.0001 1000", "+OK\r\n");
    each_allocation(in_a_transaction, check_in_a_transaction);
}
