/* conn: one client connection: its socket, its unprocessed input, and its unsent replies.
 *
 * A connection can wait for something while its loop continues: conn_wait() names the reason, conn_ready() takes it
 * away. While there is any reason nothing is read from it and none of its commands run; input that was read before is
 * kept. When the last reason is gone it gets its turn in the loop's next round. A turn is bounded in bytes
 * (INPUT_READ_SIZE) and in time (turns.h), so that no connection's backlog keeps the others waiting. The loop notices a
 * client that disconnects while it waits: immediately if its connection breaks. A client that has closed its sending
 * side may still want its replies; after CONN_HALF_CLOSED_MS it counts as disconnected.
 *
 * Lifetime: conn_open() to conn_close(); the memory is freed in the last close callback, after a deferred command of
 * it has come back. Thread: the owning loop's. */
#pragma once

#include <stdbool.h>
#include <sys/queue.h>
#include <uv.h>

#include "buf.h"
#include "conn_list.h"
#include "io.h"
#include "reply.h"
#include "resp_parse.h"
#include "session.h"

struct conn_tls;

/* The reasons of a connection to wait; several at a time are possible, each at most once. */
enum conn_wait {
    CONN_WAITS_JOB = 1 << 0,         /* its deferred command is running */
    CONN_WAITS_DURABLE = 1 << 1,     /* its replies rest on records that are not synced yet: nothing is sent either */
    CONN_WAITS_ROOM = 1 << 2,        /* a write needs room in the log */
    CONN_WAITS_PAUSE = 1 << 3,       /* CLIENT PAUSE */
    CONN_WAITS_EXCLUSIVE = 1 << 4,   /* its EXEC waits for all workers to stand still */
    CONN_WAITS_PUBLISH = 1 << 5,     /* it publishes faster than subscribers' loops deliver */
    CONN_WAITS_UNSUBSCRIBE = 1 << 6, /* it is closed and ends its subscriptions in turns */
    CONN_WAITS_HANDSHAKE = 1 << 7,   /* its TLS handshake is not done: nothing is sent either (conn_tls.h) */
    CONN_WAITS_FILTER = 1 << 8,      /* its command needs bits that are being read */
    CONN_WAITS_MEMORY = 1 << 9,      /* bits are being evicted to make room for its command */
};

#define CONN_HALF_CLOSED_MS 1000

/* A connection's life, in this order; states can be left out, none comes twice. The table in conn.c has the
 * transitions. Up to CONN_DRAINING it may wait in each state. */
enum conn_life {
    CONN_OPEN,        /* its input is read and run */
    CONN_HALF_CLOSED, /* the client has sent its last byte: the kept input is run, and then it is closed */
    CONN_DRAINING,    /* nothing more is read or run: when its replies have left it is closed */
    CONN_CLOSING,     /* in no list any more; libuv closes its handle */
    CONN_CLOSED,      /* its socket is closed: it is freed when its deferred command and its subscriptions have ended */
};

/* A parsed command that could not run yet, or not to its end. Its bytes are the first `len` of the kept input. */
struct conn_pending {
    struct resp_span *spans; /* malloc'ed; NULL: none */
    size_t argc;
    size_t base; /* offset of the command in those bytes, behind empty requests */
    size_t len;
};

struct conn_input {
    struct resp_parser parser;
    char *kept; /* `len` bytes of input, from the first byte of an incomplete command on; NULL: none */
    size_t len;
    size_t size;
    struct conn_pending pending;
    bool held;           /* kept input could run except for waits, unread replies, or the end of its turn */
    bool unread;         /* its turn has come to read: the round in which there was input was over */
    int64_t eof_seen_ms; /* time at which the end was noticed during a wait, before it was read; 0: not */
};

/* A large reply, or what was pending before one. Not copied, and beyond reply-buffer-limit: a DUMP may be larger. */
struct conn_ahead {
    struct conn_ahead *next;
    struct buf buf;
};

struct conn_output {
    struct buf buf;
    struct conn_ahead *ahead; /* what leaves before `buf`, the oldest first; NULL: nothing */
    struct reply reply;       /* writes into `buf` */
    bool wrote;               /* has run a write in this iteration: its replies wait for a ticket */
    uint64_t ticket;          /* of CONN_WAITS_DURABLE */
    size_t allowance;         /* reply bytes that may be pending while commands are read, beyond the setting (io.c) */
    size_t seen;              /* reply bytes pending at the last tick */
    int64_t over_soft_ms;     /* time since which it is over the soft limit of its class; 0: it is not */
};

struct conn {
    uv_poll_t poll;
    struct io *io;
    LIST_ENTRY(conn) link;         /* of io->conns */
    struct conn_link with_replies; /* in io->delivery.conns: has replies that leave at the end of the iteration */
    struct conn_link turn;         /* in io->turns.waiting: has input that could not be run, and may run it now */
    struct conn_link unsynced;     /* in the wait queue of CONN_WAITS_DURABLE */
    struct conn_link waiter;       /* in the wait queue of CONN_WAITS_ROOM, _PAUSE, _MEMORY, _EXCLUSIVE or _HANDSHAKE */
    int fd;
    int events;          /* the events polled for now */
    enum conn_life life; /* changed by move() in conn.c only */
    unsigned waits;      /* enum conn_wait, ored; changed by conn_wait() and conn_ready() only */
    struct conn_input input;
    struct conn_output output;
    struct conn_tls *tls; /* NULL without TLS */
    size_t counted;       /* bytes of it in server->memory.of_clients */
    size_t held;          /* those of them that maxmemory-clients limits: beyond an idle connection's */
    struct session session;
};

