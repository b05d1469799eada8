/* requests: from the bytes of a connection to its commands: parses them and has them dispatched.
 *
 * Thread: the loop's. */
#ifndef BLOOMERY_REQUESTS_H
#define BLOOMERY_REQUESTS_H

#include <stddef.h>

struct conn;

/* io_calls.run. */
size_t requests_run(struct conn *conn, char *data, size_t len);

#endif
