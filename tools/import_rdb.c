/* Each filter goes into the database that it was in, or all into the one that the user names. */
#include "import_rdb.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "import_store.h"
#include "name_code.h"
#include "progress.h"
#include "rdb_scan.h"

#define COMMAND    "import"
#define PACK_LIMIT (16u << 10) /* as the daemon's save-pack-limit */

struct import {
    struct rdb_scan scan;
    bool list, json;
    bool any_db;
    uint64_t db;
    bool into_one;
    uint64_t into;
    const char *prefix;
    struct databases databases; /* of the data directory */
    struct bloom_pool *pool;
    struct store *store;
    uint64_t first_id;
    size_t next;
    uint64_t done; /* bytes of filters that the save has taken */
    struct progress progress;
    struct errbuf err; /* of the filter that could not be made */
};

/* ---- names ---- */

static uint64_t goes_into(const struct import *import, const struct rdb_found *found)
{
    return import->into_one ? import->into : found->db;
}

/* The filter's key in the data directory, to be freed; NULL without memory, or if it has none: *why_out is the reason.
 */
static struct tool_key *key_in_store(const struct import *import, const struct rdb_found *found, const char **why_out)
{
    uint64_t db = goes_into(import, found);
    struct tool_key *key = malloc(sizeof(*key));

    *why_out = NULL;
    if (!key)
        return NULL;
    if (db >= DATABASES_MAX)
        *why_out = "its database has a number above 1023: --into N puts it into another one";
    else if (!tool_key_of(&import->databases, (unsigned)db, import->prefix, found->name, found->name_len, key))
        *why_out = "its name is longer than 65535 bytes";
    if (!*why_out)
        return key;
    free(key);
    return NULL;
}

/* As `bloomery list` writes them. */
static void print_name(FILE *stream, const char *name, size_t len)
{
    char *text = malloc(name_encoded_len(name, len) + 1);

    if (!text)
        return;
    name_encode(name, len, text);
    fwrite(text, 1, name_encoded_len(name, len), stream);
    free(text);
}

/* ---- which of them ---- */

static bool is_meant(const struct import *import, const struct rdb_found *found)
{
    return import->any_db || found->db == import->db;
}

static void refuse_expired(struct import *import)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    for (size_t i = 0; i < import->scan.n; i++) {
        struct rdb_found *found = &import->scan.found[i];

        if (found->expires_ms != 0 && found->expires_ms <= (int64_t)now.tv_sec * 1000)
            rdb_scan_refuse(&import->scan, found, "its time to live is over");
    }
}

static int refuse_known_names(struct import *import)
{
    for (size_t i = 0; i < import->scan.n; i++) {
        struct rdb_found *found = &import->scan.found[i];
        struct errbuf err = {{0}};
        const char *why;

        if (found->reason || !is_meant(import, found))
            continue;
        struct tool_key *key = key_in_store(import, found, &why);
        int rc = why ? 0 : !key ? -ENOMEM : store_find(import->store, key->bytes, key->len, NULL, &err);
        free(key);
        if (rc == 0)
            rdb_scan_refuse(&import->scan, found, why ? why : "there is a filter of this name already");
        else if (rc != STORE_NOT_FOUND)
            return tool_failed(COMMAND, "%s", rc == -ENOMEM ? "out of memory" : err.text);
    }
    return TOOL_OK;
}

/* ---- the save ---- */

static int on_next(void *ctx, struct store_item *item)
{
    struct import *import = ctx;
    struct rdb_scan *scan = &import->scan;
    struct bloom_filter *filter;
    const char *why;

    while (import->next < scan->n &&
           (scan->found[import->next].reason || !is_meant(import, &scan->found[import->next])))
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
    bloom_filter_deinit(item->filter);
    free(item->filter);
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
    return tool_failed(COMMAND, "%s; nothing has been imported", import->err.text[0] ? import->err.text : err.text);
}

/* ---- what is told ---- */

static void print_line(const struct rdb_found *found)
{
    printf("%" PRIu64 "\t", found->db);
    print_name(stdout, found->name, found->name_len);
    if (found->reason)
        printf("\tskipped: %s\n", found->reason);
    else
        printf("\t%u layers, %" PRIu64 " items of %" PRIu64 ", error rate %.3g, %" PRIu64 " bytes%s\n", found->nlayers,
               found->items, found->capacity, found->params.error_rate, found->bytes,
               found->expires_ms ? ", with a time to live" : "");
}

static void print_object(const struct import *import, const struct rdb_found *found)
{
    printf("{\"db\": %" PRIu64 ", \"name\": ", found->db);
    tool_print_json(stdout, found->name, found->name_len);
    if (!found->reason || found->nlayers > 0)
        printf(", \"layers\": %u, \"items\": %" PRIu64 ", \"capacity\": %" PRIu64
               ", \"error_rate\": %.17g, \"expansion\": %u, \"bytes\": %" PRIu64,
               found->nlayers, found->items, found->capacity, found->params.error_rate, found->params.expansion,
               found->bytes);
    printf(", \"expires_ms\": %" PRId64 ", \"%s\": ", found->expires_ms, import->list ? "possible" : "imported");
    printf("%s", found->reason ? "false, \"reason\": " : "true");
    if (found->reason)
        tool_print_json(stdout, found->reason, strlen(found->reason));
    putchar('}');
}

