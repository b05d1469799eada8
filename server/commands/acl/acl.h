/* acl: the users of a server, and the log of refused access.
 *
 * Names lead to the users in force (acl_user.h). A change builds another user beside the one in force and takes its
 * place, under a lock that is held for a look-up only. The user "default" always exists.
 *
 * Thread: any. */
#pragma once

#include "acl_check.h"
#include "acl_user.h"
#include "reply.h"
#include "server.h"
#include "session.h"

struct acl;
struct config;
struct errbuf;

/* Creates it with the users that the settings name: the lines `user`, or the file `aclfile`; `requirepass` is the
 * default user's password. *bytes has the memory of the users in force, and must outlive it. CONFIG_OK; or
 * CONFIG_REFUSED or a negative errno with the reason in `err`. */
int acl_create(struct acl **acl_out, const struct config *config, _Atomic uint64_t *bytes, struct errbuf *err);
void acl_destroy(struct acl *acl); /* NULL is fine; no session has a user any more */

/* The user of that name with a reference for the caller, or NULL. */
struct acl_user *acl_get(struct acl *acl, struct slice name);
bool acl_needs_no_password(struct acl *acl); /* that user does not */

/* The user of that name if he is on and this is his password; takes the same time without a user of that name. */
struct acl_user *acl_authenticate(struct acl *acl, struct slice name, struct slice password);

/* Makes or changes a user: all rules, or none. Returns as acl_user_apply_words(). */
int acl_change(struct acl *acl, struct slice name, const struct slice *rules, size_t n, bool all_channels,
               struct buf *scratch, struct slice *fault_out);

/* Whether there was such a user. The default user cannot be deleted. */
bool acl_delete(struct acl *acl, struct slice name);

/* Sets the default user's password, as `requirepass` does; "" for no password. False without memory. */
bool acl_set_requirepass(struct acl *acl, struct slice password);

/* All users by their names, each with a reference; acl_list_free() gives them back. False without memory. */
struct acl_list {
    struct acl_user **users;
    size_t n;
};
bool acl_list(struct acl *acl, struct acl_list *list_out);
void acl_list_free(struct acl_list *list);
size_t acl_count(struct acl *acl);

/* Puts new users, which no other thread has, instead of all; takes over the list. They are sorted by name, and
 * "default" is one of them. A user whose name is in force is that user, changed: his sessions stay. */
void acl_replace_all(struct acl *acl, const struct acl_list *list);

/* ---- files (acl_file.c) ---- */

/* The file is the setting `aclfile`; a path that is not absolute begins at the setting `dir`. */

/* Reads users from the file, a line "user <name> <rule> ..." each. CONFIG_OK with the users, to which "default" is
 * added if the file does not have it; CONFIG_REFUSED or a negative errno with the reasons, a line each, in `errors`. */
int acl_file_read(const struct config *config, struct acl_list *list_out, struct buf *errors);

/* The same for text in memory. */
int acl_text_read(const char *name, struct slice text, const struct config *config, struct acl_list *list_out,
                  struct buf *errors);

/* The users of the lines `user` of the settings. */
int acl_lines_read(const struct config *config, struct acl_list *list_out, struct errbuf *err);

/* Sets the lines `user` of a copy of the settings to the users in force; a default user that equals the one of
 * `requirepass` needs no line. 0 or -ENOMEM. */
int acl_to_settings(struct acl *acl, struct config *config);

/* Writes all users into the file: a new one takes its place when it is on the disk. 0 or a negative errno. */
int acl_file_write(struct acl *acl, const struct config *config, struct errbuf *err);

/* ---- the log of refused access (acl_log.c) ---- */

struct acl_denied {
    enum acl_verdict reason;
    bool in_multi;
    struct slice object; /* the command, key or channel */
    struct slice user;
    struct slice client; /* as CLIENT INFO has it */
    int64_t now_ms;      /* Unix time */
    size_t max;          /* entries that are kept: acllog-max-len */
};

/* Counts it, and notes it where memory allows. */
void acl_log_add(struct acl *acl, const struct acl_denied *denied);
void acl_log_reset(struct acl *acl);

size_t acl_log_size(struct acl *acl); /* entries */

/* Replies with the newest entries, `count` of them at most, as ACL LOG does: 1.5 us for each. */
void acl_log_reply(struct acl *acl, size_t count, struct reply *reply);

/* How often access was refused, by reason: never reset. */
uint64_t acl_log_count(const struct acl *acl, enum acl_verdict reason);

/* ---- the user of a session ----
 *
 * A session has a reference to its user. When he is changed, or deleted, that object is marked as replaced, and the
 * session takes the new one before its next command; host_users_changed() makes idle sessions look, too. A deleted user
 * stays deleted: one that gets his name later is another one.
 *
 * Thread: the session's worker. */

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
