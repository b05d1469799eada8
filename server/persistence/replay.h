/* replay: from the log to the filters, at the start. In the order of the calls:
 *
 *     replay_control()   for each control record: what has become of which filter since the save
 *     replay_resolve()   for each filter of the save, while it is loaded
 *     replay_loaded()    for each that has been loaded, or was not and is in quarantine
 *     replay_filters()   creates the filters that the log knows of and the save does not, and lets filters grow
 *     replay_adds()      brings back the adds, with several threads
 *
 * What happened to one filter is in the log's order; what happened to different ones is combined here, so that filters can
 * be loaded in any order and by many threads under the names that they have in the end.
 *
 * Thread: replay_resolve(), replay_expired() and replay_loaded(): any. The rest: one, while no other works on it. */
#ifndef BLOOMERY_REPLAY_H
#define BLOOMERY_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "errbuf.h"
#include "log_reader.h"
#include "registry.h"
#include "store.h"

struct journal;
struct replay;
struct server;

/* `accept_loss`: a filter or a layer that contradicts the save, or the log itself, is left out instead of refused. 0 or -ENOMEM. */
int replay_create(struct replay **replay_out, struct server *server, struct store *store, bool accept_loss);
void replay_destroy(struct replay *replay); /* NULL is fine */

/* For log_reader_options.on_control; ctx is the replay. 0, -ENOMEM, or LOG_DAMAGED for a record that makes no sense. */
int replay_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err);

/* For log_reader_options.on_process. */
void replay_process(void *ctx);

/* As store_loader.resolve. */
enum store_fate replay_resolve(struct replay *replay, struct store_filter *info);

/* It has expired, and is not loaded. 0 or -ENOMEM. */
int replay_expired(struct replay *replay, uint64_t id);

/* Tells the log of those: by the next start the clock may have been set back, and their names be others'. */
void replay_note_expired(const struct replay *replay, struct journal *journal);

/* `entry` NULL: it is in quarantine. `since`: what segments below this number have of it is in its counts
 * (log_reader_counted_before()). 0 or -ENOMEM. */
int replay_loaded(struct replay *replay, uint64_t id, struct entry *entry, uint64_t since);

/* 0, or a negative -errno with the reason. */
int replay_filters(struct replay *replay, struct errbuf *err);

struct replay_summary {
    uint64_t highest_id;   /* of all ids that the log has; none of them may be given out again */
    uint64_t created;      /* filters */
    uint64_t adds;         /* brought back */
    uint64_t counted;      /* of these, those that the save had not counted */
    uint64_t left_out;     /* filters whose name another one has, layers that cannot be: the next start must not meet them */
    uint64_t ignored;      /* adds to filters that are gone */
    uint64_t unjoined;     /* control records that hold only with a save that has not been made (LOG_BREAK) */
    uint64_t quarantined;  /* adds to filters in quarantine: the log has to be kept for them */
};

/* 0, or what log_reader_adds() returned. */
int replay_adds(struct replay *replay, struct log_reader *reader, unsigned nthreads, struct replay_summary *summary_out,
                struct errbuf *err);

#endif
