/* Administration, as redis-cli, tools like RedisInsight and client libraries use it: each command in RESP2 and RESP3.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "tmpdir.h"
#include "wait.h"
#include "wire.h"

DAEMON_SUITE_IDLE(the_daemon, admin);

static struct wire resp2, resp3;

static void start_with(const char *const *args)
{
    daemon_start(&the_daemon, args);
    wire_open(&resp2, the_daemon.port);
    wire_open(&resp3, the_daemon.port);
    cr_assert_not_null(strstr(wire_ask(&resp3, "HELLO 3"), "proto"));
}

static void start(void)
{
    start_with(NULL);
}

#define expect_reply(wire, expected, command) expect_ask(wire, command, expected)

#define expect_both(expected, command)             \
    do {                                           \
        expect_reply(&resp2, (expected), command); \
        expect_reply(&resp3, (expected), command); \
    } while (0)

#define expect_each(expected2, expected3, command)  \
    do {                                            \
        expect_reply(&resp2, (expected2), command); \
        expect_reply(&resp3, (expected3), command); \
    } while (0)

static void expect_like(struct wire *wire, const char *part, const char *command)
{
    const char *text = wire_ask(wire, command);

    cr_assert_not_null(strstr(text, part), "got '%s', which does not have '%s'; command: %s", text, part, command);
}

static void expect_like_both(const char *part, const char *command)
{
    expect_like(&resp2, part, command);
    expect_like(&resp3, part, command);
}

/* Commands for features that a single server lacks are answered as by a single Redis, or refused. */
DAEMON_TEST(the_daemon, admin, replication_and_cluster_are_not_there)
{
    static const char *const disabled[] = {"CLUSTER INFO", "CLUSTER NODES",     "CLUSTER SLOTS", "CLUSTER SHARDS",
                                           "CLUSTER MYID", "CLUSTER KEYSLOT a", "CLUSTER LINKS", "CLUSTER HELP",
                                           "READONLY",     "READWRITE",         "ASKING"};

    start();
    for (size_t i = 0; i < sizeof(disabled) / sizeof(disabled[0]); i++)
        expect_both("-ERR This instance has cluster support disabled", disabled[i]);
    expect_both("-ERR unknown subcommand 'FOO'. Try CLUSTER HELP.", "CLUSTER FOO");
    expect_both("[\"master\",:0,[]]", "ROLE");
    expect_both("+OK", "REPLICAOF NO ONE");
    expect_both("+OK", "slaveof no one");
    expect_both("-ERR this server has no replication and cannot be a replica", "REPLICAOF 127.0.0.1 6380");
    expect_both("-ERR FAILOVER requires connected replicas.", "FAILOVER");
    expect_both("-ERR No failover in progress.", "FAILOVER ABORT");
    expect_like_both("-ERR MODULE command not allowed", "MODULE LOAD /x.so");
    expect_like_both("-ERR MODULE command not allowed", "MODULE LOADEX /x.so");
    expect_like_both("-ERR MODULE command not allowed", "MODULE UNLOAD bf");
    expect_each("[[\"name\",\"bf\",\"ver\",:80800,\"path\",\"\",\"args\",[]]]",
                "[{\"name\":\"bf\",\"ver\"::80800,\"path\":\"\",\"args\":[]}]", "MODULE LIST");
}

/* Replicas do not exist: a client that waits for replicas waits until its timeout, and no other client waits. */
DAEMON_TEST(the_daemon, admin, wait_waits_alone)
{
    struct wire other;

    start();
    expect_both(":0", "WAIT 0 0");
    expect_both(":0", "WAIT -1 10");
    expect_both(":0", "WAIT 1 1");
    expect_both("-ERR timeout is negative", "WAIT 1 -1");
    expect_both("-ERR value is not an integer or out of range", "WAIT x 1");
    expect_both("-ERR timeout is not an integer or out of range", "WAIT 1 x");
    expect_both("[:0,:0]", "WAITAOF 0 0 0");
    expect_both("[:0,:0]", "WAITAOF 0 2 1");
    expect_both("-ERR value is out of range, must be between 0 and 1", "WAITAOF 2 0 0");
    expect_both("-ERR value is out of range, must be positive", "WAITAOF 0 -1 0");

    cr_assert(wire_send_text(&resp2, "WAIT 1 0\r\nPING\r\n"));
    wire_open(&other, the_daemon.port);
    wait_until(strstr(wire_ask(&resp3, "INFO clients"), "blocked_clients:1"));
    expect_reply(&other, "+PONG", "PING");
    wire_close(&resp2); /* a closed connection no longer waits */
    wait_until(strstr(wire_ask(&resp3, "INFO clients"), "blocked_clients:0"));
    wire_close(&other);
    wire_open(&resp2, the_daemon.port);
    cr_assert(wire_send_text(&resp2, "WAIT 1 0\r\n")); /* the end of the daemon does not wait for it either */
    expect_reply(&resp3, "+PONG", "PING");
}

