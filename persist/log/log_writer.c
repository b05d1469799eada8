/* Frames. Each is built in the memory that keeps it until it is durable, and written from there.
 *
 * A segment's life:
 *
 *     a number is taken                         being made; as a draft if it gets frames before its name
 *     its header and these frames are synced,
 *     and then its name                         current: frames are appended
 *     it is full, or a save begins              closed
 *     a save has its changes                    deleted
 *     an operation on it fails                  abandoned: never written again; a later one has its frames */
#include "log_writer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "errbuf.h"
#include "alloc.h"
#include "log_frame.h"
#include "log_pending.h"

#define DEFAULT_SEGMENT_BYTES (UINT64_C(32) << 20)
#define DEFAULT_KEEP_BYTES    (UINT64_C(32) << 20)
#define ZEROS_BYTES           (256u << 10)

/* The process whose frames a segment has. */
struct origin {
    uint64_t process;
    uint64_t generation;
    bool ends_process;
};

struct kept_head {
    struct origin origin; /* of a carried frame */
    uint32_t len;
    bool has_controls;
    unsigned char room[LOG_FRAME_HEAD_MAX]; /* the frame's head is put right before the payload */
};

struct open_segment {
    int fd; /* -1: none */
    struct log_header header;
    uint64_t offset; /* where the next frame goes */
    uint64_t filled; /* the file is zeros or frames up to here */
};

struct kept_frames {
    struct log_bytes bytes; /* the frames after `synced`, a struct kept_head and the payload each; then the next one */
    size_t frames;          /* bytes of the frames: the next one is behind them, if it has been begun */
    size_t carried;         /* bytes that are of earlier processes */
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
    bool unsure;

    uint64_t sequence; /* of the last frame appended */
    uint64_t synced;
    uint64_t marked; /* the log itself says that it is synced up to this frame */
    uint64_t written;
    struct kept_frames kept;
    unsigned char *zeros;
};

/* ---- segments ---- */

/* Space is written with zeros ahead of the frames, so a sync of a frame writes only to blocks that the file already
 * has. The file system need not change its own structures for it. The file doubles its size, by up to 4 MB at a time,
 * so that a small log costs little. A large frame allocates its own space. Its write and sync take so long that the
 * change of structures is the smaller part, and zeros would double the work. */
#define FIRST_BYTES (UINT64_C(64) << 10)
#define GROWTH_MAX  (UINT64_C(4) << 20)
#define LARGE_FRAME (256u << 10) /* 15 thousand adds */

static void writer_path(const struct log_writer *w, const char *name, struct path *path)
{
    (void)path_format(path, NULL, "%s/%s", w->log_dir.text, name); /* log_writer_create() has checked that it fits */
}

static void writer_close_segment(struct log_writer *w)
{
    if (w->segment.fd >= 0)
        w->fs->close(w->fs->ctx, w->segment.fd);
    w->segment.fd = -1;
}

/* Leaves the segment for good. */
static int writer_fail(struct log_writer *w, int rc, const char *what, struct errbuf *err)
{
    char name[LOG_SEGMENT_NAME];

    log_segment_name(w->segment.header.number, name);
    errbuf_set(err, "%s/%s: %s: %s", w->log_dir.text, name, what,
               rc == -ESTALE ? "the data directory has been moved, removed or replaced" : fs_error_text(rc));
    writer_close_segment(w);
    w->failed = true;
    w->error = rc;
    return rc;
}

static int fill_to(struct log_writer *w, uint64_t size)
{
    while (w->segment.filled < size) {
        uint64_t n = size - w->segment.filled < ZEROS_BYTES ? size - w->segment.filled : ZEROS_BYTES;
        int rc = fs_write_all(w->fs, w->segment.fd, w->zeros, (size_t)n, w->segment.filled);

        if (rc != 0)
            return rc;
        w->segment.filled += n;
    }
    return 0;
}

/* For a frame, before it is written. */
static int writer_make_room(struct log_writer *w, uint64_t len)
{
    uint64_t size = w->segment.filled;

    if (len >= LARGE_FRAME)
        return 0;
    while (size < w->segment.offset + len)
        size += size < GROWTH_MAX ? size : GROWTH_MAX;
    return fill_to(w, size);
}

