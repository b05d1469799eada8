/* The log of refused access. Refusals of one kind within a minute of each other are one entry with a count, as in
 * Redis: a client that tries passwords cannot push the others out. */
#include "acl_internal.h"
#include "lock.h"

#include <stdlib.h>
#include <string.h>

#define GROUP_MS   60000
#define GROUP_LOOK 10  /* of the newest entries, one that may be the same is looked for among these */
#define MAX_OBJECT 512 /* bytes of an object or a name that are kept */
#define MAX_CLIENT 2048

struct text {
    char *ptr;
    size_t len;
};

struct acl_entry {
    struct acl_entry *newer, *older;
    enum acl_verdict reason;
    bool in_multi;
    uint64_t id;
    uint64_t count;
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

static void unlink_entry(struct acl_log *log, struct acl_entry *entry)
{
    *(entry->newer ? &entry->newer->older : &log->newest) = entry->older;
    *(entry->older ? &entry->older->newer : &log->oldest) = entry->newer;
    log->n--;
}

static void link_entry(struct acl_log *log, struct acl_entry *entry)
{
    entry->newer = NULL;
    entry->older = log->newest;
    *(log->newest ? &log->newest->newer : &log->oldest) = entry;
    log->newest = entry;
    log->n++;
}

static void trim(struct acl_log *log, size_t max)
{
    while (log->n > max) {
        struct acl_entry *entry = log->oldest;
        unlink_entry(log, entry);
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
    char *copy = malloc(len + 1);
    if (!copy)
        return false;
    if (len > 0)
        memcpy(copy, from.ptr, len);
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
    struct acl_entry *entry = log->newest;
    for (int i = 0; entry && i < GROUP_LOOK; i++, entry = entry->older) {
        if (entry->reason == denied->reason && entry->in_multi == denied->in_multi &&
            llabs(denied->now_ms - entry->at_ms) <= GROUP_MS && is(&entry->object, denied->object) &&
            is(&entry->user, denied->user))
            return entry;
    }
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
        unlink_entry(log, entry);
        (void)keep(&entry->client, denied->client, MAX_CLIENT); /* without memory it keeps the one before */
    } else {
        entry = denied->max ? make_entry(denied) : NULL;
        if (entry)
            entry->id = log->next_id++;
    }
    if (entry) {
        entry->count++;
        entry->at_ms = denied->now_ms;
        link_entry(log, entry);
    }
    trim(log, denied->max);
    lock_give(&acl->lock);
}

static void reply_entry(struct reply *reply, const struct acl_entry *entry, int64_t now_ms)
{
    static const char *const reasons[] = {"", "command", "key", "auth", "channel"};
    int64_t age_ms = now_ms > entry->at_ms ? now_ms - entry->at_ms : 0;
    reply_map(reply, 10);
    reply_bulk_str(reply, "count");
    reply_integer(reply, (int64_t)entry->count);
    reply_bulk_str(reply, "reason");
    reply_bulk_str(reply, reasons[entry->reason]);
    reply_bulk_str(reply, "context");
    reply_bulk_str(reply, entry->in_multi ? "multi" : "toplevel");
    reply_bulk_str(reply, "object");
    reply_bulk(reply, entry->object.ptr, entry->object.len);
    reply_bulk_str(reply, "username");
    reply_bulk(reply, entry->user.ptr, entry->user.len);
    reply_bulk_str(reply, "age-seconds");
    reply_double(reply, (double)age_ms / 1000);
    reply_bulk_str(reply, "client-info");
    reply_bulk(reply, entry->client.ptr, entry->client.len);
    reply_bulk_str(reply, "entry-id");
    reply_integer(reply, (int64_t)entry->id);
    reply_bulk_str(reply, "timestamp-created");
    reply_integer(reply, entry->first_ms);
    reply_bulk_str(reply, "timestamp-last-updated");
    reply_integer(reply, entry->at_ms);
}

/* ---- a copy of the log ---- */

static void copy_entry(struct buf *copy, const struct acl_entry *entry)
{
    buf_append(copy, entry, sizeof(*entry));
    buf_append(copy, entry->object.ptr, entry->object.len);
    buf_append(copy, entry->user.ptr, entry->user.len);
    buf_append(copy, entry->client.ptr, entry->client.len);
}

static char *take_text(struct text *text, char *at)
{
    text->ptr = at;
    return at + text->len;
}

/* Returns where the next one begins. */
static char *read_entry(struct acl_entry *entry_out, char *at)
{
    memcpy(entry_out, at, sizeof(*entry_out));
    at = take_text(&entry_out->object, at + sizeof(*entry_out));
    at = take_text(&entry_out->user, at);
    return take_text(&entry_out->client, at);
}

size_t acl_log_size(struct acl *acl)
{
    lock_take(&acl->lock);
    size_t n = acl->log.n;
    lock_give(&acl->lock);
    return n;
}

/* Under the lock, for which workers wait, entries are only copied: that is a tenth of the time. */
void acl_log_reply(struct acl *acl, struct reply *reply, size_t count, int64_t now_ms)
{
    struct acl_log *log = &acl->log;
    struct acl_entry entry;
    struct buf copy;
    buf_init(&copy, SIZE_MAX);
    lock_take(&acl->lock);
    size_t n = count < log->n ? count : log->n, left = n;
    for (const struct acl_entry *from = log->newest; left > 0; left--, from = from->older)
        copy_entry(&copy, from);
    lock_give(&acl->lock);
    if (buf_failed(&copy)) {
        reply_error(reply, "ERR out of memory");
    } else {
        reply_array(reply, n);
        for (char *at = (char *)(uintptr_t)buf_head(&copy); n > 0; n--) {
            at = read_entry(&entry, at);
            reply_entry(reply, &entry, now_ms);
        }
    }
    buf_deinit(&copy);
}
