/* registry_key: slices as keys of the registry (database.h).
 *
 * Thread: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "database.h"
#include "slice.h"

/* The name in a key, and the internal number of its database. */
static inline struct slice key_name(struct slice key)
{
    size_t prefix = database_prefix_of_key(key.ptr, key.len);
    return (struct slice){key.ptr + prefix, key.len - prefix};
}

static inline unsigned key_database(struct slice key)
{
    return database_of_key(key.ptr, key.len);
}

/* Writes a key. `out` has room for DATABASE_PREFIX bytes more than the name. */
static inline struct slice key_write(char *out, unsigned database, struct slice name)
{
    size_t prefix = database_prefix_for(database, name.ptr, name.len);
    if (prefix)
        database_prefix_put(out, database);
    if (name.len)
        memcpy(out + prefix, name.ptr, name.len);
    return (struct slice){out, prefix + name.len};
}

/* Writes the prefix into the DATABASE_PREFIX bytes before a name, which are the caller's, and returns the key. */
static inline struct slice key_put_before(struct slice name, unsigned database)
{
    char *prefix = (char *)(uintptr_t)name.ptr - DATABASE_PREFIX;
    database_prefix_put(prefix, database);
    return (struct slice){prefix, name.len + DATABASE_PREFIX};
}

/* ---- databases ---- */

/* The databases of a registry.
 *
 * Each database that has ever had a filter has its own table, index of names and heap of times. So work on one costs
 * nothing for the filters of the others. A filter's database is in its key (database.h), by the internal number. The
 * internal number of each client's number is kept here: at first they are equal, and SWAPDB exchanges two. All other
 * functions of the registry take keys.
 *
 * Thread rule: as registry.h. */

struct entry;
struct registry;
struct registry_expiry;

/* Which is which. Both numbers are below DATABASES_MAX. Thread: any. */
unsigned registry_database(const struct registry *registry, unsigned number); /* the internal number of a client's */
unsigned registry_number(const struct registry *registry, unsigned database); /* the reverse */

/* Exchanges the databases of two of the clients' numbers, and reports it as an effect. Called while no command runs. */
void registry_swap(struct registry *registry, unsigned first, unsigned second);

/* Loading: a client's number represents this internal one. The caller sets all, so that none is there twice. */
void registry_set_database(struct registry *registry, unsigned number, unsigned database);

/* Of one database, by its internal number: as registry_count(), registry_expiry(), registry_clear() and registry_scan()
 * of all. The cursor is below 1 << 48. */
size_t registry_database_count(const struct registry *registry, unsigned database);
void registry_database_expiry(struct registry *registry, unsigned database, struct registry_expiry *expiry_out);
int registry_database_clear(struct registry *registry, unsigned database, size_t *removed_out);
uint64_t registry_database_scan(const struct registry *registry, unsigned database, uint64_t cursor, size_t count,
                                void (*visit)(void *ctx, struct slice key, struct entry *entry), void *ctx);

/* The highest of the clients' numbers that has a filter; 0: none has, or only 0. */
unsigned registry_highest_number(const struct registry *registry);
