/* ACL: categories, the log and users. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "acl.h"
#include "clock.h"
#include "bytes.h"
#include "command.h"
#include "handlers.h"
#include "host.h"
#include "lock.h"
#include "rcu.h"
#include "server.h"

void cmd_acl_whoami(struct command_ctx *ctx)
{
    const char *name = ctx->session->acl.user->name;
    reply_bulk_str(ctx->reply, name);
}

/* ---- ACL CAT ---- */

void cmd_acl_cat(struct command_ctx *ctx)
{
    const struct acl_command *command;
    size_t n = 0;

    if (command_argc(ctx) > 3) {
        reply_wrong_subcommand(ctx);
        return;
    }
    if (command_argc(ctx) == 2) {
        size_t count = 0;
        while (acl_category_name(count))
            count++;
        reply_array(ctx->reply, count);
        for (size_t i = 0; i < count; i++)
            reply_bulk_str(ctx->reply, acl_category_name(i));
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
        hex_put(hex + 2 * i, (char)random[i]);
    reply_bulk(ctx->reply, hex, digits);
}

#define LOG_INLINE 128 /* entries are written on the loop, in 0.2 ms; as many as acllog-max-len has by default */

static void run_log(struct command_job *job)
{
    rcu_reader_offline();
    acl_log_reply(job->server->acl, (size_t) * (const int64_t *)job->data, &job->reply);
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
        acl_log_reply(ctx->server->acl, count < 0 ? 0 : (size_t)count, ctx->reply);
    }
}

#define AT_ONCE 64 /* users that are listed without a thread of the pool */

/* ---- showing ---- */

static void reply_line(struct reply *reply, struct buf *text)
{
    if (buf_failed(text))
        reply->buf->failed = true; /* without memory for the whole reply the connection is closed */
    reply_bulk(reply, buf_head(text), buf_len(text));
    buf_truncate(text, 0);
}

static void reply_users(struct acl *acl, struct reply *reply, bool described)
{
    struct acl_list list;
    struct buf text;

    if (!acl_list(acl, &list)) {
        reply_error(reply, "ERR out of memory");
        return;
    }
    buf_init(&text, SIZE_MAX);
    reply_array(reply, list.n);
    for (size_t i = 0; i < list.n; i++) {
        buf_appendf(&text, described ? "user %s " : "%s", list.users[i]->name);
        if (described)
            acl_user_describe(list.users[i], ACL_SHOWN, &text);
        reply_line(reply, &text);
    }
    buf_deinit(&text);
    acl_list_free(&list);
}

static void run_users(struct command_job *job)
{
    reply_users(job->server->acl, &job->reply, *(const bool *)job->data);
}

static void list_users(struct command_ctx *ctx, bool described)
{
    if (acl_count(ctx->server->acl) > AT_ONCE && !ctx->session->multi.in_exec)
        command_defer_copy(ctx, run_users, &described, sizeof(described));
    else
        reply_users(ctx->server->acl, ctx->reply, described);
}

void cmd_acl_users(struct command_ctx *ctx)
{
    list_users(ctx, false);
}

void cmd_acl_list(struct command_ctx *ctx)
{
    list_users(ctx, true);
}

static void reply_flags(struct reply *reply, unsigned flags)
{
    reply_bulk_str(reply, "flags");
    reply_set(reply, 1 + (size_t) !!(flags & ACL_NOPASS) + !!(flags & ACL_SANITIZE) + !!(flags & ACL_SKIP_SANITIZE));
    reply_bulk_str(reply, flags & ACL_ON ? "on" : "off");
    if (flags & ACL_NOPASS)
        reply_bulk_str(reply, "nopass");
    if (flags & ACL_SKIP_SANITIZE)
        reply_bulk_str(reply, "skip-sanitize-payload");
    if (flags & ACL_SANITIZE)
        reply_bulk_str(reply, "sanitize-payload");
}