/* Creates the file, with its header. 0 or -errno. */
static int writer_open_segment(struct log_writer *w, const char *path)
{
    unsigned char *block = malloc(LOG_HEADER_BYTES);
    int rc = -ENOMEM;

    if (!block)
        return rc;
    log_header_encode(&w->segment.header, block);
    rc = w->fs->open(w->fs->ctx, path, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &w->segment.fd);
    if (rc != 0) {
        w->segment.fd = -1;
        goto out;
    }
    rc = fs_write_all(w->fs, w->segment.fd, block, LOG_HEADER_BYTES, 0);
    w->segment.offset = w->segment.filled = LOG_HEADER_BYTES;
    if (rc == 0)
        rc = fill_to(w, FIRST_BYTES);
out:
    free(block);
    return rc;
}

/* Called for each segment: the directory may have been removed since the last one. The name of the directory is synced
 * also when it existed before: its maker may not have done that. */
static int writer_make_log_dir(struct log_writer *w)
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

/* The header states that all frames before `first` are on the disk, so they must be. A number is not used a second
 * time: its file may be found after a crash, with or without its contents, and does not matter then. */
static void writer_number_segment(struct log_writer *w, const struct origin *origin)
{
    w->segment.header = (struct log_header){
        .number = w->next_segment++,
        .first = w->synced + 1,
        .process = origin->process,
        .generation = origin->generation,
        .ends_process = origin->ends_process,
        .has_pending = origin->process == w->options.next_segment && w->options.has_pending,
        .previous = w->previous,
    };
    w->marked = w->synced; /* by its header, before its first frame */
    w->segment.header.salt = w->options.salt ^ w->segment.header.number * UINT64_C(0xc2b2ae3d27d4eb4f);
}

/* Begins an empty segment. */
static int writer_begin_segment(struct log_writer *w, struct errbuf *err)
{
    char name[LOG_SEGMENT_NAME];
    struct path path;
    int rc = writer_make_log_dir(w);

    writer_number_segment(w, &(struct origin){w->options.next_segment, w->options.generation, false});
    if (rc != 0)
        return writer_fail(w, rc, "cannot be made", err);
    log_segment_name(w->segment.header.number, name);
    writer_path(w, name, &path);
    rc = writer_open_segment(w, path.text);
    if (rc == 0)
        rc = w->fs->sync(w->fs->ctx, w->segment.fd);
    if (rc == 0)
        rc = w->fs->sync_dir(w->fs->ctx, w->log_dir.text);
    if (rc != 0) {
        writer_fail(w, rc, "cannot start it", err);
        w->fs->unlink(w->fs->ctx, path.text); /* to give the space back; if it cannot be, see above */
        return rc;
    }
    w->previous = w->segment.header.number;
    return 0;
}

/* Whether the segment that is being written is the file of its name, and whole. A file that cannot be examined counts
 * as present. */
static bool writer_current_is_there(const struct log_writer *w)
{
    char name[LOG_SEGMENT_NAME];
    uint64_t size = w->segment.filled;
    struct path path;

    log_segment_name(w->segment.header.number, name);
    writer_path(w, name, &path);
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
        w->options.segment_bytes = DEFAULT_SEGMENT_BYTES;
    if (!options->keep_bytes)
        w->options.keep_bytes = DEFAULT_KEEP_BYTES;
    w->next_segment = options->next_segment;
    w->previous = options->previous_segment;
    w->sequence = w->synced = w->marked = options->next_sequence - 1;
    w->segment.fd = -1;
    w->zeros = calloc(1, ZEROS_BYTES);
    int rc = w->options.dir && w->zeros ? 0 : -ENOMEM;
    if (rc == 0)
        rc = path_format(&longest, NULL, "%s/log/%0*d", options->dir, LOG_SEGMENT_NAME, 0);
    if (rc == 0)
        rc = path_format(&w->log_dir, NULL, "%s/log", options->dir);
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
    writer_close_segment(w);
    log_bytes_deinit(&w->kept.bytes);
    free(w->zeros);
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
        .segment = w->segment.fd >= 0 ? w->segment.header.number : 0,
        .sequence = w->sequence,
        .synced = w->synced,
        .marked = w->marked,
        .written = w->written,
        .kept = w->kept.frames,
        .unsure = w->unsure,
    };
}

/* ---- frames ---- */

static int write_bytes(struct log_writer *w, const void *bytes, size_t len)
{
    struct open_segment *segment = &w->segment;

    TRY(writer_make_room(w, len));
    TRY(fs_write_all(w->fs, segment->fd, bytes, len, segment->offset));
    segment->offset += len;
    if (segment->filled < segment->offset)
        segment->filled = segment->offset;
    return 0;
}

