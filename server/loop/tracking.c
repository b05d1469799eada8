#include "tracking.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "conn.h"
#include "handlers.h"
#include "hash_table.h"
#include "registry_key.h"
#include "registry_version.h"
#include "worker.h"

struct note {
    struct hash_link hashed;
    struct note *newer; /* in the order of their last checks */
    bool dropped;       /* no longer in the table: the client has changed the filter itself (NOLOOP) */
    struct registry_version version;
    size_t len;
    char name[]; /* its key in the registry */
};

struct tracking {
    struct conn *conn;
    struct note *oldest, **newest_end;
    struct hash_table notes;
    size_t bytes;     /* of the notes */
    bool forget_all;  /* a name could not be noted; nothing is noted until the client has been told */
    uint64_t flushes; /* server->flushes that the client has been told of */
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

/* name.ptr NULL: all names. To a client in RESP2 a message of the channel, if it has subscribed to any. */
static void write_message(struct conn *conn, struct slice name)
{
    struct reply *reply = &conn->output.reply;
    bool pushes = atomic_load_explicit(&conn->session.resp, memory_order_relaxed) == 3;
    if (!pushes && !conn->session.subscribed)
        return;
    conn_will_reply(conn);
    if (pushes) {
        reply_push(reply, 2);
        reply_bulk_str(reply, "invalidate");
    } else {
        reply_array(reply, 3);
        reply_bulk_str(reply, "message");
        reply_bulk_str(reply, "__redis__:invalidate");
    }
    if (!name.ptr) {
        reply_null(reply);
        return;
    }
    reply_array(reply, 1);
    reply_bulk(reply, name.ptr, name.len);
}

/* A message for a session of another worker, or the answer that it has gone. */
struct redirected {
    struct worker_message message;
    struct server *server;
    uint64_t from, to; /* sessions */
    uint32_t from_worker;
    bool all;
    size_t len;
    char name[];
};

static struct conn *conn_of_id(const struct worker *worker, uint64_t id)
{
    struct conn *conn = worker->conns;
    while (conn && conn->session.id != id)
        conn = conn->next;
    return conn && !conn_is_closing(conn) ? conn : NULL;
}

static void note_broken(struct worker *worker, struct worker_message *message)
{
    struct redirected *r = (struct redirected *)message;
    struct conn *conn = worker->stopping ? NULL : conn_of_id(worker, r->from);
    if (conn && conn->tracking && conn->session.tracking.redirect == r->to &&
        !(atomic_fetch_or_explicit(&conn->session.flags, SESSION_REDIRECT_BROKEN, memory_order_relaxed) &
          SESSION_REDIRECT_BROKEN) &&
        atomic_load_explicit(&conn->session.resp, memory_order_relaxed) == 3) {
        conn_will_reply(conn);
        reply_push(&conn->output.reply, 2);
        reply_bulk_str(&conn->output.reply, "tracking-redir-broken");
        reply_integer(&conn->output.reply, (int64_t)r->to);
    }
    free(r);
}

static void deliver(struct worker *worker, struct worker_message *message)
{
    struct redirected *r = (struct redirected *)message;
    struct conn *conn = worker->stopping ? NULL : conn_of_id(worker, r->to);
    if (conn) {
        write_message(conn, (struct slice){r->all ? NULL : r->name, r->len});
    } else if (!worker->stopping) {
        r->message.run = note_broken;
        worker_post_message(r->server->workers[r->from_worker], &r->message);
        return;
    }
    free(r);
}

/* `name`: NULL for all names. False without memory: the client has to be told of all of them, later. */
static bool tell(struct conn *conn, struct slice name)
{
    const struct session_tracking *options = &conn->session.tracking;
    if (options->redirect == 0) {
        write_message(conn, name);
        return true;
    }
    struct redirected *r = malloc(sizeof(*r) + name.len);
    if (!r)
        return false;
    *r = (struct redirected){.message = {.run = deliver},
                             .server = conn->worker->server,
                             .from = conn->session.id,
                             .to = options->redirect,
                             .from_worker = conn->worker->index,
                             .all = !name.ptr,
                             .len = name.len};
    if (name.len)
        memcpy(r->name, name.ptr, name.len);
    worker_post_message(r->server->workers[options->redirect_worker], &r->message);
    return true;
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

void tracking_note(struct conn *conn, const struct command *command, const struct resp_command *cmd)
{
    struct tracking *tracking = conn->tracking;
    bool writes = (command->flags & CMD_WRITE) && conn->session.tracking.noloop;
    bool reads = is_tracked(conn, command) && (command->flags & CMD_READONLY);
    if ((!reads && !writes) || command->first_key == 0)
        return;
    size_t last = command->last_key < 0 ? cmd->argc - (size_t)-command->last_key : (size_t)command->last_key;
    for (size_t i = (size_t)command->first_key; i <= last && i < cmd->argc; i += (size_t)command->key_step)
        (writes ? note_own_change : note_name)(conn, resp_arg(cmd, i));
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
            tracking->forget_all |= !tell(conn, key_name(name));
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
        uint64_t flushes = atomic_load(&worker->server->flushes);
        if (tracking->forget_all || tracking->flushes != flushes) {
            tracking->flushes = flushes;
            forget_all(tracking);
            tracking->forget_all = !tell(tracking->conn, (struct slice){NULL, 0});
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

static void set_options(struct conn *conn, const struct session_tracking *options)
{
    conn->session.tracking = *options;
    atomic_store_explicit(&conn->session.redirect, options->redirect, memory_order_relaxed);
    atomic_fetch_and_explicit(&conn->session.flags, ~(unsigned)SESSION_REDIRECT_BROKEN, memory_order_relaxed);
}

int tracking_start(struct conn *conn, const struct session_tracking *options)
{
    struct worker *worker = conn->worker;
    if (conn->tracking) {
        set_options(conn, options);
        return 0;
    }
    struct tracking *tracking = calloc(1, sizeof(*tracking));
    if (!tracking)
        return -ENOMEM;
    tracking->conn = conn;
    tracking->newest_end = &tracking->oldest;
    tracking->flushes = atomic_load(&worker->server->flushes);
    set_options(conn, options);
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
    set_options(conn, &(struct session_tracking){.redirect = 0});
    conn->tracking = NULL;
    conn->session.modes &= ~(unsigned)MODE_TRACKING;
    atomic_fetch_and_explicit(&conn->session.flags, ~(unsigned)SESSION_TRACKING, memory_order_relaxed);
    atomic_store_explicit(&conn->session.tracked, 0, memory_order_relaxed);
    atomic_store_explicit(&conn->session.tracking_bytes, 0, memory_order_relaxed);
}
