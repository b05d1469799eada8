/* huge_pages: the thread that gives new filters of moderate size huge pages of memory before they are used, and moves large
 * ones in use from small to huge pages, so that no worker waits while one is zeroed (bloom_pool_settle()). Thread: any. */
#ifndef BLOOMERY_HUGE_PAGES_H
#define BLOOMERY_HUGE_PAGES_H

#include "bloom_filter.h"

struct huge_pages;

/* Starts the thread. 0, -ENOMEM or another -errno. */
int huge_pages_create(struct huge_pages **huge_pages_out, struct bloom_pool *pool);

/* Ends it. NULL is fine. */
void huge_pages_destroy(struct huge_pages *huge_pages);

#endif
