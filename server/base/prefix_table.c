#include "prefix_table.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "grow.h"

static int compare(const struct prefix_entry *entry, const char *name, size_t len)
{
    size_t common = entry->len < len ? entry->len : len;
    int order = common ? memcmp(entry->name, name, common) : 0;
    return order ? order : (entry->len > len) - (entry->len < len);
}

static bool begins_with(const char *name, size_t len, const char *prefix, size_t prefix_len)
{
    return prefix_len <= len && (prefix_len == 0 || memcmp(name, prefix, prefix_len) == 0);
}

/* The number of entries before `name`, and an equal one with `equal`. */
static size_t count_before(const struct prefix_table *table, const char *name, size_t len, bool equal)
{
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare(table->sorted[middle], name, len);
        if (order < 0 || (equal && order == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct prefix_entry *prefix_table_longest(const struct prefix_table *table, const char *name, size_t len)
{
    size_t n = count_before(table, name, len, true);
    struct prefix_entry *entry = n ? table->sorted[n - 1] : NULL;
    while (entry && !begins_with(name, len, entry->name, entry->len))
        entry = entry->parent;
    return entry;
}

struct prefix_entry *prefix_table_first(const struct prefix_table *table, const char *name, size_t len)
{
    size_t at = count_before(table, name, len, false);
    struct prefix_entry *entry = at < table->count ? table->sorted[at] : NULL;
    return entry && begins_with(entry->name, entry->len, name, len) ? entry : NULL;
}

struct prefix_entry *prefix_table_find(const struct prefix_table *table, const char *name, size_t len)
{
    struct prefix_entry *entry = prefix_table_first(table, name, len);
    return entry && entry->len == len ? entry : NULL;
}

/* The entries after `at` that begin with its string get `parent` instead of `old`. */
static void give_parent(struct prefix_table *table, size_t at, struct prefix_entry *old, struct prefix_entry *parent)
{
    const struct prefix_entry *entry = table->sorted[at];
    for (size_t i = at + 1; i < table->count; i++) {
        struct prefix_entry *below = table->sorted[i];
        if (!begins_with(below->name, below->len, entry->name, entry->len))
            return;
        if (below->parent == old)
            below->parent = parent;
    }
}

int prefix_table_insert(struct prefix_table *table, struct prefix_entry *entry)
{
    if (GROW(table->sorted, table->count, table->size) != 0)
        return -ENOMEM;
    size_t at = count_before(table, entry->name, entry->len, false);
    entry->parent = prefix_table_longest(table, entry->name, entry->len);
    memmove(&table->sorted[at + 1], &table->sorted[at], (table->count - at) * sizeof(struct prefix_entry *));
    table->sorted[at] = entry;
    table->count++;
    give_parent(table, at, entry->parent, entry);
    return 0;
}

void prefix_table_remove(struct prefix_table *table, struct prefix_entry *entry)
{
    size_t at = count_before(table, entry->name, entry->len, false);
    give_parent(table, at, entry, entry->parent);
    table->count--;
    memmove(&table->sorted[at], &table->sorted[at + 1], (table->count - at) * sizeof(struct prefix_entry *));
    if (table->count == 0)
        prefix_table_deinit(table);
}

void prefix_table_deinit(struct prefix_table *table)
{
    free(table->sorted);
    *table = (struct prefix_table){.count = 0};
}
