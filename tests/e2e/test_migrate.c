/* MIGRATE between two daemons, and to a deliberately slow target. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon_pair.h"
#include "wait.h"
#include "wire_tls.h"

DAEMON_PAIR(migrate);

PAIR_TEST(migrate, moves_a_filter_with_its_time_to_live)
{
    expect(from, "+OK", "BF.RESERVE f 0.001 1000");
    cr_assert_eq(client_for_items(from, "BF.MADD", "f", "i", 500), 500);
    expect(from, ":1", "EXPIRE f 1000");
    expect(from, "+OK", "MIGRATE 127.0.0.1 %d f 0 5000", target.port);
    expect(from, ":0", "EXISTS f");
    cr_assert_eq(client_for_items(to, "BF.MEXISTS", "f", "i", 500), 500);
    expect(to, ":500", "BF.CARD f");
    long long ttl = client_number(to, "TTL f");
    cr_assert(ttl > 800 && ttl <= 1000, "%lld", ttl);

    /* The deletion is an ordinary change: it survives. */
    from = client_after_kill(from, &source, NULL);
    expect(from, ":0", "EXISTS f");
}

PAIR_TEST(migrate, copy_and_replace)
{
    expect(from, ":1", "BF.ADD f here");
    expect(to, ":1", "BF.ADD f there");
    expect(from, "-ERR Target instance replied with error: BUSYKEY Target key name already exists.",
           "MIGRATE 127.0.0.1 %d f 0 5000 COPY", target.port);
    expect(from, ":1", "EXISTS f");
    expect(to, "[:0,:1]", "BF.MEXISTS f here there");
    expect(from, "+OK", "MIGRATE 127.0.0.1 %d f 0 5000 copy replace", target.port);
    expect(from, ":1", "EXISTS f");
    expect(to, "[:1,:0]", "BF.MEXISTS f here there");
    expect(from, "+OK", "MIGRATE 127.0.0.1 %d f 0 5000 REPLACE", target.port);
    expect(from, ":0", "EXISTS f");
}

/* As in Redis, for clients that find the node by the keys. */
PAIR_TEST(migrate, its_keys_are_told_wherever_they_are)
{
    expect(from, "[\"f\"]", "COMMAND GETKEYS MIGRATE h 1 f 0 10 AUTH KEYS");
    expect(from, "[\"f\",\"g\"]", "COMMAND GETKEYS MIGRATE h 1 %s 0 10 COPY AUTH2 KEYS KEYS KEYS f g", "");
    expect(from, "[[\"f\",[+RW,+access,+delete]],[\"g\",[+RW,+access,+delete]]]",
           "COMMAND GETKEYSANDFLAGS MIGRATE h 1 %s 0 10 KEYS f g", "");
    const char *row = client_ask(from, "COMMAND INFO MIGRATE");
    cr_expect_not_null(strstr(row, "+movablekeys"), "%s", row);
}

PAIR_TEST(migrate, several_keys)
{
    for (int i = 0; i < 20; i++)
        expect(from, ":1", "BF.ADD f%d a", i);
    expect(from, "+NOKEY", "MIGRATE 127.0.0.1 %d missing 0 5000", target.port);
    expect(from, "+NOKEY", "MIGRATE 127.0.0.1 1 %s 0 5000 KEYS missing other", "");
    expect(from, "+OK", "MIGRATE 127.0.0.1 %d %s 0 5000 KEYS f0 missing f1 f2", target.port, "");
    cr_assert_eq(client_number(from, "DBSIZE"), 17);
    cr_assert_eq(client_number(to, "DBSIZE"), 3);
    /* The second is refused: the first has moved, the second and the later ones stay. */
    expect(to, ":1", "BF.ADD f4 x");
    expect(from, "-ERR Target instance replied with error: BUSYKEY Target key name already exists.",
           "MIGRATE 127.0.0.1 %d %s 0 5000 KEYS f3 f4 f5", target.port, "");
    expect(from, "[:0,:1,:1]", "BF.MEXISTS f4 x a a");
    expect(from, ":0", "EXISTS f3");
    expect(from, ":2", "EXISTS f4 f5");
}