/* DEBUG is refused unless it was allowed at the start; then it delays its own connection only. */
DAEMON_TEST(the_daemon, admin, debug_has_to_be_allowed)
{
    const char *const args[] = {"--enable-debug-command", "local", NULL};
    struct wire other;

    start();
    expect_like_both("-ERR DEBUG command not allowed.", "DEBUG SLEEP 0");
    expect_like_both("-ERR DEBUG command not allowed.", "DEBUG JMAP");
    expect_both("+OK", "MULTI");
    expect_like_both("-ERR DEBUG command not allowed.", "DEBUG SLEEP 0");
    expect_like_both("-EXECABORT", "EXEC");
    daemon_deinit(&the_daemon);

    start_with(args);
    expect_both("+OK", "DEBUG SLEEP 0");
    expect_both("-ERR value is not a valid float", "DEBUG SLEEP x");
    expect_both("-ERR value is not a valid float", "DEBUG SLEEP nan");
    expect_both("-ERR unknown subcommand or wrong number of arguments for 'JMAP'. Try DEBUG HELP.", "DEBUG JMAP");
    expect_both("-ERR unknown subcommand or wrong number of arguments for 'SLEEP'. Try DEBUG HELP.", "DEBUG SLEEP");
    expect_both("-MYCODE", "DEBUG ERROR MYCODE");
    static const char forged[] = "*3\r\n$5\r\nDEBUG\r\n$3\r\nLOG\r\n$12\r\na\r\n1234 fake\r\n"
                                 "*3\r\n$5\r\nDEBUG\r\n$5\r\nERROR\r\n$8\r\nX y\r\n+OK\r\n";
    cr_assert(wire_send(&resp2, forged, sizeof(forged) - 1));
    cr_assert_str_eq(wire_text(&resp2), "+OK");
    cr_assert_str_eq(wire_text(&resp2), "-X y  +OK");
    cr_assert_not_null(strstr(daemon_output(&the_daemon), "DEBUG LOG: a  1234 fake\n"));
    expect_both("-ERR no such key", "DEBUG OBJECT nosuch");
    expect_each(":1", "#f", "BF.ADD f x");
    expect_like_both("encoding:raw serializedlength:", "DEBUG OBJECT f");
    expect_each("\"3.141\"", ",3.141", "DEBUG PROTOCOL double");
    expect_each("nil", "nil", "DEBUG PROTOCOL null");
    expect_each("[:0,:1,:2]", "[:0,:1,:2]", "DEBUG PROTOCOL array");
    expect_each(":1", "#t", "DEBUG PROTOCOL true");
    expect_like_both("-ERR Wrong protocol type name.", "DEBUG PROTOCOL nosuch");

    cr_assert(wire_send_text(&resp2, "DEBUG SLEEP 3600\r\n"));
    wire_open(&other, the_daemon.port);
    for (int i = 0; i < 50; i++)
        expect_reply(&other, "+PONG", "PING");
}

