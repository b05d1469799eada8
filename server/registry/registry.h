/* registry: the server's filters by name, shared by all workers, and their expiry.
 *
 * Look-ups take no lock and write nothing; the caller is inside an RCU read section (rcu.h), and a found entry stays
 * alive until that ends. Changes (create, delete, rename, clear) take one mutex and are atomic for readers: during a
 * rename one of the two names always exists, and one store replaces a filter.
 *
 * An index keeps the names in order, for patterns (name_index.h).
 *
 * Structure: an open-addressing table per shard (4096 shards by the top bits of the name's hash) whose slots are 8
 * bytes: a pointer and a 19-bit tag. It is not liburcu's hash table, for three reasons. A slot's address follows from
 * the hash, so the cache misses of pipelined look-ups overlap (registry_prefetch). It takes 10 to 13 bytes per filter
 * instead of 32 and more. And a sweep in the order of hashes gives SCAN a cursor that survives resizing and never
 * returns a name twice.
 *
 * An expired filter is gone for all threads at its time: look-ups compare its time with the clock, and a change that
 * finds it removes it first. Once found expired it stays gone, even if the clock is set back. The expirer's thread
 * frees its memory by registry_expire_due(). Filters without a time to live pay nothing for this.
 *
 * Thread rule: look-ups and scans: any thread in an RCU read section. Changes: any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "entry.h"
#include "errbuf.h"
#include "rcu.h"
#include "slice.h"

#define REGISTRY_MAX_NAME 65535 /* bytes of a filter's name; longer ones are refused with an error */

#define REGISTRY_NAME_BYTES 16 /* that a name takes in the index of names */

struct registry;

int registry_create(struct registry **registry_out, struct bloom_pool *pool,
                    struct reclaimer *reclaimer); /* 0, -ENOMEM */
void registry_destroy(struct registry *registry); /* NULL is fine; no reader may be left */

struct bloom_pool *registry_pool(const struct registry *registry);

/* ---- look-up, in three steps so that many can overlap ---- */

uint64_t registry_hash(const struct registry *registry, struct slice name);
void registry_prefetch(const struct registry *registry, uint64_t hash);       /* the slot */
void registry_prefetch_entry(const struct registry *registry, uint64_t hash); /* the entry in the slot */
struct entry *registry_find(const struct registry *registry, uint64_t hash,
                            struct slice name); /* NULL: no such filter */

static inline struct entry *registry_lookup(const struct registry *registry, struct slice name)
{
    return registry_find(registry, registry_hash(registry, name), name);
}

/* The same, and its expiry: Unix time in ms, 0: never. */
struct entry *registry_find_expiry(const struct registry *registry, struct slice name, int64_t *expires_ms_out);

/* Keeps the filter of that name alive beyond RCU until entry_unpin(), for long work, even if it is deleted. NULL: no
 * such filter. Takes the mutex. Thread: any, online. */
struct entry *registry_pin(struct registry *registry, struct slice name);

size_t registry_count(const struct registry *registry); /* filters, with quarantined ones and expired ones that are not
                                                         * removed yet */
size_t registry_quarantined(const struct registry *registry);
/* Memory in bytes, for any thread, without a walk: of the entries with their names, headers and inline words (including
 * prepared and unfreed ones) and of the index of names; of the table of names; of the heap of times. */
uint64_t registry_slab_bytes(const struct registry *registry);
uint64_t registry_index_bytes(const struct registry *registry);
uint64_t registry_expiry_bytes(const struct registry *registry);

/* ---- changes ---- */

enum registry_status {
    REGISTRY_OK = 0,
    REGISTRY_EXISTS = 1, /* the name is taken; entry_out is its holder */
    REGISTRY_NOT_FOUND = 2,
    REGISTRY_REFUSED = 3,   /* the name is too long; the errbuf has the text */
    REGISTRY_LIMIT = 4,     /* a limit of the pool's memory; the errbuf names it and the needed size */
    REGISTRY_CHANGED = 5,   /* the name has another filter than the expected one, or none */
    REGISTRY_UNCHANGED = 6, /* a condition was not met; nothing has changed */
};

/* Creates an empty filter of the class. REGISTRY_OK, _EXISTS, _REFUSED, _LIMIT or -ENOMEM. `id` 0 takes the next. */
int registry_create_filter(struct registry *registry, struct slice name, uint64_t id, struct bloom_class *class,
                           struct entry **entry_out, struct errbuf *err);

