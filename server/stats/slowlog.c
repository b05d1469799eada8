/* One allocation per entry: the words lie packed after it. */
#include "slowlog.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define NOTE_SIZE 48 /* "... (18446744073709551615 more arguments)" */

struct slowlog_entry {
    TAILQ_ENTRY(slowlog_entry) link;
    uint64_t id;
    int64_t unix_sec, usec;
    char addr[64];
    size_t nargs;
    uint32_t lens[SLOWLOG_MAX_ARGS];
    size_t name_len;
    char text[]; /* the words, then the client's name */
};

struct slowlog {
    struct lock *lock;
    TAILQ_HEAD(entries, slowlog_entry) entries; /* the newest first */
    size_t len;
    uint64_t next_id;
};

int slowlog_create(struct slowlog **slowlog_out, struct lock *lock)
{
    struct slowlog *slowlog = calloc(1, sizeof(*slowlog));

    if (!slowlog)
        return -ENOMEM;
    slowlog->lock = lock;
    TAILQ_INIT(&slowlog->entries);
    *slowlog_out = slowlog;
    return 0;
}

void slowlog_destroy(struct slowlog *slowlog)
{
    if (!slowlog)
        return;
    slowlog_reset(slowlog);
    free(slowlog);
}

/* ---- entries ---- */

/* Writes a word in the form that the log keeps, at most SLOWLOG_MAX_BYTES + NOTE_SIZE bytes; returns its length. */
static size_t write_word(struct slice word, char *out)
{
    size_t len = word.len < SLOWLOG_MAX_BYTES ? word.len : SLOWLOG_MAX_BYTES;

    if (len > 0)
        memcpy(out, word.ptr, len);
    if (word.len > SLOWLOG_MAX_BYTES)
        len += (size_t)snprintf(out + len, NOTE_SIZE, "... (%zu more bytes)", word.len - SLOWLOG_MAX_BYTES);
    return len;
}

struct slowlog_entry *slowlog_entry_create(const struct slice *words, size_t argc, const struct session *session)
{
    char text[SLOWLOG_MAX_ARGS * (SLOWLOG_MAX_BYTES + NOTE_SIZE)];
    uint32_t lens[SLOWLOG_MAX_ARGS];
    size_t nargs = argc < SLOWLOG_MAX_ARGS ? argc : SLOWLOG_MAX_ARGS, used = 0;
    size_t name_len = session->texts.of[SESSION_NAME] ? strlen(session->texts.of[SESSION_NAME]) : 0;

    for (size_t i = 0; i < nargs; i++) {
        if (argc > SLOWLOG_MAX_ARGS && i == SLOWLOG_MAX_ARGS - 1)
            lens[i] = (uint32_t)snprintf(text + used, NOTE_SIZE, "... (%zu more arguments)", argc - i);
        else
            lens[i] = (uint32_t)write_word(words[i], text + used);
        used += lens[i];
    }
    struct slowlog_entry *entry = malloc(sizeof(*entry) + used + name_len);
    if (!entry)
        return NULL;
    *entry = (struct slowlog_entry){.nargs = nargs, .name_len = name_len};
    memcpy(entry->lens, lens, nargs * sizeof(lens[0]));
    memcpy(entry->addr, session->origin.addr, sizeof(entry->addr));
    memcpy(entry->text, text, used);
    if (name_len > 0)
        memcpy(entry->text + used, session->texts.of[SESSION_NAME], name_len);
    return entry;
}

/* ---- the list ---- */

void slowlog_add(struct slowlog *slowlog, struct slowlog_entry *entry, int64_t unix_sec, int64_t usec, size_t max_len)
{
    lock_take(slowlog->lock);
    entry->id = slowlog->next_id++;
    entry->unix_sec = unix_sec;
    entry->usec = usec;
    TAILQ_INSERT_HEAD(&slowlog->entries, entry, link);
    slowlog->len++;
    for (; slowlog->len > max_len; slowlog->len--) {
        struct slowlog_entry *oldest = TAILQ_LAST(&slowlog->entries, entries);
        TAILQ_REMOVE(&slowlog->entries, oldest, link);
        free(oldest);
    }
    lock_give(slowlog->lock);
}

size_t slowlog_len(struct slowlog *slowlog)
{
    lock_take(slowlog->lock);
    size_t len = slowlog->len;
    lock_give(slowlog->lock);
    return len;
}

void slowlog_reset(struct slowlog *slowlog)
{
    struct entries entries = TAILQ_HEAD_INITIALIZER(entries);
    lock_take(slowlog->lock);
    TAILQ_CONCAT(&entries, &slowlog->entries, link);
    slowlog->len = 0;
    lock_give(slowlog->lock);
    for (struct slowlog_entry *entry; (entry = TAILQ_FIRST(&entries));) { /* without the lock, which workers need */
        TAILQ_REMOVE(&entries, entry, link);
        free(entry);
    }
}

static void reply_entry(const struct slowlog_entry *entry, struct reply *reply)
{
    const char *text = entry->text;

    reply_array(reply, 6);
    reply_integer(reply, (int64_t)entry->id);
    reply_integer(reply, entry->unix_sec);
    reply_integer(reply, entry->usec);
    reply_array(reply, entry->nargs);
    for (size_t i = 0; i < entry->nargs; i++) {
        reply_bulk(reply, text, entry->lens[i]);
        text += entry->lens[i];
    }
    reply_bulk_str(reply, entry->addr);
    reply_bulk(reply, text, entry->name_len);
}

void slowlog_reply(struct slowlog *slowlog, size_t n, struct reply *reply)
{
    lock_take(slowlog->lock);
    reply_array(reply, n < slowlog->len ? n : slowlog->len);
    for (const struct slowlog_entry *entry = TAILQ_FIRST(&slowlog->entries); entry && n > 0;
         entry = TAILQ_NEXT(entry, link), n--)
        reply_entry(entry, reply);
    lock_give(slowlog->lock);
}
