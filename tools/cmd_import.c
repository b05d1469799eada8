/* bloomery import: a Filter.db file becomes a filter of a data directory, by way of memory and an ordinary save, which
 * carries the other filters over without reading their bits. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_size.h"
#include "filterdb.h"
#include "log_reader.h"
#include "fsops.h"
#include "store.h"
#include "tool.h"

#define COMMAND "import"
#define PIECE_WORDS 65536u

struct import {
    const char *datadir;
    const char *name;
    const char *file;
    const char *capacity_text;
    const char *error_text;

    struct bloom_shape shape;
    struct bloom_params params;
    struct bloom_pool *pool;
    struct bloom_class *class;
    struct bloom_filter *filter; /* made of the class */
    struct store *store;
    uint64_t id;
    bool yielded;
};

/* ---- the file ------------------------------------------------------------------------------------------------------ */

static int read_words(int fd, const struct bloom_layer_view *view)
{
    unsigned char *buf = malloc(8 * PIECE_WORDS);
    int rc = buf ? 0 : -ENOMEM;

    for (uint64_t at = 0; at < view->shape.nwords && rc == 0; at += PIECE_WORDS) {
        uint64_t left = view->shape.nwords - at;
        size_t n = left < PIECE_WORDS ? (size_t)left : PIECE_WORDS;

        rc = fs_read_all(fsops_posix(), fd, buf, 8 * n, filterdb_bytes(at));
        if (rc == 0)
            filterdb_decode_words((enum bloom_variant)view->shape.variant, buf, n, view->words + at);
    }
    free(buf);
    return rc;
}

static int read_shape(struct import *import, int fd, enum bloom_variant variant, struct errbuf *err)
{
    const struct fsops *fs = fsops_posix();
    unsigned char header[FILTERDB_HEADER_BYTES] = {0};
    uint64_t size = 0;
    int rc = fs->size(fs->ctx, fd, &size);

    if (rc == 0)
        rc = fs_read_all(fs, fd, header, size < sizeof(header) ? (size_t)size : sizeof(header), 0);
    if (rc != 0) {
        errbuf_set(err, "%s", strerror(-rc));
        return rc;
    }
    return filterdb_decode_header(header, size, variant, &import->shape, err);
}

/* Puts the file's bits into a filter of the given parameters. */
static int make_filter(struct import *import, int fd, struct errbuf *err)
{
    struct bloom_layer_view view;
    int rc = bloom_class_get(import->pool, &import->params, &import->shape, &import->class, err);

    if (rc == 0) {
        import->filter = malloc(bloom_filter_bytes(import->class));
        rc = import->filter ? bloom_filter_init(import->filter, import->class, err) : -ENOMEM;
        if (rc != 0) {
            free(import->filter);
            import->filter = NULL;
        }
    }
    if (rc == -ENOMEM)
        errbuf_set(err, "out of memory");
    if (rc != 0)
        return rc;
    bloom_filter_layer(import->filter, 0, &view);
    rc = read_words(fd, &view);
    if (rc != 0)
        errbuf_set(err, "%s", strerror(-rc));
    return rc;
}

static void drop_filter(struct import *import)
{
    if (import->filter) {
        bloom_filter_deinit(import->filter);
        free(import->filter);
    }
    bloom_class_release(import->class);
    import->filter = NULL;
    import->class = NULL;
}

/* ---- what the file does not say ------------------------------------------------------------------------------------ */

