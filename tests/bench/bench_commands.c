/* The server's work on commands in memory: parser, dispatch, pipeline, registry, filter, replies; no socket. One
 * worker, then two, on one filter: the gain from a second core, and whether queries write nothing shared.
 *
 * Real workers run it on their loops' threads, each with its own connection and its own stretch of requests, in
 * pieces of 64 commands. Prints million commands per second of CPU time, summed over the workers, and the ratio to
 * one worker. By CPU time, so that other processes do not count; both workers still run at the same time.
 *
 * bench_commands [seconds [row]]: default 1 per figure, and all rows. Seconds 0: each piece is run once, on one
 * worker, with fewer items loaded, which is for counting instructions. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench.h"
#include "bloom_pool.h"
#include "conn.h"
#include "dispatch.h"
#include "server_create.h"
#include "rng.h"
#include "worker.h"

#define WORKERS 2
#define PIECES  2048
#define PIECE   64 /* commands */
#define ROUNDS  5

static const struct row {
    const char *name;
    const char *capacity;
    unsigned adds; /* of 100 commands; the others are queries */
    bool hits;
} rows[] = {
    {"queries, present, 1.2 MB", "1000000", 0, true},   {"queries, absent, 1.2 MB", "1000000", 0, false},
    {"queries, present, 120 MB", "100000000", 0, true}, {"adds of new items, 120 MB", "100000000", 100, false},
    {"1 add in 100, 1.2 MB", "10000000", 1, true},      {"1 add in 10, 1.2 MB", "10000000", 10, true},
    {"1 add in 10, 120 MB", "100000000", 10, true},
};

/* The work of one worker, and its results. */
struct lane {
    struct conn *conn;
    char *requests;
    size_t starts[PIECES + 1]; /* of the pieces */
    uint64_t commands;
    double cpu;
};

static struct server *server;
static struct lane lanes[WORKERS];
static pthread_barrier_t start_line, finish_line;
static double seconds = 1;
static unsigned loaded = 1000000, rounds = ROUNDS;

/* ---- requests ---- */

static void make_requests(struct lane *lane, const struct row *row, uint64_t seed)
{
    struct rng rng;
    size_t len = 0;
    rng_init(&rng, seed);
    lane->requests = realloc(lane->requests, PIECES * PIECE * 64);
    for (size_t i = 0; i < PIECES * PIECE; i++) {
        bool add = rng_below(&rng, 100) < row->adds;
        unsigned long long item = add ? rng_next(&rng) : rng_below(&rng, loaded) + (row->hits ? 0 : loaded);
        if (i % PIECE == 0)
            lane->starts[i / PIECE] = len;
        len += (size_t)sprintf(lane->requests + len, "*3\r\n%s\r\n$4\r\nhere\r\n$16\r\n%016llx\r\n",
                               add ? "$6\r\nBF.ADD" : "$9\r\nBF.EXISTS", item);
    }
    lane->starts[PIECES] = len;
}

/* Runs data[0..len) like requests_run(). */
static void run_piece(struct conn *conn, char *data, size_t len)
{
    struct io *io = conn->io;
    size_t done = 0;
    while (done < len) {
        struct resp_command cmd;
        size_t n = dispatch_repeated(conn, data + done, len - done);
        if (n == 0 && resp_parser_next(&conn->input.parser, &io->input.args, &io->input.limits, 0, data + done,
                                       len - done, &n, &cmd) == RESP_COMMAND)
            dispatch(conn, &cmd);
        done += n;
    }
}

static void run_text(struct conn *conn, const char *text)
{
    char copy[256];
    strcpy(copy, text);
    run_piece(conn, copy, strlen(copy));
    io_settle(conn->io);
    if (buf_head(&conn->output.buf)[0] == '-')
        fprintf(stderr, "%s: %.*s\n", text, (int)buf_len(&conn->output.buf), buf_head(&conn->output.buf));
    buf_truncate(&conn->output.buf, 0);
}

/* ---- on the workers' threads ---- */

static void open_lane(struct worker *worker, void *arg)
{
    struct lane *lane = arg;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0 &&
        conn_open(&worker->runner.io, pair[0], false) == 0)
        lane->conn = LIST_FIRST(&worker->runner.io.conns);
    pthread_barrier_wait(&finish_line);
}

