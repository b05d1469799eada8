/* bloomery import --rdb: each filter goes into its own database, or all go into the one named by the user. */
#include "import.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "dump.h"
#include "log_text.h"
#include "output.h"

#define COMMAND    "import"
#define PACK_LIMIT (16u << 10) /* as the daemon's save-pack-limit */

struct import {
    struct rdb_scan scan;
    bool list, any_db;
    uint64_t db;
    bool into_one;
    uint64_t into;
    const char *prefix;
    struct databases databases; /* of the data directory */
    struct bloom_pool *pool;
    struct store *store;
    uint64_t first_id;
    size_t next;
    uint64_t done; /* bytes of the filters in the save so far */
    struct progress progress;
    struct errbuf err; /* of the filter that could not be made */
};

/* ---- names ---- */

static uint64_t goes_into(const struct import *import, const struct rdb_found *found)
{
    return import->into_one ? import->into : found->db;
}

/* The filter's key in the data directory, to be freed; NULL: no memory, or none: *why_out is the reason. */
static struct tool_key *key_in_store(const struct import *import, const struct rdb_found *found, const char **why_out)
{
    uint64_t db = goes_into(import, found);
    struct tool_key *key = malloc(sizeof(*key));

    *why_out = NULL;
    if (!key)
        return NULL;
    if (db >= DATABASES_MAX)
        *why_out = "its database has a number above 1023: use --into N";
    else if (!tool_key_of(&import->databases, (unsigned)db, import->prefix, found->name, found->name_len, key))
        *why_out = "its name is longer than 65535 bytes";
    if (!*why_out)
        return key;
    free(key);
    return NULL;
}

/* ---- choice of filters ---- */

static bool is_selected(const struct import *import, const struct rdb_found *found)
{
    return import->any_db || found->db == import->db;
}

static void refuse_expired(struct import *import)
{
    int64_t now_ms = clock_unix_ms();

    for (size_t i = 0; i < import->scan.n; i++) {
        struct rdb_found *found = &import->scan.found[i];

        if (found->expires_ms != 0 && found->expires_ms <= now_ms)
            rdb_scan_refuse(&import->scan, found, "it has expired");
    }
}

static int refuse_known_names(struct import *import)
{
    for (size_t i = 0; i < import->scan.n; i++) {
        struct rdb_found *found = &import->scan.found[i];
        struct errbuf err = {{0}};
        const char *why;

        if (found->reason || !is_selected(import, found))
            continue;
        struct tool_key *key = key_in_store(import, found, &why);
        int rc = why ? 0 : !key ? -ENOMEM : store_find(import->store, key->bytes, key->len, &err);
        free(key);
        if (rc == 0)
            rdb_scan_refuse(&import->scan, found, why ? why : "a filter with this name already exists");
        else if (rc != STORE_NOT_FOUND)
            return tool_failed(COMMAND, "%s", rc == -ENOMEM ? "out of memory" : err.text);
    }
    return TOOL_OK;
}

/* ---- names that would be there twice ---- */

static int compare_places(const void *a, const void *b, void *import)
{
    const struct rdb_found *left = *(struct rdb_found *const *)a, *right = *(struct rdb_found *const *)b;
    uint64_t left_db = goes_into(import, left), right_db = goes_into(import, right);
    if (left_db != right_db)
        return left_db < right_db ? -1 : 1;
    if (left->name_len != right->name_len)
        return left->name_len < right->name_len ? -1 : 1;
    int order = memcmp(left->name, right->name, left->name_len);
    return order != 0 ? order : left->at < right->at ? -1 : left->at > right->at; /* itself only if equal */
}

static void describe_twin(const struct import *import, const struct rdb_found *first, const struct rdb_found *second,
                          struct errbuf *err)
{
    struct errbuf name = {""};
    errbuf_set(&name, "%.*s", (int)(first->name_len < 200 ? first->name_len : 200), first->name);
    if (first->db == second->db)
        errbuf_set(err,
                   "the key '%s' of database %" PRIu64 " is there twice, at bytes %" PRIu64 " and %" PRIu64
                   ": no engine loads such a file; make another one",
                   name.text, first->db, first->at, second->at);
    else
        errbuf_set(err,
                   "the databases %" PRIu64 " and %" PRIu64
                   " both have a filter '%s', and there can be one in database "
                   "%" PRIu64 ": import one database at a time (--db N), with another --into or a --prefix for each",
                   first->db, second->db, name.text, import->into);
}

