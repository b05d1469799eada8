/* A session of hiredis, the C library: synchronous, by hand on a socket that does not block, and asynchronous on a
 * libuv loop, as its documentation shows them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <hiredis/adapters/libuv.h>
#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"

#define PATIENCE_MS 300000

static struct daemon the_daemon;
static char socket_path[320];

static void start(void)
{
    const char *tmp = getenv("TMPDIR");
    const char *args[] = {"--unixsocket", socket_path, NULL};

    snprintf(socket_path, sizeof(socket_path), "%s/bloomery-hiredis-%d.sock", tmp != NULL ? tmp : "/tmp",
             (int)getpid());
    daemon_start(&the_daemon, args);
}

static void discard(void)
{
    daemon_discard(&the_daemon);
}

TestSuite(hiredis, .init = start, .fini = discard);

/* ---- synchronous ---- */

DAEMON_TEST(the_daemon, hiredis, commands)
{
    redisContext *client = client_open(the_daemon.port);
    const char binary[] = {0, (char)0xff, '\r', '\n', 'x'};

    expect(client, "+OK", "BF.RESERVE f %s %d EXPANSION %d", "0.001", 1000, 4);
    expect(client, ":1", "BF.ADD f %s", "a b\"c");
    expect(client, ":0", "BF.ADD f %s", "a b\"c");
    expect(client, "[:1,:1]", "BF.MADD f %b %b", binary, sizeof(binary), binary, (size_t)1);
    expect(client, "[:1,:1,:0]", "BF.MEXISTS f %b %b z", binary, sizeof(binary), binary, (size_t)1);
    expect(client, "[:1,:0]", "BF.INSERT i CAPACITY 50 ERROR 0.01 ITEMS x x");
    expect(client, ":3", "BF.CARD f");
    expect(client, "[:1000]", "BF.INFO f CAPACITY");
    expect(client, "-ERR item exists", "BF.RESERVE f 0.1 10");
    expect(client, "-ERR not found", "BF.INFO missing");
    expect(client, "-ERR wrong number of arguments for 'bf.add' command", "BF.ADD f");
    expect(client, ":1", "EXPIRE f 100");
    expect(client, ":1", "PERSIST f");
    expect(client, "+MBbloom--", "TYPE f");
    expect(client, "[\"f\"]", "KEYS f");
    expect(client, ":1", "DEL f");
    redisFree(client);
}

DAEMON_TEST(the_daemon, hiredis, a_unix_socket)
{
    redisContext *client = redisConnectUnixWithTimeout(socket_path, (struct timeval){60, 0});

    cr_assert(client != NULL && client->err == 0, "%s", client == NULL ? "no memory" : client->errstr);
    expect(client, ":1", "BF.ADD f a");
    redisFree(client);
}

DAEMON_TEST(the_daemon, hiredis, a_pipeline)
{
    enum { COMMANDS = 10000 };
    redisContext *client = client_open(the_daemon.port);
    redisReply *reply;
    int added = 0;

    for (int i = 0; i < COMMANDS; i++)
        cr_assert_eq(redisAppendCommand(client, "BF.ADD f item:%d", i), REDIS_OK);
    for (int i = 0; i < COMMANDS; i++) {
        cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK, "%s", client->errstr);
        cr_assert_eq(reply->type, REDIS_REPLY_INTEGER);
        added += (int)reply->integer;
        freeReplyObject(reply);
    }
    cr_assert_gt(added, COMMANDS * 95 / 100);
    cr_assert_eq(client_number(client, "BF.CARD f"), added);
    redisFree(client);
}

DAEMON_TEST(the_daemon, hiredis, a_transaction)
{
    redisContext *client = client_open(the_daemon.port), *other = client_open(the_daemon.port);

    expect(client, "+OK", "WATCH f");
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "BF.ADD f a");
    expect(client, "+QUEUED", "BF.MADD f a b");
    expect(client, "[:1,[:0,:1]]", "EXEC");
    expect(client, "+OK", "WATCH f");
    expect(other, ":1", "BF.ADD f c");
    expect(client, "+OK", "MULTI");
    expect(client, "+QUEUED", "BF.ADD f d");
    expect(client, "nil", "EXEC");
    expect(client, ":0", "BF.EXISTS f d");
    redisFree(client);
    redisFree(other);
}

