/* CLIENT TRACKING: a client that keeps answers is told of every change of a filter that it has read, and an answer from
 * before the change never comes behind that message. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "wire.h"

DAEMON_SUITE(the_daemon, tracking, "--threads", "3");

static void open_tracking(struct wire *wire)
{
    wire_open(wire, the_daemon.port);
    cr_assert_not_null(strstr(wire_ask(wire, "HELLO 3"), "proto"));
    expect_ask(wire, "CLIENT TRACKING ON", "+OK");
}

static const char *forget(const char *name)
{
    static char text[128];
    snprintf(text, sizeof(text), ">[\"invalidate\",[\"%s\"]]", name);
    return text;
}

/* Whatever changes what is under a name: (what another client does before the read, the read, the change). */
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
    struct wire wire;
    redisContext *other = client_open(the_daemon.port);
    open_tracking(&wire);
    for (size_t i = 0; i < CHANGES; i++) {
        client_ask(other, changes[i].before);
        wire_ask(&wire, changes[i].read);
        cr_assert_neq(client_ask(other, changes[i].change)[0], '-', "%s", changes[i].change);
        const char *got = wire_text(&wire);
        cr_assert_str_eq(got, forget(changes[i].name), "%s, %s: %s", changes[i].read, changes[i].change, got);
    }
    redisFree(other);
    wire_close(&wire);
}

/* In transactions, and for the client's own changes, too. */
DAEMON_TEST(the_daemon, tracking, own_changes_and_reads_in_transactions_count)
{
    struct wire wire;
    open_tracking(&wire);
    expect_ask(&wire, "BF.ADD f x", "#t");
    expect_ask(&wire, "MULTI", "+OK");
    expect_ask(&wire, "BF.EXISTS f y", "+QUEUED");
    expect_ask(&wire, "EXISTS f", "+QUEUED");
    expect_ask(&wire, "EXEC", "[#f,:1]");
    expect_ask(&wire, "BF.ADD f y", "#t");
    expect_text(&wire, forget("f"));
    wire_close(&wire);
}

/* What changes nothing is not told: the next message is about another filter, though that was read later. */
DAEMON_TEST(the_daemon, tracking, an_add_of_what_is_there_is_not_told)
{
    struct wire wire;
    redisContext *other = client_open(the_daemon.port);
    open_tracking(&wire);
    client_ask(other, "BF.ADD f x");
    client_ask(other, "BF.ADD g x");
    expect_ask(&wire, "BF.EXISTS f x", "#t");
    expect_ask(&wire, "BF.EXISTS g x", "#t");
    expect(other, ":0", "BF.ADD f x");
    expect(other, ":1", "BF.ADD g y");
    expect_text(&wire, forget("g"));
    expect(other, ":1", "BF.ADD g z"); /* forgotten names are not told again */
    expect(other, ":1", "BF.ADD f z");
    expect_text(&wire, forget("f"));
    redisFree(other);
    wire_close(&wire);
}

DAEMON_TEST(the_daemon, tracking, it_says_what_it_is)
{
    struct wire wire;
    redisContext *other = client_open(the_daemon.port);
    expect(other, ":-1", "CLIENT GETREDIR");
    open_tracking(&wire);
    expect_ask(&wire, "CLIENT TRACKINGINFO", "{\"flags\":~[\"on\"],\"redirect\"::0,\"prefixes\":[]}");
    cr_assert_not_null(strstr(wire_ask(&wire, "CLIENT TRACKING ON BCAST"), "-ERR BCAST and PREFIX are not supported"));
    cr_assert_not_null(strstr(wire_ask(&wire, "CLIENT INFO"), " flags=t "));
    expect_ask(&wire, "CLIENT TRACKING ON", "+OK");
    wire_ask(&wire, "EXISTS one two one");
    cr_assert_not_null(strstr(client_ask(other, "INFO clients"), "tracking_clients:1\\x0d"));
    cr_assert_not_null(strstr(client_ask(other, "INFO stats"), "tracking_total_keys:2\\x0d"));
    expect_ask(&wire, "CLIENT TRACKING OFF", "+OK");
    expect_ask(&wire, "CLIENT TRACKINGINFO", "{\"flags\":~[\"off\"],\"redirect\"::-1,\"prefixes\":[]}");
    expect_ask(&wire, "CLIENT TRACKING ON", "+OK");
    wire_ask(&wire, "HELLO 2"); /* which has no messages, but is tracked, as in Redis */
    cr_assert_not_null(strstr(client_ask(other, "INFO clients"), "tracking_clients:1\\x0d"));
    wire_ask(&wire, "HELLO 3");
    expect_ask(&wire, "CLIENT TRACKING ON", "+OK");
    expect_ask(&wire, "RESET", "+RESET");
    cr_assert_not_null(strstr(client_ask(other, "INFO clients"), "tracking_clients:0\\x0d"));
    redisFree(other);
    wire_close(&wire);
}

/* ---- options ---- */

DAEMON_TEST(the_daemon, tracking, a_flush_is_one_message_without_names)
{
    struct wire wire;
    redisContext *other = client_open(the_daemon.port);
    open_tracking(&wire);
    expect_ask(&wire, "EXISTS a b c", ":0");
    expect(other, "+OK", "FLUSHALL");
    expect_text(&wire, ">[\"invalidate\",nil]");
    expect_ask(&wire, "EXISTS a", ":0");
    expect(other, "+OK", "SELECT 3");
    expect(other, ":1", "BF.ADD f x");
    expect(other, "+OK", "FLUSHDB");
    expect_text(&wire, ">[\"invalidate\",nil]");
    redisFree(other);
    wire_close(&wire);
}

