/* memory_reserve: a reserve of memory, so that clients can still connect and delete filters when memory has run out.
 *
 * A caller without memory for a new client frees the reserve and retries. While the reserve is spent, commands that
 * need memory are refused as over maxmemory. It is allocated again as soon as the system has memory. Thread: any. */
#ifndef BLOOMERY_MEMORY_RESERVE_H
#define BLOOMERY_MEMORY_RESERVE_H

#include <stdbool.h>

struct server;

void memory_reserve_keep(struct server *server);  /* at the start and ten times a second */
bool memory_reserve_spend(struct server *server); /* whether a retry makes sense */
bool memory_reserve_is_spent(const struct server *server);

#endif
