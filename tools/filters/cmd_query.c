/* bloomery query: which items may be in a Filter.db. A few, given as arguments, are looked up in the file; many, from
 * the standard input, in memory. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_batch.h"
#include "cql_key.h"
#include "filterdb.h"
#include "filter_load.h"
#include "item_input.h"
#include "output.h"

#define COMMAND "query"

struct query {
    const char *path;
    bool absent, count, keys, prefixed, nul;
    struct bloom_secret secret; /* id 0: none */
    struct bloom_alone loaded;  /* for many items */
    struct output out;
    uint64_t selected;
};

/* `text` is the item as it is printed. */
static void print_answer(struct query *query, struct bloom_item text, bool present)
{
    bool selected = present != query->absent;

    query->selected += selected;
    struct buf *json = output_object(&query->out);
    if (json) {
        json_bytes(json, "item", (struct slice){text.ptr, text.len});
        json_bool(json, "present", present);
        json_end(json, '}');
    } else if (selected && !query->count) {
        char end = query->nul ? '\0' : '\n';
        text.len -= !query->prefixed && text.len > 0 && text.ptr[text.len - 1] == end;
        tool_print_result(text.ptr, text.len);
        if (!query->prefixed)
            putchar(end);
    }
}

/* ---- a few items ---- */

static int query_arguments(struct query *query, const struct filter_file *file, char **items, unsigned n)
{
    static unsigned char key[CQL_KEY_MAX];
    unsigned char keyed[SIPHASH_BYTES];
    struct errbuf err = {{0}};

    for (unsigned i = 0; i < n; i++) {
        struct bloom_item item = {items[i], strlen(items[i])};
        const struct bloom_item text = item;
        if (query->keys) {
            if (cql_key_parse(item.ptr, item.len, key, &item.len, &err) != CQL_KEY_OK)
                return tool_failed(COMMAND, "'%s': %s", items[i], err.text);
            item.ptr = (const char *)key;
        }
        if (query->secret.id) {
            siphash(&query->secret.items, item.ptr, item.len, keyed);
            item = (struct bloom_item){(const char *)keyed, sizeof(keyed)};
        }
        int present = filter_file_query(file, murmur3_hash(item.ptr, item.len));
        if (present < 0)
            return tool_failed(COMMAND, "%s: %s", query->path, fs_error_text(present));
        print_answer(query, text, present);
    }
    return TOOL_OK;
}

/* ---- many items ---- */

/* JSON shows the item; other output is the line, or the item with its length, as it came. */
static struct bloom_item shown(const struct query *query, const struct item_batch *batch, size_t i)
{
    struct bloom_item text = batch->lines[i];

    if (!query->out.json)
        return text;
    if (query->prefixed)
        return (struct bloom_item){text.ptr + 4, text.len - 4};
    text.len -= text.len > 0 && text.ptr[text.len - 1] == (query->nul ? '\0' : '\n');
    return text;
}

static int query_batch(void *ctx, const struct item_batch *batch)
{
    struct query *query = ctx;
    struct bloom_batch looked_up;
    bloom_batch_start(&looked_up, query->loaded.filter, batch->items, batch->n);
    uint32_t present = bloom_batch_query(&looked_up, query->loaded.filter);
    for (size_t i = 0; i < batch->n; i++)
        print_answer(query, shown(query, batch, i), present >> i & 1);
    return TOOL_OK;
}

static int query_input(struct query *query, const struct filter_file *file, const struct tool_args *args)
{
    struct item_input input;
    struct errbuf err = {{0}};
    int rc;
    TRY(item_input_open(&input, NULL, args, true));
    if (loaded_filter_read(&query->loaded, file, NULL, &err) == 0) {
        rc = item_input_each(&input, "asking", query_batch, query);
        bloom_alone_deinit(&query->loaded);
    } else {
        rc = tool_failed(COMMAND, "%s: %s", query->path, err.text);
    }
    item_input_close(&input);
    return rc;
}

/* ---- the command ---- */

static int check_options(const struct tool_args *args)
{
    static const char *const of_lines[] = {"--field", "--separator", "--length-prefixed", "-0"};

    if (filter_check_variant(args) != TOOL_OK)
        return TOOL_USAGE;
    for (unsigned i = 0; i < 4 && args->npositional > 1; i++)
        if (tool_option(args, of_lines[i]))
            return tool_misused(COMMAND, "%s is for items from the standard input, not for arguments", of_lines[i]);
    if (tool_option(args, "--json") && tool_option(args, "--count"))
        return tool_misused(COMMAND, "--json and --count exclude each other");
    return TOOL_OK;
}

static int run_query(const struct tool_args *args)
{
    struct query query = {.path = args->positional[0],
                          .absent = tool_option(args, "--absent") != NULL,
                          .count = tool_option(args, "--count") != NULL,
                          .keys = tool_option(args, "--keys") != NULL,
                          .prefixed = tool_option(args, "--length-prefixed") != NULL,
                          .nul = tool_option(args, "-0") != NULL};
    struct filter_file file;
    struct errbuf err = {{0}};
    TRY(check_options(args));
    if (filter_open(&file, query.path, tool_option(args, "--variant"), &err) != 0)
        return tool_failed(COMMAND, "%s: %s", query.path, err.text);
    int rc = key_option_read(args, file.key, query.path, &query.secret);
    if (rc != TOOL_OK) {
        filter_file_close(&file);
        return rc;
    }
    output_begin(&query.out, args, true);
    rc = args->npositional > 1 ? query_arguments(&query, &file, args->positional + 1, args->npositional - 1)
                               : query_input(&query, &file, args);
    filter_file_close(&file);
    rc = output_end(&query.out, rc);
    if (query.count && rc == TOOL_OK)
        printf("%" PRIu64 "\n", query.selected);
    return rc == TOOL_OK && query.selected == 0 ? TOOL_NONE : rc;
}

static const struct tool_option options[] = {
    {.name = "--absent", .doc = "Prints the items that are certainly absent instead."},
    {.name = "--count", .doc = "Prints only the number of items."},
    {.name = "--field",
     .value = "N",
     .doc = "The item is the Nth field of each line, 1 the first; the whole line is printed."},
    {.name = "--separator", .value = "C", .doc = "The character between fields; the default is a tab."},
    ITEM_INPUT_OPTIONS,
    FILTER_VARIANT_OPTION("The layout of FILE; the default follows from the SSTable version in its name."),
    {.name = "--json",
     .doc = "An array with an object for every item: item, present (true or false). An item that is not UTF-8 is "
            "an object with its bytes, {\"hex\":\"e9\"}."},
    {.name = NULL},
};

const struct tool_command tool_query_command = {
    .name = COMMAND,
    .arguments = "FILE [ITEM...]",
    .summary = "Prints the items that may be in a Filter.db.",
    .text = "Items are the arguments, or without any the lines of the standard input. Printed items may be in the "
            "filter; all other items are certainly absent. Lines are printed unchanged, in their order.",
    .options = options,
    .examples = "bloomery query nb-1-big-Filter.db --keys int:5 int:6\n"
                "bloomery query small.db --variant na --field 1 <large.tsv >candidates.tsv",
    .greps = true,
    .run = run_query,
};
