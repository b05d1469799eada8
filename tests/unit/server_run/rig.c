#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "exclusive.h"
#include "registry.h"
#include "lock.h"
#include "persistence.h"
#include "tmpdir.h"

#define MAX_CONNECTIONS 1024

static struct server *server;
static char own_dir[TMPDIR_SIZE];
static int connections[MAX_CONNECTIONS];
static size_t nconnections;

/* ---- the server ---- */

static bool shutdown_refused(struct server *unused, const struct shutdown_request *request, struct errbuf *err)
{
    (void)unused, (void)request;
    errbuf_set(err, "this server does not end");
    return false;
}

static void set(struct config *config, const char *name, const char *value)
{
    struct errbuf err = {""};
    cr_assert_eq(config_set(config, slice_of(name), slice_of(value), CONFIG_FILE, &err), CONFIG_OK, "%s %s: %s", name,
                 value, err.text);
}

static void start(enum server_parts parts)
{
    struct errbuf err = {""};
    cr_assert_eq(server_start(server, parts, &err), 0, "%s", err.text);
}

static void on_loaded(struct server *unused)
{
    (void)unused;
}

struct buf rig_requests;

struct server *rig_begin(unsigned workers, const char *dir, const char *const *settings)
{
    struct config *config = calloc(1, sizeof(*config));
    struct errbuf err = {""};
    cr_assert_not_null(config);
    cr_assert_eq(config_init(config), 0);
    buf_init(&rig_requests, SIZE_MAX);
    own_dir[0] = '\0';
    if (!dir)
        tmpdir_create(own_dir);
    set(config, "dir", dir ? dir : own_dir);
    set(config, "appendonly", dir ? "yes" : "no");
    set(config, "loglevel", "nothing");
    set(config, "load-threads", "1");
    for (; settings && settings[0]; settings += 2)
        set(config, settings[0], settings[1]);
    cr_assert_eq(server_create(&server, config, workers, &err), 0, "%s", err.text);
    server->calls.shutdown = shutdown_refused;
    start(PARTS_DATA);
    start(PARTS_WORKERS);
    cr_assert_eq(load_start(server, on_loaded), 0);
    cr_assert_eq(load_join(server, &err), 0, "%s", err.text);
    return server;
}

void rig_end(void)
{
    while (nconnections > 0)
        rig_close(connections[nconnections - 1]);
    server_destroy(server);
    server = NULL;
    buf_deinit(&rig_requests);
    if (own_dir[0])
        tmpdir_remove(own_dir);
}

struct server *rig_server(void)
{
    return server;
}

/* ---- connections ---- */

int rig_connect(unsigned worker)
{
    int ends[2];
    cr_assert_lt(nconnections, MAX_CONNECTIONS);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    cr_assert_eq(worker_post_connection(server->threads.workers[worker], ends[1], false), 0);
    connections[nconnections++] = ends[0];
    return ends[0];
}

void rig_close(int fd)
{
    size_t i = 0;
    while (connections[i] != fd)
        cr_assert_lt(++i, nconnections, "descriptor %d is no connection", fd);
    connections[i] = connections[--nconnections];
    close(fd);
}

void rig_request(struct buf *out, const char *line)
{
    size_t words = 1;
    for (const char *at = line; *at; at++)
        words += *at == ' ';
    buf_appendf(out, "*%zu\r\n", words);
    for (const char *at = line; words > 0; words--) {
        size_t len = strcspn(at, " ");
        buf_appendf(out, "$%zu\r\n", len);
        buf_append(out, at, len);
        buf_append(out, "\r\n", 2);
        at += len + 1;
    }
    cr_assert_not(buf_failed(out));
}

static void wait_for(int fd, short events)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    cr_assert_eq(poll(&poll_fd, 1, WAIT_PATIENCE_S * 1000), 1, "nothing has happened at descriptor %d", fd);
}

void rig_send_bytes(int fd, const void *bytes, size_t len)
{
    const char *at = bytes;
    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            wait_for(fd, POLLOUT);
            continue;
        }
        cr_assert_gt(n, 0, "%s", strerror(errno));
        at += n;
        len -= (size_t)n;
    }
}

bool rig_try_send(int fd, const void *bytes, size_t len)
{
    ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
    cr_assert(n == (ssize_t)len || (n < 0 && errno == EAGAIN), "%zd of %zu bytes", n, len);
    return n > 0;
}

void rig_send_buf(int fd, struct buf *requests)
{
    rig_send_bytes(fd, buf_head(requests), buf_len(requests));
    buf_truncate(requests, 0);
}

void rig_send(int fd, const char *line)
{
    struct buf out;
    buf_init(&out, SIZE_MAX);
    rig_request(&out, line);
    rig_send_buf(fd, &out);
    buf_deinit(&out);
}

