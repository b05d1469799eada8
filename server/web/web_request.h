/* web_request: one request, from its arrival to its reply.
 *
 * A route answers at once by web_reply*(), or waits for a pass over the registry (web_wait()) and answers then.
 *
 * Thread: the status page's. */
#ifndef BLOOMERY_WEB_REQUEST_H
#define BLOOMERY_WEB_REQUEST_H

#include "web_internal.h"

struct web_request {
    struct web *web;
    struct web_conn *conn;
    struct MHD_Connection *connection;
    bool begun;    /* its route has been called */
    bool answered; /* the fields below hold the reply */
    unsigned status;
    const char *type; /* of the content; constant */
    struct buf body;
    size_t charged; /* bytes of the body that count in web->reply_bytes */
    struct scan scan;
    void (*visit)(void *query, struct slice name, struct entry *entry);
    void (*finish)(struct web_request *request, uint64_t busy_ns);
    void *query; /* the route's own, during the scan; freed by it */
};

/* The reply is what is in request->body. */
void web_reply(struct web_request *request, unsigned status, const char *type);
void web_reply_text(struct web_request *request, unsigned status, const char *text);

/* The request waits for a scan: visit() is called for each name, then `finish` to answer. */
void web_wait(struct web_request *request, void (*visit)(void *query, struct slice name, struct entry *entry),
              void (*finish)(struct web_request *request, uint64_t busy_ns));

/* An argument of the query; false if it is not there. Its bytes belong to the request. */
bool web_argument(struct web_request *request, const char *name, struct slice *value_out);

#endif