/* The names of two databases are told apart; the message has the name. */
DAEMON_TEST(the_daemon, tracking, a_name_of_another_database_is_another)
{
    struct wire wire;
    redisContext *other = client_open(the_daemon.port);
    open_tracking(&wire);
    expect_ask(&wire, "SELECT 4", "+OK");
    expect_ask(&wire, "EXISTS f", ":0");
    expect_ask(&wire, "EXISTS g", ":0");
    expect(other, ":1", "BF.ADD f x");
    expect(other, "+OK", "SELECT 4");
    expect(other, ":1", "BF.ADD g x");
    expect_text(&wire, forget("g"));
    redisFree(other);
    wire_close(&wire);
}

DAEMON_TEST(the_daemon, tracking, optin_and_optout_take_exceptions)
{
    struct wire wire;
    redisContext *other = client_open(the_daemon.port);
    open_tracking(&wire);
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
    redisFree(other);
    wire_close(&wire);
}

DAEMON_TEST(the_daemon, tracking, with_noloop_own_changes_are_not_told)
{
    struct wire wire;
    redisContext *other = client_open(the_daemon.port);
    open_tracking(&wire);
    expect_ask(&wire, "CLIENT TRACKING ON NOLOOP", "+OK");
    expect_ask(&wire, "EXISTS a b", ":0");
    expect_ask(&wire, "BF.ADD a x", "#t");
    expect(other, ":1", "BF.ADD b x");
    expect_text(&wire, forget("b"));
    expect_ask(&wire, "EXISTS a", ":1");
    expect(other, ":1", "BF.ADD a y");
    expect_text(&wire, forget("a"));
    for (int i = 0; i < 1500; i++) { /* names that were dropped leave the table and the order of checks */
        expect_ask(&wire, "EXISTS c", i ? ":1" : ":0");
        char add[64];
        snprintf(add, sizeof(add), "BF.ADD c %d", i);
        wire_ask(&wire, add);
    }
    expect_ask(&wire, "EXISTS d", ":0");
    expect(other, ":1", "BF.ADD d x");
    expect_text(&wire, forget("d"));
    cr_assert_not_null(strstr(client_ask(other, "INFO stats"), "tracking_total_keys:0\\x0d"));
    redisFree(other);
    wire_close(&wire);
}

static long long id_of(struct wire *wire)
{
    long long id;
    cr_assert_eq(sscanf(wire_ask(wire, "CLIENT ID"), ":%lld", &id), 1);
    return id;
}

/* To a RESP2 connection, as libraries without RESP3 do; then to one with RESP3; then to one that has gone. */
DAEMON_TEST(the_daemon, tracking, another_connection_can_be_told)
{
    char command[64], expected[128];
    struct wire data, messages, pushes;
    redisContext *other = client_open(the_daemon.port);
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
    while (strchr(client_ask(other, "CLIENT LIST ID %lld", id), 'a'))
        usleep(1000);
    expect_ask(&data, "EXISTS f", ":1");
    expect(other, ":1", "DEL f");
    snprintf(expected, sizeof(expected), ">[\"tracking-redir-broken\",:%lld]", id);
    expect_text(&data, expected);
    cr_assert_not_null(strstr(wire_ask(&data, "CLIENT TRACKINGINFO"), "broken_redirect"));
    wire_close(&messages);
    wire_close(&data);
    redisFree(other);
}

DAEMON_TEST(the_daemon, tracking, the_table_of_all_clients_is_bounded)
{
    struct wire one, two;
    redisContext *other = client_open(the_daemon.port);
    expect(other, "+OK", "CONFIG SET tracking-table-max-keys 5");
    open_tracking(&one);
    open_tracking(&two);
    expect_ask(&one, "EXISTS a b c", ":0");
    expect_ask(&two, "EXISTS d e f", ":0");
    expect_text(&two, ">[\"invalidate\",nil]");
    expect_ask(&two, "EXISTS d e", ":0");
    expect(other, ":1", "BF.ADD e x");
    expect_text(&two, forget("e"));
    redisFree(other);
    wire_close(&one);
    wire_close(&two);
}

#define BATCH 1000

/* More than a connection may note: the client is told to forget everything, behind the replies. */
DAEMON_TEST(the_daemon, tracking, with_too_many_names_everything_is_forgotten)
{
    static char names[BATCH][64];
    static struct word words[BATCH + 1] = {{"EXISTS", 6}};
    struct wire wire;
    open_tracking(&wire);
    for (int batch = 0, told = 0; !told; batch++) {
        cr_assert_lt(batch, 200, "the notes have no bound");
        if (batch > 60) /* the notes are full by then; a connection with a command under way is not looked at */
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
    wire_close(&wire);
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

/* A reader and an adder of the same item, at the same moment: if the reader is told "absent", a message follows. */
DAEMON_TEST(the_daemon, tracking, no_absent_outlives_the_add)
{
    struct wire wire;
    pthread_t adder;
    char text[64];
    int absent = 0;
    redisContext *client = client_open(the_daemon.port);
    open_tracking(&wire);
    expect(client, "+OK", "BF.RESERVE raced 0.000001 10000");
    atomic_store(&round_now, -1);
    cr_assert_eq(pthread_create(&adder, NULL, add_items, client), 0);
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
    redisFree(client);
    wire_close(&wire);
}
