/* half_loads: filters that BF.LOADCHUNK is loading, by their future names.
 *
 * A load belongs to its name, not to a connection: clients send the chunks through pools of connections. The filter is
 * a prepared entry (registry_prepare()): it is not published, and its memory counts against maxmemory. A pause of
 * `bf-load-timeout` ends the load, and a wrong chunk of a dump of ours does; nothing else changes then. At most
 * HALF_LOADS_MAX at a time.
 *
 * Thread: any; one chunk of a load at a time. Of a dump of ours a second one that comes meanwhile is out of order; of
 * RedisBloom's it waits. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "bf_chunks.h"
#include "registry.h"

#define HALF_LOADS_MAX 64

struct half_load {
    struct half_load *next;
    struct bf_load *load;
    struct entry *entry; /* NULL until the host has made it after the header */
    int64_t last_ms;     /* monotonic time of the last good chunk */
    bool held;           /* bloom_filter_hold() */
    bool busy;           /* a thread works on a chunk of it */
    bool spoilt;         /* another chunk came meanwhile */
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
    HALF_LOADS_BUSY = 2,  /* a thread works on a chunk of it; the load is now spoilt */
    HALF_LOADS_FULL = 3,  /* HALF_LOADS_MAX are running */
    HALF_LOADS_LARGE = 4, /* not enough memory for this one and the running ones */
};

/* Takes the load of that name for one chunk: it is the caller's alone until half_loads_keep() or _drop().
 * HALF_LOADS_OK, _NONE or _BUSY. May wait, offline, until another chunk of it has been taken. */
int half_loads_take(struct half_loads *loads, struct slice name, struct half_load **load_out);

/* Adds and takes a load, whose filter the caller then makes. It passes in any case, also when it is refused:
 * HALF_LOADS_BUSY (the name has a load), _FULL, _LARGE or -ENOMEM. A header costs its sender nothing, so all loads
 * together may announce at most the machine's memory. */
int half_loads_add(struct half_loads *loads, struct slice name, struct bf_load *load, struct half_load **load_out);

/* Returns a taken load, which waits for its next chunk. False: it was spoilt meanwhile, and the caller drops it. */
bool half_loads_keep(struct half_loads *loads, struct half_load *load, int64_t now_ms);

/* Removes a load and frees it. The caller owns its entry, and publishes it if it is complete and not spoilt, or
 * abandons it. Returns whether it was spoilt. */
bool half_loads_drop(struct half_loads *loads, struct half_load *load);

/* Drops loads whose last chunk came before `deadline_ms`. Cheap when there are none. */
void half_loads_expire(struct half_loads *loads, struct registry *registry, int64_t deadline_ms);

size_t half_loads_count(struct half_loads *loads); /* 0 for NULL */
