/* exclusive: sections in which one worker runs commands while all others stand still, for EXEC and CLIENT PAUSE.
 *
 * A connection requests such a section and waits. All workers are called to a gate. When the last one has arrived, the
 * workers one after another give a turn to their connections with requests, for some milliseconds in all, and then all
 * continue. A request that comes while the gate gathers shares it; a connection without a turn gets one at the next
 * gate. Ordinary commands pay nothing for this.
 *
 * Deferred commands that read or change filters run in threads of the pool and do not stand at the gate. They are
 * counted: the gate gathers when none is running, and one that is deferred meanwhile starts after the gate. With one
 * worker and no such job running no gate is needed.
 *
 * Gates for other purposes (worker_post_gate()) must be posted to all workers under exclusive_order_lock(). So every
 * worker meets all gates in one order; otherwise two workers could wait for each other. */
#pragma once

#include <stdbool.h>

#include "conn_list.h"

struct conn;
struct exclusive;
struct io;
struct server;

/* A loop's part. */
struct section {
    struct io *io;
    void (*opened)(struct section *section); /* called after each gate: starts the work that waited for it */
    struct conn_link waiters;                /* wait queue: CONN_WAITS_EXCLUSIVE */
    bool inside;                             /* all other workers stand still */
};

void section_init(struct section *section, struct io *io, void (*opened)(struct section *section));

int exclusive_create(struct exclusive **exclusive_out); /* 0 or -ENOMEM */
void exclusive_destroy(struct exclusive *exclusive);    /* NULL is fine; no worker may be left */

/* Whether the calling worker is alone now, until the command ends. Thread: loop. */
bool exclusive_now(const struct section *section);

/* Makes the connection wait (CONN_WAITS_EXCLUSIVE) for a section and a turn in it: its command, which must be kept
 * pending, then runs again. Thread: loop. */
void exclusive_request(struct section *section, struct conn *conn);

/* Called before a job of the pool that reads or changes filters starts. False: not now; the caller keeps the job until
 * section->opened(). Thread: loop. */
bool exclusive_job_begin(struct section *section);

/* Such a job has ended. Thread: any. */
void exclusive_job_end(struct server *server);

void exclusive_order_lock(struct exclusive *exclusive);
void exclusive_order_unlock(struct exclusive *exclusive);
