/* Numbers are little-endian. The file begins with
 *
 *     8  "BLOOMPCK"
 *     4  version, 1
 *     4  0
 *
 * and continues with records:
 *
 *     8  XXH3-64 of the rest of the record
 *     4  "BPR\x01"
 *     2  length of the name
 *     2  layers
 *     8  id
 *     1  variant, its number in enum bloom_variant
 *        the name
 *        the layers, each as a Filter.db file */
#include "pack.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "bytes.h"
#include "check.h"
#include "filterdb.h"
#include "layer_file.h"

static const unsigned char file_header[PACK_HEADER_BYTES] = "BLOOMPCK\x01";
static const unsigned char record_magic[4] = {'B', 'P', 'R', 1};

/* The size of a read when a record does not follow the one before. */
#define LEAP_BYTES 4096

/* ---- writing ---- */

void pack_writer_init(struct pack_writer *writer, const struct fsops *fs)
{
    *writer = (struct pack_writer){.fs = fs, .fd = -1};
}

void pack_writer_deinit(struct pack_writer *writer)
{
    if (writer->fd >= 0)
        writer->fs->close(writer->fs->ctx, writer->fd);
    writer->fd = -1;
    free(writer->buf);
    writer->buf = NULL;
}

int pack_writer_open(struct pack_writer *writer, const char *path)
{
    const struct fsops *fs = writer->fs;

    if (!writer->buf && !(writer->buf = malloc(PACK_BUFFER_BYTES)))
        return -ENOMEM;
    int rc = fs->open(fs->ctx, path, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &writer->fd);
    if (rc != 0) {
        writer->fd = -1;
        return rc;
    }
    memcpy(writer->buf, file_header, sizeof(file_header));
    writer->len = sizeof(file_header);
    writer->flushed = 0;
    return 0;
}

static int flush(struct pack_writer *writer)
{
    TRY(fs_write_all(writer->fs, writer->fd, writer->buf, writer->len, writer->flushed));
    if (writer->wrote)
        writer->wrote(writer->wrote_ctx, writer->len);
    writer->flushed += writer->len;
    writer->len = 0;
    return 0;
}

static void put_layer(unsigned char *out, const struct bloom_filter *filter, unsigned i, struct manifest_filter *record)
{
    struct manifest_layer *layer = &record->layers[i];
    struct bloom_layer_view view;

    bloom_filter_layer(filter, i, &view);
    layer->turn = bloom_layer_turn(&view); /* before the bits */
    layer_encode(&view, out);
    record->variant = (enum bloom_variant)view.shape.variant;
    layer->shape = view.shape;
    layer->xxh3 = XXH3_64bits(out, filterdb_bytes(view.shape.nwords));
    /* After the bits, for the reason given in store_put_layer(). */
    bloom_filter_layer(filter, i, &view);
    layer->items = view.ordinal;
}

int pack_append(struct pack_writer *writer, const struct bloom_filter *filter, struct manifest_filter *record)
{
    struct bloom_layer_view view;
    uint64_t images = 0;

    for (unsigned i = 0; i < record->nlayers; i++) {
        bloom_filter_layer(filter, i, &view);
        images += filterdb_bytes(view.shape.nwords);
    }
    CHECK(images <= MANIFEST_MAX_PACKED && record->name_len <= MANIFEST_MAX_NAME);
    size_t bytes = (size_t)pack_record_bytes(record->name_len, images);
    TRY(writer->len + bytes > PACK_BUFFER_BYTES ? flush(writer) : 0);

    unsigned char *start = writer->buf + writer->len, *at = start + PACK_RECORD_HEADER_BYTES;
    memcpy(start + 8, record_magic, sizeof(record_magic));
    le16_put(start + 12, (uint16_t)record->name_len);
    le16_put(start + 14, (uint16_t)record->nlayers);
    le64_put(start + 16, record->id);
    memcpy(at, record->name, record->name_len);
    at += record->name_len;
    record->pack_offset = pack_writer_size(writer) + (uint64_t)(at - start);
    for (unsigned i = 0; i < record->nlayers; i++) {
        put_layer(at, filter, i, record);
        at += filterdb_bytes(record->layers[i].shape.nwords);
    }
    CHECK(at == start + bytes);
    start[24] = (unsigned char)record->variant;
    le64_put(start, XXH3_64bits(start + 8, bytes - 8));
    writer->len += bytes;
    return 0;
}

