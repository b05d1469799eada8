/* Durations are differences, between two points, of histograms that only grow (counters_durations()). */
#include "history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "clock.h"
#include "command.h"
#include "facts.h"
#include "histogram.h"
#include "json.h"
#include "memory_use.h"
#include "server.h"

struct point {
    int64_t unix_ms;              /* its end */
    double commands, errors, cpu; /* for each second */
    double p50_us, p99_us;        /* NAN: no command was measured */
    uint64_t memory;
};

/* The sums at the last point. */
struct sums {
    int64_t at_ms; /* 0: there was no point */
    uint64_t commands, errors;
    double cpu_seconds;
    struct histogram durations;
};

struct history {
    struct point points[HISTORY_POINTS]; /* a ring */
    size_t npoints;                      /* ever */
    struct sums last;
};

struct history *history_create(void)
{
    return calloc(1, sizeof(struct history));
}

void history_destroy(struct history *history)
{
    free(history);
}

/* The durations of all commands. */
static void sum_durations(struct server *server, struct histogram *sum)
{
    struct histogram one;
    memset(sum, 0, sizeof(*sum));
    for (size_t i = 0; command_row(i); i++)
        if (counters_durations(server->stats.counters, i, &one))
            histogram_sum(sum, &one);
}

/* A count that fell was reset in between. */
static double per_second(uint64_t before, uint64_t now, int64_t elapsed_ms)
{
    return (double)(now >= before ? now - before : now) * 1000 / (double)elapsed_ms;
}

static double micros(const struct histogram *durations, double percentile)
{
    return histogram_count(durations) > 0 ? (double)histogram_percentile(durations, percentile) / 1000 : NAN;
}

static void add_point(struct history *history, const struct sums *now, struct server *server)
{
    const struct sums *last = &history->last;
    struct histogram between;
    struct memory_use use;
    int64_t elapsed_ms = now->at_ms - last->at_ms;
    memcpy(&between, &now->durations, sizeof(between));
    histogram_subtract(&between, &last->durations);
    memory_use(server, &use);
    history->points[history->npoints % HISTORY_POINTS] = (struct point){
        .unix_ms = clock_unix_ms(),
        .commands = per_second(last->commands, now->commands, elapsed_ms),
        .errors = per_second(last->errors, now->errors, elapsed_ms),
        .cpu = (now->cpu_seconds - last->cpu_seconds) * 1000 / (double)elapsed_ms,
        .p50_us = micros(&between, 50),
        .p99_us = micros(&between, 99),
        .memory = memory_use_total(&use),
    };
    history->npoints++;
}

int history_step(struct history *history, struct server *server, int64_t now_ms)
{
    int64_t next_ms = history->last.at_ms + HISTORY_STEP_MS;
    if (history->last.at_ms != 0 && now_ms < next_ms)
        return (int)(next_ms - now_ms);
    struct stats *stats = malloc(sizeof(*stats));
    struct sums *sums = malloc(sizeof(*sums));
    if (stats && sums) { /* otherwise the next point covers a longer time */
        struct rusage usage = {0};
        counters_sum(server->stats.counters, stats);
        getrusage(RUSAGE_SELF, &usage);
        sums->at_ms = now_ms;
        sums->commands = stats_get(&stats->commands_processed);
        sums->errors = stats_get(&stats->error_replies);
        sums->cpu_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
        sum_durations(server, &sums->durations);
        if (history->last.at_ms != 0)
            add_point(history, sums, server);
        memcpy(&history->last, sums, sizeof(*sums));
    }
    free(stats);
    free(sums);
    return HISTORY_STEP_MS;
}

double history_cpu(const struct history *history)
{
    return history->npoints ? history->points[(history->npoints - 1) % HISTORY_POINTS].cpu : NAN;
}

void history_write(const struct history *history, struct buf *out)
{
    size_t kept = history->npoints < HISTORY_POINTS ? history->npoints : HISTORY_POINTS;
    json_begin(out, NULL, '{');
    json_count(out, "stepMs", HISTORY_STEP_MS);
    json_begin(out, "points", '[');
    for (size_t i = history->npoints - kept; i < history->npoints; i++) {
        const struct point *point = &history->points[i % HISTORY_POINTS];
        json_begin(out, NULL, '{');
        json_count(out, "unixMs", (uint64_t)point->unix_ms);
        json_real(out, "commands", point->commands);
        json_real(out, "errors", point->errors);
        json_real(out, "cpu", point->cpu);
        json_real(out, "p50Us", point->p50_us);
        json_real(out, "p99Us", point->p99_us);
        json_count(out, "memory", point->memory);
        json_end(out, '}');
    }
    json_end(out, ']');
    json_end(out, '}');
}