/* Capacity and rate from the bits, where the user has not given them. */
static int decide_params(struct import *import, uint64_t items, struct errbuf *err)
{
    uint64_t bits = 64 * import->shape.nwords;
    uint64_t made_for = (uint64_t)((double)bits * M_LN2 / import->shape.k);
    uint64_t capacity = items > made_for ? items : made_for;

    if (import->capacity_text && !tool_parse_u64(import->capacity_text, 1, UINT64_MAX, &capacity)) {
        errbuf_set(err, "--capacity '%s' is not a number of items, 1 or more", import->capacity_text);
        return TOOL_USAGE;
    }
    import->params.capacity = capacity > 0 ? capacity : 1;
    import->params.error_rate = bloom_size_rate(import->params.capacity, import->shape.k, bits);
    if (import->error_text) {
        if (!tool_parse_double(import->error_text, &import->params.error_rate) ||
            !(import->params.error_rate > 0 && import->params.error_rate < 1)) {
            errbuf_set(err, "--error '%s' is not a rate between 0 and 1", import->error_text);
            return TOOL_USAGE;
        }
        return TOOL_OK;
    }
    /* Rounded to 1 where the filter is hopelessly overfull, to 0 where it is far too large for its capacity. */
    if (import->params.error_rate >= 1)
        import->params.error_rate = nextafter(1, 0);
    if (import->params.error_rate <= 0)
        import->params.error_rate = 1e-300;
    return TOOL_OK;
}

static int load_file(struct import *import, int fd, struct errbuf *err)
{
    struct bloom_state state;
    uint64_t items;

    /* The parameters follow from the bits, and a filter is made of parameters: so it is made twice. */
    import->params = (struct bloom_params){.capacity = 1, .error_rate = 0.5, .expansion = 0};
    if (make_filter(import, fd, err) != 0)
        return TOOL_FAILED;
    bloom_filter_state(import->filter, &state);
    if (state.bits_set == state.bits) {
        errbuf_set(err, "every bit is set: this filter would answer 'present' to everything");
        return TOOL_FAILED;
    }
    items = (uint64_t)llround(state.estimated_items);
    drop_filter(import);
    int rc = decide_params(import, items, err);
    if (rc != TOOL_OK)
        return rc;
    if (make_filter(import, fd, err) != 0)
        return TOOL_FAILED;
    bloom_filter_set_items(import->filter, 0, items);
    return TOOL_OK;
}

static int open_file(struct import *import, const char *variant_text)
{
    const struct fsops *fs = fsops_posix();
    enum bloom_variant variant;
    struct errbuf err = {{0}};
    int fd;

    if (variant_text && filterdb_variant_parse(variant_text, strlen(variant_text), &variant) != FILTERDB_OK)
        return tool_misused(COMMAND, "--variant '%s' is not na, me or ka", variant_text);
    if (!variant_text && filterdb_variant_from_path(import->file, &variant, &err) != FILTERDB_OK)
        return tool_failed(COMMAND, "%s: %s; if you know its layout, give it with --variant na|me|ka", import->file,
                           err.text);
    int rc = fs->open(fs->ctx, import->file, FS_READ, &fd);
    if (rc != 0)
        return tool_failed(COMMAND, "%s: cannot open: %s", import->file, strerror(-rc));
    rc = read_shape(import, fd, variant, &err) == FILTERDB_OK ? load_file(import, fd, &err) : TOOL_FAILED;
    fs->close(fs->ctx, fd);
    if (rc == TOOL_USAGE)
        return tool_misused(COMMAND, "%s", err.text);
    return rc == TOOL_OK ? TOOL_OK : tool_failed(COMMAND, "%s: %s", import->file, err.text);
}

/* ---- the data directory -------------------------------------------------------------------------------------------- */

static void on_report(void *ctx, enum store_severity severity, const char *text)
{
    (void)ctx;
    fprintf(stderr, "bloomery " COMMAND ": %s%s\n", severity == STORE_WARNING ? "warning: " : "", text);
}

static int on_next(void *ctx, struct store_item *item)
{
    struct import *import = ctx;

    if (import->yielded)
        return 0;
    import->yielded = true;
    *item = (struct store_item){.id = import->id,
                                .name = import->name,
                                .name_len = strlen(import->name),
                                .filter = import->filter,
                                .dirty = true};
    return 1;
}

static void on_release(void *ctx, struct store_item *item)
{
    (void)ctx;
    (void)item;
}

#define LOG_HAS_CHANGES 100 /* no status of the reader */

