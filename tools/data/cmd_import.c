/* bloomery import: loads a Filter.db file as a filter of a data directory (or many from an RDB file: import_rdb.c). An
 * ordinary save writes it, which carries the other filters over without reading their bits. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bloom_layout.h"
#include "check_filter.h"
#include "filter_load.h"
#include "import.h"
#include "log_text.h"
#include "output.h"

#define COMMAND "import"

/* ---- a data directory to add filters to ---- */

static void on_report(void *ctx, enum store_severity severity, const char *text)
{
    fprintf(stderr, "bloomery %s: %s%s\n", (const char *)ctx, severity == STORE_WARNING ? "warning: " : "", text);
}

static int check_log(const char *command, const char *datadir, struct store *store)
{
    const struct store_checkpoint checkpoint = store_checkpoint(store);
    struct errbuf err = {{0}};
    int changes = log_has_changes(datadir, &checkpoint, on_report, (void *)command, &err);

    if (changes > 0)
        return tool_failed(command,
                           "%s: the log has changes that are not in the files yet; start the daemon and stop it by "
                           "SHUTDOWN SAVE first",
                           datadir);
    return changes == 0 ? TOOL_OK : tool_failed(command, "%s", err.text);
}

const char *import_outcome(int status)
{
    return status == STORE_IN_DOUBT ? "'bloomery list' shows whether the import is there" : "nothing was imported";
}

int import_store_open(const char *command, const char *datadir, struct store **store_out)
{
    struct store_options options = {.report = on_report, .report_ctx = (void *)command};
    struct errbuf err = {{0}};
    int rc;

    for (unsigned tries = 0;
         (rc = store_open(datadir, &options, store_out, &err)) == STORE_LOCKED && tool_lock_waits(&tries);)
        ;
    if (rc == STORE_LOCKED)
        return tool_failed(command, "%s; stop the daemon first", err.text);
    if (rc != 0)
        return tool_failed(command, "%s", err.text);
    return check_log(command, datadir, *store_out);
}

/* ---- one file ---- */

struct import {
    const char *datadir, *name;
    unsigned db;
    struct tool_key key;
    struct bloom_shape shape;
    struct bloom_params params;
    struct bloom_alone loaded;
    struct store *store;
    struct progress progress;
    uint64_t id;
    bool yielded;
};

static int on_next(void *ctx, struct store_item *item)
{
    struct import *import = ctx;

    if (import->yielded)
        return 0;
    import->yielded = true;
    *item = (struct store_item){.id = import->id,
                                .name = import->key.bytes,
                                .name_len = import->key.len,
                                .filter = import->loaded.filter,
                                .dirty = true};
    return 1;
}

static void on_release(void *ctx, struct store_item *item)
{
    (void)ctx;
    (void)item;
}

static int open_store(struct import *import)
{
    struct errbuf err = {{0}};
    TRY(import_store_open(COMMAND, import->datadir, &import->store));
    const struct store_checkpoint checkpoint = store_checkpoint(import->store);
    if (!tool_key_of(&checkpoint.databases, import->db, "", import->name, strlen(import->name), &import->key))
        return tool_misused(COMMAND, "the name is longer than %d bytes", STORE_MAX_NAME);
    int rc = store_find(import->store, import->key.bytes, import->key.len, &err);
    if (rc == 0)
        return tool_failed(COMMAND, "%s: the filter '%s' already exists", import->datadir, import->name);
    if (rc != STORE_NOT_FOUND)
        return tool_failed(COMMAND, "%s", err.text);
    import->id = store_next_id(import->store);
    return TOOL_OK;
}

static int report(const struct import *import, const struct tool_args *args)
{
    const char *variant = bloom_variant_name((enum bloom_variant)import->shape.variant);
    uint64_t bits = 64 * import->shape.nwords, items = bloom_filter_items(import->loaded.filter);

    struct output out;

    struct buf *json = output_single(&out, args);
    if (!json) {
        printf("%s: filter '%s': %s, k %u, %" PRIu64 " bits, about %s, capacity %" PRIu64 ", error rate %.3g\n",
               import->datadir, import->name, variant, import->shape.k, bits, log_count(items, "item").text,
               import->params.capacity, import->params.error_rate);
    } else {
        output_string(json, "name", import->name);
        json_str(json, "variant", variant);
        JSON_COUNTS(json, {"k", import->shape.k}, {"bits", bits}, {"items", items},
                    {"capacity", import->params.capacity});
        json_real(json, "rate", import->params.error_rate);
        json_end(json, '}');
    }
    return output_end(&out, TOOL_OK);
}

