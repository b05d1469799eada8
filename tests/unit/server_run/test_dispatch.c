/* Commands keep their order and their atomicity in every way of execution: through the pipeline, at once, in slices, in
 * the pool, in a transaction. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "rng.h"

TestSuite(dispatch, .timeout = 3000);

/* A command with n items "<prefix><number>". */
static void request_items(const char *words, const char *prefix, unsigned from, unsigned n)
{
    struct buf line;
    buf_init(&line, SIZE_MAX);
    buf_appendf(&line, "%s", words);
    for (unsigned i = 0; i < n; i++)
        buf_appendf(&line, " %s%u", prefix, from + i);
    buf_append(&line, "", 1);
    rig_request(&rig_requests, buf_head(&line));
    buf_deinit(&line);
}

/* An array of n equal integers. */
static void expect_all(int fd, unsigned n, const char *reply)
{
    char head[32];
    snprintf(head, sizeof(head), "*%u\r\n", n);
    rig_expect(fd, head);
    for (unsigned i = 0; i < n; i++)
        rig_expect(fd, reply);
}

/* ---- order ---- */

RIG_TEST(dispatch, replies_come_in_the_order_of_the_commands_whatever_their_way)
{
    rig_begin(2, NULL, NULL);
    int fd = rig_connect(0);
    rig_call(fd, "BF.RESERVE f 0.0001 1000000", "+OK\r\n");
    for (unsigned round = 0; round < 20; round++) {
        char line[64];
        rig_hold();
        request_items("BF.MADD f", "x", round * 5000, 5000); /* slices */
        rig_request(&rig_requests, "BF.EXISTS f x0");        /* pipeline */
        rig_request(&rig_requests, "PING");
        rig_request(&rig_requests, "BF.MERGE g f"); /* pool */
        snprintf(line, sizeof(line), "BF.EXISTS g x%u", round * 5000 + 4999);
        rig_request(&rig_requests, line);
        rig_request(&rig_requests, "MULTI");
        rig_request(&rig_requests, "BF.CARD nosuch");
        rig_request(&rig_requests, "BF.EXISTS g nosuch");
        rig_request(&rig_requests, "EXEC"); /* alone */
        rig_request(&rig_requests, "NOSUCH");
        rig_request(&rig_requests, "BF.ADD");
        rig_request(&rig_requests, "BF.EXISTS f nosuch");
        rig_send_buf(fd, &rig_requests);
        rig_let_go();
        expect_all(fd, 5000, ":1\r\n");
        rig_expect(fd, ":1\r\n+PONG\r\n+OK\r\n:1\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:0\r\n:0\r\n"
                       "-ERR unknown command 'NOSUCH', with args beginning with: \r\n"
                       "-ERR wrong number of arguments for 'bf.add' command\r\n:0\r\n");
    }
}

/* Other clients run between the slices, and may delete the filter there. */
RIG_TEST(dispatch, a_filter_that_goes_between_slices)
{
    enum { ITEMS = 8000 }; /* as many as the socket takes while the worker is held */
    rig_begin(1, NULL, NULL);
    int fd = rig_connect(0), other = rig_connect(0);
    for (unsigned round = 0; round < 4; round++) {
        rig_call(other, "BF.RESERVE f 0.0001 100000", "+OK\r\n");
        rig_hold();
        request_items("BF.MADD f", "x", 0, ITEMS);
        rig_request(&rig_requests, "BF.EXISTS f after");
        rig_send_buf(fd, &rig_requests);
        for (unsigned i = 0; i < round * 2; i++)
            rig_request(&rig_requests, "PING");
        rig_request(&rig_requests, "DEL f");
        rig_send_buf(other, &rig_requests);
        rig_let_go();
        for (unsigned i = 0; i < round * 2; i++)
            rig_expect(other, "+PONG\r\n");
        rig_expect(other, ":1\r\n");
        /* One element for each item, or for those before the deletion and an error in place of the next. */
        size_t len;
        char *replies = rig_replies(fd, &rig_requests, &len);
        unsigned n = (unsigned)strtoul(replies + 1, NULL, 10);
        size_t elements = 0;
        for (const char *at = replies; (at = strchr(at, '\n')) != NULL; at++)
            elements++;
        cr_assert(replies[0] == '*' && n > 0 && n <= ITEMS, "%.20s", replies);
        cr_assert_eq(elements, n + 2, "%u elements are announced, %zu have come", n, elements - 2);
        cr_assert_str_eq(replies + len - 5, "\n:0\r\n");
        free(replies);
        rig_send(other, "DEL f");
        free(rig_read(other, 4));
    }
}

