/* bloomery show: what Filter.db files are: shape, fill, and what follows from these. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bloom_state.h"
#include "filter_load.h"
#include "filterdb.h"
#include "progress.h"
#include "tool.h"

#define COMMAND "show"

static void on_progress(void *ctx, uint64_t words)
{
    progress_update(ctx, 8 * words);
}

static void print_line(const char *path, const struct bloom_shape *shape, const struct bloom_state *state,
                       const struct bloom_params *params)
{
    printf("%s: %s, k %u, %" PRIu64 " bits, %.3g %% set, rate %.3g, about %.0f keys of %" PRIu64 "\n", path,
           bloom_variant_name((enum bloom_variant)shape->variant), shape->k, state->bits, 100 * state->fill_ratio,
           state->rate, state->estimated_items, params->capacity);
}

static void print_object(const char *path, const struct bloom_shape *shape, const struct bloom_state *state,
                         const struct bloom_params *params)
{
    fputs("{\"file\": ", stdout);
    tool_print_json(stdout, path, strlen(path));
    printf(", \"variant\": \"%s\", \"k\": %u, \"bits\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"bits_set\": %" PRIu64
           ", \"fill\": %.6g, \"rate\": %.6g, \"keys\": %.0f, \"capacity\": %" PRIu64 "}",
           bloom_variant_name((enum bloom_variant)shape->variant), shape->k, state->bits, filterdb_bytes(shape->nwords),
           state->bits_set, state->fill_ratio, state->rate, state->estimated_items, params->capacity);
}

static int show(const char *path, const char *variant, bool json, bool first)
{
    struct errbuf err = {{0}};
    struct filter_file file;
    struct bloom_state state;
    struct bloom_params params;
    struct progress progress;

    if (filter_open(&file, path, variant, &err) != 0)
        return tool_failed(COMMAND, "%s: %s", path, err.text);
    progress_begin(&progress, path, filterdb_bytes(file.shape.nwords));
    int rc = filter_file_state(&file, on_progress, &progress, &state);
    progress_end(&progress);
    filter_file_close(&file);
    if (rc != 0)
        return tool_failed(COMMAND, "%s: %s", path, strerror(-rc));
    filter_file_params(&file.shape, &state, &params);
    if (json)
        fputs(first ? "" : ",\n ", stdout);
    (json ? print_object : print_line)(path, &file.shape, &state, &params);
    return TOOL_OK;
}

static int run(const struct tool_args *args)
{
    const char *variant = tool_option(args, "--variant");
    bool json = tool_option(args, "--json") != NULL, first = true;
    int status = TOOL_OK;

    if (filter_check_variant(args) != TOOL_OK)
        return TOOL_USAGE;
    fputs(json ? "[" : "", stdout);
    for (unsigned i = 0; i < args->npositional; i++) {
        if (show(args->positional[i], variant, json, first) == TOOL_OK)
            first = false;
        else
            status = TOOL_FAILED;
    }
    fputs(json ? "]\n" : "", stdout);
    return status;
}

static const struct tool_option options[] = {
    FILTER_VARIANT_OPTION("The layout of the files; by default that of the SSTable version in each file's name."),
    {.name = "--json",
     .doc = "An array of objects: file, variant, k, bits, bytes, bits_set, fill, rate, keys, capacity."},
    {.name = NULL},
};

const struct tool_command tool_show_command = {
    .name = COMMAND,
    .arguments = "FILE...",
    .min = 1,
    .max = TOOL_MANY,
    .summary = "Says what Filter.db files are: size, fill, and the false-positive rate that this gives.",
    .text =
        "Reads the whole of each file and counts its bits. A line says the layout, the bits per key (k), the size, the "
        "share of bits that are set, the rate at which keys that were never added are found, how many keys the bits "
        "suggest, and for how many it was made.",
    .options = options,
    .examples = "bloomery show /var/lib/cassandra/data/ks/users-*/*-Filter.db\n"
                "bloomery show --json *-Filter.db | jq '.[] | select(.rate > 0.02) | .file'",
    .run = run,
};
