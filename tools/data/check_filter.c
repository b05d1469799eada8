#include "check_filter.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "filterdb.h"
#include "fsops.h"
#include "key_file.h"
#include "layer_file.h"
#include "log_reader.h"
#include "log_text.h"
#include "tool.h"

int filter_checker_init(struct filter_checker *checker, const char *datadir, struct progress *progress)
{
    *checker = (struct filter_checker){.datadir = datadir, .progress = progress};
    pack_reader_init(&checker->packs, fsops_posix(), datadir);
    return bloom_pool_create(&checker->pool) == 0 ? 0 : -ENOMEM;
}

void filter_checker_deinit(struct filter_checker *checker)
{
    if (checker->pool)
        bloom_pool_destroy(checker->pool);
    pack_reader_deinit(&checker->packs);
}

/* ---- shapes ---- */

/* The words are not touched, so they take no memory. */
bool filter_shape_is_possible(struct filter_checker *checker, const struct bloom_params *params,
                              const struct bloom_shape *shapes, unsigned nlayers, const struct log_filter *grown,
                              struct errbuf *why)
{
    struct bloom_filter *filter = NULL;

    errbuf_set(why, "out of memory");
    int rc = bloom_filter_create(checker->pool, params, shapes, nlayers, &filter, why);
    for (unsigned i = nlayers; rc == 0 && grown && i < grown->ngrown && grown->grown[i].shape.nwords; i++) {
        rc = bloom_filter_append_layer(filter, &grown->grown[i].shape, why);
        if (rc != 0)
            errbuf_prefix(why, "layer %u", i);
    }
    bloom_filter_destroy(filter);
    return rc == 0;
}

/* ---- files ---- */

/* Whether the bytes of the layer, which begin with `head`, are those of the MANIFEST. */
static bool layer_is_whole(const struct layer_bytes *of, const unsigned char *head, struct errbuf *why)
{
    const struct manifest_layer *layer = &of->filter->layers[of->index];

    if (layer_check(head, of->size, &layer->shape, of->xxh3, layer->xxh3, why) == LAYER_OK)
        return true;
    errbuf_prefix(why, "%s", of->from);
    return false;
}

struct reading {
    struct progress *progress;
    unsigned char head[FILTERDB_HEADER_BYTES];
};

static int take_piece(void *ctx, const unsigned char *bytes, size_t n, uint64_t at)
{
    struct reading *reading = ctx;

    if (at == 0)
        memcpy(reading->head, bytes, n < sizeof(reading->head) ? n : sizeof(reading->head));
    progress_add(reading->progress, n);
    return 0;
}

bool filter_layer_is_whole(struct filter_checker *checker, const struct manifest_filter *filter, unsigned i,
                           uint64_t offset, struct errbuf *why)
{
    struct reading reading = {.progress = checker->progress};
    struct layer_bytes layer = {.filter = filter, .index = i, .offset = offset};

    return layer_pieces(&layer, checker->datadir, &checker->packs, take_piece, &reading, why) == 0 &&
           layer_is_whole(&layer, reading.head, why);
}

/* ---- keys ---- */

struct need {
    const struct key_file *keys; /* NULL: none */
    uint64_t without;
};

static int on_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    struct need *need = ctx;
    bool has = filter->params.key == 0;

    (void)err;
    for (size_t i = 0; need->keys && i < need->keys->n; i++)
        has |= need->keys->secrets[i].id == filter->params.key;
    need->without += !has;
    return 0;
}

int check_keys(const char *datadir, bool print, struct errbuf *err)
{
    const struct fsops *fs = fsops_posix();
    struct key_file *keys = NULL;
    struct need need = {0};
    const struct manifest_sink sink = {.on_filter = on_filter, .ctx = &need};
    struct fs_stat found;
    struct path path;
    int rc = path_format(&path, err, "%s/" KEY_FILE_NAME, datadir);

    if (rc == 0 && fs->stat(fs->ctx, path.text, &found) == 0)
        rc = key_file_read(fs, path.text, &keys, err);
    need.keys = keys;
    if (rc == 0)
        (void)tool_read_manifest(datadir, &sink, NULL, &(struct errbuf){{0}}); /* other checks report its damage */
    key_file_free(keys);
    if (print && need.without)
        printf("keys: %s without a key in KEYS: queries get errors unless bf-key-file has it\n",
               log_count(need.without, "KEYED filter").text);
    return rc;
}

