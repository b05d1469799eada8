/* The rows kept so far are sorted, so most names cost a comparison with the last one. */
#include "filter_table.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "glob_match.h"
#include "json.h"
#include "registry_key.h"
#include "server.h"
#include "sstables.h"

enum sort_key { BY_NAME, BY_ITEMS, BY_CAPACITY, BY_FILL, BY_RATE, BY_OVER, BY_BYTES, BY_LAYERS, BY_QUERIES };
static const char *const sorts[] = {"name", "items", "capacity", "fill", "rate", "over", "bytes", "layers", "queries"};
#define SORTS (sizeof(sorts) / sizeof(sorts[0]))

struct row {
    double number; /* the sort key; filters in quarantine are above all others: they need attention */
    struct filter_facts facts;
    size_t key_len; /* of the name's first FILTER_TABLE_KEY bytes */
    char *key;      /* malloc'ed, as the next one */
    char *reason;   /* of the quarantine; NULL: none, or no memory */
};

struct filter_table {
    const struct server *server;
    const struct acl_user *user;
    struct glob glob;
    bool all;
    enum sort_key sort;
    bool descending, quarantined;
    size_t offset, limit;
    uint64_t total, matched;
    size_t n, most;
    struct row **rows; /* the best so far */
};

static double fill_of(const struct filter_facts *facts)
{
    return facts->capacity ? (double)facts->items / (double)facts->capacity : 0;
}

static double number_of(const struct filter_facts *facts, enum sort_key sort)
{
    const double numbers[SORTS] = {[BY_ITEMS] = (double)facts->items,
                                   [BY_CAPACITY] = (double)facts->capacity,
                                   [BY_FILL] = fill_of(facts),
                                   [BY_RATE] = facts->rate,
                                   [BY_OVER] = facts->requested_rate > 0 ? facts->rate / facts->requested_rate : 0,
                                   [BY_BYTES] = (double)facts->bytes,
                                   [BY_LAYERS] = facts->layers,
                                   [BY_QUERIES] = (double)(facts->usage.hits + facts->usage.misses)};

    return facts->quarantined ? INFINITY : numbers[sort];
}

/* Below 0: row a stands before row b. Equal numbers are in the order of the names, either way. */
static int compare(const struct filter_table *table, const struct row *a, const struct row *b)
{
    int order = 0;
    if (table->sort != BY_NAME)
        order = (a->number > b->number) - (a->number < b->number);
    bool by_name = order == 0;
    if (by_name)
        order = slice_compare((struct slice){a->key, a->key_len}, (struct slice){b->key, b->key_len});
    return table->descending && (!by_name || table->sort == BY_NAME) ? -order : order;
}

/* ---- the rows ---- */

static void free_row(struct row *row)
{
    free(row->key);
    free(row->reason);
    free(row);
}

/* Puts the row where it belongs. A full table lets its last row go. */
static void put(struct filter_table *table, struct row *row)
{
    size_t low = 0, high = table->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare(table, row, table->rows[middle]) < 0)
            high = middle;
        else
            low = middle + 1;
    }
    if (table->n == table->most)
        free_row(table->rows[--table->n]);
    memmove(table->rows + low + 1, table->rows + low, (table->n++ - low) * sizeof(table->rows[0]));
    table->rows[low] = row;
}

/* ---- the pass ---- */

void filter_table_visit(void *ctx, struct slice key, struct entry *entry)
{
    struct filter_table *table = ctx;
    struct row row;
    if (!filter_facts_allowed(table->server->registry, table->user, key, entry))
        return;
    table->total++;
    if (!table->all && !glob_test(&table->glob, key_name(key)))
        return;
    const char *reason = sstables_is_unread(entry) ? NULL : entry_quarantine_reason(entry);
    if (table->quarantined && !reason)
        return;
    table->matched++;
    if (table->most == 0)
        return;
    filter_facts_count(entry, table->sort == BY_RATE || table->sort == BY_OVER, &row.facts);
    counters_usage(table->server->stats.counters, entry->id, &row.facts.usage);
    row.number = number_of(&row.facts, table->sort);
    row.key_len = key.len < FILTER_TABLE_KEY ? key.len : FILTER_TABLE_KEY;
    row.key = (char *)(uintptr_t)key.ptr; /* for the comparison */
    if (table->n == table->most && compare(table, &row, table->rows[table->n - 1]) >= 0)
        return;
    struct row *kept = malloc(sizeof(*kept));
    char *name = slice_copy((struct slice){key.ptr, row.key_len});
    if (!kept || !name) { /* a row is missing; there are others to worry about */
        free(kept);
        free(name);
        return;
    }
    *kept = (struct row){.number = row.number, .key_len = row.key_len, .key = name};
    kept->reason = reason ? strdup(reason) : NULL;
    filter_facts(table->server, key, entry, &kept->facts);
    kept->facts.usage = row.facts.usage;
    put(table, kept);
}

