/* What processes had pending when they died (log_pending.h), for log_reader.c. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "log_frame.h"
#include "log_reader_internal.h"

int log_note_pending(struct log_reader *r, uint64_t process)
{
    uint64_t *files = realloc(r->pending_files, (r->npending_files + 1) * sizeof(*files));

    if (!files)
        return -ENOMEM;
    r->pending_files = files;
    files[r->npending_files++] = process;
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* All of it has been written to the log by the process that came next, which died before it could delete the file. */
static bool has_ended(const struct log_reader *r, uint64_t process)
{
    for (size_t i = 0; i < r->nsegments; i++) {
        const struct segment *segment = &r->segments[i];
        if (!segment->unused && !segment->lost && segment->process == process && segment->ends_process)
            return true;
    }
    return false;
}

static bool makes_sense(const struct pending_found *found, struct errbuf *err)
{
    const struct log_visitor nobody = {.ctx = NULL};

    if (found->payload.len > LOG_PAYLOAD_MAX) {
        errbuf_set(err, "it has %zu bytes of records", found->payload.len);
        return false;
    }
    return log_payload_decode(found->payload.ptr, found->payload.len, found->has_controls, &nobody, err) == LOG_OK;
}

static int read_file(struct log_reader *r, uint64_t process, struct pending_found *found, struct errbuf *err)
{
    uint64_t last = r->expected ? r->expected - 1 : 0;
    char name[PENDING_NAME];

    log_pending_name(process, name);
    char *path = log_path_in(r, name);
    int rc = path ? log_pending_read(r->fs, path, last, found, err) : -ENOMEM;
    free(path);
    if (rc == LOG_DAMAGED) /* what a power failure may leave: nothing was promised to be in it then */
        return 0;
    if (rc != 0) {
        errbuf_prefix(err, "%s/%s", r->log_dir, name);
        return rc;
    }
    if (!found->fits)
        log_report(r, STORE_NOTICE,
                   "%s/%s belongs to frame %" PRIu64 " of the log, but the log ends with frame %" PRIu64
                   ": it is not used",
                   r->log_dir, name, found->frame, last);
    else if (!makes_sense(found, err)) {
        log_report(r, STORE_WARNING, "%s/%s: %s: it is not used", r->log_dir, name, err->text);
        errbuf_set(err, "%s", "");
        log_bytes_deinit(&found->payload);
    }
    return 0;
}

int log_read_pending(struct log_reader *r,
                     int (*take)(struct log_reader *r, struct pending_found *found, struct errbuf *err),
                     struct errbuf *err)
{
    int rc = 0;

    if (r->npending_files == 0)
        return 0;
    qsort(r->pending_files, r->npending_files, sizeof(*r->pending_files), by_number);
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