/* One user, default; its password is shown as a hash only. */
DAEMON_TEST(the_daemon, admin, acl_shows_the_first_user)
{
    start();
    expect_both("\"default\"", "ACL WHOAMI");
    expect_both("[\"default\"]", "ACL USERS");
    expect_both("[\"user default on nopass ~* &* +@all\"]", "ACL LIST");
    expect_both("nil", "ACL GETUSER nosuch");
    expect_like(&resp3, "nopass", "ACL GETUSER default");
    expect_like_both("\"dangerous\"", "ACL CAT");
    expect_like_both("\"bf.add\"", "ACL CAT bloom");
    expect_both("[]", "ACL CAT string");
    expect_both("-ERR Unknown category 'nosuch'", "ACL CAT nosuch");
    expect_both("+OK", "ACL DRYRUN default bf.add f x");
    expect_both("-ERR Command 'nosuch' not found", "ACL DRYRUN default nosuch");
    expect_both("+OK", "ACL DRYRUN default config get port");
    expect_both("-ERR wrong number of arguments for 'config|get' command", "ACL DRYRUN default config get");
    expect_both("-ERR Command 'config' not found", "ACL DRYRUN default config nosuch");
    expect_both("-ERR User 'bob' not found", "ACL DRYRUN bob bf.add");
    expect_both("-ERR wrong number of arguments for 'bf.add' command", "ACL DRYRUN default bf.add f");
    expect_both("[]", "ACL LOG");
    expect_both("+OK", "ACL LOG RESET");
    cr_assert_eq(strlen(wire_ask(&resp2, "ACL GENPASS")), 64 + 2);
    cr_assert_eq(strlen(wire_ask(&resp2, "ACL GENPASS 5")), 2 + 2);
    cr_assert_eq(strlen(wire_ask(&resp2, "ACL GENPASS 4096")), 1024 + 2);
    expect_like_both("-ERR ACL GENPASS argument must be", "ACL GENPASS 0");
    expect_both("-ERR value is not an integer or out of range", "ACL GENPASS x");
    expect_both("-ERR unknown subcommand or wrong number of arguments for 'GENPASS'. Try ACL HELP.", "ACL GENPASS 5 5");
    expect_both("-ERR unknown subcommand or wrong number of arguments for 'cat'. Try ACL HELP.", "ACL cat read write");
    expect_both("-ERR unknown subcommand or wrong number of arguments for 'LOG'. Try ACL HELP.", "ACL LOG 1 2");
    expect_both("+OK", "CONFIG SET requirepass abc");
    expect_both("[\"user default on #ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad ~* &* "
                "+@all\"]",
                "ACL LIST");
    expect_like(&resp3, "ba7816bf8f01cfea", "ACL GETUSER default");
}

/* The memory of a filter grows with its size, and the sum equals the number in INFO. */
DAEMON_TEST(the_daemon, admin, memory_is_that_of_the_filters)
{
    long long small, large;
    redisContext *client;

    start();
    client = client_open(the_daemon.port);
    expect_both("nil", "MEMORY USAGE nosuch");
    expect(client, "+OK", "BF.RESERVE small 0.01 100");
    expect(client, "+OK", "BF.RESERVE large 0.01 1000000");
    small = client_number(client, "MEMORY USAGE small");
    large = client_number(client, "MEMORY USAGE large SAMPLES 0");
    cr_assert(small > 120 && small < 400, "%lld", small);
    cr_assert(large > 1198132 && large < 1600000, "%lld", large);
    expect_both("-ERR syntax error", "MEMORY USAGE small SAMPLES");
    expect_both("-ERR syntax error", "MEMORY USAGE small SAMPLES -1");
    expect_both("-ERR value is not an integer or out of range", "MEMORY USAGE small SAMPLES x");
    expect_both("-ERR syntax error", "MEMORY USAGE small FOO 1");
}

