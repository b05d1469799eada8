/* adds: the adds of one command to the filter of a call, which is open for writing and complete.
 *
 * Thread: the engine's main thread. */
#pragma once

#include "bloom_ahead.h"
#include "bloom_batch.h"
#include "call.h"

/* A batch of the words `first` to first + n - 1, n at most BLOOM_BATCH. */
void start_batch(struct bloom_batch *batch, const struct call *call, size_t first, size_t n);

/* The size of the next batch of n items, of which `done` are done. */
static inline size_t batch_at(size_t done, size_t n)
{
    return n - done < BLOOM_BATCH ? n - done : BLOOM_BATCH;
}

/* Adds the words from `first` on, replies with an array, and tells replicas, log, watchers and listeners. `as_it_came`:
 * the command has the same effect on a replica, if all of its items were added, and nothing has been replicated yet. */
void add_words(struct call *call, size_t first, bool as_it_came);

/* Adds claims by this owner, with replies and effects as add_words(). */
void claim_words(struct call *call, size_t first, struct slice owner);

/* The same for argument 2, at which the aim was taken, with one reply instead of an array. */
void add_word(struct call *call, const struct bloom_aim *aim, bool as_it_came);
