/* The files of the log: their list, headers and bytes. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "log_frame.h"
#include "log_writer.h"
#include "log_reader_internal.h"
#include "errbuf.h"

#define SEGMENT_BYTES_MAX (UINT64_C(4) << 30) /* a larger file is no segment of ours: frames are below 1 GB */

void log_report(const struct log_reader *r, enum store_severity severity, const char *fmt, ...)
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
    uint64_t number = log_file_number(name, LOG_SEGMENT);
    uint64_t draft = log_file_number(name, LOG_DRAFT);
    uint64_t pending = log_file_number(name, LOG_PENDING);

    if (draft >= r->summary.next_segment)
        r->summary.next_segment = draft + 1;
    if (pending >= r->summary.next_segment)
        r->summary.next_segment = pending + 1;
    if (pending && GROW(r->pending.files, r->pending.nfiles, r->pending.size) != 0)
        return -ENOMEM;
    if (pending)
        r->pending.files[r->pending.nfiles++] = pending;
    if (pending || draft)
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
    r->segments[r->nsegments++] = (struct segment){.header.number = number, .limit = UINT64_MAX};
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const struct segment *x = a, *y = b;

    return x->header.number < y->header.number ? -1 : x->header.number > y->header.number;
}

static int by_process(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static int list_segments(struct log_reader *r, struct errbuf *err)
{
    int rc = r->fs->list(r->fs->ctx, r->log_dir.text, note_name, r);

    if (rc != 0 && rc != -ENOENT)
        return errbuf_fail(err, rc, "%s: %s", r->log_dir.text, fs_error_text(rc));
    if (r->nsegments)
        qsort(r->segments, r->nsegments, sizeof(*r->segments), by_number);
    if (r->pending.nfiles)
        qsort(r->pending.files, r->pending.nfiles, sizeof(*r->pending.files), by_process);
    r->pending.found = calloc(r->pending.nfiles + 1, sizeof(*r->pending.found));
    return r->pending.found ? 0 : -ENOMEM;
}

/* ---- files ---- */

static void file_path(const struct log_reader *r, uint64_t number, const char *kind, struct path *path_out)
{
    char name[LOG_FILE_NAME];

    log_file_name(number, kind, name);
    (void)path_format(path_out, NULL, "%s/%s", r->log_dir.text, name); /* log_reader_open() has checked that it fits */
}

int log_read_segment(const struct log_reader *r, const struct segment *segment, uint64_t most, struct bytes *bytes_out,
                     struct errbuf *err)
{
    unsigned char *ptr = NULL;
    uint64_t size = 0;
    struct path path;
    int fd = -1;

    file_path(r, segment->header.number, LOG_SEGMENT, &path);
    int rc = r->fs->open(r->fs->ctx, path.text, FS_READ, &fd);
    STEP(rc, r->fs->size(r->fs->ctx, fd, &size));
    if (rc == 0 && size > SEGMENT_BYTES_MAX)
        rc = -EFBIG;
    if (size > most)
        size = most;
    if (rc == 0 && !(ptr = malloc((size_t)size + LOG_FRAME_HEAD_MAX))) /* a mark may be put behind it */
        rc = -ENOMEM;
    STEP(rc, fs_read_all(r->fs, fd, ptr, (size_t)size, 0));
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

/* The segment gets its name when it is on the disk. */
static int write_segment(const struct log_reader *r, uint64_t number, const struct bytes *bytes, struct errbuf *err)
{
    struct path path, draft;

    file_path(r, number, LOG_DRAFT, &draft);
    file_path(r, number, LOG_SEGMENT, &path);
    int rc = fs_write_file(r->fs, draft.text, bytes->ptr, bytes->len);
    STEP(rc, r->fs->rename(r->fs->ctx, draft.text, path.text));
    if (rc != 0)
        errbuf_set(err, "%s: %s", path.text, fs_error_text(rc));
    return rc;
}

/* A copy: its valid frames, and a mark that they are synced and, unless there are pending records, all of it. */
static int settle_segment(struct log_reader *r, const struct segment *last, struct errbuf *err)
{
    struct log_frame mark = {.sequence = r->expected - r->pending.n, .has_controls = true};
    struct bytes file;
    struct path path;

    mark.synced = mark.sequence - 1;
    for (size_t i = 0; i < r->pending.n; i++)
        mark.has_controls &= r->pending.found[i].process != last->header.process;
    TRY(log_read_segment(r, last, UINT64_MAX, &file, err));
    file_path(r, last->header.number, LOG_SEGMENT, &path);
    int rc = file.len >= last->end ? 0 : errbuf_fail(err, -EIO, "%s: another program has cut it", path.text);
    file.len = last->end;
    if (rc == 0 && !last->gaps)
        file.len += log_frame_head(&mark, last->header.salt, file.ptr + last->end);
    STEP(rc, write_segment(r, last->header.number, &file, err));
    free(file.ptr);
    return rc;
}

/* A segment of its own for the pending records of a process: they are its last frame. */
static int settle_pending(struct log_reader *r, size_t i, uint64_t previous, struct errbuf *err)
{
    const struct pending_found *found = &r->pending.found[i];
    const struct log_frame frame = {
        .sequence = r->expected - r->pending.n + i,
        .synced = r->expected - r->pending.n + i - 1,
        .has_controls = found->has_controls,
        .payload = found->payload.ptr,
        .payload_len = found->payload.len,
    };
    const struct log_header header = {
        .number = r->summary.next_segment - r->pending.n + i,
        .first = frame.sequence,
        .salt = found->salt,
        .process = found->process,
        .generation = found->generation,
        .sealed = frame.sequence,
        .previous = previous,
        .ends_process = true,
    };
    struct bytes file = {malloc(LOG_HEADER_BYTES + LOG_FRAME_HEAD_MAX + frame.payload_len), LOG_HEADER_BYTES};

    if (!file.ptr)
        return -ENOMEM;
    log_header_encode(&header, file.ptr);
    file.len += log_frame_head(&frame, header.salt, file.ptr + file.len);
    memcpy(file.ptr + file.len, frame.payload, frame.payload_len);
    file.len += frame.payload_len;
    int rc = write_segment(r, header.number, &file, err);
    free(file.ptr);
    return rc;
}

int log_settle(struct log_reader *r, const struct segment *last, struct log_pending *pending, struct errbuf *err)
{
    struct path path;
    int rc = last && !last->ended && !last->header.ends_process ? settle_segment(r, last, err) : 0;

    for (size_t i = 0; rc == 0 && i < r->pending.n; i++)
        rc = settle_pending(r, i, i ? r->summary.next_segment - r->pending.n + i - 1 : r->summary.last_segment, err);
    if (rc == 0 && (rc = r->fs->sync_dir(r->fs->ctx, r->log_dir.text)) != 0)
        errbuf_set(err, "%s: %s", r->log_dir.text, fs_error_text(rc));
    if (rc == 0 && pending && (rc = log_pending_settled(pending)) != 0)
        errbuf_set(err, "%s/TAIL: %s", r->options.dir, fs_error_text(rc));
    for (size_t i = 0; rc == 0 && i < r->pending.nfiles; i++) { /* if it cannot be, the next start does it */
        file_path(r, r->pending.files[i], LOG_PENDING, &path);
        (void)r->fs->unlink(r->fs->ctx, path.text);
    }
    return rc;
}

/* ---- damage ---- */

int log_found_damage(struct log_reader *r, uint64_t number, const char *kind, struct errbuf *err)
{
    struct path path;

    file_path(r, number, kind, &path);
    errbuf_prefix(err, "%s is damaged", path.text);
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

/* ---- headers ---- */

static int take_header(struct segment *segment, const struct bytes *file, struct errbuf *err)
{
    struct log_header header;

    if (file->len < LOG_HEADER_BYTES)
        return errbuf_fail(err, LOG_DAMAGED, "it is shorter than its header");
    TRY(log_header_decode(file->ptr, &header, err));
    if (header.number != segment->header.number)
        return errbuf_fail(err, LOG_DAMAGED, "it was created as segment %" PRIu64, header.number);
    segment->header = header;
    return LOG_OK;
}

/* A name that leads to no file, such as a symbolic link or a directory. Another try does not help, unlike with a disk
 * that cannot be read. */
static bool is_no_file(int rc)
{
    return rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP || rc == -EISDIR;
}

/* A segment gets its name when its header is synced. Versions up to 0.3.2 gave the name first, so after a segment of
 * theirs one with a wrong header and no other contents is a file that had just been made. A name without a file counts
 * as missing: the check for missing frames reports it. */
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
    if (rc == LOG_OK)
        r->old = segment->header.old;
    if (rc == LOG_NEWER)
        errbuf_prefix(err, "%s/%08" PRIu64 ".log", r->log_dir.text, segment->header.number);
    if (rc != LOG_DAMAGED)
        return rc;
    TRY(log_read_segment(r, segment, UINT64_MAX, &file, err));
    segment->unused = r->old && log_used_bytes(&file) <= LOG_HEADER_BYTES;
    segment->lost = !segment->unused;
    free(file.ptr);
    return segment->lost ? log_found_damage(r, segment->header.number, LOG_SEGMENT, err) : 0;
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
        if (segment->header.first > limit) {
            errbuf_set(err, "it begins with frame %" PRIu64 ", a later one with frame %" PRIu64, segment->header.first,
                       limit);
            rc = log_found_damage(r, segment->header.number, LOG_SEGMENT, err);
            if (rc != 0)
                return rc;
            segment->lost = true;
            continue;
        }
        segment->limit = limit;
        limit = segment->header.first;
    }
    return 0;
}

int log_find_segments(struct log_reader *r, struct errbuf *err)
{
    TRY(list_segments(r, err));
    return read_headers(r, err);
}

/* ---- records that were pending when their processes died (log_pending.h) ---- */

bool log_has_ended(const struct log_reader *r, uint64_t process)
{
    for (size_t i = 0; i < r->nsegments; i++) {
        const struct segment *segment = &r->segments[i];
        if (!segment->unused && !segment->lost &&
            segment->header.process + (segment->header.ends_process || segment->ended) > process)
            return true;
    }
    return false;
}

static bool is_named(const uint64_t *processes, size_t n, uint64_t process)
{
    for (size_t i = 0; i < n; i++)
        if (processes[i] == process)
            return true;
    return false;
}

int log_find_pending(struct log_reader *r, struct errbuf *err)
{
    int rc = LOG_OK;

    for (size_t i = 0; rc == LOG_OK && i < r->tail.n; i++) {
        uint64_t process = r->tail.processes[i];
        if (process >= r->summary.next_segment)
            r->summary.next_segment = process + 1;
        if (log_has_ended(r, process) || is_named(r->pending.files, r->pending.nfiles, process))
            continue;
        errbuf_set(err, "it is missing: its process did not end by itself, and it may have had the last records");
        r->pending.lost = true;
        rc = log_found_damage(r, process, LOG_PENDING, err);
    }
    return rc;
}

static int check_payload(const struct pending_found *found, struct errbuf *err)
{
    const struct log_visitor nobody = {.ctx = NULL};

    if (found->payload.len == 0)
        return LOG_OK;
    if (found->payload.len <= LOG_PAYLOAD_MAX)
        return log_payload_decode(found->payload.ptr, found->payload.len, found->has_controls, &nobody, err);
    return errbuf_fail(err, LOG_DAMAGED, "it has %zu bytes of records", found->payload.len);
}

/* Each record has a check of its own: what a power failure leaves is no record. So records without a meaning are
 * damage, and never passed over without a word. */
static int read_file(struct log_reader *r, uint64_t process, struct pending_found *found, struct errbuf *err)
{
    uint64_t last = (r->expected ? r->expected - 1 : 0) + r->pending.n;
    struct path path;

    file_path(r, process, LOG_PENDING, &path);
    const struct pending_known known = {is_named(r->tail.processes, r->tail.n, process), last, r->known.places,
                                        r->known.process == process ? r->known.n : 0, r->known.control};
    int rc = log_pending_read(r->fs, path.text, &known, found, err);
    if (rc == 0 && found->process != process) {
        log_bytes_deinit(&found->payload);
        rc = errbuf_fail(err, LOG_DAMAGED, "it was created by process %" PRIu64, found->process);
    }
    if (rc == LOG_DAMAGED && known.here)
        return log_found_damage(r, process, LOG_PENDING, err);
    if (rc == LOG_DAMAGED) { /* a power failure may leave this, and no promise needs the file then */
        log_report(r, STORE_NOTICE, "%s: %s: ignored", path.text, err->text);
        errbuf_set(err, "%s", "");
        return 0;
    }
    if (rc == 0 && known.here && found->frame > last) {
        uint64_t end = r->summary.last_segment ? r->summary.last_segment : r->options.from;
        errbuf_set(err,
                   "it ends with frame %" PRIu64 ", but %s has the records after frame %" PRIu64 ": %" PRIu64
                   " frames are missing",
                   last, path.text, found->frame, found->frame - last);
        return log_found_damage(r, end, LOG_SEGMENT, err);
    }
    if (rc == 0 && found->fits) {
        rc = check_payload(found, err);
        if (rc != 0)
            log_bytes_deinit(&found->payload);
        if (rc == LOG_DAMAGED)
            return log_found_damage(r, process, LOG_PENDING, err);
    }
    if (rc != 0)
        errbuf_prefix(err, "%s", path.text);
    else if (!found->fits)
        log_report(r, found->frame > last ? STORE_WARNING : STORE_NOTICE,
                   "%s belongs to frame %" PRIu64 " of the log, but the log ends with frame %" PRIu64
                   ": ignored; unless this is a copy, frames are lost",
                   path.text, found->frame, last);
    return rc;
}

int log_read_pending(struct log_reader *r, uint64_t process, struct pending_found *found_out, struct errbuf *err)
{
    *found_out = (struct pending_found){.process = process};
    return log_has_ended(r, process) ? 0 : read_file(r, process, found_out, err);
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
    uint64_t number = log_file_number(name, LOG_SEGMENT);
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

    STEP(rc, fs->list(fs->ctx, sizing.log_dir.text, add_size, &sizing));
    *bytes_out = sizing.bytes;
    return rc == -ENOENT ? 0 : rc;
}

/* ---- deleting ---- */

struct deletion {
    uint64_t segment; /* files below it */
    char (*names)[LOG_FILE_NAME];
    size_t count, size;
};

static int note_for_deletion(void *ctx, const char *name)
{
    struct deletion *d = ctx;
    uint64_t segment = log_file_number(name, LOG_SEGMENT) + log_file_number(name, LOG_DRAFT);

    if (segment == 0 || segment >= d->segment)
        return 0;
    if (GROW(d->names, d->count, d->size) != 0)
        return -ENOMEM;
    strcpy(d->names[d->count++], name);
    return 0;
}

/* Not synced: it may come back after a crash. Versions up to 0.3.2 named the newest segment in MANIFEST.log. */
int log_delete_before(const struct fsops *fs, const char *dir, uint64_t segment, struct errbuf *err)
{
    struct deletion d = {.segment = segment};
    struct path path, log_dir;

    if (path_format(&path, NULL, "%s/MANIFEST.log", dir) == 0)
        (void)fs->unlink(fs->ctx, path.text);
    int status = path_format(&log_dir, err, "%s/log", dir);
    STEP(status, fs->list(fs->ctx, log_dir.text, note_for_deletion, &d));
    if (status == -ENOENT)
        status = 0;
    if (status != 0)
        errbuf_set(err, "%s/log: %s", dir, strerror(-status));
    for (size_t i = 0; i < d.count; i++) {
        int rc = path_format(&path, err, "%s/%s", log_dir.text, d.names[i]);
        STEP(rc, fs->unlink(fs->ctx, path.text));
        if (rc == 0 || rc == -ENOENT)
            continue;
        errbuf_set(err, "%s: %s", path.text, fs_error_text(rc));
        status = status ? status : rc;
    }
    free(d.names);
    return status;
}
