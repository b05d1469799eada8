/* CLIENT TRACKING: a client that caches replies is informed of every change of a filter that it has read, and a
 * reply from before the change never comes after that message. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "wait.h"
#include "wire.h"

DAEMON_SUITE(the_daemon, tracking, "--threads", "3");

static struct wire wire;    /* the informed client */
static redisContext *other; /* one that changes filters */

static void open_tracking(struct wire *client, const char *how)
{
    wire_open(client, the_daemon.port);
    cr_assert_not_null(strstr(wire_ask(client, "HELLO 3"), "proto"));
    expect_ask(client, how, "+OK");
}

static void begin(const char *how)
{
    other = client_open(the_daemon.port);
    open_tracking(&wire, how);
}

static const char *forget(const char *name)
{
    static char text[128];
    snprintf(text, sizeof(text), ">[\"invalidate\",[\"%s\"]]", name);
    return text;
}

/* All kinds of changes under a name: (another client's command before the read, the read, the change). */
static const struct change {
    const char *before, *read, *change, *name;
} changes[] = {
    {"BF.ADD a x", "BF.EXISTS a y", "BF.ADD a y", "a"},
    {"BF.ADD b x", "BF.MEXISTS b y z", "BF.MADD b x z", "b"},
    {"BF.ADD c x", "BF.CARD c", "BF.INSERT c ITEMS y", "c"},
    {"PING", "BF.EXISTS d x", "BF.ADD d y", "d"},
    {"PING", "EXISTS e", "BF.RESERVE e 0.01 100", "e"},
    {"BF.ADD f x", "EXISTS f", "DEL f", "f"},
    {"BF.ADD g x", "TYPE g2", "RENAME g g2", "g2"},
    {"BF.ADD h x", "EXISTS h", "RENAME h h2", "h"},
    {"BF.ADD i x", "TTL i", "EXPIRE i 1000", "i"},
    {"BF.INSERT j TTL 1000 ITEMS x", "TTL j", "PERSIST j", "j"},
    {"BF.ADD k x", "BF.EXISTS k2 x", "COPY k k2", "k2"},
    {"BF.ADD l x", "BF.EXISTS l x", "BF.CLEAR l", "l"},
    {"BF.ADD m x", "BF.INFO m2", "BF.MERGE m2 m", "m2"},
    {"BF.ADD n x", "BF.QUERY n ITEMS y", "PEXPIRE n 1", "n"},
};

#define CHANGES (sizeof(changes) / sizeof(changes[0]))

DAEMON_TEST(the_daemon, tracking, every_change_of_what_was_read_is_told)
{
    begin("CLIENT TRACKING ON");
    for (size_t i = 0; i < CHANGES; i++) {
        client_ask(other, changes[i].before);
        wire_ask(&wire, changes[i].read);
        cr_assert_neq(client_ask(other, changes[i].change)[0], '-', "%s", changes[i].change);
        const char *got = wire_text(&wire);
        cr_assert_str_eq(got, forget(changes[i].name), "%s, %s: %s", changes[i].read, changes[i].change, got);
    }
}

/* In transactions, and for the client's own changes, too. */
DAEMON_TEST(the_daemon, tracking, own_changes_and_reads_in_transactions_count)
{
    begin("CLIENT TRACKING ON");
    expect_ask(&wire, "BF.ADD f x", "#t");
    expect_ask(&wire, "MULTI", "+OK");
    expect_ask(&wire, "BF.EXISTS f y", "+QUEUED");
    expect_ask(&wire, "EXISTS f", "+QUEUED");
    expect_ask(&wire, "EXEC", "[#f,:1]");
    expect_ask(&wire, "BF.ADD f y", "#t");
    expect_text(&wire, forget("f"));
}

