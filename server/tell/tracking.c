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
static uint64_t rotated(uint64_t hash)
{
    return hash >> 32 | hash << 32;
}

static struct note *find_note(const struct tracker *tracker, uint64_t hash, struct slice name)
{
    struct hash_link *link = hash_table_first(&tracker->notes, rotated(hash));
    while (link &&
           !(note_of(link)->len == name.len && (name.len == 0 || memcmp(note_of(link)->name, name.ptr, name.len) == 0)))
        link = hash_table_next(link);
    return link ? note_of(link) : NULL;
}

void tracking_account(struct tracker *tracker)
{
    struct session *session = &tracker->conn->session;
    atomic_store_explicit(&session->tracking.noted, (uint32_t)tracker->notes.count, memory_order_relaxed);
    atomic_store_explicit(&session->tracking.bytes,
                          sizeof(*tracker) + hash_table_bytes(&tracker->notes) + tracker->bytes + tracker->held_bytes +
                              (tracker->broadcast ? broadcast_client_bytes(tracker->broadcast) : 0),
                          memory_order_relaxed);
}

/* ---- the order of checks ---- */

static void append(struct tracker *tracker, struct note *note)
{
    note->newer = NULL;
    *tracker->newest_end = note;
    tracker->newest_end = &note->newer;
}

static struct note *take_oldest(struct tracker *tracker)
{
    struct note *note = tracker->oldest;
    tracker->oldest = note->newer;
    if (!tracker->oldest)
        tracker->newest_end = &tracker->oldest;
    return note;
}

static void untable(struct tracker *tracker, struct note *note)
{
    if (note->dropped)
        return;
    note->dropped = true;
    hash_table_remove(&tracker->notes, &note->hashed);
    atomic_fetch_sub_explicit(&tracker->conn->io->server->clients.tracked, 1, memory_order_relaxed);
}

/* `note` has left the order of checks. */
static void forget(struct tracker *tracker, struct note *note)
{
    untable(tracker, note);
    tracker->bytes -= note_bytes(note);
    free(note);
}

static void forget_all(struct tracker *tracker)
{
    while (tracker->oldest)
        forget(tracker, take_oldest(tracker));
    tracker->forget_all = false;
}

/* ---- noting ---- */

static void note_name(struct conn *conn, struct slice name)
{
    struct tracker *tracker = conn->session.tracking.tracker;
    struct server *server = conn->io->server;
    const struct registry *registry = server->registry;
    if (tracker->forget_all || name.len > REGISTRY_MAX_NAME)
        return; /* no filter has a name of this length */
    uint64_t hash = registry_hash(registry, name);
    if (find_note(tracker, hash, name))
        return; /* the older version stays: the client may keep an answer of that time */
    uint64_t most = (uint64_t)server_config(server)->clients.tracking_table_max_keys;
    if (most && atomic_load_explicit(&server->clients.tracked, memory_order_relaxed) >= most) {
        tracker->forget_all = true;
        return;
    }
    struct note *note = tracker->bytes < TRACKING_MAX_BYTES - name.len ? malloc(sizeof(*note) + name.len) : NULL;
    if (note)
        *note = (struct note){.hashed = {.hash = rotated(hash)}, .len = name.len};
    if (!note || hash_table_insert(&tracker->notes, &note->hashed) != 0) {
        free(note);
        tracker->forget_all = true;
        return;
    }
    if (name.len)
        memcpy(note->name, name.ptr, name.len);
    note->version = registry_version_settled(registry, hash, name);
    append(tracker, note);
    tracker->bytes += note_bytes(note);
    atomic_fetch_add_explicit(&server->clients.tracked, 1, memory_order_relaxed);
}

/* Before the client changes the filter itself: with NOLOOP it gets messages of changes before its own only. As in Redis
 * the name is not tracked any more until the client reads it again. */
static void note_own_change(struct conn *conn, struct slice name)
{
    struct tracker *tracker = conn->session.tracking.tracker;
    const struct registry *registry = conn->io->server->registry;
    uint64_t hash = registry_hash(registry, name);
    struct note *note = find_note(tracker, hash, name);
    if (!note)
        return;
    struct registry_version now = registry_version_settled(registry, hash, name);
    if (registry_version_same(&now, &note->version))
        untable(tracker, note); /* its place in the order of checks goes with the next one */
}

