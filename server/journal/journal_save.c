/* The log's part in saves: a new segment at the begin, the segments that must stay, and the deletion of others. */
#include <inttypes.h>
#include <string.h>

#include "journal_internal.h"
#include "log_frame.h"
#include "lock.h"

/* The segment from which on it keeps them; 0: all. Under the lock. */
static uint64_t first_kept(const struct journal *j, const struct journal_keep *keep)
{
    return keep->segment ? keep->segment : j->extent.oldest;
}

void journal_keep_begin(struct journal *j, struct journal_keep *keep)
{
    lock_take(&j->lock);
    keep->segment = j->extent.current;
    keep->next = j->saves.keeps;
    j->saves.keeps = keep;
    lock_give(&j->lock);
}

void journal_keep_end(struct journal *j, struct journal_keep *keep)
{
    lock_take(&j->lock);
    struct journal_keep **at = &j->saves.keeps;
    while (*at != keep)
        at = &(*at)->next;
    *at = keep->next;
    uint64_t first = first_kept(j, keep);
    if (first < j->saves.kept)
        j->saves.kept = first;
    lock_give(&j->lock);
}

uint64_t journal_save_begins(struct journal *j)
{
    lock_take(&j->lock);
    j->saves.kept = UINT64_MAX; /* the save finds all that was published until now */
    lock_give(&j->lock);
    lock_take(&j->changes.lock);
    uint64_t begun = j->changes.breaks;
    j->changes.first_break = 0;
    lock_give(&j->changes.lock);
    return begun;
}

uint64_t journal_saved_controls(struct journal *j)
{
    lock_take(&j->changes.lock);
    uint64_t number = (j->changes.first_break ? j->changes.first_break : j->changes.queue.end.number) - 1;
    lock_give(&j->changes.lock);
    return number;
}

int journal_rotate(struct journal *j, uint64_t *segment_out, struct errbuf *err)
{
    int status = 0;
    *segment_out = 0;
    lock_take(&j->lock);
    if (journal_records(j) || j->extent.oldest) {
        uint64_t mine = j->rotation.ended + 1;
        j->rotation.wanted = true;
        pthread_cond_signal(&j->thread.wake);
        while (j->rotation.ended < mine)
            lock_wait(&j->changed, &j->lock);
        status = j->rotation.status;
        if (status)
            journal_failure(j, err);
        else
            *segment_out = j->rotation.segment;
    }
    lock_give(&j->lock);
    return status;
}

/* Whether a segment is in its place. Others may not be: only the first one and the last one cannot be missed by a start
 * that finds those between them. */
static int look_for(struct journal *j, uint64_t segment, struct errbuf *err)
{
    char name[LOG_FILE_NAME];
    struct fs_stat st;
    struct path path;
    if (segment == 0)
        return 0;
    log_file_name(segment, LOG_SEGMENT, name);
    (void)path_format(&path, NULL, "%s/log/%s", j->files.dir, name); /* log_writer_create() has checked that it fits */
    int status = j->start.fs->stat(j->start.fs->ctx, path.text, &st);
    if (status)
        errbuf_set(err, "%s: %s; another program has removed it", path.text, strerror(-status));
    return status;
}

int journal_look(struct journal *j, uint64_t first, struct errbuf *err)
{
    lock_take(&j->lock);
    uint64_t last = j->info.segment > j->rotation.segment ? j->info.segment : j->rotation.segment;
    lock_give(&j->lock);
    int status = look_for(j, first, err);
    return status == 0 && last != first ? look_for(j, last, err) : status;
}

uint64_t journal_first_needed(struct journal *j, uint64_t segment)
{
    lock_take(&j->lock);
    if (j->saves.kept < segment)
        segment = j->saves.kept;
    for (const struct journal_keep *keep = j->saves.keeps; keep; keep = keep->next) {
        if (first_kept(j, keep) < segment)
            segment = first_kept(j, keep);
    }
    lock_give(&j->lock);
    return segment;
}

void journal_cut(struct journal *j, uint64_t segment)
{
    struct errbuf err = {""};
    if (segment == 0)
        return;
    lock_take(&j->lock);
    CHECK(segment >= j->extent.oldest && segment <= j->rotation.segment); /* a save has begun with it */
    j->extent.oldest = segment;
    if (segment == j->rotation.segment) {
        j->extent.cut_written = j->rotation.written;
        j->extent.start_bytes = 0;
    }
    j->extent.base_bytes = j->extent.start_bytes + j->info.written - j->extent.cut_written;
    lock_give(&j->lock);
    /* The next save or start deletes files that cannot be deleted now. */
    (void)!log_delete_before(j->start.fs, j->files.dir, segment, &err);
}

void journal_save_committed(struct journal *j, uint64_t begun)
{
    lock_take(&j->changes.lock);
    bool whole = j->changes.breaks == begun; /* otherwise more changes went unrecorded meanwhile */
    if (whole) {
        j->changes.break_missing = false;
        atomic_store(&j->changes.incomplete, false);
        atomic_store(&j->changes.awaits_save, false);
    }
    lock_give(&j->changes.lock);
    if (whole)
        journal_wake(j, false); /* tickets are honoured again */
}
