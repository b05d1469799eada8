/* job: commands that run in libuv's thread pool. Handlers use command_defer() (command.h).
 *
 * Thread: the loop's. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "command.h"
#include "host.h"

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

/* Starts the call in the pool; its connection waits for the reply, or, with `before`, for the command to run again when
 * the call is done. 0 or -ENOMEM (the caller still owns `data`). */
int job_post(struct jobs *jobs, struct command_ctx *ctx, void (*run)(struct command_job *job), void *data, bool before);

/* Starts the jobs that had to wait for an exclusive section (exclusive.h). */
void jobs_start_held(struct jobs *jobs);

/* sleep: commands that wait for a time, or for the log (command_sleep(), command_wait_for_log()). The connection waits;
 * its loop and the pool's threads do not. A loop checks its sleepers at each tick: a sleep may be a tick longer. */

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
