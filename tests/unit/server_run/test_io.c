/* Turns, messages to a loop, and sent replies: each against its header, step by step on
 * a loop of the test's own, and then in a server. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc_countdown.h"
#include "clock.h"
#include "conn.h"
#include "io.h"
#include "mailbox.h"
#include "memory_use.h"
#include "rig.h"
#include "turns.h"

TestSuite(io, .timeout = 3000);

/* ---- turns ---- */

#define CONNECTIONS 6

static struct turns turns;
static uv_loop_t loop;
static struct conn_link links[CONNECTIONS];
static char order[64]; /* the turns taken: 'a' for the first connection */
static bool slow[CONNECTIONS], again[CONNECTIONS];
static int closes = -1; /* the connection that the next turn closes */

static void take(struct conn_link *link)
{
    int i = (int)(link - links);
    cr_assert_not(conn_link_used(link), "it is still in the list");
    cr_assert_lt(strlen(order), sizeof(order) - 1);
    order[strlen(order)] = (char)('a' + i);
    for (uint64_t from = clock_ns(); slow[i] && clock_ns() - from < 5 * TURN_NS;) /* longer than a round */
        ;
    if (closes >= 0)
        conn_list_remove(&links[closes]);
    closes = -1;
    if (again[i])
        turns_give(&turns, link);
}

static void begin_turns(void)
{
    cr_assert_eq(uv_loop_init(&loop), 0);
    turns_init(&turns, &loop, take);
}

/* One round. */
static void expect_round(const char *expected)
{
    order[0] = '\0';
    memset(order, 0, sizeof(order));
    uv_run(&loop, UV_RUN_NOWAIT);
    cr_assert_str_eq(order, expected, "'%s' and not '%s'", order, expected);
}

static void end_turns(void)
{
    turns_close(&turns);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
}

Test(io, each_connection_has_one_turn_in_a_round_in_the_order_of_asking)
{
    begin_turns();
    expect_round("");
    turns_give(&turns, &links[2]);
    turns_give(&turns, &links[0]);
    turns_give(&turns, &links[2]); /* already has one */
    turns_give(&turns, &links[1]);
    expect_round("cab");
    expect_round("");
    again[0] = true;
    turns_give(&turns, &links[0]);
    turns_give(&turns, &links[1]);
    expect_round("ab"); /* its next turn is in the next round */
    turns_give(&turns, &links[3]);
    expect_round("ad");
    again[0] = false;
    expect_round("a");
    end_turns();
}

/* A round ends after some slow turns; connections without a turn come before those that ask again. */
Test(io, who_had_no_turn_comes_first_in_the_next_round)
{
    begin_turns();
    slow[0] = again[0] = true;
    for (int i = 0; i < 4; i++)
        turns_give(&turns, &links[i]);
    expect_round("a");
    turns_give(&turns, &links[4]);
    slow[1] = true;
    expect_round("b");
    expect_round("cda"); /* the slow one asked before the new one */
    again[0] = slow[0] = false;
    expect_round("ea");
    expect_round("");
    end_turns();
}

Test(io, a_connection_that_is_closed_has_no_turn)
{
    begin_turns();
    for (int i = 0; i < 4; i++)
        turns_give(&turns, &links[i]);
    closes = 2; /* by the turn of the first one, in the middle of the round */
    expect_round("abd");
    turns_give(&turns, &links[0]);
    conn_list_remove(&links[0]);
    expect_round("");
    cr_assert_not(uv_is_active((uv_handle_t *)&turns.idle), "the loop would not sleep");
    end_turns();
}

Test(io, a_turn_is_over_from_the_first_reading_of_the_clock_on)
{
    begin_turns();
    turn_begin(&turns.current);
    cr_assert_not(turns.current.over);
    uint64_t from = turns_clock_ns(&turns);
    while (clock_ns() - from < TURN_NS)
        cr_assert_not(turns.current.over, "nobody has read the clock since");
    (void)turns_clock_ns(&turns);
    cr_assert(turns.current.over);
    turn_begin(&turns.current);
    cr_assert_not(turns.current.over);
    end_turns();
}

