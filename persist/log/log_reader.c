/* Frames in their order. Segments are read whole, one at a time and thread: they are a few ten megabytes. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "log_reader_internal.h"

/* ---- frames ---- */

static int note_number(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    struct log_reader *r = ctx;

    (void)control, (void)err;
    if (number >= r->summary.next_control)
        r->summary.next_control = number + 1;
    return 0;
}

static int count_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    struct log_reader *r = ctx;

    r->summary.controls++;
    r->known.control = number + 1;
    (void)note_number(ctx, number, control, err);
    return r->options.on_control ? r->options.on_control(r->options.ctx, number, control, err) : 0;
}

static int count_adds(void *ctx, uint64_t id, unsigned layer, const struct bloom_replay_item *items, size_t n)
{
    struct log_reader *r = ctx;

    (void)id, (void)layer, (void)items;
    r->summary.adds += n;
    return 0;
}

static int note_place(void *ctx, const struct log_place *place)
{
    struct log_reader *r = ctx;

    for (size_t i = 0; i < r->known.n; i++) {
        if (r->known.places[i].stream != place->stream)
            continue;
        r->known.places[i] = *place;
        return 0;
    }
    if (GROW(r->known.places, r->known.n, r->known.size) != 0)
        return -ENOMEM;
    r->known.places[r->known.n++] = *place;
    return 0;
}

static int decode(const struct segment *segment, const struct log_frame *frame, const struct log_visitor *visitor,
                  struct errbuf *err)
{
    return (segment->header.old ? log_old_decode : log_payload_decode)(frame->payload, frame->payload_len,
                                                                       frame->has_controls, visitor, err);
}

static void note_synced(struct log_reader *r, const struct log_frame *frame)
{
    if (frame->synced > r->summary.synced)
        r->summary.synced = frame->synced;
}

/* A valid frame, in its turn. */
static int take_frame(struct log_reader *r, const struct segment *segment, const struct log_frame *frame, size_t len,
                      struct errbuf *err)
{
    const struct log_visitor visitor = {
        .on_control = count_control, .on_adds = count_adds, .on_place = note_place, .ctx = r};
    int rc = decode(segment, frame, &visitor, err);

    if (rc != 0) {
        /* After an invalid record the frame may have others. Their numbers are not reused, and after a save without
         * them later starts skip them. */
        const struct log_visitor numbers = {.on_control = note_number, .ctx = r};
        (void)decode(segment, frame, &numbers, NULL);
        if (rc < 0 && err && err->text[0] == '\0')
            errbuf_set(err, "%s", strerror(-rc));
        errbuf_prefix(err, "frame %" PRIu64, frame->sequence);
        return rc;
    }
    r->summary.frames++;
    r->summary.bytes += len;
    note_synced(r, frame);
    r->expected = frame->sequence + 1;
    return LOG_OK;
}

/* The first frame after `at` which states that frame `missing` had been on the disk; len if there is none. */
static size_t find_witness(const struct bytes *file, size_t at, const struct segment *segment, uint64_t missing)
{
    struct log_frame frame;
    uint64_t after = missing;
    size_t n;

    for (at += log_frame_skip(file->ptr + at, file->len - at, segment->header.salt, missing);; at += n) {
        at = log_frame_find(file->ptr, file->len, at, segment->header.salt, after, &frame, &n);
        if (at >= file->len || frame.synced >= missing)
            return at;
        after = frame.sequence;
    }
}

/* After accepted damage at `*at`: the next valid frame, or the end of the file. */
static void find_next(struct log_reader *r, struct segment *segment, const struct bytes *file, size_t *at)
{
    struct log_frame frame;
    size_t n;

    segment->gaps = true;
    *at += log_frame_skip(file->ptr + *at, file->len - *at, segment->header.salt, r->expected);
    *at = log_frame_find(file->ptr, file->len, *at, segment->header.salt, r->expected, &frame, &n);
    if (*at < file->len) {
        r->expected = frame.sequence;
        return;
    }
    uint64_t known = segment->header.sealed > r->options.reached ? segment->header.sealed : r->options.reached;
    r->expected = known < segment->limit ? known + 1 : segment->limit;
}

