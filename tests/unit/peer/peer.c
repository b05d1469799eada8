/* A peer's waits end with any behaviour of the other side: the test's own server sends its bytes at the speed of each
 * test. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "peer_internal.h"

/* ---- a slow server ---- */

struct slow_server {
    pthread_t thread;
    int listener;
    char port[8];
    size_t piece; /* bytes at a time */
    int pause_ms; /* before each piece */
    atomic_bool ends;
};

/* Sends "$1000000\r\n" and that many bytes, forever. */
static void *serve(void *arg)
{
    struct slow_server *server = arg;
    static const char head[] = "$1000000\r\n";
    char piece[8192];
    memset(piece, 'x', sizeof(piece));
    int fd = accept(server->listener, NULL, NULL);
    for (size_t sent = 0; fd >= 0 && !atomic_load(&server->ends); sent += server->piece) {
        usleep((useconds_t)server->pause_ms * 1000);
        for (size_t i = 0; i < server->piece; i++) {
            size_t at = (sent + i) % (sizeof(head) - 1 + 1000002);
            piece[i] = at < sizeof(head) - 1 ? head[at] : at == 1000010 ? '\r' : at == 1000011 ? '\n' : 'x';
        }
        if (send(fd, piece, server->piece, MSG_NOSIGNAL) < 0)
            break;
    }
    close(fd);
    return NULL;
}

