/* Connections: commands on the connection itself, pipelines, both versions of the protocol, redis-cli, passwords,
 * the end. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <ifaddrs.h>
#include <linux/capability.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "program.h"
#include "wire.h"

DAEMON_SUITE(the_daemon, connection, NULL);

static void ask(struct wire *wire, const char *expected, const char *command)
{
    const char *reply = wire_ask(wire, command);

    cr_assert_str_eq(reply, expected, "%s: '%s' instead of '%s'", command, reply, expected);
}

/* Replies come in the order of the commands, in pipelines of any size. */
CLIENT_TEST(the_daemon, connection, a_pipeline_is_answered_in_order)
{
    enum { COMMANDS = 5000 };

    for (int i = 0; i < COMMANDS; i++) {
        if (i % 3 == 0)
            cr_assert_eq(redisAppendCommand(client, "ECHO %d", i), REDIS_OK);
        else
            cr_assert_eq(redisAppendCommand(client, "BF.ADD f item:%d", i / 3), REDIS_OK);
    }
    for (int i = 0; i < COMMANDS; i++) {
        redisReply *reply;
        char number[16];

        cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK, "%s", client->errstr);
        snprintf(number, sizeof(number), "%d", i);
        if (i % 3 == 0) {
            cr_assert_eq(reply->type, REDIS_REPLY_STRING);
            cr_assert_str_eq(reply->str, number);
        } else {
            cr_assert_eq(reply->type, REDIS_REPLY_INTEGER, "%s", reply->str ? reply->str : "");
            cr_assert(i % 3 == 1 || reply->integer == 0, "item %d was new twice", i / 3);
        }
        freeReplyObject(reply);
    }
}

/* Input that violates the protocol gets one error and the end; other clients notice nothing. */
DAEMON_TEST(the_daemon, connection, malformed_input_ends_only_its_connection)
{
    struct wire good, bad;

    wire_open(&good, the_daemon.port);
    ask(&good, "+PONG", "PING");
    wire_open(&bad, the_daemon.port);
    cr_assert(wire_send_text(&bad, "PING\r\n*1\r\n:4\r\nPING\r\n"));
    cr_assert_str_eq(wire_text(&bad), "+PONG");
    cr_assert_str_eq(wire_text(&bad), "-ERR Protocol error: expected '$', got ':'");
    cr_assert(wire_closes(&bad, WIRE_PATIENCE_MS));
    wire_close(&bad);
    ask(&good, "+PONG", "PING");
}

/* Names and ids belong to their connection. */
DAEMON_TEST(the_daemon, connection, clients_have_names_and_ids)
{
    redisContext *one = client_open(the_daemon.port), *two;
    long long first = client_number(one, "CLIENT ID"); /* answered: the next connection is later */

    two = client_open(the_daemon.port);
    cr_assert_gt(client_number(two, "CLIENT ID"), first);
    expect(one, "nil", "CLIENT GETNAME");
    expect(one, "+OK", "CLIENT SETNAME crawler");
    expect(one, "\"crawler\"", "CLIENT GETNAME");
    expect(two, "nil", "CLIENT GETNAME");
    expect(one, "-ERR Client names cannot contain spaces, newlines or special characters.", "CLIENT SETNAME %s", "a b");
    char name[1026]; /* one byte too long */
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    expect(one, "-ERR Client names cannot be longer than 1024 bytes.", "CLIENT SETNAME %s", name);
    expect(one, "-ERR Client names cannot be longer than 1024 bytes.", "HELLO 2 SETNAME %s", name);
    expect(one, "-ERR LIB-VER cannot be longer than 1024 bytes.", "CLIENT SETINFO LIB-VER %s", name);
    expect(one, "+OK", "CLIENT SETNAME %s", name + 1);
    expect(one, "+OK", "CLIENT SETNAME crawler");
    expect(one, "+OK", "CLIENT SETINFO LIB-NAME test");
    expect_has(two, " name=crawler ", "CLIENT LIST");
}

