/* CLIENT: effects of a connection on itself and on others. Replies to wrong arguments are in test_corpus.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "wait.h"
#include "wire.h"

DAEMON_SUITE(the_daemon, client_command, "--threads", "3");

static bool is_gone(redisContext *c)
{
    return client_ask(c, "PING")[0] == '(';
}

/* The value of a field in the line of CLIENT LIST about connection `id`; "" if there is no such line. */
static const char *field(redisContext *asker, long long id, const char *name)
{
    static char value[256];
    char key[64];
    redisReply *reply = redisCommand(asker, "CLIENT LIST ID %lld", id);
    cr_assert(reply && reply->type == REDIS_REPLY_STRING);
    snprintf(key, sizeof(key), " %s=", name);
    const char *at = strstr(reply->str, key);
    value[0] = '\0';
    if (at)
        sscanf(at + strlen(key), "%255[^ \n]", value);
    freeReplyObject(reply);
    return value;
}

static int connections(redisContext *asker)
{
    redisReply *reply = redisCommand(asker, "CLIENT LIST TYPE normal");
    int lines = 0;
    cr_assert(reply && reply->type == REDIS_REPLY_STRING);
    for (const char *at = reply->str; (at = strchr(at, '\n')); at++)
        lines++;
    freeReplyObject(reply);
    return lines;
}

/* Each filter of KILL finds the clients it names, on all workers, and no others; all given filters must match. */
CLIENT_TEST(the_daemon, client_command, kill_by_every_filter)
{
    long long my_id = client_number(client, "CLIENT ID");
    for (int i = 0; i < 5; i++) {
        redisContext *victim = client_open(the_daemon.port), *other = client_open(the_daemon.port);
        long long id = client_number(victim, "CLIENT ID");
        char addr[256], laddr[256];
        expect(other, "+PONG", "PING"); /* it has connected */
        strcpy(addr, field(client, id, "addr"));
        strcpy(laddr, field(client, id, "laddr"));
        switch (i) {
        case 0:
            expect(client, "+OK", "CLIENT KILL %s", addr);
            expect(client, "-ERR No such client", "CLIENT KILL %s", addr);
            break;
        case 1:
            expect(client, ":1", "CLIENT KILL ID %lld", id);
            expect(client, ":0", "CLIENT KILL ID %lld", id);
            break;
        case 2:
            expect(client, ":1", "CLIENT KILL ADDR %s TYPE normal USER default SKIPME yes", addr);
            break;
        case 3:
            expect(client, ":0", "CLIENT KILL ID %lld LADDR 1.2.3.4:5", id);
            expect(client, ":0", "CLIENT KILL ID %lld TYPE pubsub", id);
            expect(client, ":0", "CLIENT KILL ID %lld MAXAGE 1000000", id);
            expect(client, ":1", "CLIENT KILL ID %lld LADDR %s", id, laddr);
            break;
        default:
            while (connections(client) != 3)
                ;                                                /* the previous ones may take a moment to close */
            expect(client, ":2", "CLIENT KILL LADDR %s", laddr); /* both, but not `client` */
            cr_expect(is_gone(other));
            break;
        }
        cr_expect_str_eq(field(client, id, "addr"), "", "killed, and still listed");
        cr_expect(is_gone(victim), "%d", i);
        if (i < 4)
            expect(other, "+PONG", "PING");
        redisFree(victim);
        redisFree(other);
    }
    expect(client, ":0", "CLIENT KILL ID %lld", my_id);           /* SKIPME is the default */
    expect(client, ":1", "CLIENT KILL ID %lld SKIPME no", my_id); /* replied before it is closed */
    cr_expect(is_gone(client));
}

/* A client can be killed while its command is deferred, while it waits for EXEC or a pause, or does not read. */
CLIENT_TEST(the_daemon, client_command, kill_in_any_state)
{
    static const char *const states[] = {"KEYS *\r\nKEYS *\r\n", "MULTI\r\nPING\r\nPING\r\nEXEC\r\n", "BF.ADD f x\r\n",
                                         "*3\r\n$6\r\nBF.ADD\r\n$1\r\n"};
    for (int i = 0; i < 40; i++) {
        struct wire wire = wire_to(the_daemon.port);
        wire_send_text(&wire, "CLIENT ID\r\n");
        long long id = atoll(wire_text(&wire) + 1);
        expect(client, "+OK", "CLIENT PAUSE %d WRITE", i % 4 == 2 ? 60000 : 0);
        cr_assert(wire_send_text(&wire, states[i % 4]));
        expect(client, ":1", "CLIENT KILL ID %lld", id);
        expect(client, "+OK", "CLIENT UNPAUSE");
        const char *reply;
        do
            reply = wire_text(&wire);
        while (reply[0] != '(');
        cr_expect_str_eq(reply, "(closed)");
        wire_close(&wire);
    }
}

