#include "filter_file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_layout.h"
#include "filterdb.h"

#define PIECE_WORDS 65536u /* read at once */

/* ---- opening ---- */

/* -EINVAL and -ENXIO: a FIFO, a device or a socket has the name of a filter. */
static const char *reason_for(int rc)
{
    return rc == -EINVAL || rc == -ENXIO ? "it is not a regular file" : fs_error_text(rc);
}

int filter_file_adopt(struct filter_file *file, const struct fsops *fs, int fd, enum bloom_variant variant,
                      struct errbuf *err)
{
    unsigned char header[FILTERDB_HEADER_BYTES] = {0};
    uint64_t size = 0;

    *file = (struct filter_file){.fs = fs, .fd = fd};
    int rc = fs->size(fs->ctx, fd, &size);
    if (rc == 0)
        rc = fs_read_all(fs, fd, header, size < sizeof(header) ? (size_t)size : sizeof(header), 0);
    if (rc != 0)
        errbuf_set(err, "%s", reason_for(rc));
    else
        rc = filterdb_decode_header(header, size, variant, &file->shape, err);
    if (rc != 0)
        filter_file_close(file);
    return rc;
}

int filter_file_open(struct filter_file *file, const struct fsops *fs, const char *path, const char *variant_text,
                     struct errbuf *err)
{
    enum bloom_variant variant;
    int fd;

    *file = (struct filter_file){.fs = fs, .fd = -1};
    if (variant_text) {
        if (filterdb_variant_parse(variant_text, strlen(variant_text), &variant) != FILTERDB_OK) {
            errbuf_set(err, "the variant '%s' is not na, me or ka", variant_text);
            return FILTERDB_MALFORMED;
        }
    } else if (filterdb_variant_from_path(path, &variant, err) != FILTERDB_OK) {
        return FILTERDB_MALFORMED;
    }
    int rc = fs->open(fs->ctx, path, FS_READ, &fd);
    if (rc == 0) {
        rc = filter_file_adopt(file, fs, fd, variant, err);
        file->key = filterdb_key_of_path(path, &(size_t){0});
        return rc;
    }
    errbuf_set(err, "cannot open: %s", reason_for(rc));
    return rc;
}

void filter_file_close(struct filter_file *file)
{
    if (file->fd >= 0)
        file->fs->close(file->fs->ctx, file->fd);
    file->fd = -1;
}

/* ---- items ---- */

/* FORMAT.md sections 1 and 4, without the reciprocal: a read of the file takes a hundred times a division. */
int filter_file_query(const struct filter_file *file, struct bloom_hash hash)
{
    const struct bloom_layout *layout = bloom_layout_of(file->shape.variant);
    bool h1_first = layout->h1_first;
    uint64_t base = h1_first ? hash.h1 : hash.h2, step = h1_first ? hash.h2 : hash.h1;
    uint64_t bits = 64 * file->shape.nwords;

    for (unsigned i = 0; i < file->shape.k; i++, base += step) {
        uint64_t bit = (base >> 63 ? 0 - base : base) % bits;
        uint64_t byte = layout->big_endian ? bit / 64 * 8 + 7 - bit / 8 % 8 : bit / 8;
        unsigned char value;
        int rc = fs_read_all(file->fs, file->fd, &value, 1, FILTERDB_HEADER_BYTES + byte);
        if (rc != 0)
            return rc;
        if (!(value >> (bit % 8) & 1))
            return 0;
    }
    return 1;
}

/* ---- words ---- */

int filter_file_read(const struct filter_file *file, uint64_t from, uint64_t n, _Atomic uint64_t *words)
{
    unsigned char *buf = malloc(8 * (n < PIECE_WORDS ? (size_t)n : PIECE_WORDS));
    int rc = buf ? 0 : -ENOMEM;

    for (uint64_t at = 0; at < n && rc == 0; at += PIECE_WORDS) {
        size_t piece = n - at < PIECE_WORDS ? (size_t)(n - at) : PIECE_WORDS;
        rc = fs_read_all(file->fs, file->fd, buf, 8 * piece, filterdb_bytes(from + at));
        if (rc == 0)
            filterdb_decode_words((enum bloom_variant)file->shape.variant, buf, piece, words + at);
    }
    free(buf);
    return rc;
}

int filter_file_state(const struct filter_file *file, void (*progress)(void *ctx, uint64_t words), void *ctx,
                      struct bloom_state *state_out)
{
    _Atomic uint64_t *words = malloc(8 * PIECE_WORDS);
    uint64_t nwords = file->shape.nwords, set = 0;
    int rc = words ? 0 : -ENOMEM;

    for (uint64_t at = 0; at < nwords && rc == 0; at += PIECE_WORDS) {
        struct bloom_layer_view piece = {.shape = file->shape, .words = words};
        struct bloom_state state;
        piece.shape.nwords = nwords - at < PIECE_WORDS ? nwords - at : PIECE_WORDS;
        memset((void *)words, 0, 8 * PIECE_WORDS);
        rc = filter_file_read(file, at, piece.shape.nwords, words);
        if (rc == 0) {
            bloom_layer_state(&piece, &state);
            set += state.bits_set;
            if (progress)
                progress(ctx, at + piece.shape.nwords);
        }
    }
    free((void *)words);
    if (rc == 0)
        bloom_shape_state(&file->shape, set, state_out);
    return rc;
}

/* ---- parameters ---- */

/* Rounding gives 1 for a hopelessly overfull filter, and 0 for one far too large for its capacity. */
double filter_file_rate(const struct bloom_shape *shape, uint64_t capacity)
{
    double rate = bloom_size_rate(capacity, shape->k, 64 * shape->nwords);

    if (rate >= 1)
        return nextafter(1, 0);
    return rate > 0 ? rate : 1e-300;
}

void filter_file_params(const struct bloom_shape *shape, const struct bloom_state *state,
                        struct bloom_params *params_out)
{
    uint64_t items = (uint64_t)llround(state->estimated_items);
    uint64_t made_for = (uint64_t)((double)(64 * shape->nwords) * M_LN2 / shape->k);
    uint64_t capacity = items > made_for ? items : made_for;

    capacity = capacity > 0 ? capacity : 1;
    *params_out = (struct bloom_params){.capacity = capacity, .error_rate = filter_file_rate(shape, capacity)};
}
