/* The HTTP port: its users, hostile requests, and its reports of the daemon's state. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "disk_control.h"
#include "http.h"
#include "wait.h"

static struct daemon the_daemon;

static void begin(void)
{
    the_daemon.with_web = true;
    daemon_start(&the_daemon, NULL);
}

static void discard(void)
{
    daemon_discard(&the_daemon);
    disk_detach();
}

TestSuite(web, .init = begin, .fini = discard, .timeout = 3000);

static int status_of(const char *path, const char *headers)
{
    struct http_reply reply;
    http_get(the_daemon.web_port, path, headers, &reply);
    int status = reply.status;
    http_free(&reply);
    return status;
}

static int raw_status(const char *request)
{
    struct http_reply reply;
    http_ask(the_daemon.web_port, request, strlen(request), &reply);
    int status = reply.status;
    http_free(&reply);
    return status;
}

#define expect_status(expected, path, headers)                                                \
    do {                                                                                      \
        int got_status = status_of(path, headers);                                            \
        cr_assert_eq(got_status, (expected), "%s: %d, not %d", path, got_status, (expected)); \
    } while (0)

/* ---- access ---- */

#define BASIC "Authorization: Basic "

/* With a password all paths except the two checks require it, with any user name; a new password counts at once. */
CLIENT_TEST(the_daemon, web, the_password_of_requirepass_is_asked_for)
{
    struct http_reply reply;
    expect_status(200, "/metrics", "");
    expect(client, "+OK", "CONFIG SET requirepass s:cret");
    http_get(the_daemon.web_port, "/metrics", "", &reply);
    cr_assert_eq(reply.status, 401);
    cr_assert(strstr(reply.headers, "\r\nWWW-Authenticate: Basic realm=\"bloomery\""), "%s", reply.headers);
    http_free(&reply);
    expect_status(401, "/no/such", "");
    expect_status(200, "/healthz", "");
    expect_status(200, "/readyz", "");
    expect_status(200, "/metrics", BASIC "YW55OnM6Y3JldA==\r\n"); /* any:s:cret */
    expect_status(200, "/metrics", BASIC "OnM6Y3JldA==\r\n");     /* :s:cret */
    const char *const wrong[] = {
        BASIC "YW55OnM6Y3JlZA==\r\n", /* any:s:cred */
        BASIC "YW55OnM6Y3JldAA=\r\n", /* with a NUL after it */
        BASIC "YW55OnM6Y3Jl\r\n",
        BASIC "YW55Og==\r\n",
        BASIC "YW55\r\n",
        BASIC "\r\n",
        BASIC "!!!\r\n",
        "Authorization: Bearer YW55OnM6Y3JldA==\r\n",
        "Authorization: Basic\r\n",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        expect_status(401, "/metrics", wrong[i]);
    char *header = malloc(8000);
    cr_assert_not_null(header);
    memset(header, 'A', 8000);
    memcpy(header, BASIC, strlen(BASIC));
    strcpy(header + 7000, "\r\n");
    expect_status(401, "/metrics", header);
    free(header);
    /* Each counts as a wrong password of AUTH; requests without a password do not. */
    http_get(the_daemon.web_port, "/metrics", BASIC "YW55OnM6Y3JldA==\r\n", &reply);
    cr_expect(strstr(reply.body, "\nbloomery_access_denied_total{reason=\"auth\"} 10\n"));
    http_free(&reply);
    redisReply *log = redisCommand(client, "ACL LOG");
    cr_assert(log && log->type == REDIS_REPLY_ARRAY && log->elements > 0);
    cr_expect_str_eq(log->element[0]->element[7]->str, "HTTP");
    cr_expect_str_eq(log->element[log->elements - 1]->element[9]->str, "any");
    cr_expect_eq(strncmp(log->element[0]->element[13]->str, "addr=127.0.0.1:", 15), 0, "%s",
                 log->element[0]->element[13]->str);
    freeReplyObject(log);
}

/* 64 clients that take no byte of a large filter keep others out, but not a probe. */
CLIENT_TEST(the_daemon, web, probes_are_answered_beside_slow_downloads)
{
    enum { DOWNLOADS = 64 };
    static const char request[] = "GET /filters/large HTTP/1.1\r\nHost: localhost\r\n\r\n";
    int fds[DOWNLOADS], small = 4096;
    expect(client, "+OK", "BF.RESERVE large 0.0001 20000000");
    for (int i = 0; i < DOWNLOADS; i++) {
        fds[i] = http_connect(the_daemon.web_port);
        setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
        cr_assert_eq(send(fds[i], request, strlen(request), 0), (ssize_t)strlen(request));
    }
    wait_until(status_of("/metrics", "") == 503);
    for (int i = 0; i < 50; i++) {
        expect_status(200, "/healthz", "");
        expect_status(200, "/readyz", "");
    }
    expect_status(503, "/metrics", "");
    for (int i = 0; i < DOWNLOADS; i++)
        close(fds[i]);
    wait_until(status_of("/metrics", "") == 200);
}

/* Every reply restricts browsers to resources of this server. */
DAEMON_TEST(the_daemon, web, replies_forbid_what_the_page_does_not_need)
{
    const char *const paths[] = {"/metrics", "/healthz", "/no/such"};
    for (size_t i = 0; i < 3; i++) {
        struct http_reply reply;
        http_get(the_daemon.web_port, paths[i], "", &reply);
        cr_assert(strstr(reply.headers, "\r\nContent-Security-Policy: default-src 'none';"), "%s", reply.headers);
        cr_assert(strstr(reply.headers, "\r\nX-Content-Type-Options: nosniff\r\n"), "%s", reply.headers);
        cr_assert(strstr(reply.headers, "\r\nCache-Control: no-store\r\n"), "%s", reply.headers);
        http_free(&reply);
    }
}

/* ---- wrong requests ---- */

/* Requests other than GET or HEAD, with a body, or not in HTTP are refused; the next request is served. */
DAEMON_TEST(the_daemon, web, wrong_requests_are_refused)
{
    cr_assert_eq(raw_status("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"), 405);
    cr_assert_eq(raw_status("DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n"), 405);
    cr_assert_eq(raw_status("GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n"), 413);
    cr_assert_eq(raw_status("GET /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"), 413);
    cr_assert_eq(raw_status("GET /no HTTP/1.1\r\nHost: localhost\r\n\r\n"), 404);
    cr_assert_eq(raw_status("GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n"), 404);
    const char *const garbage[] = {"PING\r\n\r\n",
                                   "*1\r\n$4\r\nPING\r\n\r\n",
                                   "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
                                   "GET /metrics\r\n\r\n",
                                   "GET\r\n\r\n",
                                   " \r\n\r\n",
                                   "GET /metrics HTTP/9.9\r\n\r\n"};
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
        struct http_reply reply;
        int fd = http_connect(the_daemon.web_port);
        (void)!send(fd, garbage[i], strlen(garbage[i]), MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
        http_read(fd, &reply);
        cr_assert(reply.status == 0 || reply.status / 100 == 4 || reply.status == 505, "%s: %d", garbage[i],
                  reply.status);
        http_free(&reply);
    }
    expect_status(200, "/metrics", "");
}

/* Requests that could smuggle a second request to a server behind a proxy, and contradictory requests. */
DAEMON_TEST(the_daemon, web, ambiguous_requests_are_refused)
{
#define LINE "GET /healthz HTTP/1.1\r\n"
#define HOST "Host: localhost\r\n"
    cr_expect_eq(raw_status(LINE HOST "\r\n"), 200);
    cr_expect_eq(raw_status(LINE "\r\n"), 400);
    cr_expect_eq(raw_status(LINE HOST "Host: evil.example\r\n\r\n"), 400);
    cr_expect_eq(raw_status(LINE HOST "Content-Length: 0\r\nContent-Length: 4\r\n\r\nGET "), 400);
    cr_expect_eq(raw_status(LINE HOST "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 413);
    cr_expect_eq(raw_status(LINE HOST "Content-Length: +0\r\n\r\n"), 413);
    cr_expect_eq(raw_status(LINE HOST "Transfer-Encoding : chunked\r\n\r\n"), 400);
    cr_expect_eq(raw_status(LINE HOST "X: a\r\n Content-Length: 4\r\n\r\n"), 400);
    cr_expect_eq(raw_status(LINE HOST "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n"), 413);
    cr_expect_eq(raw_status("GET /healthz HTTP/2.0\r\n" HOST "\r\n"), 505);
    cr_expect_eq(raw_status("get /healthz HTTP/1.1\r\n" HOST "\r\n"), 405);
    cr_expect_eq(raw_status("GET http://evil.example/metrics HTTP/1.1\r\n" HOST "\r\n"), 400);
}

/* A second request gets no reply, and bytes after the first one do not destroy its reply. */
DAEMON_TEST(the_daemon, web, a_connection_has_one_request)
{
    size_t size = 4 << 20;
    char *request = calloc(1, size);
    cr_assert_not_null(request);
    for (int post = 0; post < 2; post++) {
        struct http_reply reply;
        int n = snprintf(request, size, "%s /healthz HTTP/1.1\r\n" HOST "\r\n" LINE HOST "\r\n", post ? "POST" : "GET");
        int fd = http_connect(the_daemon.web_port);
        for (size_t at = 0; at < (post ? size : (size_t)n);) {
            ssize_t sent = send(fd, request + at, (post ? size : (size_t)n) - at, MSG_NOSIGNAL);
            if (sent <= 0)
                break;
            at += (size_t)sent;
        }
        shutdown(fd, SHUT_WR);
        http_read(fd, &reply);
        cr_assert_eq(reply.status, post ? 405 : 200);
        cr_assert_str_eq(reply.body, post ? "this page is read-only: use GET or HEAD\n" : "alive\n");
        http_free(&reply);
    }
    free(request);
}

/* A client that closes its sending side at once gets its reply, though that waits for a pass over all names. */
DAEMON_TEST(the_daemon, web, half_closed_connections_get_their_reply)
{
    static const char request[] = "GET /api/filters HTTP/1.1\r\n" HOST "\r\n";
    struct http_reply reply;
    int fd = http_connect(the_daemon.web_port);
    cr_assert_eq(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    shutdown(fd, SHUT_WR);
    http_read(fd, &reply);
    cr_assert_eq(reply.status, 200);
    cr_assert(strstr(reply.body, "\"total\":0"), "%s", reply.body);
    http_free(&reply);
}

/* A request may be cut anywhere. */
DAEMON_TEST(the_daemon, web, requests_may_come_in_any_pieces)
{
    const char *request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
    size_t len = strlen(request);
    for (size_t cut = 1; cut < len; cut += DAEMON_SANITIZED ? 5 : 1) {
        struct http_reply reply;
        int fd = http_connect(the_daemon.web_port);
        cr_assert_eq(send(fd, request, cut, MSG_NOSIGNAL), (ssize_t)cut);
        usleep(500);
        cr_assert_eq(send(fd, request + cut, len - cut, MSG_NOSIGNAL), (ssize_t)(len - cut));
        http_read(fd, &reply);
        cr_assert_eq(reply.status, 200, "cut at %zu", cut);
        http_free(&reply);
    }
}

/* Headers and request lines without an end get an error; pipelined requests one reply. */
DAEMON_TEST(the_daemon, web, huge_headers_are_refused)
{
    size_t size = 1 << 20;
    char *request = malloc(size);
    cr_assert_not_null(request);
    for (int line = 0; line < 2; line++) {
        struct http_reply reply;
        int n = snprintf(request, size, line ? "GET /" : "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Long: ");
        memset(request + n, 'a', size - (size_t)n);
        int fd = http_connect(the_daemon.web_port);
        for (size_t at = 0; at < size;) {
            ssize_t sent = send(fd, request + at, size - at, MSG_NOSIGNAL);
            if (sent <= 0)
                break; /* closed: enough bytes */
            at += (size_t)sent;
        }
        http_read(fd, &reply);
        cr_assert(reply.status == 0 || reply.status / 100 == 4, "%d", reply.status);
        http_free(&reply);
    }
    free(request);
    expect_status(200, "/metrics", "");
}

/* ---- many and slow clients ---- */

#define CROWD 300

/* Clients that send nothing, or a byte at a time, keep no other client out, neither here nor from RESP. */
CLIENT_TEST(the_daemon, web, silent_connections_keep_nobody_out)
{
    int fds[CROWD];
    double slowest = 0;
    for (int i = 0; i < CROWD; i++) {
        fds[i] = http_connect(the_daemon.web_port);
        (void)!send(fds[i], "GET /metr", (size_t)(i % 10), MSG_NOSIGNAL);
    }
    for (int i = 0; i < 30; i++) {
        double began = wait_clock();
        expect_status(200, i % 2 ? "/metrics" : "/healthz", "");
        slowest = wait_clock() - began > slowest ? wait_clock() - began : slowest;
        expect(client, i ? ":0" : ":1", "BF.ADD f x");
    }
    cr_log_info("the slowest of 30 requests among %d silent connections took %.3f s", CROWD, slowest);
    cr_assert_lt(slowest, 5);
    struct http_reply reply;
    http_get(the_daemon.web_port, "/metrics", "", &reply);
    const char *closed = strstr(reply.body, "\nbloomery_http_closed_total ");
    cr_assert(closed && strtod(closed + 27, NULL) >= CROWD - 80, "%.60s", closed);
    http_free(&reply);
    for (int i = 0; i < CROWD; i++)
        close(fds[i]);
}

static double metric(const char *name)
{
    struct http_reply reply;
    http_get(the_daemon.web_port, "/metrics", "", &reply);
    const char *at = reply.body ? strstr(reply.body, name) : NULL;
    cr_assert(at, "%s", name);
    double value = strtod(at + strlen(name), NULL);
    http_free(&reply);
    return value;
}

#define FLOOD 1500
#define HELD  200

/* Thousands of connections, each with the maximum of an unfinished request, leave no memory behind. */
DAEMON_TEST(the_daemon, web, many_connections_take_no_memory)
{
    int fds[HELD];
    char *part = malloc(30000);
    cr_assert_not_null(part);
    memset(part, 'a', 30000);
    memcpy(part, "GET /", 5);
    double before = metric("\nbloomery_memory_resident_bytes ");
    for (int i = 0; i < FLOOD; i++) {
        if (i >= HELD)
            close(fds[i % HELD]);
        fds[i % HELD] = http_connect(the_daemon.web_port);
        (void)!send(fds[i % HELD], part, (size_t)(i % 4) * 10000, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    double more = metric("\nbloomery_memory_resident_bytes ") - before;
    cr_log_info("%d connections: %.0f kB more, %.0f of them closed", FLOOD, more / 1024,
                metric("\nbloomery_http_closed_total "));
    if (!DAEMON_SANITIZED)
        cr_assert_lt(more, 16 << 20);
    for (int i = 0; i < HELD; i++)
        close(fds[i]);
    free(part);
}

/* A client that does not read its reply is disconnected, and its reply is freed. */
CLIENT_TEST(the_daemon, web, slow_readers_are_cut_off)
{
    static const char request[] = "GET /metrics HTTP/1.1\r\n" HOST "\r\n";
    unsigned char name[120] = "";
    int fds[4], small = 4096;
    for (int i = 0; i < 1000; i++) {
        memcpy(name, &i, sizeof(i)); /* all bytes are control characters or no UTF-8: each is shown as five */
        expect(client, "+OK", "BF.RESERVE %b 0.01 1", name, sizeof(name));
    }
    expect(client, "+OK", "CONFIG SET metrics-filters *");
    double closed = metric("\nbloomery_http_closed_total ");
    for (int i = 0; i < 4; i++) {
        fds[i] = http_connect(the_daemon.web_port);
        setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
        (void)!send(fds[i], request, strlen(request), MSG_NOSIGNAL);
    }
    double began = wait_clock();
    (void)metric("\nbloomery_ready "); /* its pass over the names is behind those of the four */
    expect(client, "+OK", "CONFIG SET metrics-filters %s", "");
    wait_until(metric("\nbloomery_http_closed_total ") >= closed + 4);
    cr_log_info("clients that take nothing were cut off after %.1f s", wait_clock() - began);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
}

/* An endless request, a byte at a time, is cut off. */
DAEMON_TEST(the_daemon, web, slow_requests_are_cut_off)
{
    char byte = 'x';
    int fd = http_connect(the_daemon.web_port);
    double began = wait_clock();
    (void)!send(fd, "GET / HTTP/1.1\r\nX: ", 19, MSG_NOSIGNAL);
    while (send(fd, &byte, 1, MSG_NOSIGNAL) == 1 && wait_clock() - began < 60)
        usleep(200000);
    double took = wait_clock() - began;
    close(fd);
    cr_log_info("a request of a byte every 0.2 s was cut off after %.1f s", took);
    cr_assert(took > 5 && took < 45, "%g", took);
    expect_status(200, "/metrics", "");
}

/* ---- state ---- */

/* While the data directory is read the daemon is alive and not ready. */
CLIENT_TEST(the_daemon, web, it_is_not_ready_while_it_loads)
{
    struct http_reply reply = {0};
    client_add_items(client, "f", 0, 50);
    client_kill(client, &the_daemon);
    disk_attach();
    atomic_store(&disk->hold_reads, 1);
    daemon_launch(&the_daemon);
    daemon_wait_output(&the_daemon, "metrics and status page");
    do { /* first it says that it starts */
        http_free(&reply);
        http_get(the_daemon.web_port, "/readyz", "", &reply);
        cr_assert_eq(reply.status, 503, "%d", reply.status);
    } while (!strstr(reply.body, "loading the data directory: "));
    http_free(&reply);
    expect_status(200, "/healthz", "");
    expect_status(200, "/metrics", "");
    disk_mend();
    wait_until(status_of("/readyz", "") == 200);
}

/* An unwritable log makes it not ready, until it is writable. */
DAEMON_TEST(the_daemon, web, it_is_not_ready_while_the_log_fails)
{
    struct http_reply reply;
    daemon_stop(&the_daemon);
    disk_attach();
    redisContext *client = client_start(&the_daemon, (const char *const[]){"--appendfsync", "always", NULL});
    expect(client, ":1", "BF.ADD f x");
    expect_status(200, "/readyz", "");
    atomic_store(&disk->write_error, ENOSPC);
    redisAppendCommand(client, "BF.ADD f y"); /* its reply waits for the disk */
    for (int done = 0; !done;)
        cr_assert_eq(redisBufferWrite(client, &done), REDIS_OK);
    wait_until(status_of("/readyz", "") != 200);
    http_get(the_daemon.web_port, "/readyz", "", &reply);
    cr_assert_eq(reply.status, 503);
    cr_assert_str_eq(reply.body, "the log cannot be written: writes are refused\n");
    http_free(&reply);
    http_get(the_daemon.web_port, "/metrics", "", &reply);
    cr_assert(strstr(reply.body, "\nbloomery_log_writable 0\n") && strstr(reply.body, "\nbloomery_ready 0\n"));
    http_free(&reply);
    expect_status(200, "/healthz", "");
    disk_mend();
    wait_until(status_of("/readyz", "") == 200);
    client_skip(client, 1);
}

CLIENT_TEST(the_daemon, web, it_is_not_ready_while_it_is_read_only)
{
    struct http_reply reply;
    expect(client, "+OK", "CONFIG SET read-only yes");
    http_get(the_daemon.web_port, "/readyz", "", &reply);
    cr_assert_eq(reply.status, 503);
    cr_assert_str_eq(reply.body, "read-only is yes: writes are refused\n");
    http_free(&reply);
    expect(client, "+OK", "CONFIG SET read-only no");
    expect_status(200, "/readyz", "");
}

/* ---- settings ---- */

/* An occupied port, and the same port twice, stop the start with the reason. */
DAEMON_TEST(the_daemon, web, wrong_ports_stop_the_start)
{
    const char *output;
    char port[16], dir[400];
    snprintf(port, sizeof(port), "%d", the_daemon.web_port);
    snprintf(dir, sizeof(dir), "%s/other", the_daemon.dir);
    const char *const taken[] = {"--port", "0", "--unixsocket", "/proc/none/socket", "--metrics-port", port, "--dir",
                                 dir,      NULL};
    cr_assert_eq(daemon_run(taken, NULL, &output), DAEMON_MISCONFIGURED);
    cr_assert(strstr(output, "cannot listen on 127.0.0.1:"), "%s", output);
    const char *const twice[] = {"--port", "7777", "--metrics-port", "7777", NULL};
    cr_assert_eq(daemon_run(twice, NULL, &output), DAEMON_MISCONFIGURED);
    cr_assert(strstr(output, "'metrics-port' is the same as 'port'"), "%s", output);
}

/* The daemon ends immediately, with any clients connected. */
DAEMON_TEST(the_daemon, web, the_end_does_not_wait_for_its_clients)
{
    int fds[20];
    for (int i = 0; i < 20; i++) {
        fds[i] = http_connect(the_daemon.web_port);
        (void)!send(fds[i], "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", i % 2 ? 43 : 20, MSG_NOSIGNAL);
    }
    double began = wait_clock();
    daemon_stop(&the_daemon);
    double took = wait_clock() - began;
    cr_log_info("the end took %.3f s", took);
    cr_assert_lt(took, 10);
    for (int i = 0; i < 20; i++)
        close(fds[i]);
}
