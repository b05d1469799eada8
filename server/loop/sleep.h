/* sleep: commands that wait for a time, or for the log (command_sleep(), command_wait_for_log()). The connection waits;
 * its loop and the pool's threads do not. A worker checks its sleepers at each tick, so a sleep may be up to
 * WORKER_TICK_MS longer than requested.
 *
 * Thread: the worker's. */
#ifndef BLOOMERY_SLEEP_H
#define BLOOMERY_SLEEP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "host.h"

struct sleeper;
struct worker;

/* Those of a worker. */
struct sleepers {
    struct sleeper *for_time, *for_log;
    uint64_t log_seen;  /* the ticket of the last sleepers_look_at_log() */
    _Atomic unsigned n; /* of both kinds */
};

/* Looks who has waited for the log long enough, which has everything up to this ticket on disk. */
void sleepers_look_at_log(struct worker *worker, uint64_t durable);

/* Ends the sleeps that are over, and those whose connections have been closed; all of them with `all`. */
void sleepers_wake(struct worker *worker, bool all);

#endif