static void start(struct slow_server *server, size_t piece, int pause_ms)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    server->listener = socket(AF_INET, SOCK_STREAM, 0);
    server->piece = piece;
    server->pause_ms = pause_ms;
    atomic_store(&server->ends, false);
    cr_assert_eq(bind(server->listener, (struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(listen(server->listener, 1), 0);
    cr_assert_eq(getsockname(server->listener, (struct sockaddr *)&address, &len), 0);
    snprintf(server->port, sizeof(server->port), "%u", ntohs(address.sin_port));
    cr_assert_eq(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void stop(struct slow_server *server)
{
    atomic_store(&server->ends, true);
    pthread_join(server->thread, NULL);
    close(server->listener);
}

static void connect_to(struct peer *peer, const struct slow_server *server, int64_t timeout_ms,
                       const atomic_bool *cancelled)
{
    struct errbuf err = {""};
    peer_init(peer, timeout_ms, cancelled);
    cr_assert_eq(peer_connect(peer, &(struct peer_address){.host = "127.0.0.1", .port = server->port}, &err), 0, "%s",
                 err.text);
}

TestSuite(peer, .timeout = 120);

/* Formerly a byte now and then was progress, and the wait never ended. */
Test(peer, a_dripping_reply_is_given_up)
{
    struct slow_server server;
    struct peer peer;
    struct resp_reply reply;
    struct errbuf err = {""};
    start(&server, 1, 20);
    connect_to(&peer, &server, 500, NULL);
    int64_t before = clock_ms();
    cr_expect_eq(peer_reply(&peer, &reply, &err), -ETIMEDOUT);
    cr_expect_str_eq(err.text, "the server does not answer");
    cr_expect_geq(clock_ms() - before, 500);
    peer_close(&peer);
    stop(&server);
}

/* A reply at the speed of a slow line has time enough: a megabyte takes seconds here. */
Test(peer, a_long_reply_takes_its_time)
{
    struct slow_server server;
    struct peer peer;
    struct resp_reply reply;
    struct errbuf err = {""};
    start(&server, 8192, 20);
    connect_to(&peer, &server, 1000, NULL);
    int64_t before = clock_ms();
    cr_expect_eq(peer_reply(&peer, &reply, &err), 0, "%s", err.text);
    cr_expect_eq(resp_reply_text(&reply, 0).len, 1000000);
    cr_expect_gt(clock_ms() - before, 1500);
    peer_close(&peer);
    stop(&server);
}

/* One deadline for all calls is not extended by bytes from the other side. */
Test(peer, one_deadline_is_for_all_calls)
{
    struct slow_server server;
    struct peer peer;
    struct resp_reply reply;
    struct errbuf err = {""};
    start(&server, 8192, 20);
    peer_init(&peer, 1000, NULL);
    peer_set_deadline(&peer, 1000);
    int64_t before = clock_ms();
    cr_assert_eq(peer_connect(&peer, &(struct peer_address){.host = "127.0.0.1", .port = server.port}, &err), 0);
    PEER_PUT(&peer, slice_of("PING"));
    cr_expect_eq(peer_flush(&peer, &err), 0);
    cr_expect_eq(peer_reply(&peer, &reply, &err), -ETIMEDOUT);
    cr_expect_geq(clock_ms() - before, 1000);
    cr_expect_eq(peer_reply(&peer, &reply, &err), -ETIMEDOUT);
    peer_close(&peer);
    cr_expect_eq(peer_connect(&peer, &(struct peer_address){.host = "127.0.0.1", .port = server.port}, &err),
                 -ETIMEDOUT);
    peer_close(&peer);
    stop(&server);
}

static void *cancel(void *cancelled)
{
    usleep(100000);
    atomic_store((atomic_bool *)cancelled, true);
    return NULL;
}

Test(peer, a_call_is_cancelled)
{
    struct slow_server server;
    struct peer peer;
    struct resp_reply reply;
    struct errbuf err = {""};
    atomic_bool cancelled = false;
    pthread_t thread;
    start(&server, 1, 20);
    connect_to(&peer, &server, 1000000, &cancelled);
    pthread_create(&thread, NULL, cancel, &cancelled);
    cr_expect_eq(peer_reply(&peer, &reply, &err), -ECANCELED);
    pthread_join(thread, NULL);
    peer_close(&peer);
    stop(&server);
}

/* ---- names ---- */

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **list_out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **list_out);

static atomic_bool resolver_is_silent;
static atomic_int asked;

/* A resolver whose servers do not answer; addresses need no server. */
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **list_out)
{
    if (hints->ai_flags & AI_NUMERICHOST)
        return __real_getaddrinfo(host, port, hints, list_out);
    atomic_fetch_add(&asked, 1);
    while (atomic_load(&resolver_is_silent))
        usleep(1000);
    return __real_getaddrinfo("127.0.0.1", port, hints, list_out);
}

Test(peer, names_and_addresses_are_found)
{
    struct peer_limit limit = {.end_ms = clock_ms() + 60000};
    struct errbuf err = {""};
    struct addrinfo *list;
    cr_assert_eq(peer_resolve("name", "6379", &limit, &list, &err), 0, "%s", err.text);
    freeaddrinfo(list);
    cr_assert_eq(asked, 1);
    cr_assert_eq(peer_resolve("::1", "6379", &limit, &list, &err), 0, "%s", err.text);
    freeaddrinfo(list);
    cr_assert_eq(asked, 1);
    cr_assert_eq(peer_resolve("127.0.0.1", "no such service", &limit, &list, &err), -EHOSTUNREACH);
    cr_assert(strstr(err.text, "cannot find 127.0.0.1: "), "%s", err.text);
}

Test(peer, a_silent_resolver_is_given_up)
{
    struct peer_limit limit = {.end_ms = clock_ms() + 200};
    struct errbuf err = {""};
    struct addrinfo *list;
    atomic_bool cancelled = true;
    atomic_store(&resolver_is_silent, true);
    cr_expect_eq(peer_resolve("name", "6379", &limit, &list, &err), -ETIMEDOUT);
    cr_expect_str_eq(err.text, "cannot find name: the name look-up timed out");
    limit = (struct peer_limit){.end_ms = clock_ms() + 60000, .cancelled = &cancelled};
    cr_expect_eq(peer_resolve("name", "6379", &limit, &list, &err), -ECANCELED);

    /* The number of abandoned requests is bounded. */
    limit = (struct peer_limit){.end_ms = clock_ms()};
    int status = -ETIMEDOUT;
    for (int i = 0; i < 100 && status == -ETIMEDOUT; i++)
        status = peer_resolve("name", "6379", &limit, &list, &err);
    cr_expect_eq(status, -EAGAIN);
    cr_expect_leq(asked, 32);
    atomic_store(&resolver_is_silent, false);
    limit.end_ms = clock_ms() + 60000;
    do
        status = peer_resolve("name", "6379", &limit, &list, &err);
    while (status == -EAGAIN && usleep(1000) == 0);
    cr_assert_eq(status, 0, "%s", err.text);
    freeaddrinfo(list);
}
