/* The list is kept in the order of ids, because an id is given under the same lock under which the session is appended.
 *
 * A listing of ten thousand clients must not keep a worker that accepts or closes a connection waiting, so
 * sessions_each() releases the lock every few sessions. A node without an id then holds its place in the list. Other
 * walks step over such nodes, and unlinking a neighbour keeps them linked. */
#include "session.h"
#include "lock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SESSIONS_PER_LOCK 64 /* lines formatted while the lock is held: some 50 microseconds */

struct sessions {
    struct lock lock;
    TAILQ_HEAD(, session) all; /* from the oldest on */
    uint64_t last_id;
    _Atomic uint64_t count;
};

int sessions_create(struct sessions **sessions_out)
{
    struct sessions *sessions = calloc(1, sizeof(*sessions));

    if (!sessions)
        return -ENOMEM;
    lock_init(&sessions->lock, RANK_SESSIONS);
    TAILQ_INIT(&sessions->all);
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

void sessions_add(struct sessions *sessions, struct session *session)
{
    atomic_store_explicit(&session->multi.queued, -1, memory_order_relaxed);
    lock_take(&sessions->lock);
    session->id = ++sessions->last_id;
    TAILQ_INSERT_TAIL(&sessions->all, session, listed);
    lock_give(&sessions->lock);
    atomic_fetch_add_explicit(&sessions->count, 1, memory_order_relaxed);
}

void sessions_remove(struct sessions *sessions, struct session *session)
{
    lock_take(&sessions->lock);
    TAILQ_REMOVE(&sessions->all, session, listed);
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
    for (size_t i = 0; i < value.len && i <= SESSION_MAX_TEXT; i++)
        if (value.ptr[i] < '!' || value.ptr[i] > '~')
            return SESSION_TEXT_BYTES;
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
        text = slice_copy(value);
        if (!text)
            return -ENOMEM;
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

static const char *text_or(const char *text, const char *otherwise)
{
    return text ? text : otherwise;
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
    const struct session_pubsub *pubsub = &session->pubsub;
    const struct session_meters *meters = &session->meters;
    char *const *texts = session->texts.of;
    uint64_t output = atomic_load_explicit(&meters->output_bytes, memory_order_relaxed);
    int64_t last_ms = atomic_load_explicit(&meters->last_ms, memory_order_relaxed);
    const char *command = atomic_load_explicit(&meters->command, memory_order_relaxed);
    int64_t idle_ms = now_ms > last_ms ? now_ms - last_ms : 0;
    int64_t age_ms = now_ms > session->origin.created_ms ? now_ms - session->origin.created_ms : 0;
    char flags[16];
    format_flags(session, flags);
    buf_appendf(out, "id=%" PRIu64 " addr=%s laddr=%s fd=%d name=%s age=%" PRId64 " idle=%" PRId64 " flags=%s db=%u",
                session->id, session->origin.addr, session->origin.laddr, session->origin.fd,
                text_or(texts[SESSION_NAME], ""), age_ms / 1000, idle_ms / 1000, flags,
                atomic_load_explicit(&session->db, memory_order_relaxed));
    buf_appendf(out, " sub=%" PRIu32 " psub=%" PRIu32 " ssub=%" PRIu32 " multi=%d watch=%" PRIu32 " qbuf=%" PRIu64,
                atomic_load_explicit(&pubsub->channels, memory_order_relaxed),
                atomic_load_explicit(&pubsub->patterns, memory_order_relaxed),
                atomic_load_explicit(&pubsub->shards, memory_order_relaxed),
                atomic_load_explicit(&session->multi.queued, memory_order_relaxed),
                atomic_load_explicit(&session->multi.watched, memory_order_relaxed),
                atomic_load_explicit(&meters->input_bytes, memory_order_relaxed));
    buf_appendf(out, " qbuf-free=0 argv-mem=0 multi-mem=%" PRIu64 " rbs=0 rbp=0 obl=0 oll=%d omem=%" PRIu64,
                atomic_load_explicit(&session->multi.bytes, memory_order_relaxed), output > 0, output);
    buf_appendf(out, " tot-mem=%" PRIu64 " events=%s cmd=%s user=%s redir=-1 resp=%d",
                atomic_load_explicit(&meters->memory, memory_order_relaxed), output > 0 ? "rw" : "r",
                text_or(command, "NULL"), text_or(session->acl.user_name, "default"),
                atomic_load_explicit(&session->resp, memory_order_relaxed));
    buf_appendf(out, " lib-name=%s lib-ver=%s io-thread=%" PRIu32, text_or(texts[SESSION_LIB_NAME], ""),
                text_or(texts[SESSION_LIB_VER], ""), session->worker);
}

void sessions_each(struct sessions *sessions, void (*fn)(void *ctx, struct session *session), void *ctx)
{
    struct session place = {.id = 0};
    unsigned n = 0;
    lock_take(&sessions->lock);
    for (struct session *session = TAILQ_FIRST(&sessions->all), *next; session; session = next) {
        next = TAILQ_NEXT(session, listed);
        if (session->id == 0)
            continue; /* the place of another listing */
        if (!(atomic_load_explicit(&session->flags, memory_order_relaxed) & SESSION_KILLED))
            fn(ctx, session);
        if (++n % SESSIONS_PER_LOCK == 0) { /* others may change the list meanwhile */
            TAILQ_INSERT_AFTER(&sessions->all, session, &place, listed);
            lock_give(&sessions->lock);
            lock_take(&sessions->lock);
            next = TAILQ_NEXT(&place, listed);
            TAILQ_REMOVE(&sessions->all, &place, listed);
        }
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
