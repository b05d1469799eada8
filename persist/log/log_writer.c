/* Space is written with zeros ahead of the frames, so that a sync of a frame is a write to blocks that the file has
 * already: the file system need not change its own structures for it. The file grows by as much as it has, up to 4 MB at a
 * time, so that a log of little costs little. A large frame makes its own space: it takes so long to write and sync that the
 * change of structures is the smaller part, and zeros would be as much again.
 *
 * A frame is put together where it is kept until it is durable, and written from there. */
#include "log_writer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "log_frame.h"
#include "log_note.h"

#define DEFAULT_SEGMENT_BYTES (UINT64_C(32) << 20)
#define DEFAULT_KEEP_BYTES    (UINT64_C(32) << 20)
#define FIRST_BYTES           (UINT64_C(64) << 10)
#define GROWTH_MAX            (UINT64_C(4) << 20)
#define ZEROS_BYTES           (256u << 10)
#define LARGE_FRAME           (256u << 10) /* 15 thousand adds */

struct log_writer {
    const struct fsops *fs;
    char *dir;
    char *log_dir;
    uint64_t salt;
    uint64_t start;        /* the first segment of this process */
    uint64_t generation;
    uint64_t segment_bytes;
    uint64_t keep_bytes;

    int fd;                /* of the segment, -1: none */
    struct log_header header;
    uint64_t next_segment;
    uint64_t previous;     /* the last segment that has been noted, of this process or of the one before; 0: none */
    uint64_t in_doubt;     /* a segment behind it that is on the disk and may have been noted in vain; 0: none */
    uint64_t *vain;        /* numbers of segments that could not be begun: something may be left of them */
    size_t nvain, vain_size;
    uint64_t offset;       /* where the next frame goes */
    uint64_t filled;       /* the file is zeros or frames up to here */
    bool dir_is_durable;
    bool failed;
    int error;             /* why */

    uint64_t sequence;     /* of the last frame appended */
    uint64_t synced;
    uint64_t written;
    struct log_bytes kept; /* the frames after `synced`, a struct kept_head and the payload each; then the next one */
    size_t kept_frames;    /* bytes of the frames: the next one is behind them, if it has been begun */
    size_t carried;        /* bytes of `kept` that are of an earlier process, whose segments say this: */
    uint64_t carried_start;
    uint64_t carried_generation;
    unsigned char *zeros;
};

struct kept_head {
    uint32_t len;
    bool has_controls;
    unsigned char room[LOG_FRAME_HEAD_MAX]; /* the frame's head is put right before the payload */
};

static char *join(const char *dir, const char *name)
{
    size_t size = strlen(dir) + strlen(name) + 2;
    char *path = malloc(size);

    if (path)
        snprintf(path, size, "%s/%s", dir, name);
    return path;
}

int log_writer_create(const struct log_writer_options *options, struct log_writer **writer_out)
{
    struct log_writer *w = calloc(1, sizeof(*w));

    if (!w)
        return -ENOMEM;
    w->fs = options->fs ? options->fs : fsops_posix();
    w->salt = options->salt;
    w->segment_bytes = options->segment_bytes ? options->segment_bytes : DEFAULT_SEGMENT_BYTES;
    w->keep_bytes = options->keep_bytes ? options->keep_bytes : DEFAULT_KEEP_BYTES;
    w->next_segment = w->start = options->next_segment;
    w->previous = options->previous_segment;
    w->generation = options->generation;
    w->sequence = w->synced = options->next_sequence - 1;
    w->fd = -1;
    w->dir = strdup(options->dir);
    w->log_dir = join(options->dir, "log");
    w->zeros = calloc(1, ZEROS_BYTES);
    if (!w->dir || !w->log_dir || !w->zeros) {
        log_writer_destroy(w);
        return -ENOMEM;
    }
    *writer_out = w;
    return 0;
}

void log_writer_destroy(struct log_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        w->fs->close(w->fs->ctx, w->fd);
    log_bytes_deinit(&w->kept);
    free(w->vain);
    free(w->zeros);
    free(w->log_dir);
    free(w->dir);
    free(w);
}

