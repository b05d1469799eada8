/* routes: the pages there are. Thread: the status page's. */
#ifndef BLOOMERY_ROUTES_H
#define BLOOMERY_ROUTES_H

#include "web_request.h"

struct page_file {    /* a file of page/, embedded by the build */
    const char *type; /* of the content */
    const unsigned char *data;
    size_t len;
};

/* Made by embed.cmake. */
extern const struct page_file page_index, page_style, page_script, page_icon;

struct route {
    const char *path;
    bool open; /* for anybody, without the password */
    void (*answer)(struct web_request *request, const struct route *route);
    const struct page_file *file;
};

/* NULL: there is no such page. */
const struct route *route_find(const char *path);

#endif