/* A command without effect is not reported: the next message is about another filter, though that was read later. */
DAEMON_TEST(the_daemon, tracking, clearing_what_is_empty_is_not_told)
{
    begin("CLIENT TRACKING ON");
    expect(other, "+OK", "BF.RESERVE f 0.01 100");
    expect(other, ":1", "BF.ADD g x");
    expect_ask(&wire, "BF.EXISTS f x", "#f");
    expect_ask(&wire, "BF.EXISTS g x", "#t");
    expect(other, "+OK", "BF.CLEAR f");
    expect(other, "+OK", "BF.CLEAR g");
    expect_text(&wire, forget("g"));
    expect(other, ":1", "BF.ADD f x");
    expect_text(&wire, forget("f"));
}

DAEMON_TEST(the_daemon, tracking, an_add_of_what_is_there_is_not_told)
{
    begin("CLIENT TRACKING ON");
    client_ask(other, "BF.ADD f x");
    client_ask(other, "BF.ADD g x");
    expect_ask(&wire, "BF.EXISTS f x", "#t");
    expect_ask(&wire, "BF.EXISTS g x", "#t");
    expect(other, ":0", "BF.ADD f x");
    expect(other, ":1", "BF.ADD g y");
    expect_text(&wire, forget("g"));
    expect(other, ":1", "BF.ADD g z"); /* forgotten names are not reported again */
    expect(other, ":1", "BF.ADD f z");
    expect_text(&wire, forget("f"));
}

DAEMON_TEST(the_daemon, tracking, it_says_what_it_is)
{
    begin("CLIENT TRACKING ON");
    expect(other, ":-1", "CLIENT GETREDIR");
    expect_ask(&wire, "CLIENT TRACKINGINFO", "{\"flags\":~[\"on\"],\"redirect\"::0,\"prefixes\":[]}");
    cr_assert_not_null(strstr(wire_ask(&wire, "CLIENT INFO"), " flags=t "));
    expect_ask(&wire, "CLIENT TRACKING ON", "+OK");
    wire_ask(&wire, "EXISTS one two one");
    expect_has(other, "tracking_clients:1\\x0d", "INFO clients");
    expect_has(other, "tracking_total_keys:2\\x0d", "INFO stats");
    expect_ask(&wire, "CLIENT TRACKING OFF", "+OK");
    expect_ask(&wire, "CLIENT TRACKINGINFO", "{\"flags\":~[\"off\"],\"redirect\"::-1,\"prefixes\":[]}");
    expect_ask(&wire, "CLIENT TRACKING ON", "+OK");
    wire_ask(&wire, "HELLO 2"); /* it gets no messages, but is tracked, as in Redis */
    expect_has(other, "tracking_clients:1\\x0d", "INFO clients");
    wire_ask(&wire, "HELLO 3");
    expect_ask(&wire, "CLIENT TRACKING ON", "+OK");
    expect_ask(&wire, "RESET", "+RESET");
    expect_has(other, "tracking_clients:0\\x0d", "INFO clients");
}

/* ---- options ---- */

DAEMON_TEST(the_daemon, tracking, a_flush_is_one_message_without_names)
{
    begin("CLIENT TRACKING ON");
    expect_ask(&wire, "EXISTS a b c", ":0");
    expect(other, "+OK", "FLUSHALL");
    expect_text(&wire, ">[\"invalidate\",nil]");
    expect_ask(&wire, "EXISTS a", ":0");
    expect(other, "+OK", "SELECT 3");
    expect(other, ":1", "BF.ADD f x");
    expect(other, "+OK", "FLUSHDB");
    expect_text(&wire, ">[\"invalidate\",nil]");
}

/* Equal names in two databases are distinguished; the message has the name. */
DAEMON_TEST(the_daemon, tracking, a_name_of_another_database_is_another)
{
    begin("CLIENT TRACKING ON");
    expect_ask(&wire, "SELECT 4", "+OK");
    expect_ask(&wire, "EXISTS f", ":0");
    expect_ask(&wire, "EXISTS g", ":0");
    expect(other, ":1", "BF.ADD f x");
    expect(other, "+OK", "SELECT 4");
    expect(other, ":1", "BF.ADD g x");
    expect_text(&wire, forget("g"));
}

