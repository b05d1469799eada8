/* The files of the log: their list, headers and bytes. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "log_frame.h"
#include "log_reader_internal.h"
#include "errbuf.h"

#define SEGMENT_BYTES_MAX (UINT64_C(4) << 30) /* a larger file is no segment of ours: frames are below 1 GB */

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

static int note_pending(struct log_reader *r, uint64_t process)
{
    if (GROW(r->pending_files, r->npending_files, r->pending_size) != 0)
        return -ENOMEM;
    r->pending_files[r->npending_files++] = process;
    return 0;
}

static int note_name(void *ctx, const char *name)
{
    struct log_reader *r = ctx;
    uint64_t number = log_segment_number(name), draft = log_draft_number(name), pending = log_pending_number(name);

    if (draft >= r->summary.next_segment)
        r->summary.next_segment = draft + 1;
    if (pending >= r->summary.next_segment)
        r->summary.next_segment = pending + 1;
    if (pending)
        return note_pending(r, pending);
    if (draft || log_is_cut_name(name))
        return 0;
    if (number == 0) {
        log_report(r, STORE_NOTICE, "%s/%s is not a segment of the log and is ignored", r->log_dir.text, name);
        return 0;
    }
    if (number >= r->summary.next_segment)
        r->summary.next_segment = number + 1;
    if (number < r->options.from)
        return 0; /* the save has its records; its deletion was cut short */
    if (GROW(r->segments, r->nsegments, r->size) != 0)
        return -ENOMEM;
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
    int rc = r->fs->list(r->fs->ctx, r->log_dir.text, note_name, r);

    if (rc != 0 && rc != -ENOENT) {
        errbuf_set(err, "%s: %s", r->log_dir.text, fs_error_text(rc));
        return rc;
    }
    if (r->nsegments)
        qsort(r->segments, r->nsegments, sizeof(*r->segments), by_number);
    return 0;
}

/* ---- files ---- */

static void log_path_in(const struct log_reader *r, const char *name, struct path *path)
{
    (void)path_format(path, NULL, "%s/%s", r->log_dir.text, name); /* log_reader_open() has checked that it fits */
}

static void segment_path(const struct log_reader *r, const struct segment *segment, struct path *path)
{
    char name[LOG_SEGMENT_NAME];

    log_segment_name(segment->number, name);
    log_path_in(r, name, path);
}

int log_read_segment(const struct log_reader *r, const struct segment *segment, uint64_t most, struct bytes *bytes_out,
                     struct errbuf *err)
{
    unsigned char *ptr = NULL;
    uint64_t size = 0;
    struct path path;
    int fd = -1;

    segment_path(r, segment, &path);
    int rc = r->fs->open(r->fs->ctx, path.text, FS_READ, &fd);
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
    if (fd >= 0)
        r->fs->close(r->fs->ctx, fd);
    if (rc == 0) {
        *bytes_out = (struct bytes){ptr, (size_t)size};
        return 0;
    }
    errbuf_set(err, "%s: %s", path.text, fs_error_text(rc));
    free(ptr);
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
    struct path path;
    int fd;

    segment_path(r, segment, &path);
    int rc = r->fs->open(r->fs->ctx, path.text, FS_READ, &fd);
    if (rc == 0) {
        rc = r->fs->sync(r->fs->ctx, fd);
        r->fs->close(r->fs->ctx, fd);
    }
    if (rc != 0)
        errbuf_set(err, "%s: %s", path.text, fs_error_text(rc));
    return rc;
}

int log_keep_cut(struct log_reader *r, const struct segment *segment, size_t at, size_t len, struct errbuf *err)
{
    char name[LOG_CUT_NAME];
    struct bytes file;
    struct path path;
    TRY(log_read_segment(r, segment, UINT64_MAX, &file, err));
    if (file.len < at + len)
        len = file.len > at ? file.len - at : 0;
    log_cut_name(segment->number, at, name);
    log_path_in(r, name, &path);
    int rc = fs_write_file(r->fs, path.text, file.ptr + at, len);
    if (rc == 0)
        rc = r->fs->sync_dir(r->fs->ctx, r->log_dir.text);
    if (rc == 0)
        log_report(r, STORE_NOTICE, "the cut bytes are kept as %s; nothing needs this file", path.text);
    else
        errbuf_set(err, "%s: %s", path.text, fs_error_text(rc));
    free(file.ptr);
    return rc;
}

