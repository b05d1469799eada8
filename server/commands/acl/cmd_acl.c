/* ACL: the subcommands about commands, categories and the log. Users are in cmd_acl_users.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "acl_session.h"
#include "clock.h"
#include "command.h"
#include "handlers.h"
#include "rcu.h"
#include "server.h"

void cmd_acl_whoami(struct command_ctx *ctx)
{
    const char *name = ctx->session->acl.user->name;
    reply_bulk_str(ctx->reply, name);
}

/* ---- ACL CAT ---- */

static void reply_categories(struct reply *reply)
{
    size_t n = 0;
    while (acl_category_name(n))
        n++;
    reply_array(reply, n);
    for (size_t i = 0; i < n; i++)
        reply_bulk_str(reply, acl_category_name(i));
}

void cmd_acl_cat(struct command_ctx *ctx)
{
    const struct acl_command *command;
    size_t n = 0;

    if (command_argc(ctx) > 3) {
        reply_wrong_subcommand(ctx);
        return;
    }
    if (command_argc(ctx) == 2) {
        reply_categories(ctx->reply);
        return;
    }
    struct slice name = command_arg(ctx, 2);
    int category = acl_category(name);
    if (category < 0) {
        reply_errorf(ctx->reply, "ERR Unknown category '%.*s'", slice_shown(name), name.len > 0 ? name.ptr : "");
        return;
    }
    size_t token = reply_array_begin(ctx->reply);
    for (size_t i = 0; (command = acl_command(i)) != NULL; i++) {
        if (!(command->categories & UINT32_C(1) << category))
            continue;
        reply_bulk_str(ctx->reply, command->row->full_name);
        n++;
    }
    reply_array_end(ctx->reply, token, n);
}

/* ---- ACL DRYRUN ---- */

#define DRYRUN_COMMAND 3 /* ACL DRYRUN user command ... */

static void reply_dryrun(struct command_ctx *ctx, const struct acl_user *user, const struct command *row)
{
    char text[1024];
    size_t at = 0;
    enum acl_verdict verdict = acl_check(user, row, ctx->args, DRYRUN_COMMAND, &at);
    struct slice word = command_arg(ctx, at);
    int len = 0;

    if (verdict == ACL_ALLOWED) {
        reply_status(ctx->reply, "OK");
        return;
    }
    if (verdict == ACL_DENIED_WORK) {
        reply_error(ctx->reply, acl_denial(verdict, row, text, sizeof(text)));
        return;
    }
    if (verdict == ACL_DENIED_COMMAND)
        len = snprintf(text, sizeof(text), "This user has no permissions to run the '%s' command", row->full_name);
    else
        len = snprintf(text, sizeof(text), "This user has no permissions to access the '%.*s' %s",
                       word.len > 512 ? 512 : (int)word.len, word.len > 0 ? word.ptr : "",
                       verdict == ACL_DENIED_KEY ? "key" : "channel");
    reply_bulk(ctx->reply, text, (size_t)len);
}

void cmd_acl_dryrun(struct command_ctx *ctx)
{
    struct slice name = command_arg(ctx, 2), command = command_arg(ctx, DRYRUN_COMMAND);
    const struct command *row = command_find_called(ctx->args, DRYRUN_COMMAND);
    struct acl_user *user = acl_get(ctx->server->acl, name);

    if (!user)
        reply_errorf(ctx->reply, "ERR User '%.*s' not found", slice_shown(name), name.len ? name.ptr : "");
    else if (!row)
        reply_errorf(ctx->reply, "ERR Command '%.*s' not found", slice_shown(command), command.len ? command.ptr : "");
    else if (!row->handler || !command_arity_fits(row, command_argc(ctx) - DRYRUN_COMMAND))
        reply_errorf(ctx->reply, "ERR wrong number of arguments for '%s' command", row->full_name);
    else
        reply_dryrun(ctx, user, row);
    acl_user_unref(user);
}

/* ---- others ---- */

#define GENPASS_MAX_BITS 4096