DAEMON_TEST(the_daemon, tracking, optin_and_optout_take_exceptions)
{
    begin("CLIENT TRACKING ON");
    expect_ask(&wire, "CLIENT TRACKING ON OPTIN", "+OK");
    expect_ask(&wire, "EXISTS a", ":0");
    expect_ask(&wire, "CLIENT CACHING YES", "+OK");
    expect_ask(&wire, "CLIENT TRACKINGINFO",
               "{\"flags\":~[\"on\",\"optin\",\"caching-yes\"],\"redirect\"::0,\"prefixes\":[]}");
    expect_ask(&wire, "EXISTS b", ":0");
    expect_ask(&wire, "EXISTS c", ":0");
    expect_ask(&wire, "CLIENT CACHING YES", "+OK");
    expect_ask(&wire, "MULTI", "+OK");
    expect_ask(&wire, "EXISTS d", "+QUEUED");
    expect_ask(&wire, "EXISTS e", "+QUEUED");
    expect_ask(&wire, "EXEC", "[:0,:0]");
    expect_ask(&wire, "EXISTS f", ":0");
    for (const char *name = "abcdef"; *name; name++)
        expect(other, ":1", "BF.ADD %b x", name, (size_t)1);
    expect_text(&wire, forget("b"));
    expect_text(&wire, forget("d"));
    expect_text(&wire, forget("e"));
    expect_ask(
        &wire, "CLIENT TRACKING ON OPTOUT",
        "-ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it "
        "with a different mode.");
    expect_ask(&wire, "CLIENT TRACKING OFF", "+OK");
    expect_ask(&wire, "CLIENT TRACKING ON OPTOUT", "+OK");
    expect_ask(&wire, "CLIENT CACHING YES",
               "-ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.");
    expect_ask(&wire, "CLIENT CACHING NO", "+OK");
    expect_ask(&wire, "EXISTS a", ":1");
    expect_ask(&wire, "EXISTS b", ":1");
    expect(other, ":1", "DEL a");
    expect(other, ":1", "DEL b");
    expect_text(&wire, forget("b"));
}

DAEMON_TEST(the_daemon, tracking, with_noloop_own_changes_are_not_told)
{
    begin("CLIENT TRACKING ON");
    expect_ask(&wire, "CLIENT TRACKING ON NOLOOP", "+OK");
    expect_ask(&wire, "EXISTS a b", ":0");
    expect_ask(&wire, "BF.ADD a x", "#t");
    expect(other, ":1", "BF.ADD b x");
    expect_text(&wire, forget("b"));
    expect_ask(&wire, "EXISTS a", ":1");
    expect(other, ":1", "BF.ADD a y");
    expect_text(&wire, forget("a"));
    for (int i = 0; i < 1500; i++) { /* dropped names leave the table and the order of checks */
        expect_ask(&wire, "EXISTS c", i ? ":1" : ":0");
        char add[64];
        snprintf(add, sizeof(add), "BF.ADD c %d", i);
        wire_ask(&wire, add);
    }
    expect_ask(&wire, "EXISTS d", ":0");
    expect(other, ":1", "BF.ADD d x");
    expect_text(&wire, forget("d"));
    expect_has(other, "tracking_total_keys:0\\x0d", "INFO stats");
}

static long long id_of(struct wire *client)
{
    long long id;
    cr_assert_eq(sscanf(wire_ask(client, "CLIENT ID"), ":%lld", &id), 1);
    return id;
}

