/* routes: the pages there are, and the answers of /api/. Thread: the status page's, an online RCU reader. */
#pragma once

#include "web_internal.h"

struct page_file {    /* a file of page/, embedded by the build */
    const char *type; /* of the content */
    const unsigned char *data;
    size_t len;
};

/* Made by embed.cmake. */
extern const struct page_file page_index, page_style, page_script, page_icon;

#define ROUTE_NEEDS 2

struct route {
    const char *path;
    const char *needs[ROUTE_NEEDS]; /* the commands, as "name" or "name|subname", that a user must be allowed to run to
                                       see it; none: a public page, without a password */
    void (*answer)(struct web_request *request);
    union { /* of the routes that have it */
        const struct page_file *file;
        void (*write)(const struct web *web, struct buf *out);
    };
};

/* NULL: there is no such page. */
const struct route *route_find(const struct http_head *head);

/* ---- api.c: JSON that the status page reads. It is the page's own and may change with it ---- */

void api_overview(const struct web *web, struct buf *out);

/* The newest entries as replies of SLOWLOG GET and ACL LOG, in RESP3; lines of CLIENT LIST. */
void api_slowlog(const struct web *web, struct buf *out);
void api_acl_log(const struct web *web, struct buf *out);
void api_clients(const struct web *web, struct buf *out);

enum api_result { API_DONE, API_NO_FILTER, API_DENIED };

/* One filter with its layers, for a user who may run BF.INFO on it. `key` is its name in hexadecimal digits. */
enum api_result api_filter(struct server *server, const struct acl_user *user, struct slice key, struct buf *out);
