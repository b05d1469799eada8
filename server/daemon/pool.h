/* pool: libuv's threads, which run deferred commands (job.h) and other work of the loops.
 *
 * Thread: main. */
#ifndef BLOOMERY_POOL_H
#define BLOOMERY_POOL_H

#include "errbuf.h"

/* Starts all threads of the pool, each under its own name. libuv would start them at the first use, and abort if it
 * could not. To be called before any work is queued. 0, or -errno with the reason in `err`. */
int pool_start(struct errbuf *err);

#endif
