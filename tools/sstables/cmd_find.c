/* bloomery find: which SSTables of a directory, or filters of a server, may hold these partition keys, by their filters
 * alone. An SSTable without a readable filter is not ruled out: databases would read it, too. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_batch.h"
#include "filterdb.h"
#include "filter_load.h"
#include "find.h"
#include "sstable_keys.h"
#include "table.h"

/* From this number of keys on, a filter is read as a whole. */
#define MANY 256

/* In a directory. */
struct find {
    struct find_report *report;
    uint64_t looked_at;
};

static struct find_place place_of(const struct found_sstable *sstable)
{
    return (struct find_place){.shown = {sstable->shown, strlen(sstable->shown)}, .sstable = &sstable->name};
}

static void unreadable(struct find *find, const struct found_sstable *sstable, const char *reason)
{
    const struct find_place place = place_of(sstable);
    find->report->status = tool_failed(FIND_COMMAND, "%s: %s; it may hold the key", sstable->filter, reason);
    find_report_all(find->report, &place, "unreadable");
}

/* An SSTable that is gone has been compacted: the walk visits its replacement, too (table.h). */
static bool is_there(const char *path)
{
    const struct fsops *fs = fsops_posix();
    struct fs_stat st;

    return fs->stat(fs->ctx, path, &st) != -ENOENT;
}

/* A damaged file: its answers "certainly not" are worth nothing. */
static bool file_has(void *file, struct bloom_hash hash)
{
    return filter_file_query(file, hash) != 0;
}

static bool filter_has(void *filter, struct bloom_hash hash)
{
    return bloom_filter_query(filter, hash);
}

/* A few bytes of the file for each key. */
static void ask_file(struct find *find, const struct found_sstable *sstable, struct filter_file *file)
{
    struct errbuf err = {{0}};
    if (!sstable_keys_are_in(sstable->filter, file_has, file, &err)) {
        unreadable(find, sstable, err.text);
        return;
    }
    const struct find_place place = place_of(sstable);
    const struct find_keys *keys = &find->report->keys;
    for (size_t i = 0; i < keys->n; i++) {
        int may_have = filter_file_query(file, (struct bloom_hash){keys->h1[i], keys->h2[i]});
        if (may_have < 0)
            find->report->status =
                tool_failed(FIND_COMMAND, "%s: %s; it may hold the key", sstable->filter, fs_error_text(may_have));
        if (may_have)
            find_report_key(find->report, i, &place, may_have < 0 ? "unreadable" : "may hold it");
    }
}

/* All of the file, once. */
static void ask_loaded(struct find *find, const struct found_sstable *sstable, struct filter_file *file)
{
    struct bloom_alone loaded;
    struct errbuf err = {{0}};
    if (loaded_filter_read(&loaded, file, NULL, &err) != 0) {
        unreadable(find, sstable, err.text);
        return;
    }
    if (!sstable_keys_are_in(sstable->filter, filter_has, loaded.filter, &err)) {
        bloom_alone_deinit(&loaded);
        unreadable(find, sstable, err.text);
        return;
    }
    const struct find_place place = place_of(sstable);
    const struct find_keys *keys = &find->report->keys;
    for (size_t at = 0; at < keys->n; at += BLOOM_BATCH) {
        struct bloom_batch batch;
        bloom_batch_start_hashed(&batch, keys->h1 + at, keys->h2 + at,
                                 keys->n - at < BLOOM_BATCH ? keys->n - at : BLOOM_BATCH);
        for (uint32_t present = bloom_batch_query(&batch, loaded.filter); present; present &= present - 1)
            find_report_key(find->report, at + (size_t)__builtin_ctz(present), &place, "may hold it");
    }
    bloom_alone_deinit(&loaded);
}

static void on_sstable(void *ctx, const struct found_sstable *sstable)
{
    struct find *find = ctx;
    struct filter_file file;
    struct errbuf err = {{0}};

    find->looked_at++;
    if (!sstable->filter) {
        const struct find_place place = place_of(sstable);
        find_report_all(find->report, &place, "missing");
        return;
    }
    int rc = filter_file_open(&file, fsops_posix(), sstable->filter, NULL, &err);
    if (rc != 0) {
        if (rc != -ENOENT || is_there(sstable->shown))
            unreadable(find, sstable, err.text);
        return;
    }
    (find->report->keys.n < MANY ? ask_file : ask_loaded)(find, sstable, &file);
    filter_file_close(&file);
}

static void on_error(void *ctx, const char *path, const char *reason)
{
    ((struct find *)ctx)->report->status = tool_failed(FIND_COMMAND, "%s: %s", path, reason);
}

static void ask_directory(struct find_report *report, const struct tool_args *args)
{
    struct find find = {.report = report};
    const struct sstable_walk walk = {
        .on_sstable = on_sstable, .on_error = on_error, .ctx = &find, .all = tool_option(args, "--all") != NULL};
    if (sstable_walk(&walk, args->positional[0]) != 0)
        report->status = tool_failed(FIND_COMMAND, "%s", strerror(ENOMEM));
    else if (report->status == TOOL_OK && find.looked_at == 0)
        report->status = tool_failed(FIND_COMMAND, "%s: no SSTable below it", args->positional[0]);
}

