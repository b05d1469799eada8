/* CLIENT TRACKING and its kin: commands for client-side caches. Replies and errors are those of Redis 7.0. */
#include <string.h>

#include "broadcast.h"
#include "command.h"
#include "handlers.h"
#include "host.h"
#include "server.h"

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
static bool read_redirect(struct command_ctx *ctx, struct slice arg, struct tracking_options *options)
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
    sessions_each(ctx->server->clients.sessions, look_at, &target);
    if (!target.found) {
        reply_error(ctx->reply, "ERR The client ID you want redirect to does not exist");
        return false;
    }
    options->redirect = target.id;
    options->redirect_worker = target.worker;
    return true;
}

/* The options behind ON or OFF. */
struct request {
    struct tracking_options options;
    size_t n;
    struct slice prefixes[COMMAND_MAX_WORDS / 2];
};

static bool read_request(struct command_ctx *ctx, struct request *request)
{
    struct tracking_options *options = &request->options;
    for (size_t i = 3; i < command_argc(ctx); i++) {
        struct slice word = command_arg(ctx, i);
        bool more = i + 1 < command_argc(ctx);
        if (slice_is(word, "REDIRECT") && more) {
            if (!read_redirect(ctx, command_arg(ctx, ++i), options))
                return false;
        } else if (slice_is(word, "BCAST")) {
            options->set |= TRACKING_BCAST;
        } else if (slice_is(word, "OPTIN")) {
            options->set |= TRACKING_OPTIN;
        } else if (slice_is(word, "OPTOUT")) {
            options->set |= TRACKING_OPTOUT;
        } else if (slice_is(word, "NOLOOP")) {
            options->set |= TRACKING_NOLOOP;
        } else if (slice_is(word, "PREFIX") && more) {
            request->prefixes[request->n++] = command_arg(ctx, ++i);
        } else {
            reply_error(ctx->reply, "ERR syntax error");
            return false;
        }
    }
    return true;
}

static const char *conflict_of(const struct session *session, const struct request *request)
{
    const unsigned opts = TRACKING_OPTIN | TRACKING_OPTOUT, requested = request->options.set;
    const unsigned changed = session_tracks(session) ? requested ^ session->tracking.options.set : 0;
    if (!(requested & TRACKING_BCAST) && request->n)
        return "ERR PREFIX option requires BCAST mode to be enabled";
    if (changed & TRACKING_BCAST)
        return "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling "
               "it with a different mode.";
    if (requested & TRACKING_BCAST && requested & opts)
        return "ERR OPTIN and OPTOUT are not compatible with BCAST";
    if ((requested & opts) == opts)
        return "ERR You can't specify both OPTIN mode and OPTOUT mode";
    if ((changed & opts) == opts)
        return "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling "
               "it with a different mode.";
    return NULL;
}

static bool begins_alike(struct slice a, struct slice b)
{
    size_t common = a.len < b.len ? a.len : b.len;
    return common == 0 || memcmp(a.ptr, b.ptr, common) == 0;
}

/* The text has no room for long prefixes. */
static int shown(struct slice prefix)
{
    return (int)(prefix.len < 200 ? prefix.len : 200);
}

static void reply_overlap(struct command_ctx *ctx, struct slice prefix, const char *with, struct slice other)
{
    reply_errorf(ctx->reply,
                 "ERR Prefix '%.*s' overlaps with %s prefix '%.*s'. Prefixes for a single client must not overlap.",
                 shown(prefix), prefix.ptr, with, shown(other), other.ptr);
}

/* False after an error reply. */
static bool do_not_overlap(struct command_ctx *ctx, const struct request *request)
{
    const struct broadcast_client *has = ctx->session->tracking.broadcast;
    struct slice other;
    for (size_t i = 0; i < request->n; i++) {
        struct slice prefix = request->prefixes[i];
        if (has && broadcast_overlaps(has, prefix, &other)) {
            reply_overlap(ctx, prefix, "an existing", other);
            return false;
        }
        for (size_t j = i + 1; j < request->n; j++) {
            if (begins_alike(prefix, request->prefixes[j])) {
                reply_overlap(ctx, prefix, "another provided", request->prefixes[j]);
                return false;
            }
        }
    }
    return true;
}