static void on_wrote(void *ctx, uint64_t bytes)
{
    progress_add(&((struct import *)ctx)->progress, bytes);
}

static int save(struct import *import, const struct tool_args *args)
{
    struct store_source source = {
        .next = on_next, .release = on_release, .wrote = on_wrote, .ctx = import, .keep_unlisted = true};
    struct store_save_summary summary;
    struct errbuf err = {{0}};

    progress_begin(&import->progress, "writing", 8 * import->shape.nwords);
    int rc = store_save(import->store, &source, &summary, &err);
    progress_end(&import->progress);

    if (rc != 0)
        return tool_failed(COMMAND, "%s; %s", err.text, import_outcome(rc));
    return report(import, args);
}

static int run_import(const struct tool_args *args)
{
    static const char *const of_rdb[] = {"--list", "--into", "--prefix"};

    static const char *const needed[] = {"DATADIR", "NAME", "FILE"};
    if (tool_option(args, "--rdb"))
        return import_rdb(args);
    for (size_t i = 0; i < sizeof(of_rdb) / sizeof(*of_rdb); i++)
        if (tool_option(args, of_rdb[i]))
            return tool_misused(COMMAND, "%s is for --rdb", of_rdb[i]);
    if (args->npositional < 3)
        return tool_misused(COMMAND, "%s is missing", needed[args->npositional]);
    struct import import = {.datadir = args->positional[0], .name = args->positional[1]};

    int rc = tool_read_database(args, &import.db);
    STEP(rc, loaded_filter_open(&import.loaded, args, args->positional[2], &import.params, &import.shape));
    STEP(rc, open_store(&import));
    STEP(rc, save(&import, args));
    store_close(import.store);
    bloom_alone_deinit(&import.loaded);
    return rc;
}

static const struct tool_option options[] = {
    FILTER_PARAMS_OPTIONS,
    TOOL_DATABASE_OPTION("The database for NAME (0); with --rdb only the filters of this database."),
    {.name = "--json",
     .doc = "The result as an object: name, variant, k, bits, items, capacity, rate. With --rdb, for each filter:"
            " db, name, type, layers, items, capacity, error_rate, expansion, bytes, expires_ms, and whether it was "
            "imported, or the reason why not; others counts the values of other types."},
    {.name = "--rdb",
     .value = "FILE",
     .group = "Filters of RedisBloom",
     .doc = "Imports all Bloom and cuckoo filters of RedisBloom from an RDB file of Redis or Valkey (BGSAVE, or "
            "redis-cli --rdb), "
            "with their names and times to live. All other values are skipped. Filters whose names DATADIR has "
            "are skipped, too, and the exit status is then 1."},
    {.name = "--list", .doc = "Shows the filters in FILE and imports nothing. DATADIR is optional."},
    {.name = "--into",
     .value = "N",
     .doc = "Puts the filters into this database; by default each filter keeps its "
            "database."},
    {.name = "--prefix",
     .value = "TEXT",
     .doc = "A prefix for each name, to distinguish equal names of two databases."},
    {.name = NULL},
};

const struct tool_command tool_import_command = {
    .name = COMMAND,
    .arguments = "[DATADIR [NAME FILE]]",
    .summary = "Adds a Filter.db file, or the filters of an RDB file, to a data directory.",
    .text = "The daemon must not be running on DATADIR, which is created if it does not exist; a running daemon "
            "imports files by BF.IMPORT. NAME must be free. A Filter.db of Cassandra or ScyllaDB becomes a filter"
            " of fixed size with unchanged bits.\n"
            "\n"
            "With --rdb, the Bloom and cuckoo filters of RedisBloom in an RDB file are imported instead, and keep "
            "their answers. "
            "The file is read and its checksum compared before anything is written. All filters come in one save:"
            " after an error there is none of them.",
    .options = options,
    .examples = "bloomery import /var/lib/bloomery users /var/lib/cassandra/data/ks/users-.../nb-1-big-Filter.db\n"
                "redis-cli -h redis.example.org --rdb dump.rdb && bloomery import --rdb dump.rdb /var/lib/bloomery",
    .run = run_import,
};
