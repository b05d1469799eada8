#include "counters.h"
#include "alloc.h"
#include "lock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct counted_thread {
    struct stats *stats;
    struct timing *timing;
};

struct counters {
    struct lock lock; /* of the fields below; taken before summing, because a reset in between would make the
                       * difference negative */
    struct counted_thread *threads;
    unsigned nthreads;
    struct stats base; /* this and the next two: the sums at the last reset */
    struct errorstats errors_base;
    struct histogram *histograms_base[STATS_MAX_COMMANDS]; /* NULL: nothing was counted then */

    alignas(CACHE_LINE) struct stats main;
    alignas(CACHE_LINE) struct stats effects;
    struct stats_sampler sampler; /* the main thread's */
};

int counters_create(struct counters **counters_out, unsigned max_threads)
{
    struct counters *counters = cache_lines_alloc(sizeof(*counters));
    if (!counters)
        return -ENOMEM;
    counters->threads = calloc(max_threads ? max_threads : 1, sizeof(*counters->threads));
    if (!counters->threads) {
        free(counters);
        return -ENOMEM;
    }
    lock_init(&counters->lock, RANK_COUNTERS);
    *counters_out = counters;
    return 0;
}

void counters_destroy(struct counters *counters)
{
    if (!counters)
        return;
    for (size_t i = 0; i < STATS_MAX_COMMANDS; i++)
        free(counters->histograms_base[i]);
    lock_deinit(&counters->lock);
    free(counters->threads);
    free(counters);
}

void counters_add(struct counters *counters, struct stats *stats, struct timing *timing)
{
    lock_take(&counters->lock);
    counters->threads[counters->nthreads++] = (struct counted_thread){stats, timing};
    lock_give(&counters->lock);
}

void counters_remove(struct counters *counters, const struct stats *stats)
{
    lock_take(&counters->lock);
    for (unsigned i = 0; i < counters->nthreads; i++) {
        if (counters->threads[i].stats == stats) {
            counters->threads[i] = counters->threads[--counters->nthreads];
            break;
        }
    }
    lock_give(&counters->lock);
}

struct stats *counters_main(struct counters *counters)
{
    return &counters->main;
}

struct stats *counters_effects(struct counters *counters)
{
    return &counters->effects;
}

/* ---- sums; under the lock ---- */

static void sum_all(struct counters *counters, struct stats *sum_out)
{
    memset(sum_out, 0, sizeof(*sum_out));
    stats_sum(sum_out, &counters->main, false);
    stats_sum(sum_out, &counters->effects, false);
    for (unsigned i = 0; i < counters->nthreads; i++)
        stats_sum(sum_out, counters->threads[i].stats, false);
}

static void sum_errors(struct counters *counters, struct errorstats *sum_out)
{
    memset(sum_out, 0, sizeof(*sum_out));
    for (unsigned i = 0; i < counters->nthreads; i++)
        errorstats_sum(sum_out, &counters->threads[i].timing->errors, false);
}

/* False when no thread has a histogram for this command. */
static bool sum_histograms(struct counters *counters, size_t command, struct histogram *sum_out)
{
    bool any = false;
    memset(sum_out, 0, sizeof(*sum_out));
    for (unsigned i = 0; i < counters->nthreads; i++) {
        const struct histogram *histogram =
            atomic_load_explicit(&counters->threads[i].timing->histograms[command], memory_order_acquire);
        if (histogram)
            histogram_sum(sum_out, histogram);
        any |= histogram != NULL;
    }
    return any;
}

void counters_sum(struct counters *counters, struct stats *sum_out)
{
    lock_take(&counters->lock);
    sum_all(counters, sum_out);
    stats_sum(sum_out, &counters->base, true);
    lock_give(&counters->lock);
}

void counters_errors(struct counters *counters, struct errorstats *sum_out)
{
    lock_take(&counters->lock);
    sum_errors(counters, sum_out);
    errorstats_sum(sum_out, &counters->errors_base, true);
    lock_give(&counters->lock);
}

bool counters_histogram(struct counters *counters, size_t command, struct histogram *sum_out)
{
    lock_take(&counters->lock);
    bool any = sum_histograms(counters, command, sum_out);
    if (any && counters->histograms_base[command])
        histogram_subtract(sum_out, counters->histograms_base[command]);
    lock_give(&counters->lock);
    return any && histogram_count(sum_out) > 0;
}