static void switch_on(struct command_ctx *ctx, struct request *request)
{
    const char *conflict = conflict_of(ctx->session, request);
    if (conflict) {
        reply_error(ctx->reply, conflict);
        return;
    }
    if (!do_not_overlap(ctx, request))
        return;
    if (request->options.set & TRACKING_BCAST && request->n == 0)
        request->prefixes[request->n++] = (struct slice){"", 0}; /* all names */
    switch (command_start_tracking(ctx, &request->options, request->prefixes, request->n)) {
    case 0:
        reply_status(ctx->reply, "OK");
        break;
    case BROADCAST_LIMIT:
        reply_errorf(ctx->reply, "ERR the clients already have %zu different prefixes, the maximum",
                     BROADCAST_MAX_PREFIXES);
        break;
    default:
        reply_error(ctx->reply, "ERR out of memory");
    }
}

void cmd_client_tracking(struct command_ctx *ctx)
{
    struct request request;
    request.options = (struct tracking_options){.set = 0};
    request.n = 0;
    if (!read_request(ctx, &request))
        return;
    if (slice_is(command_arg(ctx, 2), "ON")) {
        switch_on(ctx, &request);
    } else if (slice_is(command_arg(ctx, 2), "OFF")) {
        command_stop_tracking(ctx);
        reply_status(ctx->reply, "OK");
    } else {
        reply_error(ctx->reply, "ERR syntax error");
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
    else if (yes && !(tracking->options.set & TRACKING_OPTIN))
        reply_error(ctx->reply, "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.");
    else if (no && !(tracking->options.set & TRACKING_OPTOUT))
        reply_error(ctx->reply, "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.");
    else {
        tracking->exception = EXCEPTION_NEXT;
        reply_status(ctx->reply, "OK");
    }
}

/* ---- the present options ---- */

static int64_t redirection(const struct session *session)
{
    return session_tracks(session) ? (int64_t)session->tracking.options.redirect : -1;
}

void cmd_client_getredir(struct command_ctx *ctx)
{
    reply_integer(ctx->reply, redirection(ctx->session));
}

/* The flags of CLIENT TRACKINGINFO. Returns their number, at most 7. */
static size_t name_flags(const struct session *session, const char *flags[7])
{
    bool on = session_tracks(session), excepted = session->tracking.exception != EXCEPTION_NONE;
    unsigned set = on ? session->tracking.options.set : 0;
    size_t n = 0;
    flags[n++] = on ? "on" : "off";
    if (set & TRACKING_BCAST)
        flags[n++] = "bcast";
    if (set & TRACKING_OPTIN)
        flags[n++] = "optin";
    if (set & TRACKING_OPTIN && excepted)
        flags[n++] = "caching-yes";
    if (set & TRACKING_OPTOUT)
        flags[n++] = "optout";
    if (set & TRACKING_OPTOUT && excepted)
        flags[n++] = "caching-no";
    if (set & TRACKING_NOLOOP)
        flags[n++] = "noloop";
    if (atomic_load_explicit(&session->flags, memory_order_relaxed) & SESSION_REDIRECT_BROKEN)
        flags[n++] = "broken_redirect";
    return n;
}

void cmd_client_trackinginfo(struct command_ctx *ctx)
{
    const struct broadcast_client *broadcast = ctx->session->tracking.broadcast;
    const char *flags[7]; /* bcast excludes optin and optout, and one of these the other */
    size_t n = name_flags(ctx->session, flags), prefixes = broadcast ? broadcast_client_count(broadcast) : 0;
    reply_map(ctx->reply, 3);
    reply_bulk_str(ctx->reply, "flags");
    reply_set(ctx->reply, n);
    for (size_t i = 0; i < n; i++)
        reply_bulk_str(ctx->reply, flags[i]);
    reply_number_pair(ctx->reply, "redirect", redirection(ctx->session));
    reply_bulk_str(ctx->reply, "prefixes");
    reply_array(ctx->reply, prefixes);
    for (size_t i = 0; i < prefixes; i++) {
        struct slice prefix = broadcast_client_prefix(broadcast, i);
        reply_bulk(ctx->reply, prefix.ptr, prefix.len);
    }
}