int pack_writer_close(struct pack_writer *writer)
{
    const struct fsops *fs = writer->fs;
    int rc = flush(writer);

    STEP(rc, fs->sync(fs->ctx, writer->fd));
    int close_rc = fs->close(fs->ctx, writer->fd);
    writer->fd = -1;
    return rc != 0 ? rc : close_rc;
}

/* ---- reading ---- */

void pack_reader_init(struct pack_reader *reader, const struct fsops *fs, const char *dir)
{
    *reader = (struct pack_reader){.fs = fs, .dir = dir};
}

static void drop_window(struct pack_reader *reader, struct pack_window *window)
{
    if (window->number)
        reader->fs->close(reader->fs->ctx, window->fd);
    window->number = 0;
    window->len = 0;
}

void pack_reader_deinit(struct pack_reader *reader)
{
    for (unsigned i = 0; i < PACK_WINDOWS; i++) {
        drop_window(reader, &reader->windows[i]);
        free(reader->windows[i].buf);
        reader->windows[i].buf = NULL;
    }
}

static int open_window(struct pack_reader *reader, struct pack_window *window, uint64_t number)
{
    const struct fsops *fs = reader->fs;
    char name[FILE_NAME_SIZE], path[4096];

    drop_window(reader, window);
    if (!window->buf && !(window->buf = malloc(PACK_WINDOW_BYTES)))
        return -ENOMEM;
    file_name_format(&(struct file_name){.kind = FILE_PACK, .number = number}, name);
    int len = snprintf(path, sizeof(path), "%s/" FILTERS_DIR "/%s", reader->dir, name);
    if (len < 0 || (size_t)len >= sizeof(path))
        return -ENAMETOOLONG;
    int rc = fs->open(fs->ctx, path, FS_READ, &window->fd);
    if (rc == 0)
        window->number = number;
    return rc;
}

/* The window of the pack, or the one that has not been used for the longest time. */
static int find_window(struct pack_reader *reader, uint64_t number, struct pack_window **window_out)
{
    struct pack_window *oldest = &reader->windows[0];
    int rc = 0;

    for (unsigned i = 0; i < PACK_WINDOWS && oldest->number != number; i++) {
        struct pack_window *window = &reader->windows[i];
        if (window->number == number || window->used < oldest->used)
            oldest = window;
    }
    if (oldest->number != number)
        rc = open_window(reader, oldest, number);
    oldest->used = ++reader->calls;
    *window_out = oldest;
    return rc;
}

static int fill_window(struct pack_reader *reader, struct pack_window *window, uint64_t offset, size_t need)
{
    /* A read elsewhere fetches no more than necessary: the next one may lead anywhere. */
    uint64_t end = window->offset + window->len;
    bool follows = window->len > 0 && offset >= window->offset && offset <= end + PACK_WINDOW_BYTES;
    size_t len = follows || offset < PACK_WINDOW_BYTES ? PACK_WINDOW_BYTES : need > LEAP_BYTES ? need : LEAP_BYTES;
    size_t n = 1;
    int rc = 0;

    window->offset = offset;
    for (window->len = 0; rc == 0 && n > 0 && window->len < need; window->len += rc == 0 ? n : 0)
        rc = reader->fs->pread(reader->fs->ctx, window->fd, window->buf + window->len, len - window->len,
                               offset + window->len, &n);
    return rc;
}

int pack_read(struct pack_reader *reader, uint64_t number, uint64_t offset, size_t len, const unsigned char **bytes_out,
              struct errbuf *err)
{
    struct pack_window *window;
    int rc = find_window(reader, number, &window);

    CHECK(len <= MANIFEST_MAX_PACKED);
    if (rc == 0 && (offset < window->offset || offset - window->offset > window->len ||
                    window->len - (offset - window->offset) < len))
        rc = fill_window(reader, window, offset, len);
    if (rc != 0) {
        drop_window(reader, window);
        return errbuf_fail(err, rc, FILTERS_DIR "/%" PRIu64 ".pack: %s%s", number,
                           rc == -ENOENT ? "missing" : "cannot read: ", rc == -ENOENT ? "" : fs_error_text(rc));
    }
    *bytes_out = window->buf + (offset - window->offset);
    if (window->len - (size_t)(offset - window->offset) >= len)
        return 0;
    return errbuf_fail(err, FS_ENDS, FILTERS_DIR "/%" PRIu64 ".pack: ends before byte %" PRIu64, number, offset + len);
}
