/* A peer's waits end with any behaviour of the other side: the test's own server sends its bytes at the speed of each
 * test. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "peer.h"
#include "clock.h"
#include "listener.h"

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
    int port;
    server->listener = listener_open(&port);
    server->piece = piece;
    server->pause_ms = pause_ms;
    atomic_store(&server->ends, false);
    snprintf(server->port, sizeof(server->port), "%d", port);
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

TestSuite(peer, .timeout = 3000);

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
    start(&server, 8192, 50);
    connect_to(&peer, &server, 4000, NULL); /* more than a busy machine may take for a piece */
    int64_t before = clock_ms();
    cr_expect_eq(peer_reply(&peer, &reply, &err), 0, "%s", err.text);
    cr_expect_eq(resp_reply_text(&reply, 0).len, 1000000);
    cr_expect_gt(clock_ms() - before, 5000);
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
