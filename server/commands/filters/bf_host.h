/* bf_host: connects the library bf/, the meaning of BF.*, to this daemon's arguments, settings and replies.
 *
 * Thread: any. */
#ifndef BLOOMERY_BF_HOST_H
#define BLOOMERY_BF_HOST_H

#include "bf_out.h"
#include "bf_request.h"
#include "command.h"
#include "reply.h"

struct job_args;
struct server;

/* The words of a call; valid as long as its arguments. */
struct bf_args bf_args_of(const struct command_ctx *ctx);
struct bf_args bf_args_of_job(const struct job_args *args, const char *name);

/* The settings bf-initial-size, bf-error-rate and bf-expansion-factor, and the time. */
struct bf_defaults bf_defaults_of(const struct server *server);

/* Writes into `reply`, which must outlive it. */
struct bf_out bf_out_of(struct reply *reply);

#endif
