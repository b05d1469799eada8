/* job: commands that run in libuv's thread pool. Handlers use command_defer() (command.h).
 *
 * Thread: loop. */
#ifndef BLOOMERY_JOB_H
#define BLOOMERY_JOB_H

#include "command.h"

struct job;
struct worker;

/* Jobs of a worker that start after the exclusive section. */
struct held_jobs {
    struct job *first, **end;
};

static inline void held_jobs_init(struct held_jobs *held)
{
    held->end = &held->first;
}

/* Starts the call in the pool; its connection waits for the reply. 0 or -ENOMEM (the caller still owns `data`). */
int job_post(struct command_ctx *ctx, void (*run)(struct command_job *job), void *data);

/* The same without a reply: the command runs again when the call is done. */
int job_post_before(struct command_ctx *ctx, void (*run)(struct command_job *job), void *data);

/* Starts the worker's jobs that had to wait for an exclusive section (exclusive.h). */
void job_start_held(struct worker *worker);

#endif
