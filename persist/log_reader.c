/* Segments are read whole, one at a time and thread: they are a few ten megabytes. */
#include "log_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log_frame.h"

#define SEGMENT_BYTES_MAX (UINT64_C(4) << 30) /* more is no segment of ours: frames are below 1 GB */

struct segment {
    uint64_t number;
    uint64_t first;  /* of its header */
    uint64_t limit;  /* frames from this number on do not hold: UINT64_MAX, or the next segment's first */
    uint64_t salt;
    uint64_t start;  /* of its header, as is */
    uint64_t generation;
    uint64_t sealed; /* of its header, as is */
    uint64_t last;   /* number of the last frame that was taken; 0: none */
    bool unused;     /* its header never came to the disk, nor did anything else */
    bool lost;       /* its header is damaged and the loss accepted */
    bool gaps;       /* damage in it was passed over: frames are searched for */
};

struct log_reader {
    struct log_reader_options options;
    const struct fsops *fs;
    char *log_dir;
    struct segment *segments;
    size_t nsegments;
    size_t size;
    struct log_reader_summary summary;
    uint64_t expected; /* number of the next frame */
    uint64_t start;    /* first segment of the process whose segments are being read */
};

struct bytes {
    unsigned char *ptr;
    size_t len;
};

static void report(struct log_reader *r, enum store_severity severity, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void report(struct log_reader *r, enum store_severity severity, const char *fmt, ...)
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

/* ---- the directory -------------------------------------------------------------------------------------------------- */

static int note_name(void *ctx, const char *name)
{
    struct log_reader *r = ctx;
    uint64_t number = log_segment_number(name), draft = log_draft_number(name);

    if (draft >= r->summary.next_segment)
        r->summary.next_segment = draft + 1;
    if (draft)
        return 0;
    if (number == 0) {
        report(r, STORE_NOTICE, "%s/%s is not a segment of the log and is left alone", r->log_dir, name);
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

/* ---- files ---------------------------------------------------------------------------------------------------------- */

static char *segment_path(const struct log_reader *r, const struct segment *segment)
{
    char name[LOG_SEGMENT_NAME];
    size_t size = strlen(r->log_dir) + sizeof(name) + 2;
    char *path = malloc(size);

    log_segment_name(segment->number, name);
    if (path)
        snprintf(path, size, "%s/%s", r->log_dir, name);
    return path;
}

/* The file's first `most` bytes, or all of it when it has fewer. */
static int read_file(const struct log_reader *r, const struct segment *segment, uint64_t most, struct bytes *bytes_out,
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

static size_t used_bytes(const struct bytes *file)
{
    size_t len = file->len;

    while (len && file->ptr[len - 1] == 0)
        len--;
    return len;
}

/* ---- damage --------------------------------------------------------------------------------------------------------- */

/* `err` says what is wrong, without the file. LOG_OK if the loss is accepted. */
static int found_damage(struct log_reader *r, const struct segment *segment, struct errbuf *err)
{
    char name[LOG_SEGMENT_NAME];

    log_segment_name(segment->number, name);
    errbuf_prefix(err, "%s/%s is damaged", r->log_dir, name);
    if (!r->options.accept_loss)
        return LOG_DAMAGED;
    r->summary.damages++;
    report(r, STORE_WARNING, "%s; the loss is accepted", err->text);
    errbuf_set(err, "%s", "");
    return LOG_OK;
}

/* ---- headers -------------------------------------------------------------------------------------------------------- */

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
    segment->start = header.start;
    segment->generation = header.generation;
    segment->sealed = header.sealed;
    return true;
}

/* Before a segment gets its first frame its header is synced: with a wrong one it is a file that had just been made, if
 * nothing else is in it. */
static int read_header(struct log_reader *r, struct segment *segment, struct errbuf *err)
{
    struct bytes file;
    int rc = read_file(r, segment, LOG_HEADER_BYTES, &file, err);

    if (rc != 0)
        return rc;
    bool valid = header_is_valid(segment, &file, err);
    free(file.ptr);
    if (valid)
        return 0;
    rc = read_file(r, segment, UINT64_MAX, &file, err);
    if (rc != 0)
        return rc;
    segment->unused = used_bytes(&file) <= LOG_HEADER_BYTES;
    segment->lost = !segment->unused;
    free(file.ptr);
    return segment->lost ? found_damage(r, segment, err) : 0;
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
            rc = found_damage(r, segment, err);
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

/* ---- frames --------------------------------------------------------------------------------------------------------- */


static int count_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    struct log_reader *r = ctx;

    r->summary.controls++;
    if (number >= r->summary.next_control)
        r->summary.next_control = number + 1;
    return r->options.on_control ? r->options.on_control(r->options.ctx, number, control, err) : 0;
}

static int count_adds(void *ctx, uint64_t id, unsigned layer, const struct bloom_replay_item *items, size_t n)
{
    struct log_reader *r = ctx;

    (void)id, (void)layer, (void)items;
    r->summary.adds += n;
    return 0;
}

/* A valid frame, in its turn. */
static int take_frame(struct log_reader *r, const struct log_frame *frame, size_t len, struct errbuf *err)
{
    const struct log_visitor visitor = {.on_control = count_control, .on_adds = count_adds, .ctx = r};
    int rc = log_payload_decode(frame->payload, frame->payload_len, frame->has_controls, &visitor, err);

    if (rc != 0) {
        errbuf_prefix(err, "frame %" PRIu64, frame->sequence);
        return rc;
    }
    r->summary.frames++;
    r->summary.bytes += len;
    if (frame->synced > r->summary.synced)
        r->summary.synced = frame->synced;
    r->expected = frame->sequence + 1;
    return LOG_OK;
}

/* The first frame behind `at` that says that frame `missing` had been on the disk; len if there is none. */
static size_t find_witness(const struct bytes *file, size_t at, const struct segment *segment, uint64_t missing)
{
    struct log_frame frame;
    uint64_t after = missing;
    size_t n;

    for (at++;; at += n) {
        at = log_frame_find(file->ptr, file->len, at, segment->salt, after, &frame, &n);
        if (at >= file->len || frame.synced >= missing)
            return at;
        after = frame.sequence;
    }
}

/* An invalid frame at `*at`. Moves on to where reading goes on, the end of the file in most cases. */
static int pass_over(struct log_reader *r, struct segment *segment, const struct bytes *file, size_t *at,
                     struct errbuf *err)
{
    size_t witness = find_witness(file, *at, segment, r->expected);
    size_t used = used_bytes(file);

    if (witness < file->len) {
        struct log_frame frame;
        size_t n;

        errbuf_set(err, "frame %" PRIu64 " at byte %zu is not valid, and one at byte %zu says that it had been written",
                   r->expected, *at, witness);
        int rc = found_damage(r, segment, err);
        segment->gaps = true;
        *at = log_frame_find(file->ptr, file->len, *at + 1, segment->salt, r->expected, &frame, &n);
        r->expected = frame.sequence;
        return rc;
    }
    if (used > *at && segment->limit == UINT64_MAX) {
        r->summary.torn_bytes += used - *at;
        report(r, STORE_WARNING,
               "%s/%08" PRIu64 ".log: what follows byte %zu (%zu bytes) had not been synced when the log ended, and is cut",
               r->log_dir, segment->number, *at, used - *at);
    }
    *at = file->len;
    return LOG_OK;
}

static int read_frames(struct log_reader *r, struct segment *segment, const struct bytes *file, struct errbuf *err)
{
    size_t at = LOG_HEADER_BYTES;
    int rc = LOG_OK;

    while (rc == LOG_OK && at < file->len && r->expected < segment->limit) {
        struct log_frame frame;
        size_t n = log_frame_parse(file->ptr + at, file->len - at, segment->salt, r->expected, &frame);

        if (n == 0) {
            rc = pass_over(r, segment, file, &at, err);
            continue;
        }
        rc = take_frame(r, &frame, n, err);
        if (rc == LOG_DAMAGED) {
            rc = found_damage(r, segment, err);
            r->expected++;
        }
        segment->last = r->expected - 1;
        at += n;
    }
    return rc;
}

/* Frames that were in the segment when it got its name are there, or a later one has them. */
static int check_seal(struct log_reader *r, const struct segment *segment, struct errbuf *err)
{
    uint64_t end = segment->sealed < segment->limit ? segment->sealed + 1 : segment->limit;

    if (segment->sealed > r->summary.synced)
        r->summary.synced = segment->sealed;
    if (r->expected >= end)
        return LOG_OK;
    errbuf_set(err, "frame %" PRIu64 " is not valid, and its header says that it had been written", r->expected);
    r->expected = end;
    return found_damage(r, segment, err);
}

static int read_segment(struct log_reader *r, struct segment *segment, struct errbuf *err)
{
    struct bytes file;
    int rc;

    if (!r->expected && !r->options.from)
        r->expected = 1; /* there has been no save: the log begins with its first frame */
    if (r->expected && segment->first > r->expected) {
        errbuf_set(err, "frames %" PRIu64 " to %" PRIu64 ", which are before it, had been written and are missing",
                   r->expected, segment->first - 1);
        rc = found_damage(r, segment, err);
        if (rc != 0)
            return rc;
    }
    if (r->start != segment->start && r->options.on_process)
        r->options.on_process(r->options.ctx);
    r->start = segment->start;
    r->expected = segment->first;
    if (segment->first - 1 > r->summary.synced)
        r->summary.synced = segment->first - 1;
    rc = read_file(r, segment, UINT64_MAX, &file, err);
    if (rc != 0)
        return rc;
    rc = read_frames(r, segment, &file, err);
    if (rc == LOG_OK)
        rc = check_seal(r, segment, err);
    if (r->options.progress)
        r->options.progress(r->options.progress_ctx, file.len);
    free(file.ptr);
    return rc;
}

/* Where the last frames are. */
static struct segment *last_segment(struct log_reader *r)
{
    size_t last = r->nsegments;

    while (last && (r->segments[last - 1].unused || r->segments[last - 1].lost))
        last--;
    return last ? &r->segments[last - 1] : NULL;
}

/* The next segment's header will say that all this is on the disk. */
static int sync_segment(struct log_reader *r, const struct segment *segment, struct errbuf *err)
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

/* Behind damage that was accepted frames may be missing, so that they cannot be carried over: a save is to follow anyway. */
static int note_tail(struct log_reader *r, struct errbuf *err)
{
    const struct segment *last = last_segment(r);

    if (!last || r->summary.synced + 1 >= r->expected)
        return 0;
    if (last->gaps)
        return sync_segment(r, last, err);
    r->summary.tail = r->expected - 1 - r->summary.synced;
    r->summary.tail_start = last->start;
    r->summary.tail_generation = last->generation;
    return 0;
}

static int first_segment_is_there(struct log_reader *r, struct errbuf *err)
{
    struct segment missing = {.number = r->options.from};

    if (r->options.from == 0)
        return 0;
    if (r->nsegments && r->segments[0].number == r->options.from && !r->segments[0].unused)
        return 0;
    errbuf_set(err, "it goes with the last save, and is not there");
    return found_damage(r, &missing, err);
}

static int read_all(struct log_reader *r, struct errbuf *err)
{
    int rc = list_segments(r, err);

    if (rc == 0)
        rc = read_headers(r, err);
    if (rc == 0)
        rc = first_segment_is_there(r, err);
    for (size_t i = 0; rc == 0 && i < r->nsegments; i++) {
        if (r->segments[i].unused || r->segments[i].lost)
            continue;
        r->summary.segments++;
        if (!r->summary.first_segment)
            r->summary.first_segment = r->segments[i].number;
        rc = read_segment(r, &r->segments[i], err);
    }
    return rc == 0 ? note_tail(r, err) : rc;
}

int log_reader_open(const struct log_reader_options *options, struct log_reader **reader_out,
                    struct log_reader_summary *summary_out, struct errbuf *err)
{
    struct log_reader *r = calloc(1, sizeof(*r));
    size_t size = strlen(options->dir) + sizeof("/log");
    int rc = -ENOMEM;

    if (!r)
        return rc;
    r->options = *options;
    r->fs = options->fs ? options->fs : fsops_posix();
    r->summary.next_segment = options->from ? options->from : 1;
    r->summary.next_control = 1;
    r->log_dir = malloc(size);
    if (r->log_dir) {
        snprintf(r->log_dir, size, "%s/log", options->dir);
        rc = read_all(r, err);
    }
    if (rc != 0) {
        log_reader_close(r);
        return rc;
    }
    r->summary.next_sequence = r->expected ? r->expected : 1;
    *summary_out = r->summary;
    *reader_out = r;
    return LOG_OK;
}

void log_reader_close(struct log_reader *r)
{
    if (!r)
        return;
    free(r->segments);
    free(r->log_dir);
    free(r);
}

/* ---- adds ----------------------------------------------------------------------------------------------------------- */

size_t log_reader_segments(const struct log_reader *r)
{
    return r->nsegments;
}

uint64_t log_reader_number(const struct log_reader *r, size_t index)
{
    return r->segments[index].number;
}

/* That process is the last one that started with fewer generations. */
uint64_t log_reader_counted_before(const struct log_reader *r, uint64_t generation)
{
    uint64_t start = 0;

    for (size_t i = 0; i < r->nsegments; i++) {
        const struct segment *segment = &r->segments[i];
        if (!segment->unused && !segment->lost && segment->generation < generation && segment->start > start)
            start = segment->start;
    }
    return start;
}

/* Reads a segment that has been verified once more and yields its frames from number `from` on. */
static int read_again(struct log_reader *r, const struct segment *segment, uint64_t from,
                      int (*on_frame)(void *ctx, const struct log_frame *frame, struct errbuf *err), void *ctx, struct errbuf *err)
{
    uint64_t expected = segment->first;
    size_t at = LOG_HEADER_BYTES;
    struct bytes file;
    int rc = read_file(r, segment, UINT64_MAX, &file, err);

    if (rc != 0)
        return rc;
    while (rc == LOG_OK && at < file.len) {
        struct log_frame frame;
        size_t n = log_frame_parse(file.ptr + at, file.len - at, segment->salt, expected, &frame);

        if (n == 0 && segment->gaps)
            at = log_frame_find(file.ptr, file.len, at, segment->salt, expected, &frame, &n);
        if (n == 0 || frame.sequence >= segment->limit)
            break;
        rc = frame.sequence >= from ? on_frame(ctx, &frame, err) : LOG_OK;
        expected = frame.sequence + 1;
        at += n;
    }
    if (rc == LOG_OK && expected <= segment->last) {
        errbuf_set(err, "%s/%08" PRIu64 ".log: frame %" PRIu64 " was there a moment ago, and is not any more", r->log_dir,
                   segment->number, expected);
        rc = LOG_DAMAGED;
    }
    if (r->options.progress)
        r->options.progress(r->options.progress_ctx, file.len);
    free(file.ptr);
    return rc;
}

struct adds_visitor {
    struct log_visitor visitor;
    bool accept_loss;
};

static int visit_adds(void *ctx, const struct log_frame *frame, struct errbuf *err)
{
    struct adds_visitor *v = ctx;
    int rc = log_payload_decode(frame->payload, frame->payload_len, frame->has_controls, &v->visitor, err);

    return rc == LOG_DAMAGED && v->accept_loss ? LOG_OK : rc; /* it has been reported */
}

int log_reader_adds(struct log_reader *r, size_t index,
                    int (*on_adds)(void *ctx, uint64_t id, unsigned layer, const struct bloom_replay_item *items, size_t n),
                    void *ctx, struct errbuf *err)
{
    const struct segment *segment = &r->segments[index];
    struct adds_visitor visitor = {{.on_adds = on_adds, .ctx = ctx}, r->options.accept_loss};

    if (segment->unused || segment->lost)
        return LOG_OK;
    return read_again(r, segment, 0, visit_adds, &visitor, err);
}

struct tail_visitor {
    int (*on_frame)(void *ctx, const unsigned char *payload, size_t len, bool has_controls);
    void *ctx;
};

static int visit_tail(void *ctx, const struct log_frame *frame, struct errbuf *err)
{
    const struct tail_visitor *v = ctx;
    int rc = v->on_frame(v->ctx, frame->payload, frame->payload_len, frame->has_controls);

    if (rc < 0)
        errbuf_set(err, "%s", strerror(-rc));
    return rc;
}

int log_reader_tail(struct log_reader *r, int (*on_frame)(void *ctx, const unsigned char *payload, size_t len, bool has_controls),
                    void *ctx, struct errbuf *err)
{
    struct tail_visitor visitor = {on_frame, ctx};

    if (r->summary.tail == 0)
        return LOG_OK;
    return read_again(r, last_segment(r), r->summary.synced + 1, visit_tail, &visitor, err);
}

/* ---- size ----------------------------------------------------------------------------------------------------------- */

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
