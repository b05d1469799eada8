/* Commands about the connection itself; CLIENT is in cmd_client.c. */
#include <stdlib.h>
#include <string.h>

#include "acl.h"
#include "command.h"
#include "handlers.h"
#include "server.h"
#include "subscriptions.h"

void cmd_ping(struct command_ctx *ctx)
{
    bool shown = command_argc(ctx) == 2;

    if (command_argc(ctx) > 2)
        reply_wrong_arity(ctx);
    else if (ctx->session->pubsub.subscribed && ctx->reply->version == 2) { /* in the form of a message */
        reply_array(ctx->reply, 2);
        reply_bulk_str(ctx->reply, "pong");
        reply_bulk(ctx->reply, shown ? command_arg(ctx, 1).ptr : "", shown ? command_arg(ctx, 1).len : 0);
    } else if (command_argc(ctx) == 2)
        reply_bulk(ctx->reply, command_arg(ctx, 1).ptr, command_arg(ctx, 1).len);
    else
        reply_status(ctx->reply, "PONG");
}

void cmd_echo(struct command_ctx *ctx)
{
    struct slice message = command_arg(ctx, 1);

    reply_bulk(ctx->reply, message.ptr, message.len);
}

void cmd_quit(struct command_ctx *ctx)
{
    ctx->session->close_after_reply = true;
    atomic_fetch_or_explicit(&ctx->session->flags, SESSION_CLOSING, memory_order_relaxed);
    reply_status(ctx->reply, "OK");
}

/* ---- authentication ---- */

/* Gives the session the user if name and password are right; a failure leaves it as it was. */
static bool authenticate(struct command_ctx *ctx, struct slice user, struct slice password)
{
    struct acl_user *known = acl_authenticate(ctx->server->acl, user, password);

    if (!known) {
        acl_note_denied(ctx->server, ctx->session, ACL_DENIED_AUTH, command_arg(ctx, 0), user);
        return reply_error(ctx->reply, "WRONGPASS invalid username-password pair or user is disabled.");
    }
    acl_login(ctx->server, ctx->session, known);
    atomic_store_explicit(&ctx->session->acl.authenticated, true, memory_order_relaxed);
    return true;
}

void cmd_auth(struct command_ctx *ctx)
{
    struct slice user = slice_of("default");
    size_t argc = command_argc(ctx);

    if (argc > 3) {
        reply_error(ctx->reply, "ERR syntax error");
        return;
    }
    if (argc == 2 && acl_needs_no_password(ctx->server->acl)) {
        reply_error(ctx->reply,
                    "ERR AUTH <password> called without any password configured for the default user. Are you "
                    "sure your configuration is correct?");
        return;
    }
    if (argc == 3)
        user = command_arg(ctx, 1);
    if (authenticate(ctx, user, command_arg(ctx, argc - 1)))
        reply_status(ctx->reply, "OK");
}

/* ---- names ---- */

static bool text_is_good(struct command_ctx *ctx, struct slice value, const char *what)
{
    switch (session_text_check(value)) {
    case SESSION_TEXT_GOOD:
        return true;
    case SESSION_TEXT_BYTES:
        return reply_errorf(ctx->reply, "ERR %s cannot contain spaces, newlines or special characters.", what);
    case SESSION_TEXT_LONG:
        return reply_errorf(ctx->reply, "ERR %s cannot be longer than %d bytes.", what, SESSION_MAX_TEXT);
    }
    return false;
}

bool session_set_text(struct command_ctx *ctx, enum session_text which, struct slice value, const char *what)
{
    if (!text_is_good(ctx, value, what))
        return false;
    if (session_set(ctx->server->clients.sessions, ctx->session, which, value) == 0)
        return true;
    return reply_error(ctx->reply, "ERR out of memory");
}

#define NAMES "Client names"

/* ---- HELLO and RESET ---- */

struct hello {
    int64_t version; /* 0: not given */
    bool auth, setname;
    struct slice user, password, name;
};

/* Reads the arguments. False: an error has been replied. */
static bool hello_parse(struct command_ctx *ctx, struct hello *hello)
{
    size_t argc = command_argc(ctx);

    *hello = (struct hello){.version = 0};
    if (argc == 1)
        return true;
    if (!slice_to_int64(command_arg(ctx, 1), &hello->version))
        return reply_error(ctx->reply, "ERR Protocol version is not an integer or out of range");
    if (hello->version != 2 && hello->version != 3)
        return reply_error(ctx->reply, "NOPROTO unsupported protocol version");
    for (size_t i = 2; i < argc; i++) {
        struct slice option = command_arg(ctx, i);

        if (slice_is(option, "AUTH") && argc - i > 2) {
            hello->auth = true;
            hello->user = command_arg(ctx, ++i);
            hello->password = command_arg(ctx, ++i);
        } else if (slice_is(option, "SETNAME") && argc - i > 1) {
            hello->setname = true;
            hello->name = command_arg(ctx, ++i);
            if (!text_is_good(ctx, hello->name, NAMES)) /* before anything is changed */
                return false;
        } else {
            return reply_errorf(ctx->reply, "ERR Syntax error in HELLO option '%.*s'", slice_shown(option), option.ptr);
        }
    }
    return true;
}

void cmd_hello(struct command_ctx *ctx)
{
    struct session *session = ctx->session;
    struct reply *reply = ctx->reply;
    struct hello hello;

    if (!hello_parse(ctx, &hello))
        return;
    if (hello.auth && !authenticate(ctx, hello.user, hello.password))
        return;
    if (!atomic_load_explicit(&session->acl.authenticated, memory_order_relaxed)) {
        reply_error(reply,
                    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> "
                    "AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol "
                    "version at the same time");
        return;
    }
    if (hello.setname && !session_set_text(ctx, SESSION_NAME, hello.name, NAMES))
        return;
    if (hello.version != 0) {
        atomic_store_explicit(&session->resp, (int)hello.version, memory_order_relaxed);
        reply->version = (int)hello.version; /* the answer itself comes in the new version */
    }
    reply_map(reply, 7);
    reply_pair(reply, "server", "redis");
    reply_pair(reply, "version", REDIS_COMPAT_VERSION);
    reply_number_pair(reply, "proto", reply->version);
    reply_number_pair(reply, "id", (int64_t)session->id);
    reply_pair(reply, "mode", server_config(ctx->server)->cluster.emulation ? "cluster" : "standalone");
    reply_pair(reply, "role", "master");
    reply_bulk_str(reply, "modules");
    reply_modules(reply);
}

/* dispatch.c resets the state of the connection itself (transaction, CLIENT REPLY). */
void cmd_reset(struct command_ctx *ctx)
{
    struct session *session = ctx->session;

    if (!subscriptions_end(session)) {
        ctx->later = true;
        return;
    }
    atomic_store_explicit(&session->db, 0, memory_order_relaxed);
    (void)session_set(ctx->server->clients.sessions, session, SESSION_NAME,
                      (struct slice){NULL, 0}); /* clearing cannot fail */
    atomic_store_explicit(&session->resp, 2, memory_order_relaxed);
    ctx->reply->version = 2;
    atomic_fetch_and_explicit(&session->flags, ~(unsigned)(SESSION_NO_EVICT | SESSION_NO_TOUCH), memory_order_relaxed);
    acl_login_default(ctx->server, session);
    reply_status(ctx->reply, "RESET");
}