/* The same for one whose bits are not in memory, from the first moment on: the caller drops its words. Loading. */
int registry_create_evicted(struct registry *registry, struct slice name, uint64_t id, struct bloom_class *class,
                            struct entry **entry_out, struct errbuf *err);

/* Creates an empty filter of the class that is not yet published: no look-up finds it and no walk yields it. It has its
 * id, and its memory counts. `instead`: it replaces a filter that is no smaller and is freed immediately, so no limit
 * applies. The caller fills it, off the loops if that takes long, and then publishes or abandons it. REGISTRY_OK,
 * _REFUSED, _LIMIT or -ENOMEM. */
int registry_prepare(struct registry *registry, struct slice name, struct bloom_class *class, bool instead,
                     struct entry **entry_out, struct errbuf *err);

struct registry_publication {
    bool only_new; /* REGISTRY_EXISTS if the name is taken; otherwise its present filter is replaced and deleted */
    bool empty;    /* it has no bits set: the effect is REGISTRY_CREATED, not _LOADED */
    uint64_t expected_id; /* REGISTRY_CHANGED unless this filter has the name; 0: any */
    int64_t expires_ms;   /* Unix time; 0: never */
    bool keep_expiry;     /* keep the expiry of the replaced filter instead */
    const void *payload;  /* passed on to the effect */
    const char *event;    /* likewise: its name for keyspace notifications ("copy_to"), a constant; NULL: by its kind */
};

/* Publishes a prepared filter under its name, atomically. REGISTRY_OK: the registry owns it. Otherwise (_EXISTS,
 * _CHANGED, -ENOMEM) nothing has changed, and the caller still owns it, to publish it otherwise or to abandon it. */
int registry_publish(struct registry *registry, struct entry *entry, const struct registry_publication *how);

/* Frees a prepared filter, off the loops, once no pin is left. */
void registry_abandon(struct registry *registry, struct entry *entry);

/* Publishes the placeholder of a filter that could not be loaded. REGISTRY_OK, _EXISTS or -ENOMEM. */
int registry_create_quarantined(struct registry *registry, struct slice name, uint64_t id, const char *reason);

/* Publishes the placeholder instead of the name's filter, if any, atomically, with a new id. REGISTRY_OK or -ENOMEM. */
int registry_publish_quarantined(struct registry *registry, struct slice name, const char *reason, uint64_t *id_out);

/* Puts the placeholder of a filter whose bits cannot be read again instead of its entry, which the caller has pinned,
 * with its id and its expiry. No effect is told. `note` is called under the registry's mutex, by the rules for
 * listeners of effects, before anybody can see it. REGISTRY_OK, _CHANGED (this entry does not have the name) or
 * -ENOMEM. */
int registry_quarantine(struct registry *registry, struct slice name, const struct entry *entry, const char *reason,
                        void (*note)(void *ctx, uint64_t id), void *ctx);

/* Removes the filter; its memory is freed later, off the loops. REGISTRY_OK or _NOT_FOUND. */
int registry_delete(struct registry *registry, struct slice name);

/* Moves the filter to another name, with its expiry, and replaces a filter of that name unless `only_new`. REGISTRY_OK,
 * _NOT_FOUND, _EXISTS (only_new), _REFUSED (name too long), _LIMIT (no room for a longer name) or -ENOMEM. Renaming to
 * the same name is OK and does nothing. */
int registry_rename(struct registry *registry, struct slice from, struct slice to, bool only_new, struct errbuf *err);

/* Removes all filters atomically; their memory is freed later, off the loops. 0 or -ENOMEM with nothing removed. Takes
 * about 0.1 us per filter: not on a loop. */
int registry_clear(struct registry *registry, size_t *removed_out);

/* ---- expiry ---- */

#define REGISTRY_EXPIRE_NX    1u  /* only if it has no expiry */
#define REGISTRY_EXPIRE_XX    2u  /* only if it has an expiry */
#define REGISTRY_EXPIRE_GT    4u  /* only if the new time is later; "never" is the latest */
#define REGISTRY_EXPIRE_LT    8u  /* only if the new time is earlier */
#define REGISTRY_EXPIRE_LATER 16u /* no condition: the time was in the future when the client asked */

/* Sets the filter's expiry (Unix time in ms), if all `conditions` are met. A time in the past deletes the filter, or
 * expires it at once with _LATER. REGISTRY_OK, _NOT_FOUND, _UNCHANGED, _LIMIT (of memory) or -ENOMEM. */