/* The file that states how far the log goes at least. */
static const char *stated_by(const struct log_reader *r)
{
    return r->tail.frame ? "TAIL" : "the MANIFEST";
}

/* An invalid frame at `*at`. Moves on to where reading continues, the end of the file in most cases. */
static int pass_over(struct log_reader *r, struct segment *segment, const struct bytes *file, size_t *at,
                     struct errbuf *err)
{
    size_t witness = find_witness(file, *at, segment, r->expected);
    size_t used = log_used_bytes(file);
    /* Frames of an earlier segment may be in the next one; if one is missing there, it is the next one's gap. */
    bool saved = r->expected <= r->options.reached && segment->limit == UINT64_MAX && used > *at;

    if (witness < file->len || r->expected <= segment->header.sealed || saved) {
        if (witness < file->len)
            errbuf_set(err,
                       "frame %" PRIu64 " at byte %zu is invalid, but the frame at byte %zu states that it was synced",
                       r->expected, *at, witness);
        else
            errbuf_set(err, "frame %" PRIu64 " at byte %zu is invalid, but %s states that it was synced", r->expected,
                       *at, saved ? stated_by(r) : "its header");
        int rc = log_found_damage(r, segment->header.number, LOG_SEGMENT, err);
        find_next(r, segment, file, at);
        return rc;
    }
    if (used > *at && segment->limit == UINT64_MAX) {
        r->summary.torn_bytes = used - *at;
        log_report(r, STORE_WARNING,
                   "%s/%08" PRIu64 ".log: frame %" PRIu64
                   " at byte %zu is invalid and not known to be synced: the log ends before it, and the rest (%zu "
                   "bytes) is cut",
                   r->log_dir.text, segment->header.number, r->expected, *at, used - *at);
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
        size_t n = log_frame_parse(file->ptr + at, file->len - at, segment->header.salt, r->expected, &frame);

        if (n == 0) {
            rc = pass_over(r, segment, file, &at, err);
            continue;
        }
        segment->ended = frame.payload_len == 0 && frame.has_controls;
        segment->end = at + n;
        if (frame.payload_len == 0) {
            note_synced(r, &frame);
            at += n;
            continue;
        }
        rc = take_frame(r, segment, &frame, n, err);
        if (rc == LOG_DAMAGED) {
            rc = log_found_damage(r, segment->header.number, LOG_SEGMENT, err);
            segment->gaps = true;
            r->expected++;
        }
        segment->last = r->expected - 1;
        at += n;
    }
    return rc;
}

/* The frames that were in the segment when it got its name are there, or in a later segment. */
static int check_seal(struct log_reader *r, const struct segment *segment, struct errbuf *err)
{
    uint64_t end = segment->header.sealed < segment->limit ? segment->header.sealed + 1 : segment->limit;

    if (segment->header.sealed > r->summary.synced)
        r->summary.synced = segment->header.sealed;
    if (r->expected >= end)
        return LOG_OK;
    errbuf_set(err, "frame %" PRIu64 " is invalid, but its header states that it was synced", r->expected);
    r->expected = end;
    return log_found_damage(r, segment->header.number, LOG_SEGMENT, err);
}

/* The segment with the last frames before this one. If its header does not name it, the segment after the readable
 * part, which may never have existed. */
static uint64_t number_before(const struct log_reader *r, const struct segment *segment)
{
    const struct segment *at = segment;

    if (segment->header.previous)
        return segment->header.previous;
    while (at > r->segments && (at[-1].unused || at[-1].lost))
        at--;
    uint64_t read = at > r->segments ? at[-1].header.number : 0;
    return at == segment && segment->header.number == read + 1 ? read : read + 1;
}

