/* exclusive: sections in which one worker runs commands while all others stand still, for EXEC and CLIENT PAUSE.
 *
 * A connection that needs such a section asks for it and waits. All workers are called to a gate; when the last has
 * arrived, each in turn gives a turn to those of its connections that have asked, and then all go on: whoever asks
 * while the gate is gathering shares it. Ordinary commands pay nothing for this.
 *
 * Deferred commands that read or change filters run in threads of the pool and do not stand at the gate. They are
 * counted: the gate gathers when none is under way, and one that is deferred meanwhile starts after the gate. With one
 * worker and no such job under way no gate is needed.
 *
 * Gates for other purposes (worker_post_gate()) must be posted to all workers under exclusive_order_lock(): every
 * worker then meets all gates in the same order, or two of them would wait for each other. */
#ifndef BLOOMERY_EXCLUSIVE_H
#define BLOOMERY_EXCLUSIVE_H

#include <stdbool.h>

struct conn;
struct conn_link;
struct exclusive;
struct server;
struct worker;

int exclusive_create(struct exclusive **exclusive_out); /* 0 or -ENOMEM */
void exclusive_destroy(struct exclusive *exclusive);    /* NULL is fine; no worker may be left */

/* Whether the calling worker may do now what has to be isolated from all others. Stays so until the command ends.
 * Thread: loop. */
bool exclusive_now(const struct worker *worker);

/* Makes the connection wait (CONN_WAITS_EXCLUSIVE) for a section, in which it is given a turn: the command that asked,
 * which must return DISPATCH_LATER, is dispatched again. Thread: loop. */
void exclusive_request(struct conn *conn);

/* To be called before a job of the pool that reads or changes filters starts. false: not now; the job is to be put into
 * worker->jobs_held and started by exclusive's call of job_start_held(). Thread: loop. */
bool exclusive_job_begin(struct worker *worker);

/* Such a job has ended. Thread: any. */
void exclusive_job_end(struct server *server);

void exclusive_order_lock(struct exclusive *exclusive);
void exclusive_order_unlock(struct exclusive *exclusive);

#endif
