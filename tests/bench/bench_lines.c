/* bench_lines: the cost of a cache line that several threads write, beside a line of each thread's own: nanoseconds
 * from one increment to the next, of all threads together and of one alone. The model of scripts/bench_scale uses
 * these figures.
 *
 *   bench_lines THREADS */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cache_line.h"

#include <stdatomic.h>
#include <stdint.h>

#define MOST   1024
#define ROUNDS 2000000

struct line {
    alignas(CACHE_LINE) _Atomic uint64_t count;
};

static struct line lines[MOST];
static pthread_barrier_t begin;

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void *increment(void *arg)
{
    struct line *line = arg;

    pthread_barrier_wait(&begin);
    for (int i = 0; i < ROUNDS; i++)
        atomic_fetch_add_explicit(&line->count, 1, memory_order_relaxed);
    return NULL;
}

/* Wall time of one increment: `apart` lines from thread to thread. */
static double increment_ns(unsigned nthreads, unsigned apart)
{
    pthread_t threads[MOST];

    pthread_barrier_init(&begin, NULL, nthreads + 1);
    for (unsigned i = 0; i < nthreads; i++) {
        if (pthread_create(&threads[i], NULL, increment, &lines[(size_t)i * apart]) != 0)
            exit(1);
    }
    double began = now_ns();
    pthread_barrier_wait(&begin);
    for (unsigned i = 0; i < nthreads; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&begin);
    return (now_ns() - began) / ROUNDS;
}

int main(int argc, char **argv)
{
    unsigned nthreads = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 2;

    if (nthreads < 1 || nthreads > MOST) {
        fprintf(stderr, "usage: bench_lines THREADS, 1 to %d\n", MOST);
        return 1;
    }
    printf("shared %.1f own %.1f\n", increment_ns(nthreads, 0) / nthreads, increment_ns(nthreads, 1));
    return 0;
}