/* Frames before this segment are missing. */
static int found_gap(struct log_reader *r, const struct segment *segment, struct errbuf *err)
{
    uint64_t culprit = number_before(r, segment);
    const struct segment *at = segment;
    const char *what = "it is missing";

    while (at > r->segments && at->header.number > culprit)
        at--;
    if (at->header.number == culprit)
        what = at->unused || at->lost ? "it has no valid header" : "it ends too early";
    errbuf_set(err, "%s: frames %" PRIu64 " to %" PRIu64 " were written and are missing", what, r->expected,
               segment->header.first - 1);
    return log_found_damage(r, culprit, LOG_SEGMENT, err);
}

static void note_process(struct log_reader *r, uint64_t process)
{
    if (r->known.process == process)
        return;
    if (r->options.on_process)
        r->options.on_process(r->options.ctx);
    r->known.process = process;
    r->known.n = 0;
    r->known.control = 0;
}

static int read_segment(struct log_reader *r, struct segment *segment, struct errbuf *err)
{
    struct bytes file;
    int rc = 0;

    if (!r->expected && !r->options.from)
        r->expected = 1; /* there has been no save: the log begins with its first frame */
    if (r->expected && segment->header.first > r->expected)
        rc = found_gap(r, segment, err);
    if (rc != 0)
        return rc;
    note_process(r, segment->header.process);
    r->expected = segment->header.first;
    segment->end = LOG_HEADER_BYTES;
    if (segment->header.first - 1 > r->summary.synced)
        r->summary.synced = segment->header.first - 1;
    TRY(log_read_segment(r, segment, UINT64_MAX, &file, err));
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

/* The pending records of a process, as the next frame. */
static int take_pending(struct log_reader *r, uint64_t process, struct errbuf *err)
{
    const struct log_visitor visitor = {.on_control = count_control, .on_adds = count_adds, .ctx = r};
    struct pending_found *found = &r->pending.found[r->pending.n];
    uint64_t adds = r->summary.adds, controls = r->summary.controls;

    TRY(log_read_pending(r, process, found, err));
    if (found->payload.len == 0)
        return 0;
    r->pending.n++;
    note_process(r, found->process);
    TRY(log_payload_decode(found->payload.ptr, found->payload.len, found->has_controls, &visitor, err));
    r->summary.pending++;
    log_report(r, STORE_NOTICE,
               "%s/%08" PRIu64 ".pending: %" PRIu64 " adds and %" PRIu64
               " control records that the previous process had not yet written to the log",
               r->log_dir.text, found->process, r->summary.adds - adds, r->summary.controls - controls);
    return 0;
}

/* A save, and a process that ends, note how far the log is on the disk. */
static int check_reach(struct log_reader *r, struct errbuf *err)
{
    struct segment *last = last_segment(r);
    uint64_t end = r->expected ? r->expected : 1, reached = r->options.reached;

    if (reached > r->summary.synced)
        r->summary.synced = reached;
    if (end > reached)
        return 0;
    r->expected = reached + 1; /* later frames are not the missing ones */
    if (last)
        last->gaps = true;
    if (!last && r->summary.damages + r->summary.accepted)
        return 0; /* the loss of everything has been reported */
    if (last)
        errbuf_set(err,
                   "it ends before frame %" PRIu64 ", but %s was written after frames up to %" PRIu64
                   ": the log is older than %s, or has lost its end",
                   end, stated_by(r), reached, stated_by(r));
    else
        errbuf_set(err, "it is missing, but %s was written after frames up to %" PRIu64, stated_by(r), reached);
    return log_found_damage(r, last ? last->header.number : r->summary.next_segment, LOG_SEGMENT, err);
}

static int first_segment_is_there(struct log_reader *r, struct errbuf *err)
{
    if (r->options.from == 0)
        return 0;
    if (r->nsegments && r->segments[0].header.number == r->options.from && !r->segments[0].unused)
        return 0;
    errbuf_set(err, "the last save needs it, but it is missing");
    return log_found_damage(r, r->options.from, LOG_SEGMENT, err);
}

/* A power failure may take TAIL, as the file is not synced before an end; so it is no damage. */
static void warn_without_tail(const struct log_reader *r)
{
    size_t i = 0;

    while (i < r->nsegments && (r->segments[i].unused || r->segments[i].lost || r->segments[i].header.old))
        i++;
    if (!r->tail.valid && i < r->nsegments)
        log_report(r, STORE_WARNING,
                   "%s/TAIL is missing or has no valid record: nothing tells whether the last records are there",
                   r->options.dir);
}

static int read_all(struct log_reader *r, struct errbuf *err)
{
    TRY(log_tail_read(r->fs, r->options.dir, &r->tail, err));
    if (r->tail.frame > r->options.reached)
        r->options.reached = r->tail.frame;
    else
        r->tail.frame = 0;
    TRY(log_find_segments(r, err));
    warn_without_tail(r);
    TRY(first_segment_is_there(r, err));
    for (size_t i = 0; i < r->nsegments; i++) {
        if (r->segments[i].unused || r->segments[i].lost)
            continue;
        r->summary.segments++;
        if (!r->summary.first_segment)
            r->summary.first_segment = r->segments[i].header.number;
        r->summary.last_segment = r->segments[i].header.number;
        TRY(read_segment(r, &r->segments[i], err));
    }
    TRY(check_reach(r, err));
    TRY(log_find_pending(r, err));
    const struct segment *last = last_segment(r);
    if (last && !last->gaps && r->summary.synced + 1 < r->expected)
        r->summary.tail = r->expected - 1 - r->summary.synced;
    for (size_t i = 0; i < r->pending.nfiles; i++)
        TRY(take_pending(r, r->pending.files[i], err));
    r->expected = (r->expected ? r->expected : 1) + r->pending.n;
    r->summary.next_segment += r->pending.n;
    r->summary.unsettled =
        r->summary.tail || r->summary.torn_bytes || r->pending.nfiles || r->pending.lost || (last && last->gaps);
    return 0;
}

int log_reader_open(const struct log_reader_options *options, struct log_reader **reader_out,
                    struct log_reader_summary *summary_out, struct errbuf *err)
{
    struct log_reader *r = calloc(1, sizeof(*r));
    struct path longest;

    if (!r)
        return -ENOMEM;
    r->options = *options;
    r->fs = options->fs ? options->fs : fsops_posix();
    r->summary.next_segment = options->from ? options->from : 1;
    r->summary.next_control = 1;
    int rc = path_format(&longest, err, "%s/log/%0*d", options->dir, LOG_FILE_NAME, 0);
    STEP(rc, path_format(&r->log_dir, err, "%s/log", options->dir));
    STEP(rc, read_all(r, err));
    if (rc != 0) {
        log_reader_close(r);
        return rc;
    }
    r->summary.next_sequence = r->expected;
    *summary_out = r->summary;
    if (r->pending.n) /* those of log_reader_settle() */
        summary_out->last_segment = r->summary.next_segment - 1;
    *reader_out = r;
    return LOG_OK;
}

void log_reader_close(struct log_reader *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->pending.n; i++)
        log_bytes_deinit(&r->pending.found[i].payload);
    free(r->pending.found);
    free(r->pending.files);
    free(r->tail.processes);
    free(r->known.places);
    free(r->segments);
    free(r);
}

