/* Segments: made, numbered, noted, deleted.
 *
 * Space is written with zeros ahead of the frames, so that a sync of a frame is a write to blocks that the file has
 * already: the file system need not change its own structures for it. The file grows by as much as it has, up to 4 MB
 * at a time, so that a log of little costs little. A large frame makes its own space: it takes so long to write and
 * sync that the change of structures is the smaller part, and zeros would be as much again. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log_note.h"
#include "log_writer_internal.h"

#define FIRST_BYTES (UINT64_C(64) << 10)
#define GROWTH_MAX  (UINT64_C(4) << 20)
#define LARGE_FRAME (256u << 10) /* 15 thousand adds */

char *writer_path(const char *dir, const char *name)
{
    size_t size = strlen(dir) + strlen(name) + 2;
    char *path = malloc(size);

    if (path)
        snprintf(path, size, "%s/%s", dir, name);
    return path;
}

/* Leaves the segment for good. */
int writer_fail(struct log_writer *w, int rc, const char *what, struct errbuf *err)
{
    char name[LOG_SEGMENT_NAME];

    log_segment_name(w->header.number, name);
    errbuf_set(err, "%s/%s: %s: %s", w->log_dir, name, what,
               rc == -ESTALE ? "the data directory has been moved, removed or replaced" : strerror(-rc));
    if (w->fd >= 0)
        w->fs->close(w->fs->ctx, w->fd);
    w->fd = -1;
    w->failed = true;
    w->error = rc;
    return rc;
}

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
int writer_make_room(struct log_writer *w, uint64_t len)
{
    uint64_t size = w->filled;

    if (len >= LARGE_FRAME)
        return 0;
    while (size < w->offset + len)
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

/* Also when it is there: whoever has made it may not have synced its name. */
int writer_make_log_dir(struct log_writer *w)
{
    int rc = w->still_ours ? w->still_ours(w->ctx) : 0;

    if (rc != 0 || w->dir_is_durable)
        return rc;
    rc = w->fs->mkdir(w->fs->ctx, w->log_dir);
    if (rc == 0 || rc == -EEXIST)
        rc = w->fs->sync_dir(w->fs->ctx, w->dir);
    w->dir_is_durable = rc == 0;
    return rc;
}

/* Without memory for it, the file of the number stays until a save has made it superfluous. */
static void note_abandoned(struct log_writer *w, uint64_t number)
{
    if (w->nabandoned == w->abandoned_size) {
        size_t size = w->abandoned_size ? 2 * w->abandoned_size : 16;
        uint64_t *abandoned = realloc(w->abandoned, size * sizeof(*abandoned));
        if (!abandoned)
            return;
        w->abandoned = abandoned;
        w->abandoned_size = size;
    }
    w->abandoned[w->nabandoned++] = number;
}

/* Its header says that all frames before `first` are on the disk, so they have to be. A number that was tried is not
 * used again: its file may be found after a crash, with or without what was written there, and does not matter then. */
void writer_number_segment(struct log_writer *w, const struct origin *origin)
{
    if (w->header.number != 0 && w->header.number != w->previous)
        note_abandoned(w, w->header.number);
    w->header = (struct log_header){
        .number = w->next_segment++,
        .first = w->synced + 1,
        .process = origin->process,
        .generation = origin->generation,
        .ends_process = origin->ends_process,
        .previous = w->previous,
    };
    w->marked = w->synced; /* by its header, before its first frame */
    w->header.salt = w->salt ^ w->header.number * UINT64_C(0xc2b2ae3d27d4eb4f);
}

static bool unlink_in_log(struct log_writer *w, const char *name)
{
    char *path = writer_path(w->log_dir, name);
    int rc = path ? w->fs->unlink(w->fs->ctx, path) : -ENOMEM;

    free(path);
    return rc == 0 || rc == -ENOENT;
}

/* A later segment has been noted, and holds whatever the abandoned ones may have. What cannot be deleted is
 * tried again with the next one. */
static void delete_abandoned(struct log_writer *w)
{
    size_t kept = 0;

    for (size_t i = 0; i < w->nabandoned; i++) {
        char name[LOG_SEGMENT_NAME];
        log_draft_name(w->abandoned[i], name);
        bool clean = unlink_in_log(w, name);
        log_segment_name(w->abandoned[i], name);
        if (!unlink_in_log(w, name) || !clean)
            w->abandoned[kept++] = w->abandoned[i];
    }
    w->nabandoned = kept;
}

/* The segment is on the disk, under its name: from here on it must not be missing. If the note failed and may be there
 * all the same, it stays, and holds nothing that the next one does not have. */
int writer_note_segment(struct log_writer *w, const char *path, struct errbuf *err)
{
    bool half_noted;
    int rc = log_note_write(w->fs, w->dir, w->header.number, &half_noted);

    if (rc == 0) {
        delete_abandoned(w);
        w->previous = w->header.number;
        return 0;
    }
    writer_fail(w, rc, "cannot note in " LOG_NOTE_NAME " that it has been begun", err);
    if (half_noted)
        w->half_noted = w->header.number;
    else
        w->fs->unlink(w->fs->ctx, path);
    return rc;
}

/* Before another segment is made: while the note cannot be written they would become more and more, each with all that
 * is kept in memory. */
int writer_finish_note(struct log_writer *w, struct errbuf *err)
{
    bool half_noted;
    int rc = w->half_noted ? log_note_write(w->fs, w->dir, w->half_noted, &half_noted) : 0;

    if (rc != 0)
        return writer_fail(w, rc, "cannot note in " LOG_NOTE_NAME " that it has been begun", err);
    w->half_noted = 0;
    return 0;
}

/* An empty one. */
int writer_begin_segment(struct log_writer *w, struct errbuf *err)
{
    char name[LOG_SEGMENT_NAME];
    int rc = writer_make_log_dir(w);

    writer_number_segment(w, &(struct origin){w->process, w->generation, false});
    if (rc != 0)
        return writer_fail(w, rc, "cannot be made", err);
    log_segment_name(w->header.number, name);
    char *path = writer_path(w->log_dir, name);
    if (!path)
        return writer_fail(w, -ENOMEM, "cannot begin it", err);
    rc = writer_open_segment(w, path);
    if (rc == 0)
        rc = w->fs->sync(w->fs->ctx, w->fd);
    if (rc == 0)
        rc = w->fs->sync_dir(w->fs->ctx, w->log_dir);
    if (rc != 0) {
        writer_fail(w, rc, "cannot begin it", err);
        w->fs->unlink(w->fs->ctx, path); /* to give the space back; if it cannot be, see above */
    } else {
        rc = writer_note_segment(w, path, err);
    }
    free(path);
    return rc;
}
