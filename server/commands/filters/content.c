#include "content.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bf_host.h"
#include "bf_out.h"
#include "bloom_keyring.h"
#include "clock.h"
#include "journal.h"
#include "persistence.h"
#include "residency.h"
#include "rcu.h"
#include "store.h"

/* ---- preparing ---- */

int registry_status(int status)
{
    return status == BLOOM_LIMIT ? REGISTRY_LIMIT : status > 0 ? REGISTRY_REFUSED : status;
}

void reply_not_made(struct reply *reply, int status, const struct errbuf *err)
{
    struct bf_out out = bf_out_of(reply);
    if (status == REGISTRY_EXISTS)
        reply_error(reply, BF_EXISTS);
    else if (status == REGISTRY_CHANGED)
        reply_error(reply, "ERR the filter was deleted or replaced meanwhile; nothing was changed");
    else if (status < 0 && status != -ENOMEM)
        reply_errorf(reply, "MISCONF %s", err->text); /* the disk */
    else
        bf_reply_not_made(&out, status == REGISTRY_LIMIT ? BLOOM_LIMIT : status > 0 ? BLOOM_REFUSED : status, err);
}

void content_wait_for_memory(struct command_job *job)
{
    rcu_reader_offline();
    reclaimer_wait(job->server->reclaimer);
    rcu_reader_online();
}

bool content_prepare(struct command_job *job, struct slice name, const struct bloom_params *params,
                     const struct bloom_shape *shapes, unsigned nlayers, struct entry **entry_out)
{
    struct errbuf err = {""};
    struct bloom_class *class;
    struct entry *entry;
    int status = registry_status(bloom_class_get(job->server->pool, params, &shapes[0], &class, &err));
    if (status == REGISTRY_OK) {
        status = registry_prepare(job->server->registry, name, class, false, &entry, &err);
        bloom_class_release(class);
    }
    if (status != REGISTRY_OK) {
        reply_not_made(&job->reply, status, &err);
        return false;
    }
    for (unsigned i = 1; i < nlayers; i++) {
        status = bloom_filter_append_layer(entry_filter(entry), &shapes[i], &err);
        if (status == 0)
            continue;
        reply_not_made(&job->reply, registry_status(status), &err);
        registry_abandon(job->server->registry, entry);
        return false;
    }
    *entry_out = entry;
    return true;
}

bool content_prepare_like(struct command_job *job, struct slice name, const struct bloom_filter *like, unsigned nlayers,
                          struct entry **entry_out)
{
    struct bloom_shape shapes[BLOOM_MAX_LAYERS];
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(like, i, &view);
        shapes[i] = view.shape;
    }
    return content_prepare(job, name, bloom_filter_params(like), shapes, nlayers, entry_out);
}

/* ---- publishing ---- */

/* While adds to the replaced filter are passed on to this one, they are recorded for it, too. Some of these records may
 * be in a segment of the log that a save is about to delete. When this returns, their adds have set their bits, so the
 * following read has them. The segments of later records are kept. Offline. */
static void begin_absorbing(struct journal *journal, struct journal_keep *keep)
{
    journal_keep_begin(journal, keep);
    rcu_wait_for_readers();
}

/* The record of the contents follows the records of the adds that it counts, or is in one frame with them. So after a
 * crash no item with a lost record is counted. After the wait every add with a place is recorded; and the log thread,
 * which drains the rings when it begins a round, begins none while the record is queued. Offline. */
static int publish_after_counted_adds(struct server *server, struct journal *journal, struct entry *entry,
                                      const struct registry_publication *how)
{
    rcu_wait_for_readers();
    journal_hold(journal, NULL);
    int status = registry_publish(server->registry, entry, how);
    journal_release(journal);
    return status;
}

/* Publishes small contents, which only the log has until the next save. False: these are not small. */
static bool publish_in_log(struct server *server, struct journal *journal, struct entry *entry,
                           const struct content_publication *publication, int *status_out)
{
    struct registry_publication how = publication->how;
    struct log_bytes bytes = {0};
    struct journal_keep keep;
    if (publication->absorbs)
        begin_absorbing(journal, &keep);
    int status = log_contents_encode(&bytes, entry_filter(entry), CONTENT_IN_LOG_BYTES);
    bool small = status != LOG_CONTENTS_LARGE;
    struct persistence_contents contents = {.in_files = false, .ptr = bytes.ptr, .len = bytes.len};
    how.payload = &contents;
    STEP(status, publication->absorbs ? publish_after_counted_adds(server, journal, entry, &how)
                                      : registry_publish(server->registry, entry, &how));
    if (publication->absorbs)
        journal_keep_end(journal, &keep);
    log_bytes_deinit(&bytes);
    if (small)
        *status_out = status;
    return small;
}

/* Writes larger contents to the disk before the log has their record. Adds that they count and that were passed on are
 * in the log before that record. */
static int write_files(struct server *server, struct journal *journal, struct entry *entry,
                       const struct content_publication *publication, struct store_record *record, struct errbuf *err)
{
    struct slice name = entry_name(entry);
    struct store_item item = {
        .id = entry->id,
        .name = name.ptr,
        .name_len = name.len,
        .filter = entry_filter(entry),
        .expires_ms = publication->how.expires_ms,
    };
    entry_mark_clean(entry); /* before its bits are read: later adds mark it again */
    int status = store_write(server->persistence->store, &item, record, err);
    if (status == 0 && publication->absorbs) {
        rcu_wait_for_readers();
        status = journal_sync(journal, err);
        if (status) {
            store_discard(server->persistence->store, entry->id);
            free(record->text);
        }
    }
    return status;
}