/* ---- adds ---- */

size_t log_reader_parts(const struct log_reader *r)
{
    return r->nsegments + r->pending.n;
}

uint64_t log_reader_process(const struct log_reader *r, size_t part)
{
    return part < r->nsegments ? r->segments[part].header.process : r->pending.found[part - r->nsegments].process;
}

/* That process is the last one that started with fewer generations. */
uint64_t log_reader_counted_before(const struct log_reader *r, uint64_t generation)
{
    uint64_t process = 0;

    for (size_t i = 0; i < r->nsegments; i++) {
        const struct segment *segment = &r->segments[i];
        if (!segment->unused && !segment->lost && segment->header.generation < generation &&
            segment->header.process > process)
            process = segment->header.process;
    }
    for (size_t i = 0; i < r->pending.n; i++)
        if (r->pending.found[i].generation < generation && r->pending.found[i].process > process)
            process = r->pending.found[i].process;
    return process;
}

/* Reads a segment that has been verified again and yields its frames. */
static int read_again(struct log_reader *r, const struct segment *segment,
                      int (*on_frame)(void *ctx, const struct log_frame *frame, struct errbuf *err), void *ctx,
                      struct errbuf *err)
{
    uint64_t expected = segment->header.first;
    size_t at = LOG_HEADER_BYTES;
    struct bytes file;
    int rc = log_read_segment(r, segment, UINT64_MAX, &file, err);