char *rig_read(int fd, size_t len)
{
    char *bytes = malloc(len + 1);
    size_t have = 0;
    cr_assert_not_null(bytes);
    while (have < len) {
        ssize_t n = recv(fd, bytes + have, len - have, 0);
        if (n < 0 && errno == EAGAIN) {
            wait_for(fd, POLLIN);
            continue;
        }
        cr_assert_gt(n, 0, "the connection has ended behind '%.*s'", (int)have, bytes);
        have += (size_t)n;
    }
    bytes[len] = '\0';
    return bytes;
}

void rig_expect(int fd, const char *bytes)
{
    size_t len = strlen(bytes), have = 0;
    char *got = calloc(1, len + 1);
    while (have < len) {
        ssize_t n = recv(fd, got + have, len - have, 0);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
            cr_assert_eq(poll(&poll_fd, 1, WAIT_PATIENCE_S * 1000), 1, "'%s' and no more, instead of '%s'", got, bytes);
            continue;
        }
        cr_assert_gt(n, 0, "'%s' and the end, instead of '%s'", got, bytes);
        have += (size_t)n;
        cr_assert_eq(memcmp(got, bytes, have), 0, "'%s' instead of '%s'", got, bytes);
    }
    free(got);
}

void rig_call(int fd, const char *line, const char *reply)
{
    rig_send(fd, line);
    rig_expect(fd, reply);
}

char *rig_replies(int fd, struct buf *requests, size_t *len_out)
{
    static const char end[] = "$7\r\nthe-end\r\n";
    const size_t end_len = sizeof(end) - 1;
    struct buf got;
    char chunk[65536];
    buf_init(&got, SIZE_MAX);
    rig_request(requests, "PING the-end");
    rig_send_buf(fd, requests);
    while (buf_len(&got) < end_len || memcmp(buf_head(&got) + buf_len(&got) - end_len, end, end_len) != 0) {
        ssize_t n = recv(fd, chunk, sizeof(chunk), 0);
        if (n < 0 && errno == EAGAIN) {
            wait_for(fd, POLLIN);
            continue;
        }
        cr_assert_gt(n, 0, "the connection has ended");
        buf_append(&got, chunk, (size_t)n);
        cr_assert_not(buf_failed(&got));
    }
    *len_out = buf_len(&got) - end_len;
    char *bytes = calloc(1, *len_out + 1);
    memcpy(bytes, buf_head(&got), *len_out);
    buf_deinit(&got);
    return bytes;
}

void rig_expect_silence(int fd)
{
    char byte;
    cr_assert_eq(recv(fd, &byte, 1, MSG_PEEK), -1, "'%c' has come", byte);
    cr_assert_eq(errno, EAGAIN);
}

void rig_end_of_input(int fd)
{
    cr_assert_eq(shutdown(fd, SHUT_WR), 0);
}

void rig_expect_end(int fd)
{
    char bytes[4096];
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof(bytes), 0)) != 0 && !(n < 0 && errno == ECONNRESET)) {
        cr_assert(n > 0 || errno == EAGAIN, "%s", strerror(errno));
        if (n < 0)
            wait_for(fd, POLLIN);
    }
}

/* ---- the workers ---- */

static struct worker_gate gate;

void rig_hold(void)
{
    unsigned n = server->threads.nworkers;
    sem_init(&gate.passed, 0, 0);
    sem_init(&gate.open, 0, 0);
    gate.ends = false;
    exclusive_order_lock(server->exclusive);
    for (unsigned i = 0; i < n; i++)
        cr_assert_eq(worker_post_gate(server->threads.workers[i], &gate), 0);
    exclusive_order_unlock(server->exclusive);
    for (unsigned i = 0; i < n; i++)
        lock_wait_for(&gate.passed);
}

void rig_let_go(void)
{
    unsigned n = server->threads.nworkers;
    for (unsigned i = 0; i < n; i++)
        sem_post(&gate.open);
    for (unsigned i = 0; i < n; i++)
        lock_wait_for(&gate.passed);
    sem_destroy(&gate.passed);
    sem_destroy(&gate.open);
}

struct call {
    void (*run)(struct worker *worker, void *arg);
    void *arg;
    sem_t done;
};

static void run_call(struct worker *worker, void *arg)
{
    struct call *call = arg;
    if (call->run)
        call->run(worker, call->arg);
    sem_post(&call->done);
}

void rig_on_loop(unsigned worker, void (*run)(struct worker *worker, void *arg), void *arg)
{
    struct call call = {.run = run, .arg = arg};
    sem_init(&call.done, 0, 0);
    cr_assert_eq(worker_post(server->threads.workers[worker], run_call, &call), 0);
    lock_wait_for(&call.done);
    sem_destroy(&call.done);
}

/* The second message cannot be taken before the iteration that ran the first one has ended. */
void rig_pass(unsigned worker)
{
    rig_on_loop(worker, NULL, NULL);
    rig_on_loop(worker, NULL, NULL);
}
