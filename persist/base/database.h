/* database: the key of a filter: its name and the database that it is in, as one string of bytes.
 *
 * The registry, the store and the log know keys only. The key of a name in database 0 is the name. In any other one six
 * bytes are before the name: 00 FF 64 62 and the number of the database, big-endian. A name in database 0 with this
 * prefix is written in the same way, with the number 0; so each key belongs to one name only.
 *
 * The number in a key is the database's internal one. SWAPDB exchanges the internal numbers of two client numbers
 * (registry_key.h), so that no key changes.
 *
 * Thread: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DATABASES_MAX   1024 /* the most databases: each one in use costs 32 KB */
#define DATABASE_PREFIX 6    /* bytes before a name */

#define DATABASE_MARK "\x00\xff\x64\x62"

/* Whether these bytes, a key or a name, begin as a key with a prefix does. */
static inline bool database_is_marked(const char *bytes, size_t len)
{
    const unsigned char *number = (const unsigned char *)bytes + 4;
    return len >= DATABASE_PREFIX && memcmp(bytes, DATABASE_MARK, 4) == 0 && number[0] < DATABASES_MAX >> 8;
}

/* The internal number of the database of a key. */
static inline unsigned database_of_key(const char *key, size_t len)
{
    return database_is_marked(key, len) ? (unsigned)((unsigned char)key[4] << 8 | (unsigned char)key[5]) : 0;
}

/* The bytes before the name in a key: 0 or DATABASE_PREFIX. */
static inline size_t database_prefix_of_key(const char *key, size_t len)
{
    return database_is_marked(key, len) ? DATABASE_PREFIX : 0;
}

/* The same for a name that has no key yet. */
static inline size_t database_prefix_for(unsigned database, const char *name, size_t len)
{
    return database != 0 || database_is_marked(name, len) ? DATABASE_PREFIX : 0;
}

static inline void database_prefix_put(char prefix_out[DATABASE_PREFIX], unsigned database)
{
    memcpy(prefix_out, DATABASE_MARK, 4);
    prefix_out[4] = (char)(database >> 8);
    prefix_out[5] = (char)database;
}

/* Which internal number each of the clients' numbers represents. Zeroed: each for itself. */
struct databases {
    uint16_t is[DATABASES_MAX]; /* internal number + 1; 0: the same */
};

static inline unsigned databases_get(const struct databases *databases, unsigned number)
{
    return databases->is[number] ? databases->is[number] - 1u : number;
}

static inline void databases_set(struct databases *databases, unsigned number, unsigned database)
{
    databases->is[number] = database == number ? 0 : (uint16_t)(database + 1);
}

/* Whether no two numbers represent the same database. */
static inline bool databases_are_valid(const struct databases *databases)
{
    bool taken[DATABASES_MAX] = {false};
    for (unsigned i = 0; i < DATABASES_MAX; i++) {
        unsigned database = databases_get(databases, i);
        if (database >= DATABASES_MAX || taken[database])
            return false;
        taken[database] = true;
    }
    return true;
}

/* The number that represents an internal one. */
static inline unsigned databases_number(const struct databases *databases, unsigned database)
{
    unsigned number = 0;
    while (number < DATABASES_MAX - 1 && databases_get(databases, number) != database)
        number++;
    return number;
}
