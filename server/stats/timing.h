/* timing: how long commands take, and what is remembered of it: the time in commandstats, a histogram per command, the slow
 * log, the latency monitor; and which errors they were answered with.
 *
 * What is measured:
 * - An ordinary command: its handler.
 * - A deferred command: from its handler's call until its reply is back on the loop, waiting for a thread included.
 * - BF.ADD and BF.EXISTS, which overlap in the window (window.h): the batch, from the first command taken in to the next
 *   flush, what is read and parsed in between included, divided by their number. So two readings of the clock serve
 *   for up to thousands of commands, and their histogram is one of the means of batches. While slowlog-log-slower-than is
 *   below TIMING_EXACT_USEC the window is not used and each of them is measured alone.
 *
 * Thread: the worker's, but for what reads the histograms and counts (server.h). */
#ifndef BLOOMERY_TIMING_H
#define BLOOMERY_TIMING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "errorstats.h"
#include "histogram.h"
#include "resp_parse.h"
#include "session.h"
#include "stats.h"

/* A shorter limit than any whole batch takes is set by somebody who wants to see every command. */
#define TIMING_EXACT_USEC 100

struct command;
struct config;
struct slowlog_entry;
struct worker;

/* A worker's own part. Zero-initialise; timing_refresh() before anything else. */
struct timing {
    _Atomic(struct histogram *) histograms[STATS_MAX_COMMANDS]; /* NULL until the command has been run by this worker */
    struct errorstats errors;
    uint64_t slow_ns;     /* what takes as long is remembered; UINT64_MAX: nothing is */
    uint64_t latency_ns;  /* the same for the latency monitor */
    uint64_t notable_ns;  /* the smaller of the two */
    size_t slowlog_len;   /* setting slowlog-max-len */
    bool tracking;        /* histograms are kept */
    bool exact;           /* BF.ADD and BF.EXISTS are run one by one */
};

void timing_deinit(struct timing *timing);

/* Copies the settings: once per iteration, and after a command that may have changed them. */
void timing_refresh(struct timing *timing, const struct config *config);

static inline uint64_t timing_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* A command has been run by its handler, in `ns`. */
void timing_command(struct worker *worker, const struct command *row, const struct resp_command *args,
                    const struct session *session, uint64_t ns);

/* `n` calls of a command took `ns` together; `words` (three) and `session` are those of the last one. */
void timing_batch(struct worker *worker, const struct command *row, uint64_t n, uint64_t ns, const struct slice *words,
                  const struct session *session);

/* A deferred command. */
struct timing_deferred {
    const struct command *row;
    uint64_t started_ns;
    struct slowlog_entry *entry; /* NULL: it would not be remembered */
};
void timing_defer(struct timing_deferred *deferred, struct worker *worker, const struct command *row,
                  const struct resp_command *args, const struct session *session);

/* It has come back, or has not been deferred after all. */
void timing_deferred_done(struct timing_deferred *deferred, struct worker *worker);
void timing_deferred_cancel(struct timing_deferred *deferred);

#endif
