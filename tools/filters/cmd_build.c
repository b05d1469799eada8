/* bloomery build: a Filter.db from items. Its size follows from their number, so a file is read twice, and the hashes
 * of a pipe wait in a temporary file. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_batch.h"
#include "blocked.h"
#include "bloom_layout.h"
#include "bloom_size.h"
#include "bloom_state.h"
#include "filter_load.h"
#include "filterdb.h"
#include "item_input.h"
#include "log_text.h"
#include "new_file.h"
#include "output.h"

#define COMMAND "build"
#define HASHES  4096 /* of the temporary file, read and added at once */

struct build {
    const char *path;
    double error;
    uint64_t capacity; /* 0: as many as there are items */
    bool as_cassandra, replace;
    enum bloom_variant variant;
    struct bloom_shape shape;
    struct bloom_alone loaded;
    struct item_input input;
};

/* ---- size ---- */

static int decide_shape(struct build *build)
{
    struct bloom_params params, *own = NULL;
    struct bloom_size size = {0};
    struct errbuf err = {{0}};
    uint64_t capacity = build->capacity ? build->capacity : 1;

    if (build->variant == BLOOM_BLOCKED) {
        if (blocked_size(0, capacity, build->error, &build->shape, &err) != BLOOM_OK)
            return tool_failed(COMMAND, "%s: %s", build->path, err.text);
        filter_file_params(&build->shape, &(struct bloom_state){0}, own = &params);
    } else if ((build->as_cassandra ? filter_size_cassandra(build->capacity, build->error, &size, &err)
                                    : bloom_size_plan(capacity, build->error, &size, &err)) != BLOOM_SIZE_OK)
        return tool_failed(COMMAND, "%s: %s", build->path, err.text);
    if (!own)
        build->shape =
            (struct bloom_shape){.nwords = size.nwords, .k = (uint8_t)size.k, .variant = (uint8_t)build->variant};
    if (bloom_alone_init(&build->loaded, &build->shape, own, &err) != 0)
        return tool_failed(COMMAND, "%s: %s", build->path, err.text);
    return TOOL_OK;
}

/* ---- items ---- */

static int add_items(void *ctx, const struct item_batch *items)
{
    const struct build *build = ctx;
    struct bloom_filter *filter = build->loaded.filter;
    enum bloom_add refused;
    struct bloom_batch batch;
    uint32_t added;

    if (build->variant == BLOOM_BLOCKED) { /* a layer with a capacity of its own, beyond which adds are refused */
        struct bloom_replay_item replay[BLOOM_BATCH];
        for (size_t i = 0; i < items->n; i++)
            replay[i].hash = murmur3_hash(items->items[i].ptr, items->items[i].len);
        bloom_filter_replay(filter, 0, UINT64_MAX, replay, items->n);
    } else {
        bloom_batch_start(&batch, filter, items->items, items->n);
        bloom_batch_add_all(&batch, 0, filter, NULL, NULL, &added, &refused);
    }
    return TOOL_OK;
}

/* ---- a pipe ---- */

static int keep_hashes(void *ctx, const struct item_batch *batch)
{
    struct bloom_hash hashes[BLOOM_BATCH];

    for (size_t i = 0; i < batch->n; i++)
        hashes[i] = murmur3_hash(batch->items[i].ptr, batch->items[i].len);
    if (fwrite(hashes, sizeof(hashes[0]), batch->n, ctx) == batch->n)
        return TOOL_OK;
    return tool_failed(COMMAND, "the temporary file of hashes: %s; --capacity avoids it", strerror(errno));
}

static int add_hashes(struct build *build, FILE *kept)
{
    static struct bloom_replay_item items[HASHES];
    static struct bloom_hash hashes[HASHES];
    size_t n;

    while ((n = fread(hashes, sizeof(hashes[0]), HASHES, kept)) > 0) {
        for (size_t i = 0; i < n; i++)
            items[i].hash = hashes[i];
        bloom_filter_replay(build->loaded.filter, 0, UINT64_MAX, items, n);
    }
    if (!ferror(kept))
        return TOOL_OK;
    return tool_failed(COMMAND, "the temporary file of hashes: %s", strerror(errno));
}

static int build_from_pipe(struct build *build)
{
    FILE *kept = tmpfile();

    if (!kept)
        return tool_failed(COMMAND, "a temporary file: %s", strerror(errno));
    int rc = item_input_each(&build->input, "reading", keep_hashes, kept);
    if (rc == TOOL_OK && (fflush(kept) != 0 || fseek(kept, 0, SEEK_SET) != 0))
        rc = tool_failed(COMMAND, "the temporary file of hashes: %s", strerror(errno));
    build->capacity = build->input.items;
    STEP(rc, decide_shape(build));
    STEP(rc, add_hashes(build, kept));
    fclose(kept);
    return rc;
}

/* ---- the whole ---- */

static int build_filter(struct build *build)
{
    int rc = TOOL_OK;

    if (build->capacity == 0 && !build->input.can_rewind)
        return build_from_pipe(build);
    if (build->capacity == 0) {
        rc = item_input_each(&build->input, "counting", NULL, NULL);
        build->capacity = build->input.items;
        STEP(rc, item_input_rewind(&build->input));
    }
    STEP(rc, decide_shape(build));
    return rc == TOOL_OK ? item_input_each(&build->input, "adding", add_items, build) : rc;
}

