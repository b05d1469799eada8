/* SLOWLOG and LATENCY: slow commands, and histograms of the durations of all commands. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "handlers.h"
#include "histogram.h"
#include "latency.h"
#include "server.h"
#include "slowlog.h"
#include "check.h"

/* ---- SLOWLOG ---- */

static void run_slowlog_get(struct command_job *job)
{
    const int64_t *n = job->data;

    slowlog_reply(job->server->stats.slowlog, *n < 0 ? SIZE_MAX : (size_t)*n, &job->reply);
}

void cmd_slowlog_get(struct command_ctx *ctx)
{
    int64_t n = 10;

    if (command_argc(ctx) > 3)
        reply_wrong_subcommand(ctx);
    else if (command_argc(ctx) == 3 && (!slice_to_int64(command_arg(ctx, 2), &n) || n < -1))
        reply_error(ctx->reply, "ERR count should be greater than or equal to -1");
    else
        command_defer_copy(ctx, run_slowlog_get, &n, sizeof(n));
}

void cmd_slowlog_len(struct command_ctx *ctx)
{
    reply_integer(ctx->reply, (int64_t)slowlog_len(ctx->server->stats.slowlog));
}

#define SLOWLOG_RESET_AT_ONCE 1000 /* entries: some ten microseconds */

static void run_slowlog_reset(struct command_job *job)
{
    slowlog_reset(job->server->stats.slowlog);
    reply_status(&job->reply, "OK");
}

/* The loop clears a small log itself. A job's duration includes the wait for a thread, so on a busy machine the cleared
 * log would contain the SLOWLOG RESET itself. */
void cmd_slowlog_reset(struct command_ctx *ctx)
{
    if (slowlog_len(ctx->server->stats.slowlog) > SLOWLOG_RESET_AT_ONCE) {
        command_defer(ctx, run_slowlog_reset, NULL);
        return;
    }
    slowlog_reset(ctx->server->stats.slowlog);
    reply_status(ctx->reply, "OK");
}

/* ---- LATENCY HISTOGRAM ---- */

#define FIRST_LOG2 10 /* the first bucket ends at 1024 ns, the "1" of the reply */

/* Pairs of microseconds and the number of calls that took at most this time, for the powers of two where the number
 * grows. */
static void reply_histogram(struct reply *reply, const struct histogram *histogram)
{
    uint64_t before = 0, total = histogram_count(histogram);
    size_t token = reply_map_begin(reply), n = 0;

    for (unsigned log2 = FIRST_LOG2; before < total && log2 < HISTOGRAM_MAX_LOG2; log2++) {
        uint64_t below = histogram_count_upto(histogram, (UINT64_C(1) << log2) - 1);
        if (below == before)
            continue;
        reply_integer(reply, (int64_t)((UINT64_C(1) << log2) / 1000));
        reply_integer(reply, (int64_t)below);
        before = below;
        n++;
    }
    if (before < total) {
        reply_integer(reply, (int64_t)((UINT64_C(1) << HISTOGRAM_MAX_LOG2) / 1000));
        reply_integer(reply, (int64_t)total);
        n++;
    }
    reply_map_end(reply, token, n);
}

struct histogram_request {
    bool all;
    bool wanted[STATS_MAX_COMMANDS];
};

static void run_latency_histogram(struct command_job *job)
{
    const struct histogram_request *request = job->data;
    const struct command *row;
    size_t token = reply_map_begin(&job->reply), n = 0;

    for (size_t i = 0; (row = command_row(i)) != NULL; i++) {
        struct histogram histogram;
        if (!(request->all || request->wanted[i]) || !counters_histogram(job->server->stats.counters, i, &histogram))
            continue;
        reply_bulk_str(&job->reply, row->full_name);
        reply_map(&job->reply, 2);
        reply_number_pair(&job->reply, "calls", (int64_t)histogram_count(&histogram));
        reply_bulk_str(&job->reply, "histogram_usec");
        reply_histogram(&job->reply, &histogram);
        n++;
    }
    reply_map_end(&job->reply, token, n);
}

/* Sums up the histograms of all threads, so not on the loop. A container represents its subcommands. */
void cmd_latency_histogram(struct command_ctx *ctx)
{
    struct histogram_request request = {.all = command_argc(ctx) == 2};

    for (size_t i = 2; i < command_argc(ctx); i++) {
        const struct command *row = command_find_full(command_arg(ctx, i));
        if (row == NULL)
            continue;
        request.wanted[command_index(row)] = true;
        for (size_t j = 0; j < row->nsubcommands; j++)
            request.wanted[command_index(&row->subcommands[j])] = true;
    }
    command_defer_copy(ctx, run_latency_histogram, &request, sizeof(request));
}

/* ---- LATENCY: the monitor ---- */

