/* huge_pages: the thread that moves large filters in use from small to huge pages of memory, so that no worker waits
 * while one is zeroed (bloom_pool_settle()). Thread: any. */
#ifndef BLOOMERY_HUGE_PAGES_H
#define BLOOMERY_HUGE_PAGES_H

#include "bloom_filter.h"

struct huge_pages;

/* Starts the thread. 0, -ENOMEM or another -errno. */
int huge_pages_create(struct huge_pages **huge_pages_out, struct bloom_pool *pool);

/* Ends it. NULL is fine. */
void huge_pages_destroy(struct huge_pages *huge_pages);

#endif
