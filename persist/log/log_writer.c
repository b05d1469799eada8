/* Frames, which pass a buffer on their way from the records to the file.
 *
 * A segment's life:
 *
 *     a number is taken                         a draft: after a failure it gets frames before its name
 *     its header and these frames are synced,
 *     and then it is renamed                    current: frames are appended
 *     it is full, or a save begins              closed
 *     a save has its changes                    deleted
 *     an operation on it fails                  abandoned: never written again; a later one has its frames */
#include "log_writer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "bytes.h"
#include "check.h"
#include "alloc.h"
#include "log_frame.h"

#define DEFAULT_BYTES (UINT64_C(32) << 20)
#define BUFFER_BYTES  (256u << 10)

struct open_segment {
    int fd; /* -1: none */
    bool named;
    struct log_header header;
    uint64_t offset; /* where the next frame goes */
    uint64_t filled; /* the file is zeros or frames up to here */
};

/* The frame that is being written. */
struct open_frame {
    unsigned char head[LOG_FRAME_HEAD_MAX];
    size_t head_len;
    uint64_t seed;
    uint64_t len;     /* all of it */
    uint64_t flushed; /* bytes before the buffer */
    size_t buffered;
    XXH3_state_t *sum; /* of the payload that is flushed */
};

struct log_writer {
    const struct fsops *fs;
    struct log_writer_options options; /* `dir` is a copy; defaults in place of 0; next_segment: the process */
    struct path log_dir;
    struct open_segment segment;
    uint64_t next_segment;
    uint64_t previous; /* the last segment that was current, of this process or an earlier one; 0: none */
    bool dir_is_durable;
    bool failed;
    int error; /* of the failure */

    uint64_t sequence; /* of the last frame appended */
    uint64_t synced;
    uint64_t marked; /* the log itself says that it is synced up to this frame */
    uint64_t written;
    uint64_t unsynced; /* bytes of frames */
    struct open_frame frame;
    unsigned char *buffer; /* BUFFER_BYTES */
};

/* ---- segments ---- */

/* Space is written with zeros ahead of the frames, so a sync of a frame writes only to blocks that the file already
 * has. The file system need not change its own structures for it. The file doubles its size, by up to 4 MB at a time,
 * so that a small log costs little. A large frame allocates its own space. Its write and sync take so long that the
 * change of structures is the smaller part, and zeros would double the work. */
#define FIRST_BYTES (UINT64_C(64) << 10)
#define GROWTH_MAX  (UINT64_C(4) << 20)
#define LARGE_FRAME (256u << 10) /* 11 thousand adds */

static void segment_path(const struct log_writer *w, const char *kind, struct path *path)
{
    char name[LOG_FILE_NAME];

    log_file_name(w->segment.header.number, kind, name);
    (void)path_format(path, NULL, "%s/%s", w->log_dir.text, name); /* log_writer_create() has checked that it fits */
}

static void close_segment(struct log_writer *w)
{
    if (w->segment.fd >= 0)
        w->fs->close(w->fs->ctx, w->segment.fd);
    w->segment.fd = -1;
}

/* Leaves the segment for good. The space of a draft is given back. */
static int writer_fail(struct log_writer *w, int rc, const char *what, struct errbuf *err)
{
    bool draft = w->segment.fd >= 0 && !w->segment.named;
    struct path path;

    segment_path(w, LOG_SEGMENT, &path);
    errbuf_set(err, "%s: %s: %s", path.text, what,
               rc == -ESTALE ? "the data directory has been moved, removed or replaced" : fs_error_text(rc));
    close_segment(w);
    if (draft) {
        w->fs->unlink(w->fs->ctx, path.text); /* it may have got its name */
        segment_path(w, LOG_DRAFT, &path);
        w->fs->unlink(w->fs->ctx, path.text);
    }
    w->failed = true;
    w->error = rc;
    return rc;
}

static int fill_to(struct log_writer *w, uint64_t size)
{
    static const unsigned char zeros[BUFFER_BYTES];

    while (w->segment.filled < size) {
        uint64_t n = size - w->segment.filled < sizeof(zeros) ? size - w->segment.filled : sizeof(zeros);
        int rc = fs_write_all(w->fs, w->segment.fd, zeros, (size_t)n, w->segment.filled);

        if (rc != 0)
            return rc;
        w->segment.filled += n;
    }
    return 0;
}

