/* conn_tls: TLS between a connection's socket and its input and output. The rest of conn_*.c sees plain bytes and a
 * socket that takes and gives them; a connection without TLS has conn->tls == NULL and none of this.
 *
 * A connection waits (CONN_WAITS_HANDSHAKE) until its handshake is done; meanwhile it is read from by conn_tls_step()
 * only. Replies of an iteration become as few records as possible, which leave in one send(). Records that the kernel
 * does not take are kept; until they have left, further replies stay plain.
 *
 * Thread: the loop's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "conn.h"

/* Makes the connection one with TLS, whose handshake has not begun. 0 or -ENOMEM. */
int conn_tls_begin(struct conn *conn) __attribute__((warn_unused_result));

/* One step of the handshake, on the socket's input. May close the connection. */
void conn_tls_step(struct conn *conn);

/* As recv(), for plain bytes. `size` is more than TLS_RECORD_MAX. */
ssize_t conn_tls_receive(struct conn *conn, void *to, size_t size);

/* Sends replies, and records that were kept, until the kernel takes no more. During the handshake: only the records.
 * False: the connection is broken. */
bool conn_tls_send(struct conn *conn);

/* Bytes of records that wait for the kernel. */
size_t conn_tls_unsent(const struct conn *conn);

/* After each change of the connection: looks whether the client has ended its side. `may_run`: conn_may_run(). */
void conn_tls_look(struct conn *conn, bool may_run);

/* Bytes of memory: those that an idle connection takes, and, returned, others. */
size_t conn_tls_memory(const struct conn *conn, size_t *idle_out);

/* Sends the client the end of TLS, if the kernel takes it at once, and frees everything. */
void conn_tls_end(struct conn *conn);

/* Called ten times a second: closes a client whose handshake takes too long. True if it was closed. */
bool conn_tls_over_time(struct conn *conn);

/* A client without TLS has sent a handshake of TLS: logs that and closes it. */
void conn_tls_unexpected(struct conn *conn);

/* Whether the first bytes of a client are those of TLS. */
static inline bool conn_tls_is_hello(const char *bytes, size_t len)
{
    return len >= 3 && bytes[0] == 0x16 && bytes[1] == 3;
}
