/* peer: one connection to another RESP server, as a client. Requests are queued and sent together; replies are taken
 * one by one. It waits with poll() for at most the time limit, so it belongs to threads that may wait, never to an
 * event loop.
 *
 * It sends while it waits for room and takes what arrives meanwhile, so that pipelines of any length cannot lock up
 * both sides. It knows no command but those that peer_log_in() sends, retries nothing and reconnects never: after an
 * error the caller closes it, and opens it again if that makes sense.
 *
 * Lifetime: caller's storage, peer_init() to peer_close(). Thread: one at a time. */
#ifndef BLOOMERY_PEER_H
#define BLOOMERY_PEER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "errbuf.h"
#include "resp_reply.h"
#include "slice.h"

struct tls_context; /* tls_context.h */
struct tls_stream;  /* tls_stream.h */

/* Where a server listens, and as whom to speak to it. Strings are borrowed. */
struct peer_address {
    const char *host; /* name or address */
    const char *port;
    const char *unixpath;          /* not NULL: a Unix socket instead */
    const char *user;              /* NULL: the default user */
    const char *password;          /* NULL: no AUTH */
    int64_t database;              /* 0: no SELECT */
    const struct tls_context *tls; /* NULL: without TLS; not for a Unix socket */
};

struct peer {
    /* internal */
    int fd; /* -1: not connected */
    int64_t timeout_ms;
    const atomic_bool *cancelled; /* may be NULL */
    struct peer_tls *tls;         /* NULL: none */
    struct buf out, in;
    struct resp_reply_reader reader;
    size_t taken; /* bytes at the head of `in` that the last reply has; they go with the next call */
};

/* `timeout_ms` >= 1 bounds each wait: for the connection, for a handshake of TLS as a whole, and for the next byte in
 * either direction. When *cancelled
 * becomes true, a wait ends within 0.1 s with -ECANCELED; NULL: never. */
void peer_init(struct peer *peer, int64_t timeout_ms, const atomic_bool *cancelled);

/* All of these return 0, or -errno with the reason in `err`: -ETIMEDOUT, -ECANCELED, -ECONNRESET (closed by the
 * server), -EPROTO (not RESP, or TLS failed), -ENOMEM, -EHOSTUNREACH (no such name), and those of the system's calls.
 */

/* A new connection; with TLS, when the handshake is done. A failure of TLS is -EPROTO. */
int peer_connect(struct peer *peer, const struct peer_address *address, struct errbuf *err)
    __attribute__((warn_unused_result));

/* AUTH and SELECT, as far as the address asks for them. -EACCES when the server refuses; `err` has its words. A server
 * that is still loading is -EAGAIN. */
int peer_log_in(struct peer *peer, const struct peer_address *address, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Idempotent. Frees all memory; replies are not valid any more. */
void peer_close(struct peer *peer);

static inline bool peer_is_open(const struct peer *peer)
{
    return peer->fd >= 0;
}

/* Takes the socket over, which stays non-blocking, and its TLS (NULL where there is none); the peer is closed then.
 * What was queued or received and not taken is lost. */
int peer_release(struct peer *peer, struct tls_stream **tls_out);

/* Queues a request. Failure (no memory) shows in the next call below. */
void peer_put(struct peer *peer, const struct slice *words, size_t n);

#define PEER_PUT(peer, ...)                               \
    peer_put((peer), (const struct slice[]){__VA_ARGS__}, \
             sizeof((const struct slice[]){__VA_ARGS__}) / sizeof(struct slice))

/* A word of a request: a literal, or a string that outlives the call. */
#define PEER_WORD(text) ((struct slice){(text), strlen(text)})

/* A number as a word; `storage` has room for it. */
#define PEER_NUMBER_SIZE 24
struct slice peer_number(int64_t number, char storage[PEER_NUMBER_SIZE]);

/* Sends all that is queued. */
int peer_flush(struct peer *peer, struct errbuf *err) __attribute__((warn_unused_result));

/* Sends all that is queued and waits for the next reply. It is valid until the next call of peer_reply(),
 * peer_flush() or peer_close(). Error replies are replies. Pushes are left out. */
int peer_reply(struct peer *peer, struct resp_reply *reply_out, struct errbuf *err) __attribute__((warn_unused_result));

/* A connected, non-blocking socket; or -errno with the reason. */
int peer_socket(const struct peer_address *address, int64_t timeout_ms, const atomic_bool *cancelled,
                struct errbuf *err);

/* Waits for events of poll() on the socket. Those that are there, more than 0; or -ETIMEDOUT, -ECANCELED, -errno. */
int peer_wait(int fd, short events, int64_t timeout_ms, const atomic_bool *cancelled);

#endif
