/* Commands that run, wait or are refused in each state of the server; waiting commands continue in their order when it
 * ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admission.h"
#include "persistence.h"
#include "rig.h"

TestSuite(admission, .timeout = 3000);

static struct server *server;

static void begin(unsigned workers, const char *const *settings)
{
    server = rig_begin(workers, NULL, settings);
}

/* ---- pauses ---- */

RIG_TEST(admission, a_pause_of_writes_holds_writes_and_what_is_behind_them)
{
    begin(2, NULL);
    int admin = rig_connect(1), writer = rig_connect(0), reader = rig_connect(0);
    rig_call(admin, "CLIENT PAUSE 1000000 WRITE", "+OK\r\n");
    rig_send(writer, "BF.EXISTS f a"); /* through the pipeline, before the write */
    rig_send(writer, "BF.ADD f a");
    rig_send(writer, "BF.EXISTS f a"); /* waits after the write */
    rig_expect(writer, ":0\r\n");
    rig_call(reader, "BF.EXISTS f a", ":0\r\n");
    rig_call(reader, "BF.MEXISTS f a b", "*2\r\n:0\r\n:0\r\n");
    rig_call(reader, "PING", "+PONG\r\n");
    rig_pass(0);
    rig_expect_silence(writer);
    rig_call(admin, "CLIENT UNPAUSE", "+OK\r\n");
    rig_expect(writer, ":1\r\n:1\r\n");
}

RIG_TEST(admission, a_pause_of_all_ends_by_its_time_or_by_a_client)
{
    begin(2, NULL);
    int admin = rig_connect(1), client = rig_connect(0);
    rig_call(admin, "CLIENT PAUSE 1000000 ALL", "+OK\r\n");
    rig_send(client, "PING");
    rig_send(client, "BF.ADD f a");
    rig_pass(0);
    rig_expect_silence(client);
    rig_call(admin, "CLIENT UNPAUSE", "+OK\r\n");
    rig_expect(client, "+PONG\r\n:1\r\n");
    rig_call(admin, "CLIENT PAUSE 1 ALL", "+OK\r\n");
    rig_call(client, "BF.ADD f b", ":1\r\n"); /* whenever that is */
    rig_call(admin, "BF.ADD f b", ":0\r\n");
}

/* An EXEC is a write if one of its commands is. */
RIG_TEST(admission, a_transaction_waits_if_it_writes)
{
    begin(2, NULL);
    int admin = rig_connect(1), reads = rig_connect(0), writes = rig_connect(0);
    rig_call(admin, "CLIENT PAUSE 1000000 WRITE", "+OK\r\n");
    rig_call(reads, "MULTI", "+OK\r\n");
    rig_call(reads, "BF.EXISTS f a", "+QUEUED\r\n");
    rig_call(reads, "EXEC", "*1\r\n:0\r\n");
    rig_call(writes, "MULTI", "+OK\r\n");
    rig_call(writes, "BF.EXISTS f a", "+QUEUED\r\n");
    rig_send(writes, "BF.ADD f a"); /* is queued, which changes nothing, or waits */
    rig_send(writes, "EXEC");
    rig_pass(0);
    rig_call(reads, "BF.EXISTS f a", ":0\r\n");
    rig_call(admin, "CLIENT UNPAUSE", "+OK\r\n");
    rig_expect(writes, "+QUEUED\r\n*2\r\n:0\r\n:1\r\n");
}

/* The state changes between the queue and its EXEC. */
RIG_TEST(admission, a_transaction_that_was_queued_before)
{
    begin(2, NULL);
    int admin = rig_connect(1), reads = rig_connect(0), writes = rig_connect(0);
    for (int pass = 0; pass < 2; pass++) {
        rig_call(reads, "MULTI", "+OK\r\n");
        rig_call(reads, "BF.EXISTS f a", "+QUEUED\r\n");
        rig_call(reads, "BF.EXISTS f b", "+QUEUED\r\n");
        rig_call(writes, "MULTI", "+OK\r\n");
        rig_call(writes, "BF.EXISTS f a", "+QUEUED\r\n");
        rig_call(writes, "BF.ADD f b", "+QUEUED\r\n");
        rig_call(admin, pass ? "CONFIG SET maxmemory 1" : "CLIENT PAUSE 1000000 WRITE", "+OK\r\n");
        rig_pass(0);
        rig_send(writes, "EXEC");
        rig_call(reads, "EXEC", pass ? "*2\r\n:0\r\n:1\r\n" : "*2\r\n:0\r\n:0\r\n");
        if (pass == 0) {
            rig_pass(0);
            rig_expect_silence(writes);
            rig_call(admin, "CLIENT UNPAUSE", "+OK\r\n");
            rig_expect(writes, "*2\r\n:0\r\n:1\r\n");
        } else {
            rig_expect(writes, "-");
        }
    }
}

