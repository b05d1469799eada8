/* The pipeline answers as if each command ran alone, with commands in runs or one by one, from one connection or from
 * many, cut anywhere. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "rng.h"

TestSuite(pipeline, .timeout = 3000);

__attribute__((format(printf, 1, 2))) static void request(const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    rig_request(&rig_requests, line);
}

/* Replies of one character between ':' and the end of the line. */
static void expect_numbers(int fd, const char *digits)
{
    for (; *digits; digits++)
        rig_expect(fd, (char[]){':', *digits, '\r', '\n', '\0'});
}

static void expect_times(int fd, const char *reply, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rig_expect(fd, reply);
}

/* ---- boundaries ---- */

/* Runs of 32, a pipeline of 64 runs and 256 items: each item has its place, none comes twice, and none gets the answer
 * of another one. */
RIG_TEST(pipeline, runs_of_any_length_are_answered_item_by_item)
{
    static const unsigned lengths[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 224, 225, 255, 256, 257, 1000};
    rig_begin(1, NULL, NULL);
    int fd = rig_connect(0);
    rig_call(fd, "BF.RESERVE f 0.000001 100000", "+OK\r\n");
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (unsigned pass = 0; pass < 3; pass++) {
            rig_hold();
            for (unsigned item = 0; item < lengths[i]; item++)
                request("%s f %zu-%u", pass == 0 ? "BF.ADD" : "BF.EXISTS", i,
                        pass == 2 && item % 3 ? item + 5000 : item);
            rig_send_buf(fd, &rig_requests);
            rig_let_go();
            for (unsigned item = 0; item < lengths[i]; item++)
                rig_expect(fd, pass == 2 && item % 3 ? ":0\r\n" : ":1\r\n");
        }
    }
}

/* Commands of 70 connections at once: more runs than the pipeline has places for. */
RIG_TEST(pipeline, of_many_connections_in_one_iteration_one_wins)
{
    enum { CONNECTIONS = 70 };
    int fds[CONNECTIONS];
    unsigned winners = 0;
    rig_begin(1, NULL, NULL);
    for (int i = 0; i < CONNECTIONS; i++)
        fds[i] = rig_connect(0);
    rig_hold();
    for (int i = 0; i < CONNECTIONS; i++) {
        request("BF.EXISTS f %d", i); /* never added */
        request("BF.ADD f the-same");
        request("BF.ADD f %d", i);
        request("BF.EXISTS f %d", i);
        rig_send_buf(fds[i], &rig_requests);
    }
    rig_let_go();
    for (int i = 0; i < CONNECTIONS; i++) {
        rig_expect(fds[i], ":0\r\n");
        char *reply = rig_read(fds[i], 4);
        winners += reply[1] == '1';
        free(reply);
        expect_numbers(fds[i], "11");
    }
    cr_assert_eq(winners, 1, "%u connections have added it", winners);
}

/* ---- order ---- */

/* A later command of the same input changes the filter that an earlier step has read. */
RIG_TEST(pipeline, what_changes_in_between_is_seen)
{
    rig_begin(1, NULL, NULL);
    int fd = rig_connect(0);
    rig_hold();
    request("BF.ADD f a"); /* makes the filter */
    request("BF.EXISTS f a");
    request("DEL f");
    request("BF.EXISTS f a");
    request("BF.ADD f b");
    request("BF.ADD g c");
    request("RENAME g f");
    request("BF.EXISTS f b");
    request("BF.EXISTS f c");
    request("BF.EXISTS g c");
    request("BF.ADD f c");
    request("FLUSHALL");
    request("BF.EXISTS f c");
    rig_send_buf(fd, &rig_requests);
    rig_let_go();
    expect_numbers(fd, "111011");
    rig_expect(fd, "+OK\r\n");
    expect_numbers(fd, "0100");
    rig_expect(fd, "+OK\r\n");
    expect_numbers(fd, "0");
}

/* Within one run: a filter of fixed size is full in the middle of it, and one that grows has another layer. */
RIG_TEST(pipeline, a_filter_that_fills_up_within_a_run)
{
    rig_begin(1, NULL, NULL);
    int fd = rig_connect(0);
    rig_call(fd, "BF.RESERVE fixed 0.0001 20 NONSCALING", "+OK\r\n");
    rig_call(fd, "BF.RESERVE grows 0.0001 20", "+OK\r\n");
    rig_hold();
    for (int i = 0; i < 32; i++)
        request("BF.ADD fixed item-%02d", i);
    for (int i = 0; i < 32; i++)
        request("BF.ADD grows item-%02d", i);
    for (int i = 0; i < 32; i++)
        request("BF.EXISTS fixed item-%02d", i);
    for (int i = 0; i < 32; i++)
        request("BF.ADD fixed item-%02d", i % 20);
    rig_send_buf(fd, &rig_requests);
    rig_let_go();
    expect_times(fd, ":1\r\n", 20);
    expect_times(fd, "-ERR non scaling filter is full\r\n", 12);
    expect_times(fd, ":1\r\n", 32 + 20);
    expect_times(fd, ":0\r\n", 12 + 32);
    rig_call(fd, "BF.CARD grows", ":32\r\n");
    rig_call(fd, "BF.INFO grows FILTERS", "*1\r\n:2\r\n");
}

/* ---- a command recognised from the previous one ---- */