static void prepare(struct worker *worker, void *arg)
{
    const struct row *row = arg;
    struct conn *conn = lanes[worker->runner.io.index].conn;
    char text[128];
    conn_will_reply(conn);
    run_text(conn, "DEL here\r\n");
    snprintf(text, sizeof(text), "BF.RESERVE here 0.01 %s NONSCALING\r\n", row->capacity);
    run_text(conn, text);
    for (unsigned i = 0; i < (row->hits ? loaded : 10000); i++) {
        snprintf(text, sizeof(text), "BF.ADD here %016x\r\n", row->hits ? i : i + 0x10000000);
        run_text(conn, text);
    }
    for (unsigned looks = 0; looks < 2; looks++) /* as a thread of the pool does after a while */
        bloom_pool_settle(server->pool, NULL, NULL);
    pthread_barrier_wait(&finish_line);
}

static void drive(struct worker *worker, void *arg)
{
    struct lane *lane = arg;
    struct conn *conn = lane->conn;
    size_t piece = 0;
    conn_will_reply(conn);
    lane->commands = 0;
    pthread_barrier_wait(&start_line);
    double cpu = bench_ns(CLOCK_THREAD_CPUTIME_ID), end = bench_ns(CLOCK_MONOTONIC) + seconds * 1e9;
    while (bench_ns(CLOCK_MONOTONIC) < end || lane->commands == 0) {
        for (unsigned i = 0; i < (seconds > 0 ? 16 : PIECES); i++, piece = (piece + 1) % PIECES) {
            run_piece(conn, lane->requests + lane->starts[piece], lane->starts[piece + 1] - lane->starts[piece]);
            pipeline_flush(&worker->runner.pipeline);
            buf_truncate(&conn->output.buf, 0);
            lane->commands += PIECE;
        }
    }
    lane->cpu = (bench_ns(CLOCK_THREAD_CPUTIME_ID) - cpu) / 1e9;
    pthread_barrier_wait(&finish_line);
}

/* ---- the table ---- */

/* `n` workers run it at the same time; the caller waits. */
static void on_workers(unsigned n, void (*run)(struct worker *worker, void *arg), void *arg, size_t step)
{
    pthread_barrier_init(&start_line, NULL, n);
    pthread_barrier_init(&finish_line, NULL, n + 1);
    for (unsigned i = 0; i < n; i++)
        if (worker_post(server->threads.workers[i], run, (char *)arg + i * step) != 0)
            exit(1);
    pthread_barrier_wait(&finish_line);
}

static double measure(const struct row *row, unsigned n, unsigned round)
{
    double sum = 0;
    for (unsigned i = 0; i < n; i++)
        make_requests(&lanes[i], row, 1000 * round + 10 * n + i);
    on_workers(1, prepare, (void *)(uintptr_t)row, 0);
    on_workers(n, drive, lanes, sizeof(lanes[0]));
    for (unsigned i = 0; i < n; i++)
        sum += (double)lanes[i].commands / lanes[i].cpu;
    return sum / 1e6;
}

static void start_server(void)
{
    static struct config config;
    struct errbuf err = {""};
    if (config_init(&config) != 0 || server_create(&server, &config, WORKERS, &err) != 0 ||
        server_start(server, PARTS_WORKERS, &err) != 0)
        exit(1);
    on_workers(WORKERS, open_lane, lanes, sizeof(lanes[0]));
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seconds = atof(argv[1]);
    if (seconds <= 0) {
        loaded = 20000;
        rounds = 1;
    }
    start_server();
    printf("%-28s %10s %10s %8s   million commands/s of CPU time, median of %d\n", "one filter", "1 worker",
           "2 workers", "ratio", ROUNDS);
    size_t first = argc > 2 ? (size_t)atoi(argv[2]) : 0, end = argc > 2 ? first + 1 : sizeof(rows) / sizeof(rows[0]);
    for (size_t r = first; r < end; r++) {
        double one[ROUNDS], two[ROUNDS];
        for (unsigned round = 0; round < rounds; round++) {
            one[round] = measure(&rows[r], 1, round);
            two[round] = seconds > 0 ? measure(&rows[r], 2, round) : 0;
        }
        qsort(one, rounds, sizeof(one[0]), by_value);
        qsort(two, rounds, sizeof(two[0]), by_value);
        printf("%-28s %10.2f %10.2f %8.2f\n", rows[r].name, one[rounds / 2], two[rounds / 2],
               two[rounds / 2] / one[rounds / 2]);
        fflush(stdout);
    }
    _exit(0); /* the workers are still running; cleaning up is not worthwhile */
}
