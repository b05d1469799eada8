/* A file is produced in pieces of LAYER_IO_BYTES: the first one begins with the header, which is as long as a word, so
 * that every piece but the last is full and every piece begins at a multiple of its size: what direct I/O needs. The last
 * piece is padded with zeros to a whole block there, and the file cut to its length afterwards. */
#include "layer_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "filterdb.h"

int layer_io_init(struct layer_io *io, const struct fsops *fs)
{
    memset(io, 0, sizeof(*io));
    io->fs = fs;
    io->buf = aligned_alloc(FS_BLOCK, LAYER_IO_BYTES);
    io->hash = XXH3_createState();
    if (io->buf && io->hash)
        return 0;
    layer_io_deinit(io);
    return -ENOMEM;
}

void layer_io_deinit(struct layer_io *io)
{
    free(io->buf);
    XXH3_freeState(io->hash);
    io->buf = NULL;
    io->hash = NULL;
}

static size_t round_up(size_t len)
{
    return (len + FS_BLOCK - 1) & ~(size_t)(FS_BLOCK - 1);
}

/* Encodes the piece of the file at `offset`, a multiple of LAYER_IO_BYTES, and adds it to the checksum. */
static size_t make_piece(struct layer_io *io, const struct bloom_layer_view *layer, uint64_t offset)
{
    uint64_t left = filterdb_bytes(layer->shape.nwords) - offset;
    size_t len = left < LAYER_IO_BYTES ? (size_t)left : LAYER_IO_BYTES;
    size_t header = 0;

    if (offset == 0) {
        filterdb_encode_header(&layer->shape, io->buf);
        header = FILTERDB_HEADER_BYTES;
    }
    filterdb_encode_words((enum bloom_variant)layer->shape.variant,
                          layer->words + (offset + header - FILTERDB_HEADER_BYTES) / 8, (len - header) / 8,
                          io->buf + header);
    XXH3_64bits_update(io->hash, io->buf, len);
    return len;
}

static int write_pieces(struct layer_io *io, int fd, const struct bloom_layer_view *layer, bool direct)
{
    uint64_t size = filterdb_bytes(layer->shape.nwords);

    XXH3_64bits_reset(io->hash);
    for (uint64_t offset = 0; offset < size;) {
        size_t len = make_piece(io, layer, offset);
        size_t padded = direct ? round_up(len) : len;

        memset(io->buf + len, 0, padded - len);
        int rc = fs_write_all(io->fs, fd, io->buf, padded, offset);
        if (rc != 0)
            return rc;
        if (padded != len && (rc = io->fs->truncate(io->fs->ctx, fd, size)) != 0)
            return rc;
        offset += len;
        if (io->wrote)
            io->wrote(io->wrote_ctx, len);
    }
    return 0;
}

static int write_file(struct layer_io *io, const char *path, const struct bloom_layer_view *layer, bool sync, bool direct)
{
    const struct fsops *fs = io->fs;
    unsigned flags = FS_WRITE | FS_CREATE | FS_EXCLUSIVE | (direct ? FS_DIRECT : 0u);
    int fd;
    int rc = fs->open(fs->ctx, path, flags, &fd);

    /* A leftover. It is removed and never written to: it may be a second name of a valid file. */
    if (rc == -EEXIST) {
        rc = fs->unlink(fs->ctx, path);
        if (rc == 0)
            rc = fs->open(fs->ctx, path, flags, &fd);
    }
    if (rc != 0)
        return rc;
    rc = write_pieces(io, fd, layer, direct);
    if (rc == 0 && sync)
        rc = fs->sync(fs->ctx, fd);
    int close_rc = fs->close(fs->ctx, fd);
    return rc != 0 ? rc : close_rc;
}

int layer_write(struct layer_io *io, const char *path, const struct bloom_layer_view *layer, bool sync,
                uint64_t *xxh3_out, struct errbuf *err)
{
    bool direct = filterdb_bytes(layer->shape.nwords) >= LAYER_DIRECT_MIN;
    int rc = write_file(io, path, layer, sync, direct);

    if (rc == -EINVAL && direct) /* this file system, or its block size, cannot */
        rc = write_file(io, path, layer, sync, false);
    if (rc != 0) {
        errbuf_set(err, "%s: cannot write: %s", path, strerror(-rc));
        return rc;
    }
    *xxh3_out = XXH3_64bits_digest(io->hash);
    return 0;
}

