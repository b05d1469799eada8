/* bloomery list: the filters of a data directory and the files that each of them is in, as the MANIFEST says. It only
 * reads the MANIFEST, which is replaced as a whole, so a daemon may be running. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsops.h"
#include "manifest_file.h"
#include "name_code.h"
#include "tool.h"

#define COMMAND "list"

struct list {
    const char *datadir, *name; /* NULL: all names */
    bool any_db;
    unsigned db;
    struct databases databases;
    bool json;
    uint64_t filters;
};

static uint64_t count_items(const struct manifest_filter *filter)
{
    uint64_t items = 0;

    for (unsigned i = 0; i < filter->nlayers; i++)
        items += filter->layers[i].items - filter->layers[i].turn.base;
    return items;
}

static void print_name(const struct manifest_filter *filter)
{
    static char text[3 * MANIFEST_MAX_NAME];

    size_t prefix = database_prefix_of_key(filter->name, filter->name_len), len = filter->name_len - prefix;

    name_encode(filter->name + prefix, len, text);
    fwrite(text, 1, name_encoded_len(filter->name + prefix, len), stdout);
}

static unsigned db_of(const struct list *list, const struct manifest_filter *filter)
{
    return databases_number(&list->databases, database_of_key(filter->name, filter->name_len));
}

static void print_files(const struct manifest_filter *filter, const char *quote)
{
    char file[FILE_NAME_SIZE];

    for (unsigned i = 0; i < (filter->pack ? 1 : filter->nlayers); i++) {
        struct file_name name = {.kind = FILE_PACK, .number = filter->pack};
        if (!filter->pack)
            name = manifest_layer_file(filter, i);
        file_name_format(&name, file);
        printf("%s%s" FILTERS_DIR "/%s%s", i > 0 ? "," : "", quote, file, quote);
    }
}

static void print_line(const struct list *list, const struct manifest_filter *filter)
{
    unsigned db = db_of(list, filter);

    printf("%" PRIu64 "\t", filter->id);
    print_name(filter);
    printf("\t%u layers, %" PRIu64 " items, %" PRIu64 " bytes", filter->nlayers, count_items(filter),
           manifest_filter_bytes(filter));
    if (db)
        printf(", database %u", db);
    putchar('\t');
    print_files(filter, "");
    if (filter->pack)
        printf(" at byte %" PRIu64, filter->pack_offset);
    putchar('\n');
}

static void print_json(const struct list *list, const struct manifest_filter *filter)
{
    printf("%s{\"id\":%" PRIu64 ",\"db\":%u,\"name\":\"", list->filters ? ",\n " : "", filter->id, db_of(list, filter));
    print_name(filter);
    printf("\",\"layers\":%u,\"items\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"expires_ms\":%" PRId64 ",\"files\":[",
           filter->nlayers, count_items(filter), manifest_filter_bytes(filter), filter->expires_ms);
    print_files(filter, "\"");
    putchar(']');
    if (filter->pack)
        printf(",\"offset\":%" PRIu64, filter->pack_offset);
    putchar('}');
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
    list->json ? print_json(list, filter) : print_line(list, filter);
    list->filters++;
    return 0;
}

static int gone(void *ctx, uint64_t id, struct errbuf *err)
{
    (void)ctx, (void)id, (void)err;
    return 0;
}

/* Of a MANIFEST that is damaged: what can be read of it, which may include records that no longer hold. */
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

static int run(const struct tool_args *args)
{
    struct list list = {.datadir = args->positional[0],
                        .name = tool_option(args, "--name"),
                        .any_db = !tool_option(args, "--db"),
                        .json = tool_option(args, "--json") != NULL};
    const struct manifest_sink nothing = {.on_filter = tool_pass_over};
    struct manifest_save save = {0};
    const struct manifest_sink sink = {.on_filter = print_filter, .ctx = &list};
    struct errbuf err = {{0}};

    int rc = tool_read_database(COMMAND, args, &list.db);
    if (rc != TOOL_OK)
        return rc;
    (void)tool_read_manifest(list.datadir, &nothing, &save, &err); /* it fails again below, and says so there */
    list.databases = save.databases;
    fputs(list.json ? "[" : "", stdout);
    rc = tool_read_manifest(list.datadir, &sink, NULL, &err);
    if (rc != TOOL_OK) {
        print_readable(&list);
        rc = tool_failed(COMMAND, "%s", err.text);
    }
    fputs(list.json ? "]\n" : "", stdout);
    if (rc == TOOL_OK && !list.filters)
        fprintf(stderr, "bloomery " COMMAND ": the last save of %s has no %sfilter; what came later is in the log\n",
                list.datadir, list.name || !list.any_db ? "such " : "");
    return rc;
}

static const struct tool_option options[] = {
    {.name = "--name", .value = "NAME", .doc = "The filters of that name only."},
    TOOL_DATABASE_OPTION("The filters of this database only."),
    {.name = "--json",
     .doc = "An array of objects: id, db, name, layers, items, bytes, expires_ms (0: never), files, and "
            "offset for a filter in a pack."},
    {.name = NULL},
};

const struct tool_command tool_list_command = {
    .name = COMMAND,
    .arguments = "DATADIR",
    .min = 1,
    .max = 1,
    .summary = "Says which filters a data directory has, and which files they are in.",
    .text = "Reads the MANIFEST only, so a daemon may be running on DATADIR; what is in the log is not in it. One line "
            "per filter: its id, its name (every byte but letters, digits, _ - . as %XX), what it holds, its files. Of "
            "a damaged MANIFEST it prints what can be read, and fails.",
    .options = options,
    .examples = "bloomery list /var/lib/bloomery --json | jq '.[] | select(.items > 1000000) | .name'",
    .run = run,
};
