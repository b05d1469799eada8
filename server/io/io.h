/* io: the parts that the connections of one loop share, and their calls of the layer that runs commands.
 *
 * An iteration of the loop: the input of all readable connections is read and run. At the end of the iteration each
 * connection's replies leave in one write, and the loop is offline for RCU while it sleeps in poll.
 *
 * Thread: the loop's, except for atomic members. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "alloc.h"
#include "config.h"
#include "conn_list.h"
#include "mailbox.h"
#include "resp_parse.h"
#include "server.h"
#include "stats.h"
#include "turns.h"

/* delivery: the connections whose replies leave together at the end of an iteration, with one write for each, and the
 * reply buffers, which only connections with replies hold. */

struct server;

#define DELIVERY_BUF_SIZE   (16 * 1024)
#define DELIVERY_SPARE_BUFS 64 /* reply buffers kept for reuse */

struct delivery {
    struct conn_link conns; /* connections whose replies leave at the end of the iteration */
    size_t high_water;      /* the settings, copied once per iteration */
    size_t limits[CONFIG_CLIENT_CLASSES];
    char *spare_bufs[DELIVERY_SPARE_BUFS];
    unsigned nspare;
};

/* Returns a reply buffer of DELIVERY_BUF_SIZE bytes, a spare one if possible; NULL without memory. */
char *delivery_buf_get(struct delivery *delivery);
void delivery_buf_put(struct delivery *delivery, char *mem);

/* input: a loop's memory for reading, and the list lent to its parsers. The bytes of an iteration stay in place until
 * all commands are answered, because these are slices of them. */

struct config;

#define INPUT_ARENA_SIZE (1024 * 1024) /* input of one iteration before its commands must be answered */
#define INPUT_READ_SIZE  (64 * 1024)   /* largest read from one connection */

struct input {
    char *arena;
    size_t used;               /* of the arena, by this iteration */
    struct resp_args args;     /* lent to the parsers */
    struct resp_limits limits; /* the settings, copied once per iteration */
    struct resp_limits limits_noauth;
};

/* Whether the arena has space for one read after `before` kept bytes. If not, the caller has all commands answered and
 * sets input->used to 0. */
static inline bool input_has_space(const struct input *input, size_t before)
{
    return input->used + before + INPUT_READ_SIZE <= INPUT_ARENA_SIZE;
}

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

    LIST_HEAD(, conn) conns; /* all of them */

    /* Members that other threads write, in cache lines of their own. */
    alignas(CACHE_LINE) struct mailbox mailbox;
    _Atomic unsigned nconns;
    _Atomic unsigned npaused; /* those with CONN_WAITS_PAUSE */

    alignas(CACHE_LINE) struct input input;
    struct turns turns;
    struct handshakes handshakes;
    struct delivery delivery;
    uint64_t clients_look_at; /* when its clients hold more it looks whether they may (client_limit.c) */

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

/* conns: all connections of a loop: what they share, the end of an iteration, ten checks a second, and the end. */

/* Sets up *io, which is zero-initialised but for the loop. 0 or -ENOMEM; conns_deinit() in any case, after its handles
 * have been closed. */
int conns_init(struct io *io, struct server *server, unsigned index, const struct io_calls *calls);
void conns_close(struct io *io);
void conns_deinit(struct io *io);

/* Copies the settings, once per iteration. */
void conns_refresh(struct io *io, const struct config *config);

/* Sends the replies of the iteration, as far as they may leave and the kernel accepts them. */
void conns_send(struct io *io);

/* Ten times a second: closes clients that are idle for longer than the setting `timeout`, exceed the time of a
 * handshake, have disconnected, or exceed a soft limit of replies for too long. Resumes reading from clients that are
 * blocked by their own replies. */
void conns_tick(struct io *io);

/* The limit maxmemory-clients: closes the largest client if all hold too much, or notifies its loop. Not from within a
 * command of a client. `io` is a loop's. client_limit_keep() does it at the end of an iteration, if it is time. */
void client_limit_look(void *io);
void client_limit_keep(struct io *io);

/* Closes all: io->stopping is set. Their subscriptions have ended, too. */
void conns_close_all(struct io *io);