PAIR_TEST(migrate, errors_are_redis_s)
{
    expect(from, ":1", "BF.ADD f a");
    expect(from, "-IOERR error or timeout connecting to the client", "MIGRATE 127.0.0.1 1 f 0 500");
    expect(from, "-ERR Target instance replied with error: ERR DB index is out of range",
           "MIGRATE 127.0.0.1 %d f 77 500", target.port);
    expect(from, "-ERR syntax error", "MIGRATE 127.0.0.1 %d f 0 500 BOGUS", target.port);
    expect(from, "-ERR syntax error", "MIGRATE 127.0.0.1 %d f 0 500 AUTH", target.port);
    expect(from, "-ERR syntax error", "MIGRATE 127.0.0.1 %d f 0 500 AUTH2 user", target.port);
    expect(from, "-ERR value is not an integer or out of range", "MIGRATE 127.0.0.1 %d f x 500", target.port);
    expect(from, "-ERR value is not an integer or out of range", "MIGRATE 127.0.0.1 %d f 0 x", target.port);
    expect(from, "-ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
           "MIGRATE 127.0.0.1 %d f 0 500 KEYS f", target.port);
    expect(from, "-ERR wrong number of arguments for 'migrate' command", "MIGRATE 127.0.0.1 %d f 0", target.port);
    expect(from, ":1", "EXISTS f");
    expect(to, ":0", "DBSIZE");
}

PAIR_TEST(migrate, passwords)
{
    expect(from, ":1", "BF.ADD f a");
    expect(to, "+OK", "CONFIG SET requirepass secret");
    const char *reply = client_ask(from, "MIGRATE 127.0.0.1 %d f 0 5000", target.port);
    cr_assert(strstr(reply, "-ERR Target instance replied with error: NOAUTH"), "%s", reply);
    reply = client_ask(from, "MIGRATE 127.0.0.1 %d f 0 5000 AUTH wrong", target.port);
    cr_assert(strstr(reply, "-ERR Target instance replied with error: WRONGPASS"), "%s", reply);
    expect(from, "+OK", "MIGRATE 127.0.0.1 %d f 0 5000 COPY AUTH secret", target.port);
    expect(from, "+OK", "MIGRATE 127.0.0.1 %d f 0 5000 REPLACE AUTH2 default secret", target.port);
    expect(from, ":0", "EXISTS f");
}

/* ---- a slow target ---- */