/* For a frame, before it is written. */
static int make_room(struct log_writer *w, uint64_t len)
{
    uint64_t size = w->segment.filled;

    if (len >= LARGE_FRAME)
        return 0;
    while (size < w->segment.offset + len)
        size += size < GROWTH_MAX ? size : GROWTH_MAX;
    return fill_to(w, size);
}

static int write_header(struct log_writer *w)
{
    const struct log_header *header = &w->segment.header;
    unsigned char block[LOG_HEADER_BYTES];

    CHECK(header->first && header->process && header->process <= header->number && header->previous < header->number);
    log_header_encode(header, block);
    return fs_write_all(w->fs, w->segment.fd, block, sizeof(block), 0);
}

/* Called for each segment: the directory may have been removed since the last one. The name of the directory is synced
 * also when it existed before: its maker may not have done that. */
static int make_log_dir(struct log_writer *w)
{
    TRY(w->options.still_ours ? w->options.still_ours(w->options.ctx) : 0);
    int rc = w->fs->mkdir(w->fs->ctx, w->log_dir.text);
    if (rc == -EEXIST && w->dir_is_durable)
        return 0;
    if (rc == 0 || rc == -EEXIST)
        rc = w->fs->sync_dir(w->fs->ctx, w->options.dir);
    w->dir_is_durable = rc == 0;
    return rc;
}

/* Begins a draft. The header states that all frames before `first` are on the disk, so they must be. A number is not
 * used a second time: its file may be found after a crash, with or without its contents, and does not matter then. */
static int begin_draft(struct log_writer *w, struct errbuf *err)
{
    struct path path;
    int rc = make_log_dir(w);

    CHECK(w->sequence == w->synced); /* frames that another segment has from here on are void */
    w->segment = (struct open_segment){.fd = -1,
                                       .header = {
                                           .number = w->next_segment++,
                                           .first = w->synced + 1,
                                           .process = w->options.next_segment,
                                           .generation = w->options.generation,
                                           .previous = w->previous,
                                       }};
    w->segment.header.salt = w->options.salt ^ w->segment.header.number * UINT64_C(0xc2b2ae3d27d4eb4f);
    if (rc != 0)
        return writer_fail(w, rc, "cannot be made", err);
    segment_path(w, LOG_DRAFT, &path);
    rc = w->fs->open(w->fs->ctx, path.text, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &w->segment.fd);
    if (rc != 0)
        w->segment.fd = -1;
    else
        rc = write_header(w);
    w->segment.offset = w->segment.filled = LOG_HEADER_BYTES;
    STEP(rc, fill_to(w, FIRST_BYTES));
    return rc != 0 ? writer_fail(w, rc, "cannot start it", err) : 0;
}

/* It gets its name when it is on the disk, with the frames that it has: they are void in earlier segments. */
static int name_segment(struct log_writer *w, struct errbuf *err)
{
    struct path draft, path;
    int rc = 0;

    segment_path(w, LOG_DRAFT, &draft);
    segment_path(w, LOG_SEGMENT, &path);
    if (w->sequence > w->synced) {
        w->segment.header.sealed = w->sequence;
        rc = write_header(w);
    }
    STEP(rc, w->fs->sync(w->fs->ctx, w->segment.fd));
    STEP(rc, w->fs->rename(w->fs->ctx, draft.text, path.text));
    STEP(rc, w->fs->sync_dir(w->fs->ctx, w->log_dir.text));
    if (rc != 0)
        return writer_fail(w, rc, "cannot start it", err);
    w->segment.named = true;
    w->previous = w->segment.header.number;
    w->marked = w->sequence; /* by its header */
    return 0;
}

static int begin_segment(struct log_writer *w, struct errbuf *err)
{
    close_segment(w);
    TRY(begin_draft(w, err));
    return name_segment(w, err);
}

/* No frame goes to it any more. */
static bool is_full(const struct log_writer *w)
{
    return w->segment.fd >= 0 && w->segment.named && w->segment.offset > LOG_HEADER_BYTES &&
           w->segment.offset >= w->options.segment_bytes;
}

