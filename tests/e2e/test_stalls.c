/* The time for which one client can make another client of the same worker wait.
 *
 * The table has each command at its worst, as tests/bench/find_stalls.py finds it: the script tries many forms of
 * arguments for every command of COMMAND LIST and prints the slowest; each slow one gets a row here. One client
 * sends the row, and closes its connection; another client sends PING throughout. The goal is 20 ms on a quiet
 * machine; the bound of the test is wider, and the least of several tries counts. Other programs may have the
 * processors: time in which the worker, or the waiting client, is ready to run and does not run is not counted. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "text.h"
#include "wire.h"

#define GOAL_MS  20
#define BOUND_MS (DAEMON_SANITIZED ? 1500 : 120)
#define LESS     (DAEMON_SANITIZED ? 10 : 1) /* this much less is sent, since all is slower */
#define TRIES    5                           /* the first that reaches the goal ends the test */
#define MOST_TRIES \
    (5 * TRIES) /* above the bound: others' threads may keep one from its processor that this waits for */

DAEMON_SUITE(the_daemon, stalls, "--threads", "1", "--enable-debug-command", "yes", "--client-subscriptions-limit",
             "256mb");

struct row {
    const char *call; /* words separated by single spaces */
    int words;        /* this many words after them, all different */
    size_t bytes;     /* one word of this many bytes after those */
    int large;        /* this many words of a megabyte instead */
    int times;        /* number of calls in one write; 0: one */
    bool in_multi;    /* between MULTI, PING and EXEC */
};

#define MB ((size_t)1000 * 1000)

static const struct row rows[] = {
    /* small commands that are expensive */
    {.call = "BF.PLAN 1e-9 100 ITEMS 9223372036854775807", .times = 400},
    {.call = "BF.PLAN 0.01 100 EXPANSION 1 ITEMS 9999999999", .times = 400},
    {.call = "BF.RESERVE x 1e-9 9223372036854775807", .times = 400},
    {.call = "BF.RESERVE x 1e-9 0", .times = 400},
    {.call = "CONFIG GET *", .times = 400},
    {.call = "COMMAND DOCS", .times = 300},
    {.call = "COMMAND LIST FILTERBY PATTERN *a*b*c*d*e*", .times = 400},
    {.call = "NOSUCH", .times = 30000},
    {.call = "CF.ADD full other", .times = 2000},
    {.call = "BF.EXISTS deep other", .times = 5000},
    /* very many words; and the end of such a client */
    {.call = "SUBSCRIBE", .words = 300000},
    {.call = "PSUBSCRIBE", .words = 50000},
    {.call = "UNSUBSCRIBE", .words = 300000},
    {.call = "WATCH", .words = 1000000},
    {.call = "EXISTS", .words = 1000000},
    {.call = "PUBSUB NUMSUB", .words = 300000},
    {.call = "COMMAND GETKEYS DEL", .words = 300000},
    {.call = "BF.MADD big", .words = 500000},
    {.call = "BF.RESERVE x 0.01 100 TTL 1", .words = 300000},
    /* large words */
    {.call = "ECHO", .bytes = 200 * MB},
    {.call = "PUBLISH c", .bytes = 200 * MB},
    {.call = "AUTH default", .bytes = 7 * MB},
    {.call = "EXISTS", .bytes = 200 * MB},
    {.call = "BF.MADD big", .large = 100},
    {.call = "BF.MEXISTS big", .large = 200},
    /* commands that all clients wait for */
    {.call = "COPY big big2", .in_multi = true},
    {.call = "BF.PLAN 1e-9 100 ITEMS 9223372036854775807", .times = 70, .in_multi = true},
    {.call = "BF.RESERVE x 1e-9 9223372036854775807", .times = 600, .in_multi = true},
    {.call = "CONFIG GET *a*b*c* *d*e*f* *g*h*i* *j*k*l* *m*n*o* *p*q*r*", .times = 70, .in_multi = true},
    {.call = "COMMAND DOCS", .times = 70, .in_multi = true},
    {.call = "BF.MADD fresh", .words = 32000, .in_multi = true},
    {.call = "BF.MEXISTS big", .words = 60000, .in_multi = true},
    {.call = "BF.MADD big", .words = 500000, .in_multi = true},
    {.call = "EXISTS", .words = 300000, .in_multi = true},
    {.call = "FLUSHALL", .in_multi = true},
    {.call = "DEBUG SLEEP 1", .in_multi = true},
};

