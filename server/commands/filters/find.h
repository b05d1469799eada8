/* find: BF.FIND's work: chooses filters by names and patterns, asks them for items, and keeps the results until the
 * reply. It is done in steps, each of at most FIND_STEP filters; between two steps the thread may go offline (rcu.h),
 * as names and ids only are remembered.
 *
 * A filter that several words name is asked once. One that is deleted between two steps is in the reply if it was asked
 * before.
 *
 * Lifetime: find_create() to find_destroy(). Thread: one at a time, online during a step. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "bf_request.h"
#include "reply.h"
#include "server.h"

#define FIND_STEP 1024 /* names checked in a step, at most */

struct find;

/* Among the filters of a database (internal number). `words` and their bytes are borrowed until the end. `cap`: bytes
 * that the reply may have. NULL without memory. */
struct find *find_create(struct server *server, unsigned database, const struct bf_args *words,
                         const struct bf_find *request, size_t cap);
void find_destroy(struct find *find); /* NULL is fine */

/* Reads the keys of the request, if it has any. False: `error` names the one that is none. Once, before find_ask(). */
bool find_read_keys(struct find *find, struct errbuf *error);

/* Chooses the next filters. *layers_out is the number of their layers, with one for each filter that is answered
 * "maybe" without being asked: times the items the cost of find_ask(). False: the last, or no memory. */
bool find_choose(struct find *find, size_t *layers_out);

/* Among the words are SSTables' filters that have not been read (sstables.h), or filters whose bits are not in memory
 * (residency.h); they are chosen by find_read(). Under the policy `maybe` the latter are answered immediately. */
bool find_has_unread(const struct find *find);

/* Reads one of these, offline, and chooses it, as find_choose() does. One at a time, because the next one may take its
 * memory. Thread: pool. */
void find_read(struct find *find);

/* Asks the filters that were chosen last, in the same read section. */
void find_ask(struct find *find);

/* Answers so far that were "maybe" because a filter's bits were not in memory. */
uint64_t find_maybe_answers(const struct find *find);

/* Writes the reply; the buffer fails if memory or the cap did not suffice. */
void find_reply(const struct find *find, struct reply *reply);
