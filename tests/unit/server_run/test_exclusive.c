/* Exclusive sections, with real workers and jobs of the pool: a section is alone, each client has a turn, and none
 * waits forever. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exclusive.h"
#include "rig.h"

TestSuite(exclusive, .timeout = 3000);

/* A transaction that adds the item to both filters, and one that checks both. */
static void request_both(const char *command, unsigned item)
{
    char line[64];
    rig_request(&rig_requests, "MULTI");
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof(line), "%s %c i%u", command, 'f' + i, item);
        rig_request(&rig_requests, line);
    }
    rig_request(&rig_requests, "EXEC");
}

#define HEAD "+OK\r\n+QUEUED\r\n+QUEUED\r\n"

/* Reads the reply of a transaction of request_both(): the two numbers. */
static void expect_pair(int fd, char pair_out[2])
{
    rig_expect(fd, HEAD);
    char *reply = rig_read(fd, strlen("*2\r\n:0\r\n:0\r\n"));
    cr_assert_eq(memcmp(reply, "*2\r\n:", 5), 0, "'%s'", reply);
    pair_out[0] = reply[5];
    pair_out[1] = reply[9];
    free(reply);
}

RIG_TEST(exclusive, transactions_of_several_workers_are_whole)
{
    enum { WORKERS = 3, EACH = 4, CONNECTIONS = WORKERS * EACH, ITEMS = 60 };
    int fds[CONNECTIONS];
    unsigned winners[ITEMS] = {0};
    rig_begin(WORKERS, NULL, (const char *const[]){"bf-error-rate", "1e-9", NULL}); /* in any order all are new */
    for (int i = 0; i < CONNECTIONS; i++)
        fds[i] = rig_connect((unsigned)i % WORKERS);
    rig_hold();
    for (int i = 0; i < CONNECTIONS; i++) {
        for (unsigned item = 0; item < ITEMS; item++)
            request_both((i + (int)item) % 3 == 0 ? "BF.EXISTS" : "BF.ADD", item);
        rig_send_buf(fds[i], &rig_requests);
    }
    rig_let_go();
    for (int i = 0; i < CONNECTIONS; i++) {
        for (unsigned item = 0; item < ITEMS; item++) {
            char pair[2];
            expect_pair(fds[i], pair);
            cr_assert_eq(pair[0], pair[1], "item %u: one of both", item);
            winners[item] += (i + (int)item) % 3 != 0 && pair[0] == '1';
        }
    }
    for (unsigned item = 0; item < ITEMS; item++)
        cr_assert_eq(winners[item], 1, "item %u was added by %u", item, winners[item]);
}

/* Connections without a turn at a gate that was closed for too long request the next one. */
RIG_TEST(exclusive, of_many_long_transactions_each_has_its_turn)
{
    enum { CONNECTIONS = 40, ADDS = 200 }; /* far longer than a gate may be closed */
    int fds[CONNECTIONS];
    rig_begin(2, NULL, NULL);
    for (int i = 0; i < CONNECTIONS; i++)
        fds[i] = rig_connect((unsigned)i % 2);
    rig_hold();
    for (int i = 0; i < CONNECTIONS; i++) {
        rig_request(&rig_requests, "MULTI");
        for (int k = 0; k < ADDS; k++) {
            char line[256];
            int len = snprintf(line, sizeof(line), "BF.MADD f%d", i);
            for (int n = 0; n < 20; n++)
                len += snprintf(line + len, sizeof(line) - (size_t)len, " %d-%d", k, n);
            rig_request(&rig_requests, line);
        }
        rig_request(&rig_requests, "EXEC");
        rig_send_buf(fds[i], &rig_requests);
    }
    rig_let_go();
    for (int i = 0; i < CONNECTIONS; i++) {
        char line[32];
        rig_expect(fds[i], "+OK\r\n");
        for (int k = 0; k < ADDS; k++)
            rig_expect(fds[i], "+QUEUED\r\n");
        rig_expect(fds[i], "*200\r\n*20\r\n:1\r\n");
        free(rig_read(fds[i], (size_t)(ADDS * (5 + 20 * 4) - 9)));
        snprintf(line, sizeof(line), "BF.EXISTS f%d 199-19", i);
        rig_call(fds[i], line, ":1\r\n");
    }
}

