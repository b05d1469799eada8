/* api: the answers of /api/, JSON that the status page reads. They are the page's own and may change with it.
 *
 * Thread: the status page's, an online RCU reader. */
#ifndef BLOOMERY_API_H
#define BLOOMERY_API_H

#include <stdbool.h>

#include "buf.h"
#include "resp_parse.h"

struct server;

void api_overview(struct server *server, struct buf *out);
void api_slowlog(struct server *server, struct buf *out);
void api_clients(struct server *server, struct buf *out);

/* One filter with its layers. `key` is its name in hexadecimal digits. False: there is no such filter. */
bool api_filter(struct server *server, struct slice key, struct buf *out);

#endif