/* As in Redis. */
CLIENT_TEST(the_daemon, connection, a_select_that_is_refused_changes_nothing)
{
    static const char *const selects[] = {"SELECT 16", "SELECT -1", "SELECT x"};
    expect(client, "+OK", "SELECT 5");
    expect(client, ":1", "BF.ADD f a");
    for (size_t s = 0; s < sizeof(selects) / sizeof(selects[0]); s++) {
        cr_assert_eq(client_ask(client, selects[s])[0], '-');
        expect(client, ":1", "BF.EXISTS f a");
    }
    expect(client, "+RESET", "RESET");
    expect(client, ":0", "EXISTS f");
}

/* Libraries compare the beginning. */
CLIENT_TEST(the_daemon, connection, unknown_commands_are_named)
{
    expect(client, "-ERR unknown command 'GET', with args beginning with: 'x' ", "GET x");
    expect(client, "-ERR unknown command 'BF.EXIST', with args beginning with: 'f' 'x' ", "BF.EXIST f x");
    expect(client,
           "-ERR unknown command 'BF.DEL', with args beginning with: 'f' 'x' (items of a Bloom filter cannot be "
           "deleted; CF.DEL deletes an item of a cuckoo filter, DEL deletes a filter)",
           "BF.DEL f x");
    expect(client,
           "-ERR unknown command 'BF.HELP', with args beginning with: (ACL CAT bloom lists the commands, COMMAND DOCS "
           "bf.add explains one)",
           "BF.HELP");
    expect(client, "-ERR unknown command 'BF.', with args beginning with: ", "BF.");
}

/* More connections than threads or batches: all are served, and all are gone afterwards. */
DAEMON_TEST(the_daemon, connection, hundreds_of_connections_are_served)
{
    enum { CLIENTS = 300 };
    struct wire wires[CLIENTS];
    redisContext *client;

    for (int i = 0; i < CLIENTS; i++)
        wire_open(&wires[i], the_daemon.port);
    for (int i = 0; i < CLIENTS; i++)
        cr_assert(wire_send_text(&wires[i], "BF.ADD shared item\r\nPING\r\n"));
    for (int i = 0, won = 0; i < CLIENTS; i++) {
        won += strcmp(wire_text(&wires[i]), ":1") == 0;
        cr_assert_str_eq(wire_text(&wires[i]), "+PONG");
        cr_assert(i < CLIENTS - 1 || won == 1, "%d clients were the first to add one item", won);
    }
    for (int i = 0; i < CLIENTS; i++)
        wire_close(&wires[i]);
    client = client_open(the_daemon.port);
    for (int i = 0; strstr(client_ask(client, "INFO clients"), "connected_clients:1\\x0d") == NULL; i++)
        cr_assert_lt(i, 100000, "the clients that left are still counted");
}

/* Runs redis-cli against the daemon and returns its output; valid until the next call. */
static const char *redis_cli(const char *arguments, const char *input)
{
    static char printed[4096];
    int status =
        program_run(printed, sizeof(printed), "printf '%s' | redis-cli -p %d %s", input, the_daemon.port, arguments);

    cr_assert_eq(status, 0, "%s: %s", arguments, printed);
    return printed;
}

/* The most common client. */
DAEMON_TEST(the_daemon, connection, redis_cli_works)
{
    cr_assert_str_eq(redis_cli("PING", ""), "PONG\n");
    cr_assert_str_eq(redis_cli("BF.ADD f x", ""), "1\n");
    cr_assert_str_eq(redis_cli("-3 BF.EXISTS f x", ""), "(true)\n");
    cr_assert_str_eq(redis_cli("", "BF.MADD f x y\\nBF.CARD f\\n"), "0\n1\n2\n");
    cr_assert_not_null(strstr(redis_cli("--pipe", "BF.ADD f y\\r\\nBF.ADD f z\\r\\n"), "errors: 0, replies: 2"));
    cr_assert_str_eq(redis_cli("BF.EXISTS f z", ""), "1\n");
}

