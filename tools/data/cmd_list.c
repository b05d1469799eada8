/* bloomery list: the filters of a data directory and the files of each, according to the MANIFEST. It only reads the
 * MANIFEST, which is replaced as a whole, so a daemon may be running. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "bloom_layout.h"
#include "fsops.h"
#include "id_map.h"
#include "log_text.h"
#include "manifest_file.h"
#include "name_code.h"
#include "output.h"

#define COMMAND "list"

struct list {
    const char *datadir, *name; /* NULL: all names */
    bool any_db;
    unsigned db;
    struct databases databases;
    struct output out;
    uint64_t filters;
    struct id_map names; /* hashes of the keys so far */
    uint64_t doubles;
};

static uint64_t count_items(const struct manifest_filter *filter)
{
    uint64_t items = 0;

    for (unsigned i = 0; i < filter->nlayers; i++)
        items += filter->layers[i].items - filter->layers[i].turn.base;
    return items;
}

/* The name, percent-encoded; valid until the next call. */
static struct slice name_of(const struct manifest_filter *filter)
{
    static char text[3 * MANIFEST_MAX_NAME];
    size_t prefix = database_prefix_of_key(filter->name, filter->name_len), len = filter->name_len - prefix;

    name_encode(filter->name + prefix, len, text);
    return (struct slice){text, name_encoded_len(filter->name + prefix, len)};
}

static unsigned db_of(const struct list *list, const struct manifest_filter *filter)
{
    return databases_number(&list->databases, database_of_key(filter->name, filter->name_len));
}

/* Passes the path of each file to one of the two. */
static void print_files(const struct manifest_filter *filter, struct buf *json)
{
    char file[FILE_NAME_SIZE], path[sizeof(FILTERS_DIR "/") + FILE_NAME_SIZE];

    for (unsigned i = 0; i < (filter->pack ? 1 : filter->nlayers); i++) {
        struct file_name name = {.kind = FILE_PACK, .number = filter->pack};
        if (!filter->pack)
            name = manifest_layer_file(filter, i);
        file_name_format(&name, file);
        snprintf(path, sizeof(path), FILTERS_DIR "/%s", file);
        if (json)
            json_str(json, NULL, path);
        else
            printf("%s%s", i > 0 ? "," : "", path);
    }
}

static void print_line(const struct list *list, const struct manifest_filter *filter)
{
    unsigned db = db_of(list, filter);

    struct slice name = name_of(filter);

    printf("%" PRIu64 "\t%.*s\t%s, %s, %" PRIu64 " bytes", filter->id, (int)name.len, name.ptr,
           log_count(filter->nlayers, "layer").text, log_count(count_items(filter), "item").text,
           manifest_filter_bytes(filter));
    if (db)
        printf(", database %u", db);
    if (bloom_params_is_cuckoo(&filter->params))
        printf(", cuckoo");
    if (filter->params.key)
        printf(", KEYED %016" PRIx64, filter->params.key);
    putchar('\t');
    print_files(filter, NULL);
    if (filter->pack)
        printf(" at byte %" PRIu64, filter->pack_offset);
    putchar('\n');
}

static void print_object(struct buf *json, const struct list *list, const struct manifest_filter *filter)
{
    JSON_COUNTS(json, {"id", filter->id}, {"db", db_of(list, filter)});
    json_bytes(json, "name", name_of(filter));
    JSON_COUNTS(json, {"layers", filter->nlayers}, {"items", count_items(filter)},
                {"bytes", manifest_filter_bytes(filter)}, {"expires_ms", (uint64_t)filter->expires_ms});
    json_str(json, "layout", bloom_variant_name(filter->variant));
    json_begin(json, "files", '[');
    print_files(filter, json);
    json_end(json, ']');
    if (filter->pack)
        json_count(json, "offset", filter->pack_offset);
    char key[17];
    snprintf(key, sizeof(key), "%016" PRIx64, filter->params.key);
    if (filter->params.key)
        json_str(json, "key", key);
    json_end(json, '}');
}