/* ---- a growing text ---- */

static void add_word(struct text *text, const char *ptr, size_t len)
{
    text_print(text, "$%zu\r\n", len);
    text_add(text, ptr, len);
    text_add(text, "\r\n", 2);
}

static void add_call(struct text *text, const char *call, int words, size_t bytes, int large)
{
    char copy[8192], *rest = copy, name[32];
    size_t n = 1 + (size_t)words + (bytes > 0) + (size_t)large;
    cr_assert_lt(strlen(call), sizeof(copy));
    strcpy(copy, call);
    for (const char *at = copy; (at = strchr(at, ' ')); at++)
        n++;
    text_print(text, "*%zu\r\n", n);
    for (char *word; (word = strsep(&rest, " "));)
        add_word(text, word, strlen(word));
    for (int i = 0; i < words; i++)
        add_word(text, name, (size_t)sprintf(name, "word-%d", i));
    for (int i = 0; i < (bytes ? 1 : large); i++) {
        size_t len = bytes ? bytes : MB;
        char *word = malloc(len);
        cr_assert(word);
        memset(word, 'x' + i % 2, len);
        add_word(text, word, len);
        free(word);
    }
}

static void add_row(struct text *text, const struct row *row)
{
    if (row->in_multi) {
        add_call(text, "MULTI", 0, 0, 0);
        add_call(text, "PING", 0, 0, 0);
    }
    for (int i = 0; i < (row->times ? (row->times + LESS - 1) / LESS : 1); i++)
        add_call(text, row->call, row->words / LESS, row->bytes / LESS, row->large / LESS);
    if (row->in_multi)
        add_call(text, "EXEC", 0, 0, 0);
}

/* ---- the client that waits ---- */

static char worker_stat[300]; /* the system's figures of the worker's time */

static void find_worker(void)
{
    char path[300], name[32] = "";
    struct dirent *entry;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)the_daemon.pid);
    DIR *threads = opendir(path);
    cr_assert_not_null(threads);
    while (strcmp(name, "worker 0\n") != 0 && (entry = readdir(threads))) {
        snprintf(path, sizeof(path), "/proc/%d/task/%.20s/comm", (int)the_daemon.pid, entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file || !fgets(name, sizeof(name), file))
            name[0] = '\0';
        if (file)
            fclose(file);
        snprintf(worker_stat, sizeof(worker_stat), "/proc/%d/task/%.20s/schedstat", (int)the_daemon.pid, entry->d_name);
    }
    closedir(threads);
    cr_assert_str_eq(name, "worker 0\n");
}

/* The total time that a thread has waited for a processor, in ns; 0 if the system does not report it. */
static long long unserved_ns(const char *stat)
{
    long long ns = 0;
    FILE *file = fopen(stat, "r");
    if (!file || fscanf(file, "%*s %lld", &ns) != 1)
        ns = 0;
    if (file)
        fclose(file);
    return ns;
}

static long long both_unserved_ns(void)
{
    return unserved_ns(worker_stat) + unserved_ns("/proc/thread-self/schedstat");
}

struct pinger {
    pthread_t thread;
    _Atomic bool stop;
    _Atomic long long worst_ns;
};

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void *ping(void *arg)
{
    struct pinger *pinger = arg;
    char reply[16];
    struct wire wire = wire_to(the_daemon.port);
    while (!pinger->stop) {
        long long start = now_ns(), unserved = both_unserved_ns(), took;
        if (send(wire.fd, "PING\r\n", 6, MSG_NOSIGNAL) != 6 || recv(wire.fd, reply, 7, MSG_WAITALL) != 7)
            break;
        unserved = both_unserved_ns() - unserved;
        took = now_ns() - start - unserved;
        if (took > pinger->worst_ns)
            pinger->worst_ns = took;
        usleep(200);
    }
    wire_close(&wire);
    return NULL;
}

/* ---- the client that makes it wait ---- */

/* Reads replies until the last of them, which is LAST. */
#define LAST "$4\r\nlast\r\n"

