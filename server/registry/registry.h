/* registry: the filters of the server by name, shared by all workers, and when they expire.
 *
 * Look-ups take no lock and write nothing; the caller is inside an RCU read section (rcu.h) and what it finds stays
 * alive until that ends. Changes (create, delete, rename, clear) take one mutex; they are atomic for readers: a rename
 * never shows a moment at which neither name exists, a replaced filter is replaced by one store.
 *
 * Structure: an open-addressing table per shard (4096 shards by the top bits of the name's hash) whose slots are 8
 * bytes: a pointer and a 19-bit tag. Our own instead of liburcu's hash table because a slot's address follows from the
 * hash, so that the cache misses of pipelined look-ups can be overlapped (registry_prefetch), because it takes 10 to 13
 * bytes per filter instead of 32 and more, and because a sweep in the order of hashes gives SCAN a cursor that survives
 * resizing and never returns a name twice.
 *
 * A filter that has expired is gone for everybody at that moment: look-ups compare its time with the clock, and a
 * change that meets it removes it first. Its memory is given back by registry_expire_due(), which the expirer's thread
 * calls (expirer.h). A filter that never expires costs nothing for all that.
 *
 * Thread rule: look-ups and scans: any thread in an RCU read section. Changes: any thread. */
#ifndef BLOOMERY_REGISTRY_H
#define BLOOMERY_REGISTRY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "errbuf.h"
#include "rcu.h"
#include "resp_parse.h"

#define REGISTRY_MAX_NAME 65535 /* bytes of a filter's name; longer keys are refused with an error that says so */

struct registry;

/* A filter, or the place of one that could not be loaded. Fields other than `id` are internal. */
struct entry {
    uint64_t id;            /* unique in the data directory, never reused */
    _Atomic uint32_t state; /* kind, dirty and dead flags, pins */
    uint16_t name_len;
    _Atomic uint16_t used; /* entry_stamp() of its last use */
};

/* Of an entry as registry_find() returns it. */
struct bloom_filter *entry_filter(struct entry *entry); /* NULL for a quarantined one */
struct slice
entry_created_name(const struct entry *entry);            /* the name it was created under; renames do not change it */
const char *entry_quarantine_reason(struct entry *entry); /* NULL unless quarantined: why it could not be loaded */

/* Notes that bits of the filter have changed since its last save. Call after the change. Costs a load when it is noted
 * already. */
void entry_mark_dirty(struct entry *entry);

/* When a filter was last used, in units of 65 s, without a cost: only the first use in each unit writes. Of times (any
 * clock that does not jump, ms) more than 24 days apart only the order is kept, by registry_age(). */
static inline uint16_t entry_stamp(int64_t now_ms)
{
    return (uint16_t)(now_ms >> 16);
}

static inline void entry_note_use(struct entry *entry, uint16_t stamp)
{
    if (atomic_load_explicit(&entry->used, memory_order_relaxed) != stamp)
        atomic_store_explicit(&entry->used, stamp, memory_order_relaxed);
}

int64_t entry_idle_ms(const struct entry *entry, int64_t now_ms); /* since its last use; of 24 days at least that */

/* Loading: the bits are those of the last save. */
void entry_mark_clean(struct entry *entry);

int registry_create(struct registry **registry_out, struct bloom_pool *pool,
                    struct reclaimer *reclaimer); /* 0, -ENOMEM */
void registry_destroy(struct registry *registry); /* NULL is fine; no reader may be left */

/* Called for each quarantined filter that is deleted or replaced, before that is told as an effect: its files are given up.
 * Under the registry's mutex; what holds for listeners to effects holds here. */
void registry_on_forget(struct registry *registry, void (*forget)(void *ctx, uint64_t id), void *ctx);

struct bloom_pool *registry_pool(const struct registry *registry);

/* ---- look-up, in three steps so that many can overlap ------------------------------------------------------------ */

uint64_t registry_hash(const struct registry *registry, struct slice name);
void registry_prefetch(const struct registry *registry, uint64_t hash);       /* the slot */
void registry_prefetch_entry(const struct registry *registry, uint64_t hash); /* what the slot points to */
struct entry *registry_find(const struct registry *registry, uint64_t hash,
                            struct slice name); /* NULL: no such filter */

