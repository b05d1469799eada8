/* api: the answers of /api/, JSON that the status page reads. They are the page's own and may change with it.
 *
 * Thread: the status page's, an online RCU reader. */
#ifndef BLOOMERY_API_H
#define BLOOMERY_API_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

struct acl_user;
struct history;
struct server;

void api_overview(struct server *server, const struct history *history, struct buf *out);
void api_slowlog(struct server *server, struct buf *out);
void api_clients(struct server *server, struct buf *out);
void api_acl_log(struct server *server, struct buf *out);

enum api_result { API_DONE, API_NO_FILTER, API_DENIED };

/* One filter with its layers, for a user who may run BF.INFO on it. `key` is its name in hexadecimal digits. */
enum api_result api_filter(struct server *server, const struct acl_user *user, struct slice key, struct buf *out);

#endif
