/* conn: one client connection: its socket, its input as far as it is incomplete, its replies as far as they have not left.
 *
 * Lifetime: conn_open() to conn_close(); the memory is freed in the last close callback, after a deferred command of it
 * has come back. Thread: the owning worker's. */
#ifndef BLOOMERY_CONN_H
#define BLOOMERY_CONN_H

#include <stdbool.h>
#include <uv.h>

#include "buf.h"
#include "reply.h"
#include "resp_parse.h"
#include "session.h"

struct worker;

struct conn {
    uv_poll_t poll;
    struct worker *worker;
    struct conn *prev, *next;      /* of the worker */
    struct conn *next_with_replies;
    int fd;
    int events;                    /* what is polled for now */
    bool in_reply_list;
    bool closing;
    bool waiting;                  /* for a deferred command; nothing is read or run meanwhile */
    bool held;                     /* commands have arrived that could not be run yet */
    bool eof;                      /* the client has sent its last byte */

    struct resp_parser parser;
    char *in;                      /* input from the first byte of an incomplete command on; NULL when there is none */
    size_t in_len;
    size_t in_size;

    struct buf out;
    struct reply reply;            /* writes into `out` */
    size_t out_pause;              /* no commands are read while more reply bytes than this wait; see conn_unstick() */
    size_t out_seen;               /* reply bytes that waited at the last tick */
    struct session session;
};

/* Takes a connected socket over. 0 or -errno (the socket is closed then). */
int conn_open(struct worker *worker, int fd);

/* Ends the connection. Idempotent. */
void conn_close(struct conn *conn);

/* To be called before something is written into conn->out: lends it a buffer and makes sure that it is sent at the end of
 * the iteration. */
void conn_will_reply(struct conn *conn);

/* Sends what there is. May close the connection. */
void conn_flush(struct conn *conn);

/* A deferred command has come back (closing: nobody wants its reply any more). */
void conn_deferred_done(struct conn *conn, const struct buf *reply);

/* To be called ten times a second. A client that writes a whole pipeline before it reads a reply (most libraries do) would
 * wait for ever for a server that does not read on before its replies are taken. So if it has taken nothing since the last
 * tick it is allowed twice as many waiting bytes, up to reply-buffer-limit. */
void conn_unstick(struct conn *conn);

/* Runs the input that was kept back while a deferred command was away or the client did not take its replies. */
void conn_resume(struct conn *conn);

#endif
