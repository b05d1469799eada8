/* log_waits: connections that wait for the log: for a ticket (their replies rest on unsynced records), or for room (the
 * log thread is behind); and the loop's ring for records.
 *
 * Thread: log_waits_post_*(): any (the log's threads call them). Everything else: the loop's. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "conn_list.h"

struct io;
struct journal_ring;

struct log_waits {
    struct io *io;
    struct journal_ring *ring;   /* the log's ring for adds of this iteration; NULL: no log */
    struct conn_link for_ticket; /* CONN_WAITS_DURABLE, in the order of their tickets */
    struct conn_link for_room;   /* CONN_WAITS_ROOM */
    _Atomic uint64_t durable;    /* the highest ticket of log_waits_post_durable() */
    _Atomic bool sleeps;         /* the loop must be woken to read `durable` */
    _Atomic bool has_room;       /* log_waits_post_room() has been called */
};

void log_waits_init(struct log_waits *log, struct io *io);

/* Called once per iteration: fetches the ring. Returns whether it is so full that writes must wait. Beyond this an
 * iteration records at most the adds of one input arena, and these are not refused. */
bool log_waits_look(struct log_waits *log);

/* Reports that the log is on disk up to this ticket: replies that waited for it leave (journal.h). Tickets only rise.
 * Never fails; wakes the loop only if it sleeps. */
void log_waits_post_durable(struct log_waits *log, uint64_t ticket);

/* Reports room in the log: connections that waited for it get their turn. Never fails. */
void log_waits_post_room(struct log_waits *log);

/* Holds the replies of this iteration that rest on unsynced records. */
void log_waits_hold_replies(struct log_waits *log);

/* log_waits_release_durable() lets connections continue whose ticket is on disk; log_waits_release_room() those that
 * wait for room. */
void log_waits_release_durable(struct log_waits *log);
void log_waits_release_room(struct log_waits *log);
