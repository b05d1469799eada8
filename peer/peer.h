/* peer: one connection to another RESP server, as a client. Requests are queued and sent together; replies are taken
 * one by one. It waits with poll() until its deadline, so it belongs to threads that may wait, never to an event loop.
 *
 * A deadline holds for all waits of a call; single bytes do not extend it. Every
 * PEER_SLOWEST bytes add a millisecond, so that large requests and replies have time on a slow line.
 *
 * It receives while it sends, so pipelines of any length cannot deadlock both sides. It knows only the commands that
 * peer_log_in() sends, retries nothing and never reconnects: after an error the caller closes it, and may open it
 * again.
 *
 * Lifetime: caller's storage, peer_init() to peer_close(). Thread: one at a time. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "errbuf.h"
#include "resp_reply.h"
#include "slice.h"

struct tls_context; /* tls_context.h */

/* The address of a server, and the login there. Strings are borrowed. */
struct peer_address {
    const char *host; /* name or address */
    const char *port;
    const char *unixpath;          /* not NULL: a Unix socket instead */
    const char *user;              /* NULL: the default user */
    const char *password;          /* NULL: no AUTH */
    int64_t database;              /* 0: no SELECT */
    const struct tls_context *tls; /* NULL: without TLS; not for a Unix socket */
};

/* When waits end. */
struct peer_limit {
    int64_t end_ms;               /* monotonic */
    const atomic_bool *cancelled; /* when it is true, waits end within 0.1 s; may be NULL */
};

#define PEER_SLOWEST 64 /* bytes in a millisecond */

struct peer {
    /* internal */
    int fd; /* -1: not connected */
    int64_t timeout_ms;
    struct peer_limit limit;
    size_t moved;         /* bytes, less than PEER_SLOWEST, that have not moved the deadline yet */
    struct peer_tls *tls; /* NULL: none */
    struct buf out, in;
    struct resp_reply_reader reader;
    size_t taken; /* bytes at the head of `in` that the last reply has; they go with the next call */
};

/* `timeout_ms` >= 1 is the time of each call: of peer_connect(), a handshake of TLS included but not the look-up of a
 * name, of peer_flush(), and of a reply. When *cancelled becomes true, a call ends within 0.1 s with -ECANCELED, a
 * look-up when it has its answer; NULL: never. */
void peer_init(struct peer *peer, int64_t timeout_ms, const atomic_bool *cancelled);

/* All of these return 0, or -errno with the reason in `err`: -ETIMEDOUT, -ECANCELED, -ECONNRESET (closed by the
 * server), -EPROTO (not RESP, or TLS failed), -ENOMEM, -EHOSTUNREACH (no such name), or an error of a system call. */

/* A new connection; with TLS, when the handshake is done. A failure of TLS is -EPROTO. */
int peer_connect(struct peer *peer, const struct peer_address *address, struct errbuf *err)
    __attribute__((warn_unused_result));

/* peer_connect(), and AUTH and SELECT if the address needs them. -EACCES with the server's error text if it refuses;
 * -EAGAIN while it is loading. */
int peer_log_in(struct peer *peer, const struct peer_address *address, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Idempotent. Frees all memory; replies are not valid any more. */
void peer_close(struct peer *peer);

static inline bool peer_is_open(const struct peer *peer)
{
    return peer->fd >= 0;
}

/* Queues a request. Failure (no memory) shows in the next call below. */
void peer_put(struct peer *peer, const struct slice *words, size_t n);

#define PEER_PUT(peer, ...)                               \
    peer_put((peer), (const struct slice[]){__VA_ARGS__}, \
             sizeof((const struct slice[]){__VA_ARGS__}) / sizeof(struct slice))

/* A number as a word; `storage` has room for it. */
#define PEER_NUMBER_SIZE 24
struct slice peer_number(int64_t number, char storage[PEER_NUMBER_SIZE]);

/* Sends all that is queued. */
int peer_flush(struct peer *peer, struct errbuf *err) __attribute__((warn_unused_result));

/* Sends all that is queued and waits for the next reply. It is valid until the next call of peer_reply(),
 * peer_flush() or peer_close(). Error replies are replies. Pushes are left out. */
int peer_reply(struct peer *peer, struct resp_reply *reply_out, struct errbuf *err) __attribute__((warn_unused_result));