/* With a password only AUTH and similar commands are answered before it. */
DAEMON_TEST(the_daemon, connection, a_password_is_required_of_everyone)
{
    const char *const args[] = {"--requirepass", "sesame", NULL};
    redisContext *client;

    daemon_stop(&the_daemon);
    client = client_start(&the_daemon, args);
    expect(client, "-NOAUTH Authentication required.", "PING");
    expect(client, "-NOAUTH Authentication required.", "BF.ADD f x");
    expect(client, "-WRONGPASS invalid username-password pair or user is disabled.", "AUTH wrong");
    expect(client, "-NOAUTH Authentication required.", "BF.ADD f x");
    expect(client, "+OK", "AUTH sesame");
    expect(client, ":1", "BF.ADD f x");
    redisFree(client);
    client = client_open(the_daemon.port);
    expect(client, "+OK", "AUTH default sesame");
    expect(client, ":1", "BF.EXISTS f x");
    expect_has(client, "acl_access_denied_auth:1\\x0d", "INFO stats");
    redisFree(client);
    cr_assert_null(strstr(daemon_output(&the_daemon), "sesame"), "the password is in the log");
}

/* Sends a command, first its name, of as many words as it needs, on a connection that has not given the password. */
static const char *ask_unknown(struct wire *wire, const char *full_name, long long arity)
{
    char name[64], *bar;
    struct word words[16];
    size_t n = 1;

    snprintf(name, sizeof(name), "%s", full_name);
    words[0] = (struct word){name, strlen(name)};
    if ((bar = strchr(name, '|'))) {
        words[0].len = (size_t)(bar - name);
        words[n++] = (struct word){bar + 1, strlen(bar + 1)};
    }
    for (; n < (size_t)llabs(arity); n++)
        words[n] = (struct word){"1", 1};
    cr_assert(wire_send_command(wire, words, n));
    return wire_text(wire);
}

static unsigned refuse_rows(struct wire *wire, const redisReply *rows)
{
    static const char *const open[] = {"auth", "hello", "quit", "reset"};
    unsigned refused = 0;

    for (size_t i = 0; i < rows->elements; i++) {
        const redisReply *row = rows->element[i], *subcommands = row->element[9];
        bool is_open = false;
        for (size_t k = 0; k < 4; k++)
            is_open |= strcmp(row->element[0]->str, open[k]) == 0;
        refused += refuse_rows(wire, subcommands);
        if (is_open || subcommands->elements)
            continue;
        const char *reply = ask_unknown(wire, row->element[0]->str, row->element[1]->integer);
        cr_assert(reply[0] == '-' && strstr(reply, "NOAUTH Authentication required."), "%s: %s", row->element[0]->str,
                  reply);
        refused++;
    }
    return refused;
}

/* Every command and every subcommand. */
DAEMON_TEST(the_daemon, connection, no_command_is_run_without_the_password)
{
    const char *const args[] = {"--requirepass", "sesame", "--enable-debug-command", "yes", NULL};
    struct wire wire;

    daemon_stop(&the_daemon);
    redisContext *client = client_start(&the_daemon, args);
    expect(client, "+OK", "AUTH sesame");
    redisReply *rows = redisCommand(client, "COMMAND");
    cr_assert(rows && rows->type == REDIS_REPLY_ARRAY);
    wire_open(&wire, the_daemon.port);
    cr_assert_gt(refuse_rows(&wire, rows), 100);
    freeReplyObject(rows);
}

/* The memory for an incomplete command is bounded; other clients notice nothing of a command beyond the bound. */
CLIENT_TEST(the_daemon, connection, the_query_buffer_is_bounded)
{
    enum { MB = 1024 * 1024 };
    char *item = malloc(2 * MB);
    struct wire wire;

    memset(item, 'x', 2 * MB);
    expect(client, "+OK", "CONFIG SET client-query-buffer-limit 1mb");
    wire_open(&wire, the_daemon.port);
    const struct word words[] = {{"BF.ADD", 6}, {"f", 1}, {item, 2 * MB}};
    (void)wire_send_command(&wire, words, 3); /* it may be closed before all is sent */
    cr_assert(wire_closes(&wire, WIRE_PATIENCE_MS));
    wire_close(&wire);
    daemon_wait_output(&the_daemon, "its command exceeded client-query-buffer-limit");
    expect_has(client, "client_query_buffer_limit_disconnections:1\\x0d", "INFO stats");
    expect(client, ":0", "EXISTS f");
    expect(client, ":1", "BF.ADD f %b", item, (size_t)MB / 2);
    expect(client, ":1", "BF.EXISTS f %b", item, (size_t)MB / 2);
    free(item);
}

