/* conn: one client connection: its socket, its input as far as it could not be run yet, its replies as far as they
 * have not left.
 *
 * A connection can wait for something while its loop goes on: conn_wait() names the reason, conn_ready() takes it
 * away. While there is any reason nothing is read from it and none of its commands run; what had been read before is
 * kept. When the last reason is gone it gets its turn in the loop's next round, for at most WORKER_READ_SIZE bytes of
 * input at a time, so that no connection's backlog keeps the others waiting. A client that goes while it waits is
 * noticed: at once if its connection breaks; one that has sent its last byte may only have closed its side and still
 * want the replies, and is taken for gone when it has waited CONN_HALF_CLOSED_MS for them.
 *
 * Lifetime: conn_open() to conn_close(); the memory is freed in the last close callback, after a deferred command of
 * it has come back. Thread: the owning worker's. */
#ifndef BLOOMERY_CONN_H
#define BLOOMERY_CONN_H

#include <stdbool.h>
#include <uv.h>

#include "buf.h"
#include "command.h"
#include "conn_list.h"
#include "reply.h"
#include "resp_parse.h"
#include "session.h"

struct command;
struct transaction;
struct worker;

/* Why a connection waits; several at a time are possible, each at most once. */
enum conn_wait {
    CONN_WAITS_JOB = 1 << 0,       /* a deferred command of it is away */
    CONN_WAITS_DURABLE = 1 << 1,   /* its replies promise what is not on disk yet: nothing is sent either */
    CONN_WAITS_ROOM = 1 << 2,      /* a write needs room in the log */
    CONN_WAITS_PAUSE = 1 << 3,     /* CLIENT PAUSE */
    CONN_WAITS_EXCLUSIVE = 1 << 4, /* its EXEC waits for all workers to stand still */
    CONN_WAITS_PUBLISH = 1 << 5,   /* it publishes faster than its messages are delivered */
};

#define CONN_HALF_CLOSED_MS 1000

/* What makes a connection's commands go another way than that of most: none of these, and the window may take them. */
enum conn_mode {
    CONN_IN_MULTI = 1 << 0,        /* commands are queued until EXEC */
    CONN_REPLY_OFF = 1 << 1,       /* CLIENT REPLY OFF */
    CONN_REPLY_SKIP = 1 << 2,      /* CLIENT REPLY SKIP: of the command that runs */
    CONN_REPLY_SKIP_NEXT = 1 << 3, /* of the one after it */
    CONN_SUBSCRIBED = 1 << 4,      /* it has subscriptions: session.subscribed */
    CONN_NO_REPLY = CONN_REPLY_OFF | CONN_REPLY_SKIP,
};

/* A command that was parsed and could not be run yet, or not to its end. Its bytes are the first `len` of the kept
 * input. */
struct conn_pending {
    struct resp_span *spans; /* malloc'ed; NULL: there is none */
    size_t argc;
    size_t base;             /* where in those bytes the command begins; empty requests come before it */
    size_t len;
};

struct conn {
    uv_poll_t poll;
    struct worker *worker;
    struct conn *prev, *next;      /* of the worker */
    struct conn_link with_replies; /* in worker->with_replies: what it has to say leaves at the end of the iteration */
    struct conn_link turn;         /* in worker->turns: has input that could not be run, and may run it now */
    struct conn_link durable;      /* in worker->not_durable: CONN_WAITS_DURABLE */
    struct conn_link waiter;       /* in the list of whoever made it wait for ROOM, PAUSE or EXCLUSIVE; theirs to use */
    int fd;
    int events;                    /* what is polled for now */
    unsigned waits;                /* enum conn_wait, ored; changed by conn_wait() and conn_ready() only */
    unsigned modes;                /* enum conn_mode, ored */
    bool in_exec;                  /* the commands that run are those of its transaction */
    bool closing;
    bool held;                     /* there is input that could be run but for waits, replies not taken, or its turn */
    bool eof;                      /* the client has sent its last byte */
    int64_t eof_seen_ms;           /* likewise, noticed while it waits and has not been read so far; 0: not */
    bool wrote;                    /* has run a write command in this iteration: its replies wait for a ticket */
    uint64_t ticket;               /* of CONN_WAITS_DURABLE */

    struct resp_parser parser;
    char *in;                      /* input from the first byte of an incomplete command on; NULL when there is none */
    size_t in_len;
    size_t in_size;
    struct conn_pending pending;

    struct buf out;
    struct reply reply;            /* writes into `out` */
    struct command_slice slice;    /* of the command that runs in slices, and its reply so far */
    struct buf slice_out;
    const struct command *slice_of; /* its row; NULL before its first slice */
    uint64_t later_ns;             /* time spent so far in a command that was put off */
    struct transaction *transaction; /* NULL without WATCH or MULTI (transaction.h) */
    size_t out_pause;              /* no commands are read while more reply bytes than this wait; see conn_unstick() */
    size_t out_seen;               /* reply bytes that waited at the last tick */
    int64_t over_soft_ms;          /* since when more waits than the soft limit of its class; 0: it does not */
    struct session session;
};

/* Takes a connected socket over. 0 or -errno (the socket is closed then). */
int conn_open(struct worker *worker, int fd);

/* Ends the connection. Idempotent. Not from within a command of it: session.close_after_reply is for that. */
void conn_close(struct conn *conn);

/* Reads nothing more from it and ends it once its replies have left, that of a deferred command included. */
void conn_close_after_reply(struct conn *conn);

/* To be called before something is written into conn->out, by a command or as a push: lends it a buffer and makes sure
 * that it is sent at the end of the iteration. */
void conn_will_reply(struct conn *conn);

/* Moves a whole reply behind the others; `reply` is then empty. Not copied if it is large and there are no others. */
void conn_append_reply(struct conn *conn, struct buf *reply);

/* Logs that a client is closed, at a bounded rate. */
void conn_warn_closed(const struct conn *conn, const char *why);

/* Sends what there is, unless CONN_WAITS_DURABLE. May close the connection. */
void conn_flush(struct conn *conn);

/* Makes the connection wait. May be called while a command of it runs: that command still ends, later ones wait. To
 * have the command itself run again later, its dispatch must also return DISPATCH_LATER. */
void conn_wait(struct conn *conn, enum conn_wait why);

/* Takes a reason away; a connection that is closing, or that does not wait for this, is left alone. Never runs commands
 * itself: they have their turn later in this iteration or in the next. */
void conn_ready(struct conn *conn, enum conn_wait why);

/* The connection whose session this is. */
static inline struct conn *conn_of_session(struct session *session)
{
    return (struct conn *)(void *)((char *)session - offsetof(struct conn, session));
}

/* A deferred command has come back; the reply is taken over, `reply` is then empty. `no_reply`: nobody wants it. */
void conn_deferred_done(struct conn *conn, struct buf *reply, const struct command *command, bool no_reply);

/* To be called ten times a second: whether the client has been over the soft limit of its class for too long
 * (client-output-buffer-limit) and has been closed for it. */
bool conn_over_soft_limit(struct conn *conn);

/* To be called ten times a second: whether a client that waits has gone, as it seems, and has been closed for it. */
bool conn_over_half_closed(struct conn *conn);

/* To be called ten times a second. A client that writes a whole pipeline before it reads a reply (most libraries do)
 * would wait for ever for a server that does not read on before its replies are taken. So if it has taken nothing
 * since the last tick it is allowed twice as many waiting bytes, up to reply-buffer-limit. */
void conn_unstick(struct conn *conn);

/* Runs kept input, as much as one turn allows. Called by the worker for those in worker->turns. */
void conn_take_turn(struct conn *conn);

#endif