/* Whether the segment that is being written is the file of its name, and whole. A file that cannot be examined counts
 * as present. */
static bool current_is_there(const struct log_writer *w)
{
    uint64_t size = w->segment.filled;
    struct path path;

    segment_path(w, LOG_SEGMENT, &path);
    int rc = w->fs->is_at(w->fs->ctx, w->segment.fd, path.text);
    if (rc != -ESTALE && w->fs->size(w->fs->ctx, w->segment.fd, &size) != 0)
        size = w->segment.filled;
    return rc != -ESTALE && size >= w->segment.filled;
}

/* ---- lifetime ---- */

int log_writer_create(const struct log_writer_options *options, struct log_writer **writer_out)
{
    struct log_writer *w = calloc(1, sizeof(*w));
    struct path longest;

    if (!w)
        return -ENOMEM;
    w->fs = options->fs ? options->fs : fsops_posix();
    w->options = *options;
    w->options.dir = strdup(options->dir);
    if (!options->segment_bytes)
        w->options.segment_bytes = DEFAULT_BYTES;
    if (!options->unsynced_bytes)
        w->options.unsynced_bytes = DEFAULT_BYTES;
    w->next_segment = options->next_segment;
    w->previous = options->previous_segment;
    w->sequence = w->synced = w->marked = options->next_sequence - 1;
    w->segment.fd = -1;
    w->buffer = malloc(BUFFER_BYTES);
    w->frame.sum = XXH3_createState();
    int rc = w->options.dir && w->buffer && w->frame.sum ? 0 : -ENOMEM;
    STEP(rc, path_format(&longest, NULL, "%s/log/%0*d", options->dir, LOG_FILE_NAME, 0));
    STEP(rc, path_format(&w->log_dir, NULL, "%s/log", options->dir));
    if (rc != 0) {
        log_writer_destroy(w);
        return rc;
    }
    *writer_out = w;
    return 0;
}

void log_writer_destroy(struct log_writer *w)
{
    if (!w)
        return;
    close_segment(w);
    XXH3_freeState(w->frame.sum);
    free(w->buffer);
    free((char *)w->options.dir);
    free(w);
}

bool log_writer_failed(const struct log_writer *w)
{
    return w->failed;
}

void log_writer_info(const struct log_writer *w, struct log_writer_info *info_out)
{
    *info_out = (struct log_writer_info){
        .segment = w->segment.fd >= 0 && w->segment.named ? w->segment.header.number : 0,
        .sequence = w->sequence,
        .synced = w->synced,
        .marked = w->marked,
        .written = w->written,
        .unsynced = w->unsynced,
    };
}

/* ---- frames ---- */

static int write_at(struct log_writer *w, const void *bytes, size_t len, uint64_t offset, struct errbuf *err)
{
    int rc = fs_write_all(w->fs, w->segment.fd, bytes, len, offset);

    if (rc != 0)
        return writer_fail(w, rc, "cannot write", err);
    if (w->segment.filled < offset + len)
        w->segment.filled = offset + len;
    return 0;
}

static int failure(const struct log_writer *w, struct errbuf *err)
{
    if (w->failed)
        errbuf_set(err, "%s", fs_error_text(w->error));
    return w->failed ? w->error : 0;
}

int log_writer_begin(struct log_writer *w, bool has_controls, size_t len, struct errbuf *err)
{
    struct open_frame *f = &w->frame;
    struct log_frame frame = {
        .sequence = w->sequence + 1, .synced = w->synced, .has_controls = has_controls, .payload_len = len};

    CHECK(len > 0 && len <= LOG_PAYLOAD_MAX);
    TRY(failure(w, err));
    if (w->segment.fd < 0 || (is_full(w) && w->synced == w->sequence))
        TRY(begin_segment(w, err));
    f->head_len = log_frame_open(&frame, w->segment.header.salt, f->head, &f->seed);
    f->len = f->head_len + len;
    f->flushed = 0;
    f->buffered = f->head_len; /* the head comes last */
    int rc = make_room(w, f->len);
    return rc != 0 ? writer_fail(w, rc, "cannot write", err) : 0;
}