/* A non-loopback address of this machine; false if it has none. */
static bool own_address(char text_out[INET_ADDRSTRLEN])
{
    struct ifaddrs *all = NULL;
    bool found = false;

    cr_assert_eq(getifaddrs(&all), 0);
    for (const struct ifaddrs *at = all; at && !found; at = at->ifa_next) {
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || (at->ifa_flags & IFF_LOOPBACK) ||
            !(at->ifa_flags & IFF_UP))
            continue;
        found = inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr, text_out,
                          INET_ADDRSTRLEN) != NULL;
    }
    freeifaddrs(all);
    return found;
}

/* The reply to a client that connects to this address, and so from it. */
static const char *ask_from(const char *address, const char *command)
{
    static char text[512];
    redisContext *client = redisConnect(address, the_daemon.port);

    cr_assert(client && client->err == 0, "%s: %s", address, client ? client->errstr : "no memory");
    snprintf(text, sizeof(text), "%s", client_ask(client, command));
    redisFree(client);
    return text;
}

/* Without a password only clients of this machine are served, on whatever address the daemon listens. */
DAEMON_TEST(the_daemon, connection, protected_mode_turns_others_away)
{
    const char *const args[] = {"--bind", "*", NULL};
    char address[INET_ADDRSTRLEN];

    if (!own_address(address))
        cr_skip_test("this machine has no address but the loopback's");
    daemon_stop(&the_daemon);
    redisContext *local = client_start(&the_daemon, args);
    expect(local, ":1", "BF.ADD f x");
    cr_assert(strncmp(ask_from(address, "BF.EXISTS f x"), "-DENIED ", 8) == 0, "%s",
              ask_from(address, "BF.EXISTS f x"));
    expect(local, "+OK", "CONFIG SET requirepass sesame");
    cr_assert_str_eq(ask_from(address, "BF.EXISTS f x"), "-NOAUTH Authentication required.");
    expect(local, "+OK", "CONFIG SET requirepass %s", "");
    cr_assert(strncmp(ask_from(address, "BF.EXISTS f x"), "-DENIED ", 8) == 0);
    expect(local, "+OK", "CONFIG SET protected-mode no");
    cr_assert_str_eq(ask_from(address, "BF.EXISTS f x"), ":1");
}

/* A client that has reset its connection before the daemon accepts it was not refused: there was nobody to refuse. */
DAEMON_TEST(the_daemon, connection, a_client_that_has_gone_counts_nowhere)
{
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    daemon_stop(&the_daemon);
    redisContext *client = client_start(&the_daemon, (const char *const[]){"--threads", "1", NULL});
    to.sin_port = htons((uint16_t)the_daemon.port);
    kill(the_daemon.pid, SIGSTOP);
    for (int i = 0; i < 5; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
        cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
        close(fd);
    }
    kill(the_daemon.pid, SIGCONT);
    redisContext *later = client_open(the_daemon.port); /* accepted after those */
    expect(later, "+PONG", "PING");
    cr_expect(strstr(client_ask(client, "INFO stats"), "rejected_connections:0"));
}

/* The timer of the daemon's end of the connection in /proc/net/tcp: 0 none, 2 keepalive. */
static int timer_of(int daemon_port, int client_port)
{
    FILE *file = fopen("/proc/net/tcp", "r");
    char line[512];
    int timer = -1;

    cr_assert_not_null(file);
    while (timer < 0 && fgets(line, sizeof(line), file)) {
        unsigned local, remote;
        int found;
        if (sscanf(line, " %*d: %*x:%x %*x:%x %*x %*x:%*x %d:", &local, &remote, &found) == 3 &&
            (int)local == daemon_port && (int)remote == client_port)
            timer = found;
    }
    fclose(file);
    return timer;
}

/* The kernel probes whether a silent peer is alive, unless this is switched off. */
CLIENT_TEST(the_daemon, connection, silent_peers_are_probed)
{
    struct sockaddr_in own;
    socklen_t len = sizeof(own);

    for (int probed = 1; probed >= 0; probed--) {
        redisContext *other = client_open(the_daemon.port);
        expect(other, "+PONG", "PING"); /* by then its options are set */
        cr_assert_eq(getsockname(other->fd, (struct sockaddr *)&own, &len), 0);
        int timer = -1;
        for (int i = 0; i < 6000 && timer != 2 * probed; i++) { /* the timer of an unacknowledged segment comes first */
            usleep(10000);
            timer = timer_of(the_daemon.port, ntohs(own.sin_port));
        }
        cr_assert_eq(timer, 2 * probed);
        redisFree(other);
        expect(client, "+OK", "CONFIG SET tcp-keepalive 0");
    }
}