int registry_expire(struct registry *registry, struct slice name, int64_t expires_ms, unsigned conditions);

/* Removes the filter's expiry. REGISTRY_OK, _NOT_FOUND or _UNCHANGED (it had none). */
int registry_persist(struct registry *registry, struct slice name);

/* Removes expired filters, earliest first, until none is left, `max` are removed or about 20 us have passed, because it
 * holds the mutex. Returns their number; next_ms_out (may be NULL) receives the time of the next expiry, or 0. */
size_t registry_expire_due(struct registry *registry, size_t max, int64_t *next_ms_out);

/* Waits until a filter is due or an hour has passed; false: registry_expire_stop(). Thread: the expirer, offline. */
bool registry_expire_wait(struct registry *registry);
void registry_expire_stop(struct registry *registry);

/* Starts the thread that removes expired filters, so that their memory is freed soon; for clients they are gone
 * already. It sleeps until the next filter is due. When many are due it removes a few at a time and pauses in between,
 * so that other threads get the mutex. After each step it calls `pace` (may be NULL) without locks; `pace` may sleep,
 * so that the consumers of its events keep up. 0, -ENOMEM or another -errno. */
struct expirer;
int expirer_create(struct expirer **expirer_out, struct registry *registry, void (*pace)(void *ctx), void *ctx);
void expirer_destroy(struct expirer *expirer); /* NULL is fine */

/* Between the two calls no filter expires: the registry's clock stands still. One holder at a time. */
void registry_hold_clock(struct registry *registry);
void registry_release_clock(struct registry *registry);

struct registry_expiry {
    size_t count;       /* filters with an expiry */
    int64_t avg_ttl_ms; /* their mean time to live; 0 if there are none */
};
void registry_expiry(struct registry *registry, struct registry_expiry *expiry_out);

/* For tests: sets a clock (Unix time in ms); NULL: the system's. Called before other threads use the registry. */
void registry_set_clock(struct registry *registry, int64_t (*now_ms)(void));

/* ---- scanning ---- */

/* Calls `visit` for the names from `cursor` on (0: the beginning) until at least `count` names are met. Returns the
 * next cursor, 0 at the end. A filter that exists throughout a sweep is visited exactly once, even if others are
 * created, deleted or renamed meanwhile; expired filters are not visited. The name is valid during the call. */
uint64_t registry_scan(const struct registry *registry, uint64_t cursor, size_t count,
                       void (*visit)(void *ctx, struct slice name, struct entry *entry), void *ctx);

/* Calls `visit` for at most `max` names of its database that begin with `prefix` and come after `after` (NULL: all), in
 * the order of their bytes. `entry` is NULL for an expired one. The cost depends on the names that it finds, not on the
 * others. Returns how many were visited; fewer than `max`: there are no more. A filter that exists throughout is
 * visited exactly once. The name is valid until the reader goes offline. New names are put in order first, under the
 * registry's mutex, which the caller must not hold. */
size_t registry_scan_prefix(const struct registry *registry, struct slice prefix, const struct slice *after, size_t max,
                            void (*visit)(void *ctx, struct slice name, struct entry *entry), void *ctx);

/* Between the two calls names are not sorted, and registry_scan_prefix() finds none: a load creates many names, and
 * then sorts all of them together. The second one: 0 or -ENOMEM, with nothing changed. */
void registry_leave_order(struct registry *registry);
int registry_put_in_order(struct registry *registry);

/* Ages all stamps of last use: old ones must not wrap around to fresh ones. At least every 12 days. Slow. */
void registry_age(const struct registry *registry, int64_t now_ms);

/* ---- numbers ---- */

uint64_t registry_next_id(const struct registry *registry); /* the id that the next filter will get */
void registry_set_next_id(struct registry *registry, uint64_t id);

/* ---- versions ---- */

struct registry;

/* All zero: there is no such filter. */
struct registry_version {
    uint64_t id;    /* changes when the filter is replaced */
    uint64_t items; /* changes with each add that has changed bits */
    int64_t expires_ms;
};

struct registry_version registry_version(const struct registry *registry, struct slice name);

static inline bool registry_version_same(const struct registry_version *a, const struct registry_version *b)
{
    return a->id == b->id && a->items == b->items && a->expires_ms == b->expires_ms;
}
