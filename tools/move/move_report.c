/* Output: a line for each filter that is not moved, the progress, and the counts of the summary. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log_text.h"
#include "move_internal.h"
#include "tool.h"
#include "lock.h"

#define BAR_WIDTH 20

/* A filter costs about as much as this many bytes, beside its own. */
#define FILTER_COST 4096

/* ---- lines ---- */

static void tell(struct move *move, const struct move_filter *filter, const char *what, const char *why)
{
    FILE *out = move->options->dry_run ? stdout : stderr;
    move_clear_progress(move);
    if (move->options->dry_run) {
        fprintf(out, "%s\t", what);
        tool_print_name(out, filter->name, filter->name_len);
        fprintf(out, "\t%s, %" PRId64 " bytes%s%s\n", log_count((uint64_t)filter->info.items, "item").text,
                filter->info.size, why ? "\t" : "", why ? why : "");
        return;
    }
    fprintf(out, "%s ", what);
    tool_print_name(out, filter->name, filter->name_len);
    fprintf(out, ": %s\n", why);
}

static bool is_printed(const struct move *move, enum move_outcome outcome)
{
    if (outcome == MOVE_GONE)
        return false;
    return move->options->dry_run || (outcome != MOVE_MOVED && outcome != MOVE_THERE);
}

static const char *word_for(enum move_outcome outcome)
{
    switch (outcome) {
    case MOVE_MOVED:
        return "move";
    case MOVE_THERE:
        return "there";
    case MOVE_DIFFERS:
        return "differs";
    default:
        return "skipped";
    }
}

void move_forget_bytes(struct move *move, struct move_filter *filter)
{
    atomic_fetch_sub(&move->bytes_on_the_way, filter->on_the_way);
    filter->on_the_way = 0;
}

void move_finish(struct move *move, struct move_filter *filter, enum move_outcome outcome, const char *fmt, ...)
{
    struct errbuf why = {""}; /* escapes bytes of the server that could control the terminal */
    char text[ERRBUF_SIZE];
    va_list args;
    if (fmt) {
        va_start(args, fmt);
        vsnprintf(text, sizeof(text), fmt, args);
        va_end(args);
        errbuf_set(&why, "%s", text);
    }
    filter->state = FILTER_FINISHED;
    lock_take(&move->lock);
    move_forget_bytes(move, filter);
    move->totals.summary.filters[outcome]++;
    if (outcome == MOVE_MOVED)
        move->totals.summary.bytes += (uint64_t)filter->info.size;
    move->totals.finished++;
    move->totals.finished_bytes += (uint64_t)filter->info.size;
    if (is_printed(move, outcome))
        tell(move, filter, word_for(outcome), fmt ? why.text : NULL);
    lock_give(&move->lock);
}

void move_copied(struct move *move, struct move_filter *filter, enum move_outcome outcome)
{
    filter->state = FILTER_COPIED;
    filter->outcome = outcome;
    if (outcome != MOVE_THERE && (!move->options->verify || move->options->dry_run))
        move_finish(move, filter, outcome, NULL);
}

/* ---- the progress ---- */

/* The estimated total work: the filters found so far, extrapolated to the names not scanned yet. */
static double expected(const struct move_totals *totals, double found)
{
    if (totals->scan_done || totals->scanned == 0 || totals->keys <= totals->scanned)
        return found;
    return found * (double)totals->keys / (double)totals->scanned;
}

static void left_text(double seconds, char out[24])
{
    uint64_t s = seconds > 0 && seconds < 1e7 ? (uint64_t)(seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(out, 24, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, 24, "%" PRIu64 ":%02" PRIu64, s / 60, s % 60);
}

void move_show_progress(struct move *move)
{
    struct move_totals *totals = &move->totals;
    char bar[BAR_WIDTH + 1], left[24];
    double seconds = (double)(clock_ns() - move->begun_ns) / 1e9;
    lock_take(&move->lock);
    double bytes = (double)totals->finished_bytes + (double)atomic_load(&move->bytes_on_the_way);
    double done = bytes + (double)totals->finished * FILTER_COST;
    double all = expected(totals, (double)totals->found_bytes + (double)totals->found * FILTER_COST);
    double share = all > done ? done / all : all > 0 ? 1 : 0;
    size_t filled = (size_t)(share * BAR_WIDTH);
    for (size_t i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < filled ? '#' : '-';
    bar[BAR_WIDTH] = '\0';
    if (share > 0.02 && seconds > 2)
        left_text(seconds * (1 - share) / share, left);
    else
        strcpy(left, "?"); /* it would be a guess */
    fprintf(stderr, "\r\033[K[%s] %" PRIu64 " of %s%.0f, %.0f/s, %s/s, %s left", bar, totals->finished,
            totals->scan_done ? "" : "about ", expected(totals, (double)totals->found),
            seconds > 0 ? (double)totals->finished / seconds : 0,
            log_bytes(seconds > 0 ? (uint64_t)(bytes / seconds) : 0).text, left);
    fflush(stderr);
    move->shows = true;
    lock_give(&move->lock);
}

/* With the lock of the totals, or when the threads have ended. */
void move_clear_progress(struct move *move)
{
    if (move->shows)
        fputs("\r\033[K", stderr);
    move->shows = false;
}
