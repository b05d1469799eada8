#include "tracking.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "conn.h"
#include "hash_table.h"
#include "registry_key.h"
#include "registry_version.h"
#include "worker.h"

struct note {
    struct hash_link hashed;
    struct note *newer; /* in the order of their last checks */
    struct registry_version version;
    size_t len;
    char name[]; /* its key in the registry */
};

struct tracking {
    struct conn *conn;
    struct note *oldest, **newest_end;
    struct hash_table notes;
    size_t bytes;    /* of the notes */
    bool forget_all; /* a name could not be noted; nothing is noted until the client has been told */
};

static size_t note_bytes(const struct note *note)
{
    return sizeof(*note) + note->len;
}

static struct note *note_of(struct hash_link *link)
{
    return HASH_OBJECT(link, struct note, hashed);
}

/* The lowest bits, by which the table here goes, are those of a database. */
static uint64_t turned(uint64_t hash)
{
    return hash >> 32 | hash << 32;
}

static bool is_noted(const struct tracking *tracking, uint64_t hash, struct slice name)
{
    struct hash_link *link = hash_table_first(&tracking->notes, turned(hash));
    while (link &&
           !(note_of(link)->len == name.len && (name.len == 0 || memcmp(note_of(link)->name, name.ptr, name.len) == 0)))
        link = hash_table_next(link);
    return link != NULL;
}

static void account(struct tracking *tracking)
{
    struct session *session = &tracking->conn->session;
    atomic_store_explicit(&session->tracked, (uint32_t)tracking->notes.count, memory_order_relaxed);
    atomic_store_explicit(&session->tracking_bytes,
                          sizeof(*tracking) + hash_table_bytes(&tracking->notes) + tracking->bytes,
                          memory_order_relaxed);
}

/* ---- the order of checks ---- */

static void append(struct tracking *tracking, struct note *note)
{
    note->newer = NULL;
    *tracking->newest_end = note;
    tracking->newest_end = &note->newer;
}

static struct note *take_oldest(struct tracking *tracking)
{
    struct note *note = tracking->oldest;
    tracking->oldest = note->newer;
    if (!tracking->oldest)
        tracking->newest_end = &tracking->oldest;
    return note;
}

/* ---- telling the client ---- */

/* name.ptr NULL: all names. */
static void tell(struct conn *conn, struct slice name)
{
    conn_will_reply(conn);
    reply_push(&conn->output.reply, 2);
    reply_bulk_str(&conn->output.reply, "invalidate");
    if (!name.ptr) {
        reply_null(&conn->output.reply);
        return;
    }
    reply_array(&conn->output.reply, 1);
    name = key_name(name);
    reply_bulk(&conn->output.reply, name.ptr, name.len);
}

/* `note` has left the order of checks. */
static void forget(struct tracking *tracking, struct note *note)
{
    hash_table_remove(&tracking->notes, &note->hashed);
    tracking->bytes -= note_bytes(note);
    free(note);
}

static void forget_all(struct tracking *tracking)
{
    while (tracking->oldest)
        forget(tracking, take_oldest(tracking));
    tracking->forget_all = false;
}

/* ---- noting ---- */

static void note_name(struct conn *conn, struct slice name)
{
    struct tracking *tracking = conn->tracking;
    const struct registry *registry = conn->worker->server->registry;
    if (tracking->forget_all || name.len > REGISTRY_MAX_NAME)
        return; /* no filter has so long a name */
    uint64_t hash = registry_hash(registry, name);
    if (is_noted(tracking, hash, name))
        return; /* the older version stays: the client may keep an answer of that time */
    struct note *note = tracking->bytes < TRACKING_MAX_BYTES - name.len ? malloc(sizeof(*note) + name.len) : NULL;
    if (note)
        *note = (struct note){.hashed = {.hash = turned(hash)}, .len = name.len};
    if (!note || hash_table_insert(&tracking->notes, &note->hashed) != 0) {
        free(note);
        tracking->forget_all = true;
        return;
    }
    if (name.len)
        memcpy(note->name, name.ptr, name.len);
    note->version = registry_version_settled(registry, hash, name);
    append(tracking, note);
    tracking->bytes += note_bytes(note);
}

