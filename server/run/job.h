/* job: commands that run in libuv's thread pool. Handlers use command_defer() (command.h).
 *
 * Thread: the loop's. */
#ifndef BLOOMERY_JOB_H
#define BLOOMERY_JOB_H

#include "command.h"

struct io;
struct job;
struct push;
struct section;

/* A loop's part. */
struct jobs {
    struct io *io;
    struct section *section;
    struct push *push;
    struct job *held, **held_end; /* they start after the exclusive section */
};

void jobs_init(struct jobs *jobs, struct io *io, struct section *section, struct push *push);

/* Bytes that the deferred command holds, those of its reply so far included. */
size_t job_memory(const struct job *job);

/* The command that it runs. */
const struct command *job_command(const struct job *job);

/* Starts the call in the pool; its connection waits for the reply. 0 or -ENOMEM (the caller still owns `data`). */
int job_post(struct jobs *jobs, struct command_ctx *ctx, void (*run)(struct command_job *job), void *data);

/* The same without a reply: the command runs again when the call is done. */
int job_post_before(struct jobs *jobs, struct command_ctx *ctx, void (*run)(struct command_job *job), void *data);

/* Starts the jobs that had to wait for an exclusive section (exclusive.h). */
void jobs_start_held(struct jobs *jobs);

#endif