/* ---- jobs ---- */

struct section_call {
    bool answer;
};

static void begin_job(struct worker *worker, void *arg)
{
    ((struct section_call *)arg)->answer = exclusive_job_begin(&worker->runner.section);
}

static void ask_now(struct worker *worker, void *arg)
{
    ((struct section_call *)arg)->answer = exclusive_now(&worker->runner.section);
}

/* A section waits for a running job; a job that comes after the request for a section starts after it. */
RIG_TEST(exclusive, a_section_waits_for_jobs_and_jobs_for_the_section)
{
    struct section_call call = {false};
    struct server *server = rig_begin(2, NULL, NULL);
    int fd = rig_connect(0), other = rig_connect(1);
    rig_on_loop(0, begin_job, &call);
    cr_assert(call.answer, "nothing forbids it");
    rig_call(fd, "MULTI", "+OK\r\n");
    rig_call(fd, "BF.ADD f a", "+QUEUED\r\n");
    rig_call(fd, "BF.ADD f b", "+QUEUED\r\n"); /* one command alone would need no section */
    rig_send(fd, "EXEC");                      /* requests a section */
    rig_pass(0);
    rig_pass(1);
    rig_expect_silence(fd);
    rig_on_loop(1, begin_job, &call);
    cr_assert_not(call.answer, "a job begins though a section is asked for");
    rig_send(other, "BF.MERGE g f");                     /* likewise: it is kept */
    rig_call(rig_connect(1), "BF.EXISTS f a", ":0\r\n"); /* others continue */
    rig_expect_silence(fd);
    exclusive_job_end(server);
    rig_expect(fd, "*2\r\n:1\r\n:1\r\n");
    rig_expect(other, "+OK\r\n"); /* it came after the transaction, which made its source */
    rig_call(other, "BF.EXISTS g a", ":1\r\n");
    rig_on_loop(1, begin_job, &call);
    cr_assert(call.answer);
    exclusive_job_end(server);
}

RIG_TEST(exclusive, one_worker_alone_needs_no_gate_but_where_a_job_runs)
{
    struct section_call call = {false};
    struct server *server = rig_begin(1, NULL, NULL);
    rig_on_loop(0, ask_now, &call);
    cr_assert(call.answer);
    rig_on_loop(0, begin_job, &call);
    cr_assert(call.answer);
    rig_on_loop(0, ask_now, &call);
    cr_assert_not(call.answer);
    exclusive_job_end(server);
    rig_on_loop(0, ask_now, &call);
    cr_assert(call.answer);
    rig_end();
    server = rig_begin(2, NULL, NULL);
    rig_on_loop(0, ask_now, &call);
    cr_assert_not(call.answer, "the other worker runs");
}

/* ---- disconnects ---- */

/* A client that disconnects while its EXEC waits for the others runs nothing. */
RIG_TEST(exclusive, a_client_that_goes_while_it_waits_for_a_section)
{
    struct section_call call = {false};
    struct server *server = rig_begin(2, NULL, NULL);
    int fd = rig_connect(0), other = rig_connect(1);
    rig_on_loop(0, begin_job, &call);
    rig_call(fd, "MULTI", "+OK\r\n");
    rig_call(fd, "BF.ADD f a", "+QUEUED\r\n");
    rig_call(fd, "BF.ADD f b", "+QUEUED\r\n"); /* one command alone would need no section */
    rig_send(fd, "EXEC");
    rig_pass(0);
    rig_call(other, "CLIENT KILL TYPE normal SKIPME yes", ":1\r\n");
    rig_expect_end(fd);
    exclusive_job_end(server);
    rig_call(other, "MULTI", "+OK\r\n");
    rig_call(other, "BF.EXISTS f a", "+QUEUED\r\n");
    rig_call(other, "EXEC", "*1\r\n:0\r\n");
}
