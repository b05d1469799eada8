/* follow_watch: receives the names of changed filters from the source, by CLIENT TRACKING ON BCAST, which Redis, Valkey
 * and Bloomery support; and pauses the source's writers for a cutover, by CLIENT PAUSE WRITE.
 *
 * Its own thread asks PING again and again, with a moment between. The messages about all changes before a PING arrive
 * before its reply, or before the reply to the next PING (in Bloomery a change wakes the loop of the connection, which
 * may be sending a reply). A lost connection is opened again; then everything may have changed.
 *
 * Lifetime: follow_watch_start() to follow_watch_stop(). Thread: the one that has started it. */
#ifndef BLOOMERY_FOLLOW_WATCH_H
#define BLOOMERY_FOLLOW_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "errbuf.h"
#include "followed.h"
#include "move.h"

struct follow_watch;

/* Starts the thread. `options` and `followed` outlive it. NULL with the reason. */
struct follow_watch *follow_watch_start(const struct move_options *options, struct followed *followed,
                                        struct errbuf *err);
void follow_watch_stop(struct follow_watch *watch); /* waits for its end; NULL is fine. A pause continues */

/* 0, or -errno with the reason why the thread has ended. */
int follow_watch_status(struct follow_watch *watch, struct errbuf *err);

/* Waits until the messages of all changes before the call are in `followed`: 0, -EINTR if stops(ctx), or as
 * follow_watch_status(). */
int follow_watch_settle(struct follow_watch *watch, bool (*stops)(void *ctx), void *ctx, struct errbuf *err);

/* Holds the writers back, from the next follow_watch_settle() on, until follow_watch_stop(). A lost connection or a
 * refusal is an end with -EACCES then. */
void follow_watch_pause(struct follow_watch *watch);

/* Until when (clock_ms()) the source holds its writers back for certain; 0: it does not. */
int64_t follow_watch_paused_until(const struct follow_watch *watch);

#endif
