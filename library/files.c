/* The files of bloomery.h: layers one after the other, from memory or from a file, piece by piece. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "filterdb.h"
#include "fsops.h"
#include "internal.h"
#include "new_file.h"
#include "redisbloom.h"
#include "bloom_layout.h"

#define PIECE 262144u /* bytes that are turned into words at once; a multiple of 8 */

/* ---- sources of bytes ---- */

struct source {
    const unsigned char *bytes; /* NULL: in the file */
    int fd;
    unsigned char *piece; /* PIECE bytes, for a file */
    uint64_t size;
};

/* Bytes at..at + n - 1, within the size; n is at most PIECE. They are valid until the next call. */
static int take(const struct source *source, uint64_t at, size_t n, const unsigned char **bytes_out, struct errbuf *err)
{
    if (source->bytes) {
        *bytes_out = source->bytes + at;
        return BLOOMERY_OK;
    }
    int rc = fs_read_all(fsops_posix(), source->fd, source->piece, n, at);
    *bytes_out = source->piece;
    if (rc == 0)
        return BLOOMERY_OK;
    return errbuf_fail(err, BLOOMERY_SYSTEM, "cannot read: %s", fs_error_text(rc));
}

/* ---- headers ---- */

struct header {
    struct bloom_params params; /* of RedisBloom's layout; unused for Cassandra's */
    struct bloom_shape shape;
    uint64_t items; /* likewise */
    uint64_t bytes; /* of the header */
    uint64_t bits;  /* bytes after it */
};

static int read_filterdb(const unsigned char *bytes, uint64_t left, enum bloom_variant variant, struct header *header,
                         struct errbuf *err)
{
    uint64_t announced = left < FILTERDB_HEADER_BYTES ? left : filterdb_bytes(be32_get(bytes + 4));
    int rc = filterdb_decode_header(bytes, announced < left ? announced : left, variant, &header->shape, err);

    if (rc != FILTERDB_OK)
        return BLOOMERY_MALFORMED;
    header->bytes = FILTERDB_HEADER_BYTES;
    header->bits = 8 * header->shape.nwords;
    return BLOOMERY_OK;
}

static int read_bits_file(const unsigned char *bytes, uint64_t left, enum bloom_variant variant, struct header *header,
                          struct errbuf *err)
{
    int rc = bits_file_decode_header(bytes, left, &header->params, &header->shape, &header->items, err);

    if (rc == BLOOM_OK && header->shape.variant != variant) {
        errbuf_set(err, "its layout is %s, not %s", bloom_variant_name(header->shape.variant),
                   bloom_variant_name(variant));
        rc = BLOOM_REFUSED;
    }
    if (rc != BLOOM_OK)
        return BLOOMERY_MALFORMED;
    header->bits = bloom_shape_bytes(&header->shape);
    header->bytes = export_file_bytes(&header->shape) - header->bits;
    return BLOOMERY_OK;
}

static int read_header(const struct source *source, uint64_t at, enum bloom_variant variant, struct header *header,
                       struct errbuf *err)
{
    const unsigned char *bytes;
    uint64_t left = source->size - at;
    size_t n = left < BITS_FILE_HEADER_BYTES ? (size_t)left : BITS_FILE_HEADER_BYTES;
    int status = take(source, at, n, &bytes, err);

    *header = (struct header){.items = 0};
    if (status != BLOOMERY_OK)
        return status;
    return bloom_layout_of(variant)->own_numbers ? read_bits_file(bytes, left, variant, header, err)
                                                 : read_filterdb(bytes, left, variant, header, err);
}

/* ---- layers ---- */

static int append_layer(bloomery_filter *filter, const struct header *header, struct errbuf *err)
{
    bool redisbloom = bloom_layout_of(header->shape.variant)->own_numbers;
    struct bloom_alone *alone = &filter->alone;
    int rc;

    if (!alone->filter) {
        rc = bloom_alone_init(alone, &header->shape, redisbloom ? &header->params : NULL, err);
    } else {
        const struct bloom_params *first = bloom_filter_params(alone->filter);
        if (redisbloom &&
            (header->params.redisbloom != first->redisbloom || header->params.expansion != first->expansion))
            return errbuf_fail(
                err, BLOOMERY_MALFORMED, "its options and growth are %u and %u, those of the first layer %u and %u",
                header->params.redisbloom, header->params.expansion, first->redisbloom, first->expansion);
        if (redisbloom && !bloom_seed_equal(&header->params.seed, &first->seed))
            return errbuf_fail(err, BLOOMERY_MALFORMED, "its seed is not that of the first layer");
        rc = bloom_filter_append_layer(alone->filter, &header->shape, err);
        if (rc == -ENOMEM)
            errbuf_set(err, "%s", strerror(ENOMEM));
        else if (rc == 0)
            bloom_filter_expect_fill(alone->filter);
    }
    if (rc == 0)
        bloom_filter_set_items(alone->filter, bloomery_layers(filter) - 1, header->items);
    return rc > 0 ? BLOOMERY_MALFORMED : bloomery_status_of(rc);
}

