/* history: the last hour of the daemon, a point for each ten seconds. It begins with the web thread, not with the first
 * view of the status page.
 *
 * Memory: 30 kB. Thread: the web thread's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"

#define HISTORY_STEP_MS 10000
#define HISTORY_POINTS  360

struct history;
struct server;

/* NULL without memory. */
struct history *history_create(void);
void history_destroy(struct history *history); /* NULL is fine */

/* Takes a point when it is time. Returns the milliseconds to the next. `now_ms` is monotonic. An online RCU reader. */
int history_step(struct history *history, struct server *server, int64_t now_ms);

/* The processors that were in use between the last two points; NAN: unknown. */
double history_cpu(const struct history *history);

/* The points as JSON, the oldest first. */
void history_write(const struct history *history, struct buf *out);