/* Takes over a connected socket. 0 or -errno (the socket is closed then). `with_tls`: that of a TLS port. */
int conn_open(struct io *io, int fd, bool with_tls);

/* Ends the connection. Idempotent. Not from within a command of it: conn_drain() is for that. */
void conn_close(struct conn *conn);

/* Runs no further command of it and ends it once its replies have left, that of a deferred command included. */
void conn_drain(struct conn *conn);

/* The same for a client that has been killed, which may be waiting: frees its input and sees to the end. */
void conn_close_after_reply(struct conn *conn);

/* The compiler treats connections without TLS as the usual ones: code for the others is out of their way. */
static inline bool conn_has_tls(const struct conn *conn)
{
    return __builtin_expect(conn->tls != NULL, 0);
}

static inline bool conn_is_closing(const struct conn *conn)
{
    return conn->life >= CONN_CLOSING;
}

/* Whether a command of it is under way: deferred, or to be run again. */
static inline bool conn_has_command(const struct conn *conn)
{
    return (conn->waits & CONN_WAITS_JOB) || conn->input.pending.spans;
}

/* Counts the memory that the connection holds now, with its deferred command: after each piece of input and each flush,
 * and ten times a second while a deferred command runs. */
void conn_count_memory(struct conn *conn);

/* Notes the bytes that maxmemory-clients limits. 0 when it is closed, or must not be (client_limit.c). */
void client_limit_note(struct conn *conn, size_t held);

/* Called before a command or a push writes into conn->output.buf: lends it a buffer and schedules its send. */
void conn_will_reply(struct conn *conn);

/* Appends a whole reply; `reply` is then empty. A large one is not copied. */
void conn_append_reply(struct conn *conn, struct buf *reply);

/* Free input, and a reply that nobody gets: off the loop if it is large. */
void conn_free(struct conn *conn, void *bytes, size_t size);
void conn_free_reply(struct conn *conn, struct buf *reply);

/* Bytes of replies that have not been sent; and the buffer that has the next of them. */
static inline size_t conn_unsent(const struct conn *conn)
{
    size_t bytes = buf_len(&conn->output.buf);
    for (const struct conn_ahead *ahead = conn->output.ahead; ahead; ahead = ahead->next)
        bytes += buf_len(&ahead->buf);
    return bytes;
}
struct buf *conn_next_output(struct conn *conn);

/* Logs that a client is closed, at a bounded rate. */
void conn_warn_closed(const struct conn *conn, const char *why);

/* Sends pending replies, unless CONN_WAITS_DURABLE. May close the connection. */
void conn_flush(struct conn *conn);

/* Makes the connection wait. May be called while a command of it runs: that command ends, later ones wait. To run the
 * command itself again later, its dispatch must also return DISPATCH_LATER. `list`: NULL, or where it is found when the
 * reason is gone; it is in one such list at a time; CONN_WAITS_DURABLE has a link of its own. */
void conn_wait(struct conn *conn, enum conn_wait why, struct conn_link *list);

/* Takes a reason away. A connection that does not wait for it is left alone; one that is closed and waits for nothing
 * else is freed. Runs no commands: they have their turn later in this iteration or in the next. */
void conn_ready(struct conn *conn, enum conn_wait why);

/* The same for all in a list. */
void conn_all_ready(struct conn_link *list, enum conn_wait why);

/* The connection whose session this is. */
static inline struct conn *conn_of_session(struct session *session)
{
    return (struct conn *)(void *)((char *)session - offsetof(struct conn, session));
}

/* Whether these bytes of the running command are in the connection's own buffer; and that buffer, which passes to the
 * caller. The caller frees it in a later event, as the rest is copied when the command returns. */
bool conn_has_input(const struct conn *conn, const char *bytes);
void *conn_give_input(struct conn *conn);

/* Whether the connection's next command may be run now. */
bool conn_may_run(const struct conn *conn);

/* Polls for the events that the connection can use now; gives it a turn if kept input may run. */
void conn_update(struct conn *conn);

/* Reads from the readable socket and runs the input. May close the connection. */
void conn_read(struct conn *conn);

/* The client has sent its last byte. */
void conn_end_of_input(struct conn *conn);

/* Frees the kept input. */
void conn_drop_input(struct conn *conn);

/* Ends some subscriptions of a closed connection; its next turns end the others. */
void conn_unsubscribe(struct conn *conn);

/* Whether the client has given its password. */
static inline bool conn_is_known(const struct conn *conn)
{
    return atomic_load_explicit(&conn->session.acl.authenticated, memory_order_relaxed);
}

/* Reply bytes that a client without a password may have pending. One that leaves more unread is closed. */
#define CONN_NOAUTH_REPLIES ((size_t)64 * 1024)

/* The reply bytes that may be pending while its commands are read. */
static inline size_t conn_high_water(const struct conn *conn)
{
    size_t bytes = conn->io->delivery.high_water;
    if (conn->output.allowance > bytes)
        bytes = conn->output.allowance;
    return bytes > CONN_NOAUTH_REPLIES && !conn_is_known(conn) ? CONN_NOAUTH_REPLIES : bytes;
}

/* The class of its limits of output. */
static inline enum config_client_class conn_class(const struct conn *conn)
{
    return conn->session.pubsub.subscribed ? CONFIG_CLIENT_PUBSUB : CONFIG_CLIENT_NORMAL;
}

/* Logs that the client is closed over a limit of its output, and closes it. */
void conn_close_over_output(struct conn *conn, const char *why);

/* Runs kept input, as much as one turn allows. */
void conn_take_turn(struct conn *conn);
