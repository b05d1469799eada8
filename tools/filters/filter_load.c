#include "filter_load.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bloom_layout.h"
#include "fsops.h"
#include "new_file.h"
#include "output.h"

#define PIECE_WORDS 131072u

int filter_check_variant(const struct tool_args *args)
{
    const char *variant = tool_option(args, "--variant");
    enum bloom_variant known;

    if (variant && filterdb_variant_parse(variant, strlen(variant), &known) != FILTERDB_OK)
        return tool_misused(args->command->name, "--variant '%s' is not na, me, ka or blocked", variant);
    return TOOL_OK;
}

int filter_open(struct filter_file *file, const char *path, const char *variant, struct errbuf *err)
{
    enum bloom_variant known;
    struct errbuf reason = {{0}};
    struct stat st;

    int status = stat(path, &st) != 0 ? errno : S_ISDIR(st.st_mode) ? EISDIR : 0;
    if (status != 0)
        return errbuf_fail(err, -status, "cannot open: %s", strerror(status));
    status = filter_file_open(file, fsops_posix(), path, variant, err);
    if (status == 0 || variant || filterdb_variant_from_path(path, &known, &reason) == FILTERDB_OK ||
        strcmp(err->text, reason.text) != 0)
        return status;
    return errbuf_fail(err, FILTERDB_MALFORMED, "%s; if you know its layout, use --variant na|me|ka", reason.text);
}

/* ---- memory ---- */

int loaded_filter_read(struct bloom_alone *loaded, const struct filter_file *file, const struct bloom_params *params,
                       struct errbuf *err)
{
    struct bloom_layer_view view;
    struct progress progress;
    struct bloom_params own;

    if (!params && bloom_layout_of(file->shape.variant)->own_numbers) {
        filter_file_params(&file->shape, &(struct bloom_state){0}, &own);
        params = &own;
    }
    int rc = bloom_alone_init(loaded, &file->shape, params, err);

    if (rc != 0)
        return rc > 0 ? -EINVAL : rc;
    bloom_filter_layer(loaded->filter, 0, &view);
    progress_begin(&progress, "reading", 8 * view.shape.nwords);
    for (uint64_t at = 0; rc == 0 && at < view.shape.nwords; at += PIECE_WORDS) {
        uint64_t n = view.shape.nwords - at < PIECE_WORDS ? view.shape.nwords - at : PIECE_WORDS;
        rc = filter_file_read(file, at, n, view.words + at);
        progress_add(&progress, 8 * n);
    }
    progress_end(&progress);
    if (rc != 0) {
        errbuf_set(err, "%s", fs_error_text(rc));
        bloom_alone_deinit(loaded);
    }
    return rc;
}

/* ---- parameters ---- */

static void on_words(void *ctx, uint64_t words)
{
    progress_update(ctx, 8 * words);
}

/* The parameters that a file lacks: --capacity and --error, or those that its bits suggest. */
static int decide_params(const struct tool_args *args, const char *path, struct filter_file *file,
                         struct bloom_params *params_out, uint64_t *items_out)
{
    const char *command = args->command->name;
    struct bloom_state state;
    struct progress progress;

    progress_begin(&progress, "counting bits", filterdb_bytes(file->shape.nwords));
    int rc = filter_file_state(file, on_words, &progress, &state);
    progress_end(&progress);
    if (rc != 0)
        return tool_failed(command, "%s: %s", path, fs_error_text(rc));
    if (state.bits_set == state.bits)
        return tool_failed(command, "%s: every bit is set: this filter would answer 'present' to everything", path);
    filter_file_params(&file->shape, &state, params_out);
    if (tool_number(args, "--capacity", 1, UINT64_MAX, &params_out->capacity) != TOOL_OK)
        return TOOL_USAGE;
    if (tool_option(args, "--capacity"))
        params_out->error_rate = filter_file_rate(&file->shape, params_out->capacity);
    if (tool_rate(args, "--error", &params_out->error_rate) != TOOL_OK)
        return TOOL_USAGE;
    if (bloom_layout_of(file->shape.variant)->own_numbers) {
        file->shape.capacity = params_out->capacity;
        file->shape.error_rate = params_out->error_rate;
        file->shape.bpe = 64 * (double)file->shape.nwords / (double)params_out->capacity;
    }
    *items_out = (uint64_t)llround(state.estimated_items);
    return TOOL_OK;
}