static inline struct entry *registry_lookup(const struct registry *registry, struct slice name)
{
    return registry_find(registry, registry_hash(registry, name), name);
}

/* The same, and when it expires: Unix time in ms, 0: never. */
struct entry *registry_find_expiry(const struct registry *registry, uint64_t hash, struct slice name,
                                   int64_t *expires_ms_out);

/* Keeps the filter of that name alive beyond RCU, for work that takes long: until registry_unpin(), whatever is
 * deleted. NULL: no such filter. Takes the mutex. Thread: any, online. */
struct entry *registry_pin(struct registry *registry, struct slice name);
void registry_unpin(struct entry *entry);

size_t registry_count(const struct registry *registry); /* filters, quarantined ones included, and those that have
                                                         * expired but are not removed yet */
size_t registry_quarantined(const struct registry *registry);
uint64_t registry_slab_bytes(const struct registry *registry); /* memory of small filters, their bits and names: it is not
                                                                * from the heap */
uint64_t
registry_index_bytes(const struct registry *registry); /* memory of the table of names; names and entries not counted */

/* ---- changes ----------------------------------------------------------------------------------------------------- */

enum registry_status {
    REGISTRY_OK = 0,
    REGISTRY_EXISTS = 1, /* the name is taken; entry_out is whose */
    REGISTRY_NOT_FOUND = 2,
    REGISTRY_REFUSED = 3,   /* a name that is too long; the errbuf says so */
    REGISTRY_LIMIT = 4,     /* a limit of the pool's memory; the errbuf says which and what would be needed */
    REGISTRY_CHANGED = 5,   /* the name stands for another filter than was expected, or for none */
    REGISTRY_UNCHANGED = 6, /* a condition was not met: nothing has been done */
};

/* Makes an empty filter of the class under the name. REGISTRY_OK, _EXISTS, _REFUSED, _LIMIT or -ENOMEM. `id` 0 takes
 * the next. */
int registry_create_filter(struct registry *registry, struct slice name, uint64_t id, struct bloom_class *class,
                           struct entry **entry_out, struct errbuf *err);

/* An empty filter of the class that is not yet under its name: nobody finds it, no walk yields it, but it has its id
 * and counts as memory (which is not limited if it is made `instead` of one that is no smaller and goes at once). To be
 * filled, off the loops if that takes long, and then published or abandoned. REGISTRY_OK, _REFUSED, _LIMIT or -ENOMEM.
 */
int registry_prepare(struct registry *registry, struct slice name, struct bloom_class *class, bool instead,
                     struct entry **entry_out, struct errbuf *err);

struct registry_publication {
    bool only_new; /* REGISTRY_EXISTS if the name is taken; otherwise who has it is replaced, deleted at that moment */
    bool empty;    /* no bit is set in it: the effect is that of a creation, not of one with contents */
    uint64_t expected_id; /* REGISTRY_CHANGED unless this filter has the name; 0: whoever */
    int64_t expires_ms;   /* Unix time; 0: never */
    bool keep_expiry;     /* instead: that of the filter which is replaced */
    const void *payload;  /* handed on to the effect */
    const char
        *event; /* likewise: what keyspace notifications call it ("copy_to"), a constant; NULL: as its kind says */
};

/* Puts a prepared filter under its name, at one moment. REGISTRY_OK: the registry owns it. Otherwise (_EXISTS,
 * _CHANGED, -ENOMEM) nothing has changed and it is still the caller's, to publish otherwise or to abandon. */
int registry_publish(struct registry *registry, struct entry *entry, const struct registry_publication *how);

/* Pins a prepared filter, so that it outlives what happens to it once it is published. registry_unpin() as above. */
void registry_pin_prepared(struct entry *entry);

/* Frees a prepared filter, off the loops, once no pin is left. */
void registry_abandon(struct registry *registry, struct entry *entry);

/* Puts the place of a filter that could not be loaded under the name. REGISTRY_OK, _EXISTS or -ENOMEM. */
int registry_create_quarantined(struct registry *registry, struct slice name, uint64_t id, const char *reason);