static int on_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    const struct import *import = ctx;

    (void)control, (void)err;
    return number > store_checkpoint(import->store).control ? LOG_HAS_CHANGES : 0;
}

/* The next id and the names that are taken are known only when the log has nothing that the files do not have. */
static int check_log(struct import *import)
{
    const struct store_checkpoint checkpoint = store_checkpoint(import->store);
    struct log_reader_options options = {.dir = import->datadir,
                                         .from = checkpoint.log,
                                         .reached = checkpoint.frame,
                                         .accepted = checkpoint.accepted,
                                         .report = on_report,
                                         .on_control = on_control,
                                         .ctx = import};
    struct log_reader_summary summary = {0};
    struct log_reader *reader = NULL;
    struct errbuf err = {{0}};
    int rc = log_reader_open(&options, &reader, &summary, &err);

    log_reader_close(reader);
    if (rc == LOG_HAS_CHANGES || (rc == 0 && summary.adds > 0))
        return tool_failed(COMMAND, "%s: the log has changes that are not in the files yet; start the daemon and stop it by "
                                    "SHUTDOWN SAVE first", import->datadir);
    return rc == 0 ? TOOL_OK : tool_failed(COMMAND, "%s", err.text);
}

static int open_store(struct import *import)
{
    struct store_options options = {.report = on_report};
    struct errbuf err = {{0}};
    int rc = store_open(import->datadir, &options, &import->store, &err);

    if (rc == STORE_LOCKED)
        return tool_failed(COMMAND, "%s; stop the daemon first", err.text);
    if (rc != 0)
        return tool_failed(COMMAND, "%s", err.text);
    rc = check_log(import);
    if (rc != TOOL_OK)
        return rc;
    rc = store_find(import->store, import->name, strlen(import->name), NULL, &err);
    if (rc == 0)
        return tool_failed(COMMAND, "%s: there is a filter '%s' already", import->datadir, import->name);
    if (rc != STORE_NOT_FOUND)
        return tool_failed(COMMAND, "%s", err.text);
    import->id = store_next_id(import->store);
    return TOOL_OK;
}

static int save(struct import *import)
{
    struct store_source source = {.next = on_next, .release = on_release, .ctx = import, .keep_unlisted = true};
    struct store_save_summary summary;
    struct errbuf err = {{0}};
    int rc = store_save(import->store, &source, &summary, &err);

    if (rc != 0)
        return tool_failed(COMMAND, "%s", err.text);
    printf("%s: filter '%s': %s, k %u, %" PRIu64 " bits, about %" PRIu64 " items, capacity %" PRIu64 ", error rate %.3g\n",
           import->datadir, import->name, filterdb_variant_name((enum bloom_variant)import->shape.variant),
           import->shape.k, 64 * import->shape.nwords, bloom_filter_items(import->filter), import->params.capacity,
           import->params.error_rate);
    return TOOL_OK;
}

int tool_import(int argc, char **argv)
{
    struct tool_option options[] = {{.name = "--variant"}, {.name = "--capacity"}, {.name = "--error"}, {.name = NULL}};
    const char *arguments[3] = {NULL, NULL, NULL};
    struct import import = {0};
    int rc = tool_arguments(argc, argv, options, arguments, 3);

    if (rc != TOOL_OK)
        return rc;
    import.datadir = arguments[0];
    import.name = arguments[1];
    import.file = arguments[2];
    import.capacity_text = options[1].value;
    import.error_text = options[2].value;
    if (strlen(import.name) > STORE_MAX_NAME)
        return tool_misused(COMMAND, "the name is longer than %d bytes", STORE_MAX_NAME);
    if (bloom_pool_create(&import.pool) != 0)
        return tool_failed(COMMAND, "out of memory");
    rc = open_file(&import, options[0].value);
    if (rc == TOOL_OK)
        rc = open_store(&import);
    if (rc == TOOL_OK)
        rc = save(&import);
    store_close(import.store);
    drop_filter(&import);
    bloom_pool_destroy(import.pool);
    return rc;
}