bool log_writer_failed(const struct log_writer *w)
{
    return w->failed;
}

void log_writer_info(const struct log_writer *w, struct log_writer_info *info_out)
{
    *info_out = (struct log_writer_info){
        .segment = w->fd >= 0 ? w->header.number : 0,
        .sequence = w->sequence,
        .synced = w->synced,
        .written = w->written,
        .kept = w->kept_frames,
    };
}

/* Leaves the segment for good. */
static int fail(struct log_writer *w, int rc, const char *what, struct errbuf *err)
{
    char name[LOG_SEGMENT_NAME];

    log_segment_name(w->header.number, name);
    errbuf_set(err, "%s/%s: %s: %s", w->log_dir, name, what, strerror(-rc));
    if (w->fd >= 0)
        w->fs->close(w->fs->ctx, w->fd);
    w->fd = -1;
    w->failed = true;
    w->error = rc;
    return rc;
}

/* ---- segments ------------------------------------------------------------------------------------------------------- */

static int fill_to(struct log_writer *w, uint64_t size)
{
    while (w->filled < size) {
        uint64_t n = size - w->filled < ZEROS_BYTES ? size - w->filled : ZEROS_BYTES;
        int rc = fs_write_all(w->fs, w->fd, w->zeros, (size_t)n, w->filled);

        if (rc != 0)
            return rc;
        w->filled += n;
    }
    return 0;
}

/* For a frame, before it is written. */
static int make_room(struct log_writer *w, uint64_t len)
{
    uint64_t size = w->filled;

    if (len >= LARGE_FRAME)
        return 0;
    while (size < w->offset + len)
        size += size < GROWTH_MAX ? size : GROWTH_MAX;
    return fill_to(w, size);
}

/* The file with its header. */
static int open_segment(struct log_writer *w, const char *path)
{
    unsigned char *block = malloc(LOG_HEADER_BYTES);
    int rc = -ENOMEM;

    if (!block)
        return rc;
    log_header_encode(&w->header, block);
    rc = w->fs->open(w->fs->ctx, path, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &w->fd);
    if (rc != 0) {
        w->fd = -1;
        goto out;
    }
    rc = fs_write_all(w->fs, w->fd, block, LOG_HEADER_BYTES, 0);
    w->offset = w->filled = LOG_HEADER_BYTES;
    if (rc == 0)
        rc = fill_to(w, FIRST_BYTES);
out:
    free(block);
    return rc;
}

/* One that is there may have been made in vain before: its name has to be on the disk, too. */
static int make_log_dir(struct log_writer *w)
{
    if (w->dir_is_durable)
        return 0;
    int rc = w->fs->mkdir(w->fs->ctx, w->log_dir);
    if (rc == 0 || rc == -EEXIST)
        rc = w->fs->sync_dir(w->fs->ctx, w->dir);
    w->dir_is_durable = rc == 0;
    return rc;
}

/* Without memory for it, the file of the number stays until a save has made it superfluous. */
static void note_vain(struct log_writer *w, uint64_t number)
{
    if (w->nvain == w->vain_size) {
        size_t size = w->vain_size ? 2 * w->vain_size : 16;
        uint64_t *vain = realloc(w->vain, size * sizeof(*vain));
        if (!vain)
            return;
        w->vain = vain;
        w->vain_size = size;
    }
    w->vain[w->nvain++] = number;
}

/* Its header says that all frames before `first` are on the disk, so they have to be. A number that was tried is not used
 * again: its file may be found after a crash, with or without what was written there, and does not matter then. */
static void number_segment(struct log_writer *w, uint64_t start, uint64_t generation)
{
    if (w->header.number != 0 && w->header.number != w->previous)
        note_vain(w, w->header.number);
    w->header = (struct log_header){
        .number = w->next_segment++,
        .first = w->synced + 1,
        .start = start,
        .generation = generation,
        .previous = w->previous,
    };
    w->header.salt = w->salt ^ w->header.number * UINT64_C(0xc2b2ae3d27d4eb4f);
}

