/* sleep: commands that wait for a time, or for the log (command_sleep(), command_wait_for_log()). The connection waits;
 * its loop and the pool's threads do not. A loop checks its sleepers at each tick, so a sleep may be up to
 * a tick longer than requested.
 *
 * Thread: the loop's. */
#ifndef BLOOMERY_SLEEP_H
#define BLOOMERY_SLEEP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "host.h"

struct io;
struct log_waits;
struct sleeper;

/* A loop's part. */
struct sleepers {
    struct io *io;
    const struct log_waits *log;
    struct sleeper *for_time, *for_log;
    uint64_t log_seen;  /* the ticket of the last sleepers_look_at_log() */
    _Atomic unsigned n; /* of both kinds */
};

void sleepers_init(struct sleepers *sleepers, struct io *io, const struct log_waits *log);

/* command_sleep() and command_wait_for_log() of a connection of the loop. */
void sleepers_add(struct sleepers *sleepers, struct command_ctx *ctx, int64_t ms, const char *reply, bool timed);
void sleepers_add_for_log(struct sleepers *sleepers, struct command_ctx *ctx, int64_t ms, bool for_replicas);

/* Ends the waits for the log that are fulfilled, as it may have more on disk by now. */
void sleepers_look_at_log(struct sleepers *sleepers);

/* Ends the sleeps that are over, and those whose connections have been closed; all of them with `all`. */
void sleepers_wake(struct sleepers *sleepers, bool all);

#endif