/* KILL with wrong arguments kills no client. */
DAEMON_TEST(the_daemon, client_command, kill_refuses)
{
    static const char *const wrong[][2] = {
        {"CLIENT KILL ID 0", "-ERR client-id should be greater than 0"},
        {"CLIENT KILL ID x", "-ERR client-id should be greater than 0"},
        {"CLIENT KILL MAXAGE 0", "-ERR maxage should be greater than 0"},
        {"CLIENT KILL MAXAGE x", "-ERR maxage is not an integer or out of range"},
        {"CLIENT KILL USER nobody", "-ERR No such user 'nobody'"},
        {"CLIENT KILL SKIPME maybe TYPE normal", "-ERR syntax error"},
        {"CLIENT KILL TYPE normal SKIPME", "-ERR syntax error"},
        {"CLIENT KILL COLOUR red", "-ERR syntax error"},
    };
    redisContext *me = client_open(the_daemon.port), *other = client_open(the_daemon.port);
    expect(other, "+PONG", "PING");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const char *reply = client_ask(me, wrong[i][0]);
        cr_expect_str_eq(reply, wrong[i][1], "%s: %s", wrong[i][0], reply);
    }
    expect(other, "+PONG", "PING");
}

/* PAUSE WRITE holds writes and EXECs that contain writes, and nothing else, on all workers from its reply on. They
 * run in order when it ends. */
CLIENT_TEST(the_daemon, client_command, pause_writes)
{
    struct wire wires[6], queue;
    expect(client, ":1", "BF.ADD f before");
    for (int i = 0; i < 6; i++) {
        wire_open(&wires[i], the_daemon.port);
        wire_ask(&wires[i], "PING");
    }
    wire_open(&queue, the_daemon.port);
    long long queue_id = strtoll(wire_ask(&queue, "CLIENT ID") + 1, NULL, 10);
    wire_ask(&queue, "MULTI");
    cr_expect_str_eq(wire_ask(&queue, "BF.ADD f queued"), "+QUEUED");
    expect(client, "+OK", "CLIENT PAUSE 1000000 WRITE");
    for (int i = 0; i < 6; i++) {
        char text[256];
        snprintf(text, sizeof(text),
                 i % 2 ? "BF.ADD f x%d\r\nBF.EXISTS f x%d\r\nPING\r\n"
                       : "MULTI\r\nPING\r\nEXEC\r\nDEL f%d\r\nBF.EXISTS f x%d\r\nPING\r\n",
                 i, i);
        cr_assert(wire_send_text(&wires[i], text));
        if (i % 2 == 0) {
            cr_expect_str_eq(wire_text(&wires[i]), "+OK");
            cr_expect_str_eq(wire_text(&wires[i]), "+QUEUED");
            cr_expect_str_eq(wire_text(&wires[i]), "[+PONG]");
        }
    }
    cr_assert(wire_send_text(&queue, "EXEC\r\nPING\r\n"));
    wait_until(strcmp(field(client, queue_id, "qbuf"), "0") != 0);
    expect(client, ":1", "BF.CARD f");              /* reading continues */
    expect(client, "+OK", "CLIENT PAUSE 10 WRITE"); /* makes it neither shorter ... */
    for (int i = 0; i < 6; i++)
        cr_expect_str_eq(field(client, client_number(client, "CLIENT ID") + 1 + i, "cmd"), i % 2 ? "ping" : "exec",
                         "%d", i);
    expect(client, ":1", "BF.CARD f");
    expect(client, "+OK", "CLIENT UNPAUSE");
    cr_expect_str_eq(wire_text(&queue), "[:1]");
    cr_expect_str_eq(wire_text(&queue), "+PONG");
    wire_close(&queue);
    for (int i = 0; i < 6; i++) {
        cr_expect_str_eq(wire_text(&wires[i]), i % 2 ? ":1" : ":0");
        cr_expect_str_eq(wire_text(&wires[i]), i % 2 ? ":1" : ":0");
        cr_expect_str_eq(wire_text(&wires[i]), "+PONG");
        wire_close(&wires[i]);
    }
    expect(client, ":5", "BF.CARD f");
}