/* Refuses filters that would have the name of an earlier one. 0, 1 with the first of them in `err`, or -ENOMEM. */
static int refuse_twins(struct import *import, struct errbuf *err)
{
    struct rdb_found **list = malloc((import->scan.n + 1) * sizeof(*list)), *known = NULL;
    size_t n = 0;
    if (!list)
        return -ENOMEM;
    for (size_t i = 0; i < import->scan.n; i++)
        if (is_selected(import, &import->scan.found[i]) && !import->scan.found[i].reason)
            list[n++] = &import->scan.found[i];
    qsort_r(list, n, sizeof(*list), compare_places, import);
    for (size_t i = 0; i < n; i++) {
        bool twin = known && goes_into(import, known) == goes_into(import, list[i]) &&
                    known->name_len == list[i]->name_len && memcmp(known->name, list[i]->name, known->name_len) == 0;
        if (twin && !err->text[0])
            describe_twin(import, known, list[i], err);
        if (twin)
            rdb_scan_refuse(&import->scan, list[i], "another filter of the file would have this name");
        else
            known = list[i];
    }
    free(list);
    return err->text[0] != '\0';
}

/* ---- the save ---- */

static int on_next(void *ctx, struct store_item *item)
{
    struct import *import = ctx;
    struct rdb_scan *scan = &import->scan;
    struct bloom_filter *filter;
    const char *why;

    while (import->next < scan->n &&
           (scan->found[import->next].reason || !is_selected(import, &scan->found[import->next])))
        import->next++;
    if (import->next == scan->n)
        return 0;
    const struct rdb_found *found = &scan->found[import->next];
    struct tool_key *key = key_in_store(import, found, &why);
    if (!key)
        return -ENOMEM;
    if (rdb_scan_load(scan, found, import->pool, &filter, &import->err) != 0) {
        errbuf_prefix(&import->err, "%s: filter at byte %llu", scan->path, (unsigned long long)found->at);
        free(key);
        return -EIO;
    }
    *item = (struct store_item){.id = import->first_id + import->next,
                                .name = key->bytes,
                                .name_len = key->len,
                                .filter = filter,
                                .dirty = true,
                                .expires_ms = found->expires_ms,
                                .user = (void *)found};
    import->next++;
    return 1;
}

static void on_release(void *ctx, struct store_item *item)
{
    struct import *import = ctx;
    const struct rdb_found *found = item->user;

    import->done += found->bytes;
    progress_update(&import->progress, import->done);
    bloom_filter_destroy(item->filter);
    free((char *)(uintptr_t)item->name - offsetof(struct tool_key, bytes));
}

static int save(struct import *import)
{
    struct store_source source = {
        .next = on_next, .release = on_release, .ctx = import, .keep_unlisted = true, .pack_limit = PACK_LIMIT};
    struct store_save_summary summary;
    struct errbuf err = {{0}};

    import->first_id = store_next_id(import->store);
    progress_begin(&import->progress, "importing", import->scan.bytes);
    int rc = store_save(import->store, &source, &summary, &err);
    progress_end(&import->progress);
    if (rc == 0)
        return TOOL_OK;
    return tool_failed(COMMAND, "%s; %s", import->err.text[0] ? import->err.text : err.text, import_outcome(rc));
}

/* ---- reports ---- */

