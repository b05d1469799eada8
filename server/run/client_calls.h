/* client_calls: the beginning and the end of a client, as its connection asks for them (io.h).
 *
 * Thread: the loop's. */
#ifndef BLOOMERY_CLIENT_CALLS_H
#define BLOOMERY_CLIENT_CALLS_H

#include <stdbool.h>
#include <stddef.h>

struct conn;

/* The functions of struct io_calls. */
const char *client_open(struct conn *conn);
size_t client_memory(const struct conn *conn);
bool client_unsubscribe(struct conn *conn);
void client_close(struct conn *conn);

#endif