/* ---- input cut anywhere ---- */

RIG_TEST(dispatch, requests_that_come_byte_by_byte)
{
    static const char replies[] = ":1\r\n:0\r\n*2\r\n:1\r\n:0\r\n+PONG\r\n+OK\r\n+QUEUED\r\n*1\r\n:1\r\n+OK\r\n:1\r\n";
    rig_begin(1, NULL, NULL);
    int fd = rig_connect(0);
    rig_request(&rig_requests, "BF.ADD f a");
    rig_request(&rig_requests, "BF.ADD f a");
    rig_request(&rig_requests, "BF.MADD f b a");
    buf_append(&rig_requests, "ping\r\n\r\n", 8); /* inline, and an empty one */
    rig_request(&rig_requests, "MULTI");
    rig_request(&rig_requests, "BF.EXISTS f b");
    rig_request(&rig_requests, "EXEC");
    rig_request(&rig_requests, "BF.MERGE g f");
    rig_request(&rig_requests, "BF.EXISTS g b");
    for (size_t i = 0; i < buf_len(&rig_requests); i++) {
        rig_send_bytes(fd, buf_head(&rig_requests) + i, 1);
        rig_pass(0);
    }
    rig_expect(fd, replies);
    for (size_t cut = 1; cut < buf_len(&rig_requests); cut += 3) {
        rig_call(fd, "FLUSHALL", "+OK\r\n");
        rig_send_bytes(fd, buf_head(&rig_requests), cut);
        rig_pass(0);
        rig_send_bytes(fd, buf_head(&rig_requests) + cut, buf_len(&rig_requests) - cut);
        rig_expect(fd, replies);
    }
    buf_truncate(&rig_requests, 0);
}

RIG_TEST(dispatch, what_follows_a_malformed_request_is_not_run)
{
    static const char *const bad[] = {"*1\r\n$x\r\n", "*2\r\n$3\r\nDEL\r\n:1\r\n", "*1\r\n$-1\r\n", "*x\r\n",
                                      "*99999999999\r\n"};
    rig_begin(1, NULL, NULL);
    int other = rig_connect(0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int fd = rig_connect(0);
        rig_hold();
        rig_request(&rig_requests, "BF.ADD f a");
        buf_append(&rig_requests, bad[i], strlen(bad[i]));
        rig_request(&rig_requests, "FLUSHALL");
        rig_send_buf(fd, &rig_requests);
        rig_let_go();
        rig_expect(fd, i ? ":0\r\n" : ":1\r\n");
        rig_expect(fd, "-ERR Protocol error");
        rig_expect_end(fd);
        rig_call(other, "BF.EXISTS f a", ":1\r\n");
    }
}

/* A client that disconnects during its command takes nothing with it, and its later commands do not run. */
RIG_TEST(dispatch, a_client_that_goes_in_the_middle)
{
    rig_begin(2, NULL, NULL);
    int other = rig_connect(1);
    rig_call(other, "BF.RESERVE f 0.0001 1000000", "+OK\r\n");
    for (unsigned round = 0; round < 10; round++) {
        int fd = rig_connect(0);
        rig_hold();
        request_items("BF.MADD f", "x", round * 5000, 5000);
        rig_request(&rig_requests, "BF.MERGE g f");
        request_items("BF.MADD f", "y", round * 5000, 5000);
        rig_let_go();
        rig_send_buf(fd, &rig_requests);
        rig_close(fd);
        rig_call(other, "BF.EXISTS f nosuch", ":0\r\n");
    }
    wait_until(worker_nconns(rig_server()->threads.workers[0]) == 0);
}

/* One that has sent its last byte still wants its replies, those of the pool and of a section included. */
RIG_TEST(dispatch, a_client_that_has_sent_its_last_byte_gets_all_replies)
{
    rig_begin(2, NULL, NULL);
    for (unsigned round = 0; round < 6; round++) {
        int fd = rig_connect(round % 2);
        rig_hold();
        rig_request(&rig_requests, "BF.EXISTS f x0");
        request_items("BF.MADD f", "x", 0, 4000);
        rig_request(&rig_requests, "BF.MERGE g f");
        rig_request(&rig_requests, "MULTI");
        rig_request(&rig_requests, "BF.EXISTS g x3999");
        rig_request(&rig_requests, "BF.EXISTS f x3999");
        rig_request(&rig_requests, "EXEC");
        rig_request(&rig_requests, "BF.MERGE h g");
        rig_request(&rig_requests, "DEL f g h");
        rig_request(&rig_requests, "BF.EXISTS h x1");
        buf_append(&rig_requests, "*2\r\n$4\r\nPI", 10); /* a command that never becomes complete */
        rig_send_buf(fd, &rig_requests);
        rig_end_of_input(fd);
        rig_let_go();
        rig_expect(fd, ":0\r\n*4000\r\n");
        for (unsigned i = 0; i < 4000; i++)
            free(rig_read(fd, 4));
        rig_expect(fd, "+OK\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n:1\r\n+OK\r\n:3\r\n:0\r\n");
        rig_expect_end(fd);
        rig_close(fd);
    }
    wait_until(worker_nconns(rig_server()->threads.workers[0]) + worker_nconns(rig_server()->threads.workers[1]) == 0);
}

