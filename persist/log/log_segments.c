/* The log's files: which there are, what their headers say, and their bytes. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log_frame.h"
#include "log_note.h"
#include "log_reader_internal.h"

#define SEGMENT_BYTES_MAX (UINT64_C(4) << 30) /* more is no segment of ours: frames are below 1 GB */

void log_report(struct log_reader *r, enum store_severity severity, const char *fmt, ...)
{
    char text[ERRBUF_SIZE];
    va_list args;

    if (!r->options.report)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    r->options.report(r->options.report_ctx, severity, text);
}

/* ---- the directory ---- */

static int note_name(void *ctx, const char *name)
{
    struct log_reader *r = ctx;
    uint64_t number = log_segment_number(name), draft = log_draft_number(name), pending = log_pending_number(name);

    if (draft >= r->summary.next_segment)
        r->summary.next_segment = draft + 1;
    if (pending >= r->summary.next_segment)
        r->summary.next_segment = pending + 1;
    if (pending)
        return log_note_pending(r, pending);
    if (draft || log_is_cut_name(name))
        return 0;
    if (number == 0) {
        log_report(r, STORE_NOTICE, "%s/%s is not a segment of the log and is left alone", r->log_dir, name);
        return 0;
    }
    if (number >= r->summary.next_segment)
        r->summary.next_segment = number + 1;
    if (number < r->options.from)
        return 0; /* the save holds what it says; its deletion was cut short */
    if (r->nsegments == r->size) {
        size_t size = r->size ? r->size * 2 : 64;
        struct segment *segments = realloc(r->segments, size * sizeof(*segments));
        if (!segments)
            return -ENOMEM;
        r->segments = segments;
        r->size = size;
    }
    r->segments[r->nsegments++] = (struct segment){.number = number, .limit = UINT64_MAX};
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const struct segment *x = a, *y = b;

    return x->number < y->number ? -1 : x->number > y->number;
}

static int list_segments(struct log_reader *r, struct errbuf *err)
{
    int rc = r->fs->list(r->fs->ctx, r->log_dir, note_name, r);

    if (rc != 0 && rc != -ENOENT) {
        errbuf_set(err, "%s: %s", r->log_dir, strerror(-rc));
        return rc;
    }
    if (r->nsegments)
        qsort(r->segments, r->nsegments, sizeof(*r->segments), by_number);
    return 0;
}

/* ---- files ---- */

char *log_path_in(const struct log_reader *r, const char *name)
{
    size_t size = strlen(r->log_dir) + strlen(name) + 2;
    char *path = malloc(size);

    if (path)
        snprintf(path, size, "%s/%s", r->log_dir, name);
    return path;
}

static char *segment_path(const struct log_reader *r, const struct segment *segment)
{
    char name[LOG_SEGMENT_NAME];

    log_segment_name(segment->number, name);
    return log_path_in(r, name);
}

int log_read_segment(const struct log_reader *r, const struct segment *segment, uint64_t most, struct bytes *bytes_out,
                     struct errbuf *err)
{
    char *path = segment_path(r, segment);
    unsigned char *ptr = NULL;
    uint64_t size = 0;
    int fd = -1;
    int rc = path ? r->fs->open(r->fs->ctx, path, FS_READ, &fd) : -ENOMEM;

    if (rc == 0)
        rc = r->fs->size(r->fs->ctx, fd, &size);
    if (rc == 0 && size > SEGMENT_BYTES_MAX)
        rc = -EFBIG;
    if (size > most)
        size = most;
    if (rc == 0 && !(ptr = malloc(size ? (size_t)size : 1)))
        rc = -ENOMEM;
    if (rc == 0)
        rc = fs_read_all(r->fs, fd, ptr, (size_t)size, 0);
    if (rc != 0) {
        errbuf_set(err, "%s: %s", path ? path : r->log_dir, strerror(-rc));
        free(ptr);
    } else {
        *bytes_out = (struct bytes){ptr, (size_t)size};
    }
    if (fd >= 0)
        r->fs->close(r->fs->ctx, fd);
    free(path);
    return rc;
}

size_t log_used_bytes(const struct bytes *file)
{
    size_t len = file->len;

    while (len && file->ptr[len - 1] == 0)
        len--;
    return len;
}

