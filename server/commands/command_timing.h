/* command_timing: how long calls of commands took, told to the thread's timing (struct timing), with their rows and
 * words.
 *
 * Measurements:
 * - An ordinary command: its handler.
 * - A deferred command: from its handler's call until its reply is back on the loop, waiting for a thread included.
 * - BF.ADD and BF.EXISTS overlap in the pipeline (pipeline.h): the duration of the batch, from the first command to the
 *   next flush, including reading and parsing, divided by their number. So two readings of the clock serve for up to
 *   thousands of commands, and their histogram is one of the means of batches. While slowlog-log-slower-than is below
 *   TIMING_EXACT_USEC the pipeline is not used and each of them is measured alone.
 *
 * Thread: the worker's. */
#pragma once

#include "command.h"
#include "stats.h"

/* Records a command whose handler took `ns`. */
void timing_command(struct timing *timing, const struct command *row, const struct resp_command *args,
                    const struct session *session, uint64_t ns);

/* `n` calls of a command took `ns` together; `words` (three) and `session` belong to the last one. */
void timing_batch(struct timing *timing, const struct command *row, uint64_t n, uint64_t ns, const struct slice *words,
                  const struct session *session);

/* A deferred command. */
struct timing_deferred {
    const struct command *row;
    uint64_t started_ns;
    struct slowlog_entry *entry; /* NULL: not for the slow log */
};
void timing_defer(struct timing_deferred *deferred, const struct timing *timing, const struct command *row,
                  const struct resp_command *args, const struct session *session);

/* Called once, when it is done. */
void timing_deferred_done(struct timing_deferred *deferred, struct timing *timing);