/* ---- mailbox ---- */

struct letter {
    struct message message;
    int number;
};

static int last_number, run_count, ending_count;

static void run_letter(struct message *message, bool ending)
{
    struct letter *letter = (struct letter *)message;
    cr_assert_eq(letter->number, last_number + 1, "%d comes behind %d", letter->number, last_number);
    last_number = letter->number;
    ending_count += ending;
}

static void on_wake(uv_async_t *async)
{
    struct mailbox *mailbox = async->data;
    for (struct message *message = mailbox_take(mailbox), *next; message; message = next) {
        next = mailbox_next(message);
        message->run(message, false);
    }
    run_count++;
}

static void run_all(struct mailbox *mailbox, bool ending)
{
    for (struct message *message = mailbox_take(mailbox), *next; message; message = next) {
        next = mailbox_next(message);
        message->run(message, ending);
    }
}

Test(io, messages_run_in_their_order_also_those_from_before_the_loop)
{
    enum { LETTERS = 50 };
    static struct letter letters[LETTERS];
    struct mailbox mailbox = {0};
    mailbox_init(&mailbox);
    for (int i = 0; i < LETTERS; i++)
        letters[i] = (struct letter){.message.run = run_letter, .number = i + 1};
    for (int i = 0; i < 20; i++)
        mailbox_post(&mailbox, &letters[i].message); /* not open yet: they stay */
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(mailbox_open(&mailbox, &loop, on_wake, &mailbox), 0);
    for (int i = 20; i < 40; i++)
        mailbox_post(&mailbox, &letters[i].message);
    while (last_number < 40)
        uv_run(&loop, UV_RUN_ONCE);
    run_count = 0;
    mailbox_wake(&mailbox); /* without a message */
    while (run_count == 0)
        uv_run(&loop, UV_RUN_ONCE);
    mailbox_close(&mailbox);
    uv_run(&loop, UV_RUN_DEFAULT);
    for (int i = 40; i < LETTERS; i++)
        mailbox_post(&mailbox, &letters[i].message); /* from others that do not know of its end */
    run_all(&mailbox, true);
    cr_assert_eq(last_number, LETTERS);
    cr_assert_eq(ending_count, 10);
    cr_assert_eq(uv_loop_close(&loop), 0);
}

static int gate_runs, user_runs;
static bool posts_again;

static void on_gate(void *part)
{
    gate_runs++;
    if (posts_again)
        mailbox_notify(part, NOTICE_GATE);
    posts_again = false;
}

static void on_users(void *part)
{
    (void)part;
    user_runs++;
}

/* Posted again before it has run, a notice runs once; posted while it runs, it runs again. */
Test(io, notices_are_never_lost_and_never_pile_up)
{
    struct mailbox mailbox = {0};
    mailbox_init(&mailbox);
    mailbox_expect(&mailbox, NOTICE_GATE, on_gate, &mailbox);
    mailbox_expect(&mailbox, NOTICE_USERS, on_users, NULL);
    for (int i = 0; i < 3; i++) {
        mailbox_notify(&mailbox, NOTICE_GATE);
        mailbox_notify(&mailbox, NOTICE_USERS);
    }
    run_all(&mailbox, false);
    cr_assert_eq(gate_runs, 1);
    cr_assert_eq(user_runs, 1);
    posts_again = true;
    mailbox_notify(&mailbox, NOTICE_GATE);
    run_all(&mailbox, false);
    cr_assert_eq(gate_runs, 2);
    run_all(&mailbox, false);
    cr_assert_eq(gate_runs, 3, "posted while it ran, it was lost");
    run_all(&mailbox, false);
    cr_assert_eq(gate_runs, 3);
    mailbox_notify(&mailbox, NOTICE_GATE);
    run_all(&mailbox, true); /* the daemon ends */
    cr_assert_eq(gate_runs, 3);
}

static struct mailbox shared;
static _Atomic uint64_t written, seen_at_run;

static void on_change(void *part)
{
    (void)part;
    atomic_store(&seen_at_run, atomic_load(&written));
}

