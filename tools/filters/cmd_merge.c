/* bloomery merge: the union of Filter.db files of equal geometry, piece by piece. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_layout.h"
#include "filter_load.h"
#include "filterdb.h"
#include "output.h"

#define COMMAND "merge"

struct merge {
    struct filter_file *files;
    unsigned nfiles;
    char **paths;
    unsigned failed; /* the file that could not be read */
    struct progress progress;
};

static int refuse_layout(const struct merge *merge, unsigned i)
{
    const struct bloom_shape *a = &merge->files[0].shape, *b = &merge->files[i].shape;

    return tool_failed(COMMAND,
                       "%s has k %u, %" PRIu64 " bits, layout %s, and %s k %u, %" PRIu64
                       " bits, layout %s: only filters of equal geometry can be merged",
                       merge->paths[0], a->k, 64 * a->nwords, bloom_variant_name((enum bloom_variant)a->variant),
                       merge->paths[i], b->k, 64 * b->nwords, bloom_variant_name((enum bloom_variant)b->variant));
}

/* The union has the key of all its parts, and has its id in its name, as they do. */
static int check_keys(const struct merge *merge, const char *out)
{
    uint64_t key = merge->files[0].key;

    for (unsigned i = 1; i < merge->nfiles; i++)
        if (merge->files[i].key != key)
            return tool_failed(COMMAND, "%s and %s have different keys and cannot be merged", merge->paths[0],
                               merge->paths[i]);
    return filterdb_key_of_path(out, &(size_t){0}) == key
               ? TOOL_OK
               : tool_misused(COMMAND,
                              key ? "%s: the union of KEYED filters needs a name that ends in " FILTERDB_KEYED_END
                                    "%016" PRIx64
                                  : "%s: its name marks a KEYED filter, but the filters are plain",
                              out, key);
}

static int open_files(struct merge *merge, const char *variant)
{
    struct errbuf err = {{0}};

    for (unsigned i = 0; i < merge->nfiles; i++) {
        if (filter_open(&merge->files[i], merge->paths[i], variant, &err) != 0)
            return tool_failed(COMMAND, "%s: %s", merge->paths[i], err.text);
        const struct bloom_shape *first = &merge->files[0].shape, *shape = &merge->files[i].shape;
        if (first->k != shape->k || first->nwords != shape->nwords ||
            !bloom_layouts_agree(first->variant, shape->variant))
            return refuse_layout(merge, i);
    }
    return TOOL_OK;
}

static int next_words(void *ctx, uint64_t from, uint64_t n, _Atomic uint64_t *words)
{
    struct merge *merge = ctx;
    _Atomic uint64_t *piece = malloc(8 * (size_t)n);
    int rc = piece ? 0 : -ENOMEM;

    memset((void *)words, 0, 8 * (size_t)n);
    for (unsigned i = 0; i < merge->nfiles && rc == 0; i++) {
        memset((void *)piece, 0, 8 * (size_t)n);
        merge->failed = i;
        rc = filter_file_read(&merge->files[i], from, n, piece);
        for (uint64_t w = 0; w < n && rc == 0; w++)
            atomic_fetch_or_explicit(&words[w], atomic_load_explicit(&piece[w], memory_order_relaxed),
                                     memory_order_relaxed);
    }
    if (rc == 0)
        merge->failed = merge->nfiles;
    free((void *)piece);
    progress_update(&merge->progress, 8 * (from + n));
    return rc;
}

static int write_union(struct merge *merge, const char *out, bool replace)
{
    const struct bloom_shape *shape = &merge->files[0].shape;
    struct errbuf err = {{0}};
    uint64_t items = 0;

    for (unsigned i = 0; i < merge->nfiles; i++)
        items += merge->files[i].items;
    merge->failed = merge->nfiles;
    progress_begin(&merge->progress, "merging", 8 * shape->nwords);
    int rc = filter_write(out, shape, items, replace, next_words, merge, &err);
    progress_end(&merge->progress);
    if (rc == 0)
        return TOOL_OK;
    return tool_failed(COMMAND, "%s: %s", merge->failed < merge->nfiles ? merge->paths[merge->failed] : out, err.text);
}

static int report(const struct merge *merge, const struct tool_args *args)
{
    const struct bloom_shape *shape = &merge->files[0].shape;
    struct output out;

    struct buf *json = output_single(&out, args);
    if (json) {
        output_string(json, "file", args->positional[0]);
        json_str(json, "variant", bloom_variant_name((enum bloom_variant)shape->variant));
        JSON_COUNTS(json, {"k", shape->k}, {"bits", 64 * shape->nwords}, {"merged", merge->nfiles});
        json_end(json, '}');
    }
    return output_end(&out, TOOL_OK);
}

static int run_merge(const struct tool_args *args)
{
    const char *variant = tool_option(args, "--variant");
    struct merge merge = {.nfiles = args->npositional - 1, .paths = args->positional + 1};

    if (filter_check_variant(args) != TOOL_OK)
        return TOOL_USAGE;
    merge.files = calloc(merge.nfiles, sizeof(*merge.files));
    if (!merge.files)
        return tool_failed(COMMAND, "%s", strerror(ENOMEM));
    for (unsigned i = 0; i < merge.nfiles; i++)
        merge.files[i].fd = -1;
    int rc = open_files(&merge, variant);
    STEP(rc, check_keys(&merge, args->positional[0]));
    STEP(rc, write_union(&merge, args->positional[0], tool_option(args, "--force") != NULL));
    STEP(rc, report(&merge, args));
    for (unsigned i = 0; i < merge.nfiles; i++)
        filter_file_close(&merge.files[i]);
    free(merge.files);
    return rc;
}

static const struct tool_option options[] = {
    FILTER_VARIANT_OPTION("The layout of the files; the default follows from the SSTable version in each file's name."),
    {.name = "--force", .doc = "Replaces an existing OUT."},
    {.name = "--json", .doc = "The result as an object: file, variant, k, bits, merged (the number of files)."},
    {.name = NULL},
};

const struct tool_command tool_merge_command = {
    .name = COMMAND,
    .arguments = "OUT FILE...",
    .summary = "Writes the union of Filter.db files: a filter with the items of each.",
    .text = "The files must have the same k and the same number of bits. OUT gets the layout of the first file. Files "
            "of the layouts na and me can be merged, since these differ in the order of bytes only; ka can be merged "
            "only with ka. OUT appears when it is complete. 'bloomery show' shows its fill.",
    .options = options,
    .examples = "bloomery merge all-Filter.db --variant na monday.db tuesday.db wednesday.db",
    .run = run_merge,
};