int log_sync_segment(struct log_reader *r, const struct segment *segment, struct errbuf *err)
{
    char *path = segment_path(r, segment);
    int fd = -1;
    int rc = path ? r->fs->open(r->fs->ctx, path, FS_READ, &fd) : -ENOMEM;
    if (rc == 0) {
        rc = r->fs->sync(r->fs->ctx, fd);
        r->fs->close(r->fs->ctx, fd);
    }
    if (rc != 0)
        errbuf_set(err, "%s: %s", path ? path : r->log_dir, strerror(-rc));
    free(path);
    return rc;
}

int log_keep_cut(struct log_reader *r, const struct segment *segment, size_t at, size_t len, struct errbuf *err)
{
    char name[LOG_CUT_NAME];
    struct bytes file;
    int fd = -1;
    int rc = log_read_segment(r, segment, UINT64_MAX, &file, err);

    if (rc != 0)
        return rc;
    if (file.len < at + len)
        len = file.len > at ? file.len - at : 0;
    log_cut_name(segment->number, at, name);
    char *path = log_path_in(r, name);
    rc = path ? fs_open_new(r->fs, path, FS_WRITE, &fd) : -ENOMEM;
    if (rc == 0)
        rc = fs_write_all(r->fs, fd, file.ptr + at, len, 0);
    if (rc == 0)
        rc = r->fs->sync(r->fs->ctx, fd);
    if (fd >= 0)
        r->fs->close(r->fs->ctx, fd);
    if (rc == 0)
        rc = r->fs->sync_dir(r->fs->ctx, r->log_dir);
    if (rc == 0)
        log_report(r, STORE_NOTICE, "the bytes that are cut are kept as %s; nothing needs this file any more", path);
    else
        errbuf_set(err, "%s: %s", path ? path : r->log_dir, strerror(-rc));
    free(path);
    free(file.ptr);
    return rc;
}

/* ---- damage ---- */

int log_found_damage(struct log_reader *r, const struct segment *segment, struct errbuf *err)
{
    char name[LOG_SEGMENT_NAME];

    log_segment_name(segment->number, name);
    errbuf_prefix(err, "%s/%s is damaged", r->log_dir, name);
    if (segment->number < r->options.accepted) {
        r->summary.accepted++;
        log_report(r, STORE_NOTICE, "%s; the loss has been accepted by an earlier start", err->text);
        errbuf_set(err, "%s", "");
        return LOG_OK;
    }
    if (r->options.on_damage == LOG_REFUSE)
        return LOG_DAMAGED;
    r->summary.damages++;
    log_report(r, STORE_WARNING, "%s%s", err->text, r->options.on_damage == LOG_ACCEPT ? "; the loss is accepted" : "");
    errbuf_set(err, "%s", "");
    return LOG_OK;
}

/* ---- headers ---- */

static bool header_is_valid(struct segment *segment, const struct bytes *file, struct errbuf *err)
{
    struct log_header header;

    if (file->len < LOG_HEADER_BYTES) {
        errbuf_set(err, "it is shorter than its header");
        return false;
    }
    if (log_header_decode(file->ptr, &header, err) != LOG_OK)
        return false;
    if (header.number != segment->number) {
        errbuf_set(err, "it was made as segment %" PRIu64, header.number);
        return false;
    }
    segment->first = header.first;
    segment->salt = header.salt;
    segment->process = header.process;
    segment->ends_process = header.ends_process;
    segment->generation = header.generation;
    segment->sealed = header.sealed;
    segment->previous = header.previous;
    return true;
}

/* A name that leads to no file, as a symbolic link or a directory may have it. To try again does not help, which tells
 * this from a disk that cannot be read. */
static bool is_no_file(int rc)
{
    return rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP || rc == -EISDIR;
}

/* Before a segment gets its first frame its header is synced: with a wrong one it is a file that had just been made, if
 * nothing else is in it. Where there is only a name it is as if that were not there either: who misses the frames says
 * so. */
static int read_header(struct log_reader *r, struct segment *segment, struct errbuf *err)
{
    struct bytes file;
    int rc = log_read_segment(r, segment, LOG_HEADER_BYTES, &file, err);

    if (is_no_file(rc)) {
        log_report(r, STORE_WARNING, "%s; the segment is taken as missing", err->text);
        errbuf_set(err, "%s", "");
        segment->unused = true;
        return 0;
    }
    if (rc != 0)
        return rc;
    bool valid = header_is_valid(segment, &file, err);
    free(file.ptr);
    if (valid)
        return 0;
    rc = log_read_segment(r, segment, UINT64_MAX, &file, err);
    if (rc != 0)
        return rc;
    segment->unused = log_used_bytes(&file) <= LOG_HEADER_BYTES;
    segment->lost = !segment->unused;
    free(file.ptr);
    return segment->lost ? log_found_damage(r, segment, err) : 0;
}

