/* The list is kept in the order of ids, because an id is given under the same lock under which the session is appended.
 *
 * A listing of ten thousand clients must not keep a worker that accepts or closes a connection waiting, so
 * sessions_each() releases the lock every few sessions. A node without an id then holds its place in the list. Other
 * walks step over such nodes, and unlinking a neighbour keeps them linked. */
#include "session.h"
#include "lock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SESSIONS_PER_LOCK 64 /* lines formatted while the lock is held: some 50 microseconds */

struct sessions {
    struct lock lock;
    struct session head; /* next: the oldest, prev: the newest; itself when empty */
    uint64_t last_id;
    _Atomic uint64_t count;
};

int sessions_create(struct sessions **sessions_out)
{
    struct sessions *sessions = calloc(1, sizeof(*sessions));

    if (!sessions)
        return -ENOMEM;
    lock_init(&sessions->lock, RANK_SESSIONS);
    sessions->head.next = sessions->head.prev = &sessions->head;
    *sessions_out = sessions;
    return 0;
}

void sessions_destroy(struct sessions *sessions)
{
    if (!sessions)
        return;
    lock_deinit(&sessions->lock);
    free(sessions);
}

/* Puts a node before another. */
static void list_insert(struct session *before, struct session *node)
{
    node->next = before;
    node->prev = before->prev;
    before->prev->next = node;
    before->prev = node;
}

static void list_unlink(struct session *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->prev = node->next = NULL;
}

void sessions_add(struct sessions *sessions, struct session *session)
{
    atomic_store_explicit(&session->multi.queued, -1, memory_order_relaxed);
    lock_take(&sessions->lock);
    session->id = ++sessions->last_id;
    list_insert(&sessions->head, session);
    lock_give(&sessions->lock);
    atomic_fetch_add_explicit(&sessions->count, 1, memory_order_relaxed);
}

void sessions_remove(struct sessions *sessions, struct session *session)
{
    lock_take(&sessions->lock);
    list_unlink(session);
    lock_give(&sessions->lock);
    atomic_fetch_sub_explicit(&sessions->count, 1, memory_order_relaxed);

    for (int i = 0; i < SESSION_NTEXTS; i++) {
        free(session->texts.of[i]);
        session->texts.of[i] = NULL;
    }
}

uint64_t sessions_count(struct sessions *sessions)
{
    return atomic_load_explicit(&sessions->count, memory_order_relaxed);
}

enum session_text_fault session_text_check(struct slice value)
{
    for (size_t i = 0; i < value.len && i <= SESSION_MAX_TEXT; i++) {
        if (value.ptr[i] < '!' || value.ptr[i] > '~')
            return SESSION_TEXT_BYTES;
    }
    return value.len > SESSION_MAX_TEXT ? SESSION_TEXT_LONG : SESSION_TEXT_GOOD;
}

int session_set(struct sessions *sessions, struct session *session, enum session_text which, struct slice value)
{
    char **place = &session->texts.of[which];
    char *old, *text = NULL;
    enum session_text_fault fault = session_text_check(value);

    if (fault != SESSION_TEXT_GOOD)
        return (int)fault;
    if (value.len > 0) {
        text = malloc(value.len + 1);
        if (!text)
            return -ENOMEM;
        memcpy(text, value.ptr, value.len);
        text[value.len] = '\0';
    }
    lock_take(&sessions->lock);
    old = *place;
    *place = text;
    lock_give(&sessions->lock);
    session->texts.bytes += (text ? value.len + 1 : 0) - (old ? strlen(old) + 1 : 0);
    free(old);
    return 0;
}

struct acl_user *sessions_set_user(struct sessions *sessions, struct session *session, struct acl_user *user,
                                   const char *name)
{
    struct acl_user *old = session->acl.user;
    lock_take(&sessions->lock);
    session->acl.user = user;
    session->acl.user_name = name;
    lock_give(&sessions->lock);
    return old;
}

/* ---- as text ---- */

static void append_str(struct buf *out, const char *text)
{
    buf_append(out, text, strlen(text));
}

static const char *text_or_empty(const char *text)
{
    return text ? text : "";
}

/* The letters of the field "flags", in Redis's order. */
static void format_flags(const struct session *session, char text_out[16])
{
    unsigned flags = atomic_load_explicit(&session->flags, memory_order_relaxed);
    bool subscribed = atomic_load_explicit(&session->pubsub.channels, memory_order_relaxed) ||
                      atomic_load_explicit(&session->pubsub.patterns, memory_order_relaxed) ||
                      atomic_load_explicit(&session->pubsub.shards, memory_order_relaxed);
    char *at = text_out;

    if (flags & SESSION_MONITOR)
        *at++ = 'O';
    if (subscribed)
        *at++ = 'P';
    if (atomic_load_explicit(&session->multi.queued, memory_order_relaxed) >= 0)
        *at++ = 'x';
    if (flags & SESSION_CLOSING)
        *at++ = 'c';
    if (session->origin.laddr[0] == '/')
        *at++ = 'U';
    if (flags & SESSION_NO_EVICT)
        *at++ = 'e';
    if (flags & SESSION_NO_TOUCH)
        *at++ = 'T';
    if (at == text_out)
        *at++ = 'N';
    *at = '\0';
}

