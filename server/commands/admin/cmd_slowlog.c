/* SLOWLOG and LATENCY: slow commands, and histograms of the durations of all commands. */
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "handlers.h"
#include "histogram.h"
#include "server.h"
#include "slowlog.h"

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

/* There are no events: SLOWLOG has the slow commands. Exporters ask for them all the same. */
void cmd_latency_latest(struct command_ctx *ctx)
{
    reply_array(ctx->reply, 0);
}