static bool unlink_in_log(struct log_writer *w, const char *name)
{
    char *path = join(w->log_dir, name);
    int rc = path ? w->fs->unlink(w->fs->ctx, path) : -ENOMEM;

    free(path);
    return rc == 0 || rc == -ENOENT;
}

/* A later segment has been noted, and holds what those that were begun in vain may have. What cannot be deleted is tried
 * again with the next one. */
static void tidy_up(struct log_writer *w)
{
    size_t kept = 0;

    for (size_t i = 0; i < w->nvain; i++) {
        char name[LOG_SEGMENT_NAME];
        log_draft_name(w->vain[i], name);
        bool clean = unlink_in_log(w, name);
        log_segment_name(w->vain[i], name);
        if (!unlink_in_log(w, name) || !clean)
            w->vain[kept++] = w->vain[i];
    }
    w->nvain = kept;
}

/* The segment is on the disk, under its name: from here on it must not be missing. If that may have been noted in vain it
 * stays, and holds nothing that the next one does not have. */
static int note_segment(struct log_writer *w, const char *path, struct errbuf *err)
{
    bool in_doubt;
    int rc = log_note_write(w->fs, w->dir, w->header.number, &in_doubt);

    if (rc == 0) {
        tidy_up(w);
        w->previous = w->header.number;
        return 0;
    }
    fail(w, rc, "cannot note in " LOG_NOTE_NAME " that it has been begun", err);
    if (in_doubt)
        w->in_doubt = w->header.number;
    else
        w->fs->unlink(w->fs->ctx, path);
    return rc;
}

/* Before another segment is made: while the note cannot be written they would become more and more, each with all that is
 * kept in memory. */
static int end_doubt(struct log_writer *w, struct errbuf *err)
{
    bool in_doubt;
    int rc = w->in_doubt ? log_note_write(w->fs, w->dir, w->in_doubt, &in_doubt) : 0;

    if (rc != 0)
        return fail(w, rc, "cannot note in " LOG_NOTE_NAME " that it has been begun", err);
    w->in_doubt = 0;
    return 0;
}

/* An empty one. */
static int begin_segment(struct log_writer *w, struct errbuf *err)
{
    char name[LOG_SEGMENT_NAME];
    int rc = make_log_dir(w);

    number_segment(w, w->start, w->generation);
    if (rc != 0)
        return fail(w, rc, "cannot make the directory", err);
    log_segment_name(w->header.number, name);
    char *path = join(w->log_dir, name);
    if (!path)
        return fail(w, -ENOMEM, "cannot begin it", err);
    rc = open_segment(w, path);
    if (rc == 0)
        rc = w->fs->sync(w->fs->ctx, w->fd);
    if (rc == 0)
        rc = w->fs->sync_dir(w->fs->ctx, w->log_dir);
    if (rc != 0) {
        fail(w, rc, "cannot begin it", err);
        w->fs->unlink(w->fs->ctx, path); /* to give the space back; if it cannot be, see above */
    } else {
        rc = note_segment(w, path, err);
    }
    free(path);
    return rc;
}

/* ---- frames --------------------------------------------------------------------------------------------------------- */

/* The kept frame whose kept_head is at `at`. */
static int write_frame(struct log_writer *w, size_t at, uint64_t sequence, struct errbuf *err)
{
    unsigned char head[LOG_FRAME_HEAD_MAX], *payload = w->kept.ptr + at + sizeof(struct kept_head);
    struct kept_head kept;

    memcpy(&kept, w->kept.ptr + at, sizeof(kept));
    struct log_frame frame = {
        .sequence = sequence,
        .synced = w->synced,
        .has_controls = kept.has_controls,
        .payload = payload,
        .payload_len = kept.len,
    };
    size_t head_len = log_frame_head(&frame, w->header.salt, head), len = head_len + kept.len;
    memcpy(payload - head_len, head, head_len);
    int rc = make_room(w, len);
    if (rc == 0)
        rc = fs_write_all(w->fs, w->fd, payload - head_len, len, w->offset);
    if (rc != 0)
        return fail(w, rc, "cannot write", err);
    w->offset += len;
    w->written += len;
    if (w->filled < w->offset)
        w->filled = w->offset;
    return 0;
}