/* With a limit of 0 every command is recorded, also BF.ADD and BF.EXISTS; passwords are not. */
DAEMON_TEST(the_daemon, admin, the_slow_log_remembers)
{
    redisContext *client;

    start();
    client = client_open(the_daemon.port);
    expect(client, "+OK", "CLIENT SETNAME tester");
    expect(client, "+OK", "CONFIG SET slowlog-log-slower-than 0");
    expect(client, "+OK", "SLOWLOG RESET");
    expect(client, ":1", "BF.ADD f item");
    expect(client, ":1", "BF.EXISTS f item");
    expect(client, "+OK", "CONFIG SET requirepass secret1");
    expect(client, "+OK", "AUTH secret1");
    expect_has(client, "proto", "HELLO 2 AUTH default secret1");
    client_ask(client, "ACL SETUSER default >secret1");
    expect(client, "+OK", "ACL DRYRUN default AUTH secret1");
    expect(client, "+OK", "ACL DRYRUN default HELLO 3 AUTH default secret1");
    expect(client, "+OK", "ACL DRYRUN default CONFIG SET requirepass secret1");
    expect(client, "+OK", "CONFIG SET slowlog-log-slower-than -1 timeout 0");
    cr_assert_eq(client_number(client, "SLOWLOG LEN"), 10);
    const char *text = client_ask(client, "SLOWLOG GET");
    cr_assert_null(strstr(text, "secret1"), "%s", text);
    cr_assert_not_null(strstr(text, "[\"AUTH\",\"(redacted)\"]"), "%s", text);
    cr_assert_not_null(strstr(text, "[\"HELLO\",\"2\",\"AUTH\",\"(redacted)\",\"(redacted)\"],\"127.0.0.1:"), "%s",
                       text);
    cr_assert_not_null(strstr(text, "[\"CONFIG\",\"SET\",\"requirepass\",\"(redacted)\"]"), "%s", text);
    cr_assert_not_null(strstr(text, "[\"ACL\",\"DRYRUN\",\"default\",\"AUTH\",\"(redacted)\"]"), "%s", text);
    cr_assert_not_null(strstr(text, "[\"BF.ADD\",\"f\",\"item\"]"), "%s", text);
    cr_assert_not_null(strstr(text, "[\"BF.EXISTS\",\"f\",\"item\"]"), "%s", text);
    cr_assert_not_null(strstr(text, ",\"tester\"]"), "%s", text);
    cr_assert_not_null(strstr(client_ask(client, "SLOWLOG GET 1"), "DRYRUN"), "the newest comes first");
    expect(client, "[]", "SLOWLOG GET 0");
    expect(client, "-ERR count should be greater than or equal to -1", "SLOWLOG GET -2");
    expect(client, "-ERR count should be greater than or equal to -1", "SLOWLOG GET x");
    expect(client, "+OK", "SLOWLOG RESET");
    cr_assert_eq(client_number(client, "SLOWLOG LEN"), 0);

    /* The slow log keeps up to its maximum of entries, and RESET clears a long one, too. */
    enum { MANY = 1500 };
    expect(client, "+OK", "CONFIG SET slowlog-max-len %d slowlog-log-slower-than 0", MANY);
    for (int i = 0; i < 2 * MANY; i++)
        redisAppendCommand(client, "PING");
    client_skip(client, 2 * MANY);
    expect(client, "+OK", "CONFIG SET slowlog-log-slower-than -1");
    cr_assert_eq(client_number(client, "SLOWLOG LEN"), MANY);
    expect(client, "+OK", "SLOWLOG RESET");
    cr_assert_eq(client_number(client, "SLOWLOG LEN"), 0);
}

/* What went with the latency monitor and the doctors answers as an unknown subcommand; exporters get an empty list. */
DAEMON_TEST(the_daemon, admin, there_is_no_latency_monitor)
{
    const char *const args[] = {"--enable-debug-command", "yes", NULL};

    start_with(args);
    expect_reply(&resp2, "+OK", "DEBUG SLEEP 0.05");
    expect_like_both("\"DEBUG\",\"SLEEP\",\"0.05\"", "SLOWLOG GET");
    expect_both("[]", "LATENCY LATEST");
    expect_both("-ERR unknown subcommand 'DOCTOR'. Try LATENCY HELP.", "LATENCY DOCTOR");
    expect_both("-ERR unknown subcommand 'HISTORY'. Try LATENCY HELP.", "LATENCY HISTORY command");
    expect_both("-ERR unknown subcommand 'RESET'. Try LATENCY HELP.", "LATENCY RESET");
    expect_both("-ERR unknown subcommand 'DOCTOR'. Try MEMORY HELP.", "MEMORY DOCTOR");
    expect_both("-ERR unknown subcommand 'STATS'. Try MEMORY HELP.", "MEMORY STATS");
    expect_both("-ERR unknown subcommand 'PURGE'. Try MEMORY HELP.", "MEMORY PURGE");
    expect_both("-ERR unknown subcommand 'MALLOC-STATS'. Try MEMORY HELP.", "MEMORY MALLOC-STATS");
}

