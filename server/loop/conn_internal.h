/* Shared between conn.c (socket, replies, waiting), conn_input.c, conn_open.c and push.c only. Thread: the owning
 * worker's. */
#ifndef BLOOMERY_CONN_INTERNAL_H
#define BLOOMERY_CONN_INTERNAL_H

#include "conn.h"

/* Whether the connection's next command may be run now. */
bool conn_may_run(const struct conn *conn);

/* Polls for the events that the connection can use now; gives it a turn if kept input may run. */
void conn_update(struct conn *conn);

/* The socket is readable. May close the connection. */
void conn_read(struct conn *conn);

/* The client has sent its last byte. */
void conn_end_of_input(struct conn *conn);

/* Ends some subscriptions of a closing connection; its next turns end the others. */
void conn_leave(struct conn *conn);

/* Frees the kept input. */
void conn_drop_input(struct conn *conn);

#endif
