/* Segments: made and numbered.
 *
 * Space is written with zeros ahead of the frames, so a sync of a frame writes only to blocks that the file already
 * has. The file system need not change its own structures for it. The file doubles its size, by up to 4 MB at a time,
 * so that a small log costs little. A large frame allocates its own space. Its write and sync take so long that the
 * change of structures is the smaller part, and zeros would double the work. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "log_pending.h"
#include "log_writer_internal.h"
#include "errbuf.h"

#define FIRST_BYTES (UINT64_C(64) << 10)
#define GROWTH_MAX  (UINT64_C(4) << 20)
#define LARGE_FRAME (256u << 10) /* 15 thousand adds */

void writer_path(const struct log_writer *w, const char *name, struct path *path)
{
    (void)path_format(path, NULL, "%s/%s", w->log_dir.text, name); /* log_writer_create() has checked that it fits */
}

void writer_close_segment(struct log_writer *w)
{
    if (w->segment.fd >= 0)
        w->fs->close(w->fs->ctx, w->segment.fd);
    w->segment.fd = -1;
}

/* Leaves the segment for good. */
int writer_fail(struct log_writer *w, int rc, const char *what, struct errbuf *err)
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
int writer_make_room(struct log_writer *w, uint64_t len)
{
    uint64_t size = w->segment.filled;

    if (len >= LARGE_FRAME)
        return 0;
    while (size < w->segment.offset + len)
        size += size < GROWTH_MAX ? size : GROWTH_MAX;
    return fill_to(w, size);
}

/* The file with its header. */
int writer_open_segment(struct log_writer *w, const char *path)
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
int writer_make_log_dir(struct log_writer *w)
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
void writer_number_segment(struct log_writer *w, const struct origin *origin)
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
int writer_begin_segment(struct log_writer *w, struct errbuf *err)
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

bool writer_current_is_there(const struct log_writer *w)
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

/* ---- deleting ---- */

/* Deletes the segments that no save needs any more, and files of pending records whose records are all in segments. */

struct deletion {
    bool pending; /* files of pending records, otherwise segments and their drafts */
    uint64_t below;
    char (*names)[LOG_SEGMENT_NAME];
    size_t count, size;
};

_Static_assert(PENDING_NAME <= LOG_SEGMENT_NAME, "a name of either kind");

static int note_name(void *ctx, const char *name)
{
    struct deletion *d = ctx;
    uint64_t number = d->pending ? log_pending_number(name) : log_segment_number(name) + log_draft_number(name);

    if (number == 0 || number >= d->below)
        return 0;
    if (GROW(d->names, d->count, d->size) != 0)
        return -ENOMEM;
    strcpy(d->names[d->count++], name);
    return 0;
}

/* Not synced: a file that comes back after a crash is deleted again. */
static int delete_files(const struct fsops *fs, const char *dir, struct deletion *d, struct errbuf *err)
{
    struct path path, log_dir;
    int status = path_format(&log_dir, err, "%s/log", dir);

    if (status == 0)
        status = fs->list(fs->ctx, log_dir.text, note_name, d);
    if (status == -ENOENT)
        status = 0;
    if (status != 0)
        errbuf_set(err, "%s/log: %s", dir, strerror(-status));
    for (size_t i = 0; i < d->count; i++) {
        int rc = path_format(&path, err, "%s/%s", log_dir.text, d->names[i]);
        if (rc == 0)
            rc = fs->unlink(fs->ctx, path.text);
        if (rc == 0 || rc == -ENOENT)
            continue;
        errbuf_set(err, "%s: %s", path.text, fs_error_text(rc));
        status = status ? status : rc;
    }
    free(d->names);
    return status;
}

int log_delete_before(const struct fsops *fs, const char *dir, uint64_t segment, struct errbuf *err)
{
    struct path note;

    if (path_format(&note, NULL, "%s/MANIFEST.log", dir) == 0) /* versions up to 0.3.2 named the newest segment there */
        (void)fs->unlink(fs->ctx, note.text);
    return delete_files(fs, dir, &(struct deletion){.below = segment}, err);
}

int log_pending_delete_before(const struct fsops *fs, const char *dir, uint64_t process, struct errbuf *err)
{
    return delete_files(fs, dir, &(struct deletion){.pending = true, .below = process}, err);
}