static int print_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    struct list *list = ctx;

    (void)err;
    size_t prefix = database_prefix_of_key(filter->name, filter->name_len), len = filter->name_len - prefix;
    if (!list->any_db && db_of(list, filter) != list->db)
        return 0;
    if (list->name && (len != strlen(list->name) || memcmp(filter->name + prefix, list->name, len) != 0))
        return 0;
    struct buf *json = output_object(&list->out);
    if (json)
        print_object(json, list, filter);
    else
        print_line(list, filter);
    list->filters++;
    uint64_t hash = XXH3_64bits(filter->name, filter->name_len);
    hash += hash == 0;
    list->doubles += id_map_has(&list->names, hash);
    if (id_map_has(&list->names, hash))
        tool_failed(COMMAND, "database %u has two filters of the name %.*s: no daemon starts with them",
                    db_of(list, filter), (int)name_of(filter).len, name_of(filter).ptr);
    return id_map_set(&list->names, hash, NULL);
}

static int gone(void *ctx, uint64_t id, struct errbuf *err)
{
    (void)ctx, (void)id, (void)err;
    return 0;
}

/* Prints the readable part of a damaged MANIFEST, which may include outdated records. */
static void print_readable(struct list *list)
{
    const struct manifest_sink sink = {.on_filter = print_filter, .on_gone = gone, .ctx = list};
    const struct fsops *fs = fsops_posix();
    struct manifest_parser parser;
    char path[4096];
    int fd;

    snprintf(path, sizeof(path), "%s/" MANIFEST_NAME, list->datadir);
    if (fs->open(fs->ctx, path, FS_READ, &fd) != 0)
        return;
    if (manifest_parser_init(&parser, &sink) == 0)
        (void)manifest_file_parse(fs, fd, &parser, &(struct errbuf){{0}});
    manifest_parser_deinit(&parser);
    fs->close(fs->ctx, fd);
}

static int run_list(const struct tool_args *args)
{
    struct list list = {
        .datadir = args->positional[0], .name = tool_option(args, "--name"), .any_db = !tool_option(args, "--db")};
    const struct manifest_sink sink = {.on_filter = print_filter, .ctx = &list};
    struct errbuf err = {{0}};

    TRY(tool_read_database(args, &list.db));
    list.databases = tool_read_databases(list.datadir);
    output_begin(&list.out, args, true);
    int rc = tool_read_manifest(list.datadir, &sink, NULL, &err);
    if (rc != TOOL_OK) {
        print_readable(&list);
        rc = tool_failed(COMMAND, "%s", err.text);
    }
    id_map_deinit(&list.names);
    rc = output_end(&list.out, rc == TOOL_OK && list.doubles ? TOOL_FAILED : rc);
    if (rc != TOOL_OK || list.filters)
        return rc;
    if (!list.name) {
        fprintf(stderr,
                "bloomery " COMMAND ": the last save of %s has no %sfilter; changes since then are in the log\n",
                list.datadir, list.any_db ? "" : "such ");
        return TOOL_OK;
    }
    return tool_failed(COMMAND, "the last save of %s has no filter '%s'%s; changes since then are in the log",
                       list.datadir, list.name, list.any_db ? "" : " in this database");
}

static const struct tool_option options[] = {
    {.name = "--name", .value = "NAME", .doc = "Only the filters of this name; fails if there is none."},
    TOOL_DATABASE_OPTION("Only the filters of this database."),
    {.name = "--json",
     .doc =
         "An array of objects: id, db, name, layers, items, bytes, expires_ms (0: never), "
         "layout (na, me, ka, redisbloom, redisbloom32 or cuckoo), files, and offset for a filter in a pack; key, the "
         "id, of a KEYED filter."},
    {.name = NULL},
};

const struct tool_command tool_list_command = {
    .name = COMMAND,
    .arguments = "DATADIR",
    .summary = "Lists the filters of a data directory and their files.",
    .text = "Reads only the MANIFEST, so a daemon may be running on DATADIR; changes in the log are missing. One line "
            "per filter: its id, its name (every byte except letters, digits, _ - . as %XX), its contents, its files. "
            "If the MANIFEST is damaged, the command prints the readable part, and fails.",
    .options = options,
    .examples = "bloomery list /var/lib/bloomery --json | jq '.[] | select(.items > 1000000) | .name'",
    .run = run_list,
};
