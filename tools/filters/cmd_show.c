/* bloomery show: the shape and fill of Filter.db files, and the rate that follows. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bloom_layout.h"
#include "bloom_state.h"
#include "filter_load.h"
#include "filterdb.h"
#include "output.h"

#define COMMAND "show"

static void on_progress(void *ctx, uint64_t words)
{
    progress_update(ctx, 8 * words);
}

static void print_line(const char *path, const struct bloom_shape *shape, const struct bloom_state *state,
                       const struct bloom_params *params)
{
    tool_print_result(path, strlen(path));
    printf(": %s, k %u, %" PRIu64 " bits, %.3g %% set, rate %.3g, about %.0f keys of %" PRIu64 "\n",
           bloom_variant_name((enum bloom_variant)shape->variant), shape->k, state->bits, 100 * state->fill_ratio,
           state->rate, state->estimated_items, params->capacity);
}

static void print_object(struct buf *json, const char *path, const struct bloom_shape *shape,
                         const struct bloom_state *state, const struct bloom_params *params)
{
    output_string(json, "file", path);
    json_str(json, "variant", bloom_variant_name((enum bloom_variant)shape->variant));
    JSON_COUNTS(json, {"k", shape->k}, {"bits", state->bits}, {"bytes", filterdb_bytes(shape->nwords)},
                {"bits_set", state->bits_set});
    json_real(json, "fill", state->fill_ratio);
    json_real(json, "rate", state->rate);
    JSON_COUNTS(json, {"keys", (uint64_t)llround(state->estimated_items)}, {"capacity", params->capacity});
    json_end(json, '}');
}

static int show(const char *path, const char *variant, struct output *out)
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
        return tool_failed(COMMAND, "%s: %s", path, fs_error_text(rc));
    filter_file_params(&file.shape, &state, &params);
    struct buf *json = output_object(out);
    if (json)
        print_object(json, path, &file.shape, &state, &params);
    else
        print_line(path, &file.shape, &state, &params);
    return TOOL_OK;
}

static int run_show(const struct tool_args *args)
{
    const char *variant = tool_option(args, "--variant");
    struct output out;
    int status = TOOL_OK;

    if (filter_check_variant(args) != TOOL_OK)
        return TOOL_USAGE;
    output_begin(&out, args, true);
    for (unsigned i = 0; i < args->npositional; i++)
        if (show(args->positional[i], variant, &out) != TOOL_OK)
            status = TOOL_FAILED;
    return output_end(&out, status);
}

static const struct tool_option options[] = {
    FILTER_VARIANT_OPTION("The layout of the files; the default follows from the SSTable version in each file's name."),
    {.name = "--json",
     .doc = "An array of objects: file, variant, k, bits, bytes, bits_set, fill, rate, keys, capacity."},
    {.name = NULL},
};

const struct tool_command tool_show_command = {
    .name = COMMAND,
    .arguments = "FILE...",
    .summary = "Describes Filter.db files: size, fill, and the resulting false-positive rate.",
    .text = "Reads the whole of each file and counts its bits. A line has the layout, the bits per key (k), the "
            "size, the share of set bits, the rate at which absent keys are found, and two estimates: the number "
            "of keys, and the capacity.",
    .options = options,
    .examples = "bloomery show /var/lib/cassandra/data/ks/users-*/*-Filter.db\n"
                "bloomery show --json *-Filter.db | jq '.[] | select(.rate > 0.02) | .file'",
    .run = run_show,
};