void cmd_acl_genpass(struct command_ctx *ctx)
{
    unsigned char random[GENPASS_MAX_BITS / 8];
    char hex[GENPASS_MAX_BITS / 4 + 3];
    int64_t bits = 256;

    if (command_argc(ctx) > 3) {
        reply_wrong_subcommand(ctx);
        return;
    }
    if (command_argc(ctx) == 3 && !slice_to_int64(command_arg(ctx, 2), &bits)) {
        reply_error(ctx->reply, "ERR value is not an integer or out of range");
        return;
    }
    if (bits < 1 || bits > GENPASS_MAX_BITS) {
        reply_errorf(ctx->reply,
                     "ERR ACL GENPASS argument must be the number of bits for the output password, a positive "
                     "number up to %d",
                     GENPASS_MAX_BITS);
        return;
    }
    size_t digits = (size_t)(bits + 3) / 4, nbytes = (digits + 1) / 2;
    for (size_t got = 0; got < nbytes;) { /* more than 256 bytes may come in pieces */
        ssize_t n = getrandom(random + got, nbytes - got, 0);
        if (n > 0)
            got += (size_t)n;
    }
    for (size_t i = 0; i < nbytes; i++)
        snprintf(hex + 2 * i, 3, "%02x", random[i]);
    reply_bulk(ctx->reply, hex, digits);
}

#define LOG_INLINE 128 /* entries are written on the loop, in 0.2 ms; as many as acllog-max-len has by default */

static void reply_log_begin(void *ctx, size_t n)
{
    reply_array(ctx, n);
}

static void reply_log_entry(void *ctx, const struct acl_log_entry *entry)
{
    struct reply *reply = ctx;
    int64_t now_ms = clock_unix_ms(), age_ms = now_ms > entry->at_ms ? now_ms - entry->at_ms : 0;
    reply_map(reply, 10);
    reply_number_pair(reply, "count", (int64_t)entry->count);
    reply_pair(reply, "reason", entry->reason);
    reply_pair(reply, "context", entry->in_multi ? "multi" : "toplevel");
    reply_bulk_str(reply, "object");
    reply_bulk(reply, entry->object.ptr, entry->object.len);
    reply_bulk_str(reply, "username");
    reply_bulk(reply, entry->user.ptr, entry->user.len);
    reply_bulk_str(reply, "age-seconds");
    reply_double(reply, (double)age_ms / 1000);
    reply_bulk_str(reply, "client-info");
    reply_bulk(reply, entry->client.ptr, entry->client.len);
    reply_number_pair(reply, "entry-id", (int64_t)entry->id);
    reply_number_pair(reply, "timestamp-created", entry->first_ms);
    reply_number_pair(reply, "timestamp-last-updated", entry->at_ms);
}

/* 1.5 us for each entry. */
static void reply_log(struct acl *acl, size_t count, struct reply *reply)
{
    if (!acl_log_each(acl, count, reply_log_begin, reply_log_entry, reply))
        reply_error(reply, "ERR out of memory");
}

static void run_log(struct command_job *job)
{
    rcu_reader_offline();
    reply_log(job->server->acl, (size_t) * (const int64_t *)job->data, &job->reply);
    rcu_reader_online();
}

void cmd_acl_log(struct command_ctx *ctx)
{
    int64_t count = 10;

    if (command_argc(ctx) > 3) {
        reply_wrong_subcommand(ctx);
    } else if (command_argc(ctx) == 3 && slice_is(command_arg(ctx, 2), "RESET")) {
        acl_log_reset(ctx->server->acl);
        reply_status(ctx->reply, "OK");
    } else if (command_argc(ctx) == 3 && !slice_to_int64(command_arg(ctx, 2), &count)) {
        reply_error(ctx->reply, "ERR value is not an integer or out of range");
    } else if (count > LOG_INLINE && acl_log_size(ctx->server->acl) > LOG_INLINE) {
        command_defer_copy(ctx, run_log, &count, sizeof(count));
    } else {
        reply_log(ctx->server->acl, count < 0 ? 0 : (size_t)count, ctx->reply);
    }
}