    if (rc != 0)
        return rc;
    while (rc == LOG_OK && at < file.len) {
        struct log_frame frame;
        size_t n = log_frame_parse(file.ptr + at, file.len - at, segment->header.salt, expected, &frame);

        if (n == 0 && segment->gaps) {
            size_t skip = log_frame_skip(file.ptr + at, file.len - at, segment->header.salt, expected);
            at += skip > 1 ? skip : 0; /* another one may begin right here */
            at = log_frame_find(file.ptr, file.len, at, segment->header.salt, expected, &frame, &n);
        }
        if (n == 0 || frame.sequence >= segment->limit)
            break;
        bool mark = frame.payload_len == 0;
        rc = !mark ? on_frame(ctx, &frame, err) : LOG_OK;
        expected = frame.sequence + !mark;
        at += n;
    }
    if (rc == LOG_OK && expected <= segment->last) {
        errbuf_set(err, "%s/%08" PRIu64 ".log: frame %" PRIu64 " disappeared while it was read", r->log_dir.text,
                   segment->header.number, expected);
        rc = LOG_DAMAGED;
    }
    if (r->options.progress)
        r->options.progress(r->options.progress_ctx, file.len);
    free(file.ptr);
    return rc;
}

struct adds_visitor {
    struct log_visitor visitor;
    const struct segment *segment;
    bool accept_loss;
};

static int visit_adds(void *ctx, const struct log_frame *frame, struct errbuf *err)
{
    struct adds_visitor *v = ctx;
    int rc = decode(v->segment, frame, &v->visitor, err);

    return rc == LOG_DAMAGED && v->accept_loss ? LOG_OK : rc; /* it has been reported */
}

int log_reader_adds(struct log_reader *r, size_t part,
                    int (*on_adds)(void *ctx, uint64_t id, unsigned layer, const struct bloom_replay_item *items,
                                   size_t n),
                    void *ctx, struct errbuf *err)
{
    if (part >= r->nsegments) {
        const struct pending_found *pending = &r->pending.found[part - r->nsegments];
        return log_payload_decode(pending->payload.ptr, pending->payload.len, pending->has_controls,
                                  &(struct log_visitor){.on_adds = on_adds, .ctx = ctx}, err);
    }
    const struct segment *segment = &r->segments[part];
    struct adds_visitor visitor = {{.on_adds = on_adds, .ctx = ctx},
                                   segment,
                                   r->options.on_damage != LOG_REFUSE || segment->header.number < r->options.accepted};

    if (segment->unused || segment->lost)
        return LOG_OK;
    return read_again(r, segment, visit_adds, &visitor, err);
}

int log_reader_settle(struct log_reader *r, struct log_pending *pending, struct errbuf *err)
{
    return log_settle(r, last_segment(r), pending, err);
}