/* Calls are counted and timed on every path: alone, in a pipeline, deferred; a reset clears all of these. */
DAEMON_TEST(the_daemon, admin, every_call_is_timed)
{
    const char *text;

    start();
    cr_assert(
        wire_send_text(&resp2, "BF.ADD f x\r\nBF.EXISTS f x\r\nBF.EXISTS f y\r\nBF.EXISTS f z\r\nBF.MADD f a b\r\n"));
    for (int i = 0; i < 5; i++)
        wire_text(&resp2);
    expect_reply(&resp2, "+OK", "SAVE");
    expect_reply(&resp2, "-ERR wrong number of arguments for 'bf.add' command", "BF.ADD f");
    expect_reply(&resp2, "-ERR not found", "BF.INFO nosuch");
    expect_like(&resp2, "-ERR unknown command 'NOSUCH'", "NOSUCH");
    text = wire_ask(&resp3, "INFO commandstats");
    cr_assert_not_null(strstr(text, "cmdstat_bf.exists:calls=3,usec="), "%s", text);
    cr_assert_not_null(strstr(text, "cmdstat_bf.add:calls=1,usec="), "%s", text);
    cr_assert_not_null(strstr(text, "cmdstat_bf.info:calls=1,usec="), "%s", text);
    cr_assert_not_null(strstr(text, "cmdstat_save:calls=1,usec="), "%s", text);
    cr_assert_null(strstr(text, "cmdstat_save:calls=1,usec=0,"), "a save takes longer: %s", text);
    cr_assert_not_null(strstr(text, "rejected_calls=1"), "%s", text);
    cr_assert_not_null(strstr(text, "failed_calls=1"), "%s", text);
    cr_assert_not_null(strstr(wire_ask(&resp3, "INFO errorstats"), "errorstat_ERR:count=3"));
    cr_assert_not_null(strstr(wire_ask(&resp3, "INFO latencystats"), "latency_percentiles_usec_bf.exists:p50="));
    expect_like(&resp3, "{\"bf.exists\":{\"calls\"::3,\"histogram_usec\":{:", "LATENCY HISTOGRAM bf.exists nosuch");
    expect_like(&resp2, "[\"bf.exists\",[\"calls\",:3,\"histogram_usec\",[:", "LATENCY HISTOGRAM bf.exists nosuch");
    expect_like(&resp2, "\"latency|histogram\",[\"calls\",:2", "LATENCY HISTOGRAM latency");
    expect_like(&resp2, "latency_percentiles_usec_latency|histogram:p50=", "INFO latencystats");
}

/* CONFIG RESETSTAT resets all counts to zero, and counting continues from there. */
DAEMON_TEST(the_daemon, admin, a_reset_covers_everything)
{
    start();
    expect_reply(&resp2, ":1", "BF.ADD f x");
    expect_reply(&resp2, "-ERR not found", "BF.INFO nosuch");
    expect_reply(&resp2, "+OK", "CONFIG RESETSTAT");
    const char *text = wire_ask(&resp2, "INFO everything");
    cr_assert_null(strstr(text, "cmdstat_bf.add"), "%s", text);
    cr_assert_null(strstr(text, "errorstat_"), "%s", text);
    cr_assert_null(strstr(text, "latency_percentiles_usec_bf.add"), "%s", text);
    cr_assert_not_null(strstr(text, "bf_items_added:0"), "%s", text);
    cr_assert_not_null(strstr(text, "total_error_replies:0"), "%s", text);
    expect_each("[]", "{}", "LATENCY HISTOGRAM bf.add");
    expect_like(&resp2, "cmdstat_config|resetstat:calls=1,", "INFO commandstats"); /* it ends after the reset */
    expect_reply(&resp2, ":0", "BF.ADD f x");
    expect_like(&resp2, "[\"bf.add\",[\"calls\",:1,", "LATENCY HISTOGRAM bf.add");
    expect_like(&resp2, "cmdstat_bf.add:calls=1,", "INFO commandstats");
}

/* Settings of the measurement: ranges as in Redis. */
DAEMON_TEST(the_daemon, admin, measuring_can_be_set)
{
    start();
    expect_both(
        "-ERR CONFIG SET failed (possibly related to argument 'slowlog-log-slower-than') - argument must be between "
        "-1 and 9223372036854775 inclusive",
        "CONFIG SET slowlog-log-slower-than -2");
    redisContext *client = client_open(the_daemon.port);
    expect(client, ":1", "BF.ADD f x");
    const char *text = client_ask(client, "INFO latencystats");
    cr_assert_not_null(strstr(text, "latency_percentiles_usec_bf.add:p50="), "%s", text);
    cr_assert_not_null(strstr(text, ",p99.9="), "%s", text);
    expect(client, "+OK", "CONFIG SET latency-tracking no");
    expect(client, ":1", "BF.CARD f");
    text = client_ask(client, "LATENCY HISTOGRAM bf.card");
    cr_assert_str_eq(text, "[]");
}