/* To a RESP2 connection, as libraries without RESP3 do; then to one with RESP3; then to a closed one. */
DAEMON_TEST(the_daemon, tracking, another_connection_can_be_told)
{
    char command[64], expected[128];
    struct wire data, messages, pushes;
    other = client_open(the_daemon.port);
    wire_open(&data, the_daemon.port);
    wire_open(&messages, the_daemon.port);
    snprintf(command, sizeof(command), "CLIENT TRACKING ON REDIRECT %lld", id_of(&messages));
    expect_ask(&messages, "SUBSCRIBE __redis__:invalidate", "[\"subscribe\",\"__redis__:invalidate\",:1]");
    expect_ask(&data, "CLIENT TRACKING ON REDIRECT 99999999", "-ERR The client ID you want redirect to does not exist");
    expect_ask(&data, command, "+OK");
    snprintf(expected, sizeof(expected), ":%s", strrchr(command, ' ') + 1);
    expect_ask(&data, "CLIENT GETREDIR", expected);
    expect_ask(&data, "EXISTS f", ":0");
    expect(other, ":1", "BF.ADD f x");
    expect_text(&messages, "[\"message\",\"__redis__:invalidate\",[\"f\"]]");
    expect(other, "+OK", "FLUSHALL");
    expect_text(&messages, "[\"message\",\"__redis__:invalidate\",nil]");

    wire_open(&pushes, the_daemon.port);
    wire_ask(&pushes, "HELLO 3");
    long long id = id_of(&pushes);
    snprintf(command, sizeof(command), "CLIENT TRACKING ON REDIRECT %lld", id);
    wire_ask(&data, "HELLO 3");
    expect_ask(&data, command, "+OK");
    expect_ask(&data, "EXISTS f", ":0");
    expect(other, ":1", "BF.ADD f x");
    expect_text(&pushes, forget("f"));
    wire_close(&pushes);
    wait_until(!strchr(client_ask(other, "CLIENT LIST ID %lld", id), 'a'));
    expect_ask(&data, "EXISTS f", ":1");
    expect(other, ":1", "DEL f");
    snprintf(expected, sizeof(expected), ">[\"tracking-redir-broken\",:%lld]", id);
    expect_text(&data, expected);
    cr_assert_not_null(strstr(wire_ask(&data, "CLIENT TRACKINGINFO"), "broken_redirect"));
}

DAEMON_TEST(the_daemon, tracking, the_table_of_all_clients_is_bounded)
{
    struct wire one, two;
    other = client_open(the_daemon.port);
    expect(other, "+OK", "CONFIG SET tracking-table-max-keys 5");
    open_tracking(&one, "CLIENT TRACKING ON");
    open_tracking(&two, "CLIENT TRACKING ON");
    expect_ask(&one, "EXISTS a b c", ":0");
    expect_ask(&two, "EXISTS d e f", ":0");
    expect_text(&two, ">[\"invalidate\",nil]");
    expect_ask(&two, "EXISTS d e", ":0");
    expect(other, ":1", "BF.ADD e x");
    expect_text(&two, forget("e"));
}

#define BATCH 1000

/* More than the limit of noted names of a connection: the client is told to forget everything, after the replies. */
DAEMON_TEST(the_daemon, tracking, with_too_many_names_everything_is_forgotten)
{
    static char names[BATCH][64];
    static struct word words[BATCH + 1] = {{"EXISTS", 6}};
    begin("CLIENT TRACKING ON");
    for (int batch = 0, told = 0; !told; batch++) {
        cr_assert_lt(batch, 3000, "the notes have no bound");
        if (batch > 60) /* the notes are full by then; a connection with a command under way is not checked */
            usleep(20000);
        for (int i = 0; i < BATCH; i++) {
            int len = snprintf(names[i], sizeof(names[i]), "a-name-of-some-length-that-takes-memory-%d-%d", batch, i);
            words[i + 1] = (struct word){names[i], (size_t)len};
        }
        cr_assert(wire_send_command(&wire, words, BATCH + 1));
        const char *got = wire_text(&wire);
        told = strcmp(got, ">[\"invalidate\",nil]") == 0;
        cr_assert(told || strcmp(got, ":0") == 0, "%s", got);
    }
}