/* ---- damage ---- */

/* `number`: of the segment, or of the process, which is that of its first segment. */
static int found_damage(struct log_reader *r, const char *name, uint64_t number, struct errbuf *err)
{
    errbuf_prefix(err, "%s/%s is damaged", r->log_dir.text, name);
    if (number < r->options.accepted) {
        r->summary.accepted++;
        log_report(r, STORE_NOTICE, "%s; an earlier start has accepted the loss", err->text);
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

int log_found_damage(struct log_reader *r, const struct segment *segment, struct errbuf *err)
{
    char name[LOG_SEGMENT_NAME];

    log_segment_name(segment->number, name);
    return found_damage(r, name, segment->number, err);
}

/* ---- headers ---- */

static int take_header(struct segment *segment, const struct bytes *file, struct errbuf *err)
{
    struct log_header header;

    if (file->len < LOG_HEADER_BYTES) {
        errbuf_set(err, "it is shorter than its header");
        return LOG_DAMAGED;
    }
    TRY(log_header_decode(file->ptr, &header, err));
    if (header.number != segment->number) {
        errbuf_set(err, "it was created as segment %" PRIu64, header.number);
        return LOG_DAMAGED;
    }
    segment->first = header.first;
    segment->salt = header.salt;
    segment->process = header.process;
    segment->ends_process = header.ends_process;
    segment->has_pending = header.has_pending;
    segment->generation = header.generation;
    segment->sealed = header.sealed;
    segment->previous = header.previous;
    return LOG_OK;
}

/* A name that leads to no file, such as a symbolic link or a directory. Another try does not help, unlike with a disk
 * that cannot be read. */
static bool is_no_file(int rc)
{
    return rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP || rc == -EISDIR;
}

/* The header of a segment is synced before its first frame. So a segment with a wrong header and no other contents is a
 * file that had just been made. A name without a file counts as missing: the check for missing frames reports it. */
static int read_header(struct log_reader *r, struct segment *segment, struct errbuf *err)
{
    struct bytes file;
    int rc = log_read_segment(r, segment, LOG_HEADER_BYTES, &file, err);

    if (is_no_file(rc)) {
        log_report(r, STORE_WARNING, "%s; the segment counts as missing", err->text);
        errbuf_set(err, "%s", "");
        segment->unused = true;
        return 0;
    }
    if (rc != 0)
        return rc;
    rc = take_header(segment, &file, err);
    free(file.ptr);
    if (rc == LOG_NEWER)
        errbuf_prefix(err, "%s/%08" PRIu64 ".log", r->log_dir.text, segment->number);
    if (rc != LOG_DAMAGED)
        return rc;
    TRY(log_read_segment(r, segment, UINT64_MAX, &file, err));
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

int log_find_segments(struct log_reader *r, struct errbuf *err)
{
    TRY(list_segments(r, err));
    return read_headers(r, err);
}

/* ---- records that were pending when their processes died (log_pending.h) ---- */

static int by_process(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* The next process has written all of it to the log, before its own records, but died before it could delete the file;
 * or the file is of another directory, over which this one was copied. */
static bool has_ended(const struct log_reader *r, uint64_t process)
{
    for (size_t i = 0; i < r->nsegments; i++) {
        const struct segment *segment = &r->segments[i];
        if (!segment->unused && !segment->lost && segment->process + segment->ends_process > process)
            return true;
    }
    return false;
}

static int check_payload(const struct pending_found *found, struct errbuf *err)
{
    const struct log_visitor nobody = {.ctx = NULL};

    if (found->payload.len <= LOG_PAYLOAD_MAX)
        return log_payload_decode(found->payload.ptr, found->payload.len, found->has_controls, &nobody, err);
    errbuf_set(err, "it has %zu bytes of records", found->payload.len);
    return LOG_DAMAGED;
}

/* Each record has a check of its own: what a power failure leaves is no record. So records without a meaning are
 * damage, or a newer version's, and never passed over without a word. */
static int read_file(struct log_reader *r, uint64_t process, struct pending_found *found, struct errbuf *err)
{
    uint64_t last = r->expected ? r->expected - 1 : 0;
    char name[PENDING_NAME];
    struct path path;

    log_pending_name(process, name);
    log_path_in(r, name, &path);
    int rc = log_pending_read(r->fs, path.text, last, found, err);
    if (rc == LOG_DAMAGED && found->here)
        return found_damage(r, name, process, err);
    if (rc == LOG_DAMAGED) { /* a power failure may leave this, and no promise needs the file then */
        log_report(r, STORE_NOTICE, "%s/%s: %s: ignored", r->log_dir.text, name, err->text);
        errbuf_set(err, "%s", "");
        return 0;
    }
    if (rc == 0 && found->here && found->frame > last) {
        const struct segment end = {.number = r->summary.last_segment ? r->summary.last_segment : r->options.from};
        errbuf_set(err,
                   "it ends with frame %" PRIu64 ", but %s has the records after frame %" PRIu64 ": %" PRIu64
                   " frames are missing",
                   last, name, found->frame - 1, found->frame - 1 - last);
        return log_found_damage(r, &end, err);
    }
    if (rc == 0 && found->fits) {
        rc = check_payload(found, err);
        if (rc != 0)
            log_bytes_deinit(&found->payload);
        if (rc == LOG_DAMAGED)
            return found_damage(r, name, process, err);
    }
    if (rc != 0)
        errbuf_prefix(err, "%s/%s", r->log_dir.text, name);
    else if (!found->fits)
        log_report(r, STORE_NOTICE,
                   "%s/%s belongs to frame %" PRIu64 " of the log, but the log ends with frame %" PRIu64 ": ignored",
                   r->log_dir.text, name, found->frame, last);
    return rc;
}

int log_read_pending(struct log_reader *r,
                     int (*take)(struct log_reader *r, struct pending_found *found, struct errbuf *err),
                     struct errbuf *err)
{
    int rc = 0;

    if (r->npending_files == 0)
        return 0;
    qsort(r->pending_files, r->npending_files, sizeof(*r->pending_files), by_process);
    r->pending = calloc(r->npending_files, sizeof(*r->pending));
    if (!r->pending)
        return -ENOMEM;
    for (size_t i = 0; rc == 0 && i < r->npending_files; i++) {
        struct pending_found *found = &r->pending[r->npending];
        if (has_ended(r, r->pending_files[i]))
            continue;
        rc = read_file(r, r->pending_files[i], found, err);
        if (rc != 0 || found->payload.len == 0)
            continue;
        r->npending++;
        rc = take(r, found, err);
    }
    return rc;
}

/* ---- size ---- */

struct sizing {
    const struct fsops *fs;
    struct path log_dir;
    uint64_t from;
    uint64_t bytes;
};

static int add_size(void *ctx, const char *name)
{
    struct sizing *sizing = ctx;
    uint64_t number = log_segment_number(name);
    struct fs_stat st;
    struct path path;

    if (number != 0 && number >= sizing->from && path_format(&path, NULL, "%s/%s", sizing->log_dir.text, name) == 0 &&
        sizing->fs->stat(sizing->fs->ctx, path.text, &st) == 0)
        sizing->bytes += st.size;
    return 0;
}

int log_bytes_on_disk(const struct fsops *fs, const char *dir, uint64_t from, uint64_t *bytes_out)
{
    struct sizing sizing = {.fs = fs, .from = from};
    int rc = path_format(&sizing.log_dir, NULL, "%s/log", dir);

    if (rc == 0)
        rc = fs->list(fs->ctx, sizing.log_dir.text, add_size, &sizing);
    *bytes_out = sizing.bytes;
    return rc == -ENOENT ? 0 : rc;
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

static int note_for_deletion(void *ctx, const char *name)
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
        status = fs->list(fs->ctx, log_dir.text, note_for_deletion, d);
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
