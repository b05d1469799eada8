#include "timing.h"

#include <stdlib.h>

#include "command.h"
#include "config.h"
#include "latency.h"
#include "server.h"
#include "slowlog.h"
#include "worker.h"

void timing_deinit(struct timing *timing)
{
    for (size_t i = 0; i < STATS_MAX_COMMANDS; i++) {
        free(atomic_load_explicit(&timing->histograms[i], memory_order_relaxed));
        atomic_store_explicit(&timing->histograms[i], NULL, memory_order_relaxed);
    }
}

void timing_refresh(struct timing *timing, const struct config *config)
{
    int64_t slow_usec = config->slowlog_log_slower_than, latency_ms = config->latency_monitor_threshold;

    timing->slow_ns = slow_usec < 0 || config->slowlog_max_len == 0 ? UINT64_MAX : (uint64_t)slow_usec * 1000;
    timing->latency_ns = latency_ms == 0 ? UINT64_MAX : (uint64_t)latency_ms * 1000000;
    timing->notable_ns = timing->slow_ns < timing->latency_ns ? timing->slow_ns : timing->latency_ns;
    timing->slowlog_len = (size_t)config->slowlog_max_len;
    timing->tracking = config->latency_tracking;
    timing->exact = timing->slow_ns < (uint64_t)TIMING_EXACT_USEC * 1000;
}

/* Without memory for the histogram its counts are lost; the sums in commandstats are not. */
static struct histogram *histogram_of(struct timing *timing, size_t counter)
{
    struct histogram *histogram = atomic_load_explicit(&timing->histograms[counter], memory_order_relaxed);

    if (histogram == NULL) {
        histogram = calloc(1, sizeof(*histogram));
        atomic_store_explicit(&timing->histograms[counter], histogram, memory_order_release);
    }
    return histogram;
}

static void record(struct worker *worker, const struct command *row, uint64_t n, uint64_t ns)
{
    size_t counter = command_index(row);

    stats_add(&worker->stats.time_ns[counter], ns);
    struct histogram *histogram = worker->timing.tracking ? histogram_of(&worker->timing, counter) : NULL;
    if (histogram != NULL)
        histogram_add(histogram, ns / n, n);
}

static bool may_be_slow(const struct worker *worker, const struct command *row)
{
    return worker->timing.slow_ns != UINT64_MAX && !(row->flags & CMD_SKIP_SLOWLOG);
}

static struct slowlog_entry *make_entry(const struct command *row, const struct resp_command *args,
                                        const struct session *session)
{
    static const struct slice redacted = {"(redacted)", sizeof("(redacted)") - 1};
    struct slice words[SLOWLOG_MAX_ARGS];

    for (size_t i = 0; i < args->argc && i < SLOWLOG_MAX_ARGS; i++)
        words[i] = command_arg_is_secret(row, args, i) ? redacted : resp_arg(args, i);
    return slowlog_entry_create(words, args->argc, session);
}

static void remember(struct worker *worker, struct slowlog_entry *entry, uint64_t ns)
{
    if (entry != NULL)
        slowlog_add(worker->server->slowlog, entry, server_unix_ms() / 1000, (int64_t)(ns / 1000),
                    worker->timing.slowlog_len);
}

static void sample(struct worker *worker, const struct command *row, uint64_t ns)
{
    if (ns >= worker->timing.latency_ns)
        latency_add(worker->server->latency, row->flags & CMD_FAST ? "fast-command" : "command",
                    server_unix_ms() / 1000, (int64_t)(ns / 1000000));
}

void timing_command(struct worker *worker, const struct command *row, const struct resp_command *args,
                    const struct session *session, uint64_t ns)
{
    record(worker, row, 1, ns);
    if (ns < worker->timing.notable_ns)
        return;
    sample(worker, row, ns);
    if (ns >= worker->timing.slow_ns && may_be_slow(worker, row))
        remember(worker, make_entry(row, args, session), ns);
}

void timing_batch(struct worker *worker, const struct command *row, uint64_t n, uint64_t ns, const struct slice *words,
                  const struct session *session)
{
    uint64_t each_ns = ns / n;

    record(worker, row, n, ns);
    if (each_ns < worker->timing.notable_ns)
        return;
    sample(worker, row, each_ns);
    if (each_ns >= worker->timing.slow_ns && may_be_slow(worker, row))
        remember(worker, slowlog_entry_create(words, 3, session), each_ns);
}

void timing_defer(struct timing_deferred *deferred, struct worker *worker, const struct command *row,
                  const struct resp_command *args, const struct session *session)
{
    *deferred = (struct timing_deferred){.row = row, .started_ns = timing_now_ns()};
    if (may_be_slow(worker, row))
        deferred->entry = make_entry(row, args, session);
}

void timing_deferred_done(struct timing_deferred *deferred, struct worker *worker)
{
    uint64_t ns = timing_now_ns() - deferred->started_ns;

    record(worker, deferred->row, 1, ns);
    sample(worker, deferred->row, ns);
    if (ns >= worker->timing.slow_ns) {
        remember(worker, deferred->entry, ns);
        deferred->entry = NULL;
    }
    timing_deferred_cancel(deferred);
}

void timing_deferred_cancel(struct timing_deferred *deferred)
{
    slowlog_entry_destroy(deferred->entry);
    deferred->entry = NULL;
}
