/* bench_load: sends requests to a RESP server of this machine over many connections, by one thread, and prints rates
 * and latencies as JSON. For scripts/bench and scripts/bench_tail; users have redis-benchmark and memtier_benchmark.
 *
 *   bench_load 'BF.EXISTS small {item}' --port 6379 [option ...]      options: see read_option()
 *
 * A word {item} of the line is an item of 16 bytes, {items} are --batch of them. The items have numbers from --start
 * on:
 * --items of them, at random, or new ones in turn with --new; --hits is the share of queries for these, and the others
 * are for items that nobody adds.
 *
 * Closed loop (no --rate): each connection sends --pipeline requests at once, waits for all their replies, and goes on.
 * The latency of a request runs from the moment its batch is handed to the kernel to the moment its reply is read.
 *
 * Open loop (--rate): requests are due at fixed moments, however slow the server is. Each is sent when it is due, or
 * later if all connections have --pipeline requests under way: then its latency runs from the moment it was due, so a
 * stall of the server is charged for every request due during it. If the generator itself was late (asleep, or without
 * a processor), the latency runs from when it noticed the request, and that delay is shown apart. A latency ends when
 * the kernel has the reply. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* after <time.h>, without which they do not compile */
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>

#include "buf.h"
#include "clock.h"
#include "percentiles.h"
#include "resp_reply.h"
#include "tls_stream.h"

#define READ_SIZE (256 * 1024)
#define ITEM_SIZE 16
#define EVENTS    256
#define ABSENT    (UINT64_C(1) << 62) /* items of these numbers are never added */

struct options {
    const char *line, *unixpath, *cacert; /* `cacert`: with TLS */
    double port, pid, connections, pipeline, batch, requests, seconds, warmup, rate, hits, items, start;
    bool new_items;
};

/* A request: the bytes, with places for items. */
struct request {
    struct buf bytes, places; /* size_t, offsets in `bytes` */
    size_t nitems;
};

/* A connection. Requests under way: sent but not answered, oldest first in `since`, a ring. */
struct client {
    int fd;
    bool wants_write;
    unsigned under_way, oldest;
    uint64_t *since; /* ns, from when each request under way is charged to the server */
    struct buf out;  /* not taken by the kernel yet; with TLS these are records */
    struct buf in;   /* the beginning of a reply */
    struct tls_stream *tls;
    struct resp_reply_reader reader;
};

static struct options options = {
    .port = 6379, .connections = 50, .pipeline = 1, .batch = 100, .warmup = -1, .hits = 1, .items = 1000000};
static struct request request;
static struct client *clients;
static unsigned nclients, pipeline;
static struct tls_context *tls;
static int epoll;
static uint64_t requests_left, next_item, random_state = 1;
static char *requests; /* a pipeline of them */
static char received[READ_SIZE], plain[READ_SIZE + TLS_RECORD_MAX];

/* From the end of the warm-up on. */
static struct {
    bool on;
    uint64_t began, answered, ones, zeros;
    struct percentiles latency, lateness;
} measured;

/* Of the open loop. */
static struct {
    uint64_t start;
    uint64_t next;    /* the request that is sent next */
    uint64_t seen;    /* those below it were due at the last look */
    uint64_t noticed; /* those below it count from... */
    uint64_t noticed_ns;
} schedule;

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "bench_load: ");
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* ---- options ---- */

static const struct {
    const char *name;
    double *value;
} numbers[] = {
    {"--pid", &options.pid},           {"--port", &options.port},     {"--connections", &options.connections},
    {"--pipeline", &options.pipeline}, {"--batch", &options.batch},   {"--requests", &options.requests},
    {"--time", &options.seconds},      {"--warmup", &options.warmup}, {"--rate", &options.rate},
    {"--hits", &options.hits},         {"--items", &options.items},   {"--start", &options.start},
};

/* Returns the number of words taken. */
static int read_option(char **argv)
{
    char *end;
    if (strcmp(argv[0], "--new") == 0) {
        options.new_items = true;
        return 1;
    }
    if (!argv[1])
        fail("%s needs a value", argv[0]);
    if (strcmp(argv[0], "--unix") == 0) {
        options.unixpath = argv[1];
        return 2;
    }
    if (strcmp(argv[0], "--cacert") == 0) {
        options.cacert = argv[1];
        return 2;
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (strcmp(argv[0], numbers[i].name) == 0) {
            *numbers[i].value = strtod(argv[1], &end);
            if (*end || *numbers[i].value < 0)
                fail("%s '%s' is not a number", argv[0], argv[1]);
            return 2;
        }
    }
    fail("unknown option '%s'", argv[0]);
}

