#include "acl_session.h"

#include <string.h>

#include "clock.h"
#include "pubsub.h"
#include "registry.h"

_Static_assert(REGISTRY_MAX_NAME <= ACL_MAX_TEXT && PUBSUB_MAX_NAME <= ACL_MAX_TEXT,
               "patterns are compared with any name that is possible");

void acl_login(struct server *server, struct session *session, struct acl_user *user)
{
    struct acl_user *old = sessions_set_user(server->clients.sessions, session, user, user->name);
    acl_user_unref(old);
    session->modes =
        user->unrestricted ? session->modes & ~(unsigned)MODE_RESTRICTED : session->modes | MODE_RESTRICTED;
    memset(session->acl.allowed_memo, 0, sizeof(session->acl.allowed_memo));
    session->acl.changed = true;
}

static bool is_open(const struct acl_user *user)
{
    return (user->flags & (ACL_ON | ACL_NOPASS)) == (ACL_ON | ACL_NOPASS);
}

void acl_login_default(struct server *server, struct session *session)
{
    struct acl_user *user = acl_get_default(server->acl);
    atomic_store_explicit(&session->acl.authenticated, is_open(user), memory_order_relaxed);
    acl_login(server, session, user);
}

void acl_logout(struct session *session)
{
    acl_user_unref(session->acl.user);
    session->acl.user = NULL;
}

struct subscriptions_check {
    const struct acl_user *user;
    bool is_pattern;
    bool allowed;
};

static void check_one(void *ctx, struct slice name)
{
    struct subscriptions_check *check = ctx;
    check->allowed = check->allowed && acl_allows_channel(check->user, name, check->is_pattern);
}

static bool allows_subscriptions(const struct acl_user *user, const struct session *session)
{
    struct subscriptions_check check = {.user = user, .allowed = true};
    for (int kind = 0; session->pubsub.client && session->pubsub.subscribed && kind < PUBSUB_MONITOR; kind++) {
        check.is_pattern = kind == PUBSUB_PATTERN;
        pubsub_client_each(session->pubsub.client, (enum pubsub_kind)kind, check_one, &check);
    }
    return check.allowed;
}

static struct acl_user *user_in_force(struct server *server, const struct session *session)
{
    struct acl_user *user = acl_get_again(server->acl, session->acl.user);
    if (!user || allows_subscriptions(user, session))
        return user;
    acl_user_unref(user);
    return NULL;
}

bool acl_may_hear(struct server *server, const struct session *session)
{
    if (acl_is_current(session))
        return true;
    struct acl_user *user = user_in_force(server, session);
    bool may = user;
    acl_user_unref(user);
    return may;
}

bool acl_refresh(struct server *server, struct session *session)
{
    struct acl_user *user = user_in_force(server, session);
    if (!user)
        return false;
    acl_login(server, session, user);
    /* A client that waits for a password need not have one any more. */
    if (!atomic_load_explicit(&session->acl.authenticated, memory_order_relaxed) && is_open(user))
        atomic_store_explicit(&session->acl.authenticated, true, memory_order_relaxed);
    return true;
}

#define CLIENT_TEXT ((size_t)4096)

void acl_note_denied(struct server *server, const struct session *session, enum acl_verdict reason, struct slice object,
                     struct slice user)
{
    struct buf client;
    buf_init(&client, CLIENT_TEXT);
    session_format(session, clock_ms(), &client);
    struct acl_denied denied = {
        .reason = reason,
        .in_multi = session->modes & MODE_IN_MULTI || session->multi.in_exec,
        .object = object,
        .user = user,
        .client = {buf_head(&client), buf_len(&client)},
        .now_ms = clock_unix_ms(),
        .max = (size_t)server_config(server)->users.acllog_max_len,
    };
    acl_log_add(server->acl, &denied);
    buf_deinit(&client);
}
