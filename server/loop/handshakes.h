/* handshakes: the time that a worker spends on TLS handshakes, and its memory for TLS.
 *
 * A step of a handshake can take a millisecond and more (a signature by an RSA key), and a thousand clients may come at
 * once. So a readable connection waits in a list for its step, and an iteration of the loop does one step, and further
 * ones only while all of them together have taken less than HANDSHAKES_NS. Other clients are served between any two
 * iterations: a crowd of handshakes delays them by one step each time.
 *
 * Thread: the worker's. */
#ifndef BLOOMERY_HANDSHAKES_H
#define BLOOMERY_HANDSHAKES_H

#include <uv.h>

#include "buf.h"
#include "conn_list.h"

#define HANDSHAKES_NS 200000
#define TLS_READ_SIZE (44 * 1024)  /* from a socket at a time: what comes of it fits into a read of the arena */
#define TLS_SEND_SIZE (256 * 1024) /* plain bytes that are encrypted for one send() */

struct conn;
struct worker;

struct handshakes {
    struct conn_link waiting; /* by conn->waiter */
    uv_idle_t idle;           /* active while there are any */
    char *received;           /* TLS_READ_SIZE bytes, as they came from a socket; NULL before the first connection */
    struct buf sent;          /* records on their way; empty between two connections */
};

void handshakes_init(struct worker *worker);
void handshakes_deinit(struct worker *worker);
void handshakes_open(struct worker *worker); /* the handle, once there is a loop */
void handshakes_close(struct worker *worker);

/* Makes the memory, before the first connection. False without memory. */
bool handshakes_prepare(struct worker *worker);

/* Gives a readable connection a step, once: see conn_tls_step(). */
void handshakes_give(struct worker *worker, struct conn *conn);

#endif
