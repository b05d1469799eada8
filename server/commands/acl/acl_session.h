/* acl_session: the user of a session.
 *
 * A session has a reference to its user. When he is changed, or deleted, that object is marked as replaced, and the
 * session takes the new one before its next command; host_users_changed() makes idle sessions look, too. A deleted user
 * stays deleted: one that gets his name later is another one.
 *
 * Thread: the session's worker. */
#ifndef BLOOMERY_ACL_SESSION_H
#define BLOOMERY_ACL_SESSION_H

#include "acl.h"
#include "server.h"
#include "session.h"

/* The user becomes the session's; takes over the reference. */
void acl_login(struct server *server, struct session *session, struct acl_user *user);

/* A new session, or RESET: the default user, who needs no AUTH if he is on and has no password. */
void acl_login_default(struct server *server, struct session *session);

/* The session is not listed any more. */
void acl_logout(struct session *session);

static inline bool acl_is_current(const struct session *session)
{
    return !atomic_load_explicit(&session->acl.user->replaced, memory_order_acquire);
}

/* Takes the user in force. False: he was deleted, or may not use a channel of the session's subscriptions any more; the
 * client must be disconnected. */
bool acl_refresh(struct server *server, struct session *session);

/* Whether the session's user may call the command, given by its number, which has one key and no channel. */
static inline bool acl_session_may_call(const struct session *session, size_t command, struct slice key)
{
    return !(session->modes & MODE_RESTRICTED) || acl_may_call(session->acl.user, command, key);
}

/* Whether the session may get messages of its subscriptions: the user may have been changed since acl_refresh(). */
bool acl_may_hear(struct server *server, const struct session *session);

/* Counts and logs that the session was refused access. `user`: the name that it gave, or its own. */
void acl_note_denied(struct server *server, const struct session *session, enum acl_verdict reason, struct slice object,
                     struct slice user);

#endif