/* A client that kills itself gets its replies first; its later commands do not run. */
RIG_TEST(dispatch, a_client_that_ends_itself_in_a_pipeline)
{
    static const char *const ends[] = {"QUIT", "CLIENT KILL TYPE normal SKIPME no"};
    rig_begin(1, NULL, NULL);
    int other = rig_connect(0);
    rig_call(other, "CLIENT SETNAME other", "+OK\r\n");
    for (int i = 0; i < 2; i++) {
        int fd = rig_connect(0);
        rig_hold();
        rig_request(&rig_requests, "BF.ADD f before");
        rig_request(&rig_requests, ends[i]);
        rig_request(&rig_requests, "BF.ADD f behind");
        rig_send_buf(fd, &rig_requests);
        rig_let_go();
        rig_expect(fd, i == 0 ? ":1\r\n+OK\r\n" : ":0\r\n:");
        rig_expect_end(fd);
    }
    int again = rig_connect(0); /* the other one was killed, too */
    rig_call(again, "BF.MEXISTS f before behind", "*2\r\n:1\r\n:0\r\n");
}

/* ---- CLIENT REPLY ---- */

RIG_TEST(dispatch, replies_that_the_client_does_not_want)
{
    rig_begin(1, NULL, NULL);
    int fd = rig_connect(0);
    rig_hold();
    rig_request(&rig_requests, "CLIENT REPLY SKIP");
    rig_request(&rig_requests, "BF.ADD f a");
    rig_request(&rig_requests, "BF.ADD f a");
    rig_request(&rig_requests, "CLIENT REPLY OFF");
    rig_request(&rig_requests, "BF.ADD f b");
    rig_request(&rig_requests, "BF.MERGE g f"); /* also one from the pool */
    request_items("BF.MADD g", "x", 0, 3000);
    rig_request(&rig_requests, "NOSUCH");
    rig_request(&rig_requests, "CLIENT REPLY ON");
    rig_request(&rig_requests, "BF.EXISTS g b");
    rig_request(&rig_requests, "BF.EXISTS g x2999");
    rig_send_buf(fd, &rig_requests);
    rig_let_go();
    rig_expect(fd, ":0\r\n+OK\r\n:1\r\n:1\r\n");
    rig_expect_silence(fd);
}

/* ---- transactions ---- */

RIG_TEST(dispatch, a_transaction_with_an_error_in_its_queue_does_nothing)
{
    rig_begin(1, NULL, NULL);
    int fd = rig_connect(0);
    rig_hold();
    rig_request(&rig_requests, "MULTI");
    rig_request(&rig_requests, "BF.ADD f a");
    rig_request(&rig_requests, "BF.ADD f");
    rig_request(&rig_requests, "BF.ADD f b");
    rig_request(&rig_requests, "EXEC");
    rig_request(&rig_requests, "BF.EXISTS f a");
    rig_request(&rig_requests, "EXEC");
    rig_request(&rig_requests, "MULTI");
    rig_request(&rig_requests, "MULTI");
    rig_request(&rig_requests, "BF.ADD f c");
    rig_request(&rig_requests, "DISCARD");
    rig_request(&rig_requests, "BF.EXISTS f c");
    rig_send_buf(fd, &rig_requests);
    rig_let_go();
    rig_expect(fd, "+OK\r\n+QUEUED\r\n-ERR wrong number of arguments for 'bf.add' command\r\n+QUEUED\r\n"
                   "-EXECABORT Transaction discarded because of previous errors.\r\n:0\r\n-ERR EXEC without MULTI\r\n"
                   "+OK\r\n-ERR MULTI calls can not be nested\r\n+QUEUED\r\n+OK\r\n:0\r\n");
}
