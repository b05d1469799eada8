/* session: what the server knows of a connected client, apart from its socket and buffers. Command handlers see this,
 * never the connection. The list of all sessions serves CLIENT LIST and the count of clients.
 *
 * Thread rule: a session is written by the worker that owns its connection. Other threads read it only through
 * sessions_format(), so the fields they may see are either set before the session is listed, atomic, or (the strings)
 * changed under the lock of the list by session_set(). */
#ifndef BLOOMERY_SESSION_H
#define BLOOMERY_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "resp_parse.h"

struct pubsub_client;
struct sessions; /* the list of all sessions; one per server. Thread: any */

/* What CLIENT LIST shows as a letter and is nowhere else. */
enum session_flag {
    SESSION_MONITOR = 1 << 0,      /* O */
    SESSION_NO_EVICT = 1 << 1,     /* e */
    SESSION_NO_TOUCH = 1 << 2,     /* T */
    SESSION_CLOSING = 1 << 3,      /* c: to be closed once its replies have left */
    SESSION_KILLED = 1 << 4,       /* by CLIENT KILL: listed no more, closed by its worker soon */
};

struct session {
    /* set before the session is listed, constant then */
    uint64_t id;           /* 1, 2, 3 ... never reused */
    int fd;
    uint32_t worker;       /* index of the worker that serves it */
    int64_t created_ms;    /* monotonic */
    char addr[64];         /* "127.0.0.1:54321", "[::1]:54321" or "/path:0" */
    char laddr[64];
    bool local;            /* loopback or Unix socket */

    /* written by the owning worker only */
    _Atomic int resp;              /* 2 or 3 */
    _Atomic bool authenticated;
    _Atomic int64_t last_ms;       /* monotonic time of the last command */
    _Atomic(const char *) command; /* name of the last command, from the command table; NULL before the first */
    _Atomic uint64_t input_bytes;  /* bytes held for an incomplete command */
    _Atomic uint64_t output_bytes; /* reply bytes not yet taken by the client */
    _Atomic uint64_t commands;     /* commands processed */
    _Atomic int multi;             /* commands queued since MULTI, -1 outside of a transaction */
    _Atomic uint64_t multi_bytes;  /* memory of that queue */
    _Atomic uint32_t watch;        /* names under WATCH */
    _Atomic uint32_t sub, psub, ssub; /* channels, patterns, shard channels subscribed to */
    _Atomic uint64_t pubsub_bytes; /* memory of these subscriptions */
    _Atomic unsigned flags;        /* enum session_flag, ored */

    /* changed under the lock of the list */
    char *name;     /* NULL or a NUL-terminated name without spaces */
    char *lib_name;
    char *lib_ver;

    /* what it listens to (push.h) */
    struct pubsub_client *pubsub;  /* NULL: it has never listened to anything */
    bool subscribed;               /* to anything; a monitor is not subscribed */
    bool pushed;                   /* its command has answered with pushes, which CLIENT REPLY does not take back */

    bool close_after_reply;        /* QUIT, protocol errors: nothing more is read, the replies still leave */
    struct session *prev, *next;   /* internal: the list */
};

static inline bool session_monitors(const struct session *session)
{
    return atomic_load_explicit(&session->flags, memory_order_relaxed) & SESSION_MONITOR;
}

static inline bool session_no_touch(const struct session *session)
{
    return atomic_load_explicit(&session->flags, memory_order_relaxed) & SESSION_NO_TOUCH;
}

int sessions_create(struct sessions **sessions_out); /* 0 or -ENOMEM */
void sessions_destroy(struct sessions *sessions);    /* NULL is fine; all sessions must be gone */

/* Gives the session its id and lists it; takes it off the list again and frees the strings. Thread: the owning worker. */
void sessions_add(struct sessions *sessions, struct session *session);
void sessions_remove(struct sessions *sessions, struct session *session);
uint64_t sessions_count(struct sessions *sessions);

/* Sums over all sessions. Takes the lock for a bounded number of sessions at a time. Thread: any. */
struct sessions_totals {
    uint64_t bytes;      /* of memory: input, replies, queues, subscriptions, and the sessions themselves */
    uint64_t max_input;  /* bytes of one session */
    uint64_t max_output;
    uint64_t watching;   /* sessions with names under WATCH */
    uint64_t watched;    /* such names, those of several sessions counted several times */
};
void sessions_totals(struct sessions *sessions, struct sessions_totals *totals_out);

#define SESSION_MAX_TEXT 1024 /* bytes of a name: it is kept, and shown to everybody who asks for the list */

/* Which string of a session. */
enum session_text { SESSION_NAME, SESSION_LIB_NAME, SESSION_LIB_VER };

/* Sets a string; an empty value clears it. 0, 1 when it is longer than SESSION_MAX_TEXT or has characters outside '!'..'~' (nothing is changed), or
 * -ENOMEM. Thread: the owning worker. */
int session_set(struct sessions *sessions, struct session *session, enum session_text which, struct slice value);

/* Appends the CLIENT LIST lines, each ending with \n, of the sessions with the given ids (ascending; all sessions when nids
 * is 0), oldest first. Every session that is listed throughout the call is among them. Takes the lock for a bounded number
 * of sessions at a time. Thread: any. */
void sessions_format(struct sessions *sessions, const uint64_t *ids, size_t nids, int64_t now_ms, struct buf *out);

/* Calls fn for every session that is listed throughout the call, oldest first, under the lock of the list: fn must be quick
 * and take no other lock. Sessions that CLIENT KILL has marked are left out. Thread: any. */
void sessions_each(struct sessions *sessions, void (*fn)(void *ctx, struct session *session), void *ctx);

/* One line in the same form, without the line end. Thread: the owning worker. */
void session_format(const struct session *session, int64_t now_ms, struct buf *out);

#endif
