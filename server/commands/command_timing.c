#include "command_timing.h"

#include <stdlib.h>

#include "clock.h"
#include "secrets.h"
#include "slowlog.h"

static bool may_be_slow(const struct timing *timing, const struct command *row, uint64_t ns)
{
    return timing_is_slow(timing, ns) && !(row->flags & CMD_SKIP_SLOWLOG);
}

static struct slowlog_entry *make_entry(const struct command *row, const struct resp_command *args,
                                        const struct session *session)
{
    struct slice words[SLOWLOG_MAX_ARGS];
    struct secrets secrets;

    secrets_begin(&secrets, row, args);
    for (size_t i = 0; i < args->argc && i < SLOWLOG_MAX_ARGS; i++)
        words[i] = secrets_word(&secrets, i);
    return slowlog_entry_create(words, args->argc, session);
}

void timing_command(struct timing *timing, const struct command *row, const struct resp_command *args,
                    const struct session *session, uint64_t ns)
{
    if (!session->multi.in_exec) /* EXEC's time has that of its commands */
        stats_add(&timing->stats->loop_command_ns, ns);
    if (!timing_record(timing, command_index(row), 1, ns))
        return;
    if (may_be_slow(timing, row, ns))
        timing_remember(timing, make_entry(row, args, session), ns);
}

void timing_batch(struct timing *timing, const struct command *row, uint64_t n, uint64_t ns, const struct slice *words,
                  const struct session *session)
{
    uint64_t each_ns = ns / n;

    if (!session->multi.in_exec)
        stats_add(&timing->stats->loop_command_ns, ns);
    if (!timing_record(timing, command_index(row), n, ns))
        return;
    if (may_be_slow(timing, row, each_ns))
        timing_remember(timing, slowlog_entry_create(words, 3, session), each_ns);
}

void timing_defer(struct timing_deferred *deferred, const struct timing *timing, const struct command *row,
                  const struct resp_command *args, const struct session *session)
{
    *deferred = (struct timing_deferred){.row = row, .started_ns = clock_ns()};
    if (may_be_slow(timing, row, UINT64_MAX))
        deferred->entry = make_entry(row, args, session);
}

void timing_deferred_done(struct timing_deferred *deferred, struct timing *timing)
{
    uint64_t ns = clock_ns() - deferred->started_ns;

    (void)timing_record(timing, command_index(deferred->row), 1, ns);
    if (timing_is_slow(timing, ns))
        timing_remember(timing, deferred->entry, ns);
    else
        free(deferred->entry);
}