/* ---- the log ---- */

#define HAS_CHANGES 100 /* no status of the reader */

static int on_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    const struct store_checkpoint *save = ctx;

    (void)err;
    return number > save->control && control->kind != LOG_BREAK ? HAS_CHANGES : 0;
}

int log_has_changes(const char *datadir, const struct store_checkpoint *save, store_report_fn *report, void *report_ctx,
                    struct errbuf *err)
{
    const struct log_reader_options options = {.dir = datadir,
                                               .from = save->log,
                                               .reached = save->frame,
                                               .accepted = save->accepted,
                                               .report = report,
                                               .report_ctx = report_ctx,
                                               .on_control = on_control,
                                               .ctx = (void *)save};
    struct log_reader_summary sum = {0};
    struct log_reader *reader = NULL;
    int rc = log_reader_open(&options, &reader, &sum, err);

    log_reader_close(reader);
    return rc == HAS_CHANGES || (rc == 0 && sum.adds > 0) ? 1 : rc == 0 ? 0 : -1;
}

/* ---- files ---- */

static int file_pieces(const char *path, piece_fn *take, void *ctx, uint64_t *size_out, uint64_t *xxh3_out)
{
    static unsigned char piece[1u << 20];
    const struct fsops *fs = fsops_posix();
    XXH3_state_t *hash = XXH3_createState();
    uint64_t at = 0;
    size_t n = 1;
    int fd = -1;
    int rc = hash ? fs->open(fs->ctx, path, FS_READ, &fd) : -ENOMEM;

    if (rc == 0)
        XXH3_64bits_reset(hash);
    while (rc == 0 && n > 0) {
        rc = fs->pread(fs->ctx, fd, piece, sizeof(piece), at, &n);
        if (rc == 0 && n > 0)
            rc = take(ctx, piece, n, at);
        if (rc == 0)
            XXH3_64bits_update(hash, piece, n);
        at += n;
    }
    if (rc == 0) {
        *size_out = at;
        *xxh3_out = XXH3_64bits_digest(hash);
    }
    if (fd >= 0)
        fs->close(fs->ctx, fd);
    XXH3_freeState(hash);
    return rc;
}

int layer_pieces(struct layer_bytes *layer, const char *datadir, struct pack_reader *packs, piece_fn *take, void *ctx,
                 struct errbuf *why)
{
    const struct manifest_filter *filter = layer->filter;
    struct file_name name = {.kind = FILE_PACK, .number = filter->pack};
    const unsigned char *bytes;
    char file[FILE_NAME_SIZE];
    int rc;

    if (!filter->pack)
        name = manifest_layer_file(filter, layer->index);
    file_name_format(&name, file);
    snprintf(layer->from, sizeof(layer->from), "%s/" FILTERS_DIR "/%s", datadir, file);
    layer->size = filterdb_bytes(filter->layers[layer->index].shape.nwords);
    if (!filter->pack) {
        rc = file_pieces(layer->from, take, ctx, &layer->size, &layer->xxh3);
    } else {
        size_t len = strlen(layer->from);
        snprintf(layer->from + len, sizeof(layer->from) - len, ": layer %u, at byte %" PRIu64, layer->index,
                 layer->offset);
        if (pack_read(packs, filter->pack, layer->offset, (size_t)layer->size, &bytes, why) != 0)
            return -EIO;
        layer->xxh3 = XXH3_64bits(bytes, (size_t)layer->size);
        rc = take(ctx, bytes, (size_t)layer->size, 0);
    }
    return rc == 0 ? 0 : errbuf_fail(why, rc, "%s: %s", layer->from, strerror(-rc));
}