bool counters_durations(struct counters *counters, size_t command, struct histogram *sum_out)
{
    lock_take(&counters->lock);
    bool any = sum_histograms(counters, command, sum_out);
    lock_give(&counters->lock);
    return any;
}

void counters_usage(struct counters *counters, uint64_t filter_id, struct usage_counts *sum_out)
{
    *sum_out = (struct usage_counts){0};
    lock_take(&counters->lock);
    for (unsigned i = 0; i < counters->nthreads; i++)
        usage_read(counters->threads[i].stats->usage, filter_id, sum_out);
    lock_give(&counters->lock);
}

void counters_forget_usage(struct counters *counters, uint64_t filter_id)
{
    lock_take(&counters->lock);
    for (unsigned i = 0; i < counters->nthreads; i++)
        usage_forget(counters->threads[i].stats->usage, filter_id);
    lock_give(&counters->lock);
}

static int by_id(const void *a, const void *b)
{
    const struct usage_total *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static int by_answers(const void *a, const void *b)
{
    const struct usage_total *x = a, *y = b;
    return (x->answers < y->answers) - (x->answers > y->answers);
}

/* The lock is taken for one thread at a time: workers want it, too (BF.INFO). Threads that come or go meanwhile may be
 * missed, or counted twice. */
size_t counters_most_queried(struct counters *counters, uint64_t *ids_out, size_t n)
{
    size_t ntotals = 0, merged = 0;
    struct usage_total *totals = NULL;
    for (unsigned i = 0;; i++) {
        struct usage_total *more = realloc(totals, (ntotals + USAGE_FILTERS) * sizeof(*totals));
        if (!more) {
            free(totals);
            return 0;
        }
        totals = more;
        lock_take(&counters->lock);
        const struct usage *usage = i < counters->nthreads ? counters->threads[i].stats->usage : NULL;
        bool end = i >= counters->nthreads;
        if (usage)
            ntotals += usage_list(usage, totals + ntotals);
        lock_give(&counters->lock);
        if (end)
            break;
    }
    qsort(totals, ntotals, sizeof(*totals), by_id);
    for (size_t i = 0; i < ntotals; i++) {
        if (merged > 0 && totals[merged - 1].id == totals[i].id)
            totals[merged - 1].answers += totals[i].answers;
        else
            totals[merged++] = totals[i];
    }
    qsort(totals, merged, sizeof(*totals), by_answers);
    n = n < merged ? n : merged;
    for (size_t i = 0; i < n; i++)
        ids_out[i] = totals[i].id;
    free(totals);
    return n;
}

uint64_t counters_changes(struct counters *counters)
{
    uint64_t sum = stats_get(&counters->main.changes) + stats_get(&counters->effects.changes);
    lock_take(&counters->lock);
    for (unsigned i = 0; i < counters->nthreads; i++)
        sum += stats_get(&counters->threads[i].stats->changes);
    lock_give(&counters->lock);
    return sum;
}

/* ---- reset, gauges ---- */

/* Without memory for the sums at the reset, the histogram is not reset. */
static void reset_histogram(struct counters *counters, size_t command)
{
    struct histogram sum;
    if (!sum_histograms(counters, command, &sum))
        return;
    if (!counters->histograms_base[command])
        counters->histograms_base[command] = malloc(sizeof(sum));
    if (counters->histograms_base[command])
        *counters->histograms_base[command] = sum;
}

void counters_reset(struct counters *counters)
{
    lock_take(&counters->lock);
    sum_all(counters, &counters->base);
    sum_errors(counters, &counters->errors_base);
    for (size_t i = 0; i < STATS_MAX_COMMANDS; i++)
        reset_histogram(counters, i);
    for (unsigned i = 0; i < counters->nthreads; i++)
        usage_reset(counters->threads[i].stats->usage);
    lock_give(&counters->lock);
}

void counters_sample(struct counters *counters, int64_t now_ms)
{
    struct stats sum;
    counters_sum(counters, &sum);
    stats_sampler_update(&counters->sampler, &sum, &counters->main, now_ms);
}