static void *read_all(void *arg)
{
    static const size_t size = 1 << 20;
    int fd = *(int *)arg;
    size_t kept = 0;
    char *data = malloc(size);
    cr_assert(data);
    for (ssize_t n; (n = recv(fd, data + kept, size - kept, 0)) > 0;) {
        kept += (size_t)n;
        if (kept >= strlen(LAST) && memcmp(data + kept - strlen(LAST), LAST, strlen(LAST)) == 0)
            break;
        size_t keep = kept < strlen(LAST) ? kept : strlen(LAST);
        memmove(data, data + kept - keep, keep);
        kept = keep;
    }
    free(data);
    return NULL;
}

/* The longest PING, in ms, while the text is sent, answered and its connection closed. */
static double longest_ping(const struct text *text)
{
    struct pinger pinger = {.stop = false};
    pthread_t reader;
    struct wire wire = wire_to(the_daemon.port);
    cr_assert_eq(pthread_create(&pinger.thread, NULL, ping, &pinger), 0);
    cr_assert_eq(pthread_create(&reader, NULL, read_all, &wire.fd), 0);
    (void)wire_send(&wire, text->data, text->len); /* closed by the daemon: a limit has been passed */
    (void)wire_send_text(&wire, "DISCARD\r\nPING last\r\n");
    pthread_join(reader, NULL);
    wire_close(&wire);
    usleep(20000);
    pinger.stop = true;
    pthread_join(pinger.thread, NULL);
    return (double)pinger.worst_ns / 1e6;
}

static double least_of_tries(const struct text *text)
{
    double least = longest_ping(text);
    for (int i = 1; (i < TRIES && least > GOAL_MS) || (i < MOST_TRIES && least >= BOUND_MS); i++) {
        double again = longest_ping(text);
        least = again < least ? again : least;
    }
    return least;
}

static void label(const struct row *row, char label_out[160])
{
    int n = snprintf(label_out, 160, "%s%.60s", row->in_multi ? "MULTI ... " : "", row->call);
    if (row->words)
        n += snprintf(label_out + n, 160 - (size_t)n, " and %d words", row->words);
    if (row->bytes)
        n += snprintf(label_out + n, 160 - (size_t)n, " and %zu MB", row->bytes / MB);
    if (row->large)
        n += snprintf(label_out + n, 160 - (size_t)n, " and %d times 1 MB", row->large);
    if (row->times)
        snprintf(label_out + n, 160 - (size_t)n, ", %d times", row->times);
}

/* Filters for the rows to work on. */
static void prepare(void)
{
    redisContext *c = client_open(the_daemon.port);
    expect(c, "+OK", "BF.RESERVE big 0.000001 30000000");
    expect(c, "+OK", "BF.RESERVE fresh 0.000000001 200000000");
    client_add_items(c, "big", 0, 10000);
    expect(c, "+OK", "CF.RESERVE full 16000 MAXITERATIONS 65535 EXPANSION 0");
    for (int i = 0; i < 15000; i++)
        redisAppendCommand(c, "CF.ADD full item-%d", i);
    for (int i = 0; i < 15000; i++) { /* the last ones find it full */
        redisReply *reply = NULL;
        cr_assert_eq(redisGetReply(c, (void **)&reply), REDIS_OK);
        freeReplyObject(reply);
    }
    expect(c, "+OK", "BF.RESERVE deep 0.01 50 EXPANSION 1");
    client_for_items(c, "BF.MADD", "deep", "item-", 8000);
    redisFree(c);
}

DAEMON_TEST(the_daemon, stalls, every_command_at_its_worst)
{
    double worst = 0;
    prepare();
    find_worker();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct text text = {0};
        char name[160];
        add_row(&text, &rows[i]);
        double ms = least_of_tries(&text);
        label(&rows[i], name);
        fprintf(stderr, "%8.1f ms  %s\n", ms, name);
        cr_expect_lt(ms, BOUND_MS, "%s: another client waited for %.1f ms", name, ms);
        worst = ms > worst ? ms : worst;
        free(text.data);
    }
    fprintf(stderr, "%8.1f ms  the longest of all; the goal is %d ms on a quiet machine\n", worst, GOAL_MS);
}
