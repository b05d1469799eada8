/* sleep: commands that wait for time to pass, or for the log. The connection waits, its loop and the pool's threads do
 * not. A worker looks at its sleepers at each tick, so a sleep may be up to WORKER_TICK_MS longer than asked for.
 *
 * Thread: the worker's. */
#ifndef BLOOMERY_SLEEP_H
#define BLOOMERY_SLEEP_H

#include <stdbool.h>
#include <stdint.h>

struct command_ctx;
struct sleeper;
struct worker;

#define SLEEP_FOR_EVER INT64_MAX

/* Makes the connection wait for `ms` (>= 0) milliseconds and then gives it the reply, which is text on the wire, the same in
 * both protocols, and constant. `timed`: the time counts as the command's. The handler must not reply itself. */
void command_sleep(struct command_ctx *ctx, int64_t ms, const char *reply, bool timed);

/* WAITAOF: makes the connection wait until all that was recorded before is on the disk, and the log has all that it
 * should, but for at most `ms` milliseconds; then gives it the reply. `for_replicas`: to the end, since there are none.
 * The handler must not reply itself, and does not call it in EXEC. */
void command_wait_for_log(struct command_ctx *ctx, int64_t ms, bool for_replicas);
extern const char sleep_without_log[]; /* what is answered where there is no log, on the wire */

/* Looks who has waited for the log long enough. For whenever worker->durable has risen. */
void sleepers_look_at_log(struct worker *worker);

/* Ends the sleeps that are over, and those whose connections have been closed; all of them with `all`. */
void sleepers_wake(struct worker *worker, bool all);

#endif