/* SHUTDOWN ends the process cleanly. */
CLIENT_TEST(the_daemon, connection, shutdown_ends_the_daemon)
{
    expect(client, "-ERR No shutdown in progress.", "SHUTDOWN ABORT");
    expect(client, "-ERR syntax error", "SHUTDOWN SAVE NOSAVE");
    expect(client, "-ERR syntax error", "SHUTDOWN NOW ABORT");
    expect(client, "(Server closed the connection)", "SHUTDOWN NOSAVE");
    redisFree(client);
    daemon_wait(&the_daemon);
}

/* An idle client beyond the time-out is disconnected. */
DAEMON_TEST(the_daemon, connection, idle_clients_time_out)
{

    struct wire wire = wire_to(the_daemon.port);
    ask(&wire, "+OK", "CONFIG SET timeout 1");
    cr_assert(wire_closes(&wire, WIRE_PATIENCE_MS));
}

/* The connection that the harness used to see that the daemon was ready may still be counted for a moment. */
static void open_client(struct wire *wire)
{
    wire_open(wire, the_daemon.port);
    for (int i = 0; strcmp(wire_ask(wire, "PING"), "+PONG") != 0; i++) {
        cr_assert_lt(i, 6000);
        usleep(10000);
        wire_close(wire);
        wire_open(wire, the_daemon.port);
    }
}

/* As many clients as descriptors allow: one more gets an error, too, and clients never take descriptors that saves
 * and the log need. */
DAEMON_TEST(the_daemon, connection, clients_leave_descriptors_for_the_rest)
{
    enum { LIMIT = 150 };
    const char *const args[] = {"--threads", "2", NULL};
    struct rlimit before, few = {LIMIT, LIMIT};
    static struct wire wires[LIMIT];
    struct wire more;
    const char *at;

    daemon_stop(&the_daemon);
    (void)prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE); /* with it root could raise the limit again */
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    few.rlim_max = before.rlim_max < LIMIT ? before.rlim_max : LIMIT;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    daemon_start(&the_daemon, args);
    wire_open(&wires[0], the_daemon.port);
    at = strstr(wire_ask(&wires[0], "INFO clients"), "maxclients:");
    cr_assert_not_null(at);
    int clients = atoi(at + strlen("maxclients:"));
    if (clients == 10000) { /* it may raise its limit, as root may */
        wire_close(&wires[0]);
        return;
    }
    cr_assert(clients > 10 && clients < LIMIT, "%d", clients);
    cr_assert_not_null(
        strstr(daemon_output(&the_daemon), "maxclients is 10000, but the limit of open files (ulimit -n) allows only"));
    for (int i = 1; i < clients; i++)
        open_client(&wires[i]);
    wire_open(&more, the_daemon.port);
    cr_assert_str_eq(wire_text(&more), "-ERR max number of clients reached");
    wire_close(&more);
    cr_assert_eq(strncmp(wire_ask(&wires[0], "CONFIG SET maxclients 5000"), "-ERR CONFIG SET failed", 22), 0);
    ask(&wires[0], "+OK", "CONFIG SET maxclients 20");
    ask(&wires[0], "+OK", "SAVE");
    for (int i = 0; i < clients; i++)
        wire_close(&wires[i]);
}

/* A client above the limit gets an error. */
DAEMON_TEST(the_daemon, connection, maxclients_is_kept)
{
    const char *const args[] = {"--maxclients", "2", NULL};
    struct wire one, two, three;

    daemon_stop(&the_daemon);
    daemon_start(&the_daemon, args);
    open_client(&one);
    open_client(&two);
    wire_open(&three, the_daemon.port);
    cr_assert_str_eq(wire_text(&three), "-ERR max number of clients reached");
    cr_assert(wire_closes(&three, WIRE_PATIENCE_MS));
    ask(&one, "+PONG", "PING");
    ask(&two, "+PONG", "PING");
}