/* One step of the loop that copies a filter; 0 when it is complete. */
static long long copy_chunk(redisContext *from, redisContext *to, long long position)
{
    redisReply *chunk = redisCommand(from, "BF.SCANDUMP f %lld", position);

    cr_assert(chunk != NULL && chunk->type == REDIS_REPLY_ARRAY && chunk->elements == 2, "%s",
              chunk == NULL ? from->errstr : chunk->str);
    position = chunk->element[0]->integer;
    if (position != 0)
        expect(to, "+OK", "BF.LOADCHUNK g %lld %b", position, chunk->element[1]->str, chunk->element[1]->len);
    freeReplyObject(chunk);
    return position;
}

DAEMON_TEST(the_daemon, hiredis, dump_and_load)
{
    redisContext *client = client_open(the_daemon.port), *other = client_open(the_daemon.port);
    char info[512];

    expect(client, "+OK", "BF.RESERVE f 0.0001 2000000");
    for (int i = 0; i < 1000; i++)
        client_number(client, "BF.ADD f item:%d", i);
    for (long long position = copy_chunk(client, other, 0); position != 0;)
        position = copy_chunk(client, other, position);
    snprintf(info, sizeof(info), "%s", client_ask(client, "BF.INFO f"));
    cr_assert_str_eq(client_ask(client, "BF.INFO g"), info);
    for (int i = 0; i < 1000; i++)
        expect(client, ":1", "BF.EXISTS g item:%d", i);
    redisFree(client);
    redisFree(other);
}

DAEMON_TEST(the_daemon, hiredis, a_subscription)
{
    redisContext *client = client_open(the_daemon.port), *subscriber = client_open(the_daemon.port);
    redisReply *reply;

    expect(subscriber, "[\"subscribe\",\"news\",:1]", "SUBSCRIBE news");
    expect(client, ":1", "PUBLISH news hello");
    cr_assert_eq(redisGetReply(subscriber, (void **)&reply), REDIS_OK, "%s", subscriber->errstr);
    cr_assert_eq(reply->elements, 3);
    cr_assert_str_eq(reply->element[0]->str, "message");
    cr_assert_str_eq(reply->element[2]->str, "hello");
    freeReplyObject(reply);
    expect(subscriber, "[\"unsubscribe\",\"news\",:0]", "UNSUBSCRIBE news");
    expect(subscriber, ":1", "BF.ADD f a");
    redisFree(client);
    redisFree(subscriber);
}

DAEMON_TEST(the_daemon, hiredis, connecting_again)
{
    redisContext *client = client_open(the_daemon.port), *other = client_open(the_daemon.port);

    expect(client, ":1", "BF.ADD f a");
    cr_assert_eq(client_number(other, "CLIENT KILL ID %lld", client_number(client, "CLIENT ID")), 1);
    cr_assert_null(redisCommand(client, "PING"));
    cr_assert_eq(redisReconnect(client), REDIS_OK, "%s", client->errstr);
    expect(client, ":1", "BF.EXISTS f a");
    cr_assert_null(redisCommand(client, "SHUTDOWN SAVE"));
    daemon_wait(&the_daemon);
    daemon_restart(&the_daemon);
    redisFree(client);
    client = client_open(the_daemon.port);
    expect(client, ":1", "BF.EXISTS f a");
    redisFree(client);
    redisFree(other);
}

/* The next whole reply among the received bytes, or NULL. */
static redisReply *received_reply(redisContext *client)
{
    void *reply = NULL;

    cr_assert_eq(redisGetReplyFromReader(client, &reply), REDIS_OK, "%s", client->errstr);
    return reply;
}