static void read_options(char **argv)
{
    if (!argv[1] || argv[1][0] == '-')
        fail("usage: bench_load 'COMMAND {item}' [--port N | --unix PATH] [--cacert FILE] [--pid N]\n"
             "  [--connections N] [--pipeline N] [--time S] [--warmup S] [--requests N] [--rate N] [--batch N] "
             "[--items N] [--start N]\n"
             "  [--new] [--hits SHARE]");
    options.line = argv[1];
    for (argv += 2; *argv;)
        argv += read_option(argv);
    if (options.warmup < 0)
        options.warmup = options.requests > 0 ? 0 : 1;
    if (options.seconds <= 0 && options.requests <= 0)
        options.seconds = 10;
    nclients = (unsigned)options.connections;
    pipeline = (unsigned)options.pipeline;
    if (nclients < 1 || pipeline < 1 || options.items < 1)
        fail("--connections, --pipeline and --items are at least 1");
    requests_left = options.requests > 0 ? (uint64_t)options.requests : UINT64_MAX;
    next_item = (uint64_t)options.start;
}

/* ---- requests ---- */

static void make_request(void)
{
    struct buf words;
    unsigned nwords = 0;
    buf_init(&words, UINT32_MAX);
    buf_init(&request.bytes, UINT32_MAX);
    buf_init(&request.places, UINT32_MAX);
    for (const char *p = options.line + strspn(options.line, " "); *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        bool many = len == 7 && memcmp(p, "{items}", 7) == 0, one = len == 6 && memcmp(p, "{item}", 6) == 0;
        unsigned n = many ? (unsigned)options.batch : 1;
        for (unsigned i = 0; i < n; i++) {
            buf_appendf(&words, "$%zu\r\n", many || one ? (size_t)ITEM_SIZE : len);
            size_t place = buf_len(&words);
            if (many || one)
                buf_append(&request.places, &place, sizeof(place));
            buf_appendf(&words, "%.*s\r\n", many || one ? ITEM_SIZE : (int)len, many || one ? "0123456789abcdef" : p);
        }
        nwords += n;
        p += len;
    }
    buf_appendf(&request.bytes, "*%u\r\n", nwords);
    size_t head = buf_len(&request.bytes), *places = (void *)buf_head(&request.places);
    request.nitems = buf_len(&request.places) / sizeof(*places);
    for (size_t i = 0; i < request.nitems; i++)
        places[i] += head;
    buf_append(&request.bytes, buf_head(&words), buf_len(&words));
    buf_deinit(&words);
    requests = malloc(buf_len(&request.bytes) * pipeline);
    if (nwords == 0 || !requests)
        fail(nwords ? "out of memory" : "the command is empty");
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t random_number(void)
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t choose_item(void)
{
    if (options.hits < 1 && (double)(random_number() >> 11) * 0x1p-53 >= options.hits)
        return ABSENT + (random_number() >> 3);
    if (options.new_items)
        return next_item++;
    return (uint64_t)options.start + (uint64_t)(((unsigned __int128)random_number() * (uint64_t)options.items) >> 64);
}

/* The eight hexadecimal digits of a number, the lowest first, one in each byte from the lowest on. */
static uint64_t hex_digits(uint32_t number)
{
    uint64_t v = number;
    v = (v | v << 16) & UINT64_C(0x0000ffff0000ffff);
    v = (v | v << 8) & UINT64_C(0x00ff00ff00ff00ff);
    v = (v | v << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    uint64_t letters = (v + UINT64_C(0x0606060606060606)) >> 4 & UINT64_C(0x0101010101010101);
    return v + UINT64_C(0x3030303030303030) + letters * ('a' - '0' - 10);
}

static size_t write_request(char *out)
{
    const size_t *places = (const void *)buf_head(&request.places);
    size_t len = buf_len(&request.bytes);
    memcpy(out, buf_head(&request.bytes), len);
    for (size_t i = 0; i < request.nitems; i++) {
        uint64_t number = choose_item();
        uint64_t low = htole64(hex_digits((uint32_t)number)), high = htole64(hex_digits((uint32_t)(number >> 32)));
        memcpy(out + places[i], &low, 8);
        memcpy(out + places[i] + 8, &high, 8);
    }
    return len;
}

/* ---- connections ---- */

static int connect_socket(void)
{
    struct sockaddr_in inet = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    int one = 1, fd = socket(options.unixpath ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    inet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (options.unixpath)
        snprintf(local.sun_path, sizeof(local.sun_path), "%s", options.unixpath);
    int status = options.unixpath ? connect(fd, (struct sockaddr *)&local, sizeof(local))
                                  : connect(fd, (struct sockaddr *)&inet, sizeof(inet));
    if (fd < 0 || status != 0)
        fail("cannot connect: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

/* Sends what the kernel takes. */
static void flush(struct client *client)
{
    while (buf_len(&client->out)) {
        ssize_t n = send(client->fd, buf_head(&client->out), buf_len(&client->out), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0 && errno != EINTR)
            fail("cannot send: %s", strerror(errno));
        buf_consume(&client->out, n > 0 ? (size_t)n : 0);
    }
    bool left = buf_len(&client->out) > 0;
    if (left != client->wants_write) {
        struct epoll_event event = {.events = EPOLLIN | (left ? EPOLLOUT : 0u), .data.ptr = client};
        client->wants_write = left;
        if (epoll_ctl(epoll, EPOLL_CTL_MOD, client->fd, &event) != 0)
            fail("epoll: %s", strerror(errno));
    }
}

static void shake_hands(struct client *client)
{
    struct errbuf err = {""};
    size_t len = 0, consumed, n;
    client->tls = tls_stream_create();
    for (enum tls_status status = TLS_MORE; status != TLS_OK;) {
        status = tls_stream_handshake(client->tls, tls, "localhost", received, len, &consumed, &client->out, &err);
        flush(client);
        ssize_t got = status == TLS_MORE ? recv(client->fd, received, sizeof(received), 0) : 1;
        if (got <= 0 || status == TLS_FAILED)
            fail("TLS: %s", err.text[0] ? err.text : "the server closed the connection");
        len = status == TLS_OK ? len : (size_t)got;
    }
    /* A server may send its tickets at once. */
    if (consumed < len && tls_stream_read(client->tls, received + consumed, len - consumed, plain, sizeof(plain), &n,
                                          &client->out, &err) != TLS_OK)
        fail("TLS: %s", err.text);
}

static void open_client(struct client *client)
{
    /* The kernel notes the time of arrival, so this thread may read the data later; not every kind of socket can. */
    int flags = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    client->fd = connect_socket();
    client->since = calloc(pipeline, sizeof(*client->since));
    buf_init(&client->out, UINT32_MAX);
    buf_init(&client->in, UINT32_MAX);
    if (tls)
        shake_hands(client);
    if (options.rate > 0)
        (void)setsockopt(client->fd, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof(flags));
    if (!client->since || epoll_ctl(epoll, EPOLL_CTL_ADD, client->fd, &event) != 0)
        fail("cannot prepare a connection: %s", strerror(errno));
}

/* Sends `n` requests that are charged from `since`. */
static void send_requests(struct client *client, unsigned n, uint64_t since)
{
    struct errbuf err = {""};
    size_t len = 0;
    for (unsigned i = 0; i < n; i++) {
        client->since[(client->oldest + client->under_way++) % pipeline] = since;
        len += write_request(requests + len);
    }
    requests_left -= requests_left == UINT64_MAX ? 0 : n;
    if (!client->tls)
        buf_append(&client->out, requests, len);
    else if (tls_stream_write(client->tls, requests, len, &client->out, &err) != TLS_OK)
        fail("TLS: %s", err.text);
    flush(client);
}

static void send_batch(struct client *client)
{
    unsigned n = requests_left < pipeline ? (unsigned)requests_left : pipeline;
    if (n > 0)
        send_requests(client, n, clock_ns());
}

/* ---- replies ---- */

/* How long ago the kernel received the bytes. The stamps are of the clock of the day. */
static uint64_t age_of(struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        struct scm_timestamping stamps;
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPING)
            continue;
        memcpy(&stamps, CMSG_DATA(c), sizeof(stamps));
        int64_t ns = (int64_t)clock_unix_ns() - ((int64_t)stamps.ts[0].tv_sec * 1000000000 + stamps.ts[0].tv_nsec);
        return ns > 0 ? (uint64_t)ns : 0;
    }
    return 0;
}

static void count(const struct resp_reply *reply)
{
    for (size_t i = 0; i < reply->count; i++) {
        const struct resp_reply_node *node = &reply->nodes[i];
        measured.ones += node->kind == RESP_REPLY_INTEGER && node->number == 1;
        measured.zeros += node->kind == RESP_REPLY_INTEGER && node->number == 0;
        if (node->kind == RESP_REPLY_ERROR) /* numbers of refused requests would mean nothing */
            fail("the server replied: %.*s", (int)node->len, reply->base + node->off);
    }
}

/* Takes the whole replies; returns their number. */
static uint64_t take_replies(struct client *client, const char *data, size_t len)
{
    uint64_t replies = 0;
    size_t at = 0, taken, needs;
    struct resp_reply reply;
    if (buf_len(&client->in) > 0) {
        buf_append(&client->in, data, len);
        data = buf_head(&client->in);
        len = buf_len(&client->in);
    }
    while (at < len) {
        if (len - at >= 4 && data[at] == ':' && data[at + 2] == '\r') { /* most replies */
            measured.ones += data[at + 1] == '1';
            measured.zeros += data[at + 1] == '0';
            at += 4;
            replies++;
            continue;
        }
        enum resp_reply_status status = resp_reply_next(&client->reader, data + at, len - at, &taken, &needs, &reply);
        if (status == RESP_REPLY_NEED_MORE)
            break;
        if (status != RESP_REPLY_WHOLE)
            fail("cannot read the server's reply");
        count(&reply);
        at += taken;
        replies++;
    }
    if (buf_len(&client->in) > 0)
        buf_consume(&client->in, at);
    else
        buf_append(&client->in, data + at, len - at);
    return replies;
}

static void receive(struct client *client)
{
    char control[256];
    struct iovec part = {.iov_base = received, .iov_len = sizeof(received)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct errbuf err = {""};
    if (options.rate > 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
    }
    ssize_t n = recvmsg(client->fd, &message, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        fail("%s", n == 0 ? "the server closed a connection" : strerror(errno));
    uint64_t arrived = clock_ns() - (options.rate > 0 ? age_of(&message) : 0);
    size_t len = (size_t)n;
    if (client->tls &&
        tls_stream_read(client->tls, received, len, plain, sizeof(plain), &len, &client->out, &err) != TLS_OK)
        fail("TLS: %s", err.text[0] ? err.text : "the server closed a connection");
    uint64_t replies = take_replies(client, client->tls ? plain : received, len);
    if (replies > client->under_way)
        fail("more replies than requests");
    measured.answered += replies;
    client->under_way -= (unsigned)replies;
    for (uint64_t same; replies > 0; replies -= same) { /* requests of one batch have one time: recorded at once */
        uint64_t since = client->since[client->oldest];
        for (same = 0; same < replies && client->since[client->oldest] == since; same++)
            client->oldest = client->oldest + 1 == pipeline ? 0 : client->oldest + 1;
        if (measured.on)
            percentiles_add(&measured.latency, arrived > since ? arrived - since : 0, same);
    }
    if (options.rate <= 0 && client->under_way == 0)
        send_batch(client);
}

/* ---- the open loop ---- */

static uint64_t due_at(uint64_t n)
{
    return schedule.start + (uint64_t)((double)n * 1e9 / options.rate);
}

/* Notices the requests that are due by now, and sends them while connections are free. */
static void send_due(uint64_t now)
{
    static unsigned turn;
    bool waited = schedule.next < schedule.seen; /* for the server, so the requests due now would have waited, too */
    for (uint64_t due; (due = due_at(schedule.seen)) <= now; schedule.seen++) {
        if (!waited && measured.on)
            percentiles_add(&measured.lateness, now - due, 1);
    }
    if (!waited) {
        schedule.noticed = schedule.seen;
        schedule.noticed_ns = now;
    }
    for (unsigned full = 0; full < nclients && requests_left > 0 && schedule.next < schedule.seen;) {
        struct client *client = &clients[turn++ % nclients];
        if (client->under_way == pipeline || client->wants_write) {
            full++;
            continue;
        }
        full = 0;
        uint64_t n = schedule.next++;
        send_requests(client, 1, n < schedule.noticed ? schedule.noticed_ns : due_at(n));
    }
}

/* The time until the next request is due. */
static struct timespec pause_at(uint64_t now)
{
    struct timespec pause = {.tv_nsec = 50000000};
    if (options.rate <= 0 || requests_left == 0)
        return pause;
    uint64_t due = due_at(schedule.seen);
    if (schedule.next < schedule.seen) /* all connections are full: their replies come first */
        pause.tv_nsec = 1000000;
    else if (due - now < (uint64_t)pause.tv_nsec)
        pause.tv_nsec = (long)(due - now);
    return pause;
}

/* ---- a run ---- */

/* Seconds of processor time of the server, if its --pid is given. */
static double server_cpu(void)
{
    struct timespec used = {0};
    clockid_t clock;
    if (options.pid > 0 && (clock_getcpuclockid((pid_t)options.pid, &clock) != 0 || clock_gettime(clock, &used) != 0))
        fail("no process %.0f", options.pid);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

static bool any_under_way(void)
{
    for (unsigned i = 0; i < nclients; i++)
        if (clients[i].under_way)
            return true;
    return false;
}

static void run(void)
{
    struct epoll_event events[EVENTS];
    uint64_t start = clock_ns(), measure_from = start + (uint64_t)(options.warmup * 1e9);
    uint64_t end = options.seconds > 0 ? measure_from + (uint64_t)(options.seconds * 1e9) : UINT64_MAX;
    schedule.start = start;
    for (unsigned i = 0; i < nclients && options.rate <= 0; i++)
        send_batch(&clients[i]);
    for (uint64_t now = start; now < end && (requests_left > 0 || any_under_way()); now = clock_ns()) {
        if (!measured.on && now >= measure_from) {
            measured.on = true;
            measured.began = now;
            measured.answered = measured.ones = measured.zeros = 0;
        }
        if (options.rate > 0)
            send_due(now);
        struct timespec pause = pause_at(now);
        int n = epoll_pwait2(epoll, events, EVENTS, &pause, NULL);
        if (n < 0 && errno != EINTR)
            fail("epoll: %s", strerror(errno));
        for (int i = 0; i < n; i++) {
            struct client *client = events[i].data.ptr;
            if (events[i].events & EPOLLOUT)
                flush(client);
            if (events[i].events & ~(uint32_t)EPOLLOUT)
                receive(client);
        }
    }
}

static void print_percentiles(const char *prefix, const struct percentiles *p)
{
    static const double at[] = {50, 90, 99, 99.9, 99.99};
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
        printf(", \"%sp%g\":%.3f", prefix, at[i], (double)percentiles_at(p, at[i]) / 1000);
    printf(", \"%smax\":%.3f", prefix, (double)p->max / 1000);
}

int main(int argc, char **argv)
{
    struct errbuf err = {""};
    (void)argc;
    read_options(argv);
    make_request();
    const struct tls_client_settings settings = {.ca_cert_file = options.cacert};
    if (options.cacert && tls_context_client(&settings, &tls, &err) != 0)
        fail("%s", err.text);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    clients = calloc(nclients, sizeof(*clients));
    if (epoll < 0 || !clients)
        fail("out of memory");
    for (unsigned i = 0; i < nclients; i++)
        open_client(&clients[i]);
    double cpu = server_cpu();
    run();
    double seconds = (double)(clock_ns() - measured.began) / 1e9, per_second = (double)measured.answered / seconds;
    double cpu_end = server_cpu();
    /* The server's time for a second of the warm-up is taken to be that for a second of the run. */
    cpu = (cpu_end - cpu) * seconds / (seconds + options.warmup);
    printf("{\"requests\":%llu, \"seconds\":%.6f, \"requests_per_second\":%.3f, \"items_per_request\":%zu",
           (unsigned long long)measured.answered, seconds, per_second, request.nitems);
    printf(", \"ones\":%llu, \"zeros\":%llu", (unsigned long long)measured.ones, (unsigned long long)measured.zeros);
    printf(", \"server_cpu_seconds\":%.6f, \"generator_cpu_seconds\":%.6f", cpu, (double)clock_thread_ns() / 1e9);
    print_percentiles("", &measured.latency);
    if (options.rate > 0)
        print_percentiles("lateness_", &measured.lateness);
    printf("}\n");
    return fflush(stdout) != 0;
}