/* The kept frame whose kept_head is at `at`. */
static int write_frame(struct log_writer *w, size_t at, uint64_t sequence, struct errbuf *err)
{
    unsigned char head[LOG_FRAME_HEAD_MAX], *payload = w->kept.bytes.ptr + at + sizeof(struct kept_head);
    struct kept_head kept;

    memcpy(&kept, w->kept.bytes.ptr + at, sizeof(kept));
    struct log_frame frame = {
        .sequence = sequence,
        .synced = w->synced,
        .has_controls = kept.has_controls,
        .payload = payload,
        .payload_len = kept.len,
    };
    size_t head_len = log_frame_head(&frame, w->segment.header.salt, head), len = head_len + kept.len;
    memcpy(payload - head_len, head, head_len);
    int rc = write_bytes(w, payload - head_len, len);
    if (rc != 0)
        return writer_fail(w, rc, "cannot write", err);
    w->written += len;
    return 0;
}

/* Drops the first `len` kept bytes. */
static void drop_kept(struct log_writer *w, size_t len)
{
    if (w->kept.bytes.len > len)
        memmove(w->kept.bytes.ptr, w->kept.bytes.ptr + len, w->kept.bytes.len - len);
    w->kept.bytes.len -= len;
    w->kept.frames -= len;
}

int log_writer_sync(struct log_writer *w, struct errbuf *err)
{
    if (w->failed) {
        errbuf_set(err, "%s", strerror(-w->error));
        return w->error;
    }
    if (w->synced == w->sequence)
        return 0;
    int rc = w->fs->sync(w->fs->ctx, w->segment.fd);
    w->unsure = rc != 0;
    if (rc != 0)
        return writer_fail(w, rc, "cannot sync", err);
    w->synced = w->sequence;
    drop_kept(w, w->kept.frames);
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
    int rc = write_bytes(w, bytes, len);
    if (rc == 0)
        rc = w->fs->sync(w->fs->ctx, w->segment.fd);
    if (rc != 0)
        return writer_fail(w, rc, "cannot mark its synced part", err);
    w->marked = w->synced;
    return 0;
}

struct log_bytes *log_writer_payload(struct log_writer *w)
{
    if (w->kept.bytes.len == w->kept.frames) {
        if (log_bytes_reserve(&w->kept.bytes, sizeof(struct kept_head)) != 0)
            return NULL;
        w->kept.bytes.len += sizeof(struct kept_head);
    }
    return &w->kept.bytes;
}

size_t log_writer_payload_len(const struct log_writer *w)
{
    return w->kept.bytes.len == w->kept.frames ? 0 : w->kept.bytes.len - w->kept.frames - sizeof(struct kept_head);
}

/* Turns the payload into a frame, which has a number. */
static void keep(struct log_writer *w, bool has_controls, const struct origin *origin)
{
    struct kept_head head = {
        .origin = *origin, .len = (uint32_t)log_writer_payload_len(w), .has_controls = has_controls};

    CHECK(w->kept.bytes.len > w->kept.frames && log_writer_payload_len(w) <= LOG_PAYLOAD_MAX);
    memcpy(w->kept.bytes.ptr + w->kept.frames, &head, sizeof(head));
    w->kept.frames = w->kept.bytes.len;
    w->sequence++;
}

int log_writer_append(struct log_writer *w, bool has_controls, struct errbuf *err)
{
    int rc = w->failed ? w->error : 0;
    uint64_t segment;

    if (rc != 0)
        errbuf_set(err, "%s", fs_error_text(rc));
    if (rc == 0 && w->kept.frames && w->kept.bytes.len > w->options.keep_bytes)
        rc = log_writer_sync(w, err);
    if (rc == 0 &&
        (w->segment.fd < 0 || (w->segment.offset >= w->options.segment_bytes && w->segment.offset > LOG_HEADER_BYTES)))
        rc = log_writer_rotate(w, &segment, err); /* before the frame has a number: this syncs all that have one */
    size_t at = w->kept.frames;
    keep(w, has_controls, &(struct origin){.process = w->options.next_segment});
    return rc == 0 ? write_frame(w, at, w->sequence, err) : rc;
}

int log_writer_rotate(struct log_writer *w, uint64_t *segment_out, struct errbuf *err)
{
    int rc = log_writer_sync(w, err);

    if (rc != 0)
        return rc;
    /* An empty one serves as well. */
    if (w->segment.fd < 0 || w->segment.offset > LOG_HEADER_BYTES || !writer_current_is_there(w)) {
        writer_close_segment(w);
        rc = writer_begin_segment(w, err);
    }
    *segment_out = w->segment.header.number;
    return rc;
}

/* ---- frames again ---- */

