#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "acl_internal.h"
#include "acl.h"
#include "clock.h"
#include "config.h"
#include "alloc.h"
#include "lock.h"
#include "pubsub.h"
#include "registry.h"

static const char default_name[] = "default";

/* The place of a name in a list, or the place where it belongs. */
static size_t acl_place(const struct acl_list *list, struct slice name, bool *found_out)
{
    size_t low = 0, high = list->n;
    *found_out = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = slice_compare(name, slice_of(list->users[middle]->name));
        if (order == 0) {
            *found_out = true;
            return middle;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct acl_user *acl_first_default(struct slice requirepass)
{
    char password[CONFIG_MAX_SECRET + 1] = ">";
    struct slice rules[] = {{"on", 2}, {"~*", 2}, {"&*", 2}, {"+@all", 5}, {"nopass", 6}}, fault;
    const size_t n = sizeof(rules) / sizeof(rules[0]);
    struct acl_user *user = acl_user_create(slice_of(default_name), true);
    if (requirepass.len > 0) {
        memcpy(password + 1, requirepass.ptr, requirepass.len); /* at most CONFIG_MAX_SECRET bytes */
        rules[n - 1] = (struct slice){password, requirepass.len + 1};
    }
    if (user && acl_user_apply_words(user, rules, n, true, NULL, &fault) == ACL_GOOD)
        return user;
    acl_user_unref(user);
    return NULL;
}

/* ---- life ---- */

void acl_list_free(struct acl_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        acl_user_unref(list->users[i]);
    free(list->users);
    *list = (struct acl_list){NULL, 0};
}

static int read_users(struct acl *acl, const struct config *config, struct errbuf *err)
{
    struct buf errors;
    if (!config->users.aclfile[0])
        return acl_lines_read(config, &acl->users, err);
    buf_init(&errors, ERRBUF_SIZE * 2);
    int status = acl_file_read(config, &acl->users, &errors);
    if (status)
        errbuf_set(err, "%.*s", (int)buf_len(&errors), buf_len(&errors) ? buf_head(&errors) : "");
    buf_deinit(&errors);
    return status;
}

/* Under the lock: a user in force has gone (NULL: none), another has come. */
static void account(struct acl *acl, const struct acl_user *old, const struct acl_user *user)
{
    uint64_t bytes = atomic_load_explicit(acl->bytes, memory_order_relaxed);
    bytes += (user ? user->bytes + sizeof(user) : 0) - (old ? old->bytes + sizeof(old) : 0);
    atomic_store_explicit(acl->bytes, bytes, memory_order_relaxed);
}

static uint64_t bytes_of(const struct acl_list *list)
{
    uint64_t bytes = list->n * sizeof(*list->users);
    for (size_t i = 0; i < list->n; i++)
        bytes += list->users[i]->bytes;
    return bytes;
}

int acl_create(struct acl **acl_out, const struct config *config, _Atomic uint64_t *bytes, struct errbuf *err)
{
    struct acl *acl = calloc(1, sizeof(*acl));
    if (!acl)
        return errbuf_fail(err, -ENOMEM, "out of memory");
    lock_init(&acl->lock, RANK_USERS);
    TAILQ_INIT(&acl->log.entries);
    int status = read_users(acl, config, err);
    acl->size = acl->users.n;
    acl->bytes = bytes;
    atomic_store_explicit(bytes, bytes_of(&acl->users), memory_order_relaxed);
    if (status)
        acl_destroy(acl);
    else
        *acl_out = acl;
    return status;
}

void acl_destroy(struct acl *acl)
{
    if (!acl)
        return;
    acl_list_free(&acl->users);
    acl_log_deinit(&acl->log);
    lock_deinit(&acl->lock);
    free(acl);
}

/* ---- finding ---- */

struct acl_user *acl_get(struct acl *acl, struct slice name)
{
    bool found;
    lock_take(&acl->lock);
    size_t at = acl_place(&acl->users, name, &found);
    struct acl_user *user = found ? acl_user_ref(acl->users.users[at]) : NULL;
    lock_give(&acl->lock);
    return user;
}

/* What that user, of whom the caller has some object, has become; NULL: deleted, even if another one has his name. */
static struct acl_user *acl_get_again(struct acl *acl, const struct acl_user *user)
{
    struct acl_user *now = acl_get(acl, slice_of(user->name));
    if (!now || now->id == user->id)
        return now;
    acl_user_unref(now);
    return NULL;
}

static struct acl_user *acl_get_default(struct acl *acl)
{
    return acl_get(acl, slice_of(default_name));
}

bool acl_needs_no_password(struct acl *acl)
{
    struct acl_user *user = acl_get_default(acl);
    bool none = user->flags & ACL_NOPASS;
    acl_user_unref(user);
    return none;
}

struct acl_user *acl_authenticate(struct acl *acl, struct slice name, struct slice password)
{
    uint8_t digest[ACL_DIGEST];
    struct acl_user *user = acl_get(acl, name);
    acl_password_digest(password, digest);
    bool good = acl_user_has_password(user, digest);
    if (user && (user->flags & ACL_ON) && (good || user->flags & ACL_NOPASS))
        return user;
    acl_user_unref(user);
    return NULL;
}

size_t acl_count(struct acl *acl)
{
    lock_take(&acl->lock);
    size_t n = acl->users.n;
    lock_give(&acl->lock);
    return n;
}

bool acl_list(struct acl *acl, struct acl_list *list_out)
{
    lock_take(&acl->lock);
    list_out->n = acl->users.n;
    list_out->users = malloc(list_out->n * sizeof(*list_out->users));
    for (size_t i = 0; i < list_out->n && list_out->users; i++)
        list_out->users[i] = acl_user_ref(acl->users.users[i]);
    lock_give(&acl->lock);
    if (!list_out->users)
        list_out->n = 0;
    return list_out->users != NULL;
}

/* ---- changing ---- */

static void mark_replaced(struct acl_user *user)
{
    atomic_store_explicit(&user->replaced, true, memory_order_release);
}

/* Puts a user in the place of `old` (NULL: of none), whose reference is given back. False: that place has changed
 * meanwhile, or (with *no_memory_out) there is no room. */
static bool put(struct acl *acl, struct acl_user *old, struct acl_user *user, bool *no_memory_out)
{
    bool found, done = false;
    lock_take(&acl->lock);
    size_t at = acl_place(&acl->users, slice_of(user->name), &found);
    *no_memory_out = false;
    if (found && acl->users.users[at] == old) {
        acl->users.users[at] = user;
        mark_replaced(old);
        done = true;
    } else if (!found && !old) {
        *no_memory_out = GROW(acl->users.users, acl->users.n, acl->size) != 0;
        if (!*no_memory_out) {
            struct acl_user **place = acl->users.users + at;
            memmove(place + 1, place, (acl->users.n - at) * sizeof(*place));
            *place = user;
            acl->users.n++;
            done = true;
        }
    }
    if (done)
        account(acl, old, user);
    lock_give(&acl->lock);
    if (done)
        acl_user_unref(old);
    return done;
}

int acl_change(struct acl *acl, struct slice name, const struct slice *rules, size_t n, bool all_channels,
               struct buf *scratch, struct slice *fault_out)
{
    for (;;) {
        bool no_memory = false;
        struct acl_user *old = acl_get(acl, name);
        struct acl_user *user = old ? acl_user_copy(old) : acl_user_create(name, all_channels);
        *fault_out = name;
        int fault =
            user ? acl_user_apply_words(user, rules, n, all_channels, scratch, fault_out) : (int)ACL_FAULT_MEMORY;
        bool done = fault == ACL_GOOD && put(acl, old, user, &no_memory);
        acl_user_unref(old);
        if (done)
            return ACL_GOOD;
        acl_user_unref(user);
        if (fault != ACL_GOOD)
            return fault;
        if (no_memory)
            return ACL_FAULT_MEMORY;
    }
}

bool acl_delete(struct acl *acl, struct slice name)
{
    bool found;
    struct acl_user *user = NULL;
    lock_take(&acl->lock);
    size_t at = acl_place(&acl->users, name, &found);
    if (found) {
        struct acl_user **place = acl->users.users + at;
        user = *place;
        acl->users.n--;
        memmove(place, place + 1, (acl->users.n - at) * sizeof(*place));
        mark_replaced(user);
        account(acl, user, NULL);
    }
    lock_give(&acl->lock);
    acl_user_unref(user);
    return found;
}

bool acl_set_requirepass(struct acl *acl, struct slice password)
{
    char rule[CONFIG_MAX_SECRET + 1] = ">";
    struct slice rules[2] = {{"resetpass", 9}, {"nopass", 6}}, fault;
    struct buf scratch;
    if (password.len > 0) {
        rules[1] = (struct slice){rule, password.len + 1};
        memcpy(rule + 1, password.ptr, password.len);
    }
    buf_init(&scratch, 0);
    return acl_change(acl, slice_of(default_name), rules, 2, true, &scratch, &fault) == ACL_GOOD;
}

void acl_replace_all(struct acl *acl, const struct acl_list *list)
{
    lock_take(&acl->lock);
    struct acl_list old = acl->users;
    for (size_t i = 0; i < list->n; i++) {
        bool found;
        size_t at = acl_place(&old, slice_of(list->users[i]->name), &found);
        if (found)
            list->users[i]->id = old.users[at]->id;
    }
    for (size_t i = 0; i < old.n; i++)
        mark_replaced(old.users[i]);
    acl->users = *list;
    acl->size = list->n;
    atomic_store_explicit(acl->bytes, bytes_of(list), memory_order_relaxed);
    lock_give(&acl->lock);
    acl_list_free(&old);
}

/* ---- the user of a session ---- */

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
    bool is_pattern, allowed;
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