uint64_t layer_digest(struct layer_io *io, const struct bloom_layer_view *layer)
{
    uint64_t size = filterdb_bytes(layer->shape.nwords);

    XXH3_64bits_reset(io->hash);
    for (uint64_t offset = 0; offset < size;)
        offset += make_piece(io, layer, offset);
    return XXH3_64bits_digest(io->hash);
}

/* At least `len` bytes at `offset` into the buffer. Asks for whole blocks, because direct reads must, also at the end. */
static int read_piece(struct layer_io *io, int fd, size_t len, uint64_t offset)
{
    for (size_t done = 0; done < len;) {
        size_t n = 0;
        int rc = io->fs->pread(io->fs->ctx, fd, io->buf + done, round_up(len) - done, offset + done, &n);

        if (rc != 0)
            return rc;
        if (n == 0)
            return -EIO; /* it became shorter under our hands */
        done += n;
    }
    return 0;
}

static int check_header(const struct layer_io *io, uint64_t size, const struct bloom_shape *expected, struct errbuf *err)
{
    struct bloom_shape shape;

    if (filterdb_decode_header(io->buf, size, (enum bloom_variant)expected->variant, &shape, err) != FILTERDB_OK)
        return LAYER_UNUSABLE;
    if (shape.k != expected->k) {
        errbuf_set(err, "header says hash count %u, the MANIFEST %u", shape.k, expected->k);
        return LAYER_UNUSABLE;
    }
    if (shape.nwords != expected->nwords) {
        errbuf_set(err, "header says %llu words, the MANIFEST %llu", (unsigned long long)shape.nwords,
                   (unsigned long long)expected->nwords);
        return LAYER_UNUSABLE;
    }
    return LAYER_OK;
}

static int read_pieces(struct layer_io *io, int fd, const struct bloom_layer_view *layer, uint64_t size,
                       struct errbuf *err)
{
    XXH3_64bits_reset(io->hash);
    for (uint64_t offset = 0; offset < size || offset == 0;) {
        size_t len = size - offset < LAYER_IO_BYTES ? (size_t)(size - offset) : LAYER_IO_BYTES;
        size_t header = offset == 0 ? FILTERDB_HEADER_BYTES : 0;
        int rc = read_piece(io, fd, len, offset);

        if (rc != 0)
            return rc;
        if (offset == 0 && (rc = check_header(io, size, &layer->shape, err)) != LAYER_OK)
            return rc;
        XXH3_64bits_update(io->hash, io->buf, len);
        filterdb_decode_words((enum bloom_variant)layer->shape.variant, io->buf + header, (len - header) / 8,
                              layer->words + (offset + header - FILTERDB_HEADER_BYTES) / 8);
        offset += len;
    }
    return 0;
}

static int read_file(struct layer_io *io, const char *path, const struct bloom_layer_view *layer, bool direct,
                     struct errbuf *err)
{
    const struct fsops *fs = io->fs;
    uint64_t size = 0;
    int fd;
    int rc = fs->open(fs->ctx, path, FS_READ | (direct ? FS_DIRECT : 0u), &fd);

    if (rc != 0)
        return rc;
    rc = fs->size(fs->ctx, fd, &size);
    if (rc == 0)
        rc = read_pieces(io, fd, layer, size, err);
    fs->close(fs->ctx, fd);
    return rc;
}

int layer_read(struct layer_io *io, const char *path, const struct bloom_layer_view *layer, uint64_t xxh3,
               struct errbuf *err)
{
    bool direct = filterdb_bytes(layer->shape.nwords) >= LAYER_DIRECT_MIN;
    int rc = read_file(io, path, layer, direct, err);

    if (rc == -EINVAL && direct)
        rc = read_file(io, path, layer, false, err);
    if (rc == -ENOENT)
        errbuf_set(err, "missing");
    else if (rc < 0)
        errbuf_set(err, "cannot read: %s", strerror(-rc));
    if (rc != 0)
        return rc;
    uint64_t found = XXH3_64bits_digest(io->hash);
    if (found == xxh3)
        return 0;
    errbuf_set(err, "checksum is %016llx, the MANIFEST says %016llx: the file has been changed or damaged",
               (unsigned long long)found, (unsigned long long)xxh3);
    return LAYER_UNUSABLE;
}
