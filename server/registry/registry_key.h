/* registry_key: slices as keys of the registry (database.h).
 *
 * Thread: any. */
#ifndef BLOOMERY_REGISTRY_KEY_H
#define BLOOMERY_REGISTRY_KEY_H

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

#endif
