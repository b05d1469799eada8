/* slowlog: the last commands that took longer than `slowlog-log-slower-than`, each with its arguments as far as they are
 * short. An entry is made on the loop, where the arguments are; whether it is kept is known later.
 *
 * Thread: any; entries belong to who made them until they are added. */
#ifndef BLOOMERY_SLOWLOG_H
#define BLOOMERY_SLOWLOG_H

#include <stddef.h>
#include <stdint.h>

#include "reply.h"
#include "resp_parse.h"
#include "session.h"

/* As in Redis: what is longer is replaced by a note of how much is missing. */
#define SLOWLOG_MAX_ARGS  32
#define SLOWLOG_MAX_BYTES 128

struct slowlog; /* one per server */
struct slowlog_entry;

int slowlog_create(struct slowlog **slowlog_out); /* 0 or -ENOMEM */
void slowlog_destroy(struct slowlog *slowlog);    /* NULL is fine */

/* Copies the words of a command, the client's address and its name. `words` are the first of `argc`, SLOWLOG_MAX_ARGS at
 * most. NULL without memory: then this command is not remembered. Thread: the session's worker. */
struct slowlog_entry *slowlog_entry_create(const struct slice *words, size_t argc, const struct session *session);
void slowlog_entry_destroy(struct slowlog_entry *entry); /* NULL is fine */

/* Puts the entry in front, takes ownership, and drops the oldest ones beyond `max_len`. */
void slowlog_add(struct slowlog *slowlog, struct slowlog_entry *entry, int64_t unix_sec, int64_t usec, size_t max_len);

size_t slowlog_len(struct slowlog *slowlog);
void slowlog_reset(struct slowlog *slowlog);

/* Replies with the newest `n` entries as an array. */
void slowlog_reply(struct slowlog *slowlog, size_t n, struct reply *reply);

#endif
