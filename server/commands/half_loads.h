/* half_loads: filters that BF.LOADCHUNK is loading, by the name they are to have.
 *
 * A load belongs to its name, not to a connection: clients send the chunks through pools of connections. The filter is
 * a prepared entry (registry_prepare()): nobody sees it, its memory counts against maxmemory. Whatever goes wrong with
 * a chunk ends the load, and so does a pause of `bf-load-timeout`; nothing else changes then. At most HALF_LOADS_MAX at
 * a time.
 *
 * Thread: any; one chunk of a load at a time, a second one that comes meanwhile is out of order. */
#ifndef BLOOMERY_HALF_LOADS_H
#define BLOOMERY_HALF_LOADS_H

#include <stddef.h>
#include <stdint.h>

#include "dump.h"
#include "registry.h"

#define HALF_LOADS_MAX 64

struct half_load {
    struct half_load *next;
    struct dump_load dump;
    struct entry *entry;   /* NULL until it has been made */
    int64_t last_ms;       /* monotonic time of the last good chunk */
    bool busy;             /* a thread works on a chunk of it */
    bool spoilt;           /* another chunk came while it did */
    size_t name_len;
    char name[];
};

struct half_loads;

int half_loads_create(struct half_loads **loads_out); /* 0 or -ENOMEM */

/* Drops all of them. NULL is fine. */
void half_loads_destroy(struct half_loads *loads, struct registry *registry);

enum half_loads_status {
    HALF_LOADS_OK = 0,
    HALF_LOADS_NONE = 1,  /* no load under this name */
    HALF_LOADS_BUSY = 2,  /* a chunk of it is being worked on; that load is spoilt now */
    HALF_LOADS_FULL = 3,  /* HALF_LOADS_MAX are under way */
};

/* Finds the load of that name, for one chunk: the caller has it alone until it keeps or drops it. HALF_LOADS_OK, _NONE
 * or _BUSY. */
int half_loads_take(struct half_loads *loads, struct slice name, struct half_load **load_out);

/* A new one, taken, without an entry. HALF_LOADS_OK, _BUSY (there is one of this name), _FULL or -ENOMEM. */
int half_loads_add(struct half_loads *loads, struct slice name, struct half_load **load_out);

/* Gives a taken one back to wait for its next chunk. false: it was spoilt meanwhile; it is still the caller's, to drop.
 */
bool half_loads_keep(struct half_loads *loads, struct half_load *load, int64_t now_ms);

/* Takes it off the list and frees it. Its entry is the caller's, who publishes it if it is complete and was not spoilt,
 * and abandons it otherwise. Returns whether it was spoilt. */
bool half_loads_drop(struct half_loads *loads, struct half_load *load);

/* Drops those that have waited since before `deadline_ms`. Cheap when there are none. */
void half_loads_expire(struct half_loads *loads, struct registry *registry, int64_t deadline_ms);

size_t half_loads_count(struct half_loads *loads); /* 0 for NULL */

#endif
