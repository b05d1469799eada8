/* tls_stream: one TLS connection without its socket: it turns bytes of the network into plain bytes and the reverse. It
 * never waits and keeps at most one incomplete record.
 *
 * Limits for strangers: a first message of at most TLS_HELLO_MAX bytes, checked before anything is allocated; a
 * handshake of at most TLS_HANDSHAKE_MAX bytes; no renegotiation; few messages without data. The caller limits the time
 * of a handshake.
 *
 * `out` receives bytes for the network. The caller sends them with any status: after a failure they tell the other side
 * the reason. A full `out` is a failure. After TLS_FAILED only tls_stream_destroy() may be called.
 *
 * Lifetime: tls_stream_create() to tls_stream_destroy(). Thread: one at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "errbuf.h"
#include "tls_context.h"

struct tls_stream;

#define TLS_RECORD_MAX (17 * 1024) /* bytes of a record, more than any has */
#define TLS_HELLO_MAX  (16 * 1024) /* a client's first message; usual ones have 300 to 2,000 bytes */
#define TLS_HANDSHAKE_MAX                                                                       \
    (128 * 1024) /* all that a side sends before the handshake is done; a chain of certificates \
                  */

/* Memory of a connection: during its handshake, and afterwards between two records. Measured; a test compares. */
#define TLS_HANDSHAKE_MEMORY (64 * 1024)
#define TLS_STREAM_MEMORY    (20 * 1024)

enum tls_status {
    TLS_OK,      /* all bytes are taken; of a handshake: it is done */
    TLS_MORE,    /* handshake: it needs bytes from the other side */
    TLS_END,     /* the other side will send nothing more */
    TLS_FAILED,  /* `err` has the reason */
    TLS_NOT_TLS, /* handshake of a server: the client's first byte is not that of TLS */
};

/* A connection whose handshake has not begun. NULL without memory. Takes little before the other side's first bytes. */
struct tls_stream *tls_stream_create(void);
void tls_stream_destroy(struct tls_stream *stream); /* NULL is fine */

/* Of a server: the client is asked for no certificate, even if the context requires one. Only connections of this kind
 * resume its session, or a client could come in without a needed certificate. Before the first step. */
void tls_stream_ask_no_certificate(struct tls_stream *stream);

/* One step of the handshake, as server or client by the context: takes bytes from in[0..len), as many as the handshake
 * needs; *consumed_out is their number. The rest after TLS_OK is for tls_stream_read(). `context` is needed during the
 * call only; the first step that has enough bytes binds the connection to it. `host`: of a client, the server's name or
 * address; else NULL. A client's first step takes no bytes. */
enum tls_status tls_stream_handshake(struct tls_stream *stream, const struct tls_context *context, const char *host,
                                     const void *in, size_t len, size_t *consumed_out, struct buf *out,
                                     struct errbuf *err);

/* Decrypts in[0..len) to plain[0..size). `size` is at least len + TLS_RECORD_MAX, so that all bytes are taken; *n_out
 * plain bytes have come, also with TLS_END and TLS_FAILED. */
enum tls_status tls_stream_read(struct tls_stream *stream, const void *in, size_t len, void *plain, size_t size,
                                size_t *n_out, struct buf *out, struct errbuf *err);

/* Encrypts len > 0 bytes, into as few records as possible. TLS_OK or TLS_FAILED. */
enum tls_status tls_stream_write(struct tls_stream *stream, const void *plain, size_t len, struct buf *out,
                                 struct errbuf *err);

/* Sends close_notify. Does nothing before the end of the handshake or after a failure. */
void tls_stream_end(struct tls_stream *stream, struct buf *out);

/* Whether the handshake is done. */
bool tls_stream_is_up(const struct tls_stream *stream);

/* Whether this connection resumed an earlier session. */
bool tls_stream_resumed(const struct tls_stream *stream);