/* The number of frames in the first `len` kept bytes. */
static uint64_t count_kept(const struct log_writer *w, size_t len)
{
    uint64_t count = 0;

    for (size_t at = 0; at < len; count++) {
        struct kept_head head;
        memcpy(&head, w->kept.bytes.ptr + at, sizeof(head));
        at += sizeof(head) + head.len;
    }
    return count;
}

/* Writes the frames in the first `len` kept bytes. */
static int write_kept_frames(struct log_writer *w, size_t len, struct errbuf *err)
{
    uint64_t sequence = w->synced;
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < len;) {
        struct kept_head head;

        memcpy(&head, w->kept.bytes.ptr + at, sizeof(head));
        rc = write_frame(w, at, ++sequence, err);
        at += sizeof(head) + head.len;
    }
    return rc;
}

/* A segment with these frames gets its name when it is complete and on the disk: its header makes the same frames in
 * earlier segments void. */
static int write_draft(struct log_writer *w, size_t len, const char *draft, const char *path, struct errbuf *err)
{
    int rc = writer_open_segment(w, draft);

    if (rc != 0)
        return writer_fail(w, rc, "cannot start it", err);
    TRY(write_kept_frames(w, len, err));
    rc = w->fs->sync(w->fs->ctx, w->segment.fd);
    if (rc == 0)
        rc = w->fs->rename(w->fs->ctx, draft, path);
    if (rc == 0)
        rc = w->fs->sync_dir(w->fs->ctx, w->log_dir.text);
    return rc != 0 ? writer_fail(w, rc, "cannot sync", err) : 0;
}

static int write_kept(struct log_writer *w, size_t len, const char *draft, const char *path, struct errbuf *err)
{
    int rc = write_draft(w, len, draft, path, err);

    if (rc != 0) { /* to give the space back */
        w->fs->unlink(w->fs->ctx, draft);
        w->fs->unlink(w->fs->ctx, path);
        return rc;
    }
    w->previous = w->segment.header.number;
    w->synced = w->marked = w->segment.header.sealed;
    w->unsure = w->unsure && w->synced != w->sequence;
    drop_kept(w, len);
    return 0;
}

static int rewrite(struct log_writer *w, size_t len, const struct origin *origin, struct errbuf *err)
{
    char name[LOG_SEGMENT_NAME], draft_name[LOG_SEGMENT_NAME];
    struct path path, draft;
    int rc = writer_make_log_dir(w);

    writer_number_segment(w, origin);
    w->segment.header.sealed = w->synced + count_kept(w, len);
    if (rc != 0)
        return writer_fail(w, rc, "cannot be made", err);
    log_segment_name(w->segment.header.number, name);
    log_draft_name(w->segment.header.number, draft_name);
    writer_path(w, name, &path);
    writer_path(w, draft_name, &draft);
    return write_kept(w, len, draft.text, path.text, err);
}

/* The carried frames of one process at the beginning of the kept bytes: their length, and their process. */
static size_t carried_of_one(const struct log_writer *w, struct origin *origin_out)
{
    size_t at = 0;

    while (at < w->kept.carried) {
        struct kept_head head;
        memcpy(&head, w->kept.bytes.ptr + at, sizeof(head));
        if (at && head.origin.process != origin_out->process)
            break;
        *origin_out = head.origin;
        at += sizeof(head) + head.len;
    }
    return at;
}

/* Frames of earlier processes go into segments that name the process, because a reader must know it. */
static int rewrite_carried(struct log_writer *w, struct errbuf *err)
{
    struct origin origin;
    int rc = 0;

    while (rc == 0 && w->kept.carried) {
        size_t len = carried_of_one(w, &origin);
        rc = rewrite(w, len, &origin, err);
        if (rc != 0)
            return rc;
        w->kept.carried -= len;
        writer_close_segment(w);
    }
    return rc;
}

int log_writer_repair(struct log_writer *w, struct errbuf *err)
{
    bool carried = w->kept.carried != 0;

    w->failed = false;
    int rc = carried ? rewrite_carried(w, err) : 0;
    if (rc != 0 || (carried && w->kept.frames == 0))
        return rc;
    return rewrite(w, w->kept.frames, &(struct origin){w->options.next_segment, w->options.generation, false}, err);
}

int log_writer_carry(struct log_writer *w, const struct log_carried *frame)
{
    struct log_bytes *bytes = log_writer_payload(w);

    if (!bytes || log_bytes_append(bytes, frame->payload, frame->len) != 0)
        return -ENOMEM;
    keep(w, frame->has_controls, &(struct origin){frame->process, frame->generation, frame->ends_process});
    w->kept.carried = w->kept.frames;
    w->failed = true;
    w->error = -EIO;
    return 0;
}
