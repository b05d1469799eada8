/* io: the parts that the connections of one loop share, and their calls of the layer that runs commands.
 *
 * An iteration of the loop: the input of all readable connections is read and run. At the end of the iteration each
 * connection's replies leave in one write, and the loop is offline for RCU while it sleeps in poll.
 *
 * Thread: the loop's, except for atomic members. */
#ifndef BLOOMERY_IO_H
#define BLOOMERY_IO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "cache_line.h"
#include "client_limit.h"
#include "delivery.h"
#include "handshakes.h"
#include "input.h"
#include "mailbox.h"
#include "server.h"
#include "stats.h"
#include "timing.h"
#include "turns.h"

struct conn;
struct io;

/* The layer above. Commands that it has taken in may still be without their reply: they are slices of the input, and
 * point to their connection. */
struct io_calls {
    size_t conn_size; /* bytes of a connection with all that the layer keeps for it; struct conn comes first */

    void (*enter)(struct io *io);  /* an iteration begins: io_enter() */
    void (*settle)(struct io *io); /* answers all commands that have been taken in */
    void (*pause)(struct io *io);  /* settles and goes offline, to wait for other threads within an iteration */
    void (*finish)(struct io *io); /* ends the iteration: settles, sends the replies, goes offline */

    /* Lists the session of a new connection. Returns the error with which the client is refused, or NULL. */
    const char *(*open)(struct conn *conn);

    /* Runs the commands in data[0..len), as far as they may run in this turn, and returns the bytes consumed. Sets
     * conn->input.held. May end the connection by conn_drain(), but not close it. */
    size_t (*run)(struct conn *conn, char *data, size_t len);

    /* Bytes that the command under way holds: called while there is one (conn_has_command()). */
    size_t (*memory)(const struct conn *conn);

    /* Whether it may get a message of its subscriptions now. */
    bool (*may_hear)(const struct conn *conn);

    /* Ends some subscriptions of a closed connection; true: there are none left. */
    bool (*unsubscribe)(struct conn *conn);

    /* The connection is closed: unlists its session and frees all that the layer keeps, or lets go of it. */
    void (*close)(struct conn *conn);
};

struct io {
    struct server *server;
    const struct io_calls *calls;
    unsigned index; /* of the loop, in server->threads.mailboxes */
    bool online;    /* an RCU reader right now */
    bool stopping;  /* there are no connections any more */
    int64_t now_ms; /* monotonic, of this iteration */
    uv_loop_t loop;

    struct conn *conns; /* all of them */

    /* Members that other threads write, in cache lines of their own. */
    alignas(CACHE_LINE) struct mailbox mailbox;
    _Atomic unsigned nconns;
    _Atomic unsigned npaused; /* those with CONN_WAITS_PAUSE */

    alignas(CACHE_LINE) struct input input;
    struct turns turns;
    struct handshakes handshakes;
    struct delivery delivery;
    struct client_limit client_limit;

    struct stats stats; /* of all that the loop's thread does */
    struct timing timing;
};

/* Called at the start of every callback that uses shared structures. */
static inline void io_enter(struct io *io)
{
    if (!io->online)
        io->calls->enter(io);
}

static inline void io_settle(struct io *io)
{
    io->calls->settle(io);
}

/* Posts a notice to all loops. Thread: any. */
static inline void io_notify_all(struct server *server, enum notice notice)
{
    for (unsigned i = 0; i < server->threads.nworkers; i++)
        mailbox_notify(server->threads.mailboxes[i], notice);
}

/* Whether all loops have handled the earlier notices. Thread: any. */
static inline bool io_all_noticed(const struct server *server, enum notice notice)
{
    unsigned i = 0;
    while (i < server->threads.nworkers && mailbox_is_noticed(server->threads.mailboxes[i], notice))
        i++;
    return i == server->threads.nworkers;
}

#endif