/* Its newest layer gets the bits at `at`. */
static int read_bits(bloomery_filter *filter, const struct source *source, uint64_t at, const struct header *header,
                     struct errbuf *err)
{
    unsigned layer = bloomery_layers(filter) - 1;
    struct bloom_layer_view view;
    int status = BLOOMERY_OK;

    bloomery_view(filter, layer, &view);
    for (uint64_t from = 0; status == BLOOMERY_OK && from < header->bits; from += PIECE) {
        size_t n = header->bits - from < PIECE ? (size_t)(header->bits - from) : PIECE;
        const unsigned char *bytes;
        status = take(source, at + from, n, &bytes, err);
        if (status != BLOOMERY_OK)
            return status;
        if (bloom_layout_of(filter->variant)->own_numbers)
            bloom_filter_put_bytes(filter->alone.filter, layer, from, bytes, n);
        else
            filterdb_decode_words((enum bloom_variant)filter->variant, bytes, n / 8, view.words + from / 8);
    }
    return status;
}

static int read_layers(bloomery_filter *filter, const struct source *source, int layers, struct errbuf *err)
{
    uint64_t at = 0;

    while (at < source->size) {
        struct header header;
        int status = read_header(source, at, (enum bloom_variant)filter->variant, &header, err);
        STEP(status, append_layer(filter, &header, err));
        STEP(status, read_bits(filter, source, at + header.bytes, &header, err));
        if (status != BLOOMERY_OK) {
            if (at > 0)
                errbuf_prefix(err, "the layer at byte %llu", (unsigned long long)at);
            return status;
        }
        at += header.bytes + header.bits;
    }
    if (layers < 0 ? bloomery_layers(filter) > 0 : bloomery_layers(filter) == (unsigned)layers)
        return BLOOMERY_OK;
    if (layers < 0)
        errbuf_set(err, "no bytes: a filter has one layer at least");
    else
        errbuf_set(err, "the bytes have %u layers, not %d", bloomery_layers(filter), layers);
    return BLOOMERY_MALFORMED;
}

static int read_source(const struct source *source, enum bloom_variant variant, int layers,
                       bloomery_filter **filter_out, struct errbuf *err)
{
    bloomery_filter *filter = bloomery_new(variant, err);
    int status = filter ? read_layers(filter, source, layers, err) : BLOOMERY_NO_MEMORY;

    if (status == BLOOMERY_OK)
        *filter_out = filter;
    else
        bloomery_free(filter);
    return status;
}

/* ---- reading ---- */

int bloomery_read(const void *data, size_t bytes, const char *layout, int layers, bloomery_filter **filter_out,
                  char *text, size_t size)
{
    const struct source source = {.bytes = data ? data : "", .fd = -1, .size = data ? bytes : 0};
    struct errbuf err = {{0}};
    enum bloom_variant variant;
    int status = bloomery_parse_layout(layout, &variant, &err);

    STEP(status, read_source(&source, variant, layers, filter_out, &err));
    return bloomery_end(status, &err, text, size);
}

static int layout_of(const char *path, const char *layout, enum bloom_variant *variant_out, struct errbuf *err)
{
    uint64_t key = filterdb_key_of_path(path, &(size_t){0});

    if (key)
        return errbuf_fail(err, BLOOMERY_KEYED,
                           "the filter is KEYED with the key %016llx: only a server that has it can be asked",
                           (unsigned long long)key);
    if (layout)
        return bloomery_parse_layout(layout, variant_out, err);
    if (filterdb_variant_from_path(path, variant_out, err) == FILTERDB_OK)
        return BLOOMERY_OK;
    errbuf_prefix(err, "its layout has to be given");
    return BLOOMERY_REFUSED;
}

