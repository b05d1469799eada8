/* CONFIG SET port, bind and tls-port: the new addresses are open before the old ones close, and an error changes
 * nothing. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "ports.h"
#include "tmpdir.h"
#include "wire.h"
#include "wire_tls.h"

DAEMON_SUITE_IDLE(the_daemon, listen);

#define START(...) daemon_start(&the_daemon, (const char *const[]){__VA_ARGS__, NULL})
#define FAILED(of) "-ERR CONFIG SET failed (possibly related to argument '" of "') - "

static bool is_open(const char *address, int port)
{
    redisContext *client = redisConnect(address, port);
    bool open = client && !client->err && strcmp(client_ask(client, "PING"), "+PONG") == 0;
    if (client)
        redisFree(client);
    return open;
}

/* A foreign socket on this port that was shared at first, as another daemon's may have been. */
static int occupy(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)); /* connections of earlier tests may be ending */
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(listen(fd, 1), 0);
    on = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    return fd;
}

static bool serves_tls(int port)
{
    char ca[300];
    struct wire_tls_options options = {.ca = ca};
    struct wire wire;
    const char *why = NULL;
    snprintf(ca, sizeof(ca), "%s/ca.crt", the_daemon.dir);
    if (!wire_open_tls(&wire, port, &options, &why))
        return false;
    bool served = wire_send_text(&wire, "PING\r\n") && strcmp(wire_text(&wire), "+PONG") == 0;
    wire_close(&wire);
    return served;
}

DAEMON_TEST(the_daemon, listen, another_port_is_open_before_the_old_one_closes)
{
    START("--cluster-emulation", "yes");
    int first = the_daemon.port, second = port_claim();
    char text[100];
    redisContext *client = client_open(first);
    expect(client, "+OK", "CONFIG SET port %d", second);
    cr_assert(is_open("127.0.0.1", second));
    cr_assert_not(is_open("127.0.0.1", first));
    expect(client, "+PONG", "PING");
    cr_assert_eq(client_info(client, "server", "tcp_port"), second);
    snprintf(text, sizeof(text), "[\"port\",\"%d\"]", second);
    expect(client, text, "CONFIG GET port");
    snprintf(text, sizeof(text), "127.0.0.1:%d@", second);
    cr_assert_not_null(strstr(client_ask(client, "CLUSTER NODES"), text));
    snprintf(text, sizeof(text), "listening on 127.0.0.1:%d", second);
    daemon_wait_output(&the_daemon, text);
    expect(client, "+OK", "CONFIG SET port %d", first);
    cr_assert(is_open("127.0.0.1", first));
}

/* Connections established before the port closes are clients, even if not accepted yet. */
DAEMON_TEST(the_daemon, listen, a_port_that_closes_loses_no_connection)
{
    START("--threads", "2");
    int ports[2] = {the_daemon.port, port_claim()};
    redisContext *client = client_open(the_daemon.port), *others[200];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 200; i++)
            others[i] = redisConnect("127.0.0.1", ports[round % 2]);
        expect(client, "+OK", "CONFIG SET port %d", ports[(round + 1) % 2]);
        for (int i = 0; i < 200; i++) {
            expect(others[i], "+PONG", "PING");
            redisFree(others[i]);
        }
    }
}

DAEMON_TEST(the_daemon, listen, an_address_that_cannot_be_had_changes_nothing)
{
    START("--timeout", "0");
    char text[200], before[200];
    int taken = port_claim(), fd = occupy(taken);
    redisContext *client = client_open(the_daemon.port);
    snprintf(before, sizeof(before), "%s", client_ask(client, "CONFIG GET port bind timeout"));
    snprintf(text, sizeof(text), FAILED("port") "cannot listen on 127.0.0.1:%d: Address already in use", taken);
    expect(client, text, "CONFIG SET timeout 7 port %d", taken);
    snprintf(text, sizeof(text), FAILED("bind") "cannot listen on 192.0.2.1:%d: Cannot assign requested address",
             the_daemon.port);
    expect(client, text, "CONFIG SET bind %s", "127.0.0.1 192.0.2.1");
    snprintf(text, sizeof(text), FAILED("bind") "cannot listen on *:%d: Address already in use", the_daemon.port);
    expect(client, text, "CONFIG SET bind %s", "* 127.0.0.1");
    expect(client, "-ERR nothing to listen on: 'port' is 0 or 'bind' is empty, without 'tls-port' or 'unixsocket'",
           "CONFIG SET port 0");
    cr_assert_eq(client_ask(client, "CONFIG SET bind %s", "nowhere")[0], '-');
    cr_assert_str_eq(client_ask(client, "CONFIG GET port bind timeout"), before);
    cr_assert(is_open("127.0.0.1", the_daemon.port));
    cr_assert_not(is_open("127.0.0.2", the_daemon.port));
    close(fd);
}

