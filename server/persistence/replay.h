/* replay: applies the log to the filters at the start. The calls come in this order:
 *
 *     log_history_control()   of replay_history(), for each control record: notes the fate of its filter
 *     log_history_resolve()   for each filter of the save, while it is loaded
 *     replay_loaded()    for each filter that was loaded or quarantined
 *     replay_filters()   creates the filters that only the log has, and lets filters grow
 *     replay_adds()      replays the adds, in several threads
 *
 * The final state of each filter is known before the first one is loaded. So filters can be loaded in any order, by
 * many threads, under their final names.
 *
 * Thread: replay_expired() and replay_loaded(): any. The rest: one, while no other works on it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "errbuf.h"
#include "log_history.h"
#include "log_reader.h"
#include "registry.h"
#include "store_loader.h"

struct journal;
struct replay;
struct server;

/* `accept_loss`: leaves out filters and layers that contradict save or log, instead of failing. 0 or -ENOMEM. */
int replay_create(struct replay **replay_out, struct server *server, struct store *store, bool accept_loss);
void replay_destroy(struct replay *replay); /* NULL is fine */

/* The fate of each filter by the log's control records. Borrowed, until replay_destroy(). */
struct log_history *replay_history(struct replay *replay);

/* Notes a filter that has expired and is not loaded. 0 or -ENOMEM. */
int replay_expired(struct replay *replay, uint64_t id);

/* Records their deletion in the log: before the next start the clock may be set back, others may take their names. */
void replay_note_expired(const struct replay *replay, struct journal *journal);

/* Notes a filter as the target of adds. `entry` NULL: it is quarantined. `since`: its counts include all adds of
 * processes with lower numbers (log_reader_counted_before()). 0 or -ENOMEM. */
int replay_loaded(struct replay *replay, uint64_t id, struct entry *entry, uint64_t since);

/* 0, or a negative -errno with the reason. */
int replay_filters(struct replay *replay, struct errbuf *err);

struct replay_summary {
    uint64_t highest_id;  /* of all ids that the log has; none of them may be given out again */
    uint64_t created;     /* filters */
    uint64_t adds;        /* replayed */
    uint64_t counted;     /* of these, the adds that the save had not counted */
    uint64_t left_out;    /* filters whose name is taken, and impossible layers: a save must replace the log */
    uint64_t ignored;     /* adds to filters that are gone */
    uint64_t unjoined;    /* control records that are valid only with a save that was not made (LOG_BREAK) */
    uint64_t quarantined; /* adds to quarantined filters: the log is kept for them */
};

/* 0, or the status of log_reader_adds(). */
int replay_adds(struct replay *replay, struct log_reader *reader, unsigned nthreads, struct replay_summary *summary_out,
                struct errbuf *err);