/* The first `len` bytes of what is kept need not be any more. */
static void drop_kept(struct log_writer *w, size_t len)
{
    if (w->kept.len > len)
        memmove(w->kept.ptr, w->kept.ptr + len, w->kept.len - len);
    w->kept.len -= len;
    w->kept_frames -= len;
}

int log_writer_sync(struct log_writer *w, struct errbuf *err)
{
    if (w->failed) {
        errbuf_set(err, "%s", strerror(-w->error));
        return w->error;
    }
    if (w->synced == w->sequence)
        return 0;
    int rc = w->fs->sync(w->fs->ctx, w->fd);
    if (rc != 0)
        return fail(w, rc, "cannot sync", err);
    w->synced = w->sequence;
    drop_kept(w, w->kept_frames);
    return 0;
}

/* A segment to write to. */
static int ready_segment(struct log_writer *w, struct errbuf *err)
{
    if (w->fd >= 0 && (w->offset < w->segment_bytes || w->offset == LOG_HEADER_BYTES))
        return 0;
    uint64_t segment;
    return log_writer_rotate(w, &segment, err);
}

struct log_bytes *log_writer_payload(struct log_writer *w)
{
    if (w->kept.len == w->kept_frames) {
        if (log_bytes_reserve(&w->kept, sizeof(struct kept_head)) != 0)
            return NULL;
        w->kept.len += sizeof(struct kept_head);
    }
    return &w->kept;
}

size_t log_writer_payload_len(const struct log_writer *w)
{
    return w->kept.len == w->kept_frames ? 0 : w->kept.len - w->kept_frames - sizeof(struct kept_head);
}

/* The payload becomes a frame, which has a number. */
static void keep(struct log_writer *w, bool has_controls)
{
    struct kept_head head = {.len = (uint32_t)log_writer_payload_len(w), .has_controls = has_controls};

    CHECK(w->kept.len > w->kept_frames && log_writer_payload_len(w) <= LOG_PAYLOAD_MAX);
    memcpy(w->kept.ptr + w->kept_frames, &head, sizeof(head));
    w->kept_frames = w->kept.len;
    w->sequence++;
}

int log_writer_append(struct log_writer *w, bool has_controls, struct errbuf *err)
{
    int rc = w->failed ? w->error : 0;

    if (rc != 0)
        errbuf_set(err, "%s", strerror(-rc));
    if (rc == 0 && w->kept_frames && w->kept.len > w->keep_bytes)
        rc = log_writer_sync(w, err);
    if (rc == 0)
        rc = ready_segment(w, err); /* before the frame has a number: a rotation syncs all that have one */
    size_t at = w->kept_frames;
    keep(w, has_controls);
    return rc == 0 ? write_frame(w, at, w->sequence, err) : rc;
}

int log_writer_rotate(struct log_writer *w, uint64_t *segment_out, struct errbuf *err)
{
    int rc = log_writer_sync(w, err);

    if (rc != 0)
        return rc;
    if (w->fd < 0 || w->offset > LOG_HEADER_BYTES) { /* an empty one serves as well */
        if (w->fd >= 0)
            w->fs->close(w->fs->ctx, w->fd);
        w->fd = -1;
        rc = begin_segment(w, err);
    }
    *segment_out = w->header.number;
    return rc;
}

/* ---- frames once more ----------------------------------------------------------------------------------------------- */

/* How many there are in the first `len` bytes of what is kept. */
static uint64_t count_kept(const struct log_writer *w, size_t len)
{
    uint64_t count = 0;

    for (size_t at = 0; at < len; count++) {
        struct kept_head head;
        memcpy(&head, w->kept.ptr + at, sizeof(head));
        at += sizeof(head) + head.len;
    }
    return count;
}

