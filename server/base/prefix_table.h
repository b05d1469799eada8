/* prefix_table: a set of strings that finds the prefixes of a given string.
 *
 * The strings are in an array in their order. Each has a parent: the longest other string that it begins with. Of the
 * entries up to a string, the last one begins with every entry that is a prefix of the string. So these prefixes are
 * among that entry and its ancestors. A look-up is one binary search and a walk along parents. An insertion or a
 * removal moves a part of the array, and visits the entries with the string as a prefix.
 *
 * Lifetime: zeroed storage to prefix_table_deinit(); the entries and their bytes are the caller's. Thread: one at a
 * time. */
#ifndef BLOOMERY_PREFIX_TABLE_H
#define BLOOMERY_PREFIX_TABLE_H

#include <stddef.h>

struct prefix_entry {
    struct prefix_entry *parent; /* NULL: no other entry is a prefix of this one */
    const char *name;            /* set by the caller, with `len`, before the insertion; constant in the table */
    size_t len;
};

struct prefix_table {
    struct prefix_entry **sorted; /* `count` entries, in the order of their bytes */
    size_t count, size;
};

/* 0 or -ENOMEM. There must be no equal entry. */
int prefix_table_insert(struct prefix_table *table, struct prefix_entry *entry) __attribute__((warn_unused_result));
void prefix_table_remove(struct prefix_table *table, struct prefix_entry *entry);

/* Frees the array. */
void prefix_table_deinit(struct prefix_table *table);

/* The equal entry; NULL: none. */
struct prefix_entry *prefix_table_find(const struct prefix_table *table, const char *name, size_t len);

/* The longest entry that `name` begins with, or NULL; its ancestors are the others. */
struct prefix_entry *prefix_table_longest(const struct prefix_table *table, const char *name, size_t len);

/* The first entry that begins with `name`, or NULL. */
struct prefix_entry *prefix_table_first(const struct prefix_table *table, const char *name, size_t len);

#endif