/* Asks for the block's keys; `server`: NULL for a directory. False: continuing is of no use. */
static bool find_block(struct find_report *report, struct find_server *server, const struct tool_args *args)
{
    bool go_on = true;
    if (tool_option(args, "--absent")) {
        report->present = calloc(report->keys.n, sizeof(*report->present));
        if (!report->present) {
            report->status = tool_failed(FIND_COMMAND, "%s", strerror(ENOMEM));
            return false;
        }
    }
    if (!server) {
        ask_directory(report, args);
    } else if (find_server_ask(server, report) != TOOL_OK) {
        report->status = TOOL_FAILED;
        go_on = false;
    }
    if (report->present && report->status == TOOL_OK) /* otherwise nothing is known to be absent */
        find_report_absent(report);
    free(report->present);
    report->present = NULL;
    return go_on;
}

/* Connects if DIR is a URL. */
static int open_place(struct find_server *server, const struct tool_args *args, bool *is_server_out)
{
    struct tls_context *none;
    *is_server_out = strstr(args->positional[0], "://") != NULL;
    if (*is_server_out && tool_option(args, "--all"))
        return tool_misused(FIND_COMMAND, "--all is for a directory; for a server use --names");
    if (*is_server_out)
        return find_server_open(server, args, args->positional[0]);
    if (tool_option(args, "--names"))
        return tool_misused(FIND_COMMAND, "--names is for a server, but %s is a directory", args->positional[0]);
    return tls_options_read(args, false, &none);
}

static int run_find(const struct tool_args *args)
{
    struct find_report report = {.status = TOOL_OK};
    static struct find_server server;
    bool is_server, go_on = true;
    TRY(find_keys_open(&report.keys, args));
    int rc = open_place(&server, args, &is_server);
    if (rc != TOOL_OK) {
        find_server_close(&server);
        find_keys_close(&report.keys);
        return rc;
    }
    report.name_keys = tool_option(args, "--keys-from") || args->npositional > 2;
    output_begin(&report.out, args, true);
    while (go_on && (rc = find_keys_next(&report.keys)) == TOOL_OK && report.keys.n > 0)
        go_on = find_block(&report, is_server ? &server : NULL, args);
    find_server_close(&server);
    find_keys_close(&report.keys);
    rc = output_end(&report.out, rc != TOOL_OK ? rc : report.status);
    return rc != TOOL_OK ? rc : report.found ? TOOL_OK : TOOL_NONE;
}

static const struct tool_option options[] = {
    {.name = "--keys-from",
     .value = "FILE",
     .doc = "Reads the keys from a file, one per line, or with - from the standard input: up to millions, for an "
            "audit of repairs or deletions. Each filter is read once per block of a million keys."},
    {.name = "--absent", .doc = "Prints the keys that no SSTable can have, instead of keys that one may have."},
    {.name = "--all",
     .doc = "Includes SSTables that reads do not use: snapshots, backups, uploads, secondary indexes."},
    {.name = "--names",
     .value = "PATTERN",
     .doc = "With a server: queries filters with matching names, as in BF.FIND: 'shop.users/*' selects the SSTables "
            "of a table. The default is all filters, including those of the data directory."},
    {.name = "--json",
     .doc = "An array of objects: key; for a directory file, keyspace, table, generation, for a server name; and "
            "filter ('may hold it', 'missing', 'unreadable')."},
    TLS_OPTIONS,
    {.name = NULL},
};

const struct tool_command tool_find_command = {
    .name = FIND_COMMAND,
    .arguments = "DIR|URL [KEY...]",
    .summary = "Finds the SSTables of a directory, or the filters of a server, that may hold these partition keys.",
    .text =
        "DIR is the directory of a table, of a keyspace, or a whole data directory of Cassandra or ScyllaDB. The "
        "command reads only the filters, a few bytes of each, and asks each for the first and the last keys of its "
        "SSTable: "
        "one that lacks them is damaged, and rules nothing out. So it takes milliseconds, needs no running node, "
        "unlike 'nodetool getsstables', and works on copies. It prints the Data.db of each SSTable that may hold "
        "the key; with several keys the key before it, and a tab. All other SSTables certainly do not hold it. An "
        "SSTable whose filter is missing (written with bloom_filter_fp_chance 1) or unreadable is printed, "
        "too.\n\nWith a URL it asks the filters of a daemon by BF.FIND, and prints their names. " SERVER_CALL_URL "\n"
        "\n"
        "A key is written with its type:\n"
        "  text:abc  ascii:abc  int:-5  bigint:7  smallint:1  tinyint:1\n"
        "  uuid:123e4567-e89b-12d3-a456-426614174000  timeuuid:...  blob:0x0aff  boolean:true\n"
        "  inet:10.0.0.1  date:2023-11-14  time:12:30:00; others as blob:0x...\n"
        "  timestamp:1700000000000  timestamp:2023-11-14T22:13:20Z\n"
        "  composite(int:5,text:'it''s')   the columns of a partition key of several columns, in their order",
    .options = options,
    .examples = "bloomery find redis://127.0.0.1 --names 'ks.users/*' --keys-from keys --absent\n"
                "bloomery find /var/lib/cassandra/data/ks/users-* uuid:123e4567-e89b-12d3-a456-426614174000\n"
                "bloomery find /var/lib/scylla/data/ks 'composite(int:5,text:abc)' --json\n"
                "sed s/^/uuid:/ ids | bloomery find /var/lib/cassandra/data/ks/users-* --keys-from - --absent",
    .greps = true,
    .run = run_find,
};
