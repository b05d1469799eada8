/* session: the server's knowledge of a connected client, apart from socket and buffers. Command handlers see the
 * session, never the connection. The list of all sessions serves CLIENT LIST and the count of clients.
 *
 * Thread rule: only the worker that owns the connection writes a session. Other threads read it through
 * sessions_each() only. So its fields are set before the session is listed, or are atomic, or (the strings) are
 * changed by session_set() under the lock of the list. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "buf.h"
#include "resp_parse.h"

struct acl_user;
struct pubsub_client;
struct transaction;
struct sessions; /* the list of all sessions; one per server. Thread: any */

/* Letters of CLIENT LIST that no other field holds. */
enum session_flag {
    SESSION_MONITOR = 1 << 0,  /* O */
    SESSION_NO_EVICT = 1 << 1, /* e */
    SESSION_NO_TOUCH = 1 << 2, /* T */
    SESSION_CLOSING = 1 << 3,  /* c: closes once its replies have left */
    SESSION_KILLED = 1 << 4,   /* by CLIENT KILL: no longer listed, its worker closes it soon */
};

/* States that keep a session's commands from the pipeline. */
enum session_mode {
    MODE_IN_MULTI = 1 << 0,        /* commands are queued until EXEC */
    MODE_REPLY_OFF = 1 << 1,       /* CLIENT REPLY OFF */
    MODE_REPLY_SKIP = 1 << 2,      /* CLIENT REPLY SKIP: of the command that runs */
    MODE_REPLY_SKIP_NEXT = 1 << 3, /* of the one after it */
    MODE_SUBSCRIBED = 1 << 4,      /* it has subscriptions: session.pubsub.subscribed */
    MODE_RESTRICTED = 1 << 6,      /* its user has limited rights: names of filters are checked */
    MODE_FETCHES = 1 << 7,         /* its command needs bits that were not in memory (fetch.h) */
    MODE_NO_REPLY = MODE_REPLY_OFF | MODE_REPLY_SKIP,
};

/* The facts about its connection that a session gets: set before the session is listed, constant then. */
struct session_origin {
    int fd;
    int64_t created_ms; /* monotonic */
    char addr[64];      /* "127.0.0.1:54321", "[::1]:54321" or "/path:0" */
    char laddr[64];
    bool local; /* loopback or Unix socket */
    bool tls;
};

/* Numbers that listings show. Written by the owning worker only. */
struct session_meters {
    _Atomic int64_t last_ms;       /* monotonic time of the last command */
    _Atomic(const char *) command; /* name of the last command, from the command table; NULL before the first */
    _Atomic uint64_t commands;     /* commands processed */
    _Atomic uint64_t input_bytes;  /* bytes held for an incomplete command */
    _Atomic uint64_t output_bytes; /* reply bytes not yet taken by the client */
    _Atomic uint64_t memory;       /* all that it holds, its connection included */
};

/* MULTI and WATCH. Written by the owning worker only. */
struct session_multi {
    _Atomic int queued;              /* commands since MULTI, -1 outside of a transaction */
    _Atomic uint64_t bytes;          /* memory of that queue */
    _Atomic uint32_t watched;        /* names under WATCH */
    bool in_exec;                    /* the commands that run are those of its transaction */
    struct transaction *transaction; /* NULL without WATCH or MULTI (transaction.h) */
};

/* Its subscriptions (push.h). Written by the owning worker only. */
struct session_pubsub {
    _Atomic uint32_t channels, patterns, shards;
    _Atomic uint64_t bytes;       /* memory of these subscriptions */
    struct pubsub_client *client; /* NULL: it has never subscribed */
    bool subscribed;              /* to any channel or pattern; MONITOR does not count */
};

/* Which string of a session. */
enum session_text { SESSION_NAME, SESSION_LIB_NAME, SESSION_LIB_VER, SESSION_NTEXTS };

struct session_texts {
    char *of[SESSION_NTEXTS]; /* changed under the lock of the list; NULL, or NUL-terminated without spaces */
    size_t bytes;             /* of all; the owning worker's */
};

/* Its user, with a reference, and that user's rights (acl_check.h). The owning worker's. */
struct session_acl {
    _Atomic bool authenticated;
    const char *user_name; /* that of `user`; NULL: default. Changed under the lock of the list */
    struct acl_user *user;
    bool changed;             /* his rights may have changed since the command that runs in slices began */
    uint64_t allowed_memo[6]; /* by kind of the pipeline: the request last recognised that it may send */
};

struct session {
    uint64_t id;     /* 1, 2, 3 ... never reused; constant, as the next two */
    uint32_t worker; /* index of the worker that serves it */
    struct session_origin origin;

    /* written by the owning worker only */
    _Atomic int resp;       /* 2 or 3 */
    _Atomic unsigned db;    /* the number of its database, as SELECT has it */
    _Atomic unsigned flags; /* enum session_flag, ored */
    struct session_meters meters;
    struct session_multi multi;
    struct session_pubsub pubsub;
    struct session_texts texts;
    struct session_acl acl;

    /* the owning worker's alone */
    unsigned modes;              /* enum session_mode, ored */
    bool pushed;                 /* its command has replied with pushes, which CLIENT REPLY does not withdraw */
    bool close_after_reply;      /* set by QUIT: nothing more is run, the replies still leave */
    TAILQ_ENTRY(session) listed; /* internal */
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

/* sessions_add() gives an id and lists the session; sessions_remove() frees its strings. Thread: the owning worker. */
void sessions_add(struct sessions *sessions, struct session *session);
void sessions_remove(struct sessions *sessions, struct session *session);
uint64_t sessions_count(struct sessions *sessions);

/* Sums over all sessions. Takes the lock for a bounded number of sessions at a time. Thread: any. */
struct sessions_totals {
    uint64_t max_input; /* bytes of one session */
    uint64_t max_output;
    uint64_t watching; /* sessions with names under WATCH */
    uint64_t watched;  /* such names; a name counts once for each session */
};
void sessions_totals(struct sessions *sessions, struct sessions_totals *totals_out);

#define SESSION_MAX_TEXT 1024 /* bytes of a string: it stays in memory and in every CLIENT LIST */

/* The fault of a string: none, bytes outside '!'..'~', or more than SESSION_MAX_TEXT bytes. */
enum session_text_fault { SESSION_TEXT_GOOD, SESSION_TEXT_BYTES, SESSION_TEXT_LONG };
enum session_text_fault session_text_check(struct slice value);

/* Sets a string; an empty value clears it. 0, or a session_text_fault or -ENOMEM. Thread: the owning worker. */
int session_set(struct sessions *sessions, struct session *session, enum session_text which, struct slice value);

/* Changes the user and its name, valid until the next change, and returns the one before. Thread: the owning worker. */
struct acl_user *sessions_set_user(struct sessions *sessions, struct session *session, struct acl_user *user,
                                   const char *name);

/* Calls fn for every session that is listed throughout the call, oldest first, under the lock of the list: fn must be
 * quick and take no other lock. The lock is taken for a bounded number of sessions at a time. Sessions that CLIENT KILL
 * has marked are left out. Thread: any. */
void sessions_each(struct sessions *sessions, void (*fn)(void *ctx, struct session *session), void *ctx);

/* Appends the line of CLIENT LIST, without its end. Thread: the owning worker. */
void session_format(const struct session *session, int64_t now_ms, struct buf *out);