static int read_headers(struct log_reader *r, struct errbuf *err)
{
    uint64_t limit = UINT64_MAX;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < r->nsegments; i++)
        rc = read_header(r, &r->segments[i], err);
    if (rc != 0)
        return rc;
    for (size_t i = r->nsegments; i-- > 0;) {
        struct segment *segment = &r->segments[i];

        if (segment->unused || segment->lost)
            continue;
        if (segment->first > limit) {
            errbuf_set(err, "it begins with frame %" PRIu64 ", a later one with frame %" PRIu64, segment->first, limit);
            rc = log_found_damage(r, segment, err);
            if (rc != 0)
                return rc;
            segment->lost = true;
            continue;
        }
        segment->limit = limit;
        limit = segment->first;
    }
    return 0;
}

/* ---- the last one ---- */

/* What MANIFEST.log says, in `last_out`; 0: nothing. Only who lost that loses nothing else: the next segment has it
 * made anew. */
static int read_note(struct log_reader *r, uint64_t *last_out, struct errbuf *err)
{
    int rc = log_note_read(r->fs, r->options.dir, last_out, err);

    if (rc == 0)
        return 0;
    *last_out = 0;
    if (rc < 0 && rc != -ENOENT) {
        errbuf_prefix(err, "%s/%s", r->options.dir, LOG_NOTE_NAME);
        return rc;
    }
    if (rc == LOG_DAMAGED)
        log_report(r, STORE_WARNING,
                   "%s/%s is damaged (%s): a loss of the last segment of the log would not be noticed", r->options.dir,
                   LOG_NOTE_NAME, err->text);
    else if (r->nsegments)
        log_report(r, STORE_NOTICE, "%s/%s is missing: a loss of the last segment of the log would not be noticed",
                   r->options.dir, LOG_NOTE_NAME);
    errbuf_set(err, "%s", "");
    return 0;
}

/* Before its first frame a segment is noted as the last one. What a save that came after the note does not need is of
 * no interest. */
static int expect_last(struct log_reader *r, struct errbuf *err)
{
    uint64_t last;
    int rc = read_note(r, &last, err);

    if (rc != 0 || last == 0 || last < r->options.from)
        return rc;
    if (last >= r->summary.next_segment)
        r->summary.next_segment = last + 1;
    const struct segment *segment = r->nsegments ? &r->segments[r->nsegments - 1] : NULL;
    while (segment && segment->number > last)
        segment = segment > r->segments ? segment - 1 : NULL;
    if (segment && segment->number == last && !segment->unused)
        return 0;
    errbuf_set(err, "%s says that it had been begun, and %s", LOG_NOTE_NAME,
               segment && segment->number == last ? "there is nothing in it" : "it is not there");
    return log_found_damage(r, &(struct segment){.number = last}, err);
}

int log_find_segments(struct log_reader *r, struct errbuf *err)
{
    int rc = list_segments(r, err);

    if (rc == 0)
        rc = read_headers(r, err);
    return rc == 0 ? expect_last(r, err) : rc;
}

/* ---- size ---- */

struct sizing {
    const struct fsops *fs;
    const char *log_dir;
    uint64_t from;
    uint64_t bytes;
};

static int add_size(void *ctx, const char *name)
{
    struct sizing *sizing = ctx;
    uint64_t number = log_segment_number(name);
    struct fs_stat st;
    char path[4096];

    if (number == 0 || number < sizing->from ||
        (size_t)snprintf(path, sizeof(path), "%s/%s", sizing->log_dir, name) >= sizeof(path))
        return 0;
    if (sizing->fs->stat(sizing->fs->ctx, path, &st) == 0)
        sizing->bytes += st.size;
    return 0;
}

int log_bytes_on_disk(const struct fsops *fs, const char *dir, uint64_t from, uint64_t *bytes_out)
{
    char log_dir[4096];
    struct sizing sizing = {.fs = fs, .log_dir = log_dir, .from = from};

    if ((size_t)snprintf(log_dir, sizeof(log_dir), "%s/log", dir) >= sizeof(log_dir))
        return -ENAMETOOLONG;
    int rc = fs->list(fs->ctx, log_dir, add_size, &sizing);
    *bytes_out = sizing.bytes;
    return rc == -ENOENT ? 0 : rc;
}
