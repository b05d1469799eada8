/* The log of refused access. Refusals of one kind within a minute of each other are one entry with a count, as in
 * Redis: a client that tries passwords cannot push the others out. */
#include "acl_internal.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "command.h"
#include "lock.h"

#define GROUP_MS   60000
#define GROUP_LOOK 10  /* of the newest entries, one that may be the same is looked for among these */
#define MAX_OBJECT 512 /* bytes of an object or a name that are kept */
#define MAX_CLIENT 2048

struct text {
    char *ptr;
    size_t len;
};

struct acl_entry {
    TAILQ_ENTRY(acl_entry) link;
    enum acl_verdict reason;
    bool in_multi;
    uint64_t id, count;
    int64_t first_ms, at_ms; /* Unix time of the first one, of the last one */
    struct text object, user, client;
};

static void free_entry(struct acl_entry *entry)
{
    free(entry->object.ptr);
    free(entry->user.ptr);
    free(entry->client.ptr);
    free(entry);
}

static void trim(struct acl_log *log, size_t max)
{
    for (; log->n > max; log->n--) {
        struct acl_entry *entry = TAILQ_LAST(&log->entries, acl_entries);
        TAILQ_REMOVE(&log->entries, entry, link);
        free_entry(entry);
    }
}

void acl_log_deinit(struct acl_log *log)
{
    trim(log, 0);
}

void acl_log_reset(struct acl *acl)
{
    lock_take(&acl->lock);
    trim(&acl->log, 0);
    lock_give(&acl->lock);
}

uint64_t acl_log_count(const struct acl *acl, enum acl_verdict reason)
{
    return atomic_load_explicit(&acl->log.counts[reason], memory_order_relaxed);
}

static bool keep(struct text *text, struct slice from, size_t max)
{
    size_t len = from.len < max ? from.len : max;
    char *copy = slice_copy((struct slice){from.ptr, len});
    if (!copy)
        return false;
    free(text->ptr);
    *text = (struct text){copy, len};
    return true;
}

static bool is(const struct text *text, struct slice other)
{
    size_t len = other.len < MAX_OBJECT ? other.len : MAX_OBJECT;
    return text->len == len && (len == 0 || memcmp(text->ptr, other.ptr, len) == 0);
}

static struct acl_entry *find_same(const struct acl_log *log, const struct acl_denied *denied)
{
    struct acl_entry *entry = TAILQ_FIRST(&log->entries);
    for (int i = 0; entry && i < GROUP_LOOK; i++, entry = TAILQ_NEXT(entry, link))
        if (entry->reason == denied->reason && entry->in_multi == denied->in_multi &&
            llabs(denied->now_ms - entry->at_ms) <= GROUP_MS && is(&entry->object, denied->object) &&
            is(&entry->user, denied->user))
            return entry;
    return NULL;
}

static struct acl_entry *make_entry(const struct acl_denied *denied)
{
    struct acl_entry *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return NULL;
    entry->first_ms = denied->now_ms;
    entry->reason = denied->reason;
    entry->in_multi = denied->in_multi;
    if (keep(&entry->object, denied->object, MAX_OBJECT) && keep(&entry->user, denied->user, MAX_OBJECT) &&
        keep(&entry->client, denied->client, MAX_CLIENT))
        return entry;
    free_entry(entry);
    return NULL;
}

void acl_log_add(struct acl *acl, const struct acl_denied *denied)
{
    struct acl_log *log = &acl->log;
    atomic_fetch_add_explicit(&log->counts[denied->reason], 1, memory_order_relaxed);
    lock_take(&acl->lock);
    struct acl_entry *entry = find_same(log, denied);
    if (entry) {
        TAILQ_REMOVE(&log->entries, entry, link);
        log->n--;
        (void)keep(&entry->client, denied->client, MAX_CLIENT); /* without memory it keeps the one before */
    } else {
        entry = denied->max ? make_entry(denied) : NULL;
        if (entry)
            entry->id = log->next_id++;
    }
    if (entry) {
        entry->count++;
        entry->at_ms = denied->now_ms;
        TAILQ_INSERT_HEAD(&log->entries, entry, link);
        log->n++;
    }
    trim(log, denied->max);
    lock_give(&acl->lock);
}

/* ---- a copy of the log ---- */

size_t acl_log_size(struct acl *acl)
{
    lock_take(&acl->lock);
    size_t n = acl->log.n;
    lock_give(&acl->lock);
    return n;
}

static void copy_entry(struct buf *copy, const struct acl_entry *entry)
{
    buf_append(copy, entry, sizeof(*entry));
    buf_append(copy, entry->object.ptr, entry->object.len);
    buf_append(copy, entry->user.ptr, entry->user.len);
    buf_append(copy, entry->client.ptr, entry->client.len);
}

static void reply_taken(struct reply *reply, const char *name, const struct text *text, const char **at)
{
    reply_bulk_str(reply, name);
    reply_bulk(reply, *at, text->len);
    *at += text->len;
}

/* Returns where the next one begins. */
static const char *reply_entry(struct reply *reply, const char *at)
{
    static const char *const reasons[] = {"", "command", "key", "auth", "channel"};
    struct acl_entry entry;
    int64_t now_ms = clock_unix_ms();
    memcpy(&entry, at, sizeof(entry));
    at += sizeof(entry);
    reply_map(reply, 10);
    reply_number_pair(reply, "count", (int64_t)entry.count);
    reply_pair(reply, "reason", reasons[entry.reason]);
    reply_pair(reply, "context", entry.in_multi ? "multi" : "toplevel");
    reply_taken(reply, "object", &entry.object, &at);
    reply_taken(reply, "username", &entry.user, &at);
    reply_bulk_str(reply, "age-seconds");
    reply_double(reply, now_ms > entry.at_ms ? (double)(now_ms - entry.at_ms) / 1000 : 0);
    reply_taken(reply, "client-info", &entry.client, &at);
    reply_number_pair(reply, "entry-id", (int64_t)entry.id);
    reply_number_pair(reply, "timestamp-created", entry.first_ms);
    reply_number_pair(reply, "timestamp-last-updated", entry.at_ms);
    return at;
}

/* Under the lock, for which workers wait, entries are only copied: that is a tenth of the time. */
void acl_log_reply(struct acl *acl, size_t count, struct reply *reply)
{
    struct acl_log *log = &acl->log;
    struct buf copy;
    buf_init(&copy, SIZE_MAX);
    lock_take(&acl->lock);
    size_t n = count < log->n ? count : log->n, left = n;
    for (const struct acl_entry *from = TAILQ_FIRST(&log->entries); left > 0; left--, from = TAILQ_NEXT(from, link))
        copy_entry(&copy, from);
    lock_give(&acl->lock);
    if (buf_failed(&copy)) {
        reply_error(reply, "ERR out of memory");
    } else {
        reply_array(reply, n);
        for (const char *at = buf_head(&copy); n > 0; n--)
            at = reply_entry(reply, at);
    }
    buf_deinit(&copy);
}