/* Three pairs. */
static void reply_selector(struct reply *reply, const struct acl_selector *selector, struct buf *text)
{
    reply_bulk_str(reply, "commands");
    acl_describe_commands(selector, text);
    reply_line(reply, text);
    reply_bulk_str(reply, "keys");
    acl_describe_keys(selector, ACL_SHOWN, text);
    reply_line(reply, text);
    reply_bulk_str(reply, "channels");
    acl_describe_channels(selector, text);
    reply_line(reply, text);
}

static void reply_user(struct reply *reply, const struct acl_user *user)
{
    struct buf text;

    buf_init(&text, SIZE_MAX);
    reply_map(reply, 6);
    reply_flags(reply, user->flags);
    reply_bulk_str(reply, "passwords");
    reply_array(reply, user->npasswords);
    for (size_t i = 0; i < user->npasswords; i++) {
        for (size_t j = 0; j < ACL_DIGEST; j++)
            buf_appendf(&text, "%02x", user->passwords[i][j]);
        reply_line(reply, &text);
    }
    reply_selector(reply, &user->selectors[0], &text);
    reply_bulk_str(reply, "selectors");
    reply_array(reply, user->nselectors - 1);
    for (size_t i = 1; i < user->nselectors; i++) {
        reply_map(reply, 3);
        reply_selector(reply, &user->selectors[i], &text);
    }
    buf_deinit(&text);
}

void cmd_acl_getuser(struct command_ctx *ctx)
{
    struct acl_user *user = acl_get(ctx->server->acl, command_arg(ctx, 2));

    if (user)
        reply_user(ctx->reply, user);
    else
        reply_null(ctx->reply);
    acl_user_unref(user);
}

/* ---- changing ---- */

static void reply_fault(struct command_ctx *ctx, int fault, struct slice rule)
{
    const char *text = rule.len > 0 ? rule.ptr : "";

    if (fault < 0)
        reply_errorf(ctx->reply, "ERR Unmatched parenthesis in acl selector starting at '%.*s'.", slice_shown(rule),
                     text);
    else
        reply_errorf(ctx->reply, "ERR Error in ACL SETUSER modifier '%.*s': %s", slice_shown(rule), text,
                     acl_fault_text((enum acl_fault)fault));
}

/* The reply of a command that has changed users; `deleted` negative: OK. */
static void reply_change(struct reply *reply, int64_t deleted)
{
    if (deleted < 0)
        reply_status(reply, "OK");
    else
        reply_integer(reply, deleted);
}

static void run_change(struct command_job *job)
{
    job->again = !host_users_are_looked_at(job->server);
    if (!job->again)
        reply_change(&job->reply, *(const int64_t *)job->data);
}

/* After a change of users: replies when the clients are disconnected whose user is gone or may not hear their channels
 * any more. In a transaction, beside which no other worker runs, they are disconnected soon after it. */
static void finish_change(struct command_ctx *ctx, int64_t deleted)
{
    host_users_changed(ctx->server);
    if (ctx->session->multi.in_exec)
        reply_change(ctx->reply, deleted);
    else
        command_defer_copy(ctx, run_change, &deleted, sizeof(deleted));
}

void cmd_acl_setuser(struct command_ctx *ctx)
{
    size_t n = command_argc(ctx) - 3;
    struct slice name = command_arg(ctx, 2), rule = {"", 0};
    struct slice *rules = malloc((n + 1) * sizeof(*rules));
    struct buf scratch;

    if (!rules) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    for (size_t i = 0; i < n; i++)
        rules[i] = command_arg(ctx, 3 + i);
    buf_init(&scratch, SIZE_MAX);
    if (name.len == 0) {
        reply_error(ctx->reply, "ERR Usernames can't be empty");
    } else if (!acl_name_is_good(name)) {
        reply_error(ctx->reply, "ERR Usernames can't contain spaces or null characters");
    } else {
        bool all_channels = server_config(ctx->server)->users.acl_pubsub_default == PUBSUB_DEFAULT_ALL;
        int fault = acl_change(ctx->server->acl, name, rules, n, all_channels, &scratch, &rule);
        if (fault == ACL_GOOD)
            finish_change(ctx, -1);
        else
            reply_fault(ctx, fault, rule);
    }
    buf_deinit(&scratch);
    free(rules);
}