static int listen_on(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(listen(fd, 4), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static void send_migrate(redisContext *client, const char *key, int port, int timeout_ms)
{
    redisAppendCommand(client, "MIGRATE 127.0.0.1 %d %s 0 %d", port, key, timeout_ms);
    for (int done = 0; !done;)
        cr_assert_eq(redisBufferWrite(client, &done), REDIS_OK);
}

/* Answers SELECT, and returns when RESTORE begins to arrive. */
static int take_until_restore(int listener)
{
    char data[4096];
    size_t len = 0;
    bool selected = false;
    int fd = accept(listener, NULL, NULL);
    cr_assert_geq(fd, 0);
    for (;;) {
        ssize_t n = recv(fd, data + len, sizeof(data) - len - 1, 0);
        cr_assert_gt(n, 0);
        len += (size_t)n;
        data[len] = '\0';
        if (!selected && strstr(data, "SELECT\r\n$1\r\n0\r\n")) {
            cr_assert_eq(send(fd, "+OK\r\n", 5, 0), 5);
            selected = true;
            len = 0;
        } else if (selected && memmem(data, len, "RESTORE\r\n", 9)) {
            return fd;
        }
    }
}

/* An add that is answered during the transfer is not lost: the filter stays. Transactions do not wait for the target
 * either. */
PAIR_TEST(migrate, an_add_behind_the_dump_keeps_the_filter)
{
    int port, listener = listen_on(&port);
    redisContext *other = client_open(source.port);
    expect(from, ":1", "BF.ADD f early");
    for (int changes = 0; changes < 2; changes++) {
        redisAppendCommand(from, "MIGRATE 127.0.0.1 %d f 0 10000", port);
        int done = 0;
        while (!done)
            cr_assert_eq(redisBufferWrite(from, &done), REDIS_OK);
        int fd = take_until_restore(listener);
        if (changes == 0)
            expect(other, ":1", "BF.ADD f late");
        expect(other, "+OK", "MULTI");
        expect(other, "+QUEUED", "BF.EXISTS f early");
        expect(other, "+QUEUED", "BF.EXISTS f late");
        expect(other, "[:1,:1]", "EXEC");
        cr_assert_eq(send(fd, "+OK\r\n", 5, 0), 5);
        const char *reply = client_reply(from);
        if (changes == 0) {
            cr_assert(strstr(reply, "-ERR 1 of the filters changed while being sent"), "%s", reply);
            expect(other, "[:1,:1]", "BF.MEXISTS f early late");
        } else {
            cr_assert_str_eq(reply, "+OK");
            expect(other, ":0", "EXISTS f");
        }
        close(fd);
    }
    close(listener);
}

PAIR_TEST(migrate, a_silent_target_is_given_up)
{
    int port, listener = listen_on(&port);
    expect(from, ":1", "BF.ADD f a");
    expect(from, "-IOERR error or timeout reading to target instance", "MIGRATE 127.0.0.1 %d f 0 100", port);
    expect(from, ":1", "BF.EXISTS f a");
    close(listener);
}

/* Each byte of a slow reply counted as an answer, and MIGRATE never ended. */
PAIR_TEST(migrate, a_dripping_target_is_given_up)
{
    int port, listener = listen_on(&port);
    expect(from, ":1", "BF.ADD f a");
    send_migrate(from, "f", port, 500);
    int fd = accept(listener, NULL, NULL);
    struct pollfd end = {.fd = from->fd, .events = POLLIN};
    cr_assert_eq(send(fd, "+", 1, 0), 1);
    for (int i = 0; i < 500 && poll(&end, 1, 20) == 0; i++) /* ten seconds at least */
        (void)!send(fd, "x", 1, MSG_NOSIGNAL);
    cr_assert(end.revents & POLLIN);
    cr_assert_str_eq(client_reply(from), "-IOERR error or timeout reading to target instance");
    expect(from, ":1", "BF.EXISTS f a");
    close(fd);
    close(listener);
}

/* The timeout is for all keys together: each answer comes within it, all do not. */
PAIR_TEST(migrate, one_time_is_for_all_keys)
{
    int port, listener = listen_on(&port);
    for (int i = 0; i < 50; i++)
        expect(from, ":1", "BF.ADD f%d a", i);
    static char command[2048];
    size_t len = (size_t)snprintf(command, sizeof(command), "MIGRATE 127.0.0.1 %d %%s 0 1000 KEYS", port);
    for (int i = 0; i < 50; i++)
        len += (size_t)snprintf(command + len, sizeof(command) - len, " f%d", i);
    redisAppendCommand(from, command, "");
    for (int done = 0; !done;)
        cr_assert_eq(redisBufferWrite(from, &done), REDIS_OK);
    int fd = accept(listener, NULL, NULL), answers = 0;
    struct pollfd both[] = {{.fd = from->fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    char bytes[4096];
    while (answers < 50 && poll(both, 2, 60000) > 0 && !both[0].revents) {
        if (recv(fd, bytes, sizeof(bytes), 0) <= 0) /* given up; the reply to its client follows */
            break;
        usleep(100000);
        answers += send(fd, "+OK\r\n", 5, MSG_NOSIGNAL) == 5;
    }
    cr_assert_str_eq(client_reply(from), "-IOERR error or timeout reading to target instance");
    cr_expect(answers > 0 && answers < 40, "%d", answers);
    long long left = client_number(from, "DBSIZE"); /* the filters that the target has are gone here */
    cr_expect(left < 50 && left > 0, "%lld", left);
    close(fd);
    close(listener);
}

/* They occupied all slots for MIGRATE, each for its whole timeout. */
PAIR_TEST(migrate, clients_that_go_leave_no_migration_behind)
{
    enum { CLIENTS = 4 };
    int port, listener = listen_on(&port);
    int silent[CLIENTS];
    redisContext *clients[CLIENTS];
    expect(from, ":1", "BF.ADD f a");
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < CLIENTS; i++) {
            clients[i] = client_open(source.port);
            expect(clients[i], "+OK", "CLIENT SETNAME mover");
            send_migrate(clients[i], "f", port, 3600000);
            silent[i] = accept(listener, NULL, NULL);
            cr_assert_geq(silent[i], 0);
        }
        const char *reply = client_ask(from, "MIGRATE 127.0.0.1 %d f 0 5000 COPY REPLACE", target.port);
        cr_assert(strncmp(reply, "-TRYAGAIN", 9) == 0, "%s", reply);
        for (int i = 0; i < CLIENTS && round == 0; i++)
            redisFree(clients[i]);
        if (round == 1)
            expect(from, ":4", "CLIENT KILL TYPE normal");
        for (int i = 0; i < 1000; i++, usleep(10000)) {
            reply = client_ask(from, "MIGRATE 127.0.0.1 %d f 0 5000 COPY REPLACE", target.port);
            if (strncmp(reply, "-TRYAGAIN", 9) != 0)
                break;
        }
        cr_assert_str_eq(reply, "+OK");
        for (int i = 0; i < CLIENTS; i++) { /* until the last migration has also freed its slot */
            char bytes[4096];
            while (recv(silent[i], bytes, sizeof(bytes), 0) > 0)
                ;
            close(silent[i]);
        }
    }
    for (int i = 0; i < CLIENTS; i++)
        redisFree(clients[i]);
    close(listener);
}

/* SIGTERM waited for the target; also at the moment in which moved filters are deleted here. */
PAIR_TEST(migrate, the_end_of_the_daemon_waits_for_no_target)
{
    int port, listener = listen_on(&port);
    for (int keys = 1; keys <= 2; keys++) {
        expect(from, ":1", "BF.ADD f%d a", keys);
        redisContext *client = client_open(source.port);
        redisAppendCommand(client, "MIGRATE 127.0.0.1 %d %s 0 3600000 KEYS f1 f2", port, "");
        for (int done = 0; !done;)
            cr_assert_eq(redisBufferWrite(client, &done), REDIS_OK);
        int fd = take_until_restore(listener);
        if (keys == 2) {
            char bytes[4096];
            cr_assert_eq(send(fd, "+OK\r\n", 5, 0), 5);
            cr_assert_gt(recv(fd, bytes, sizeof(bytes), 0), 0); /* the second */
        }
        double before = wait_clock();
        from = client_after_stop(from, &source, NULL);
        cr_expect_lt(wait_clock() - before, DAEMON_SANITIZED ? 20 : 5);
        expect(from, ":1", "BF.EXISTS f1 a");
        redisFree(client);
        close(fd);
    }
    close(listener);
}

PAIR_TEST(migrate, a_large_filter_is_refused)
{
    expect(from, "+OK", "BF.RESERVE f 0.001 10000000");
    const char *reply = client_ask(from, "MIGRATE 127.0.0.1 %d f 0 5000", target.port);
    cr_assert(strstr(reply, "-ERR the filter has"), "%s", reply);
    expect(from, ":1", "EXISTS f");
}

/* ---- a target with TLS ---- */

/* The target asks for certificates, too. */
static void tls_start(void)
{
    daemon_prepare(&target);
    tls_make_files(target.dir);
    target.with_tls = true;
    daemon_start(&target, NULL);
    from = client_start(&source, (const char *const[]){"--tls-cluster", "yes", NULL});
    to = client_open(target.port);
    expect(from, ":1", "BF.ADD f a");
}

TestSuite(migrate_tls, .init = tls_start, .fini = pair_discard, .timeout = 1000);

static void set_file(const char *setting, const char *file)
{
    expect(from, "+OK", "CONFIG SET %s %s/%s", setting, target.dir, file);
}

/* MIGRATE fails and the filter stays. */
static void expect_failure(const char *error, const char *host, int port, int timeout_ms)
{
    const char *reply = client_ask(from, "MIGRATE %s %d f 0 %d", host, port, timeout_ms);
    cr_assert(strstr(reply, error), "%s", reply);
    expect(from, ":1", "BF.EXISTS f a");
}

/* By name and by address, with a certificate for clients and with the server's own. */
PAIR_TEST(migrate_tls, moves_filters)
{
    set_file("tls-ca-cert-file", "ca.crt");
    set_file("tls-client-cert-file", "client.crt");
    set_file("tls-client-key-file", "client.key");
    expect(from, "+OK", "BF.RESERVE large 0.001 100000"); /* 180 kB: several records */
    cr_assert_eq(client_for_items(from, "BF.MADD", "large", "i", 500), 500);
    expect(from, "+OK", "MIGRATE localhost %d %s 3 10000 COPY KEYS f large", target.tls_port, "");
    expect(to, "+OK", "SELECT 3");
    cr_assert_eq(client_for_items(to, "BF.MEXISTS", "large", "i", 500), 500);
    expect(from, "-ERR Target instance replied with error: BUSYKEY Target key name already exists.",
           "MIGRATE 127.0.0.1 %d f 3 10000", target.tls_port);
    expect(to, "+OK", "CONFIG SET requirepass secret");
    expect(from, "+OK", "CONFIG SET tls-client-cert-file %s tls-client-key-file %s tls-cert-file %s/new.crt", "", "",
           target.dir);
    set_file("tls-key-file", "new.key");
    expect(from, "+OK", "MIGRATE 127.0.0.1 %d f 3 10000 REPLACE AUTH secret", target.tls_port);
    expect(from, ":0", "EXISTS f");
    expect(to, ":1", "BF.EXISTS f a");

    /* Without the setting it connects as before. */
    expect(from, "+OK", "CONFIG SET tls-cluster no");
    expect(from, "+OK", "MIGRATE 127.0.0.1 %d large 0 10000 AUTH secret", target.port);
}

PAIR_TEST(migrate_tls, says_what_is_wrong)
{
    expect_failure("-IOERR error or timeout connecting to the client: TLS: the certificate is not accepted: ",
                   "127.0.0.1", target.tls_port, 10000); /* not of the system's list */
    set_file("tls-ca-cert-file", "missing.crt");
    expect_failure("-ERR tls-cluster: MIGRATE cannot connect with TLS: CA certificates ", "127.0.0.1", target.tls_port,
                   10000);
    set_file("tls-ca-cert-file", "ca.crt");
    expect_failure("TLS: the other side requires a certificate, but we have presented none", "127.0.0.1",
                   target.tls_port, 10000);
    set_file("tls-client-cert-file", "stranger.crt");
    set_file("tls-client-key-file", "client.key");
    expect_failure("is not the key of the certificate in ", "127.0.0.1", target.tls_port, 10000);
    set_file("tls-client-key-file", "stranger.key");
    expect_failure("-IOERR error or timeout ", "127.0.0.1", target.tls_port, 10000);
    set_file("tls-client-cert-file", "client.crt");
    set_file("tls-client-key-file", "client.key");
    expect_failure("TLS: the certificate is not accepted: ", "127.1", target.tls_port, 10000); /* another name */
    expect_failure("TLS: the other side does not speak TLS", "127.0.0.1", target.port, 10000);
    expect_failure("connecting to the client: cannot connect to 127.0.0.1 port 1: Connection refused", "127.0.0.1", 1,
                   10000);
    expect(to, ":0", "DBSIZE");
    expect(from, "+OK", "MIGRATE 127.0.0.1 %d f 0 10000", target.tls_port);
}

/* The timeout is for the whole handshake: the target sends single bytes of a long record. Other clients, and the
 * other threads of the pool, continue meanwhile. */
PAIR_TEST(migrate_tls, a_handshake_that_does_not_end_is_given_up)
{
    int port, listener = listen_on(&port), done = 0;
    char hello[16384];
    expect_failure("connecting to the client: TLS: the server did not complete the handshake in time", "127.0.0.1",
                   port, 100);
    close(accept(listener, NULL, NULL));
    redisAppendCommand(from, "MIGRATE 127.0.0.1 %d f 0 400", port);
    while (!done)
        cr_assert_eq(redisBufferWrite(from, &done), REDIS_OK);
    int fd = accept(listener, NULL, NULL);
    cr_assert_gt(recv(fd, hello, sizeof(hello), 0), 0);
    cr_assert_eq(send(fd, "\x16\x03\x03\x3f\xff", 5, 0), 5);
    redisContext *other = client_open(source.port);
    struct pollfd end = {.fd = from->fd, .events = POLLIN};
    while (poll(&end, 1, 20) == 0) {
        (void)!send(fd, "\0", 1, MSG_NOSIGNAL);
        expect(other, ":1", "BF.EXISTS f a");
        expect(other, ":1", "DBSIZE");
    }
    cr_assert_str_eq(client_reply(from), "-IOERR error or timeout connecting to the client: TLS: the server did not "
                                         "complete the handshake in time");
    close(fd);
    close(listener);
}