/* Removes the filter; its memory is freed later, off the loops. REGISTRY_OK or _NOT_FOUND. */
int registry_delete(struct registry *registry, struct slice name);

/* Moves the filter to another name, replacing what is there unless `only_new`; it expires when it would have.
 * REGISTRY_OK, _NOT_FOUND, _EXISTS (only_new), _REFUSED (name too long) or -ENOMEM. Renaming to the same name is OK and
 * does nothing. */
int registry_rename(struct registry *registry, struct slice from, struct slice to, bool only_new, struct errbuf *err);

/* Removes all filters at one moment; the memory is freed later, off the loops. 0 or -ENOMEM (nothing was removed).
 * Takes about 0.1 us per filter: not on a loop. */
int registry_clear(struct registry *registry, size_t *removed_out);

/* ---- expiry ------------------------------------------------------------------------------------------------------ */

#define REGISTRY_EXPIRE_NX    1u  /* only if it has no time yet */
#define REGISTRY_EXPIRE_XX    2u  /* only if it has one */
#define REGISTRY_EXPIRE_GT    4u  /* only if the new time is later; never is the latest */
#define REGISTRY_EXPIRE_LT    8u  /* only if the new time is earlier */
#define REGISTRY_EXPIRE_LATER 16u /* no condition: the time had not come yet when it was asked for */

/* Lets the filter expire at this time (Unix time in ms), if all `conditions` are met; a time that has passed deletes
 * it, or has it expire at once if it has only just come (_LATER). REGISTRY_OK, _NOT_FOUND, _UNCHANGED or -ENOMEM. */
int registry_expire(struct registry *registry, struct slice name, int64_t expires_ms, unsigned conditions);

/* Lets it never expire. REGISTRY_OK, _NOT_FOUND or _UNCHANGED (it had no time). */
int registry_persist(struct registry *registry, struct slice name);

/* Removes filters that have expired, earliest first, until there is none, `max` have been removed or about 20 us have
 * passed, for the mutex is held. Returns how many; in next_ms_out (may be NULL) when the next one is due, 0: none will
 * be. */
size_t registry_expire_due(struct registry *registry, size_t max, int64_t *next_ms_out);

/* Waits until a filter is due, an hour has passed, or registry_expire_stop() was called; returns whether it was not.
 * Thread: the expirer, offline. */
bool registry_expire_wait(struct registry *registry);
void registry_expire_stop(struct registry *registry);

/* Between the two nothing expires: the registry's clock stands still, some milliseconds back at most. One holder at a time. */
void registry_hold_clock(struct registry *registry);
void registry_release_clock(struct registry *registry);

struct registry_expiry {
    size_t count;       /* filters that have a time */
    int64_t avg_ttl_ms; /* of those, what is left on average; 0 if there are none */
};
void registry_expiry(struct registry *registry, struct registry_expiry *expiry_out);

/* For tests: another clock than the system's, Unix time in ms. NULL: the system's. Before other threads use the
 * registry. */
void registry_set_clock(struct registry *registry, int64_t (*now_ms)(void));

/* ---- scanning ---------------------------------------------------------------------------------------------------- */

/* Calls `visit` for the names from `cursor` on (0: the beginning) until at least `count` have been met, and returns the
 * cursor to go on with, 0 at the end. A filter that exists throughout a whole sweep is visited exactly once, whatever
 * is created, deleted or renamed meanwhile; one that has expired is not. The name is valid during the call. */
uint64_t registry_scan(const struct registry *registry, uint64_t cursor, size_t count,
                       void (*visit)(void *ctx, struct slice name, struct entry *entry), void *ctx);

/* One of the filters, each as likely as any other. `random` is a state that the caller has seeded. The name is valid
 * until the reader goes offline. false: in a bounded number of attempts none was met, as in a registry with few
 * filters, or with many that have expired: sweep it instead. */
bool registry_random(const struct registry *registry, uint64_t *random, struct slice *name_out);

/* Keeps old stamps from looking fresh again: to be called every 12 days or more often. Goes through all filters. */
void registry_age(const struct registry *registry, int64_t now_ms);

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

uint64_t registry_next_id(const struct registry *registry); /* the id that the next filter will get */
void registry_set_next_id(struct registry *registry, uint64_t id);

#endif
