/* bloomery find: which SSTables of a directory may hold these partition keys, by their filters alone. An SSTable
 * without a readable filter is not ruled out: databases would read it, too. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "filter_file.h"
#include "filter_load.h"
#include "find_keys.h"
#include "output.h"
#include "sstable_walk.h"

#define COMMAND "find"

/* From so many keys on a filter is read as a whole. */
#define MANY 256

struct find {
    struct find_keys keys;
    bool *present;  /* of the block's keys; with --absent, otherwise NULL */
    bool name_keys; /* in lines */
    struct output out;
    uint64_t looked_at, found;
    int status;
};

static struct slice slice_of(struct sstable_part part)
{
    return (struct slice){part.ptr, part.len};
}

/* `filter` is the reason why it is not ruled out. */
static void print_found(struct find *find, size_t key, const struct found_sstable *sstable, const char *filter)
{
    if (find->present) {
        find->present[key] = true;
        return;
    }
    struct buf *json = output_object(&find->out);
    struct slice text = find_keys_text(&find->keys, key);
    if (json) {
        json_bytes(json, "key", text);
        output_string(json, "file", sstable->shown);
        json_bytes(json, "keyspace", slice_of(sstable->name.keyspace));
        json_bytes(json, "table", slice_of(sstable->name.table));
        json_bytes(json, "generation", slice_of(sstable->name.generation));
        json_str(json, "filter", filter);
        json_end(json, '}');
    } else if (find->name_keys) {
        fwrite(text.ptr, 1, text.len, stdout);
        printf("\t%s\n", sstable->shown);
    } else {
        printf("%s\n", sstable->shown);
    }
    find->found++;
}

static void not_ruled_out(struct find *find, const struct found_sstable *sstable, const char *filter)
{
    for (size_t i = 0; i < find->keys.n; i++)
        print_found(find, i, sstable, filter);
}

static void unreadable(struct find *find, const struct found_sstable *sstable, const char *reason)
{
    find->status = tool_failed(COMMAND, "%s: %s; it cannot be ruled out", sstable->filter, reason);
    not_ruled_out(find, sstable, "unreadable");
}

/* An SSTable that is gone has been compacted: the walk visits its replacement, too (sstable_walk.h). */
static bool is_there(const char *path)
{
    const struct fsops *fs = fsops_posix();
    struct fs_stat st;

    return fs->stat(fs->ctx, path, &st) != -ENOENT;
}

/* A few bytes of the file for each key. */
static void ask_file(struct find *find, const struct found_sstable *sstable, const struct filter_file *file)
{
    for (size_t i = 0; i < find->keys.n; i++) {
        int may_have = filter_file_query(file, find->keys.hashes[i]);
        if (may_have < 0) {
            find->status = tool_failed(COMMAND, "%s: %s; it cannot be ruled out", sstable->filter, strerror(-may_have));
            print_found(find, i, sstable, "unreadable");
        } else if (may_have) {
            print_found(find, i, sstable, "may hold it");
        }
    }
}

/* All of the file, once. */
static void ask_loaded(struct find *find, const struct found_sstable *sstable, const struct filter_file *file)
{
    struct bloom_alone loaded;
    struct errbuf err = {{0}};
    if (loaded_filter_read(&loaded, file, NULL, &err) != 0) {
        unreadable(find, sstable, err.text);
        return;
    }
    for (size_t i = 0; i < find->keys.n; i++) {
        if (bloom_filter_query(loaded.filter, find->keys.hashes[i]))
            print_found(find, i, sstable, "may hold it");
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
        not_ruled_out(find, sstable, "missing");
        return;
    }
    int rc = filter_file_open(&file, fsops_posix(), sstable->filter, NULL, &err);
    if (rc != 0) {
        if (rc != -ENOENT || is_there(sstable->shown))
            unreadable(find, sstable, err.text);
        return;
    }
    (find->keys.n < MANY ? ask_file : ask_loaded)(find, sstable, &file);
    filter_file_close(&file);
}

static void on_error(void *ctx, const char *path, const char *reason)
{
    ((struct find *)ctx)->status = tool_failed(COMMAND, "%s: %s", path, reason);
}

static void print_absent(struct find *find)
{
    for (size_t i = 0; i < find->keys.n; i++) {
        struct slice text = find_keys_text(&find->keys, i);
        struct buf *json = find->present[i] ? NULL : output_object(&find->out);
        if (find->present[i])
            continue;
        find->found++;
        if (json) {
            json_bytes(json, "key", text);
            json_end(json, '}');
        } else {
            fwrite(text.ptr, 1, text.len, stdout);
            putchar('\n');
        }
    }
}

