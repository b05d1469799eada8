/* routes: the pages there are. Thread: the status page's. */
#ifndef BLOOMERY_ROUTES_H
#define BLOOMERY_ROUTES_H

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
        void (*write)(struct server *server, struct buf *out);
    };
};

/* NULL: there is no such page. */
const struct route *route_find(const struct http_head *head);

#endif
