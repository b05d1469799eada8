/* What saves ask of the log: a new segment to begin with, which segments have to stay, and that others go. */
#include "journal_internal.h"

/* The segment from which on it keeps them; 0: all. Under the lock. */
static uint64_t first_kept(const struct journal *j, const struct journal_keep *keep)
{
    return keep->segment ? keep->segment : j->extent.oldest;
}

void journal_keep_begin(struct journal *j, struct journal_keep *keep)
{
    pthread_mutex_lock(&j->lock);
    keep->segment = j->extent.current;
    keep->next = j->saves.keeps;
    j->saves.keeps = keep;
    pthread_mutex_unlock(&j->lock);
}

void journal_keep_end(struct journal *j, struct journal_keep *keep)
{
    pthread_mutex_lock(&j->lock);
    struct journal_keep **at = &j->saves.keeps;
    while (*at != keep)
        at = &(*at)->next;
    *at = keep->next;
    uint64_t first = first_kept(j, keep);
    if (first < j->saves.kept)
        j->saves.kept = first;
    pthread_mutex_unlock(&j->lock);
}

uint64_t journal_save_begins(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    j->saves.kept = UINT64_MAX; /* what has been published until now the save will find */
    pthread_mutex_unlock(&j->lock);
    pthread_mutex_lock(&j->changes.lock);
    uint64_t begun = j->changes.breaks;
    j->changes.first_break = 0;
    pthread_mutex_unlock(&j->changes.lock);
    return begun;
}

uint64_t journal_saved_controls(struct journal *j)
{
    pthread_mutex_lock(&j->changes.lock);
    uint64_t number = (j->changes.first_break ? j->changes.first_break : j->changes.queue.next) - 1;
    pthread_mutex_unlock(&j->changes.lock);
    return number;
}

int journal_rotate(struct journal *j, uint64_t *segment_out, struct errbuf *err)
{
    int status = 0;
    *segment_out = 0;
    pthread_mutex_lock(&j->lock);
    if (journal_records(j) || j->extent.oldest) {
        uint64_t mine = j->rotation.ended + 1;
        j->rotation.wanted = true;
        pthread_cond_signal(&j->wake);
        while (j->rotation.ended < mine)
            pthread_cond_wait(&j->changed, &j->lock);
        status = j->rotation.status;
        if (status)
            journal_failure(j, err);
        else
            *segment_out = j->rotation.segment;
    }
    pthread_mutex_unlock(&j->lock);
    return status;
}

uint64_t journal_first_needed(struct journal *j, uint64_t segment)
{
    pthread_mutex_lock(&j->lock);
    if (j->saves.kept < segment)
        segment = j->saves.kept;
    for (const struct journal_keep *keep = j->saves.keeps; keep; keep = keep->next) {
        if (first_kept(j, keep) < segment)
            segment = first_kept(j, keep);
    }
    pthread_mutex_unlock(&j->lock);
    return segment;
}

void journal_cut(struct journal *j, uint64_t segment)
{
    struct errbuf err = {""};
    if (segment == 0)
        return;
    /* What cannot be deleted now is by the next save, or the next start. */
    (void)!log_delete_before(j->start.fs, j->dir, segment, &err);
    pthread_mutex_lock(&j->lock);
    j->extent.oldest = segment;
    if (segment == j->rotation.segment) {
        j->extent.cut_written = j->rotation.written;
        j->extent.start_bytes = 0;
    }
    j->extent.base_bytes = j->extent.start_bytes + j->info.written - j->extent.cut_written;
    pthread_mutex_unlock(&j->lock);
}

void journal_save_committed(struct journal *j, uint64_t begun)
{
    pthread_mutex_lock(&j->changes.lock);
    bool whole = j->changes.breaks == begun; /* or something more has gone unrecorded meanwhile */
    if (whole) {
        j->changes.break_missing = false;
        atomic_store(&j->changes.incomplete, false);
        atomic_store(&j->changes.awaits_save, false);
    }
    pthread_mutex_unlock(&j->changes.lock);
    if (whole)
        journal_wake(j, false); /* tickets are honoured again */
}