RIG_TEST(pipeline, another_connection_is_asked_for_its_own_rights)
{
    rig_begin(1, NULL, NULL);
    int owner = rig_connect(0), guest = rig_connect(0);
    rig_call(owner, "ACL SETUSER guest on >pw ~g +@all", "+OK\r\n");
    rig_call(guest, "AUTH guest pw", "+OK\r\n");
    for (int round = 0; round < 3; round++) {
        rig_call(owner, "BF.ADD f secret", round ? ":0\r\n" : ":1\r\n");
        rig_call(guest, "BF.ADD f secret",
                 "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n");
        rig_call(owner, "BF.EXISTS f secret", ":1\r\n");
        rig_call(guest, "BF.EXISTS f secret",
                 "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n");
        rig_call(guest, "BF.EXISTS g secret", ":0\r\n");
    }
    rig_call(owner, "ACL SETUSER guest ~f", "+OK\r\n");
    rig_call(owner, "BF.EXISTS f secret", ":1\r\n");
    rig_call(guest, "BF.EXISTS f secret", ":1\r\n");
    rig_call(owner, "ACL SETUSER guest resetkeys ~g", "+OK\r\n"); /* earlier rights do not count any more */
    rig_call(guest, "BF.EXISTS f secret",
             "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n");
}

RIG_TEST(pipeline, another_connection_is_in_its_own_database)
{
    rig_begin(1, NULL, NULL);
    int zero = rig_connect(0), one = rig_connect(0);
    rig_call(one, "SELECT 1", "+OK\r\n");
    rig_call(zero, "BF.ADD f a", ":1\r\n");
    rig_call(one, "BF.ADD f a", ":1\r\n");
    rig_call(zero, "BF.ADD f b", ":1\r\n");
    rig_hold();
    for (int i = 0; i < 8; i++) {
        request("BF.EXISTS f b");
        rig_send_buf(i % 2 ? one : zero, &rig_requests);
    }
    rig_let_go();
    expect_numbers(zero, "1111");
    expect_numbers(one, "0000");
    rig_call(one, "SWAPDB 0 1", "+OK\r\n"); /* the names are the same, the filters are not */
    rig_call(zero, "BF.EXISTS f b", ":0\r\n");
    rig_call(one, "BF.EXISTS f b", ":1\r\n");
}

/* ---- equal to single commands ---- */

static void random_request(struct rng *rng)
{
    static const char *const names[] = {"f", "g", "fixed", "longer-name"};
    static const char *const others[][2] = {
        {"BF.CARD", ""}, {"BF.ADD", ""},   {"BF.INFO", " ITEMS"}, {"WATCH", ""},
        {"NOSUCH", ""},  {"EXISTS", " g"}, {"UNWATCH", ""},       {"BF.MEXISTS", " i1 i2"},
        {"DISCARD", ""}, {"DBSIZE", ""},   {"KEYS", ""},          {"PING", ""}};
    const char *name = names[rng_next(rng) % 4];
    uint64_t dice = rng_next(rng) % 100;
    unsigned item = (unsigned)(rng_next(rng) % 200), n = 1 + (unsigned)(rng_next(rng) % 40);
    if (dice < 40)
        for (unsigned i = 0; i < n; i++)
            request("BF.ADD %s i%u", name, item + i);
    else if (dice < 80)
        for (unsigned i = 0; i < n; i++)
            request("BF.EXISTS %s i%u", name, item + i);
    else if (dice < 84)
        request("DEL %s", name);
    else if (dice < 86)
        request("BF.MADD %s i%u i%u", name, item, item + 1);
    else if (dice < 88)
        request("RENAME %s %s", name, names[rng_next(rng) % 4]);
    else if (dice < 91)
        request("BF.RESERVE %s 0.001 %u%s", name, n, dice == 88 ? " NONSCALING" : "");
    else if (dice < 93)
        request("SELECT %u", item % 2);
    else if (dice < 96)
        request("%s %s%s", others[item % 12][0], name, others[item % 12][1]);
    else if (dice < 97)
        request("MULTI");
    else if (dice < 99)
        request("EXEC");
    else
        request("CLIENT REPLY SKIP");
}

/* Sends pieces cut at random, after a RESET and a FLUSHALL; 0: one piece. */
static char *in_pieces(int fd, const struct buf *all, size_t piece, struct rng *rng, size_t *len_out)
{
    const char *at = buf_head(all);
    size_t left = buf_len(all);
    rig_call(fd, "RESET", "+RESET\r\n");
    rig_call(fd, "FLUSHALL", "+OK\r\n");
    while (left > 0) {
        size_t len = piece ? 1 + rng_next(rng) % piece : left;
        len = len < left ? len : left;
        rig_send_bytes(fd, at, len);
        at += len;
        left -= len;
        if (piece)
            rig_pass(0);
    }
    struct buf end_request;
    buf_init(&end_request, SIZE_MAX);
    rig_request(&end_request, "DISCARD");
    char *replies = rig_replies(fd, &end_request, len_out);
    buf_deinit(&end_request);
    return replies;
}

RIG_TEST(pipeline, answers_equal_those_of_commands_one_by_one)
{
    rig_begin(1, NULL, NULL);
    int fd = rig_connect(0);
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct rng rng;
        size_t len, other_len;
        rng_init(&rng, seed);
        for (int i = 0; i < 250; i++)
            random_request(&rng);
        rig_call(fd, "CONFIG SET slowlog-log-slower-than 0", "+OK\r\n"); /* each is timed by itself */
        char *one_by_one = in_pieces(fd, &rig_requests, 0, &rng, &len);
        rig_call(fd, "CONFIG SET slowlog-log-slower-than -1", "+OK\r\n");
        for (size_t piece = 0; piece <= 2000; piece = piece ? piece * 4 : 500) {
            char *together = in_pieces(fd, &rig_requests, piece, &rng, &other_len);
            cr_assert(len == other_len && memcmp(one_by_one, together, len) == 0,
                      "seed %llu, pieces of up to %zu bytes", (unsigned long long)seed, piece);
            free(together);
        }
        free(one_by_one);
        buf_truncate(&rig_requests, 0);
    }
}