DAEMON_TEST(the_daemon, listen, all_addresses_take_over_from_one_and_give_back)
{
    START("--timeout", "0");
    redisContext *client = client_open(the_daemon.port);
    expect(client, "+OK", "CONFIG SET bind %s protected-mode no", "* -::1");
    cr_assert(is_open("127.0.0.1", the_daemon.port) && is_open("127.0.0.2", the_daemon.port));
    expect(client, "+OK", "CONFIG SET bind %s", "127.0.0.2");
    cr_assert(is_open("127.0.0.2", the_daemon.port));
    cr_assert_not(is_open("127.0.0.1", the_daemon.port));
    expect(client, "+OK", "CONFIG SET bind %s", "127.0.0.1 127.0.0.2");
    cr_assert(is_open("127.0.0.1", the_daemon.port) && is_open("127.0.0.2", the_daemon.port));
}

DAEMON_TEST(the_daemon, listen, port_0_leaves_the_unix_socket)
{
    daemon_prepare(&the_daemon);
    struct tmp_path path = tmp_path(the_daemon.dir, "socket");
    START("--unixsocket", path.text);
    redisContext *client = client_open(the_daemon.port), *local = redisConnectUnix(path.text);
    expect(client, "+OK", "CONFIG SET port 0");
    cr_assert_not(is_open("127.0.0.1", the_daemon.port));
    expect(client, "+PONG", "PING");
    expect(local, "+PONG", "PING");
    cr_assert_eq(client_info(local, "server", "tcp_port"), 0);
    expect(local, "+OK", "CONFIG SET port %d", the_daemon.port);
    cr_assert(is_open("127.0.0.1", the_daemon.port));
}

DAEMON_TEST(the_daemon, listen, a_tls_port_comes_moves_and_goes)
{
    daemon_prepare(&the_daemon);
    tls_make_files(the_daemon.dir);
    START("--timeout", "0");
    int tls_port = port_claim();
    redisContext *client = client_open(the_daemon.port);
    cr_assert_eq(client_ask(client, "CONFIG SET tls-port %d", tls_port)[0], '-', "without a certificate");
    expect(client, "+OK", "CONFIG SET tls-port %d tls-cert-file %s tls-key-file %s tls-auth-clients no", tls_port,
           tmp_path(the_daemon.dir, "server.crt").text, tmp_path(the_daemon.dir, "server.key").text);
    cr_assert(serves_tls(tls_port) && is_open("127.0.0.1", the_daemon.port));
    expect_has(client, "tls_certificate_expires:", "INFO server");
    cr_assert_eq(client_ask(client, "CONFIG SET tls-port %d", the_daemon.port)[0], '-', "as the port");
    expect(client, "+OK", "CONFIG SET port %d tls-port %d", tls_port, the_daemon.port);
    cr_assert(serves_tls(the_daemon.port) && is_open("127.0.0.1", tls_port));
    expect(client, "+OK", "CONFIG SET port %d tls-port 0", the_daemon.port);
    cr_assert(!is_open("127.0.0.1", tls_port) && is_open("127.0.0.1", the_daemon.port));
}

DAEMON_TEST(the_daemon, listen, rewrite_keeps_the_port)
{
    daemon_prepare(&the_daemon);
    snprintf(the_daemon.file, sizeof(the_daemon.file), "%s/bloomery.conf", the_daemon.dir);
    file_write_text(the_daemon.file, "");
    START("--timeout", "0");
    int port = port_claim();
    char line[40];
    redisContext *client = client_open(the_daemon.port);
    expect(client, "+OK", "CONFIG SET port %d", port);
    expect(client, "+OK", "CONFIG REWRITE");
    redisFree(client);
    const char *text = file_text(the_daemon.file);
    snprintf(line, sizeof(line), "port %d\n", port);
    cr_assert_not_null(strstr(text, line), "%s", text);
}
