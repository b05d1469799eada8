/* Shared between conn.c (socket, replies, waiting), conn_input.c, conn_open.c and push.c only. Thread: the owning
 * worker's. */
#ifndef BLOOMERY_CONN_INTERNAL_H
#define BLOOMERY_CONN_INTERNAL_H

#include "conn.h"

/* Whether the connection's next command may be run now. */
bool conn_may_run(const struct conn *conn);

/* Polls for what the connection can make use of now; gives it a turn if there is kept input that may run. */
void conn_update(struct conn *conn);

/* The socket is readable. May close the connection. */
void conn_read(struct conn *conn);

/* Frees what is kept of the input. */
void conn_drop_input(struct conn *conn);

#endif