void tracking_note(struct conn *conn, const struct command *command, const struct resp_command *cmd)
{
    struct tracking *tracking = conn->tracking;
    if (!(command->flags & CMD_READONLY) || command->first_key == 0)
        return;
    size_t last = command->last_key < 0 ? cmd->argc - (size_t)-command->last_key : (size_t)command->last_key;
    for (size_t i = (size_t)command->first_key; i <= last && i < cmd->argc; i += (size_t)command->key_step)
        note_name(conn, resp_arg(cmd, i));
    account(tracking);
}

/* ---- looking ---- */

/* An invalidation must not come before the reply that it concerns. */
static bool is_busy(const struct conn *conn)
{
    return conn->waits || conn->running.command || conn->input.pending.spans;
}

static void look_at_some(struct tracking *tracking, size_t most)
{
    struct conn *conn = tracking->conn;
    const struct registry *registry = conn->worker->server->registry;
    if (most > tracking->notes.count)
        most = tracking->notes.count;
    for (; most > 0; most--) {
        struct note *note = take_oldest(tracking);
        struct slice name = {note->name, note->len};
        struct registry_version now = registry_version(registry, registry_hash(registry, name), name);
        if (registry_version_same(&now, &note->version)) {
            append(tracking, note);
        } else {
            tell(conn, name);
            forget(tracking, note);
        }
    }
}

static void look(uv_timer_t *timer)
{
    struct worker *worker = timer->data;
    size_t n = 0;
    worker_enter(worker);
    for (struct conn_link *at = worker->trackers.conns.next; at != &worker->trackers.conns; at = at->next)
        n++;
    for (struct conn_link *at = worker->trackers.conns.next; at != &worker->trackers.conns; at = at->next) {
        struct tracking *tracking = CONN_OF(at, tracker)->tracking;
        if (is_busy(tracking->conn))
            continue;
        if (tracking->forget_all) {
            forget_all(tracking);
            tell(tracking->conn, (struct slice){NULL, 0});
        }
        look_at_some(tracking, TRACKING_LOOK_MAX / n + 1);
        account(tracking);
    }
}

/* ---- on and off ---- */

void tracking_init(struct worker *worker)
{
    conn_list_init(&worker->trackers.conns);
    uv_timer_init(&worker->loop, &worker->trackers.timer);
    worker->trackers.timer.data = worker;
}

int tracking_start(struct conn *conn)
{
    struct worker *worker = conn->worker;
    if (conn->tracking)
        return 0;
    struct tracking *tracking = calloc(1, sizeof(*tracking));
    if (!tracking)
        return -ENOMEM;
    tracking->conn = conn;
    tracking->newest_end = &tracking->oldest;
    if (conn_list_empty(&worker->trackers.conns))
        uv_timer_start(&worker->trackers.timer, look, TRACKING_LOOK_MS, TRACKING_LOOK_MS);
    conn_list_append(&worker->trackers.conns, &conn->tracker);
    conn->tracking = tracking;
    conn->session.modes |= MODE_TRACKING;
    atomic_fetch_or_explicit(&conn->session.flags, SESSION_TRACKING, memory_order_relaxed);
    account(tracking);
    return 0;
}

void tracking_stop(struct conn *conn)
{
    struct tracking *tracking = conn->tracking;
    struct worker *worker = conn->worker;
    if (!tracking)
        return;
    forget_all(tracking);
    conn_list_remove(&conn->tracker);
    if (conn_list_empty(&worker->trackers.conns))
        uv_timer_stop(&worker->trackers.timer);
    free(tracking);
    conn->tracking = NULL;
    conn->session.modes &= ~(unsigned)MODE_TRACKING;
    atomic_fetch_and_explicit(&conn->session.flags, ~(unsigned)SESSION_TRACKING, memory_order_relaxed);
    atomic_store_explicit(&conn->session.tracked, 0, memory_order_relaxed);
    atomic_store_explicit(&conn->session.tracking_bytes, 0, memory_order_relaxed);
}