static void print_line(const struct rdb_found *found)
{
    printf("%" PRIu64 "\t", found->db);
    tool_print_name(stdout, found->name, found->name_len);
    if (found->reason)
        printf("\tskipped: %s\n", found->reason);
    else if (found->cuckoo)
        printf("\tcuckoo filter, %s, %s in %" PRIu64 " slots, %" PRIu64 " bytes%s\n",
               log_count(found->nlayers, "sub-filter").text, log_count(found->items, "item").text, found->capacity,
               found->bytes, found->expires_ms ? ", with a time to live" : "");
    else
        printf("\t%s, %s of %" PRIu64 ", error rate %.3g, %" PRIu64 " bytes%s\n",
               log_count(found->nlayers, "layer").text, log_count(found->items, "item").text, found->capacity,
               found->params.error_rate, found->bytes, found->expires_ms ? ", with a time to live" : "");
}

static void print_object(struct buf *json, const struct import *import, const struct rdb_found *found)
{
    json_begin(json, NULL, '{');
    json_count(json, "db", found->db);
    json_bytes(json, "name", (struct slice){found->name, found->name_len});
    json_str(json, "type", found->type_name);
    if (!found->reason || found->nlayers > 0) {
        JSON_COUNTS(json, {"layers", found->nlayers}, {"items", found->items}, {"capacity", found->capacity});
        json_real(json, "error_rate", found->params.error_rate);
        JSON_COUNTS(json, {"expansion", found->params.expansion}, {"bytes", found->bytes});
    }
    json_count(json, "expires_ms", (uint64_t)found->expires_ms);
    json_bool(json, import->list ? "possible" : "imported", !found->reason);
    if (found->reason)
        output_string(json, "reason", found->reason);
    json_end(json, '}');
}

static void print_json(struct buf *json, const struct import *import)
{
    const struct rdb_scan *scan = &import->scan;

    output_string(json, "file", scan->path);
    json_count(json, "rdb", scan->summary.version);
    output_string(json, "engine", scan->summary.engine);
    json_bool(json, "valkey", scan->summary.valkey);
    json_bool(json, "checksum", scan->summary.checked);
    json_count(json, "keys", scan->summary.keys);
    json_begin(json, "filters", '[');
    for (size_t i = 0; i < scan->n; i++)
        if (is_selected(import, &scan->found[i]))
            print_object(json, import, &scan->found[i]);
    json_end(json, ']');
    json_begin(json, "others", '{');
    for (size_t i = 0; i < scan->nkinds; i++)
        json_count(json, scan->kinds[i].name, scan->kinds[i].keys);
    json_end(json, '}');
    json_end(json, '}');
}

static void print_text(const struct import *import)
{
    const struct rdb_scan *scan = &import->scan;
    uint64_t filters = 0, items = 0, bytes = 0, skipped = 0;

    for (size_t i = 0; i < scan->n; i++) {
        const struct rdb_found *found = &scan->found[i];

        if (!is_selected(import, found))
            continue;
        if (import->list || found->reason)
            print_line(found);
        skipped += found->reason != NULL;
        filters += !found->reason;
        items += found->reason ? 0 : found->items;
        bytes += found->reason ? 0 : found->bytes;
    }
    printf("%s: RDB %u%s%s%s: %s%s with %s, %" PRIu64 " bytes; %" PRIu64 " skipped\n", scan->path,
           scan->summary.version, scan->summary.engine[0] ? " of version " : "", scan->summary.engine,
           scan->summary.valkey ? " of Valkey" : "", import->list ? "" : "imported ", log_count(filters, "filter").text,
           log_count(items, "item").text, bytes, skipped);
    if (scan->nkinds > 0)
        printf("other values, not imported:");
    for (size_t i = 0; i < scan->nkinds; i++)
        printf("%s %" PRIu64 " %s", i > 0 ? "," : "", scan->kinds[i].keys, scan->kinds[i].name);
    if (scan->nkinds > 0)
        putchar('\n');
}

