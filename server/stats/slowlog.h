/* slowlog: the last commands that took longer than `slowlog-log-slower-than`, with their arguments, long ones cut. The
 * loop makes an entry while it has the arguments; the duration decides later whether the log keeps it.
 *
 * Thread: any; an entry belongs to its maker until it is added. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lock.h"
#include "reply.h"
#include "resp_parse.h"
#include "session.h"

/* As in Redis: a note of the missing number replaces further arguments or bytes. */
#define SLOWLOG_MAX_ARGS  32
#define SLOWLOG_MAX_BYTES 128

struct slowlog; /* one per server */
struct slowlog_entry;

/* 0 or -ENOMEM. `lock` guards the log; borrowed, and may guard other things, too. */
int slowlog_create(struct slowlog **slowlog_out, struct lock *lock);
void slowlog_destroy(struct slowlog *slowlog); /* NULL is fine */

/* Copies the words of a command, the client's address and its name. `words` are the first of `argc`, at most
 * SLOWLOG_MAX_ARGS. It is one block of malloc(). NULL without memory: the log misses this command. */
struct slowlog_entry *slowlog_entry_create(const struct slice *words, size_t argc, const struct session *session);

/* Adds the entry as the newest, takes ownership of it, and drops the oldest entries beyond `max_len`. */
void slowlog_add(struct slowlog *slowlog, struct slowlog_entry *entry, int64_t unix_sec, int64_t usec, size_t max_len);

size_t slowlog_len(struct slowlog *slowlog);
void slowlog_reset(struct slowlog *slowlog);

/* Replies with the newest `n` entries as an array, under the lock that workers take to add one. */
void slowlog_reply(struct slowlog *slowlog, size_t n, struct reply *reply);
