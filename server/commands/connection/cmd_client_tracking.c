/* CLIENT TRACKING and its kin: what client-side caches ask for. Replies and errors are those of Redis 7.0. */
#include "command.h"
#include "handlers.h"
#include "host.h"
#include "server.h"

static void reply_ok(struct command_ctx *ctx)
{
    reply_status(ctx->reply, "OK");
}

/* ---- TRACKING ---- */

struct target {
    uint64_t id;
    bool found;
    uint32_t worker;
};

static void look_at(void *ctx, struct session *session)
{
    struct target *target = ctx;
    if (session->id != target->id)
        return;
    target->found = true;
    target->worker = session->worker;
}

/* Reads REDIRECT's argument. False after an error reply. */
static bool read_redirect(struct command_ctx *ctx, struct slice arg, struct session_tracking *options)
{
    struct target target = {.id = 0};
    int64_t id;
    if (options->redirect) {
        reply_error(ctx->reply, "ERR A client can only redirect to a single other client");
        return false;
    }
    if (!slice_to_int64(arg, &id)) {
        reply_error(ctx->reply, "ERR value is not an integer or out of range");
        return false;
    }
    target.id = (uint64_t)id;
    sessions_each(ctx->server->sessions, look_at, &target);
    if (!target.found) {
        reply_error(ctx->reply, "ERR The client ID you want redirect to does not exist");
        return false;
    }
    options->redirect = target.id;
    options->redirect_worker = target.worker;
    return true;
}

static bool read_options(struct command_ctx *ctx, struct session_tracking *options)
{
    for (size_t i = 3; i < command_argc(ctx); i++) {
        struct slice word = command_arg(ctx, i);
        bool more = i + 1 < command_argc(ctx);
        if (slice_is(word, "REDIRECT") && more) {
            if (!read_redirect(ctx, command_arg(ctx, ++i), options))
                return false;
        } else if (slice_is(word, "OPTIN")) {
            options->optin = true;
        } else if (slice_is(word, "OPTOUT")) {
            options->optout = true;
        } else if (slice_is(word, "NOLOOP")) {
            options->noloop = true;
        } else if (slice_is(word, "BCAST") || (slice_is(word, "PREFIX") && more)) {
            reply_error(ctx->reply,
                        "ERR BCAST and PREFIX are not supported: CLIENT TRACKING is of the filters that the "
                        "client has read");
            return false;
        } else {
            reply_error(ctx->reply, "ERR syntax error");
            return false;
        }
    }
    return true;
}

static const char *conflict_of(const struct session *session, const struct session_tracking *options)
{
    if (options->optin && options->optout)
        return "ERR You can't specify both OPTIN mode and OPTOUT mode";
    if (session_tracks(session) &&
        ((options->optin && session->tracking.optout) || (options->optout && session->tracking.optin)))
        return "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling "
               "it with a different mode.";
    return NULL;
}

void cmd_client_tracking(struct command_ctx *ctx)
{
    struct session_tracking options = {.redirect = 0};
    if (!read_options(ctx, &options))
        return;
    if (slice_is(command_arg(ctx, 2), "OFF")) {
        command_stop_tracking(ctx);
        reply_ok(ctx);
    } else if (!slice_is(command_arg(ctx, 2), "ON")) {
        reply_error(ctx->reply, "ERR syntax error");
    } else {
        const char *conflict = conflict_of(ctx->session, &options);
        if (conflict)
            reply_error(ctx->reply, conflict);
        else if (command_start_tracking(ctx, &options) != 0)
            reply_error(ctx->reply, "ERR out of memory");
        else
            reply_ok(ctx);
    }
}

/* ---- CACHING ---- */

void cmd_client_caching(struct command_ctx *ctx)
{
    struct session_tracking *tracking = &ctx->session->tracking;
    bool yes = slice_is(command_arg(ctx, 2), "YES"), no = slice_is(command_arg(ctx, 2), "NO");
    if (!session_tracks(ctx->session))
        reply_error(ctx->reply,
                    "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or "
                    "OPTOUT mode enabled");
    else if (!yes && !no)
        reply_error(ctx->reply, "ERR syntax error");
    else if (yes && !tracking->optin)
        reply_error(ctx->reply, "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.");
    else if (no && !tracking->optout)
        reply_error(ctx->reply, "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.");
    else {
        tracking->caching = true;
        tracking->caching_ends = false;
        reply_ok(ctx);
    }
}

/* ---- what is set ---- */

static int64_t redirection(const struct session *session)
{
    return session_tracks(session) ? (int64_t)session->tracking.redirect : -1;
}

void cmd_client_getredir(struct command_ctx *ctx)
{
    reply_integer(ctx->reply, redirection(ctx->session));
}

void cmd_client_trackinginfo(struct command_ctx *ctx)
{
    const struct session_tracking *tracking = &ctx->session->tracking;
    const char *flags[6];
    size_t n = 0;
    bool on = session_tracks(ctx->session);
    flags[n++] = on ? "on" : "off";
    if (on && tracking->optin)
        flags[n++] = "optin";
    if (on && tracking->optin && tracking->caching)
        flags[n++] = "caching-yes";
    if (on && tracking->optout)
        flags[n++] = "optout";
    if (on && tracking->optout && tracking->caching)
        flags[n++] = "caching-no";
    if (on && tracking->noloop)
        flags[n++] = "noloop";
    if (atomic_load_explicit(&ctx->session->flags, memory_order_relaxed) & SESSION_REDIRECT_BROKEN && n < 6)
        flags[n++] = "broken_redirect";
    reply_map(ctx->reply, 3);
    reply_bulk_str(ctx->reply, "flags");
    reply_set(ctx->reply, n);
    for (size_t i = 0; i < n; i++)
        reply_bulk_str(ctx->reply, flags[i]);
    reply_bulk_str(ctx->reply, "redirect");
    reply_integer(ctx->reply, redirection(ctx->session));
    reply_bulk_str(ctx->reply, "prefixes");
    reply_array(ctx->reply, 0);
}
