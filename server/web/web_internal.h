/* web_internal: the common parts of the files of the web thread: web.c has the loop, web_conn.c the bytes of a
 * connection, web_request.c the way from a request to its reply.
 *
 * A connection has one request, so both are one object. A route answers at once by web_reply*(), or waits for a pass
 * over the registry (web_scan()) and answers then.
 *
 * Thread: the web thread. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "buf.h"
#include "history.h"
#include "http_head.h"
#include "metrics.h"
#include "tcp_bind.h"
#include "tls_stream.h"
#include "web.h"

/* Connections at a time; one more closes the one whose request has been awaited longest. A Prometheus needs one, a
 * browser six. The slots beyond WEB_ANSWERS are for the probes of liveness and readiness: when so many other requests
 * are being answered, the next one is refused. */
#define WEB_CONNECTIONS 80
#define WEB_ANSWERS     64

/* From a connection's begin to the last byte of the reply; a pass over the registry, and each piece of a filter's copy,
 * begins it again. A client that sends or reads more slowly is disconnected. */
#define WEB_REQUEST_MS 15000
#define WEB_DRAIN_MS   1000 /* from there to the client's end of the connection */

#define WEB_REQUEST_BYTES ((size_t)32 << 10) /* request line and fields of a request */
#define WEB_REPLY_BYTES   ((size_t)16 << 20) /* of one reply */
#define WEB_REPLIES_BYTES ((size_t)64 << 20) /* of all replies that clients have not taken yet */
#define WEB_RECORD_BYTES  ((size_t)64 << 10) /* of a reply that are encrypted at a time */
#define WEB_TABLES        4 /* tables of filters that are made at a time; each has 6 MB of rows at most, and names */
#define WEB_LISTENERS     16

enum web_stage {
    WEB_READS,  /* its request, after the handshake */
    WEB_SCANS,  /* it waits for a pass over the registry; the socket is left alone */
    WEB_WRITES, /* its reply */
    WEB_DRAINS, /* the reply is sent. Input is dropped until the client's end: to close before could destroy the reply
                 */
    WEB_CLOSES, /* nothing more can be done */
};

struct filter_copy;
struct route;
struct web_request;

/* A pass over the registry. */
struct web_pass {
    bool in_sstables; /* the data directory's names have been visited; those of SSTables come next */
    uint64_t cursor, busy_ns;
    void (*visit)(void *query, struct slice key, struct entry *entry);
    void (*finish)(struct web_request *request, uint64_t busy_ns);
    void *query; /* the route's own; freed by its finish() */
};

struct web_request {
    struct web *web;
    enum web_stage stage;
    int fd;
    bool local; /* from a loopback address */
    int64_t deadline_ms;
    struct tls_stream *tls; /* NULL: HTTP without TLS */
    struct buf records;     /* of TLS, for the network */

    struct buf in; /* the bytes of the head so far */
    struct http_head head;
    const struct route *route;
    struct acl_user *user; /* the request's user, with a reference; NULL for a public page */

    struct buf reply_head, body;
    struct buf more_fields;   /* of the reply's head */
    struct filter_copy *copy; /* follows the body; NULL: nothing does */
    size_t charged;           /* bytes of the body that count in web->reply_bytes */

    struct web_pass pass;
};

struct web {
    struct server *server;
    bool tls;
    pthread_t thread;
    int wake; /* eventfd: written at the stop */
    _Atomic bool stop;
    struct tcp_socket listeners[WEB_LISTENERS];
    size_t nlisteners;
    struct web_request *requests[WEB_CONNECTIONS]; /* the oldest first */
    size_t nrequests;
    size_t reply_bytes;           /* of replies under way */
    unsigned ntables;             /* tables of filters that are being made */
    size_t scan_turn;             /* counts the slices of passes over the registry */
    struct metrics_choice choice; /* filters of the last /metrics */
    struct web_counts counts;
    struct history *history;
    char received[TLS_RECORD_MAX]; /* from the network, during a call of web_conn_step() */
    char plain[2 * TLS_RECORD_MAX];
};

/* ---- web_conn.c ---- */

/* Takes the descriptor over; NULL without memory, with the descriptor closed. */
struct web_request *web_conn_open(struct web *web, int fd, bool local);
void web_conn_free(struct web_request *request);

/* The events of poll() that it waits for; 0: none, it is left alone. */
short web_conn_events(const struct web_request *request);

/* Receives or sends as much as is possible now. */
void web_conn_step(struct web_request *request);

/* ---- web_request.c ---- */

/* The head, in->data[0..len), is complete: answers it, or begins to. */
void web_answer(struct web_request *request, size_t len);

/* Replies with request->body. `type` is constant. */
void web_reply(struct web_request *request, const char *status, const char *type);
void web_reply_text(struct web_request *request, const char *status, const char *text);

/* The request waits for a pass over all names, those of SSTables included (all_names.h), in slices, so that one over
 * millions delays neither other requests nor the freeing of removed filters. visit() is called for each name, with
 * request->pass.query, then finish() to answer; `busy_ns` is how long the slices took. */
void web_scan(struct web_request *request, void (*visit)(void *query, struct slice key, struct entry *entry),
              void (*finish)(struct web_request *request, uint64_t busy_ns));

/* Does one slice for the request whose turn it is. False: none waits. */
bool web_scan_step(struct web *web);
