/* filter_page: the pages of one filter for programs: its bits, and answers about items (docs/LOCAL.md).
 *
 *   GET /filters/NAME[?db=N]                    the bits (filter_copy.h); If-None-Match, Range and If-Range count
 *   GET /filters/NAME/items?i=ITEM&i=...[&db=N] {"present":[true,false,...]}
 *
 * Thread: the web thread. */
#ifndef BLOOMERY_FILTER_PAGE_H
#define BLOOMERY_FILTER_PAGE_H

#include "web_internal.h"

/* The paths of their routes, which represent any name. */
#define FILTERS      "/filters/"
#define FILTER_ITEMS "/filters//items"

/* FILTERS or FILTER_ITEMS if the request is for one of these; otherwise NULL. A path that ends with /items is of a
 * filter of this name where no item is asked for. */
const char *filter_page_path(const struct http_head *head);

void filter_page_copy(struct web_request *request);
void filter_page_items(struct web_request *request);

#endif
