/* web_internal: what the files of the thread share. web.c has the loop and the connections, web_request.c answers. */
#ifndef BLOOMERY_WEB_INTERNAL_H
#define BLOOMERY_WEB_INTERNAL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "buf.h"
#include "metrics_choice.h"
#include "scan.h"
#include "tcp_bind.h"
#include "web.h"
#include "web_counts.h"

/* Connections at a time; one more closes the one whose request has been awaited longest. A Prometheus needs one, a
 * browser six. */
#define WEB_CONNECTIONS 64

/* From a connection's begin to the last byte of the reply. A connection has one request, so that nobody can keep one
 * open; a client that sends or reads more slowly is disconnected. */
#define WEB_REQUEST_MS 15000

#define WEB_REQUEST_BYTES ((size_t)32 << 10) /* request line and headers of a connection */
#define WEB_REPLY_BYTES   ((size_t)16 << 20) /* of one reply */
#define WEB_REPLIES_BYTES ((size_t)64 << 20) /* of all replies that clients have not taken yet */
#define WEB_TABLES        4 /* tables of filters that are made at a time; each has 6 MB of rows at most, and names */
#define WEB_LISTENERS     16

struct web_conn {
    struct web_conn *prev, *next; /* in the list of all, the oldest first */
    int fd;
    bool local;     /* loopback */
    bool answering; /* its request has been read */
    bool shut;      /* it is gone soon */
    int64_t deadline_ms;
};

struct web {
    struct server *server;
    struct MHD_Daemon *http;
    struct web_tls *tls; /* NULL: HTTP without TLS */
    pthread_t thread;
    int wake; /* eventfd: written at the stop */
    _Atomic bool stop;
    struct tcp_socket listeners[WEB_LISTENERS];
    size_t nlisteners;
    struct web_conn conns; /* head of the list */
    size_t nconns;
    size_t reply_bytes;           /* of replies under way */
    unsigned ntables;             /* tables of filters that are being made */
    struct scans scans;           /* passes over the registry that requests wait for */
    struct metrics_choice choice; /* filters of the last /metrics */
    struct web_counts counts;
};

/* Callbacks of libmicrohttpd. */
enum MHD_Result web_on_request(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                               const char *version, const char *upload_data, size_t *upload_size, void **request);
void web_on_completed(void *cls, struct MHD_Connection *connection, void **request,
                      enum MHD_RequestTerminationCode code);

#endif
