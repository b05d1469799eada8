#include "tracking.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broadcast.h"
#include "buf.h"
#include "command.h"
#include "conn.h"
#include "handlers.h"
#include "hash_table.h"
#include "registry_key.h"
#include "registry_version.h"
#include "reply.h"
#include "tracking_internal.h"
#include "worker.h"

struct note {
    struct hash_link hashed;
    struct note *newer; /* in the order of their last checks */
    bool dropped;       /* no longer in the table: the client has changed the filter itself (NOLOOP) */
    struct registry_version version;
    size_t len;
    char name[]; /* its key in the registry */
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

static struct note *find_note(const struct tracking *tracking, uint64_t hash, struct slice name)
{
    struct hash_link *link = hash_table_first(&tracking->notes, turned(hash));
    while (link &&
           !(note_of(link)->len == name.len && (name.len == 0 || memcmp(note_of(link)->name, name.ptr, name.len) == 0)))
        link = hash_table_next(link);
    return link ? note_of(link) : NULL;
}

void tracking_account(struct tracking *tracking)
{
    struct session *session = &tracking->conn->session;
    atomic_store_explicit(&session->tracked, (uint32_t)tracking->notes.count, memory_order_relaxed);
    atomic_store_explicit(&session->tracking_bytes,
                          sizeof(*tracking) + hash_table_bytes(&tracking->notes) + tracking->bytes +
                              tracking->held_bytes +
                              (tracking->broadcast ? broadcast_client_bytes(tracking->broadcast) : 0),
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

static void untable(struct tracking *tracking, struct note *note)
{
    if (note->dropped)
        return;
    note->dropped = true;
    hash_table_remove(&tracking->notes, &note->hashed);
    atomic_fetch_sub_explicit(&tracking->conn->worker->server->tracked, 1, memory_order_relaxed);
}

/* `note` has left the order of checks. */
static void forget(struct tracking *tracking, struct note *note)
{
    untable(tracking, note);
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
    struct server *server = conn->worker->server;
    const struct registry *registry = server->registry;
    if (tracking->forget_all || name.len > REGISTRY_MAX_NAME)
        return; /* no filter has so long a name */
    uint64_t hash = registry_hash(registry, name);
    if (find_note(tracking, hash, name))
        return; /* the older version stays: the client may keep an answer of that time */
    uint64_t most = (uint64_t)server_config(server)->tracking_table_max_keys;
    if (most && atomic_load_explicit(&server->tracked, memory_order_relaxed) >= most) {
        tracking->forget_all = true;
        return;
    }
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
    atomic_fetch_add_explicit(&server->tracked, 1, memory_order_relaxed);
}

/* Before the client changes the filter itself, of which it is not told with NOLOOP: only of changes before it. As in
 * Redis the name is not tracked any more until the client reads it again. */
static void note_own_change(struct conn *conn, struct slice name)
{
    struct tracking *tracking = conn->tracking;
    const struct registry *registry = conn->worker->server->registry;
    uint64_t hash = registry_hash(registry, name);
    struct note *note = find_note(tracking, hash, name);
    if (!note)
        return;
    struct registry_version now = registry_version_settled(registry, hash, name);
    if (registry_version_same(&now, &note->version))
        untable(tracking, note); /* its place in the order of checks goes with the next one */
}

static bool is_about_clients(const struct command *command)
{
    return strncmp(command->full_name, "client|", 7) == 0;
}

/* Whether what the command reads is tracked: CLIENT CACHING is about the next command, or the next transaction. */
static bool is_tracked(struct conn *conn, const struct command *command)
{
    struct session_tracking *options = &conn->session.tracking;
    bool again = conn->input.pending.spans != NULL; /* it has waited, or runs in slices */
    if (options->caching_ends && !conn->session.in_exec && !again)
        options->caching = options->caching_ends = false;
    bool excepted = options->caching;
    if (!is_about_clients(command) && command->handler != cmd_multi)
        options->caching_ends = options->caching; /* with the next command outside of EXEC */
    return options->optin ? excepted : !options->optout || !excepted;
}

static void note_names(struct conn *conn, const struct command *command, const struct resp_command *cmd)
{
    struct tracking *tracking = conn->tracking;
    bool writes = (command->flags & CMD_WRITE) && conn->session.tracking.noloop;
    bool reads = is_tracked(conn, command) && (command->flags & CMD_READONLY);
    if ((!reads && !writes) || command->first_key == 0)
        return;
    size_t last = command->last_key < 0 ? cmd->argc - (size_t)-command->last_key : (size_t)command->last_key;
    for (size_t i = (size_t)command->first_key; i <= last && i < cmd->argc; i += (size_t)command->key_step)
        (writes ? note_own_change : note_name)(conn, resp_arg(cmd, i));
    tracking_account(tracking);
}

uint64_t tracking_author(const struct conn *conn)
{
    const struct session_tracking *options = &conn->session.tracking;
    return options->bcast && options->noloop ? conn->session.id : 0;
}

void tracking_before(struct conn *conn, const struct command *command, const struct resp_command *cmd)
{
    if (conn->session.tracking.bcast)
        broadcast_set_author(tracking_author(conn));
    else
        note_names(conn, command, cmd);
}

void tracking_after(void)
{
    broadcast_set_author(0);
}

/* ---- looking ---- */

static bool tell_of(struct conn *conn, struct slice name)
{
    struct buf names;
    buf_init(&names, SIZE_MAX);
    struct reply reply = {.buf = &names, .version = 3};
    reply_array(&reply, 1);
    reply_bulk(&reply, name.ptr, name.len);
    bool told = !buf_failed(&names) && tracking_tell(conn, (struct slice){buf_head(&names), buf_len(&names)});
    buf_deinit(&names);
    return told;
}

static void look_at_some(struct tracking *tracking, size_t most)
{
    struct conn *conn = tracking->conn;
    const struct registry *registry = conn->worker->server->registry;
    for (struct note *last = NULL; most > 0 && tracking->oldest && tracking->oldest != last; most--) {
        struct note *note = take_oldest(tracking);
        struct slice name = {note->name, note->len};
        if (note->dropped) {
            forget(tracking, note);
            continue;
        }
        struct registry_version now = registry_version(registry, registry_hash(registry, name), name);
        if (registry_version_same(&now, &note->version)) {
            append(tracking, note);
            last = last ? last : note; /* the first one that was appended: then all have had their turn */
        } else {
            tracking->forget_all |= !tell_of(conn, key_name(name));
            forget(tracking, note);
        }
    }
}

static void look_at(struct tracking *tracking, size_t most)
{
    struct conn *conn = tracking->conn;
    uint64_t flushes = atomic_load(&conn->worker->server->flushes);
    if (tracking->forget_all || tracking->flushes != flushes) {
        tracking->flushes = flushes;
        forget_all(tracking);
        tracking_broadcast_drop(tracking);
        tracking->forget_all = !tracking_tell(conn, (struct slice){NULL, 0});
    } else if (tracking->first_held) {
        tracking_broadcast_release(tracking);
    }
    look_at_some(tracking, most);
    tracking_account(tracking);
}

static void look(uv_timer_t *timer)
{
    struct worker *worker = timer->data;
    size_t n = 0;
    worker_enter(worker);
    window_flush(worker); /* what it has read is answered first */
    for (struct conn_link *at = worker->trackers.conns.next; at != &worker->trackers.conns; at = at->next)
        n++;
    for (struct conn_link *at = worker->trackers.conns.next; at != &worker->trackers.conns; at = at->next) {
        struct tracking *tracking = CONN_OF(at, tracker)->tracking;
        if (!tracking_is_busy(tracking->conn))
            look_at(tracking, TRACKING_LOOK_MAX / n + 1);
    }
}

/* ---- on and off ---- */

void tracking_init(struct worker *worker)
{
    conn_list_init(&worker->trackers.conns);
    uv_timer_init(&worker->loop, &worker->trackers.timer);
    worker->trackers.timer.data = worker;
    worker->trackers.changes.run = tracking_run_changes;
}

static void set_flag(struct session *session, enum session_flag flag, bool on)
{
    if (on)
        atomic_fetch_or_explicit(&session->flags, flag, memory_order_relaxed);
    else
        atomic_fetch_and_explicit(&session->flags, ~(unsigned)flag, memory_order_relaxed);
}

static void set_options(struct conn *conn, const struct session_tracking *options, bool on)
{
    struct session *session = &conn->session;
    session->tracking = *options;
    atomic_store_explicit(&session->redirect, options->redirect, memory_order_relaxed);
    set_flag(session, SESSION_TRACKING, on);
    set_flag(session, SESSION_BCAST, options->bcast);
    set_flag(session, SESSION_REDIRECT_BROKEN, false);
    if (on && (!options->bcast || options->noloop)) /* its reads are noted, or its changes have an author */
        session->modes |= MODE_TRACKING;
    else
        session->modes &= ~(unsigned)MODE_TRACKING;
}

static struct tracking *tracking_create(struct conn *conn)
{
    struct tracking *tracking = calloc(1, sizeof(*tracking));
    if (!tracking)
        return NULL;
    tracking->conn = conn;
    tracking->newest_end = &tracking->oldest;
    tracking->held_end = &tracking->first_held;
    tracking->flushes = atomic_load(&conn->worker->server->flushes);
    return tracking;
}

int tracking_start(struct conn *conn, const struct session_tracking *options, const struct slice *prefixes, size_t n)
{
    struct worker *worker = conn->worker;
    bool is_new = !conn->tracking;
    int status = BROADCAST_OK;
    if (is_new && !(conn->tracking = tracking_create(conn)))
        return -ENOMEM;
    if (is_new) {
        if (conn_list_empty(&worker->trackers.conns))
            uv_timer_start(&worker->trackers.timer, look, TRACKING_LOOK_MS, TRACKING_LOOK_MS);
        conn_list_append(&worker->trackers.conns, &conn->tracker);
    }
    if (options->bcast)
        status = tracking_broadcast_start(conn, options, prefixes, n);
    if (status == BROADCAST_OK) {
        set_options(conn, options, true);
        tracking_account(conn->tracking);
        return 0;
    }
    if (is_new)
        tracking_stop(conn);
    return status;
}

void tracking_stop(struct conn *conn)
{
    struct tracking *tracking = conn->tracking;
    struct worker *worker = conn->worker;
    if (worker->trackers.target == conn)
        worker->trackers.target = NULL;
    if (!tracking)
        return;
    forget_all(tracking);
    tracking_broadcast_stop(conn);
    conn_list_remove(&conn->tracker);
    if (conn_list_empty(&worker->trackers.conns))
        uv_timer_stop(&worker->trackers.timer);
    free(tracking);
    set_options(conn, &(struct session_tracking){.redirect = 0}, false);
    conn->tracking = NULL;
    atomic_store_explicit(&conn->session.tracked, 0, memory_order_relaxed);
    atomic_store_explicit(&conn->session.tracking_bytes, 0, memory_order_relaxed);
}