static bool is_about_clients(const struct command *command)
{
    return strncmp(command->full_name, "client|", 7) == 0;
}

/* Whether the command's reads are tracked: CLIENT CACHING is about the next command, or the next transaction. */
static bool is_tracked(struct conn *conn, const struct command *command)
{
    struct session_tracking *tracking = &conn->session.tracking;
    bool again = conn->input.pending.spans != NULL; /* it has waited, or runs in slices */
    if (tracking->exception == EXCEPTION_ENDS && !conn->session.multi.in_exec && !again)
        tracking->exception = EXCEPTION_NONE;
    bool excepted = tracking->exception != EXCEPTION_NONE;
    if (excepted && !is_about_clients(command) && command->handler != cmd_multi)
        tracking->exception = EXCEPTION_ENDS;
    if (tracking->options.set & TRACKING_OPTIN)
        return excepted;
    return !(tracking->options.set & TRACKING_OPTOUT) || !excepted;
}

static void note_names(struct conn *conn, const struct command *command, const struct resp_command *cmd)
{
    struct tracker *tracker = conn->session.tracking.tracker;
    bool writes = (command->flags & CMD_WRITE) && conn->session.tracking.options.set & TRACKING_NOLOOP;
    bool reads = is_tracked(conn, command) && (command->flags & CMD_READONLY);
    if ((!reads && !writes) || command->first_key == 0)
        return;
    size_t last = command->last_key < 0 ? cmd->argc - (size_t)-command->last_key : (size_t)command->last_key;
    for (size_t i = (size_t)command->first_key; i <= last && i < cmd->argc; i += (size_t)command->key_step)
        (writes ? note_own_change : note_name)(conn, resp_arg(cmd, i));
    tracking_account(tracker);
}

uint64_t tracking_author(const struct session *session)
{
    const unsigned both = TRACKING_BCAST | TRACKING_NOLOOP;
    return (session->tracking.options.set & both) == both ? session->id : 0;
}

void tracking_before(struct conn *conn, const struct command *command, const struct resp_command *cmd)
{
    if (conn->session.tracking.options.set & TRACKING_BCAST)
        broadcast_set_author(tracking_author(&conn->session));
    else
        note_names(conn, command, cmd);
}

void tracking_after(void)
{
    broadcast_set_author(0);
}

/* ---- looking ---- */

static bool tell_of(struct tracker *tracker, struct slice name)
{
    struct buf names;
    buf_init(&names, SIZE_MAX);
    struct reply reply = {.buf = &names, .version = 3};
    reply_array(&reply, 1);
    reply_bulk(&reply, name.ptr, name.len);
    bool notified = !buf_failed(&names) && tracking_tell(tracker, (struct slice){buf_head(&names), buf_len(&names)});
    buf_deinit(&names);
    return notified;
}

static void look_at_some(struct tracker *tracker, size_t most)
{
    const struct registry *registry = tracker->trackers->io->server->registry;
    for (struct note *last = NULL; most > 0 && tracker->oldest && tracker->oldest != last; most--) {
        struct note *note = take_oldest(tracker);
        struct slice name = {note->name, note->len};
        if (note->dropped) {
            forget(tracker, note);
            continue;
        }
        struct registry_version now = registry_version(registry, registry_hash(registry, name), name);
        if (registry_version_same(&now, &note->version)) {
            append(tracker, note);
            last = last ? last : note; /* the first one that was appended: then all have had their turn */
        } else {
            tracker->forget_all |= !tell_of(tracker, key_name(name));
            forget(tracker, note);
        }
    }
}

static void look_at(struct tracker *tracker, size_t most)
{
    uint64_t flushes = atomic_load(&tracker->trackers->io->server->clients.flushes);
    if (tracker->forget_all || tracker->flushes != flushes) {
        tracker->flushes = flushes;
        forget_all(tracker);
        tracking_broadcast_drop(tracker);
        tracker->forget_all = !tracking_tell(tracker, (struct slice){NULL, 0});
    } else if (tracker->first_held) {
        tracking_broadcast_release(tracker);
    }
    look_at_some(tracker, most);
    tracking_account(tracker);
}