int loaded_filter_open(struct bloom_alone *loaded, const struct tool_args *args, const char *path,
                       struct bloom_params *params_out, struct bloom_shape *shape_out)
{
    const char *command = args->command->name;
    struct filter_file file;
    struct errbuf err = {{0}};
    uint64_t items = 0;

    if (filter_check_variant(args) != TOOL_OK)
        return TOOL_USAGE;
    if (filter_open(&file, path, tool_option(args, "--variant"), &err) != 0)
        return tool_failed(command, "%s: %s", path, err.text);
    int rc = decide_params(args, path, &file, params_out, &items);
    *shape_out = file.shape;
    params_out->key = file.key;
    if (rc == TOOL_OK && loaded_filter_read(loaded, &file, params_out, &err) != 0)
        rc = tool_failed(command, "%s: %s", path, err.text);
    if (rc == TOOL_OK)
        bloom_filter_set_items(loaded->filter, 0, items);
    filter_file_close(&file);
    return rc;
}

/* ---- file ---- */

int filter_next_words(void *filter, uint64_t from, uint64_t n, _Atomic uint64_t *words)
{
    struct bloom_layer_view view;

    bloom_filter_layer(filter, 0, &view);
    memcpy((void *)words, (const void *)(view.words + from), 8 * (size_t)n);
    return 0;
}

int filter_write_words(int fd, const struct bloom_shape *shape, uint64_t items, filter_words_fn *next, void *ctx)
{
    const struct fsops *fs = fsops_posix();
    const struct bloom_params params = {.redisbloom = bloom_layout_of(shape->variant)->options};
    unsigned char header[BITS_FILE_HEADER_BYTES];
    size_t len = export_file_header(&params, shape, items, header);
    _Atomic uint64_t *words = malloc(8 * PIECE_WORDS);
    unsigned char *bytes = malloc(8 * PIECE_WORDS);
    int rc = words && bytes ? 0 : -ENOMEM;

    STEP(rc, fs_write_all(fs, fd, header, len, 0));
    for (uint64_t at = 0; at < shape->nwords && rc == 0; at += PIECE_WORDS) {
        size_t n = shape->nwords - at < PIECE_WORDS ? (size_t)(shape->nwords - at) : PIECE_WORDS;
        rc = next(ctx, at, n, words);
        if (rc != 0)
            break;
        filterdb_encode_words((enum bloom_variant)shape->variant, words, n, bytes);
        rc = fs_write_all(fs, fd, bytes, 8 * n, len + 8 * at);
    }
    free((void *)words);
    free(bytes);
    return rc;
}

int filter_write(const char *path, const struct bloom_shape *shape, uint64_t items, bool replace, filter_words_fn *next,
                 void *ctx, struct errbuf *err)
{
    struct new_file file;
    int rc = new_file_open(&file, path, replace, err);

    return rc != 0 ? rc : new_file_end(&file, filter_write_words(file.fd, shape, items, next, ctx), err);
}

/* ---- sizes and rates ---- */

enum bloom_size_status filter_size_cassandra(uint64_t keys, double rate, struct bloom_size *size_out,
                                             struct errbuf *err)
{
    static const char *const reasons[] = {
        [BLOOM_SIZE_ALWAYS_PRESENT] = "Cassandra makes no filter for this rate",
        [BLOOM_SIZE_UNSATISFIABLE] = "the rate is below Cassandra's table, which ends at 6.71e-05",
        [BLOOM_SIZE_TOO_BIG] = "it would be larger than 16 GB",
        [BLOOM_SIZE_INVALID_PROBABILITY] = "the rate is not between 0 and 1",
    };
    enum bloom_size_status status = bloom_size_cassandra(keys, rate, size_out);

    if (status != BLOOM_SIZE_OK)
        errbuf_set(err, "%s", reasons[status]);
    return status;
}

const char *filter_rate_warning(double rate)
{
    return rate >= 6.71e-5 && rate < 8.95e-5 ? "ScyllaDB since 6.1 ends when it flushes a table with a "
                                               "bloom_filter_fp_chance between 6.71e-05 and 8.95e-05 (scylladb#31207)"
                                             : NULL;
}
