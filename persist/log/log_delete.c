/* Deletes the segments that no save needs any more, and files of pending records whose records are all in segments. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "grow.h"
#include "log_frame.h"
#include "log_pending.h"
#include "log_writer.h"

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