static void look(uv_timer_t *timer)
{
    const struct trackers *trackers = timer->data;
    const struct conn_link *all = &trackers->all;
    size_t n = 0;
    io_enter(trackers->io);
    io_settle(trackers->io); /* the commands that were read are answered first */
    for (struct conn_link *at = all->next; at != all; at = at->next)
        n++;
    size_t share = n ? TRACKING_LOOK_MAX / n + 1 : 0;
    for (struct conn_link *at = all->next; at != all; at = at->next) {
        struct tracker *tracker = (struct tracker *)(void *)((char *)at - offsetof(struct tracker, link));
        if (!tracking_is_busy(tracker->conn))
            look_at(tracker, share);
    }
}

/* ---- on and off ---- */

void tracking_init(struct trackers *trackers, struct io *io)
{
    trackers->io = io;
    conn_list_init(&trackers->all);
    mailbox_expect(&io->mailbox, NOTICE_CHANGES, tracking_run_changes, trackers);
}

void tracking_open(struct trackers *trackers)
{
    uv_timer_init(&trackers->io->loop, &trackers->timer);
    trackers->timer.data = trackers;
}

void tracking_close(struct trackers *trackers)
{
    uv_close((uv_handle_t *)&trackers->timer, NULL);
}

static void set_flag(struct session *session, enum session_flag flag, bool on)
{
    if (on)
        atomic_fetch_or_explicit(&session->flags, flag, memory_order_relaxed);
    else
        atomic_fetch_and_explicit(&session->flags, ~(unsigned)flag, memory_order_relaxed);
}

static void set_options(struct conn *conn, const struct tracking_options *options, bool on)
{
    struct session *session = &conn->session;
    bool bcast = options->set & TRACKING_BCAST;
    session->tracking.options = *options;
    session->tracking.exception = EXCEPTION_NONE;
    atomic_store_explicit(&session->tracking.shown_redirect, options->redirect, memory_order_relaxed);
    set_flag(session, SESSION_TRACKING, on);
    set_flag(session, SESSION_BCAST, bcast);
    set_flag(session, SESSION_REDIRECT_BROKEN, false);
    if (on && (!bcast || options->set & TRACKING_NOLOOP)) /* its reads are noted, or its changes have an author */
        session->modes |= MODE_TRACKING;
    else
        session->modes &= ~(unsigned)MODE_TRACKING;
}

static int tracker_create(struct trackers *trackers, struct conn *conn)
{
    struct tracker *tracker = calloc(1, sizeof(*tracker));
    if (!tracker)
        return -ENOMEM;
    tracker->trackers = trackers;
    tracker->conn = conn;
    tracker->newest_end = &tracker->oldest;
    tracker->held_end = &tracker->first_held;
    tracker->flushes = atomic_load(&trackers->io->server->clients.flushes);
    conn->session.tracking.tracker = tracker;
    if (conn_list_empty(&trackers->all))
        uv_timer_start(&trackers->timer, look, TRACKING_LOOK_MS, TRACKING_LOOK_MS);
    conn_list_append(&trackers->all, &tracker->link);
    return 0;
}

int tracking_start(struct trackers *trackers, struct conn *conn, const struct tracking_options *options,
                   const struct slice *prefixes, size_t n)
{
    bool is_new = !conn->session.tracking.tracker;
    int status = BROADCAST_OK;
    if (is_new && tracker_create(trackers, conn) != 0)
        return -ENOMEM;
    struct tracker *tracker = conn->session.tracking.tracker;
    if (options->set & TRACKING_BCAST)
        status = tracking_broadcast_start(tracker, options, prefixes, n);
    if (status == BROADCAST_OK) {
        set_options(conn, options, true);
        tracking_account(tracker);
        return 0;
    }
    if (is_new)
        tracking_stop(trackers, conn);
    return status;
}

void tracking_stop(struct trackers *trackers, struct conn *conn)
{
    struct tracker *tracker = conn->session.tracking.tracker;
    if (trackers->target == conn)
        trackers->target = NULL;
    if (!tracker)
        return;
    forget_all(tracker);
    tracking_broadcast_stop(tracker);
    conn_list_remove(&tracker->link);
    if (conn_list_empty(&trackers->all))
        uv_timer_stop(&trackers->timer);
    free(tracker);
    set_options(conn, &(struct tracking_options){.set = 0}, false);
    conn->session.tracking.tracker = NULL;
    atomic_store_explicit(&conn->session.tracking.noted, 0, memory_order_relaxed);
    atomic_store_explicit(&conn->session.tracking.bytes, 0, memory_order_relaxed);
}
