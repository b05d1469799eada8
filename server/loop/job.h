/* job: commands that go on in libuv's thread pool. Handlers use command_defer() (command.h).
 *
 * Thread: loop. */
#ifndef BLOOMERY_JOB_H
#define BLOOMERY_JOB_H

#include "command.h"

struct worker;

/* Hands the call over; its connection waits until it comes back, with the reply. 0 or -ENOMEM (`data` is still the
 * caller's). */
int job_post(struct command_ctx *ctx, void (*run)(struct command_job *job), void *data);

/* Starts the worker's jobs that had to wait for an exclusive section (exclusive.h). */
void job_start_held(struct worker *worker);

#endif