/* A client that disconnects while it waits does not run its command afterwards. */
RIG_TEST(admission, who_goes_during_a_pause_changes_nothing)
{
    begin(2, NULL);
    int admin = rig_connect(1), client = rig_connect(0);
    rig_call(admin, "CLIENT PAUSE 1000000 WRITE", "+OK\r\n");
    rig_send(client, "BF.ADD f a");
    rig_pass(0);
    rig_close(client);
    wait_until(worker_nconns(server->threads.workers[0]) == 0);
    rig_call(admin, "CLIENT UNPAUSE", "+OK\r\n");
    rig_call(admin, "BF.EXISTS f a", ":0\r\n");
}

/* ---- loading ---- */

RIG_TEST(admission, while_filters_are_loaded_none_is_answered)
{
#define LOADING "-LOADING Bloomery is loading the filters, INFO persistence shows the progress\r\n"
    begin(1, NULL);
    int fd = rig_connect(0);
    rig_call(fd, "BF.ADD f a", ":1\r\n");
    atomic_store(&server->persistence->load.active, true);
    rig_call(fd, "BF.EXISTS f a", LOADING);
    rig_call(fd, "BF.EXISTS f a", LOADING);
    rig_call(fd, "BF.ADD f b", LOADING);
    rig_call(fd, "BF.MEXISTS f a", LOADING);
    rig_call(fd, "DEL f", LOADING);
    rig_call(fd, "DBSIZE", LOADING);
    rig_call(fd, "SELECT 0", "+OK\r\n");
    rig_call(fd, "MULTI", "+OK\r\n");
    rig_call(fd, "BF.EXISTS f a", LOADING);
    rig_call(fd, "EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    atomic_store(&server->persistence->load.active, false);
    rig_call(fd, "BF.EXISTS f a", ":1\r\n");
    rig_call(fd, "BF.EXISTS f b", ":0\r\n");
}

/* ---- memory ---- */

RIG_TEST(admission, without_memory_only_what_needs_it_is_refused)
{
#define OOM "-OOM command not allowed when used memory > 'maxmemory'.\r\n"
    begin(1, NULL);
    int fd = rig_connect(0);
    rig_call(fd, "BF.ADD f a", ":1\r\n");
    rig_call(fd, "CONFIG SET maxmemory 1", "+OK\r\n");
    rig_call(fd, "BF.EXISTS f a", ":1\r\n");
    rig_call(fd, "BF.EXISTS f b", ":0\r\n");
    rig_call(fd, "BF.ADD f b", OOM);
    rig_call(fd, "BF.ADD f b", OOM);
    rig_call(fd, "BF.MADD f b c", OOM);
    rig_call(fd, "BF.RESERVE g 0.01 100", OOM);
    rig_call(fd, "BF.MERGE g f", OOM);
    rig_call(fd, "MULTI", "+OK\r\n");
    rig_call(fd, "BF.ADD f b", OOM);
    rig_call(fd, "EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    rig_call(fd, "BF.CARD f", ":1\r\n");
    rig_call(fd, "CONFIG SET maxmemory 0", "+OK\r\n");
    rig_call(fd, "BF.ADD f b", ":1\r\n");
    rig_call(fd, "CONFIG SET maxmemory 1", "+OK\r\n");
    rig_call(fd, "DEL f", ":1\r\n"); /* gives memory back */
}

/* ---- rights ---- */

#define NO_KEY     "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n"
#define NO_COMMAND "-NOPERM this user has no permissions to run the 'bf.add' command\r\n"

RIG_TEST(admission, rights_that_are_taken_between_a_command_and_its_exec)
{
    begin(1, NULL);
    int admin = rig_connect(0), fd = rig_connect(0);
    rig_call(admin, "ACL SETUSER ann on >pw ~* +@all", "+OK\r\n");
    rig_call(fd, "AUTH ann pw", "+OK\r\n");
    rig_call(fd, "MULTI", "+OK\r\n");
    rig_call(fd, "BF.ADD f a", "+QUEUED\r\n");
    rig_call(fd, "BF.ADD g a", "+QUEUED\r\n");
    rig_call(fd, "BF.EXISTS f a", "+QUEUED\r\n");
    rig_call(admin, "ACL SETUSER ann resetkeys ~f", "+OK\r\n");
    rig_send(fd, "EXEC");
    rig_expect(fd, "*3\r\n:1\r\n-NOPERM ");
    rig_call(admin, "BF.EXISTS g a", ":0\r\n");
}

/* A pattern of BF.FIND may match no name that the user may not read. */
RIG_TEST(admission, patterns_that_are_wider_than_those_of_the_user)
{
    static const struct {
        const char *pattern;
        bool allowed;
    } cases[] = {{"abc*", true},  {"abcd*", true}, {"abc?e*", true}, {"abc", true}, {"abcd", true},    {"a*", false},
                 {"ab*", false},  {"*", false},    {"ab?*", false},  {"ab", false}, {"[a]bc*", false}, {"?bc*", false},
                 {"abd*", false}, {"*abc", false}, {"one", true},    {"on*", false}};
    begin(1, NULL);
    int admin = rig_connect(0), fd = rig_connect(0);
    rig_call(admin, "ACL SETUSER ann on >pw ~abc* ~one +bf.find", "+OK\r\n");
    rig_call(fd, "AUTH ann pw", "+OK\r\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char line[64];
        for (int behind = 0; behind < 2; behind++) {
            snprintf(line, sizeof(line), "BF.FIND %s%s ITEMS x", behind ? "abc " : "", cases[i].pattern);
            rig_send(fd, line);
            rig_expect(fd, cases[i].allowed ? "*" : NO_KEY);
            if (cases[i].allowed) {
                rig_close(fd);
                fd = rig_connect(0);
                rig_call(fd, "AUTH ann pw", "+OK\r\n");
            }
        }
    }
}

RIG_TEST(admission, before_a_password_nothing_is_answered)
{
    begin(1, (const char *const[]){"requirepass", "secret", NULL});
    int fd = rig_connect(0);
#define NOAUTH "-NOAUTH Authentication required.\r\n"
    rig_call(fd, "BF.EXISTS f a", NOAUTH);
    rig_call(fd, "BF.ADD f a", NOAUTH);
    rig_call(fd, "PING", NOAUTH);
    rig_call(fd, "DBSIZE", NOAUTH);
    rig_call(fd, "MULTI", NOAUTH);
    rig_call(fd, "AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    rig_call(fd, "BF.EXISTS f a", NOAUTH);
    rig_call(fd, "AUTH secret", "+OK\r\n");
    rig_call(fd, "BF.EXISTS f a", ":0\r\n");
    rig_call(fd, "BF.ADD f a", ":1\r\n");
    rig_call(fd, "RESET", "+RESET\r\n");
    rig_call(fd, "BF.EXISTS f a", NOAUTH); /* though the pipeline has just seen it */
}

RIG_TEST(admission, a_subscribed_client_of_resp2_gets_messages_alone)
{
    begin(1, NULL);
    int fd = rig_connect(0), other = rig_connect(0);
    rig_call(fd, "BF.EXISTS f a", ":0\r\n");
    rig_call(fd, "SUBSCRIBE c", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    rig_send(fd, "BF.EXISTS f a");
    rig_expect(fd, "-ERR Can't execute 'bf.exists'");
    rig_expect(fd, ": only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context\r\n");
    rig_call(other, "PUBLISH c m", ":1\r\n");
    rig_expect(fd, "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n");
    rig_call(fd, "UNSUBSCRIBE c", "*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n");
    rig_call(fd, "BF.EXISTS f a", ":0\r\n");
}