/* The fields and their order are Redis's. Fields of features that do not exist here (query buffers' free room, output
 * lists) have Redis's values for "none". */
void session_format(const struct session *session, int64_t now_ms, struct buf *out)
{
    uint64_t input = atomic_load_explicit(&session->meters.input_bytes, memory_order_relaxed);
    uint64_t output = atomic_load_explicit(&session->meters.output_bytes, memory_order_relaxed);
    int64_t last_ms = atomic_load_explicit(&session->meters.last_ms, memory_order_relaxed);
    const char *command = atomic_load_explicit(&session->meters.command, memory_order_relaxed);
    int64_t idle_ms = now_ms > last_ms ? now_ms - last_ms : 0;
    int64_t age_ms = now_ms > session->origin.created_ms ? now_ms - session->origin.created_ms : 0;
    uint64_t multi_bytes = atomic_load_explicit(&session->multi.bytes, memory_order_relaxed);
    uint64_t memory = atomic_load_explicit(&session->meters.memory, memory_order_relaxed);
    char text[512], flags[16];
    int len;

    format_flags(session, flags);

    /* The client chooses the length of its strings, so they are appended between pieces of bounded size. */
    len = snprintf(text, sizeof(text), "id=%" PRIu64 " addr=%s laddr=%s fd=%d name=", session->id, session->origin.addr,
                   session->origin.laddr, session->origin.fd);
    buf_append(out, text, (size_t)len);
    append_str(out, text_or_empty(session->texts.of[SESSION_NAME]));
    len = snprintf(text, sizeof(text),
                   " age=%" PRId64 " idle=%" PRId64 " flags=%s db=%u sub=%" PRIu32 " psub=%" PRIu32 " ssub=%" PRIu32
                   " multi=%d watch=%" PRIu32 " qbuf=%" PRIu64 " qbuf-free=0 argv-mem=0 multi-mem=%" PRIu64
                   " rbs=0 rbp=0 obl=0 oll=%d omem=%" PRIu64 " tot-mem=%" PRIu64 " events=%s cmd=%s user=",
                   age_ms / 1000, idle_ms / 1000, flags, atomic_load_explicit(&session->db, memory_order_relaxed),
                   atomic_load_explicit(&session->pubsub.channels, memory_order_relaxed),
                   atomic_load_explicit(&session->pubsub.patterns, memory_order_relaxed),
                   atomic_load_explicit(&session->pubsub.shards, memory_order_relaxed),
                   atomic_load_explicit(&session->multi.queued, memory_order_relaxed),
                   atomic_load_explicit(&session->multi.watched, memory_order_relaxed), input, multi_bytes, output > 0,
                   output, memory, output > 0 ? "rw" : "r", command ? command : "NULL");
    buf_append(out, text, (size_t)len);
    append_str(out, session->acl.user_name ? session->acl.user_name : "default");
    len = snprintf(text, sizeof(text),
                   " redir=-1 resp=%d lib-name=", atomic_load_explicit(&session->resp, memory_order_relaxed));
    buf_append(out, text, (size_t)len);
    append_str(out, text_or_empty(session->texts.of[SESSION_LIB_NAME]));
    append_str(out, " lib-ver=");
    append_str(out, text_or_empty(session->texts.of[SESSION_LIB_VER]));
    len = snprintf(text, sizeof(text), " io-thread=%" PRIu32, session->worker);
    buf_append(out, text, (size_t)len);
}

/* Releases the lock and takes it again; returns the session before `place`, after which others may have changed the
 * list. */
static struct session *yield_lock(struct sessions *sessions, struct session *session, struct session *place)
{
    list_insert(session->next, place);
    lock_give(&sessions->lock);
    lock_take(&sessions->lock);
    session = place->prev;
    list_unlink(place);
    return session;
}

void sessions_each(struct sessions *sessions, void (*fn)(void *ctx, struct session *session), void *ctx)
{
    struct session place = {.id = 0};
    struct session *session;
    unsigned n = 0;

    lock_take(&sessions->lock);
    for (session = sessions->head.next; session != &sessions->head; session = session->next) {
        if (session->id == 0)
            continue; /* the place of another listing */
        if (!(atomic_load_explicit(&session->flags, memory_order_relaxed) & SESSION_KILLED))
            fn(ctx, session);
        if (++n % SESSIONS_PER_LOCK == 0)
            session = yield_lock(sessions, session, &place);
    }
    lock_give(&sessions->lock);
}

static void add_to_totals(void *ctx, struct session *session)
{
    struct sessions_totals *totals = ctx;
    uint64_t input = atomic_load_explicit(&session->meters.input_bytes, memory_order_relaxed);
    uint64_t output = atomic_load_explicit(&session->meters.output_bytes, memory_order_relaxed);
    uint32_t watched = atomic_load_explicit(&session->multi.watched, memory_order_relaxed);
    totals->max_input = input > totals->max_input ? input : totals->max_input;
    totals->max_output = output > totals->max_output ? output : totals->max_output;
    totals->watching += watched > 0;
    totals->watched += watched;
}

void sessions_totals(struct sessions *sessions, struct sessions_totals *totals_out)
{
    *totals_out = (struct sessions_totals){.max_input = 0};
    sessions_each(sessions, add_to_totals, totals_out);
}