/* ---- BCAST ---- */

/* Until a message has this name; a change may be reported in several messages. */
static void expect_told(const char *name)
{
    char quoted[32];
    snprintf(quoted, sizeof(quoted), "\"%s\"", name);
    for (const char *got = ""; !strstr(got, quoted);) {
        got = wire_text(&wire);
        cr_assert_not_null(strstr(got, ">[\"invalidate\",["), "%s", got);
    }
}

DAEMON_TEST(the_daemon, tracking, every_change_is_told_to_who_has_read_nothing)
{
    char mark[16];
    begin("CLIENT TRACKING ON BCAST");
    for (int i = 0; i < (int)CHANGES; i++) {
        expect(other, "+OK", "SELECT %d", i % 3);
        client_ask(other, changes[i].before);
        snprintf(mark, sizeof(mark), "mark:%d", i);
        expect(other, ":1", "BF.ADD %s x", mark);
        expect_told(mark); /* later messages are about the change */
        cr_assert_neq(client_ask(other, changes[i].change)[0], '-', "%s", changes[i].change);
        expect_told(changes[i].name);
    }
}

/* Pipelined adds of several connections, which go through the window. A name may come several times. */
DAEMON_TEST(the_daemon, tracking, adds_of_many_connections_are_told)
{
    enum { ADDERS = 6, ADDS = 200 };
    redisContext *adders[ADDERS];
    bool told[ADDERS] = {false};
    begin("CLIENT TRACKING ON BCAST PREFIX of:");
    for (int i = 0; i < ADDERS; i++) {
        adders[i] = client_open(the_daemon.port);
        for (int j = 0; j < ADDS; j++) {
            redisAppendCommand(adders[i], "BF.ADD of:%d item:%d", i, j);
            redisAppendCommand(adders[i], "BF.ADD other:%d item:%d", i, j);
        }
    }
    for (int i = 0; i < ADDERS; i++)
        for (int j = 0; j < 2 * ADDS; j++) {
            redisReply *reply;
            cr_assert_eq(redisGetReply(adders[i], (void **)&reply), REDIS_OK);
            freeReplyObject(reply);
        }
    expect(other, ":1", "BF.ADD of:last x");
    for (const char *got = ""; !strstr(got, "of:last");) {
        got = wire_text(&wire);
        cr_assert_null(strstr(got, "other"), "%s", got);
        for (int i = 0; i < ADDERS; i++) {
            char name[16];
            snprintf(name, sizeof(name), "\"of:%d\"", i);
            told[i] |= strstr(got, name) != NULL;
        }
    }
    for (int i = 0; i < ADDERS; i++) {
        cr_assert(told[i], "of:%d", i);
        for (int j = 0; j < ADDS; j++) /* the items are present: no change */
            redisAppendCommand(adders[i], "BF.ADD of:%d item:%d", i, j);
        for (int j = 0; j < ADDS; j++) {
            redisReply *reply;
            cr_assert_eq(redisGetReply(adders[i], (void **)&reply), REDIS_OK);
            freeReplyObject(reply);
        }
        redisFree(adders[i]);
    }
    expect(other, ":1", "BF.ADD of:last y");
    expect_text(&wire, forget("of:last"));
}

/* A change while a command of the client is under way, even one that reads nothing, is reported after its reply. */
DAEMON_TEST(the_daemon, tracking, a_message_waits_for_the_reply_of_a_command_under_way)
{
    begin("CLIENT TRACKING ON BCAST");
    cr_assert(wire_send_text(&wire, "WAIT 1 500\r\n"));
    wait_until(strstr(client_ask(other, "CLIENT LIST"), "cmd=wait"));
    expect(other, ":1", "BF.ADD f x");
    expect(other, ":1", "BF.ADD g x");
    expect_text(&wire, ":0");
    expect_told("f");
}