/* The first time without the place of the head. */
static int flush(struct log_writer *w, struct errbuf *err)
{
    struct open_frame *f = &w->frame;
    size_t skip = f->flushed ? 0 : f->head_len;

    if (f->flushed == 0)
        XXH3_64bits_reset_withSeed(f->sum, f->seed);
    XXH3_64bits_update(f->sum, w->buffer + skip, f->buffered - skip);
    TRY(write_at(w, w->buffer + skip, f->buffered - skip, w->segment.offset + f->flushed + skip, err));
    f->flushed += f->buffered;
    f->buffered = 0;
    return 0;
}

int log_writer_put(struct log_writer *w, const void *bytes, size_t len, struct errbuf *err)
{
    struct open_frame *f = &w->frame;

    for (const unsigned char *at = bytes; len;) {
        if (f->buffered == BUFFER_BYTES)
            TRY(flush(w, err));
        size_t n = len < BUFFER_BYTES - f->buffered ? len : BUFFER_BYTES - f->buffered;
        memcpy(w->buffer + f->buffered, at, n);
        f->buffered += n;
        at += n;
        len -= n;
    }
    return 0;
}

/* A frame that does not fit the buffer is none before its head is written, which is last. */
int log_writer_end(struct log_writer *w, struct errbuf *err)
{
    struct open_frame *f = &w->frame;

    CHECK(f->flushed + f->buffered == f->len);
    if (f->flushed) {
        TRY(flush(w, err));
        le32_put(f->head, (uint32_t)XXH3_64bits_digest(f->sum));
        TRY(write_at(w, f->head, f->head_len, w->segment.offset, err));
    } else {
        le32_put(f->head, (uint32_t)XXH3_64bits_withSeed(w->buffer + f->head_len, f->len - f->head_len, f->seed));
        memcpy(w->buffer, f->head, f->head_len);
        TRY(write_at(w, w->buffer, f->len, w->segment.offset, err));
    }
    w->segment.offset += f->len;
    w->written += f->len;
    w->unsynced += f->len;
    w->sequence++;
    return 0;
}

bool log_writer_is_due(const struct log_writer *w)
{
    return w->segment.named && w->synced != w->sequence && (w->unsynced > w->options.unsynced_bytes || is_full(w));
}

int log_writer_sync(struct log_writer *w, struct errbuf *err)
{
    TRY(failure(w, err));
    if (w->segment.fd >= 0 && !w->segment.named) {
        TRY(name_segment(w, err));
    } else if (w->synced == w->sequence) {
        return 0;
    } else {
        int rc = w->fs->sync(w->fs->ctx, w->segment.fd);
        if (rc != 0)
            return writer_fail(w, rc, "cannot sync", err);
    }
    w->synced = w->sequence;
    w->unsynced = 0;
    return 0;
}

/* A mark is a frame without a payload. It has the number of the next frame, and takes none itself. */
int log_writer_mark(struct log_writer *w, bool ends, struct errbuf *err)
{
    unsigned char bytes[LOG_FRAME_HEAD_MAX];

    if (w->failed || w->segment.fd < 0 || w->synced != w->sequence || (w->marked == w->synced && !ends))
        return 0;
    const struct log_frame mark = {.sequence = w->sequence + 1, .synced = w->synced, .has_controls = ends};
    size_t len = log_frame_head(&mark, w->segment.header.salt, bytes);
    int rc = make_room(w, len);
    STEP(rc, fs_write_all(w->fs, w->segment.fd, bytes, len, w->segment.offset));
    STEP(rc, w->fs->sync(w->fs->ctx, w->segment.fd));
    if (rc != 0)
        return writer_fail(w, rc, "cannot mark its synced part", err);
    w->segment.offset += len;
    w->marked = w->synced;
    return 0;
}

int log_writer_rotate(struct log_writer *w, uint64_t *segment_out, struct errbuf *err)
{
    int rc = log_writer_sync(w, err);

    /* An empty one serves as well. */
    if (rc == 0 && (w->segment.fd < 0 || w->segment.offset > LOG_HEADER_BYTES || !current_is_there(w)))
        rc = begin_segment(w, err);
    *segment_out = w->segment.header.number;
    return rc;
}

int log_writer_repair(struct log_writer *w, struct errbuf *err)
{
    close_segment(w);
    w->failed = false;
    w->sequence = w->synced;
    w->unsynced = 0;
    return begin_draft(w, err);
}