/* Commands of Redis that are missing here are unknown, with any arguments. */
DAEMON_TEST(the_daemon, admin, what_is_not_there_is_unknown)
{
    static const char *const unknown[] = {"EVAL x 0",     "EVALSHA x 0", "SCRIPT LOAD x", "FUNCTION LIST",
                                          "FCALL x 0",    "SET a b",     "GET a",         "LCS a b",
                                          "TOPK.ADD a b", "SYNC",        "PSYNC ? -1",    "LOLWUT"};

    start();
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
        expect_like_both("-ERR unknown command '", unknown[i]);
    expect_both("+PONG", "PING");
}

/* As redis-server 7.0 answers them. */
DAEMON_TEST(the_daemon, admin, odd_numbers)
{
    start();
    redisContext *client = client_open(the_daemon.port);
    expect(client, "[\"0\",[]]", "SCAN 9223372036854775808");
    expect(client, "[\"0\",[]]", "SCAN 18446744073709551615");
    expect(client, "-ERR invalid cursor", "SCAN 18446744073709551616");
    expect(client, "-ERR invalid cursor", "SCAN 1x");
    expect(client, "-ERR unknown subcommand or wrong number of arguments for 'get'. Try SLOWLOG HELP.",
           "SLOWLOG get 1 2");
    expect(client, "\"\"", "CLIENT LIST ID 0");
    expect(client, "\"\"", "CLIENT LIST ID -1 999999");
    expect(client, "-ERR Invalid client ID", "CLIENT LIST ID 1 x");
}

/* HELP of each container is an array of lines that ends with the one about HELP. */
DAEMON_TEST(the_daemon, admin, each_container_helps)
{
    static const char *const containers[] = {"ACL",     "CLIENT", "COMMAND", "CONFIG",
                                             "LATENCY", "MEMORY", "MODULE",  "SLOWLOG"};
    char command[64];

    start();
    for (size_t i = 0; i < sizeof(containers) / sizeof(containers[0]); i++) {
        snprintf(command, sizeof(command), "%s HELP", containers[i]);
        expect_like_both("+HELP,+", command);
    }
    expect_both("-ERR wrong number of arguments for 'slowlog' command", "SLOWLOG");
    expect_both("-ERR unknown subcommand 'FOO'. Try LATENCY HELP.", "LATENCY FOO");
}

/* ---- CONFIG REWRITE ---- */

/* Changed settings are in the file afterwards, comments stay, and a start with the file has the settings. */
DAEMON_TEST(the_daemon, admin, config_rewrite_survives_a_restart)
{
    char dir[] = "/tmp/bloomery-rewrite-XXXXXX", path[64], link_path[64];

    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/b.conf", dir);
    snprintf(link_path, sizeof(link_path), "%s/link.conf", dir);
    file_write_text(path, "# mine\nmaxclients 100\n");
    cr_assert_eq(symlink("b.conf", link_path), 0);

    start();
    expect_both("-ERR The server is running without a config file", "CONFIG REWRITE");
    daemon_deinit(&the_daemon);

    snprintf(the_daemon.file, sizeof(the_daemon.file), "%s", link_path);
    daemon_start(&the_daemon, NULL);
    wire_open(&resp2, the_daemon.port);
    expect_reply(&resp2, "+OK", "CONFIG SET maxclients 200 timeout 33");
    expect_reply(&resp2, "+OK", "CONFIG REWRITE");
    const char *text = file_text(path);
    cr_assert_eq(strncmp(text, "# mine\nmaxclients 200\n", 22), 0, "%s", text);
    cr_assert_not_null(strstr(text, "# Added by CONFIG REWRITE\n"), "%s", text);
    cr_assert_not_null(strstr(text, "\ntimeout 33\n"), "%s", text);
    struct stat st;
    cr_assert(lstat(link_path, &st) == 0 && S_ISLNK(st.st_mode));

    wire_close(&resp2);
    daemon_stop(&the_daemon);
    daemon_restart(&the_daemon);
    wire_open(&resp2, the_daemon.port);
    expect_reply(&resp2, "[\"timeout\",\"33\",\"maxclients\",\"200\"]", "CONFIG GET timeout maxclients");

    file_write_text(path, "nosuch 1\n");
    expect_like(&resp2, "-ERR Rewriting config file: ", "CONFIG REWRITE");
    cr_assert_str_eq(file_text(path), "nosuch 1\n");
    unlink(path);
    expect_like(&resp2, "No such file or directory", "CONFIG REWRITE");
    wire_close(&resp2);
    the_daemon.file[0] = '\0';
    unlink(link_path);
    rmdir(dir);
}
