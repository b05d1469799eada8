#include "manifest_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES 65536
#define FLUSH_BYTES  65536

/* The reader's callbacks return this to end the feed: it is no status of the parser. */
#define RECORD_COMPLETE 100

static int on_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    (void)ctx, (void)filter, (void)err;
    return RECORD_COMPLETE;
}

int record_reader_init(struct record_reader *reader, const struct fsops *fs, int fd)
{
    memset(reader, 0, sizeof(*reader));
    reader->fs = fs;
    reader->fd = fd;
    reader->window = malloc(WINDOW_BYTES);
    if (!reader->window)
        return -ENOMEM;
    reader->sink = (struct manifest_sink){.on_filter = on_filter};
    manifest_parser_init_at(&reader->parser, &reader->sink, 0);
    return 0;
}

void record_reader_deinit(struct record_reader *reader)
{
    manifest_parser_deinit(&reader->parser);
    free(reader->window);
    reader->window = NULL;
}

static int fill_window(struct record_reader *reader, uint64_t offset)
{
    size_t n = 0;
    int rc = reader->fs->pread(reader->fs->ctx, reader->fd, reader->window, WINDOW_BYTES, offset, &n);

    reader->window_offset = offset;
    reader->window_len = rc == 0 ? n : 0;
    if (rc == 0 && n == 0)
        rc = FS_ENDS;
    return rc;
}

int record_read(struct record_reader *reader, uint64_t offset, const struct manifest_filter **filter_out,
                struct errbuf *err)
{
    uint64_t at = offset;
    int rc;

    manifest_parser_restart(&reader->parser, offset);
    do {
        if (at < reader->window_offset || at >= reader->window_offset + reader->window_len) {
            rc = fill_window(reader, at);
            if (rc != 0)
                return errbuf_fail(err, rc, "cannot read the record at offset %llu: %s", (unsigned long long)offset,
                                   fs_error_text(rc));
        }
        size_t skip = (size_t)(at - reader->window_offset);
        size_t len = reader->window_len - skip;
        rc = manifest_parser_feed(&reader->parser, reader->window + skip, len, err);
        at += len;
    } while (rc == 0);
    if (rc != RECORD_COMPLETE) {
        if (rc == MANIFEST_DAMAGED)
            errbuf_prefix(err, "the record at offset %llu has changed since it was verified",
                          (unsigned long long)offset);
        return rc < 0 ? rc : -EIO;
    }
    *filter_out = &reader->parser.filter;
    return 0;
}

int manifest_file_parse(const struct fsops *fs, int fd, struct manifest_parser *parser, struct errbuf *err)
{
    char *buf = malloc(WINDOW_BYTES);
    uint64_t at = 0;
    size_t n = 1;
    int rc = buf ? 0 : -ENOMEM;

    while (rc == 0 && n > 0) {
        rc = fs->pread(fs->ctx, fd, buf, WINDOW_BYTES, at, &n);
        if (rc == 0)
            rc = manifest_parser_feed(parser, buf, n, err);
        else
            errbuf_set(err, "cannot read: %s", fs_error_text(rc));
        at += n;
    }
    if (rc == -ENOMEM)
        errbuf_set(err, "out of memory");
    free(buf);
    return rc != 0 ? rc : manifest_parser_finish(parser, err);
}

int record_writer_init(struct record_writer *writer, const struct fsops *fs, int fd)
{
    *writer = (struct record_writer){.fs = fs, .fd = fd};
    buf_init(&writer->pending, SIZE_MAX);
    writer->hash = XXH3_createState();
    if (!writer->hash)
        return -ENOMEM;
    XXH3_64bits_reset(writer->hash);
    return 0;
}

void record_writer_deinit(struct record_writer *writer)
{
    buf_deinit(&writer->pending);
    XXH3_freeState(writer->hash);
    writer->hash = NULL;
}

int record_written(struct record_writer *writer)
{
    struct buf *pending = &writer->pending;

    if (buf_failed(pending))
        return -ENOMEM;
    XXH3_64bits_update(writer->hash, pending->data + writer->hashed, buf_len(pending) - writer->hashed);
    writer->hashed = buf_len(pending);
    return buf_len(pending) >= FLUSH_BYTES ? record_writer_flush(writer) : 0;
}

int record_writer_flush(struct record_writer *writer)
{
    struct buf *pending = &writer->pending;

    if (buf_failed(pending))
        return -ENOMEM;
    TRY(fs_write_all(writer->fs, writer->fd, pending->data, buf_len(pending), writer->offset));
    writer->offset += buf_len(pending);
    writer->hashed = 0;
    buf_truncate(pending, 0);
    return 0;
}

int record_copy(struct record_writer *writer, int fd, uint64_t from, uint64_t to, bool keep, XXH3_state_t *hash)
{
    while (from < to) {
        size_t len = to - from < WINDOW_BYTES ? (size_t)(to - from) : WINDOW_BYTES;
        char *lines = buf_reserve(&writer->pending, len);
        if (!lines)
            return -ENOMEM;
        TRY(fs_read_all(writer->fs, fd, lines, len, from));
        XXH3_64bits_update(hash, lines, len);
        buf_commit(&writer->pending, keep ? len : 0);
        TRY(keep ? record_written(writer) : 0);
        from += len;
    }
    return 0;
}

uint64_t record_writer_digest(const struct record_writer *writer)
{
    return XXH3_64bits_digest(writer->hash);
}