static void warn(const struct rdb_scan *scan)
{
    unsigned known = scan->summary.valkey ? RDB_KNOWN_VALKEY : RDB_KNOWN;
    if (scan->summary.version > known)
        fprintf(stderr,
                "bloomery " COMMAND ": warning: %s has version %u of RDB, %u is the newest that is known here: what is "
                "new in it may be misread\n",
                scan->path, scan->summary.version, known);
    if (!scan->summary.checked)
        fprintf(stderr, "bloomery " COMMAND ": warning: %s has no checksum: damage cannot be detected\n", scan->path);
    if (scan->summary.end < scan->size)
        fprintf(stderr,
                "bloomery " COMMAND ": warning: %s has %" PRIu64
                " unread bytes after its end; in an append-only file these are commands\n",
                scan->path, scan->size - scan->summary.end);
}

/* Values of bloomery.so, in a form of its own. */
static uint64_t values_of_module(const struct rdb_scan *scan)
{
    for (size_t i = 0; i < scan->nkinds; i++)
        if (strcmp(scan->kinds[i].name, DUMP_TYPE_NAME) == 0)
            return scan->kinds[i].keys;
    return 0;
}

static int conclude(const struct import *import, const struct tool_args *args)
{
    const struct rdb_scan *scan = &import->scan;
    size_t skipped = 0;

    struct output out;
    struct buf *json = output_single(&out, args);
    if (json)
        print_json(json, import);
    else
        print_text(import);
    int status = output_end(&out, TOOL_OK);
    for (size_t i = 0; i < scan->n; i++)
        skipped += is_selected(import, &scan->found[i]) && scan->found[i].reason;
    if (import->list || status != TOOL_OK)
        return status;
    if (values_of_module(scan) > 0)
        return tool_failed(COMMAND, "%s of bloomery.so cannot be read from a file: use 'bloomery move' on the engine",
                           log_count(values_of_module(scan), "filter").text);
    if (skipped == 0)
        return TOOL_OK;
    return tool_failed(COMMAND, "%s %s been skipped", log_count(skipped, "filter").text, skipped == 1 ? "has" : "have");
}

/* ---- the subcommand ---- */

static int read_options(struct import *import, const struct tool_args *args)
{
    const char *prefix = tool_option(args, "--prefix");

    import->list = tool_option(args, "--list") != NULL;
    import->prefix = prefix ? prefix : "";
    import->any_db = !tool_option(args, "--db");
    import->into_one = tool_option(args, "--into") != NULL;
    if (tool_number(args, "--db", 0, INT32_MAX, &import->db) != TOOL_OK ||
        tool_number(args, "--into", 0, DATABASES_MAX - 1, &import->into) != TOOL_OK)
        return TOOL_USAGE;
    if (args->npositional > 1 || (args->npositional == 0 && !import->list))
        return tool_misused(COMMAND, "--rdb needs one argument, DATADIR%s", import->list ? ", or none" : "");
    return TOOL_OK;
}

static int fill(struct import *import, const char *datadir)
{
    TRY(import_store_open(COMMAND, datadir, &import->store));
    import->databases = store_checkpoint(import->store).databases;
    int rc = refuse_known_names(import);
    if (rc == TOOL_OK && !import->list)
        rc = save(import);
    return rc;
}

int import_rdb(const struct tool_args *args)
{
    struct import import = {0};
    struct errbuf err = {{0}};
    int rc = read_options(&import, args);

    if (rc != TOOL_OK)
        return rc;
    if (bloom_pool_create(&import.pool) != 0)
        return tool_failed(COMMAND, "out of memory");
    if (rdb_scan_open(&import.scan, tool_option(args, "--rdb"), &err) != 0) {
        rc = tool_failed(COMMAND, "%s: %s%s", tool_option(args, "--rdb"), err.text,
                         import.list ? "" : "; nothing was imported");
    } else {
        warn(&import.scan);
        refuse_expired(&import);
        int twins = refuse_twins(&import, &err);
        if (twins != 0 && !import.list)
            rc = tool_failed(COMMAND, "%s: %s; nothing was imported", import.scan.path,
                             twins < 0 ? "out of memory" : err.text);
        else if (args->npositional == 1)
            rc = fill(&import, args->positional[0]);
        STEP(rc, conclude(&import, args));
    }
    store_close(import.store);
    rdb_scan_close(&import.scan);
    bloom_pool_destroy(import.pool);
    return rc;
}
