/* handshakes: the time that a loop spends on TLS handshakes, and its memory for TLS.
 *
 * A step of a handshake can take a millisecond and more (a signature by an RSA key), and a thousand clients may come at
 * once. So a readable connection waits in a list for its step. An iteration of the loop does one step, and further
 * steps only while their total time is below HANDSHAKES_NS. Other clients are served between any two iterations: a
 * crowd of handshakes delays them by one step each time.
 *
 * Thread: the loop's. */
#ifndef BLOOMERY_HANDSHAKES_H
#define BLOOMERY_HANDSHAKES_H

#include <uv.h>

#include "buf.h"
#include "conn_list.h"

#define HANDSHAKES_NS 200000
#define TLS_READ_SIZE (44 * 1024)  /* from a socket at a time: its plain bytes fit into a read of the arena */
#define TLS_SEND_SIZE (256 * 1024) /* plain bytes that are encrypted for one send() */

struct handshakes {
    void (*step)(struct conn_link *link);
    struct conn_link waiting; /* by conn->waiter */
    uv_idle_t idle;           /* active while there are any */
    char *received;           /* TLS_READ_SIZE bytes, as they came from a socket; NULL before the first connection */
    struct buf sent;          /* records on their way; empty between two connections */
};

/* step() does one step for the connection of the link, in an iteration of the loop. */
void handshakes_init(struct handshakes *handshakes, void (*step)(struct conn_link *link));
void handshakes_deinit(struct handshakes *handshakes);
void handshakes_open(struct handshakes *handshakes, uv_loop_t *loop); /* the handle */
void handshakes_close(struct handshakes *handshakes);

/* Makes the memory, before the first connection. False without memory. */
bool handshakes_prepare(struct handshakes *handshakes);

/* Gives a readable connection a step, once. Not after handshakes_close(). */
void handshakes_give(struct handshakes *handshakes, struct conn_link *link);

#endif
