/* filter_table: a page of the table of filters: searched and sorted here, since a browser must not be sent a million of
 * them. A pass over the registry keeps the best rows up to the end of the page.
 *
 * Thread: the status page's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "filter_facts.h"
#include "registry.h"

#define FILTER_TABLE_ROWS 5000 /* how far one can turn pages; further, one searches */
#define FILTER_TABLE_PAGE 200
#define FILTER_TABLE_KEY  4096 /* bytes of a name that the page can ask for again */

struct filter_table;
struct server;

/* The rows that are asked for. */
struct filter_query {
    struct slice search; /* a glob, or text within the name; "": all */
    struct slice sort;   /* name, items, capacity, fill, rate, over, bytes, layers, queries */
    bool descending;
    bool quarantined; /* only these */
    uint64_t offset, limit;
};

/* Of the filters that the user may see (filter_facts_allowed()); others are not counted either. The user must outlive
 * it. 0; -ENOMEM; or -EINVAL for a query that is none. */
int filter_table_create(struct filter_table **table_out, const struct server *server, const struct acl_user *user,
                        const struct filter_query *query);
void filter_table_destroy(struct filter_table *table); /* NULL is fine */

void filter_table_visit(void *table, struct slice name, struct entry *entry);

/* The page as JSON. */
void filter_table_write(struct filter_table *table, uint64_t busy_ns, struct buf *out);

/* Writes the fields of a filter that table and page share. */
void filter_facts_json(const struct filter_facts *facts, struct buf *out);