/* As in programs with their own loop: write and read when the socket is ready. */
DAEMON_TEST(the_daemon, hiredis, a_socket_that_does_not_block)
{
    enum { COMMANDS = 2000 };
    redisContext *client = redisConnectNonBlock("127.0.0.1", the_daemon.port);
    int replies = 0, written = 0;

    cr_assert(client != NULL && client->err == 0);
    for (int i = 0; i < COMMANDS; i++)
        cr_assert_eq(redisAppendCommand(client, "BF.EXISTS f item:%d", i), REDIS_OK);
    while (replies < COMMANDS) {
        struct pollfd fd = {.fd = client->fd, .events = (short)(POLLIN | (written ? 0 : POLLOUT))};
        redisReply *reply;

        cr_assert_gt(poll(&fd, 1, PATIENCE_MS), 0, "nothing to do with %d replies", replies);
        if (fd.revents & POLLOUT)
            cr_assert_eq(redisBufferWrite(client, &written), REDIS_OK, "%s", client->errstr);
        if (fd.revents & POLLIN)
            cr_assert_eq(redisBufferRead(client), REDIS_OK, "%s", client->errstr);
        while ((reply = received_reply(client)) != NULL) {
            cr_assert(reply->type == REDIS_REPLY_INTEGER && reply->integer == 0);
            freeReplyObject(reply);
            replies++;
        }
    }
    redisFree(client);
}

/* ---- asynchronous, on a libuv loop ---- */

struct session {
    uv_loop_t loop;
    uv_timer_t patience;
    redisAsyncContext *client, *subscriber;
    int connected, disconnected, last_status; /* the callbacks' observations */
    long long replies, ones, expected;        /* of a pipeline; every reply must come in its turn */
    int messages, events;
    char error[128];
};

static struct session session;

static void on_patience_over(uv_timer_t *timer)
{
    (void)timer;
    fprintf(stderr, "the session did not end in time: %lld replies, %d messages, %d events\n", session.replies,
            session.messages, session.events);
    abort();
}

static void on_connect(const redisAsyncContext *client, int status)
{
    cr_assert_eq(status, REDIS_OK, "%s", client->errstr);
    session.connected++;
}

static void on_disconnect(const redisAsyncContext *client, int status)
{
    (void)client;
    session.disconnected++;
    session.last_status = status;
}

static redisAsyncContext *connect_async(void)
{
    redisAsyncContext *client = redisAsyncConnect("127.0.0.1", the_daemon.port);

    cr_assert(client != NULL && client->err == 0, "%s", client == NULL ? "no memory" : client->errstr);
    cr_assert_eq(redisLibuvAttach(client, &session.loop), REDIS_OK);
    cr_assert_eq(redisAsyncSetConnectCallback(client, on_connect), REDIS_OK);
    cr_assert_eq(redisAsyncSetDisconnectCallback(client, on_disconnect), REDIS_OK);
    return client;
}

static void open_session(void)
{
    cr_assert_eq(uv_loop_init(&session.loop), 0);
    cr_assert_eq(uv_timer_init(&session.loop, &session.patience), 0);
    cr_assert_eq(uv_timer_start(&session.patience, on_patience_over, PATIENCE_MS, 0), 0);
    uv_unref((uv_handle_t *)&session.patience);
    session.client = connect_async();
}

/* Runs until all connections have ended. */
static void run_session(void)
{
    uv_run(&session.loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&session.patience, NULL);
    uv_run(&session.loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&session.loop), 0);
}

static void on_add(redisAsyncContext *client, void *reply_ptr, void *number)
{
    const redisReply *reply = reply_ptr;

    cr_assert_not_null(reply, "the connection ended");
    cr_assert_eq(reply->type, REDIS_REPLY_INTEGER);
    cr_assert_eq((long long)(size_t)number, session.replies, "a reply out of its turn");
    session.ones += reply->integer;
    if (++session.replies == session.expected)
        redisAsyncDisconnect(client);
}

DAEMON_TEST(the_daemon, hiredis, asynchronous_commands)
{
    open_session();
    session.expected = 20000;
    for (long long i = 0; i < session.expected; i++)
        cr_assert_eq(redisAsyncCommand(session.client, on_add, (void *)(size_t)i, "BF.ADD f item:%lld", i % 10000),
                     REDIS_OK);
    run_session();
    cr_assert_eq(session.replies, session.expected);
    cr_assert(session.ones <= 10000 && session.ones > 9500, "%lld of 10000 were new", session.ones);
    cr_assert(session.connected == 1 && session.disconnected == 1 && session.last_status == REDIS_OK);
}