/* The changes of a transaction are reported together, each name once. */
DAEMON_TEST(the_daemon, tracking, a_transaction_is_one_message)
{
    begin("CLIENT TRACKING ON BCAST PREFIX f PREFIX g");
    expect(other, "+OK", "MULTI");
    for (int i = 0; i < 3; i++)
        expect(other, "+QUEUED", "BF.ADD f%d x", 2 - i);
    expect(other, "+QUEUED", "BF.ADD f1 y");
    expect(other, "+QUEUED", "BF.ADD h y");
    client_ask(other, "EXEC");
    expect_text(&wire, ">[\"invalidate\",[\"f2\",\"f1\",\"f0\"]]");
    expect(other, ":1", "BF.ADD h z");
    expect(other, ":1", "BF.ADD g z");
    expect_text(&wire, forget("g"));
}

DAEMON_TEST(the_daemon, tracking, who_goes_takes_prefixes_along_and_who_does_not_read_is_closed)
{
    static char name[16 * 1024];
    struct wire slow;
    begin("CLIENT TRACKING ON BCAST PREFIX f");
    open_tracking(&slow, "CLIENT TRACKING ON BCAST PREFIX n PREFIX m");
    expect_has(other, "tracking_total_prefixes:3\\x0d", "INFO stats");
    const struct word words[] = {{"CONFIG", 6}, {"SET", 3}, {"client-output-buffer-limit", 26}, {"normal 1mb 0 0", 14}};
    struct wire admin = wire_to(the_daemon.port);
    cr_assert(wire_send_command(&admin, words, 4));
    expect_text(&admin, "+OK");
    memset(name, 'n', sizeof(name));
    for (int i = 0; !strstr(client_ask(other, "INFO stats"), "tracking_total_prefixes:1\\x0d"); i++) {
        cr_assert_lt(i, 20000, "a client that does not read is never closed");
        client_ask(other, "BF.ADD %b item:%d", name, sizeof(name), i);
    }
    daemon_wait_output(&the_daemon, "client-output-buffer-limit");
    expect(other, ":1", "BF.ADD f x");
    expect_text(&wire, forget("f"));
}

/* ---- adds and reads at the same time ---- */

#define ROUNDS 150

static _Atomic int round_now;

static void *add_items(void *arg)
{
    redisContext *client = arg;
    for (int i = 0; i < ROUNDS; i++) {
        while (atomic_load(&round_now) < i)
            ;
        freeReplyObject(redisCommand(client, "BF.ADD raced item:%d", i));
    }
    return NULL;
}

/* A reader and an adder of the same item, at the same moment: if the reader gets "absent", a message follows. */
static void race(const char *how)
{
    pthread_t adder;
    char text[96];
    int absent = 0;
    begin(how);
    expect(other, "+OK", "BF.RESERVE raced 0.000001 10000");
    atomic_store(&round_now, -1);
    cr_assert_eq(pthread_create(&adder, NULL, add_items, other), 0);
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(text, sizeof(text), "BF.EXISTS raced item:%d\r\n", i);
        atomic_store(&round_now, i);
        cr_assert(wire_send_text(&wire, text));
        const char *got = wire_text(&wire);
        while (strcmp(got, forget("raced")) == 0) /* of an earlier round */
            got = wire_text(&wire);
        if (strcmp(got, "#f") == 0) {
            absent++;
            expect_text(&wire, forget("raced"));
        } else {
            cr_assert_str_eq(got, "#t");
        }
    }
    pthread_join(adder, NULL);
    fprintf(stderr, "tracking: %d of %d reads came before the add\n", absent, ROUNDS);
}

DAEMON_TEST(the_daemon, tracking, no_absent_outlives_the_add)
{
    race("CLIENT TRACKING ON");
}

/* Its reads go through the window. */
DAEMON_TEST(the_daemon, tracking, with_bcast_no_absent_outlives_the_add)
{
    race("CLIENT TRACKING ON BCAST");
}