static void *write_and_notify(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20000; i++) {
        atomic_fetch_add(&written, 1);
        mailbox_notify(&shared, NOTICE_PAUSE);
    }
    return NULL;
}

/* The last change is seen, made at any moment. */
Test(io, a_notice_from_many_threads_sees_the_last_change)
{
    pthread_t threads[3];
    mailbox_init(&shared);
    mailbox_expect(&shared, NOTICE_PAUSE, on_change, NULL);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, write_and_notify, NULL), 0);
    while (atomic_load(&written) < 60000)
        run_all(&shared, false);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    run_all(&shared, false);
    cr_assert_eq(atomic_load(&seen_at_run), 60000);
}

/* ---- reply buffers ---- */

static void free_spare_bufs(struct delivery *delivery)
{
    while (delivery->nspare)
        free(delivery->spare_bufs[--delivery->nspare]);
}

static struct server *server;

RIG_TEST(io, reply_buffers_are_kept_up_to_a_number)
{
    enum { BUFS = DELIVERY_SPARE_BUFS + 5 };
    static char *bufs[BUFS];
    struct delivery delivery = {0};
    server = rig_begin(1, NULL, NULL);
    for (int i = 0; i < BUFS; i++) {
        bufs[i] = delivery_buf_get(&delivery);
        cr_assert_not_null(bufs[i]);
        memset(bufs[i], i, DELIVERY_BUF_SIZE);
    }
    for (int i = 0; i < BUFS; i++) {
        cr_assert(bufs[i][0] == (char)i && bufs[i][DELIVERY_BUF_SIZE - 1] == (char)i, "two have one buffer");
        delivery_buf_put(&delivery, bufs[i]);
    }
    cr_assert_eq(delivery.nspare, DELIVERY_SPARE_BUFS);
    free_spare_bufs(&delivery);
}

/* ---- a client that does not read ---- */

static void sum_output(struct worker *worker, void *arg)
{
    size_t *most = arg;
    for (struct conn *conn = LIST_FIRST(&worker->runner.io.conns); conn; conn = LIST_NEXT(conn, link))
        *most = buf_len(&conn->output.buf) > *most ? buf_len(&conn->output.buf) : *most;
}

/* Its commands are not read beyond the bound of unread replies; none of them is lost once it reads. */
RIG_TEST(io, who_does_not_read_is_not_read_and_loses_nothing)
{
    enum { COMMANDS = 400, ITEMS = 1500, REPLY = 7 + 4 * ITEMS };
    struct buf line, requests;
    size_t most = 0, sent = 0;
    rig_begin(1, NULL, (const char *const[]){"reply-buffer-high-water", "65536", NULL});
    int fd = rig_connect(0), other = rig_connect(0);
    buf_init(&line, SIZE_MAX);
    buf_init(&requests, SIZE_MAX);
    buf_appendf(&line, "BF.MEXISTS f");
    for (int i = 0; i < ITEMS; i++)
        buf_appendf(&line, " %d", i % 10);
    buf_append(&line, "", 1);
    rig_request(&requests, buf_head(&line));
    rig_call(other, "BF.ADD f 1", ":1\r\n");
    for (bool full = false; !full && sent < COMMANDS; sent += !full) {
        full = !rig_try_send(fd, buf_head(&requests), buf_len(&requests));
        rig_call(other, "BF.EXISTS f 1", ":1\r\n"); /* others are served */
        rig_on_loop(0, sum_output, &most);
    }
    cr_assert_lt(most, 65536 * 4 + REPLY, "%zu bytes of replies wait", most);
    for (size_t i = 0; i < sent; i++) {
        char *reply = rig_read(fd, REPLY);
        cr_assert_eq(memcmp(reply, "*1500\r\n:0\r\n:1\r\n", 15), 0, "reply %zu of %zu: '%.40s'", i, sent, reply);
        free(reply);
    }
    rig_call(fd, "PING", "+PONG\r\n");
    buf_deinit(&line);
    buf_deinit(&requests);
}