void cmd_latency_latest(struct command_ctx *ctx)
{
    struct latency_event event;
    size_t token = reply_array_begin(ctx->reply), n;

    for (n = 0; latency_get(ctx->server->stats.latency, n, &event); n++) {
        const struct latency_sample *last = &event.samples[event.nsamples - 1];
        reply_array(ctx->reply, 4);
        reply_bulk_str(ctx->reply, event.name);
        reply_integer(ctx->reply, last->time_sec);
        reply_integer(ctx->reply, last->ms);
        reply_integer(ctx->reply, event.max_ms);
    }
    reply_array_end(ctx->reply, token, n);
}

void cmd_latency_history(struct command_ctx *ctx)
{
    struct slice name = command_arg(ctx, 2);
    struct latency_event event;

    if (!latency_find(ctx->server->stats.latency, name.ptr, name.len, &event)) {
        reply_array(ctx->reply, 0);
        return;
    }
    reply_array(ctx->reply, event.nsamples);
    for (size_t i = 0; i < event.nsamples; i++) {
        reply_array(ctx->reply, 2);
        reply_integer(ctx->reply, event.samples[i].time_sec);
        reply_integer(ctx->reply, event.samples[i].ms);
    }
}

void cmd_latency_reset(struct command_ctx *ctx)
{
    size_t n = 0;

    if (command_argc(ctx) == 2)
        n = latency_reset(ctx->server->stats.latency, NULL, 0);
    for (size_t i = 2; i < command_argc(ctx); i++)
        n += latency_reset(ctx->server->stats.latency, command_arg(ctx, i).ptr, command_arg(ctx, i).len);
    reply_integer(ctx->reply, (int64_t)n);
}

/* ---- LATENCY DOCTOR ---- */

static void describe_event(const struct latency_event *event, size_t number, struct buf *out)
{
    int64_t sum = 0, deviation = 0, n = (int64_t)event->nsamples;
    CHECK(n > 0);
    int64_t span = event->samples[n - 1].time_sec - event->samples[0].time_sec;

    for (int64_t i = 0; i < n; i++)
        sum += event->samples[i].ms;
    for (int64_t i = 0; i < n; i++)
        deviation += event->samples[i].ms > sum / n ? event->samples[i].ms - sum / n : sum / n - event->samples[i].ms;
    buf_appendf(out,
                "%zu. %s: %" PRId64 " latency spikes (average %" PRId64 "ms, mean deviation %" PRId64
                "ms, period %.2f sec). ",
                number, event->name, n, sum / n, deviation / n, n > 1 ? (double)span / (double)(n - 1) : 0.0);
    buf_appendf(out, "Worst all time event %" PRId64 "ms.\n", event->max_ms);
}

static void advise(struct command_ctx *ctx, bool fast_commands, struct buf *out)
{
    const struct config *cfg = server_config(ctx->server);
    int64_t threshold_usec = cfg->process.latency_monitor_threshold * 1000;

    buf_appendf(out, "\nPossible remedies:\n\n");
    if (cfg->process.slowlog_log_slower_than < 0 || cfg->process.slowlog_log_slower_than > threshold_usec)
        buf_appendf(out,
                    "- The slow log misses these commands: CONFIG SET slowlog-log-slower-than %" PRId64
                    " includes them.\n",
                    threshold_usec);
    else
        buf_appendf(out, "- SLOWLOG GET names the commands.\n");
    if (fast_commands)
        buf_appendf(
            out,
            "- Commands that take microseconds were slow: look for a machine that swaps, for more busy threads than "
            "cores (INFO cpu, setting 'threads'), for other guests of the same host.\n");
    buf_appendf(out,
                "- Batches of many thousand items (BF.MADD, BF.INSERT, BF.MEXISTS) take long; send smaller ones.\n");
}

void cmd_latency_doctor(struct command_ctx *ctx)
{
    const struct config *cfg = server_config(ctx->server);
    struct latency_event event;
    bool fast_commands = false;
    struct buf text;

    buf_init(&text, SIZE_MAX);
    if (cfg->process.latency_monitor_threshold == 0) {
        buf_appendf(
            &text, "The latency monitor is off. CONFIG SET latency-monitor-threshold <milliseconds> switches it on.\n");
    } else if (!latency_get(ctx->server->stats.latency, 0, &event)) {
        buf_appendf(&text, "No command has taken %" PRId64 " ms or longer while the latency monitor was on.\n",
                    cfg->process.latency_monitor_threshold);
    } else {
        for (size_t i = 0; latency_get(ctx->server->stats.latency, i, &event); i++) {
            describe_event(&event, i + 1, &text);
            fast_commands |= strcmp(event.name, "fast-command") == 0;
        }
        advise(ctx, fast_commands, &text);
    }
    reply_text(ctx->reply, &text);
}
