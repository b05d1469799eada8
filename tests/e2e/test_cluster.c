/* cluster-emulation: the requests of cluster clients, answered as by a Redis cluster of one node. Sessions of these
 * clients are in tests/clients. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "daemon.h"

DAEMON_SUITE(the_daemon, cluster, "--cluster-emulation", "yes", "--threads", "2");

static char id[64];

static void learn_id(redisContext *client)
{
    cr_assert_eq(sscanf(client_ask(client, "CLUSTER MYID"), "\"%40[0-9a-f]\"", id), 1);
    cr_assert_eq(strlen(id), 40);
}

static void expect_slots(redisContext *client, const char *endpoint, int port, const char *more)
{
    char expected[512];
    snprintf(expected, sizeof(expected), "[[:0,:16383,[%s,:%d,\"%s\",[%s]]]]", endpoint, port, id, more);
    expect(client, expected, "CLUSTER SLOTS");
}

CLIENT_TEST(the_daemon, cluster, the_node_is_where_the_client_has_found_it)
{
    char expected[512];
    learn_id(client);
    expect_slots(client, "\"127.0.0.1\"", the_daemon.port, "");
    snprintf(expected, sizeof(expected), "\"%s 127.0.0.1:%d@%d myself,master - 0 0 0 connected 0-16383\\x0a\"", id,
             the_daemon.port, the_daemon.port + 10000);
    expect(client, expected, "CLUSTER NODES");
    snprintf(expected, sizeof(expected),
             "[[\"slots\",[:0,:16383],\"nodes\",[[\"id\",\"%s\",\"port\",:%d,\"ip\",\"127.0.0.1\",\"endpoint\",\"127.0."
             "0.1\","
             "\"role\",\"master\",\"replication-offset\",:0,\"health\",\"online\"]]]]",
             id, the_daemon.port);
    expect(client, expected, "CLUSTER SHARDS");
}

/* On machines with IPv6. */
DAEMON_TEST(the_daemon, cluster, a_node_at_an_ipv6_address_says_so)
{
    daemon_stop(&the_daemon);
    cr_assert(
        daemon_try(&the_daemon, (const char *const[]){"--cluster-emulation", "yes", "--bind", "127.0.0.1 -::1", NULL}));
    redisContext *client = redisConnect("::1", the_daemon.port);
    if (client && !client->err) {
        learn_id(client);
        expect_slots(client, "\"::1\"", the_daemon.port, "");
        char node[64];
        snprintf(node, sizeof(node), " ::1:%d@%d myself", the_daemon.port, the_daemon.port + 10000);
        cr_assert_not_null(strstr(client_ask(client, "CLUSTER NODES"), node));
    }
}

CLIENT_TEST(the_daemon, cluster, the_settings_say_where_it_is)
{
    learn_id(client);
    expect(client, "+OK", "CONFIG SET cluster-announce-ip 192.0.2.7 cluster-announce-port 7000");
    expect_slots(client, "\"192.0.2.7\"", 7000, "");
    expect(client, "+OK", "CONFIG SET cluster-announce-hostname filters.example.org");
    expect_slots(client, "\"192.0.2.7\"", 7000, "\"hostname\",\"filters.example.org\"");
    expect_has(client, "192.0.2.7:7000@17000,filters.example.org myself", "CLUSTER NODES");
    expect(client, "+OK", "CONFIG SET cluster-preferred-endpoint-type hostname");
    expect_slots(client, "\"filters.example.org\"", 7000, "\"ip\",\"192.0.2.7\"");
    expect(client, "+OK", "CONFIG SET cluster-preferred-endpoint-type unknown-endpoint");
    expect_slots(client, "nil", 7000, "\"ip\",\"192.0.2.7\",\"hostname\",\"filters.example.org\"");
    cr_assert_eq(client_ask(client, "CONFIG SET cluster-announce-ip %s", "192.0.2.7 x")[0], '-');
    cr_assert_eq(client_ask(client, "CONFIG SET cluster-announce-hostname %s", "a,b")[0], '-');
}

CLIENT_TEST(the_daemon, cluster, slots_are_those_of_redis)
{
    expect(client, ":12739", "CLUSTER KEYSLOT 123456789");
    expect(client, ":12182", "CLUSTER KEYSLOT foo");
    expect(client, ":12182", "CLUSTER KEYSLOT a{foo}b{c}");
    expect(client, ":0", "CLUSTER KEYSLOT %b", "", (size_t)0);
    cr_assert_neq(client_number(client, "CLUSTER KEYSLOT {}foo"), 12182);
    expect(client, ":1", "BF.ADD {foo}1 x");
    expect(client, ":1", "BF.ADD elsewhere x");
    expect(client, ":2", "DEL {foo}1 elsewhere"); /* of two slots */
}

CLIENT_TEST(the_daemon, cluster, there_is_database_0_only)
{
    const char *const alone[] = {"--cluster-emulation", "no", NULL}, *const yes[] = {"--cluster-emulation", "yes",
                                                                                     NULL};
    expect(client, "+OK", "SELECT 0");
    expect(client, "-ERR SELECT is not allowed in cluster mode", "SELECT 1");
    expect(client, "-ERR MOVE is not allowed in cluster mode", "MOVE f 1");
    expect(client, "-ERR SWAPDB is not allowed in cluster mode", "SWAPDB 0 1");
    expect(client, "-ERR Copying to another database is not allowed in cluster mode", "COPY f f DB 1");
    expect_has(client, "cluster_enabled:1", "INFO cluster");
    expect_has(client, "redis_mode:cluster", "INFO server");
    expect_has(client, "\"mode\",\"cluster\"", "HELLO");
    expect_has(client, "cluster_state:ok", "CLUSTER INFO");
    expect(client, "+OK", "READONLY");
    expect(client, "+OK", "ASKING");
    expect(client, "[]", "CLUSTER LINKS");
    expect(client, "-ERR Unknown node x", "CLUSTER REPLICAS x");
    client_stop(client, &the_daemon);
    cr_assert(daemon_try(&the_daemon, alone));
    client = client_open(the_daemon.port);
    expect(client, "-ERR This instance has cluster support disabled", "CLUSTER SLOTS");
    expect(client, "+OK", "SELECT 1");
    expect(client, ":1", "BF.ADD f x");
    client_stop(client, &the_daemon);
    cr_assert_not(daemon_try(&the_daemon, yes));
    cr_assert_not_null(strstr(daemon_output(&the_daemon), "has filters in database 1, but cluster-emulation"));
}