int bloomery_open(const char *path, const char *layout, bloomery_filter **filter_out, char *text, size_t size)
{
    const struct fsops *fs = fsops_posix();
    struct errbuf err = {{0}};
    struct source source = {.fd = -1};
    enum bloom_variant variant;
    int status = layout_of(path, layout, &variant, &err);

    if (status != BLOOMERY_OK)
        return bloomery_end(status, &err, text, size);
    source.piece = malloc(PIECE);
    int rc = source.piece ? fs->open(fs->ctx, path, FS_READ, &source.fd) : -ENOMEM;
    STEP(rc, fs->size(fs->ctx, source.fd, &source.size));
    if (rc == 0) {
        status = read_source(&source, variant, -1, filter_out, &err);
    } else {
        errbuf_set(&err, "cannot open: %s", rc == -EINVAL || rc == -ENXIO ? "not a regular file" : fs_error_text(rc));
        status = source.piece ? BLOOMERY_SYSTEM : BLOOMERY_NO_MEMORY;
    }
    if (source.fd >= 0)
        fs->close(fs->ctx, source.fd);
    free(source.piece);
    return bloomery_end(status, &err, text, size);
}

/* ---- writing ---- */

/* Takes the next bytes of the file. 0 or -errno. */
typedef int put_fn(void *ctx, const unsigned char *bytes, size_t n);

static int put_layer(const bloomery_filter *filter, unsigned layer, unsigned char *piece, put_fn *put, void *ctx)
{
    struct bloom_layer_view view;

    bloomery_view(filter, layer, &view);
    size_t header = export_file_header(bloom_filter_params(filter->alone.filter), &view.shape, view.items, piece);
    uint64_t bits = export_file_bytes(&view.shape) - header;
    int rc = put(ctx, piece, header);
    for (uint64_t from = 0; rc == 0 && from < bits; from += PIECE) {
        size_t n = bits - from < PIECE ? (size_t)(bits - from) : PIECE;
        filterdb_encode_words((enum bloom_variant)view.shape.variant, view.words + from / 8, (n + 7) / 8, piece);
        rc = put(ctx, piece, n);
    }
    return rc;
}

static int put_layers(const bloomery_filter *filter, put_fn *put, void *ctx)
{
    unsigned char *piece = malloc(PIECE);
    int rc = piece ? 0 : -ENOMEM;

    for (unsigned i = 0; rc == 0 && i < bloomery_layers(filter); i++)
        rc = put_layer(filter, i, piece, put, ctx);
    free(piece);
    return rc;
}

uint64_t bloomery_bytes(const bloomery_filter *filter)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < bloomery_layers(filter); i++) {
        struct bloom_layer_view view;
        bloomery_view(filter, i, &view);
        bytes += export_file_bytes(&view.shape);
    }
    return bytes;
}

static int put_in_memory(void *ctx, const unsigned char *bytes, size_t n)
{
    unsigned char **at = ctx;

    memcpy(*at, bytes, n);
    *at += n;
    return 0;
}

int bloomery_write(const bloomery_filter *filter, void *out, size_t room, char *text, size_t size)
{
    struct errbuf err = {{0}};
    unsigned char *at = out;
    int status = BLOOMERY_OK;

    if (room < bloomery_bytes(filter)) {
        errbuf_set(&err, "the filter takes %llu bytes, not %zu", (unsigned long long)bloomery_bytes(filter), room);
        status = BLOOMERY_REFUSED;
    } else if (put_layers(filter, put_in_memory, &at) != 0) {
        errbuf_set(&err, "%s", strerror(ENOMEM));
        status = BLOOMERY_NO_MEMORY;
    }
    return bloomery_end(status, &err, text, size);
}

struct saving {
    struct new_file file;
    uint64_t at;
};

static int put_in_file(void *ctx, const unsigned char *bytes, size_t n)
{
    struct saving *saving = ctx;
    int rc = fs_write_all(fsops_posix(), saving->file.fd, bytes, n, saving->at);

    saving->at += n;
    return rc;
}

int bloomery_save(const bloomery_filter *filter, const char *path, char *text, size_t size)
{
    struct errbuf err = {{0}};
    struct saving saving = {.at = 0};
    int rc = new_file_open(&saving.file, path, true, &err);

    if (rc == 0) {
        rc = put_layers(filter, put_in_file, &saving);
        rc = new_file_end(&saving.file, rc, &err);
    }
    return bloomery_end(rc == 0 ? BLOOMERY_OK : rc == -ENOMEM ? BLOOMERY_NO_MEMORY : BLOOMERY_SYSTEM, &err, text, size);
}