void cmd_acl_deluser(struct command_ctx *ctx)
{
    const struct acl_user *own = ctx->session->acl.user;
    int64_t deleted = 0;

    for (size_t i = 2; i < command_argc(ctx); i++) {
        struct slice name = command_arg(ctx, i);
        if (name.len == 7 && memcmp(name.ptr, "default", 7) == 0) {
            reply_error(ctx->reply, "ERR The 'default' user cannot be removed");
            return;
        }
    }
    for (size_t i = 2; i < command_argc(ctx); i++) {
        bool gone = acl_delete(ctx->server->acl, command_arg(ctx, i));
        deleted += gone;
        if (gone && slice_equal(command_arg(ctx, i), slice_of(own->name)))
            ctx->session->close_after_reply = true;
    }
    if (deleted)
        finish_change(ctx, deleted);
    else
        reply_integer(ctx->reply, 0);
}

/* ---- the file ---- */

#define ERRORS_MAX ((size_t)16 * 1024) /* bytes of the reply about a faulty file */

static bool has_file(struct command_ctx *ctx)
{
    if (server_config(ctx->server)->users.aclfile[0])
        return true;
    return reply_error(ctx->reply,
                       "ERR This Redis instance is not configured to use an ACL file. You may want to specify "
                       "users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a "
                       "Redis configuration file set) in order to store users in the Redis configuration.");
}

/* A copy of the settings, so that no reader's section is held open over the work on the file. */
static bool copy_settings(struct command_job *job, struct config *config_out)
{
    bool good = config_clone(server_config(job->server), config_out) == 0;
    if (!good)
        reply_error(&job->reply, "ERR out of memory");
    return good;
}

static void run_load(struct command_job *job)
{
    struct server *server = job->server;
    struct acl_list list = {NULL, 0};
    struct config config;
    struct buf errors;

    if (!copy_settings(job, &config))
        return;
    rcu_reader_offline();
    buf_init(&errors, ERRORS_MAX);
    int status = acl_file_read(&config, &list, &errors);
    if (status == 0)
        acl_replace_all(server->acl, &list);
    rcu_reader_online();
    if (status == 0) {
        host_users_changed(server);
        log_notice(&server->log, "ACL LOAD: the users of %s are in force", config.users.aclfile);
        job->run = run_change; /* which waits and replies */
        job->again = true;
    } else {
        log_warning(&server->log, "ACL LOAD: %.*s", buf_len(&errors) > 400 ? 400 : (int)buf_len(&errors),
                    buf_len(&errors) ? buf_head(&errors) : "");
        reply_errorf(&job->reply,
                     "ERR %.*sWARNING: ACL errors detected, no change to the previously active ACL rules was performed",
                     (int)buf_len(&errors), buf_len(&errors) ? buf_head(&errors) : "");
    }
    buf_deinit(&errors);
    config_deinit(&config);
}

void cmd_acl_load(struct command_ctx *ctx)
{
    if (!has_file(ctx))
        return;
    const int64_t deleted = -1;
    command_defer_copy(ctx, run_load, &deleted, sizeof(deleted));
}

static void run_save(struct command_job *job)
{
    struct server *server = job->server;
    struct config config;
    struct errbuf err = {""};

    if (!copy_settings(job, &config))
        return;
    rcu_reader_offline();
    lock_take(&server->settings.files);
    int status = acl_file_write(server->acl, &config, &err);
    lock_give(&server->settings.files);
    rcu_reader_online();
    if (status == 0) {
        reply_status(&job->reply, "OK");
    } else {
        log_warning(&server->log, "ACL SAVE: %s", err.text);
        reply_error(&job->reply,
                    "ERR There was an error trying to save the ACLs. Please check the server logs for more "
                    "information");
    }
    config_deinit(&config);
}

void cmd_acl_save(struct command_ctx *ctx)
{
    if (has_file(ctx))
        command_defer(ctx, run_save, NULL);
}
