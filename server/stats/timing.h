/* timing: records the durations of one thread's commands in commandstats, a histogram per command, and the slow
 * log; and counts their errors. A command is a number here (its counter); commands/command_timing.h has
 * its row.
 *
 * Thread: the worker's; counters.c reads the histograms and counts from other threads. */
#ifndef BLOOMERY_TIMING_H
#define BLOOMERY_TIMING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "errorstats.h"
#include "histogram.h"
#include "stats.h"

/* A limit below the duration of any batch means that the operator wants to see every command. */
#define TIMING_EXACT_USEC 100

struct config;
struct slowlog;
struct slowlog_entry;

/* A thread's own part. timing_init(), then timing_refresh() before anything else. */
struct timing {
    _Atomic(struct histogram *) histograms[STATS_MAX_COMMANDS]; /* NULL until the command has been run by this worker */
    struct errorstats errors;
    struct stats *stats;     /* of the same thread; this and the next are borrowed */
    struct slowlog *slowlog; /* of all threads */
    uint64_t slow_ns;        /* threshold of the slow log; UINT64_MAX: off */
    size_t slowlog_len;      /* setting slowlog-max-len */
    bool tracking;           /* histograms are kept */
    bool exact;              /* BF.ADD and BF.EXISTS are run one by one */
};

void timing_init(struct timing *timing, struct stats *stats, struct slowlog *slowlog);
void timing_deinit(struct timing *timing);

/* Copies the settings: once per iteration, and after a command that may have changed them. */
void timing_refresh(struct timing *timing, const struct config *config);

/* n calls of the command with this counter took `ns` together. True: each of them took so long that the slow log takes
 * it: timing_remember(). */
bool timing_record(struct timing *timing, size_t counter, uint64_t n, uint64_t ns);

/* Whether the slow log takes a call of this duration; UINT64_MAX asks whether it takes any. */
static inline bool timing_is_slow(const struct timing *timing, uint64_t ns)
{
    return timing->slow_ns != UINT64_MAX && ns >= timing->slow_ns;
}

/* Adds an entry to the slow log and takes ownership of it. NULL, for lack of memory, is fine. */
void timing_remember(struct timing *timing, struct slowlog_entry *entry, uint64_t ns);

#endif