/* The first `len` bytes of what is kept. */
static int write_kept_frames(struct log_writer *w, size_t len, struct errbuf *err)
{
    uint64_t sequence = w->synced;
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < len;) {
        struct kept_head head;

        memcpy(&head, w->kept.ptr + at, sizeof(head));
        rc = write_frame(w, at, ++sequence, err);
        at += sizeof(head) + head.len;
    }
    return rc;
}

/* A segment with these frames gets its name when it is complete and on the disk: its header does away with what earlier ones
 * have of them. */
static int write_draft(struct log_writer *w, size_t len, const char *draft, const char *path, struct errbuf *err)
{
    int rc = open_segment(w, draft);

    if (rc != 0)
        return fail(w, rc, "cannot begin it", err);
    rc = write_kept_frames(w, len, err);
    if (rc != 0)
        return rc;
    rc = w->fs->sync(w->fs->ctx, w->fd);
    if (rc == 0)
        rc = w->fs->rename(w->fs->ctx, draft, path);
    if (rc == 0)
        rc = w->fs->sync_dir(w->fs->ctx, w->log_dir);
    return rc != 0 ? fail(w, rc, "cannot sync", err) : 0;
}

static int write_kept(struct log_writer *w, size_t len, const char *draft, const char *path, struct errbuf *err)
{
    int rc = write_draft(w, len, draft, path, err);

    if (rc != 0) { /* to give the space back */
        w->fs->unlink(w->fs->ctx, draft);
        w->fs->unlink(w->fs->ctx, path);
        return rc;
    }
    rc = note_segment(w, path, err);
    if (rc != 0)
        return rc;
    w->synced = w->header.sealed;
    drop_kept(w, len);
    return 0;
}

static int rewrite(struct log_writer *w, size_t len, uint64_t start, uint64_t generation, struct errbuf *err)
{
    char name[LOG_SEGMENT_NAME], draft_name[LOG_SEGMENT_NAME];
    int rc = make_log_dir(w);

    number_segment(w, start ? start : w->next_segment, generation);
    w->header.sealed = w->synced + count_kept(w, len);
    if (rc != 0)
        return fail(w, rc, "cannot make the directory", err);
    log_segment_name(w->header.number, name);
    log_draft_name(w->header.number, draft_name);
    char *path = join(w->log_dir, name), *draft = join(w->log_dir, draft_name);
    rc = path && draft ? write_kept(w, len, draft, path, err) : fail(w, -ENOMEM, "cannot begin it", err);
    free(draft);
    free(path);
    return rc;
}

/* What an earlier process has written is in a segment that says so: who reads it may have to know. */
static int rewrite_carried(struct log_writer *w, struct errbuf *err)
{
    int rc = rewrite(w, w->carried, w->carried_start, w->carried_generation, err);

    if (rc != 0)
        return rc;
    w->carried = 0;
    w->fs->close(w->fs->ctx, w->fd);
    w->fd = -1;
    w->start = w->next_segment;
    return 0;
}

int log_writer_repair(struct log_writer *w, struct errbuf *err)
{
    bool carried = w->carried != 0;

    w->failed = false;
    int rc = end_doubt(w, err);
    if (rc == 0 && carried)
        rc = rewrite_carried(w, err);
    if (rc != 0 || (carried && w->kept_frames == 0))
        return rc;
    return rewrite(w, w->kept_frames, w->start, w->generation, err);
}

int log_writer_carry(struct log_writer *w, const unsigned char *payload, size_t len, bool has_controls, uint64_t start,
                     uint64_t generation)
{
    struct log_bytes *bytes = log_writer_payload(w);

    if (!bytes || log_bytes_append(bytes, payload, len) != 0)
        return -ENOMEM;
    keep(w, has_controls);
    w->carried = w->kept_frames;
    w->carried_start = start;
    w->carried_generation = start ? generation : UINT64_MAX; /* version 1 of the format does not say */
    w->failed = true;
    w->error = -EIO;
    return 0;
}
