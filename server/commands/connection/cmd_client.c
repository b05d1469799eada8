/* CLIENT: queries and settings of a connection about itself and others. */

#include "clock.h"
#include "command.h"
#include "handlers.h"
#include "host.h"
#include "server.h"

/* ---- itself ---- */

void cmd_client_id(struct command_ctx *ctx)
{
    reply_integer(ctx->reply, (int64_t)ctx->session->id);
}

void cmd_client_getname(struct command_ctx *ctx)
{
    if (ctx->session->texts.of[SESSION_NAME] == NULL)
        reply_null(ctx->reply);
    else
        reply_bulk_str(ctx->reply, ctx->session->texts.of[SESSION_NAME]);
}

void cmd_client_setname(struct command_ctx *ctx)
{
    if (session_set_text(ctx, SESSION_NAME, command_arg(ctx, 2), "Client names"))
        reply_status(ctx->reply, "OK");
}

void cmd_client_setinfo(struct command_ctx *ctx)
{
    struct slice option = command_arg(ctx, 2);
    bool lib_name = slice_is(option, "LIB-NAME");

    if (!lib_name && !slice_is(option, "LIB-VER")) {
        reply_errorf(ctx->reply, "ERR Unrecognized option '%.*s'", slice_shown(option), option.ptr);
        return;
    }
    if (session_set_text(ctx, lib_name ? SESSION_LIB_NAME : SESSION_LIB_VER, command_arg(ctx, 3),
                         lib_name ? "LIB-NAME" : "LIB-VER"))
        reply_status(ctx->reply, "OK");
}

void cmd_client_info(struct command_ctx *ctx)
{
    struct buf text;

    buf_init(&text, SIZE_MAX);
    session_format(ctx->session, clock_ms(), &text);
    buf_append(&text, "\n", 1);
    reply_text(ctx->reply, &text);
}

/* ---- REPLY, PAUSE ---- */

void cmd_client_reply(struct command_ctx *ctx)
{
    struct session *session = ctx->session;
    struct slice mode = command_arg(ctx, 2);
    if (slice_is(mode, "ON")) {
        session->modes &= ~(unsigned)(MODE_REPLY_OFF | MODE_REPLY_SKIP | MODE_REPLY_SKIP_NEXT);
        reply_status(ctx->reply, "OK");
    } else if (slice_is(mode, "OFF")) {
        session->modes |= MODE_REPLY_OFF;
    } else if (slice_is(mode, "SKIP")) {
        if (!(session->modes & MODE_REPLY_OFF))
            session->modes |= MODE_REPLY_SKIP_NEXT;
    } else {
        reply_error(ctx->reply, "ERR syntax error");
    }
}

/* Reads timeout and mode. False: an error has been replied. */
static bool pause_arguments(struct command_ctx *ctx, int64_t *timeout_ms_out, enum pause *pause_out)
{
    *pause_out = PAUSE_ALL;
    if (command_argc(ctx) > 4) {
        reply_wrong_subcommand(ctx);
        return false;
    }
    if (command_argc(ctx) == 4) {
        if (slice_is(command_arg(ctx, 3), "WRITE")) {
            *pause_out = PAUSE_WRITES;
        } else if (!slice_is(command_arg(ctx, 3), "ALL")) {
            reply_error(ctx->reply, "ERR CLIENT PAUSE mode must be WRITE or ALL");
            return false;
        }
    }
    if (!slice_to_int64(command_arg(ctx, 2), timeout_ms_out) || *timeout_ms_out > INT64_MAX / 2) {
        reply_error(ctx->reply, "ERR timeout is not an integer or out of range");
        return false;
    }
    if (*timeout_ms_out < 0) {
        reply_error(ctx->reply, "ERR timeout is negative");
        return false;
    }
    return true;
}

/* The pause is in force on all workers when OK is replied: hence the exclusive section. Of two pauses at a time the
 * longer and the stricter hold, as in Redis. */
void cmd_client_pause(struct command_ctx *ctx)
{
    struct server *server = ctx->server;
    int64_t timeout_ms, now = clock_ms();
    enum pause pause;
    if (!pause_arguments(ctx, &timeout_ms, &pause))
        return;
    if (!ctx->session->multi.in_exec && !command_is_alone(ctx)) {
        command_wait_to_be_alone(ctx);
        return;
    }
    int64_t until = now + timeout_ms, old = atomic_load_explicit(&server->clients.pause.until_ms, memory_order_relaxed);
    enum pause was = (enum pause)atomic_load_explicit(&server->clients.pause.what, memory_order_relaxed);
    if (was && old > now) {
        until = until > old ? until : old;
        pause = pause > was ? pause : was;
    }
    atomic_store_explicit(&server->clients.pause.until_ms, until, memory_order_relaxed);
    atomic_store_explicit(&server->clients.pause.what, (int)pause, memory_order_release);
    command_pause_changed(ctx, false);
    reply_status(ctx->reply, "OK");
}

void cmd_client_unpause(struct command_ctx *ctx)
{
    atomic_store_explicit(&ctx->server->clients.pause.what, PAUSE_NOTHING, memory_order_release);
    command_pause_changed(ctx, true);
    reply_status(ctx->reply, "OK");
}

/* ---- features that do not exist here ---- */

/* No command blocks. */
void cmd_client_unblock(struct command_ctx *ctx)
{
    int64_t id;
    if (command_argc(ctx) > 4)
        reply_wrong_subcommand(ctx);
    else if (command_argc(ctx) == 4 && !slice_is(command_arg(ctx, 3), "TIMEOUT") &&
             !slice_is(command_arg(ctx, 3), "ERROR"))
        reply_error(ctx->reply, "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
    else if (!slice_to_int64(command_arg(ctx, 2), &id))
        reply_error(ctx->reply, "ERR value is not an integer or out of range");
    else
        reply_integer(ctx->reply, 0);
}

static void client_switch(struct command_ctx *ctx, enum session_flag flag)
{
    struct slice value = command_arg(ctx, 2);
    bool on = slice_is(value, "on");

    if (!on && !slice_is(value, "off")) {
        reply_error(ctx->reply, "ERR syntax error");
        return;
    }
    if (on)
        atomic_fetch_or_explicit(&ctx->session->flags, flag, memory_order_relaxed);
    else
        atomic_fetch_and_explicit(&ctx->session->flags, ~(unsigned)flag, memory_order_relaxed);
    reply_status(ctx->reply, "OK");
}

/* Such a client is not closed over maxmemory-clients. The end of the iteration sees the change. */
void cmd_client_no_evict(struct command_ctx *ctx)
{
    client_switch(ctx, SESSION_NO_EVICT);
}

/* Commands of such a client are not noted for OBJECT IDLETIME. */
void cmd_client_no_touch(struct command_ctx *ctx)
{
    client_switch(ctx, SESSION_NO_TOUCH);
}

/* It is never on, so it can be switched off. */
void cmd_client_tracking(struct command_ctx *ctx)
{
    if (command_argc(ctx) == 3 && slice_is(command_arg(ctx, 2), "off"))
        reply_status(ctx->reply, "OK");
    else
        reply_error(ctx->reply,
                    "ERR CLIENT TRACKING is not supported: an answer of a filter is a poor thing to cache by "
                    "key. A program can keep a copy of the filter itself: docs/LOCAL.md");
}