/* Waits until CLIENT LIST does not list the connection any more. */
static void wait_until_gone(redisContext *asker, long long id)
{
    wait_until(!field(asker, id, "addr")[0]);
}

/* Opens a connection that holds a write back; returns its id. */
static long long open_held(struct wire *wire, const char *command)
{
    wire_open(wire, the_daemon.port);
    long long id = atoll(wire_ask(wire, "CLIENT ID") + 1);
    cr_assert(wire_send_text(wire, command));
    return id;
}

static void wait_until_held(redisContext *asker, long long id)
{
    wait_until(strcmp(field(asker, id, "qbuf"), "0") != 0);
}

/* A client that leaves while CLIENT PAUSE holds its command is closed, and the command does not run: immediately
 * after a reset of the connection, a little later after a normal close. */
CLIENT_TEST(the_daemon, client_command, a_client_that_goes_while_it_waits_is_noticed)
{
    struct wire broken, closed;
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    expect(client, "+OK", "BF.RESERVE f 0.01 100");
    expect(client, "+OK", "CLIENT PAUSE 1000000 WRITE");
    long long broken_id = open_held(&broken, "BF.ADD f broken\r\n");
    long long closed_id = open_held(&closed, "BF.ADD f closed\r\nBF.ADD f pipelined\r\n");
    wait_until_held(client, broken_id);
    wait_until_held(client, closed_id);
    wait_until(info_number(the_daemon.port, "clients", "blocked_clients") == 2); /* as Redis counts */
    setsockopt(broken.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    wire_close(&broken);
    wire_close(&closed);
    wait_until_gone(client, broken_id);
    wait_until_gone(client, closed_id);
    wait_until(info_number(the_daemon.port, "clients", "blocked_clients") == 0);
    expect(client, "+OK", "CLIENT UNPAUSE");
    expect(client, "[:0,:0,:0]", "BF.MEXISTS f broken closed pipelined");
}

/* read-only refuses writes and nothing else, also a write that a pause has held back. */
CLIENT_TEST(the_daemon, client_command, a_write_that_a_pause_held_back_is_refused_if_the_server_is_read_only_then)
{
    static const char refusal[] = "-READONLY You can't write against a read only server: its setting read-only is yes";
    struct wire held[4], queue;
    expect(client, "+OK", "BF.RESERVE f 0.01 100");
    wire_open(&queue, the_daemon.port);
    wire_ask(&queue, "MULTI");
    cr_expect_str_eq(wire_ask(&queue, "BF.ADD f queued"), "+QUEUED");
    expect(client, "+OK", "CLIENT PAUSE 1000000 WRITE");
    for (int i = 0; i < 4; i++)
        wait_until_held(client, open_held(&held[i], "BF.ADD f x\r\nPING\r\n"));
    expect(client, "+OK", "CONFIG SET read-only yes");
    expect(client, "+OK", "CLIENT UNPAUSE");
    for (int i = 0; i < 4; i++) {
        cr_expect_str_eq(wire_text(&held[i]), refusal);
        cr_expect_str_eq(wire_text(&held[i]), "+PONG");
    }
    expect(client, refusal, "BF.ADD f y");
    expect(client, refusal, "CF.ADD g y");
    expect(client, refusal, "DEL f");
    expect(client, refusal, "FLUSHALL");
    expect(client, "[:0,:0,:0]", "BF.MEXISTS f x y queued");
    expect(client, "+OK", "CONFIG SET read-only no");
    for (int i = 0; i < 4; i++) {
        cr_expect_str_eq(wire_ask(&held[i], "BF.ADD f x"), i ? ":0" : ":1");
        wire_close(&held[i]);
    }
    cr_expect_str_eq(wire_ask(&queue, "EXEC"), "[:1]");
}

/* A client that has only closed its sending side gets its replies when the pause ends soon. */
CLIENT_TEST(the_daemon, client_command, a_half_closed_client_that_waits_gets_its_replies)
{
    struct wire half;
    expect(client, "+OK", "BF.RESERVE f 0.01 100");
    expect(client, "+OK", "CLIENT PAUSE 1000000 WRITE");
    long long id = open_held(&half, "BF.ADD f x\r\nBF.ADD f x\r\n");
    wait_until_held(client, id);
    cr_assert_eq(shutdown(half.fd, SHUT_WR), 0);
    expect(client, "+OK", "CLIENT UNPAUSE");
    wait_until(info_number(the_daemon.port, "clients", "blocked_clients") == 0);
    cr_expect_str_eq(wire_text(&half), ":1");
    cr_expect_str_eq(wire_text(&half), ":0");
    cr_expect_str_eq(wire_text(&half), "(closed)");
}

/* PAUSE holds every command until its end; an inline command with quotes also runs as it was sent. */
DAEMON_TEST(the_daemon, client_command, pause_ends_by_itself)
{
    struct wire a = wire_to(the_daemon.port), b = wire_to(the_daemon.port);
    wire_ask(&b, "PING");
    double began = wait_clock();
    cr_expect_str_eq(wire_ask(&a, "CLIENT PAUSE 300"), "+OK");
    cr_assert(wire_send_text(&b, "ECHO \"a\\x41\\\"\\n b\"\r\nBF.ADD f x\r\nEXISTS f\r\n"));
    cr_expect_str_eq(wire_text(&b), "\"aA\"\\x0a b\"");
    cr_expect_geq(wait_clock(), began + 0.2, "it was not held");
    cr_expect_str_eq(wire_text(&b), ":1");
    cr_expect_str_eq(wire_text(&b), ":1");
}

/* REPLY OFF and SKIP leave out exactly their replies, also those of the pipeline and of deferred commands. */
DAEMON_TEST(the_daemon, client_command, replies_off)
{
    struct wire wire = wire_to(the_daemon.port);
    cr_assert(wire_send_text(
        &wire, "PING 1\r\nCLIENT REPLY SKIP\r\nBF.ADD f a\r\nBF.EXISTS f a\r\n"
               "CLIENT REPLY SKIP\r\nKEYS *\r\nKEYS *\r\n"
               "CLIENT REPLY OFF\r\nBF.ADD f b\r\nBF.MADD f c d\r\nKEYS *\r\nNOSUCH\r\nCLIENT REPLY SKIP\r\n"
               "MULTI\r\nBF.ADD f e\r\nEXEC\r\nCLIENT REPLY ON\r\nBF.CARD f\r\n"
               "CLIENT REPLY OFF\r\nPING 2\r\nRESET\r\nPING 3\r\n"));
    static const char *const expected[] = {"\"1\"", ":1", "[\"f\"]", "+OK", ":5", "+RESET", "\"3\""};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        cr_expect_str_eq(wire_text(&wire), expected[i], "%zu", i);
}

/* The fields of CLIENT LIST are correct. */
CLIENT_TEST(the_daemon, client_command, the_list_tells_the_truth)
{
    struct wire wire = wire_to(the_daemon.port);
    wire_send_text(&wire, "CLIENT ID\r\n");
    long long id = atoll(wire_text(&wire) + 1);
    cr_expect_str_eq(field(client, id, "flags"), "N");
    cr_expect_str_eq(field(client, id, "multi"), "-1");
    wire_ask(&wire, "WATCH a b c");
    cr_expect_str_eq(field(client, id, "watch"), "3");
    wire_ask(&wire, "MULTI");
    cr_expect_str_eq(field(client, id, "multi"), "0");
    wire_ask(&wire, "BF.ADD f x");
    wire_ask(&wire, "PING");
    cr_expect_str_eq(field(client, id, "multi"), "2");
    cr_expect_str_eq(field(client, id, "flags"), "x");
    cr_expect_gt(atoi(field(client, id, "multi-mem")), 50);
    wire_ask(&wire, "EXEC");
    cr_expect_str_eq(field(client, id, "multi"), "-1");
    cr_expect_str_eq(field(client, id, "watch"), "0");
    cr_expect_str_eq(field(client, id, "multi-mem"), "0");
    cr_expect_str_eq(field(client, id, "cmd"), "exec");
    wire_ask(&wire, "CLIENT NO-EVICT on");
    wire_ask(&wire, "CLIENT NO-TOUCH on");
    cr_expect_str_eq(field(client, id, "flags"), "eT");
    wire_ask(&wire, "HELLO 3 SETNAME somebody");
    cr_expect_str_eq(field(client, id, "name"), "somebody");
    cr_expect_str_eq(field(client, id, "resp"), "3");
    cr_expect_str_eq(wire_ask(&wire, "RESET"), "+RESET");
    cr_expect_str_eq(field(client, id, "flags"), "N");
    cr_expect_str_eq(field(client, id, "name"), "");
    cr_expect_str_eq(field(client, id, "resp"), "2");
    cr_expect_str_eq(client_ask(client, "CLIENT LIST TYPE pubsub"), "\"\"");
    cr_expect_str_eq(client_ask(client, "CLIENT LIST TYPE replica"), "\"\"");
    wait_until(connections(client) == 2); /* the start had used another connection */
}
