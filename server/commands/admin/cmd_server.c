/* Commands on the server as a whole: saving, stopping, the time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"
#include "command.h"
#include "handlers.h"
#include "saver.h"
#include "persistence.h"
#include "server.h"

static const char save_running[] = "ERR Background save already in progress";

static void save_job(struct command_job *job)
{
    struct errbuf err = {""};
    rcu_reader_offline(); /* it may take minutes */
    int status = saver_run(job->server->persistence->saver, &err);
    rcu_reader_online();
    if (status == 0)
        reply_status(&job->reply, "OK");
    else if (status == SAVER_BUSY)
        reply_error(&job->reply, save_running);
    else
        reply_errorf(&job->reply, "ERR %s", err.text);
}

void cmd_save(struct command_ctx *ctx)
{
    command_defer(ctx, save_job, NULL);
}

void cmd_bgsave(struct command_ctx *ctx)
{
    bool schedule = command_argc(ctx) == 2 && slice_is(command_arg(ctx, 1), "SCHEDULE");
    if (command_argc(ctx) > 2 || (command_argc(ctx) == 2 && !schedule)) {
        reply_error(ctx->reply, "ERR syntax error");
        return;
    }
    switch (saver_start(ctx->server->persistence->saver, schedule)) {
    case SAVER_STARTED:
        reply_status(ctx->reply, "Background saving started");
        return;
    case SAVER_SCHEDULED:
        reply_status(ctx->reply, "Background saving scheduled");
        return;
    case SAVER_BUSY:
        reply_error(ctx->reply, save_running);
        return;
    }
}

/* A save lets the log be cut, which is the purpose of a rewrite. */
void cmd_bgrewriteaof(struct command_ctx *ctx)
{
    reply_status(ctx->reply, saver_rewrite(ctx->server->persistence->saver) == SAVER_STARTED
                                 ? "Background append only file rewriting started"
                                 : "Background append only file rewriting scheduled");
}

void cmd_lastsave(struct command_ctx *ctx)
{
    struct saver_info info;
    saver_info(ctx->server->persistence->saver, &info);
    reply_integer(ctx->reply, info.last_save_unix);
}

void cmd_time(struct command_ctx *ctx)
{
    int64_t now_us = clock_unix_us();
    char text[24];
    reply_array(ctx->reply, 2);
    reply_bulk(ctx->reply, text, (size_t)snprintf(text, sizeof(text), "%" PRId64, now_us / 1000000));
    reply_bulk(ctx->reply, text, (size_t)snprintf(text, sizeof(text), "%" PRId64, now_us % 1000000));
}

/* ---- SHUTDOWN ---- */

static void shutdown_job(struct command_job *job)
{
    const struct shutdown_request *request = job->data;
    struct errbuf err = {""};
    rcu_reader_offline();
    bool going = job->server->calls.shutdown(job->server, request, &err);
    rcu_reader_online();
    if (!going)
        reply_errorf(&job->reply, "ERR Errors trying to SHUTDOWN: %s", err.text);
    /* Otherwise there is no reply: the end of the connection informs clients. */
}

void cmd_shutdown(struct command_ctx *ctx)
{
    struct shutdown_request request = {.save = SHUTDOWN_SAVE_BY_RULES};
    for (size_t i = 1; i < command_argc(ctx); i++) {
        struct slice word = command_arg(ctx, i);
        if (slice_is(word, "NOSAVE") && request.save != SHUTDOWN_SAVE) {
            request.save = SHUTDOWN_NOSAVE;
        } else if (slice_is(word, "SAVE") && request.save != SHUTDOWN_NOSAVE) {
            request.save = SHUTDOWN_SAVE;
        } else if (slice_is(word, "FORCE")) {
            request.force = true;
        } else if (slice_is(word, "ABORT") && command_argc(ctx) == 2) {
            reply_error(ctx->reply, "ERR No shutdown in progress.");
            return;
        } else if (!slice_is(word, "NOW")) { /* there are no replicas to wait for: every shutdown is now */
            reply_error(ctx->reply, "ERR syntax error");
            return;
        }
    }
    command_defer_copy(ctx, shutdown_job, &request, sizeof(request));
}