/* ---- queries ---- */

/* A text without wildcards is looked for anywhere in the names. */
static int compile(struct filter_table *table, struct slice search)
{
    char pattern[GLOB_COMPILED_MAX];
    table->all = search.len == 0;
    if (search.len > GLOB_COMPILED_MAX - 2)
        return -EINVAL;
    if (search.len == 0)
        return 0;
    size_t len = 0, around = glob_is_literal(search);
    if (around)
        pattern[len++] = '*';
    memcpy(pattern + len, search.ptr, search.len);
    len += search.len;
    if (around)
        pattern[len++] = '*';
    glob_compile(&table->glob, (struct slice){pattern, len}, true);
    return 0;
}

static int read_query(struct filter_table *table, const struct filter_query *query)
{
    size_t sort = 0;
    while (sort < SORTS &&
           (query->sort.len != strlen(sorts[sort]) || memcmp(query->sort.ptr, sorts[sort], query->sort.len) != 0))
        sort++;
    if (sort == SORTS || query->limit > FILTER_TABLE_PAGE || query->offset > FILTER_TABLE_ROWS)
        return -EINVAL;
    table->sort = (enum sort_key)sort;
    table->descending = query->descending;
    table->quarantined = query->quarantined;
    table->offset = (size_t)query->offset;
    table->limit = (size_t)query->limit;
    table->most = table->limit ? table->offset + table->limit : 0;
    return compile(table, query->search);
}

int filter_table_create(struct filter_table **table_out, const struct server *server, const struct acl_user *user,
                        const struct filter_query *query)
{
    struct filter_table *table = calloc(1, sizeof(*table));
    if (!table)
        return -ENOMEM;
    table->server = server;
    table->user = user;
    int status = read_query(table, query);
    if (!status) {
        table->rows = calloc(table->most ? table->most : 1, sizeof(*table->rows));
        status = table->rows ? 0 : -ENOMEM;
    }
    if (status) {
        free(table);
        return status;
    }
    *table_out = table;
    return 0;
}

void filter_table_destroy(struct filter_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->n; i++)
        free_row(table->rows[i]);
    free(table->rows);
    free(table);
}

/* ---- JSON ---- */

void filter_facts_json(const struct filter_facts *facts, struct buf *out)
{
    json_text(out, "name", (struct slice){facts->name.text, facts->name.len});
    json_count(out, "db", facts->db);
    json_str(out, "layout", facts->kind.layout);
    json_bool(out, "sstable", facts->sstable);
    json_bool(out, "unread", facts->unread);
    json_bool(out, "quarantined", facts->quarantined);
    json_bool(out, "fixed", facts->kind.fixed);
    json_bool(out, "cuckoo", facts->kind.cuckoo);
    json_bool(out, "forgets", facts->kind.window);
    json_bool(out, "keyed", facts->kind.key != 0);
    json_count(out, "expiresMs", (uint64_t)facts->expires_ms);
    json_count(out, "items", facts->items);
    json_count(out, "capacity", facts->capacity);
    json_count(out, "layers", facts->layers);
    json_count(out, "bytes", facts->bytes);
    json_real(out, "fill", fill_of(facts));
    json_real(out, "asked", facts->requested_rate);
    json_real(out, "rate", facts->rate);
}

static void write_key(struct buf *out, const struct row *row)
{
    char *hex = row->key_len < FILTER_TABLE_KEY ? malloc(2 * row->key_len + 1) : NULL;
    if (!hex) {
        json_null(out, "key");
        return;
    }
    for (size_t i = 0; i < row->key_len; i++)
        hex_put(hex + 2 * i, row->key[i]);
    json_text(out, "key", (struct slice){hex, 2 * row->key_len});
    free(hex);
}

void filter_table_write(struct filter_table *table, uint64_t busy_ns, struct buf *out)
{
    json_begin(out, NULL, '{');
    json_count(out, "total", table->total);
    json_count(out, "matched", table->matched);
    json_count(out, "offset", table->offset);
    json_count(out, "most", FILTER_TABLE_ROWS);
    json_real(out, "busyMs", (double)busy_ns / 1e6);
    json_begin(out, "rows", '[');
    for (size_t i = table->offset; i < table->n; i++) {
        json_begin(out, NULL, '{');
        write_key(out, table->rows[i]);
        filter_facts_json(&table->rows[i]->facts, out);
        json_count(out, "queries", table->rows[i]->facts.usage.hits + table->rows[i]->facts.usage.misses);
        if (table->rows[i]->reason)
            json_str(out, "reason", table->rows[i]->reason);
        json_end(out, '}');
    }
    json_end(out, ']');
    json_end(out, '}');
}