static int publish_with_files(struct server *server, struct journal *journal, struct entry *entry,
                              const struct content_publication *publication, struct errbuf *err)
{
    struct registry_publication how = publication->how;
    struct store_record record = {NULL, 0};
    struct journal_keep keep;
    if (publication->absorbs)
        begin_absorbing(journal, &keep);
    else
        journal_keep_begin(journal, &keep);
    int status = write_files(server, journal, entry, publication, &record, err);
    if (status == 0) {
        struct persistence_contents contents = {.in_files = true, .ptr = record.text, .len = record.len};
        uint64_t id = entry->id; /* once it is published a client may delete it */
        how.payload = &contents;
        status = registry_publish(server->registry, entry, &how);
        (status == REGISTRY_OK ? store_published : store_discard)(server->persistence->store, id);
        free(record.text);
    }
    journal_keep_end(journal, &keep);
    return status;
}

/* Waits for other threads, and for the disk; the entry is not published yet and belongs to this thread. */
static int publish_durably(struct server *server, struct journal *journal, struct entry *entry,
                           const struct content_publication *publication, struct errbuf *err)
{
    bool online = rcu_reader_is_online();
    int status;
    rcu_reader_offline();
    if (!journal_has_room(journal) || !publish_in_log(server, journal, entry, publication, &status))
        status = publish_with_files(server, journal, entry, publication, err);
    if (online)
        rcu_reader_online();
    return status;
}

int content_publish(struct server *server, struct entry *entry, const struct content_publication *publication,
                    struct errbuf *err)
{
    struct journal *journal = server_journal(server);
    if (journal && journal_records(journal) && !publication->empty)
        return publish_durably(server, journal, entry, publication, err);
    struct registry_publication how = publication->how;
    how.empty = publication->empty;
    return registry_publish(server->registry, entry, &how);
}

void content_note_key(struct server *server, uint64_t missing)
{
    if (missing)
        log_limited(&server->log, &server->log.limits.key, clock_ms(), LOG_LEVEL_WARNING,
                    "loaded a KEYED filter, but its key %016" PRIx64
                    " is missing: it returns errors until the key file has it",
                    missing);
}

void content_finish(struct command_job *job, struct entry *entry, const struct content_publication *publication,
                    const char *exists)
{
    struct errbuf err = {""};
    const struct bloom_filter *filter = entry_shape(entry);
    uint64_t key = filter ? bloom_filter_missing_key(filter) : 0; /* once published, a client may delete it */
    int status = content_publish(job->server, entry, publication, &err);
    if (status == REGISTRY_OK) {
        content_note_key(job->server, key);
        reply_status(&job->reply, "OK");
        return;
    }
    registry_abandon(job->server->registry, entry);
    if (status == REGISTRY_EXISTS)
        reply_error(&job->reply, exists);
    else
        reply_not_made(&job->reply, status, &err);
}

/* ---- finding ---- */

static struct entry *unless_missing(struct command_job *job, struct entry *entry, const struct bloom_filter *filter,
                                    const char *why, bool *replied_out)
{
    *replied_out = entry && !filter;
    if (!*replied_out)
        return entry;
    const char *reason = entry_quarantine_reason(entry);
    if (reason)
        reply_errorf(&job->reply, "ERR the filter could not be loaded and is quarantined: %s", reason);
    else
        reply_error(&job->reply, why);
    entry_unpin(entry);
    return NULL;
}

struct entry *content_pin(struct command_job *job, struct slice name, bool *replied_out)
{
    struct errbuf why = {RESIDENCY_TRYAGAIN};
    struct entry *entry = residency_pin(job->server, name, &why);
    return unless_missing(job, entry, entry ? entry_filter(entry) : NULL, why.text, replied_out);
}

static struct entry *pin_existing(struct command_job *job, struct slice name)
{
    bool replied;
    struct entry *entry = content_pin(job, name, &replied);
    if (!entry && !replied)
        reply_error(&job->reply, BF_NOT_FOUND);
    return entry;
}

struct entry *content_pin_bloom(struct command_job *job, struct slice name)
{
    struct entry *entry = pin_existing(job, name);
    if (!entry || !entry_is_cuckoo(entry))
        return entry;
    entry_unpin(entry);
    reply_error(&job->reply, BF_WRONG_TYPE);
    return NULL;
}

struct entry *content_pin_shape(struct command_job *job, struct slice name, bool *replied_out)
{
    struct entry *entry = registry_pin(job->server->registry, name);
    return unless_missing(job, entry, entry ? entry_shape(entry) : NULL, "", replied_out);
}

/* ---- large work ---- */

bool content_large_begin(struct command_job *job, uint64_t bytes)
{
    if (bytes <= CONTENT_LARGE_BYTES ||
        atomic_fetch_add_explicit(&job->server->clients.large_jobs, 1, memory_order_relaxed) < CONTENT_LARGE_JOBS)
        return true;
    content_large_end(job, bytes);
    return reply_errorf(&job->reply, "TRYAGAIN %d large filters are being merged or copied already",
                        CONTENT_LARGE_JOBS);
}

void content_large_end(struct command_job *job, uint64_t bytes)
{
    if (bytes > CONTENT_LARGE_BYTES)
        atomic_fetch_sub_explicit(&job->server->clients.large_jobs, 1, memory_order_relaxed);
}
