#include "manifest_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "id_map.h"

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

/* ---- valid filters ---- */

/* Of each id with "gone" lines: the number of its records that are void. These are the first ones. */
struct visit {
    const struct manifest_sink *sink;
    struct id_map gone;
    bool collecting;
};

static int visit_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    struct visit *visit = ctx;
    uintptr_t count = visit->collecting ? 1 : (uintptr_t)id_map_get(&visit->gone, filter->id);

    if (count == 0)
        return visit->sink->on_filter(visit->sink->ctx, filter, err);
    return visit->collecting ? 0 : id_map_set(&visit->gone, filter->id, (void *)(count - 1));
}

static int visit_gone(void *ctx, uint64_t id, struct errbuf *err)
{
    struct visit *visit = ctx;
    uintptr_t count = (uintptr_t)id_map_get(&visit->gone, id);

    (void)err;
    return visit->collecting ? id_map_set(&visit->gone, id, (void *)(count + 1)) : 0;
}

static int visit_pass(const struct fsops *fs, int fd, struct visit *visit, struct manifest_save *save_out,
                      struct errbuf *err)
{
    const struct manifest_sink sink = {.on_filter = visit_filter, .on_gone = visit_gone, .ctx = visit};
    struct manifest_parser parser;
    int rc = manifest_parser_init(&parser, &sink);

    STEP(rc, manifest_file_parse(fs, fd, &parser, err));
    if (save_out)
        *save_out = parser.save;
    manifest_parser_deinit(&parser);
    return rc;
}

int manifest_file_visit(const struct fsops *fs, int fd, const struct manifest_sink *sink,
                        struct manifest_save *save_out, struct errbuf *err)
{
    struct visit visit = {.sink = sink, .collecting = true};
    int rc = visit_pass(fs, fd, &visit, save_out, err);

    visit.collecting = false;
    STEP(rc, visit_pass(fs, fd, &visit, NULL, err));
    id_map_deinit(&visit.gone);
    return rc;
}

int record_writer_init(struct record_writer *writer, const struct fsops *fs, int fd)
{
    *writer = (struct record_writer){.fs = fs, .fd = fd};
    writer->hash = XXH3_createState();
    if (!writer->hash)
        return -ENOMEM;
    XXH3_64bits_reset(writer->hash);
    return 0;
}

void record_writer_deinit(struct record_writer *writer)
{
    manifest_text_deinit(&writer->pending);
    XXH3_freeState(writer->hash);
    writer->hash = NULL;
}

int record_written(struct record_writer *writer)
{
    struct manifest_text *pending = &writer->pending;

    XXH3_64bits_update(writer->hash, pending->ptr + writer->hashed, pending->len - writer->hashed);
    writer->hashed = pending->len;
    return pending->len >= FLUSH_BYTES ? record_writer_flush(writer) : 0;
}

int record_writer_flush(struct record_writer *writer)
{
    TRY(fs_write_all(writer->fs, writer->fd, writer->pending.ptr, writer->pending.len, writer->offset));
    writer->offset += writer->pending.len;
    writer->pending.len = 0;
    writer->hashed = 0;
    return 0;
}

int record_copy(struct record_writer *writer, int fd, uint64_t from, uint64_t to, bool keep, XXH3_state_t *hash)
{
    struct manifest_text *pending = &writer->pending;

    while (from < to) {
        size_t len = to - from < WINDOW_BYTES ? (size_t)(to - from) : WINDOW_BYTES;
        if (manifest_text_reserve(pending, len) != 0)
            return -ENOMEM;
        char *lines = pending->ptr + pending->len;
        TRY(fs_read_all(writer->fs, fd, lines, len, from));
        XXH3_64bits_update(hash, lines, len);
        pending->len += keep ? len : 0;
        TRY(keep ? record_written(writer) : 0);
        from += len;
    }
    return 0;
}

uint64_t record_writer_digest(const struct record_writer *writer)
{
    return XXH3_64bits_digest(writer->hash);
}
