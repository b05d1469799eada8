/* The first filling of a large filter, beside a bare program that sets the same number of bits in memory on small
 * pages.
 *
 *     bench_fill PORT [SECONDS [ITEMS]]
 *
 * Of each, in turn, twice: items per second for SECONDS (4) from the first item on, and in each half of a second. The
 * daemon at PORT gets a new filter for ITEMS (1000000000: 1.2 GB) at 0.01, one client with BF.MADD of 1000 new items,
 * and one that queries another filter each millisecond: its waits count from the due time of a request. Afterwards the
 * client continues for as long again, to show the speed of a filter on huge pages, too.
 *
 * In a virtual machine the first run may use memory that the host has to provide first; later runs may have it at once.
 * So compare lines of one run, and restart the machine for fresh memory. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bloom_size.h"
#include "murmur3.h"

#define BATCH  1000
#define ASKS   (1 << 17) /* at most, of the second client */
#define STEP   0.5
#define RATE   0.01
#define ROUNDS 2

static int port;
static double seconds = 4;
static uint64_t capacity = 1000000000;

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* ---- steps ---- */

struct steps {
    double start, last;
    uint64_t items, items_last;
};

/* Notes the progress so far; false when the time is over. */
static bool step(struct steps *steps, uint64_t items, double end)
{
    double t = now();
    steps->items += items;
    if (t - steps->last >= STEP) {
        printf(" %.0f", (double)(steps->items - steps->items_last) / (t - steps->last) / 1000);
        fflush(stdout);
        steps->last = t;
        steps->items_last = steps->items;
    }
    return t - steps->start < end;
}

static void begin(struct steps *steps, const char *what)
{
    printf("%-28s thousand items/s:", what);
    *steps = (struct steps){.start = now(), .last = now()};
}

static void finish(const struct steps *steps)
{
    printf("; average %.0f\n", (double)steps->items / (now() - steps->start) / 1000);
}

/* ---- the bare program ---- */

static void fill_bare(void)
{
    struct bloom_size size;
    struct errbuf err;
    struct steps steps;
    if (bloom_size_plan(capacity, RATE / 2, &size, &err) != BLOOM_SIZE_OK)
        exit(1);
    uint64_t bits = size.nwords * 64;
    uint64_t *words =
        mmap(NULL, size.nwords * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (words == MAP_FAILED)
        fail("mmap");
    madvise(words, size.nwords * 8, MADV_NOHUGEPAGE);
    begin(&steps, "bare, small pages");
    for (uint64_t item = 0; step(&steps, item ? BATCH : 0, seconds);) {
        for (unsigned i = 0; i < BATCH; i++, item++) {
            struct bloom_hash hash = murmur3_hash(&item, sizeof(item));
            for (unsigned k = 0; k < size.k; k++, hash.h1 += hash.h2)
                words[hash.h1 % bits / 64] |= UINT64_C(1) << hash.h1 % 64;
        }
    }
    finish(&steps);
    fflush(stdout);
    _exit(0);
}

/* ---- the daemon ---- */

static int dial(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0)
        fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

static void send_all(int fd, const char *data, size_t len)
{
    for (ssize_t n; len > 0; data += n, len -= (size_t)n)
        if ((n = write(fd, data, len)) <= 0)
            fail("write");
}

/* Reads this many lines. */
static void read_lines(int fd, unsigned lines)
{
    char data[16384];
    while (lines > 0) {
        ssize_t n = read(fd, data, sizeof(data));
        if (n <= 0)
            fail("read");
        for (ssize_t i = 0; i < n; i++) {
            if (data[i] == '-') {
                fprintf(stderr, "%.*s\n", (int)n, data);
                exit(1);
            }
            lines -= data[i] == '\n';
        }
    }
}

static void ask(int fd, const char *command)
{
    send_all(fd, command, strlen(command));
    read_lines(fd, 1);
}

static atomic_bool over;
static double waits[ASKS];
static size_t nwaits;

static void *ask_all(void *arg)
{
    int fd = dial();
    (void)arg;
    for (double due = now(); !atomic_load(&over) && nwaits < ASKS; due += 0.001) {
        double before = due - now();
        if (before > 0)
            usleep((useconds_t)(before * 1e6));
        ask(fd, "BF.EXISTS other item\r\n");
        waits[nwaits++] = now() - due;
    }
    close(fd);
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_waits(void)
{
    qsort(waits, nwaits, sizeof(waits[0]), by_size);
    printf("%-28s p50 %.2f, p99 %.2f, largest %.2f\n", "  waits of the other, ms:", waits[nwaits / 2] * 1e3,
           waits[nwaits * 99 / 100] * 1e3, waits[nwaits - 1] * 1e3);
}

/* Adds items from *item on. */
static void add_all(int fd, uint64_t *item)
{
    static char text[BATCH * 32];
    struct steps steps = {0};
    begin(&steps, *item ? "  it goes on" : "daemon, BF.MADD");
    for (bool first = true; step(&steps, first ? 0 : BATCH, seconds); first = false) {
        size_t len = (size_t)sprintf(text, "*%d\r\n$7\r\nBF.MADD\r\n$4\r\nfill\r\n", BATCH + 2);
        for (unsigned i = 0; i < BATCH; i++)
            len += (size_t)sprintf(text + len, "$16\r\n%016" PRIx64 "\r\n", (*item)++);
        send_all(fd, text, len);
        read_lines(fd, BATCH + 1);
    }
    finish(&steps);
}

static void fill_daemon(void)
{
    char text[128];
    pthread_t other;
    uint64_t item = 0;
    int fd = dial();
    ask(fd, "BF.ADD other item\r\n");
    snprintf(text, sizeof(text), "BF.RESERVE fill %g %" PRIu64 "\r\n", RATE, capacity);
    ask(fd, text);
    atomic_store(&over, false);
    nwaits = 0;
    pthread_create(&other, NULL, ask_all, NULL);
    add_all(fd, &item);
    atomic_store(&over, true);
    pthread_join(other, NULL);
    print_waits();
    add_all(fd, &item);
    ask(fd, "DEL fill\r\n");
    close(fd);
    sleep(2); /* its memory is given back meanwhile */
}

int main(int argc, char **argv)
{
    if (argc < 2 || (port = atoi(argv[1])) <= 0) {
        fprintf(stderr, "usage: bench_fill PORT [SECONDS [ITEMS]]\n");
        return 1;
    }
    if (argc > 2)
        seconds = atof(argv[2]);
    if (argc > 3)
        capacity = strtoull(argv[3], NULL, 10);
    for (unsigned i = 0; i < ROUNDS; i++) {
        fflush(stdout); /* its buffered output would be printed twice */
        pid_t child = fork();
        if (child == 0)
            fill_bare();
        waitpid(child, NULL, 0);
        fill_daemon();
    }
    return 0;
}