static int report(struct build *build, const struct tool_args *args)
{
    struct bloom_state state;
    struct output out;

    bloom_filter_state(build->loaded.filter, &state);
    struct buf *json = output_single(&out, args);
    if (json) {
        output_string(json, "file", build->path);
        json_str(json, "variant", bloom_variant_name(build->variant));
        JSON_COUNTS(json, {"k", build->shape.k}, {"bits", state.bits}, {"items", build->input.items},
                    {"capacity", build->capacity});
        json_real(json, "fill", state.fill_ratio);
        json_real(json, "rate", state.rate);
        json_end(json, '}');
    } else {
        tool_print_result(build->path, strlen(build->path));
        printf(": %s, k %u, %" PRIu64 " bits, %s, %.3g %% set, rate %.3g\n", bloom_variant_name(build->variant),
               build->shape.k, state.bits, log_count(build->input.items, "item").text, 100 * state.fill_ratio,
               state.rate);
    }
    if (filter_rate_warning(build->error))
        fprintf(stderr, "bloomery " COMMAND ": warning: %s\n", filter_rate_warning(build->error));
    if (build->input.items > build->capacity)
        fprintf(stderr,
                "bloomery " COMMAND ": warning: %" PRIu64 " items are more than the capacity of %" PRIu64
                "; the rate is %.3g\n",
                build->input.items, build->capacity, state.rate);
    return output_end(&out, TOOL_OK);
}

static int read_options(struct build *build, const struct tool_args *args)
{
    const char *variant = tool_option(args, "--variant"), *sizing = tool_option(args, "--sizing");

    build->path = args->positional[0];
    build->replace = tool_option(args, "--force") != NULL;
    if (!tool_option(args, "--error"))
        return tool_misused(COMMAND, "--error P is missing: the false-positive rate, such as 0.01");
    if (tool_rate(args, "--error", &build->error) != TOOL_OK ||
        tool_number(args, "--capacity", 1, UINT64_MAX, &build->capacity) != TOOL_OK)
        return TOOL_USAGE;
    if (sizing && strcmp(sizing, "cassandra") != 0 && strcmp(sizing, "honest") != 0)
        return tool_misused(COMMAND, "--sizing '%s' is not honest or cassandra", sizing);
    build->as_cassandra = sizing && strcmp(sizing, "cassandra") == 0;
    if (filter_check_variant(args) != TOOL_OK)
        return TOOL_USAGE;
    int rc = variant ? filterdb_variant_parse(variant, strlen(variant), &build->variant)
                     : filterdb_variant_from_path(build->path, &build->variant, NULL);
    if (rc != FILTERDB_OK)
        build->variant = BLOOM_NA;
    if (build->variant == BLOOM_BLOCKED && build->as_cassandra)
        return tool_misused(COMMAND, "--sizing cassandra is not for the layout blocked");
    return TOOL_OK;
}

static int run_build(const struct tool_args *args)
{
    struct build build = {0};
    struct errbuf err = {{0}};
    int rc = read_options(&build, args);

    if (rc == TOOL_OK && new_file_check(build.path, build.replace, &err) != 0) /* before the input is read */
        rc = tool_failed(COMMAND, "%s: %s", build.path, err.text);
    STEP(rc, item_input_open(&build.input, args->npositional > 1 ? args->positional[1] : NULL, args, false));
    if (rc != TOOL_OK)
        return rc;
    uint64_t key = build.input.secret.id;
    if (filterdb_key_of_path(build.path, &(size_t){0}) != key)
        fprintf(stderr,
                "bloomery " COMMAND ": warning: only a name that ends in " FILTERDB_KEYED_END "%016" PRIx64
                " tells other commands that the filter is KEYED\n",
                key);
    rc = build_filter(&build);
    item_input_close(&build.input);
    if (rc == TOOL_OK && filter_write(build.path, &build.shape, build.input.items, build.replace, filter_next_words,
                                      build.loaded.filter, &err) != 0)
        rc = tool_failed(COMMAND, "%s: %s", build.path, err.text);
    STEP(rc, report(&build, args));
    bloom_alone_deinit(&build.loaded);
    return rc;
}

static const struct tool_option options[] = {
    {.name = "--error", .value = "P", .doc = "The requested rate of false positives, 0 < P < 1. Required."},
    {.name = "--capacity",
     .value = "N",
     .doc = "The capacity of the filter in items. The default is the number of items in the input, including "
            "duplicates: a file is then read twice, and the hashes of a pipe's items go to a temporary file, 16 bytes "
            "each."},
    FILTER_VARIANT_OPTION(
        "The layout to write: na (Cassandra 4.0 and later), me (Cassandra 3.x, ScyllaDB), ka (before 3.0), or blocked "
        "(Bloomery's alone; all bits of an item in one cache line). "
        "The default is the layout of the SSTable version in FILE's name, otherwise na."),
    {.name = "--sizing",
     .value = "HOW",
     .doc = "honest (default): the real rate is at most P, for any P. cassandra: k and bits exactly as in "
            "Cassandra and ScyllaDB, whose rate exceeds P if P is 0.393 or more, or the filter tiny. Both are "
            "equal for most P and N."},
    ITEM_INPUT_OPTIONS,
    {.name = "--force", .doc = "Replaces an existing FILE."},
    {.name = "--json", .doc = "The result as an object: file, variant, k, bits, items, capacity, fill, rate."},
    {.name = NULL},
};

const struct tool_command tool_build_command = {
    .name = COMMAND,
    .arguments = "FILE [INPUT]",
    .summary = "Creates a Filter.db from items.",
    .text = "Items are the lines of INPUT, by default of the standard input. The file equals Cassandra's file for "
            "these keys, k and number of bits. It appears when it is complete.",
    .options = options,
    .examples = "cut -f1 small.tsv | bloomery build small.db --error 0.001\n"
                "bloomery build nb-1-big-Filter.db keys.txt --error 0.01 --keys --sizing cassandra\n"
                "redis-cli BF.IMPORT small small.db VARIANT na",
    .run = run_build,
};
