/* bloomery find: which SSTables of a directory may hold these partition keys, by their filters alone. An SSTable
 * without a readable filter is not ruled out: databases would read it, too. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cql_key.h"
#include "filter_file.h"
#include "murmur3.h"
#include "output.h"
#include "sstable_walk.h"

#define COMMAND "find"

struct find {
    char **keys; /* as given */
    struct bloom_hash *hashes;
    unsigned nkeys;
    struct output out;
    uint64_t looked_at, found;
    int status;
};

static struct slice slice_of(struct sstable_part part)
{
    return (struct slice){part.ptr, part.len};
}

/* `filter` is the reason why it is not ruled out. */
static void print_found(struct find *find, unsigned key, const struct found_sstable *sstable, const char *filter)
{
    struct buf *json = output_object(&find->out);

    if (json) {
        output_string(json, "key", find->keys[key]);
        output_string(json, "file", sstable->shown);
        json_bytes(json, "keyspace", slice_of(sstable->name.keyspace));
        json_bytes(json, "table", slice_of(sstable->name.table));
        json_bytes(json, "generation", slice_of(sstable->name.generation));
        json_str(json, "filter", filter);
        json_end(json, '}');
    } else if (find->nkeys > 1) {
        printf("%s\t%s\n", find->keys[key], sstable->shown);
    } else {
        printf("%s\n", sstable->shown);
    }
    find->found++;
}

static void not_ruled_out(struct find *find, const struct found_sstable *sstable, const char *filter)
{
    for (unsigned i = 0; i < find->nkeys; i++)
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
    for (unsigned i = 0; i < find->nkeys; i++) {
        int may_have = filter_file_query(&file, find->hashes[i]);
        if (may_have < 0) {
            find->status = tool_failed(COMMAND, "%s: %s; it cannot be ruled out", sstable->filter, strerror(-may_have));
            print_found(find, i, sstable, "unreadable");
        } else if (may_have) {
            print_found(find, i, sstable, "may hold it");
        }
    }
    filter_file_close(&file);
}

static void on_error(void *ctx, const char *path, const char *reason)
{
    ((struct find *)ctx)->status = tool_failed(COMMAND, "%s: %s", path, reason);
}

static int hash_keys(struct find *find)
{
    static unsigned char key[CQL_KEY_MAX];
    struct errbuf err = {{0}};
    size_t len;

    find->hashes = calloc(find->nkeys, sizeof(*find->hashes));
    if (!find->hashes)
        return tool_failed(COMMAND, "%s", strerror(ENOMEM));
    for (unsigned i = 0; i < find->nkeys; i++) {
        if (cql_key_parse(find->keys[i], strlen(find->keys[i]), key, &len, &err) != CQL_KEY_OK)
            return tool_misused(COMMAND, "the key '%s': %s", find->keys[i], err.text);
        find->hashes[i] = murmur3_hash(key, len);
    }
    return TOOL_OK;
}

static int run(const struct tool_args *args)
{
    struct find find = {.keys = args->positional + 1, .nkeys = args->npositional - 1, .status = TOOL_OK};
    const struct sstable_walk walk = {
        .on_sstable = on_sstable, .on_error = on_error, .ctx = &find, .all = tool_option(args, "--all") != NULL};
    int rc = hash_keys(&find);

    if (rc == TOOL_OK) {
        output_begin(&find.out, args, true);
        if (sstable_walk(&walk, args->positional[0]) != 0)
            find.status = tool_failed(COMMAND, "%s", strerror(ENOMEM));
        find.status = output_end(&find.out, find.status);
        if (find.status == TOOL_OK && find.looked_at == 0)
            find.status = tool_failed(COMMAND, "%s: there is no SSTable below it", args->positional[0]);
        rc = find.status != TOOL_OK ? find.status : find.found ? TOOL_OK : TOOL_NONE;
    }
    free(find.hashes);
    return rc;
}

static const struct tool_option options[] = {
    {.name = "--all",
     .doc = "Includes SSTables that reads do not use: snapshots, backups, uploads, secondary indexes."},
    {.name = "--json",
     .doc = "An array of objects: key, file, keyspace, table, generation, and filter ('may hold it', 'missing', "
            "'unreadable')."},
    {.name = NULL},
};

const struct tool_command tool_find_command = {
    .name = COMMAND,
    .arguments = "DIR KEY...",
    .min = 2,
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
                "bloomery find /var/lib/scylla/data/ks 'composite(int:5,text:abc)' --json",
    .greps = true,
    .run = run,
};
