/* A file is produced in pieces of LAYER_IO_BYTES: the first one begins with the header, which is as long as a word, so
 * that every piece but the last is full and every piece begins at a multiple of its size: what direct I/O needs. The last
 * piece is padded with zeros to a whole block there, and the file cut to its length afterwards.
 *
 * While a piece of a large file is on its way to (from) the disk, the next (previous) one is copied and hashed: each of the
 * two takes about as long as the other on a fast disk. */
#include "layer_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "filterdb.h"
#include "io_helper.h"

#define HASH_BYTES 65536 /* copied and hashed at a time, while they are in the fastest cache */

int layer_io_init(struct layer_io *io, const struct fsops *fs)
{
    memset(io, 0, sizeof(*io));
    io->fs = fs;
    for (int i = 0; i < 2; i++)
        io->buf[i] = aligned_alloc(FS_BLOCK, LAYER_IO_BYTES);
    io->hash = XXH3_createState();
    if (io->buf[0] && io->buf[1] && io->hash)
        return 0;
    layer_io_deinit(io);
    return -ENOMEM;
}

void layer_io_deinit(struct layer_io *io)
{
    io_helper_stop(io->helper);
    free(io->buf[0]);
    free(io->buf[1]);
    XXH3_freeState(io->hash);
    io->buf[0] = io->buf[1] = NULL;
    io->hash = NULL;
    io->helper = NULL;
}

/* Hands a job over, or does it at once when there is no helper. */
static int begin_job(struct layer_io *io, const struct io_job *job)
{
    if (!io->helper)
        return io_job_run(io->fs, job);
    io_helper_submit(io->helper, job);
    return 0;
}

static int end_job(struct layer_io *io)
{
    return io->helper ? io_helper_wait(io->helper) : 0;
}

/* Without a helper everything works, only slower. */
static void get_help(struct layer_io *io, uint64_t file_size)
{
    if (!io->helper && file_size >= LAYER_HELP_MIN && io_helper_start(&io->helper, io->fs) != 0)
        io->helper = NULL;
}

static size_t round_up(size_t len)
{
    return (len + FS_BLOCK - 1) & ~(size_t)(FS_BLOCK - 1);
}

/* Encodes the piece of the file at `offset`, a multiple of LAYER_IO_BYTES, and adds it to the checksum. */
static size_t make_piece(struct layer_io *io, const struct bloom_layer_view *layer, uint64_t offset, unsigned char *buf)
{
    uint64_t left = filterdb_bytes(layer->shape.nwords) - offset;
    size_t len = left < LAYER_IO_BYTES ? (size_t)left : LAYER_IO_BYTES;

    for (size_t at = 0; at < len;) {
        size_t part = len - at < HASH_BYTES ? len - at : HASH_BYTES;
        size_t header = 0;

        if (offset + at == 0) {
            filterdb_encode_header(&layer->shape, buf);
            header = FILTERDB_HEADER_BYTES;
        }
        filterdb_encode_words((enum bloom_variant)layer->shape.variant,
                              layer->words + (offset + at + header - FILTERDB_HEADER_BYTES) / 8, (part - header) / 8,
                              buf + at + header);
        XXH3_64bits_update(io->hash, buf + at, part);
        at += part;
    }
    return len;
}

static int write_pieces(struct layer_io *io, int fd, const struct bloom_layer_view *layer, bool direct)
{
    uint64_t size = filterdb_bytes(layer->shape.nwords);
    struct io_job job = {.write = true, .fd = fd};
    unsigned which = 0;
    size_t under_way = 0; /* bytes of the file that a job writes */
    int rc = 0;

    XXH3_64bits_reset(io->hash);
    get_help(io, size);
    for (uint64_t offset = 0; offset < size && rc == 0; which ^= 1) {
        size_t len = make_piece(io, layer, offset, io->buf[which]);

        job.buf = io->buf[which];
        job.len = direct ? round_up(len) : len;
        job.offset = offset;
        memset(io->buf[which] + len, 0, job.len - len);
        if (under_way > 0)
            rc = end_job(io);
        if (rc == 0 && under_way > 0 && io->wrote)
            io->wrote(io->wrote_ctx, under_way);
        under_way = 0;
        if (rc == 0 && (rc = begin_job(io, &job)) == 0)
            under_way = len;
        offset += len;
    }
    if (under_way > 0) {
        rc = end_job(io);
        if (rc == 0 && io->wrote)
            io->wrote(io->wrote_ctx, under_way);
    }
    return rc == 0 && direct && size % FS_BLOCK != 0 ? io->fs->truncate(io->fs->ctx, fd, size) : rc;
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
        offset += make_piece(io, layer, offset, io->buf[0]);
    return XXH3_64bits_digest(io->hash);
}

static int check_header(const unsigned char *bytes, uint64_t size, const struct bloom_shape *expected, struct errbuf *err)
{
    struct bloom_shape shape;

    if (filterdb_decode_header(bytes, size, (enum bloom_variant)expected->variant, &shape, err) != FILTERDB_OK)
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

/* Takes a piece that has been read. */
static int take_piece(struct layer_io *io, const struct bloom_layer_view *layer, const unsigned char *buf, size_t len,
                      uint64_t offset, uint64_t size, struct errbuf *err)
{
    int rc = offset == 0 ? check_header(buf, size, &layer->shape, err) : LAYER_OK;

    for (size_t at = 0; at < len && rc == LAYER_OK;) {
        size_t part = len - at < HASH_BYTES ? len - at : HASH_BYTES;
        size_t header = offset + at == 0 ? FILTERDB_HEADER_BYTES : 0;

        XXH3_64bits_update(io->hash, buf + at, part);
        filterdb_decode_words((enum bloom_variant)layer->shape.variant, buf + at + header, (part - header) / 8,
                              layer->words + (offset + at + header - FILTERDB_HEADER_BYTES) / 8);
        at += part;
    }
    return rc;
}

static size_t piece_len(uint64_t size, uint64_t offset)
{
    return size - offset < LAYER_IO_BYTES ? (size_t)(size - offset) : LAYER_IO_BYTES;
}

/* Asks for whole blocks, because direct reads must, also at the end. */
static int begin_read(struct layer_io *io, int fd, unsigned char *buf, uint64_t size, uint64_t offset)
{
    size_t len = piece_len(size, offset);
    struct io_job job = {.fd = fd, .buf = buf, .len = round_up(len), .need = len, .offset = offset};

    return begin_job(io, &job);
}

static int read_pieces(struct layer_io *io, int fd, const struct bloom_layer_view *layer, uint64_t size,
                       struct errbuf *err)
{
    unsigned which = 0;
    int rc;

    XXH3_64bits_reset(io->hash);
    get_help(io, size);
    rc = begin_read(io, fd, io->buf[0], size, 0);
    for (uint64_t offset = 0; rc == 0; which ^= 1) {
        size_t len = piece_len(size, offset);
        uint64_t next = offset + len;

        rc = end_job(io);
        bool more = rc == 0 && next < size;
        if (more && io->helper)
            rc = begin_read(io, fd, io->buf[which ^ 1], size, next);
        int take_rc = rc == 0 ? take_piece(io, layer, io->buf[which], len, offset, size, err) : rc;
        if (take_rc != 0) {
            if (more && io->helper)
                (void)end_job(io);
            return take_rc;
        }
        if (!more)
            return 0;
        if (!io->helper)
            rc = begin_read(io, fd, io->buf[which ^ 1], size, next);
        offset = next;
    }
    return rc;
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