/* Asks for the block's keys. */
static int find_block(struct find *find, const struct tool_args *args)
{
    const struct sstable_walk walk = {
        .on_sstable = on_sstable, .on_error = on_error, .ctx = find, .all = tool_option(args, "--all") != NULL};
    if (tool_option(args, "--absent")) {
        find->present = calloc(find->keys.n, sizeof(*find->present));
        if (!find->present)
            return tool_failed(COMMAND, "%s", strerror(ENOMEM));
    }
    find->looked_at = 0;
    if (sstable_walk(&walk, args->positional[0]) != 0)
        find->status = tool_failed(COMMAND, "%s", strerror(ENOMEM));
    else if (find->status == TOOL_OK && find->looked_at == 0)
        find->status = tool_failed(COMMAND, "%s: there is no SSTable below it", args->positional[0]);
    else if (find->present &&
             find->status == TOOL_OK) /* where not all could be looked at, nothing is known to be absent */
        print_absent(find);
    free(find->present);
    find->present = NULL;
    return find->status;
}

static int run(const struct tool_args *args)
{
    struct find find = {.status = TOOL_OK};
    int rc = find_keys_open(&find.keys, args);
    if (rc != TOOL_OK)
        return rc;
    find.name_keys = tool_option(args, "--keys-from") || args->npositional > 2;
    output_begin(&find.out, args, true);
    while ((rc = find_keys_next(&find.keys)) == TOOL_OK && find.keys.n > 0)
        find_block(&find, args);
    find_keys_close(&find.keys);
    rc = output_end(&find.out, rc != TOOL_OK ? rc : find.status);
    return rc != TOOL_OK ? rc : find.found ? TOOL_OK : TOOL_NONE;
}

static const struct tool_option options[] = {
    {.name = "--keys-from",
     .value = "FILE",
     .doc = "Reads the keys from a file, a line each, or with - from the standard input: millions of them, for an "
            "audit of repairs "
            "or deletions. They are asked for in blocks of a million, for which each filter is read once."},
    {.name = "--absent", .doc = "Prints the keys that no SSTable can have, instead of those that one may have."},
    {.name = "--all",
     .doc = "Includes SSTables that reads do not use: snapshots, backups, uploads, secondary indexes."},
    {.name = "--json",
     .doc = "An array of objects: key, file, keyspace, table, generation, and filter ('may hold it', 'missing', "
            "'unreadable')."},
    {.name = NULL},
};

const struct tool_command tool_find_command = {
    .name = COMMAND,
    .arguments = "DIR [KEY...]",
    .min = 1,
    .max = TOOL_MANY,
    .summary = "Finds the SSTables of a directory that may hold these partition keys.",
    .text = "DIR is the directory of a table, of a keyspace, or a whole data directory of Cassandra or ScyllaDB. "
            "The command reads only the filters, a few bytes of each. So it takes milliseconds, where 'nodetool "
            "getsstables' asks a running node, and works on copies. It prints the Data.db of each SSTable that "
            "may hold the key; with several keys the key before it, and a tab. All other SSTables certainly do "
            "not hold it. An SSTable whose filter is missing (written with bloom_filter_fp_chance 1) or "
            "unreadable is printed, too.\n"
            "\n"
            "A key is written with its type:\n"
            "  text:abc  ascii:abc  int:-5  bigint:7  smallint:1  tinyint:1  varint:123456789012345678901\n"
            "  uuid:123e4567-e89b-12d3-a456-426614174000  timeuuid:...  blob:0x0aff  boolean:true\n"
            "  inet:10.0.0.1  double:1.5  float:1.5  decimal:1.50  date:2023-11-14  time:12:30:00\n"
            "  timestamp:1700000000000  timestamp:2023-11-14T22:13:20Z\n"
            "  composite(int:5,text:'it''s')   the columns of a partition key of several columns, in their order",
    .options = options,
    .examples = "bloomery find /var/lib/cassandra/data/ks/users-* uuid:123e4567-e89b-12d3-a456-426614174000\n"
                "bloomery find /var/lib/scylla/data/ks 'composite(int:5,text:abc)' --json\n"
                "sed s/^/uuid:/ ids | bloomery find /var/lib/cassandra/data/ks/users-* --keys-from - --absent",
    .greps = true,
    .run = run,
};
