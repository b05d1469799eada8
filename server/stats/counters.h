/* counters: the counters and times of all threads, summed on request, minus their sums at the last reset.
 *
 * A counter has one writer, its thread. A reset changes no counter: it notes their sums, and reports show the
 * difference. Thread: any, unless stated otherwise. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "histogram.h"
#include "stats.h"
#include "usage.h"

struct counters;

/* At most `max_threads` will be added. 0 or -ENOMEM. */
int counters_create(struct counters **counters_out, unsigned max_threads);
void counters_destroy(struct counters *counters); /* NULL is fine; does not free the threads' counters */

/* Adds a thread's counters, borrowed until counters_remove(). */
void counters_add(struct counters *counters, struct stats *stats, struct timing *timing);
void counters_remove(struct counters *counters, const struct stats *stats);

/* Two sets that belong to no worker: the main thread's, with the gauges, and the one for effects of the registry
 * (written under its mutex). */
struct stats *counters_main(struct counters *counters);
struct stats *counters_effects(struct counters *counters);

/* Sums since the start or the last reset. counters_histogram() sums the durations of one command (its number is
 * command_index()); false: none was measured. */
void counters_sum(struct counters *counters, struct stats *sum_out);
void counters_errors(struct counters *counters, struct errorstats *sum_out);
bool counters_histogram(struct counters *counters, size_t command, struct histogram *sum_out);

/* The durations of one command's calls since the start: no reset affects them. False when none was measured. */
bool counters_durations(struct counters *counters, size_t command, struct histogram *sum_out);

/* The counts of one filter since the start or the last reset. */
void counters_usage(struct counters *counters, uint64_t filter_id, struct usage_counts *sum_out);

/* They start at 0 again, on all threads, when this returns. Thread: any. */
void counters_forget_usage(struct counters *counters, uint64_t filter_id);

/* The ids of at most `n` filters with the most answered queries, in no order. Only counted filters (usage.h) take part.
 * Returns their number; 0 without memory. Not on a loop. */
size_t counters_most_queried(struct counters *counters, uint64_t *ids_out, size_t n);

/* CONFIG RESETSTAT. Not on a loop: it sums all counters. */
void counters_reset(struct counters *counters);

/* Changes to filters since the start, for save rules; no reset affects it. */
uint64_t counters_changes(struct counters *counters);

/* Takes a sample for the gauges; ten times a second. `now_ms` is monotonic and not 0. Thread: main. */
void counters_sample(struct counters *counters, int64_t now_ms);