static void on_error(redisAsyncContext *client, void *reply_ptr, void *ctx)
{
    const redisReply *reply = reply_ptr;

    (void)ctx;
    cr_assert(reply != NULL && reply->type == REDIS_REPLY_ERROR);
    snprintf(session.error, sizeof(session.error), "%s", reply->str);
    redisAsyncDisconnect(client);
}

DAEMON_TEST(the_daemon, hiredis, asynchronous_errors)
{
    open_session();
    cr_assert_eq(redisAsyncCommand(session.client, on_error, NULL, "BF.INFO missing"), REDIS_OK);
    run_session();
    cr_assert_str_eq(session.error, "ERR not found");
}

static void on_message(redisAsyncContext *subscriber, void *reply_ptr, void *ctx)
{
    const redisReply *reply = reply_ptr;

    (void)ctx;
    if (reply == NULL)
        return; /* the end of the connection */
    cr_assert(reply->type == REDIS_REPLY_ARRAY && reply->elements >= 3);
    if (strcmp(reply->element[0]->str, "subscribe") == 0) {
        cr_assert_eq(redisAsyncCommand(session.client, NULL, NULL, "PUBLISH news first"), REDIS_OK);
        cr_assert_eq(redisAsyncCommand(session.client, NULL, NULL, "PUBLISH news second"), REDIS_OK);
    } else if (strcmp(reply->element[0]->str, "message") == 0) {
        cr_assert_str_eq(reply->element[2]->str, session.messages == 0 ? "first" : "second");
        if (++session.messages == 2)
            redisAsyncCommand(subscriber, on_message, NULL, "UNSUBSCRIBE news");
    } else {
        cr_assert_str_eq(reply->element[0]->str, "unsubscribe");
    }
}

static void on_event(redisAsyncContext *subscriber, void *reply_ptr, void *ctx)
{
    const redisReply *reply = reply_ptr;

    (void)ctx;
    if (reply == NULL)
        return;
    if (strcmp(reply->element[0]->str, "psubscribe") == 0) {
        redisAsyncCommand(session.client, NULL, NULL, "BF.ADD f a");
        redisAsyncCommand(session.client, NULL, NULL, "DEL f");
    } else if (strcmp(reply->element[0]->str, "pmessage") == 0 &&
               strcmp(reply->element[2]->str, "__keyevent@0__:del") == 0) {
        cr_assert_str_eq(reply->element[3]->str, "f");
        session.events++;
        redisAsyncDisconnect(session.client);
        redisAsyncDisconnect(subscriber);
    }
}

DAEMON_TEST(the_daemon, hiredis, asynchronous_subscriptions)
{
    redisContext *client = client_open(the_daemon.port);

    expect(client, "+OK", "CONFIG SET notify-keyspace-events KEA");
    redisFree(client);
    open_session();
    session.subscriber = connect_async();
    cr_assert_eq(redisAsyncCommand(session.subscriber, on_message, NULL, "SUBSCRIBE news"), REDIS_OK);
    cr_assert_eq(redisAsyncCommand(session.subscriber, on_event, NULL, "PSUBSCRIBE __keyevent@0__:*"), REDIS_OK);
    run_session();
    cr_assert_eq(session.messages, 2);
    cr_assert_eq(session.events, 1);
    cr_assert_eq(session.disconnected, 2);
}

static void on_subscribed(redisAsyncContext *client, void *reply_ptr, void *ctx)
{
    redisContext *other;

    (void)client;
    (void)ctx;
    if (reply_ptr == NULL) {
        session.replies++;
        return;
    }
    other = client_open(the_daemon.port);
    cr_assert_eq(client_number(other, "CLIENT KILL TYPE pubsub"), 1);
    redisFree(other);
}

/* The end of a connection reaches the callbacks of waiting commands, and the one for the end. */
DAEMON_TEST(the_daemon, hiredis, asynchronous_end)
{
    open_session();
    cr_assert_eq(redisAsyncCommand(session.client, on_subscribed, NULL, "SUBSCRIBE news"), REDIS_OK);
    run_session();
    cr_assert_eq(session.replies, 1);
    cr_assert(session.disconnected == 1 && session.last_status == REDIS_ERR);
}