static void print_json(const struct import *import)
{
    const struct rdb_scan *scan = &import->scan;
    bool first = true;

    fputs("{\"file\": ", stdout);
    tool_print_json(stdout, scan->path, strlen(scan->path));
    printf(", \"rdb\": %u, \"engine\": ", scan->summary.version);
    tool_print_json(stdout, scan->summary.engine, strlen(scan->summary.engine));
    printf(", \"valkey\": %s, \"checksum\": %s, \"keys\": %" PRIu64 ",\n \"filters\": [",
           scan->summary.valkey ? "true" : "false", scan->summary.checked ? "true" : "false", scan->summary.keys);
    for (size_t i = 0; i < scan->n; i++) {
        if (!is_meant(import, &scan->found[i]))
            continue;
        fputs(first ? "\n  " : ",\n  ", stdout);
        print_object(import, &scan->found[i]);
        first = false;
    }
    fputs("],\n \"others\": {", stdout);
    for (size_t i = 0; i < scan->nkinds; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        tool_print_json(stdout, scan->kinds[i].name, strlen(scan->kinds[i].name));
        printf(": %" PRIu64, scan->kinds[i].keys);
    }
    fputs("}}\n", stdout);
}

static void print_text(const struct import *import)
{
    const struct rdb_scan *scan = &import->scan;
    uint64_t filters = 0, items = 0, bytes = 0, skipped = 0;

    for (size_t i = 0; i < scan->n; i++) {
        const struct rdb_found *found = &scan->found[i];

        if (!is_meant(import, found))
            continue;
        if (import->list || found->reason)
            print_line(found);
        skipped += found->reason != NULL;
        filters += !found->reason;
        items += found->reason ? 0 : found->items;
        bytes += found->reason ? 0 : found->bytes;
    }
    printf("%s: RDB %u%s%s%s: %s%" PRIu64 " filters with %" PRIu64 " items, %" PRIu64 " bytes; %" PRIu64 " skipped\n",
           scan->path, scan->summary.version, scan->summary.engine[0] ? " of version " : "", scan->summary.engine,
           scan->summary.valkey ? " of Valkey" : "", import->list ? "" : "imported ", filters, items, bytes, skipped);
    if (scan->nkinds > 0)
        printf("other values, not imported:");
    for (size_t i = 0; i < scan->nkinds; i++)
        printf("%s %" PRIu64 " %s", i > 0 ? "," : "", scan->kinds[i].keys, scan->kinds[i].name);
    if (scan->nkinds > 0)
        putchar('\n');
}

static void warn(const struct rdb_scan *scan)
{
    if (!scan->summary.checked)
        fprintf(stderr, "bloomery " COMMAND ": warning: %s has no checksum: damage would not be noticed\n", scan->path);
    if (scan->summary.end < scan->size)
        fprintf(stderr,
                "bloomery " COMMAND ": warning: %s goes on behind its end, with %" PRIu64
                " bytes that have not been read; in an append-only file these are commands\n",
                scan->path, scan->size - scan->summary.end);
}

static int conclude(const struct import *import)
{
    const struct rdb_scan *scan = &import->scan;
    size_t skipped = 0;

    import->json ? print_json(import) : print_text(import);
    for (size_t i = 0; i < scan->n; i++)
        skipped += is_meant(import, &scan->found[i]) && scan->found[i].reason;
    if (skipped == 0 || import->list)
        return TOOL_OK;
    return tool_failed(COMMAND, "%zu filters have been skipped", skipped);
}

/* ---- the subcommand ---- */

static int read_options(struct import *import, const struct tool_args *args)
{
    const char *db = tool_option(args, "--db"), *into = tool_option(args, "--into");
    const char *prefix = tool_option(args, "--prefix");

    import->list = tool_option(args, "--list") != NULL;
    import->json = tool_option(args, "--json") != NULL;
    import->prefix = prefix ? prefix : "";
    import->any_db = !db;
    if (db && !tool_parse_u64(db, 0, INT32_MAX, &import->db))
        return tool_misused(COMMAND, "--db '%s' is not the number of a database", db);
    import->into_one = into != NULL;
    if (into && !tool_parse_u64(into, 0, DATABASES_MAX - 1, &import->into))
        return tool_misused(COMMAND, "--into '%s' is not the number of a database, 0 to %d", into, DATABASES_MAX - 1);
    if (args->npositional > 1 || (args->npositional == 0 && !import->list))
        return tool_misused(COMMAND, "with --rdb there is one argument, DATADIR%s", import->list ? ", or none" : "");
    return TOOL_OK;
}

static int fill(struct import *import, const char *datadir)
{
    int rc = import_store_open(COMMAND, datadir, &import->store);

    if (rc != TOOL_OK)
        return rc;
    import->databases = store_checkpoint(import->store).databases;
    rc = refuse_known_names(import);
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
        rc = tool_failed(COMMAND, "%s: %s", tool_option(args, "--rdb"), err.text);
    } else {
        warn(&import.scan);
        refuse_expired(&import);
        if (args->npositional == 1)
            rc = fill(&import, args->positional[0]);
        if (rc == TOOL_OK)
            rc = conclude(&import);
    }
    store_close(import.store);
    rdb_scan_close(&import.scan);
    bloom_pool_destroy(import.pool);
    return rc;
}
